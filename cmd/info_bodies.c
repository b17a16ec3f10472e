/*
 * See cmd/info.h. Measures large messages between two processes of this machine: read by the receiver, copied by both
 * sides, pushed by the sender; and which of these an endpoint chooses.
 *
 * Runs two processes with an endpoint each, of the same version as this command, on two processors. "Warm" messages go
 * from one buffer into one buffer again and again; "cold" ones go through FIELD bytes on both sides. Any failure ends
 * both processes, and the report says so.
 */
#include "child.h"
#include "info.h"

#include "base/clock.h"
#include "proto/proto.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FIELD = 8 << 20, PART = 16 << 20, FLIGHT = 4, TIMEOUT_MS = 60000, SIZES = 3, WAYS = 4, SPIN = 1000 };

static const char section[] = "Memory between processes";
static const size_t sizes[SIZES] = {64 << 10, 256 << 10, 1 << 20};
enum way { READ, BOTH, PUSHED, CHOSE };

struct side {
    struct um_core_ep *ep;
    struct um_core_regions *regions;
    struct um_core_peer *peer;
    unsigned char *field;
    int line;
    unsigned completed;
};

/* The result for one size: bytes per microsecond by way; and the way that most bodies took when the endpoint chose. */
struct figure {
    unsigned rate[WAYS];
    enum way chosen;
};

static const enum um_core_bodies bodies_of[WAYS] = {
    [READ] = UM_BODIES_READ, [BOTH] = UM_BODIES_BOTH, [PUSHED] = UM_BODIES_READ, [CHOSE] = UM_BODIES_LEARN};

static void on_complete(void *arg, const struct um_core_completion *c)
{
    if (c->error)
        _exit(1);
    ((struct side *)arg)->completed++;
}

static void meet(const struct side *s)
{
    char byte = 0;
    if (write(s->line, &byte, 1) != 1 || read(s->line, &byte, 1) != 1)
        _exit(1);
}

static void side_open(struct side *s, enum way way)
{
    const struct um_space_config space = {.adopt = false};
    struct um_core_ep_config config = {.machines = {{&um_machine_shm}, 1},
                                       .port = {.private_copy = way != PUSHED, .lanes_max = 4},
                                       .complete = on_complete,
                                       .arg = s,
                                       .bodies = bodies_of[way]};
    struct um_addr addr;
    if (um_core_regions_open(&config.machines, &space, &s->regions))
        _exit(1);
    config.regions = s->regions;
    if (um_proto_ep_open(&config, &s->ep))
        _exit(1);
    um_core_ep_addr(s->ep, &addr);
    if (write(s->line, &addr, sizeof addr) != sizeof addr || read(s->line, &addr, sizeof addr) != sizeof addr ||
        um_core_peer_get(s->ep, &addr, &s->peer))
        _exit(1);
}

static void side_close(struct side *s)
{
    meet(s);
    um_proto_ep_close(s->ep);
    um_core_regions_close(s->regions);
}

/* Returns the number of messages of that size in one part of a run. The first part touches all the memory that a lane
 * takes, and teaches an endpoint that chooses. */
static unsigned messages(size_t len, enum way way)
{
    const unsigned count = PART / (unsigned)len;
    return way == CHOSE ? 3 * count : count;
}

/* Moves `count` messages. Yields after SPIN rounds without progress: the two may share a processor. */
static void stream(struct side *s, bool sends, size_t len, size_t stride, unsigned count)
{
    size_t places = stride ? FIELD / stride : 1;
    unsigned begun = s->completed;
    unsigned idle = 0;
    for (unsigned posted = 0; s->completed - begun < count;) {
        idle = um_core_ep_progress(s->ep) > 0 ? 0 : idle + 1;
        if (idle > SPIN)
            sched_yield();
        if (posted == count || posted - (s->completed - begun) == FLIGHT)
            continue;
        struct iovec iov = {.iov_base = s->field + posted % places * stride, .iov_len = len};
        struct um_proto_msg msg = {.iov = &iov, .count = 1, .peer = s->peer, .tag = 1, .flags = UM_OP_TAGGED};
        int ret = sends ? um_proto_send(s->ep, &msg) : um_proto_recv(s->ep, &msg);
        if (ret && ret != -EAGAIN)
            _exit(1);
        posted += ret == 0;
    }
}

static void sender_run(struct side *s, enum way way)
{
    for (int i = 0; i < 2 * SIZES; i++) {
        meet(s);
        for (int part = 0; part < 2; part++)
            stream(s, true, sizes[i / 2], i % 2 ? sizes[i / 2] : 0, messages(sizes[i / 2], way));
    }
}

/* Returns the way of most of `count` bodies, of which `copied` were read, `joint` of these by both sides. The others
 * were pushed, or came unasked. */
static enum way chosen(uint64_t copied, uint64_t joint, unsigned count)
{
    if (2 * copied < count)
        return PUSHED;
    return 2 * joint > count ? BOTH : READ;
}

/* The first part is a warm-up. */
static void receiver_run(struct side *s, enum way way, struct figure *figure)
{
    const struct um_core_stats *stats = um_core_ep_stats(s->ep);
    for (int i = 0; i < 2 * SIZES; i++) {
        uint64_t begun = 0, copied = 0, joint = 0;
        const unsigned count = messages(sizes[i / 2], way);
        meet(s);
        for (int part = 0; part < 2; part++) {
            begun = um_clock_ns();
            copied = stats->copied;
            joint = stats->joint;
            stream(s, false, sizes[i / 2], i % 2 ? sizes[i / 2] : 0, count);
        }
        uint64_t us = (um_clock_ns() - begun) / 1000;
        figure[i].rate[way] = (unsigned)(count * sizes[i / 2] / (us ? us : 1));
        if (way == CHOSE)
            figure[i].chosen = chosen(stats->copied - copied, stats->joint - joint, count);
    }
}

