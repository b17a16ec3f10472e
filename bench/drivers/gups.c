/*
 * gups: random updates of a table that is spread over processes, as in HPC Challenge's RandomAccess, in libfabric's
 * terms.
 *
 *   gups [-p PROVIDER] [-n PROCESSES] [-s LOG2_WORDS] [-u UPDATES_PER_WORD] [-w WINDOW]
 *
 * Each process registers a part of the table (memory of malloc; word i holds i) and sends FI_BXOR updates of 64 bits to
 * random words of the whole table, also to its own part, with at most WINDOW of them in flight. The random sequence is
 * HPC Challenge's; no update may be lost. Two checks: every process repeats the sequences of all processes for its own
 * part, word by word; then the same updates are sent once more, after which every word must hold i again.
 * Prints "figure gups PROCESSES BILLIONS_PER_SECOND", "errors N"; exit status 1 if there was any.
 */
#include "team.h"

#include "base/atomic.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POLY   UINT64_C(7)
#define PERIOD INT64_C(1317624576693539401)

struct gups {
    unsigned log2_words;
    uint64_t per_word, window;
    uint64_t words, updates; /* words of the whole table, updates by one process */
};

static uint64_t next_random(uint64_t ran)
{
    return (ran << 1) ^ ((int64_t)ran < 0 ? POLY : 0);
}

/* Returns the n-th number of the sequence of powers of x over the field of two elements, by squaring. */
static uint64_t random_at(int64_t n)
{
    uint64_t square[64], ran = 1;
    n %= PERIOD;
    if (n == 0)
        return 1;
    for (int i = 0; i < 64; i++) {
        square[i] = ran;
        ran = next_random(next_random(ran));
    }
    int top = 62;
    while (top >= 0 && !(n >> top & 1))
        top--;
    ran = 2;
    while (top > 0) {
        uint64_t sum = 0;
        for (int k = 0; k < 64; k++) {
            if (ran >> k & 1)
                sum ^= square[k];
        }
        ran = sum;
        if (n >> --top & 1)
            ran = next_random(ran);
    }
    return ran;
}

/* Posts an update. The operand is copied. The operation is counted when it has taken effect (that of an inject call may
 * be counted before). */
static void update(struct team *t, int owner, size_t offset, uint64_t operand)
{
    const struct fi_ioc from = {.addr = &operand, .count = 1};
    const struct fi_rma_ioc to = {.addr = team_at(t, owner, offset), .count = 1, .key = team_key(t, owner)};
    const struct fi_msg_atomic m = {.msg_iov = &from,
                                    .iov_count = 1,
                                    .addr = t->peer[owner],
                                    .rma_iov = &to,
                                    .rma_iov_count = 1,
                                    .datatype = FI_UINT64,
                                    .op = FI_BXOR};
    TEAM_POST(t, fi_atomicmsg(t->ep, &m, FI_INJECT | FI_DELIVERY_COMPLETE));
    t->put_count++;
}

static void update_all(struct team *t, const struct gups *g)
{
    uint64_t ran = random_at((int64_t)(g->updates * (uint64_t)t->rank)), part = g->words / (uint64_t)t->size;
    for (uint64_t i = 0; i < g->updates; i++) {
        ran = next_random(ran);
        uint64_t word = ran & (g->words - 1);
        int owner = (int)(word / part);
        if (i % (g->window / 2) == 0)
            team_wait_puts(t, g->window / 2);
        update(t, owner, word % part * 8, ran);
    }
    team_wait_puts(t, 0);
}

/* Returns how many words of this process differ from what the updates of all processes make of them. */
static uint64_t errors_after_one_pass(struct team *t, const struct gups *g)
{
    uint64_t part = g->words / (uint64_t)t->size, first = part * (uint64_t)t->rank, errors = 0, ran = random_at(0);
    uint64_t *expected = malloc(part * 8);
    const uint64_t *table = (const uint64_t *)t->memory;
    TEAM_DEMAND(t, expected != NULL, "no memory");
    for (uint64_t i = 0; i < part; i++)
        expected[i] = first + i;
    for (uint64_t i = 0; i < g->updates * (uint64_t)t->size; i++) {
        ran = next_random(ran);
        uint64_t at = (ran & (g->words - 1)) - first;
        if (at < part)
            expected[at] ^= ran;
    }
    for (uint64_t i = 0; i < part; i++)
        errors += table[i] != expected[i];
    free(expected);
    return errors;
}

