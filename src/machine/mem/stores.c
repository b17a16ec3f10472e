/* See stores.h. */
#include "machine/mem/stores.h"

#include <errno.h>
#include <string.h>

enum {
    UM_STORES_COST_MAX = 1 << 24,    /* ticks; a longer time counts as this */
    UM_STORES_FRESH = 4,             /* rounds of a new ring before the first comparison */
    UM_STORES_WARM = 2,              /* a trial of non-temporal stores is timed from this body on, counted from 1 */
    UM_STORES_BACK = 2,              /* rounds of a trial of ordinary stores before it is timed */
    UM_STORES_SETTLE = 16,           /* rounds of the front before it is timed: by then the caches keep its lines */
    UM_STORES_PROOF = 2,             /* comparisons in a row that make a sender leave ordinary stores */
    UM_STORES_PART = 16,             /* a trial of a wide ring is timed after so much of what lies between two trials */
    UM_STORES_SKIP_MAX = 64,         /* a comparison is given up when more bodies than that are skipped */
    UM_STORES_BYTES_MAX = 128 << 20, /* bytes of bodies from one comparison to the next, at most */
};

/* Bytes of bodies between two comparisons with the front: the first, and the most. The first one of a ring comes at
 * once, because a cache may take some hundred MiB to hold a new ring. */
#define UM_STORES_FRONT_FIRST (UINT64_C(64) << 20)
#define UM_STORES_FRONT_LAST  (UINT64_C(4) << 30)

/* Rounds of the ring from one comparison to the next while that kind is in use. A trial of ordinary stores costs
 * UM_STORES_BACK rounds with what may be the slower kind. */
static const struct {
    uint32_t first, last;
} rounds_of[] = {[UM_STORES_CACHED] = {1, 128}, [UM_STORES_NONTEMPORAL] = {64, 512}, [UM_STORES_FRONT] = {64, 1024}};

static enum { CHOSEN_AUTO, CHOSEN_CACHED, CHOSEN_NONTEMPORAL } chosen;

static const char *const words[] = {
    [CHOSEN_AUTO] = "auto",
    [CHOSEN_CACHED] = "cached",
    [CHOSEN_NONTEMPORAL] = "nontemporal",
};

int um_mem_set_stores(const char *value)
{
    for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (!value || !strcmp(value, words[i])) {
            chosen = i;
            return 0;
        }
    }
    return -EINVAL;
}

bool um_mem_stores_are_nontemporal(void)
{
    return chosen == CHOSEN_NONTEMPORAL;
}

void um_mem_stores_cost_add(struct um_mem_stores_cost *cost, uint64_t ticks, uint32_t len)
{
    const uint64_t sample = ticks * UM_STORES_UNIT / len;
    cost->last[cost->count % UM_STORES_SAMPLES] = (uint32_t)(sample < 1                    ? 1
                                                             : sample < UM_STORES_COST_MAX ? sample
                                                                                           : UM_STORES_COST_MAX);
    cost->count++;
    if (cost->count == 2 * UM_STORES_SAMPLES)
        cost->count = UM_STORES_SAMPLES;
}

uint32_t um_mem_stores_cost_usual(const struct um_mem_stores_cost *cost)
{
    uint32_t best = UINT32_MAX, second = UINT32_MAX;
    if (cost->count < UM_STORES_SAMPLES)
        return 0;
    for (int i = 0; i < UM_STORES_SAMPLES; i++) {
        const uint32_t one = cost->last[i];
        second = one < best ? best : one < second ? one : second;
        best = one < best ? one : best;
    }
    return second;
}

/* ---- the sender ---- */

/* The kind that the one in use is compared with. */
static enum um_mem_stores_kind other_of(const struct um_mem_stores *stores)
{
    if (stores->in_use != UM_STORES_CACHED)
        return UM_STORES_CACHED;
    return stores->tries_front ? UM_STORES_FRONT : UM_STORES_NONTEMPORAL;
}

