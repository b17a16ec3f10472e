/*
 * What a pushed body costs where bodies go both ways: the rates at which bytes moved, whether streams of bodies go both
 * ways, and the time that a body waited for reads of its sender.
 *
 * Owns: nothing; its callers keep the structures. Must not know bodies, peers, records or the clock. Threading: core.h.
 */
#ifndef UM_PROTO_EXCHANGE_H
#define UM_PROTO_EXCHANGE_H

#include "proto/choice.h"

#include <stdbool.h>
#include <stdint.h>

/* How fast bytes moved of late. All zero: not known. */
struct um_proto_rate {
    uint64_t ns, bytes;
};

void um_proto_rate_add(struct um_proto_rate *rate, uint64_t ns, uint64_t bytes);
/* Returns the ns that so many bytes take at that rate; 0: not known. */
uint64_t um_proto_rate_ns(const struct um_proto_rate *rate, uint64_t bytes);

/*
 * Returns the cost (ns) of pushed bodies that came in ns. busy_ns: the part of ns in which their sender read or mapped
 * bodies that this side sends. copy_ns: what this side's half of the work took, copying the bodies out of the records;
 * 0: not known.
 *
 * Where bodies go both ways, each side finds reading faster while the other side reads: a body that it asks for waits
 * for those reads. If both sides push, no body waits for reads, and a body costs each side about copy_ns, in either
 * direction. So busy_ns is subtracted, but no less than twice copy_ns remains (or ns, if that is less).
 */
uint64_t um_proto_exchange_pushed_ns(uint64_t ns, uint64_t busy_ns, uint64_t copy_ns);

/*
 * Do bodies go both ways? If both sides push streams, they take turns: the bodies of a turn come at the rate at which
 * this side copies them out of the records, and it copies its own ones between the turns. So a body costs twice the
 * copying at least, however soon after the last one it came.
 */
struct um_proto_exchange {
    uint64_t sent, came; /* bytes at the last comparison; all zero: there was none */
    uint32_t left;       /* comparisons that may find less until bodies do not go both ways any more; 0: they do not */
};

enum {
    UM_EXCHANGE_BYTES = 1 << 19, /* bytes that come between two comparisons */
    UM_EXCHANGE_HOLD = 32,       /* comparisons: a program posts many bodies at a time, then none for a while */
};

/* Compares the bodies that came from peers, by whatever way, with those sent to them (bytes, in all). */
void um_proto_exchange_note(struct um_proto_exchange *exchange, uint64_t sent, uint64_t came);
/* Was half as much sent lately as came, or more? */
static inline bool um_proto_exchange_is_on(const struct um_proto_exchange *exchange)
{
    return exchange->left > 0;
}

/*
 * What is subtracted is a loan to a sender. If the sender goes on reading, then reading is the better way for it, and
 * its reads do delay what it pushes. After UM_LOAN_MAX bodies it gets no loan for UM_LOAN_PAUSE_NS.
 */
struct um_proto_loan {
    uint64_t again_at; /* ns; until then there is no loan */
    uint32_t lent;     /* bodies that had a loan */
    uint32_t still;    /* bodies since the sender read one */
};

enum {
    UM_LOAN_MAX = 2 * UM_CHOICE_LATE, /* bodies; by then most senders have tried to ask for their bodies, too */
    UM_LOAN_STILL = 64,               /* bodies; a sender that has read nothing for so many asks for its bodies */
};

#define UM_LOAN_PAUSE_NS UINT64_C(1000000000)

/* Called when a pushed body came. reads: its sender read bodies of this side meanwhile. Returns whether those reads are
 * left out of its cost. now: ns. */
bool um_proto_loan_take(struct um_proto_loan *loan, bool reads, uint64_t now);

#endif
