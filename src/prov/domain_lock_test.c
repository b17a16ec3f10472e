/* The domain lock: a control call never runs during a data transfer call, whether these take the mutex or not. */
#include "prov/domain_lock.c" /* NOLINT(bugprone-suspicious-include): the provider exports none of this */

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { CONTROLS = 2, ROUNDS = 20000 };

static struct um_prov_domain_mutex lock;
static uint32_t inside, stop;
static uint64_t overlaps, moves;

/* Counts when another call is inside. */
static void be_inside(void)
{
    __atomic_fetch_add(&overlaps, __atomic_exchange_n(&inside, 1, __ATOMIC_RELAXED) != 0, __ATOMIC_RELAXED);
    for (int i = 0; i < 20; i++)
        um_cpu_relax();
    __atomic_store_n(&inside, 0, __ATOMIC_RELAXED);
}

static void *transfer(void *arg)
{
    (void)arg;
    while (!um_load_relaxed_u32(&stop)) {
        um_prov_domain_lock(&lock);
        be_inside();
        um_prov_domain_unlock(&lock);
        __atomic_fetch_add(&moves, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void *control(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        um_prov_control_lock(&lock);
        be_inside();
        um_prov_control_unlock(&lock);
    }
    return NULL;
}

/* transfers: threads that make data transfer calls. */
static void run(bool serial, int transfers)
{
    pthread_t moving[2], controls[CONTROLS];
    um_prov_domain_lock_init(&lock, serial);
    stop = 0;
    overlaps = moves = 0;
    for (int i = 0; i < transfers; i++)
        assert_int_equal(pthread_create(&moving[i], NULL, transfer, NULL), 0);
    for (int i = 0; i < CONTROLS; i++)
        assert_int_equal(pthread_create(&controls[i], NULL, control, NULL), 0);
    for (int i = 0; i < CONTROLS; i++)
        pthread_join(controls[i], NULL);
    um_store_relaxed_u32(&stop, 1);
    for (int i = 0; i < transfers; i++)
        pthread_join(moving[i], NULL);
    assert_true(moves > 0);
    assert_int_equal(overlaps, 0);
    um_prov_domain_lock_fini(&lock);
}

static void control_calls_wait_for_the_one_thread_that_moves(void **state)
{
    (void)state;
    run(true, 1);
}

static void all_calls_of_several_threads_take_turns(void **state)
{
    (void)state;
    run(false, 2);
}

static uint64_t calls; /* control calls that began */

static void *control_without_pause(void *arg)
{
    (void)arg;
    while (!um_load_relaxed_u32(&stop)) {
        um_prov_control_lock(&lock);
        __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
        for (int i = 0; i < 1000; i++)
            um_cpu_relax();
        um_prov_control_unlock(&lock);
    }
    return NULL;
}

/* A data transfer call waits for the control call that runs, and not for those that the same thread makes then. */
static void a_loop_of_control_calls_lets_a_data_transfer_call_pass(void **state)
{
    (void)state;
    enum { WAITS = 300, ALLOWED = 100 }; /* 2 in fact; where it does not pass, some thousands */
    pthread_t thread;
    um_prov_domain_lock_init(&lock, true);
    if (um_prov_domain_is_shared(&lock))
        skip();
    stop = 0;
    calls = 0;
    assert_int_equal(pthread_create(&thread, NULL, control_without_pause, NULL), 0);
    uint64_t begun = 0;
    for (int waits = 0; waits < WAITS;) {
        const uint64_t before = __atomic_load_n(&calls, __ATOMIC_RELAXED);
        if (!um_prov_domain_enter(&lock)) {
            um_prov_domain_lock_slow(&lock);
            begun += __atomic_load_n(&calls, __ATOMIC_RELAXED) - before;
            waits++;
        }
        um_prov_domain_unlock(&lock);
    }
    um_store_relaxed_u32(&stop, 1);
    pthread_join(thread, NULL);
    um_prov_domain_lock_fini(&lock);
    print_message("%.2f control calls begin while a data transfer call waits\n", (double)begun / WAITS);
    assert_true(begun <= (uint64_t)ALLOWED * WAITS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control_calls_wait_for_the_one_thread_that_moves),
        cmocka_unit_test(all_calls_of_several_threads_take_turns),
        cmocka_unit_test(a_loop_of_control_calls_lets_a_data_transfer_call_pass),
    };
    return cmocka_run_group_tests_name("domain_lock", tests, NULL, NULL);
}
