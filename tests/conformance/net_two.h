/*
 * Two ports over another provider, and messages from one to the other that are not the machine's own: net.c,
 * net_poll.c, net_end.c, net_settings.c, net_bodies.c. A message goes from the inner endpoint of `a` to the port `b`.
 */
#ifndef UM_TESTS_CONFORMANCE_NET_TWO_H
#define UM_TESTS_CONFORMANCE_NET_TWO_H

#include "two.h"

#include "machine/net/net.h"

struct um_net_port *net_of(struct um_port *port);

/* Any bytes from a to the port of the lane's peer. */
void send_raw(const struct path *p, const void *message, size_t len);

/* A record of that lane, of its own making. */
struct um_net_record_wire record_of(const struct path *p, uint32_t number);

/* The lane carries a message with a body. */
void expect_well(struct path *p, uint64_t number);

/* A message, and the receiver's port is not driven as net_settled.c would. */
void send_unseen(const struct path *p, uint64_t number);

#endif
