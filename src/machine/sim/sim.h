/*
 * The simulated machine: all ports in one process, seeded faults. For tests; ThreadSanitizer runs over it.
 *
 * Threading: the settings may be called from any thread.
 */
#ifndef UM_MACHINE_SIM_SIM_H
#define UM_MACHINE_SIM_SIM_H

#include "machine/machine.h"

enum um_sim_mode {
    UM_SIM_SLOW = 1,  /* a transfer takes several polls, and moves in parts, in any order */
    UM_SIM_STALE = 2, /* memory is not coherent: each port works on private copies, and no region can be mapped */
    UM_SIM_EVICT = 4, /* with UM_SIM_STALE: lines are also written back and read again at other times, as in a cache */
    UM_SIM_SHAREABLE = 8, /* peers can map all memory: is_shareable() is true */
};

/*
 * Sets the modes (enum um_sim_mode, or-ed) of ports and spaces opened from now on, and how often, in percent of the
 * calls, new ports stall: a claim finds the lane full, a poll finds it empty.
 */
void um_sim_configure(uint32_t seed, unsigned stall_percent, unsigned modes);
/* Lets the "process" of a port die: peers see it as not alive. Its memory stays until nobody has it attached. */
void um_sim_kill(const struct um_addr *addr);

#endif
