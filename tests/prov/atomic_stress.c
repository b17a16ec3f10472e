/*
 * Four processes work on each other's memory and their own with atomics of every width at once; nothing may be lost.
 *
 *   atomic_stress [-n OPERATIONS] [-p PROVIDER]      default: a million operations of all processes together
 *
 * Two of the four have their memory mapped by all; with the other two (FI_UNIMEM_ADOPT=0) the owner executes. The
 * operations follow from the initiator's number alone, so at the end every owner repeats all of them in order for its
 * own memory, and compares each element: sums and exclusive ors commute, floating-point sums are of small integers.
 * Elements of one kind lie side by side, so an operation that touches a neighbour is seen. In addition, each ticket
 * (fetch-and-add) must have been drawn once, and compare-and-swaps must have succeeded as often as the value moved.
 */
#include "team.h"

#include "base/atomic.h"

#include <complex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PROCESSES = 4, BATCH = 128, ELEMENTS = 64, ELEMENT = 32, VECTOR = 4, SPECIAL = 4, BYTES = 1 << 20 };

static const struct kind {
    enum fi_datatype type;
    enum fi_op op;
    size_t size;
} kinds[] = {
    {FI_UINT8, FI_SUM, 1},
    {FI_UINT8, FI_BXOR, 1},
    {FI_UINT16, FI_SUM, 2},
    {FI_UINT16, FI_BXOR, 2},
    {FI_UINT32, FI_SUM, 4},
    {FI_UINT32, FI_BXOR, 4},
    {FI_UINT64, FI_SUM, 8},
    {FI_UINT64, FI_BXOR, 8},
    {FI_FLOAT, FI_SUM, 4},
    {FI_DOUBLE, FI_SUM, 8},
    {FI_LONG_DOUBLE, FI_SUM, sizeof(long double)},
    {FI_DOUBLE_COMPLEX, FI_SUM, 16},
};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]), TICKETS_AT = KINDS * ELEMENTS * ELEMENT, SWAPS_AT = TICKETS_AT + 64 };

enum shape { BASE, INJECT, FETCH, TICKET, SWAP };

/* One operation, as it follows from the random sequence. */
struct step {
    enum shape shape;
    const struct kind *kind;
    int owner;
    size_t at; /* offset of its first element */
    size_t count;
    _Alignas(16) unsigned char operand[VECTOR * ELEMENT];
};

/* An operation of a batch. */
struct slot {
    struct step step;
    uint64_t compare, swap;
    _Alignas(16) unsigned char result[VECTOR * ELEMENT];
};

static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint64_t mix(uint64_t v)
{
    return draw(&v);
}

static void element_set(const struct kind *k, unsigned char *p, uint64_t v)
{
    float f = (float)(v & 1);
    double d = (double)(v & 3);
    long double l = (long double)(v & 3);
    double complex c = (double)(v & 3) + (double)(v >> 2 & 3) * I;
    const void *from = k->type == FI_FLOAT            ? (void *)&f
                       : k->type == FI_DOUBLE         ? (void *)&d
                       : k->type == FI_LONG_DOUBLE    ? (void *)&l
                       : k->type == FI_DOUBLE_COMPLEX ? (void *)&c
                                                      : (void *)&v;
    memcpy(p, from, k->size);
}

/* Applies the operation to an element; only for the operations of this file. */
static void element_apply(const struct kind *k, void *target, const void *operand)
{
    uint64_t a = 0, b = 0;
    switch (k->type) {
    case FI_FLOAT:
        *(float *)target += *(const float *)operand;
        return;
    case FI_DOUBLE:
        *(double *)target += *(const double *)operand;
        return;
    case FI_LONG_DOUBLE:
        *(long double *)target += *(const long double *)operand;
        return;
    case FI_DOUBLE_COMPLEX:
        *(double complex *)target += *(const double complex *)operand;
        return;
    default:
        memcpy(&a, target, k->size); /* little end first */
        memcpy(&b, operand, k->size);
        a = k->op == FI_SUM ? a + b : a ^ b;
        memcpy(target, &a, k->size);
    }
}

static bool element_is(const struct kind *k, const void *a, const void *b)
{
    if (k->type == FI_LONG_DOUBLE) /* has padding bytes */
        return *(const long double *)a == *(const long double *)b;
    return memcmp(a, b, k->size) == 0;
}

