// Halos: all 26 directions of periodic boxes, by one launch and inside kernels, in each form; and their errors.
#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "test/conformance/halo_kernels.h"
#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

WEIRT_STAGE_SUITE(Halo);

constexpr uint64_t POISON = 0x5a5a5a5a5a5a5a5a;

// Ranks and boxes are periodic, x is the fastest dimension.
struct Plan {
    uint32_t ranks[3]; // in z, y, x
    uint64_t box[3];   // cells of a rank
    uint64_t radius;
    weir_halo_form form;
    bool irregular; // layouts are piece lists
    bool graph;
    uint32_t blocks;
    uint32_t rounds;
};

struct Direction {
    int d[3];
    uint32_t code() const { return static_cast<uint32_t>((d[0] + 1) * 9 + (d[1] + 1) * 3 + d[2] + 1); }
    Direction opposite() const { return { { -d[0], -d[1], -d[2] } }; }
};

std::vector<Direction> directions()
{
    std::vector<Direction> all;
    for (int i = 0; i < 27; i++) {
        if (i != 13) {
            all.push_back({ { i / 9 - 1, i / 3 % 3 - 1, i % 3 - 1 } });
        }
    }
    return all;
}

// A rank's array, its parts and its halo.
struct Field {
    const Plan *plan = nullptr;
    weirt_comm c = {};
    weir_memory *array = nullptr;
    weir_memory *shared = nullptr; // expected values, and a report
    void *stream = nullptr;
    void *graph = nullptr;
    std::vector<weir_memory_channel *> channels; // to each rank
    std::vector<weir_layout *> layouts;
    std::vector<weir_halo_part> parts;
    weir_halo *halo = nullptr;
    uint64_t sizes[3] = {};
    int place[3] = {}; // of the rank
    std::vector<uint64_t> expected;

    uint64_t count() const { return sizes[0] * sizes[1] * sizes[2]; }
    int neighbour(const Direction &way) const
    {
        int rank = 0;
        for (int i = 0; i < 3; i++) {
            const int ranks = static_cast<int>(plan->ranks[i]);
            rank = rank * ranks + (place[i] + way.d[i] + ranks) % ranks;
        }
        return rank;
    }
    // Cells at the box's boundary in this direction, or the ghosts behind it.
    weir_layout *region(weirt_rank *rank, const Direction &way, bool ghosts, uint32_t seed)
    {
        uint64_t lengths[3];
        uint64_t starts[3];
        for (int i = 0; i < 3; i++) {
            const uint64_t r = plan->radius;
            const uint64_t n = plan->box[i];
            lengths[i] = way.d[i] == 0 ? n : r;
            starts[i] = way.d[i] == 0 ? r : way.d[i] < 0 ? (ghosts ? 0 : r) : ghosts ? n + r : n;
        }
        weir_layout *cell = nullptr;
        weir_layout *made = nullptr;
        if (!plan->irregular) {
            WEIRT_OK(rank, weir_layout_create_bytes(8, &cell));
            WEIRT_OK(rank, weir_layout_create_subarray(3, sizes, lengths, starts, WEIR_LAYOUT_C, cell, &made));
        } else {
            std::vector<int64_t> rows;
            for (uint64_t z = starts[0]; z < starts[0] + lengths[0]; z++) {
                for (uint64_t y = starts[1]; y < starts[1] + lengths[1]; y++) {
                    rows.push_back(static_cast<int64_t>(((z * sizes[1] + y) * sizes[2] + starts[2]) * 8));
                }
            }
            std::shuffle(rows.begin(), rows.end(), std::mt19937(seed));
            WEIRT_OK(rank, weir_layout_create_bytes(8 * lengths[2], &cell));
            WEIRT_OK(rank, weir_layout_create_hindexed_block(rows.size(), 1, rows.data(), cell, &made));
            WEIRT_OK(rank, weir_layout_commit(made, c.device));
        }
        weir_layout_destroy(cell);
        layouts.push_back(made);
        return made;
    }
    // The value of a cell of the whole periodic field.
    uint64_t value(uint64_t z, uint64_t y, uint64_t x) const
    {
        const uint64_t at[3] = { z, y, x };
        uint64_t number = 0;
        for (int i = 0; i < 3; i++) {
            const uint64_t whole = plan->ranks[i] * plan->box[i];
            number = number * whole + (place[i] * plan->box[i] + at[i] + whole - plan->radius) % whole;
        }
        return 1000 + number * 1000;
    }
    bool is_ghost(uint64_t z, uint64_t y, uint64_t x) const
    {
        const uint64_t at[3] = { z, y, x };
        bool ghost = false;
        for (int i = 0; i < 3; i++) {
            ghost = ghost || at[i] < plan->radius || at[i] >= plan->radius + plan->box[i];
        }
        return ghost;
    }
    void expect()
    {
        for (uint64_t z = 0; z < sizes[0]; z++) {
            for (uint64_t y = 0; y < sizes[1]; y++) {
                for (uint64_t x = 0; x < sizes[2]; x++) {
                    expected.push_back(value(z, y, x) | (is_ghost(z, y, x) ? HALO_GHOST : 0));
                }
            }
        }
    }
    bool connect(weirt_rank *rank)
    {
        bool fine = true;
        channels.resize(rank->size);
        for (uint32_t peer = 0; peer < rank->size && fine; peer++) {
            fine = peer == rank->rank ||
                   WEIRT_OK(rank, weir_memory_channel_connect(c.comm, peer, 9, array, nullptr, &channels[peer]));
        }
        return fine;
    }
    void add_parts(weirt_rank *rank)
    {
        for (const Direction &way : directions()) {
            const uint32_t peer = static_cast<uint32_t>(neighbour(way));
            const bool inside = peer == rank->rank;
            const Direction named = rank->rank < peer ? way : way.opposite();
            const uint32_t index = inside ? way.code() : named.code();
            weir_layout *from = region(rank, way, false, index);
            weir_layout *to = region(rank, inside ? way.opposite() : way, true, index);
            parts.push_back({ channels[peer], index, from, to, 0, 0 });
        }
    }
    bool open(weirt_rank *rank, const Plan *of, uint32_t timeout_ms = 0)
    {
        plan = of;
        uint32_t left = rank->rank;
        for (int i = 2; i >= 0; i--) {
            sizes[i] = plan->box[i] + 2 * plan->radius;
            place[i] = static_cast<int>(left % plan->ranks[i]);
            left /= plan->ranks[i];
        }
        expect();
        const weir_memory_opts host = { sizeof host, WEIR_MEMORY_HOST, false, 0 };
        return weirt_comm_open(rank, timeout_ms, &c) &&
               WEIRT_OK(rank, weir_memory_allocate(c.comm, 8 * count(), nullptr, &array)) &&
               WEIRT_OK(rank, weir_memory_allocate(c.comm, 8 * count() + 64, &host, &shared)) &&
               WEIRT_OK(rank, weir_stream_create(c.device, &stream)) && connect(rank) && (add_parts(rank), true);
    }
    weir_status create() { return create(plan->form); }
    weir_status create(weir_halo_form form)
    {
        weir_halo_opts opts = {};
        opts.size = sizeof opts;
        opts.form = form;
        opts.blocks = plan->blocks;
        opts.array = weir_memory_pointer(array);
        return weir_halo_create(c.comm, parts.data(), static_cast<uint32_t>(parts.size()), &opts, &halo);
    }
    void close(weirt_rank *rank)
    {
        (void)weirt_barrier(rank);
        weir_graph_destroy(c.device, graph);
        weir_halo_destroy(halo);
        for (weir_layout *layout : layouts) {
            weir_layout_destroy(layout);
        }
        for (weir_memory_channel *channel : channels) {
            weir_memory_channel_destroy(channel);
        }
        if (stream != nullptr) {
            weir_stream_destroy(c.device, stream);
        }
        weir_memory_destroy(shared);
        weir_memory_destroy(array);
        weirt_comm_close(&c);
    }

