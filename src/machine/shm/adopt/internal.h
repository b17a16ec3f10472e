/*
 * Private to adoption: what its files share. adopt.c has the calls, table.c the table of adopted ranges, check.c
 * decides what may be adopted, pages.c which pages move, move.c moves a slice of them, scan.c finds the pages that have
 * contents, stop.c stops the other threads meanwhile, fork.c handles forked children.
 *
 * Threading: everything here is called with the lock of adopt.c held, or in a forked child.
 */
#ifndef UM_MACHINE_SHM_ADOPT_INTERNAL_H
#define UM_MACHINE_SHM_ADOPT_INTERNAL_H

#include "machine/mem/gate.h"
#include "machine/shm/adopt/adopt.h"

#include <pthread.h>
#include <sys/types.h>

enum {
    UM_ADOPT_RANGES = 4096,   /* adopted ranges: far below vm.max_map_count (65530), which is the program's */
    UM_ADOPT_TABLE = 1 << 16, /* entries that the table has room for; table.c says why that is enough */
    UM_ADOPT_EDGES = 3 << 14, /* bound for the entries if no two registrations share an edge */
    UM_ADOPT_SEGMENTS = 3 * UM_ADOPT_RANGES, /* mappings that one call may span */
    UM_ADOPT_TEXT = 1 << 16,                 /* bytes of /proc files read at a time */
};
static const size_t um_shm_adopt_slice = (size_t)32
                                         << 20; /* bytes with contents that move at a time: bounds what exists twice */
#if defined(__x86_64__)
static const uint64_t um_shm_adopt_file_size = (uint64_t)1 << 47; /* every address of a user */
#else
static const uint64_t um_shm_adopt_file_size = (uint64_t)1 << 48;
#endif

/* One run of adopted pages with the same counts. */
struct um_shm_adopted {
    uintptr_t start, end;
    uintptr_t shadow; /* its shadow: the empty private mapping that is put back later; 0: there is none */
    uint32_t count;   /* registrations; 0: stuck, or new */
    uint32_t whole;   /* of these, those that cover every byte of its pages */
};

/* A mapping, cut to the range in question. */
enum um_shm_adopt_segment_kind { UM_SEGMENT_OURS, UM_SEGMENT_ANONYMOUS, UM_SEGMENT_FILE };
struct um_shm_segment {
    uintptr_t start, end;
    uint64_t offset; /* OURS: in the memory file */
    enum um_shm_adopt_segment_kind kind;
    int prot;
    uint32_t advice; /* UM_ADVICE_* */
};
enum {
    UM_ADVICE_NO_DUMP = 1,
    UM_ADVICE_HUGE = 2,
    UM_ADVICE_NO_HUGE = 4,
    UM_ADVICE_SEQUENTIAL = 8,
    UM_ADVICE_RANDOM = 16,
    UM_ADVICE_IS_HUGE = 32, /* has huge pages now */
};

/* For a registration in parts: the part that is being adopted, and address space for its shadow. place 0: there is
 * none. */
struct um_shm_given {
    uintptr_t start, end, place;
    bool is_first;
    bool used;    /* shadows lie there; after a failure the addresses may belong to other mappings */
    long reached; /* the last segment whose shadow lies there */
};

/* The state of adoption, in memory of its own that no range contains: mapped when first needed, never unmapped. */
struct um_shm_adopt_state {
    pthread_mutex_t lock;
    int fd;        /* the memory file, or -1 */
    bool is_heaps; /* the file is the shareable heap's too */
    uint64_t dev;  /* of the file, as in /proc/PID/maps; ino likewise */
    uint64_t ino;
    size_t page;
    size_t count;     /* entries of table in use */
    size_t live;      /* registrations */
    int huge;         /* can file pages be made huge? 0: not known yet, 1, -1 */
    const char *held; /* why nothing may be adopted, as the last um_shm_check_ours() saw it; NULL: no reason */
    struct um_shm_given given;
    int child_pipe[2]; /* of the fork under way */
    uint64_t fork_mask;
    int cancel_before; /* cancellation of the thread that holds the lock, as it was before */
    struct um_shm_adopted table[UM_ADOPT_TABLE];
    struct um_shm_segment segment[UM_ADOPT_SEGMENTS];
    char text[UM_ADOPT_TEXT];
};

