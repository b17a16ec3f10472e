/*
 * The machine over another libfabric provider: what its files share.
 *
 * Each port has an endpoint of the inner provider of its own (inner.c), so ports of one process share nothing, and
 * there is no lock. Records are messages of that endpoint under the port's own lanes (docs/protocol.md section 13): a
 * lane that opens asks its receiver (JOIN) and is granted (GRANT) a window of records that it may have unconsumed.
 * claim() gives a buffer, commit() hands that buffer to the inner provider: nothing is copied. A record is offered in
 * the buffer that it was received into, which is kept until it is released; the inner endpoint has got another one by
 * then.
 *
 * What a peer must be told is kept as state ("told up to here"), so an inner provider that takes nothing now only
 * delays: a lane or rx with something to tell stands in the port's list `work`, and every drive tries again. What
 * arrives is always taken first.
 *
 * An inner provider that is done with a message has not delivered it: when a TCP connection breaks, what neither side
 * has read is lost without a word. So a lane keeps its records until they are consumed, an rx its answers until they
 * are taken, and each tells in its PROBE what has come to it. What a peer still lacks some time after it was told, it
 * is told again, and it takes everything once, by numbers.
 *
 * The files, from the lowest one up; none calls one above it (tests/unit/circles_test.py):
 *
 * - config, library, provider_file, choose: what the user chose; libfabric's functions; which inner provider.
 * - inner, rma: one endpoint of the inner provider, and its buffers; another one, for memory that is shown and read.
 * - address, knock, peer: parts of addresses; does a TCP port still listen; who is reached.
 * - slots, tell: lanes and rx by number; one message to a peer, and whether it was lost.
 * - bodies: what is shown to peers, and read of them, by the inner provider's RMA.
 * - lane; rx_life, rx_tell, rx: what is told to peers and what they tell, each about its kind of object.
 * - drive: all of these at once.
 * - send, poll, space, wait: the calls of machine.h, which drive.
 * - port, net: the rest of them; their table.
 *
 * Threading: machine.h. A forked child has its parent's sockets and must not touch them: the layer above sees to that
 * for ports that it inherits.
 */
#ifndef UM_MACHINE_NET_NET_H
#define UM_MACHINE_NET_NET_H

#include "base/list.h"
#include "machine/net/rma.h"

/* ---- objects ---- */

/* An attempt to connect, which may be made again. */
struct um_net_question {
    int fd;         /* or -1 */
    uint64_t begun; /* this attempt */
    bool is_silent; /* for some seconds there was no answer, or nobody could be reached */
};

/* Is anybody at a peer's port? And, if that is silent, is its host there? */
struct um_net_knock {
    struct um_net_question port, host;
    bool is_asking;
    uint64_t asked_at;   /* since when it is asking */
    uint64_t looked_at;  /* when answers were looked for last */
    uint64_t unanswered; /* ns for which there has been no answer, as far as somebody looked */
    uint64_t at;         /* the next time to ask */
    uint64_t pause;      /* between the last two times */
};

/* Where a peer shows memory, and what is known of that. */
struct um_net_from {
    struct um_net_name_wire name; /* len 0: it has not told */
    uint32_t serial;              /* um_net_bodies.serial of the endpoint that knows it as `at`; 0: none */
    fi_addr_t at;
    uint64_t reading;            /* bytes of reads under way */
    uint64_t first_at, tried_at; /* tries in turn that were not taken: the first, the last; 0: none */
    uint64_t unreached_at;       /* when it was found that none is taken */
    uint64_t heard_at;           /* um_net_peer.heard_at when it was looked at last */
    uint32_t heard;              /* how often it had changed, since the first try or since a read ended */
};

