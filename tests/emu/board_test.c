/* Boards: names, nodes, contexts, what is left when processes or the server die. */
#include "emu.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static void a_name_is_checked(void **state)
{
    (void)state;
    struct unimem_board *board = NULL;
    char name[65];
    memset(name, 'a', sizeof(name));
    name[64] = 0;
    assert_int_equal(unimem_open(name, 0, &board), -EINVAL);
    assert_int_equal(unimem_open("a/b", 0, &board), -EINVAL);
    assert_int_equal(unimem_open("a b", 0, &board), -EINVAL);
    assert_null(board);
    board_fresh("off", NULL);
    int len = snprintf(name, sizeof(name), "%s-", board_name);
    memset(name + len, 'x', (size_t)(63 - len));
    name[63] = 0;
    assert_int_equal(unimem_open(name, 0, &board), 0);
    unimem_close(board);
    setenv("UNIMEM_BOARD", board_name, 1);
    assert_int_equal(unimem_open(NULL, 0, &board), 0);
    assert_true(server_of(board_name) > 0);
    unsetenv("UNIMEM_BOARD");
    unimem_close(board);
    assert_int_equal(unimem_version(), UNIMEM_API_VERSION);
}

static void contexts_spread_over_the_nodes(void **state)
{
    (void)state;
    board_fresh("off", "nodes=4");
    struct unimem_board *board[9], *none = NULL;
    struct unimem_info info, first = {0};
    for (uint32_t i = 0; i < 9; i++) {
        board[i] = board_open(i == 8 ? 2 : UNIMEM_NODE_ANY);
        unimem_get_info(board[i], &info);
        assert_int_equal(info.node, i == 8 ? 2 : i % 4);
        assert_int_not_equal(info.context, 0);
        if (i == 0)
            first = info;
        else
            assert_int_not_equal(info.context, first.context);
        assert_int_equal(unimem_context_alive(board[i], first.node, first.context), 1);
    }
    assert_int_equal(unimem_open(board_name, 4, &none), -EINVAL);
    assert_null(none);
    assert_int_equal(unimem_context_alive(board[1], 1, first.context), 0);
    assert_int_equal(unimem_context_alive(board[1], 0, first.context + 9), 0);
    assert_int_equal(unimem_context_alive(board[1], 0, 0), 0);
    assert_int_equal(unimem_context_alive(board[1], 4, first.context), -EINVAL);
    unimem_close(board[0]);
    assert_int_equal(unimem_context_alive(board[1], first.node, first.context), 0);
    board[0] = board_open(0);
    unimem_get_info(board[0], &info);
    assert_int_not_equal(info.context, first.context); /* the slot is used again, the number is not */
    assert_int_equal(unimem_context_alive(board[1], first.node, first.context), 0);
    for (int i = 0; i < 9; i++)
        unimem_close(board[i]);
}

static void boards_know_nothing_of_each_other(void **state)
{
    (void)state;
    struct unimem_info info;
    board_fresh("off", NULL);
    struct unimem_board *a = board_open(0), *more = board_open(0);
    struct unimem_mailbox *mailbox = mailbox_open(more);
    struct unimem_mailbox_address address = address_of(mailbox);
    board_fresh("off", NULL);
    struct unimem_board *b = board_open(0);
    unimem_get_info(more, &info);
    assert_int_equal(unimem_context_alive(a, 0, info.context), 1);
    assert_int_equal(unimem_context_alive(b, 0, info.context), 0);
    assert_int_equal(unimem_mailbox_send(b, &address, "x", 1), -ENXIO);
    unimem_close(b);
    unimem_close(a);
    unimem_close(more);
}

/* Opens the board on request, reports its context, ends on request. */
static void opener(int from, int to, void *arg)
{
    struct unimem_info info;
    char c;
    (void)arg;
    pipe_get(from, &c, 1);
    struct unimem_board *board = board_open(UNIMEM_NODE_ANY);
    unimem_get_info(board, &info);
    pipe_put(to, &info, sizeof(info));
    pipe_get(from, &c, 1);
    unimem_close(board);
}

