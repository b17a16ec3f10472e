/*
 * Contacts with peers of other pid namespaces (contact.h): who asked, who was asked, whose descriptors are here.
 *
 * Owns: struct um_contacts. What a peer passes is checked before it is kept, and its memory again whenever it is
 * mapped (mapper.c): seals, size, the port's nonce. A user other than ours gets nothing. Threading: machine.h.
 */
#include "machine/shm/contact.h"

#include "base/clock.h"
#include "base/log.h"
#include "machine/shm/adopt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

#define UM_HALF_NS UINT64_C(5000000000)

#define UM_SWEEP_NS UINT64_C(200000000)

enum { UM_ACCEPTS = 32, UM_EVENTS = 32, UM_SWEEP_CONTACTS = 16 };

static void watch(const struct um_contacts *cs, int fd)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.fd = fd};
    (void)epoll_ctl(cs->port->wait_set, EPOLL_CTL_ADD, fd, &event); /* else the tick looks */
}

static void unwatch_close(const struct um_contacts *cs, int fd)
{
    if (fd < 0)
        return;
    (void)epoll_ctl(cs->port->wait_set, EPOLL_CTL_DEL, fd, NULL);
    close(fd);
}

/* ---- the table ---- */

static struct um_contact *contact_find(const struct um_contacts *cs, const struct um_addr *addr)
{
    for (struct um_list *l = cs->all.next; l != &cs->all; l = l->next) {
        struct um_contact *c = UM_CONTAINER(l, struct um_contact, node);
        if (memcmp(&c->addr, addr, sizeof(*addr)) == 0)
            return c;
    }
    return NULL;
}

static struct um_contact *contact_new(struct um_contacts *cs, const struct um_addr *addr)
{
    struct um_contact *c = cs->count < cs->port->lanes ? calloc(1, sizeof(*c)) : NULL;
    if (!c)
        return NULL;
    c->addr = *addr;
    c->number = ++cs->numbers;
    c->out = c->in = c->listener = -1;
    for (int f = 0; f < UM_CONTACT_FILES; f++)
        c->file[f] = -1;
    um_list_append(&cs->all, &c->node);
    cs->count++;
    return c;
}

static void contact_drop(struct um_contacts *cs, struct um_contact *c)
{
    unwatch_close(cs, c->out);
    unwatch_close(cs, c->in);
    if (c->listener >= 0)
        close(c->listener);
    um_contact_files_close(c->file);
    um_list_unlink(&c->node);
    cs->count--;
    free(c);
}

/* A port that closed hangs up; a process that died ends, even where a child of it still has the socket. */
static bool contact_is_over(const struct um_contact *c)
{
    return um_contact_is_hung_up(c->in) || (c->known && um_contact_is_hung_up(c->out)) ||
           um_contact_is_ended(c->listener) || um_contact_is_ended(c->file[UM_CONTACT_PROCESS]);
}

/* Can these be a port's? Nothing is asked of the files that another file system's server would have to answer. */
static bool files_are_good(const int *file)
{
    struct rlimit most;
    int seals = file[UM_CONTACT_MEMORY] < 0 ? -1 : fcntl(file[UM_CONTACT_MEMORY], F_GET_SEALS);
    bool good = seals >= 0 && seals & F_SEAL_SHRINK && file[UM_CONTACT_WAKE] >= 0 &&
                fcntl(file[UM_CONTACT_WAKE], F_GETPIPE_SZ) > 0;
    /* The last quarter of the descriptors is the program's. */
    for (int f = 0; good && f < UM_CONTACT_FILES && getrlimit(RLIMIT_NOFILE, &most) == 0; f++)
        good = file[f] < 0 || (rlim_t)file[f] < most.rlim_cur - most.rlim_cur / 4;
    return good;
}

/* Keeps the peer's files, or closes them when there are some already. */
static void contact_know(struct um_contact *c, const struct um_contact_wire *wire, int *files)
{
    if (c->known) {
        um_contact_files_close(files);
        return;
    }
    memcpy(c->file, files, sizeof(c->file));
    c->own = wire->number;
    c->known = true;
}

