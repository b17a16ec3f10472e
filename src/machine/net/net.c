/* The table of the machine over another provider: the highest of its files. net.h. */
#include "machine/net/net.h"

#include "machine/machines.h"
#include "machine/net/config.h"

static int port_open(const struct um_port_config *config, struct um_port **port_p)
{
    return um_net_port_open(&um_machine_net, config, port_p);
}

static int space_open(const struct um_space_config *config, struct um_space **space_p)
{
    (void)config;
    return um_net_space_open(&um_machine_net, space_p);
}

static int probe(void)
{
    return um_net_library_load();
}

const struct um_machine um_machine_net = {
    .name = "net",
    .about = "another libfabric provider, to other hosts",
    .params = um_net_params,
    .params_count = UM_NET_PARAMS,
    .body_max = UM_NET_BODY_MAX,
    .depth = UM_NET_WINDOW,
    .addr_kind = UM_ADDR_NET,
    .addr_first = UM_NET_ADDR_FIRST,
    .addr_words = UM_NET_ADDR_WORDS,
    .unconsumed_max = UM_NET_WINDOW_MAX,
    .unconsumed_bytes = UM_NET_KEPT_MAX + UM_NET_BODY_MAX,
    .transfers_whole = true,
    .probe = probe,
    .port_open = port_open,
    .port_close = um_net_port_close,
    .port_addr = um_net_port_addr,
    .addr_check = um_net_addr_check,
    .link_open = um_net_link_open,
    .link_close = um_net_link_close,
    .link_alive = um_net_link_alive,
    .transfer_start = um_net_transfer_start,
    .transfer_poll = um_net_transfer_poll,
    .transfer_cancel = um_net_transfer_cancel,
    .show = um_net_show,
    .hide = um_net_hide,
    .space_open = space_open,
    .space_close = um_net_space_close,
    .export = um_net_export,
    .unexport = um_net_unexport,
    .exported_level = um_net_exported_level,
    .counter_open = um_net_counter_open,
    .counter_close = um_net_counter_close,
    .exported_set_counters = um_net_exported_set_counters,
    .port_set_counters = um_net_port_set_counters,
    .space_count = um_net_space_count,
    .space_locks = um_net_space_locks,
    .window_open = um_net_window_open,
    .window_close = um_net_window_close,
    .lane_open = um_net_lane_open,
    .lane_close = um_net_lane_close,
    .claim = um_net_claim,
    .claim_message = um_net_claim_message,
    .claim_lent = um_net_claim_lent,
    .commit = um_net_commit,
    .abort = um_net_abort,
    .lane_body_max = um_net_lane_body_max,
    .prefers_rndv = um_net_prefers_rndv,
    .lane_committed = um_net_lane_committed,
    .lane_consumed = um_net_lane_consumed,
    .lane_reap = um_net_lane_reap,
    .lane_watch = um_net_lane_watch,
    .poll = um_net_poll,
    .catch_up = um_net_catch_up,
    .gather = um_net_gather,
    .release = um_net_release,
    .answer = um_net_answer,
    .rx_hold = um_net_rx_hold,
    .rx_announce = um_net_rx_announce,
    .rx_refuse = um_net_rx_refuse,
    .rx_origin = um_net_rx_origin,
    .wakes = true,
    .wait_fd = um_net_wait_fd,
    .arm = um_net_arm,
    .disarm = um_net_disarm,
    .kick = um_net_kick,
    .watch_line = um_net_watch_line,
    .tick = um_net_tick,
};
