/*
 * Deferred adoption: memory with much contents is not moved at registration but when peers use it, while its owner
 * computes. Neither atomics nor the move need a call of the owner. The registration can end at any moment of this.
 */
#include "proc.h"

#include "needs.h"

#include "base/clock.h"
#include "core/endpoint.h"
#include "core/region.h"
#include "machine/mem/mem.h"
#include "machine/shm/adopt/adopt.h"

#include <dirent.h>
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CTX(n) ((void *)(uintptr_t)(n))

enum {
    OWNER = 0,
    INITIATOR = 1,
    KEY = 5,
    LEN = 24 << 20,
    ODD = 24,
    STEP = 4096,
    ADDS = 1000,
    ENDS = 12,
    OTHERS = 8 << 20 /* where another registration begins */,
    OTHER_KEY = 6,
    TIMES = 300
};

static unsigned char *memory; /* of the owner */

/* ---- the initiator ---- */

static int add_try(struct world *w, struct um_core_peer *owner, uint64_t at)
{
    static uint64_t one = 1, old;
    const struct um_proto_atomic a = {.operand = &one,
                                      .result = &old,
                                      .peer = owner,
                                      .addr = at,
                                      .key = KEY,
                                      .count = 1,
                                      .type = UM_TYPE_UINT64,
                                      .op = UM_ATOMIC_SUM,
                                      .kind = UM_ATOMIC_FETCH,
                                      .context = CTX(1)};
    int ret = start_atomic(&w->node[0], &a);
    if (ret == -EAGAIN && !world_progress(w))
        sched_yield();
    return ret;
}

static struct um_core_completion add(struct world *w, struct um_core_peer *owner, uint64_t at)
{
    int ret;
    while ((ret = add_try(w, owner, at)) == -EAGAIN)
        ;
    child_demand(ret == 0, "the atomic was refused");
    return child_done(w, CTX(1));
}

/* Tries one atomic. Returns 0 if it was done, -EAGAIN if it has to be tried again, or the error. */
static int add_once(struct world *w, struct um_core_peer *owner, uint64_t at)
{
    int ret = add_try(w, owner, at);
    return ret ? ret : -child_done(w, CTX(1)).error;
}

static int move(struct world *w, struct um_core_peer *owner, uint64_t at, void *buf, size_t len, uint32_t flags)
{
    const struct iovec iov = {.iov_base = buf, .iov_len = len};
    const struct um_proto_rma op = {
        .iov = &iov, .count = 1, .peer = owner, .addr = at, .key = KEY, .context = CTX(1), .flags = flags};
    return child_rma(w, &op);
}

static void adds(int index)
{
    struct world w;
    uint64_t word = 7;
    child_open(&w, index);
    struct um_core_peer *owner = peer_at(&w, OWNER);
    wait_for(&w, &shared->flag[0], 1);
    child_demand(move(&w, owner, 8, &word, sizeof(word), UM_OP_WRITE) == 0, "a put failed");
    child_demand(um_core_ep_stats(w.node[0].ep)->mapped == 0 || !variant.private_copy || variant.attach,
                 "it was mapped before it was used");
    um_store_release_u32(&shared->flag[2], 1);
    for (int i = 0; i < ADDS; i++)
        child_demand(add(&w, owner, (uint64_t)i * STEP).error == 0, "an atomic failed");
    child_demand(um_core_ep_stats(w.node[0].ep)->mapped >= ADDS, "the atomics were not executed here");
    um_store_release_u32(&shared->flag[1], 1);
    node_close(&w.node[0]);
}

/* Puts until the memory is mapped: until mapped access would have saved what moving costs, 24 ms, at half a microsecond
 * for each put. */
