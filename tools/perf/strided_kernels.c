/* strided_kernels.c - strided transfers over memory channels, and their data, for weir-perf strided. */
#include "weir/device/layout_channel.h"

#include "tools/perf/strided.h"

/* Each block meets the same block of the peer before and after its part of the put. */
WEIR_KERNEL_FOR(put, strided_args, 512)
{
    const weir_coop blocks = weir_coop_blocks(coop);
    const weir_dev_memory_channel channel = weir_dev_memory_channel_at(&args->channel, coop.block);
    if (weir_coop_leads(blocks)) {
        weir_dev_memory_channel_signal_relaxed(&channel);
        (void)weir_dev_memory_channel_wait_relaxed(&channel);
    }
    (void)weir_coop_sync(blocks);
    (void)weir_dev_memory_channel_put_layout(&channel, args->dense ? NULL : &args->rows, args->to_offset, &args->rows,
                                             0, blocks);
    (void)weir_coop_sync(blocks);
    if (weir_coop_leads(blocks)) {
        weir_dev_memory_channel_signal(&channel);
        (void)weir_dev_memory_channel_wait(&channel);
    }
}

WEIR_KERNEL_FOR(get, strided_args, 512)
{
    (void)weir_dev_memory_channel_get_layout(&args->channel, &args->rows, 0, args->dense ? NULL : &args->rows,
                                             args->to_offset, weir_coop_blocks(coop));
}

WEIR_KERNEL_FOR(packets, strided_args, 512)
{
    (void)weir_dev_memory_channel_exchange_layout_ll16(&args->channel, args->packet_offset, &args->rows, 0,
                                                       args->dense ? NULL : &args->rows, args->to_offset, coop);
}

WEIR_KERNEL_FOR(lines, strided_args, 512)
{
    (void)weir_dev_memory_channel_exchange_layout_lines(&args->channel, args->packet_offset, &args->rows, 0,
                                                        args->dense ? NULL : &args->rows, args->to_offset, coop);
}

/* ---- data ------------------------------------------------------------------------------------------------ */

WEIR_FN char byte_of(uint32_t rank, uint64_t place)
{
    return (char)((place + 1) * 0x9e3779b97f4a7c15u >> 56 ^ rank * 0x55);
}

WEIR_FN uint64_t place_of(const strided_data_args *args, uint64_t packed)
{
    const uint64_t row = packed / args->box.run;
    return row / args->box.counts[1] * args->box.strides[0] + row % args->box.counts[1] * args->box.strides[1] +
           packed % args->box.run;
}

WEIR_KERNEL(fill, strided_data_args)
{
    for (uint64_t i = coop.rank; i < args->span; i += coop.size) {
        args->source[i] = byte_of(args->rank, i);
    }
    for (uint64_t i = coop.rank; i < args->bytes; i += coop.size) {
        const uint64_t place = place_of(args, i);
        args->destination[args->dense ? i : place] = (char)~byte_of(args->peer, place);
    }
}

WEIR_KERNEL(compare, strided_data_args)
{
    uint64_t wrong = 0;
    for (uint64_t i = coop.rank; i < args->bytes; i += coop.size) {
        const uint64_t place = place_of(args, i);
        wrong += args->destination[args->dense ? i : place] != byte_of(args->peer, place);
    }
    if (wrong != 0) {
        weir_arch_add_relaxed_sys_u64(args->wrong, wrong);
    }
}

const weir_kernel *const strided_kernels[STRIDED_KERNELS] = { &put, &get, &packets, &lines };
const weir_kernel *const strided_fill = &fill;
const weir_kernel *const strided_compare = &compare;
