/* particles - particles of short range in a box, whose strips exchange messages of variable size.
 *
 *     particles [--form window|steps|hand|split|graph|host] [--number block|multiprocessor] [--check]
 *               [--devices N] [--ranks N] [--threads N] [--steps N] [--repeats N] [--width N] [--rows N]
 *
 * particles.h is the computing of a rank and says what a message is. This file has the forms. */
#include "common.h"

#include "particles.h"

static particle_box box = { 64, 4, 0 };
static form_options options = { FORM_WINDOW, false, 0, 0, 256, 20, 11, NUMBER_BLOCK, CACHE_KEPT };
static uint32_t gpus;

/* ---- kernels --------------------------------------------------------------------------------------------------- */

typedef struct particles_args {
    weir_dev_window window;
    weir_dev_memory_channel sides[2]; /* form hand: to the devices above and below */
    particle_box box;
    particle_cell *cells; /* two sets, each of all strips of the device */
    char *seams;          /* those of the device: one more than it has ranks */
    uint64_t *lost;
    uint32_t form;
    uint32_t number;             /* form_number */
    uint32_t cache;              /* form_cache */
    uint32_t parts;              /* of form_part */
    uint32_t memory;             /* of the seams, in the window */
    uint32_t first, ranks;       /* of the device */
    uint32_t step, steps;        /* `step` is for particles_step */
    uint32_t begin, end, stride; /* ranks for which particles_step runs */
} particles_args;

WEIR_FN particle_strip strip_of(const particles_args *args, uint32_t index)
{
    const uint64_t cells = strip_cells(&args->box);
    particle_strip strip;
    strip.number = args->first + index;
    strip.cells = args->cells + index * cells;
    strip.set_cells = args->ranks * cells;
    strip.above = args->seams + index * seam_bytes(&args->box);
    strip.below = strip.above + seam_bytes(&args->box);
    strip.lost = args->lost;
    return strip;
}

/* Whether the rank has a neighbour in this direction to which it sends: any in the form `window`, and one of another
 * device in the others. */
WEIR_FN int sends(const particles_args *args, const particle_strip *strip, uint32_t direction)
{
    const uint32_t index = strip->number - args->first;
    const int exists = direction == MESSAGE_UP ? strip->number > 0 : strip->number + 1 < args->box.strips;
    const int leaves = direction == MESSAGE_UP ? index == 0 : index + 1 == args->ranks;
    return exists && (leaves || args->form == FORM_WINDOW) && (args->parts & FORM_EXCHANGES) != 0;
}

/* Sends the message of a step in one direction, in the forms whose kernels send. */
WEIR_FN weir_status send(const particles_args *args, const particle_strip *strip, uint32_t direction, uint32_t step,
                         weir_coop block)
{
    const uint64_t at = message_at(&args->box, direction, step);
    const uint64_t seam = seam_bytes(&args->box);
    const char *message = (direction == MESSAGE_UP ? strip->above : strip->below) + at;
    const uint64_t bytes = message_bytes(&args->box, (const particle_message *)(const void *)message);
    if (args->form == FORM_HAND) {
        /* The last seam of the device above is the first one of this device, and the other way round. */
        const weir_dev_memory_channel *side = &args->sides[direction == MESSAGE_UP ? 0 : 1];
        const uint64_t last = args->ranks * seam;
        const weir_status status = weir_dev_memory_channel_put(side, (direction == MESSAGE_UP ? last : 0) + at,
                                                               (direction == MESSAGE_UP ? 0 : last) + at, bytes, block);
        (void)weir_coop_sync(block);
        if (weir_coop_leads(block)) {
            weir_dev_memory_channel_signal(side);
        }
        return status;
    }
    if (args->form == FORM_WINDOW || args->form == FORM_STEPS) {
        /* A rank's part is the seam above it and the seam below it. */
        const weir_dev_window_rank self = weir_dev_window_at(&args->window, strip->number - args->first);
        return direction == MESSAGE_UP ? weir_dev_window_put_notify(&self, self.number - 1, args->memory, seam + at,
                                                                    args->memory, at, bytes, step % 2, block)
                                       : weir_dev_window_put_notify(&self, self.number + 1, args->memory, at,
                                                                    args->memory, seam + at, bytes, step % 2, block);
    }
    return WEIR_OK;
}

