/* diffusion.h - horizontal diffusion of a weather code: the computing of a rank, the same in all forms.
 *
 * The field has doubles at [j][k][i]. A rank has a strip of rows j; a row has all k and i. A step has three stages,
 * each of which needs rows of the stage before it, also those of the neighbours:
 *
 *     lap = 4 in - its four neighbours in i and j
 *     fly = lap(j + 1) - lap(j), or 0 where that has the sign of in(j + 1) - in(j)
 *     out = in - (flx(i) - flx(i - 1) + fly(j) - fly(j - 1)) / 64, with flx as fly, in i
 *
 * The first row of lap goes to the rank above, the last row of fly to the rank below, and the first and the last row of
 * out to both. A stage computes these rows first, so that they are sent while the others are computed.
 *
 * A device holds its fields one after the other. Each has a row above the device's own rows and a row below them. The
 * part of a rank begins with the row above its strip, and neighbours' parts overlap: ranks of one device share rows,
 * and nothing is copied between them.
 *
 * Products are by powers of two and therefore exact. A GPU, which fuses a product and a sum, computes the same bits. */
#ifndef EXAMPLES_DIFFUSION_H
#define EXAMPLES_DIFFUSION_H

#include <weir/device/arch.h>
#include <weir/device/coop.h>

#define DIFFUSION_COEFFICIENT (1.0 / 64)

enum { STAGE_LAP, STAGE_FLY, STAGE_OUT, STAGES };

/* The first two take turns as in and out. */
enum { FIELD_LAP = 2, FIELD_FLY, FIELDS };

typedef struct diffusion_grid {
    uint32_t columns; /* i */
    uint32_t levels;  /* k */
    uint32_t rows;    /* j, of a rank */
    uint32_t ranks;   /* of a device */
    uint32_t strips;  /* of all devices */
} diffusion_grid;

WEIR_FN uint64_t row_values(const diffusion_grid *grid) { return (uint64_t)grid->columns * grid->levels; }

WEIR_FN uint64_t row_bytes(const diffusion_grid *grid) { return row_values(grid) * sizeof(double); }

WEIR_FN uint64_t field_bytes(const diffusion_grid *grid)
{
    return ((uint64_t)grid->ranks * grid->rows + 2) * row_bytes(grid);
}

/* The offset of a row of a field: in a device's memory for a row of the device, in a part for a row of the part. */
WEIR_FN uint64_t row_at(const diffusion_grid *grid, uint32_t field, uint64_t row)
{
    return field * field_bytes(grid) + row * row_bytes(grid);
}

/* The field that a stage writes. */
WEIR_FN uint32_t stage_field(uint32_t stage, uint32_t step)
{
    return stage == STAGE_LAP ? (uint32_t)FIELD_LAP : stage == STAGE_FLY ? (uint32_t)FIELD_FLY : (step + 1) % 2;
}

/* Whether a stage sends its first row up, and its last row down. */
WEIR_FN int stage_sends_up(uint32_t stage) { return stage != STAGE_FLY; }
WEIR_FN int stage_sends_down(uint32_t stage) { return stage != STAGE_LAP; }

/* A difference of lap, limited. */
WEIR_FN double diffusion_flux(double difference, double slope)
{
    return (difference > 0 && slope > 0) || (difference < 0 && slope < 0) ? 0 : difference;
}

/* Computes a row of a stage. `part` is the rank's, and its own rows are 1 to grid->rows. With `alone` nobody exchanges
 * rows: the strip reads its own row in place of a neighbour's, which may be changing. */
WEIR_FN void diffusion_row(const diffusion_grid *grid, char *part, uint32_t stage, uint32_t step, int alone,
                           uint32_t row, weir_coop block)
{
    const uint32_t values = (uint32_t)row_values(grid);
    const uint32_t above = alone && row == 1 ? 0 : values; /* from a value to that of the row above */
    const uint32_t below = alone && row == grid->rows ? 0 : values;
    const double *in = (const double *)(const void *)(part + row_at(grid, step % 2, row));
    double *lap = (double *)(void *)(part + row_at(grid, FIELD_LAP, row));
    double *fly = (double *)(void *)(part + row_at(grid, FIELD_FLY, row));
    double *out = (double *)(void *)(part + row_at(grid, (step + 1) % 2, row));
    for (uint32_t at = block.rank; at < values; at += block.size) {
        const uint32_t i = at % grid->columns;
        if (stage == STAGE_LAP) {
            lap[at] = i > 0 && i + 1 < grid->columns
                          ? 4 * in[at] - in[at - 1] - in[at + 1] - *(in + at - above) - in[at + below]
                          : 0;
        } else if (stage == STAGE_FLY) {
            fly[at] = diffusion_flux(lap[at + below] - lap[at], in[at + below] - in[at]);
        } else if (i > 0 && i + 1 < grid->columns) {
            const double right = diffusion_flux(lap[at + 1] - lap[at], in[at + 1] - in[at]);
            const double left = diffusion_flux(lap[at] - lap[at - 1], in[at] - in[at - 1]);
            out[at] = in[at] - DIFFUSION_COEFFICIENT * (right - left + fly[at] - *(fly + at - above));
        } else {
            out[at] = in[at];
        }
    }
}

/* Computes the rows of a stage that are sent. When it returns, the group has met. */
WEIR_FN void diffusion_edge(const diffusion_grid *grid, char *part, uint32_t stage, uint32_t step, int alone,
                            weir_coop block)
{
    if (stage_sends_up(stage)) {
        diffusion_row(grid, part, stage, step, alone, 1, block);
    }
    if (stage_sends_down(stage) && (grid->rows > 1 || !stage_sends_up(stage))) {
        diffusion_row(grid, part, stage, step, alone, grid->rows, block);
    }
    (void)weir_coop_sync(block);
}

/* Computes the other rows of a stage. When it returns, the group has met. */
WEIR_FN void diffusion_rest(const diffusion_grid *grid, char *part, uint32_t stage, uint32_t step, int alone,
                            weir_coop block)
{
    const uint32_t end = grid->rows + (stage_sends_down(stage) ? 0 : 1);
    for (uint32_t row = stage_sends_up(stage) ? 2 : 1; row < end; row++) {
        diffusion_row(grid, part, stage, step, alone, row, block);
    }
    (void)weir_coop_sync(block);
}

#endif
