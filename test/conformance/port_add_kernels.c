/* port_add_kernels.c - see port_add_kernels.h. */
#include "port_add_kernels.h"

WEIR_KERNEL(port_add, port_add_args)
{
    weir_status status = WEIR_OK;
    for (uint64_t i = 0; i < args->adds && status == WEIR_OK; i++) {
        uint64_t at = args->at + 8 * port_add_word(coop.rank, i);
        uint64_t value = port_add_value(args->rank, coop.rank, i);
        status = weir_dev_port_channel_add(&args->channel, at, value, NULL);
        if (args->local) {
            weir_arch_add_relaxed_sys_u64((uint64_t *)(args->words + at), value);
        }
    }
    if (status == WEIR_OK) {
        status = weir_dev_port_channel_flush(&args->channel, NULL);
    }
    args->report->status[coop.rank] = (int32_t)status;
}

const weir_kernel *port_add_kernel(void) { return &port_add; }

WEIR_KERNEL(port_count, port_count_args)
{
    const weir_dev_port_channel *channel = &args->channel;
    const uint64_t from = 64;
    const uint64_t to = 64 + args->half;
    weir_status status = WEIR_OK;
    if (coop.rank != 0) {
        return;
    }
    for (uint64_t round = 0; round < args->rounds && status == WEIR_OK; round++) {
        for (uint64_t i = 0; i < args->bytes; i++) {
            args->local[from + i] = weirt_pattern(args->rank, round, i);
        }
        status = weir_dev_port_channel_put(channel, to, from, args->bytes, weir_coop_thread(coop), NULL);
        if (status == WEIR_OK) {
            status = weir_dev_port_channel_add(channel, 0, 1, NULL);
        }
        if (status == WEIR_OK) {
            status = weir_spin_above((const uint64_t *)args->local, round, 0, channel->semaphore.control,
                                     weir_dev_semaphore_note(&channel->semaphore, WEIR_DOING_WAIT));
        }
        for (uint64_t i = 0; i < args->bytes && status == WEIR_OK; i++) {
            if (args->local[to + i] != weirt_pattern(args->peer, round, i)) {
                args->report->wrong = 1;
            }
        }
        if (status == WEIR_OK) {
            status = weir_dev_port_channel_signal(channel, NULL);
        }
        if (status == WEIR_OK) {
            status = weir_dev_port_channel_flush(channel, NULL);
        }
        if (status == WEIR_OK) {
            status = weir_dev_port_channel_wait(channel); /* the peer has compared */
        }
        args->report->iterations = round + 1;
    }
    args->report->status[0] = (int32_t)status;
}

const weir_kernel *port_count_kernel(void) { return &port_count; }
