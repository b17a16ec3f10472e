/*
 * One-sided operations that the call itself executes by loads and stores: which ones, that they complete at return, and
 * that the others, which must be refused, must wait, or are executed in another way, end as they should.
 */
#include "world.h"

#include "core/endpoint.h"
#include "machine/sim/sim.h"

#include "needs.h"

#include <sys/mman.h>

enum { MEMORY = 4096, KEY = 7, BOTH = UM_ACCESS_REMOTE_READ | UM_ACCESS_REMOTE_WRITE };

/* Registered: the first `LENGTH` bytes. The last word of them is not whole. */
enum { LENGTH = 60 };

static unsigned char memory[MEMORY] __attribute__((aligned(MEMORY)));
static uint64_t here;
static unsigned char old[40]; /* what an operation on a few elements fetches */

struct
try {
    struct world w;
    struct um_core_region region;
    struct um_core_peer *peer;
};

static void open_try(struct try *t, int to, uint32_t access)
{
    memset(memory, 0x11, sizeof(memory));
    here = 0x22;
    world_open(&t->w, 2);
    t->region = (struct um_core_region){.key = KEY, .base = (uintptr_t)memory, .len = LENGTH, .access = access};
    assert_int_equal(um_core_regions_add(t->w.node[to].regions, &t->region), 0);
    t->peer = peer_of(&t->w, 0, to);
}

static void close_try(struct try *t, int to)
{
    um_core_regions_remove(t->w.node[to].regions, &t->region);
    world_close(&t->w);
}

/*
 * end: what the call of proto returned, or, if it accepted the operation, 0 or the negative errno with which that
 * ended. ended() sets it and waits for that end. True if loads and stores executed the operation.
 */
static int end;
static bool ended(struct try *t, int ret, const struct um_core_stats *before)
{
    const struct um_core_stats *now = um_core_ep_stats(t->w.node[0].ep);
    const bool mapped = now->mapped != before->mapped;
    end = ret;
    if (mapped) {
        assert_int_equal(ret, UM_EXECUTED); /* no completion follows */
        assert_int_equal(now->mapped - before->mapped, 1);
    }
    if (ret == UM_EXECUTED)
        assert_int_equal(now->traffic[0].sent + now->traffic[1].sent,
                         before->traffic[0].sent + before->traffic[1].sent + 1);
    if (ret == 0)
        end = -next_of(&t->w, 0)->error;
    return mapped;
}

static bool move(struct try *t, uint32_t flags, uint64_t addr, size_t len)
{
    struct um_core_ep *ep = t->w.node[0].ep;
    const struct um_core_stats before = *um_core_ep_stats(ep);
    const struct iovec iov = {&here, len};
    const struct um_proto_rma r = {.iov = &iov, .count = 1, .peer = t->peer, .addr = addr, .key = KEY};
    return ended(t, flags & UM_OP_READ ? um_proto_rma_read(ep, &r) : um_proto_rma_write(ep, &r), &before);
}

static bool update(struct try *t, uint8_t kind, uint8_t op, uint64_t addr)
{
    static const uint64_t operand = 1, compare = 0x1111111111111111;
    const struct um_proto_atomic a = {.operand = &operand,
                                      .compare = &compare,
                                      .result = kind == UM_ATOMIC_BASE ? NULL : &here,
                                      .peer = t->peer,
                                      .addr = addr,
                                      .key = KEY,
                                      .count = 1,
                                      .type = UM_TYPE_UINT64,
                                      .op = op,
                                      .kind = kind};
    const struct um_core_stats before = *um_core_ep_stats(t->w.node[0].ep);
    return ended(t, um_proto_atomic_start(t->w.node[0].ep, &a), &before);
}

/* Kinds of operations on one word. executed() tries them all: returns those that loads and stores executed, and sets
 * `refused` to those that failed, other than with -EAGAIN. */
enum { PUT = 1, GET = 2, ADD = 4, LOOK = 8, FETCH = 16, SWAP = 32, ALL = 63 };
static unsigned refused;
static unsigned note(unsigned bit, bool done)
{
    refused |= end < 0 && end != -EAGAIN ? bit : 0;
    return done ? bit : 0;
}

