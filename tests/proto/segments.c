/* segments.h. */
#include "segments.h"

#include "core/endpoint.h"
#include "machine/mem/mem.h"

#define CTX(n) ((void *)(uintptr_t)(n))

unsigned char from[MOST + 1], to[MOST + 1];

uint64_t announced(const struct world *w)
{
    return um_core_ep_stats(w->node[0].ep)->rendezvous;
}

struct um_proto_peer *receiver_of(struct world *w)
{
    return um_proto_peer_of(peer_of(w, 0, 1));
}

bool exchange(struct world *w, size_t len, bool is_posted, uint32_t seed)
{
    const uint64_t before = announced(w);
    fill(from, len, seed);
    memset(to, 0, len);
    if (is_posted)
        recv_buf(w, 1, NULL, to, len, seed, 0, UM_OP_TAGGED, CTX(1));
    world_settle(w); /* the message is alone */
    send_buf(w, 0, 1, from, len, seed, UM_OP_TAGGED, CTX(2));
    if (!is_posted) {
        world_settle(w);
        recv_buf(w, 1, NULL, to, len, seed, 0, UM_OP_TAGGED, CTX(1));
    }
    const struct um_core_completion c = done_of(w, 1, CTX(1));
    assert_int_equal(c.error, 0);
    assert_int_equal(c.len, len);
    assert_int_equal(c.tag, seed);
    assert_true(is_filled(to, len, seed));
    assert_int_equal(done_of(w, 0, CTX(2)).error, 0);
    return announced(w) != before;
}

/* Has the lane from node 0 to node 1 room for the longest message in segments? */
static bool takes_the_longest(struct world *w)
{
    struct um_lane *lane = peer_of(w, 0, 1)->lane;
    return lane->machine->lane_has_room(lane, MOST / UM_BIG_BODY, UM_BIG_BODY);
}

void get_permission(struct world *w)
{
    const size_t len[CLASSES] = {20000, 65535, 65536, MIDDLE - 1, MIDDLE, MOST};
    for (int i = 0; receiver_of(w)->unasked != ALL || !takes_the_longest(w); i++) {
        assert_true(i < 1000);
        (void)exchange(w, len[i % CLASSES], true, 7);
        world_settle(w);
    }
}

void open_permitted(struct world *w)
{
    world_open(w, 2);
    get_permission(w);
}

struct um_proto_msg whole(struct world *w, struct iovec *iov, size_t len, uint64_t tag, uint32_t flags)
{
    *iov = (struct iovec){.iov_base = from, .iov_len = len};
    fill(from, len, (uint32_t)tag);
    return (struct um_proto_msg){
        .iov = iov, .count = 1, .peer = peer_of(w, 0, 1), .tag = tag, .context = CTX(2), .flags = UM_OP_TAGGED | flags};
}
