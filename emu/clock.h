/*
 * The clock of a context, and the order of the contexts of a board in virtual time.
 *
 * Off: no time passes. Real: the clock is CLOCK_MONOTONIC; a call spins until its cost is over (the emulator's own work
 * counts towards it), and messages and DMAs are not seen before their time. Virtual: each context has a clock that only
 * the model moves, by the cost of its calls, or to the arrival of what it looks for; the host does not wait for that
 * time to pass.
 *
 * In virtual time the host must not decide which context was first. So a call that other contexts can notice (a message
 * is put into a queue or taken out of one, a DMA is given to an engine) is made only when no other context is behind in
 * time. A look for messages is answered only when no context can still send a message that would have arrived by then:
 * a context that is behind by less than the latency of a message cannot. Both wait, in the host's time, until the other
 * contexts catch up: conservative simulation. The context that is furthest behind never waits, so the board goes on.
 *
 * Nobody waits for a context that has made no call yet, that armed a mailbox and got no message since, that has ended,
 * or that the calling thread used last. A context that is behind and makes no call for EMU_PATIENCE_MS of the host's
 * time is given up, until it makes a call again. That is counted (unimem_emu_given_up()), because the host then does
 * decide the order. A context that joins or comes back starts at the latest time at which any context noticed others.
 *
 * Every call of the API lies between one of the functions that begin a call and emu_clock_end(). In virtual time the
 * clock's lock is held in between. Order of locks: the clock's, the handle's, one in the board's memory.
 */
#ifndef UNIMEM_EMU_CLOCK_H
#define UNIMEM_EMU_CLOCK_H

#include "emu/layout.h"

#include <pthread.h>
#include <stdbool.h>

enum { EMU_PATIENCE_MS = 1000 };

struct emu_clock {
    const struct emu_params *params;
    struct emu_board_shm *shm;
    uint32_t slot;        /* of the context */
    pthread_mutex_t lock; /* virtual time: guards what follows, and the context's clock in the board's memory */
    uint32_t spins;       /* rounds of waiting before it yields the processor */
    uint32_t last;        /* slot of the other context that was furthest behind in that epoch of the board */
    uint64_t last_time;   /* no other context is before this time; UINT64_MAX: there is no other context */
    uint64_t epoch;
};

void emu_clock_init(struct emu_clock *clock, struct emu_board_shm *shm, uint32_t context);
void emu_clock_fini(struct emu_clock *clock);

/* Returns the time in nanoseconds: virtual, or CLOCK_MONOTONIC, or always 0. Not for use within a call. */
uint64_t emu_clock_now(struct emu_clock *clock);

/* Begins a call that other contexts do not notice and that does not look at their effects. Returns its time. */
uint64_t emu_clock_begin(struct emu_clock *clock);
/* Begins a call that other contexts can notice. Virtual: waits until no context is behind. */
uint64_t emu_clock_turn(struct emu_clock *clock);
/* Begins a look for messages. Virtual: waits until all messages that may arrive during the look are there. */
uint64_t emu_clock_look(struct emu_clock *clock);

/* Ends a call that cost this much processor time from `begin` on. Real: returns when that time is over. */
void emu_clock_end(struct emu_clock *clock, uint64_t begin, uint64_t cost);

/*
 * Within a call that began at *begin_p: true if an event with this time has happened, or, in virtual time, happens
 * while the call looks (which takes cpu_poll_ns if nothing happens). *begin_p is then not before the event: the call
 * goes on from there.
 */
bool emu_clock_reached(const struct emu_clock *clock, uint64_t *begin_p, uint64_t when);

/* Virtual, within a look that reached `when`: turns the call into one that other contexts notice, because it takes a
 * message. Returns the time. */
uint64_t emu_clock_take(struct emu_clock *clock, uint64_t when);

/* Virtual: the context waits for an interrupt, and other contexts do not wait for it. */
void emu_clock_sleep(struct emu_clock *clock);
/* Virtual: the interrupt reaches a context at this time. */
void emu_clock_wake(struct emu_board_shm *shm, uint32_t context, uint64_t when);

#endif
