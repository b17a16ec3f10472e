/* Sources: madvise(2) MADV_POPULATE_READ, _WRITE (Linux 5.14); proc_pid_maps(5) before. */
#include "base/memory.h"

#include "base/cancel.h"
#include "base/maps.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

/* Does the same by the list of mappings, but says yes for pages behind the end of a mapped file. */
static bool is_listed(uintptr_t addr, uintptr_t end, bool write)
{
    UM_UNCANCELLED;
    char text[8192];
    struct um_maps maps;
    struct um_map map;
    if (um_maps_open(&maps, "/proc/self/maps", text, sizeof(text)) != 0)
        return false;
    while (addr < end && um_maps_next(&maps, &map)) {
        if (map.start <= addr && addr < map.end && map.perms[0] == 'r' && (map.perms[1] == 'w' || !write))
            addr = map.end;
    }
    um_maps_close(&maps);
    return addr >= end;
}

bool um_memory_is_there(uintptr_t addr, size_t len, bool write)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    if (len == 0)
        return true;
    if (addr > UINTPTR_MAX - page || len > UINTPTR_MAX - page - addr)
        return false;
    uintptr_t first = addr & ~(page - 1);
    int advice = write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
    if (madvise((void *)first, addr + len - first, advice) == 0)
        return true;
    return errno == EINVAL && is_listed(addr, addr + len, write);
}
