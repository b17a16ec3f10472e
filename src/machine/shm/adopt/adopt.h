/*
 * Adoption: private memory of this process becomes shared, in place, and becomes private again.
 *
 * Owns: one memory file per process, in which a page at virtual address X lies at file offset X, so that overlapping
 * registrations agree and a peer maps offset = the owner's address. What may be adopted, how writers are stopped, and
 * what remains risky: docs/adoption.md. Knows nothing of ports, lanes and regions.
 * Threading: any thread at any time; calls are serialised inside. Not from a signal handler. A forked child starts
 * with nothing adopted and a file of its own.
 */
#ifndef UM_MACHINE_SHM_ADOPT_ADOPT_H
#define UM_MACHINE_SHM_ADOPT_ADOPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The descriptor of the memory file, or a negative errno, logged once. The file is sealed (F_SEAL_SHRINK, GROW, SEAL),
 * sparse, made when first needed and valid until the process ends; others open it through /proc/PID/fd.
 */
int um_shm_adopt_fd(void);

/* Is it also the file of the shareable heap (heap.h)? */
bool um_shm_adopt_is_heaps(void);
/* Is a mapping one of the memory file? Its device and inode are those that /proc/PID/maps shows. */
bool um_shm_adopt_is_of_file(uint64_t dev, uint64_t ino);

/*
 * Makes the pages of [base, base + len) shared and counts the range; bytes, zeroes and protection stay what they are,
 * and threads that touch the range meanwhile are stopped. 0; or a negative errno: nothing has changed, and *why_p is a
 * static text that a user can act on. -EPERM: threads cannot be stopped here; -ENOTSUP: not this kind of memory;
 * -EBUSY: a device or a transfer holds pages; -EFAULT: not mapped; -E2BIG, -ENOMEM: limits.
 */
int um_shm_adopt(uintptr_t base, size_t len, const char **why_p);

/* ---- in parts, by a thread of its own ---- */

/*
 * True for private memory with more contents than are moved at once (1 MiB), of a kind that one of several threads can
 * move here. Takes some microseconds.
 */
bool um_shm_adopt_can_wait(uintptr_t base, size_t len);
/* Bytes of the range that have contents. */
size_t um_shm_adopt_contents(uintptr_t base, size_t len);

struct um_shm_adopt_part {
    size_t done;     /* bytes that have been adopted */
    uintptr_t place; /* address space for the shadow of the whole range; 0: none yet */
};
/*
 * Adopts the next part of the range, some milliseconds' worth; else as um_shm_adopt(). All parts together are one
 * registration, which um_shm_adopt_release(base, done) gives back. On an error the part has not moved and may be tried
 * again.
 */
int um_shm_adopt_more(uintptr_t base, size_t len, struct um_shm_adopt_part *part, const char **why_p);
/* No more parts are moved; part->done stays. */
void um_shm_adopt_part_end(uintptr_t base, size_t len, struct um_shm_adopt_part *part);

/*
 * Gives back one count of an um_shm_adopt() of exactly this range. Pages without a count become private again, with
 * their contents, and leave the file. Mappings that the program has made there in the meantime are not touched. If the
 * system refuses, the pages stay in the file ("stuck") until the next adoption or release that covers them.
 */
void um_shm_adopt_release(uintptr_t base, size_t len);

/*
 * Can this process adopt memory now, as far as that does not depend on the memory? 0; or what um_shm_adopt would
 * return, with *why_p. For reports; has no side effect.
 */
int um_shm_adopt_possible(const char **why_p);

struct um_shm_adopt_stats {
    size_t ranges; /* runs of pages with one count */
    size_t bytes;  /* adopted now */
    size_t stuck;  /* of these, bytes without a registration */
};
void um_shm_adopt_stats_get(struct um_shm_adopt_stats *stats_p);

#endif