WEIR_FN weir_status send_both(const particles_args *args, const particle_strip *strip, uint32_t step, weir_coop block)
{
    weir_status status = WEIR_OK;
    if (sends(args, strip, MESSAGE_UP)) {
        status = send(args, strip, MESSAGE_UP, step, block);
    }
    if (sends(args, strip, MESSAGE_DOWN) && status == WEIR_OK) {
        status = send(args, strip, MESSAGE_DOWN, step, block);
    }
    return status;
}

/* Waits for the messages of a step, in the forms whose kernels wait. A neighbour sends what this rank sends to it. */
WEIR_FN weir_status await(const particles_args *args, const particle_strip *strip, uint32_t step, weir_coop block)
{
    const int up = sends(args, strip, MESSAGE_UP);
    const int down = sends(args, strip, MESSAGE_DOWN);
    weir_status status = WEIR_OK;
    if (args->form == FORM_HAND) {
        status = up ? weir_dev_memory_channel_wait_coop(&args->sides[0], block) : WEIR_OK;
        return down && status == WEIR_OK ? weir_dev_memory_channel_wait_coop(&args->sides[1], block) : status;
    }
    if (args->form == FORM_WINDOW || args->form == FORM_STEPS) {
        if (args->parts == FORM_COMPUTES) {
            return form_no_wait(args->cache, block);
        }
        const weir_dev_window_rank self = weir_dev_window_at(&args->window, strip->number - args->first);
        status = weir_dev_window_wait(&self, WEIR_ANY_RANK, step % 2, (uint64_t)up + (uint64_t)down, block);
    }
    return status;
}

/* Computes a step of a rank and sends its messages. */
WEIR_FN weir_status do_step(const particles_args *args, uint32_t index, uint32_t step, weir_coop block)
{
    const particle_strip strip = strip_of(args, index);
    if ((args->parts & FORM_COMPUTES) != 0) {
        particles_move(&args->box, &strip, step % 2, step, block);
    }
    return send_both(args, &strip, step, block);
}

/* Waits for the messages of a step and adds their particles. */
WEIR_FN weir_status end_step(const particles_args *args, uint32_t index, uint32_t step, weir_coop block)
{
    const particle_strip strip = strip_of(args, index);
    const weir_status status = await(args, &strip, step, block);
    if ((args->parts & FORM_COMPUTES) != 0 && status == WEIR_OK) {
        particles_receive(&args->box, &strip, 1 - step % 2, step, args->parts == FORM_COMPUTES, block);
    }
    return status;
}

/* Form `window`: one kernel for all steps. A block that serves several ranks computes and sends for all of them before
 * it waits for any. */
WEIR_KERNEL_FOR(particles_resident, particles_args, FORM_THREADS_MAX)
{
    const weir_coop block = weir_coop_block(coop);
    uint32_t first;
    if (form_first_rank(&args->window, args->number, &first, block) != WEIR_OK) {
        return; /* the communicator has the error */
    }
    for (uint32_t step = 0; step < args->steps; step++) {
        for (uint32_t index = first; index < args->ranks; index += coop.blocks) {
            if (do_step(args, index, step, block) != WEIR_OK) {
                return;
            }
        }
        for (uint32_t index = first; index < args->ranks; index += coop.blocks) {
            if (end_step(args, index, step, block) != WEIR_OK) {
                return;
            }
        }
    }
}

/* The other forms: a kernel for each step. It ends the step before and computes this one; the last kernel only ends the
 * last step. */
WEIR_KERNEL_FOR(particles_step, particles_args, FORM_THREADS_MAX)
{
    const weir_coop block = weir_coop_block(coop);
    const uint32_t step = args->step;
    for (uint32_t index = args->begin + coop.block * args->stride; index < args->end;
         index += coop.blocks * args->stride) {
        if ((step > 0 && end_step(args, index, step - 1, block) != WEIR_OK) ||
            (step < args->steps && do_step(args, index, step, block) != WEIR_OK)) {
            return;
        }
    }
}

/* ---- a device and its objects ------------------------------------------------------------------------------------ */

typedef struct particles {
    form_run run;
    weir_window *window;
    weir_proxy *proxy;
    weir_memory *cells, *seams, *lost;
    weir_memory_channel *hand[2];
    weir_port_channel *port[2];
    particles_args args;
    particle_cell *start; /* a set of this device before the first step */
    particle *expected;   /* all particles after the last step, by id; an id that does not exist has its id wrong */
    uint64_t count, ids;  /* number of all particles, and the sum of their ids */
} particles;

