/*
 * Keeps process_vm_writev(2) and moving pages apart. process_vm_writev(2) pins the pages that it found while it copies;
 * what it writes to a page whose contents have moved meanwhile is lost. Therefore a writer holds a door of one of the
 * owner's ports, and the owner takes all doors while it removes pages: then no writer holds a page, and a later one
 * finds the pages missing and waits for the new ones.
 *
 * Owns: the list of this process's ports, whose doors they are. Must not know how pages move. A door's word is 0 or
 * names its holder, so that the doors of dead processes can be taken over. Threading: any thread; the thread that shuts
 * the gate has it until um_mem_gate_end().
 */
#ifndef UM_MACHINE_MEM_GATE_H
#define UM_MACHINE_MEM_GATE_H

#include "base/list.h"
#include "machine/mem/layout.h"

enum { UM_GATE_PORTS = 64 };

/* The ports whose doors are shut; on the caller's stack. */
struct um_mem_gate {
    struct um_mem_doors_shm *doors[UM_GATE_PORTS]; /* of the first ports in the list */
    uint32_t count;                                /* doors[] that are still shut */
};

/* A port in this process's list. */
struct um_mem_gated {
    struct um_list list;
    struct um_mem_doors_shm *doors;
};

void um_mem_gate_add(struct um_mem_gated *gated, struct um_mem_doors_shm *doors);
void um_mem_gate_remove(struct um_mem_gated *gated);
/* For a forked child, which has no ports. */
void um_mem_gate_forget(void);

/* At the return no writer of a peer holds a page of this process. Bounded: does not wait for dead or stopped writers,
 * or for one that stays for seconds. */
void um_mem_gate_shut(struct um_mem_gate *gate);
/* Opens the doors for writers again, those of UM_GATE_PORTS ports at most; end: the others, too. open touches only the
 * stack and shared memory; with NULL it does nothing. */
void um_mem_gate_open(struct um_mem_gate *gate);
void um_mem_gate_end(struct um_mem_gate *gate);

/* For a writer, at the doors of the peer's port. 0 and the door; -EAGAIN: the peer is moving pages, or other writers
 * have all doors. */
int um_mem_gate_enter(struct um_mem_doors_shm *doors, uint64_t **door_p);
void um_mem_gate_leave(uint64_t *door);

#endif
