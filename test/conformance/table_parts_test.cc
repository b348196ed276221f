// Host tables whose rows lie in device memory: in this rank's, in a peer's that is mapped here, and in both beside host
// memory.
#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

WEIRT_STAGE_SUITE(TableParts);

constexpr uint64_t ROW = 100;
constexpr uint64_t PITCH = 108;
constexpr uint64_t COUNT = 20;           // rows of each part
constexpr uint64_t PART = COUNT * PITCH; // a memory has a part for this rank, and one behind it for a peer
constexpr uint64_t MOST = 3 * COUNT;
constexpr uint64_t OUT_AT = 8 * MOST;

enum Place { HOST, OWN, PEER };

// A rank's memories of rows, and that of the next rank.
struct World {
    weirt_rank *rank;
    weirt_comm c = {};
    weir_memory *memories[3] = {}; // by Place
    weir_memory *calls = nullptr;  // ids and rows, which the host reaches, too
    void *stream = nullptr;
    bool ready = false;

    explicit World(weirt_rank *rank_) : rank(rank_)
    {
        weir_memory_opts host = WEIR_OPTS(weir_memory_opts);
        weir_memory_opts device = WEIR_OPTS(weir_memory_opts);
        host.kind = WEIR_MEMORY_HOST;
        device.kind = WEIR_MEMORY_DEVICE;
        const uint32_t next = (rank->rank + 1) % rank->size;
        ready = weirt_comm_open(rank, 0, &c) &&
                WEIRT_OK(rank, weir_memory_allocate(c.comm, 2 * PART, &host, &memories[HOST])) &&
                WEIRT_OK(rank, weir_memory_allocate(c.comm, 2 * PART, &device, &memories[OWN])) &&
                WEIRT_OK(rank, weir_memory_allocate(c.comm, OUT_AT + MOST * ROW, &host, &calls)) &&
                WEIRT_OK(rank, weir_stream_create(c.device, &stream)) &&
                WEIRT_OK(rank, weir_memory_send(c.comm, memories[OWN], before(), 1)) &&
                weirt_receive(rank, c.comm, next, 1, &memories[PEER]);
    }
    ~World()
    {
        if (stream != nullptr) {
            weir_stream_destroy(c.device, stream);
        }
        weir_memory_destroy(memories[PEER]);
        (void)weirt_barrier(rank); // the memory that a peer has mapped is still there
        weir_memory_destroy(calls);
        weir_memory_destroy(memories[OWN]);
        weir_memory_destroy(memories[HOST]);
        weirt_comm_close(&c);
    }
    World(const World &) = delete;
    World &operator=(const World &) = delete;
    uint32_t before() const { return (rank->rank + rank->size - 1) % rank->size; }
    uint32_t after() const { return (rank->rank + 1) % rank->size; }
    char *host() const { return static_cast<char *>(weir_memory_host_pointer(calls)); }
    char *device() const { return static_cast<char *>(weir_memory_pointer(calls)); }
};

// Byte i of a memory as it was, and byte i of row `id` that rank `rank` scatters.
char old_byte(uint32_t rank, Place place, uint64_t i)
{
    return static_cast<char>(i * 131 + i / 251 + rank * 61 + static_cast<uint64_t>(place) * 17 + 1);
}

char new_byte(uint32_t rank, uint64_t id, uint64_t i) { return static_cast<char>(id * 29 + i * 7 + rank * 83 + 3); }

struct Mix {
    weir_table_split split;
    std::vector<Place> places; // of the parts
};

uint64_t part_of(const Mix &mix, uint64_t id)
{
    return mix.split == WEIR_SPLIT_RANGES ? id / COUNT : id % mix.places.size();
}

uint64_t index_of(const Mix &mix, uint64_t id)
{
    return mix.split == WEIR_SPLIT_RANGES ? id % COUNT : id / mix.places.size();
}

// Puts the rows that `writer` scatters to its parts at `place` into `bytes`, at offset `at`.
void put_rows(const Mix &mix, uint32_t writer, Place place, uint64_t at, std::vector<char> &bytes)
{
    for (uint64_t id = 0; id < mix.places.size() * COUNT; id++) {
        for (uint64_t i = 0; i < ROW && mix.places[part_of(mix, id)] == place; i++) {
            bytes[at + index_of(mix, id) * PITCH + i] = new_byte(writer, id, i);
        }
    }
}

bool fill(const World &world)
{
    for (const Place place : { HOST, OWN }) {
        std::vector<char> bytes(2 * PART);
        for (uint64_t i = 0; i < bytes.size(); i++) {
            bytes[i] = old_byte(world.rank->rank, place, i);
        }
        if (!WEIRT_OK(world.rank, weir_device_copy(world.c.device, weir_memory_pointer(world.memories[place]),
                                                   bytes.data(), bytes.size()))) {
            return false;
        }
    }
    return true;
}

