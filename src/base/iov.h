/*
 * Cursor over a list of buffers, and copies between lists and flat memory.
 *
 * Owns nothing. A copy moves as many bytes as both sides have and says how many. Threading: any.
 */
#ifndef UM_BASE_IOV_H
#define UM_BASE_IOV_H

#include "base/bytes.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

enum { UM_IOV_LIMIT = 32 };

struct um_iov_cursor {
    const struct iovec *iov;
    size_t count;  /* entries left, including the current one */
    size_t offset; /* bytes of the current entry already passed */
};

static inline size_t um_iov_length(const struct iovec *iov, size_t count)
{
    size_t sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += iov[i].iov_len;
    return sum;
}

static inline struct um_iov_cursor um_iov_begin(const struct iovec *iov, size_t count)
{
    return (struct um_iov_cursor){.iov = iov, .count = count};
}

/* Describes up to max bytes from the cursor on in out[0..out_max); moves the cursor; returns the entries used. */
size_t um_iov_take(struct um_iov_cursor *cur, size_t max, struct iovec *out, size_t out_max);

/* Skips n bytes. */
void um_iov_skip(struct um_iov_cursor *cur, size_t n);

/* Copies one piece. Lists of small messages have short pieces: no call for 8 to 32 bytes. */
static inline void um_iov_copy(void *to, const void *from, size_t len)
{
    if (len - 8 <= 8) {
        uint64_t first, last;
        memcpy(&first, from, 8);
        memcpy(&last, (const char *)from + len - 8, 8);
        memcpy(to, &first, 8);
        memcpy((char *)to + len - 8, &last, 8);
    } else if (len - 16 <= 16) {
        unsigned __int128 first, last;
        memcpy(&first, from, 16);
        memcpy(&last, (const char *)from + len - 16, 16);
        memcpy(to, &first, 16);
        memcpy((char *)to + len - 16, &last, 16);
    } else if (len) {
        um_bytes_copy(to, from, len);
    }
}

/* Copies a few words without a call. The last word may overlap the word before. */
static inline void um_iov_copy_short(void *to, const void *from, size_t len)
{
    char *out = to;
    const char *in = from;
    size_t i = 0;
    if (__builtin_expect(len >= 8, 1)) {
        for (; i + 8 < len; i += 8)
            memcpy(out + i, in + i, 8);
        memcpy(out + len - 8, in + len - 8, 8);
    } else if (len >= 4) {
        memcpy(out, in, 4);
        memcpy(out + len - 4, in + len - 4, 4);
    } else {
        for (; i < len; i++)
            out[i] = in[i];
    }
}

/* Copies the list to flat memory, at most room bytes. */
void um_iov_flatten(const struct iovec *iov, size_t count, void *flat, size_t room);

/* Copies n bytes from flat memory to the list, which has as many. */
void um_iov_spread(const struct iovec *iov, const void *flat, size_t n);

/* Copies n bytes from the list to flat memory; returns the bytes copied (less than n when the list ends). */
size_t um_iov_gather(struct um_iov_cursor *cur, void *flat, size_t n);

/* The same with um_bytes_copy_nontemporal(). */
size_t um_iov_gather_nontemporal(struct um_iov_cursor *cur, void *flat, size_t n);

/* Copies n bytes from flat memory to the list; returns the bytes copied (less than n when the list ends). */
size_t um_iov_scatter_list(struct um_iov_cursor *cur, const void *flat, size_t n);
static inline size_t um_iov_scatter(struct um_iov_cursor *cur, const void *flat, size_t n)
{
    /* n is 0, and the buffer may be NULL; or n is more than the current buffer has */
    if (__builtin_expect(n == 0 || !cur->count || n > cur->iov->iov_len - cur->offset, 0))
        return um_iov_scatter_list(cur, flat, n);
    um_bytes_copy((char *)cur->iov->iov_base + cur->offset, flat, n);
    cur->offset += n;
    return n;
}

#endif
