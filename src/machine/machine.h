/*
 * The contract of a machine: what the protocols may ask of a memory that is shared.
 *
 * A machine carries records over lanes, exports regions of memory to peers, copies between private memories, tells
 * which peers are alive, and lets a port sleep until an event. Its terms are claim, commit, poll, answer, export,
 * window; never ring addresses, mappings or system calls. Every machine passes one conformance suite
 * (tests/conformance). docs/machine.md tells how to write a machine, and compares this contract with the Unimem board
 * (24-byte mailboxes and DMA).
 *
 * Objects
 *   port  the presence of an endpoint on the machine. It owns everything that peers write to in order to reach it.
 *   link  a port's handle on one peer, made from the peer's address. A link is cheap; only its use contacts the peer.
 *   lane  the sending end of an ordered, single-producer single-consumer channel to a link's peer.
 *   rx    the receiving end of a lane that a peer opened to this port. The machine creates and ends it.
 *   token a number under which a record asks for an answer; the answer needs no credit of a lane. Tokens below
 *         UM_TOKENS are bounded: each always has a place for its answer. The others are unbounded: as many as memory
 *         allows.
 *   space what a domain exports: the table of its regions, which peers read. A port belongs to one space or to none.
 *   window a link's view of one region that the peer exports: what an initiator needs to reach it without the peer.
 *   transfer a copy between the peer's memory and this process's that goes on after the call that started it.
 *   shown memory of this process that a lane's peer may read by transfers, on a machine that must be told of it.
 *
 * Errors: 0 or a negative errno. Outputs are set only on success. An error that a user can act on is logged here, once.
 * Absent operations: a sentence "NULL: ..." at the end of an operation's comment says when a machine has the operation
 * NULL. Every machine has all other operations.
 * Threads: the caller serialises the calls that touch one port (its links, lanes, rx and windows included), and those
 * that touch one space. Different ports may be used by different threads at once. Only kick() may be called from any
 * thread at any time.
 * Blocking: no call waits for a peer, except port_close(), which may wait for a bounded time (seconds).
 * Trust: what a peer writes is checked before use. A peer that breaks the format loses its lane (UM_REC_LEFT with
 * EPROTO) and nothing else. Header and body of a record lie in memory that the peer can still write: copy a value once,
 * then check the copy.
 */
#ifndef UM_MACHINE_MACHINE_H
#define UM_MACHINE_MACHINE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum {
    UM_HEADER_MAX = 56,    /* bytes of header in one record */
    UM_PART_MAX = 65536,   /* bytes; no lane_part_max() is more */
    UM_TOKENS = 64,        /* bounded tokens of a lane: each always has a place for its answer */
    UM_ANSWERS = 1024,     /* places for answers in a lane: UM_TOKENS for bounded tokens, the rest for unbounded ones */
    UM_PROGRESS_WORDS = 4, /* pairs of progress words that a lane has */
    UM_OPCODE_MAX = 31,    /* the largest opcode of the protocols */
    UM_OPCODE_BODY_MAX = 15,   /* the largest one of a record with a body */
    UM_OPCODE_MACHINE = 0xf0,  /* opcodes from here on belong to the machine */
    UM_REC_JOINED = 0xf0,      /* poll: a peer opened a lane to this port; no header, no body */
    UM_REC_LEFT = 0xf1,        /* poll: the lane ended; len: the positive errno, 0 for an orderly end */
    UM_FLAG_ACK = 0x80,        /* record flag: its consumption is told before poll() returns 0 (delivery complete) */
    UM_FLAG_MACHINE = 0x40,    /* record flag: for the machine's own use */
    UM_FLAG_MASK = 0x0f,       /* record flags of the protocols; 0x10 and 0x20 belong to the machine */
    UM_NONTEMPORAL_MIN = 2048, /* bytes of the shortest body that may be written with non-temporal stores */
    UM_WAIT_NONE_MS = 32,      /* um_port_config.wait_none */
    UM_ANNOUNCED_MIN = 65536,  /* bytes; longer bodies are announced while the receiver asks for it (rx_announce) */
    UM_ROOM_MAX = 524288,      /* bytes; bodies of all records that one lane_has_room() call may ask for */
    UM_ATTACH_MAX = 80,        /* bytes of um_port_config.attach, with the zero at its end */
};

