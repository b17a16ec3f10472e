/* See cmd/elf_file.h. */
#include "elf_file.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OWN_CLASS = sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32 };

/* Returns the bytes [offset, offset + size), or NULL if the file does not have them. */
static const void *part(const struct um_cmd_elf *elf, size_t offset, size_t size)
{
    return offset <= elf->size && size <= elf->size - offset ? elf->bytes + offset : NULL;
}

static const ElfW(Phdr) * segment(const struct um_cmd_elf *elf, unsigned index)
{
    const ElfW(Ehdr) *header = part(elf, 0, sizeof *header);
    if (!header || index >= header->e_phnum || header->e_phentsize != sizeof(ElfW(Phdr)))
        return NULL;
    size_t offset = (size_t)header->e_phoff + index * sizeof(ElfW(Phdr));
    return offset % sizeof(void *) ? NULL : part(elf, offset, sizeof(ElfW(Phdr)));
}

/* Returns the file offset of the byte that is loaded at this address; SIZE_MAX: there is none. */
static size_t offset_of(const struct um_cmd_elf *elf, size_t address)
{
    const ElfW(Phdr) * at;
    for (unsigned i = 0; (at = segment(elf, i)); i++) {
        if (at->p_type == PT_LOAD && address >= at->p_vaddr && address - at->p_vaddr < at->p_filesz)
            return address - at->p_vaddr + at->p_offset;
    }
    return SIZE_MAX;
}

/* Returns a zero-terminated text of the string table, or NULL. */
static const char *text_at(const struct um_cmd_elf *elf, size_t table, size_t index)
{
    if (table >= elf->size || index >= elf->size - table)
        return NULL;
    const char *text = (const char *)elf->bytes + table + index;
    return memchr(text, '\0', elf->size - table - index) ? text : NULL;
}

static void read_dynamic(struct um_cmd_elf *elf, const ElfW(Dyn) * dynamic, size_t count)
{
    size_t table = SIZE_MAX;
    for (size_t i = 0; i < count && dynamic[i].d_tag != DT_NULL; i++) {
        if (dynamic[i].d_tag == DT_STRTAB)
            table = offset_of(elf, dynamic[i].d_un.d_ptr);
    }
    for (size_t i = 0; i < count && dynamic[i].d_tag != DT_NULL; i++) {
        const char *text = text_at(elf, table, dynamic[i].d_un.d_val);
        if (dynamic[i].d_tag == DT_NEEDED && text && elf->needed_count < UM_ELF_NEEDED_MAX)
            elf->needed[elf->needed_count++] = text;
        else if (dynamic[i].d_tag == DT_RUNPATH)
            elf->runpath = text;
        else if (dynamic[i].d_tag == DT_RPATH)
            elf->rpath = text;
    }
    if (elf->runpath)
        elf->rpath = NULL; /* the dynamic linker ignores it then */
}

static int map_file(const char *path, struct um_cmd_elf *elf)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    int ret = fstat(fd, &st) ? -errno : !S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(ElfW(Ehdr)) ? -ENOEXEC : 0;
    void *bytes = ret ? MAP_FAILED : mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (!ret && bytes == MAP_FAILED)
        ret = -errno;
    close(fd);
    if (ret)
        return ret;
    *elf = (struct um_cmd_elf){.bytes = bytes, .size = (size_t)st.st_size};
    return 0;
}

int um_cmd_elf_open(const char *path, struct um_cmd_elf *elf)
{
    int ret = map_file(path, elf);
    if (ret)
        return ret;
    if (memcmp(elf->bytes, ELFMAG, SELFMAG) != 0 || elf->bytes[EI_CLASS] != OWN_CLASS) {
        um_cmd_elf_close(elf);
        return -ENOEXEC;
    }
    const ElfW(Phdr) * at;
    for (unsigned i = 0; (at = segment(elf, i)); i++) {
        const ElfW(Dyn) *dynamic = at->p_type == PT_DYNAMIC ? part(elf, at->p_offset, at->p_filesz) : NULL;
        if (dynamic && at->p_offset % sizeof(void *) == 0) {
            elf->dynamic = at->p_offset;
            elf->dynamic_count = at->p_filesz / sizeof *dynamic;
            read_dynamic(elf, dynamic, elf->dynamic_count);
        }
        if (at->p_type == PT_INTERP)
            elf->loader = text_at(elf, at->p_offset, 0);
    }
    return 0;
}

void um_cmd_elf_close(struct um_cmd_elf *elf)
{
    munmap((void *)elf->bytes, elf->size);
    *elf = (struct um_cmd_elf){0};
}

unsigned um_cmd_elf_startup(const struct um_cmd_elf *elf, struct um_cmd_elf_word *words)
{
    const ElfW(Dyn) *dynamic = part(elf, elf->dynamic, elf->dynamic_count * sizeof *dynamic);
    unsigned count = 0;
    for (size_t i = 0; dynamic && i < elf->dynamic_count && dynamic[i].d_tag != DT_NULL; i++) {
        size_t at = elf->dynamic + i * sizeof *dynamic;
        if (count == UM_ELF_STARTUP_MAX)
            break;
        switch (dynamic[i].d_tag) {
        case DT_INIT: /* becomes an entry that the loader ignores in a library: an address of 0 would be called */
        case DT_FINI:
            words[count++] = (struct um_cmd_elf_word){at + offsetof(ElfW(Dyn), d_tag), DT_DEBUG};
            break;
        case DT_INIT_ARRAYSZ:
        case DT_FINI_ARRAYSZ:
            words[count++] = (struct um_cmd_elf_word){at + offsetof(ElfW(Dyn), d_un), 0};
            break;
        default:
            break;
        }
    }
    return count;
}

bool um_cmd_elf_holds(const struct um_cmd_elf *elf, const void *bytes, size_t size)
{
    return memmem(elf->bytes, elf->size, bytes, size) != NULL;
}
