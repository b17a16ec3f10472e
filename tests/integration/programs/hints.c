/*
 * hints LIBFABRIC MAJOR MINOR AUTH_KEYS GROUP: calls fi_getinfo of that libfabric, for that API version, with hints of
 * libfabric 2.x that the installed headers may lack. Prints the outcome; from 2.5 on also the new fields at the end of
 * the offer's domain attributes.
 *
 * struct fi_domain_attr only grows at its end; that libfabric allocates it. Source: rdma/fabric.h of libfabric 2.5.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tail {
    size_t max_ep_auth_key;      /* 1.20 */
    uint32_t max_group_id;       /* 2.0 */
    uint64_t max_cntr_value;     /* 2.5 */
    uint64_t max_err_cntr_value; /* 2.5 */
};

static struct tail *tail_of(struct fi_info *info)
{
    return (struct tail *)(void *)((char *)info->domain_attr + offsetof(struct fi_domain_attr, tclass) + 8);
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "usage: hints LIBFABRIC MAJOR MINOR AUTH_KEYS GROUP\n");
        return 2;
    }
    void *library = dlopen(argv[1], RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    struct fi_info *(*dupinfo)(const struct fi_info *) = (void *)dlsym(library, "fi_dupinfo");
    int (*getinfo)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *, struct fi_info **) =
        (void *)dlsym(library, "fi_getinfo");
    const uint32_t version = FI_VERSION((uint32_t)atoi(argv[2]), (uint32_t)atoi(argv[3]));
    struct fi_info *hints = dupinfo(NULL), *info = NULL;
    hints->fabric_attr->prov_name = strdup("unimem");
    hints->ep_attr->type = FI_EP_RDM;
    tail_of(hints)->max_ep_auth_key = (size_t)atoi(argv[4]);
    tail_of(hints)->max_group_id = (uint32_t)atoi(argv[5]);
    const int ret = getinfo(version, NULL, NULL, 0, hints, &info);
    printf("%s\n", ret == 0 ? "offered" : ret == -FI_ENODATA ? "refused" : "error");
    if (ret == 0 && version >= FI_VERSION(2, 5)) {
        const struct tail *t = tail_of(info);
        printf("%zu %u %" PRIx64 " %" PRIx64 "\n", t->max_ep_auth_key, t->max_group_id, t->max_cntr_value,
               t->max_err_cntr_value);
    }
    return 0;
}
