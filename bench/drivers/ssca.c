/*
 * ssca: betweenness of the vertices of an R-MAT graph that is spread over processes, as in SSCA2's fourth kernel, with
 * one-sided operations only.
 *
 *   ssca [-p PROVIDER] [-n PROCESSES] [-s SCALE] [-d DEGREE] [-r ROOTS]
 *
 * Each process registers its vertices (struct vertex), with the beginnings of their neighbours' lists, and these lists.
 * The process that discovers a vertex expands it: it reads the list of neighbours (fi_read), wherever it lies, marks
 * each neighbour with its distance (compare-and-swap), adds the number of shortest paths to it (FI_SUM, 64 bits), and
 * keeps those that it was the first to mark for the next level. On the way back shares are added to predecessors
 * (FI_SUM, double). All processes then compare their vertices with a computation in one process: distances exactly,
 * centralities (which contain the path counts) to 1e-9. Prints "figure teps PROCESSES EDGES_PER_SECOND", "errors N";
 * exit status 1 if there was any.
 */
#include "team.h"

#include "ssca_graph.h"

#include "base/atomic.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A vertex, as peers access it. */
struct vertex {
    uint64_t distance;     /* distance + 1; 0: not found yet. Written by the process that finds the vertex */
    uint64_t paths;        /* shortest paths, modulo 2^64; those that expand the level before add to it */
    double share;          /* those that expand the level after add to it */
    uint64_t first, count; /* its neighbours in the owner's list */
};

enum { BATCH = 256 };

struct ssca {
    unsigned scale, degree, roots;
    struct graph graph; /* whole, in each process: what the results are checked with */
    uint64_t part;      /* vertices of one process */
    size_t lists;       /* where neighbours' lists begin in a process's memory */
    struct vertex *mine;
    double *centrality;        /* of mine, summed over the roots */
    uint32_t *order;           /* vertices that this process found, level by level */
    uint64_t level[64], found; /* where in it the levels begin; how many vertices it holds */
    uint32_t *list;            /* neighbours read */
    uint64_t looked;           /* edges read */
};

static int owner_of(const struct ssca *s, uint32_t v)
{
    return (int)(v / s->part);
}

static uint64_t at_vertex(const struct team *t, const struct ssca *s, uint32_t v, size_t offset)
{
    return team_at(t, owner_of(s, v), v % s->part * sizeof(struct vertex) + offset);
}

static void get(struct team *t, int owner, uint64_t at, void *to, size_t len)
{
    TEAM_POST(t, fi_read(t->ep, to, len, NULL, t->peer[owner], at, team_key(t, owner), NULL));
    t->get_count++;
}

static struct vertex read_vertex(struct team *t, const struct ssca *s, uint32_t v)
{
    struct vertex x;
    get(t, owner_of(s, v), at_vertex(t, s, v, 0), &x, sizeof(x));
    team_wait_gets(t, 0);
    return x;
}

/* Reads up to a batch of a vertex's neighbours, from the given one on. Returns how many. */
static uint64_t read_neighbours(struct team *t, struct ssca *s, uint32_t v, const struct vertex *x, uint64_t from)
{
    uint64_t n = x->count - from < BATCH ? x->count - from : BATCH;
    get(t, owner_of(s, v), team_at(t, owner_of(s, v), s->lists + (x->first + from) * sizeof(uint32_t)), s->list,
        n * sizeof(uint32_t));
    team_wait_gets(t, 0);
    s->looked += n;
    return n;
}

/* Adds to a member of a vertex. *operand must stay as it is until the next barrier or wait. */
static void add(struct team *t, const struct ssca *s, uint32_t v, size_t offset, enum fi_datatype type,
                const void *operand)
{
    TEAM_POST(t, fi_atomic(t->ep, operand, 1, NULL, t->peer[owner_of(s, v)], at_vertex(t, s, v, offset),
                           team_key(t, owner_of(s, v)), type, FI_SUM, NULL));
    t->put_count++;
}

