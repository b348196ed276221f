/* device.h - which NICs, which of their ports and which of their GIDs: read from sysfs, so that nothing is opened
 * and recorded trees can be asked as well as this machine's. Knows no verbs. */
#ifndef WEIRI_IB_DEVICE_H
#define WEIRI_IB_DEVICE_H

#include "src/transport/ib/topology.h"

#define WEIRI_IB_NAME 64
#define WEIRI_IB_SYSFS "/sys"

typedef struct weiri_ib_port {
    char device[WEIRI_IB_NAME]; /* "mlx5_0" */
    uint32_t port;              /* from 1 */
    bool ethernet;              /* RoCE; otherwise InfiniBand */
    uint32_t distance;          /* from the device that was asked for; 0 when that is nowhere in particular */
    uint32_t rate;              /* in Gb/s */
    bool unlisted;              /* sysfs does not have it: the library tells of it */
} weiri_ib_port;

/* What is asked for. */
typedef struct weiri_ib_search {
    const char *sysfs;                 /* WEIRI_IB_SYSFS, or a tree like it */
    const weiri_ib_topology *topology; /* NULL: all are equally far */
    const char *wanted;                /* NULL or "" for any, or a comma-separated list of "name" or "name:port" */
    const char *pci;                   /* address of the device that is to be near; "" for none */
    uint32_t spread;                   /* picks one of those that are alike */
    const weiri_ib_port *unlisted;     /* ports that are there though sysfs does not have them */
    uint32_t unlisted_count;
} weiri_ib_search;

/* What is near comes first (ib/topology.h), then InfiniBand before Ethernet, then the faster port. Ports that are not
 * active are not taken. `out` gets the first *count of them, as far as there are so many of the kind of the first, at
 * least one. WEIR_ERR_UNSUPPORTED, with the reason, when there is none; WEIR_ERR_ENV for a malformed list. */
weir_status weiri_ib_choose(const weiri_ib_search *search, weiri_ib_port *out, uint32_t *count);

/* A port's distance in words. */
const char *weiri_ib_distance_text(uint32_t distance);

typedef struct weiri_ib_gid {
    uint8_t bytes[16];
    uint32_t index;
    bool roce_v2;
} weiri_ib_gid;

/* The address in the GID of a RoCE port: IPv4 or IPv6. */
bool weiri_ib_gid_is_ipv4(const uint8_t gid[16]);

/* The GID with `*index`, or when that is NULL the one that reaches farthest: RoCE v2 before v1, an IPv4 address before
 * a global IPv6 address before a link-local one; of an InfiniBand port the first. WEIR_ERR_UNSUPPORTED when there is
 * none. */
weir_status weiri_ib_find_gid(const char *sysfs, const weiri_ib_port *port, const uint32_t *index, weiri_ib_gid *out);

#endif
