/*
 * Between the protocol files: what one offers the others. Nothing of it is for prov. Threading: core.h.
 */
#ifndef UM_PROTO_INTERNAL_H
#define UM_PROTO_INTERNAL_H

#include "core/endpoint.h"
#include "match/match.h"
#include "proto/choice.h"
#include "proto/proto.h"
#include "proto/wire.h"

#include <errno.h>

struct um_proto_inbound;
struct um_proto_inbounds;
struct um_proto_receive;
struct um_proto_segmented;
struct um_proto_bodies_known;

/* ---- flags of an operation ↔ of a record ---- */

static inline uint8_t um_proto_wire_flags(uint32_t op_flags)
{
    return (uint8_t)((op_flags & UM_OP_TAGGED ? UM_WIRE_TAGGED : 0) | (op_flags & UM_OP_DATA ? UM_WIRE_DATA : 0));
}

static inline uint32_t um_proto_wire_op_flags(uint8_t wire_flags)
{
    return (wire_flags & UM_WIRE_TAGGED ? (uint32_t)UM_OP_TAGGED : 0) |
           (wire_flags & UM_WIRE_DATA ? (uint32_t)UM_OP_DATA : 0);
}

/* ---- behind a peer, and behind an endpoint ---- */

/* Of proto/ask: how the peer answers when it is asked for a body. */
struct um_proto_asked {
    uint64_t stalled_at; /* ns: when a body was taken back, if no part has come since; else 0 */
    uint32_t parts;      /* parts that came and bodies that were taken back: if it changes, the peer makes progress */
    uint16_t shy;        /* bodies that are read at once after one that did not come: 0, 1, 3, 7, ... */
    uint16_t left;       /* how many of these are still to come */
    bool drops;          /* a body was taken back at some time: parts of it may still come */
    bool is_unreadable;  /* its memory cannot be read: it is asked, and waited for */
};

/* Of proto/ask: bodies that go both ways. */
struct um_proto_crossing {
    uint64_t read;      /* bytes of the bodies sent by this side that the peer has read or mapped, at most */
    uint64_t read_came; /* of these, when the last body that it pushed was complete */
    struct um_proto_loan loan;
};

struct um_proto_peer {
    struct um_proto_asked asked;
    uint8_t offers_refused;               /* rma_offer.c: in turn */
    struct um_list atomics;               /* atomic_owner.c: the peer's operations that are not through */
    struct um_core_op *sending;           /* atomic.c: goes out in several records, which are not all out */
    struct um_proto_inbounds *inbound;    /* inbound.c; made when first needed */
    struct um_list due;                   /* inbound.c: bodies that have ended and whose answer found no place */
    struct um_core_job answering;         /* inbound.c: answers them, while there are any */
    uint16_t round;                       /* rndv_both.c: the last one */
    bool cannot_invite;                   /* rndv_both.c: no lane to the peer could be opened for that */
    uint8_t words_used;                   /* rndv_both.c: bit i: a body of the peer uses the i-th progress words */
    uint32_t body_sent_in;                /* ep->turns, when an eager message with a body went to the peer last */
    struct um_proto_segmented *segmented; /* eager_segments.c: from the peer; made when first needed */
    uint8_t unasked;                      /* eager_segments.c: the classes whose messages may go to it in segments */
    uint8_t unasked_sent;                 /* such messages, modulo 256 */
    struct um_proto_crossing crossing;
};

struct um_proto_ep {
    struct um_proto_receive *receive;     /* receive.c: posted and unexpected */
    struct um_proto_bodies_known *bodies; /* ask.c; NULL: bodies are read */
};

static inline struct um_proto_peer *um_proto_peer_of(const struct um_core_peer *peer)
{
    return (struct um_proto_peer *)(uintptr_t)(peer + 1);
}

static inline struct um_core_peer *um_proto_peer_whole(struct um_proto_peer *own)
{
    return (struct um_core_peer *)(void *)own - 1;
}

static inline struct um_proto_ep *um_proto_ep_of(const struct um_core_ep *ep)
{
    return (struct um_proto_ep *)(uintptr_t)(ep + 1);
}

/* ---- op.c: operations at their initiator ---- */

/* um_core_op_class.answered of one that ends with the peer's answer, whatever it says. */
void um_proto_op_answered(struct um_core_ep *ep, struct um_core_op *op, int32_t status);
/*
 * The operation of that class whose next part begins at that offset. 0 and *op_p, or NULL: it ended with its peer,
 * whose other records are still taken. -EPROTO: there is no such operation.
 */
