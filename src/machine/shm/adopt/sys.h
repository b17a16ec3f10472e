/*
 * System calls without the C library, for the time when memory of the program is missing.
 *
 * Between stop and resume nothing may touch memory that could be in the range: not errno, nor the table for calls into
 * other libraries. So these are inline instructions. Result: as the kernel's, negative errno. Threading: any.
 */
#ifndef UM_MACHINE_SHM_ADOPT_SYS_H
#define UM_MACHINE_SHM_ADOPT_SYS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
static inline long um_shm_sys(long number, const long arg[6])
{
    long ret;
    register long r10 __asm__("r10") = arg[3];
    register long r8 __asm__("r8") = arg[4];
    register long r9 __asm__("r9") = arg[5];
    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(number), "D"(arg[0]), "S"(arg[1]), "d"(arg[2]), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return ret;
}
enum { UM_SYS_INLINE = 1 };
#elif defined(__aarch64__)
static inline long um_shm_sys(long number, const long arg[6])
{
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = arg[0];
    register long x1 __asm__("x1") = arg[1];
    register long x2 __asm__("x2") = arg[2];
    register long x3 __asm__("x3") = arg[3];
    register long x4 __asm__("x4") = arg[4];
    register long x5 __asm__("x5") = arg[5];
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
}
enum { UM_SYS_INLINE = 1 };
#else
static inline long um_shm_sys(long number, const long arg[6])
{
    (void)number;
    (void)arg;
    return -38; /* ENOSYS: um_shm_check_process() refuses adoption here */
}
enum { UM_SYS_INLINE = 0 };
#endif

static inline long um_shm_sys3(long number, long a, long b, long c)
{
    return um_shm_sys(number, (const long[6]){a, b, c, 0, 0, 0});
}

static inline long um_shm_sys_pread(int fd, void *to, size_t len, uint64_t offset)
{
    return um_shm_sys(SYS_pread64, (const long[6]){fd, (long)to, (long)len, (long)offset, 0, 0});
}

static inline long um_shm_sys_pwrite(int fd, uintptr_t from, size_t len, uint64_t offset)
{
    return um_shm_sys(SYS_pwrite64, (const long[6]){fd, (long)from, (long)len, (long)offset, 0, 0});
}

/* The address, or a negative errno (addresses of user memory are positive). */
static inline long um_shm_sys_mmap(uintptr_t at, size_t len, int prot, int flags, int fd)
{
    return um_shm_sys(SYS_mmap, (const long[6]){(long)at, (long)len, prot, flags, fd, fd < 0 ? 0 : (long)at});
}

static inline long um_shm_sys_mremap(uintptr_t from, size_t len, int flags, uintptr_t to)
{
    return um_shm_sys(SYS_mremap, (const long[6]){(long)from, (long)len, (long)len, flags, (long)to, 0});
}

static inline long um_shm_sys_mprotect(uintptr_t at, size_t len, int prot)
{
    return um_shm_sys3(SYS_mprotect, (long)at, (long)len, prot);
}

static inline long um_shm_sys_madvise(uintptr_t at, size_t len, int advice)
{
    return um_shm_sys3(SYS_madvise, (long)at, (long)len, advice);
}

static inline long um_shm_sys_ioctl(int fd, unsigned long request, void *arg)
{
    return um_shm_sys3(SYS_ioctl, fd, (long)request, (long)arg);
}

static inline void um_shm_sys_sleep_ns(long ns)
{
    long span[2] = {0, ns};
    um_shm_sys3(SYS_nanosleep, (long)span, 0, 0);
}

/* Blocks every signal, the C library's own included; *old_p takes the mask that um_shm_sys_signals_restore() puts back.
 */
static inline void um_shm_sys_signals_block(uint64_t *old_p)
{
    uint64_t all = UINT64_MAX;
    um_shm_sys(SYS_rt_sigprocmask, (const long[6]){2 /* SIG_SETMASK */, (long)&all, (long)old_p, sizeof(all), 0, 0});
}

static inline void um_shm_sys_signals_restore(const uint64_t *old)
{
    um_shm_sys(SYS_rt_sigprocmask, (const long[6]){2 /* SIG_SETMASK */, (long)old, 0, sizeof(*old), 0, 0});
}

#endif
