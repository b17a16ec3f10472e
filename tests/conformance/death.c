/* Conformance of machines with processes: senders that die, at every moment, and what stays behind. */
#include "conform.h"

#include "machine/shm/shm.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Memory that child and parent share. */
struct shared {
    struct um_addr addr;  /* of the parent's port */
    int records;          /* to be sent */
    uint64_t committed;   /* by the child, over all its lanes */
    uint64_t lanes_ended; /* lanes the child closed in good order */
};

static struct shared *shared_new(const struct um_port *port)
{
    struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    shared->addr = addr_of(port);
    return shared;
}

static void shared_free(struct shared *shared)
{
    munmap(shared, sizeof(*shared));
}

static const char *lane_to_parent(const struct shared *shared, struct um_link **link_p, struct um_lane **lane_p)
{
    struct um_port *port;
    struct um_port_config config = {.private_copy = true};
    if (machine->port_open(&config, &port) != 0 || machine->link_open(port, &shared->addr, link_p) != 0)
        return "no port or link";
    return machine->lane_open(*link_p, lane_p) == 0 ? NULL : "no lane";
}

/* Waits until a sender joins, whose address is not known here. Returns its rx. */
static struct um_rx *joined(struct um_port *port)
{
    struct um_record rec;
    uint64_t end = now_ms() + PATIENCE;
    while (!poll_now(port, &rec))
        if (now_ms() > end)
            fail_msg("nobody joins");
    assert_int_equal(rec.op, UM_REC_JOINED);
    machine->release(port, &rec);
    return rec.rx;
}

/* All lanes of the port must become free, after some ticks. A sender that was killed before it rang the bell may join
 * and leave meanwhile. */
static void expect_lanes_free(struct um_port *port, uint32_t lanes)
{
    struct um_port *other = port_new(1);
    struct path p[16];
    struct um_addr addr = addr_of(port);
    uint64_t end = now_ms() + PATIENCE;
    for (uint32_t i = 0; i < lanes; i++) {
        int ret;
        p[i] = (struct path){.from = other, .to = port};
        assert_int_equal(machine->link_open(other, &addr, &p[i].link), 0);
        while ((ret = machine->lane_open(p[i].link, &p[i].lane)) == -EAGAIN && now_ms() < end) {
            struct um_record rec;
            machine->tick(port);
            if (machine->poll(port, &rec))
                machine->release(port, &rec);
        }
        assert_int_equal(ret, 0);
        p[i].rx = expect_joined(port, other);
        message_send(p[i].lane, MESSAGE(i, .body_len = 100));
        expect_message(port, p[i].rx, MESSAGE(i, .body_len = 100));
    }
    for (uint32_t i = 0; i < lanes; i++)
        path_end(&p[i]);
    machine->port_close(other);
}

/* ---- senders ---- */

static const char *leaver(struct parent *parent)
{
    const struct shared *shared = parent->arg;
    struct um_link *link;
    struct um_lane *lane;
    const char *wrong = lane_to_parent(shared, &link, &lane);
    for (int i = 0; i < shared->records && !wrong; i++)
        wrong = message_try(lane, MESSAGE((uint64_t)i, .body_len = (uint32_t)i * 11)) == 0 ? NULL : "a claim failed";
    return wrong; /* and exits at once: nothing is closed */
}

static void a_message_survives_its_sender(void **state)
{
    (void)state;
    struct um_port *port = port_new(2);
    struct shared *shared = shared_new(port);
    for (int round = 0; round < 24; round++) {
        shared->records = round * 3;
        struct child child = child_start(leaver, shared);
        if (round % 2)
            child_join(&child);
        struct um_rx *rx = joined(port);
        for (int i = 0; i < shared->records; i++) {
            if (round % 3 == 0)
                machine->tick(port);
            struct um_record rec;
            for (uint64_t end = now_ms() + PATIENCE; !poll_now(port, &rec) && now_ms() < end;)
                ;
            assert_int_equal(rec.op, 1);
            assert_true(message_is(&rec, MESSAGE((uint64_t)i, .body_len = (uint32_t)i * 11)));
            machine->release(port, &rec);
        }
        expect_death(port, rx);
        if (round % 2 == 0)
            child_join(&child);
    }
    expect_lanes_free(port, 2);
    shared_free(shared);
    machine->port_close(port);
}

