/* See choice.h. */
#include "proto/choice.h"

enum {
    UM_OCTAVE = 64,          /* units of a cost for a factor of two */
    UM_STEP_MAX = UM_OCTAVE, /* largest deviation of a body that counts: one that lost a time slice is an exception */
    UM_MARGIN = UM_OCTAVE / 16, /* the other way must be better by this much to be taken */
    UM_CLEARLY = UM_OCTAVE / 4,
    UM_MUCH = UM_OCTAVE / 2,
    UM_CLASS_SHIFT = 14, /* log2 of the bytes at which class 0 begins */
};

/* Returns log2 in 64ths, linear between powers of two: monotone, at most 6 % off. */
static uint16_t log2_of(uint64_t value)
{
    if (value < 2)
        return 1;
    unsigned whole = 63 - (unsigned)__builtin_clzll(value);
    uint64_t rest = value << (63 - whole) << 1; /* the bits below the leading one, moved to the top */
    return (uint16_t)(whole * UM_OCTAVE + (unsigned)(rest >> 58));
}

unsigned um_proto_choice_class(uint64_t len)
{
    unsigned bits = len ? 63 - (unsigned)__builtin_clzll(len) : 0;
    unsigned class = bits > UM_CLASS_SHIFT ? bits - UM_CLASS_SHIFT : 0;
    return class < UM_CHOICE_CLASSES ? class : UM_CHOICE_CLASSES - 1;
}

/* Has the class compared the two ways? */
static bool has_compared(const struct um_proto_choice_class *c)
{
    return c->trials > 0;
}

/*
 * Called with the first body of a class. If the next smaller or the next larger class knows the better way, that way is
 * in use here too until a trial shows otherwise: a program that sends a few bodies of each size does not pay for trials
 * of each size. Otherwise a trial of the one way begins, then one of the other way.
 */
static void class_begin(struct um_proto_choice *choice, struct um_proto_choice_class *c)
{
    const struct um_proto_choice_class *smaller = c > choice->of ? c - 1 : c;
    const struct um_proto_choice_class *larger = c < choice->of + UM_CHOICE_CLASSES - 1 ? c + 1 : c;
    const struct um_proto_choice_class *like = has_compared(smaller) ? smaller : larger;
    c->interval = UM_CHOICE_SOON;
    c->left = UM_CHOICE_TRIES;
    if (has_compared(like)) {
        c->way = like->way;
        c->left = UM_CHOICE_SOON;
    }
}

/* Begins a trial. If some bodies of the first trial never told their cost, it goes on with as many others. */
static void trial_begin(struct um_proto_choice_class *c)
{
    if (has_compared(c))
        c->tried = 0;
    c->trial = c->tried;
    c->tries = has_compared(c) && c->trials < UM_CHOICE_FIRST ? UM_CHOICE_TRIES : UM_CHOICE_TRIES_LONG;
}

unsigned um_proto_choice_take(struct um_proto_choice *choice, uint64_t len)
{
    struct um_proto_choice_class *c = &choice->of[um_proto_choice_class(len)];
    if (c->interval == 0)
        class_begin(choice, c);
    if (c->left > 0) {
        c->left--;
        return c->way;
    }
    if (c->trial == 0 || c->trial == c->tries)
        trial_begin(c);
    if (++c->trial == c->tries)
        c->left = c->interval;
    return 1u - c->way;
}

unsigned um_proto_choice_next(const struct um_proto_choice *choice, uint64_t len)
{
    const struct um_proto_choice_class *c = &choice->of[um_proto_choice_class(len)];
    return c->interval == 0 || c->left > 0 ? c->way : 1u - c->way;
}

bool um_proto_choice_compares(const struct um_proto_choice *choice, uint64_t len, unsigned way)
{
    const struct um_proto_choice_class *c = &choice->of[um_proto_choice_class(len)];
    return c->interval > 0 && um_proto_choice_next(choice, len) == way && (c->left == 0 || c->trial > c->tried);
}

void um_proto_choice_try(struct um_proto_choice *choice, uint64_t len)
{
    choice->of[um_proto_choice_class(len)].left = 0;
    (void)um_proto_choice_take(choice, len);
}

bool um_proto_choice_prefers(const struct um_proto_choice *choice, uint64_t len, unsigned way)
{
    const struct um_proto_choice_class *c = &choice->of[um_proto_choice_class(len)];
    return has_compared(c) && c->way == way;
}

/* Learns the usual cost of the way in use. The first bodies may touch memory for the first time: the best of them
 * counts.
 */
static void usual_learn(struct um_proto_choice_class *c, uint16_t sample)
{
    uint16_t *cost = &c->cost[c->way];
    c->told += c->told < UM_CHOICE_PROOF;
    if (c->told <= UM_CHOICE_TRIES) {
        *cost = *cost && *cost < sample ? *cost : sample;
        return;
    }
    int off = sample - *cost;
    off = off > UM_STEP_MAX ? UM_STEP_MAX : off < -UM_STEP_MAX ? -UM_STEP_MAX : off;
    *cost = (uint16_t)(*cost + off / 4);
    int limit = (c->cost[1 - c->way] - c->was) / 2;
    if (*cost > c->was + (limit > UM_MUCH ? limit : UM_MUCH) && c->left > UM_CHOICE_SOON) {
        c->left = c->interval = UM_CHOICE_SOON; /* its cost has changed: try the other way soon */
        c->was = *cost;
    }
}

