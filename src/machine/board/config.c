/* The parameters of the machine over a board. config.h. Owns: um_board.config. */
#include "machine/board/config.h"

#include "machine/board/process.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define STEPS "naive, cache, dmable, eager, embedded, direct, native"

static const char *const step_names[UM_BOARD_STEPS] = {"naive",    "cache",  "dmable", "eager",
                                                       "embedded", "direct", "native"};

const struct um_machine_param um_board_params[UM_BOARD_PARAMS] = {
    {.key = "board_library",
     .help = "The file of the Unimem board's library. Allowed: a path, or the name of a file that the loader finds "
             "(default: libunimem.so.1, beside the provider, where the loader finds it, or in the directory above)",
     .allowed = "a library that can be read, or its name for the loader",
     .set = um_board_set_library},
    {.key = "board_step",
     .help = "How far to go beyond the simplest way to carry messages over a Unimem board, each step with those "
             "before it. Allowed: " STEPS " (default: native)",
     .allowed = STEPS,
     .set = um_board_set_step},
};

int um_board_set_library(const char *file)
{
    if (file && (strlen(file) >= sizeof(um_board.config.library) || (strchr(file, '/') && access(file, R_OK))))
        return -EINVAL;
    um_board_enter();
    if (file)
        memcpy(um_board.config.library, file, strlen(file) + 1);
    else
        um_board.config.library[0] = 0;
    um_board_leave();
    return 0;
}

int um_board_set_step(const char *name)
{
    unsigned chosen = UM_BOARD_STEPS - 1;
    for (unsigned i = 0; name; i++) {
        if (i == UM_BOARD_STEPS)
            return -EINVAL;
        chosen = i;
        if (strcmp(name, step_names[i]) == 0)
            break;
    }
    um_board_enter();
    um_board.config.step = (enum um_board_step)chosen;
    um_board_leave();
    return 0;
}

enum um_board_step um_board_step_get(void)
{
    return um_board.config.step;
}

const char *um_board_library_file(void)
{
    return *um_board.config.library ? um_board.config.library : NULL;
}
