/*
 * The Unimem user-level API: virtualised mailboxes, dmable memory, and DMA between the nodes of a board.
 *
 * Source: the poster "An OFI provider for the Unimem architecture", section 2.1 (virtualised mailbox of 192-bit
 * messages, DMA only between dmable buffers, a remote virtual address registered with the local engine first). What the
 * poster leaves open is defined here so that hardware can implement it; docs/unimem-board.md lists these parts. This
 * header needs no other part of unimem: a board's own library may replace the emulator's libunimem.so.
 *
 * Objects
 *   board         machines ("nodes") whose memory DMA reaches. A process has one handle or more; each is a context on
 *                 one node.
 *   context       an address space on a node: what remote virtual addresses are relative to. Its number is never used
 *                 again while the board runs.
 *   mailbox       a hardware queue of fixed depth that takes messages from every node; one context receives from it.
 *   dmable        memory that the engines reach: what unimem_alloc_dmable() returned, nothing else.
 *   registration  an entry in the translation table of this context's engine for remote memory. DMA needs one.
 *
 * Units: bytes and addresses, unless stated otherwise.
 * Errors: 0 or a negative errno. Outputs are set only on success. Every function that can fail may also return
 *   -EIO  the board does not answer any more: only unimem_close() is useful.
 * Blocking: no call waits for another context. open, close, alloc, free, register and deregister are slow (system
 *   calls, microseconds and more); all others are for the data path.
 * Threads: any call from any thread at any time, except that only one thread at a time may receive from, arm or disarm
 *   one mailbox, and that a handle or mailbox is closed only when no thread uses it any more.
 * fork(): the child has no handles; it must not use its parent's, nor touch dmable memory. It may open the board
 *   itself.
 *
 * Order. Promised:
 *   - messages from one context to one mailbox are received in the order in which they were sent;
 *   - once unimem_dma_poll() reported a write done, its bytes are in the remote memory: a processor of that node that
 *     has received a message sent after that sees them. Once it reported a read done, the bytes are in local memory.
 * NOT promised, and a program must not rely on it:
 *   - a message and a DMA that has not been reported done: either may be first;
 *   - the bytes of one DMA: they arrive in any order, in pieces of any size, at any time up to completion;
 *   - two DMAs: they may run and end in any order, even from one context to the same memory;
 *   - messages of different contexts, or to different mailboxes.
 */
#ifndef UNIMEM_UNIMEM_H
#define UNIMEM_UNIMEM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

#define UNIMEM_API_VERSION  1
#define UNIMEM_MESSAGE_SIZE 24 /* 192 bits: every message has this size */
#define UNIMEM_NODE_ANY     UINT32_C(0xffffffff)

struct unimem_board;
struct unimem_mailbox;

/* The address of a mailbox. Fit for exchange between processes; no field is ever 0xffffffff. All zero: no mailbox. */
struct unimem_mailbox_address {
    uint32_t node;
    uint32_t context;    /* the context that receives from it; never 0 */
    uint32_t mailbox;    /* its number on the board */
    uint32_t generation; /* tells the mailbox from a later one with the same number; never 0 */
};

/* An address in the memory of a context. */
struct unimem_remote {
    uint32_t node;
    uint32_t context;
    uint64_t address; /* as unimem_alloc_dmable() returned it to the owner, or within that allocation */
};

/* Properties of a handle and its board. They do not change while the handle is open. */
struct unimem_info {
    uint32_t node;              /* this handle's */
    uint32_t context;           /* this handle's */
    uint32_t nodes;             /* number of nodes of the board; they are numbered from 0 */
    uint32_t mailbox_depth;     /* messages that one mailbox holds */
    uint32_t dma_depth;         /* DMAs that a context may have begun without having seen their end */
    uint32_t registrations_max; /* registrations that one context may have at a time */
    uint64_t dma_size_max;      /* bytes of one DMA */
    uint64_t dmable_max; /* bytes of dmable memory that one context may have; each allocation is rounded up to pages */
};

/* Returns the version of this header that the library was built with: its UNIMEM_API_VERSION. */
uint32_t unimem_version(void);

/*
 * Makes this process a context on a node of a board.
 *   name: which board, [A-Za-z0-9._-]{1,63}; NULL: what the environment's UNIMEM_BOARD names, else "board".
 *   node: its number; UNIMEM_NODE_ANY: the node with the fewest contexts. Contexts on one node share its engine.
 *   -EINVAL  the name is not allowed, or there is no such node
 *   -ENOENT  there is no such board, and none can be started
 *   -EBUSY   the board has no context left
 *   -EACCES  the board belongs to another user
 *   -EPROTO  the board runs another version of the library
 *   -ENOMEM, -EMFILE
 */
int unimem_open(const char *name, uint32_t node, struct unimem_board **board_p);

/*
 * Ends the context: its mailboxes (their handles, too), its dmable memory, its registrations, and its DMAs in flight
 * (whose bytes may have moved or not). What other contexts send or write to it from now on fails. The same happens when
 * its process ends, in whatever way.
 */
