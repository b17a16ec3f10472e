/* Opens and closes handles, sends their requests to the server, and handles fork(): a child has no handles. */
#include "emu/board.h"

#include "emu/connect.h"
#include "emu/emu.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* A board whose last context ends while this one connects ends, too. Another try, a millisecond later, starts a new
 * board. */
enum { OPEN_TRIES = 3000 };

/* ---- requests ---- */

/* Sends a request and takes the reply. 0 or -EIO. */
static int converse(int fd, const struct emu_request_wire *request, struct emu_reply_wire *reply_p, int *passed_p)
{
    struct iovec iov = {reply_p, sizeof(*reply_p)};
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
    ssize_t n;
    *passed_p = -1;
    do
        n = send(fd, request, sizeof(*request), MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n != sizeof(*request))
        return -EIO;
    do
        n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n != sizeof(*reply_p))
        return -EIO;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
        memcpy(passed_p, CMSG_DATA(header), sizeof(int));
    return 0;
}

int emu_request(struct unimem_board *board, const struct emu_request_wire *request, struct emu_reply_wire *reply_p,
                int *passed_p)
{
    *passed_p = -1;
    if (!board->failed && converse(board->fd, request, reply_p, passed_p))
        board->failed = true;
    return board->failed ? -EIO : 0;
}

int emu_ask(struct unimem_board *board, const struct emu_request_wire *request, struct emu_reply_wire *reply_p)
{
    int passed;
    pthread_mutex_lock(&board->lock);
    int ret = emu_request(board, request, reply_p, &passed);
    pthread_mutex_unlock(&board->lock);
    if (passed >= 0)
        close(passed);
    return ret ? ret : reply_p->status;
}

/* ---- open ---- */

static bool name_is_good(const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("._-", name[i]))
            return false;
    return len >= 1 && len <= 63;
}

/* Says hello to the server: gets the context, and maps the board's memory. */
static int hello(struct unimem_board *board, uint32_t node)
{
    struct emu_request_wire request = {.op = EMU_OP_HELLO, .node = node};
    struct emu_reply_wire reply;
    struct emu_board_shm *shm;
    int passed, ret = converse(board->fd, &request, &reply, &passed);
    if (ret || reply.status || passed < 0) {
        if (passed >= 0)
            close(passed);
        return ret ? ret : reply.status ? reply.status : -EMFILE; /* no place here: the kernel dropped the descriptor */
    }
    off_t size = lseek(passed, 0, SEEK_END);
    shm = size < (off_t)sizeof(*shm) ? MAP_FAILED
                                     : mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, passed, 0);
    close(passed);
    if (shm == MAP_FAILED)
        return -ENOMEM;
    if (shm->magic != EMU_MAGIC || shm->version != EMU_VERSION || shm->size != (uint64_t)size) {
        munmap(shm, (size_t)size);
        return -EPROTO;
    }
    madvise(shm, (size_t)size, MADV_DONTFORK);
    board->shm = shm;
    board->params = &shm->params;
    board->context = reply.first;
    board->node = reply.second;
    return 0;
}

static int meet_server(struct unimem_board *board, const char *name, uint32_t node)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    int ret = -EIO;
    for (int i = 0; i < OPEN_TRIES && ret == -EIO; i++) {
        board->fd = emu_server_connect(name);
        if (board->fd < 0)
            return board->fd;
        ret = hello(board, node);
        if (ret)
            close(board->fd);
        if (ret == -EIO)
            nanosleep(&pause, NULL);
    }
    return ret;
}

/* ---- fork ---- */

static struct unimem_board *opened_last; /* for unimem_emu_now() */
static struct unimem_board *boards;      /* all boards of this process */
static pthread_mutex_t boards_lock = PTHREAD_MUTEX_INITIALIZER;

static void before_fork(void)
{
    pthread_mutex_lock(&boards_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&boards_lock);
}

/* A child has no handles. It closes the connections of its parent, or the parent would seem to live after its end. */
static void begin_child(void)
{
    for (struct unimem_board *board = boards; board; board = board->next) {
        close(board->fd);
        close(board->interrupt_fd);
        board->fd = board->interrupt_fd = -1;
        board->failed = true;
    }
    boards = opened_last = NULL;
    pthread_mutex_unlock(&boards_lock);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork, begin_child);
}

static void boards_add(struct unimem_board *board)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&boards_lock);
    board->next = boards;
    boards = opened_last = board;
    pthread_mutex_unlock(&boards_lock);
}