    // The box gets its values of the round, and the ghosts get none.
    bool fill(weirt_rank *rank, uint64_t round)
    {
        std::vector<uint64_t> cells = expected;
        for (uint64_t &cell : cells) {
            cell = (cell & HALO_GHOST) != 0 ? POISON : cell + round;
        }
        return WEIRT_OK(rank, weir_device_copy(c.device, weir_memory_pointer(array), cells.data(), 8 * count()));
    }
    bool check(weirt_rank *rank, uint64_t round)
    {
        std::vector<uint64_t> found(count());
        bool fine = WEIRT_OK(rank, weir_device_copy(c.device, found.data(), weir_memory_pointer(array), 8 * count()));
        for (uint64_t i = 0; i < count() && fine; i++) {
            const uint64_t wanted = (expected[i] & ~HALO_GHOST) + round;
            if (found[i] != wanted) {
                weirt_fail(rank, __FILE__, __LINE__, "round %llu: cell %llu is %llu, not %llu",
                           static_cast<unsigned long long>(round), static_cast<unsigned long long>(i),
                           static_cast<unsigned long long>(found[i]), static_cast<unsigned long long>(wanted));
                fine = false;
            }
        }
        return fine;
    }
    bool begin(weirt_rank *rank)
    {
        if (!plan->graph) {
            return WEIRT_OK(rank, weir_halo_exchange(halo, stream));
        }
        if (graph == nullptr) {
            const bool recorded =
                WEIRT_OK(rank, weir_graph_begin(c.device, stream)) && WEIRT_OK(rank, weir_halo_exchange(halo, stream));
            if (!WEIRT_OK(rank, weir_graph_end(c.device, stream, &graph)) || !recorded) {
                return false;
            }
        }
        return WEIRT_OK(rank, weir_graph_launch(c.device, graph, stream));
    }
    bool finish(weirt_rank *rank) { return WEIRT_OK(rank, weir_comm_wait(c.comm, stream, weirt_timeout_ms())); }
};

const Plan *plan_of(const weirt_rank *rank) { return static_cast<const Plan *>(rank->arg); }

// ---- exchanges ---------------------------------------------------------------------------------------------

void exchanges(weirt_rank *rank)
{
    Field f;
    if (f.open(rank, plan_of(rank)) && WEIRT_OK(rank, f.create())) {
        bool fine = true;
        for (uint32_t round = 0; round < f.plan->rounds && fine; round++) {
            fine = f.fill(rank, round) && f.begin(rank) && f.finish(rank) && f.check(rank, round);
        }
    }
    f.close(rank);
}

