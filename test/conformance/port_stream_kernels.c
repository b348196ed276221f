/* port_stream_kernels.c - see port_stream_kernels.h. */
#include "port_stream_kernels.h"

WEIR_FN void port_round_fill(const port_round_args *args, uint64_t round, uint64_t at, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++) {
        args->local[at + i] = weirt_pattern(args->rank, round, at + i);
        args->local[STREAM_HALF + at + i] = (char)~weirt_pattern(args->peer, round, at + i);
    }
}

WEIR_FN void port_round_compare(const port_round_args *args, uint64_t round, uint64_t at, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++) {
        if (args->local[STREAM_HALF + at + i] != weirt_pattern(args->peer, round, at + i)) {
            args->report->wrong = 1;
            args->report->wrong_position = at + i;
            args->report->value = round;
        }
    }
}

WEIR_FN void port_round_expect(const port_round_args *args, uint64_t round, uint64_t at, uint64_t number)
{
    if (weir_arch_load_relaxed_sys_u64((const uint64_t *)(args->local + STREAM_HALF + at)) != number) {
        args->report->wrong = 1;
        args->report->wrong_position = at;
        args->report->value = round;
    }
}

WEIR_KERNEL(port_round, port_round_args)
{
    uint64_t *rounds = (uint64_t *)(args->local + STREAM_ROUND);
    const uint64_t round = *rounds;
    coop = weir_coop_thread(coop);
    if (args->compare) {
        port_round_compare(args, round, STREAM_PUT, STREAM_PUT_BYTES);
        port_round_compare(args, round, STREAM_SMALL, STREAM_SMALL_BYTES);
        port_round_compare(args, round, STREAM_KERNEL, STREAM_KERNEL_BYTES);
        port_round_compare(args, round, STREAM_GET, STREAM_GET_BYTES);
        port_round_expect(args, round, STREAM_VALUE, STREAM_VALUE_NUMBER);
        port_round_expect(args, round, STREAM_WORD, args->adds ? (round + 1) * STREAM_ADDEND : 0);
        args->report->iterations = *rounds = round + 1;
        return;
    }
    port_round_fill(args, round, STREAM_PUT, STREAM_PUT_BYTES);
    port_round_fill(args, round, STREAM_SMALL, STREAM_SMALL_BYTES);
    port_round_fill(args, round, STREAM_KERNEL, STREAM_KERNEL_BYTES);
    port_round_fill(args, round, STREAM_GET, STREAM_GET_BYTES);
    weir_arch_store_relaxed_sys_u64((uint64_t *)(args->local + STREAM_HALF + STREAM_VALUE), 0);
    /* The peer may still write its half; it has checked the half that is overwritten here. */
    args->report->status[0] = (int32_t)weir_dev_port_channel_signal(&args->channel, NULL);
    if (weir_dev_port_channel_wait(&args->channel) == WEIR_OK) {
        args->report->status[1] = (int32_t)weir_dev_port_channel_put(&args->channel, STREAM_HALF + STREAM_KERNEL,
                                                                     STREAM_KERNEL, STREAM_KERNEL_BYTES, coop, NULL);
    }
}

const weir_kernel *port_round_kernel(void) { return &port_round; }
