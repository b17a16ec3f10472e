/*
 * What the protocol files offer to each other. None of it is for prov. Threading: core.h.
 */
#ifndef UM_PROTO_INTERNAL_H
#define UM_PROTO_INTERNAL_H

#include "core/endpoint.h"
#include "match/match.h"
#include "proto/choice.h"
#include "proto/exchange.h"
#include "proto/proto.h"
#include "proto/wire.h"

#include <errno.h>

struct um_proto_inbound;
struct um_proto_inbounds;
struct um_proto_receive;
struct um_proto_segmented;
struct um_proto_ways;

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

/* ---- what the protocols keep, in memory behind a peer and behind an endpoint ---- */

/* Of ask.c, `ended_at` and `pauses` of way_learn.c: how the peer reacts when this side asks it for a body. */
struct um_proto_asked {
    struct um_list watched;     /* bodies that are taken back if no part comes, in the order of the questions */
    struct um_list behind;      /* bodies whose way is chosen when there is no such body, by the links of their jobs */
    struct um_core_job looking; /* looks whether the first of them is due; in ep->jobs while there is any */
    uint64_t quiet_at;          /* ns; when the peer last made progress, as far as that job knows */
    uint32_t quiet;             /* its looks without a new part */
    uint32_t parts_seen;        /* `parts` at that time */
    uint32_t parts;      /* parts that came, of messages unasked as well, and bodies taken back: a change restarts
                          * the wait for other bodies */
    uint64_t stalled_at; /* ns; when a body was taken back; 0: a part has come since, or none was taken back */
    uint16_t shy;        /* how many bodies are moved without asking after one that did not come: 0, 1, 3, 7, ... */
    uint16_t left;       /* how many of these bodies are still to come */
    uint64_t ended_at;   /* ns; when the last body of the peer that was measured was complete */
    uint8_t pauses;      /* bodies in a row that came UM_PAUSE_NS after the one before, up to UM_PAUSES (way.h) */
    bool drops;          /* a body of the peer was taken back at some time: parts of it may still come */
    bool is_unreadable;  /* the peer's memory cannot be read: its bodies are asked for and never taken back */
};

/* Of way_learn.c: bodies that move in both directions. */
struct um_proto_crossing {
    uint64_t peer_read; /* bytes; upper bound of what the peer has read or mapped of the bodies that this side sent */
    uint64_t read_came; /* peer_read when the last body that the peer pushed was complete */
    struct um_proto_loan loan;
};

/* Classes of sizes (choice.h) whose messages can go in segments: eight, and as many for shareable bodies. */
enum { UM_UNASKED_CLASSES = 16 };

/* Of rndv_batch.c: bodies of a peer that wait to be read by one call. */
struct um_proto_batch {
    struct um_list link;   /* in um_proto_batches.waiting while there is any */
    struct um_list bodies; /* by the links of their jobs */
    uint64_t bytes;        /* of these bodies */
    uint32_t count;
};

/* Of rndv_batch.c: the batches of all peers. */
struct um_proto_batches {
    struct um_list waiting;
    struct um_core_job job; /* reads them; in ep->jobs while there is any */
};

struct um_proto_peer {
    struct um_proto_asked asked;
    struct um_proto_batch batch;
    uint8_t offers_refused;            /* rma_offer.c: offers in a row that the peer refused */
    struct um_list atomics;            /* atomic_owner.c: the peer's operations that have not ended */
    struct um_core_op *sending;        /* atomic_remote.c: the operation whose records are not all committed yet */
    struct um_proto_inbounds *inbound; /* inbound.c; allocated when first needed */
    struct um_list due;                /* inbound.c: bodies that have ended; their answers wait for a place */
    struct um_core_job answering;      /* inbound.c: sends these answers, while there are any */
    uint16_t round;                    /* rndv_both.c: the last round number used */
    uint64_t await_until;              /* rndv_both.c: how long bodies that end wait for a sender, ns; 0: not at all */
    bool cannot_invite;                /* rndv_both.c: no lane to the peer could be opened for an invitation */
    uint8_t words_used;                /* rndv_both.c: bit i: a body of the peer uses the i-th pair of progress words */
    uint32_t body_sent_in;             /* ep->turns when the last eager message with a body was sent to the peer */
    struct um_proto_segmented *segmented; /* eager_segments.c: what comes from the peer; allocated when first needed */
    uint16_t unasked; /* eager_segments.c: bits of the classes whose messages may go to the peer in segments */
    uint8_t unasked_sent[UM_UNASKED_CLASSES]; /* eager_segments.c: number of such messages, modulo 256 */
    struct um_proto_crossing crossing;
};

