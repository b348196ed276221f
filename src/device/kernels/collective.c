/* collective.c - see collective.h. Failures become the communicator's sticky error. */
#include "src/device/kernels/collective.h"
#include "weir/device/impl/collective_relay.h"

/* Of kernels beside copies: 32 registers a thread. Such a kernel of one warp finds room beside a kernel of 384 threads
 * with 168 registers, as cuBLAS has for products on H200, which leaves 1,024 registers of its SM. */
#define WEIRI_COPIES_BOUNDS 1024, 2

WEIRI_PACKET_KERNEL(weiri_move_packets, weiri_move_args)
{
    (void)weir_collective_move_packets(&args->collective, &args->move, coop);
}

WEIRI_PACKET_KERNEL(weiri_move_lines, weiri_move_args)
{
    (void)weir_collective_move_lines(&args->collective, &args->move, coop);
}

WEIR_KERNEL_FOR(weiri_move_two, weiri_move_args, WEIRI_TWO_THREADS)
{
    (void)weir_move_lines_two(&args->collective, &args->move, coop);
}

WEIR_KERNEL_FOR(weiri_move_slots, weiri_move_args, WEIRI_SLOT_THREADS)
{
    (void)weir_collective_move_slots(&args->collective, &args->move, coop);
}

WEIR_KERNEL_FOR(weiri_spread, weiri_move_args, WEIRI_FEW_THREADS)
{
    (void)weir_collective_spread(&args->collective, &args->move, coop);
}

WEIRI_PACKET_KERNEL(weiri_relay_lines, weiri_move_args)
{
    (void)weir_collective_relay_lines(&args->collective, &args->move, coop);
}

WEIR_KERNEL_FOR(weiri_relay_slots, weiri_move_args, WEIRI_SLOT_THREADS)
{
    (void)weir_collective_relay_slots(&args->collective, &args->move, coop);
}

WEIR_KERNEL_FOR(weiri_copies_meet, weiri_move_args, WEIRI_COPIES_BOUNDS)
{
    (void)weir_copies_meet(&args->collective, &args->move, coop);
}

WEIR_KERNEL_FOR(weiri_copies_wait, weiri_copies_args, WEIRI_COPIES_BOUNDS)
{
    (void)weir_copies_wait(&args->collective, args->ranks, args->word, coop);
}

const weir_kernel *const weiri_collective_kernels[] = {
    &weiri_move_packets, &weiri_move_lines,  &weiri_move_slots,  &weiri_copies_meet, &weiri_copies_wait,
    &weiri_spread,       &weiri_relay_lines, &weiri_relay_slots, &weiri_move_two,    NULL
};
