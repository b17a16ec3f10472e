/*
 * Arrays that grow and never move: chunk k holds 64 << k elements, so that an element is found in a few instructions
 * and its address stays valid.
 *
 * Owns nothing: the chunk pointers lie in the objects. Threading: the caller's.
 */
#ifndef UM_PROV_VECTOR_H
#define UM_PROV_VECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { UM_VECTOR_CHUNKS = 26, UM_VECTOR_FIRST = 64 };

/* Where element i lies. False: beyond what a vector can hold. */
static inline bool um_prov_vector_place(uint64_t i, unsigned *chunk_p, size_t *offset_p)
{
    if (i >= (uint64_t)UM_VECTOR_FIRST << (UM_VECTOR_CHUNKS - 1))
        return false;
    uint64_t n = i + UM_VECTOR_FIRST;
    unsigned top = 63u - (unsigned)__builtin_clzll(n);
    *chunk_p = top - 6;
    *offset_p = (size_t)(n - (1ull << top));
    return true;
}

static inline size_t um_prov_vector_chunk_size(unsigned chunk)
{
    return (size_t)UM_VECTOR_FIRST << chunk;
}

#endif
