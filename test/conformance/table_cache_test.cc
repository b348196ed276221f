// Host tables: copies of rows in device memory. Rows that change behind the table's back tell whether a gather reads
// the copy or the row.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "src/host/table/table.h"
#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

WEIRT_STAGE_SUITE(TableCache);

constexpr uint64_t ROW = 100;
constexpr uint64_t PITCH = 140;
constexpr uint64_t ROWS = 100; // of each part
constexpr uint64_t MOST = 300; // ids
constexpr uint64_t COPIES = 40;
constexpr uint64_t MANY = 5000; // ids: those with copies get a launch of their own
constexpr uint64_t HOT_AT = 8 * MOST;
constexpr uint64_t OUT_AT = 16 * MOST;

char byte_of(uint64_t id, uint64_t i, int version)
{
    return static_cast<char>(id * 7 + i * 13 + 1 + static_cast<uint64_t>(version) * 101);
}

struct World {
    weirt_rank *rank;
    weir_table_split split;
    weirt_comm c = {};
    weir_memory *memory = nullptr; // of rows
    weir_memory *calls = nullptr;  // ids, hot ids, rows
    weir_table *table = nullptr;
    void *stream = nullptr;
    bool ready = false;

    World(weirt_rank *rank_, weir_table_split split_, uint64_t order_ids = MOST, uint64_t reach_bytes = 0)
        : rank(rank_), split(split_)
    {
        weir_memory_opts host = WEIR_OPTS(weir_memory_opts);
        host.kind = WEIR_MEMORY_HOST;
        weir_table_opts opts = WEIR_OPTS(weir_table_opts);
        opts.split = split;
        opts.order_ids = order_ids;
        opts.cache_rows = COPIES;
        opts.reach_bytes = reach_bytes;
        opts.miss_ns = 1000;
        weir_table_part parts[2] = {};
        ready = weirt_comm_open(rank, 0, &c) &&
                WEIRT_OK(rank, weir_memory_allocate(c.comm, 2 * ROWS * PITCH, &host, &memory)) &&
                WEIRT_OK(rank, weir_memory_allocate(c.comm, OUT_AT + MOST * ROW, &host, &calls)) &&
                WEIRT_OK(rank, weir_stream_create(c.device, &stream));
        for (uint64_t i = 0; i < 2 && ready; i++) {
            parts[i].memory = memory;
            parts[i].offset = i * ROWS * PITCH;
            parts[i].count = ROWS;
            parts[i].pitch = PITCH;
        }
        ready = ready && WEIRT_OK(rank, weir_table_create(c.device, ROW, parts, 2, &opts, &table));
        if (ready) {
            store(0);
        }
    }
    ~World()
    {
        weir_table_destroy(table);
        if (stream != nullptr) {
            weir_stream_destroy(c.device, stream);
        }
        weir_memory_destroy(calls);
        weir_memory_destroy(memory);
        weirt_comm_close(&c);
    }
    World(const World &) = delete;
    World &operator=(const World &) = delete;
    char *row(uint64_t id) const
    {
        const uint64_t place = split == WEIR_SPLIT_ROUND_ROBIN ? id % 2 * ROWS + id / 2 : id;
        return static_cast<char *>(weir_memory_host_pointer(memory)) + place * PITCH;
    }
    // All rows change, and the table does not know.
    void store(int version) const
    {
        for (uint64_t id = 0; id < 2 * ROWS; id++) {
            for (uint64_t i = 0; i < PITCH; i++) {
                row(id)[i] = byte_of(id, i, version);
            }
        }
    }
    char *host() const { return static_cast<char *>(weir_memory_host_pointer(calls)); }
    char *device() const { return static_cast<char *>(weir_memory_pointer(calls)); }
    bool wait() const { return WEIRT_OK(rank, weir_stream_wait(c.device, stream, 0)); }
    weir_status copy(const std::vector<int32_t> &ids) const
    {
        std::memcpy(host() + HOT_AT, ids.data(), ids.size() * 4);
        return weir_table_cache(table, device() + HOT_AT, WEIR_IDS_I32, ids.size(), stream);
    }
    // Gathers all rows; `versions` has that of each row.
    uint64_t wrong(const weir_table_call_opts &opts, const std::vector<int> &versions) const
    {
        for (int32_t id = 0; id < static_cast<int32_t>(2 * ROWS); id++) {
            std::memcpy(host() + 4 * id, &id, 4);
        }
        std::memset(host() + OUT_AT, 0x5a, MOST * ROW);
        WEIRT_OK(rank, weir_table_gather(table, device(), WEIR_IDS_I32, 2 * ROWS, device() + OUT_AT, &opts, stream));
        wait();
        uint64_t wrong = 0;
        for (uint64_t i = 0; i < 2 * ROWS * ROW; i++) {
            wrong += host()[OUT_AT + i] != byte_of(i / ROW, i % ROW, versions[i / ROW]);
        }
        return wrong;
    }
    uint64_t wrong(const std::vector<int> &versions) const { return wrong(WEIR_OPTS(weir_table_call_opts), versions); }
};

