/* diffusion - horizontal diffusion of a weather code, with three dependent exchanges of rows in a step.
 *
 *     diffusion [--form window|steps|hand|split|graph|host] [--number block|multiprocessor] [--check]
 *               [--devices N] [--ranks N] [--threads N] [--steps N] [--repeats N] [--columns N] [--levels N] [--rows N]
 *
 * diffusion.h is the computing of a rank and says which rows go to the neighbours. This file has the forms. */
#include "common.h"

#include "diffusion.h"

static diffusion_grid sizes_of_grid = { 128, 26, 8, 0, 0 };
static form_options options = { FORM_WINDOW, false, 0, 0, 1024, 20, 11, NUMBER_BLOCK, CACHE_KEPT };
static uint32_t gpus;

/* ---- kernels --------------------------------------------------------------------------------------------------- */

typedef struct diffusion_args {
    weir_dev_window window;
    weir_dev_memory_channel sides[2]; /* form hand: to the devices above and below */
    diffusion_grid grid;
    char *fields; /* of the device */
    uint32_t form;
    uint32_t number;             /* form_number */
    uint32_t cache;              /* form_cache */
    uint32_t parts;              /* of form_part */
    uint32_t memory;             /* of the fields, in the window */
    uint32_t first;              /* number of the device's first rank */
    uint32_t steps;              /* of diffusion_resident */
    uint32_t stage, end_stage;   /* of diffusion_stage, counted through all steps; end_stage: the number of all */
    uint32_t begin, end, stride; /* ranks for which diffusion_stage runs */
} diffusion_args;

WEIR_FN char *part_of(const diffusion_args *args, uint32_t index)
{
    return args->fields + (uint64_t)index * args->grid.rows * row_bytes(&args->grid);
}

/* Whether a rank has a neighbour above, or below, with which it exchanges rows: any in the form `window`, and one of
 * another device in the others. */
WEIR_FN int has_above(const diffusion_args *args, uint32_t index)
{
    return (args->parts & FORM_EXCHANGES) != 0 && args->first + index > 0 && (index == 0 || args->form == FORM_WINDOW);
}

WEIR_FN int has_below(const diffusion_args *args, uint32_t index)
{
    return (args->parts & FORM_EXCHANGES) != 0 && args->first + index + 1 < args->grid.strips &&
           (index + 1 == args->grid.ranks || args->form == FORM_WINDOW);
}

/* Sends a row of a rank's part to a row of its neighbour's part, above (`up`) or below. */
WEIR_FN weir_status send_row(const diffusion_args *args, uint32_t index, int up, uint32_t stage, uint32_t step,
                             weir_coop group)
{
    const diffusion_grid *grid = &args->grid;
    const uint32_t field = stage_field(stage, step);
    const uint64_t own = row_at(grid, field, up ? 1 : grid->rows);
    const uint64_t other = row_at(grid, field, up ? grid->rows + 1 : 0);
    if (args->form == FORM_WINDOW || args->form == FORM_STEPS) {
        /* The stage is the tag: no neighbour sends the row of the next step before it has all rows of this one. */
        const weir_dev_window_rank self = weir_dev_window_at(&args->window, index);
        return weir_dev_window_put_notify(&self, up ? self.number - 1 : self.number + 1, args->memory, other,
                                          args->memory, own, row_bytes(grid), stage, group);
    }
    if (args->form == FORM_HAND) {
        /* Offsets in the devices' memories: the part of the last rank begins so far behind that of the first one. */
        const uint64_t last = (uint64_t)(grid->ranks - 1) * grid->rows * row_bytes(grid);
        const weir_dev_memory_channel *side = &args->sides[up ? 0 : 1];
        const weir_status status =
            weir_dev_memory_channel_put(side, other + (up ? last : 0), own + (up ? 0 : last), row_bytes(grid), group);
        (void)weir_coop_sync(group);
        if (weir_coop_leads(group)) {
            weir_dev_memory_channel_signal(side);
        }
        return status;
    }
    return WEIR_OK; /* the host or the stream sends it */
}

/* Sends a stage's rows to the neighbours. Ranks of one device share the row, so only a notification goes: one warp at
 * the block's end sends it while the others compute. If that fails, the block's next wait returns the error, which is
 * sticky. */
