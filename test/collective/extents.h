// Calls of weir_gather_v and weir_scatter_v with random extents, and what they must result in.
#ifndef WEIRT_COLLECTIVE_EXTENTS_H
#define WEIRT_COLLECTIVE_EXTENTS_H

#include <algorithm>

#include "test/collective/operations.h"

using Extents = std::vector<weir_extent>;

// Extents in a random order, with gaps; about every fourth is empty.
inline Extents random_extents(uint64_t seed, uint32_t ranks, uint64_t most)
{
    Extents extents(ranks);
    uint64_t at = 0;
    for (uint32_t i = 0; i < ranks; i++) {
        const uint32_t rank = static_cast<uint32_t>((i + seed) % ranks);
        const uint64_t random = mix(mix(seed) ^ i);
        const uint64_t count = random % 4 == 0 ? 0 : random % most;
        extents[rank] = { at, count };
        at += count + (random >> 32) % 5;
    }
    return extents;
}

inline uint16_t value_of(uint64_t seed, uint64_t index) { return static_cast<uint16_t>(mix(seed ^ (index << 8))); }

// Bytes of the root's buffer, with pieces of fewer than `most` elements.
constexpr uint64_t rooted_room(uint32_t ranks, uint64_t most) { return 2 * ranks * (most + 5); }

// One call of gather_v or scatter_v with random extents. The root's buffer holds value_of(seed, place).
inline bool run_rooted(const Bench *b, bool gathers, bool in_place, uint64_t most, uint64_t seed)
{
    const uint32_t ranks = weir_collective_size(b->collective);
    const uint32_t rank = weir_collective_rank(b->collective);
    const uint32_t root = static_cast<uint32_t>(seed % ranks);
    const uint64_t room = rooted_room(ranks, most);
    const Extents extents = random_extents(seed, ranks, most);
    const weir_extent mine = extents[rank];
    char *whole = static_cast<char *>(weir_memory_pointer(gathers ? b->out : b->in)) + guard;
    char *own = static_cast<char *>(weir_memory_pointer(gathers ? b->in : b->out)) + guard;
    own = in_place && rank == root ? whole + 2 * mine.at : own;
    Bytes want(room, poison);
    const auto put = [&](Bytes &bytes, uint64_t at, const weir_extent &extent) {
        for (uint64_t i = 0; i < extent.count; i++) {
            const uint16_t value = value_of(seed, extent.at + i);
            std::memcpy(bytes.data() + at + 2 * i, &value, 2);
        }
    };
    // The memory in which data arrives, as it is before and after.
    const bool arrives_whole = gathers && rank == root;
    for (uint32_t k = 0; k < ranks && arrives_whole; k++) {
        put(want, 2 * extents[k].at, extents[k]);
    }
    if (!gathers && !(in_place && rank == root)) {
        put(want, 0, mine);
    }
    weir_device *device = b->comm.device;
    Bytes data(room, poison);
    bool fine = WEIRT_OK(b->rank, weir_device_fill(device, whole, poison, room)) &&
                WEIRT_OK(b->rank, weir_device_fill(device, own == whole + 2 * mine.at ? whole : own, poison, room));
    if (gathers) {
        put(data, 0, mine);
        fine = fine &&
               WEIRT_OK(b->rank, weir_device_copy(device, own, data.data(), std::max<uint64_t>(1, 2 * mine.count)));
    } else if (rank == root) {
        for (uint32_t k = 0; k < ranks; k++) {
            put(data, 2 * extents[k].at, extents[k]);
        }
        fine = fine && WEIRT_OK(b->rank, weir_device_copy(device, whole, data.data(), room));
        want = in_place ? data : want;
    }
    fine = fine && weirt_barrier(b->rank) &&
           WEIRT_OK(b->rank, gathers ? weir_gather_v(b->collective, own, rank == root ? whole : nullptr, extents.data(),
                                                     WEIR_BF16, root, b->stream)
                                     : weir_scatter_v(b->collective, rank == root ? whole : nullptr, own,
                                                      extents.data(), WEIR_BF16, root, b->stream)) &&
           WEIRT_OK(b->rank, weir_stream_wait(device, b->stream, weirt_timeout_ms())) &&
           WEIRT_OK(b->rank, weir_comm_status(b->comm.comm));
    const bool checks = arrives_whole || !gathers;
    const char *from = gathers || (in_place && rank == root) ? whole : own;
    Bytes have(room);
    return fine && (!checks || (WEIRT_OK(b->rank, weir_device_copy(device, have.data(), from, room)) &&
                                WEIRT_EXPECT(b->rank, have == want)));
}

#endif
