/* fi_getinfo: what is offered, hints, FI_UNIMEM_* variables. */
#include "pair.h"

#include <stdio.h>
#include <unistd.h>

static struct fi_info *hints_new(void)
{
    struct fi_info *hints = fi_allocinfo();
    assert_non_null(hints);
    hints->fabric_attr->prov_name = strdup("unimem");
    return hints;
}

static struct fi_info *ask(const struct fi_info *hints)
{
    struct fi_info *info = NULL;
    assert_int_equal(fi_getinfo(PAIR_API, NULL, NULL, 0, hints, &info), 0);
    assert_string_equal(info->fabric_attr->prov_name, "unimem");
    assert_null(info->next);
    return info;
}

/* Hints with one field changed get no answer. */
#define REFUSED(field, value)                                                                                          \
    do {                                                                                                               \
        struct fi_info *h = hints_new(), *i = NULL;                                                                    \
        h->field = (value);                                                                                            \
        assert_int_equal(fi_getinfo(PAIR_API, NULL, NULL, 0, h, &i), -FI_ENODATA);                                     \
        fi_freeinfo(h);                                                                                                \
    } while (0)

/* Hints with one field changed get an answer, with the same value. */
#define ECHOED(field, value)                                                                                           \
    do {                                                                                                               \
        struct fi_info *h = hints_new();                                                                               \
        h->field = (value);                                                                                            \
        struct fi_info *i = ask(h);                                                                                    \
        assert_true(i->field == (value));                                                                              \
        fi_freeinfo(h);                                                                                                \
        fi_freeinfo(i);                                                                                                \
    } while (0)

static void without_hints_everything_is_listed(void **state)
{
    struct fi_info *info;
    const uint64_t caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_RECV | FI_READ | FI_WRITE |
                          FI_REMOTE_READ | FI_REMOTE_WRITE | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE |
                          FI_LOCAL_COMM | FI_REMOTE_COMM;
    (void)state;
    assert_int_equal(fi_getinfo(PAIR_API, NULL, NULL, 0, NULL, &info), 0);
    assert_true((info->caps & caps) == caps);
    assert_false(info->caps & FI_HMEM);
    assert_int_equal(info->mode, 0);
    assert_int_equal(info->tx_attr->mode | info->rx_attr->mode | info->domain_attr->mode, 0);
    assert_int_equal(info->ep_attr->type, FI_EP_RDM);
    assert_true(info->ep_attr->max_msg_size == SIZE_MAX);
    assert_int_equal(info->domain_attr->mr_mode, 0);
    assert_int_equal(info->domain_attr->cq_data_size, 8);
    assert_true(info->tx_attr->op_flags == 0 &&
                info->rx_attr->op_flags == 0); /* else each send waits for its receive */
    assert_int_equal(info->domain_attr->resource_mgmt, FI_RM_ENABLED);
    assert_true((info->domain_attr->caps & (FI_LOCAL_COMM | FI_REMOTE_COMM)) == (FI_LOCAL_COMM | FI_REMOTE_COMM));
    const uint64_t order =
        FI_ORDER_SAS | FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW;
    assert_true(info->tx_attr->msg_order == order && info->rx_attr->msg_order == order);
    assert_true(info->tx_attr->caps & FI_ATOMIC && info->rx_attr->caps & FI_ATOMIC);
    assert_true(info->ep_attr->max_order_raw_size == SIZE_MAX);
    assert_true(info->ep_attr->max_order_war_size == SIZE_MAX);
    assert_true(info->ep_attr->max_order_waw_size == SIZE_MAX);
    assert_true(info->tx_attr->iov_limit >= 4 && info->tx_attr->iov_limit <= 32);
    assert_true(info->tx_attr->inject_size >= 64);
    assert_non_null(info->fabric_attr->name);
    assert_non_null(info->domain_attr->name);
    fi_freeinfo(info);
}