/* Says who we are, with our files. */
static int own_send(const struct um_contacts *cs, int fd, const struct um_contact *c)
{
    const struct um_mem_port *port = cs->port;
    const struct um_space *space = port->config.space;
    struct um_contact_wire wire = {
        .magic = UM_CONTACT_MAGIC, .version = UM_WIRE_VERSION, .to = c->addr, .from = port->addr, .number = c->number};
    int adopted = space ? um_adopt_fd() : -1;
    const int process = (int)syscall(SYS_pidfd_open, getpid(), 0);
    const int files[UM_CONTACT_FILES] = {
        [UM_CONTACT_MEMORY] = ((const struct um_shm_port *)port->mapper_state)->memory_fd,
        [UM_CONTACT_WAKE] = port->wait_write,
        [UM_CONTACT_PROCESS] = process < 0 ? -1 : process,
        [UM_CONTACT_SPACE] = space ? (int)space->handle : -1,
        [UM_CONTACT_ADOPTED] = adopted < 0 ? -1 : adopted,
    };
    int ret = um_contact_send(fd, &wire, files);
    if (process >= 0)
        close(process);
    return ret;
}

/* ---- the side that is asked ---- */

static void refuse(int fd, const struct um_contact_wire *hello, const struct um_addr *own, int status)
{
    struct um_contact_wire wire = {
        .magic = UM_CONTACT_MAGIC, .version = UM_WIRE_VERSION, .status = status, .to = hello->from, .from = *own};
    (void)um_contact_send(fd, &wire, NULL);
}

/* 0, or why this hello is refused. */
static int hello_check(struct um_contacts *cs, const struct um_contact_wire *hello, const int *files)
{
    const struct um_shm_addr *from = um_shm_addr_of(&hello->from), *own = um_shm_addr_of(&cs->port->addr);
    if (hello->version != UM_WIRE_VERSION || from->version != UM_WIRE_VERSION)
        return -EPROTO;
    if (memcmp(&hello->to, &cs->port->addr, sizeof(hello->to)) != 0)
        return -ECONNREFUSED;
    if (from->machine != UM_SHM_MACHINE_ID || from->boot != own->boot || from->nonce == 0 ||
        from->pid_space == own->pid_space)
        return -EPROTO;
    return files_are_good(files) ? 0 : -EINVAL;
}

/* A hello came: makes or completes the contact. Whether fd is kept. */
static bool hello_take(struct um_contacts *cs, int fd, const struct um_contact_wire *hello, int *files)
{
    int status = hello_check(cs, hello, files);
    struct um_contact *c = status ? NULL : contact_find(cs, &hello->from);
    if (c && contact_is_over(c)) {
        contact_drop(cs, c);
        c = NULL;
    }
    if (status == 0 && c && c->in >= 0)
        status = -EALREADY;
    if (status == 0 && !c && !(c = contact_new(cs, &hello->from)))
        status = -ENOSPC;
    if (status) {
        um_contact_files_close(files);
        refuse(fd, hello, &cs->port->addr, status);
        return false;
    }
    contact_know(c, hello, files);
    c->in = fd;
    (void)own_send(cs, fd, c); /* gone meanwhile: the hang-up tells */
    return true;
}

/* Looks whether a connection has said hello. */
static void half_look(struct um_contacts *cs, struct um_contact_half *half, uint64_t now)
{
    struct um_contact_wire hello;
    int files[UM_CONTACT_FILES];
    int ret = um_contact_receive(half->fd, &hello, files);
    if (ret == -EAGAIN && now < half->deadline)
        return;
    if (ret != 0 || !hello_take(cs, half->fd, &hello, files))
        unwatch_close(cs, half->fd);
    half->fd = -1;
}

/* A place for a new one; the oldest makes room. */
static struct um_contact_half *half_place(struct um_contacts *cs)
{
    struct um_contact_half *oldest = &cs->half[0];
    for (int i = 0; i < UM_CONTACT_HALVES; i++) {
        if (cs->half[i].fd < 0)
            return &cs->half[i];
        if (cs->half[i].deadline < oldest->deadline)
            oldest = &cs->half[i];
    }
    unwatch_close(cs, oldest->fd);
    oldest->fd = -1;
    return oldest;
}