static unsigned executed(struct try *t, uint64_t addr)
{
    unsigned done = 0;
    refused = 0;
    done |= note(PUT, move(t, UM_OP_WRITE, addr, 8));
    done |= note(GET, move(t, UM_OP_READ, addr, 8));
    done |= note(ADD, update(t, UM_ATOMIC_BASE, UM_ATOMIC_SUM, addr));
    done |= note(LOOK, update(t, UM_ATOMIC_FETCH, UM_ATOMIC_READ, addr));
    done |= note(FETCH, update(t, UM_ATOMIC_FETCH, UM_ATOMIC_SUM, addr));
    done |= note(SWAP, update(t, UM_ATOMIC_COMPARE, UM_ATOMIC_CSWAP, addr));
    return done;
}

static void expect_untouched(void)
{
    assert_true(is_all(memory, sizeof(memory), 0x11));
    assert_int_equal(here, 0x22);
}

/* A window on a peer's memory is mapped if that is adopted; one on this process's own, if copies are allowed. */
static bool is_mapped(struct try *t)
{
    const struct um_window *w = t->peer->window;
    return w && w->level >= UM_LEVEL_MAPPED;
}

static void what_is_mapped_is_done_at_once(void **state)
{
    (void)state;
    for (int to = 0; to < 2; to++) {
        struct try t;
        uint64_t *word = (uint64_t *)(void *)(memory + 8);
        open_try(&t, to, BOTH);
        bool done = move(&t, UM_OP_WRITE, 8, 8);
        assert_int_equal(done, is_mapped(&t));
        if (variant.adopt && variant.private_copy && !variant.second)
            assert_true(done);
        if (done) {
            assert_int_equal(*word, 0x22);
            assert_true(update(&t, UM_ATOMIC_BASE, UM_ATOMIC_SUM, 8));
            assert_int_equal(*word, 0x23);
            assert_true(update(&t, UM_ATOMIC_FETCH, UM_ATOMIC_SUM, 8));
            assert_int_equal(here, 0x23);
            assert_int_equal(*word, 0x24);
            assert_true(update(&t, UM_ATOMIC_COMPARE, UM_ATOMIC_CSWAP, 8)); /* the comparison is not equal */
            assert_int_equal(here, 0x24);
            assert_int_equal(*word, 0x24);
            assert_true(update(&t, UM_ATOMIC_COMPARE, UM_ATOMIC_CSWAP, 16)); /* here the comparison is equal */
            assert_int_equal(memory[16], 1);
            assert_true(move(&t, UM_OP_READ, 16, 8));
            assert_int_equal(here, 1);
            assert_int_equal(t.w.node[0].count, 0);
        } else {
            assert_true(end == -EAGAIN || *word == 0x22);
        }
        close_try(&t, to);
    }
}

static void what_lies_outside_is_refused(void **state)
{
    static const uint64_t outside[] = {56, 64, 128, MEMORY, (uint64_t)0 - 8, (uint64_t)0 - 64};
    (void)state;
    for (int to = 0; to < 2; to++) {
        struct try t;
        open_try(&t, to, BOTH);
        for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]); i++) {
            assert_int_equal(executed(&t, outside[i]), 0);
            assert_true(!is_mapped(&t) || refused == ALL);
        }
        assert_false(move(&t, UM_OP_WRITE, LENGTH, 1));
        assert_true(end < 0);
        if (is_mapped(&t)) {
            assert_false(move(&t, UM_OP_WRITE, 0, SIZE_MAX));
            assert_int_equal(end, -ERANGE);
        }
        expect_untouched();
        assert_int_equal(move(&t, UM_OP_WRITE, LENGTH - 4, 4), is_mapped(&t));
        close_try(&t, to);
    }
}

static void what_is_not_allowed_is_refused(void **state)
{
    static const struct {
        uint32_t access;
        unsigned may;
    } cases[] = {{0, 0},
                 {UM_ACCESS_REMOTE_READ, GET | LOOK},
                 {UM_ACCESS_REMOTE_WRITE, PUT | ADD},
                 {BOTH, PUT | GET | ADD | LOOK | FETCH | SWAP}};
    (void)state;
    for (int to = 0; to < 2; to++) {
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            struct try t;
            open_try(&t, to, cases[i].access);
            unsigned done = executed(&t, 8);
            assert_int_equal(done, is_mapped(&t) ? cases[i].may : 0);
            assert_true(!is_mapped(&t) || refused == (ALL & ~cases[i].may));
            if (!(cases[i].access & UM_ACCESS_REMOTE_WRITE))
                assert_true(is_all(memory, sizeof(memory), 0x11));
            close_try(&t, to);
        }
    }
}

