/*
 * Private to the shm mapper: peers of another pid namespace, whose descriptors no /proc shows here.
 *
 * Each of the two gives the other its descriptors once, over a unix socket that the port listens on; the connection
 * stays open and tells when the peer's port ends. docs/protocol.md section 11. Nobody waits: while the peer has not
 * served a contact, calls return -EAGAIN; the peer serves when it makes progress, and at the end of a sleep. Threading:
 * machine.h.
 */
#ifndef UM_MACHINE_SHM_CONTACT_CONTACT_H
#define UM_MACHINE_SHM_CONTACT_CONTACT_H

#include "machine/shm/shm.h"

#include <sys/socket.h>
#include <sys/un.h>

/* What is passed, in this order; the bits of um_shm_contact_wire.files. */
enum um_shm_contact_file {
    UM_CONTACT_MEMORY,  /* the port's memory */
    UM_CONTACT_WAKE,    /* the write end of its wake-up pipe */
    UM_CONTACT_LIFE,    /* a file whose first byte the process has locked while the port is open */
    UM_CONTACT_SPACE,   /* the space's memory, if the port has one */
    UM_CONTACT_ADOPTED, /* the file that adopted pages lie in, likewise */
    UM_CONTACT_FILES,
};

#define UM_CONTACT_MAGIC 0x746361746e6f6375u /* "ucontact", little endian */

/* Both the hello and the reply. */
struct um_shm_contact_wire {
    uint64_t magic;
    uint32_t version; /* wire version */
    int32_t status;   /* reply: 0, or a negative errno and nothing else holds */
    struct um_addr to;
    struct um_addr from;
    uint32_t number; /* the number that the receiver of this message writes into lanes of the sender */
    uint32_t files;  /* bit f: enum um_shm_contact_file f is among the descriptors */
    uint64_t reserved;
};
static_assert(sizeof(struct um_shm_contact_wire) == 160, "docs/protocol.md section 11");

struct um_shm_contact {
    struct um_list node;
    struct um_addr addr;
    uint32_t number; /* the peer's number here */
    uint32_t own;    /* our number at the peer; valid once known is set */
    int file[UM_CONTACT_FILES];
    int out;      /* the connection that we made, or -1 */
    int in;       /* the one that the peer made, or -1 */
    int listener; /* a pidfd of the process that listens at the other end of out, or -1 */
    bool known;   /* the peer's files are here */
};

enum { UM_CONTACT_HALVES = 16 };

/* An accepted connection that has not said hello. */
struct um_shm_contact_half {
    int fd;
    uint64_t deadline;
};

struct um_shm_contacts {
    struct um_mem_port *port;
    struct um_list all;
    uint32_t count;
    uint32_t numbers; /* the last number that was given to a contact */
    struct um_list of_process;
    int listening;
    int life;          /* UM_CONTACT_LIFE */
    uint64_t sweep_at; /* time of the next search for contacts that are over */
    bool stranger_logged;
    bool full_logged;
    struct um_shm_contact_half half[UM_CONTACT_HALVES];
    struct sockaddr_un name; /* ours */
};

/* Listens where the port's config says; sets port->wait_set. Errors as port_open, logged. */
int um_shm_contacts_open(struct um_mem_port *port, struct um_shm_contacts **contacts_p);
void um_shm_contacts_close(struct um_shm_contacts *cs);
/* Serves requests of peers; bounded, never blocks. */
void um_shm_contacts_serve(struct um_shm_contacts *cs);
/* Gets the contact with the peer's files, and asks for one if there is none. -EAGAIN: the peer has not served us yet;
 * the errors of lane_open. */
int um_shm_contact_get(struct um_shm_contacts *cs, const struct um_addr *addr, struct um_shm_contact **contact_p);
/* True if there is a contact with the peer, or somebody listens under its name. */
bool um_shm_contact_is_here(const struct um_shm_contacts *cs, const struct um_addr *addr);
/* False only when the peer is certainly gone. */
bool um_shm_contact_is_alive(struct um_shm_contacts *cs, const struct um_addr *addr);
bool um_shm_contact_number_is_alive(struct um_shm_contacts *cs, uint32_t number);

/* contact.c: the contacts, for ask.c and serve.c. */
struct um_shm_contact *um_shm_contact_find(const struct um_shm_contacts *cs, const struct um_addr *addr);
/* NULL: no memory, or as many as the port has lanes. */
struct um_shm_contact *um_shm_contact_new(struct um_shm_contacts *cs, const struct um_addr *addr);
void um_shm_contact_drop(struct um_shm_contacts *cs, struct um_shm_contact *c);
/* The peer's port is closed, or its process has ended. */
bool um_shm_contact_is_over(const struct um_shm_contact *c);
/* 0; -EINVAL: these cannot be a port's files; -EMFILE: they leave too few descriptors to the program. */
int um_shm_contact_files_check(const int *file);
/* Keeps the peer's files, or closes them when there are some already. */
void um_shm_contact_know(struct um_shm_contact *c, const struct um_shm_contact_wire *wire, int *files);
/* Sends this port's address and files. */
int um_shm_contact_introduce(const struct um_shm_contacts *cs, int fd, const struct um_shm_contact *c);
/* watch: from now on news on fd ends a sleep. drop: ends that and closes fd, unless it is -1. */
void um_shm_contact_watch(const struct um_shm_contacts *cs, int fd);
void um_shm_contact_fd_drop(const struct um_shm_contacts *cs, int fd);

/* socket.c: the name of a port's socket. */
socklen_t um_shm_contact_name(const struct um_mem_port *port, const struct um_addr *addr, struct sockaddr_un *name_p);
/* The listening socket, or a negative errno, logged. */
int um_shm_contact_listen(struct um_mem_port *port, struct sockaddr_un *name_p);
/* A connection to the peer's socket. -EAGAIN: its queue is full; -ECONNREFUSED, -EACCES: logged. */
int um_shm_contact_connect(const struct um_mem_port *port, const struct um_addr *addr);
/* Is the process at the other end this user's? */
bool um_shm_contact_is_own_user(int fd);
/* 0 or a negative errno. files: UM_CONTACT_FILES descriptors, -1 where there is none; NULL: none. */
int um_shm_contact_send(int fd, struct um_shm_contact_wire *wire, const int *files);
/*
 * 0: a whole message, and files_p is the caller's to close. -EAGAIN: nothing yet; -ECONNRESET: the end; -EMFILE: this
 * process has no room for all that *wire_p names (what came is closed); -EPROTO: something else came (and is closed).
 */
int um_shm_contact_receive(int fd, struct um_shm_contact_wire *wire_p, int *files_p);
void um_shm_contact_files_close(int *files);
/* Has the other end hung up? */
bool um_shm_contact_is_hung_up(int fd);
/* Has the process of a pidfd ended? False for -1. */
bool um_shm_contact_is_ended(int pidfd);
/*
 * Makes a file that this process has locked; or a negative errno, logged. A record lock (fcntl(2)) belongs to the
 * process: a forked child does not inherit it with the file, and execve(2), which closes the file, ends it.
 */
int um_shm_contact_life_open(void);
/* Has the process that locked it ended, closed its port, or become another program? False for -1. */
bool um_shm_contact_life_is_over(int life);

#endif