int um_proto_op_of_part(const struct um_core_peer *peer, const struct um_core_op_class *class, uint32_t token,
                        uint64_t offset, struct um_core_op **op_p);
/* The next len bytes of what it reads or fetches; the last ones complete it. -EPROTO: there are none, or too many. */
int um_proto_op_part_arrived(struct um_core_op *op, const void *bytes, uint32_t len);

/* Describes buffers to the peer: count pieces, in piece when there is one, else in the record's body. */
static inline void um_proto_describe(const struct iovec *iov, size_t count, struct um_piece *piece, void *body)
{
    struct um_piece *to = count > 1 ? body : piece;
    for (size_t i = 0; i < count; i++)
        to[i] = (struct um_piece){.addr = (uint64_t)(uintptr_t)iov[i].iov_base, .len = iov[i].iov_len};
}

/* ---- receive.c: posted receives and unexpected messages ---- */

/* A posted receive. The usual one, of one buffer for one message, is in its first line alone. */
struct um_proto_posted_recv {
    _Alignas(64) void *context;
    void *base;   /* the usual one: its buffer */
    int32_t room; /* and the bytes of that; else -1 */
    uint32_t flags;
    struct um_match_recv match;
    size_t len;                     /* not the usual one: bytes of the buffers; of what is left of a multi-receive */
    struct um_core_buffers buffers; /* multi-receive: small[0] is what is left */
    uint32_t in_flight;             /* multi-receive: bodies on their way into the buffer */
    bool spent;                     /* multi-receive: takes no further message */
};

/* A message that a receive takes: what its completion says. */
struct um_proto_arrival {
    struct um_core_peer *peer;
    uint64_t tag;
    uint64_t data;
    uint64_t len;   /* bytes sent */
    uint32_t flags; /* UM_OP_TAGGED, UM_OP_DATA */
};

/* Where a message goes. */
struct um_proto_destination {
    struct um_proto_posted_recv *recv;
    struct um_iov_cursor cursor;
    void *base;         /* multi-receive: where it begins */
    struct iovec piece; /* multi-receive: the part of the buffer it may take */
    size_t len;         /* bytes it may take */
};

/* The next bytes of a message that comes in parts, of which so many have moved: those that have a place. */
static inline void um_proto_destination_place(struct um_proto_destination *dest, uint64_t moved, const void *bytes,
                                              uint32_t len)
{
    const uint64_t room = moved < dest->len ? dest->len - moved : 0;
    um_iov_scatter(&dest->cursor, bytes, len < room ? len : (size_t)room);
}

int um_proto_receive_open(struct um_core_ep *ep);
/* Ends every posted receive with ECANCELED. */
void um_proto_receive_cancel_all(struct um_core_ep *ep);
/* Nothing is posted any more. */
void um_proto_receive_close(struct um_core_ep *ep);
/* The posted receive for a message, taken out of the match (a multi-receive stays while it has room), or false. */
bool um_proto_receive_match(struct um_core_ep *ep, const struct um_proto_arrival *arrival,
                            struct um_proto_destination *dest_p);
/* A message whose body is here: copies it, and completes the receive. recv: what um_proto_receive_take() gave. False:
 * there is none. */
bool um_proto_receive_body(struct um_core_ep *ep, struct um_proto_posted_recv *recv,
                           const struct um_proto_arrival *arrival, const void *body);
/* The message is in its destination (or failed: positive errno): completes the receive. */
void um_proto_receive_finish(struct um_core_ep *ep, struct um_proto_destination *dest,
                             const struct um_proto_arrival *arrival, int error);
/*
 * Queues a message: the rendezvous it announces, or, without one, room for its body, which the caller puts there. 0 and
 * *u_p; -ENOMEM; -EAGAIN: not now, because this call of progress has completed something, and the caller may post the
 * receive upon it; -EPROTO.
 */
struct um_proto_unexpected;
int um_proto_receive_unexpected(struct um_core_ep *ep, const struct um_proto_arrival *arrival,
                                struct um_proto_inbound *inbound, struct um_proto_unexpected **u_p);
/* Nothing more comes from the peer: receives directed at it end with this error. */
void um_proto_receive_peer_left(struct um_core_ep *ep, struct um_core_peer *peer, int error);

/* ---- inbound.c: bodies that a peer announced ---- */

