/*
 * The inner provider's RMA: an endpoint by which memory of this process is shown to peers, and theirs is read.
 *
 * It has a domain, an address vector and a queue of its own, so that it can be stopped: from then on nothing is read or
 * written by it. libfabric has no other way to be sure of that while a peer may still send; and a domain of tcp must
 * make no progress after its endpoint is closed, because connections that were accepted and have said nothing refer to
 * what the endpoint was. Threading: as the port's calls.
 */
#ifndef UM_MACHINE_NET_RMA_H
#define UM_MACHINE_NET_RMA_H

#include "machine/net/inner.h"

#include <sys/uio.h>

struct um_net_rma {
    struct um_net_objects own;
    struct um_net_name_wire name; /* of the endpoint, which peers are told */
    uint32_t refs;                /* memory that is registered; and its user, until it is stopped */
};

/*
 * tcp puts 16 bytes before what is read, and the kernel often begins that at the start of a page. Memory that begins
 * there, too, is then copied to 16 bytes behind its own place in a page: a distance of 1 to 31 bytes, over which `rep
 * movsb` of AMD's Zen 3 and 4, and with it the kernel's copy, takes four times as long (512 KiB: 360 us instead of 90).
 * So some bytes more are read before the body.
 */
enum { UM_NET_LEAD = 48 };

/* A read under way; first in what it belongs to. */
struct um_net_rma_context {
    struct fi_context2 own;
    unsigned char lead[UM_NET_LEAD]; /* nobody looks at it */
};

/* NULL: logged. */
struct um_net_rma *um_net_rma_open(const struct um_net_inner *inner);
/* False: the provider refuses, and may go on to move bytes (logged). The object ends with the last memory. */
bool um_net_rma_stop(struct um_net_rma *rma);

/* Whoever knows the key can read the memory, from the first byte on as offset 0. An error of libfabric's. */
int um_net_rma_register(struct um_net_rma *rma, const struct iovec *memory, uint64_t key, struct fid_mr **mr_p);
void um_net_rma_unregister(struct um_net_rma *rma, struct fid_mr *mr);

/* Of a peer's endpoint. -EHOSTUNREACH. */
int um_net_rma_insert(struct um_net_rma *rma, const struct um_net_name_wire *name, fi_addr_t *at_p);
void um_net_rma_remove(struct um_net_rma *rma, fi_addr_t at);

/* What is read of a peer, into local memory. */
struct um_net_reading {
    const struct iovec *local;
    size_t count; /* at most um_net_rma_iov_max() */
    size_t len;   /* bytes of all of it */
    fi_addr_t from;
    uint64_t key, offset; /* the memory has UM_NET_LEAD bytes or more */
};
size_t um_net_rma_iov_max(const struct um_net_inner *inner);
/* 0: it ends with an event; -FI_EAGAIN, -FI_ENOMEM: not now; or an error. */
int um_net_rma_read(struct um_net_rma *rma, const struct um_net_reading *reading, struct um_net_rma_context *context);
/* Makes progress. 1: a read has ended; *error_p: 0 or a positive errno. 0: none has. */
int um_net_rma_ended(struct um_net_rma *rma, struct um_net_rma_context **context_p, int *error_p);

#endif