static const char *half_writer(struct parent *parent)
{
    const struct shared *shared = parent->arg;
    struct um_link *link;
    struct um_lane *lane;
    struct um_slot slot;
    const char *wrong = lane_to_parent(shared, &link, &lane);
    for (int i = 0; i < shared->records && !wrong; i++)
        wrong = message_try(lane, MESSAGE((uint64_t)i)) == 0 ? NULL : "a claim failed";
    if (wrong || machine->claim(lane, 500, &slot) != 0)
        return "no claim";
    memset(slot.header, 0xff, UM_HEADER_MAX);
    memset(slot.body, 0xff, 250);
    pipe_put(parent->to_parent, "", 1);
    pause();
    return "not reached";
}

static void a_sender_killed_in_a_claim_blocks_nobody(void **state)
{
    (void)state;
    struct um_port *port = port_new(3), *local = port_new(1);
    struct shared *shared = shared_new(port);
    struct path other = path_joined(local, port);
    for (int round = 0; round < 20; round++) {
        char byte;
        shared->records = round;
        struct child child = child_start(half_writer, shared);
        pipe_get(child.from_child, &byte, 1);
        child_kill(&child);
        if (round % 2)
            child_reap(&child);
        struct um_rx *rx = joined(port);
        for (int i = 0; i < shared->records; i++)
            expect_message(port, rx, MESSAGE((uint64_t)i));
        message_send(other.lane, MESSAGE(5, .body_len = 500));
        expect_message(port, other.rx, MESSAGE(5, .body_len = 500));
        expect_death(port, rx);
        expect_nothing(port);
        if (round % 2 == 0)
            child_reap(&child);
    }
    path_end(&other);
    expect_lanes_free(port, 3);
    shared_free(shared);
    machine->port_close(local);
    machine->port_close(port);
}

/* Opens a lane, sends, lets the lane grow, and closes it, again and again. */
static const char *busy_sender(struct parent *parent)
{
    struct shared *shared = parent->arg;
    struct um_link *link;
    struct um_lane *lane;
    const char *wrong = lane_to_parent(shared, &link, &lane);
    pipe_put(parent->to_parent, "", 1);
    for (uint64_t life = 1; !wrong; life++) {
        for (uint64_t i = 0; i < life % 90;) {
            uint32_t len = i % 30 == 29 ? machine->lane_body_max(lane, machine->body_max) : (uint32_t)(i % 7 * 50);
            if (message_try(lane, MESSAGE(life << 32 | i, .body_len = len)) != 0)
                continue;
            shared->committed++;
            i++;
        }
        machine->lane_close(lane);
        shared->lanes_ended++;
        int ret;
        while ((ret = machine->lane_open(link, &lane)) == -EAGAIN)
            ;
        wrong = ret ? "no lane" : NULL;
    }
    return wrong;
}

struct tally {
    uint64_t records, left, died;
    int open;
};

/* Polls once, counts what comes, and checks that the records of a lane are consecutive. False: nothing came. */
static bool count_one(struct um_port *port, struct tally *tally)
{
    struct um_record rec;
    if (!poll_now(port, &rec))
        return false;
    if (rec.op == UM_REC_JOINED) {
        tally->open++;
        rec.rx->user = NULL;
    } else if (rec.op == UM_REC_LEFT) {
        tally->open--;
        tally->left += rec.len == 0;
        tally->died += rec.len != 0;
    } else {
        uint64_t number = message_number(&rec);
        uint64_t before = (uintptr_t)rec.rx->user;
        assert_true(before ? number == before + 1 : (uint32_t)number == 0);
        assert_true(message_is(&rec, MESSAGE(number, .body_len = rec.body ? rec.len : 0)));
        rec.rx->user = (void *)(uintptr_t)number;
        tally->records++;
    }
    machine->release(port, &rec);
    return true;
}

