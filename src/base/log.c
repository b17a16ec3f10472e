/* Default sink and formatting of base/log.h. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

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

void um_log(enum um_log_level level, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    current_sink(level, text);
}
