/* machines.h. */
#include "machine/machines.h"

#include <errno.h>
#include <string.h>

const struct um_machine *const um_machines_offered[] = {&um_machine_shm, &um_machine_board, NULL};

/* The machine of that name, of len bytes; NULL: there is none. */
static const struct um_machine *machine_named(const char *name, size_t len)
{
    for (const struct um_machine *const *m = um_machines_offered; *m; m++) {
        if (strlen((*m)->name) == len && memcmp((*m)->name, name, len) == 0)
            return *m;
    }
    return NULL;
}

static bool is_in(const struct um_machines *machines, const struct um_machine *machine)
{
    for (uint32_t i = 0; i < machines->count; i++) {
        if (machines->at[i] == machine)
            return true;
    }
    return false;
}

int um_machines_named(const char *names, struct um_machines *machines_p)
{
    struct um_machines machines = {.count = 0};
    for (const char *name = names;; name++) {
        const size_t len = strcspn(name, ",");
        const struct um_machine *machine = machine_named(name, len);
        if (!machine || is_in(&machines, machine) || machines.count == UM_MACHINES_MAX)
            return -EINVAL;
        machines.at[machines.count++] = machine;
        name += len;
        if (!*name)
            break;
    }
    *machines_p = machines;
    return 0;
}
