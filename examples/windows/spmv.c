/* spmv - a sparse matrix times a vector, in blocks of a grid of ranks, with trees of messages.
 *
 *     spmv [--form window|steps|hand|split|graph|host] [--number block|multiprocessor] [--check]
 *          [--devices N] [--ranks N] [--threads N] [--steps N] [--repeats N] [--size N] [--nonzeros N]
 *
 * spmv.h is the computing of a rank and says what goes from rank to rank. This file has the forms. */
#include "common.h"

#include "spmv.h"

static uint32_t block_size = 1024; /* rows and columns of a block */
static uint32_t nonzeros = 8;      /* of a row of a block, on average */
static form_options options = { FORM_WINDOW, false, 0, 0, 512, 20, 11, NUMBER_BLOCK, CACHE_KEPT };
static uint32_t gpus;

/* ---- kernels --------------------------------------------------------------------------------------------------- */

enum { ALL_RANKS, CROSSING_RANKS, OTHER_RANKS };

typedef struct spmv_args {
    weir_dev_window window;
    weir_dev_memory_channel peers[FORM_DEVICES_MAX]; /* form hand: to each other device, with a semaphore for each rank
                                                        and one for the barrier */
    spmv_grid grid;
    const uint64_t *starts;
    const uint32_t *columns;
    const double *values;
    char *vectors; /* the parts of the device's ranks */
    uint32_t form;
    uint32_t number; /* form_number */
    uint32_t cache;  /* form_cache */
    uint32_t parts;  /* of form_part */
    uint32_t memory; /* of the vectors, in the window */
    uint32_t device, devices;
    uint32_t ranks;       /* of each device */
    uint32_t steps;       /* of spmv_resident */
    uint32_t step, phase; /* of spmv_phase */
    uint32_t which;       /* ALL_RANKS, or in the form split those that send to another device, and the others */
} spmv_args;

WEIR_FN char *part_of(const spmv_args *args, uint32_t index) { return args->vectors + index * spmv_part(&args->grid); }

WEIR_FN int is_here(const spmv_args *args, uint32_t number) { return number / args->ranks == args->device; }

/* Sends the piece of a phase from rank `index` of the device to `target`, if the form's kernels do that. */
WEIR_FN weir_status send_piece(const spmv_args *args, uint32_t index, uint32_t target, uint32_t phase, weir_coop block)
{
    const spmv_grid *grid = &args->grid;
    const uint64_t from = spmv_piece(grid, spmv_sent(grid, phase));
    const uint64_t to = spmv_piece(grid, spmv_received(grid, phase));
    const uint32_t device = target / args->ranks;
    const uint32_t other = target % args->ranks;
    if (args->form == FORM_WINDOW || (args->form == FORM_STEPS && !is_here(args, target))) {
        const weir_dev_window_rank self = weir_dev_window_at(&args->window, index);
        return weir_dev_window_put_notify(&self, target, args->memory, to, args->memory, from, spmv_piece(grid, 1),
                                          phase, block);
    }
    if (is_here(args, target)) {
        const double *source = (const double *)(const void *)(part_of(args, index) + from);
        double *destination = (double *)(void *)(part_of(args, other) + to);
        for (uint32_t i = block.rank; i < grid->size; i += block.size) {
            destination[i] = source[i];
        }
        return WEIR_OK;
    }
    if (args->form != FORM_HAND) {
        return WEIR_OK; /* the host or the stream sends it */
    }
    const weir_dev_memory_channel *peer = &args->peers[device];
    const weir_status status = weir_dev_memory_channel_put(peer, other * spmv_part(grid) + to,
                                                           index * spmv_part(grid) + from, spmv_piece(grid, 1), block);
    (void)weir_coop_sync(block);
    if (weir_coop_leads(block)) {
        const weir_dev_memory_channel own = weir_dev_memory_channel_at(peer, other);
        weir_dev_memory_channel_signal(&own);
    }
    return status;
}

/* Waits for the piece that rank `index` of the device receives from `source`, if the form's kernels do that. */
WEIR_FN weir_status await_piece(const spmv_args *args, uint32_t index, uint32_t source, uint32_t phase, weir_coop block)
{
    if (args->form == FORM_WINDOW || (args->form == FORM_STEPS && !is_here(args, source))) {
        const weir_dev_window_rank self = weir_dev_window_at(&args->window, index);
        return weir_dev_window_wait(&self, source, phase, 1, block);
    }
    if (args->form == FORM_HAND && !is_here(args, source)) {
        const weir_dev_memory_channel own = weir_dev_memory_channel_at(&args->peers[source / args->ranks], index);
        return weir_dev_memory_channel_wait_coop(&own, block);
    }
    return WEIR_OK;
}

