/*
 * Advice (madvise) that a mapping keeps: what it had before it was adopted, and what it was given while it was adopted.
 *
 * Owns nothing. The time to read smaps grows with the number of mappings below; instead this file finds out by which
 * mappings the kernel merges. Threading: internal.h. Sources: madvise(2), mremap(2).
 */
#include "machine/shm/adopt/internal.h"

#include <errno.h>
#include <sys/mman.h>

void um_shm_advice_again(const struct um_shm_segment *seg, uintptr_t at, size_t len)
{
    static const struct {
        uint32_t advice;
        int call;
    } calls[] = {{UM_ADVICE_NO_DUMP, MADV_DONTDUMP},
                 {UM_ADVICE_HUGE, MADV_HUGEPAGE},
                 {UM_ADVICE_NO_HUGE, MADV_NOHUGEPAGE},
                 {UM_ADVICE_SEQUENTIAL, MADV_SEQUENTIAL},
                 {UM_ADVICE_RANDOM, MADV_RANDOM}};
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        if (seg->advice & calls[i].advice)
            madvise((void *)at, len, calls[i].call);
    }
}

/*
 * Finds out which advice for children and core dumps the program gave while the mapping was the file's. A copy of the
 * mapping (mremap of 0 bytes) has the same advice. If the opposite advice for its second page splits the copy, mremap
 * cannot grow it as one mapping.
 */
static bool is_advised(uintptr_t at, int opposite, size_t page)
{
    char *copy = mremap((void *)at, 0, 2 * page, MREMAP_MAYMOVE);
    if (copy == MAP_FAILED)
        return false;
    madvise(copy + page, page, opposite);
    char *grown = mremap(copy, 2 * page, 3 * page, MREMAP_MAYMOVE);
    bool advised = grown == MAP_FAILED && errno == EFAULT;
    munmap(grown == MAP_FAILED ? copy : grown, (grown == MAP_FAILED ? 2 : 3) * page);
    return advised;
}

bool um_shm_advice_no_fork(uintptr_t at, size_t page)
{
    return is_advised(at, MADV_DOFORK, page);
}

void um_shm_advice_keep(uintptr_t from, uintptr_t to, size_t len, size_t page)
{
    if (um_shm_advice_no_fork(from, page))
        madvise((void *)to, len, MADV_DONTFORK);
    if (is_advised(from, MADV_DODUMP, page))
        madvise((void *)to, len, MADV_DONTDUMP);
}
