/*
 * What a program may do with its process: end its first thread, send from memory that nobody else can read, lock all
 * memory it will ever map. Two processes each time, with bodies that go every way.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "needs.h"
#include "team.h"

#include <rdma/fi_tagged.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif

enum { RECEIVER, SENDER, BYTES = 65536, LARGE = 1 << 20, TAG = 3, ROUNDS = 20 };

static const size_t sizes[] = {8, 1000, 20000, LARGE};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static const struct team_config config = {
    .provider = "unimem", .size = 2, .bytes = BYTES, .caps = FI_TAGGED | FI_SEND | FI_RECV, .timeout = 60};

static unsigned char byte_of(size_t i, int round)
{
    return (unsigned char)(i * 31 + (i >> 9) + (size_t)round);
}

static void await(struct team *t)
{
    struct fi_cq_err_entry error = {0};
    struct fi_cq_tagged_entry e;
    ssize_t ret;
    for (uint32_t turn = 1; (ret = fi_cq_read(t->cq, &e, 1)) == -FI_EAGAIN; turn++)
        team_turn(t, turn);
    if (ret == -FI_EAVAIL)
        fi_cq_readerr(t->cq, &error, 0);
    TEAM_DEMAND(t, ret == 1, "a message ended with %s", fi_strerror(ret == -FI_EAVAIL ? error.err : (int)-ret));
}

static void receive_all(struct team *t)
{
    static unsigned char in[LARGE];
    for (int round = 0; round < ROUNDS; round++) {
        for (int s = 0; s < SIZES; s++) {
            memset(in, 0, sizes[s]);
            const struct iovec iov = {.iov_base = in, .iov_len = sizes[s]};
            const struct fi_msg_tagged msg = {.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = TAG};
            TEAM_POST(t, fi_trecvmsg(t->ep, &msg, FI_COMPLETION));
            await(t);
            for (size_t i = 0; i < sizes[s]; i++)
                TEAM_DEMAND(t, in[i] == byte_of(i, round), "byte %zu of %zu is wrong", i, sizes[s]);
        }
    }
}

static void send_all(struct team *t, unsigned char *out)
{
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < LARGE; i++)
            out[i] = byte_of(i, round);
        for (int s = 0; s < SIZES; s++) {
            const struct iovec iov = {.iov_base = out, .iov_len = sizes[s]};
            const struct fi_msg_tagged msg = {.msg_iov = &iov, .iov_count = 1, .addr = t->peer[RECEIVER], .tag = TAG};
            TEAM_POST(t, fi_tsendmsg(t->ep, &msg, FI_COMPLETION));
            await(t);
        }
    }
}

/* ---- the first thread ends ---- */

static void *go_on(void *arg)
{
    static unsigned char out[LARGE];
    struct team *t = arg;
    char state = 0, text[512] = {0};
    while (state != 'Z') { /* the first thread */
        char path[64];
        snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", getpid(), getpid());
        FILE *f = fopen(path, "r");
        TEAM_DEMAND(t, f && fread(text, 1, sizeof(text) - 1, f) > 0, "%s cannot be read", path);
        fclose(f);
        state = strrchr(text, ')')[2];
    }
    send_all(t, out);
    team_barrier(t);
    team_barrier(t); /* the barrier in front of the end, which is otherwise the first thread's to make */
    _exit(0);
}

static void run_orphan(struct team *t, void *arg)
{
    static struct team kept; /* the team lies on the stack of the thread that ends */
    pthread_t thread;
    (void)arg;
    if (t->rank == SENDER) {
        kept = *t;
        TEAM_DEMAND(t, pthread_create(&thread, NULL, go_on, &kept) == 0, "no thread");
        pthread_exit(NULL);
    }
    receive_all(t);
    team_barrier(t);
}

static void read_bodies(int rank)
{
    (void)rank;
    setenv("FI_UNIMEM_COPY", "1", 1);
}

static void a_process_whose_first_thread_has_ended_sends(void **state)
{
    (void)state;
    needs(has_private_copy());
    assert_int_equal(team_run(&config, NULL, run_orphan, NULL), 0);
    assert_int_equal(team_run(&config, read_bodies, run_orphan, NULL), 0);
}

/* ---- memory that the system reads for nobody else ---- */

static void *secret_memory(void)
{
    const int fd = (int)syscall(SYS_memfd_secret, 0);
    void *at = fd >= 0 && ftruncate(fd, LARGE) == 0 ? mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                                                    : MAP_FAILED;
    if (fd >= 0)
        close(fd);
    return at == MAP_FAILED ? NULL : at;
}

static void run_secret(struct team *t, void *arg)
{
    (void)arg;
    if (t->rank == SENDER)
        send_all(t, secret_memory());
    else
        receive_all(t);
    team_barrier(t);
}

static void memory_that_cannot_be_read_is_sent(void **state)
{
    void *probe = secret_memory();
    (void)state;
    needs(has_private_copy() && probe);
    munmap(probe, LARGE);
    assert_int_equal(team_run(&config, NULL, run_secret, NULL), 0);
    assert_int_equal(team_run(&config, read_bodies, run_secret, NULL), 0);
}

/* ---- locked memory ---- */

static void lock_what_comes(int rank)
{
    (void)rank;
    if (mlockall(MCL_FUTURE) != 0)
        exit(1);
}

/* Returns the KiB of memory files that are resident in this process. */
static long shared_kib(const struct team *t)
{
    char line[128];
    long kib = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof(line), f) && sscanf(line, "RssShmem: %ld kB", &kib) != 1)
        ;
    if (f)
        fclose(f);
    TEAM_DEMAND(t, kib >= 0, "/proc/self/status tells no RssShmem");
    return kib;
}

static void run_locked(struct team *t, void *arg)
{
    static unsigned char out[LARGE];
    (void)arg;
    if (t->rank == SENDER)
        send_all(t, out);
    else
        receive_all(t);
    team_barrier(t);
    TEAM_DEMAND(t, shared_kib(t) < 8192, "%ld KiB of lanes are filled though they are not used", shared_kib(t));
}

static void lanes_are_not_filled_where_all_memory_is_locked(void **state)
{
    (void)state;
    needs(mlockall(MCL_FUTURE) == 0);
    munlockall();
    assert_int_equal(team_run(&config, lock_what_comes, run_locked, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_whose_first_thread_has_ended_sends),
        cmocka_unit_test(memory_that_cannot_be_read_is_sent),
        cmocka_unit_test(lanes_are_not_filled_where_all_memory_is_locked),
    };
    return needs_status(cmocka_run_group_tests_name("prov/process", tests, NULL, NULL));
}