/*
 * Address of an endpoint, position independent, fit for exchange out of band. Each machine has a part of it
 * (address.h); the first two bytes say which parts are there. All zero: no address.
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
    /* Polls that the caller may skip after an empty one, because a poll is expensive. Set by the port. */
    uint32_t patience;
    /* The caller's count of the polls that it still skips: the caller decrements it, the port may set it to 0. NULL:
     * the caller skips no poll. */
    uint32_t *left;
};

/* The caller skips no poll now. */
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
    uint32_t body_max; /* bytes; the largest body that a claim can ever ask for, but for lane_part_max() */
};
struct um_rx {
    const struct um_machine *machine;
    void *user; /* for the caller; NULL at first */
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
/* Why memory is not shown any more: the peer has read it; the peer asked for records instead; or neither is known, and
 * the peer may still be reading it. */
enum um_hide { UM_HIDE_READ, UM_HIDE_REFUSED, UM_HIDE_GIVEN_UP };
struct um_locks_shm;

/*
 * Two words of a lane, by which its two sides share some work: each side writes its own word, on a line of its own, and
 * reads the other one. Zero when the lane opens; the protocols define what the words mean. Wire format.
 */
struct um_progress_words {
    uint64_t receiver;
    uint64_t reserved0[7];
    uint64_t sender;
    uint64_t reserved1[7];
};
static_assert(sizeof(struct um_progress_words) == 128, "docs/protocol.md section 4");

/* A claimed place. header has UM_HEADER_MAX bytes, 8-byte aligned. body has the bytes that were asked for, 64-byte
 * aligned; NULL: none to write. */
struct um_slot {
    void *header;
    void *body;
    uint32_t body_len;
    /* For a body of at least UM_NONTEMPORAL_MIN bytes: um_bytes_copy_nontemporal() is the better way to write it. A
     * caller that writes it in another way sets false. Undefined for shorter bodies. */
    bool is_nontemporal;
    /* False after claim(); undefined without a body. True, set before commit(): the caller will soon claim the next
     * record of this lane, and polls until then; the machine may send both records together. */
    bool more;
};

/* A received record. Valid until release(). */
struct um_record {
    struct um_rx *rx;
    const void *header; /* UM_HEADER_MAX bytes, 8-byte aligned; UM_REC_*: not to be read */
    const void *body;   /* len bytes if the sender claimed a body, else NULL */
    uint32_t len;       /* bytes of body; without a body the len that the sender passed to commit() */
    uint8_t op;         /* as passed to commit(), or UM_REC_* */
    uint8_t flags;      /* UM_FLAG_MASK and UM_FLAG_ACK: as passed to commit(); other bits belong to the machine */
};

struct um_answer {
    uint32_t token;
    int32_t status;
};

/* How a process reaches a region. Wire format, except UM_LEVEL_OWN. */
enum um_level {
    UM_LEVEL_REMOTE = 0, /* its owner executes the operation */
    UM_LEVEL_COPY = 1,   /* by transfers */
    UM_LEVEL_MAPPED = 2, /* by loads and stores */
    UM_LEVEL_OWN = 3,    /* by loads and stores in this process's own memory, under the window's fault guard */
};

/* What peers may do with a region. Wire format. */
enum um_access { UM_ACCESS_REMOTE_READ = 1, UM_ACCESS_REMOTE_WRITE = 2 };

/* A region as its owner describes it. */
struct um_region_desc {
    uint64_t key;
    uint64_t base;     /* the owner's virtual address of the first byte */
    uint64_t len;      /* bytes; UINT64_MAX with base 0: all memory */
    uint64_t origin;   /* the address by which peers name the first byte */
    uint32_t access;   /* enum um_access */
    uint32_t counters; /* enum um_counters: what accesses of peers add to; 0: none */
};

/* Numbers of two counters of a space: for writes and base atomics (bits 0-15), for reads and fetching atomics (bits
 * 16-31); 0: none. */
enum um_counters { UM_COUNT_WRITE_SHIFT = 0, UM_COUNT_READ_SHIFT = 16, UM_COUNT_MASK = 0xffff };

/*
 * A region as a peer sees it. The window is current while *changes_at equals changes. If the memory disappears during
 * an access, a thread sets changes to UINT64_MAX, and the access ends in a stand-in.
 */
struct um_window {
    const struct um_machine *machine;
    struct um_region_desc region;
    unsigned char *base; /* the first byte in this process; NULL below UM_LEVEL_MAPPED */
    enum um_level level;
    uint32_t at_once; /* enum um_access: what loads and stores may do; 0 below UM_LEVEL_MAPPED. Set by core/window.h */
    struct um_fault_guard *guard; /* UM_LEVEL_OWN */
    uint64_t changes;
    const uint64_t *changes_at;
    const uint32_t *port_counters; /* like region.counters, for accesses to any region of the link's peer; never NULL */
    /* Locks for atomics that the processor does not have; the owner takes the same locks. NULL: the owner executes such
     * atomics. */
    struct um_locks_shm *locks;
    uint16_t birth; /* differs, as a rule, between two registrations of the same key */
    uint64_t *use;  /* not NULL: the owner makes the region mapped when peers use it enough: window_use() */
};

#define UM_USE_MUST UINT64_MAX

/* A copy between the peer's private memory (remote) and this process's (local). At most UM_IOV_LIMIT entries each. */
struct um_copy {
    bool write; /* true: to the peer; false: from the peer */
    const struct um_piece *remote;
    size_t remote_count;
    const struct iovec *local;
    size_t local_count;
    size_t len; /* bytes to copy: at most what the shorter list holds */
    /* The window of the region that the remote memory lies in; NULL: the peer announced the memory in a record. */
    const struct um_window *window;
    /* The key of the memory that the peer has shown, and the offset in it where the remote memory begins. key 0: the
     * peer has shown nothing. */
    uint64_t key, offset;
    bool is_region; /* the local memory is a region that this process exports: it may be missing. Only calls that report
                       that with -EFAULT may touch it */
};

struct um_space_config {
    bool adopt; /* true: make private memory mapped where the machine can; false: it stays at UM_LEVEL_COPY */
};

struct um_port_config {
    struct um_space *space; /* what peers may reach through this port; NULL: nothing */
    uint32_t lanes_max;     /* incoming lanes at a time; 0: the default of the machine */
    uint64_t memory_max;    /* bytes that all grown lanes together may take; 0: the default of the machine */
    uint16_t partition;     /* chosen by the user; shm reaches no peer of another partition */
    bool private_copy;      /* false: act as if the system refused access to the private memory of other processes */
    bool alone;             /* the endpoint uses no other machine */
    bool wait_none; /* nobody is expected to sleep on the port: its wait_fd may become readable up to UM_WAIT_NONE_MS
                       after an event, and without one */
    /* How peers that cannot be opened by pid (another pid namespace) reach the port. "": not at all; else as the
     * machine defines. */
    char attach[UM_ATTACH_MAX];
};

/* A parameter of a machine that a user can choose. It holds for the whole process. */
struct um_machine_param {
    const char *key;     /* the name without FI_UNIMEM_, in lower case: "board_step" is FI_UNIMEM_BOARD_STEP */
    const char *help;    /* the meaning, the allowed values, the default */
    const char *allowed; /* the values that set() accepts, for the message about a wrong value */
    /* Sets the value; NULL: the default. Returns 0, or -EINVAL: the value is not allowed, and nothing changes. Called
     * before the machine is used; later only with the same value. */
    int (*set)(const char *value);
};

struct um_machine {
    const char *name;
    const char *about; /* what the machine is, for a user who chooses one: "the memory of this host". NULL: users cannot
                          choose it */
    const struct um_machine_param *params; /* params_count entries; NULL: none */
    uint32_t params_count;
    uint8_t addr_kind; /* the bit of the machine in the header of an address: enum um_addr_kind */
    /* The first word and the number of words of the machine's part of an address. No two machines of one endpoint may
     * share a word, except the header in word 0. */
    uint8_t addr_first, addr_words;
    uint32_t body_max; /* bytes; no um_lane.body_max is larger */
    uint32_t depth;    /* records that a fully grown lane holds */
    /* Peers with a mapped window take space_locks() and add to the counters themselves. The locks and counters of such
     * a machine are those of the whole domain, whatever other machines the domain has. */
    bool shares_locks;
    /* A transfer and records both cost processor time, and which of them moves a body sooner depends on the computer.
     * False: a transfer is the better way wherever it is permitted. */
    bool either_way;
    /* One transfer moves a whole body while this process does something else. False: a body is moved in steps. */
    bool transfers_whole;
    uint32_t unconsumed_max;   /* records that a sender can commit before it learns that one was consumed */
    uint32_t unconsumed_bytes; /* bytes; the bodies of these records and of one message more */
    /* Events wake a port that sleeps, as arm() promises. False: nothing wakes it; a sleeper looks by the clock. */
    bool wakes;

