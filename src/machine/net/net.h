/*
 * The machine over another libfabric provider: what its files share.
 *
 * Each port has its own endpoint of the inner provider (inner.c), so ports of one process share nothing, and there is
 * no lock. Records are messages of that endpoint under the port's own lanes (docs/protocol.md section 13): a lane that
 * opens asks its receiver (JOIN) and is granted (GRANT) a window: the number of records that it may have unconsumed.
 * claim() gives a buffer, commit() hands that buffer to the inner provider: nothing is copied. A record is offered in
 * the buffer that it was received into. The buffer is kept until the record is released; another one has been posted
 * in its place.
 *
 * What must be sent to a peer is kept as state ("told up to here"). So an inner provider that accepts no message now
 * only causes delay: a lane or rx with something to send is in the port's list `work`, and every drive tries again.
 * What has arrived is always taken first.
 *
 * A send that has completed is not delivered yet: when a TCP connection breaks, data that neither side has read are
 * lost, and no error reports that. So a lane keeps its records until they are consumed, an rx keeps its answers until
 * they are taken, and each says in its PROBE what it has received. What a peer still lacks some time after it was sent
 * is sent again. The peer takes each item once, by its number.
 *
 * The files, from the lowest one up; none calls one above it (tests/unit/circles_test.py):
 *
 * - config, library, provider_file, choose: what the user chose; libfabric's functions; which inner provider.
 * - inner, rma: one endpoint of the inner provider, and its buffers; another one, for memory that is shown and read.
 * - address, knock, peer: parts of addresses; does a TCP port still listen; the peers of a port.
 * - slots, tell: lanes and rx by number; one message to a peer, and whether it was lost.
 * - bodies: memory that is shown to peers, and reads of what peers show, by the inner provider's RMA.
 * - lane; rx_life, rx_tell, rx: messages to and from the peer, of a lane; of an rx.
 * - drive: progress of all of these.
 * - descriptors: are any left for connections?
 * - send, poll, space, wait: the calls of machine.h, which drive.
 * - port, net: the rest of them; their table.
 *
 * Threading: machine.h. A forked child has its parent's sockets and must not touch them: the layer above prevents that
 * for ports that a child inherits.
 */
#ifndef UM_MACHINE_NET_NET_H
#define UM_MACHINE_NET_NET_H

#include "base/list.h"
#include "machine/net/rma.h"

/* ---- objects ---- */

/* A question: an attempt to connect, which may be repeated. */
struct um_net_question {
    int fd;         /* or -1 */
    uint64_t begun; /* when this attempt began */
    bool is_silent; /* no answer for some seconds, or the destination is unreachable */
};

/* Two questions: does anybody listen at a peer's port? If the port is silent, does its host answer? */
struct um_net_knock {
    struct um_net_question port, host;
    bool is_asking;
    uint64_t asked_at;   /* when is_asking became true */
    uint64_t looked_at;  /* when it last looked for answers */
    uint64_t unanswered; /* ns without an answer; a time without looks counts up to a limit */
    uint64_t at;         /* when to ask next */
    uint64_t pause;      /* ns from the last answer to `at` */
};

/* The endpoint by which a peer shows memory, and what is known of it. */
struct um_net_from {
    struct um_net_name_wire name; /* len 0: the peer has not sent it */
    uint32_t serial;              /* um_net_bodies.serial of the own endpoint in which `at` is valid; 0: none */
    fi_addr_t at;
    uint64_t reading;            /* bytes of reads under way */
    uint64_t first_at, tried_at; /* first and last of a series of reads that were not accepted; 0: none */
    uint64_t unreached_at;       /* when it was found that no connection comes about; 0: it was not */
    uint64_t heard_at;           /* um_net_peer.heard_at at the last look */
    uint32_t heard; /* changes of it that looks found since the first try, or since a read began or ended */
};

