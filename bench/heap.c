/*
 * What the shareable heap costs and gains: heap [MIB]. Run it with and without `unimem run --heap`.
 *
 * Prints the time to touch fresh memory of malloc, and to register it through libfabric (without the heap: adoption);
 * the time of malloc and free by size, and of fork; and the memory that is held. Not a test: compare on a quiet
 * machine.
 */
#include "base/clock.h"

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 5 };

static void must(int ret, const char *what)
{
    if (ret == 0)
        return;
    fprintf(stderr, "heap: %s: %s\n", what, fi_strerror(-ret));
    exit(1);
}

static struct fid_domain *domain_open(void)
{
    struct fi_info *hints = fi_allocinfo(), *info = NULL;
    struct fid_fabric *fabric = NULL;
    struct fid_domain *domain = NULL;
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_RMA;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_PROV_KEY | FI_MR_ALLOCATED;
    must(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), "fi_getinfo");
    must(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
    must(fi_domain(fabric, info, &domain, NULL), "fi_domain");
    return domain;
}

static unsigned char *touched(size_t len)
{
    unsigned char *mem = malloc(len);
    if (!mem)
        exit(1);
    memset(mem, 1, len);
    __asm__ volatile("" : : "r"(mem) : "memory");
    return mem;
}

static void registrations(struct fid_domain *domain, size_t len)
{
    uint64_t in = UINT64_MAX, out = UINT64_MAX, touch = UINT64_MAX;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        struct fid_mr *mr = NULL;
        uint64_t begin = um_clock_ns();
        unsigned char *mem = touched(len);
        uint64_t start = um_clock_ns();
        must(fi_mr_reg(domain, mem, len, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, i + 1, 0, &mr, NULL), "fi_mr_reg");
        uint64_t middle = um_clock_ns();
        must(fi_close(&mr->fid), "fi_close");
        uint64_t end = um_clock_ns();
        free(mem);
        touch = start - begin < touch ? start - begin : touch;
        in = middle - start < in ? middle - start : in;
        out = end - middle < out ? end - middle : out;
    }
    printf("%9zu KiB: touch %10.1f us, register %10.1f us, deregister %10.1f us (best of %d)\n", len >> 10,
           (double)touch / 1e3, (double)in / 1e3, (double)out / 1e3, ROUNDS);
}

static void allocations(size_t len, unsigned rounds)
{
    uint64_t start = um_clock_ns();
    for (unsigned i = 0; i < rounds; i++) {
        unsigned char *mem = malloc(len);
        mem[0] = 1;
        __asm__ volatile("" : : "r"(mem) : "memory");
        free(mem);
    }
    printf("malloc and free of %8zu bytes: %8.1f ns\n", len, (double)(um_clock_ns() - start) / rounds);
}

static void forks(size_t len)
{
    unsigned char *mem = touched(len);
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t start = um_clock_ns();
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        uint64_t took = um_clock_ns() - start;
        waitpid(child, NULL, 0);
        best = took < best ? took : best;
    }
    printf("fork with %zu MiB: %.1f us\n", len >> 20, (double)best / 1e3);
    free(mem);
}

static void memory(const char *when)
{
    char line[256];
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    while (f && fgets(line, sizeof(line), f)) {
        if (strncmp(line, "Pss:", 4) == 0 || strncmp(line, "Rss:", 4) == 0)
            printf("%s: %s", when, line);
    }
    if (f)
        fclose(f);
}

int main(int argc, char **argv)
{
    size_t most = (argc > 1 ? strtoul(argv[1], NULL, 0) : 256) << 20;
    struct fid_domain *domain = domain_open();
    memory("at the start");
    for (size_t len = 64 << 10; len <= most; len *= 64)
        registrations(domain, len);
    registrations(domain, most);
    allocations(100, 10000000);
    allocations(100000, 1000000);
    allocations(1000000, 100000);
    forks(most);
    unsigned char *mem = touched(most);
    memory("with the block");
    free(mem);
    memory("after free");
    return 0;
}
