/*
 * libfabric, as this machine uses it from below the provider: the functions of the libfabric that is in the process.
 *
 * They are looked up when first needed. So programs that use no inner provider (tests, the command) link no libfabric,
 * and a process with a libfabric of its own (an MPI's) has only that one. Threading: any.
 */
#ifndef UM_MACHINE_NET_LIBRARY_H
#define UM_MACHINE_NET_LIBRARY_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

struct um_net_library {
    int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
                   struct fi_info **info);
    void (*freeinfo)(struct fi_info *info);
    struct fi_info *(*dupinfo)(const struct fi_info *info);
    int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
    const char *(*strerror)(int errnum);
};
/* Valid after um_net_library_load() has returned 0. */
extern struct um_net_library um_net_api;

/* Looks up the functions. 0; -ENOENT: there is no libfabric that can be used (logged). */
int um_net_library_load(void);
/*
 * Loads a provider from a file of its own, in the folders of FI_PROVIDER_PATH or beside libfabric. From then on getinfo
 * and fabric of um_net_api are the provider's. -ENOENT: there is no such file, or it is no provider that can be loaded.
 * Threading: the caller ensures that no other thread uses um_net_api.
 */
int um_net_library_take_file(const char *provider);

#endif
