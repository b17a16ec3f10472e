/* inner.h. */
#include "machine/net/inner.h"

#include "machine/net/choose.h"

#include "base/cancel.h"
#include "base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RECEIVES = 64,
    TCP_RECEIVES = 8,
    RECEIVES_MAX = 256,
    SENDS_MAX = 1024,
    EVENTS = 16,
    RXM_MESSAGE_MAX = 16384,
    PARTS = 3, /* of a record with a lent body: head and header, body, seal */
};

/* ---- open and close ---- */

static const char *remedy(int error)
{
    switch (error) {
    case -FI_ENOSYS:
    case -FI_EINVAL:
        return ": choose another provider by FI_UNIMEM_NET";
    case -FI_EADDRNOTAVAIL:
        return ": is FI_UNIMEM_NET_ADDRESS, if you set it, an address of this host, and are ports between "
               "FI_TCP_PORT_LOW_RANGE and FI_TCP_PORT_HIGH_RANGE free?";
    case -EBADF:
        return getenv("FI_TCP_IFACE") ? ": has the interface of FI_TCP_IFACE an address?" : "";
    default:
        return "";
    }
}

static int cannot(const char *what, int ret, const struct um_net_inner *inner)
{
    um_log(UM_LOG_WARN, "the machine net: %s of the inner provider %s: %s%s", what, inner->info->fabric_attr->prov_name,
           um_net_api.strerror(-ret), remedy(ret));
    return ret;
}

/* Before libfabric 1.18 or so, a layered provider does not find the provider below it if FI_PROVIDER excludes that. */
static int cannot_open(int ret, const struct um_net_inner *inner)
{
    const char *name = inner->info->fabric_attr->prov_name, *layer = strchr(name, ';');
    const char *filter = getenv("FI_PROVIDER");
    if (!layer || !filter || strstr(filter, name))
        return cannot("no fabric", ret, inner);
    um_log(UM_LOG_WARN,
           "the machine net cannot open %s because FI_PROVIDER=%s hides %.*s from its upper part in this libfabric: "
           "set FI_PROVIDER=unimem,%.*s",
           name, filter, (int)(layer - name), name, (int)(layer - name), name);
    return ret;
}

static int queue_open(const struct um_net_inner *inner, struct um_net_objects *objects)
{
    struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_MSG,
                              .wait_obj = inner->wait_none ? FI_WAIT_NONE : FI_WAIT_FD,
                              .size = inner->info->tx_attr->size + inner->info->rx_attr->size};
    int ret = fi_cq_open(objects->domain, &attr, &objects->cq, NULL);
    if (ret)
        return cannot("no completion queue", ret, inner);
    if (inner->wait_none)
        return 0;
    ret = fi_control(&objects->cq->fid, FI_GETWAIT, &objects->fd);
    return ret ? cannot("no descriptor to sleep on", ret, inner) : 0;
}

static int endpoint_open(const struct um_net_inner *inner, struct um_net_objects *objects)
{
    int ret = fi_endpoint(objects->domain, inner->info, &objects->ep, NULL);
    if (ret)
        return cannot("no endpoint", ret, inner);
    ret = fi_ep_bind(objects->ep, &objects->av->fid, 0);
    if (ret == 0)
        ret = fi_ep_bind(objects->ep, &objects->cq->fid, FI_SEND | FI_RECV);
    if (ret == 0)
        ret = fi_enable(objects->ep);
    return ret ? cannot("an endpoint that cannot be enabled", ret, inner) : 0;
}

static int open_all(const struct um_net_inner *inner, struct um_net_objects *objects)
{
    struct fi_av_attr attr = {.type = FI_AV_TABLE};
    int ret = fi_domain(inner->fabric, inner->info, &objects->domain, NULL);
    if (ret)
        return cannot("no domain", ret, inner);
    ret = fi_av_open(objects->domain, &attr, &objects->av, NULL);
    if (ret)
        return cannot("no address vector", ret, inner);
    ret = queue_open(inner, objects);
    return ret ? ret : endpoint_open(inner, objects);
}

