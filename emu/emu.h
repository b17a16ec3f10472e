/*
 * What the emulator's libunimem.so offers besides unimem/unimem.h: its clock and parameters, for its tests and for
 * benchmarks that print them. The library of a board has none of this, and src/ must not use it.
 */
#ifndef UNIMEM_EMU_EMU_H
#define UNIMEM_EMU_EMU_H

#include "emu/params.h"
#include "unimem/unimem.h"

#pragma GCC visibility push(default)

/* Returns the parameters of a board. board NULL, here and below: the board that this process opened last; if none is
 * open, the result is 0. */
void unimem_emu_get_params(const struct unimem_board *board, struct emu_params *params_p);

/* Returns the time of this context, in nanoseconds: emu/clock.h. */
uint64_t unimem_emu_now(struct unimem_board *board);

/* Tells that the caller computes for ns nanoseconds: the virtual clock moves on; with the real one the call waits for
 * that time. */
void unimem_emu_compute(struct unimem_board *board, uint64_t ns);

/*
 * Returns how often, in virtual time, a context of the board was given up because it made no call for long. What was
 * measured while this number grew depends on the host (emu/clock.h).
 */
uint64_t unimem_emu_given_up(struct unimem_board *board);

#pragma GCC visibility pop

#endif
