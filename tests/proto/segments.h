/*
 * Messages from node 0 to node 1 that may go in segments: what the tests of them share. In all variants of these tests
 * receivers ask for a push of bodies, and so permit segments.
 *
 * Owns: the buffers of the messages, one pair for the whole program. Threading: one thread.
 */
#ifndef UM_TESTS_PROTO_SEGMENTS_H
#define UM_TESTS_PROTO_SEGMENTS_H

#include "world.h"

#include "proto/internal.h"

/* CLASSES: of sizes that are permitted apart. ALL: um_proto_peer.unasked when all of them are. */
enum { MOST = UM_SEGMENTED_MAX, MIDDLE = MOST / 2, CLASSES = 6, ALL = (1 << CLASSES) - 1 };

extern unsigned char from[MOST + 1], to[MOST + 1];

/* Returns how many messages node 0 has announced so far. */
uint64_t announced(const struct world *w);
/* Returns node 1 as a peer of node 0. */
struct um_proto_peer *receiver_of(struct world *w);

/* Sends a message from node 0 to node 1 and receives it, posted before or later. True if it was announced. */
bool exchange(struct world *w, size_t len, bool is_posted, uint32_t seed);
/* Exchanges messages until all sizes may go in segments, and find room. A body that comes late is taken back, and
 * permits nothing. */
void get_permission(struct world *w);
/* Opens two nodes and does the same. */
void open_permitted(struct world *w);
/* Returns a message of the first bytes of `from`, which it fills. Its context is 2. */
struct um_proto_msg whole(struct world *w, struct iovec *iov, size_t len, uint64_t tag, uint32_t flags);

#endif