static uint64_t device_cells(const particles *p) { return p->run.ranks * strip_cells(&p->args.box); }

/* The neighbour device on a side: 0 above, 1 below. */
static bool has_side(const particles *p, int side)
{
    return side == 0 ? p->run.job.rank > 0 : p->run.job.rank + 1 < p->run.job.ranks;
}

static uint32_t side_rank(const particles *p, int side)
{
    return side == 0 ? p->run.job.rank - 1 : p->run.job.rank + 1;
}

static bool connect_sides(particles *p)
{
    const rank_job *job = &p->run.job;
    const uint32_t form = options.form;
    const bool posts = form == FORM_GRAPH || form == FORM_SPLIT || form == FORM_HOST;
    weir_port_channel_connect_opts opts = WEIR_OPTS(weir_port_channel_connect_opts);
    opts.end = form == FORM_HOST ? WEIR_SEMAPHORE_HOST : WEIR_SEMAPHORE_DEVICE;
    if (posts && !ok(job, weir_proxy_create(job->comm, NULL, &p->proxy))) {
        return false;
    }
    for (int side = 0; side < 2; side++) {
        if (!has_side(p, side)) {
            continue;
        }
        if (form == FORM_HAND) {
            if (!ok(job,
                    weir_memory_channel_connect(job->comm, side_rank(p, side), 0, p->seams, NULL, &p->hand[side]))) {
                return false;
            }
            weir_memory_channel_device(p->hand[side], &p->args.sides[side]);
        }
        if (posts &&
            !ok(job, weir_port_channel_connect(p->proxy, side_rank(p, side), 0, p->seams, &opts, &p->port[side]))) {
            return false;
        }
    }
    return !posts || ok(job, weir_proxy_start(p->proxy));
}

static bool open_window(particles *p)
{
    const rank_job *job = &p->run.job;
    weir_window_opts opts = WEIR_OPTS(weir_window_opts);
    const uint64_t seam = seam_bytes(&p->args.box);
    opts.ranks = p->run.ranks;
    if (!ok(job, weir_window_create(job->comm, &opts, &p->window)) ||
        !ok(job, weir_window_register(p->window, p->seams, seam, 2 * seam, &p->args.memory))) {
        return false;
    }
    weir_window_device(p->window, &p->args.window);
    return true;
}

static bool set_up(particles *p)
{
    const rank_job *job = &p->run.job;
    particles_args *args = &p->args;
    args->box = box;
    args->box.strips = p->run.ranks * job->ranks;
    args->form = options.form;
    args->number = options.number;
    args->cache = options.cache;
    args->first = p->run.ranks * job->rank;
    args->ranks = p->run.ranks;
    args->steps = options.steps;
    args->end = args->ranks;
    args->stride = 1;
    if (!ok(job, weir_memory_allocate(job->comm, 2 * device_cells(p) * sizeof(particle_cell), NULL, &p->cells)) ||
        !ok(job, weir_memory_allocate(job->comm, (p->run.ranks + 1) * seam_bytes(&args->box), NULL, &p->seams)) ||
        !ok(job, weir_memory_allocate(job->comm, sizeof(uint64_t), NULL, &p->lost))) {
        return false;
    }
    args->cells = (particle_cell *)weir_memory_pointer(p->cells);
    args->seams = (char *)weir_memory_pointer(p->seams);
    args->lost = (uint64_t *)weir_memory_pointer(p->lost);
    const bool windows = options.form == FORM_WINDOW || options.form == FORM_STEPS;
    return windows ? open_window(p) : connect_sides(p) && (options.form != FORM_SPLIT || form_fork_open(&p->run));
}

/* After the barrier no other device uses this one's memory. */
static bool take_down(particles *p)
{
    if (!job_meet(&p->run.job)) {
        return false;
    }
    form_fork_close(&p->run);
    for (int side = 0; side < 2; side++) {
        weir_port_channel_destroy(p->port[side]);
        weir_memory_channel_destroy(p->hand[side]);
    }
    weir_proxy_destroy(p->proxy);
    weir_window_destroy(p->window);
    weir_memory_destroy(p->lost);
    weir_memory_destroy(p->seams);
    weir_memory_destroy(p->cells);
    job_close(&p->run.job);
    return true;
}

/* ---- the serial result ------------------------------------------------------------------------------------------- */

