/* weir/transport.h - which transports this library has, and whether they work here.
 *
 * Threads:   any.
 * Blocking:  never.
 * Ownership: the caller's struct is filled.
 * Errors:    WEIR_ERR_RANGE past the last transport. */
#ifndef WEIR_TRANSPORT_H
#define WEIR_TRANSPORT_H

#include "weir/base.h"

WEIR_BEGIN_DECLS

typedef struct weir_transport_info {
    char name[16];
    bool works;
    char reason[256]; /* what it uses here, or why it does not work */
    bool memory_channels; /* what it carries: it maps the peer's memory, */
    bool port_channels;   /* it carries out transfers, */
    bool adds;            /* among them weir_port_channel_add, where NIC and memory allow it */
} weir_transport_info;

WEIR_API WEIR_NODISCARD weir_status weir_transport_get(uint32_t index, weir_transport_info *info);

WEIR_END_DECLS

#endif