/* Whom an address leads to; links, lanes and rx of one address have one. */
struct um_net_peer {
    struct um_net_peer *next; /* in its bucket */
    struct um_addr addr;      /* this machine's part */
    fi_addr_t at;
    uint32_t nonce;
    uint32_t refs;         /* links, lanes, rx, messages that are being sent, what is shown */
    bool is_here;          /* a port of this process */
    bool gone;             /* nothing more goes to it, or comes from it */
    int error;             /* why: a positive errno */
    uint64_t again_since;  /* since when the inner provider takes nothing for it; 0: it does */
    uint64_t retry_at;     /* and when it is to be tried next */
    uint64_t failed_since; /* since when messages to it fail, now and then, and nothing was heard of it */
    uint64_t failed_at;    /* when one did last */
    bool is_broken;        /* and none went since */
    uint64_t heard_at;     /* when a PROBE of it came last, or it was got to know */
    struct um_net_knock knock;
    struct um_list fallen; /* in the port's list */
    uint32_t cuts;         /* looks since then that stopped before the inner queue was empty */
    struct um_list lanes, rxs;
    struct um_net_from from;
    uint32_t told_serial; /* um_net_bodies.serial of the endpoint that it was told; 0: none */
    uint32_t refused;     /* occasions in turn on which it wanted in records what was shown to it */
    uint64_t refused_at;  /* the last one */
};

/* Bodies that go by RMA. */
struct um_net_bodies {
    struct um_net_rma *rma; /* NULL: there is none now */
    uint32_t serial;        /* of this one */
    bool is_off;            /* there is to be none */
    uint64_t open_at;       /* before that there is none, either */
    uint64_t tried_at;      /* when a read was not taken last */
    uint32_t shown;         /* pieces of memory that are */
    struct um_list reads;   /* under way */
    uint32_t ended;         /* reads whose owners do not know that they have */
};

/* Lanes or rx by number. */
struct um_net_table {
    void **at;
    uint32_t capacity, end; /* end: above the last that is used */
};

enum { UM_NET_BUCKETS = 256, UM_NET_DENIALS_MAX = 1024 };

/* What the last poll gave: nothing; the record of the first rx in the list `ready`; one that was released since. */
enum um_net_given { UM_NET_NOTHING, UM_NET_OFFERED, UM_NET_RELEASED };

struct um_net_port {
    struct um_port base;
    bool is_open; /* there is an inner endpoint */
    struct um_net_inner inner;
    struct um_net_bodies bodies;
    struct um_net_addr_wire name;
    struct um_net_table lanes, rxs;
    struct um_net_peer *peers[UM_NET_BUCKETS];
    struct um_list work;  /* lanes and rx that have something to tell: struct um_net_work */
    struct um_list ready; /* rx that have something to offer */
    enum um_net_given given;
    struct um_list lazy;   /* rx whose sender does not know yet what was consumed */
    struct um_list fallen; /* peers that are gone: their lanes and rx are to be ended */
    uint32_t cuts;         /* drives in turn that stopped before the inner queue was empty */
    uint32_t owed;         /* large records for which credit is due, and was put off */
    struct um_list open;   /* in the process's list of ports */
    uint32_t rx_max, rx_used;
    uint32_t denials; /* rx that are only to tell that there is no lane */
    /* Records that all incoming lanes may have unconsumed beyond their first windows. A first window's records have
     * UM_NET_KEPT_MAX bytes at most. */
    uint32_t windows, windows_max;
    uint32_t idle;  /* polls since the last record */
    uint32_t quiet; /* polls since something happened */
    uint32_t fit;   /* polls that may be left out at most, as often as the caller polls */
    uint32_t polls; /* since the kernel's clock was seen to tick */
    uint64_t ticked_at_coarse;
    uint64_t ticked_at;
    uint64_t heard_at;             /* when a PROBE of anybody came last, or it was seen to that they can come */
    uint32_t probe_lane, probe_rx; /* slots that tick() looks at next */
    uint64_t strays;               /* messages for nothing that is here */
    int wait_fd;                   /* epoll: kick_fd, timer_fd, the inner queue's */
    int kick_fd, timer_fd;
    bool is_timed;
};

struct um_net_link {
    struct um_link base;
    struct um_net_port *port;
    struct um_net_peer *peer;
    struct um_net_lane *opening; /* asked for, and not granted yet */
};

/* What stands in a port's list `work`. push: tells what there is to tell; true: nothing is left, and the object may
 * be gone. */
struct um_net_work {
    struct um_list link;
    bool (*push)(struct um_net_work *work);
};

