/*
 * The contract of a machine: what the protocols may ask of a memory that is shared.
 *
 * A machine carries records over lanes, exports regions of memory to peers, copies between private memories, tells who
 * is alive, and sleeps. Its terms are claim, commit, poll, answer, export, window; never ring addresses, mappings or
 * system calls. Every machine passes one conformance suite (tests/conformance). docs/machine.md tells how to write one,
 * and holds this contract against the Unimem board (24-byte mailboxes and DMA).
 *
 * Objects
 *   port  an endpoint's presence on the machine. It owns everything that peers write to reach it.
 *   link  a port's handle on one peer, made from the peer's address. Cheap; reaches no peer until it is used.
 *   lane  the sending end of an ordered, single-producer single-consumer channel to a link's peer.
 *   rx    the receiving end of a lane that a peer opened to this port. The machine makes and ends it.
 *   token a number by which a record asks for an answer; the answer needs no credit of a lane. Tokens below UM_TOKENS
 *         are bounded: each has a place for its answer at all times. There are as many others as memory allows.
 *   space what a domain exports: the table of its regions, which peers read. Ports belong to a space, or to none.
 *   window a link's view of one region that the peer exports: what an initiator needs to reach it without the peer.
 *   transfer a copy between the peer's memory and this process's that goes on after the call that started it.
 *   shown memory of this process that a lane's peer may read by transfers, where the machine requires that it is told.
 *
 * Errors: 0 or a negative errno. Outputs are set only on success. An error that a user can act on is logged here, once.
 * Threads: calls that touch one port (its links, lanes, rx and windows included) are serialised by the caller, and so
 * are those that touch one space; different ports may be used by different threads at once. Only kick() may be called
 * from any thread at any time.
 * Blocking: no call blocks on a peer. close() is bounded; it waits for no peer.
 * Trust: what a peer writes is checked before use; a peer that breaks the format loses its lane (UM_REC_LEFT with
 * -EPROTO), never more. The views of a record point to memory the peer can still write: copy a value once, then check
 * it.
 */
#ifndef UM_MACHINE_MACHINE_H
#define UM_MACHINE_MACHINE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum {
    UM_HEADER_MAX = 56,        /* bytes of header in one record */
    UM_TOKENS = 64,            /* tokens of a lane whose answer always has a place */
    UM_ANSWERS = 1024,         /* places of a lane for answers: UM_TOKENS for those tokens, the rest for all others */
    UM_PROGRESS_WORDS = 4,     /* pairs of progress words that a lane has */
    UM_OPCODE_MACHINE = 0xf0,  /* opcodes from here on belong to the machine */
    UM_REC_JOINED = 0xf0,      /* poll: a peer opened a lane to this port; header, body empty */
    UM_REC_LEFT = 0xf1,        /* poll: the lane ended; len holds the positive errno, 0 for an orderly end */
    UM_FLAG_ACK = 0x80,        /* record flag: consumption is told before poll() says 0 (delivery complete) */
    UM_FLAG_MACHINE = 0x40,    /* record flag: for the machine's own use */
    UM_FLAG_MASK = 0x0f,       /* record flags that belong to the protocols; 0x10 and 0x20 are a machine's, too */
    UM_NONTEMPORAL_MIN = 4096, /* bytes of the shortest body that may be written with non-temporal stores */
    UM_ANNOUNCED_MIN = 65536,  /* longer bodies are announced while the receiver wants that (rx_announce) */
    UM_ROOM_MAX = 65536,       /* bytes of bodies that lane_has_room() is asked for at once */
    UM_ATTACH_MAX = 80,        /* bytes of um_port_config.attach, with the zero at its end */
};

/*
 * Address of an endpoint, position independent, fit for exchange out of band. Each machine has a part of it
 * (address.h); the first two bytes say which ones there are. All zero is no address.
 */
