/*
 * Completion queues (cq.c, cq_error.c). A part of prov.h, which includes it.
 */
#ifndef UM_PROV_CQ_H
#define UM_PROV_CQ_H

#include "prov/compat.h"
#include "prov/spin.h"
#include "prov/wait.h"

#include "core/core.h"

struct um_prov_cq_error;

/* Begins as struct fi_cq_tagged_entry, of which the other formats are prefixes. */
struct um_prov_cq_entry {
    void *context;
    uint64_t flags;
    size_t len;
    void *buf;
    uint64_t data;
    uint64_t tag;
    fi_addr_t source;
    struct um_prov_cq_error *error; /* not NULL: the entry is an error */
};
static_assert(offsetof(struct um_prov_cq_entry, tag) == offsetof(struct fi_cq_tagged_entry, tag), "layout of an entry");
static_assert(sizeof(struct um_prov_cq_entry) == 64, "one cache line");

struct um_prov_cq_error {
    size_t olen;
    int err;        /* fabric errno */
    int prov_errno; /* errno of the layers below */
    bool has_addr;
    struct um_addr addr; /* the sender's raw address, for FI_EADDRNOTAVAIL */
};

struct um_prov_cq {
    struct fid_cq fid;
    struct um_prov_event_source source;
    size_t entry_size;
    /* While a read makes progress with an empty ring, completions go straight into the caller's array. */
    char *direct;
    fi_addr_t *direct_source;
    size_t direct_left;
    size_t direct_done;
    /* ring[head & mask .. tail & mask): completions not read yet; grows, so that none is lost while there is memory */
    struct um_prov_cq_entry *ring;
    uint64_t head, tail, mask;
    struct um_addr err_data; /* err_data of the last error entry points to this */
    bool signaled;
    bool unsettled; /* the ring holds completions of operations by loads and stores, and no full fence has followed the
                       last of them */
    bool lingers;   /* the caller spins: see um_prov_cq_linger() */
    bool told;      /* the last read returned completions: the next empty one does not linger */
    uint8_t linger_left; /* how often an empty read may still linger in vain */
    uint32_t waited;     /* empty reads of the present wait, without the first; one that lingered counts four times */
    int32_t drains;      /* reads from the ring that may follow before one makes progress */
    int32_t drains_most; /* drains after the last progress of such a read */
    struct um_prov_spin spin;
    uint32_t lingers_from; /* no lingering before spin.reads is that */
    uint32_t *found_p;     /* set when a read returns completions: yield_abi.h, or found */
    uint32_t found;
    bool overrun;  /* memory ran out while growing: completions were lost */
    uint64_t full; /* entries from which on it is very full */
    uint32_t refs;
    struct um_prov_live live;
};

int um_prov_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq, void *context);
/*
 * Returns the place of the next completion if a reader waits with an array of struct fi_cq_tagged_entry. The caller
 * fills all fields. NULL: use um_prov_cq_slot_locked() or um_prov_cq_write_locked().
 */
static inline struct fi_cq_tagged_entry *um_prov_cq_direct_locked(struct um_prov_cq *cq, fi_addr_t source)
{
    struct fi_cq_tagged_entry *to = (struct fi_cq_tagged_entry *)(void *)cq->direct;
    if (__builtin_expect(!cq->direct_left || cq->entry_size != sizeof(*to), 0))
        return NULL;
    cq->direct += sizeof(*to);
    if (cq->direct_source)
        *cq->direct_source++ = source;
    cq->direct_left--;
    cq->direct_done++;
    return to;
}

/* Is the queue so full that what may wait elsewhere shall wait? It still takes entries. */
static inline bool um_prov_cq_is_full_locked(const struct um_prov_cq *cq)
{
    return cq->tail - cq->head >= cq->full;
}

/*
 * Returns the next place in the ring. The caller fills all fields, error and source included, then calls
 * um_prov_cq_filled_locked(). NULL: a reader of another format waits, or the ring is full: use
 * um_prov_cq_write_locked().
 */
static inline struct um_prov_cq_entry *um_prov_cq_slot_locked(struct um_prov_cq *cq)
{
    return cq->direct_left || cq->tail - cq->head > cq->mask ? NULL : &cq->ring[cq->tail & cq->mask];
}

/*
 * Notes that an entry may complete a store through a window: a reader then issues a full fence before it gets the
 * entry. On x86 an atomic that stores is such a fence itself.
 */
static inline void um_prov_cq_unsettle_locked(struct um_prov_cq *cq, uint32_t op_flags)
{
#if defined(__x86_64__)
    const uint32_t stores = UM_OP_WRITE;
#else
    const uint32_t stores = UM_OP_WRITE | UM_OP_ATOMIC;
#endif
    if (op_flags & stores)
        cq->unsettled = true;
}

static inline void um_prov_cq_filled_locked(struct um_prov_cq *cq)
{
    cq->tail++;
    um_prov_waiter_signal(&cq->source.waiter);
}

/* Called when the caller is not waiting for a message: its reads linger again only after UM_SPIN_READS empty ones. */
static inline void um_prov_cq_stop_lingering(struct um_prov_cq *cq)
{
    if (cq) {
        cq->lingers = false;
        cq->lingers_from = cq->spin.reads + UM_SPIN_READS;
    }
}

/* Writes into the ring, or into a reader's array of any format. */
void um_prov_cq_write_locked(struct um_prov_cq *cq, const struct um_prov_cq_entry *entry);
/* Writes an error entry. entry->error becomes a copy of *error. */
void um_prov_cq_write_error_locked(struct um_prov_cq *cq, struct um_prov_cq_entry *entry,
                                   const struct um_prov_cq_error *error);
ssize_t um_prov_cq_readerr(struct fid_cq *fid, struct fi_cq_err_entry *buf, uint64_t flags);
const char *um_prov_cq_strerror(struct fid_cq *fid, int prov_errno, const void *err_data, char *buf, size_t len);
bool um_prov_cq_ready_locked(const struct um_prov_cq *cq);

#endif
