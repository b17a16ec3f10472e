/* link.h without a library: two processes, and a way to copy between them (bare.h). The limit for other links. */
#include "bare.h"

#include "base/atomic.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TURNS = 1 << 12 };

struct link_batch {
    int most;
};

struct bare_shared *bare_shared;
int bare_rank;
static const struct bare_way *way;
static unsigned char *arena[2];

void bare_relax(uint64_t turn)
{
    um_cpu_relax();
    if (turn % TURNS == TURNS - 1)
        sched_yield();
}

int link_rank(void)
{
    return bare_rank;
}

int link_size(void)
{
    return 2;
}

unsigned char *link_arena(bool received)
{
    return arena[received];
}

struct link_batch *link_batch_open(int most)
{
    struct link_batch *b = malloc(sizeof(*b));
    if (!b)
        link_fail("no memory");
    if (most > BARE_BATCH)
        link_refuse("so many messages at a time");
    b->most = most;
    return b;
}

void link_batch_close(struct link_batch *b)
{
    free(b);
}

void link_send(int to, const void *buf, size_t len, int tag)
{
    (void)to, (void)tag;
    way->post_send(buf, len);
    way->finish();
}

void link_recv(int from, void *buf, size_t len, int tag)
{
    (void)from, (void)tag;
    way->post_recv(buf, len);
    way->finish();
}

void link_post_send(struct link_batch *b, int to, const void *buf, size_t len, int tag)
{
    (void)b, (void)to, (void)tag;
    way->post_send(buf, len);
}

void link_post_recv(struct link_batch *b, int from, void *buf, size_t len, int tag)
{
    (void)b, (void)from, (void)tag;
    way->post_recv(buf, len);
}

void link_wait(struct link_batch *b)
{
    (void)b;
    way->finish();
}

void link_barrier(void)
{
    uint64_t turn = bare_shared->turn[bare_rank][0] + 1;
    um_store_release_u64(&bare_shared->turn[bare_rank][0], turn);
    for (uint64_t i = 0; um_load_acquire_u64(&bare_shared->turn[1 - bare_rank][0]) < turn; i++)
        bare_relax(i);
}

void link_rest(void)
{
    link_barrier();
}

void link_abort(void)
{
}

/* ---- what memory alone does not offer ---- */

void link_post_pieces(struct link_batch *b, int to, const struct iovec *piece, int pieces, int tag)
{
    (void)b, (void)to, (void)piece, (void)pieces, (void)tag;
    link_refuse("pieces");
}

void link_put(int to, size_t offset, const void *buf, size_t len)
{
    (void)to, (void)offset, (void)buf, (void)len;
    link_refuse("one-sided operations");
}

void link_get(int to, size_t offset, void *buf, size_t len)
{
    (void)to, (void)offset, (void)buf, (void)len;
    link_refuse("one-sided operations");
}

void link_accumulate(int to, size_t offset, const void *buf, size_t len, enum link_type type)
{
    (void)to, (void)offset, (void)buf, (void)len, (void)type;
    link_refuse("one-sided operations");
}

void link_fetch_add(int to, size_t offset, uint64_t *before)
{
    (void)to, (void)offset, (void)before;
    link_refuse("one-sided operations");
}

void link_compare_swap(int to, size_t offset, const uint64_t *value, uint64_t *before)
{
    (void)to, (void)offset, (void)value, (void)before;
    link_refuse("one-sided operations");
}

void link_flush(int to)
{
    (void)to;
}

/* ---- the processes ---- */

static void *memory(size_t bytes, bool shared)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        link_fail("no memory");
    return p;
}

/* Mapped before the fork, so that they have the same address in both processes. */
static unsigned char *shared_arenas;

static void side_run(const struct link_config *config, void (*body)(void))
{
    alarm(config->limit);
    link_pin(config, bare_rank);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* for process_vm_readv(2), where Yama checks it */
    bare_shared->pid[bare_rank] = getpid();
    for (int received = 0; received < 2; received++)
        arena[received] = way->is_shared ? shared_arenas + (size_t)(bare_rank * 2 + received) * config->arena
                                         : memory(config->arena, false);
    link_barrier();
    body();
}

static pid_t side_start(const struct link_config *config, int rank, void (*body)(void))
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0)
        link_fail("fork");
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    bare_rank = rank;
    side_run(config, body);
    exit(0);
}

/* If one process fails, ends the other one, which would wait for it. */
static int sides_join(const pid_t *pid)
{
    int result = 0;
    for (int left = 2; left > 0; left--) {
        int status = -1;
        pid_t gone = wait(&status);
        if (gone > 0 && status == 0)
            continue;
        result = 1;
        kill(gone == pid[0] ? pid[1] : pid[0], SIGKILL);
    }
    return result;
}

int link_run(const struct link_config *config, int *argc, char ***argv, void (*body)(void))
{
    (void)argc, (void)argv;
    way = bare_way_named(config->name);
    if (!way)
        link_fail("there is no way to copy that is called \"%s\"", config->name);
    if (config->size != 2)
        link_refuse("more than two processes");
    bare_shared = memory(sizeof(*bare_shared), true);
    if (way->is_shared)
        shared_arenas = memory(4 * config->arena, true);
    const pid_t pid[2] = {side_start(config, 0, body), side_start(config, 1, body)};
    return sides_join(pid);
}
