/*
 * Private to the shareable heap: malloc.c routes calls, pages.c gives jemalloc its memory, fork.c handles forked
 * children.
 *
 * Order of locks: jemalloc's, then um_heap.lock; only system calls are made while the latter is held.
 */
#ifndef UM_HEAP_INTERNAL_H
#define UM_HEAP_INTERNAL_H

#include "heap/jemalloc.h"
#include "machine/shm/heap_abi.h"

#include <pthread.h>
#include <stddef.h>

enum { UM_HEAP_RUNS = 1 << 15 };

/* Runs are disjoint, in the order of their addresses, and never adjacent. */
struct um_heap_run {
    uintptr_t start, end;
};

struct um_heap_state {
    pthread_mutex_t lock;
    int fd;                  /* the memory file; -1: none yet */
    uint64_t dev, ino;       /* of the file */
    struct um_heap_run *run; /* the shareable extents; NULL: none yet */
    size_t count;
};
extern struct um_heap_state um_heap;

/* The extent hooks by which the heap's arenas take their memory. */
extern um_heap_je_hooks um_heap_hooks;

/* Does the descriptor still name the file? A program may close descriptors that it did not open. */
bool um_heap_file_is_ours(void);
/* Makes a new file and leaves the old file as it is. Returns the descriptor, or a negative errno (logged). */
int um_heap_file_new(void);
/* Registers the handlers of fork() by pthread_atfork(). 0 or an errno. */
int um_heap_fork_watch(void);
/* Returns a block of more than 32 KiB, or NULL with errno. flags: jemalloc's. */
void *um_heap_block(size_t size, int flags);
static const size_t um_heap_small = 32 << 10;
/* False: the heap is off, and the next allocator provides all blocks. */
bool um_heap_is_on(void);
/* Writes one line to stderr, without the heap. */
void um_heap_say(const char *text);

#endif
