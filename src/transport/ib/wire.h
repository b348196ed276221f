/* wire.h - the bytes sent to peers: the key of a region, the address of a queue. Knows no verbs. */
#ifndef WEIRI_IB_WIRE_H
#define WEIRI_IB_WIRE_H

#include "src/transport/transport.h"

#define WEIRI_IB_NICS_MAX 4  /* of a domain */
#define WEIRI_IB_PAIRS_MAX 8 /* of a queue */

typedef struct weiri_ib_key {
    uint64_t address;
    uint32_t rkeys[WEIRI_IB_NICS_MAX]; /* one for each NIC of the domain */
    uint8_t nics;
    bool flush;  /* device memory: writes are visible only after a read of it */
    bool atomic; /* supports adds */
} weiri_ib_key;

/* The address of one queue pair. */
typedef struct weiri_ib_address {
    bool ethernet;
    uint8_t mtu;   /* as enum ibv_mtu, 1 to 5 */
    uint8_t reads; /* that this end answers concurrently */
    uint8_t port;
    uint8_t nic; /* index in the domain */
    uint16_t lid;
    uint32_t qpn;
    uint32_t psn;
    uint8_t gid[16];
} weiri_ib_address;

void weiri_ib_key_write(const weiri_ib_key *key, uint64_t size, weiri_key *out);
/* WEIR_ERR_CORRUPT for bytes that weiri_ib_key_write would not write. */
weir_status weiri_ib_key_read(const weiri_key *key, weiri_ib_key *out);

/* The address of a queue. */
typedef struct weiri_ib_queue_address {
    weiri_ib_address pairs[WEIRI_IB_PAIRS_MAX];
    uint32_t count;          /* queue pairs, at least 1 */
    weiri_ib_address engine; /* the queue pair of the device engine; qpn 0: none exists */
} weiri_ib_queue_address;

/* Returns the number of bytes written, at most WEIRI_ADDRESS_MAX. */
uint32_t weiri_ib_address_write(const weiri_ib_queue_address *address, uint8_t bytes[WEIRI_ADDRESS_MAX]);
/* WEIR_ERR_CORRUPT for bytes that weiri_ib_address_write would not write. */
weir_status weiri_ib_address_read(const uint8_t *bytes, size_t size, weiri_ib_queue_address *out);

#endif
