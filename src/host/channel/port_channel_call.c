/* port_channel_call.c - the calls of host threads on a port channel. Each makes one request, and posts or tries it. */
#include "src/host/base/clock.h"
#include "src/host/channel/port_channel.h"

/* A request between remote and local. */
static weir_request between(uint32_t type, uint64_t remote_offset, uint64_t local_offset, uint64_t bytes,
                            uint64_t value)
{
    return (weir_request){
        .remote_offset = remote_offset,
        .local_offset = local_offset,
        .bytes = bytes,
        .value = value,
        .remote = WEIR_PORT_REMOTE,
        .local = WEIR_PORT_LOCAL,
        .type = (uint16_t)type,
    };
}

static weir_status ask(weir_port_channel *channel, const char *call, uint32_t type, uint64_t remote_offset,
                       uint64_t local_offset, uint64_t bytes, uint64_t value, uint64_t *ticket)
{
    const weir_request request = between(type, remote_offset, local_offset, bytes, value);
    return weiri_port_channel_post(channel, call, &request, 0, ticket);
}

static weir_status try_to_ask(weir_port_channel *channel, const char *call, uint32_t type, uint64_t remote_offset,
                              uint64_t local_offset, uint64_t bytes, uint64_t value, uint64_t *ticket)
{
    const weir_request request = between(type, remote_offset, local_offset, bytes, value);
    return weiri_port_channel_try_post(channel, call, &request, ticket);
}

weir_status weir_port_channel_put(weir_port_channel *channel, uint64_t remote_offset, uint64_t local_offset,
                                  uint64_t bytes, uint64_t *ticket)
{
    return ask(channel, __func__, WEIR_REQUEST_PUT, remote_offset, local_offset, bytes, 0, ticket);
}

weir_status weir_port_channel_get(weir_port_channel *channel, uint64_t remote_offset, uint64_t local_offset,
                                  uint64_t bytes, uint64_t *ticket)
{
    return ask(channel, __func__, WEIR_REQUEST_GET, remote_offset, local_offset, bytes, 0, ticket);
}

weir_status weir_port_channel_signal(weir_port_channel *channel, uint64_t *ticket)
{
    return ask(channel, __func__, WEIR_REQUEST_SIGNAL, 0, 0, 0, 0, ticket);
}

weir_status weir_port_channel_put_signal(weir_port_channel *channel, uint64_t remote_offset, uint64_t local_offset,
                                         uint64_t bytes, uint64_t *ticket)
{
    return ask(channel, __func__, WEIR_REQUEST_PUT_SIGNAL, remote_offset, local_offset, bytes, 0, ticket);
}

/* Makes the request and waits for it, with one deadline for both. */
static weir_status ask_and_wait(weir_port_channel *channel, const char *call, uint32_t type, uint64_t remote_offset,
                                uint64_t local_offset, uint64_t bytes)
{
    uint64_t ticket;
    const uint64_t deadline = weiri_deadline(channel != NULL ? weiri_port_channel_comm(channel)->timeout_ms : 0);
    weir_status status = ask(channel, call, type, remote_offset, local_offset, bytes, 0, &ticket);
    if (status != WEIR_OK) {
        return status;
    }
    const uint32_t left = weiri_left_ms(deadline);
    return weiri_port_channel_wait(channel, call, ticket, left != 0 ? left : 1);
}

weir_status weir_port_channel_put_signal_flush(weir_port_channel *channel, uint64_t remote_offset,
                                               uint64_t local_offset, uint64_t bytes)
{
    return ask_and_wait(channel, __func__, WEIR_REQUEST_PUT_SIGNAL_FLUSH, remote_offset, local_offset, bytes);
}

weir_status weir_port_channel_value(weir_port_channel *channel, uint64_t remote_offset, uint64_t value, uint32_t bytes,
                                    uint64_t *ticket)
{
    return ask(channel, __func__, WEIR_REQUEST_VALUE, remote_offset, 0, bytes, value, ticket);
}

weir_status weir_port_channel_add(weir_port_channel *channel, uint64_t remote_offset, uint64_t value, uint64_t *ticket)
{
    return ask(channel, __func__, WEIR_REQUEST_ADD, remote_offset, 0, 8, value, ticket);
}

weir_status weir_port_channel_flush(weir_port_channel *channel)
{
    return ask_and_wait(channel, __func__, WEIR_REQUEST_FLUSH, 0, 0, 0);
}

weir_status weir_port_channel_try_put(weir_port_channel *channel, uint64_t remote_offset, uint64_t local_offset,
                                      uint64_t bytes, uint64_t *ticket)
{
    return try_to_ask(channel, __func__, WEIR_REQUEST_PUT, remote_offset, local_offset, bytes, 0, ticket);
}

weir_status weir_port_channel_try_get(weir_port_channel *channel, uint64_t remote_offset, uint64_t local_offset,
                                      uint64_t bytes, uint64_t *ticket)
{
    return try_to_ask(channel, __func__, WEIR_REQUEST_GET, remote_offset, local_offset, bytes, 0, ticket);
}

weir_status weir_port_channel_try_signal(weir_port_channel *channel, uint64_t *ticket)
{
    return try_to_ask(channel, __func__, WEIR_REQUEST_SIGNAL, 0, 0, 0, 0, ticket);
}

weir_status weir_port_channel_try_put_signal(weir_port_channel *channel, uint64_t remote_offset, uint64_t local_offset,
                                             uint64_t bytes, uint64_t *ticket)
{
    return try_to_ask(channel, __func__, WEIR_REQUEST_PUT_SIGNAL, remote_offset, local_offset, bytes, 0, ticket);
}

weir_status weir_port_channel_try_value(weir_port_channel *channel, uint64_t remote_offset, uint64_t value,
                                        uint32_t bytes, uint64_t *ticket)
{
    return try_to_ask(channel, __func__, WEIR_REQUEST_VALUE, remote_offset, 0, bytes, value, ticket);
}

weir_status weir_port_channel_try_add(weir_port_channel *channel, uint64_t remote_offset, uint64_t value,
                                      uint64_t *ticket)
{
    return try_to_ask(channel, __func__, WEIR_REQUEST_ADD, remote_offset, 0, 8, value, ticket);
}
