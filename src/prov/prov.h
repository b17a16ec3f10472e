/*
 * The libfabric objects and what they need of each other.
 *
 * Owns: the structs behind the fids. Must not know what a lane, a record or a protocol is: it goes through core/core.h
 * and proto/proto.h.
 * Threading: one lock per domain (the domain lock) covers everything that belongs to the domain. Data transfer calls
 * take it by um_prov_domain_lock(), control calls (open, close, bind, register, insert, ...) by um_prov_control_lock().
 * If the application promised FI_THREAD_DOMAIN and makes progress itself, only one thread at a time makes data transfer
 * calls, and these take no mutex; but control calls may come from any thread at any time. No thread sleeps with the
 * domain lock held. The caller of a function named *_locked holds it, by either way.
 */
#ifndef UM_PROV_PROV_H
#define UM_PROV_PROV_H

#include "prov/compat.h"
#include "prov/vector.h"

#include "base/list.h"
#include "core/core.h"
#include "proto/proto.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UM_PROV_NAME "unimem"

extern struct fi_provider um_prov_provider;

/* ---- init.c, env.c, error.c ---- */

/* The FI_UNIMEM_* variables. */
struct um_prov_env {
    struct um_machines machines;
    struct um_port_config port;
    struct um_space_config space;
    size_t unexpected_max; /* bytes; 0: the default */
    enum um_core_bodies bodies;
    enum um_core_mapped mapped;
    bool stats;
    bool linger;
    bool mpich_atomics;
};
void um_prov_env_define(void);
/*
 * Reads the variables. Returns 0 and the settings, or logs the reason and returns -FI_EINVAL or -FI_ENODATA (no such
 * machine).
 */
int um_prov_env_read(struct um_prov_env *env_p);

/* Maps a positive errno of the layers below to the positive fabric errno that libfabric's clients know. */
int um_prov_error_to_fi(int error);
/* Does the same for results: 0 or a negative errno becomes 0 or a negative fabric errno. */
static inline int um_prov_error_result(int ret)
{
    return __builtin_expect(ret == 0, 1) ? 0 : -um_prov_error_to_fi(-ret);
}
/* Returns a text for a positive errno of the layers below. */
const char *um_prov_error_text(int error);

/* ---- the domain lock: domain_lock.c ---- */

enum { UM_GATE_MUTEX = 1 /* data transfer calls take the mutex */, UM_GATE_CONTROL = 2 /* a control call comes */ };

struct um_prov_domain_mutex {
    pthread_mutex_t mutex;
    uint32_t gate;   /* enum above; 0: a data transfer call may go ahead */
    uint32_t moving; /* without UM_GATE_MUTEX: 1 during a data transfer call */
    uint32_t queued; /* without UM_GATE_MUTEX: 1 while a data transfer call waits for the mutex */
};

/* serial: the application promised that data transfer calls of several threads do not overlap. */
void um_prov_domain_lock_init(struct um_prov_domain_mutex *g, bool serial);
void um_prov_domain_lock_fini(struct um_prov_domain_mutex *g);
/* Do data transfer calls of several threads overlap? */
static inline bool um_prov_domain_is_shared(const struct um_prov_domain_mutex *g)
{
    return um_load_relaxed_u32(&g->gate) & UM_GATE_MUTEX;
}

void um_prov_domain_lock_slow(struct um_prov_domain_mutex *g);
/*
 * Begins a data transfer call if nothing is in its way. False: um_prov_domain_lock() is needed. The store and the load
 * may pass each other here; the control call makes up for that with a barrier in all threads of the process.
 */
static inline bool um_prov_domain_enter(struct um_prov_domain_mutex *g)
{
    um_store_relaxed_u32(&g->moving, 1); /* sync: control-wait (partner control-begin) */
    um_fence_compiler();
    return __builtin_expect(um_load_acquire_u32(&g->gate) == 0, 1); /* sync: control-end (partner control-leave) */
}

/* Ends a call that um_prov_domain_enter() began. */
static inline void um_prov_domain_leave(struct um_prov_domain_mutex *g)
{
    um_store_release_u32(&g->moving, 0); /* sync: control-wait (partner control-begin) */
}

static inline void um_prov_domain_lock(struct um_prov_domain_mutex *g)
{
    if (!um_prov_domain_enter(g))
        um_prov_domain_lock_slow(g);
}

static inline void um_prov_domain_unlock(struct um_prov_domain_mutex *g)
{
    if (__builtin_expect(um_prov_domain_is_shared(g), 0))
        pthread_mutex_unlock(&g->mutex);
    else
        um_prov_domain_leave(g);
}

