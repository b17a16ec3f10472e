/* Dmable memory, registrations, DMA: violates every restriction, and checks what arrives. Runs with either engine. */
#include "emu.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

enum { PAGE = 4096, AREA = 16 * PAGE };

/* Two contexts in this process: the owner's memory is remote for the other. */
static struct unimem_board *near, *far;
static unsigned char *local, *remote;

static struct unimem_remote remote_at(const void *address)
{
    struct unimem_info info;
    unimem_get_info(far, &info);
    return (struct unimem_remote){info.node, info.context, (uintptr_t)address};
}

static void two_open(const char *params)
{
    board_fresh("off", params);
    near = board_open(0);
    far = board_open(1);
    local = dmable(near, AREA);
    remote = dmable(far, AREA);
}

static void two_close(void)
{
    unimem_close(near);
    unimem_close(far);
}

static int registered(const void *address, size_t len)
{
    struct unimem_remote at = remote_at(address);
    return unimem_register(near, &at, len);
}

static int deregistered(const void *address)
{
    struct unimem_remote at = remote_at(address);
    return unimem_deregister(near, &at);
}

/* Starts a DMA and, if it started, waits for its end. Returns its error. */
static int moved(bool write, void *here, const void *there, size_t len)
{
    struct unimem_remote at = remote_at(there);
    uint64_t dma = 0;
    int ret = write ? unimem_dma_write(near, &at, here, len, &dma) : unimem_dma_read(near, here, &at, len, &dma);
    return ret ? ret : dma_wait(near, dma);
}

static void both_ways(void *here, const void *there, size_t len, int expected)
{
    assert_int_equal(moved(true, here, there, len), expected);
    assert_int_equal(moved(false, here, there, len), expected);
}

static void fill(unsigned char *bytes, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (unsigned char)((i * 2654435761u + seed) >> 7);
}

static void dmable_memory_is_zeroed_aligned_and_bounded(void **state)
{
    (void)state;
    two_open("dmable_max=1048576");
    void *memory = NULL;
    for (int i = 0; i < AREA; i++)
        assert_int_equal(local[i], 0);
    assert_int_equal((uintptr_t)local % PAGE, 0);
    assert_int_equal(unimem_alloc_dmable(near, 0, &memory), -EINVAL);
    assert_int_equal(unimem_alloc_dmable(near, 1048577, &memory), -ENOSPC);
    assert_int_equal(unimem_alloc_dmable(near, SIZE_MAX, &memory), -ENOSPC);
    assert_int_equal(unimem_alloc_dmable(near, 1048576, &memory), -ENOSPC); /* some is in use */
    assert_null(memory);
    for (int i = 0; i < 20; i++) { /* what is freed can be had again */
        memory = dmable(near, 1048576 - AREA);
        memset(memory, 0xff, 1048576 - AREA);
        assert_int_equal(unimem_free_dmable(near, memory), 0);
    }
    memory = dmable(near, 1);
    assert_int_equal(unimem_free_dmable(near, (char *)memory + 64), -EINVAL);
    assert_int_equal(unimem_free_dmable(near, &memory), -EINVAL);
    assert_int_equal(unimem_free_dmable(near, NULL), -EINVAL);
    assert_int_equal(unimem_free_dmable(far, memory), -EINVAL);
    assert_int_equal(unimem_free_dmable(near, memory), 0);
    assert_int_equal(unimem_free_dmable(near, memory), -EINVAL);
    two_close();
}

static void bytes_arrive(void **state)
{
    (void)state;
    static unsigned char expected[AREA];
    two_open(NULL);
    assert_int_equal(registered(remote, AREA), 0);
    static const size_t lens[] = {1, 7, 24, 64, 511, 512, 513, 4096, 40000, AREA};
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        size_t len = lens[i], skip = (AREA - len) / 3;
        memset(remote, 0, AREA);
        memset(expected, 0, AREA);
        fill(local, AREA, (unsigned)i);
        memcpy(expected + skip, local + (AREA - len), len);
        assert_int_equal(moved(true, local + (AREA - len), remote + skip, len), 0);
        assert_memory_equal(remote, expected, AREA);
        fill(remote, AREA, (unsigned)i + 100);
        memset(local, 0, AREA);
        memset(expected, 0, AREA);
        memcpy(expected + (AREA - len), remote + skip, len);
        assert_int_equal(moved(false, local + (AREA - len), remote + skip, len), 0);
        assert_memory_equal(local, expected, AREA);
    }
    two_close();
}

