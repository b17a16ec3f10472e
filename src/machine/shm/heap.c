/*
 * Finding the shareable heap. It is preloaded or absent: looked up once.
 *
 * Owns nothing. Must not know how the heap works. Threading: heap.h.
 */
#include "machine/shm/heap.h"
#include "machine/shm/heap_abi.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

static unimem_heap_fd_fn *heap_fd;
static unimem_heap_next_fn *heap_next;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void look_up(void)
{
    /* ISO C has no conversion from void * to a function: dlsym(3) does it so. */
    *(void **)&heap_fd = dlsym(RTLD_DEFAULT, UM_HEAP_FD);
    *(void **)&heap_next = dlsym(RTLD_DEFAULT, UM_HEAP_NEXT);
}

int um_shm_heap_fd(void)
{
    pthread_once(&once, look_up);
    return heap_fd && heap_next ? heap_fd() : -ENOENT;
}

static bool next(uintptr_t at, uintptr_t *start_p, uintptr_t *end_p)
{
    pthread_once(&once, look_up);
    return heap_fd && heap_next && heap_next(at, start_p, end_p);
}

bool um_shm_heap_holds(uintptr_t base, size_t len)
{
    uintptr_t start, end;
    return next(base, &start, &end) && start <= base && len <= end - base;
}

bool um_shm_heap_touches(uintptr_t start, uintptr_t end)
{
    uintptr_t from, to;
    return next(start, &from, &to) && from < end;
}

bool um_shm_heap_gap(uintptr_t at, uintptr_t end, uintptr_t *start_p, uintptr_t *end_p)
{
    uintptr_t from = 0, to = 0;
    while (at < end) {
        bool found = next(at, &from, &to) && from < end;
        if (found && from <= at) {
            at = to;
            continue;
        }
        *start_p = at;
        *end_p = found ? from : end;
        return true;
    }
    return false;
}