/* Computes what a phase begins with, and sends. */
WEIR_FN weir_status begin_phase(const spmv_args *args, uint32_t index, uint32_t step, uint32_t phase, weir_coop block)
{
    const uint32_t number = args->device * args->ranks + index;
    const uint32_t target = spmv_target(&args->grid, number, phase);
    if ((args->parts & FORM_COMPUTES) != 0) {
        spmv_block own;
        own.starts = args->starts + (uint64_t)index * (args->grid.size + 1);
        own.columns = args->columns;
        own.values = args->values;
        spmv_begin(&args->grid, &own, part_of(args, index), number, step, phase, block);
    }
    return target != SPMV_NOBODY && (args->parts & FORM_EXCHANGES) != 0 ? send_piece(args, index, target, phase, block)
                                                                        : WEIR_OK;
}

/* Waits for what a phase brings, and adds it. */
WEIR_FN weir_status end_phase(const spmv_args *args, uint32_t index, uint32_t phase, weir_coop block)
{
    const uint32_t number = args->device * args->ranks + index;
    const uint32_t source = spmv_source(&args->grid, number, phase);
    weir_status status = WEIR_OK;
    if (source != SPMV_NOBODY && (args->parts & FORM_EXCHANGES) != 0) {
        status = await_piece(args, index, source, phase, block);
    } else if (source != SPMV_NOBODY) {
        status = form_no_wait(args->cache, block);
    }
    if (status == WEIR_OK && (args->parts & FORM_COMPUTES) != 0) {
        spmv_end(&args->grid, part_of(args, index), number, phase, block);
        (void)weir_coop_sync(block);
    }
    return status;
}

/* Form `window`: one kernel for all steps. A block that serves several ranks sends for all of them before it waits for
 * any of them. */
WEIR_KERNEL_FOR(spmv_resident, spmv_args, FORM_THREADS_MAX)
{
    const weir_coop block = weir_coop_block(coop);
    uint32_t first;
    if (form_first_rank(&args->window, args->number, &first, block) != WEIR_OK) {
        return; /* the communicator has the error */
    }
    const uint32_t phases = spmv_phases(&args->grid);
    for (uint32_t step = 0; step < args->steps; step++) {
        for (uint32_t phase = 0; phase < phases; phase++) {
            for (uint32_t index = first; index < args->ranks; index += coop.blocks) {
                if (begin_phase(args, index, step, phase, block) != WEIR_OK) {
                    return;
                }
            }
            for (uint32_t index = first; index < args->ranks; index += coop.blocks) {
                if (end_phase(args, index, phase, block) != WEIR_OK) {
                    return;
                }
            }
        }
        if ((args->parts & FORM_EXCHANGES) != 0 && weir_dev_window_barrier(&args->window, block) != WEIR_OK) {
            return;
        }
    }
}

/* The other forms: a kernel for each phase. It ends the phase before and begins this one; the last kernel of a step
 * only ends the last phase. */
WEIR_KERNEL_FOR(spmv_phase, spmv_args, FORM_THREADS_MAX)
{
    const weir_coop block = weir_coop_block(coop);
    const uint32_t phase = args->phase;
    for (uint32_t index = coop.block; index < args->ranks; index += coop.blocks) {
        const uint32_t target = spmv_target(&args->grid, args->device * args->ranks + index, phase);
        const int crosses = target != SPMV_NOBODY && !is_here(args, target);
        if ((args->which == CROSSING_RANKS && !crosses) || (args->which == OTHER_RANKS && crosses)) {
            continue;
        }
        if ((phase > 0 && end_phase(args, index, phase - 1, block) != WEIR_OK) ||
            (phase < spmv_phases(&args->grid) && begin_phase(args, index, args->step, phase, block) != WEIR_OK)) {
            return;
        }
    }
}

