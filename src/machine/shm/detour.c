/* See detour.h. */
#include "machine/shm/detour.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define ROOM (UM_SHM_DETOUR_MAX + PAGE)

enum {
    BEHIND = 32,    /* bytes: at this distance and more the kernel is as fast as ever */
    SAMPLE = 16384, /* bytes of a copy whose time is taken */
    TIMES = 3,      /* the best one counts */
};

enum { UNKNOWN, FAST, SLOW };
static uint32_t behaviour; /* of the kernel's copies. Threads that measure at once write what they found */

void um_shm_detour_assume(bool is_slow)
{
    um_store_relaxed_u32(&behaviour, is_slow ? SLOW : FAST);
}

void um_shm_detour_end(struct um_shm_detour *detour)
{
    free(detour->memory);
    detour->memory = NULL;
}

/* Returns the ns of a copy of the kernel from `from` to a place so many bytes behind it, modulo a page. UINT64_MAX:
 * such copies are refused. */
static uint64_t time_of(unsigned char *from, size_t behind)
{
    struct iovec to = {from + ROOM / PAGE / 2 * PAGE + behind, SAMPLE}, source = {from, SAMPLE};
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < TIMES; i++) {
        const uint64_t began = um_clock_ns();
        if (process_vm_readv(getpid(), &to, 1, &source, 1, 0) != SAMPLE)
            return UINT64_MAX;
        const uint64_t took = um_clock_ns() - began;
        best = took < best ? took : best;
    }
    return best;
}

static bool measure(unsigned char *memory)
{
    memset(memory, 0, ROOM);
    const uint64_t usual = time_of(memory, (size_t)2 * BEHIND), behind = time_of(memory, BEHIND / 2);
    const bool is_slow = usual != UINT64_MAX && behind > 2 * usual;
    um_log(UM_LOG_INFO, "the kernel copies %d KiB in %llu ns, to a place 16 bytes behind in %llu ns: %s", SAMPLE >> 10,
           (unsigned long long)usual, (unsigned long long)behind,
           is_slow ? "such copies go by way of a buffer" : "all copies are direct");
    um_shm_detour_assume(is_slow);
    return is_slow;
}

unsigned char *um_shm_detour_for(struct um_shm_detour *detour, const struct iovec *near, const struct iovec *far,
                                 bool write, size_t *len_p)
{
    const uintptr_t here = (uintptr_t)near->iov_base, there = (uintptr_t)far->iov_base;
    const size_t behind = (write ? there - here : here - there) % PAGE;
    const size_t len = near->iov_len < far->iov_len ? near->iov_len : far->iov_len;
    uint32_t known = um_load_relaxed_u32(&behaviour);
    if (behind == 0 || behind >= BEHIND || len < UM_SHM_DETOUR_MIN || known == FAST)
        return NULL;
    if (!detour->memory)
        detour->memory = aligned_alloc(PAGE, ROOM);
    if (!detour->memory || (known == UNKNOWN && !measure(detour->memory)))
        return NULL;
    *len_p = len < UM_SHM_DETOUR_MAX ? len : UM_SHM_DETOUR_MAX;
    return detour->memory + there % PAGE;
}