/* Of ask.c: the bodies of all peers that were asked for. */
struct um_proto_watching {
    uint32_t taken_at; /* the call of progress (ep->turns) in which the last body was taken back */
    uint32_t clock_at; /* the call of progress in which the clock was read */
    uint64_t clock_ns;
};

struct um_proto_ep {
    struct um_proto_receive *receive; /* receive.h: posted receives and unexpected messages */
    struct um_proto_ways *ways;       /* way.h; NULL: no body that can be read is asked for */
    struct um_proto_watching watching;
    struct um_proto_batches batches;
    uint64_t bodies_sent; /* bytes of messages that were announced, or went in segments (eager_segments.c) */
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

/* um_core_op_class.answered of an operation that ends with the peer's answer: 0 or a negative errno. A positive status
 * is ignored. */
void um_proto_op_answered(struct um_core_ep *ep, struct um_core_op *op, int32_t status);
/*
 * Finds the operation of that class whose next part begins at that offset. 0 and *op_p. *op_p is NULL if the operation
 * ended because its peer is lost: records of a lost peer are still taken. -EPROTO: there is no such operation.
 */
int um_proto_op_of_part(const struct um_core_peer *peer, const struct um_core_op_class *class, uint32_t token,
                        uint64_t offset, struct um_core_op **op_p);
/* Stores the next len bytes that the operation reads or fetches. The last bytes complete it. -EPROTO: len is 0, or more
 * than is missing. */
int um_proto_op_part_arrived(struct um_core_op *op, const void *bytes, uint32_t len);

/* Describes buffers to the peer as count pieces: in *piece if there is one, else in the record's body. */
static inline void um_proto_describe(const struct iovec *iov, size_t count, struct um_piece *piece, void *body)
{
    struct um_piece *to = count > 1 ? body : piece;
    for (size_t i = 0; i < count; i++)
        to[i] = (struct um_piece){.addr = (uint64_t)(uintptr_t)iov[i].iov_base, .len = iov[i].iov_len};
}

/* ---- receive.c: posted receives and unexpected messages ---- */

/* A posted receive. The usual receive (one buffer for one message) uses only the first line of this struct. */
struct um_proto_posted_recv {
    _Alignas(64) void *context;
    void *base;   /* usual receive: its buffer */
    int32_t room; /* usual receive: bytes of its buffer; others: -1 */
    uint32_t flags;
    struct um_match_recv match;
    size_t len;                     /* other receives: bytes of the buffers; multi-receive: bytes that are left */
    struct um_core_buffers buffers; /* other receives; multi-receive: small[0] is the part that is left */
    uint32_t in_flight;             /* multi-receive: bodies on their way into the buffer */
    bool spent;                     /* multi-receive: takes no further message */
};

/* A message, as the completion of its receive tells of it. */
struct um_proto_arrival {
    struct um_core_peer *peer;
    uint64_t tag;
    uint64_t data;
    uint64_t len;   /* bytes sent */
    uint32_t flags; /* UM_OP_TAGGED, UM_OP_DATA */
};

/* Where the body of a message goes. */
struct um_proto_destination {
    struct um_proto_posted_recv *recv;
    struct um_iov_cursor cursor;
    void *base;         /* multi-receive: where the message begins; else NULL */
    struct iovec piece; /* multi-receive: the part of the buffer that the message may take */
    size_t len;         /* bytes that the message may take */
};

/* Copies the next bytes of a message that comes in parts, as far as the destination has room for them. moved: bytes of
 * the message that came before. */
static inline void um_proto_destination_place(struct um_proto_destination *dest, uint64_t moved, const void *bytes,
                                              uint32_t len)
{
    const uint64_t room = moved < dest->len ? dest->len - moved : 0;
    um_iov_scatter(&dest->cursor, bytes, len < room ? len : (size_t)room);
}

int um_proto_receive_open(struct um_core_ep *ep);
/* Ends every posted receive with ECANCELED. */
void um_proto_receive_cancel_all(struct um_core_ep *ep);
/* Frees the unexpected messages and the match engines. No receive is posted any more. */
void um_proto_receive_close(struct um_core_ep *ep);
/* Takes the posted receive for a message out of the match engine (a multi-receive stays while it has room) and sets the
 * destination. False: there is none. */
bool um_proto_receive_match(struct um_core_ep *ep, const struct um_proto_arrival *arrival,
                            struct um_proto_destination *dest_p);
/* Copies the body of a message, all of which is here, and completes the receive. recv: the result of
 * um_proto_receive_take(). False: no receive takes the message. */
bool um_proto_receive_body(struct um_core_ep *ep, struct um_proto_posted_recv *recv,
                           const struct um_proto_arrival *arrival, const void *body);
/* Completes the receive of a message that is in its destination, or has failed (error: positive errno). */
void um_proto_receive_finish(struct um_core_ep *ep, struct um_proto_destination *dest,
                             const struct um_proto_arrival *arrival, int error);
/*
 * Queues an unexpected message. inbound: the rendezvous that it announces; NULL: the caller copies its body to
 * (*u_p)->body. 0 and *u_p; -ENOMEM; -EAGAIN: not in this call of progress, because the call has completed something
 * upon which the application may post the receive, or may take no more messages without a receive; -EPROTO: the sender
 * ignores a hold.
 */
struct um_proto_unexpected;
int um_proto_receive_unexpected(struct um_core_ep *ep, const struct um_proto_arrival *arrival,
                                struct um_proto_inbound *inbound, struct um_proto_unexpected **u_p);
/* Nothing more comes from the peer: ends the receives that wait for this peer alone, with this error. */
void um_proto_receive_peer_left(struct um_core_ep *ep, struct um_core_peer *peer, int error);

/* ---- inbound.c: bodies that a peer announced ---- */

enum um_proto_way {
    UM_WAY_READ,   /* read by its receiver */
    UM_WAY_PUSH,   /* sent by its sender, in records */
    UM_WAY_MAPPED, /* copied from the receiver's mapping of the sender's memory */
    UM_WAY_NONE    /* not decided, or not by a choice: then nothing is learned from the body */
};

/* What way.c and way_learn.c note about a body. */
struct um_proto_way_taken {
    uint8_t chosen;      /* enum um_proto_way */
    bool is_lone;        /* read: more time had passed since the last body (of any way) ended than its copy took */
    bool has_choice;     /* read: it is measured for the choice between this side alone and both */
    bool is_mappable;    /* it can be mapped, but goes another way */
    bool is_unaided;     /* read: without the sender's help, because that one was asked for other bodies or could not be
                          * invited */
    bool is_behind;      /* it waits: um_proto_asked.behind */
    bool has_waited;     /* it has waited there, and does not again */
    uint64_t began;      /* ns; read: when its first copy began */
    uint64_t read_began; /* ns; when the copy under way began */
    uint64_t read_ns;    /* ns; read: what reading it took; asked for: read_ns of the endpoint at that time */
    uint64_t pushed;     /* bytes; `pushed` of the endpoint when it was asked for */
    uint64_t peer_read;  /* bytes; crossing.read of its peer when it was asked for */
};

/* What ask.c notes about a body that was asked for. */
struct um_proto_watch {
    struct um_list link;  /* in um_proto_peer.asked.watched */
    uint64_t asked_at;    /* ns */
    uint64_t patience_ns; /* ns; what reading it takes, as far as known then */
    bool is_taken_back;   /* it was asked for, then read after all */
    bool went_on;         /* since then parts came and were dropped, or bytes were read */
};

/* What rndv_both.c notes about a body. */
struct um_proto_both {
    uint32_t parts;           /* of the body */
    uint32_t claimed, copied; /* parts, by this side, from the front */
    uint16_t round;           /* as in the progress words */
    uint8_t shift;            /* log2 of the bytes of a part */
    int8_t words;             /* number of its pair of progress words; -1: the sender takes no part */
    bool is_wanted;           /* um_proto_both_begin() is still to be done: it may wait for a pair of words */
    bool is_helped;           /* the sender was invited */
    bool has_waited;          /* this side has waited for the sender's last part */
    int error;                /* negative errno; the body ends with it once the sender copies no part of it */
    struct um_progress_words *at;
    uint64_t began_at; /* ns */
};

/* The kind of an announced body: of a message, or of RMA that this process executes. */
struct um_proto_inbound_class {
    /* Moves some of the body. Returns whether it still lives, and is the caller's: false also if it is in a batch. */
    bool (*step)(struct um_core_ep *ep, struct um_proto_inbound *in);
    /* Completes the receive or the RMA here, when the body has ended. error: 0 or a positive errno. */
    void (*ended)(struct um_core_ep *ep, struct um_proto_inbound *in, int error);
};

/* A body announced by a peer: a message (RTS), an RMA write, an RMA read; at the side that moves it. */
struct um_proto_inbound {
    const struct um_proto_inbound_class *class;
    struct um_core_job job;
    struct um_list due; /* in um_proto_peer.due */
    struct um_core_peer *peer;
    struct um_proto_inbound *next; /* hash chain */
    uint32_t token;
    uint8_t op;       /* the opcode that announced it */
    bool matched;     /* RTS: it has a destination */
    bool may_wait;    /* RTS: its announcement has just come: it may be read together with others (rndv_batch.c) */
    bool pushed;      /* the body comes, or goes, in records */
    bool asked;       /* its peer was asked for the records */
    bool shareable;   /* RTS: its sender says that it can be mapped here */
    bool is_shown;    /* the address of its one piece is a key (machine show()); READ: it may be offered */
    bool was_offered; /* READ: rma_offer.c */
    int32_t status;   /* in um_proto_peer.due: the answer that waits */
    struct um_proto_way_taken way;
    struct um_proto_watch watch;
    struct um_proto_both both;
    struct um_proto_arrival arrival;
    struct um_proto_destination dest;
    struct um_iov_cursor start;     /* dest.cursor at the body's first byte */
    uint64_t key, addr;             /* RMA */
    struct um_core_offer offer;     /* READ: rma_offer.c */
    uint64_t moved;                 /* bytes */
    struct um_core_copying copying; /* the transfer of the bytes behind `moved` */
    int failed;                     /* RMA, pushed: positive errno; ends the body once the parts under way are out */
    int left;                       /* positive errno: its peer left before the message was matched */
    uint32_t count;
    struct um_piece piece[]; /* count */
};

/* Reads the announcement of a body. NULL and *error_p: -EPROTO or -ENOMEM. */
struct um_proto_inbound *um_proto_inbound_open(struct um_core_peer *peer, const struct um_record *rec,
                                               const struct um_proto_inbound_class *class, int *error_p);
static inline struct um_proto_inbound *um_proto_inbound_of_job(const struct um_list *link)
{
    return UM_CONTAINER(UM_CONTAINER(link, struct um_core_job, link), struct um_proto_inbound, job);
}

/* Moves what can be moved now. The destination is known. */
void um_proto_inbound_start(struct um_core_ep *ep, struct um_proto_inbound *in);
/* Moves some of the body, which has no job; starts a job for the rest of it. */
static inline void um_proto_inbound_go_on(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    const bool lives = in->class->step(ep, in);
    if (lives && (!in->asked || in->op == UM_WIRE_READ) && !in->offer.shown && !in->way.is_behind)
        um_core_job_start(ep, &in->job);
}

/* Finds a body by the token that the peer gave it. NULL: there is none, or it has ended and its answer is due. */
struct um_proto_inbound *um_proto_inbound_find(const struct um_core_peer *peer, uint32_t token);
/* Ends the body without a completion here: sends the answer, if one is due (answer), and frees the body. */
void um_proto_inbound_end(struct um_core_ep *ep, struct um_proto_inbound *in, int32_t status, bool answer);
/* Frees a body, without a completion or an answer: from the return on its token may be used again. If the body was not
 * queued, its record stays in the lane and will be offered again, unless the lane ends. */
void um_proto_inbound_drop(struct um_proto_inbound *in);
/* Completes the receive or the RMA that the body belongs to, answers, and frees the body. error: 0 or a positive
 * errno. */
void um_proto_inbound_finish(struct um_core_ep *ep, struct um_proto_inbound *in, int error);
/*
 * Its peer left: bodies that move end with this error; those that wait for a receive end with it later. await_until:
 * how long to wait for a peer that copies a part of a body into its receive's buffer (ns); 0: no correct peer does.
 */
void um_proto_inbound_peer_left(struct um_core_ep *ep, struct um_core_peer *peer, int error, uint64_t await_until);

/* ---- rndv_send.c: announcements, and what the initiator keeps ---- */

int um_proto_rndv_send(struct um_core_ep *ep, const struct um_proto_msg *msg, size_t len);
int um_proto_rndv_rts_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec);
/* Records that a step of a job fills with a body, and their bytes (the last record may have more). */
enum { UM_STEP_RECORDS = 8 };
static inline uint64_t um_proto_step_bytes(const struct um_machine *machine)
{
    return (uint64_t)UM_STEP_RECORDS * machine->body_max;
}

