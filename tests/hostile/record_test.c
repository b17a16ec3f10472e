/* Invalid records: each ends its sender's lane, and nothing else. */
#include "stage.h"

#include "base/atomic.h"

#include <stdio.h>
#include <unistd.h>

enum { ANY = UM_TOKENS + 1 }; /* a token that a message may have */

static const struct um_piece wild = {.addr = 0x10, .len = 100};

static void rts(struct attack *a, uint64_t total, uint32_t token, uint16_t count, struct um_piece piece)
{
    struct um_proto_rts_wire header = {.tag = 9999, .total = total, .token = token, .count = count, .piece = piece};
    evil_record(a, UM_WIRE_RTS, UM_WIRE_TAGGED, 0, &header, sizeof(header));
}

static void rts_body(struct attack *a, uint64_t total, uint16_t count, const struct um_piece *pieces, uint32_t len)
{
    struct um_proto_rts_wire header = {.tag = 9999, .total = total, .token = ANY, .count = count};
    evil_body(a, UM_WIRE_RTS, &header, sizeof(header), pieces, len);
}

static void part(struct attack *a, uint8_t op, uint32_t token, uint64_t offset, bool body)
{
    struct um_proto_part_wire header = {.offset = offset, .token = token};
    if (body)
        evil_body(a, op, &header, sizeof(header), &wild, sizeof(wild));
    else
        evil_record(a, op, 0, 5, &header, sizeof(header));
}

static void rma_record(struct attack *a, uint8_t op, uint64_t total, uint16_t token, uint16_t count)
{
    struct um_proto_rma_wire header = {
        .key = REGION_KEY, .total = total, .token = token, .count = count, .piece = wild};
    evil_record(a, op, 0, 0, &header, sizeof(header));
}

/* count elements in all; len bytes of operands in the header. */
static void atomic_record(struct attack *a, uint8_t type, uint8_t op, uint8_t flags, uint32_t count, uint16_t token,
                          uint32_t len)
{
    struct um_proto_atomic_wire header = {.key = REGION_KEY, .count = count, .token = token, .type = type, .op = op};
    evil_record(a, UM_WIRE_ATOMIC, flags, len, &header, sizeof(header));
}

static void sum_record(struct attack *a, uint32_t count, uint16_t token, uint32_t len)
{
    atomic_record(a, UM_TYPE_UINT64, UM_ATOMIC_SUM, 0, count, token, len);
}

static void more_record(struct attack *a, uint32_t token, uint64_t offset, uint32_t len)
{
    unsigned char body[256] = {0};
    struct um_proto_part_wire header = {.offset = offset, .token = token};
    evil_body(a, UM_WIRE_ATOMIC_MORE, &header, sizeof(header), body, len);
}

/* The victim's own operations have these tokens: a write, a read, an atomic that fetches (pending_start() of stage.c).
 */
enum { WRITE_TOKEN, READ_TOKEN, FETCH_TOKEN };

static void result_record(struct attack *a, uint16_t token, uint64_t offset, uint32_t len)
{
    struct um_proto_result_wire header = {.offset = offset, .token = token};
    evil_record(a, UM_WIRE_RESULT, 0, len, &header, sizeof(header));
}

enum { ATTACKS = 87 };

static void invite(struct attack *a, uint32_t token, uint16_t count, uint8_t words, uint8_t shift)
{
    struct um_proto_invite_wire header = {
        .token = token, .round = a->argument != 61, .words = words, .shift = shift, .count = count, .piece = wild};
    evil_record(a, UM_WIRE_INVITE, 0, 0, &header, sizeof(header));
}

static void first(struct attack *a, uint32_t total, uint32_t len)
{
    static const unsigned char bytes[1024];
    struct um_proto_first_wire header = {.tag = 9999, .total = total};
    evil_body(a, UM_WIRE_FIRST, &header, sizeof(header), bytes, len);
}

static void next(struct attack *a, uint32_t offset, uint32_t len)
{
    static const unsigned char bytes[1024];
    struct um_proto_next_wire header = {.offset = offset};
    evil_body(a, UM_WIRE_NEXT, &header, sizeof(header), bytes, len);
}

