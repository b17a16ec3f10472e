/*
 * A process's RMA and atomics on its own regions while others modify its tables: it trusts only its private copy.
 *
 * Node 0 reaches regions of node 1, of the same process, and its own. What an attacker would write into the shared
 * memory of node 1's domain is written here, word by word, by this process or by a child.
 */
#include "proc.h"

#include "base/atomic.h"
#include "base/log.h"
#include "core/endpoint.h"
#include "machine/mem/mem.h"

#define CTX(n) ((void *)(uintptr_t)(n))

enum { BYTES = 8192, KEY = 7, OTHER = 8, WORDS = UM_LINE / 8, BOTH = UM_ACCESS_REMOTE_READ | UM_ACCESS_REMOTE_WRITE };

static _Alignas(4096) unsigned char mine[BYTES], decoy[BYTES], second[BYTES];
static struct world w;
static struct um_core_region region, bystander;

static void quiet(enum um_log_level level, const char *text)
{
    (void)level;
    (void)text;
}

static struct um_mem_space *space_of(int node)
{
    return (struct um_mem_space *)um_core_regions_space(w.node[node].regions, 0);
}

static struct um_mem_region_shm *entry_of(const struct um_core_region *r)
{
    return ((struct um_mem_exported *)r->exported[0])->region;
}

static struct um_core_region region_of(uint64_t key, unsigned char *base)
{
    return (struct um_core_region){.key = key, .base = (uintptr_t)base, .len = BYTES, .origin = 100, .access = BOTH};
}

static int open_world(void **state)
{
    (void)state;
    um_log_set_sink(quiet);
    world_open(&w, 2);
    region = region_of(KEY, mine);
    assert_int_equal(um_core_regions_add(w.node[1].regions, &region), 0);
    memset(mine, 0, BYTES);
    memset(decoy, 0x5a, BYTES);
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    um_core_regions_remove(w.node[1].regions, &region);
    world_close(&w);
    um_log_set_sink(NULL);
    return 0;
}

/* Makes this process look up every window again. */
static void forget(void)
{
    bystander = region_of(OTHER, second);
    assert_int_equal(um_core_regions_add(w.node[0].regions, &bystander), 0);
    um_core_regions_remove(w.node[0].regions, &bystander);
}

static int rma_error(uint64_t key, uint64_t at, void *buf, size_t len, uint32_t flags)
{
    struct iovec iov = {.iov_base = buf, .iov_len = len};
    struct um_proto_rma op = {.iov = &iov,
                              .count = 1,
                              .peer = peer_of(&w, 0, 1),
                              .addr = 100 + at,
                              .key = key,
                              .context = CTX(1),
                              .flags = flags};
    rma(&w, 0, &op);
    return done_of(&w, 0, CTX(1)).error;
}

static uint64_t fetch_add(uint64_t at)
{
    static uint64_t one = 1, fetched;
    struct um_proto_atomic atomic = {.operand = &one,
                                     .result = &fetched,
                                     .peer = peer_of(&w, 0, 1),
                                     .addr = 100 + at,
                                     .key = KEY,
                                     .count = 1,
                                     .type = UM_TYPE_UINT64,
                                     .op = UM_ATOMIC_SUM,
                                     .kind = UM_ATOMIC_FETCH,
                                     .context = CTX(2)};
    while (start_atomic(&w.node[0], &atomic) == -EAGAIN)
        world_progress(&w);
    assert_int_equal(done_of(&w, 0, CTX(2)).error, 0);
    return fetched;
}

/* Demands that put, get and atomics do to the region what they should, refuse what they should, and touch nothing
 * else. */
static void expect_sound(void)
{
    static uint64_t round;
    uint64_t sent = ++round * 0x9e3779b97f4a7c15u, got = 0;
    assert_int_equal(rma_error(KEY, 16, &sent, 8, UM_OP_WRITE), 0);
    assert_memory_equal(mine + 16, &sent, 8);
    assert_int_equal(rma_error(KEY, 16, &got, 8, UM_OP_READ), 0);
    assert_int_equal(got, sent);
    uint64_t before = *(uint64_t *)(void *)(mine + 64);
    assert_int_equal(fetch_add(64), before);
    assert_int_equal(*(uint64_t *)(void *)(mine + 64), before + 1);
    assert_int_equal(rma_error(KEY, BYTES - 7, &sent, 8, UM_OP_WRITE), ERANGE);
    assert_int_equal(rma_error(KEY + 100, 0, &sent, 8, UM_OP_WRITE), EKEYREJECTED);
    assert_true(is_all(decoy, BYTES, 0x5a));
}