WEIR_FN weir_status send_rows(const diffusion_args *args, uint32_t index, uint32_t stage, uint32_t step,
                              weir_coop block)
{
    const uint32_t warp = block.rank / weir_arch_warp_size();
    const uint32_t last = (block.size - 1) / weir_arch_warp_size();
    weir_status status = WEIR_OK;
    for (int up = 1; up >= 0 && status == WEIR_OK; up--) {
        const int shared = args->form == FORM_WINDOW && index != (up ? 0 : args->grid.ranks - 1);
        const int sends =
            up ? stage_sends_up(stage) && has_above(args, index) : stage_sends_down(stage) && has_below(args, index);
        if (sends && (!shared || warp == (up || last == 0 ? last : last - 1))) {
            status = send_row(args, index, up, stage, step, shared ? weir_coop_warp(block) : block);
        }
        status = shared ? WEIR_OK : status;
    }
    return status;
}

/* A stage of a rank: the rows that are sent, the puts, the other rows. */
WEIR_FN weir_status do_stage(const diffusion_args *args, uint32_t index, uint32_t stage, uint32_t step, weir_coop block)
{
    const int computes = (args->parts & FORM_COMPUTES) != 0;
    if (computes) {
        diffusion_edge(&args->grid, part_of(args, index), stage, step, args->parts == FORM_COMPUTES, block);
    }
    const weir_status status = send_rows(args, index, stage, step, block);
    if (computes && status == WEIR_OK) {
        diffusion_rest(&args->grid, part_of(args, index), stage, step, args->parts == FORM_COMPUTES, block);
    }
    return status;
}

/* Waits for the rows that the neighbours send in a stage, if the form's kernels do that. */
WEIR_FN weir_status await_rows(const diffusion_args *args, uint32_t index, uint32_t stage, weir_coop block)
{
    const int above = stage_sends_down(stage) && has_above(args, index);
    const int below = stage_sends_up(stage) && has_below(args, index);
    weir_status status = WEIR_OK;
    if (args->form == FORM_WINDOW || args->form == FORM_STEPS) {
        if (args->parts == FORM_COMPUTES) {
            return form_no_wait(args->cache, block);
        }
        const weir_dev_window_rank self = weir_dev_window_at(&args->window, index);
        return weir_dev_window_wait(&self, WEIR_ANY_RANK, stage, (uint64_t)above + (uint64_t)below, block);
    }
    if (args->form == FORM_HAND) {
        status = above ? weir_dev_memory_channel_wait_coop(&args->sides[0], block) : WEIR_OK;
        status = below && status == WEIR_OK ? weir_dev_memory_channel_wait_coop(&args->sides[1], block) : status;
    }
    return status;
}

/* Form `window`: one kernel for all steps. A block that serves several ranks computes and sends for all of them before
 * it waits for any. */
WEIR_KERNEL_FOR(diffusion_resident, diffusion_args, FORM_THREADS_MAX)
{
    const weir_coop block = weir_coop_block(coop);
    uint32_t first;
    if (form_first_rank(&args->window, args->number, &first, block) != WEIR_OK) {
        return; /* the communicator has the error */
    }
    for (uint32_t count = 0; count < args->steps * STAGES; count++) {
        for (uint32_t index = first; index < args->grid.ranks; index += coop.blocks) {
            if (do_stage(args, index, count % STAGES, count / STAGES, block) != WEIR_OK) {
                return;
            }
        }
        for (uint32_t index = first; index < args->grid.ranks; index += coop.blocks) {
            if (await_rows(args, index, count % STAGES, block) != WEIR_OK) {
                return;
            }
        }
    }
}

/* The other forms: a kernel for each stage. It waits for the rows of the stage before. In the forms `steps` and `hand`
 * one more kernel, behind the last stage, only waits. */
WEIR_KERNEL_FOR(diffusion_stage, diffusion_args, FORM_THREADS_MAX)
{
    const weir_coop block = weir_coop_block(coop);
    const uint32_t count = args->stage;
    for (uint32_t index = args->begin + coop.block * args->stride; index < args->end;
         index += coop.blocks * args->stride) {
        if ((count > 0 && await_rows(args, index, (count - 1) % STAGES, block) != WEIR_OK) ||
            (count < args->end_stage && do_stage(args, index, count % STAGES, count / STAGES, block) != WEIR_OK)) {
            return;
        }
    }
}

/* ---- a device and its objects ------------------------------------------------------------------------------------ */

typedef struct diffusion {
    form_run run;
    weir_window *window;
    weir_proxy *proxy;
    weir_memory *fields;
    weir_memory_channel *hand[2];
    weir_port_channel *port[2];
    diffusion_args args;
    double *start;    /* of this device, with the rows beside its own */
    double *expected; /* the rows of all devices after the last step, with a row of zeros at both ends */
} diffusion;

