/* notified_stencil - a 2D stencil whose ranks are blocks of a kernel and exchange their boundary rows by themselves.
 *
 *     notified_stencil [<devices> [<ranks>]]      default: all GPUs, or two devices; <ranks> are of each device
 *
 * Two forms of the same program: one kernel that stays on the device for all steps, and a kernel for each step. Both
 * must give the result of a serial loop. Devices are threads of this process. Read the kernels first, then set_up. */
#include "../../common/ranks.h"

#include <weir/device/window.h>
#include <weir/window.h>

enum { DEVICES_MAX = 8, RANKS_MAX = 1 << 12, COLUMNS = 128, ROWS = 4, STEPS = 12, THREADS = 128 };

#define ROW_BYTES ((uint64_t)COLUMNS * sizeof(double))

static struct {
    uint32_t gpus;
    uint32_t ranks; /* of each device */
} settings;

/* ---- the kernels --------------------------------------------------------------------------------------- */

typedef struct stencil_args {
    weir_dev_window window;
    uint32_t fields[2]; /* ids of the two memories; step i reads fields[i % 2] and writes the other one */
    uint32_t first;     /* number of this device's first rank */
    uint32_t ranks;     /* of this device */
    uint32_t all;       /* ranks of all devices */
    uint32_t step;      /* of stencil_step */
} stencil_args;

/* The rank's part: a row of the rank above, ROWS rows of its own, and a row of the rank below. A row continues in the
 * next one. */
WEIR_FN void compute(const weir_dev_window_rank *self, uint32_t in, uint32_t out, weir_coop block)
{
    const double *from = (const double *)weir_dev_window_pointer(self, in);
    double *to = (double *)weir_dev_window_pointer(self, out);
    for (uint32_t i = COLUMNS + block.rank; i < (ROWS + 1) * COLUMNS; i += block.size) {
        to[i] = -4 * from[i] + from[i - 1] + from[i + 1] + from[i - COLUMNS] + from[i + COLUMNS];
    }
}

/* Puts the rank's first row below the rows of the rank above it. */
WEIR_FN weir_status send_up(const weir_dev_window_rank *self, uint32_t out, uint32_t tag, weir_coop block)
{
    return weir_dev_window_put_notify(self, self->number - 1, out, (ROWS + 1) * ROW_BYTES, out, ROW_BYTES, ROW_BYTES,
                                      tag, block);
}

/* Puts the rank's last row above the rows of the rank below it. */
WEIR_FN weir_status send_down(const weir_dev_window_rank *self, uint32_t out, uint32_t tag, weir_coop block)
{
    return weir_dev_window_put_notify(self, self->number + 1, out, 0, out, ROWS * ROW_BYTES, ROW_BYTES, tag, block);
}

/* One kernel for all steps. A block serves the ranks coop.block, coop.block + coop.blocks, and so on: it computes and
 * sends for all of them before it waits for any. Ranks of one device share boundary rows: there the put copies nothing,
 * and only the notification goes.
 *
 * The tag is the step's parity. The rank above may be one step ahead: then its next notification is here before that of
 * the rank below, and a wait for two notifications of any tag would take both of them. */
WEIR_KERNEL(stencil_resident, stencil_args)
{
    const weir_coop block = weir_coop_block(coop);
    for (uint32_t step = 0; step < STEPS; step++) {
        const uint32_t out = args->fields[(step + 1) % 2];
        for (uint32_t index = coop.block; index < args->ranks; index += coop.blocks) {
            const weir_dev_window_rank self = weir_dev_window_at(&args->window, index);
            compute(&self, args->fields[step % 2], out, block);
            if ((self.number > 0 && send_up(&self, out, step % 2, block) != WEIR_OK) ||
                (self.number + 1 < args->all && send_down(&self, out, step % 2, block) != WEIR_OK)) {
                return; /* the communicator has the error */
            }
        }
        for (uint32_t index = coop.block; index < args->ranks; index += coop.blocks) {
            const weir_dev_window_rank self = weir_dev_window_at(&args->window, index);
            const uint32_t neighbours = (self.number > 0) + (self.number + 1 < args->all);
            if (weir_dev_window_wait(&self, WEIR_ANY_RANK, step % 2, neighbours, block) != WEIR_OK) {
                return;
            }
        }
        (void)weir_coop_sync(block); /* a rank without neighbours has waited for nothing, not even for its threads */
    }
}

/* A kernel for each step. The stream orders the ranks of one device, so only the first and the last rank notify and
 * wait: those with a neighbour on another device. The grid may have any number of blocks, resident or not. */
