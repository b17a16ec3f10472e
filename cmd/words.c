/* See cmd/words.h. */
#include "words.h"
#include "launch.h"
#include "recognise.h"

#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/*
 * Options without a value. Not listed are those that may have one, depending on the launcher or its version (-tune, -s,
 * -display-topo, -output-proctable, ...).
 */
static const char *const without_value[] = {
    /* hydra */
    "debug", "disable-auto-cleanup", "disable-hostname-propagation", "disable-x", "enable-auto-cleanup",
    "enable-hostname-propagation", "enable-x", "envall", "envnone", "genvall", "genvnone", "hybrid-hosts", "l",
    "pmi-port", "prepend-rank", "print-all-exitcodes", "profile", "skip-launch-node", "v", "verbose",
    /* Intel's */
    "aps", "dac", "gdb", "ilp64", "mps", "prepend-timestamp", "print-rank-map", "prot", "rr", "silent-abort",
    "trace-imbalance",
    /* Open MPI, PRRTE */
    "allow-run-as-root", "bind-to-core", "bind-to-socket", "bycore", "bynode", "byslot", "continuous", "d",
    "debug-daemons", "debug-daemons-file", "debug-devel", "disable-recovery", "display-allocation", "display-comm",
    "display-comm-finalize", "display-devel-allocation", "display-devel-map", "display-map", "do-not-launch",
    "do-not-resolve", "enable-recovery", "get-stack-traces", "index-argv-by-rank", "leave-session-attached",
    "merge-stderr-to-stdout", "no-aggregate-help", "no-app-prefix", "nolocal", "nooversubscribe", "noprefix", "novm",
    "oversubscribe", "parsable", "parseable", "pernode", "preload-binary", "q", "quiet", "report-bindings",
    "report-child-jobs-separately", "report-state-on-timeout", "set-cwd-to-session-dir", "show-progress",
    "stop-in-init", "stop-on-exec", "tag-output", "timestamp-output", "tv", "use-hwthread-cpus", "xml", NULL};

static const char *const with_value[] = {
    /* hydra */
    "bind-to", "binding", "bootstrap", "bootstrap-exec", "configfile", "demux", "envlist", "errfile", "errfile-pattern",
    "f", "g", "genvlist", "gpu-subdevs-per-proc", "gpus-per-proc", "host", "hostfile", "hostlist", "hosts", "iface",
    "launcher", "launcher-exec", "localhost", "machine", "machinefile", "machinelist", "machines", "map-by", "membind",
    "memory-alloc-kinds", "n", "nameserver", "np", "order-nodes", "outfile", "outfile-pattern", "output-from", "ppn",
    "prepend-pattern", "rankmap", "rmk", "topolib", "usize", "wdir",
    /* Intel's */
    "cpu-bind", "envexcl", "gdb-args", "genvexcl", "grr", "gtool", "gtoolfile", "gwdir", "hosts-group", "perhost",
    /* Open MPI, PRRTE */
    "H", "N", "add-host", "add-hostfile", "am", "amca", "app", "app-pmix-prefix", "arch", "c", "cartofile", "cf",
    "cpu-list", "cpu-set", "cpus-per-proc", "cpus-per-rank", "debugger", "default-hostfile", "display", "dvm-uri",
    "exec-agent", "file", "forward-signals", "gpu-support", "hnp", "initial-errhandler", "launch-agent", "max-restarts",
    "max-vm-size", "npernode", "npersocket", "ompi-server", "output", "output-directory", "output-filename", "path",
    "personality", "pmix-prefix", "ppr", "prefix", "preload-files", "pset", "rank-by", "rankfile", "report-events",
    "report-pid", "report-uri", "rf", "rtos", "runtime-options", "set-env", "spawn-timeout", "sstore-load", "stdin",
    "stream-buffering", "timeout", "tmpdir", "unset-env", "wd", "with-ft", "x", "xml-file", "xterm", NULL};

