/*
 * Tests of base/cpu_wait.h: the choice for invented processors, and the waits that this processor can execute.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "base/cpu_wait.h"

#include <pthread.h>

static const uint32_t waitpkg = 1u << 5, monitorx = 1u << 29;
static const uint64_t event_stream = 1u << 2;

static enum um_cpu_wait choice(struct um_cpu_features f)
{
    return um_cpu_wait_choose(&f);
}

static void the_processor_says_which_instruction_it_has(void **state)
{
    const uint32_t leaf = 0x80000008u;
    (void)state;
    /* an Intel server from Sapphire Rapids on, an AMD server from Zen on, both, and a hypervisor that hides the bits */
    assert_int_equal(choice((struct um_cpu_features){.max_basic = 0x20, .max_extended = leaf, .basic7_ecx = waitpkg}),
                     UM_CPU_WAIT_UMWAIT);
    assert_int_equal(
        choice((struct um_cpu_features){.max_basic = 0x10, .max_extended = leaf, .extended1_ecx = monitorx}),
        UM_CPU_WAIT_MWAITX);
    assert_int_equal(choice((struct um_cpu_features){
                         .max_basic = 0x20, .max_extended = leaf, .basic7_ecx = waitpkg, .extended1_ecx = monitorx}),
                     UM_CPU_WAIT_UMWAIT);
    assert_int_equal(choice((struct um_cpu_features){
                         .max_basic = 0x20, .max_extended = leaf, .basic7_ecx = ~waitpkg, .extended1_ecx = ~monitorx}),
                     UM_CPU_WAIT_NONE);
    assert_int_equal(choice((struct um_cpu_features){0}), UM_CPU_WAIT_NONE);
}

static void a_leaf_that_is_not_there_says_nothing(void **state)
{
    (void)state;
    assert_int_equal(choice((struct um_cpu_features){.max_basic = 6, .basic7_ecx = waitpkg}), UM_CPU_WAIT_NONE);
    assert_int_equal(choice((struct um_cpu_features){.max_basic = 0x10, .extended1_ecx = monitorx}), UM_CPU_WAIT_NONE);
    assert_int_equal(choice((struct um_cpu_features){.max_extended = 0x80000000u, .extended1_ecx = monitorx}),
                     UM_CPU_WAIT_NONE);
}

static void arm_waits_only_where_an_event_stream_ends_it(void **state)
{
    (void)state;
    assert_int_equal(choice((struct um_cpu_features){.hwcap = event_stream}), UM_CPU_WAIT_WFE);
    assert_int_equal(choice((struct um_cpu_features){.hwcap = ~event_stream}), UM_CPU_WAIT_NONE);
    assert_false(um_cpu_wait_is_short(UM_CPU_WAIT_WFE));
    assert_false(um_cpu_wait_is_short(UM_CPU_WAIT_NONE));
    assert_true(um_cpu_wait_is_short(UM_CPU_WAIT_UMWAIT));
    assert_true(um_cpu_wait_is_short(UM_CPU_WAIT_MWAITX));
}

static void the_choice_for_this_processor_stays(void **state)
{
    struct um_cpu_features f = um_cpu_features_read();
    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(um_cpu_wait_own(), um_cpu_wait_choose(&f));
}

#if defined(__x86_64__)
/* The kernel lists the same features. */
static void the_features_are_those_that_the_kernel_lists(void **state)
{
    static char line[16384];
    struct um_cpu_features f = um_cpu_features_read();
    FILE *file = fopen("/proc/cpuinfo", "r");
    (void)state;
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) && strncmp(line, "flags", 5) != 0)
        ;
    fclose(file);
    assert_int_equal(strncmp(line, "flags", 5), 0);
    assert_int_equal(strstr(line, " waitpkg") != NULL, (f.basic7_ecx & waitpkg) != 0);
    assert_int_equal(strstr(line, " mwaitx") != NULL || strstr(line, " monitorx") != NULL,
                     (f.extended1_ecx & monitorx) != 0);
}
#endif

/* Sets the waits that this processor can execute: none, its own instruction; on Arm WFE is always there. */
static int kinds_here(enum um_cpu_wait *kinds)
{
    int count = 0;
    kinds[count++] = UM_CPU_WAIT_NONE;
    if (um_cpu_wait_own() != UM_CPU_WAIT_NONE)
        kinds[count++] = um_cpu_wait_own();
#if defined(__aarch64__)
    else
        kinds[count++] = UM_CPU_WAIT_WFE;
#endif
    return count;
}

struct ball {
    _Alignas(64) uint64_t there;
    _Alignas(64) uint64_t back;
    enum um_cpu_wait how;
};

enum { THROWS = 20000 };

static void await(enum um_cpu_wait how, const uint64_t *line, uint64_t value)
{
    uint64_t seen;
    while ((seen = um_load_acquire_u64(line)) != value)
        um_cpu_wait_for(how, line, seen);
}

static void *throw_back(void *arg)
{
    struct ball *b = arg;
    for (uint64_t i = 1; i <= THROWS; i++) {
        await(b->how, &b->there, i);
        um_store_release_u64(&b->back, i);
    }
    return NULL;
}

static void every_store_ends_a_wait(void **state)
{
    enum um_cpu_wait kinds[4];
    int count = kinds_here(kinds);
    (void)state;
    for (int k = 1; k < count; k++) { /* from 1: a wait without an instruction cannot miss a store */
        struct ball b = {.how = kinds[k]};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, throw_back, &b), 0);
        for (uint64_t i = 1; i <= THROWS; i++) {
            um_store_release_u64(&b.there, i);
            await(b.how, &b.back, i);
        }
        pthread_join(thread, NULL);
    }
}

static void a_line_that_has_changed_is_not_waited_for(void **state)
{
    enum um_cpu_wait kinds[4];
    uint64_t line = 7;
    (void)state;
    for (int k = kinds_here(kinds) - 1; k >= 0; k--) {
        for (int i = 0; i < 10000; i++)
            um_cpu_wait_for(kinds[k], &line, 8);
    }
    assert_int_equal(line, 7);
}

static void a_wait_for_nothing_ends(void **state)
{
    enum um_cpu_wait kinds[4];
    uint64_t line = 7;
    (void)state;
    for (int k = kinds_here(kinds) - 1; k >= 0; k--) {
        for (int i = 0; i < 100; i++)
            um_cpu_wait_for(kinds[k], &line, 7);
    }
    assert_int_equal(line, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_processor_says_which_instruction_it_has),
        cmocka_unit_test(a_leaf_that_is_not_there_says_nothing),
        cmocka_unit_test(arm_waits_only_where_an_event_stream_ends_it),
        cmocka_unit_test(the_choice_for_this_processor_stays),
#if defined(__x86_64__)
        cmocka_unit_test(the_features_are_those_that_the_kernel_lists),
#endif
        cmocka_unit_test(every_store_ends_a_wait),
        cmocka_unit_test(a_line_that_has_changed_is_not_waited_for),
        cmocka_unit_test(a_wait_for_nothing_ends),
    };
    return cmocka_run_group_tests_name("cpu_wait", tests, NULL, NULL);
}
