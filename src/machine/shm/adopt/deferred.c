/*
 * Deferred adoption: which memory may be deferred, and the size of a part.
 *
 * Owns nothing. Must not know who asks for the next part, or when. Threading: internal.h.
 */
#include "base/maps.h"
#include "machine/shm/adopt/internal.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static const size_t at_once = (size_t)(1 << 20) + (64 << 10); /* bytes with contents moved at once: 1 MiB, its edges */
static const size_t part_size = (size_t)4 << 20;
static const size_t huge = (size_t)2 << 20; /* a part cuts no huge page */

enum { TEXT = 256 }; /* mappings are queried by address (Linux 6.11) or not at all: no text is read */

struct um_shm_deferred_range {
    uintptr_t start, end;
    size_t most;
};

/* Opens the page map and finds out how to read it. The descriptor, or a negative value. */
static int scan_begin(const struct um_shm_adopt_state *state, struct um_shm_scan *scan_p)
{
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (pagemap >= 0)
        um_shm_scan_open(pagemap, (uintptr_t)state, state->page, scan_p);
    return pagemap;
}

static bool is_ours(const struct um_shm_adopt_state *state, const struct um_map *map)
{
    return state->fd >= 0 && map->ino == state->ino && map->dev == state->dev;
}

/*
 * Bytes of private anonymous memory that have contents; counting stops a little beyond most. 0: some of the range is
 * neither private anonymous memory nor adopted already.
 */
static size_t contents_of(const struct um_shm_adopt_state *state, struct um_maps *maps, const struct um_shm_scan *scan,
                          const struct um_shm_deferred_range *range)
{
    struct um_map map = {.end = range->start};
    size_t sum = 0;
    while (map.end < range->end && sum <= range->most) {
        uintptr_t at = map.end;
        if (um_maps_at(maps, at, &map) <= 0 || map.perms[0] != 'r' || map.perms[1] != 'w')
            return 0;
        uintptr_t to = map.end < range->end ? map.end : range->end;
        if (is_ours(state, &map))
            continue;
        if (map.perms[3] != 'p' || map.ino != 0)
            return 0;
        sum += scan->skips ? um_shm_scan_count(scan, at, to, range->most - sum, state->page) : to - at;
    }
    return sum;
}

/* Without the lock: a part under way holds it for milliseconds. */
size_t um_shm_deferred_contents(const struct um_shm_adopt_state *state, uintptr_t start, uintptr_t end, size_t most)
{
    const struct um_shm_deferred_range range = {.start = start, .end = end, .most = most};
    struct um_shm_scan scan;
    struct um_maps maps;
    char text[TEXT];
    size_t sum = 0;
    int pagemap = scan_begin(state, &scan);
    if (pagemap < 0)
        return 0;
    if (um_maps_open(&maps, "/proc/self/maps", text, sizeof(text)) == 0) {
        sum = contents_of(state, &maps, &scan, &range);
        um_maps_close(&maps);
    }
    close(pagemap);
    return sum;
}

/* Can one of several threads move memory while peers write to it? */
static bool can_stop_others(void)
{
    struct um_shm_stop stop;
    const char *why;
    if (um_shm_adopt_forced.user_mode || um_shm_adopt_forced.no_userfaultfd || um_shm_stop_open(2, &stop, &why) != 0)
        return false;
    bool can = stop.can_minor && stop.can_move;
    um_shm_stop_close(&stop);
    return can;
}

bool um_shm_deferred_can_wait(const struct um_shm_adopt_state *state, uintptr_t start, uintptr_t end)
{
    return end - start > at_once && um_shm_deferred_contents(state, start, end, at_once) > at_once && can_stop_others();
}

size_t um_shm_deferred_part(struct um_shm_adopt_state *state, uintptr_t start, uintptr_t end)
{
    struct um_shm_scan scan;
    size_t most = um_shm_scan_slice_most(end - start, part_size);
    int pagemap = scan_begin(state, &scan);
    if (pagemap < 0)
        return end - start < part_size ? end - start : part_size;
    most = most > end - start ? end - start : most;
    size_t part = um_shm_scan_slice(&scan, start, most, part_size, state->page);
    close(pagemap);
    uintptr_t to = (start + part + huge - 1) & ~(huge - 1);
    return to < end ? to - start : end - start;
}