/* The peer at an address; links, lanes and rx of one address share it. */
struct um_net_peer {
    struct um_net_peer *next; /* in its bucket */
    struct um_addr addr;      /* this machine's part */
    fi_addr_t at;
    uint32_t nonce;
    uint32_t refs;         /* links, lanes, rx, messages being sent, pieces of memory shown to it, its
                              place among the strangers */
    uint32_t telling;      /* messages of um_net_tell() that are being sent to it */
    bool is_here;          /* a port of this process */
    bool gone;             /* nothing more is sent to it or comes from it */
    int error;             /* why it is gone: a positive errno */
    uint64_t again_since;  /* since when the inner provider accepts no message for it; 0: it does */
    uint64_t retry_at;     /* not before that time is the next try; 0: at once */
    uint64_t failed_since; /* start of a series of failed messages without a PROBE from it; 0: none */
    uint64_t failed_at;    /* when the last one failed */
    bool is_broken;        /* a message failed, and no send has succeeded since */
    uint64_t heard_at;     /* when its last PROBE came, or it became known */
    struct um_net_knock knock;
    struct um_list fallen; /* in the port's list, from `gone` until its lanes and rx are ended */
    uint32_t cuts;         /* looks since `gone` that stopped before the inner queue was empty */
    struct um_list lanes, rxs;
    struct um_net_from from;
    bool full_logged;        /* it was logged that the peer has no lane free */
    struct um_list stranger; /* in the port's list */
    uint64_t strange_since;  /* when it came into the list */
    uint32_t told_serial;    /* um_net_bodies.serial of the endpoint that BODIES named to it; 0: none */
    uint32_t refused;        /* successive occasions on which it asked for records instead of reading */
    uint64_t refused_at;     /* when the last one was */
};

enum { UM_NET_TELLING_MAX = 8 };
/* True if many messages to the peer are still being sent: then it is sent no PROBE. libfabric's tcp keeps 16 KiB for
 * each message that its socket does not take. */
static inline bool um_net_peer_is_behind(const struct um_net_peer *peer)
{
    return peer->telling >= UM_NET_TELLING_MAX;
}

/* Bodies that go by RMA. */
struct um_net_bodies {
    struct um_net_rma *rma; /* the endpoint; NULL: none now */
    uint32_t serial;        /* of the endpoint, from 1 on */
    bool is_off;            /* no endpoint is to be opened */
    uint64_t open_at;       /* nor before that time */
    uint64_t tried_at;      /* when the provider last did not accept a read; 0: none waits */
    uint32_t shown;         /* pieces of memory that are shown */
    struct um_list reads;   /* reads under way */
    uint32_t ended;         /* ended reads whose owners have not learned that yet */
};

/* Lanes or rx by number. */
struct um_net_table {
    void **at;
    uint32_t capacity, end; /* end: one more than the highest number in use */
};

enum { UM_NET_BUCKETS = 256, UM_NET_STRANGERS_MAX = 128 };

/* What the last poll returned: nothing; the record of the first rx in the list `ready`; a record released since. */
enum um_net_given { UM_NET_NOTHING, UM_NET_OFFERED, UM_NET_RELEASED };

struct um_net_port {
    struct um_port base;
    bool is_open; /* there is an inner endpoint */
    struct um_net_inner inner;
    struct um_net_bodies bodies;
    struct um_net_addr_wire name;
    struct um_net_table lanes, rxs;
    struct um_net_peer *peers[UM_NET_BUCKETS];
    struct um_list work;  /* lanes and rx with something to send: struct um_net_work */
    struct um_list ready; /* rx with something to offer to poll() */
    enum um_net_given given;
    struct um_list lazy;   /* rx with released records; their credit goes at the latest when the port is idle */
    struct um_list fallen; /* peers that are gone, whose lanes and rx must still be ended */
    uint32_t cuts;         /* successive drives that stopped before the inner queue was empty */
    uint32_t owed;         /* large records whose credit is due and was put off */
    struct um_list open;   /* in the process's list of ports */
    uint32_t rx_max, rx_used;
    /* Peers without a lane, rx or link that are to be sent UNKNOWN or a denial, the oldest first. Each has cost an
     * attempt to connect to the address that its message named as the origin. */
    struct um_list strangers;
    uint32_t stranger_count;
    /* Records by which the windows of all incoming lanes exceed their first windows: now, and at most. The records of
     * one first window take UM_NET_KEPT_MAX bytes at most. */
    uint32_t windows, windows_max;
    uint32_t idle;             /* polls since the last record, or since lazy credit became due */
    uint32_t quiet;            /* polls since something happened */
    uint32_t fit;              /* most polls that may be skipped, at the rate at which the caller polls */
    uint32_t polls;            /* polls since the coarse clock was last seen to tick */
    uint64_t ticked_at_coarse; /* when that was */
    uint64_t ticked_at;        /* when um_net_probe() was called last */
    uint64_t heard_at;         /* when the last PROBE of any peer came, or more receives were posted for want of one */
    uint32_t probe_lane, probe_rx; /* slots that um_net_probe() looked at last */
    uint64_t strays;               /* dropped messages: malformed, or for no lane or rx here */
    int wait_fd;                   /* epoll: kick_fd, timer_fd, the descriptors of the inner queues */
    int kick_fd, timer_fd;
    bool is_timed;       /* the timer is set */
    bool is_without_fds; /* the last look found no descriptor left */
    /* With inner.wait_none: ns until a sleeper looks again; 0: since a look a message of a lane or rx has come, or one
     * that is no PROBE was sent. */
    long look_ns;
};

