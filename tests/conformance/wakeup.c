/*
 * Conformance: no wake-up is lost. One thread sleeps in poll(2), another one has news for it after random delays; a
 * sleep that does not end is a lost wake-up.
 */
#include "conform.h"

#include "base/atomic.h"

#include <pthread.h>

enum { LOST = 10 * SEC };

/* What the two threads share. */
struct duel {
    struct um_port *a, *b;
    struct path ab; /* a sends, b receives */
    struct path ba;
    int rounds;
    const char *wrong;
    uint32_t done;   /* rounds that are over */
    uint32_t asleep; /* 1 while the sender is in nap() */
    int slept;
};

static void delay(uint64_t *seed)
{
    switch (chance(seed, 4)) {
    case 0:
        break;
    case 1:
        sleep_us(chance(seed, 60));
        break;
    default:
        for (uint32_t n = chance(seed, 3000); n > 0; n--)
            um_cpu_relax();
    }
}

static void duel_open(struct duel *d, int rounds)
{
    *d = (struct duel){.a = port_new(0), .b = port_new(0), .rounds = rounds * effort};
    d->ab = path_joined(d->a, d->b);
    d->ba = path_joined(d->b, d->a);
}

static void duel_close(struct duel *d)
{
    path_end(&d->ab);
    path_end(&d->ba);
    machine->port_close(d->b);
    machine->port_close(d->a);
}

static void duel_run(struct duel *d, void *(*other)(void *), void *(*self)(void *))
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, other, d), 0);
    const char *wrong = self(d);
    void *other_wrong;
    pthread_join(thread, &other_wrong);
    if (wrong || other_wrong)
        fail_msg("%s", wrong ? wrong : (const char *)other_wrong);
}

/* Sleeps once, if there is nothing to do. False: nothing woke the port for LOST milliseconds. */
static bool nap(struct um_port *port, int *slept)
{
    if (machine->arm(port) != 0)
        return true;
    ++*slept;
    bool woken = is_readable(machine->wait_fd(port), LOST);
    machine->disarm(port);
    return woken;
}

/* Takes the next record, sleeping until it comes. NULL, or what went wrong. */
static const char *take_sleeping(struct um_port *port, const struct message *msg, int *slept)
{
    struct um_record rec;
    while (!poll_now(port, &rec))
        if (!nap(port, slept))
            return "a wake-up was lost: a record came to a port that slept";
    bool good = rec.op < UM_OPCODE_MACHINE && message_is(&rec, msg);
    machine->release(port, &rec);
    return good ? NULL : "a wrong record";
}

static const char *send_spinning(struct um_lane *lane, const struct message *msg)
{
    uint64_t end = now_ms() + PATIENCE;
    int ret;
    while ((ret = message_try(lane, msg)) == -EAGAIN)
        if (now_ms() > end)
            return "a full lane does not drain";
    return ret ? "a lane broke" : NULL;
}

static void round_is_done(struct duel *d)
{
    um_store_release_u32(&d->done, d->done + 1);
}

/* Waits until the other thread has finished this number of rounds. Returns NULL, or what went wrong. */
static const char *rounds_await(struct duel *d, uint32_t rounds)
{
    uint64_t end = now_ms() + PATIENCE;
    while (um_load_acquire_u32(&d->done) < rounds) {
        if (now_ms() > end)
            return "the other thread does not go on";
        sleep_us(0);
    }
    return NULL;
}

/* ---- records ---- */

static void *records_sender(void *arg)
{
    struct duel *d = arg;
    uint64_t seed = 1;
    const char *wrong = NULL;
    for (int i = 0; i < d->rounds && !wrong; i++) {
        if (chance(&seed, 4)) /* usually one at a time, so that the receiver sleeps */
            wrong = rounds_await(d, (uint32_t)i);
        delay(&seed);
        if (!wrong)
            wrong = send_spinning(d->ab.lane, MESSAGE((uint64_t)i, .body_len = (uint32_t)i % 90));
    }
    return (void *)wrong;
}

static void *records_receiver(void *arg)
{
    struct duel *d = arg;
    const char *wrong = NULL;
    for (int i = 0; i < d->rounds && !wrong; i++) {
        wrong = take_sleeping(d->b, MESSAGE((uint64_t)i, .body_len = (uint32_t)i % 90), &d->slept);
        round_is_done(d);
    }
    return (void *)wrong;
}

