/* emu/clock.h. The clocks are words in the board's memory, each with state and time, so that both change at once. */
#include "emu/clock.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)

enum { SPINS = 200, YIELDS = 64, PAUSE_NS = 20000 };

/* Its address, together with the process, identifies a thread of the host. */
static _Thread_local char this_thread;

void emu_clock_init(struct emu_clock *clock, struct emu_board_shm *shm, uint32_t context)
{
    *clock = (struct emu_clock){.params = &shm->params, .shm = shm, .slot = emu_slot(context)};
    clock->spins = sysconf(_SC_NPROCESSORS_ONLN) > 1 ? SPINS : 0;
    pthread_mutex_init(&clock->lock, NULL);
}

void emu_clock_fini(struct emu_clock *clock)
{
    pthread_mutex_destroy(&clock->lock);
}

static uint64_t host_ns(clockid_t clock)
{
    struct timespec ts;
    clock_gettime(clock, &ts);
    return (uint64_t)ts.tv_sec * SECOND + (uint64_t)ts.tv_nsec;
}

static uint64_t monotonic(void)
{
    return host_ns(CLOCK_MONOTONIC);
}

/* ---- words ---- */

static uint64_t load(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static bool change(uint64_t *word, uint64_t from, uint64_t to)
{
    return __atomic_compare_exchange_n(word, &from, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static uint64_t time_of(uint64_t word)
{
    return word & EMU_TIME_MASK;
}

static uint64_t state_of(uint64_t word)
{
    return word & ~EMU_TIME_MASK;
}

static struct emu_time_shm *own(const struct emu_clock *clock)
{
    return &clock->shm->times[clock->slot];
}

/* Returns the least time (ns) from the beginning of a send to the arrival of its message. */
static uint64_t lookahead(const struct emu_params *params)
{
    uint64_t ns = params->cpu_call_ns + params->mailbox_latency_ns;
    return ns ? ns : 1;
}

/* Returns how long a look for messages lasts: short enough that the contexts do not all wait for each other. */
static uint64_t look_ns(const struct emu_params *params)
{
    uint64_t most = lookahead(params) - 1;
    return params->cpu_poll_ns < most ? params->cpu_poll_ns : most;
}

/* ---- the others ---- */

/* True if nobody waits for the context: emu/clock.h. */
static bool is_absent(const struct emu_clock *clock, uint32_t slot, uint64_t word)
{
    const struct emu_time_shm *other = &clock->shm->times[slot], *self = own(clock);
    return slot == clock->slot || state_of(word) != EMU_TIME_PRESENT ||
           (other->process == self->process && load(&other->thread) == (uintptr_t)&this_thread);
}

static uint32_t slots_end(const struct emu_clock *clock)
{
    return __atomic_load_n(&clock->shm->contexts_end, __ATOMIC_SEQ_CST);
}

/* Finds the other context that is furthest behind in time; of equals, the one with the lowest slot. Under the lock. */
static void last_find(struct emu_clock *clock)
{
    clock->epoch = load(&clock->shm->epoch);
    clock->last = 0;
    clock->last_time = UINT64_MAX;
    for (uint32_t slot = 0, end = slots_end(clock); slot < end; slot++) {
        uint64_t word = load(&clock->shm->times[slot].word);
        if (is_absent(clock, slot, word) || time_of(word) >= clock->last_time)
            continue;
        clock->last = slot;
        clock->last_time = time_of(word);
    }
}

/* Makes all contexts look again which of the others is furthest behind. */
static void board_changes(struct emu_board_shm *shm)
{
    __atomic_fetch_add(&shm->epoch, 1, __ATOMIC_SEQ_CST);
}

/* Returns the latest time at which another context noticed others. */
static uint64_t latest_seen(const struct emu_clock *clock)
{
    uint64_t latest = 0;
    for (uint32_t slot = 0, end = slots_end(clock); slot < end; slot++) {
        uint64_t seen = load(&clock->shm->times[slot].seen);
        if (!is_absent(clock, slot, load(&clock->shm->times[slot].word)) && seen > latest)
            latest = seen;
    }
    return latest;
}

/* ---- this context ---- */

/* Advances the clock to a time, even if another context changes the word at the same time. Under the lock. */
static void move(const struct emu_clock *clock, uint64_t time)
{
    uint64_t word;
    do {
        word = load(&own(clock)->word);
        if (!state_of(word))
            return; /* the server has ended this context */
        if (time < time_of(word))
            time = time_of(word);
        if (time > EMU_TIME_MASK) /* limits a computation of centuries */
            time = EMU_TIME_MASK;
    } while (!change(&own(clock)->word, word, EMU_TIME_PRESENT | time));
}

/* Begins a call: the context takes part in time again. Returns its time. Under the lock. */
static uint64_t enter(const struct emu_clock *clock)
{
    struct emu_time_shm *self = own(clock);
    uint64_t word = load(&self->word);
    __atomic_store_n(&self->beat, self->beat + 1, __ATOMIC_RELAXED);
    if (load(&self->thread) != (uintptr_t)&this_thread) {
        __atomic_store_n(&self->thread, (uintptr_t)&this_thread, __ATOMIC_SEQ_CST);
        board_changes(clock->shm);
    }
    if (state_of(word) == EMU_TIME_PRESENT)
        return time_of(word);
    /* Contexts that look from now on wait for this one; those that looked before have stored their time in `seen`
     * (begin_in_order). */
    move(clock, 0);
    board_changes(clock->shm);
    move(clock, latest_seen(clock));
    return time_of(load(&self->word));
}

/* ---- waiting for the others, in the host's time ---- */

struct wait {
    uint32_t rounds;
    uint32_t slot; /* the context that is behind; the number of its calls, and since when that has not changed */
    uint64_t beat, since;
};

/* Gives up the context in the slot if it has made no call for long. */
static void lose_patience(const struct emu_clock *clock, struct wait *wait, uint32_t slot)
{
    struct emu_time_shm *other = &clock->shm->times[slot];
    /* Not CLOCK_MONOTONIC, which may be the virtual time in a program (bench/board/clock.c). */
    uint64_t word = load(&other->word), beat = load(&other->beat), now = host_ns(CLOCK_BOOTTIME);
    if (slot != wait->slot || beat != wait->beat || !wait->since) {
        *wait = (struct wait){wait->rounds, slot, beat, now};
        return;
    }
    if (now - wait->since < EMU_PATIENCE_MS * UINT64_C(1000000) || state_of(word) != EMU_TIME_PRESENT)
        return;
    if (change(&other->word, word, EMU_TIME_AWAY | time_of(word)))
        __atomic_fetch_add(&clock->shm->given_up, 1, __ATOMIC_SEQ_CST);
}

/* Lets the context that is behind run. Not under the lock. */
static void give_way(const struct emu_clock *clock, struct wait *wait, uint32_t slot)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    if (wait->rounds++ < clock->spins)
        return;
    if (wait->rounds < clock->spins + YIELDS) {
        sched_yield();
        return;
    }
    nanosleep(&pause, NULL);
    lose_patience(clock, wait, slot);
}

/* ---- calls ---- */

uint64_t emu_clock_begin(struct emu_clock *clock)
{
    if (clock->params->timing == EMU_TIMING_OFF)
        return 0;
    if (clock->params->timing == EMU_TIMING_REAL)
        return monotonic();
    pthread_mutex_lock(&clock->lock);
    return enter(clock);
}

/* True if the others are far enough for a look at this time, or (turn) for this context's turn. Under the lock. */
static bool in_order(const struct emu_clock *clock, uint64_t now, bool turn)
{
    if (clock->last_time == UINT64_MAX)
        return true;
    if (turn)
        return now < clock->last_time || (now == clock->last_time && clock->slot < clock->last);
    return now + look_ns(clock->params) < clock->last_time + lookahead(clock->params);
}

static uint64_t begin_in_order(struct emu_clock *clock, bool turn)
{
    struct wait wait = {0};
    for (;;) {
        uint64_t now = emu_clock_begin(clock);
        if (clock->params->timing != EMU_TIMING_VIRTUAL)
            return now;
        __atomic_store_n(&own(clock)->seen, now, __ATOMIC_SEQ_CST);
        if (clock->epoch == load(&clock->shm->epoch) && in_order(clock, now, turn))
            return now;
        last_find(clock);
        if (in_order(clock, now, turn))
            return now;
        uint32_t last = clock->last;
        pthread_mutex_unlock(&clock->lock);
        give_way(clock, &wait, last);
    }
}

uint64_t emu_clock_turn(struct emu_clock *clock)
{
    return begin_in_order(clock, true);
}

uint64_t emu_clock_look(struct emu_clock *clock)
{
    return begin_in_order(clock, false);
}

void emu_clock_end(struct emu_clock *clock, uint64_t begin, uint64_t cost)
{
    if (clock->params->timing == EMU_TIMING_REAL) {
        while (cost && monotonic() < begin + cost)
            ;
    } else if (clock->params->timing == EMU_TIMING_VIRTUAL) {
        if (cost)
            move(clock, begin + cost);
        pthread_mutex_unlock(&clock->lock);
    }
}

bool emu_clock_reached(const struct emu_clock *clock, uint64_t *begin_p, uint64_t when)
{
    if (clock->params->timing == EMU_TIMING_OFF)
        return true;
    if (clock->params->timing == EMU_TIMING_REAL ? monotonic() < when : *begin_p + look_ns(clock->params) < when)
        return false;
    if (*begin_p < when)
        *begin_p = when;
    return true;
}

uint64_t emu_clock_take(struct emu_clock *clock, uint64_t when)
{
    move(clock, when);
    pthread_mutex_unlock(&clock->lock);
    return emu_clock_turn(clock);
}

uint64_t emu_clock_now(struct emu_clock *clock)
{
    if (clock->params->timing == EMU_TIMING_OFF)
        return 0;
    return clock->params->timing == EMU_TIMING_REAL ? monotonic() : time_of(load(&own(clock)->word));
}

/* ---- interrupts ---- */

void emu_clock_sleep(struct emu_clock *clock)
{
    uint64_t word = load(&own(clock)->word);
    if (state_of(word) == EMU_TIME_PRESENT)
        change(&own(clock)->word, word, EMU_TIME_AWAY | time_of(word));
}

void emu_clock_wake(struct emu_board_shm *shm, uint32_t context, uint64_t when)
{
    uint64_t *word = &shm->times[emu_slot(context)].word, was = load(word);
    if (state_of(was) == EMU_TIME_AWAY &&
        change(word, was, EMU_TIME_PRESENT | (when > time_of(was) ? when : time_of(was))))
        board_changes(shm);
}
