/* See cmd/launch.h. */
#include "launch.h"
#include "commands.h"
#include "elf_file.h"
#include "recognise.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEAD_MAX = 256 }; /* the first bytes of a file: the kernel looks no further for `#!` */

static bool can_run(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

int um_cmd_find_in_path(const char *word, char *path)
{
    if (strchr(word, '/')) {
        snprintf(path, PATH_MAX, "%s", word);
        return can_run(path) ? 0 : -ENOENT;
    }
    const char *list = getenv("PATH");
    for (const char *at = list ? list : "/usr/bin:/bin"; *word && at;
         at = strchr(at, ':') ? strchr(at, ':') + 1 : NULL) {
        int n = (int)strcspn(at, ":");
        if (snprintf(path, PATH_MAX, "%.*s%s%s", n, at, n ? "/" : "./", word) < PATH_MAX && can_run(path))
            return 0;
    }
    return -ENOENT;
}

/* Prints why the program cannot be run. Returns the status. */
__attribute__((format(printf, 3, 4))) static int fail(int status, const char *word, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "unimem: cannot run %s: ", word);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputs(".\n", stderr);
    return status;
}

static int not_in_path(const char *word)
{
    const char *what = "there is no executable file of that name in PATH";
    if (strchr(word, '='))
        return fail(UM_EXIT_NOTFOUND, word, "%s. To set a variable, write: env %s PROGRAM", what, word);
    if (can_run(word))
        return fail(UM_EXIT_NOTFOUND, word, "%s, but there is one in this folder. Write: ./%s", what, word);
    return fail(UM_EXIT_NOTFOUND, word, "%s. Give its full path, or add its folder to PATH%s", what,
                um_cmd_launcher_name(word) ? "; ./quickstart puts MPICH's mpiexec into .venv/bin" : "");
}

/* Reports a path that leads nowhere. */
static int not_there(const char *word, int error)
{
    char other[PATH_MAX];
    ssize_t n = readlink(word, other, sizeof other - 1);
    if (error == ENOENT && n > 0)
        return fail(UM_EXIT_NOTFOUND, word, "it is a symbolic link to %.*s, which does not exist. Mend the link",
                    (int)n, other);
    if (error == ENOENT && word[0] != '/' && getcwd(other, sizeof other))
        return fail(UM_EXIT_NOTFOUND, word, "there is no such file, seen from %s. Build it, or correct the path",
                    other);
    if (error == ENOENT)
        return fail(UM_EXIT_NOTFOUND, word, "there is no such file. Build it, or correct the path");
    if (error == EACCES)
        return fail(UM_EXIT_NOEXEC, word, "a folder on the way to it is closed to you (chmod +x FOLDER by its owner)");
    return fail(UM_EXIT_NOEXEC, word, "%s", strerror(error));
}

int um_cmd_launch_find(const char *word, char *path)
{
    struct stat st;
    if (um_cmd_find_in_path(word, path) == 0)
        return 0;
    if (!strchr(word, '/'))
        return not_in_path(word);
    if (stat(word, &st))
        return not_there(word, errno);
    if (S_ISDIR(st.st_mode))
        return fail(UM_EXIT_NOEXEC, word, "it is a folder. Name a program in it");
    if (!S_ISREG(st.st_mode))
        return fail(UM_EXIT_NOEXEC, word, "it is not a file");
    if (st.st_mode & (S_IXUSR | S_IXGRP | S_IXOTH))
        return fail(UM_EXIT_NOEXEC, word,
                    "you may not execute it: see its owner and permissions (ls -l), and whether its file system\n"
                    "  is mounted noexec (findmnt -T)");
    return fail(UM_EXIT_NOEXEC, word, "it is not executable. If it is a program or a script: chmod +x %s", word);
}

/* Reads the first bytes of a file. Returns how many, or 0. */
static size_t read_head(const char *path, char *head)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, head, HEAD_MAX);
    if (fd >= 0)
        close(fd);
    return n > 0 ? (size_t)n : 0;
}

static bool is_elf(const char *head, size_t size)
{
    return size >= SELFMAG && memcmp(head, ELFMAG, SELFMAG) == 0;
}

