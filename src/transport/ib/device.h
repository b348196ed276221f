/* device.h - chooses NICs, their ports and their GIDs. It reads sysfs, or a recorded tree, and opens no device. Knows
 * no verbs. */
#ifndef WEIRI_IB_DEVICE_H
#define WEIRI_IB_DEVICE_H

#include "src/transport/ib/topology.h"

#define WEIRI_IB_NAME 64
#define WEIRI_IB_SYSFS "/sys"

typedef struct weiri_ib_port {
    char device[WEIRI_IB_NAME]; /* "mlx5_0" */
    uint32_t port;              /* from 1 */
    bool ethernet;              /* RoCE; otherwise InfiniBand */
    uint32_t distance;          /* from weiri_ib_search.pci; 0 without one */
    uint32_t rate;              /* in Gb/s */
    bool unlisted;              /* reported by the library, absent from sysfs */
} weiri_ib_port;

/* Parameters of weiri_ib_choose. */
typedef struct weiri_ib_search {
    const char *sysfs;                 /* WEIRI_IB_SYSFS, or a tree like it */
    const weiri_ib_topology *topology; /* NULL: all are equally near */
    const char *wanted;                /* comma-separated list of "name" or "name:port"; NULL or "": any */
    const char *pci;                   /* address of the device to be near to; "": none */
    uint32_t spread;                   /* selects among equal ports */
    const weiri_ib_port *unlisted;     /* ports that are absent from sysfs */
    uint32_t unlisted_count;
} weiri_ib_search;

/* Sorts active ports: the nearest first (ib/topology.h), then InfiniBand before Ethernet, then the faster port. `out`
 * gets at most *count of them, all of the kind of the first; *count gets their number. WEIR_ERR_UNSUPPORTED, with the
 * reason, if no port fits; WEIR_ERR_ENV for a malformed list. */
weir_status weiri_ib_choose(const weiri_ib_search *search, weiri_ib_port *out, uint32_t *count);

/* A port's distance in words. */
const char *weiri_ib_distance_text(uint32_t distance);

typedef struct weiri_ib_gid {
    uint8_t bytes[16];
    uint32_t index;
    bool roce_v2;
} weiri_ib_gid;

/* Whether the GID of a RoCE port holds an IPv4 address; otherwise it holds an IPv6 address. */
bool weiri_ib_gid_is_ipv4(const uint8_t gid[16]);

/* Finds the GID with `*index`. If `index` is NULL, finds the GID that reaches farthest: RoCE v2 before v1, an IPv4
 * address before a global IPv6 address before a link-local one; on an InfiniBand port the first. WEIR_ERR_UNSUPPORTED
 * if there is no such GID. */
weir_status weiri_ib_find_gid(const char *sysfs, const weiri_ib_port *port, const uint32_t *index, weiri_ib_gid *out);

#endif
