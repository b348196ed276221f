/* strided_halo - a 3-D stencil of 27 points on two ranks, which exchange all 26 directions of their halo in one launch.
 *
 *     strided_halo                                      both ranks, on this host
 *     mpirun -n 2 strided_halo [<device>]               one rank in each process
 *     strided_halo <ip:port> <rank> <device>            one rank: 0 or 1, on gpu:N or cpu:N
 *
 * The whole field is periodic in all dimensions; each rank has one half along x, the fastest dimension. Three forms of
 * the same program must give the result of a serial loop:
 *
 *     exchange   weir_halo_exchange, then a kernel for the step
 *     inside     one kernel for the step: it sends, computes the interior, waits, and computes the boundary
 *     packed     what programs do without halos: pack, put, wait and unpack for each part
 *
 * Read the kernels first, then add_parts. */
#include "../../common/ranks.h"

#include <weir/device/halo.h>
#include <weir/halo.h>

enum { STEPS = 6, PARTS = 26, DATA_TAG = 1, STAGING_TAG = 2 };

/* ---- the kernels --------------------------------------------------------------------------------------- */

typedef struct stencil_args {
    weir_dev_halo halo; /* of the field that is read */
    weir_dev_grid_barrier barrier;
    const double *from;
    double *to;
    uint64_t n; /* cells of the rank's box in each dimension, without ghosts */
} stencil_args;

/* Cells [low, high) of each dimension, counted with ghosts. */
typedef struct box {
    uint64_t low[3];
    uint64_t high[3];
} box;

WEIR_FN uint64_t cell_of(uint64_t n, uint64_t z, uint64_t y, uint64_t x) { return (z * (n + 2) + y) * (n + 2) + x; }

WEIR_FN double stencil(const double *field, uint64_t n, uint64_t z, uint64_t y, uint64_t x)
{
    double sum = -28 * field[cell_of(n, z, y, x)];
    for (uint64_t i = 0; i < 27; i++) {
        sum += field[cell_of(n, z + i / 9 - 1, y + i / 3 % 3 - 1, x + i % 3 - 1)];
    }
    return sum;
}

WEIR_FN void compute(const stencil_args *args, const box *cells, weir_coop coop)
{
    const uint64_t ny = cells->high[1] - cells->low[1];
    const uint64_t nx = cells->high[2] - cells->low[2];
    const uint64_t count = (cells->high[0] - cells->low[0]) * ny * nx;
    for (uint64_t i = coop.rank; i < count; i += coop.size) {
        const uint64_t z = cells->low[0] + i / nx / ny;
        const uint64_t y = cells->low[1] + i / nx % ny;
        const uint64_t x = cells->low[2] + i % nx;
        args->to[cell_of(args->n, z, y, x)] = stencil(args->from, args->n, z, y, x);
    }
}

WEIR_FN box box_of(uint64_t low, uint64_t high)
{
    box cells;
    for (int i = 0; i < 3; i++) {
        cells.low[i] = low;
        cells.high[i] = high;
    }
    return cells;
}

/* All cells, after the exchange. */
WEIR_KERNEL(step_behind, stencil_args)
{
    const box all = box_of(1, args->n + 1);
    compute(args, &all, coop);
}

/* Sends, computes the cells that need no ghosts, waits, and computes the others: for each dimension two slabs without
 * the cells of the slabs before. */
WEIR_KERNEL(step_inside, stencil_args)
{
    const box interior = box_of(2, args->n);
    coop.barrier = &args->barrier;
    if (weir_dev_halo_put(&args->halo, coop) != WEIR_OK) {
        return; /* the communicator has the error */
    }
    compute(args, &interior, coop);
    if (weir_dev_halo_wait(&args->halo, coop) != WEIR_OK) {
        return;
    }
    for (int side = 0; side < 6; side++) {
        const int dimension = side / 2;
        box slab = box_of(1, args->n + 1);
        for (int i = 0; i < dimension; i++) {
            slab.low[i] = 2;
            slab.high[i] = args->n;
        }
        slab.low[dimension] = side % 2 == 0 ? 1 : args->n;
        slab.high[dimension] = slab.low[dimension] + 1;
        compute(args, &slab, coop);
    }
}

/* ---- a rank and its objects ------------------------------------------------------------------------------ */

/* Where a packed part lies in the staging memory. */
typedef struct packed_part {
    const weir_halo_part *part; /* of the first field */
    uint64_t bytes;
    uint64_t place;
} packed_part;

