/*
 * An R-MAT graph and its betweenness, computed in one process: what bench/ssca.c distributes and is checked against.
 *
 * Vertices are numbered 0 to n-1. Edges have no direction, no weight; no loops; an edge may be there twice (R-MAT makes
 * such; both count). The graph follows from scale, degree and seed alone. Threading: any.
 */
#ifndef UM_BENCH_SSCA_GRAPH_H
#define UM_BENCH_SSCA_GRAPH_H

#include <stdint.h>

struct graph {
    uint64_t vertices, edges; /* edges: both directions counted */
    uint64_t *first;          /* vertices + 1 entries: where the neighbours of a vertex begin */
    uint32_t *neighbour;      /* edges entries */
};

/* 2^scale vertices, degree * 2^scale edges before loops are dropped. 0, or -1 without memory. */
int graph_make(struct graph *g, unsigned scale, unsigned degree, uint64_t seed);
void graph_free(struct graph *g);

/* The k-th vertex to start from: one that has neighbours. */
uint64_t graph_root(const struct graph *g, unsigned k);

/*
 * Adds to centrality[v] how many of the shortest paths from root, each pair of ends weighing 1, lead through v
 * (Brandes 2001); and stores distances (UINT64_MAX: out of reach). Returns the edges looked at, or 0 without memory.
 */
uint64_t graph_betweenness(const struct graph *g, uint64_t root, double *centrality, uint64_t *distance);

#endif
