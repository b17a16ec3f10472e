/*
 * Reads /proc/self/maps and smaps, line by line, without the heap. Threading: any, each with its own struct um_maps.
 */
#ifndef UM_BASE_MAPS_H
#define UM_BASE_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct um_maps {
    int fd;
    bool no_query; /* the kernel answers no query: um_maps_find() reads the text */
    char *text;
    size_t size, have, at;
};

struct um_map {
    uintptr_t start, end;
    uint64_t offset, dev, ino;
    char perms[5];
    char path[128];   /* cut if it is longer */
    uint64_t huge_kb; /* from smaps only, like flags */
    char flags[128];
};

/* 0 or a negative errno. text: size bytes, used until close. */
int um_maps_open(struct um_maps *maps, const char *path, char *text, size_t size);
void um_maps_close(struct um_maps *maps);
/* Reads the next mapping; false at the end. */
bool um_maps_next(struct um_maps *maps, struct um_map *map_p);
/*
 * For maps, not smaps. Asks the kernel (Linux 6.11), without reading the text, for the mapping of a file that holds an
 * address, or the next such mapping above. 1: found; 0: there is none; a negative errno: this kernel does not answer.
 * Sets the path only if with_path.
 */
int um_maps_next_file(struct um_maps *maps, uintptr_t at, bool with_path, struct um_map *map_p);
/* Likewise for the mapping of any kind that holds an address. */
int um_maps_at(struct um_maps *maps, uintptr_t at, struct um_map *map_p);
/*
 * For maps, not smaps. Finds the mapping of any kind that holds an address: asks the kernel, or reads the text where
 * the kernel does not answer. Each address must lie at or above the end of the mapping found before. The path may be
 * set only if with_path. False: nothing is mapped there; *map_p means nothing then, and there must be no further call.
 */
bool um_maps_find(struct um_maps *maps, uintptr_t at, bool with_path, struct um_map *map_p);
/* For smaps only. Reads the details that follow the line of the mapping that um_maps_next() found. */
bool um_maps_details(struct um_maps *maps, struct um_map *map);
/* Is this two-letter flag among VmFlags? */
bool um_map_flag(const struct um_map *map, const char *flag);

#endif
