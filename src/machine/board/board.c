/* The table of the machine over a board; it stands above all other files of the machine. board.h. */
#include "machine/board/board.h"
#include "machine/address.h"
#include "machine/machines.h"

static int port_open(const struct um_port_config *config, struct um_port **port_p)
{
    return um_board_port_open(&um_machine_board, config, port_p);
}

static int space_open(const struct um_space_config *config, struct um_space **space_p)
{
    (void)config;
    return um_board_space_open(&um_machine_board, space_p);
}

const struct um_machine um_machine_board = {
    .name = "board",
    .about = "a Unimem board",
    .params = um_board_params,
    .params_count = UM_BOARD_PARAMS,
    .body_max = UM_BOARD_BODY_MAX,
    .depth = UM_BOARD_LINES,
    .addr_kind = UM_ADDR_BOARD,
    .addr_first = UM_BOARD_ADDR_FIRST,
    .addr_words = UM_BOARD_ADDR_WORDS,
    .unconsumed_max = UM_BOARD_LINES + UM_BOARD_EMBEDS,
    .unconsumed_bytes = UM_BOARD_LINES * UM_BOARD_LINE + UM_BOARD_BODY_MAX,
    .probe = um_board_probe,
    .port_open = port_open,
    .port_close = um_board_port_close,
    .port_addr = um_board_port_addr,
    .addr_check = um_board_addr_check,
    .link_open = um_board_link_open,
    .link_close = um_board_link_close,
    .link_alive = um_board_link_alive,
    .transfer_start = um_board_transfer_start,
    .memory_alloc = um_board_memory_alloc,
    .memory_free = um_board_memory_free,
    .prefers_rndv = um_board_waits_better,
    .space_open = space_open,
    .space_close = um_board_space_close,
    .export = um_board_export,
    .unexport = um_board_unexport,
    .exported_level = um_board_exported_level,
    .counter_open = um_board_counter_open,
    .counter_close = um_board_counter_close,
    .exported_set_counters = um_board_exported_set_counters,
    .port_set_counters = um_board_port_set_counters,
    .space_count = um_board_space_count,
    .space_locks = um_board_space_locks,
    .window_open = um_board_window_open,
    .window_close = um_board_window_close,
    .window_count = um_board_window_count,
    .lane_open = um_board_lane_open,
    .lane_close = um_board_lane_close,
    .claim = um_board_claim,
    .claim_message = um_board_claim_message,
    .commit = um_board_commit,
    .abort = um_board_abort,
    .lane_body_max = um_board_lane_body_max,
    .lane_committed = um_board_lane_committed,
    .lane_consumed = um_board_lane_consumed,
    .lane_reap = um_board_lane_reap,
    .lane_watch = um_board_lane_watch,
    .poll = um_board_poll,
    .release = um_board_release,
    .answer = um_board_answer,
    .gather = um_board_gather,
    .rx_hold = um_board_rx_hold,
    .rx_refuse = um_board_rx_refuse,
    .rx_origin = um_board_rx_origin,
    .wakes = true,
    .wait_fd = um_board_wait_fd,
    .arm = um_board_arm,
    .disarm = um_board_disarm,
    .kick = um_board_kick,
    .watch_line = um_board_watch_line,
    .tick = um_board_tick,
};
