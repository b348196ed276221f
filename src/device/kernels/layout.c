/* layout.c - see layout.h. A kernel for each direction and word: fewer registers, and so more threads under way, than
 * one kernel with all. */
#include "src/device/kernels/layout.h"

/* With the threads alone as a bound, nvcc gives a pack by runs 32 registers and puts a value into memory. */
#define RUNS_BOUNDS 1024, 1

/* `word` is a constant. */
WEIR_FN void weiri_layout_pack(const weiri_layout_args *args, uint32_t word, weir_coop coop)
{
    weir_layout_move(weir_layout_packed(args->dst, args->at), weir_layout_wide(&args->from, args->src), args->at,
                     args->bytes, word, coop);
}

WEIR_FN void weiri_layout_unpack(const weiri_layout_args *args, uint32_t word, weir_coop coop)
{
    weir_layout_move(weir_layout_wide(&args->to, args->dst), weir_layout_packed(args->src, args->at), args->at,
                     args->bytes, word, coop);
}

WEIR_FN void weiri_layout_copy(const weiri_layout_args *args, uint32_t word, weir_coop coop)
{
    weir_layout_move(weir_layout_wide(&args->to, args->dst), weir_layout_wide(&args->from, args->src), args->at,
                     args->bytes, word, coop);
}

WEIR_KERNEL_FOR(weiri_layout_pack_1, weiri_layout_args, 1024) { weiri_layout_pack(args, 1, coop); }
WEIR_KERNEL_FOR(weiri_layout_pack_2, weiri_layout_args, 1024) { weiri_layout_pack(args, 2, coop); }
WEIR_KERNEL_FOR(weiri_layout_pack_4, weiri_layout_args, 1024) { weiri_layout_pack(args, 4, coop); }
WEIR_KERNEL_FOR(weiri_layout_pack_8, weiri_layout_args, 1024) { weiri_layout_pack(args, 8, coop); }
WEIR_KERNEL_FOR(weiri_layout_pack_16, weiri_layout_args, 1024) { weiri_layout_pack(args, 16, coop); }
WEIR_KERNEL_FOR(weiri_layout_pack_runs, weiri_layout_args, RUNS_BOUNDS)
{
    weiri_layout_pack(args, WEIR_LAYOUT_BY_RUNS, coop);
}
WEIR_KERNEL_FOR(weiri_layout_pack_pieces, weiri_layout_args, 1024)
{
    weiri_layout_pack(args, WEIR_LAYOUT_BY_PIECES, coop);
}

WEIR_KERNEL_FOR(weiri_layout_unpack_1, weiri_layout_args, 1024) { weiri_layout_unpack(args, 1, coop); }
WEIR_KERNEL_FOR(weiri_layout_unpack_2, weiri_layout_args, 1024) { weiri_layout_unpack(args, 2, coop); }
WEIR_KERNEL_FOR(weiri_layout_unpack_4, weiri_layout_args, 1024) { weiri_layout_unpack(args, 4, coop); }
WEIR_KERNEL_FOR(weiri_layout_unpack_8, weiri_layout_args, 1024) { weiri_layout_unpack(args, 8, coop); }
WEIR_KERNEL_FOR(weiri_layout_unpack_16, weiri_layout_args, 1024) { weiri_layout_unpack(args, 16, coop); }
WEIR_KERNEL_FOR(weiri_layout_unpack_runs, weiri_layout_args, 1024)
{
    weiri_layout_unpack(args, WEIR_LAYOUT_BY_RUNS, coop);
}
WEIR_KERNEL_FOR(weiri_layout_unpack_pieces, weiri_layout_args, 1024)
{
    weiri_layout_unpack(args, WEIR_LAYOUT_BY_PIECES, coop);
}

WEIR_KERNEL_FOR(weiri_layout_copy_4, weiri_layout_args, 1024) { weiri_layout_copy(args, 4, coop); }
WEIR_KERNEL_FOR(weiri_layout_copy_8, weiri_layout_args, 1024) { weiri_layout_copy(args, 8, coop); }
WEIR_KERNEL_FOR(weiri_layout_copy_16, weiri_layout_args, 1024) { weiri_layout_copy(args, 16, coop); }
WEIR_KERNEL_FOR(weiri_layout_copy_pieces, weiri_layout_args, 1024)
{
    weiri_layout_copy(args, WEIR_LAYOUT_BY_PIECES, coop);
}

const weir_kernel *const weiri_layout_kernels[] = { &weiri_layout_pack_1,      &weiri_layout_pack_2,
                                                    &weiri_layout_pack_4,      &weiri_layout_pack_8,
                                                    &weiri_layout_pack_16,     &weiri_layout_pack_runs,
                                                    &weiri_layout_pack_pieces, &weiri_layout_unpack_1,
                                                    &weiri_layout_unpack_2,    &weiri_layout_unpack_4,
                                                    &weiri_layout_unpack_8,    &weiri_layout_unpack_16,
                                                    &weiri_layout_unpack_runs, &weiri_layout_unpack_pieces,
                                                    &weiri_layout_copy_pieces, &weiri_layout_copy_pieces,
                                                    &weiri_layout_copy_4,      &weiri_layout_copy_8,
                                                    &weiri_layout_copy_16,     &weiri_layout_copy_pieces,
                                                    &weiri_layout_copy_pieces, NULL };
