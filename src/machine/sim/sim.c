/*
 * The mapper of the simulated machine: memory of one process, and a registry of its ports.
 *
 * Owns: the registry. The lanes are those of mem/. There is no membarrier: every commit fences, which also tests the
 * fallback. Threading: the registry has a lock; the rest as machine.h.
 */
#include "machine/sim/sim.h"

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

/* The memory of a port or a space. It stays as long as peers have it attached. */
struct sim_memory {
    struct um_list node; /* in the registry, until the last reference ends */
    struct um_addr addr;
    void *base;
    size_t size;
    unsigned references;
    int wake_fd; /* where to wake the port; -1 once the port or space is closed; 0 for an open space */
    bool dead;
};

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct um_list registry = {&registry, &registry};
static uint64_t next_number = 1;
static uint32_t config_seed = 1;
static unsigned config_stall_percent;
static unsigned config_modes;

void um_sim_lock(void)
{
    pthread_mutex_lock(&registry_lock);
}

void um_sim_unlock(void)
{
    pthread_mutex_unlock(&registry_lock);
}

void um_sim_configure(uint32_t seed, unsigned stall_percent, unsigned modes)
{
    pthread_mutex_lock(&registry_lock);
    config_seed = seed;
    config_stall_percent = stall_percent;
    config_modes = modes;
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

/* Makes zeroed memory with an address of its own, and enters it in the registry. NULL: no memory. */
static struct sim_memory *memory_new(const struct um_machine *machine, uint64_t magic, size_t size, int wake_fd)
{
    struct sim_memory *m = calloc(1, sizeof(*m));
    void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!m || base == MAP_FAILED) {
        free(m);
        return NULL;
    }
    madvise(base, size, MADV_NOHUGEPAGE); /* pages are taken one by one, as in shared memory */
    pthread_mutex_lock(&registry_lock);
    uint64_t number = next_number++;
    *m = (struct sim_memory){.base = base, .size = size, .references = 1, .wake_fd = wake_fd};
    m->addr = (struct um_addr){.word = {magic | um_addr_header(machine), number, number * 0x9e3779b97f4a7c15u | 1}};
    um_list_append(&registry, &m->node);
    pthread_mutex_unlock(&registry_lock);
    return m;
}

static int sim_create(struct um_mem_port *port, size_t size)
{
    struct sim_port *state = calloc(1, sizeof(*state));
    struct sim_memory *m = state ? memory_new(port->port.machine, UM_SIM_MAGIC, size, port->wait_write) : NULL;
    if (!m) {
        free(state);
        return -ENOMEM;
    }
    port->mapper_state = state;
    *state = (struct sim_port){
        .memory = m,
        .random = (config_seed + m->addr.word[1]) * 0x9e3779b97f4a7c15u | 1,
        .stall_percent = config_stall_percent,
        .is_slow = config_modes & UM_SIM_SLOW,
        .evicts = config_modes & UM_SIM_EVICT,
    };
    um_list_init(&state->transfers);
    um_list_init(&state->views);
    port->memory = m->base;
    port->addr = m->addr;
    port->fence = true;
    return 0;
}

static void sim_destroy(struct um_mem_port *port)
{
    struct sim_port *state = port->mapper_state;
    if (!um_list_is_empty(&state->transfers)) {
        um_log(UM_LOG_WARN, "sim: a port closes, and transfers of it are under way");
        abort(); /* a mistake of the caller: an engine would go on writing memory */
    }
    if (state->own)
        um_sim_view_end(state->own);
    pthread_mutex_lock(&registry_lock);
    state->memory->wake_fd = -1;
    memory_unref(state->memory);
    pthread_mutex_unlock(&registry_lock);
    free(state);
}

static int sim_space_create(struct um_mem_space *space)
{
    struct sim_memory *m = memory_new(space->base.machine, UM_SIM_SPACE_MAGIC, UM_SPACE_SIZE, 0);
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

/* Nothing is to be done: every port reaches all memory. */
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

/* Each port stands for a process of its own. */
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
    int ret = um_addr_header_check(port->port.machine, addr, is_last);
    return ret ? ret : um_addr_word(addr, 0) == UM_SIM_MAGIC && addr->word[1] != 0 ? 0 : -EPROTO;
}

/* Maps a part of the memory, and takes a reference. Lock held. */
static int memory_map(struct sim_memory *m, size_t offset, size_t len, struct um_mem_mapping *map_p)
{
    if (!m || offset + len > m->size)
        return -ECONNREFUSED;
    m->references++;
    *map_p = (struct um_mem_mapping){.base = (unsigned char *)m->base + offset, .len = len};
    return 0;
}