static void local_memory_must_be_dmable(void **state)
{
    (void)state;
    two_open(NULL);
    unsigned char *heap = malloc(PAGE), *more = dmable(near, 2 * PAGE);
    assert_int_equal(registered(remote, AREA), 0);
    both_ways(heap, remote, 8, -EFAULT);
    both_ways(&heap, remote, 8, -EFAULT);
    both_ways(NULL, remote, 8, -EFAULT);
    both_ways(local + AREA - 7, remote, 8, -EFAULT);
    both_ways(local - 1, remote, 8, -EFAULT);
    both_ways(local + AREA, remote, 1, -EFAULT);
    both_ways(remote, remote, 8, -EFAULT); /* memory of another context, though in this process */
    both_ways(local + AREA - 8, remote, 8, 0);
    both_ways(more + PAGE, remote, PAGE, 0);
    assert_int_equal(unimem_free_dmable(near, more), 0);
    both_ways(more + PAGE, remote, PAGE, -EFAULT);
    free(heap);
    two_close();
}

static void remote_memory_must_be_registered(void **state)
{
    (void)state;
    two_open(NULL);
    fill(local, AREA, 1);
    both_ways(local, remote, 8, -EACCES);
    assert_int_equal(registered(remote + PAGE, 2 * PAGE), 0);
    both_ways(local, remote, 8, -EACCES);
    both_ways(local, remote + PAGE - 1, 8, -EACCES);
    both_ways(local, remote + 3 * PAGE - 7, 8, -EACCES);
    both_ways(local, remote + 3 * PAGE, 1, -EACCES);
    both_ways(local, remote + PAGE, 2 * PAGE, 0);
    assert_int_equal(registered(remote + 3 * PAGE, PAGE), 0);
    both_ways(local, remote + 2 * PAGE, 2 * PAGE, -EACCES); /* no DMA spans two registrations */
    struct unimem_remote at = remote_at(remote + PAGE), wrong = at;
    uint64_t dma;
    wrong.node++;
    assert_int_equal(unimem_dma_write(near, &wrong, local, 8, &dma), -EACCES);
    wrong = at;
    wrong.context++;
    assert_int_equal(unimem_dma_write(near, &wrong, local, 8, &dma), -EACCES);
    assert_int_equal(unimem_dma_write(far, &at, remote, 8, &dma), -EACCES); /* each context has a table of its own */
    assert_int_equal(deregistered(remote + PAGE), 0);
    both_ways(local, remote + PAGE, 8, -EACCES);
    both_ways(local, remote + 3 * PAGE, PAGE, 0);
    two_close();
}

static void only_dmable_memory_can_be_registered(void **state)
{
    (void)state;
    two_open("registrations_max=4");
    unsigned char *heap = malloc(PAGE);
    struct unimem_remote at = remote_at(remote), wrong = at;
    assert_int_equal(registered(heap, 8), -EFAULT);
    assert_int_equal(registered(local, 8), -EFAULT);
    assert_int_equal(registered(remote, 0), -EINVAL);
    assert_int_equal(registered(remote, AREA + 1), -EFAULT);
    assert_int_equal(registered(remote + 1, AREA), -EFAULT);
    assert_int_equal(registered(remote - 1, 2), -EFAULT);
    assert_int_equal(registered(remote + 8, SIZE_MAX), -EFAULT);
    wrong.context += 1;
    assert_int_equal(unimem_register(near, &wrong, 8), -ENXIO);
    wrong = at;
    wrong.node += 1;
    assert_int_equal(unimem_register(near, &wrong, 8), -ENXIO);
    assert_int_equal(registered(remote + PAGE, PAGE), 0);
    assert_int_equal(registered(remote + PAGE, PAGE), -EEXIST);
    assert_int_equal(registered(remote, AREA), -EEXIST);
    assert_int_equal(registered(remote + 2 * PAGE - 1, 1), -EEXIST);
    assert_int_equal(registered(remote, PAGE), 0);
    assert_int_equal(registered(remote + 2 * PAGE, PAGE), 0);
    assert_int_equal(registered(remote + 4 * PAGE, PAGE), 0);
    assert_int_equal(registered(remote + 6 * PAGE, PAGE), -ENOSPC);
    assert_int_equal(deregistered(remote + PAGE + 1), -ENOENT);
    assert_int_equal(deregistered(remote + PAGE), 0);
    assert_int_equal(deregistered(remote + PAGE), -ENOENT);
    assert_int_equal(registered(remote + 6 * PAGE, PAGE), 0);
    free(heap);
    two_close();
}

