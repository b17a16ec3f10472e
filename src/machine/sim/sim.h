/*
 * The simulated machine: every port in one process, seeded faults. For tests, and the vehicle of ThreadSanitizer.
 *
 * Threading: the settings may be called from any thread.
 */
#ifndef UM_MACHINE_SIM_SIM_H
#define UM_MACHINE_SIM_SIM_H

#include "machine/machine.h"

/*
 * From now on, new ports stall (a claim finds the lane full, a poll finds it empty) in percent of the calls; slow:
 * their transfers take their time, and move in parts, in any order.
 */
void um_sim_configure(uint32_t seed, unsigned stall_percent, bool slow);
/* From now on all memory is such that peers can map it: machine is_shareable(). */
void um_sim_set_shareable(bool on);
/* The port's process "died": peers see it as not alive. Its memory stays until everyone let go. */
void um_sim_kill(const struct um_addr *addr);

#endif