struct um_addr {
    uint64_t word[8];
};
static_assert(sizeof(struct um_addr) == 64, "the address is wire format: docs/protocol.md section 2");

/* A piece of a peer's private memory: its own virtual address and length, in bytes. Wire format. */
struct um_piece {
    uint64_t addr;
    uint64_t len;
};
static_assert(sizeof(struct um_piece) == 16, "the piece is wire format: docs/protocol.md section 6");

/* Every object begins with its machine: the layers above call through the object in hand. */
struct um_machine;
struct um_port {
    const struct um_machine *machine;
    uint32_t
        patience; /* polls that the caller may skip after an empty one, because a poll is expensive; set by the port */
    uint32_t *left; /* how many of them are left: the caller counts down, the port may set 0; NULL: none is skipped */
};

/* The next poll is not left out. */
static inline void um_port_stir(struct um_port *port)
{
    port->patience = 0;
    if (port->left)
        *port->left = 0;
}

struct um_link {
    const struct um_machine *machine;
};
struct um_lane {
    const struct um_machine *machine;
    uint32_t body_max; /* largest body that a claim can ever ask for, in bytes */
};
struct um_rx {
    const struct um_machine *machine;
    void *user; /* the caller's; NULL at first */
};
struct um_space {
    const struct um_machine *machine;
};
struct um_exported {
    const struct um_machine *machine;
};
struct um_transfer {
    const struct um_machine *machine;
};
struct um_shown {
    const struct um_machine *machine;
};
/* Why memory is not shown any more: the peer has read it; it asked for records instead; or it may be reading it. */
enum um_hide { UM_HIDE_READ, UM_HIDE_REFUSED, UM_HIDE_GIVEN_UP };
struct um_locks_shm;

/*
 * Two words of a lane, by which both of its sides share some work: each side writes its own one, on a line of its own,
 * and reads the other's. Zero at first; what they say is the callers' matter. Wire format.
 */
struct um_progress_words {
    uint64_t receiver;
    uint64_t reserved0[7];
    uint64_t sender;
    uint64_t reserved1[7];
};
static_assert(sizeof(struct um_progress_words) == 128, "docs/protocol.md section 4");

/* A claimed place. header has UM_HEADER_MAX bytes, 8-byte aligned; body has the bytes asked for, 64-byte aligned, or is
 * NULL. */
struct um_slot {
    void *header;
    void *body;
    uint32_t body_len;
    bool is_nontemporal; /* of a body of at least UM_NONTEMPORAL_MIN bytes: um_bytes_copy_nontemporal() is the better
                            way to write it. Who writes it in another way sets false. Not set for shorter ones */
    bool more; /* false after claim(). Set before commit(): the caller will soon claim the next record of this lane, and
                  polls until then; the machine may send both together */
};

/* A received record. Valid until release(). */
struct um_record {
    struct um_rx *rx;
    const void *header; /* UM_HEADER_MAX bytes, 8-byte aligned */
    const void *body;   /* len bytes when the sender claimed a body, else NULL */
    uint32_t len;       /* bytes of body, or the value the sender committed when there is none */
    uint8_t op;         /* what commit() was given, or UM_REC_* */
    uint8_t flags;      /* what commit() was given: UM_FLAG_MASK and UM_FLAG_ACK; other bits are the machine's */
};

struct um_answer {
    uint32_t token;
    int32_t status;
};

/* How a peer reaches a region. Wire format, except UM_LEVEL_OWN. */
enum um_level {
    UM_LEVEL_REMOTE = 0, /* its owner executes */
    UM_LEVEL_COPY = 1,   /* transfers reach it */
    UM_LEVEL_MAPPED = 2, /* loads and stores */
    UM_LEVEL_OWN = 3,    /* the same, in this process's own memory, under the window's guard */
};

/* What peers may do with a region. Wire format. */
enum um_access { UM_ACCESS_REMOTE_READ = 1, UM_ACCESS_REMOTE_WRITE = 2 };

