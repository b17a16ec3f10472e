/*
 * The socket over which descriptors are passed to and from other pid namespaces (docs/protocol.md section 11): floods,
 * silence, garbage, lies, on either side. Everything happens in one process. It plays the peer with raw sockets, and
 * with addresses of a pid namespace that does not exist. No descriptor may stay behind.
 */
#include "proc.h"

#include "needs.h"

#include "core/endpoint.h"
#include "machine/shm/adopt/adopt.h"
#include "machine/shm/contact/contact.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SILENT = 400 };

static struct world w;
static struct um_mem_port *port;
static int before;

static int descriptors(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static int open_world(void **state)
{
    (void)state;
    world_open(&w, 1);
    port = (struct um_mem_port *)w.node[0].ep->ports[0].port;
    (void)um_shm_adopt_fd(); /* this file is made when it is first passed, and kept */
    before = descriptors();
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    world_close(&w);
    return 0;
}

/* Returns an address of a process in another pid namespace, whose part these tests play. */
static struct um_addr stranger(void)
{
    struct um_shm_addr a;
    struct um_addr addr = {{0}};
    memcpy(&a, &port->addr, sizeof(a));
    a.pid_space ^= 1;
    a.nonce = um_shm_nonce();
    memcpy(addr.word, &a, sizeof(a));
    return addr;
}

/* Returns a connection to the port under test. */
static int dial(void)
{
    return um_shm_contact_connect(port, &port->addr);
}

struct passed {
    int file[UM_CONTACT_FILES];
    int pipe_read;
};

/* Returns descriptors such as a port passes. */
static struct passed passed_good(void)
{
    struct passed p = {.file = {-1, -1, -1, -1, -1}};
    int fds[2];
    p.file[UM_CONTACT_MEMORY] = um_shm_memory_create(1 << 20);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    p.pipe_read = fds[0];
    p.file[UM_CONTACT_WAKE] = fds[1];
    return p;
}

static void passed_close(struct passed *p)
{
    um_shm_contact_files_close(p->file);
    close(p->pipe_read);
}

static struct um_shm_contact_wire hello_good(void)
{
    return (struct um_shm_contact_wire){
        .magic = UM_CONTACT_MAGIC, .version = UM_WIRE_VERSION, .to = port->addr, .from = stranger(), .number = 1};
}

/* Makes the port serve, and waits for its answer. Returns the answer's status; 1: the port hung up without an
 * answer. */
static int answer(int fd)
{
    struct um_shm_contact_wire reply;
    int files[UM_CONTACT_FILES], ret;
    for (int i = 0; i < 100000; i++) {
        um_mem_tick(&port->port);
        ret = um_shm_contact_receive(fd, &reply, files);
        if (ret == -EAGAIN)
            continue;
        if (ret == 0 && reply.status == 0)
            assert_true(files[UM_CONTACT_MEMORY] >= 0 && files[UM_CONTACT_WAKE] >= 0);
        if (ret == 0)
            um_shm_contact_files_close(files);
        return ret ? 1 : reply.status;
    }
    fail_msg("no answer and no end");
    return 0;
}

/* Demands that the port works: a good hello gets the port's files. */
static void expect_served(void)
{
    struct passed p = passed_good();
    struct um_shm_contact_wire hello = hello_good();
    int fd;
    while ((fd = dial()) == -EAGAIN) /* others fill its queue */
        um_mem_tick(&port->port);
    assert_true(fd >= 0);
    assert_int_equal(um_shm_contact_send(fd, &hello, p.file), 0);
    assert_int_equal(answer(fd), 0);
    close(fd);
    passed_close(&p);
}

/* Demands that all descriptors are closed that were passed to the port, or taken by it. */
static void expect_no_leak(void)
{
    for (int i = 0; i < 300 && descriptors() > before; i++) {
        um_mem_tick(&port->port);
        usleep(10000);
    }
    assert_int_equal(descriptors(), before);
}

/* ---- peers ask the port ---- */

static void connections_that_say_nothing_hold_up_nobody(void **state)
{
    static int fd[SILENT];
    int full = 0;
    (void)state;
    for (int i = 0; i < SILENT; i++) {
        fd[i] = dial();
        full += fd[i] == -EAGAIN;
        if (fd[i] == -EAGAIN)
            um_mem_tick(&port->port);
    }
    assert_true(full > 0); /* the queue is bounded */
    expect_served();
    int mine = 0;
    for (int i = 0; i < SILENT; i++)
        mine += fd[i] >= 0;
    assert_true(descriptors() <= before + mine + UM_CONTACT_HALVES + 2 * UM_CONTACT_FILES);
    for (int i = 0; i < SILENT; i++) {
        if (fd[i] >= 0)
            close(fd[i]);
    }
    expect_served();
    expect_no_leak();
}

/* Returns whether the port, which has nothing else to do, could not sleep now. */
static bool is_woken(void)
{
    struct pollfd pfd = {.fd = um_mem_wait_fd(&port->port), .events = POLLIN};
    assert_int_equal(um_mem_arm(&port->port), 0);
    const bool is = poll(&pfd, 1, 0) == 1;
    um_mem_disarm(&port->port);
    return is;
}

/* A port that wakes serves some connections at a time; the others must not wait until something else wakes it. */
static void connections_that_are_left_end_the_next_sleep(void **state)
{
    enum { AT_ONCE = 40 };
    int fd[AT_ONCE];
    (void)state;
    assert_false(is_woken());
    for (int i = 0; i < AT_ONCE; i++) {
        fd[i] = dial();
        assert_true(fd[i] >= 0);
    }
    assert_true(is_woken());
    assert_true(is_woken());  /* 32 of them have been served */
    assert_false(is_woken()); /* all of them */
    for (int i = 0; i < AT_ONCE; i++)
        close(fd[i]);
    expect_served();
    expect_no_leak();
}

/* Nothing tells when the process has descriptors again. */
static void a_connection_without_a_descriptor_ends_the_next_sleep(void **state)
{
    (void)state;
    struct rlimit most, few;
    struct passed p = passed_good();
    struct um_shm_contact_wire hello = hello_good();
    int fd = dial(), next = dup(0);
    assert_int_equal(um_shm_contact_send(fd, &hello, p.file), 0);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &most), 0);
    few = (struct rlimit){.rlim_cur = (rlim_t)next, .rlim_max = most.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    const bool first = is_woken(), second = is_woken();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &most), 0);
    assert_true(first && second);
    assert_true(is_woken());
    assert_int_equal(answer(fd), 0);
    assert_false(is_woken());
    close(fd);
    passed_close(&p);
    expect_no_leak();
}

