/* The functions of base/iov.h that walk a list. */
#include "base/iov.h"

#include <stdbool.h>

/* Returns the contiguous piece at the cursor, at most max bytes; NULL: the end of the list. */
static void *cursor_piece(struct um_iov_cursor *cur, size_t max, size_t *len)
{
    while (cur->count && cur->offset == cur->iov->iov_len) {
        cur->iov++;
        cur->count--;
        cur->offset = 0;
    }
    if (!cur->count)
        return NULL;
    size_t left = cur->iov->iov_len - cur->offset;
    *len = left < max ? left : max;
    return (char *)cur->iov->iov_base + cur->offset;
}

size_t um_iov_take(struct um_iov_cursor *cur, size_t max, struct iovec *out, size_t out_max)
{
    size_t used = 0;
    while (used < out_max && max) {
        size_t len;
        void *piece = cursor_piece(cur, max, &len);
        if (!piece)
            break;
        out[used++] = (struct iovec){.iov_base = piece, .iov_len = len};
        cur->offset += len;
        max -= len;
    }
    return used;
}

void um_iov_skip(struct um_iov_cursor *cur, size_t n)
{
    size_t len;
    while (n && cursor_piece(cur, n, &len)) {
        cur->offset += len;
        n -= len;
    }
}

typedef void iov_copy(void *restrict to, const void *restrict from, size_t len);

/* Copies between the list and flat memory. copy and gathers are constants at compile time. */
static inline __attribute__((always_inline)) size_t iov_move(struct um_iov_cursor *cur, unsigned char *flat, size_t n,
                                                             iov_copy *copy, const bool gathers)
{
    const struct iovec *iov = cur->iov, *const end = iov + cur->count;
    size_t offset = cur->offset, left = n;
    while (left > 0 && iov < end) {
        const size_t room = iov->iov_len - offset, len = room < left ? room : left;
        unsigned char *piece = (unsigned char *)iov->iov_base + offset;
        copy(gathers ? flat : piece, gathers ? piece : flat, len);
        flat += len;
        left -= len;
        offset += len;
        if (len < room)
            break;
        offset = 0;
        iov++;
    }
    *cur = (struct um_iov_cursor){.iov = iov, .count = (size_t)(end - iov), .offset = offset};
    return n - left;
}

size_t um_iov_gather(struct um_iov_cursor *cur, void *flat, size_t n)
{
    return iov_move(cur, flat, n, um_iov_copy, true);
}

/* An entry of length 0 may have the address NULL. */
static inline void copy_nontemporal(void *restrict to, const void *restrict from, size_t len)
{
    if (len)
        um_bytes_copy_nontemporal(to, from, len);
}

size_t um_iov_gather_nontemporal(struct um_iov_cursor *cur, void *flat, size_t n)
{
    return iov_move(cur, flat, n, copy_nontemporal, true);
}

size_t um_iov_scatter_list(struct um_iov_cursor *cur, const void *flat, size_t n)
{
    return iov_move(cur, (unsigned char *)(uintptr_t)flat, n, um_iov_copy, false);
}

void um_iov_flatten(const struct iovec *iov, size_t count, void *flat, size_t room)
{
    unsigned char *to = flat;
    for (const struct iovec *const end = iov + count; iov < end; iov++) {
        const size_t n = iov->iov_len < room ? iov->iov_len : room;
        um_iov_copy(to, iov->iov_base, n);
        to += n;
        room -= n;
    }
}

void um_iov_spread(const struct iovec *iov, const void *flat, size_t n)
{
    const unsigned char *from = flat;
    for (; n > 0; iov++) {
        const size_t len = iov->iov_len < n ? iov->iov_len : n;
        um_iov_copy(iov->iov_base, from, len);
        from += len;
        n -= len;
    }
}
