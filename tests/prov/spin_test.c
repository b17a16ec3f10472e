/*
 * Empty fi_cq_reads of a caller that spins: they linger for messages, not for callers that await something else; and
 * they yield where ranks outnumber processors.
 *
 * Time stands still meanwhile, so that every caller spins. Lingering is detected by clock reads: progress reads the
 * clock after some calls.
 */
#include "pair.h"

#include <sched.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

enum { READS = 8192 };

static bool is_counting;
static unsigned clocks, yields;

/* These two replace the C library's functions, for the provider, too. */

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the C library has reserved ones */
__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *now)
{
    static struct timespec stopped;
    if (!is_counting || clock == CLOCK_REALTIME)
        return (int)syscall(SYS_clock_gettime, clock, now);
    clocks++;
    if (stopped.tv_sec == 0)
        syscall(SYS_clock_gettime, clock, &stopped);
    *now = stopped;
    return 0;
}

__attribute__((visibility("default"))) int sched_yield(void)
{
    yields++;
    return (int)syscall(SYS_sched_yield);
}

/* So many empty reads for count entries, with or without a look at a counter before each. */
static void spin(struct side *s, size_t count, bool counter)
{
    struct fi_cq_tagged_entry entry;
    clocks = yields = 0;
    is_counting = true;
    for (int i = 0; i < READS; i++) {
        if (counter)
            fi_cntr_read(s->cntr[CNTR_WRITE]);
        assert_int_equal(fi_cq_read(s->cq, count ? &entry : NULL, count), -FI_EAGAIN);
    }
    is_counting = false;
}

static void only_who_awaits_messages_lingers(void **state)
{
    struct pair p;
    (void)state;
    pair_open(&p, &(struct pair_config){.counters = true, .strangers = true}); /* on one processor two never linger */
    spin(&p.a, 1, false);
    unsigned messages = clocks;
    spin(&p.a, 0, false);
    unsigned progress = clocks;
    spin(&p.a, 1, true);
    unsigned counter = clocks;
    assert_true(messages > READS / 8);
    if (progress > messages / 2)
        fail_msg("a call for progress alone lingers: %u looks at the clock, %u of one for messages", progress,
                 messages);
    if (counter > messages / 2)
        fail_msg("a caller that reads a counter lingers: %u looks at the clock, otherwise %u", counter, messages);
    assert_int_equal(yields, 0);
    pair_close(&p);
}

static void who_spins_gives_way_where_ranks_outnumber_processors(void **state)
{
    struct pair p;
    (void)state;
    pair_open(&p, &(struct pair_config){.counters = true});
    for (int i = 0; i < get_nprocs(); i++) {
        unsigned char name[PAIR_ADDR_MAX];
        fi_addr_t addr;
        memcpy(name, p.a.name, sizeof(name));
        name[16] ^= (unsigned char)(1 + i % 255); /* addresses of ports that could be this process's */
        name[17] ^= (unsigned char)(i / 255);
        assert_int_equal(fi_av_insert(p.a.av, name, 1, &addr, 0, NULL), 1);
    }
    spin(&p.a, 1, false);
    if (yields < READS / 64)
        fail_msg("%d empty reads gave way %u times", READS, yields);
    spin(&p.a, 0, false);
    assert_true(yields >= READS / 64);
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_who_awaits_messages_lingers),
        cmocka_unit_test(who_spins_gives_way_where_ranks_outnumber_processors),
    };
    return cmocka_run_group_tests_name("spin", tests, NULL, NULL);
}