struct um_net_link {
    struct um_link base;
    struct um_net_port *port;
    struct um_net_peer *peer;
    struct um_net_lane *opening; /* the lane of lane_open() until that returns its result; or NULL */
};

/* An entry of a port's list `work`. push: sends what is due; true: a message was sent. It may free the object. */
struct um_net_work {
    struct um_list link;
    bool (*push)(struct um_net_work *work);
};

/* What a peer may lack: since `since`, when `told` items had been sent, it has reported the same number, `has`. */
struct um_net_gap {
    uint32_t has, told;
    uint64_t since;
    uint8_t slow;  /* log2 of the factor by which a gap must stay longer before it counts as lost */
    bool was_lost; /* this gap counted as lost already */
};

enum um_net_lane_state { UM_NET_ASKING = 0, UM_NET_DENIED, UM_NET_OPEN };

struct um_net_lane {
    struct um_lane base;
    struct um_net_work work;
    struct um_net_port *port;
    struct um_net_peer *peer;
    struct um_list of_peer;
    uint32_t slot, rx_slot;
    uint64_t id, rx_id; /* secret numbers: of the lane, of the rx */
    enum um_net_lane_state state;
    uint64_t probed_at;
    bool asked;              /* JOIN was sent */
    bool closed, close_told; /* by lane_close() or a failed opening; CLOSE was sent */
    bool bye;                /* BYE came: the receiver has all records */
    bool ended;              /* the peer ended it, or is gone */
    bool ended_seen;         /* lane_reap() returned -EPIPE */
    bool watched;
    uint8_t credit_serial; /* of the last CREDIT */
    bool held, was_held;   /* the receiver wants no messages now; a claim failed because of that */
    bool announces;        /* the receiver wants large bodies to be announced */
    int error;             /* why the lane was denied: a negative errno */
    struct um_net_buffer *claimed;
    struct um_net_buffer *first, *last; /* records committed and not known to be consumed */
    uint64_t kept;                      /* bytes of their messages */
    struct um_net_buffer *unsent;       /* the first of them that must be sent, perhaps again; NULL: none */
    struct um_net_gap gap;              /* of the records */
    uint32_t committed, consumed, window;
    uint32_t credited;                              /* records that the receiver has consumed: `consumed` follows */
    uint32_t consumed_seen;                         /* what lane_consumed() returned last */
    uint32_t answers_in, answers_out, answers_told; /* received; reaped; reaped as far as the receiver was told */
    uint32_t ends_at;                               /* answers that there will be in all, if ends_is_known */
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
    uint64_t id, lane_id; /* secret numbers: of the rx, of the lane */
    uint64_t probed_at;
    bool granted;                 /* GRANT was sent */
    bool joined_told;             /* UM_REC_JOINED was released */
    bool left_told;               /* UM_REC_LEFT was released */
    bool closing;                 /* CLOSE came: there are close_at records in all */
    bool closed;                  /* CLOSE came, and all records, or the rx is refused; or the sender is gone */
    bool bye_told;                /* BYE was sent */
    bool refused;                 /* by this side: ENDED must be sent */
    bool declined;                /* it was refused when it joined: it ends nothing but itself */
    bool end_told;                /* ENDED was sent */
    bool crowded;                 /* an answer found no place */
    bool held, held_told;         /* the sender shall send no messages; was told so */
    bool announce, announce_told; /* the sender shall announce large bodies; was told so */
    int error;                    /* a positive errno for UM_REC_LEFT, or 0 */
    uint32_t close_at;
    struct um_net_buffer *first, *last; /* records to be offered */
    struct um_net_buffer *ahead;        /* records that came before earlier ones, sorted by number */
    uint32_t arrived, released;         /* records that have come in order; that were released */
    uint8_t credit_serial;              /* of the last CREDIT */
    uint32_t credit_due, credit_told;   /* released records: whose credit is due; whose credit was sent */
    uint32_t window, window_told;
    uint32_t grows_at;                               /* the value of `released` at which the window grows */
    uint32_t bytes;                                  /* bytes of records released since credit was sent */
    uint64_t unreleased;                             /* bytes of records that have come and are not released */
    struct um_net_gap gap;                           /* of the answers */
    uint32_t answers_in, answers_out, answers_taken; /* given; sent; known to be taken */
    struct um_answer answers[UM_ANSWERS];
};

