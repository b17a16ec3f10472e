/* If an endpoint cannot be opened, the errno says why; sockets for other pid namespaces have the right name. */
#include "pair.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* Opens an endpoint with this FI_UNIMEM_ATTACH. Returns what fi_enable() returns. */
static int open_with(const char *attach, struct side *s)
{
    struct fi_av_attr av = {.type = FI_AV_TABLE};
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED};
    struct fi_info *hints = pair_hints(&(struct pair_config){0});
    size_t len = sizeof(s->name);
    *s = (struct side){0};
    if (attach)
        assert_int_equal(setenv("FI_UNIMEM_ATTACH", attach, 1), 0);
    assert_int_equal(fi_getinfo(PAIR_API, NULL, NULL, 0, hints, &s->info), 0);
    fi_freeinfo(hints);
    assert_int_equal(fi_fabric(s->info->fabric_attr, &s->fabric, NULL), 0);
    assert_int_equal(fi_domain(s->fabric, s->info, &s->domain, NULL), 0);
    assert_int_equal(fi_av_open(s->domain, &av, &s->av, NULL), 0);
    assert_int_equal(fi_cq_open(s->domain, &cq, &s->cq, NULL), 0);
    assert_int_equal(fi_endpoint(s->domain, s->info, &s->ep, NULL), 0);
    assert_int_equal(fi_ep_bind(s->ep, &s->av->fid, 0), 0);
    assert_int_equal(fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV), 0);
    unsetenv("FI_UNIMEM_ATTACH");
    int ret = fi_enable(s->ep);
    if (ret == 0)
        assert_int_equal(fi_getname(&s->ep->fid, s->name, &len), 0);
    return ret;
}

static int try_with(const char *attach)
{
    struct side s;
    int ret = open_with(attach, &s);
    side_close(&s);
    return ret;
}

static uint64_t nonce_of(const struct side *s)
{
    uint64_t nonce;
    memcpy(&nonce, s->name + 16, sizeof(nonce)); /* docs/protocol.md, section 2 */
    return nonce;
}

/* True if /proc/net/unix lists a socket of exactly this name. */
static bool is_listed(const char *name)
{
    FILE *list = fopen("/proc/net/unix", "re");
    char line[512];
    bool found = false;
    assert_non_null(list);
    while (fgets(line, sizeof(line), list)) {
        line[strcspn(line, "\n")] = '\0';
        const char *last = strrchr(line, ' ');
        found = found || (last && strcmp(last + 1, name) == 0);
    }
    fclose(list);
    return found;
}

static void the_name_in_the_abstract_namespace_has_sixteen_digits(void **state)
{
    struct side s;
    char name[64];
    (void)state;
    assert_int_equal(open_with("abstract", &s), 0);
    snprintf(name, sizeof(name), "@unimem-%016" PRIx64, nonce_of(&s));
    assert_true(is_listed(name));
    side_close(&s);
    assert_false(is_listed(name));
}

static void a_directory_that_others_can_write_to_is_refused(void **state)
{
    static const struct {
        mode_t mode;
        int ret;
    } cases[] = {{0700, 0}, {0755, 0}, {01777, 0}, {0777, -FI_EACCES}, {0770, -FI_EACCES}, {0702, -FI_EACCES}};
    char dir[] = "/tmp/um-attach-XXXXXX";
    (void)state;
    assert_non_null(mkdtemp(dir));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(chmod(dir, cases[i].mode), 0);
        assert_int_equal(try_with(dir), cases[i].ret);
    }
    assert_int_equal(chmod(dir, 0700), 0);
    if (geteuid() == 0) { /* only root can give a directory away */
        assert_int_equal(chown(dir, 12345, (gid_t)-1), 0);
        assert_int_equal(try_with(dir), -FI_EACCES);
    }
    assert_int_equal(rmdir(dir), 0);
}

static void what_is_no_directory_is_refused_by_its_errno(void **state)
{
    char file[] = "/tmp/um-attach-XXXXXX";
    char below[64];
    (void)state;
    int fd = mkstemp(file);
    assert_true(fd >= 0);
    close(fd);
    snprintf(below, sizeof(below), "%s/below", file);
    assert_int_equal(try_with(file), -ENOTDIR);
    assert_int_equal(try_with(below), -ENOTDIR);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(try_with(file), -FI_ENOENT);
}

static void the_limit_of_file_sizes_is_told(void **state)
{
    struct rlimit before, small;
    struct side s;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(open_with(NULL, &s), 0);
    side_close_ep(&s);
    small = before;
    small.rlim_cur = 4096;
    assert_int_equal(fi_endpoint(s.domain, s.info, &s.ep, NULL), 0);
    assert_int_equal(fi_ep_bind(s.ep, &s.av->fid, 0), 0);
    assert_int_equal(fi_ep_bind(s.ep, &s.cq->fid, FI_TRANSMIT | FI_RECV), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int ret = fi_enable(s.ep);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(ret, -EFBIG);
    assert_string_equal(fi_strerror(-ret), strerror(EFBIG));
    assert_int_equal(fi_enable(s.ep), 0);
    side_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_name_in_the_abstract_namespace_has_sixteen_digits),
        cmocka_unit_test(a_directory_that_others_can_write_to_is_refused),
        cmocka_unit_test(what_is_no_directory_is_refused_by_its_errno),
        cmocka_unit_test(the_limit_of_file_sizes_is_told),
    };
    return cmocka_run_group_tests_name("prov/attach", tests, NULL, NULL);
}
