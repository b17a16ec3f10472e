/*
 * The clock of a context, and the order of the contexts of a board in virtual time.
 *
 * Off: no time passes. Real: the clock is CLOCK_MONOTONIC; calls spin until their cost is over (the emulator's own work
 * counts towards it), and what has not arrived yet is not seen. Virtual: each context has a clock that only the model
 * moves, by the cost of its calls, or to the arrival of what it looks for; the host does not wait for that time to
 * pass.
 *
 * In virtual time the host must not decide who was first. So a call that others can notice (a message put into a queue
 * or taken out of one, a DMA given to an engine) is made only when no other context is behind in time. A look for
 * messages is answered only when no context can still send a message that would have arrived by then: one that is
 * behind by less than the latency of a message cannot. Both wait, in the host's time, for the others to catch up:
 * conservative simulation. The last one in time never waits, so the board goes on.
 *
 * Some contexts are not waited for: one that has made no call yet, that armed a mailbox and got nothing since, that has
 * ended, or that the calling thread used last. One that is behind and makes no call for EMU_PATIENCE_MS of the host's
 * time is given up, until it calls again; that is counted (unimem_emu_given_up()), because from then on the host does
 * decide. A context that joins or comes back starts at the latest time at which any context noticed others.
 *
 * Every call of the API is made between a beginning and emu_clock_end(). In virtual time the clock's lock is held in
 * between. Order of locks: the clock's, the handle's, one of the board's.
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
    pthread_mutex_t lock; /* virtual: of what follows, and of the context's clock in the board's memory */
    uint32_t spins;       /* before it lets others have the processor */
    uint32_t last;        /* the other one that is last in time, found when the board had this epoch; */
    uint64_t last_time;   /* nobody else is before this; UINT64_MAX: there is nobody else */
    uint64_t epoch;
};

void emu_clock_init(struct emu_clock *clock, struct emu_board_shm *shm, uint32_t context);
void emu_clock_fini(struct emu_clock *clock);

/* Nanoseconds: virtual, or CLOCK_MONOTONIC, or always 0. Not within a call. */
uint64_t emu_clock_now(struct emu_clock *clock);

/* Begins a call that others do not notice and that does not look at their effects. Returns its time. */
uint64_t emu_clock_begin(struct emu_clock *clock);
/* Begins a call that others can notice. Virtual: waits until no context is behind. */
uint64_t emu_clock_turn(struct emu_clock *clock);
/* Begins a look for messages. Virtual: waits until all messages are there that may arrive within the look. */
uint64_t emu_clock_look(struct emu_clock *clock);

/* Ends the call, which cost this much processor time from begin on. Real: returns when that is over. */
void emu_clock_end(struct emu_clock *clock, uint64_t begin, uint64_t cost);

/*
 * Within a call that began then: has this happened, or, virtual, does it while the call looks (which takes
 * cpu_poll_ns if nothing happens)? Then the call goes on from there.
 */
bool emu_clock_reached(const struct emu_clock *clock, uint64_t *begin_p, uint64_t when);

/* Virtual, within a look that reached `when`: the message is taken now, which others notice. Returns the time. */
uint64_t emu_clock_take(struct emu_clock *clock, uint64_t when);

/* Virtual: the context waits for an interrupt; others do not wait for it. */
void emu_clock_sleep(struct emu_clock *clock);
/* The time at which the interrupt reaches it. */
void emu_clock_wake(struct emu_board_shm *shm, uint32_t context, uint64_t when);

#endif
