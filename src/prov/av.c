/*
 * Address vectors: index → address in an array that never moves, address → index in a hash table.
 *
 * Owns: struct um_prov_av. Must not know what an address means. Both types are tables: an fi_addr_t is an index.
 * Threading: under the domain lock.
 */
#include "prov/prov.h"

#include "machine/address.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UM_AV_HINT_MAX = 65536 }; /* most entries that a table is sized for in advance; it grows anyway */

static bool um_prov_av_is_zero(const struct um_addr *addr)
{
    static const struct um_addr zero;
    return memcmp(addr, &zero, sizeof(zero)) == 0;
}

static const struct um_machines *um_prov_av_machines(const struct um_prov_av *av)
{
    return &av->domain->env.machines;
}

/* Finds the bucket of an address in the table of one machine. False: the address has no part of that machine. */
static bool um_prov_av_bucket(const struct um_prov_av *av, uint32_t machine, const struct um_addr *addr,
                              uint32_t **bucket_p)
{
    const struct um_machine *m = um_prov_av_machines(av)->at[machine];
    *bucket_p = &av->buckets[machine][um_addr_part_hash(m, addr) & av->bucket_mask];
    return um_addr_has(m, addr);
}

static struct um_prov_av_entry *um_prov_av_entry_at(const struct um_prov_av *av, uint64_t index)
{
    unsigned chunk;
    size_t offset;
    if (index >= av->used || !um_prov_vector_place(index, &chunk, &offset))
        return NULL;
    return (struct um_prov_av_entry *)(void *)(av->chunks[chunk] + offset * av->entry_size);
}

bool um_prov_av_addr_locked(const struct um_prov_av *av, fi_addr_t index, struct um_addr *addr_p)
{
    const struct um_prov_av_entry *entry = um_prov_av_entry_at(av, index);
    *addr_p = (struct um_addr){{0}};
    if (entry)
        memcpy(addr_p, entry->word, av->addr_len);
    return !um_prov_av_is_zero(addr_p);
}

/* Sets the address of an entry, which must exist. */
static void um_prov_av_set(struct um_prov_av *av, uint64_t index, const struct um_addr *addr)
{
    struct um_prov_av_entry *entry = um_prov_av_entry_at(av, index);
    if (entry)
        memcpy(entry->word, addr, av->addr_len);
}

/* Finds the first entry with the address's part of a machine, in a bucket from entry i on. */
static fi_addr_t um_prov_av_chain_find(const struct um_prov_av *av, uint32_t machine, uint32_t i,
                                       const struct um_addr *addr)
{
    const struct um_machine *m = um_prov_av_machines(av)->at[machine];
    struct um_addr other;
    while (i != UM_AV_NONE) {
        (void)um_prov_av_addr_locked(av, i, &other);
        if (um_addr_part_is_same(m, &other, addr))
            return i;
        i = um_prov_av_entry_at(av, i)->next[machine];
    }
    return FI_ADDR_NOTAVAIL;
}

fi_addr_t um_prov_av_find_part_locked(const struct um_prov_av *av, uint32_t machine, const struct um_addr *addr)
{
    uint32_t *bucket;
    return um_prov_av_bucket(av, machine, addr, &bucket) ? um_prov_av_chain_find(av, machine, *bucket, addr)
                                                         : FI_ADDR_NOTAVAIL;
}

fi_addr_t um_prov_av_next_part_locked(const struct um_prov_av *av, uint32_t machine, fi_addr_t index)
{
    struct um_addr addr;
    (void)um_prov_av_addr_locked(av, index, &addr);
    return um_prov_av_chain_find(av, machine, um_prov_av_entry_at(av, index)->next[machine], &addr);
}

fi_addr_t um_prov_av_find_locked(const struct um_prov_av *av, const struct um_addr *addr)
{
    fi_addr_t found = FI_ADDR_NOTAVAIL;
    for (uint32_t m = 0; found == FI_ADDR_NOTAVAIL && m < um_prov_av_machines(av)->count; m++)
        found = um_prov_av_find_part_locked(av, m, addr);
    return found;
}

