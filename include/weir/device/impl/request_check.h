/* weir/device/impl/request_check.h - whether a request to a port channel can be carried out: by the proxy, and by
 * kernels that post.
 *
 * Threads:   any. Nothing here blocks or changes memory. */
#ifndef WEIR_DEVICE_IMPL_REQUEST_CHECK_H
#define WEIR_DEVICE_IMPL_REQUEST_CHECK_H

#include "weir/device/request.h"

/* Whether a port channel has requests of this type. */
WEIR_FN int weir_request_is_type(uint32_t type)
{
    return type != 0 && type < WEIR_REQUEST_TYPES && (type & WEIR_REQUEST_VERB) < WEIR_REQUEST_VERBS_END;
}

/* Whether the memory is of that kind (WEIR_PORT_MEMORY_...) and has `bytes` at `offset`. */
WEIR_FN int weir_request_fits(const weir_dev_port_memory *memory, uint32_t kind, uint64_t offset, uint64_t bytes)
{
    return (memory->kinds & kind) != 0 && bytes <= memory->bytes && offset <= memory->bytes - bytes;
}

/* Whether a value may have this many bytes at this offset. */
WEIR_FN int weir_request_is_word(uint64_t offset, uint64_t bytes) { return bytes - 1 < 8 && (offset & 7) + bytes <= 8; }

WEIR_FN weir_status weir_request_check_MOVE(const weir_request *request, const weir_dev_port_memory *remote,
                                            const weir_dev_port_memory *local)
{
    return weir_request_fits(remote, WEIR_PORT_MEMORY_REMOTE, request->remote_offset, request->bytes) &&
                   weir_request_fits(local, WEIR_PORT_MEMORY_LOCAL, request->local_offset, request->bytes)
               ? WEIR_OK
               : WEIR_ERR_RANGE;
}

WEIR_FN weir_status weir_request_check_VALUE(const weir_request *request, const weir_dev_port_memory *remote,
                                             const weir_dev_port_memory *local)
{
    (void)local;
    return weir_request_is_word(request->remote_offset, request->bytes) &&
                   weir_request_fits(remote, WEIR_PORT_MEMORY_REMOTE, request->remote_offset, request->bytes)
               ? WEIR_OK
               : WEIR_ERR_RANGE;
}

WEIR_FN weir_status weir_request_check_ADD(const weir_request *request, const weir_dev_port_memory *remote,
                                           const weir_dev_port_memory *local)
{
    (void)local;
    if ((request->remote_offset & 7) != 0 ||
        !weir_request_fits(remote, WEIR_PORT_MEMORY_REMOTE, request->remote_offset, sizeof(uint64_t))) {
        return WEIR_ERR_RANGE;
    }
    return (remote->kinds & WEIR_PORT_MEMORY_ADDS) != 0 ? WEIR_OK : WEIR_ERR_UNSUPPORTED;
}

/* WEIR_OK, or the status with which the request fails its channel: WEIR_ERR_INVALID for an unknown type,
 * WEIR_ERR_RANGE, or WEIR_ERR_UNSUPPORTED for an add to memory that does not support adds. The caller passes the
 * memories that the request names; a missing one has `kinds` 0. */
WEIR_FN weir_status weir_request_check(const weir_request *request, const weir_dev_port_memory *remote,
                                       const weir_dev_port_memory *local)
{
    if (!weir_request_is_type(request->type)) {
        return WEIR_ERR_INVALID;
    }
    switch (request->type & WEIR_REQUEST_VERB) {
#define WEIR_REQUEST_ROW(name, text, check) \
    case WEIR_REQUEST_##name:               \
        return weir_request_check_##check(request, remote, local);
        WEIR_REQUEST_VERBS(WEIR_REQUEST_ROW)
#undef WEIR_REQUEST_ROW
    default:
        return WEIR_OK;
    }
}

#endif
