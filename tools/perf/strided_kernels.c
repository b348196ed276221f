/* strided_kernels.c - strided transfers over memory channels, stores by hand, and their data, for weir-perf strided. */
#include "weir/device/layout_channel.h"

#include "tools/perf/strided.h"

/* Each block meets the same block of the peer before and after its part of a put. `all` has a semaphore for each. */
WEIR_FN void begin_put(const weir_dev_memory_channel *all, weir_coop blocks)
{
    if (weir_coop_leads(blocks)) {
        const weir_dev_memory_channel channel = weir_dev_memory_channel_at(all, blocks.block);
        weir_dev_memory_channel_signal_relaxed(&channel);
        (void)weir_dev_memory_channel_wait_relaxed(&channel);
    }
    (void)weir_coop_sync(blocks);
}

WEIR_FN void end_put(const weir_dev_memory_channel *all, weir_coop blocks)
{
    (void)weir_coop_sync(blocks);
    if (weir_coop_leads(blocks)) {
        const weir_dev_memory_channel channel = weir_dev_memory_channel_at(all, blocks.block);
        weir_dev_memory_channel_signal(&channel);
        (void)weir_dev_memory_channel_wait(&channel);
    }
}

WEIR_KERNEL_FOR(put, strided_args, 512)
{
    const weir_coop blocks = weir_coop_blocks(coop);
    begin_put(&args->channel, blocks);
    if (args->dense) {
        (void)weir_dev_memory_channel_put_layout(&args->channel, NULL, args->to_offset, &args->rows, 0, blocks);
    } else {
        (void)weir_dev_memory_channel_put_layout(&args->channel, &args->rows, args->to_offset, &args->rows, 0, blocks);
    }
    end_put(&args->channel, blocks);
}

WEIR_KERNEL_FOR(get, strided_args, 512)
{
    const weir_coop blocks = weir_coop_blocks(coop);
    if (args->dense) {
        (void)weir_dev_memory_channel_get_layout(&args->channel, &args->rows, 0, NULL, args->to_offset, blocks);
    } else {
        (void)weir_dev_memory_channel_get_layout(&args->channel, &args->rows, 0, &args->rows, args->to_offset, blocks);
    }
}

WEIR_KERNEL_FOR(packets, strided_args, 512)
{
    if (args->dense) {
        (void)weir_dev_memory_channel_exchange_layout_ll16(&args->channel, args->packet_offset, &args->rows, 0, NULL,
                                                           args->to_offset, coop);
    } else {
        (void)weir_dev_memory_channel_exchange_layout_ll16(&args->channel, args->packet_offset, &args->rows, 0,
                                                           &args->rows, args->to_offset, coop);
    }
}

WEIR_KERNEL_FOR(lines, strided_args, 512)
{
    (void)weir_dev_memory_channel_exchange_layout_lines(&args->channel, args->packet_offset, &args->rows, 0,
                                                        args->dense ? NULL : &args->rows, args->to_offset, coop);
}

/* ---- stores by hand ---------------------------------------------------------------------------------------- */

#define STORE_BATCH 4 /* words that a lane has under way */

/* Neighbouring lanes move neighbouring words. `word` is a constant. */
WEIR_FN void store_words(const strided_store_args *args, weir_coop coop, uint32_t word)
{
    const weir_coop blocks = weir_coop_blocks(coop);
    const uint32_t in_row = (uint32_t)args->box.run / word;
    const char *from = args->channel.local;
    char *to = args->channel.remote + args->to_offset;
    begin_put(&args->channel, blocks);
    for (uint32_t first = coop.rank; first < args->words; first += coop.size * STORE_BATCH) {
        weir_vec16 values[STORE_BATCH];
        WEIR_PARTLY_SET(values);
        uint64_t places[STORE_BATCH];
        WEIR_UNROLL
        for (uint32_t k = 0; k < STORE_BATCH; k++) {
            const uint32_t i = first + k * coop.size;
            const uint32_t row = pack_divide(i, args->by_row);
            const uint32_t outer = pack_divide(row, args->by_inner);
            const uint32_t inner = row - outer * (uint32_t)args->box.counts[1];
            places[k] = outer * args->box.strides[0] + inner * args->box.strides[1] + (i - row * in_row) * word;
            if (i < args->words && word == 16) {
                values[k] = weir_arch_load_vec16((const weir_vec16 *)(from + places[k]));
            } else if (i < args->words) {
                values[k].lo = pack_load_word(from + places[k], word);
            }
        }
        WEIR_UNROLL
        for (uint32_t k = 0; k < STORE_BATCH; k++) {
            const uint32_t i = first + k * coop.size;
            char *place = to + (args->dense ? (uint64_t)i * word : places[k]);
            if (i < args->words && word == 16) {
                weir_arch_store_vec16((weir_vec16 *)place, values[k]);
            } else if (i < args->words) {
                pack_store_word(place, values[k].lo, word);
            }
        }
    }
    end_put(&args->channel, blocks);
}

WEIR_KERNEL_FOR(store_1, strided_store_args, 1024) { store_words(args, coop, 1); }
WEIR_KERNEL_FOR(store_2, strided_store_args, 1024) { store_words(args, coop, 2); }
WEIR_KERNEL_FOR(store_4, strided_store_args, 1024) { store_words(args, coop, 4); }
WEIR_KERNEL_FOR(store_8, strided_store_args, 1024) { store_words(args, coop, 8); }
WEIR_KERNEL_FOR(store_16, strided_store_args, 1024) { store_words(args, coop, 16); }

/* ---- data ------------------------------------------------------------------------------------------------ */

WEIR_FN char byte_of(const strided_data_args *args, uint32_t rank, uint64_t place)
{
    return (char)((place + 1) * 0x9e3779b97f4a7c15u >> 56 ^ rank * 0x55 ^ args->round * 0x1d);
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
        args->source[i] = byte_of(args, args->rank, i);
    }
    for (uint64_t i = coop.rank; i < args->bytes; i += coop.size) {
        const uint64_t place = place_of(args, i);
        args->destination[args->dense ? i : place] = (char)~byte_of(args, args->peer, place);
    }
}

WEIR_KERNEL(compare, strided_data_args)
{
    uint64_t wrong = 0;
    for (uint64_t i = coop.rank; i < args->bytes; i += coop.size) {
        const uint64_t place = place_of(args, i);
        wrong += args->destination[args->dense ? i : place] != byte_of(args, args->peer, place);
    }
    if (wrong != 0) {
        weir_arch_add_relaxed_sys_u64(args->wrong, wrong);
    }
}

const weir_kernel *const strided_kernels[STRIDED_KERNELS] = { &put, &get, &packets, &lines };
const weir_kernel *const strided_stores[PACK_WORDS] = { &store_1, &store_2, &store_4, &store_8, &store_16 };
const weir_kernel *const strided_fill = &fill;
const weir_kernel *const strided_compare = &compare;