/* Attacks 67 to 75. */
static void attack_segments(struct attack *a)
{
    struct um_proto_first_wire header = {.tag = 9999, .total = 100};
    const struct um_proto_next_wire further = {.offset = 100};
    if (a->argument > 69 && a->argument < 75)
        first(a, 300, 100);
    switch (a->argument) {
    case 67:
        next(a, 0, 100);
        break; /* no message has begun */
    case 68:
        first(a, UM_SEGMENTED_MAX + 1, 100);
        break;
    case 69:
        first(a, 100, 101);
        break; /* beyond the total */
    case 70:
        first(a, 300, 100);
        break; /* the message before has not ended */
    case 71:
        next(a, 101, 100);
        break; /* a gap */
    case 72:
        next(a, 100, 201);
        break; /* beyond the message's total */
    case 73:
        next(a, 100, 200);
        next(a, 300, 1);
        break; /* the message has ended */
    case 74:
        evil_record(a, UM_WIRE_NEXT, 0, 50, &further, sizeof(further));
        break; /* without a body */
    default:
        evil_record(a, UM_WIRE_FIRST, 0, 50, &header, sizeof(header));
        break; /* likewise */
    }
}

/* Attacks from 76 on. */
static void attack_offers(struct attack *a)
{
    const struct um_proto_offer_wire offer = {.token = a->argument == 76 ? READ_TOKEN : WRITE_TOKEN};
    const struct um_proto_taken_wire taken = {.token = a->argument == 78 ? UM_TOKENS : 1};
    switch (a->argument) {
    case 76: /* over a machine that shows no memory */
    case 77: /* for an operation that is no READ */
        evil_record(a, UM_WIRE_OFFER, 0, 0, &offer, sizeof(offer));
        break;
    case 78: /* not a token that a READ can have */
        evil_record(a, UM_WIRE_TAKEN, 0, 0, &taken, sizeof(taken));
        break;
    case 79: /* neither taken nor refused */
        evil_record(a, UM_WIRE_TAKEN, 0, 2, &taken, sizeof(taken));
        break;
    case 81: /* an EAGER whose bytes and data do not fit into the header */
        evil_record(a, UM_WIRE_EAGER, UM_WIRE_DATA, UM_EAGER_INLINE_DATA + 1, "", 0);
        break;
    default: /* with a body */
        evil_body(a, UM_WIRE_TAKEN, &taken, sizeof(taken), &taken, sizeof(taken));
        break;
    }
}

/* Attacks from 82 on: long bodies without a wide ring, or of a length that no body has, or without an opcode. */
static void attack_long(struct attack *a)
{
    static const uint32_t lens[] = {UM_LONG_BODY, UM_BIG_BODY + 1, UM_LONG_BODY + 1, 7 << UM_LEN_BITS, UM_LONG_BODY};
    const uint32_t i = a->argument - 82, len = lens[i];
    uint32_t ring;
    (void)um_mem_lane_body_max(&a->lane->base, UM_BIG_BODY);
    if (i > 1) {
        child_demand(um_mem_lane_take_wide(a->lane, &ring) == 0, "no wide ring");
        evil_record(a, UM_OPCODE_WIDEN, 0, ring, "", 0);
    }
    evil_record(a, (uint8_t)(len >> UM_LEN_BITS << UM_OP_UPPER_SHIFT | (i < 4 ? UM_WIRE_EAGER : 0)), UM_FLAG_MACHINE,
                len & ((1 << UM_LEN_BITS) - 1), "", 0);
}

/* Attacks from 63 on. */
static void attack_widen(struct attack *a)
{
    uint32_t ring;
    if (a->argument > 66) {
        (a->argument > 81 ? attack_long : a->argument > 75 ? attack_offers : attack_segments)(a);
        return;
    }
    if (a->argument != 63) /* a lane in its small rings may not have a wide one */
        (void)um_mem_lane_body_max(&a->lane->base, UM_BIG_BODY);
    child_demand(um_mem_lane_take_wide(a->lane, &ring) == 0, "no wide ring");
    if (a->argument == 66) /* twice */
        evil_record(a, UM_OPCODE_WIDEN, 0, ring, "", 0);
    evil_record(a, UM_OPCODE_WIDEN, 0, a->argument == 64 ? ring + 1 : a->argument == 65 ? UM_WIDE_RINGS : ring, "", 0);
}

