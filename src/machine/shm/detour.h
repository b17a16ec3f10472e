/*
 * Copies that the kernel makes slowly, and a buffer by way of which they are faster.
 *
 * The kernel copies between processes with `rep movsb` where the processor has it (FSRM). On AMD's Zen 3 and Zen 4 that
 * is four times slower (2.4 GB/s instead of 10) if the destination lies 1 to 31 bytes behind the source, modulo the
 * size of a page: from page-aligned memory to a large block of malloc, for one. By way of a buffer that lies as the
 * other process's memory does, and from there by um_bytes_copy(), it is 7 GB/s. Whether the kernel is slow here is
 * measured once for the process, when such a copy comes for the first time.
 *
 * Owns: the buffer of one port, and what was measured in this process. Threading: a port's buffer as the port's calls;
 * several threads may measure at a time.
 */
#ifndef UM_MACHINE_SHM_DETOUR_H
#define UM_MACHINE_SHM_DETOUR_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

enum { UM_SHM_DETOUR_MIN = 4096, UM_SHM_DETOUR_MAX = 64 << 10 }; /* bytes of one copy that goes this way */

struct um_shm_detour {
    unsigned char *memory; /* NULL: not needed yet, or there is no memory */
};

void um_shm_detour_end(struct um_shm_detour *detour);

/*
 * Returns the place in the buffer for a copy between these two pieces, and its length in *len_p; NULL: the copy is best
 * made directly. `far` is the other process's. write: to `far`.
 */
unsigned char *um_shm_detour_for(struct um_shm_detour *detour, const struct iovec *near, const struct iovec *far,
                                 bool write, size_t *len_p);

/* May the copy between these two pieces be such a one? False: it is best made directly. */
bool um_shm_detour_may_be_for(const struct iovec *near, const struct iovec *far, bool write);

/* For tests: copies with such a distance are slow, or they are not, whatever a measurement says. */
void um_shm_detour_assume(bool is_slow);

#endif
