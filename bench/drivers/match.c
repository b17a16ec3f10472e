/*
 * match: what a message costs among many posted receives, and a receive among many unexpected messages.
 *
 *   match [-p PROVIDER] [-d DEPTHS] [-c CASES] [-r REPEATS]
 *
 * One process that sends to itself. For each case and depth D: D receives are posted, then D messages of 8 bytes are
 * sent, each received before the next one (posted); or D messages are sent first, then received one by one
 * (unexpected), or looked for by FI_PEEK and left (peek). Every message has a tag of its own.
 *
 * DEPTHS: numbers, "1,100,10000". CASES: names as printed (default: all), of four words:
 *
 *   what      posted, unexpected, peek
 *   order     in, reverse, random: the order of matching, relative to that in which they were posted or sent
 *   masks     1, 8: the number of ignore masks among the receives
 *   sources   any, directed, mixed: receives for any source, for the sender, half of each
 *
 * Prints a CSV line for each: case, depth, nanoseconds to post a receive and of a message (unexpected, peek: to send a
 * message and of a receive) as medians over REPEATS. The program fails if a message is matched with the wrong receive.
 * `first` and `then` are functions of their own, so that callgrind's --toggle-collect can count them.
 */
#include "team.h"

#include <rdma/fi_tagged.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEPTH_MAX = 100000, MASKS_MAX = 8, REPEATS_MAX = 99, DEPTHS_MAX = 16, LEAST = 2000 };

enum what { POSTED, UNEXPECTED, PEEK, WHATS };
enum order { IN, REVERSE, RANDOM, ORDERS };
enum sources { ANY, DIRECTED, MIXED, SOURCES };

static const char *const what_name[WHATS] = {"posted", "unexpected", "peek"};
static const char *const order_name[ORDERS] = {"in", "reverse", "random"};
static const char *const sources_name[SOURCES] = {"any", "directed", "mixed"};

struct match_case {
    enum what what;
    enum order order;
    uint32_t masks;
    enum sources sources;
    uint32_t depth;
};

struct match_run {
    const char *cases;
    uint32_t depth[DEPTHS_MAX], depths;
    int repeats;
    uint32_t turn[DEPTH_MAX]; /* the order in which they are matched */
    struct fi_context context[DEPTH_MAX];
    uint64_t inbox[DEPTH_MAX], value;
};

static uint64_t tag_of(uint32_t i)
{
    return (uint64_t)i << 36;
}

static uint64_t mask_of(const struct match_case *c, uint32_t i)
{
    return i % c->masks ? UINT64_C(0x1f) << 4 * (i % c->masks) : 0;
}

static fi_addr_t source_of(const struct team *t, const struct match_case *c, uint32_t i)
{
    const bool any = c->sources == ANY || (c->sources == MIXED && i / c->masks % 2);
    return any ? FI_ADDR_UNSPEC : t->peer[0];
}

static void receive(struct team *t, const struct match_case *c, struct match_run *run, uint32_t i, uint64_t flags)
{
    const struct iovec iov = {.iov_base = &run->inbox[i], .iov_len = 8};
    const struct fi_msg_tagged m = {.msg_iov = &iov,
                                    .iov_count = 1,
                                    .addr = source_of(t, c, i),
                                    .tag = tag_of(i),
                                    .ignore = mask_of(c, i),
                                    .context = &run->context[i]};
    TEAM_POST(t, fi_trecvmsg(t->ep, &m, flags | FI_COMPLETION));
}

static void message(struct team *t, struct match_run *run, uint32_t i)
{
    run->value = i;
    TEAM_POST(t, fi_tinject(t->ep, &run->value, 8, t->peer[0], tag_of(i)));
}

/* Waits for the completion of the i-th receive. Any other completion is an error. */
static void completion(struct team *t, struct match_run *run, uint32_t i)
{
    struct fi_cq_entry entry = {0};
    ssize_t ret;
    while ((ret = fi_cq_read(t->cq, &entry, 1)) == -FI_EAGAIN)
        ;
    TEAM_DEMAND(t, ret == 1, "fi_cq_read: %s", fi_strerror((int)-ret));
    TEAM_DEMAND(t, entry.op_context == &run->context[i], "another receive was matched");
}

static void first(struct team *t, const struct match_case *c, struct match_run *run)
{
    struct fi_cq_entry entry;
    for (uint32_t i = 0; i < c->depth; i++) {
        if (c->what == POSTED)
            receive(t, c, run, i, 0);
        else
            message(t, run, i);
    }
    for (uint32_t i = 0; c->what != POSTED && i < c->depth / 8 + 4; i++) /* progress, until all messages are taken */
        TEAM_DEMAND(t, fi_cq_read(t->cq, &entry, 1) == -FI_EAGAIN, "a completion of nothing");
}

