/*
 * raw: mailboxes and DMA of the board in software without the provider: the reference for the provider's figures.
 *
 *   raw [--max BYTES]
 *
 * Two processes, in virtual time unless UNIMEM_EMU_TIMING is set. Prints "0 US 0": a message one way, half a round
 * trip; then a line for each size: bytes, us from the beginning of a DMA until it is reported done, MB/s of a window of
 * DMAs that are begun as soon as one before has ended. The receiver checks the last byte of every DMA.
 */
#include "emu/emu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TURNS = 64, WINDOW = 16, DEPTH = 4, PING = 1, CHECK, END };

struct side {
    struct unimem_board *board;
    struct unimem_mailbox *mailbox;
    unsigned char *memory;
    struct unimem_mailbox_address peer; /* the other side's, with its memory */
    struct unimem_remote remote;
};

static size_t max = 4 << 20;

static void demand(int ret, const char *what)
{
    if (ret == 0)
        return;
    fprintf(stderr, "raw: %s: %s\n", what, strerror(-ret));
    exit(1);
}

static void tell(const struct side *s, uint64_t what, uint64_t size, uint64_t byte)
{
    int ret;
    while ((ret = unimem_mailbox_send(s->board, &s->peer, (uint64_t[3]){what, size, byte}, 24)) == -EAGAIN)
        ;
    demand(ret, "unimem_mailbox_send");
}

static void hear(const struct side *s, uint64_t message[3])
{
    int ret;
    while ((ret = unimem_mailbox_receive(s->mailbox, message)) == -EAGAIN)
        if (!unimem_context_alive(s->board, s->remote.node, s->remote.context))
            demand(-EPIPE, "the other side");
    demand(ret, "unimem_mailbox_receive");
}

/* Both sides: opens everything and exchanges addresses by two pipes. */
static void side_open(struct side *s, uint32_t node, int from, int to)
{
    struct unimem_info info;
    void *memory;
    demand(unimem_open(NULL, node, &s->board), "unimem_open");
    demand(unimem_mailbox_open(s->board, &s->mailbox), "unimem_mailbox_open");
    demand(unimem_alloc_dmable(s->board, max, &memory), "unimem_alloc_dmable");
    s->memory = memory;
    unimem_get_info(s->board, &info);
    struct unimem_remote own = {info.node, info.context, (uintptr_t)memory};
    struct unimem_mailbox_address address;
    unimem_mailbox_get_address(s->mailbox, &address);
    if (write(to, &address, sizeof(address)) != sizeof(address) || write(to, &own, sizeof(own)) != sizeof(own) ||
        read(from, &s->peer, sizeof(address)) != sizeof(address) || read(from, &s->remote, sizeof(own)) != sizeof(own))
        demand(-EPIPE, "the other side");
}

/* Answers until the other side ends. If this side ended before, the other one would take it for dead and might miss its
 * last messages. */
static void answer(const struct side *s, int from)
{
    uint64_t message[3] = {0};
    char nothing;
    while (message[0] != END) {
        hear(s, message);
        if (message[0] == CHECK && s->memory[message[1] - 1] != message[2])
            demand(-EIO, "a wrong byte");
        tell(s, message[0], 0, 0);
    }
    if (read(from, &nothing, 1) != 0)
        demand(-EPIPE, "the other side");
}

static void ping(const struct side *s, uint64_t what, uint64_t size, uint64_t byte)
{
    uint64_t message[3];
    tell(s, what, size, byte);
    hear(s, message);
}

static double message_us(const struct side *s)
{
    uint64_t begin = unimem_emu_now(s->board);
    for (int i = 0; i < TURNS; i++)
        ping(s, PING, 0, 0);
    return (double)(unimem_emu_now(s->board) - begin) / (2e3 * TURNS);
}

static uint64_t dma_begin(const struct side *s, size_t size)
{
    uint64_t dma;
    demand(unimem_dma_write(s->board, &s->remote, s->memory, size, &dma), "unimem_dma_write");
    return dma;
}

static void dma_end(const struct side *s, uint64_t dma)
{
    int ret;
    while ((ret = unimem_dma_poll(s->board, dma)) == -EINPROGRESS)
        ;
    demand(ret, "unimem_dma_poll");
}

static double dma_us(const struct side *s, size_t size)
{
    uint64_t begin = unimem_emu_now(s->board);
    dma_end(s, dma_begin(s, size));
    return (double)(unimem_emu_now(s->board) - begin) / 1e3;
}

static double dma_mbs(const struct side *s, size_t size)
{
    uint64_t dma[DEPTH], begin = unimem_emu_now(s->board);
    for (int i = 0; i < WINDOW + DEPTH; i++) {
        if (i >= DEPTH)
            dma_end(s, dma[i % DEPTH]);
        if (i < WINDOW)
            dma[i % DEPTH] = dma_begin(s, size);
    }
    return (double)size * WINDOW * 1e3 / (double)(unimem_emu_now(s->board) - begin);
}

static void measure(const struct side *s)
{
    ping(s, PING, 0, 0); /* both are there */
    printf("0 %.3f 0\n", message_us(s));
    demand(unimem_register(s->board, &s->remote, max), "unimem_register");
    for (size_t size = 1; size <= max; size *= 2) {
        s->memory[size - 1] = (unsigned char)(size % 251 + 1);
        double us = dma_us(s, size), mbs = dma_mbs(s, size);
        ping(s, CHECK, size, size % 251 + 1);
        printf("%zu %.3f %.2f\n", size, us, mbs);
    }
    ping(s, END, 0, 0);
}

int main(int argc, char **argv)
{
    struct side s;
    int down[2], up[2], status = 1;
    char name[40];
    if (argc == 3 && strcmp(argv[1], "--max") == 0)
        max = strtoull(argv[2], NULL, 0);
    if ((argc != 1 && argc != 3) || !max || pipe(down) < 0 || pipe(up) < 0) {
        fprintf(stderr, "usage: raw [--max BYTES]\n");
        return 2;
    }
    snprintf(name, sizeof(name), "raw-%d", (int)getpid());
    setenv("UNIMEM_BOARD", name, 1);
    setenv("UNIMEM_EMU_TIMING", "virtual", 0);
    pid_t child = fork();
    demand(child < 0 ? -errno : 0, "fork");
    close(child ? down[0] : up[0]);
    close(child ? up[1] : down[1]);
    side_open(&s, child == 0, child ? up[0] : down[0], child ? down[1] : up[1]);
    if (child)
        measure(&s);
    else
        answer(&s, down[0]);
    if (child)
        close(down[1]);
    unimem_close(s.board);
    if (child && (waitpid(child, &status, 0) != child || status))
        demand(-ECHILD, "the other side");
    return 0;
}
