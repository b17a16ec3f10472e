/*
 * Memory of one host: a sealed memfd that peers open through /proc/PID/fd; wake-ups through a pipe opened likewise.
 *
 * Nothing has a name in any file system, so nothing stays behind however the processes end, and a full or read-only
 * /dev/shm does not matter. Sources: memfd_create(2), membarrier(2), proc(5). Threading: machine.h.
 */
#include "machine/shm/contact/contact.h"

#include "machine/machines.h"

#include "base/atomic.h"
#include "base/cancel.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Registers this process for global expedited barriers. False when the kernel cannot or may not. */
static bool barrier_register(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

static void shm_barrier(void)
{
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) != 0)
        um_fence_full(); /* sync: none (refused: our half of what the callers label; the peers fence, want_fence) */
}

static void addr_fill(struct um_mem_port *port, const struct um_shm_self *self)
{
    const struct um_shm_port *state = port->mapper_state;
    struct um_shm_addr addr = {
        .version = UM_ADDR_VERSION,
        .kinds = UM_ADDR_SHM,
        .partition = port->config.partition,
        .boot = self->boot,
        .process = um_shm_process(self->pid, self->start),
        .memory_fd = (uint16_t)state->memory_fd,
        .pid_space = self->pid_space,
        .nonce = *state->nonce,
    };
    memcpy(port->addr.word, &addr, sizeof(addr));
    port->wake = (uint32_t)port->wait_write;
    port->nonce_at = (uint64_t)(uintptr_t)state->nonce;
}

/* Makes the port's memory file and maps it. 0, or an error already logged. */
static int port_memory_map(struct um_mem_port *port, struct um_shm_port *state)
{
    int fd = um_shm_memory_create(state->size);
    if (fd < 0)
        return fd;
    const char *why;
    unsigned char *base = um_shm_map(state->size, PROT_READ | PROT_WRITE, fd, 0, &why);
    if (!base) {
        um_log(
            UM_LOG_WARN,
            "cannot map %zu bytes of address space: %s; or lower FI_UNIMEM_LANES (not below the number of processes)",
            state->size, why);
        close(fd);
        return -ENOMEM;
    }
    /* A forked child must not touch the lanes: it is not the endpoint. */
    madvise(base, state->size, MADV_DONTFORK);
    state->memory_fd = fd;
    port->memory = base;
    return 0;
}

/* Asks the system for what then holds for the whole process. */
static void process_prepare(struct um_mem_port *port)
{
    port->fence = !barrier_register();
    if (port->fence)
        um_log(UM_LOG_INFO, "membarrier is refused here: every message pays a fence (about 8 ns)");
    /* Yama's mode 1 refuses process_vm_* between siblings unless the process that is read consents (EINVAL: there is no
     * Yama). */
    if (port->config.private_copy)
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

/*
 * The nonce has a page of its own: beside something else it could lie in memory that the program registers, and a peer
 * that cannot read it while that memory moves would take this process for another one. Read-only, so that the system
 * does not merge the page with a mapping of the program.
 */
static uint64_t *nonce_open(void)
{
    const size_t size = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return NULL;
    *(uint64_t *)page = um_shm_nonce();
    (void)mprotect(page, size, PROT_READ);
    return page;
}

static void nonce_close(uint64_t *nonce)
{
    if (nonce) /* a peer that reads there from now on does not find this port */
        munmap(nonce, (size_t)sysconf(_SC_PAGESIZE));
}

static int shm_create(struct um_mem_port *port, size_t size)
{
    UM_UNCANCELLED;
    struct um_shm_self self;
    int ret = um_shm_self_get(&self);
    if (ret)
        return ret;
    struct um_shm_port *state = calloc(1, sizeof(*state));
    if (!state)
        return -ENOMEM;
    state->size = size;
    state->nonce = nonce_open();
    ret = state->nonce ? port_memory_map(port, state) : -ENOMEM;
    if (ret)
        goto free_state;
    process_prepare(port);
    port->mapper_state = state;
    addr_fill(port, &self);
    ret = port->config.attach[0] ? um_shm_contacts_open(port, &state->contacts) : 0;
    if (ret)
        goto unmap_memory;
    return 0;

unmap_memory:
    munmap(port->memory, size);
    close(state->memory_fd);
free_state:
    nonce_close(state->nonce);
    free(state);
    return ret;
}

static void shm_destroy(struct um_mem_port *port)
{
    UM_UNCANCELLED;
    struct um_shm_port *state = port->mapper_state;
    if (state->contacts)
        um_shm_contacts_close(state->contacts);
    munmap(port->memory, state->size);
    close(state->memory_fd);
    nonce_close(state->nonce);
    um_shm_detour_end(&state->detour);
    free(state);
}

static void shm_punch(struct um_mem_port *port, size_t offset, size_t len)
{
    UM_UNCANCELLED;
    const struct um_shm_port *state = port->mapper_state;
    if (fallocate(state->memory_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)len) != 0)
        memset(port->memory + offset, 0, len);
}

