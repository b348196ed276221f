/* topology_none.c - stands in for ib/topology.c in a build without hwloc.h. */
#include "src/host/base/error.h"
#include "src/transport/ib/topology.h"

static const char missing[] = "this libweir was built without hwloc.h (libhwloc-dev)";

const char *weiri_ib_topology_missing(void) { return missing; }

const weiri_ib_topology *weiri_ib_topology_here(void) { return NULL; }

weir_status weiri_ib_topology_read(const char *xml, weiri_ib_topology **out)
{
    (void)xml;
    (void)out;
    return weiri_fail(WEIR_ERR_UNSUPPORTED, "topology: %s", missing);
}

void weiri_ib_topology_close(weiri_ib_topology *topology) { (void)topology; }

uint32_t weiri_ib_topology_distance(const weiri_ib_topology *topology, const char *pci, const char *nic)
{
    (void)topology;
    (void)pci;
    (void)nic;
    return WEIRI_IB_ELSEWHERE;
}
