/*
 * What the processes of one emulated board share: its memory, and the messages to its server.
 *
 * The server (server.c) makes the board's memory. It alone opens and ends contexts, mailboxes and areas; it keeps
 * tables of its own and writes here what the other processes must see. All processes read and write under the lock that
 * is named. An area is one allocation of dmable memory, a memfd of its own.
 */
#ifndef UNIMEM_EMU_LAYOUT_H
#define UNIMEM_EMU_LAYOUT_H

#include "emu/lock.h"
#include "emu/params.h"
#include "unimem/unimem.h"

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#define EMU_MAGIC UINT64_C(0x31647261426d6e55) /* "UnmBard1" */

enum {
    EMU_VERSION = 3,
    EMU_NODES = 64,
    EMU_CONTEXTS = 1024, /* the number of a context: its slot in the lower 10 bits, a generation above */
    EMU_CONTEXT_BITS = 10,
    EMU_MAILBOXES = 1024,
    EMU_AREAS = 16384,
};

/* ---- the board's memory ---- */

struct emu_message_shm {
    uint64_t arrival; /* when the receiver may see it; emu/timing.h */
    uint32_t sender;  /* its context; of messages that arrive at the same time, that of the lowest slot comes first */
    uint32_t zero;
    unsigned char bytes[UNIMEM_MESSAGE_SIZE];
};
static_assert(sizeof(struct emu_message_shm) == 40, "messages follow each other");

/* All of it is under its lock; the server opens and ends it. Full: tail - head == depth. */
struct emu_mailbox_shm {
    struct emu_lock_shm lock;
    uint32_t generation; /* 0: closed */
    uint32_t context;
    uint32_t node;
    uint32_t armed; /* the receiver wants a datagram with the next message */
    uint64_t head;  /* messages taken; written by the receiver */
    uint64_t tail;  /* messages put in; senders write it after the message */
};

/* The hardware of a node: the times at which it is free again. All under its lock. */
struct emu_node_shm {
    struct emu_lock_shm lock;
    uint64_t engine_free;
    uint64_t mailbox_free;
};

/*
 * A context in virtual time, emu/clock.h. Atomic words. The server resets them when a context begins, and sets `word`
 * to 0 when it ends. Contexts that wait for this one write `word`, too; its process writes the rest.
 */
struct emu_time_shm {
    _Alignas(64) uint64_t word; /* its clock, and in the upper 2 bits one of the states */
    uint64_t beat;              /* incremented by every call */
    uint64_t seen;              /* the time at which it noticed others last */
    uint64_t process;           /* never changes */
    uint64_t thread;            /* the thread that called last: a number within the process */
};
static_assert(sizeof(struct emu_time_shm) == 64, "one writer a line");
#define EMU_TIME_MASK    (~UINT64_C(0) >> 2)
#define EMU_TIME_PRESENT (UINT64_C(1) << 62) /* other contexts wait for it */
#define EMU_TIME_AWAY    (UINT64_C(2) << 62) /* they do not: it has made no call yet, sleeps, or was given up */

struct emu_board_shm {
    uint64_t magic;
    uint64_t version;
    uint64_t size; /* of all of it */
    uint64_t tag;  /* random: names the interrupts of this board's mailboxes */
    struct emu_params params;
    struct emu_lock_shm tables;           /* lock of the three arrays below, which the server writes */
    uint32_t contexts[EMU_CONTEXTS];      /* number of the context that lives in this slot, or 0 */
    uint32_t context_nodes[EMU_CONTEXTS]; /* node of the context in this slot */
    uint32_t areas[EMU_AREAS];            /* generation of the area in this slot, or 0 */
    uint64_t contexts_end;                /* no slot from here on was ever used; atomic */
    uint64_t epoch;    /* incremented when a context joins or comes back, or changes its thread; atomic */
    uint64_t given_up; /* how often a context was given up; atomic */
    struct emu_time_shm times[EMU_CONTEXTS];
    struct emu_node_shm nodes[EMU_NODES];
    struct emu_mailbox_shm mailboxes[EMU_MAILBOXES];
    struct emu_message_shm messages[]; /* params.mailbox_depth for each mailbox */
};

/* Returns the slot of a context. */
static inline uint32_t emu_slot(uint32_t context)
{
    return context & (EMU_CONTEXTS - 1);
}

static inline size_t emu_board_size(const struct emu_params *params)
{
    return sizeof(struct emu_board_shm) + EMU_MAILBOXES * params->mailbox_depth * sizeof(struct emu_message_shm);
}

static inline struct emu_message_shm *emu_message_at(struct emu_board_shm *shm, uint32_t mailbox, uint64_t count)
{
    uint64_t depth = shm->params.mailbox_depth;
    return &shm->messages[mailbox * depth + count % depth];
}

/* ---- what is said to the server: one packet each way ---- */

enum emu_op {
    EMU_OP_HELLO = 1,     /* node; -> first: context, second: node; the board's memory */
    EMU_OP_ALLOC,         /* address, len -> first: slot, second: generation; the area's memory */
    EMU_OP_FREE,          /* first: slot, second: generation */
    EMU_OP_MAILBOX_OPEN,  /* -> first: number, second: generation */
    EMU_OP_MAILBOX_CLOSE, /* first: number, second: generation */
    EMU_OP_FIND, /* node, context, address, len -> first, second: area; offset in it; local engine: the area's memory */
    EMU_OP_WRITE, /* server's engine: copies len bytes from address to the area (first, second) at offset */
    EMU_OP_READ,  /* server's engine: copies in the other direction */
    EMU_OP_END,   /* the context ends; the connection is closed after the reply */
};

struct emu_request_wire {
    uint32_t op;
    uint32_t node;
    uint32_t context;
    uint32_t first;
    uint32_t second;
    uint32_t zero;
    uint64_t address; /* of the caller's or another's memory */
    uint64_t offset;
    uint64_t len;
};
static_assert(sizeof(struct emu_request_wire) == 48, "no hole");

/* With a descriptor, where the operation says so. */
struct emu_reply_wire {
    int32_t status; /* 0 or a negative errno */
    uint32_t first;
    uint32_t second;
    uint32_t zero;
    uint64_t offset;
};
static_assert(sizeof(struct emu_reply_wire) == 24, "no hole");

/* ---- names: in the abstract namespace of unix(7), which has no files ---- */

/* Sets the address at which the server of a board listens. Returns its length. */
socklen_t emu_server_address(struct sockaddr_un *address_p, const char *board);
/* Sets the address to which the interrupts of a mailbox are sent. Returns its length. */
socklen_t emu_interrupt_address(struct sockaddr_un *address_p, uint64_t tag, uint32_t mailbox, uint32_t generation);

#endif
