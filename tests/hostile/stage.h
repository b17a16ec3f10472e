/*
 * A victim (this process), an attacker and an honest peer (children): what the hostile tests share.
 *
 * The attacker opens a lane like any sender, then writes to the victim's memory what it likes. The victim has an
 * operation of every kind pending towards it. Whatever happens, the victim must live, the honest peer be served, and
 * every pending operation end when the attacker does.
 */
#ifndef UM_TESTS_HOSTILE_STAGE_H
#define UM_TESTS_HOSTILE_STAGE_H

#include "proc.h"

#include "core/endpoint.h"
#include "machine/mem/mem.h"
#include "proto/wire.h"

enum { VICTIM = 0, ATTACKER = 1, HONEST = 2, REGION_KEY = 1, REGION_SIZE = 65536 };

/* What an attacker can use. */
struct attack {
    struct world w;
    struct um_core_ep *ep;
    struct um_mem_lane *lane;       /* to the victim */
    struct um_mem_port_shm *header; /* the victim's port */
    struct um_mem_lane_shm *ctl;    /* control block of that lane */
    struct um_mem_lane_shm *own;    /* control block of the victim's lane to the attacker */
    uint64_t random;
    int argument;
};

typedef void (*attack_fn)(struct attack *a);

struct stage {
    struct world w;
    pid_t attacker, honest;
    struct um_core_peer *attacker_peer, *honest_peer;
};

/* Starts all three; at return the attacker waits for stage_attack(). */
void stage_open(struct stage *s, attack_fn fn, int argument);
/* Warnings of this process that a lane was closed. Their number is limited (base/log.h). */
extern unsigned refusals_logged;
/* The victim's operations towards the attacker, by context. */
enum pending {
    PENDING_DELIVERY = 1, /* a message whose delivery is awaited */
    PENDING_BODY,         /* a message whose body waits for its receive */
    PENDING_WRITE,
    PENDING_READ,
    PENDING_RECEIVE,
    PENDING_FETCH, /* an atomic */
    PENDING_END
};

/* Lets the attacker begin, and makes progress until it says that it is through. */
void stage_attack(struct stage *s);
/* Demands that the operation ends with that error. */
void stage_expect_error(struct stage *s, enum pending which, int error);
/* Demands that the victim refused the attacker's lane: the receive directed at the attacker has ended, and the attacker
 * has found its lane ended. */
void stage_expect_refused(struct stage *s);
/* Talks with the honest peer, ends the attacker, demands that every pending operation ends, talks again, closes. */
void stage_close(struct stage *s);

/* In the attacker: commits one record as it is given, whatever it says. */
void evil_record(struct attack *a, uint8_t op, uint8_t flags, uint32_t len, const void *header, size_t header_len);
/* The same, with a body in the byte ring. */
void evil_body(struct attack *a, uint8_t op, const void *header, size_t header_len, const void *body,
               uint32_t body_len);
uint64_t rnd64(uint64_t *state);

#endif
