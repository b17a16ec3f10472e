/*
 * bodies.h: the reference without a library: a ring through which both processes copy, the system's copy, and copies
 * of mapped memory by one process or both.
 */
#include "bodies.h"

#include "base/atomic.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/uio.h>

enum { CHUNKS = 4, CHUNK = 32 << 10, STEP = 1 << 20 };

struct word {
    uint64_t value;
    uint64_t rest[7];
};

/* One direction. */
struct lane {
    struct word full[CHUNKS];   /* bytes; 0: free */
    struct word offered, taken; /* number of the batch that may be read, that was read */
    struct word at;             /* of the batch on offer, in the sender */
    struct word wanted, helped; /* number of the batch whose place is known; of which the sender has copied its half */
    struct word to;             /* of the batch that is wanted, in the receiver */
    unsigned char chunk[CHUNKS][CHUNK];
};
static_assert(2 * sizeof(struct lane) <= BODIES_ROOM, "one out of either process");

static uint32_t put, got; /* chunks */
static uint64_t batches_out, batches_in;

static struct lane *lane_from(const struct bodies_side *s, int process)
{
    return (struct lane *)(void *)s->shared->room + process;
}

static void await(const struct word *word, uint64_t value)
{
    for (uint64_t i = 1; um_load_acquire_u64(&word->value) != value; i++) {
        um_cpu_relax();
        if (i % (1 << 12) == 0)
            sched_yield();
    }
}

static void bare_open(struct bodies_side *s, const char *provider)
{
    (void)s, (void)provider;
}

static void bare_nothing(struct bodies_side *s)
{
    (void)s;
}

static void ring_post(struct bodies_side *s, const struct bodies_batch *b)
{
    struct lane *lane = lane_from(s, s->self);
    for (int i = 0; i < b->count; i++) {
        const unsigned char *from = b->at + (size_t)i * b->stride;
        for (size_t left = b->len, part; left > 0; from += part, left -= part, put++) {
            part = left < CHUNK ? left : CHUNK;
            await(&lane->full[put % CHUNKS], 0);
            memcpy(lane->chunk[put % CHUNKS], from, part);
            um_store_release_u64(&lane->full[put % CHUNKS].value, part);
        }
    }
}

static void ring_recv(struct bodies_side *s, const struct bodies_batch *b)
{
    struct lane *lane = lane_from(s, 1 - s->self);
    for (int i = 0; i < b->count; i++) {
        unsigned char *to = b->at + (size_t)i * b->stride;
        for (size_t left = b->len, part; left > 0; to += part, left -= part, got++) {
            part = left < CHUNK ? left : CHUNK;
            await(&lane->full[got % CHUNKS], part);
            memcpy(to, lane->chunk[got % CHUNKS], part);
            um_store_release_u64(&lane->full[got % CHUNKS].value, 0);
        }
    }
}

static void readv_post(struct bodies_side *s, const struct bodies_batch *b)
{
    struct lane *lane = lane_from(s, s->self);
    lane->at.value = (uintptr_t)b->at;
    um_store_release_u64(&lane->offered.value, ++batches_out);
}

static void readv_finish(struct bodies_side *s)
{
    await(&lane_from(s, s->self)->taken, batches_out);
}

static void readv_recv(struct bodies_side *s, const struct bodies_batch *b)
{
    struct lane *lane = lane_from(s, 1 - s->self);
    await(&lane->offered, ++batches_in);
    for (int i = 0; i < b->count; i++) {
        for (size_t at = (size_t)i * b->stride, end = at + b->len, part; at < end; at += part) {
            part = end - at < STEP ? end - at : STEP;
            struct iovec here = {b->at + at, part}, there = {(char *)(uintptr_t)lane->at.value + at, part};
            if (process_vm_readv(s->shared->pid[1 - s->self], &here, 1, &there, 1, 0) != (ssize_t)part)
                bodies_fail("process_vm_readv: %s", strerror(errno));
        }
    }
    um_store_release_u64(&lane->taken.value, batches_in);
}

static const struct bodies_batch *posted;

static void mapped_post(struct bodies_side *s, const struct bodies_batch *b)
{
    posted = b;
    readv_post(s, b);
}

/* The sender's half of each body. */
static void both_finish(struct bodies_side *s)
{
    struct lane *lane = lane_from(s, s->self);
    const size_t half = posted->len / 2;
    await(&lane->wanted, batches_out);
    unsigned char *to = (unsigned char *)(uintptr_t)lane->to.value;
    for (int i = 0; i < posted->count; i++) {
        size_t at = (size_t)i * posted->stride + half;
        memcpy(to + at, posted->at + at, posted->len - half);
    }
    um_store_release_u64(&lane->helped.value, batches_out);
    await(&lane->taken, batches_out);
}

static void copy_from(const struct bodies_side *s, const struct bodies_batch *b, size_t len)
{
    const struct lane *lane = lane_from(s, 1 - s->self);
    const unsigned char *from = (const unsigned char *)(uintptr_t)lane->at.value;
    for (int i = 0; i < b->count; i++)
        memcpy(b->at + (size_t)i * b->stride, from + (size_t)i * b->stride, len);
}

static void one_recv(struct bodies_side *s, const struct bodies_batch *b)
{
    struct lane *lane = lane_from(s, 1 - s->self);
    await(&lane->offered, ++batches_in);
    copy_from(s, b, b->len);
    um_store_release_u64(&lane->taken.value, batches_in);
}

static void both_recv(struct bodies_side *s, const struct bodies_batch *b)
{
    struct lane *lane = lane_from(s, 1 - s->self);
    lane->to.value = (uintptr_t)b->at;
    um_store_release_u64(&lane->wanted.value, ++batches_in);
    await(&lane->offered, batches_in);
    copy_from(s, b, b->len / 2);
    await(&lane->helped, batches_in);
    um_store_release_u64(&lane->taken.value, batches_in);
}

const struct bodies_way bodies_ring = {"ring", bare_open, ring_post, ring_recv, bare_nothing, bare_nothing, false};
const struct bodies_way bodies_readv = {"readv", bare_open, readv_post, readv_recv, readv_finish, bare_nothing, false};
const struct bodies_way bodies_one = {"one", bare_open, mapped_post, one_recv, readv_finish, bare_nothing, true};
const struct bodies_way bodies_both = {"both", bare_open, mapped_post, both_recv, both_finish, bare_nothing, true};