/*
 * Wider and misaligned elements are updated under locks, which the processor's own atomics do not take. Here a dead
 * process holds all locks. Whoever takes a lock replaces that holder, so the test sees which ones were taken.
 */
static void a_misaligned_element_is_updated_under_its_lock(void **state)
{
    static const struct {
        uint8_t kind, op;
    } updates[] = {{UM_ATOMIC_BASE, UM_ATOMIC_SUM},
                   {UM_ATOMIC_FETCH, UM_ATOMIC_READ},
                   {UM_ATOMIC_FETCH, UM_ATOMIC_SUM},
                   {UM_ATOMIC_COMPARE, UM_ATOMIC_CSWAP}};
    const uint64_t dead = UINT64_MAX;
    (void)state;
    for (int to = 0; to < 2; to++) {
        struct try t;
        open_try(&t, to, BOTH);
        struct um_locks_shm *locks = um_core_regions_locks(t.w.node[to].regions);
        for (uint64_t addr = 0; addr < 8 * sizeof(updates) / sizeof(updates[0]); addr++) {
            const size_t i = addr / 8;
            for (int n = 0; n < UM_LOCKS; n++)
                um_store_relaxed_u64(&locks->lock[n].holder, dead);
            do {
                (void)update(&t, updates[i].kind, updates[i].op, addr % 8);
                world_progress(&t.w);
            } while (end == -EAGAIN);
            assert_true(end == UM_EXECUTED || end == 0);
            int taken = 0;
            for (int n = 0; n < UM_LOCKS; n++)
                taken += um_load_relaxed_u64(&locks->lock[n].holder) != dead;
            assert_int_equal(taken, addr % 8 ? 1 : 0);
        }
        memset(locks, 0, sizeof(*locks));
        close_try(&t, to);
    }
}

/* Updates a few elements of `size` bytes. Element i has the operand i + 1, and compares equal if i is even. */
static bool update_few(struct try *t, uint8_t kind, uint8_t op, size_t size, uint64_t addr, uint8_t count)
{
    static unsigned char operand[32], compare[32];
    memset(operand, 0, sizeof(operand));
    memset(compare, 0, sizeof(compare));
    memset(old, 0x22, sizeof(old));
    for (size_t i = 0; i < count; i++) {
        operand[i * size] = (unsigned char)(i + 1);
        memset(compare + i * size, i % 2 ? 0x12 : 0x11, size);
    }
    const struct um_proto_atomic a = {.operand = operand,
                                      .compare = compare,
                                      .result = kind == UM_ATOMIC_BASE ? NULL : old,
                                      .peer = t->peer,
                                      .addr = addr,
                                      .key = KEY,
                                      .type = size == 1   ? UM_TYPE_UINT8
                                              : size == 2 ? UM_TYPE_UINT16
                                              : size == 4 ? UM_TYPE_UINT32
                                                          : UM_TYPE_UINT64,
                                      .op = op,
                                      .kind = kind,
                                      .count = count};
    const struct um_core_stats before = *um_core_ep_stats(t->w.node[0].ep);
    return ended(t, um_proto_atomic_start(t->w.node[0].ep, &a), &before);
}

/* The first byte of each element at addr must be become(i), the others 0 if it was swapped; all else is as it was. */
static void expect_few(size_t size, uint64_t addr, uint8_t count, unsigned char (*become)(size_t i), bool fetched)
{
    for (size_t k = 0; k < sizeof(memory); k++) {
        const size_t i = (k - addr) / size;
        const bool is_first = k >= addr && i < count && (k - addr) % size == 0;
        const bool is_swapped = become(0) == 1 && k >= addr && i < count && i % 2 == 0;
        assert_int_equal(memory[k], is_first ? become(i) : is_swapped ? 0 : 0x11);
    }
    assert_true(is_all(old, fetched ? count * size : 0, 0x11));
    assert_true(is_all(old + (fetched ? count * size : 0), sizeof(old) - (fetched ? count * size : 0), 0x22));
    memset(memory, 0x11, sizeof(memory));
}

