/*
 * Over another provider, an endpoint of a program without wait objects has no descriptor of the inner queue: over tcp
 * that would make each call that sends to this endpoint longer. Who sleeps all the same is woken.
 */
#include "pair.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

/* True if the descriptor is an epoll set. */
static bool is_epoll(int fd)
{
    char path[64], link[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    const ssize_t len = readlink(path, link, sizeof(link) - 1);
    link[len > 0 ? len : 0] = 0;
    return strstr(link, "[eventpoll]") != NULL;
}

/* Returns how many epoll sets the epoll set has. */
static unsigned epolls_in(int fd)
{
    char path[64], line[256];
    unsigned count = 0;
    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file)) {
        int in;
        count += sscanf(line, "tfd: %d", &in) == 1 && is_epoll(in);
    }
    fclose(file);
    return count;
}

static unsigned epolls_in_epolls(void)
{
    unsigned count = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        const int fd = atoi(entry->d_name);
        count += is_epoll(fd) ? epolls_in(fd) : 0;
    }
    closedir(dir);
    return count;
}

/* Returns how many epoll sets lie in another one when an endpoint is enabled behind a counter with that wait object. */
static unsigned epolls_of(enum fi_wait_obj cntr_obj)
{
    struct fi_cntr_attr attr = {.wait_obj = cntr_obj};
    struct fid_cntr *cntr;
    struct pair p;
    pair_open(&p, &(struct pair_config){.format = FI_CQ_FORMAT_TAGGED});
    side_close_ep(&p.b);
    assert_int_equal(fi_cntr_open(p.b.domain, &attr, &cntr, NULL), 0);
    side_open_ep(&p.b, &(struct pair_config){.format = FI_CQ_FORMAT_TAGGED});
    const unsigned count = epolls_in_epolls();
    assert_int_equal(fi_close(&cntr->fid), 0);
    pair_close(&p);
    return count;
}

static void only_who_may_sleep_has_a_descriptor_of_the_inner_queue(void **state)
{
    (void)state;
    assert_true(epolls_of(FI_WAIT_UNSPEC) > epolls_of(FI_WAIT_NONE));
}

struct later {
    struct side *side;
    unsigned ms;
};

static void *send_later(void *arg)
{
    static unsigned char out[8];
    const struct later *l = arg;
    usleep(l->ms * 1000);
    while (fi_tsend(l->side->ep, out, sizeof(out), NULL, l->side->other, 1, NULL) == -FI_EAGAIN)
        fi_cq_read(l->side->cq, NULL, 0);
    return NULL;
}

/* Sleeps until a message comes that is sent so many ms later; returns how long that took, in ms. */
static uint64_t sleep_until_message(struct pair *p, unsigned ms)
{
    static unsigned char in[8];
    struct fi_cq_tagged_entry e;
    struct later later = {.side = &p->a, .ms = ms};
    pthread_t thread;
    assert_int_equal(fi_trecv(p->b.ep, in, sizeof(in), NULL, p->b.other, 1, 0, NULL), 0);
    const uint64_t begin = pair_now_ns();
    assert_int_equal(pthread_create(&thread, NULL, send_later, &later), 0);
    assert_int_equal(fi_cq_sread(p->b.cq, &e, 1, NULL, PAIR_PATIENCE_MS), 1);
    const uint64_t took = (pair_now_ns() - begin) / 1000000;
    pthread_join(thread, NULL);
    pair_await(p, &p->a, &e, NULL);
    return took;
}

enum { LONG_MS = 200, LATE_MS = 50, SHORT_MS = 3, SHORT_LATE_MS = 15, MESSAGES = 20 };

static bool is_cheap_and_in_time(struct pair *p)
{
    const uint64_t cpu = pair_cpu_ns(), ms = sleep_until_message(p, LONG_MS);
    const uint64_t cpu_ms = (pair_cpu_ns() - cpu) / 1000000;
    printf("%lu ms, of which %lu on a processor\n", ms, cpu_ms);
    return ms < LONG_MS + LATE_MS && cpu_ms < LONG_MS / 20;
}

/* After a long sleep, too. */
static bool are_in_time(struct pair *p)
{
    uint64_t ms = 0;
    (void)sleep_until_message(p, LONG_MS);
    for (int i = 0; i < MESSAGES; i++)
        ms += sleep_until_message(p, SHORT_MS);
    printf("%d messages: %lu ms\n", MESSAGES, ms);
    return ms < (uint64_t)MESSAGES * (SHORT_MS + SHORT_LATE_MS);
}

static void who_sleeps_without_a_wait_object_is_woken(void **state)
{
    struct pair p;
    (void)state;
    pair_open(&p, &(struct pair_config){.format = FI_CQ_FORMAT_TAGGED});
    (void)sleep_until_message(&p, 0); /* connects */
    PAIR_TRY(is_cheap_and_in_time(&p));
    PAIR_TRY(are_in_time(&p));
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_who_may_sleep_has_a_descriptor_of_the_inner_queue),
        cmocka_unit_test(who_sleeps_without_a_wait_object_is_woken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
