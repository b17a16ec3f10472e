/* Default sink and formatting of base/log.h. */
#include "base/log.h"

#include "base/atomic.h"
#include "base/cancel.h"
#include "base/clock.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void log_to_stderr(enum um_log_level level, const char *text)
{
    if (level == UM_LOG_WARN)
        fprintf(stderr, "unimem: %s\n", text);
}

static um_log_sink current_sink = log_to_stderr;

void um_log_set_sink(um_log_sink sink)
{
    current_sink = sink ? sink : log_to_stderr;
}

enum { TEXT_SIZE = 1024 };

void um_log(enum um_log_level level, const char *format, ...)
{
    UM_UNCANCELLED;
    char text[TEXT_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    current_sink(level, text);
}

/* May another line be logged? *left_out_p: how many lines were left out in the last period. */
static bool limit_allows(struct um_log_limit *limit, uint64_t *left_out_p)
{
    const uint64_t now = um_clock_ns(), since = um_load_relaxed_u64(&limit->since_ns);
    *left_out_p = 0;
    if (now - since >= UM_LOG_PERIOD_NS &&
        um_rmw_cas_u64(&limit->since_ns, since, now)) {     /* sync: none (the thread that wins begins the period) */
        uint64_t asked = um_rmw_swap_u64(&limit->asked, 0); /* sync: none (a number for the reader) */
        *left_out_p = asked > UM_LOG_BURST ? asked - UM_LOG_BURST : 0;
    }
    return um_rmw_add_u64(&limit->asked, 1) < UM_LOG_BURST; /* sync: none (a number) */
}

void um_log_limited(struct um_log_limit *limit, enum um_log_level level, const char *format, ...)
{
    UM_UNCANCELLED;
    char text[TEXT_SIZE];
    uint64_t left_out;
    va_list args;
    if (!limit_allows(limit, &left_out))
        return;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    size_t used = strlen(text);
    if (left_out)
        snprintf(text + used, sizeof(text) - used, " (%" PRIu64 " more like this were not logged)", left_out);
    current_sink(level, text);
}
