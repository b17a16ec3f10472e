/*
 * unimem info [--json]: what this machine offers to unimem, what is missing, what that costs and how to get it.
 */
#include "info.h"
#include "commands.h"

#include <stdio.h>
#include <string.h>

static const char usage[] =
    "usage: unimem info [--json]\n"
    "\n"
    "Tries what this machine offers: memory between processes, the kernel, the processor, the way to\n"
    "other hosts, and the libfabrics and MPIs in PATH, in the active virtual environment and in .venv.\n"
    "For whatever is missing it says what is lost and how to get it.\n"
    "\n"
    "Exit status 0 unless unimem cannot run here at all.\n";

int um_cmd_info(int argc, char **argv)
{
    static struct um_cmd_report report; /* tens of KiB: not on the stack */
    bool json = false;

    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help")) {
            fputs(usage, stdout);
            return UM_EXIT_OK;
        }
        if (strcmp(argv[i], "--json") != 0)
            return um_cmd_usage_error("info", "unexpected argument %s", argv[i]);
        json = true;
    }
    bool runs = um_cmd_info_provider(&report);
    if (um_cmd_info_memory(&report))
        um_cmd_info_bodies(&report);
    else
        runs = false;
    um_cmd_info_kernel(&report);
    um_cmd_info_processor(&report);
    um_cmd_info_net(&report);
    um_cmd_info_software(&report);
    if (json)
        um_cmd_report_print_json(&report);
    else
        um_cmd_report_print(&report);
    if (fflush(stdout)) {
        perror("unimem: cannot write the report");
        return UM_EXIT_FAILED;
    }
    return runs ? UM_EXIT_OK : UM_EXIT_FAILED;
}
