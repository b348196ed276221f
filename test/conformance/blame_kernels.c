/* blame_kernels.c - see blame_kernels.h. */
#include "blame_kernels.h"

WEIR_FN weir_status blame_queue(const blame_args *args, weir_coop alone)
{
    const weir_dev_port_channel *port = &args->port;
    const uint64_t *n = args->numbers;
    switch (args->call) {
    case BLAME_FIFO_WAIT:
        return weir_dev_fifo_wait(&port->queue.fifo, n[0]);
    case BLAME_CHANNEL_WAIT:
        return weir_dev_proxy_channel_wait(&port->queue, n[0]);
    case BLAME_PORT_WAIT:
        return weir_dev_port_channel_wait(port);
    case BLAME_PUT_PACKETS:
        return weir_dev_port_channel_put_packets(port, n[0], n[1], n[2], alone, NULL);
    case BLAME_UNPACK_PACKETS:
        return weir_dev_port_channel_unpack_packets(port, n[0], n[1], n[2], alone);
    case BLAME_PUT_LINES:
        return weir_dev_memory_channel_put_lines(&args->memory, n[0], n[1], n[2], alone);
    default:
        return weir_dev_rdma_wait(&args->nic, n[0]);
    }
}

/* Pushes or posts until a call fails. */
WEIR_FN weir_status blame_fill(const blame_args *args)
{
    const weir_dev_rdma_memory none = { 0, 0, 0 };
    weir_status status = WEIR_OK;
    weir_request request;
    uint64_t ticket;
    request.type = WEIR_REQUEST_USER;
    request.reserved = 0;
    request.channel = request.remote = request.local = 0;
    request.remote_offset = request.local_offset = request.bytes = request.value = 0;
    while (status == WEIR_OK) {
        status = args->call == BLAME_FIFO_PUSH ? weir_dev_fifo_push(&args->port.queue.fifo, &request, &ticket)
                 : args->call == BLAME_CHANNEL_PUSH
                     ? weir_dev_proxy_channel_push(&args->port.queue, &request, &ticket)
                     : weir_dev_rdma_put(&args->nic, none, none, 8, WEIR_RDMA_RING, &ticket);
    }
    return status;
}

WEIR_FN weir_status blame_window(const blame_args *args, weir_coop alone)
{
    const uint64_t *n = args->numbers;
    if (args->call == BLAME_WINDOW_AT) {
        (void)weir_dev_window_at(&args->window, (uint32_t)n[0]);
        return weir_dev_control_status(args->window.barrier.control);
    }
    const weir_dev_window_rank self = weir_dev_window_at(&args->window, 0);
    weir_status status = WEIR_OK;
    switch (args->call) {
    case BLAME_WINDOW_PUT:
        return weir_dev_window_put(&self, (uint32_t)n[0], 1, n[1], 0, n[2], n[3], alone);
    case BLAME_WINDOW_GET:
        return weir_dev_window_get(&self, (uint32_t)n[0], 1, n[1], 0, n[2], n[3], alone);
    case BLAME_WINDOW_OVERLAP:
        return weir_dev_window_put(&self, (uint32_t)n[0], 0, n[1], 0, n[2], n[3], alone);
    case BLAME_WINDOW_MEMORY:
        return weir_dev_window_put(&self, (uint32_t)n[0], (uint32_t)n[1], 0, 0, 0, 8, alone);
    case BLAME_WINDOW_NOTIFY:
        while (status == WEIR_OK) {
            status = weir_dev_window_notify(&self, (uint32_t)n[0], (uint32_t)n[1], alone);
        }
        return status;
    case BLAME_WINDOW_WAIT:
        return weir_dev_window_wait(&self, (uint32_t)n[0], (uint32_t)n[1], 1, alone);
    default:
        return weir_dev_window_meet_devices(&args->window, 1, alone);
    }
}

WEIR_FN weir_status blame_other(const blame_args *args)
{
    weir_dev_rdma_notice notice;
    switch (args->call) {
    case BLAME_SIGNAL:
        weir_dev_semaphore_signal(&args->semaphore);
        return weir_dev_semaphore_status(&args->semaphore);
    case BLAME_WAIT:
        return weir_dev_semaphore_wait(&args->semaphore);
    case BLAME_AT:
        (void)weir_dev_semaphore_at(&args->semaphore, (uint32_t)args->numbers[0]);
        return weir_dev_semaphore_status(&args->semaphore);
    case BLAME_BARRIER:
        return weir_grid_barrier_round(&args->barrier, 0, 2);
    case BLAME_NIC_NOTICE:
        return weir_dev_rdma_wait_notice(&args->inbox, &notice);
    case BLAME_COLLECTIVE:
        return weir_collective_consume(&args->collective, &args->semaphore, 1);
    case BLAME_ABANDONED:
        return weir_collective_gone(&args->collective, WEIR_DOING_ABANDONED);
    case BLAME_DEREGISTERED:
        return weir_collective_gone(&args->collective, WEIR_DOING_DEREGISTERED);
    case BLAME_HALO_PUT:
        return weir_halo_await(&args->halo, &args->share, WEIR_DOING_HALO_PUT, args->semaphore.inbound, 0);
    case BLAME_HALO_WAIT:
        return weir_halo_await(&args->halo, &args->share, WEIR_DOING_HALO_WAIT, args->semaphore.inbound, 0);
    default:
        return weir_dev_control_fail(args->semaphore.control, WEIR_ERR_CORRUPT);
    }
}

WEIR_KERNEL(blame, blame_args)
{
    const weir_coop alone = weir_coop_thread(coop);
    switch (args->call) {
    case BLAME_FIFO_PUSH:
    case BLAME_CHANNEL_PUSH:
    case BLAME_NIC_POST:
        *args->status = (int32_t)blame_fill(args);
        break;
    case BLAME_FIFO_WAIT:
    case BLAME_CHANNEL_WAIT:
    case BLAME_PORT_WAIT:
    case BLAME_PUT_PACKETS:
    case BLAME_UNPACK_PACKETS:
    case BLAME_PUT_LINES:
    case BLAME_NIC_WAIT:
        *args->status = (int32_t)blame_queue(args, alone);
        break;
    default:
        *args->status =
            (int32_t)(args->call >= BLAME_WINDOW_AT && args->call <= BLAME_WINDOW_BARRIER ? blame_window(args, alone)
                                                                                          : blame_other(args));
    }
}

const weir_kernel *blame_kernel(void) { return &blame; }

static void blame_without_name(const void *args, weir_coop coop) { blame_body((const blame_args *)args, coop); }

const weir_kernel *blame_nameless_kernel(void)
{
    static weir_kernel nameless;
    nameless = blame;
    nameless.cpu = blame_without_name;
    return &nameless;
}
