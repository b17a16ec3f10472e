/* Address vectors, names, and senders that nobody inserted. */
#include "pair.h"

static unsigned char in[64];

static void an_address_has_an_index_and_comes_back(void **state)
{
    (void)state;
    for (int type = FI_AV_UNSPEC; type <= FI_AV_TABLE; type++) {
        struct pair p;
        unsigned char back[PAIR_ADDR_MAX + 8];
        char text[200];
        size_t len = sizeof(back), text_len = sizeof(text);
        pair_open(&p, &(struct pair_config){.av_type = (enum fi_av_type)type});
        assert_int_equal(p.a.other, 0);
        assert_int_equal(fi_av_lookup(p.a.av, p.a.other, back, &len), 0);
        assert_int_equal(len, pair_addr());
        assert_memory_equal(back, p.b.name, pair_addr());
        len = 4;
        memset(back, 0, sizeof(back));
        assert_int_equal(fi_av_lookup(p.a.av, p.a.other, back, &len), 0);
        assert_int_equal(len, pair_addr());
        assert_int_equal(back[4], 0);
        assert_int_equal(fi_av_lookup(p.a.av, 1, back, &len), -FI_EINVAL);
        assert_int_equal(fi_av_lookup(p.a.av, FI_ADDR_NOTAVAIL, back, &len), -FI_EINVAL);
        assert_ptr_equal(fi_av_straddr(p.a.av, p.b.name, text, &text_len), text);
        assert_int_equal(text_len, strlen(text) + 1);
        pair_close(&p);
    }
}

static void names_are_not_resolved(void **state)
{
    struct pair p;
    fi_addr_t index;
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    assert_int_equal(fi_av_insertsvc(p.a.av, "localhost", "7471", &index, 0, NULL), -FI_ENOSYS);
    assert_int_equal(fi_av_insertsym(p.a.av, "localhost", 1, "7471", 1, &index, 0, NULL), -FI_ENOSYS);
    pair_close(&p);
}

static void a_shared_address_vector_is_refused(void **state)
{
    struct pair p;
    struct fi_av_attr attr = {.type = FI_AV_TABLE, .name = "shared", .flags = FI_READ};
    struct fid_av *av;
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    assert_int_equal(fi_av_open(p.a.domain, &attr, &av, NULL), -FI_ENOSYS);
    pair_close(&p);
}

/* MPICH has 64 bytes for a name, whatever machines there are. */
static void a_name_fits_where_mpich_keeps_it(void **state)
{
    struct pair p;
    unsigned char name[64];
    size_t len = 0;
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    assert_int_equal(fi_getname(&p.a.ep->fid, name, &len), -FI_ETOOSMALL);
    print_message("fi_getname: %zu bytes with FI_UNIMEM_MACHINE=%s\n", len,
                  getenv("FI_UNIMEM_MACHINE") ? getenv("FI_UNIMEM_MACHINE") : "shm");
    assert_true(len <= sizeof(name));
    assert_int_equal(len, pair_addr());
    len = sizeof(name);
    assert_int_equal(fi_getname(&p.a.ep->fid, name, &len), 0);
    assert_int_equal(len, pair_addr());
    assert_memory_equal(name, p.a.name, len);
    pair_close(&p);
}

/* An address as a process of wire version 1 gave it out: boot id with bit 0 set, pid, start time, nonce, and 24 bytes
 * that are not read. */
static void an_address_of_an_older_version_is_refused(void **state)
{
    struct pair p;
    const uint64_t old[8] = {0xcbf29ce484222325u, 4711, 42, 4096, 7, UINT64_C(0x0101) << 48, 0, 0};
    fi_addr_t index;
    int error = -1;
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    assert_int_equal(fi_av_insert(p.a.av, old, 1, &index, FI_SYNC_ERR, &error), 0);
    assert_int_equal(error, FI_EREMOTEIO);
    assert_true(index == FI_ADDR_NOTAVAIL);
    pair_close(&p);
}

