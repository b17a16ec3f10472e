/*
 * measure.h: many senders to process 0. active: all send at once, each with 64 messages in flight until process 0
 * acknowledges them; process 0 counts for a fixed time. idle: one sends; the others have sent once, and sleep.
 */
#include "measure.h"

#include <stdlib.h>
#include <string.h>

enum { TAG = 7, TAG_ACK = 8, TAG_HELLO = 9, CREDIT = MEASURE_WINDOW, CLOCK_EACH = 8 };
enum order { GO_ON, STOP }; /* what an acknowledgement says */

struct receiver {
    struct link_batch *batch;
    uint64_t in[CREDIT];     /* a message is the number of its sender */
    uint64_t *count, *begun; /* by sender: messages; those before the counted time began */
    int running;
};

static void sender_run(struct link_batch *b)
{
    const uint64_t self = (uint64_t)link_rank();
    uint64_t order = GO_ON;
    while (order != STOP) {
        for (int i = 0; i < CREDIT; i++)
            link_post_send(b, 0, &self, sizeof(self), TAG);
        link_wait(b);
        link_recv(0, &order, sizeof(order), TAG_ACK);
    }
}

/* Receives as many messages as one sender has in flight. Each sender sends a multiple of that, so they will come as
 * long as one sender is running. */
static void receive_some(struct receiver *r, uint64_t order)
{
    for (int i = 0; i < CREDIT; i++)
        link_post_recv(r->batch, LINK_ANY, &r->in[i], sizeof(r->in[i]), TAG);
    link_wait(r->batch);
    for (int i = 0; i < CREDIT; i++) {
        uint64_t from = r->in[i];
        if (from == 0 || from >= (uint64_t)link_size())
            link_fail("DATA ERROR: a message from process %llu", (unsigned long long)from);
        if (++r->count[from] % CREDIT != 0)
            continue;
        link_send((int)from, &order, sizeof(order), TAG_ACK);
        r->running -= order == STOP;
    }
}

static void receive_for(struct receiver *r, double seconds)
{
    double end = link_now() + seconds;
    while (link_now() < end) {
        for (int i = 0; i < CLOCK_EACH; i++)
            receive_some(r, GO_ON);
    }
}

static void receiver_run(struct link_batch *b, int senders, size_t which)
{
    struct receiver r = {.batch = b, .running = senders};
    const size_t bytes = (size_t)link_size() * sizeof(uint64_t);
    uint64_t least = UINT64_MAX, most = 0, all = 0;
    if (!(r.count = calloc(2, bytes)))
        link_fail("no memory");
    r.begun = r.count + link_size();
    receive_for(&r, measure_options.seconds / 4);
    memcpy(r.begun, r.count, bytes);
    double begin = link_now();
    receive_for(&r, measure_options.seconds);
    double took = link_now() - begin;
    for (int s = 1; s <= senders; s++) {
        uint64_t n = r.count[s] - r.begun[s];
        least = n < least ? n : least;
        most = n > most ? n : most;
        all += n;
    }
    while (r.running > 0)
        receive_some(&r, STOP);
    measure_figure("ns_message", which, took * 1e9 / (double)all);
    if (senders > 1)
        measure_figure("fairness", which, most ? (double)least / (double)most : 0);
    free(r.count);
}

/* Receives one message from each of the senders first to last, which have not sent before. */
static void hello(int first, int last)
{
    uint64_t word = 0;
    if (link_rank() >= first && link_rank() <= last)
        link_send(0, &word, sizeof(word), TAG_HELLO);
    for (int s = first; link_rank() == 0 && s <= last; s++)
        link_recv(s, &word, sizeof(word), TAG_HELLO);
}

static void senders_run(void)
{
    const bool idle = strcmp(measure_options.kind, "idle") == 0;
    struct link_batch *b = link_batch_open(CREDIT);
    int known = 0;
    for (int i = 0; i < measure_options.values; i++) {
        int senders = (int)measure_options.value[i], active = idle ? 1 : senders;
        if (senders < 1 || senders >= link_size())
            link_fail("%d senders and a receiver are more than %d processes", senders, link_size());
        hello(known + 1, senders);
        known = senders > known ? senders : known;
        link_rest();
        if (link_rank() == 0)
            receiver_run(b, active, (size_t)senders);
        else if (link_rank() <= active)
            sender_run(b);
        link_rest();
    }
    link_batch_close(b);
}

const struct measure measure_senders = {.name = "senders", .cases = "senders", .body = senders_run, .is_fixed = true};