/* Attacks from 55 on. */
static void attack_copy(struct attack *a)
{
    if (a->argument > 62) {
        attack_widen(a);
        return;
    }
    switch (a->argument) {
    case 55:
        invite(a, ANY, 0, 0, 15);
        break;
    case 56:
        invite(a, ANY, UM_IOV_LIMIT + 1, 0, 15);
        break;
    case 57:
        invite(a, ANY, 2, 0, 15);
        break; /* two pieces, but no body */
    case 58:
        invite(a, ANY, 1, UM_PROGRESS_WORDS, 15);
        break;
    case 59:
        invite(a, ANY, 1, 0, 11);
        break;
    case 60:
        invite(a, UM_TOKENS - 1, 1, 0, 15);
        break;
    case 61:
        invite(a, ANY, 1, 0, 15);
        break; /* round 0 */
    default:
        invite(a, ANY, 1, 0, 64);
        break;
    }
}

/* Attacks from 35 on. */
static void attack_atomic(struct attack *a)
{
    switch (a->argument) {
    case 35:
        sum_record(a, 1, UM_TOKENS, 8);
        break;
    case 36:
        sum_record(a, 100, 1, UM_ATOMIC_INLINE + 8);
        break; /* more than the header holds */
    case 37:
        more_record(a, 1, 0, 8);
        break; /* there is no such operation */
    case 38:
        more_record(a, 0xffff, 0, 8);
        break;
    case 39:
        sum_record(a, 10, 1, 8);
        sum_record(a, 1, 1, 8);
        break; /* one token twice */
    case 40:
        sum_record(a, 10, 1, 8);
        more_record(a, 1, 16, 8);
        break; /* leaves an element out */
    case 41:
        sum_record(a, 10, 1, 8);
        more_record(a, 1, 0, 8);
        break; /* repeats an element */
    case 42:
        sum_record(a, 10, 1, 8);
        more_record(a, 1, 8, 9);
        break; /* part of an element */
    case 43:
        sum_record(a, 10, 1, 8);
        more_record(a, 1, 8, 80);
        break; /* beyond the operation's end */
    case 44:
        sum_record(a, 2, 1, 8);
        more_record(a, 1, 8, 8);
        more_record(a, 1, 16, 8);
        break; /* after the last */
    case 45:
        sum_record(a, 10, 1, 8);
        evil_record(a, UM_WIRE_ATOMIC_MORE, 0, 8, &(struct um_proto_part_wire){.offset = 8, .token = 1}, 16);
        break; /* without a body */
    case 46:
        result_record(a, 50, 0, 8);
        break; /* nobody asked */
    case 47:
        result_record(a, 0xffff, 0, 8);
        break;
    case 48:
        result_record(a, WRITE_TOKEN, 0, 8);
        break; /* the operation fetches nothing */
    case 49:
        result_record(a, READ_TOKEN, 0, 8);
        break; /* the operation is no atomic */
    case 50:
        result_record(a, FETCH_TOKEN, 8, 8);
        break;
    case 51:
        result_record(a, FETCH_TOKEN, 0, 16);
        break; /* more than asked for */
    case 52:
        result_record(a, FETCH_TOKEN, 0, 0);
        break;
    case 53:
        part(a, UM_WIRE_RETURN, FETCH_TOKEN, UINT64_MAX, true);
        break;
    case 54: /* what an atomic fetches is not returned like what is read */
        evil_body(a, UM_WIRE_RETURN, &(struct um_proto_part_wire){.token = FETCH_TOKEN},
                  sizeof(struct um_proto_part_wire), &wild, 8);
        break;
    default:
        attack_copy(a);
        break;
    }
}

