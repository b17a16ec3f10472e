/* The machine over another provider: a process that has no file descriptor left when a peer connects. */
#include "net_two.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { SPARE = 8, TICKS = 100 };

/* Allows this process no further descriptor: by its own limit, or by the system's for it, too. `spare` are open then,
 * below the limit. */
static void no_more(bool is_last_word, int *spare)
{
    struct rlimit limit;
    for (int i = 0; i < SPARE; i++)
        spare[i] = dup(0);
    const int next = dup(0);
    close(next);
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        abort();
    limit.rlim_cur = (rlim_t)next;
    limit.rlim_max = is_last_word ? (rlim_t)next : limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || dup(0) >= 0)
        abort();
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
    no_more(is_last_word, spare);
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

GROUP(net_descriptors, T(who_has_no_descriptor_left_raises_its_own_limit),
      T(who_may_have_no_further_descriptor_says_so_and_goes_on_when_one_is_free));
