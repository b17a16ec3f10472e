/*
 * Registered memory that the program shares itself: peers map the same file. When the owner truncates the file, a peer
 * that writes there gets an error and survives.
 */
#include "proc.h"

#include "needs.h"

#include "machine/shm/adopt/internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define CTX(n) ((void *)(uintptr_t)(n))

enum { OWNER = 0, INITIATOR = 1, KEY = 5, LEN = 64 * 1024, PAGE = 65536, MANY = 1000, INSET = 24 };

/* A shared mapping, and the means by which its file can still be reached from here. */
struct kind {
    const char *name;
    int fd; /* -1: closed, or never seen */
    unsigned char *at;
    char path[64]; /* "": it has no name */
};

/* ---- the owner ---- */

static int file_make(struct kind *k, size_t len)
{
    k->fd = memfd_create("shared-test", MFD_CLOEXEC);
    assert_true(k->fd >= 0 && ftruncate(k->fd, (off_t)len) == 0);
    return k->fd;
}

static void map(struct kind *k, int fd, size_t offset)
{
    k->at =
        mmap(NULL, LEN, PROT_READ | PROT_WRITE, fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED, fd, (off_t)offset);
    assert_true(k->at != MAP_FAILED);
}

static void make_open(struct kind *k)
{
    map(k, file_make(k, LEN), 0);
}

/* The memory lies in the middle of the file, in two mappings, one behind the other. */
static void make_middle(struct kind *k)
{
    map(k, file_make(k, PAGE + LEN + PAGE), PAGE);
    size_t half = LEN / 2 & ~(size_t)(sysconf(_SC_PAGESIZE) - 1);
    assert_int_equal(mprotect(k->at, half, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
}

static void make_closed(struct kind *k)
{
    make_open(k);
    close(k->fd);
    k->fd = -1;
}

static void make_named(struct kind *k)
{
    snprintf(k->path, sizeof(k->path), "/unimem-shared-test-%d", (int)getpid());
    int fd = shm_open(k->path, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0 && ftruncate(fd, LEN) == 0);
    map(k, fd, 0);
    close(fd);
    k->fd = -1;
}

static void make_anonymous(struct kind *k)
{
    k->fd = -1;
    map(k, -1, 0);
}

static void kind_end(struct kind *k)
{
    munmap(k->at, LEN);
    if (k->fd >= 0)
        close(k->fd);
    if (k->path[0])
        shm_unlink(k->path);
}

/* True if this process may open a mapped file that has no name. */
static bool has_map_files(const struct kind *k)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/map_files/%lx-%lx", (unsigned long)(uintptr_t)k->at,
             (unsigned long)(uintptr_t)(k->at + LEN));
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static void export(struct world *w, struct um_core_region *r, const struct kind *k, uint32_t access)
{
    *r = (struct um_core_region){.key = KEY, .base = (uintptr_t)k->at, .len = LEN, .access = access};
    assert_int_equal(um_core_regions_add(w->node[0].regions, r), 0);
}

static const uint32_t both = UM_ACCESS_REMOTE_READ | UM_ACCESS_REMOTE_WRITE;

/* ---- the initiator ---- */

/* The initiator's own mapping of the owner's file, made before the fork. */
static struct kind inherited;

static int rma_error(struct world *w, struct um_core_peer *owner, uint64_t at, void *buf, size_t len, uint32_t flags)
{
    const struct iovec iov = {.iov_base = buf, .iov_len = len};
    const struct um_proto_rma op = {
        .iov = &iov, .count = 1, .peer = owner, .addr = at, .key = KEY, .context = CTX(1), .flags = flags};
    return child_rma(w, &op);
}

/* word[0]: whether loads and stores are expected; word[1]: what access there is; word[2]: how many bytes. */
static void puts_and_gets(int index)
{
    struct world w;
    unsigned char sent[LEN], got[LEN];
    child_open(&w, index);
    struct um_core_peer *owner = peer_at(&w, OWNER);
    wait_for(&w, &shared->flag[0], 1);
    bool writes = shared->word[1] & UM_ACCESS_REMOTE_WRITE;
    size_t len = shared->word[2];
    memset(sent, 0x5a, len);
    child_demand((rma_error(&w, owner, 0, sent, len, UM_OP_WRITE) == 0) == writes, "a put, or its refusal");
    child_demand(rma_error(&w, owner, 0, got, len, UM_OP_READ) == 0, "a get");
    child_demand(memcmp(got, sent, len) == 0, "other bytes came back");
    uint64_t mapped = um_core_ep_stats(w.node[0].ep)->mapped;
    child_demand(mapped == (shared->word[0] ? 1u + writes : 0u), "not at the level that was expected");
    um_store_release_u32(&shared->flag[1], 1);
    node_close(&w.node[0]);
}

static void tell(bool mapped, uint32_t access, size_t len)
{
    shared->word[0] = mapped;
    shared->word[1] = access;
    shared->word[2] = len;
    um_store_release_u32(&shared->flag[0], 1);
}

/* The initiator has done its part: the memory has what was put there, or what was to be read. */
static void end(pid_t initiator, struct world *w, struct um_core_region *r, struct kind *k)
{
    wait_for(w, &shared->flag[1], 1);
    child_join(initiator);
    assert_true(is_all(k->at, LEN, 0x5a));
    um_core_regions_remove(w->node[0].regions, r);
    node_close(&w->node[0]);
    kind_end(k);
}

static void run(void (*make)(struct kind *k), bool always_mapped, uint32_t access)
{
    struct world w = {.nodes = 1};
    struct um_core_region r;
    struct kind k = {.fd = -1};
    needs(has_private_copy());
    shared_reset();
    pid_t child = child_start(puts_and_gets, INITIATOR);
    make(&k);
    if (!(access & UM_ACCESS_REMOTE_WRITE))
        memset(k.at, 0x5a, LEN);
    child_open(&w, OWNER);
    export(&w, &r, &k, access);
    tell(always_mapped || has_map_files(&k), access, LEN);
    end(child, &w, &r, &k);
}

static void the_program_has_its_descriptor(void **state)
{
    (void)state;
    run(make_open, true, both);
    run(make_middle, true, both);
    run(make_open, true, UM_ACCESS_REMOTE_READ);
}

static void the_file_has_a_name(void **state)
{
    (void)state;
    run(make_named, true, both);
}

static void the_file_is_known_by_its_mapping_alone(void **state)
{
    (void)state;
    run(make_closed, false, both);
    run(make_anonymous, false, both);
}

/* The initiator maps the file, too: somewhere else, and only the half that is asked for. */
static void joins_in(int index)
{
    size_t half = LEN / 2;
    unsigned char *twin = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, inherited.fd, 0);
    child_demand(twin != MAP_FAILED && close(inherited.fd) == 0, "no mapping");
    child_demand(munmap(inherited.at, LEN) == 0 && munmap(twin, half) == 0, "no mapping");
    puts_and_gets(index);
    child_demand(is_all(twin + half + INSET, half - INSET, 0x5a), "it is not the same memory");
}