std::vector<int> versions_of(int all, const std::vector<int32_t> &some, int other)
{
    std::vector<int> versions(2 * ROWS, all);
    for (const int32_t id : some) {
        versions[static_cast<size_t>(id)] = other;
    }
    return versions;
}

// Gathers read the copies of the last call in every form and order, and only those.
void reads(weirt_rank *rank)
{
    for (const weir_table_split split : { WEIR_SPLIT_RANGES, WEIR_SPLIT_ROUND_ROBIN }) {
        World world(rank, split);
        std::vector<int32_t> most;
        if (!world.ready) {
            return;
        }
        for (int32_t id = 199; most.size() < COPIES; id -= 3) {
            most.push_back(id);
        }
        WEIRT_EXPECT(rank, world.wrong(versions_of(0, {}, 0)) == 0);
        WEIRT_OK(rank, world.copy(most));
        world.wait();
        world.store(1);
        for (int form = WEIR_TABLE_FORM_AUTO; form <= WEIR_TABLE_FORM_LINES; form++) {
            for (int order = WEIR_TABLE_ORDER_AUTO; order <= WEIR_TABLE_ORDER_UNIQUE; order++) {
                weir_table_call_opts opts = WEIR_OPTS(weir_table_call_opts);
                opts.form = static_cast<weir_table_form>(form);
                opts.order = static_cast<weir_table_order>(order);
                WEIRT_EXPECT(rank, world.wrong(opts, versions_of(1, most, 0)) == 0);
            }
        }
        WEIRT_OK(rank, world.copy({ 0, 57, 57, -1, 199, 57 })); // as they are now
        world.wait();
        world.store(2);
        WEIRT_EXPECT(rank, world.wrong(versions_of(2, { 0, 57, 199 }, 1)) == 0);
        WEIRT_OK(rank, world.copy({}));
        WEIRT_EXPECT(rank, world.wrong(versions_of(2, {}, 0)) == 0);
    }
}

TEST_P(TableCache, GathersReadCopies) { run_alone(reads); }

// A scatter stores to the row and to its copy.
void scatters(weirt_rank *rank)
{
    World world(rank, WEIR_SPLIT_RANGES);
    const std::vector<int32_t> hot = { 5, 6, 150 };
    const std::vector<int32_t> ids = { 150, 7, 5 };
    for (int form = WEIR_TABLE_FORM_AUTO; form <= WEIR_TABLE_FORM_LINES && world.ready; form++) {
        weir_table_call_opts opts = WEIR_OPTS(weir_table_call_opts);
        opts.form = static_cast<weir_table_form>(form);
        opts.column = 20;
        opts.bytes = 80;
        world.store(0);
        WEIRT_OK(rank, world.copy(hot));
        world.wait();
        std::memcpy(world.host(), ids.data(), ids.size() * 4);
        for (uint64_t i = 0; i < ids.size() * 80; i++) {
            world.host()[OUT_AT + i] = byte_of(static_cast<uint64_t>(ids[i / 80]), 20 + i % 80, 3);
        }
        WEIRT_OK(rank, weir_table_scatter(world.table, world.device(), WEIR_IDS_I32, ids.size(),
                                          world.device() + OUT_AT, &opts, world.stream));
        world.wait();
        uint64_t wrong = 0;
        for (int turn = 0; turn < 2; turn++) { // with the copies, and without
            weir_table_call_opts part = WEIR_OPTS(weir_table_call_opts);
            part.column = 20;
            part.pitch = ROW;
            for (int32_t id = 0; id < static_cast<int32_t>(2 * ROWS); id++) {
                std::memcpy(world.host() + 4 * id, &id, 4);
            }
            WEIRT_OK(rank, weir_table_gather(world.table, world.device(), WEIR_IDS_I32, 2 * ROWS,
                                             world.device() + OUT_AT, &part, world.stream));
            world.wait();
            for (uint64_t i = 0; i < 2 * ROWS * ROW; i++) {
                const uint64_t id = i / ROW;
                const bool moved = id == 150 || id == 7 || id == 5;
                wrong += i % ROW < 80 && world.host()[OUT_AT + i] != byte_of(id, 20 + i % ROW, moved ? 3 : 0);
            }
            WEIRT_OK(rank, world.copy({}));
            world.wait();
        }
        WEIRT_EXPECT(rank, wrong == 0);
    }
}

