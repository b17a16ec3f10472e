/*
 * From an address to the file behind it: /proc/self/maps names the file by device and inode, and the file is reached
 * through a descriptor that the program still has, through /proc/self/map_files (which takes CAP_CHECKPOINT_RESTORE),
 * or by its name. See shared.h.
 *
 * Owns: one descriptor of each such file, counted. Source: proc(5).
 */
#include "machine/shm/shared.h"

#include "machine/shm/adopt_maps.h"

#include "base/list.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* The same file, and one whose pages are memory: what it takes to be mapped by others as by us. */
static bool is_it(int fd, const struct um_map *map)
{
    struct stat st;
    struct statfs fs;
    return fstat(fd, &st) == 0 && st.st_dev == map->dev && st.st_ino == map->ino && S_ISREG(st.st_mode) &&
           fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

/* Opens by a name that may mean something else by now: looked at before it is opened, for opening a device can act. */
static int open_by_name(const char *path, const struct um_map *map)
{
    int look = open(path, O_PATH | O_CLOEXEC);
    char self[32];
    if (look < 0)
        return -errno;
    snprintf(self, sizeof(self), "/proc/self/fd/%d", look);
    int fd = is_it(look, map) ? open(self, O_RDWR | O_CLOEXEC) : -1;
    int error = errno;
    close(look);
    return fd < 0 ? -error : fd;
}

/* A copy of a descriptor that the program has of it. */
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

static int file_open(const struct um_map *map)
{
    char path[64];
    int fd = open_by_descriptor(map);
    if (fd < 0) {
        snprintf(path, sizeof(path), "/proc/self/map_files/%lx-%lx", (unsigned long)map->start,
                 (unsigned long)map->end);
        fd = open_by_name(path, map);
    }
    if (fd < 0 && map->path[0] == '/')
        fd = open_by_name(map->path, map);
    return fd;
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

/*
 * The mapping that begins at or before base, and the others that go on in the same file up to the end: *map_p is the
 * first. 0, or why not.
 */
static int range_look(struct um_maps *maps, uintptr_t base, uintptr_t end, bool writable, struct um_map *map_p,
                      const char **why_p)
{
    struct um_map map;
    uintptr_t reached = base;
    while (reached < end && um_maps_next(maps, &map)) {
        if (map.end <= base)
            continue;
        if (map.start > reached || map.perms[3] != 's' || map.ino == 0)
            return -ENOENT;
        if (reached == base)
            *map_p = map;
        else if (map.dev != map_p->dev || map.ino != map_p->ino ||
                 map.offset - map_p->offset != map.start - map_p->start)
            return -ENOENT;
        if (map.perms[0] != 'r' || (writable && map.perms[1] != 'w')) {
            *why_p = "it is a shared mapping that this process itself may not read, or write, as the registration says";
            return -EACCES;
        }
        reached = map.end;
    }
    return reached < end ? -ENOENT : 0;
}

int um_shm_shared_find(uintptr_t base, size_t len, bool writable, int *fd_p, uint64_t *offset_p, const char **why_p)
{
    char text[8192];
    struct um_maps maps;
    struct um_map map;
    int ret = um_maps_open(&maps, "/proc/self/maps", text, sizeof(text));
    if (ret)
        return -ENOENT;
    ret = range_look(&maps, base, base + len, writable, &map, why_p);
    um_maps_close(&maps);
    if (ret)
        return ret;
    pthread_mutex_lock(&files_lock);
    ret = file_get(&map, fd_p);
    pthread_mutex_unlock(&files_lock);
    if (ret) {
        *why_p = "it is a shared mapping whose file cannot be opened: keep its descriptor open, or its name";
        return ret;
    }
    *offset_p = map.offset + (base - map.start);
    return 0;
}