static void size_and_number_of_dmas_are_bounded(void **state)
{
    (void)state;
    enum { DEPTH = 5 };
    two_open("dma_depth=5,dma_size_max=8192");
    assert_int_equal(registered(remote, AREA), 0);
    both_ways(local, remote, 0, -EINVAL);
    both_ways(local, remote, 8193, -EINVAL);
    both_ways(local, remote, 8192, 0);
    struct unimem_remote at = remote_at(remote);
    uint64_t dma[DEPTH], one_more = 77;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < DEPTH; i++)
            assert_int_equal(unimem_dma_write(near, &at, local, 8, &dma[i]), 0);
        assert_int_equal(unimem_dma_write(near, &at, local, 8, &one_more), -EAGAIN);
        assert_int_equal(one_more, 77);
        for (int i = DEPTH; i-- > 0;) { /* in any order */
            assert_int_equal(unimem_dma_poll(near, dma[i]), -EINPROGRESS);
            assert_int_equal(dma_wait(near, dma[i]), 0);
            assert_int_equal(unimem_dma_poll(near, dma[i]), -EINVAL); /* an end is reported once */
        }
    }
    assert_int_equal(unimem_dma_poll(near, 0), -EINVAL);
    assert_int_equal(unimem_dma_poll(near, UINT64_MAX), -EINVAL);
    two_close();
}

static void bytes_are_not_there_before_completion(void **state)
{
    (void)state;
    two_open(NULL);
    assert_int_equal(registered(remote, AREA), 0);
    struct unimem_remote at = remote_at(remote);
    uint64_t dma;
    memset(local, 1, AREA);
    assert_int_equal(unimem_dma_write(near, &at, local, AREA, &dma), 0);
    assert_int_equal(unimem_dma_poll(near, dma), -EINPROGRESS);
    for (int i = 0; i < AREA; i++)
        assert_int_equal(remote[i], 0);
    memset(local, 2, AREA); /* before the end of the DMA: so this is what arrives */
    assert_int_equal(dma_wait(near, dma), 0);
    for (int i = 0; i < AREA; i++)
        assert_int_equal(remote[i], 2);
    two_close();
}

static void what_a_dma_uses_stays(void **state)
{
    (void)state;
    two_open(NULL);
    assert_int_equal(registered(remote, AREA), 0);
    struct unimem_remote at = remote_at(remote);
    uint64_t dma;
    assert_int_equal(unimem_dma_write(near, &at, local, 8, &dma), 0);
    assert_int_equal(unimem_free_dmable(near, local), -EBUSY);
    assert_int_equal(deregistered(remote), -EBUSY);
    assert_int_equal(dma_wait(near, dma), 0);
    assert_int_equal(deregistered(remote), 0);
    assert_int_equal(unimem_free_dmable(near, local), 0);
    two_close();
}