    /* Returns 0 if the machine can be used here, else a negative errno (logged, with the remedy). NULL: always. */
    int (*probe)(void);

    /* Opens a port. Called once per endpoint, when the endpoint is enabled. -ENOMEM, -EMFILE, -EACCES, -ENOSYS, ...:
     * all logged. */
    int (*port_open)(const struct um_port_config *config, struct um_port **port_p);
    /* Ends the port: claims of peers fail with -EPIPE from now on. Its lanes, links, transfers and shown memory must
     * have ended before. */
    void (*port_close)(struct um_port *port);
    /* Sets this machine's part of the address; the other parts stay. */
    void (*port_addr)(const struct um_port *port, struct um_addr *addr_p);

    /*
     * Checks whether this port reaches the address. 0; -EHOSTUNREACH: another host; -EPROTO: not an address of unimem
     * with a part of this machine, or another wire version. is_last: no other machine will be asked: the reason and the
     * remedy are logged. Not is_last: the place that the address names may be wrong: -EHOSTUNREACH also if the peer's
     * port is not found there, as far as that can be checked without a call of the peer.
     */
    int (*addr_check)(const struct um_port *port, const struct um_addr *addr, bool is_last);

    /* Opens a link to a peer. The errors of addr_check (with is_last); -ENOMEM. */
    int (*link_open)(struct um_port *port, const struct um_addr *addr, struct um_link **link_p);
    void (*link_close)(struct um_link *link);
    /* Returns false only if the peer's port is certainly gone: closed, or its process ended or became another program.
     * Some system calls: slow path. */
    bool (*link_alive)(struct um_link *link);
    /*
     * Starts a copy. 0: all of it has moved, and there is no transfer. -EINPROGRESS: *transfer_p moves the rest; the
     * memory is still needed, the lists in copy are not. -EPERM: this memory cannot be reached, or not any more (part
     * of the copy may have moved): use records; -ESRCH: the peer is gone; -EFAULT: a piece is not memory of the peer;
     * -EAGAIN: not at this moment (the peer is moving that memory, the window is not current any more, or the machine
     * starts no transfer now): look for the window and try again; -ENOMEM.
     */
    int (*transfer_start)(struct um_link *link, const struct um_copy *copy, struct um_transfer **transfer_p);
    /*
     * Returns -EINPROGRESS while the copy is under way. Every other value ends the transfer: 0; -EPERM, -ESRCH,
     * -EFAULT: as above; -EKEYREJECTED: the window's region is not exported any more. Parts of the copy may move in any
     * order, in this call and in poll(). NULL: copies end in the call that starts them.
     */
    int (*transfer_poll)(struct um_transfer *transfer);
    /* Gives up a transfer, however much of it has moved. No byte moves after the return. Every transfer must end before
     * its link is closed. NULL: as transfer_poll. */
    void (*transfer_cancel)(struct um_transfer *transfer);
    /*
     * show() lets the lane's peer read one piece of this process's memory until hide(). The key goes to the peer in an
     * announcement on this lane; the peer passes it in um_copy. May be called between a claim and its commit. Returns
     * NULL if this memory cannot be shown, or not now; the peer then cannot read it, and asks for records. After the
     * return of hide() the peer reads nothing of the memory, unless it answered falsely. hide() must be called before
     * the port is closed. NULL: both, where peers can read memory that is only announced.
     */
    struct um_shown *(*show)(struct um_lane *lane, const struct iovec *piece, uint64_t *key_p);
    void (*hide)(struct um_shown *shown, enum um_hide why);