enum { OPENERS = 12 };

static void processes_that_open_at_once_meet(void **state)
{
    (void)state;
    for (int round = 0; round < 10; round++) {
        struct child child[OPENERS];
        struct unimem_info info[OPENERS];
        board_fresh("off", NULL);
        for (int i = 0; i < OPENERS; i++)
            child[i] = child_start(opener, NULL);
        for (int i = 0; i < OPENERS; i++)
            pipe_put(child[i].to, "g", 1);
        for (int i = 0; i < OPENERS; i++)
            pipe_get(child[i].from, &info[i], sizeof(info[i]));
        struct unimem_board *board = board_open(0);
        for (int i = 0; i < OPENERS; i++)
            assert_int_equal(unimem_context_alive(board, info[i].node, info[i].context), 1);
        for (int i = 0; i < OPENERS; i++)
            pipe_put(child[i].to, "e", 1);
        for (int i = 0; i < OPENERS; i++)
            child_join(&child[i]);
        for (int i = 0; i < OPENERS; i++)
            assert_int_equal(unimem_context_alive(board, info[i].node, info[i].context), 0);
        unimem_close(board);
    }
}

static void a_board_that_ends_can_be_opened_at_any_moment(void **state)
{
    (void)state;
    board_fresh("off", NULL);
    for (int round = 0; round < 200; round++)
        unimem_close(board_open(0));
}