/* A region as its owner describes it. */
struct um_region_desc {
    uint64_t key;
    uint64_t base;     /* the owner's virtual address of the first byte */
    uint64_t len;      /* bytes; UINT64_MAX with base 0: all memory */
    uint64_t origin;   /* the address that peers give for the first byte */
    uint32_t access;   /* enum um_access */
    uint32_t counters; /* that accesses of peers add to: enum um_counters; 0: none */
};

/* Two counters of a space: of writes and base atomics (bits 0-15), of reads and fetching atomics (16-31); 0: none. */
enum um_counters { UM_COUNT_WRITE_SHIFT = 0, UM_COUNT_READ_SHIFT = 16, UM_COUNT_MASK = 0xffff };

/*
 * A region as a peer sees it. It is current while *changes_at equals changes. changes becomes UINT64_MAX, set by any
 * thread, if the memory disappears while it is used; accesses then end in a stand-in.
 */
struct um_window {
    const struct um_machine *machine;
    struct um_region_desc region;
    unsigned char *base; /* the first byte here; NULL below UM_LEVEL_MAPPED */
    enum um_level level;
    uint32_t at_once; /* accesses (enum um_access) by loads and stores; 0 below UM_LEVEL_MAPPED. Set by core/window.h */
    struct um_fault_guard *guard; /* UM_LEVEL_OWN */
    uint64_t changes;
    const uint64_t *changes_at;
    const uint32_t *port_counters; /* as region.counters, for any region: those of the link's peer; never NULL */
    /* For atomics that the processor does not have; the owner uses the same ones. NULL: those are the owner's to do. */
    struct um_locks_shm *locks;
    uint16_t birth; /* differs between registrations, as a rule: distinguishes two of the same key */
    uint64_t *use;  /* not NULL: the owner makes the region mapped when peers use it enough: see window_use() */
};

#define UM_USE_MUST UINT64_MAX

/* A copy between the peer's private memory (remote) and this process's (local). At most UM_IOV_LIMIT entries each. */
struct um_copy {
    bool write; /* to the peer */
    const struct um_piece *remote;
    size_t remote_count;
    const struct iovec *local;
    size_t local_count;
    size_t len; /* bytes: all of the shorter side, or less */
    const struct um_window
        *window;          /* the remote memory is this region's; NULL: the peer has announced it in a record */
    uint64_t key, offset; /* the key of what the peer has shown, and where in that the remote memory begins; key 0: it
                             has shown nothing */
};

struct um_space_config {
    bool adopt; /* make private memory mapped where the machine can; else it stays at UM_LEVEL_COPY */
};

struct um_port_config {
    struct um_space *space; /* what peers of this port may reach; NULL: nothing */
    uint32_t lanes_max;     /* incoming lanes at a time; 0: the machine's default */
    uint64_t memory_max;    /* bytes that grown lanes may take together; 0: the machine's default */
    uint16_t partition;     /* the program's: shm reaches no peer of another one */
    bool private_copy;      /* false: act as if reading another process's private memory were refused */
    bool alone;             /* the endpoint has no other machine */
    /* How peers that this process cannot open by pid reach the port: "": not at all; else as the machine says. */
    char attach[UM_ATTACH_MAX];
};

/* What a user can choose about a machine. It holds for the process. */
struct um_machine_param {
    const char *key;     /* of the machine's own: BOARD_STEP for FI_UNIMEM_BOARD_STEP is "board_step" */
    const char *help;    /* what it is, what is allowed, the default */
    const char *allowed; /* the values that set() takes, for the message about another one */
    /* Takes the value; NULL: the default. 0; -EINVAL: it is not allowed, and all stays. Before the machine is used, or
     * again with the same value. */
    int (*set)(const char *value);
};