/* Values that an attacker might write into a word. */
static const uint64_t evil[] = {0,
                                1,
                                2,
                                3,
                                16,
                                KEY + 100,
                                UINT64_MAX,
                                UINT64_MAX - 1,
                                (uint64_t)1 << 63,
                                UM_REGION_USED | BOTH,
                                UM_REGION_USED | BOTH | (uint64_t)UM_LEVEL_COPY << UM_REGION_LEVEL_SHIFT,
                                UM_REGION_USED | BOTH | (uint64_t)UM_LEVEL_MAPPED << UM_REGION_LEVEL_SHIFT,
                                UM_REGION_USED | (uint64_t)0xff << UM_REGION_LEVEL_SHIFT,
                                (uintptr_t)decoy};
enum { EVILS = sizeof(evil) / sizeof(evil[0]) };

static void no_word_of_an_entry_leads_own_operations_astray(void **state)
{
    (void)state;
    uint64_t *entry = (void *)entry_of(&region);
    expect_sound();
    for (int word = 0; word < WORDS; word++) {
        for (int e = 0; e < EVILS; e++) {
            uint64_t good = entry[word];
            entry[word] = evil[e];
            expect_sound(); /* with the windows that are open */
            forget();
            expect_sound();
            entry[word] = good;
        }
    }
}

static void an_entry_that_points_elsewhere_as_a_whole_is_not_believed(void **state)
{
    (void)state;
    struct um_mem_region_shm *entry = entry_of(&region);
    const struct um_mem_region_shm good = *entry;
    entry->base = (uintptr_t)decoy;
    entry->len = UINT64_MAX - (uintptr_t)decoy;
    entry->origin = 100;
    entry->meta = UM_REGION_USED | BOTH | (uint64_t)UM_LEVEL_COPY << UM_REGION_LEVEL_SHIFT;
    forget();
    expect_sound();
    entry->base = 0;
    entry->len = UINT64_MAX;
    forget();
    expect_sound();
    *entry = good;
}

/* An entry for a key that the process does not export. */
static void an_entry_that_was_added_is_not_believed(void **state)
{
    (void)state;
    struct um_mem_region_shm *table = (void *)(space_of(1)->memory + UM_REGION_OFFSET);
    struct um_mem_region_shm *forged = &table[um_mem_region_place(KEY + 100, 0)];
    *forged = *entry_of(&region);
    forged->key = KEY + 100;
    forged->base = (uintptr_t)decoy;
    forget();
    expect_sound();
    *forged = (struct um_mem_region_shm){0};
}

/* Changes every word of the header, each time with endpoints that have not looked at it before. */
static void no_word_of_a_header_leads_own_operations_astray(void **state)
{
    (void)state;
    for (int word = 0; word < WORDS; word++) {
        for (int e = 0; e < EVILS; e++) {
            close_world(NULL);
            open_world(NULL);
            ((uint64_t *)(void *)space_of(1)->shm)[word] = evil[e];
            expect_sound();
            forget();
            expect_sound();
        }
    }
}

static void a_port_that_names_another_space_is_not_believed(void **state)
{
    (void)state;
    struct um_core_region other = region_of(KEY, decoy);
    struct um_mem_port_shm *port = ((struct um_mem_port *)w.node[1].ep->ports[0].port)->shm;
    assert_int_equal(um_core_regions_add(w.node[0].regions, &other), 0);
    port->space = space_of(0)->handle;
    port->space_nonce = space_of(0)->nonce;
    port->common.counters = 0x00ff00ff;
    expect_sound();
    um_core_regions_remove(w.node[0].regions, &other);
}

