// Layouts in memory of a peer: each rank packs into it, unpacks there, and copies from there.
#include <string>
#include <vector>

#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

WEIRT_STAGE_SUITE(LayoutPeer);

constexpr uint64_t BYTES = 8192; // of the items' memory and of the packed memory
constexpr uint64_t AT = 101;     // where items and packed bytes begin
constexpr uint64_t COUNT = 2;    // items

// A layout, and where the packed bytes of COUNT items lie.
struct Described {
    weir_layout *layout = nullptr;
    std::vector<uint64_t> places;
};

// Runs of `run` bytes at these places.
Described describe(weirt_rank *rank, uint64_t run, const std::vector<int64_t> &starts)
{
    Described d;
    weir_layout *item = nullptr;
    weir_layout_info info = {};
    WEIRT_OK(rank, weir_layout_create_bytes(run, &item));
    WEIRT_OK(rank, weir_layout_create_hindexed_block(starts.size(), 1, starts.data(), item, &d.layout));
    weir_layout_destroy(item);
    weir_layout_get_info(d.layout, &info);
    for (uint64_t i = 0; i < COUNT * starts.size(); i++) {
        const int64_t start = starts[i % starts.size()] + static_cast<int64_t>(i / starts.size()) * info.extent;
        for (uint64_t k = 0; k < run; k++) {
            d.places.push_back(static_cast<uint64_t>(start) + k);
        }
    }
    return d;
}

// Byte i of the rank's memory in round `round`.
char byte_of(uint32_t rank, uint64_t i, uint32_t round)
{
    return static_cast<char>(i * 131 + i / 251 + rank * 61 + round);
}

enum Side { ITEMS, PACKED };

struct World {
    weirt_rank *rank;
    weirt_comm c = {};
    weir_memory *mine[2] = {}; // by Side
    weir_memory *peers[2] = {};
    void *stream = nullptr;
    bool ready = false;

    explicit World(weirt_rank *rank_) : rank(rank_)
    {
        const uint32_t peer = 1 - rank->rank;
        ready = weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_stream_create(c.device, &stream));
        for (const Side side : { ITEMS, PACKED }) {
            ready = ready && WEIRT_OK(rank, weir_memory_allocate(c.comm, BYTES, nullptr, &mine[side])) &&
                    WEIRT_OK(rank, weir_memory_send(c.comm, mine[side], peer, 1)) &&
                    weirt_receive(rank, c.comm, peer, 1, &peers[side]);
        }
    }
    ~World()
    {
        weir_memory_destroy(peers[PACKED]);
        weir_memory_destroy(peers[ITEMS]);
        (void)weirt_barrier(rank); // the memory that a peer has mapped is still there
        weir_memory_destroy(mine[PACKED]);
        weir_memory_destroy(mine[ITEMS]);
        if (stream != nullptr) {
            weir_stream_destroy(c.device, stream);
        }
        weirt_comm_close(&c);
    }
    World(const World &) = delete;
    World &operator=(const World &) = delete;
    static char *at(weir_memory *memory) { return static_cast<char *>(weir_memory_pointer(memory)) + AT; }
    std::vector<char> read(Side side) const
    {
        std::vector<char> bytes(BYTES);
        WEIRT_OK(rank, weir_device_copy(c.device, bytes.data(), weir_memory_pointer(mine[side]), BYTES));
        return bytes;
    }
    // Sets both memories of this rank to the bytes of a round; both ranks have done so afterwards.
    bool fill(uint32_t round) const
    {
        bool good = true;
        for (const Side side : { ITEMS, PACKED }) {
            std::vector<char> bytes(BYTES);
            for (uint64_t i = 0; i < BYTES; i++) {
                bytes[i] = byte_of(rank->rank, i, round + static_cast<uint32_t>(side));
            }
            good = good &&
                   WEIRT_OK(rank, weir_device_copy(c.device, weir_memory_pointer(mine[side]), bytes.data(), BYTES));
        }
        return weirt_barrier(rank) && good;
    }
    // Waits for this rank's call and the peer's.
    bool finish(weir_status status) const
    {
        const bool good = WEIRT_OK(rank, status) && WEIRT_OK(rank, weir_stream_wait(c.device, stream, 0));
        return weirt_barrier(rank) && good;
    }
};

