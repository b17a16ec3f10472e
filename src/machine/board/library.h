/*
 * The board's library, loaded when the machine is first used. Nothing here is linked with it, so a host without a board
 * needs no library, and a board's own library replaces that of the emulator if it has the same name.
 *
 * It is the file that the user names, or else libunimem.so.1: beside the file that holds this code (a build directory),
 * where the loader finds it, or in the directory above that file (an installation under a prefix that the loader does
 * not know). Threading: the caller serialises loading; the functions may be called at any time after it.
 */
#ifndef UM_MACHINE_BOARD_LIBRARY_H
#define UM_MACHINE_BOARD_LIBRARY_H

#include <unimem/unimem.h>

#define UM_BOARD_LIBRARY "libunimem.so.1"

/* The functions of unimem/unimem.h, each under its name without "unimem_". */
struct um_board_library {
    __typeof__(unimem_version) *version;
    __typeof__(unimem_open) *open;
    __typeof__(unimem_close) *close;
    __typeof__(unimem_get_info) *get_info;
    __typeof__(unimem_context_alive) *context_alive;
    __typeof__(unimem_mailbox_open) *mailbox_open;
    __typeof__(unimem_mailbox_close) *mailbox_close;
    __typeof__(unimem_mailbox_get_address) *mailbox_get_address;
    __typeof__(unimem_mailbox_send) *mailbox_send;
    __typeof__(unimem_mailbox_receive) *mailbox_receive;
    __typeof__(unimem_mailbox_fd) *mailbox_fd;
    __typeof__(unimem_mailbox_arm) *mailbox_arm;
    __typeof__(unimem_mailbox_disarm) *mailbox_disarm;
    __typeof__(unimem_alloc_dmable) *alloc_dmable;
    __typeof__(unimem_free_dmable) *free_dmable;
    __typeof__(unimem_copy) *copy;
    __typeof__(unimem_register) *enter; /* unimem_register: `register` is a keyword of C */
    __typeof__(unimem_deregister) *deregister;
    __typeof__(unimem_dma_write) *dma_write;
    __typeof__(unimem_dma_read) *dma_read;
    __typeof__(unimem_dma_poll) *dma_poll;
};

/* Valid after um_board_library_load() returned 0. */
extern struct um_board_library um_board_api;

/*
 * Loads the library, once. path NULL: looks for it. 0; -ENOENT: there is no library, or the file is no library of a
 * board; -EPROTO: the library has another version of the interface. The reason is logged; for -ENOENT with the remedy.
 */
int um_board_library_load(const char *path);

#endif
