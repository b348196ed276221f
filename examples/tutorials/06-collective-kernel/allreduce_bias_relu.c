/* allreduce_bias_relu - an allreduce, a bias and an activation in one kernel, against the same in two.
 *
 *     allreduce_bias_relu
 *
 * As at the end of a layer whose matrix product is divided among the ranks: each has a part of the sum for every
 * element. The ranks are threads, with a device each. Read the kernels first, then fused and unfused. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/device/collective.h>
#include <weir/device/kernel.h>
#include <weir/weir.h>

enum { RANKS = 2, ROWS = 25, COLUMNS = 101, COUNT = ROWS * COLUMNS, ROUNDS = 100 };

/* ---- the kernels -------------------------------------------------------------------------------------- */

typedef struct layer {
    const float *bias;
    float *data;
    uint64_t count;
    uint64_t columns;
} layer;

typedef struct fused_args {
    weir_dev_collective collective;
    weir_collective_reduce sum;
    layer after;
} fused_args;

WEIR_FN void bias_relu(const layer *l, uint64_t index)
{
    if (index < l->count) {
        float value = l->data[index] + l->bias[index % l->columns];
        l->data[index] = value > 0 ? value : 0;
    }
}

/* One launch: every thread joins the words of its places, which are 8 bytes, and goes on with what it has just stored.
 * Nobody waits for other threads, and the result is still in the cache. */
WEIR_KERNEL(allreduce_bias_relu, fused_args)
{
    if (weir_collective_reduce_once(&args->collective, &args->sum, WEIR_F32, WEIR_SUM, coop) != WEIR_OK) {
        return; /* the communicator has the error */
    }
    for (uint64_t word = coop.rank; 2 * word < args->after.count; word += coop.size) {
        bias_relu(&args->after, 2 * word);
        bias_relu(&args->after, 2 * word + 1);
    }
}

/* The second launch of the unfused form. */
WEIR_KERNEL(only_bias_relu, layer)
{
    for (uint64_t i = coop.rank; i < args->count; i += coop.size) {
        bias_relu(args, i);
    }
}

/* ---- the host ----------------------------------------------------------------------------------------- */

typedef struct worker {
    const char *id;
    const char *device_name;
    uint32_t rank;

    weir_device *device;
    weir_bootstrap *bootstrap;
    weir_comm *comm;
    weir_collective *collective;
    weir_memory *memory;
    float *send, *fused, *unfused, *bias; /* parts of it */
    void *stream, *begin, *end;
} worker;

static bool ok(const worker *w, weir_status status)
{
    if (status != WEIR_OK) {
        fprintf(stderr, "Rank %" PRIu32 ": %s: %s\n", w->rank, weir_status_name(status), weir_last_error());
    }
    return status == WEIR_OK;
}

/* What `rank` has of element `index`: eighths, so that sums are exact. */
static float part_of(uint32_t rank, uint64_t index)
{
    return (float)((index * 7 + rank * 13) % 101) / 8 - 6;
}

static bool set_up(worker *w)
{
    float data[4 * COUNT];
    weir_collective_opts opts = WEIR_OPTS(weir_collective_opts);
    opts.staging_bytes = (uint64_t)16 << 20; /* has room for all data in packets */
    if (!ok(w, weir_device_open(w->device_name, NULL, &w->device)) ||
        !ok(w, weir_bootstrap_create(w->id, w->rank, RANKS, NULL, &w->bootstrap)) ||
        !ok(w, weir_comm_create(w->bootstrap, w->device, NULL, &w->comm)) ||
        /* Everything that operations need is made here, and nothing later. */
        !ok(w, weir_collective_create(w->comm, &opts, &w->collective)) ||
        !ok(w, weir_memory_allocate(w->comm, sizeof data, NULL, &w->memory))) {
        return false;
    }
    w->send = (float *)weir_memory_pointer(w->memory);
    w->fused = w->send + COUNT;
    w->unfused = w->fused + COUNT;
    w->bias = w->unfused + COUNT;
    memset(data, 0, sizeof data);
    for (uint64_t i = 0; i < COUNT; i++) {
        data[i] = part_of(w->rank, i);
        data[3 * COUNT + i] = (float)(i % COLUMNS) / 4 - 12;
    }
    return ok(w, weir_device_copy(w->device, w->send, data, sizeof data)) &&
           ok(w, weir_stream_create(w->device, &w->stream)) && ok(w, weir_event_create(w->device, &w->begin)) &&
           ok(w, weir_event_create(w->device, &w->end)) && ok(w, weir_kernel_load(w->device, &allreduce_bias_relu)) &&
           ok(w, weir_kernel_load(w->device, &only_bias_relu)) && ok(w, weir_bootstrap_barrier(w->bootstrap, NULL));
}