typedef struct rank_state {
    rank_job job;
    uint64_t n;
    uint64_t field_bytes;
    weir_memory *fields; /* two, one behind the other; step i reads field i % 2 */
    weir_memory_channel *channel;
    weir_layout *layouts[2 * PARTS];
    weir_halo_part parts[2][PARTS]; /* of each field */
    weir_halo *halos[2];
    weir_grid_barrier *barrier;
    /* For the packed form: parts to send, and two places for each part that arrives, which steps use in turn. */
    weir_memory *staging;
    packed_part packed[PARTS];
    uint32_t packed_count;
    uint64_t staging_bytes; /* of all packed parts */
    weir_proxy *proxy;
    weir_port_channel *port;
    double *start, *expected; /* of the whole field */
    weir_shape shape;
} rank_state;

static double *field_of(const rank_state *r, int i)
{
    return (double *)((char *)weir_memory_pointer(r->fields) + (uint64_t)(i % 2) * r->field_bytes);
}

/* The cells of the boundary in a direction, each -1, 0 or 1 in z, y and x; or the ghosts behind them. */
static bool make_region(rank_state *r, const weir_layout *cell, const int direction[3], bool ghosts, weir_layout **out)
{
    const uint64_t n = r->n;
    const uint64_t sizes[3] = { n + 2, n + 2, n + 2 };
    uint64_t lengths[3];
    uint64_t starts[3];
    for (int i = 0; i < 3; i++) {
        lengths[i] = direction[i] == 0 ? n : 1;
        starts[i] = direction[i] == 0 ? 1 : direction[i] < 0 ? !ghosts : n + ghosts;
    }
    return ok(&r->job, weir_layout_create_subarray(3, sizes, lengths, starts, WEIR_LAYOUT_C, cell, out));
}

/* The directions with a part along x go to the other rank, twice: it is the neighbour on the left and on the right. The
 * others stay within the rank, because the field is periodic.
 *
 * What this rank sends in a direction arrives in the neighbour's ghosts of the opposite direction. So the neighbour's
 * part in the opposite direction is the counterpart, and both parts must have one index: the direction as rank 0 sees
 * it. */
static bool add_parts(rank_state *r)
{
    weir_layout *cell = NULL;
    bool good = ok(&r->job, weir_layout_create_bytes(sizeof(double), &cell));
    for (int code = 0, count = 0; code < 27 && good; code++) {
        const int direction[3] = { code / 9 - 1, code / 3 % 3 - 1, code % 3 - 1 };
        const int opposite[3] = { -direction[0], -direction[1], -direction[2] };
        const bool inside = direction[2] == 0;
        if (code == 13) {
            continue; /* no direction */
        }
        weir_halo_part part;
        memset(&part, 0, sizeof part);
        part.channel = inside ? NULL : r->channel;
        part.index = (uint32_t)(r->job.rank == 0 ? code : 26 - code);
        weir_layout **layouts = &r->layouts[2 * count];
        good = make_region(r, cell, direction, false, &layouts[0]) &&
               make_region(r, cell, inside ? opposite : direction, true, &layouts[1]);
        part.from = layouts[0];
        part.to = layouts[1];
        for (int i = 0; i < 2; i++) {
            part.from_offset = part.to_offset = (uint64_t)i * r->field_bytes;
            r->parts[i][count] = part;
        }
        count++;
    }
    weir_layout_destroy(cell);
    return good;
}

static bool open_halos(rank_state *r)
{
    const rank_job *job = &r->job;
    weir_halo_opts opts = WEIR_OPTS(weir_halo_opts);
    opts.array = weir_memory_pointer(r->fields);
    return ok(job, weir_memory_channel_connect(job->comm, job->rank ^ 1, DATA_TAG, r->fields, NULL, &r->channel)) &&
           add_parts(r) && ok(job, weir_halo_create(job->comm, r->parts[0], PARTS, &opts, &r->halos[0])) &&
           ok(job, weir_halo_create(job->comm, r->parts[1], PARTS, &opts, &r->halos[1])) &&
           ok(job, weir_grid_barrier_create(job->comm, &r->barrier));
}

/* Sorts the parts to the other rank by their index, so that both ranks give them the same places. */
static bool open_packed(rank_state *r)
{
    const rank_job *job = &r->job;
    for (uint32_t index = 0; index < 27; index++) {
        for (int i = 0; i < PARTS; i++) {
            const weir_halo_part *part = &r->parts[0][i];
            weir_layout_info info;
            if (part->channel == NULL || part->index != index) {
                continue;
            }
            packed_part *packed = &r->packed[r->packed_count++];
            weir_layout_get_info(part->from, &info);
            packed->part = part;
            packed->bytes = info.size;
            packed->place = r->staging_bytes;
            r->staging_bytes += info.size;
        }
    }
    return ok(job, weir_memory_allocate(job->comm, 3 * r->staging_bytes, NULL, &r->staging)) &&
           ok(job, weir_proxy_create(job->comm, NULL, &r->proxy)) &&
           ok(job, weir_port_channel_connect(r->proxy, job->rank ^ 1, STAGING_TAG, r->staging, NULL, &r->port)) &&
           ok(job, weir_proxy_start(r->proxy));
}