/* The barrier between two steps, of the forms `steps` and `hand`; one block. */
WEIR_KERNEL_FOR(spmv_meet, spmv_args, FORM_THREADS_MAX)
{
    const weir_coop block = weir_coop_block(coop);
    if (args->form == FORM_STEPS) {
        (void)weir_dev_window_barrier(&args->window, block);
        return;
    }
    for (uint32_t device = block.rank; device < args->devices; device += block.size) {
        if (device != args->device) {
            const weir_dev_memory_channel last = weir_dev_memory_channel_at(&args->peers[device], args->ranks);
            weir_dev_memory_channel_signal(&last);
        }
    }
    for (uint32_t device = block.rank; device < args->devices; device += block.size) {
        if (device != args->device) {
            const weir_dev_memory_channel last = weir_dev_memory_channel_at(&args->peers[device], args->ranks);
            (void)weir_dev_memory_channel_wait(&last); /* the communicator has the error */
        }
    }
}

/* ---- a device and its objects ------------------------------------------------------------------------------------ */

typedef struct spmv {
    form_run run;
    weir_window *window;
    weir_proxy *proxy;
    weir_memory *vectors, *starts, *columns, *values;
    weir_memory_channel *hand[FORM_DEVICES_MAX];
    weir_port_channel *port[FORM_DEVICES_MAX];
    spmv_args args;
} spmv;

static uint32_t powers_below(uint32_t count)
{
    uint32_t powers = 0;
    while ((1u << powers) < count) {
        powers++;
    }
    return powers;
}

/* The grid that is nearest to a square. */
static spmv_grid make_grid(uint32_t ranks)
{
    spmv_grid grid;
    grid.rows = 1;
    for (uint32_t rows = 1; (uint64_t)rows * rows <= ranks; rows++) {
        grid.rows = ranks % rows == 0 ? rows : grid.rows;
    }
    grid.columns = ranks / grid.rows;
    grid.size = block_size;
    grid.broadcasts = powers_below(grid.rows);
    grid.sums = powers_below(grid.columns);
    return grid;
}

static uint64_t hash(uint64_t row, uint64_t column, uint64_t salt)
{
    uint64_t word = (row * 0x9e3779b97f4a7c15u + column) * 0xd1342543de82ef95u + salt;
    word = (word ^ word >> 31) * 0xaf251af3b0f025b5u;
    return word ^ word >> 29;
}

/* The matrix: `row` is of all rows, and `column` a column of the grid. */
static uint32_t row_count(uint64_t row, uint32_t column)
{
    return (uint32_t)(hash(row, column, 0) % (2 * nonzeros + 1));
}

static uint32_t element_column(uint64_t row, uint32_t column, uint32_t k)
{
    return (uint32_t)(hash(row, column, 2 * k + 1) % block_size);
}

static double element_value(uint64_t row, uint32_t column, uint32_t k)
{
    return (double)(hash(row, column, 2 * k + 2) % 17) - 8;
}

/* Fills the starts, and returns the number of elements. */
static uint64_t count_elements(const spmv *s, uint64_t *starts)
{
    const spmv_grid *grid = &s->args.grid;
    uint64_t count = 0;
    for (uint32_t index = 0; index < s->run.ranks; index++) {
        const uint32_t number = s->args.device * s->run.ranks + index;
        for (uint32_t i = 0; i <= grid->size; i++) {
            starts[(uint64_t)index * (grid->size + 1) + i] = count;
            count += i < grid->size
                         ? row_count((uint64_t)(number / grid->columns) * grid->size + i, number % grid->columns)
                         : 0;
        }
    }
    return count;
}

static void fill_elements(const spmv *s, uint32_t *columns, double *values)
{
    const spmv_grid *grid = &s->args.grid;
    uint64_t at = 0;
    for (uint64_t i = 0; i < (uint64_t)s->run.ranks * grid->size; i++) {
        const uint32_t number = s->args.device * s->run.ranks + (uint32_t)(i / grid->size);
        const uint64_t row = (uint64_t)(number / grid->columns) * grid->size + i % grid->size;
        const uint32_t column = number % grid->columns;
        for (uint32_t k = 0; k < row_count(row, column); k++, at++) {
            columns[at] = element_column(row, column, k);
            values[at] = element_value(row, column, k);
        }
    }
}

/* Allocates memory of the device with a copy of `data`. */
static bool bring(const rank_job *job, const void *data, uint64_t bytes, weir_memory **memory)
{
    return ok(job, weir_memory_allocate(job->comm, bytes, NULL, memory)) &&
           ok(job, weir_device_copy(job->device, weir_memory_pointer(*memory), data, bytes));
}

