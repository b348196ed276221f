/* layout_channel_kernels.h - a kernel that makes the calls of weir/device/layout_channel.h. */
#ifndef WEIRT_LAYOUT_CHANNEL_KERNELS_H
#define WEIRT_LAYOUT_CHANNEL_KERNELS_H

#include "weir/device/kernel.h"
#include "weir/device/layout_channel.h"
#include "weir/weir.h"

WEIR_BEGIN_DECLS

typedef enum layout_channel_call {
    LAYOUT_CHANNEL_PUT,
    LAYOUT_CHANNEL_GET,
    LAYOUT_CHANNEL_PUT_LL16,
    LAYOUT_CHANNEL_UNPACK_LL16,
    LAYOUT_CHANNEL_EXCHANGE_LL16,
    LAYOUT_CHANNEL_PUT_UNPACK_LL16, /* one after the other */
    LAYOUT_CHANNEL_PUT_LINES,
    LAYOUT_CHANNEL_UNPACK_LINES,
    LAYOUT_CHANNEL_EXCHANGE_LINES,
    LAYOUT_CHANNEL_PUT_UNPACK_LINES
} layout_channel_call;

/* A source and a destination of the call. Offsets grow by `step` with each round; the packet offset does not. */
typedef struct layout_channel_args {
    weir_dev_memory_channel channel;
    weir_dev_layout to;
    weir_dev_layout from;
    uint64_t to_offset;
    uint64_t from_offset;
    uint64_t packet_offset;
    uint64_t step;
    uint32_t rounds;
    uint32_t without; /* 1: no layout `to`, 2: no layout `from`, 3: neither */
    uint32_t grid;    /* the whole grid makes the call; otherwise block 0 */
    uint32_t meets;   /* block 0 meets the peer's after each round: the packets are used again */
    layout_channel_call call;
    int32_t *status; /* of a thread whose call failed; otherwise unchanged */
} layout_channel_args;

extern const weir_kernel *const layout_channel_kernel;

WEIR_END_DECLS

#endif