    /*
     * Allocates and frees memory that this machine transfers best: page-aligned, zeroed, valid until the space is
     * closed. alloc: -ENOMEM; -ENOSPC: the machine has no more such memory; -EINVAL: len is 0; the errors of port_open.
     * free: -EINVAL: not what alloc returned for this space; -EBUSY: an exported region lies in it. NULL: both, the
     * machine has no such memory.
     */
    int (*memory_alloc)(struct um_space *space, size_t len, void **memory_p);
    int (*memory_free)(struct um_space *space, void *memory);
    /* True if peers can map all of this memory of the process as it is; they can then until the program frees it. NULL:
     * never. */
    bool (*is_shareable)(struct um_space *space, const void *memory, size_t len);
    /*
     * Returns where this process sees the byte at an address of the peer, in memory that the peer has said to be
     * shareable. *len_p: in, how many bytes are wanted; out, how many of them are there in one piece. is_stored: they
     * are stored to next, so it is worth while to make their pages present (a hint; that may take 100 us). Valid until
     * the link is closed. Returns NULL if that memory cannot be mapped here. The first call for an address maps its
     * surroundings. NULL: never mapped; then is_shareable is NULL, too.
     */
    void *(*peer_memory)(struct um_link *link, uint64_t addr, bool is_stored, size_t *len_p);
    /*
     * True if this body should be announced, and transferred by the peer, rather than copied into a record: because
     * that is faster, or because the receiver asked for it (rx_announce). NULL: no body.
     */
    bool (*prefers_rndv)(struct um_lane *lane, const struct iovec *iov, size_t count, size_t len);