/* The fixed part of a body's cost weighs less in longer bodies, so only bodies of one size are compared. */
static uint8_t class_of(uint32_t len)
{
    return (uint8_t)(31 - __builtin_clz(len));
}

/*
 * The next comparison comes some rounds of the ring later. By then all lines of the last trial have been written again:
 * lines written by non-temporal stores are in memory, and the next ordinary store to each fetches it from there.
 */
static void use_go_on(struct um_mem_stores *stores)
{
    const uint64_t bytes = (uint64_t)stores->rounds * stores->ring_bytes;
    const uint64_t most = stores->in_use == UM_STORES_FRONT ? UM_STORES_FRONT_LAST : UM_STORES_BYTES_MAX;
    stores->phase = UM_STORES_USE;
    stores->bytes_left = bytes < most ? bytes : most;
    stores->front_left -= stores->front_left < stores->bytes_left ? stores->front_left : stores->bytes_left;
}

static void use_begin(struct um_mem_stores *stores, enum um_mem_stores_kind kind)
{
    stores->in_use = (uint8_t)kind;
    stores->rounds = rounds_of[kind].first;
    use_go_on(stores);
}

/* The kind in use changes. */
static void use_other(struct um_mem_stores *stores, enum um_mem_stores_kind kind)
{
    stores->wins = 0;
    stores->tries_front = false;
    stores->front_left = UM_STORES_FRONT_FIRST;
    use_begin(stores, kind);
}

/* The next comparison comes within a round of the ring. */
static void compare_soon(struct um_mem_stores *stores)
{
    if (stores->bytes_left > stores->ring_bytes)
        stores->bytes_left = stores->ring_bytes;
}

/* A comparison changed nothing, or there was none: the next one comes later. */
static void use_go_on_longer(struct um_mem_stores *stores)
{
    const uint32_t last = rounds_of[stores->in_use].last;
    stores->rounds = 2 * stores->rounds < last ? 2 * stores->rounds : last;
    use_go_on(stores);
}

/* The first body in a ring: another one may do better with the other kind. The first round touches the ring's memory
 * for the first time, and a shared cache may take some more to keep its lines: until then times say nothing. */
static void ring_begin(struct um_mem_stores *stores, uint32_t ring_bytes)
{
    stores->ring_bytes = ring_bytes;
    stores->usual_then = 0;
    stores->compared = 0;
    stores->front_every = 0;
    use_other(stores, UM_STORES_CACHED);
    stores->front_left = 0;
    stores->bytes_left = UM_STORES_FRESH * (uint64_t)ring_bytes;
}

static void base_begin(struct um_mem_stores *stores, uint32_t len)
{
    stores->phase = UM_STORES_BASE;
    stores->size_class = class_of(len);
    stores->compared |= UINT32_C(1) << stores->size_class;
    stores->skipped = 0;
    memset(stores->cost, 0, sizeof(stores->cost));
}

/* A trial of ordinary stores needs some rounds first: after non-temporal stores all lines of the ring are in memory. */
static void trial_begin(struct um_mem_stores *stores, uint32_t len)
{
    const enum um_mem_stores_kind other = other_of(stores);
    stores->phase = UM_STORES_TRIAL;
    stores->bytes_left = other == UM_STORES_NONTEMPORAL ? UM_STORES_WARM * (uint64_t)len
                         : other == UM_STORES_FRONT     ? UM_STORES_SETTLE * (uint64_t)stores->front_bytes
                         : stores->in_use == UM_STORES_FRONT
                             ? stores->rounds / UM_STORES_PART * (uint64_t)stores->ring_bytes
                             : UM_STORES_BACK * (uint64_t)stores->ring_bytes;
}

static bool count_down(uint64_t *bytes_left, uint32_t len)
{
    *bytes_left = *bytes_left > len ? *bytes_left - len : 0;
    return *bytes_left == 0;
}

