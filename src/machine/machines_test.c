/* Lists of machines' names, and what each machine says of itself. */
#include "machine/machines.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
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

static void parts_of_an_address_do_not_overlap(void **state)
{
    (void)state;
    unsigned taken[sizeof(struct um_addr) / 8] = {0};
    for (const struct um_machine *const *m = um_machines_offered; *m; m++) {
        for (unsigned i = 0; i < (*m)->addr_words; i++)
            assert_int_equal(taken[(*m)->addr_first + i]++, 0);
        assert_true((*m)->about && (*m)->body_max && (*m)->depth);
    }
}

/* fi_info -e lists them all, under one prefix. */
static void parameters_have_the_name_of_their_machine(void **state)
{
    (void)state;
    unsigned count = 0;
    for (const struct um_machine *const *m = um_machines_offered; *m; m++) {
        const size_t len = strlen((*m)->name);
        for (uint32_t i = 0; i < (*m)->params_count; i++, count++) {
            const struct um_machine_param *param = &(*m)->params[i];
            assert_memory_equal(param->key, (*m)->name, len);
            assert_int_equal(param->key[len], '_');
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
        cmocka_unit_test(parts_of_an_address_do_not_overlap),
        cmocka_unit_test(parameters_have_the_name_of_their_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
