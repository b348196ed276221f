/* device_posted_rdma - two ranks send data to and fro by an RDMA NIC that their kernels post to: a thread of a running
 * kernel writes the NIC's work queue entries and rings its doorbell, and no CPU takes part.
 *
 *     device_posted_rdma                              both ranks, on this host
 *     device_posted_rdma <ip:port> <rank> <device>    one rank, 0 or 1, on gpu:N or cpu:N
 *     device_posted_rdma <rank> <device>              the same; the ranks meet at the unique id in WEIR_UNIQUE_ID
 *
 * The kernel does not know which engine posts: with WEIR_PORT_ENGINE=proxy a host thread posts the same transfers.
 * Where there is no NIC, WEIR_IB_VERBS_LIBRARY names a software one. Two parts: the kernel, and what the host makes for
 * it. How ranks start is in ../../common/ranks.h, how data are checked in ../../common/transfers.h. */
#include "../../common/transfers.h"

#include <weir/device/port_channel.h>

/* ---- the kernel: what runs on the devices ------------------------------------------------------------- */

typedef struct turn_args {
    weir_dev_port_channel channel;
    uint64_t bytes;  /* of each put */
    uint64_t puts;   /* in a turn */
    uint64_t rounds; /* each rank has one turn in each */
    uint64_t rank;
} turn_args;

/* Asks for this rank's part of the buffer, in pieces, to be written into the peer's memory, and for a signal. The
 * signal arrives after everything that was put before it. */
WEIR_FN weir_status send_part(const turn_args *args, weir_coop thread)
{
    uint64_t offset = args->rank * args->puts * args->bytes;
    weir_status status = WEIR_OK;
    for (uint64_t i = 1; i < args->puts && status == WEIR_OK; i++) {
        status = weir_dev_port_channel_put(&args->channel, offset, offset, args->bytes, thread, NULL);
        offset += args->bytes;
    }
    return status != WEIR_OK
               ? status
               : weir_dev_port_channel_put_signal(&args->channel, offset, offset, args->bytes, thread, NULL);
}

/* The ranks take turns, rank 0 first: one sends, the other waits for the signal. One thread is enough, since it moves
 * no data. The flush returns when the NIC no longer reads this rank's data.
 *
 * An error ends the loop. The host gets it from weir_port_channel_status or weir_comm_wait. */
WEIR_KERNEL(take_turns, turn_args)
{
    weir_status status = WEIR_OK;
    for (uint64_t turn = 0; turn < 2 * args->rounds && status == WEIR_OK; turn++) {
        status = turn % 2 == args->rank ? send_part(args, weir_coop_thread(coop))
                                        : weir_dev_port_channel_wait(&args->channel);
    }
    if (status == WEIR_OK) {
        (void)weir_dev_port_channel_flush(&args->channel, NULL);
    }
}

/* The value that a rank sends in its turn. */
typedef struct turn {
    transfer what;
    uint64_t bytes; /* of each put */
    uint64_t puts;
} turn;

static const turn turns[] = {
    { { "Ping-pong", &take_turns }, 8, 1 },         { { "Ping-pong", &take_turns }, 256, 1 },
    { { "Ping-pong", &take_turns }, 4 << 10, 1 },   { { "Ping-pong", &take_turns }, 64 << 10, 1 },
    { { "Ping-pong", &take_turns }, 1 << 20, 1 },   { { "Bandwidth", &take_turns }, 4 << 10, 64 },
    { { "Bandwidth", &take_turns }, 64 << 10, 64 }, { { "Bandwidth", &take_turns }, 1 << 20, 4 },
};

enum { TURNS = sizeof(turns) / sizeof(turns[0]), PART_BYTES = 4 << 20 };

/* ---- the host ----------------------------------------------------------------------------------------- */

typedef struct rank_state {
    rank_job job;
    transfer_bench bench; /* has the buffer, with a part for each rank */
    weir_proxy *proxy;
    weir_port_channel *channel;
} rank_state;

/* Makes the channel over NICs. WEIR_PORT_ENGINE must be set before. Only a proxy that posts needs its thread. */
static bool open_channel(rank_state *r)
{
    const rank_job *job = &r->job;
    weir_port_channel_connect_opts opts = WEIR_OPTS(weir_port_channel_connect_opts);
    weir_port_channel_info info;
    opts.transport = "ib";
    if (!ok(job, weir_proxy_create(job->comm, NULL, &r->proxy)) ||
        !ok(job, weir_port_channel_connect(r->proxy, job->rank ^ 1, 0, r->bench.buffer, &opts, &r->channel))) {
        return false;
    }
    weir_port_channel_get_info(r->channel, &info);
    printf("Rank %" PRIu32 " (%s): transport %s, engine %s%s%s\n", job->rank, job->label, info.transport, info.engine,
           info.reason[0] != '\0' ? ": " : "", info.reason);
    return strcmp(info.engine, "device") == 0 || ok(job, weir_proxy_start(r->proxy));
}