struct um_machine {
    const char *name;
    const char *about; /* what it is, for who chooses one: "the memory of this host". NULL: users cannot choose it */
    const struct um_machine_param *params; /* params_count of them; NULL: there are none */
    uint32_t params_count;
    uint8_t addr_kind;              /* its bit in the header of an address: enum um_addr_kind */
    uint8_t addr_first, addr_words; /* its words of an address. No two machines of one endpoint may share a word, except
                                       the header in word 0 */
    uint32_t body_max;              /* of every lane: um_lane.body_max */
    uint32_t depth;                 /* records a fully grown lane holds */
    /* Peers with a mapped window take space_locks() and add to the counters themselves: those of this machine are a
     * domain's, whatever its other machines are. */
    bool shares_locks;
    /* A transfer and records both cost processors' time, and which moves a body sooner depends on where this runs.
     * False: a transfer is the better way wherever it is permitted. */
    bool either_way;
    /* A transfer moves all of a body while this process does something else: it need not be moved in steps. */
    bool transfers_whole;
    uint32_t unconsumed_max;   /* records that a sender can commit before it learns that one was consumed */
    uint32_t unconsumed_bytes; /* and bytes of bodies, of those and of one message more */
    /* Events wake a port that sleeps, as arm() promises. False: nothing does; who sleeps looks by the clock. */
    bool wakes;

    /* Can it be used here? 0, or a negative errno (logged, with the remedy). NULL: always. */
    int (*probe)(void);

    /* Opens a port. Called once per endpoint, when it is enabled. -ENOMEM, -EMFILE, -EACCES, -ENOSYS, ... all logged.
     */
    int (*port_open)(const struct um_port_config *config, struct um_port **port_p);
    /* Ends the port: peers' claims fail with -EPIPE from now on. Its links and lanes must be closed before. */
    void (*port_close)(struct um_port *port);
    /* Sets this machine's part of the address; the rest stays. */
    void (*port_addr)(const struct um_port *port, struct um_addr *addr_p);

    /*
     * Can this port reach that address? 0; -EHOSTUNREACH another host; -EPROTO not one of our addresses or another wire
     * version. is_last: no other machine is asked: log why not, and the remedy. Otherwise what the address says of
     * where it is may be wrong: -EHOSTUNREACH also when the port is not found here, as far as that can be checked
     * without a call of the peer.
     */
    int (*addr_check)(const struct um_port *port, const struct um_addr *addr, bool is_last);

    /* A handle on a peer. The errors of addr_check, -ENOMEM. */
    int (*link_open)(struct um_port *port, const struct um_addr *addr, struct um_link **link_p);
    void (*link_close)(struct um_link *link);
    /* False only when the peer's port is certainly gone: closed, or its process ended or became another program. Some
     * system calls: slow path. */
    bool (*link_alive)(struct um_link *link);
    /*
     * Starts a copy. 0: all of it has moved, and there is no transfer. -EINPROGRESS: *transfer_p moves the rest; of
     * what copy points to, only the memory is still needed. -EPERM this memory cannot be reached, or not any more (part
     * of it may have moved): use records; -ESRCH the peer is gone; -EFAULT a piece is not the peer's memory; -EAGAIN
     * the peer is moving that memory at this moment; -ENOMEM.
     */
    int (*transfer_start)(struct um_link *link, const struct um_copy *copy, struct um_transfer **transfer_p);
    /*
     * -EINPROGRESS; or it has ended, and the transfer with it: 0, -EPERM, -ESRCH, -EFAULT, -EKEYREJECTED: the window's
     * region is exported no more. Parts of it move in any order, in this call and in poll(). NULL: copies end in the
     * call that starts them.
     */
    int (*transfer_poll)(struct um_transfer *transfer);
    /* Ends it as it stands. From the return on no byte moves. To be called before the link is closed. NULL: likewise.
     */
    void (*transfer_cancel)(struct um_transfer *transfer);
    /*
     * Lets the lane's peer read one piece of this process's memory, until hide(): the key goes into an announcement of
     * this lane, and the peer gives it in um_copy. May come between a claim and its commit. NULL: not this memory, or
     * not now; then the peer cannot read it, and asks for records. From the return of hide() on the peer reads nothing
     * of it, but one that lied when it answered; it comes before the port closes. NULL: both, where an announcement
     * suffices.
     */
    struct um_shown *(*show)(struct um_lane *lane, const struct iovec *piece, uint64_t *key_p);
    void (*hide)(struct um_shown *shown, enum um_hide why);

