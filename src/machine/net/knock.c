/*
 * Does anybody listen at a peer's TCP port, and does the peer's host live? net.h.
 *
 * libfabric's tcp returns -FI_EAGAIN while it cannot connect: both when nobody listens any more, and when the peer has
 * not accepted the connection yet. The kernel of the peer's host tells these apart without the peer's program: it
 * completes a connection to a port that is open, and refuses one to a port that is not. The connection is reset at
 * once; nothing is sent. (If it were closed instead, the tcp of libfabric 1.17 at the peer would look at it for ever,
 * and its descriptor would stay readable.) So a peer that computes or is stopped, however long, is not taken for dead.
 *
 * A host that does not answer for the time that the user chose (FI_UNIMEM_NET_TIMEOUT) has vanished; until then its
 * link may come back. A port whose queue of connections is full does not answer either: a process that is stopped
 * accepts no connection, and each question stays in its queue. So a port that is surely closed is asked, too: a living
 * host refuses that connection. A peer counts as dead only when both ports have been silent for some seconds, and the
 * time has passed.
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

/* The pause after an answer doubles: each question stays in the queue of a process that is stopped. */
#define PAUSE_FIRST SECOND
#define PAUSE_MAX   (256 * SECOND)
/* The host is asked when the peer's port has not answered for this time. */
#define HOST_AFTER  SECOND
/* An attempt without an answer for this time is silent. */
#define PATIENCE    (3 * SECOND)
/* After this time an attempt is made anew, because the kernel repeats a single one only after pauses that double. */
#define RENEW       (8 * SECOND)

enum { CLOSED_PORT = 1 }; /* tcpmux, which nobody uses */

/* The answer to a question. */
enum answer { NONE, THERE, REFUSED, CANNOT_ASK };

static void question_end(struct um_net_question *q)
{
    if (q->fd < 0)
        return;
    UM_UNCANCELLED;
    close(q->fd);
    q->fd = -1;
}

void um_net_knock_end(struct um_net_knock *knock)
{
    question_end(&knock->port);
    question_end(&knock->host);
    knock->is_asking = false;
}

void um_net_knock_forget(struct um_net_knock *knock)
{
    um_net_knock_end(knock);
    knock->pause = knock->at = 0;
}

/* Begins to connect to the peer's port (port 0), or to another port of its host. 0 or the negative errno of connect(2);
 * -EMFILE: there is no socket; -EAFNOSUPPORT: the peer's is not an address of IP. */
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
        return -EAFNOSUPPORT;
    }
    *fd = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0 || setsockopt(*fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)) != 0)
        return -EMFILE;
    return connect(*fd, (const struct sockaddr *)&to, part.len) ? -errno : 0;
}

/* Returns 0, -EINPROGRESS, or the negative errno of an attempt to connect. */
static int outcome(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
    int error = 0;
    socklen_t len = sizeof(error);
    if (poll(&poll_fd, 1, 0) != 1)
        return -EINPROGRESS;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) ? -errno : -error;
}

static enum answer answer_of(int ret)
{
    switch (ret) {
    case 0:
    case -ECONNRESET:
        return THERE;
    case -ECONNREFUSED:
        return REFUSED;
    case -EINPROGRESS:
    case -EHOSTUNREACH:
    case -ENETUNREACH:
    case -ETIMEDOUT:
        return NONE;
    default:
        return CANNOT_ASK;
    }
}

/* Looks for the answer to a question. Asks it if it is not under way, and anew if it has been for RENEW. */
static enum answer ask(const struct um_net_peer *peer, uint16_t port, struct um_net_question *q, uint64_t now)
{
    if (q->fd >= 0) {
        const int ret = outcome(q->fd);
        if (answer_of(ret) == THERE || answer_of(ret) == REFUSED)
            return answer_of(ret);
        if (ret != -ETIMEDOUT) /* else the kernel gave up, perhaps long ago */
            q->is_silent |= ret != -EINPROGRESS || now - q->begun >= PATIENCE;
        if (ret == -EINPROGRESS && now - q->begun < RENEW)
            return NONE;
        question_end(q);
    }
    const int ret = begin(peer, port, &q->fd);
    q->begun = now;
    if (ret == -EINPROGRESS)
        return NONE;
    q->is_silent |= answer_of(ret) == NONE;
    question_end(q);
    return answer_of(ret);
}

static void vanished(const struct um_net_peer *peer, uint64_t ns)
{
    static struct um_log_limit limit;
    const struct um_net_addr_wire part = um_net_addr_part(&peer->addr);
    char at[UM_NET_NAME_TEXT];
    um_net_name_text(&part, at);
    um_log_limited(&limit, UM_LOG_WARN,
                   "the machine net: a peer's host, %s, has not answered for %u s (FI_UNIMEM_NET_TIMEOUT): what waits "
                   "for the peer ends with an error",
                   at, (unsigned)(ns / SECOND));
}

static void asking_begins(struct um_net_knock *knock, uint64_t now)
{
    knock->is_asking = true;
    knock->asked_at = knock->looked_at = now;
    knock->unanswered = 0;
    knock->port.is_silent = knock->host.is_silent = false;
}

static void answered(struct um_net_knock *knock, uint64_t now)
{
    um_net_knock_end(knock);
    knock->pause = knock->pause == 0 ? PAUSE_FIRST : knock->pause < PAUSE_MAX / 2 ? knock->pause * 2 : PAUSE_MAX;
    knock->at = now + knock->pause;
}

/* True: there was no answer for the time that the user chose. Of a time without looks at most RENEW counts. */
static bool is_over(struct um_net_peer *peer, uint64_t passed)
{
    struct um_net_knock *knock = &peer->knock;
    const uint64_t limit = um_net_chosen_timeout_ns();
    knock->unanswered += passed < RENEW ? passed : RENEW;
    if (!limit || knock->unanswered < limit || !knock->port.is_silent || !knock->host.is_silent)
        return false;
    vanished(peer, knock->unanswered);
    return true;
}

bool um_net_knock(struct um_net_peer *peer, uint64_t now)
{
    UM_UNCANCELLED;
    struct um_net_knock *knock = &peer->knock;
    if (!knock->is_asking && now < knock->at)
        return false;
    if (!knock->is_asking)
        asking_begins(knock, now);
    const uint64_t passed = now - knock->looked_at;
    knock->looked_at = now;
    if (passed > RENEW) /* this process did not look for long: what it knew is out of date */
        knock->port.is_silent = knock->host.is_silent = false;
    enum answer answer = ask(peer, 0, &knock->port, now);
    if (answer == REFUSED)
        return true;
    if (answer == NONE && now - knock->asked_at >= HOST_AFTER) {
        answer = ask(peer, CLOSED_PORT, &knock->host, now);
        answer = answer == REFUSED ? THERE : answer;
    }
    if (answer == THERE)
        answered(knock, now);
    return answer == NONE && is_over(peer, passed);
}
