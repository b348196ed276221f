/* port_channel_stream.c - the calls of a port channel on a stream. Each launches one of weir's kernels with one thread,
 * which makes the call of weir/device/port_channel.h. */
#include "src/device/kernels/port_channel.h"
#include "src/host/channel/port_channel.h"

/* One thread copies at most this many bytes itself. For more, a copy engine is faster. */
#define ALONE_BYTES 512u

static weir_status enqueue(weir_port_channel *channel, const char *call, const weir_request *request, void *stream)
{
    const weir_shape one = { 1, 1 };
    weiri_port_call_args args;
    weir_status status = weiri_port_channel_handle(channel, call, &args.channel);
    if (status != WEIR_OK) {
        return status;
    }
    args.request = *request;
    args.channel.direct_always = 0;
    if (args.channel.direct_bytes > ALONE_BYTES) {
        args.channel.direct_bytes = ALONE_BYTES;
    }
    return weir_launch(weiri_port_channel_comm(channel)->device, weiri_port_channel_kernels[WEIRI_PORT_CALL], one,
                       &args, NULL, stream);
}

/* A call that moves `bytes` between remote and local. */
static weir_status transfer(weir_port_channel *channel, const char *call, uint16_t type, uint64_t remote_offset,
                            uint64_t local_offset, uint64_t bytes, void *stream)
{
    const weir_request request = {
        .remote_offset = remote_offset, .local_offset = local_offset, .bytes = bytes, .type = type
    };
    return enqueue(channel, call, &request, stream);
}

weir_status weir_port_channel_put_on_stream(weir_port_channel *channel, uint64_t remote_offset, uint64_t local_offset,
                                            uint64_t bytes, void *stream)
{
    return transfer(channel, __func__, WEIR_REQUEST_PUT, remote_offset, local_offset, bytes, stream);
}

weir_status weir_port_channel_get_on_stream(weir_port_channel *channel, uint64_t remote_offset, uint64_t local_offset,
                                            uint64_t bytes, void *stream)
{
    return transfer(channel, __func__, WEIR_REQUEST_GET, remote_offset, local_offset, bytes, stream);
}

weir_status weir_port_channel_signal_on_stream(weir_port_channel *channel, void *stream)
{
    return transfer(channel, __func__, WEIR_REQUEST_SIGNAL, 0, 0, 0, stream);
}

weir_status weir_port_channel_put_signal_on_stream(weir_port_channel *channel, uint64_t remote_offset,
                                                   uint64_t local_offset, uint64_t bytes, void *stream)
{
    return transfer(channel, __func__, WEIR_REQUEST_PUT_SIGNAL, remote_offset, local_offset, bytes, stream);
}

weir_status weir_port_channel_put_signal_flush_on_stream(weir_port_channel *channel, uint64_t remote_offset,
                                                         uint64_t local_offset, uint64_t bytes, void *stream)
{
    return transfer(channel, __func__, WEIR_REQUEST_PUT_SIGNAL_FLUSH, remote_offset, local_offset, bytes, stream);
}

weir_status weir_port_channel_value_on_stream(weir_port_channel *channel, uint64_t remote_offset, uint64_t value,
                                              uint32_t bytes, void *stream)
{
    const weir_request request = {
        .remote_offset = remote_offset, .bytes = bytes, .value = value, .type = WEIR_REQUEST_VALUE
    };
    return enqueue(channel, __func__, &request, stream);
}

weir_status weir_port_channel_add_on_stream(weir_port_channel *channel, uint64_t remote_offset, uint64_t value,
                                            void *stream)
{
    const weir_request request = { .remote_offset = remote_offset, .value = value, .type = WEIR_REQUEST_ADD };
    return enqueue(channel, __func__, &request, stream);
}

weir_status weir_port_channel_flush_on_stream(weir_port_channel *channel, void *stream)
{
    return transfer(channel, __func__, WEIR_REQUEST_FLUSH, 0, 0, 0, stream);
}

weir_status weir_port_channel_wait_on_stream(weir_port_channel *channel, void *stream)
{
    return transfer(channel, __func__, WEIRI_PORT_CALL_WAIT, 0, 0, 0, stream);
}
