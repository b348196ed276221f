#include "src/device/kernels.h"

#include "src/device/kernels/port_channel.h"

/* Made by the build. */
extern const unsigned char weiri_module_port_channel[];

const weiri_kernel_family weiri_kernel_families[WEIRI_FAMILIES] = {
    [WEIRI_FAMILY_PORT_CHANNEL] = { weiri_module_port_channel, weiri_port_channel_kernels },
};