/* Both processes map the file, and the owner cannot open it (unless it is root). If is_memory, the initiator uses its
 * own mapping; else it copies. */
static void run_joined(void (*make)(struct kind *k), bool is_memory)
{
    struct world w = {.nodes = 1};
    struct um_core_region r;
    needs(has_private_copy());
    shared_reset();
    make(&inherited);
    pid_t child = child_start(joins_in, INITIATOR);
    close(inherited.fd);
    inherited.fd = -1;
    child_open(&w, OWNER);
    r = (struct um_core_region){
        .key = KEY, .base = (uintptr_t)inherited.at + LEN / 2 + INSET, .len = LEN / 2 - INSET, .access = both};
    assert_int_equal(um_core_regions_add(w.node[0].regions, &r), 0);
    bool is_opened = is_memory && has_map_files(&inherited);
    assert_int_equal(um_core_regions_level(w.node[0].regions, &r), is_opened ? UM_LEVEL_MAPPED : UM_LEVEL_COPY);
    tell(is_memory, both, LEN / 2 - INSET);
    wait_for(&w, &shared->flag[1], 1);
    child_join(child);
    um_core_regions_remove(w.node[0].regions, &r);
    node_close(&w.node[0]);
    kind_end(&inherited);
}

static void who_maps_the_file_joins_in(void **state)
{
    (void)state;
    run_joined(make_open, true);
}

/* Makes a file on another file system. What is mapped of a device, for example, may be other memory for each process,
 * so such a file is not mapped by peers. */
static void make_of_another_file_system(struct kind *k)
{
    char path[] = "/var/tmp/unimem-shared-test-XXXXXX";
    k->fd = mkstemp(path);
    assert_true(k->fd >= 0 && unlink(path) == 0 && ftruncate(k->fd, LEN) == 0);
    map(k, k->fd, 0);
}

static void what_is_not_known_to_be_memory_is_copied(void **state)
{
    struct statfs fs;
    (void)state;
    needs(statfs("/var/tmp", &fs) == 0 && fs.f_type != TMPFS_MAGIC);
    run_joined(make_of_another_file_system, false);
}

