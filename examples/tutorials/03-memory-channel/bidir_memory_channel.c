/* bidir_memory_channel - two ranks copy data to each other, both ways at once, in three ways: put, get, packets.
 *
 *     bidir_memory_channel                              both ranks, on this host
 *     mpirun -n 2 bidir_memory_channel [<device>]       one rank in each process; srun and torchrun too
 *     bidir_memory_channel <ip:port> <rank> <device>    one rank, 0 or 1, on gpu:N or cpu:N
 *     bidir_memory_channel <rank> <device>              the same; the ranks meet at the unique id in WEIR_UNIQUE_ID
 *
 * Two parts: the kernels, and what the host makes for them. How ranks start is in ../../common/ranks.h, how transfers
 * are checked and timed in ../../common/transfers.h. */
#include "../../common/transfers.h"

/* ---- kernels: what runs on the devices ---------------------------------------------------------------- */

/* Rank r sends the part of the buffer at r * bytes, and receives the other. */
typedef struct transfer_args {
    weir_dev_memory_channel channel;
    weir_dev_grid_barrier barrier;
    uint64_t bytes;
    uint64_t rank;
} transfer_args;

/* Returns when the peer's kernel runs too. One thread of the grid signals and waits, and the barrier holds the others
 * until it has. The relaxed forms are enough: they order execution, not data.
 *
 * These kernels ignore statuses. After the first error of a communicator all its waits end at once, and the host gets
 * that error from weir_comm_wait. */
WEIR_FN void meet_peer(const transfer_args *args, weir_coop coop)
{
    if (coop.rank == 0) {
        weir_dev_memory_channel_signal_relaxed(&args->channel);
        (void)weir_dev_memory_channel_wait_relaxed(&args->channel);
    }
    (void)weir_coop_sync(coop);
}

/* Writes this rank's part into the peer's memory. The barrier returns when all threads have written. Then the signal
 * makes the data visible to the peer, and the wait returns when the peer's data is here. */
WEIR_KERNEL(bidir_put, transfer_args)
{
    uint64_t offset = args->rank * args->bytes;
    coop.barrier = &args->barrier;
    meet_peer(args, coop);
    (void)weir_dev_memory_channel_put(&args->channel, offset, offset, args->bytes, coop);
    (void)weir_coop_sync(coop);
    if (coop.rank == 0) {
        weir_dev_memory_channel_signal(&args->channel);
        (void)weir_dev_memory_channel_wait(&args->channel);
    }
}

/* Reads the peer's part. The data is here when the copy ends, so nothing follows it. */
WEIR_KERNEL(bidir_get, transfer_args)
{
    uint64_t offset = (args->rank ^ 1) * args->bytes;
    coop.barrier = &args->barrier;
    meet_peer(args, coop);
    (void)weir_dev_memory_channel_get(&args->channel, offset, offset, args->bytes, coop);
}

/* Sends this rank's part as packets, and unpacks the peer's packets as they come. Each packet carries a flag that shows
 * that it is complete, so neither a barrier nor a signal follows. */
WEIR_KERNEL(bidir_put_packets, transfer_args)
{
    coop.barrier = &args->barrier;
    meet_peer(args, coop);
    (void)weir_dev_memory_channel_put_ll16(&args->channel, 0, args->rank * args->bytes, args->bytes, coop);
    (void)weir_dev_memory_channel_unpack_ll16(&args->channel, 0, (args->rank ^ 1) * args->bytes, args->bytes, coop);
}

static const transfer transfers[] = {
    { "Bidir Put", &bidir_put },
    { "Bidir Get", &bidir_get },
    { "Bidir Put Packets", &bidir_put_packets },
};

enum { TRANSFERS = sizeof(transfers) / sizeof(transfers[0]) };

/* ---- the host ----------------------------------------------------------------------------------------- */

typedef struct rank_state {
    rank_job job;
    transfer_bench bench; /* has the buffer that is sent and received */
    weir_memory *packets; /* the buffer into which the peer puts packets */
    weir_memory_channel *channel, *packet_channel;
    weir_grid_barrier *barrier;
} rank_state;

/* Makes both channels. Each call waits for the same call of the peer, and makes the connection, the semaphore and the
 * mapping of the peer's memory, too. The second call uses the connection of the first.
 *
 * In the first channel the remote memory is the peer's buffer, in the second it is the peer's packet buffer. LL16
 * packets take twice the bytes of their data. */
static bool open_channels(rank_state *r)
{
    const rank_job *job = &r->job;
    const uint32_t peer = job->rank ^ 1;
    weir_memory *buffer = r->bench.buffer;
    weir_memory_channel_connect_opts opts = WEIR_OPTS(weir_memory_channel_connect_opts);
    if (!ok(job, weir_memory_channel_connect(job->comm, peer, 0, buffer, NULL, &r->channel)) ||
        !ok(job, weir_memory_allocate(job->comm, weir_memory_bytes(buffer), NULL, &r->packets))) {
        return false;
    }
    opts.connection = weir_semaphore_connection(weir_memory_channel_semaphore(r->channel));
    opts.packets = r->packets;
    return ok(job, weir_memory_channel_connect(job->comm, peer, 0, buffer, &opts, &r->packet_channel)) &&
           ok(job, weir_grid_barrier_create(job->comm, &r->barrier));
}

/* The blocks of a transfer meet at the grid barrier, so the launch is cooperative: all of them run at the same time. */
static bool launch_transfer(void *context, const transfer *t, uint64_t bytes)
{
    rank_state *r = (rank_state *)context;
    weir_launch_opts opts = WEIR_OPTS(weir_launch_opts);
    transfer_args args;
    weir_memory_channel_device(t->kernel == &bidir_put_packets ? r->packet_channel : r->channel, &args.channel);
    weir_grid_barrier_device(r->barrier, &args.barrier);
    args.bytes = bytes;
    args.rank = r->job.rank;
    opts.cooperative = true;
    return ok(&r->job, weir_launch(r->job.device, t->kernel, r->bench.shape, &args, &opts, r->job.stream));
}

/* Channels go first, because they map the peer's memory. After the barrier the peer maps nothing of this rank's. */
static bool close_all(rank_state *r)
{
    weir_memory_channel_destroy(r->packet_channel);
    weir_memory_channel_destroy(r->channel);
    if (!job_meet(&r->job)) {
        return false;
    }
    weir_grid_barrier_destroy(r->barrier);
    weir_memory_destroy(r->packets);
    transfers_close(&r->bench);
    job_close(&r->job);
    return true;
}

static bool run_rank(const rank_start *start)
{
    rank_state r;
    memset(&r, 0, sizeof(r));
    bool good = job_open(start, &r.job) &&
                transfers_open(&r.bench, &r.job, transfer_size(&r.job, TRANSFER_SIZES - 1), NULL) && open_channels(&r);
    r.bench.launch = launch_transfer;
    r.bench.context = &r;
    return job_end(&r.job, good && transfers_load(&r.bench, transfers, TRANSFERS) &&
                               transfers_run(&r.bench, transfers, TRANSFERS) && close_all(&r));
}

int main(int argc, char **argv)
{
    const ranks_program program = { run_rank, &bidir_put, NULL, false };
    return ranks_main(argc, argv, &program);
}
