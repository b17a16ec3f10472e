/* Libraries that `unimem run` preloads, and LD_PRELOAD. */
#ifndef UM_CMD_PRELOAD_H
#define UM_CMD_PRELOAD_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Finds a library that lies beside the provider. who: what needs it, for messages. Returns 0; -ENOENT or an error of
 * um_cmd_provider_dir(), after a message.
 */
int um_cmd_preload_find(const char *who, const char *library, char *path, size_t size);

/*
 * Appends libraries to LD_PRELOAD, behind what the user has. Returns 0; -EINVAL or -ENAMETOOLONG after a message:
 * nothing was appended.
 */
int um_cmd_preload_add(const char *who, const char *const *paths, size_t count);

/* True if LD_PRELOAD names the library. */
bool um_cmd_preload_has(const char *library);

/*
 * True if a program among the words of a command has the shared library of AddressSanitizer, which ends the program if
 * another library is preloaded before.
 */
bool um_cmd_has_address_sanitizer(char *const *words);

#endif