/* Returns the most bytes that the next record of a body in parts takes (goes_on: not its first): no more than
 * UM_PART_MAX, so that the receiver places one part while the next one is on its way. */
static inline uint32_t um_proto_part_max(struct um_lane *lane, bool goes_on)
{
    const uint32_t most = lane->machine->lane_part_max ? lane->machine->lane_part_max(lane, goes_on)
                                                       : lane->machine->lane_body_max(lane, lane->body_max);
    return most < UM_PART_MAX ? most : UM_PART_MAX;
}

/* Does a peer need a key (machine show()) to read memory of this process? */
static inline bool um_proto_shows(const struct um_lane *lane)
{
    return __builtin_expect(lane->machine->show != NULL, 0);
}
/* Shows the operation's buffer to the peer, if it is one piece and the machine can. Then puts the key into piece->addr,
 * for the announcement. False: it is not shown. */
bool um_proto_rndv_show(struct um_core_op *op, struct um_piece *piece);
/* Keeps the operation's buffers, or, with UM_OP_INJECT, a copy of their bytes. */
int um_proto_rndv_keep(struct um_core_op *op, const struct iovec *iov, size_t count, size_t len);

/* ---- rndv_read.c ---- */

/* The class of a message's body. */
extern const struct um_proto_inbound_class um_proto_message_body;
/* Returns how many of the `left` bytes to read in one step. */
size_t um_proto_rndv_step(const struct um_proto_inbound *in, uint64_t left);
/*
 * RMA: moves len bytes from the peer's pieces to `here`, which lies in a region, or continues the transfer that is
 * under way. 0: the body lives (in->pushed: reading was refused, use records); -1: it has ended.
 */
