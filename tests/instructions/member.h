/*
 * Two processes with an endpoint and a page of exported memory each: the one that counts, and another one, which it
 * starts. member.c owns the libfabric objects of this process. A failure ends the process with status 1.
 */
#ifndef UM_TESTS_INSTRUCTIONS_MEMBER_H
#define UM_TESTS_INSTRUCTIONS_MEMBER_H

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <stdint.h>
#include <sys/types.h>

enum { SELF, OTHER, MEMBERS };
enum { NAME = 512 };

/* What the two processes share beside the fabric. */
struct shared {
    struct {
        uint8_t name[NAME];
        uint64_t base, key; /* of its memory */
        uint32_t ready;
    } member[MEMBERS];
    uint32_t done; /* the other process is no longer needed */
};

extern struct shared *shared;
extern struct fid_cq *cq; /* of struct fi_cq_tagged_entry; every operation reports */
extern struct fid_cntr *writes;
extern struct fid_ep *ep;
extern fi_addr_t peer[MEMBERS];

void demand(ssize_t ret, ssize_t wanted, const char *what);

/*
 * Starts the other process and opens this one's endpoint: both know each other at return. The other one runs the same
 * program, which calls member_serve() if its first argument is MEMBER_OTHER.
 */
#define MEMBER_OTHER "--other"
void member_open(const char *program, const char *provider);
int member_serve(char **argv);
/* Ends the other process, closes everything. */
void member_close(void);

#endif
