/* The machine over another provider as the suite can test it: net_settled.c. */
#ifndef UM_TESTS_CONFORMANCE_NET_H
#define UM_TESTS_CONFORMANCE_NET_H

#include "machine/machine.h"

extern struct um_machine um_machine_net_settled;

/* Accepts "net", over tcp or tcp;ofi_rxm, and "net:PROVIDER"; on 127.0.0.1. False: another name. */
bool net_choose(const char *name);

#endif
