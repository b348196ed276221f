/* allreduce_bias_relu - an allreduce, a bias and an activation in one kernel, against the same in two.
 *
 *     allreduce_bias_relu
 *
 * As at the end of a layer whose matrix product is divided among the ranks: each has a part of the sum for every
 * element. The ranks are threads, with a device each. Read the kernels first, then fused and unfused. */
#include "../../common/ranks.h"

#include <weir/device/collective.h>

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

/* One launch: every thread reduces the 8-byte words at its places, and goes on with what it has just stored. No thread
 * waits for another one, and the result is still in the cache. */
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
    rank_job job;
    weir_collective *collective;
    weir_memory *memory;
    float *send, *fused, *unfused, *bias; /* parts of it */
} worker;

/* The value of element `index` on `rank`: eighths, so that sums are exact. */
static float part_of(uint32_t rank, uint64_t index) { return (float)((index * 7 + rank * 13) % 101) / 8 - 6; }

static bool set_up(worker *w, const rank_start *start)
{
    const rank_job *job = &w->job;
    float data[4 * COUNT];
    weir_collective_opts opts = WEIR_OPTS(weir_collective_opts);
    opts.staging_bytes = (uint64_t)16 << 20; /* has room for all data in packets */
    memset(w, 0, sizeof *w);
    /* weir_collective_create makes everything that operations need: they make nothing themselves. */
    if (!job_open(start, &w->job) || !ok(job, weir_collective_create(job->comm, &opts, &w->collective)) ||
        !ok(job, weir_memory_allocate(job->comm, sizeof data, NULL, &w->memory))) {
        return false;
    }
    w->send = (float *)weir_memory_pointer(w->memory);
    w->fused = w->send + COUNT;
    w->unfused = w->fused + COUNT;
    w->bias = w->unfused + COUNT;
    memset(data, 0, sizeof data);
    for (uint64_t i = 0; i < COUNT; i++) {
        data[i] = part_of(job->rank, i);
        data[3 * COUNT + i] = (float)(i % COLUMNS) / 4 - 12;
    }
    return ok(job, weir_device_copy(job->device, w->send, data, sizeof data)) &&
           ok(job, weir_kernel_load(job->device, &allreduce_bias_relu)) &&
           ok(job, weir_kernel_load(job->device, &only_bias_relu)) && job_meet(job);
}

/* weir describes the allreduce that weir_allreduce would launch in this form. The program launches it. */
static bool launch_fused(worker *w)
{
    const rank_job *job = &w->job;
    const weir_collective_request request = { WEIR_ALLREDUCE, WEIR_F32, WEIR_SUM, 0, COUNT, w->send, w->fused };
    const layer after = { w->bias, w->fused, COUNT, COLUMNS };
    fused_args args;
    weir_shape shape;
    args.after = after;
    weir_collective_device(w->collective, &args.collective);
    return ok(job,
              weir_collective_describe(w->collective, &request, WEIR_FORM_ONCE, &args.sum, sizeof args.sum, &shape)) &&
           ok(job, weir_launch(job->device, &allreduce_bias_relu, shape, &args, NULL, job->stream));
}

static bool launch_unfused(worker *w)
{
    const rank_job *job = &w->job;
    const layer after = { w->bias, w->unfused, COUNT, COLUMNS };
    const weir_shape wanted = { 16, 256 };
    return ok(job, weir_allreduce(w->collective, w->send, w->unfused, COUNT, WEIR_F32, WEIR_SUM, job->stream)) &&
           ok(job, weir_launch(job->device, &only_bias_relu, weir_device_fit_shape(job->device, wanted), &after, NULL,
                               job->stream));
}

/* Takes the microseconds of a launch. Many launches are put on the stream at once, since nothing waits on the host. */
static bool measure(worker *w, bool (*launch)(worker *), double *us)
{
    const rank_job *job = &w->job;
    double ms = 0;
    bool fine = launch(w) && ok(job, weir_event_record(job->device, job->begin, job->stream));
    for (int i = 0; i < ROUNDS && fine; i++) {
        fine = launch(w);
    }
    fine = fine && ok(job, weir_event_record(job->device, job->end, job->stream)) &&
           ok(job, weir_comm_wait(job->comm, job->stream, 0)) &&
           ok(job, weir_event_elapsed(job->device, job->begin, job->end, &ms));
    *us = 1000 * ms / ROUNDS;
    return fine;
}

/* Checks that both forms have the same bits, and that these are right. */
static bool compare(worker *w)
{
    const rank_job *job = &w->job;
    float fused[COUNT];
    float unfused[COUNT];
    uint64_t wrong = 0;
    if (!ok(job, weir_device_copy(job->device, fused, w->fused, sizeof fused)) ||
        !ok(job, weir_device_copy(job->device, unfused, w->unfused, sizeof unfused))) {
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
        fprintf(stderr, "Rank %" PRIu32 ": %" PRIu64 " elements are wrong\n", job->rank, wrong);
    }
    return wrong == 0;
}

static bool work(worker *w)
{
    const rank_job *job = &w->job;
    double fused = 0;
    double unfused = 0;
    if (!measure(w, launch_unfused, &unfused) || !measure(w, launch_fused, &fused) || !compare(w)) {
        return false;
    }
    printf("Rank %" PRIu32 " (%s): %d floats, allreduce and then bias and relu %.2f us, in one kernel %.2f us\n",
           job->rank, job->label, COUNT, unfused, fused);
    return job_meet(job); /* after it no rank uses this one's memory */
}

static void take_down(worker *w)
{
    weir_memory_destroy(w->memory);
    weir_collective_destroy(w->collective);
    job_close(&w->job);
}

static bool run_rank(const rank_start *start)
{
    worker w;
    const bool good = set_up(&w, start) && work(&w);
    if (job_end(&w.job, good)) {
        take_down(&w);
    }
    return good;
}

int main(void)
{
    uint32_t gpus = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!ranks_count_gpus(&allreduce_bias_relu, &gpus) || !ranks_run_threads(RANKS, gpus, run_rank)) {
        return 1;
    }
    printf("Succeed!\n");
    return 0;
}
