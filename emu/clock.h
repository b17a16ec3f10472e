/*
 * The clock of a context, and the order of the contexts of a board in virtual time.
 *
 * Off: no time passes. Real: the clock is CLOCK_MONOTONIC; calls spin until their cost is over (the emulator's own work
 * counts towards it), and what has not arrived yet is not seen. Virtual: each context has a clock that only the model
 * moves, by the cost of its calls and to the arrival of what it looks for; nobody waits for that time to pass.
 *
 * In virtual time the host must not decide who was first. So a call that others can notice (a message put into a queue
 * or taken out of one, a DMA given to an engine) is made only when no other context is behind in time, and a look for
 * messages is answered only when nobody can send one any more that would have been there: whoever is behind by less
 * than a message takes cannot. Both wait, in the host's time, for the others to catch up: conservative simulation.
 * The last one in time never waits, so the board goes on.
 *
 * Who takes no part is not waited for: a context that has made no call yet, that armed a mailbox and has got nothing
 * since, that has ended, or that the calling thread has used last (it is here). One that is behind and makes no call
 * for EMU_PATIENCE_MS of the host's time is given up, until it calls again; that is counted (unimem_emu_given_up()),
 * because from then on the host does decide. Who comes, or comes back, does so at the latest time at which anybody has
 * noticed others.
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

/* A call begins that others do not notice, and that does not look for what they did. Returns when that is. */
uint64_t emu_clock_begin(struct emu_clock *clock);
/* One that others can notice: virtual: once nobody is behind. */
uint64_t emu_clock_turn(struct emu_clock *clock);
/* One that looks for messages: virtual: once all are there that may come within the look. */
uint64_t emu_clock_look(struct emu_clock *clock);

/* The call ends; it cost so much of the processor's time from begin on. Real: returns when that is over. */
void emu_clock_end(struct emu_clock *clock, uint64_t begin, uint64_t cost);

/*
 * Within a call that began then: has this happened, or, virtual, does it while the call looks (which takes
 * cpu_poll_ns if nothing happens)? Then the call goes on from there.
 */
bool emu_clock_reached(const struct emu_clock *clock, uint64_t *begin_p, uint64_t when);

/* Virtual, within a look that reached when: it is taken now, which others notice. Returns when that is. */
uint64_t emu_clock_take(struct emu_clock *clock, uint64_t when);

/* Virtual: the context waits for an interrupt: it is not waited for. */
void emu_clock_sleep(struct emu_clock *clock);
/* The interrupt comes to it then. */
void emu_clock_wake(struct emu_board_shm *shm, uint32_t context, uint64_t when);

#endif