static void what_is_not_there_is_refused(void **state)
{
    (void)state;
    REFUSED(ep_attr->type, FI_EP_MSG);
    REFUSED(ep_attr->type, FI_EP_DGRAM);
    REFUSED(caps, FI_MSG | FI_HMEM);
    REFUSED(caps, FI_MSG | FI_MULTICAST);
    REFUSED(caps, FI_MSG | FI_SOURCE_ERR);
    REFUSED(caps, FI_MSG | FI_NAMED_RX_CTX);
    REFUSED(addr_format, FI_SOCKADDR_IN);
    REFUSED(ep_attr->protocol, FI_PROTO_SHM);
    REFUSED(ep_attr->protocol_version, 1000);
    REFUSED(ep_attr->tx_ctx_cnt, 2);
    REFUSED(ep_attr->rx_ctx_cnt, FI_SHARED_CONTEXT);
    REFUSED(ep_attr->auth_key_size, 4);
    REFUSED(tx_attr->caps, FI_HMEM);
    REFUSED(tx_attr->msg_order, FI_ORDER_WAW);
    REFUSED(tx_attr->comp_order, FI_ORDER_DATA);
    REFUSED(tx_attr->op_flags, FI_COMMIT_COMPLETE);
    REFUSED(tx_attr->inject_size, SIZE_MAX);
    REFUSED(tx_attr->iov_limit, 33);
    REFUSED(tx_attr->rma_iov_limit, 33);
    REFUSED(rx_attr->msg_order, FI_ORDER_RAW);
    REFUSED(rx_attr->op_flags, FI_TRANSMIT_COMPLETE);
    REFUSED(rx_attr->iov_limit, 33);
    REFUSED(domain_attr->mr_key_size, 16);
    REFUSED(domain_attr->cq_data_size, 16);
    REFUSED(domain_attr->mr_mode, 1 /* FI_MR_BASIC */ | FI_MR_LOCAL);
    REFUSED(domain_attr->mr_iov_limit, 4);
    REFUSED(domain_attr->caps, FI_SHARED_AV);
    REFUSED(domain_attr->max_ep_stx_ctx, 1);
    REFUSED(domain_attr->max_err_data, 4096);
    REFUSED(domain_attr->threading, (enum fi_threading)99);
    REFUSED(domain_attr->data_progress, (enum fi_progress)99);
    REFUSED(domain_attr->name, strdup("another"));
    REFUSED(fabric_attr->name, strdup("another"));
    REFUSED(fabric_attr->prov_version, FI_VERSION(99, 0));
}

static void what_is_the_applications_choice_is_echoed(void **state)
{
    (void)state;
    ECHOED(domain_attr->threading, FI_THREAD_DOMAIN);
    ECHOED(domain_attr->threading, FI_THREAD_COMPLETION);
    ECHOED(domain_attr->threading, FI_THREAD_ENDPOINT);
    ECHOED(domain_attr->threading, FI_THREAD_FID);
    ECHOED(domain_attr->data_progress, FI_PROGRESS_AUTO);
    ECHOED(domain_attr->data_progress, FI_PROGRESS_MANUAL);
    ECHOED(domain_attr->control_progress, FI_PROGRESS_AUTO);
    ECHOED(domain_attr->av_type, FI_AV_MAP);
    ECHOED(domain_attr->av_type, FI_AV_TABLE);
    ECHOED(domain_attr->mr_mode, 1 /* FI_MR_BASIC */);
    ECHOED(domain_attr->mr_mode, 2 /* FI_MR_SCALABLE */);
    ECHOED(domain_attr->mr_mode, FI_MR_VIRT_ADDR | FI_MR_PROV_KEY);
    ECHOED(ep_attr->mem_tag_format, 0xffffffff00000000);
    ECHOED(tx_attr->op_flags, FI_DELIVERY_COMPLETE | FI_COMPLETION);
    ECHOED(rx_attr->op_flags, FI_COMPLETION | FI_MULTI_RECV);
    ECHOED(tx_attr->size, 100000);
    ECHOED(rx_attr->size, 100000);
}

static void no_mode_is_demanded_that_is_not_needed(void **state)
{
    struct fi_info *hints = hints_new(), *info;
    (void)state;
    hints->mode = ~0ULL;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_RAW | FI_MR_ALLOCATED | FI_MR_MMU_NOTIFY | FI_MR_RMA_EVENT |
                                  FI_MR_ENDPOINT | FI_MR_HMEM | FI_MR_COLLECTIVE;
    info = ask(hints);
    assert_int_equal(info->mode, 0);
    assert_int_equal(info->domain_attr->mr_mode, 0);
    fi_freeinfo(info);
    fi_freeinfo(hints);
}