static void a_sleeper_misses_no_record(void **state)
{
    (void)state;
    struct duel d;
    duel_open(&d, 5000);
    duel_run(&d, records_sender, records_receiver);
    assert_true(d.slept > d.rounds / 20);
    duel_close(&d);
}

/* ---- both sleep ---- */

static const char *ping_pong(struct duel *d, bool first)
{
    struct um_port *port = first ? d->a : d->b;
    struct um_lane *lane = first ? d->ab.lane : d->ba.lane;
    const char *wrong = NULL;
    int slept = 0;
    for (int i = 0; i < d->rounds && !wrong; i++) {
        if (first)
            wrong = send_spinning(lane, MESSAGE((uint64_t)i));
        if (!wrong)
            wrong = take_sleeping(port, MESSAGE((uint64_t)i), &slept);
        if (!first && !wrong)
            wrong = send_spinning(lane, MESSAGE((uint64_t)i));
    }
    return wrong;
}

static void *pong(void *arg)
{
    return (void *)ping_pong(arg, false);
}

static void *ping(void *arg)
{
    return (void *)ping_pong(arg, true);
}

static void two_sleepers_play_ping_pong(void **state)
{
    (void)state;
    struct duel d;
    duel_open(&d, 5000);
    duel_run(&d, pong, ping);
    duel_close(&d);
}

/* ---- answers ---- */

static void *answers_giver(void *arg)
{
    struct duel *d = arg;
    uint64_t seed = 2, end = now_ms() + PATIENCE + (uint64_t)d->rounds;
    for (int got = 0; got < d->rounds;) {
        struct um_record rec;
        if (now_ms() > end)
            return "records do not come";
        if (!poll_now(d->b, &rec)) {
            sleep_us(0);
            continue;
        }
        machine->release(d->b, &rec);
        delay(&seed);
        machine->answer(d->ab.rx, (uint16_t)(got % UM_TOKENS), got);
        got++;
    }
    return NULL;
}

static void *answers_taker(void *arg)
{
    struct duel *d = arg;
    machine->lane_watch(d->ab.lane, true);
    for (int i = 0; i < d->rounds; i++) {
        struct um_answer answer;
        const char *wrong = send_spinning(d->ab.lane, MESSAGE((uint64_t)i));
        if (wrong)
            return (void *)wrong;
        while (machine->lane_reap(d->ab.lane, &answer, 1) == 0) {
            machine->lane_consumed(d->ab.lane);
            if (!nap(d->a, &d->slept))
                return "a wake-up was lost: an answer came to a port that slept";
        }
        if (answer.status != i || answer.token != (uint32_t)i % UM_TOKENS)
            return "a wrong answer";
    }
    machine->lane_watch(d->ab.lane, false);
    return NULL;
}

static void a_sleeper_misses_no_answer(void **state)
{
    (void)state;
    struct duel d;
    duel_open(&d, 5000);
    duel_run(&d, answers_giver, answers_taker);
    assert_true(d.slept > d.rounds / 20);
    duel_close(&d);
}

/* ---- consumption ---- */

static void *consumer(void *arg)
{
    struct duel *d = arg;
    uint64_t seed = 3, end = now_ms() + PATIENCE + (uint64_t)d->rounds;
    for (int got = 0; got < d->rounds;) {
        struct um_record rec;
        if (now_ms() > end)
            return "records do not come";
        if (!poll_now(d->b, &rec)) {
            sleep_us(0);
            continue;
        }
        delay(&seed);
        machine->release(d->b, &rec);
        got++;
    }
    return NULL;
}

static void *consumption_awaiter(void *arg)
{
    struct duel *d = arg;
    machine->lane_watch(d->ab.lane, true);
    for (int i = 0; i < d->rounds; i++) {
        const char *wrong = send_spinning(d->ab.lane, MESSAGE((uint64_t)i, .flags = UM_FLAG_ACK));
        if (wrong)
            return (void *)wrong;
        while (machine->lane_consumed(d->ab.lane) != machine->lane_committed(d->ab.lane))
            if (!nap(d->a, &d->slept))
                return "a wake-up was lost: a record was consumed while the port slept";
    }
    machine->lane_watch(d->ab.lane, false);
    return NULL;
}

