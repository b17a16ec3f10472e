/*
 * Many elements in one operation. See atomic_bulk.h.
 *
 * Aligned elements of up to 8 bytes: a stage of the target is read, the kernel computes the new contents in a copy of
 * it, then each aligned 8 or 16 bytes are compared and swapped. Only words that have changed meanwhile are computed
 * again. Reading and computing a whole stage ahead matters, because the processor starts nothing new before a locked
 * access has completed. Such an access covers elements of this operation only: it touches no byte beside them, and
 * crosses no cache line. Other processes may update single elements of any width in the same place at the same time.
 */
#include "proto/atomic_bulk.h"

#include "base/cpu_pair.h"

#include <string.h>

enum { UM_WORD = sizeof(uint64_t), UM_PAIR = 2 * UM_WORD, UM_STAGE_WORDS = 32, UM_STAGE = UM_STAGE_WORDS * UM_WORD };

/* An operation in progress. */
struct um_proto_bulk {
    const struct um_proto_atomic_call *c;
    const struct um_proto_kernel *kernel;
    unsigned shift; /* the binary logarithm of an element's size */
    size_t at;      /* bytes of the target that are done */
};

/* Old and new contents of a part of the target. */
struct um_proto_stage {
    uint64_t old[UM_STAGE_WORDS], next[UM_STAGE_WORDS];
};

/* Returns the elements at byte `at` of an array; NULL if the operation has no such array. */
static inline const void *element_at(const void *array, size_t at)
{
    return array ? (const unsigned char *)array + at : NULL;
}

/* Updates the next bytes element by element. */
static void bulk_singly(struct um_proto_bulk *b, size_t len)
{
    struct um_proto_atomic_call part = *b->c;
    part.target = (unsigned char *)part.target + b->at;
    part.operand = element_at(part.operand, b->at);
    part.compare = element_at(part.compare, b->at);
    part.result = part.result ? (unsigned char *)part.result + b->at : NULL;
    part.count = len >> b->shift;
    if (part.count)
        b->kernel->one(&part);
    b->at += len;
}

/* Computes the new contents in `next`, which holds the old ones. */
static inline void next_compute(const struct um_proto_bulk *b, struct um_proto_stage *s, size_t word, size_t words)
{
    size_t at = b->at + word * UM_WORD;
    b->kernel->block(s->next + word, element_at(b->c->operand, at), element_at(b->c->compare, at),
                     words * UM_WORD >> b->shift);
}

/* Updates a word by one access, or by none if nothing changes. */
static inline void swap_word(const struct um_proto_bulk *b, struct um_proto_stage *s, uint64_t *there, size_t word)
{
    /* sync: atomic-element (partner atomic-element): who sees the new value sees what came before it. */
    while (s->next[word] != s->old[word] && !um_rmw_acqrel_cas_bits64(there + word, &s->old[word], s->next[word])) {
        s->next[word] = s->old[word];
        next_compute(b, s, word, 1);
    }
}

static inline void swap_pair(const struct um_proto_bulk *b, struct um_proto_stage *s, uint64_t *there, size_t word)
{
    /* sync: atomic-element (partner atomic-element) */
    while ((s->next[word] != s->old[word] || s->next[word + 1] != s->old[word + 1]) &&
           !um_rmw_acqrel_cas_pair(there + word, s->old + word, s->next + word)) {
        s->next[word] = s->old[word];
        s->next[word + 1] = s->old[word + 1];
        next_compute(b, s, word, 2);
    }
}

/* Updates the next len bytes, a multiple of what one access covers. */
static void bulk_update(struct um_proto_bulk *b, size_t len, bool pairs)
{
    for (size_t end = b->at + len; b->at < end;) {
        struct um_proto_stage s;
        size_t words = (end - b->at < UM_STAGE ? end - b->at : UM_STAGE) / UM_WORD;
        uint64_t *there = (uint64_t *)(void *)((unsigned char *)b->c->target + b->at);
        for (size_t i = 0; i < words; i++)
            s.next[i] = s.old[i] = um_load_acquire_u64(there + i); /* sync: atomic-element (partner atomic-element) */
        next_compute(b, &s, 0, words);
        if (pairs) {
            for (size_t i = 0; i < words; i += 2)
                swap_pair(b, &s, there, i);
        } else {
            for (size_t i = 0; i < words; i++)
                swap_word(b, &s, there, i);
        }
        if (b->c->result)
            memcpy((unsigned char *)b->c->result + b->at, s.old, words * UM_WORD);
        b->at += words * UM_WORD;
    }
}

static void bulk_read(struct um_proto_bulk *b, size_t len)
{
    const uint64_t *there = (const uint64_t *)(const void *)((const unsigned char *)b->c->target + b->at);
    unsigned char *result = (unsigned char *)b->c->result + b->at;
    for (size_t i = 0; i < len / UM_WORD; i++) {
        uint64_t word = um_load_acquire_u64(there + i); /* sync: atomic-element (partner atomic-element) */
        memcpy(result + i * UM_WORD, &word, UM_WORD);
    }
    b->at += len;
}

