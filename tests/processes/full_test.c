/* A registered file on a full file system: a process that writes there gets an error, and survives. */
#include "proc.h"

#include "needs.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <unistd.h>

enum { OWNER = 0, INITIATOR = 1, KEY = 5, LEN = 64 * 1024, PUTS = 3 };

static bool has_mounts(void)
{
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

/* Makes a file that was never written to, on a file system that is full otherwise. Returns its descriptor. */
static int file_without_room(void)
{
    static const char page[4096];
    char dir[] = "/tmp/unimem-full-test-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    assert_int_equal(mount("full", dir, "tmpfs", 0, "size=64k"), 0);
    snprintf(path, sizeof(path), "%s/rest", dir);
    int rest = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    snprintf(path, sizeof(path), "%s/file", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(rest >= 0 && fd >= 0 && ftruncate(fd, LEN) == 0);
    while (write(rest, page, sizeof(page)) > 0)
        ;
    close(rest);
    assert_true(umount2(dir, MNT_DETACH) == 0 && rmdir(dir) == 0);
    return fd;
}

/* Puts LEN bytes. Returns the error of the operation. */
static int put(struct world *w, struct um_core_peer *owner)
{
    static unsigned char sent[LEN];
    const struct iovec iov = {.iov_base = sent, .iov_len = LEN};
    const struct um_proto_rma op = {
        .iov = &iov, .count = 1, .peer = owner, .key = KEY, .context = &sent, .flags = UM_OP_WRITE};
    int ret;
    for (int tries = 0; (ret = start_rma(&w->node[0], &op)) == -EAGAIN; tries++) {
        child_demand(tries < 10000, "a put that is to be tried again for ever");
        if (!world_progress(w))
            sched_yield();
    }
    child_demand(ret == 0, "the operation was refused");
    return child_done(w, &sent).error;
}

static void puts_where_there_is_no_room(int index)
{
    struct world w;
    child_open(&w, index);
    struct um_core_peer *owner = peer_at(&w, OWNER);
    wait_for(&w, &shared->flag[0], 1);
    for (int i = 0; i < PUTS; i++)
        child_demand(put(&w, owner) == EFAULT, "a put onto a full file system fails with another error");
    child_demand(um_core_ep_stats(w.node[0].ep)->mapped > 0, "it was never mapped");
    um_store_release_u32(&shared->flag[1], 1);
    node_close(&w.node[0]);
}

static void a_full_file_system_costs_an_error(void **state)
{
    struct world w = {.nodes = 1};
    struct um_core_region r = {.key = KEY, .len = LEN, .access = UM_ACCESS_REMOTE_WRITE};
    (void)state;
    needs(has_private_copy());
    needs(has_mounts());
    shared_reset();
    pid_t child = child_start(puts_where_there_is_no_room, INITIATOR);
    int fd = file_without_room();
    void *memory = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(memory != MAP_FAILED);
    child_open(&w, OWNER);
    r.base = (uintptr_t)memory;
    assert_int_equal(um_core_regions_add(w.node[0].regions, &r), 0);
    um_store_release_u32(&shared->flag[0], 1);
    wait_for(&w, &shared->flag[1], 1);
    child_join(child);
    um_core_regions_remove(w.node[0].regions, &r);
    node_close(&w.node[0]);
    munmap(memory, LEN);
    close(fd);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(a_full_file_system_costs_an_error)};
WORLD_MAIN("a file system that is full", tests)
