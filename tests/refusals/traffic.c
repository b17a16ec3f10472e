/*
 * traffic works [WORDS] | fails WORDS | stranger WORDS: what can still be done under tests/refusals/deny.
 *
 * works: two processes exchange messages and RMA of all sizes, data checked; WORDS, if given, occur in the log.
 * fails: a port cannot be opened, and WORDS, which say what to do, occur in the log.
 * stranger: a process of root cannot be reached by another user's, and WORDS occur in the log.
 */
#include "proc.h"

#include "base/log.h"

#include <sched.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define CTX(n) ((void *)(uintptr_t)(n))

enum { LARGE = 3 * MIB + 7, KEY = 3 };

static char said[8192];
static unsigned char memory[LARGE], local[LARGE];

static void listen_in(enum um_log_level level, const char *text)
{
    (void)level;
    snprintf(said + strlen(said), sizeof(said) - strlen(said), "%s\n", text);
}

static void demand(bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "%s; logged:\n%s", what, said);
    exit(1);
}

static struct um_core_completion completion(struct world *w)
{
    while (!untaken(w, 0)) {
        if (!world_progress(w))
            sched_yield();
    }
    return *next_of(w, 0);
}

static void far_side(int index)
{
    struct world w;
    child_open(&w, index);
    struct um_core_region region = {
        .key = KEY, .base = (uintptr_t)memory, .len = LARGE, .access = UM_ACCESS_REMOTE_READ | UM_ACCESS_REMOTE_WRITE};
    um_core_regions_add(w.node[0].regions, &region);
    struct um_core_peer *peer = peer_at(&w, 0);
    static unsigned char body[LARGE];
    for (size_t s = 0; s < sizes_count; s++) { /* echo */
        recv_buf(&w, 0, NULL, body, LARGE, s, 0, UM_OP_TAGGED, CTX(1));
        struct um_core_completion c = completion(&w);
        child_demand(c.error == 0 && c.len == sizes[s], "receive");
        struct iovec iov = {.iov_base = body, .iov_len = c.len};
        struct um_proto_msg msg = {
            .iov = &iov, .count = 1, .peer = peer, .tag = s, .context = CTX(2), .flags = UM_OP_TAGGED | UM_OP_DELIVERY};
        send_msg(&w, 0, &msg);
        child_demand(completion(&w).error == 0, "echo");
    }
    wait_for(&w, &shared->flag[0], 1);
    node_close(&w.node[0]);
}

static void near_side(void)
{
    struct world w;
    child_open(&w, 0);
    struct um_core_peer *peer = peer_at(&w, 1);
    for (size_t s = 0; s < sizes_count; s++) {
        fill(local, sizes[s], (uint32_t)s);
        struct iovec iov = {.iov_base = local, .iov_len = sizes[s]};
        struct um_proto_msg msg = {
            .iov = &iov, .count = 1, .peer = peer, .tag = s, .context = CTX(1), .flags = UM_OP_TAGGED | UM_OP_DELIVERY};
        send_msg(&w, 0, &msg);
        demand(completion(&w).error == 0, "a send failed");
        memset(local, 0, sizes[s]);
        recv_buf(&w, 0, NULL, local, LARGE, s, 0, UM_OP_TAGGED, CTX(2));
        demand(completion(&w).error == 0, "a receive failed");
        demand(is_filled(local, sizes[s], (uint32_t)s), "wrong bytes");
    }
    for (size_t s = 0; s < sizes_count; s++) {
        struct iovec iov = {.iov_base = local, .iov_len = sizes[s]};
        struct um_proto_rma op = {
            .iov = &iov, .count = 1, .peer = peer, .key = KEY, .context = CTX(1), .flags = UM_OP_WRITE};
        fill(local, sizes[s], (uint32_t)s + 50);
        rma(&w, 0, &op);
        demand(completion(&w).error == 0, "a write failed");
        memset(local, 0, sizes[s]);
        op.flags = UM_OP_READ;
        rma(&w, 0, &op);
        demand(completion(&w).error == 0, "a read failed");
        demand(is_filled(local, sizes[s], (uint32_t)s + 50), "wrong bytes after RMA");
    }
    um_store_release_u32(&shared->flag[0], 1);
    node_close(&w.node[0]);
}

static void works(const char *words)
{
    pid_t pid = child_start(far_side, 1);
    near_side();
    int status = -1;
    waitpid(pid, &status, 0);
    demand(status == 0, "the other side failed");
    demand(!words || strstr(said, words), "it works, but does not say what is missing");
}

static void fails(const char *words)
{
    const struct um_port_config config = {.private_copy = true};
    struct um_port *port;
    int ret = um_machine_shm.port_open(&config, &port);
    demand(ret < 0, "a port could be opened");
    demand(strstr(said, words) != NULL, "the message does not say what to do");
    printf("%s: %s", strerror(-ret), said);
}

/* The parent stays root; the child becomes another user, and its message to the parent is refused. */
static void stranger(const char *words)
{
    if (getuid() != 0) {
        printf("not possible here: only root can become somebody else\n");
        exit(77);
    }
    struct world w;
    child_open(&w, 0);
    pid_t pid = fork();
    if (pid == 0) {
        demand(setgid(65534) == 0 && setuid(65534) == 0 && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0, "no other user");
        struct world own;
        child_open(&own, 1);
        int ret = um_proto_inject(own.node[0].ep, peer_at(&own, 0), "x", 1, 1, 0, UM_OP_TAGGED);
        demand(ret == -EACCES, "a stranger's message was not refused");
        demand(strstr(said, words) != NULL, "the message does not say what to do");
        printf("%s", said);
        fflush(NULL);
        _exit(0);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    demand(status == 0, "the stranger was not treated as such");
    node_close(&w.node[0]);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "", *words = argc > 2 ? argv[2] : NULL;
    variant = (struct variant){.machine = &um_machine_shm, .private_copy = true, .lanes_max = 16};
    shared_reset();
    um_log_set_sink(listen_in);
    if (strcmp(what, "works") == 0)
        works(words);
    else if (strcmp(what, "fails") == 0 && words)
        fails(words);
    else if (strcmp(what, "stranger") == 0 && words)
        stranger(words);
    else
        return 2;
    return 0;
}
