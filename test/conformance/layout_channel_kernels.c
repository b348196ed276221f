/* layout_channel_kernels.c - see layout_channel_kernels.h. */
#include "weir/device/layout_channel.h"

#include "test/conformance/layout_channel_kernels.h"

WEIR_FN weir_status layout_channel_lines(const layout_channel_args *args, const weir_dev_layout *to, uint64_t to_offset,
                                         const weir_dev_layout *from, uint64_t from_offset, weir_coop team)
{
    const weir_dev_memory_channel *channel = &args->channel;
    weir_status status = WEIR_OK;
    if (args->call == LAYOUT_CHANNEL_EXCHANGE_LINES) {
        return weir_dev_memory_channel_exchange_layout_lines(channel, args->packet_offset, from, from_offset, to,
                                                             to_offset, team);
    }
    if (args->call != LAYOUT_CHANNEL_UNPACK_LINES) {
        status = weir_dev_memory_channel_put_layout_lines(channel, args->packet_offset, from, from_offset, team);
    }
    if (args->call != LAYOUT_CHANNEL_PUT_LINES && status == WEIR_OK) {
        status = weir_dev_memory_channel_unpack_layout_lines(channel, args->packet_offset, to, to_offset, team);
    }
    return status;
}

WEIR_FN weir_status layout_channel_once(const layout_channel_args *args, uint64_t shift, weir_coop team)
{
    const weir_dev_memory_channel *channel = &args->channel;
    const weir_dev_layout *to = (args->without & 1) != 0 ? NULL : &args->to;
    const weir_dev_layout *from = (args->without & 2) != 0 ? NULL : &args->from;
    const uint64_t to_offset = args->to_offset + shift;
    const uint64_t from_offset = args->from_offset + shift;
    weir_status status = WEIR_OK;
    if (args->call == LAYOUT_CHANNEL_PUT) {
        return weir_dev_memory_channel_put_layout(channel, to, to_offset, from, from_offset, team);
    }
    if (args->call == LAYOUT_CHANNEL_GET) {
        return weir_dev_memory_channel_get_layout(channel, from, from_offset, to, to_offset, team);
    }
    if (args->call == LAYOUT_CHANNEL_EXCHANGE_LL16) {
        return weir_dev_memory_channel_exchange_layout_ll16(channel, args->packet_offset, from, from_offset, to,
                                                            to_offset, team);
    }
    if (args->call >= LAYOUT_CHANNEL_PUT_LINES) {
        return layout_channel_lines(args, to, to_offset, from, from_offset, team);
    }
    if (args->call != LAYOUT_CHANNEL_UNPACK_LL16) {
        status = weir_dev_memory_channel_put_layout_ll16(channel, args->packet_offset, from, from_offset, team);
    }
    if (args->call != LAYOUT_CHANNEL_PUT_LL16 && status == WEIR_OK) {
        status = weir_dev_memory_channel_unpack_layout_ll16(channel, args->packet_offset, to, to_offset, team);
    }
    return status;
}

WEIR_KERNEL(layout_channel_calls, layout_channel_args)
{
    const int packets = args->call != LAYOUT_CHANNEL_PUT && args->call != LAYOUT_CHANNEL_GET;
    const weir_coop team = !args->grid ? weir_coop_block(coop) : packets ? coop : weir_coop_blocks(coop);
    weir_status status = WEIR_OK;
    if (!args->grid && coop.block != 0) {
        return;
    }
    for (uint32_t i = 0; i < args->rounds && status == WEIR_OK; i++) {
        status = layout_channel_once(args, i * args->step, team);
        if (args->meets && status == WEIR_OK) {
            (void)weir_coop_sync(team);
            if (weir_coop_leads(team)) {
                weir_dev_memory_channel_signal(&args->channel);
            }
            status = weir_dev_memory_channel_wait_coop(&args->channel, team);
        }
    }
    if (status != WEIR_OK) {
        weir_arch_store_relaxed_sys_u32((uint32_t *)args->status, (uint32_t)status); /* by several threads */
    }
}

const weir_kernel *const layout_channel_kernel = &layout_channel_calls;
