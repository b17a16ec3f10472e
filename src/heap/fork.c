/*
 * Children: after fork() a child shares no page of the heap with its parent.
 *
 * The child copies the populated pages into a memory file of its own before anything else runs in it. Its parent's
 * fork() returns only then; until it does, the lock keeps extents as they are. The child reads the pages from the
 * parent's file, because the program may have protected a page. If no file can be made for the child, its copies are
 * ordinary memory. vfork(2), posix_spawn() and system() run no such handlers and need none. Threading: internal.h.
 */
#include "base/maps.h"
#include "heap/internal.h"

#include "base/cancel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int child_pipe[2]; /* for the fork under way */

/* In a child: its parent's file. */
static struct parent {
    int fd; /* -1: the program has closed it */
    uint64_t dev, ino;
} parent;

/* Parent and child return from fork() on the same stack: in shared memory each would overwrite the other's frames. */
static void refuse_shared_stack(void)
{
    const uintptr_t at = (uintptr_t)__builtin_frame_address(0);
    for (size_t i = 0; i < um_heap.count; i++) {
        if (at < um_heap.run[i].start || at >= um_heap.run[i].end)
            continue;
        um_heap_say("fork() on a stack that malloc gave: child and parent would share it, and the program ends.");
        um_heap_say("Run it without --heap, or take the stacks of threads and coroutines from mmap().");
        abort();
    }
}

static void prepare(void)
{
    pthread_mutex_lock(&um_heap.lock);
    refuse_shared_stack();
    child_pipe[0] = child_pipe[1] = -1;
    if (um_heap.count > 0 && pipe2(child_pipe, O_CLOEXEC) != 0)
        child_pipe[0] = child_pipe[1] = -1; /* no descriptor left: the parent does not wait */
}

/* Waits until the child has its copies, or has died, or fork() failed: in each case the pipe's other end is closed. */
static void in_parent(void)
{
    UM_UNCANCELLED;
    char byte;
    if (child_pipe[0] >= 0) {
        close(child_pipe[1]);
        while (read(child_pipe[0], &byte, 1) < 0 && errno == EINTR)
            ;
        close(child_pipe[0]);
    }
    pthread_mutex_unlock(&um_heap.lock);
}

/* Ends the child, which could otherwise write into its parent's memory. */
static void give_up(const char *why)
{
    um_heap_say("a forked child cannot get its own copy of the heap and ends:");
    um_heap_say(why);
    _exit(127);
}

static void copy_from_file(char *to, off_t from, off_t end)
{
    while (from < end) {
        ssize_t n = pread(parent.fd, to, (size_t)(end - from), from);
        if (n <= 0)
            give_up(strerror(n ? errno : EIO));
        to += n;
        from += n;
    }
}

/* Copies the populated pages of the file's bytes [start, end) to a fresh mapping. */
static void copy_populated(char *to, off_t start, off_t end)
{
    off_t data, hole = start;
    while ((data = lseek(parent.fd, hole, SEEK_DATA)) >= 0 && data < end) {
        hole = lseek(parent.fd, data, SEEK_HOLE);
        hole = hole < 0 || hole > end ? end : hole;
        copy_from_file(to + (data - start), data, hole);
    }
}

/* Moves a part of a mapping to the child's file, or to private memory if there is none. */
static void isolate(uintptr_t start, uintptr_t end, int prot)
{
    const size_t len = end - start;
    const int fd = um_heap.fd, how = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    char *copy = mmap(NULL, len, PROT_READ | PROT_WRITE, how | MAP_NORESERVE, fd, fd >= 0 ? (off_t)start : 0);
    if (copy == MAP_FAILED)
        give_up("no memory");
    if (parent.fd >= 0)
        copy_populated(copy, (off_t)start, (off_t)end);
    else if (prot & PROT_READ)
        memcpy(copy, (void *)start, len);
    if ((prot != (PROT_READ | PROT_WRITE) && mprotect(copy, len, prot) != 0) ||
        mremap(copy, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)start) == MAP_FAILED)
        give_up(strerror(errno));
}

static int prot_of(const char *perms)
{
    return (perms[0] == 'r' ? PROT_READ : 0) | (perms[1] == 'w' ? PROT_WRITE : 0) | (perms[2] == 'x' ? PROT_EXEC : 0);
}

/* Isolates the parts of one mapping of the file that belong to the heap. The provider handles the others. */
static void map_isolate(const struct um_map *map)
{
    for (size_t i = 0; i < um_heap.count; i++) {
        uintptr_t start = um_heap.run[i].start > map->start ? um_heap.run[i].start : map->start;
        uintptr_t end = um_heap.run[i].end < map->end ? um_heap.run[i].end : map->end;
        if (start < end)
            isolate(start, end, prot_of(map->perms));
    }
}

static void isolate_all(void)
{
    static char text[1 << 16];
    struct um_maps maps;
    struct um_map map;
    if (um_maps_open(&maps, "/proc/self/maps", text, sizeof(text)) != 0) { /* without the list protections are lost */
        for (size_t i = 0; i < um_heap.count; i++)
            isolate(um_heap.run[i].start, um_heap.run[i].end, PROT_READ | PROT_WRITE);
        return;
    }
    while (um_maps_next(&maps, &map)) {
        if (map.perms[3] == 's' && map.ino == parent.ino && map.dev == parent.dev && map.offset == map.start)
            map_isolate(&map);
    }
    um_maps_close(&maps);
}

static void in_child(void)
{
    UM_UNCANCELLED;
    parent = (struct parent){um_heap_file_is_ours() ? um_heap.fd : -1, um_heap.dev, um_heap.ino};
    um_heap.fd = -1;
    if (child_pipe[0] >= 0)
        close(child_pipe[0]); /* frees a descriptor for the files that are opened below */
    if (um_heap.count > 0) {
        bool shareable = um_heap_file_new() >= 0;
        isolate_all();
        um_heap.count = shareable ? um_heap.count : 0;
    }
    if (child_pipe[1] >= 0) {
        ssize_t n = write(child_pipe[1], "", 1);
        (void)n;
        close(child_pipe[1]);
    }
    if (parent.fd >= 0)
        close(parent.fd);
    pthread_mutex_unlock(&um_heap.lock);
}

int um_heap_fork_watch(void)
{
    return pthread_atfork(prepare, in_parent, in_child);
}
