// Counts what a process of a test holds. Many rounds that create and destroy something must leave the counts as they
// were. C++ only.
//
//     weirt_counts before = {};
//     ...                                                a few rounds, which fill caches
//     weirt_counts_take(rank, &before);
//     ...                                                many rounds
//     weirt_counts_expect(rank, before);
#ifndef WEIRT_COUNTS_H
#define WEIRT_COUNTS_H

#include <string>

#include "test/harness/checks.h"
#include "test/harness/ranks.h"

struct weirt_counts {
    uint32_t descriptors;
    uint32_t mappings;
    uint32_t threads;
    int64_t allocations;
    uint64_t resident;
};

inline weirt_counts weirt_counts_now()
{
    // The sanitizers' allocators map private memory at any time; weir maps only shared memory.
    const bool shared_only = weirt_sanitizer()[0] != 0;
    return { weirt_count_descriptors(), weirt_count_mappings(shared_only), weirt_count_threads(),
             weirt_count_allocations(), weirt_resident_bytes() };
}

// Every rank calls both. One rank of a process counts, while the others wait: counting opens files.
inline bool weirt_counts_take(weirt_rank *rank, weirt_counts *out)
{
    const bool met = weirt_barrier(rank);
    if (rank->rank == 0 || rank->stage->processes) {
        *out = weirt_counts_now();
    }
    return weirt_barrier(rank) && met;
}

inline void weirt_counts_expect(weirt_rank *rank, const weirt_counts &before)
{
    const bool sanitized = weirt_sanitizer()[0] != 0;
    // A GPU's driver has its own threads and memory, and sanitizers keep records.
    const bool gpu = std::string(rank->stage->kind) == "gpu";
    if (weirt_barrier(rank) && (rank->rank == 0 || rank->stage->processes)) {
        weirt_counts after = weirt_counts_now();
        // Threads and messages may be under way at either count.
        const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
        while (weirt_now_ms() < end && (after.threads > before.threads || after.allocations > before.allocations ||
                                        after.descriptors > before.descriptors)) {
            weirt_sleep_ms(10);
            after = weirt_counts_now();
        }
        WEIRT_EXPECT(rank, after.descriptors <= before.descriptors);
        WEIRT_EXPECT(rank, after.allocations <= before.allocations);
        // The C library keeps some stacks and arenas of ended threads.
        WEIRT_EXPECT(rank, after.mappings <= before.mappings + (sanitized ? 0 : 50));
        WEIRT_EXPECT(rank, gpu || after.threads <= before.threads);
        WEIRT_EXPECT(rank, gpu || sanitized || after.resident <= before.resident + (uint64_t{ 8 } << 20));
    }
    (void)weirt_barrier(rank);
}

#endif
