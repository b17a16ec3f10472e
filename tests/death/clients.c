/*
 * Clients come and go, half of them killed, half closing: checks what they leave behind in the server.
 *
 *   clients [COUNT [REMOVE [TOGETHER]]]     default: 2000 clients; 1: the server removes each from its address vector;
 *                                           16 at a time
 *
 * A client's memory is written by the server through a window; the client reads the server's, and sends a message.
 * Every fifth client leaves another message, which the server receives only when the client has gone. Prints a table of
 * the server's memory, mappings and descriptors, and ends with status 1 when a client leaves more than it may: nothing
 * with REMOVE, else 128 bytes.
 */
#include "member.h"

#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PLACES = 64, BYTES = 65536, HELLO = 1, ANSWER = 2, LATE = 3, WARM = 100 };

/* A place, which one client has at a time. */
enum place_state { FREE, STARTED, MET, SERVED, GONE };
struct place {
    struct member_face face;
    uint32_t state; /* written in turn by spawner, client, server, client, spawner */
    uint32_t number;
    uint32_t kills; /* 1: it kills itself when it has been served */
};

static struct {
    struct member_face server;
    uint32_t count, started, ended;
    uint32_t together;
    struct place place[PLACES];
} * shared;

/* ---- a client ---- */

static void await_completion(const struct member *m, const char *what)
{
    const double until = member_now() + 60;
    void *context;
    int error, got;
    while ((got = member_next(m, &context, &error)) == 0 && member_now() < until)
        member_sleep(.00005);
    member_demand(got == 1, what, error);
}

static void client(void *arg)
{
    struct place *p = arg;
    struct member m;
    uint64_t word = p->number;
    member_open(&m, &(struct member_config){.bytes = BYTES});
    fi_addr_t server = member_meet(&m, &shared->server);
    member_tell(&m, &p->face);
    member_set(&p->state, MET);
    MEMBER_CALL(fi_trecv(m.ep, &word, sizeof(word), NULL, server, ANSWER, 0, NULL));
    await_completion(&m, "the server's answer");
    member_demand(word == p->number && *(uint64_t *)(void *)m.memory == p->number, "what the server wrote", p->number);
    ssize_t ret;
    while ((ret = fi_read(m.ep, &word, sizeof(word), NULL, server, shared->server.base, shared->server.key, NULL)) ==
           -FI_EAGAIN)
        (void)fi_cntr_read(m.writes);
    member_must(ret, "fi_read");
    await_completion(&m, "a read of the server's memory");
    while ((ret = fi_tinject(m.ep, &p->number, sizeof(p->number), server, HELLO)) == -FI_EAGAIN)
        (void)fi_cntr_read(m.writes);
    member_must(ret, "fi_tinject");
    if (p->number % 5 == 0)
        MEMBER_CALL(fi_tinject(m.ep, &p->number, sizeof(p->number), server, LATE));
    member_await(&m, &p->state, SERVED);
    if (p->kills)
        kill(getpid(), SIGKILL);
    member_close(&m);
}

/* ---- the process that forks the clients: it has no endpoint ---- */

static void place_turn(struct place *p, pid_t *pid)
{
    int status;
    if (*pid && waitpid(*pid, &status, WNOHANG) == *pid) {
        const bool well = p->kills ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0;
        member_demand(well, "a client ended well", status);
        *pid = 0;
        member_set(&p->state, GONE);
        member_set(&shared->ended, shared->ended + 1);
    }
    if (member_look(&p->state) == FREE && shared->started < shared->count) {
        p->number = shared->started;
        p->kills = p->number % 2;
        member_set(&shared->started, shared->started + 1);
        member_set(&p->state, STARTED);
        *pid = member_fork(client, p);
    }
}

static void spawner(void *arg)
{
    pid_t pid[PLACES] = {0};
    (void)arg;
    member_prepare();
    member_await(NULL, &shared->server.ready, 1);
    while (shared->ended < shared->count) {
        for (uint32_t i = 0; i < shared->together; i++)
            place_turn(&shared->place[i], &pid[i]);
        member_sleep(.0005);
    }
}

/* ---- the server ---- */

struct figures {
    uint32_t clients;
    long heap, mappings, descriptors, size_kib, shmem_kib;
};