static void what_is_no_hello_is_refused(void **state)
{
    (void)state;
    unsigned char noise[300];
    uint64_t random = 99;
    for (size_t len = 0; len<sizeof(noise); len += len> 100 && len < 150 ? 1 : 13) {
        int fd = dial();
        for (size_t i = 0; i < len; i++)
            noise[i] = (unsigned char)rnd(&random, 256);
        assert_int_equal(send(fd, noise, len, MSG_NOSIGNAL), (ssize_t)len);
        assert_int_equal(answer(fd), 1);
        close(fd);
    }
    expect_served();
    expect_no_leak();
}

enum lie {
    LIE_MAGIC,
    LIE_VERSION,
    LIE_TO,
    LIE_BOOT,
    LIE_SAME_SPACE,
    LIE_KINDS,
    LIE_TAIL,
    LIE_NO_MEMORY,
    LIE_NO_PIPE,
    LIE_UNSEALED,
    LIE_FILE_FOR_PIPE,
    LIES,
};

/* Sends a hello with one lie in it. Returns the answer's status. */
static int lie_tell(enum lie lie)
{
    struct passed p = passed_good();
    struct um_shm_contact_wire hello = hello_good();
    struct um_shm_addr *from = (struct um_shm_addr *)(void *)&hello.from;
    hello.magic ^= lie == LIE_MAGIC;
    hello.version += lie == LIE_VERSION;
    hello.to.word[2] ^= lie == LIE_TO;
    from->boot ^= lie == LIE_BOOT ? 2 : 0;
    from->pid_space ^= lie == LIE_SAME_SPACE;
    from->kinds |= lie == LIE_KINDS ? 2 : 0;
    hello.from.word[5] = lie == LIE_TAIL;
    if (lie == LIE_NO_MEMORY || lie == LIE_NO_PIPE) {
        int *file = &p.file[lie == LIE_NO_PIPE ? UM_CONTACT_WAKE : UM_CONTACT_MEMORY];
        close(*file);
        *file = -1;
    }
    if (lie == LIE_UNSEALED || lie == LIE_FILE_FOR_PIPE) {
        int *file = &p.file[lie == LIE_UNSEALED ? UM_CONTACT_MEMORY : UM_CONTACT_WAKE];
        close(*file);
        *file = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        assert_int_equal(ftruncate(*file, 1 << 20), 0);
    }
    int fd = dial();
    assert_int_equal(um_shm_contact_send(fd, &hello, p.file), 0);
    int status = answer(fd);
    close(fd);
    passed_close(&p);
    return status;
}

