/*
 * A function in a child process of its own: for what may crash, hang or leave something behind in the process that
 * does it (loading somebody else's library, asking the kernel for what a filter may punish with death).
 */
#ifndef UM_CMD_CHILD_H
#define UM_CMD_CHILD_H

#include <stddef.h>

/* Runs in the child. What it writes to the descriptor `out` reaches the parent; its stdout and stderr are closed. */
typedef void um_child_fn(void *arg, int out);

/*
 * Runs fn and collects at most size - 1 bytes of what it wrote; text is zero-terminated in any case. The child is
 * killed after timeout_ms. Returns the number of bytes, or a negative errno (-ETIMEDOUT; -ECHILD: it was killed by a
 * signal; what fork(2) and pipe(2) give).
 */
int um_child_run(um_child_fn *fn, void *arg, char *text, size_t size, int timeout_ms);

#endif