static void step_draw(struct step *s, uint64_t *state)
{
    uint64_t r = draw(state);
    *s = (struct step){.owner = (int)(r % PROCESSES), .count = 1};
    r >>= 8;
    unsigned percent = r % 100;
    r >>= 8;
    s->shape = percent < 40 ? BASE : percent < 70 ? INJECT : percent < 92 ? FETCH : percent < 98 ? TICKET : SWAP;
    if (s->shape >= TICKET) {
        s->at = (s->shape == TICKET ? TICKETS_AT : SWAPS_AT) + r % SPECIAL * 8;
        return;
    }
    size_t number = r % KINDS;
    r >>= 8;
    s->kind = &kinds[number];
    s->count = 1 + r % VECTOR;
    r >>= 8;
    s->at = number * ELEMENTS * ELEMENT + r % (ELEMENTS - VECTOR) * s->kind->size;
    for (size_t i = 0; i < s->count; i++)
        element_set(s->kind, s->operand + i * s->kind->size, draw(state));
}

/* ---- initiating ---- */

static void post_special(struct team *t, struct slot *o, fi_addr_t to, uint64_t at, uint64_t key)
{
    static const uint64_t one = 1;
    if (o->step.shape == TICKET) {
        TEAM_POST(t, fi_fetch_atomic(t->ep, &one, 1, NULL, o->result, NULL, to, at, key, FI_UINT64, FI_SUM, NULL));
    } else {
        /* the value seen last; others may have changed it since */
        static uint64_t seen[PROCESSES][SPECIAL];
        uint64_t *last = &seen[o->step.owner][(o->step.at - SWAPS_AT) / 8];
        o->compare = *last;
        o->swap = o->compare + 1;
        TEAM_POST(t, fi_compare_atomic(t->ep, &o->swap, 1, NULL, &o->compare, NULL, o->result, NULL, to, at, key,
                                       FI_UINT64, FI_CSWAP, NULL));
        t->get_count++;
        team_wait_gets(t, 0);
        memcpy(last, o->result, 8);
        *last += *last == o->compare;
        return;
    }
    t->get_count++;
}

static void post(struct team *t, struct slot *o)
{
    const struct step *s = &o->step;
    fi_addr_t to = t->peer[s->owner];
    uint64_t at = team_at(t, s->owner, s->at), key = team_key(t, s->owner);
    if (s->shape >= TICKET) {
        post_special(t, o, to, at, key);
        return;
    }
    switch (s->shape) {
    case BASE:
        TEAM_POST(t, fi_atomic(t->ep, s->operand, s->count, NULL, to, at, key, s->kind->type, s->kind->op, NULL));
        t->put_count++;
        break;
    case INJECT:
        TEAM_POST(t, fi_inject_atomic(t->ep, s->operand, s->count, to, at, key, s->kind->type, s->kind->op));
        t->put_count++;
        break;
    case FETCH:
        TEAM_POST(t, fi_fetch_atomic(t->ep, s->operand, s->count, NULL, o->result, NULL, to, at, key, s->kind->type,
                                     s->kind->op, NULL));
        t->get_count++;
        break;
    default:
        break;
    }
}

/* Tickets drawn and swaps that succeeded, of this process: added to the team's cells at the end. */
static void account(const struct slot *o, uint64_t cells[PROCESSES][2][SPECIAL])
{
    uint64_t result;
    memcpy(&result, o->result, 8);
    if (o->step.shape == TICKET)
        cells[o->step.owner][0][(o->step.at - TICKETS_AT) / 8] += mix(result);
    else if (o->step.shape == SWAP)
        cells[o->step.owner][1][(o->step.at - SWAPS_AT) / 8] += result == o->compare;
}

static void initiate(struct team *t, uint64_t operations)
{
    static struct slot batch[BATCH];
    uint64_t state = (uint64_t)t->rank, cells[PROCESSES][2][SPECIAL] = {0};
    for (uint64_t done = 0; done < operations;) {
        size_t n = operations - done < BATCH ? (size_t)(operations - done) : BATCH;
        for (size_t i = 0; i < n; i++) {
            step_draw(&batch[i].step, &state);
            post(t, &batch[i]);
        }
        team_wait_puts(t, 0);
        team_wait_gets(t, 0);
        for (size_t i = 0; i < n; i++)
            account(&batch[i], cells);
        done += n;
    }
    for (size_t i = 0; i < sizeof(cells) / 8; i++)
        um_rmw_add_u64(&t->shared->cell[i], ((uint64_t *)cells)[i]);
}