/* Shall ordinary stores be compared with the front next? That comparison costs more than the other one. So it
 * becomes rarer while it changes nothing. */
static bool front_is_next(struct um_mem_stores *stores)
{
    if (stores->in_use != UM_STORES_CACHED || !stores->front_bytes)
        return false;
    if (!stores->tries_front)
        return stores->front_left == 0;
    const uint64_t longer = stores->front_every ? 2 * stores->front_every : UM_STORES_FRONT_FIRST;
    stores->front_left = stores->front_every = longer < UM_STORES_FRONT_LAST ? longer : UM_STORES_FRONT_LAST;
    return false;
}

/* The other kind has lost. Ordinary stores are compared with two others, one soon after the other. */
static void other_lost(struct um_mem_stores *stores)
{
    stores->tries_front = front_is_next(stores);
    if (!stores->tries_front) {
        use_go_on_longer(stores);
        return;
    }
    use_go_on(stores);
    compare_soon(stores);
}

void um_mem_stores_give_up(struct um_mem_stores *stores)
{
    if (stores->phase == UM_STORES_USE)
        return;
    stores->wins = 0;
    other_lost(stores);
}

static void skip(struct um_mem_stores *stores)
{
    if (++stores->skipped > UM_STORES_SKIP_MAX)
        um_mem_stores_give_up(stores);
}

/* Called for a body of another class than was compared last. The first time for each class, the next comparison comes
 * within a round of the ring, with whichever body is due then: the other kind may be much better. Not before the first
 * comparison in a ring: its first rounds say nothing. */
static void class_meet(struct um_mem_stores *stores, uint32_t len)
{
    const uint32_t class = UINT32_C(1) << class_of(len);
    if (stores->phase != UM_STORES_USE || stores->compared == 0 || stores->compared & class)
        return;
    stores->compared |= class;
    compare_soon(stores);
}

enum um_mem_stores_kind um_mem_stores_begin(struct um_mem_stores *stores, uint32_t len, uint32_t ring_bytes)
{
    enum um_mem_stores_kind kind = stores->in_use;
    stores->is_timed = false;
    if (chosen != CHOSEN_AUTO)
        return chosen == CHOSEN_NONTEMPORAL ? UM_STORES_NONTEMPORAL : UM_STORES_CACHED;
    if (ring_bytes != stores->ring_bytes)
        ring_begin(stores, ring_bytes);
    if (stores->phase == UM_STORES_USE && count_down(&stores->bytes_left, len))
        base_begin(stores, len);
    if (stores->phase == UM_STORES_BASE || stores->phase == UM_STORES_TRIAL) {
        const bool is_trial = stores->phase == UM_STORES_TRIAL;
        const bool is_warm = !is_trial || count_down(&stores->bytes_left, len);
        kind = is_trial ? other_of(stores) : kind;
        stores->is_timed = is_warm && class_of(len) == stores->size_class;
        if (is_warm && !stores->is_timed)
            skip(stores);
    } else {
        stores->untimed += stores->untimed < UM_STORES_EVERY;
        const bool is_turn = stores->untimed == UM_STORES_EVERY;
        stores->is_timed = is_turn && class_of(len) == stores->size_class;
        if (is_turn && !stores->is_timed)
            class_meet(stores, len);
    }
    if (stores->is_timed)
        stores->untimed = 0;
    return kind;
}

void um_mem_stores_pass(struct um_mem_stores *stores, uint32_t len)
{
    stores->is_timed = false;
    if (stores->phase == UM_STORES_USE)
        count_down(&stores->bytes_left, len);
    stores->untimed += stores->untimed < UM_STORES_EVERY;
}

void um_mem_stores_miss(struct um_mem_stores *stores)
{
    stores->is_timed = false;
    if (stores->phase == UM_STORES_USE)
        stores->untimed = UM_STORES_EVERY - 1; /* the next one is */
    else
        skip(stores);
}

