/* kernels.c - the families of our own kernels: a row each, with its table of kernels and its module for GPUs. */
#include "src/device/kernels.h"

#include "src/device/kernels/collective.h"
#include "src/device/kernels/port_channel.h"

/* Made by the build. */
extern const unsigned char weiri_module_port_channel[];
extern const unsigned char weiri_module_collective[];
extern const unsigned char weiri_module_collective_float[];
extern const unsigned char weiri_module_collective_half[];
extern const unsigned char weiri_module_collective_small[];
extern const unsigned char weiri_module_collective_integer[];
extern const unsigned char weiri_module_collective_rails[];

const weiri_kernel_family weiri_kernel_families[WEIRI_FAMILIES] = {
    [WEIRI_FAMILY_PORT_CHANNEL] = { weiri_module_port_channel, weiri_port_channel_kernels },
    [WEIRI_FAMILY_COLLECTIVE] = { weiri_module_collective, weiri_collective_kernels },
    [WEIRI_FAMILY_COLLECTIVE_FLOAT] = { weiri_module_collective_float, weiri_collective_float_kernels },
    [WEIRI_FAMILY_COLLECTIVE_HALF] = { weiri_module_collective_half, weiri_collective_half_kernels },
    [WEIRI_FAMILY_COLLECTIVE_SMALL] = { weiri_module_collective_small, weiri_collective_small_kernels },
    [WEIRI_FAMILY_COLLECTIVE_INTEGER] = { weiri_module_collective_integer, weiri_collective_integer_kernels },
    [WEIRI_FAMILY_COLLECTIVE_RAILS] = { weiri_module_collective_rails, weiri_collective_rails_kernels },
};
