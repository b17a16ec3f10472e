/* Records that cannot be: each ends its sender's lane, and nothing else. */
#include "stage.h"

#include <stdio.h>

static const struct um_piece wild = {.addr = 0x10, .len = 100};

static void rts(struct attack *a, uint64_t total, uint16_t token, uint16_t count, struct um_piece piece)
{
    struct um_rts_wire head = {.tag = 9999, .total = total, .token = token, .count = count, .piece = piece};
    evil_record(a, UM_WIRE_RTS, UM_WIRE_TAGGED, 0, &head, sizeof(head));
}

static void rts_body(struct attack *a, uint64_t total, uint16_t count, const struct um_piece *pieces, uint32_t len)
{
    struct um_rts_wire head = {.tag = 9999, .total = total, .token = 1, .count = count};
    evil_body(a, UM_WIRE_RTS, &head, sizeof(head), pieces, len);
}

static void part(struct attack *a, uint8_t op, uint16_t token, uint64_t offset, bool body)
{
    struct um_part_wire head = {.offset = offset, .token = token};
    if (body)
        evil_body(a, op, &head, sizeof(head), &wild, sizeof(wild));
    else
        evil_record(a, op, 0, 5, &head, sizeof(head));
}

static void rma_record(struct attack *a, uint8_t op, uint64_t total, uint16_t token, uint16_t count)
{
    struct um_rma_wire head = {.key = REGION_KEY, .total = total, .token = token, .count = count, .piece = wild};
    evil_record(a, op, 0, 0, &head, sizeof(head));
}

enum { ATTACKS = 36 };

static void attack_one(struct attack *a)
{
    const struct um_piece twice[2] = {{.addr = 0x1000, .len = UINT64_MAX}, {.addr = 0x1000, .len = 101}};
    struct um_piece many[40] = {{0, 0}};
    struct um_write_wire write = {.key = REGION_KEY, .token = UM_TOKENS};
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
        (void)um_mem_lane_body_max(a->lane, UM_BIG_BODY);
        evil_record(a, UM_OP_GROW, 0, 0, "", 0);
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
        rts(a, 100, UM_TOKENS, 1, wild);
        break;
    case 16:
        rts(a, 100, 0xffff, 1, wild);
        break;
    case 17:
        rts(a, 100, 1, UM_IOV_LIMIT + 1, wild);
        break;
    case 18:
        rts(a, 100, 1, 0xffff, wild);
        break;
    case 19:
        rts(a, 100, 1, 2, wild);
        break; /* two pieces, but no body */
    case 20:
        rts(a, 100, 1, 0, wild);
        break; /* no pieces for 100 bytes */
    case 21:
        rts(a, 99, 1, 1, wild);
        break; /* more than in all */
    case 22:
        rts(a, 101, 1, 1, wild);
        break; /* less than in all */
    case 23:
        rts_body(a, 100, 2, twice, sizeof(twice));
        break; /* 2^64 - 1 + 101 */
    case 24:
        rts_body(a, 100, 3, twice, sizeof(twice));
        break; /* fewer than it says */
    case 25:
        rts_body(a, 0, 33, many, 33 * sizeof(many[0]));
        break; /* more than there may be */
    case 26:
        rts(a, 100, 3, 1, wild);
        rts(a, 100, 3, 1, wild);
        break; /* one token twice */
    case 27:
        part(a, UM_WIRE_PUSH, 1, 0, true);
        break; /* nobody asked */
    case 28:
        part(a, UM_WIRE_RETURN, 50, 0, true);
        break;
    case 29:
        part(a, UM_WIRE_PUSH, 0xffff, 0, true);
        break;
    case 30:
        part(a, UM_WIRE_RETURN, 0xffff, 0, true);
        break;
    case 31:
        rts(a, 100, 2, 1, wild);
        part(a, UM_WIRE_PUSH, 2, 0, true);
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
        part(a, UM_WIRE_RETURN, 3, UINT64_MAX, true);
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

/* The records are well formed; what they point to is not. */
static void wild_pointers(struct attack *a)
{
    for (uint16_t i = 0; i < 20; i++) {
        rts(a, 100, (uint16_t)(10 + i), 1, (struct um_piece){.addr = rnd64(&a->random), .len = 100});
        rma_record(a, i % 2 ? UM_WIRE_READ : UM_WIRE_WRITE_RTS, 100, (uint16_t)(32 + i), 1);
        struct um_write_wire write = {.key = i % 2 ? REGION_KEY : rnd64(&a->random), .addr = rnd64(&a->random)};
        evil_record(a, UM_WIRE_WRITE, UM_WIRE_DATA, 16, &write, sizeof(write));
    }
}

static void wild_addresses_and_keys_fail_alone(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s, wild_pointers, 1);
    stage_attack(&s);
    stage_close(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_record_that_cannot_be_ends_the_lane_alone),
    cmocka_unit_test(wild_addresses_and_keys_fail_alone),
};
WORLD_MAIN("hostile records", tests)