enum um_proto_way {
    UM_WAY_READ,   /* by its receiver */
    UM_WAY_PUSH,   /* by its sender, in records */
    UM_WAY_MAPPED, /* copied out of the receiver's mapping */
    UM_WAY_NONE    /* not decided */
};

/* What ask.c notes of a body. */
struct um_proto_asking {
    uint8_t way;        /* enum um_proto_way */
    bool is_taken_back; /* asked for, and then read */
    bool went_on;       /* after that parts came and were dropped, or something was read */
    bool is_watched;
    bool is_lone;    /* read: longer after the last body ended, by whatever way, than that took */
    bool has_choice; /* read: by this side alone, or by both */
    bool (*step)(struct um_core_ep *ep, struct um_core_job *job); /* of its job, while it is watched */
    bool is_mappable;                                             /* and yet it goes another way */
    uint32_t quiet;                                               /* looks since a part came from its peer */
    uint32_t parts;                                               /* of its peer, at the last look */
    uint64_t quiet_at;                                            /* ns: since when it is quiet */
    uint64_t asked_at;                                            /* ns */
    uint64_t read_began;                                          /* ns: the copy under way */
    uint64_t read_ns;   /* what reading it took; asked for: what reading had taken when it was */
    uint64_t pushed;    /* bytes that had been pushed when it was asked for */
    uint64_t peer_read; /* crossing.read of its peer, when it was asked for */
};

/* What rndv_both.c notes of a body. */
struct um_proto_both {
    uint32_t parts;           /* of the body */
    uint32_t claimed, copied; /* by this side, from the front */
    uint16_t round;           /* as in the words */
    uint8_t shift;            /* log2 of the bytes of a part */
    int8_t words;             /* the progress words; -1: the sender takes no part */
    bool is_wanted;           /* once there is a pair of words */
    bool is_helped;           /* the sender was invited */
    bool has_waited;          /* for the sender's last part */
    int error;                /* negative errno: it ends so, once the sender copies no part of it */
    struct um_progress_words *at;
    uint64_t began_at; /* ns */
};

/* The kind of an announced body: of a message, or of RMA that this process executes. */
struct um_proto_inbound_class {
    /* Moves some of it. Returns whether it still lives. */
    bool (*step)(struct um_core_ep *ep, struct um_proto_inbound *in);
    /* It has ended, with 0 or a positive errno: completes what there is to complete here. */
    void (*ended)(struct um_core_ep *ep, struct um_proto_inbound *in, int error);
};

/* A body announced by a peer: a message (RTS), an RMA write, an RMA read; at the side that moves it. */
struct um_proto_inbound {
    const struct um_proto_inbound_class *class;
    struct um_core_job job;
    struct um_list due; /* in peer->due */
    struct um_core_peer *peer;
    struct um_proto_inbound *next; /* hash chain */
    uint32_t token;
    uint8_t op;       /* the opcode that announced it */
    bool matched;     /* RTS: it has a destination */
    bool pushed;      /* the body comes, or goes, in records */
    bool asked;       /* for the records */
    bool shareable;   /* RTS: it can be mapped here, says its sender */
    bool is_shown;    /* its one piece is read by the key that stands in it; READ: it may be offered */
    bool was_offered; /* READ: rma_offer.c */
    int32_t status;   /* in peer->due: the answer */
    struct um_proto_asking ask;
    struct um_proto_both both;
    struct um_proto_arrival arrival;
    struct um_proto_destination dest;
    struct um_iov_cursor start;     /* of the destination */
    uint64_t key, addr;             /* RMA */
    struct um_core_offer offer;     /* READ: rma_offer.c */
    uint64_t moved;                 /* bytes */
    struct um_core_copying copying; /* of the bytes that follow */
    int failed; /* RMA, pushed: the error (positive errno) that ends it once the parts under way are out */
    int left;   /* its peer left, with this errno, before it was matched */
    uint32_t count;
    struct um_piece piece[]; /* count */
};

/* Reads the announcement of a body. NULL and *error_p: -EPROTO or -ENOMEM. */
struct um_proto_inbound *um_proto_inbound_open(struct um_core_peer *peer, const struct um_record *rec,
                                               const struct um_proto_inbound_class *class, int *error_p);
