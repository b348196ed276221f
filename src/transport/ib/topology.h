/* topology.h - how far NICs are from devices, as hwloc sees the machine. Knows no verbs. */
#ifndef WEIRI_IB_TOPOLOGY_H
#define WEIRI_IB_TOPOLOGY_H

#include "weir/base.h"

/* Distances: bridges of PCI Express between the two, up to WEIRI_IB_FAR_BRIDGES, when they have a root complex in
 * common; otherwise where the two root complexes are. */
#define WEIRI_IB_FAR_BRIDGES 49u
#define WEIRI_IB_SAME_NODE 50u
#define WEIRI_IB_SAME_PACKAGE 60u
#define WEIRI_IB_ELSEWHERE 100u /* also where one of them is not known */

typedef struct weiri_ib_topology weiri_ib_topology;

/* Why there are no distances here: libhwloc is missing, say; NULL when there are. */
const char *weiri_ib_topology_missing(void);

/* This machine's; read at the first call, and kept. NULL when there is none. */
const weiri_ib_topology *weiri_ib_topology_here(void);

/* A machine's that was recorded as a file of hwloc's XML. WEIR_ERR_UNSUPPORTED without libhwloc, WEIR_ERR_SYSTEM for a
 * file that cannot be read. */
weir_status weiri_ib_topology_read(const char *xml, weiri_ib_topology **out);
void weiri_ib_topology_close(weiri_ib_topology *topology);

/* Between a device of this PCI address and an RDMA device of this name; WEIRI_IB_ELSEWHERE when `topology` is NULL. */
uint32_t weiri_ib_topology_distance(const weiri_ib_topology *topology, const char *pci, const char *nic);

#endif
