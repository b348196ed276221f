/* topology.h - distances of NICs from devices, as hwloc sees the machine. Knows no verbs. */
#ifndef WEIRI_IB_TOPOLOGY_H
#define WEIRI_IB_TOPOLOGY_H

#include "weir/base.h"

/* Distances: below one root complex the number of PCI Express bridges between the two, at most WEIRI_IB_FAR_BRIDGES;
 * otherwise a class for the places of the two root complexes. */
#define WEIRI_IB_FAR_BRIDGES 49u
#define WEIRI_IB_SAME_NODE 50u
#define WEIRI_IB_SAME_PACKAGE 60u
#define WEIRI_IB_ELSEWHERE 100u /* also if one place is unknown */

typedef struct weiri_ib_topology weiri_ib_topology;

/* Why this machine has no distances, for example because libhwloc is missing; NULL if it has. */
const char *weiri_ib_topology_missing(void);

/* This machine's topology, read at the first call and kept; NULL if it cannot be read. */
const weiri_ib_topology *weiri_ib_topology_here(void);

/* Reads a topology that was recorded as hwloc's XML. WEIR_ERR_UNSUPPORTED without libhwloc; WEIR_ERR_SYSTEM if the file
 * cannot be read. */
weir_status weiri_ib_topology_read(const char *xml, weiri_ib_topology **out);
void weiri_ib_topology_close(weiri_ib_topology *topology);

/* Distance between the device at a PCI address and the RDMA device of a name; WEIRI_IB_ELSEWHERE if `topology` is
 * NULL. */
uint32_t weiri_ib_topology_distance(const weiri_ib_topology *topology, const char *pci, const char *nic);

#endif