static uint64_t errors_after_two_passes(struct team *t, const struct gups *g)
{
    uint64_t part = g->words / (uint64_t)t->size, errors = 0;
    const uint64_t *table = (const uint64_t *)t->memory;
    for (uint64_t i = 0; i < part; i++)
        errors += table[i] != part * (uint64_t)t->rank + i;
    return errors;
}

/* Returns the longest of all members' times. */
static double slowest(struct team *t, double seconds)
{
    double most = 0;
    t->shared->seconds[t->rank] = seconds;
    team_barrier(t);
    for (int i = 0; i < t->size; i++)
        most = t->shared->seconds[i] > most ? t->shared->seconds[i] : most;
    return most;
}

static void run(struct team *t, void *arg)
{
    struct gups *g = arg;
    uint64_t part = g->words / (uint64_t)t->size, *table = (uint64_t *)t->memory;
    g->updates = part * g->per_word;
    for (uint64_t i = 0; i < part; i++)
        table[i] = part * (uint64_t)t->rank + i;
    team_barrier(t);
    double start = team_now();
    update_all(t, g);
    team_barrier(t);
    double seconds = slowest(t, team_now() - start);
    uint64_t errors = errors_after_one_pass(t, g);
    team_barrier(t);
    update_all(t, g);
    team_barrier(t);
    errors += errors_after_two_passes(t, g);
    um_rmw_add_u64(&t->shared->cell[0], errors);
    team_barrier(t);
    if (t->rank == 0) {
        uint64_t updates = g->updates * (uint64_t)t->size;
        printf("table %llu words, %llu updates in %.3f s\n", (unsigned long long)g->words, (unsigned long long)updates,
               seconds);
        printf("figure gups %d %.6f\nerrors %llu\n", t->size, (double)updates / seconds * 1e-9,
               (unsigned long long)t->shared->cell[0]);
    }
    TEAM_DEMAND(t, t->shared->cell[0] == 0, "%llu errors", (unsigned long long)t->shared->cell[0]);
}

static int options_read(struct gups *g, struct team_config *config, int argc, char **argv)
{
    int c;
    while ((c = getopt(argc, argv, "p:n:s:u:w:")) != -1) {
        if (c == 'p')
            config->provider = optarg;
        else if (c == 'n')
            config->size = atoi(optarg);
        else if (c == 's')
            g->log2_words = (unsigned)atoi(optarg);
        else if (c == 'u')
            g->per_word = strtoull(optarg, NULL, 0);
        else if (c == 'w')
            g->window = strtoull(optarg, NULL, 0);
        else
            return -1;
    }
    if (config->size < 1 || config->size > TEAM_MAX || config->size & (config->size - 1) || g->log2_words < 5 ||
        g->log2_words > 32 || !g->per_word || g->window < 2)
        return -1;
    return 0;
}

int main(int argc, char **argv)
{
    struct gups g = {.log2_words = 20, .per_word = 4, .window = 1024};
    struct team_config config = {.size = 2};
    if (options_read(&g, &config, argc, argv)) {
        fprintf(stderr, "usage: gups [-p PROVIDER] [-n PROCESSES] [-s LOG2_WORDS] [-u UPDATES_PER_WORD] [-w WINDOW]\n"
                        "a power of two of processes; LOG2_WORDS 5 to 32; WINDOW at least 2\n");
        return 2;
    }
    g.words = UINT64_C(1) << g.log2_words;
    config.bytes = g.words / (uint64_t)config.size * 8;
    return team_run(&config, NULL, run, &g);
}
