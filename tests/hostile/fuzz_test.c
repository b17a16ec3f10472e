/* Random writes to everything a peer can write: records, control blocks, answers, the port's header, cells; and bits
 * that flip while the victim reads. */
#include "stage.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static int seeds(int quick)
{
    return getenv("UM_TEST_LONG") ? quick * 20 : quick;
}

static void any_bytes(struct attack *a, void *at, size_t len)
{
    for (size_t i = 0; i < len; i++)
        ((volatile unsigned char *)at)[i] = (unsigned char)rnd(&a->random, 256);
}

/* Returns mostly a small number, sometimes any. */
static uint64_t number(struct attack *a)
{
    return rnd(&a->random, 4) ? rnd(&a->random, 130) : rnd64(&a->random);
}

/* Makes a header that is nearly valid. */
static void any_header(struct attack *a, uint64_t header[7])
{
    for (int i = 0; i < 7; i++)
        header[i] = number(a);
    if (rnd(&a->random, 2))
        header[0] = REGION_KEY;
    if (rnd(&a->random, 4) == 0) { /* ATOMIC: a count, token, datatype and operation that are possible */
        header[1] = rnd(&a->random, REGION_SIZE + 64);
        header[2] = (1 + rnd(&a->random, 6)) | (uint64_t)rnd(&a->random, 66) << 32 |
                    (uint64_t)rnd(&a->random, 17) << 48 | (uint64_t)rnd(&a->random, 21) << 56;
    } else if (rnd(&a->random, 2)) { /* RTS: a total, token, count and piece that agree */
        header[2] = header[5] = rnd(&a->random, 100000);
        header[3] = rnd(&a->random, 140) | (uint64_t)1 << 32;
        header[4] = (uintptr_t)a->lane->area;
    }
}

static void fuzz_records(struct attack *a)
{
    unsigned char body[256];
    for (int i = 0; i < 3000; i++) {
        uint64_t header[7];
        any_header(a, header);
        uint8_t op = (uint8_t)(rnd(&a->random, 200) ? 1 + rnd(&a->random, UM_WIRE_NEXT) : rnd(&a->random, 256));
        if (op == UM_OPCODE_GROW)
            continue; /* the victim would look for the next record in the big ring, and the attacker wait for ever */
        if (rnd(&a->random, 3) == 0) {
            any_bytes(a, body, sizeof(body));
            evil_body(a, op, header, sizeof(header), body, 1 + rnd(&a->random, 256));
        } else {
            evil_record(a, op, (uint8_t)(number(a) & (rnd(&a->random, 20) ? 0x87 : 0xff)), number(a) & 0xffff, header,
                        sizeof(header));
        }
    }
}

/* The part of a message in the ring: at its begin or behind the last one, long or short. Returns its bytes, at most
 * `left`. */
static uint32_t fuzz_ring(struct attack *a, uint8_t op, const void *header, size_t header_len, uint32_t left)
{
    const uint32_t most = rnd(&a->random, 2) ? UM_LONG_BODY : 1 + rnd(&a->random, UM_LONG_BODY);
    const uint32_t len = most < left ? most : left;
    const uint8_t flags = (uint8_t)(UM_FLAG_MACHINE | (rnd(&a->random, 2) ? UM_FLAG_FRONT : 0) |
                                    (rnd(&a->random, 8) ? 0 : UM_FLAG_TIMED));
    evil_record(a, op | (uint8_t)(len >> UM_LEN_BITS << UM_OP_UPPER_SHIFT), flags, len & ((1 << UM_LEN_BITS) - 1),
                header, header_len);
    return len;
}

/* Puts bodies into the blocks of the lane's cell, and into its wide ring, in parts of one message or as they come, and
 * names cells and blocks that it does not have. */