/* Changes one bit of one address (over shm a bit of the boot id's hash), and zeroes another one. */
static void a_wrong_address_fails_alone(void **state)
{
    struct pair p;
    unsigned char names[4 * PAIR_ADDR_MAX];
    fi_addr_t index[4];
    int errors[4] = {-1, -1, -1, -1};
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    for (size_t i = 0; i < 4; i++)
        memcpy(names + i * pair_addr(), p.b.name, pair_addr());
    /* the changed bit means: over shm another host; over a board an unknown version; over net another inner provider */
    names[pair_addr() + (pair_addr() == 24 ? 7 : pair_addr() == 40 ? 31 : 26)] ^= 0x40;
    memset(names + 2 * pair_addr(), 0, pair_addr()); /* no address */
    assert_int_equal(fi_av_insert(p.a.av, names, 4, index, FI_SYNC_ERR, errors), 2);
    assert_int_equal(errors[0], 0);
    bool is_host = strcmp(p.a.info->domain_attr->name, "unimem") == 0; /* elsewhere the bit tells the format */
    assert_int_equal(errors[1], is_host ? FI_EHOSTUNREACH : FI_EREMOTEIO);
    assert_int_equal(errors[2], FI_EINVAL);
    assert_int_equal(errors[3], 0);
    assert_true(index[1] == FI_ADDR_NOTAVAIL && index[2] == FI_ADDR_NOTAVAIL);
    assert_int_equal(index[3], index[0] + 1);
    assert_int_equal(fi_send(p.a.ep, in, 1, NULL, index[1], NULL), -FI_EINVAL);
    assert_int_equal(fi_send(p.a.ep, in, 1, NULL, 1000000, NULL), -FI_EINVAL);
    pair_close(&p);
}

static void removed_indices_are_used_again_lowest_first(void **state)
{
    struct pair p;
    fi_addr_t index[300], two[2];
    (void)state;
    pair_open(&p, &(struct pair_config){.strangers = true});
    unsigned char *many = malloc(300 * pair_addr());
    for (size_t i = 0; i < 300; i++)
        memcpy(many + i * pair_addr(), i % 2 ? p.b.name : p.a.name, pair_addr());
    assert_int_equal(fi_av_insert(p.a.av, many, 300, index, 0, NULL), 300);
    for (size_t i = 0; i < 300; i++)
        assert_int_equal(index[i], i);
    two[0] = 200, two[1] = 17;
    assert_int_equal(fi_av_remove(p.a.av, two, 2, 0), 0);
    assert_int_equal(fi_av_remove(p.a.av, two, 1, 0), -FI_EINVAL);
    assert_int_equal(fi_av_insert(p.a.av, many, 3, index, 0, NULL), 3);
    assert_int_equal(index[0], 17);
    assert_int_equal(index[1], 200);
    assert_int_equal(index[2], 300);
    free(many);
    pair_close(&p);
}

static void insertion_can_report_to_an_event_queue(void **state)
{
    struct pair p;
    struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_NONE};
    struct fi_av_attr attr = {.type = FI_AV_TABLE, .flags = FI_EVENT};
    struct fid_eq *eq;
    struct fid_av *av;
    unsigned char names[2 * PAIR_ADDR_MAX] = {0}; /* the first name is no address */
    fi_addr_t index[2];
    uint32_t event = 0;
    struct fi_eq_entry entry;
    struct fi_eq_err_entry err = {0};
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    memcpy(names + pair_addr(), p.b.name, pair_addr());
    assert_int_equal(fi_eq_open(p.a.fabric, &eq_attr, &eq, NULL), 0);
    assert_int_equal(fi_av_open(p.a.domain, &attr, &av, NULL), 0);
    assert_int_equal(fi_av_insert(av, names, 2, index, 0, &p), -FI_ENOEQ);
    assert_int_equal(fi_av_bind(av, &eq->fid, 0), 0);
    assert_int_equal(fi_av_insert(av, names, 2, index, 0, &p), 0);
    assert_int_equal(fi_eq_read(eq, &event, &entry, sizeof(entry), 0), -FI_EAVAIL);
    assert_true(fi_eq_readerr(eq, &err, 0) > 0);
    assert_int_equal(err.err, FI_EINVAL);
    assert_int_equal(err.data, 0);
    assert_ptr_equal(err.context, &p);
    assert_int_equal(fi_eq_read(eq, &event, &entry, sizeof(entry), 0), sizeof(entry));
    assert_int_equal(event, FI_AV_COMPLETE);
    assert_int_equal(entry.data, 1);
    assert_ptr_equal(entry.context, &p);
    assert_ptr_equal(entry.fid, &av->fid);
    assert_int_equal(fi_close(&eq->fid), -FI_EBUSY);
    assert_int_equal(fi_close(&av->fid), 0);
    assert_int_equal(fi_close(&eq->fid), 0);
    pair_close(&p);
}

