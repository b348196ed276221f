/* weir/device/impl/copy.h - copies by a group of threads: any size, any alignment.
 *
 * If both ends and the size are multiples of 16 bytes, each thread keeps WEIR_COPY_BATCH loads of 16 bytes in flight,
 * inline: this hides the latency of a remote load. Other copies go to one function that is not inlined. It stores
 * aligned units of 16 bytes, too, each of which it takes out of two aligned ones of the source.
 *
 * Threads:   all threads of the group call with the same arguments. Memory must not overlap.
 * Order:     none; use a signal or a barrier afterwards. */
#ifndef WEIR_DEVICE_IMPL_COPY_H
#define WEIR_DEVICE_IMPL_COPY_H

#include "weir/device/coop.h"
#include "weir/device/impl/unit.h"

#define WEIR_COPY_BATCH 4
#define WEIR_COPY_DEEP 8u

/* Shorter copies with misaligned ends keep words whole that lie at multiples of their size at both ends. */
#define WEIR_COPY_UNITS_LEAST 128u

/* A copy in units of the largest power of two that divides the distance between the ends, and byte by byte before and
 * after them. */
WEIR_FN void weir_copy_words(char *dst, const char *src, uint64_t bytes, uint32_t rank, uint32_t size)
{
    const uintptr_t distance = (uintptr_t)dst ^ (uintptr_t)src;
    /* By masks and shifts: a division of 64 bits is about 70 instructions of a GPU. */
    const uint32_t shift = distance % 16 == 0  ? 4
                           : distance % 8 == 0 ? 3
                           : distance % 4 == 0 ? 2
                           : distance % 2 == 0 ? 1
                                               : 0;
    const uint64_t unit = (uint64_t)1 << shift;
    uint64_t head = (0 - (uint64_t)(uintptr_t)dst) & (unit - 1);
    head = head < bytes ? head : bytes;
    const uint64_t units = (bytes - head) >> shift;
    for (uint64_t i = rank; i < head; i += size) {
        weir_arch_store_byte(dst + i, weir_arch_load_byte(src + i));
    }
    for (uint64_t i = rank; i < units; i += size) {
        char *to = dst + head + i * unit;
        const char *from = src + head + i * unit;
        if (unit == 16) {
            weir_arch_store_vec16((weir_vec16 *)to, weir_arch_load_vec16((const weir_vec16 *)from));
        } else if (unit == 8) {
            weir_arch_store_u64((weir_alias_u64 *)to, weir_arch_load_u64((const weir_alias_u64 *)from));
        } else if (unit == 4) {
            weir_arch_store_u32((weir_alias_u32 *)to, weir_arch_load_u32((const weir_alias_u32 *)from));
        } else if (unit == 2) {
            weir_arch_store_u16((weir_alias_u16 *)to, weir_arch_load_u16((const weir_alias_u16 *)from));
        } else {
            weir_arch_store_byte(to, weir_arch_load_byte(from));
        }
    }
    for (uint64_t i = head + units * unit + rank; i < bytes; i += size) {
        weir_arch_store_byte(dst + i, weir_arch_load_byte(src + i));
    }
}

/* A copy whose ends are not all multiples of 16 bytes. A unit of 16 bytes that is aligned in dst comes from two of src,
 * of which the first begins `skew` bytes before it. All loads lie within src. Words of 8 bytes stay whole if both ends
 * and the size are multiples of 8. */
WEIR_FN_COLD void weir_copy_misaligned(char *dst, const char *src, uint64_t bytes, uint32_t rank, uint32_t size)
{
    if (bytes < WEIR_COPY_UNITS_LEAST) {
        weir_copy_words(dst, src, bytes, rank, size);
        return;
    }
    const uint32_t skew = (uint32_t)((uintptr_t)src - (uintptr_t)dst) % 16;
    const uint32_t first = (0 - (uint32_t)(uintptr_t)dst) % 16;
    const uint32_t head = first < skew ? first + 16 : first;
    const uint64_t units = (bytes - head - (16 - skew) % 16) / 16;
    const uint32_t ends = (uint32_t)(bytes - units * 16);
    const int words = (((uintptr_t)dst | (uintptr_t)src | bytes) & 7) == 0;
    for (uint32_t i = rank; i < (words ? ends / 8 : ends); i += size) {
        const uint64_t at = words ? 8 * i : i;
        const uint64_t place = at < head ? at : at + units * 16;
        if (words) {
            weir_arch_store_u64((weir_alias_u64 *)(dst + place),
                                weir_arch_load_u64((const weir_alias_u64 *)(src + place)));
        } else {
            weir_arch_store_byte(dst + place, weir_arch_load_byte(src + place));
        }
    }
    weir_vec16 *to = (weir_vec16 *)(dst + head);
    const weir_vec16 *from = (const weir_vec16 *)(src + head - skew);
    for (uint64_t i = rank; i < units; i += size) {
        const weir_vec16 low = weir_arch_load_vec16(from + i);
        const weir_vec16 high = weir_arch_load_vec16(from + i + (skew != 0));
        weir_arch_store_vec16(to + i, weir_unit_between(low, high, skew));
    }
}

