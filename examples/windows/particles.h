/* particles.h - particles of short range in a box: the computing of a rank, the same in all forms.
 *
 * The box is cut into square cells. The force ends at a distance of one cell, so a particle feels those of its own cell
 * and of the eight around it. A rank has a strip of rows of cells. Row 0 and row `rows` + 1 of its cells are those of
 * the neighbours: copies of their particles.
 *
 * A step computes the particles of the strip in one set of cells and writes them to the other one. A particle that
 * comes to lie in a neighbour's row, or in the row beside it, also goes into a message for that neighbour: a count, and
 * the particles. The neighbour adds them to its cells. Those in its strip are its own from then on, the others are
 * copies. One message to each neighbour a step does for both, because a particle moves by less than a cell in a step
 * and a strip has two rows at least.
 *
 * Messages lie in seams. Seam i of a device is between its ranks i - 1 and i, and the first and the last seam are
 * shared with ranks of other devices. Two ranks of one device use the same seam, so nothing is copied between them. A
 * seam has two messages in each direction: a neighbour may be one step ahead. */
#ifndef EXAMPLES_PARTICLES_H
#define EXAMPLES_PARTICLES_H

#include <weir/device/arch.h>
#include <weir/device/coop.h>

enum { CELL_PARTICLES = 16, MESSAGE_PER_COLUMN = 12 };

#define PARTICLE_STEP 0.02  /* time of a step */
#define PARTICLE_SPEED 4.0  /* greatest, in each direction */
#define PARTICLE_FORCE 10.0 /* of two particles */

typedef struct particle {
    double x, y; /* in cells */
    double u, v; /* speed */
    uint64_t id;
} particle;

typedef struct particle_cell {
    uint64_t count; /* more than CELL_PARTICLES if some did not fit */
    particle particles[CELL_PARTICLES];
} particle_cell;

/* The box and its strips. */
typedef struct particle_box {
    uint32_t width;  /* cells in a row */
    uint32_t rows;   /* of a strip */
    uint32_t strips; /* all */
} particle_box;

/* The head of a message; its particles follow. */
typedef struct particle_message {
    uint64_t count; /* more than there is room for if some did not fit */
    uint64_t unused;
} particle_message;

enum { MESSAGE_DOWN, MESSAGE_UP }; /* to the rank below, to the rank above */

WEIR_FN uint64_t message_room(const particle_box *box) { return (uint64_t)box->width * MESSAGE_PER_COLUMN; }

WEIR_FN uint64_t message_stride(const particle_box *box)
{
    return sizeof(particle_message) + message_room(box) * sizeof(particle);
}

/* The offset of a message in its seam. */
WEIR_FN uint64_t message_at(const particle_box *box, uint32_t direction, uint32_t step)
{
    return (direction * 2 + step % 2) * message_stride(box);
}

WEIR_FN uint64_t seam_bytes(const particle_box *box) { return 4 * message_stride(box); }

/* The bytes of a message with its particles. */
WEIR_FN uint64_t message_bytes(const particle_box *box, const particle_message *message)
{
    const uint64_t count = message->count < message_room(box) ? message->count : message_room(box);
    return sizeof(particle_message) + count * sizeof(particle);
}

WEIR_FN uint64_t strip_cells(const particle_box *box) { return (uint64_t)(box->rows + 2) * box->width; }

/* A strip of a rank. */
typedef struct particle_strip {
    uint32_t number;      /* of all strips */
    particle_cell *cells; /* two sets: a step reads one and writes the other */
    uint64_t set_cells;   /* from a set to the other one */
    char *above, *below;  /* seams */
    uint64_t *lost;       /* counts particles for which there was no room */
} particle_strip;

WEIR_FN particle_cell *strip_set(const particle_strip *strip, uint32_t set)
{
    return strip->cells + set * strip->set_cells;
}

/* ---- physics --------------------------------------------------------------------------------------------------- */

/* Adds the force of `other` on `p`, which ends smoothly at a distance of one cell. */
WEIR_FN void particle_feel(const particle *p, const particle *other, double *fx, double *fy)
{
    const double dx = p->x - other->x;
    const double dy = p->y - other->y;
    const double left = 1 - (dx * dx + dy * dy);
    if (left > 0 && p->id != other->id) {
        *fx += PARTICLE_FORCE * left * dx;
        *fy += PARTICLE_FORCE * left * dy;
    }
}

/* Moves a coordinate, with its speed, between walls at 0 and `end`. */
WEIR_FN void particle_move(double *at, double *speed, double force, double end)
{
    double fast = *speed + PARTICLE_STEP * force;
    fast = fast > PARTICLE_SPEED ? PARTICLE_SPEED : fast < -PARTICLE_SPEED ? -PARTICLE_SPEED : fast;
    double to = *at + PARTICLE_STEP * fast;
    if (to < 0 || to >= end) {
        to = to < 0 ? -to : 2 * end - to;
        fast = -fast;
    }
    *at = to;
    *speed = fast;
}

/* ---- a step of a strip ------------------------------------------------------------------------------------------ */

/* The row of the strip's cells in which a particle lies; at most one row beside those that it has. */
WEIR_FN int64_t particle_row(const particle_box *box, uint32_t number, const particle *p)
{
    const int64_t last = (int64_t)box->rows * box->strips - 1;
    const int64_t row = (int64_t)p->y;
    return (row > last ? last : row) - (int64_t)number * box->rows + 1;
}