static void the_capabilities_asked_for_are_given_with_their_directions(void **state)
{
    struct fi_info *hints = hints_new(), *info;
    (void)state;
    hints->caps = FI_TAGGED;
    info = ask(hints);
    assert_true((info->caps & (FI_TAGGED | FI_SEND | FI_RECV)) == (FI_TAGGED | FI_SEND | FI_RECV));
    assert_false(info->caps & (FI_MSG | FI_RMA | FI_DIRECTED_RECV));
    assert_true(info->tx_attr->caps == (FI_TAGGED | FI_SEND));
    fi_freeinfo(info);
    hints->caps = FI_RMA | FI_WRITE;
    info = ask(hints);
    assert_false(info->caps & (FI_READ | FI_REMOTE_READ | FI_REMOTE_WRITE));
    fi_freeinfo(info);
    fi_freeinfo(hints);
}

/* MPICH asks for everything that an answer without hints lists, so the list must not have what MPICH cannot handle. */
static void an_answer_can_be_asked_for_again(void **state)
{
    struct fi_info *first, *second;
    (void)state;
    assert_int_equal(fi_getinfo(PAIR_API, NULL, NULL, 0, NULL, &first), 0);
    assert_false(first->caps & FI_SOURCE_ERR);
    second = ask(first);
    assert_true(second->caps == first->caps);
    assert_true(second->tx_attr->caps == first->tx_attr->caps);
    assert_true(second->rx_attr->caps == first->rx_attr->caps);
    assert_int_equal(second->tx_attr->inject_size, first->tx_attr->inject_size);
    fi_freeinfo(first);
    fi_freeinfo(second);
}

static void addresses_are_ours_or_refused(void **state)
{
    struct fi_info *hints = hints_new(), *info = NULL;
    (void)state;
    assert_int_equal(fi_getinfo(PAIR_API, "localhost", "7471", 0, hints, &info), -FI_ENODATA);
    assert_int_equal(fi_getinfo(PAIR_API, NULL, "7471", FI_SOURCE, hints, &info), -FI_ENODATA);
    hints->dest_addr = calloc(1, pair_addr());
    hints->dest_addrlen = pair_addr();
    info = ask(hints);
    assert_int_equal(info->dest_addrlen, pair_addr());
    fi_freeinfo(info);
    hints->dest_addrlen = 16;
    assert_int_equal(fi_getinfo(PAIR_API, NULL, NULL, 0, hints, &info), -FI_ENODATA);
    hints->dest_addrlen = pair_addr();
    hints->src_addr = calloc(1, pair_addr());
    hints->src_addrlen = pair_addr();
    assert_int_equal(fi_getinfo(PAIR_API, NULL, NULL, 0, hints, &info), -FI_ENODATA);
    fi_freeinfo(hints);
}

static void older_interfaces_see_the_registration_modes_of_their_time(void **state)
{
    struct fi_info *info;
    struct fi_info *hints = hints_new();
    (void)state;
    assert_int_equal(fi_getinfo(FI_VERSION(1, 4), NULL, NULL, 0, hints, &info), 0);
    assert_int_equal(info->domain_attr->mr_mode, 1 /* FI_MR_BASIC */);
    fi_freeinfo(info);
    hints->domain_attr->mr_mode = 2; /* FI_MR_SCALABLE */
    assert_int_equal(fi_getinfo(FI_VERSION(1, 4), NULL, NULL, 0, hints, &info), 0);
    assert_int_equal(info->domain_attr->mr_mode, 2);
    fi_freeinfo(info);
    fi_freeinfo(hints);
}

/* ---- the environment ---- */

/* Calls fi_getinfo, and stores what it writes to stderr in text. */
static int ask_quietly(char *text, size_t size)
{
    struct fi_info *info = NULL, *hints = hints_new();
    FILE *file = tmpfile();
    int saved = dup(STDERR_FILENO);
    assert_non_null(file);
    fflush(stderr);
    dup2(fileno(file), STDERR_FILENO);
    int ret = fi_getinfo(PAIR_API, NULL, NULL, 0, hints, &info);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    text[fread(text, 1, size - 1, file)] = '\0';
    fclose(file);
    fi_freeinfo(info);
    fi_freeinfo(hints);
    return ret;
}