TEST_P(TableCache, ScattersStoreToRowAndCopy) { run_alone(scatters); }

// Planes outside the row are in no copy: a gather reads the rows, and a scatter drops the copies, because it may store
// to other rows.
void planes(weirt_rank *rank)
{
    World world(rank, WEIR_SPLIT_RANGES);
    const std::vector<int32_t> hot = { 5, 6 };
    const int32_t id = 5;
    weir_table_call_opts opts = WEIR_OPTS(weir_table_call_opts);
    opts.bytes = 10;
    opts.planes = 2;
    opts.plane = PITCH; // the second piece of row 5 is that of row 6
    opts.out_plane = 10;
    opts.pitch = 20;
    if (!world.ready || !WEIRT_OK(rank, world.copy(hot)) || !world.wait()) {
        return;
    }
    // The last row has no room behind it, so the second part ends one row earlier.
    weir_table *less = nullptr;
    weir_table_opts create = WEIR_OPTS(weir_table_opts);
    weir_table_part part = {};
    create.cache_rows = COPIES;
    part.memory = world.memory;
    part.count = 2 * ROWS - 1;
    part.pitch = PITCH;
    if (!WEIRT_OK(rank, weir_table_create(world.c.device, ROW, &part, 1, &create, &less))) {
        return;
    }
    std::swap(less, world.table);
    WEIRT_OK(rank, world.copy(hot));
    world.wait();
    world.store(1);
    std::memcpy(world.host(), &id, 4);
    WEIRT_OK(rank, weir_table_gather(world.table, world.device(), WEIR_IDS_I32, 1, world.device() + OUT_AT, &opts,
                                     world.stream));
    world.wait();
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < 20; i++) {
        wrong += world.host()[OUT_AT + i] != byte_of(5 + i / 10, i % 10, 1);
        world.host()[OUT_AT + i] = byte_of(5 + i / 10, i % 10, 4);
    }
    WEIRT_OK(rank, weir_table_scatter(world.table, world.device(), WEIR_IDS_I32, 1, world.device() + OUT_AT, &opts,
                                      world.stream));
    opts.planes = 1;
    const int32_t next = 6;
    std::memcpy(world.host() + 4, &next, 4);
    WEIRT_OK(rank, weir_table_gather(world.table, world.device() + 4, WEIR_IDS_I32, 1, world.device() + OUT_AT, &opts,
                                     world.stream));
    world.wait();
    for (uint64_t i = 0; i < 10; i++) {
        wrong += world.host()[OUT_AT + i] != byte_of(6, i, 4);
    }
    WEIRT_EXPECT(rank, wrong == 0);
    weir_table_destroy(less);
}

TEST_P(TableCache, PlanesOutsideTheRowHaveNoCopy) { run_alone(planes); }

