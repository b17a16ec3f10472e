/*
 * Preloaded into a program over the board in software: its CLOCK_MONOTONIC is the board's virtual time.
 *
 * MPICH and the provider do some things by the clock (the provider looks every 25 ms whether peers live). With the
 * host's clock, their timing would depend on the host. Every call also takes some time, so that a loop that waits only
 * for the clock ends. Needs FI_UNIMEM_BOARD_LIBRARY; without it, and before the library is loaded, only calls take
 * time.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { CALL_NS = 20 };

static uint64_t virtual_ns(void)
{
    static uint64_t (*emu_now)(void *board);
    static uint64_t calls;
    if (!emu_now) {
        const char *path = getenv("FI_UNIMEM_BOARD_LIBRARY");
        void *library = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
        if (library)
            *(void **)&emu_now = dlsym(library, "unimem_emu_now");
    }
    return __atomic_add_fetch(&calls, CALL_NS, __ATOMIC_RELAXED) + (emu_now ? emu_now(NULL) : 0);
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock_id, struct timespec *tp)
{
    if (clock_id != CLOCK_MONOTONIC)
        return (int)syscall(SYS_clock_gettime, clock_id, tp);
    const uint64_t ns = virtual_ns() + UINT64_C(1000000000000);
    *tp = (struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    return 0;
}