int um_proto_rndv_read(struct um_core_ep *ep, struct um_proto_inbound *in, void *here, size_t len);

/* ---- rndv_both.c ---- */

/* bytes; the shortest read body that is worth the help of its sender */
#define UM_HELP_MIN UINT64_C(65536)
/* Can the body be mapped here? */
bool um_proto_both_can(const struct um_core_ep *ep, struct um_proto_inbound *in);
/* Can the sender of a body be invited to copy as well, unless there is no place for the invitation? */
bool um_proto_both_can_invite(const struct um_core_peer *peer);
/* Begins a body that will be mapped, or read with help: invites the sender to copy as well. False: all pairs of
 * progress words of that sender's lane are in use; the body has to wait. */
bool um_proto_both_begin(struct um_core_ep *ep, struct um_proto_inbound *in);
/* Copies some of the body. 0: all of it is there; -EAGAIN: not yet; else as transfer_start() and transfer_poll(). */
int um_proto_both_copy(struct um_core_ep *ep, struct um_proto_inbound *in);
/* Stops copying by both sides: the body comes in another way, from its first byte on. */
void um_proto_both_give_up(struct um_core_ep *ep, struct um_proto_inbound *in);
/* Called when the body ends. From the return on its sender writes no byte of the receive's buffer. */
void um_proto_both_end(struct um_core_ep *ep, struct um_proto_inbound *in);

