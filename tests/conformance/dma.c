/* Windows by DMA over a board: between processes that unexport or die, and with a peer that lies. */
#include "conform.h"

#include "needs.h"

#include "base/atomic.h"
#include "machine/board/board.h"

enum { BYTES = 100000, KEY = 5, BOTH = UM_ACCESS_REMOTE_READ | UM_ACCESS_REMOTE_WRITE };

static struct um_space *space;
static struct um_exported *exported;
static unsigned char *memory;
static struct um_port *port;
static struct um_link *link;

/* ---- an owner, and a peer that looks ---- */

/* Returns NULL, or what went wrong: a child calls it, too. */
static const char *owner_open(void)
{
    const struct um_space_config config = {.adopt = true};
    void *got;
    if (machine->space_open(&config, &space) || machine->memory_alloc(space, BYTES, &got))
        return "memory_alloc";
    memory = got;
    const struct um_region_desc what = {.key = KEY, .base = (uintptr_t)got, .len = BYTES, .access = BOTH};
    const struct um_port_config with = {.space = space, .private_copy = true};
    if (machine->port_open(&with, &port) || machine->export(space, &what, &exported))
        return "export";
    return NULL;
}

static void owner_close(void)
{
    machine->port_close(port);
    machine->space_close(space);
}

/* Waits for a window at level copy. NULL: there is none. */
static struct um_window *window_await(void)
{
    struct um_window *w = NULL;
    for (uint64_t end = now_ms() + PATIENCE; now_ms() < end; machine->window_close(w)) {
        if (machine->window_open(link, KEY, &w))
            return NULL;
        if (w->level == UM_LEVEL_COPY)
            return w;
    }
    return NULL;
}

static bool is_current(const struct um_window *w)
{
    return um_load_acquire_u64(w->changes_at) == w->changes;
}

static int word_write(const struct um_window *w, uint64_t offset, uint64_t word)
{
    const struct um_piece piece = {.addr = w->region.base + offset, .len = 8};
    const struct iovec local = {.iov_base = &word, .iov_len = 8};
    return copy_now(link, true, &COPY(&piece, 1, &local, 1, 8));
}

/* ---- two processes ---- */

/* Exports memory, and polls until the first word is written. Unexports when the parent says so, and polls no more. */
static const char *owner(struct parent *parent)
{
    struct um_record rec;
    struct um_addr addr;
    char c;
    const char *wrong = owner_open();
    if (wrong)
        return wrong;
    addr = addr_of(port);
    pipe_put(parent->to_parent, &addr, sizeof(addr));
    const uint64_t *word = (void *)memory;
    for (uint64_t end = now_ms() + PATIENCE; um_load_acquire_u64(word) != 7;)
        if (machine->poll(port, &rec) || now_ms() > end)
            return "the word did not come";
    pipe_put(parent->to_parent, "w", 1);
    pipe_get(parent->from_parent, &c, 1);
    machine->unexport(space, exported);
    pipe_put(parent->to_parent, "c", 1);
    pipe_get(parent->from_parent, &c, 1);
    owner_close();
    return NULL;
}

static struct um_window *owner_seen(struct child *child)
{
    struct um_addr addr;
    char c;
    *child = child_start(owner, NULL);
    pipe_get(child->from_child, &addr, sizeof(addr));
    port = port_new(0);
    assert_int_equal(machine->link_open(port, &addr, &link), 0);
    struct um_window *w = window_await();
    assert_non_null(w);
    assert_int_equal(w->region.len, BYTES);
    assert_int_equal(word_write(w, 0, 7), 0);
    pipe_get(child->from_child, &c, 1);
    assert_true(is_current(w));
    return w;
}

/* The return of unexport() does not depend on a call of this process; no call of this process waits for the owner. */
static void a_window_has_ended_when_unexport_returns_whoever_polls(void **state)
{
    struct child child;
    struct um_window *again;
    char c;
    (void)state;
    struct um_window *w = owner_seen(&child);
    pipe_put(child.to_child, "c", 1);
    pipe_get(child.from_child, &c, 1);
    assert_false(is_current(w));
    machine->window_close(w);
    assert_int_equal(machine->window_open(link, KEY, &again), 0);
    assert_int_equal(again->level, UM_LEVEL_REMOTE);
    machine->window_close(again);
    pipe_put(child.to_child, "e", 1);
    child_join(&child);
    machine->link_close(link);
    machine->port_close(port);
}

