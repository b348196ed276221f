/* comm.c - setup for test bodies; see comm.h. */
#include "test/harness/comm.h"

#include <string.h>

#include "src/host/boot/boot.h"
#include "src/host/comm/comm.h"
#include "src/host/comm/endpoint.h"
#include "src/host/comm/exit.h"
#include "test/harness/rank_kernels.h"
#include "test/harness/staged.h"

static bool open_joined(weirt_rank *rank, const char *id, uint32_t index, uint32_t size, uint32_t timeout_ms,
                        uint32_t kernel_timeout_ms, weirt_comm *out)
{
    weir_bootstrap_opts boot_opts = { .size = sizeof boot_opts, .timeout_ms = weirt_timeout_ms() };
    weir_comm_opts comm_opts = { .size = sizeof comm_opts,
                                 .timeout_ms = timeout_ms,
                                 .kernel_timeout_ms = kernel_timeout_ms };
    if (!WEIRT_OK(rank, weir_device_open(rank->device, NULL, &out->device))) {
        return false;
    }
    if (rank->staged) {
        weirt_stage_memory(out->device, true);
    }
    return WEIRT_OK(rank, weir_bootstrap_create(id, index, size, &boot_opts, &out->boot)) &&
           WEIRT_OK(rank, weir_comm_create(out->boot, out->device, &comm_opts, &out->comm));
}

void weirt_device_memory(weir_device *device, uint64_t bytes) { device->info.memory_bytes = bytes; }

bool weirt_comm_open(weirt_rank *rank, uint32_t timeout_ms, weirt_comm *out)
{
    weir_unique_id id;
    memset(out, 0, sizeof *out);
    uint32_t timeout = timeout_ms != 0 ? timeout_ms : weirt_timeout_ms();
    return weirt_id(rank, &id) && open_joined(rank, id.text, rank->rank, rank->size, timeout, 0, out);
}

bool weirt_comm_open_kernels(weirt_rank *rank, uint32_t kernel_timeout_ms, weirt_comm *out)
{
    weir_unique_id id;
    memset(out, 0, sizeof *out);
    return weirt_id(rank, &id) &&
           open_joined(rank, id.text, rank->rank, rank->size, weirt_timeout_ms(), kernel_timeout_ms, out);
}

bool weirt_comm_open_alone(weirt_rank *rank, weirt_comm *out)
{
    weir_unique_id id;
    memset(out, 0, sizeof *out);
    return WEIRT_OK(rank, weir_unique_id_create(NULL, &id)) &&
           open_joined(rank, id.text, 0, 1, weirt_timeout_ms(), 0, out);
}

void weirt_comm_close(weirt_comm *comm)
{
    weir_comm_destroy(comm->comm);
    weir_bootstrap_destroy(comm->boot);
    weir_device_close(comm->device);
    memset(comm, 0, sizeof *comm);
}

void weirt_exit_run(void) { weiri_exit_run(); }

bool weirt_post(weirt_rank *rank, weir_comm *comm, uint32_t peer, const void *data, size_t bytes)
{
    return WEIRT_OK(rank, weiri_bootstrap_post(comm->bootstrap, peer, comm->port, data, bytes));
}

bool weirt_complete(weirt_rank *rank, weir_future *future)
{
    bool done = WEIRT_OK(rank, weir_future_wait(future, weirt_timeout_ms()));
    weir_future_destroy(future);
    return done;
}

bool weirt_receive(weirt_rank *rank, weir_comm *comm, uint32_t peer, uint64_t tag, weir_memory **out)
{
    weir_future *future = NULL;
    return WEIRT_OK(rank, weir_memory_recv_async(comm, peer, tag, out, &future)) && weirt_complete(rank, future);
}

bool weirt_connect(weirt_rank *rank, weir_comm *comm, uint32_t peer, uint64_t tag, weir_connection **out)
{
    weir_future *future = NULL;
    return WEIRT_OK(rank, weir_connection_create_async(comm, peer, tag, NULL, out, &future)) &&
           weirt_complete(rank, future);
}

bool weirt_semaphore(weirt_rank *rank, weir_connection *connection, uint64_t tag, weir_semaphore_end end,
                     weir_semaphore **out)
{
    return weirt_semaphore_set(rank, connection, tag, end, 1, out);
}