/* ---- address.c ---- */

void um_net_addr_set(const struct um_net_port *port, struct um_addr *addr_p);
/* Returns the address's part of this machine. */
struct um_net_addr_wire um_net_addr_part(const struct um_addr *addr);
int um_net_addr_check(const struct um_port *base, const struct um_addr *addr, bool is_last);

/* ---- knock.c: does a TCP port still listen, does its host live? ---- */

/* Looks for an answer to the attempt under way, or begins one when it is time. True: nobody listens at the peer's port,
 * or its host has vanished. */
bool um_net_knock(struct um_net_peer *peer, uint64_t now);
void um_net_knock_end(struct um_net_knock *knock);
/* The peer was heard: the next silence starts afresh. */
void um_net_knock_forget(struct um_net_knock *knock);

/* ---- peer.c ---- */

/* Returns the peer with that address, with a reference for the caller. -ENOMEM; -EHOSTUNREACH: the inner provider does
 * not accept the address. */
int um_net_peer_get(struct um_net_port *port, const struct um_addr *addr, struct um_net_peer **peer_p);
void um_net_peer_put(struct um_net_port *port, struct um_net_peer *peer);
/* A message to the peer has failed: the peer is gone; or, over tcp, its connection has broken, and another one may be
 * made. */
void um_net_peer_failed(struct um_net_port *port, struct um_net_peer *peer, int error);
/* Marks the peer as gone; the next drives end its lanes and rx. */
void um_net_peer_fall(struct um_net_port *port, struct um_net_peer *peer, int error);
/* The peer has sent a message: it is no longer gone, if it was and its lanes and rx have been ended. */
void um_net_peer_revive(struct um_net_peer *peer);
/* True if a message to the peer may be tried now. */
bool um_net_peer_may_try(struct um_net_peer *peer);
/* The inner provider accepted a message to the peer; or did not. */
void um_net_peer_took(struct um_net_peer *peer);
void um_net_peer_took_not(struct um_net_port *port, struct um_net_peer *peer);
/* The peer is not found at its address. Usually it has ended; logs what else it may be. */
void um_net_peer_not_found(const struct um_net_peer *peer);
/* Called before UNKNOWN or a denial is sent to the peer. Lets it take a place among the strangers if nothing but the
 * caller's reference keeps it. False: all places are taken, and nothing may be sent. */
bool um_net_peer_claim_answer(struct um_net_port *port, struct um_net_peer *peer);
/* The peer has taken a message, has a link or an rx, or is gone: frees its place among the strangers, if it has one.
 * The caller has a reference to it. */
void um_net_peer_admit(struct um_net_port *port, struct um_net_peer *peer);
/* A PROBE of the peer came. */
void um_net_peer_heard(struct um_net_peer *peer);
/* Removes the peer's address from the endpoint for bodies. */
void um_net_peer_forget_from(struct um_net_port *port, struct um_net_peer *peer);
/* True if a peer that is asked was heard last too long ago: it computes, is stopped, or its host has vanished. */
bool um_net_is_silent(uint64_t heard_at, uint64_t now);
/* Checks, over tcp, whether anybody listens at the peer's port; if not, the peer is gone. Some system calls, seldom. */
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
/* Returns a random number that nobody can guess. 0: the system gives none. */
uint64_t um_net_secret(void);

