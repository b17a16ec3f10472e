/*
 * Atomics of several processes on the memory of one: through windows, or by the owner's progress (copy=no). No update
 * is lost, whatever the datatype; and a process that is killed while it holds a lock keeps nobody waiting.
 */
#include "proc.h"

#include "needs.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#define CTX(n) ((void *)(uintptr_t)(n))

enum {
    OWNER = 0,
    INITIATORS = 3,
    VICTIMS = 12,
    ROUNDS = 1500,
    HAMMER = 300000,
    CELL = 128,
    CELLS = 2 * UM_TYPES,
    KEY = 5,
    SIZE = 65536
};

static unsigned char *region; /* of the owner */

static struct um_core_completion sum(struct world *w, struct um_core_peer *peer, uint8_t type, uint64_t addr,
                                     const void *value, void *old)
{
    const struct um_proto_atomic a = {.operand = value,
                                      .result = old,
                                      .peer = peer,
                                      .addr = addr,
                                      .key = KEY,
                                      .count = 1,
                                      .type = type,
                                      .op = UM_ATOMIC_SUM,
                                      .kind = old ? UM_ATOMIC_FETCH : UM_ATOMIC_BASE,
                                      .context = CTX(1)};
    int ret;
    while ((ret = start_atomic(&w->node[0], &a)) == -EAGAIN) {
        if (!world_progress(w))
            sched_yield();
    }
    child_demand(ret == 0, "the operation was refused");
    return child_done(w, CTX(1));
}

/* Stores the number one as an element of the datatype. */
static void one_of(uint8_t type, void *to)
{
    const float f[2] = {1, 0};
    const double d[2] = {1, 0};
    long double l[2];
    const uint64_t u[2] = {1, 0};
    memset(l, 0, sizeof(l));
    l[0] = 1;
    const void *from = type == UM_TYPE_FLOAT || type == UM_TYPE_FLOAT_COMPLEX               ? (const void *)f
                       : type == UM_TYPE_DOUBLE || type == UM_TYPE_DOUBLE_COMPLEX           ? (const void *)d
                       : type == UM_TYPE_LONG_DOUBLE || type == UM_TYPE_LONG_DOUBLE_COMPLEX ? (const void *)l
                                                                                            : (const void *)u;
    memcpy(to, from, um_proto_atomic_size(type));
}

/* Each datatype has a cell where it is aligned, and a cell where it is not. */
static uint64_t cell_addr(unsigned cell)
{
    return (uint64_t)cell * CELL + (cell >= UM_TYPES ? 61 : 0);
}

static void add_everywhere(struct world *w, struct um_core_peer *peer)
{
    unsigned char one[UM_ATOMIC_ELEMENT_MAX], old[UM_ATOMIC_ELEMENT_MAX];
    for (int round = 0; round < ROUNDS; round++) {
        for (unsigned cell = 0; cell < CELLS; cell++) {
            uint8_t type = cell % UM_TYPES;
            one_of(type, one);
            struct um_core_completion c = sum(w, peer, type, cell_addr(cell), one, round % 2 ? old : NULL);
            child_demand(c.error == 0, "an atomic failed");
        }
    }
}

/* How often each process adds to one element that takes a lock, as fast as it can. 0 where the owner executes: that
 * would be slow and show nothing. */
static int hammer_count(void)
{
    return variant.adopt && !variant.attach ? HAMMER : 0;
}

static void hammer(struct world *w, struct um_core_peer *peer)
{
    unsigned char one[UM_ATOMIC_ELEMENT_MAX];
    one_of(UM_TYPE_INT128, one);
    for (int i = 0; i < hammer_count(); i++)
        child_demand(sum(w, peer, UM_TYPE_INT128, SIZE - 32, one, NULL).error == 0, "an atomic failed");
}

/* Returns how many operations an initiator executes itself. From another pid namespace it takes no locks: the owner
 * executes what needs one. */
static uint64_t mapped_expected(void)
{
    uint64_t cells = 0;
    for (unsigned cell = 0; cell < CELLS; cell++) {
        size_t size = um_proto_atomic_size((uint8_t)(cell % UM_TYPES));
        cells += !variant.attach || (size <= 8 && cell_addr(cell) % size == 0);
    }
    return variant.adopt ? cells * ROUNDS + (uint64_t)hammer_count() : 0;
}

static void initiator(int index)
{
    struct world w;
    child_open(&w, index);
    struct um_core_peer *owner = peer_at(&w, OWNER);
    wait_for(&w, &shared->flag[0], 1);
    hammer(&w, owner);
    add_everywhere(&w, owner);
    uint64_t mapped = um_core_ep_stats(w.node[0].ep)->mapped, expected = mapped_expected();
    /* The contact with another pid namespace may come about during the first atomic: the owner executes that one
     * then. */
    child_demand(mapped == expected || (variant.attach && mapped == expected - 1),
                 "not at the level that was expected");
    um_store_release_u32(&shared->flag[index], 1);
    node_close(&w.node[0]);
}

