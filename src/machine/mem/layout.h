/*
 * What lies in shared memory: the port, its lanes, their records. Normative text: docs/protocol.md sections 3 to 5.
 *
 * Fixed-width integers and offsets only. Each field says who writes it: "receiver" is the port's process,
 * "sender" the process that claimed the lane. A word on the data path has one writer, and so has its line, because
 * memory that is not coherent moves by lines (um_mem_publish, um_mem_observe). Words that several processes write, by
 * read-modify-write, stay coherent and have lines of their own: struct um_mem_common_shm, the first line of a lane, and
 * all of a space. The doors of a port (gate.h) are used on coherent memory only.
 */
#ifndef UM_MACHINE_MEM_LAYOUT_H
#define UM_MACHINE_MEM_LAYOUT_H

#include "machine/address.h"

#include <assert.h>
#include <stdint.h>

#define UM_PORT_MAGIC  0x31306d656d696e75u /* "unimem01", little endian */
#define UM_SPACE_MAGIC 0x3130656361707375u /* "uspace01", little endian */
#define UM_NO_HANDLE   UINT32_MAX
#define UM_JOIN_HANDLE (UINT32_MAX - 1) /* memory without a handle: reached only by peers that map it already */

enum {
    UM_LINE = 64,
    UM_LANES_LIMIT = 4096, /* 64 words of 64 bell bits */
    UM_LANES_DEFAULT = 4096,
    UM_PAGE = 4096,
};

/* The sizes of a lane's rings. All powers of two; a byte ring holds at least four of its largest bodies. */
enum {
    UM_SMALL_RECORDS = 64,
    UM_SMALL_BYTES = 4096,
    UM_SMALL_BODY = UM_SMALL_BYTES / 4,
    UM_BIG_RECORDS = 512,
    UM_BIG_BYTES = 131072,
    UM_BIG_BODY = UM_BIG_BYTES / 8,
    UM_WIDE_BYTES = 2097152,
    UM_FRONT_PUBLISH = 65536, /* bytes consumed, after which the credit is published, while a front is used */
    UM_WIDE_RINGS = 64,       /* of a port, for all its lanes */
    UM_CELL_BYTES = 1048576,  /* of the cell behind a wide ring */
    UM_CELL_OFFSET = 256,     /* bytes between them */
    UM_WIDE_SPACE = UM_WIDE_BYTES + UM_CELL_BYTES + UM_PAGE, /* of a wide ring and its cell */
    UM_CELL_BLOCKS = 8,
    UM_BLOCK_BYTES = UM_CELL_BYTES / UM_CELL_BLOCKS,
    UM_LONG_BODY = 65536,        /* in a wide ring */
    UM_BODY_ALIGN = 2 * UM_LINE, /* alignment of bodies: processors fetch lines in such pairs */
};

/* Flags of a record with a body. */
enum {
    UM_FLAG_TIMED = 0x20, /* the sender has timed the copy into the record; the receiver times the copy out of it */
    UM_FLAG_KIND = 0x10,  /* in a timed record: its body was written with non-temporal stores, or into the front of a
                           * wide ring (stores.h) */
    UM_FLAG_FRONT = 0x10, /* in another record with its body in a ring: it lies at the begin of the ring */
    UM_FLAG_PASS = 0x10,  /* in a record with its body in a cell: the block is the receiver's after that */
};

/* The len of a record whose body lies in a cell: UM_LEN_CELL, which cell, and the body's length less 1. The record's op
 * names the block: UM_OP_UPPER_SHIFT. With UM_OP_WORDS in op the length is one of words, not of bytes. The length of a
 * body in a ring may have more bits than len: op has the upper ones in the place of the block. */
enum {
    UM_OP_UPPER_SHIFT = 5,
    UM_OP_MASK = (1 << UM_OP_UPPER_SHIFT) - 1,
    UM_OP_WORDS = UM_OPCODE_BODY_MAX + 1,
    UM_CELL_WORD = 8, /* bytes */
    UM_LEN_CELL = 0x8000,
    UM_LEN_OTHER = 0x4000, /* the cell of the lane in the other direction */
    UM_LEN_MASK = 0x3fff,
    UM_LEN_BITS = 15, /* of the length of a body in a ring */
};