static void then(struct team *t, const struct match_case *c, struct match_run *run)
{
    for (uint32_t k = 0; k < c->depth; k++) {
        const uint32_t i = run->turn[k];
        if (c->what == POSTED)
            message(t, run, i);
        else
            receive(t, c, run, i, c->what == PEEK ? FI_PEEK : 0);
        completion(t, run, i);
    }
}

/* Receives what peeks have left; otherwise checks what was received. */
static void last(struct team *t, const struct match_case *c, struct match_run *run)
{
    for (uint32_t i = 0; c->what == PEEK && i < c->depth; i++) {
        receive(t, c, run, i, 0);
        completion(t, run, i);
    }
    for (uint32_t i = 0; c->what != PEEK && i < c->depth; i++)
        TEAM_DEMAND(t, run->inbox[i] == i, "message %u has the bytes of %llu", i, (unsigned long long)run->inbox[i]);
}

static int rising(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void turns_make(struct match_run *run, const struct match_case *c)
{
    uint64_t seed = 88172645463325252u;
    for (uint32_t i = 0; i < c->depth; i++)
        run->turn[i] = c->order == REVERSE ? c->depth - 1 - i : i;
    for (uint32_t i = c->depth; c->order == RANDOM && i-- > 1;) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        const uint32_t k = (uint32_t)(seed % (i + 1)), was = run->turn[i];
        run->turn[i] = run->turn[k];
        run->turn[k] = was;
    }
}

static void case_measure(struct team *t, struct match_run *run, const struct match_case *c, const char *name)
{
    static double ns[2][REPEATS_MAX];
    const uint32_t rounds = c->depth < LEAST ? LEAST / c->depth : 1;
    turns_make(run, c);
    for (int r = -1; r < run->repeats; r++) { /* the first one warms up */
        double took[2] = {0};
        for (uint32_t round = 0; round < rounds; round++) {
            const double began = team_now();
            first(t, c, run);
            const double posted = team_now();
            then(t, c, run);
            took[1] += team_now() - posted;
            took[0] += posted - began;
            last(t, c, run);
        }
        for (int i = 0; r >= 0 && i < 2; i++)
            ns[i][r] = took[i] * 1e9 / rounds / c->depth;
    }
    for (int i = 0; i < 2; i++)
        qsort(ns[i], (size_t)run->repeats, sizeof(double), rising);
    printf("%s,%u,%.1f,%.1f\n", name, c->depth, ns[0][run->repeats / 2], ns[1][run->repeats / 2]);
    fflush(stdout);
}

static void run_all(struct team *t, void *arg)
{
    struct match_run *run = arg;
    printf("case,depth,first_ns,then_ns\n");
    for (int n = 0; n < WHATS * ORDERS * 2 * SOURCES; n++) {
        struct match_case c = {.what = (enum what)(n / (ORDERS * 2 * SOURCES)),
                               .order = (enum order)(n / (2 * SOURCES) % ORDERS),
                               .masks = n / SOURCES % 2 ? MASKS_MAX : 1,
                               .sources = (enum sources)(n % SOURCES)};
        char name[64];
        snprintf(name, sizeof(name), "%s-%s-%u-%s", what_name[c.what], order_name[c.order], c.masks,
                 sources_name[c.sources]);
        if (run->cases && !strstr(run->cases, name))
            continue;
        for (uint32_t d = 0; d < run->depths; d++) {
            c.depth = run->depth[d];
            case_measure(t, run, &c, name);
        }
    }
}

static int options_read(struct match_run *run, struct team_config *config, int argc, char **argv)
{
    int c;
    char *depths = "1,100,10000", *end;
    while ((c = getopt(argc, argv, "p:d:c:r:")) != -1) {
        if (c == 'p')
            config->provider = optarg;
        else if (c == 'd')
            depths = optarg;
        else if (c == 'c')
            run->cases = optarg;
        else if (c == 'r')
            run->repeats = atoi(optarg);
        else
            return -1;
    }
    for (; *depths && run->depths < DEPTHS_MAX; depths = *end == ',' ? end + 1 : end) {
        const unsigned long depth = strtoul(depths, &end, 0);
        if (end == depths || depth < 1 || depth > DEPTH_MAX)
            return -1;
        run->depth[run->depths++] = (uint32_t)depth;
    }
    return run->depths && !*depths && run->repeats >= 1 && run->repeats <= REPEATS_MAX ? 0 : -1;
}

int main(int argc, char **argv)
{
    static struct match_run run = {.repeats = 5};
    struct team_config config = {.size = 1, .bytes = 4096, .caps = FI_TAGGED | FI_DIRECTED_RECV};
    if (options_read(&run, &config, argc, argv)) {
        fprintf(stderr,
                "usage: match [-p PROVIDER] [-d DEPTHS] [-c CASES] [-r REPEATS]\nDEPTHS: up to %d, commas between\n",
                DEPTH_MAX);
        return 2;
    }
    return team_run(&config, NULL, run_all, &run);
}