    /*
     * Memory that this machine transfers best: page-aligned, zeroed, valid until the space closes. alloc: -ENOMEM,
     * -ENOSPC the machine has no more of it; the errors of port_open. free: -EINVAL it is not what alloc() gave for
     * this space; -EBUSY a region that is exported lies in it. NULL: there are neither, it has no such memory.
     */
    int (*memory_alloc)(struct um_space *space, size_t len, void **memory_p);
    int (*memory_free)(struct um_space *space, void *memory);
    /* Can peers map all of this memory of the process, as it is? Then they can until the program frees it. NULL: never.
     */
    bool (*is_shareable)(struct um_space *space, const void *memory, size_t len);
    /*
     * Where this process sees the byte at that address of the peer, which the peer has said to be shareable. *len_p
     * bytes from there on, at most as many as asked for. Valid until the link closes. NULL: it cannot be mapped
     * here. The first call for an address maps its surroundings. NULL: never, with is_shareable.
     */
    void *(*peer_memory)(struct um_link *link, uint64_t addr, size_t *len_p);
    /*
     * Is it better to announce this body, and let the peer transfer it, than to copy it into a record: because that is
     * faster, or because the receiver asked for it (rx_announce)? NULL: no body.
     */
    bool (*prefers_rndv)(struct um_lane *lane, const struct iovec *iov, size_t count, size_t len);

    /* Opens and closes a space. Ports that belong to it, and what it exports, end before it. Errors as port_open. */
    int (*space_open)(const struct um_space_config *config, struct um_space **space_p);
    void (*space_close)(struct um_space *space);
    /*
     * Lets peers reach a region, at the best level there is. Peers find it from the return on. Fails only with -ENOMEM:
     * a region that no other level supports is left to its owner.
     */
    int (*export)(struct um_space *space, const struct um_region_desc *what, struct um_exported **exported_p);
    /* No operation that a peer starts after the return reaches the region any more. */
    void (*unexport)(struct um_space *space, struct um_exported *exported);
    /* The level at which peers reach it now. */
    enum um_level (*exported_level)(const struct um_exported *exported);
    /* Counters that peers add to. -ENOSPC: all are in use. *value_p: the counter, which only grows. */
    int (*counter_open)(struct um_space *space, uint32_t *number_p, const uint64_t **value_p);
    void (*counter_close)(struct um_space *space, uint32_t number);
    /* Sets the counters for accesses to a region, or to any region through a port. */
    void (*exported_set_counters)(struct um_space *space, struct um_exported *exported, uint32_t counters);
    void (*port_set_counters)(struct um_port *port, uint32_t counters);
    /* Counts an access that this process has executed for a peer: at counters, with UM_COUNT_*_SHIFT. */
    void (*space_count)(struct um_space *space, uint32_t counters, unsigned shift);
    /* The locks of wide and misaligned atomics on what this space exports; never NULL. */
    struct um_locks_shm *(*space_locks)(struct um_space *space);

