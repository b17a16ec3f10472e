/*
 * What the emulator's libunimem.so offers besides unimem/unimem.h: its clock and parameters, for its tests and for
 * benchmarks that print them. A board's library has none of this, and src/ must not use it.
 */
#ifndef UNIMEM_EMU_EMU_H
#define UNIMEM_EMU_EMU_H

#include "emu/params.h"
#include "unimem/unimem.h"

#pragma GCC visibility push(default)

/* NULL, here and below: the board that this process opened last. If none is open: all 0. */
void unimem_emu_get_params(const struct unimem_board *board, struct emu_params *params_p);

/* The time of this context, in nanoseconds: emu/clock.h. */
uint64_t unimem_emu_now(struct unimem_board *board);

/* The caller computes for so long: the virtual clock moves, the real one is waited for. */
void unimem_emu_compute(struct unimem_board *board, uint64_t ns);

/*
 * How often, in virtual time, a context of the board was not waited for any more because it made no call for long: what
 * was measured while this number went on depends on the host (emu/clock.h).
 */
uint64_t unimem_emu_given_up(struct unimem_board *board);

#pragma GCC visibility pop

#endif
