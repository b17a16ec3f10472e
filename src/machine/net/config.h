/*
 * What a user can choose about the machine over another provider, and what the launcher says. It is the same for all
 * ports of the process.
 *
 * Threading: set before the machine is used, or again with the same values.
 */
#ifndef UM_MACHINE_NET_CONFIG_H
#define UM_MACHINE_NET_CONFIG_H

#include "machine/machine.h"

enum { UM_NET_PARAMS = 3, UM_NET_CHOICE_MAX = 64, UM_NET_TIMEOUT = 60, UM_NET_TIMEOUT_MAX = 86400 };
extern const struct um_machine_param um_net_params[UM_NET_PARAMS];

/* The parameters: machine.h, um_machine_param.set. */
int um_net_set_use(const char *value);
int um_net_set_address(const char *value);
int um_net_set_timeout(const char *value);

/* True if an inner endpoint shall be opened. alone: the endpoint has no other machine. */
bool um_net_is_wanted(bool alone);
/* Return the inner provider and the address that the user named; NULL: none. */
const char *um_net_chosen_provider(void);
const char *um_net_chosen_address(void);
/* Returns for how many ns a host may not answer before it counts as gone; 0: for ever. */
uint64_t um_net_chosen_timeout_ns(void);

/* True if the launcher's environment says that all ranks of the job are on this host. */
bool um_net_job_is_on_one_host(void);

#endif