static void a_sender_killed_at_any_moment_loses_nothing_it_committed(void **state)
{
    (void)state;
    uint64_t seed = 11;
    for (int round = 0; round < 200 * effort; round++) {
        struct um_port *port = port_new(2);
        struct shared *shared = shared_new(port);
        struct tally tally = {0};
        char byte;
        struct child child = child_start(busy_sender, shared);
        if (round % 4 == 3) { /* in the midst of its first contact */
            sleep_us(chance(&seed, 1500));
        } else {
            pipe_get(child.from_child, &byte, 1);
            for (uint32_t polls = chance(&seed, 30000); polls > 0; polls--)
                count_one(port, &tally);
        }
        child_kill(&child);
        if (round % 2)
            child_reap(&child);
        for (uint64_t end = now_ms() + PATIENCE; now_ms() < end;) {
            machine->tick(port);
            bool more = count_one(port, &tally);
            if (!more && tally.open == 0 && tally.left >= shared->lanes_ended)
                break;
        }
        assert_int_equal(tally.open, 0);
        assert_true(tally.records == shared->committed || tally.records == shared->committed + 1);
        assert_true(tally.left == shared->lanes_ended || tally.left == shared->lanes_ended + 1);
        assert_true(tally.died <= 1);
        if (round % 2 == 0)
            child_reap(&child);
        expect_lanes_free(port, 2);
        shared_free(shared);
        machine->port_close(port);
    }
}

/* A sender sets its bell bit, then the summary bit; this one was killed between them. */
static void a_half_rung_bell_is_rung_by_the_next_sender(void **state)
{
    (void)state;
    struct um_port *a = port_new(1), *b = port_new(2);
    struct um_addr addr = addr_of(b);
    const struct um_shm_addr *fields = um_shm_addr_of(&addr);
    struct um_mem_port_shm *shm = mmap(NULL, UM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fields->memory_fd, 0);
    assert_ptr_not_equal(shm, MAP_FAILED);
    for (int round = 0; round < 20; round++) {
        shm->common.bell[0] |= 1;
        struct path p = path_joined(a, b);
        expect_nothing(b);
        while (machine->arm(b) != 0)
            expect_nothing(b);
        shm->common.bell[0] |= 1;
        message_send(p.lane, MESSAGE(1));
        assert_true(is_readable(machine->wait_fd(b), SEC));
        machine->disarm(b);
        expect_message(b, p.rx, MESSAGE(1));
        path_end(&p);
    }
    munmap(shm, UM_PAGE);
    machine->port_close(b);
    machine->port_close(a);
}

static const char *joiner(struct parent *parent)
{
    struct um_link *link;
    struct um_lane *lane;
    const char *wrong = lane_to_parent(parent->arg, &link, &lane);
    if (wrong)
        return wrong;
    pipe_put(parent->to_parent, "", 1);
    pause();
    return "not killed";
}

/* The sender was killed before it rang the bell, and its process is a zombie: only a tick finds its lane. */
static void a_sender_that_never_rang_is_found_by_a_tick(void **state)
{
    (void)state;
    struct um_port *port = port_new(2);
    struct shared *shared = shared_new(port);
    struct um_mem_port_shm *shm =
        mmap(NULL, UM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, um_shm_addr_of(&shared->addr)->memory_fd, 0);
    struct um_record rec;
    char byte;
    assert_ptr_not_equal(shm, MAP_FAILED);
    struct child child = child_start(joiner, shared);
    pipe_get(child.from_child, &byte, 1);
    child_kill(&child);
    shm->common.bell[0] = shm->common.bell_summary = 0;
    expect_nothing(port);
    machine->tick(port);
    assert_true(poll_now(port, &rec));
    assert_int_equal(rec.op, UM_REC_JOINED);
    struct um_rx *rx = rec.rx;
    machine->release(port, &rec);
    expect_death(port, rx);
    child_reap(&child);
    munmap(shm, UM_PAGE);
    shared_free(shared);
    machine->port_close(port);
}

