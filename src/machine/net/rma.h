/*
 * The inner provider's RMA: an endpoint by which memory of this process is shown to peers, and memory of peers is read.
 *
 * It has a domain, an address vector and a queue of its own, so that it can be stopped: from then on nothing is read or
 * written by it. libfabric has no other way to be sure of that while a peer may still send. And a domain of tcp must
 * make no progress after its endpoint is closed, because connections that were accepted and have not sent anything
 * still refer to the closed endpoint. Threading: as the port's calls.
 */
#ifndef UM_MACHINE_NET_RMA_H
#define UM_MACHINE_NET_RMA_H

#include "machine/net/inner.h"

#include <sys/uio.h>

struct um_net_rma {
    struct um_net_objects own;
    struct um_net_name_wire name; /* of the endpoint, as sent to peers */
    uint32_t refs;                /* one for each piece of registered memory; one for the user until it is stopped */
};

/*
 * tcp puts 16 bytes before the data of a read, and the kernel often begins these at the start of a page. If the memory
 * begins at the start of a page, too, source and destination of the copy differ by 16 bytes in their place within a
 * page. At a difference of 1 to 31 bytes `rep movsb` of AMD's Zen 3 and 4, and with it the kernel's copy, takes four
 * times as long (512 KiB: 360 us instead of 90). So some more bytes are read before the body.
 */
enum { UM_NET_LEAD = 48 };

/* A read under way; first in the object that it belongs to. */
struct um_net_rma_context {
    struct fi_context2 own;
    unsigned char lead[UM_NET_LEAD]; /* read before the body, and not used */
};

/* Opens the endpoint. NULL: an error, which is logged. */
struct um_net_rma *um_net_rma_open(const struct um_net_inner *inner);
/* Closes the endpoint. False: the provider refuses, and may go on to move bytes (logged). The object is freed when the
 * last memory is unregistered. */
bool um_net_rma_stop(struct um_net_rma *rma);

/* Registers memory: a peer that knows the key can read it; offset 0 is its first byte. 0 or an error of libfabric's. */
int um_net_rma_register(struct um_net_rma *rma, const struct iovec *memory, uint64_t key, struct fid_mr **mr_p);
void um_net_rma_unregister(struct um_net_rma *rma, struct fid_mr *mr);

/* Inserts the address of a peer's endpoint. 0 or -EHOSTUNREACH. */
int um_net_rma_insert(struct um_net_rma *rma, const struct um_net_name_wire *name, fi_addr_t *at_p);
void um_net_rma_remove(struct um_net_rma *rma, fi_addr_t at);

/* A read of a peer's memory into local memory. */
struct um_net_reading {
    const struct iovec *local;
    size_t count; /* at most um_net_rma_iov_max() */
    size_t len;   /* bytes in all */
    fi_addr_t from;
    uint64_t key, offset; /* of the peer's memory, which must have UM_NET_LEAD bytes or more */
};
size_t um_net_rma_iov_max(const struct um_net_inner *inner);
/* Starts a read. 0: um_net_rma_ended() returns its end; -FI_EAGAIN, -FI_ENOMEM: not possible now; or an error. */
int um_net_rma_read(struct um_net_rma *rma, const struct um_net_reading *reading, struct um_net_rma_context *context);
/* Makes progress. 1: a read has ended; *error_p: 0 or a positive errno. 0: none has. */
int um_net_rma_ended(struct um_net_rma *rma, struct um_net_rma_context **context_p, int *error_p);

#endif