WEIR_KERNEL(stencil_step, stencil_args)
{
    const weir_coop block = weir_coop_block(coop);
    const uint32_t tag = args->step % 2;
    const uint32_t out = args->fields[(args->step + 1) % 2];
    for (uint32_t index = coop.block; index < args->ranks; index += coop.blocks) {
        const weir_dev_window_rank self = weir_dev_window_at(&args->window, index);
        const uint32_t above = index == 0 && self.number > 0;
        const uint32_t below = index + 1 == args->ranks && self.number + 1 < args->all;
        if (args->step > 0 &&
            weir_dev_window_wait(&self, WEIR_ANY_RANK, (args->step - 1) % 2, above + below, block) != WEIR_OK) {
            return;
        }
        compute(&self, args->fields[args->step % 2], out, block);
        if (args->step + 1 < STEPS && ((above != 0 && send_up(&self, out, tag, block) != WEIR_OK) ||
                                       (below != 0 && send_down(&self, out, tag, block) != WEIR_OK))) {
            return;
        }
    }
}

/* ---- a device and its objects --------------------------------------------------------------------------- */

typedef struct worker {
    rank_job job;
    weir_window *window;
    weir_memory *fields[2];
    stencil_args args;
    double *start, *expected; /* the whole field before the first and after the last step, with a row of zeros at both
                                 ends */
} worker;

static uint64_t device_rows(const worker *w) { return (uint64_t)w->args.ranks * ROWS; }

static bool set_up(worker *w, const rank_start *start)
{
    const rank_job *job = &w->job;
    weir_window_opts opts = WEIR_OPTS(weir_window_opts);
    opts.ranks = settings.ranks;
    memset(w, 0, sizeof *w);
    w->args.ranks = settings.ranks;
    if (!job_open(start, &w->job) || !ok(job, weir_window_create(job->comm, &opts, &w->window))) {
        return false;
    }
    for (int i = 0; i < 2; i++) {
        /* A part begins ROWS rows behind the one before it and has two more: neighbours' parts overlap. */
        if (!ok(job, weir_memory_allocate(job->comm, (device_rows(w) + 2) * ROW_BYTES, NULL, &w->fields[i])) ||
            !ok(job, weir_window_register(w->window, w->fields[i], ROWS * ROW_BYTES, (ROWS + 2) * ROW_BYTES,
                                          &w->args.fields[i]))) {
            return false;
        }
    }
    weir_window_device(w->window, &w->args.window);
    w->args.first = weir_window_first(w->window);
    w->args.all = weir_window_ranks(w->window);
    return ok(job, weir_kernel_load(job->device, &stencil_resident)) &&
           ok(job, weir_kernel_load(job->device, &stencil_step));
}

/* After the barrier no other device uses this one's memory. */
static bool take_down(worker *w)
{
    if (!job_meet(&w->job)) {
        return false;
    }
    weir_window_destroy(w->window);
    weir_memory_destroy(w->fields[1]);
    weir_memory_destroy(w->fields[0]);
    job_close(&w->job);
    return true;
}

/* ---- the serial result ----------------------------------------------------------------------------------- */

/* Values are integers, and after STEPS steps they still have fewer than 53 bits: all sums are exact. */
static bool compute_serially(worker *w)
{
    const uint64_t count = ((uint64_t)w->args.all * ROWS + 2) * COLUMNS;
    w->start = (double *)calloc(count, sizeof(double));
    w->expected = (double *)calloc(count, sizeof(double));
    double *next = (double *)calloc(count, sizeof(double));
    if (w->start == NULL || w->expected == NULL || next == NULL) {
        free(next);
        return false;
    }
    for (uint64_t i = COLUMNS; i < count - COLUMNS; i++) {
        w->start[i] = (double)(i * 0x9e3779b97f4a7c15u >> 60);
    }
    memcpy(w->expected, w->start, count * sizeof(double));
    for (int step = 0; step < STEPS; step++) {
        double *from = w->expected;
        for (uint64_t i = COLUMNS; i < count - COLUMNS; i++) {
            next[i] = -4 * from[i] + from[i - 1] + from[i + 1] + from[i - COLUMNS] + from[i + COLUMNS];
        }
        w->expected = next;
        next = from;
    }
    free(next);
    return true;
}

/* ---- both forms, checked and timed ------------------------------------------------------------------------ */

static bool prepare(worker *w)
{
    const rank_job *job = &w->job;
    const double *from = w->start + (uint64_t)w->args.first * ROWS * COLUMNS;
    for (int i = 0; i < 2; i++) {
        if (!ok(job, weir_device_copy(job->device, weir_memory_pointer(w->fields[i]), from,
                                      (device_rows(w) + 2) * ROW_BYTES))) {
            return false;
        }
    }
    return job_meet(job);
}

