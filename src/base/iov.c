/* Walks of base/iov.h. */
#include "base/iov.h"

/* The contiguous piece at the cursor, at most max bytes; NULL at the end of the list. */
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

size_t um_iov_gather(struct um_iov_cursor *cur, void *flat, size_t n)
{
    size_t done = 0;
    while (done < n) {
        size_t len;
        void *piece = cursor_piece(cur, n - done, &len);
        if (!piece)
            break;
        memcpy((char *)flat + done, piece, len);
        cur->offset += len;
        done += len;
    }
    return done;
}

size_t um_iov_scatter_list(struct um_iov_cursor *cur, const void *flat, size_t n)
{
    size_t done = 0;
    while (done < n) {
        size_t len;
        void *piece = cursor_piece(cur, n - done, &len);
        if (!piece)
            break;
        memcpy(piece, (const char *)flat + done, len);
        cur->offset += len;
        done += len;
    }
    return done;
}
