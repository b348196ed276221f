/* collective.c - see collective.h. Failures become the communicator's sticky error. */
#include "src/device/kernels/collective.h"

WEIRI_PACKET_KERNEL(weiri_move_packets, weiri_move_args)
{
    (void)weir_collective_move_packets(&args->collective, &args->move, coop);
}

WEIRI_PACKET_KERNEL(weiri_move_lines, weiri_move_args)
{
    (void)weir_collective_move_lines(&args->collective, &args->move, coop);
}

WEIR_KERNEL_FOR(weiri_move_slots, weiri_move_args, WEIRI_SLOT_THREADS)
{
    (void)weir_collective_move_slots(&args->collective, &args->move, coop);
}

WEIR_KERNEL_FOR(weiri_spread, weiri_move_args, WEIRI_FEW_THREADS)
{
    (void)weir_collective_spread(&args->collective, &args->move, coop);
}

WEIR_KERNEL(weiri_copies_meet, weiri_move_args) { (void)weir_copies_meet(&args->collective, &args->move, coop); }

WEIR_KERNEL(weiri_copies_wait, weiri_move_args) { (void)weir_copies_wait(&args->collective, &args->move, coop); }

const weir_kernel *const weiri_collective_kernels[] = { &weiri_move_packets,
                                                        &weiri_move_lines,
                                                        &weiri_move_slots,
                                                        &weiri_copies_meet,
                                                        &weiri_copies_wait,
                                                        &weiri_spread,
                                                        NULL };
