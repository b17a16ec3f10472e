/* Preloading the shareable heap: `unimem run --heap`. */
#ifndef UM_CMD_HEAP_H
#define UM_CMD_HEAP_H

#include <stdbool.h>

/*
 * Sets LD_PRELOAD: what the user has, then the heap, then jemalloc. Not for a program (a word of the command, which
 * ends with NULL) that is built with AddressSanitizer: a message says so. Returns 0, or a negative errno after a
 * message that says what is missing.
 */
int um_cmd_heap_preload(char *const *program, bool verbose);

/* True if the heap is in LD_PRELOAD. */
bool um_cmd_heap_is_preloaded(void);

#endif
