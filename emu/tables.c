/* emu/server.h: the tables of contexts, mailboxes and areas. Any program can send requests: every number in them is
 * checked. */
#include "emu/copy.h"
#include "emu/server.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

/* Makes memory without a name whose size nobody can change. Returns a descriptor or a negative errno. */
static int memory_new(const char *what, uint64_t size)
{
    int fd = memfd_create(what, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    if (ftruncate(fd, (off_t)size) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0) {
        int ret = -errno;
        close(fd);
        return ret;
    }
    return fd;
}

static int locks_init(struct emu_board_shm *shm)
{
    int ret = emu_lock_init(&shm->tables);
    for (int i = 0; i < EMU_NODES && !ret; i++)
        ret = emu_lock_init(&shm->nodes[i].lock);
    for (int i = 0; i < EMU_MAILBOXES && !ret; i++)
        ret = emu_lock_init(&shm->mailboxes[i].lock);
    return ret;
}

int emu_server_init(struct emu_server *server, const struct emu_params *params)
{
    size_t size = emu_board_size(params);
    server->shm_fd = memory_new("unimem-board", size);
    if (server->shm_fd < 0)
        return server->shm_fd;
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, server->shm_fd, 0);
    if (map == MAP_FAILED)
        return -errno;
    server->shm = map;
    server->shm->magic = EMU_MAGIC;
    server->shm->version = EMU_VERSION;
    server->shm->size = size;
    server->shm->params = *params;
    if (getrandom(&server->shm->tag, sizeof(server->shm->tag), 0) != sizeof(server->shm->tag))
        return -EIO;
    return locks_init(server->shm);
}

/* Returns the node with the fewest contexts. */
static uint32_t node_choose(const struct emu_server *server)
{
    uint32_t count[EMU_NODES] = {0}, best = 0;
    for (int i = 0; i < EMU_CONTEXTS; i++)
        if (server->contexts[i])
            count[server->nodes[i]]++;
    for (uint32_t node = 1; node < server->shm->params.nodes; node++)
        if (count[node] < count[best])
            best = node;
    return best;
}

/* Prepares a new context for virtual time, which it joins with its first call. */
static void time_new(struct emu_board_shm *shm, uint32_t slot, pid_t pid)
{
    struct emu_time_shm *time = &shm->times[slot];
    *time = (struct emu_time_shm){.process = (uint64_t)pid};
    __atomic_store_n(&time->word, EMU_TIME_AWAY, __ATOMIC_SEQ_CST);
    if (slot >= shm->contexts_end)
        __atomic_store_n(&shm->contexts_end, slot + 1, __ATOMIC_SEQ_CST);
}

void emu_server_hello(struct emu_server *server, uint32_t node, pid_t pid, struct emu_reply_wire *reply_p)
{
    uint32_t slot = 0;
    while (slot < EMU_CONTEXTS && server->contexts[slot])
        slot++;
    if (slot == EMU_CONTEXTS || (node != UNIMEM_NODE_ANY && node >= server->shm->params.nodes)) {
        reply_p->status = slot == EMU_CONTEXTS ? -EBUSY : -EINVAL;
        return;
    }
    if (node == UNIMEM_NODE_ANY)
        node = node_choose(server);
    /* 22 bits of generation, from 1 on: the number of a context is never 0, and not all ones during the life of a
     * board. */
    uint32_t context = ++server->context_generations[slot] << EMU_CONTEXT_BITS | slot;
    server->contexts[slot] = context;
    server->nodes[slot] = node;
    server->dmable[slot] = 0;
    time_new(server->shm, slot, pid);
    emu_lock_take(&server->shm->tables);
    server->shm->context_nodes[slot] = node;
    server->shm->contexts[slot] = context;
    emu_lock_give(&server->shm->tables);
    reply_p->first = context;
    reply_p->second = node;
}

static void area_end(struct emu_server *server, uint32_t slot)
{
    struct emu_area_entry *area = &server->areas[slot];
    emu_lock_take(&server->shm->tables);
    server->shm->areas[slot] = 0;
    emu_lock_give(&server->shm->tables);
    server->dmable[emu_slot(area->context)] -= area->len;
    if (area->map)
        munmap(area->map, area->len);
    close(area->fd);
    *area = (struct emu_area_entry){.generation = area->generation};
}

static void mailbox_end(struct emu_server *server, uint32_t number)
{
    struct emu_mailbox_shm *mailbox = &server->shm->mailboxes[number];
    emu_lock_take(&mailbox->lock);
    mailbox->generation = 0;
    emu_lock_give(&mailbox->lock);
    server->mailboxes[number] = 0;
}

void emu_server_context_end(struct emu_server *server, uint32_t context)
{
    uint32_t slot = emu_slot(context);
    emu_lock_take(&server->shm->tables);
    server->shm->contexts[slot] = 0;
    emu_lock_give(&server->shm->tables);
    __atomic_store_n(&server->shm->times[slot].word, 0, __ATOMIC_SEQ_CST);
    for (uint32_t i = 0; i < EMU_MAILBOXES; i++)
        if (server->mailboxes[i] == context)
            mailbox_end(server, i);
    for (uint32_t i = 0; i < EMU_AREAS; i++)
        if (server->areas[i].context == context)
            area_end(server, i);
    server->contexts[slot] = 0;
}

/* ---- requests ---- */

