/* window_trips.c - a rank of a window that notifies itself and waits, many times: window_trips COUNT.
 * window_instructions.py counts the instructions of a trip. */
#include <stdlib.h>
#include <string.h>

#include "weir/device/window.h"

#define RING 256u /* words, as by default */

static char shared[1 << 13] __attribute__((aligned(WEIR_CELL_BYTES)));
static char own[1 << 15] __attribute__((aligned(WEIR_CELL_BYTES)));

/* Not inlined: callgrind counts what this function does. */
__attribute__((noinline, noclone)) weir_status window_trips(const weir_dev_window *window, uint32_t count,
                                                            weir_coop coop);

weir_status window_trips(const weir_dev_window *window, uint32_t count, weir_coop coop)
{
    const weir_dev_window_rank self = weir_dev_window_at(window, 0);
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < count && status == WEIR_OK; i++) {
        status = weir_dev_window_notify(&self, 0, 7, coop);
        status = status == WEIR_OK ? weir_dev_window_wait(&self, 0, 7, 1, coop) : status;
    }
    return status;
}

int main(int argc, char **argv)
{
    const weir_window_layout at = weir_window_layout_of(1, 1, RING);
    weir_dev_control control;
    weir_dev_window window;
    weir_coop coop;
    if (argc != 2 || at.shared_bytes > sizeof shared || at.private_bytes > sizeof own) {
        return EXIT_FAILURE;
    }
    memset(&control, 0, sizeof control);
    memset(&window, 0, sizeof window);
    memset(&coop, 0, sizeof coop);
    weir_dev_control_begin(&control, 1000000000);
    weir_window_place(&window, 0, 1, 1, RING, shared, own);
    window.barrier.control = &control;
    ((weir_dev_window_device *)(own + at.devices))->shared = shared;
    coop.size = 1;
    coop.block_size = 1;
    coop.blocks = 1;
    coop.scope = WEIR_COOP_THREAD;
    return window_trips(&window, (uint32_t)strtoul(argv[1], NULL, 10), coop) == WEIR_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
