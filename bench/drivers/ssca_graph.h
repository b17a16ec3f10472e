/*
 * An R-MAT graph and its betweenness, computed in one process: ssca.c distributes this graph, and is checked against
 * this result.
 *
 * Vertices are numbered 0 to n-1. Edges have no direction and no weight. There are no loops. An edge may be there twice
 * (R-MAT makes such edges; both count). The graph follows from scale, degree and seed alone. Threading: any.
 */
#ifndef UM_BENCH_SSCA_GRAPH_H
#define UM_BENCH_SSCA_GRAPH_H

#include <stdint.h>

struct graph {
    uint64_t vertices, edges; /* edges: both directions counted */
    uint64_t *first;          /* vertices + 1 entries: where the neighbours of a vertex begin */
    uint32_t *neighbour;      /* edges entries */
};

/* Makes a graph of 2^scale vertices and degree * 2^scale edges before loops are dropped. Returns 0, or -1 without
 * memory. */
int graph_make(struct graph *g, unsigned scale, unsigned degree, uint64_t seed);
void graph_free(struct graph *g);

/* Returns the k-th vertex to start from: one that has neighbours. */
uint64_t graph_root(const struct graph *g, unsigned k);

/*
 * Adds to centrality[v] the share of the shortest paths from root that lead through v, where all paths to one end weigh
 * 1 together (Brandes 2001); stores distances (UINT64_MAX: out of reach). Returns the edges read, or 0 without memory.
 */
uint64_t graph_betweenness(const struct graph *g, uint64_t root, double *centrality, uint64_t *distance);

#endif
