/* Many processes: 64 that all send to all, and the memory of 1,000 lanes into one endpoint. Many windows of one
 * process.
 */
#include "proc.h"

#include "needs.h"

#include "core/endpoint.h"
#include "core/region.h"
#include "machine/mem/mem.h"
#include "machine/shm/shm.h"

#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CTX(n) ((void *)(uintptr_t)(n))

enum { KEY = 5, RANKS = 64, PART = 20000, HOSTS = 10, LANES = 1000 };

static void alltoall_child(int index)
{
    struct world w;
    child_open(&w, index);
    unsigned char *in = malloc((size_t)RANKS * PART), *out = malloc((size_t)RANKS * PART);
    for (int round = 0; round < 2; round++) {
        size_t len = round ? PART : 100;
        uint64_t tag = (uint64_t)round;
        for (int r = 0; r < RANKS; r++)
            recv_buf(&w, 0, peer_at(&w, r), in + (size_t)r * PART, len, tag, 0, UM_OP_TAGGED, CTX(r + 1));
        for (int k = 0; k < RANKS; k++) {
            int r = (index + k) % RANKS;
            fill(out + (size_t)r * PART, len, (uint32_t)(index * RANKS + r));
            struct iovec iov = {.iov_base = out + (size_t)r * PART, .iov_len = len};
            struct um_proto_msg msg = {.iov = &iov,
                                       .count = 1,
                                       .peer = peer_at(&w, r),
                                       .tag = tag,
                                       .context = CTX(100 + r),
                                       .flags = UM_OP_TAGGED};
            int ret;
            while ((ret = um_proto_send(w.node[0].ep, &msg)) == -EAGAIN) {
                if (!world_progress(&w))
                    sched_yield();
            }
            child_demand(ret == 0, "a send was refused");
        }
        for (int left = 2 * RANKS; left > 0;) {
            if (!untaken(&w, 0)) {
                if (!world_progress(&w))
                    sched_yield();
                continue;
            }
            child_demand(next_of(&w, 0)->error == 0, "an operation failed");
            left--;
        }
        for (int r = 0; r < RANKS; r++)
            child_demand(is_filled(in + (size_t)r * PART, len, (uint32_t)(r * RANKS + index)), "wrong bytes");
        um_rmw_add_u32(&shared->flag[round], 1);
    }
    wait_for(&w, &shared->flag[1], RANKS);
    node_close(&w.node[0]);
}

static void sixty_four_processes_send_to_each_other(void **state)
{
    (void)state;
    pid_t pid[RANKS];
    shared_reset();
    for (int r = 0; r < RANKS; r++)
        pid[r] = child_start(alltoall_child, r);
    for (int r = 0; r < RANKS; r++)
        child_join(pid[r]);
}

/* ---- windows ---- */

static struct um_window *window_of(const struct um_core_peer *peer)
{
    struct um_window *w;
    child_demand(peer->link->machine->window_open(peer->link, KEY, &w) == 0, "no window");
    return w;
}

static void window_child(int index)
{
    static struct um_window *all[UM_WINDOW_MAPPINGS + 1];
    struct world w;
    child_open(&w, index);
    const struct um_core_peer *owner = peer_at(&w, 0);
    wait_for(&w, &shared->flag[0], 1);
    for (int i = 0; i <= UM_WINDOW_MAPPINGS; i++) {
        all[i] = window_of(owner);
        const enum um_level level = i < UM_WINDOW_MAPPINGS ? UM_LEVEL_MAPPED : UM_LEVEL_COPY;
        child_demand(all[i]->level == level, "a window at another level");
    }
    owner->link->machine->window_close(all[0]);
    owner->link->machine->window_close(all[UM_WINDOW_MAPPINGS]);
    all[0] = window_of(owner);
    child_demand(all[0]->level == UM_LEVEL_MAPPED, "the place of a mapping that ended is lost");
    for (int i = 0; i < UM_WINDOW_MAPPINGS; i++)
        owner->link->machine->window_close(all[i]);
    um_store_release_u32(&shared->flag[1], 1);
    node_close(&w.node[0]);
}

/* However many regions and peers there are, most of the mappings that a process may have are the program's. */
static void windows_leave_mappings_to_the_program(void **state)
{
    struct world w;
    const size_t len = (size_t)sysconf(_SC_PAGESIZE);
    (void)state;
    needs(has_private_copy() && has_userfaultfd());
    shared_reset();
    void *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    pid_t child = child_start(window_child, 1);
    child_open(&w, 0);
    struct um_core_region r = {
        .key = KEY, .base = (uintptr_t)memory, .len = len, .access = UM_ACCESS_REMOTE_READ | UM_ACCESS_REMOTE_WRITE};
    assert_int_equal(um_core_regions_add(w.node[0].regions, &r), 0);
    um_store_release_u32(&shared->flag[0], 1);
    wait_for(&w, &shared->flag[1], 1);
    child_join(child);
    um_core_regions_remove(w.node[0].regions, &r);
    node_close(&w.node[0]);
    munmap(memory, len);
}

/* ---- memory ---- */