/* Writes words whose old values are not wanted: plain stores suffice, if they become visible before later loads. */
static void bulk_write(struct um_proto_bulk *b, size_t len)
{
    uint64_t *there = (uint64_t *)(void *)((unsigned char *)b->c->target + b->at);
    const unsigned char *operand = (const unsigned char *)b->c->operand + b->at;
    for (size_t i = 0; i < len / UM_WORD; i++) {
        uint64_t word;
        memcpy(&word, operand + i * UM_WORD, UM_WORD);
        um_store_release_u64(there + i, word); /* sync: atomic-element (partner atomic-element) */
    }
    um_fence_full();
    b->at += len;
}

/* Returns the bytes before the next multiple of unit, at most `left`. */
static size_t bytes_before(const struct um_proto_bulk *b, size_t unit, size_t left)
{
    size_t before = -((uintptr_t)b->c->target + b->at) & (unit - 1);
    return before < left ? before : left;
}

void um_proto_atomic_bulk(const struct um_proto_atomic_call *c, const struct um_proto_kernel *kernel)
{
    struct um_proto_bulk b = {.c = c, .kernel = kernel, .shift = um_proto_atomic_shift[c->type]};
    const bool reads = c->op == UM_ATOMIC_READ && c->result, writes = c->op == UM_ATOMIC_WRITE && !c->result;
    const bool pairs = um_cpu_has_pairs();
    const size_t len = c->count << b.shift;
    /* Elements of one word go one by one: an access to two words takes as long as two to single ones, and the processor
     * adds to a word without a comparison. */
    if (len < UM_PAIR || (1u << b.shift == UM_WORD && !reads && !writes)) {
        kernel->one(c);
        return;
    }
    bulk_singly(&b, bytes_before(&b, UM_WORD, len));
    size_t words = (len - b.at) & ~(size_t)(UM_WORD - 1);
    if (reads) {
        bulk_read(&b, words);
    } else if (writes) {
        bulk_write(&b, words);
    } else if (!pairs) {
        bulk_update(&b, words, false);
    } else {
        bulk_update(&b, bytes_before(&b, UM_PAIR, words), false);
        words = len - b.at;
        bulk_update(&b, words & ~(size_t)(UM_PAIR - 1), true);
        bulk_update(&b, (len - b.at) & ~(size_t)(UM_WORD - 1), false);
    }
    bulk_singly(&b, len - b.at);
}

/* ---- under locks ---- */

/* May the operation leave an element unchanged? */
static bool is_conditional(uint8_t op)
{
    return op == UM_ATOMIC_MIN || op == UM_ATOMIC_MAX || (um_proto_atomic_compares(op) && op != UM_ATOMIC_MSWAP);
}

/* The lock is held: nobody else updates these elements. */
static void line_update(const struct um_proto_atomic_call *c, const struct um_proto_kernel *kernel, size_t at,
                        size_t len, size_t size)
{
    unsigned char next[UM_LOCK_LINE + UM_ATOMIC_ELEMENT_MAX] __attribute__((aligned(16)));
    unsigned char old[sizeof(next)] __attribute__((aligned(16)));
    unsigned char *target = (unsigned char *)c->target + at;
    memcpy(old, target, len);
    memcpy(next, old, len);
    if (c->op != UM_ATOMIC_READ)
        kernel->block(next, element_at(c->operand, at), element_at(c->compare, at), len / size);
    if (c->result) /* it may be the same memory as operand or compare */
        memcpy((unsigned char *)c->result + at, old, len);
    if (c->op == UM_ATOMIC_READ)
        return;
    if (!is_conditional(c->op)) {
        memcpy(target, next, len);
        return;
    }
    for (size_t i = 0; i < len; i += size) {
        if (memcmp(old + i, next + i, size) != 0)
            memcpy(target + i, next + i, size);
    }
}

/*
 * Overlapping elements have the same lock only if they begin in the same line: fi_atomic(3) promises nothing for
 * elements that begin at different addresses.
 */
void um_proto_atomic_locked(const struct um_proto_atomic_call *c, const struct um_proto_kernel *kernel, size_t size)
{
    const size_t len = c->count * size;
    for (size_t at = 0, part; at < len; at += part) {
        size_t left_of_line = UM_LOCK_LINE - (c->lock_key + at) % UM_LOCK_LINE;
        struct um_lock_shm *lock = um_lock_of(c->locks, (c->lock_key + at) / UM_LOCK_LINE);
        part = (left_of_line + size - 1) / size * size;
        if (part > len - at)
            part = len - at;
        um_lock_take(lock, c->party);
        line_update(c, kernel, at, part, size);
        um_lock_give(lock);
    }
    um_fence_full(); /* sync: none (as behind an atomic instruction: later loads do not pass the update) */
}
