/*
 * Atomic operations that the owner of the memory executes: the owner's side of atomic.c, which has the diagram.
 *
 * A state (struct um_proto_atomic_inbound) is kept only for an operation of several records, and for results that find
 * no room. Errors and results are sent after the last part, so a token is never in use by two operations. Owns: struct
 * um_proto_atomic_inbound. Threading: core.h.
 */
#include "proto/internal.h"

#include "base/process.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void um_proto_atomic_execute(struct um_proto_atomic_call *call)
{
    const struct um_lock_party party = {.self = um_process_self(), .alive = um_process_holder_is_alive};
    call->party = &party;
    um_proto_atomic_apply(call);
    call->party = NULL;
}

/* Applies the operation to memory of this process. 0; -EFAULT: some elements may have been updated; -ENOMEM. */
static int apply_here(struct um_core_ep *ep, struct um_proto_atomic_call *call)
{
    int ret = um_core_ep_guard(ep, call->target, call->count * um_proto_atomic_size(call->type));
    if (ret)
        return ret;
    call->lock_key = (uintptr_t)call->target;
    call->locks = um_core_regions_locks(ep->config.regions);
    um_proto_atomic_execute(call);
    return um_core_ep_unguard(ep);
}

/* An operation of several records, or one whose results wait for credit. */
struct um_proto_atomic_inbound {
    struct um_list link;    /* in peer->atomics */
    struct um_core_job job; /* sending results */
    struct um_core_peer *peer;
    uint64_t key, addr;
    uint32_t count, done; /* elements */
    uint32_t size;        /* bytes of an element */
    uint32_t sent;        /* bytes of results */
    uint16_t token;
    uint8_t type, op;
    bool fetch;
    int failed;             /* 0, or the negative errno to answer */
    unsigned char result[]; /* fetch: count elements */
};

static struct um_proto_atomic_inbound *inbound_find(struct um_core_peer *peer, uint32_t token)
{
    for (struct um_list *l = um_proto_peer_of(peer)->atomics.next; l != &um_proto_peer_of(peer)->atomics; l = l->next) {
        struct um_proto_atomic_inbound *in = UM_CONTAINER(l, struct um_proto_atomic_inbound, link);
        if (in->token == token)
            return in;
    }
    return NULL;
}

static void inbound_end(struct um_proto_atomic_inbound *in)
{
    um_list_unlink(&in->job.link);
    um_list_unlink(&in->link);
    free(in);
}

void um_proto_atomic_peer_left(struct um_core_peer *peer)
{
    struct um_list *first;
    while ((first = um_list_first(&um_proto_peer_of(peer)->atomics)) != NULL)
        inbound_end(UM_CONTAINER(first, struct um_proto_atomic_inbound, link));
}

/* Counts a finished operation: as a read if it fetches, as a write if it changes memory. An OpenSHMEM library sleeps on
 * the count of writes. */
static void op_finished(struct um_core_peer *peer, uint64_t key, uint64_t bytes, bool fetch, uint8_t op)
{
    if (fetch)
        um_core_ep_count(peer->ep, key, UM_COUNT_READ_SHIFT);
    if (op != UM_ATOMIC_READ)
        um_core_ep_count(peer->ep, key, UM_COUNT_WRITE_SHIFT);
    peer->in->received++;
    peer->in->bytes_received += bytes;
}

