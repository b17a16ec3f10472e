/*
 * Several processes execute atomics on the same memory at once, and no update may be lost: single elements, many at a
 * time, plain stores beside them; then holders of locks that die, or only sleep.
 */
#include "proto/atomic_reference_test.h"

#include "base/cpu_pair.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 4, ROUNDS = 3000, HAMMER = 1000000, CELL = 128 };

struct shared {
    struct um_locks_shm locks;
    unsigned char cell[UM_TYPES * 2][CELL]; /* each datatype aligned, and not */
    uint64_t bits, least, most, by_cswap;
    uint32_t go;
} __attribute__((aligned(4096)));

static struct shared *shared_new(void)
{
    struct shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(s != MAP_FAILED);
    return s;
}

static void apply(struct shared *s, unsigned type, unsigned op, void *at, const void *src, const void *cmp,
                  void *result)
{
    struct um_lock_party self = party();
    um_proto_atomic_apply(&(struct um_proto_atomic_call){.type = (uint8_t)type,
                                                         .op = (uint8_t)op,
                                                         .count = 1,
                                                         .target = at,
                                                         .operand = src,
                                                         .compare = cmp,
                                                         .result = result,
                                                         .lock_key = (uintptr_t)at,
                                                         .locks = &s->locks,
                                                         .party = &self});
}

static void one_of(unsigned type, void *to)
{
    const u128 one = 1;
    if (is_integer(type))
        memcpy(to, &one, um_proto_atomic_size(type));
    else
        real_put(type, (struct real){1, is_complex(type)}, to);
}

/* The n-th cell: aligned, or, from UM_TYPES on, misaligned. */
static unsigned char *cell_of(struct shared *s, unsigned n)
{
    return s->cell[n] + (n >= UM_TYPES ? 61 : 0);
}

/* Cells that all processes update very often at the same time. */
static bool is_hammered(unsigned n)
{
    return n == UM_TYPE_INT128 || n == UM_TYPE_DOUBLE || n == UM_TYPES + UM_TYPE_UINT64;
}

static void hammer(struct shared *s, unsigned n)
{
    unsigned char one[UM_ATOMIC_ELEMENT_MAX];
    one_of(n % UM_TYPES, one);
    for (int i = 0; i < HAMMER; i++)
        apply(s, n % UM_TYPES, UM_ATOMIC_SUM, cell_of(s, n), one, NULL, NULL);
}

static void contend(struct shared *s, unsigned self)
{
    unsigned char one[UM_ATOMIC_ELEMENT_MAX];
    while (um_load_acquire_u32(&s->go) == 0)
        um_cpu_relax();
    for (unsigned n = 0; n < UM_TYPES * 2; n++) {
        if (is_hammered(n))
            hammer(s, n);
    }
    for (uint64_t round = 0; round < ROUNDS; round++) {
        for (unsigned n = 0; n < UM_TYPES * 2; n++) {
            unsigned char old[UM_ATOMIC_ELEMENT_MAX], minus[UM_ATOMIC_ELEMENT_MAX] = {0};
            unsigned type = n % UM_TYPES;
            one_of(type, one);
            if ((round + n) % 3) { /* two steps forward, one back: by different operations */
                apply(s, type, UM_ATOMIC_SUM, cell_of(s, n), one, NULL, round % 2 ? old : NULL);
            } else if (is_integer(type)) {
                memset(minus, 0xff, um_proto_atomic_size(type));
                apply(s, type, UM_ATOMIC_SUM, cell_of(s, n), minus, NULL, old);
            } else {
                apply(s, type, UM_ATOMIC_DIFF, cell_of(s, n), one, NULL, old);
            }
        }
        uint64_t mine = (uint64_t)1 << ((uint64_t)self * 8 + round % 8), number = (uint64_t)self * ROUNDS + round + 1,
                 seen = 0;
        apply(s, UM_TYPE_UINT64, UM_ATOMIC_BXOR, &s->bits, &mine, NULL, NULL);
        apply(s, UM_TYPE_UINT64, UM_ATOMIC_MIN, &s->least, &number, NULL, NULL);
        apply(s, UM_TYPE_UINT64, UM_ATOMIC_MAX, &s->most, &number, NULL, NULL);
        for (uint64_t wanted = 0;; wanted = seen) {
            uint64_t next = wanted + 1;
            apply(s, UM_TYPE_UINT64, UM_ATOMIC_CSWAP, &s->by_cswap, &next, &wanted, &seen);
            if (seen == wanted)
                break;
        }
    }
}