static void freed_remote_memory_is_an_error(void **state)
{
    (void)state;
    two_open(NULL);
    assert_int_equal(registered(remote, AREA), 0);
    struct unimem_remote at = remote_at(remote);
    uint64_t dma;
    assert_int_equal(unimem_dma_write(near, &at, local, 8, &dma), 0);
    assert_int_equal(unimem_free_dmable(far, remote), 0);
    assert_int_equal(dma_wait(near, dma), -EFAULT);
    assert_int_equal(unimem_dma_poll(near, dma), -EINVAL);
    both_ways(local, remote, 8, -EFAULT); /* the entry is still there, the memory is not */
    unsigned char *again = dmable(far, AREA);
    assert_int_equal(moved(true, local, remote, 8), -EFAULT); /* nor if other memory takes its place */
    assert_int_equal(deregistered(remote), 0);
    assert_int_equal(registered(again, AREA), 0);
    assert_int_equal(moved(true, local, again, 8), 0);
    two_close();
}

static void a_context_reaches_its_own_memory(void **state)
{
    (void)state;
    two_open(NULL);
    struct unimem_info info;
    unimem_get_info(near, &info);
    struct unimem_remote own = {info.node, info.context, (uintptr_t)(local + PAGE)};
    uint64_t dma;
    fill(local, PAGE, 5);
    assert_int_equal(unimem_dma_write(near, &own, local, PAGE, &dma), -EACCES); /* own memory is no exception */
    assert_int_equal(unimem_register(near, &own, PAGE), 0);
    assert_int_equal(unimem_dma_write(near, &own, local, PAGE, &dma), 0);
    assert_int_equal(dma_wait(near, dma), 0);
    assert_memory_equal(local, local + PAGE, PAGE);
    two_close();
}

/* ---- processes ---- */

struct offer {
    struct unimem_remote at;
    struct unimem_mailbox_address mailbox;
};

/* Offers memory; checks that the bytes that a message announces are there, and inverts them. */
static void owner(int from, int to, void *arg)
{
    struct unimem_board *board = board_open(3);
    struct unimem_mailbox *mailbox = mailbox_open(board);
    unsigned char *memory = dmable(board, AREA);
    struct unimem_info info;
    uint64_t message[3];
    (void)arg;
    (void)from;
    unimem_get_info(board, &info);
    struct offer offer = {{info.node, info.context, (uintptr_t)memory}, address_of(mailbox)};
    pipe_put(to, &offer, sizeof(offer));
    for (;;) {
        receive_patiently(mailbox, message);
        if (!message[1])
            break;
        for (uint64_t i = 0; i < message[1]; i++)
            demand(memory[message[0] + i] == (unsigned char)(message[2] + i));
        for (uint64_t i = 0; i < message[1]; i++)
            memory[message[0] + i] ^= 0xff;
        pipe_put(to, "k", 1);
    }
    unimem_close(board);
}

static void a_message_after_completion_finds_the_bytes(void **state)
{
    (void)state;
    board_fresh("off", NULL);
    struct child child = child_start(owner, NULL);
    struct offer offer;
    pipe_get(child.from, &offer, sizeof(offer));
    near = board_open(0);
    local = dmable(near, AREA);
    assert_int_equal(unimem_register(near, &offer.at, AREA), 0);
    for (uint64_t round = 0; round < 300; round++) {
        uint64_t len = 1 + round * 7919 % 9000, offset = round * 131 % (AREA - 9001), dma;
        struct unimem_remote at = offer.at;
        char c;
        at.address += offset;
        for (uint64_t i = 0; i < len; i++)
            local[i] = (unsigned char)(round + i);
        assert_int_equal(unimem_dma_write(near, &at, local, len, &dma), 0);
        assert_int_equal(dma_wait(near, dma), 0);
        send_patiently(near, &offer.mailbox, (uint64_t[3]){offset, len, round});
        pipe_get(child.from, &c, 1);
        assert_int_equal(unimem_dma_read(near, local, &at, len, &dma), 0);
        assert_int_equal(dma_wait(near, dma), 0);
        for (uint64_t i = 0; i < len; i++)
            assert_int_equal(local[i], (unsigned char)~(round + i));
    }
    send_patiently(near, &offer.mailbox, (uint64_t[3]){0});
    child_join(&child);
    unimem_close(near);
}