static void a_stranger_is_heard_and_known_once_inserted(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    fi_addr_t source;
    (void)state;
    pair_open(&p, &(struct pair_config){.strangers = true});
    assert_int_equal(fi_av_insert(p.a.av, p.b.name, 1, &p.a.other, 0, NULL), 1);
    for (int round = 0; round < 3; round++) {
        if (round == 1) /* between two messages: the unknown sender gets its fi_addr_t, and directed receives find it */
            assert_int_equal(fi_av_insert(p.b.av, p.a.name, 1, &p.b.other, 0, NULL), 1);
        if (round == 2)
            assert_int_equal(fi_av_remove(p.b.av, &p.b.other, 1, 0), 0);
        PAIR_POST(&p, fi_tinject(p.a.ep, "hello", 5, p.a.other, 1));
        pair_progress(&p);
        assert_int_equal(fi_trecv(p.b.ep, in, sizeof(in), NULL, round == 1 ? p.b.other : FI_ADDR_UNSPEC, 1, 0, NULL),
                         0);
        pair_await(&p, &p.b, &e, &source);
        assert_true(source == (round == 1 ? p.b.other : FI_ADDR_NOTAVAIL));
    }
    assert_int_equal(fi_send(p.b.ep, in, 1, NULL, p.b.other, NULL), -FI_EINVAL);
    pair_close(&p);
}

static void queued_messages_of_a_stranger_match_once_it_is_inserted(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    fi_addr_t source;
    (void)state;
    pair_open(&p, &(struct pair_config){.strangers = true});
    assert_int_equal(fi_av_insert(p.a.av, p.b.name, 1, &p.a.other, 0, NULL), 1);
    PAIR_POST(&p, fi_tinject(p.a.ep, "early", 5, p.a.other, 1));
    for (int i = 0; i < 100; i++)
        pair_progress(&p);
    assert_int_equal(fi_av_insert(p.b.av, p.a.name, 1, &p.b.other, 0, NULL), 1);
    assert_int_equal(fi_trecv(p.b.ep, in, sizeof(in), NULL, p.b.other, 1, 0, NULL), 0);
    pair_await(&p, &p.b, &e, &source);
    assert_int_equal(source, p.b.other);
    PAIR_POST(&p, fi_tinject(p.b.ep, "reply", 5, p.b.other, 1));
    assert_int_equal(fi_trecv(p.a.ep, in, sizeof(in), NULL, p.a.other, 1, 0, NULL), 0);
    pair_await(&p, &p.a, &e, NULL);
    pair_close(&p);
}

static void the_raw_address_of_a_stranger_can_be_had(void **state)
{
    struct pair p;
    struct fi_cq_err_entry err = {0};
    struct fi_cq_tagged_entry e;
    fi_addr_t source;
    unsigned char raw[PAIR_ADDR_MAX];
    (void)state;
    pair_open(
        &p, &(struct pair_config){.strangers = true, .caps = FI_TAGGED | FI_SOURCE | FI_SOURCE_ERR | FI_DIRECTED_RECV});
    assert_int_equal(fi_av_insert(p.a.av, p.b.name, 1, &p.a.other, 0, NULL), 1);
    for (int own = 0; own < 2; own++) {
        assert_int_equal(fi_trecv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 1, 0, &p), 0);
        PAIR_POST(&p, fi_tinjectdata(p.a.ep, "hello", 5, 55, p.a.other, 1));
        err.err_data = own ? raw : NULL;
        err.err_data_size = own ? sizeof(raw) : 0;
        pair_await_error(&p, &p.b, &err);
        assert_int_equal(err.err, FI_EADDRNOTAVAIL);
        assert_ptr_equal(err.op_context, &p);
        assert_int_equal(err.len, 5);
        assert_int_equal(err.data, 55);
        assert_int_equal(err.err_data_size, pair_addr());
        assert_memory_equal(err.err_data, p.a.name, pair_addr());
        assert_memory_equal(in, "hello", 5);
    }
    assert_ptr_equal(err.err_data, raw);
    assert_int_equal(fi_av_insert(p.b.av, err.err_data, 1, &p.b.other, 0, NULL), 1);
    assert_int_equal(fi_trecv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 1, 0, &p), 0);
    PAIR_POST(&p, fi_tinject(p.a.ep, "again", 5, p.a.other, 1));
    pair_await(&p, &p.b, &e, &source);
    assert_int_equal(source, p.b.other);
    pair_close(&p);
}