    /*
     * A view of the region that the peer exports under that key. Slow path, no call of the peer needed. Level remote:
     * the region cannot be reached without the peer (ask the peer, which may know it), until the window is no longer
     * current. -ENOENT: the peer exports nothing at all; -ENOMEM; the errors of lane_open.
     */
    int (*window_open)(struct um_link *link, uint64_t key, struct um_window **window_p);
    void (*window_close)(struct um_window *window);
    /* Counts what was executed through the window, at its counters and its port's, and wakes a sleeping peer. NULL: no
     * window has counters (region.counters and *port_counters are 0). */
    void (*window_count)(struct um_window *window, unsigned shift);
    /*
     * For a window whose `use` is not NULL. Tells the owner how much time (ns) the operation that was just executed
     * below UM_LEVEL_MAPPED would have saved at that level. UM_USE_MUST: the operation was not executed: it needs that
     * level, or the owner's progress. The owner's program need make no call. When the level has changed, or will not
     * change any more, the window is no longer current. NULL: no window has `use`.
     */
    void (*window_use)(struct um_window *window, uint64_t saved_ns);

    /*
     * Opens the lane to a link's peer; the first contact. Slow path, no call of the peer needed, except of one whose
     * memory this process cannot open by itself: it answers when it makes progress. -EAGAIN that has not happened yet,
     * or no lane is free now; -ECONNREFUSED the port does not exist any more; -EHOSTUNREACH something else is in its
     * place: it has ended, or never was here (logged); -EACCES not permitted (logged with the remedy); -EPROTO.
     */
    int (*lane_open)(struct um_link *link, struct um_lane **lane_p);
    /* Orderly end: what was committed is still delivered. */
    void (*lane_close)(struct um_lane *lane);

    /*
     * Claims the next record with a body of body_len bytes (0 for none). After success exactly one commit or abort
     * follows. Sets the slot's is_nontemporal if body_len is at least UM_NONTEMPORAL_MIN. -EAGAIN full for now; -EPIPE
     * the port closed or refused this lane; -EMSGSIZE larger than this lane can hold at its present size, which
     * lane_body_max() tells.
     */
    int (*claim)(struct um_lane *lane, uint32_t body_len, struct um_slot *slot_p);
    /* The same for a record that the receiver may have to keep: -EAGAIN also while it holds this lane (rx_hold). */
    int (*claim_message)(struct um_lane *lane, uint32_t body_len, struct um_slot *slot_p);
    /*
     * The same for a record whose body is memory of the caller's, which the machine may read as it stands until the
     * record is consumed or the lane ends: the slot has no body to write. If the lane ends before, the receiver gets
     * all of the body as it was then, or none. NULL: bodies are copied.
     */
    int (*claim_lent)(struct um_lane *lane, const struct iovec *body, struct um_slot *slot_p);
    /* Publishes it. len: any value < 2^16 for the receiver's use when there is no body; ignored when there is one. */
    void (*commit)(struct um_lane *lane, const struct um_slot *slot, uint8_t op, uint8_t flags, uint32_t len);
    void (*abort)(struct um_lane *lane, const struct um_slot *slot);
    /* Largest body that this lane takes now; asking for more than it takes may make it grow (slow path). */
    uint32_t (*lane_body_max)(struct um_lane *lane, uint32_t wanted);
    /*
     * May one message go in so many records now, each with a body of up to body_len bytes, UM_ROOM_MAX in all? Then
     * the caller may claim and commit them one after the other, before any other call for this lane: no claim fails but
     * with -EPIPE. False: there is no room for them, more is asked for, or the receiver holds this lane or wants such
     * messages announced (rx_hold, rx_announce). The lane does not grow. NULL: no message goes in several records.
     */
    bool (*lane_has_room)(struct um_lane *lane, uint32_t records, uint32_t body_len);
    /* Records committed so far, and records known to be consumed (monotone, modulo 2^32). */
    uint32_t (*lane_committed)(const struct um_lane *lane);
    uint32_t (*lane_consumed)(const struct um_lane *lane);
    /* Takes up to max answers; returns how many. -EPIPE the lane was ended by the peer and no answer is left. */
    int (*lane_reap)(struct um_lane *lane, struct um_answer *answers, int max);
    /* The lane's progress words, UM_PROGRESS_WORDS pairs of them, at its sender and at its receiver; NULL: it has none,
     * because its memory is not coherent. NULL as operations: no lane has any. */
    struct um_progress_words *(*lane_progress)(struct um_lane *lane);
    struct um_progress_words *(*rx_progress)(struct um_rx *rx);
    /* While on, answers and consumption of this lane, its end by the peer, and the end of a hold that failed a claim
     * wake a sleeping port. */
    void (*lane_watch)(struct um_lane *lane, bool on);

