/*
 * Contacts with peers of other pid namespaces (contact.h): the table of them, and opening and closing it.
 *
 * Owns: struct um_shm_contacts. What a peer passes is checked before it is kept, and its memory again whenever it is
 * mapped: seals and size (peer.c), the port's nonce (mem/link.c). A user other than ours gets nothing. Threading:
 * machine.h.
 */
#include "machine/shm/contact/contact.h"

#include "base/cancel.h"
#include "base/log.h"
#include "machine/shm/adopt/adopt.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

void um_shm_contact_watch(const struct um_shm_contacts *cs, int fd)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.fd = fd};
    (void)epoll_ctl(cs->port->wait_set, EPOLL_CTL_ADD, fd, &event); /* otherwise the tick checks */
}

void um_shm_contact_fd_drop(const struct um_shm_contacts *cs, int fd)
{
    if (fd < 0)
        return;
    (void)epoll_ctl(cs->port->wait_set, EPOLL_CTL_DEL, fd, NULL);
    close(fd);
}

/* ---- the table ---- */

struct um_shm_contact *um_shm_contact_find(const struct um_shm_contacts *cs, const struct um_addr *addr)
{
    /* NOLINTBEGIN(clang-analyzer-unix.Malloc): a contact that was dropped is not in the list any more */
    for (struct um_list *l = cs->all.next; l != &cs->all; l = l->next) {
        struct um_shm_contact *c = UM_CONTAINER(l, struct um_shm_contact, node);
        if (memcmp(&c->addr, addr, sizeof(*addr)) == 0)
            return c;
    }
    /* NOLINTEND(clang-analyzer-unix.Malloc) */
    return NULL;
}

struct um_shm_contact *um_shm_contact_new(struct um_shm_contacts *cs, const struct um_addr *addr)
{
    struct um_shm_contact *c = cs->count < cs->port->lanes ? calloc(1, sizeof(*c)) : NULL;
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

void um_shm_contact_drop(struct um_shm_contacts *cs, struct um_shm_contact *c)
{
    um_shm_contact_fd_drop(cs, c->out);
    um_shm_contact_fd_drop(cs, c->in);
    if (c->listener >= 0)
        close(c->listener);
    um_shm_contact_files_close(c->file);
    um_list_unlink(&c->node);
    cs->count--;
    free(c);
}

/* A closed port hangs up. The lock of a process that ended or became another program is released, even if a child still
 * has the socket. */
bool um_shm_contact_is_over(const struct um_shm_contact *c)
{
    return um_shm_contact_is_hung_up(c->in) || (c->known && um_shm_contact_is_hung_up(c->out)) ||
           um_shm_contact_is_ended(c->listener) || um_shm_contact_life_is_over(c->file[UM_CONTACT_LIFE]);
}

/* Makes no call that the server of a file system (as with FUSE) would have to answer: it might never do so. */
int um_shm_contact_files_check(const int *file)
{
    struct rlimit most;
    int seals = file[UM_CONTACT_MEMORY] < 0 ? -1 : fcntl(file[UM_CONTACT_MEMORY], F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || file[UM_CONTACT_WAKE] < 0 ||
        fcntl(file[UM_CONTACT_WAKE], F_GETPIPE_SZ) <= 0 ||
        (file[UM_CONTACT_LIFE] >= 0 && fcntl(file[UM_CONTACT_LIFE], F_GET_SEALS) < 0))
        return -EINVAL;
    /* The last quarter of the descriptors is the program's. */
    for (int f = 0; f < UM_CONTACT_FILES && getrlimit(RLIMIT_NOFILE, &most) == 0; f++) {
        if (file[f] >= 0 && (rlim_t)file[f] >= most.rlim_cur - most.rlim_cur / 4)
            return -EMFILE;
    }
    return 0;
}

/* Keeps the peer's files, or closes them when there are some already. */
void um_shm_contact_know(struct um_shm_contact *c, const struct um_shm_contact_wire *wire, int *files)
{
    if (c->known) {
        um_shm_contact_files_close(files);
        return;
    }
    memcpy(c->file, files, sizeof(c->file));
    c->own = wire->number;
    c->known = true;
}

/* Sends this port's address and files. */
int um_shm_contact_introduce(const struct um_shm_contacts *cs, int fd, const struct um_shm_contact *c)
{
    const struct um_mem_port *port = cs->port;
    const struct um_mem_space *space = port->space;
    struct um_shm_contact_wire wire = {
        .magic = UM_CONTACT_MAGIC, .version = UM_WIRE_VERSION, .to = c->addr, .from = port->addr, .number = c->number};
    int adopted = space ? um_shm_adopt_fd() : -1;
    const int files[UM_CONTACT_FILES] = {
        [UM_CONTACT_MEMORY] = ((const struct um_shm_port *)port->mapper_state)->memory_fd,
        [UM_CONTACT_WAKE] = port->wait_write,
        [UM_CONTACT_LIFE] = cs->life,
        [UM_CONTACT_SPACE] = space ? (int)space->handle : -1,
        [UM_CONTACT_ADOPTED] = adopted < 0 ? -1 : adopted,
    };
    return um_shm_contact_send(fd, &wire, files);
}

bool um_shm_contact_number_is_alive(struct um_shm_contacts *cs, uint32_t number)
{
    UM_UNCANCELLED;
    for (struct um_list *l = cs->all.next; l != &cs->all; l = l->next) {
        const struct um_shm_contact *c = UM_CONTAINER(l, struct um_shm_contact, node);
        if (c->number == number)
            return !um_shm_contact_is_over(c);
    }
    return false;
}

/* ---- the port's ---- */

static pthread_mutex_t listening_lock = PTHREAD_MUTEX_INITIALIZER;
static struct um_list listening = {&listening, &listening};

static void fork_prepare(void)
{
    pthread_mutex_lock(&listening_lock);
}

static void fork_in_parent(void)
{
    pthread_mutex_unlock(&listening_lock);
}

/* Closes the listening sockets in a forked child. Otherwise, if the parent becomes another program, a peer that asks it
 * would wait for ever. */
static void fork_in_child(void)
{
    UM_UNCANCELLED;
    for (struct um_list *l = listening.next; l != &listening; l = l->next) {
        struct um_shm_contacts *cs = UM_CONTAINER(l, struct um_shm_contacts, of_process);
        close(cs->listening);
        cs->listening = -1;
    }
    pthread_mutex_unlock(&listening_lock);
}

static void listening_watch_forks(void)
{
    (void)pthread_atfork(fork_prepare, fork_in_parent, fork_in_child);
}

static void listening_add(struct um_shm_contacts *cs)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, listening_watch_forks);
    pthread_mutex_lock(&listening_lock);
    um_list_append(&listening, &cs->of_process);
    pthread_mutex_unlock(&listening_lock);
}

