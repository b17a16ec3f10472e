/* Open files: each connection of tcp takes some. net.h. */
#include "machine/net/net.h"

#include "base/cancel.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Doubles the process's own limit, up to what the system permits. False: it is as high as that. */
static bool limit_raise(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max)
        return false;
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = before < limit.rlim_max / 2 ? 2 * before : limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        return false;
    um_log(UM_LOG_INFO, "the machine net: all %llu file descriptors were in use: the limit is %llu now",
           (unsigned long long)before, (unsigned long long)limit.rlim_cur);
    return true;
}

/* Returns 0 if there is a descriptor left, or one more is allowed now; else EMFILE or ENFILE. */
static int lack(const struct um_net_port *port)
{
    const int fd = fcntl(port->kick_fd, F_DUPFD_CLOEXEC, 0), error = fd < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    return (error == EMFILE && !limit_raise()) || error == ENFILE ? error : 0;
}

void um_net_descriptors_look(struct um_net_port *port)
{
    UM_UNCANCELLED;
    const int error = lack(port);
    if (error && !port->is_without_fds)
        um_log(UM_LOG_WARN,
               "the machine net: %s: a peer that connects now waits until a file descriptor is free, perhaps for ever; "
               "raise the limit (%s)",
               strerror(error), error == EMFILE ? "ulimit -Hn" : "sysctl fs.file-max");
    port->is_without_fds = error != 0;
}
