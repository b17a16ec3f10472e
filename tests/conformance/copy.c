/* Conformance: copies from and to a peer's private memory; here the peer is in the same process. */
#include "conform.h"
#include "needs.h"

#include "base/iov.h"
#include "machine/mem/gate.h"
#include "machine/shm/detour.h"

#include <sys/mman.h>

enum { BYTES = 300000 };

static struct um_port *a, *b;
static struct um_link *link;
static unsigned char plain[BYTES], *remote, local[BYTES], expected[BYTES];

static void open_link(void)
{
    uint64_t seed = 77;
    remote = memory_begin(plain, BYTES);
    a = port_new(0);
    b = port_new(0);
    struct um_addr addr = addr_of(b);
    assert_int_equal(machine->link_open(a, &addr, &link), 0);
    for (size_t i = 0; i < BYTES; i++) {
        remote[i] = (unsigned char)chance(&seed, 256);
        local[i] = (unsigned char)chance(&seed, 256);
    }
}

static void close_link(void)
{
    machine->link_close(link);
    machine->port_close(b);
    machine->port_close(a);
    memory_end();
}

static struct um_piece piece(size_t at, size_t len)
{
    return (struct um_piece){.addr = (uintptr_t)(remote + at), .len = len};
}

static struct iovec entry(size_t at, size_t len)
{
    return (struct iovec){.iov_base = local + at, .iov_len = len};
}

static void one_piece_is_read_and_written(void **state)
{
    (void)state;
    needs(!has_processes || has_private_copy());
    static const size_t lens[] = {1, 7, 8, 4096, 65537, BYTES};
    open_link();
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        struct um_piece p = piece(0, lens[i]);
        struct iovec v = entry(0, lens[i]);
        memset(local, 0, BYTES);
        assert_int_equal(copy_now(link, false, &COPY(&p, 1, &v, 1, lens[i])), 0);
        assert_memory_equal(local, remote, lens[i]);
        assert_true(lens[i] == BYTES || local[lens[i]] == 0);
        for (size_t k = 0; k < lens[i]; k++)
            local[k] ^= 0x5a;
        assert_int_equal(copy_now(link, true, &COPY(&p, 1, &v, 1, lens[i])), 0);
        assert_memory_equal(local, remote, lens[i]);
    }
    close_link();
}

static void nothing_is_copied_without_length(void **state)
{
    (void)state;
    open_link();
    struct um_piece p = piece(0, 100);
    struct iovec v = entry(0, 100);
    memcpy(expected, local, 100);
    assert_int_equal(copy_now(link, false, &COPY(&p, 1, &v, 1, 0)), 0);
    assert_memory_equal(local, expected, 100);
    close_link();
}

static void no_more_than_len_moves(void **state)
{
    (void)state;
    needs(!has_processes || has_private_copy());
    open_link();
    struct um_piece p[2] = {piece(0, 1000), piece(5000, 1000)};
    struct iovec v[2] = {entry(0, 300), entry(2000, 5000)};
    memcpy(expected, local, BYTES);
    memcpy(expected, remote, 300);
    memcpy(expected + 2000, remote + 300, 700);
    memcpy(expected + 2700, remote + 5000, 34);
    assert_int_equal(copy_now(link, false, &COPY(p, 2, v, 2, 1034)), 0);
    assert_memory_equal(local, expected, BYTES);
    close_link();
}

/* Cuts len bytes into `count` places of random sizes, at increasing offsets with gaps between them. */
static void cut(uint64_t *seed, size_t count, size_t len, size_t *at, size_t *size)
{
    size_t pos = chance(seed, 100);
    for (size_t i = 0; i < count; i++) {
        size[i] = i + 1 == count ? len : len ? chance(seed, (uint32_t)(2 * len / (count - i)) + 1) : 0;
        size[i] = size[i] < len ? size[i] : len;
        at[i] = pos;
        len -= size[i];
        pos += size[i] + chance(seed, 50);
    }
}