/* The neighbour device on a side: 0 above, 1 below. */
static bool has_side(const diffusion *d, int side)
{
    return side == 0 ? d->run.job.rank > 0 : d->run.job.rank + 1 < d->run.job.ranks;
}

static bool connect_side(diffusion *d, int side)
{
    const rank_job *job = &d->run.job;
    const uint32_t peer = side == 0 ? job->rank - 1 : job->rank + 1;
    weir_port_channel_connect_opts opts = WEIR_OPTS(weir_port_channel_connect_opts);
    opts.end = options.form == FORM_HOST ? WEIR_SEMAPHORE_HOST : WEIR_SEMAPHORE_DEVICE;
    if (options.form != FORM_HAND) {
        return ok(job, weir_port_channel_connect(d->proxy, peer, 0, d->fields, &opts, &d->port[side]));
    }
    if (!ok(job, weir_memory_channel_connect(job->comm, peer, 0, d->fields, NULL, &d->hand[side]))) {
        return false;
    }
    weir_memory_channel_device(d->hand[side], &d->args.sides[side]);
    return true;
}

static bool connect_sides(diffusion *d)
{
    const rank_job *job = &d->run.job;
    if (options.form != FORM_HAND && !ok(job, weir_proxy_create(job->comm, NULL, &d->proxy))) {
        return false;
    }
    for (int side = 0; side < 2; side++) {
        if (has_side(d, side) && !connect_side(d, side)) {
            return false;
        }
    }
    return d->proxy == NULL || ok(job, weir_proxy_start(d->proxy));
}

/* A part reaches from the rank's first row of the first field to its last row of the last field. */
static bool open_window(diffusion *d)
{
    const rank_job *job = &d->run.job;
    const diffusion_grid *grid = &d->args.grid;
    weir_window_opts opts = WEIR_OPTS(weir_window_opts);
    opts.ranks = grid->ranks;
    if (!ok(job, weir_window_create(job->comm, &opts, &d->window)) ||
        !ok(job, weir_window_register(d->window, d->fields, grid->rows * row_bytes(grid),
                                      row_at(grid, FIELDS - 1, grid->rows + 2), &d->args.memory))) {
        return false;
    }
    weir_window_device(d->window, &d->args.window);
    return true;
}

static bool set_up(diffusion *d)
{
    const rank_job *job = &d->run.job;
    diffusion_args *args = &d->args;
    args->grid = sizes_of_grid;
    args->grid.ranks = d->run.ranks;
    args->grid.strips = d->run.ranks * job->ranks;
    args->form = options.form;
    args->number = options.number;
    args->cache = options.cache;
    args->first = d->run.ranks * job->rank;
    args->steps = options.steps;
    args->end_stage = options.steps * STAGES;
    args->end = d->run.ranks;
    args->stride = 1;
    if (!ok(job, weir_memory_allocate(job->comm, FIELDS * field_bytes(&args->grid), NULL, &d->fields))) {
        return false;
    }
    args->fields = (char *)weir_memory_pointer(d->fields);
    const bool windows = options.form == FORM_WINDOW || options.form == FORM_STEPS;
    return windows ? open_window(d) : connect_sides(d) && (options.form != FORM_SPLIT || form_fork_open(&d->run));
}

/* After the barrier no other device uses this one's memory. */
static bool take_down(diffusion *d)
{
    if (!job_meet(&d->run.job)) {
        return false;
    }
    form_fork_close(&d->run);
    for (int side = 0; side < 2; side++) {
        weir_port_channel_destroy(d->port[side]);
        weir_memory_channel_destroy(d->hand[side]);
    }
    weir_proxy_destroy(d->proxy);
    weir_window_destroy(d->window);
    weir_memory_destroy(d->fields);
    job_close(&d->run.job);
    return true;
}

/* ---- the serial result ------------------------------------------------------------------------------------------- */