/* Makes the blocks of this device's ranks. */
static bool make_blocks(spmv *s)
{
    const rank_job *job = &s->run.job;
    const uint64_t rows = (uint64_t)s->run.ranks * (s->args.grid.size + 1);
    uint64_t *starts = (uint64_t *)form_allocate(rows, sizeof(uint64_t));
    const uint64_t count = starts != NULL ? count_elements(s, starts) + 1 : 0; /* at least one: no memory is empty */
    uint32_t *columns = (uint32_t *)form_allocate(count, sizeof(uint32_t));
    double *values = (double *)form_allocate(count, sizeof(double));
    bool good = starts != NULL && columns != NULL && values != NULL;
    if (good) {
        fill_elements(s, columns, values);
        good = bring(job, starts, rows * sizeof(uint64_t), &s->starts) &&
               bring(job, columns, count * sizeof(uint32_t), &s->columns) &&
               bring(job, values, count * sizeof(double), &s->values);
    }
    free(values);
    free(columns);
    free(starts);
    if (good) {
        s->args.starts = (const uint64_t *)weir_memory_pointer(s->starts);
        s->args.columns = (const uint32_t *)weir_memory_pointer(s->columns);
        s->args.values = (const double *)weir_memory_pointer(s->values);
    }
    return good;
}

static bool connect_peers(spmv *s)
{
    const rank_job *job = &s->run.job;
    weir_memory_channel_connect_opts by_hand = WEIR_OPTS(weir_memory_channel_connect_opts);
    weir_port_channel_connect_opts by_port = WEIR_OPTS(weir_port_channel_connect_opts);
    by_hand.semaphores = s->run.ranks + 1;
    by_port.end = options.form == FORM_HOST ? WEIR_SEMAPHORE_HOST : WEIR_SEMAPHORE_DEVICE;
    if (options.form != FORM_HAND && !ok(job, weir_proxy_create(job->comm, NULL, &s->proxy))) {
        return false;
    }
    for (uint32_t peer = 0; peer < job->ranks; peer++) {
        if (peer == job->rank) {
            continue;
        }
        if (options.form != FORM_HAND) {
            if (!ok(job, weir_port_channel_connect(s->proxy, peer, 0, s->vectors, &by_port, &s->port[peer]))) {
                return false;
            }
            continue;
        }
        if (!ok(job, weir_memory_channel_connect(job->comm, peer, 0, s->vectors, &by_hand, &s->hand[peer]))) {
            return false;
        }
        weir_memory_channel_device(s->hand[peer], &s->args.peers[peer]);
    }
    return s->proxy == NULL || ok(job, weir_proxy_start(s->proxy));
}

static bool open_window(spmv *s)
{
    const rank_job *job = &s->run.job;
    const uint64_t part = spmv_part(&s->args.grid);
    weir_window_opts opts = WEIR_OPTS(weir_window_opts);
    opts.ranks = s->run.ranks;
    if (!ok(job, weir_window_create(job->comm, &opts, &s->window)) ||
        !ok(job, weir_window_register(s->window, s->vectors, part, part, &s->args.memory))) {
        return false;
    }
    weir_window_device(s->window, &s->args.window);
    return true;
}

static bool set_up(spmv *s)
{
    const rank_job *job = &s->run.job;
    spmv_args *args = &s->args;
    args->grid = make_grid(s->run.ranks * job->ranks);
    args->form = options.form;
    args->number = options.number;
    args->cache = options.cache;
    args->device = job->rank;
    args->devices = job->ranks;
    args->ranks = s->run.ranks;
    args->steps = options.steps;
    if (!make_blocks(s) ||
        !ok(job, weir_memory_allocate(job->comm, s->run.ranks * spmv_part(&args->grid), NULL, &s->vectors)) ||
        !ok(job, weir_kernel_load(job->device, &spmv_meet))) {
        return false;
    }
    args->vectors = (char *)weir_memory_pointer(s->vectors);
    const bool windows = options.form == FORM_WINDOW || options.form == FORM_STEPS;
    return windows ? open_window(s) : connect_peers(s) && (options.form != FORM_SPLIT || form_fork_open(&s->run));
}

