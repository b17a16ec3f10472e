/*
 * The side of contact.h that is asked: connections, hellos, replies; and the search for contacts that are over.
 *
 * Owns: the connections that have not said hello. All is bounded: the number of these and the time that they stay, the
 * number of those accepted in one call, the number of contacts. Threading: machine.h.
 */
#include "machine/shm/contact/contact.h"

#include "base/cancel.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define UM_HALF_NS  UINT64_C(5000000000)
#define UM_SWEEP_NS UINT64_C(200000000)

enum { UM_ACCEPTS = 32, UM_EVENTS = 32, UM_SWEEP_CONTACTS = 16 };

static void refuse(int fd, const struct um_shm_contact_wire *hello, const struct um_addr *own, int status)
{
    struct um_shm_contact_wire wire = {
        .magic = UM_CONTACT_MAGIC, .version = UM_WIRE_VERSION, .status = status, .to = hello->from, .from = *own};
    (void)um_shm_contact_send(fd, &wire, NULL);
}

/* 0, or why this hello is refused. */
static int hello_check(struct um_shm_contacts *cs, const struct um_shm_contact_wire *hello, const int *files)
{
    const struct um_shm_addr *from = um_shm_addr_of(&hello->from), *own = um_shm_addr_of(&cs->port->addr);
    struct um_addr part;
    if (hello->version != UM_WIRE_VERSION || um_addr_header_check(cs->port->port.machine, &hello->from, false) != 0)
        return -EPROTO;
    if (memcmp(&hello->to, &cs->port->addr, sizeof(hello->to)) != 0)
        return -ECONNREFUSED;
    (void)um_addr_part(cs->port->port.machine, &hello->from, &part);
    if (memcmp(&part, &hello->from, sizeof(part)) != 0 || from->boot != own->boot || from->nonce == 0 ||
        from->pid_space == own->pid_space)
        return -EPROTO;
    return um_shm_contact_files_check(files) ? -EINVAL : 0;
}

/* Handles a hello: makes or completes the contact. True if fd is kept. */
static bool hello_take(struct um_shm_contacts *cs, int fd, const struct um_shm_contact_wire *hello, int *files)
{
    int status = hello_check(cs, hello, files);
    struct um_shm_contact *c = status ? NULL : um_shm_contact_find(cs, &hello->from);
    if (c && um_shm_contact_is_over(c)) {
        um_shm_contact_drop(cs, c);
        c = NULL;
    }
    if (status == 0 && c && c->in >= 0)
        status = -EALREADY;
    if (status == 0 && !c && !(c = um_shm_contact_new(cs, &hello->from)))
        status = -ENOSPC;
    if (status) {
        um_shm_contact_files_close(files);
        refuse(fd, hello, &cs->port->addr, status);
        return false;
    }
    um_shm_contact_know(c, hello, files);
    if (um_shm_contact_introduce(cs, fd, c) == 0) {
        c->in = fd;
        return true;
    }
    /* The peer is gone, or too many descriptors are in flight (unix(7), ETOOMANYREFS): it is hung up on, and asks
     * again. */
    if (c->out < 0)
        um_shm_contact_drop(cs, c);
    return false;
}

/* Looks whether a connection has said hello. */
static void half_look(struct um_shm_contacts *cs, struct um_shm_contact_half *half, uint64_t now)
{
    struct um_shm_contact_wire hello;
    int files[UM_CONTACT_FILES];
    int ret = um_shm_contact_receive(half->fd, &hello, files);
    if (ret == -EAGAIN && now < half->deadline)
        return;
    if (ret == -EMFILE) /* else the peer would ask again for ever */
        refuse(half->fd, &hello, &cs->port->addr, -EINVAL);
    if (ret != 0 || !hello_take(cs, half->fd, &hello, files))
        um_shm_contact_fd_drop(cs, half->fd);
    half->fd = -1;
}

/* A place for a new connection; if there is none, the oldest one is closed. */
static struct um_shm_contact_half *half_place(struct um_shm_contacts *cs)
{
    struct um_shm_contact_half *oldest = &cs->half[0];
    for (int i = 0; i < UM_CONTACT_HALVES; i++) {
        if (cs->half[i].fd < 0)
            return &cs->half[i];
        if (cs->half[i].deadline < oldest->deadline)
            oldest = &cs->half[i];
    }
    um_shm_contact_fd_drop(cs, oldest->fd);
    oldest->fd = -1;
    return oldest;
}

/* Closes what belongs to ports that are gone, some at a time. */
static void contacts_sweep(struct um_shm_contacts *cs, uint64_t now)
{
    if (now < cs->sweep_at)
        return;
    cs->sweep_at = now + UM_SWEEP_NS;
    for (uint32_t i = cs->count < UM_SWEEP_CONTACTS ? cs->count : UM_SWEEP_CONTACTS; i > 0; i--) {
        struct um_shm_contact *c = UM_CONTAINER(um_list_first(&cs->all), struct um_shm_contact, node);
        um_list_unlink(&c->node);
        um_list_append(&cs->all, &c->node);
        if (um_shm_contact_is_over(c))
            um_shm_contact_drop(cs, c);
    }
}

static void stranger_log(struct um_shm_contacts *cs)
{
    if (!cs->stranger_logged)
        um_log(UM_LOG_WARN, "another user's process asked for this endpoint's memory and was refused: run both as the "
                            "same user, in the same user namespace");
    cs->stranger_logged = true;
}

/* Takes new connections. Returns whether some may be left. */
static bool connections_take(struct um_shm_contacts *cs, uint64_t now)
{
    for (int i = 0; i < UM_ACCEPTS; i++) {
        int fd = accept4(cs->listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            const bool is_full = errno == EMFILE || errno == ENFILE;
            if (is_full && !cs->full_logged)
                um_log(UM_LOG_WARN, "no descriptor is left for a peer of another pid namespace, which waits: raise the "
                                    "limit of open files (ulimit -n, fs.file-max)");
            cs->full_logged = cs->full_logged || is_full;
            return is_full;
        }
        if (!um_shm_contact_is_own_user(fd)) {
            stranger_log(cs);
            close(fd);
            continue;
        }
        struct um_shm_contact_half *half = half_place(cs);
        *half = (struct um_shm_contact_half){.fd = fd, .deadline = now + UM_HALF_NS};
        um_shm_contact_watch(cs, fd);
        half_look(cs, half, now);
    }
    return true;
}

void um_shm_contacts_serve(struct um_shm_contacts *cs)
{
    UM_UNCANCELLED;
    struct epoll_event events[UM_EVENTS];
    (void)epoll_wait(cs->port->wait_set, events, UM_EVENTS, 0); /* what was new is looked at below */
    const uint64_t now = um_clock_ns();
    if (connections_take(cs, now))
        um_mem_kick(&cs->port->port); /* the socket tells of a connection once: those left must end the next sleep */
    for (int i = 0; i < UM_CONTACT_HALVES; i++) {
        if (cs->half[i].fd >= 0)
            half_look(cs, &cs->half[i], now);
    }
    contacts_sweep(cs, now);
}
