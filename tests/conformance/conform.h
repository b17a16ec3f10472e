/*
 * What the conformance tests share: the machine under test, ports and paths, messages whose content can be checked.
 *
 * `conformance MACHINE[:MODE] GROUP` runs the tests of one file against one machine; a machine with seeded stalls
 * (sim) returns -EAGAIN and "no record" at random, which every helper here tolerates. The assertions of a test run in
 * its main thread only; other threads return what went wrong.
 */
#ifndef UM_TESTS_CONFORM_H
#define UM_TESTS_CONFORM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "machine/machines.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

extern const struct um_machine *machine;
/* True for shm alone: its peers are processes, and it copies their private memory by system calls. */
extern bool has_processes;
/* Multiplies the rounds of some tests: 30 if UM_TEST_LONG is set, else 1. */
extern int effort;
/* The last line that the code under test logged, and the number of lines; without those of level debug. */
extern char logged[1024];
extern int log_count;

enum {
    SEC = 1000,              /* milliseconds */
    PATIENCE = 20 * SEC,     /* longest wait for what must happen */
    SENDER_LANES_MAX = 4096, /* more than any machine has */
};

/* ---- ports and paths ---- */

struct um_port *port_new(uint32_t lanes_max);
struct um_addr addr_of(const struct um_port *port);

/* One direction between two ports. */
struct path {
    struct um_port *from;
    struct um_port *to;
    struct um_link *link;
    struct um_lane *lane;
    struct um_rx *rx; /* set when the receiver has taken UM_REC_JOINED */
};

/* Opens link and lane; nothing is polled. */
struct path path_open(struct um_port *from, struct um_port *to);
/* The same, and the receiver takes UM_REC_JOINED. */
struct path path_joined(struct um_port *from, struct um_port *to);
/* Closes lane and link. */
void path_close(struct path *path);
/* Closes lane and link, and the receiver takes UM_REC_LEFT with 0. */
void path_end(struct path *path);

/* Opens a lane. Tries again on -EAGAIN only if the machine has stalls. */
int lane_open_now(struct um_link *link, struct um_lane **lane_p);

/* ---- copies ---- */

/* Starts a copy, and waits until it ends. Returns its result. */
int copy_now(struct um_link *link, bool write, const struct um_copy *copy);
#define COPY(r, rn, l, ln, n)                                                                                          \
    ((struct um_copy){.remote = (r), .remote_count = (rn), .local = (l), .local_count = (ln), .len = (n)})

/* ---- messages ---- */

/* The content of a message follows from its number. body_len 0: there is no body, and the record's len is the low 16
 * bits of the number. */
struct message {
    uint64_t number;
    uint32_t body_len;
    uint8_t op;
    uint8_t flags;
};

#define MESSAGE(n, ...) (&(struct message){.number = (n), .op = 1, __VA_ARGS__})

/* Claims. Tries again on -EAGAIN only if the machine has stalls. */
int claim_now(struct um_lane *lane, uint32_t body_len, struct um_slot *slot_p);
void message_fill(const struct um_slot *slot, const struct message *msg);
/* True if the record is the message, byte by byte. For any thread. */
bool message_is(const struct um_record *rec, const struct message *msg);
/* Returns the number of the message in a record. */
uint64_t message_number(const struct um_record *rec);

/* Claims, fills and commits. Returns the error of the claim. */
int message_try(struct um_lane *lane, const struct message *msg);
/* The same, and it must succeed. */
void message_send(struct um_lane *lane, const struct message *msg);

/* ---- receiving ---- */

/* Polls as often as a machine with stalls may need to find a record that is there. False: there is none. */
bool poll_now(struct um_port *port, struct um_record *rec_p);
/* The next record must be this message; it is released. */
void expect_message(struct um_port *port, const struct um_rx *rx, const struct message *msg);
/* The next record must tell that the port joined; returns its rx, released. */
struct um_rx *expect_joined(struct um_port *port, const struct um_port *from);
/* The next record must tell that rx left with this error; released. */
void expect_left(struct um_port *port, const struct um_rx *rx, int error);
/* The same, but for any error except 0, which may take some tick()s; returns it. */
int expect_death(struct um_port *port, const struct um_rx *rx);
/* Polls many times; there must be no record. */
void expect_nothing(struct um_port *port);
/* Arms a port that has nothing to do; the first try may still find work. */
void arm_now(struct um_port *port);

/* ---- time and chance ---- */

uint64_t now_ms(void);
void sleep_us(unsigned us);
/* Returns memory that peers reach at the best level: the machine's own (memory_alloc) if it has any, else `plain`.
 * Valid until memory_end(). */
void *memory_begin(void *plain, size_t len);
void memory_end(void);

/* Returns the next number, below `below`, of a pseudo-random sequence that follows from the seed. */
uint32_t chance(uint64_t *seed, uint32_t below);
/* True if the descriptor becomes readable within this many milliseconds. */
bool is_readable(int fd, int ms);

/* ---- processes ---- */

/* A child process. It runs main(), which returns NULL, or what went wrong: then the child has failed. */
struct child {
    int pid;
    int from_child; /* to read what the child writes to its parent */
    int to_child;
};

/* The child's ends of the pipes, and its argument. */
struct parent {
    int from_parent;
    int to_parent;
    void *arg;
};

struct child child_start(const char *(*main)(struct parent *), void *arg);
/* Write and read exactly len bytes through a pipe. If that fails, the process aborts. */
void pipe_put(int fd, const void *data, size_t len);
void pipe_get(int fd, void *data, size_t len);
/* Waits until the child ends; it must have succeeded. */
void child_join(struct child *child);
/* Kills the child (SIGKILL). It stays a zombie until child_reap(). */
void child_kill(const struct child *child);
void child_reap(struct child *child);
/* Waits until the child writes this byte, just before it sleeps; at the return it probably sleeps. */
void child_await_sleep(const struct child *child, char says);

/* ---- the groups ---- */

struct group {
    const char *name;
    const struct CMUnitTest *tests;
    size_t count;
};

#define GROUP(group_name, ...)                                                                                         \
    static const struct CMUnitTest group_tests[] = {__VA_ARGS__};                                                      \
    const struct group group_name##_group = {#group_name, group_tests, sizeof(group_tests) / sizeof(group_tests[0])}
#define T(name) cmocka_unit_test(name)

extern const struct group address_group, lane_group, body_group, credit_group, answer_group, facing_group, close_group,
    reuse_group, refuse_group, copy_group, transfer_group, region_group, wait_group, wakeup_group, stress_group,
    between_group, net_group, net_order_group, net_poll_group, net_end_group, net_settings_group, net_broken_group,
    net_descriptors_group, net_bodies_group, net_large_group, sim_group, process_group, death_group,
    receiver_death_group, board_group, board_gone_group, dma_group, line_group, wide_group, stores_group,
    capability_group;

#endif