static unsigned char sum_of(size_t i)
{
    return (unsigned char)(0x11 + i + 1);
}

static unsigned char swapped_to(size_t i)
{
    return i % 2 ? 0x11 : (unsigned char)(i + 1);
}

static void a_few_elements_are_updated_together(void **state)
{
    (void)state;
    for (int to = 0; to < 2; to++) {
        struct try t;
        open_try(&t, to, BOTH);
        const struct um_core_stats *stats = um_core_ep_stats(t.w.node[0].ep);
        for (size_t size = 1; size <= 8; size *= 2) {
            for (uint8_t count = 1; count <= 4; count++) {
                const uint64_t before = stats->mapped, bytes = um_core_ep_traffic(t.w.node[0].ep).bytes_sent;
                const bool done = update_few(&t, UM_ATOMIC_BASE, UM_ATOMIC_SUM, size, 8, count);
                assert_int_equal(done, is_mapped(&t));
                if (!done)
                    continue;
                expect_few(size, 8, count, sum_of, false);
                assert_true(update_few(&t, UM_ATOMIC_FETCH, UM_ATOMIC_SUM, size, 24, count));
                expect_few(size, 24, count, sum_of, true);
                assert_true(update_few(&t, UM_ATOMIC_COMPARE, UM_ATOMIC_CSWAP, size, 16, count));
                expect_few(size, 16, count, swapped_to, true);
                assert_int_equal(stats->mapped - before, 3);
                assert_int_equal(um_core_ep_traffic(t.w.node[0].ep).bytes_sent - bytes, 3 * count * size);
                const uint64_t last = LENGTH - LENGTH % size - size;
                assert_int_equal(update_few(&t, UM_ATOMIC_BASE, UM_ATOMIC_SUM, size, last, count), count == 1);
                assert_int_equal(end, count == 1 ? UM_EXECUTED : -ERANGE);
                memset(memory + last, count == 1 ? 0x11 : memory[last], size);
                assert_true(is_all(memory, sizeof(memory), 0x11));
            }
        }
        close_try(&t, to);
    }
}

/* One region is mapped, the other one is left to its owner: no operation on the first overtakes one on the second. */
static void nothing_overtakes_what_the_peer_has_not_answered(void **state)
{
    static unsigned char result[MIB], remote[MIB];
    struct try t;
    (void)state;
    open_try(&t, 1, BOTH);
    struct um_core_region other = {
        .key = KEY + 1, .base = (uintptr_t)remote, .len = MIB, .access = UM_ACCESS_REMOTE_READ};
    um_core_regions_add(t.w.node[1].regions, &other);
    (void)executed(&t, 8);
    const bool mapped = is_mapped(&t);
    memset(memory, 0x11, sizeof(memory));
    here = 0x22;
    const struct um_proto_atomic slow = {.result = result,
                                         .peer = t.peer,
                                         .key = KEY + 1,
                                         .count = MIB / 8,
                                         .type = UM_TYPE_UINT64,
                                         .op = UM_ATOMIC_READ,
                                         .kind = UM_ATOMIC_FETCH};
    int ret;
    while ((ret = start_atomic(&t.w.node[0], &slow)) == -EAGAIN)
        world_progress(&t.w);
    assert_int_equal(ret, 0);
    if (untaken(&t.w, 0) == 0 && mapped) {
        assert_int_equal(executed(&t, 8), 0);
        assert_int_equal(end, -EAGAIN);
        assert_int_equal(refused, 0);
        expect_untouched();
    }
    assert_int_equal(next_of(&t.w, 0)->error, 0);
    unsigned done = executed(&t, 8);
    assert_int_equal(done != 0, is_mapped(&t));
    um_core_regions_remove(t.w.node[1].regions, &other);
    close_try(&t, 1);
}

