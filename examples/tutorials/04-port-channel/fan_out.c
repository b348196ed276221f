/* fan_out - a kernel pushes one request, and a handler of the proxy sends the kernel's data to all other ranks.
 *
 *     fan_out          three ranks, as threads of this process: on the GPUs that are here, or on the CPU
 *
 * Handlers run on the proxy's thread, which must not block: they use the calls named try. Three parts: the kernel, the
 * handler, and how a rank is set up. */
#include "../../common/ranks.h"

#include <weir/device/port_channel.h>

enum { RANKS = 3, WORDS = 1024, ROUNDS = 5, SEND_TO_ALL = WEIR_REQUEST_USER };

/* ---- kernel --------------------------------------------------------------------------------------------- */

typedef struct fan_args {
    weir_dev_proxy_channel pushes;
    weir_dev_port_channel ports[RANKS]; /* the one of this rank is not used */
    uint64_t *memory;                   /* part r of WORDS words is rank r's */
    uint32_t rank;
    uint32_t round;
} fan_args;

WEIR_FN uint64_t fan_word(uint32_t rank, uint32_t round, uint32_t i)
{
    return ((uint64_t)rank << 48 | (uint64_t)round << 32 | i) * 0x9e3779b97f4a7c15u;
}

/* Writes this rank's part, and asks once for it to be sent to everybody. When the peers' signals have come, their parts
 * are here. The host finds what went wrong with weir_comm_status, weir_port_channel_status and
 * weir_proxy_channel_status. */
WEIR_KERNEL(fan_out, fan_args)
{
    weir_coop block = weir_coop_block(coop);
    uint64_t *mine = args->memory + (uint64_t)args->rank * WORDS;
    for (uint32_t i = block.rank; i < WORDS; i += block.size) {
        mine[i] = fan_word(args->rank, args->round, i);
    }
    (void)weir_coop_sync(block); /* the push below sends what all threads have written */
    if (block.rank == 0) {
        weir_request request;
        uint64_t ticket;
        weir_status status;
        memset(&request, 0, sizeof(request));
        request.type = SEND_TO_ALL;
        request.local_offset = request.remote_offset = (uint64_t)args->rank * WORDS * sizeof(uint64_t);
        request.bytes = WORDS * sizeof(uint64_t);
        status = weir_dev_proxy_channel_push(&args->pushes, &request, &ticket);
        for (uint32_t peer = 0; peer < RANKS && status == WEIR_OK; peer++) {
            status = peer == args->rank ? WEIR_OK : weir_dev_port_channel_wait(&args->ports[peer]);
        }
    }
}

/* ---- handler -------------------------------------------------------------------------------------------- */

typedef struct fan_state {
    weir_port_channel *channels[RANKS]; /* NULL for this rank */
    uint32_t next;                      /* the next peer of the request that is being handed over */
} fan_state;

/* Sends the request's bytes to all peers, with a signal behind them. A channel without room is no error: the request is
 * offered again in the proxy's next round, and goes on with the same peer. */
static weir_status send_to_all(void *context, const weir_request *request)
{
    fan_state *state = (fan_state *)context;
    for (; state->next < RANKS; state->next++) {
        weir_port_channel *channel = state->channels[state->next];
        weir_status status = channel == NULL
                                 ? WEIR_OK
                                 : weir_port_channel_try_put_signal(channel, request->remote_offset,
                                                                    request->local_offset, request->bytes, NULL);
        if (status != WEIR_OK) {
            return status == WEIR_PENDING ? WEIR_ERR_BUSY : status;
        }
    }
    state->next = 0;
    return WEIR_OK;
}

/* ---- a rank --------------------------------------------------------------------------------------------- */

typedef struct rank_state {
    rank_job job;
    weir_memory *memory;
    weir_proxy *proxy;
    weir_proxy_channel *pushes;
    fan_state fan;
    fan_args args;
} rank_state;

/* Makes a channel to each other rank. All ranks take their peers in ascending order, so no set of ranks waits for each
 * other in a circle. */
