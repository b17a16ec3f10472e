/* Conformance of machines with processes: two that talk, sleep, copy; addresses that lead elsewhere. */
#include "conform.h"
#include "needs.h"

#include "machine/shm/shm.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* A child's own port and its lane to the parent's. */
struct peer {
    struct um_port *port;
    struct um_link *link;
    struct um_lane *lane;
};

static const char *peer_open(struct peer *peer, const struct um_addr *addr)
{
    struct um_port_config config = {.private_copy = true};
    if (machine->port_open(&config, &peer->port) != 0)
        return "no port";
    if (machine->link_open(peer->port, addr, &peer->link) != 0)
        return "no link";
    return machine->lane_open(peer->link, &peer->lane) == 0 ? NULL : "no lane";
}

static void peer_close(struct peer *peer)
{
    machine->lane_close(peer->lane);
    machine->link_close(peer->link);
    machine->port_close(peer->port);
}

/* ---- talking ---- */

static uint32_t len_of(uint64_t number)
{
    return number % 5 ? (uint32_t)(number * 37 % 800) : 0;
}

static const char *talker(struct parent *parent)
{
    struct peer me;
    struct um_answer answer;
    const char *wrong = peer_open(&me, parent->arg);
    int answered = 0;
    for (uint64_t i = 0; i < 20000 && !wrong;) {
        int ret = message_try(me.lane, MESSAGE(i, .body_len = len_of(i)));
        i += ret == 0;
        if (ret && ret != -EAGAIN)
            return "a claim failed";
        if (machine->lane_reap(me.lane, &answer, 1) == 1 && answer.status != answered++)
            return "a wrong answer";
    }
    while (answered < 2000 && !wrong)
        if (machine->lane_reap(me.lane, &answer, 1) == 1 && answer.status != answered++)
            return "a wrong answer";
    if (!wrong)
        peer_close(&me);
    return wrong;
}

static struct um_record next_record(struct um_port *port)
{
    struct um_record rec;
    uint64_t end = now_ms() + PATIENCE;
    while (!poll_now(port, &rec))
        if (now_ms() > end)
            fail_msg("nothing comes");
    return rec;
}

static void processes_talk(void **state)
{
    (void)state;
    struct um_port *port = port_new(0);
    struct um_addr addr = addr_of(port);
    struct child child = child_start(talker, &addr);
    struct um_record rec = next_record(port);
    assert_int_equal(rec.op, UM_REC_JOINED);
    machine->release(port, &rec);
    for (uint64_t i = 0; i < 20000; i++) {
        rec = next_record(port);
        assert_true(rec.op == 1 && message_is(&rec, MESSAGE(i, .body_len = len_of(i))));
        if (i % 10 == 0)
            machine->answer(rec.rx, (uint16_t)(i / 10 % UM_TOKENS), (int32_t)(i / 10));
        machine->release(port, &rec);
    }
    rec = next_record(port);
    assert_int_equal(rec.op, UM_REC_LEFT);
    assert_int_equal(rec.len, 0);
    machine->release(port, &rec);
    child_join(&child);
    machine->port_close(port);
}

/* ---- sleeping ---- */

enum { NAPS = 3000 };

/* Takes the next record, and sleeps until it comes. Returns NULL, or what went wrong. */
static const char *take_sleeping(struct um_port *port, struct um_record *rec)
{
    while (!poll_now(port, rec)) {
        if (machine->arm(port) != 0)
            continue;
        bool woken = is_readable(machine->wait_fd(port), PATIENCE);
        machine->disarm(port);
        if (!woken)
            return "a wake-up was lost";
    }
    return NULL;
}

static const char *play(struct um_port *port, struct um_lane *lane, bool first)
{
    const char *wrong = NULL;
    struct um_record rec;
    for (uint64_t i = 0; i < NAPS && !wrong;) {
        if (first && message_try(lane, MESSAGE(i)) != 0)
            return "a claim failed";
        do {
            wrong = take_sleeping(port, &rec);
            if (!wrong)
                machine->release(port, &rec);
        } while (!wrong && rec.op == UM_REC_JOINED);
        if (!first && !wrong && message_try(lane, MESSAGE(i)) != 0)
            return "a claim failed";
        if (!wrong && message_number(&rec) != i)
            return "a wrong record";
        i++;
    }
    return wrong;
}

