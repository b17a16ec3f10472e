"""Mutations of src/match; see ../run."""

MUTATIONS = [
    (
        "matching takes the newest receive instead of the oldest",
        "src/match/recvs.c",
        "    struct um_list *first = m->recvs.next;",
        "    struct um_list *first = m->recvs.prev;",
        ["proto message sim"],
    ),
    (
        "the mark of the last hashed receive does not go back when that one goes",
        "src/match/recvs.c",
        "        m->hashed = recv->all.prev;",
        "        m->hashed = recv->all.next;",
        ["match"],
    ),
    (
        "the index of unexpected messages does not go back when its last one goes",
        "src/match/msgs.c",
        "            m->indexed[t] = msg->all.prev;",
        "            m->indexed[t] = msg->all.next;",
        ["match"],
    ),
    (
        "a receive is taken for the oldest one though the source differs",
        "src/match/match.h",
        "                             !um_match_takes(recv->tag, recv->ignore, recv->source, tag, source),",
        "                             !um_match_takes(recv->tag, recv->ignore, recv->source, tag, recv->source),",
        ["prov/messages", "proto message sim"],
    ),
]
