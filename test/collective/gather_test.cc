// weir_gather_v and weir_scatter_v: pieces of random sizes and places, in all forms.
#include <algorithm>

#include "test/collective/operations.h"
#include "test/harness/stage_test.h"

namespace {

using Extents = std::vector<weir_extent>;

constexpr uint64_t room = 64 << 10;

weir_collective_opts opts_of(const weirt_rank *rank)
{
    weir_collective_opts opts = {};
    opts.size = sizeof opts;
    opts.staging_bytes = 4 << 20;
    if (std::strcmp(rank->stage->kind, "cpu") != 0) {
        fit_together(rank, &opts);
    }
    return opts;
}

// Extents in a random order, with gaps; about every fourth is empty.
Extents random_extents(uint64_t seed, uint32_t ranks)
{
    Extents extents(ranks);
    uint64_t at = 0;
    for (uint32_t i = 0; i < ranks; i++) {
        const uint32_t rank = static_cast<uint32_t>((i + seed) % ranks);
        const uint64_t random = mix(mix(seed) ^ i);
        const uint64_t count = random % 4 == 0 ? 0 : random % 700;
        extents[rank] = { at, count };
        at += count + (random >> 32) % 5;
    }
    return extents;
}

uint16_t value_of(uint64_t seed, uint64_t index) { return static_cast<uint16_t>(mix(seed ^ (index << 8))); }

// One call of random extents. The root's buffer holds value_of(seed, place).
bool one(const Bench *b, bool gathers, bool in_place, uint64_t seed)
{
    const uint32_t ranks = weir_collective_size(b->collective);
    const uint32_t rank = weir_collective_rank(b->collective);
    const uint32_t root = static_cast<uint32_t>(seed % ranks);
    const Extents extents = random_extents(seed, ranks);
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

void random_calls(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_of(rank);
    Bench bench;
    bool fine = bench_open(rank, &opts, 2 * room, 0, &bench);
    uint64_t seed = 1;
    for (const weir_collective_form form : { WEIR_FORM_AUTO, WEIR_FORM_PACKETS, WEIR_FORM_LINES, WEIR_FORM_SLOTS }) {
        fine = fine && WEIRT_OK(rank, weir_collective_force(bench.collective, form, 0));
        for (uint32_t i = 0; i < 4 && fine; i++) {
            fine = one(&bench, i % 2 != 0, i >= 2, seed++);
        }
    }
    bench_close(&bench);
}

WEIRT_STAGE_SUITE(GatherV);

TEST_P(GatherV, AndScatterVOfRandomExtents)
{
    for (const uint32_t ranks : { 3, 1, 2, 8 }) {
        weirt_ranks_run(stage(), ranks, random_calls, nullptr, 0);
        if (stage()->processes && std::strcmp(stage()->kind, "cpu") == 0) {
            break;
        }
    }
}

void refused(const Bench *b, const char *part, weir_status status, weir_status expected_status = WEIR_ERR_INVALID)
{
    WEIRT_EXPECT(b->rank, status == expected_status);
    WEIRT_TEXT(b->rank, part);
}

void arguments(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_of(rank);
    Bench bench;
    if (bench_open(rank, &opts, 2 * room, 0, &bench)) {
        weir_collective *c = bench.collective;
        char *in = static_cast<char *>(weir_memory_pointer(bench.in));
        char *out = static_cast<char *>(weir_memory_pointer(bench.out));
        void *s = bench.stream;
        const weir_extent good[] = { { 0, 4 }, { 4, 4 } };
        const weir_extent overlap[] = { { 0, 4 }, { 3, 4 } };
        const weir_extent far[] = { { 0, 4 }, { UINT64_MAX / 2, 4 } };
        refused(&bench, "extents is NULL", weir_gather_v(c, in, out, nullptr, WEIR_F32, 0, s));
        refused(&bench, "rank 2 of 2", weir_scatter_v(c, in, out, good, WEIR_F32, 2, s));
        refused(&bench, "extents[0] and extents[1] overlap", weir_gather_v(c, in, out, overlap, WEIR_F32, 0, s));
        refused(&bench, "extents[1] has 4 elements", weir_scatter_v(c, in, out, far, WEIR_F32, 0, s));
        refused(&bench, "send is NULL", weir_gather_v(c, nullptr, out, good, WEIR_F32, 0, s));
        refused(&bench, "recv is NULL", weir_gather_v(c, in, nullptr, good, WEIR_F32, rank->rank, s));
        refused(&bench, "not aligned", weir_scatter_v(c, in, out + 1, good, WEIR_F32, 0, s));
        refused(&bench, "send and recv overlap", weir_scatter_v(c, in, in + 8, good, WEIR_F32, rank->rank, s));
        // Nothing was launched.
        (void)one(&bench, true, false, 5);
    }
    bench_close(&bench);
}

TEST_P(GatherV, RefusesBadArguments) { run(2, arguments); }

void differs(weirt_rank *rank)
{
    const weir_collective_opts opts = opts_of(rank);
    Bench bench;
    if (bench_open(rank, &opts, 4096, 0, &bench)) {
        const weir_extent extents[] = { { 0, 4 }, { 4, 4 }, { rank->rank == 1 ? 9u : 8u, 4 } };
        const weir_status called = weir_gather_v(bench.collective, weir_memory_pointer(bench.in),
                                                 weir_memory_pointer(bench.out), extents, WEIR_U8, 0, bench.stream);
        expect_mismatch(&bench, called, "gather_v of u8, extents of digest");
    }
    bench_close(&bench);
}

TEST_P(GatherV, NamesDifferentExtents) { run(3, differs); }

} // namespace
