/* See stores.h. */
#include "machine/mem/stores.h"

#include <errno.h>
#include <string.h>

enum {
    UM_STORES_COST_MAX = 1 << 24, /* ns: more is no measurement */
    UM_STORES_WARM = 2,           /* bodies of a trial of non-temporal stores before the first one that is timed */
};

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

void um_mem_stores_cost_add(struct um_mem_stores_cost *cost, uint64_t ns, uint32_t len)
{
    const uint64_t sample = ns * UM_NONTEMPORAL_MIN / len;
    cost->last[cost->told % UM_STORES_TRIES] = (uint32_t)(sample < 1                    ? 1
                                                          : sample < UM_STORES_COST_MAX ? sample
                                                                                        : UM_STORES_COST_MAX);
    cost->told++;
    if (cost->told == 2 * UM_STORES_TRIES)
        cost->told = UM_STORES_TRIES;
}

uint32_t um_mem_stores_cost_usual(const struct um_mem_stores_cost *cost)
{
    uint32_t best = UINT32_MAX, second = UINT32_MAX;
    if (cost->told < UM_STORES_TRIES)
        return 0;
    for (int i = 0; i < UM_STORES_TRIES; i++) {
        const uint32_t one = cost->last[i];
        second = one < best ? best : one < second ? one : second;
        best = one < best ? one : best;
    }
    return second;
}

/* ---- the sender ---- */

static enum um_mem_stores_kind other_than(unsigned kind)
{
    return kind == UM_STORES_CACHED ? UM_STORES_NONTEMPORAL : UM_STORES_CACHED;
}

/*
 * The bytes until the next trial. One of ordinary stores takes a round of the ring before it says anything: lines that
 * were written with non-temporal stores are in memory, and the first ordinary store to each fetches it from there.
 */
static uint64_t until_trial(const struct um_mem_stores *stores, uint32_t len, uint32_t ring_bytes)
{
    return (uint64_t)stores->interval * (stores->in_use == UM_STORES_CACHED ? len : ring_bytes);
}

static void trial_begin(struct um_mem_stores *stores, uint32_t len, uint32_t ring_bytes)
{
    stores->phase = UM_STORES_TRIAL;
    stores->cost[other_than(stores->in_use)] = (struct um_mem_stores_cost){0};
    stores->bytes_left = stores->in_use == UM_STORES_CACHED ? UM_STORES_WARM * (uint64_t)len : ring_bytes;
}

static void use_begin(struct um_mem_stores *stores, unsigned kind)
{
    stores->phase = UM_STORES_USE;
    stores->in_use = (uint8_t)kind;
    stores->interval = kind == UM_STORES_CACHED ? UM_STORES_SOON : UM_STORES_ROUNDS;
    stores->bytes_left = 0;
    stores->untimed = 0;
}

/* The first body of a ring: the first round touches its memory for the first time, and says nothing. */
static void ring_begin(struct um_mem_stores *stores, uint32_t ring_bytes)
{
    use_begin(stores, stores->in_use);
    stores->ring_bytes = ring_bytes;
    stores->bytes_left = 2 * (uint64_t)ring_bytes;
    stores->was = 0;
}

static bool count_down(uint64_t *bytes_left, uint32_t len)
{
    *bytes_left = *bytes_left > len ? *bytes_left - len : 0;
    return *bytes_left == 0;
}

enum um_mem_stores_kind um_mem_stores_begin(struct um_mem_stores *stores, uint32_t len, uint32_t ring_bytes)
{
    stores->is_timed = false;
    if (chosen != CHOSEN_AUTO)
        return chosen == CHOSEN_NONTEMPORAL ? UM_STORES_NONTEMPORAL : UM_STORES_CACHED;
    if (ring_bytes != stores->ring_bytes)
        ring_begin(stores, ring_bytes);
    if (stores->phase == UM_STORES_USE) {
        if (stores->bytes_left == 0)
            stores->bytes_left = until_trial(stores, len, ring_bytes);
        if (count_down(&stores->bytes_left, len))
            trial_begin(stores, len, ring_bytes);
    }
    if (stores->phase == UM_STORES_TRIAL) {
        stores->is_timed = count_down(&stores->bytes_left, len);
        return other_than(stores->in_use);
    }
    const bool is_before_trial =
        stores->phase == UM_STORES_USE && stores->bytes_left <= UM_STORES_TRIES * (uint64_t)len;
    stores->is_timed = ++stores->untimed >= UM_STORES_EVERY || is_before_trial;
    if (stores->is_timed)
        stores->untimed = 0;
    return stores->in_use;
}

/* The kind in use takes twice as long, perhaps because a thread has moved: a trial soon. */
static void watch_use(struct um_mem_stores *stores)
{
    const uint32_t usual = um_mem_stores_cost_usual(&stores->cost[stores->in_use]);
    if (stores->was == 0 || usual <= 2 * stores->was)
        return;
    use_begin(stores, stores->in_use);
    stores->was = usual;
}

/* What a body costs both ends; 0: one of them does not know. */
static uint64_t cost_of(const struct um_mem_stores *stores, unsigned kind, uint64_t loads)
{
    const uint64_t theirs = kind == UM_STORES_CACHED ? (uint32_t)loads : loads >> 32;
    const uint64_t own = um_mem_stores_cost_usual(&stores->cost[kind]);
    return theirs && own ? own + theirs : 0;
}

void um_mem_stores_compare(struct um_mem_stores *stores, uint64_t loads)
{
    const enum um_mem_stores_kind other = other_than(stores->in_use);
    const uint64_t here = cost_of(stores, stores->in_use, loads), there = cost_of(stores, other, loads);
    stores->phase = UM_STORES_USE;
    stores->bytes_left = 0;
    if (here && there && there < here - here / 5) {
        use_begin(stores, other);
    } else {
        const uint32_t most = stores->in_use == UM_STORES_CACHED ? UM_STORES_LATE : UM_STORES_ROUNDS_LATE;
        stores->interval = 2 * stores->interval < most ? 2 * stores->interval : most;
    }
    stores->was = um_mem_stores_cost_usual(&stores->cost[stores->in_use]);
}

void um_mem_stores_end(struct um_mem_stores *stores, enum um_mem_stores_kind kind, uint64_t ns, uint32_t len,
                       uint32_t next)
{
    if (!stores->is_timed)
        return;
    um_mem_stores_cost_add(&stores->cost[kind], ns, len);
    if (stores->phase == UM_STORES_USE) {
        watch_use(stores);
    } else if (stores->phase == UM_STORES_TRIAL && kind == stores->in_use) {
        um_mem_stores_compare(stores, 0); /* it was written otherwise: there is no trial */
    } else if (stores->phase == UM_STORES_TRIAL && um_mem_stores_cost_usual(&stores->cost[kind])) {
        stores->phase = UM_STORES_AWAIT;
        stores->awaited = next;
    }
}

/* ---- the receiver ---- */

uint64_t um_mem_loads_add(struct um_mem_loads *loads, enum um_mem_stores_kind kind, uint64_t ns, uint32_t len)
{
    um_mem_stores_cost_add(&loads->cost[kind], ns, len);
    return (uint64_t)um_mem_stores_cost_usual(&loads->cost[UM_STORES_NONTEMPORAL]) << 32 |
           um_mem_stores_cost_usual(&loads->cost[UM_STORES_CACHED]);
}