// The lists of a gather that divided `count` ids: positions of those that have no copies, by groups if they are
// grouped, and the number of the others.
bool divided(const World &world, const std::vector<int32_t> &ids, uint64_t count, const std::vector<int32_t> &hot,
             bool grouped)
{
    uint64_t placed[2] = {};
    uint64_t hits = 0;
    const auto has_copy = [&](int32_t id) { return std::find(hot.begin(), hot.end(), id) != hot.end(); };
    for (uint64_t i = 0; i < count; i++) {
        hits += has_copy(ids[i]);
    }
    if (!WEIRT_OK(world.rank, weir_device_copy(world.c.device, placed, world.table->order.placed, sizeof placed)) ||
        placed[0] != count - hits || placed[1] != hits) {
        return false;
    }
    std::vector<uint32_t> order(placed[0]);
    std::vector<bool> seen(count);
    bool right =
        WEIRT_OK(world.rank, weir_device_copy(world.c.device, order.data(), world.table->order.order, 4 * placed[0]));
    uint64_t last = 0;
    for (const uint32_t position : order) {
        right = right && position < count && !seen[position] && !has_copy(ids[position]);
        if (!right) {
            return false;
        }
        seen[position] = true;
        const int32_t id = ids[position];
        const uint64_t group = id >= 100 && id < 200 ? 1 : 0; // a part is smaller than a page
        right = !grouped || group >= last;
        last = group;
    }
    return right;
}

// Ids that have copies, the others, and ids without a row are divided, and each row is in its place. A graph is
// replayed with other copies, and with fewer ids by count_at. The order GIVEN divides nothing, and leaves the memory of
// the lists as it is.
void divide(weirt_rank *rank, weir_table_order order, bool beyond_reach)
{
    World world(rank, WEIR_SPLIT_RANGES, MANY, beyond_reach ? 1 : 0);
    const bool grouped = order == WEIR_TABLE_ORDER_GROUPED || beyond_reach;
    const uint64_t untouched[2] = { 77, 78 };
    weir_memory *memory = nullptr;
    weir_memory_opts host = WEIR_OPTS(weir_memory_opts);
    host.kind = WEIR_MEMORY_HOST;
    if (!world.ready || !WEIRT_OK(rank, weir_memory_allocate(world.c.comm, MANY * (4 + ROW) + 8, &host, &memory))) {
        return;
    }
    const auto start = static_cast<char *>(weir_memory_host_pointer(memory));
    const auto ids = static_cast<const char *>(weir_memory_pointer(memory));
    weir_table_call_opts opts = WEIR_OPTS(weir_table_call_opts);
    opts.count_at = reinterpret_cast<const uint64_t *>(ids + MANY * (4 + ROW));
    opts.order = order;
    WEIRT_OK(rank, weir_device_copy(world.c.device, world.table->order.placed, untouched, sizeof untouched));
    std::vector<int32_t> drawn(MANY);
    for (uint64_t i = 0; i < MANY; i++) {
        drawn[i] = i % 97 == 0 ? -1 : i % 389 == 5 ? 200 : static_cast<int32_t>(i * 7919 % 200);
    }
    std::memcpy(start, drawn.data(), MANY * 4);
    void *graph = nullptr;
    uint64_t outside = 0;
    for (uint64_t turn = 0; turn < 4; turn++) {
        const std::vector<int32_t> hot = { static_cast<int32_t>(turn), 31, 57, 199 };
        const std::vector<int> versions = versions_of(static_cast<int>(2 * turn + 1), hot, static_cast<int>(2 * turn));
        const uint64_t count = turn % 2 == 0 ? MANY + 1 : MANY - 1234;
        world.store(static_cast<int>(2 * turn));
        WEIRT_OK(rank, world.copy(hot));
        world.wait();
        world.store(static_cast<int>(2 * turn + 1));
        std::memcpy(start + MANY * (4 + ROW), &count, 8);
        std::memset(start + MANY * 4, 0x5a, MANY * ROW);
        if (turn == 0) {
            WEIRT_OK(rank, weir_graph_begin(world.c.device, world.stream));
            WEIRT_OK(rank, weir_table_gather(world.table, ids, WEIR_IDS_I32, MANY,
                                             static_cast<char *>(weir_memory_pointer(memory)) + MANY * 4, &opts,
                                             world.stream));
            WEIRT_OK(rank, weir_graph_end(world.c.device, world.stream, &graph));
        }
        WEIRT_OK(rank, weir_graph_launch(world.c.device, graph, world.stream));
        world.wait();
        uint64_t wrong = 0;
        for (uint64_t i = 0; i < MANY; i++) {
            const bool there = i < count && drawn[i] >= 0 && drawn[i] < 200;
            const auto id = static_cast<uint64_t>(drawn[i]);
            outside += i < count && drawn[i] == 200;
            for (uint64_t k = 0; k < ROW; k++) {
                wrong += start[MANY * 4 + i * ROW + k] != (there ? byte_of(id, k, versions[id]) : 0x5a);
            }
        }
        WEIRT_EXPECT(rank, wrong == 0);
        uint64_t placed[2] = {};
        WEIRT_OK(rank, weir_device_copy(world.c.device, placed, world.table->order.placed, sizeof placed));
        WEIRT_EXPECT(rank, order == WEIR_TABLE_ORDER_GIVEN
                               ? placed[0] == untouched[0] && placed[1] == untouched[1]
                               : divided(world, drawn, std::min(count, MANY), hot, grouped));
    }
    weir_table_faults faults;
    weir_table_get_faults(world.table, &faults);
    WEIRT_EXPECT(rank, faults.count == outside && faults.id == 200);
    weir_graph_destroy(world.c.device, graph);
    weir_memory_destroy(memory);
}