/* For control calls. Some microseconds in a process of several threads. */
void um_prov_control_lock(struct um_prov_domain_mutex *g);
void um_prov_control_unlock(struct um_prov_domain_mutex *g);

/* ---- fork.c ---- */

/* The list entry of an object that a forked child must not use. It is the last member of the object's struct. */
struct um_prov_live {
    struct um_list link;
    struct fid *fid;
};
/* Installs the fork handlers, before any object is opened. Returns 0 or -FI_ENOMEM. */
int um_prov_fork_watch(void);
/* Adds an object when it is complete; removes it before any part of it is released. */
void um_prov_live_add(struct um_prov_live *live, struct fid *fid);
void um_prov_live_remove(struct um_prov_live *live);
/* True if the object was inherited from the parent process. */
bool um_prov_fork_is_inherited(const struct fid *fid);

/* ---- fabric, domain ---- */

struct um_prov_fabric {
    struct fid_fabric fid;
    pthread_mutex_t mutex; /* guards refs */
    uint32_t refs;
    struct um_prov_live live;
};

struct um_prov_ep;
struct um_prov_progress;

struct um_prov_domain {
    struct fid_domain fid;
    struct um_prov_fabric *fabric;
    struct um_prov_domain_mutex lock;
    struct um_prov_env env;
    struct um_proto_limits limits;
    struct um_core_regions *regions;
    bool virtual_addresses; /* peers address a region by virtual addresses, not by offsets */
    bool provider_keys;
    uint64_t next_key;
    uint32_t processors; /* online when the domain was opened: the query takes microseconds */
    bool counter_read;   /* the caller read a counter, so it may not be waiting for a message (cq.c) */
    uint32_t refs;
    uint32_t wait_objects;       /* not 0: a queue or counter is not FI_WAIT_NONE, or there is the progress thread */
    struct um_list eps;          /* enabled endpoints */
    struct um_list remote_cntrs; /* counters that peers add to */
    struct um_prov_progress *progress; /* the thread of FI_PROGRESS_AUTO, or NULL */
    unsigned useless_pauses;           /* pauses of the thread that did not help a registration */
    struct um_prov_live live;
};

int um_prov_fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
void um_prov_fabric_hold(struct um_prov_fabric *fabric);
void um_prov_fabric_drop(struct um_prov_fabric *fabric);
int um_prov_domain_open(struct fid_fabric *fabric_fid, struct fi_info *info, struct fid_domain **domain_p,
                        void *context);
void um_prov_domain_hold(struct um_prov_domain *d);
void um_prov_domain_drop(struct um_prov_domain *d);
static inline uint32_t um_prov_domain_api(const struct um_prov_domain *d)
{
    return d->fabric->fid.api_version;
}

/* memory.c: fi_open_ops() on a domain */
int um_prov_memory_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context);

/*
 * progress.c: the thread that makes the progress of a domain's endpoints when the application asked for automatic
 * progress
 */
int um_prov_progress_start(struct um_prov_domain *d);
void um_prov_progress_stop(struct um_prov_domain *d);
/*
 * Stops the thread until um_prov_progress_resume() if it and the caller's thread are the only ones of the process.
 * False: nothing was stopped. Called without the domain lock.
 */
bool um_prov_progress_pause(struct um_prov_domain *d);
int um_prov_progress_resume(struct um_prov_domain *d);
int um_prov_progress_add_locked(struct um_prov_domain *d, struct um_prov_ep *ep);
void um_prov_progress_remove_locked(struct um_prov_domain *d, struct um_prov_ep *ep);

#include "prov/cq.h"
#include "prov/spin.h"
#include "prov/wait.h"

/* ---- cntr.c, eq.c ---- */

struct um_prov_cntr {
    struct fid_cntr fid;
    struct um_prov_event_source source;
    uint64_t value;
    uint64_t errors;
    uint64_t value_read, errors_read; /* value and errors, as the caller last read them */
    bool bytes;                       /* counts bytes instead of completions */
    uint32_t refs;
    /* A counter of a target: peers add to *remote; value holds the rest of the count. */
    uint32_t remote_number; /* 0: peers do not add to this counter */
    const uint64_t *remote;
    uint64_t remote_base; /* *remote when the counter became a target's or was last set */
    uint64_t remote_seen; /* *remote when the caller last read the counter */
    uint64_t remote_told; /* *remote when sleepers were last woken */
    struct um_prov_spin spin;
    uint64_t spin_value; /* what the last fi_cntr_read() returned */
    struct um_list remote_link;
    struct um_prov_live live;
};

