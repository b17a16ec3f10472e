/* The gate: the owner waits for writers that hold a door, and for no others. */
#include "machine/mem/gate.h"

#include "base/atomic.h"
#include "base/process.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { INSIDE = 1, LEFT = 2, SOME_US = 50000 };

static struct um_mem_doors_shm *doors; /* like those of a port; behind them the word() that children write */
static struct um_mem_gated gated;

static uint32_t *word(void)
{
    return (uint32_t *)(void *)(doors + 1);
}

static void wait_until(uint32_t value)
{
    while (um_load_acquire_u32(word()) != value)
        usleep(100);
}

/* A child takes a door, and leaves it after some time, or never. */
static pid_t writer_start(bool leaves)
{
    um_store_release_u32(word(), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0) {
        wait_until(INSIDE);
        return pid;
    }
    uint64_t *door;
    if (um_mem_gate_enter(doors, &door) != 0)
        _exit(1);
    um_store_release_u32(word(), INSIDE);
    if (!leaves) {
        for (;;)
            pause();
    }
    usleep(SOME_US);
    um_store_release_u32(word(), LEFT);
    um_mem_gate_leave(door);
    _exit(0);
}

static void the_owner_waits_for_who_is_inside(void **state)
{
    struct um_mem_gate gate;
    int status;
    (void)state;
    pid_t pid = writer_start(true);
    um_mem_gate_shut(&gate);
    assert_int_equal(um_load_acquire_u32(word()), LEFT);
    um_mem_gate_end(&gate);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void nobody_enters_while_it_is_shut_and_all_may_afterwards(void **state)
{
    struct um_mem_gate gate;
    uint64_t *door[UM_DOORS + 1];
    (void)state;
    um_mem_gate_shut(&gate);
    assert_int_equal(um_mem_gate_enter(doors, &door[0]), -EAGAIN);
    um_mem_gate_open(&gate);
    assert_int_equal(um_mem_gate_enter(doors, &door[0]), 0);
    um_mem_gate_leave(door[0]);
    um_mem_gate_end(&gate);
    for (int i = 0; i < UM_DOORS; i++)
        assert_int_equal(um_mem_gate_enter(doors, &door[i]), 0);
    assert_int_equal(um_mem_gate_enter(doors, &door[UM_DOORS]), -EAGAIN); /* living writers have all doors */
    for (int i = 0; i < UM_DOORS; i++)
        um_mem_gate_leave(door[i]);
}

static void a_dead_writer_holds_up_neither_the_owner_nor_writers(void **state)
{
    struct um_mem_gate gate;
    uint64_t *door[UM_DOORS];
    (void)state;
    for (int owner = 0; owner < 2; owner++) {
        pid_t pid = writer_start(false);
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        if (owner) {
            um_mem_gate_shut(&gate);
            um_mem_gate_end(&gate);
        }
        for (int i = 0; i < UM_DOORS; i++)
            assert_int_equal(um_mem_gate_enter(doors, &door[i]), 0);
        for (int i = 0; i < UM_DOORS; i++)
            um_mem_gate_leave(door[i]);
    }
}

static void a_stopped_writer_is_not_waited_for_and_frees_no_door_of_others(void **state)
{
    struct um_mem_gate gate;
    int status;
    (void)state;
    pid_t pid = writer_start(true);
    kill(pid, SIGSTOP);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    um_mem_gate_shut(&gate);
    kill(pid, SIGCONT);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    for (int i = 0; i < UM_DOORS; i++) /* the writer has left, and the owner still has its door */
        assert_true(doors->door[i].writer & UM_DOOR_OWNERS);
    um_mem_gate_end(&gate);
}

static void words_that_nobody_wrote_are_not_waited_for(void **state)
{
    struct um_mem_gate gate;
    uint64_t *door;
    (void)state;
    for (int i = 0; i < UM_DOORS; i++)
        doors->door[i].writer = i % 2 ? UINT64_MAX : 7;
    um_mem_gate_shut(&gate);
    um_mem_gate_end(&gate);
    assert_int_equal(um_mem_gate_enter(doors, &door), 0);
    um_mem_gate_leave(door);
}

/* More ports than open() opens: end() leaves the first ones alone, where writers may be again. */
static void the_end_opens_the_doors_of_the_other_ports_alone(void **state)
{
    enum { PORTS = UM_GATE_PORTS + 2 };
    struct um_mem_gated more[PORTS];
    struct um_mem_doors_shm *all = calloc(PORTS, sizeof(*all));
    struct um_mem_gate gate;
    uint64_t *door, *last;
    (void)state;
    assert_non_null(all);
    for (int i = 0; i < PORTS; i++)
        um_mem_gate_add(&more[i], &all[i]);
    um_mem_gate_shut(&gate);
    assert_int_equal(um_mem_gate_enter(&all[PORTS - 1], &last), -EAGAIN);
    um_mem_gate_open(&gate);
    assert_int_equal(um_mem_gate_enter(&all[0], &door), 0);
    um_mem_gate_end(&gate);
    assert_true(*door == um_process_self());
    um_mem_gate_leave(door);
    assert_int_equal(um_mem_gate_enter(&all[PORTS - 1], &last), 0);
    um_mem_gate_leave(last);
    for (int i = 0; i < PORTS; i++)
        um_mem_gate_remove(&more[i]);
    free(all);
}

int main(void)
{
    doors = mmap(NULL, sizeof(*doors) + 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (doors == MAP_FAILED)
        return 1;
    um_mem_gate_add(&gated, doors);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_owner_waits_for_who_is_inside),
        cmocka_unit_test(nobody_enters_while_it_is_shut_and_all_may_afterwards),
        cmocka_unit_test(a_dead_writer_holds_up_neither_the_owner_nor_writers),
        cmocka_unit_test(a_stopped_writer_is_not_waited_for_and_frees_no_door_of_others),
        cmocka_unit_test(words_that_nobody_wrote_are_not_waited_for),
        cmocka_unit_test(the_end_opens_the_doors_of_the_other_ports_alone),
    };
    return cmocka_run_group_tests_name("gate", tests, NULL, NULL);
}
