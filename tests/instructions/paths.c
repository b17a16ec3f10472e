/*
 * paths PROVIDER [PATH...]: calls every hot path CALLS times, for callgrind to count its instructions.
 *
 * The peer of a path is this process's own endpoint, or that of another process, which this one starts outside of
 * callgrind, because memory cannot be adopted under callgrind. The other process keeps its memory and makes progress.
 * What a call needs around it (a message for it to find, completions to be read) is not counted. Each path makes a
 * callgrind dump of its name, and another one, "then" and its name, of what must follow before the operation has taken
 * effect: the costs of providers that execute at the target are there. Prints the names and how often each was called.
 *
 * tests/instructions/count.py runs it, and reads the dumps. Without valgrind it counts nothing.
 */
#include "member.h"

#include <rdma/fi_atomic.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined(UM_HAS_VALGRIND)
#include <valgrind/callgrind.h>
#else
#define CALLGRIND_TOGGLE_COLLECT   ((void)0)
#define CALLGRIND_DUMP_STATS_AT(s) ((void)(s))
#endif

enum { CALLS = 1000, WARM = 200, IDLE = 70000, TAG = 5, PIECES = 6, DEEP = 10000, MASKS = 8 };

static struct fi_cq_tagged_entry entry;
static uint64_t word, old, comparand, inbox;
static uint8_t many[1024];
static uint64_t pieces[PIECES][8]; /* the first word of each line is a piece */
static uint32_t turn;
static int whom; /* SELF or OTHER: the peer of the path */

/* ---- what is not counted ---- */

static bool is_counting;

/*
 * Replaces the C library's function, for the provider, too: time stands still while instructions are counted. Otherwise
 * some of the calls would make the periodic checks of peers, more of them on a slower machine.
 */
/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the C library has reserved ones */
__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *now)
{
    static struct timespec stopped; /* the last time returned: the clock never goes back */
    if (clock != CLOCK_MONOTONIC && clock != CLOCK_MONOTONIC_COARSE)
        return (int)syscall(SYS_clock_gettime, clock, now);
    if (!is_counting || stopped.tv_sec == 0)
        syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &stopped);
    *now = stopped;
    return 0;
}

/* Makes progress until nothing more comes. */
static void settle(void)
{
    for (int quiet = 0; quiet < 3; quiet++) {
        ssize_t ret = fi_cq_read(cq, &entry, 1);
        if (ret == 1)
            quiet = 0;
        else
            demand(ret, -FI_EAGAIN, "fi_cq_read");
    }
}

