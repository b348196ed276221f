/* port_try_kernels.c - see port_try_kernels.h. */
#include "port_try_kernels.h"

WEIR_FN weir_status port_try_send(const port_try_args *args, uint32_t round)
{
    weir_request request;
    uint64_t ticket = 0;
    for (uint32_t i = 0; i < PORT_TRY_WORDS; i++) {
        args->memory[PORT_TRY_SENT + i] = port_try_word(args->rank, round, i);
    }
    request.remote_offset = PORT_TRY_CAME(round, args->rank) * sizeof(uint64_t);
    request.local_offset = PORT_TRY_SENT;
    request.bytes = PORT_TRY_WORDS * sizeof(uint64_t);
    request.value = round;
    request.remote = WEIR_PORT_REMOTE;
    request.local = WEIR_PORT_LOCAL;
    request.channel = 0;
    request.type = WEIR_REQUEST_USER;
    request.reserved = 0;
    weir_status status = weir_dev_proxy_channel_push(&args->push, &request, &ticket);
    return status == WEIR_OK ? weir_dev_proxy_channel_wait(&args->push, ticket) : status;
}

WEIR_FN weir_status port_try_receive(const port_try_args *args, uint32_t round)
{
    weir_status status = WEIR_OK;
    for (uint32_t from = 0; from < PORT_TRY_RANKS && status == WEIR_OK; from++) {
        if (from == args->rank) {
            continue;
        }
        status = weir_dev_port_channel_wait(&args->ports[from]);
        for (uint32_t i = 0; i < PORT_TRY_WORDS && status == WEIR_OK; i++) {
            const uint64_t came = weir_arch_load_relaxed_sys_u64(&args->memory[PORT_TRY_CAME(round, from) + i]);
            args->report->wrong += came != port_try_word(from, round, i);
        }
    }
    return status;
}

WEIR_KERNEL(port_try, port_try_args)
{
    weir_status status = WEIR_OK;
    if (coop.rank != 0) {
        return;
    }
    for (uint32_t round = 0; round < args->rounds && status == WEIR_OK; round++) {
        status = port_try_send(args, round);
        if (status == WEIR_OK) {
            status = port_try_receive(args, round);
        }
        args->report->rounds += status == WEIR_OK;
    }
    args->report->status = (int32_t)status;
}

const weir_kernel *port_try_kernel(void) { return &port_try; }
