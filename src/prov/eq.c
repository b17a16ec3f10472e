/*
 * Event queues: what AV insertions with FI_EVENT report, and what the application writes itself.
 *
 * Owns: struct um_prov_eq and the queued events. Threading: a mutex of its own, because it belongs to the fabric, not
 * to a domain.
 */
#include "prov/prov.h"

#include "base/cancel.h"

#include <stdlib.h>
#include <string.h>

struct um_prov_eq_event {
    struct um_list link;
    uint32_t event;
    int err; /* fabric errno, or 0 */
    size_t len;
    unsigned char data[]; /* of an error event: a struct fi_eq_entry */
};

void um_prov_eq_hold(struct um_prov_eq *eq)
{
    pthread_mutex_lock(&eq->mutex);
    eq->refs++;
    pthread_mutex_unlock(&eq->mutex);
}

void um_prov_eq_drop(struct um_prov_eq *eq)
{
    pthread_mutex_lock(&eq->mutex);
    eq->refs--;
    pthread_mutex_unlock(&eq->mutex);
}

static int um_prov_eq_append(struct um_prov_eq *eq, uint32_t event, int err, const void *data, size_t len)
{
    struct um_prov_eq_event *e = malloc(sizeof(*e) + len);
    if (!e)
        return -FI_ENOMEM;
    e->event = event;
    e->err = err;
    e->len = len;
    memcpy(e->data, data, len);
    pthread_mutex_lock(&eq->mutex);
    um_list_append(&eq->events, &e->link);
    if (eq->waiter.poll_fd >= 0)
        um_prov_waiter_wake(&eq->waiter);
    pthread_mutex_unlock(&eq->mutex);
    return 0;
}

int um_prov_eq_post(struct um_prov_eq *eq, uint32_t event, const struct fi_eq_entry *entry, int err)
{
    return um_prov_eq_append(eq, event, err, entry, sizeof(*entry));
}

static struct um_prov_eq_event *um_prov_eq_first(const struct um_prov_eq *eq)
{
    struct um_list *node = um_list_first(&eq->events);
    return node ? UM_CONTAINER(node, struct um_prov_eq_event, link) : NULL;
}

static void um_prov_eq_remove(struct um_prov_eq *eq, struct um_prov_eq_event *e)
{
    um_list_unlink(&e->link);
    free(e);
    if (um_list_is_empty(&eq->events) && eq->waiter.poll_fd >= 0)
        um_prov_waiter_drain(&eq->waiter);
}

static ssize_t um_prov_eq_take(struct um_prov_eq *eq, uint32_t *event, void *buf, size_t len, uint64_t flags)
{
    struct um_prov_eq_event *e = um_prov_eq_first(eq);
    if (!e)
        return -FI_EAGAIN;
    if (e->err)
        return -FI_EAVAIL;
    if (len < e->len)
        return -FI_ETOOSMALL;
    ssize_t ret = (ssize_t)e->len;
    *event = e->event;
    memcpy(buf, e->data, e->len);
    if (!(flags & FI_PEEK))
        um_prov_eq_remove(eq, e);
    return ret;
}

static ssize_t um_prov_eq_read(struct fid_eq *fid, uint32_t *event, void *buf, size_t len, uint64_t flags)
{
    struct um_prov_eq *eq = UM_CONTAINER(fid, struct um_prov_eq, fid);
    pthread_mutex_lock(&eq->mutex);
    ssize_t ret = um_prov_eq_take(eq, event, buf, len, flags);
    pthread_mutex_unlock(&eq->mutex);
    return ret;
}

static ssize_t um_prov_eq_readerr(struct fid_eq *fid, struct fi_eq_err_entry *buf, uint64_t flags)
{
    struct um_prov_eq *eq = UM_CONTAINER(fid, struct um_prov_eq, fid);
    pthread_mutex_lock(&eq->mutex);
    struct um_prov_eq_event *e = um_prov_eq_first(eq);
    ssize_t ret = -FI_EAGAIN;
    if (e && e->err) {
        const struct fi_eq_entry *entry = (const void *)e->data;
        buf->fid = entry->fid;
        buf->context = entry->context;
        buf->data = entry->data;
        buf->err = e->err;
        buf->prov_errno = e->err;
        if (um_prov_has_err_data_size(eq->fabric->fid.api_version))
            buf->err_data_size = 0;
        else
            buf->err_data = NULL;
        if (!(flags & FI_PEEK))
            um_prov_eq_remove(eq, e);
        ret = sizeof(*buf);
    }
    pthread_mutex_unlock(&eq->mutex);
    return ret;
}

static ssize_t um_prov_eq_write(struct fid_eq *fid, uint32_t event, const void *buf, size_t len, uint64_t flags)
{
    struct um_prov_eq *eq = UM_CONTAINER(fid, struct um_prov_eq, fid);
    if (flags)
        return -FI_EBADFLAGS;
    int ret = um_prov_eq_append(eq, event, 0, buf, len);
    return ret ? ret : (ssize_t)len;
}