/* One record: one cache line. word: sequence (bits 0-31), op (32-39), flags (40-47), len (48-63). */
struct um_mem_record_shm {
    uint64_t word; /* sender: written last (release); the receiver reads it first */
    uint64_t header[7];
};
static_assert(sizeof(struct um_mem_record_shm) == UM_LINE, "a record is one cache line");

/* Opcodes of the machine, never seen outside mem/. GROW: the next record lies in the lane's big rings. WIDEN: later
 * bodies lie in a wide ring, whose number is the record's len. */
enum { UM_OPCODE_GROW = 0xf8, UM_OPCODE_WIDEN = 0xf9 };

/* Offsets of the rings within one lane's area. */
enum {
    UM_AREA_SMALL_RECORDS = 0,
    UM_AREA_SMALL_BYTES = UM_AREA_SMALL_RECORDS + UM_SMALL_RECORDS * UM_LINE,
    UM_AREA_BIG_RECORDS = UM_AREA_SMALL_BYTES + UM_SMALL_BYTES,
    UM_AREA_BIG_BYTES = UM_AREA_BIG_RECORDS + UM_BIG_RECORDS * UM_LINE,
    UM_AREA_SIZE = UM_AREA_BIG_BYTES + UM_BIG_BYTES,
};
static_assert((int)UM_LONG_BODY == (int)UM_PART_MAX && UM_LONG_BODY >> UM_LEN_BITS < 256 >> UM_OP_UPPER_SHIFT,
              "docs/protocol.md section 5");
static_assert(UM_AREA_SIZE % UM_PAGE == 0, "areas are mapped one by one");
static_assert(UM_AREA_SMALL_BYTES % UM_BODY_ALIGN == 0 && UM_AREA_BIG_BYTES % UM_BODY_ALIGN == 0 &&
                  UM_SMALL_BYTES % UM_BODY_ALIGN == 0 && UM_BIG_BYTES % UM_BODY_ALIGN == 0 &&
                  UM_WIDE_BYTES % UM_BODY_ALIGN == 0,
              "bodies lie in pairs of lines");
static_assert(UM_WIDE_SPACE == 3149824 && UM_WIDE_BYTES + UM_CELL_OFFSET == 2097408, "docs/protocol.md section 5");
static_assert(UM_WIDE_BYTES + 2 * UM_CELL_BYTES + UM_ROOM_MAX == 4718592, "docs/protocol.md section 4.6");
static_assert(UM_AREA_BIG_RECORDS <= 8192, "a lane starts with at most 8 KiB");
static_assert(UM_AREA_BIG_RECORDS % UM_PAGE == 0, "the grown part is returned by page");

/* state: incarnation << 8 | flags. Zero memory is a cold, open lane of incarnation 0. */
enum {
    UM_LANE_HOT = 1,       /* the receiver polls it; else the sender rings the bell after a commit */
    UM_LANE_CLOSED = 2,    /* the port is gone */
    UM_LANE_REFUSED = 4,   /* the receiver ended this lane */
    UM_LANE_HELD = 8,      /* the receiver wants no messages for now */
    UM_LANE_ANNOUNCE = 16, /* the receiver wants no messages of several records */
    UM_LANE_LIVE = UM_LANE_HOT | UM_LANE_HELD | UM_LANE_ANNOUNCE, /* flags of a lane that goes on */
    UM_LANE_INC_SHIFT = 8,
};

/* An answer. */
struct um_mem_answer_shm {
    int32_t status;
    uint32_t token;
};
static_assert(sizeof(struct um_mem_answer_shm) == 8, "docs/protocol.md section 7");