/* ---- tell.c ---- */

/* Sends a message of len bytes. False: not possible now, or the peer is gone. */
bool um_net_tell(struct um_net_port *port, struct um_net_peer *peer, const void *message, size_t len);
/* Sends UNKNOWN or a denial, perhaps to a stranger. If it is not sent, the peer asks again. */
void um_net_deny(struct um_net_port *port, struct um_net_peer *peer, const void *message, size_t len);
/* The same for a message in a buffer; on failure the buffer stays the caller's. */
bool um_net_tell_buffer(struct um_net_port *port, struct um_net_peer *peer, struct um_net_buffer *buffer);
/* The peer reports `has` of the `told` items that were sent to it. True: it has lacked the same items for some time, so
 * they must be sent again. */
bool um_net_is_lost(struct um_net_gap *gap, uint32_t has, uint32_t told);
/* Notes activity: the next polls look at the inner queue. */
static inline void um_net_stir(struct um_net_port *port)
{
    port->quiet = 0;
    um_port_stir(&port->base);
}
/* Notes that the lane or rx has something to send. */
static inline void um_net_work_add(struct um_net_port *port, struct um_net_work *work)
{
    um_net_stir(port);
    if (um_list_is_empty(&work->link))
        um_list_append(&port->work, &work->link);
}

/* ---- lane.c ---- */

/* Returns a new lane to that peer, with a reference to the peer. NULL: no memory. */
struct um_net_lane *um_net_lane_new(struct um_net_port *port, struct um_net_peer *peer);
void um_net_lane_free(struct um_net_lane *lane);
/* Sends what is due, as far as possible now. May free the lane. */
void um_net_lane_push(struct um_net_lane *lane);
bool um_net_lane_taken_is_due(const struct um_net_lane *lane);
/* Ends the lane: its peer is gone, or does not know it any more. May free the lane. */
void um_net_lane_fall(struct um_net_lane *lane);
/* The program gets lent bodies back though the lane has not ended: ends it, if it has any. May free the lane. */
void um_net_lane_give_back(struct um_net_lane *lane);
/* Takes a message for the lane. May free the lane. */
void um_net_lane_take(struct um_net_lane *lane, const struct um_net_buffer *buffer);
/* Takes a PROBE of the receiver, which says what the receiver has. May free the lane. */
void um_net_lane_take_probe(struct um_net_lane *lane, const struct um_net_probe_wire *probe);
/* Sends a PROBE: asks whether the receiver is there, and says what this side has. False: not possible now. */
bool um_net_lane_probe(struct um_net_lane *lane);
/* The send of a record has completed, or failed. */
void um_net_lane_sent(struct um_net_buffer *buffer, bool failed);

/* ---- bodies.c ---- */

/* Makes progress of the reads; true: one has ended. */
bool um_net_bodies_look(struct um_net_port *port);
/* True if um_net_bodies_look() must be called. Memory that is shown needs that, too: no event reports that a peer reads
 * it, or connects. */
static inline bool um_net_bodies_are_due(const struct um_net_port *port)
{
    return port->bodies.rma && (port->bodies.shown || !um_list_is_empty(&port->bodies.reads) || port->bodies.tried_at);
}
/* True if no ended read waits for its owner, and the next event of the endpoint for bodies wakes a sleeper. */
bool um_net_bodies_may_sleep(struct um_net_port *port);
/* Takes BODIES: the endpoint by which a peer shows memory. */
void um_net_bodies_take(struct um_net_port *port, struct um_net_peer *peer, const struct um_net_buffer *buffer);
/* Stops the endpoint: from the return on nothing is read or written. Reads that have not ended fail. */
void um_net_bodies_stop(struct um_net_port *port);
struct um_shown *um_net_show(struct um_lane *base, const struct iovec *piece, uint64_t *key_p);
void um_net_hide(struct um_shown *base, enum um_hide why);
int um_net_transfer_start(struct um_link *base, const struct um_copy *copy, struct um_transfer **transfer_p);
int um_net_transfer_poll(struct um_transfer *base);
void um_net_transfer_cancel(struct um_transfer *base);

