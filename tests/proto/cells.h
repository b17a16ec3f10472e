/*
 * Two nodes whose lanes have cells: what the tests of cells share.
 *
 * Owns: the buffers of the messages, one pair for the whole program. It looks into lanes of the machines over memory
 * and sets what they have chosen. Threading: one thread.
 */
#ifndef UM_TESTS_PROTO_CELLS_H
#define UM_TESTS_PROTO_CELLS_H

#include "mem_lane.h"

#include "proto/internal.h"

enum { LONG = 8192, MOST = UM_SEGMENTED_MAX };

enum place { RING, OWN_CELL, OTHER_CELL };

extern unsigned char from[MOST], to[MOST];

/* Return the lane from that node to the other one, and the receiver's end of the lane from there. */
struct um_mem_lane *lane_of(struct world *w, int node);
struct um_mem_rx *rx_of(struct world *w, int node);
/* That kind is in use for good. */
void use(struct um_mem_stores *stores, enum um_mem_stores_kind kind, uint32_t round);
/* Widens the rings of both lanes. Then each node has the first block of its lane's cell, streams go into the rings, and
 * ordinary stores are in use there. */
void widen(struct world *w);
/* Opens two nodes and does the same. */
void open_wide(struct world *w);

/* Returns the first word of the last record that the node has sent. */
uint64_t word_of_last(struct world *w, int node);
/* Tells where the last body that the node has sent lies. */
enum place place_of_last(struct world *w, int node);
/* Returns the number of the block that the last body which the node has sent lies in. */
uint32_t block_of_last(struct world *w, int node);

/* Sends a message and tells where it lies. The node has made no call of progress since its last one. */
enum place send_now(struct world *w, int node, uint32_t len, uint32_t tag);
/* The same for a message that is alone. */
enum place send_alone(struct world *w, int node, uint32_t len, uint32_t tag);
/* Receives and checks such a message. */
void take(struct world *w, int node, uint32_t len, uint32_t tag);

#endif
