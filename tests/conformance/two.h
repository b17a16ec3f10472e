/* Two ports of the machine under test, for groups that need no others. */
#ifndef UM_TESTS_CONFORMANCE_TWO_H
#define UM_TESTS_CONFORMANCE_TWO_H

#include "conform.h"

extern struct um_port *a, *b;

void open_two(void);
/* b has at most lanes_max incoming lanes. */
void open_two_for(uint32_t lanes_max);
void close_two(void);

#endif
