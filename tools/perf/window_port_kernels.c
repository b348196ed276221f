/* window_port_kernels.c - the kernels of weir-perf window for devices that reach each other through port channels. */
#include "tools/perf/window_bodies.h"

WEIR_KERNEL_FOR(window_port_trip, window_args, 1024) { trip(args, 0, weir_coop_block(coop), coop.block); }
WEIR_KERNEL_FOR(window_port_stream, window_args, 1024) { stream(args, 0, weir_coop_block(coop), coop.block); }
WEIR_KERNEL_FOR(window_port_steps, window_args, 1024) { steps(args, 0, weir_coop_block(coop)); }
WEIR_KERNEL(window_port_barrier, window_args) { barriers(args, weir_coop_block(coop)); }

const weir_kernel *const window_port_kernels[WINDOW_SHAPES] = {
    &window_port_trip, &window_port_stream, &window_port_stream, &window_port_barrier, &window_port_steps,
};
