// Layouts: pack, unpack and copy beside a loop over single bytes, for nests and piece lists, alignments and parts.
#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "test/conformance/layout_kernels.h"
#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

WEIRT_STAGE_SUITE(Layout);

constexpr char GUARD = 0x5a;
constexpr uint64_t ARENA = 128 << 10; // of each side
constexpr uint64_t CENTRE = 64 << 10; // where the pointer to the items lies, to which offsets are relative

char byte_of(uint64_t i) { return static_cast<char>(i * 131 + i / 251 + i / 65521 + 1); }

// A layout and where its bytes lie, in packed order.
struct Described {
    weir_layout *layout = nullptr;
    std::vector<int64_t> bytes;
    int64_t extent = 0;
};

void check(weirt_rank *rank, weir_status status) { WEIRT_OK(rank, status); }

Described run_of(weirt_rank *rank, uint64_t bytes)
{
    Described d;
    check(rank, weir_layout_create_bytes(bytes, &d.layout));
    d.bytes.resize(bytes);
    std::iota(d.bytes.begin(), d.bytes.end(), 0);
    d.extent = static_cast<int64_t>(bytes);
    return d;
}

// Items of `of` at these places.
Described at_places(weirt_rank *rank, Described of, const std::vector<int64_t> &places)
{
    Described d;
    check(rank, weir_layout_create_hindexed_block(places.size(), 1, places.data(), of.layout, &d.layout));
    for (const int64_t place : places) {
        for (const int64_t byte : of.bytes) {
            d.bytes.push_back(place + byte);
        }
    }
    weir_layout_destroy(of.layout);
    weir_layout_info info;
    weir_layout_get_info(d.layout, &info);
    d.extent = info.extent;
    return d;
}

Described repeated(weirt_rank *rank, Described of, uint64_t count, int64_t stride)
{
    std::vector<int64_t> places;
    for (uint64_t i = 0; i < count; i++) {
        places.push_back(static_cast<int64_t>(i) * stride);
    }
    return at_places(rank, std::move(of), places);
}

struct Dim {
    uint64_t count;
    int64_t stride;
};

// The innermost dim comes first.
Described nest(weirt_rank *rank, uint64_t run, const std::vector<Dim> &dims)
{
    Described d = run_of(rank, run);
    for (const Dim &dim : dims) {
        d = repeated(rank, std::move(d), dim.count, dim.stride);
    }
    return d;
}

// Nests of each word, with strides of each sign, and piece lists of runs and of nests.
std::vector<Described> all_layouts(weirt_rank *rank)
{
    std::vector<Described> all;
    for (const uint64_t run : { 1, 2, 3, 4, 5, 7, 8, 12, 13, 16, 24, 31, 48, 64, 100, 640 }) {
        const auto length = static_cast<int64_t>(run);
        all.push_back(nest(rank, run, { { 9, length + 16 } }));
        all.push_back(nest(rank, run, { { 5, length * 3 }, { 3, 16 * length + 64 } }));
        all.push_back(nest(rank, run, { { 4, -length - 5 }, { 3, 6 * length + 31 } }));
    }
    all.push_back(run_of(rank, 1000));
    for (const uint64_t run : { 1, 2, 4, 8, 16 }) { // transposes; the first three divide into tiles
        const auto length = static_cast<int64_t>(run);
        all.push_back(nest(rank, run, { { 128 / run, 300 }, { 16, length } }));
        all.push_back(nest(rank, run, { { 64 / run, 300 * length }, { 24, length } }));
        all.push_back(nest(rank, run, { { 4, 64 * length }, { 128 / run, 256 * length }, { 8, length } }));
        all.push_back(nest(rank, run, { { 16, 64 * length }, { 12, length } }));
        all.push_back(nest(rank, run, { { 12, 64 * length }, { 16, length } }));
    }
    all.push_back(nest(rank, 2, { { 3, 4 }, { 2, 20 }, { 3, 64 }, { 2, -300 }, { 2, 1000 }, { 2, 2500 } }));
    all.push_back(nest(rank, 1,
                       { { 2, 2 },
                         { 2, 5 },
                         { 2, 11 },
                         { 2, 23 },
                         { 2, 47 },
                         { 2, 95 },
                         { 2, 191 },
                         { 2, 383 },
                         { 2, 767 },
                         { 2, 1535 } })); // more dims than a nest has
    for (const uint64_t run : { 1, 3, 8, 16, 40 }) {
        std::vector<int64_t> places;
        for (int64_t i = 0; i < 40; i++) {
            places.push_back((i * i * 37 + i * 5) % 977 * 48 - 20000);
        }
        all.push_back(at_places(rank, run_of(rank, run), places));
        places.resize(7);
        all.push_back(at_places(rank, nest(rank, run, { { 3, 41 }, { 2, 200 } }), places)); // bytes may overlap
    }
    all.push_back(repeated(rank, at_places(rank, run_of(rank, 5), { 0, 7, 31, 90, 18 }), 6, 512)); // a nest of lists
    return all;
}

