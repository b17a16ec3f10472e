/*
 * Two ports over another provider, and messages between them that a test makes itself: net.c, net_order.c, net_poll.c,
 * net_end.c, net_large.c, net_settings.c, net_bodies.c. A message goes from the inner endpoint of `a` to the port `b`.
 */
#ifndef UM_TESTS_CONFORMANCE_NET_TWO_H
#define UM_TESTS_CONFORMANCE_NET_TWO_H

#include "two.h"

#include "machine/net/net.h"

struct um_net_port *net_of(struct um_port *port);

/* Sends any bytes from a to the port of the lane's peer. */
void send_raw(const struct path *p, const void *message, size_t len);

/* Returns a record of that lane, without a body, made here. */
struct um_net_record_wire record_of(const struct path *p, uint32_t number);

/* The lane must still carry a message with a body. */
void expect_well(struct path *p, uint64_t number);

/* Sends a message; does not drive the receiver's port as net_settled.c would. */
void send_unseen(const struct path *p, uint64_t number);

#endif