/* ---- rndv_help.c ---- */
/* Copies no more of the body: its receiver wants it in another way. */
void um_proto_help_stop(struct um_core_op *op);
int um_proto_rndv_invite_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec);

/* ---- rndv_batch.c ---- */

void um_proto_batch_open(struct um_core_ep *ep);
/* Lets a body, whose way is to be read, wait for others of its peer. True: it waits, is read, or has a job: the caller
 * must not touch it. */
bool um_proto_batch_take(struct um_core_ep *ep, struct um_proto_inbound *in);
/* Reads the bodies that wait. */
void um_proto_batch_read(struct um_core_ep *ep, struct um_core_peer *peer);
/* Called when none of them waits any more. */
static inline void um_proto_batch_forget(struct um_core_peer *peer)
{
    struct um_proto_batch *batch = &um_proto_peer_of(peer)->batch;
    um_list_unlink(&batch->link);
    batch->count = 0;
    batch->bytes = 0;
}

/* ---- rndv_push.c ---- */

/* The class of an operation whose body the peer reads or asks for. */
extern const struct um_core_op_class um_proto_rndv_body;
int um_proto_rndv_push_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec);

/* ---- way.c: the way of a body ---- */

int um_proto_way_open(struct um_core_ep *ep);
void um_proto_way_close(struct um_core_ep *ep);
/* Chooses the way of a message's body whose destination is known: notes it in the body (in->way, in->both.is_wanted).
 * True: the body was asked for, and comes in records; or it waits, and the way is not chosen yet. */