/* ---- senders that sleep ---- */

static const char *sleeping_sender(struct parent *parent)
{
    const struct shared *shared = parent->arg;
    struct um_link *link;
    struct um_lane *lane;
    struct um_port *port;
    struct um_port_config config = {.private_copy = true};
    if (machine->port_open(&config, &port) != 0 || machine->link_open(port, &shared->addr, &link) != 0 ||
        machine->lane_open(link, &lane) != 0)
        return "no port, link or lane";
    machine->lane_watch(lane, true);
    for (int i = 0; i < shared->records; i++) {
        struct um_answer answer;
        if (message_try(lane, MESSAGE((uint64_t)i, .flags = UM_FLAG_ACK)) != 0)
            return "a claim failed";
        while (machine->lane_reap(lane, &answer, 1) == 0) {
            machine->lane_consumed(lane);
            if (machine->arm(port) != 0)
                continue;
            pipe_put(parent->to_parent, &(char){(char)('a' + i)}, 1);
            is_readable(machine->wait_fd(port), -1);
            machine->disarm(port);
        }
    }
    return "not reached";
}

static void an_answer_to_a_sender_that_died_in_its_sleep_harms_nobody(void **state)
{
    (void)state;
    for (int round = 0; round < 10; round++) {
        struct um_port *port = port_new(2);
        struct shared *shared = shared_new(port);
        shared->records = 1 + round % 3;
        struct child child = child_start(sleeping_sender, shared);
        struct um_rx *rx = joined(port);
        for (int i = 0; i < shared->records; i++) {
            struct um_record rec;
            child_await_sleep(&child,
                              (char)('a' + i)); /* the child may write it twice for one record: credit wakes it, too */
            assert_true(poll_now(port, &rec));
            bool is_last = i == shared->records - 1;
            if (is_last)
                child_kill(&child);
            machine->release(port, &rec);
            for (int token = 0; token < (is_last ? 5 : 1); token++)
                machine->answer(rec.rx, (uint16_t)token, i);
        }
        expect_death(port, rx);
        child_reap(&child);
        expect_lanes_free(port, 2);
        shared_free(shared);
        machine->port_close(port);
    }
}

/* ---- what stays ---- */

/* Counts the files of the directory whose names contain `part` and that changed at or after `since`: other programs
 * leave files, too. */
static int names_with(const char *directory, const char *part, time_t since)
{
    DIR *dir = opendir(directory);
    struct stat st;
    int count = 0;
    if (!dir)
        return 0;
    for (const struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        if (strstr(entry->d_name, part) && fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            count += st.st_ctime >= since;
    }
    closedir(dir);
    return count;
}

static void a_killed_process_leaves_no_file(void **state)
{
    (void)state;
    struct um_port *port = port_new(2);
    struct shared *shared = shared_new(port);
    char byte, pid[32];
    time_t since = time(NULL) - 1;
    struct child child = child_start(half_writer, shared);
    pipe_get(child.from_child, &byte, 1);
    child_kill(&child);
    child_reap(&child);
    snprintf(pid, sizeof(pid), "%d", child.pid);
    assert_int_equal(names_with("/dev/shm", pid, since), 0);
    assert_int_equal(names_with("/dev/shm", "unimem", since), 0);
    assert_int_equal(names_with("/tmp", "unimem-port", since), 0);
    expect_death(port, joined(port));
    shared_free(shared);
    machine->port_close(port);
}

GROUP(death, T(a_message_survives_its_sender), T(a_sender_killed_in_a_claim_blocks_nobody),
      T(a_sender_killed_at_any_moment_loses_nothing_it_committed), T(a_half_rung_bell_is_rung_by_the_next_sender),
      T(a_sender_that_never_rang_is_found_by_a_tick), T(an_answer_to_a_sender_that_died_in_its_sleep_harms_nobody),
      T(a_killed_process_leaves_no_file));
