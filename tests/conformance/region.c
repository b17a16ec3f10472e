/* Conformance: regions that a space exports, and the windows through which peers see them. */
#include "conform.h"

#include "base/atomic.h"

enum { BYTES = 3 * 4096, BOTH = UM_ACCESS_REMOTE_READ | UM_ACCESS_REMOTE_WRITE };

static _Alignas(4096) unsigned char plain[BYTES];
static unsigned char *memory;
static struct um_region_desc whole = {.len = BYTES, .origin = 77, .access = BOTH}; /* all of memory */
static struct um_space *space;
static struct um_port *owner, *peer;
static struct um_link *link;

static void regions_open(bool adopt)
{
    const struct um_space_config config = {.adopt = adopt};
    memory = memory_begin(plain, BYTES);
    whole.base = (uintptr_t)memory;
    assert_int_equal(machine->space_open(&config, &space), 0);
    struct um_port_config with = {.space = space, .private_copy = true, .lanes_max = 4};
    assert_int_equal(machine->port_open(&with, &owner), 0);
    peer = port_new(4);
    struct um_addr addr = addr_of(owner);
    assert_int_equal(machine->link_open(peer, &addr, &link), 0);
}

static void regions_close(void)
{
    machine->link_close(link);
    machine->port_close(peer);
    machine->port_close(owner);
    machine->space_close(space);
    memory_end();
}

static struct um_exported *export(uint64_t key, const struct um_region_desc *what)
{
    struct um_region_desc own = *what;
    struct um_exported *exported;
    own.key = key;
    assert_int_equal(machine->export(space, &own, &exported), 0);
    return exported;
}

static struct um_window *window(uint64_t key)
{
    struct um_window *w;
    assert_int_equal(machine->window_open(link, key, &w), 0);
    assert_int_equal(w->region.key, key);
    return w;
}

static bool is_current(const struct um_window *w)
{
    return um_load_acquire_u64(w->changes_at) == w->changes;
}

/* Writes through the window, at its level, and checks the memory. */
static void write_through(const struct um_window *w, uint64_t offset, const char *text)
{
    size_t len = strlen(text) + 1;
    const struct um_piece piece = {.addr = w->region.base + offset, .len = len};
    const struct iovec local = {.iov_base = (void *)text, .iov_len = len};
    if (w->level >= UM_LEVEL_MAPPED)
        memcpy(w->base + offset, text, len);
    else
        assert_int_equal(copy_now(link, true, &COPY(&piece, 1, &local, 1, len)), 0);
    assert_memory_equal(memory + (w->region.base - whole.base) + offset, text, len);
}

static void a_region_is_seen_as_it_was_exported(void **state)
{
    (void)state;
    for (int adopt = 0; adopt < 2; adopt++) {
        regions_open(adopt);
        struct um_exported *exported = export(5, &whole);
        struct um_window *w = window(5);
        assert_int_equal(w->region.base, whole.base);
        assert_int_equal(w->region.len, whole.len);
        assert_int_equal(w->region.origin, whole.origin);
        assert_int_equal(w->region.access, whole.access);
        assert_true(w->level >= UM_LEVEL_COPY);
        assert_true(w->level >= UM_LEVEL_MAPPED || !w->base);
        write_through(w, 0, "first");
        write_through(w, BYTES - 5, "last");
        write_through(w, 4090, "over the edge");
        machine->window_close(w);
        machine->unexport(space, exported);
        regions_close();
    }
}

/* Returns a window at level remote: nothing is exported under the key. It is current until something is exported. */
static struct um_window *no_window(uint64_t key)
{
    struct um_window *w = window(key);
    assert_int_equal(w->level, UM_LEVEL_REMOTE);
    assert_true(is_current(w));
    return w;
}