static void a_hello_that_lies_is_refused_with_the_reason(void **state)
{
    static const int expected[LIES] = {
        [LIE_MAGIC] = 1,          [LIE_VERSION] = -EPROTO,       [LIE_TO] = -ECONNREFUSED,
        [LIE_BOOT] = -EPROTO,     [LIE_SAME_SPACE] = -EPROTO,    [LIE_NO_MEMORY] = -EINVAL,
        [LIE_KINDS] = -EPROTO,    [LIE_TAIL] = -EPROTO,          [LIE_NO_PIPE] = -EINVAL,
        [LIE_UNSEALED] = -EINVAL, [LIE_FILE_FOR_PIPE] = -EINVAL,
    };
    (void)state;
    for (int lie = 0; lie < LIES; lie++)
        assert_int_equal(lie_tell((enum lie)lie), expected[lie]);
    expect_served();
    expect_no_leak();
}

static void more_files_than_it_names_are_refused(void **state)
{
    (void)state;
    needs(has_exact_descriptors());
    for (int count = 1; count <= 20; count++) {
        union {
            char bytes[CMSG_SPACE(20 * sizeof(int))];
            struct cmsghdr align;
        } control = {.bytes = {0}};
        struct um_shm_contact_wire hello = hello_good();
        struct iovec iov = {&hello, sizeof(hello)};
        struct msghdr msg = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = CMSG_SPACE((size_t)count * sizeof(int))};
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        *c = (struct cmsghdr){
            .cmsg_len = CMSG_LEN((size_t)count * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        hello.files = 1u << UM_CONTACT_FILES >> 1; /* names one file: the last kind */
        for (int i = 0; i < count; i++)
            memcpy(CMSG_DATA(c) + (size_t)i * sizeof(int), &(int){0}, sizeof(int));
        int fd = dial();
        assert_int_equal(sendmsg(fd, &msg, MSG_NOSIGNAL), sizeof(hello));
        assert_int_equal(answer(fd), count == 1 ? -EINVAL : 1);
        close(fd);
    }
    expect_served();
    expect_no_leak();
}

static void an_address_that_is_in_contact_is_not_taken_over(void **state)
{
    (void)state;
    struct passed p = passed_good();
    struct um_shm_contact_wire hello = hello_good();
    int first = dial(), second = dial();
    assert_int_equal(um_shm_contact_send(first, &hello, p.file), 0);
    assert_int_equal(answer(first), 0);
    assert_int_equal(um_shm_contact_send(second, &hello, p.file), 0);
    assert_int_equal(answer(second), -EALREADY);
    close(second);
    close(first); /* from now on the address may be in contact again */
    int third = dial();
    assert_int_equal(um_shm_contact_send(third, &hello, p.file), 0);
    assert_int_equal(answer(third), 0);
    close(third);
    passed_close(&p);
    expect_no_leak();
}

static void more_contacts_than_lanes_are_refused(void **state)
{
    (void)state;
    struct passed p = passed_good();
    int fd[17];
    for (int i = 0; i < 17; i++) { /* world.c: 16 lanes */
        struct um_shm_contact_wire hello = hello_good();
        fd[i] = dial();
        assert_int_equal(um_shm_contact_send(fd[i], &hello, p.file), 0);
        assert_int_equal(answer(fd[i]), i < 16 ? 0 : -ENOSPC);
    }
    for (int i = 0; i < 17; i++)
        close(fd[i]);
    passed_close(&p);
    expect_no_leak();
}

/* Returns the answer to a hello while the process can open only `more` further descriptors. */
static int answer_within(int fd, int more)
{
    struct rlimit most, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &most), 0);
    few = most;
    int next = dup(0); /* the connection will have this number, and the passed descriptors the next two */
    assert_true(next > 8);
    close(next);
    few.rlim_cur = (rlim_t)next + (rlim_t)more;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    int status = answer(fd);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &most), 0);
    return status;
}

static void the_last_descriptors_are_left_to_the_program(void **state)
{
    (void)state;
    for (int more = 1; more <= 4; more++) {
        struct passed p = passed_good();
        struct um_shm_contact_wire hello = hello_good();
        int fd = dial();
        assert_int_equal(um_shm_contact_send(fd, &hello, p.file), 0);
        assert_int_equal(answer_within(fd, more), -EINVAL); /* refused: after a hang-up the peer would ask for ever */
        close(fd);
        passed_close(&p);
    }
    expect_served();
    expect_no_leak();
}

