/*
 * What the tests of src/match share: the engine is compiled in, so that visits are counted and memory can be refused.
 */
#ifndef UM_MATCH_MATCH_TEST_H
#define UM_MATCH_MATCH_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool memory_refused;

static inline void *calloc_or_refuse(size_t count, size_t size)
{
    return memory_refused ? NULL : calloc(count, size);
}

#include "base/pool.c" /* NOLINT(bugprone-suspicious-include) */

static inline void *pool_alloc_or_refuse(struct um_pool *pool)
{
    return memory_refused ? NULL : um_pool_alloc(pool);
}

#define UM_MATCH_COUNT_VISITS
#define um_pool_alloc pool_alloc_or_refuse
#define calloc        calloc_or_refuse
#include "match/msgs.c"  /* NOLINT(bugprone-suspicious-include): so that it can count and refuse */
#include "match/recvs.c" /* NOLINT(bugprone-suspicious-include) */
#include "match/valid.c" /* NOLINT(bugprone-suspicious-include) */
#undef calloc
#undef um_pool_alloc

#define ALL_ONES   UINT64_MAX
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static inline int setup(void **state)
{
    memory_refused = false;
    *state = um_match_open();
    return *state ? 0 : -1;
}

static inline int teardown(void **state)
{
    um_match_close(*state);
    return 0;
}

static inline struct um_match_recv *post(struct um_match *m, struct um_match_recv *r, uint64_t tag, uint64_t ignore,
                                         uint32_t source)
{
    *r = (struct um_match_recv){.tag = tag, .ignore = ignore, .source = source};
    um_match_post(m, r);
    return r;
}

static inline struct um_match_msg *enqueue(struct um_match *m, struct um_match_msg *msg, uint64_t tag, uint32_t source)
{
    *msg = (struct um_match_msg){.tag = tag, .source = source};
    um_match_enqueue(m, msg);
    return msg;
}

#endif