// ---- one call ----------------------------------------------------------------------------------------------

// A rank's memory, which the host reaches too, and a stream.
struct World {
    weirt_rank *rank = nullptr;
    weirt_comm c = {};
    weir_memory *wide = nullptr;
    weir_memory *other = nullptr;
    void *stream = nullptr;
    bool ready = false;

    explicit World(weirt_rank *rank_) : rank(rank_)
    {
        weir_memory_opts host = WEIR_OPTS(weir_memory_opts);
        host.kind = WEIR_MEMORY_HOST;
        ready = weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_memory_allocate(c.comm, ARENA, &host, &wide)) &&
                WEIRT_OK(rank, weir_memory_allocate(c.comm, ARENA, &host, &other)) &&
                WEIRT_OK(rank, weir_stream_create(c.device, &stream));
    }
    ~World()
    {
        if (stream != nullptr) {
            weir_stream_destroy(c.device, stream);
        }
        weir_memory_destroy(other);
        weir_memory_destroy(wide);
        weirt_comm_close(&c);
    }
    World(const World &) = delete;
    World &operator=(const World &) = delete;
    char *host(weir_memory *memory) const { return static_cast<char *>(weir_memory_host_pointer(memory)); }
    char *device(weir_memory *memory) const { return static_cast<char *>(weir_memory_pointer(memory)); }
    bool finish() const { return WEIRT_OK(rank, weir_stream_wait(c.device, stream, 0)); }
};

// Fills an arena. The bytes of each seed are computed once, because test code is not optimized.
void fill(std::vector<char> &data, uint64_t seed)
{
    static std::map<uint64_t, std::vector<char>> arenas;
    std::vector<char> &arena = arenas[seed];
    for (uint64_t i = arena.size(); i < ARENA; i++) {
        arena.push_back(byte_of(seed * ARENA + i));
    }
    data = arena;
}

// Where packed byte `at` of `count` items lies, relative to the pointer.
int64_t place_of(const Described &d, uint64_t at)
{
    return static_cast<int64_t>(at / d.bytes.size()) * d.extent + d.bytes[at % d.bytes.size()];
}

// The number of items, up to `most`, that stay in the arena.
uint64_t items_that_fit(const Described &d, uint64_t most)
{
    const auto [least, greatest] = std::minmax_element(d.bytes.begin(), d.bytes.end());
    uint64_t count = 1;
    for (; count < most; count++) {
        const int64_t shift = static_cast<int64_t>(count) * d.extent;
        if (*least + shift < -static_cast<int64_t>(CENTRE) + 64 ||
            *greatest + shift > static_cast<int64_t>(CENTRE) - 64 || (count + 1) * d.bytes.size() > ARENA / 2) {
            break;
        }
    }
    return count;
}

struct Part {
    uint64_t offset;
    uint64_t bytes;
};

// The pointers have these distances from aligned places.
struct Shifts {
    uint64_t wide;
    uint64_t packed;
};

// Whether the bytes of `found` are those of `wanted`.
void expect_same(const World &world, const std::vector<char> &wanted, const char *found, const std::string &what)
{
    if (std::memcmp(wanted.data(), found, wanted.size()) == 0) {
        return;
    }
    const auto wrong = std::mismatch(wanted.begin(), wanted.end(), found);
    weirt_fail(world.rank, __FILE__, __LINE__, "%s: byte %zd is wrong", what.c_str(), wrong.first - wanted.begin());
}