/* What tests switch off or change. */
struct um_shm_adopt_tuning {
    bool no_userfaultfd; /* as if it were refused */
    bool user_mode;      /* only the user mode, which everybody has */
    bool no_dev;         /* not by /dev/userfaultfd */
    bool no_minor;       /* as before Linux 5.14 */
    bool no_move;        /* no UFFDIO_MOVE (Linux before 6.8): compare instead */
    bool no_scan;        /* no PAGEMAP_SCAN (Linux before 6.7) */
    bool no_view;        /* the way back without MREMAP_DONTUNMAP of a shared mapping (Linux before 5.13) */
    bool held;           /* try although a device may hold pages */
    bool by_node;        /* copy under a memory policy per NUMA node, even with one node */
    size_t ranges;       /* 0: UM_ADOPT_RANGES */
    size_t slice;        /* 0: um_shm_adopt_slice */
};
extern struct um_shm_adopt_tuning um_shm_adopt_forced;

/* ---- table.c: the table. Callers make sure that there is room. ---- */

/* The first entry that ends after an address; state->count when there is none. */
size_t um_shm_table_find(const struct um_shm_adopt_state *state, uintptr_t at);
void um_shm_table_split(struct um_shm_adopt_state *state, uintptr_t at);
/* Joins neighbours that have become alike around [start, end]. */
void um_shm_table_join(struct um_shm_adopt_state *state, uintptr_t start, uintptr_t end);
/* Adds pages with count 0. Pages that are in the table already keep their count and get the shadow. */
void um_shm_table_place(struct um_shm_adopt_state *state, uintptr_t start, uintptr_t end, uintptr_t shadow);
void um_shm_table_remove(struct um_shm_adopt_state *state, uintptr_t start, uintptr_t end);
/* Counts a registration of these bytes (by 1) or gives it back (by -1). */
void um_shm_table_count(struct um_shm_adopt_state *state, uintptr_t base, size_t len, int by);

/* ---- stop.c: stopping other threads ---- */

struct um_shm_stop {
    int fd;         /* the userfaultfd, or -1: there is nobody to stop */
    bool can_move;  /* has UFFDIO_MOVE */
    bool can_minor; /* may stop a shared mapping */
};
/* threads: of this process. 0; -EPERM with *why_p when they cannot be stopped. */
int um_shm_stop_open(size_t threads, struct um_shm_stop *stop_p, const char **why_p);
void um_shm_stop_close(struct um_shm_stop *stop);
/* From now on a thread that touches a missing page waits. shared: also at a page that exists but has no page table
 * entry. */
long um_shm_stop_begin(const struct um_shm_stop *stop, uintptr_t base, size_t len, bool shared);
/* Lets waiting threads continue; the range may have been mapped anew. */
void um_shm_stop_end(const struct um_shm_stop *stop, uintptr_t base, size_t len);
/*
 * Moves populated pages from one private range of ours to another, both stopped. It fails if a page is pinned: a
 * transfer in flight or a device could still write there. 0; -EBUSY pinned; another errno: not possible. After a
 * failure some have moved.
 */
long um_shm_stop_shift(const struct um_shm_stop *stop, uintptr_t from, uintptr_t to, size_t len);
/* Creates the pages of an empty, stopped private range as copies of readable bytes. 0 or an errno. */
long um_shm_stop_fill(const struct um_shm_stop *stop, uintptr_t from, uintptr_t to, size_t len);

/* ---- node.c: NUMA ---- */

/* The calling thread's memory policy, set aside. */
struct um_shm_node_policy {
    int mode;
    bool saved;
    unsigned long nodes[16];
};
bool um_shm_node_several(void);
void um_shm_node_save(struct um_shm_node_policy *policy);
void um_shm_node_restore(const struct um_shm_node_policy *policy);
/*
 * Lets new pages come to the node of the page at `at`. Returns how many of the count pages from there on are on that
 * node (at least 1).
 */
