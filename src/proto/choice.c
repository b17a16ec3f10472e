/* See choice.h. */
#include "proto/choice.h"

enum {
    UM_OCTAVE = 64,             /* units of a cost for a factor of two */
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
    c->voided = 0;
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

/* Are there bodies of a trial that may still tell their cost? */
static bool is_under_way(const struct um_proto_choice_class *c)
{
    return c->trial > c->tried + c->voided;
}

bool um_proto_choice_compares(const struct um_proto_choice *choice, uint64_t len, unsigned way)
{
    const struct um_proto_choice_class *c = &choice->of[um_proto_choice_class(len)];
    return c->interval > 0 && um_proto_choice_next(choice, len) == way && (c->left == 0 || is_under_way(c));
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

bool um_proto_choice_is_sure(const struct um_proto_choice *choice, uint64_t len, unsigned way)
{
    const struct um_proto_choice_class *c = &choice->of[um_proto_choice_class(len)];
    return has_compared(c) && c->way == way && c->left > UM_CHOICE_SOON;
}

bool um_proto_choice_is_usual(const struct um_proto_choice *choice, uint64_t len, unsigned way)
{
    const struct um_proto_choice_class *c = &choice->of[um_proto_choice_class(len)];
    return !has_compared(c) || (c->way == way && c->adapts == 0);
}

/* Returns the median of up to UM_CHOICE_RECENT samples. */
static uint16_t median(const uint16_t *sample, unsigned count)
{
    uint16_t sorted[UM_CHOICE_RECENT] = {0};
    for (unsigned i = 0, j; i < count; i++) {
        for (j = i; j > 0 && sorted[j - 1] > sample[i]; j--)
            sorted[j] = sorted[j - 1];
        sorted[j] = sample[i];
    }
    return sorted[count / 2];
}

/* Learns the usual cost of the way in use: the median of UM_CHOICE_RECENT bodies. The first bodies may touch memory for
 * the first time: the best of them counts. */
static void usual_learn(struct um_proto_choice_class *c, uint16_t sample)
{
    uint16_t *cost = &c->cost[c->way];
    if (c->adapts > 0) {
        c->adapts--;
        return;
    }
    c->told += c->told < UM_CHOICE_PROOF;
    if (c->told <= UM_CHOICE_TRIES) {
        *cost = *cost && *cost < sample ? *cost : sample;
        c->recently = 0;
        return;
    }
    c->recent[c->recently++] = sample;
    if (c->recently < UM_CHOICE_RECENT)
        return;
    c->recently = 0;
    *cost = median(c->recent, UM_CHOICE_RECENT);
    int limit = (c->cost[1 - c->way] - c->was) / 2;
    if (c->was && *cost > c->was + (limit > UM_MUCH ? limit : UM_MUCH) && c->left > UM_CHOICE_SOON) {
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

/* Returns the median cost of the last bodies of a trial: of all if it is short, of those behind the first
 * UM_CHOICE_ADAPT if it is long. */
static uint16_t trial_cost(const struct um_proto_choice_class *c)
{
    const unsigned first = c->tried > UM_CHOICE_ADAPT ? UM_CHOICE_ADAPT : 0;
    return median(c->sample + first, c->tried - first);
}

/*
 * True if the trial has failed. A short one fails if two bodies take longer than the way in use. A long one fails if
 * two of the first bodies, while caches adapt, take more than four times as long; if four take more than twice as long;
 * or if none of five takes less. The first trial fails only if three take more than twice as long.
 */
static bool trial_has_failed(const struct um_proto_choice_class *c)
{
    const uint16_t usual = c->cost[c->way];
    const bool is_first = !has_compared(c);
    if (!usual || c->tried < (is_first ? UM_CHOICE_TRIES : 2))
        return false;
    if (is_first)
        return trial_best(c) > usual + UM_OCTAVE;
    if (c->tried > c->tries / 2)
        return trial_best(c) > usual;
    return trial_best(c) > usual + (c->tried <= UM_CHOICE_ADAPT ? 2 * UM_OCTAVE : UM_OCTAVE);
}

/* Returns the interval until the next trial: so many times the present one, up to a limit. The first trials leave it as
 * it is: they say little, because memory was never touched and rings have not grown. */
static uint16_t later(const struct um_proto_choice_class *c, unsigned times, unsigned limit)
{
    if (c->trials < UM_CHOICE_FIRST)
        return c->interval;
    return (uint16_t)(c->interval * times < limit ? c->interval * times : limit);
}

/* Ends the trial, if it is whole or has failed: the better way is in use from now on. The clearer the difference, the
 * later the next trial; if the choice keeps changing, trials must still become rare. */
static void trial_end(struct um_proto_choice_class *c)
{
    const bool is_whole = c->tried + c->voided >= c->tries && c->tried > c->tries / 2;
    if (!is_whole && !trial_has_failed(c))
        return;
    const uint16_t here = c->cost[c->way], there = is_whole ? trial_cost(c) : trial_best(c);
    const bool is_better = here && there + UM_MARGIN < here;
    c->cost[1 - c->way] = there;
    c->trials += c->trials < UM_CHOICE_FIRST;
    if (c->trial < c->tries)
        c->left = c->interval;
    c->trial = c->tried = c->voided = 0;
    c->interval =
        later(c, there > here + UM_CLEARLY ? 4 : 2, there > here + UM_OCTAVE ? UM_CHOICE_LATEST : UM_CHOICE_LATE);
    c->was = is_better ? there : here;
    c->adapts = is_better ? 0 : UM_CHOICE_ADAPT;
    if (is_better) {
        c->way = 1 - c->way;
        c->told = 0;
        c->left = c->interval;
    }
}

/*
 * Too few bodies of a trial have told their cost: the other way could not be had. The next trial comes later, unless it
 * is one of the first ones. The very first trial goes on, if any of its bodies told its cost.
 */
static void trial_give_up(struct um_proto_choice_class *c)
{
    if (!has_compared(c) && c->tried > 0)
        return;
    if (has_compared(c) && c->trials < UM_CHOICE_FIRST)
        c->trials++;
    else if (c->interval < UM_CHOICE_LATE)
        c->interval = (uint16_t)(2 * c->interval);
    c->left = c->interval;
    c->adapts = UM_CHOICE_ADAPT;
}

/* One more body of the trial has told its cost, or will not tell it. */
static void trial_go_on(struct um_proto_choice_class *c)
{
    trial_end(c);
    if (c->trial > 0 && c->tried + c->voided == c->tries)
        trial_give_up(c);
}

void um_proto_choice_tell(struct um_proto_choice *choice, uint64_t len, unsigned way, uint64_t ns, uint64_t bytes)
{
    struct um_proto_choice_class *c = &choice->of[um_proto_choice_class(len)];
    if (bytes == 0)
        return;
    const uint16_t sample = log2_of(ns > UINT64_MAX >> 20 ? UINT64_MAX / bytes : (ns << 20) / bytes);
    if (way == c->way) {
        usual_learn(c, sample);
        const uint16_t here = c->cost[c->way], there = c->cost[1 - c->way];
        if (there && there + UM_MARGIN < here && c->told >= UM_CHOICE_PROOF && c->left > UM_CHOICE_SOON)
            c->left = UM_CHOICE_SOON; /* a trial decides, after what may have been an exception: caches adapt again */
    } else if (is_under_way(c)) {     /* else it is late, from the time when this way was in use */
        c->sample[c->tried++] = sample;
        trial_go_on(c);
    }
}

void um_proto_choice_void(struct um_proto_choice *choice, uint64_t len, unsigned way)
{
    struct um_proto_choice_class *c = &choice->of[um_proto_choice_class(len)];
    if (way != c->way && is_under_way(c)) {
        c->voided++;
        trial_go_on(c);
    }
}