void check_pack(const World &world, const Described &d, uint64_t count, Shifts shifts, const std::vector<Part> &parts)
{
    std::vector<char> wide(ARENA);
    std::vector<char> packed(ARENA, GUARD);
    fill(wide, 1);
    std::memcpy(world.host(world.wide), wide.data(), ARENA);
    std::memset(world.host(world.other), GUARD, ARENA);
    for (const Part &part : parts) {
        weir_layout_opts opts = WEIR_OPTS(weir_layout_opts);
        opts.offset = part.offset;
        opts.bytes = part.bytes;
        opts.blocks = static_cast<uint32_t>(part.bytes % 3);
        char *to = world.device(world.other) + 64 + shifts.packed + part.offset;
        WEIRT_OK(world.rank,
                 weir_layout_pack(world.c.device, d.layout, count, world.device(world.wide) + CENTRE + shifts.wide, to,
                                  &opts, world.stream));
        for (uint64_t i = part.offset; i < part.offset + part.bytes; i++) {
            packed[64 + shifts.packed + i] =
                wide[static_cast<uint64_t>(static_cast<int64_t>(CENTRE + shifts.wide) + place_of(d, i))];
        }
    }
    world.finish();
    expect_same(world, packed, world.host(world.other), "pack");
    expect_same(world, wide, world.host(world.wide), "source of a pack");
}

// An arena to which packed bytes of the part have come, around its byte `centre`: `values` begins with the first one.
// A byte to which several packed bytes go has one of their values: that of `found` if it is one of them.
std::vector<char> arena_of(const Described &d, uint64_t centre, Part part, const char *values, const char *found,
                           std::vector<char> arena = std::vector<char>(ARENA, GUARD))
{
    std::vector<bool> got(ARENA);
    for (uint64_t i = 0; i < part.bytes; i++) {
        const auto at = static_cast<uint64_t>(static_cast<int64_t>(centre) + place_of(d, part.offset + i));
        if (!got[at] || found[at] != arena[at]) {
            arena[at] = values[i];
        }
        got[at] = true;
    }
    return arena;
}

void check_unpack(const World &world, const Described &d, uint64_t count, Shifts shifts, const std::vector<Part> &parts)
{
    std::vector<char> wide(ARENA, GUARD);
    std::vector<char> packed(ARENA);
    fill(packed, 2);
    std::memcpy(world.host(world.other), packed.data(), ARENA);
    std::memset(world.host(world.wide), GUARD, ARENA);
    for (const Part &part : parts) {
        weir_layout_opts opts = WEIR_OPTS(weir_layout_opts);
        opts.offset = part.offset;
        opts.bytes = part.bytes;
        opts.blocks = static_cast<uint32_t>(part.bytes % 3);
        const char *from = world.device(world.other) + 64 + shifts.packed + part.offset;
        WEIRT_OK(world.rank,
                 weir_layout_unpack(world.c.device, d.layout, count, world.device(world.wide) + CENTRE + shifts.wide,
                                    from, &opts, world.stream));
    }
    world.finish();
    // In the order of the stream, a later part overwrites those before it.
    const char *found = world.host(world.wide);
    for (const Part &part : parts) {
        wide = arena_of(d, CENTRE + shifts.wide, part, packed.data() + 64 + shifts.packed + part.offset, found, wide);
    }
    expect_same(world, wide, found, "unpack");
}

// ---- cases -------------------------------------------------------------------------------------------------

void each_layout(weirt_rank *rank)
{
    World world(rank);
    for (Described &d : all_layouts(rank)) {
        if (world.ready && WEIRT_OK(rank, weir_layout_commit(d.layout, world.c.device))) {
            for (const uint64_t most : { 1, 3 }) {
                const uint64_t count = items_that_fit(d, most);
                const uint64_t size = count * d.bytes.size();
                check_pack(world, d, count, { 0, 0 }, { { 0, size } });
                check_unpack(world, d, count, { 0, 0 }, { { 0, size } });
            }
        }
        weir_layout_destroy(d.layout);
    }
}

TEST_P(Layout, PackAndUnpackOfEachLayout) { run_alone(each_layout); }

