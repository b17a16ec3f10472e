/*
 * Reads an ELF file: the libraries that it needs, its search paths, and whether it contains given bytes.
 *
 * Reads the file only; nothing is loaded. Files of another word size are not read, and in those of another byte order
 * nothing is found: this machine's libraries could not run them either. A damaged file yields an error or an empty
 * list, never a read outside it.
 */
#ifndef UM_CMD_ELF_FILE_H
#define UM_CMD_ELF_FILE_H

#include <stdbool.h>
#include <stddef.h>

enum { UM_ELF_NEEDED_MAX = 64, UM_ELF_STARTUP_MAX = 8 };

struct um_cmd_elf {
    const unsigned char *bytes; /* the whole file, mapped read-only */
    size_t size;
    const char *needed[UM_ELF_NEEDED_MAX]; /* DT_NEEDED; these point into bytes */
    unsigned needed_count;
    const char *rpath, *runpath;   /* DT_RPATH (searched before LD_LIBRARY_PATH), DT_RUNPATH (after it), or NULL */
    const char *loader;            /* PT_INTERP: the program that loads it, or NULL */
    size_t dynamic, dynamic_count; /* PT_DYNAMIC: the file offset of its entries, and their number */
};

/* A word of the file and its new value. */
struct um_cmd_elf_word {
    size_t offset, value;
};

/* Returns 0, or a negative errno: -ENOEXEC if it is not an ELF file of this machine's class. */
int um_cmd_elf_open(const char *path, struct um_cmd_elf *elf);
void um_cmd_elf_close(struct um_cmd_elf *elf);

/*
 * Lists the words to change in a copy of a library so that the loader runs none of its code when it loads or unloads
 * the copy. Returns their number, at most UM_ELF_STARTUP_MAX.
 */
unsigned um_cmd_elf_startup(const struct um_cmd_elf *elf, struct um_cmd_elf_word *words);

/* True if the file holds these bytes anywhere. */
bool um_cmd_elf_holds(const struct um_cmd_elf *elf, const void *bytes, size_t size);

#endif