static void fuzz_cells(struct attack *a)
{
    enum { LONGEST = UM_LONG_BODY + 64 };
    const uint32_t seldom = a->argument % 2 ? 30 : 400; /* one of so many is wrong */
    uint32_t ring, moved = 0, block = 0, used = 0;
    (void)um_mem_lane_body_max(&a->lane->base, UM_BIG_BODY);
    child_demand(um_mem_lane_take_wide(a->lane, &ring) == 0, "no wide ring");
    evil_record(a, UM_OPCODE_WIDEN, 0, ring, "", 0);
    unsigned char *cell = (unsigned char *)a->lane->wide_map.base + UM_WIDE_BYTES + UM_CELL_OFFSET;
    uint32_t total = 0;
    for (int i = 0; i < 200; i++) {
        if (moved == 0) /* the first segment of a short message is all of it */
            total = rnd(&a->random, 3) ? UM_SEGMENTED_MAX - rnd(&a->random, UM_SEGMENTED_MAX / 2)
                                       : 1 + rnd(&a->random, LONGEST);
        const bool is_long = rnd(&a->random, 2);
        const uint32_t longest = !is_long ? UM_BIG_BODY : rnd(&a->random, seldom) ? UM_LONG_BODY : LONGEST;
        const uint32_t room = used < UM_BLOCK_BYTES ? UM_BLOCK_BYTES - used : 0;
        const uint32_t wish = rnd(&a->random, 3) ? longest : 1 + rnd(&a->random, longest);
        const uint32_t most = wish > room && room && rnd(&a->random, seldom) ? room : wish;
        const uint32_t left = most < total - moved || rnd(&a->random, seldom) == 0 ? most : total - moved;
        const bool has_words = is_long && left >= UM_CELL_WORD;
        const uint32_t len = has_words ? left / UM_CELL_WORD * UM_CELL_WORD : left < UM_BIG_BODY ? left : UM_BIG_BODY;
        const struct um_proto_first_wire first = {.tag = 9999, .total = total};
        const struct um_proto_next_wire next = {.offset = rnd(&a->random, seldom) ? moved : (uint32_t)number(a)};
        const bool is_first = moved == 0 || rnd(&a->random, seldom) == 0;
        const uint8_t op = (uint8_t)(rnd(&a->random, seldom) == 0 ? 1 + rnd(&a->random, UM_WIRE_NEXT)
                                     : is_first                   ? UM_WIRE_FIRST
                                                                  : UM_WIRE_NEXT);
        if (rnd(&a->random, 4) == 0) {
            moved += fuzz_ring(a, op, is_first ? (const void *)&first : &next, is_first ? sizeof(first) : sizeof(next),
                               total - moved);
            moved = moved < total ? moved : 0;
            continue;
        }
        used += um_mem_body_space(len);
        const bool goes_on = moved + len < total && used + UM_BIG_BODY <= UM_BLOCK_BYTES;
        const uint8_t flags =
            (uint8_t)(UM_FLAG_MACHINE | (rnd(&a->random, 8) ? 0 : UM_FLAG_TIMED) |
                      (goes_on && rnd(&a->random, seldom) ? 0 : UM_FLAG_PASS) | (rnd(&a->random, 8) ? 0 : UM_FLAG_ACK));
        const uint32_t other = rnd(&a->random, seldom) ? 0 : UM_LEN_OTHER;
        any_bytes(a, cell + rnd(&a->random, UM_CELL_BYTES - 64), 64);
        const uint32_t named = rnd(&a->random, seldom) ? block : rnd(&a->random, UM_CELL_BLOCKS);
        evil_record(a, (uint8_t)(op | named << UM_OP_UPPER_SHIFT | (has_words ? UM_OP_WORDS : 0)), flags,
                    UM_LEN_CELL | other | ((has_words ? len / UM_CELL_WORD : len) - 1),
                    is_first ? (const void *)&first : &next, is_first ? sizeof(first) : sizeof(next));
        moved = moved + len < total ? moved + len : 0;
        if (flags & UM_FLAG_PASS) {
            block = (block + 1) % UM_CELL_BLOCKS; /* the first ones do not come back: the end of it */
            used = 0;
        }
    }
}

/* Writes to the control block and the rings of the attacker's lane, and to the port's header, but not to the lanes of
 * other senders. */
static void fuzz_memory(struct attack *a)
{
    for (int i = 0; i < 20000; i++) {
        switch (rnd(&a->random, 8)) {
        case 0:
        case 1: { /* a record the victim will look at next, or one nearby */
            uint32_t seq = a->lane->head + 1 + (rnd(&a->random, 3) ? 0 : rnd(&a->random, 8));
            struct um_mem_record_shm *r = &a->lane->ring.records[(seq - 1) & (a->lane->ring.record_count - 1)];
            any_header(a, r->header);
            um_store_release_u64(&r->word, seq | number(a) << 32);
            a->lane->head += seq == a->lane->head + 1;
            break;
        }
        case 2:
            any_bytes(a, a->lane->area + rnd(&a->random, UM_AREA_BIG_RECORDS - 64), 64);
            break;
        case 3:
            any_bytes(a, (char *)a->ctl + rnd(&a->random, sizeof(*a->ctl) - 8), 8);
            break;
        case 4:
            um_store_relaxed_u64(&a->header->common.bell[rnd(&a->random, 64)], rnd64(&a->random));
            break;
        case 5:
            um_store_relaxed_u64(&a->header->common.bell_summary, rnd64(&a->random));
            break;
        case 6:
            any_bytes(a, a->header, 64);
            break; /* magic to want_fence */
        default:
            um_store_relaxed_u64(&a->header->common.grown[rnd(&a->random, 64)], number(a));
            break;
        }
    }
}

