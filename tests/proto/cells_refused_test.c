/* What a record may say of the cell that its body lies in: one that cannot be is refused. */
#include "cells.h"

#include "proto/wire.h"

/* Commits a record whose body lies in a cell, as its word says. */
static void commit_op(struct world *w, uint8_t op, uint32_t len, uint8_t flags)
{
    struct um_mem_lane *lane = lane_of(w, 0);
    *(struct um_proto_eager_wire *)(void *)lane->next->header = (struct um_proto_eager_wire){.tag = 5};
    lane->head++;
    um_store_release_u64(&lane->next->word, (uint64_t)lane->head | (uint64_t)op << 32 |
                                                (uint64_t)(uint8_t)(flags | UM_FLAG_MACHINE) << 40 |
                                                (uint64_t)len << 48);
    lane->next = &lane->ring.records[lane->head & (lane->ring.record_count - 1)];
}

static void commit_word(struct world *w, uint32_t len, uint8_t flags)
{
    commit_op(w, UM_WIRE_EAGER, len, flags);
}

static bool is_refused(struct world *w)
{
    world_settle(w);
    return peer_of(w, 1, 0)->banned;
}

enum { ALL = UM_LEN_MASK }; /* the length of a body of 16 KiB */

static void a_cell_that_the_sender_has_not_is_refused(void **state)
{
    (void)state;
    for (int attack = 0; attack < 5; attack++) {
        struct world w;
        if (attack < 2) { /* there are none yet */
            world_open(&w, 2);
            inject_buf(&w, 0, 1, from, LONG, 9, UM_OP_TAGGED);
            if (attack == 1)
                inject_buf(&w, 1, 0, from, LONG, 9, UM_OP_TAGGED);
            world_settle(&w);
            commit_word(&w, UM_LEN_CELL | (attack ? UM_LEN_OTHER : 0) | ALL, UM_FLAG_PASS);
        } else {
            open_wide(&w);
            commit_word(&w, UM_LEN_CELL | ALL, attack == 3 ? 0 : UM_FLAG_PASS);
            if (attack == 2)
                commit_word(&w, UM_LEN_CELL | ALL, UM_FLAG_PASS); /* it has passed */
            else
                commit_word(&w, UM_LEN_CELL | UM_LEN_OTHER | ALL, UM_FLAG_PASS); /* never came */
        }
        assert_true(is_refused(&w));
        world_close(&w);
    }
}

static void one_message_lies_in_one_cell(void **state)
{
    (void)state;
    struct world w;
    open_wide(&w);
    assert_int_equal(send_alone(&w, 1, LONG, 1), OWN_CELL);
    take(&w, 0, LONG, 1); /* node 0 has both cells */
    commit_word(&w, UM_LEN_CELL | ALL, 0);
    world_settle(&w);
    assert_false(is_refused(&w));
    commit_word(&w, UM_LEN_CELL | UM_LEN_OTHER | ALL, UM_FLAG_PASS);
    assert_true(is_refused(&w));
    world_close(&w);
}

static void blocks_are_passed_one_by_one(void **state)
{
    enum { FIRST = UM_WIRE_EAGER, LAST = UM_WIRE_EAGER | (UM_CELL_BLOCKS - 1) << UM_OP_UPPER_SHIFT };
    (void)state;
    static const struct {
        uint8_t op[2], flags;
        bool is_good;
    } cases[] = {
        {{FIRST, FIRST}, 0, true},
        {{FIRST, LAST}, UM_FLAG_PASS, true},
        {{LAST, FIRST}, UM_FLAG_PASS, true},
        {{FIRST, LAST}, 0, false}, /* the first one goes on */
        {{LAST, FIRST}, 0, false},
        {{LAST, LAST}, UM_FLAG_PASS, false},                /* it has passed */
        {{FIRST, LAST & ~UM_OP_MASK}, UM_FLAG_PASS, false}, /* no op */
        {{FIRST, LAST | UM_OP_MASK}, UM_FLAG_PASS, false},  /* an op that nobody has */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct world w;
        open_wide(&w);
        commit_op(&w, cases[i].op[0], UM_LEN_CELL | ALL, cases[i].flags);
        assert_false(is_refused(&w));
        commit_op(&w, cases[i].op[1], UM_LEN_CELL | ALL, UM_FLAG_PASS);
        assert_int_equal(is_refused(&w), !cases[i].is_good);
        if (cases[i].is_good)
            assert_int_equal(rx_of(&w, 1)->cell.here, cases[i].op[0] == cases[i].op[1] ? 1 : 0x81);
        world_close(&w);
    }
}

static void no_message_is_longer_than_a_block(void **state)
{
    (void)state;
    for (int excess = 0; excess < 2; excess++) {
        struct world w;
        open_wide(&w);
        for (int i = 0; i < UM_BLOCK_BYTES / UM_BIG_BODY - 1; i++)
            commit_word(&w, UM_LEN_CELL | ALL, 0);
        commit_word(&w, UM_LEN_CELL | (ALL - UM_BODY_ALIGN), 0);
        assert_false(is_refused(&w));
        commit_word(&w, UM_LEN_CELL | (uint32_t)(UM_BODY_ALIGN - 1 + excess), UM_FLAG_PASS);
        assert_int_equal(is_refused(&w), excess);
        world_close(&w);
    }
}

/* Bodies of words: one of 64 KiB is the longest, and it may not reach beyond its block. */
static void no_body_is_longer_than_a_long_one(void **state)
{
    enum { OP = UM_WIRE_EAGER | UM_OP_WORDS, MOST_WORDS = UM_LONG_BODY / UM_CELL_WORD - 1 };
    (void)state;
    static const struct {
        uint32_t before, words;
        bool is_good;
    } cases[] = {{0, MOST_WORDS, true},
                 {0, MOST_WORDS + 1, false},
                 {MOST_WORDS, MOST_WORDS, true},
                 {MOST_WORDS, MOST_WORDS + 1, false},
                 {ALL / UM_CELL_WORD, MOST_WORDS, true},
                 {0, ALL, false}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct world w;
        open_wide(&w);
        if (cases[i].before)
            commit_op(&w, OP, UM_LEN_CELL | cases[i].before, 0);
        assert_false(is_refused(&w));
        commit_op(&w, OP, UM_LEN_CELL | cases[i].words, UM_FLAG_PASS);
        assert_int_equal(is_refused(&w), !cases[i].is_good);
        world_close(&w);
    }
    struct world w;
    open_wide(&w);
    commit_word(&w, UM_LEN_CELL | ALL, 0);
    commit_op(&w, OP, UM_LEN_CELL | MOST_WORDS, 0);
    assert_false(is_refused(&w));
    commit_op(&w, OP, UM_LEN_CELL | MOST_WORDS, UM_FLAG_PASS);
    assert_true(is_refused(&w)); /* there are 48 KiB left */
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(blocks_are_passed_one_by_one),      cmocka_unit_test(a_cell_that_the_sender_has_not_is_refused),
    cmocka_unit_test(one_message_lies_in_one_cell),      cmocka_unit_test(no_message_is_longer_than_a_block),
    cmocka_unit_test(no_body_is_longer_than_a_long_one),
};
WORLD_MAIN("cells_refused", tests)