static void a_sleeper_misses_no_consumption(void **state)
{
    (void)state;
    struct duel d;
    duel_open(&d, 5000);
    duel_run(&d, consumer, consumption_awaiter);
    assert_true(d.slept > d.rounds / 20);
    duel_close(&d);
}

/* ---- space in a full lane; the receiver sleeps too ---- */

/* Reads nothing until the sender sleeps at the full lane, or has sent all. */
static const char *stay_away(struct duel *d)
{
    uint64_t end = now_ms() + PATIENCE;
    while (!um_load_acquire_u32(&d->asleep) && !um_load_acquire_u32(&d->done)) {
        if (now_ms() > end)
            return "the sender neither sleeps at a full lane nor goes on";
        sleep_us(0);
    }
    return NULL;
}

static void *space_receiver(void *arg)
{
    struct duel *d = arg;
    uint64_t seed = 4;
    const char *wrong = NULL;
    int slept = 0;
    for (int i = 0; i < d->rounds && !wrong; i++) {
        if (chance(&seed, 200) == 0)
            wrong = stay_away(d);
        if (!wrong)
            wrong = take_sleeping(d->b, MESSAGE((uint64_t)i, .body_len = (uint32_t)i % 700), &slept);
    }
    return (void *)wrong;
}

static void *space_sender(void *arg)
{
    struct duel *d = arg;
    machine->lane_watch(d->ab.lane, true);
    for (int i = 0; i < d->rounds; i++) {
        while (true) {
            machine->lane_consumed(d->ab.lane); /* before the claim: credit that comes later prevents sleep */
            if (message_try(d->ab.lane, MESSAGE((uint64_t)i, .body_len = (uint32_t)i % 700)) == 0)
                break;
            um_store_release_u32(&d->asleep, 1);
            bool woken = nap(d->a, &d->slept);
            um_store_release_u32(&d->asleep, 0);
            if (!woken)
                return "a wake-up was lost: a full lane was drained while its sender slept";
        }
    }
    machine->lane_watch(d->ab.lane, false);
    round_is_done(d);
    return NULL;
}

static void a_sleeper_misses_no_space(void **state)
{
    (void)state;
    struct duel d;
    duel_open(&d, 60000);
    duel_run(&d, space_receiver, space_sender);
    assert_true(d.slept > 10);
    duel_close(&d);
}

/* ---- lanes that come and go ---- */

static void *visitor(void *arg)
{
    struct duel *d = arg;
    uint64_t seed = 5, end = now_ms() + PATIENCE + (uint64_t)d->rounds;
    for (int i = 0; i < d->rounds; i++) {
        struct um_lane *lane;
        int ret;
        while ((ret = machine->lane_open(d->ab.link, &lane)) == -EAGAIN)
            if (now_ms() > end)
                return "no lane becomes free";
        if (ret)
            return "a lane cannot be opened";
        delay(&seed);
        machine->lane_close(lane);
        delay(&seed);
    }
    return NULL;
}

static void *host(void *arg)
{
    struct duel *d = arg;
    for (int left = 0; left < d->rounds;) {
        struct um_record rec;
        if (!poll_now(d->b, &rec)) {
            if (!nap(d->b, &d->slept))
                return "a wake-up was lost: a lane came or went while the port slept";
            continue;
        }
        left += rec.op == UM_REC_LEFT;
        if (rec.op == UM_REC_LEFT && rec.len != 0)
            return "a lane left in disorder";
        machine->release(d->b, &rec);
    }
    return NULL;
}

static void a_sleeper_misses_no_lane(void **state)
{
    (void)state;
    struct duel d;
    duel_open(&d, 3000);
    duel_run(&d, visitor, host);
    duel_close(&d);
}

GROUP(wakeup, T(a_sleeper_misses_no_record), T(two_sleepers_play_ping_pong), T(a_sleeper_misses_no_answer),
      T(a_sleeper_misses_no_consumption), T(a_sleeper_misses_no_space), T(a_sleeper_misses_no_lane));