class HaloForms : public ::testing::TestWithParam<std::tuple<int, int>> {
protected:
    void SetUp() override { weirt_require_data_stage(stage()); }
    const weirt_stage *stage() const { return &weirt_stages[std::get<0>(GetParam())]; }
    void run(Plan plan, weirt_rank_fn body) const
    {
        plan.form = static_cast<weir_halo_form>(std::get<1>(GetParam()));
        weirt_ranks_run(stage(), plan.ranks[0] * plan.ranks[1] * plan.ranks[2], body, &plan, sizeof plan);
    }
};

std::string form_name(const ::testing::TestParamInfo<std::tuple<int, int>> &info)
{
    static const char *const names[] = { "auto", "stores", "packets", "lines" };
    return std::string(weirt_stages[std::get<0>(info.param)].name) + "_" + names[std::get<1>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Stages, HaloForms,
                         ::testing::Combine(::testing::Range(0, WEIRT_STAGES), ::testing::Range(0, 4)), form_name);

TEST_P(HaloForms, OneRankIsItsOwnNeighbour)
{
    run({ { 1, 1, 1 }, { 3, 4, 5 }, 2, WEIR_HALO_AUTO, false, false, 0, 3 }, exchanges);
}
TEST_P(HaloForms, TwoRanksAlongZ)
{
    run({ { 2, 1, 1 }, { 5, 6, 7 }, 1, WEIR_HALO_AUTO, false, false, 0, 12 }, exchanges);
}
TEST_P(HaloForms, TwoRanksAlongX)
{
    run({ { 1, 1, 2 }, { 4, 3, 5 }, 2, WEIR_HALO_AUTO, false, true, 1, 12 }, exchanges);
}
TEST_P(HaloForms, FourRanks) { run({ { 2, 1, 2 }, { 3, 2, 4 }, 1, WEIR_HALO_AUTO, false, false, 0, 6 }, exchanges); }
TEST_P(HaloForms, PieceLists) { run({ { 1, 2, 1 }, { 5, 4, 3 }, 2, WEIR_HALO_AUTO, true, false, 0, 6 }, exchanges); }
// Faces of 80 KB: ten shares each, more than there are blocks.
TEST_P(HaloForms, PartsOfManyShares)
{
    run({ { 2, 1, 1 }, { 2, 100, 102 }, 1, WEIR_HALO_AUTO, false, false, 2, 4 }, exchanges);
}

// The forms of a halo's parts, as its kernels know them: how the part is sent, and how it is received.
std::vector<std::pair<uint32_t, uint32_t>> forms_of(weirt_rank *rank, const weirt_comm &c, const weir_halo *halo,
                                                    size_t count)
{
    weir_dev_halo device = {};
    std::vector<weir_dev_halo_part> parts(count);
    std::vector<std::pair<uint32_t, uint32_t>> forms;
    if (WEIRT_OK(rank, weir_halo_device(halo, &device)) &&
        WEIRT_OK(rank, weir_device_copy(c.device, parts.data(), device.parts, count * sizeof parts[0]))) {
        for (const weir_dev_halo_part &part : parts) {
            forms.emplace_back(part.put_form, part.wait_form);
        }
    }
    return forms;
}

// Each rank chooses how its neighbours send to it: the form of the plan, the next one, and so on.
void each_chooses(weirt_rank *rank)
{
    Field f;
    const auto form_of = [&](uint32_t r) {
        return static_cast<weir_halo_form>((static_cast<uint32_t>(plan_of(rank)->form) + r) % 3 + WEIR_HALO_STORES);
    };
    if (f.open(rank, plan_of(rank)) && WEIRT_OK(rank, f.create(form_of(rank->rank)))) {
        const auto forms = forms_of(rank, f.c, f.halo, f.parts.size());
        bool fine = WEIRT_EXPECT(rank, forms.size() == 26);
        for (size_t i = 0; i < forms.size(); i++) {
            const Direction way = directions()[i];
            const auto peer = static_cast<uint32_t>(f.neighbour(way));
            const bool inside = peer == rank->rank;
            WEIRT_EXPECT(rank, forms[i].first == static_cast<uint32_t>(inside ? WEIR_HALO_STORES : form_of(peer)));
            WEIRT_EXPECT(rank,
                         forms[i].second == static_cast<uint32_t>(inside ? WEIR_HALO_STORES : form_of(rank->rank)));
        }
        for (uint32_t round = 0; round < f.plan->rounds && fine; round++) {
            fine = f.fill(rank, round) && f.begin(rank) && f.finish(rank) && f.check(rank, round);
        }
    }
    f.close(rank);
}

TEST_P(HaloForms, EachRankChoosesItsForm)
{
    run({ { 1, 3, 1 }, { 3, 4, 3 }, 1, WEIR_HALO_AUTO, false, false, 0, 8 }, each_chooses);
}

// A rank that is ahead waits, or sends to memory that its neighbour does not read: the ghosts of the neighbour stay.
void one_is_ahead(weirt_rank *rank)
{
    Field f;
    if (f.open(rank, plan_of(rank)) && WEIRT_OK(rank, f.create())) {
        bool fine = f.fill(rank, 0) && f.begin(rank) && f.finish(rank) && f.check(rank, 0);
        if (rank->rank == 0 && fine) {
            fine = f.fill(rank, 1) && f.begin(rank) && f.begin(rank);
            weirt_step(rank, 1);
        } else if (fine && weirt_step_wait(rank, 0, 1)) {
            weirt_sleep_ms(50); // for stores that should not come
            fine = f.check(rank, 0) && f.fill(rank, 1) && f.begin(rank) && f.begin(rank);
        }
        fine = fine && f.finish(rank) && f.check(rank, 1);
    }
    f.close(rank);
}

TEST_P(HaloForms, ARankAheadOverwritesNothing)
{
    run({ { 1, 1, 2 }, { 3, 3, 4 }, 1, WEIR_HALO_AUTO, false, false, 0, 1 }, one_is_ahead);
}

// ---- the default form --------------------------------------------------------------------------------------

// Parts of one halo whose bytes and runs call for different forms. The items of a part are `stride` bytes apart; what
// arrives lies behind what is sent.
struct AutoPart {
    uint64_t bytes;
    uint64_t run;
    weir_halo_form form;
};

constexpr AutoPart auto_parts[] = { { 256 << 10, 512, WEIR_HALO_PACKETS }, { 264 << 10, 512, WEIR_HALO_LINES },
                                    { 1 << 20, 16, WEIR_HALO_LINES },      { 1 << 20, 32, WEIR_HALO_STORES },
                                    { 1 << 20, 4096, WEIR_HALO_STORES },   { 24, 8, WEIR_HALO_PACKETS },
                                    { 1016 << 10, 4064, WEIR_HALO_LINES }, { 1040 << 10, 4160, WEIR_HALO_STORES } };
constexpr size_t AUTO_PARTS = sizeof auto_parts / sizeof auto_parts[0];

struct AutoField {
    weirt_comm c = {};
    weir_memory *array = nullptr;
    weir_memory_channel *channel = nullptr;
    weir_layout *layouts[AUTO_PARTS] = {};
    weir_halo *halo = nullptr;
    void *stream = nullptr;
    uint64_t starts[AUTO_PARTS + 1] = {};

    bool open(weirt_rank *rank)
    {
        std::vector<weir_halo_part> parts;
        bool fine = true;
        for (size_t i = 0; i < AUTO_PARTS && fine; i++) {
            const AutoPart &part = auto_parts[i];
            weir_layout *run = nullptr;
            fine = WEIRT_OK(rank, weir_layout_create_bytes(part.run, &run)) &&
                   WEIRT_OK(rank, weir_layout_create_hvector(part.bytes / part.run, 1,
                                                             static_cast<int64_t>(part.run + 8), run, &layouts[i]));
            weir_layout_destroy(run);
            starts[i + 1] = starts[i] + 2 * spread(i);
        }
        fine = fine && weirt_comm_open(rank, 0, &c) &&
               WEIRT_OK(rank, weir_memory_allocate(c.comm, starts[AUTO_PARTS], nullptr, &array)) &&
               WEIRT_OK(rank, weir_stream_create(c.device, &stream)) &&
               WEIRT_OK(rank, weir_memory_channel_connect(c.comm, 1 - rank->rank, 2, array, nullptr, &channel));
        for (size_t i = 0; i < AUTO_PARTS; i++) {
            parts.push_back(
                { channel, static_cast<uint32_t>(i), layouts[i], layouts[i], starts[i], starts[i] + spread(i) });
        }
        return fine && WEIRT_OK(rank, weir_halo_create(c.comm, parts.data(), AUTO_PARTS, nullptr, &halo));
    }
    static uint64_t spread(size_t i) { return auto_parts[i].bytes / auto_parts[i].run * (auto_parts[i].run + 8); }
    void close(weirt_rank *rank)
    {
        (void)weirt_barrier(rank);
        weir_halo_destroy(halo);
        weir_memory_channel_destroy(channel);
        for (weir_layout *layout : layouts) {
            weir_layout_destroy(layout);
        }
        if (stream != nullptr) {
            weir_stream_destroy(c.device, stream);
        }
        weir_memory_destroy(array);
        weirt_comm_close(&c);
    }
    // The words of an array in which `ghosts` of the other rank have arrived; the gaps stay.
    std::vector<uint64_t> words(uint32_t rank, uint64_t round, bool arrived) const
    {
        std::vector<uint64_t> out(starts[AUTO_PARTS] / 8, POISON);
        for (size_t i = 0; i < AUTO_PARTS; i++) {
            const uint64_t stride = auto_parts[i].run / 8 + 1;
            for (uint64_t k = 0; k < spread(i) / 8; k++) {
                const uint64_t value = (round * AUTO_PARTS + i) * 1000000 + k;
                if (k % stride != stride - 1) {
                    out[starts[i] / 8 + k] = 2 * value + rank;
                    out[(starts[i] + spread(i)) / 8 + k] = arrived ? 2 * value + 1 - rank : POISON;
                }
            }
        }
        return out;
    }
};

void auto_mixes(weirt_rank *rank)
{
    AutoField f;
    if (f.open(rank)) {
        const auto forms = forms_of(rank, f.c, f.halo, AUTO_PARTS);
        for (size_t i = 0; i < forms.size(); i++) {
            const auto form = static_cast<uint32_t>(auto_parts[i].form);
            WEIRT_EXPECT(rank, forms[i] == std::make_pair(form, form));
        }
        bool fine = true;
        for (uint64_t round = 0; round < 4 && fine; round++) {
            const std::vector<uint64_t> before = f.words(rank->rank, round, false);
            const std::vector<uint64_t> wanted = f.words(rank->rank, round, true);
            std::vector<uint64_t> found(before.size());
            void *array = weir_memory_pointer(f.array);
            fine = WEIRT_OK(rank, weir_device_copy(f.c.device, array, before.data(), 8 * before.size())) &&
                   WEIRT_OK(rank, weir_halo_exchange(f.halo, f.stream)) &&
                   WEIRT_OK(rank, weir_comm_wait(f.c.comm, f.stream, weirt_timeout_ms())) &&
                   WEIRT_OK(rank, weir_device_copy(f.c.device, found.data(), array, 8 * found.size())) &&
                   WEIRT_EXPECT(rank, found == wanted);
        }
    }
    f.close(rank);
}

TEST_P(Halo, AutoMixesForms) { run(2, auto_mixes); }

// ---- inside kernels ----------------------------------------------------------------------------------------

// `threads`: of a block on a GPU.
weir_status run_kernel(weirt_rank *rank, Field *f, halo_group group, uint32_t rounds, uint64_t *wrong,
                       uint32_t threads = 64)
{
    weir_grid_barrier *barrier = nullptr;
    halo_kernel_args args = {};
    char *host = static_cast<char *>(weir_memory_host_pointer(f->shared));
    char *device = static_cast<char *>(weir_memory_pointer(f->shared));
    const uint64_t values = 8 * f->count();
    std::memcpy(host, f->expected.data(), values);
    std::memset(host + values, 0, 16);
    args.cells = static_cast<uint64_t *>(weir_memory_pointer(f->array));
    args.expected = reinterpret_cast<const uint64_t *>(device);
    args.count = f->count();
    args.rounds = rounds;
    args.group = group;
    args.wrong = reinterpret_cast<uint64_t *>(device + values);
    args.status = reinterpret_cast<int32_t *>(device + values + 8);
    const weir_launch_opts opts = { sizeof opts, true };
    const bool gpu = std::strcmp(rank->stage->kind, "gpu") == 0;
    const weir_shape shape = { gpu ? 4u : 2u, gpu ? threads : 2u };
    if (WEIRT_OK(rank, weir_halo_device(f->halo, &args.halo)) &&
        WEIRT_OK(rank, weir_grid_barrier_create(f->c.comm, &barrier))) {
        weir_grid_barrier_device(barrier, &args.barrier);
        WEIRT_OK(rank, weir_launch(f->c.device, halo_kernel, shape, &args, &opts, f->stream));
        WEIRT_OK(rank, weir_stream_wait(f->c.device, f->stream, weirt_timeout_ms()));
    }
    weir_grid_barrier_destroy(barrier);
    std::memcpy(wrong, host + values, sizeof *wrong);
    int32_t status;
    std::memcpy(&status, host + values + 8, sizeof status);
    return static_cast<weir_status>(status);
}

template <halo_group Group> void in_kernel(weirt_rank *rank)
{
    Field f;
    uint64_t wrong = 1;
    if (f.open(rank, plan_of(rank)) && WEIRT_OK(rank, f.create()) &&
        WEIRT_OK(rank, run_kernel(rank, &f, Group, f.plan->rounds, &wrong))) {
        WEIRT_EXPECT(rank, wrong == 0);
        const uint64_t next = f.plan->rounds;
        (void)(f.fill(rank, next) && f.begin(rank) && f.finish(rank) && f.check(rank, next));
        WEIRT_OK(rank, weir_comm_status(f.c.comm));
    }
    f.close(rank);
}

TEST_P(HaloForms, KernelsExchangeByThemselves)
{
    run({ { 1, 2, 1 }, { 3, 4, 3 }, 1, WEIR_HALO_AUTO, false, false, 0, 50 }, in_kernel<HALO_GRID>);
}
TEST_P(HaloForms, OneBlockExchanges)
{
    run({ { 1, 1, 2 }, { 3, 4, 3 }, 1, WEIR_HALO_AUTO, false, false, 0, 50 }, in_kernel<HALO_BLOCK>);
}

void warps_are_refused(weirt_rank *rank)
{
    Field f;
    uint64_t wrong = 1;
    const Plan plan = { { 1, 1, 2 }, { 3, 4, 3 }, 1, WEIR_HALO_STORES, false, false, 0, 1 };
    if (f.open(rank, &plan) && WEIRT_OK(rank, f.create())) {
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, run_kernel(rank, &f, HALO_WARP, 1, &wrong));
        WEIRT_EXPECT(rank, wrong == 0);
        (void)(f.fill(rank, 7) && f.begin(rank) && f.finish(rank) && f.check(rank, 7));
        WEIRT_OK(rank, weir_comm_status(f.c.comm));
    }
    f.close(rank);
}

