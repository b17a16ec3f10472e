/* Open files: each connection of tcp takes some. net.h. */
#include "machine/net/net.h"

#include "base/cancel.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Few are left if the lowest free number is among the last FEW that the limit permits. Usually that is found before
 * none is left; if not, connections wait until the next look. Numbers below LOWEST are not taken, even for a moment:
 * another thread may have closed one, and expects to get it again. */
enum { FEW = 16, LOWEST = 3 };

/* Doubles the process's own limit, up to what the system permits. False: it is as high as that, or the system refuses.
 * What another thread sets meanwhile, of either limit, may be lost: there is no call that compares and sets. */
static bool limit_raise(struct rlimit limit)
{
    const rlim_t before = limit.rlim_cur, wish = 2 * (before < FEW ? FEW : before);
    if (before >= limit.rlim_max)
        return false;
    limit.rlim_cur = before < limit.rlim_max / 2 && wish < limit.rlim_max ? wish : limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        return false;
    um_log(UM_LOG_INFO, "the machine net: few of %llu file descriptors were left: the limit is %llu now",
           (unsigned long long)before, (unsigned long long)limit.rlim_cur);
    return true;
}

/* Returns 0 if there is a descriptor for the next connection, or was a moment ago; else EMFILE or ENFILE. */
static int lack(const struct um_net_port *port)
{
    struct rlimit limit;
    const int fd = fcntl(port->kick_fd, F_DUPFD_CLOEXEC, LOWEST), error = fd < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    const bool is_limited = error == EMFILE || error == EINVAL; /* EINVAL: the limit is below LOWEST */
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && (is_limited || (fd >= 0 && (rlim_t)fd + FEW >= limit.rlim_cur)) &&
        limit_raise(limit))
        return 0;
    return is_limited ? EMFILE : error == ENFILE ? ENFILE : 0;
}

bool um_net_descriptors_look(struct um_net_port *port)
{
    UM_UNCANCELLED;
    static struct um_log_limit none;
    const int error = lack(port);
    if (error && !port->is_without_fds)
        um_log_limited(&none, UM_LOG_WARN,
                       "the machine net: no file descriptor is left for a connection (%s): new peers wait until one is "
                       "free, perhaps for ever; raise %s",
                       strerror(error),
                       error == EMFILE
                           ? "the hard limit of open files (bash: ulimit -Hn; of all processes: sysctl fs.nr_open)"
                           : "the system's limit of open files (sysctl fs.file-max)");
    port->is_without_fds = error != 0;
    return !error;
}
