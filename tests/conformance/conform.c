/* Helpers of conform.h, and the choice of machine and group. */
#include "conform.h"
#include "needs.h"
#include "net.h"

#include "base/clock.h"
#include "base/log.h"
#include "machine/board/config.h"
#include "machine/sim/sim.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

const struct um_machine *machine;
bool has_processes;
int effort = 1;
char logged[1024];
int log_count;

/* How often a helper tries. A machine with stalls refuses a try with a probability of 0.3: 40 refusals in a row never
 * happen. */
static int tries = 1;

/* ---- time and chance ---- */

uint64_t now_ms(void)
{
    return um_clock_ns() / 1000000;
}

void sleep_us(unsigned us)
{
    struct timespec ts = {.tv_sec = us / 1000000, .tv_nsec = (long)(us % 1000000) * 1000};
    nanosleep(&ts, NULL);
}

uint32_t chance(uint64_t *seed, uint32_t below)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((*seed >> 33) % below);
}

bool is_readable(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int n;
    do
        n = poll(&p, 1, ms);
    while (n < 0 && errno == EINTR);
    return n == 1 && (p.revents & POLLIN);
}

/* ---- memory ---- */

static struct um_space *memory_space;

void *memory_begin(void *plain, size_t len)
{
    const struct um_space_config config = {.adopt = true};
    void *memory = NULL;
    if (!machine->memory_alloc)
        return plain;
    if (!memory_space)
        assert_int_equal(machine->space_open(&config, &memory_space), 0);
    assert_int_equal(machine->memory_alloc(memory_space, len, &memory), 0);
    return memory;
}

void memory_end(void)
{
    if (memory_space)
        machine->space_close(memory_space);
    memory_space = NULL;
}

/* ---- copies ---- */

int copy_now(struct um_link *link, bool write, const struct um_copy *copy)
{
    struct um_copy whole = *copy;
    struct um_transfer *transfer = NULL;
    whole.write = write;
    int ret = machine->transfer_start(link, &whole, &transfer);
    uint64_t end = now_ms() + PATIENCE;
    if (ret == -EINPROGRESS)
        assert_ptr_equal(transfer->machine, machine);
    while (ret == -EINPROGRESS) {
        if (now_ms() > end)
            fail_msg("a copy of %zu bytes does not end", copy->len);
        ret = machine->transfer_poll(transfer);
    }
    return ret;
}

/* ---- ports and paths ---- */

struct um_port *port_new(uint32_t lanes_max)
{
    struct um_port *port = NULL;
    struct um_port_config config = {.lanes_max = lanes_max, .private_copy = true};
    assert_int_equal(machine->port_open(&config, &port), 0);
    assert_non_null(port);
    assert_ptr_equal(port->machine, machine);
    return port;
}

struct um_addr addr_of(const struct um_port *port)
{
    struct um_addr addr = {0};
    machine->port_addr(port, &addr);
    return addr;
}

int lane_open_now(struct um_link *link, struct um_lane **lane_p)
{
    int ret = -EAGAIN;
    for (int i = 0; i < tries && ret == -EAGAIN; i++)
        ret = machine->lane_open(link, lane_p);
    return ret;
}

struct path path_open(struct um_port *from, struct um_port *to)
{
    struct path path = {.from = from, .to = to};
    struct um_addr addr = addr_of(to);
    assert_int_equal(machine->link_open(from, &addr, &path.link), 0);
    assert_int_equal(lane_open_now(path.link, &path.lane), 0);
    return path;
}

struct path path_joined(struct um_port *from, struct um_port *to)
{
    struct path path = path_open(from, to);
    path.rx = expect_joined(to, from);
    return path;
}

void path_close(struct path *path)
{
    machine->lane_close(path->lane);
    machine->link_close(path->link);
}

void path_end(struct path *path)
{
    path_close(path);
    expect_left(path->to, path->rx, 0);
}

/* ---- messages ---- */

enum { NOISE = 8192, LONGEST = 256 << 10 /* bytes: no machine's records have longer bodies */ };

/* Random bytes, so that bytes from a wrong ring position do not compare equal. Filled before there are threads. */
static unsigned char noise[NOISE + LONGEST];

static void noise_fill(void)
{
    uint64_t seed = 42;
    for (size_t i = 0; i < sizeof(noise); i++)
        noise[i] = (unsigned char)chance(&seed, 256);
}

static const unsigned char *body_of(const struct message *msg)
{
    if (msg->body_len > LONGEST)
        abort(); /* not in every thread could cmocka fail */
    return noise + (msg->number * 61 + msg->body_len) % NOISE;
}

static void header_of(const struct message *msg, uint64_t header[UM_HEADER_MAX / 8])
{
    header[0] = msg->number;
    for (int i = 1; i < UM_HEADER_MAX / 8; i++)
        header[i] = (msg->number + 1) * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)i;
}

