/* See needs.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "needs.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { SKIPPED = 77 };

static bool missed;

bool has_private_copy(void)
{
    char from = 1, to = 0;
    struct iovec local = {.iov_base = &to, .iov_len = 1}, remote = {.iov_base = &from, .iov_len = 1};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1 || errno != ENOSYS;
}

bool has_userfaultfd(void)
{
    long fd = syscall(SYS_userfaultfd, 0);
    if (fd >= 0)
        close((int)fd);
    return fd >= 0 || errno != ENOSYS;
}

bool has_madvise(void)
{
    return madvise(NULL, 0, INT_MAX) != 0;
}

bool has_robust_locks(void)
{
    void *head;
    size_t len;
    return syscall(SYS_get_robust_list, 0, &head, &len) == 0 || errno != ENOSYS;
}

bool has_one_thread(void)
{
    DIR *dir = opendir("/proc/self/task");
    int count = 0;
    for (struct dirent *e; dir && (e = readdir(dir)) != NULL;)
        count += e->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return count == 1;
}

void needs(bool condition)
{
    if (condition)
        return;
    missed = true;
    skip();
}

int needs_status(int failed)
{
    return failed == 0 && missed ? SKIPPED : failed;
}
