/* See cmd/info.h. What the kernel offers besides memory between processes. */
#include "child.h"
#include "info.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

static const char section[] = "Kernel";

enum { TIMEOUT_MS = 30000 };              /* long enough for a busy machine */
static const unsigned user_mode_only = 1; /* UFFD_USER_MODE_ONLY, Linux 5.11 */
/* Features of Linux 5.7 (on shared memory: 5.19), 6.4, 5.14 and 6.8; the headers may be older. */
static const struct {
    const char *name;
    unsigned bit;
} features[] = {{"WP", 0}, {"WP_UNPOPULATED", 13}, {"MINOR_SHMEM", 10}, {"MOVE", 16}};

bool um_cmd_info_read(const char *path, char *text, unsigned size)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    bool ok = fgets(text, (int)size, file) != NULL;
    fclose(file);
    if (ok)
        text[strcspn(text, "\n")] = '\0';
    return ok;
}

/* Opens a userfaultfd in the fullest mode that is allowed. *error: the errno of the first try. */
static int open_userfaultfd(const char **mode, int *error)
{
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    *error = fd < 0 ? errno : 0;
    *mode = "full";
    if (fd >= 0)
        return fd;
#ifdef USERFAULTFD_IOC_NEW
    int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    if (device >= 0) {
        fd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
        close(device);
        *mode = "full, by /dev/userfaultfd";
        if (fd >= 0)
            return fd;
    }
#endif
    *mode = "user-mode faults only";
    return (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | user_mode_only);
}

static void ask_userfaultfd(void *arg, int out)
{
    struct uffdio_api api = {.api = UFFD_API};
    const char *mode;
    int error;
    (void)arg;
    int fd = open_userfaultfd(&mode, &error);
    if (fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0)
        dprintf(out, "%llu %s", (unsigned long long)api.features, mode);
    else
        dprintf(out, "0 !%s", strerror(error ? error : errno));
}

static void add_userfaultfd(struct um_cmd_report *report)
{
    char text[128], *mode = text, list[128] = "";
    int ret = um_cmd_child_run(ask_userfaultfd, NULL, text, sizeof text, TIMEOUT_MS);
    unsigned long long offered = ret > 0 ? strtoull(text, &mode, 10) : 0;
    struct um_cmd_row *row;

    mode += *mode == ' ';
    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++) {
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s %s", n ? ", " : "; ", features[i].name,
                 offered >> features[i].bit & 1 ? "yes" : "no");
    }
    if (ret <= 0 || *mode == '!') {
        row = um_cmd_report_add(report, section, "userfaultfd", UM_NO, "refused: %s",
                                ret > 0 ? mode + 1 : "the process that asked for it was killed");
        row->remedy = "allow userfaultfd in the container's seccomp profile, or a kernel with CONFIG_USERFAULTFD";
    } else if (strncmp(mode, "full", 4) != 0) {
        row = um_cmd_report_add(report, section, "userfaultfd", UM_PARTLY, "%s%s", mode, list);
        row->remedy = "as root: sysctl vm.unprivileged_userfaultfd=1; or CAP_SYS_PTRACE; or access to /dev/userfaultfd";
    } else {
        um_cmd_report_add(report, section, "userfaultfd", UM_YES, "%s%s", mode, list);
        return;
    }
    row->lost =
        "only processes of one thread can make registered memory shared in place; that of others is reached by\n"
        "system calls, and its owner executes atomics";
}

static void ask_membarrier(void *arg, int out)
{
    (void)arg;
    long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    if (commands >= 0 && !(commands & MEMBARRIER_CMD_GLOBAL_EXPEDITED))
        dprintf(out, "no GLOBAL_EXPEDITED: it needs Linux 4.16");
    else if (commands < 0 || syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) ||
             syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0))
        dprintf(out, "refused: %s", strerror(errno));
    else
        dprintf(out, "+global expedited");
}