/* Appends an entry to its buckets, so that a search finds the oldest of duplicates. */
static void um_prov_av_link(struct um_prov_av *av, uint32_t index)
{
    struct um_addr addr;
    uint32_t *at;
    (void)um_prov_av_addr_locked(av, index, &addr);
    for (uint32_t m = 0; m < um_prov_av_machines(av)->count; m++) {
        um_prov_av_entry_at(av, index)->next[m] = UM_AV_NONE;
        if (!um_prov_av_bucket(av, m, &addr, &at))
            continue;
        while (*at != UM_AV_NONE)
            at = &um_prov_av_entry_at(av, *at)->next[m];
        *at = index;
    }
}

/* Makes tables with at least as many buckets as expected entries. -FI_ENOMEM: the old tables stay. */
static int um_prov_av_rehash(struct um_prov_av *av, uint64_t expected)
{
    const uint32_t machines = um_prov_av_machines(av)->count;
    uint32_t *buckets[UM_MACHINES_MAX] = {0};
    struct um_addr addr;
    uint64_t room = UM_VECTOR_FIRST;
    while (room < expected)
        room *= 2;
    for (uint32_t m = 0; m < machines; m++) {
        buckets[m] = malloc(room * sizeof(uint32_t));
        if (!buckets[m]) {
            while (m-- > 0)
                free(buckets[m]);
            return -FI_ENOMEM;
        }
        memset(buckets[m], 0xff, room * sizeof(uint32_t));
    }
    for (uint32_t m = 0; m < machines; m++) {
        free(av->buckets[m]);
        av->buckets[m] = buckets[m];
    }
    av->bucket_mask = room - 1;
    for (uint64_t i = 0; i < av->used; i++) {
        if (um_prov_av_addr_locked(av, i, &addr))
            um_prov_av_link(av, (uint32_t)i);
    }
    return 0;
}

/* Allocates the lowest free index, with the memory of its entry. */
static int um_prov_av_alloc(struct um_prov_av *av, uint64_t *index_p)
{
    unsigned chunk;
    size_t offset;
    if (av->freed) {
        struct um_addr addr;
        while (um_prov_av_addr_locked(av, av->low, &addr))
            av->low++;
        av->freed--;
        *index_p = av->low;
        return 0;
    }
    if (av->used >= UM_AV_NONE || !um_prov_vector_place(av->used, &chunk, &offset))
        return -FI_ENOMEM;
    if (!av->chunks[chunk])
        av->chunks[chunk] = calloc(um_prov_vector_chunk_size(chunk), av->entry_size);
    if (!av->chunks[chunk])
        return -FI_ENOMEM;
    *index_p = av->used++;
    return 0;
}

/*
 * Inserts one address. Returns 0, or the fabric error for this address. An endpoint that is open already checks whether
 * it reaches the address.
 */
static int um_prov_av_insert_one(struct um_prov_av *av, const struct um_addr *addr, fi_addr_t *index_p)
{
    if (um_prov_av_is_zero(addr))
        return -FI_EINVAL;
    for (struct um_list *n = av->eps.next; n != &av->eps; n = n->next) {
        struct um_prov_ep *ep = UM_CONTAINER(n, struct um_prov_ep, av_link);
        int ret = ep->core ? um_prov_error_result(um_core_ep_addr_check(ep->core, addr)) : 0;
        if (ret)
            return ret;
        if (ep->core)
            break;
    }
    uint64_t index = 0;
    int ret = av->count > av->bucket_mask ? um_prov_av_rehash(av, 2 * (av->bucket_mask + 1)) : 0;
    if (ret == 0)
        ret = um_prov_av_alloc(av, &index);
    if (ret)
        return ret;
    um_prov_av_set(av, index, addr);
    um_prov_av_link(av, (uint32_t)index);
    av->count++;
    *index_p = index;
    return 0;
}

static void um_prov_av_report(struct um_prov_av *av, void *context, uint64_t data, int err)
{
    const struct fi_eq_entry entry = {.fid = &av->fid.fid, .context = context, .data = data};
    um_prov_eq_post(av->eq, FI_AV_COMPLETE, &entry, err);
}

