/* port_channel.c - see port_channel.h. What fails is told as in any kernel: by the communicator's sticky error, or by
 * the channel. */
#include "src/device/kernels/port_channel.h"

/* What follows on the stream relies on the peer's data: a channel that has failed fails the communicator here. */
WEIR_FN void weiri_port_wait(const weir_dev_port_channel *channel)
{
    weir_dev_control *control = channel->semaphore.control;
    const weir_status status = weir_dev_port_channel_wait(channel);
    if (status != WEIR_OK && weir_dev_control_status(control) == WEIR_OK) {
        (void)weir_dev_control_fail(control, status);
    }
}

WEIR_KERNEL(weiri_port_call, weiri_port_call_args)
{
    const weir_dev_port_channel *channel = &args->channel;
    const weir_request *what = &args->request;
    const uint64_t dst = what->remote_offset;
    const uint64_t src = what->local_offset;
    coop = weir_coop_thread(coop);
    switch (what->type) {
    case WEIR_REQUEST_PUT:
        (void)weir_dev_port_channel_put(channel, dst, src, what->bytes, coop, NULL);
        break;
    case WEIR_REQUEST_GET:
        (void)weir_dev_port_channel_get(channel, dst, src, what->bytes, coop, NULL);
        break;
    case WEIR_REQUEST_SIGNAL:
        (void)weir_dev_port_channel_signal(channel, NULL);
        break;
    case WEIR_REQUEST_PUT_SIGNAL:
        (void)weir_dev_port_channel_put_signal(channel, dst, src, what->bytes, coop, NULL);
        break;
    case WEIR_REQUEST_PUT_SIGNAL_FLUSH:
        (void)weir_dev_port_channel_put_signal_flush(channel, dst, src, what->bytes, coop, NULL);
        break;
    case WEIR_REQUEST_VALUE:
        (void)weir_dev_port_channel_value(channel, dst, what->value, (uint32_t)what->bytes, NULL);
        break;
    case WEIR_REQUEST_ADD:
        (void)weir_dev_port_channel_add(channel, dst, what->value, NULL);
        break;
    case WEIR_REQUEST_FLUSH:
        (void)weir_dev_port_channel_flush(channel, NULL);
        break;
    default:
        weiri_port_wait(channel);
    }
}

const weir_kernel *const weiri_port_channel_kernels[] = { &weiri_port_call, NULL };