void alignments(weirt_rank *rank)
{
    World world(rank);
    std::vector<Described> some;
    some.push_back(run_of(rank, 300));
    some.push_back(nest(rank, 16, { { 11, 48 } }));
    some.push_back(nest(rank, 8, { { 21, 24 } }));
    some.push_back(nest(rank, 13, { { 19, 53 } }));
    some.push_back(nest(rank, 1, { { 70, 3 } }));
    some.push_back(nest(rank, 100, { { 3, 128 }, { 2, 1000 } }));
    some.push_back(at_places(rank, run_of(rank, 37), { 500, 0, 77, 1000, 301 }));
    for (Described &d : some) {
        if (world.ready && WEIRT_OK(rank, weir_layout_commit(d.layout, world.c.device))) {
            for (uint64_t i = 0; i < 16; i++) {
                const Part whole = { 0, d.bytes.size() };
                check_pack(world, d, 1, { i, 0 }, { whole });
                check_pack(world, d, 1, { i * 7 % 16, i }, { whole });
                check_unpack(world, d, 1, { 0, i }, { whole });
                check_unpack(world, d, 1, { i, i * 5 % 16 }, { whole });
            }
        }
        weir_layout_destroy(d.layout);
    }
}

TEST_P(Layout, AnyAlignmentOfBothEnds) { run_alone(alignments); }

// Parts of odd sizes join to the whole. A part alone leaves the rest as it was.
void parts(weirt_rank *rank)
{
    World world(rank);
    std::mt19937_64 random(7);
    for (Described &d : all_layouts(rank)) {
        const uint64_t count = items_that_fit(d, 2);
        const uint64_t size = count * d.bytes.size();
        if (world.ready && WEIRT_OK(rank, weir_layout_commit(d.layout, world.c.device))) {
            std::vector<Part> all;
            for (uint64_t at = 0; at < size;) {
                const uint64_t bytes = std::min<uint64_t>(1 + random() % (size / 3 + 1), size - at);
                all.push_back({ at, bytes });
                at += bytes;
            }
            check_pack(world, d, count, { 0, 0 }, all);
            check_unpack(world, d, count, { 0, 0 }, all);
            all = { all[all.size() / 2] };
            check_pack(world, d, count, { 3, 1 }, all);
            check_unpack(world, d, count, { 1, 3 }, all);
        }
        weir_layout_destroy(d.layout);
    }
}

TEST_P(Layout, PartsJoinToTheWhole) { run_alone(parts); }

// Copies between layouts of one size. The source has its own arena.
void check_copy(const World &world, const Described &to, uint64_t to_count, const Described &from, uint64_t from_count,
                uint64_t shift, Part part)
{
    std::vector<char> source(ARENA);
    std::vector<char> wanted(ARENA, GUARD);
    fill(source, 3);
    std::memcpy(world.host(world.other), source.data(), ARENA);
    std::memset(world.host(world.wide), GUARD, ARENA);
    weir_layout_opts opts = WEIR_OPTS(weir_layout_opts);
    opts.offset = part.offset;
    opts.bytes = part.bytes;
    WEIRT_OK(world.rank,
             weir_layout_copy(world.c.device, to.layout, to_count, world.device(world.wide) + CENTRE + shift,
                              from.layout, from_count, world.device(world.other) + CENTRE, &opts, world.stream));
    world.finish();
    for (uint64_t i = part.offset; i < part.offset + part.bytes; i++) {
        wanted[static_cast<uint64_t>(static_cast<int64_t>(CENTRE + shift) + place_of(to, i))] =
            source[static_cast<uint64_t>(static_cast<int64_t>(CENTRE) + place_of(from, i))];
    }
    expect_same(world, wanted, world.host(world.wide), "copy");
}