static void an_owner_that_died_is_told_of(void **state)
{
    struct child child;
    (void)state;
    needs(has_robust_locks());
    struct um_window *w = owner_seen(&child), *again;
    child_kill(&child);
    uint64_t end = now_ms() + PATIENCE;
    while (word_write(w, 8, 9) == 0)
        assert_true(now_ms() < end);
    assert_int_equal(word_write(w, 8, 9), -ESRCH);
    machine->window_close(w);
    if (machine->window_open(link, KEY, &again) == 0)
        machine->window_close(again);
    machine->link_close(link);
    machine->port_close(port);
    child_reap(&child);
}

/* Writes to the parent's memory through a window; opens another one whenever the last one is not current any more. */
static const char *looker(struct parent *parent)
{
    struct um_addr addr;
    port = port_new(0);
    pipe_get(parent->from_parent, &addr, sizeof(addr));
    if (machine->link_open(port, &addr, &link))
        return "link_open";
    for (uint64_t i = 1;; i++) {
        struct um_window *w = window_await();
        if (!w)
            return "no window";
        while (is_current(w) && word_write(w, 0, i) == 0)
            ;
        machine->window_close(w);
        if (i == 3)
            pipe_put(parent->to_parent, "3", 1);
    }
    return NULL;
}

static void who_dies_looking_holds_up_nobody(void **state)
{
    enum { LOOKERS = 3 };
    struct child child[LOOKERS];
    const struct um_region_desc what = {.key = KEY, .len = BYTES, .access = BOTH};
    struct um_record rec;
    (void)state;
    needs(has_robust_locks());
    for (int i = 0; i < LOOKERS; i++)
        child[i] = child_start(looker, NULL);
    assert_null(owner_open());
    struct um_addr addr = addr_of(port);
    for (int i = 0; i < LOOKERS; i++)
        pipe_put(child[i].to_child, &addr, sizeof(addr));
    uint64_t end = now_ms() + PATIENCE;
    for (int killed = 0, round = 0; killed < LOOKERS || round < 100; round++) {
        struct um_region_desc again = what;
        again.base = (uintptr_t)memory;
        assert_true(now_ms() < end);
        sleep_us(500);
        assert_int_equal(machine->poll(port, &rec), 0);
        machine->unexport(space, exported);
        *(volatile uint64_t *)(void *)memory = 0;
        assert_int_equal(machine->export(space, &again, &exported), 0);
        if (killed < LOOKERS && is_readable(child[killed].from_child, 0))
            child_kill(&child[killed++]);
        end = killed < LOOKERS ? end : now_ms() + PATIENCE;
    }
    for (int i = 0; i < LOOKERS; i++)
        child_reap(&child[i]);
    machine->unexport(space, exported);
    owner_close();
}

/* A DMA does not notify the owner: the owner executes accesses that count. */
static void what_counts_has_no_window(void **state)
{
    const struct um_region_desc what = {.key = KEY + 1, .len = BYTES, .access = BOTH, .counters = 3};
    struct um_region_desc counting = what;
    struct um_exported *other;
    struct um_window *w;
    (void)state;
    assert_null(owner_open());
    struct um_port *peer = port_new(0);
    struct um_addr addr = addr_of(port);
    assert_int_equal(machine->link_open(peer, &addr, &link), 0);
    counting.base = (uintptr_t)memory;
    assert_int_equal(machine->export(space, &counting, &other), 0);
    for (uint32_t counters = 3; counters != UINT32_MAX; counters = counters ? 0 : UINT32_MAX) {
        enum um_level expected = counters ? UM_LEVEL_REMOTE : UM_LEVEL_COPY;
        machine->exported_set_counters(space, other, counters);
        assert_int_equal(machine->exported_level(other), expected);
        assert_int_equal(machine->window_open(link, KEY + 1, &w), 0);
        assert_int_equal(w->level, expected);
        machine->window_close(w);
    }
    w = window_await();
    assert_non_null(w);
    machine->port_set_counters(port, 3 << UM_COUNT_READ_SHIFT);
    assert_false(is_current(w));
    machine->window_close(w);
    assert_int_equal(machine->window_open(link, KEY, &w), 0);
    assert_int_equal(w->level, UM_LEVEL_REMOTE);
    machine->port_set_counters(port, 0);
    assert_false(is_current(w));
    machine->window_close(w);
    machine->unexport(space, other);
    assert_int_equal(machine->export(space, &counting, &other), 0);
    assert_int_equal(machine->exported_level(other), UM_LEVEL_REMOTE);
    machine->unexport(space, other);
    machine->unexport(space, exported);
    machine->link_close(link);
    machine->port_close(peer);
    owner_close();
}