/* The destination is known: moves what can be moved now. */
void um_proto_inbound_start(struct um_core_ep *ep, struct um_proto_inbound *in);
/* By its token, as the peer gave it; NULL. */
struct um_proto_inbound *um_proto_inbound_find(const struct um_core_peer *peer, uint32_t token);
/* Answers and frees it, without a completion here. */
void um_proto_inbound_end(struct um_core_ep *ep, struct um_proto_inbound *in, int32_t status, bool answer);
/* The same for one that nobody queued: the peer will announce it again. */
void um_proto_inbound_drop(struct um_proto_inbound *in);
/* Completes what it is a body of, answers and ends it. error: 0 or a positive errno. */
void um_proto_inbound_finish(struct um_core_ep *ep, struct um_proto_inbound *in, int error);
/* Its peer left: what moves ends with this error; what waits for a receive keeps it. */
void um_proto_inbound_peer_left(struct um_core_ep *ep, struct um_core_peer *peer, int error);

/* ---- rndv_send.c: announcements, and what the initiator keeps ---- */

int um_proto_rndv_send(struct um_core_ep *ep, const struct um_proto_msg *msg, size_t len);
int um_proto_rndv_rts_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec);
/* What the next record of a body in parts takes. The receiver places one part while the next one is on its way, so
 * parts are not as large as a machine permits. */
enum { UM_PART_MAX = 64 << 10 };
static inline uint32_t um_proto_part_max(struct um_lane *lane)
{
    const uint32_t most = lane->machine->lane_body_max(lane, lane->body_max);
    return most < UM_PART_MAX ? most : UM_PART_MAX;
}

/* Has a peer to be told how it reads memory of this process? */
static inline bool um_proto_shows(const struct um_lane *lane)
{
    return __builtin_expect(lane->machine->show != NULL, 0);
}
/* Shows the operation's buffer, if it is one piece and the machine can: then piece is what is announced. */
bool um_proto_rndv_show(struct um_core_op *op, struct um_piece *piece);
/* Keeps the operation's buffers, or, with UM_OP_INJECT, a copy of their bytes. */
int um_proto_rndv_keep(struct um_core_op *op, const struct iovec *iov, size_t count, size_t len);

/* ---- rndv_read.c ---- */

/* Of a message. */
extern const struct um_proto_inbound_class um_proto_message_body;
/* How many bytes to read at once, of so many that are left. */
size_t um_proto_rndv_step(const struct um_proto_inbound *in, uint64_t left);
/*
 * RMA: moves len bytes from the peer's pieces to here, in a region; or what a transfer that is under way moves. 0
 * (in->pushed: refused, use records) or -1: ended.
 */
int um_proto_rndv_read(struct um_core_ep *ep, struct um_proto_inbound *in, void *here, size_t len);

/* ---- rndv_both.c ---- */

/* Bytes of a body that is worth the help of its sender. */
#define UM_HELP_MIN UINT64_C(65536)
/* Can the body be mapped here? */
bool um_proto_both_can(const struct um_core_ep *ep, struct um_proto_inbound *in);
/* It will be mapped, or read: invites the sender to copy as well. False: so many bodies of that sender are copied by
 * both that it could not help with this one; it has to wait. */
bool um_proto_both_begin(struct um_core_ep *ep, struct um_proto_inbound *in);
/* Copies some of it. 0: all of it is there; -EAGAIN: not yet; else as transfer_start() and transfer_poll(). */
int um_proto_both_copy(struct um_core_ep *ep, struct um_proto_inbound *in);
/* The body, or the rest of it, comes in another way, from the first byte on. */
void um_proto_both_give_up(struct um_core_ep *ep, struct um_proto_inbound *in);
/* The body ends: from the return on its sender writes no byte of the buffer. */
void um_proto_both_end(struct um_core_ep *ep, struct um_proto_inbound *in);

/* ---- rndv_help.c ---- */
/* Its receiver wants the body in another way: copies no more of it. */
void um_proto_help_stop(struct um_core_op *op);
int um_proto_rndv_invite_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec);

/* ---- rndv_push.c ---- */

/* An operation whose body the peer reads, or asks for. */
extern const struct um_core_op_class um_proto_rndv_body;
int um_proto_rndv_push_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec);

/* ---- ask.c: a body that could be read is asked for ---- */

