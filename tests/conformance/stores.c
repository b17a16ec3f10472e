/* Bodies in shared memory: both ends time them, and their bytes are the same whichever stores wrote them. */
#include "two.h"

#include "base/bytes.h"
#include "machine/mem/mem.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { LEN = 2 * UM_NONTEMPORAL_MIN, WORDS = LEN / 8, BODIES = 20000 };

static unsigned char source[UM_BIG_BODY + 64];

static int setup(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(source); i++)
        source[i] = (unsigned char)(i * 7 + i / 251);
    return um_mem_set_stores(NULL);
}

static int teardown(void **state)
{
    (void)state;
    return um_mem_set_stores(NULL);
}

static struct um_mem_lane *mem_lane(const struct path *p)
{
    return (struct um_mem_lane *)p->lane;
}

/* True if the lane chooses its stores. Bodies in memory that is not coherent are written with ordinary stores, and not
 * timed. */
static bool has_choice(const struct path *p)
{
    return UM_BYTES_NONTEMPORAL && !mem_lane(p)->link->port->mapper->observe;
}

static bool is_in_front; /* the last claim: its body is to lie in the front of the ring */

/* Sends and takes a body, which is `source` from `skew` on. Returns the flags of its record. */
static uint8_t body_pass(const struct path *p, size_t skew, uint32_t len, bool *is_nontemporal_p)
{
    struct um_record rec;
    struct um_slot slot;
    assert_int_equal(claim_now(p->lane, len, &slot), 0);
    *is_nontemporal_p = len >= UM_NONTEMPORAL_MIN && slot.is_nontemporal;
    is_in_front = um_mem_stores_want_front(&mem_lane(p)->stores);
    (*is_nontemporal_p ? um_bytes_copy_nontemporal : um_bytes_copy)(slot.body, source + skew, len);
    machine->commit(p->lane, &slot, 1, 0, len);
    assert_true(poll_now(p->to, &rec));
    assert_int_equal(rec.len, len);
    assert_memory_equal(rec.body, source + skew, len);
    machine->release(p->to, &rec);
    return rec.flags;
}

/* Returns a path whose lane has grown: bodies of UM_NONTEMPORAL_MIN bytes do not fit into the small rings. */
static struct path grown_path(void)
{
    open_two();
    struct path p = path_joined(a, b);
    for (int i = 0; i < 1000 && machine->lane_body_max(p.lane, UM_BIG_BODY) < UM_BIG_BODY; i++)
        continue;
    return p;
}

static void some_bodies_are_timed_by_both_ends(void **state)
{
    (void)state;
    struct path p = grown_path();
    const struct um_mem_lane *lane = mem_lane(&p);
    uint32_t timed = 0, nontemporal = 0;
    for (int i = 0; i < 3000; i++) { /* the first four rounds of a ring do not count */
        bool is_nontemporal;
        const uint8_t flags = body_pass(&p, 0, 8192, &is_nontemporal);
        nontemporal += is_nontemporal;
        if (!(flags & UM_FLAG_TIMED))
            continue;
        timed++;
        assert_int_equal(flags & UM_FLAG_KIND, is_nontemporal || is_in_front ? UM_FLAG_KIND : 0);
        assert_int_equal((uint32_t)lane->ctl->credit, lane->head); /* credit comes at once, with the time */
    }
    if (has_choice(&p)) {
        assert_in_range(timed, 40, 1500);
        assert_in_range(nontemporal, UM_STORES_SAMPLES, 3000);
        assert_true((uint32_t)lane->ctl->loads && lane->ctl->loads >> 32);
        assert_true(lane->stores.usual_then > 0); /* the two kinds of stores were compared */
    } else {
        assert_int_equal(timed + nontemporal, 0);
        assert_int_equal(lane->ctl->loads, 0);
    }
    path_end(&p);
    close_two();
}

static void a_body_is_whole_whichever_stores_wrote_it(void **state)
{
    (void)state;
    uint64_t seed = 1;
    assert_int_equal(um_mem_set_stores("nontemporal"), 0);
    struct path p = grown_path();
    for (int i = 0; i < 1000 * effort; i++) {
        const uint32_t len = 1 + chance(&seed, i % 2 ? UM_BIG_BODY : 2 * UM_NONTEMPORAL_MIN);
        bool is_nontemporal;
        const uint8_t flags = body_pass(&p, chance(&seed, 64), len, &is_nontemporal);
        assert_int_equal(is_nontemporal, has_choice(&p) && len >= UM_NONTEMPORAL_MIN);
        assert_int_equal(flags & UM_FLAG_TIMED, 0);
    }
    path_end(&p);
    close_two();
}