/* True if the beginning of a file looks like text: then shells take it for a script. */
static bool is_text(const char *head, size_t size)
{
    static const char allowed[] = "\t\n\v\f\r\033";
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)head[i];
        if (c < 0x20 && !memchr(allowed, c, sizeof allowed - 1))
            return false;
    }
    return size > 0 && !is_elf(head, size);
}

/* True if both headers name the same kind of processor. The field lies at the same place in 32 and in 64 bits. */
static bool same_machine(const char *head, const char *other)
{
    return !memcmp(head + offsetof(Elf64_Ehdr, e_machine), other + offsetof(Elf64_Ehdr, e_machine), sizeof(Elf64_Half));
}

/* Reports a file that the kernel does not accept as a program of this machine. */
static int wrong_format(const char *word, const char *head, size_t size)
{
    char own[HEAD_MAX];
    if (!size)
        return fail(UM_EXIT_NOEXEC, word, "it is empty, or cannot be read. Build it again, or copy it again");
    if (!is_elf(head, size))
        return fail(UM_EXIT_NOEXEC, word, "it is neither a program of this machine nor a script");
    if (size >= sizeof(Elf64_Ehdr) && read_head("/proc/self/exe", own) >= sizeof(Elf64_Ehdr) &&
        !same_machine(head, own))
        return fail(UM_EXIT_NOEXEC, word,
                    "it was built for another kind of processor (`file %s` says which). Build it for this one", word);
    return fail(UM_EXIT_NOEXEC, word, "it is a damaged program. Build it again, or copy it again");
}

/* Reports a script whose interpreter does not exist. */
static int no_interpreter(const char *word, const char *head)
{
    size_t line = strcspn(head, "\n"), at = 2 + strspn(head + 2, " \t");
    if (head[line - 1] == '\r')
        return fail(UM_EXIT_NOEXEC, word,
                    "its lines end as on Windows, so its interpreter is not found. Mend it: sed -i 's/\\r$//' %s",
                    word);
    return fail(UM_EXIT_NOEXEC, word,
                "its first line asks for %.*s, which does not exist. Install that, or correct the line",
                (int)strcspn(head + at, " \t\n"), head + at);
}

/* Reports a program whose loader does not exist: it is for another C library, or of another word size. */
static int no_loader(const char *word, const char *path)
{
    struct um_cmd_elf elf;
    bool known = um_cmd_elf_open(path, &elf) == 0;
    int ret = fail(UM_EXIT_NOEXEC, word, "its loader %s does not exist: it was built for another system. Build it here",
                   known && elf.loader ? elf.loader : "(ld.so)");
    if (known)
        um_cmd_elf_close(&elf);
    return ret;
}

static int run_by_shell(const char *path, char **argv)
{
    size_t count = 0;
    while (argv[count])
        count++;
    char **sh = calloc(count + 2, sizeof *sh);
    if (!sh)
        return ENOMEM;
    sh[0] = argv[0];
    sh[1] = (char *)path;
    memcpy(sh + 2, argv + 1, count * sizeof *sh); /* including the NULL at the end */
    execv("/bin/sh", sh);
    int error = errno;
    free(sh);
    return error;
}

int um_cmd_launch(const char *path, char **argv)
{
    char head[HEAD_MAX + 1] = "";
    execv(path, argv);
    int error = errno;
    size_t size = read_head(path, head);
    if (error == ENOEXEC && is_text(head, size))
        error = run_by_shell(path, argv);
    if (error == ENOEXEC)
        return wrong_format(argv[0], head, size);
    if (error == ENOENT)
        return memcmp(head, "#!", 2) == 0 ? no_interpreter(argv[0], head) : no_loader(argv[0], path);
    if (error == EACCES)
        return fail(UM_EXIT_NOEXEC, argv[0], "what runs it (its interpreter or loader) is not executable for you");
    return fail(UM_EXIT_NOEXEC, argv[0], "%s%s", strerror(error),
                error == E2BIG ? ". Arguments and environment together are too long" : "");
}
