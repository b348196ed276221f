/* script_kernels.c - see script_kernels.h. */
#include "script_kernels.h"

WEIR_FN weir_status script_make(const script_args *args, const script_step *step, uint64_t at, weir_coop coop,
                                uint64_t *ticket)
{
    const weir_dev_port_channel *channel = &args->channel;
    const uint64_t dst = step->remote_offset + at;
    const uint64_t src = step->local_offset + at;
    switch (step->call) {
    case SCRIPT_PUT:
        return weir_dev_port_channel_put(channel, dst, src, step->bytes, coop, ticket);
    case SCRIPT_GET:
        return weir_dev_port_channel_get(channel, dst, src, step->bytes, coop, ticket);
    case SCRIPT_PUT_SIGNAL:
        return weir_dev_port_channel_put_signal(channel, dst, src, step->bytes, coop, ticket);
    case SCRIPT_PUT_SIGNAL_FLUSH:
        return weir_dev_port_channel_put_signal_flush(channel, dst, src, step->bytes, coop, ticket);
    case SCRIPT_SIGNAL:
        return weir_dev_port_channel_signal(channel, ticket);
    case SCRIPT_VALUE:
        return weir_dev_port_channel_value(channel, dst, 0, (uint32_t)step->bytes, ticket);
    case SCRIPT_FLUSH:
        return weir_dev_port_channel_flush(channel, NULL);
    case SCRIPT_WAIT:
        return weir_dev_port_channel_wait(channel);
    case SCRIPT_POLL:
        return weir_dev_port_channel_poll(channel);
    case SCRIPT_STATUS:
        return weir_dev_port_channel_status(channel);
    case SCRIPT_TEST_TICKET:
        return weir_dev_port_channel_test_ticket(channel, args->report->ticket[step->of]);
    default:
        return weir_dev_port_channel_wait_ticket(channel, args->report->ticket[step->of]);
    }
}

WEIR_KERNEL(script, script_args)
{
    if (coop.rank != 0) {
        return;
    }
    for (uint32_t i = 0; i < args->count; i++) {
        const script_step *step = &args->steps[i];
        const uint64_t count = step->count != 0 ? step->count : 1;
        weir_status status = WEIR_OK;
        for (uint64_t k = 0; k < count && status == WEIR_OK; k++) {
            status = script_make(args, step, k * step->bytes, weir_coop_thread(coop), &args->report->ticket[i]);
        }
        args->report->status[i] = (int32_t)status;
    }
}

const weir_kernel *script_kernel(void) { return &script; }
