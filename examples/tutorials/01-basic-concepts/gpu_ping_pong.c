/* gpu_ping_pong - two devices of one process pass a signal back and forth, inside kernels.
 *
 *     gpu_ping_pong
 *
 * Rank 0 and rank 1 are two threads. Each has a device: one of two GPUs, the same GPU, or the CPU. Read the kernel in
 * ping_pong.h first, then set_up, which makes what the kernel needs, from the bottom (a device) to the top (a
 * semaphore). */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/weir.h>

#include "../../common/ping_pong.h"

enum { ROUNDS = 1000 };

/* ---- the host ----------------------------------------------------------------------------------------- */

typedef struct player {
    const char *id; /* unique id at which the ranks meet */
    const char *device_name;
    uint32_t rank;

    weir_device *device;
    weir_bootstrap *bootstrap;
    weir_comm *comm;
    weir_connection *connection;
    weir_semaphore *semaphore;
    weir_memory *result;
    void *stream, *begin, *end;
} player;

/* Prints what went wrong. Calls are chained with &&, and the first error ends the chain. */
static bool ok(const player *p, weir_status status)
{
    if (status != WEIR_OK) {
        fprintf(stderr, "Rank %" PRIu32 ": %s: %s\n", p->rank, weir_status_name(status), weir_last_error());
    }
    return status == WEIR_OK;
}

/* Makes everything from the device up to the semaphore. Both ranks make the same calls; some wait for the other rank.
 */
static bool set_up(player *p)
{
    weir_device_info info;
    if (!ok(p, weir_device_open(p->device_name, NULL, &p->device))) {
        return false;
    }
    weir_device_get_info(p->device, &info, sizeof info);
    printf("Rank %" PRIu32 ": %s is %s\n", p->rank, info.label, info.model);

    /* The bootstrap brings the ranks together; the communicator joins their devices. */
    if (!ok(p, weir_bootstrap_create(p->id, p->rank, 2, NULL, &p->bootstrap)) ||
        !ok(p, weir_comm_create(p->bootstrap, p->device, NULL, &p->comm))) {
        return false;
    }
    printf("Rank %" PRIu32 ": communicator of %" PRIu32 " ranks\n", p->rank, weir_comm_size(p->comm));

    /* Over a connection one device reaches the other. A semaphore counts signals over a connection. */
    if (!ok(p, weir_connection_create(p->comm, p->rank ^ 1, 0, NULL, &p->connection)) ||
        !ok(p, weir_semaphore_create(p->connection, 0, NULL, &p->semaphore))) {
        return false;
    }
    printf("Rank %" PRIu32 ": connected by %s\n", p->rank, weir_connection_transport(p->connection));

    /* Memory for the result, a stream to launch on, events to take the time. The kernel is loaded before the
     * peer's runs: loading code while a kernel waits may block both. */
    return ok(p, weir_memory_allocate(p->comm, sizeof(score), NULL, &p->result)) &&
           ok(p, weir_stream_create(p->device, &p->stream)) && ok(p, weir_event_create(p->device, &p->begin)) &&
           ok(p, weir_event_create(p->device, &p->end)) && ok(p, weir_kernel_load(p->device, &ping_pong)) &&
           ok(p, weir_bootstrap_barrier(p->bootstrap, NULL));
}

static bool play(player *p)
{
    const weir_shape shape = { 1, 1 };
    ping_pong_args args;
    score result;
    double ms = 0;
    args.rank = p->rank;
    args.rounds = ROUNDS;
    args.result = (score *)weir_memory_pointer(p->result);
    if (!ok(p, weir_semaphore_device(p->semaphore, &args.semaphore)) ||
        !ok(p, weir_event_record(p->device, p->begin, p->stream)) ||
        !ok(p, weir_launch(p->device, &ping_pong, shape, &args, NULL, p->stream)) ||
        !ok(p, weir_event_record(p->device, p->end, p->stream)) ||
        /* The kernel ends even if the peer does not answer; weir_comm_wait returns the error. */
        !ok(p, weir_comm_wait(p->comm, p->stream, 0)) || !ok(p, weir_event_elapsed(p->device, p->begin, p->end, &ms)) ||
        !ok(p, weir_device_copy(p->device, &result, weir_memory_pointer(p->result), sizeof(result)))) {
        return false;
    }
    printf("Rank %" PRIu32 ": %" PRIu64 " rounds, %" PRIu64 " signals out of turn, elapsed %.5f ms/round\n", p->rank,
           result.rounds, result.out_of_turn, ms / ROUNDS);
    if (result.rounds != ROUNDS || result.out_of_turn != 0) {
        fprintf(stderr, "Rank %" PRIu32 ": the order of play was wrong\n", p->rank);
        return false;
    }
    return ok(p, weir_bootstrap_barrier(p->bootstrap, NULL)); /* after it the peer no longer uses this semaphore */
}

/* Destroying NULL does nothing. A child keeps its parents alive, so any order will do. */
static void take_down(player *p)
{
    weir_event_destroy(p->device, p->end);
    weir_event_destroy(p->device, p->begin);
    weir_stream_destroy(p->device, p->stream);
    weir_memory_destroy(p->result);
    weir_semaphore_destroy(p->semaphore);
    weir_connection_destroy(p->connection);
    weir_comm_destroy(p->comm);
    weir_bootstrap_destroy(p->bootstrap);
    weir_device_close(p->device);
}

/* A rank that fails ends the process: the other may be waiting for it, or be using its memory. */
static void *run_rank(void *context)
{
    player *p = (player *)context;
    if (!set_up(p) || !play(p)) {
        if (p->comm != NULL) {
            weir_comm_abort(p->comm); /* kernels that still wait end now */
        }
        _Exit(1);
    }
    take_down(p);
    return NULL;
}

int main(void)
{
    static const char *const devices[3][2] = { { "cpu:0", "cpu:1" }, { "gpu:0", "gpu:0" }, { "gpu:0", "gpu:1" } };
    player players[2];
    pthread_t threads[2];
    weir_unique_id id;
    uint32_t gpus = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    memset(players, 0, sizeof(players));
    if (!ok(players, weir_device_count("gpu", &gpus)) || !ok(players, weir_unique_id_create("127.0.0.1", &id))) {
        return 1;
    }
    if (ping_pong.gpu == NULL) {
        gpus = 0; /* a C compiler built these kernels for the CPU alone */
    }
    for (uint32_t i = 0; i < 2; i++) {
        players[i].id = id.text;
        players[i].rank = i;
        players[i].device_name = devices[gpus < 2 ? gpus : 2][i];
    }
    printf("%" PRIu32 " GPUs to use: ranks on %s and %s\n", gpus, players[0].device_name, players[1].device_name);
    for (int i = 0; i < 2; i++) {
        if (pthread_create(&threads[i], NULL, run_rank, &players[i]) != 0) {
            perror("starting a thread");
            return 1;
        }
    }
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    printf("Succeed!\n");
    return 0;
}