void unimem_close(struct unimem_board *board);

void unimem_get_info(const struct unimem_board *board, struct unimem_info *info_p);

/* 1: the context lives. 0: it has ended, which may be noticed late, but never early. -EINVAL: no such node. */
int unimem_context_alive(struct unimem_board *board, uint32_t node, uint32_t context);

/* ---- mailboxes ---- */

/* Opens a mailbox. -ENOSPC: the board has no mailbox left; -ENOMEM, -EMFILE. */
int unimem_mailbox_open(struct unimem_board *board, struct unimem_mailbox **mailbox_p);

/* Closes a mailbox. Messages that were not received are lost; sending to it fails from now on. */
void unimem_mailbox_close(struct unimem_mailbox *mailbox);

void unimem_mailbox_get_address(const struct unimem_mailbox *mailbox, struct unimem_mailbox_address *address_p);

/*
 * Sends one message of len bytes, filled up with zeroes to UNIMEM_MESSAGE_SIZE. On success it is in the queue: no
 * message is lost.
 *   -EMSGSIZE  more than UNIMEM_MESSAGE_SIZE bytes
 *   -EAGAIN    the queue is full until the receiver takes a message
 *   -ENXIO     there is no such mailbox (any more)
 */
int unimem_mailbox_send(struct unimem_board *board, const struct unimem_mailbox_address *to, const void *message,
                        size_t len);

/* Takes the oldest message, of UNIMEM_MESSAGE_SIZE bytes. -EAGAIN: there is no message. */
int unimem_mailbox_receive(struct unimem_mailbox *mailbox, void *message);

/*
 * The interrupt of the mailbox as a file descriptor, for poll(2) and similar calls; it belongs to the mailbox. It
 * becomes readable when a message comes after arm returned 0, and stays so until disarm. It may be readable without a
 * message. arm: 0; -EAGAIN: there is a message already, and nothing was armed. To arm it again without disarm has no
 * effect.
 */
int unimem_mailbox_fd(const struct unimem_mailbox *mailbox);
int unimem_mailbox_arm(struct unimem_mailbox *mailbox);
void unimem_mailbox_disarm(struct unimem_mailbox *mailbox);

/* ---- memory ---- */

/* Allocates len bytes of zeroed memory that engines reach, page-aligned. -EINVAL: len is 0; -ENOMEM; -ENOSPC: above
 * dmable_max, or the board has no place for it. */
int unimem_alloc_dmable(struct unimem_board *board, size_t len, void **memory_p);

/*
 * Frees memory that unimem_alloc_dmable() returned; DMA of other contexts to it fails from now on.
 *   -EINVAL  it is not such memory
 *   -EBUSY   a DMA of this context uses it and was not reported done
 */
int unimem_free_dmable(struct unimem_board *board, void *memory);

/*
 * Copies with the processor, like memcpy(): for copies between dmable memory and other memory. A board whose dmable
 * memory is not cached copies in its own way; plain loads and stores are correct, too, but may be slow.
 */
void unimem_copy(struct unimem_board *board, void *to, const void *from, size_t len);

/*
 * Enters len bytes at a remote address into the translation table of the local engine: DMA reaches them from now on.
 * Slow: more than 10 us.
 *   -EINVAL  len is 0
 *   -ENXIO   the context does not live
 *   -EFAULT  not in one piece of dmable memory of that context
 *   -EEXIST  a part of it is registered already
 *   -ENOSPC  registrations_max are in use
 *   -ENOMEM
 */
int unimem_register(struct unimem_board *board, const struct unimem_remote *remote, size_t len);

/* Removes the registration that begins at this address. -ENOENT: none does; -EBUSY: a DMA that was not reported done
 * uses it. */
int unimem_deregister(struct unimem_board *board, const struct unimem_remote *remote);

/* ---- DMA ---- */

/*
 * Begins to copy len bytes from local to remote memory (write), or from remote to local memory (read). *dma_p names the
 * DMA for unimem_dma_poll(), which must be called until the DMA is done. Until then the local memory of a write must
 * not change, and the content of the local memory of a read is undefined.
 *   -EINVAL  len is 0 or above dma_size_max
 *   -EFAULT  the local bytes are not in one piece of dmable memory
 *   -EACCES  the remote bytes are not in one registration of this context
 *   -EAGAIN  dma_depth are in flight: poll those first
 */
int unimem_dma_write(struct unimem_board *board, const struct unimem_remote *to, const void *from, size_t len,
                     uint64_t *dma_p);
int unimem_dma_read(struct unimem_board *board, void *to, const struct unimem_remote *from, size_t len,
                    uint64_t *dma_p);

/*
 * 0: done; -EINPROGRESS: not yet. Every other value ends the DMA, too, and leaves its bytes undefined:
 *   -ENXIO   the remote context has ended
 *   -EFAULT  the remote memory was freed
 *   -EINVAL  there is no such DMA, or it was reported done before
 */
int unimem_dma_poll(struct unimem_board *board, uint64_t dma);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
