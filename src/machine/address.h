/*
 * The address of an endpoint: its header, and the parts that its machines have in it (docs/protocol.md section 2).
 *
 * Word 0 begins with the header, which belongs to no machine: the wire version, and which machines have a part. Must
 * not know what a part means. Threading: any.
 */
#ifndef UM_MACHINE_ADDRESS_H
#define UM_MACHINE_ADDRESS_H

#include "machine/machines.h"

enum { UM_WIRE_VERSION = 15 };

/* Bits of the second byte: which parts there are. */
enum um_addr_kind { UM_ADDR_SHM = 1, UM_ADDR_BOARD = 2, UM_ADDR_NET = 4, UM_ADDR_SIM = 128 };

/*
 * The header. Bits 0-7: twice the wire version, so that bit 0 is clear: addresses of wire version 1 have no header, and
 * their bit 0 is set. Bits 8-15: enum um_addr_kind.
 */
enum { UM_ADDR_HEADER = 0xffff, UM_ADDR_VERSION = 2 * UM_WIRE_VERSION, UM_ADDR_KINDS_SHIFT = 8 };

/* In words: the length of the part for the memory of one host (with the header), and where the part of another machine
 * begins. */
enum { UM_ADDR_LOCAL_WORDS = 3, UM_ADDR_TAIL = 3 };
static_assert(UM_ADDR_TAIL * 8 + 40 == sizeof(struct um_addr), "the longest name of another provider has 40 bytes");

/*
 * Returns 0 if this is an address of this wire version with a part of that machine, else -EPROTO. is_logged: logs the
 * reason and the remedy.
 */
int um_addr_header_check(const struct um_machine *machine, const struct um_addr *addr, bool is_logged);

/* Returns the length (bytes) of the address of an endpoint that uses these machines. */
static inline size_t um_addr_len(const struct um_machines *machines)
{
    size_t words = UM_ADDR_LOCAL_WORDS; /* with the header; there even if no machine has a part in them */
    for (uint32_t i = 0; i < machines->count; i++) {
        const size_t end = (size_t)machines->at[i]->addr_first + machines->at[i]->addr_words;
        words = words > end ? words : end;
    }
    return words * sizeof(uint64_t);
}

/* True if the address has a part of that machine. */
static inline bool um_addr_has(const struct um_machine *machine, const struct um_addr *addr)
{
    return addr->word[0] >> UM_ADDR_KINDS_SHIFT & machine->addr_kind;
}

/* Returns word i of an address, without the header. */
static inline uint64_t um_addr_word(const struct um_addr *addr, unsigned i)
{
    return i == 0 ? addr->word[0] & ~(uint64_t)UM_ADDR_HEADER : addr->word[i];
}

/* Returns the header of an address that has only that machine's part. */
static inline uint64_t um_addr_header(const struct um_machine *machine)
{
    return UM_ADDR_VERSION | (uint64_t)machine->addr_kind << UM_ADDR_KINDS_SHIFT;
}

/* Copies that machine's part from one address to another; the other parts stay. */
static inline void um_addr_set_part(const struct um_machine *machine, const struct um_addr *from,
                                    struct um_addr *addr_p)
{
    const uint64_t header = (addr_p->word[0] & UM_ADDR_HEADER) | um_addr_header(machine);
    for (unsigned i = machine->addr_first; i < (unsigned)machine->addr_first + machine->addr_words; i++)
        addr_p->word[i] = um_addr_word(from, i);
    addr_p->word[0] = um_addr_word(addr_p, 0) | header;
}

/* Returns an address with only that machine's part, all else zero. False: the address has no such part. */
static inline bool um_addr_part(const struct um_machine *machine, const struct um_addr *addr, struct um_addr *part_p)
{
    struct um_addr part = {{0}};
    if (um_addr_has(machine, addr))
        um_addr_set_part(machine, addr, &part);
    *part_p = part;
    return um_addr_has(machine, addr);
}

/* True if that machine's part is the same in both addresses. Both must have it. */
static inline bool um_addr_part_is_same(const struct um_machine *machine, const struct um_addr *a,
                                        const struct um_addr *b)
{
    uint64_t differs = 0;
    for (unsigned i = machine->addr_first; i < (unsigned)machine->addr_first + machine->addr_words; i++)
        differs |= um_addr_word(a, i) ^ um_addr_word(b, i);
    return differs == 0;
}

/* Returns a hash of that machine's part, for tables of addresses. */
static inline uint64_t um_addr_part_hash(const struct um_machine *machine, const struct um_addr *addr)
{
    uint64_t h = 0;
    for (unsigned i = machine->addr_first; i < (unsigned)machine->addr_first + machine->addr_words; i++) {
        h = (h ^ um_addr_word(addr, i)) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    return h;
}

#endif