bool um_proto_way_choose(struct um_core_ep *ep, struct um_proto_inbound *in);
/* Called if its sender was not invited to copy as well, though that was chosen. */
void um_proto_way_unaided(const struct um_core_ep *ep, struct um_proto_inbound *in);

/* ---- way_learn.c: what the ways cost ---- */

/* Starts a copy of the body, or continues the one under way; measures the time that it takes. Results as
 * transfer_start() and transfer_poll(). */
int um_proto_way_read(struct um_core_ep *ep, struct um_proto_inbound *in, const struct um_copy *copy);
int um_proto_way_read_on(struct um_core_ep *ep, struct um_proto_inbound *in);
/* The bodies of a batch, of so many bytes in all, were read by a copy that has just ended. began: ns. */
void um_proto_way_batch_read(struct um_core_ep *ep, const struct um_list *bodies, uint64_t began, uint64_t bytes);
/* um_proto_both_copy() for a body that is read; measures the time that it takes. */
int um_proto_way_read_helped(struct um_core_ep *ep, struct um_proto_inbound *in);
/* Called before a part of a body that was asked for is copied. Returns the time (ns) for um_proto_way_came(); 0: it is
 * not needed. */
uint64_t um_proto_way_coming(const struct um_core_ep *ep, const struct um_proto_inbound *in);
/* Called after the part was copied. */
void um_proto_way_came(struct um_core_ep *ep, struct um_proto_inbound *in, uint32_t len, uint64_t coming_at);
/* Notes that the peer has read or mapped a body that this side announced. */
void um_proto_way_peer_read(struct um_core_op *op);
/* Called when a body whose way was chosen has moved. */
void um_proto_way_learn(struct um_core_ep *ep, const struct um_proto_inbound *in);
/* Called instead if the body has failed, or goes another way than the one that was chosen. */
void um_proto_way_failed(const struct um_core_ep *ep, const struct um_proto_inbound *in);
/* Called after that. May the next message like this one come unasked? */
bool um_proto_way_lets_come(const struct um_core_ep *ep, const struct um_proto_inbound *in);
/* Called when a message begins that comes unasked. Is it timed? */
bool um_proto_way_times_unasked(const struct um_core_ep *ep, const struct um_core_peer *peer, uint64_t len);
/* Called after a part of such a message was placed. */
void um_proto_way_unasked_part(const struct um_core_ep *ep, const struct um_core_peer *peer, uint32_t len);