int um_proto_ask_open(struct um_core_ep *ep);
void um_proto_ask_close(struct um_core_ep *ep);
/* Asks for the body in records. False: not now. */
bool um_proto_ask_records(struct um_proto_inbound *in);
/* For a message whose destination is known: chooses the way. True: the body was asked for. False: read it. */
bool um_proto_ask(struct um_core_ep *ep, struct um_proto_inbound *in);
/* Starts a copy of it, or moves on the one that is under way: as transfer_start() and transfer_poll(). */
int um_proto_ask_read(struct um_core_ep *ep, struct um_proto_inbound *in, const struct um_copy *copy);
int um_proto_ask_read_on(struct um_core_ep *ep, struct um_proto_inbound *in);
/* For one that is read: shall its sender copy as well? */
bool um_proto_ask_wants_help(struct um_core_ep *ep, struct um_proto_inbound *in);
/* um_proto_both_copy() of one that is read. */
int um_proto_ask_read_helped(struct um_core_ep *ep, struct um_proto_inbound *in);
/* For one that can be mapped: is that the better way? Then it is its way. */
bool um_proto_ask_prefers_mapped(struct um_core_ep *ep, struct um_proto_inbound *in);
/* A part of a body that was asked for came, and will be copied: the time for um_proto_ask_came(), or 0: not needed. */
uint64_t um_proto_ask_coming(const struct um_proto_inbound *in);
/* It was copied. */
void um_proto_ask_came(struct um_core_ep *ep, struct um_proto_inbound *in, uint32_t len, uint64_t coming_at);
/* The peer has read or mapped a body that this side announced. */
void um_proto_ask_peer_read(struct um_core_op *op);
/* Is this a part of a body that was taken back? in: NULL when there is none with its token. */
bool um_proto_ask_drops(struct um_proto_inbound *in);
/* A body that was taken back cannot be read: wait for its parts again. False: too late, parts were dropped. */
bool um_proto_ask_resume(struct um_core_ep *ep, struct um_proto_inbound *in);
/* For a message that has come: would the next one like it be asked for, as this one was? */
bool um_proto_ask_prefers_pushed(const struct um_core_ep *ep, const struct um_proto_inbound *in);
/* learn: the body has moved. forget: it ends, moved or not. */
void um_proto_ask_learn(struct um_core_ep *ep, const struct um_proto_inbound *in);
void um_proto_ask_forget(struct um_core_ep *ep, struct um_proto_inbound *in);

/* ---- eager.c ---- */

/*
 * Shall the body be written before the header of its record? A receiver that waits looks at the line of the record all
 * the time, and takes it out of this processor's cache: who writes the header early has to get the line twice. In a
 * stream, where the receiver is busy with earlier messages, the line comes while the body is written. A message is one
 * of a stream if there was no call of progress since the last one with a body. No matter which: the record is published
 * last.
 */
static inline bool um_proto_body_goes_first(const struct um_core_ep *ep, const struct um_core_peer *peer)
{
    struct um_proto_peer *own = um_proto_peer_of(peer);
    const bool is_alone = own->body_sent_in != ep->turns;
    own->body_sent_in = ep->turns;
    return is_alone;
}

/* Are n bytes of the slot's body to be written with non-temporal stores? */
static inline bool um_proto_slot_is_nontemporal(const struct um_slot *slot, size_t n)
{
    return __builtin_expect(n >= UM_NONTEMPORAL_MIN, 0) && slot->is_nontemporal;
}

/* Writes n bytes to the slot's body, or, fewer than UM_NONTEMPORAL_MIN, to its header. */
static inline void um_proto_slot_gather(const struct um_slot *slot, struct um_iov_cursor *from, void *to, size_t n)
{
    if (um_proto_slot_is_nontemporal(slot, n))
        um_iov_gather_nontemporal(from, to, n);
    else
        um_iov_gather(from, to, n);
}

/* Writes the slot's body. */
static inline void um_proto_slot_copy(const struct um_slot *slot, const void *from, size_t n)
{
    if (um_proto_slot_is_nontemporal(slot, n))
        um_bytes_copy_nontemporal(slot->body, from, n);
    else
        um_bytes_copy(slot->body, from, n);
}

static inline void um_proto_eager_header(struct um_proto_eager_wire *header, uint64_t tag, uint64_t data)
{
    header->tag = tag;
    header->data = data;
}

