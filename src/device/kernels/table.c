/* table.c - see table.h. A kernel for each direction of the default form, and one for each of the other loops: fewer
 * registers than one kernel with all. */
#include "src/device/kernels/table.h"

/* Rows of the call. The count in memory may have been stored by a kernel in front of this one. */
WEIR_FN uint64_t weiri_table_count(const weir_table_call *call)
{
    const uint64_t most = call->count_at == NULL ? call->count : *call->count_at;
    return most < call->count ? most : call->count;
}

WEIR_KERNEL_FOR(weiri_table_gather, weir_table_call, 1024)
{
    weir_table_move_units(args, weiri_table_count(args), coop, 0);
}

WEIR_KERNEL_FOR(weiri_table_scatter, weir_table_call, 1024)
{
    weir_table_move_units(args, weiri_table_count(args), coop, 1);
}

WEIR_KERNEL_FOR(weiri_table_lines, weir_table_call, 1024)
{
    weir_table_move_lines(args, weiri_table_count(args), coop);
}

WEIR_KERNEL_FOR(weiri_table_elements, weir_table_call, 1024)
{
    weir_table_move_elements(args, weiri_table_count(args), coop);
}

const weir_kernel *const weiri_table_kernels[] = { &weiri_table_gather, &weiri_table_scatter, &weiri_table_lines,
                                                   &weiri_table_elements, NULL };