bool weirt_semaphore_set(weirt_rank *rank, weir_connection *connection, uint64_t tag, weir_semaphore_end end,
                         uint32_t count, weir_semaphore **out)
{
    weir_future *future = NULL;
    weir_semaphore_opts opts = { .size = sizeof opts, .end = end, .count = count };
    return WEIRT_OK(rank, weir_semaphore_create_async(connection, tag, &opts, out, &future)) &&
           weirt_complete(rank, future);
}

uint32_t weirt_connection_queues(const weir_connection *connection) { return weiri_endpoint_queues(connection); }

static weiri_transport_ops stalling;
static weiri_queue_ops stalling_queue;
static weir_status (*opens)(weiri_domain *domain, weiri_queue **out);
static bool stalled;

static weir_status stall(weiri_domain *domain, weiri_queue **out)
{
    __atomic_store_n(&stalled, true, __ATOMIC_RELEASE);
    weirt_sleep_ms(weirt_timeout_ms());
    __atomic_store_n(&stalled, false, __ATOMIC_RELEASE);
    return opens(domain, out);
}

void weirt_connection_stall(weir_connection *connection)
{
    stalling = *connection->transport;
    stalling_queue = *stalling.queue;
    opens = stalling_queue.queue_open;
    stalling_queue.queue_open = stall;
    stalling.queue = &stalling_queue;
    connection->transport = &stalling;
}

bool weirt_connection_stalled(void) { return __atomic_load_n(&stalled, __ATOMIC_ACQUIRE); }

static bool open_memories(weirt_rank *rank, weirt_pair *pair)
{
    weir_memory_opts host = { .size = sizeof host, .kind = WEIR_MEMORY_HOST };
    uint32_t peer = pair->peer;
    if (!WEIRT_OK(rank, weir_memory_allocate(pair->comm, 2 * pair->half, NULL, &pair->local)) ||
        !WEIRT_OK(rank, weir_memory_allocate(pair->comm, 4 * pair->half, NULL, &pair->packets)) ||
        !WEIRT_OK(rank, weir_memory_allocate(pair->comm, sizeof(weirt_report), &host, &pair->shared)) ||
        !WEIRT_OK(rank, weir_memory_send(pair->comm, pair->local, peer, pair->tag)) ||
        !WEIRT_OK(rank, weir_memory_send(pair->comm, pair->packets, peer, pair->tag)) ||
        !weirt_receive(rank, pair->comm, peer, pair->tag, &pair->remote) ||
        !weirt_receive(rank, pair->comm, peer, pair->tag, &pair->remote_packets)) {
        return false;
    }
    pair->report = (weirt_report *)weir_memory_host_pointer(pair->shared);
    pair->device_report = (weirt_report *)weir_memory_pointer(pair->shared);
    return WEIRT_EXPECT(rank, pair->report != NULL);
}

bool weirt_pair_open(weirt_rank *rank, weir_comm *comm, uint64_t half, uint64_t tag, weirt_pair *out)
{
    return weirt_pair_open_to(rank, comm, 1 - rank->rank, half, tag, out);
}

bool weirt_pair_open_to(weirt_rank *rank, weir_comm *comm, uint32_t peer, uint64_t half, uint64_t tag, weirt_pair *out)
{
    memset(out, 0, sizeof *out);
    out->comm = comm;
    out->peer = peer;
    out->half = half;
    out->tag = tag;
    weir_device *device = weir_comm_device(comm);
    const weir_kernel *kernels[] = { weirt_transfer_kernel(), weirt_wait_kernel(),   weirt_signal_kernel(),
                                     weirt_pingpong_kernel(), weirt_access_kernel(), weirt_set_kernel() };
    for (uint32_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        if (!WEIRT_OK(rank, weir_kernel_load(device, kernels[i]))) {
            return false;
        }
    }
    if (!WEIRT_OK(rank, weir_stream_create(device, &out->stream)) || !open_memories(rank, out) ||
        !weirt_connect(rank, comm, out->peer, tag, &out->connection) ||
        !weirt_semaphore_set(rank, out->connection, tag, WEIR_SEMAPHORE_DEVICE, WEIRT_SET, &out->semaphore) ||
        !WEIRT_OK(rank, weir_grid_barrier_create(comm, &out->barrier))) {
        return false;
    }
    weir_memory_channel_opts opts = { .size = sizeof opts, .packets = out->packets };
    return WEIRT_OK(rank, weir_memory_channel_create(out->semaphore, out->remote, out->local, NULL, &out->data)) &&
           WEIRT_OK(rank,
                    weir_memory_channel_create(out->semaphore, out->remote_packets, out->local, &opts, &out->packet));
}

