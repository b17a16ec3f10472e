/*
 * Features of the system that a test needs and may not find: user-space emulators (qemu-user, tools/aarch64.ini) lack
 * system calls. Only a missing feature skips a test; a refused call is a matter for the test. tests/skips.toml has the
 * reasons.
 */
#ifndef UM_TESTS_NEEDS_H
#define UM_TESTS_NEEDS_H

#include <stdbool.h>

/* process_vm_readv(2) */
bool has_private_copy(void);
/* userfaultfd(2) */
bool has_userfaultfd(void);
/* madvise(2) that checks its arguments: emulators accept everything. */
bool has_madvise(void);
/* setrlimit(2) that limits address space */
bool has_memory_limit(void);
/* recvmsg(2) that drops descriptors for which the receiver gave no room: an emulator keeps them in its own buffer. */
bool has_exact_descriptors(void);
/* set_robust_list(2): a lock outlives its holder. */
bool has_robust_locks(void);
/* No threads but those that the program starts. */
bool has_one_thread(void);

/* Skips the test case that calls it, unless the condition holds. */
void needs(bool condition);
/* Returns the exit status of a program whose cases have run: failed, the number of failed cases; 77 if that is 0 and a
 * case was skipped. */
int needs_status(int failed);

#endif
