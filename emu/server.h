/*
 * The server of one emulated board: the process that owns the board's memory and all dmable memory.
 *
 * It has one connection per context, so that it learns of a context's end however its process ends; it exits when the
 * last one has gone, and with it everything the board was made of. tables.c keeps who has what and answers requests;
 * server.c has the process, the socket, the connections. One thread.
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
    uint64_t address;   /* the owner's */
    uint64_t len;       /* whole pages */
    unsigned char *map; /* server engine */
};

struct emu_server {
    struct emu_board_shm *shm;
    int shm_fd;
    uint32_t contexts[EMU_CONTEXTS];
    uint32_t context_generations[EMU_CONTEXTS];
    uint32_t nodes[EMU_CONTEXTS];
    uint64_t dmable[EMU_CONTEXTS];     /* bytes it has */
    uint32_t mailboxes[EMU_MAILBOXES]; /* whose; 0: free */
    uint32_t mailbox_generations[EMU_MAILBOXES];
    struct emu_area_entry areas[EMU_AREAS];
};

/* 0 or a negative errno. */
int emu_server_init(struct emu_server *server, const struct emu_params *params);

/* A new context of a process on a node. Its number and its node: first and second of the reply. */
void emu_server_hello(struct emu_server *server, uint32_t node, pid_t pid, struct emu_reply_wire *reply_p);
/* It is gone: with it its mailboxes and its memory. */
void emu_server_context_end(struct emu_server *server, uint32_t context);

/* Any other request of a context. Returns a descriptor to send along, or -1; it stays the server's. */
int emu_server_answer(struct emu_server *server, uint32_t context, const struct emu_request_wire *request,
                      struct emu_reply_wire *reply_p);

#endif
