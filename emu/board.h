/*
 * Inside libunimem.so: what a handle holds. board.c opens and ends it and speaks to the server; mailbox.c, memory.c,
 * dma.c have the parts of the API.
 *
 * Threading: lock guards everything below it, and the connection; the clock has its own lock; mailboxes lie in the
 * board's memory under theirs. Order: lock, then one of the board's.
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
    uint32_t slot, generation; /* the server's name for it */
    uint32_t flights;          /* DMAs that use it */
};

/* An entry of the translation table. */
struct emu_registration {
    struct unimem_remote at;
    uint64_t len;              /* 0: free */
    uint32_t slot, generation; /* of the area it lies in */
    uint64_t offset;
    unsigned char *base; /* its first byte here; NULL with the server's engine */
    uint32_t flights;
};

struct emu_flight {
    bool used, polled;
    bool write;
    uint32_t generation;
    struct emu_registration *remote;
    uint64_t offset; /* in the remote area */
    struct emu_area *local_area;
    unsigned char *local;
    size_t len;
    uint64_t done; /* when */
};

struct unimem_board {
    struct unimem_board *next; /* of the process's, under a lock of theirs */
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
    uint32_t areas_end;                     /* above the last that is used */
    struct emu_registration *registrations; /* params->registrations_max */
    uint32_t registrations_end;
    struct emu_flight *flights; /* params->dma_depth */
    uint32_t flights_end;
};

/*
 * One request, under the lock. 0 and *reply_p and, if the operation gives one, *passed_p (-1: none); the status in the
 * reply is for the caller. -EIO: the server does not answer.
 */
int emu_request(struct unimem_board *board, const struct emu_request_wire *request, struct emu_reply_wire *reply_p,
                int *passed_p);

/* The same for those that give no descriptor; returns the reply's status. Takes the lock. */
int emu_ask(struct unimem_board *board, const struct emu_request_wire *request, struct emu_reply_wire *reply_p);

/* Of a context, by what the server says. */
bool emu_context_lives(struct unimem_board *board, uint32_t node, uint32_t context);

/* The area in which len local bytes lie, or NULL. Under the lock. */
struct emu_area *emu_area_find(struct unimem_board *board, const void *local, size_t len);
/* The registration in which len remote bytes lie, or NULL. Under the lock. */
struct emu_registration *emu_registration_find(struct unimem_board *board, const struct unimem_remote *at, size_t len);

/* Frees all mailboxes of a handle that ends. */
void emu_mailboxes_fini(struct unimem_board *board);

/* Unmaps all memory of it. */
void emu_memory_fini(struct unimem_board *board);

#endif