/* ---- checking ---- */

static void check_elements(struct team *t, const unsigned char *expected)
{
    for (size_t k = 0; k < KINDS; k++) {
        for (size_t i = 0; i < ELEMENTS; i++) {
            size_t at = k * ELEMENTS * ELEMENT + i * kinds[k].size;
            TEAM_DEMAND(t, element_is(&kinds[k], t->memory + at, expected + at),
                        "element %zu of kind %zu (%zu bytes) is not what all operations make of it", i, k,
                        kinds[k].size);
        }
    }
}

static void check_special(struct team *t, const uint64_t tickets[SPECIAL])
{
    const uint64_t(*cells)[2][SPECIAL] = (const void *)t->shared->cell;
    for (int i = 0; i < SPECIAL; i++) {
        uint64_t drawn, moved, sum = 0;
        memcpy(&drawn, t->memory + TICKETS_AT + i * 8, 8);
        memcpy(&moved, t->memory + SWAPS_AT + i * 8, 8);
        TEAM_DEMAND(t, drawn == tickets[i], "%llu tickets, not %llu", (unsigned long long)drawn,
                    (unsigned long long)tickets[i]);
        for (uint64_t v = 0; v < drawn; v++)
            sum += mix(v);
        TEAM_DEMAND(t, sum == cells[t->rank][0][i], "a ticket was drawn twice");
        TEAM_DEMAND(t, moved > 0 && moved == cells[t->rank][1][i], "%llu swaps, but %llu successes",
                    (unsigned long long)moved, (unsigned long long)cells[t->rank][1][i]);
    }
}

/* Repeats all operations in this process's own memory and compares. */
static void check(struct team *t, uint64_t operations)
{
    unsigned char *expected = calloc(1, TICKETS_AT);
    uint64_t tickets[SPECIAL] = {0};
    struct step s;
    TEAM_DEMAND(t, expected != NULL, "no memory");
    for (uint64_t rank = 0; rank < PROCESSES; rank++) {
        uint64_t state = rank;
        for (uint64_t done = 0; done < operations; done++) {
            step_draw(&s, &state);
            if (s.owner != t->rank || s.shape == SWAP)
                continue;
            if (s.shape == TICKET)
                tickets[(s.at - TICKETS_AT) / 8]++;
            else
                for (size_t i = 0; i < s.count; i++)
                    element_apply(s.kind, expected + s.at + i * s.kind->size, s.operand + i * s.kind->size);
        }
    }
    check_elements(t, expected);
    check_special(t, tickets);
    free(expected);
}

static void run(struct team *t, void *arg)
{
    uint64_t operations = *(uint64_t *)arg / PROCESSES;
    team_barrier(t);
    double start = team_now();
    initiate(t, operations);
    team_barrier(t);
    double seconds = team_now() - start;
    check(t, operations);
    team_barrier(t);
    if (t->rank == 0)
        printf("%llu atomic operations of %d processes in %.1f s, none lost\n",
               (unsigned long long)operations * PROCESSES, PROCESSES, seconds);
}

static void half_of_them_not_mapped(int rank)
{
    if (rank >= PROCESSES / 2)
        setenv("FI_UNIMEM_ADOPT", "0", 1);
}

int main(int argc, char **argv)
{
    struct team_config config = {.provider = "unimem", .size = PROCESSES, .bytes = BYTES, .timeout = 3600};
    uint64_t operations = 1000000;
    int c;
    while ((c = getopt(argc, argv, "n:p:")) != -1) {
        if (c == 'n')
            operations = strtoull(optarg, NULL, 0);
        else if (c == 'p')
            config.provider = optarg;
        else
            operations = 0;
    }
    if (operations < 10000) {
        fprintf(stderr, "usage: atomic_stress [-n OPERATIONS] [-p PROVIDER]     at least 10000\n");
        return 2;
    }
    return team_run(&config, half_of_them_not_mapped, run, &operations);
}
