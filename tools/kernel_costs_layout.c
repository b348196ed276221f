/* kernel_costs_layout.c - one minimal kernel for each call of weir/device/layout.h, weir/device/layout_channel.h and
 * weir/device/halo.h. Only tools/kernel-costs uses it, as it does kernel_costs.c. */
#include "weir/device/halo.h"
#include "weir/device/kernel.h"
#include "weir/device/layout_channel.h"

typedef struct layout_cost_args {
    weir_dev_layout to;
    weir_dev_layout from;
    char *dst;
    char *src;
    uint64_t offset;
    uint64_t bytes;
    weir_dev_layout_run *run;
} layout_cost_args;

WEIR_KERNEL(layout_pack, layout_cost_args)
{
    (void)weir_dev_layout_pack(&args->from, args->dst, args->src, args->offset, args->bytes, coop);
}

WEIR_KERNEL(layout_unpack, layout_cost_args)
{
    (void)weir_dev_layout_unpack(&args->to, args->dst, args->src, args->offset, args->bytes, coop);
}

WEIR_KERNEL(layout_copy, layout_cost_args)
{
    (void)weir_dev_layout_copy(&args->to, args->dst, &args->from, args->src, coop);
}

WEIR_KERNEL(layout_at, layout_cost_args) { (void)weir_dev_layout_at(&args->from, args->offset, args->run + coop.rank); }

typedef struct layout_channel_cost_args {
    weir_dev_memory_channel channel;
    weir_dev_layout to;
    weir_dev_layout from;
    uint64_t to_offset;
    uint64_t from_offset;
    uint64_t packet_offset;
    int32_t *status;
} layout_channel_cost_args;

WEIR_KERNEL(put_layout, layout_channel_cost_args)
{
    (void)weir_dev_memory_channel_put_layout(&args->channel, &args->to, args->to_offset, &args->from, args->from_offset,
                                             coop);
}

WEIR_KERNEL(get_layout, layout_channel_cost_args)
{
    (void)weir_dev_memory_channel_get_layout(&args->channel, &args->from, args->from_offset, &args->to, args->to_offset,
                                             coop);
}

WEIR_KERNEL(put_layout_ll16, layout_channel_cost_args)
{
    (void)weir_dev_memory_channel_put_layout_ll16(&args->channel, args->packet_offset, &args->from, args->from_offset,
                                                  coop);
}

WEIR_KERNEL(unpack_layout_ll16, layout_channel_cost_args)
{
    *args->status = (int32_t)weir_dev_memory_channel_unpack_layout_ll16(&args->channel, args->packet_offset, &args->to,
                                                                        args->to_offset, coop);
}

WEIR_KERNEL(exchange_layout_ll16, layout_channel_cost_args)
{
    *args->status = (int32_t)weir_dev_memory_channel_exchange_layout_ll16(
        &args->channel, args->packet_offset, &args->from, args->from_offset, &args->to, args->to_offset, coop);
}

WEIR_KERNEL(put_layout_lines, layout_channel_cost_args)
{
    (void)weir_dev_memory_channel_put_layout_lines(&args->channel, args->packet_offset, &args->from, args->from_offset,
                                                   coop);
}

WEIR_KERNEL(unpack_layout_lines, layout_channel_cost_args)
{
    *args->status = (int32_t)weir_dev_memory_channel_unpack_layout_lines(&args->channel, args->packet_offset, &args->to,
                                                                         args->to_offset, coop);
}

WEIR_KERNEL(exchange_layout_lines, layout_channel_cost_args)
{
    *args->status = (int32_t)weir_dev_memory_channel_exchange_layout_lines(
        &args->channel, args->packet_offset, &args->from, args->from_offset, &args->to, args->to_offset, coop);
}

typedef struct halo_cost_args {
    weir_dev_halo halo;
    weir_dev_grid_barrier barrier;
    int32_t *status;
} halo_cost_args;

WEIR_KERNEL(halo_put, halo_cost_args)
{
    coop.barrier = &args->barrier;
    *args->status = (int32_t)weir_dev_halo_put(&args->halo, coop);
}

WEIR_KERNEL(halo_wait, halo_cost_args)
{
    coop.barrier = &args->barrier;
    *args->status = (int32_t)weir_dev_halo_wait(&args->halo, coop);
}
