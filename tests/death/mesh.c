/*
 * A mesh of four members, which are killed again and again, and started anew, while all talk to all.
 *
 *   mesh [KILLS [SEED]]     40 kills
 *   mesh KILLS SEED LINK NET NET
 *                           two of the members are in each of these network namespaces, and hosts die instead of
 *                           members: the command LINK, called with `cut` and a host's number, cuts off the host, whose
 *                           members are then killed; after `mend` they start anew
 *
 * Each member has with each other one: a small and a large receive directed at it, a small and a large send, a write
 * into its memory and a read of what it wrote. Every byte is checked, and the order. A member has one of several
 * habits: it calls without a pause, each 20 or 100 ms, sleeps in fi_cq_sread, or leaves all to automatic progress. When
 * some are killed, everything that the others have pending with them ends within the bound, and nothing else does. Ends
 * with status 1 when an operation hangs, bytes are wrong, or something stays behind.
 */
#include "member.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 4, SMALL = 64, LARGE = 300000, PART = 4096, ROUNDS = 5 };

/* Seconds from a death to the end of what was pending: of a member; of a host, with FI_UNIMEM_NET_TIMEOUT=3. */
#define BOUND      5.0
#define HOST_BOUND 15.0

enum { HOSTS = 2 };
static char *const *hosts; /* LINK, and the namespaces; NULL: all members are on this host */

enum habit { FAST, EACH_20, EACH_100, SREAD, AUTOMATIC, HABITS };
static const char *const habit_names[HABITS] = {"fast", "each 20 ms", "each 100 ms", "sread", "automatic"};

static struct {
    struct member_face face[SIZE];
    uint32_t alive[SIZE];       /* generation of the member, and of its face */
    uint32_t dead[SIZE];        /* generation that was killed last */
    uint32_t met[SIZE][SIZE];   /* [i][j]: the generation of j with which i has exchanged enough */
    uint32_t ended[SIZE][SIZE]; /* [i][j]: the generation of j with which i has nothing pending any more */
    uint32_t habit[SIZE];
    uint64_t messages;
} * shared;

/* ---- a member ---- */

enum kind { RECV_SMALL, RECV_LARGE, SEND_SMALL, SEND_LARGE, WRITE, READ, KINDS };

struct op {
    struct other *other;
    enum kind kind;
    bool pending;
    uint32_t seq; /* number of the operation, among those of this kind */
    unsigned char *buf;
    size_t len;
};

struct other {
    int slot;
    uint32_t generation; /* 0: none */
    fi_addr_t addr;
    bool failed; /* an operation with it failed */
    struct op op[KINDS];
};

static int self;
static uint32_t own;
static struct member m;
static struct other others[SIZE];

/* Fills in the bytes of one message. id: slot and generation of its sender, and of its receiver; 1 if large; number. */
static void fill(unsigned char *buf, size_t len, const uint32_t id[6])
{
    uint32_t x = 2166136261u;
    for (int i = 0; i < 6; i++)
        x = (x ^ id[i]) * 16777619u;
    for (size_t i = 0; i < len; i++) {
        x = x * 1664525u + 1013904223u;
        buf[i] = (unsigned char)(x >> 24);
    }
}

static void fill_op(const struct op *op, bool outwards, unsigned char *buf)
{
    const struct other *o = op->other;
    const uint32_t id[6] = {outwards ? (uint32_t)self : (uint32_t)o->slot,
                            outwards ? own : o->generation,
                            outwards ? (uint32_t)o->slot : (uint32_t)self,
                            outwards ? o->generation : own,
                            op->len == LARGE,
                            op->seq};
    fill(buf, op->len, id);
}

static void op_check(const struct op *op, bool outwards)
{
    static unsigned char wanted[LARGE];
    fill_op(op, outwards, wanted);
    member_demand(memcmp(op->buf, wanted, op->len) == 0, "the bytes are right", op->kind);
}

static ssize_t op_post(struct op *op)
{
    const struct other *o = op->other;
    const struct member_face *face = &shared->face[o->slot];
    const uint64_t there = face->base + (uint64_t)self * PART;
    const uint64_t tag = op->len == LARGE;
    switch (op->kind) {
    case RECV_SMALL:
    case RECV_LARGE:
        return fi_trecv(m.ep, op->buf, op->len, NULL, o->addr, tag, 0, op);
    case SEND_SMALL:
    case SEND_LARGE:
        fill_op(op, true, op->buf);
        return fi_tsend(m.ep, op->buf, op->len, NULL, o->addr, tag, op);
    case WRITE:
        fill_op(op, true, op->buf);
        return fi_write(m.ep, op->buf, op->len, NULL, o->addr, there, face->key, op);
    default:
        return fi_read(m.ep, op->buf, op->len, NULL, o->addr, there, face->key, op);
    }
}

