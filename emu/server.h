/*
 * The server of one emulated board: the process that owns the board's memory and all dmable memory.
 *
 * It has one connection per context, so that it learns of the end of a context in whatever way its process ends. It
 * exits when the last context has gone, and everything that the board was made of ends with it. tables.c keeps the
 * tables of contexts, mailboxes and areas, and answers requests; server.c has the process, the socket and the
 * connections. One thread.
 */
#ifndef UNIMEM_EMU_SERVER_H
#define UNIMEM_EMU_SERVER_H

#include "emu/layout.h"

#include <stdbool.h>
#include <sys/types.h>

/* One allocation of dmable memory. */
struct emu_area_entry {
    uint32_t context; /* 0: free */
    uint32_t generation;
    int fd;
    uint64_t address;   /* address of the area in the owner */
    uint64_t len;       /* whole pages */
    unsigned char *map; /* only with the server's engine */
};

struct emu_server {
    struct emu_board_shm *shm;
    int shm_fd;
    uint32_t contexts[EMU_CONTEXTS];
    uint32_t context_generations[EMU_CONTEXTS];
    uint32_t nodes[EMU_CONTEXTS];
    uint64_t dmable[EMU_CONTEXTS];     /* bytes of dmable memory that the context has */
    uint32_t mailboxes[EMU_MAILBOXES]; /* context that the mailbox belongs to; 0: free */
    uint32_t mailbox_generations[EMU_MAILBOXES];
    struct emu_area_entry areas[EMU_AREAS];
};

/* Makes the board's memory and its tables. 0 or a negative errno. */
int emu_server_init(struct emu_server *server, const struct emu_params *params);

/* Begins a context of a process on a node. Reply: first is its number, second its node. */
void emu_server_hello(struct emu_server *server, uint32_t node, pid_t pid, struct emu_reply_wire *reply_p);
/* Ends a context, with its mailboxes and its memory. */
void emu_server_context_end(struct emu_server *server, uint32_t context);

/* Answers any other request of a context. Returns a descriptor to send with the reply, or -1; the server keeps the
 * descriptor. */
int emu_server_answer(struct emu_server *server, uint32_t context, const struct emu_request_wire *request,
                      struct emu_reply_wire *reply_p);

#endif