/* Without these capabilities a process may have no more descriptors in flight than it may open. */
static void resource_caps_use(bool on)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[2];
    const uint32_t bits = 1u << CAP_SYS_ADMIN | 1u << CAP_SYS_RESOURCE;
    assert_int_equal(syscall(SYS_capget, &header, caps), 0);
    caps[0].effective = on ? caps[0].effective | (caps[0].permitted & bits) : caps[0].effective & ~bits;
    assert_int_equal(syscall(SYS_capset, &header, caps), 0);
}

/* Puts more descriptors in flight than a limit of 200 allows: sent, not received. */
static void files_in_flight(int *pair)
{
    enum { COUNT = 250 };
    union {
        char bytes[CMSG_SPACE(COUNT * sizeof(int))];
        struct cmsghdr align;
    } control = {.bytes = {0}};
    struct iovec iov = {"x", 1};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(COUNT * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    for (size_t i = 0; i < COUNT; i++)
        memcpy(CMSG_DATA(c) + i * sizeof(int), &(int){0}, sizeof(int));
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(sendmsg(pair[0], &msg, 0), 1);
}

static void who_cannot_be_answered_is_hung_up_on_and_asks_again(void **state)
{
    (void)state;
    struct rlimit most, few;
    struct passed p = passed_good();
    struct um_shm_contact_wire hello = hello_good();
    int pair[2], fd = dial();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &most), 0);
    few = most;
    few.rlim_cur = 200;
    assert_int_equal(um_shm_contact_send(fd, &hello, p.file), 0);
    files_in_flight(pair);
    resource_caps_use(false);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    int status = answer(fd);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &most), 0);
    resource_caps_use(true);
    assert_int_equal(status, 1);
    close(fd);
    close(pair[0]);
    close(pair[1]);
    fd = dial();
    assert_int_equal(um_shm_contact_send(fd, &hello, p.file), 0);
    assert_int_equal(answer(fd), 0);
    close(fd);
    passed_close(&p);
    expect_no_leak();
}

/* The peer can change the pipe's flags, and may never read from the pipe. */
static void a_wake_up_pipe_that_blocks_blocks_nobody(void **state)
{
    static char bytes[1 << 20];
    (void)state;
    struct passed p = passed_good();
    struct um_shm_contact_wire hello = hello_good();
    int fd = dial(), handle = -1;
    assert_int_equal(fcntl(p.file[UM_CONTACT_WAKE], F_SETFL, O_NONBLOCK), 0);
    while (write(p.file[UM_CONTACT_WAKE], bytes, sizeof(bytes)) > 0)
        ;
    assert_int_equal(fcntl(p.file[UM_CONTACT_WAKE], F_SETFL, 0), 0);
    assert_int_equal(um_shm_contact_send(fd, &hello, p.file), 0);
    assert_int_equal(answer(fd), 0);
    alarm(20);
    assert_int_equal(port->mapper->wake_open(port, &hello.from, 0, &handle), 0);
    port->mapper->wake(port, &hello.from, handle);
    alarm(0);
    port->mapper->wake_drop(handle);
    close(fd);
    passed_close(&p);
    expect_no_leak();
}

static void another_user_gets_nothing(void **state)
{
    (void)state;
    int status;
    needs(geteuid() == 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct sockaddr_un name;
        char byte;
        const socklen_t len = um_shm_contact_name(port, &port->addr, &name);
        int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        if (setuid(65534) != 0 || connect(fd, (struct sockaddr *)&name, len) != 0)
            _exit(1);
        struct um_shm_contact_wire hello = hello_good();
        (void)um_shm_contact_send(fd, &hello, NULL);
        _exit(recv(fd, &byte, 1, 0) > 0 ? 2 : 0);
    }
    while (waitpid(pid, &status, WNOHANG) == 0) {
        um_mem_tick(&port->port);
        usleep(1000);
    }
    assert_int_equal(status, 0);
    expect_no_leak();
}

/* ---- the port asks peers ---- */

/* Listens under the name that belongs to the address. */
static int pretend(const struct um_addr *addr)
{
    struct sockaddr_un name;
    const socklen_t len = um_shm_contact_name(port, addr, &name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&name, len), 0);
    assert_int_equal(listen(fd, 4), 0);
    return fd;
}

enum { REPLY_NOISE = LIES, REPLY_STATUS, REPLY_FROM, REPLY_EMPTY_MEMORY, REPLY_HANG_UP, REPLIES };

