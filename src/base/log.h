/*
 * Logging for the layers that know nothing of libfabric: a sink that the provider sets.
 *
 * Rule: log once, where the error originates, in words a user can act on.
 * Threading: the sink is set once before use; logging may come from any thread.
 */
#ifndef UM_BASE_LOG_H
#define UM_BASE_LOG_H

#include <stdint.h>

enum um_log_level { UM_LOG_WARN, UM_LOG_INFO, UM_LOG_DEBUG };

typedef void (*um_log_sink)(enum um_log_level level, const char *text);

/* NULL restores the default sink: warnings to stderr. */
void um_log_set_sink(um_log_sink sink);

void um_log(enum um_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * Rate limit for what may be logged with every message (a peer whose memory cannot be mapped): UM_LOG_BURST lines in
 * UM_LOG_PERIOD_NS. The first line of the next period says how many were left out. limit: a static object for each call
 * site, initially zero.
 */
enum { UM_LOG_BURST = 4 };
static const uint64_t UM_LOG_PERIOD_NS = UINT64_C(10000000000);
struct um_log_limit {
    uint64_t since_ns; /* when the period began */
    uint64_t asked;    /* lines asked for in this period, logged or not */
};
void um_log_limited(struct um_log_limit *limit, enum um_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
