/* Conformance: lanes serve one sender after the other, and nothing of one is taken for the other's. */
#include "conform.h"

#include "base/atomic.h"

enum { SENDERS = 12, LANES = 4 };

/* One life of a lane: its use by one sender. The upper half of a message's number is that of the life. */
struct life {
    struct path path;
    uint32_t number;
    uint32_t sent;
    bool open, begun;
};

/* The receiver's view of one life. */
struct view {
    uint32_t number;
    uint32_t got;
    bool known;
};

static uint32_t totals[1 << 20]; /* records sent, by life */

static uint32_t len_of(uint64_t number)
{
    return (uint32_t)(number * 131 % 400);
}

/* A progress word is zero when a life begins, whatever the life before left there. Leaves another value. */
static void words_begin(uint64_t *own)
{
    assert_int_equal(um_load_relaxed_u64(own), 0);
    um_store_relaxed_u64(own, UINT64_MAX);
}

static void life_send(struct life *life)
{
    struct um_progress_words *words = machine->lane_progress ? machine->lane_progress(life->path.lane) : NULL;
    for (int i = 0; i < UM_PROGRESS_WORDS && life->sent == 0 && !life->begun && words; i++)
        words_begin(&words[i].sender);
    life->begun = true;
    uint64_t number = (uint64_t)life->number << 32 | life->sent;
    if (message_try(life->path.lane, MESSAGE(number, .body_len = len_of(number))) == 0)
        life->sent++;
}

static void life_close(struct life *life)
{
    totals[life->number] = life->sent;
    path_close(&life->path);
    life->open = false;
}

static void view_take(struct um_rx *rx, const struct um_record *rec)
{
    struct view *view = rx->user;
    uint64_t number = message_number(rec);
    assert_non_null(view);
    struct um_progress_words *words = machine->rx_progress ? machine->rx_progress(rx) : NULL;
    for (int i = 0; i < UM_PROGRESS_WORDS && !view->known && words; i++)
        words_begin(&words[i].receiver);
    if (!view->known)
        view->number = (uint32_t)(number >> 32);
    view->known = true;
    assert_int_equal(number, (uint64_t)view->number << 32 | view->got);
    assert_true(message_is(rec, MESSAGE(number, .body_len = len_of(number))));
    view->got++;
}

/* Takes one record, and counts lives that ended. False: nothing came. */
static bool receive(struct um_port *port, uint32_t *ended)
{
    struct um_record rec;
    if (!poll_now(port, &rec))
        return false;
    if (rec.op == UM_REC_JOINED) {
        assert_null(rec.rx->user);
        rec.rx->user = test_calloc(1, sizeof(struct view));
    } else if (rec.op == UM_REC_LEFT) {
        struct view *view = rec.rx->user;
        assert_int_equal(rec.len, 0);
        if (view->known)
            assert_int_equal(view->got, totals[view->number]);
        test_free(view);
        ++*ended;
    } else {
        view_take(rec.rx, &rec);
    }
    machine->release(port, &rec);
    return true;
}

static void lives_random(uint64_t seed, int steps)
{
    struct um_port *from[SENDERS], *to = port_new(LANES);
    struct life life[SENDERS] = {0};
    uint32_t born = 0, ended = 0;
    struct um_addr addr = addr_of(to);
    for (int i = 0; i < SENDERS; i++)
        from[i] = port_new(2);
    for (int step = 0; step < steps; step++) {
        int i = (int)chance(&seed, SENDERS);
        uint32_t what = chance(&seed, 100);
        if (!life[i].open && what < 60) {
            life[i].path = (struct path){.from = from[i], .to = to};
            assert_int_equal(machine->link_open(from[i], &addr, &life[i].path.link), 0);
            int ret = lane_open_now(life[i].path.link, &life[i].path.lane);
            assert_true(ret == 0 || ret == -EAGAIN);
            if (ret)
                machine->link_close(life[i].path.link);
            else
                life[i] = (struct life){.path = life[i].path, .number = born++, .open = true};
        } else if (life[i].open && what < 50) {
            for (uint32_t n = chance(&seed, 8); n > 0; n--)
                life_send(&life[i]);
        } else if (life[i].open && what < 65) {
            life_close(&life[i]);
        } else {
            for (uint32_t n = chance(&seed, 20); n > 0 && receive(to, &ended); n--)
                ;
        }
        if (what == 99)
            machine->tick(to);
    }
    for (int i = 0; i < SENDERS; i++)
        if (life[i].open)
            life_close(&life[i]);
    for (int empty = 0; empty < 5; empty++)
        while (receive(to, &ended))
            ;
    assert_int_equal(ended, born);
    assert_true(born > (uint32_t)steps / 100);
    for (int i = 0; i < SENDERS; i++)
        machine->port_close(from[i]);
    machine->port_close(to);
}

static void thousands_of_senders_share_a_few_lanes(void **state)
{
    (void)state;
    for (int i = 0; i < effort; i++)
        lives_random((uint64_t)i, 60000);
}

static void one_lane_serves_thousands_of_senders(void **state)
{
    (void)state;
    struct um_port *a = port_new(0), *b = port_new(1);
    uint64_t number = 0;
    for (int round = 0; round < 4000; round++) {
        struct path p = path_open(a, b);
        for (int i = 0; i < round % 5; i++, number++)
            message_send(p.lane, MESSAGE(number, .body_len = len_of(number)));
        path_close(&p);
        number -= (uint64_t)(round % 5);
        p.rx = expect_joined(b, a);
        for (int i = 0; i < round % 5; i++, number++)
            expect_message(b, p.rx, MESSAGE(number, .body_len = len_of(number)));
        expect_left(b, p.rx, 0);
    }
    machine->port_close(b);
    machine->port_close(a);
}

static void a_lane_used_by_different_ports_names_each(void **state)
{
    (void)state;
    enum { PORTS = 20 };
    struct um_port *from[PORTS], *to = port_new(1);
    for (int i = 0; i < PORTS; i++)
        from[i] = port_new(2);
    for (int round = 0; round < 200; round++) {
        struct path p = path_joined(from[round * 7 % PORTS], to);
        path_end(&p);
    }
    for (int i = 0; i < PORTS; i++)
        machine->port_close(from[i]);
    machine->port_close(to);
}

static void a_grown_lane_begins_small_again(void **state)
{
    (void)state;
    struct um_port *a = port_new(0), *b = port_new(1);
    uint32_t small = 0;
    for (int round = 0; round < 300; round++) {
        struct path p = path_joined(a, b);
        uint32_t max = machine->lane_body_max(p.lane, 0);
        assert_true(round == 0 || max == small);
        small = max;
        uint64_t sent = 0;
        for (; sent < (uint64_t)(round % 40); sent++)
            message_send(p.lane, MESSAGE(sent, .body_len = 60));
        assert_int_equal(machine->lane_body_max(p.lane, machine->body_max), machine->body_max);
        for (; sent < 45; sent++)
            message_send(p.lane, MESSAGE(sent, .body_len = 60));
        for (uint64_t i = 0; i < sent; i++)
            expect_message(b, p.rx, MESSAGE(i, .body_len = 60));
        message_send(p.lane, MESSAGE(sent, .body_len = machine->body_max));
        expect_message(b, p.rx, MESSAGE(sent, .body_len = machine->body_max));
        path_end(&p);
    }
    machine->port_close(b);
    machine->port_close(a);
}

GROUP(reuse, T(one_lane_serves_thousands_of_senders), T(thousands_of_senders_share_a_few_lanes),
      T(a_lane_used_by_different_ports_names_each), T(a_grown_lane_begins_small_again));
