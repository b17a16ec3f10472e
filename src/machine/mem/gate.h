/*
 * Writers by system call and pages that move: process_vm_writev(2) holds the pages it found for as long as it copies,
 * and what it writes to a page whose contents have meanwhile moved elsewhere is lost. So whoever writes so holds a door
 * of the owner's space, and the owner takes all doors while it takes pages away: then nobody holds any of them, and who
 * comes later finds them gone, and waits for the new ones.
 *
 * Owns: the list of this process's spaces that have doors. Must not know how pages move. A door's word is 0 or names
 * who has it, so that those of the dead are taken over. Threading: any thread; who shuts the gate keeps it for itself
 * until um_gate_end().
 */
#ifndef UM_MACHINE_MEM_GATE_H
#define UM_MACHINE_MEM_GATE_H

#include "base/list.h"
#include "machine/mem/layout.h"

enum { UM_GATE_SPACES = 64 };

/* What is shut, on the stack of who did it. */
struct um_gate {
    unsigned char *memory[UM_GATE_SPACES];
    uint32_t count;
};

/* A space in this process's list. */
struct um_gated {
    struct um_list list;
    unsigned char *memory;
};

void um_gate_add(struct um_gated *gated, unsigned char *memory);
void um_gate_remove(struct um_gated *gated);
/* In a child: it has no spaces. */
void um_gate_forget(void);

/* No writer of any peer holds a page of this process when it returns. Bounded: dead and stopped writers, and who stays
 * for seconds, are not waited for. */
void um_gate_shut(struct um_gate *gate);
/* Lets writers in again, as far as possible. Touches the stack and shared memory only; NULL: nothing. */
void um_gate_open(struct um_gate *gate);
void um_gate_end(struct um_gate *gate);

/* The writer's side, in the memory of its peer's space. 0 and the door; -EAGAIN: the peer's pages are on their way. */
int um_gate_enter(unsigned char *memory, uint64_t **door_p);
void um_gate_leave(uint64_t *door);

#endif
