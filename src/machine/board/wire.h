/*
 * What the machine over a board puts into messages, rings and tables that peers read: docs/protocol.md section 10.
 *
 * Fields have a fixed width and are little endian, as the memory is; every value is checked before use. A DMA promises
 * no order of its bytes: a structure that may be read while it is written has a check word.
 */
#ifndef UM_MACHINE_BOARD_WIRE_H
#define UM_MACHINE_BOARD_WIRE_H

#include "machine/address.h"

#include <unimem/unimem.h>

#include <assert.h>

enum {
    UM_BOARD_LINE = 64,
    UM_BOARD_LINES = 8192,     /* lines of a ring; a record takes one, and as many as its body needs */
    UM_BOARD_BODY_MAX = 32768, /* bytes; the ring is followed by this many, for a body that runs over its end */
    UM_BOARD_FLIGHTS = 2,      /* DMAs that a lane may have under way */
    UM_BOARD_EMBEDS = 64,      /* embedded records that a lane may have unconsumed */
    UM_BOARD_RING = UM_BOARD_LINES * UM_BOARD_LINE + UM_BOARD_BODY_MAX,
    UM_BOARD_LANES_MAX = 256, /* incoming lanes of a port, by default */
    UM_BOARD_NUMBER_BITS = 16 /* low bits of the number of a lane or rx: its slot; above them a generation */
};
/* The machine's part of an address. First word: version and node in the upper half, context in the lower one. Second
 * word: generation, mailbox. */
enum { UM_BOARD_ADDR_FIRST = UM_ADDR_TAIL, UM_BOARD_ADDR_WORDS = 2, UM_BOARD_ADDR_VERSION = 0x8002 };

/* The first line of a record; the body follows in the next lines. Written by the sender; read after a message has told
 * of it. */
struct um_board_record_wire {
    uint32_t len;
    uint8_t op;
    uint8_t flags;
    uint16_t body; /* 1: len bytes of body */
    unsigned char header[UM_HEADER_MAX];
};
static_assert(sizeof(struct um_board_record_wire) == UM_BOARD_LINE, "a record begins with a line");

/* Bits 0-3 of the first 2 bytes of a message. Only UM_BOARD_RECORD and UM_BOARD_SEEK use the bits above. */
enum um_board_op {
    UM_BOARD_TAKEN = 0, /* to an rx; value: answers that the sender has taken */
    /* To a port; number: the sender's lane; token, value, more: node, context, generation and number of its mailbox. */
    UM_BOARD_JOIN = 1,
    UM_BOARD_DATA,   /* to an rx; value: records written since the lane began */
    UM_BOARD_CLOSE,  /* to an rx: no more records come */
    UM_BOARD_GRANT,  /* to a lane; value: number of the rx, 0: none is free; more: address of the ring */
    UM_BOARD_CREDIT, /* to a lane; value: records consumed; more: lines consumed; held 1: send no messages now */
    UM_BOARD_ANSWER, /* to a lane; value: status; more: token */
    UM_BOARD_ENDED,  /* to a lane: the receiver has ended it */
    UM_BOARD_ASK,    /* to an rx; value: records that the sender has and wants to write (below UM_BOARD_EAGER) */
    UM_BOARD_GO,     /* to a lane; value: records that may be written */
    UM_BOARD_RECORD, /* to an rx: an embedded record, struct um_board_embedded_wire */
    UM_BOARD_SEEK,   /* to a port: struct um_board_seek_wire */
    UM_BOARD_SHOWN,  /* to a seek; value: number of the view, UM_BOARD_NO_SPACE or UM_BOARD_NO_ROOM */
    UM_BOARD_UNSEEK, /* to a view: it is not wanted any more; more: address of the notice */
    UM_BOARD_GONE,   /* to a seek: nobody writes its notice any more */
    UM_BOARD_ARENAS, /* to an rx; value, more: version and address of the directory of the sender's dmable memory */
};
enum { UM_BOARD_NO_SPACE = 0, UM_BOARD_NO_ROOM = 0xffff };

struct um_board_message_wire {
    uint16_t op;
    uint16_t token;
    uint32_t number;
    uint32_t value;
    uint32_t held; /* UM_BOARD_CREDIT */
    uint64_t more;
};
static_assert(sizeof(struct um_board_message_wire) == UNIMEM_MESSAGE_SIZE, "one mailbox message");

