// Host tables and strided layouts move runs by the same code: a table's rows and a layout of blocks at their places are
// the same bytes.
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

WEIRT_STAGE_SUITE(TableLayout);

constexpr uint64_t ROWS = 300;
constexpr uint64_t PITCH = 141;
constexpr uint64_t COUNT = 200; // rows of a call
constexpr uint64_t TABLE_BYTES = ROWS * PITCH;

struct World {
    weirt_rank *rank;
    weirt_comm c = {};
    weir_memory *memory = nullptr; // two tables, ids, two times the packed rows
    void *stream = nullptr;
    bool ready = false;

    explicit World(weirt_rank *rank_) : rank(rank_)
    {
        weir_memory_opts host = WEIR_OPTS(weir_memory_opts);
        host.kind = WEIR_MEMORY_HOST;
        ready = weirt_comm_open(rank, 0, &c) &&
                WEIRT_OK(rank, weir_memory_allocate(c.comm, out_at(2), &host, &memory)) &&
                WEIRT_OK(rank, weir_stream_create(c.device, &stream));
    }
    ~World()
    {
        if (stream != nullptr) {
            weir_stream_destroy(c.device, stream);
        }
        weir_memory_destroy(memory);
        weirt_comm_close(&c);
    }
    World(const World &) = delete;
    World &operator=(const World &) = delete;
    static uint64_t ids_at() { return (2 * TABLE_BYTES + 15) / 16 * 16; }
    static uint64_t out_at(uint64_t which) { return ids_at() + 8 * COUNT + which * COUNT * PITCH; }
    char *host() const { return static_cast<char *>(weir_memory_host_pointer(memory)); }
    char *device() const { return static_cast<char *>(weir_memory_pointer(memory)); }
    bool wait() const { return WEIRT_OK(rank, weir_stream_wait(c.device, stream, 0)); }
    // A layout of the rows of the ids, which the caller destroys.
    weir_layout *layout(const std::vector<int64_t> &ids, uint64_t row_bytes) const
    {
        std::vector<int64_t> places;
        weir_layout *byte = nullptr;
        weir_layout *made = nullptr;
        for (const int64_t id : ids) {
            places.push_back(id * static_cast<int64_t>(PITCH));
        }
        WEIRT_OK(rank, weir_layout_create_bytes(1, &byte));
        WEIRT_OK(rank, weir_layout_create_hindexed_block(ids.size(), row_bytes, places.data(), byte, &made));
        WEIRT_OK(rank, weir_layout_commit(made, c.device));
        weir_layout_destroy(byte);
        return made;
    }
    weir_table *table(uint64_t row_bytes) const
    {
        weir_table_part part = {};
        weir_table *made = nullptr;
        part.memory = memory;
        part.count = ROWS;
        part.pitch = PITCH;
        WEIRT_OK(rank, weir_table_create(c.device, row_bytes, &part, 1, nullptr, &made));
        return made;
    }
    void fill() const
    {
        for (uint64_t i = 0; i < TABLE_BYTES; i++) {
            host()[i] = host()[TABLE_BYTES + i] = static_cast<char>(i * 131 + i / 251 + 1);
        }
    }
};

// Gather and pack, also of equal ids; scatter and unpack of distinct ones, into two tables.
void same(weirt_rank *rank)
{
    World world(rank);
    std::mt19937_64 random(41);
    for (const uint64_t row_bytes : { 1, 15, 16, 33, 100, 128, 140, 141 }) {
        std::vector<int64_t> ids;
        std::set<int64_t> distinct;
        if (!world.ready) {
            return;
        }
        while (ids.size() < COUNT) {
            ids.push_back(static_cast<int64_t>(random() % ROWS));
            distinct.insert(ids.back());
        }
        world.fill();
        std::memset(world.host() + World::out_at(0), 0x5a, 2 * COUNT * PITCH);
        std::memcpy(world.host() + World::ids_at(), ids.data(), 8 * COUNT);
        weir_table *table = world.table(row_bytes);
        weir_layout *layout = world.layout(ids, row_bytes);
        char *at = world.device();
        WEIRT_OK(rank, weir_table_gather(table, at + World::ids_at(), WEIR_IDS_I64, COUNT, at + World::out_at(0),
                                         nullptr, world.stream));
        WEIRT_OK(rank, weir_layout_pack(world.c.device, layout, 1, at, at + World::out_at(1), nullptr, world.stream));
        world.wait();
        weir_layout_destroy(layout);
        const char *host = world.host();
        WEIRT_EXPECT(rank, std::memcmp(host + World::out_at(0), host + World::out_at(1), COUNT * row_bytes) == 0);
        for (uint64_t i = 0; i < COUNT; i++) {
            WEIRT_EXPECT(rank, std::memcmp(host + World::out_at(0) + i * row_bytes,
                                           host + static_cast<uint64_t>(ids[i]) * PITCH, row_bytes) == 0);
        }
        ids.assign(distinct.begin(), distinct.end());
        for (uint64_t i = 0; i < ids.size() * row_bytes; i++) {
            world.host()[World::out_at(0) + i] = static_cast<char>(i * 7 + row_bytes);
        }
        std::memcpy(world.host() + World::ids_at(), ids.data(), 8 * ids.size());
        layout = world.layout(ids, row_bytes);
        WEIRT_OK(rank, weir_table_scatter(table, at + World::ids_at(), WEIR_IDS_I64, ids.size(), at + World::out_at(0),
                                          nullptr, world.stream));
        WEIRT_OK(rank, weir_layout_unpack(world.c.device, layout, 1, at + TABLE_BYTES, at + World::out_at(0), nullptr,
                                          world.stream));
        world.wait();
        WEIRT_EXPECT(rank, std::memcmp(host, host + TABLE_BYTES, TABLE_BYTES) == 0);
        const auto last = static_cast<uint64_t>(ids.back());
        WEIRT_EXPECT(rank, std::memcmp(host + last * PITCH, host + World::out_at(0) + (ids.size() - 1) * row_bytes,
                                       row_bytes) == 0);
        weir_layout_destroy(layout);
        weir_table_destroy(table);
    }
}

TEST_P(TableLayout, RowsAreBlocksOfALayout) { run(1, same); }

} // namespace
