/*
 * Runs a function in a child process of its own: for calls that may crash, hang or change the process (loading a
 * foreign library, a system call for which a seccomp filter may kill).
 */
#ifndef UM_CMD_CHILD_H
#define UM_CMD_CHILD_H

#include <stddef.h>

/* Runs in the child. What it writes to the descriptor `out` reaches the parent; its stdout and stderr are discarded. */
typedef void um_cmd_child_fn(void *arg, int out);

/*
 * Runs fn and collects at most size - 1 bytes of what it wrote; text is zero-terminated in any case. The child is
 * killed after timeout_ms. Returns the number of bytes, or a negative errno (-ETIMEDOUT; -ECHILD: a signal killed it;
 * the errors of fork(2) and pipe(2)).
 */
int um_cmd_child_run(um_cmd_child_fn *fn, void *arg, char *text, size_t size, int timeout_ms);

#endif