static uint64_t box_rows(const particles *p) { return (uint64_t)p->args.box.rows * p->args.box.strips; }

static double hash(uint64_t id, uint64_t salt)
{
    uint64_t word = (id * 8 + salt + 1) * 0x9e3779b97f4a7c15u;
    word = (word ^ word >> 31) * 0xaf251af3b0f025b5u;
    return (double)(word >> 11) / 9007199254740992.0;
}

/* A cell begins with 1 to 4 particles of its 4 ids. *exists says whether a particle has this id. */
static particle first_particle(const particles *p, uint64_t id, bool *exists)
{
    const uint64_t cell = id / 4;
    particle one;
    *exists = id % 4 <= (uint64_t)(hash(cell * 4, 4) * 4);
    one.x = (double)(cell % p->args.box.width) + hash(id, 0);
    one.y = (double)(cell / p->args.box.width) + hash(id, 1);
    one.u = 4 * hash(id, 2) - 2;
    one.v = 4 * hash(id, 3) - 2;
    one.id = *exists ? id : id + 1;
    return one;
}

/* The cells of this device, with the neighbours' rows, before the first step. */
static void fill_start(particles *p)
{
    const particle_box *b = &p->args.box;
    for (uint64_t i = 0; i < device_cells(p); i++) {
        const uint64_t strip = i / strip_cells(b);
        const uint64_t place = i % strip_cells(b);
        const int64_t row = (int64_t)((p->args.first + strip) * b->rows + place / b->width) - 1;
        for (uint64_t k = 0; k < 4 && row >= 0 && row < (int64_t)box_rows(p); k++) {
            bool exists = false;
            const particle one = first_particle(p, ((uint64_t)row * b->width + place % b->width) * 4 + k, &exists);
            if (exists) {
                p->start[i].particles[p->start[i].count++] = one;
            }
        }
    }
}

/* One step of all particles, by lists of the particles of each cell. */
static void step_serially(const particles *p, const particle *from, particle *to, uint64_t ids, uint64_t *heads,
                          uint64_t *next)
{
    const particle_box *b = &p->args.box;
    const int64_t rows = (int64_t)box_rows(p);
    const int64_t width = b->width;
    for (int64_t i = 0; i < rows * width; i++) {
        heads[i] = UINT64_MAX;
    }
    for (uint64_t i = 0; i < ids; i++) {
        if (from[i].id == i) {
            const uint64_t cell = (uint64_t)from[i].y * b->width + (uint64_t)from[i].x;
            next[i] = heads[cell];
            heads[cell] = i;
        }
    }
    for (uint64_t i = 0; i < ids; i++) {
        particle one = from[i];
        double fx = 0;
        double fy = 0;
        for (int64_t near_row = (int64_t)one.y - 1; near_row <= (int64_t)one.y + 1 && one.id == i; near_row++) {
            for (int64_t column = (int64_t)one.x - 1; column <= (int64_t)one.x + 1; column++) {
                const bool inside = near_row >= 0 && near_row < rows && column >= 0 && column < width;
                for (uint64_t k = inside ? heads[near_row * width + column] : UINT64_MAX; k != UINT64_MAX;
                     k = next[k]) {
                    particle_feel(&one, &from[k], &fx, &fy);
                }
            }
        }
        particle_move(&one.x, &one.u, fx, (double)width);
        particle_move(&one.y, &one.v, fy, (double)rows);
        to[i] = one;
    }
}

