/* The adoption budget: a space over a mapper whose moves take a known time. */
#include "machine/machines.h"
#include "machine/mem/mem.h"

#include "base/atomic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

enum { MOVE_MS = 20, KEY = 7 };

static struct um_mem_space *space;
static int moves, moved_now;

static void wait_ms(long ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static int fake_create(struct um_mem_space *s)
{
    s->memory = calloc(1, UM_SPACE_SIZE);
    return s->memory ? 0 : -1;
}

static void fake_destroy(struct um_mem_space *s)
{
    free(s->memory);
}

static int fake_adopt(struct um_mem_space *s, uint64_t base, uint64_t len, struct um_mem_place *place_p,
                      const char **why_p)
{
    *place_p = (struct um_mem_place){.file = 0};
    (void)s, (void)base, (void)len, (void)why_p;
    wait_ms(MOVE_MS);
    moves++;
    moved_now++;
    return 0;
}

static void fake_disown(struct um_mem_space *s, uint64_t base, uint64_t len)
{
    (void)s, (void)base, (void)len;
    moved_now--;
}

static const struct um_mem_mapper fake = {
    .space_create = fake_create, .space_destroy = fake_destroy, .adopt = fake_adopt, .disown = fake_disown};

static struct um_mem_exported *export(void)
{
    static unsigned char memory[4096];
    const struct um_region_desc what = {
        .key = KEY, .base = (uintptr_t)memory, .len = sizeof memory, .access = UM_ACCESS_REMOTE_WRITE};
    struct um_exported *exported;
    assert_int_equal(um_mem_export(&space->base, &what, &exported), 0);
    return (struct um_mem_exported *)exported;
}

static enum um_level level_for_peers(const struct um_mem_exported *exported)
{
    return um_load_relaxed_u64(&exported->region->meta) >> UM_REGION_LEVEL_SHIFT & 3;
}

static int set_up(void **state)
{
    (void)state;
    moves = moved_now = 0;
    struct um_space *opened;
    int ret = um_mem_space_open(&um_machine_sim, &fake, &(struct um_space_config){.adopt = true}, &opened);
    space = (struct um_mem_space *)opened;
    return ret;
}

static int tear_down(void **state)
{
    (void)state;
    um_mem_space_close(&space->base);
    return moved_now; /* what was moved has gone back */
}

/* Makes short registrations until they are not moved any more. */
static void exhaust(void)
{
    for (int i = 0; i < 100; i++) {
        struct um_mem_exported *exported = export();
        enum um_level level = level_for_peers(exported);
        um_mem_unexport(&space->base, &exported->base);
        if (level != UM_LEVEL_MAPPED)
            return;
    }
    fail();
}

static void registrations_that_end_at_once_stop_being_moved(void **state)
{
    (void)state;
    exhaust();
    assert_in_range(moves, 1, 16); /* 250 ms, a tenth of the time forgiven; fewer where sleeping takes longer */
    int before = moves;
    for (int i = 0; i < 100; i++)
        um_mem_unexport(&space->base, &export()->base);
    assert_int_equal(moves, before);
}

static void registrations_that_last_are_always_moved(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct um_mem_exported *exported = export();
        wait_ms((long)(10 * exported->cost_ns / 1000000) + 1);
        um_mem_unexport(&space->base, &exported->base);
        assert_true(space->budget.debt_ns == 0);
    }
    assert_int_equal(moves, 3);
}

static void one_that_was_not_moved_and_lasts_is_moved_later(void **state)
{
    (void)state;
    exhaust();
    struct um_mem_exported *lasting = export();
    uint64_t changes = lasting->region->changes;
    assert_int_equal(level_for_peers(lasting), UM_LEVEL_COPY);
    for (int i = 0; i < 100 && level_for_peers(lasting) != UM_LEVEL_MAPPED; i++) {
        wait_ms(MOVE_MS);
        um_mem_unexport(&space->base, &export()->base); /* any change of the space */
    }
    assert_int_equal(level_for_peers(lasting), UM_LEVEL_MAPPED);
    assert_true(lasting->region->changes != changes); /* the change ends the windows of peers */
    um_mem_unexport(&space->base, &lasting->base);
}

static void what_ends_while_it_waits_is_forgotten(void **state)
{
    (void)state;
    exhaust();
    int before = moves;
    struct um_mem_exported *first = export(), *second = export();
    um_mem_unexport(&space->base, &first->base);
    um_mem_unexport(&space->base, &second->base);
    assert_true(um_list_is_empty(&space->budget.waiting));
    assert_int_equal(moves, before);
}

static void what_was_spent_is_forgiven_in_time(void **state)
{
    (void)state;
    struct um_mem_budget budget;
    const struct um_mem_exported brief = {.what = {.len = 4096}, .since_ns = 1000};
    um_mem_budget_init(&budget, 0);
    um_mem_budget_ended(&budget, &brief, 2000, 300000000);
    assert_false(um_mem_budget_allows(&budget, 3000));
    assert_false(um_mem_budget_allows(&budget, 400000000));
    assert_true(um_mem_budget_allows(&budget, 600000000));
    um_mem_budget_ended(&budget, &brief, 2000, UINT64_MAX / 2); /* a huge cost */
    assert_false(um_mem_budget_allows(&budget, 600001000));
    assert_true(um_mem_budget_allows(&budget, 600000000 + 2600000000u));
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(registrations_that_end_at_once_stop_being_moved), T(registrations_that_last_are_always_moved),
        T(one_that_was_not_moved_and_lasts_is_moved_later), T(what_ends_while_it_waits_is_forgotten),
        cmocka_unit_test(what_was_spent_is_forgiven_in_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
