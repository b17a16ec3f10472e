/* Several threads use one handle, as unimem.h allows; the body of a test is one more thread. Run it with TSan. */
#include "emu.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 300, PAGE = 4096 };

static struct unimem_board *board, *far;
static struct unimem_mailbox_address inbox;

struct worker {
    pthread_t thread;
    uint64_t number;
    const char *wrong;
};

/* Registers memory, moves data by DMA both ways, and sends a message, over and over. */
static const char *work(uint64_t number, unsigned char *here, const struct unimem_remote *at)
{
    uint64_t dma;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        if (unimem_register(board, at, PAGE))
            return "register";
        memset(here, (int)(number * 50 + round % 50), PAGE);
        if (unimem_dma_write(board, at, here, PAGE, &dma) || dma_wait(board, dma))
            return "write";
        memset(here, 0, PAGE);
        if (unimem_dma_read(board, here, at, PAGE, &dma) || dma_wait(board, dma))
            return "read";
        if (here[0] != number * 50 + round % 50 || here[PAGE - 1] != here[0])
            return "bytes";
        if (unimem_deregister(board, at))
            return "deregister";
        send_patiently(board, &inbox, (uint64_t[3]){number, round});
    }
    return NULL;
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    struct unimem_info info;
    void *here, *there;
    unimem_get_info(far, &info);
    if (unimem_alloc_dmable(board, PAGE, &here) || unimem_alloc_dmable(far, PAGE, &there)) {
        worker->wrong = "alloc";
        return NULL;
    }
    worker->wrong = work(worker->number, here, &(struct unimem_remote){info.node, info.context, (uintptr_t)there});
    if (unimem_free_dmable(board, here) || unimem_free_dmable(far, there))
        worker->wrong = "free";
    return NULL;
}

static void threads_share_a_handle(const char *timing)
{
    struct worker workers[THREADS] = {0};
    uint64_t next[THREADS] = {0}, message[3];
    board_fresh(timing, "cpu_call_ns=0,register_ns=1,deregister_ns=1,dma_setup_ns=1,mailbox_latency_ns=1");
    board = board_open(0);
    far = board_open(1);
    struct unimem_mailbox *mailbox = mailbox_open(far);
    inbox = address_of(mailbox);
    for (uint64_t i = 0; i < THREADS; i++) {
        workers[i].number = i;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS * ROUNDS; i++) {
        receive_patiently(mailbox, message);
        assert_in_range(message[0], 0, THREADS - 1);
        assert_int_equal(message[1], next[message[0]]++);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        if (workers[i].wrong)
            fail_msg("thread %d: %s", i, workers[i].wrong);
    }
    unimem_close(far);
    unimem_close(board);
}

static void without_timing(void **state)
{
    (void)state;
    threads_share_a_handle("off");
}

static void with_a_virtual_clock(void **state)
{
    (void)state;
    threads_share_a_handle("virtual");
}

static void in_real_time(void **state)
{
    (void)state;
    threads_share_a_handle("real");
}

RUN("emu threads", T(without_timing), T(with_a_virtual_clock), T(in_real_time))