/* What may be lost: the peer has reported `has` items, the same since `since`, when `told` had been sent. */
struct um_net_gap {
    uint32_t has, told;
    uint64_t since;
};

enum um_net_lane_state { UM_NET_ASKING = 0, UM_NET_DENIED, UM_NET_OPEN };

struct um_net_lane {
    struct um_lane base;
    struct um_net_work work;
    struct um_net_port *port;
    struct um_net_peer *peer;
    struct um_list of_peer;
    uint32_t slot, rx_slot;
    uint64_t id, rx_id; /* its secret number, the rx's */
    enum um_net_lane_state state;
    uint64_t probed_at;
    bool asked;              /* JOIN was sent */
    bool closed, close_told; /* by lane_close(); CLOSE was sent */
    bool bye;                /* the receiver has all of it */
    bool ended;              /* by the peer, or it is gone */
    bool ended_seen;         /* lane_reap() told */
    bool watched;
    uint8_t credit_serial; /* of the last CREDIT */
    bool held, was_held;   /* the receiver wants no messages now; a claim failed because of it */
    bool announces;        /* it wants large bodies to be announced */
    int error;             /* why it was denied: a negative errno */
    struct um_net_buffer *claimed;
    struct um_net_buffer *first, *last; /* committed, and not known to be consumed */
    uint64_t kept;                      /* bytes of those */
    struct um_net_buffer *unsent;       /* of those, the first that is to be sent; NULL: none */
    struct um_net_gap gap;              /* of the records */
    uint32_t committed, consumed, window;
    uint32_t credited;                              /* what the receiver has consumed: `consumed` follows */
    uint32_t consumed_seen;                         /* what lane_consumed() told last */
    uint32_t answers_in, answers_out, answers_told; /* received; reaped; reaped ones that the receiver knows of */
    uint32_t ends_at;                               /* answers that there will be, if ends_is_known */
    bool ends_is_known;
    struct um_answer answers[UM_ANSWERS];
};

struct um_net_rx {
    struct um_rx base;
    struct um_net_work work;
    struct um_net_port *port;
    struct um_net_peer *peer;
    struct um_list of_peer;
    struct um_list ready, lazy;
    uint32_t slot, lane_slot;
    uint64_t id, lane_id; /* its secret number, the lane's */
    uint64_t probed_at;
    enum um_net_grant denied;     /* there is no lane: only GRANT is to be sent */
    bool granted;                 /* GRANT was sent */
    bool joined_told;             /* UM_REC_JOINED was released */
    bool left_told;               /* UM_REC_LEFT was released */
    bool closing;                 /* CLOSE came: close_at records are all */
    bool closed;                  /* and they are here; or the sender is gone */
    bool bye_told;                /* BYE was sent */
    bool refused;                 /* ENDED is to be sent */
    bool end_told;                /* ENDED was sent */
    bool crowded;                 /* an answer found no place */
    bool held, held_told;         /* the sender is to send no messages; knows it */
    bool announce, announce_told; /* it is to announce large bodies; knows it */
    int error;                    /* what UM_REC_LEFT tells */
    uint32_t close_at;
    struct um_net_buffer *first, *last; /* records that are to be offered */
    struct um_net_buffer *ahead;        /* records that came before others, by number */
    uint32_t arrived, released;         /* records */
    uint8_t credit_serial;              /* of the last CREDIT */
    uint32_t credit_due, credit_told;   /* released records: to be told, told */
    uint32_t window, window_told;
    uint32_t grows_at;                               /* released records after which the window grows */
    uint32_t bytes;                                  /* of records that were released since credit was told */
    uint64_t unreleased;                             /* bytes of records that have come */
    struct um_net_gap gap;                           /* of the answers */
    uint32_t answers_in, answers_out, answers_taken; /* given, sent, known to be taken */
    struct um_answer answers[UM_ANSWERS];
};

/* ---- address.c ---- */

void um_net_addr_set(const struct um_net_port *port, struct um_addr *addr_p);
/* Its part. */
struct um_net_addr_wire um_net_addr_part(const struct um_addr *addr);
int um_net_addr_check(const struct um_port *base, const struct um_addr *addr, bool is_last);

