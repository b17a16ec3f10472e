/* Lanes and rx by number, and the secret numbers that identify them. net.h. */
#include "machine/net/net.h"

#include "base/cancel.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { SLOTS_MAX = 1 << 20 };

static int table_grow(struct um_net_table *table)
{
    uint32_t capacity = table->capacity ? table->capacity * 2 : 16;
    void **at = capacity <= SLOTS_MAX ? realloc(table->at, capacity * sizeof(void *)) : NULL;
    if (!at)
        return -ENOMEM;
    table->at = at;
    table->capacity = capacity;
    return 0;
}

int um_net_slot_take(struct um_net_table *table, void *object, uint32_t *slot_p)
{
    uint32_t slot = 0;
    while (slot < table->end && table->at[slot])
        slot++;
    if (slot == table->capacity && table_grow(table) != 0)
        return -ENOMEM;
    table->at[slot] = object;
    if (slot == table->end)
        table->end++;
    *slot_p = slot;
    return 0;
}

void um_net_slot_free(struct um_net_table *table, uint32_t slot)
{
    table->at[slot] = NULL;
    while (table->end && !table->at[table->end - 1])
        table->end--;
}

void um_net_slots_end(struct um_net_table *table)
{
    free(table->at);
    *table = (struct um_net_table){0};
}

uint64_t um_net_secret(void)
{
    UM_UNCANCELLED;
    static struct um_log_limit none;
    uint64_t secret = 0;
    while (secret == 0) {
        if (getrandom(&secret, sizeof(secret), 0) == (ssize_t)sizeof(secret))
            continue;
        if (errno == EINTR)
            continue;
        um_log_limited(&none, UM_LOG_WARN, "the system gives no random numbers: %s", strerror(errno));
        return 0;
    }
    return secret;
}