/* weir describes the allreduce that weir_allreduce would launch in this form; the launch is ours. */
static bool launch_fused(worker *w)
{
    const weir_collective_request request = { WEIR_ALLREDUCE, WEIR_F32, WEIR_SUM, 0, COUNT, w->send, w->fused };
    const layer after = { w->bias, w->fused, COUNT, COLUMNS };
    fused_args args;
    weir_shape shape;
    args.after = after;
    weir_collective_device(w->collective, &args.collective);
    return ok(w,
              weir_collective_describe(w->collective, &request, WEIR_FORM_ONCE, &args.sum, sizeof args.sum, &shape)) &&
           ok(w, weir_launch(w->device, &allreduce_bias_relu, shape, &args, NULL, w->stream));
}

static bool launch_unfused(worker *w)
{
    const layer after = { w->bias, w->unfused, COUNT, COLUMNS };
    const weir_shape wanted = { 16, 256 };
    return ok(w, weir_allreduce(w->collective, w->send, w->unfused, COUNT, WEIR_F32, WEIR_SUM, w->stream)) &&
           ok(w, weir_launch(w->device, &only_bias_relu, weir_device_fit_shape(w->device, wanted), &after, NULL,
                             w->stream));
}

/* Microseconds of a launch; many are put on the stream at once, since nothing waits on the host. */
static bool measure(worker *w, bool (*launch)(worker *), double *us)
{
    double ms = 0;
    bool fine = launch(w) && ok(w, weir_event_record(w->device, w->begin, w->stream));
    for (int i = 0; i < ROUNDS && fine; i++) {
        fine = launch(w);
    }
    fine = fine && ok(w, weir_event_record(w->device, w->end, w->stream)) &&
           ok(w, weir_comm_wait(w->comm, w->stream, 0)) && ok(w, weir_event_elapsed(w->device, w->begin, w->end, &ms));
    *us = 1000 * ms / ROUNDS;
    return fine;
}

/* Both forms have the same bits, and these are right. */
static bool compare(worker *w)
{
    float fused[COUNT];
    float unfused[COUNT];
    uint64_t wrong = 0;
    if (!ok(w, weir_device_copy(w->device, fused, w->fused, sizeof fused)) ||
        !ok(w, weir_device_copy(w->device, unfused, w->unfused, sizeof unfused))) {
        return false;
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        float expected = (float)(i % COLUMNS) / 4 - 12;
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            expected += part_of(rank, i);
        }
        expected = expected > 0 ? expected : 0;
        wrong += fused[i] != expected || memcmp(&fused[i], &unfused[i], sizeof fused[i]) != 0;
    }
    if (wrong != 0) {
        fprintf(stderr, "Rank %" PRIu32 ": %" PRIu64 " elements are wrong\n", w->rank, wrong);
    }
    return wrong == 0;
}

static bool work(worker *w)
{
    double fused = 0;
    double unfused = 0;
    if (!measure(w, launch_unfused, &unfused) || !measure(w, launch_fused, &fused) || !compare(w)) {
        return false;
    }
    printf("Rank %" PRIu32 " on %s: %d floats, allreduce and then bias and relu %.2f us, in one kernel %.2f us\n",
           w->rank, w->device_name, COUNT, unfused, fused);
    return ok(w, weir_bootstrap_barrier(w->bootstrap, NULL)); /* no rank uses this one's memory any more */
}

static void take_down(worker *w)
{
    weir_event_destroy(w->device, w->end);
    weir_event_destroy(w->device, w->begin);
    weir_stream_destroy(w->device, w->stream);
    weir_memory_destroy(w->memory);
    weir_collective_destroy(w->collective);
    weir_comm_destroy(w->comm);
    weir_bootstrap_destroy(w->bootstrap);
    weir_device_close(w->device);
}

/* A rank that fails ends the process: the other may be waiting for it, or be using its memory. */
static void *run_rank(void *context)
{
    worker *w = (worker *)context;
    if (!set_up(w) || !work(w)) {
        if (w->comm != NULL) {
            weir_comm_abort(w->comm);
        }
        _Exit(1);
    }
    take_down(w);
    return NULL;
}

int main(void)
{
    static const char *const devices[3][RANKS] = { { "cpu:0", "cpu:1" }, { "gpu:0", "gpu:0" }, { "gpu:0", "gpu:1" } };
    worker workers[RANKS];
    pthread_t threads[RANKS];
    weir_unique_id id;
    uint32_t gpus = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    memset(workers, 0, sizeof workers);
    if (!ok(workers, weir_device_count("gpu", &gpus)) || !ok(workers, weir_unique_id_create("127.0.0.1", &id))) {
        return 1;
    }
    if (allreduce_bias_relu.gpu == NULL) {
        gpus = 0; /* built by a C compiler: these kernels run on the CPU alone */
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        workers[i].id = id.text;
        workers[i].rank = i;
        workers[i].device_name = devices[gpus < 2 ? gpus : 2][i];
    }
    for (int i = 0; i < RANKS; i++) {
        if (pthread_create(&threads[i], NULL, run_rank, &workers[i]) != 0) {
            perror("starting a thread");
            return 1;
        }
    }
    for (int i = 0; i < RANKS; i++) {
        pthread_join(threads[i], NULL);
    }
    printf("Succeed!\n");
    return 0;
}
