/*
 * The simulated machine: a mapper with memory of one process and ports in a registry; stalls wrapped around mem/.
 *
 * Owns: the registry. The lanes are those of mem/. No membarrier: every commit fences, which is also what tests the
 * fallback. Threading: the registry has a lock; the rest as machine.h.
 */
#include "machine/sim/sim.h"

#include "machine/machines.h"
#include "machine/mem/mem.h"
#include "machine/sim/internal.h"

#include "base/cancel.h"
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* In the upper 48 bits of word 0, above the header. */
#define UM_SIM_MAGIC       UINT64_C(0x6d6973756e690000)
#define UM_SIM_SPACE_MAGIC UINT64_C(0x636170736d690000)

/* The memory of a port or a space; outlives it while peers have it attached. */
struct sim_memory {
    struct um_list node; /* in the registry, while the port is open */
    struct um_addr addr;
    void *base;
    size_t size;
    unsigned references;
    int wake_fd; /* -1 once the port is closed; of a space: 0 until it is closed */
    bool dead;
};

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct um_list registry = {&registry, &registry};
static uint64_t next_number = 1;
static uint32_t config_seed = 1;
static unsigned config_stall_percent;
static bool config_slow;

void um_sim_lock(void)
{
    pthread_mutex_lock(&registry_lock);
}

void um_sim_unlock(void)
{
    pthread_mutex_unlock(&registry_lock);
}

static bool is_shareable;

void um_sim_set_shareable(bool on)
{
    is_shareable = on;
}

void um_sim_configure(uint32_t seed, unsigned stall_percent, bool slow)
{
    pthread_mutex_lock(&registry_lock);
    config_seed = seed;
    config_stall_percent = stall_percent;
    config_slow = slow;
    pthread_mutex_unlock(&registry_lock);
}

/* Lock held. */
static struct sim_memory *registry_find(const struct um_addr *addr)
{
    for (struct um_list *l = registry.next; l != &registry; l = l->next) {
        struct sim_memory *m = UM_CONTAINER(l, struct sim_memory, node);
        if (memcmp(&m->addr, addr, sizeof(*addr)) == 0)
            return m;
    }
    return NULL;
}

/* Lock held. */
static void memory_unref(struct sim_memory *m)
{
    if (--m->references > 0)
        return;
    um_list_unlink(&m->node);
    munmap(m->base, m->size);
    free(m);
}

void um_sim_kill(const struct um_addr *addr)
{
    pthread_mutex_lock(&registry_lock);
    struct sim_memory *m = registry_find(addr);
    if (m)
        m->dead = true;
    pthread_mutex_unlock(&registry_lock);
}

/* Zeroed memory with an address of its own, in the registry; NULL: out of memory. */
static struct sim_memory *memory_new(uint64_t magic, size_t size, int wake_fd)
{
    struct sim_memory *m = calloc(1, sizeof(*m));
    void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!m || base == MAP_FAILED) {
        free(m);
        return NULL;
    }
    pthread_mutex_lock(&registry_lock);
    uint64_t number = next_number++;
    *m = (struct sim_memory){.base = base, .size = size, .references = 1, .wake_fd = wake_fd};
    m->addr =
        (struct um_addr){.word = {magic | um_addr_head(&um_machine_sim), number, number * 0x9e3779b97f4a7c15u | 1}};
    um_list_append(&registry, &m->node);
    pthread_mutex_unlock(&registry_lock);
    return m;
}

static int sim_create(struct um_mem_port *port, size_t size)
{
    struct sim_port *state = calloc(1, sizeof(*state));
    struct sim_memory *m = state ? memory_new(UM_SIM_MAGIC, size, port->wait_write) : NULL;
    if (!m) {
        free(state);
        return -ENOMEM;
    }
    *state = (struct sim_port){
        .memory = m,
        .random = (config_seed + m->addr.word[1]) * 0x9e3779b97f4a7c15u | 1,
        .stall_percent = config_stall_percent,
        .is_slow = config_slow,
    };
    um_list_init(&state->transfers);
    port->memory = m->base;
    port->addr = m->addr;
    port->mapper_state = state;
    port->fence = true;
    return 0;
}