bool um_mem_stores_next_is_timed(const struct um_mem_stores *stores, uint32_t len)
{
    const bool is_turn = stores->untimed + 1 >= UM_STORES_EVERY && class_of(len) == stores->size_class;
    return chosen == CHOSEN_AUTO && (stores->phase != UM_STORES_USE || stores->bytes_left <= len || is_turn);
}

/* The next comparison comes soon if the kind in use takes twice as long as at the last one: a thread may have moved. */
static void watch_use(struct um_mem_stores *stores)
{
    const uint32_t usual = um_mem_stores_cost_usual(&stores->cost[stores->in_use]);
    const uint32_t first = rounds_of[stores->in_use].first, sooner = stores->rounds / 8;
    if (stores->usual_then == 0)
        return;
    if (usual > stores->usual_then + stores->usual_then / 2 && stores->front_every)
        stores->front_left = 0; /* the caches may no longer hold the ring */
    if (usual <= 2 * stores->usual_then)
        return;
    stores->usual_then = usual;
    stores->rounds = sooner > first ? sooner : first;
    use_go_on(stores);
}

void um_mem_stores_compare(struct um_mem_stores *stores, uint64_t loads)
{
    const enum um_mem_stores_kind in_use = stores->in_use, other = other_of(stores);
    const uint32_t written = um_mem_stores_cost_usual(&stores->cost[in_use]);
    const uint32_t written_other = um_mem_stores_cost_usual(&stores->cost[other]);
    const uint32_t plain = (uint32_t)loads, not_plain = (uint32_t)(loads >> 32);
    const bool is_known = written && written_other && plain && not_plain;
    const uint64_t usual = (uint64_t)written + (in_use == UM_STORES_CACHED ? plain : not_plain);
    const uint64_t others = (uint64_t)written_other + (in_use == UM_STORES_CACHED ? not_plain : plain);
    /* The front has to be much better: its sender and its receiver wait for each other more often, which these times
     * do not tell. */
    const uint64_t least = in_use == UM_STORES_FRONT  ? usual + usual / 4
                           : other == UM_STORES_FRONT ? usual - usual / 4
                                                      : usual - usual / 5;
    stores->wins = is_known && others < least ? stores->wins + 1 : 0;
    if (stores->wins == 0) {
        other_lost(stores);
    } else if (in_use != UM_STORES_NONTEMPORAL && stores->wins < UM_STORES_PROOF) {
        use_begin(stores, in_use);
    } else {
        use_other(stores, other);
    }
    stores->usual_then = stores->in_use == in_use ? written : written_other;
}

void um_mem_stores_end(struct um_mem_stores *stores, enum um_mem_stores_kind kind, uint64_t ticks, uint32_t len,
                       uint32_t consumed)
{
    const bool is_trial = stores->phase == UM_STORES_TRIAL, is_base = stores->phase == UM_STORES_BASE;
    if ((is_base && kind != stores->in_use) || (is_trial && kind == stores->in_use)) {
        skip(stores); /* it was written otherwise */
        return;
    }
    um_mem_stores_cost_add(&stores->cost[kind], ticks, len);
    if (stores->phase == UM_STORES_USE)
        watch_use(stores);
    if (!um_mem_stores_cost_usual(&stores->cost[kind]))
        return;
    if (is_base) {
        trial_begin(stores, len);
    } else if (is_trial) {
        stores->phase = UM_STORES_AWAIT;
        stores->awaited = consumed;
    }
}

/* ---- the receiver ---- */

uint64_t um_mem_loads_add(struct um_mem_loads *loads, bool is_other, uint64_t ticks, uint32_t len)
{
    um_mem_stores_cost_add(&loads->cost[is_other], ticks, len);
    return (uint64_t)um_mem_stores_cost_usual(&loads->cost[true]) << 32 | um_mem_stores_cost_usual(&loads->cost[false]);
}