static void a_key_that_is_not_there_has_no_window_until_it_is(void **state)
{
    (void)state;
    regions_open(true);
    struct um_window *none = no_window(0), *other = no_window(1);
    struct um_exported *exported = export(0, &whole);
    assert_false(is_current(none));
    machine->window_close(none);
    machine->window_close(other);
    struct um_window *w = window(0);
    assert_true(w->level >= UM_LEVEL_COPY);
    other = no_window(1);
    machine->unexport(space, exported);
    assert_false(is_current(w));
    machine->window_close(w);
    machine->window_close(other);
    machine->window_close(no_window(0));
    regions_close();
}

static void a_port_without_a_space_exports_nothing(void **state)
{
    (void)state;
    struct um_window *w;
    struct um_port *a = port_new(4), *b = port_new(4);
    struct um_link *to;
    struct um_addr addr = addr_of(b);
    assert_int_equal(machine->link_open(a, &addr, &to), 0);
    assert_int_equal(machine->window_open(to, 1, &w), -ENOENT);
    machine->link_close(to);
    machine->port_close(b);
    machine->port_close(a);
}

static void a_window_ends_with_its_region_also_when_the_key_comes_again(void **state)
{
    (void)state;
    regions_open(true);
    for (int round = 0; round < 50; round++) {
        struct um_exported *exported = export(9, &whole);
        struct um_window *w = window(9);
        assert_true(is_current(w));
        machine->unexport(space, exported);
        assert_false(is_current(w));
        exported = export(9, &whole);
        assert_false(is_current(w));
        struct um_window *again = window(9);
        assert_true(is_current(again));
        write_through(again, 5, "again");
        machine->window_close(w);
        machine->window_close(again);
        machine->unexport(space, exported);
    }
    regions_close();
}

/* Regions for which the table has no place are reached through their owner alone: at level remote, and without an
 * error. */
static void many_regions_are_found_each(void **state)
{
    (void)state;
    enum { N = 100000 };
    struct um_exported **exported = calloc(N, sizeof(struct um_exported *));
    uint64_t without = 0;
    regions_open(true);
    struct um_region_desc small = whole;
    small.access = UM_ACCESS_REMOTE_READ;
    for (uint64_t i = 0; i < N; i++) {
        small.len = i % BYTES;
        exported[i] = export(i * i, &small);
    }
    for (uint64_t i = 0; i < N; i += 7) {
        struct um_window *w = window(i * i);
        without += w->level == UM_LEVEL_REMOTE;
        if (w->level != UM_LEVEL_REMOTE)
            assert_int_equal(w->region.len, i % BYTES);
        machine->window_close(w);
    }
    assert_true(without < N / 7 / 100);
    for (uint64_t i = 0; i < N; i++)
        machine->unexport(space, exported[i]);
    free(exported);
    regions_close();
}

static void overlapping_regions_show_the_same_bytes(void **state)
{
    (void)state;
    regions_open(true);
    struct um_region_desc parts[] = {whole, whole, whole};
    parts[1].base += 100;
    parts[1].len = 5000;
    parts[2].base += 4096;
    parts[2].len = 4096;
    struct um_exported *exported[3];
    for (uint64_t i = 0; i < 3; i++)
        exported[i] = export(i, &parts[i]);
    for (uint64_t i = 0; i < 3; i++) {
        struct um_window *w = window(i);
        char text[] = "written 0";
        text[8] = (char)('0' + i);
        write_through(w, whole.base + 4500 - w->region.base, text);
        machine->window_close(w);
    }
    machine->unexport(space, exported[0]); /* the others stay reachable */
    struct um_window *w = window(2);
    assert_true(is_current(w));
    write_through(w, 5, "still");
    machine->window_close(w);
    machine->unexport(space, exported[1]);
    machine->unexport(space, exported[2]);
    regions_close();
}

GROUP(region, T(a_region_is_seen_as_it_was_exported), T(a_key_that_is_not_there_has_no_window_until_it_is),
      T(a_port_without_a_space_exports_nothing), T(a_window_ends_with_its_region_also_when_the_key_comes_again),
      T(many_regions_are_found_each), T(overlapping_regions_show_the_same_bytes));