/* A step of the whole field. `lap` and `fly` have a row of zeros at both ends, as `in` has. */
static void step_serially(const diffusion_grid *grid, const double *in, double *lap, double *fly, double *out)
{
    const uint64_t next = row_values(grid);
    const uint64_t end = ((uint64_t)grid->strips * grid->rows + 1) * next;
    const uint64_t columns = grid->columns;
    for (uint64_t at = next; at < end; at++) {
        const bool inside = at % columns > 0 && at % columns + 1 < columns;
        lap[at] = inside ? 4 * in[at] - in[at - 1] - in[at + 1] - in[at - next] - in[at + next] : 0;
    }
    for (uint64_t at = next; at < end; at++) {
        const double difference = lap[at + next] - lap[at];
        fly[at] = difference * (in[at + next] - in[at]) > 0 ? 0 : difference;
    }
    for (uint64_t at = next; at < end; at++) {
        if (at % columns == 0 || at % columns + 1 == columns) {
            out[at] = in[at];
            continue;
        }
        double right = lap[at + 1] - lap[at];
        double left = lap[at] - lap[at - 1];
        right = right * (in[at + 1] - in[at]) > 0 ? 0 : right;
        left = left * (in[at] - in[at - 1]) > 0 ? 0 : left;
        out[at] = in[at] - (right - left + fly[at] - fly[at - next]) / 64;
    }
}

static double first_value(uint64_t at)
{
    uint64_t word = (at + 1) * 0x9e3779b97f4a7c15u;
    word = (word ^ word >> 31) * 0xaf251af3b0f025b5u;
    return (double)(word >> 44);
}