static bool connect_all(rank_state *r)
{
    const rank_job *job = &r->job;
    bool good = true;
    for (uint32_t peer = 0; peer < RANKS && good; peer++) {
        weir_port_channel **channel = &r->fan.channels[peer];
        good = peer == job->rank || (ok(job, weir_port_channel_connect(r->proxy, peer, 0, r->memory, NULL, channel)) &&
                                     ok(job, weir_port_channel_device(*channel, &r->args.ports[peer])));
    }
    return good;
}

static bool set_up(rank_state *r, const rank_start *start)
{
    const rank_job *job = &r->job;
    const weir_proxy_handler handler = { send_to_all, &r->fan, NULL, NULL };
    return job_open(start, &r->job) && ok(job, weir_kernel_load(job->device, &fan_out)) &&
           ok(job, weir_memory_allocate(job->comm, (uint64_t)RANKS * WORDS * sizeof(uint64_t), NULL, &r->memory)) &&
           ok(job, weir_proxy_create(job->comm, NULL, &r->proxy)) && connect_all(r) &&
           ok(job, weir_proxy_channel_create(r->proxy, &handler, NULL, &r->pushes)) &&
           ok(job, weir_proxy_channel_device(r->pushes, &r->args.pushes)) && ok(job, weir_proxy_start(r->proxy)) &&
           job_meet(job);
}

/* Between the two barriers all ranks' transfers are done, and nobody writes: each word can be compared. */
static bool run_round(rank_state *r, uint32_t round)
{
    const rank_job *job = &r->job;
    static uint64_t words[RANKS][RANKS * WORDS];
    const weir_shape block = { 1, 4 };
    r->args.memory = (uint64_t *)weir_memory_pointer(r->memory);
    r->args.rank = job->rank;
    r->args.round = round;
    if (!ok(job, weir_launch(job->device, &fan_out, block, &r->args, NULL, job->stream)) ||
        !ok(job, weir_comm_wait(job->comm, job->stream, 0)) || !ok(job, weir_proxy_drain(r->proxy, 0)) ||
        !ok(job, weir_proxy_channel_status(r->pushes)) || !job_meet(job) ||
        !ok(job, weir_device_copy(job->device, words[job->rank], r->args.memory, sizeof(words[0])))) {
        return false;
    }
    for (uint32_t i = 0; i < RANKS * WORDS; i++) {
        if (words[job->rank][i] != fan_word(i / WORDS, round, i % WORDS)) {
            fprintf(stderr, "Rank %" PRIu32 ": word %" PRIu32 " of round %" PRIu32 " is wrong\n", job->rank, i, round);
            return false;
        }
    }
    return job_meet(job);
}

static bool take_down(rank_state *r)
{
    weir_proxy_channel_destroy(r->pushes);
    for (uint32_t peer = 0; peer < RANKS; peer++) {
        weir_port_channel_destroy(r->fan.channels[peer]);
    }
    if (!job_meet(&r->job)) { /* the peers have let go of this rank's memory */
        return false;
    }
    printf("Rank %" PRIu32 " (%s): %d rounds, the words of %d ranks are right\n", r->job.rank, r->job.label, ROUNDS,
           RANKS);
    weir_proxy_destroy(r->proxy);
    weir_memory_destroy(r->memory);
    job_close(&r->job);
    return true;
}

static bool run_rank(const rank_start *start)
{
    rank_state r;
    memset(&r, 0, sizeof(r));
    bool good = set_up(&r, start);
    for (uint32_t round = 0; round < ROUNDS && good; round++) {
        good = run_round(&r, round);
    }
    return job_end(&r.job, good && take_down(&r));
}

int main(void)
{
    uint32_t gpus = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!ranks_count_gpus(&fan_out, &gpus) || !ranks_run_threads(RANKS, gpus, run_rank)) {
        return 1;
    }
    printf("Succeed!\n");
    return 0;
}
