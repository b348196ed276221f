/* parts_between.c - parts between hosts: each extent is a broadcast or a reduce. The ranks compare the digest before,
 * in steps without data. */
#include <string.h>

#include "src/host/collective/collective.h"

/* Compares the calls of the ranks of each rail, and then those inside the host. */
static weir_status compare(const weiri_parts *call)
{
    weir_collective *collective = call->collective;
    const weiri_work work = { .kind = WEIR_ALLGATHER };
    weir_collective_form form = WEIR_FORM_PACKETS;
    weir_shape shape;
    weir_rail_step rail;
    weiri_move_args args;
    memset(&rail, 0, sizeof rail);
    memset(&args, 0, sizeof args);
    rail.send = collective->rails.hold;
    rail.recv = collective->rails.hold;
    rail.from = UINT64_MAX >> (WEIR_COLLECTIVE_HOSTS - collective->rails.device.hosts);
    rail.to = rail.from;
    weir_status status = weiri_choose(collective, &work, call->name, &form, &shape);
    if (status == WEIR_OK) {
        status = weiri_rails_run(collective, weiri_parts_call_of(call), call->digest, &rail, call->stream);
    }
    if (status != WEIR_OK || collective->device.ranks == 1) {
        return status;
    }
    weiri_step step = {
        .call = weiri_parts_call_of(call), .count = call->digest, .threads = shape.threads, .stream = call->stream
    };
    step.call.form = (uint32_t)form;
    step.call.blocks = shape.blocks;
    return weiri_local_move(collective, &step, &args);
}

weir_status weiri_parts_between(const weiri_parts *call)
{
    weir_status status = compare(call);
    for (uint32_t i = 0; i < call->n; i++) {
        for (uint32_t k = 0; k < call->collective->size && status == WEIR_OK; k++) {
            if (call->parts[i].extents[k].count != 0) {
                status = weiri_parts_extent(call, &call->parts[i], k);
            }
        }
    }
    return status;
}
