/*
 * Processes over a board, all to all: puts into and gets from each other's dmable memory, atomics on it, and messages
 * of all sizes between dmable and ordinary buffers, at the same time. Puts are checked by their bytes alone: nothing
 * counts them.
 */
#include "team.h"

#include <rdma/fi_tagged.h>
#include <unimem/fi_ext_unimem.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 4, SLOT = 70000, ROUNDS = 12, SIZES = 5, WORDS = 8 };

/* A slot for each member, then words that all add to. */
static unsigned char *target, *out, *in, *plain_out, *plain_in;
static const size_t sizes[SIZES] = {0, 40, 5000, 33000, SLOT};

static void open_all(struct team *t)
{
    struct fi_info *hints = fi_allocinfo();
    struct fi_unimem_memory_ops *memory;
    void *ops, *got[3];
    hints->fabric_attr->prov_name = strdup("unimem");
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_RMA | FI_ATOMIC | FI_TAGGED;
    TEAM_CALL(t, fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &t->info));
    fi_freeinfo(hints);
    team_endpoint_open(t, FI_CQ_FORMAT_MSG, FI_SELECTIVE_COMPLETION);
    TEAM_CALL(t, fi_open_ops(&t->domain->fid, FI_UNIMEM_MEMORY_OPS, 0, &ops, NULL));
    memory = ops;
    for (int i = 0; i < 3; i++)
        TEAM_CALL(t, memory->alloc(t->domain, (SIZE + 1) * SLOT, &got[i]));
    target = got[0];
    out = got[1];
    in = got[2];
    plain_out = calloc(SIZE + 1, SLOT);
    plain_in = calloc(SIZE + 1, SLOT);
    TEAM_CALL(t,
              fi_mr_reg(t->domain, target, (SIZE + 1) * SLOT, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &t->mr, NULL));
    t->shared->member[t->rank].key = fi_mr_key(t->mr);
}

static unsigned char byte_of(int from, int to, int round, size_t i)
{
    return (unsigned char)(i * 13 + (i >> 8) + (size_t)(from * 41 + to * 7 + round * 3));
}

static void fill(unsigned char *buf, size_t len, int from, int to, int round)
{
    for (size_t i = 0; i < len; i++)
        buf[i] = byte_of(from, to, round, i);
}

static void check(const struct team *t, const unsigned char *buf, size_t len, int from, int to, int round)
{
    for (size_t i = 0; i < len; i++)
        TEAM_DEMAND(t, buf[i] == byte_of(from, to, round, i), "round %d, from %d to %d: byte %zu of %zu is wrong",
                    round, from, to, i, len);
}

static unsigned char *slot(unsigned char *base, int peer)
{
    return base + (size_t)peer * SLOT;
}

/* Posts messages. They need the other members, so they complete while everything else goes on. */
static void messages_post(struct team *t, int round, size_t len)
{
    for (int i = 0; i < t->size; i++) {
        unsigned char *to = slot(round % 3 ? in : plain_in, i), *from = slot(round % 2 ? out : plain_out, i);
        const struct iovec in_iov = {to, SLOT}, out_iov = {from, len};
        struct fi_msg_tagged m = {.msg_iov = &in_iov, .iov_count = 1, .addr = t->peer[i], .tag = (uint64_t)i};
        memset(to, 0, SLOT);
        fill(from, len, t->rank, i, round);
        TEAM_POST(t, fi_trecvmsg(t->ep, &m, FI_COMPLETION));
        m.msg_iov = &out_iov;
        m.tag = (uint64_t)t->rank;
        TEAM_POST(t, fi_tsendmsg(t->ep, &m, FI_COMPLETION));
    }
}

static void messages_await(struct team *t, int round, size_t len)
{
    for (int left = 2 * t->size; left > 0;) {
        struct fi_cq_msg_entry entry;
        ssize_t ret = fi_cq_read(t->cq, &entry, 1);
        TEAM_DEMAND(t, ret == 1 || ret == -FI_EAGAIN, "fi_cq_read: %s", fi_strerror((int)-ret));
        left -= ret == 1;
    }
    for (int i = 0; i < t->size; i++)
        check(t, slot(round % 3 ? in : plain_in, i), len, i, t->rank, round);
}

static void puts_post(struct team *t, int round, size_t len)
{
    static uint64_t one = 1;
    for (int i = 0; i < t->size; i++) {
        unsigned char *from = slot(round % 3 ? plain_out : out, SIZE); /* every member gets the same bytes */
        if (i == 0)
            fill(from, len, t->rank, 0, round);
        TEAM_POST(t, fi_write(t->ep, from, len, NULL, t->peer[i], (uint64_t)t->rank * SLOT, team_key(t, i), NULL));
        TEAM_POST(t, fi_atomic(t->ep, &one, 1, NULL, t->peer[i], (uint64_t)SIZE * SLOT + (uint64_t)(round % WORDS) * 8,
                               team_key(t, i), FI_UINT64, FI_SUM, NULL));
        t->put_count += 2;
    }
}

static void gets_check(struct team *t, int round, size_t len)
{
    unsigned char *to = slot(round % 2 ? plain_in : in, SIZE);
    for (int i = 0; i < t->size; i++) { /* what each member has put there */
        int from = (t->rank + i) % t->size;
        TEAM_POST(t, fi_read(t->ep, to, len, NULL, t->peer[i], (uint64_t)from * SLOT, team_key(t, i), NULL));
        t->get_count++;
        team_wait_gets(t, 0);
        check(t, to, len, from, 0, round);
    }
}

static void body(struct team *t, void *arg)
{
    (void)arg;
    for (int round = 0; round < ROUNDS; round++) {
        size_t len = sizes[round % SIZES];
        messages_post(t, round, len);
        puts_post(t, round, len);
        messages_await(t, round, len);
        team_wait_puts(t, 0);
        team_barrier(t);
        for (int i = 0; i < t->size; i++)
            check(t, slot(target, i), len, i, 0, round);
        gets_check(t, round, len);
        team_barrier(t);
    }
    for (int word = 0; word < WORDS; word++) {
        uint64_t value, expected = (uint64_t)SIZE * (uint64_t)(ROUNDS / WORDS + (word < ROUNDS % WORDS));
        memcpy(&value, slot(target, SIZE) + word * 8, 8);
        TEAM_DEMAND(t, value == expected, "word %d is %llu", word, (unsigned long long)value);
    }
    free(plain_out);
    free(plain_in);
}

static void all_to_all_ends_and_is_right(void **state)
{
    const struct team_config config = {.provider = "unimem", .size = SIZE, .open = open_all, .timeout = 100};
    (void)state;
    assert_int_equal(team_run(&config, NULL, body, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_to_all_ends_and_is_right)};
    return cmocka_run_group_tests_name("prov/dmable_team", tests, NULL, NULL);
}