static bool compare(worker *w, const char *form)
{
    const rank_job *job = &w->job;
    const uint64_t count = device_rows(w) * COLUMNS;
    const double *expected = w->expected + ((uint64_t)w->args.first * ROWS + 1) * COLUMNS;
    const char *result = (const char *)weir_memory_pointer(w->fields[STEPS % 2]) + ROW_BYTES;
    double *values = (double *)malloc(count * sizeof(double));
    uint64_t wrong = 0;
    if (values == NULL || !ok(job, weir_device_copy(job->device, values, result, count * sizeof(double)))) {
        free(values);
        return false;
    }
    for (uint64_t i = 0; i < count; i++) {
        wrong += values[i] != expected[i];
    }
    free(values);
    if (wrong != 0) {
        fprintf(stderr, "Device %" PRIu32 ", %s: %" PRIu64 " of %" PRIu64 " values are wrong\n", job->rank, form, wrong,
                count);
    }
    return wrong == 0;
}

/* All blocks of stencil_resident must run at the same time. Devices that share a GPU share what fits on it. */
static bool resident_shape(worker *w, weir_shape *shape)
{
    const uint32_t sharing = settings.gpus == 0 ? 1 : (w->job.ranks + settings.gpus - 1) / settings.gpus;
    shape->threads = w->job.on_cpu ? 2 : THREADS;
    if (!ok(&w->job, weir_kernel_fit(w->job.device, &stencil_resident, shape->threads, &shape->blocks))) {
        return false;
    }
    shape->blocks = shape->blocks > sharing ? shape->blocks / sharing : 1;
    shape->blocks = shape->blocks < w->args.ranks ? shape->blocks : w->args.ranks;
    return true;
}

static bool launch_resident(worker *w, weir_shape shape)
{
    weir_launch_opts opts = WEIR_OPTS(weir_launch_opts);
    opts.cooperative = true;
    return ok(&w->job, weir_launch(w->job.device, &stencil_resident, shape, &w->args, &opts, w->job.stream));
}

static bool launch_steps(worker *w, weir_shape shape)
{
    bool fine = true;
    for (w->args.step = 0; w->args.step < STEPS && fine; w->args.step++) {
        fine = ok(&w->job, weir_launch(w->job.device, &stencil_step, shape, &w->args, NULL, w->job.stream));
    }
    return fine;
}

static bool run_form(worker *w, const char *form, weir_shape shape, bool (*launch)(worker *, weir_shape))
{
    const rank_job *job = &w->job;
    double ms = 0;
    if (!prepare(w) || !ok(job, weir_event_record(job->device, job->begin, job->stream)) || !launch(w, shape) ||
        !ok(job, weir_event_record(job->device, job->end, job->stream)) ||
        !ok(job, weir_comm_wait(job->comm, job->stream, 0)) ||
        !ok(job, weir_event_elapsed(job->device, job->begin, job->end, &ms)) || !compare(w, form)) {
        return false;
    }
    printf("Device %" PRIu32 " (%s): %" PRIu32 " ranks, %s, %" PRIu32 " blocks: %.2f us a step\n", job->rank,
           job->label, w->args.ranks, form, shape.blocks, 1000 * ms / STEPS);
    return true;
}

static bool run_device(const rank_start *start)
{
    worker w;
    weir_shape shape;
    bool good = set_up(&w, start) && compute_serially(&w) && resident_shape(&w, &shape) &&
                run_form(&w, "one kernel", shape, launch_resident);
    if (good) {
        const weir_shape wanted = { w.args.ranks, shape.threads };
        shape = w.job.on_cpu ? weir_device_fit_shape(w.job.device, wanted) : wanted;
        good = run_form(&w, "a kernel for each step", shape, launch_steps);
    }
    free(w.start);
    free(w.expected);
    return job_end(&w.job, good && take_down(&w));
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!ranks_count_gpus(&stencil_resident, &settings.gpus)) {
        return 1;
    }
    const uint32_t usual = settings.gpus < 2 ? 2 : settings.gpus < DEVICES_MAX ? settings.gpus : (uint32_t)DEVICES_MAX;
    const unsigned long devices = argc > 1 ? strtoul(argv[1], NULL, 10) : usual;
    const unsigned long ranks = argc > 2 ? strtoul(argv[2], NULL, 10) : settings.gpus == 0 ? 6 : 264;
    if (argc > 3 || devices < 1 || devices > DEVICES_MAX || ranks < 1 || ranks > RANKS_MAX) {
        fprintf(stderr, "usage: notified_stencil [<devices> [<ranks>]], 1 to %d devices, 1 to %d ranks of each\n",
                DEVICES_MAX, RANKS_MAX);
        return 2;
    }
    settings.ranks = (uint32_t)ranks;
    if (!ranks_run_threads((uint32_t)devices, settings.gpus, run_device)) {
        return 1;
    }
    printf("Succeed!\n");
    return 0;
}
