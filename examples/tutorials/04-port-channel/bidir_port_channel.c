/* bidir_port_channel - two ranks move data to each other, both ways at once, without a kernel that copies. A thread of
 * a proxy carries out what kernels ask for: by copy engines, by a NIC, or by its own copies.
 *
 *     bidir_port_channel                                          both ranks, on this host
 *     mpirun -n 2 bidir_port_channel [<device>]                   one rank in each process; srun and torchrun too
 *     bidir_port_channel <ip:port> <rank> <device> [<transport>]  one rank, 0 or 1, on gpu:N or cpu:N
 *     bidir_port_channel <rank> <device>                          the same; the ranks meet at the unique id in
 *                                                                 WEIR_UNIQUE_ID
 *
 * WEIR_TRANSPORT names the transport in all forms. Two parts: the kernels, and what the host makes for them. How ranks
 * start is in ../../common/ranks.h, how transfers are checked and timed in ../../common/transfers.h. */
#include "../../common/transfers.h"

#include <weir/device/port_channel.h>

/* ---- kernels: what runs on the devices ---------------------------------------------------------------- */

/* Rank r sends the part of the buffer at r * bytes, and receives the other. */
typedef struct transfer_args {
    weir_dev_port_channel channel;
    uint64_t bytes;
    uint64_t rank;
} transfer_args;

/* Asks for this rank's part to be written into the peer's memory, and for a signal after it. The wait returns when the
 * peer's part and its signal are here. One block is enough: it moves no data, or some KiB at most.
 *
 * These kernels ignore statuses. The host gets errors from weir_port_channel_status and weir_comm_wait. */
WEIR_KERNEL(bidir_put, transfer_args)
{
    uint64_t offset = args->rank * args->bytes;
    (void)weir_dev_port_channel_put_signal(&args->channel, offset, offset, args->bytes, weir_coop_block(coop), NULL);
    if (coop.rank == 0) {
        (void)weir_dev_port_channel_wait(&args->channel);
    }
}

/* Asks for the peer's part. It is here when the ticket is done. */
WEIR_KERNEL(bidir_get, transfer_args)
{
    uint64_t offset = (args->rank ^ 1) * args->bytes;
    uint64_t ticket = WEIR_TICKET_DONE;
    (void)weir_dev_port_channel_get(&args->channel, offset, offset, args->bytes, weir_coop_block(coop), &ticket);
    if (coop.rank == 0) {
        (void)weir_dev_port_channel_wait_ticket(&args->channel, ticket);
    }
}

static const transfer transfers[] = {
    { "Bidir Port Put", &bidir_put },
    { "Bidir Port Get", &bidir_get },
};

enum { TRANSFERS = sizeof(transfers) / sizeof(transfers[0]) };

/* ---- the host ----------------------------------------------------------------------------------------- */

typedef struct rank_state {
    rank_job job;
    transfer_bench bench; /* has the buffer that is sent and received */
    weir_proxy *proxy;
    weir_port_channel *channel;
} rank_state;

/* Makes the channel. The call waits for the same call of the peer, and makes the connection, the semaphore and the
 * exchange of memories, too. From weir_proxy_start on the proxy's thread carries out requests. */
static bool open_channel(rank_state *r, const char *transport)
{
    const rank_job *job = &r->job;
    weir_port_channel_connect_opts opts = WEIR_OPTS(weir_port_channel_connect_opts);
    opts.transport = transport;
    return ok(job, weir_proxy_create(job->comm, NULL, &r->proxy)) &&
           ok(job, weir_port_channel_connect(r->proxy, job->rank ^ 1, 0, r->bench.buffer, &opts, &r->channel)) &&
           ok(job, weir_proxy_start(r->proxy));
}

static bool launch_transfer(void *context, const transfer *t, uint64_t bytes)
{
    rank_state *r = (rank_state *)context;
    const uint32_t threads = r->bench.shape.threads;
    const weir_shape one_block = { 1, threads < 256 ? threads : 256 };
    transfer_args args;
    args.bytes = bytes;
    args.rank = r->job.rank;
    return ok(&r->job, weir_port_channel_device(r->channel, &args.channel)) &&
           ok(&r->job, weir_launch(r->job.device, t->kernel, one_block, &args, NULL, r->job.stream));
}

/* A kernel that has ended may have requests under way, which still read this rank's data. */
static bool settle_channel(void *context)
{
    rank_state *r = (rank_state *)context;
    return ok(&r->job, weir_port_channel_flush_on_stream(r->channel, r->job.stream)) &&
           ok(&r->job, weir_comm_wait(r->job.comm, r->job.stream, 0)) &&
           ok(&r->job, weir_port_channel_status(r->channel));
}

/* The channel goes first, because it knows the peer's memory. After the barrier the peer uses nothing of this rank's.
 */
static bool close_all(rank_state *r)
{
    weir_port_channel_destroy(r->channel);
    if (!job_meet(&r->job)) {
        return false;
    }
    weir_proxy_destroy(r->proxy);
    transfers_close(&r->bench);
    job_close(&r->job);
    return true;
}

static bool run_rank(const rank_start *start)
{
    rank_state r;
    memset(&r, 0, sizeof(r));
    bool good = job_open(start, &r.job) &&
                transfers_open(&r.bench, &r.job, transfer_size(&r.job, TRANSFER_SIZES - 1), NULL) &&
                open_channel(&r, start->transport);
    r.bench.launch = launch_transfer;
    r.bench.settle = settle_channel;
    r.bench.context = &r;
    return job_end(&r.job, good && transfers_load(&r.bench, transfers, TRANSFERS) &&
                               transfers_run(&r.bench, transfers, TRANSFERS) && close_all(&r));
}

int main(int argc, char **argv)
{
    const ranks_program program = { run_rank, &bidir_put, " [<transport>]", false };
    return ranks_main(argc, argv, &program);
}
