/* kernel_costs_window_port.c - the kernels of kernel_costs_window.c with the port's part. */
#define WINDOW_COSTS_WITH_PORT
#include "tools/kernel_costs_window.c"
