/*
 * What the protocols put into records: opcodes and headers. Normative text: docs/protocol.md section 6.
 *
 * A header has UM_HEADER_MAX bytes. Fixed-width fields, little endian as the memory is; every value is checked before
 * use.
 */
#ifndef UM_PROTO_WIRE_H
#define UM_PROTO_WIRE_H

#include "machine/machine.h"

#include <assert.h>
#include <stdint.h>

enum um_proto_wire_op {
    UM_WIRE_EAGER = 1,        /* a message with its body */
    UM_WIRE_RTS = 2,          /* a message whose body waits at the sender */
    UM_WIRE_PUSH = 3,         /* a part of a body that was asked for (answer UM_STATUS_PUSH) */
    UM_WIRE_WRITE = 4,        /* RMA write with its body */
    UM_WIRE_WRITE_RTS = 5,    /* RMA write whose body waits at the initiator */
    UM_WIRE_READ = 6,         /* RMA read */
    UM_WIRE_RETURN = 7,       /* a part of what a READ reads; from the target */
    UM_WIRE_NOTIFY = 8,       /* an RMA write with data that the initiator has executed */
    UM_WIRE_ATOMIC = 9,       /* an atomic operation with its operands, or their first part */
    UM_WIRE_ATOMIC_MORE = 10, /* the next part of the operands */
    UM_WIRE_RESULT = 11,      /* what an atomic operation fetched, or a part of it; from the owner */
    UM_WIRE_INVITE = 12,      /* the receiver of a body copies it: the sender may copy from the end, too */
    UM_WIRE_FIRST = 13,       /* a message in segments, with the first one of its body */
    UM_WIRE_NEXT = 14,        /* the next segment */
    UM_WIRE_OFFER = 15,       /* what a READ reads can be taken by a transfer; from the target */
    UM_WIRE_TAKEN = 16,       /* the offer was taken, or cannot be; from the initiator */
};

/* Record flags. */
enum um_proto_wire_flag {
    UM_WIRE_TAGGED = 1,
    UM_WIRE_DATA = 2,  /* the data field is for the receiver's completion */
    UM_WIRE_FETCH = 4, /* UM_WIRE_ATOMIC: the initiator wants the old values */
};

/* Statuses of answers: 0 done, below 0 a negative errno, or: */
enum {
    UM_STATUS_DONE = 0,
    UM_STATUS_PUSH = 1,   /* the body shall come in records */
    UM_STATUS_PUSHED = 2, /* done; and bodies like this one may come in segments, unasked */
    UM_ERRNO_MAX = 4095
};

enum { UM_EAGER_INLINE = 48, UM_EAGER_INLINE_DATA = 40 }; /* bytes; without and with UM_WIRE_DATA */

enum { UM_WRITE_INLINE = 16, UM_ATOMIC_INLINE = 32, UM_RESULT_INLINE = 40 };

enum { UM_SEGMENTED_MAX = UM_ROOM_MAX }; /* bytes; longest message in segments */

/* UM_WIRE_EAGER. A short body lies in the header; the record's len tells how many bytes. */
struct um_proto_eager_wire {
    uint64_t tag;
    union {
        uint8_t body[UM_EAGER_INLINE];
        struct {
            uint8_t body_before_data[UM_EAGER_INLINE_DATA];
            uint64_t data;
        };
    };
};
static_assert(sizeof(struct um_proto_eager_wire) == UM_HEADER_MAX, "docs/protocol.md section 6.1");

/* UM_WIRE_FIRST. The record's body is the first segment. */
struct um_proto_first_wire {
    uint64_t tag;
    uint64_t data;
    uint32_t total; /* bytes, at most UM_SEGMENTED_MAX */
    uint32_t reserved;
};
static_assert(sizeof(struct um_proto_first_wire) == 24, "docs/protocol.md section 6.10");

/* UM_WIRE_NEXT. The record's body goes to offset. Segments come in order, without another record of the lane between
 * them. */
struct um_proto_next_wire {
    uint32_t offset;
    uint32_t reserved;
};
static_assert(sizeof(struct um_proto_next_wire) == 8, "docs/protocol.md section 6.10");

/* How the receiver of an announcement reaches the pieces of the body. */
enum um_proto_reach {
    UM_REACH_COPY = 0,   /* by transfers */
    UM_REACH_MAPPED = 1, /* it can map all of them (machine peer_memory()) */
    UM_REACH_SHOWN = 2,  /* by transfers of its one piece, which the machine shows (show()); addr is the key */
};

