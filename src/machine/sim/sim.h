/*
 * The simulated machine: every port in one process, seeded faults. For tests, and the vehicle of ThreadSanitizer.
 *
 * Threading: the settings may be called from any thread.
 */
#ifndef UM_MACHINE_SIM_SIM_H
#define UM_MACHINE_SIM_SIM_H

#include "machine/machine.h"

enum um_sim_mode {
    UM_SIM_SLOW = 1,      /* transfers take their time, and move in parts, in any order */
    UM_SIM_STALE = 2,     /* memory is not coherent: each port works on private copies, and no region can be mapped */
    UM_SIM_EVICT = 4,     /* and, as in a cache, lines are written back and read again at other times, too */
    UM_SIM_SHAREABLE = 8, /* peers can map all memory: machine is_shareable() */
};

/*
 * From now on, new ports and spaces have these modes (enum um_sim_mode, or-ed), and new ports stall (a claim finds the
 * lane full, a poll finds it empty) in percent of the calls.
 */
void um_sim_configure(uint32_t seed, unsigned stall_percent, unsigned modes);
/* The port's process "died": peers see it as not alive. Its memory stays until everyone let go. */
void um_sim_kill(const struct um_addr *addr);

#endif
