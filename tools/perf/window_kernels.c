/* window_kernels.c - the kernels of weir-perf window for devices that map each other's memory, and those by hand.
 * Kernels that copy are compiled for 1,024 threads a block, so that none has more than 64 registers; without the port's
 * part they need fewer. */
#define WEIR_WINDOW_NO_PORT
#include "tools/perf/window_bodies.h"

WEIR_KERNEL_FOR(window_trip, window_args, 1024) { trip(args, 0, weir_coop_block(coop), coop.block); }
WEIR_KERNEL_FOR(window_trip_by_hand, window_args, 1024) { trip(args, 1, weir_coop_block(coop), coop.block); }
WEIR_KERNEL_FOR(window_stream, window_args, 1024) { stream(args, 0, weir_coop_block(coop), coop.block); }
WEIR_KERNEL_FOR(window_stream_by_hand, window_args, 1024) { stream(args, 1, weir_coop_block(coop), coop.block); }
WEIR_KERNEL_FOR(window_steps, window_args, 1024) { steps(args, 0, weir_coop_block(coop)); }
WEIR_KERNEL_FOR(window_steps_by_hand, window_args, 1024) { steps(args, 1, weir_coop_block(coop)); }
WEIR_KERNEL(window_barrier, window_args) { barriers(args, weir_coop_block(coop)); }

/* Block 0 meets the other blocks at a grid barrier, exchanges flags with block 0 of each device, and meets them again.
 * The flags are in the part of rank 0: one from each device. */
WEIR_KERNEL(window_barrier_by_hand, window_args)
{
    const weir_dev_window *window = &args->window;
    const weir_dev_window_rank self = weir_dev_window_at(window, 0);
    uint64_t *flags = (uint64_t *)weir_dev_window_pointer(&self, args->flags) + 8 * FLAG;
    const uint64_t start = flags[window->device];
    uint32_t reads = 0;
    coop.barrier = &args->grid;
    for (uint64_t round = start + 1; round <= start + args->rounds; round++) {
        if (weir_coop_sync(coop) != WEIR_OK) {
            return;
        }
        for (uint32_t to = coop.rank; window->devices > 1 && coop.block == 0 && to < window->devices;
             to += coop.block_size) {
            uint64_t *there =
                (uint64_t *)weir_dev_window_address(window, to, 0, args->flags, 0) + 8 * FLAG + window->device;
            weir_arch_store_release_sys_u64(there, round);
            while (weir_arch_load_acquire_sys_u64(flags + to) < round &&
                   (reads % 65536 != 0 || weir_dev_control_status(window->barrier.control) == WEIR_OK)) {
                weir_arch_relax(++reads);
            }
        }
        if (window->devices > 1 && weir_coop_sync(coop) != WEIR_OK) {
            return;
        }
    }
    if (window->devices == 1 && coop.rank == 0) {
        flags[window->device] = start + args->rounds;
    }
}

const window_shape window_shapes[WINDOW_SHAPES] = {
    { "latency", &window_trip, &window_trip_by_hand, 1, 200, "put_notify and wait, half a round trip" },
    { "bandwidth", &window_stream, &window_stream_by_hand, 2, 20, "put_notify of large messages" },
    { "rate", &window_stream, &window_stream_by_hand, 32, 50, "put_notify of 8 bytes, 32 in turn" },
    { "barrier", &window_barrier, &window_barrier_by_hand, 1, 100, "barrier of all ranks" },
    { "overlap", &window_steps, &window_steps_by_hand, 1, 100, "work, and 1 KiB to each of two neighbours" },
};