/*
 * An embedded record: it has no body, its header has at most two words that are not zero, and its len is small, so all
 * of it travels in the message. kind: bits 0-3 UM_BOARD_RECORD, 4-10 which words are not zero, 11-15 len.
 */
struct um_board_embedded_wire {
    uint16_t kind;
    uint8_t op;
    uint8_t flags;
    uint32_t number;
    uint64_t word[2];
};
static_assert(sizeof(struct um_board_embedded_wire) == UNIMEM_MESSAGE_SIZE, "one mailbox message");
enum { UM_BOARD_KIND_MASK = 0xf, UM_BOARD_WORDS_SHIFT = 4, UM_BOARD_LEN_SHIFT = 11, UM_BOARD_LEN_MAX = 31 };

/* Asks the owner of a space to write a notice of what it exports into the line at address notice. */
struct um_board_seek_wire {
    /* Bits 0-3 UM_BOARD_SEEK, 4-15 the number of the seek: index of the notice in its area of UM_BOARD_NOTICES. */
    uint16_t kind;
    uint16_t node; /* this and the next three: the sender's mailbox */
    uint32_t context;
    uint32_t mailbox;
    uint32_t generation;
    uint64_t notice;
};
static_assert(sizeof(struct um_board_seek_wire) == UNIMEM_MESSAGE_SIZE, "one mailbox message");

/* Lies in the dmable memory of the peer that seeks. Written by the owner of the space, by DMA. All zero: not written
 * yet. */
struct um_board_notice_wire {
    uint64_t changes; /* another number after each change of the table, or of what peers may reach */
    uint64_t table;   /* address of the table; 0: peers reach nothing by DMA */
    uint64_t buckets; /* number of buckets of the table; a power of two */
    uint64_t directory, version;
    uint64_t zero[2];
    uint64_t check; /* um_board_check() of the words before */
};
static_assert(sizeof(struct um_board_notice_wire) == UM_BOARD_LINE, "a notice is a line");

/* A region, in the bucket of its key. Written by the owner; peers read it by DMA. */
struct um_board_entry_wire {
    uint64_t key, base, len, origin;
    uint64_t access; /* enum um_access */
    uint64_t zero[2];
    uint64_t check; /* um_board_check() of the words before; any other value: the entry is empty, or is being written */
};
static_assert(sizeof(struct um_board_entry_wire) == UM_BOARD_LINE, "an entry is a line");
enum {
    UM_BOARD_NOTICES = 4096,
    UM_BOARD_BUCKET = 8, /* entries of a bucket */
    UM_BOARD_BUCKETS_MAX = 1 << 15,
    UM_BOARD_NOTICE_AREA = UM_BOARD_NOTICES * UM_BOARD_LINE,
    UM_BOARD_BUCKET_BYTES = UM_BOARD_BUCKET * UM_BOARD_LINE
};

/* A piece of dmable memory that peers may register, in the directory of its owner. */
struct um_board_arena_wire {
    uint64_t base, len, zero;
    uint64_t check; /* um_board_check() of the words before; any other value: the entry is empty, or is being written */
};
static_assert(sizeof(struct um_board_arena_wire) == 32, "docs/protocol.md section 10");
enum { UM_BOARD_ARENAS_MAX = 256, UM_BOARD_DIRECTORY = UM_BOARD_ARENAS_MAX * 32 };

/* Returns the check of a number of words; never 0. Bytes that arrive in any order have all arrived when it is right. */
static inline uint64_t um_board_check(const void *memory, unsigned words)
{
    uint64_t hash = UINT64_C(0x9e3779b97f4a7c15), word;
    for (unsigned i = 0; i < words; i++) {
        __builtin_memcpy(&word, (const char *)memory + (size_t)i * 8, 8);
        hash = (hash ^ word) * UINT64_C(0xff51afd7ed558ccd);
        hash ^= hash >> 31;
    }
    return hash | 1;
}

static inline uint64_t um_board_bucket_of(uint64_t key, uint64_t buckets)
{
    return key * UINT64_C(0x9e3779b97f4a7c15) >> 20 & (buckets - 1);
}

#endif
