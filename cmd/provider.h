/* The provider itself: where its library lies, and whether a list of libfabric providers names it. */
#ifndef UM_CMD_PROVIDER_H
#define UM_CMD_PROVIDER_H

#include <stdbool.h>
#include <stddef.h>

#define UM_PROVIDER_LIBRARY "libunimem-fi.so"

/*
 * Finds the folder of the library, for FI_PROVIDER_PATH: this executable's folder, or the one where the build installs
 * it. Returns 0, or a negative errno after a message on stderr (-ENOENT: it is in neither; -EINVAL: the folder cannot
 * be named, because libfabric splits that variable at every ':'). dir is undefined on failure.
 */
int um_cmd_provider_dir(char *dir, size_t size);

/* True if this value of FI_PROVIDER chooses providers other than unimem. */
bool um_cmd_provider_is_another(const char *fi_provider);

#endif
