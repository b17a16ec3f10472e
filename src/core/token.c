/*
 * Tokens: the numbers under which operations await the answers of a peer.
 *
 * Owns: struct um_core_tokens. The first UM_TOKENS are bounded: the machine keeps a place for each one's answer. All
 * others come from a table that doubles. Threading: core.h.
 */
#include "core/endpoint.h"

#include <errno.h>
#include <stdlib.h>

void um_core_tokens_init(struct um_core_tokens *tokens)
{
    *tokens = (struct um_core_tokens){.bounded_free = UINT64_MAX};
}

void um_core_tokens_fini(struct um_core_tokens *tokens)
{
    free(tokens->slot);
    um_core_tokens_init(tokens);
}

/* The first call makes room for the bounded tokens only. */
static int tokens_grow(struct um_core_tokens *tokens)
{
    uint32_t capacity = tokens->capacity ? tokens->capacity * 2 : UM_TOKENS;
    if (capacity < tokens->capacity)
        return -ENOMEM;
    struct um_core_token *slot = realloc(tokens->slot, capacity * sizeof(*slot));
    if (!slot)
        return -ENOMEM;
    for (uint32_t t = tokens->capacity; t < capacity; t++)
        slot[t] = (struct um_core_token){.next_free = t + 1};
    tokens->slot = slot;
    tokens->unbounded_free = tokens->capacity ? tokens->capacity : UM_TOKENS;
    tokens->capacity = capacity;
    return 0;
}

static void token_give(struct um_core_op *op, uint32_t token)
{
    struct um_core_tokens *tokens = &op->peer->tokens;
    tokens->slot[token].op = op;
    tokens->used++;
    op->token = token;
    op->has_token = true;
}

int um_core_op_take_token(struct um_core_op *op)
{
    struct um_core_tokens *tokens = &op->peer->tokens;
    if (tokens->capacity == 0 && tokens_grow(tokens) != 0)
        return -ENOMEM;
    if (!tokens->bounded_free)
        return -EAGAIN;
    uint32_t token = (uint32_t)__builtin_ctzll(tokens->bounded_free);
    tokens->bounded_free &= tokens->bounded_free - 1;
    token_give(op, token);
    return 0;
}

int um_core_op_take_unbounded_token(struct um_core_op *op)
{
    struct um_core_tokens *tokens = &op->peer->tokens;
    while (tokens->capacity == 0 || tokens->unbounded_free == tokens->capacity) {
        if (tokens_grow(tokens) != 0)
            return -ENOMEM;
    }
    uint32_t token = tokens->unbounded_free;
    tokens->unbounded_free = tokens->slot[token].next_free;
    token_give(op, token);
    return 0;
}

void um_core_op_drop_token(struct um_core_op *op)
{
    struct um_core_tokens *tokens = &op->peer->tokens;
    tokens->slot[op->token].op = NULL;
    tokens->used--;
    op->has_token = false;
    if (op->token < UM_TOKENS) {
        tokens->bounded_free |= (uint64_t)1 << op->token;
    } else {
        tokens->slot[op->token].next_free = tokens->unbounded_free;
        tokens->unbounded_free = op->token;
    }
}

struct um_core_op *um_core_peer_op(const struct um_core_peer *peer, uint32_t token)
{
    return token < peer->tokens.capacity ? peer->tokens.slot[token].op : NULL;
}