static void attack_one(struct attack *a)
{
    const struct um_piece twice[2] = {{.addr = 0x1000, .len = UINT64_MAX}, {.addr = 0x1000, .len = 101}};
    struct um_piece many[40] = {{0, 0}};
    struct um_proto_write_wire write = {.key = REGION_KEY, .token = UM_TOKENS};
    switch (a->argument) {
    case 0:
        evil_record(a, 0, 0, 0, "", 0);
        break;
    case 1:
        evil_record(a, 15, 0, 0, "", 0);
        break;
    case 2:
        evil_record(a, 8, 0, 0, "", 0);
        break;
    case 3:
        evil_record(a, 0x80, 0, 0, "", 0);
        break;
    case 4:
        evil_record(a, UM_REC_JOINED, 0, 0, "", 0);
        break;
    case 5:
        evil_record(a, UM_REC_LEFT, 0, 0, "", 0);
        break;
    case 6:
        evil_record(a, 0xff, 0xff, 0xffff, "", 0);
        break;
    case 7: /* grows twice */
        (void)um_mem_lane_body_max(&a->lane->base, UM_BIG_BODY);
        evil_record(a, UM_OPCODE_GROW, 0, 0, "", 0);
        break;
    case 8:
        evil_record(a, UM_WIRE_EAGER, UM_FLAG_MACHINE, 0, "", 0);
        break;
    case 9:
        evil_record(a, UM_WIRE_EAGER, UM_FLAG_MACHINE, 0xffff, "", 0);
        break;
    case 10:
        evil_record(a, UM_WIRE_EAGER, UM_FLAG_MACHINE, UM_SMALL_BODY + 1, "", 0);
        break;
    case 11:
        evil_record(a, UM_WIRE_EAGER, 0, UM_EAGER_INLINE + 1, "", 0);
        break;
    case 12:
        evil_record(a, UM_WIRE_EAGER, 0, 0xffff, "", 0);
        break;
    case 13:
        evil_record(a, UM_WIRE_WRITE, 0, UM_WRITE_INLINE + 1, "", 0);
        break;
    case 14:
        evil_record(a, UM_WIRE_WRITE, 0, 8, &write, sizeof(write));
        break;
    case 15:
        rts(a, 100, UM_TOKENS - 1, 1, wild);
        break; /* a bounded token: those are for what needs no receive */
    case 16:
        rts(a, 100, 0, 1, wild);
        break;
    case 17:
        rts(a, 100, ANY, UM_IOV_LIMIT + 1, wild);
        break;
    case 18:
        rts(a, 100, ANY, 0xffff, wild);
        break;
    case 19:
        rts(a, 100, ANY, 2, wild);
        break; /* two pieces, but no body */
    case 20:
        rts(a, 100, ANY, 0, wild);
        break; /* no pieces for 100 bytes */
    case 21:
        rts(a, 99, ANY, 1, wild);
        break; /* the piece is longer than the total */
    case 22:
        rts(a, 101, ANY, 1, wild);
        break; /* the piece is shorter than the total */
    case 23:
        rts_body(a, 100, 2, twice, sizeof(twice));
        break; /* 2^64 - 1 + 101 */
    case 24:
        rts_body(a, 100, 3, twice, sizeof(twice));
        break; /* fewer pieces than it says */
    case 25:
        rts_body(a, 0, 33, many, 33 * sizeof(many[0]));
        break; /* more pieces than there may be */
    case 26:
        rts(a, 100, ANY, 1, wild);
        rts(a, 100, ANY, 1, wild);
        break; /* one token twice */
    case 27:
        part(a, UM_WIRE_PUSH, 1, 0, true);
        break; /* nobody asked */
    case 28:
        part(a, UM_WIRE_RETURN, 50, 0, true);
        break;
    case 29:
        part(a, UM_WIRE_PUSH, UINT32_MAX, 0, true);
        break;
    case 30:
        part(a, UM_WIRE_RETURN, UINT32_MAX, 0, true);
        break;
    case 31:
        rts(a, 100, ANY, 1, wild);
        part(a, UM_WIRE_PUSH, ANY, 0, true);
        break; /* announced, not asked for */
    case 32:
        rma_record(a, UM_WIRE_READ, 100, 64, 1);
        break;
    case 33:
        rma_record(a, UM_WIRE_WRITE_RTS, 100, 0x8000, 1);
        break;
    case 34:
        rma_record(a, UM_WIRE_READ, 101, 1, 1);
        break;
    default:
        attack_atomic(a);
        break;
    }
}

