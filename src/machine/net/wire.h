/*
 * What the machine over another provider sends: docs/protocol.md section 13.
 *
 * Fixed-width fields, little endian. Every message is one FI_MSG of the inner provider, received into private memory of
 * this process; every value is checked before use.
 */
#ifndef UM_MACHINE_NET_WIRE_H
#define UM_MACHINE_NET_WIRE_H

#include "machine/address.h"

#include <assert.h>

enum {
    UM_NET_VERSION = 5,
    UM_NET_BODY_MAX = 256 << 10,
    UM_NET_WINDOW = 64,          /* records that a new lane may have unconsumed */
    UM_NET_WINDOW_MAX = 256,     /* and a lane that is used, at most */
    UM_NET_KEPT_MAX = 768 << 10, /* bytes; a lane with so many unconsumed takes no claim */
    UM_NET_LANES_MAX = 4096,     /* incoming lanes of a port, by default */
    UM_NET_BATCH = 16,           /* answers in one message */
};

/* This machine's part of an address: all of the tail. */
enum { UM_NET_ADDR_FIRST = UM_ADDR_TAIL, UM_NET_ADDR_WORDS = 5, UM_NET_NAME_MAX = 32 };
struct um_net_addr_wire {
    uint8_t format; /* of the name: libfabric's FI_SOCKADDR_IN, ... */
    uint8_t len;    /* of the name */
    uint16_t inner; /* um_net_inner_hash(): of the version and the inner provider's name, to detect hosts that differ */
    uint32_t nonce; /* random, not 0: differs for a port opened later at the same place */
    unsigned char name[UM_NET_NAME_MAX]; /* the inner endpoint's name; zero behind its end */
};
static_assert(sizeof(struct um_net_addr_wire) == sizeof(uint64_t) * UM_NET_ADDR_WORDS, "docs/protocol.md section 13");

enum um_net_kind {
    UM_NET_RECORD = 1, /* to an rx: struct um_net_record_wire, body */
    UM_NET_JOIN,       /* to a port: struct um_net_join_wire; number: the port's nonce */
    UM_NET_GRANT,      /* to a lane: struct um_net_grant_wire; number: enum um_net_grant */
    UM_NET_CREDIT,     /* to a lane: number: records consumed, len: the lane's window, flags: UM_NET_HELD,
                          UM_NET_ANNOUNCE; op: a running number */
    UM_NET_ANSWERS,    /* to a lane: struct um_net_answers_wire; len: number of answers; number: answers before them */
    UM_NET_TAKEN,      /* to an rx: number: answers taken */
    UM_NET_CLOSE,      /* to an rx: number: records sent in all; no more come */
    UM_NET_BYE,        /* to a lane: all records have come, and the rx sends nothing more */
    UM_NET_ENDED,      /* to a lane: the receiver ended it; number: answers sent in all */
    UM_NET_PROBE,      /* to a lane or an rx: struct um_net_probe_wire */
    UM_NET_UNKNOWN,    /* to a lane or an rx: the object of its PROBE is not there; id, flags: as in the PROBE */
    UM_NET_BODIES,     /* to an rx: struct um_net_bodies_wire */
    UM_NET_KINDS
};

enum um_net_grant { UM_NET_GRANTED = 0, UM_NET_NONE_FREE = 1, UM_NET_NOT_HERE = 2 };

/* Every message begins with this head. slot and id: of the lane or rx that the message is for. A field without a
 * meaning for the kind is zero. */
struct um_net_head_wire {
    uint8_t version;
    uint8_t kind;
    uint8_t op;
    uint8_t flags; /* of a record: UM_FLAG_MACHINE: the rest of the message is its body, and len is 0 or UM_NET_SEAL */
    uint32_t slot;
    uint64_t id;
    uint32_t number; /* of a record: from 1 on */
    uint16_t len;
    uint16_t taken; /* of a record: answers that the sender has taken, modulo 2^16 */
};
static_assert(sizeof(struct um_net_head_wire) == 24, "docs/protocol.md section 13");

/*
 * A body that is sent out of the program's memory has a seal behind it (len is UM_NET_SEAL). The seal is sent last. A
 * right seal tells the receiver that the program had not got the memory back until then, and that the body is complete.
 */
enum { UM_NET_SEAL = sizeof(uint64_t) };
struct um_net_record_wire {
    struct um_net_head_wire head;
    unsigned char header[UM_HEADER_MAX];
};
static_assert(sizeof(struct um_net_record_wire) == 80, "docs/protocol.md section 13");
static inline uint64_t um_net_seal(const struct um_net_head_wire *head)
{
    return head->id ^ head->number;
}

struct um_net_join_wire {
    struct um_net_head_wire head;
    uint64_t id; /* of the lane */
    uint32_t slot;
    uint32_t zero;
    struct um_addr origin; /* the sender's address, of which only this machine's part is set */
};
static_assert(sizeof(struct um_net_join_wire) == 104, "docs/protocol.md section 13");

struct um_net_grant_wire {
    struct um_net_head_wire head;
    uint64_t id; /* of the rx */
    uint32_t slot;
    uint32_t window;
};
static_assert(sizeof(struct um_net_grant_wire) == 40, "docs/protocol.md section 13");

struct um_net_answers_wire {
    struct um_net_head_wire head;
    struct um_answer answer[UM_NET_BATCH];
};
static_assert(sizeof(struct um_net_answers_wire) == 24 + UM_NET_BATCH * 8, "docs/protocol.md section 13");

/*
 * flags of the head: UM_NET_OF_RX: from an rx to its lane; else from a lane to its rx. UM_NET_HELD: the lane is held.
 * UM_NET_CLOSED: the lane is closed, and `sent` is the number of CLOSE. UM_NET_ANNOUNCE: large bodies of messages shall
 * be announced. A PROBE from an rx is a CREDIT, too: op, len.
 */
enum { UM_NET_HELD = 1, UM_NET_OF_RX = 2, UM_NET_CLOSED = 4, UM_NET_ANNOUNCE = 8 };
struct um_net_probe_wire {
    struct um_net_head_wire head; /* number: what has come to the sender of the PROBE: records, answers */
    uint32_t slot;                /* of the sender of the PROBE */
    uint32_t taken;               /* of what has come: records consumed, answers taken */
    uint32_t sent;                /* what it has sent in all: answers, records */
    uint32_t zero;
    struct um_addr origin;
};
static_assert(sizeof(struct um_net_probe_wire) == 104, "docs/protocol.md section 13");

/* The name of an inner endpoint; zero behind its end. */
struct um_net_name_wire {
    uint8_t len;
    uint8_t zero[7];
    unsigned char name[UM_NET_NAME_MAX];
};
static_assert(sizeof(struct um_net_name_wire) == 40, "docs/protocol.md section 13");

/* The endpoint by which the sender shows memory from now on. */
struct um_net_bodies_wire {
    struct um_net_head_wire head;
    struct um_net_name_wire at;
};
static_assert(sizeof(struct um_net_bodies_wire) == 64, "docs/protocol.md section 13");

#endif
