/*
 * Bodies that peers announced: from the announcement to the answer.
 *
 *   announced → matched → moving (job, or in a batch), or asked for (it comes in records) → answered
 *                  ╰ behind (ask.c) ╯                 no place for the answer: due, answered by a job ─┘
 *
 * When a sender leaves, its bodies end in any state; one that waits for its receive ends when it is matched. Only
 * memory bounds how many bodies can be announced at a time. If an answer finds no place, because the sender has not
 * taken earlier ones, a job sends it later. Owns: struct um_proto_inbound and the table of a peer's bodies. Threading:
 * core.h.
 */
#include "proto/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table: by token, which the peer chooses ---- */

enum { UM_INBOUND_BUCKETS = 64 };

struct um_proto_inbounds {
    uint32_t mask, count;
    struct um_proto_inbound *bucket[];
};

static struct um_proto_inbound **table_bucket(struct um_proto_inbounds *t, uint32_t token)
{
    return &t->bucket[(token * 0x9e3779b1u >> 8) & t->mask];
}

static void table_add(struct um_proto_inbounds *t, struct um_proto_inbound *in)
{
    struct um_proto_inbound **bucket = table_bucket(t, in->token);
    in->next = *bucket;
    *bucket = in;
    t->count++;
}

static void table_remove(struct um_proto_inbounds *t, const struct um_proto_inbound *in)
{
    struct um_proto_inbound **at = table_bucket(t, in->token);
    while (*at && *at != in)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = in->next;
    t->count--;
}

static struct um_proto_inbounds *table_new(uint32_t buckets)
{
    struct um_proto_inbounds *t = calloc(1, sizeof(*t) + buckets * sizeof(struct um_proto_inbound *));
    if (t)
        t->mask = buckets - 1;
    return t;
}

/* Makes room for one body per bucket on average. Without memory for more buckets look-ups are slower, not wrong.
 * -ENOMEM: there is no table at all. */
static int table_reserve(struct um_core_peer *peer)
{
    struct um_proto_inbounds *old = um_proto_peer_of(peer)->inbound;
    if (old && old->count <= old->mask)
        return 0;
    struct um_proto_inbounds *t = table_new(old ? (old->mask + 1) * 2 : UM_INBOUND_BUCKETS);
    if (!t)
        return old ? 0 : -ENOMEM;
    for (uint32_t i = 0; old && i <= old->mask; i++) {
        while (old->bucket[i]) {
            struct um_proto_inbound *in = old->bucket[i];
            old->bucket[i] = in->next;
            table_add(t, in);
        }
    }
    free(old);
    um_proto_peer_of(peer)->inbound = t;
    return 0;
}

/* Finds a body whose token is in use: it lives, or its answer is due. */
static struct um_proto_inbound *table_find(const struct um_core_peer *peer, uint32_t token)
{
    if (!um_proto_peer_of(peer)->inbound)
        return NULL;
    struct um_proto_inbound *in = *table_bucket(um_proto_peer_of(peer)->inbound, token);
    while (in && in->token != token)
        in = in->next;
    return in;
}

struct um_proto_inbound *um_proto_inbound_find(const struct um_core_peer *peer, uint32_t token)
{
    struct um_proto_inbound *in = table_find(peer, token);
    return in && um_list_is_empty(&in->due) ? in : NULL;
}

/* ---- announced ---- */

/* Copies the pieces out of an announcement and checks that they make up the total. */
static int pieces_take(struct um_proto_inbound *in, const struct um_record *rec, const struct um_piece *one,
                       uint64_t total)
{
    uint64_t sum = 0;
    if (in->count == 1)
        memcpy(in->piece, one, sizeof(*one));
    else if (in->count > 1)
        memcpy(in->piece, rec->body, in->count * sizeof(struct um_piece));
    for (uint32_t i = 0; i < in->count; i++) {
        if (in->piece[i].len > total - sum)
            return -EPROTO;
        sum += in->piece[i].len;
    }
    return sum == total ? 0 : -EPROTO;
}

