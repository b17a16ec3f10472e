/* Memory that is never adopted: refused with a reason, and nothing has changed. */
#include "adopt.h"

#include "base/atomic.h"

#include <linux/userfaultfd.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static _Thread_local char tls_data[100] = {1};
static char static_data[40000] = {1};

/* Demands that adoption fails with this error, for a reason that contains these words, and changes nothing. */
static void assert_refused(const void *at, size_t len, int error, const char *words)
{
    const char *why = NULL;
    struct um_shm_adopt_stats before, after;
    um_shm_adopt_stats_get(&before);
    size_t file = file_bytes();
    int ret = um_shm_adopt((uintptr_t)at, len, &why);
    if (ret != error || !why || !strstr(why, words))
        print_error("got %d (%s), wanted %d with \"%s\"\n", ret, why ? why : "no reason", error, words);
    assert_int_equal(ret, error);
    assert_true(why && strstr(why, words));
    um_shm_adopt_stats_get(&after);
    assert_memory_equal(&before, &after, sizeof(before));
    assert_int_equal(file_bytes(), file);
}

/* Four pages. The caller makes the second one unfit: the whole range is refused, the other pages can be adopted. */
static unsigned char *four_pages(void)
{
    unsigned char *mem = private_memory(4 * page_size());
    memset(mem, 1, 4 * page_size());
    return mem;
}

static void refused_as_long_as(unsigned char *mem, int error, const char *words)
{
    size_t page = page_size();
    assert_refused(mem, 4 * page, error, words);
    assert_refused(mem + page + 10, 10, error, words);
    adopt_must(mem, page);
    assert_refused(mem, 4 * page, error, words);
    assert_true(is_shared(mem, page));
    um_shm_adopt_release((uintptr_t)mem, page);
    assert_int_equal(mem[0], 1);
    assert_int_equal(mem[3 * page], 1);
    munmap(mem, 4 * page);
}

static void no_memory_at_all(void **state)
{
    (void)state;
    size_t page = page_size();
    unsigned char *mem = four_pages();
    munmap(mem + page, page);
    refused_as_long_as(mem, -EFAULT, "not mapped");
    assert_refused(&page, 0, -EINVAL, "empty");
    assert_refused((void *)UINTPTR_MAX, 1, -EINVAL, "not a user's");
    assert_refused((void *)((uintptr_t)1 << 46), SIZE_MAX - 5, -EINVAL, "not a user's");
    assert_refused((void *)page, page, -EFAULT, "not mapped");
}

static void protections(void **state)
{
    (void)state;
    size_t page = page_size();
    static const int prots[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE | PROT_EXEC, PROT_READ | PROT_EXEC};
    for (size_t i = 0; i < sizeof(prots) / sizeof(prots[0]); i++) {
        unsigned char *mem = four_pages();
        mprotect(mem + page, page, prots[i]);
        refused_as_long_as(mem, -ENOTSUP, "readable and writable");
    }
}

static void advised_and_locked(void **state)
{
    (void)state;
    size_t page = page_size();
    unsigned char *mem = four_pages();
    assert_int_equal(syscall(SYS_mlock, mem + page, page), 0); /* AddressSanitizer's mlock does nothing */
    refused_as_long_as(mem, -ENOTSUP, "mlock");
    mem = four_pages();
    assert_int_equal(madvise(mem + page, page, MADV_DONTFORK), 0);
    refused_as_long_as(mem, -ENOTSUP, "MADV_DONTFORK");
    mem = four_pages();
    assert_int_equal(madvise(mem + page, page, MADV_WIPEONFORK), 0);
    refused_as_long_as(mem, -ENOTSUP, "MADV_WIPEONFORK");
    mem = four_pages();
    unsigned long node = 1;
    if (syscall(SYS_mbind, mem + page, page, 2, &node, 64, 0) == 0)
        refused_as_long_as(mem, -ENOTSUP, "mbind");
}

static void others_mappings(void **state)
{
    (void)state;
    size_t page = page_size();
    unsigned char *mem = four_pages();
    assert_true(mmap(mem + page, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
                MAP_FAILED);
    refused_as_long_as(mem, -ENOTSUP, "shared mapping");
    void *huge =
        mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE, -1, 0);
    if (huge != MAP_FAILED) {
        assert_refused(huge, page, -ENOTSUP, "hugetlb");
        munmap(huge, 2 << 20);
    }
#ifndef SYS_mseal
#define SYS_mseal 462
#endif
    mem = four_pages();
    if (syscall(SYS_mseal, mem + page, page, 0) == 0) { /* Linux 6.10; sealed memory can never be unmapped */
        assert_refused(mem, 4 * page, -ENOTSUP, "mseal");
        assert_refused(mem + page, page, -ENOTSUP, "mseal");
    }
}

static void watched_by_somebody_else(void **state)
{
    (void)state;
    size_t page = page_size();
    unsigned char *mem = four_pages();
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register reg = {.range = {.start = (uintptr_t)mem + page, .len = page},
                                  .mode = UFFDIO_REGISTER_MODE_WP};
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0)
        skip();
    assert_int_equal(ioctl(fd, UFFDIO_REGISTER, &reg), 0);
    refused_as_long_as(mem, -ENOTSUP, "userfaultfd");
    close(fd);
}