/* A caller that writes a body in another way clears is_nontemporal: then the time counts for ordinary stores. */
static void a_body_that_was_written_otherwise_counts_as_such(void **state)
{
    (void)state;
    struct path p = grown_path();
    for (int i = 0; i < 400; i++) {
        struct um_record rec;
        struct um_slot slot;
        assert_int_equal(claim_now(p.lane, 8192, &slot), 0);
        slot.is_nontemporal = false;
        memcpy(slot.body, source, 8192);
        machine->commit(p.lane, &slot, 1, 0, 8192);
        assert_true(poll_now(p.to, &rec));
        assert_int_equal(rec.flags & UM_FLAG_KIND, 0);
        machine->release(p.to, &rec);
    }
    assert_int_equal(mem_lane(&p)->ctl->loads >> 32, 0);
    assert_int_equal((uint32_t)mem_lane(&p)->ctl->loads > 0, has_choice(&p));
    path_end(&p);
    close_two();
}

/* The sender's thread. */
struct sending {
    const struct path *path;
    _Atomic bool has_ended;
    int error; /* of claim() */
};

/* Sends the bodies; each word of body n is n. */
static void *bodies_send(void *arg)
{
    struct sending *s = arg;
    for (uint64_t n = 1; n <= BODIES && !s->error; n++) {
        uint64_t words[WORDS];
        struct um_slot slot;
        for (int i = 0; i < WORDS; i++)
            words[i] = n;
        while ((s->error = machine->claim(s->path->lane, sizeof(words), &slot)) == -EAGAIN)
            sched_yield();
        if (s->error)
            break;
        (slot.is_nontemporal ? um_bytes_copy_nontemporal : um_bytes_copy)(slot.body, words, sizeof(words));
        machine->commit(s->path->lane, &slot, 1, 0, sizeof(words));
    }
    atomic_store(&s->has_ended, true);
    return NULL;
}

/* A processor that reads the record from another processor's cache must not find old bytes of the body in memory.
 * (Without the fence behind the non-temporal stores, this test has not been seen to fail on every processor.) */
static void a_body_is_there_when_its_record_is(void **state)
{
    (void)state;
    pthread_t thread;
    uint64_t got = 0, wrong = 0;
    assert_int_equal(um_mem_set_stores("nontemporal"), 0);
    struct path p = grown_path();
    struct sending s = {.path = &p};
    assert_int_equal(pthread_create(&thread, NULL, bodies_send, &s), 0);
    while (got < BODIES) {
        struct um_record rec;
        const bool is_last = atomic_load(&s.has_ended);
        if (is_last ? !poll_now(p.to, &rec) : machine->poll(p.to, &rec) != 1) {
            if (is_last)
                break;
            sched_yield();
            continue;
        }
        got++;
        const uint64_t *word = rec.body;
        for (int i = WORDS; i-- > 0;) /* from the end: what was written last arrives last */
            wrong += word[i] != got;
        machine->release(p.to, &rec);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(s.error, 0);
    assert_int_equal(got, BODIES);
    assert_int_equal(wrong, 0);
    path_end(&p);
    close_two();
}

/* The lane compares when the receiver has taken all bodies of a trial, not before. */
static void a_comparison_waits_for_the_receiver(void **state)
{
    (void)state;
    struct path p = grown_path();
    const struct um_mem_lane *lane = mem_lane(&p);
    bool is_nontemporal;
    for (int i = 0; i < 1000 && lane->stores.phase != UM_STORES_TRIAL; i++)
        (void)body_pass(&p, 0, LEN, &is_nontemporal);
    for (int i = 0; i < 10; i++) { /* nobody polls */
        struct um_slot slot;
        assert_int_equal(claim_now(p.lane, LEN, &slot), 0);
        memcpy(slot.body, source, LEN);
        machine->commit(p.lane, &slot, 1, 0, LEN);
    }
    assert_int_equal(lane->stores.phase, has_choice(&p) ? UM_STORES_AWAIT : UM_STORES_USE);
    for (int i = 0; i < 10; i++) {
        struct um_record rec;
        assert_true(poll_now(p.to, &rec));
        machine->release(p.to, &rec);
    }
    (void)body_pass(&p, 0, LEN, &is_nontemporal);
    assert_int_equal(lane->stores.phase, UM_STORES_USE);
    path_end(&p);
    close_two();
}

#define S(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
GROUP(stores, S(some_bodies_are_timed_by_both_ends), S(a_body_is_whole_whichever_stores_wrote_it),
      S(a_body_that_was_written_otherwise_counts_as_such), S(a_body_is_there_when_its_record_is),
      S(a_comparison_waits_for_the_receiver));
