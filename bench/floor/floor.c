/*
 * A provider that completes messages at once: it shows the time that an MPI itself takes for its messages, whatever
 * carries them.
 *
 * It is the real provider with some functions replaced: messages with the tag MEASURE_TAG_FLOOR move no byte; the next
 * read of a completion queue completes the send or receive. All other calls reach the real provider. It has the same
 * name and a higher version, so libfabric chooses it if FI_PROVIDER_PATH has both. The measurement is
 * `stream --kind floor`. One thread, one completion queue.
 */
#include "drivers/measure.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <rdma/providers/fi_prov.h>

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PENDING = 4096, TAG_MASK = 0xffff };

static struct fi_provider floor_provider;
static struct fi_provider *real;
static int (*real_domain)(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain, void *context);
static int (*real_endpoint)(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context);
static int (*real_cq_open)(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq, void *context);
static ssize_t (*real_read)(struct fid_cq *cq, void *buf, size_t count);
static struct fi_ops_tagged *real_tagged;

/* ---- completions that nobody has read yet ---- */

static struct fi_cq_tagged_entry pending[PENDING];
static size_t begin, end;

static ssize_t complete(void *context, uint64_t flags, size_t len, uint64_t tag)
{
    if (end - begin == PENDING)
        return -FI_EAGAIN;
    pending[end++ % PENDING] =
        (struct fi_cq_tagged_entry){.op_context = context, .flags = flags | FI_TAGGED, .len = len, .tag = tag};
    return 0;
}

static ssize_t floor_read(struct fid_cq *cq, void *buf, size_t count)
{
    struct fi_cq_tagged_entry *entry = buf;
    size_t n = 0;
    if (begin == end)
        return real_read(cq, buf, count);
    for (; n < count && begin != end; n++)
        entry[n] = pending[begin++ % PENDING];
    return (ssize_t)n;
}

/* ---- messages ---- */

static bool is_floor(uint64_t tag)
{
    return (tag & TAG_MASK) == MEASURE_TAG_FLOOR;
}

static size_t length(const struct iovec *iov, size_t count)
{
    size_t len = 0;
    for (size_t i = 0; i < count; i++)
        len += iov[i].iov_len;
    return len;
}

static ssize_t floor_recv(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t from, uint64_t tag,
                          uint64_t ignore, void *context)
{
    return is_floor(tag) ? complete(context, FI_RECV, len, tag)
                         : real_tagged->recv(ep, buf, len, desc, from, tag, ignore, context);
}

static ssize_t floor_recvv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t from,
                           uint64_t tag, uint64_t ignore, void *context)
{
    return is_floor(tag) ? complete(context, FI_RECV, length(iov, count), tag)
                         : real_tagged->recvv(ep, iov, desc, count, from, tag, ignore, context);
}

static ssize_t floor_recvmsg(struct fid_ep *ep, const struct fi_msg_tagged *msg, uint64_t flags)
{
    return is_floor(msg->tag) ? complete(msg->context, FI_RECV, length(msg->msg_iov, msg->iov_count), msg->tag)
                              : real_tagged->recvmsg(ep, msg, flags);
}

static ssize_t floor_send(struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t to, uint64_t tag,
                          void *context)
{
    return is_floor(tag) ? complete(context, FI_SEND, len, tag)
                         : real_tagged->send(ep, buf, len, desc, to, tag, context);
}

static ssize_t floor_sendv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t to,
                           uint64_t tag, void *context)
{
    return is_floor(tag) ? complete(context, FI_SEND, length(iov, count), tag)
                         : real_tagged->sendv(ep, iov, desc, count, to, tag, context);
}

static ssize_t floor_sendmsg(struct fid_ep *ep, const struct fi_msg_tagged *msg, uint64_t flags)
{
    if (!is_floor(msg->tag))
        return real_tagged->sendmsg(ep, msg, flags);
    return flags & FI_COMPLETION ? complete(msg->context, FI_SEND, length(msg->msg_iov, msg->iov_count), msg->tag) : 0;
}

static ssize_t floor_inject(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t to, uint64_t tag)
{
    return is_floor(tag) ? 0 : real_tagged->inject(ep, buf, len, to, tag);
}

static ssize_t floor_senddata(struct fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t to,
                              uint64_t tag, void *context)
{
    return is_floor(tag) ? complete(context, FI_SEND, len, tag)
                         : real_tagged->senddata(ep, buf, len, desc, data, to, tag, context);
}

static ssize_t floor_injectdata(struct fid_ep *ep, const void *buf, size_t len, uint64_t data, fi_addr_t to,
                                uint64_t tag)
{
    return is_floor(tag) ? 0 : real_tagged->injectdata(ep, buf, len, data, to, tag);
}

static struct fi_ops_tagged floor_tagged = {
    .size = sizeof(struct fi_ops_tagged),
    .recv = floor_recv,
    .recvv = floor_recvv,
    .recvmsg = floor_recvmsg,
    .send = floor_send,
    .sendv = floor_sendv,
    .sendmsg = floor_sendmsg,
    .inject = floor_inject,
    .senddata = floor_senddata,
    .injectdata = floor_injectdata,
};

/* ---- objects: the real ones, with changed copies of their tables ---- */

static int floor_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context)
{
    int ret = real_endpoint(domain, info, ep, context);
    if (ret == 0) {
        real_tagged = (*ep)->tagged;
        (*ep)->tagged = &floor_tagged;
    }
    return ret;
}

static int floor_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq, void *context)
{
    static struct fi_ops_cq ops;
    int ret = real_cq_open(domain, attr, cq, context);
    if (ret == 0 && attr->format == FI_CQ_FORMAT_TAGGED) {
        ops = *(*cq)->ops;
        real_read = ops.read;
        ops.read = floor_read;
        (*cq)->ops = &ops;
    }
    return ret;
}

static int floor_domain(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain, void *context)
{
    static struct fi_ops_domain ops;
    int ret = real_domain(fabric, info, domain, context);
    if (ret == 0) {
        ops = *(*domain)->ops;
        real_endpoint = ops.endpoint;
        real_cq_open = ops.cq_open;
        ops.endpoint = floor_endpoint;
        ops.cq_open = floor_cq_open;
        (*domain)->ops = &ops;
    }
    return ret;
}

static int floor_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context)
{
    static struct fi_ops_fabric ops;
    int ret = real->fabric(attr, fabric, context);
    if (ret == 0) {
        ops = *(*fabric)->ops;
        real_domain = ops.domain;
        ops.domain = floor_domain;
        (*fabric)->ops = &ops;
    }
    return ret;
}

/* The real provider lies two folders above this file. */
FI_EXT_INI
{
    Dl_info here;
    char file[PATH_MAX], path[PATH_MAX + 64];
    if (!dladdr(&floor_provider, &here) || !realpath(here.dli_fname, file))
        return NULL;
    snprintf(path, sizeof(path), "%s/../../libunimem-fi.so", dirname(file));
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    struct fi_provider *(*ini)(void) = library ? (struct fi_provider * (*)(void)) dlsym(library, "fi_prov_ini") : NULL;
    if (!ini) {
        fprintf(stderr, "floor: %s\n", dlerror());
        return NULL;
    }
    real = ini();
    floor_provider = *real;
    floor_provider.version++;
    floor_provider.fabric = floor_fabric;
    return &floor_provider;
}
