/* Two machines in one endpoint, as libfabric shows it: addresses in parts, the source of a message, a peer that
 * ends. */
#include "pair.h"

#include <poll.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

/* Where the board's part of an address begins, and how long the whole is. */
enum { BOARD = 24, WHOLE = 40 };

/* Each in a partition of its own: they reach each other by the board alone. */
static void open_apart(struct pair *p, const struct pair_config *config)
{
    setenv("FI_UNIMEM_PARTITION", "1", 1);
    side_open(&p->a, config);
    setenv("FI_UNIMEM_PARTITION", "2", 1);
    side_open(&p->b, config);
    unsetenv("FI_UNIMEM_PARTITION");
}

static void an_address_has_two_parts(void **state)
{
    (void)state;
    struct pair p;
    const unsigned char none[WHOLE] = {0};
    open_apart(&p, &(struct pair_config){0});
    assert_int_equal(pair_addr(), WHOLE);
    assert_int_equal(p.a.name[1], 3); /* kinds: memory of one host, and a board */
    assert_memory_not_equal(p.a.name + 2, none, BOARD - 2);
    assert_memory_not_equal(p.a.name + BOARD, none, WHOLE - BOARD);
    pair_close(&p);
}

/* Sends a message from b to a. Returns its source, as a reports it. */
static fi_addr_t send_to_a(struct pair *p, fi_addr_t to)
{
    struct fi_cq_tagged_entry entry;
    fi_addr_t source;
    uint64_t out = 5, in = 0;
    PAIR_POST(p, fi_trecv(p->a.ep, &in, sizeof(in), NULL, FI_ADDR_UNSPEC, 1, 0, NULL));
    PAIR_POST(p, fi_tinject(p->b.ep, &out, sizeof(out), to, 1));
    pair_await(p, &p->a, &entry, &source);
    assert_int_equal(in, 5);
    return source;
}

static void a_sender_is_known_by_the_part_it_came_by(void **state)
{
    (void)state;
    struct pair p;
    open_apart(&p, &(struct pair_config){.caps = FI_TAGGED | FI_SOURCE | FI_DIRECTED_RECV});
    assert_int_equal(fi_av_insert(p.a.av, p.b.name, 1, &p.a.other, 0, NULL), 1);
    assert_int_equal(fi_av_insert(p.b.av, p.a.name, 1, &p.b.other, 0, NULL), 1);
    assert_true(send_to_a(&p, p.b.other) == p.a.other);
    pair_close(&p);
}

/* The vector has both the raw source of a message, which is one part, and the whole address of the same peer. */
static void a_peer_that_ends_is_gone_under_each_of_its_addresses(void **state)
{
    (void)state;
    struct pair p;
    unsigned char part[WHOLE] = {0, 2}; /* the board's part alone */
    fi_addr_t by_part, whole;
    uint64_t word = 1;
    open_apart(&p, &(struct pair_config){0});
    assert_int_equal(fi_av_insert(p.b.av, p.a.name, 1, &p.b.other, 0, NULL), 1);
    part[0] = p.b.name[0]; /* the wire version */
    memcpy(part + BOARD, p.b.name + BOARD, WHOLE - BOARD);
    assert_int_equal(fi_av_insert(p.a.av, part, 1, &by_part, 0, NULL), 1);
    send_to_a(&p, p.b.other);
    PAIR_POST(&p, fi_tinject(p.a.ep, &word, sizeof(word), by_part, 1));
    assert_int_equal(fi_av_insert(p.a.av, p.b.name, 1, &whole, 0, NULL), 1);
    PAIR_POST(&p, fi_tinject(p.a.ep, &word, sizeof(word), whole, 1));
    side_close_ep(&p.b);
    uint64_t start = pair_now_ns();
    while (pair_now_ns() - start < UINT64_C(1500000000)) { /* until a has given back what b had */
        struct fi_cq_tagged_entry entry;
        (void)fi_cq_read(p.a.cq, &entry, 1);
        poll(NULL, 0, 1);
    }
    for (int i = 0; i < 3; i++) {
        assert_true(fi_tinject(p.a.ep, &word, sizeof(word), by_part, 1) < 0);
        assert_true(fi_tinject(p.a.ep, &word, sizeof(word), whole, 1) < 0);
    }
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_has_two_parts),
        cmocka_unit_test(a_sender_is_known_by_the_part_it_came_by),
        cmocka_unit_test(a_peer_that_ends_is_gone_under_each_of_its_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