int um_net_objects_open(const struct um_net_inner *inner, struct um_net_objects *objects)
{
    *objects = (struct um_net_objects){.fd = -1};
    int ret = open_all(inner, objects);
    if (ret)
        um_net_objects_close(objects);
    return ret;
}

static void fid_close(struct fid *fid)
{
    if (fid)
        fi_close(fid);
}

#define CLOSE(object) fid_close((object) ? &(object)->fid : NULL)

void um_net_objects_close(struct um_net_objects *objects)
{
    CLOSE(objects->ep);
    CLOSE(objects->cq);
    CLOSE(objects->av);
    CLOSE(objects->domain);
    *objects = (struct um_net_objects){.fd = -1};
}

static int fabric_open(struct um_net_inner *inner)
{
    int ret = um_net_api.fabric(inner->info->fabric_attr, &inner->fabric, NULL);
    return ret ? cannot_open(ret, inner) : um_net_objects_open(inner, &inner->own);
}

/* Returns the length of the longest message for ofi_rxm. A longer one would be fetched by its receiver, which needs
 * calls of the sender, and does not wake a sender that sleeps. */
static size_t rxm_message_max(void)
{
    static struct um_log_limit odd;
    const char *text = getenv("FI_OFI_RXM_BUFFER_SIZE");
    char *end = NULL;
    const unsigned long set = text ? strtoul(text, &end, 0) : RXM_MESSAGE_MAX; /* as libfabric reads it */
    if (text && (*end || set < UM_NET_SMALL))
        um_log_limited(
            &odd, UM_LOG_WARN,
            "the machine net: libfabric takes FI_OFI_RXM_BUFFER_SIZE=%s for %lu bytes, and messages that are "
            "longer wait for calls of their sender: give a number of bytes without a unit, %d or more",
            text, set, UM_NET_SMALL);
    return set < UM_NET_SMALL ? UM_NET_SMALL : set < RXM_MESSAGE_MAX ? set : RXM_MESSAGE_MAX;
}

/* Sets what depends on the provider. Its queues need not be longer than what is posted: some providers allocate memory
 * for all of it. */
static void learn(struct um_net_inner *inner)
{
    struct fi_info *info = inner->info;
    info->tx_attr->size = info->tx_attr->size < SENDS_MAX ? info->tx_attr->size : SENDS_MAX;
    info->rx_attr->size = info->rx_attr->size < RECEIVES_MAX ? info->rx_attr->size : RECEIVES_MAX;
    inner->is_tcp = strncmp(info->fabric_attr->prov_name, "tcp", 3) == 0 &&
                    (info->addr_format == FI_SOCKADDR_IN || info->addr_format == FI_SOCKADDR_IN6);
    /* A closed endpoint of tcp moves no more bytes, unless the kernel sends out of the program's memory (the two
     * variables). Of other providers that is not known, or wrong (tcp;ofi_rxm). */
    const bool is_plain = inner->is_tcp && strcmp(info->fabric_attr->prov_name, "tcp") == 0 &&
                          info->domain_attr->mr_mode == 0 && !getenv("FI_TCP_ZEROCOPY_SIZE") &&
                          !getenv("FI_TCP_IO_URING");
    inner->has_rma = is_plain && (info->caps & FI_RMA) && info->domain_attr->mr_key_size == sizeof(uint64_t) &&
                     info->tx_attr->iov_limit > 1 && info->tx_attr->rma_iov_limit > 1;
    inner->can_lend = is_plain && info->tx_attr->iov_limit >= PARTS;
    const bool is_fetched = inner->is_tcp && strstr(info->fabric_attr->prov_name, ";ofi_rxm");
    const size_t message_max = is_fetched ? rxm_message_max() : info->ep_attr->max_msg_size;
    const size_t most = message_max - sizeof(struct um_net_record_wire) - (inner->can_lend ? UM_NET_SEAL : 0);
    inner->body_max = most < UM_NET_BODY_MAX ? (uint32_t)most : UM_NET_BODY_MAX;
    /* Over tcp a message that finds no receive waits in the socket. Few buffers, filled in turn, stay in the cache. */
    inner->receives = inner->is_tcp ? TCP_RECEIVES : RECEIVES;
}

static void post(struct um_net_inner *inner);

