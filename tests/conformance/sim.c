/* Conformance of the simulated machine only: a peer that dies, at every moment. */
#include "conform.h"

#include "machine/sim/sim.h"

static struct um_port *a, *b;

/* Memory of a dead process is never touched again; it is listed here so that leak checkers do not report it. */
static struct path graves[32];
static int grave_count;

static void bury(const struct path *path)
{
    assert_true(grave_count < 32);
    graves[grave_count++] = *path;
}

static void kill_port(struct um_port *port)
{
    struct um_addr addr = addr_of(port);
    um_sim_kill(&addr);
}

static void a_dead_peer_is_not_alive(void **state)
{
    (void)state;
    a = port_new(0);
    b = port_new(0);
    struct path p = path_joined(a, b);
    assert_true(machine->link_alive(p.link));
    kill_port(b);
    assert_false(machine->link_alive(p.link));
    path_close(&p);
    machine->port_close(b);
    machine->port_close(a);
}

static void what_a_dead_sender_committed_is_delivered_before_its_end(void **state)
{
    (void)state;
    for (int committed = 0; committed < 50; committed += 7) {
        a = port_new(0);
        b = port_new(1);
        struct path p = path_open(a, b);
        struct um_slot half;
        for (uint64_t i = 0; i < (uint64_t)committed; i++)
            message_send(p.lane, MESSAGE(i, .body_len = 50));
        assert_int_equal(claim_now(p.lane, 50, &half), 0);
        kill_port(a);
        bury(&p);
        for (int i = 0; i < committed; i++)
            machine->tick(b);
        p.rx = expect_joined(b, a);
        for (uint64_t i = 0; i < (uint64_t)committed; i++) {
            machine->tick(b);
            expect_message(b, p.rx, MESSAGE(i, .body_len = 50));
        }
        expect_death(b, p.rx);
        expect_nothing(b);
        struct um_port *c = port_new(0); /* the lane is free again */
        struct path q = path_joined(c, b);
        message_send(q.lane, MESSAGE(9, .body_len = 90));
        expect_message(b, q.rx, MESSAGE(9, .body_len = 90));
        path_end(&q);
        machine->port_close(c);
        machine->port_close(b);
    }
}

static void many_dead_senders_are_all_found(void **state)
{
    (void)state;
    enum { N = 40 };
    struct um_port *from[N];
    struct path p[N];
    b = port_new(N);
    for (int i = 0; i < N; i++) {
        from[i] = port_new(1);
        p[i] = path_joined(from[i], b);
    }
    for (int i = 0; i < N; i += 2) {
        kill_port(from[i]);
        bury(&p[i]);
    }
    int dead = 0;
    for (uint64_t end = now_ms() + PATIENCE; dead < N / 2 && now_ms() < end;) {
        struct um_record rec;
        machine->tick(b);
        if (!poll_now(b, &rec))
            continue;
        assert_int_equal(rec.op, UM_REC_LEFT);
        assert_int_not_equal(rec.len, 0);
        machine->release(b, &rec);
        dead++;
    }
    assert_int_equal(dead, N / 2);
    for (int i = 1; i < N; i += 2) {
        message_send(p[i].lane, MESSAGE(1));
        expect_message(b, p[i].rx, MESSAGE(1));
        path_end(&p[i]);
        machine->port_close(from[i]);
    }
    machine->port_close(b);
}

GROUP(sim, T(a_dead_peer_is_not_alive), T(what_a_dead_sender_committed_is_delivered_before_its_end),
      T(many_dead_senders_are_all_found));