static bool is_dead(const struct other *o)
{
    return member_look(&shared->dead[o->slot]) >= o->generation;
}

/* An operation failed: demands that the other member is dead, or dies within 2 seconds. */
static void demand_dead(struct other *o, const char *what, long long error)
{
    o->failed = true;
    for (const double until = member_now() + 2; !is_dead(o) && member_now() < until;)
        member_sleep(.001);
    member_demand(is_dead(o), what, error);
}

static void op_turn(struct op *op)
{
    const struct op *write = &op->other->op[WRITE], *read = &op->other->op[READ];
    if (op->pending || op->other->failed || (op->kind == READ && read->seq == write->seq) ||
        (op->kind == WRITE && read->seq != write->seq))
        return;
    op->pending = true;
    ssize_t ret = op_post(op);
    if (ret == 0)
        return;
    op->pending = false;
    if (ret != -FI_EAGAIN)
        demand_dead(op->other, "nothing is refused to a member that lives", ret);
}

static void op_done(struct op *op, int error)
{
    op->pending = false;
    if (error) {
        demand_dead(op->other, "nothing fails that has to do with a member that lives", error);
        return;
    }
    if (op->kind <= RECV_LARGE)
        op_check(op, false);
    if (op->kind == READ)
        op_check(op, true);
    op->seq++;
    __atomic_fetch_add(&shared->messages, 1, __ATOMIC_RELAXED);
}

static void other_meet(struct other *o)
{
    const uint32_t generation = member_look(&shared->face[o->slot].ready);
    if (generation <= o->generation || generation != member_look(&shared->alive[o->slot]))
        return;
    if (o->generation)
        MEMBER_CALL(fi_av_remove(m.av, &o->addr, 1, 0));
    o->generation = generation;
    o->failed = false;
    o->addr = member_meet(&m, &shared->face[o->slot]);
    for (int k = 0; k < KINDS; k++)
        o->op[k].seq = 0;
}

static void other_turn(struct other *o)
{
    int pending = 0;
    uint32_t least = UINT32_MAX;
    for (int k = 0; k < KINDS; k++) {
        pending += o->op[k].pending;
        least = o->op[k].seq < least ? o->op[k].seq : least;
    }
    if (!o->generation || (o->failed && pending == 0)) {
        member_set(&shared->ended[self][o->slot], o->generation);
        other_meet(o);
    }
    if (!o->generation)
        return;
    if (least >= ROUNDS)
        member_set(&shared->met[self][o->slot], o->generation);
    for (int k = 0; k < KINDS; k++)
        op_turn(&o->op[k]);
}

/* Between two looks: does what the member's habit says, once it has met all others. */
static void rest(enum habit habit)
{
    struct fi_cq_tagged_entry entry;
    for (int i = 0; i < SIZE; i++) {
        if (i != self && shared->met[self][i] != member_look(&shared->alive[i]) &&
            member_look(&shared->alive[i]) > member_look(&shared->dead[i]))
            return; /* not all are met yet: no pause */
    }
    if (habit == EACH_20 || habit == EACH_100 || habit == AUTOMATIC)
        member_sleep(habit == EACH_20 ? .02 : .1);
    else if (habit == SREAD && fi_cq_sread(m.cq, &entry, 1, NULL, 1000) == 1)
        op_done(entry.op_context, 0);
}

static void enter_host(int host)
{
    char number[2] = {(char)('0' + host), 0};
    const int fd = open(hosts[1 + host], O_RDONLY);
    MEMBER_DEMAND(fd >= 0 && setns(fd, CLONE_NEWNET) == 0);
    close(fd);
    MEMBER_DEMAND(setenv("FI_UNIMEM_PARTITION", number, 1) == 0);
}

static void member(void *arg)
{
    const enum habit habit = (enum habit)shared->habit[self];
    void *context;
    int error;
    (void)arg;
    own = shared->alive[self];
    if (hosts)
        enter_host(self % HOSTS);
    member_open(&m, &(struct member_config){
                        .bytes = (size_t)SIZE * PART, .automatic = habit == AUTOMATIC, .sleeps = habit == SREAD});
    for (int i = 0; i < SIZE; i++) {
        others[i] = (struct other){.slot = i};
        for (int k = 0; k < KINDS; k++) {
            const size_t len = k == RECV_LARGE || k == SEND_LARGE ? LARGE : k >= WRITE ? PART : SMALL;
            others[i].op[k] = (struct op){.other = &others[i], .kind = k, .len = len, .buf = malloc(len)};
        }
    }
    shared->face[self].ready = own - 1;
    member_tell(&m, &shared->face[self]);
    for (uint32_t turn = 0;; turn++) {
        for (int i = 0; i < SIZE; i++) {
            if (i != self)
                other_turn(&others[i]);
        }
        while (member_next(&m, &context, &error) != 0)
            op_done(context, error);
        rest(habit);
        if (turn % 64 == 0)
            member_sleep(.0001);
    }
}

