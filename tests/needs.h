/*
 * What a test needs of the system and may not find: emulators of user space (qemu-user, tools/aarch64.ini) lack system
 * calls. Only what is not there at all is forgiven; what is refused is a matter for the test. tests/skips.toml has the
 * reasons.
 */
#ifndef UM_TESTS_NEEDS_H
#define UM_TESTS_NEEDS_H

#include <stdbool.h>

/* process_vm_readv(2) */
bool has_private_copy(void);
/* userfaultfd(2) */
bool has_userfaultfd(void);
/* madvise(2) that looks at what it is asked: emulators say yes to anything. */
bool has_madvise(void);
/* setrlimit(2) that limits address space */
bool has_memory_limit(void);
/* recvmsg(2) that keeps no descriptor for which the receiver has no room: an emulator's own buffer has. */
bool has_exact_descriptors(void);
/* set_robust_list(2): a lock outlives its holder. */
bool has_robust_locks(void);
/* No thread but those that the program starts. */
bool has_one_thread(void);

/* Skips the test case that calls it, unless the condition holds. */
void needs(bool condition);
/* The exit status of a program whose cases have run: failed, unless that is 0 and some case was skipped: 77. */
int needs_status(int failed);

#endif
