/*
 * The machine over another provider: TCP connections that break while both ports live.
 *
 * libfabric's tcp reports a message as sent when the kernel has it, and connects anew without an error: data that
 * neither side has read are lost. Whatever is lost, nothing may wait for ever, come twice or come out of order. The
 * ports are not settled here (net_settled.c): each call drives its own port alone, so that messages are on their way.
 */
#include "conform.h"

#include "connections.h"

#include "machine/net/net.h"

enum { FIRST_FD = 3 };

/* A port with a lane to the other one. */
struct side {
    struct um_port *port;
    struct um_link *link;
    struct um_lane *lane;
    struct um_rx *rx;               /* of the lane from the other side */
    uint32_t joined, left;          /* records of that kind that its poll offered */
    uint64_t sent, got, given, had; /* messages sent and got; answers given and got */
};

static const struct um_machine *settled;
static struct side a, b;

static int answer_all(struct side *s)
{
    int ret = 0;
    for (; s->given < s->got && (ret = machine->answer(s->rx, UM_TOKENS + (uint32_t)s->given, 7)) == 0; s->given++)
        ;
    return ret;
}

static uint32_t length_of(uint64_t number)
{
    const uint32_t lengths[] = {0, 0, 8, 100, 1000, 4096, machine->body_max - 64};
    return lengths[number * 7 / 3 % (sizeof(lengths) / sizeof(lengths[0]))];
}

/* Polls once. takes: a message is taken, and answered; otherwise it stays. */
static void look(struct side *s, bool takes)
{
    struct um_record rec;
    machine->tick(s->port);
    if (s->rx)
        (void)answer_all(s);
    if (!machine->poll(s->port, &rec))
        return;
    if (rec.op == UM_REC_JOINED) {
        s->joined++;
        s->rx = s->rx ? s->rx : rec.rx;
    } else if (rec.op == UM_REC_LEFT) {
        assert_int_equal(rec.len, 0);
        s->left++;
        s->rx = s->rx == rec.rx ? NULL : s->rx;
    } else if (!takes) {
        return;
    } else if (rec.rx == s->rx) {
        if (message_number(&rec) != s->got || !message_is(&rec, MESSAGE(s->got, .body_len = length_of(s->got))))
            fail_msg("message %llu came instead of %llu", (unsigned long long)message_number(&rec),
                     (unsigned long long)s->got);
        s->got++;
    }
    machine->release(s->port, &rec);
}

static void reap(struct side *s)
{
    struct um_answer answers[16];
    const int count = machine->lane_reap(s->lane, answers, 16);
    assert_true(count >= 0);
    for (int i = 0; i < count; i++, s->had++)
        assert_int_equal(answers[i].token, UM_TOKENS + s->had);
}

static int send_one(struct side *s)
{
    int ret = message_try(s->lane, MESSAGE(s->sent, .body_len = length_of(s->sent)));
    s->sent += ret == 0;
    return ret;
}