/* Writes of others to the table neither decide where the next region goes, nor end this one. */
static void a_place_that_was_marked_free_is_not_given_again(void **state)
{
    (void)state;
    struct um_mem_region_shm *entry = entry_of(&region);
    const struct um_mem_region_shm good = *entry;
    uint64_t key = KEY;
    while (um_mem_region_place(++key, 0) != um_mem_region_place(KEY, 0))
        ;
    struct um_core_region next = region_of(key, second);
    *entry = (struct um_mem_region_shm){0};
    assert_int_equal(um_core_regions_add(w.node[1].regions, &next), 0);
    assert_ptr_not_equal(entry_of(&next), entry);
    *entry = good;
    um_core_regions_remove(w.node[1].regions, &next);
    assert_memory_equal(entry, &good, sizeof(good));
    expect_sound();
}

/* Places that others marked as taken are not lost. */
static void a_place_that_was_marked_taken_is_given_and_readable(void **state)
{
    (void)state;
    struct um_core_region next = region_of(12345, second);
    struct um_mem_region_shm *table = (void *)(space_of(1)->memory + UM_REGION_OFFSET);
    for (uint32_t i = 0; i < UM_SEGMENTS * UM_SEGMENT_PROBE; i++) {
        struct um_mem_region_shm *r = &table[um_mem_region_place(next.key, i)];
        if (r != entry_of(&region))
            *r = (struct um_mem_region_shm){.changes = UINT64_MAX, .meta = UM_REGION_USED, .key = next.key + 1};
    }
    assert_int_equal(um_core_regions_add(w.node[1].regions, &next), 0);
    assert_non_null(entry_of(&next));
    assert_int_equal(entry_of(&next)->changes % 2, 0);
    assert_int_equal(entry_of(&next)->key, next.key);
    um_core_regions_remove(w.node[1].regions, &next);
    expect_sound();
}

/* ---- from outside, at random ---- */

static void scribble(int index)
{
    uint64_t random = (uint64_t)index + 99;
    struct um_mem_mapping map;
    struct um_mem_port *port = (struct um_mem_port *)w.node[1].ep->ports[0].port;
    int ret = port->mapper->space_attach(port, &w.node[1].addr, space_of(1)->handle, &map);
    child_demand(ret == 0, "no way to the tables");
    uint64_t *header = map.base, *table = (void *)((char *)map.base + UM_REGION_OFFSET);
    um_store_release_u32(&shared->flag[0], 1);
    while (!um_load_acquire_u32(&shared->flag[1])) {
        uint64_t value = (uint64_t)rnd(&random, 1 << 30) << rnd(&random, 34);
        uint32_t entry = um_mem_region_place(KEY, rnd(&random, 2));
        if (rnd(&random, 2))
            value = evil[rnd(&random, EVILS)];
        um_store_relaxed_u64(&table[entry * WORDS + rnd(&random, WORDS)], value);
        if (rnd(&random, 4) == 0)
            um_store_relaxed_u64(&header[3 + rnd(&random, 2)], value); /* state and moving; changes */
    }
}

static void a_table_that_is_scribbled_on_throughout_does_no_harm(void **state)
{
    (void)state;
    shared_reset();
    pid_t child = child_start(scribble, 1);
    wait_for(NULL, &shared->flag[0], 1);
    for (int i = 0; i < 2000; i++) {
        expect_sound();
        if (i % 3 == 0)
            forget();
        if (i % 50 == 0) {
            um_core_regions_remove(w.node[1].regions, &region);
            assert_int_equal(um_core_regions_add(w.node[1].regions, &region), 0);
        }
    }
    um_store_release_u32(&shared->flag[1], 1);
    child_join(child);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)
static const struct CMUnitTest tests[] = {
    CASE(no_word_of_an_entry_leads_own_operations_astray),
    CASE(an_entry_that_points_elsewhere_as_a_whole_is_not_believed),
    CASE(an_entry_that_was_added_is_not_believed),
    CASE(no_word_of_a_header_leads_own_operations_astray),
    CASE(a_port_that_names_another_space_is_not_believed),
    CASE(a_place_that_was_marked_free_is_not_given_again),
    CASE(a_place_that_was_marked_taken_is_given_and_readable),
    CASE(a_table_that_is_scribbled_on_throughout_does_no_harm),
};
WORLD_MAIN("a process's own regions", tests)