/* ---- knock.c: does a TCP port still listen, does its host live? ---- */

/* Looks after the attempt, or begins one when it is time. True: nobody listens there, or the host has vanished. */
bool um_net_knock(struct um_net_peer *peer, uint64_t now);
void um_net_knock_end(struct um_net_knock *knock);
/* The peer was heard of: the next silence is another one. */
void um_net_knock_forget(struct um_net_knock *knock);

/* ---- peer.c ---- */

/* The peer with that address, one more reference. -ENOMEM, -EHOSTUNREACH: the inner provider does not take it. */
int um_net_peer_get(struct um_net_port *port, const struct um_addr *addr, struct um_net_peer **peer_p);
void um_net_peer_put(struct um_net_port *port, struct um_net_peer *peer);
/* A message to it has failed: it is gone; or, over tcp, its connection has broken, and another one may be made. */
void um_net_peer_failed(struct um_net_port *port, struct um_net_peer *peer, int error);
/* Its lanes and rx are to be ended. */
void um_net_peer_fall(struct um_net_port *port, struct um_net_peer *peer, int error);
/* It sends again, if it was gone and what it had has ended. */
void um_net_peer_revive(struct um_net_peer *peer);
/* The inner provider took a message for it, or none: may it be tried now? */
bool um_net_peer_may_try(struct um_net_peer *peer);
void um_net_peer_took(struct um_net_peer *peer);
void um_net_peer_took_not(struct um_net_port *port, struct um_net_peer *peer);
void um_net_peer_heard(struct um_net_peer *peer);
/* The endpoint for bodies no longer knows the peer's. */
void um_net_peer_forget_from(struct um_net_port *port, struct um_net_peer *peer);
/* Nothing was heard for some time of who is asked: he computes, is stopped, or his host has vanished. */
bool um_net_is_silent(uint64_t heard_at, uint64_t now);
/* Is somebody there? Some system calls, seldom. */
void um_net_peer_doubt(struct um_net_port *port, struct um_net_peer *peer);
void um_net_peers_end(struct um_net_port *port);
/* The ports of this process, by their nonces. */
void um_net_port_enter(struct um_net_port *port);
void um_net_port_leave(struct um_net_port *port);

/* ---- slots.c ---- */

/* -ENOMEM. */
int um_net_slot_take(struct um_net_table *table, void *object, uint32_t *slot_p);
void um_net_slot_free(struct um_net_table *table, uint32_t slot);
void um_net_slots_end(struct um_net_table *table);
static inline void *um_net_slot(const struct um_net_table *table, uint32_t slot)
{
    return slot < table->end ? table->at[slot] : NULL;
}
/* A number that nobody guesses. 0: the system gives none. */
uint64_t um_net_secret(void);

/* ---- tell.c ---- */

/* Sends a message of len bytes. False: not now; or the peer is gone. */
bool um_net_tell(struct um_net_port *port, struct um_net_peer *peer, const void *message, size_t len);
/* The same for a record. */
bool um_net_tell_buffer(struct um_net_port *port, struct um_net_peer *peer, struct um_net_buffer *buffer);
/* The peer says what it has of what it was told. True: it has long lacked some of that: it is to be told again. */
bool um_net_is_lost(struct um_net_gap *gap, uint32_t has, uint32_t told);
/* Something happens: the next polls look at the inner queue. */
static inline void um_net_stir(struct um_net_port *port)
{
    port->quiet = 0;
    um_port_stir(&port->base);
}
/* It has something to tell. */
static inline void um_net_work_add(struct um_net_port *port, struct um_net_work *work)
{
    um_net_stir(port);
    if (um_list_is_empty(&work->link))
        um_list_append(&port->work, &work->link);
}

/* ---- lane.c ---- */

