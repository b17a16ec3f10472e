/* Random traffic of all kinds at once among four endpoints, driven in turn by one thread, and by one thread each. */
#include "actor.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "machine/sim/sim.h"

#include <pthread.h>
#include <stdio.h>

static struct actor actors[ACTORS_MAX];
static uint32_t done_count;

static uint32_t goal(uint32_t quick)
{
    return getenv("UM_TEST_LONG") ? quick * 20 : quick;
}

static void actors_open(uint32_t seed, uint32_t messages)
{
    um_sim_configure(seed, variant.stall_percent, variant.sim_modes);
    for (uint32_t i = 0; i < ACTORS_MAX; i++)
        actor_open(&actors[i], i, ACTORS_MAX, messages, seed);
    for (uint32_t i = 0; i < ACTORS_MAX; i++)
        actor_connect(&actors[i], actors);
    done_count = 0;
}

static void actors_close(void)
{
    actor_check_tallies(actors, ACTORS_MAX);
    for (int i = 0; i < ACTORS_MAX; i++)
        actor_close(&actors[i]);
}

static uint64_t actor_moved(const struct actor *a)
{
    const struct um_core_stats *s = um_core_ep_stats(a->node.ep);
    const struct um_core_traffic t = um_core_ep_traffic(a->node.ep);
    return t.sent + t.received + t.bytes_received + s->copied + s->bounced;
}

static void random_traffic_in_turn_arrives_whole_and_in_order(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 2; seed++) {
        uint64_t random = seed * 99 + 5, moved = 0, since = um_clock_ns();
        actors_open(seed, goal(60));
        for (uint32_t left = ACTORS_MAX; left > 0;) {
            for (int i = 0; i < 5000; i++)
                actor_step(&actors[rnd(&random, ACTORS_MAX)]);
            left = 0;
            uint64_t now = 0;
            for (int i = 0; i < ACTORS_MAX; i++) {
                left += !actor_is_done(&actors[i]);
                now += actor_moved(&actors[i]);
            }
            if (now != moved)
                since = um_clock_ns();
            moved = now;
            if (um_clock_ns() - since > UINT64_C(30000000000))
                fail_msg("seed %u: the traffic stands still", seed);
        }
        actors_close();
    }
}

static void *actor_thread(void *arg)
{
    struct actor *a = arg;
    while (!actor_is_done(a))
        actor_step(a);
    um_rmw_add_u32(&done_count, 1);
    while (um_load_relaxed_u32(&done_count) < ACTORS_MAX) /* the others still need progress here */
        um_core_ep_progress(a->node.ep);
    return NULL;
}

static void random_traffic_of_a_thread_for_each_arrives_whole_and_in_order(void **state)
{
    (void)state;
    for (uint32_t seed = 11; seed <= 11; seed++) {
        pthread_t thread[ACTORS_MAX];
        actors_open(seed, goal(60));
        for (int i = 0; i < ACTORS_MAX; i++)
            assert_int_equal(pthread_create(&thread[i], NULL, actor_thread, &actors[i]), 0);
        for (int i = 0; i < ACTORS_MAX; i++)
            pthread_join(thread[i], NULL);
        actors_close();
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(random_traffic_in_turn_arrives_whole_and_in_order),
    cmocka_unit_test(random_traffic_of_a_thread_for_each_arrives_whole_and_in_order),
};
WORLD_MAIN("soak", tests)
