/*
 * Inside libunimem.so: what a handle holds. board.c opens and ends it and talks to the server; mailbox.c, memory.c,
 * dma.c implement the parts of the API.
 *
 * Threading: `lock` guards the members below it, and the connection; the clock has its own lock; mailboxes lie in the
 * board's memory under their own locks. Order: `lock`, then a lock in the board's memory.
 */
#ifndef UNIMEM_EMU_BOARD_H
#define UNIMEM_EMU_BOARD_H

#include "emu/clock.h"
#include "emu/timing.h"

#include <stdbool.h>

/* One allocation of this context. */
struct emu_area {
    unsigned char *base; /* NULL: free */
    size_t len;
    uint32_t slot, generation; /* how the server names it */
    uint32_t flights;          /* DMAs that use it */
};

/* An entry of the translation table. */
struct emu_registration {
    struct unimem_remote at;
    uint64_t len;              /* 0: free */
    uint32_t slot, generation; /* of the area that it lies in */
    uint64_t offset;
    unsigned char *base; /* its first byte in this process; NULL with the server's engine */
    uint32_t flights;
};

struct emu_flight {
    bool used, polled;
    bool write;
    uint32_t generation;
    struct emu_registration *remote;
    uint64_t offset; /* of the remote bytes in their area */
    struct emu_area *local_area;
    unsigned char *local;
    size_t len;
    uint64_t done; /* the time at which it is done */
};

struct unimem_board {
    struct unimem_board *next; /* in the list of the process, which has its own lock */
    int fd;                    /* connection to the server */
    int interrupt_fd;          /* sends interrupts */
    struct emu_board_shm *shm;
    const struct emu_params *params;
    uint32_t node, context;
    struct emu_clock clock;
    pthread_mutex_t lock;
    bool failed;                      /* the server does not answer */
    struct unimem_mailbox *mailboxes; /* a list */
    struct emu_area areas[EMU_AREAS];
    uint32_t areas_end;                     /* 1 above the last one in use */
    struct emu_registration *registrations; /* params->registrations_max entries */
    uint32_t registrations_end;
    struct emu_flight *flights; /* params->dma_depth entries */
    uint32_t flights_end;
};

/*
 * Sends one request to the server and takes the reply. Under the lock. 0: *reply_p, whose status the caller must check,
 * and *passed_p, the descriptor that came with it (-1: none). -EIO: the server does not answer.
 */
int emu_request(struct unimem_board *board, const struct emu_request_wire *request, struct emu_reply_wire *reply_p,
                int *passed_p);

/* The same for requests whose reply has no descriptor. Returns -EIO or the status of the reply. Takes the lock. */
int emu_ask(struct unimem_board *board, const struct emu_request_wire *request, struct emu_reply_wire *reply_p);

/* True if the context lives, as the server has recorded in the board's memory. */
bool emu_context_lives(struct unimem_board *board, uint32_t node, uint32_t context);

/* Returns the area in which len local bytes lie, or NULL. Under the lock. */
struct emu_area *emu_area_find(struct unimem_board *board, const void *local, size_t len);
/* Returns the registration in which len remote bytes lie, or NULL. Under the lock. */
struct emu_registration *emu_registration_find(struct unimem_board *board, const struct unimem_remote *at, size_t len);

/* Frees all mailboxes of a handle that ends. */
void emu_mailboxes_fini(struct unimem_board *board);

/* Unmaps all memory of a handle that ends. */
void emu_memory_fini(struct unimem_board *board);

#endif
