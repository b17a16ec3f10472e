/*
 * The side of contact.h that asks: a connection to the peer's socket, our hello, its reply. While it waits for the
 * reply it serves, because the peer may ask at the same time.
 *
 * Owns nothing. Threading: machine.h.
 */
#include "machine/shm/contact/contact.h"

#include "base/cancel.h"
#include "base/log.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

static int contact_start(struct um_shm_contacts *cs, const struct um_addr *addr, struct um_shm_contact **contact_p)
{
    int fd = um_shm_contact_connect(cs->port, addr);
    if (fd < 0)
        return fd;
    struct um_shm_contact *c = um_shm_contact_new(cs, addr);
    if (!c) {
        close(fd);
        return -ENOMEM;
    }
    socklen_t len = sizeof(c->listener);
    c->out = fd;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &c->listener, &len) != 0)
        c->listener = -1;
    int ret = um_shm_contact_introduce(cs, fd, c);
    if (ret) {
        um_shm_contact_drop(cs, c);
        return ret == -ETOOMANYREFS || ret == -EAGAIN ? -EAGAIN : -ECONNREFUSED;
    }
    um_shm_contact_watch(cs, fd);
    *contact_p = c;
    return 0;
}

/* Logs a refusal. Returns the error that it means here. */
static int reply_refused(const struct um_shm_contact *c, const struct um_shm_contact_wire *reply)
{
    static struct um_log_limit other, refused;
    if (reply->version != UM_WIRE_VERSION)
        um_log_limited(&other, UM_LOG_WARN,
                       "a peer speaks wire version %u, this process %u: use the same unimem in every process",
                       reply->version, (unsigned)UM_WIRE_VERSION);
    else if (reply->status != -ECONNREFUSED)
        um_log_limited(&refused, UM_LOG_WARN,
                       "the peer (pid %u there) in another pid namespace refused the contact: %s",
                       um_shm_pid(um_shm_addr_of(&c->addr)),
                       reply->status == -ENOSPC ? "it has as many peers as FI_UNIMEM_LANES allows"
                       : reply->status == -EINVAL
                           ? "what was passed is not a port's, or it is short of descriptors (ulimit -n there)"
                           : "it takes this process for another one");
    return reply->status == -EPROTO ? -EPROTO : -ECONNREFUSED;
}

/* Keeps the files that came with the reply; on an error closes them. */
static int reply_check(struct um_shm_contact *c, const struct um_shm_contact_wire *reply, int *files)
{
    const bool is_it = memcmp(&reply->from, &c->addr, sizeof(c->addr)) == 0;
    int ret = reply->status ? reply_refused(c, reply) : is_it ? um_shm_contact_files_check(files) : -EPROTO;
    if (ret == -EINVAL)
        ret = -EPROTO;
    if (ret)
        um_shm_contact_files_close(files);
    else
        um_shm_contact_know(c, reply, files);
    return ret;
}

/* Takes the reply if it is there. 0, -EAGAIN, or the error that ends the contact. */
static int reply_take(struct um_shm_contacts *cs, struct um_shm_contact *c)
{
    static struct um_log_limit liar, full;
    struct um_shm_contact_wire reply;
    int files[UM_CONTACT_FILES];
    int ret = um_shm_contact_receive(c->out, &reply, files);
    if (ret == -EAGAIN)
        return um_shm_contact_is_ended(c->listener) ? -ECONNREFUSED : -EAGAIN;
    if (ret == -ECONNRESET) { /* hung up without a reply: the next try finds out whether it is gone */
        um_shm_contact_drop(cs, c);
        return -EAGAIN;
    }
    if (ret == 0)
        ret = reply_check(c, &reply, files);
    if (ret == -EPROTO)
        um_log_limited(&liar, UM_LOG_WARN, "the peer (pid %u there) in another pid namespace passed what is not a port",
                       um_shm_pid(um_shm_addr_of(&c->addr)));
    else if (ret == -EMFILE)
        um_log_limited(&full, UM_LOG_WARN,
                       "no descriptors are left for what a peer of another pid namespace passes; raise the limit "
                       "of open files (ulimit -n)");
    return ret;
}

int um_shm_contact_get(struct um_shm_contacts *cs, const struct um_addr *addr, struct um_shm_contact **contact_p)
{
    UM_UNCANCELLED;
    struct um_shm_contact *c = um_shm_contact_find(cs, addr);
    int ret = c ? 0 : contact_start(cs, addr, &c);
    if (ret == 0 && !c->known) {
        um_shm_contacts_serve(cs); /* the peer may ask us at the same time; this may end c */
        c = um_shm_contact_find(cs, addr);
        ret = !c ? -EAGAIN : c->known ? 0 : reply_take(cs, c);
        if (ret && ret != -EAGAIN)
            um_shm_contact_drop(cs, c);
    }
    if (ret == 0)
        *contact_p = c;
    return ret;
}

/* Connects without a hello: that would pass descriptors to a peer to which perhaps nothing is ever sent. */
bool um_shm_contact_is_here(const struct um_shm_contacts *cs, const struct um_addr *addr)
{
    UM_UNCANCELLED;
    if (um_shm_contact_find(cs, addr))
        return true;
    int fd = um_shm_contact_connect(cs->port, addr);
    if (fd >= 0)
        close(fd);
    return fd >= 0 || fd == -EAGAIN;
}

bool um_shm_contact_is_alive(struct um_shm_contacts *cs, const struct um_addr *addr)
{
    UM_UNCANCELLED;
    struct um_shm_contact *c = um_shm_contact_find(cs, addr);
    if (c && um_shm_contact_is_over(c)) {
        um_shm_contact_drop(cs, c);
        c = NULL;
    }
    if (c && c->known)
        return true;
    int ret = um_shm_contact_get(cs, addr, &c);
    return ret != -ECONNREFUSED && ret != -EPROTO && ret != -EACCES;
}