/* Are the two processors hardware threads of one core? */
static bool are_siblings(int cpu, int other)
{
    char path[128], text[256] = "";
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *f = other < 0 ? NULL : fopen(path, "re");
    if (!f)
        return false;
    const bool is_read = fgets(text, sizeof text, f) != NULL;
    fclose(f);
    for (const char *at = text; is_read && *at;) { /* such as 0,64 or 0-1 */
        char *end;
        const long from = strtol(at, &end, 10), to = *end == '-' ? strtol(end + 1, &end, 10) : from;
        if (from <= other && other <= to)
            return true;
        at = *end == ',' ? end + 1 : "";
    }
    return false;
}

/* Returns the first processor of the set from `cpu` on that is not on the core of the processor `other`; -1: none. */
static int cpu_beside(const cpu_set_t *set, int cpu, int other)
{
    for (; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, set) && !are_siblings(cpu, other))
            return cpu;
    }
    return -1;
}

/* Takes a processor of its own, on another core than the other process, if there are two. */
static void pin(bool is_first)
{
    cpu_set_t all, own;
    if (sched_getaffinity(0, sizeof(all), &all))
        return;
    const int first = cpu_beside(&all, 0, -1), second = first < 0 ? -1 : cpu_beside(&all, first + 1, first);
    if (second < 0)
        return;
    CPU_ZERO(&own);
    CPU_SET(is_first ? first : second, &own);
    sched_setaffinity(0, sizeof(own), &own); /* if it is refused, the figures vary */
}

static void measure(void *arg, int out)
{
    int line[2];
    struct figure figure[2 * SIZES] = {0};
    static struct side s;
    (void)arg;
    s.field = malloc(FIELD);
    if (!s.field || socketpair(AF_UNIX, SOCK_STREAM, 0, line))
        return;
    memset(s.field, 1, FIELD);
    pid_t pid = fork();
    if (pid < 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    pin(pid != 0);
    s.line = line[pid != 0];
    close(line[pid == 0]); /* otherwise this process would not notice the end of the other one */
    for (int way = 0; way < WAYS; way++) {
        side_open(&s, (enum way)way);
        if (pid == 0)
            sender_run(&s, (enum way)way);
        else
            receiver_run(&s, (enum way)way, figure);
        side_close(&s);
    }
    if (pid == 0)
        _exit(0);
    for (int i = 0; i < 2 * SIZES; i++)
        dprintf(out, "%u %u %u %u %u\n", figure[i].rate[READ], figure[i].rate[BOTH], figure[i].rate[PUSHED],
                figure[i].rate[CHOSE], (unsigned)figure[i].chosen);
}

static const char *forced(void)
{
    const char *text = getenv("FI_UNIMEM_COPY");
    return text && strcmp(text, "auto") != 0 ? text : NULL;
}

static void add_size(struct um_cmd_report *report, size_t len, const struct figure *warm)
{
    const struct figure *cold = warm + 1;
    static const char *const words[] = {[READ] = "read", [BOTH] = "both", [PUSHED] = "pushed"};
    char name[64];
    snprintf(name, sizeof name, "%zu KiB messages", len >> 10);
    um_cmd_report_add(report, section, name, UM_PLAIN,
                      "warm %.1f GB/s read by the receiver, %.1f copied by both, %.1f pushed by the sender: %s (%.1f); "
                      "cold %.1f, %.1f, %.1f: %s (%.1f)%s%s",
                      warm->rate[READ] / 1e3, warm->rate[BOTH] / 1e3, warm->rate[PUSHED] / 1e3, words[warm->chosen],
                      warm->rate[CHOSE] / 1e3, cold->rate[READ] / 1e3, cold->rate[BOTH] / 1e3, cold->rate[PUSHED] / 1e3,
                      words[cold->chosen], cold->rate[CHOSE] / 1e3, forced() ? "; but FI_UNIMEM_COPY=" : "",
                      forced() ? forced() : "");
}

void um_cmd_info_bodies(struct um_cmd_report *report)
{
    char text[512];
    struct figure figure[2 * SIZES];
    int ret = um_cmd_child_run(measure, NULL, text, sizeof text, TIMEOUT_MS);
    int at = 0, taken = 0;
    for (int i = 0; ret > 0 && i < 2 * SIZES; i++, at += taken) {
        unsigned chose = CHOSE;
        if (sscanf(text + at, "%u %u %u %u %u\n%n", &figure[i].rate[READ], &figure[i].rate[BOTH],
                   &figure[i].rate[PUSHED], &figure[i].rate[CHOSE], &chose, &taken) != 5 ||
            chose >= CHOSE)
            ret = 0;
        figure[i].chosen = (enum way)chose;
    }
    for (int i = 0; i < SIZES; i++) {
        if (ret > 0)
            add_size(report, sizes[i], figure + 2 * (size_t)i);
    }
    if (ret <= 0)
        um_cmd_report_add(report, section, "large messages", UM_PLAIN, "could not be measured");
}