/* A new lane to that peer, of which it takes a reference. NULL: no memory. */
struct um_net_lane *um_net_lane_new(struct um_net_port *port, struct um_net_peer *peer);
void um_net_lane_free(struct um_net_lane *lane);
/* Tells what it can. May free the lane. */
void um_net_lane_push(struct um_net_lane *lane);
bool um_net_lane_taken_is_due(const struct um_net_lane *lane);
/* Its peer is gone, or has ended it. May free the lane. */
void um_net_lane_fall(struct um_net_lane *lane);
/* A message for it. */
void um_net_lane_take(struct um_net_lane *lane, const struct um_net_buffer *buffer);
/* The receiver says what it has. */
void um_net_lane_take_probe(struct um_net_lane *lane, const struct um_net_probe_wire *probe);
/* Asks the receiver whether it is there, and says what this side has. False: not now. */
bool um_net_lane_probe(struct um_net_lane *lane);
/* The inner provider is done with a record. */
void um_net_lane_sent(struct um_net_buffer *buffer, bool failed);

/* ---- bodies.c ---- */

/* Makes progress; true: a read has ended. */
bool um_net_bodies_look(struct um_net_port *port);
/* Is that to be done? Nothing says that a peer reads what is shown, or connects. */
static inline bool um_net_bodies_are_due(const struct um_net_port *port)
{
    return port->bodies.rma && (port->bodies.shown || !um_list_is_empty(&port->bodies.reads) || port->bodies.tried_at);
}
bool um_net_bodies_may_sleep(struct um_net_port *port);
/* A peer says where it shows memory. */
void um_net_bodies_take(struct um_net_port *port, struct um_net_peer *peer, const struct um_net_buffer *buffer);
/* From the return on nothing is read or written; every read fails that has not ended. */
void um_net_bodies_stop(struct um_net_port *port);
struct um_shown *um_net_show(struct um_lane *base, const struct iovec *piece, uint64_t *key_p);
void um_net_hide(struct um_shown *base, enum um_hide why);
int um_net_transfer_start(struct um_link *base, const struct um_copy *copy, struct um_transfer **transfer_p);
int um_net_transfer_poll(struct um_transfer *base);
void um_net_transfer_cancel(struct um_transfer *base);

/* ---- rx_life.c ---- */

/* denied: it is only to tell that. Takes a reference of the peer; the caller sets work.push. NULL: no memory. */
struct um_net_rx *um_net_rx_new(struct um_net_port *port, struct um_net_peer *peer, enum um_net_grant denied);
void um_net_rx_free(struct um_net_rx *rx);
/* Gives the buffers of one of its lists back. */
void um_net_rx_drop(struct um_net_rx *rx, struct um_net_buffer **list);
/* It may have something to offer: into the list, or out of it. */
void um_net_rx_offers(struct um_net_rx *rx);

/* ---- rx_tell.c ---- */

/* Tells what it can. May free the rx. */
void um_net_rx_push(struct um_net_rx *rx);
/* The same, as the rx's um_net_work.push. */
bool um_net_rx_work(struct um_net_work *work);
/* As um_net_lane_probe(), to the sender. */
bool um_net_rx_probe(struct um_net_rx *rx);
/* Lazy credit is due. */
void um_net_credit_due(struct um_net_port *port);

/* ---- rx.c ---- */

void um_net_rx_join(struct um_net_port *port, const struct um_net_buffer *buffer);
void um_net_rx_fall(struct um_net_rx *rx, int error);
/* Its sender broke the format, or is not wanted any more: it ends with that error. */
void um_net_rx_fail(struct um_net_rx *rx, int error);
/* A message for it; true: the buffer is kept. */
bool um_net_rx_take(struct um_net_rx *rx, struct um_net_buffer *buffer);
/* The sender says what it has. May free the rx. */
void um_net_rx_take_probe(struct um_net_rx *rx, const struct um_net_probe_wire *probe);
/* May credit that is due be put off, as far as the rx is concerned? */
bool um_net_rx_may_owe(const struct um_net_rx *rx);
/* A record was released: its buffer. */
void um_net_rx_released(struct um_net_rx *rx, uint8_t flags);

/* ---- drive.c ---- */

/* Takes what came and tells what is to be told; true: something moved. */
bool um_net_drive(struct um_net_port *port);
/* Takes all that came, too, as far as others do not send without end. */
void um_net_drive_all(struct um_net_port *port);
/* Asks the peers of lanes and rx whether they are there, each about twice a second. */
void um_net_probe(struct um_net_port *port, uint64_t now);

