/* See detour.h. */
#include "machine/shm/detour.h"

#include "base/atomic.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/log.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROOM ((size_t)UM_SHM_DETOUR_MAX + UM_BYTES_PAGE)

enum {
    SAMPLE = 32768, /* bytes of a copy whose time is taken; two, and a page, are the buffer's size */
    TIMES = 3,      /* the best time counts */
};

enum { UNKNOWN, FAST, SLOW };
static uint32_t
    behaviour; /* of the kernel's copies, for the process. Threads that measure at once write what they found */

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
    const struct iovec to = {from + SAMPLE + behind, SAMPLE}, source = {from, SAMPLE};
    const uint64_t began = um_clock_ns();
    const ssize_t moved = process_vm_readv(getpid(), &to, 1, &source, 1, 0);
    return moved == SAMPLE ? um_clock_ns() - began : UINT64_MAX;
}

static bool measure(unsigned char *memory)
{
    uint64_t usual = UINT64_MAX, behind = UINT64_MAX;
    memset(memory, 0, ROOM);
    for (int i = 0; i < TIMES; i++) {
        const uint64_t one = time_of(memory, (size_t)2 * UM_BYTES_BEHIND), other = time_of(memory, UM_BYTES_BEHIND / 2);
        usual = one < usual ? one : usual;
        behind = other < behind ? other : behind;
    }
    const bool is_slow = behind != UINT64_MAX && behind / 2 > usual;
    um_log(UM_LOG_INFO, "copies of the kernel whose destination is a few bytes behind their source %s",
           is_slow ? "take more than twice as long as others: they go by way of a buffer" : "are direct");
    um_shm_detour_assume(is_slow);
    return is_slow;
}

static size_t shorter(const struct iovec *near, const struct iovec *far)
{
    return near->iov_len < far->iov_len ? near->iov_len : far->iov_len;
}

bool um_shm_detour_may_be_for(const struct iovec *near, const struct iovec *far, bool write)
{
    const uintptr_t here = (uintptr_t)near->iov_base, there = (uintptr_t)far->iov_base;
    const bool is_behind = write ? um_bytes_are_just_behind(there, here) : um_bytes_are_just_behind(here, there);
    return is_behind && shorter(near, far) >= UM_SHM_DETOUR_MIN && um_load_relaxed_u32(&behaviour) != FAST;
}

unsigned char *um_shm_detour_for(struct um_shm_detour *detour, const struct iovec *near, const struct iovec *far,
                                 bool write, size_t *len_p)
{
    const size_t len = shorter(near, far);
    if (!um_shm_detour_may_be_for(near, far, write))
        return NULL;
    if (!detour->memory)
        detour->memory = aligned_alloc(UM_BYTES_PAGE, ROOM);
    if (!detour->memory || (um_load_relaxed_u32(&behaviour) == UNKNOWN && !measure(detour->memory)))
        return NULL;
    *len_p = len < UM_SHM_DETOUR_MAX ? len : UM_SHM_DETOUR_MAX;
    return detour->memory + (uintptr_t)far->iov_base % UM_BYTES_PAGE;
}