    /* Opens and closes a space. Its ports must be closed, and its regions unexported, before it is closed. The errors
     * of port_open. */
    int (*space_open)(const struct um_space_config *config, struct um_space **space_p);
    void (*space_close)(struct um_space *space);
    /*
     * Lets peers reach a region, at the best level that is possible. Peers find the region from the return on. Fails
     * only with -ENOMEM: a region for which no higher level is possible is exported at level remote.
     */
    int (*export)(struct um_space *space, const struct um_region_desc *what, struct um_exported **exported_p);
    /* Ends the export. No operation that a peer starts after the return reaches the region. */
    void (*unexport)(struct um_space *space, struct um_exported *exported);
    /* Returns the level at which peers reach the region now. */
    enum um_level (*exported_level)(const struct um_exported *exported);
    /* Opens a counter that accesses of peers add to. *value_p: where it is, until it is closed; it begins at 0 and only
     * grows. -ENOSPC: all counters are in use. */
    int (*counter_open)(struct um_space *space, uint32_t *number_p, const uint64_t **value_p);
    void (*counter_close)(struct um_space *space, uint32_t number);
    /* Sets the counters (enum um_counters) of accesses to one region, or to any region through one port. */
    void (*exported_set_counters)(struct um_space *space, struct um_exported *exported, uint32_t counters);
    void (*port_set_counters)(struct um_port *port, uint32_t counters);
    /* Counts an access that this process has executed for a peer: adds 1 to the counter of `counters` that shift
     * selects (UM_COUNT_*_SHIFT). */
    void (*space_count)(struct um_space *space, uint32_t counters, unsigned shift);
    /* Returns the locks for wide and misaligned atomics on what this space exports; never NULL. */
    struct um_locks_shm *(*space_locks)(struct um_space *space);

    /*
     * Opens a window on the region that the peer exports under a key. Slow path; needs no call of the peer. Level
     * remote: as long as the window is current, the region cannot be reached without the peer (send the operation to
     * the peer, which may know the key). -ENOENT: the peer exports nothing at all; -ENOMEM; the errors of lane_open.
     */
    int (*window_open)(struct um_link *link, uint64_t key, struct um_window **window_p);
    void (*window_close)(struct um_window *window);
    /* Counts an access that was executed through the window: adds 1 to the counters of the region and of the peer's
     * port that shift selects, and wakes the peer if it sleeps. NULL: no window has counters (region.counters and
     * *port_counters are 0). */
    void (*window_count)(struct um_window *window, unsigned shift);
    /*
     * For a window whose `use` is not NULL. Tells the owner how much time (ns) UM_LEVEL_MAPPED would have saved for the
     * operation that was just executed below that level. UM_USE_MUST: the operation was not executed, because it needs
     * that level or the owner's progress. The owner's program need not make a call. When the level has changed, or will
     * not change any more, the window is no longer current. NULL: no window has `use`.
     */
    void (*window_use)(struct um_window *window, uint64_t saved_ns);

