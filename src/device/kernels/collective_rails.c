/* collective_rails.c - the kernel that exchanges pieces between hosts; see collective.h. */
#include "src/device/kernels/collective.h"

WEIR_KERNEL(weiri_rail, weiri_rail_args) { (void)weir_rail_run(&args->rails, &args->step, coop); }

const weir_kernel *const weiri_collective_rails_kernels[] = { &weiri_rail, NULL };