int um_net_inner_open(struct um_net_inner *inner, bool wait_none)
{
    UM_UNCANCELLED;
    *inner = (struct um_net_inner){.own.fd = -1, .wait_none = wait_none};
    int ret = um_net_info_choose(&inner->info);
    if (ret)
        return ret;
    learn(inner);
    ret = inner->info->ep_attr->max_msg_size < UM_NET_SMALL ? cannot("messages are too short", -FI_EMSGSIZE, inner)
                                                            : fabric_open(inner);
    if (ret == 0)
        post(inner);
    if (ret == 0 && inner->posted == 0)
        ret = cannot("no receive can be posted", -FI_ENOMEM, inner);
    if (ret)
        um_net_inner_close(inner);
    return ret;
}

void um_net_inner_close(struct um_net_inner *inner)
{
    UM_UNCANCELLED;
    um_net_objects_close(&inner->own);
    CLOSE(inner->fabric);
    while (inner->all) { /* posted, being sent, or kept by a user: the endpoint is closed */
        struct um_net_buffer *next = inner->all->all;
        free(inner->all);
        inner->all = next;
    }
    if (inner->info)
        um_net_api.freeinfo(inner->info);
    *inner = (struct um_net_inner){.own.fd = -1};
}

/* ---- addresses ---- */