/* Control block of one lane. */
struct um_mem_lane_shm {
    /* line 0: who claimed the lane (um_mem_lane_sender) */
    uint64_t sender; /* sender, by compare and swap from 0: pid << 32 | 1; reset to 0 by the receiver */
    uint64_t reserved0[7];
    /* line 1: the sender's words */
    uint32_t closing;    /* sender: 1 after its last commit (release) */
    uint32_t want_wake;  /* sender: 1 while it sleeps and awaits answers or credit */
    uint32_t want_fence; /* sender: 1 when it cannot use membarrier, so that the receiver must fence */
    uint32_t taken;      /* sender: answers taken, stored after each quarter of the places, modulo 2^32 (release) */
    uint32_t ready;      /* sender: incarnation + 1 once origin is valid (release) */
    uint32_t reserved1;
    uint64_t origin[UM_ADDR_LOCAL_WORDS]; /* sender: its own port */
    uint64_t reserved4[2];
    /* line 2: the receiver's words */
    uint64_t credit;  /* receiver: records consumed (low half), body bytes consumed (high half); both modulo 2^32 */
    uint32_t answers; /* receiver: answers given, modulo 2^32 (release) */
    uint32_t state;   /* receiver */
    uint64_t loads;   /* receiver: the last result of um_mem_loads_add(); 0: not known */
    uint64_t reserved2[13];
    /* lines 4 to 131: answer k lies at k % UM_ANSWERS */
    struct um_mem_answer_shm answer[UM_ANSWERS]; /* receiver */
    struct um_progress_words progress[UM_PROGRESS_WORDS];
};
static_assert(sizeof(struct um_mem_lane_shm) == 8960, "docs/protocol.md section 4");
static_assert(offsetof(struct um_mem_lane_shm, closing) == 64, "the sender's words have their own line");
static_assert(offsetof(struct um_mem_lane_shm, origin) == 88, "docs/protocol.md section 4");
static_assert(offsetof(struct um_mem_lane_shm, credit) == 128, "the receiver's words have their own line");
static_assert(offsetof(struct um_mem_lane_shm, loads) == 144, "docs/protocol.md section 4");
static_assert(offsetof(struct um_mem_lane_shm, answer) == 256, "answers begin on a line");
static_assert(offsetof(struct um_mem_lane_shm, progress) == 8448, "progress words begin on a line");
static_assert(UM_PAGE % UM_LINE == 0 && sizeof(struct um_mem_lane_shm) % UM_LINE == 0, "lines of one lane are its own");

enum { UM_PORT_OPEN = 1, UM_PORT_CLOSED = 2 };

/*
 * The words of a port that stay coherent: those that several processes write by read-modify-write, and those that
 * windows look at. Reached by um_mem_port.common and um_mem_link.common only.
 */
struct um_mem_common_shm {
    uint64_t bell_summary; /* bit w: bell[w] may have bits set; senders set it (or), the receiver swaps with 0 */
    uint64_t reserved0[7];
    uint64_t bell[64]; /* bit l of word w: lane 64 w + l has news */
    /* Set by the lane's sender, cleared by it or by the receiver when the lane is free again */
    uint64_t grown[64]; /* bit l of word w: lane 64 w + l has grown, or wants to (read-modify-write) */
    /* Which lane has a wide ring: its number + 1; 0: none. Set by the lane's sender (compare and swap), reset by it or
     * by the receiver when the lane is free again */
    uint32_t wide[UM_WIDE_RINGS];
    uint32_t sleeping; /* receiver: 0, or odd, new for each sleep; a peer that woke it: +1 (compare and swap) */
    uint32_t reserved1[15];
    uint32_t counters; /* receiver: the counters of accesses through this port, enum um_counters */
    uint32_t reserved2[15];
};
static_assert(sizeof(struct um_mem_common_shm) == 1472, "docs/protocol.md section 3");
static_assert(offsetof(struct um_mem_common_shm, bell) == 64, "own lines");
static_assert(offsetof(struct um_mem_common_shm, grown) == 576, "own lines");
static_assert(offsetof(struct um_mem_common_shm, wide) == 1088, "own lines");
static_assert(offsetof(struct um_mem_common_shm, sleeping) == 1344, "own line");
static_assert(offsetof(struct um_mem_common_shm, counters) == 1408, "own line");