static void opening_leaves_the_caller_without_a_child(void **state)
{
    (void)state;
    board_fresh("off", NULL);
    struct unimem_board *board = board_open(0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    unimem_close(board);
}

/* True if the table of sockets has this name, of a board or of an interrupt. */
static bool has_socket(const char *name)
{
    char line[512];
    bool found = false;
    FILE *sockets = fopen("/proc/net/unix", "r");
    assert_non_null(sockets);
    while (fgets(line, sizeof(line), sockets))
        found |= strstr(line, name) != NULL;
    fclose(sockets);
    return found;
}

static void a_dead_process_is_noticed(void **state)
{
    (void)state;
    struct unimem_info info;
    board_fresh("off", NULL);
    struct unimem_board *board = board_open(0);
    struct child child = child_start(opener, NULL);
    pipe_put(child.to, "g", 1);
    pipe_get(child.from, &info, sizeof(info));
    assert_int_equal(unimem_context_alive(board, info.node, info.context), 1);
    child_kill(&child);
    await(unimem_context_alive(board, info.node, info.context) == 0);
    unimem_close(board);
}

/* Returns how many descriptors of dmable memory the server of the test's board has. */
static int server_areas(void)
{
    char path[64], target[256];
    struct dirent *entry;
    int count = 0;
    snprintf(path, sizeof(path), "/proc/%d/fd", server_of(board_name));
    DIR *files = opendir(path);
    assert_non_null(files);
    while ((entry = readdir(files)) != NULL) {
        ssize_t len = readlinkat(dirfd(files), entry->d_name, target, sizeof(target) - 1);
        target[len > 0 ? len : 0] = 0;
        count += strstr(target, "unimem-dmable") != NULL;
    }
    closedir(files);
    return count;
}

static void memory_ends_with_its_context(void **state)
{
    (void)state;
    board_fresh("off", NULL);
    struct unimem_board *board = board_open(0), *other = board_open(0);
    dmable(board, 4096);
    assert_int_equal(server_areas(), 1);
    for (int i = 0; i < 3; i++)
        dmable(other, 4096);
    assert_int_equal(server_areas(), 4);
    unimem_close(other);
    assert_int_equal(server_areas(), 1);
    unimem_close(board);
}

static void nothing_is_left_when_all_were_killed(void **state)
{
    (void)state;
    enum { KILLED = 4 };
    struct child child[KILLED];
    struct unimem_info info;
    board_fresh("off", NULL);
    for (int i = 0; i < KILLED; i++)
        child[i] = child_start(opener, NULL);
    for (int i = 0; i < KILLED; i++) {
        pipe_put(child[i].to, "g", 1);
        pipe_get(child[i].from, &info, sizeof(info));
    }
    assert_true(server_of(board_name) > 0);
    assert_true(has_socket(board_name));
    for (int i = 0; i < KILLED; i++)
        child_kill(&child[i]);
    await(server_of(board_name) == 0 && !has_socket(board_name));
}

struct forked {
    struct unimem_info info; /* the parent's */
    pid_t pid;
};

static void forks(int from, int to, void *arg)
{
    struct unimem_info info;
    (void)arg, (void)from;
    struct unimem_board *board = board_open(0);
    unimem_get_info(board, &info);
    struct forked told = {.info = info, .pid = fork()};
    demand(told.pid >= 0);
    if (told.pid > 0)
        pipe_put(to, &told, sizeof(told));
    for (;;)
        pause();
}

/* The child has its parent's descriptors, except those to the board. */
static void a_childs_parent_is_noticed_to_be_dead(void **state)
{
    (void)state;
    struct forked told;
    board_fresh("off", NULL);
    struct unimem_board *board = board_open(0);
    struct child child = child_start(forks, NULL);
    pipe_get(child.from, &told, sizeof(told));
    assert_int_equal(unimem_context_alive(board, 0, told.info.context), 1);
    child_kill(&child);
    await(unimem_context_alive(board, 0, told.info.context) == 0);
    assert_int_equal(kill(told.pid, SIGKILL), 0); /* the child was there all the time */
    unimem_close(board);
}

static void a_forked_child_opens_the_board_itself(void **state)
{
    (void)state;
    struct unimem_info info, parents;
    board_fresh("off", NULL);
    struct unimem_board *board = board_open(0);
    unimem_get_info(board, &parents);
    struct child child = child_start(opener, NULL);
    pipe_put(child.to, "g", 1);
    pipe_get(child.from, &info, sizeof(info));
    assert_int_not_equal(info.context, parents.context);
    assert_int_equal(unimem_context_alive(board, info.node, info.context), 1);
    child_kill(&child);
    (void)dmable(board, 1); /* this process still has a connection of its own */
    unimem_close(board);
}

static void a_board_that_dies_answers_with_an_error(void **state)
{
    (void)state;
    void *memory = NULL;
    struct unimem_mailbox *mailbox = NULL;
    board_fresh("off", NULL);
    struct unimem_info info;
    struct unimem_board *board = board_open(0), *other = board_open(0);
    unimem_get_info(board, &info);
    assert_int_equal(unimem_context_alive(other, info.node, info.context), 1);
    pid_t server = server_of(board_name);
    assert_true(server > 0); /* 0 would mean this process group */
    assert_int_equal(kill(server, SIGKILL), 0);
    assert_int_equal(unimem_alloc_dmable(board, 4096, &memory), -EIO);
    assert_null(memory);
    assert_int_equal(unimem_mailbox_open(board, &mailbox), -EIO);
    assert_null(mailbox);
    assert_int_equal(unimem_context_alive(other, info.node, info.context), -EIO); /* its first request since then */
    unimem_close(other);
    await(server_of(board_name) == 0);
    struct unimem_board *next = board_open(0); /* a new board of that name */
    unimem_close(next);
    unimem_close(board);
}

RUN("emu board", T(a_name_is_checked), T(contexts_spread_over_the_nodes), T(boards_know_nothing_of_each_other),
    T(processes_that_open_at_once_meet), T(a_board_that_ends_can_be_opened_at_any_moment),
    T(opening_leaves_the_caller_without_a_child), T(a_dead_process_is_noticed), T(memory_ends_with_its_context),
    T(nothing_is_left_when_all_were_killed), T(a_childs_parent_is_noticed_to_be_dead),
    T(a_forked_child_opens_the_board_itself), T(a_board_that_dies_answers_with_an_error))