/* UM_WIRE_RTS. Pieces of the source: one in the header, or count of them as the record's body. */
struct um_proto_rts_wire {
    uint64_t tag;
    uint64_t data;
    uint64_t total; /* bytes */
    uint32_t token; /* unbounded */
    uint16_t count;
    uint16_t reach; /* enum um_proto_reach */
    struct um_piece piece;
};
static_assert(sizeof(struct um_proto_rts_wire) == 48, "docs/protocol.md section 6.2");

/* UM_WIRE_PUSH, UM_WIRE_RETURN. The record's body goes to offset. Parts come in order. */
struct um_proto_part_wire {
    uint64_t offset;
    uint32_t token;
    uint32_t reserved;
};
static_assert(sizeof(struct um_proto_part_wire) == 16, "docs/protocol.md section 6.3");

/* UM_WIRE_OFFER. */
struct um_proto_offer_wire {
    uint64_t key;   /* of the machine: show() */
    uint32_t token; /* of the READ */
    uint32_t reserved;
};
static_assert(sizeof(struct um_proto_offer_wire) == 16, "docs/protocol.md section 6.11");

/* UM_WIRE_TAKEN. The record's len is 0: taken; or 1: refused, the bytes shall come in records. */
struct um_proto_taken_wire {
    uint32_t token;
    uint32_t reserved;
};
static_assert(sizeof(struct um_proto_taken_wire) == 8, "docs/protocol.md section 6.11");

/*
 * UM_WIRE_INVITE. Pieces of the receive's buffer, as in UM_WIRE_RTS; they hold all of the body. Both sides claim parts
 * of 2^shift bytes by the progress words `words` of the lane in which the body was announced.
 */
struct um_proto_invite_wire {
    uint32_t token;
    uint16_t round; /* as in the progress words */
    uint8_t words;
    uint8_t shift;
    uint16_t count;
    uint16_t shareable; /* 1: the sender can map all pieces; 0: it writes them by a transfer */
    uint16_t reserved[2];
    struct um_piece piece;
};
static_assert(sizeof(struct um_proto_invite_wire) == 32, "docs/protocol.md section 6.9");

/* UM_WIRE_WRITE. A body of up to UM_WRITE_INLINE bytes lies in the header; the record's len tells how many. */
struct um_proto_write_wire {
    uint64_t key;
    uint64_t addr;
    uint64_t data;
    uint16_t token;
    uint16_t reserved[3];
    uint8_t body[UM_WRITE_INLINE];
};
static_assert(sizeof(struct um_proto_write_wire) == 48, "docs/protocol.md section 6.4");

/* UM_WIRE_NOTIFY. */
struct um_proto_notify_wire {
    uint64_t data;
    uint64_t len; /* bytes written */
};
static_assert(sizeof(struct um_proto_notify_wire) == 16, "docs/protocol.md section 6.6");

/* UM_WIRE_WRITE_RTS, UM_WIRE_READ (without pieces: what is read comes back in records, or is offered). Pieces of the
 * initiator's buffer: one in the header, or count of them as the body. */
struct um_proto_rma_wire {
    uint64_t key;
    uint64_t addr;
    uint64_t data; /* UM_WIRE_WRITE_RTS with UM_WIRE_DATA */
    uint64_t total;
    uint16_t token;
    uint16_t count;
    uint16_t reach; /* UM_REACH_COPY, UM_REACH_SHOWN */
    uint16_t reserved;
    struct um_piece piece;
};
static_assert(sizeof(struct um_proto_rma_wire) == UM_HEADER_MAX, "docs/protocol.md section 6.5");

/*
 * UM_WIRE_ATOMIC. Operands of as many elements as fit, then (compare and swap) as many values to compare with. Up to
 * UM_ATOMIC_INLINE bytes lie in the header, and the record's len tells how many; more are the record's body.
 */
struct um_proto_atomic_wire {
    uint64_t key;
    uint64_t addr;
    uint32_t count; /* elements in all */
    uint16_t token;
    uint8_t type; /* enum um_proto_atomic_type */
    uint8_t op;   /* enum um_proto_atomic_op */
    uint8_t body[UM_ATOMIC_INLINE];
};
static_assert(sizeof(struct um_proto_atomic_wire) == UM_HEADER_MAX, "docs/protocol.md section 6.7");

/* UM_WIRE_ATOMIC_MORE is a struct um_proto_part_wire; its offset counts bytes of the target. */

/* UM_WIRE_RESULT. Up to UM_RESULT_INLINE bytes lie in the header; the record's len tells how many. Parts come in order.
 */
struct um_proto_result_wire {
    uint64_t offset;
    uint16_t token;
    uint16_t reserved[3];
    uint8_t body[UM_RESULT_INLINE];
};
static_assert(sizeof(struct um_proto_result_wire) == UM_HEADER_MAX, "docs/protocol.md section 6.7");

#endif