/* Lets both sides look until the condition holds. */
#define UNTIL(condition)                                                                                               \
    do {                                                                                                               \
        for (uint64_t until_end = now_ms() + PATIENCE; !(condition);) {                                                \
            look(&a, true);                                                                                            \
            look(&b, true);                                                                                            \
            if (now_ms() > until_end)                                                                                  \
                fail_msg("it never was so: %s", #condition);                                                           \
        }                                                                                                              \
    } while (0)

static void side_link(struct side *s, const struct side *to)
{
    struct um_addr addr = addr_of(to->port);
    assert_int_equal(machine->link_open(s->port, &addr, &s->link), 0);
    UNTIL(machine->lane_open(s->link, &s->lane) == 0);
}

static void begin(void)
{
    settled = machine;
    machine = &um_machine_net;
    a = (struct side){.port = port_new(0)};
    b = (struct side){.port = port_new(0)};
    side_link(&a, &b);
    side_link(&b, &a);
    UNTIL(a.rx && b.rx);
}

static void end(void)
{
    machine->lane_close(a.lane);
    machine->lane_close(b.lane);
    machine->link_close(a.link);
    machine->link_close(b.link);
    UNTIL(a.left == a.joined && b.left == b.joined);
    UNTIL(!((struct um_net_port *)a.port)->lanes.end && !((struct um_net_port *)b.port)->lanes.end);
    machine->port_close(b.port);
    machine->port_close(a.port);
    machine = settled;
}

static void lose(void)
{
    assert_true(connections_break(FIRST_FD, BREAK_DISCONNECT) > 0);
}

/* ---- at any moment ---- */

static void exchange(uint64_t count, uint32_t breaks, enum break_how how)
{
    uint64_t seed = count + breaks;
    uint64_t next = count / (breaks + 1), moved = 0, since = now_ms();
    begin();
    while (a.had < count || b.had < count || a.got < count || b.got < count) {
        struct side *s = chance(&seed, 2) ? &a : &b;
        if (s->sent < count && chance(&seed, 2))
            (void)send_one(s);
        if (a.sent + b.sent > 2 * next) {
            (void)connections_break(FIRST_FD, how);
            next += count / (breaks + 1);
        }
        look(s, chance(&seed, 4));
        reap(s);
        const uint64_t all = a.sent + b.sent + a.got + b.got + a.had + b.had;
        if (all != moved)
            since = now_ms();
        moved = all;
        if (now_ms() > since + PATIENCE)
            fail_msg("nothing moves: sent %llu %llu, got %llu %llu, answers %llu %llu", (unsigned long long)a.sent,
                     (unsigned long long)b.sent, (unsigned long long)a.got, (unsigned long long)b.got,
                     (unsigned long long)a.had, (unsigned long long)b.had);
    }
    end();
}

static void no_message_is_lost_with_a_connection(void **state)
{
    (void)state;
    exchange(3000, 12 * (uint32_t)effort, BREAK_DISCONNECT);
}

static void none_is_lost_with_one_that_is_shut(void **state)
{
    (void)state;
    exchange(1000, 4 * (uint32_t)effort, BREAK_SHUT);
}

/* ---- each kind of message ---- */

static void a_record_that_was_lost_comes(void **state)
{
    (void)state;
    begin();
    for (int i = 0; i < 5; i++)
        assert_int_equal(send_one(&a), 0);
    lose();
    (void)send_one(&a);
    UNTIL(b.got == a.sent);
    (void)send_one(&a);
    UNTIL(b.got == a.sent);
    end();
}

static void a_first_contact_that_was_lost_is_made(void **state)
{
    (void)state;
    begin();
    for (int answered = 0; answered < 2; answered++) {
        const uint32_t joined = b.joined;
        struct um_addr addr = addr_of(b.port);
        struct um_link *link;
        struct um_lane *lane;
        assert_int_equal(machine->link_open(a.port, &addr, &link), 0);
        assert_int_equal(machine->lane_open(link, &lane), -EAGAIN);
        for (int i = 0; i < 1000 && answered; i++)
            um_net_drive((struct um_net_port *)b.port); /* b's GRANT is lost */
        lose();
        UNTIL(machine->lane_open(link, &lane) == 0);
        assert_int_equal(message_try(lane, MESSAGE(1)), 0);
        UNTIL(machine->lane_consumed(lane) == 1);
        machine->lane_close(lane);
        machine->link_close(link);
        UNTIL(b.left > 0 && b.left == b.joined - 1);
        assert_int_equal(b.joined, joined + 1);
    }
    end();
}

static void credit_that_was_lost_is_told_again(void **state)
{
    (void)state;
    begin();
    for (int hold = 0; hold < 3; hold++) {
        for (int i = 0; i < 40; i++)
            assert_int_equal(send_one(&a), 0);
        while (b.got < a.sent)
            look(&b, true);
        machine->rx_hold(b.rx, hold == 1);
        um_net_credit_due((struct um_net_port *)b.port);
        lose();
        UNTIL(machine->lane_consumed(a.lane) == machine->lane_committed(a.lane));
        assert_int_equal(((struct um_net_lane *)a.lane)->held, hold == 1);
        reap(&a);
        machine->rx_hold(b.rx, false);
        UNTIL(!((struct um_net_lane *)a.lane)->held);
        UNTIL((reap(&a), a.had == a.sent));
    }
    end();
}

static void answers_that_were_lost_come(void **state)
{
    (void)state;
    begin();
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 20; i++)
            assert_int_equal(send_one(&a), 0);
        while (b.got < a.sent)
            look(&b, true);
        lose();
        UNTIL((reap(&a), a.had == a.sent));
    }
    end();
}