/* ---- rx_life.c ---- */

/* Returns a new rx, with a reference to the peer; the caller sets work.push. NULL: no memory. */
struct um_net_rx *um_net_rx_new(struct um_net_port *port, struct um_net_peer *peer);
void um_net_rx_free(struct um_net_rx *rx);
/* Gives back the buffers of one of the rx's lists. */
void um_net_rx_drop(struct um_net_rx *rx, struct um_net_buffer **list);
/* Puts the rx into the list `ready` if it has something to offer, else takes it out. */
void um_net_rx_offers(struct um_net_rx *rx);

/* ---- rx_tell.c ---- */

/* Sends what is due, as far as possible now. May free the rx. */
void um_net_rx_push(struct um_net_rx *rx);
/* The same, as the rx's um_net_work.push. */
bool um_net_rx_work(struct um_net_work *work);
/* Sends a PROBE to the sender, as um_net_lane_probe() to the receiver. */
bool um_net_rx_probe(struct um_net_rx *rx);
/* Sends the credit of all rx in the list `lazy`. */
void um_net_credit_due(struct um_net_port *port);

/* ---- rx.c ---- */

/* Takes JOIN: a sender opens a lane. */
void um_net_rx_join(struct um_net_port *port, const struct um_net_buffer *buffer);
/* Ends the rx: its sender is gone, or does not know it any more. May free the rx. */
void um_net_rx_fall(struct um_net_rx *rx, int error);
/* Ends the rx from this side with that error: its sender broke the format, or is refused; or, error 0, the port
 * closes. */
void um_net_rx_fail(struct um_net_rx *rx, int error);
/* Takes a message for the rx; true: the buffer is kept. */
bool um_net_rx_take(struct um_net_rx *rx, struct um_net_buffer *buffer);
/* Takes a PROBE of the sender, which says what the sender has. May free the rx. */
void um_net_rx_take_probe(struct um_net_rx *rx, const struct um_net_probe_wire *probe);
/* True if the rx's credit is due, and nothing in the rx forbids to put it off. */
bool um_net_rx_may_owe(const struct um_net_rx *rx);
/* The first record was released: gives its buffer back, and makes credit due or lazy. */
void um_net_rx_released(struct um_net_rx *rx, uint8_t flags);

/* ---- drive.c ---- */

/* Takes messages that came, and sends what is due. True: an operation has completed, or a message was sent. */
bool um_net_drive(struct um_net_port *port);
/* The same until the inner queue is empty; bounded, because peers may send without end. */
void um_net_drive_all(struct um_net_port *port);
/* Sends a PROBE to the peer of each lane and rx about twice a second. */
void um_net_probe(struct um_net_port *port, uint64_t now);

/* ---- descriptors.c ---- */

/* Looks whether the process has file descriptors left. libfabric's tcp accepts no connection without one, and reports
 * that to nobody. Raises the process's own limit while few are left; if none is and it cannot, says so, and
 * returns false. */
bool um_net_descriptors_look(struct um_net_port *port);

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
/* True if there is news of a watched lane. */
bool um_net_lanes_news(const struct um_net_port *port);

int um_net_poll(struct um_port *base, struct um_record *rec_p);
void um_net_catch_up(struct um_port *base);
/* As um_net_poll(), but never returns 0 without a look at the inner queue. */
int um_net_poll_now(struct um_net_port *port, struct um_record *rec_p);
bool um_net_gather(struct um_port *base);
void um_net_release(struct um_port *base, const struct um_record *rec);
int um_net_answer(struct um_rx *base, uint32_t token, int32_t status);
void um_net_rx_hold(struct um_rx *base, bool on);
void um_net_rx_announce(struct um_rx *base, bool on);
void um_net_rx_refuse(struct um_rx *base);
void um_net_rx_origin(const struct um_rx *base, struct um_addr *addr_p);
/* True if an answer that found no place would find one now. */
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

/* Opens the port's descriptors. 0 or a negative errno. */
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
