"""Mutations of src/machine/board and emu; see ../run."""

MUTATIONS = [
    (
        "a board's peers are not told that a region was closed",
        "src/machine/board/space.c",
        "    space->count--;\n    space->changes++;\n    um_board_views_tell(space, NULL);",
        "    space->count--;\n    space->changes++;",
        ["board_dma"],
    ),
    (
        "a sender on a board that is found gone ends at once",
        "src/machine/board/port.c",
        "    if (rx->gone) {",
        "    if ((rx->gone = !is_there(&rx->peer))) {",
        ["board_board_gone"],
    ),
    (
        "a refused lane of a board is not told of",
        "src/machine/board/rx.c",
        "    if (!port->full_logged)",
        "    if (false)",
        ["board_board_gone"],
    ),
    (
        "a transfer of a board does not guard a region",
        "src/machine/board/move.c",
        "    if (copy->is_region && !(m.guard = um_fault_guard_open()))",
        "    if (copy->is_region && m.guard)",
        ["board_copy"],
    ),
    (
        "a board reaches what lies where a region was",
        "src/machine/board/move.c",
        "    if (m->window && um_load",
        "    if (!m->window && um_load",
        ["board_board_gone"],
    ),
    (
        "a lane of a board uses an earlier ring's registration",
        "src/machine/board/lane.c",
        "    um_board_lane_forget_ring(lane); /* it may be",
        "    (void)0; /* it may be",
        ["board_board_gone"],
    ),
    (
        "who is asked for a lane of a board is not probed",
        "src/machine/board/lane.c",
        "        (void)tell(lane, &message);",
        "        (void)message;",
        ["board_board_gone"],
    ),
    (
        "memory of a context that ended stays registered",
        "src/machine/board/port.c",
        "    um_board_reaches_gone(peer->node, peer->context);",
        "    (void)0;",
        ["board_board_gone"],
    ),
    (
        "notices of contexts that ended stay pinned",
        "src/machine/board/view.c",
        " || um_board_reach_pins_full())",
        ")",
        ["board_board_gone"],
    ),
    (
        "an emulated board wakes only so many sleepers",
        "emu/mailbox.c",
        " == 1 || errno != EAGAIN)",
        " != 2)",
        ["emu mailbox"],
    ),
]
