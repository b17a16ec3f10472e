/* The table of parameters, and what the environment may change. */
#include "emu.h"

static void set(const char *timing, const char *engine, const char *params)
{
    board_fresh(timing, params);
    if (engine)
        setenv("UNIMEM_EMU_ENGINE", engine, 1);
}

static void every_parameter_has_a_name_bounds_and_a_source(void **state)
{
    (void)state;
    size_t count;
    const struct emu_param *table = emu_param_table(&count);
    struct emu_params params;
    emu_params_default(&params);
    assert_int_equal(sizeof(params), (count + 2) * sizeof(uint64_t)); /* all fields but the two modes */
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(table[i].offset, (i + 2) * sizeof(uint64_t));
        assert_true(table[i].min <= table[i].value && table[i].value <= table[i].max);
        assert_true(strncmp(table[i].source, "paper 1", 7) == 0 || strncmp(table[i].source, "assumed", 7) == 0 ||
                    strncmp(table[i].source, "to be fitted", 12) == 0);
    }
    /* Parameters that the paper bounds keep to the bound. */
    assert_true(params.mailbox_latency_ns <= 1000);
    assert_true(params.dma_bandwidth >= 1000000000);
    assert_true(params.register_ns >= 10000);
}

static void values_are_read_from_a_list(void **state)
{
    (void)state;
    struct emu_params params;
    char why[128];
    emu_params_default(&params);
    assert_int_equal(
        emu_params_parse(&params, "virtual", "server", "dma_setup_ns=7,mailbox_depth=3,,cpu_call_ns=0", why), 0);
    assert_int_equal(params.timing, EMU_TIMING_VIRTUAL);
    assert_int_equal(params.engine, EMU_ENGINE_SERVER);
    assert_int_equal(params.dma_setup_ns, 7);
    assert_int_equal(params.mailbox_depth, 3);
    assert_int_equal(params.cpu_call_ns, 0);
    assert_int_equal(params.register_ns, 10000);
    static const char *const bad[] = {"dma_setup=7",        "dma_setup_ns",
                                      "dma_setup_ns=",      "dma_setup_ns=x",
                                      "dma_setup_ns=7x",    "dma_setup_ns=-1",
                                      "mailbox_depth=0",    "mailbox_depth=4097",
                                      "cpu_call_ns=1,what", "dma_bandwidth=99999999999999999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        why[0] = 0;
        assert_int_equal(emu_params_parse(&params, NULL, NULL, bad[i], why), -EINVAL);
        assert_true(why[0]);
    }
    assert_int_equal(emu_params_parse(&params, "fast", NULL, NULL, why), -EINVAL);
    assert_int_equal(emu_params_parse(&params, NULL, "none", NULL, why), -EINVAL);
}

static void a_board_that_is_set_up_wrongly_does_not_start(void **state)
{
    (void)state;
    struct unimem_board *board;
    set("off", "local", "mailbox_depth=0");
    assert_int_equal(unimem_open(board_name, 0, &board), -ENOENT);
    set("of", "local", NULL);
    assert_int_equal(unimem_open(board_name, 0, &board), -ENOENT);
    set("off", "nobody", NULL);
    assert_int_equal(unimem_open(board_name, 0, &board), -ENOENT);
    set("off", "local", NULL);
    const char *given = getenv("UNIMEM_EMU_SERVER");
    char *kept = given ? strdup(given) : NULL;
    setenv("UNIMEM_EMU_SERVER", "/nonexistent/unimem-boardd", 1);
    assert_int_equal(unimem_open(board_name, 0, &board), -ENOENT);
    unsetenv("UNIMEM_EMU_SERVER");
    if (kept)
        setenv("UNIMEM_EMU_SERVER", kept, 1);
    free(kept);
    assert_int_equal(unimem_open(board_name, 0, &board), 0);
    unimem_close(board);
}

static void who_starts_the_board_sets_it_up(void **state)
{
    (void)state;
    struct emu_params params;
    struct unimem_info info;
    set("virtual", "server",
        "nodes=3,mailbox_depth=5,dma_depth=6,registrations_max=7,dma_size_max=4096,dmable_max=65536");
    struct unimem_board *first = board_open(UNIMEM_NODE_ANY);
    setenv("UNIMEM_EMU_TIMING", "off", 1);
    setenv("UNIMEM_EMU_PARAMS", "nodes=9", 1);
    struct unimem_board *second = board_open(UNIMEM_NODE_ANY);
    unimem_emu_get_params(second, &params);
    assert_int_equal(params.timing, EMU_TIMING_VIRTUAL);
    assert_int_equal(params.engine, EMU_ENGINE_SERVER);
    unimem_get_info(second, &info);
    assert_int_equal(info.nodes, 3);
    assert_int_equal(info.mailbox_depth, 5);
    assert_int_equal(info.dma_depth, 6);
    assert_int_equal(info.registrations_max, 7);
    assert_int_equal(info.dma_size_max, 4096);
    assert_int_equal(info.dmable_max, 65536);
    unimem_close(first);
    unimem_close(second);
}

RUN("emu params", T(every_parameter_has_a_name_bounds_and_a_source), T(values_are_read_from_a_list),
    T(a_board_that_is_set_up_wrongly_does_not_start), T(who_starts_the_board_sets_it_up))
