/* See cmd/info.h. How the processor can wait for a store of another core without spinning. */
#include "info.h"

#include <stdio.h>
#include <unistd.h>
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif
#ifdef __aarch64__
#include <sys/auxv.h>
#endif

static const char section[] = "Processor";

static void add_wait(struct um_cmd_report *report, const char *found)
{
    if (found) {
        um_cmd_report_add(report, section, "wait instruction", UM_YES, "%s", found);
        return;
    }
    struct um_cmd_row *row = um_cmd_report_add(report, section, "wait instruction", UM_NO, "none for programs");
    row->lost = "a blocking call spins for some microseconds before it sleeps, where it could pause";
    row->remedy = "WAITPKG (Intel from Tremont and Alder Lake on), MONITORX (AMD from Excavator on) or Arm;\n"
                  "a virtual machine may hide them: its settings";
}

static const char *wait_instruction(void)
{
#if defined(__x86_64__) || defined(__i386__)
    unsigned a, b, c, d;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && (c & (1u << 5)))
        return "WAITPKG (umwait)";
    if (__get_cpuid(0x80000001, &a, &b, &c, &d) && (c & (1u << 29)))
        return "MONITORX (mwaitx)";
    return NULL;
#elif defined(__aarch64__)
    return getauxval(AT_HWCAP2) & (1ul << 31) ? "WFE, with time-out (WFET)" : "WFE";
#else
    return NULL;
#endif
}

void um_cmd_info_processor(struct um_cmd_report *report)
{
    um_cmd_report_add(report, section, "online", UM_PLAIN, "%ld", sysconf(_SC_NPROCESSORS_ONLN));
    add_wait(report, wait_instruction());
}