size_t um_shm_node_follow(uintptr_t at, size_t count, size_t page);

/* ---- scan.c: which pages have contents ---- */

/* How the page map of this process is read. */
struct um_shm_scan {
    int pagemap;
    bool skips;      /* PAGEMAP_SCAN is there: it skips at once what was never touched */
    uint64_t guards; /* PAGEMAP_SCAN's category of guards; 0: it does not report them */
};
/* known: some mapped page. */
void um_shm_scan_open(int pagemap, uintptr_t known, size_t page, struct um_shm_scan *scan_p);

struct um_shm_move;
/* A function called for a run of pages at an address, whose place in the file is offset. Non-zero ends the scan. */
typedef long um_shm_run_fn(const struct um_shm_move *move, uintptr_t at, size_t len, uint64_t offset, bool *again_p);
/* Calls run for every run of populated pages of the slice, whose pages are at from now. -EFAULT: there is a guard. */
long um_shm_scan_runs(const struct um_shm_move *move, uintptr_t from, um_shm_run_fn *run, bool *again_p);
/* Calls run for every run of bytes that the file holds of the slice; at: their place in the shadow. */
long um_shm_scan_data(const struct um_shm_move *move, um_shm_run_fn *run, bool *again_p);

/*
 * How much of a range to move at a time: as much as takes as long as `slice` bytes that all have contents; at least
 * slice, at most `most`. If that cannot be found quickly: slice. most: the result of um_shm_scan_slice_most() for the
 * length.
 */
size_t um_shm_scan_slice_most(size_t len, size_t slice);
/* Bytes of a range that have contents; counting may stop beyond most. Only where scan->skips. */
size_t um_shm_scan_count(const struct um_shm_scan *scan, uintptr_t start, uintptr_t end, size_t most, size_t page);
size_t um_shm_scan_slice(const struct um_shm_scan *scan, uintptr_t start, size_t most, size_t slice, size_t page);
size_t um_shm_scan_file_slice(int file, uint64_t offset, size_t most, size_t slice, size_t page);

/* ---- move.c ---- */

/* One slice that is being moved. The struct lies on the stack of the mover. */
struct um_shm_move {
    const struct um_shm_stop *stop;
    int file;
    struct um_shm_scan scan;
    uintptr_t base;
    size_t len;
    uint64_t offset;  /* in the file: base, unless the program moved the mapping */
    uintptr_t shadow; /* reserved address space of len bytes; 0: none */
    uintptr_t proof;  /* likewise, mapped: pages move there as a proof that they are not pinned; 0: no proof */
    uintptr_t view;   /* on the way back: likewise; the file can be seen there; 0: the file is read */
    struct um_mem_gate
        *gate; /* shut by the caller, who ends it; opened when no writer can reach the old pages. NULL: none */
    size_t page;
    int prot;
    bool whole; /* also pages that were never touched: they have contents (of a file) */
    bool by_node;
    bool keep; /* out: the file keeps its pages (a child copies its parent's) */
};
/* Private to shared. 0, or a negative errno: nothing has changed. */
long um_shm_move_in(const struct um_shm_move *move);
/* Shared to private. Likewise; on success the file holds nothing there, unless keep is set. */
long um_shm_move_out(const struct um_shm_move *move);

/* ---- pages.c ---- */

/* What one call needs to move pages. */
struct um_shm_mover {
    struct um_shm_adopt_state *state;
    struct um_shm_stop stop;
    long threads;
    int pagemap;
    struct um_shm_scan scan;
    bool unstopped; /* moving back without stopping threads: part_made_private() */
};
/* 0, or why pages cannot be moved now. */
int um_shm_mover_open(struct um_shm_adopt_state *state, struct um_shm_mover *mover_p, const char **why_p);
void um_shm_mover_close(struct um_shm_mover *mover);
/* Moves in those of the first count segments of state->segment that are not ours yet. What moved is in the table, also
 * after a failure. */
int um_shm_pages_in(struct um_shm_adopt_state *state, long count, const char **why_p);
/* Makes pages without a count in [start, end) private again; pages that cannot be moved now stay. */
void um_shm_pages_out(struct um_shm_adopt_state *state, uintptr_t start, uintptr_t end);

