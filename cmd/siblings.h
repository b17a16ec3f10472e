/*
 * Tries what two processes of a job do with each other's memory. Neither is the other's parent: Yama distinguishes
 * that.
 */
#ifndef UM_CMD_SIBLINGS_H
#define UM_CMD_SIBLINGS_H

/* Each 0, or the errno with which it failed; EBADMSG: it returned without error but the bytes were not there. */
struct um_cmd_siblings {
    int memfd;    /* memfd_create */
    int open;     /* open /proc/PID/fd/N of the other, of a memfd */
    int map;      /* map that and see the other's stores, and it ours */
    int vm_read;  /* process_vm_readv */
    int vm_write; /* process_vm_writev */
};

/* Returns 0, or a negative errno if the processes could not be started. *result is set only on success. */
int um_cmd_siblings_try(struct um_cmd_siblings *result);

#endif