// Rounds 0, 10 and 20 have other bytes.
void move(const World &world, const Described &d)
{
    weirt_rank *rank = world.rank;
    const uint32_t me = rank->rank;
    const uint32_t peer = 1 - me;
    weir_layout *dense = nullptr;
    weir_layout_opts opts = WEIR_OPTS(weir_layout_opts);
    opts.check_pointers = true;
    WEIRT_OK(rank, weir_layout_create_bytes(d.places.size(), &dense));
    // The peer's items come packed to this rank's memory.
    std::vector<char> wanted(BYTES);
    bool good =
        world.fill(0) && world.finish(weir_layout_pack(world.c.device, d.layout, COUNT, World::at(world.mine[ITEMS]),
                                                       World::at(world.peers[PACKED]), &opts, world.stream));
    for (uint64_t i = 0; i < BYTES && good; i++) {
        const bool moved = i >= AT && i - AT < d.places.size();
        wanted[i] = moved ? byte_of(peer, AT + d.places[i - AT], ITEMS) : byte_of(me, i, PACKED);
    }
    WEIRT_EXPECT(rank, good && world.read(PACKED) == wanted);
    // The peer's packed bytes go to this rank's items.
    good = weirt_barrier(rank) && world.fill(10) &&
           world.finish(weir_layout_unpack(world.c.device, d.layout, COUNT, World::at(world.peers[ITEMS]),
                                           World::at(world.mine[PACKED]), &opts, world.stream));
    for (uint64_t i = 0; i < BYTES; i++) {
        wanted[i] = byte_of(me, i, 10 + ITEMS);
    }
    for (uint64_t i = 0; i < d.places.size(); i++) {
        wanted[AT + d.places[i]] = byte_of(peer, AT + i, 10 + PACKED);
    }
    WEIRT_EXPECT(rank, good && world.read(ITEMS) == wanted);
    // This rank copies the peer's items to the packed bytes.
    good = weirt_barrier(rank) && world.fill(20) &&
           world.finish(weir_layout_copy(world.c.device, dense, 1, World::at(world.mine[PACKED]), d.layout, COUNT,
                                         World::at(world.peers[ITEMS]), &opts, world.stream));
    for (uint64_t i = 0; i < BYTES; i++) {
        const bool moved = i >= AT && i - AT < d.places.size();
        wanted[i] = moved ? byte_of(peer, AT + d.places[i - AT], 20 + ITEMS) : byte_of(me, i, 20 + PACKED);
    }
    WEIRT_EXPECT(rank, good && world.read(PACKED) == wanted);
    weir_layout_destroy(dense);
    (void)weirt_barrier(rank);
}

void all(weirt_rank *rank)
{
    World world(rank);
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < 40; i++) {
        rows.push_back(i * 64);
    }
    const std::vector<int64_t> pieces = { 300, 0, 64, 47, 1000, 701, 500 };
    for (const uint64_t run : { 1, 8, 13, 16 }) {
        for (const std::vector<int64_t> &starts : { rows, pieces }) {
            Described d = describe(rank, run, starts);
            weir_layout_info info = {};
            weir_layout_get_info(d.layout, &info);
            WEIRT_EXPECT(rank, (info.pieces == 0) == (starts == rows));
            if (world.ready && WEIRT_OK(rank, weir_layout_commit(d.layout, world.c.device))) {
                move(world, d);
            }
            weir_layout_destroy(d.layout);
        }
    }
}

TEST_P(LayoutPeer, PacksUnpacksAndCopies) { run(2, all); }

} // namespace
