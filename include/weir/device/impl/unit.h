/* weir/device/impl/unit.h - units of 16 bytes that lie across two aligned ones. */
#ifndef WEIR_DEVICE_IMPL_UNIT_H
#define WEIR_DEVICE_IMPL_UNIT_H

#include "weir/device/arch.h"

/* The unit that begins `bytes` (below 16) bytes behind the beginning of `unit`, which `next` follows. A GPU shifts two
 * words of 32 bits into one by one instruction. */
WEIR_FN weir_vec16 weir_unit_between(weir_vec16 unit, weir_vec16 next, uint32_t bytes)
{
    const uint64_t longs[3] = { bytes < 8 ? unit.lo : unit.hi, bytes < 8 ? unit.hi : next.lo,
                                bytes < 8 ? next.lo : next.hi };
    const uint32_t odd = bytes / 4 % 2;
    const uint32_t bits = bytes % 4 * 8;
    uint32_t words[5];
    uint32_t shifted[4];
    weir_vec16 out;
    WEIR_UNROLL
    for (uint32_t k = 0; k < 5; k++) {
        const uint32_t even_word = (uint32_t)(longs[k / 2] >> k % 2 * 32);
        const uint32_t odd_word = (uint32_t)(longs[(k + 1) / 2] >> (k + 1) % 2 * 32);
        words[k] = odd ? odd_word : even_word;
    }
    WEIR_UNROLL
    for (uint32_t k = 0; k < 4; k++) {
        shifted[k] = (uint32_t)(((uint64_t)words[k + 1] << 32 | words[k]) >> bits);
    }
    out.lo = (uint64_t)shifted[1] << 32 | shifted[0];
    out.hi = (uint64_t)shifted[3] << 32 | shifted[2];
    return out;
}

#endif