/* Returns the lowest cost of the trial's bodies so far. */
static uint16_t trial_best(const struct um_proto_choice_class *c)
{
    uint16_t best = c->sample[0];
    for (unsigned i = 1; i < c->tried; i++)
        best = c->sample[i] < best ? c->sample[i] : best;
    return best;
}

/* Returns the median cost of the last bodies of a whole trial: of all if it is short, of five if it is long. */
static uint16_t trial_cost(const struct um_proto_choice_class *c)
{
    const unsigned first = c->tries > UM_CHOICE_TRIES ? UM_CHOICE_TRIES : 0, count = c->tries - first;
    uint16_t sorted[UM_CHOICE_TRIES_LONG] = {0};
    for (unsigned i = 0, j; i < count; i++) {
        for (j = i; j > 0 && sorted[j - 1] > c->sample[first + i]; j--)
            sorted[j] = sorted[j - 1];
        sorted[j] = c->sample[first + i];
    }
    return sorted[count / 2];
}

/* True if the trial has failed: all its bodies, two at least, take more than twice as long as the way in use, or none
 * of more than half the trial takes less. The first trial fails only after three, and only if they take that long. */
static bool trial_has_failed(const struct um_proto_choice_class *c)
{
    const uint16_t usual = c->cost[c->way];
    const bool is_first = !has_compared(c);
    if (!usual || c->tried < (is_first ? UM_CHOICE_TRIES : 2))
        return false;
    return trial_best(c) > usual + (c->tried > c->tries / 2 && !is_first ? 0 : UM_OCTAVE);
}

/* Learns from a body of the trial. Returns whether the trial is over. */
static bool trial_learn(struct um_proto_choice_class *c, uint16_t sample)
{
    if (c->tried == c->trial) /* a late body from the time when this way was in use */
        return false;
    c->sample[c->tried++] = sample;
    const bool is_full = c->tried == c->tries;
    if (!is_full && !trial_has_failed(c))
        return false;
    c->cost[1 - c->way] = is_full ? trial_cost(c) : trial_best(c);
    if (c->trial < c->tries)
        c->left = c->interval;
    c->trial = c->tried = 0;
    return true;
}

/* Returns the interval until the next trial: so many times the present one, up to a limit. The first trials leave it as
 * it is: they say little, because memory was never touched and rings have not grown. */
static uint16_t later(const struct um_proto_choice_class *c, unsigned times, unsigned limit)
{
    if (c->trials < UM_CHOICE_FIRST)
        return c->interval;
    return (uint16_t)(c->interval * times < limit ? c->interval * times : limit);
}

void um_proto_choice_tell(struct um_proto_choice *choice, uint64_t len, unsigned way, uint64_t ns, uint64_t bytes)
{
    struct um_proto_choice_class *c = &choice->of[um_proto_choice_class(len)];
    if (bytes == 0)
        return;
    uint16_t sample = log2_of(ns > UINT64_MAX >> 20 ? UINT64_MAX / bytes : (ns << 20) / bytes);
    bool tried = way != c->way && trial_learn(c, sample);
    c->trials += tried && c->trials < UM_CHOICE_FIRST;
    if (way == c->way)
        usual_learn(c, sample);
    const uint16_t here = c->cost[c->way], there = c->cost[1 - c->way];
    const bool is_worse = there && here && there + UM_MARGIN < here;
    if (!tried && is_worse && c->told >= UM_CHOICE_PROOF && c->left > UM_CHOICE_SOON)
        c->left = UM_CHOICE_SOON; /* a trial decides, after what may have been an exception: caches adapt again */
    if (tried && is_worse) {
        c->way = 1 - c->way;
        c->told = 0;
        c->interval = later(c, 2, UM_CHOICE_LATE); /* if the choice keeps changing, trials must still become rare */
        c->left = c->interval;
        c->trial = c->tried = 0;
        c->was = c->cost[c->way];
    } else if (tried) { /* the clearer the difference, the later the next trial */
        c->was = here;
        c->interval =
            later(c, there > here + UM_CLEARLY ? 4 : 2, there > here + UM_OCTAVE ? UM_CHOICE_LATEST : UM_CHOICE_LATE);
    }
}

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

uint64_t um_proto_choice_pushed_ns(uint64_t ns, uint64_t busy_ns, uint64_t copy_ns)
{
    if (busy_ns == 0 || copy_ns == 0)
        return ns;
    const uint64_t rest = ns > busy_ns ? ns - busy_ns : 0;
    const uint64_t both = 2 * copy_ns < ns ? 2 * copy_ns : ns;
    return rest > both ? rest : both;
}

bool um_proto_exchange_is_on(struct um_proto_exchange *exchange, uint64_t sent, uint64_t pushed)
{
    const uint64_t came = pushed - exchange->pushed;
    if (came >= UM_EXCHANGE_BYTES)
        *exchange =
            (struct um_proto_exchange){.sent = sent, .pushed = pushed, .is_on = sent - exchange->sent >= came / 2};
    return exchange->is_on;
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