    /* Tells a link of the rx of its peer, when poll() has offered UM_REC_JOINED. NULL: of no use. */
    void (*link_joined)(struct um_link *link, struct um_rx *rx);
    /*
     * Opens the lane to the peer of a link: the first contact. Slow path. Needs a call of the peer only if this process
     * cannot open the peer's memory by itself: such a peer answers when it makes progress. -EAGAIN: the peer has not
     * answered yet, or no lane is free now; -ECONNREFUSED: the peer's port does not exist any more; -EHOSTUNREACH:
     * something else is in its place: the port has ended, or never was here (logged); -EACCES: not permitted (logged,
     * with the remedy); -EPROTO; -ENOMEM.
     */
    int (*lane_open)(struct um_link *link, struct um_lane **lane_p);
    /* Ends the lane in good order: what was committed is still delivered. */
    void (*lane_close)(struct um_lane *lane);

    /*
     * Claims the next record, with a body of body_len bytes (0: none). Exactly one commit or abort must follow a
     * successful claim, before any other call for this lane or its port. Sets the slot's is_nontemporal if body_len is
     * at least UM_NONTEMPORAL_MIN. -EAGAIN: the lane is full for now; -EPIPE: the peer's port closed or refused this
     * lane; -EMSGSIZE: the body is larger than the lane takes now (lane_body_max, lane_part_max).
     */
    int (*claim)(struct um_lane *lane, uint32_t body_len, struct um_slot *slot_p);
    /* As claim(), for a record that the receiver may have to keep: -EAGAIN also while the receiver holds this lane
     * (rx_hold). */
    int (*claim_message)(struct um_lane *lane, uint32_t body_len, struct um_slot *slot_p);
    /*
     * As claim_message(), for a record whose body is memory of the caller. The slot has no body to write: the machine
     * may read that memory until the record is consumed or the lane ends, so the caller must not change it before. If
     * the lane ends first, the receiver gets the whole body as it was until then, or nothing. NULL: bodies are copied.
     */
    int (*claim_lent)(struct um_lane *lane, const struct iovec *body, struct um_slot *slot_p);
    /* Makes the claimed record visible to the receiver. op: 1 to UM_OPCODE_MAX; with a body, 1 to UM_OPCODE_BODY_MAX.
     * len: without a body, any value below 2^16 for the receiver; with a body, ignored. abort() gives the place back.
     */
    void (*commit)(struct um_lane *lane, const struct um_slot *slot, uint8_t op, uint8_t flags, uint32_t len);
    void (*abort)(struct um_lane *lane, const struct um_slot *slot);
    /* Returns the largest body (bytes) that this lane takes now. If wanted is more than that, the lane may grow (slow
     * path). */
    uint32_t (*lane_body_max)(struct um_lane *lane, uint32_t wanted);
    /*
     * Returns the largest body (bytes) that the next claim() may ask for, if it is a part of a message, as the lane is
     * now: it may be more than lane_body_max(). goes_on: it is not the first part. The answer holds until the next call
     * for this lane or its port. NULL: it is never more.
     */
    uint32_t (*lane_part_max)(struct um_lane *lane, bool goes_on);
    /*
     * True if one message may go now in this number of records, each with a body of up to body_len bytes (as
     * lane_body_max() or lane_part_max() say), UM_ROOM_MAX bytes in all. The caller may then claim and commit them one
     * after the other, before any other call for this lane: a claim fails with -EPIPE only. False: there is no room for
     * them, or they are more than UM_ROOM_MAX, or the receiver holds this lane or wants no such messages (rx_hold,
     * rx_announce). The lane does not grow, but it may commit a record of the machine's own. The machine may put these
     * bodies elsewhere than those of single records, so it is called for a body that is to be compared with such a
     * message, too. NULL: no message goes in several records.
     */
    bool (*lane_has_room)(struct um_lane *lane, uint32_t records, uint32_t body_len);
    /* Return how many records were committed so far, and how many of them are known to be consumed (both only grow,
     * modulo 2^32). */
    uint32_t (*lane_committed)(const struct um_lane *lane);
    uint32_t (*lane_consumed)(const struct um_lane *lane);
    /* Takes up to max answers and returns their number. -EPIPE: the peer has ended the lane, and no answer is left. */
    int (*lane_reap)(struct um_lane *lane, struct um_answer *answers, int max);
    /* Return the UM_PROGRESS_WORDS pairs of progress words of the lane, to its sender and to its receiver. Return NULL
     * if the lane has none, because its memory is not coherent. NULL: both, no lane has any. */
    struct um_progress_words *(*lane_progress)(struct um_lane *lane);
    struct um_progress_words *(*rx_progress)(struct um_rx *rx);
    /*
     * Has the sender closed the lane, whether or not all its records were offered? To be asked after loads from the
     * sender's memory (peer_memory()): if not, none of them found what the sender's program stored there after the
     * close. NULL: no receiver maps such memory.
     */
    bool (*rx_is_closing)(struct um_rx *rx);
    /* While on, these events of the lane wake a sleeping port: an answer, the consumption of a record, the end of the
     * lane by the peer, and the end of a hold because of which a claim failed. */
    void (*lane_watch)(struct um_lane *lane, bool on);