static void sim_destroy(struct um_mem_port *port)
{
    struct sim_port *state = port->mapper_state;
    if (!um_list_is_empty(&state->transfers)) {
        um_log(UM_LOG_WARN, "sim: a port closes, and transfers of it are under way");
        abort(); /* the caller's mistake, which an engine would punish later */
    }
    pthread_mutex_lock(&registry_lock);
    state->memory->wake_fd = -1;
    memory_unref(state->memory);
    pthread_mutex_unlock(&registry_lock);
    free(state);
}

static int sim_space_create(struct um_mem_space *space)
{
    struct sim_memory *m = memory_new(UM_SIM_SPACE_MAGIC, UM_SPACE_SIZE, 0);
    if (!m)
        return -ENOMEM;
    space->memory = m->base;
    space->mapper_state = m;
    space->handle = (uint32_t)m->addr.word[1];
    space->nonce = m->addr.word[2];
    return 0;
}

static void sim_space_destroy(struct um_mem_space *space)
{
    struct sim_memory *m = space->mapper_state;
    pthread_mutex_lock(&registry_lock);
    m->wake_fd = -1;
    memory_unref(m);
    pthread_mutex_unlock(&registry_lock);
}

/* All memory is every port's here. */
static int sim_adopt(struct um_mem_space *space, uint64_t base, uint64_t len, struct um_mem_place *place_p,
                     const char **why_p)
{
    (void)space, (void)base, (void)len, (void)why_p;
    *place_p = (struct um_mem_place){.file = 0};
    return 0;
}

static void sim_disown(struct um_mem_space *space, uint64_t base, uint64_t len)
{
    (void)space, (void)base, (void)len;
}

static int sim_space_attach(struct um_mem_port *port, const struct um_addr *addr, uint32_t handle,
                            struct um_mem_mapping *map_p)
{
    int ret = -ECONNREFUSED;
    (void)port, (void)addr;
    pthread_mutex_lock(&registry_lock);
    for (struct um_list *l = registry.next; l != &registry; l = l->next) {
        struct sim_memory *m = UM_CONTAINER(l, struct sim_memory, node);
        if (um_addr_word(&m->addr, 0) != UM_SIM_SPACE_MAGIC || m->addr.word[1] != handle || m->wake_fd < 0)
            continue;
        m->references++;
        *map_p = (struct um_mem_mapping){.base = m->base, .len = m->size};
        ret = 0;
    }
    pthread_mutex_unlock(&registry_lock);
    return ret;
}

static int sim_window_attach(struct um_mem_port *port, const struct um_addr *addr, uint32_t adopted,
                             const struct um_mem_place *place, struct um_mem_window *window)
{
    (void)port, (void)addr, (void)adopted, (void)place;
    window->window.base = (unsigned char *)(uintptr_t)window->window.region.base;
    return 0;
}

/* Each port stands for a process. */
static bool sim_is_own(const struct um_mem_port *port, const struct um_addr *addr)
{
    return memcmp(&port->addr, addr, sizeof(*addr)) == 0;
}

static void sim_punch(struct um_mem_port *port, size_t offset, size_t len)
{
    memset(port->memory + offset, 0, len);
}

static int sim_addr_check(const struct um_mem_port *port, const struct um_addr *addr, bool is_last)
{
    int ret = um_addr_head_check(port->port.machine, addr, is_last);
    return ret ? ret : um_addr_word(addr, 0) == UM_SIM_MAGIC && addr->word[1] != 0 ? 0 : -EPROTO;
}

/* A mapping into the memory keeps it alive. */
static int sim_attach(struct um_mem_port *port, const struct um_addr *addr, size_t offset, size_t len,
                      struct um_mem_mapping *map_p)
{
    (void)port;
    int ret = -ECONNREFUSED;
    pthread_mutex_lock(&registry_lock);
    struct sim_memory *m = registry_find(addr);
    if (m && m->wake_fd >= 0 && offset + len <= m->size) {
        m->references++;
        *map_p = (struct um_mem_mapping){.base = (unsigned char *)m->base + offset, .len = len};
        ret = 0;
    }
    pthread_mutex_unlock(&registry_lock);
    return ret;
}