/* ---- send.c, poll.c, space.c, wait.c, port.c: machine.h ---- */

int um_net_lane_open(struct um_link *base, struct um_lane **lane_p);
void um_net_lane_close(struct um_lane *base);
int um_net_claim(struct um_lane *base, uint32_t body_len, struct um_slot *slot_p);
int um_net_claim_message(struct um_lane *base, uint32_t body_len, struct um_slot *slot_p);
int um_net_claim_lent(struct um_lane *base, const struct iovec *body, struct um_slot *slot_p);
void um_net_commit(struct um_lane *base, const struct um_slot *slot, uint8_t op, uint8_t flags, uint32_t len);
void um_net_abort(struct um_lane *base, const struct um_slot *slot);
uint32_t um_net_lane_body_max(struct um_lane *base, uint32_t wanted);
bool um_net_prefers_rndv(struct um_lane *base, const struct iovec *iov, size_t count, size_t len);
uint32_t um_net_lane_committed(const struct um_lane *base);
uint32_t um_net_lane_consumed(const struct um_lane *base);
int um_net_lane_reap(struct um_lane *base, struct um_answer *answers, int max);
void um_net_lane_watch(struct um_lane *base, bool on);
/* Is there news of a lane that is watched? */
bool um_net_lanes_news(const struct um_net_port *port);

int um_net_poll(struct um_port *base, struct um_record *rec_p);
void um_net_catch_up(struct um_port *base);
/* The same, and the inner queue is looked at. */
int um_net_poll_now(struct um_net_port *port, struct um_record *rec_p);
bool um_net_gather(struct um_port *base);
void um_net_release(struct um_port *base, const struct um_record *rec);
int um_net_answer(struct um_rx *base, uint32_t token, int32_t status);
void um_net_rx_hold(struct um_rx *base, bool on);
void um_net_rx_announce(struct um_rx *base, bool on);
void um_net_rx_refuse(struct um_rx *base);
void um_net_rx_origin(const struct um_rx *base, struct um_addr *addr_p);
/* Has a sender for whom an answer found no place made room? */
bool um_net_rxs_news(const struct um_net_port *port);

int um_net_space_open(const struct um_machine *machine, struct um_space **space_p);
void um_net_space_close(struct um_space *base);
int um_net_export(struct um_space *base, const struct um_region_desc *what, struct um_exported **exported_p);
void um_net_unexport(struct um_space *base, struct um_exported *exported);
enum um_level um_net_exported_level(const struct um_exported *exported);
int um_net_counter_open(struct um_space *base, uint32_t *number_p, const uint64_t **value_p);
void um_net_counter_close(struct um_space *base, uint32_t number);
void um_net_exported_set_counters(struct um_space *base, struct um_exported *exported, uint32_t counters);
void um_net_port_set_counters(struct um_port *base, uint32_t counters);
void um_net_space_count(struct um_space *base, uint32_t counters, unsigned shift);
struct um_locks_shm *um_net_space_locks(struct um_space *base);
int um_net_window_open(struct um_link *base, uint64_t key, struct um_window **window_p);
void um_net_window_close(struct um_window *window);

/* Its descriptors: 0 or an error. */
int um_net_wait_init(struct um_net_port *port);
void um_net_wait_fini(struct um_net_port *port);
int um_net_wait_fd(const struct um_port *base);
int um_net_arm(struct um_port *base);
void um_net_disarm(struct um_port *base);
void um_net_kick(struct um_port *base);
int um_net_watch_line(const struct um_port *base, const uint64_t **line_p, uint64_t *value_p);

int um_net_port_open(const struct um_machine *machine, const struct um_port_config *config, struct um_port **port_p);
void um_net_port_close(struct um_port *base);
void um_net_port_addr(const struct um_port *base, struct um_addr *addr_p);
int um_net_link_open(struct um_port *base, const struct um_addr *addr, struct um_link **link_p);
void um_net_link_close(struct um_link *base);
bool um_net_link_alive(struct um_link *base);
void um_net_tick(struct um_port *base);

#endif