static void links_init(struct um_proto_inbound *in)
{
    um_list_init(&in->job.link);
    um_list_init(&in->due);
    um_list_init(&in->watch.link);
}

struct um_proto_inbound *um_proto_inbound_open(struct um_core_peer *peer, const struct um_record *rec,
                                               const struct um_proto_inbound_class *class, int *error_p)
{
    bool is_rts = rec->op == UM_WIRE_RTS;
    const struct um_proto_rts_wire *rts = rec->header;
    const struct um_proto_rma_wire *rma = rec->header;
    uint32_t token = is_rts ? rts->token : rma->token;
    uint16_t count = is_rts ? rts->count : rma->count;
    uint64_t total = is_rts ? rts->total : rma->total;
    const uint32_t reach = is_rts ? rts->reach : rma->reach;
    *error_p = -EPROTO;
    if ((token < UM_TOKENS) == is_rts || count > UM_IOV_LIMIT || table_find(peer, token) ||
        (count > 1 && (!rec->body || rec->len != count * sizeof(struct um_piece))) ||
        (rec->op == UM_WIRE_READ && count != 0))
        return NULL;
    *error_p = -ENOMEM;
    struct um_proto_inbound *in = malloc(sizeof(*in) + count * sizeof(struct um_piece));
    if (!in || table_reserve(peer) != 0) {
        free(in);
        return NULL;
    }
    *in = (struct um_proto_inbound){
        .class = class, .peer = peer, .token = token, .op = rec->op, .count = count, .way = {.chosen = UM_WAY_NONE}};
    in->pushed = rec->op == UM_WIRE_READ;
    in->shareable = is_rts && reach == UM_REACH_MAPPED;
    in->is_shown = reach == UM_REACH_SHOWN && (count == 1 || rec->op == UM_WIRE_READ);
    in->both.words = -1;
    links_init(in);
    in->arrival = (struct um_proto_arrival){
        .peer = peer,
        .tag = is_rts ? rts->tag : 0,
        .data = is_rts ? rts->data : rma->data,
        .len = total,
        .flags = um_proto_wire_op_flags(rec->flags),
    };
    if (!is_rts) {
        in->key = rma->key;
        in->addr = rma->addr;
    }
    if (rec->op != UM_WIRE_READ && pieces_take(in, rec, is_rts ? &rts->piece : &rma->piece, total) != 0) {
        *error_p = -EPROTO;
        free(in);
        return NULL;
    }
    table_add(um_proto_peer_of(peer)->inbound, in);
    return in;
}

void um_proto_inbound_drop(struct um_proto_inbound *in)
{
    if (!in->left)
        table_remove(um_proto_peer_of(in->peer)->inbound, in);
    free(in);
}

/* ---- moving ---- */

/* The step of a body's job. */
static bool inbound_step(struct um_core_ep *ep, struct um_core_job *job)
{
    struct um_proto_inbound *in = UM_CONTAINER(job, struct um_proto_inbound, job);
    const uint64_t before = in->moved, total = in->arrival.len;
    const uint64_t limit = in->op == UM_WIRE_RTS && in->dest.len < total ? in->dest.len : total;
    const bool was_pushed = in->pushed;
    if (in->pushed && in->op != UM_WIRE_READ)
        return um_proto_ask_records(in);
    const bool lives = in->class->step(ep, in);
    const uint64_t after = lives ? in->moved : limit; /* a batch reads it in this call, or the next one */
    ep->job_bytes += after > before ? after - before : 0;
    return !lives || in->moved != before || in->pushed != was_pushed || in->way.is_behind;
}

void um_proto_inbound_start(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    if (in->left) {
        um_proto_inbound_finish(ep, in, in->left);
        return;
    }
    in->job.step = inbound_step;
    in->start = in->dest.cursor;
    um_proto_inbound_go_on(ep, in);
}

/* ---- answered ---- */