static void wrong_value(const char *name, const char *value, const char *allowed)
{
    char text[4096];
    assert_int_equal(setenv(name, value, 1), 0);
    assert_int_equal(ask_quietly(text, sizeof(text)), -FI_ENODATA);
    assert_non_null(strstr(text, name));
    assert_non_null(strstr(text, value));
    assert_non_null(strstr(text, allowed));
    assert_int_equal(ask_quietly(text, sizeof(text)), -FI_ENODATA); /* refused again, but reported only once */
    assert_string_equal(text, "");
    assert_int_equal(unsetenv(name), 0);
    assert_int_equal(ask_quietly(text, sizeof(text)), 0);
    assert_string_equal(text, "");
}

static void a_wrong_variable_is_named_with_what_is_allowed(void **state)
{
    (void)state;
    unsetenv("FI_LOG_LEVEL");
    wrong_value("FI_UNIMEM_MACHINE", "board9", "shm");
    wrong_value("FI_UNIMEM_COPY", "maybe", "true, false");
    wrong_value("FI_UNIMEM_STATS", "2", "1, 0");
    wrong_value("FI_UNIMEM_LANES", "12x", "from 1 to 4096");
    wrong_value("FI_UNIMEM_LANE_MEMORY", "-1", "bytes");
    wrong_value("FI_UNIMEM_PARTITION", "65536", "65535");
    wrong_value("FI_UNIMEM_UNEXPECTED_MEMORY", "1", "bytes");
}

static void every_wrong_number_is_refused(void **state)
{
    static const char *const wrong[] = {"", "0", "-1", "4097", "1e3", "0x", "99999999999999999999999", " ", " 3", "+3"};
    char text[4096];
    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        setenv("FI_UNIMEM_LANES", wrong[i], 1);
        assert_int_equal(ask_quietly(text, sizeof(text)), -FI_ENODATA);
    }
    unsetenv("FI_UNIMEM_LANES");
}

static void one_message(const char *copy)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    static unsigned char out[300000], in[300000];
    setenv("FI_UNIMEM_COPY", copy, 1);
    setenv("FI_UNIMEM_LANES", "2", 1);
    setenv("FI_UNIMEM_LANE_MEMORY", "65536", 1);
    setenv("FI_UNIMEM_MACHINE", "shm", 1);
    pair_open(&p, &(struct pair_config){0});
    pair_fill(out, sizeof(out), 6);
    assert_int_equal(fi_trecv(p.b.ep, in, sizeof(in), NULL, p.b.other, 1, 0, NULL), 0);
    PAIR_POST(&p, fi_tsend(p.a.ep, out, sizeof(out), NULL, p.a.other, 1, NULL));
    pair_await(&p, &p.b, &e, NULL);
    pair_check(in, sizeof(in), 6);
    pair_await(&p, &p.a, &e, NULL);
    pair_close(&p);
    unsetenv("FI_UNIMEM_COPY");
    unsetenv("FI_UNIMEM_LANES");
    unsetenv("FI_UNIMEM_LANE_MEMORY");
    unsetenv("FI_UNIMEM_MACHINE");
}

static void right_values_are_taken(void **state)
{
    (void)state;
    one_message("off");
    one_message("1");
    one_message("Auto");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_hints_everything_is_listed),
        cmocka_unit_test(what_is_not_there_is_refused),
        cmocka_unit_test(what_is_the_applications_choice_is_echoed),
        cmocka_unit_test(no_mode_is_demanded_that_is_not_needed),
        cmocka_unit_test(the_capabilities_asked_for_are_given_with_their_directions),
        cmocka_unit_test(an_answer_can_be_asked_for_again),
        cmocka_unit_test(addresses_are_ours_or_refused),
        cmocka_unit_test(older_interfaces_see_the_registration_modes_of_their_time),
        cmocka_unit_test(a_wrong_variable_is_named_with_what_is_allowed),
        cmocka_unit_test(every_wrong_number_is_refused),
        cmocka_unit_test(right_values_are_taken),
    };
    return cmocka_run_group_tests_name("prov/info", tests, NULL, NULL);
}