/* Marks a batch of neighbours; keeps those that no process had found. */
static void mark(struct team *t, struct ssca *s, uint64_t n, const struct vertex *x)
{
    static const uint64_t none = 0;
    uint64_t before[BATCH], distance = x->distance + 1;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t w = s->list[i];
        TEAM_POST(t, fi_compare_atomic(t->ep, &distance, 1, NULL, &none, NULL, &before[i], NULL,
                                       t->peer[owner_of(s, w)], at_vertex(t, s, w, offsetof(struct vertex, distance)),
                                       team_key(t, owner_of(s, w)), FI_UINT64, FI_CSWAP, NULL));
        t->get_count++;
    }
    team_wait_gets(t, 0);
    for (uint64_t i = 0; i < n; i++) {
        if (before[i] == 0)
            s->order[s->found++] = s->list[i];
        if (before[i] == 0 || before[i] == distance)
            add(t, s, s->list[i], offsetof(struct vertex, paths), FI_UINT64, &x->paths);
    }
    team_wait_puts(t, 0);
}

/* True while any process has vertices: each adds its count to a cell of the level. */
static bool anybody(struct team *t, unsigned level, uint64_t count)
{
    uint64_t *cell = &t->shared->cell[1 + level % 2];
    um_rmw_add_u64(cell, count);
    team_barrier(t);
    uint64_t sum = um_load_acquire_u64(cell);
    if (t->rank == 0)
        um_store_relaxed_u64(&t->shared->cell[1 + (level + 1) % 2], 0);
    team_barrier(t);
    return sum != 0;
}

static unsigned search(struct team *t, struct ssca *s, uint32_t root)
{
    unsigned level = 0;
    s->found = 0;
    if (owner_of(s, root) == t->rank) {
        s->mine[root % s->part].distance = 1;
        s->mine[root % s->part].paths = 1;
        s->order[s->found++] = root;
    }
    s->level[0] = 0;
    while (anybody(t, level, s->found - s->level[level])) {
        uint64_t begin = s->level[level], end = s->found;
        TEAM_DEMAND(t, level < 62, "the graph is deeper than 62");
        s->level[++level] = end;
        for (uint64_t i = begin; i < end; i++) {
            const struct vertex x = read_vertex(t, s, s->order[i]);
            for (uint64_t from = 0; from < x.count; from += BATCH)
                mark(t, s, read_neighbours(t, s, s->order[i], &x, from), &x);
        }
    }
    return level;
}

/* Adds x's share to its predecessors among a batch of neighbours. */
static void share_out(struct team *t, struct ssca *s, uint64_t n, const struct vertex *x)
{
    static struct vertex seen[BATCH];
    double part[BATCH];
    for (uint64_t i = 0; i < n; i++)
        get(t, owner_of(s, s->list[i]), at_vertex(t, s, s->list[i], 0), &seen[i], 16 /* distance, paths */);
    team_wait_gets(t, 0);
    for (uint64_t i = 0; i < n; i++) {
        if (seen[i].distance + 1 != x->distance)
            continue;
        part[i] = (double)seen[i].paths / (double)x->paths * (1 + x->share);
        add(t, s, s->list[i], offsetof(struct vertex, share), FI_DOUBLE, &part[i]);
    }
    team_wait_puts(t, 0);
}

static void go_back(struct team *t, struct ssca *s, unsigned levels)
{
    while (levels-- > 0) {
        for (uint64_t i = s->level[levels]; i < s->level[levels + 1]; i++) {
            const struct vertex x = read_vertex(t, s, s->order[i]);
            for (uint64_t from = 0; from < x.count; from += BATCH)
                share_out(t, s, read_neighbours(t, s, s->order[i], &x, from), &x);
        }
        team_barrier(t);
    }
}

/* Fills in this process's part of the graph. */
static void place(struct team *t, struct ssca *s)
{
    uint64_t first = s->part * (uint64_t)t->rank, base = s->graph.first[first];
    s->mine = (struct vertex *)t->memory;
    for (uint64_t i = 0; i < s->part; i++) {
        s->mine[i].first = s->graph.first[first + i] - base;
        s->mine[i].count = s->graph.first[first + i + 1] - s->graph.first[first + i];
    }
    memcpy(t->memory + s->lists, s->graph.neighbour + base,
           (s->graph.first[first + s->part] - base) * sizeof(uint32_t));
}

/* Compares the distances of this root; adds up and clears what the vertices hold. Returns the number of errors. */
static uint64_t settle(struct team *t, struct ssca *s, uint32_t root, double *expected, uint64_t *distance)
{
    uint64_t errors = 0, first = s->part * (uint64_t)t->rank;
    TEAM_DEMAND(t, graph_betweenness(&s->graph, root, expected, distance) != 0, "no memory");
    for (uint64_t i = 0; i < s->part; i++) {
        struct vertex *x = &s->mine[i];
        errors += x->distance != distance[first + i] + 1; /* out of reach: UINT64_MAX + 1 = 0 */
        if (first + i != root)
            s->centrality[i] += x->share;
        x->distance = x->paths = 0;
        x->share = 0;
    }
    return errors;
}

