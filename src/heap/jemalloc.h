/*
 * The part of jemalloc 5 that the heap uses, as its manual page documents it: Debian's libjemalloc2 has no header.
 *
 * Weak symbols: without the library the program runs with its own allocator. Source: jemalloc(3).
 */
#ifndef UM_HEAP_JEMALLOC_H
#define UM_HEAP_JEMALLOC_H

#include <stdbool.h>
#include <stddef.h>

/* Flags of the *allocx() functions. */
#define UM_JE_ALIGN(alignment) __builtin_ctzl(alignment)
#define UM_JE_ZERO             0x40
#define UM_JE_NO_CACHE         0x100 /* MALLOCX_TCACHE_NONE */
#define UM_JE_ARENA(number)    ((int)((number) + 1) << 20)

struct um_heap_je_hooks;
typedef struct um_heap_je_hooks um_heap_je_hooks;
/* Hooks that return bool return true if they did nothing. */
struct um_heap_je_hooks {
    void *(*alloc)(um_heap_je_hooks *hooks, void *at, size_t size, size_t alignment, bool *zero, bool *commit,
                   unsigned arena);
    bool (*dalloc)(um_heap_je_hooks *hooks, void *at, size_t size, bool committed, unsigned arena);
    void (*destroy)(um_heap_je_hooks *hooks, void *at, size_t size, bool committed, unsigned arena);
    bool (*commit)(um_heap_je_hooks *hooks, void *at, size_t size, size_t offset, size_t len, unsigned arena);
    bool (*decommit)(um_heap_je_hooks *hooks, void *at, size_t size, size_t offset, size_t len, unsigned arena);
    bool (*purge_lazy)(um_heap_je_hooks *hooks, void *at, size_t size, size_t offset, size_t len, unsigned arena);
    bool (*purge_forced)(um_heap_je_hooks *hooks, void *at, size_t size, size_t offset, size_t len, unsigned arena);
    bool (*split)(um_heap_je_hooks *hooks, void *at, size_t size, size_t size_a, size_t size_b, bool committed,
                  unsigned arena);
    bool (*merge)(um_heap_je_hooks *hooks, void *a, size_t size_a, void *b, size_t size_b, bool committed,
                  unsigned arena);
};

#define UM_JE_WEAK __attribute__((weak, visibility("default")))
UM_JE_WEAK int mallctl(const char *name, void *old, size_t *old_size, void *value, size_t value_size);
UM_JE_WEAK int mallctlnametomib(const char *name, size_t *mib, size_t *mib_len);
UM_JE_WEAK int mallctlbymib(const size_t *mib, size_t mib_len, void *old, size_t *old_size, void *value,
                            size_t value_size);
UM_JE_WEAK void *mallocx(size_t size, int flags);
UM_JE_WEAK void *rallocx(void *block, size_t size, int flags);
UM_JE_WEAK size_t sallocx(const void *block, int flags);
UM_JE_WEAK void dallocx(void *block, int flags);

#endif