void copies(weirt_rank *rank)
{
    World world(rank);
    std::vector<Described> all; // of 960 bytes each
    all.push_back(run_of(rank, 960));
    all.push_back(nest(rank, 16, { { 60, 64 } }));
    all.push_back(nest(rank, 8, { { 12, 16 }, { 10, 512 } }));
    all.push_back(nest(rank, 4, { { 240, 12 } }));
    all.push_back(nest(rank, 2, { { 20, 6 }, { 24, 130 } }));
    all.push_back(nest(rank, 1, { { 960, 5 } }));
    all.push_back(nest(rank, 15, { { 64, -31 } }));
    all.push_back(nest(rank, 4, { { 15, 256 }, { 16, 4 } }));
    all.push_back(at_places(rank, run_of(rank, 120), { 0, 130, 1300, 290, 5000, 4000, 3000, 2000 }));
    all.push_back(at_places(rank, nest(rank, 10, { { 12, 25 } }), { 0, 1000, 310, 5000, 4000, 3000, 2000, 6001 }));
    for (const Described &d : all) {
        WEIRT_OK(rank, weir_layout_commit(d.layout, world.c.device));
    }
    for (const Described &to : all) {
        for (const Described &from : all) {
            check_copy(world, to, 1, from, 1, 0, { 0, 960 });
            check_copy(world, to, 2, from, 2, 1, { 333, 1001 });
        }
    }
    const Described half = nest(rank, 24, { { 20, 40 } });
    check_copy(world, all[1], 1, half, 2, 0, { 0, 960 }); // of one size in all
    weir_layout_destroy(half.layout);
    for (Described &d : all) {
        weir_layout_destroy(d.layout);
    }
}

TEST_P(Layout, CopyBetweenTwoLayouts) { run_alone(copies); }

// A graph repeats the calls with the data of its replay.
void replays(weirt_rank *rank)
{
    World world(rank);
    void *graph = nullptr;
    Described d = nest(rank, 12, { { 30, 20 }, { 3, 1000 } });
    char *wide = world.device(world.wide);
    char *packed = world.device(world.other);
    if (world.ready && WEIRT_OK(rank, weir_graph_begin(world.c.device, world.stream)) &&
        WEIRT_OK(rank, weir_layout_pack(world.c.device, d.layout, 1, wide, packed, nullptr, world.stream)) &&
        WEIRT_OK(rank,
                 weir_layout_unpack(world.c.device, d.layout, 1, wide + ARENA / 2, packed, nullptr, world.stream)) &&
        WEIRT_OK(rank, weir_graph_end(world.c.device, world.stream, &graph))) {
        for (uint64_t turn = 0; turn < 4; turn++) {
            std::vector<char> data(ARENA);
            fill(data, turn + 10);
            std::memcpy(world.host(world.wide), data.data(), ARENA);
            WEIRT_OK(rank, weir_graph_launch(world.c.device, graph, world.stream));
            world.finish();
            for (const int64_t byte : d.bytes) {
                data[ARENA / 2 + static_cast<uint64_t>(byte)] = data[static_cast<uint64_t>(byte)];
            }
            expect_same(world, data, world.host(world.wide), "replay");
        }
    }
    weir_graph_destroy(world.c.device, graph);
    weir_layout_destroy(d.layout);
}

TEST_P(Layout, GraphsAreReplayed) { run_alone(replays); }

// Runs the kernel once; returns the status of its call.
weir_status launch_inside(const World &world, layout_args &args)
{
    char *at = world.host(world.other) + ARENA - 64;
    const weir_shape shape = weir_device_fit_shape(world.c.device, { 2, 64 });
    args.status = reinterpret_cast<int32_t *>(world.device(world.other) + ARENA - 64);
    int32_t status = -1;
    std::memcpy(at, &status, sizeof status);
    WEIRT_OK(world.rank, weir_launch(world.c.device, layout_inside, shape, &args, nullptr, world.stream));
    world.finish();
    std::memcpy(&status, at, sizeof status);
    std::memset(at, GUARD, sizeof status);
    return static_cast<weir_status>(status);
}

// A pack by the kernel, of the bytes of `d` from `offset` on.
void check_inside(const World &world, const Described &d, layout_args args, uint64_t offset, uint64_t bytes)
{
    std::vector<char> wide(ARENA);
    std::vector<char> packed(ARENA, GUARD);
    fill(wide, 4);
    std::memcpy(world.host(world.wide), wide.data(), ARENA);
    std::memset(world.host(world.other), GUARD, ARENA);
    args.src = world.device(world.wide) + CENTRE;
    args.dst = world.device(world.other) + 67;
    args.offset = offset;
    args.bytes = bytes;
    WEIRT_EXPECT(world.rank, launch_inside(world, args) == WEIR_OK);
    for (uint64_t i = 0; i < bytes; i++) {
        packed[67 + i] = wide[static_cast<uint64_t>(static_cast<int64_t>(CENTRE) + place_of(d, offset + i))];
    }
    expect_same(world, packed, world.host(world.other), "pack inside a kernel");
}