static void lists_of_any_cut_are_copied_in_order(void **state)
{
    (void)state;
    needs(!has_processes || has_private_copy());
    uint64_t seed = 3;
    open_link();
    for (int round = 0; round < 400 * effort; round++) {
        size_t remotes = 1 + chance(&seed, UM_IOV_LIMIT), locals = 1 + chance(&seed, UM_IOV_LIMIT);
        size_t at[UM_IOV_LIMIT], size[UM_IOV_LIMIT], len = chance(&seed, 100000), total = 0;
        struct um_piece p[UM_IOV_LIMIT];
        struct iovec v[UM_IOV_LIMIT];
        bool is_write = chance(&seed, 2);
        cut(&seed, remotes, len, at, size);
        for (size_t i = 0; i < remotes; i++)
            p[i] = piece(at[i], size[i]);
        cut(&seed, locals, len, at, size);
        for (size_t i = 0; i < locals; i++)
            v[i] = entry(at[i], size[i]);
        um_shm_detour_assume(round % 2);
        unsigned char *flat = expected; /* what moves, in order */
        for (size_t i = 0; i < (is_write ? locals : remotes); i++) {
            size_t n = is_write ? v[i].iov_len : p[i].len;
            memcpy(flat + total, is_write ? v[i].iov_base : (void *)(uintptr_t)p[i].addr, n);
            total += n;
        }
        assert_int_equal(total, len);
        assert_int_equal(copy_now(link, is_write, &COPY(p, remotes, v, locals, len)), 0);
        total = 0;
        for (size_t i = 0; i < (is_write ? remotes : locals); i++) {
            size_t n = is_write ? p[i].len : v[i].iov_len;
            assert_memory_equal(is_write ? (void *)(uintptr_t)p[i].addr : v[i].iov_base, flat + total, n);
            total += n;
        }
    }
    close_link();
}

/* shm copies by way of a buffer where the destination lies a few bytes behind the source, modulo a page. */
static void copies_are_whole_at_any_distance(void **state)
{
    (void)state;
    needs(!has_processes || has_private_copy());
    static const size_t lens[] = {4095, 4096, 65536, 65537, 200000}, behind[] = {0, 1, 8, 16, 31, 32, 4095};
    enum { PAGE = 4096 };
    open_link();
    for (size_t i = 0; i < 2 * sizeof(lens) / sizeof(lens[0]); i++) {
        for (size_t k = 0; k < sizeof(behind) / sizeof(behind[0]); k++) {
            const size_t len = lens[i / 2];
            const bool is_write = i % 2;
            const uintptr_t from = (uintptr_t)(is_write ? local : remote), to = (uintptr_t)(is_write ? remote : local);
            const size_t at = 1 + (from + 1 + behind[k] - to - 1) % PAGE; /* of the destination */
            const struct um_piece p = piece(is_write ? at : 1, len);
            const struct iovec v = entry(is_write ? 1 : at, len);
            um_shm_detour_assume(k % 2 || i > 2);
            ((unsigned char *)from)[1 + len / 2] ^= 0x77;
            memcpy(expected, (void *)to, BYTES);
            memcpy(expected + at, (void *)(from + 1), len);
            assert_int_equal(copy_now(link, is_write, &COPY(&p, 1, &v, 1, len)), 0);
            assert_memory_equal((void *)to, expected, BYTES);
        }
    }
    um_shm_detour_assume(false);
    close_link();
}

/* Some of several pieces lie so; the call for the others stops before them. */
static void pieces_at_any_distance_are_whole(void **state)
{
    (void)state;
    needs(!has_processes || has_private_copy());
    enum { PAGE = 4096, LEN = 8192, PIECES = 4, BEHIND = 16 };
    open_link();
    um_shm_detour_assume(true);
    for (unsigned set = 0; set < 1u << PIECES; set++) {
        const size_t apart =
            (uintptr_t)remote % PAGE + PAGE - (uintptr_t)local % PAGE; /* to the same place in a page */
        struct um_piece p[PIECES];
        struct iovec v[PIECES];
        remote[set * 100] ^= 0x5a;
        memcpy(expected, local, BYTES);
        for (size_t i = 0; i < PIECES; i++) {
            const size_t at = i * (LEN + 2 * PAGE), to = at + apart % PAGE + (set & 1u << i ? BEHIND : 0);
            p[i] = piece(at, LEN);
            v[i] = entry(to, LEN);
            memcpy(expected + to, remote + at, LEN);
        }
        assert_int_equal(copy_now(link, false, &COPY(p, PIECES, v, PIECES, PIECES * LEN)), 0);
        assert_memory_equal(local, expected, BYTES);
    }
    um_shm_detour_assume(false);
    close_link();
}