static const char *player(struct parent *parent)
{
    struct peer me;
    const char *wrong = peer_open(&me, parent->arg);
    if (wrong)
        return wrong;
    struct um_addr addr = addr_of(me.port);
    pipe_put(parent->to_parent, &addr, sizeof(addr));
    wrong = play(me.port, me.lane, true);
    peer_close(&me);
    return wrong;
}

static void processes_that_sleep_wake_each_other(void **state)
{
    (void)state;
    struct um_port *port = port_new(0);
    struct um_addr addr = addr_of(port), other;
    struct um_link *link;
    struct um_lane *lane;
    struct child child = child_start(player, &addr);
    pipe_get(child.from_child, &other, sizeof(other));
    assert_int_equal(machine->link_open(port, &other, &link), 0);
    assert_int_equal(machine->lane_open(link, &lane), 0);
    const char *wrong = play(port, lane, false);
    if (wrong)
        fail_msg("%s", wrong);
    child_join(&child);
    machine->lane_close(lane);
    machine->link_close(link);
    machine->port_close(port);
}

/* ---- private memory ---- */

enum { BYTES = 100000 };

static unsigned char *private_memory;

static const char *owner(struct parent *parent)
{
    struct peer me;
    char byte;
    const char *wrong = peer_open(&me, parent->arg);
    if (wrong)
        return wrong;
    memset(private_memory, 0xc1, BYTES);
    struct um_addr addr = addr_of(me.port);
    pipe_put(parent->to_parent, &addr, sizeof(addr));
    pipe_get(parent->from_parent, &byte, 1);
    for (int i = 0; i < BYTES; i++)
        if (private_memory[i] != 0xaf)
            return "what the parent wrote is not there";
    pipe_put(parent->to_parent, &byte, 1);
    pipe_get(parent->from_parent, &byte, 1);
    return "not reached";
}

static void expect_no_copy(struct um_link *link, int error)
{
    struct um_piece piece = {.addr = (uintptr_t)private_memory, .len = BYTES};
    struct iovec local = {private_memory, BYTES};
    assert_int_equal(copy_now(link, false, &COPY(&piece, 1, &local, 1, BYTES)), error);
    assert_int_equal(copy_now(link, true, &COPY(&piece, 1, &local, 1, BYTES)), error);
}

static void memory_of_another_process_is_read_and_written(void **state)
{
    (void)state;
    needs(has_private_copy());
    char byte = 0;
    private_memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(private_memory, MAP_FAILED);
    struct um_port *port = port_new(0);
    struct um_addr addr = addr_of(port), other;
    struct um_link *link;
    struct child child = child_start(owner, &addr);
    pipe_get(child.from_child, &other, sizeof(other));
    assert_int_equal(machine->link_open(port, &other, &link), 0);
    struct um_piece pieces[2] = {{(uintptr_t)private_memory, BYTES}, {4096, 100}};
    struct iovec local = {private_memory, BYTES};
    assert_int_equal(copy_now(link, false, &COPY(pieces, 1, &local, 1, BYTES)), 0);
    for (int i = 0; i < BYTES; i++)
        assert_int_equal(private_memory[i], 0xc1);
    memset(private_memory, 0xaf, BYTES);
    assert_int_equal(copy_now(link, true, &COPY(pieces, 1, &local, 1, BYTES)), 0);
    pipe_put(child.to_child, &byte, 1);
    pipe_get(child.from_child, &byte, 1);
    pieces[0].len = 50;
    assert_int_equal(copy_now(link, false, &COPY(pieces, 2, &local, 1, 150)), -EFAULT);
    assert_int_equal(copy_now(link, false, &COPY(pieces + 1, 1, &local, 1, 100)), -EFAULT);
    assert_int_equal(copy_now(link, true, &COPY(pieces, 2, &local, 1, 150)), -EFAULT);
    child_kill(&child);
    expect_no_copy(link, -ESRCH);
    child_reap(&child);
    expect_no_copy(link, -ESRCH);
    machine->link_close(link);
    machine->port_close(port);
    munmap(private_memory, BYTES);
}

