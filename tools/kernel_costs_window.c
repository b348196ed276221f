/* kernel_costs_window.c - one minimal kernel for each call of weir/device/window.h, without the port's part unless
 * kernel_costs_window_port.c includes this file. Only tools/kernel-costs uses both, as it does kernel_costs.c. */
#if !defined(WINDOW_COSTS_WITH_PORT)
#define WEIR_WINDOW_NO_PORT
#endif
#include "weir/device/kernel.h"
#include "weir/device/window.h"

typedef struct window_cost_args {
    weir_dev_window window;
    uint64_t offset;
    uint64_t bytes;
    uint64_t count;
    uint32_t target;
    uint32_t tag;
    uint32_t rounds;
    weir_dev_notification *taken;
} window_cost_args;

WEIR_KERNEL(window_put, window_cost_args)
{
    const weir_dev_window_rank self = weir_dev_window_at(&args->window, coop.block);
    (void)weir_dev_window_put(&self, args->target, 0, args->offset, 0, 0, args->bytes, weir_coop_block(coop));
}

WEIR_KERNEL(window_get, window_cost_args)
{
    const weir_dev_window_rank self = weir_dev_window_at(&args->window, coop.block);
    (void)weir_dev_window_get(&self, args->target, 0, args->offset, 0, 0, args->bytes, weir_coop_block(coop));
}

WEIR_KERNEL(window_notify, window_cost_args)
{
    const weir_dev_window_rank self = weir_dev_window_at(&args->window, coop.block);
    (void)weir_dev_window_notify(&self, args->target, args->tag, weir_coop_block(coop));
}

WEIR_KERNEL(window_put_notify, window_cost_args)
{
    const weir_dev_window_rank self = weir_dev_window_at(&args->window, coop.block);
    (void)weir_dev_window_put_notify(&self, args->target, 0, args->offset, 0, 0, args->bytes, args->tag,
                                     weir_coop_block(coop));
}

WEIR_KERNEL(window_wait, window_cost_args)
{
    const weir_dev_window_rank self = weir_dev_window_at(&args->window, coop.block);
    (void)weir_dev_window_wait(&self, args->target, args->tag, args->count, weir_coop_block(coop));
}

WEIR_KERNEL(window_take, window_cost_args)
{
    const weir_dev_window_rank self = weir_dev_window_at(&args->window, coop.block);
    weir_dev_notification taken = { 0, 0 };
    (void)weir_dev_window_take(&self, args->target, args->tag, &taken, weir_coop_block(coop));
    *args->taken = taken;
}

WEIR_KERNEL(window_poll, window_cost_args)
{
    const weir_dev_window_rank self = weir_dev_window_at(&args->window, coop.block);
    args->taken->source =
        (uint32_t)weir_dev_window_poll(&self, args->target, args->tag, args->count, weir_coop_block(coop));
}

WEIR_KERNEL(window_flush, window_cost_args)
{
    const weir_dev_window_rank self = weir_dev_window_at(&args->window, coop.block);
    (void)weir_dev_window_flush(&self, args->target, weir_coop_block(coop));
}

WEIR_KERNEL(window_barrier, window_cost_args) { (void)weir_dev_window_barrier(&args->window, weir_coop_block(coop)); }

/* A step of a stencil: put_notify and wait in a loop. */
WEIR_KERNEL(window_step, window_cost_args)
{
    const weir_dev_window_rank self = weir_dev_window_at(&args->window, coop.block);
    const weir_coop block = weir_coop_block(coop);
    for (uint32_t i = 0; i < args->rounds; i++) {
        if (weir_dev_window_put_notify(&self, args->target, 0, args->offset, 0, 0, args->bytes, args->tag, block) !=
                WEIR_OK ||
            weir_dev_window_wait(&self, args->target, args->tag, 1, block) != WEIR_OK) {
            return;
        }
    }
}