/* ---- a peer that lies: a context of its own that uses the board's interface alone ---- */

static struct unimem_board *liar;
static struct unimem_mailbox *mailbox;
static unsigned char *lies; /* dmable */

static struct um_addr liar_open(void)
{
    struct unimem_mailbox_address address;
    void *got;
    assert_int_equal(um_board_api.open(NULL, UNIMEM_NODE_ANY, &liar), 0);
    assert_int_equal(um_board_api.mailbox_open(liar, &mailbox), 0);
    assert_int_equal(um_board_api.alloc_dmable(liar, BYTES, &got), 0);
    lies = got;
    um_board_api.mailbox_get_address(mailbox, &address);
    return um_board_addr(&address);
}

/* Answers the port's request with this notice and a valid check. */
static void lie(const struct um_board_seek_wire *asked, struct um_board_notice_wire notice)
{
    const struct unimem_remote at = {asked->node, asked->context, asked->notice};
    uint64_t dma;
    notice.check = um_board_check(&notice, 7);
    memcpy(lies + BYTES - sizeof(notice), &notice, sizeof(notice));
    assert_int_equal(um_board_api.enter(liar, &at, sizeof(notice)), 0);
    assert_int_equal(um_board_api.dma_write(liar, &at, lies + BYTES - sizeof(notice), sizeof(notice), &dma), 0);
    while (um_board_api.dma_poll(liar, dma) == -EINPROGRESS)
        ;
    assert_int_equal(um_board_api.deregister(liar, &at), 0);
}

static enum um_level level_now(void)
{
    struct um_window *w = NULL;
    int ret = machine->window_open(link, KEY, &w);
    enum um_level level = ret ? UM_LEVEL_REMOTE : w->level;
    assert_true(ret || w->changes != UINT64_MAX); /* that value means that the memory is gone */
    if (ret == 0 && level == UM_LEVEL_COPY)
        assert_int_not_equal(word_write(w, 0, 1), 0);
    if (ret == 0)
        machine->window_close(w);
    return level;
}

static void entry_lie(struct um_board_entry_wire entry)
{
    entry.check = um_board_check(&entry, 7);
    for (int i = 0; i < 2 * UM_BOARD_BUCKET; i++)
        memcpy(lies + (size_t)i * sizeof(entry), &entry, sizeof(entry));
}

/* The table is valid; each of these notices describes it wrongly. */
static void notices_lie(const struct um_board_seek_wire *asked, uint64_t there)
{
    const struct um_board_notice_wire notices[] = {
        {.changes = 1, .table = 4096, .buckets = 2},
        {.changes = 2, .table = there, .buckets = 3},
        {.changes = 3, .table = there, .buckets = UINT64_C(1) << 63},
        {.changes = 4, .table = there + 1, .buckets = 1024},
        {.changes = 5, .table = UINT64_MAX, .buckets = UM_BOARD_BUCKETS_MAX},
        {.changes = 6},
        {.changes = UINT64_MAX, .table = there, .buckets = 2},
    };
    for (size_t i = 0; i < sizeof(notices) / sizeof(notices[0]); i++) {
        lie(asked, notices[i]);
        assert_int_equal(level_now(), UM_LEVEL_REMOTE);
    }
}