static void no_update_of_several_processes_is_lost(void **state)
{
    struct shared *s = shared_new();
    pid_t child[PROCESSES];
    (void)state;
    s->least = UINT64_MAX;
    for (unsigned p = 0; p < PROCESSES; p++) {
        child[p] = fork();
        assert_true(child[p] >= 0);
        if (child[p] == 0) {
            contend(s, p);
            _exit(0);
        }
    }
    um_store_release_u32(&s->go, 1);
    for (unsigned p = 0; p < PROCESSES; p++) {
        int status;
        assert_int_equal(waitpid(child[p], &status, 0), child[p]);
        assert_int_equal(status, 0);
    }
    for (unsigned n = 0; n < UM_TYPES * 2; n++) {
        unsigned type = n % UM_TYPES;
        int64_t sum = is_hammered(n) ? PROCESSES * HAMMER : 0;
        for (uint64_t round = 0; round < ROUNDS; round++)
            sum += (round + n) % 3 ? PROCESSES : -PROCESSES;
        unsigned char wanted[UM_ATOMIC_ELEMENT_MAX];
        const i128 whole = sum;
        if (is_integer(type))
            memcpy(wanted, &whole, um_proto_atomic_size(type));
        else
            real_put(type, (struct real){(long double)sum, is_complex(type) ? (long double)sum : 0}, wanted);
        if (!is_same(type, cell_of(s, n), wanted))
            fail_msg("datatype %u%s: updates were lost", type, n >= UM_TYPES ? ", not aligned" : "");
    }
    assert_true(s->bits == 0xffffffff); /* each process flipped each of its 8 bits an odd number of times */
    assert_int_equal(s->least, 1);
    assert_int_equal(s->most, PROCESSES * ROUNDS);
    assert_int_equal(s->by_cswap, PROCESSES * ROUNDS);
    munmap(s, sizeof(*s));
}
static_assert(ROUNDS % 8 == 0 && ROUNDS / 8 % 2 == 1 && PROCESSES == 4, "the flips");

/* ---- many elements at a time, single ones, and stores beside them ---- */

enum {
    FIELD = 512,       /* bytes that the processes with many elements update, from BESIDE on */
    BESIDE = 72,       /* bytes before the field and behind it; next to the elements they get stores */
    MANY_ROUNDS = 6000 /* of each process */
};

struct field {
    struct um_locks_shm locks;
    unsigned char byte[FIELD + 2 * BESIDE] __attribute__((aligned(64)));
    uint32_t go, done;
} __attribute__((aligned(4096)));

struct part {
    size_t from, count; /* elements of the field */
};

/* Elements that begin at BESIDE + skew, of which the last ends within the field. */
static size_t field_count(unsigned type, size_t skew)
{
    size_t size = um_proto_atomic_size(type);
    return size ? (FIELD - skew) / size : 0;
}

static void field_sum(struct field *f, unsigned type, size_t skew, struct part part, bool fetch)
{
    unsigned char one[FIELD], old[FIELD];
    size_t size = um_proto_atomic_size(type);
    struct um_lock_party self = party();
    unsigned char *at = f->byte + BESIDE + skew + part.from * size;
    for (size_t i = 0; i < part.count; i++)
        one_of(type, one + i * size);
    um_proto_atomic_apply(&(struct um_proto_atomic_call){.type = (uint8_t)type,
                                                         .op = UM_ATOMIC_SUM,
                                                         .count = part.count,
                                                         .target = at,
                                                         .operand = one,
                                                         .result = fetch ? old : NULL,
                                                         .lock_key = (uintptr_t)at,
                                                         .locks = &f->locks,
                                                         .party = &self});
}

/* What each process updates in a round: the whole field, nearly the whole field, one element. */
static struct part part_of(unsigned process, uint64_t round, size_t count)
{
    if (process == 0)
        return (struct part){0, count};
    if (process == 1)
        return (struct part){round % 3, count - 4};
    return (struct part){round % count, 1};
}

/* Stores right before the first element and right after the last one, and looks whether they stay. */
static bool stores_beside_stay(struct field *f, unsigned type, size_t skew)
{
    volatile unsigned char *before = f->byte + BESIDE + skew - 1;
    volatile unsigned char *after = f->byte + BESIDE + skew + field_count(type, skew) * um_proto_atomic_size(type);
    bool stay = true;
    for (unsigned n = 0; um_load_acquire_u32(&f->done) < 3; n++) {
        *before = (unsigned char)n;
        *after = (unsigned char)~n;
        for (int look = 0; look < 50; look++)
            stay = stay && *before == (unsigned char)n && *after == (unsigned char)~n;
    }
    return stay;
}