static void add_membarrier(struct um_cmd_report *report)
{
    char text[128];
    if (um_cmd_child_run(ask_membarrier, NULL, text, sizeof text, TIMEOUT_MS) > 0 && text[0] == '+') {
        um_cmd_report_add(report, section, "membarrier", UM_YES, "%s", text + 1);
        return;
    }
    struct um_cmd_row *row =
        um_cmd_report_add(report, section, "membarrier", UM_NO, "%s", *text ? text : "refused by a signal");
    row->lost = "every message pays a fence (about 8 ns)";
    row->remedy = "allow membarrier in the container's seccomp profile";
}

/* Copies the chosen word: "madvise" of "always [madvise] never". */
static void chosen(const char *path, char *word, unsigned size)
{
    char text[128];
    char *open = um_cmd_info_read(path, text, sizeof text) ? strchr(text, '[') : NULL;
    char *close = open ? strchr(open, ']') : NULL;
    snprintf(word, size, "%.*s", close ? (int)(close - open - 1) : 7, close ? open + 1 : "unknown");
}

static void add_huge_pages(struct um_cmd_report *report)
{
    char anonymous[32], shared[32], pool[32] = "0";
    chosen("/sys/kernel/mm/transparent_hugepage/enabled", anonymous, sizeof anonymous);
    chosen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", shared, sizeof shared);
    um_cmd_info_read("/proc/sys/vm/nr_hugepages", pool, sizeof pool);
    um_cmd_report_add(report, section, "huge pages", UM_PLAIN,
                      "transparent: %s, for shared memory: %s; in the pool: %s", anonymous, shared, pool);
}

/* True if the value switches FI_UNIMEM_ATTACH off, as the provider reads it. */
static bool is_off(const char *attach)
{
    static const char *const words[] = {"off", "0", "no", "false"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcasecmp(attach, words[i]) == 0)
            return true;
    }
    return false;
}

static void add_pid_namespace(struct um_cmd_report *report)
{
    const char *attach = getenv("FI_UNIMEM_ATTACH");
    static const char hosts[] = "pid:[4026531836]"; /* PROC_PID_INIT_INO of the kernel */
    char link[64] = "", self[32] = "";
    ssize_t n = readlink("/proc/self/ns/pid", link, sizeof link - 1);
    ssize_t m = readlink("/proc/self", self, sizeof self - 1);
    struct um_cmd_row *row;

    if (n <= 0 || m <= 0 || atoi(self) != getpid()) {
        row = um_cmd_report_add(report, section, "pid namespace", UM_NO, "/proc is %s",
                                m > 0 ? "that of another one" : "absent");
        row->lost = "shared memory, see above";
        row->remedy = "mount the /proc of this pid namespace (unshare --mount-proc; container engines do)";
    } else if (strcmp(link, hosts) == 0) {
        um_cmd_report_add(report, section, "pid namespace", UM_YES, "the host's");
    } else {
        if (attach && *attach && !is_off(attach)) {
            um_cmd_report_add(report, section, "pid namespace", UM_YES,
                              "one of its own, %s; others by FI_UNIMEM_ATTACH=%s", link, attach);
            return;
        }
        row = um_cmd_report_add(report, section, "pid namespace", UM_PARTLY, "one of its own, %s", link);
        row->lost = "processes outside cannot be reached; those inside can";
        row->remedy = "run all ranks in one container, or share the namespace (Docker, Podman: --pid=host), or set\n"
                      "FI_UNIMEM_ATTACH in all: abstract if they share a network namespace, else a shared directory";
    }
}

void um_cmd_info_kernel(struct um_cmd_report *report)
{
    struct utsname name;
    if (uname(&name) == 0)
        um_cmd_report_add(report, section, "version", UM_PLAIN, "%s %s, %s", name.sysname, name.release, name.machine);
    add_userfaultfd(report);
    add_membarrier(report);
    add_huge_pages(report);
    add_pid_namespace(report);
}
