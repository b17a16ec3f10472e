/*
 * Intrusive doubly linked list, circular, with a head that is a node of its own.
 *
 * Owns nothing: the nodes lie in the objects. An unlinked node points to itself, so unlinking twice is harmless.
 * Threading: the caller serialises.
 */
#ifndef UM_BASE_LIST_H
#define UM_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct um_list {
    struct um_list *next;
    struct um_list *prev;
};

#define UM_CONTAINER(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

static inline void um_list_init(struct um_list *l)
{
    l->next = l;
    l->prev = l;
}

static inline bool um_list_is_empty(const struct um_list *l)
{
    return l->next == l;
}

static inline void um_list_append(struct um_list *head, struct um_list *node)
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

static inline void um_list_unlink(struct um_list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    um_list_init(node);
}

/* The first node, or NULL when the list is empty. */
static inline struct um_list *um_list_first(const struct um_list *head)
{
    /* The analyser does not see that an unlinked node is not reachable from the head. */
    return head->next == head ? NULL : head->next; /* NOLINT(clang-analyzer-unix.Malloc) */
}

#endif