/* Before the receiver knows that an answer was taken, it has places for 960. */
static void that_answers_were_taken_is_told_again(void **state)
{
    (void)state;
    begin();
    while (b.got < UM_ANSWERS) {
        if (a.sent < UM_ANSWERS)
            (void)send_one(&a);
        look(&a, true);
        look(&b, true);
    }
    UNTIL(((struct um_net_lane *)a.lane)->answers_in == UM_ANSWERS - UM_TOKENS);
    while (a.had < UM_ANSWERS - UM_TOKENS)
        reap(&a);
    lose();
    UNTIL(answer_all(&b) == 0 && b.given == UM_ANSWERS);
    UNTIL((reap(&a), a.had == a.sent));
    end();
}

static void the_end_of_a_lane_that_was_lost_is_told_again(void **state)
{
    (void)state;
    for (int told = 0; told < 2; told++) {
        begin();
        (void)send_one(&a);
        machine->lane_close(a.lane);
        for (uint64_t until = now_ms() + PATIENCE; told && !b.left && now_ms() < until;)
            look(&b, true); /* then b's BYE is lost */
        lose();
        UNTIL(b.left == 1 && ((struct um_net_port *)a.port)->lanes.end == 0);
        assert_int_equal(b.got, 1);
        struct um_addr addr = addr_of(b.port);
        machine->link_close(a.link);
        assert_int_equal(machine->link_open(a.port, &addr, &a.link), 0);
        UNTIL(machine->lane_open(a.link, &a.lane) == 0);
        end();
    }
}

static void a_refusal_that_was_lost_is_told_again(void **state)
{
    (void)state;
    struct um_slot slot;
    for (int closed = 0; closed < 2; closed++) {
        begin();
        machine->rx_refuse(b.rx);
        if (!closed)
            lose();
        int ret = 0;
        for (uint64_t until = now_ms() + PATIENCE; ret != -EPIPE && now_ms() < until;) {
            look(&a, true);
            machine->tick(b.port);
            ret = machine->claim(a.lane, 0, &slot);
            if (ret == 0)
                machine->abort(a.lane, &slot);
        }
        assert_int_equal(ret, -EPIPE);
        machine->lane_close(a.lane);
        if (closed)
            lose(); /* b has not received CLOSE */
        machine->link_close(a.link);
        struct um_record rec = {0};
        for (uint64_t until = now_ms() + PATIENCE; ((struct um_net_port *)b.port)->rxs.end && now_ms() < until;) {
            machine->tick(a.port);
            machine->tick(b.port);
            if (machine->poll(b.port, &rec))
                machine->release(b.port, &rec);
        }
        assert_int_equal(rec.op, UM_REC_LEFT);
        assert_int_equal(((struct um_net_port *)b.port)->rxs.end, 0);
        machine->lane_close(b.lane);
        machine->link_close(b.link);
        UNTIL(a.left == 1);
        machine->port_close(b.port);
        machine->port_close(a.port);
        machine = settled;
    }
}

static void a_port_that_closes_still_sends_what_was_lost(void **state)
{
    (void)state;
    begin();
    for (int i = 0; i < 5; i++)
        assert_int_equal(send_one(&a), 0);
    lose();
    machine->lane_close(a.lane);
    machine->link_close(a.link);
    UNTIL(b.got == a.sent && b.left == 1);
    machine->lane_close(b.lane);
    machine->link_close(b.link);
    UNTIL(a.left == 1);
    machine->port_close(a.port);
    machine->port_close(b.port);
    machine = settled;
}

GROUP(net_broken, T(a_record_that_was_lost_comes), T(a_first_contact_that_was_lost_is_made),
      T(credit_that_was_lost_is_told_again), T(answers_that_were_lost_come), T(that_answers_were_taken_is_told_again),
      T(the_end_of_a_lane_that_was_lost_is_told_again), T(a_refusal_that_was_lost_is_told_again),
      T(a_port_that_closes_still_sends_what_was_lost), T(no_message_is_lost_with_a_connection),
      T(none_is_lost_with_one_that_is_shut));
