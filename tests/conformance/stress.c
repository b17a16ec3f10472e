/* Conformance: threads, many to one, every size, answers, lanes that end and begin again under load. */
#include "conform.h"

#include "base/atomic.h"

#include <pthread.h>
#include <sched.h>

enum { THREADS = 3, LANES = 4 };

struct sender {
    struct um_port *to;
    int id;
    int lives;   /* lanes opened one after the other */
    int records; /* in each */
    const char *wrong;
    pthread_t thread;
};

/* id (16 bits), life (16 bits), record (32 bits) */
static uint64_t number_of(int id, int life, int record)
{
    return (uint64_t)(unsigned)id << 48 | (uint64_t)(unsigned)life << 32 | (unsigned)record;
}

/* Mostly small, sometimes large, sometimes none: follows from the number. */
static uint32_t len_of(uint64_t number, uint32_t max)
{
    uint64_t x = (number + 1) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)((x >> 40) % ((x >> 60) == 0 ? max + 1 : (x >> 60) < 5 ? 1 : 300));
}

static uint8_t flags_of(uint64_t number)
{
    return number % 11 == 0 ? UM_FLAG_ACK : 0;
}

struct outcome {
    int answered;
    const char *wrong;
};

/* Takes answers; each one's status must be its token's negative. */
static void reap(struct um_lane *lane, struct outcome *out)
{
    struct um_answer answers[8];
    int n = machine->lane_reap(lane, answers, 8);
    if (n < 0)
        out->wrong = "a lane broke";
    for (int i = 0; i < n; i++, out->answered++)
        if (answers[i].status != -(int32_t)answers[i].token)
            out->wrong = "a wrong answer";
}

/* One lane from its opening to its close. Every 16th record asks for an answer (the receiver knows). */
static const char *live(struct um_link *link, const struct sender *s, int life)
{
    struct um_lane *lane;
    struct outcome out = {0};
    uint64_t end = now_ms() + 3 * (uint64_t)PATIENCE;
    int ret, asked = 0;
    while ((ret = machine->lane_open(link, &lane)) == -EAGAIN && now_ms() < end)
        sleep_us(10);
    if (ret)
        return "no lane could be opened";
    for (int i = 0; i < s->records && !out.wrong;) {
        uint64_t number = number_of(s->id, life, i);
        uint32_t len = len_of(number, machine->body_max);
        if (len > machine->lane_body_max(lane, len))
            return "the lane did not grow";
        if (asked - out.answered < UM_TOKENS)
            ret = message_try(lane, MESSAGE(number, .body_len = len, .flags = flags_of(number)));
        else
            ret = -EAGAIN;
        i += ret == 0;
        asked += ret == 0 && number % 16 == 0;
        reap(lane, &out);
        if (ret && ret != -EAGAIN)
            return "a claim failed";
        if (ret && now_ms() > end)
            return "a full lane does not drain";
        if (ret)
            sleep_us(0);
    }
    while (out.answered < asked && !out.wrong) {
        reap(lane, &out);
        if (now_ms() > end)
            return "an answer does not come";
        sleep_us(0);
    }
    machine->lane_close(lane);
    return out.wrong;
}

static void *sender_main(void *arg)
{
    struct sender *s = arg;
    struct um_port *port;
    struct um_link *link;
    struct um_port_config config = {.lanes_max = 1};
    struct um_addr addr = addr_of(s->to);
    if (machine->port_open(&config, &port) != 0)
        return "no port";
    if (machine->link_open(port, &addr, &link) != 0)
        return "no link";
    for (int life = 0; life < s->lives && !s->wrong; life++)
        s->wrong = live(link, s, life);
    machine->link_close(link);
    machine->port_close(port);
    return (void *)s->wrong;
}

/* The receiver's view of one lane. */
struct view {
    uint64_t next;
    bool known;
    uint32_t asked;
};

static const char *take(const struct um_record *rec, uint32_t body_max)
{
    struct view *view = rec->rx->user;
    uint64_t number = message_number(rec);
    if (!view->known)
        view->next = number;
    view->known = true;
    if (number != view->next++)
        return "a record is missing, double, or of another lane";
    if (!message_is(rec, MESSAGE(number, .body_len = len_of(number, body_max), .flags = flags_of(number))))
        return "a record came damaged";
    if (number % 16 == 0) {
        uint16_t token = (uint16_t)(view->asked++ % UM_TOKENS);
        machine->answer(rec->rx, token, -(int32_t)token);
    }
    return NULL;
}

/* Receives until this number of lanes has left. */
static const char *receive_all(struct um_port *port, int lanes, int records)
{
    uint64_t end = now_ms() + 3 * (uint64_t)PATIENCE;
    const char *wrong = NULL;
    for (int left = 0; left < lanes && !wrong;) {
        struct um_record rec;
        if (!poll_now(port, &rec)) {
            if (now_ms() > end)
                return "records do not come";
            sleep_us(0);
            continue;
        }
        if (rec.op == UM_REC_JOINED) {
            rec.rx->user = calloc(1, sizeof(struct view));
        } else if (rec.op == UM_REC_LEFT) {
            struct view *view = rec.rx->user;
            if (rec.len != 0 || (uint32_t)view->next != (uint32_t)records)
                wrong = "a lane left in disorder";
            free(view);
            left++;
        } else {
            wrong = take(&rec, machine->body_max);
        }
        machine->release(port, &rec);
    }
    return wrong;
}