static void field_process(struct field *f, unsigned process, unsigned type, size_t skew)
{
    while (um_load_acquire_u32(&f->go) == 0)
        um_cpu_relax();
    if (process == 3)
        _exit(stores_beside_stay(f, type, skew) ? 0 : 1);
    for (uint64_t round = 0; round < MANY_ROUNDS; round++)
        field_sum(f, type, skew, part_of(process, round, field_count(type, skew)), round % 2);
    um_rmw_add_u32(&f->done, 1);
    _exit(0);
}

static void field_check(const struct field *f, unsigned type, size_t skew)
{
    size_t count = field_count(type, skew), size = um_proto_atomic_size(type);
    uint64_t sum[FIELD] = {0};
    for (unsigned process = 0; process < 3; process++) {
        for (uint64_t round = 0; round < MANY_ROUNDS; round++) {
            struct part part = part_of(process, round, count);
            for (size_t i = part.from; i < part.from + part.count; i++)
                sum[i]++;
        }
    }
    for (size_t i = 0; i < count; i++) {
        unsigned char wanted[UM_ATOMIC_ELEMENT_MAX];
        if (is_integer(type))
            memcpy(wanted, &(u128){sum[i]}, size);
        else
            real_put(type, (struct real){(long double)sum[i], is_complex(type) ? (long double)sum[i] : 0}, wanted);
        if (!is_same(type, f->byte + BESIDE + skew + i * size, wanted))
            fail_msg("datatype %u, skew %zu: updates of element %zu of %zu were lost", type, skew, i, count);
    }
}

static void field_run(unsigned type, size_t skew)
{
    struct field *f = mmap(NULL, sizeof(*f), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child[4];
    assert_true(f != MAP_FAILED);
    for (unsigned p = 0; p < 4; p++) {
        child[p] = fork();
        assert_true(child[p] >= 0);
        if (child[p] == 0)
            field_process(f, p, type, skew);
    }
    um_store_release_u32(&f->go, 1);
    for (unsigned p = 0; p < 4; p++) {
        int status;
        assert_int_equal(waitpid(child[p], &status, 0), child[p]);
        if (status)
            fail_msg("datatype %u, skew %zu: a store beside the elements was lost", type, skew);
    }
    field_check(f, type, skew);
    munmap(f, sizeof(*f));
}

/*
 * Two processes update many elements at a time, one updates single ones, and one stores to the bytes beside them. The
 * skews leave elements at both ends that share a word, or a pair of words, with those bytes.
 */
static void no_update_is_lost_to_many_at_a_time(void **state)
{
    static const unsigned types[] = {UM_TYPE_UINT8, UM_TYPE_INT16, UM_TYPE_UINT32,
                                     UM_TYPE_FLOAT, UM_TYPE_INT64, UM_TYPE_DOUBLE_COMPLEX};
    um_cpu_pairs_forbid(*state != NULL);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        size_t size = um_proto_atomic_size(types[i]);
        field_run(types[i], size == 1 ? 3 : size);
        field_run(types[i], 3 * size);
    }
    field_run(UM_TYPE_INT64, 5); /* not aligned: under locks */
    um_cpu_pairs_forbid(false);
}

/* ---- holders that die ---- */

static struct um_lock_shm *lock_of(struct shared *s, const void *at)
{
    return um_lock_of(&s->locks, (uintptr_t)at / UM_LOCK_LINE);
}

static void a_holder_that_is_killed_is_succeeded(void **state)
{
    struct shared *s = shared_new();
    u128 *number = (u128 *)(void *)s->cell[0];
    const u128 one = 1;
    (void)state;
    for (int reaped = 0; reaped < 2; reaped++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            struct um_lock_party self = party();
            um_lock_take(lock_of(s, number), &self);
            raise(SIGKILL);
        }
        siginfo_t info;
        assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | (reaped ? 0 : WNOWAIT)), 0);
        assert_int_equal(lock_of(s, number)->holder >> 32, child);
        apply(s, UM_TYPE_UINT128, UM_ATOMIC_SUM, number, &one, NULL, NULL);
        assert_true(*number == (u128)(unsigned)reaped + 1);
        assert_int_equal(lock_of(s, number)->holder, 0);
        if (!reaped)
            assert_int_equal(waitpid(child, NULL, 0), child);
    }
    /* the same pid, but a process that began at another time: not the holder */
    lock_of(s, number)->holder = um_process_self() ^ 1;
    apply(s, UM_TYPE_UINT128, UM_ATOMIC_SUM, number, &one, NULL, NULL);
    assert_true(*number == 3);
    munmap(s, sizeof(*s));
}