static void guard_regions(void **state)
{
    (void)state;
    size_t page = page_size();
    unsigned char *mem = four_pages();
    if (madvise(mem + page, page, 102 /* MADV_GUARD_INSTALL, Linux 6.13 */) != 0)
        skip();
    const char *why = "";
    assert_int_equal(um_shm_adopt((uintptr_t)mem, 4 * page, &why), -EFAULT);
    assert_non_null(strstr(why, "guard"));
    assert_true(is_private(mem, 4 * page));
    assert_int_equal(mem[0], 1);
    assert_int_equal(mem[2 * page], 1);
    int out[2];
    assert_int_equal(pipe(out), 0);
    assert_int_equal(write(out[1], mem + page, 1), -1); /* the guard is still there */
    assert_int_equal(errno, EFAULT);
    assert_int_equal(file_bytes(), 0);
    munmap(mem, 4 * page);
}

/* ---- stacks ---- */

struct thread {
    uint32_t ready, stop;
    unsigned char *stack_byte, *tls_byte;
};

static void *show_and_wait(void *arg)
{
    struct thread *t = arg;
    t->stack_byte = __builtin_frame_address(0);
    t->tls_byte = (unsigned char *)tls_data;
    um_store_release_u32(&t->ready, 1); /* sync: none (the test's own hand-over) */
    while (!um_load_relaxed_u32(&t->stop))
        usleep(1000);
    return NULL;
}

static void thread_show(pthread_t *id, struct thread *t, const pthread_attr_t *attr)
{
    assert_int_equal(pthread_create(id, attr, show_and_wait, t), 0);
    while (!um_load_acquire_u32(&t->ready)) /* sync: none (as above) */
        usleep(100);
}

static void stacks_and_thread_local_data(void **state)
{
    (void)state;
    unsigned char here = 1;
    assert_refused(&here, 1, -ENOTSUP, "stack");
    assert_refused(__builtin_frame_address(0), 1, -ENOTSUP, "stack");
    assert_refused(tls_data, sizeof(tls_data), -ENOTSUP, "thread");
    if (um_shm_adopt_forced.no_userfaultfd || um_shm_adopt_forced.user_mode)
        return;
    struct thread own_stack = {0}, given_stack = {0};
    pthread_t id[2];
    size_t len = 256 << 10, page = page_size();
    unsigned char *big = private_memory(len), *stack = private_memory(len);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstack(&attr, stack, len);
    thread_show(&id[0], &own_stack, NULL);
    thread_show(&id[1], &given_stack, &attr);
    assert_refused(own_stack.stack_byte, 1, -ENOTSUP, "stack");
    assert_refused(own_stack.tls_byte, 1, -ENOTSUP, "stack");
    assert_refused(given_stack.tls_byte, 1, -ENOTSUP, "thread-local");
    /* Memory above a thread's stack, in the same mapping or elsewhere, can be adopted. */
    adopt_must(big, len);
    um_shm_adopt_release((uintptr_t)big, len);
    unsigned char *block = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(block, 1, len);
    adopt_must(block, len);
    um_shm_adopt_release((uintptr_t)block, len);
    um_store_relaxed_u32(&own_stack.stop, 1);
    um_store_relaxed_u32(&given_stack.stop, 1);
    pthread_join(id[0], NULL);
    pthread_join(id[1], NULL);
    munmap(block, len);
    munmap(big, len);
    munmap(stack, len);
    (void)page;
}

/* ---- the process ---- */

static void static_data_with_threads_only_is_refused(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__)
    if (!um_shm_adopt_forced.no_userfaultfd)
        return; /* AddressSanitizer's instrumentation, also of the code that moves pages, reads static data */
#endif
    unsigned char *data = (unsigned char *)static_data;
    adopt_must(data, sizeof(static_data));
    assert_true(is_shared(data, sizeof(static_data)));
    assert_int_equal(data[0], 1);
    assert_int_equal(data[39999], 0);
    data[5000] = 9;
    um_shm_adopt_release((uintptr_t)data, sizeof(static_data));
    assert_true(is_private(data, sizeof(static_data)));
    assert_int_equal(data[5000], 9);
    struct thread t = {0};
    pthread_t id;
    thread_show(&id, &t, NULL);
    /* static_data is anonymous memory by now. Static data that was not adopted is still a mapping of the program's
     * file. */
    const char *why = "";
    int ret = um_shm_adopt((uintptr_t)&um_shm_adopt_forced, sizeof(um_shm_adopt_forced), &why);
    if (ret == 0)
        um_shm_adopt_release((uintptr_t)&um_shm_adopt_forced, sizeof(um_shm_adopt_forced));
    else
        assert_int_equal(ret, -EPERM);
    um_store_relaxed_u32(&t.stop, 1);
    pthread_join(id, NULL);
}

