/*
 * C++: operator new takes more than 32 KiB from the same arenas as malloc. jemalloc has operators of its own.
 *
 * Smaller requests, and those that fail and must throw, go to the next library. operator delete is jemalloc's itself.
 * Names: Itanium C++ ABI, section 5.1. Threading: any.
 */
#include "heap/internal.h"

#include "base/atomic.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stddef.h>
#include <stdlib.h>

#define UM_EXPORT __attribute__((visibility("default")))

typedef void *new_fn(size_t size);
typedef void *new_nothrow_fn(size_t size, const void *nothrow);
typedef void *new_aligned_fn(size_t size, size_t alignment);
typedef void *new_aligned_nothrow_fn(size_t size, size_t alignment, const void *nothrow);

UM_EXPORT new_fn _Znwm, _Znam;
UM_EXPORT new_nothrow_fn _ZnwmRKSt9nothrow_t, _ZnamRKSt9nothrow_t;
UM_EXPORT new_aligned_fn _ZnwmSt11align_val_t, _ZnamSt11align_val_t;
UM_EXPORT new_aligned_nothrow_fn _ZnwmSt11align_val_tRKSt9nothrow_t, _ZnamSt11align_val_tRKSt9nothrow_t;

enum name { NEW, NEW_NOTHROW, NEW_ALIGNED, NEW_ALIGNED_NOTHROW };
static const char *const names[] = {"_Znwm", "_ZnwmRKSt9nothrow_t", "_ZnwmSt11align_val_t",
                                    "_ZnwmSt11align_val_tRKSt9nothrow_t"};

/* Returns the next definition. NULL: there is none, because the C++ library is not in the global scope. Threads that
 * race write the same value. */
static void *next_new(enum name which)
{
    static uint64_t next[4];
    uint64_t found = um_load_relaxed_u64(&next[which]);
    if (found)
        return (void *)(uintptr_t)found;
    void *at = dlsym(RTLD_NEXT, names[which]);
    um_store_relaxed_u64(&next[which], (uint64_t)(uintptr_t)at);
    return at;
}

/* For a process without the C++ library, in which nothing can throw, either. */
static void *plain_new(size_t size, size_t alignment)
{
    void *at = alignment > sizeof(max_align_t) ? memalign(alignment, size) : malloc(size);
    if (at)
        return at;
    um_heap_say("no memory for operator new");
    abort();
}

static void *block(size_t size, size_t alignment)
{
    bool ours = size > um_heap_small && um_heap_is_on() && (alignment & (alignment - 1)) == 0;
    return ours ? um_heap_block(size, alignment > 1 ? UM_JE_ALIGN(alignment) : 0) : NULL;
}

void *_Znwm(size_t size)
{
    void *at = block(size, 0);
    new_fn *next = at ? NULL : (new_fn *)next_new(NEW);
    return at ? at : next ? next(size) : plain_new(size, 0);
}

void *_Znam(size_t size)
{
    return _Znwm(size);
}

void *_ZnwmRKSt9nothrow_t(size_t size, const void *nothrow)
{
    void *at = block(size, 0);
    new_nothrow_fn *next = at ? NULL : (new_nothrow_fn *)next_new(NEW_NOTHROW);
    return at ? at : next ? next(size, nothrow) : malloc(size);
}

void *_ZnamRKSt9nothrow_t(size_t size, const void *nothrow)
{
    return _ZnwmRKSt9nothrow_t(size, nothrow);
}

void *_ZnwmSt11align_val_t(size_t size, size_t alignment)
{
    void *at = block(size, alignment);
    new_aligned_fn *next = at ? NULL : (new_aligned_fn *)next_new(NEW_ALIGNED);
    return at ? at : next ? next(size, alignment) : plain_new(size, alignment);
}

void *_ZnamSt11align_val_t(size_t size, size_t alignment)
{
    return _ZnwmSt11align_val_t(size, alignment);
}

void *_ZnwmSt11align_val_tRKSt9nothrow_t(size_t size, size_t alignment, const void *nothrow)
{
    void *at = block(size, alignment);
    new_aligned_nothrow_fn *next = at ? NULL : (new_aligned_nothrow_fn *)next_new(NEW_ALIGNED_NOTHROW);
    return at ? at : next ? next(size, alignment, nothrow) : memalign(alignment, size);
}

void *_ZnamSt11align_val_tRKSt9nothrow_t(size_t size, size_t alignment, const void *nothrow)
{
    return _ZnwmSt11align_val_tRKSt9nothrow_t(size, alignment, nothrow);
}