static bool compute_serially(particles *p)
{
    const uint64_t cells = box_rows(p) * p->args.box.width;
    const uint64_t ids = 4 * cells;
    particle *from = (particle *)form_allocate(ids, sizeof(particle));
    particle *to = (particle *)form_allocate(ids, sizeof(particle));
    uint64_t *heads = (uint64_t *)form_allocate(cells + ids, sizeof(uint64_t));
    p->start = (particle_cell *)form_allocate(device_cells(p), sizeof(particle_cell));
    bool good = from != NULL && to != NULL && heads != NULL && p->start != NULL;
    if (good) {
        fill_start(p);
    }
    for (uint64_t i = 0; i < ids && good; i++) {
        bool exists = false;
        from[i] = first_particle(p, i, &exists);
        p->count += exists;
        p->ids += exists ? i : 0;
    }
    for (uint32_t step = 0; step < options.steps && options.check && good; step++) {
        particle *before = from;
        step_serially(p, from, to, ids, heads, heads + cells);
        from = to;
        to = before;
    }
    free(heads);
    free(to);
    p->expected = from;
    return good;
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

static bool prepare(form_run *run)
{
    particles *p = (particles *)run;
    const uint64_t zero = 0;
    return ok(&run->job,
              weir_device_copy(run->job.device, p->args.cells, p->start, device_cells(p) * sizeof(particle_cell))) &&
           ok(&run->job, weir_device_copy(run->job.device, p->args.lost, &zero, sizeof zero));
}

/* Launches particles_step for the ranks from args.begin on. */
static bool launch_step(particles *p, uint32_t step, uint32_t blocks, void *stream)
{
    const form_run *run = &p->run;
    const weir_shape shape = { blocks, run->step.threads };
    p->args.step = step;
    return ok(&run->job, weir_launch(run->job.device, &particles_step, shape, &p->args, NULL, stream));
}

/* The places of the message that goes to a side. */
static void find_places(const particles *p, int side, uint32_t step, uint64_t *remote, uint64_t *local)
{
    const uint64_t last = p->run.ranks * seam_bytes(&p->args.box);
    const uint64_t at = message_at(&p->args.box, side == 0 ? MESSAGE_UP : MESSAGE_DOWN, step);
    *remote = (side == 0 ? last : 0) + at;
    *local = (side == 0 ? 0 : last) + at;
}

/* Forms `graph` and `split`: the size of a message is fixed when it is recorded, so all of its room is sent. */
static bool record_exchange(particles *p, uint32_t step, void *stream)
{
    const rank_job *job = &p->run.job;
    bool good = true;
    for (int side = 0; side < 2 && good; side++) {
        uint64_t remote;
        uint64_t local;
        find_places(p, side, step, &remote, &local);
        good = !has_side(p, side) || ok(job, weir_port_channel_put_signal_on_stream(
                                                 p->port[side], remote, local, message_stride(&p->args.box), stream));
    }
    for (int side = 0; side < 2 && good; side++) {
        good = !has_side(p, side) || ok(job, weir_port_channel_wait_on_stream(p->port[side], stream));
    }
    return good;
}

/* Form `host`: the host waits for the kernel, reads the counts, posts the copies and waits for the neighbours'. */
static bool exchange_by_host(particles *p, uint32_t step)
{
    const rank_job *job = &p->run.job;
    bool good = ok(job, weir_comm_wait(job->comm, job->stream, 0));
    for (int side = 0; side < 2 && good; side++) {
        particle_message message;
        uint64_t remote;
        uint64_t local;
        find_places(p, side, step, &remote, &local);
        good = !has_side(p, side) ||
               (ok(job, weir_device_copy(job->device, &message, p->args.seams + local, sizeof message)) &&
                ok(job, weir_port_channel_put_signal(p->port[side], remote, local,
                                                     message_bytes(&p->args.box, &message), NULL)));
    }
    for (int side = 0; side < 2 && good; side++) {
        good = !has_side(p, side) || ok(job, weir_semaphore_wait(weir_port_channel_semaphore(p->port[side]), 0));
    }
    return good;
}

/* Form `split`: the first and the last rank compute and exchange on the second stream, beside the others. */
static bool split_step(particles *p, uint32_t step, bool exchanges)
{
    const form_run *run = &p->run;
    const uint32_t ranks = p->args.ranks;
    p->args.begin = 0;
    p->args.stride = ranks > 1 ? ranks - 1 : 1;
    bool good = form_fork_begin(run) && launch_step(p, step, ranks > 1 ? 2 : 1, run->fork.stream) &&
                (!exchanges || record_exchange(p, step, run->fork.stream));
    p->args.begin = 1;
    p->args.end = ranks - 1;
    p->args.stride = 1;
    good = good && (ranks < 3 || launch_step(p, step, ranks - 2, run->job.stream)) && form_fork_end(run);
    p->args.begin = 0;
    p->args.end = ranks;
    return good;
}

static bool put_steps(form_run *run, uint32_t parts)
{
    particles *p = (particles *)run;
    weir_launch_opts resident = WEIR_OPTS(weir_launch_opts);
    bool good = true;
    resident.cooperative = true;
    p->args.parts = parts;
    if (options.form == FORM_WINDOW) {
        return ok(&run->job, weir_launch(run->job.device, &particles_resident, run->resident, &p->args, &resident,
                                         run->job.stream));
    }
    for (uint32_t step = 0; step <= options.steps && good; step++) {
        const bool exchanges = step < options.steps && (parts & FORM_EXCHANGES) != 0;
        if (options.form == FORM_SPLIT) {
            good = split_step(p, step, exchanges);
            continue;
        }
        good = launch_step(p, step, run->step.blocks, run->job.stream);
        if (exchanges && good) {
            good = options.form == FORM_GRAPH  ? record_exchange(p, step, run->job.stream)
                   : options.form == FORM_HOST ? exchange_by_host(p, step)
                                               : true;
        }
    }
    return good;
}

/* ---- the check --------------------------------------------------------------------------------------------------- */

static bool is_near(double a, double b) { return a - b < 1e-8 && b - a < 1e-8; }

/* Compares the particles in the rows of this device's strips. Sums are in another order than the serial ones, and GPUs
 * fuse a multiplication and a sum: places may differ by 1e-8. */
static bool compare_cells(const particles *p, const particle_cell *cells, uint64_t *count, uint64_t *ids)
{
    const particle_box *b = &p->args.box;
    const uint64_t most = 4 * box_rows(p) * b->width;
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < device_cells(p); i++) {
        const uint64_t row = i % strip_cells(b) / b->width;
        const bool own = row >= 1 && row <= b->rows;
        for (uint64_t k = 0; k < cells[i].count && k < CELL_PARTICLES && own; k++) {
            const particle *one = &cells[i].particles[k];
            const particle *right = &p->expected[one->id < most ? one->id : 0];
            wrong += one->id >= most || right->id != one->id || !is_near(one->x, right->x) ||
                     !is_near(one->y, right->y) || !is_near(one->u, right->u) || !is_near(one->v, right->v);
            *ids += one->id;
            *count += 1;
        }
    }
    if (wrong != 0) {
        fprintf(stderr, "Device %" PRIu32 ": %" PRIu64 " of %" PRIu64 " particles are wrong\n", p->run.job.rank, wrong,
                *count);
    }
    return wrong == 0;
}

