// Host tables: gathers that reorder their ids have the result of those that do not, read group after group, and in the
// order UNIQUE each row once.
#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "src/host/table/table.h"
#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

WEIRT_STAGE_SUITE(TableOrder);

constexpr uint64_t ROW = 100;
constexpr uint64_t PITCH = 40004;
constexpr uint64_t ROWS = 1700; // of each part: 1,038 groups, so that there are two spans of groups
constexpr uint64_t MOST = 600;
constexpr uint64_t COUNT_AT = 8 * MOST;
constexpr uint64_t OUT_AT = 16 * MOST;

struct World {
    weirt_rank *rank;
    weirt_comm c = {};
    weir_memory *memory = nullptr; // of rows
    weir_memory *calls = nullptr;  // ids, count, out
    weir_table *table = nullptr;
    void *stream = nullptr;
    bool ready = false;

    World(weirt_rank *rank_, weir_table_split split, uint64_t order_ids) : rank(rank_)
    {
        weir_memory_opts host = WEIR_OPTS(weir_memory_opts);
        host.kind = WEIR_MEMORY_HOST;
        weir_table_opts opts = WEIR_OPTS(weir_table_opts);
        opts.split = split;
        opts.order_ids = order_ids;
        opts.reach_bytes = 1 << 20;
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
        for (uint64_t id = 0; id < 2 * ROWS && ready; id++) {
            const bool robin = split == WEIR_SPLIT_ROUND_ROBIN;
            const uint64_t place = robin ? id % 2 * ROWS + id / 2 : id;
            for (uint64_t i = 0; i < ROW; i++) {
                static_cast<char *>(weir_memory_host_pointer(memory))[place * PITCH + i] = byte_of(id, i);
            }
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
    static char byte_of(uint64_t id, uint64_t i) { return static_cast<char>(id * 7 + i * 13 + id / 256 + 1); }
    char *host() const { return static_cast<char *>(weir_memory_host_pointer(calls)); }
    char *device() const { return static_cast<char *>(weir_memory_pointer(calls)); }
    void put(const std::vector<int64_t> &ids) const
    {
        std::memcpy(host(), ids.data(), ids.size() * 8);
        std::memset(host() + OUT_AT, 0x5a, MOST * ROW);
    }
    weir_status gather(uint64_t count, weir_table_order order, bool count_at = false) const
    {
        weir_table_call_opts opts = WEIR_OPTS(weir_table_call_opts);
        opts.order = order;
        opts.count_at = count_at ? reinterpret_cast<const uint64_t *>(device() + COUNT_AT) : nullptr;
        return weir_table_gather(table, device(), WEIR_IDS_I64, count, device() + OUT_AT, &opts, stream);
    }
    bool wait() const { return WEIRT_OK(rank, weir_stream_wait(c.device, stream, 0)); }
    // Wrong bytes of out after a gather of the first `count` ids.
    uint64_t wrong(const std::vector<int64_t> &ids, uint64_t count) const
    {
        uint64_t wrong = 0;
        for (uint64_t i = 0; i < MOST * ROW; i++) {
            const uint64_t row = i / ROW;
            const bool there = row < count && ids[row] >= 0 && ids[row] < static_cast<int64_t>(2 * ROWS);
            const char wanted = there ? byte_of(static_cast<uint64_t>(ids[row]), i % ROW) : 0x5a;
            wrong += host()[OUT_AT + i] != wanted;
        }
        return wrong;
    }
    bool has(int64_t id) const { return id >= 0 && id < static_cast<int64_t>(2 * ROWS); }
    // Positions in the order of the last call.
    uint64_t placed() const
    {
        uint64_t placed = 0;
        WEIRT_OK(rank, weir_device_copy(c.device, &placed, table->order.placed, sizeof placed));
        return placed;
    }
    // Whether the order of the last call has different positions below `count`, span after span, and by groups in each.
    bool ordered(const std::vector<int64_t> &ids, uint64_t count, weir_table_split split) const
    {
        weir_table_info info;
        weir_table_get_info(table, &info);
        const uint64_t bytes = info.group_bytes;
        std::vector<uint32_t> order(placed());
        std::vector<bool> seen(count);
        std::set<uint64_t> spans;
        uint64_t last = 0;
        bool right = WEIRT_OK(rank, weir_device_copy(c.device, order.data(), table->order.order, order.size() * 4));
        for (const uint32_t position : order) {
            right = right && position < count && !seen[position];
            if (!right) {
                return false;
            }
            seen[position] = true;
            const int64_t id = ids[position];
            const auto number = static_cast<uint64_t>(id);
            const uint64_t part = split == WEIR_SPLIT_RANGES ? number / ROWS : number % 2;
            const uint64_t index = split == WEIR_SPLIT_RANGES ? number % ROWS : number / 2;
            const uint64_t group = has(id) ? part * ((ROWS - 1) * PITCH / bytes + 1) + index * PITCH / bytes : 0;
            const uint64_t span = group / WEIRI_TABLE_SPAN;
            right = bytes >= 65536 && (spans.insert(span).second || (span == last / WEIRI_TABLE_SPAN && group >= last));
            last = group;
        }
        return right;
    }
};

std::vector<int64_t> random_ids(uint64_t count, std::mt19937_64 &random)
{
    std::vector<int64_t> ids;
    for (uint64_t i = 0; i < count; i++) {
        ids.push_back(static_cast<int64_t>(random() % (2 * ROWS + 20)) - 10);
    }
    return ids;
}

void groups(weirt_rank *rank)
{
    for (const weir_table_split split : { WEIR_SPLIT_RANGES, WEIR_SPLIT_ROUND_ROBIN }) {
        World world(rank, split, MOST);
        std::mt19937_64 random(31);
        for (const uint64_t count : { 1, 2, 37, 599, 600, 3, 600 }) {
            const std::vector<int64_t> ids = random_ids(count, random);
            const uint64_t less = count - count / 3;
            if (!world.ready) {
                return;
            }
            world.put(ids);
            WEIRT_OK(rank, world.gather(count, WEIR_TABLE_ORDER_GROUPED));
            world.wait();
            WEIRT_EXPECT(rank, world.wrong(ids, count) == 0);
            WEIRT_EXPECT(rank, world.placed() == count && world.ordered(ids, count, split));
            std::memcpy(world.host() + COUNT_AT, &less, 8);
            world.put(ids);
            WEIRT_OK(rank, world.gather(count, WEIR_TABLE_ORDER_GROUPED, true));
            world.wait();
            WEIRT_EXPECT(rank, world.wrong(ids, less) == 0);
            WEIRT_EXPECT(rank, world.placed() == less && world.ordered(ids, less, split));
        }
    }
}

TEST_P(TableOrder, ReadsGroupAfterGroup) { run_alone(groups); }

// Ids that a gather in the order UNIQUE reads: of equal ids one, and each that has no row.
uint64_t reads(const World &world, const std::vector<int64_t> &ids, uint64_t count)
{
    std::set<int64_t> rows;
    uint64_t others = 0;
    for (uint64_t i = 0; i < count; i++) {
        others += world.has(ids[i]) ? 0 : 1;
        rows.insert(ids[i]);
    }
    const auto missing = std::count_if(rows.begin(), rows.end(), [&](int64_t id) { return !world.has(id); });
    return rows.size() - static_cast<uint64_t>(missing) + others;
}

// Ids of which many are equal.
void uniques(weirt_rank *rank)
{
    for (const weir_table_split split : { WEIR_SPLIT_RANGES, WEIR_SPLIT_ROUND_ROBIN }) {
        World world(rank, split, MOST);
        std::mt19937_64 random(32);
        if (!world.ready) {
            return;
        }
        for (const int64_t range : { 1, 2, 30, 2400, 8000 }) {
            for (const uint64_t count : { 1, 2, 599, 600 }) {
                std::vector<int64_t> ids;
                const uint64_t less = count - count / 3;
                for (uint64_t i = 0; i < count; i++) {
                    ids.push_back(2399 - static_cast<int64_t>(random() % static_cast<uint64_t>(range)));
                }
                world.put(ids);
                WEIRT_OK(rank, world.gather(count, WEIR_TABLE_ORDER_UNIQUE));
                world.wait();
                WEIRT_EXPECT(rank, world.wrong(ids, count) == 0 && world.placed() == reads(world, ids, count));
                WEIRT_EXPECT(rank, world.ordered(ids, count, split));
                std::memcpy(world.host() + COUNT_AT, &less, 8);
                world.put(ids);
                WEIRT_OK(rank, world.gather(count, WEIR_TABLE_ORDER_UNIQUE, true));
                world.wait();
                WEIRT_EXPECT(rank, world.wrong(ids, less) == 0 && world.placed() == reads(world, ids, less));
            }
        }
        WEIRT_STATUS(rank, WEIR_ERR_LIMIT, world.gather(MOST + 1, WEIR_TABLE_ORDER_UNIQUE));
    }
}

TEST_P(TableOrder, ReadsEachRowOnce) { run_alone(uniques); }

// No ids, the first and the last row, and ids that are all equal, negative or out of range.
void every_id(weirt_rank *rank)
{
    World world(rank, WEIR_SPLIT_RANGES, MOST);
    const auto rows = static_cast<int64_t>(2 * ROWS);
    const std::vector<int64_t> lists[] = { {},
                                           { 0 },
                                           { rows - 1 },
                                           std::vector<int64_t>(MOST, 7),
                                           { -1, INT64_MIN, -1 },
                                           std::vector<int64_t>(MOST, INT64_MIN),
                                           { rows, INT64_MAX, rows },
                                           std::vector<int64_t>(MOST, INT64_MAX),
                                           { INT64_MIN, rows - 1, INT64_MAX, 0 } };
    uint64_t outside = 0;
    if (!world.ready) {
        return;
    }
    for (const std::vector<int64_t> &ids : lists) {
        for (const weir_table_order order : { WEIR_TABLE_ORDER_GROUPED, WEIR_TABLE_ORDER_UNIQUE }) {
            const uint64_t count = ids.size();
            weir_table_faults faults;
            world.put(ids);
            WEIRT_OK(rank, world.gather(count, order));
            world.wait();
            WEIRT_EXPECT(rank, world.wrong(ids, count) == 0);
            WEIRT_EXPECT(rank,
                         count == 0 ||
                             world.placed() == (order == WEIR_TABLE_ORDER_GROUPED ? count : reads(world, ids, count)));
            WEIRT_EXPECT(rank, count == 0 || world.ordered(ids, count, WEIR_SPLIT_RANGES));
            outside +=
                static_cast<uint64_t>(std::count_if(ids.begin(), ids.end(), [=](int64_t id) { return id >= rows; }));
            weir_table_get_faults(world.table, &faults);
            WEIRT_EXPECT(rank, faults.count == outside);
        }
    }
}

TEST_P(TableOrder, EveryKindOfId) { run_alone(every_id); }

// Rows of other sizes and alignments, ids of 32 bits. The same rows lie in memory at other offsets: part 1 begins
// behind part 0 and a gap of 5 bytes.
void sizes(weirt_rank *rank, weir_table_split split)
{
    constexpr uint64_t rows = 150; // of each part
    World world(rank, split, MOST);
    std::mt19937_64 random(34);
    for (const uint64_t bytes : { 1, 3, 17, 128, 400, 1203, 16500 }) {
        const uint64_t pitch = bytes + 7;
        const uint64_t offset = 13;
        const uint64_t count = std::min<uint64_t>(MOST, 50000 / bytes);
        weir_table *table = nullptr;
        weir_table_opts opts = WEIR_OPTS(weir_table_opts);
        weir_table_part parts[2] = {};
        opts.split = split;
        opts.order_ids = MOST;
        for (uint64_t i = 0; i < 2; i++) {
            parts[i].memory = world.memory;
            parts[i].offset = offset + i * (rows * pitch + 5);
            parts[i].count = rows;
            parts[i].pitch = pitch;
        }
        if (!world.ready || !WEIRT_OK(rank, weir_table_create(world.c.device, bytes, parts, 2, &opts, &table))) {
            return;
        }
        char *memory = static_cast<char *>(weir_memory_host_pointer(world.memory));
        for (uint64_t i = 0; i < offset + 2 * rows * pitch + 5; i++) {
            memory[i] = World::byte_of(i, i / 65536);
        }
        std::vector<int32_t> ids(count);
        for (int32_t &id : ids) {
            id = static_cast<int32_t>(random() % (2 * rows + 4)) - 2;
        }
        for (const weir_table_order order : { WEIR_TABLE_ORDER_GROUPED, WEIR_TABLE_ORDER_UNIQUE }) {
            const uint64_t shift = 1 + order; // of out
            weir_table_call_opts call = WEIR_OPTS(weir_table_call_opts);
            call.order = order;
            std::memcpy(world.host(), ids.data(), count * 4);
            std::memset(world.host() + OUT_AT, 0x5a, MOST * ROW);
            WEIRT_OK(rank, weir_table_gather(table, world.device(), WEIR_IDS_I32, count,
                                             world.device() + OUT_AT + shift, &call, world.stream));
            world.wait();
            std::vector<char> wanted(MOST * ROW, 0x5a);
            for (uint64_t i = 0; i < count; i++) {
                const auto id = static_cast<uint64_t>(ids[i]);
                if (ids[i] >= 0 && id < 2 * rows) {
                    const uint64_t part = split == WEIR_SPLIT_RANGES ? id / rows : id % 2;
                    const uint64_t index = split == WEIR_SPLIT_RANGES ? id % rows : id / 2;
                    std::memcpy(&wanted[shift + i * bytes], memory + parts[part].offset + index * pitch, bytes);
                }
            }
            WEIRT_EXPECT(rank, std::memcmp(world.host() + OUT_AT, wanted.data(), wanted.size()) == 0);
        }
        weir_table_destroy(table);
    }
}

void all_sizes(weirt_rank *rank)
{
    sizes(rank, WEIR_SPLIT_RANGES);
    sizes(rank, WEIR_SPLIT_ROUND_ROBIN);
}

TEST_P(TableOrder, RowsOfAnySizeAndAlignment) { run_alone(all_sizes); }

// Each of several equal ids goes to its own place, in two planes. A negative place takes nothing, even for the first.
void places(weirt_rank *rank)
{
    World world(rank, WEIR_SPLIT_RANGES, MOST);
    const std::vector<int64_t> ids = { 7, 7, 9, 7, -1, 9, 5000, 7 };
    const std::vector<int64_t> out_ids = { -3, 6, 0, 1, 2, 4, 5, 3 };
    weir_table_call_opts opts = WEIR_OPTS(weir_table_call_opts);
    if (!world.ready) {
        return;
    }
    world.put(ids);
    std::memcpy(world.host() + COUNT_AT, out_ids.data(), out_ids.size() * 8);
    opts.order = WEIR_TABLE_ORDER_UNIQUE;
    opts.out_ids = world.device() + COUNT_AT;
    opts.bytes = 20;
    opts.planes = 2;
    opts.plane = 50;
    opts.out_plane = 30;
    opts.pitch = ROW;
    opts.zero_skipped = true;
    WEIRT_OK(rank, weir_table_gather(world.table, world.device(), WEIR_IDS_I64, ids.size(), world.device() + OUT_AT,
                                     &opts, world.stream));
    world.wait();
    WEIRT_EXPECT(rank, world.placed() == 5); // the place -3, 7, 9, -1 and 5000
    uint64_t wrong = 0;
    for (uint64_t place = 0; place < 8; place++) {
        const auto at = std::find(out_ids.begin(), out_ids.end(), static_cast<int64_t>(place));
        const int64_t id = at == out_ids.end() ? 5000 : ids[static_cast<uint64_t>(at - out_ids.begin())];
        for (uint64_t i = 0; i < ROW; i++) {
            const bool moved = i % 30 < 20 && i < 60 && id != 5000;
            const char value = world.has(id) ? World::byte_of(static_cast<uint64_t>(id), i / 30 * 50 + i % 30) : '\0';
            wrong += world.host()[OUT_AT + place * ROW + i] != (moved ? value : 0x5a);
        }
    }
    WEIRT_EXPECT(rank, wrong == 0);
}

TEST_P(TableOrder, EqualIdsGoToTheirPlaces) { run_alone(places); }

// Faults have the position in the caller's ids.
void faults(weirt_rank *rank)
{
    World world(rank, WEIR_SPLIT_RANGES, MOST);
    weir_table_faults faults;
    std::vector<int64_t> ids = { 399, 2, 1, 0, 5000, 3, -2 };
    if (!world.ready) {
        return;
    }
    world.put(ids);
    WEIRT_OK(rank, world.gather(ids.size(), WEIR_TABLE_ORDER_GROUPED));
    world.wait();
    weir_table_get_faults(world.table, &faults);
    WEIRT_EXPECT(rank, faults.count == 1 && faults.id == 5000 && faults.position == 4);
    WEIRT_OK(rank, world.gather(ids.size(), WEIR_TABLE_ORDER_UNIQUE));
    world.wait();
    weir_table_get_faults(world.table, &faults);
    WEIRT_EXPECT(rank, faults.count == 2 && faults.position == 4);
}

TEST_P(TableOrder, FaultsHaveTheirPosition) { run_alone(faults); }

bool pays(const weir_table *table, uint64_t count) { return weiri_table_grouping_pays(table, count, ROW, 1, 0); }

// AUTO groups from the number of ids that info names.
void chooses(weirt_rank *rank)
{
    World world(rank, WEIR_SPLIT_RANGES, 20000);
    World none(rank, WEIR_SPLIT_RANGES, 0);
    weir_table_info info;
    if (!world.ready || !none.ready) {
        return;
    }
    weir_table_get_info(none.table, &info);
    WEIRT_EXPECT(rank, info.grouped_from == 0 && std::string(info.reason) == "opts.order_ids is 0");
    WEIRT_STATUS(rank, WEIR_ERR_LIMIT, none.gather(1, WEIR_TABLE_ORDER_GROUPED));
    WEIRT_TEXT(rank, "1 ids to reorder, but opts.order_ids of create was 0");
    WEIRT_STATUS(rank, WEIR_ERR_INVALID, none.gather(1, static_cast<weir_table_order>(4)));
    WEIRT_TEXT(rank, "unknown order 4");
    weir_table_get_info(world.table, &info);
    // 1,466 pages at most; each id misses in the given order, for 1 us.
    WEIRT_EXPECT(rank, info.order_ids == 20000 && info.group_bytes == 65536);
    WEIRT_EXPECT(rank, info.grouped_from > 200 && info.grouped_from < 400);
    WEIRT_EXPECT(rank, pays(world.table, info.grouped_from) && !pays(world.table, info.grouped_from * 3 / 4));
    WEIRT_EXPECT(rank, !pays(world.table, 20) && pays(world.table, 20000) && !pays(world.table, 20001));
    WEIRT_EXPECT(rank, !weiri_table_grouping_pays(world.table, 1024, 10 << 20, 1, 0)); // the link is the limit
    const std::vector<int64_t> ids(MOST, 5);
    world.put(ids);
    WEIRT_OK(rank, world.gather(MOST, WEIR_TABLE_ORDER_AUTO));
    world.wait();
    WEIRT_EXPECT(rank, world.wrong(ids, MOST) == 0 && world.placed() == MOST);
    WEIRT_EXPECT(rank, world.ordered(ids, MOST, WEIR_SPLIT_RANGES));
    world.put(ids);
    WEIRT_OK(rank, world.gather(20, WEIR_TABLE_ORDER_AUTO));
    world.wait();
    WEIRT_EXPECT(rank, world.wrong(ids, 20) == 0 && world.placed() == MOST); // the call before
}

TEST_P(TableOrder, AutoGroupsWhereItPays) { run_alone(chooses); }

// What info says of a table of these parts.
weir_table_info info_of(const World &world, uint64_t row_bytes, const weir_table_part *parts, uint32_t count,
                        uint64_t order_ids, uint64_t reach_bytes)
{
    weir_table *table = nullptr;
    weir_table_info info = {};
    weir_table_opts opts = WEIR_OPTS(weir_table_opts);
    opts.order_ids = order_ids;
    opts.reach_bytes = reach_bytes;
    WEIRT_OK(world.rank, weir_table_create(world.c.device, row_bytes, parts, count, &opts, &table));
    weir_table_get_info(table, &info);
    weir_table_destroy(table);
    return info;
}

// The reason names what keeps AUTO from groups.
void reasons(weirt_rank *rank)
{
    World world(rank, WEIR_SPLIT_RANGES, 0);
    weir_table_part part = {};
    if (!world.ready) {
        return;
    }
    part.memory = world.memory;
    part.count = 1300000; // 130 MB
    const weir_table_info enough = info_of(world, 100, &part, 1, 100000, 1 << 20);
    WEIRT_EXPECT(rank, enough.grouped_from > 1024 && enough.grouped_from < 10000);
    WEIRT_EXPECT(rank, std::string(enough.reason) ==
                           "from there on a miss for each page and the pass cost less than a miss for each row");
    const weir_table_info few = info_of(world, 100, &part, 1, 1000, 1 << 20);
    WEIRT_EXPECT(rank, few.grouped_from == 0 && std::string(few.reason) == "groups pay from about " +
                                                                               std::to_string(enough.grouped_from) +
                                                                               " ids on, but opts.order_ids is 1000");
    // The number is right to within a quarter, but that of order_ids is right.
    const weir_table_info last = info_of(world, 100, &part, 1, enough.grouped_from - 1, 1 << 20);
    WEIRT_EXPECT(rank, last.grouped_from == 0 || last.grouped_from == enough.grouped_from - 1);
    const weir_table_info small = info_of(world, 100, &part, 1, 100000, 1 << 28);
    WEIRT_EXPECT(rank, small.grouped_from == 0 &&
                           std::string(small.reason) == "the span is within reach of address translation");
    part.count = 130; // rows of 1 MB
    const weir_table_info wide = info_of(world, 1000000, &part, 1, 100000, 1 << 20);
    WEIRT_EXPECT(rank, wide.grouped_from == 0 &&
                           std::string(wide.reason) ==
                               "misses of address translation take less time than the link or the pass");
}

TEST_P(TableOrder, ReasonsAreTrue) { run_alone(reasons); }

// A pointer may lead to memory of the device. A table that has rows in host memory as well gets the few blocks of host
// memory, and AUTO looks at its rows there.
void places_of_parts(weirt_rank *rank)
{
    World world(rank, WEIR_SPLIT_RANGES, 0);
    void *device = nullptr;
    if (!world.ready || !WEIRT_OK(rank, weir_device_allocate(world.c.device, 1 << 20, &device))) {
        return;
    }
    const uint32_t all = 2 * world.c.device->info.multiprocessors;
    weir_table_part parts[2] = {};
    parts[0].rows = device;
    parts[0].count = 1000;
    parts[1].rows = weir_memory_pointer(world.memory); // host memory by a pointer
    parts[1].count = 1000000;
    const weir_table_info on_device = info_of(world, 128, parts, 1, 100000, 1);
    WEIRT_EXPECT(rank, on_device.blocks == all && on_device.grouped_from == 0);
    WEIRT_EXPECT(rank, std::string(on_device.reason) == "no rows lie in host memory");
    const weir_table_info on_host = info_of(world, 128, parts + 1, 1, 100000, 1 << 20);
    WEIRT_EXPECT(rank, on_host.blocks == 8 && on_host.grouped_from != 0);
    const weir_table_info mixed = info_of(world, 128, parts, 2, 100000, 1 << 20);
    WEIRT_EXPECT(rank, mixed.blocks == 8 && mixed.grouped_from >= on_host.grouped_from);
    // The span is that of the rows in host memory.
    parts[1].count = 8000;
    const weir_table_info little = info_of(world, 128, parts, 2, 100000, 1 << 20);
    WEIRT_EXPECT(rank, little.span_bytes > 1 << 20 && little.blocks == 8 && little.grouped_from == 0);
    WEIRT_EXPECT(rank, std::string(little.reason) == "the span is within reach of address translation");
    parts[1].count = 0; // no row of the host
    WEIRT_EXPECT(rank, info_of(world, 128, parts, 2, 100000, 1).blocks == all);
    weir_device_free(world.c.device, device);
}

TEST_P(TableOrder, PlacesOfPartsDecide) { run_alone(places_of_parts); }

// The blocks of a table in host memory are the fewest that fill the link, by the bytes of a row and where rows begin.
void blocks(weirt_rank *rank)
{
    World world(rank, WEIR_SPLIT_RANGES, 0);
    const struct {
        uint64_t row_bytes;
        uint64_t offset;
        uint64_t pitch;
        uint32_t blocks;
    } rows[] = { { 1, 0, 0, 8 },     { 128, 0, 0, 8 },  { 256, 0, 0, 8 },     { 257, 0, 0, 5 },
                 { 384, 0, 0, 4 },   { 512, 0, 0, 4 },  { 512, 64, 0, 5 },    { 512, 0, 640, 4 },
                 { 512, 0, 516, 5 }, { 640, 0, 0, 3 },  { 1024, 0, 0, 3 },    { 1024, 4, 0, 5 },
                 { 1204, 0, 0, 5 },  { 4096, 0, 0, 3 }, { 4096, 0, 4100, 5 }, { 4096, 128, 4224, 3 } };
    for (const auto &row : rows) {
        weir_table_part part = {};
        part.memory = world.memory;
        part.offset = row.offset;
        part.pitch = row.pitch;
        part.count = 9;
        if (!world.ready || !WEIRT_EXPECT(rank, info_of(world, row.row_bytes, &part, 1, 0, 0).blocks == row.blocks)) {
            return;
        }
    }
    weir_table *table = nullptr;
    weir_table_info info;
    weir_table_part part = {};
    weir_table_opts opts = WEIR_OPTS(weir_table_opts);
    part.memory = world.memory;
    part.count = 9;
    opts.blocks = 7;
    WEIRT_OK(rank, weir_table_create(world.c.device, 100, &part, 1, &opts, &table));
    weir_table_get_info(table, &info);
    WEIRT_EXPECT(rank, info.blocks == 7 && info.threads == 1024);
    weir_table_destroy(table);
}

TEST_P(TableOrder, BlocksFollowTheRow) { run_alone(blocks); }

// A gather of planes reads from all of them: 16 planes of 8 MiB are a span of 128 MiB.
void planes(weirt_rank *rank)
{
    World world(rank, WEIR_SPLIT_RANGES, 0);
    weir_table *table = nullptr;
    weir_table_opts opts = WEIR_OPTS(weir_table_opts);
    weir_table_part part = {};
    constexpr uint64_t plane = 8 << 20;
    opts.order_ids = 20000;
    opts.reach_bytes = 16 << 20;
    part.memory = world.memory;
    part.count = plane / 512;
    if (world.ready && WEIRT_OK(rank, weir_table_create(world.c.device, 512, &part, 1, &opts, &table))) {
        weir_table_info info;
        weir_table_get_info(table, &info);
        WEIRT_EXPECT(rank, info.grouped_from == 0);
        WEIRT_EXPECT(rank, !weiri_table_grouping_pays(table, 16384, 512, 1, 0));
        WEIRT_EXPECT(rank, !weiri_table_grouping_pays(table, 16384, 1024, 2, plane));
        WEIRT_EXPECT(rank, weiri_table_grouping_pays(table, 16384, uint64_t{ 16 } * 512, 16, plane));
        WEIRT_EXPECT(rank, weiri_table_grouping_pays(table, 16384, uint64_t{ 16 } * 512, 16, 2 * plane));
        WEIRT_EXPECT(rank, !weiri_table_grouping_pays(table, 16384, uint64_t{ 16 } * 32, 16, 32)); // inside the row
    }
    weir_table_destroy(table);
}

TEST_P(TableOrder, PlanesAreASpan) { run_alone(planes); }

// A graph that reorders is replayed with other ids.
void replay(weirt_rank *rank, weir_table_order order)
{
    World world(rank, WEIR_SPLIT_RANGES, MOST);
    std::mt19937_64 random(33);
    void *graph = nullptr;
    if (world.ready && WEIRT_OK(rank, weir_graph_begin(world.c.device, world.stream)) &&
        WEIRT_OK(rank, world.gather(300, order)) &&
        WEIRT_OK(rank, weir_graph_end(world.c.device, world.stream, &graph))) {
        for (int turn = 0; turn < 4; turn++) {
            const std::vector<int64_t> ids = random_ids(300, random);
            world.put(ids);
            WEIRT_OK(rank, weir_graph_launch(world.c.device, graph, world.stream));
            world.wait();
            WEIRT_EXPECT(rank, world.wrong(ids, 300) == 0 && world.ordered(ids, 300, WEIR_SPLIT_RANGES));
        }
    }
    weir_graph_destroy(world.c.device, graph);
}

void replays(weirt_rank *rank)
{
    replay(rank, WEIR_TABLE_ORDER_GROUPED);
    replay(rank, WEIR_TABLE_ORDER_UNIQUE);
}

TEST_P(TableOrder, GraphsAreReplayed) { run_alone(replays); }

} // namespace