/* Closes what belongs to ports that are gone, some at a time. */
static void contacts_sweep(struct um_contacts *cs, uint64_t now)
{
    if (now < cs->sweep_at)
        return;
    cs->sweep_at = now + UM_SWEEP_NS;
    for (uint32_t i = cs->count < UM_SWEEP_CONTACTS ? cs->count : UM_SWEEP_CONTACTS; i > 0; i--) {
        struct um_contact *c = UM_CONTAINER(um_list_first(&cs->all), struct um_contact, node);
        um_list_unlink(&c->node);
        um_list_append(&cs->all, &c->node);
        if (contact_is_over(c))
            contact_drop(cs, c);
    }
}

static void stranger_log(struct um_contacts *cs)
{
    if (!cs->stranger_logged)
        um_log(UM_LOG_WARN, "another user's process asked for this endpoint's memory and was refused: run both as the "
                            "same user, in the same user namespace");
    cs->stranger_logged = true;
}

void um_contacts_serve(struct um_contacts *cs)
{
    struct epoll_event events[UM_EVENTS];
    (void)epoll_wait(cs->port->wait_set, events, UM_EVENTS, 0); /* what was new is looked at below */
    const uint64_t now = um_clock_ns();
    for (int i = 0; i < UM_ACCEPTS; i++) {
        int fd = accept4(cs->listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EMFILE && !cs->full_logged)
                um_log(UM_LOG_WARN, "no descriptor is left for a peer of another pid namespace, which waits: raise the "
                                    "limit of open files (ulimit -n)");
            cs->full_logged = cs->full_logged || errno == EMFILE;
            break;
        }
        if (!um_contact_is_own_user(fd)) {
            stranger_log(cs);
            close(fd);
            continue;
        }
        struct um_contact_half *half = half_place(cs);
        *half = (struct um_contact_half){.fd = fd, .deadline = now + UM_HALF_NS};
        watch(cs, fd);
        half_look(cs, half, now);
    }
    for (int i = 0; i < UM_CONTACT_HALVES; i++) {
        if (cs->half[i].fd >= 0)
            half_look(cs, &cs->half[i], now);
    }
    contacts_sweep(cs, now);
}

/* ---- the side that asks ---- */

static int contact_start(struct um_contacts *cs, const struct um_addr *addr, struct um_contact **contact_p)
{
    int fd = um_contact_connect(cs->port, addr);
    if (fd < 0)
        return fd;
    struct um_contact *c = contact_new(cs, addr);
    if (!c) {
        close(fd);
        return -ENOMEM;
    }
    socklen_t len = sizeof(c->listener);
    c->out = fd;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &c->listener, &len) != 0)
        c->listener = -1;
    int ret = own_send(cs, fd, c);
    if (ret) {
        contact_drop(cs, c);
        return ret == -ETOOMANYREFS || ret == -EAGAIN ? -EAGAIN : -ECONNREFUSED;
    }
    watch(cs, fd);
    *contact_p = c;
    return 0;
}

/* What the refusal means here; logged. */
static int reply_refused(const struct um_contact *c, const struct um_contact_wire *reply)
{
    if (reply->version != UM_WIRE_VERSION)
        um_log(UM_LOG_WARN, "a peer speaks wire version %u, this process %u: use the same unimem in every process",
               reply->version, (unsigned)UM_WIRE_VERSION);
    else if (reply->status != -ECONNREFUSED)
        um_log(UM_LOG_WARN, "the peer (pid %u there) in another pid namespace refused the contact: %s",
               um_shm_addr_of(&c->addr)->pid,
               reply->status == -ENOSPC ? "it has as many peers as FI_UNIMEM_LANES allows"
               : reply->status == -EINVAL
                   ? "what was passed is not a port's, or it is short of descriptors (ulimit -n there)"
                   : "it takes this process for another one");
    return reply->status == -EPROTO ? -EPROTO : -ECONNREFUSED;
}

