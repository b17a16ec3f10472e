/*
 * A peer is killed: every process that waits for it gets an error within a few seconds, however and how often it calls.
 *
 * Each habit has a victim of its own, with a send to it that nobody receives, a receive directed at it, and an open
 * window on its memory. Before the death the process calls often, so the provider takes it for a caller that does.
 */
#include "member.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { LARGE = 1 << 20, TAG = 7, OTHER_TAG = 8 };

/* Seconds after the death. The provider promises 3; the machine may be busy. */
#define BOUND 5.0

struct habit {
    const char *name;
    struct member_config config;
    double pause; /* seconds between two turns */
    /* Makes one turn, and passes completions to took(). */
    void (*turn)(void);
    bool by_rma; /* the death is noticed by a refused write */
};

static struct {
    struct member_face victim, survivor;
    uint32_t contacted;
} * shared;

static struct member m;
static fi_addr_t victim_addr;
static const struct habit *habit;
static unsigned char *large;
static unsigned char word[8];
static bool send_ended, receive_ended, write_ended;

static void took(void *context, int error)
{
    if (context == &send_ended || context == &receive_ended)
        assert_int_equal(error, FI_ECONNRESET);
    if (context)
        *(bool *)context = true;
}

static void take_all(void)
{
    void *context;
    int error;
    while (member_next(&m, &context, &error) != 0)
        took(context, error);
}

/* ---- habits ---- */

static void turn_read(void)
{
    void *context;
    int error;
    if (member_next(&m, &context, &error) != 0)
        took(context, error);
}

static void turn_sread(void)
{
    struct fi_cq_tagged_entry entry;
    ssize_t ret = fi_cq_sread(m.cq, &entry, 1, NULL, (int)(BOUND * 1000));
    if (ret == 1)
        took(entry.op_context, 0);
    else if (ret == -FI_EAVAIL)
        turn_read();
}

/* Makes no calls: the thread of automatic progress does everything. Reads the queue when everything must have ended. */
static void turn_nothing(void)
{
    member_sleep(BOUND - 1);
    take_all();
}

static void write_one(struct fid_ep *ep)
{
    ssize_t ret = fi_inject_write(ep, word, sizeof(word), victim_addr, shared->victim.base, shared->victim.key);
    write_ended = write_ended || (ret != 0 && ret != -FI_EAGAIN);
}

static void turn_write(void)
{
    write_one(m.ep);
}

static void turn_write_and_count(void)
{
    write_one(m.ep);
    (void)fi_cntr_read(m.writes);
}

/* Messages to itself fill the queue: a read finds one each time, and makes no progress. */
static void turn_full_queue(void)
{
    static fi_addr_t self = FI_ADDR_UNSPEC;
    if (self == FI_ADDR_UNSPEC)
        self = member_meet(&m, &shared->survivor);
    assert_int_equal(fi_trecv(m.ep, word, sizeof(word), NULL, self, OTHER_TAG, 0, NULL), 0);
    ssize_t ret;
    while ((ret = fi_tsend(m.ep, word, sizeof(word), NULL, self, OTHER_TAG, NULL)) == -FI_EAGAIN)
        take_all(); /* the first contact may need several calls */
    assert_int_equal(ret, 0);
    turn_read();
}

static const struct habit habits[] = {
    {.name = "fast", .turn = turn_read},
    {.name = "a call each 20 ms", .turn = turn_read, .pause = .02},
    {.name = "a call each 100 ms", .turn = turn_read, .pause = .1},
    {.name = "sread", .turn = turn_sread, .config.sleeps = true},
    {.name = "automatic", .turn = turn_nothing, .config.automatic = true},
    {.name = "automatic, sread", .turn = turn_sread, .config = {.automatic = true, .sleeps = true}},
    {.name = "automatic, writes alone, each 100 ms",
     .turn = turn_write,
     .pause = .1,
     .config.automatic = true,
     .by_rma = true},
    {.name = "writes alone, fast", .turn = turn_write, .by_rma = true},
    {.name = "writes alone, each 100 ms", .turn = turn_write, .pause = .1, .by_rma = true},
    {.name = "writes and a counter, each 100 ms", .turn = turn_write_and_count, .pause = .1, .by_rma = true},
    {.name = "a queue that is never empty, each 100 ms", .turn = turn_full_queue, .pause = .1},
};

/* ---- one habit ---- */

/* Makes progress until the survivor has contacted it, then never again. */
static void victim(void *arg)
{
    struct member self;
    (void)arg;
    member_open(&self, &(struct member_config){.bytes = 4096});
    member_tell(&self, &shared->victim);
    member_await(&self, &shared->contacted, 1);
    for (;;)
        pause();
}

/* Opens a window on the victim's memory; then announces a body to it and posts a receive directed at it. */
static void begin(void)
{
    member_open(&m, &habit->config);
    member_tell(&m, &shared->survivor);
    member_await(NULL, &shared->victim.ready, 1);
    victim_addr = member_meet(&m, &shared->victim);
    send_ended = receive_ended = write_ended = false;
    bool written = false;
    ssize_t ret;
    while ((ret = fi_write(m.ep, word, sizeof(word), NULL, victim_addr, shared->victim.base, shared->victim.key,
                           &written)) == -FI_EAGAIN)
        ;
    assert_int_equal(ret, 0);
    while (!written)
        take_all();
    member_set(&shared->contacted, 1);
    if (habit->by_rma)
        return;
    while ((ret = fi_tsend(m.ep, large, LARGE, NULL, victim_addr, TAG, &send_ended)) == -FI_EAGAIN)
        take_all();
    assert_int_equal(ret, 0);
    assert_int_equal(fi_trecv(m.ep, word, sizeof(word), NULL, victim_addr, TAG, 0, &receive_ended), 0);
}

static bool is_over(void)
{
    return habit->by_rma ? write_ended : send_ended && receive_ended;
}

static void a_death_is_noticed(void **state)
{
    (void)state;
    memset(shared, 0, sizeof(*shared));
    pid_t pid = member_fork(victim, NULL);
    begin();
    for (int i = 0; i < 5000; i++)
        (void)fi_cntr_read(m.writes);
    assert_false(is_over());
    member_kill(pid);
    const double died = member_now();
    while (!is_over() && member_now() - died < BOUND) {
        habit->turn();
        if (habit->pause > 0)
            member_sleep(habit->pause);
    }
    const double took_s = member_now() - died;
    print_message("%-42s %s %.2f s\n", habit->name, is_over() ? "" : "NOT NOTICED in", took_s);
    assert_true(is_over());
    member_close(&m);
}

int main(void)
{
    struct CMUnitTest tests[sizeof(habits) / sizeof(habits[0])];
    int failed = 0;
    shared = member_share(sizeof(*shared));
    large = malloc(LARGE);
    for (size_t i = 0; i < sizeof(habits) / sizeof(habits[0]); i++) {
        tests[0] = (struct CMUnitTest){.name = habits[i].name, .test_func = a_death_is_noticed};
        habit = &habits[i];
        failed += _cmocka_run_group_tests(habits[i].name, tests, 1, NULL, NULL);
    }
    free(large);
    return failed != 0;
}
