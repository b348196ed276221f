/* header_kernels.h - kernels that call the functions of the device headers, for header_test.cc. */
#ifndef WEIRT_HEADER_KERNELS_H
#define WEIRT_HEADER_KERNELS_H

#include "weir/device/kernel.h"

/* Groups of threads for a kernel's calls; threads outside the group do nothing. */
enum { GROUP_GRID = 0, GROUP_BLOCK = 1, GROUP_WARP = 2, GROUP_THREAD = 3, GROUP_PART = 4, GROUPS = 5 };

enum { PACKETS_PUT = 0, PACKETS_UNPACK = 1 };

/* One struct for all kernels; each uses what it needs. */
typedef struct header_args {
    weir_dev_memory_channel channel;
    weir_dev_grid_barrier barrier;
    weir_dev_control *control;
    uint64_t *out; /* one word for each thread of the grid, or as documented at the kernel */
    uint64_t *slots;
    uint64_t rounds;
    uint64_t bytes;
    uint64_t remote_offset;
    uint64_t local_offset;
    uint32_t group;
    uint32_t part; /* threads of GROUP_PART; 0 is all */
    uint32_t operation;
    uint32_t chosen; /* thread or block that behaves differently */
    int32_t status;
    uint32_t side;
} header_args;

#if defined(__cplusplus)
extern "C" {
#endif
/* The kernel of that name, or NULL. */
const weir_kernel *header_kernel(const char *name);
#if defined(__cplusplus)
}
#endif

#endif