static void a_record_that_cannot_be_ends_the_lane_alone(void **state)
{
    (void)state;
    for (int i = 0; i < ATTACKS; i++) {
        struct stage s;
        stage_open(&s, attack_one, i);
        stage_attack(&s);
        stage_expect_refused(&s);
        stage_close(&s);
    }
}

/* The records are well formed, but the addresses in them are wrong. */
static void wild_pointers(struct attack *a)
{
    for (uint16_t i = 0; i < 20; i++) {
        rts(a, 100, ANY + i, 1, (struct um_piece){.addr = rnd64(&a->random), .len = 100});
        rma_record(a, i % 2 ? UM_WIRE_READ : UM_WIRE_WRITE_RTS, 100, (uint16_t)(32 + i), 1);
        struct um_proto_write_wire write = {.key = i % 2 ? REGION_KEY : rnd64(&a->random), .addr = rnd64(&a->random)};
        evil_record(a, UM_WIRE_WRITE, UM_WIRE_DATA, 16, &write, sizeof(write));
    }
}

/* Invitations that come too late, or name memory that nobody has. The operations that they name go on. */
static void wild_invitations(struct attack *a)
{
    for (uint32_t i = 0; i < 200; i++) {
        const struct um_piece piece = {.addr = rnd64(&a->random), .len = i % 3 ? 100000 : rnd64(&a->random)};
        struct um_proto_invite_wire header = {.token = i % 4 ? UM_TOKENS + i % 5 : (uint32_t)rnd64(&a->random),
                                              .round = (uint16_t)(i + 1),
                                              .words = (uint8_t)(i % UM_PROGRESS_WORDS),
                                              .shift = (uint8_t)(12 + i % 29),
                                              .count = 1,
                                              .shareable = (uint16_t)(i / 7 % 2),
                                              .piece = piece};
        evil_record(a, UM_WIRE_INVITE, 0, 0, &header, sizeof(header));
        struct um_proto_rts_wire rts = {.tag = 9999,
                                        .total = 100,
                                        .token = 5000 + i,
                                        .count = 1,
                                        .reach = (uint16_t)(1 + i % 3),
                                        .piece = {piece.addr, 100}};
        evil_record(a, UM_WIRE_RTS, UM_WIRE_TAGGED, 0, &rts, sizeof(rts));
    }
}

static void wild_invitations_are_ignored(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s, wild_invitations, 1);
    stage_attack(&s);
    stage_close(&s);
}

static void wild_addresses_and_keys_fail_alone(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s, wild_pointers, 1);
    stage_attack(&s);
    stage_close(&s);
}