/* Sends results as the peer's credit allows. */
static bool result_step(struct um_core_ep *ep, struct um_core_job *job)
{
    (void)ep;
    struct um_proto_atomic_inbound *in = UM_CONTAINER(job, struct um_proto_atomic_inbound, job);
    uint32_t total = in->count * in->size;
    struct um_lane *lane;
    int ret = um_core_peer_lane(in->peer, &lane);
    bool moved = false;
    for (int i = 0; ret == 0 && in->sent < total && i < UM_ATOMIC_STEP; i++) {
        uint32_t left = total - in->sent;
        uint32_t most = left <= UM_RESULT_INLINE ? left : lane->machine->lane_body_max(lane, lane->body_max);
        uint32_t part = left < most ? left : most;
        struct um_slot slot;
        ret = lane->machine->claim(lane, part > UM_RESULT_INLINE ? part : 0, &slot);
        if (ret)
            break;
        struct um_proto_result_wire *header = slot.header;
        header->offset = in->sent;
        header->token = in->token;
        slot.is_nontemporal = false;
        memcpy(part > UM_RESULT_INLINE ? slot.body : header->body, in->result + in->sent, part);
        lane->machine->commit(lane, &slot, UM_WIRE_RESULT, 0, part);
        in->sent += part;
        moved = true;
    }
    if (ret == -EAGAIN) {
        if (in->peer->lane)
            um_core_peer_claim_failed(in->peer, ret);
        return moved;
    }
    if (ret && in->peer->rx)
        in->peer->rx->machine->answer(in->peer->rx, in->token, -ECONNRESET);
    if (ret || in->sent == total) {
        inbound_end(in);
        return true;
    }
    return moved;
}

/* Ends an operation whose last part was applied or skipped. */
static void inbound_finish(struct um_core_ep *ep, struct um_proto_atomic_inbound *in)
{
    if (in->failed || !in->fetch) {
        if (!in->failed)
            op_finished(in->peer, in->key, (uint64_t)in->count * in->size, in->fetch, in->op);
        in->peer->rx->machine->answer(in->peer->rx, in->token, in->failed);
        inbound_end(in);
        return;
    }
    op_finished(in->peer, in->key, (uint64_t)in->count * in->size, in->fetch, in->op);
    in->job.step = result_step;
    um_core_job_start(ep, &in->job);
    (void)result_step(ep, &in->job);
}

/* Applies the next n elements, whose operands (and values to compare with) lie in body. */
static void inbound_apply(struct um_core_ep *ep, struct um_proto_atomic_inbound *in, const unsigned char *body,
                          uint32_t n)
{
    uint64_t at = (uint64_t)in->done * in->size;
    struct um_proto_atomic_call call = {.type = in->type,
                                        .op = in->op,
                                        .count = n,
                                        .operand = body,
                                        .compare = body + (size_t)n * in->size,
                                        .result = in->fetch ? in->result + at : NULL};
    int ret = in->failed ? in->failed
                         : um_core_regions_resolve(ep->config.regions, in->key, in->addr + at, (uint64_t)n * in->size,
                                                   um_proto_atomic_access(in->op, in->fetch), &call.target);
    if (ret == 0)
        ret = apply_here(ep, &call);
    in->failed = ret;
    in->done += n;
    if (in->done == in->count)
        inbound_finish(ep, in);
}

/* Returns the number of elements whose operands take len bytes; 0: len is impossible. */
static uint32_t part_elements(uint8_t op, uint32_t size, uint32_t left, uint32_t len)
{
    uint32_t unit = um_proto_atomic_compares(op) ? 2 * size : size;
    if (op == UM_ATOMIC_READ)
        return len == 0 ? left : 0;
    return len % unit == 0 && len / unit <= left ? len / unit : 0;
}

static int inbound_open(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_proto_atomic_wire *header,
                        bool fetch, struct um_proto_atomic_inbound **in_p)
{
    uint32_t size = (uint32_t)um_proto_atomic_size(header->type);
    struct um_proto_atomic_inbound *in = malloc(sizeof(*in) + (fetch ? (size_t)header->count * size : 0));
    void *whole;
    if (!in)
        return -ENOMEM;
    *in = (struct um_proto_atomic_inbound){
        .peer = peer,
        .key = header->key,
        .addr = header->addr,
        .count = header->count,
        .size = size,
        .token = header->token,
        .type = header->type,
        .op = header->op,
        .fetch = fetch,
        /* checks all elements before the first one is updated */
        .failed = um_core_regions_resolve(ep->config.regions, header->key, header->addr, (uint64_t)header->count * size,
                                          um_proto_atomic_access(header->op, fetch), &whole),
    };
    um_list_init(&in->job.link);
    um_list_init(&in->link);
    um_list_append(&um_proto_peer_of(peer)->atomics, &in->link);
    *in_p = in;
    return 0;
}

