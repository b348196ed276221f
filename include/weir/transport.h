/* weir/transport.h - which transports this library has, what they carry, and whether they work here.
 *
 * Threads:   any.
 * Blocking:  while libraries are loaded, at the first call.
 * Ownership: the caller's struct is filled.
 * Errors:    WEIR_ERR_RANGE past the last transport; of find: WEIR_ERR_UNSUPPORTED, with each transport's reason, when
 *            none joins the two, WEIR_ERR_ENV, WEIR_ERR_INVALID, WEIR_ERR_FORKED. */
#ifndef WEIR_TRANSPORT_H
#define WEIR_TRANSPORT_H

#include "weir/device.h"

WEIR_BEGIN_DECLS

typedef struct weir_transport_info {
    char name[16];
    bool works;
    char reason[256];     /* what it uses here, or why it does not work */
    bool memory_channels; /* what it carries: it maps the peer's memory, */
    bool port_channels;   /* it carries out transfers, */
    bool adds;            /* among them weir_port_channel_add, where NIC and memory allow it */
} weir_transport_info;

WEIR_API WEIR_NODISCARD weir_status weir_transport_get(uint32_t index, weir_transport_info *info);

/* Finds the transport between a rank on `device` and one on `peer`. `peer` is another device of this host, the same
 * device, or NULL for a device of another host. The result is what this end knows: the other end must have the
 * transport too. */
WEIR_API WEIR_NODISCARD weir_status weir_transport_find(weir_device *device, const weir_device *peer,
                                                        weir_transport_info *info);

WEIR_END_DECLS

#endif