/* Runs body in a child, so that changed limits and descriptors are the child's alone. */
static void in_child(void (*body)(void))
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        body();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void demand_refused(int error, const char *words)
{
    unsigned char *mem = mmap(NULL, 4 * page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const char *why = "";
    int ret = um_shm_adopt((uintptr_t)mem, 10, &why);
    if (ret != error || !strstr(why, words)) {
        print_error("got %d (%s), wanted %d with \"%s\"\n", ret, why, error, words);
        _exit(1);
    }
}

static void limit_file_size(void)
{
    struct rlimit limit = {1 << 30, 1 << 30};
    setrlimit(RLIMIT_FSIZE, &limit);
    demand_refused(-EFBIG, "ulimit -f");
}

static void limit_descriptors(void)
{
    struct rlimit limit = {3, 3};
    setrlimit(RLIMIT_NOFILE, &limit);
    demand_refused(-EMFILE, "ulimit -n");
}

static void use_aio(void)
{
    unsigned long context = 0;
    if (syscall(SYS_io_setup, 4, &context) == 0)
        demand_refused(-EBUSY, "io_setup");
}

static void use_io_uring(void)
{
    char params[120] = {0};
    if (syscall(SYS_io_uring_setup, 4, params) >= 0)
        demand_refused(-EBUSY, "io_uring");
}

static void limits_and_devices(void **state)
{
    (void)state;
    in_child(limit_file_size);
    in_child(limit_descriptors);
    in_child(use_aio);
    in_child(use_io_uring);
}

/* Adoption notices a page that the kernel holds for a device to write to, and puts everything back. */
static void held_pages(void)
{
    size_t page = page_size();
    char params[120] = {0};
    unsigned char *mem = mmap(NULL, 8 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(mem, 5, 8 * page);
    int ring = (int)syscall(SYS_io_uring_setup, 4, params);
    struct {
        void *base;
        size_t len;
    } held = {mem + 3 * page, page};
    if (ring < 0 || syscall(SYS_io_uring_register, ring, 0 /* IORING_REGISTER_BUFFERS */, &held, 1) != 0)
        return;
    um_shm_adopt_forced.held = true;
    const char *why = "";
    int ret = um_shm_adopt((uintptr_t)mem, 8 * page, &why);
    bool same = is_private(mem, 8 * page);
    for (size_t i = 0; i < 8 * page; i++)
        same = same && mem[i] == 5;
    if (ret != -EBUSY || !same || file_bytes() != 0) {
        print_error("held page: %d (%s), %s\n", ret, why, same ? "same" : "CHANGED");
        _exit(1);
    }
    /* The pinned page is still the program's, so what the kernel writes arrives. The pages before it can be adopted. */
    if (um_shm_adopt((uintptr_t)mem, 3 * page, &why) != 0)
        _exit(2);
    close(ring);
}

static void pages_that_the_kernel_holds(void **state)
{
    (void)state;
    if (um_shm_adopt_forced.no_userfaultfd || um_shm_adopt_forced.no_move)
        return; /* held pages cannot be noticed then: that is why any io_uring is a reason to refuse */
    in_child(held_pages);
}

static void more_ranges_than_there_is_room_for(void **state)
{
    (void)state;
    if (um_shm_adopt_forced.no_userfaultfd)
        return; /* would leave 8192 mappings behind */
    um_shm_adopt_forced.ranges = adopt_rounds < 1000 ? 64 : UM_ADOPT_RANGES;
    size_t page = page_size(), limit = um_shm_adopt_forced.ranges, most = limit + 100, n = 0, before = mappings();
    unsigned char *mem = private_memory(2 * most * page);
    memset(mem, 1, 2 * most * page);
    const char *why = "";
    int ret = 0;
    while (n < most && (ret = um_shm_adopt((uintptr_t)mem + 2 * n * page, 1, &why)) == 0)
        n++;
    assert_int_equal(ret, -E2BIG);
    assert_non_null(strstr(why, "too many ranges"));
    print_message("%zu ranges at a time\n", n);
    assert_true(n > limit / 2);
    assert_true(mappings() < 4 * limit + 100);
    for (size_t i = 0; i < n; i++)
        um_shm_adopt_release((uintptr_t)mem + 2 * i * page, 1);
    assert_nothing_adopted();
    munmap(mem, 2 * most * page);
    assert_int_equal(mappings(), before);
    um_shm_adopt_forced.ranges = 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(no_memory_at_all),
    cmocka_unit_test(protections),
    cmocka_unit_test(advised_and_locked),
    cmocka_unit_test(others_mappings),
    cmocka_unit_test(watched_by_somebody_else),
    cmocka_unit_test(guard_regions),
    cmocka_unit_test(stacks_and_thread_local_data),
    cmocka_unit_test(static_data_with_threads_only_is_refused),
    cmocka_unit_test(limits_and_devices),
    cmocka_unit_test(pages_that_the_kernel_holds),
    cmocka_unit_test(more_ranges_than_there_is_room_for),
};
ADOPT_MAIN(tests)