static size_t descriptors(void)
{
    size_t n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static void many_registrations_take_one_descriptor(void **state)
{
    struct world w = {.nodes = 1};
    static struct um_core_region r[MANY];
    struct kind k = {.fd = -1};
    (void)state;
    needs(has_private_copy());
    shared_reset();
    make_open(&k);
    child_open(&w, OWNER);
    size_t before = descriptors();
    for (uint64_t i = 0; i < MANY; i++) {
        r[i] = (struct um_core_region){.key = i + 1, .base = (uintptr_t)k.at, .len = LEN, .access = both};
        assert_int_equal(um_core_regions_add(w.node[0].regions, &r[i]), 0);
    }
    assert_true(descriptors() <= before + 1);
    for (int i = 0; i < MANY; i++)
        um_core_regions_remove(w.node[0].regions, &r[i]);
    assert_true(descriptors() <= before);
    node_close(&w.node[0]);
    kind_end(&k);
}

/* When peers cannot map a file, the provider does not take, and then close, a descriptor of the program. */
static void a_file_that_is_not_memory_takes_no_descriptor(void **state)
{
    struct world w = {.nodes = 1};
    struct um_core_region r;
    struct kind k = {.fd = -1};
    (void)state;
    shared_reset();
    make_of_another_file_system(&k);
    child_open(&w, OWNER);
    assert_int_equal(dup2(k.fd, 0), 0);
    errno = 0; /* this must not be taken for a result */
    export(&w, &r, &k, both);
    um_core_regions_remove(w.node[0].regions, &r);
    assert_true(fcntl(0, F_GETFD) >= 0);
    node_close(&w.node[0]);
    kind_end(&k);
}

/* Adopted memory is a shared mapping, too, but of unimem's own file. A registration on top that is not counted there
 * must keep its bytes when the one that is counted ends. */
static void run_on_adopted(uint32_t access)
{
    struct world w = {.nodes = 1};
    struct um_core_region counted, r;
    struct kind k = {.fd = -1};
    needs(has_private_copy());
    shared_reset();
    pid_t child = child_start(puts_and_gets, INITIATOR);
    k.at = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(k.at != MAP_FAILED);
    memset(k.at, 1, LEN);
    child_open(&w, OWNER);
    counted = (struct um_core_region){.key = KEY + 1, .base = (uintptr_t)k.at, .len = LEN, .access = both};
    assert_int_equal(um_core_regions_add(w.node[0].regions, &counted), 0);
    um_shm_adopt_forced.ranges = 1; /* no range more is adopted */
    export(&w, &r, &k, access);
    um_shm_adopt_forced.ranges = 0;
    um_core_regions_remove(w.node[0].regions, &counted);
    memset(k.at, access & UM_ACCESS_REMOTE_WRITE ? 2 : 0x5a, LEN);
    tell(false, access, LEN);
    end(child, &w, &r, &k);
}

static void what_is_not_counted_outlives_what_is(void **state)
{
    (void)state;
    run_on_adopted(UM_ACCESS_REMOTE_READ);
    run_on_adopted(both);
}

/* Peers cannot write what the owner may not write. */
static void write_protected_memory_stays_so(void **state)
{
    struct world w = {.nodes = 1};
    struct um_core_region r;
    struct kind k = {.fd = -1};
    (void)state;
    needs(has_private_copy());
    shared_reset();
    make_open(&k);
    memset(k.at, 0x5a, LEN);
    assert_int_equal(mprotect(k.at, LEN, PROT_READ), 0);
    pid_t child = child_start(puts_and_gets, INITIATOR);
    child_open(&w, OWNER);
    export(&w, &r, &k, both);
    tell(false, UM_ACCESS_REMOTE_READ, LEN); /* the write access that was asked for is refused */
    wait_for(&w, &shared->flag[1], 1);
    child_join(child);
    um_core_regions_remove(w.node[0].regions, &r);
    node_close(&w.node[0]);
    kind_end(&k);
}

/* Puts and gets while the owner truncates the file, and afterwards. */
static void writes_to_what_goes_away(int index)
{
    struct world w;
    unsigned char sent[LEN], got[LEN];
    child_open(&w, index);
    struct um_core_peer *owner = peer_at(&w, OWNER);
    wait_for(&w, &shared->flag[0], 1);
    memset(sent, 0x5a, LEN);
    int error = 0;
    for (uint32_t n = 1; error == 0; n++) {
        error = rma_error(&w, owner, 0, sent, LEN, UM_OP_WRITE);
        um_store_release_u32(&shared->count[index], n);
    }
    child_demand(error == EFAULT, "a put into nothing fails with another error");
    child_demand(rma_error(&w, owner, 0, got, LEN, UM_OP_READ) == EFAULT, "a get from nothing");
    child_demand(um_core_ep_stats(w.node[0].ep)->mapped > 0, "it was not mapped before");
    um_store_release_u32(&shared->flag[1], 1);
    wait_for(&w, &shared->flag[0], 2); /* the file has its length again */
    child_demand(rma_error(&w, owner, 0, sent, LEN, UM_OP_WRITE) == 0, "a put into what is there again");
    um_store_release_u32(&shared->flag[1], 2);
    node_close(&w.node[0]);
}

static void memory_that_goes_away_costs_an_error(void **state)
{
    struct world w = {.nodes = 1};
    struct um_core_region r;
    struct kind k = {.fd = -1};
    (void)state;
    needs(has_private_copy());
    shared_reset();
    pid_t child = child_start(writes_to_what_goes_away, INITIATOR);
    make_open(&k);
    child_open(&w, OWNER);
    export(&w, &r, &k, both);
    um_store_release_u32(&shared->flag[0], 1);
    wait_for(&w, &shared->count[INITIATOR], 100);
    assert_int_equal(ftruncate(k.fd, 0), 0);
    wait_for(&w, &shared->flag[1], 1);
    assert_int_equal(ftruncate(k.fd, LEN), 0);
    um_store_release_u32(&shared->flag[0], 2);
    wait_for(&w, &shared->flag[1], 2);
    child_join(child);
    assert_true(is_all(k.at, LEN, 0x5a));
    um_core_regions_remove(w.node[0].regions, &r);
    node_close(&w.node[0]);
    kind_end(&k);
}

/* ---- a signal that is no fault ---- */

static void (*earlier)(int); /* what the initiator did at SIGBUS before it had a window */

static void is_sent_a_signal(int index)
{
    struct world w;
    unsigned char sent[LEN] = {0};
    const struct rlimit no_core = {0};
    setrlimit(RLIMIT_CORE, &no_core);
    signal(SIGBUS, earlier); /* cmocka's handler is not the program's */
    child_open(&w, index);
    struct um_core_peer *owner = peer_at(&w, OWNER);
    wait_for(&w, &shared->flag[0], 1);
    child_demand(rma_error(&w, owner, 0, sent, LEN, UM_OP_WRITE) == 0, "a put");
    child_demand(um_core_ep_stats(w.node[0].ep)->mapped > 0, "it was not mapped");
    raise(SIGBUS);
    if (earlier == SIG_IGN)
        raise(SIGBUS); /* and goes on being ignored */
    child_demand(rma_error(&w, owner, 0, sent, LEN, UM_OP_WRITE) == 0, "a put after a signal");
    node_close(&w.node[0]);
}

/* Returns the status with which the initiator ends. */
static int signalled(void (*action)(int))
{
    struct world w = {.nodes = 1};
    struct um_core_region r;
    struct kind k = {.fd = -1};
    int status = -1;
    shared_reset();
    earlier = action;
    pid_t child = child_start(is_sent_a_signal, INITIATOR);
    make_open(&k);
    child_open(&w, OWNER);
    export(&w, &r, &k, both);
    um_store_release_u32(&shared->flag[0], 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    um_core_regions_remove(w.node[0].regions, &r);
    node_close(&w.node[0]);
    kind_end(&k);
    return status;
}

static void a_signal_that_is_sent_does_what_it_did_before(void **state)
{
    (void)state;
    needs(has_private_copy());
    assert_int_equal(signalled(SIG_IGN), 0);
    const int status = signalled(SIG_DFL); /* a sanitizer turns the signal into an exit */
    assert_true(WIFSIGNALED(status) ? WTERMSIG(status) == SIGBUS : WEXITSTATUS(status) != 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_program_has_its_descriptor),
    cmocka_unit_test(the_file_has_a_name),
    cmocka_unit_test(the_file_is_known_by_its_mapping_alone),
    cmocka_unit_test(who_maps_the_file_joins_in),
    cmocka_unit_test(what_is_not_known_to_be_memory_is_copied),
    cmocka_unit_test(many_registrations_take_one_descriptor),
    cmocka_unit_test(a_file_that_is_not_memory_takes_no_descriptor),
    cmocka_unit_test(what_is_not_counted_outlives_what_is),
    cmocka_unit_test(write_protected_memory_stays_so),
    cmocka_unit_test(memory_that_goes_away_costs_an_error),
    cmocka_unit_test(a_signal_that_is_sent_does_what_it_did_before),
};
WORLD_MAIN("memory that the program shares", tests)