/* Each particle must be on one device: numbers and sums of ids of all devices are compared too. */
static bool compare(form_run *run)
{
    particles *p = (particles *)run;
    const rank_job *job = &run->job;
    const uint64_t bytes = device_cells(p) * sizeof(particle_cell);
    uint64_t sums[FORM_DEVICES_MAX][3]; /* particles, their ids, lost ones */
    uint64_t *own = sums[job->rank];
    particle_cell *cells = (particle_cell *)form_allocate(bytes, 1);
    memset(sums, 0, sizeof sums);
    bool good =
        cells != NULL &&
        ok(job, weir_device_copy(job->device, cells, p->args.cells + options.steps % 2 * device_cells(p), bytes)) &&
        ok(job, weir_device_copy(job->device, &own[2], p->args.lost, sizeof own[2])) &&
        compare_cells(p, cells, &own[0], &own[1]);
    free(cells);
    if (!good || !ok(job, weir_bootstrap_allgather(job->bootstrap, NULL, sums, sizeof sums[0]))) {
        return false;
    }
    uint64_t count = 0;
    uint64_t ids = 0;
    uint64_t lost = 0;
    for (uint32_t i = 0; i < job->ranks; i++) {
        count += sums[i][0];
        ids += sums[i][1];
        lost += sums[i][2];
    }
    good = count == p->count && ids == p->ids && lost == 0;
    if (!good) {
        fprintf(stderr, "%" PRIu64 " of %" PRIu64 " particles are there, and %" PRIu64 " found no room\n", count,
                p->count, lost);
    }
    return good;
}

static const form_app app = { "particles", &particles_resident, &particles_step, prepare, put_steps, compare };

static bool run_device(const rank_start *start)
{
    particles *p = (particles *)form_allocate(1, sizeof(particles));
    if (p == NULL) {
        return false;
    }
    bool good = form_open(&p->run, start, &app, &options, gpus) && set_up(p) && compute_serially(p) &&
                form_measure(&p->run, &app);
    good = job_end(&p->run.job, good && take_down(p));
    free(p->expected);
    free(p->start);
    free(p);
    return good;
}

int main(int argc, char **argv)
{
    const form_size sizes[] = { { "--width", &box.width, 1, 1 << 16 }, { "--rows", &box.rows, 2, 1 << 16 } };
    return form_main(argc, argv, &app, &options, sizes, 2, &gpus, run_device);
}
