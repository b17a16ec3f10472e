/* ssca_graph.h. */
#include "ssca_graph.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* splitmix64 */
static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* R-MAT with a = 0.55, b = c = 0.1, d = 0.25, the numbers of SSCA2: one quadrant of the matrix a level. */
static void draw_edge(unsigned scale, uint64_t *state, uint32_t *from_p, uint32_t *to_p)
{
    uint32_t from = 0, to = 0;
    for (unsigned level = 0; level < scale; level++) {
        uint64_t percent = (draw(state) >> 32) % 100;
        from = from << 1 | (percent >= 65);
        to = to << 1 | ((percent >= 55 && percent < 65) || percent >= 75);
    }
    *from_p = from;
    *to_p = to;
}

/* Counts the neighbours of each vertex (fill: false), or stores them. */
static void walk_edges(const struct graph *g, unsigned scale, uint64_t count, uint64_t seed, uint64_t *at, bool fill)
{
    uint64_t state = seed;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t u, v;
        draw_edge(scale, &state, &u, &v);
        if (u == v)
            continue;
        if (fill) {
            g->neighbour[at[u]] = v;
            g->neighbour[at[v]] = u;
        }
        at[u]++;
        at[v]++;
    }
}

int graph_make(struct graph *g, unsigned scale, unsigned degree, uint64_t seed)
{
    uint64_t n = UINT64_C(1) << scale, count = n * degree, edges = 0;
    *g = (struct graph){.vertices = n};
    uint64_t *at = calloc(n, sizeof(*at));
    g->first = malloc((n + 1) * sizeof(*g->first));
    if (at && g->first) {
        walk_edges(g, scale, count, seed, at, false);
        for (uint64_t v = 0; v < n; v++) {
            g->first[v] = edges;
            edges += at[v];
            at[v] = g->first[v];
        }
        g->first[n] = g->edges = edges;
        g->neighbour = malloc((edges + 1) * sizeof(*g->neighbour));
    }
    if (at && g->neighbour)
        walk_edges(g, scale, count, seed, at, true);
    free(at);
    if (g->neighbour)
        return 0;
    graph_free(g);
    return -1;
}

void graph_free(struct graph *g)
{
    free(g->first);
    free(g->neighbour);
    *g = (struct graph){0};
}

uint64_t graph_root(const struct graph *g, unsigned k)
{
    uint64_t state = k, v;
    do
        v = draw(&state) & (g->vertices - 1);
    while (g->first[v] == g->first[v + 1]);
    return v;
}

/* Breadth first: the order of visits, distances, how many shortest paths lead to each. Returns how many were visited.
 */
static uint64_t search(const struct graph *g, uint64_t root, uint32_t *order, double *paths, uint64_t *distance)
{
    uint64_t done = 0, found = 1;
    for (uint64_t v = 0; v < g->vertices; v++) {
        distance[v] = UINT64_MAX;
        paths[v] = 0;
    }
    order[0] = (uint32_t)root;
    distance[root] = 0;
    paths[root] = 1;
    for (; done < found; done++) {
        uint32_t v = order[done];
        for (uint64_t e = g->first[v]; e < g->first[v + 1]; e++) {
            uint32_t w = g->neighbour[e];
            if (distance[w] == UINT64_MAX) {
                distance[w] = distance[v] + 1;
                order[found++] = w;
            }
            if (distance[w] == distance[v] + 1)
                paths[w] += paths[v];
        }
    }
    return found;
}

uint64_t graph_betweenness(const struct graph *g, uint64_t root, double *centrality, uint64_t *distance)
{
    uint32_t *order = malloc(g->vertices * sizeof(*order));
    double *paths = malloc(g->vertices * sizeof(*paths)), *share = calloc(g->vertices, sizeof(*share));
    uint64_t looked = 0;
    if (order && paths && share) {
        uint64_t found = search(g, root, order, paths, distance);
        for (uint64_t i = found; i-- > 0;) {
            uint32_t w = order[i];
            looked += g->first[w + 1] - g->first[w];
            for (uint64_t e = g->first[w]; e < g->first[w + 1]; e++) {
                uint32_t v = g->neighbour[e];
                if (distance[v] + 1 == distance[w])
                    share[v] += paths[v] / paths[w] * (1 + share[w]);
            }
            if (w != root)
                centrality[w] += share[w];
        }
    }
    free(order);
    free(paths);
    free(share);
    return looked;
}