static bool compute_serially(diffusion *d)
{
    const diffusion_grid *grid = &d->args.grid;
    const uint64_t next = row_values(grid);
    const uint64_t own = field_bytes(grid) / sizeof(double);
    const uint64_t count = ((uint64_t)grid->strips * grid->rows + 2) * next;
    const uint64_t first = (uint64_t)d->args.first * grid->rows * next;
    double *values = (double *)form_allocate(4 * count, sizeof(double));
    double *in = values;
    double *out = values != NULL ? values + count : NULL;
    d->start = (double *)form_allocate(own, sizeof(double));
    d->expected = (double *)form_allocate(count, sizeof(double));
    const bool good = values != NULL && d->start != NULL && d->expected != NULL;
    for (uint64_t at = next; at < count - next && good; at++) {
        in[at] = first_value(at);
    }
    if (good) {
        memcpy(d->start, in + first, own * sizeof(double));
    }
    for (uint32_t step = 0; step < options.steps && options.check && good; step++) {
        double *before = in;
        step_serially(grid, in, values + 2 * count, values + 3 * count, out);
        in = out;
        out = before;
    }
    if (good) {
        memcpy(d->expected, in, count * sizeof(double));
    }
    free(values);
    return good;
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

/* Rows that no rank writes, at both ends of all devices, stay zero. */
static bool prepare(form_run *run)
{
    diffusion *d = (diffusion *)run;
    return ok(&run->job, weir_device_copy(run->job.device, d->args.fields, d->start, field_bytes(&d->args.grid)));
}

/* Launches diffusion_stage for the ranks from args.begin on. */
static bool launch_stage(diffusion *d, uint32_t count, uint32_t blocks, void *stream)
{
    const form_run *run = &d->run;
    const weir_shape shape = { blocks, run->step.threads };
    d->args.stage = count;
    return ok(&run->job, weir_launch(run->job.device, &diffusion_stage, shape, &d->args, NULL, stream));
}

/* Posts the row that goes to a side in a stage: on `stream`, or for NULL from the host. */
static bool post_row(diffusion *d, int side, uint32_t count, void *stream)
{
    const diffusion_grid *grid = &d->args.grid;
    const uint32_t field = stage_field(count % STAGES, count / STAGES);
    const uint64_t last = (uint64_t)grid->ranks * grid->rows;
    const uint64_t remote = row_at(grid, field, side == 0 ? last + 1 : 0);
    const uint64_t local = row_at(grid, field, side == 0 ? 1 : last);
    return ok(&d->run.job,
              stream != NULL
                  ? weir_port_channel_put_signal_on_stream(d->port[side], remote, local, row_bytes(grid), stream)
                  : weir_port_channel_put_signal(d->port[side], remote, local, row_bytes(grid), NULL));
}

/* Posts the rows of a stage and waits for those of the neighbours. */
static bool exchange(diffusion *d, uint32_t count, void *stream)
{
    const int up = stage_sends_up(count % STAGES);
    const int down = stage_sends_down(count % STAGES);
    const bool sends[2] = { up && has_side(d, 0), down && has_side(d, 1) };
    const bool waits[2] = { down && has_side(d, 0), up && has_side(d, 1) };
    bool good = true;
    for (int side = 0; side < 2 && good; side++) {
        good = !sends[side] || post_row(d, side, count, stream);
    }
    for (int side = 0; side < 2 && good; side++) {
        good = !waits[side] ||
               ok(&d->run.job, stream != NULL ? weir_port_channel_wait_on_stream(d->port[side], stream)
                                              : weir_semaphore_wait(weir_port_channel_semaphore(d->port[side]), 0));
    }
    return good;
}

/* Form `split`: the first and the last rank compute and exchange on the second stream, beside the others. */
static bool split_stage(diffusion *d, uint32_t count, bool exchanges)
{
    const form_run *run = &d->run;
    const uint32_t ranks = run->ranks;
    d->args.stride = ranks > 1 ? ranks - 1 : 1;
    bool good = form_fork_begin(run) && launch_stage(d, count, ranks > 1 ? 2 : 1, run->fork.stream) &&
                (!exchanges || exchange(d, count, run->fork.stream));
    d->args.begin = 1;
    d->args.end = ranks - 1;
    d->args.stride = 1;
    good = good && (ranks < 3 || launch_stage(d, count, ranks - 2, run->job.stream)) && form_fork_end(run);
    d->args.begin = 0;
    d->args.end = ranks;
    return good;
}

static bool put_steps(form_run *run, uint32_t parts)
{
    diffusion *d = (diffusion *)run;
    const rank_job *job = &run->job;
    const bool exchanges = (parts & FORM_EXCHANGES) != 0;
    weir_launch_opts resident = WEIR_OPTS(weir_launch_opts);
    bool good = true;
    resident.cooperative = true;
    d->args.parts = parts;
    if (options.form == FORM_WINDOW) {
        return ok(job, weir_launch(job->device, &diffusion_resident, run->resident, &d->args, &resident, job->stream));
    }
    const bool kernels_wait = options.form == FORM_STEPS || options.form == FORM_HAND;
    const uint32_t kernels = d->args.end_stage + (kernels_wait && exchanges ? 1 : 0);
    for (uint32_t count = 0; count < kernels && good; count++) {
        if (options.form == FORM_SPLIT) {
            good = split_stage(d, count, exchanges);
            continue;
        }
        good = launch_stage(d, count, run->step.blocks, job->stream);
        if (options.form == FORM_GRAPH && exchanges && good) {
            good = exchange(d, count, job->stream);
        }
        if (options.form == FORM_HOST && exchanges && good) {
            good = ok(job, weir_comm_wait(job->comm, job->stream, 0)) && exchange(d, count, NULL);
        }
    }
    return good;
}

/* Compares this device's rows. They must be exact. */
static bool compare(form_run *run)
{
    diffusion *d = (diffusion *)run;
    const diffusion_grid *grid = &d->args.grid;
    const uint64_t count = (uint64_t)grid->ranks * grid->rows * row_values(grid);
    const double *right = d->expected + ((uint64_t)d->args.first * grid->rows + 1) * row_values(grid);
    const char *result = d->args.fields + row_at(grid, options.steps % 2, 1);
    double *values = (double *)form_allocate(count, sizeof(double));
    uint64_t wrong = 0;
    const bool good =
        values != NULL && ok(&run->job, weir_device_copy(run->job.device, values, result, count * sizeof(double)));
    for (uint64_t i = 0; i < count && good; i++) {
        wrong += values[i] != right[i];
    }
    free(values);
    if (wrong != 0) {
        fprintf(stderr, "Device %" PRIu32 ": %" PRIu64 " of %" PRIu64 " values are wrong\n", run->job.rank, wrong,
                count);
    }
    return good && wrong == 0;
}

static const form_app app = { "diffusion", &diffusion_resident, &diffusion_stage, prepare, put_steps, compare };

static bool run_device(const rank_start *start)
{
    diffusion *d = (diffusion *)form_allocate(1, sizeof(diffusion));
    if (d == NULL) {
        return false;
    }
    bool good = form_open(&d->run, start, &app, &options, gpus) && set_up(d) && compute_serially(d) &&
                form_measure(&d->run, &app);
    good = job_end(&d->run.job, good && take_down(d));
    free(d->expected);
    free(d->start);
    free(d);
    return good;
}

int main(int argc, char **argv)
{
    const form_size sizes[] = { { "--columns", &sizes_of_grid.columns, 1, 1 << 12 },
                                { "--levels", &sizes_of_grid.levels, 1, 1 << 12 },
                                { "--rows", &sizes_of_grid.rows, 1, 1 << 12 } };
    return form_main(argc, argv, &app, &options, sizes, 3, &gpus, run_device);
}
