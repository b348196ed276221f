/* halo_kernels.c - the data of weir-perf halo. */
#include "tools/perf/halo.h"

typedef struct cell {
    double value;
    int ghost;
} cell;

/* Cell `i` of the array: its value in the whole field and in this round, an integer below 2^53. */
WEIR_FN cell cell_at(const halo_field_args *args, uint64_t i)
{
    const uint64_t side = args->n + 2 * args->radius;
    const uint64_t at[3] = { i / side / side, i / side % side, i % side };
    uint64_t number = args->round;
    cell found = { 0, 0 };
    for (uint32_t d = 0; d < 3; d++) {
        const uint64_t whole = d == args->axis ? args->n * args->ranks : args->n;
        const uint64_t first = d == args->axis ? args->n * args->rank : 0;
        number = number * whole + (at[d] + first + whole - args->radius) % whole;
        found.ghost |= at[d] < args->radius || at[d] >= args->n + args->radius;
    }
    found.value = (double)number;
    return found;
}

WEIR_FN uint64_t count_cells(const halo_field_args *args)
{
    const uint64_t side = args->n + 2 * args->radius;
    return side * side * side;
}

WEIR_KERNEL(fill, halo_field_args)
{
    for (uint64_t i = coop.rank; i < count_cells(args); i += coop.size) {
        const cell wanted = cell_at(args, i);
        args->cells[i] = wanted.ghost ? -1 : wanted.value;
    }
}

WEIR_KERNEL(compare, halo_field_args)
{
    uint64_t wrong = 0;
    for (uint64_t i = coop.rank; i < count_cells(args); i += coop.size) {
        wrong += args->cells[i] != cell_at(args, i).value;
    }
    if (wrong != 0) {
        weir_arch_add_relaxed_sys_u64(args->wrong, wrong);
    }
}

const weir_kernel *const halo_fill = &fill;
const weir_kernel *const halo_compare = &compare;
