/* See exchange.h. */
#include "proto/exchange.h"

/* bytes; a rate that knows more forgets half of what it knows. */
static const uint64_t UM_RATE_BYTES = UINT64_C(1) << 17;

void um_proto_rate_add(struct um_proto_rate *rate, uint64_t ns, uint64_t bytes)
{
    const uint64_t usual = um_proto_rate_ns(rate, bytes);
    if (rate->bytes > UM_RATE_BYTES) {
        rate->ns /= 2;
        rate->bytes /= 2;
    }
    rate->ns += usual && ns > 4 * usual ? 4 * usual : ns; /* a body that lost a time slice is an exception */
    rate->bytes += bytes;
}

uint64_t um_proto_rate_ns(const struct um_proto_rate *rate, uint64_t bytes)
{
    return rate->bytes ? (uint64_t)((double)rate->ns * (double)bytes / (double)rate->bytes) : 0;
}

uint64_t um_proto_exchange_pushed_ns(uint64_t ns, uint64_t busy_ns, uint64_t copy_ns)
{
    if (busy_ns == 0 || copy_ns == 0)
        return ns;
    const uint64_t rest = ns > busy_ns ? ns - busy_ns : 0;
    const uint64_t both = 2 * copy_ns < ns ? 2 * copy_ns : ns;
    return rest > both ? rest : both;
}

void um_proto_exchange_note(struct um_proto_exchange *exchange, uint64_t sent, uint64_t came)
{
    const uint64_t more = came - exchange->came;
    if (exchange->sent == 0 && exchange->came == 0) {
        *exchange = (struct um_proto_exchange){.sent = sent, .came = came};
    } else if (more >= UM_EXCHANGE_BYTES) {
        const bool is_half = sent - exchange->sent >= more / 2;
        exchange->left = is_half ? UM_EXCHANGE_HOLD : exchange->left > 0 ? exchange->left - 1 : 0;
        exchange->sent = sent;
        exchange->came = came;
    }
}

bool um_proto_loan_take(struct um_proto_loan *loan, bool reads, uint64_t now)
{
    loan->still = reads ? 0 : loan->still + 1;
    if (loan->still >= UM_LOAN_STILL)
        loan->lent = 0;
    if (!reads || now < loan->again_at)
        return false;
    if (++loan->lent == UM_LOAN_MAX) {
        loan->lent = 0;
        loan->again_at = now + UM_LOAN_PAUSE_NS;
    }
    return true;
}