TEST_P(Halo, GroupsWithoutABlockAreRefused) { run(2, warps_are_refused); }

// Lines take blocks of whole warps. On the CPU a warp is one thread, so that all blocks are.
void blocks_of_half_warps(weirt_rank *rank)
{
    Field f;
    uint64_t wrong = 1;
    const Plan plan = { { 1, 1, 2 }, { 3, 4, 3 }, 1, WEIR_HALO_LINES, false, false, 0, 1 };
    if (f.open(rank, &plan) && WEIRT_OK(rank, f.create())) {
        const bool gpu = std::strcmp(rank->stage->kind, "gpu") == 0;
        const weir_status expected = gpu ? WEIR_ERR_INVALID : WEIR_OK;
        weirt_log_allow("halo: lines need blocks of whole warps");
        WEIRT_STATUS(rank, expected, run_kernel(rank, &f, HALO_GRID, 1, &wrong, 48));
        WEIRT_EXPECT(rank, wrong == 0);
        const weir_status status = weir_comm_status(f.c.comm);
        WEIRT_EXPECT(rank, status == expected || (gpu && status == WEIR_ERR_ABORTED)); // the other rank failed first
        if (gpu) {
            WEIRT_TEXT(rank, "halo: lines need blocks of whole warps, but a block has 48 threads");
        }
    }
    f.close(rank);
}

