/* Lanes of the machines over memory, as the tests look into them. Owns nothing. */
#ifndef UM_TESTS_PROTO_MEM_LANE_H
#define UM_TESTS_PROTO_MEM_LANE_H

#include "world.h"

#include "core/endpoint.h"
#include "machine/mem/mem.h"

static inline struct um_mem_lane *mem_lane(const struct um_core_peer *peer)
{
    return (struct um_mem_lane *)peer->lane;
}

/* Opens two nodes and the lane from 1 to 0, with a message that nobody receives. */
static inline void open_lane(struct world *w)
{
    uint32_t value = 3;
    world_open(w, 2);
    inject_buf(w, 1, 0, &value, sizeof(value), 1u << 20, UM_OP_TAGGED);
}

#endif