// Whether this rank's memory at `place` has the rows that were scattered to it, and nothing else has changed.
bool has_scattered(const World &world, const Mix &mix, Place place)
{
    std::vector<char> wanted(2 * PART);
    std::vector<char> bytes(2 * PART);
    for (uint64_t i = 0; i < wanted.size(); i++) {
        wanted[i] = old_byte(world.rank->rank, place, i);
    }
    put_rows(mix, world.rank->rank, place, 0, wanted);
    if (place == OWN) {
        put_rows(mix, world.before(), PEER, PART, wanted);
    }
    return WEIRT_OK(world.rank, weir_device_copy(world.c.device, bytes.data(),
                                                 weir_memory_pointer(world.memories[place]), bytes.size())) &&
           bytes == wanted;
}

// Gathers all rows, and scatters others to them.
void move(const World &world, const Mix &mix, weir_table *table)
{
    weirt_rank *rank = world.rank;
    const uint64_t rows = mix.places.size() * COUNT;
    std::vector<int64_t> ids(rows);
    std::mt19937_64 random(rows);
    for (uint64_t i = 0; i < rows; i++) {
        ids[i] = static_cast<int64_t>(i);
    }
    std::shuffle(ids.begin(), ids.end(), random);
    std::memcpy(world.host(), ids.data(), rows * 8);
    std::memset(world.host() + OUT_AT, 0x5a, MOST * ROW);
    WEIRT_OK(rank, weir_table_gather(table, world.device(), WEIR_IDS_I64, rows, world.device() + OUT_AT, nullptr,
                                     world.stream));
    WEIRT_OK(rank, weir_stream_wait(world.c.device, world.stream, 0));
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < MOST * ROW; i++) {
        char wanted = 0x5a;
        if (i < rows * ROW) {
            const auto id = static_cast<uint64_t>(ids[i / ROW]);
            const Place place = mix.places[part_of(mix, id)];
            const uint64_t at = index_of(mix, id) * PITCH + i % ROW;
            wanted = place == PEER ? old_byte(world.after(), OWN, PART + at) : old_byte(rank->rank, place, at);
        }
        wrong += world.host()[OUT_AT + i] != wanted;
    }
    WEIRT_EXPECT(rank, wrong == 0);
    (void)weirt_barrier(rank); // the rank before this one has gathered from this one's memory
    for (uint64_t i = 0; i < rows * ROW; i++) {
        world.host()[OUT_AT + i] = new_byte(rank->rank, static_cast<uint64_t>(ids[i / ROW]), i % ROW);
    }
    WEIRT_OK(rank, weir_table_scatter(table, world.device(), WEIR_IDS_I64, rows, world.device() + OUT_AT, nullptr,
                                      world.stream));
    WEIRT_OK(rank, weir_stream_wait(world.c.device, world.stream, 0));
    WEIRT_OK(rank, weir_table_status(table));
}

void mixes(weirt_rank *rank)
{
    const std::vector<Place> lists[] = { { OWN }, { PEER }, { OWN, PEER }, { HOST, OWN, PEER }, { PEER, HOST, OWN } };
    World world(rank);
    for (const weir_table_split split : { WEIR_SPLIT_RANGES, WEIR_SPLIT_ROUND_ROBIN }) {
        for (const std::vector<Place> &places : lists) {
            const Mix mix = { split, places };
            weir_table *table = nullptr;
            weir_table_part parts[3] = {};
            weir_table_opts opts = WEIR_OPTS(weir_table_opts);
            opts.split = split;
            for (size_t i = 0; i < places.size(); i++) {
                parts[i].memory = world.memories[places[i]];
                parts[i].offset = places[i] == PEER ? PART : 0;
                parts[i].count = COUNT;
                parts[i].pitch = PITCH;
            }
            if (!world.ready || !fill(world) || !weirt_barrier(rank)) {
                return;
            }
            if (WEIRT_OK(rank, weir_table_create(world.c.device, ROW, parts, static_cast<uint32_t>(places.size()),
                                                 &opts, &table))) {
                move(world, mix, table);
            }
            (void)weirt_barrier(rank);
            WEIRT_EXPECT(rank, has_scattered(world, mix, HOST) && has_scattered(world, mix, OWN));
            weir_table_destroy(table);
            (void)weirt_barrier(rank);
        }
    }
}

TEST_P(TableParts, OfDevicesPeersAndHosts) { run(3, mixes); }

} // namespace