TEST_P(Halo, LinesNeedBlocksOfWholeWarps) { run(2, blocks_of_half_warps); }

// ---- errors ------------------------------------------------------------------------------------------------

enum Fault {
    NO_FAULT,
    OTHER_BYTES,
    OTHER_INDEX,
    ONE_PART_MORE,
    NO_FROM,
    BEYOND,
    BEFORE,
    TWICE,
    NO_ARRAY,
    UNEQUAL_INSIDE,
    NOT_COMMITTED,
    UNKNOWN_FORM,
    FAULTS
};

// What rank 1 does wrong; the texts that rank 1 and rank 0 get.
struct Wrong {
    Fault fault;
    weir_status status;
    const char *one;
    const char *zero;
};

const char failed[] = "weir_halo_create: rank 1 failed: weir_halo_create: ";
const Wrong wrongs[] = {
    { OTHER_BYTES, WEIR_ERR_MISMATCH, "part of index 3: `from` of rank 1 has 24 bytes, but `to` of rank 0 has 16",
      "part of index 3: `from` of rank 1 has 24 bytes, but `to` of rank 0 has 16" },
    { OTHER_INDEX, WEIR_ERR_MISMATCH, "rank 1 has a part of index 4 for rank 0, but rank 0 has no such part",
      "rank 0 has a part of index 3 for rank 1, but rank 1 has no such part" },
    { ONE_PART_MORE, WEIR_ERR_MISMATCH, "rank 1 has a part of index 5 for rank 0, but rank 0 has no such part",
      "rank 1 has 2 parts for rank 0, which has 1 for it" },
    { NO_FROM, WEIR_ERR_INVALID, "weir_halo_create: parts[0].from is NULL", failed },
    { BEYOND, WEIR_ERR_RANGE, "parts[0].to: bytes 0 to 16 at offset 49 exceed the array (64 bytes)", failed },
    { BEFORE, WEIR_ERR_RANGE, "parts[0].from: bytes -8 to 8 at offset 7 exceed the array", failed },
    { TWICE, WEIR_ERR_INVALID, "parts[0] and parts[1] have the same channel and index 3", failed },
    { NO_ARRAY, WEIR_ERR_INVALID, "parts[1] has no channel, and opts.array is NULL", failed },
    { UNEQUAL_INSIDE, WEIR_ERR_MISMATCH, "parts[1] is within this rank: `from` has 16 bytes, but `to` has 24", failed },
    { NOT_COMMITTED, WEIR_ERR_INVALID, "parts[0].from", failed },
    { UNKNOWN_FORM, WEIR_ERR_INVALID, "weir_halo_create: opts.form is 4", failed },
};