/* Sends due answers while there are places for them. */
static bool answer_step(struct um_core_ep *ep, struct um_core_job *job)
{
    (void)ep;
    struct um_proto_peer *own = UM_CONTAINER(job, struct um_proto_peer, answering);
    struct um_rx *rx = um_proto_peer_whole(own)->rx;
    bool moved = false;
    struct um_list *first;
    while ((first = um_list_first(&own->due)) != NULL) {
        struct um_proto_inbound *in = UM_CONTAINER(first, struct um_proto_inbound, due);
        if (rx->machine->answer(rx, in->token, in->status) == -EAGAIN)
            return moved;
        um_list_unlink(first);
        um_proto_inbound_drop(in);
        moved = true;
    }
    um_list_unlink(&job->link);
    return moved;
}

/* From the return on nobody writes into the body's destination. */
static void inbound_stop(struct um_core_ep *ep, struct um_proto_inbound *in)
{
    um_proto_ask_forget(ep, in);
    um_proto_both_end(ep, in);
    um_core_copying_cancel(&in->copying);
    um_core_offer_end(&in->offer, UM_HIDE_GIVEN_UP);
    um_list_unlink(&in->job.link);
}

void um_proto_inbound_end(struct um_core_ep *ep, struct um_proto_inbound *in, int32_t status, bool answer)
{
    struct um_core_peer *peer = in->peer;
    struct um_proto_peer *own = um_proto_peer_of(peer);
    inbound_stop(ep, in);
    if (!answer || !peer->rx || in->left || peer->rx->machine->answer(peer->rx, in->token, status) == 0) {
        um_proto_inbound_drop(in);
        return;
    }
    in->status = status; /* it stays in the table, because the token is in use until the answer is sent */
    um_list_append(&own->due, &in->due);
    own->answering.step = answer_step;
    if (um_list_is_empty(&own->answering.link))
        um_core_job_start(ep, &own->answering);
}

/* Counts a body that has moved. */
static void body_count(struct um_core_stats *stats, const struct um_proto_inbound *in)
{
    if (in->way.chosen == UM_WAY_MAPPED)
        stats->mapped++;
    else if (in->pushed)
        stats->bounced++;
    else
        stats->copied++;
}

void um_proto_inbound_finish(struct um_core_ep *ep, struct um_proto_inbound *in, int error)
{
    /* Have RETURN records ended the READ, with the error, if there is one? Then no answer follows. */
    bool returned = in->op == UM_WIRE_READ && (in->failed ? error != 0 : in->moved > 0 && !error);
    if (!error)
        body_count(&ep->stats, in);
    if (in->way.chosen != UM_WAY_NONE && !error)
        um_proto_way_learn(ep, in);
    else if (in->way.chosen != UM_WAY_NONE)
        um_proto_way_failed(ep, in);
    const bool may_come = !error && in->arrival.len <= UM_SEGMENTED_MAX && um_proto_way_lets_come(ep, in);
    inbound_stop(ep, in); /* before the buffer is the application's again */
    in->class->ended(ep, in, error);
    um_proto_inbound_end(ep, in, may_come ? UM_STATUS_PUSHED : -error, !returned);
}

/* ---- the peer left ---- */

void um_proto_inbound_peer_left(struct um_core_ep *ep, struct um_core_peer *peer, int error, uint64_t await_until)
{
    struct um_proto_inbounds *t = um_proto_peer_of(peer)->inbound;
    struct um_list *first;
    um_list_unlink(&um_proto_peer_of(peer)->answering.link);
    while ((first = um_list_first(&um_proto_peer_of(peer)->due)) != NULL) {
        um_list_unlink(first);
        um_proto_inbound_drop(UM_CONTAINER(first, struct um_proto_inbound, due));
    }
    um_proto_peer_of(peer)->inbound = NULL;
    um_proto_peer_of(peer)->await_until = await_until;
    for (uint32_t i = 0; t && i <= t->mask; i++) {
        while (t->bucket[i]) {
            struct um_proto_inbound *in = t->bucket[i];
            t->bucket[i] = in->next;
            in->left = error;
            if (in->op != UM_WIRE_RTS || in->matched)
                um_proto_inbound_finish(ep, in, error);
        }
    }
    um_proto_batch_forget(peer);
    um_proto_peer_of(peer)->await_until = 0;
    free(t);
}
