/* Conformance: ports and their addresses. */
#include "conform.h"

#include "machine/address.h"

#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

static void a_port_has_an_address_and_it_stays(void **state)
{
    (void)state;
    static const struct um_addr none;
    struct um_port *a = port_new(0);
    struct um_addr addr = addr_of(a), again = addr_of(a);
    assert_memory_not_equal(&addr, &none, sizeof(addr));
    assert_memory_equal(&addr, &again, sizeof(addr));
    machine->port_close(a);
}

static void every_port_has_another_address_also_later(void **state)
{
    (void)state;
    enum { N = 50 };
    struct um_addr addr[N];
    struct um_port *keep = port_new(4);
    addr[0] = addr_of(keep);
    for (int i = 1; i < N; i++) {
        struct um_port *port = port_new(4);
        addr[i] = addr_of(port);
        machine->port_close(port);
        for (int j = 0; j < i; j++)
            assert_memory_not_equal(&addr[i], &addr[j], sizeof(addr[i]));
    }
    machine->port_close(keep);
}

static void the_address_of_a_peer_passes_the_check(void **state)
{
    (void)state;
    struct um_port *a = port_new(0), *b = port_new(0);
    struct um_addr addr = addr_of(b), own = addr_of(a);
    assert_int_equal(machine->addr_check(a, &addr, true), 0);
    assert_int_equal(machine->addr_check(a, &own, true), 0);
    machine->port_close(b);
    machine->port_close(a);
}

static void what_is_no_address_is_refused(void **state)
{
    (void)state;
    struct um_port *a = port_new(0);
    struct um_link *link = (void *)a;
    uint64_t seed = 5;
    for (int i = 0; i < 50; i++) {
        struct um_addr addr = {0};
        if (i == 1)
            memset(&addr, 0xff, sizeof(addr));
        for (size_t b = 0; i > 1 && b < sizeof(addr); b++)
            ((unsigned char *)&addr)[b] = (unsigned char)chance(&seed, 256);
        assert_int_equal(machine->addr_check(a, &addr, true), -EPROTO);
        assert_int_equal(machine->link_open(a, &addr, &link), -EPROTO);
        assert_ptr_equal(link, a);
    }
    machine->port_close(a);
}

/* Version 1 had no header: it began with the hash of a boot id, whose bit 0 was set. */
static void an_address_of_wire_version_1_is_named(void **state)
{
    (void)state;
    struct um_port *a = port_new(0);
    struct um_addr addr = {.word = {0xabcdef01234567c5u, 5, 6, 7, 8, UINT64_C(0x0101) << 48}};
    log_count = 0;
    assert_int_equal(machine->addr_check(a, &addr, false), -EPROTO);
    assert_int_equal(log_count, 0); /* not logged: another machine will be asked */
    assert_int_equal(machine->addr_check(a, &addr, true), -EPROTO);
    assert_int_equal(log_count, 1);
    assert_non_null(strstr(logged, "an address of wire version 1: "));
    machine->port_close(a);
}

static void an_address_without_its_part_is_refused_with_the_remedy(void **state)
{
    (void)state;
    struct um_port *a = port_new(0), *b = port_new(0);
    struct um_addr addr = addr_of(b);
    assert_true(um_addr_has(machine, &addr));
    addr.word[0] ^= (uint64_t)(machine->addr_kind | 64) << UM_ADDR_KINDS_SHIFT;
    log_count = 0;
    assert_int_equal(machine->addr_check(a, &addr, true), -EPROTO);
    assert_int_equal(log_count, 1);
    assert_non_null(strstr(logged, "FI_UNIMEM_MACHINE"));
    machine->port_close(b);
    machine->port_close(a);
}

/* While another machine can be asked, an address passes the check only if its port is found (shm looks for it). */
static void an_address_that_leads_nowhere_is_left_to_another_machine(void **state)
{
    (void)state;
    struct um_port *a = port_new(0), *b = port_new(0);
    struct um_addr addr = addr_of(b);
    assert_int_equal(machine->addr_check(a, &addr, false), 0);
    machine->port_close(b);
    assert_int_equal(machine->addr_check(a, &addr, true), 0);
    if (machine == &um_machine_shm) {
        log_count = 0;
        assert_int_equal(machine->addr_check(a, &addr, false), -EHOSTUNREACH);
        assert_int_equal(log_count, 0);
    }
    machine->port_close(a);
}

static void a_link_reaches_no_peer_until_it_is_used(void **state)
{
    (void)state;
    struct um_port *a = port_new(0), *b = port_new(0);
    struct um_addr addr = addr_of(b);
    struct um_link *link;
    machine->port_close(b);
    assert_int_equal(machine->link_open(a, &addr, &link), 0);
    machine->link_close(link);
    machine->port_close(a);
}

static void a_port_can_send_to_itself(void **state)
{
    (void)state;
    struct um_port *a = port_new(0);
    struct path self = path_joined(a, a);
    message_send(self.lane, MESSAGE(1, .body_len = 100));
    expect_message(a, self.rx, MESSAGE(1, .body_len = 100));
    machine->answer(self.rx, 3, 4);
    struct um_answer answer;
    assert_int_equal(machine->lane_reap(self.lane, &answer, 1), 1);
    path_end(&self);
    machine->port_close(a);
}

static int open_files(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;
    assert_non_null(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static int mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    int lines = 0;
    assert_non_null(maps);
    for (int c = getc(maps); c != EOF; c = getc(maps))
        lines += c == '\n';
    fclose(maps);
    return lines;
}

static void once(void)
{
    struct um_port *a = port_new(8), *b = port_new(8);
    struct path ab = path_joined(a, b), ba = path_joined(b, a);
    message_send(ab.lane, MESSAGE(1, .body_len = 100));
    expect_message(b, ab.rx, MESSAGE(1, .body_len = 100));
    machine->arm(a);
    machine->arm(b);
    machine->kick(a);
    machine->disarm(a);
    machine->disarm(b);
    path_end(&ab);
    path_close(&ba);
    machine->port_close(b);
    machine->port_close(a);
}

/* The inner provider of net closes a connection some time after its endpoint. */
static bool files_come_down_to(int files)
{
    for (int i = 0; i < 100 && open_files() > files; i++)
        usleep(100000);
    return open_files() <= files;
}

static void closed_ports_leave_no_file_and_no_mapping(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++)
        once();
    int files = open_files(), maps = mappings();
    for (int i = 0; i < 200; i++)
        once();
    assert_true(files_come_down_to(files + 10)); /* a few connections of net may close at the next port */
    assert_true(mappings() < maps + 20);         /* the heap may grow a little */
}

static void the_machine_tells_what_a_lane_can_do(void **state)
{
    (void)state;
    assert_true(machine->body_max >= 1024);
    assert_true(machine->depth >= 16);
}

GROUP(address, T(an_address_of_wire_version_1_is_named), T(a_port_has_an_address_and_it_stays),
      T(every_port_has_another_address_also_later), T(the_address_of_a_peer_passes_the_check),
      T(what_is_no_address_is_refused), T(an_address_without_its_part_is_refused_with_the_remedy),
      T(an_address_that_leads_nowhere_is_left_to_another_machine), T(a_link_reaches_no_peer_until_it_is_used),
      T(a_port_can_send_to_itself), T(closed_ports_leave_no_file_and_no_mapping),
      T(the_machine_tells_what_a_lane_can_do));
