/* Addresses that lie, and files that are not what an address says: each is refused, in words on which a user can
 * act. */
#include "proc.h"

#include "needs.h"

#include "base/log.h"
#include "core/endpoint.h"
#include "machine/address.h"
#include "machine/mem/mem.h"
#include "machine/shm/shm.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static char said[4096];

static void listen_in(enum um_log_level level, const char *text)
{
    if (level == UM_LOG_WARN)
        snprintf(said + strlen(said), sizeof(said) - strlen(said), "%s\n", text);
}

static struct world w;

static int open_world(void **state)
{
    (void)state;
    said[0] = '\0';
    world_open(&w, 2);
    um_log_set_sink(listen_in);
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    um_log_set_sink(NULL);
    world_close(&w);
    return 0;
}

static struct um_shm_addr address(void)
{
    struct um_shm_addr a;
    memcpy(&a, &w.node[1].addr, sizeof(a));
    return a;
}

/* Sends a first message to that address. Returns its result. */
static int contact(const struct um_shm_addr *a)
{
    struct um_addr addr = {{0}};
    struct um_core_peer *peer;
    memcpy(addr.word, a, sizeof(*a));
    int ret = um_core_peer_get(w.node[0].ep, &addr, &peer);
    return ret ? ret : um_proto_inject(w.node[0].ep, peer, "x", 1, 1, 0, UM_OP_TAGGED);
}

enum { OTHER_VERSION = UM_WIRE_VERSION + 1 };

/* Was this logged, with that number behind it? */
static bool was_said(const char *before, int number)
{
    char text[64];
    snprintf(text, sizeof(text), "%s %d", before, number);
    return strstr(said, text);
}

static void another_wire_version_is_refused_naming_both(void **state)
{
    (void)state;
    struct um_shm_addr a = address();
    a.version = 2 * OTHER_VERSION;
    assert_int_equal(contact(&a), -EPROTO);
    assert_true(was_said("wire version", OTHER_VERSION));
    assert_true(was_said("this process", UM_WIRE_VERSION));
}

/* The first 24 bytes of such an address, which are all that is read: boot id (bit 0 set), pid, start time, nonce. */
static void an_address_of_wire_version_1_is_refused_by_that_name(void **state)
{
    (void)state;
    const uint64_t old[6] = {0x9e3779b97f4a7c15u | 1, UINT64_C(77) << 32 | 4711, 12345, 4096, 9,
                             UINT64_C(0x0101) << 48};
    struct um_shm_addr a;
    memcpy(&a, old, sizeof(a));
    assert_int_equal(contact(&a), -EPROTO);
    assert_non_null(strstr(said, "an address of wire version 1: "));
    assert_true(was_said("speaks version", UM_WIRE_VERSION));
}

static void a_port_of_another_wire_version_is_refused_naming_both(void **state)
{
    (void)state;
    struct um_shm_addr a = address();
    ((struct um_mem_port *)w.node[1].ep->ports[0].port)->shm->version = OTHER_VERSION;
    assert_int_equal(contact(&a), -EPROTO);
    assert_true(was_said("wire version", OTHER_VERSION));
    ((struct um_mem_port *)w.node[1].ep->ports[0].port)->shm->version = UM_WIRE_VERSION;
}

static void another_host_is_refused_naming_this_one(void **state)
{
    (void)state;
    struct um_shm_addr a = address();
    char name[65] = "";
    gethostname(name, sizeof(name) - 1);
    a.boot += 1;
    assert_int_equal(contact(&a), -EHOSTUNREACH);
    assert_non_null(strstr(said, name));
    assert_non_null(strstr(said, "another host"));
}

static void another_pid_namespace_is_refused_with_the_remedy(void **state)
{
    (void)state;
    struct um_shm_addr a = address();
    a.pid_space++;
    assert_int_equal(contact(&a), -EHOSTUNREACH);
    assert_non_null(strstr(said, "pid namespace"));
    assert_non_null(strstr(said, "--pid="));
}