int um_proto_eager_send(struct um_core_ep *ep, const struct um_proto_msg *msg, struct um_lane *lane, size_t len);
/* The operation of a message whose sender waits until it is consumed (UM_OP_DELIVERY), else NULL. 0; -ENOMEM. */
static inline int um_proto_eager_begin(const struct um_proto_msg *msg, size_t len, struct um_core_op **op_p)
{
    *op_p = NULL;
    if (!(msg->flags & UM_OP_DELIVERY))
        return 0;
    struct um_core_op *op = um_core_op_alloc(msg->peer, NULL, msg->context, msg->flags | UM_OP_SEND);
    if (!op)
        return -ENOMEM;
    op->len = len;
    op->tag = msg->tag;
    *op_p = op;
    return 0;
}
/* Its claim failed. Returns the error of the call. */
static inline int um_proto_eager_refused(const struct um_proto_msg *msg, struct um_core_op *op, int error)
{
    if (op)
        um_core_op_free(op);
    return um_core_peer_claim_failed(msg->peer, error);
}
/* All of the message is in the lane: completes it, or its operation (UM_OP_DELIVERY) awaits that it is consumed. */
void um_proto_eager_end(struct um_core_ep *ep, const struct um_proto_msg *msg, size_t len, struct um_core_op *op);
int um_proto_eager_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec);

/* ---- eager_segments.c ---- */

/* May the message go in segments, unasked, and is there room for all of them? Then the bytes of one, else 0. Called
 * once for a message. */
uint32_t um_proto_segments_fit(const struct um_core_ep *ep, const struct um_proto_msg *msg, struct um_lane *lane,
                               size_t len);
/* Sends one that does. */
int um_proto_segments_send(struct um_core_ep *ep, const struct um_proto_msg *msg, struct um_lane *lane, size_t len,
                           uint32_t most);
/* Notes what the answer to an announced message says of the next ones. Returns the status of this one. */
int32_t um_proto_segments_answered(const struct um_core_op *op, int32_t status);
int um_proto_segments_first_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec);
int um_proto_segments_next_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec);
/* Nothing more comes from the peer: a message whose last segment has not come ends with this error. */
void um_proto_segments_peer_left(struct um_core_ep *ep, struct um_core_peer *peer, int error);

/* ---- rma_copy.c ---- */
/* The bytes of an operation through a window below level mapped: the results of transfer_start(). -EINPROGRESS: it was
 * accepted, and will complete. */
int um_proto_rma_copy(struct um_core_ep *ep, const struct um_proto_rma *rma, const struct um_window *w, uint64_t offset,
                      size_t len);

/* ---- rma_offer.c ---- */

/* um_core_op.offer */
enum um_proto_offer {
    UM_OFFER_NONE,
    UM_OFFER_COMING,  /* the transfer is under way, or the owner is not told of its end */
    UM_OFFER_TAKEN,   /* the owner answers DONE */
    UM_OFFER_REFUSED, /* the owner sends parts */
};
/* Of a read that the peer executes. */
extern const struct um_core_op_class um_proto_read_op;
/* Can such a read be offered to this side? */
bool um_proto_rma_may_take(const struct um_core_op *op);
/* Offers all of a read, which lies here, or will. False: it goes in records. */
bool um_proto_rma_offer(struct um_core_ep *ep, struct um_proto_inbound *in, void *here);
int um_proto_rma_offer_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec);
int um_proto_rma_taken_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec);

/* ---- rma.c: the initiator's side ---- */
int um_proto_rma_return_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec);

/* ---- rma_owner.c: the target's side ---- */
int um_proto_rma_write_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec);
int um_proto_rma_notify_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec);
int um_proto_rma_rts_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec);

/* ---- atomic_remote.c: the initiator's side ---- */
/* a->lists is not NULL. */
int um_proto_atomic_by_owner(struct um_core_ep *ep, const struct um_proto_atomic *a);
enum { UM_ATOMIC_STEP = 8 }; /* records one step of a job fills */
int um_proto_atomic_result_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec);

/* ---- atomic_owner.c ---- */
/* um_proto_atomic_apply() by this process: party is set here. */
void um_proto_atomic_execute(struct um_proto_atomic_call *call);
/* The access that an operation needs of a region (enum um_access). */
static inline uint32_t um_proto_atomic_access(uint32_t op, bool fetch)
{
    if (op == UM_ATOMIC_READ)
        return UM_ACCESS_REMOTE_READ;
    return fetch ? UM_ACCESS_REMOTE_READ | UM_ACCESS_REMOTE_WRITE : UM_ACCESS_REMOTE_WRITE;
}
int um_proto_atomic_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec);
int um_proto_atomic_more_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec);
/* Frees the peer's operations that are not complete. */
void um_proto_atomic_peer_left(struct um_core_peer *peer);

#endif