static int shm_attach(struct um_mem_port *port, const struct um_addr *addr, size_t offset, size_t len,
                      struct um_mem_mapping *map_p)
{
    const struct um_shm_part part = {.offset = offset, .len = len};
    const struct um_shm_file file = {.number = um_shm_addr_of(addr)->memory_fd, .passed = UM_CONTACT_MEMORY};
    return um_shm_peer_map(port, addr, &file, &part, map_p);
}

static uint64_t shm_sender_word(const struct um_mem_port *port, const struct um_addr *addr)
{
    struct um_shm_contact *c;
    if (!um_shm_is_apart(port, addr))
        return (uint64_t)um_shm_pid(um_shm_addr_of(&port->addr)) << 32 | UM_SHM_SENDER_PID;
    /* The peer was attached a moment ago. Number 0 is no contact's: with it the peer frees the lane again. */
    bool known = um_shm_contact_get(((struct um_shm_port *)port->mapper_state)->contacts, addr, &c) == 0;
    return (uint64_t)(known ? c->own : 0) << 32 | UM_SHM_SENDER_CONTACT;
}

static void shm_serve(struct um_mem_port *port)
{
    struct um_shm_contacts *contacts = ((struct um_shm_port *)port->mapper_state)->contacts;
    if (contacts)
        um_shm_contacts_serve(contacts);
}

static int shm_wake_open(struct um_mem_port *port, const struct um_addr *addr, uint32_t wake, int *handle_p)
{
    static struct um_log_limit limit;
    int fd = um_shm_alive(port, addr, NULL) ? um_shm_peer_pipe_open(port, addr, wake) : -ESRCH;
    if (fd < 0) {
        um_log_limited(&limit, UM_LOG_INFO,
                       "cannot open the wake-up pipe of process %u: %s; it wakes by its own timeout",
                       um_shm_pid(um_shm_addr_of(addr)), strerror(-fd));
        return fd;
    }
    *handle_p = fd;
    return 0;
}

static void shm_wake(struct um_mem_port *port, const struct um_addr *addr, int handle)
{
    UM_UNCANCELLED;
    char byte = 0;
    (void)port, (void)addr;
    ssize_t written = write(handle, &byte, 1); /* a full pipe: the peer is awake already */
    (void)written;
}

static void shm_wake_drop(int handle)
{
    UM_UNCANCELLED;
    if (handle >= 0)
        close(handle);
}

static const struct um_mem_mapper shm_mapper = {
    .create = shm_create,
    .destroy = shm_destroy,
    .punch = shm_punch,
    .space_create = um_shm_space_create,
    .space_destroy = um_shm_space_destroy,
    .is_shareable = um_shm_is_shareable,
    .memory_attach = um_shm_memory_attach,
    .adopt = um_shm_space_adopt,
    .disown = um_shm_disown,
    .can_wait = um_shm_can_wait,
    .adopt_more = um_shm_space_adopt_more,
    .partial_end = um_shm_partial_end,
    .contents = um_shm_contents,
    .share = um_shm_share,
    .unshare = um_shm_unshare,
    .space_attach = um_shm_space_attach,
    .window_attach = um_shm_window_attach,
    .is_own = um_shm_is_own,
    .is_apart = um_shm_is_apart,
    .serve = shm_serve,
    .addr_check = um_shm_addr_check,
    .is_here = um_shm_is_here,
    .attach = shm_attach,
    .detach = um_shm_detach,
    .alive = um_shm_alive,
    .sender_alive = um_shm_sender_alive,
    .sender_word = shm_sender_word,
    .wake_open = shm_wake_open,
    .wake = shm_wake,
    .wake_drop = shm_wake_drop,
    .copy = um_shm_copy,
    .barrier = shm_barrier,
};

static int shm_port_open(const struct um_port_config *config, struct um_port **port_p)
{
    return um_mem_port_open(&um_machine_shm, &shm_mapper, config, port_p);
}

static int shm_space_open(const struct um_space_config *config, struct um_space **space_p)
{
    return um_mem_space_open(&um_machine_shm, &shm_mapper, config, space_p);
}

static const struct um_machine_param shm_params[] = {
    {.key = "shm_stores",
     .help =
         "Which stores write bodies of 2048 bytes and more into shared memory. Allowed: cached, ordinary ones, which "
         "are faster where the two processors share a cache; nontemporal, which bypass the caches and are faster "
         "where they share none; auto, whichever takes less time (default: auto)",
     .allowed = "auto, cached or nontemporal",
     .set = um_mem_set_stores},
};

const struct um_machine um_machine_shm = {
    .name = "shm",
    .about = "the memory of this host",
    .params = shm_params,
    .params_count = sizeof(shm_params) / sizeof(shm_params[0]),
    .addr_kind = UM_ADDR_SHM,
    .space_open = shm_space_open,
    .port_open = shm_port_open,
    .claim = um_mem_claim,
    .claim_message = um_mem_claim_message,
    .lane_has_room = um_mem_lane_has_room,
    .poll = um_mem_poll,
    .unexport = um_mem_unexport,
    .lane_consumed = um_mem_lane_consumed,
    .lane_reap = um_mem_lane_reap,
    .transfer_start = um_mem_transfer_start,
    UM_MEM_MACHINE_OPS,
    UM_MEM_WAKE_OPS,
};