    /*
     * The next record of any rx, in the order of its lane: 1 and *rec_p, or 0 when there is none. A record that is not
     * released is offered again by a later poll; records of other lanes may come in between. After the last record one
     * poll may return 0 without a look, where that is expensive; the next one looks.
     */
    int (*poll)(struct um_port *port, struct um_record *rec_p);
    /* What poll() put off telling peers because it had a record to offer: for a caller that stops before it says 0.
     * NULL: nothing is put off. */
    void (*catch_up)(struct um_port *port);
    /*
     * Takes up the lanes that peers opened and that poll() does not know of yet: one that died may not have come to
     * tell. True: poll() has a peer to offer that joined or left. Slow path.
     */
    bool (*gather)(struct um_port *port);
    /* The record is dealt with; its views end. For UM_REC_LEFT: rx ends with it. */
    void (*release)(struct um_port *port, const struct um_record *rec);
    /*
     * Answers a token of a record of this rx. Needs no credit. A token has at most one answer on its way: it may be
     * answered again only after a record that the peer sent upon the first answer. 0, always for a token below
     * UM_TOKENS; -EAGAIN for others while the sender has not taken UM_ANSWERS - UM_TOKENS earlier answers: try again
     * later. The sender takes them when it reaps, which wakes this port if it sleeps.
     */
    int (*answer)(struct um_rx *rx, uint32_t token, int32_t status);
    /*
     * Asks the sender to send no more messages (claim_message) until the hold ends. What it committed before is still
     * offered, and what it claimed before it saw the hold: together at most unconsumed_max + 1, with bodies of
     * unconsumed_bytes.
     */
    void (*rx_hold)(struct um_rx *rx, bool on);
    /* Asks the sender, until the request ends, to announce messages whose bodies are longer than UM_ANNOUNCED_MIN, and
     * those that would go in several records: its prefers_rndv() and lane_has_room() say so then. NULL: there are none.
     */
    void (*rx_announce)(struct um_rx *rx, bool on);
    /* Ends an rx whose peer broke the protocol: its sender sees -EPIPE; UM_REC_LEFT with EPROTO follows. */
    void (*rx_refuse)(struct um_rx *rx);
    /* Who sends: this machine's part of the address; the rest is zero. */
    void (*rx_origin)(const struct um_rx *rx, struct um_addr *addr_p);

    /*
     * Sleeping. arm() promises a readable wait_fd upon the next event: 0, or -EAGAIN when there is one already (then it
     * is not armed). disarm() ends it and drains the fd. kick() makes wait_fd readable from any thread. NULL: all four,
     * and only of a machine that does not wake (wakes).
     */
    int (*wait_fd)(const struct um_port *port);
    int (*arm)(struct um_port *port);
    void (*disarm)(struct um_port *port);
    void (*kick)(struct um_port *port);
    /*
     * Where the next record will be seen, for a processor that can wait for a store to one line. 1: *value_p stands at
     * *line_p while nothing came; valid until the next call that touches the port. 0: no lane is active. -EAGAIN: there
     * is news, more than one place to look at, or none (always, for a machine without such a line). What comes in
     * another way (a first contact, a lane that was idle, the end of one) does not touch the line: poll again soon.
     */
    int (*watch_line)(const struct um_port *port, const uint64_t **line_p, uint64_t *value_p);
    /*
     * Housekeeping (peers that died, memory to return); call it a few times a second or more while operations are
     * pending. However many peers there are, the death of one is noticed within about a second.
     */
    void (*tick)(struct um_port *port);
};

#endif
