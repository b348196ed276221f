/* layout_kernels.c - a kernel that makes the calls of weir/device/layout.h: see layout_kernels.h. */
#include "weir/device/layout.h"

#include "test/conformance/layout_kernels.h"

WEIR_FN weir_status pack_by_runs(const layout_args *args)
{
    uint64_t at = 0;
    while (at < args->bytes) {
        weir_dev_layout_run run;
        const weir_status status = weir_dev_layout_at(&args->from, args->offset + at, &run);
        if (status != WEIR_OK) {
            return status;
        }
        for (uint64_t i = 0; i < run.bytes && at < args->bytes; i++) {
            args->dst[at++] = args->src[run.place + (int64_t)i];
        }
    }
    return WEIR_OK;
}

WEIR_KERNEL(inside, layout_args)
{
    const weir_coop blocks = weir_coop_blocks(coop);
    weir_status status = WEIR_OK;
    if (args->call == LAYOUT_PACK) {
        status = weir_dev_layout_pack(&args->from, args->dst, args->src, args->offset, args->bytes, blocks);
    } else if (args->call == LAYOUT_UNPACK) {
        status = weir_dev_layout_unpack(&args->to, args->dst, args->src, args->offset, args->bytes, blocks);
    } else if (args->call == LAYOUT_COPY) {
        status = weir_dev_layout_copy(args->without == 1 ? NULL : &args->to, args->dst,
                                      args->without == 2 ? NULL : &args->from, args->src, blocks);
    } else if (coop.rank == 0) {
        status = pack_by_runs(args);
    }
    if (coop.rank == 0) {
        *args->status = (int32_t)status;
    }
}

const weir_kernel *const layout_inside = &inside;