struct Layouts {
    weir_layout *two = nullptr;   // 16 bytes
    weir_layout *three = nullptr; // 24 bytes
    weir_layout *back = nullptr;  // 16 bytes, from -8 on
    weir_layout *list = nullptr;  // 16 bytes, not committed

    bool open(weirt_rank *rank)
    {
        const int64_t places[] = { -8 };
        const int64_t odd[] = { 0, 3, 4, 9, 10, 12, 20, 29 };
        weir_layout *one = nullptr;
        const bool fine = WEIRT_OK(rank, weir_layout_create_bytes(16, &two)) &&
                          WEIRT_OK(rank, weir_layout_create_bytes(24, &three)) &&
                          WEIRT_OK(rank, weir_layout_create_hindexed_block(1, 1, places, two, &back)) &&
                          WEIRT_OK(rank, weir_layout_create_bytes(2, &one)) &&
                          WEIRT_OK(rank, weir_layout_create_hindexed_block(8, 1, odd, one, &list));
        weir_layout_destroy(one);
        return fine;
    }
    void close()
    {
        for (weir_layout *layout : { two, three, back, list }) {
            weir_layout_destroy(layout);
        }
    }
};

// The right parts of both ranks, with the fault.
std::vector<weir_halo_part> faulty_parts(weir_memory_channel *channel, const Layouts &l, Fault fault)
{
    std::vector<weir_halo_part> parts = { { channel, 3, l.two, l.two, 0, 16 } };
    switch (fault) {
    case OTHER_BYTES:
        parts[0].from = l.three;
        break;
    case OTHER_INDEX:
        parts[0].index = 4;
        break;
    case ONE_PART_MORE:
        parts.push_back({ channel, 5, l.two, l.two, 0, 32 });
        break;
    case NO_FROM:
        parts[0].from = nullptr;
        break;
    case BEYOND:
        parts[0].to_offset = 49;
        break;
    case BEFORE:
        parts[0].from = l.back;
        parts[0].from_offset = 7;
        break;
    case TWICE:
        parts.push_back({ channel, 3, l.two, l.two, 0, 32 });
        break;
    case NO_ARRAY:
        parts.push_back({ nullptr, 0, l.two, l.two, 0, 32 });
        break;
    case UNEQUAL_INSIDE:
        parts.push_back({ nullptr, 0, l.two, l.three, 0, 32 });
        break;
    case NOT_COMMITTED:
        parts[0].from = l.list;
        break;
    default:
        break;
    }
    return parts;
}

