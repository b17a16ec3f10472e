/*
 * deny WHAT... -- PROGRAM ARGUMENT...: runs a program while the system refuses something.
 *
 *   process_vm_readv=EPERM    a system call fails with EPERM or ENOSYS (seccomp); also process_vm_writev, membarrier,
 *                             memfd_create, userfaultfd
 *   nofile=N  as=MIB  fsize=KIB    limits (setrlimit)
 *   shm=full|readonly|absent  /dev/shm of a mount namespace of its own
 *   hidepid                   /proc shows a user only its own processes; with user=
 *   user=UID
 *
 * Exit status 77 and the reason when this system does not let it do so (meson: skipped); else that of the program.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
    const char *name;
    unsigned number;
} calls[] = {{"process_vm_readv", SYS_process_vm_readv},
             {"process_vm_writev", SYS_process_vm_writev},
             {"membarrier", SYS_membarrier},
             {"memfd_create", SYS_memfd_create},
             {"userfaultfd", SYS_userfaultfd}};

static void must(int ret, const char *what)
{
    if (ret == 0)
        return;
    printf("not possible here: %s: %s\n", what, strerror(errno));
    exit(77);
}

static void refuse_call(unsigned number, unsigned error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};
    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
    must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0), "seccomp");
}

static void limit(int resource, unsigned long value)
{
    struct rlimit r = {.rlim_cur = value, .rlim_max = value};
    must(setrlimit(resource, &r), "setrlimit");
}

static void own_mounts(void)
{
    must(unshare(CLONE_NEWNS), "a mount namespace");
    must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "private mounts");
}

static void spoil_shm(const char *how)
{
    own_mounts();
    if (strcmp(how, "absent") == 0) {
        must(mount("none", "/dev", "tmpfs", 0, "mode=755"), "a /dev without shm");
        return;
    }
    must(mount("none", "/dev/shm", "tmpfs", strcmp(how, "readonly") == 0 ? MS_RDONLY : 0, "size=4k,nr_inodes=2"),
         "another /dev/shm");
    if (strcmp(how, "full") == 0) {
        FILE *f = fopen("/dev/shm/full", "w");
        for (int i = 0; f && i < 8192 && fputc('x', f) != EOF; i++)
            ;
        if (f)
            fclose(f);
    }
}

static int apply(const char *word)
{
    unsigned long value = 0;
    char text[32] = "";
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        size_t len = strlen(calls[i].name);
        if (strncmp(word, calls[i].name, len) == 0 && word[len] == '=') {
            refuse_call(calls[i].number, strcmp(word + len + 1, "ENOSYS") == 0 ? ENOSYS : EPERM);
            return 0;
        }
    }
    if (sscanf(word, "nofile=%lu", &value) == 1)
        limit(RLIMIT_NOFILE, value);
    else if (sscanf(word, "as=%lu", &value) == 1)
        limit(RLIMIT_AS, value << 20);
    else if (sscanf(word, "fsize=%lu", &value) == 1)
        limit(RLIMIT_FSIZE, value << 10);
    else if (sscanf(word, "shm=%31s", text) == 1)
        spoil_shm(text);
    else if (strcmp(word, "hidepid") == 0) {
        own_mounts();
        must(mount("proc", "/proc", "proc", 0, "hidepid=2"), "/proc with hidepid");
    } else if (sscanf(word, "user=%lu", &value) == 1)
        must(setgid((gid_t)value) || setuid((uid_t)value), "another user");
    else
        return -1;
    return 0;
}

int main(int argc, char **argv)
{
    int i = 1;
    for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (apply(argv[i]) != 0) {
            fprintf(stderr, "deny: unknown: %s\n", argv[i]);
            return 2;
        }
    }
    if (i + 1 >= argc) {
        fprintf(stderr, "deny: no program\n");
        return 2;
    }
    fflush(NULL);
    close_range(3, ~0u, 0); /* so that the limit of open files counts from here */
    execv(argv[i + 1], &argv[i + 1]);
    printf("not possible here: running %s as this user: %s\n", argv[i + 1], strerror(errno));
    return 77;
}