/* ---- the process that kills ---- */

static pid_t pids[SIZE];

static void start(int slot)
{
    self = slot;
    shared->habit[slot] = (uint32_t)(rand() % HABITS);
    member_set(&shared->alive[slot], shared->alive[slot] + 1);
    pids[slot] = member_fork(member, NULL);
}

static void demand_all_live(void)
{
    for (int i = 0; i < SIZE; i++) {
        int status;
        member_demand(waitpid(pids[i], &status, WNOHANG) == 0, "a member ended by itself", i);
    }
}

static bool all_met(void)
{
    for (int i = 0; i < SIZE; i++) {
        for (int j = 0; j < SIZE; j++) {
            if (i != j && member_look(&shared->met[i][j]) != shared->alive[j])
                return false;
        }
    }
    return true;
}

/* Returns the first survivor that has something pending with a killed member; -1: none. */
static int late_one(uint32_t killed)
{
    for (int i = 0; i < SIZE; i++) {
        for (int j = 0; j < SIZE; j++) {
            if (!(killed >> i & 1) && killed >> j & 1 && member_look(&shared->ended[i][j]) != shared->dead[j])
                return i;
        }
    }
    return -1;
}

static void link_set(const char *how, int host)
{
    char command[4096];
    snprintf(command, sizeof(command), "%s %s %d", hosts[0], how, host);
    MEMBER_DEMAND(system(command) == 0);
}

/* Chooses some members, or cuts off a host and chooses all of its members. */
static uint32_t choose(void)
{
    uint32_t chosen = 0;
    const int host = rand() % HOSTS;
    for (int left = 1 + rand() % (SIZE - 1); !hosts && left > 0; left--)
        chosen |= 1u << rand() % SIZE;
    for (int i = host; hosts && i < SIZE; i += HOSTS)
        chosen |= 1u << i;
    if (hosts)
        link_set("cut", host);
    return chosen;
}

static int kill_some(uint32_t *killed_p)
{
    int count = 0;
    const uint32_t killed = choose();
    for (int i = 0; i < SIZE; i++) {
        if (!(killed >> i & 1))
            continue;
        kill(pids[i], SIGKILL);
        count++;
    }
    for (int i = 0; i < SIZE; i++) {
        if (killed >> i & 1)
            waitpid(pids[i], NULL, 0);
        if (killed >> i & 1)
            member_set(&shared->dead[i], shared->alive[i]);
    }
    *killed_p = killed;
    return count;
}

static double await_ends(uint32_t killed)
{
    const double died = member_now(), bound = hosts ? HOST_BOUND : BOUND;
    int late;
    while ((late = late_one(killed)) >= 0 && member_now() - died < bound) {
        member_sleep(.001);
        for (int i = 0; i < SIZE; i++) {
            int status;
            if (!(killed >> i & 1))
                member_demand(waitpid(pids[i], &status, WNOHANG) == 0, "a survivor ended by itself", i);
        }
    }
    if (late >= 0)
        fprintf(stderr, "habit: %s\n", habit_names[shared->habit[late]]);
    member_demand(late < 0, "all that was pending has ended in time", late);
    for (int i = 0; hosts && i < HOSTS; i++)
        link_set("mend", i);
    return member_now() - died;
}

int main(int argc, char **argv)
{
    const int kills = argc > 1 ? atoi(argv[1]) : 40;
    double longest = 0;
    int done = 0;
    srand(argc > 2 ? (unsigned)atoi(argv[2]) : (unsigned)getpid());
    hosts = argc > 3 + HOSTS ? argv + 3 : NULL;
    shared = member_share(sizeof(*shared));
    if (!hosts) /* with hosts, each member reads an environment of its own */
        member_prepare();
    for (int i = 0; i < SIZE; i++)
        start(i);
    for (uint32_t round = 0; done < kills; round++) {
        uint32_t killed;
        for (const double until = member_now() + 60; !all_met();) {
            member_sleep(.001);
            demand_all_live();
            member_demand(member_now() < until, "all meet within a minute", round);
        }
        member_sleep((rand() % 20) * .001);
        done += kill_some(&killed);
        const double took = await_ends(killed);
        longest = took > longest ? took : longest;
        if (round % 100 == 99)
            printf("%d kills, %llu operations, the longest wait %.2f s\n", done, (unsigned long long)shared->messages,
                   longest);
        fflush(stdout);
        for (int i = 0; i < SIZE; i++) {
            if (killed >> i & 1)
                start(i);
        }
    }
    for (int i = 0; i < SIZE; i++)
        member_kill(pids[i]);
    printf("%d kills, %llu operations, 0 hung, 0 wrong; the longest wait %.2f s\n", done,
           (unsigned long long)shared->messages, longest);
    return 0;
}