/* Takes the reply if it is there. 0, -EAGAIN, or the error that ends the contact. */
static int reply_take(struct um_contacts *cs, struct um_contact *c)
{
    struct um_contact_wire reply;
    int files[UM_CONTACT_FILES];
    int ret = um_contact_receive(c->out, &reply, files);
    if (ret == -EAGAIN)
        return um_contact_is_ended(c->listener) ? -ECONNREFUSED : -EAGAIN;
    if (ret == -ECONNRESET) { /* hung up without a word: the next try tells whether it is gone */
        contact_drop(cs, c);
        return -EAGAIN;
    }
    if (ret == 0 && reply.status)
        ret = reply_refused(c, &reply);
    else if (ret == 0 && (memcmp(&reply.from, &c->addr, sizeof(c->addr)) != 0 || !files_are_good(files)))
        ret = -EPROTO;
    if (ret) {
        if (ret == -EPROTO)
            um_log(UM_LOG_WARN, "the peer (pid %u there) in another pid namespace passed what is not a port",
                   um_shm_addr_of(&c->addr)->pid);
        return ret;
    }
    contact_know(c, &reply, files);
    return 0;
}

int um_contact_get(struct um_contacts *cs, const struct um_addr *addr, struct um_contact **contact_p)
{
    struct um_contact *c = contact_find(cs, addr);
    int ret = c ? 0 : contact_start(cs, addr, &c);
    if (ret == 0 && !c->known) {
        um_contacts_serve(cs); /* it may ask us at the same time; may end c */
        c = contact_find(cs, addr);
        ret = !c ? -EAGAIN : c->known ? 0 : reply_take(cs, c);
        if (ret && ret != -EAGAIN)
            contact_drop(cs, c);
    }
    if (ret == 0)
        *contact_p = c;
    return ret;
}

bool um_contact_is_alive(struct um_contacts *cs, const struct um_addr *addr)
{
    struct um_contact *c = contact_find(cs, addr);
    if (c && contact_is_over(c)) {
        contact_drop(cs, c);
        c = NULL;
    }
    if (c && c->known)
        return true;
    int ret = um_contact_get(cs, addr, &c);
    return ret != -ECONNREFUSED && ret != -EPROTO && ret != -EACCES;
}

bool um_contact_number_is_alive(struct um_contacts *cs, uint32_t number)
{
    for (struct um_list *l = cs->all.next; l != &cs->all; l = l->next) {
        const struct um_contact *c = UM_CONTAINER(l, struct um_contact, node);
        if (c->number == number)
            return !contact_is_over(c);
    }
    return false;
}

/* ---- the port's ---- */

int um_contacts_open(struct um_mem_port *port, struct um_contacts **contacts_p)
{
    struct um_contacts *cs = calloc(1, sizeof(*cs));
    if (!cs)
        return -ENOMEM;
    cs->port = port;
    um_list_init(&cs->all);
    for (int i = 0; i < UM_CONTACT_HALVES; i++)
        cs->half[i].fd = -1;
    int ret = cs->listening = um_contact_listen(port, &cs->name);
    if (ret < 0)
        goto free_contacts;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = port->wait_read};
    port->wait_set = epoll_create1(EPOLL_CLOEXEC);
    if (port->wait_set < 0 || epoll_ctl(port->wait_set, EPOLL_CTL_ADD, port->wait_read, &event) != 0) {
        ret = -errno;
        um_log(UM_LOG_WARN, "no epoll set: %s; raise the limit of open files (ulimit -n)", strerror(-ret));
        um_contacts_close(cs);
        return ret;
    }
    watch(cs, cs->listening);
    *contacts_p = cs;
    return 0;

free_contacts:
    free(cs);
    return ret;
}

void um_contacts_close(struct um_contacts *cs)
{
    struct um_list *first;
    if (cs->name.sun_path[0])
        unlink(cs->name.sun_path);
    /* A forked child may have them too: nobody shall find the port through it. */
    shutdown(cs->listening, SHUT_RDWR);
    while ((first = um_list_first(&cs->all)) != NULL) {
        struct um_contact *c = UM_CONTAINER(first, struct um_contact, node);
        shutdown(c->out >= 0 ? c->out : c->in, SHUT_RDWR);
        if (c->out >= 0 && c->in >= 0)
            shutdown(c->in, SHUT_RDWR);
        contact_drop(cs, c);
    }
    for (int i = 0; i < UM_CONTACT_HALVES; i++)
        unwatch_close(cs, cs->half[i].fd);
    unwatch_close(cs, cs->listening);
    if (cs->port->wait_set >= 0)
        close(cs->port->wait_set);
    cs->port->wait_set = -1;
    free(cs);
}
