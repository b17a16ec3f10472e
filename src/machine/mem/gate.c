/* See gate.h. */
#include "machine/mem/gate.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>

#define LONGEST_NS UINT64_C(3000000000)
#define STOPPED_NS UINT64_C(100000000)

enum {
    SPINS = 200,  /* looks at a door between two calls of sched_yield() */
    YIELDS = 16,  /* such calls between two checks whether the writer lives */
    LOOKS = 1000, /* of a writer, at all doors, before it takes over one of a dead writer */
};

static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static struct um_list gated_ports = {&gated_ports, &gated_ports};

void um_mem_gate_add(struct um_mem_gated *gated, struct um_mem_doors_shm *doors)
{
    pthread_mutex_lock(&gate_lock);
    gated->doors = doors;
    um_list_append(&gated_ports, &gated->list);
    pthread_mutex_unlock(&gate_lock);
}

void um_mem_gate_remove(struct um_mem_gated *gated)
{
    pthread_mutex_lock(&gate_lock);
    um_list_unlink(&gated->list);
    pthread_mutex_unlock(&gate_lock);
}

void um_mem_gate_forget(void)
{
    gate_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    um_list_init(&gated_ports);
}

static uint64_t *door_of(struct um_mem_doors_shm *doors, uint64_t number)
{
    return &doors->door[number % UM_DOORS].writer;
}

/* ---- the owner ---- */

/*
 * True if the writer holds no page: it is dead, or stopped for long, or the word names no writer. The delay is needed:
 * a process stops thread by thread, and the thread that writes may still be in its call, which copies at most 1 MiB.
 */
static bool writer_is_away(uint64_t writer, uint64_t since)
{
    struct um_process_stat stat;
    if (writer & UM_DOOR_OWNERS || !um_process_holder_is_alive(writer))
        return true;
    return um_clock_ns() - since > STOPPED_NS && um_process_stat_read((uint32_t)(writer >> 32), &stat) == 0 &&
           (stat.state == 'T' || stat.state == 't');
}

static bool is_late(uint64_t since)
{
    static struct um_log_limit limit;
    if (um_clock_ns() - since < LONGEST_NS)
        return false;
    um_log_limited(&limit, UM_LOG_WARN,
                   "a peer has been writing to this process for seconds, and holds up memory that is to move: "
                   "it is waited for no longer, and what it writes may be lost");
    return true;
}

static void door_take(uint64_t *door, uint64_t mine, uint64_t since)
{
    for (uint32_t turn = 1;; turn++) {
        uint64_t seen = 0;
        for (int i = 0; i < SPINS; i++, seen = 0) {
            /* sync: gate-shut (partners gate-enter, gate-leave, gate-open) */
            if (um_rmw_acqrel_cas_bits64(door, &seen, mine))
                return;
            um_cpu_relax();
        }
        seen = um_load_relaxed_u64(door);
        /* sync: gate-shut (partners gate-enter, gate-leave, gate-open): as if the writer had left */
        if (turn % YIELDS == 0 && seen != 0 && (writer_is_away(seen, since) || is_late(since)) &&
            um_rmw_acqrel_cas_bits64(door, &seen, mine))
            return;
        sched_yield();
    }
}

static void doors_open(struct um_mem_doors_shm *doors)
{
    for (uint64_t i = 0; i < UM_DOORS; i++)
        um_store_release_u64(door_of(doors, i), 0); /* sync: gate-open (partners gate-enter, gate-shut) */
}

void um_mem_gate_shut(struct um_mem_gate *gate)
{
    const uint64_t mine = um_process_self() | UM_DOOR_OWNERS, since = um_clock_ns();
    pthread_mutex_lock(&gate_lock);
    gate->count = 0;
    for (struct um_list *l = gated_ports.next; l != &gated_ports; l = l->next) {
        struct um_mem_doors_shm *doors = UM_CONTAINER(l, struct um_mem_gated, list)->doors;
        for (uint64_t i = 0; i < UM_DOORS; i++)
            door_take(door_of(doors, i), mine, since);
        if (gate->count < UM_GATE_PORTS)
            gate->doors[gate->count++] = doors;
    }
}

void um_mem_gate_open(struct um_mem_gate *gate)
{
    while (gate && gate->count > 0)
        doors_open(gate->doors[--gate->count]);
}

void um_mem_gate_end(struct um_mem_gate *gate)
{
    uint32_t i = 0;
    um_mem_gate_open(gate);
    for (struct um_list *l = gated_ports.next; l != &gated_ports; l = l->next, i++) {
        if (i >= UM_GATE_PORTS) /* the others are open, and writers may be there again */
            doors_open(UM_CONTAINER(l, struct um_mem_gated, list)->doors);
    }
    pthread_mutex_unlock(&gate_lock);
}

/* ---- writers ---- */

/* Takes a free door; with look, also that of a dead writer. */
static int door_find(struct um_mem_doors_shm *doors, uint64_t self, bool look, uint64_t **door_p)
{
    const uint64_t first = (self * UINT64_C(0x9e3779b97f4a7c15)) >> 32;
    for (uint64_t i = 0; i < UM_DOORS; i++) {
        uint64_t *door = door_of(doors, first + i), seen = 0;
        /* sync: gate-enter (partners gate-shut, gate-open, gate-leave) */
        bool taken = um_rmw_acqrel_cas_bits64(door, &seen, self);
        if (!taken && seen & UM_DOOR_OWNERS)
            return -EAGAIN;
        if (!taken && look && seen != self && !um_process_holder_is_alive(seen))
            taken = um_rmw_acqrel_cas_bits64(door, &seen, self); /* sync: gate-enter (partner gate-leave): its own */
        if (!taken)
            continue;
        *door_p = door;
        return 0;
    }
    return -EAGAIN;
}

int um_mem_gate_enter(struct um_mem_doors_shm *doors, uint64_t **door_p)
{
    const uint64_t self = um_process_self();
    for (int i = 0; i < LOOKS; i++) {
        if (door_find(doors, self, false, door_p) == 0)
            return 0;
        um_cpu_relax();
    }
    return door_find(doors, self, true, door_p);
}

void um_mem_gate_leave(uint64_t *door)
{
    uint64_t self = um_process_self();
    /* sync: gate-leave (partners gate-enter, gate-shut): unless the door was taken over meanwhile */
    (void)um_rmw_acqrel_cas_bits64(door, &self, 0);
}
