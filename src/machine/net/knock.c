/*
 * Is anybody at a peer's TCP port, and does its host live? net.h.
 *
 * libfabric's tcp says -FI_EAGAIN for as long as it cannot connect, be it that nobody listens any more or that the peer
 * has not come to accept. The kernel of the peer's host tells these apart without the peer's program: it completes a
 * connection to a port that is open, and refuses one to a port that is not. The connection is reset at once; nothing
 * is sent. (If it were closed, the tcp of libfabric 1.17 would look at it for ever, and its descriptor stay readable.)
 * So a peer that computes or is stopped for however long is not taken for dead.
 *
 * A host that does not answer for a time that the user chose (FI_UNIMEM_NET_TIMEOUT) has vanished; until then its link
 * may come back. A port whose queue of connections is full does not answer either, which happens when many ask a
 * process that is stopped: a port that is surely closed is asked, too, and a living host refuses that.
 *
 * Owns: struct um_net_knock. Threading: as the port's calls.
 */
#include "machine/net/net.h"

#include "machine/net/config.h"

#include "base/cancel.h"
#include "base/log.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)

/* Between two knocks that are answered; a first one that is not; how long one is waited for: the kernel repeats it
 * after pauses that double. */
#define PAUSE_FIRST   SECOND
#define PAUSE_MAX     (32 * SECOND)
#define HOST_AFTER_NS (2 * SECOND)
#define RENEW_NS      (8 * SECOND)

enum { CLOSED_PORT = 1 }; /* tcpmux, which nobody has */

static void fd_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void um_net_knock_end(struct um_net_knock *knock)
{
    if (knock->fd < 0 && knock->host_fd < 0)
        return;
    UM_UNCANCELLED;
    fd_end(&knock->fd);
    fd_end(&knock->host_fd);
}

void um_net_knock_forget(struct um_net_knock *knock)
{
    um_net_knock_end(knock);
    knock->pause = knock->at = knock->unanswered = 0;
}

/* The next one after a longer pause: a peer that was stopped has to accept them all. */
static void pause_next(struct um_net_knock *knock, uint64_t now)
{
    knock->pause = knock->pause == 0 ? PAUSE_FIRST : knock->pause < PAUSE_MAX / 2 ? knock->pause * 2 : PAUSE_MAX;
    knock->at = now + knock->pause;
}

/* Begins to connect to the peer's port, or to that port of its host. -EINPROGRESS; 0; -EMFILE: it cannot be asked; or
 * an error of connect(2). */
static int begin(const struct um_net_peer *peer, uint16_t port, int *fd)
{
    const struct um_net_addr_wire part = um_net_addr_part(&peer->addr);
    const struct linger reset = {.l_onoff = 1};
    struct sockaddr_storage to = {0};
    memcpy(&to, part.name, part.len);
    if (to.ss_family == AF_INET && part.len == sizeof(struct sockaddr_in)) {
        struct sockaddr_in *in = (struct sockaddr_in *)&to;
        in->sin_port = port ? htons(port) : in->sin_port;
    } else if (to.ss_family == AF_INET6 && part.len == sizeof(struct sockaddr_in6)) {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&to;
        in6->sin6_port = port ? htons(port) : in6->sin6_port;
    } else {
        return -EMFILE;
    }
    *fd = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0 || setsockopt(*fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)) != 0)
        return -EMFILE;
    return connect(*fd, (const struct sockaddr *)&to, part.len) ? -errno : 0;
}

static int outcome(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
    int error = 0;
    socklen_t len = sizeof(error);
    if (poll(&poll_fd, 1, 0) != 1)
        return -EINPROGRESS;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) ? -errno : -error;
}

/* Its port has not answered for some time: does the host? */
static bool host_answers(struct um_net_peer *peer, uint64_t now)
{
    struct um_net_knock *knock = &peer->knock;
    if (now - knock->begun < HOST_AFTER_NS)
        return false;
    int ret = knock->host_fd < 0 ? begin(peer, CLOSED_PORT, &knock->host_fd) : outcome(knock->host_fd);
    if (ret != -EINPROGRESS)
        fd_end(&knock->host_fd);
    return ret == 0 || ret == -ECONNREFUSED;
}

static bool is_unreachable(int ret)
{
    return ret == -ETIMEDOUT || ret == -EHOSTUNREACH || ret == -ENETUNREACH;
}

static void vanished(uint64_t ns)
{
    um_log(UM_LOG_WARN,
           "the machine net: the host of a peer has not answered for %u s (FI_UNIMEM_NET_TIMEOUT): what waits for the "
           "peer ends with an error",
           (unsigned)(ns / SECOND));
}

/* No answer yet, or nobody can be reached there now. Where the connection has broken, that is enough. */
static bool unanswered(struct um_net_peer *peer, uint64_t now, int ret)
{
    struct um_net_knock *knock = &peer->knock;
    const uint64_t limit = um_net_chosen_timeout_ns(), passed = now - knock->looked_at;
    knock->looked_at = now;
    knock->unanswered += passed < RENEW_NS ? passed : RENEW_NS; /* this process may not have run for long */
    if (ret != -EINPROGRESS || now - knock->begun > RENEW_NS) {
        um_net_knock_end(knock);
        knock->at = ret == -EINPROGRESS ? now : now + PAUSE_FIRST;
    }
    if (peer->is_broken && is_unreachable(ret))
        return true;
    if (!limit || knock->unanswered < limit)
        return false;
    vanished(knock->unanswered);
    return true;
}

bool um_net_knock(struct um_net_peer *peer, uint64_t now)
{
    UM_UNCANCELLED;
    struct um_net_knock *knock = &peer->knock;
    int ret;
    if (knock->fd >= 0) {
        ret = outcome(knock->fd);
    } else if (now < knock->at) {
        return false;
    } else {
        knock->begun = now;
        if (!knock->unanswered)
            knock->looked_at = now;
        ret = begin(peer, 0, &knock->fd);
    }
    if (ret == -EINPROGRESS && host_answers(peer, now))
        ret = 0;
    if (ret == -EINPROGRESS || is_unreachable(ret))
        return unanswered(peer, now, ret);
    um_net_knock_end(knock);
    knock->unanswered = 0;
    pause_next(knock, now);
    return ret == -ECONNREFUSED;
}