void message_fill(const struct um_slot *slot, const struct message *msg)
{
    header_of(msg, slot->header);
    if (msg->body_len)
        memcpy(slot->body, body_of(msg), msg->body_len);
}

bool message_is(const struct um_record *rec, const struct message *msg)
{
    uint64_t header[UM_HEADER_MAX / 8];
    header_of(msg, header);
    if ((uintptr_t)rec->header % 8 || rec->op != msg->op || (rec->flags & (UM_FLAG_MASK | UM_FLAG_ACK)) != msg->flags ||
        memcmp(rec->header, header, sizeof(header)) != 0)
        return false;
    if (!msg->body_len)
        return rec->len == (uint16_t)msg->number && !rec->body;
    return rec->len == msg->body_len && rec->body && memcmp(rec->body, body_of(msg), msg->body_len) == 0;
}

uint64_t message_number(const struct um_record *rec)
{
    uint64_t number;
    memcpy(&number, rec->header, sizeof(number));
    return number;
}

int claim_now(struct um_lane *lane, uint32_t body_len, struct um_slot *slot_p)
{
    int ret = -EAGAIN;
    for (int i = 0; i < tries && ret == -EAGAIN; i++)
        ret = machine->claim(lane, body_len, slot_p);
    return ret;
}

int message_try(struct um_lane *lane, const struct message *msg)
{
    struct um_slot slot;
    int ret = claim_now(lane, msg->body_len, &slot);
    if (ret)
        return ret;
    message_fill(&slot, msg);
    machine->commit(lane, &slot, msg->op, msg->flags, msg->body_len ? msg->body_len : (uint16_t)msg->number);
    return 0;
}

void message_send(struct um_lane *lane, const struct message *msg)
{
    int ret = message_try(lane, msg);
    if (ret)
        fail_msg("message %llu of %u bytes: claim says %s", (unsigned long long)msg->number, msg->body_len,
                 strerror(-ret));
}

/* ---- receiving ---- */

bool poll_now(struct um_port *port, struct um_record *rec_p)
{
    for (int i = 0; i < tries; i++) {
        int ret = machine->poll(port, rec_p);
        if (ret)
            return ret == 1;
    }
    return false;
}

static const char *record_text(const struct um_record *rec)
{
    static char text[128];
    if (rec->op < UM_OPCODE_MACHINE)
        snprintf(text, sizeof(text), "message %llu (op %u, flags 0x%x, len %u)",
                 (unsigned long long)message_number(rec), rec->op, rec->flags, rec->len);
    else
        snprintf(text, sizeof(text), "%s with %s", rec->op == UM_REC_JOINED ? "JOINED" : "LEFT",
                 strerror((int)rec->len));
    return text;
}

void expect_message(struct um_port *port, const struct um_rx *rx, const struct message *msg)
{
    struct um_record rec;
    if (!poll_now(port, &rec))
        fail_msg("nothing came instead of message %llu", (unsigned long long)msg->number);
    if (rec.op >= UM_OPCODE_MACHINE || !message_is(&rec, msg))
        fail_msg("%s came instead of message %llu (op %u, flags 0x%x, %u bytes)", record_text(&rec),
                 (unsigned long long)msg->number, msg->op, msg->flags, msg->body_len);
    assert_ptr_equal(rec.rx, rx);
    machine->release(port, &rec);
}

struct um_rx *expect_joined(struct um_port *port, const struct um_port *from)
{
    struct um_record rec;
    struct um_addr origin, expected = addr_of(from);
    if (!poll_now(port, &rec))
        fail_msg("nothing came instead of JOINED");
    if (rec.op != UM_REC_JOINED)
        fail_msg("%s came instead of JOINED", record_text(&rec));
    assert_non_null(rec.rx);
    assert_null(rec.body);
    machine->rx_origin(rec.rx, &origin);
    assert_memory_equal(&origin, &expected, sizeof(origin));
    machine->release(port, &rec);
    return rec.rx;
}

static int left_error(struct um_port *port, const struct um_rx *rx, const struct um_record *rec)
{
    if (rec->op != UM_REC_LEFT)
        fail_msg("%s came instead of LEFT", record_text(rec));
    assert_ptr_equal(rec->rx, rx);
    machine->release(port, rec);
    return (int)rec->len;
}

void expect_left(struct um_port *port, const struct um_rx *rx, int error)
{
    struct um_record rec;
    /* The first poll may only find that the lane is empty; the next one then finds its end. */
    /* NOLINTNEXTLINE(misc-redundant-expression) */
    if (!poll_now(port, &rec) && !poll_now(port, &rec))
        fail_msg("nothing came instead of LEFT");
    assert_int_equal(left_error(port, rx, &rec), error);
}

