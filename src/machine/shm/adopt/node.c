/*
 * NUMA: pages of the file come to the node where the private ones were.
 *
 * Called between stop and resume: see the rule in move.c. Threading: internal.h; the policy that changes is the
 * calling thread's own. Source: set_mempolicy(2), move_pages(2).
 */
#include "machine/shm/adopt/internal.h"
#include "machine/shm/adopt/sys.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { POLICY_PREFERRED = 1, AT_A_TIME = 64, NODES = 1024, WORD_BITS = 8 * sizeof(unsigned long) };

bool um_shm_node_several(void)
{
    char text[64] = "";
    int fd = open("/sys/devices/system/node/has_memory", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    return n > 0 && strpbrk(text, ",-") != NULL;
}

void um_shm_node_save(struct um_shm_node_policy *policy)
{
    policy->saved =
        um_shm_sys(SYS_get_mempolicy, (const long[6]){(long)&policy->mode, (long)policy->nodes, NODES, 0, 0, 0}) == 0;
}

void um_shm_node_restore(const struct um_shm_node_policy *policy)
{
    if (policy->saved)
        um_shm_sys3(SYS_set_mempolicy, policy->mode, policy->mode ? (long)policy->nodes : 0, policy->mode ? NODES : 0);
}

static void prefer(int node)
{
    unsigned long mask[NODES / WORD_BITS];
    for (size_t i = 0; i < NODES / WORD_BITS; i++)
        ((volatile unsigned long *)mask)[i] = 0; /* no call of memset */
    mask[(unsigned)node / WORD_BITS] = 1ul << ((unsigned)node % WORD_BITS);
    um_shm_sys3(SYS_set_mempolicy, POLICY_PREFERRED, (long)mask, NODES);
}

size_t um_shm_node_follow(uintptr_t at, size_t count, size_t page)
{
    uintptr_t address[AT_A_TIME];
    int node[AT_A_TIME];
    count = count < AT_A_TIME ? count : AT_A_TIME;
    for (size_t i = 0; i < count; i++)
        address[i] = at + i * page;
    if (um_shm_sys(SYS_move_pages, (const long[6]){0, (long)count, (long)address, 0, (long)node, 0}) != 0)
        return count;
    size_t same = 1;
    /* NOLINTBEGIN(clang-analyzer-core.UndefinedBinaryOperatorResult): the kernel has filled them */
    while (same < count && node[same] == node[0])
        same++;
    if (node[0] >= 0 && node[0] < NODES)
        prefer(node[0]);
    /* NOLINTEND(clang-analyzer-core.UndefinedBinaryOperatorResult) */
    return same;
}