static int op_alloc(struct emu_server *server, uint32_t context, const struct emu_request_wire *request,
                    struct emu_reply_wire *reply_p)
{
    const struct emu_params *params = &server->shm->params;
    uint64_t *has = &server->dmable[emu_slot(context)], len = request->len;
    uint32_t slot = 0;
    while (slot < EMU_AREAS && server->areas[slot].context)
        slot++;
    if (!len || len % (uint64_t)getpagesize() || request->address > UINT64_MAX - len)
        return -EINVAL;
    if (slot == EMU_AREAS || len > params->dmable_max || *has > params->dmable_max - len)
        return -ENOSPC;
    struct emu_area_entry area = {
        context, server->areas[slot].generation + 1, memory_new("unimem-dmable", len), request->address, len, NULL};
    if (area.fd < 0)
        return area.fd;
    if (params->engine == EMU_ENGINE_SERVER) {
        void *map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, area.fd, 0);
        if (map == MAP_FAILED) {
            close(area.fd);
            return -ENOMEM;
        }
        area.map = map;
    }
    server->areas[slot] = area;
    *has += len;
    emu_lock_take(&server->shm->tables);
    server->shm->areas[slot] = area.generation;
    emu_lock_give(&server->shm->tables);
    reply_p->first = slot;
    reply_p->second = area.generation;
    return 0;
}

static struct emu_area_entry *area_of(struct emu_server *server, const struct emu_request_wire *request)
{
    struct emu_area_entry *area = request->first < EMU_AREAS ? &server->areas[request->first] : NULL;
    return area && area->context && area->generation == request->second ? area : NULL;
}

/* Returns the area of a context in which len bytes at an address lie, or NULL. */
static struct emu_area_entry *area_find(struct emu_server *server, uint32_t context, uint64_t address, uint64_t len)
{
    for (uint32_t i = 0; i < EMU_AREAS; i++) {
        struct emu_area_entry *area = &server->areas[i];
        if (area->context == context && address >= area->address && address - area->address <= area->len &&
            len <= area->len - (address - area->address))
            return area;
    }
    return NULL;
}

static int op_mailbox_open(struct emu_server *server, uint32_t context, struct emu_reply_wire *reply_p)
{
    uint32_t number = 0;
    while (number < EMU_MAILBOXES && server->mailboxes[number])
        number++;
    if (number == EMU_MAILBOXES)
        return -ENOSPC;
    struct emu_mailbox_shm *mailbox = &server->shm->mailboxes[number];
    server->mailboxes[number] = context;
    uint32_t generation = ++server->mailbox_generations[number];
    emu_lock_take(&mailbox->lock);
    mailbox->generation = generation;
    mailbox->context = context;
    mailbox->node = server->nodes[emu_slot(context)];
    mailbox->armed = 0;
    mailbox->head = mailbox->tail = 0;
    emu_lock_give(&mailbox->lock);
    reply_p->first = number;
    reply_p->second = generation;
    return 0;
}

static int op_mailbox_close(struct emu_server *server, uint32_t context, const struct emu_request_wire *request)
{
    uint32_t number = request->first;
    if (number >= EMU_MAILBOXES || server->mailboxes[number] != context ||
        server->mailbox_generations[number] != request->second)
        return -ENXIO;
    mailbox_end(server, number);
    return 0;
}

static int op_find(struct emu_server *server, const struct emu_request_wire *request, struct emu_reply_wire *reply_p)
{
    uint32_t slot = emu_slot(request->context);
    if (!request->context || server->contexts[slot] != request->context || server->nodes[slot] != request->node)
        return -ENXIO;
    struct emu_area_entry *area = area_find(server, request->context, request->address, request->len);
    if (!area)
        return -EFAULT;
    reply_p->first = (uint32_t)(area - server->areas);
    reply_p->second = area->generation;
    reply_p->offset = request->address - area->address;
    return 0;
}

static int op_move(struct emu_server *server, uint32_t context, const struct emu_request_wire *request)
{
    struct emu_area_entry *remote = area_of(server, request);
    struct emu_area_entry *local = area_find(server, context, request->address, request->len);
    if (!remote || !local || request->offset > remote->len || request->len > remote->len - request->offset)
        return -EFAULT;
    unsigned char *there = remote->map + request->offset, *here = local->map + (request->address - local->address);
    if (request->op == EMU_OP_WRITE)
        emu_copy_backwards(there, here, request->len);
    else
        emu_copy_backwards(here, there, request->len);
    return 0;
}

int emu_server_answer(struct emu_server *server, uint32_t context, const struct emu_request_wire *request,
                      struct emu_reply_wire *reply_p)
{
    bool by_server = server->shm->params.engine == EMU_ENGINE_SERVER;
    struct emu_area_entry *area;
    switch (request->op) {
    case EMU_OP_ALLOC:
        reply_p->status = op_alloc(server, context, request, reply_p);
        return reply_p->status ? -1 : server->areas[reply_p->first].fd;
    case EMU_OP_FREE:
        area = area_of(server, request);
        reply_p->status = area && area->context == context ? 0 : -EINVAL;
        if (!reply_p->status)
            area_end(server, request->first);
        return -1;
    case EMU_OP_MAILBOX_OPEN:
        reply_p->status = op_mailbox_open(server, context, reply_p);
        return -1;
    case EMU_OP_MAILBOX_CLOSE:
        reply_p->status = op_mailbox_close(server, context, request);
        return -1;
    case EMU_OP_FIND:
        reply_p->status = op_find(server, request, reply_p);
        return reply_p->status || by_server ? -1 : server->areas[reply_p->first].fd;
    case EMU_OP_WRITE:
    case EMU_OP_READ:
        reply_p->status = by_server ? op_move(server, context, request) : -EPERM;
        return -1;
    default:
        reply_p->status = -EPROTO;
        return -1;
    }
}