int um_prov_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr, struct fid_cntr **cntr, void *context);
static inline void um_prov_cntr_count_locked(struct um_prov_cntr *cntr, size_t len)
{
    cntr->value += cntr->bytes ? len : 1;
    um_prov_waiter_signal(&cntr->source.waiter);
}
void um_prov_cntr_fail_locked(struct um_prov_cntr *cntr);
/* Returns the value at the last look at *remote. */
static inline uint64_t um_prov_cntr_known(const struct um_prov_cntr *cntr)
{
    return cntr->value + (cntr->remote ? cntr->remote_seen - cntr->remote_base : 0);
}
/*
 * Turns it into a counter that peers add to. *number_p: its number among the counters of the domain's space.
 * -FI_ENOSYS: it counts bytes.
 */
int um_prov_cntr_make_remote_locked(struct um_prov_cntr *cntr, uint32_t *number_p);
/* Wakes sleepers on counters that peers have added to. */
void um_prov_cntrs_tell_locked(struct um_prov_domain *d);
/* True if a peer has added to a counter since um_prov_cntrs_tell_locked(). */
bool um_prov_cntrs_have_news_locked(const struct um_prov_domain *d);
/*
 * Called when an endpoint of the domain is enabled or closed. Peers' operations arrive through it, so all these
 * counters depend on its progress.
 */
int um_prov_cntrs_add_ep_locked(struct um_prov_domain *d, struct um_prov_ep *ep);
void um_prov_cntrs_remove_ep_locked(struct um_prov_domain *d, struct um_prov_ep *ep);

/* The kinds of peers' accesses that a counter counts. */
enum um_prov_remote_kind { UM_REMOTE_WRITE, UM_REMOTE_READ, UM_REMOTE_KINDS };
/*
 * Binds a counter for FI_REMOTE_WRITE, FI_REMOTE_READ or both to the endpoint or region whose counters are bound[].
 * Returns 0 and in *counters_p the new set for the machine (enum um_counters); -FI_EBADFLAGS; -FI_EINVAL: one is bound
 * already; the errors of um_prov_cntr_make_remote_locked().
 */
int um_prov_cntr_bind_remote_locked(struct um_prov_cntr *cntr, uint64_t flags,
                                    struct um_prov_cntr *bound[UM_REMOTE_KINDS], uint32_t *counters_p);

struct um_prov_eq {
    struct fid_eq fid;
    struct um_prov_fabric *fabric;
    pthread_mutex_t mutex;
    struct um_prov_waiter waiter;
    struct um_list events;
    uint32_t refs;
    struct um_prov_live live;
};

int um_prov_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **eq_p, void *context);
void um_prov_eq_hold(struct um_prov_eq *eq);
void um_prov_eq_drop(struct um_prov_eq *eq);
/* Queues an event. err: 0 for an ordinary event, else the fabric errno of an error event. */
int um_prov_eq_post(struct um_prov_eq *eq, uint32_t event, const struct fi_eq_entry *entry, int err);
/* fi_trywait(): 0 or -FI_EAGAIN. */
int um_prov_eq_arm(struct um_prov_eq *eq);
const char *um_prov_eq_strerror(struct fid_eq *fid, int prov_errno, const void *err_data, char *buf, size_t len);

/* ---- av.c ---- */

/* An entry. word[] has as many words as an address of the domain. */
struct um_prov_av_entry {
    uint32_t next[UM_MACHINES_MAX]; /* by machine: the next entry of the same bucket, or UM_AV_NONE */
    uint64_t word[];                /* the address; all words zero: the entry is free */
};
static_assert(sizeof(struct um_prov_av_entry) + 48 == 56,
              "with 4 to 8 bytes of hash table: at most 64 a known address");

enum { UM_AV_NONE = UINT32_MAX };

struct um_prov_av {
    struct fid_av fid;
    struct um_prov_domain *domain;
    struct um_prov_eq *eq;
    bool events; /* FI_EVENT: insertions report to the EQ */
    unsigned char *chunks[UM_VECTOR_CHUNKS];
    size_t addr_len;                    /* bytes of an address */
    size_t entry_size;                  /* bytes of a struct um_prov_av_entry with its address */
    uint64_t used;                      /* entries ever used: all indices are below it */
    uint64_t freed;                     /* of these, entries that are free again */
    uint64_t low;                       /* no entry below this index is free */
    uint32_t *buckets[UM_MACHINES_MAX]; /* by machine: the hash table of its parts of addresses */
    uint64_t bucket_mask;
    uint64_t count;
    struct um_list eps; /* bound endpoints */
    uint32_t refs;
    struct um_prov_live live;
};