/* A region's memory may be gone. Whatever way a copy goes, that is an error. */
static void missing_memory_of_a_region_is_an_error(void **state)
{
    (void)state;
    if (!has_processes && strcmp(machine->name, "board") != 0)
        return;                /* the copies of other machines report no missing memory */
    needs(has_private_copy()); /* it copies, or the fault guard reads by it what a stand-in replaces */
    enum { PAGE = 4096, LEN = 3 * PAGE, BEHIND = 16 };
    open_link();
    unsigned char *hole = mmap(NULL, LEN + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(hole != MAP_FAILED);
    um_shm_detour_assume(true);
    for (int is_write = 0; is_write < 2; is_write++) {
        const size_t at = ((uintptr_t)remote + (is_write ? PAGE - BEHIND : BEHIND)) % PAGE;
        const struct um_piece p = piece(0, LEN);
        const struct iovec v = {.iov_base = hole + at, .iov_len = LEN};
        struct um_copy copy = COPY(&p, 1, &v, 1, LEN);
        copy.is_region = true;
        assert_int_equal(copy_now(link, is_write, &copy), -EFAULT);
    }
    um_shm_detour_assume(false);
    munmap(hole, LEN + 2 * PAGE);
    close_link();
}

static void a_port_without_private_copies_is_refused_them(void **state)
{
    (void)state;
    struct um_port_config config = {.private_copy = false};
    struct um_port *c;
    struct um_link *refused;
    open_link();
    assert_int_equal(machine->port_open(&config, &c), 0);
    struct um_addr addr = addr_of(b);
    assert_int_equal(machine->link_open(c, &addr, &refused), 0);
    struct um_piece p = piece(0, 100);
    struct iovec v = entry(0, 100);
    memcpy(expected, local, 100);
    assert_int_equal(copy_now(refused, false, &COPY(&p, 1, &v, 1, 100)), -EPERM);
    assert_memory_equal(local, expected, 100);
    assert_int_equal(copy_now(refused, true, &COPY(&p, 1, &v, 1, 100)), -EPERM);
    machine->link_close(refused);
    machine->port_close(c);
    close_link();
}

static void the_memory_of_a_closed_port_is_not_copied(void **state)
{
    (void)state;
    needs(!has_processes || has_private_copy());
    open_link();
    struct um_piece p = piece(0, 100);
    struct iovec v = entry(0, 100);
    machine->port_close(b);
    assert_int_equal(copy_now(link, false, &COPY(&p, 1, &v, 1, 100)), -ESRCH);
    memcpy(expected, remote, 100);
    assert_int_equal(copy_now(link, true, &COPY(&p, 1, &v, 1, 100)), -ESRCH);
    assert_memory_equal(remote, expected, 100);
    machine->link_close(link);
    machine->port_close(a);
    memory_end();
}

/* This holds although the peer exports nothing, and nothing of the peer except its port has been looked at. */
static void nothing_is_written_while_the_pages_of_the_peer_move(void **state)
{
    (void)state;
    if (machine != &um_machine_shm)
        return; /* no other machine writes by system calls */
    needs(has_private_copy());
    struct um_mem_gate gate;
    open_link();
    struct um_piece p = piece(0, 100);
    struct iovec v = entry(0, 100);
    memcpy(expected, remote, 100);
    um_mem_gate_shut(&gate);
    struct um_transfer *transfer;
    assert_int_equal(machine->transfer_start(link, &COPY(&p, 1, &v, 1, 100), &transfer), 0);
    assert_memory_equal(local, expected, 100);
    struct um_copy write = COPY(&p, 1, &v, 1, 100);
    write.write = true;
    local[0] ^= 1;
    assert_int_equal(machine->transfer_start(link, &write, &transfer), -EAGAIN);
    assert_memory_equal(remote, expected, 100);
    um_mem_gate_end(&gate);
    assert_int_equal(copy_now(link, true, &COPY(&p, 1, &v, 1, 100)), 0);
    assert_memory_equal(remote, local, 100);
    close_link();
}

GROUP(copy, T(one_piece_is_read_and_written), T(nothing_is_copied_without_length), T(no_more_than_len_moves),
      T(lists_of_any_cut_are_copied_in_order), T(copies_are_whole_at_any_distance), T(pieces_at_any_distance_are_whole),
      T(missing_memory_of_a_region_is_an_error), T(a_port_without_private_copies_is_refused_them),
      T(the_memory_of_a_closed_port_is_not_copied), T(nothing_is_written_while_the_pages_of_the_peer_move));
