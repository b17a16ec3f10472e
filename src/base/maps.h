/*
 * /proc/self/maps and smaps, line by line, without the heap. Threading: any, each with its own struct um_maps.
 */
#ifndef UM_BASE_MAPS_H
#define UM_BASE_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct um_maps {
    int fd;
    bool no_query; /* um_maps_find() reads the text: the kernel does not tell */
    char *text;
    size_t size, have, at;
};

struct um_map {
    uintptr_t start, end;
    uint64_t offset, dev, ino;
    char perms[5];
    char path[128];   /* its beginning */
    uint64_t huge_kb; /* from smaps only, like flags */
    char flags[128];
};

/* 0 or a negative errno. text: size bytes, used until close. */
int um_maps_open(struct um_maps *maps, const char *path, char *text, size_t size);
void um_maps_close(struct um_maps *maps);
/* The next mapping; false at the end. */
bool um_maps_next(struct um_maps *maps, struct um_map *map_p);
/*
 * maps only: the mapping of a file that holds an address, or the next one above, without the rest of the text (Linux
 * 6.11). 1; 0: there is none; or a negative errno: this kernel does not tell. path: only if with_path.
 */
int um_maps_next_file(struct um_maps *maps, uintptr_t at, bool with_path, struct um_map *map_p);
/* Likewise the mapping that holds an address, of whatever kind. */
int um_maps_at(struct um_maps *maps, uintptr_t at, struct um_map *map_p);
/*
 * maps only: the mapping that holds an address, of whatever kind: asked of the kernel, or read from the text where it
 * does not tell. Each address lies at or above the end of the mapping found before. path: perhaps only if with_path.
 * False: nothing is mapped there; map_p says nothing then, and this is the last call.
 */
bool um_maps_find(struct um_maps *maps, uintptr_t at, bool with_path, struct um_map *map_p);
/* smaps only: what follows the line of the mapping that um_maps_next() gave. */
bool um_maps_details(struct um_maps *maps, struct um_map *map);
/* Is this two-letter flag among VmFlags? */
bool um_map_flag(const struct um_map *map, const char *flag);

#endif