static void nothing_is_done_to_a_peer_that_is_lost(void **state)
{
    static uint64_t in;
    struct try t;
    (void)state;
    if (variant.machine != &um_machine_sim)
        return; /* no peer on another machine can be killed here */
    open_try(&t, 1, BOTH);
    (void)executed(&t, 8);
    memset(memory, 0x11, sizeof(memory));
    here = 0x22;
    send_buf(&t.w, 1, 0, &in, 8, 1, 0, NULL);
    recv_buf(&t.w, 0, t.peer, &in, 8, 1, 0, 0, NULL);
    assert_int_equal(next_of(&t.w, 0)->error, 0);
    recv_buf(&t.w, 0, t.peer, &in, 8, 2, 0, 0, NULL);
    um_sim_kill(&t.w.node[1].addr);
    struct um_core_ep *dead = t.w.node[1].ep;
    t.w.node[1].ep = NULL;
    assert_int_equal(next_of(&t.w, 0)->error, ECONNRESET);
    assert_int_equal(executed(&t, 8), 0);
    assert_int_equal(end, -EPIPE);
    expect_untouched();
    t.w.node[1].ep = dead;
    close_try(&t, 1);
}

enum { LARGE = 3 * MIB, AT = 5 };

/* Moves bytes by the slow path. Returns the error of the completion. */
static int move_large(struct try *t, uint32_t flags, unsigned char *buf, size_t len)
{
    struct iovec pieces[] = {{buf, 100}, {buf + 100, len - 100}};
    const struct um_proto_rma op = {.iov = pieces, .count = 2, .peer = t->peer, .addr = AT, .key = KEY, .flags = flags};
    rma(&t->w, 0, &op);
    return next_of(&t->w, 0)->error;
}

/*
 * Operations on own memory run under a fault guard, which covers a bounded range; without copies of private memory
 * there is no other way. Neither a large operation nor a fault changes how the next one is executed.
 */
static void a_large_operation_on_oneself_changes_nothing(void **state)
{
    static unsigned char from[LARGE];
    const struct variant before = variant;
    struct try t;
    (void)state;
    needs(has_private_copy()); /* by it the fault guard reads the memory that a stand-in replaces */
    unsigned char *own = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(own, MAP_FAILED);
    variant.private_copy = false;
    world_open(&t.w, 1);
    variant = before;
    t.region = (struct um_core_region){.key = KEY, .base = (uintptr_t)own, .len = LARGE, .access = BOTH};
    assert_int_equal(um_core_regions_add(t.w.node[0].regions, &t.region), 0);
    t.peer = peer_of(&t.w, 0, 0);
    here = 7;
    const bool first = move(&t, UM_OP_WRITE, 0, 8);
    const struct um_core_stats *stats = um_core_ep_stats(t.w.node[0].ep);
    const uint64_t mapped = stats->mapped;
    for (size_t len = 2 * MIB; len <= LARGE - AT; len += MIB - AT) {
        fill(from, len, 3);
        assert_int_equal(move_large(&t, UM_OP_WRITE, from, len), 0);
        assert_true(is_filled(own + AT, len, 3));
        memset(from, 0, len);
        assert_int_equal(move_large(&t, UM_OP_READ, from, len), 0);
        assert_true(is_filled(from, len, 3));
        assert_int_equal(move(&t, UM_OP_WRITE, 0, 8), first);
    }
    assert_int_equal(stats->mapped - mapped, first ? 6 : 0);
    assert_int_equal(mprotect(own + 2 * MIB, MIB, PROT_READ), 0);
    assert_int_equal(move_large(&t, UM_OP_WRITE, from, LARGE - AT), EFAULT);
    assert_int_equal(move(&t, UM_OP_WRITE, 0, 8), first);
    um_core_regions_remove(t.w.node[0].regions, &t.region);
    world_close(&t.w);
    munmap(own, LARGE);
}

static const struct CMUnitTest tests[] = {
    /* First, because it meets a fault: cmocka installs and removes its own signal handlers for each test. */
    cmocka_unit_test(a_large_operation_on_oneself_changes_nothing),
    cmocka_unit_test(what_is_mapped_is_done_at_once),
    cmocka_unit_test(what_lies_outside_is_refused),
    cmocka_unit_test(what_is_not_allowed_is_refused),
    cmocka_unit_test(a_misaligned_element_is_updated_under_its_lock),
    cmocka_unit_test(a_few_elements_are_updated_together),
    cmocka_unit_test(nothing_overtakes_what_the_peer_has_not_answered),
    cmocka_unit_test(nothing_is_done_to_a_peer_that_is_lost),
};
WORLD_MAIN("fast", tests)
