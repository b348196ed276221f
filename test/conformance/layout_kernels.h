/* layout_kernels.h - a kernel that makes the calls of weir/device/layout.h. */
#ifndef WEIRT_LAYOUT_KERNELS_H
#define WEIRT_LAYOUT_KERNELS_H

#include "weir/device/kernel.h"
#include "weir/device/layout.h"
#include "weir/weir.h"

WEIR_BEGIN_DECLS

typedef enum layout_call { LAYOUT_PACK, LAYOUT_UNPACK, LAYOUT_COPY, LAYOUT_AT } layout_call;

typedef struct layout_args {
    weir_dev_layout to;
    weir_dev_layout from;
    char *dst;
    char *src;
    uint64_t offset;
    uint64_t bytes;
    layout_call call;
    uint32_t without; /* of a copy: 1 without `to`, 2 without `from` */
    int32_t *status;  /* of the first thread */
} layout_args;

/* LAYOUT_AT: one thread packs bytes [offset, offset + bytes) of `from` by asking for each run. */
extern const weir_kernel *const layout_inside;

WEIR_END_DECLS

#endif