static void a_holder_that_only_sleeps_is_waited_for(void **state)
{
    struct shared *s = shared_new();
    u128 *number = (u128 *)(void *)s->cell[0];
    const u128 one = 1;
    siginfo_t info;
    (void)state;
    pid_t holder = fork();
    assert_true(holder >= 0);
    if (holder == 0) {
        struct um_lock_party self = party();
        um_lock_take(lock_of(s, number), &self);
        raise(SIGSTOP);
        *number += 1;
        um_lock_give(lock_of(s, number));
        _exit(0);
    }
    assert_int_equal(waitid(P_PID, (id_t)holder, &info, WSTOPPED), 0);
    pid_t waiter = fork();
    assert_true(waiter >= 0);
    if (waiter == 0) {
        apply(s, UM_TYPE_UINT128, UM_ATOMIC_SUM, number, &one, NULL, NULL);
        _exit(0);
    }
    usleep(200000); /* thousands of looks */
    assert_true(*number == 0);
    assert_int_equal(waitpid(waiter, NULL, WNOHANG), 0);
    assert_int_equal(kill(holder, SIGCONT), 0);
    assert_int_equal(waitpid(waiter, NULL, 0), waiter);
    assert_int_equal(waitpid(holder, NULL, 0), holder);
    assert_true(*number == 2);
    munmap(s, sizeof(*s));
}

/* Processes die at any moment while others work under the same locks: the others go on, and lose nothing of theirs. */
static void others_go_on_when_processes_are_killed_at_random(void **state)
{
    enum { VICTIMS = 60, STEADY = 20000 };
    struct shared *s = shared_new();
    u128 *theirs = (u128 *)(void *)s->cell[0], *ours = (u128 *)(void *)s->cell[0] + 1; /* one lock */
    const u128 one = 1;
    (void)state;
    pid_t steady = fork();
    assert_true(steady >= 0);
    if (steady == 0) {
        for (int i = 0; i < STEADY || um_load_acquire_u32(&s->go) == 0; i++)
            apply(s, UM_TYPE_UINT128, i % 2 ? UM_ATOMIC_DIFF : UM_ATOMIC_SUM, ours, &one, NULL, NULL);
        *ours = 4711;
        _exit(0);
    }
    for (int v = 0; v < VICTIMS; v++) {
        pid_t victim = fork();
        assert_true(victim >= 0);
        if (victim == 0) {
            for (;;)
                apply(s, UM_TYPE_UINT128, UM_ATOMIC_SUM, theirs, &one, NULL, NULL);
        }
        usleep((useconds_t)(500 + rnd() % 3000));
        assert_int_equal(kill(victim, SIGKILL), 0);
        if (v % 2)
            apply(s, UM_TYPE_UINT128, UM_ATOMIC_SUM, theirs, &one, NULL, NULL);
        assert_int_equal(waitpid(victim, NULL, 0), victim);
        apply(s, UM_TYPE_UINT128, UM_ATOMIC_SUM, theirs, &one, NULL, NULL);
    }
    um_store_release_u32(&s->go, 1);
    assert_int_equal(waitpid(steady, NULL, 0), steady);
    assert_true(*ours == 4711);
    assert_int_equal(lock_of(s, ours)->holder, 0);
    munmap(s, sizeof(*s));
}

static void a_process_knows_itself_after_a_fork(void **state)
{
    uint64_t before = um_process_self();
    (void)state;
    assert_int_equal(before >> 32, getpid());
    assert_true(um_process_holder_is_alive(before));
    assert_false(um_process_holder_is_alive(before ^ 2));
    assert_false(um_process_holder_is_alive(7)); /* no pid */
    assert_false(um_process_holder_is_alive((uint64_t)UINT32_MAX << 32 | 5));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(um_process_self() >> 32 == (uint64_t)getpid() && um_process_self() != before ? 0 : 1);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    static char words_only[] = "the processor swaps no pairs of words";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_update_of_several_processes_is_lost),
        cmocka_unit_test(no_update_is_lost_to_many_at_a_time),
        cmocka_unit_test_prestate(no_update_is_lost_to_many_at_a_time, words_only),
        cmocka_unit_test(a_holder_that_is_killed_is_succeeded),
        cmocka_unit_test(a_holder_that_only_sleeps_is_waited_for),
        cmocka_unit_test(others_go_on_when_processes_are_killed_at_random),
        cmocka_unit_test(a_process_knows_itself_after_a_fork),
    };
    return cmocka_run_group_tests_name("atomic_shared", tests, NULL, NULL);
}
