/* spmv.h - a sparse matrix times a vector, y = A x, in blocks: the computing of a rank, the same in all forms.
 *
 * The ranks are a grid of rows and columns. A rank has a square block of A in compressed sparse rows. The first rank of
 * each column has the piece of x for that column, and the first rank of each row gets the piece of y. A step has
 * phases:
 *
 *     the pieces of x go down the columns, in a binomial tree: in phase i the first 2^i rows send
 *     each rank multiplies
 *     the pieces of y are summed along the rows, in a binomial tree, into the first column
 *
 * A rank has a piece of x, one of y, and one for each sum that it receives. The ends of a step are apart by a barrier
 * of all devices, so no piece is written while another rank still reads it.
 *
 * All numbers are integers with few digits, so sums are exact in any order. The vector changes from step to step. */
#ifndef EXAMPLES_SPMV_H
#define EXAMPLES_SPMV_H

#include <weir/device/arch.h>
#include <weir/device/coop.h>

#define SPMV_NOBODY UINT32_MAX

/* The grid of ranks. */
typedef struct spmv_grid {
    uint32_t rows, columns;
    uint32_t size;       /* rows and columns of a block; elements of a piece */
    uint32_t broadcasts; /* phases that send x; those that sum follow */
    uint32_t sums;
} spmv_grid;

/* The block of a rank. */
typedef struct spmv_block {
    const uint64_t *starts; /* of each row, and the end */
    const uint32_t *columns;
    const double *values;
} spmv_block;

/* Multiplying needs a phase if there is nothing to sum. */
WEIR_FN uint32_t spmv_phases(const spmv_grid *grid) { return grid->broadcasts + (grid->sums > 0 ? grid->sums : 1); }

/* The offset of a piece in the part of a rank: 0 is x, 1 is y, and 2 + i receives in the i-th phase of sums. */
WEIR_FN uint64_t spmv_piece(const spmv_grid *grid, uint32_t piece)
{
    return (uint64_t)piece * grid->size * sizeof(double);
}

WEIR_FN uint64_t spmv_part(const spmv_grid *grid) { return spmv_piece(grid, 2 + grid->sums); }

/* The rank to which a rank sends in a phase, or SPMV_NOBODY. */
WEIR_FN uint32_t spmv_target(const spmv_grid *grid, uint32_t number, uint32_t phase)
{
    const uint32_t row = number / grid->columns;
    const uint32_t column = number % grid->columns;
    if (phase < grid->broadcasts) {
        const uint32_t distance = 1u << phase;
        return row < distance && row + distance < grid->rows ? number + distance * grid->columns : SPMV_NOBODY;
    }
    const uint32_t distance = 1u << (phase - grid->broadcasts);
    return column % (2 * distance) == distance ? number - distance : SPMV_NOBODY;
}

/* The rank from which a rank receives in a phase, or SPMV_NOBODY. */
WEIR_FN uint32_t spmv_source(const spmv_grid *grid, uint32_t number, uint32_t phase)
{
    const uint32_t row = number / grid->columns;
    const uint32_t column = number % grid->columns;
    if (phase < grid->broadcasts) {
        const uint32_t distance = 1u << phase;
        return row >= distance && row < 2 * distance ? number - distance * grid->columns : SPMV_NOBODY;
    }
    const uint32_t distance = 1u << (phase - grid->broadcasts);
    return column % (2 * distance) == 0 && column + distance < grid->columns ? number + distance : SPMV_NOBODY;
}

/* The piece that is sent in a phase, and the piece in which it arrives. */
WEIR_FN uint32_t spmv_sent(const spmv_grid *grid, uint32_t phase) { return phase < grid->broadcasts ? 0 : 1; }

WEIR_FN uint32_t spmv_received(const spmv_grid *grid, uint32_t phase)
{
    return phase < grid->broadcasts ? 0 : 2 + phase - grid->broadcasts;
}

/* Element `index` of the whole vector in a step. */
WEIR_FN double spmv_x(uint64_t index, uint32_t step) { return (double)((index * 7 + step * 5) % 31); }

/* y = block * x, a row for each thread in turn. */
WEIR_FN void spmv_multiply(const spmv_grid *grid, const spmv_block *own, const double *x, double *y, weir_coop block)
{
    for (uint32_t row = block.rank; row < grid->size; row += block.size) {
        double sum = 0;
        for (uint64_t k = own->starts[row]; k < own->starts[row + 1]; k++) {
            sum += own->values[k] * x[own->columns[k]];
        }
        y[row] = sum;
    }
}

/* A rank's work at the beginning of a phase: the first row makes x, and all ranks multiply before the sums. The
 * group has met when it returns. */
WEIR_FN void spmv_begin(const spmv_grid *grid, const spmv_block *own, char *part, uint32_t number, uint32_t step,
                        uint32_t phase, weir_coop block)
{
    double *x = (double *)(void *)(part + spmv_piece(grid, 0));
    double *y = (double *)(void *)(part + spmv_piece(grid, 1));
    if (phase == 0 && number < grid->columns) {
        for (uint32_t i = block.rank; i < grid->size; i += block.size) {
            x[i] = spmv_x((uint64_t)number * grid->size + i, step);
        }
    }
    (void)weir_coop_sync(block);
    if (phase == grid->broadcasts) {
        spmv_multiply(grid, own, x, y, block);
        (void)weir_coop_sync(block);
    }
}

/* A rank's work at the end of a phase: it adds the piece of y that it has received. */
WEIR_FN void spmv_end(const spmv_grid *grid, char *part, uint32_t number, uint32_t phase, weir_coop block)
{
    if (phase >= grid->broadcasts && spmv_source(grid, number, phase) != SPMV_NOBODY) {
        double *y = (double *)(void *)(part + spmv_piece(grid, 1));
        const double *other = (const double *)(const void *)(part + spmv_piece(grid, spmv_received(grid, phase)));
        for (uint32_t i = block.rank; i < grid->size; i += block.size) {
            y[i] += other[i];
        }
    }
}

#endif
