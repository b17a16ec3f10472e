/* Memory files, in which ports and spaces lie: shm.h. Source: memfd_create(2). Threading: any. */
#include "machine/shm/shm.h"

#include "base/cancel.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

int um_shm_memory_create(size_t size)
{
    UM_UNCANCELLED;
    int fd = memfd_create(UM_SHM_PORT_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        int error = errno;
        um_log(UM_LOG_WARN, "memfd_create failed: %s; %s", strerror(error),
               error == EMFILE ? "raise the limit of open files (ulimit -n)"
                               : "allow memfd_create in the container's seccomp profile");
        return -error;
    }
    struct rlimit most; /* beyond it ftruncate would not only fail: SIGXFSZ would end the process */
    bool too_large = getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY && size > most.rlim_cur;
    if (too_large || fchmod(fd, 0600) != 0 || ftruncate(fd, (off_t)size) != 0) {
        int error = too_large ? EFBIG : errno;
        um_log(UM_LOG_WARN,
               "cannot size %zu bytes of shared memory: %s; lower FI_UNIMEM_LANES, or raise the limit of "
               "file sizes (ulimit -f)",
               size, strerror(error));
        close(fd);
        return -error;
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 || fd > UINT16_MAX) {
        um_log(UM_LOG_WARN, "cannot seal shared memory, or its descriptor %d is above 65535", fd);
        close(fd);
        return -ENOSYS;
    }
    return fd;
}

/* Where new mappings are locked, mmap fills them at once, except those that cannot be accessed: hence PROT_NONE at
 * first. */
void *um_shm_map(size_t len, int prot, int fd, off_t offset, const char **why_p)
{
    void *base = mmap(NULL, len, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, offset);
    if (base != MAP_FAILED && munlock(base, len) == 0 && mprotect(base, len, prot) == 0)
        return base;
    const int error = errno;
    if (base != MAP_FAILED)
        munmap(base, len);
    *why_p = error == EAGAIN   ? "future mappings are locked (mlockall), and ulimit -l is reached"
             : error == ENOMEM ? "no address space is left; see ulimit -v and vm.max_map_count"
                               : strerror(error);
    return NULL;
}