static int sim_attach(struct um_mem_port *port, const struct um_addr *addr, size_t offset, size_t len,
                      struct um_mem_mapping *map_p)
{
    (void)port;
    pthread_mutex_lock(&registry_lock);
    struct sim_memory *m = registry_find(addr);
    int ret = m && m->wake_fd >= 0 ? memory_map(m, offset, len, map_p) : -ECONNREFUSED;
    pthread_mutex_unlock(&registry_lock);
    return ret;
}

static bool sim_is_shareable(struct um_mem_space *space, uint64_t base, uint64_t len, struct um_mem_place *place_p)
{
    (void)space, (void)base, (void)len;
    *place_p = (struct um_mem_place){0};
    return config_modes & UM_SIM_SHAREABLE;
}

/* Maps memory of a peer: every port reaches it at its own address. */
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
    if (map->state) {
        um_sim_view_end(map->state);
        map->base = map->coherent;
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
    *handle_p = 0; /* sim_wake() looks the port up with every call */
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
        ssize_t written = write(m->wake_fd, &byte, 1); /* full: it wakes already */
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

/* ---- memory that is not coherent: the same, with views of it (stale.c) ---- */

static int stale_create(struct um_mem_port *port, size_t size)
{
    int ret = sim_create(port, size);
    if (ret)
        return ret;
    struct sim_port *state = port->mapper_state;
    state->own = um_sim_view_new(
        state, &(struct um_sim_part){.memory = port->memory, .len = size, .size = size, .is_own = true});
    if (!state->own) {
        sim_destroy(port);
        return -ENOMEM;
    }
    port->coherent = port->memory;
    port->memory = um_sim_view_base(state->own);
    return 0;
}

static void stale_punch(struct um_mem_port *port, size_t offset, size_t len)
{
    um_sim_view_clear(((struct sim_port *)port->mapper_state)->own, offset, len);
}

static int stale_attach(struct um_mem_port *port, const struct um_addr *addr, size_t offset, size_t len,
                        struct um_mem_mapping *map_p)
{
    struct um_mem_mapping map;
    struct um_sim_part part = {.offset = offset, .len = len};
    pthread_mutex_lock(&registry_lock);
    /* Memory of a closed port is found, too, as on a device: only its state tells that it is closed. */
    struct sim_memory *m = registry_find(addr);
    int ret = memory_map(m, offset, len, &map);
    if (ret == 0)
        part.size = m->size;
    pthread_mutex_unlock(&registry_lock);
    if (ret)
        return ret;
    part.memory = map.base;
    map.coherent = map.base;
    map.state = um_sim_view_new(port->mapper_state, &part);
    if (!map.state) {
        sim_detach(&map);
        return -ENOMEM;
    }
    map.base = um_sim_view_base(map.state);
    *map_p = map;
    return 0;
}

/* Publishes nothing for a dead port: what a dead process had in its cache reaches nobody. */
static void stale_publish(struct um_mem_port *port, const void *at, size_t len)
{
    if (sim_alive(port, &port->addr, NULL))
        um_sim_publish(port, at, len);
}

static void stale_observe(struct um_mem_port *port, const void *at, size_t len)
{
    struct sim_port *state = port->mapper_state;
    state->evicts = state->evicts && sim_alive(port, &port->addr, NULL);
    um_sim_observe(port, at, len);
}

/* In both modes. */
#define SIM_MAPPER_OPS                                                                                                 \
    .destroy = sim_destroy, .space_create = sim_space_create, .space_destroy = sim_space_destroy,                      \
    .space_attach = sim_space_attach, .window_attach = sim_window_attach, .is_own = sim_is_own,                        \
    .addr_check = sim_addr_check, .detach = sim_detach, .alive = sim_alive, .sender_alive = sim_sender_alive,          \
    .sender_word = sim_sender_word, .wake_open = sim_wake_open, .wake = sim_wake, .wake_drop = sim_wake_drop,          \
    .copy = sim_copy

static const struct um_mem_mapper sim_mapper = {
    .create = sim_create,
    .punch = sim_punch,
    .attach = sim_attach,
    .adopt = sim_adopt,
    .disown = sim_disown,
    .is_shareable = sim_is_shareable,
    .memory_attach = sim_memory_attach,
    SIM_MAPPER_OPS,
};

static const struct um_mem_mapper stale_mapper = {
    .create = stale_create,
    .punch = stale_punch,
    .attach = stale_attach,
    .publish = stale_publish,
    .observe = stale_observe,
    SIM_MAPPER_OPS,
};

const struct um_mem_mapper *um_sim_mapper(void)
{
    return config_modes & UM_SIM_STALE ? &stale_mapper : &sim_mapper;
}