    /*
     * Offers the next record of any rx; the records of one lane come in their order. Returns 1 and *rec_p, or 0 if
     * there is no record. A record that is not released is offered again by a later poll; records of other lanes may
     * come in between. Where a look for records is expensive, one poll after the last record may return 0 without a
     * look; the next one looks.
     */
    int (*poll)(struct um_port *port, struct um_record *rec_p);
    /* Tells peers what poll() has put off because it had a record to offer. For a caller that stops polling before
     * poll() returns 0. NULL: nothing is put off. */
    void (*catch_up)(struct um_port *port);
    /*
     * Takes up the lanes that peers opened and that poll() does not know of yet: a peer may have died before it could
     * tell of its lane. Returns true if poll() has a UM_REC_JOINED or UM_REC_LEFT to offer. Slow path.
     */
    bool (*gather)(struct um_port *port);
    /* Consumes a record that poll() offered: its header and body must not be read any more. UM_REC_LEFT: the rx ends,
     * too. */
    void (*release)(struct um_port *port, const struct um_record *rec);
    /*
     * Answers a token of a record of this rx. Needs no credit. A bounded token has at most one answer on its way: it
     * may be answered again only after a record that the peer sent upon the first answer. Always 0 for a bounded token;
     * for another one -EAGAIN while the sender has not taken UM_ANSWERS - UM_TOKENS earlier answers: try again later.
     * The sender takes answers when it reaps; that wakes this port if it sleeps.
     */
    int (*answer)(struct um_rx *rx, uint32_t token, int32_t status);
    /*
     * on: asks the sender to send no more messages (claim_message), until the hold ends. poll() still offers the
     * records that the sender committed before, and one that it claimed before it saw the hold: together at most
     * unconsumed_max + 1 records, with bodies of at most unconsumed_bytes.
     */
    void (*rx_hold)(struct um_rx *rx, bool on);
    /* on: asks the sender, until the request ends, to announce messages whose bodies are longer than UM_ANNOUNCED_MIN,
     * and not to send messages in several records: the sender's prefers_rndv() then returns true for the former,
     * lane_has_room() false for the latter. NULL: no lane carries such messages. */
    void (*rx_announce)(struct um_rx *rx, bool on);
    /* Ends an rx whose peer broke the protocol: the sender gets -EPIPE, and poll() offers UM_REC_LEFT with EPROTO. */
    void (*rx_refuse)(struct um_rx *rx);
    /* Returns the sender's address: this machine's part; the rest is zero. */
    void (*rx_origin)(const struct um_rx *rx, struct um_addr *addr_p);

    /*
     * Sleeping. arm() returns 0 and promises that wait_fd becomes readable with the next event (wait_none: soon after
     * it); or -EAGAIN if there is an event already (the port is not armed then). disarm() ends that and drains the fd.
     * kick() makes wait_fd readable, from any thread. NULL: all four, only where `wakes` is false.
     */
    int (*wait_fd)(const struct um_port *port);
    int (*arm)(struct um_port *port);
    void (*disarm)(struct um_port *port);
    void (*kick)(struct um_port *port);
    /*
     * Tells which line of memory the next record will change, for a processor that can wait for a store to one line. 1:
     * the word at *line_p is *value_p as long as no record has come; valid until the next call that touches the port.
     * 0: no lane is active. -EAGAIN: there is news already, or there is not exactly one such line (always, for a
     * machine without one). A first contact, a record in an idle lane and the end of a lane do not change the line:
     * poll again soon.
     */
    int (*watch_line)(const struct um_port *port, const uint64_t **line_p, uint64_t *value_p);
    /*
     * Does housekeeping: finds peers that died, gives memory back. To be called a few times a second or more while
     * operations are pending. The death of a peer is then noticed within about a second, however many peers there are.
     */
    void (*tick)(struct um_port *port);
};

#endif