static void a_dead_owner_is_an_error(void **state)
{
    (void)state;
    board_fresh("off", NULL);
    struct child child = child_start(owner, NULL);
    struct offer offer;
    uint64_t dma, later;
    int ret = 0;
    pipe_get(child.from, &offer, sizeof(offer));
    near = board_open(0);
    local = dmable(near, AREA);
    assert_int_equal(unimem_register(near, &offer.at, PAGE), 0);
    assert_int_equal(unimem_dma_write(near, &offer.at, local, 8, &later), 0);
    assert_int_equal(unimem_dma_poll(near, later), -EINPROGRESS);
    child_kill(&child);
    await(unimem_context_alive(near, offer.at.node, offer.at.context) == 0);
    assert_int_equal(dma_wait(near, later), -ENXIO);
    ret = unimem_dma_read(near, local, &offer.at, 8, &dma);
    assert_int_equal(ret ? ret : dma_wait(near, dma), -ENXIO);
    assert_int_equal(unimem_mailbox_send(near, &offer.mailbox, "x", 1), -ENXIO);
    offer.at.address += 2 * PAGE;
    assert_int_equal(unimem_register(near, &offer.at, 8), -ENXIO);
    unimem_close(near);
}

/* Returns how many mappings of this process are dmable memory. */
static int dmable_mappings(void)
{
    char line[512];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps))
        count += strstr(line, "unimem-dmable") != NULL;
    fclose(maps);
    return count;
}

static void the_servers_engine_maps_no_memory_of_a_peer(void **state)
{
    (void)state;
    struct emu_params params;
    board_fresh("off", NULL);
    struct child child = child_start(owner, NULL);
    struct offer offer;
    pipe_get(child.from, &offer, sizeof(offer));
    near = board_open(0);
    unimem_emu_get_params(near, &params);
    local = dmable(near, AREA);
    assert_int_equal(dmable_mappings(), 1);
    assert_int_equal(unimem_register(near, &offer.at, AREA), 0);
    assert_int_equal(dmable_mappings(), params.engine == EMU_ENGINE_SERVER ? 1 : 2);
    assert_int_equal(unimem_deregister(near, &offer.at), 0);
    assert_int_equal(dmable_mappings(), 1);
    send_patiently(near, &offer.mailbox, (uint64_t[3]){0});
    child_join(&child);
    unimem_close(near);
    assert_int_equal(dmable_mappings(), 0);
}

/* A call that needs a descriptor reports that there is none, and works again when there is one. */
static void a_process_without_descriptors_is_told(void **state)
{
    (void)state;
    struct rlimit was, none;
    struct unimem_board *third = NULL;
    void *memory = NULL;
    two_open(NULL);
    int fd = dup(0); /* the lowest free number */
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    none = (struct rlimit){(rlim_t)fd, was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int opened = unimem_open(board_name, 0, &third), allocated = unimem_alloc_dmable(near, AREA, &memory);
    int entered = registered(remote, AREA);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_int_equal(opened, -EMFILE);
    assert_int_equal(allocated, -ENOMEM);
    const char *engine = getenv("UNIMEM_EMU_ENGINE");
    bool mapped = engine && strcmp(engine, "local") == 0;
    assert_int_equal(entered, mapped ? -ENOMEM : 0);
    if (mapped)
        assert_int_equal(registered(remote, AREA), 0);
    assert_int_equal(unimem_alloc_dmable(near, AREA, &memory), 0);
    both_ways(memory, remote, AREA, 0);
    two_close();
}

RUN("emu dma", T(dmable_memory_is_zeroed_aligned_and_bounded), T(bytes_arrive), T(local_memory_must_be_dmable),
    T(remote_memory_must_be_registered), T(only_dmable_memory_can_be_registered),
    T(size_and_number_of_dmas_are_bounded), T(bytes_are_not_there_before_completion), T(what_a_dma_uses_stays),
    T(freed_remote_memory_is_an_error), T(a_context_reaches_its_own_memory),
    T(a_message_after_completion_finds_the_bytes), T(a_dead_owner_is_an_error),
    T(the_servers_engine_maps_no_memory_of_a_peer), T(a_process_without_descriptors_is_told))
