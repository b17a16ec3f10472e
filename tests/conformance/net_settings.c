/* The machine over another provider: what its settings do, and which values it refuses. */
#include "net_two.h"

#include "machine/address.h"
#include "machine/net/config.h"

#include <string.h>

static void a_provider_that_is_not_there_is_named_with_the_remedy(void **state)
{
    (void)state;
    const struct um_port_config config = {.private_copy = true};
    struct um_port *port;
    assert_int_equal(um_net_set_use("nosuch"), 0);
    log_count = 0;
    assert_int_equal(machine->port_open(&config, &port), -ENODATA);
    assert_int_equal(log_count, 1);
    assert_non_null(strstr(logged, "nosuch"));
    assert_non_null(strstr(logged, "FI_UNIMEM_NET"));
    assert_int_equal(um_net_set_use("on"), 0);
    assert_int_equal(um_net_set_use("unimem"), -EINVAL);
    assert_int_equal(um_net_set_use("tcp,udp"), -EINVAL);
    assert_int_equal(um_net_set_address("203.0.113.7"), 0); /* this host does not have it */
    assert_int_not_equal(machine->port_open(&config, &port), 0);
    assert_non_null(strstr(logged, "FI_UNIMEM_NET_ADDRESS"));
    assert_int_equal(um_net_set_address("127.0.0.1"), 0);
    machine->port_close(port_new(0));
    static const char *const wrong[] = {"", "-1", "x", "6s", "86401", "1.5"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(um_net_set_timeout(wrong[i]), -EINVAL);
    assert_int_equal(um_net_set_timeout("86400"), 0);
    assert_int_equal(um_net_set_timeout(NULL), 0);
}

/* libfabric does not accept units in this variable. */
static void a_size_of_buffers_that_libfabric_reads_otherwise_is_named(void **state)
{
    static const struct {
        const char *text;
        uint32_t most; /* bytes of a message */
        bool is_odd;
    } sizes[] = {{"8192", 8192, false}, {"0x400", 1024, false}, {"65536", 16384, false},
                 {"64K", 304, true},    {"8192B", 8192, true},  {"0", 304, true}};
    (void)state;
    struct um_port *port = port_new(0);
    const bool is_rxm = strstr(net_of(port)->inner.info->fabric_attr->prov_name, "tcp;ofi_rxm");
    machine->port_close(port);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && is_rxm; i++) {
        setenv("FI_OFI_RXM_BUFFER_SIZE", sizes[i].text, 1);
        logged[0] = 0;
        port = port_new(0);
        assert_int_equal(net_of(port)->inner.body_max, sizes[i].most - sizeof(struct um_net_record_wire));
        assert_int_equal(strstr(logged, "FI_OFI_RXM_BUFFER_SIZE") != NULL, sizes[i].is_odd);
        machine->port_close(port);
    }
    unsetenv("FI_OFI_RXM_BUFFER_SIZE");
}

static void a_peer_with_another_provider_is_refused_with_the_remedy(void **state)
{
    (void)state;
    open_two();
    struct um_addr addr = addr_of(b);
    struct um_link *link;
    addr.word[UM_NET_ADDR_FIRST] ^= UINT64_C(1) << 16;
    log_count = 0;
    assert_int_equal(machine->addr_check(a, &addr, false), -EPROTO);
    assert_int_equal(log_count, 0);
    assert_int_equal(machine->link_open(a, &addr, &link), -EPROTO);
    assert_non_null(strstr(logged, "the same FI_UNIMEM_NET"));
    close_two();
}

static void without_an_inner_provider_there_is_no_socket_and_no_part(void **state)
{
    (void)state;
    open_two();
    struct um_addr addr = addr_of(b), own = {{0}};
    struct um_record rec;
    struct um_link *link;
    assert_int_equal(um_net_set_use("off"), 0);
    struct um_port *off = port_new(0);
    assert_int_equal(um_net_set_use("on"), 0);
    assert_false(net_of(off)->is_open);
    machine->port_addr(off, &own);
    assert_false(um_addr_has(machine, &own));
    assert_int_equal(machine->addr_check(off, &addr, false), -EHOSTUNREACH);
    assert_int_equal(machine->link_open(off, &addr, &link), -EHOSTUNREACH);
    assert_non_null(strstr(logged, "FI_UNIMEM_NET=on"));
    assert_int_equal(machine->poll(off, &rec), 0);
    assert_int_equal(machine->arm(off), 0);
    machine->kick(off);
    assert_true(is_readable(machine->wait_fd(off), 0));
    machine->disarm(off);
    assert_false(is_readable(machine->wait_fd(off), 0));
    machine->tick(off);
    machine->port_close(off);
    close_two();
}

static const char *const launchers[] = {
    "MPI_LOCALNRANKS",      "PMI_SIZE",    "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE",
    "SLURM_STEP_NUM_NODES", "SLURM_NNODES"};

/* Sets the variables of `launchers` to these values (NULL: not set), and returns what the machine concludes. */
static bool is_on_one_host(const char *const values[6])
{
    for (int i = 0; i < 6; i++) {
        unsetenv(launchers[i]);
        if (values[i])
            setenv(launchers[i], values[i], 1);
    }
    const bool is = um_net_job_is_on_one_host();
    for (int i = 0; i < 6; i++)
        unsetenv(launchers[i]);
    return is;
}

static void the_launcher_says_whether_there_are_other_hosts(void **state)
{
    (void)state;
    assert_false(is_on_one_host((const char *const[6]){NULL}));
    assert_true(is_on_one_host((const char *const[6]){"4", "4"}));
    assert_false(is_on_one_host((const char *const[6]){"2", "4"}));
    assert_true(is_on_one_host((const char *const[6]){NULL, "4", "3", "3"}));
    assert_false(is_on_one_host((const char *const[6]){NULL, NULL, "1", "3"}));
    assert_true(is_on_one_host((const char *const[6]){NULL, NULL, NULL, NULL, "1", "4"})); /* that of the step */
    assert_false(is_on_one_host((const char *const[6]){NULL, NULL, NULL, NULL, NULL, "2"}));
    assert_false(is_on_one_host((const char *const[6]){"x", "x"}));
    setenv("PMI_SPAWNED", "0", 1);
    assert_true(is_on_one_host((const char *const[6]){"4", "4"}));
    setenv("PMI_SPAWNED", "1", 1); /* by ranks that may be on another host */
    assert_false(is_on_one_host((const char *const[6]){"4", "4"}));
    unsetenv("PMI_SPAWNED");
    setenv("OMPI_PARENT_PORT", "1.0:2", 1);
    assert_false(is_on_one_host((const char *const[6]){NULL, "4", "3", "3"}));
    unsetenv("OMPI_PARENT_PORT");
    assert_int_equal(um_net_set_use("auto"), 0);
    setenv("SLURM_NNODES", "1", 1);
    assert_true(um_net_is_wanted(true));
    assert_false(um_net_is_wanted(false));
    unsetenv("SLURM_NNODES");
    assert_true(um_net_is_wanted(false));
    assert_int_equal(um_net_set_use("on"), 0);
}

GROUP(net_settings, T(a_provider_that_is_not_there_is_named_with_the_remedy),
      T(a_size_of_buffers_that_libfabric_reads_otherwise_is_named),
      T(a_peer_with_another_provider_is_refused_with_the_remedy),
      T(without_an_inner_provider_there_is_no_socket_and_no_part), T(the_launcher_says_whether_there_are_other_hosts));