/* As the receiver: gives false answers and credit to the victim's records and operations. */
static void fuzz_answers(struct attack *a)
{
    static const int32_t statuses[] = {0, 1, 2, -1, -5, INT32_MIN, INT32_MAX, -4096, 1};
    struct um_mem_lane_shm *ctl = a->own;
    uint32_t k = um_load_relaxed_u32(&ctl->answers);
    for (int i = 0; i < 2000; i++) {
        struct um_mem_answer_shm *answer = &ctl->answer[k % UM_ANSWERS];
        answer->token = rnd(&a->random, 10) ? rnd(&a->random, 2 * UM_TOKENS) : (uint32_t)rnd64(&a->random);
        answer->status = statuses[rnd(&a->random, 9)];
        k += rnd(&a->random, 300) ? 1 : rnd(&a->random, 99);
        um_store_release_u32(&ctl->answers, k);
        if (a->argument % 3 == 1 && rnd(&a->random, 100) == 0)
            um_store_release_u64(&ctl->credit, rnd64(&a->random));
        um_store_relaxed_u64(&ctl->progress[rnd(&a->random, UM_PROGRESS_WORDS)].receiver, rnd64(&a->random));
        if (a->argument % 3 == 2 && rnd(&a->random, 100) == 0)
            um_store_relaxed_u32(&ctl->state, (uint32_t)number(a));
        if (i % 20 == 0)
            usleep(100);
    }
}

static volatile bool flipping;

static void *flip(void *arg)
{
    struct attack *a = arg;
    uint64_t random = a->random ^ 0xabcdef;
    while (flipping) {
        uint32_t at = rnd(&random, UM_AREA_SMALL_BYTES + UM_SMALL_BYTES);
        if (at < UM_AREA_SMALL_BYTES && at % UM_LINE < 8)
            continue; /* flips headers and bodies, not first words: the victim has to take the records */
        a->lane->area[at] ^= (unsigned char)(1u << rnd(&random, 8));
    }
    return NULL;
}

static void fuzz_flips(struct attack *a)
{
    pthread_t thread;
    struct um_piece pieces[3] = {{(uintptr_t)a->lane->area, 40}, {(uintptr_t)a->lane->area, 40}, {0, 0}};
    flipping = true;
    child_demand(pthread_create(&thread, NULL, flip, a) == 0, "no thread");
    for (int i = 0; i < 4000; i++) {
        struct um_proto_rts_wire rts = {.tag = 9999, .total = 80, .token = UM_TOKENS + (uint32_t)i, .count = 3};
        struct um_proto_write_wire write = {.key = REGION_KEY, .addr = REGION_SIZE - 16, .token = (uint16_t)(i % 64)};
        struct um_proto_eager_wire eager = {.tag = (uint64_t)i};
        if (i % 50 == 0)
            evil_body(a, UM_WIRE_RTS, &rts, sizeof(rts), pieces, sizeof(pieces));
        else if (i % 2)
            evil_record(a, UM_WIRE_WRITE, 0, 16, &write, sizeof(write));
        else
            evil_record(a, UM_WIRE_EAGER, UM_WIRE_TAGGED, 40, &eager, sizeof(eager));
    }
    flipping = false;
    pthread_join(thread, NULL);
}

static void run(attack_fn fn, int count)
{
    for (int seed = 0; seed < count; seed++) {
        struct stage s;
        stage_open(&s, fn, seed);
        stage_attack(&s);
        stage_close(&s);
    }
}

static void random_records_do_no_harm(void **state)
{
    (void)state;
    run(fuzz_records, seeds(15));
}

static void random_bodies_in_cells_do_no_harm(void **state)
{
    (void)state;
    run(fuzz_cells, seeds(40));
}

static void random_writes_to_the_lane_and_the_port_do_no_harm(void **state)
{
    (void)state;
    run(fuzz_memory, seeds(15));
}

static void random_answers_and_credit_do_no_harm(void **state)
{
    (void)state;
    run(fuzz_answers, seeds(15));
}

static void values_that_change_between_check_and_use_do_no_harm(void **state)
{
    (void)state;
    run(fuzz_flips, seeds(8));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(random_records_do_no_harm),
    cmocka_unit_test(random_bodies_in_cells_do_no_harm),
    cmocka_unit_test(random_writes_to_the_lane_and_the_port_do_no_harm),
    cmocka_unit_test(random_answers_and_credit_do_no_harm),
    cmocka_unit_test(values_that_change_between_check_and_use_do_no_harm),
};
WORLD_MAIN("hostile peers, at random", tests)