static bool set_up(rank_state *r, const rank_start *start)
{
    const rank_job *job = &r->job;
    memset(r, 0, sizeof *r);
    if (!job_open(start, &r->job)) {
        return false;
    }
    const weir_shape wanted = { 64, 256 };
    r->shape = weir_device_fit_shape(job->device, wanted);
    r->n = job->on_cpu ? 6 : 128;
    r->field_bytes = (r->n + 2) * (r->n + 2) * (r->n + 2) * sizeof(double);
    return ok(job, weir_memory_allocate(job->comm, 2 * r->field_bytes, NULL, &r->fields)) && open_halos(r) &&
           open_packed(r) && ok(job, weir_kernel_load(job->device, &step_behind)) &&
           ok(job, weir_kernel_load(job->device, &step_inside));
}

/* After the barrier the other rank uses nothing of this one's any more. */
static bool take_down(rank_state *r)
{
    if (!job_meet(&r->job)) {
        return false;
    }
    weir_port_channel_destroy(r->port);
    weir_halo_destroy(r->halos[1]);
    weir_halo_destroy(r->halos[0]);
    weir_memory_channel_destroy(r->channel);
    if (!job_meet(&r->job)) {
        return false;
    }
    weir_proxy_destroy(r->proxy);
    weir_grid_barrier_destroy(r->barrier);
    for (int i = 0; i < 2 * PARTS; i++) {
        weir_layout_destroy(r->layouts[i]);
    }
    weir_memory_destroy(r->staging);
    weir_memory_destroy(r->fields);
    job_close(&r->job);
    return true;
}

/* ---- the serial result ----------------------------------------------------------------------------------- */

/* Cell (z, y, x) of the whole periodic field, which has 2 * n cells along x. */
static uint64_t whole_cell(uint64_t n, uint64_t z, uint64_t y, uint64_t x)
{
    return (z % n * n + y % n) * 2 * n + x % (2 * n);
}

/* Values are integers with fewer than 53 bits: all sums are exact, in any order. */
static bool compute_serially(rank_state *r)
{
    const uint64_t n = r->n;
    const uint64_t count = 2 * n * n * n;
    r->start = (double *)calloc(count, sizeof(double));
    r->expected = (double *)calloc(count, sizeof(double));
    double *next = (double *)calloc(count, sizeof(double));
    if (r->start == NULL || r->expected == NULL || next == NULL) {
        free(next);
        return false;
    }
    for (uint64_t i = 0; i < count; i++) {
        r->start[i] = (double)(i * 0x9e3779b97f4a7c15u >> 60);
    }
    memcpy(r->expected, r->start, count * sizeof(double));
    for (int step = 0; step < STEPS; step++) {
        double *from = r->expected;
        for (uint64_t i = 0; i < count; i++) {
            const uint64_t z = i / (2 * n) / n;
            const uint64_t y = i / (2 * n) % n;
            const uint64_t x = i % (2 * n);
            double sum = -28 * from[i];
            for (uint64_t k = 0; k < 27; k++) {
                sum += from[whole_cell(n, z + n + k / 9 - 1, y + n + k / 3 % 3 - 1, x + 2 * n + k % 3 - 1)];
            }
            next[i] = sum;
        }
        r->expected = next;
        next = from;
    }
    free(next);
    return true;
}

/* ---- the three forms -------------------------------------------------------------------------------------- */

static stencil_args args_of(const rank_state *r, int step)
{
    stencil_args args;
    memset(&args, 0, sizeof args);
    args.from = field_of(r, step);
    args.to = field_of(r, step + 1);
    args.n = r->n;
    return args;
}

static bool step_after_exchange(rank_state *r, int step)
{
    const rank_job *job = &r->job;
    const stencil_args args = args_of(r, step);
    return ok(job, weir_halo_exchange(r->halos[step % 2], job->stream)) &&
           ok(job, weir_launch(job->device, &step_behind, r->shape, &args, NULL, job->stream));
}

static bool step_with_exchange(rank_state *r, int step)
{
    const rank_job *job = &r->job;
    weir_launch_opts opts = WEIR_OPTS(weir_launch_opts);
    stencil_args args = args_of(r, step);
    opts.cooperative = true; /* the blocks wait for each other, and for those of the other rank */
    weir_grid_barrier_device(r->barrier, &args.barrier);
    return ok(job, weir_halo_device(r->halos[step % 2], &args.halo)) &&
           ok(job, weir_launch(job->device, &step_inside, r->shape, &args, &opts, job->stream));
}

/* Packs, puts, waits and unpacks each part. The staging memory has the parts to send, then two places for the parts
 * that arrive. The other rank may be one step ahead: it puts into the place of its step. */