static void what_is_no_address_is_refused(void **state)
{
    (void)state;
    struct um_shm_addr a = {0};
    assert_int_equal(contact(&a), -EPROTO);
    assert_non_null(strstr(said, "not the address"));
    said[0] = '\0';
    a = address();
    a.kinds = UM_ADDR_BOARD;
    assert_int_equal(contact(&a), -EPROTO);
    assert_non_null(strstr(said, "no part of the machine shm"));
    said[0] = '\0';
    a = address();
    a.process = 0;
    assert_int_equal(contact(&a), -EPROTO);
    assert_non_null(strstr(said, "not the address"));
}

/* Under the pid there is another process by now, or another endpoint of the same process. */
static void another_nonce_at_the_same_pid_is_refused(void **state)
{
    (void)state;
    struct um_shm_addr a = address();
    a.nonce ^= 4;
    assert_int_equal(contact(&a), -EHOSTUNREACH);
    assert_non_null(strstr(said, "something else than its endpoint"));
    assert_non_null(strstr(said, "same boot id"));
}

/* Flips every bit but those of the pid, which would lead into processes that do not belong to the test. */
static void a_flipped_bit_leads_to_nobody(void **state)
{
    (void)state;
    for (unsigned bit = 0; bit < 8 * sizeof(struct um_shm_addr); bit++) {
        struct um_shm_addr a = address();
        const unsigned in_process = bit - 8 * offsetof(struct um_shm_addr, process);
        if (in_process < UM_SHM_PID_BITS)
            continue;
        ((unsigned char *)&a)[bit / 8] ^= (unsigned char)(1u << bit % 8);
        bool other_part = bit / 8 == offsetof(struct um_shm_addr, kinds) && a.kinds & UM_ADDR_SHM;
        int ret = contact(&a);
        if (other_part ? ret != 0 : ret != -EPROTO && ret != -EHOSTUNREACH && ret != -ECONNREFUSED)
            fail_msg("bit %u: %d", bit, ret);
    }
}

/* The pid is another process's. Under the descriptor's number that process has planted a port with the nonce. */
static void a_port_in_a_process_that_began_at_another_time_is_refused(void **state)
{
    (void)state;
    struct um_shm_addr a = address();
    a.process ^= UINT32_C(1) << UM_SHM_PID_BITS;
    assert_int_equal(contact(&a), -ECONNREFUSED);
    assert_int_equal(contact(&a), -ECONNREFUSED); /* again: nothing was kept of the port */
}

static void a_process_that_is_gone_is_refused(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    child_kill(pid);
    struct um_shm_addr a = address();
    a.process = um_shm_process((uint32_t)pid, 0);
    assert_int_equal(contact(&a), -ECONNREFUSED);
}

/* The port is right, but the process with the pid does not hold the nonce where the port says: its memory is neither
 * read nor written. */
static void private_memory_is_read_only_from_who_holds_the_nonce(void **state)
{
    (void)state;
    needs(has_private_copy());
    struct um_port *port = w.node[0].ep->ports[0].port;
    static uint64_t secret = 42, stolen;
    struct um_piece from = {.addr = (uintptr_t)&secret, .len = 8};
    struct iovec to = {.iov_base = &stolen, .iov_len = 8};
    struct um_mem_port_shm *shm = ((struct um_mem_port *)w.node[1].ep->ports[0].port)->shm;
    const uint64_t right = shm->nonce_at;
    for (int i = 0; i < 2; i++) {
        struct um_link *link;
        shm->nonce_at = i ? (uintptr_t)&secret : right; /* whoever maps the port can write there */
        assert_int_equal(um_machine_shm.link_open(port, &w.node[1].addr, &link), 0);
        for (int write = 0; write < 2; write++) {
            struct um_copy copy = {
                .write = write, .remote = &from, .remote_count = 1, .local = &to, .local_count = 1, .len = 8};
            struct um_transfer *none;
            assert_int_equal(um_machine_shm.transfer_start(link, &copy, &none), i ? -ESRCH : 0);
        }
        um_machine_shm.link_close(link);
    }
    shm->nonce_at = right;
}

