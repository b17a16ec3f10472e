/*
 * refuse NAME[,NAME...] COMMAND...: runs COMMAND with the named system calls refused, as a container's seccomp
 * profile, Yama or an old kernel would: the call returns the errno beside its name.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct refusable {
    const char *name;
    int call;
    int error;
} table[] = {
    {"process_vm_readv", SYS_process_vm_readv, EPERM},
    {"process_vm_writev", SYS_process_vm_writev, EPERM},
    {"userfaultfd", SYS_userfaultfd, EPERM},
    {"membarrier", SYS_membarrier, ENOSYS},
    {"pidfd_open", SYS_pidfd_open, ENOSYS},
    {"pidfd_getfd", SYS_pidfd_getfd, EPERM},
    {"memfd_create", SYS_memfd_create, ENOSYS},
};

static int refuse(const struct refusable *what)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)what->call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)what->error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof code[0], .filter = code};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int refuse_named(const char *name)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (strcmp(name, table[i].name))
            continue;
        if (!refuse(&table[i]))
            return 0;
        perror("refuse: seccomp");
        return 1;
    }
    fprintf(stderr, "refuse: cannot refuse %s\n", name);
    return 2;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: refuse NAME[,NAME...] COMMAND...\n");
        return 2;
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) {
        perror("refuse: no_new_privs");
        return 1;
    }
    for (char *name = strtok(argv[1], ","); name; name = strtok(NULL, ",")) {
        int ret = refuse_named(name);
        if (ret)
            return ret;
    }
    execvp(argv[2], &argv[2]);
    perror(argv[2]);
    return 127;
}
