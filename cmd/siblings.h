/*
 * Tries what two processes of a job do with each other's memory. Neither is the other's parent: Yama treats those
 * differently.
 */
#ifndef UM_CMD_SIBLINGS_H
#define UM_CMD_SIBLINGS_H

/* Each is 0 or the errno of the failure; EBADMSG: the call returned no error but the bytes were not there. */
struct um_cmd_siblings {
    int memfd;    /* memfd_create */
    int open;     /* open a memfd of the other process through /proc/PID/fd/N */
    int map;      /* map that memfd; each process sees the other's stores */
    int vm_read;  /* process_vm_readv */
    int vm_write; /* process_vm_writev */
};

/* Returns 0, or a negative errno if the processes could not be started. *result is set only on success. */
int um_cmd_siblings_try(struct um_cmd_siblings *result);

#endif
