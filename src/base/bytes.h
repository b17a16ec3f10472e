/*
 * Copies of bodies between memory that does not overlap.
 *
 * They use memcpy, except where it is slow. From 2 KiB to about the size of the second-level cache, glibc's memcpy uses
 * `rep movsb`; AMD's Zen 3 and Zen 4 then copy 2 GB/s instead of 40 if the destination lies 1 to 31 bytes behind the
 * source, modulo the size of a page (glibc's bug 30994). That is common: large blocks of malloc begin 16 bytes behind
 * the start of a page, the areas of a ring at the start of one. Threading: any.
 */
#ifndef UM_BASE_BYTES_H
#define UM_BASE_BYTES_H

#include "base/atomic.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { UM_BYTES_LARGE = 1024, UM_BYTES_PAGE = 4096, UM_BYTES_BEHIND = 32 };

/* Does the destination lie 1 to UM_BYTES_BEHIND - 1 bytes behind the source, modulo a page? */
static inline bool um_bytes_are_just_behind(uintptr_t to, uintptr_t from)
{
    const uintptr_t behind = (to - from) % UM_BYTES_PAGE;
    return behind > 0 && behind < UM_BYTES_BEHIND;
}

/* Does um_bytes_copy_nontemporal() differ from um_bytes_copy()? Not under ThreadSanitizer, which does not see such
 * stores. */
#if defined(__x86_64__) && !UM_THREAD_SANITIZER
#define UM_BYTES_NONTEMPORAL true
#else
#define UM_BYTES_NONTEMPORAL false
#endif

/* Does what um_bytes_copy() does, for UM_BYTES_LARGE bytes and more. */
void um_bytes_copy_large(void *restrict to, const void *restrict from, size_t len);

static inline void um_bytes_copy(void *restrict to, const void *restrict from, size_t len)
{
    if (__builtin_expect(len < UM_BYTES_LARGE, 1))
        memcpy(to, from, len);
    else
        um_bytes_copy_large(to, from, len);
}

/* The same with non-temporal stores, which bypass the caches, for whole lines of the destination. A later release store
 * is ordered after them. */
void um_bytes_copy_nontemporal(void *restrict to, const void *restrict from, size_t len);

#endif