WEIR_FN void weir_copy(void *dst, const void *src, uint64_t bytes, weir_coop coop)
{
    if (WEIR_UNLIKELY((((uintptr_t)dst | (uintptr_t)src | bytes) & 15) != 0)) {
        weir_copy_misaligned((char *)dst, (const char *)src, bytes, coop.rank, coop.size);
        return;
    }
    weir_vec16 *to = (weir_vec16 *)dst + coop.rank;
    const weir_vec16 *from = (const weir_vec16 *)src + coop.rank;
    const uintptr_t end = (uintptr_t)src + bytes;
    const uint32_t stride = coop.size;
    if (bytes <= (uint64_t)stride * sizeof *to) { /* the fewest instructions before the load */
        if ((uintptr_t)from < end) {
            weir_arch_store_vec16(to, weir_arch_load_vec16(from));
        }
        return;
    }
    while ((uintptr_t)(from + stride + stride + stride) < end) {
        weir_vec16 batch[WEIR_COPY_BATCH];
        WEIR_UNROLL
        for (int k = 0; k < WEIR_COPY_BATCH; k++) {
            batch[k] = weir_arch_load_vec16(from);
            from += stride;
        }
        WEIR_UNROLL
        for (int k = 0; k < WEIR_COPY_BATCH; k++) {
            weir_arch_store_vec16(to, batch[k]);
            to += stride;
        }
    }
    /* Of the units that are left, two do not wait for each other, either. */
    if ((uintptr_t)(from + stride) < end) {
        const weir_vec16 first = weir_arch_load_vec16(from);
        const weir_vec16 second = weir_arch_load_vec16(from + stride);
        weir_arch_store_vec16(to, first);
        weir_arch_store_vec16(to + stride, second);
        from += stride + stride;
        to += stride + stride;
    }
    if ((uintptr_t)from < end) {
        weir_arch_store_vec16(to, weir_arch_load_vec16(from));
    }
}

/* Like weir_copy, into the memory of a peer. Of the last units each thread stores one before it loads the next, while
 * weir_copy loads two and then stores. By 32 blocks the link between two H200 limits the copy, so it should begin
 * early: 1 MiB takes less (docs/notes/2026-11-29-constant-lines.md). */
WEIR_FN void weir_copy_to_peer(void *dst, const void *src, uint64_t bytes, weir_coop coop)
{
    if (WEIR_UNLIKELY((((uintptr_t)dst | (uintptr_t)src | bytes) & 15) != 0)) {
        weir_copy_misaligned((char *)dst, (const char *)src, bytes, coop.rank, coop.size);
        return;
    }
    weir_vec16 *to = (weir_vec16 *)dst + coop.rank;
    const weir_vec16 *from = (const weir_vec16 *)src + coop.rank;
    const uintptr_t end = (uintptr_t)src + bytes;
    const uint32_t stride = coop.size;
    const uint64_t step = (uint64_t)stride * sizeof *to;
    if (bytes >= WEIR_COPY_BATCH * step) { /* then each thread has a batch */
        do {
            weir_vec16 batch[WEIR_COPY_BATCH];
            WEIR_UNROLL
            for (int k = 0; k < WEIR_COPY_BATCH; k++) {
                batch[k] = weir_arch_load_vec16(from);
                from += stride;
            }
            WEIR_UNROLL
            for (int k = 0; k < WEIR_COPY_BATCH; k++) {
                weir_arch_store_vec16(to, batch[k]);
                to += stride;
            }
        } while ((uintptr_t)from + (WEIR_COPY_BATCH - 1) * step < end);
    }
    WEIR_ROLLED
    for (; (uintptr_t)from < end; from += stride, to += stride) {
        weir_arch_store_vec16(to, weir_arch_load_vec16(from));
    }
}

/* Like weir_copy, for blocks that are few and have registers: a thread keeps twice the loads in flight, and also those
 * of the last bytes. */
WEIR_FN void weir_copy_deep(void *dst, const void *src, uint64_t bytes, weir_coop coop)
{
    if (WEIR_UNLIKELY((((uintptr_t)dst | (uintptr_t)src | bytes) & 15) != 0)) {
        weir_copy_misaligned((char *)dst, (const char *)src, bytes, coop.rank, coop.size);
        return;
    }
    weir_vec16 *to = (weir_vec16 *)dst + coop.rank;
    const weir_vec16 *from = (const weir_vec16 *)src + coop.rank;
    const uintptr_t end = (uintptr_t)src + bytes;
    const uint32_t stride = coop.size;
    weir_vec16 batch[WEIR_COPY_DEEP];
    WEIR_ROLLED
    for (; (uintptr_t)(from + (WEIR_COPY_DEEP - 1) * stride) < end; from += WEIR_COPY_DEEP * stride) {
        WEIR_UNROLL
        for (uint32_t k = 0; k < WEIR_COPY_DEEP; k++) {
            batch[k] = weir_arch_load_vec16(from + k * stride);
        }
        WEIR_UNROLL
        for (uint32_t k = 0; k < WEIR_COPY_DEEP; k++) {
            weir_arch_store_vec16(to + k * stride, batch[k]);
        }
        to += WEIR_COPY_DEEP * stride;
    }
    WEIR_UNROLL
    for (uint32_t k = 0; k + 1 < WEIR_COPY_DEEP; k++) {
        const weir_vec16 nothing = { 0, 0 };
        batch[k] = (uintptr_t)(from + k * stride) < end ? weir_arch_load_vec16(from + k * stride) : nothing;
    }
    WEIR_UNROLL
    for (uint32_t k = 0; k + 1 < WEIR_COPY_DEEP; k++) {
        if ((uintptr_t)(from + k * stride) < end) {
            weir_arch_store_vec16(to + k * stride, batch[k]);
        }
    }
}

#endif
