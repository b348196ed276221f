/* fan_out - a kernel pushes one request, and a handler of the proxy sends the kernel's data to all other ranks.
 *
 *     fan_out          three ranks, as threads of this process: on the GPUs that are here, or on the CPU
 *
 * Handlers run on the proxy's thread, which must not block: they use the calls named try. Three parts: the kernel, the
 * handler, and how a rank is set up. */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/device/kernel.h>
#include <weir/weir.h>

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
    const char *where;
    char device_name[16];
    uint32_t rank;

    weir_device *device;
    weir_bootstrap *bootstrap;
    weir_comm *comm;
    weir_connection *connections[RANKS];
    weir_semaphore *semaphores[RANKS];
    weir_memory *memory;
    weir_memory *remote[RANKS];
    weir_proxy *proxy;
    weir_proxy_channel *pushes;
    fan_state fan;
    void *stream;
    fan_args args;
} rank_state;

static bool ok(const rank_state *r, weir_status status)
{
    if (status != WEIR_OK) {
        fprintf(stderr, "Rank %" PRIu32 ": %s: %s\n", r->rank, weir_status_name(status), weir_last_error());
    }
    return status == WEIR_OK;
}

/* Two ranks connect at a time: in the same order on all, so that none waits for one that waits for a third. */
static bool connect_all(rank_state *r)
{
    for (uint32_t a = 0; a < RANKS; a++) {
        for (uint32_t b = a + 1; b < RANKS; b++) {
            const uint32_t peer = a == r->rank ? b : a;
            if ((a == r->rank || b == r->rank) &&
                (!ok(r, weir_connection_create(r->comm, peer, 0, NULL, &r->connections[peer])) ||
                 !ok(r, weir_semaphore_create(r->connections[peer], 0, NULL, &r->semaphores[peer])))) {
                return false;
            }
        }
    }
    return true;
}

static bool join(rank_state *r)
{
    return ok(r, weir_device_open(r->device_name, NULL, &r->device)) &&
           ok(r, weir_bootstrap_create(r->where, r->rank, RANKS, NULL, &r->bootstrap)) &&
           ok(r, weir_comm_create(r->bootstrap, r->device, NULL, &r->comm)) && connect_all(r) &&
           ok(r, weir_stream_create(r->device, &r->stream)) && ok(r, weir_kernel_load(r->device, &fan_out)) &&
           ok(r, weir_memory_allocate(r->comm, (uint64_t)RANKS * WORDS * sizeof(uint64_t), NULL, &r->memory)) &&
           ok(r, weir_proxy_create(r->comm, NULL, &r->proxy));
}

static bool make_channels(rank_state *r)
{
    const weir_proxy_handler handler = { send_to_all, &r->fan, NULL, NULL };
    bool good = true;
    for (uint32_t peer = 0; peer < RANKS && good; peer++) {
        good = peer == r->rank || ok(r, weir_memory_send(r->comm, r->memory, peer, 0));
    }
    for (uint32_t peer = 0; peer < RANKS && good; peer++) {
        good = peer == r->rank || (ok(r, weir_memory_recv(r->comm, peer, 0, &r->remote[peer])) &&
                                   ok(r, weir_port_channel_create(r->proxy, r->semaphores[peer], r->remote[peer],
                                                                  r->memory, NULL, &r->fan.channels[peer])) &&
                                   ok(r, weir_port_channel_device(r->fan.channels[peer], &r->args.ports[peer])));
    }
    return good && ok(r, weir_proxy_channel_create(r->proxy, &handler, NULL, &r->pushes)) &&
           ok(r, weir_proxy_channel_device(r->pushes, &r->args.pushes)) && ok(r, weir_proxy_start(r->proxy));
}

/* Between the two barriers all ranks' transfers are done, and nobody writes: each word can be compared. */
static bool run_round(rank_state *r, uint32_t round)
{
    static uint64_t words[RANKS][RANKS * WORDS];
    const weir_shape block = { 1, 4 };
    r->args.memory = (uint64_t *)weir_memory_pointer(r->memory);
    r->args.rank = r->rank;
    r->args.round = round;
    if (!ok(r, weir_launch(r->device, &fan_out, block, &r->args, NULL, r->stream)) ||
        !ok(r, weir_comm_wait(r->comm, r->stream, 0)) || !ok(r, weir_proxy_drain(r->proxy, 0)) ||
        !ok(r, weir_proxy_channel_status(r->pushes)) || !ok(r, weir_bootstrap_barrier(r->bootstrap, NULL)) ||
        !ok(r, weir_device_copy(r->device, words[r->rank], r->args.memory, sizeof(words[0])))) {
        return false;
    }
    for (uint32_t i = 0; i < RANKS * WORDS; i++) {
        if (words[r->rank][i] != fan_word(i / WORDS, round, i % WORDS)) {
            fprintf(stderr, "Rank %" PRIu32 ": word %" PRIu32 " of round %" PRIu32 " is wrong\n", r->rank, i, round);
            return false;
        }
    }
    return ok(r, weir_bootstrap_barrier(r->bootstrap, NULL));
}

static bool leave(rank_state *r)
{
    weir_proxy_channel_destroy(r->pushes);
    for (uint32_t peer = 0; peer < RANKS; peer++) {
        weir_port_channel_destroy(r->fan.channels[peer]);
        weir_memory_destroy(r->remote[peer]);
    }
    if (!ok(r, weir_bootstrap_barrier(r->bootstrap, NULL))) { /* the peers have let go of this rank's memory */
        return false;
    }
    weir_stream_destroy(r->device, r->stream);
    weir_proxy_destroy(r->proxy);
    weir_memory_destroy(r->memory);
    for (uint32_t peer = 0; peer < RANKS; peer++) {
        weir_semaphore_destroy(r->semaphores[peer]);
        weir_connection_destroy(r->connections[peer]);
    }
    weir_comm_destroy(r->comm);
    weir_bootstrap_destroy(r->bootstrap);
    weir_device_close(r->device);
    return true;
}

static void *run_rank(void *context)
{
    rank_state *r = (rank_state *)context;
    bool good = join(r) && make_channels(r);
    for (uint32_t round = 0; round < ROUNDS && good; round++) {
        good = run_round(r, round);
    }
    if (!good || !leave(r)) {
        _Exit(1);
    }
    printf("Rank %" PRIu32 " (%s): %d rounds, the words of %d ranks are right\n", r->rank, r->device_name, ROUNDS,
           RANKS);
    return NULL;
}

int main(void)
{
    rank_state *ranks = (rank_state *)calloc(RANKS, sizeof(*ranks));
    pthread_t threads[RANKS];
    weir_unique_id id;
    uint32_t gpus = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (ranks == NULL || !ok(ranks, weir_device_count("gpu", &gpus)) ||
        !ok(ranks, weir_unique_id_create("127.0.0.1", &id))) {
        return 1;
    }
    if (fan_out.gpu == NULL) {
        gpus = 0; /* built by a C compiler: the kernel runs on the CPU alone */
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        ranks[i].where = id.text;
        ranks[i].rank = i;
        snprintf(ranks[i].device_name, sizeof(ranks[i].device_name), "%s:%" PRIu32, gpus != 0 ? "gpu" : "cpu",
                 gpus != 0 ? i % gpus : i);
        if (pthread_create(&threads[i], NULL, run_rank, &ranks[i]) != 0) {
            perror("starting a thread");
            return 1;
        }
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        pthread_join(threads[i], NULL);
    }
    free(ranks);
    printf("Succeed!\n");
    return 0;
}