/* The peers that are writing into the memory of the port's process by system calls: gate.h. */
struct um_mem_door_shm {
    uint64_t writer; /* any: a writer, 0 → its word → 0 (compare and swap); UM_DOOR_OWNERS: the owner moves pages */
    uint64_t reserved[7];
};
enum { UM_DOORS = 32 };
#define UM_DOOR_OWNERS (UINT64_C(1) << 63)
struct um_mem_doors_shm {
    struct um_mem_door_shm door[UM_DOORS];
};
static_assert(sizeof(struct um_mem_doors_shm) == 2048, "docs/protocol.md section 9");

/* The first page of a port's memory; the control blocks follow at lane_offset, the areas at area_offset, the wide rings
 * behind them. */
struct um_mem_port_shm {
    /* line 0: constant once state is UM_PORT_OPEN */
    uint64_t magic;
    uint32_t version;
    uint32_t lanes; /* number of control blocks and of areas */
    uint64_t lane_offset;
    uint64_t area_offset;
    uint64_t area_stride;
    uint64_t nonce; /* as in the address */
    uint32_t want_fence;
    uint32_t space;       /* the space's memory, as the mapper names it; UM_NO_HANDLE: none */
    uint64_t space_nonce; /* the nonce in that space */
    /* line 1 */
    uint32_t state; /* receiver */
    uint32_t reserved1[15];
    /* line 2: constant as line 0 */
    uint64_t grown_max; /* receiver: lanes that may be grown at a time */
    uint32_t wide_max;  /* receiver: the wide rings below this number may be taken */
    uint32_t wake;      /* receiver: its wake-up pipe, as the mapper names it */
    uint64_t nonce_at;  /* receiver: where its process holds the nonce (mapper.h); 0: nowhere */
    uint64_t reserved3[5];
    /* lines 3 to 25 */
    struct um_mem_common_shm common;
    struct um_mem_doors_shm doors;
};
static_assert(sizeof(struct um_mem_port_shm) == 3712, "docs/protocol.md section 3");
static_assert(offsetof(struct um_mem_port_shm, state) == 64, "own line");
static_assert(offsetof(struct um_mem_port_shm, grown_max) == 128, "own line");
static_assert(offsetof(struct um_mem_port_shm, nonce_at) == 144, "docs/protocol.md section 3");
static_assert(offsetof(struct um_mem_port_shm, common) == 192, "own lines");
static_assert(offsetof(struct um_mem_port_shm, doors) == 1664, "own lines");

/* One exported region, or none. The owner writes all of it; changes is odd meanwhile, and another number after each
 * change. */
struct um_mem_region_shm {
    uint64_t changes;
    uint64_t meta; /* access (bits 0-31), level (32-39), use number (40-45), birth (46-61), DEFERRED, USED */
    uint64_t key;
    uint64_t base;
    uint64_t len;
    uint64_t origin;
    uint32_t counters; /* enum um_counters */
    uint32_t file;     /* level mapped: the memory that the region lies in, as the mapper names it */
    uint64_t offset;   /* of the byte at base in that memory */
};
static_assert(sizeof(struct um_mem_region_shm) == UM_LINE, "a region is one cache line");

#define UM_REGION_USED     (UINT64_C(1) << 63) /* there is a region */
#define UM_REGION_DEFERRED (UINT64_C(1) << 62) /* it becomes mapped when peers make enough use of it */
enum { UM_REGION_LEVEL_SHIFT = 32, UM_REGION_USE_SHIFT = 40, UM_REGION_BIRTH_SHIFT = 46, UM_USES = 64 };

/* A counter: an exception to the rule of one writer for a word, used only where an application counts accesses. */
struct um_mem_counter_shm {
    uint64_t value; /* any: fetch-and-add */
    uint64_t reserved[7];
};
static_assert(sizeof(struct um_mem_counter_shm) == UM_LINE, "a counter has a cache line to itself");