/* Removes a board, and with it its descriptors, so that no child closes other files that get their numbers later. */
static void boards_remove(struct unimem_board *board)
{
    pthread_mutex_lock(&boards_lock);
    struct unimem_board **link = &boards;
    while (*link && *link != board)
        link = &(*link)->next;
    if (*link)
        *link = board->next;
    if (opened_last == board)
        opened_last = NULL;
    pthread_mutex_unlock(&boards_lock);
}

/* ---- open and close ---- */

int unimem_open(const char *name, uint32_t node, struct unimem_board **board_p)
{
    if (!name)
        name = getenv("UNIMEM_BOARD");
    if (!name || !*name)
        name = "board";
    if (!name_is_good(name))
        return -EINVAL;
    struct unimem_board *board = calloc(1, sizeof(*board));
    if (!board)
        return -ENOMEM;
    int ret = meet_server(board, name, node);
    if (ret)
        goto free_board;
    board->registrations = calloc(board->params->registrations_max, sizeof(*board->registrations));
    board->flights = calloc(board->params->dma_depth, sizeof(*board->flights));
    board->interrupt_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (!board->registrations || !board->flights || board->interrupt_fd < 0) {
        ret = board->interrupt_fd < 0 ? -errno : -ENOMEM;
        goto leave_server;
    }
    pthread_mutex_init(&board->lock, NULL);
    emu_clock_init(&board->clock, board->shm, board->context);
    boards_add(board);
    *board_p = board;
    return 0;

leave_server:
    if (board->interrupt_fd >= 0)
        close(board->interrupt_fd);
    free(board->flights);
    free(board->registrations);
    munmap(board->shm, board->shm->size);
    close(board->fd);
free_board:
    free(board);
    return ret;
}

void unimem_close(struct unimem_board *board)
{
    struct emu_request_wire request = {.op = EMU_OP_END};
    struct emu_reply_wire reply;
    emu_ask(board, &request, &reply);
    boards_remove(board);
    emu_mailboxes_fini(board);
    emu_memory_fini(board);
    emu_clock_fini(&board->clock);
    pthread_mutex_destroy(&board->lock);
    close(board->interrupt_fd);
    free(board->flights);
    free(board->registrations);
    munmap(board->shm, board->shm->size);
    close(board->fd);
    free(board);
}

/* ---- queries ---- */

uint32_t unimem_version(void)
{
    return UNIMEM_API_VERSION;
}

void unimem_get_info(const struct unimem_board *board, struct unimem_info *info_p)
{
    const struct emu_params *params = board->params;
    *info_p = (struct unimem_info){.node = board->node,
                                   .context = board->context,
                                   .nodes = (uint32_t)params->nodes,
                                   .mailbox_depth = (uint32_t)params->mailbox_depth,
                                   .dma_depth = (uint32_t)params->dma_depth,
                                   .registrations_max = (uint32_t)params->registrations_max,
                                   .dma_size_max = params->dma_size_max,
                                   .dmable_max = params->dmable_max};
}

bool emu_context_lives(struct unimem_board *board, uint32_t node, uint32_t context)
{
    uint32_t slot = emu_slot(context);
    emu_lock_take(&board->shm->tables);
    bool lives = context && board->shm->contexts[slot] == context && board->shm->context_nodes[slot] == node;
    emu_lock_give(&board->shm->tables);
    return lives;
}

/* True if the server is there. Only the server knows which contexts live: without it the answer is unknown. */
static bool server_is_there(struct unimem_board *board)
{
    char byte;
    pthread_mutex_lock(&board->lock);
    if (!board->failed) {
        ssize_t n = recv(board->fd, &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT);
        board->failed = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    }
    bool is = !board->failed;
    pthread_mutex_unlock(&board->lock);
    return is;
}

int unimem_context_alive(struct unimem_board *board, uint32_t node, uint32_t context)
{
    if (node >= board->params->nodes)
        return -EINVAL;
    return server_is_there(board) ? emu_context_lives(board, node, context) : -EIO;
}

/* ---- emu/emu.h ---- */

void unimem_emu_get_params(const struct unimem_board *board, struct emu_params *params_p)
{
    if (!board)
        board = opened_last;
    *params_p = board ? *board->params : (struct emu_params){0};
}

uint64_t unimem_emu_now(struct unimem_board *board)
{
    if (!board)
        board = opened_last;
    return !board ? 0 : emu_clock_now(&board->clock);
}

void unimem_emu_compute(struct unimem_board *board, uint64_t ns)
{
    if (!board)
        board = opened_last;
    if (board)
        emu_clock_end(&board->clock, emu_clock_begin(&board->clock), ns);
}

uint64_t unimem_emu_given_up(struct unimem_board *board)
{
    if (!board)
        board = opened_last;
    return board ? __atomic_load_n(&board->shm->given_up, __ATOMIC_SEQ_CST) : 0;
}