/* A message that has come unasked, and was timed. */
struct um_proto_came {
    uint64_t began;  /* ns; when it began to come */
    uint64_t ns;     /* what placing its parts took */
    uint64_t len;    /* bytes */
    unsigned copies; /* its sender's, and the receiver's: two if it was not posted */
};
void um_proto_way_came_unasked(const struct um_core_ep *ep, const struct um_core_peer *peer,
                               const struct um_proto_came *came);

/* ---- ask.c: a body is asked for ---- */

/* Asks the sender to send the body in records. False: the answer finds no place now, or the sender has left. */
bool um_proto_ask_records(struct um_proto_inbound *in);
/* As um_proto_ask_records(), for a body that can be read as well: it is taken back if no part comes. patience_ns: what
 * reading takes (0: not known), for so long its sender may be reading itself. */
bool um_proto_ask_watched(struct um_core_ep *ep, struct um_proto_inbound *in, uint64_t patience_ns);
/* Something came that shows that the peer makes progress. */
void um_proto_ask_peer_moves(const struct um_core_peer *peer);
/* A part of a body that was asked for was copied. */
void um_proto_ask_part_came(struct um_proto_inbound *in);
/* Must a part be dropped, because its body was taken back? in: NULL when there is no body with its token. */
bool um_proto_ask_drops(struct um_proto_inbound *in);
/* Waits again for the parts of a body that was taken back and cannot be read. False: too late, parts were dropped or
 * bytes were read. */
bool um_proto_ask_resume(struct um_proto_inbound *in);
/* Called when a body ends, moved or not. If its sender was asked for no other one, the jobs of the bodies that wait for
 * that go on. */
void um_proto_ask_forget(struct um_core_ep *ep, struct um_proto_inbound *in);
/* Puts the job of a body aside as long as any body that its sender was asked for is outstanding
 * (um_proto_asked.behind).
 */
void um_proto_ask_wait(struct um_proto_inbound *in);

/* ---- eager.c ---- */

/*
 * Should the body be written before the header of its record? A waiting receiver polls the line of the record, and
 * takes it out of this processor's cache: a sender that writes the header early has to fetch the line twice. In a
 * stream the receiver is busy with earlier messages, and the line arrives while the body is written. A message belongs
 * to a stream if there was no call of progress since the last one with a body. In either order the record is published
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

/* Writes n bytes to `to`: the slot's body or, if they are fewer than UM_NONTEMPORAL_MIN, a place in its header. */
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

/* True if a body of len bytes lies in the header of its record. flags: of the message; UM_OP_DATA counts. */
static inline bool um_proto_eager_is_inline(size_t len, uint32_t flags)
{
    return __builtin_expect(len <= UM_EAGER_INLINE_DATA, 1) || (len <= UM_EAGER_INLINE && !(flags & UM_OP_DATA));
}

/* To be called before a body is written into the header. */
static inline void um_proto_eager_header(struct um_proto_eager_wire *header, uint64_t tag, uint64_t data)
{
    header->tag = tag;
    header->data = data;
}

/* Counts a message that goes eagerly, in one record or in segments. */
static inline void um_proto_eager_count(struct um_core_ep *ep, const struct um_core_peer *peer, size_t len)
{
    struct um_core_traffic *out = peer->out;
    out->sent++;
    out->bytes_sent += len;
    ep->stats.eager++;
}

int um_proto_eager_send(struct um_core_ep *ep, const struct um_proto_msg *msg, struct um_lane *lane, size_t len);
/* Makes the operation of a message that completes when it is consumed (UM_OP_DELIVERY); *op_p is NULL for others. 0;
 * -ENOMEM. */
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
/* Frees the operation of a message whose claim failed. Returns the error of the call. */
static inline int um_proto_eager_refused(const struct um_proto_msg *msg, struct um_core_op *op, int error)
{
    if (op)
        um_core_op_free(op);
    return um_core_peer_claim_failed(msg->peer, error);
}
/* Called when all of the message is in the lane: completes it, or lets its operation (UM_OP_DELIVERY) wait until the
 * message is consumed. */