/* After the barrier no other device uses this one's memory. */
static bool take_down(spmv *s)
{
    if (!job_meet(&s->run.job)) {
        return false;
    }
    form_fork_close(&s->run);
    for (uint32_t peer = 0; peer < s->run.job.ranks; peer++) {
        weir_port_channel_destroy(s->port[peer]);
        weir_memory_channel_destroy(s->hand[peer]);
    }
    weir_proxy_destroy(s->proxy);
    weir_window_destroy(s->window);
    weir_memory_destroy(s->vectors);
    weir_memory_destroy(s->values);
    weir_memory_destroy(s->columns);
    weir_memory_destroy(s->starts);
    job_close(&s->run.job);
    return true;
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

/* Every step writes x again; nothing is to be prepared. */
static bool prepare(form_run *run)
{
    (void)run;
    return true;
}

static bool launch_phase(spmv *s, uint32_t step, uint32_t phase, uint32_t which, void *stream)
{
    const rank_job *job = &s->run.job;
    s->args.step = step;
    s->args.phase = phase;
    s->args.which = which;
    return ok(job, weir_launch(job->device, &spmv_phase, s->run.step, &s->args, NULL, stream));
}

/* Posts the pieces that leave the device in a phase: on `stream`, or for NULL from the host. */
static bool post_pieces(spmv *s, uint32_t phase, void *stream)
{
    const spmv_grid *grid = &s->args.grid;
    bool good = true;
    for (uint32_t index = 0; index < s->run.ranks && good; index++) {
        const uint32_t target = spmv_target(grid, s->args.device * s->run.ranks + index, phase);
        const uint32_t device = target / s->run.ranks;
        if (target == SPMV_NOBODY || device == s->args.device) {
            continue;
        }
        const uint64_t remote = target % s->run.ranks * spmv_part(grid) + spmv_piece(grid, spmv_received(grid, phase));
        const uint64_t local = index * spmv_part(grid) + spmv_piece(grid, spmv_sent(grid, phase));
        good =
            ok(&s->run.job,
               stream != NULL
                   ? weir_port_channel_put_signal_on_stream(s->port[device], remote, local, spmv_piece(grid, 1), stream)
                   : weir_port_channel_put_signal(s->port[device], remote, local, spmv_piece(grid, 1), NULL));
    }
    return good;
}

/* Waits for the pieces that come to the device in a phase. */
static bool await_pieces(spmv *s, uint32_t phase, void *stream)
{
    bool good = true;
    for (uint32_t index = 0; index < s->run.ranks && good; index++) {
        const uint32_t source = spmv_source(&s->args.grid, s->args.device * s->run.ranks + index, phase);
        const uint32_t device = source / s->run.ranks;
        if (source == SPMV_NOBODY || device == s->args.device) {
            continue;
        }
        weir_port_channel *channel = s->port[device];
        good = ok(&s->run.job, stream != NULL ? weir_port_channel_wait_on_stream(channel, stream)
                                              : weir_semaphore_wait(weir_port_channel_semaphore(channel), 0));
    }
    return good;
}

/* A phase of the forms whose kernels do not send. */
static bool do_phase(spmv *s, uint32_t step, uint32_t phase, bool exchanges)
{
    const rank_job *job = &s->run.job;
    if (options.form == FORM_HOST) {
        return launch_phase(s, step, phase, ALL_RANKS, job->stream) &&
               (!exchanges || (ok(job, weir_comm_wait(job->comm, job->stream, 0)) && post_pieces(s, phase, NULL) &&
                               await_pieces(s, phase, NULL)));
    }
    if (options.form == FORM_GRAPH) {
        return launch_phase(s, step, phase, ALL_RANKS, job->stream) &&
               (!exchanges || (post_pieces(s, phase, job->stream) && await_pieces(s, phase, job->stream)));
    }
    /* Split: ranks that send to another device run on the second stream, which also exchanges. */
    void *side = s->run.fork.stream;
    return form_fork_begin(&s->run) && launch_phase(s, step, phase, CROSSING_RANKS, side) &&
           (!exchanges || (post_pieces(s, phase, side) && await_pieces(s, phase, side))) &&
           launch_phase(s, step, phase, OTHER_RANKS, job->stream) && form_fork_end(&s->run);
}

/* The barrier between two steps. */
static bool meet(spmv *s)
{
    const rank_job *job = &s->run.job;
    const weir_shape one = { 1, s->run.step.threads };
    bool good = true;
    if (options.form == FORM_STEPS || options.form == FORM_HAND) {
        return ok(job, weir_launch(job->device, &spmv_meet, one, &s->args, NULL, job->stream));
    }
    if (options.form == FORM_HOST) {
        return ok(job, weir_comm_wait(job->comm, job->stream, 0)) && job_meet(job);
    }
    for (uint32_t peer = 0; peer < job->ranks && good; peer++) {
        good = peer == job->rank || ok(job, weir_port_channel_signal_on_stream(s->port[peer], job->stream));
    }
    for (uint32_t peer = 0; peer < job->ranks && good; peer++) {
        good = peer == job->rank || ok(job, weir_port_channel_wait_on_stream(s->port[peer], job->stream));
    }
    return good;
}

static bool put_steps(form_run *run, uint32_t parts)
{
    spmv *s = (spmv *)run;
    const rank_job *job = &run->job;
    const uint32_t phases = spmv_phases(&s->args.grid);
    const bool exchanges = (parts & FORM_EXCHANGES) != 0;
    weir_launch_opts resident = WEIR_OPTS(weir_launch_opts);
    bool good = true;
    resident.cooperative = true;
    s->args.parts = parts;
    if (options.form == FORM_WINDOW) {
        return ok(job, weir_launch(job->device, &spmv_resident, run->resident, &s->args, &resident, job->stream));
    }
    for (uint32_t step = 0; step < options.steps && good; step++) {
        for (uint32_t phase = 0; phase < phases && good; phase++) {
            good = options.form == FORM_STEPS || options.form == FORM_HAND
                       ? launch_phase(s, step, phase, ALL_RANKS, job->stream)
                       : do_phase(s, step, phase, exchanges);
        }
        good = good && launch_phase(s, step, phases, ALL_RANKS, job->stream) && (!exchanges || meet(s));
    }
    return good;
}

/* ---- the check --------------------------------------------------------------------------------------------------- */

/* A row of y after the last step, from the matrix and the vector themselves. */
static double row_serially(const spmv_grid *grid, uint64_t row)
{
    double sum = 0;
    for (uint32_t column = 0; column < grid->columns; column++) {
        for (uint32_t k = 0; k < row_count(row, column); k++) {
            const uint64_t index = (uint64_t)column * grid->size + element_column(row, column, k);
            sum += element_value(row, column, k) * spmv_x(index, options.steps - 1);
        }
    }
    return sum;
}

/* Compares the pieces of y that end on this device. They must be exact. */
static bool compare(form_run *run)
{
    spmv *s = (spmv *)run;
    const spmv_grid *grid = &s->args.grid;
    double *y = (double *)form_allocate(grid->size, sizeof(double));
    uint64_t wrong = 0;
    bool good = y != NULL;
    for (uint32_t index = 0; index < run->ranks && good; index++) {
        const uint32_t number = s->args.device * run->ranks + index;
        if (number % grid->columns != 0) {
            continue;
        }
        const char *piece = s->args.vectors + index * spmv_part(grid) + spmv_piece(grid, 1);
        good = ok(&run->job, weir_device_copy(run->job.device, y, piece, spmv_piece(grid, 1)));
        for (uint32_t i = 0; i < grid->size && good; i++) {
            wrong += y[i] != row_serially(grid, (uint64_t)(number / grid->columns) * grid->size + i);
        }
    }
    free(y);
    if (wrong != 0) {
        fprintf(stderr, "Device %" PRIu32 ": %" PRIu64 " rows of y are wrong\n", run->job.rank, wrong);
    }
    return good && wrong == 0;
}

static const form_app app = { "spmv", &spmv_resident, &spmv_phase, prepare, put_steps, compare };

static bool run_device(const rank_start *start)
{
    spmv *s = (spmv *)form_allocate(1, sizeof(spmv));
    if (s == NULL) {
        return false;
    }
    bool good = form_open(&s->run, start, &app, &options, gpus) && set_up(s) && form_measure(&s->run, &app);
    good = job_end(&s->run.job, good && take_down(s));
    free(s);
    return good;
}

int main(int argc, char **argv)
{
    const form_size sizes[] = { { "--size", &block_size, 1, 1 << 20 }, { "--nonzeros", &nonzeros, 1, 1 << 12 } };
    return form_main(argc, argv, &app, &options, sizes, 2, &gpus, run_device);
}
