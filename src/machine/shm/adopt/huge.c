/*
 * Huge pages: memory that had them before adoption has them afterwards.
 *
 * Shared memory gets huge pages by itself only where shmem_enabled says so; MADV_COLLAPSE (Linux 6.1) makes them on
 * demand. Only blocks that are fully populated are collapsed: others would grow. Threading: internal.h.
 * Source: madvise(2), Documentation/admin-guide/mm/transhuge.rst.
 */
#include "machine/shm/adopt/internal.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static const size_t huge = (size_t)2 << 20;

bool um_shm_huge_possible(struct um_shm_adopt_state *state)
{
    if (state->huge != 0)
        return state->huge > 0;
    state->huge = -1;
    int fd = memfd_create("unimem-huge", MFD_CLOEXEC);
    char *map = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, (off_t)(2 * huge)) == 0)
        map = mmap(NULL, 2 * huge, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    /* Blocks of the file and of the address space coincide only if address and offset agree modulo the size. */
    if (map != MAP_FAILED) {
        char *block = (char *)(((uintptr_t)map + huge - 1) & ~(huge - 1));
        char *fit = mmap(block, huge, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
        if (fit != MAP_FAILED) {
            memset(fit, 1, huge);
            state->huge = madvise(fit, huge, MADV_COLLAPSE) == 0 ? 1 : -1;
        }
        munmap(map, 2 * huge);
    }
    if (fd >= 0)
        close(fd);
    return state->huge > 0;
}

void um_shm_huge_again(uintptr_t start, size_t len, size_t page)
{
    unsigned char there[512];
    size_t pages = huge / page;
    if (pages > sizeof(there))
        return;
    for (uintptr_t at = (start + huge - 1) & ~(huge - 1); at + huge <= start + len; at += huge) {
        size_t count = 0;
        if (mincore((void *)at, huge, there) != 0)
            return;
        for (size_t i = 0; i < pages; i++)
            count += there[i] & 1;
        if (count == pages)
            madvise((void *)at, huge, MADV_COLLAPSE);
    }
}
