/* See cmd/startup.h. */
#include "startup.h"
#include "elf_file.h"
#include "lib_dirs.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char slow_name[] = "libucs.so";

enum { SEEN_MAX = 64, NAME_LENGTH_MAX = 64, DEPTH_MAX = 4 };

/* Names already looked at: libraries need each other many times over. */
struct search {
    char seen[SEEN_MAX][NAME_LENGTH_MAX];
    unsigned seen_count;
    char *found;
};

static bool is_new(struct search *search, const char *name)
{
    size_t size = strlen(name) + 1;
    if (search->seen_count == SEEN_MAX || size > NAME_LENGTH_MAX)
        return false;
    for (unsigned i = 0; i < search->seen_count; i++) {
        if (!strcmp(search->seen[i], name))
            return false;
    }
    memcpy(search->seen[search->seen_count++], name, size);
    return true;
}

static bool is_slow(const char *name)
{
    return !strncmp(name, slow_name, sizeof slow_name - 1);
}

/* Looks first at what the file itself needs, where the library mostly is, then at what its libraries need. */
static int find_needed(struct search *search, const char *path, unsigned depth)
{
    char library[PATH_MAX];
    struct um_cmd_elf elf;
    int ret = -ENOENT;
    if (um_cmd_elf_open(path, &elf))
        return -ENOENT;
    for (unsigned i = 0; ret && i < elf.needed_count; i++) {
        if (is_slow(elf.needed[i]))
            ret = um_cmd_lib_find(&elf, path, elf.needed[i], search->found);
    }
    for (unsigned i = 0; ret && depth < DEPTH_MAX && i < elf.needed_count; i++) {
        if (is_new(search, elf.needed[i]) && um_cmd_lib_find(&elf, path, elf.needed[i], library) == 0)
            ret = find_needed(search, library, depth + 1);
    }
    um_cmd_elf_close(&elf);
    return ret;
}

int um_cmd_startup_find(const char *path, char *found)
{
    struct search search = {.found = found};
    return find_needed(&search, path, 0);
}

static int write_all(int fd, const unsigned char *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = write(fd, bytes + done, size - done);
        if (n < 0 && errno != EINTR)
            return -errno;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int copy_without_startup(const struct um_cmd_elf *elf, int fd)
{
    struct um_cmd_elf_word words[UM_ELF_STARTUP_MAX];
    unsigned count = um_cmd_elf_startup(elf, words);
    int ret = write_all(fd, elf->bytes, elf->size);
    for (unsigned i = 0; !ret && i < count; i++) {
        if (pwrite(fd, &words[i].value, sizeof words[i].value, (off_t)words[i].offset) != sizeof words[i].value)
            ret = -EIO;
    }
    return ret;
}

int um_cmd_startup_skip(const char *slow)
{
    char path[64];
    struct um_cmd_elf elf;
    int ret = um_cmd_elf_open(slow, &elf);
    if (ret)
        return ret;
    int fd = memfd_create(slow_name, MFD_CLOEXEC);
    ret = fd < 0 ? -errno : copy_without_startup(&elf, fd);
    um_cmd_elf_close(&elf);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (!ret && !dlopen(path, RTLD_LAZY | RTLD_LOCAL))
        ret = -ENOEXEC;
    if (fd >= 0)
        close(fd);
    return ret;
}