static int um_prov_av_insert(struct fid_av *fid, const void *addr, size_t count, fi_addr_t *fi_addr, uint64_t flags,
                             void *context)
{
    struct um_prov_av *av = UM_CONTAINER(fid, struct um_prov_av, fid);
    int *errors = flags & FI_SYNC_ERR ? context : NULL;
    int done = 0;
    if (flags & ~(FI_MORE | FI_SYNC_ERR))
        return -FI_EBADFLAGS;
    if (count && !addr)
        return -FI_EINVAL;
    if (av->events && !av->eq)
        return -FI_ENOEQ;
    um_prov_control_lock(&av->domain->lock);
    for (size_t i = 0; i < count; i++) {
        struct um_addr one = {{0}};
        fi_addr_t index = FI_ADDR_NOTAVAIL;
        memcpy(&one, (const char *)addr + i * av->addr_len, av->addr_len); /* the caller's buffer may be unaligned */
        int ret = um_prov_av_insert_one(av, &one, &index);
        if (fi_addr)
            fi_addr[i] = index;
        if (errors)
            errors[i] = -ret;
        if (ret && av->events)
            um_prov_av_report(av, context, i, -ret);
        done += ret == 0;
    }
    um_prov_control_unlock(&av->domain->lock);
    if (!av->events)
        return done;
    um_prov_av_report(av, context, (uint64_t)done, 0);
    return 0;
}

static int um_prov_av_insertsvc(struct fid_av *av, const char *node, const char *service, fi_addr_t *fi_addr,
                                uint64_t flags, void *context)
{
    (void)av, (void)node, (void)service, (void)fi_addr, (void)flags, (void)context;
    return -FI_ENOSYS; /* addresses by name or service are not supported */
}

static int um_prov_av_insertsym(struct fid_av *av, const char *node, size_t nodecnt, const char *service, size_t svccnt,
                                fi_addr_t *fi_addr, uint64_t flags, void *context)
{
    (void)av, (void)node, (void)nodecnt, (void)service, (void)svccnt, (void)fi_addr, (void)flags, (void)context;
    return -FI_ENOSYS;
}

static void um_prov_av_unlink(struct um_prov_av *av, uint32_t index, const struct um_addr *addr)
{
    uint32_t *at;
    for (uint32_t m = 0; m < um_prov_av_machines(av)->count; m++) {
        if (!um_prov_av_bucket(av, m, addr, &at))
            continue;
        while (*at != index)
            at = &um_prov_av_entry_at(av, *at)->next[m];
        *at = um_prov_av_entry_at(av, index)->next[m];
    }
}

static int um_prov_av_remove_one(struct um_prov_av *av, fi_addr_t index)
{
    static const struct um_addr none;
    struct um_addr addr;
    if (!um_prov_av_addr_locked(av, index, &addr))
        return -FI_EINVAL;
    um_prov_av_unlink(av, (uint32_t)index, &addr);
    for (struct um_list *n = av->eps.next; n != &av->eps; n = n->next)
        um_prov_ep_forget_locked(UM_CONTAINER(n, struct um_prov_ep, av_link), index, &addr);
    um_prov_av_set(av, index, &none);
    if (!av->freed++ || index < av->low)
        av->low = index;
    av->count--;
    return 0;
}

static int um_prov_av_remove(struct fid_av *fid, fi_addr_t *fi_addr, size_t count, uint64_t flags)
{
    struct um_prov_av *av = UM_CONTAINER(fid, struct um_prov_av, fid);
    int ret = 0;
    if (flags)
        return -FI_EBADFLAGS;
    um_prov_control_lock(&av->domain->lock);
    for (size_t i = 0; i < count; i++) {
        int one = um_prov_av_remove_one(av, fi_addr[i]);
        ret = ret ? ret : one;
    }
    um_prov_control_unlock(&av->domain->lock);
    return ret;
}

static int um_prov_av_lookup(struct fid_av *fid, fi_addr_t fi_addr, void *addr, size_t *addrlen)
{
    struct um_prov_av *av = UM_CONTAINER(fid, struct um_prov_av, fid);
    um_prov_control_lock(&av->domain->lock);
    struct um_addr found;
    bool is_there = um_prov_av_addr_locked(av, fi_addr, &found);
    if (is_there)
        memcpy(addr, &found, *addrlen < av->addr_len ? *addrlen : av->addr_len);
    um_prov_control_unlock(&av->domain->lock);
    if (!is_there)
        return -FI_EINVAL;
    *addrlen = av->addr_len;
    return 0;
}

