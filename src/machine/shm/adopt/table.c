/*
 * The table of adoption: runs of adopted pages, in order of address, disjoint.
 *
 * Invariants: table[i].start < table[i].end <= table[i + 1].start; whole <= count.
 * Room: a registration has at most four edges (of its pages, and of those it covers wholly). Adoption makes sure that
 * count + 4 * live <= UM_ADOPT_EDGES. A release may split entries at four edges, but ends a live registration. The rest
 * of the table is for edges of the program's own mappings. Must not know how pages move. Threading: internal.h.
 */
#include "machine/shm/adopt/internal.h"

#include <string.h>

size_t um_shm_table_find(const struct um_shm_adopt_state *state, uintptr_t at)
{
    size_t low = 0, high = state->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (state->table[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void open_place(struct um_shm_adopt_state *state, size_t i)
{
    if (state->count == UM_ADOPT_TABLE)
        __builtin_trap(); /* see the head of this file */
    memmove(&state->table[i + 1], &state->table[i], (state->count - i) * sizeof(state->table[0]));
    state->count++;
}

void um_shm_table_split(struct um_shm_adopt_state *state, uintptr_t at)
{
    size_t i = um_shm_table_find(state, at);
    if (i == state->count || state->table[i].start >= at)
        return;
    open_place(state, i);
    struct um_shm_adopted *low = &state->table[i], *high = low + 1;
    low->end = at;
    high->start = at;
    if (high->shadow)
        high->shadow += at - low->start;
}

/* Is b the continuation of a? */
static bool joins(const struct um_shm_adopted *a, const struct um_shm_adopted *b)
{
    bool shadows = a->shadow ? b->shadow == a->shadow + (a->end - a->start) : !b->shadow;
    return a->end == b->start && a->count == b->count && a->whole == b->whole && shadows;
}

void um_shm_table_join(struct um_shm_adopt_state *state, uintptr_t start, uintptr_t end)
{
    size_t i = um_shm_table_find(state, start ? start - 1 : 0);
    while (i + 1 < state->count && state->table[i].start <= end) {
        if (!joins(&state->table[i], &state->table[i + 1])) {
            i++;
            continue;
        }
        state->table[i].end = state->table[i + 1].end;
        state->count--;
        memmove(&state->table[i + 1], &state->table[i + 2], (state->count - i - 1) * sizeof(state->table[0]));
    }
}

static void insert(struct um_shm_adopt_state *state, size_t i, uintptr_t start, uintptr_t end, uintptr_t shadow)
{
    open_place(state, i);
    state->table[i] = (struct um_shm_adopted){.start = start, .end = end, .shadow = shadow};
}

void um_shm_table_place(struct um_shm_adopt_state *state, uintptr_t start, uintptr_t end, uintptr_t shadow)
{
    um_shm_table_split(state, start);
    um_shm_table_split(state, end);
    for (uintptr_t at = start; at < end;) {
        size_t i = um_shm_table_find(state, at);
        struct um_shm_adopted *entry = &state->table[i];
        uintptr_t there = i < state->count && entry->start < end ? entry->start : end;
        if (there > at) {
            insert(state, i, at, there, shadow ? shadow + (at - start) : 0);
            at = there;
            continue;
        }
        if (shadow)
            entry->shadow = shadow + (at - start);
        at = entry->end;
    }
}

void um_shm_table_remove(struct um_shm_adopt_state *state, uintptr_t start, uintptr_t end)
{
    um_shm_table_split(state, start);
    um_shm_table_split(state, end);
    size_t i = um_shm_table_find(state, start), j = i;
    while (j < state->count && state->table[j].end <= end)
        j++;
    memmove(&state->table[i], &state->table[j], (state->count - j) * sizeof(state->table[0]));
    state->count -= j - i;
}

void um_shm_table_count(struct um_shm_adopt_state *state, uintptr_t base, size_t len, int by)
{
    uintptr_t mask = state->page - 1, start = base & ~mask, end = (base + len + mask) & ~mask;
    uintptr_t whole_start = (base + mask) & ~mask, whole_end = (base + len) & ~mask;
    um_shm_table_split(state, start);
    um_shm_table_split(state, end);
    if (whole_start < whole_end) {
        um_shm_table_split(state, whole_start);
        um_shm_table_split(state, whole_end);
    }
    for (size_t i = um_shm_table_find(state, start); i < state->count && state->table[i].start < end; i++) {
        struct um_shm_adopted *entry = &state->table[i];
        if (by < 0 && entry->count == 0)
            continue; /* the program mapped something else there meanwhile */
        entry->count += (uint32_t)by;
        if (entry->start >= whole_start && entry->end <= whole_end && (by > 0 || entry->whole > 0))
            entry->whole += (uint32_t)by;
    }
}
