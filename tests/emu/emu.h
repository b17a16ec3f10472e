/*
 * What the tests of the emulated board share: a board for each test, and children that speak through pipes.
 *
 * A board's name holds the test's pid and a number, so that nothing is shared with other tests. `emu_x ENGINE` chooses
 * UNIMEM_EMU_ENGINE. Children do not use cmocka, but demand().
 */
#ifndef UNIMEM_TESTS_EMU_H
#define UNIMEM_TESTS_EMU_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "emu/emu.h"
#include "needs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* The name of the test's board; new with board_fresh(). */
extern char board_name[64];

/* Chooses a new name, and the timing (NULL: off) and the parameters (NULL: none) with which the next board starts. */
void board_fresh(const char *timing, const char *params);

/* Opens a handle on that board, on a node; in a test or in a child. */
struct unimem_board *board_open(uint32_t node);
struct unimem_mailbox *mailbox_open(struct unimem_board *board);
struct unimem_mailbox_address address_of(const struct unimem_mailbox *mailbox);
void *dmable(struct unimem_board *board, size_t len);

/* Ends the process if the condition does not hold. */
#define demand(condition) demand_that((condition), #condition, __FILE__, __LINE__)
void demand_that(bool condition, const char *text, const char *file, int line);

/* Sends and receives with retries, up to a limit. */
void send_patiently(struct unimem_board *board, const struct unimem_mailbox_address *to, const void *message);
void receive_patiently(struct unimem_mailbox *mailbox, void *message);
/* Polls a DMA until it ends, and returns its result. */
int dma_wait(struct unimem_board *board, uint64_t dma);

struct child {
    pid_t pid;
    int from, to;
};

/* Starts a process that runs main, with pipes to and from this one. It is killed when this one ends. */
struct child child_start(void (*main)(int from, int to, void *arg), void *arg);
/* Write and read exactly len bytes. */
void pipe_put(int fd, const void *data, size_t len);
void pipe_get(int fd, void *data, size_t len);
/* Waits for the end of the child, which must succeed. */
void child_join(struct child *child);
/* Kills the child (SIGKILL), and waits for its end. */
void child_kill(struct child *child);

/* Returns the pid of the server of the board with that name, which it looks for in /proc; 0: there is none. */
pid_t server_of(const char *name);

/* Waits until the condition holds, up to a limit that only a failure reaches. */
#define await(condition)                                                                                               \
    for (int tries_ = 0; !(condition); tries_++) {                                                                     \
        demand(tries_ < 20000);                                                                                        \
        pause_ms();                                                                                                    \
    }
void pause_ms(void);

int run_group(int argc, char **argv, const char *name, const struct CMUnitTest *tests, size_t count);
#define RUN(name, ...)                                                                                                 \
    int main(int argc, char **argv)                                                                                    \
    {                                                                                                                  \
        const struct CMUnitTest tests[] = {__VA_ARGS__};                                                               \
        return run_group(argc, argv, name, tests, sizeof(tests) / sizeof(tests[0]));                                   \
    }
#define T(name) cmocka_unit_test(name)

#endif