int expect_death(struct um_port *port, const struct um_rx *rx)
{
    struct um_record rec;
    uint64_t end = now_ms() + PATIENCE;
    while (!poll_now(port, &rec)) {
        if (now_ms() > end)
            fail_msg("nothing came instead of LEFT, for all the ticks");
        machine->tick(port);
    }
    int error = left_error(port, rx, &rec);
    assert_int_not_equal(error, 0);
    return error;
}

void expect_nothing(struct um_port *port)
{
    struct um_record rec;
    for (int i = 0; i < 300; i++)
        if (machine->poll(port, &rec))
            fail_msg("%s came instead of nothing", record_text(&rec));
}

void arm_now(struct um_port *port)
{
    struct um_record rec;
    for (int i = 0; i < 5; i++) {
        if (machine->poll(port, &rec))
            fail_msg("op 0x%x came before the port could sleep", rec.op);
        if (machine->arm(port) == 0)
            return;
    }
    fail_msg("the port cannot be armed though nothing is there");
}

/* ---- main ---- */

/* Keeps the lines that users see: all but those of level debug. */
static void log_keep(enum um_log_level level, const char *text)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (level == UM_LOG_DEBUG)
        return;
    pthread_mutex_lock(&lock);
    snprintf(logged, sizeof(logged), "%s", text);
    log_count++;
    pthread_mutex_unlock(&lock);
}

static const struct group *const groups[] = {
    &address_group,
    &lane_group,
    &body_group,
    &credit_group,
    &answer_group,
    &facing_group,
    &close_group,
    &reuse_group,
    &refuse_group,
    &copy_group,
    &transfer_group,
    &region_group,
    &wait_group,
    &wakeup_group,
    &stress_group,
    &sim_group,
    &process_group,
    &death_group,
    &receiver_death_group,
    &board_group,
    &between_group,
    &net_group,
    &net_poll_group,
    &net_end_group,
    &net_order_group,
    &net_settings_group,
    &net_broken_group,
    &net_descriptors_group,
    &net_bodies_group,
    &net_large_group,
    &dma_group,
    &line_group,
    &capability_group,
    &wide_group,
    &stores_group,
    &board_gone_group,
};

static char board_name[64];

/* Accepts "board", which means its last step, and "board:STEP". */
static bool board_choose(const char *name)
{
    if (strncmp(name, "board", 5) != 0 || (name[5] && name[5] != ':') || um_board_set_step(name[5] ? name + 6 : NULL) ||
        um_board_set_library(getenv("FI_UNIMEM_BOARD_LIBRARY")))
        return false;
    snprintf(board_name, sizeof(board_name), "conformance-%d", (int)getpid());
    setenv("UNIMEM_BOARD", board_name, 1);
    setenv("UNIMEM_EMU_TIMING", "off", 1);
    return true;
}

static bool machine_choose(const char *name)
{
    if (strcmp(name, "shm") == 0) {
        machine = &um_machine_shm;
        has_processes = true;
    } else if (strcmp(name, "sim") == 0) {
        machine = &um_machine_sim;
    } else if (board_choose(name)) {
        machine = &um_machine_board;
    } else if (net_choose(name)) {
        machine = &um_machine_net_settled;
    } else if (strcmp(name, "sim:unwoken") == 0) {
        machine = &um_machine_sim_unwoken;
    } else if (strcmp(name, "sim:stall") == 0) {
        machine = &um_machine_sim;
        tries = 40;
        um_sim_configure(7, 30, 0);
    } else if (strcmp(name, "sim:slow") == 0) {
        machine = &um_machine_sim;
        um_sim_configure(7, 0, UM_SIM_SLOW);
    } else if (strcmp(name, "sim:stale") == 0) {
        machine = &um_machine_sim;
        um_sim_configure(7, 0, UM_SIM_STALE);
    } else if (strcmp(name, "sim:evict") == 0) {
        machine = &um_machine_sim;
        um_sim_configure(7, 0, UM_SIM_STALE | UM_SIM_EVICT);
    }
    return machine != NULL;
}

int main(int argc, char **argv)
{
    if (argc != 3 || !machine_choose(argv[1])) {
        fprintf(stderr,
                "usage: conformance shm|sim[:stall|:slow|:stale|:evict|:unwoken]|board[:STEP]|net[:PROVIDER] GROUP\n");
        return 2;
    }
    if (getenv("UM_TEST_LONG"))
        effort = 30;
    um_log_set_sink(log_keep);
    noise_fill();
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
        if (strcmp(argv[2], groups[i]->name) == 0)
            return needs_status(_cmocka_run_group_tests(argv[2], groups[i]->tests, groups[i]->count, NULL, NULL));
    fprintf(stderr, "conformance: no group %s\n", argv[2]);
    return 2;
}