// An unpack by the kernel, or a copy from packed bytes, to items in another place of the arena.
void check_back_inside(const World &world, const Described &d, layout_args args, uint64_t offset, uint64_t bytes)
{
    std::vector<char> packed(ARENA);
    fill(packed, 5);
    std::memcpy(world.host(world.other), packed.data(), ARENA - 64);
    std::memset(world.host(world.wide), GUARD, ARENA);
    args.src = world.device(world.other) + 5;
    args.dst = world.device(world.wide) + CENTRE + 1;
    args.offset = offset;
    args.bytes = bytes;
    WEIRT_EXPECT(world.rank, launch_inside(world, args) == WEIR_OK);
    const char *found = world.host(world.wide);
    const std::vector<char> wanted = arena_of(d, CENTRE + 1, { offset, bytes }, packed.data() + 5, found);
    expect_same(world, wanted, found, args.call == LAYOUT_UNPACK ? "unpack inside a kernel" : "copy inside a kernel");
}

void inside_kernels(weirt_rank *rank)
{
    World world(rank);
    for (Described &d : all_layouts(rank)) {
        layout_args args = {};
        const uint64_t count = items_that_fit(d, 2);
        const uint64_t size = count * d.bytes.size();
        if (world.ready && WEIRT_OK(rank, weir_layout_commit(d.layout, world.c.device)) &&
            WEIRT_OK(rank, weir_layout_device(d.layout, world.c.device, count, &args.from))) {
            args.to = args.from;
            args.call = LAYOUT_PACK;
            check_inside(world, d, args, 0, size);
            check_inside(world, d, args, size / 3, size / 2);
            args.call = LAYOUT_AT;
            check_inside(world, d, args, size / 3, size / 2);
            args.call = LAYOUT_COPY;
            args.without = 1;
            check_inside(world, d, args, 0, size);
            args.without = 2;
            args.call = LAYOUT_UNPACK;
            check_back_inside(world, d, args, 1, size - 1);
            args.call = LAYOUT_COPY;
            check_back_inside(world, d, args, 0, size);
        }
        weir_layout_destroy(d.layout);
    }
}

TEST_P(Layout, CallsInsideAKernel) { run_alone(inside_kernels); }

void refusals_inside(weirt_rank *rank)
{
    World world(rank);
    layout_args args = {};
    Described d = nest(rank, 8, { { 10, 24 } });
    Described other = nest(rank, 8, { { 9, 24 } });
    if (world.ready && WEIRT_OK(rank, weir_layout_device(d.layout, world.c.device, 1, &args.from)) &&
        WEIRT_OK(rank, weir_layout_device(other.layout, world.c.device, 1, &args.to))) {
        std::memset(world.host(world.other), GUARD, ARENA);
        const std::vector<char> untouched(ARENA, GUARD);
        args.src = world.device(world.wide);
        args.dst = world.device(world.other);
        const struct {
            layout_call call;
            uint64_t offset;
            uint64_t bytes;
            weir_status status;
        } rows[] = {
            { LAYOUT_PACK, 0, 81, WEIR_ERR_RANGE },
            { LAYOUT_PACK, 81, 0, WEIR_ERR_RANGE },
            { LAYOUT_PACK, 1, UINT64_MAX, WEIR_ERR_RANGE },
            { LAYOUT_UNPACK, 70, 3, WEIR_ERR_RANGE },
            { LAYOUT_AT, 80, 1, WEIR_ERR_RANGE },
            { LAYOUT_COPY, 0, 0, WEIR_ERR_INVALID },
            { LAYOUT_PACK, 80, 0, WEIR_OK },
        };
        for (const auto &row : rows) {
            args.call = row.call;
            args.offset = row.offset;
            args.bytes = row.bytes;
            WEIRT_EXPECT(rank, launch_inside(world, args) == row.status);
            expect_same(world, untouched, world.host(world.other), "refused call");
        }
    }
    weir_layout_destroy(other.layout);
    weir_layout_destroy(d.layout);
}

TEST_P(Layout, RefusalsInsideAKernel) { run_alone(refusals_inside); }

} // namespace