WEIR_FN void particle_add_to_cell(const particle_box *box, const particle_strip *strip, uint32_t set, int64_t row,
                                  const particle *p)
{
    const uint32_t column = (uint32_t)p->x < box->width ? (uint32_t)p->x : box->width - 1;
    particle_cell *cell = strip_set(strip, set) + (uint64_t)row * box->width + column;
    const uint64_t place = weir_arch_fetch_add_relaxed_dev_u64(&cell->count, 1);
    if (place < CELL_PARTICLES) {
        cell->particles[place] = *p;
    } else {
        weir_arch_add_relaxed_dev_u64(strip->lost, 1);
    }
}

WEIR_FN void particle_add_to_message(const particle_box *box, const particle_strip *strip, char *at, const particle *p)
{
    particle_message *message = (particle_message *)(void *)at;
    const uint64_t place = weir_arch_fetch_add_relaxed_dev_u64(&message->count, 1);
    if (place < message_room(box)) {
        ((particle *)(void *)(message + 1))[place] = *p;
    } else {
        weir_arch_add_relaxed_dev_u64(strip->lost, 1);
    }
}

/* Adds a particle of the strip to the cells of its new place and to the messages of the neighbours that need it. */
WEIR_FN void particle_place(const particle_box *box, const particle_strip *strip, uint32_t set, uint32_t step,
                            const particle *p)
{
    const int64_t row = particle_row(box, strip->number, p);
    particle_add_to_cell(box, strip, set, row, p);
    if (row <= 1 && strip->number > 0) {
        particle_add_to_message(box, strip, strip->above + message_at(box, MESSAGE_UP, step), p);
    }
    if (row >= box->rows && strip->number + 1 < box->strips) {
        particle_add_to_message(box, strip, strip->below + message_at(box, MESSAGE_DOWN, step), p);
    }
}

/* Moves the particles of a cell of set `from` and places them in the other set. */
WEIR_FN void particle_move_cell(const particle_box *box, const particle_strip *strip, uint32_t from, uint32_t step,
                                uint64_t index)
{
    const particle_cell *cells = strip_set(strip, from);
    const uint32_t column = (uint32_t)(index % box->width);
    const uint32_t left = column > 0 ? column - 1 : 0;
    const uint32_t right = column + 1 < box->width ? column + 1 : column;
    const uint64_t row = index / box->width;
    for (uint64_t i = 0; i < cells[index].count && i < CELL_PARTICLES; i++) {
        particle p = cells[index].particles[i];
        double fx = 0;
        double fy = 0;
        for (uint64_t near_row = row - 1; near_row <= row + 1; near_row++) {
            for (uint32_t near_column = left; near_column <= right; near_column++) {
                const particle_cell *cell = cells + near_row * box->width + near_column;
                for (uint64_t k = 0; k < cell->count && k < CELL_PARTICLES; k++) {
                    particle_feel(&p, &cell->particles[k], &fx, &fy);
                }
            }
        }
        particle_move(&p.x, &p.u, fx, box->width);
        particle_move(&p.y, &p.v, fy, (double)box->rows * box->strips);
        particle_place(box, strip, 1 - from, step, &p);
    }
}

/* Moves all particles of the strip from set `from` to the other one and writes the messages of the step. When it
 * returns, the group has met. */
WEIR_FN void particles_move(const particle_box *box, const particle_strip *strip, uint32_t from, uint32_t step,
                            weir_coop block)
{
    for (uint64_t i = block.rank; i < strip_cells(box); i += block.size) {
        strip_set(strip, 1 - from)[i].count = 0;
    }
    if (weir_coop_leads(block)) {
        ((particle_message *)(void *)(strip->above + message_at(box, MESSAGE_UP, step)))->count = 0;
        ((particle_message *)(void *)(strip->below + message_at(box, MESSAGE_DOWN, step)))->count = 0;
    }
    (void)weir_coop_sync(block);
    for (uint64_t i = box->width + block.rank; i < (box->rows + 1) * (uint64_t)box->width; i += block.size) {
        particle_move_cell(box, strip, from, step, i);
    }
    (void)weir_coop_sync(block);
}

/* Adds the particles of a message to the cells. With `alone` the message is the strip's own one, and its particles are
 * mirrored at `seam`, the strip's first y or its last. */
WEIR_FN void particles_merge(const particle_box *box, const particle_strip *strip, uint32_t set, const char *at,
                             int alone, double seam, weir_coop block)
{
    const particle_message *message = (const particle_message *)(const void *)at;
    const particle *particles = (const particle *)(const void *)(message + 1);
    for (uint64_t i = block.rank; i < message->count && i < message_room(box); i += block.size) {
        particle p = particles[i];
        if (alone) {
            p.y = 2 * seam - p.y;
            p.v = -p.v;
        }
        particle_add_to_cell(box, strip, set, particle_row(box, strip->number, &p), &p);
    }
}

/* Adds what both neighbours sent in a step. When it returns, the group has met. With `alone` no neighbour has sent
 * anything, and mirror images of the strip's own particles take the place of the neighbours' ones. */
WEIR_FN void particles_receive(const particle_box *box, const particle_strip *strip, uint32_t set, uint32_t step,
                               int alone, weir_coop block)
{
    const double first = (double)strip->number * box->rows;
    if (strip->number > 0) {
        particles_merge(box, strip, set, strip->above + message_at(box, alone ? MESSAGE_UP : MESSAGE_DOWN, step), alone,
                        first, block);
    }
    if (strip->number + 1 < box->strips) {
        particles_merge(box, strip, set, strip->below + message_at(box, alone ? MESSAGE_DOWN : MESSAGE_UP, step), alone,
                        first + box->rows, block);
    }
    (void)weir_coop_sync(block);
}

#endif