int um_prov_av_open(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av, void *context);
/* Returns in *addr_p the address of an entry. False: there is no such entry. */
bool um_prov_av_addr_locked(const struct um_prov_av *av, fi_addr_t index, struct um_addr *addr_p);
/* Finds the first entry that has a part in common with the address. FI_ADDR_NOTAVAIL: there is none. */
fi_addr_t um_prov_av_find_locked(const struct um_prov_av *av, const struct um_addr *addr);
const char *um_prov_av_straddr(struct fid_av *fid, const void *addr, char *buf, size_t *len);
/*
 * Finds the first entry with the address's part of one machine, and the next entry with the same part as the entry at
 * index. FI_ADDR_NOTAVAIL: there is none.
 */
fi_addr_t um_prov_av_find_part_locked(const struct um_prov_av *av, uint32_t machine, const struct um_addr *addr);
fi_addr_t um_prov_av_next_part_locked(const struct um_prov_av *av, uint32_t machine, fi_addr_t index);

/* ---- mr.c ---- */

struct um_prov_mr {
    struct fid_mr fid;
    struct um_prov_domain *domain;
    struct um_core_region region;
    struct um_prov_cntr *cntr[UM_REMOTE_KINDS];
    struct um_prov_live live;
};

extern struct fi_ops_mr um_prov_mr_ops;

/* ---- ep*.c, complete.c, post.c, msg.c, tagged.c, rma.c, atomic.c ---- */

/* Default of FI_OPT_MIN_MULTI_RECV, in bytes. */
enum { UM_MULTI_MIN = 64 };

enum um_prov_cntr_kind { UM_CNTR_SEND, UM_CNTR_RECV, UM_CNTR_READ, UM_CNTR_WRITE, UM_CNTR_KINDS };

struct um_prov_ep {
    struct fid_ep fid;
    struct um_core_ep *core; /* NULL until enabled (or named) */
    struct um_prov_domain *domain;
    struct um_prov_av *av;
    struct um_prov_cq *tx_cq, *rx_cq;
    struct um_prov_cntr *cntr[UM_CNTR_KINDS];
    struct um_prov_cntr *remote_cntr[UM_REMOTE_KINDS];
    uint32_t remote_counters; /* the numbers of remote_cntr[], as enum um_counters */
    struct um_prov_eq *eq;
    struct um_core_peer **peers;       /* by fi_addr_t; filled at first use */
    uint64_t peers_room;               /* entries of peers[] */
    uint64_t pending;                  /* accepted transmissions that have not completed */
    uint32_t tx_flags, rx_flags;       /* um_core_op_flag for calls that take no flags */
    uint64_t tx_op_flags, rx_op_flags; /* the default FI_* flags */
    bool tx_selective, rx_selective;
    bool directed, tagged_directed; /* untagged, tagged receives match by their source address */
    bool wants_source, wants_source_err;
    bool enabled;
    bool closing;
    uint32_t arms; /* sleepers that want the ports armed */
    bool armed;    /* the ports are armed */
    bool stale;    /* armed, but progress was made or a sleeper woke since: the next sleeper arms again */
    bool kicked;   /* a wake-up is on its way to a sleeper */
    int sleep_max; /* um_core_ep_sleep_max() when it was armed last */
    uint64_t caps;
    size_t multi_min;
    size_t tx_size, rx_size;
    struct um_list av_link;
    struct um_list domain_link;
    struct um_prov_live live;
};

int um_prov_ep_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context);
extern struct fi_ops_ep um_prov_ep_ops;
extern struct fi_ops_cm um_prov_cm_ops;
extern struct fi_ops_msg um_prov_msg_ops;
extern struct fi_ops_tagged um_prov_tagged_ops;
extern struct fi_ops_rma um_prov_rma_ops;
extern struct fi_ops_atomic um_prov_atomic_ops;
/* fi_query_atomic() */
int um_prov_atomic_query(struct fid_domain *d, enum fi_datatype type, enum fi_op op, struct fi_atomic_attr *attr,
                         uint64_t flags);
