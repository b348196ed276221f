/* ib_device.h - which NIC, which of its ports and which of its GIDs: read from sysfs, so that nothing is opened and
 * recorded trees can be asked as well as this machine's. Knows no verbs. */
#ifndef WEIRI_IB_DEVICE_H
#define WEIRI_IB_DEVICE_H

#include "weir/base.h"

#define WEIRI_IB_NAME 64
#define WEIRI_IB_SYSFS "/sys"

typedef struct weiri_ib_port {
    char device[WEIRI_IB_NAME]; /* "mlx5_0" */
    uint32_t port;              /* from 1 */
    bool ethernet;              /* RoCE; otherwise InfiniBand */
    uint32_t distance;          /* to the device that was asked for; 0 when that is nowhere in particular */
    uint32_t rate;              /* in Gb/s */
} weiri_ib_port;

/* What is near comes first: less steps from bridge to bridge of PCI Express, then the same NUMA node, then the rest.
 * Then InfiniBand before Ethernet, then the faster port; `spread` picks one of those that are alike in all of this.
 * Ports that are not active are not taken.
 *
 * `pci`: address of the device that is to be near, "" for none. `wanted`: NULL or "" for any, or a comma-separated
 * list of "name" or "name:port". WEIR_ERR_UNSUPPORTED, with the reason, when there is none; WEIR_ERR_ENV for a
 * malformed list. */
weir_status weiri_ib_choose(const char *sysfs, const char *wanted, const char *pci, uint32_t spread,
                            weiri_ib_port *out);

typedef struct weiri_ib_gid {
    uint8_t bytes[16];
    uint32_t index;
    bool roce_v2;
} weiri_ib_gid;

/* The address in the GID of a RoCE port: IPv4 or IPv6. */
bool weiri_ib_gid_is_ipv4(const uint8_t gid[16]);
bool weiri_ib_gid_is_link_local(const uint8_t gid[16]);

/* The GID with `*index`, or when that is NULL the one that reaches farthest: RoCE v2 before v1, an IPv4 address before
 * a global IPv6 address before a link-local one; of an InfiniBand port the first. WEIR_ERR_UNSUPPORTED when there is
 * none. */
weir_status weiri_ib_find_gid(const char *sysfs, const weiri_ib_port *port, const uint32_t *index, weiri_ib_gid *out);

#endif
