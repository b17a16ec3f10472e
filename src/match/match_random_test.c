/*
 * The matching engine against a plain ordered list: random receives, arrivals, cancels and peeks, with more masks than
 * there are classes. UM_TEST_LONG=1 walks 25 times as far.
 */
#include "match/match_test.h"

enum { MODEL_MAX = 300, MASKS = 11 };

struct model {
    struct um_match *m;
    struct um_match_recv recv_pool[MODEL_MAX];
    struct um_match_msg msg_pool[MODEL_MAX];
    struct um_match_recv *recvs[MODEL_MAX]; /* oldest first; from recv_count on, free ones */
    struct um_match_msg *msgs[MODEL_MAX];
    int recv_count;
    int msg_count;
    uint64_t seed;
    uint32_t tags;
    uint32_t sources;
    uint32_t masks;
};

static uint32_t rnd(struct model *x, uint32_t below)
{
    x->seed = x->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((x->seed >> 33) % below);
}

static uint64_t rnd_tag(struct model *x)
{
    uint64_t tag = rnd(x, x->tags);
    return tag | tag << 20 | (uint64_t)rnd(x, 2) << 60;
}

static uint64_t rnd_mask(struct model *x)
{
    static const uint64_t masks[MASKS] = {
        0, (uint64_t)1 << 60, 3, ALL_ONES, (uint64_t)0xf << 20, 0xf, ~(uint64_t)3, 1, 2, 7, (uint64_t)3 << 20};
    return masks[rnd(x, x->masks)];
}

static uint32_t rnd_source(struct model *x)
{
    return rnd(x, 3) ? rnd(x, x->sources) : UM_MATCH_ANY;
}

static bool model_takes(uint64_t tag, uint64_t ignore, uint32_t wanted, const struct um_match_msg *msg)
{
    return (tag & ~ignore) == (msg->tag & ~ignore) && (wanted == UM_MATCH_ANY || wanted == msg->source);
}

/* Takes entry i out, keeps the order of the others, and puts the entry behind them, where the free ones are. */
static void model_remove(void **list, int *count, int i)
{
    void *gone = list[i];
    memmove(&list[i], &list[i + 1], (size_t)(*count - 1 - i) * sizeof(*list));
    list[--*count] = gone;
}

static void model_unpost(struct model *x, int i)
{
    um_match_unpost(x->m, x->recvs[i]);
    model_remove((void **)x->recvs, &x->recv_count, i);
}

static void model_dequeue(struct model *x, int i)
{
    um_match_dequeue(x->m, x->msgs[i]);
    model_remove((void **)x->msgs, &x->msg_count, i);
}

/* A receive takes the oldest message that matches, else it is posted. */
static void model_receive(struct model *x)
{
    uint64_t tag = rnd_tag(x), ignore = rnd_mask(x);
    uint32_t source = rnd_source(x);
    int i = 0;
    while (i < x->msg_count && !model_takes(tag, ignore, source, x->msgs[i]))
        i++;
    struct um_match_msg *found = um_match_find_msg(x->m, tag, ignore, source);
    assert_ptr_equal(found, i < x->msg_count ? x->msgs[i] : NULL);
    if (found)
        model_dequeue(x, i);
    else if (x->recv_count < MODEL_MAX)
        post(x->m, x->recvs[x->recv_count++], tag, ignore, source);
}

/* A message takes the oldest receive that matches, else it is queued. */
static void model_arrive(struct model *x)
{
    struct um_match_msg msg = {.tag = rnd_tag(x), .source = rnd(x, x->sources)};
    int i = 0;
    while (i < x->recv_count && !model_takes(x->recvs[i]->tag, x->recvs[i]->ignore, x->recvs[i]->source, &msg))
        i++;
    struct um_match_recv *found = um_match_find_recv(x->m, msg.tag, msg.source);
    assert_ptr_equal(found, i < x->recv_count ? x->recvs[i] : NULL);
    if (found)
        model_unpost(x, i);
    else if (x->msg_count < MODEL_MAX)
        enqueue(x->m, x->msgs[x->msg_count++], msg.tag, msg.source);
}

/* Cancels, peeks, and receives posted although a message waits (the engine itself does not forbid it). */
static void model_disturb(struct model *x)
{
    switch (rnd(x, 4)) {
    case 0:
        if (x->recv_count)
            model_unpost(x, (int)rnd(x, (uint32_t)x->recv_count));
        break;
    case 1:
        if (x->msg_count)
            model_dequeue(x, (int)rnd(x, (uint32_t)x->msg_count));
        break;
    case 2:
        if (x->recv_count < MODEL_MAX)
            post(x->m, x->recvs[x->recv_count++], rnd_tag(x), rnd_mask(x), rnd_source(x));
        break;
    default:
        assert_ptr_equal(um_match_any_recv(x->m), x->recv_count ? x->recvs[0] : NULL);
        assert_ptr_equal(um_match_any_msg(x->m), x->msg_count ? x->msgs[0] : NULL);
    }
}

static void model_walk(struct model *x, int steps)
{
    uint32_t lean = 50; /* receives among receives and arrivals, in percent; changes, so that both queues get deep */
    for (int i = 0; i < steps; i++) {
        if (i % 500 == 0) {
            lean = 20 + rnd(x, 61);
            assert_true(um_match_is_valid(x->m));
        }
        if (rnd(x, 8) == 0)
            model_disturb(x);
        else if (rnd(x, 100) < lean)
            model_receive(x);
        else
            model_arrive(x);
    }
    assert_true(um_match_is_valid(x->m));
    while (x->recv_count)
        model_unpost(x, (int)rnd(x, (uint32_t)x->recv_count));
    while (x->msg_count)
        model_dequeue(x, (int)rnd(x, (uint32_t)x->msg_count));
    assert_true(um_match_is_valid(x->m));
}

static void any_sequence_of_calls_behaves_as_an_ordered_list(void **state)
{
    static struct model x;
    x.m = *state;
    int rounds = getenv("UM_TEST_LONG") ? 10000 : 400;
    for (int i = 0; i < MODEL_MAX; i++) {
        x.recvs[i] = &x.recv_pool[i];
        x.msgs[i] = &x.msg_pool[i];
    }
    for (int round = 0; round < rounds; round++) {
        x.seed = (uint64_t)round;
        x.tags = 1u << rnd(&x, 9);
        x.sources = 1u << rnd(&x, 9);
        x.masks = 1 + rnd(&x, MASKS);
        memory_refused = round % 5 == 4;
        if (round % 3 == 0) { /* a fresh engine: other masks become its classes */
            um_match_close(*state);
            memory_refused = false;
            x.m = *state = um_match_open();
            assert_non_null(x.m);
        }
        model_walk(&x, 5000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(any_sequence_of_calls_behaves_as_an_ordered_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