void um_proto_eager_end(struct um_core_ep *ep, const struct um_proto_msg *msg, size_t len, struct um_core_op *op);
int um_proto_eager_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec);

/* ---- eager_segments.c ---- */

/* Bytes of the shortest message that goes in segments. A shorter one takes longer so than in one record. */
enum { UM_SPLIT_MIN = 16384 };

/* Returns the bytes of one segment if the message may go in segments, unasked, and the lane has room for all of them;
 * else 0. To be called once for each message. */
uint32_t um_proto_segments_fit(const struct um_core_ep *ep, const struct um_proto_msg *msg, struct um_lane *lane,
                               size_t len);
/* Returns the bytes of one segment if a message of UM_SPLIT_MIN bytes or more, which would fit into one record, is to
 * go in segments; else 0. */
uint32_t um_proto_segments_split(const struct um_core_ep *ep, struct um_core_peer *peer, struct um_lane *lane,
                                 size_t len);
/* Returns the largest part, in bytes, of a body that is pushed. One that might have come in segments, with which it is
 * compared, moves as they do. To be called for each part. */
uint32_t um_proto_segments_pushed(struct um_lane *lane, uint64_t len, uint64_t moved);
/* Sends an injected message in segments. most: the result of um_proto_segments_split(). */
int um_proto_segments_inject(struct um_core_ep *ep, const struct um_proto_msg *msg, struct um_lane *lane, size_t len,
                             uint32_t most);
/* Sends a message in segments. most: the result of um_proto_segments_fit() or um_proto_segments_split(). */
int um_proto_segments_send(struct um_core_ep *ep, const struct um_proto_msg *msg, struct um_lane *lane, size_t len,
                           uint32_t most);
/* Notes whether the answer to an announced message permits segments for the next ones. Returns the status of this
 * message. */
int32_t um_proto_segments_answered(const struct um_core_op *op, int32_t status);
int um_proto_segments_first_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec);
int um_proto_segments_next_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec);
/* Nothing more comes from the peer: a message whose last segment has not come ends with this error. */
void um_proto_segments_peer_left(struct um_core_ep *ep, struct um_core_peer *peer, int error);

/* ---- rma_copy.c ---- */
/* Moves the bytes of an operation through a window by a transfer. Results as transfer_start(); -EINPROGRESS: the
 * operation was accepted, and will complete. */
int um_proto_rma_copy(struct um_core_ep *ep, const struct um_proto_rma *rma, const struct um_window *w, uint64_t offset,
                      size_t len);

/* ---- rma_offer.c ---- */

/* um_core_op.offer */
enum um_proto_offer {
    UM_OFFER_NONE,
    UM_OFFER_COMING,  /* the transfer is under way, or its end (TAKEN) is still to be sent */
    UM_OFFER_TAKEN,   /* TAKEN was sent: the owner answers DONE */
    UM_OFFER_REFUSED, /* TAKEN was sent, refused: the owner sends parts */
};
/* The class of a read that the peer executes. */
extern const struct um_core_op_class um_proto_read_op;
/* Can the owner offer such a read to this side? */
bool um_proto_rma_may_take(const struct um_core_op *op);
/* Can this side offer the peer all bytes of its read? */
bool um_proto_rma_may_offer(const struct um_proto_inbound *in);
/* Offers the peer all bytes of its read, which lie at `here`. True: they are offered, or will be. False: they go in
 * records. */
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
/* a->lists must not be NULL. */
int um_proto_atomic_by_owner(struct um_core_ep *ep, const struct um_proto_atomic *a);
enum { UM_ATOMIC_STEP = 8 }; /* records that one step of a job fills */
int um_proto_atomic_result_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec);

/* ---- atomic_owner.c ---- */
/* um_proto_atomic_apply() with this process as the party of the locks: sets call->party. */
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