static bool step_packed(rank_state *r, int step)
{
    const rank_job *job = &r->job;
    const stencil_args args = args_of(r, step);
    char *staging = (char *)weir_memory_pointer(r->staging);
    double *field = field_of(r, step);
    const uint64_t arrivals = (uint64_t)(1 + step % 2) * r->staging_bytes;
    bool good = ok(job, weir_port_channel_flush_on_stream(r->port, job->stream)); /* the last step's parts are sent */
    for (int i = 0; i < PARTS && good; i++) {
        const weir_halo_part *part = &r->parts[0][i];
        good = part->channel != NULL ||
               ok(job, weir_layout_copy(job->device, part->to, 1, field, part->from, 1, field, NULL, job->stream));
    }
    for (uint32_t i = 0; i < r->packed_count && good; i++) {
        const packed_part *packed = &r->packed[i];
        good = ok(job, weir_layout_pack(job->device, packed->part->from, 1, field, staging + packed->place, NULL,
                                        job->stream)) &&
               ok(job, weir_port_channel_put_signal_on_stream(r->port, arrivals + packed->place, packed->place,
                                                              packed->bytes, job->stream));
    }
    for (uint32_t i = 0; i < r->packed_count && good; i++) {
        const packed_part *packed = &r->packed[i];
        good = ok(job, weir_port_channel_wait_on_stream(r->port, job->stream)) &&
               ok(job, weir_layout_unpack(job->device, packed->part->to, 1, field, staging + arrivals + packed->place,
                                          NULL, job->stream));
    }
    return good && ok(job, weir_launch(job->device, &step_behind, r->shape, &args, NULL, job->stream));
}

/* This rank's half of the start goes into field 0. No ghost has a value. */
static bool prepare(rank_state *r)
{
    const rank_job *job = &r->job;
    const uint64_t n = r->n;
    double *cells = (double *)calloc(1, 2 * r->field_bytes);
    for (uint64_t i = 0; i < n * n * n && cells != NULL; i++) {
        const uint64_t z = i / n / n;
        const uint64_t y = i / n % n;
        const uint64_t x = i % n;
        cells[cell_of(n, z + 1, y + 1, x + 1)] = r->start[whole_cell(n, z, y, job->rank * n + x)];
    }
    const bool good =
        cells != NULL && ok(job, weir_device_copy(job->device, field_of(r, 0), cells, 2 * r->field_bytes));
    free(cells);
    return good && job_meet(job);
}

static bool compare(rank_state *r, const char *form)
{
    const rank_job *job = &r->job;
    const uint64_t n = r->n;
    double *cells = (double *)malloc(r->field_bytes);
    uint64_t wrong = 0;
    if (cells == NULL || !ok(job, weir_device_copy(job->device, cells, field_of(r, STEPS), r->field_bytes))) {
        free(cells);
        return false;
    }
    for (uint64_t i = 0; i < n * n * n; i++) {
        const uint64_t z = i / n / n;
        const uint64_t y = i / n % n;
        const uint64_t x = i % n;
        wrong += cells[cell_of(n, z + 1, y + 1, x + 1)] != r->expected[whole_cell(n, z, y, job->rank * n + x)];
    }
    free(cells);
    if (wrong != 0) {
        fprintf(stderr, "Rank %" PRIu32 ", %s: %" PRIu64 " of %" PRIu64 " cells are wrong\n", job->rank, form, wrong,
                n * n * n);
    }
    return wrong == 0;
}

static bool run_form(rank_state *r, const char *form, bool (*step)(rank_state *, int))
{
    const rank_job *job = &r->job;
    double ms = 0;
    bool good = prepare(r) && ok(job, weir_event_record(job->device, job->begin, job->stream));
    for (int i = 0; i < STEPS && good; i++) {
        good = step(r, i);
    }
    good = good && ok(job, weir_event_record(job->device, job->end, job->stream)) &&
           ok(job, weir_comm_wait(job->comm, job->stream, 0)) &&
           ok(job, weir_event_elapsed(job->device, job->begin, job->end, &ms)) && compare(r, form);
    if (good) {
        printf("Rank %" PRIu32 " (%s): %" PRIu64 "^3 cells, %s: %.2f us a step\n", job->rank, job->label, r->n, form,
               1000 * ms / STEPS);
    }
    return good;
}

static bool run_rank(const rank_start *start)
{
    rank_state r;
    bool good = set_up(&r, start) && compute_serially(&r) && run_form(&r, "exchange", step_after_exchange) &&
                run_form(&r, "inside", step_with_exchange) && run_form(&r, "packed", step_packed);
    free(r.start);
    free(r.expected);
    return job_end(&r.job, good && take_down(&r));
}

int main(int argc, char **argv)
{
    const ranks_program program = { run_rank, &step_inside, NULL, false };
    return ranks_main(argc, argv, &program);
}