static long lines_of(const char *path)
{
    FILE *f = fopen(path, "r");
    long lines = 0;
    MEMBER_DEMAND(f != NULL);
    for (int c; (c = getc(f)) != EOF;)
        lines += c == '\n';
    fclose(f);
    return lines;
}

static long status_kib(const char *name)
{
    char line[256];
    long kib = -1;
    FILE *f = fopen("/proc/self/status", "r");
    MEMBER_DEMAND(f != NULL);
    while (fgets(line, sizeof(line), f)) {
        if (strncmp(line, name, strlen(name)) == 0)
            kib = atol(line + strlen(name));
    }
    fclose(f);
    return kib;
}

static long descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    long count = -3; /* . and .. and the descriptor of dir */
    MEMBER_DEMAND(dir != NULL);
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

static struct figures look(uint32_t clients)
{
    struct mallinfo2 heap = mallinfo2();
    return (struct figures){.clients = clients,
                            .heap = (long)(heap.uordblks + heap.hblkhd),
                            .mappings = lines_of("/proc/self/maps"),
                            .descriptors = descriptors(),
                            .size_kib = status_kib("VmSize:"),
                            .shmem_kib = status_kib("RssShmem:")};
}

static void show(const struct figures *f)
{
    printf("%8u %12ld %9ld %12ld %12ld %12ld\n", f->clients, f->heap, f->mappings, f->descriptors, f->size_kib,
           f->shmem_kib);
    fflush(stdout);
}

struct server {
    struct member m;
    fi_addr_t addr[PLACES];
    uint32_t hellos[PLACES]; /* of the client that has the place */
    uint64_t scratch;
    bool removes;
};

/* Takes all completions. An error ends the program, with the states of all places. */
static void server_take(struct server *s)
{
    struct fi_cq_tagged_entry entry;
    ssize_t ret;
    while ((ret = fi_cq_read(s->m.cq, &entry, 1)) == 1)
        ;
    struct fi_cq_err_entry error = {0};
    if (ret == -FI_EAVAIL && fi_cq_readerr(s->m.cq, &error, 0) == 1) {
        for (uint32_t i = 0; i < shared->together; i++)
            fprintf(stderr, "place %u: client %u, state %u\n", i, shared->place[i].number, shared->place[i].state);
        member_demand(false, "an operation failed",
                      error.op_context ? (struct place *)error.op_context - shared->place : -1);
    }
}

static void server_serve(struct server *s, int i)
{
    struct place *p = &shared->place[i];
    const uint64_t word = p->number;
    ssize_t ret;
    s->addr[i] = member_meet(&s->m, &p->face);
    MEMBER_CALL(fi_trecv(s->m.ep, &s->scratch, sizeof(s->scratch), NULL, s->addr[i], HELLO, 0, p));
    while ((ret = fi_inject_write(s->m.ep, &word, sizeof(word), s->addr[i], p->face.base, p->face.key)) == -FI_EAGAIN)
        server_take(s);
    member_must(ret, "fi_inject_write");
    while ((ret = fi_tinject(s->m.ep, &word, sizeof(word), s->addr[i], ANSWER)) == -FI_EAGAIN)
        server_take(s);
    member_must(ret, "fi_tinject");
}

/* Receives the message that a client left. Its source is the client's address, although the client has gone. */
static void server_take_late(struct server *s, int i)
{
    struct fi_cq_tagged_entry entry;
    fi_addr_t source;
    uint32_t number = UINT32_MAX;
    ssize_t ret;
    const double until = member_now() + 60;
    MEMBER_CALL(fi_trecv(s->m.ep, &number, sizeof(number), NULL, s->addr[i], LATE, 0, &number));
    do {
        ret = fi_cq_readfrom(s->m.cq, &entry, 1, &source);
    } while (!(ret == 1 && entry.op_context == &number) && ret != -FI_EAVAIL && member_now() < until);
    member_demand(ret == 1 && number == shared->place[i].number && source == s->addr[i], "a late message", ret);
}

static void server_turn(struct server *s)
{
    server_take(s);
    for (uint32_t i = 0; i < shared->together; i++) {
        struct place *p = &shared->place[i];
        switch (member_look(&p->state)) {
        case MET:
            server_serve(s, (int)i);
            member_set(&p->state, SERVED);
            break;
        case GONE:
            if (p->number % 5 == 0)
                server_take_late(s, (int)i);
            if (s->removes)
                MEMBER_CALL(fi_av_remove(s->m.av, &s->addr[i], 1, 0));
            member_set(&p->state, FREE);
            break;
        default:
            break;
        }
    }
}

