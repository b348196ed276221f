/* port_channel.c - see port_channel.h. Errors are those of any kernel: the communicator's sticky error, or the
 * channel's error. */
#include "src/device/kernels/port_channel.h"

/* Later work on the stream relies on the peer's data: a failed channel fails the communicator here. */
WEIR_FN void weiri_port_wait(const weir_dev_port_channel *channel)
{
    weir_dev_control *control = channel->semaphore.control;
    const weir_status status = weir_dev_port_channel_wait(channel);
    if (status != WEIR_OK && weir_dev_control_ended(control) == WEIR_OK) {
        (void)weir_dev_control_fail(control, status);
    }
}

/* Carries out any request between remote and local, with the caller's own stores if a kernel's call would use them. */
WEIR_FN weir_status weiri_port_ask(const weir_dev_port_channel *channel, const weir_request *request, weir_coop coop,
                                   uint64_t *ticket)
{
    const uint32_t verb = request->type & WEIR_REQUEST_VERB;
    if (verb == WEIR_REQUEST_PUT || verb == WEIR_REQUEST_GET) {
        return weir_dev_port_channel_move(channel, request->type, request->remote_offset, request->local_offset,
                                          request->bytes, coop, ticket);
    }
    if (request->type == WEIR_REQUEST_ADD) {
        return weir_dev_port_channel_add(channel, request->remote_offset, request->value, ticket);
    }
    if (request->type == WEIR_REQUEST_SIGNAL) {
        return weir_dev_port_channel_signal(channel, ticket);
    }
    if (request->type == WEIR_REQUEST_FLUSH) {
        return weir_dev_port_channel_flush(channel, ticket);
    }
    return weir_dev_port_channel_ask(channel, request->type, request->remote_offset, request->local_offset,
                                     request->bytes, request->value, ticket);
}

WEIR_KERNEL(weiri_port_call, weiri_port_call_args)
{
    const weir_dev_port_channel *channel = &args->channel;
    const int flushes = (args->request.type & WEIR_REQUEST_FLUSH) != 0;
    uint64_t ticket = WEIR_TICKET_DONE;
    if (args->request.type == WEIRI_PORT_CALL_WAIT) {
        weiri_port_wait(channel);
        return;
    }
    const weir_status status =
        weiri_port_ask(channel, &args->request, weir_coop_thread(coop), flushes ? &ticket : NULL);
    if (status == WEIR_OK && flushes) {
        (void)weir_dev_port_channel_wait_ticket(channel, ticket);
    }
}

const weir_kernel *const weiri_port_channel_kernels[] = { &weiri_port_call, NULL };
