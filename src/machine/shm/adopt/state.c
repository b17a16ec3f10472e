/*
 * Adoption: where its state is, and the lock around every call.
 *
 * Owns: the pointer to the state, which adopt.c makes; the settings that tests change. Threading: the pointer is set
 * once.
 */
#include "machine/shm/adopt/internal.h"
#include "machine/shm/adopt/sys.h"

#include "base/cancel.h"

struct um_shm_adopt_tuning um_shm_adopt_forced;

static struct um_shm_adopt_state *the_state;

void um_shm_adopt_state_set(struct um_shm_adopt_state *state)
{
    the_state = state;
}

struct um_shm_adopt_state *um_shm_adopt_state_if_any(void)
{
    return the_state;
}

void um_shm_adopt_lock(struct um_shm_adopt_state *state, uint64_t *mask_p)
{
    uint64_t mask = 0;
    const int cancel = um_cancel_disable();
    um_shm_sys_signals_block(&mask);
    pthread_mutex_lock(&state->lock);
    state->cancel_before = cancel;
    *mask_p = mask;
}

void um_shm_adopt_unlock(struct um_shm_adopt_state *state, const uint64_t *mask)
{
    uint64_t own = *mask;
    const int cancel = state->cancel_before;
    pthread_mutex_unlock(&state->lock);
    um_shm_sys_signals_restore(&own);
    um_cancel_restore(&cancel);
}