int um_prov_ep_bind(struct fid *fid, struct fid *bfid, uint64_t flags);
/* Is the queue or counter bound to the endpoint? */
bool um_prov_ep_feeds(struct um_prov_ep *ep, const struct um_prov_event_source *source);
int um_prov_ep_start_locked(struct um_prov_ep *ep);
void um_prov_ep_set_flags(struct um_prov_ep *ep);
void um_prov_ep_complete(void *arg, const struct um_core_completion *c);
void um_prov_ep_received(void *arg, struct um_core_peer *source, void *context, uint32_t flags, size_t len,
                         uint64_t tag, uint64_t data);
/* Has the queue of the endpoint room for a peer's write with data? */
bool um_prov_ep_takes_data(void *arg);
/* Reports the completion of a one-sided operation that was executed while it was posted. */
void um_prov_ep_executed_locked(struct um_prov_ep *ep, uint32_t what, size_t len, void *context);
void um_prov_ep_peek_done(struct um_prov_ep *ep, const struct um_core_completion *c);
/*
 * All sleepers share one arming of the endpoint's ports. Each um_prov_ep_arm_locked() needs its
 * um_prov_ep_disarm_locked(), even after -EAGAIN (there is work to do first). Posting or progress by another thread can
 * invalidate the arming: um_prov_ep_touch_locked() then wakes the sleepers, which look again.
 */
int um_prov_ep_arm_locked(struct um_prov_ep *ep);
void um_prov_ep_disarm_locked(struct um_prov_ep *ep);
void um_prov_ep_wake_locked(struct um_prov_ep *ep);
static inline void um_prov_ep_touch_locked(struct um_prov_ep *ep)
{
    if (__builtin_expect(ep->armed, 0))
        um_prov_ep_wake_locked(ep);
}
/* Returns whether something has moved. */
static inline bool um_prov_source_progress_locked(struct um_prov_event_source *s)
{
    bool has_moved = false;
    for (size_t i = 0; i < s->eps.count; i++) {
        struct um_prov_ep *ep = s->eps.eps[i];
        if (ep->core && um_core_ep_progress(ep->core) > 0) {
            um_prov_ep_touch_locked(ep);
            has_moved = true;
        }
    }
    return has_moved;
}

/* Forgets the peer at an index whose address is removed from the address vector. */
void um_prov_ep_forget_locked(struct um_prov_ep *ep, fi_addr_t index, const struct um_addr *addr);
/*
 * Finds or makes the peer at an index. Returns 0; -FI_EINVAL: not in the AV; -FI_EOPBADSTATE: not enabled; core's
 * errors.
 */
int um_prov_ep_peer_slow(struct um_prov_ep *ep, fi_addr_t index, struct um_core_peer **peer_p);

static inline int um_prov_ep_peer(struct um_prov_ep *ep, fi_addr_t index, struct um_core_peer **peer_p)
{
    if (__builtin_expect(index < ep->peers_room, 1)) {
        *peer_p = ep->peers[index];
        if (__builtin_expect(*peer_p != NULL, 1))
            return 0;
    }
    return um_prov_ep_peer_slow(ep, index, peer_p);
}

/* Returns the um_core_op_flag of a completion level. */
static inline uint32_t um_prov_ep_level_flags(uint64_t fi_flags)
{
    return (fi_flags & FI_DELIVERY_COMPLETE ? (uint32_t)UM_OP_DELIVERY : 0) |
           (fi_flags & FI_MATCH_COMPLETE ? (uint32_t)UM_OP_MATCH : 0);
}

#define UM_LEVELS (FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE)

/*
 * Returns the um_core_op_flag of a transmission that was posted with fi_flags: completion level, data, inject, no
 * event.
 */
static inline uint32_t um_prov_ep_tx_flags(const struct um_prov_ep *ep, uint64_t fi_flags)
{
    uint32_t flags = ep->tx_flags & (UM_OP_DELIVERY | UM_OP_MATCH);
    if (__builtin_expect(fi_flags & (UM_LEVELS | FI_REMOTE_CQ_DATA | FI_INJECT), 0)) {
        flags = fi_flags & UM_LEVELS ? um_prov_ep_level_flags(fi_flags) : flags;
        flags |= fi_flags & FI_REMOTE_CQ_DATA ? (uint32_t)UM_OP_DATA : 0;
        flags |= fi_flags & FI_INJECT ? (uint32_t)UM_OP_INJECT : 0;
    }
    if (ep->tx_selective && !(fi_flags & FI_COMPLETION))
        flags |= UM_OP_NO_EVENT;
    return flags;
}

/*
 * Returns the result of a posting function whose operation was refused with ret. After -EAGAIN it makes progress, so
 * that there is room next time.
 */
int um_prov_ep_refused(struct um_prov_ep *ep, int ret);

#endif