static bool sim_is_shareable(struct um_mem_space *space, uint64_t base, uint64_t len, struct um_mem_place *place_p)
{
    (void)space, (void)base, (void)len;
    *place_p = (struct um_mem_place){0};
    return is_shareable;
}

/* It is where it is. */
static int sim_memory_attach(struct um_mem_port *port, const struct um_addr *addr, uint32_t adopted, uint64_t at,
                             size_t len, struct um_mem_mapping *map_p)
{
    (void)port, (void)addr, (void)adopted;
    *map_p = (struct um_mem_mapping){.base = (void *)(uintptr_t)at, .len = len, .is_guarded = true};
    return 0;
}

static void sim_detach(struct um_mem_mapping *map)
{
    if (map->is_guarded) { /* of sim_memory_attach() */
        *map = (struct um_mem_mapping){0};
        return;
    }
    pthread_mutex_lock(&registry_lock);
    for (struct um_list *l = registry.next; l != &registry; l = l->next) {
        struct sim_memory *m = UM_CONTAINER(l, struct sim_memory, node);
        unsigned char *base = m->base;
        if ((unsigned char *)map->base >= base && (unsigned char *)map->base < base + m->size) {
            memory_unref(m);
            break;
        }
    }
    pthread_mutex_unlock(&registry_lock);
    *map = (struct um_mem_mapping){0};
}

enum um_sim_life um_sim_life_locked(const struct um_addr *addr)
{
    const struct sim_memory *m = registry_find(addr);
    if (!m || m->wake_fd < 0)
        return UM_SIM_CLOSED;
    return m->dead ? UM_SIM_DEAD : UM_SIM_ALIVE;
}

static bool sim_alive(struct um_mem_port *port, const struct um_addr *addr, struct um_mem_mark *mark)
{
    (void)port, (void)mark;
    pthread_mutex_lock(&registry_lock);
    bool alive = um_sim_life_locked(addr) == UM_SIM_ALIVE;
    pthread_mutex_unlock(&registry_lock);
    return alive;
}

static bool sim_sender_alive(struct um_mem_port *port, uint64_t sender)
{
    (void)port;
    bool alive = false;
    pthread_mutex_lock(&registry_lock);
    for (struct um_list *l = registry.next; l != &registry; l = l->next) {
        const struct sim_memory *m = UM_CONTAINER(l, struct sim_memory, node);
        alive = alive || (m->addr.word[1] == sender && m->wake_fd >= 0 && !m->dead);
    }
    pthread_mutex_unlock(&registry_lock);
    return alive;
}

static uint64_t sim_sender_word(const struct um_mem_port *port, const struct um_addr *addr)
{
    (void)addr;
    return port->addr.word[1];
}

static int sim_wake_open(struct um_mem_port *port, const struct um_addr *addr, uint32_t wake, int *handle_p)
{
    (void)port, (void)addr, (void)wake;
    *handle_p = 0; /* it is looked up at every call */
    return 0;
}

static void sim_wake(struct um_mem_port *port, const struct um_addr *addr, int handle)
{
    UM_UNCANCELLED;
    (void)port, (void)handle;
    char byte = 0;
    pthread_mutex_lock(&registry_lock);
    const struct sim_memory *m = registry_find(addr);
    if (m && m->wake_fd >= 0) {
        ssize_t written = write(m->wake_fd, &byte, 1); /* full: it is awake already */
        (void)written;
    }
    pthread_mutex_unlock(&registry_lock);
}

static void sim_wake_drop(int handle)
{
    (void)handle;
}

static int sim_copy(struct um_mem_port *port, const struct um_addr *addr, const struct um_copy *copy,
                    const struct um_mem_copy_peer *known)
{
    (void)known;
    if (!sim_alive(port, addr, NULL))
        return -ESRCH;
    size_t r = 0, l = 0, r_at = 0, l_at = 0;
    for (size_t left = copy->len; left > 0;) {
        if (r >= copy->remote_count || l >= copy->local_count)
            return -EINVAL;
        size_t n = left;
        n = n < copy->remote[r].len - r_at ? n : copy->remote[r].len - r_at;
        n = n < copy->local[l].iov_len - l_at ? n : copy->local[l].iov_len - l_at;
        char *peer = (char *)(uintptr_t)copy->remote[r].addr + r_at;
        char *own = (char *)copy->local[l].iov_base + l_at;
        memcpy(copy->write ? peer : own, copy->write ? own : peer, n);
        left -= n;
        r_at += n;
        l_at += n;
        if (r_at == copy->remote[r].len) {
            r++;
            r_at = 0;
        }
        if (l_at == copy->local[l].iov_len) {
            l++;
            l_at = 0;
        }
    }
    return 0;
}

