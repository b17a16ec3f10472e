/* Moves bytes as an emulated engine does: the last piece first, because the API promises no order within a DMA. */
#ifndef UNIMEM_EMU_COPY_H
#define UNIMEM_EMU_COPY_H

#include <stddef.h>
#include <string.h>

enum { EMU_COPY_PIECE = 512 };

static inline void emu_copy_backwards(unsigned char *to, const unsigned char *from, size_t len)
{
    while (len > 0) {
        size_t piece = len % EMU_COPY_PIECE ? len % EMU_COPY_PIECE : EMU_COPY_PIECE;
        len -= piece;
        memmove(to + len, from + len, piece);
    }
}

#endif
