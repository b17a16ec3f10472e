/*
 * Processes of this host and pid namespace: when they started, whether they still live, and a number that names each.
 *
 * Owns: this process's number. Sources: proc(5), stat fields 3, 20 and 22; kill(2). Threading: any.
 */
#ifndef UM_BASE_PROCESS_H
#define UM_BASE_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct um_process_stat {
    char state;
    int threads;
    uint32_t start; /* clock ticks since boot, modulo 2^32 */
};

/* 0, or a negative errno (-ENOENT: no such process, or /proc hides it). */
int um_process_stat_read(uint32_t pid, struct um_process_stat *stat_p);

/* Does the process with this start time (0: any) still live? False only when it is certainly gone. */
bool um_process_is_alive(uint32_t pid, uint32_t start);

/* Returns this process's number: pid in the upper half, start time in the lower half. Never 0. */
uint64_t um_process_self(void);

/* Has this process only ever had one thread? glibc tells from 2.32 on; with an older glibc the answer is yes. */
extern char __libc_single_threaded __attribute__((weak));
static inline bool um_process_is_single_threaded(void)
{
    return &__libc_single_threaded == NULL || __libc_single_threaded;
}

/* Does what um_process_is_alive() does, for the number of a process (um_process_self()). */
bool um_process_holder_is_alive(uint64_t holder);

#endif
