/* collective_exchange.c - the exchange of transfers between ranks; see collective.h. */
#include "src/device/kernels/collective.h"

WEIR_KERNEL_FOR(weiri_exchange, weiri_exchange_args, WEIRI_SLOT_THREADS)
{
    (void)weir_collective_exchange_all(&args->collective, &args->exchange, coop);
}

WEIR_KERNEL_FOR(weiri_exchange_alone, weiri_exchange_args, WEIRI_FEW_THREADS)
{
    (void)weir_collective_exchange_alone(&args->collective, &args->exchange, coop);
}

WEIR_KERNEL_FOR(weiri_exchange_together, weiri_exchange_args, WEIRI_FEW_THREADS)
{
    (void)weir_collective_exchange_together(&args->collective, &args->exchange, coop);
}

WEIR_KERNEL_FOR(weiri_exchange_brief, weiri_exchange_args, WEIRI_FEW_THREADS)
{
    (void)weir_collective_exchange_brief(&args->collective, &args->exchange, coop);
}

WEIR_KERNEL_FOR(weiri_exchange_shared, weiri_exchange_args, WEIRI_FEW_THREADS)
{
    (void)weir_collective_exchange_shared(&args->collective, &args->exchange, coop);
}

WEIR_KERNEL_FOR(weiri_exchange_far, weiri_exchange_args, WEIRI_SLOT_THREADS)
{
    (void)weir_collective_exchange_far(&args->collective, args->rails, &args->exchange, coop);
}

const weir_kernel *const weiri_collective_exchange_kernels[] = { &weiri_exchange,
                                                                 &weiri_exchange_alone,
                                                                 &weiri_exchange_together,
                                                                 &weiri_exchange_brief,
                                                                 &weiri_exchange_shared,
                                                                 &weiri_exchange_far,
                                                                 NULL };