static void run(uint32_t lanes_max, int lives, int records)
{
    struct um_port *to = port_new(lanes_max);
    struct sender senders[THREADS];
    for (int i = 0; i < THREADS; i++) {
        senders[i] = (struct sender){.to = to, .id = i, .lives = lives, .records = records};
        assert_int_equal(pthread_create(&senders[i].thread, NULL, sender_main, &senders[i]), 0);
    }
    const char *wrong = receive_all(to, THREADS * lives, records);
    for (int i = 0; i < THREADS; i++) {
        void *sender_wrong;
        pthread_join(senders[i].thread, &sender_wrong);
        if (sender_wrong)
            fail_msg("sender: %s", (const char *)sender_wrong);
    }
    if (wrong)
        fail_msg("receiver: %s", wrong);
    machine->port_close(to);
}

static void several_threads_send_to_one(void **state)
{
    (void)state;
    run(0, 1, 30000 * effort);
}

static void lanes_come_and_go_under_load(void **state)
{
    (void)state;
    run(LANES, 300 * effort, 40);
}

static void more_senders_than_lanes_take_turns(void **state)
{
    (void)state;
    run(2, 200 * effort, 60);
}

/* ---- lanes that are silent for long ---- */

enum { MANY = 24 };

struct silence {
    struct um_port *from, *to;
    struct path path[MANY];
    uint32_t received; /* by the main thread */
    int rounds;
};

static void silence_open(struct silence *s, int rounds)
{
    *s = (struct silence){.from = port_new(0), .to = port_new(MANY), .rounds = rounds * effort};
    for (int i = 0; i < MANY; i++)
        s->path[i] = path_joined(s->from, s->to);
}

static void silence_close(struct silence *s)
{
    for (int i = 0; i < MANY; i++)
        path_end(&s->path[i]);
    machine->port_close(s->to);
    machine->port_close(s->from);
}

static void silent_lanes_are_heard_again(void **state)
{
    (void)state;
    struct silence s;
    struct um_record rec;
    silence_open(&s, 0);
    for (uint64_t round = 0; round < 6; round++) {
        for (int i = 0; i < 10000; i++)
            assert_int_equal(machine->poll(s.to, &rec), 0);
        for (int i = 0; i < MANY; i += 1 + (int)round) {
            message_send(s.path[i].lane, MESSAGE(round, .body_len = 20));
            message_send(s.path[i].lane, MESSAGE(round + 1));
            expect_message(s.to, s.path[i].rx, MESSAGE(round, .body_len = 20));
            expect_message(s.to, s.path[i].rx, MESSAGE(round + 1));
        }
    }
    silence_close(&s);
}

/*
 * Sends once on each lane, after random delays, again and again. Some delays end just when the receiver, which has
 * found the lanes idle for long, stops polling them.
 */
static void *seldom_sender(void *arg)
{
    struct silence *s = arg;
    uint64_t seed = 6;
    for (int i = 0; i < s->rounds; i++) {
        uint64_t end = now_ms() + PATIENCE;
        for (uint32_t n = chance(&seed, 6000); n > 0; n--)
            um_cpu_relax();
        for (int k = 0; k < MANY; k++)
            if (message_try(s->path[k].lane, MESSAGE((uint64_t)i)) != 0)
                return "a claim failed";
        while (um_load_acquire_u32(&s->received) != (uint32_t)(i + 1) * MANY) {
            if (now_ms() > end)
                return "a record was not heard";
            sched_yield();
        }
    }
    return NULL;
}

static void records_for_lanes_that_just_fell_silent_are_heard(void **state)
{
    (void)state;
    struct silence s;
    pthread_t thread;
    void *wrong;
    uint32_t empty = 0, got = 0;
    silence_open(&s, 4000);
    assert_int_equal(pthread_create(&thread, NULL, seldom_sender, &s), 0);
    uint64_t end = now_ms() + 2 * (uint64_t)PATIENCE;
    while (got < (uint32_t)s.rounds * MANY && (empty % 1024 || now_ms() < end)) {
        struct um_record rec;
        if (!machine->poll(s.to, &rec)) {
            if (++empty % 1024 == 0)
                sched_yield(); /* where there is but one core */
            continue;
        }
        end = got % 1024 ? end : now_ms() + 2 * (uint64_t)PATIENCE;
        assert_true(rec.op == 1 && message_is(&rec, MESSAGE(got / MANY)));
        machine->release(s.to, &rec);
        um_store_release_u32(&s.received, ++got);
    }
    pthread_join(thread, &wrong);
    if (wrong)
        fail_msg("%s", (const char *)wrong);
    silence_close(&s);
}

GROUP(stress, T(several_threads_send_to_one), T(lanes_come_and_go_under_load), T(more_senders_than_lanes_take_turns),
      T(silent_lanes_are_heard_again), T(records_for_lanes_that_just_fell_silent_are_heard));
