/* Which inner provider, and which interface: the fi_info that ports are opened with. Threading: any. */
#ifndef UM_MACHINE_NET_CHOOSE_H
#define UM_MACHINE_NET_CHOOSE_H

#include "machine/net/library.h"

/* Returns the fi_info of the provider and the address that the user chose (config.h), or by a rule (choose.c). The
 * caller frees it. -ENODATA, -ENOENT: there is none (logged, with the remedy). */
int um_net_info_choose(struct fi_info **info_p);

#endif