static bool launch(rank_state *r, const turn *t, uint64_t rounds)
{
    const weir_shape one_thread = { 1, 1 };
    turn_args args;
    args.bytes = t->bytes;
    args.puts = t->puts;
    args.rounds = rounds;
    args.rank = r->job.rank;
    return ok(&r->job, weir_port_channel_device(r->channel, &args.channel)) &&
           ok(&r->job, weir_launch(r->job.device, &take_turns, one_thread, &args, NULL, r->job.stream));
}

/* The kernel flushes before it ends, so nothing is under way then. */
static bool settle_channel(void *context)
{
    rank_state *r = (rank_state *)context;
    return ok(&r->job, weir_comm_wait(r->job.comm, r->job.stream, 0)) &&
           ok(&r->job, weir_port_channel_status(r->channel));
}

static bool check_turn(rank_state *r, const turn *t)
{
    return transfer_prepare(&r->bench, t->puts * t->bytes) && launch(r, t, 1) &&
           transfer_check(&r->bench, &t->what, t->puts * t->bytes);
}

/* Times one kernel of many rounds, between two events. A round before the first event brings the ranks together. */
static bool time_turn(rank_state *r, const turn *t)
{
    const rank_job *job = &r->job;
    const uint64_t bytes = t->puts * t->bytes, most = job->on_cpu ? 25 : 1000;
    const uint64_t fit = (job->on_cpu ? 1 : 64) * (uint64_t)PART_BYTES / bytes, rounds = fit < most ? fit : most;
    double ms = 0;
    if (!transfer_prepare(&r->bench, bytes) || !launch(r, t, 1) ||
        !ok(job, weir_event_record(job->device, job->begin, job->stream)) || !launch(r, t, rounds) ||
        !ok(job, weir_event_record(job->device, job->end, job->stream)) ||
        !transfer_check(&r->bench, &t->what, bytes) ||
        !ok(job, weir_event_elapsed(job->device, job->begin, job->end, &ms))) {
        return false;
    }
    double us = ms * 1000 / (double)(2 * rounds);
    if (job->rank == 0) {
        printf("Rank 0 (%s): [%s] %" PRIu64 " x %" PRIu64 " bytes, half of a round trip %.2f us, BW %.3g GB/s\n",
               job->label, t->what.label, t->puts, t->bytes, us, (double)bytes / us / 1e3);
    }
    return true;
}

static bool run_turns(rank_state *r)
{
    bool good = true;
    for (int i = 0; good && i < TURNS; i++) {
        for (int run = 0; good && run < TRANSFER_CHECKED_RUNS; run++) {
            good = check_turn(r, &turns[i]);
        }
        good = good && time_turn(r, &turns[i]);
    }
    return good;
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

/* The buffer is memory of the host, which any NIC reaches. */
static bool run_rank(const rank_start *start)
{
    weir_memory_opts host = WEIR_OPTS(weir_memory_opts);
    rank_state r;
    host.kind = WEIR_MEMORY_HOST;
    memset(&r, 0, sizeof(r));
    bool good = job_open(start, &r.job) && transfers_open(&r.bench, &r.job, PART_BYTES, &host) && open_channel(&r);
    r.bench.settle = settle_channel;
    r.bench.context = &r;
    return job_end(&r.job, good && transfers_load(&r.bench, &turns[0].what, 1) && run_turns(&r) && close_all(&r));
}

/* Finds a NIC; prints how to get one where there is none. */
static bool find_nic(void)
{
    weir_transport_info info;
    const char *reason = "this libweir was built without it";
    for (uint32_t i = 0; weir_transport_get(i, &info) == WEIR_OK; i++) {
        if (strcmp(info.name, "ib") == 0 && info.works) {
            return true;
        }
        if (strcmp(info.name, "ib") == 0) {
            reason = info.reason;
            break;
        }
    }
    fprintf(stderr,
            "Transport ib: %s\nWithout an RDMA NIC, weir has one in software: set WEIR_IB_VERBS_LIBRARY to "
            "tools/swnic/libswnic.so of the build folder\n",
            reason);
    return false;
}

int main(int argc, char **argv)
{
    const ranks_program program = { run_rank, &take_turns, NULL, false };
    /* Set before the first connection. A value that the user has set stays. */
    if (setenv("WEIR_PORT_ENGINE", "device", 0) != 0 || !find_nic()) {
        return 1;
    }
    return ranks_main(argc, argv, &program);
}