static void report(struct team *t, struct ssca *s, uint64_t errors, double seconds)
{
    um_rmw_add_u64(&t->shared->cell[0], errors);
    um_rmw_add_u64(&t->shared->cell[3], s->looked);
    team_barrier(t);
    uint64_t total = um_load_acquire_u64(&t->shared->cell[0]), looked = um_load_acquire_u64(&t->shared->cell[3]);
    if (t->rank == 0) {
        printf("graph of %llu vertices, %llu edges, %u roots: %llu edges in %.3f s\n",
               (unsigned long long)s->graph.vertices, (unsigned long long)s->graph.edges / 2, s->roots,
               (unsigned long long)looked, seconds);
        printf("figure teps %d %.0f\nerrors %llu\n", t->size, (double)looked / seconds, (unsigned long long)total);
    }
    TEAM_DEMAND(t, total == 0, "%llu errors", (unsigned long long)total);
}

static void run(struct team *t, void *arg)
{
    struct ssca *s = arg;
    double *expected = calloc(s->graph.vertices, sizeof(*expected)), seconds = 0;
    uint64_t *distance = malloc(s->graph.vertices * sizeof(*distance)), errors = 0;
    s->centrality = calloc(s->part, sizeof(*s->centrality));
    s->order = malloc(s->graph.vertices * sizeof(*s->order));
    s->list = malloc(BATCH * sizeof(*s->list));
    TEAM_DEMAND(t, expected && distance && s->centrality && s->order && s->list, "no memory");
    place(t, s);
    for (unsigned k = 0; k < s->roots; k++) {
        uint32_t root = (uint32_t)graph_root(&s->graph, k);
        team_barrier(t);
        double start = team_now();
        go_back(t, s, search(t, s, root));
        seconds += team_now() - start;
        errors += settle(t, s, root, expected, distance);
    }
    for (uint64_t i = 0; i < s->part; i++) {
        double want = expected[s->part * (uint64_t)t->rank + i];
        errors += !(fabs(s->centrality[i] - want) <= 1e-9 * (1 + fabs(want)));
    }
    report(t, s, errors, seconds);
    free(expected);
    free(distance);
    free(s->centrality);
    free(s->order);
    free(s->list);
}

static int options_read(struct ssca *s, struct team_config *config, int argc, char **argv)
{
    int c;
    while ((c = getopt(argc, argv, "p:n:s:d:r:")) != -1) {
        if (c == 'p')
            config->provider = optarg;
        else if (c == 'n')
            config->size = atoi(optarg);
        else if (c == 's')
            s->scale = (unsigned)atoi(optarg);
        else if (c == 'd')
            s->degree = (unsigned)atoi(optarg);
        else if (c == 'r')
            s->roots = (unsigned)atoi(optarg);
        else
            return -1;
    }
    if (config->size < 1 || config->size > TEAM_MAX || config->size & (config->size - 1) || s->scale < 4 ||
        s->scale > 24 || !s->degree || !s->roots)
        return -1;
    return 0;
}

int main(int argc, char **argv)
{
    struct ssca s = {.scale = 12, .degree = 8, .roots = 4};
    struct team_config config = {.size = 2};
    if (options_read(&s, &config, argc, argv)) {
        fprintf(stderr, "usage: ssca [-p PROVIDER] [-n PROCESSES] [-s SCALE] [-d DEGREE] [-r ROOTS]\n"
                        "a power of two of processes; SCALE 4 to 24\n");
        return 2;
    }
    if (graph_make(&s.graph, s.scale, s.degree, 1)) {
        fprintf(stderr, "ssca: no memory\n");
        return 1;
    }
    s.part = s.graph.vertices / (uint64_t)config.size;
    s.lists = s.part * sizeof(struct vertex);
    uint64_t most = 0;
    for (int i = 0; i < config.size; i++) {
        uint64_t n = s.graph.first[s.part * (uint64_t)(i + 1)] - s.graph.first[s.part * (uint64_t)i];
        most = n > most ? n : most;
    }
    config.bytes = s.lists + most * sizeof(uint32_t);
    int ret = team_run(&config, NULL, run, &s);
    graph_free(&s.graph);
    return ret;
}
