/*
 * Logging for the layers that know nothing of libfabric: a sink that the provider sets.
 *
 * Rule: log once, where the error originates, in words a user can act on.
 * Threading: the sink is set once before use; logging may come from any thread.
 */
#ifndef UM_BASE_LOG_H
#define UM_BASE_LOG_H

enum um_log_level { UM_LOG_WARN, UM_LOG_INFO, UM_LOG_DEBUG };

typedef void (*um_log_sink)(enum um_log_level level, const char *text);

/* NULL restores the default sink: warnings to stderr. */
void um_log_set_sink(um_log_sink sink);

void um_log(enum um_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