uint16_t um_net_inner_hash(const struct um_net_inner *inner)
{
    uint32_t hash = (2166136261u ^ UM_NET_VERSION) * 16777619u;
    for (const char *c = inner->info->fabric_attr->prov_name; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    return (uint16_t)(hash >> 16 ^ hash);
}

int um_net_objects_name(const struct um_net_inner *inner, const struct um_net_objects *objects,
                        struct um_net_name_wire *name_p)
{
    struct um_net_name_wire name = {0};
    size_t len = sizeof(name.name);
    int ret = fi_getname(&objects->ep->fid, name.name, &len);
    if (ret == -FI_ETOOSMALL || len > sizeof(name.name)) {
        um_log(UM_LOG_WARN,
               "the machine net: names of the provider %s have %zu bytes, and an address of unimem has room for %zu: "
               "choose another provider by FI_UNIMEM_NET",
               inner->info->fabric_attr->prov_name, len, sizeof(name.name));
        return -EMSGSIZE;
    }
    if (ret)
        return cannot("no name", ret, inner);
    name.len = (uint8_t)len;
    *name_p = name;
    return 0;
}

int um_net_inner_name(const struct um_net_inner *inner, struct um_net_addr_wire *addr_p)
{
    struct um_net_name_wire name;
    int ret = um_net_objects_name(inner, &inner->own, &name);
    if (ret)
        return ret;
    *addr_p = (struct um_net_addr_wire){
        .format = (uint8_t)inner->info->addr_format, .len = name.len, .inner = um_net_inner_hash(inner)};
    memcpy(addr_p->name, name.name, sizeof(name.name));
    return 0;
}

void um_net_name_text(const struct um_net_addr_wire *addr, char text[UM_NET_NAME_TEXT])
{
    struct sockaddr_storage at = {0};
    const struct sockaddr_in *in = (const struct sockaddr_in *)&at;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&at;
    memcpy(&at, addr->name, sizeof(addr->name));
    if ((addr->format == FI_SOCKADDR_IN && inet_ntop(AF_INET, &in->sin_addr, text, UM_NET_NAME_TEXT)) ||
        (addr->format == FI_SOCKADDR_IN6 && inet_ntop(AF_INET6, &in6->sin6_addr, text, UM_NET_NAME_TEXT)))
        return;
    snprintf(text, UM_NET_NAME_TEXT, "an address of its own kind");
}

int um_net_inner_insert(struct um_net_inner *inner, const struct um_net_addr_wire *addr, fi_addr_t *at_p)
{
    UM_UNCANCELLED;
    if (fi_av_insert(inner->own.av, addr->name, 1, at_p, 0, NULL) != 1)
        return -EHOSTUNREACH;
    inner->peers++;
    post(inner);
    return 0;
}

void um_net_inner_remove(struct um_net_inner *inner, fi_addr_t at)
{
    UM_UNCANCELLED;
    (void)fi_av_remove(inner->own.av, &at, 1, 0);
    inner->peers--;
}

/* ---- buffers ---- */

static enum um_net_size size_for(size_t len)
{
    return len <= UM_NET_SMALL    ? UM_NET_OF_SMALL
           : len <= UM_NET_MIDDLE ? UM_NET_OF_MIDDLE
           : len <= UM_NET_16K    ? UM_NET_OF_16K
           : len <= UM_NET_64K    ? UM_NET_OF_64K
                                  : UM_NET_OF_LARGE;
}

static struct um_net_buffer *buffer_new(struct um_net_inner *inner, enum um_net_size size)
{
    static const size_t lens[UM_NET_SIZES] = {UM_NET_SMALL, UM_NET_MIDDLE, UM_NET_16K, UM_NET_64K, UM_NET_LARGE};
    struct um_net_buffer *buffer = aligned_alloc(64, (sizeof(*buffer) + lens[size] + 63) & ~(size_t)63);
    if (!buffer)
        return NULL;
    buffer->size = (uint8_t)size;
    buffer->lent.iov_len = 0;
    buffer->is_told = false;
    buffer->all = inner->all;
    inner->all = buffer;
    return buffer;
}

static inline struct um_net_buffer *buffer_get(struct um_net_inner *inner, enum um_net_size size)
{
    struct um_net_buffer *buffer = inner->free[size];
    if (!buffer)
        return buffer_new(inner, size);
    inner->free[size] = buffer->next;
    buffer->lent.iov_len = 0;
    buffer->is_told = false;
    return buffer;
}

struct um_net_buffer *um_net_buffer_get(struct um_net_inner *inner, size_t len)
{
    return buffer_get(inner, size_for(len));
}

void um_net_buffer_put(struct um_net_inner *inner, struct um_net_buffer *buffer)
{
    buffer->next = inner->free[buffer->size];
    inner->free[buffer->size] = buffer;
}

struct um_net_buffer *um_net_buffer_fit(struct um_net_inner *inner, struct um_net_buffer *buffer, size_t most)
{
    const enum um_net_size size = size_for(buffer->len);
    if (buffer->len > most || buffer->size <= size)
        return buffer;
    struct um_net_buffer *fit = buffer_get(inner, size);
    if (!fit)
        return buffer;
    memcpy(fit->message, buffer->message, buffer->len);
    fit->len = buffer->len;
    fit->peer = NULL;
    um_net_buffer_put(inner, buffer);
    return fit;
}

/* ---- messages ---- */

/* Sends a record with a lent body: the buffer has the record without its body, and the seal. */
static __attribute__((noinline)) ssize_t send_lent(struct um_net_inner *inner, struct um_net_buffer *buffer,
                                                   fi_addr_t to)
{
    const size_t record = sizeof(struct um_net_record_wire);
    const struct iovec parts[PARTS] = {{.iov_base = buffer->message, .iov_len = record},
                                       buffer->lent,
                                       {.iov_base = buffer->message + record, .iov_len = UM_NET_SEAL}};
    return fi_sendv(inner->own.ep, parts, NULL, PARTS, to, &buffer->context);
}

int um_net_inner_send(struct um_net_inner *inner, struct um_net_buffer *buffer, fi_addr_t to)
{
    UM_UNCANCELLED_AMONG_THREADS;
    ssize_t ret = buffer->lent.iov_len
                      ? send_lent(inner, buffer, to)
                      : fi_send(inner->own.ep, buffer->message, buffer->len, NULL, to, &buffer->context);
    buffer->is_sending = ret == 0;
    inner->sending += ret == 0;
    inner->sent += ret == 0;
    return (int)ret;
}

/* Returns how many receives are posted because there are peers. Over tcp a message takes a receive when its first bytes
 * have come, and a peer that stops in the middle of it occupies that receive: so there is one for each peer, as far as
 * the provider's queue permits. */
static uint32_t receives_of_peers(const struct um_net_inner *inner)
{
    return inner->is_tcp ? inner->peers : 0;
}

static size_t receives_wanted(const struct um_net_inner *inner)
{
    const size_t most = inner->info->rx_attr->size, wish = (size_t)inner->receives + receives_of_peers(inner);
    return wish < most ? wish : most;
}

static void post_some(struct um_net_inner *inner, size_t count)
{
    while (inner->posted < count) {
        struct um_net_buffer *buffer = buffer_get(inner, UM_NET_OF_LARGE);
        if (!buffer)
            return;
        buffer->peer = NULL;
        ssize_t ret = fi_recv(inner->own.ep, buffer->message, UM_NET_LARGE, NULL, FI_ADDR_UNSPEC, &buffer->context);
        if (ret) {
            um_net_buffer_put(inner, buffer);
            return;
        }
        inner->posted++;
    }
}

/* Posts receives up to the number wanted. What cannot be posted now is tried again at the next look. */
static void post(struct um_net_inner *inner)
{
    const size_t count = receives_wanted(inner);
    if (inner->posted < count)
        post_some(inner, count);
}

uint32_t um_net_inner_more(struct um_net_inner *inner)
{
    UM_UNCANCELLED;
    const uint32_t before = inner->posted, peers = receives_of_peers(inner);
    const size_t wish = (size_t)before + TCP_RECEIVES, most = inner->info->rx_attr->size;
    post_some(inner, wish < most ? wish : most);
    return inner->posted > before && inner->posted > peers ? inner->posted - peers : 0;
}

static struct um_net_buffer *completed(struct um_net_inner *inner, void *context)
{
    struct um_net_buffer *buffer = context;
    if (!buffer->peer) {
        inner->posted--;
        return buffer;
    }
    inner->sending--;
    return buffer;
}

/* Takes an operation that failed. 1: a send, in *event_p; 0: a receive, whose buffer it frees (post() posts another),
 * or a stranger's; -EAGAIN: there is none. */
static int read_error(struct um_net_inner *inner, struct um_net_event *event_p)
{
    struct fi_cq_err_entry error = {0};
    if (fi_cq_readerr(inner->own.cq, &error, 0) != 1)
        return -EAGAIN;
    struct um_net_buffer *buffer = error.op_context ? completed(inner, error.op_context) : NULL;
    if (buffer && !buffer->peer)
        um_net_buffer_put(inner, buffer);
    if (!buffer || !buffer->peer)
        return 0;
    *event_p = (struct um_net_event){.buffer = buffer, .error = error.err ? error.err : EIO};
    return 1;
}

/* Turns completions into events; returns how many. A completion without a context is that of a stranger's write of no
 * bytes with immediate data; it is dropped. */
static int events_of(struct um_net_inner *inner, const struct fi_cq_msg_entry *entries, ssize_t count,
                     struct um_net_event *events)
{
    int events_count = 0;
    for (ssize_t i = 0; i < count; i++) {
        if (!entries[i].op_context)
            continue;
        struct um_net_buffer *buffer = completed(inner, entries[i].op_context);
        if (!buffer->peer)
            buffer->len = (uint32_t)entries[i].len;
        events[events_count++] = (struct um_net_event){.buffer = buffer};
    }
    return events_count;
}

int um_net_inner_read(struct um_net_inner *inner, struct um_net_event *events, int max)
{
    UM_UNCANCELLED_AMONG_THREADS;
    struct fi_cq_msg_entry entries[EVENTS];
    const ssize_t count = fi_cq_read(inner->own.cq, entries, (size_t)(max < EVENTS ? max : EVENTS));
    int found = -EAGAIN;
    if (count == -FI_EAVAIL)
        found = read_error(inner, &events[0]);
    else if (count > 0)
        found = events_of(inner, entries, count, events);
    post(inner);
    return found;
}

bool um_net_inner_may_sleep(const struct um_net_inner *inner)
{
    return um_net_objects_may_sleep(inner, &inner->own);
}

bool um_net_objects_may_sleep(const struct um_net_inner *inner, const struct um_net_objects *objects)
{
    UM_UNCANCELLED_AMONG_THREADS;
    struct fid *fids[] = {&objects->cq->fid};
    return inner->wait_none || fi_trywait(inner->fabric, fids, 1) == 0;
}
