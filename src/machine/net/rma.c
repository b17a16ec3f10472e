/* rma.h. */
#include "machine/net/rma.h"

#include "base/cancel.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { IOV_MAX_HERE = 4, STRANGERS_MAX = 64 };

struct um_net_rma *um_net_rma_open(const struct um_net_inner *inner)
{
    UM_UNCANCELLED;
    static struct um_log_limit none;
    struct um_net_rma *rma = calloc(1, sizeof(*rma));
    int ret = rma ? um_net_objects_open(inner, &rma->own) : -ENOMEM;
    if (ret == 0 && (ret = um_net_objects_name(inner, &rma->own, &rma->name)) != 0)
        um_net_objects_close(&rma->own);
    if (ret) {
        um_log_limited(&none, UM_LOG_WARN,
                       "long messages to other hosts go in pieces, which is slower: there is no second endpoint for "
                       "them (%s); it takes descriptors (ulimit -n) and a TCP port of its own (FI_TCP_PORT_LOW_RANGE, "
                       "FI_TCP_PORT_HIGH_RANGE)",
                       um_net_api.strerror(-ret));
        free(rma);
        return NULL;
    }
    rma->refs = 1;
    return rma;
}

static void release(struct um_net_rma *rma)
{
    if (--rma->refs > 0)
        return;
    um_net_objects_close(&rma->own);
    free(rma);
}

bool um_net_rma_stop(struct um_net_rma *rma)
{
    UM_UNCANCELLED;
    int ret = fi_close(&rma->own.ep->fid);
    rma->own.ep = NULL;
    if (ret)
        um_log(
            UM_LOG_WARN,
            "libfabric does not close the endpoint by which long messages come (%s): a message that was given up may "
            "still change its buffer; set FI_UNIMEM_COPY=0",
            um_net_api.strerror(-ret));
    release(rma);
    return ret == 0;
}

int um_net_rma_register(struct um_net_rma *rma, const struct iovec *memory, uint64_t key, struct fid_mr **mr_p)
{
    UM_UNCANCELLED_AMONG_THREADS;
    int ret = fi_mr_reg(rma->own.domain, memory->iov_base, memory->iov_len, FI_REMOTE_READ, 0, key, 0, mr_p, NULL);
    rma->refs += ret == 0;
    return ret;
}

void um_net_rma_unregister(struct um_net_rma *rma, struct fid_mr *mr)
{
    UM_UNCANCELLED_AMONG_THREADS;
    fi_close(&mr->fid);
    release(rma);
}

int um_net_rma_insert(struct um_net_rma *rma, const struct um_net_name_wire *name, fi_addr_t *at_p)
{
    UM_UNCANCELLED;
    return fi_av_insert(rma->own.av, name->name, 1, at_p, 0, NULL) == 1 ? 0 : -EHOSTUNREACH;
}

void um_net_rma_remove(struct um_net_rma *rma, fi_addr_t at)
{
    UM_UNCANCELLED;
    (void)fi_av_remove(rma->own.av, &at, 1, 0);
}

int um_net_rma_read(struct um_net_rma *rma, const struct um_net_reading *reading, struct um_net_rma_context *context)
{
    UM_UNCANCELLED_AMONG_THREADS;
    struct iovec local[IOV_MAX_HERE] = {{.iov_base = context->lead, .iov_len = UM_NET_LEAD}};
    const struct fi_rma_iov remote[] = {{.len = UM_NET_LEAD, .key = reading->key},
                                        {.addr = reading->offset, .len = reading->len, .key = reading->key}};
    const struct fi_msg_rma msg = {.msg_iov = local,
                                   .iov_count = 1 + reading->count,
                                   .addr = reading->from,
                                   .rma_iov = remote,
                                   .rma_iov_count = sizeof(remote) / sizeof(remote[0]),
                                   .context = &context->own};
    memcpy(local + 1, reading->local, reading->count * sizeof(*local));
    return (int)fi_readmsg(rma->own.ep, &msg, FI_COMPLETION);
}

size_t um_net_rma_iov_max(const struct um_net_inner *inner)
{
    const size_t most = inner->info->tx_attr->iov_limit;
    return (most < IOV_MAX_HERE ? most : IOV_MAX_HERE) - 1;
}

/* Takes one completion: its context, and 0 or a positive errno. False: there is none. */
static bool next_ended(struct um_net_rma *rma, void **context_p, int *error_p)
{
    struct fi_cq_msg_entry entry = {0};
    struct fi_cq_err_entry error = {0};
    ssize_t count = fi_cq_read(rma->own.cq, &entry, 1);
    *error_p = 0;
    if (count == -FI_EAVAIL) {
        count = fi_cq_readerr(rma->own.cq, &error, 0);
        entry.op_context = error.op_context;
        *error_p = error.err ? error.err : EIO;
    }
    *context_p = entry.op_context;
    return count == 1;
}

/* Drops completions without a context: each is that of a stranger's write of no bytes with immediate data. */
int um_net_rma_ended(struct um_net_rma *rma, struct um_net_rma_context **context_p, int *error_p)
{
    UM_UNCANCELLED_AMONG_THREADS;
    void *context = NULL;
    for (int i = 0; i < STRANGERS_MAX && !context; i++) {
        if (!next_ended(rma, &context, error_p))
            return 0;
    }
    *context_p = context;
    return context != NULL;
}