/* ---- stalls: around the operations of mem/ ---- */

uint32_t um_sim_random(struct sim_port *state, uint32_t limit)
{
    state->random ^= state->random << 13;
    state->random ^= state->random >> 7;
    state->random ^= state->random << 17;
    return (uint32_t)(state->random % limit);
}

/* Is this one to behave as if the lane were full, or empty? */
static bool sim_stall(struct um_mem_port *port)
{
    struct sim_port *state = port->mapper_state;
    return state->stall_percent && um_sim_random(state, 100) < state->stall_percent;
}

static int sim_claimed(struct um_lane *lane, const struct um_slot *slot, int ret)
{
    if (ret || !sim_stall(((struct um_mem_lane *)lane)->link->port))
        return ret;
    um_mem_abort(lane, slot);
    return -EAGAIN;
}

static int sim_claim(struct um_lane *lane, uint32_t body_len, struct um_slot *slot_p)
{
    return sim_claimed(lane, slot_p, um_mem_claim(lane, body_len, slot_p));
}

static int sim_claim_message(struct um_lane *lane, uint32_t body_len, struct um_slot *slot_p)
{
    return sim_claimed(lane, slot_p, um_mem_claim_message(lane, body_len, slot_p));
}

/* Who joins and who leaves is told in any case. */
static int sim_poll(struct um_port *port, struct um_record *rec_p)
{
    um_sim_transfers_advance((struct um_mem_port *)port);
    int ret = um_mem_poll(port, rec_p);
    return ret && rec_p->op < UM_OPCODE_MACHINE && sim_stall((struct um_mem_port *)port) ? 0 : ret;
}

static const struct um_mem_mapper sim_mapper = {
    .create = sim_create,
    .destroy = sim_destroy,
    .punch = sim_punch,
    .space_create = sim_space_create,
    .space_destroy = sim_space_destroy,
    .adopt = sim_adopt,
    .disown = sim_disown,
    .space_attach = sim_space_attach,
    .window_attach = sim_window_attach,
    .is_own = sim_is_own,
    .addr_check = sim_addr_check,
    .attach = sim_attach,
    .detach = sim_detach,
    .is_shareable = sim_is_shareable,
    .memory_attach = sim_memory_attach,
    .alive = sim_alive,
    .sender_alive = sim_sender_alive,
    .sender_word = sim_sender_word,
    .wake_open = sim_wake_open,
    .wake = sim_wake,
    .wake_drop = sim_wake_drop,
    .copy = sim_copy,
};

/* Memory is really there in this machine, so it has few lanes unless more are asked for. */
static int sim_port_open(const struct um_port_config *config, struct um_port **port_p)
{
    struct um_port_config own = *config;
    if (own.lanes_max == 0)
        own.lanes_max = 16;
    return um_mem_port_open(&um_machine_sim, &sim_mapper, &own, port_p);
}

static int sim_space_open(const struct um_space_config *config, struct um_space **space_p)
{
    return um_mem_space_open(&um_machine_sim, &sim_mapper, config, space_p);
}

const struct um_machine um_machine_sim = {
    .name = "sim",
    .addr_kind = UM_ADDR_SIM,
    .space_open = sim_space_open,
    .port_open = sim_port_open,
    .claim = sim_claim,
    .claim_message = sim_claim_message,
    .poll = sim_poll,
    .unexport = um_sim_unexport,
    .transfer_start = um_sim_transfer_start,
    .transfer_poll = um_sim_transfer_poll,
    .transfer_cancel = um_sim_transfer_cancel,
    UM_MEM_MACHINE_OPS,
};
