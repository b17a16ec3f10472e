"""The planted mutations: what is broken, where, and which tests must notice.

Each is (name, file, old text, new text, tests). The old text must occur exactly once in the file: when the source
changes so that it does not, tests/mutations/run.py fails and the entry here is to be renewed. The tests are names of
meson tests, in the order in which they are tried; the mutation counts as found at the first that fails.
"""

MUTATIONS = [
    (
        "a release is dropped: the record after a rendezvous announcement is handled again",
        "src/core/progress.c",
        "    if (ret == 0)\n        ep->machine->release(ep->port, rec);\n    else",
        "    if (ret == 0 && rec->op != 2)\n        ep->machine->release(ep->port, rec);\n    else if (ret)",
        ["proto message sim", "proto rndv sim"],
    ),
    (
        "the sequence of a record is not checked: what lies in the ring from the lap before is taken",
        "src/machine/mem/rx.c",
        "        if ((uint32_t)word == rx->head + 1) {",
        "        if ((uint32_t)word % UM_SMALL_RECORDS == (rx->head + 1) % UM_SMALL_RECORDS) {",
        ["proto message sim"],
    ),
    (
        "the budget of grown lanes is not given back",
        "src/machine/mem/rx.c",
        "        um_rmw_add_u64(&port->shm->grown_left, 1);",
        "        (void)port;",
        ["proto lanes sim"],
    ),
    (
        "credit leaks: consumed bytes are not counted",
        "src/machine/mem/rx.c",
        "    rx->bytes_head = rx->record_end;",
        "    rx->bytes_head += 0;",
        ["proto message sim"],
    ),
    (
        "the length of a body is not checked against the ring",
        "src/machine/mem/rx.c",
        "        if (len == 0 || len > rx->ring.body_max)",
        "        if (len == 0)",
        ["hostile record"],
    ),
    (
        "the length of bytes in a head is not checked",
        "src/proto/eager.c",
        "    if (!rec->body && rec->len > UM_EAGER_INLINE)\n        return -EPROTO;",
        "",
        ["hostile record"],
    ),
    (
        "the token of an announcement is not checked",
        "src/proto/rndv.c",
        "    if (token >= UM_TOKENS || count > UM_IOV_LIMIT ||",
        "    if (count > UM_IOV_LIMIT ||",
        ["hostile record"],
    ),
    (
        "the pieces of a body need not add up",
        "src/proto/rndv.c",
        "    return sum == total ? 0 : -EPROTO;",
        "    return 0;",
        ["hostile record"],
    ),
    (
        "the end of a region is not checked",
        "src/core/region.c",
        "    if (offset > r->len || len > r->len - offset)",
        "    if (offset > r->len)",
        ["proto rma sim"],
    ),
    (
        "the access of a region is not checked",
        "src/core/region.c",
        "    if ((r->access & access) != access)",
        "    if (r->access == 0)",
        ["proto rma sim"],
    ),
    (
        "an acknowledgement that was asked for is not published at once",
        "src/machine/mem/rx.c",
        "    if ((rec->flags & UM_FLAG_ACK) || rx->head",
        "    if (rx->head",
        ["proto lanes sim"],
    ),
    (
        "a sender does not look whether its receiver went cold, and rings no bell",
        "src/machine/mem/lane.c",
        "    if (!(um_load_relaxed_u32(&lane->ctl->state) & UM_LANE_HOT))\n        lane_ring_bell(lane);",
        "",
        ["proto lanes sim"],
    ),
    (
        "a recycled lane keeps its incarnation: a refused sender goes on writing",
        "src/machine/mem/rx.c",
        "    um_store_relaxed_u32(&ctl->state, ((state >> UM_LANE_INC_SHIFT) + 1) << UM_LANE_INC_SHIFT);",
        "    um_store_relaxed_u32(&ctl->state, (state >> UM_LANE_INC_SHIFT) << UM_LANE_INC_SHIFT);",
        ["proto lanes sim"],
    ),
    (
        "matching takes the newest receive instead of the oldest",
        "src/match/match.c",
        "    for (struct um_list *l = m->recvs.next; l != &m->recvs; l = l->next) {\n"
        "        struct um_match_recv *recv = recv_of_all(l);\n        um_match_visit();",
        "    for (struct um_list *l = m->recvs.prev; l != &m->recvs; l = l->prev) {\n"
        "        struct um_match_recv *recv = recv_of_all(l);\n        um_match_visit();",
        ["proto message sim"],
    ),
    (
        "the end of a multi-receive buffer is not told",
        "src/proto/receive.c",
        "            c.flags |= UM_OP_MULTI_END;",
        "            c.flags |= 0;",
        ["proto multi sim"],
    ),
    (
        "the number of an answer is not checked",
        "src/machine/mem/lane.c",
        "        if ((uint16_t)(word >> 48) != (uint16_t)lane->answers_seen || ",
        "        if (",
        ["proto lanes sim"],
    ),
    (
        "nobody looks whether a peer that operations wait for has died",
        "src/core/progress.c",
        "        if (!peer->heard && !ep->machine->link_alive(peer->link))",
        "        if (false)",
        ["proto death sim"],
    ),
    (
        "a truncated message is reported as whole",
        "src/proto/receive.c",
        "        .error = error ? error : truncated ? EMSGSIZE : 0,",
        "        .error = error,",
        ["proto message sim"],
    ),
    (
        "an operation that ends does not give its token back",
        "src/core/peer.c",
        "        peer->tokens_free |= (uint64_t)1 << op->token;",
        "        peer->tokens_free |= 0;",
        ["proto rndv sim"],
    ),
    (
        "an impossible credit of a hostile receiver is believed",
        "src/machine/mem/lane.c",
        "    if (lane->head - consumed > UM_BIG_RECORDS + UM_SMALL_RECORDS || lane->bytes_head - bytes > UM_BIG_BYTES)\n"
        "        return false;",
        "",
        ["proto lanes sim"],
    ),
    (
        "private memory is read without asking whose it is",
        "src/machine/shm/copy.c",
        "        if (proof && (moved < (ssize_t)sizeof(nonce) || nonce != peer->nonce))",
        "        if (proof && moved < (ssize_t)sizeof(nonce))",
        ["hostile address"],
    ),
    (
        "a file that could be shrunk under its users is mapped",
        "src/machine/shm/mapper.c",
        "!(seals & F_SEAL_SHRINK)",
        "seals > 0xffff",
        ["hostile address"],
    ),
]