/* Executes an operation of one record. -EAGAIN: there is no room for its results. */
static int single_apply(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec,
                        const struct um_proto_atomic_wire *header, const unsigned char *body)
{
    uint32_t size = (uint32_t)um_proto_atomic_size(header->type), len = header->count * size;
    bool fetch = rec->flags & UM_WIRE_FETCH;
    struct um_proto_atomic_call call = {
        .type = header->type, .op = header->op, .count = header->count, .operand = body, .compare = body + len};
    struct um_lane *lane = NULL; /* for the results */
    struct um_slot slot;
    int ret = um_core_regions_resolve(ep->config.regions, header->key, header->addr, len,
                                      um_proto_atomic_access(header->op, fetch), &call.target);
    if (ret == 0 && fetch) {
        if (um_core_peer_lane(peer, &lane) != 0 ||
            lane->machine->claim(lane, len > UM_RESULT_INLINE ? len : 0, &slot) != 0)
            return -EAGAIN;
        struct um_proto_result_wire *result = slot.header;
        result->offset = 0;
        result->token = header->token;
        slot.is_nontemporal = false;
        call.result = len > UM_RESULT_INLINE ? slot.body : result->body;
    }
    if (ret == 0)
        ret = apply_here(ep, &call);
    if (ret == 0)
        op_finished(peer, header->key, len, fetch, header->op);
    else if (lane)
        lane->machine->abort(lane, &slot);
    if (ret == 0 && lane)
        lane->machine->commit(lane, &slot, UM_WIRE_RESULT, 0, len);
    else
        rec->rx->machine->answer(rec->rx, header->token, ret);
    return 0;
}

static bool is_sound(const struct um_proto_atomic_wire *header, bool fetch)
{
    enum um_proto_atomic_kind kind = um_proto_atomic_compares(header->op) ? UM_ATOMIC_COMPARE
                                     : fetch                              ? UM_ATOMIC_FETCH
                                                                          : UM_ATOMIC_BASE;
    return um_proto_atomic_is_valid(kind, header->type, header->op) && (fetch || kind == UM_ATOMIC_BASE) &&
           header->count > 0 && header->count <= um_proto_atomic_count_max(header->type);
}

int um_proto_atomic_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec)
{
    struct um_proto_atomic_wire header;
    bool fetch = rec->flags & UM_WIRE_FETCH;
    memcpy(&header, rec->header, offsetof(struct um_proto_atomic_wire, body));
    if (header.token >= UM_TOKENS || (!rec->body && rec->len > UM_ATOMIC_INLINE) || inbound_find(peer, header.token))
        return -EPROTO;
    const unsigned char *body = rec->body ? rec->body : ((const struct um_proto_atomic_wire *)rec->header)->body;
    uint32_t n = 0;
    if (is_sound(&header, fetch))
        n = part_elements(header.op, (uint32_t)um_proto_atomic_size(header.type), header.count, rec->len);
    if (n == 0) {
        rec->rx->machine->answer(rec->rx, header.token, -EINVAL);
        return 0;
    }
    if (n == header.count && single_apply(ep, peer, rec, &header, body) == 0)
        return 0;
    struct um_proto_atomic_inbound *in;
    int ret = inbound_open(ep, peer, &header, fetch, &in);
    if (ret == 0)
        inbound_apply(ep, in, body, n);
    return ret;
}

int um_proto_atomic_more_arrived(struct um_core_ep *ep, struct um_core_peer *peer, const struct um_record *rec)
{
    const struct um_proto_part_wire *header = rec->header;
    struct um_proto_atomic_inbound *in = inbound_find(peer, header->token);
    if (!in || in->done == in->count || !rec->body || header->offset != (uint64_t)in->done * in->size)
        return -EPROTO;
    uint32_t n = part_elements(in->op, in->size, in->count - in->done, rec->len);
    if (n == 0)
        return -EPROTO;
    inbound_apply(ep, in, rec->body, n);
    return 0;
}
