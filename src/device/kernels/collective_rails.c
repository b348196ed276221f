/* collective_rails.c - what collectives between hosts need beside those of one host: the exchange of pieces,
 * averages of integers, and copies; see collective.h. */
#include "src/device/kernels/collective.h"

WEIR_KERNEL(weiri_rail, weiri_rail_args) { (void)weir_rail_run(&args->rails, &args->step, coop); }

/* If the collective was abandoned, fails and returns 1. */
WEIR_FN int weiri_is_abandoned(weir_dev_control *control, const uint64_t *abandoned, const weir_collective_what *what)
{
    if (WEIR_UNLIKELY(weir_arch_load_relaxed_dev_u64(abandoned) != 0)) {
        (void)weir_dev_control_fail_in(
            control, WEIR_ERR_INVALID,
            weir_dev_note_of(WEIR_DOING_ABANDONED, WEIR_NO_PEER, what->call, what->count, 0));
        return 1;
    }
    return 0;
}

WEIR_FN uint64_t weiri_average_load(const char *at, uint32_t dtype)
{
    switch (weir_dtype_bytes(dtype)) {
    case 8:
        return weir_arch_load_u64((const weir_alias_u64 *)at);
    case 4:
        return weir_element_integer(dtype, weir_arch_load_u32((const weir_alias_u32 *)at), 0);
    default:
        return weir_element_integer(dtype, (uint8_t)*at, 0);
    }
}

WEIR_FN void weiri_average_store(char *at, uint32_t dtype, uint64_t value)
{
    switch (weir_dtype_bytes(dtype)) {
    case 8:
        weir_arch_store_u64((weir_alias_u64 *)at, value);
        break;
    case 4:
        weir_arch_store_u32((weir_alias_u32 *)at, (uint32_t)value);
        break;
    default:
        *at = (char)(uint8_t)value;
    }
}

WEIR_KERNEL(weiri_average, weiri_average_args)
{
    const uint32_t bytes = weir_dtype_bytes(args->dtype);
    if (weiri_is_abandoned(args->control, args->abandoned, &args->what)) {
        return;
    }
    for (uint64_t row = 0; row < args->rows; row++) {
        const char *from = args->from + row * args->from_step;
        char *to = args->to + row * args->to_step;
        for (uint64_t i = coop.rank; i < args->count; i += coop.size) {
            if (args->divisor == 0) {
                weir_arch_store_u64((weir_alias_u64 *)to + i, weiri_average_load(from + i * bytes, args->dtype));
            } else {
                const uint64_t sum = weir_arch_load_u64((const weir_alias_u64 *)from + i);
                weiri_average_store(to + i * bytes, args->dtype,
                                    weir_divide_integer(sum, args->divisor, weir_dtype_is_signed(args->dtype)));
            }
        }
    }
}

/* Warps take chunks of the pieces in turn, from the first piece to the last. */
WEIR_FN void weiri_copy_pieces(const weiri_copy_args *args, weir_coop coop)
{
    const weir_coop warp = weir_coop_warp(coop);
    const uint32_t width = weir_arch_warp_size();
    const uint32_t warps = (coop.block_size + width - 1) / width; /* of a block */
    uint64_t chunk = (uint64_t)coop.block * warps + coop.block_rank / width;
    for (uint64_t i = 0; i < args->count; i++) {
        const weiri_copy_piece piece = args->pieces[i];
        const uint64_t chunks = (piece.bytes + WEIRI_COPY_CHUNK - 1) / WEIRI_COPY_CHUNK;
        for (; chunk < chunks; chunk += (uint64_t)coop.blocks * warps) {
            const uint64_t at = chunk * WEIRI_COPY_CHUNK;
            const uint64_t left = piece.bytes - at;
            weir_copy(piece.to + at, piece.from + at, left < WEIRI_COPY_CHUNK ? left : WEIRI_COPY_CHUNK, warp);
        }
        chunk -= chunks;
    }
}

WEIR_KERNEL(weiri_copy, weiri_copy_args)
{
    if (!weiri_is_abandoned(args->control, args->abandoned, &args->what)) {
        weiri_copy_pieces(args, coop);
    }
}

const weir_kernel *const weiri_collective_rails_kernels[] = { &weiri_rail, &weiri_average, &weiri_copy, NULL };
