/* Libraries that `unimem run` preloads, and LD_PRELOAD. */
#ifndef UM_CMD_PRELOAD_H
#define UM_CMD_PRELOAD_H

#include <stdbool.h>
#include <stddef.h>

/*
 * The path of a library that lies beside the provider. who: what wants it, for messages. 0; -ENOENT, or what
 * um_cmd_provider_dir() returns, after a message.
 */
int um_cmd_preload_find(const char *who, const char *library, char *path, size_t size);

/* Appends libraries to LD_PRELOAD, behind what the user has. 0; -EINVAL, -ENAMETOOLONG after a message: nothing was
 * appended. */
int um_cmd_preload_add(const char *who, const char *const *paths, size_t count);

/* Does LD_PRELOAD name it? */
bool um_cmd_preload_has(const char *library);

#endif
