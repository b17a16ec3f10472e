/* machines.h. */
#include "machine/machines.h"

#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Returns the machine with the name of len bytes; NULL: none. */
static const struct um_machine *machine_named(const char *name, size_t len)
{
    for (const struct um_machine *const *m = um_machines_offered; *m; m++) {
        if (strlen((*m)->name) == len && memcmp((*m)->name, name, len) == 0)
            return *m;
    }
    return NULL;
}

/* True if both machines have their part in the same place of an address. */
static bool is_overlapping(const struct um_machine *a, const struct um_machine *b)
{
    return a->addr_kind & b->addr_kind ||
           (a->addr_first < b->addr_first + b->addr_words && b->addr_first < a->addr_first + a->addr_words);
}

int um_machines_add(struct um_machines *machines, const struct um_machine *machine)
{
    static struct um_log_limit limit;
    if (machines->count == UM_MACHINES_MAX)
        return -EINVAL;
    for (uint32_t i = 0; i < machines->count; i++) {
        if (machines->at[i] == machine)
            return -EINVAL;
        if (!is_overlapping(machines->at[i], machine))
            continue;
        um_log_limited(&limit, UM_LOG_WARN,
                       "the machines %s and %s cannot be used together: they have the same place in an address",
                       machines->at[i]->name, machine->name);
        return -EADDRINUSE;
    }
    machines->at[machines->count++] = machine;
    return 0;
}

int um_machines_named(const char *names, struct um_machines *machines_p)
{
    struct um_machines machines = {.count = 0};
    for (const char *name = names;; name++) {
        const size_t len = strcspn(name, ",");
        const struct um_machine *machine = machine_named(name, len);
        int ret = machine ? um_machines_add(&machines, machine) : -EINVAL;
        if (ret)
            return ret;
        name += len;
        if (!*name)
            break;
    }
    *machines_p = machines;
    return 0;
}

void um_machines_allowed(char *text, size_t size)
{
    static_assert(UM_MACHINES_MAX == 2, "the text says how many");
    const char *const first = um_machines_offered[0]->name;
    size_t at = 0;
    for (const struct um_machine *const *m = um_machines_offered; *m && at < size; m++)
        at += (size_t)snprintf(text + at, size - at, "%s, ", (*m)->name);
    if (at < size)
        snprintf(text + at, size - at, "or %s and one of the others with a comma between, the preferred one first",
                 first);
}
