/* See cmd/info.h. What two processes can do with each other's memory. */
#include "info.h"
#include "siblings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char section[] = "Memory between processes";

static const char *shared_remedy(const struct um_cmd_siblings *s)
{
    if (s->memfd == EMFILE || s->memfd == ENFILE)
        return "raise the limit of open files (ulimit -n)";
    if (s->memfd)
        return "allow memfd_create in the container's seccomp profile; it needs Linux 3.17";
    if (s->open == ENOENT)
        return "mount the /proc of this pid namespace (unshare --mount-proc; container engines do)";
    if (s->open)
        return "run all processes as one user, and let them be dumpable: no set-uid, no file capabilities";
    return "raise the limits of memory (ulimit -v)";
}

static bool add_shared(struct um_cmd_report *report, const struct um_cmd_siblings *s)
{
    int error = s->memfd ? s->memfd : s->open ? s->open : s->map;
    if (!error) {
        um_cmd_report_add(report, section, "shared memory", UM_YES, "memfd, opened through /proc/PID/fd");
        return true;
    }
    const char *what = s->memfd ? "memfd_create" : s->open ? "opening /proc/PID/fd/N" : "mapping it";
    struct um_cmd_row *row =
        um_cmd_report_add(report, section, "shared memory", UM_NO, "%s: %s", what, strerror(error));
    row->lost = "everything: unimem cannot run here";
    row->remedy = shared_remedy(s);
    return false;
}

/* Returns Yama's mode, or -1 if it is not active. */
static int yama(void)
{
    char text[16];
    return um_cmd_info_read("/proc/sys/kernel/yama/ptrace_scope", text, sizeof text) ? atoi(text) : -1;
}

static void add_copy(struct um_cmd_report *report, const char *name, int error, bool other_works, int scope)
{
    if (!error) {
        um_cmd_report_add(report, section, name, UM_YES, "works between siblings");
        return;
    }
    struct um_cmd_row *row = um_cmd_report_add(report, section, name, UM_NO, "%s", strerror(error));
    row->lost = other_works ? "the two sides cannot share the copying of a large message: one side copies alone"
                            : "large messages are copied twice, through shared buffers";
    if (error == ENOSYS)
        row->remedy = "a kernel with CONFIG_CROSS_MEMORY_ATTACH, or a seccomp profile that allows it";
    else if (scope >= 2)
        row->remedy = "as root: sysctl kernel.yama.ptrace_scope=1; mode 3 can only be left by a reboot";
    else
        row->remedy = "in a container: allow process_vm_readv and process_vm_writev in its seccomp profile\n"
                      "(Docker, Podman: --cap-add SYS_PTRACE does); run all processes as one user";
}

static void add_yama(struct um_cmd_report *report, int scope, bool copies)
{
    static const char *const modes[] = {"0: no restriction", "1: the reader needs consent, which unimem gives",
                                        "2: only with CAP_SYS_PTRACE", "3: nobody"};
    if (scope < 0 || scope > 3)
        um_cmd_report_add(report, section, "Yama ptrace_scope", UM_PLAIN, "%s",
                          scope < 0 ? "Yama is not active" : "unknown");
    else if (scope < 2 || copies)
        um_cmd_report_add(report, section, "Yama ptrace_scope", UM_PLAIN, "%s", modes[scope]);
    else
        um_cmd_report_add(report, section, "Yama ptrace_scope", UM_NO, "%s", modes[scope])->lost =
            "process_vm_readv and process_vm_writev, see above";
}

bool um_cmd_info_memory(struct um_cmd_report *report)
{
    struct um_cmd_siblings s;
    int ret = um_cmd_siblings_try(&s);
    if (ret) {
        struct um_cmd_row *row =
            um_cmd_report_add(report, section, "shared memory", UM_NO, "could not be tried: %s", strerror(-ret));
        row->lost = "everything, unless the reason has gone by the time a program runs";
        row->remedy = "see whether the limits of processes (ulimit -u) and memory are reached";
        return false;
    }
    int scope = yama();
    bool shared = add_shared(report, &s);
    add_copy(report, "process_vm_readv", s.vm_read, !s.vm_write, scope);
    add_copy(report, "process_vm_writev", s.vm_write, !s.vm_read, scope);
    add_yama(report, scope, !s.vm_read && !s.vm_write);
    return shared;
}
