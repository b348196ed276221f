/* eager_calls.c - rank 0 of two calls an operation many times, eagerly: eager_calls OPERATION COUNT. Over fake_cuda its
 * kernels do nothing, so what remains is the host's part. call_instructions.py counts its instructions. */
#include <pthread.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "weir/collective.h"
#include "weir/weir.h"

#include "test/cuda/fake_kernel.h"

#define BYTES 1024u
#define F16S (BYTES / 2)
#define MANY 64u /* transfers or parts of a call */

static weir_unique_id id;
static weir_kernel of_a_user;
static enum { LAUNCH, ALLREDUCE, ALL_TO_ALL, EXCHANGE, PARTS, OPERATIONS } operation;
static const char *const names[OPERATIONS] = { "launch", "allreduce", "all_to_all", "exchange", "parts" };
static unsigned long count;

typedef struct rank {
    weir_device *device;
    weir_collective *collective;
    void *stream;
} rank;

static alignas(16) char send[BYTES], recv[BYTES];
static weir_transfer transfers[MANY];
static weir_part parts[MANY];
static weir_extent extents[2];

/* Half of the transfers are sends to rank 1, and the others receives from it. Each part has a piece of each rank. */
static void describe_many(void)
{
    const uint32_t each = F16S / MANY;
    extents[0].count = each / 2;
    extents[1].at = each / 2;
    extents[1].count = each / 2;
    for (uint32_t i = 0; i < MANY; i++) {
        char *at = (i % 2 == 0 ? send : recv) + i * each * 2;
        const weir_transfer transfer = { at, each, WEIR_F16, 1, i % 2 != 0 };
        const weir_part part = { send + i * each * 2, recv + i * each * 2, extents, WEIR_F16 };
        transfers[i] = transfer;
        parts[i] = part;
    }
}

static weir_status call(const rank *r)
{
    const weir_shape shape = { 1, 32 };
    switch (operation) {
    case ALLREDUCE:
        return weir_allreduce(r->collective, send, recv, F16S, WEIR_F16, WEIR_SUM, r->stream);
    case ALL_TO_ALL:
        return weir_all_to_all(r->collective, send, recv, F16S / 2, WEIR_F16, r->stream);
    case EXCHANGE:
        return weir_exchange(r->collective, transfers, MANY, r->stream);
    case PARTS:
        return weir_allgather_parts(r->collective, parts, MANY, r->stream);
    default:
        return weir_launch(r->device, &of_a_user, shape, send, NULL, r->stream);
    }
}

/* Not inlined: callgrind counts what this function does. */
__attribute__((noinline, noclone)) weir_status eager_calls(const rank *r, unsigned long n);

weir_status eager_calls(const rank *r, unsigned long n)
{
    weir_status status = WEIR_OK;
    for (unsigned long i = 0; i < n && status == WEIR_OK; i++) {
        status = call(r);
    }
    return status;
}

static weir_status time_calls(const rank *r)
{
    struct timespec from, to;
    weir_status status = call(r);
    (void)clock_gettime(CLOCK_MONOTONIC, &from);
    status = status == WEIR_OK ? eager_calls(r, count) : status;
    (void)clock_gettime(CLOCK_MONOTONIC, &to);
    printf("%.0f ns a call of %s\n",
           ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / (double)count,
           names[operation]);
    return status;
}

static void *run(void *number)
{
    const uint32_t me = *(const uint32_t *)number;
    weir_bootstrap *boot = NULL;
    weir_comm *comm = NULL;
    rank r = { NULL, NULL, NULL };
    weir_status status = weir_bootstrap_create(id.text, me, 2, NULL, &boot);
    status = status == WEIR_OK ? weir_device_open(me == 0 ? "gpu:0" : "gpu:1", NULL, &r.device) : status;
    status = status == WEIR_OK ? weir_comm_create(boot, r.device, NULL, &comm) : status;
    status = status == WEIR_OK ? weir_collective_create(comm, NULL, &r.collective) : status;
    status = status == WEIR_OK ? weir_stream_create(r.device, &r.stream) : status;
    status = status == WEIR_OK && me == 0 ? time_calls(&r) : status;
    if (status != WEIR_OK) {
        fprintf(stderr, "rank %u: %s\n", me, weir_last_error());
        exit(EXIT_FAILURE);
    }
    weir_collective_destroy(r.collective);
    weir_stream_destroy(r.device, r.stream);
    weir_comm_destroy(comm);
    weir_device_close(r.device);
    weir_bootstrap_destroy(boot);
    return NULL;
}

int main(int argc, char **argv)
{
    uint32_t numbers[2] = { 0, 1 };
    pthread_t other;
    while (operation < OPERATIONS && (argc != 3 || strcmp(argv[1], names[operation]) != 0)) {
        operation++;
    }
    count = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
    if (operation == OPERATIONS || count == 0) {
        fprintf(stderr, "usage: eager_calls launch|allreduce|all_to_all|exchange|parts COUNT\n");
        return EXIT_FAILURE;
    }
    of_a_user = weirt_fake_kernel(weirt_fake_function);
    describe_many();
    if (weir_unique_id_create(NULL, &id) != WEIR_OK || pthread_create(&other, NULL, run, &numbers[1]) != 0) {
        fprintf(stderr, "weir_unique_id_create or pthread_create: %s\n", weir_last_error());
        return EXIT_FAILURE;
    }
    (void)run(&numbers[0]);
    (void)pthread_join(other, NULL);
    return EXIT_SUCCESS;
}