/* Options followed by a name and its value. hydra's may be one word, NAME=VALUE. */
static const char *const with_pair[] = {"env",     "genv",    "mca",        "gmca",        "omca", "gomca",
                                        "prtemca", "pmixmca", "append-env", "prepend-env", NULL};

/* Options that name a file with more words of the launcher: hydra's, Open MPI's. */
static const char *const with_more[] = {"configfile", "app", NULL};

char *const *um_cmd_words_behind(char *const *argv, const char *launcher)
{
    char path[PATH_MAX];
    for (; *argv; argv++) {
        if (launcher ? *argv == launcher : um_cmd_launcher_name(*argv) && um_cmd_find_in_path(*argv, path) == 0)
            return argv + 1;
    }
    return NULL;
}

bool um_cmd_words_is_option(const char *word, const char *const *options)
{
    if (*word != '-')
        return false;
    word += word[1] == '-' ? 2 : 1;
    const size_t len = strcspn(word, "=");
    for (; *options; options++) {
        if (strlen(*options) == len && !strncmp(word, *options, len))
            return true;
    }
    return false;
}

static void take_option(struct um_cmd_words *at, const char *option)
{
    at->unsure = false;
    if (strchr(option, '='))
        return;
    if (um_cmd_words_is_option(option, with_value))
        at->values = 1;
    else if (um_cmd_words_is_option(option, with_pair))
        at->values = 2;
    else
        at->unsure = !um_cmd_words_is_option(option, without_value);
}

bool um_cmd_words_take(struct um_cmd_words *at, const char *word)
{
    char path[PATH_MAX];
    if (at->values) {
        at->values = at->values == 2 && strchr(word, '=') ? 0 : at->values - 1;
        return false;
    }
    if (!strcmp(word, ":")) {
        *at = (struct um_cmd_words){0};
        return false;
    }
    if (at->in_program)
        return false;
    if (!strcmp(word, "--")) { /* PRRTE: the program comes next */
        at->in_program = true;
        return false;
    }
    if (*word == '-') {
        take_option(at, word);
        return true;
    }
    at->in_program = !at->unsure || um_cmd_find_in_path(word, path) == 0;
    at->unsure = false;
    return false;
}

/*
 * True if a line of such a file has one of the options. Each line is a part of the job, as on the command line before a
 * `:`; a line that ends in a backslash goes on.
 */
static bool line_has(struct um_cmd_words *at, char *line, const char *const *options)
{
    static const char blanks[] = " \t\r\n";
    bool has = false, goes_on = false;
    char *rest;
    line[strcspn(line, "#")] = '\0';
    for (char *word = strtok_r(line, blanks, &rest); word; word = strtok_r(NULL, blanks, &rest)) {
        goes_on = !strcmp(word, "\\");
        if (!goes_on && um_cmd_words_take(at, word))
            has |= um_cmd_words_is_option(word, options);
    }
    if (!goes_on)
        *at = (struct um_cmd_words){0};
    return has;
}

FILE *um_cmd_words_open(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) ? fopen(path, "re") : NULL;
}

static bool file_has(const char *path, const char *const *options)
{
    struct um_cmd_words at = {0};
    char *line = NULL;
    size_t size = 0;
    bool has = false;
    FILE *file = um_cmd_words_open(path);
    if (!file)
        return false;
    while (!has && getline(&line, &size, file) > 0)
        has = line_has(&at, line, options);
    free(line);
    fclose(file);
    return has;
}

const char *um_cmd_words_value(char *const *word)
{
    const char *equals = strchr(*word, '=');
    if (equals)
        return equals + 1;
    return word[1] ? word[1] : "";
}

char *const *um_cmd_words_find(char *const *words, const char *const *options)
{
    struct um_cmd_words at = {0};
    for (; *words; words++) {
        if (!um_cmd_words_take(&at, *words))
            continue;
        if (um_cmd_words_is_option(*words, options) ||
            (um_cmd_words_is_option(*words, with_more) && file_has(um_cmd_words_value(words), options)))
            return words;
    }
    return NULL;
}
