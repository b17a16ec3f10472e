/* The machine over another provider: a process that has no file descriptor left for a connection. */
#include "net_two.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

enum { SPARE = 8, TICKS = 100 };

/* Allows this process no further descriptor: by its own limit, or by the system's for it, too. `spare` are open then,
 * below the limit. Returns the limit. */
static rlim_t no_more(bool is_last_word, int *spare)
{
    struct rlimit limit;
    const int one = eventfd(0, EFD_CLOEXEC);
    for (int i = 0; i < SPARE; i++)
        spare[i] = dup(one);
    const int next = dup(one);
    close(next);
    if (next <= one || getrlimit(RLIMIT_NOFILE, &limit) != 0)
        abort(); /* a child does not go on with the next test, as a failed assertion would */
    limit.rlim_cur = (rlim_t)next;
    limit.rlim_max = is_last_word ? (rlim_t)next : limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || dup(one) >= 0)
        abort();
    return limit.rlim_cur;
}

/* Or more than that: few are left once more if the limit was a small one. */
static bool is_doubled(rlim_t before)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
           limit.rlim_cur >= (2 * before < limit.rlim_max ? 2 * before : limit.rlim_max);
}

static bool joins(struct um_port *port, unsigned ticks)
{
    struct um_record rec;
    for (; ticks; ticks--) {
        while (machine->poll(port, &rec)) {
            const bool is_join = rec.op == UM_REC_JOINED;
            machine->release(port, &rec);
            if (is_join)
                return true;
        }
        machine->tick(port);
        sleep_us(5000);
    }
    return false;
}

/* Is connected to while no descriptor is left. */
static const char *crowded(struct parent *parent)
{
    const bool is_last_word = parent->arg;
    int spare[SPARE];
    char c;
    struct um_port *port = port_new(0);
    struct um_addr own = addr_of(port);
    const rlim_t before = no_more(is_last_word, spare);
    log_count = 0;
    logged[0] = 0;
    pipe_put(parent->to_parent, &own, sizeof(own));
    if (is_last_word) {
        if (joins(port, TICKS))
            return "a peer has joined without a descriptor";
        if (log_count != 1 || !strstr(logged, "ulimit -Hn"))
            return "it does not say once what to do";
        for (int i = 0; i < SPARE; i++)
            close(spare[i]);
    }
    if (!joins(port, 200 * TICKS))
        return "nobody has joined";
    if (!is_last_word && !is_doubled(before))
        return "the limit is not twice what it was";
    pipe_get(parent->from_parent, &c, 1);
    machine->port_close(port);
    return NULL;
}

static void connect_to_crowded(void *is_last_word)
{
    struct child child = child_start(crowded, is_last_word);
    struct um_addr addr;
    struct um_link *link;
    struct um_lane *lane;
    struct um_record rec;
    const uint64_t end = now_ms() + PATIENCE;
    a = port_new(0);
    pipe_get(child.from_child, &addr, sizeof(addr));
    assert_int_equal(machine->link_open(a, &addr, &link), 0);
    while (machine->lane_open(link, &lane) == -EAGAIN) {
        (void)machine->poll(a, &rec);
        assert_true(now_ms() < end);
    }
    machine->lane_close(lane);
    machine->link_close(link);
    pipe_put(child.to_child, "", 1);
    child_join(&child);
    machine->port_close(a);
}

static const char *sees_few(struct parent *parent)
{
    int spare[SPARE];
    struct um_port *port = port_new(0);
    (void)parent;
    const rlim_t before = no_more(false, spare);
    for (int i = 0; i < SPARE; i++)
        close(spare[i]);
    machine->tick(port);
    if (!is_doubled(before))
        return "the limit is not twice what it was";
    machine->port_close(port);
    return NULL;
}

static void who_has_few_descriptors_left_raises_its_own_limit(void **state)
{
    (void)state;
    struct child child = child_start(sees_few, NULL);
    child_join(&child);
}

/* Connects while no descriptor is left. */
static const char *connects(struct parent *parent)
{
    int spare[SPARE];
    struct um_port *port = port_new(0);
    struct um_addr addr;
    struct um_link *link;
    struct um_lane *lane;
    struct um_record rec;
    const uint64_t end = now_ms() + PATIENCE;
    int ret;
    pipe_get(parent->from_parent, &addr, sizeof(addr));
    if (machine->link_open(port, &addr, &link))
        return "link_open";
    (void)no_more(false, spare);
    while ((ret = machine->lane_open(link, &lane)) == -EAGAIN && now_ms() < end) /* without ticks */
        (void)machine->poll(port, &rec);
    if (ret)
        return "lane_open";
    machine->lane_close(lane);
    machine->link_close(link);
    machine->port_close(port);
    return NULL;
}

static void who_has_no_descriptor_left_to_connect_raises_its_own_limit(void **state)
{
    (void)state;
    struct child child = child_start(connects, NULL);
    a = port_new(0);
    const struct um_addr own = addr_of(a);
    pipe_put(child.to_child, &own, sizeof(own));
    assert_true(joins(a, 200 * TICKS));
    child_join(&child);
    machine->port_close(a);
}

static void who_has_no_descriptor_left_raises_its_own_limit(void **state)
{
    (void)state;
    connect_to_crowded(NULL);
}

static void who_may_have_no_further_descriptor_says_so_and_goes_on_when_one_is_free(void **state)
{
    static int is_last_word;
    (void)state;
    connect_to_crowded(&is_last_word);
}

GROUP(net_descriptors, T(who_has_few_descriptors_left_raises_its_own_limit),
      T(who_has_no_descriptor_left_to_connect_raises_its_own_limit), T(who_has_no_descriptor_left_raises_its_own_limit),
      T(who_may_have_no_further_descriptor_says_so_and_goes_on_when_one_is_free));