/* Makes progress while the call is refused: providers that execute at the target may refuse it. */
#define POST(call)                                                                                                     \
    do {                                                                                                               \
        ssize_t post_ret;                                                                                              \
        while ((post_ret = (call)) == -FI_EAGAIN)                                                                      \
            settle();                                                                                                  \
        if (post_ret)                                                                                                  \
            demand(post_ret, 0, #call);                                                                                \
    } while (0)

static void post_receive(void)
{
    POST(fi_trecv(ep, &inbox, 8, NULL, FI_ADDR_UNSPEC, TAG, 0, NULL));
}

static void send_to_self(void)
{
    POST(fi_tinject(ep, &word, 8, peer[SELF], TAG));
}

static void expect_message(void)
{
    post_receive();
    send_to_self();
}

/* Leaves a message before its receive is posted. */
static void leave_message(void)
{
    send_to_self();
    for (int i = 0; i < 4; i++)
        demand(fi_cq_read(cq, &entry, 1), -FI_EAGAIN, "fi_cq_read");
}

static void nothing(void)
{
}

/* ---- lists ---- */

static struct fi_msg_tagged list_message(struct iovec *iov, fi_addr_t addr)
{
    for (int i = 0; i < PIECES; i++)
        iov[i] = (struct iovec){.iov_base = pieces[i], .iov_len = 8};
    return (struct fi_msg_tagged){.msg_iov = iov, .iov_count = PIECES, .addr = addr, .tag = TAG};
}

static void post_list_receive(void)
{
    struct iovec iov[PIECES];
    const struct fi_msg_tagged m = list_message(iov, FI_ADDR_UNSPEC);
    POST(fi_trecvv(ep, m.msg_iov, NULL, PIECES, m.addr, TAG, 0, NULL));
}

static void send_list(void)
{
    struct iovec iov[PIECES];
    const struct fi_msg_tagged m = list_message(iov, peer[SELF]);
    POST(fi_tsendv(ep, m.msg_iov, NULL, PIECES, m.addr, TAG, NULL));
}

static void send_list_to_self(void)
{
    send_list();
    settle(); /* its completion comes before the receive is posted */
}

static void expect_list(void)
{
    post_list_receive();
    POST(fi_tinject(ep, pieces, PIECES * 8, peer[SELF], TAG));
}

/* ---- deep queues: tags that nothing else has, under eight masks, half from any source ---- */

static uint64_t deep_tag(uint32_t i)
{
    return (uint64_t)(i + 1) << 36;
}

static uint64_t deep_mask(uint32_t i)
{
    return i % MASKS ? UINT64_C(0x1f) << 4 * (i % MASKS) : 0;
}

static fi_addr_t deep_source(uint32_t i)
{
    return i / MASKS % 2 ? FI_ADDR_UNSPEC : peer[SELF];
}

static void deep_receive(uint32_t i)
{
    POST(fi_trecv(ep, &inbox, 8, NULL, deep_source(i), deep_tag(i), deep_mask(i), NULL));
}

static void deep_message(uint32_t i)
{
    POST(fi_tinject(ep, &word, 8, peer[SELF], deep_tag(i)));
}

static void post_deep(void)
{
    for (uint32_t i = 0; i < DEEP; i++)
        deep_receive(i);
}

static void leave_deep(void)
{
    for (uint32_t i = 0; i < DEEP; i++) {
        deep_message(i);
        if (i % 16 == 0)
            settle();
    }
    settle();
}

static void match_deep(void)
{
    for (uint32_t i = 0; i < DEEP; i++) {
        deep_message(i);
        settle();
    }
}

static void receive_deep(void)
{
    for (uint32_t i = 0; i < DEEP; i++) {
        deep_receive(i);
        settle();
    }
}

/* Posts a receive with the next source and mask in turn. */
static void turn_receive(void)
{
    turn++;
    POST(fi_trecv(ep, &inbox, 8, NULL, deep_source(turn), TAG, deep_mask(turn), NULL));
}

/* ---- what is counted ---- */

static uint64_t there(void)
{
    return shared->member[whom].base + 64;
}

static uint64_t key(void)
{
    return shared->member[whom].key;
}

/* Waits for the completion of what was just posted. */
static void completion(void)
{
    while (fi_cq_read(cq, &entry, 1) != 1)
        ;
}

static void cq_read_empty(void)
{
    ssize_t ret = fi_cq_read(cq, &entry, 1);
    if (ret != -FI_EAGAIN)
        demand(ret, -FI_EAGAIN, "fi_cq_read");
}

static void cntr_read(void)
{
    fi_cntr_read(writes);
}

static void tinject(void)
{
    POST(fi_tinject(ep, &word, 8, peer[SELF], TAG));
}

static void tsend(void)
{
    POST(fi_tsend(ep, &word, 8, NULL, peer[SELF], TAG, NULL));
    completion();
}

static void write_8(void)
{
    POST(fi_write(ep, &word, 8, NULL, peer[whom], there(), key(), NULL));
    completion();
}

static void writemsg(void)
{
    const struct iovec iov = {.iov_base = &word, .iov_len = 8};
    const struct fi_rma_iov to = {.addr = there(), .len = 8, .key = key()};
    const struct fi_msg_rma m = {
        .msg_iov = &iov, .iov_count = 1, .addr = peer[whom], .rma_iov = &to, .rma_iov_count = 1};
    POST(fi_writemsg(ep, &m, FI_COMPLETION));
    completion();
}

static void inject_write(void)
{
    POST(fi_inject_write(ep, &word, 8, peer[whom], there(), key()));
}

static void read_8(void)
{
    POST(fi_read(ep, &inbox, 8, NULL, peer[whom], there(), key(), NULL));
    completion();
}

static void inject_atomic(void)
{
    POST(fi_inject_atomic(ep, &word, 1, peer[whom], there(), key(), FI_UINT64, FI_SUM));
}

static void atomicmsg(void)
{
    const struct fi_ioc ioc = {.addr = &word, .count = 1};
    const struct fi_rma_ioc to = {.addr = there(), .count = 1, .key = key()};
    const struct fi_msg_atomic m = {.msg_iov = &ioc,
                                    .iov_count = 1,
                                    .addr = peer[whom],
                                    .rma_iov = &to,
                                    .rma_iov_count = 1,
                                    .datatype = FI_UINT64,
                                    .op = FI_BXOR};
    POST(fi_atomicmsg(ep, &m, FI_COMPLETION));
    completion();
}

static void atomic_many(void)
{
    POST(fi_atomic(ep, many, sizeof(many), NULL, peer[whom], there(), key(), FI_UINT8, FI_SUM, NULL));
    completion();
}

static void inject_atomic_2(void)
{
    POST(fi_inject_atomic(ep, many, 2, peer[whom], there(), key(), FI_UINT64, FI_SUM));
}

static void fetch_atomic_4(void)
{
    POST(fi_fetch_atomic(ep, many, 4, NULL, pieces, NULL, peer[whom], there(), key(), FI_UINT32, FI_SUM, NULL));
    completion();
}

static void compare_atomic_2(void)
{
    POST(fi_compare_atomic(ep, many, 2, NULL, many, NULL, pieces, NULL, peer[whom], there(), key(), FI_UINT64, FI_CSWAP,
                           NULL));
    completion();
}

static void fetch_atomic(void)
{
    POST(fi_fetch_atomic(ep, &word, 1, NULL, &old, NULL, peer[whom], there(), key(), FI_UINT64, FI_SUM, NULL));
    completion();
}

static void compare_atomic(void)
{
    POST(fi_compare_atomic(ep, &word, 1, NULL, &comparand, NULL, &old, NULL, peer[whom], there(), key(), FI_UINT64,
                           FI_CSWAP, NULL));
    completion();
}

static void tsendv(void)
{
    send_list();
    completion();
}

static void unexpected(void)
{
    post_receive();
    completion();
}

static void unexpected_turn(void)
{
    turn_receive();
    completion();
}

static void expect_turn(void)
{
    turn_receive();
    send_to_self();
}

static void peek(void)
{
    const struct fi_msg_tagged m = {.addr = FI_ADDR_UNSPEC, .tag = TAG};
    POST(fi_trecvmsg(ep, &m, FI_PEEK | FI_COMPLETION));
    completion();
}

/* ---- */

static const struct path {
    const char *name;
    void (*before)(void), (*call)(void), (*after)(void);
    int whom;
    void (*open)(void), (*close)(void); /* around all its calls; or NULL */
} paths[] = {
    {"cq_read_empty", nothing, cq_read_empty, nothing, .whom = SELF},
    {"cntr_read", nothing, cntr_read, nothing, .whom = SELF},
    {"tinject", post_receive, tinject, settle, .whom = SELF},
    {"tsend+completion", post_receive, tsend, settle, .whom = SELF},
    {"trecv", nothing, post_receive, send_to_self, .whom = SELF},
    {"message", expect_message, completion, settle, .whom = SELF},
    {"trecv_unexpected", leave_message, unexpected, settle, .whom = SELF},
    {"message_deep", expect_turn, completion, settle, .whom = SELF, .open = post_deep, .close = match_deep},
    {"trecv_deep", nothing, turn_receive, send_to_self, .whom = SELF, .open = post_deep, .close = match_deep},
    {"trecv_unexpected_deep", leave_message, unexpected_turn, settle, .whom = SELF, .open = leave_deep,
     .close = receive_deep},
    {"peek", leave_message, peek, unexpected, .whom = SELF},
    {"peek_deep", leave_message, peek, unexpected, .whom = SELF, .open = leave_deep, .close = receive_deep},
    {"tsendv_6+completion", post_list_receive, tsendv, settle, .whom = SELF},
    {"trecvv_6", nothing, post_list_receive, send_list_to_self, .whom = SELF},
    {"message_v6", expect_list, completion, settle, .whom = SELF},
    {"write+completion", nothing, write_8, settle, .whom = SELF},
    {"writemsg+completion", nothing, writemsg, settle, .whom = SELF},
    {"inject_write", nothing, inject_write, settle, .whom = SELF},
    {"inject_write_other", nothing, inject_write, settle, .whom = OTHER},
    {"read+completion", nothing, read_8, settle, .whom = SELF},
    {"inject_atomic", nothing, inject_atomic, settle, .whom = SELF},
    {"inject_atomic_other", nothing, inject_atomic, settle, .whom = OTHER},
    {"inject_atomic_2", nothing, inject_atomic_2, settle, .whom = SELF},
    {"fetch_atomic_4+completion", nothing, fetch_atomic_4, settle, .whom = SELF},
    {"compare_atomic_2+completion", nothing, compare_atomic_2, settle, .whom = SELF},
    {"atomicmsg+completion", nothing, atomicmsg, settle, .whom = SELF},
    {"atomic_many+completion", nothing, atomic_many, settle, .whom = SELF},
    {"fetch_atomic+completion", nothing, fetch_atomic, settle, .whom = SELF},
    {"compare_atomic+completion", nothing, compare_atomic, settle, .whom = SELF},
};

static void path_count(const struct path *p)
{
    char then[64];
    snprintf(then, sizeof(then), "then %s", p->name);
    whom = p->whom;
    if (p->open)
        p->open();
    for (int i = 0; i < WARM; i++) {
        p->before();
        p->call();
        p->after();
        settle();
    }
    for (int i = 0; i < CALLS; i++) {
        p->before();
        CALLGRIND_TOGGLE_COLLECT;
        p->call();
        CALLGRIND_TOGGLE_COLLECT;
        p->after();
        settle();
    }
    CALLGRIND_DUMP_STATS_AT(p->name);
    for (int i = 0; i < CALLS; i++) {
        p->before();
        p->call();
        CALLGRIND_TOGGLE_COLLECT;
        p->after();
        CALLGRIND_TOGGLE_COLLECT;
        settle();
    }
    CALLGRIND_DUMP_STATS_AT(then);
    if (p->close)
        p->close();
    printf("%s %d\n", p->name, CALLS);
}

static bool is_wanted(const struct path *p, char **names)
{
    bool found = !names[0];
    for (; *names && !found; names++)
        found = strcmp(*names, p->name) == 0;
    return found;
}

static void paths_count(char **names)
{
    expect_message(); /* from now on progress has a lane to look at */
    settle();
    is_counting = true;
    for (int i = 0; i < IDLE; i++) /* a port over a network learns how often it is polled, and looks less often */
        settle();
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        if (is_wanted(&paths[i], names))
            path_count(&paths[i]);
    }
    is_counting = false;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[0], MEMBER_OTHER) == 0)
        return member_serve(argv);
    if (argc < 2) {
        fprintf(stderr, "usage: paths PROVIDER [PATH...]\n");
        return 2;
    }
    member_open(argv[0], argv[1]);
    paths_count(argv + 2);
    member_close();
    return 0;
}
