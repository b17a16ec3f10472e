/* actor.h. */
#include "actor.h"

#include <stdio.h>

enum { TAG_MASK = 0xffff };

#define DEMAND(condition, ...)                                                                                         \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fprintf(stderr, " (%s, line %d)\n", #condition, __LINE__);                                                 \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

static uint32_t mix(uint32_t from, uint32_t to, uint32_t number, uint32_t salt)
{
    uint64_t h = ((uint64_t)from << 48) ^ ((uint64_t)to << 40) ^ ((uint64_t)salt << 32) ^ number;
    h = (h + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    h = (h ^ h >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(h >> 32);
}

static size_t message_len(uint32_t from, uint32_t to, uint32_t number)
{
    uint32_t h = mix(from, to, number, 1);
    uint32_t most = h % 100 < 50 ? 64 : h % 100 < 80 ? 2000 : h % 100 < 95 ? 20000 : 300000;
    return (h >> 8) % (most + 1);
}

static size_t stream_len(uint32_t from, uint32_t to, uint32_t number)
{
    uint32_t h = mix(from, to, number, 2);
    return 8 + (h >> 8) % (h % 10 == 0 ? 20000 : 500);
}

static void slot_fill(struct slot *s, size_t len, uint32_t peer, uint32_t number)
{
    s->busy = true;
    s->len = len;
    s->peer = peer;
    s->number = number;
    s->buf = malloc(len + 1);
    if (!s->buf)
        abort();
}

static void slot_empty(struct slot *s)
{
    free(s->buf);
    s->buf = NULL;
    s->busy = false;
}

static void multi_arrived(struct actor *a, const struct um_core_completion *c)
{
    size_t which = (uintptr_t)c->context - 1;
    if (a->closing && c->error == ECANCELED)
        return; /* the last buffers are still posted */
    DEMAND(c->error == 0, "multi-receive: error %d", c->error);
    if (c->buf) {
        uint32_t head[2];
        memcpy(head, c->buf, sizeof(head));
        DEMAND(head[0] < a->actors && c->source == a->peer[head[0]], "message of a stream from nowhere");
        /* a body that is fetched may complete after a later message that came whole */
        DEMAND(head[1] < a->goal && !a->stream_seen[head[0]][head[1]], "message %u of a stream again", head[1]);
        a->stream_seen[head[0]][head[1]] = true;
        DEMAND(c->len == stream_len(head[0], a->self, head[1]), "length %zu in a stream", c->len);
        DEMAND(is_filled((char *)c->buf + 8, c->len - 8, head[1]), "wrong bytes in a stream");
        a->stream_got[head[0]]++;
    }
    if (c->flags & UM_OP_MULTI_END)
        a->multi_given[which] = false;
}

static void tagged_arrived(struct actor *a, struct slot *s, const struct um_core_completion *c)
{
    size_t len = message_len(s->peer, a->self, s->number);
    DEMAND(c->source == a->peer[s->peer], "wrong source");
    DEMAND((c->tag >> 16) == s->number, "message %u where %u was due", (uint32_t)(c->tag >> 16), s->number);
    DEMAND(c->len == (len < s->len ? len : s->len), "length %zu", c->len);
    DEMAND(c->error == (len > s->len ? EMSGSIZE : 0), "error %d", c->error);
    DEMAND(is_filled(s->buf, c->len, s->number), "wrong bytes");
    DEMAND(!(c->flags & UM_OP_DATA) || c->data == s->number, "wrong data");
    a->got[s->peer]++;
    slot_empty(s);
}

static void rma_ended(struct actor *a, struct slot *s, const struct um_core_completion *c)
{
    DEMAND(c->error == 0, "RMA: error %d", c->error);
    if (a->rma_reads) {
        DEMAND(is_filled(s->buf, s->len, s->number), "RMA read back something else");
        a->rma_done++;
        slot_empty(s);
    } else {
        memset(s->buf, 0, s->len);
    }
    a->rma_reads = !a->rma_reads;
    s->actor = a; /* marks it as ended: the next step goes on */
}

static void on_complete(void *arg, const struct um_core_completion *c)
{
    struct actor *a = arg;
    if (c->flags & UM_OP_ATOMIC) {
        DEMAND(c->error == 0, "atomic: error %d", c->error);
        a->atomic_pending = false;
        a->atomics_done++;
    } else if (c->flags & UM_OP_MULTI)
        multi_arrived(a, c);
    else if (c->context == &a->rma)
        rma_ended(a, &a->rma, c);
    else if (c->flags & UM_OP_RECV)
        tagged_arrived(a, c->context, c);
    else if (c->context) {
        DEMAND(c->error == 0, "send: error %d", c->error);
        slot_empty(c->context);
    }
}

void actor_open(struct actor *a, uint32_t self, uint32_t actors, uint32_t goal, uint32_t seed)
{
    *a = (struct actor){.self = self, .actors = actors, .goal = goal, .random = seed * 7919u + self + 1};
    const struct um_space_config space = {.adopt = variant.adopt};
    const struct um_machines machines = variant_machines();
    DEMAND(um_core_regions_open(&machines, &space, &a->node.regions) == 0, "no regions");
    a->window = aligned_alloc(64, ((size_t)actors * WINDOW + 64 + 63) / 64 * 64);
    struct um_core_ep_config config = {
        .machines = machines,
        .port = {.private_copy = variant.private_copy,
                 .partition = variant.second ? (uint16_t)(self % 2) : 0,
                 .memory_max = variant.memory_max,
                 .lanes_max = ACTORS_MAX},
        .regions = a->node.regions,
        .complete = on_complete,
        .arg = a,
        .multi_min = 256,
        .bodies = variant.bodies,
    };
    DEMAND(a->window && um_proto_ep_open(&config, &a->node.ep) == 0, "no endpoint");
    memset(a->window, 0, (size_t)actors * WINDOW + 64);
    um_core_ep_addr(a->node.ep, &a->node.addr);
    a->region = (struct um_core_region){.key = 1,
                                        .base = (uintptr_t)a->window,
                                        .len = (uint64_t)actors * WINDOW + 64,
                                        .access = UM_ACCESS_REMOTE_READ | UM_ACCESS_REMOTE_WRITE};
    um_core_regions_add(a->node.regions, &a->region);
    a->rma.actor = a;
    for (int i = 0; i < 2; i++)
        a->multi[i] = malloc(MULTI_SIZE);
    for (uint32_t i = 0; i < actors; i++)
        a->stream_seen[i] = calloc(goal, sizeof(bool));
}

void actor_connect(struct actor *a, struct actor *all)
{
    for (uint32_t i = 0; i < a->actors; i++)
        DEMAND(um_core_peer_get(a->node.ep, &all[i].node.addr, &a->peer[i]) == 0, "no peer");
}

static struct slot *slot_free(struct slot *slots)
{
    for (int i = 0; i < SLOTS; i++) {
        if (!slots[i].busy)
            return &slots[i];
    }
    return NULL;
}

static void step_send(struct actor *a)
{
    uint32_t to = rnd(&a->random, a->actors), number = a->sent[to];
    struct slot *s = slot_free(a->out);
    if (!s || number == a->goal)
        return;
    uint32_t how = mix(a->self, to, number, 3);
    slot_fill(s, message_len(a->self, to, number), to, number);
    fill(s->buf, s->len, number);
    uint64_t tag = (uint64_t)number << 16 | 5;
    uint32_t flags = UM_OP_TAGGED | (how & 1 ? UM_OP_DATA : 0);
    int ret;
    if ((how & 2) && s->len <= 16384) {
        ret = um_proto_inject(a->node.ep, a->peer[to], s->buf, s->len, tag, number, flags);
        memset(s->buf, 0xdd, s->len);
        slot_empty(s);
    } else {
        struct iovec iov[5];
        size_t count = 1 + (how >> 4) % 5;
        cut(s->buf, s->len, iov, count, &a->random);
        struct um_proto_msg msg = {.iov = iov,
                                   .count = count,
                                   .peer = a->peer[to],
                                   .tag = tag,
                                   .data = number,
                                   .context = s,
                                   .flags = flags | (how & 4 ? UM_OP_DELIVERY : 0)};
        ret = um_proto_send(a->node.ep, &msg);
        if (ret)
            slot_empty(s);
    }
    DEMAND(ret == 0 || ret == 1 || ret == -EAGAIN, "send: %d", ret);
    a->sent[to] += ret >= 0;
}

static void step_post(struct actor *a)
{
    uint32_t from = rnd(&a->random, a->actors);
    struct slot *s = slot_free(a->in);
    if (!s || a->posted[from] == a->goal || a->posted[from] - a->got[from] >= SLOTS / ACTORS_MAX)
        return;
    uint32_t number = a->posted[from]++;
    size_t len = message_len(from, a->self, number);
    slot_fill(s, rnd(&a->random, 20) == 0 ? len / 2 : len + rnd(&a->random, 9), from, number);
    struct iovec iov[3];
    size_t count = 1 + rnd(&a->random, 3);
    cut(s->buf, s->len, iov, count, &a->random);
    bool exact = rnd(&a->random, 2);
    struct um_proto_msg msg = {.iov = iov,
                               .count = count,
                               .peer = a->peer[from],
                               .context = s,
                               .flags = UM_OP_TAGGED,
                               .tag = exact ? (uint64_t)number << 16 | 5 : 5,
                               .ignore = exact ? 0 : ~(uint64_t)TAG_MASK};
    DEMAND(um_proto_recv(a->node.ep, &msg) == 0, "receive");
}

static void step_stream(struct actor *a)
{
    uint32_t to = rnd(&a->random, a->actors), number = a->stream_sent[to];
    struct slot *s = slot_free(a->out);
    if (!s || number == a->goal)
        return;
    slot_fill(s, stream_len(a->self, to, number), to, number);
    memcpy(s->buf, &a->self, 4);
    memcpy(s->buf + 4, &number, 4);
    fill(s->buf + 8, s->len - 8, number);
    struct iovec iov = {.iov_base = s->buf, .iov_len = s->len};
    struct um_proto_msg msg = {.iov = &iov, .count = 1, .peer = a->peer[to], .context = s};
    int ret = um_proto_send(a->node.ep, &msg);
    DEMAND(ret == 0 || ret == -EAGAIN, "send: %d", ret);
    if (ret)
        slot_empty(s);
    a->stream_sent[to] += ret == 0;
}

static void step_multi(struct actor *a)
{
    for (uintptr_t i = 0; i < 2; i++) {
        if (a->multi_given[i])
            continue;
        struct iovec iov = {.iov_base = a->multi[i], .iov_len = MULTI_SIZE};
        struct um_proto_msg msg = {.iov = &iov, .count = 1, .context = (void *)(i + 1), .flags = UM_OP_MULTI};
        a->multi_given[i] = true;
        DEMAND(um_proto_recv(a->node.ep, &msg) == 0, "multi-receive");
    }
}

/* Writes something into its part of an actor's window, then reads it back. */
static void step_rma(struct actor *a)
{
    struct slot *s = &a->rma;
    if (!s->actor || (!s->busy && a->rma_done == a->goal))
        return;
    if (!s->busy) {
        uint32_t to = rnd(&a->random, a->actors);
        slot_fill(s, message_len(a->self, to, a->rma_done) % (WINDOW / 2), to, a->rma_done);
        fill(s->buf, s->len, s->number);
    }
    struct iovec iov[4];
    size_t count = 1 + rnd(&a->random, 4);
    cut(s->buf, s->len, iov, count, &a->random);
    struct um_proto_rma op = {.iov = iov,
                              .count = count,
                              .peer = a->peer[s->peer],
                              .key = 1,
                              .context = s,
                              .addr = (uint64_t)a->self * WINDOW + s->number % (WINDOW / 2),
                              .flags = a->rma_reads ? UM_OP_READ : UM_OP_WRITE};
    s->actor = NULL;
    int ret = start_rma(&a->node, &op);
    DEMAND(ret == 0 || ret == -EAGAIN, "RMA: %d", ret);
    if (ret)
        s->actor = a;
}

/* One that the processor updates itself, one that needs a lock because of its width, one because of its address. */
static const struct {
    uint8_t type;
    uint32_t at;
} tallies[TALLIES] = {{UM_TYPE_UINT64, 0}, {UM_TYPE_INT128, 16}, {UM_TYPE_UINT32, 35}};

/* Adds one to a tally of some actor. */
static void step_atomic(struct actor *a)
{
    static const uint64_t one[2] = {1, 0};
    if (a->atomic_pending || a->atomics_done == a->goal)
        return;
    uint32_t n = a->atomics_done % TALLIES;
    const struct um_proto_atomic op = {.operand = one,
                                       .result = a->atomic_old,
                                       .peer = a->peer[rnd(&a->random, a->actors)],
                                       .addr = (uint64_t)a->actors * WINDOW + tallies[n].at,
                                       .key = 1,
                                       .count = 1,
                                       .type = tallies[n].type,
                                       .op = UM_ATOMIC_SUM,
                                       .kind = a->atomics_done % 2 ? UM_ATOMIC_FETCH : UM_ATOMIC_BASE};
    a->atomic_pending = true;
    int ret = start_atomic(&a->node, &op);
    DEMAND(ret == 0 || ret == -EAGAIN, "atomic: %d", ret);
    if (ret)
        a->atomic_pending = false;
}

void actor_check_tallies(const struct actor *all, uint32_t actors)
{
    for (uint32_t n = 0; n < TALLIES; n++) {
        uint64_t sum = 0, wanted = 0;
        for (uint32_t i = 0; i < actors; i++) {
            uint64_t here = 0;
            size_t size = um_proto_atomic_size(tallies[n].type);
            memcpy(&here, all[i].window + (size_t)actors * WINDOW + tallies[n].at, size < 8 ? size : 8);
            sum += here;
            wanted += (all[i].goal + TALLIES - 1 - n) / TALLIES;
        }
        DEMAND(sum == wanted, "tally %u: %llu of %llu", n, (unsigned long long)sum, (unsigned long long)wanted);
    }
}

void actor_step(struct actor *a)
{
    step_multi(a);
    switch (rnd(&a->random, 9)) {
    case 0:
    case 1:
        step_send(a);
        break;
    case 2:
    case 3:
        step_post(a);
        break;
    case 4:
        step_stream(a);
        break;
    case 5:
        step_rma(a);
        break;
    case 6:
        step_atomic(a);
        break;
    default:
        um_core_ep_progress(a->node.ep);
    }
}

bool actor_is_done(const struct actor *a)
{
    for (uint32_t i = 0; i < a->actors; i++) {
        if (a->sent[i] < a->goal || a->got[i] < a->goal || a->stream_sent[i] < a->goal || a->stream_got[i] < a->goal)
            return false;
    }
    for (int i = 0; i < SLOTS; i++) {
        if (a->out[i].busy || a->in[i].busy)
            return false;
    }
    return a->rma_done == a->goal && a->atomics_done == a->goal;
}

void actor_close(struct actor *a)
{
    a->closing = true;
    um_proto_ep_close(a->node.ep);
    um_core_regions_remove(a->node.regions, &a->region);
    um_core_regions_close(a->node.regions);
    for (uint32_t i = 0; i < a->actors; i++)
        free(a->stream_seen[i]);
    free(a->window);
    free(a->multi[0]);
    free(a->multi[1]);
}