void one_is_wrong(weirt_rank *rank)
{
    weirt_comm c;
    Layouts layouts;
    weir_memory *array = nullptr;
    weir_memory_channel *channel = nullptr;
    void *stream = nullptr;
    const bool bad = rank->rank == 1;
    if (weirt_comm_open(rank, 0, &c) && layouts.open(rank) &&
        WEIRT_OK(rank, weir_memory_allocate(c.comm, 64, nullptr, &array)) &&
        WEIRT_OK(rank, weir_stream_create(c.device, &stream)) &&
        WEIRT_OK(rank, weir_memory_channel_connect(c.comm, 1 - rank->rank, 2, array, nullptr, &channel))) {
        weir_halo *halo = nullptr;
        weir_halo_opts opts = {};
        opts.size = sizeof opts;
        for (const Wrong &wrong : wrongs) {
            const auto parts = faulty_parts(channel, layouts, bad ? wrong.fault : NO_FAULT);
            opts.form = static_cast<weir_halo_form>(bad && wrong.fault == UNKNOWN_FORM ? 4 : 0);
            opts.array = bad && wrong.fault == UNEQUAL_INSIDE ? weir_memory_pointer(array) : nullptr;
            WEIRT_STATUS(rank, wrong.status,
                         weir_halo_create(c.comm, parts.data(), static_cast<uint32_t>(parts.size()), &opts, &halo));
            WEIRT_TEXT(rank, bad ? wrong.one : wrong.zero);
            WEIRT_EXPECT(rank, halo == nullptr);
        }
        // The ranks are in step.
        opts = { sizeof opts, 0, WEIR_HALO_AUTO, nullptr };
        const auto parts = faulty_parts(channel, layouts, NO_FAULT);
        const uint64_t mine[8] = { 7 + rank->rank, 9 + rank->rank };
        uint64_t found[8] = {};
        if (WEIRT_OK(rank, weir_halo_create(c.comm, parts.data(), 1, &opts, &halo)) &&
            WEIRT_OK(rank, weir_device_copy(c.device, weir_memory_pointer(array), mine, sizeof mine)) &&
            WEIRT_OK(rank, weir_halo_exchange(halo, stream)) &&
            WEIRT_OK(rank, weir_comm_wait(c.comm, stream, weirt_timeout_ms())) &&
            WEIRT_OK(rank, weir_device_copy(c.device, found, weir_memory_pointer(array), sizeof found))) {
            WEIRT_EXPECT(rank, found[2] == 8 - rank->rank && found[3] == 10 - rank->rank && found[4] == 0);
        }
        (void)weirt_barrier(rank);
        weir_halo_destroy(halo);
    }
    (void)weirt_barrier(rank);
    weir_memory_channel_destroy(channel);
    if (stream != nullptr) {
        weir_stream_destroy(c.device, stream);
    }
    weir_memory_destroy(array);
    layouts.close();
    weirt_comm_close(&c);
}

TEST_P(Halo, ErrorsOfOneRankReachItsNeighbour) { run(2, one_is_wrong); }

// Errors before a rank knows its neighbours stay with it.
void stays_alone(weirt_rank *rank)
{
    weirt_pair pair = {};
    weirt_comm c;
    weir_halo *halo = nullptr;
    if (weirt_comm_open(rank, 0, &c) && weirt_pair_open(rank, c.comm, 64, 3, &pair)) {
        Layouts l;
        l.open(rank);
        weir_halo_opts opts = {};
        const weir_halo_part part = { pair.data, 0, l.two, l.two, 0, 16 };
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_halo_create(c.comm, &part, 1, &opts, &halo));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_halo_create(c.comm, nullptr, 1, nullptr, &halo));
        WEIRT_TEXT(rank, "weir_halo_create: parts is NULL");
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_halo_create(c.comm, &part, 1, nullptr, nullptr));
        WEIRT_TEXT(rank, "weir_halo_create: out is NULL");
        const weir_halo_part packets = { pair.packet, 0, l.two, l.two, 0, 16 };
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_halo_create(c.comm, &packets, 1, nullptr, &halo));
        WEIRT_TEXT(rank, "parts[0]: the channel has packets, so its remote memory is no array");
        WEIRT_OK(rank, weir_halo_create(c.comm, nullptr, 0, nullptr, &halo));
        WEIRT_OK(rank, weir_halo_exchange(halo, pair.stream));
        WEIRT_OK(rank, weir_halo_exchange(halo, nullptr));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_halo_device(halo, nullptr));
        weir_halo_destroy(halo);
        l.close();
    }
    weirt_pair_close(rank, &pair, true);
    weirt_comm_close(&c);
}

TEST_P(Halo, ErrorsWithoutANeighbour) { run(2, stays_alone); }