static void reply_tell(int fd, const struct um_addr *self, int lie)
{
    struct passed p = passed_good();
    struct um_shm_contact_wire reply = hello_good(), hello;
    int files[UM_CONTACT_FILES];
    /* Takes the hello first: a side that hangs up with unread data takes back what it has sent. */
    assert_int_equal(um_shm_contact_receive(fd, &hello, files), 0);
    um_shm_contact_files_close(files);
    reply.to = port->addr;
    reply.from = *self;
    reply.from.word[2] ^= lie == REPLY_FROM;
    reply.magic ^= lie == LIE_MAGIC;
    reply.status = lie == REPLY_STATUS ? INT32_MIN : 0;
    if (lie == LIE_UNSEALED) {
        close(p.file[UM_CONTACT_MEMORY]);
        p.file[UM_CONTACT_MEMORY] = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        assert_int_equal(ftruncate(p.file[UM_CONTACT_MEMORY], 1 << 20), 0);
    }
    if (lie == REPLY_NOISE)
        assert_int_equal(send(fd, "noise", 5, MSG_NOSIGNAL), 5);
    else if (lie != REPLY_HANG_UP)
        assert_int_equal(um_shm_contact_send(fd, &reply, p.file), 0);
    passed_close(&p);
}

static void a_reply_that_lies_is_refused(void **state)
{
    static const struct {
        int lie, expected;
    } cases[] = {{LIE_MAGIC, -EPROTO},          {LIE_UNSEALED, -EPROTO}, {REPLY_NOISE, -EPROTO},
                 {REPLY_STATUS, -ECONNREFUSED}, {REPLY_FROM, -EPROTO},   {REPLY_EMPTY_MEMORY, -EHOSTUNREACH},
                 {REPLY_HANG_UP, -ECONNREFUSED}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct um_addr addr = stranger();
        struct um_core_peer *peer;
        int ret, listening = pretend(&addr);
        assert_int_equal(um_core_peer_get(w.node[0].ep, &addr, &peer), 0);
        for (int n = 0; n < 50; n++)
            assert_int_equal(um_proto_inject(w.node[0].ep, peer, "x", 1, 1, 0, UM_OP_TAGGED), -EAGAIN);
        int fd = accept(listening, NULL, NULL);
        assert_true(fd >= 0);
        reply_tell(fd, &addr, cases[i].lie);
        close(listening);
        close(fd);
        for (int n = 0; n < 100000; n++) {
            ret = um_proto_inject(w.node[0].ep, peer, "x", 1, 1, 0, UM_OP_TAGGED);
            if (ret != -EAGAIN)
                break;
        }
        if (ret != cases[i].expected)
            fail_msg("lie %d: %d", cases[i].lie, ret);
    }
    expect_served();
    expect_no_leak();
}

/* is_here() is asked when another machine could be used instead. It passes no descriptors: those go only to a peer to
 * which something is sent. */
static void whether_a_peer_is_there_is_asked_without_a_word(void **state)
{
    (void)state;
    struct um_addr addr = stranger();
    char byte;
    assert_false(port->mapper->is_here(port, &addr));
    int listening = pretend(&addr);
    assert_true(port->mapper->is_here(port, &addr));
    int fd = accept(listening, NULL, NULL);
    assert_true(fd >= 0);
    assert_int_equal(recv(fd, &byte, 1, 0), 0);
    close(fd);
    close(listening);
    assert_false(port->mapper->is_here(port, &addr));
    expect_no_leak();
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)
static const struct CMUnitTest tests[] = {
    CASE(connections_that_say_nothing_hold_up_nobody),
    CASE(connections_that_are_left_end_the_next_sleep),
    CASE(a_connection_without_a_descriptor_ends_the_next_sleep),
    CASE(what_is_no_hello_is_refused),
    CASE(a_hello_that_lies_is_refused_with_the_reason),
    CASE(more_files_than_it_names_are_refused),
    CASE(an_address_that_is_in_contact_is_not_taken_over),
    CASE(more_contacts_than_lanes_are_refused),
    CASE(the_last_descriptors_are_left_to_the_program),
    CASE(who_cannot_be_answered_is_hung_up_on_and_asks_again),
    CASE(a_wake_up_pipe_that_blocks_blocks_nobody),
    CASE(another_user_gets_nothing),
    CASE(a_reply_that_lies_is_refused),
    CASE(whether_a_peer_is_there_is_asked_without_a_word),
};
WORLD_MAIN("contacts that lie", tests)
