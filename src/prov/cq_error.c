/*
 * Completion queues: how the application reads error entries.
 *
 * Owns: what err_data points to. Threading: under the domain lock.
 */
#include "prov/prov.h"

#include "machine/address.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Copies the error data into the caller's buffer if there is one (API 1.5), else into the queue's, where it is valid
 * until the next error is read.
 */
static void um_prov_cq_fill_err_data(struct um_prov_cq *cq, const struct um_prov_cq_error *error,
                                     struct fi_cq_err_entry *buf)
{
    bool sized = um_prov_has_err_data_size(um_prov_domain_api(cq->source.domain));
    size_t len = error->has_addr ? um_addr_len(&cq->source.domain->env.machines) : 0;
    if (sized && buf->err_data && buf->err_data_size) {
        if (len > buf->err_data_size)
            len = buf->err_data_size;
        memcpy(buf->err_data, &error->addr, len);
    } else {
        cq->err_data = error->addr;
        buf->err_data = len ? &cq->err_data : NULL;
    }
    if (sized)
        buf->err_data_size = len;
}

static ssize_t um_prov_cq_readerr_locked(struct um_prov_cq *cq, struct fi_cq_err_entry *buf)
{
    if (cq->head == cq->tail)
        return -FI_EAGAIN;
    struct um_prov_cq_entry *entry = &cq->ring[cq->head & cq->mask];
    struct um_prov_cq_error *error = entry->error;
    if (!error)
        return -FI_EAGAIN;
    buf->op_context = entry->context;
    buf->flags = entry->flags;
    buf->len = entry->len;
    buf->buf = entry->buf;
    buf->data = entry->data;
    buf->tag = entry->tag;
    buf->olen = error->olen;
    buf->err = error->err;
    buf->prov_errno = error->prov_errno;
    um_prov_set_err_source(buf, um_prov_domain_api(cq->source.domain));
    um_prov_cq_fill_err_data(cq, error, buf);
    cq->head++;
    free(error);
    return 1;
}

ssize_t um_prov_cq_readerr(struct fid_cq *fid, struct fi_cq_err_entry *buf, uint64_t flags)
{
    struct um_prov_cq *cq = UM_CONTAINER(fid, struct um_prov_cq, fid);
    (void)flags;
    um_prov_domain_lock(&cq->source.domain->lock);
    ssize_t ret = um_prov_cq_readerr_locked(cq, buf);
    um_prov_domain_unlock(&cq->source.domain->lock);
    return ret;
}

const char *um_prov_cq_strerror(struct fid_cq *fid, int prov_errno, const void *err_data, char *buf, size_t len)
{
    const char *text = um_prov_error_text(prov_errno);
    (void)fid, (void)err_data;
    if (!buf || !len)
        return text;
    snprintf(buf, len, "%s", text);
    return buf;
}