/* The first page of a space's memory; locks, counters and regions follow. */
struct um_mem_space_shm {
    uint64_t magic; /* constant once state is UM_PORT_OPEN */
    uint32_t version;
    uint32_t memory; /* owner: the memory that adopted pages lie in, as the mapper names it; UM_NO_HANDLE: none yet */
    uint64_t nonce;
    uint32_t state;   /* owner */
    uint32_t moving;  /* owner: odd while it moves pages, another number after each time */
    uint64_t changes; /* owner: another number after each change of an entry (release) */
    uint32_t asked;   /* any: fetch-and-add: the owner is to look at must and saved_ns; it sleeps on this (futex) */
    uint32_t reserved1;
    uint64_t must; /* any: fetch-and-or of bit n: a DEFERRED region with use number n must be mapped; owner clears it */
    uint64_t reserved2;
};
static_assert(sizeof(struct um_mem_space_shm) == UM_LINE, "docs/protocol.md section 9");

/* What peers report of DEFERRED regions, by use number. Like counters, an exception to the rule of one writer for a
 * word. */
struct um_mem_uses_shm {
    uint64_t saved_ns[UM_USES]; /* any: fetch-and-add of the time that an operation would have saved at level mapped */
};
enum { UM_USES_OFFSET = 512, UM_USE_STEP_SHIFT = 20 /* asked changes each time a sum passes a multiple of 2^this */ };
static_assert(sizeof(struct um_mem_uses_shm) == 512, "docs/protocol.md section 9");

/*
 * Regions lie in segments, each twice as large as the one before. A key has UM_SEGMENT_PROBE places in each segment:
 * the entry at the key's hash modulo the segment's size, and those after it, cyclically. Its region is in one of its
 * places.
 */
enum {
    UM_SEGMENTS = 12,
    UM_SEGMENT_FIRST = 64, /* entries of segment 0 */
    UM_SEGMENT_PROBE = 8,
    UM_REGIONS_MAX = UM_SEGMENT_FIRST * ((1 << UM_SEGMENTS) - 1),
    UM_LOCK_OFFSET = 4096,
    UM_COUNTER_OFFSET = 8192,
    UM_COUNTERS = 256,
    UM_REGION_OFFSET = UM_COUNTER_OFFSET + UM_COUNTERS * UM_LINE,
    UM_SPACE_SIZE = UM_REGION_OFFSET + UM_REGIONS_MAX * UM_LINE,
};
static_assert(UM_REGIONS_MAX >= 200000, "many registrations");

/* The first entry of a segment. */
static inline uint32_t um_mem_segment_begin(uint32_t segment)
{
    return ((uint32_t)UM_SEGMENT_FIRST << segment) - UM_SEGMENT_FIRST;
}

/* The i-th of the places that a key has in all segments together, i < UM_SEGMENTS * UM_SEGMENT_PROBE. */
static inline uint32_t um_mem_region_place(uint64_t key, uint32_t i)
{
    uint32_t segment = i / UM_SEGMENT_PROBE;
    uint32_t size = (uint32_t)UM_SEGMENT_FIRST << segment;
    uint32_t hash = (uint32_t)((key * 0x9e3779b97f4a7c15u) >> 32);
    return um_mem_segment_begin(segment) + ((hash + i % UM_SEGMENT_PROBE) & (size - 1));
}

/* Where the areas of a port begin: behind its first page and its control blocks. */
static inline uint64_t um_mem_port_area_offset(uint32_t lanes)
{
    uint64_t control = UM_PAGE + (uint64_t)lanes * sizeof(struct um_mem_lane_shm);
    return (control + UM_PAGE - 1) / UM_PAGE * UM_PAGE;
}

/* Where the area of a lane begins; with number `lanes`, where the wide rings begin. */
static inline uint64_t um_mem_port_lane_offset(uint32_t lanes, uint32_t number)
{
    return um_mem_port_area_offset(lanes) + (uint64_t)number * UM_AREA_SIZE;
}

static inline uint64_t um_mem_port_wide_offset(uint32_t lanes, uint32_t ring)
{
    return um_mem_port_lane_offset(lanes, lanes) + (uint64_t)ring * UM_WIDE_SPACE;
}

static inline uint64_t um_mem_port_memory_size(uint32_t lanes)
{
    return um_mem_port_wide_offset(lanes, UM_WIDE_RINGS);
}

#endif