/* Makes progress until deaths have been noticed and everything is given back. */
static void server_rest(struct server *s)
{
    for (const double until = member_now() + 4; member_now() < until; member_sleep(.001))
        server_take(s);
}

static void server_until(struct server *s, uint32_t ended)
{
    while (member_look(&shared->ended) < ended) {
        server_turn(s);
        member_sleep(.00005);
    }
}

/* The addresses of clients that have gone are still known. Whatever is posted to one fails at once, or ends with an
 * error. */
static void server_demand_gone(struct server *s)
{
    struct fi_cq_err_entry error = {0};
    struct fi_cq_tagged_entry entry;
    uint64_t word = 0;
    for (uint32_t i = 0; i < shared->together; i++) {
        const struct member_face *face = &shared->place[i].face;
        ssize_t ret = fi_tinject(s->m.ep, &word, sizeof(word), s->addr[i], HELLO);
        member_demand(ret != 0 && ret != -FI_EAGAIN, "a message to a client that is gone is refused", ret);
        ret = fi_inject_write(s->m.ep, &word, sizeof(word), s->addr[i], face->base, face->key);
        member_demand(ret != 0 && ret != -FI_EAGAIN, "a write to a client that is gone is refused", ret);
        MEMBER_CALL(fi_trecv(s->m.ep, &word, sizeof(word), NULL, s->addr[i], HELLO, 0, NULL));
        const double until = member_now() + 60;
        while ((ret = fi_cq_read(s->m.cq, &entry, 1)) == -FI_EAGAIN && member_now() < until)
            member_sleep(.001);
        member_demand(ret == -FI_EAVAIL && fi_cq_readerr(s->m.cq, &error, 0) == 1 && error.err == FI_ECONNRESET,
                      "a receive from a client that is gone ends", ret);
    }
}

/* mappings: the largest number seen at one time. A client has three; its lane keeps a page for the next client. */
static bool is_flat(const struct figures *before, const struct figures *after, bool removes, long mappings)
{
    const long clients = (long)(after->clients - before->clients);
    const long most = removes ? 65536 : 65536 + 128 * clients;        /* tables grow by doubling, queues once */
    const long shared = 1024 + 4 * (mappings - before->mappings) / 3; /* KiB, however many clients come and go */
    const bool flat = after->heap - before->heap <= most && after->mappings - before->mappings <= 8 &&
                      after->descriptors <= before->descriptors && after->shmem_kib - before->shmem_kib <= shared;
    printf("%s: %ld bytes a client\n", flat ? "flat" : "NOT FLAT",
           clients ? (after->heap - before->heap) / clients : 0);
    return flat;
}

int main(int argc, char **argv)
{
    static struct server s;
    shared = member_share(sizeof(*shared));
    shared->count = argc > 1 ? (uint32_t)atol(argv[1]) : 2000;
    s.removes = argc > 2 ? atoi(argv[2]) != 0 : true;
    shared->together = argc > 3 ? (uint32_t)atol(argv[3]) : 16;
    MEMBER_DEMAND(shared->count > WARM && shared->together > 0 && shared->together <= PLACES);
    pid_t pid = member_fork(spawner, NULL);
    member_open(&s.m, &(struct member_config){.bytes = BYTES});
    member_tell(&s.m, &shared->server);
    server_until(&s, WARM);
    server_rest(&s);
    struct figures before = look(WARM);
    printf("%8s %12s %9s %12s %12s %12s\n", "clients", "heap bytes", "mappings", "descriptors", "VmSize KiB",
           "shared KiB");
    show(&before);
    long mappings = before.mappings;
    for (uint32_t part = 1; part <= 4; part++) {
        server_until(&s, part * (shared->count / 4));
        struct figures now = look(part * (shared->count / 4));
        show(&now);
        mappings = now.mappings > mappings ? now.mappings : mappings;
    }
    server_until(&s, shared->count);
    server_turn(&s);
    server_rest(&s);
    struct figures after = look(shared->count);
    show(&after);
    if (!s.removes)
        server_demand_gone(&s);
    member_close(&s.m);
    int status = -1;
    MEMBER_DEMAND(waitpid(pid, &status, 0) == pid && status == 0);
    return is_flat(&before, &after, s.removes, mappings) ? 0 : 1;
}
