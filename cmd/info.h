/* The parts of `unimem info`. Each tries what it reports on and adds its rows to the report. */
#ifndef UM_CMD_INFO_H
#define UM_CMD_INFO_H

#include "report.h"

#include <stdbool.h>

/* Reports what two sibling processes can do with each other's memory. False: there is no shared memory between them. */
bool um_cmd_info_memory(struct um_cmd_report *report);

/* Reports how large messages move between two processes, and how fast. Needs shared memory between them. */
void um_cmd_info_bodies(struct um_cmd_report *report);

/* Reports what else the kernel offers: userfaultfd, membarrier, huge pages, pid namespace. */
void um_cmd_info_kernel(struct um_cmd_report *report);

/* Reports how the processor can wait for a store. */
void um_cmd_info_processor(struct um_cmd_report *report);

/* Reports which libfabric provider carries messages to other hosts, and at which address. */
void um_cmd_info_net(struct um_cmd_report *report);

/* Reports the provider itself. False: it cannot be loaded. */
bool um_cmd_info_provider(struct um_cmd_report *report);

/* Reports the libfabrics and MPIs within reach. */
void um_cmd_info_software(struct um_cmd_report *report);

/*
 * Reads the first line of a file of /proc or /sys, at most size - 1 bytes, without its end. False: it cannot be read.
 */
bool um_cmd_info_read(const char *path, char *text, unsigned size);

#endif