/* ---- addresses ---- */

static void an_address_of_another_host_is_refused_with_the_remedy(void **state)
{
    (void)state;
    struct um_port *port = port_new(0);
    struct um_addr addr = addr_of(port);
    struct um_shm_addr *fields = (void *)&addr;
    fields->boot ^= 2;
    log_count = 0;
    assert_int_equal(machine->addr_check(port, &addr, true), -EHOSTUNREACH);
    assert_int_equal(log_count, 1);
    assert_non_null(strstr(logged, "another host"));
    assert_non_null(strstr(logged, "FI_UNIMEM_MACHINE=shm,net"));
    machine->port_close(port);
}

static void an_address_of_another_version_is_refused_by_number(void **state)
{
    (void)state;
    struct um_port *port = port_new(0);
    struct um_addr addr = addr_of(port);
    struct um_shm_addr *fields = (void *)&addr;
    char own[16];
    fields->version = 2 * 77;
    log_count = 0;
    assert_int_equal(machine->addr_check(port, &addr, true), -EPROTO);
    assert_int_equal(log_count, 1);
    snprintf(own, sizeof(own), "%d", UM_WIRE_VERSION);
    assert_non_null(strstr(logged, "77"));
    assert_non_null(strstr(logged, own));
    machine->port_close(port);
}

static void a_process_that_took_over_the_pid_is_not_the_peer(void **state)
{
    (void)state;
    needs(has_private_copy());
    struct um_port *port = port_new(0);
    struct um_addr addr = addr_of(port);
    struct um_shm_addr *fields = (void *)&addr;
    struct um_link *link;
    fields->process += UINT32_C(1) << UM_SHM_PID_BITS;
    fields->nonce++;
    private_memory = (void *)logged;
    assert_int_equal(machine->link_open(port, &addr, &link), 0);
    assert_false(machine->link_alive(link));
    struct um_lane *lane;
    assert_int_equal(machine->lane_open(link, &lane), -EHOSTUNREACH);
    struct um_piece piece = {.addr = (uintptr_t)logged, .len = 100};
    char bytes[100] = "x";
    struct iovec local = {bytes, sizeof(bytes)};
    assert_int_equal(copy_now(link, false, &COPY(&piece, 1, &local, 1, 100)), -ESRCH);
    assert_int_equal(copy_now(link, true, &COPY(&piece, 1, &local, 1, 100)), -ESRCH);
    machine->link_close(link);
    machine->port_close(port);
}

static const char *stranger(struct parent *parent)
{
    struct um_port *port;
    struct um_link *link;
    struct um_lane *lane;
    struct um_port_config config = {0};
    if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0)
        return "no other user to be";
    if (machine->port_open(&config, &port) != 0)
        return "no port";
    if (machine->link_open(port, parent->arg, &link) != 0)
        return "no link";
    log_count = 0;
    if (machine->lane_open(link, &lane) != -EACCES)
        return "another user's lane was not refused with EACCES";
    return log_count == 1 && strstr(logged, "user") ? NULL : "the refusal was not explained";
}

static void another_user_is_refused_with_the_remedy(void **state)
{
    (void)state;
    if (geteuid() != 0)
        return; /* only root can become another user */
    struct um_port *port = port_new(0);
    struct um_addr addr = addr_of(port);
    struct child child = child_start(stranger, &addr);
    child_join(&child);
    expect_nothing(port);
    machine->port_close(port);
}

static uint64_t pages_of(const struct um_port *port)
{
    struct um_addr addr = addr_of(port);
    struct stat st;
    assert_int_equal(fstat(um_shm_addr_of(&addr)->memory_fd, &st), 0);
    return (uint64_t)st.st_blocks * 512 / UM_PAGE;
}