static void puts_often(int index)
{
    struct world w;
    uint64_t n = 0, got = 0;
    child_open(&w, index);
    struct um_core_peer *owner = peer_at(&w, OWNER);
    wait_for(&w, &shared->flag[0], 1);
    for (; um_core_ep_stats(w.node[0].ep)->mapped == 0; n++) {
        child_demand(n < 100000000, "it is never mapped");
        child_demand(move(&w, owner, n % 512 * STEP, &n, sizeof(n), UM_OP_WRITE) == 0, "a put failed");
    }
    child_demand(n > 10000, "it was moved for a few puts");
    child_demand(move(&w, owner, (n - 1) % 512 * STEP, &got, sizeof(got), UM_OP_READ) == 0 && got == n - 1,
                 "a put is lost");
    um_store_release_u32(&shared->flag[1], 1);
    node_close(&w.node[0]);
}

/* Adds until the registration ends, round after round. */
static void adds_until_it_ends(int index)
{
    struct world w;
    child_open(&w, index);
    struct um_core_peer *owner = peer_at(&w, OWNER);
    for (uint32_t round = 1; round <= ENDS; round++) {
        wait_for(&w, &shared->flag[0], round);
        uint64_t done = 0;
        while (add(&w, owner, 0).error == 0)
            done++;
        shared->word[0] += done;
        um_store_release_u32(&shared->flag[1], round);
    }
    node_close(&w.node[0]);
}

/* Puts one page after the other, and reads each back: nobody else writes there. */
static void puts_that_stay(int index)
{
    struct world w;
    static uint64_t page[STEP / 8], seen[STEP / 8];
    child_open(&w, index);
    struct um_core_peer *owner = peer_at(&w, OWNER);
    wait_for(&w, &shared->flag[0], 1);
    for (uint64_t n = 1; um_load_acquire_u32(&shared->flag[1]) == 0; n++) {
        const uint64_t at = OTHERS + n % 8 * STEP;
        page[0] = page[STEP / 8 - 1] = n;
        child_demand(move(&w, owner, at, page, sizeof(page), UM_OP_WRITE) == 0, "a put failed");
        child_demand(move(&w, owner, at, seen, sizeof(seen), UM_OP_READ) == 0, "a get failed");
        child_demand(memcmp(page, seen, sizeof(page)) == 0, "a put is lost");
        shared->word[1] = n;
    }
    child_demand(um_core_ep_stats(w.node[0].ep)->mapped == 0, "nothing was copied");
    node_close(&w.node[0]);
}

/* Registers its memory, and computes until it is killed; or, with word[2], waits for flag[2] and exits. */
static void owner_that_ends(int index)
{
    struct world w;
    const struct um_core_region r = {.key = KEY,
                                     .base = (uintptr_t)memory + ODD,
                                     .len = LEN,
                                     .access = UM_ACCESS_REMOTE_READ | UM_ACCESS_REMOTE_WRITE};
    static struct um_core_region region;
    child_open(&w, index);
    peer_at(&w, OWNER);
    region = r;
    child_demand(um_core_regions_add(w.node[0].regions, &region) == 0, "it cannot be registered");
    um_store_release_u32(&shared->flag[0], 1);
    if (shared->word[2])
        wait_for(NULL, &shared->flag[2], 1);
    else
        for (;;)
            um_cpu_relax();
    _exit(0);
}

/* ---- the owner ---- */

static void export(struct world *w, struct um_core_region *r, size_t len)
{
    *r = (struct um_core_region){.key = KEY,
                                 .base = (uintptr_t)memory + ODD,
                                 .len = len,
                                 .access = UM_ACCESS_REMOTE_READ | UM_ACCESS_REMOTE_WRITE};
    assert_int_equal(um_core_regions_add(w->node[0].regions, r), 0);
}

static size_t adopted(void)
{
    struct um_shm_adopt_stats stats;
    um_shm_adopt_stats_get(&stats);
    return stats.bytes;
}