static void listening_remove(struct um_shm_contacts *cs)
{
    pthread_mutex_lock(&listening_lock);
    um_list_unlink(&cs->of_process);
    pthread_mutex_unlock(&listening_lock);
}

int um_shm_contacts_open(struct um_mem_port *port, struct um_shm_contacts **contacts_p)
{
    UM_UNCANCELLED;
    struct um_shm_contacts *cs = calloc(1, sizeof(*cs));
    if (!cs)
        return -ENOMEM;
    cs->port = port;
    um_list_init(&cs->all);
    for (int i = 0; i < UM_CONTACT_HALVES; i++)
        cs->half[i].fd = -1;
    int ret = cs->life = um_shm_contact_life_open();
    if (ret < 0)
        goto free_contacts;
    ret = cs->listening = um_shm_contact_listen(port, &cs->name);
    if (ret < 0)
        goto close_life;
    listening_add(cs);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = port->wait_read};
    port->wait_set = epoll_create1(EPOLL_CLOEXEC);
    if (port->wait_set < 0 || epoll_ctl(port->wait_set, EPOLL_CTL_ADD, port->wait_read, &event) != 0) {
        ret = -errno;
        um_log(UM_LOG_WARN, "no epoll set: %s; raise the limit of open files (ulimit -n)", strerror(-ret));
        um_shm_contacts_close(cs);
        return ret;
    }
    um_shm_contact_watch(cs, cs->listening);
    *contacts_p = cs;
    return 0;

close_life:
    close(cs->life);
free_contacts:
    free(cs);
    return ret;
}

void um_shm_contacts_close(struct um_shm_contacts *cs)
{
    UM_UNCANCELLED;
    struct um_list *first;
    listening_remove(cs);
    if (cs->name.sun_path[0])
        unlink(cs->name.sun_path);
    /* A forked child may have these sockets, too: nobody must find the port through it. */
    shutdown(cs->listening, SHUT_RDWR);
    while ((first = um_list_first(&cs->all)) != NULL) {
        struct um_shm_contact *c = UM_CONTAINER(first, struct um_shm_contact, node);
        shutdown(c->out >= 0 ? c->out : c->in, SHUT_RDWR);
        if (c->out >= 0 && c->in >= 0)
            shutdown(c->in, SHUT_RDWR);
        um_shm_contact_drop(cs, c);
    }
    for (int i = 0; i < UM_CONTACT_HALVES; i++)
        um_shm_contact_fd_drop(cs, cs->half[i].fd);
    um_shm_contact_fd_drop(cs, cs->listening);
    close(cs->life);
    if (cs->port->wait_set >= 0)
        close(cs->port->wait_set);
    cs->port->wait_set = -1;
    free(cs);
}
