/* Tests of lists of machine names, and of what each machine says of itself. */
#include "machine/machines.h"

#include "base/log.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void names_are_taken_in_their_order(void **state)
{
    (void)state;
    struct um_machines m;
    assert_int_equal(um_machines_named("shm", &m), 0);
    assert_true(m.count == 1 && m.at[0] == &um_machine_shm && !m.at[1]);
    assert_int_equal(um_machines_named("board", &m), 0);
    assert_true(m.count == 1 && m.at[0] == &um_machine_board);
    assert_int_equal(um_machines_named("shm,board", &m), 0);
    assert_true(m.count == 2 && m.at[0] == &um_machine_shm && m.at[1] == &um_machine_board);
    assert_int_equal(um_machines_named("shm,net", &m), 0);
    assert_true(m.count == 2 && m.at[0] == &um_machine_shm && m.at[1] == &um_machine_net);
    assert_int_equal(um_machines_named("board,shm", &m), 0);
    assert_true(m.count == 2 && m.at[0] == &um_machine_board && m.at[1] == &um_machine_shm);
}

/* sim is for tests alone. */
static void anything_else_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",    ",",  "shm,",       "shm,,board",    "shm,shm", "sim",       "shm,sim",
                                        "SHM", "sh", "shm, board", "shm,board,shm", "board ",  "shm;board", ",shm"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct um_machines m = {.count = 7};
        assert_int_equal(um_machines_named(wrong[i], &m), -EINVAL);
        assert_int_equal(m.count, 7);
    }
}

/* The text logged last. */
static char logged[256];

static void log_keep(enum um_log_level level, const char *text)
{
    assert_int_equal(level, UM_LOG_WARN);
    snprintf(logged, sizeof(logged), "%s", text);
}

static bool is_sharing_a_word(const struct um_machine *a, const struct um_machine *b)
{
    for (unsigned i = 0; i < a->addr_words; i++) {
        for (unsigned k = 0; k < b->addr_words; k++) {
            if (a->addr_first + i == b->addr_first + k)
                return true;
        }
    }
    return false;
}

/* sim has its part in the same words as shm. */
static void two_with_one_place_in_an_address_are_refused(void **state)
{
    (void)state;
    struct um_machines m = {.count = 0};
    um_log_set_sink(log_keep);
    assert_int_equal(um_machines_add(&m, &um_machine_board), 0);
    assert_int_equal(um_machines_add(&m, &um_machine_board), -EINVAL);
    assert_string_equal(logged, "");
    m = (struct um_machines){.count = 0};
    assert_int_equal(um_machines_add(&m, &um_machine_shm), 0);
    assert_int_equal(um_machines_add(&m, &um_machine_sim), -EADDRINUSE);
    assert_non_null(strstr(logged, "shm and sim cannot be used together"));
    assert_int_equal(m.count, 1);
    assert_int_equal(um_machines_add(&m, &um_machine_board), 0);
    assert_int_equal(um_machines_add(&m, &um_machine_sim), -EINVAL); /* no room */
    um_log_set_sink(NULL);
}

/* Any two offered machines can be used together if and only if their parts have no word in common. */
static void offered_ones_go_together_or_are_refused(void **state)
{
    (void)state;
    for (const struct um_machine *const *a = um_machines_offered; *a; a++) {
        assert_true((*a)->about && (*a)->body_max && (*a)->depth && (*a)->addr_kind && (*a)->addr_words);
        for (const struct um_machine *const *b = um_machines_offered; *b; b++) {
            char names[64];
            struct um_machines m;
            if (a == b)
                continue;
            assert_int_equal((*a)->addr_kind & (*b)->addr_kind, 0);
            snprintf(names, sizeof(names), "%s,%s", (*a)->name, (*b)->name);
            assert_int_equal(um_machines_named(names, &m), is_sharing_a_word(*a, *b) ? -EADDRINUSE : 0);
            /* as um_machines_allowed() says */
            assert_int_equal(is_sharing_a_word(*a, *b), *a != um_machines_offered[0] && *b != um_machines_offered[0]);
        }
    }
}

static void what_is_allowed_names_each(void **state)
{
    (void)state;
    char text[128], little[6];
    um_machines_allowed(text, sizeof(text));
    for (const struct um_machine *const *m = um_machines_offered; *m; m++)
        assert_non_null(strstr(text, (*m)->name));
    assert_null(strstr(text, "sim"));
    assert_non_null(strstr(text, "one of the others with a comma between"));
    um_machines_allowed(little, sizeof(little));
    assert_memory_equal(little, text, sizeof(little) - 1);
}

/* fi_info -e lists the parameters of all machines under one prefix. */
static void parameters_have_the_name_of_their_machine(void **state)
{
    (void)state;
    unsigned count = 0;
    for (const struct um_machine *const *m = um_machines_offered; *m; m++) {
        const size_t len = strlen((*m)->name);
        for (uint32_t i = 0; i < (*m)->params_count; i++, count++) {
            const struct um_machine_param *param = &(*m)->params[i];
            assert_memory_equal(param->key, (*m)->name, len);
            assert_true(param->key[len] == '_' || !param->key[len]);
            assert_true(*param->help && *param->allowed);
            assert_int_equal(param->set("/no such value"), -EINVAL);
            assert_int_equal(param->set(NULL), 0);
        }
    }
    assert_true(count > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_taken_in_their_order),
        cmocka_unit_test(anything_else_is_refused),
        cmocka_unit_test(two_with_one_place_in_an_address_are_refused),
        cmocka_unit_test(offered_ones_go_together_or_are_refused),
        cmocka_unit_test(what_is_allowed_names_each),
        cmocka_unit_test(parameters_have_the_name_of_their_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
