/*
 * Atomics with the memory order in the name.
 *
 * Owns: the only inclusion of <stdatomic.h>. Every use of an ordered (acquire, release, rmw) call elsewhere has a label
 * "sync: NAME (partner NAME)" in a comment; tools/check_sync.py checks that both ends exist.
 * Shared memory holds plain fixed-width integers: these functions are the only way to access integers that two
 * processes use. Threading: any.
 */
#ifndef UM_BASE_ATOMIC_H
#define UM_BASE_ATOMIC_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#if defined(__SANITIZE_THREAD__)
#define UM_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UM_THREAD_SANITIZER 1
#endif
#endif

static inline uint32_t um_load_relaxed_u32(const uint32_t *p)
{
    return atomic_load_explicit((const _Atomic uint32_t *)p, memory_order_relaxed);
}

static inline uint32_t um_load_acquire_u32(const uint32_t *p)
{
    return atomic_load_explicit((const _Atomic uint32_t *)p, memory_order_acquire);
}

static inline void um_store_relaxed_u32(uint32_t *p, uint32_t v)
{
    atomic_store_explicit((_Atomic uint32_t *)p, v, memory_order_relaxed);
}

static inline void um_store_release_u32(uint32_t *p, uint32_t v)
{
    atomic_store_explicit((_Atomic uint32_t *)p, v, memory_order_release);
}

static inline uint64_t um_load_relaxed_u64(const uint64_t *p)
{
    return atomic_load_explicit((const _Atomic uint64_t *)p, memory_order_relaxed);
}

static inline uint64_t um_load_acquire_u64(const uint64_t *p)
{
    return atomic_load_explicit((const _Atomic uint64_t *)p, memory_order_acquire);
}

static inline void um_store_relaxed_u64(uint64_t *p, uint64_t v)
{
    atomic_store_explicit((_Atomic uint64_t *)p, v, memory_order_relaxed);
}

static inline void um_store_release_u64(uint64_t *p, uint64_t v)
{
    atomic_store_explicit((_Atomic uint64_t *)p, v, memory_order_release);
}

/* Read-modify-writes are sequentially consistent: they occur only on slow paths (first contact, idle to active). */
static inline uint64_t um_rmw_or_u64(uint64_t *p, uint64_t v)
{
    return atomic_fetch_or_explicit((_Atomic uint64_t *)p, v, memory_order_seq_cst);
}

static inline uint64_t um_rmw_and_u64(uint64_t *p, uint64_t v)
{
    return atomic_fetch_and_explicit((_Atomic uint64_t *)p, v, memory_order_seq_cst);
}

static inline uint64_t um_rmw_swap_u64(uint64_t *p, uint64_t v)
{
    return atomic_exchange_explicit((_Atomic uint64_t *)p, v, memory_order_seq_cst);
}

static inline uint32_t um_rmw_add_u32(uint32_t *p, uint32_t v)
{
    return atomic_fetch_add_explicit((_Atomic uint32_t *)p, v, memory_order_seq_cst);
}

static inline uint64_t um_rmw_add_u64(uint64_t *p, uint64_t v)
{
    return atomic_fetch_add_explicit((_Atomic uint64_t *)p, v, memory_order_seq_cst);
}

static inline bool um_rmw_cas_u32(uint32_t *p, uint32_t expected, uint32_t desired)
{
    return atomic_compare_exchange_strong_explicit((_Atomic uint32_t *)p, &expected, desired, memory_order_seq_cst,
                                                   memory_order_seq_cst);
}

static inline bool um_rmw_cas_u64(uint64_t *p, uint64_t expected, uint64_t desired)
{
    return atomic_compare_exchange_strong_explicit((_Atomic uint64_t *)p, &expected, desired, memory_order_seq_cst,
                                                   memory_order_seq_cst);
}

/*
 * The accesses of remote atomics, for each width that a processor has: loads (acquire) and read-modify-writes (acquire
 * and release). cas: on failure *seen_p is the current value.
 */