void weirt_pair_close(weirt_rank *rank, weirt_pair *pair, bool together)
{
    if (pair->stream != NULL) {
        weir_stream_destroy(weir_comm_device(pair->comm), pair->stream);
    }
    weir_grid_barrier_destroy(pair->barrier);
    weir_memory_channel_destroy(pair->packet);
    weir_memory_channel_destroy(pair->data);
    weir_semaphore_destroy(pair->semaphore);
    weir_connection_destroy(pair->connection);
    weir_memory_destroy(pair->remote_packets);
    weir_memory_destroy(pair->remote);
    if (together) {
        (void)weirt_barrier(rank);
    }
    weir_memory_destroy(pair->shared);
    weir_memory_destroy(pair->packets);
    weir_memory_destroy(pair->local);
    memset(pair, 0, sizeof *pair);
}

bool weirt_channel_open(weirt_rank *rank, uint32_t timeout_ms, uint64_t half, weirt_channel *out)
{
    memset(out, 0, sizeof *out);
    return weirt_comm_open(rank, timeout_ms, &out->comm) && weirt_pair_open(rank, out->comm.comm, half, 1, &out->pair);
}

void weirt_channel_close(weirt_rank *rank, weirt_channel *channel)
{
    weirt_pair_close(rank, &channel->pair, true);
    weirt_comm_close(&channel->comm);
}

weir_shape weirt_shape(const weir_comm *comm)
{
    weir_device_info info;
    weir_device_get_info(weir_comm_device(comm), &info, sizeof info);
    weir_shape cpu = { 2, 4 };
    weir_shape gpu = { 8, 128 };
    return weir_device_fit_shape(weir_comm_device(comm), strcmp(info.kind, "gpu") == 0 ? gpu : cpu);
}

weirt_transfer_args weirt_transfer_of(weirt_rank *rank, const weirt_pair *pair)
{
    weirt_transfer_args args;
    memset(&args, 0, sizeof args);
    weir_memory_channel_device(pair->data, &args.data);
    weir_memory_channel_device(pair->packet, &args.packet);
    weir_grid_barrier_device(pair->barrier, &args.barrier);
    args.report = pair->device_report;
    args.local = (char *)weir_memory_pointer(pair->local);
    args.half = pair->half;
    args.rank = rank->rank;
    args.peer = pair->peer;
    args.step = 1;
    args.rounds = 1;
    return args;
}

weirt_wait_args weirt_wait_of(weirt_rank *rank, const weirt_pair *pair)
{
    weirt_wait_args args;
    memset(&args, 0, sizeof args);
    (void)WEIRT_OK(rank, weir_semaphore_device(pair->semaphore, &args.semaphore));
    weir_grid_barrier_device(pair->barrier, &args.barrier);
    args.report = pair->device_report;
    args.waits = 1;
    return args;
}

bool weirt_launch(weirt_rank *rank, const weirt_pair *pair, const weir_kernel *kernel, const void *args)
{
    weir_launch_opts opts = { .size = sizeof opts, .cooperative = true };
    return WEIRT_OK(
        rank, weir_launch(weir_comm_device(pair->comm), kernel, weirt_shape(pair->comm), args, &opts, pair->stream));
}

bool weirt_finish(weirt_rank *rank, const weirt_pair *pair)
{
    return WEIRT_OK(rank, weir_stream_wait(weir_comm_device(pair->comm), pair->stream, weirt_timeout_ms()));
}

weir_status weirt_access_run(weirt_rank *rank, const weirt_pair *pair, const weirt_access_args *args)
{
    weirt_access_args full = *args;
    full.report = pair->device_report;
    pair->report->status[0][0] = 99;
    if (!weirt_launch(rank, pair, weirt_access_kernel(), &full) || !weirt_finish(rank, pair)) {
        return WEIR_ERR_DEVICE;
    }
    return (weir_status)pair->report->status[0][0];
}
