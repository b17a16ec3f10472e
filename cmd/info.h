/* The parts of `unimem info`. Each tries what it reports on and adds its rows to the report. */
#ifndef UM_CMD_INFO_H
#define UM_CMD_INFO_H

#include "report.h"

#include <stdbool.h>

/* What two sibling processes can do with each other's memory. False if there is no shared memory between them. */
bool um_cmd_info_memory(struct um_cmd_report *report);

/* How large messages move between two processes, and how fast. Only where there is shared memory between them. */
void um_cmd_info_bodies(struct um_cmd_report *report);

/* What the kernel offers besides: userfaultfd, membarrier, huge pages, pid namespace. */
void um_cmd_info_kernel(struct um_cmd_report *report);

/* How the processor can wait for a store. */
void um_cmd_info_processor(struct um_cmd_report *report);

/* Which libfabric provider carries messages to other hosts, and at which address. */
void um_cmd_info_net(struct um_cmd_report *report);

/* The provider itself. False if it cannot be loaded. */
bool um_cmd_info_provider(struct um_cmd_report *report);

/* The libfabrics and MPIs within reach. */
void um_cmd_info_software(struct um_cmd_report *report);

/* The first bytes of a file of /proc or /sys, without the end of the line; false if it cannot be read. */
bool um_cmd_info_read(const char *path, char *text, unsigned size);

#endif