void divides(weirt_rank *rank) { divide(rank, WEIR_TABLE_ORDER_AUTO, false); }
void divides_and_groups(weirt_rank *rank)
{
    divide(rank, WEIR_TABLE_ORDER_AUTO, true);
    divide(rank, WEIR_TABLE_ORDER_GROUPED, false);
}
void keeps_lists(weirt_rank *rank) { divide(rank, WEIR_TABLE_ORDER_GIVEN, true); }

TEST_P(TableCache, ManyIdsAreDivided) { run_alone(divides); }
TEST_P(TableCache, ManyIdsAreDividedAndGrouped) { run_alone(divides_and_groups); }
TEST_P(TableCache, TheGivenOrderKeepsTheLists) { run_alone(keeps_lists); }

// A graph is replayed with other rows.
void replays(weirt_rank *rank)
{
    World world(rank, WEIR_SPLIT_ROUND_ROBIN);
    void *graph = nullptr;
    if (world.ready && WEIRT_OK(rank, weir_graph_begin(world.c.device, world.stream)) &&
        WEIRT_OK(rank, world.copy({ 1, 2, 3 })) &&
        WEIRT_OK(rank, weir_graph_end(world.c.device, world.stream, &graph))) {
        for (int turn = 0; turn < 3; turn++) {
            const std::vector<int32_t> hot = { 10 * turn, 10 * turn + 1, 199 - turn };
            world.store(2 * turn);
            std::memcpy(world.host() + HOT_AT, hot.data(), 12);
            WEIRT_OK(rank, weir_graph_launch(world.c.device, graph, world.stream));
            world.wait();
            world.store(2 * turn + 1);
            WEIRT_EXPECT(rank, world.wrong(versions_of(2 * turn + 1, hot, 2 * turn)) == 0);
        }
    }
    weir_graph_destroy(world.c.device, graph);
}

TEST_P(TableCache, GraphsAreReplayed) { run_alone(replays); }

void refuses(weirt_rank *rank)
{
    World world(rank, WEIR_SPLIT_RANGES);
    weir_table_faults faults;
    weir_table_info info;
    if (!world.ready) {
        return;
    }
    weir_table_get_info(world.table, &info);
    WEIRT_EXPECT(rank, info.cache_rows == COPIES);
    WEIRT_STATUS(rank, WEIR_ERR_LIMIT, world.copy(std::vector<int32_t>(COPIES + 1)));
    WEIRT_TEXT(rank, "41 rows, but opts.cache_rows of create was 40");
    WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_table_cache(world.table, nullptr, WEIR_IDS_I32, 1, world.stream));
    WEIRT_STATUS(rank, WEIR_ERR_INVALID,
                 weir_table_cache(world.table, world.device(), static_cast<weir_ids>(2), 1, world.stream));
    WEIRT_OK(rank, world.copy({ 200, -5, 3 }));
    world.wait();
    weir_table_get_faults(world.table, &faults);
    WEIRT_EXPECT(rank, faults.count == 1 && faults.id == 200 && faults.position == 0);
    world.store(1);
    WEIRT_EXPECT(rank, world.wrong(versions_of(1, { 3 }, 0)) == 0);
}

TEST_P(TableCache, RefusesAndCounts) { run_alone(refuses); }

} // namespace