static void victim(int index)
{
    struct world w;
    unsigned char one[UM_ATOMIC_ELEMENT_MAX];
    child_open(&w, index);
    struct um_core_peer *owner = peer_at(&w, OWNER);
    wait_for(&w, &shared->flag[0], 1);
    one_of(UM_TYPE_INT128, one);
    for (;;) {
        (void)sum(&w, owner, UM_TYPE_INT128, SIZE - 64, one, NULL);
        um_store_release_u32(&shared->count[index], 1);
    }
}

static void owner_open(struct world *w, struct um_core_region *r)
{
    region = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(region != MAP_FAILED);
    child_open(w, OWNER);
    *r = (struct um_core_region){
        .key = KEY, .base = (uintptr_t)region, .len = SIZE, .access = UM_ACCESS_REMOTE_READ | UM_ACCESS_REMOTE_WRITE};
    assert_int_equal(um_core_regions_add(w->node[0].regions, r), 0);
}

static void owner_close(struct world *w, struct um_core_region *r)
{
    um_core_regions_remove(w->node[0].regions, r);
    node_close(&w->node[0]);
    munmap(region, SIZE);
}

static long double value_of(uint8_t type, const void *at)
{
    float f;
    double d;
    long double l;
    uint64_t u = 0;
    switch (type) {
    case UM_TYPE_FLOAT:
    case UM_TYPE_FLOAT_COMPLEX:
        return memcpy(&f, at, sizeof(f)), f;
    case UM_TYPE_DOUBLE:
    case UM_TYPE_DOUBLE_COMPLEX:
        return memcpy(&d, at, sizeof(d)), d;
    case UM_TYPE_LONG_DOUBLE:
    case UM_TYPE_LONG_DOUBLE_COMPLEX:
        return memcpy(&l, at, sizeof(l)), l;
    default:
        memcpy(&u, at, um_proto_atomic_size(type) < 8 ? um_proto_atomic_size(type) : 8);
        return u;
    }
}

static void no_update_is_lost(void **state)
{
    struct world w = {.nodes = 1};
    struct um_core_region r;
    pid_t child[INITIATORS + 1];
    (void)state;
    needs(!variant.adopt || has_userfaultfd());
    needs(!variant.attach || has_pid_namespaces());
    shared_reset();
    for (int i = 1; i <= INITIATORS; i++)
        child[i] = child_start(initiator, i);
    owner_open(&w, &r);
    struct um_core_peer *self = peer_at(&w, OWNER);
    um_store_release_u32(&shared->flag[0], 1);
    hammer(&w, self); /* the owner adds, too */
    add_everywhere(&w, self);
    for (int i = 1; i <= INITIATORS; i++)
        wait_for(&w, &shared->flag[i], 1);
    for (int i = 1; i <= INITIATORS; i++)
        child_join(child[i]);
    for (unsigned cell = 0; cell < CELLS; cell++) {
        uint8_t type = cell % UM_TYPES;
        uint64_t wanted = (uint64_t)ROUNDS * (INITIATORS + 1), size = um_proto_atomic_size(type);
        if (size < 8 && type <= UM_TYPE_UINT64)
            wanted &= ((uint64_t)1 << (size * 8)) - 1;
        if (value_of(type, region + cell_addr(cell)) != (long double)wanted)
            fail_msg("datatype %u%s: updates were lost", type, cell >= UM_TYPES ? ", not aligned" : "");
    }
    uint64_t hammered;
    memcpy(&hammered, region + SIZE - 32, 8);
    assert_int_equal(hammered, hammer_count() * (INITIATORS + 1));
    owner_close(&w, &r);
}

static void who_is_killed_keeps_nobody_waiting(void **state)
{
    struct world w = {.nodes = 1};
    struct um_core_region r;
    pid_t steady, child[VICTIMS];
    uint64_t random = 4711;
    (void)state;
    needs(!variant.adopt || has_userfaultfd());
    needs(!variant.attach || has_pid_namespaces());
    shared_reset();
    steady = child_start(initiator, 1);
    for (int i = 0; i < VICTIMS; i++)
        child[i] = child_start(victim, 2 + i);
    owner_open(&w, &r);
    um_store_release_u32(&shared->flag[0], 1);
    for (int i = 0; i < VICTIMS; i++) {
        wait_for(&w, &shared->count[2 + i], 1);
        for (uint32_t n = rnd(&random, 200); n > 0; n--)
            world_progress(&w);
        child_kill(child[i]);
    }
    unsigned char one[UM_ATOMIC_ELEMENT_MAX];
    one_of(UM_TYPE_INT128, one);
    struct um_core_peer *self = peer_at(&w, OWNER);
    assert_int_equal(sum(&w, self, UM_TYPE_INT128, SIZE - 64, one, NULL).error, 0);
    wait_for(&w, &shared->flag[1], 1);
    child_join(steady);
    owner_close(&w, &r);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(no_update_is_lost),
    cmocka_unit_test(who_is_killed_keeps_nobody_waiting),
};
WORLD_MAIN("atomics of processes", tests)
