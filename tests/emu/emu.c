/* Helpers of emu.h. */
#include "emu.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_S = 30 };

char board_name[64];

void board_fresh(const char *timing, const char *params)
{
    static int number;
    snprintf(board_name, sizeof(board_name), "test-%d-%d", getpid(), number++);
    setenv("UNIMEM_EMU_TIMING", timing ? timing : "off", 1);
    if (params)
        setenv("UNIMEM_EMU_PARAMS", params, 1);
    else
        unsetenv("UNIMEM_EMU_PARAMS");
}

void demand_that(bool condition, const char *text, const char *file, int line)
{
    if (condition)
        return;
    fprintf(stderr, "%s:%d: process %d demands %s\n", file, line, getpid(), text);
    fflush(NULL);
    _exit(3);
}

void pause_ms(void)
{
    struct timespec ts = {.tv_nsec = 1000000};
    nanosleep(&ts, NULL);
}

struct unimem_board *board_open(uint32_t node)
{
    struct unimem_board *board = NULL;
    demand(unimem_open(board_name, node, &board) == 0);
    return board;
}

struct unimem_mailbox *mailbox_open(struct unimem_board *board)
{
    struct unimem_mailbox *mailbox = NULL;
    demand(unimem_mailbox_open(board, &mailbox) == 0);
    return mailbox;
}

struct unimem_mailbox_address address_of(const struct unimem_mailbox *mailbox)
{
    struct unimem_mailbox_address address;
    unimem_mailbox_get_address(mailbox, &address);
    return address;
}

void *dmable(struct unimem_board *board, size_t len)
{
    void *memory = NULL;
    demand(unimem_alloc_dmable(board, len, &memory) == 0);
    return memory;
}

static uint64_t seconds(void)
{
    return (uint64_t)time(NULL);
}

void send_patiently(struct unimem_board *board, const struct unimem_mailbox_address *to, const void *message)
{
    uint64_t start = seconds();
    int ret;
    while ((ret = unimem_mailbox_send(board, to, message, UNIMEM_MESSAGE_SIZE)) == -EAGAIN) {
        demand(seconds() - start < PATIENCE_S);
        sched_yield();
    }
    demand(ret == 0);
}

void receive_patiently(struct unimem_mailbox *mailbox, void *message)
{
    uint64_t start = seconds();
    int ret;
    while ((ret = unimem_mailbox_receive(mailbox, message)) == -EAGAIN) {
        demand(seconds() - start < PATIENCE_S);
        sched_yield();
    }
    demand(ret == 0);
}

int dma_wait(struct unimem_board *board, uint64_t dma)
{
    int ret;
    while ((ret = unimem_dma_poll(board, dma)) == -EINPROGRESS)
        ;
    return ret;
}

struct child child_start(void (*main)(int from, int to, void *arg), void *arg)
{
    int down[2], up[2];
    pid_t parent = getpid();
    demand(pipe2(down, O_CLOEXEC) == 0 && pipe2(up, O_CLOEXEC) == 0);
    fflush(NULL);
    pid_t pid = fork();
    demand(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        close(down[1]);
        close(up[0]);
        main(down[0], up[1], arg);
        _exit(0);
    }
    close(down[0]);
    close(up[1]);
    return (struct child){pid, up[0], down[1]};
}

void pipe_put(int fd, const void *data, size_t len)
{
    demand(write(fd, data, len) == (ssize_t)len);
}

void pipe_get(int fd, void *data, size_t len)
{
    for (size_t got = 0; got < len;) {
        ssize_t n = read(fd, (char *)data + got, len - got);
        demand(n > 0);
        got += (size_t)n;
    }
}

static int child_end(struct child *child)
{
    int status = -1;
    demand(waitpid(child->pid, &status, 0) == child->pid);
    close(child->from);
    close(child->to);
    return status;
}

void child_join(struct child *child)
{
    int status = child_end(child);
    if (status)
        fail_msg("a child ended with status 0x%x", (unsigned)status);
}

void child_kill(struct child *child)
{
    assert_int_equal(kill(child->pid, SIGKILL), 0);
    child_end(child);
}

/* True if that process is "unimem-boardd NAME", or an emulator that runs it. */
static bool is_server(const char *pid, const char *name)
{
    char path[300], text[4096];
    snprintf(path, sizeof(path), "/proc/%s/cmdline", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    if (len <= 0)
        return false;
    text[len] = 0;
    const char *word = text, *next;
    for (; (next = word + strlen(word) + 1) < text + len; word = next)
        if (strstr(word, "unimem-boardd") && strcmp(next, name) == 0)
            return true;
    return false;
}

pid_t server_of(const char *name)
{
    pid_t found = 0;
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    while (proc && (entry = readdir(proc)) != NULL)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && is_server(entry->d_name, name))
            found = atoi(entry->d_name);
    if (proc)
        closedir(proc);
    return found;
}

int run_group(int argc, char **argv, const char *name, const struct CMUnitTest *tests, size_t count)
{
    setenv("UNIMEM_EMU_ENGINE", argc > 1 ? argv[1] : "local", 1);
    unsetenv("UNIMEM_BOARD");
    return needs_status(_cmocka_run_group_tests(name, tests, count, NULL, NULL));
}