#define UM_ATOMIC_WIDTH(bits)                                                                                          \
    static_assert(sizeof(_Atomic uint##bits##_t) == (bits) / 8, "atomic integers must be plain in memory");            \
    static inline uint##bits##_t um_load_acquire_bits##bits(const uint##bits##_t *p)                                   \
    {                                                                                                                  \
        return atomic_load_explicit((const _Atomic uint##bits##_t *)p, memory_order_acquire);                          \
    }                                                                                                                  \
    static inline uint##bits##_t um_rmw_acqrel_add_bits##bits(uint##bits##_t *p, uint##bits##_t v)                     \
    {                                                                                                                  \
        return atomic_fetch_add_explicit((_Atomic uint##bits##_t *)p, v, memory_order_acq_rel);                        \
    }                                                                                                                  \
    static inline uint##bits##_t um_rmw_acqrel_or_bits##bits(uint##bits##_t *p, uint##bits##_t v)                      \
    {                                                                                                                  \
        return atomic_fetch_or_explicit((_Atomic uint##bits##_t *)p, v, memory_order_acq_rel);                         \
    }                                                                                                                  \
    static inline uint##bits##_t um_rmw_acqrel_and_bits##bits(uint##bits##_t *p, uint##bits##_t v)                     \
    {                                                                                                                  \
        return atomic_fetch_and_explicit((_Atomic uint##bits##_t *)p, v, memory_order_acq_rel);                        \
    }                                                                                                                  \
    static inline uint##bits##_t um_rmw_acqrel_xor_bits##bits(uint##bits##_t *p, uint##bits##_t v)                     \
    {                                                                                                                  \
        return atomic_fetch_xor_explicit((_Atomic uint##bits##_t *)p, v, memory_order_acq_rel);                        \
    }                                                                                                                  \
    static inline uint##bits##_t um_rmw_acqrel_swap_bits##bits(uint##bits##_t *p, uint##bits##_t v)                    \
    {                                                                                                                  \
        return atomic_exchange_explicit((_Atomic uint##bits##_t *)p, v, memory_order_acq_rel);                         \
    }                                                                                                                  \
    static inline bool um_rmw_acqrel_cas_bits##bits(uint##bits##_t *p, uint##bits##_t *seen_p, uint##bits##_t v)       \
    {                                                                                                                  \
        return atomic_compare_exchange_strong_explicit((_Atomic uint##bits##_t *)p, seen_p, v, memory_order_acq_rel,   \
                                                       memory_order_acquire);                                          \
    }
UM_ATOMIC_WIDTH(8)
UM_ATOMIC_WIDTH(16)
UM_ATOMIC_WIDTH(32)
UM_ATOMIC_WIDTH(64)

/*
 * Compares and swaps two words at once, at a multiple of 16 bytes. Only where um_cpu_has_pairs() (base/cpu_pair.h) is
 * true. On failure seen holds the current values.
 */
static inline bool um_rmw_acqrel_cas_pair(uint64_t *p, uint64_t seen[2], const uint64_t v[2])
{
#if defined(__x86_64__)
    bool done;
    __asm__ volatile("lock cmpxchg16b %1" /* the compilers' own needs -mcx16 or libatomic */
                     : "=@ccz"(done), "+m"(*(uint64_t(*)[2])(void *)p), "+a"(seen[0]), "+d"(seen[1])
                     : "b"(v[0]), "c"(v[1])
                     : "memory");
    return done;
#else
    (void)p, (void)seen, (void)v;
    __builtin_trap();
#endif
}

/* Orders all earlier stores before all later loads: the costly half of a Dekker pattern. */
static inline void um_fence_full(void)
{
#if UM_THREAD_SANITIZER
    /* ThreadSanitizer does not support fences. A locked access to a local variable orders as much, and does not hide a
     * missing release. */
    _Atomic uint32_t own = 0;
    atomic_fetch_add_explicit(&own, 1, memory_order_seq_cst);
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* acquire: orders earlier loads before later accesses; release: earlier accesses before later stores. No instruction on
 * x86. */
static inline void um_fence_acquire(void)
{
#if !UM_THREAD_SANITIZER
    atomic_thread_fence(memory_order_acquire);
#endif
}

static inline void um_fence_release(void)
{
#if !UM_THREAD_SANITIZER
    atomic_thread_fence(memory_order_release);
#endif
}

/* Keeps the compiler, not the processor, from moving accesses across it: the cheap half, paired with membarrier(2). */
static inline void um_fence_compiler(void)
{
    atomic_signal_fence(memory_order_seq_cst);
}

/* A hint: this processor will write to the line, which another processor may have. (For generic x86-64, compilers make
 * __builtin_prefetch a prefetch for reading.) Processors without the instruction ignore it. */
static inline void um_prefetch_for_write(const void *at)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw (%0)" : : "r"(at));
#else
    __builtin_prefetch(at, 1);
#endif
}

/* Hints to the processor that this is a spin loop. */
static inline void um_cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
