/*
 * The objects of a parent in its forked child (inherited*.c): every call fails, because the objects belong to the
 * parent.
 *
 * An endpoint belongs to one process: its lanes, registrations and peers name the parent by its process id, and its
 * memory is not mapped in the child. So the child's copies of the objects get tables of their own (fork.c), whose
 * functions return -FI_EOPBADSTATE and touch nothing that the parent still uses. Closing an object frees its own
 * memory.
 */
#ifndef UM_PROV_INHERITED_H
#define UM_PROV_INHERITED_H

#include "prov/prov.h"

enum { UM_INHERITED = -FI_EOPBADSTATE };

extern struct fi_ops um_prov_inherited_fid_ops;
extern struct fi_ops_fabric um_prov_inherited_fabric_ops;
extern struct fi_ops_domain um_prov_inherited_domain_ops;
extern struct fi_ops_mr um_prov_inherited_mr_ops;
extern struct fi_ops_av um_prov_inherited_av_ops;
extern struct fi_ops_cq um_prov_inherited_cq_ops;
extern struct fi_ops_cntr um_prov_inherited_cntr_ops;
extern struct fi_ops_eq um_prov_inherited_eq_ops;
extern struct fi_ops_ep um_prov_inherited_ep_ops;
extern struct fi_ops_cm um_prov_inherited_cm_ops;
extern struct fi_ops_msg um_prov_inherited_msg_ops;
extern struct fi_ops_tagged um_prov_inherited_tagged_ops;
extern struct fi_ops_rma um_prov_inherited_rma_ops;
extern struct fi_ops_atomic um_prov_inherited_atomic_ops;

#endif