/* Invalid operations in valid records: each is answered with an error, and the lane goes on. */
static void impossible_atomics(struct attack *a)
{
    const uint8_t fetch = UM_WIRE_FETCH;
    uint32_t first = um_load_acquire_u32(&a->ctl->answers), count = 0;
    atomic_record(a, UM_TYPES, UM_ATOMIC_SUM, 0, 1, (uint16_t)count++, 8);
    atomic_record(a, 0xff, UM_ATOMIC_SUM, 0, 1, (uint16_t)count++, 8);
    atomic_record(a, UM_TYPE_UINT64, UM_ATOMIC_OPS, 0, 1, (uint16_t)count++, 8);
    atomic_record(a, UM_TYPE_UINT64, 0xff, fetch, 1, (uint16_t)count++, 8);
    atomic_record(a, UM_TYPE_DOUBLE, UM_ATOMIC_BXOR, 0, 1, (uint16_t)count++, 8);
    atomic_record(a, UM_TYPE_FLOAT_COMPLEX, UM_ATOMIC_MIN, 0, 1, (uint16_t)count++, 8);
    atomic_record(a, UM_TYPE_FLOAT, UM_ATOMIC_MSWAP, fetch, 1, (uint16_t)count++, 8);
    atomic_record(a, UM_TYPE_UINT64, UM_ATOMIC_CSWAP, 0, 1, (uint16_t)count++, 16); /* compares without fetching */
    atomic_record(a, UM_TYPE_UINT64, UM_ATOMIC_READ, 0, 1, (uint16_t)count++, 0);
    atomic_record(a, UM_TYPE_UINT64, UM_ATOMIC_READ, fetch, 1, (uint16_t)count++, 8);
    atomic_record(a, UM_TYPE_UINT64, UM_ATOMIC_SUM, 0, 0, (uint16_t)count++, 0);
    atomic_record(a, UM_TYPE_UINT64, UM_ATOMIC_SUM, 0, 1, (uint16_t)count++, 0);
    atomic_record(a, UM_TYPE_UINT64, UM_ATOMIC_SUM, 0, 1, (uint16_t)count++, 7);
    atomic_record(a, UM_TYPE_UINT64, UM_ATOMIC_SUM, 0, 1, (uint16_t)count++, 16);
    atomic_record(a, UM_TYPE_UINT64, UM_ATOMIC_CSWAP, fetch, 1, (uint16_t)count++, 8);
    atomic_record(a, UM_TYPE_UINT64, UM_ATOMIC_SUM, fetch, UM_ATOMIC_BYTES / 8 + 1, (uint16_t)count++, 8);
    atomic_record(a, UM_TYPE_UINT64, UM_ATOMIC_READ, fetch, UINT32_MAX, (uint16_t)count++, 0);
    while (um_load_acquire_u32(&a->ctl->answers) - first < count)
        usleep(100);
    for (uint32_t i = 0; i < count; i++) {
        const struct um_mem_answer_shm *answer = &a->ctl->answer[(first + i) % UM_ANSWERS];
        child_demand(answer->status == -EINVAL && answer->token == i, "not refused");
    }
    /* and two with wrong addresses: out of the region, and no such key */
    struct um_proto_atomic_wire wild_one = {
        .key = REGION_KEY, .addr = rnd64(&a->random), .count = 4, .type = UM_TYPE_UINT64, .op = UM_ATOMIC_SUM};
    evil_record(a, UM_WIRE_ATOMIC, fetch, 32, &wild_one, sizeof(wild_one));
    wild_one.key = 99;
    wild_one.token = 1;
    evil_record(a, UM_WIRE_ATOMIC, 0, 32, &wild_one, sizeof(wild_one));
}

static void impossible_atomics_are_answered_with_an_error(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s, impossible_atomics, 1);
    stage_attack(&s);
    stage_close(&s);
}

/* Answers DONE to operations that cannot be done: nothing was returned, nothing fetched. */
static void early_answers(struct attack *a)
{
    static const uint32_t tokens[] = {READ_TOKEN, FETCH_TOKEN};
    uint32_t count = um_load_relaxed_u32(&a->own->answers);
    for (int i = 0; i < 2; i++) {
        a->own->answer[count % UM_ANSWERS] = (struct um_mem_answer_shm){.token = tokens[i], .status = UM_STATUS_DONE};
        um_store_release_u32(&a->own->answers, ++count);
    }
}

static void what_brought_no_bytes_is_not_done(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s, early_answers, 0);
    stage_attack(&s);
    stage_expect_error(&s, PENDING_READ, EPROTO);
    stage_expect_error(&s, PENDING_FETCH, EPROTO);
    stage_close(&s);
}

/* Attacks that the machine finds, and that a handler finds: one warning for each. It comes first, because the number of
 * warnings in some seconds is limited. */
static void a_refused_record_is_told_once(void **state)
{
    static const int attacks[] = {6, 46};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct stage s;
        refusals_logged = 0;
        stage_open(&s, attack_one, attacks[i]);
        stage_attack(&s);
        stage_expect_refused(&s);
        stage_close(&s);
        assert_int_equal(refusals_logged, 1);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_refused_record_is_told_once),
    cmocka_unit_test(what_brought_no_bytes_is_not_done),
    cmocka_unit_test(a_record_that_cannot_be_ends_the_lane_alone),
    cmocka_unit_test(wild_addresses_and_keys_fail_alone),
    cmocka_unit_test(wild_invitations_are_ignored),
    cmocka_unit_test(impossible_atomics_are_answered_with_an_error),
};
WORLD_MAIN("hostile records", tests)