static void the_pages_of_grown_lanes_go_back_to_the_system(void **state)
{
    (void)state;
    struct um_port *a = port_new(0), *b = port_new(0);
    uint64_t before = 0;
    for (int round = 0; round < 3; round++) {
        struct path p[8];
        for (int i = 0; i < 8; i++) {
            p[i] = path_joined(a, b);
            machine->lane_body_max(p[i].lane, machine->body_max);
            for (uint64_t n = 0; n < 20; n++) {
                message_send(p[i].lane, MESSAGE(n, .body_len = machine->body_max));
                expect_message(b, p[i].rx, MESSAGE(n, .body_len = machine->body_max));
            }
        }
        uint64_t during = pages_of(b);
        for (int i = 0; i < 8; i++)
            path_end(&p[i]);
        uint64_t after = pages_of(b);
        assert_true(after + 8 * (uint64_t)machine->body_max / UM_PAGE < during);
        assert_true(round == 0 || after <= before);
        before = after;
    }
    machine->port_close(b);
    machine->port_close(a);
}

static const char *idler(struct parent *parent)
{
    (void)parent;
    return NULL;
}

static void a_fork_disturbs_no_lane(void **state)
{
    (void)state;
    struct um_port *a = port_new(0), *b = port_new(0);
    struct path p = path_joined(a, b);
    for (uint64_t i = 0; i < 20; i++) {
        message_send(p.lane, MESSAGE(i));
        struct child child = child_start(idler, NULL);
        message_send(p.lane, MESSAGE(100 + i, .body_len = 100));
        expect_message(b, p.rx, MESSAGE(i));
        child_join(&child);
        expect_message(b, p.rx, MESSAGE(100 + i, .body_len = 100));
        machine->tick(b);
    }
    path_end(&p);
    machine->port_close(b);
    machine->port_close(a);
}

/* ---- what cannot be mapped ---- */

static const char *waiter(struct parent *parent)
{
    struct um_port *port;
    struct um_port_config config = {.private_copy = true};
    char byte;
    if (machine->port_open(&config, &port) != 0)
        return "no port";
    struct um_addr addr = addr_of(port);
    pipe_put(parent->to_parent, &addr, sizeof(addr));
    pipe_get(parent->from_parent, &byte, 1);
    machine->port_close(port);
    return NULL;
}

static void try_often(struct um_link *link, int resource, rlim_t most)
{
    struct rlimit before, now;
    struct um_lane *lane;
    int failed = 0;
    assert_int_equal(getrlimit(resource, &before), 0);
    now = (struct rlimit){.rlim_cur = most, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(resource, &now), 0);
    log_count = 0;
    for (int i = 0; i < 1000; i++)
        failed += machine->lane_open(link, &lane) != 0;
    setrlimit(resource, &before);
    assert_int_equal(failed, 1000);
    assert_in_range(log_count, 1, 8);
    assert_non_null(strstr(logged, "ulimit"));
}

static void expect_no_flood(int resource, rlim_t most)
{
    struct um_port *port = port_new(0);
    struct um_addr addr;
    struct um_link *link;
    struct um_lane *lane;
    struct child child = child_start(waiter, NULL);
    pipe_get(child.from_child, &addr, sizeof(addr));
    assert_int_equal(machine->link_open(port, &addr, &link), 0);
    try_often(link, resource, most);
    assert_int_equal(machine->lane_open(link, &lane), 0);
    machine->lane_close(lane);
    machine->link_close(link);
    pipe_put(child.to_child, "", 1);
    child_join(&child);
    machine->port_close(port);
}

static void a_peer_that_cannot_be_opened_floods_no_log(void **state)
{
    (void)state;
    expect_no_flood(RLIMIT_NOFILE, 3);
}

static void a_peer_that_cannot_be_mapped_floods_no_log(void **state)
{
    (void)state;
#if !defined(__SANITIZE_ADDRESS__) /* AddressSanitizer needs address space of its own */
    needs(has_memory_limit());
    expect_no_flood(RLIMIT_AS, 4096);
#endif
}

GROUP(process, T(processes_talk), T(processes_that_sleep_wake_each_other),
      T(memory_of_another_process_is_read_and_written), T(an_address_of_another_host_is_refused_with_the_remedy),
      T(an_address_of_another_version_is_refused_by_number), T(a_process_that_took_over_the_pid_is_not_the_peer),
      T(another_user_is_refused_with_the_remedy), T(a_fork_disturbs_no_lane),
      T(the_pages_of_grown_lanes_go_back_to_the_system), T(a_peer_that_cannot_be_opened_floods_no_log),
      T(a_peer_that_cannot_be_mapped_floods_no_log));