static void an_endpoint_talks_to_itself(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    fi_addr_t self;
    static unsigned char big[200000], back[200000];
    (void)state;
    pair_open(&p, &(struct pair_config){0});
    assert_int_equal(fi_av_insert(p.a.av, p.a.name, 1, &self, 0, NULL), 1);
    for (size_t len = 8; len <= sizeof(big); len *= 25) {
        pair_fill(big, len, 4);
        assert_int_equal(fi_trecv(p.a.ep, back, len, NULL, self, 1, 0, "in"), 0);
        PAIR_POST(&p, fi_tsend(p.a.ep, big, len, NULL, self, 1, "out"));
        pair_await(&p, &p.a, &e, NULL);
        pair_await(&p, &p.a, &e, NULL);
        pair_check(back, len, 4);
    }
    pair_close(&p);
}

static void one_address_vector_serves_several_endpoints(void **state)
{
    struct pair p;
    struct fi_cq_tagged_entry e;
    struct side second = {0};
    const struct pair_config config = {0};
    fi_addr_t to_second;
    (void)state;
    pair_open(&p, &config);
    second = p.a;
    second.ep = NULL;
    side_open_ep(&second, &config); /* the same domain, queue and vector */
    assert_int_equal(fi_av_insert(p.b.av, second.name, 1, &to_second, 0, NULL), 1);
    assert_int_equal(fi_trecv(second.ep, in, sizeof(in), NULL, p.a.other, 1, 0, "second"), 0);
    PAIR_POST(&p, fi_tinject(p.b.ep, "x", 1, to_second, 1));
    pair_await(&p, &p.a, &e, NULL);
    assert_string_equal(e.op_context, "second");
    PAIR_POST(&p, fi_tinject(second.ep, "y", 1, p.a.other, 2));
    assert_int_equal(fi_trecv(p.b.ep, in, sizeof(in), NULL, to_second, 2, 0, NULL), 0);
    pair_await(&p, &p.b, &e, NULL);
    assert_int_equal(fi_close(&second.ep->fid), 0);
    pair_close(&p);
}

static void an_address_vector_of_any_size_can_be_asked_for(void **state)
{
    static const size_t counts[] = {0, 1, 1000000, SIZE_MAX / 2 + 2, SIZE_MAX};
    struct side s = {0};
    (void)state;
    side_open(&s, &(struct pair_config){0});
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        struct fi_av_attr attr = {.type = FI_AV_TABLE, .count = counts[i]};
        struct fid_av *av;
        assert_int_equal(fi_av_open(s.domain, &attr, &av, NULL), 0);
        assert_int_equal(fi_close(&av->fid), 0);
    }
    side_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_has_an_index_and_comes_back),
        cmocka_unit_test(a_name_fits_where_mpich_keeps_it),
        cmocka_unit_test(an_address_of_an_older_version_is_refused),
        cmocka_unit_test(names_are_not_resolved),
        cmocka_unit_test(a_shared_address_vector_is_refused),
        cmocka_unit_test(a_wrong_address_fails_alone),
        cmocka_unit_test(removed_indices_are_used_again_lowest_first),
        cmocka_unit_test(insertion_can_report_to_an_event_queue),
        cmocka_unit_test(a_stranger_is_heard_and_known_once_inserted),
        cmocka_unit_test(queued_messages_of_a_stranger_match_once_it_is_inserted),
        cmocka_unit_test(the_raw_address_of_a_stranger_can_be_had),
        cmocka_unit_test(an_endpoint_talks_to_itself),
        cmocka_unit_test(an_address_vector_of_any_size_can_be_asked_for),
        cmocka_unit_test(one_address_vector_serves_several_endpoints),
    };
    return cmocka_run_group_tests_name("prov/addresses", tests, NULL, NULL);
}
