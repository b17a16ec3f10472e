/*
 * Reading /proc/self/maps and smaps, without the heap.
 *
 * Owns nothing; the text buffer is the caller's. Must not know what callers decide from the mappings. Threading: any;
 * other threads may change mappings meanwhile: each line was true when the kernel wrote it.
 * Source: proc_pid_maps(5), proc_pid_smaps(5), linux/fs.h (PROCMAP_QUERY).
 */
#include "base/maps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

int um_maps_open(struct um_maps *maps, const char *path, char *text, size_t size)
{
    *maps = (struct um_maps){.fd = open(path, O_RDONLY | O_CLOEXEC), .text = text, .size = size};
    return maps->fd < 0 ? -errno : 0;
}

void um_maps_close(struct um_maps *maps)
{
    close(maps->fd);
}

/* Returns the next line, or NULL at the end. A line longer than the buffer is cut. */
static char *line_next(struct um_maps *maps)
{
    for (;;) {
        char *start = maps->text + maps->at;
        char *end = memchr(start, '\n', maps->have - maps->at);
        if (end) {
            *end = '\0';
            maps->at = (size_t)(end + 1 - maps->text);
            return start;
        }
        memmove(maps->text, start, maps->have - maps->at);
        maps->have -= maps->at;
        maps->at = 0;
        if (maps->have == maps->size)
            maps->have = maps->size / 2; /* no path is that long */
        ssize_t n = read(maps->fd, maps->text + maps->have, maps->size - maps->have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return NULL;
        maps->have += (size_t)n;
    }
}

/* "start-end rwxp offset major:minor inode   path" */
static bool head_parse(char *line, struct um_map *map)
{
    char *at = line;
    *map = (struct um_map){0};
    map->start = strtoull(at, &at, 16);
    if (*at++ != '-')
        return false;
    map->end = strtoull(at, &at, 16);
    if (*at++ != ' ' || strlen(at) < 5)
        return false;
    memcpy(map->perms, at, 4);
    at += 5;
    map->offset = strtoull(at, &at, 16);
    unsigned long major_number = strtoul(at, &at, 16);
    if (*at++ != ':')
        return false;
    map->dev = makedev(major_number, strtoul(at, &at, 16));
    map->ino = strtoull(at, &at, 10);
    at += strspn(at, " ");
    strncpy(map->path, at, sizeof(map->path) - 1);
    return true;
}

static bool is_head(const char *line)
{
    return (*line >= '0' && *line <= '9') || (*line >= 'a' && *line <= 'f');
}

bool um_maps_next(struct um_maps *maps, struct um_map *map_p)
{
    char *line;
    while ((line = line_next(maps)) != NULL) {
        if (is_head(line) && head_parse(line, map_p))
            return true;
    }
    return false;
}

/* ---- one mapping at a time ---- */

/* The argument of PROCMAP_QUERY, which older system headers do not have. */
struct query {
    uint64_t size, flags, at;
    uint64_t start, end, perms, page_size, offset, ino; /* out */
    uint32_t dev_major, dev_minor;
    uint32_t name_size, build_id_size;
    uint64_t name, build_id;
};
#define UM_PROCMAP_QUERY _IOWR('f', 17, struct query)
enum { QUERY_READ = 1, QUERY_WRITE = 2, QUERY_EXEC = 4, QUERY_SHARED = 8, QUERY_OR_NEXT = 16, QUERY_FILE = 32 };
enum { NAME_MOST = 4096 };

static int maps_query(struct um_maps *maps, uintptr_t at, uint64_t flags, bool with_path, struct um_map *map_p)
{
    struct query q = {.size = sizeof(q), .flags = flags, .at = at};
    if (with_path && maps->size >= NAME_MOST) {
        q.name = (uint64_t)(uintptr_t)maps->text;
        q.name_size = NAME_MOST;
    }
    if (ioctl(maps->fd, UM_PROCMAP_QUERY, &q) != 0)
        return errno == ENOENT ? 0 : -errno;
    *map_p = (struct um_map){
        .start = q.start, .end = q.end, .offset = q.offset, .dev = makedev(q.dev_major, q.dev_minor), .ino = q.ino};
    map_p->perms[0] = q.perms & QUERY_READ ? 'r' : '-';
    map_p->perms[1] = q.perms & QUERY_WRITE ? 'w' : '-';
    map_p->perms[2] = q.perms & QUERY_EXEC ? 'x' : '-';
    map_p->perms[3] = q.perms & QUERY_SHARED ? 's' : 'p';
    if (q.name_size && with_path)
        strncpy(map_p->path, maps->text, sizeof(map_p->path) - 1);
    return 1;
}

int um_maps_next_file(struct um_maps *maps, uintptr_t at, bool with_path, struct um_map *map_p)
{
    return maps_query(maps, at, QUERY_OR_NEXT | QUERY_FILE, with_path, map_p);
}

int um_maps_at(struct um_maps *maps, uintptr_t at, struct um_map *map_p)
{
    return maps_query(maps, at, 0, false, map_p);
}

bool um_maps_find(struct um_maps *maps, uintptr_t at, bool with_path, struct um_map *map_p)
{
    int ret = maps->no_query ? -ENOTTY : maps_query(maps, at, 0, with_path, map_p);
    if (ret >= 0)
        return ret > 0;
    maps->no_query = true;
    while (um_maps_next(maps, map_p)) {
        if (map_p->end > at)
            return map_p->start <= at;
    }
    return false;
}

bool um_maps_details(struct um_maps *maps, struct um_map *map)
{
    char *line;
    while ((line = line_next(maps)) != NULL) {
        if (strncmp(line, "AnonHugePages:", 14) == 0)
            map->huge_kb = strtoull(line + 14, NULL, 10);
        else if (strncmp(line, "VmFlags:", 8) == 0) {
            strncpy(map->flags, line + 8, sizeof(map->flags) - 1);
            return true;
        }
    }
    return false;
}

bool um_map_flag(const struct um_map *map, const char *flag)
{
    for (const char *at = map->flags; (at = strstr(at, flag)) != NULL; at++) {
        if (at > map->flags && at[-1] == ' ' && (at[2] == ' ' || at[2] == '\0'))
            return true;
    }
    return false;
}