const char *um_prov_av_straddr(struct fid_av *fid, const void *addr, char *buf, size_t *len)
{
    const struct um_prov_av *av = UM_CONTAINER(fid, struct um_prov_av, fid);
    char text[sizeof("unimem") + sizeof(struct um_addr) / sizeof(uint64_t) * 17] = "unimem";
    size_t at = strlen(text);
    for (size_t i = 0; i < av->addr_len / sizeof(uint64_t); i++) {
        uint64_t word;
        memcpy(&word, (const char *)addr + i * sizeof(word), sizeof(word));
        at += (size_t)snprintf(text + at, sizeof(text) - at, ":%" PRIx64, word);
    }
    snprintf(buf, *len, "%s", text);
    *len = at + 1;
    return buf;
}

static struct fi_ops_av um_prov_av_ops = {
    .size = sizeof(struct fi_ops_av),
    .insert = um_prov_av_insert,
    .insertsvc = um_prov_av_insertsvc,
    .insertsym = um_prov_av_insertsym,
    .remove = um_prov_av_remove,
    .lookup = um_prov_av_lookup,
    .straddr = um_prov_av_straddr,
};

static int um_prov_av_close(struct fid *fid)
{
    struct um_prov_av *av = UM_CONTAINER(fid, struct um_prov_av, fid.fid);
    struct um_prov_domain *d = av->domain;
    um_prov_control_lock(&d->lock);
    uint32_t refs = av->refs;
    um_prov_control_unlock(&d->lock);
    if (refs)
        return -FI_EBUSY;
    um_prov_live_remove(&av->live);
    for (size_t i = 0; i < UM_VECTOR_CHUNKS; i++)
        free(av->chunks[i]);
    if (av->eq)
        um_prov_eq_drop(av->eq);
    for (uint32_t m = 0; m < UM_MACHINES_MAX; m++)
        free(av->buckets[m]);
    free(av);
    um_prov_domain_drop(d);
    return 0;
}

static int um_prov_av_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
    struct um_prov_av *av = UM_CONTAINER(fid, struct um_prov_av, fid.fid);
    if (bfid->fclass != FI_CLASS_EQ || av->eq || um_prov_fork_is_inherited(bfid))
        return -FI_EINVAL;
    if (flags)
        return -FI_EBADFLAGS;
    av->eq = UM_CONTAINER(bfid, struct um_prov_eq, fid.fid);
    um_prov_eq_hold(av->eq);
    return 0;
}

static int um_prov_av_control(struct fid *fid, int command, void *arg)
{
    (void)fid, (void)command, (void)arg;
    return -FI_ENOSYS;
}

static int um_prov_av_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
{
    (void)fid, (void)name, (void)flags, (void)ops, (void)context;
    return -FI_ENOSYS;
}

static struct fi_ops um_prov_av_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = um_prov_av_close,
    .bind = um_prov_av_bind,
    .control = um_prov_av_control,
    .ops_open = um_prov_av_ops_open,
};

int um_prov_av_open(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av_p, void *context)
{
    struct um_prov_domain *d = UM_CONTAINER(domain, struct um_prov_domain, fid);
    if (attr->name || attr->flags & FI_READ) /* named or shared address vectors are not supported */
        return -FI_ENOSYS;
    if (attr->flags & ~(FI_EVENT | FI_SYMMETRIC))
        return -FI_EBADFLAGS;
    if (attr->type > FI_AV_TABLE)
        return -FI_EINVAL;
    struct um_prov_av *av = calloc(1, sizeof(*av));
    if (!av)
        return -FI_ENOMEM;
    um_list_init(&av->eps);
    av->domain = d;
    av->addr_len = um_addr_len(&d->env.machines);
    av->entry_size = sizeof(struct um_prov_av_entry) + av->addr_len;
    if (um_prov_av_rehash(av, attr->count < UM_AV_HINT_MAX ? attr->count : UM_AV_HINT_MAX) != 0) {
        free(av);
        return -FI_ENOMEM;
    }
    if (attr->type == FI_AV_UNSPEC)
        attr->type = FI_AV_TABLE;
    av->events = attr->flags & FI_EVENT;
    av->fid.fid.fclass = FI_CLASS_AV;
    av->fid.fid.context = context;
    av->fid.fid.ops = &um_prov_av_fid_ops;
    av->fid.ops = &um_prov_av_ops;
    um_prov_domain_hold(d);
    um_prov_live_add(&av->live, &av->fid.fid);
    *av_p = &av->fid;
    return 0;
}