/* ---- advice.c ---- */

/* Gives the segment's advice to the mapping that took its place. */
void um_shm_advice_again(const struct um_shm_segment *seg, uintptr_t at, size_t len);
/* Is the shared mapping at an address not inherited by children (MADV_DONTFORK)? */
bool um_shm_advice_no_fork(uintptr_t at, size_t page);
/* Gives the len bytes at `to` the advice DONTFORK and DONTDUMP, if the shared mapping at `from` has it. */
void um_shm_advice_keep(uintptr_t from, uintptr_t to, size_t len, size_t page);

/* ---- huge.c ---- */

/* Can pages of the file be made huge here, whatever is set for shared memory in general? Tried once. */
bool um_shm_huge_possible(struct um_shm_adopt_state *state);
/* Makes the blocks of a shared range huge again that are fully populated. */
void um_shm_huge_again(uintptr_t start, size_t len, size_t page);

/* ---- check.c ---- */

/* The number of threads of this process, or a negative errno. */
long um_shm_check_threads(struct um_shm_adopt_state *state);
struct um_shm_tls {
    uintptr_t below, above; /* bytes of a thread's control block and static storage around its thread pointer */
    uintptr_t block; /* distance from the thread pointer to the robust list's head, which identifies a thread's block */
};
/* Without the lock: it asks the dynamic linker. */
void um_shm_check_tls(struct um_shm_tls *tls_p);
/* Refuses a range whose first byte lies in a shared mapping of another file. Quick; only from Linux 6.11 on. */
int um_shm_check_begin(struct um_shm_adopt_state *state, uintptr_t start, const char **why_p);
/* Fills state->segment with the mappings of the range. Their number, or a negative errno with *why_p. */
long um_shm_check_range(struct um_shm_adopt_state *state, uintptr_t start, uintptr_t end, const struct um_shm_tls *tls,
                        const char **why_p);
/* Fills state->segment with the mappings of our file's bytes [start, end), wherever they are. Their number. */
long um_shm_check_ours(struct um_shm_adopt_state *state, uintptr_t start, uintptr_t end);
/* The same for moving back: does not search elsewhere if all of the range is at its own address. */
long um_shm_check_ours_back(struct um_shm_adopt_state *state, uintptr_t start, uintptr_t end);
/* Looks for what forbids adoption in this process. 0, or a negative errno with *why_p. */
int um_shm_check_process(struct um_shm_adopt_state *state, const char **why_p);

/* ---- fork.c ---- */
int um_shm_adopt_fork_watch(void);

/* ---- deferred.c ---- */

/* um_shm_adopt_can_wait() and um_shm_adopt_contents() for a range of pages. */
bool um_shm_deferred_can_wait(const struct um_shm_adopt_state *state, uintptr_t start, uintptr_t end);
size_t um_shm_deferred_contents(const struct um_shm_adopt_state *state, uintptr_t start, uintptr_t end, size_t most);
/* How much of a range to adopt as one part. */
size_t um_shm_deferred_part(struct um_shm_adopt_state *state, uintptr_t start, uintptr_t end);
/* Reserves address space that lies within a huge page as `like` does. 0: there is none. Defined in pages.c. */
uintptr_t um_shm_place_reserve(uintptr_t like, size_t len, int prot);

/* ---- adopt.c ---- */

/* The state. get makes it when first needed (NULL: no memory); if_any: NULL if there is none yet. */
struct um_shm_adopt_state *um_shm_adopt_state_get(void);
struct um_shm_adopt_state *um_shm_adopt_state_if_any(void);
/* Once, before any other thread asks for it. */
void um_shm_adopt_state_set(struct um_shm_adopt_state *state);
/* Signals are blocked while the lock is held: a handler that forks would wait for its own thread. */
void um_shm_adopt_lock(struct um_shm_adopt_state *state, uint64_t *mask_p);
void um_shm_adopt_unlock(struct um_shm_adopt_state *state, const uint64_t *mask);

#endif
