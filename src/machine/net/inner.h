/*
 * An endpoint of the inner provider: its objects, the buffers that its messages lie in, and what completes.
 *
 * Every message is received into a buffer of this process. When a receive completes, its buffer is the caller's, and
 * another one is posted in its place. So receives are always posted, however many buffers the callers keep. Over tcp a
 * peer that stops in the middle of a message occupies one receive. So there are more receives than peers, as far as the
 * provider's queue permits, and the caller asks for more when nothing comes. Must not know what the messages say. No
 * call is a cancellation point. Threading: as the port's calls.
 *
 * Bodies that peers read by RMA use another endpoint: rma.h.
 */
#ifndef UM_MACHINE_NET_INNER_H
#define UM_MACHINE_NET_INNER_H

#include "machine/net/library.h"
#include "machine/net/wire.h"

#include <stdbool.h>
#include <stddef.h>

struct um_net_peer;
struct um_net_lane;

/* One message. The body of a record, behind its header, is aligned to a line. */
struct um_net_buffer {
    struct fi_context2 context; /* the inner provider's, while the buffer is posted or being sent; first */
    struct um_net_buffer *next; /* in a list of the user's, or of free buffers */
    struct um_net_buffer *all;  /* in the list of all buffers */
    struct um_net_peer *peer;   /* to which it is sent; NULL: of a receive */
    struct um_net_lane *lane;   /* which keeps it while it may have to be sent again; or NULL */
    struct iovec lent;          /* the body of a record, in memory of a caller; length 0: the body is in here */
    uint32_t len;               /* of the message */
    uint8_t size;               /* enum um_net_size */
    bool is_sending;            /* the inner provider has it, or the event of its completion was not handled yet */
    bool is_told;               /* sent by um_net_tell() */
    _Alignas(64) unsigned char lead[64 - (sizeof(struct um_net_record_wire) & 63)];
    unsigned char message[];
};
/* Writes the right seal of a lent body, or a wrong one. It lies behind the record's header, where a body would be. */
static inline void um_net_buffer_seal(struct um_net_buffer *buffer, bool is_whole)
{
    const uint64_t seal = um_net_seal((const void *)buffer->message);
    *(uint64_t *)(void *)(buffer->message + sizeof(struct um_net_record_wire)) = is_whole ? seal : ~seal;
}
/* Sizes of buffers: for messages with no body or a very short one; for bodies of up to 4, 16, 64 KiB; for any. */
enum um_net_size { UM_NET_OF_SMALL, UM_NET_OF_MIDDLE, UM_NET_OF_16K, UM_NET_OF_64K, UM_NET_OF_LARGE, UM_NET_SIZES };
enum {
    UM_NET_SMALL = 304,
    UM_NET_MIDDLE = sizeof(struct um_net_record_wire) + 4096,
    UM_NET_16K = sizeof(struct um_net_record_wire) + 16384,
    UM_NET_64K = sizeof(struct um_net_record_wire) + 65536,
    UM_NET_LARGE = sizeof(struct um_net_record_wire) + UM_NET_BODY_MAX + UM_NET_SEAL,
};
static_assert((offsetof(struct um_net_buffer, message) + sizeof(struct um_net_record_wire)) % 64 == 0,
              "a body is aligned to a line");

/* An endpoint, and the objects that it needs. */
struct um_net_objects {
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    int fd; /* of the queue: readable when something has come since fi_trywait() returned 0; -1: it has none */
};

struct um_net_inner {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct um_net_objects own;
    uint32_t receives; /* to be posted; over tcp one more for each of the peers; at most what `info` permits */
    uint32_t peers;    /* addresses inserted */
    uint32_t posted;   /* receives posted now */
    uint32_t sending;  /* sends that have not completed */
    uint64_t sent;     /* sends that were accepted, ever */
    bool wait_none;    /* the queues have no descriptor */
    bool is_tcp;       /* an endpoint's name is a TCP port */
    bool has_rma;      /* rma.h can be used */
    bool can_lend;     /* the provider reads no body after its send has ended, or the endpoint was closed */
    uint32_t body_max; /* of a record, in bytes */
    struct um_net_buffer *all;
    struct um_net_buffer *free[UM_NET_SIZES];
};

/* A completion. The buffer is the caller's now. error: a positive errno of a send that failed; else 0. */
struct um_net_event {
    struct um_net_buffer *buffer;
    int error;
};

/* Opens the fabric and the endpoint, and posts receives. wait_none: the queues get no descriptor, and the caller looks
 * by the clock. Over tcp each level of epoll above a socket lengthens the peer's call that sends to it; without a
 * descriptor there is one level. -ENODATA, -ENOENT, -EMFILE, ...: logged. */
int um_net_inner_open(struct um_net_inner *inner, bool wait_none);
void um_net_inner_close(struct um_net_inner *inner);

/* Returns the endpoint's name as part of an address. -EMSGSIZE: it does not fit (logged). */
int um_net_inner_name(const struct um_net_inner *inner, struct um_net_addr_wire *addr_p);

/* Writes the IP address of an endpoint, or that its name is of another kind. */
enum { UM_NET_NAME_TEXT = 64 };
void um_net_name_text(const struct um_net_addr_wire *addr, char text[UM_NET_NAME_TEXT]);
uint16_t um_net_inner_hash(const struct um_net_inner *inner);

int um_net_inner_insert(struct um_net_inner *inner, const struct um_net_addr_wire *addr, fi_addr_t *at_p);
void um_net_inner_remove(struct um_net_inner *inner, fi_addr_t at);

/* Returns a buffer for a message of len bytes; NULL: no memory. */
struct um_net_buffer *um_net_buffer_get(struct um_net_inner *inner, size_t len);
void um_net_buffer_put(struct um_net_inner *inner, struct um_net_buffer *buffer);
/* For a message that will stay for some time: if it has at most `most` bytes and there is memory, copies it into a
 * buffer of its size. Returns the buffer that the message is in. */
struct um_net_buffer *um_net_buffer_fit(struct um_net_inner *inner, struct um_net_buffer *buffer, size_t most);

/* Sends a buffer. It is the inner provider's until it comes back as an event. -EAGAIN: not now; or another error. */
int um_net_inner_send(struct um_net_inner *inner, struct um_net_buffer *buffer, fi_addr_t to);
/* Takes up to max completions; returns how many, or -EAGAIN: the queue is empty. 0: all that was taken is a stranger's,
 * or a receive that failed; there may be more. Posts receives in the place of those that completed. */
int um_net_inner_read(struct um_net_inner *inner, struct um_net_event *events, int max);
/* Posts some more receives, once. Returns how many are posted, over tcp without one for each peer; 0: no more could be
 * posted. */
uint32_t um_net_inner_more(struct um_net_inner *inner);
/* True if the caller may sleep until own.fd is readable, or there is no such descriptor. */
bool um_net_inner_may_sleep(const struct um_net_inner *inner);

/* ---- for rma.c ---- */

/* Opens the objects. An error is logged, and nothing stays open. */
int um_net_objects_open(const struct um_net_inner *inner, struct um_net_objects *objects);
void um_net_objects_close(struct um_net_objects *objects);
bool um_net_objects_may_sleep(const struct um_net_inner *inner, const struct um_net_objects *objects);
/* Returns the endpoint's name. -EMSGSIZE: it does not fit (logged). */
int um_net_objects_name(const struct um_net_inner *inner, const struct um_net_objects *objects,
                        struct um_net_name_wire *name_p);

#endif
