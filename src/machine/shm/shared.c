/*
 * From an address to the file behind it: /proc/self/maps names the file by device and inode, and the file is reached
 * through a descriptor that the program still has, through /proc/self/map_files (which takes CAP_CHECKPOINT_RESTORE),
 * or by its name. See shared.h.
 *
 * Where the file cannot be reached at all, a peer that maps it itself (ranks of one MPI often do) can still join it
 * with a second mapping of its own: mremap(2) of 0 bytes of a shared mapping makes one, and needs no descriptor.
 *
 * Owns: one descriptor of each such file, counted. Source: proc(5).
 */
#include "machine/shm/shared.h"

#include "base/cancel.h"
#include "base/list.h"
#include "base/maps.h"
#include "machine/shm/adopt/adopt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

struct shared_file {
    struct um_list link;
    uint64_t dev, ino;
    int fd;
    size_t users;
};

static pthread_mutex_t files_lock = PTHREAD_MUTEX_INITIALIZER;
static struct um_list files = {&files, &files};

/* In a forked child: another thread of the parent may have held the lock. The list is emptied because the program may
 * close the descriptors there. */
static void files_forget(void)
{
    files_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    um_list_init(&files);
}

static void files_watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, files_forget);
}

/* Is it the same file, and one whose pages are memory? Then other processes can map it, too. */
static bool is_it(int fd, const struct um_map *map)
{
    struct stat st;
    struct statfs fs;
    return fstat(fd, &st) == 0 && st.st_dev == map->dev && st.st_ino == map->ino && S_ISREG(st.st_mode) &&
           fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

/* Opens by a name that may mean another file by now: checked before it is opened, because opening a device can have
 * effects. */
static int open_by_name(const char *path, const struct um_map *map)
{
    int look = open(path, O_PATH | O_CLOEXEC);
    char self[32];
    if (look < 0)
        return -errno;
    int fd = -ENOENT;
    snprintf(self, sizeof(self), "/proc/self/fd/%d", look);
    if (is_it(look, map)) {
        fd = open(self, O_RDWR | O_CLOEXEC);
        fd = fd < 0 ? -errno : fd;
    }
    close(look);
    return fd;
}

/* Duplicates a descriptor of the file that the program has. */
static int open_by_descriptor(const struct um_map *map)
{
    DIR *dir = opendir("/proc/self/fd");
    const struct dirent *entry;
    int found = -ENOENT;
    if (!dir)
        return -errno;
    while (found < 0 && (entry = readdir(dir)) != NULL) {
        int fd = entry->d_name[0] == '.' ? -1 : atoi(entry->d_name);
        if (fd >= 0 && fd != dirfd(dir) && is_it(fd, map))
            found = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    }
    closedir(dir);
    return found;
}

/* Opens the file by the name that the kernel shows for it. */
static int open_by_shown_name(const struct um_map *map)
{
    char text[8192];
    struct um_maps maps;
    struct um_map named;
    if (um_maps_open(&maps, "/proc/self/maps", text, sizeof(text)) != 0)
        return -ENOENT;
    const bool is_named = um_maps_find(&maps, map->start, true, &named) && named.path[0] == '/';
    um_maps_close(&maps);
    return is_named ? open_by_name(named.path, map) : -ENOENT;
}

static int file_open(const struct um_map *map)
{
    char path[64];
    int fd = open_by_descriptor(map);
    if (fd < 0) {
        snprintf(path, sizeof(path), "/proc/self/map_files/%lx-%lx", (unsigned long)map->start,
                 (unsigned long)map->end);
        fd = open_by_name(path, map);
    }
    return fd < 0 ? open_by_shown_name(map) : fd;
}

/* Lock held. */
static int file_get(const struct um_map *map, int *fd_p)
{
    for (struct um_list *l = files.next; l != &files; l = l->next) {
        struct shared_file *f = UM_CONTAINER(l, struct shared_file, link);
        if (f->dev == map->dev && f->ino == map->ino) {
            f->users++;
            *fd_p = f->fd;
            return 0;
        }
    }
    struct shared_file *f = malloc(sizeof(*f));
    if (!f)
        return -ENOMEM;
    *f = (struct shared_file){.dev = map->dev, .ino = map->ino, .fd = file_open(map), .users = 1};
    if (f->fd < 0) {
        int ret = f->fd;
        free(f);
        return ret;
    }
    um_list_append(&files, &f->link);
    *fd_p = f->fd;
    return 0;
}

void um_shm_shared_drop(int fd)
{
    UM_UNCANCELLED;
    pthread_mutex_lock(&files_lock);
    for (struct um_list *l = files.next; l != &files; l = l->next) {
        struct shared_file *f = UM_CONTAINER(l, struct shared_file, link);
        if (f->fd == fd) {
            if (--f->users == 0) {
                um_list_unlink(&f->link);
                close(f->fd);
                free(f);
            }
            break;
        }
    }
    pthread_mutex_unlock(&files_lock);
}

/* ---- what is mapped where ---- */

struct look {
    uintptr_t base, end;
    bool writable;
    struct um_map first; /* the mapping that holds base */
};

/* Finds the mapping that holds base; up to the end, the next ones must go on in the same file. 0, or a negative errno.
 */
static int range_look(struct um_maps *maps, struct look *look, const char **why_p)
{
    const uintptr_t base = look->base, end = look->end;
    struct um_map map, *map_p = &look->first;
    uintptr_t reached = base;
    while (reached < end && um_maps_find(maps, reached, false, &map)) {
        if (map.perms[3] != 's' || map.ino == 0)
            return -ENOENT;
        if (reached == base)
            *map_p = map;
        else if (map.dev != map_p->dev || map.ino != map_p->ino ||
                 map.offset - map_p->offset != map.start - map_p->start)
            return -ENOENT;
        if (map.perms[0] != 'r' || (look->writable && map.perms[1] != 'w')) {
            *why_p = "it is a shared mapping that this process itself may not read, or write, as the registration says";
            return -EACCES;
        }
        reached = map.end;
    }
    return reached < end ? -ENOENT : 0;
}

/* The same in the process whose maps are at path. */
static int look_at(const char *path, struct look *look, const char **why_p)
{
    char text[8192];
    struct um_maps maps;
    if (um_maps_open(&maps, path, text, sizeof(text)) != 0)
        return -ENOENT;
    int ret = range_look(&maps, look, why_p);
    um_maps_close(&maps);
    return ret;
}

static uint64_t offset_of(const struct look *look)
{
    return look->first.offset + (look->base - look->first.start);
}

int um_shm_shared_find(uintptr_t base, size_t len, bool writable, int *fd_p, uint64_t *offset_p, const char **why_p)
{
    UM_UNCANCELLED;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct look look = {.base = base, .end = base + len, .writable = writable};
    int ret = look_at("/proc/self/maps", &look, why_p);
    if (ret)
        return ret;
    /* Adopted memory: its pages leave the file with the last count of them, and the caller has none. */
    if (um_shm_adopt_is_of_file(look.first.dev, look.first.ino))
        return -ENOENT;
    *offset_p = offset_of(&look);
    pthread_once(&once, files_watch_forks);
    pthread_mutex_lock(&files_lock);
    ret = file_get(&look.first, fd_p);
    pthread_mutex_unlock(&files_lock);
    if (ret == 0)
        return 0;
    *why_p = "a shared mapping whose file cannot be opened: mapped only by peers that share it; else keep its "
             "descriptor open, or its name";
    return -EPERM;
}

/* ---- what another process maps, and this one too ---- */

/*
 * Is an inode of this file system the same memory for all processes that map it? Not for a device (each open may give
 * other memory) or anon_inode (shared by unrelated files). The kernel's own tmpfs holds memfds, System V segments and
 * anonymous memory; /dev/shm usually is another one.
 */
static bool is_memory(uint64_t dev)
{
    struct stat st;
    struct statfs fs;
    if (stat("/dev/shm", &st) == 0 && st.st_dev == dev)
        return statfs("/dev/shm", &fs) == 0 && fs.f_type == TMPFS_MAGIC;
    int fd = memfd_create("unimem-look", MFD_CLOEXEC);
    bool is = fd >= 0 && fstat(fd, &st) == 0 && st.st_dev == dev;
    if (fd >= 0)
        close(fd);
    return is;
}

/* Where this process maps the byte that `look` found in another process; NULL: nowhere, or without the wanted access.
 */
static void *twin_of(const struct look *look)
{
    char text[8192];
    struct um_maps maps;
    struct um_map map;
    const uint64_t offset = offset_of(look);
    void *found = NULL;
    if (um_maps_open(&maps, "/proc/self/maps", text, sizeof(text)) != 0)
        return NULL;
    while (!found && um_maps_next(&maps, &map)) {
        if (map.perms[3] == 's' && map.perms[0] == 'r' && (map.perms[1] == 'w' || !look->writable) &&
            map.dev == look->first.dev && map.ino == look->first.ino && map.offset <= offset &&
            offset - map.offset < map.end - map.start)
            found = (void *)(map.start + (uintptr_t)(offset - map.offset));
    }
    um_maps_close(&maps);
    return found;
}

/* Is it still the same mapping? The program may have replaced it meanwhile. */
static bool is_meant(const void *base, size_t len, const struct look *meant)
{
    const char *why;
    struct look look = {.base = (uintptr_t)base, .end = (uintptr_t)base + len, .writable = meant->writable};
    return look_at("/proc/self/maps", &look, &why) == 0 && look.first.dev == meant->first.dev &&
           look.first.ino == meant->first.ino && offset_of(&look) == offset_of(meant);
}

void *um_shm_shared_join(uint32_t pid, uintptr_t base, size_t len, bool writable)
{
    UM_UNCANCELLED;
    char path[64];
    const char *why;
    struct look look = {.base = base, .end = base + len, .writable = writable};
    snprintf(path, sizeof(path), "/proc/%u/maps", pid);
    if (look_at(path, &look, &why) != 0 || !is_memory(look.first.dev))
        return NULL;
    void *twin = twin_of(&look);
    void *own = twin ? mremap(twin, 0, len, MREMAP_MAYMOVE) : MAP_FAILED; /* mremap of 0 bytes makes a second mapping */
    if (own == MAP_FAILED)
        return NULL;
    if (is_meant(own, len, &look) && (writable || mprotect(own, len, PROT_READ) == 0))
        return own;
    munmap(own, len);
    return NULL;
}