static ssize_t um_prov_eq_await(struct um_prov_eq *eq, uint32_t *event, void *buf, size_t len,
                                const struct um_prov_wait *wait, uint64_t flags)
{
    uint64_t deadline = um_prov_deadline(wait->timeout);
    for (;;) {
        pthread_mutex_lock(&eq->mutex);
        ssize_t ret = um_prov_eq_take(eq, event, buf, len, flags);
        int opened = ret == -FI_EAGAIN ? um_prov_waiter_open(&eq->waiter) : 0;
        pthread_mutex_unlock(&eq->mutex);
        int left = um_prov_deadline_left(deadline);
        if (ret != -FI_EAGAIN || left == 0)
            return ret;
        if (opened)
            return opened;
        if (um_prov_poll(eq->waiter.poll_fd, left, wait->cancel_state) != 0)
            return -FI_EINTR;
    }
}

static ssize_t um_prov_eq_sread(struct fid_eq *fid, uint32_t *event, void *buf, size_t len, int timeout, uint64_t flags)
{
    const struct um_prov_wait wait = um_prov_wait_enter(timeout);
    ssize_t ret = um_prov_eq_await(UM_CONTAINER(fid, struct um_prov_eq, fid), event, buf, len, &wait, flags);
    um_prov_wait_leave(&wait);
    return ret;
}

const char *um_prov_eq_strerror(struct fid_eq *fid, int prov_errno, const void *err_data, char *buf, size_t len)
{
    const char *text = fi_strerror(prov_errno);
    (void)fid, (void)err_data;
    if (!buf || !len)
        return text;
    strncpy(buf, text, len);
    buf[len - 1] = '\0';
    return buf;
}

static struct fi_ops_eq um_prov_eq_ops = {
    .size = sizeof(struct fi_ops_eq),
    .read = um_prov_eq_read,
    .readerr = um_prov_eq_readerr,
    .write = um_prov_eq_write,
    .sread = um_prov_eq_sread,
    .strerror = um_prov_eq_strerror,
};

/* The fd is readable exactly while there are events. */
int um_prov_eq_arm(struct um_prov_eq *eq)
{
    pthread_mutex_lock(&eq->mutex);
    int ret = um_list_is_empty(&eq->events) ? 0 : -FI_EAGAIN;
    pthread_mutex_unlock(&eq->mutex);
    return ret;
}

static int um_prov_eq_close(struct fid *fid)
{
    UM_UNCANCELLED;
    struct um_prov_eq *eq = UM_CONTAINER(fid, struct um_prov_eq, fid.fid);
    pthread_mutex_lock(&eq->mutex);
    uint32_t refs = eq->refs;
    pthread_mutex_unlock(&eq->mutex);
    if (refs)
        return -FI_EBUSY;
    um_prov_live_remove(&eq->live);
    for (struct um_prov_eq_event *e; (e = um_prov_eq_first(eq)) != NULL;)
        um_prov_eq_remove(eq, e);
    um_prov_waiter_close(&eq->waiter);
    pthread_mutex_destroy(&eq->mutex);
    um_prov_fabric_drop(eq->fabric);
    free(eq);
    return 0;
}

static int um_prov_eq_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
    (void)fid, (void)bfid, (void)flags;
    return -FI_ENOSYS;
}

static int um_prov_eq_control(struct fid *fid, int command, void *arg)
{
    struct um_prov_eq *eq = UM_CONTAINER(fid, struct um_prov_eq, fid.fid);
    switch (command) {
    case FI_GETWAIT:
        if (eq->waiter.poll_fd < 0)
            return -FI_ENODATA;
        *(int *)arg = eq->waiter.poll_fd;
        return 0;
    case FI_GETWAITOBJ:
        *(enum fi_wait_obj *)arg = eq->waiter.obj;
        return 0;
    default:
        return -FI_ENOSYS;
    }
}

static int um_prov_eq_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
{
    (void)fid, (void)name, (void)flags, (void)ops, (void)context;
    return -FI_ENOSYS;
}

static struct fi_ops um_prov_eq_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = um_prov_eq_close,
    .bind = um_prov_eq_bind,
    .control = um_prov_eq_control,
    .ops_open = um_prov_eq_ops_open,
};

int um_prov_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **eq_p, void *context)
{
    UM_UNCANCELLED;
    enum fi_wait_obj obj = attr ? attr->wait_obj : FI_WAIT_UNSPEC;
    if (obj != FI_WAIT_NONE && obj != FI_WAIT_UNSPEC && obj != FI_WAIT_FD && obj != FI_WAIT_YIELD)
        return -FI_ENOSYS;
    struct um_prov_eq *eq = calloc(1, sizeof(*eq));
    if (!eq)
        return -FI_ENOMEM;
    eq->waiter = (struct um_prov_waiter){.obj = obj, .poll_fd = -1, .wake_fd = -1, .timer_fd = -1};
    int ret = obj == FI_WAIT_UNSPEC || obj == FI_WAIT_FD ? um_prov_waiter_open(&eq->waiter) : 0;
    if (ret) {
        free(eq);
        return ret;
    }
    pthread_mutex_init(&eq->mutex, NULL);
    um_list_init(&eq->events);
    eq->fabric = UM_CONTAINER(fabric, struct um_prov_fabric, fid);
    um_prov_fabric_hold(eq->fabric);
    eq->fid.fid.fclass = FI_CLASS_EQ;
    eq->fid.fid.context = context;
    eq->fid.fid.ops = &um_prov_eq_fid_ops;
    eq->fid.ops = &um_prov_eq_ops;
    um_prov_live_add(&eq->live, &eq->fid.fid);
    *eq_p = &eq->fid;
    return 0;
}
