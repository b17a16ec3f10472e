/*
 * Is anybody at a peer's TCP port? net.h.
 *
 * libfabric's tcp says -FI_EAGAIN for as long as it cannot connect, be it that nobody listens any more or that the peer
 * has not come to accept. The kernel of the peer's host tells these apart without the peer's program: it completes a
 * connection to a port that is open, and refuses one to a port that is not. The connection is closed at once; nothing
 * is sent. A host that does not answer is left alone: its link may come back. But not if the connection that there was
 * has broken, which takes TCP minutes where nothing else breaks it.
 *
 * Owns: the knock_* of a peer. Threading: as the port's calls.
 */
#include "machine/net/net.h"

#include "base/cancel.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAUSE_FIRST UINT64_C(1000000000)
#define PAUSE_MAX   UINT64_C(16000000000)

void um_net_knock_end(struct um_net_peer *peer)
{
    if (peer->knock_fd >= 0)
        close(peer->knock_fd);
    peer->knock_fd = -1;
}

/* The next one after a longer pause: a peer that was stopped has to accept them all. */
static void pause_next(struct um_net_peer *peer, uint64_t now)
{
    peer->knock_pause = peer->knock_pause == 0              ? PAUSE_FIRST
                        : peer->knock_pause < PAUSE_MAX / 2 ? peer->knock_pause * 2
                                                            : PAUSE_MAX;
    peer->knock_at = now + peer->knock_pause;
}

/* -EINPROGRESS; 0; or an error. */
static int begin(struct um_net_peer *peer)
{
    const struct um_net_addr_wire part = um_net_addr_part(&peer->addr);
    struct sockaddr_storage to = {0};
    memcpy(&to, part.name, part.len);
    if ((to.ss_family != AF_INET || part.len != sizeof(struct sockaddr_in)) &&
        (to.ss_family != AF_INET6 || part.len != sizeof(struct sockaddr_in6)))
        return 0;
    peer->knock_fd = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (peer->knock_fd < 0)
        return 0;
    return connect(peer->knock_fd, (const struct sockaddr *)&to, part.len) ? -errno : 0;
}

static int outcome(const struct um_net_peer *peer)
{
    struct pollfd fd = {.fd = peer->knock_fd, .events = POLLOUT};
    int error = 0;
    socklen_t len = sizeof(error);
    if (poll(&fd, 1, 0) != 1)
        return -EINPROGRESS;
    return getsockopt(peer->knock_fd, SOL_SOCKET, SO_ERROR, &error, &len) ? -errno : -error;
}

/* Nobody can be reached there now. Its connection has broken, or that would not matter. */
static bool is_unreachable(int ret)
{
    return ret == -ETIMEDOUT || ret == -EHOSTUNREACH || ret == -ENETUNREACH;
}

bool um_net_knock(struct um_net_peer *peer, uint64_t now)
{
    UM_UNCANCELLED;
    if (peer->knock_fd < 0 && now < peer->knock_at)
        return false;
    int ret = peer->knock_fd < 0 ? begin(peer) : outcome(peer);
    if (ret == -EINPROGRESS)
        return false;
    um_net_knock_end(peer);
    pause_next(peer, now);
    return ret == -ECONNREFUSED || (peer->is_broken && is_unreachable(ret));
}