/* Makes a contact with an address that names this file's descriptor. */
static int contact_file(int fd)
{
    struct um_shm_addr a = address();
    a.memory_fd = (uint16_t)fd;
    a.nonce++; /* so that each call has a peer of its own */
    int ret = contact(&a);
    close(fd);
    return ret;
}

static void a_file_that_could_shrink_is_not_mapped(void **state)
{
    (void)state;
    for (int sealed = 0; sealed < 2; sealed++) {
        struct um_mem_port_shm copy = *((struct um_mem_port *)w.node[1].ep->ports[0].port)->shm;
        int fd = memfd_create(UM_SHM_PORT_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
        copy.nonce = address().nonce + 1; /* it looks like a port in every other way */
        assert_int_equal(ftruncate(fd, (off_t)um_mem_port_memory_size(copy.lanes)), 0);
        assert_int_equal(pwrite(fd, &copy, sizeof(copy), 0), sizeof(copy));
        if (sealed)
            assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
        assert_int_equal(contact_file(fd), sealed ? 0 : -EHOSTUNREACH);
    }
}

static void a_file_that_is_too_short_is_not_mapped(void **state)
{
    (void)state;
    const struct um_mem_port_shm *shm = ((struct um_mem_port *)w.node[1].ep->ports[0].port)->shm;
    for (int pages = 0; pages < 2; pages++) {
        int fd = memfd_create("short", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        assert_int_equal(ftruncate(fd, pages * UM_PAGE), 0);
        if (pages) {
            struct um_mem_port_shm copy = *shm;
            copy.nonce = address().nonce + 1;
            assert_int_equal(pwrite(fd, &copy, sizeof(copy), 0), sizeof(copy));
        }
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
        assert_int_equal(contact_file(fd), -EHOSTUNREACH);
    }
    assert_non_null(strstr(said, "something else than its endpoint"));
}

static void a_header_that_cannot_be_is_refused(void **state)
{
    (void)state;
    struct um_shm_addr a = address();
    struct um_mem_port_shm *shm = ((struct um_mem_port *)w.node[1].ep->ports[0].port)->shm;
    struct um_mem_port_shm good = *shm;
    const uint32_t lanes[] = {0, 1, 400, 4097, UINT32_MAX};
    for (int i = 0; i < 5; i++) {
        shm->lanes = lanes[i];
        int ret = contact(&a);
        assert_true(ret == -EPROTO || ret == -EHOSTUNREACH);
    }
    shm->lanes = good.lanes;
    shm->area_offset = UINT64_MAX - UM_PAGE + 1;
    assert_int_equal(contact(&a), -EPROTO);
    shm->area_offset = good.area_offset;
    shm->area_stride = 0;
    assert_int_equal(contact(&a), -EPROTO);
    shm->area_stride = good.area_stride;
    shm->lane_offset = UINT64_MAX;
    assert_int_equal(contact(&a), -EPROTO);
    shm->lane_offset = good.lane_offset;
    shm->state = 77;
    assert_int_equal(contact(&a), -ECONNREFUSED);
    shm->state = UM_PORT_OPEN;
    assert_int_equal(contact(&a), 0); /* none of the refusals is remembered */
}

/* A port is woken late: its pipe is closed, and the pipe's number belongs to another file. */
static void nothing_is_written_to_what_took_the_place_of_a_pipe(void **state)
{
    (void)state;
    struct um_mem_port *from = (struct um_mem_port *)w.node[0].ep->ports[0].port;
    const int wake = ((struct um_mem_port *)w.node[1].ep->ports[0].port)->wait_write;
    const struct um_addr old = w.node[1].addr;
    int pipes[2], handle = -1;
    char byte;
    um_mem_wake(from, &old, &handle);
    assert_true(handle >= 0); /* while the port is open, its pipe is found */
    close(handle);
    node_close(&w.node[1]);
    assert_int_equal(pipe2(pipes, O_CLOEXEC | O_NONBLOCK), 0);
    assert_int_equal(dup2(pipes[1], wake), wake);
    handle = -1;
    um_mem_wake(from, &old, &handle);
    assert_int_equal(handle, -1);
    assert_int_equal(read(pipes[0], &byte, 1), -1);
    close(pipes[0]);
    close(pipes[1]);
    close(wake);
    node_open(&w.node[1], 64); /* the same if another port of the process has these numbers */
    assert_int_equal(((struct um_mem_port *)w.node[1].ep->ports[0].port)->wait_write, wake);
    um_mem_wake(from, &old, &handle);
    assert_int_equal(handle, -1);
    assert_int_equal(read(((struct um_mem_port *)w.node[1].ep->ports[0].port)->wait_read, &byte, 1), -1);
}

/* The pipe's number lies where every process that maps the port can write. */
static void nothing_but_a_pipe_is_woken(void **state)
{
    (void)state;
    struct um_mem_port *from = (struct um_mem_port *)w.node[0].ep->ports[0].port;
    struct um_mem_port_shm *shm = ((struct um_mem_port *)w.node[1].ep->ports[0].port)->shm;
    const uint32_t right = shm->wake, wrong[] = {address().memory_fd, 65000, UINT32_MAX};
    int handle = -1;
    for (int i = 0; i < 3; i++) {
        shm->wake = wrong[i];
        um_mem_wake(from, &w.node[1].addr, &handle);
        assert_int_equal(handle, -1);
    }
    shm->wake = right;
    um_mem_wake(from, &w.node[1].addr, &handle);
    assert_true(handle >= 0);
    close(handle);
}

/* The word that says who claimed a lane is the sender's to write. */
static void a_lane_whose_sender_erases_itself_leaves_nothing_behind(void **state)
{
    (void)state;
    struct um_core_peer *peer;
    assert_int_equal(um_core_peer_get(w.node[0].ep, &w.node[1].addr, &peer), 0);
    assert_int_equal(um_proto_inject(w.node[0].ep, peer, "x", 1, 1, 0, UM_OP_TAGGED), 0);
    struct um_mem_port *port = (struct um_mem_port *)w.node[1].ep->ports[0].port;
    while (!port->rx[0])
        world_progress(&w);
    const int handle = dup(port->wait_read);
    port->rx[0]->wake_handle = handle;
    um_store_relaxed_u64(um_mem_lane_sender(port->coherent, 0), 0);
    node_close(&w.node[1]);
    assert_int_equal(fcntl(handle, F_GETFD), -1);
    node_open(&w.node[1], 64);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)
static const struct CMUnitTest tests[] = {
    CASE(another_wire_version_is_refused_naming_both),
    CASE(an_address_of_wire_version_1_is_refused_by_that_name),
    CASE(a_port_of_another_wire_version_is_refused_naming_both),
    CASE(another_host_is_refused_naming_this_one),
    CASE(another_pid_namespace_is_refused_with_the_remedy),
    CASE(what_is_no_address_is_refused),
    CASE(another_nonce_at_the_same_pid_is_refused),
    CASE(a_port_in_a_process_that_began_at_another_time_is_refused),
    CASE(a_process_that_is_gone_is_refused),
    CASE(private_memory_is_read_only_from_who_holds_the_nonce),
    CASE(a_file_that_could_shrink_is_not_mapped),
    CASE(a_file_that_is_too_short_is_not_mapped),
    CASE(a_header_that_cannot_be_is_refused),
    CASE(nothing_is_written_to_what_took_the_place_of_a_pipe),
    CASE(nothing_but_a_pipe_is_woken),
    CASE(a_lane_whose_sender_erases_itself_leaves_nothing_behind),
    CASE(a_flipped_bit_leads_to_nobody), /* last: it says more than is logged in so short a time */
};
WORLD_MAIN("addresses that lie", tests)