/* Many endpoints in one process; each fills its lane to the receiver, then waits. */
static void crowd_child(int index)
{
    (void)index;
    enum { EACH = LANES / HOSTS };
    static struct node nodes[EACH];
    static unsigned char body[UM_BIG_BODY];
    size_t len = shared->word[0];
    variant.lanes_max = 1;
    for (int i = 0; i < EACH; i++) {
        struct um_core_peer *peer = NULL;
        node_open(&nodes[i], 64);
        child_demand(um_core_peer_get(nodes[i].ep, &shared->addr[0], &peer) == 0, "no peer");
        int ret;
        while ((ret = um_proto_inject(nodes[i].ep, peer, body, 8, 7, 0, UM_OP_TAGGED)) == -EAGAIN)
            sched_yield();
        child_demand(ret == 0, "the first message was refused");
        for (int k = 0; k < 5000 && ret == 0; k++) {
            struct iovec iov = {.iov_base = body, .iov_len = len};
            struct um_proto_msg msg = {.iov = &iov, .count = 1, .peer = peer, .tag = 1, .flags = UM_OP_TAGGED};
            ret = um_proto_send(nodes[i].ep, &msg);
        }
        do /* uses up the records that are left */
            ret = um_proto_inject(nodes[i].ep, peer, body, 8, 1, 0, UM_OP_TAGGED);
        while (ret == 0);
        child_demand(ret == -EAGAIN, "a full lane says something else");
    }
    um_rmw_add_u32(&shared->flag[0], 1);
    wait_for(NULL, &shared->flag[1], 1);
}

static uint64_t smaps_kib(const char *field)
{
    char line[512];
    bool ours = false;
    unsigned long kib = 0;
    FILE *f = fopen("/proc/self/smaps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f)) {
        unsigned long value;
        if (strchr(line, '-') && strstr(line, " rw-s "))
            ours = strstr(line, "memfd:unimem-port") != NULL;
        else if (ours && strncmp(line, field, strlen(field)) == 0 && sscanf(line + strlen(field), ": %lu", &value) == 1)
            kib += value;
    }
    fclose(f);
    return kib;
}

/* Prints it, and adds it to the figures of ./check. */
static void figure(const char *text)
{
    const char *path = getenv("UNIMEM_FIGURES");
    FILE *f = path ? fopen(path, "a") : NULL;
    print_message("%s\n", text);
    if (f) {
        fprintf(f, "%s\n", text);
        fclose(f);
    }
}

static uint64_t port_bytes(const struct world *w)
{
    struct stat st;
    const struct um_shm_addr *addr = um_shm_addr_of(&w->node[0].addr);
    assert_int_equal(fstat(addr->memory_fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

static void lanes_memory(uint64_t memory_max, size_t len, const char *what)
{
    struct world w;
    pid_t pid[HOSTS];
    shared_reset();
    variant.lanes_max = UM_LANES_DEFAULT;
    variant.memory_max = memory_max;
    child_open(&w, 0);
    shared->word[0] = len;
    for (int h = 0; h < HOSTS; h++)
        pid[h] = child_start(crowd_child, h + 1);
    static unsigned char to[64];
    wait_for(NULL, &shared->flag[0], HOSTS); /* nothing is taken before the lanes are full */
    uint64_t full = port_bytes(&w);
    /* one message of each lane is taken, so that every lane is known to be live */
    for (int i = 0; i < LANES; i++)
        recv_buf(&w, 0, NULL, to, sizeof(to), 7, 0, UM_OP_TAGGED, CTX(i + 1));
    for (int i = 0; i < LANES; i++)
        assert_int_equal(done_of(&w, 0, CTX(i + 1)).error, 0);
    uint64_t cap =
        (uint64_t)LANES * (8 * KIB + sizeof(struct um_mem_lane_shm)) + (memory_max ? memory_max : 64 * (uint64_t)MIB);
    /* The port's first page, the page that the last control block begins, and one lane more that housekeeping reads. */
    uint64_t slack = 4 * UM_PAGE;
    char text[300];
    snprintf(
        text, sizeof(text),
        "%d lanes, %s: %.1f MiB of shared memory (%.2f KiB a lane), cap %.1f MiB; receiver Rss %.1f MiB, Pss %.1f MiB",
        LANES, what, (double)full / MIB, (double)full / KIB / LANES, (double)cap / MIB, (double)smaps_kib("Rss") / KIB,
        (double)smaps_kib("Pss") / KIB);
    figure(text);
    assert_true(full <= cap + slack);
    assert_true(port_bytes(&w) <= cap + slack);
    um_store_release_u32(&shared->flag[1], 1);
    for (int h = 0; h < HOSTS; h++)
        child_join(pid[h]);
    node_close(&w.node[0]);
}

static void a_thousand_lanes_take_no_more_memory_than_documented(void **state)
{
    (void)state;
    lanes_memory(1, 8, "small messages, none may grow");
    lanes_memory(1, UM_SMALL_BODY, "bodies of 1 KiB, none may grow");
    lanes_memory(0, UM_BIG_BODY, "bodies of 16 KiB, grown to the default cap");
    variant.memory_max = 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(sixty_four_processes_send_to_each_other),
    cmocka_unit_test(windows_leave_mappings_to_the_program),
    cmocka_unit_test(a_thousand_lanes_take_no_more_memory_than_documented),
};
WORLD_MAIN("many processes", tests)
