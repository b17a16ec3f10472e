/* See bytes.h. */
#include "base/bytes.h"

#if UM_BYTES_NONTEMPORAL
#include <emmintrin.h>
#endif

enum { UM_BYTES_BLOCK = 128, UM_BYTES_HUGE = 1 << 20, UM_BYTES_LINE = 64 };

typedef uint64_t um_bytes_vector __attribute__((vector_size(32), aligned(1), may_alias));

/* Copies blocks of vectors; loads each block as a whole before it stores the block. */
static inline __attribute__((always_inline)) void blocks_copy(char *restrict to, const char *restrict from, size_t len)
{
    for (; len >= UM_BYTES_BLOCK; len -= UM_BYTES_BLOCK, to += UM_BYTES_BLOCK, from += UM_BYTES_BLOCK) {
        const um_bytes_vector *in = (const void *)from;
        const um_bytes_vector a = in[0], b = in[1], c = in[2], d = in[3];
        um_bytes_vector *out = (void *)to;
        out[0] = a, out[1] = b, out[2] = c, out[3] = d;
    }
    memcpy(to, from, len);
}

/* With the vectors that every processor has: two for each of these. */
static void blocks_copy_any(char *restrict to, const char *restrict from, size_t len)
{
    blocks_copy(to, from, len);
}

#if defined(__x86_64__)
/* Up to a third faster. */
__attribute__((target("avx2"))) static void blocks_copy_avx2(char *restrict to, const char *restrict from, size_t len)
{
    blocks_copy(to, from, len);
}
#endif

static void just_behind_copy(char *restrict to, const char *restrict from, size_t len)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        blocks_copy_avx2(to, from, len);
        return;
    }
#endif
    blocks_copy_any(to, from, len);
}

void um_bytes_copy_large(void *restrict to, const void *restrict from, size_t len)
{
    if (__builtin_expect(um_bytes_are_just_behind((uintptr_t)to, (uintptr_t)from) && len < UM_BYTES_HUGE, 0))
        just_behind_copy(to, from, len);
    else
        memcpy(to, from, len);
}

void um_bytes_copy_nontemporal(void *restrict to, const void *restrict from, size_t len)
{
#if UM_BYTES_NONTEMPORAL
    char *out = to;
    const char *in = from;
    const size_t skew = -(uintptr_t)out % UM_BYTES_LINE, first = skew < len ? skew : len;
    memcpy(out, in, first);
    for (out += first, in += first, len -= first; len >= UM_BYTES_LINE; len -= UM_BYTES_LINE) {
        const __m128i *line = (const void *)in;
        const __m128i a = _mm_loadu_si128(line), b = _mm_loadu_si128(line + 1), c = _mm_loadu_si128(line + 2),
                      d = _mm_loadu_si128(line + 3);
        __m128i *to_line = (void *)out;
        _mm_stream_si128(to_line, a);
        _mm_stream_si128(to_line + 1, b);
        _mm_stream_si128(to_line + 2, c);
        _mm_stream_si128(to_line + 3, d);
        out += UM_BYTES_LINE, in += UM_BYTES_LINE;
    }
    memcpy(out, in, len);
    _mm_sfence();
#else
    um_bytes_copy(to, from, len);
#endif
}