static void open_all(struct world *w, pid_t *child_p, void (*fn)(int index))
{
    needs(has_userfaultfd());
    needs(!variant.attach || has_pid_namespaces());
    shared_reset();
    memory = mmap(NULL, LEN + 2 * STEP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    memset(memory, 1, LEN + 2 * STEP);
    *child_p = child_start(fn, INITIATOR);
    child_open(w, OWNER);
    peer_at(w, INITIATOR);
}

/* Demands that a forked child has a copy of its own. */
static void fork_and_change(void)
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int same = memory[2 * STEP] == 1;
        memset(memory, 3, LEN);
        _exit(same ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(memory[2 * STEP], 1);
}

/* Ends a test. Demands that the memory is private again: pages that are given up read as zero, and it is one mapping,
 * which can grow. */
static void close_all(struct world *w, pid_t child)
{
    child_join(child);
    node_close(&w->node[0]);
    assert_int_equal(adopted(), 0);
    assert_int_equal(madvise(memory + STEP, STEP, MADV_DONTNEED), 0);
    assert_int_equal(memory[STEP], 0);
    assert_int_equal(madvise(memory + 3 * STEP, STEP, MADV_FREE), 0);
    fork_and_change();
    assert_int_equal(munmap(memory + 4 * STEP, STEP), 0);
    assert_true(mmap(memory + 4 * STEP, STEP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
                MAP_FAILED);
    assert_int_equal(memory[4 * STEP], 0);
    unsigned char *grown = mremap(memory, LEN + 2 * STEP, 2 * LEN, MREMAP_MAYMOVE);
    assert_true(grown != MAP_FAILED);
    assert_int_equal(grown[LEN], 1);
    assert_int_equal(grown[LEN + 2 * STEP], 0);
    munmap(grown, 2 * LEN);
}

static void atomics_at_an_owner_that_computes_complete(void **state)
{
    struct world w;
    struct um_core_region r;
    pid_t child;
    (void)state;
    open_all(&w, &child, adds);
    export(&w, &r, LEN);
    assert_int_equal(adopted(), 0);
    um_store_release_u32(&shared->flag[0], 1);
    if (variant.attach)
        wait_for(&w, &shared->flag[2], 1); /* a first contact from another pid namespace takes a call */
    wait_for(NULL, &shared->flag[1], 1);   /* without progress */
    assert_int_equal(um_core_regions_level(w.node[0].regions, &r), UM_LEVEL_MAPPED);
    um_core_regions_remove(w.node[0].regions, &r);
    for (size_t i = 0; i < ADDS; i++) {
        uint64_t word;
        memcpy(&word, memory + ODD + i * STEP, sizeof(word));
        assert_int_equal(word, 0x0101010101010101u + 1);
    }
    assert_int_equal(memory[ODD + 8], 7);
    assert_int_equal(memory[LEN - 1], 1);
    close_all(&w, child);
}

static void what_is_used_enough_is_mapped_while_the_owner_computes(void **state)
{
    struct world w;
    struct um_core_region r;
    pid_t child;
    (void)state;
    if (!variant.private_copy || variant.attach)
        return; /* there the first put makes it move */
    open_all(&w, &child, puts_often);
    export(&w, &r, LEN);
    assert_int_equal(adopted(), 0);
    um_store_release_u32(&shared->flag[0], 1);
    wait_for(NULL, &shared->flag[1], 1);
    um_core_regions_remove(w.node[0].regions, &r);
    close_all(&w, child);
}

/* Forks while the memory moves: the child has memory that it can write. */
static void child_of_now(void)
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        memset(memory, 2, LEN);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* Waits until some of the memory has moved; the rest is moving then. */
static void part_await(struct world *w)
{
    for (uint64_t end = um_clock_ns() + UINT64_C(5000000000); adopted() == 0 && um_clock_ns() < end;) {
        if (variant.attach)
            world_progress(w);
    }
}

/* A child that moves pages of its own does not announce that for its parent, although it could write to the parent's
 * space. */
static void a_child_tells_nothing_for_its_parent(void **state)
{
    struct world w;
    int status;
    (void)state;
    shared_reset();
    child_open(&w, OWNER);
    const struct um_mem_space *space = (const struct um_mem_space *)um_core_regions_space(w.node[0].regions, 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        um_mem_own_move_begin();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(space->shm->moving & 1, 0);
    node_close(&w.node[0]);
}

static void it_can_end_at_any_moment(void **state)
{
    struct world w;
    struct um_core_region r;
    pid_t child;
    uint64_t word, random = 4711;
    (void)state;
    open_all(&w, &child, adds_until_it_ends);
    for (uint32_t round = 1; round <= ENDS; round++) {
        export(&w, &r, LEN);
        um_store_release_u32(&shared->flag[0], round);
        if (variant.attach)
            world_progress(&w);
        if (round % 3 == 2)
            part_await(&w);
        else
            usleep(round % 3 == 0 ? 0 : rnd(&random, 40000));
        if (round % 3 == 1)
            child_of_now();
        um_core_regions_remove(w.node[0].regions, &r);
        assert_int_equal(adopted(), 0);
        for (size_t i = 1; i < LEN / STEP; i++)
            assert_int_equal(memory[i * STEP], 1);
        wait_for(&w, &shared->flag[1], round);
    }
    memcpy(&word, memory + ODD, sizeof(word));
    word -= 0x0101010101010101u;
    assert_in_range(word, shared->word[0], shared->word[0] + ENDS); /* the last add of each round may be in time */
    close_all(&w, child);
}

/* Puts by the system are not lost while their pages go to and fro for another registration. */
static void puts_are_not_lost_while_memory_moves(void **state)
{
    struct world w;
    struct um_core_region r, other;
    pid_t child;
    (void)state;
    if (!variant.private_copy || variant.attach)
        return; /* no put is by the system */
    open_all(&w, &child, puts_that_stay);
    assert_int_equal(madvise(memory, STEP, MADV_WIPEONFORK), 0); /* so that the region as a whole is never moved */
    export(&w, &r, LEN);
    um_store_release_u32(&shared->flag[0], 1);
    for (int i = 0; i < TIMES; i++) {
        other = (struct um_core_region){.key = OTHER_KEY,
                                        .base = (uintptr_t)memory + ODD + OTHERS,
                                        .len = 16 * STEP,
                                        .access = UM_ACCESS_REMOTE_READ | UM_ACCESS_REMOTE_WRITE};
        assert_int_equal(um_core_regions_add(w.node[0].regions, &other), 0);
        if (i == 0)
            assert_int_equal(um_core_regions_level(w.node[0].regions, &other), UM_LEVEL_MAPPED);
        um_core_regions_remove(w.node[0].regions, &other);
        assert_int_equal(adopted(), 0);
    }
    um_store_release_u32(&shared->flag[1], 1);
    um_core_regions_level(w.node[0].regions, &r);
    child_join(child);
    assert_true(shared->word[1] > 0);
    um_core_regions_remove(w.node[0].regions, &r);
    node_close(&w.node[0]);
    munmap(memory, LEN + 2 * STEP);
}

static void its_owner_may_end_at_any_moment(void **state)
{
    uint64_t random = 4711;
    (void)state;
    if (variant.attach)
        return; /* a first contact takes a call of the owner */
    needs(has_userfaultfd());
    for (int round = 0; round < 8; round++) {
        struct world w;
        int ret = 0;
        shared_reset();
        shared->word[2] = round % 2;
        memory = mmap(NULL, LEN + 2 * STEP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(memory != MAP_FAILED);
        memset(memory, 1, LEN + 2 * STEP);
        pid_t child = child_start(owner_that_ends, INITIATOR);
        child_open(&w, OWNER);
        struct um_core_peer *owner = peer_at(&w, INITIATOR);
        wait_for(&w, &shared->flag[0], 1);
        const uint64_t end = um_clock_ns() + rnd(&random, 30000000);
        while (ret == 0 || ret == -EAGAIN) {
            ret = add_once(&w, owner, 0);
            if (um_clock_ns() > end && um_load_relaxed_u32(&shared->flag[2]) == 0) {
                um_store_release_u32(&shared->flag[2], 1);
                if (!shared->word[2])
                    child_kill(child);
            }
        }
        assert_true(ret == -EPIPE || ret == -ECONNRESET);
        if (shared->word[2])
            child_join(child);
        node_close(&w.node[0]);
        munmap(memory, LEN + 2 * STEP);
    }
}

static void nothing(int index)
{
    struct world w;
    child_open(&w, index);
    node_close(&w.node[0]);
}

static void what_has_little_contents_is_mapped_at_once(void **state)
{
    struct world w;
    struct um_core_region r;
    pid_t child;
    (void)state;
    open_all(&w, &child, nothing);
    export(&w, &r, 512 << 10);
    assert_int_equal(um_core_regions_level(w.node[0].regions, &r), UM_LEVEL_MAPPED);
    um_core_regions_remove(w.node[0].regions, &r);
    madvise(memory + STEP, LEN, MADV_DONTNEED);
    export(&w, &r, LEN);
    assert_int_equal(um_core_regions_level(w.node[0].regions, &r), UM_LEVEL_MAPPED);
    um_core_regions_remove(w.node[0].regions, &r);
    memset(memory, 1, LEN + 2 * STEP);
    close_all(&w, child);
}

/* The ids of this process's threads, added up. */
static size_t threads(void)
{
    size_t sum = 0;
    const struct dirent *task;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    while ((task = readdir(tasks)) != NULL)
        sum += strtoul(task->d_name, NULL, 10);
    closedir(tasks);
    return sum;
}

static void what_is_never_moved_leaves_the_thread_alone(void **state)
{
    struct world w;
    struct um_core_region r, other;
    pid_t child;
    (void)state;
    open_all(&w, &child, nothing);
    export(&w, &r, LEN);
    const size_t before = threads();
    other = (struct um_core_region){
        .key = OTHER_KEY, .base = (uintptr_t)memory, .len = STEP, .access = UM_ACCESS_REMOTE_READ};
    assert_int_equal(um_core_regions_add(w.node[0].regions, &other), 0);
    assert_int_equal(threads(), before);
    um_core_regions_remove(w.node[0].regions, &other);
    um_core_regions_remove(w.node[0].regions, &r);
    close_all(&w, child);
}

/* The thread sleeps on a word that peers can write, or move its sleep away from, as here: no wake-up finds it. That
 * must not hold up whoever waits for its end. */
static void the_end_of_the_thread_is_not_held_up(void **state)
{
    struct world w;
    struct um_core_region r;
    pid_t child;
    (void)state;
    open_all(&w, &child, nothing);
    export(&w, &r, LEN);
    struct um_mem_space *space = ((struct um_mem_port *)w.node[0].ep->ports[0].port)->space;
    assert_non_null(space);
    while (syscall(SYS_futex, &space->shm->asked, FUTEX_REQUEUE, 0, (void *)1, &space->shm->must, 0) != 1)
        sched_yield(); /* it does not sleep yet */
    alarm(30);
    assert_true(um_mem_deferred_pause(space));
    alarm(0);
    um_mem_deferred_resume(space);
    um_core_regions_remove(w.node[0].regions, &r);
    close_all(&w, child);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(atomics_at_an_owner_that_computes_complete),
    cmocka_unit_test(what_is_used_enough_is_mapped_while_the_owner_computes),
    cmocka_unit_test(a_child_tells_nothing_for_its_parent),
    cmocka_unit_test(it_can_end_at_any_moment),
    cmocka_unit_test(puts_are_not_lost_while_memory_moves),
    cmocka_unit_test(its_owner_may_end_at_any_moment),
    cmocka_unit_test(what_has_little_contents_is_mapped_at_once),
    cmocka_unit_test(what_is_never_moved_leaves_the_thread_alone),
    cmocka_unit_test(the_end_of_the_thread_is_not_held_up),
};
WORLD_MAIN("memory that moves later", tests)