// A halo has at most 63 neighbours. Rank 0 has 64.
void too_many(weirt_rank *rank)
{
    weirt_comm c;
    weir_memory *array = nullptr;
    weir_layout *bytes = nullptr;
    weir_halo *halo = nullptr;
    std::vector<weir_memory_channel *> channels(rank->size);
    std::vector<weir_halo_part> parts;
    bool fine = weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_memory_allocate(c.comm, 64, nullptr, &array)) &&
                WEIRT_OK(rank, weir_layout_create_bytes(16, &bytes));
    for (uint32_t peer = 0; peer < rank->size && fine; peer++) {
        if ((rank->rank == 0) != (peer == 0)) {
            fine = WEIRT_OK(rank, weir_memory_channel_connect(c.comm, peer, 2, array, nullptr, &channels[peer]));
            parts.push_back({ channels[peer], 0, bytes, bytes, 0, 16 });
        }
    }
    if (fine && rank->rank == 0) {
        WEIRT_STATUS(rank, WEIR_ERR_LIMIT, weir_halo_create(c.comm, parts.data(), 64, nullptr, &halo));
        WEIRT_TEXT(rank, "weir_halo_create: more than 63 neighbours");
        WEIRT_EXPECT(rank, halo == nullptr);
    }
    (void)weirt_barrier(rank);
    for (weir_memory_channel *channel : channels) {
        weir_memory_channel_destroy(channel);
    }
    weir_layout_destroy(bytes);
    weir_memory_destroy(array);
    weirt_comm_close(&c);
}

TEST(HaloMany, MoreThan63NeighboursAreRefused) { weirt_ranks_run(&weirt_stages[0], 65, too_many, nullptr, 0); }

// A part that sends and receives different numbers of bytes, or sends in one direction alone: nothing else tells the
// rank that sends how far its neighbour is.
struct Unequal {
    weir_halo_form form;
    bool one_way;
};

void unequal(weirt_rank *rank)
{
    weirt_comm c;
    weir_memory *array = nullptr;
    weir_memory_channel *channel = nullptr;
    weir_layout *large = nullptr;
    weir_layout *small = nullptr;
    weir_layout *none = nullptr;
    weir_halo *halo = nullptr;
    void *stream = nullptr;
    constexpr uint64_t ROUNDS = 40;
    constexpr uint64_t LARGE = 4096;
    const Unequal *how = static_cast<const Unequal *>(rank->arg);
    const bool first = rank->rank == 0;
    if (weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_memory_allocate(c.comm, 4 * LARGE, nullptr, &array)) &&
        WEIRT_OK(rank, weir_stream_create(c.device, &stream)) &&
        WEIRT_OK(rank, weir_layout_create_bytes(LARGE, &large)) &&
        WEIRT_OK(rank, weir_layout_create_bytes(8, &small)) && WEIRT_OK(rank, weir_layout_create_bytes(0, &none)) &&
        WEIRT_OK(rank, weir_memory_channel_connect(c.comm, 1 - rank->rank, 2, array, nullptr, &channel))) {
        weir_layout *back = how->one_way ? none : small;
        const weir_halo_part part = { channel, 0, first ? large : back, first ? back : large, 0, 2 * LARGE };
        const weir_halo_opts opts = { sizeof opts, 0, how->form, nullptr };
        bool fine = WEIRT_OK(rank, weir_halo_create(c.comm, &part, 1, &opts, &halo));
        for (uint64_t round = 1; round <= ROUNDS && fine; round++) {
            std::vector<uint64_t> cells(LARGE / 8, round);
            std::vector<uint64_t> found(4 * LARGE / 8);
            fine = WEIRT_OK(rank, weir_device_copy(c.device, weir_memory_pointer(array), cells.data(), LARGE)) &&
                   WEIRT_OK(rank, weir_halo_exchange(halo, stream)) &&
                   WEIRT_OK(rank, weir_comm_wait(c.comm, stream, weirt_timeout_ms()));
            weirt_sleep_ms(first ? 0 : round % 4); // the rank that sends more is ahead
            fine =
                fine && WEIRT_OK(rank, weir_device_copy(c.device, found.data(), weir_memory_pointer(array), 4 * LARGE));
            const uint64_t words = first ? (how->one_way ? 0 : 1) : LARGE / 8;
            for (uint64_t i = 0; i < 2 * LARGE / 8 && fine; i++) {
                fine = WEIRT_EXPECT(rank, found[2 * LARGE / 8 + i] == (i < words ? round : 0));
            }
        }
    }
    (void)weirt_barrier(rank);
    weir_halo_destroy(halo);
    weir_memory_channel_destroy(channel);
    for (weir_layout *layout : { large, small, none }) {
        weir_layout_destroy(layout);
    }
    if (stream != nullptr) {
        weir_stream_destroy(c.device, stream);
    }
    weir_memory_destroy(array);
    weirt_comm_close(&c);
}

TEST_P(HaloForms, UnequalBytes)
{
    const Unequal how = { static_cast<weir_halo_form>(std::get<1>(GetParam())), false };
    weirt_ranks_run(stage(), 2, unequal, &how, sizeof how);
}

TEST_P(HaloForms, OneDirection)
{
    const Unequal how = { static_cast<weir_halo_form>(std::get<1>(GetParam())), true };
    weirt_ranks_run(stage(), 2, unequal, &how, sizeof how);
}

} // namespace
