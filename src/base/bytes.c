/* See bytes.h. */
#include "base/bytes.h"

#include <stdint.h>

enum { UM_BYTES_PAGE = 4096, UM_BYTES_BEHIND = 32, UM_BYTES_BLOCK = 128, UM_BYTES_HUGE = 1 << 20 };

typedef uint64_t um_bytes_vector __attribute__((vector_size(16), aligned(1), may_alias));

/* By blocks of vectors: each is loaded as a whole before it is stored. */
static void blocks_copy(char *restrict to, const char *restrict from, size_t len)
{
    for (; len >= UM_BYTES_BLOCK; len -= UM_BYTES_BLOCK, to += UM_BYTES_BLOCK, from += UM_BYTES_BLOCK) {
        const um_bytes_vector *in = (const void *)from;
        const um_bytes_vector a = in[0], b = in[1], c = in[2], d = in[3], e = in[4], f = in[5], g = in[6], h = in[7];
        um_bytes_vector *out = (void *)to;
        out[0] = a, out[1] = b, out[2] = c, out[3] = d, out[4] = e, out[5] = f, out[6] = g, out[7] = h;
    }
    memcpy(to, from, len);
}

void um_bytes_copy_large(void *restrict to, const void *restrict from, size_t len)
{
    const size_t behind = ((uintptr_t)to - (uintptr_t)from) % UM_BYTES_PAGE;
    if (__builtin_expect(behind > 0 && behind < UM_BYTES_BEHIND && len < UM_BYTES_HUGE, 0))
        blocks_copy(to, from, len);
    else
        memcpy(to, from, len);
}