static void a_table_of_lies_reaches_nothing(void **state)
{
    struct um_board_seek_wire asked;
    (void)state;
    port = port_new(0);
    struct um_addr addr = liar_open();
    assert_int_equal(machine->link_open(port, &addr, &link), 0);
    assert_int_equal(level_now(), UM_LEVEL_REMOTE);
    assert_int_equal(um_board_api.mailbox_receive(mailbox, &asked), 0);
    assert_int_equal(asked.kind & UM_BOARD_KIND_MASK, UM_BOARD_SEEK);
    const uint64_t there = (uintptr_t)lies;
    notices_lie(&asked, there);
    entry_lie((struct um_board_entry_wire){.key = KEY, .base = UINT64_MAX - 5, .len = 100, .access = BOTH});
    lie(&asked, (struct um_board_notice_wire){.changes = 7, .table = there, .buckets = 2});
    assert_int_equal(level_now(), UM_LEVEL_REMOTE);
    entry_lie((struct um_board_entry_wire){.key = KEY, .base = there, .len = 100, .access = 5});
    assert_int_equal(level_now(), UM_LEVEL_REMOTE);
    entry_lie((struct um_board_entry_wire){.key = KEY, .base = 4096, .len = 100, .access = BOTH});
    assert_int_equal(level_now(), UM_LEVEL_COPY); /* the entry is believed, but the write finds no memory */
    for (int i = 0; i < 2 * UM_BOARD_BUCKET; i++)
        lies[i * UM_BOARD_LINE + 60]++; /* as if the entries were just being written */
    assert_int_equal(level_now(), UM_LEVEL_REMOTE);
    for (int i = 0; i < 2 * UM_BOARD_BUCKET; i++)
        lies[i * UM_BOARD_LINE + 60]--;
    lie(&asked,
        (struct um_board_notice_wire){.changes = 8, .table = there, .buckets = 2, .directory = 4096, .version = 1});
    assert_int_equal(level_now(), UM_LEVEL_COPY);
    struct um_board_arena_wire *arena = (void *)(lies + 32768);
    *arena = (struct um_board_arena_wire){.base = 0, .len = UINT64_MAX};
    arena->check = um_board_check(arena, 3);
    lie(&asked, (struct um_board_notice_wire){
                    .changes = 9, .table = there, .buckets = 2, .directory = (uintptr_t)arena, .version = 2});
    assert_int_equal(level_now(), UM_LEVEL_COPY);
    machine->link_close(link);
    machine->port_close(port);
    um_board_api.close(liar);
}

static void messages_that_mean_nothing_are_ignored(void **state)
{
    uint64_t seed = 11;
    struct um_record rec;
    (void)state;
    assert_null(owner_open());
    struct um_addr addr = liar_open(), own = addr_of(port);
    const struct unimem_mailbox_address to = um_board_mailbox(&own);
    for (int i = 0; i < 20000 * effort; i++) {
        uint32_t word[6];
        for (int k = 0; k < 6; k++)
            word[k] = chance(&seed, 3) ? chance(&seed, UINT32_MAX) : chance(&seed, 70000);
        if (chance(&seed, 4) == 0) /* a context that exists: the port may answer it */
            word[1] = um_board_mailbox(&addr).context;
        int ret = um_board_api.mailbox_send(liar, &to, word, sizeof(word));
        if (ret == -EAGAIN) {
            while (machine->poll(port, &rec) && rec.op != UM_REC_JOINED)
                machine->release(port, &rec);
        } else {
            assert_int_equal(ret, 0);
        }
    }
    um_board_api.close(liar);
    struct um_port *other = port_new(0);
    assert_int_equal(machine->link_open(other, &own, &link), 0);
    struct um_window *w = window_await(); /* an honest peer is still served */
    assert_non_null(w);
    assert_int_equal(word_write(w, 8, 77), 0);
    assert_int_equal(((uint64_t *)(void *)memory)[1], 77);
    machine->window_close(w);
    machine->link_close(link);
    machine->port_close(other);
    machine->unexport(space, exported);
    owner_close();
}

GROUP(dma, T(a_window_has_ended_when_unexport_returns_whoever_polls), T(an_owner_that_died_is_told_of),
      T(who_dies_looking_holds_up_nobody), T(what_counts_has_no_window), T(a_table_of_lies_reaches_nothing),
      T(messages_that_mean_nothing_are_ignored));
