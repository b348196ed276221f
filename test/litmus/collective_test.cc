// Promises of collectives in registered memory: blocks meet by their calls alone; docs/memory-ordering.md.
#include "weir/device/collective.h"

#include "test/litmus/litmus.h"

namespace {

using namespace litmus;

constexpr uint32_t RANKS = 2;
constexpr uint32_t BLOCKS = 2;
constexpr uint32_t ROUNDS = 2;
constexpr uint32_t SIZE = 2 * BLOCKS; // threads of a rank
constexpr uint64_t WORDS = 18;        // of a rank's part: 128 bytes for the first block, and 16 for the second
constexpr uint64_t MEMORY = 16 << 10;

// Two ranks whose kernels read and write the other's buffers. Each launch has new data, which the kernel before has
// written.
struct Registered : Pair {
    static constexpr uint32_t threads = RANKS * SIZE;
    static uint32_t device(uint32_t i) { return i / SIZE; }
    alignas(128) char memory[RANKS][MEMORY] = {};
    Cell state[RANKS] = {};
    weir_dev_difference differences[RANKS] = {};
    weir_dev_collective collective[RANKS] = {};
    alignas(16) uint64_t in[RANKS][RANKS * WORDS] = {};
    alignas(16) uint64_t out[RANKS][RANKS * WORDS] = {};
    int wrong = 0;

    Registered()
    {
        for (uint32_t r = 0; r < RANKS; r++) {
            join_collective(collective[r], r, rank[r], state[r], differences, memory[0], memory[1]);
            collective[r].blocks = BLOCKS;
        }
    }
    static uint64_t value(uint32_t from, uint64_t round, uint64_t word)
    {
        return 1000000 * (from + 1) + 10000 * round + word;
    }
    // Writes `words` words of the round, as an earlier kernel on the rank's stream does.
    void produce(uint32_t r, uint64_t round, uint64_t words, const weir_coop &grid)
    {
        for (uint64_t i = 0; i < words && grid.rank == 0; i++) {
            write(in[r][i], value(r, round, i));
        }
        check(weir_coop_sync(grid));
    }
    bool right() const { return failed == 0 && wrong == 0; }
};

// Each rank reads the other's `in` and sums its part: reduce_scatter.
struct Summing : Registered {
    void thread(uint32_t i)
    {
        const uint32_t r = i / SIZE;
        const weir_coop grid = grid_coop(rank[r], i % SIZE, BLOCKS, 2);
        weir_collective_reduce reduce = {};
        reduce.send = reinterpret_cast<char *>(in[r]);
        reduce.recv = reinterpret_cast<char *>(out[r]);
        reduce.part = reduce.length = WORDS * 8;
        reduce.bytes = RANKS * WORDS * 8;
        for (uint32_t k = 0; k < RANKS; k++) {
            reduce.peer_send[k] = reinterpret_cast<char *>(in[k]);
        }
        for (uint64_t round = 0; round < ROUNDS; round++) {
            produce(r, round, RANKS * WORDS, grid);
            check(weir_collective_reduce_zero_copy(&collective[r], &reduce, WEIR_U64, WEIR_SUM, grid));
            check(weir_coop_sync(grid));
            for (uint64_t k = 0; k < WORDS && grid.rank == 0; k++) {
                const uint64_t at = r * WORDS + k;
                wrong += read(out[r][k]) != value(0, round, at) + value(1, round, at);
            }
        }
    }
};

// Each rank writes into the other's `out`, which the other has read before: allgather.
struct Gathering : Registered {
    void thread(uint32_t i)
    {
        const uint32_t r = i / SIZE;
        const weir_coop grid = grid_coop(rank[r], i % SIZE, BLOCKS, 2);
        weir_collective_move move = {};
        move.send = reinterpret_cast<char *>(in[r]);
        move.recv = reinterpret_cast<char *>(out[r]);
        move.most = WORDS * 8;
        move.peer_recv_at = r * WORDS * 8;
        for (uint32_t k = 0; k < RANKS; k++) {
            move.send_bytes[k] = move.recv_bytes[k] = WORDS * 8;
            move.recv_at[k] = k * WORDS * 8;
            move.peer_recv[k] = reinterpret_cast<char *>(out[k]);
        }
        for (uint64_t round = 0; round < ROUNDS; round++) {
            produce(r, round, WORDS, grid);
            check(weir_collective_move_slots(&collective[r], &move, grid));
            check(weir_coop_sync(grid));
            for (uint64_t k = 0; k < RANKS * WORDS && grid.rank == 0; k++) {
                wrong += read(out[r][k]) != value(static_cast<uint32_t>(k / WORDS), round, k % WORDS);
            }
            check(weir_coop_sync(grid)); // the next kernel of this rank lets the others write again
        }
    }
};

TEST(LitmusCollective, RanksReadWhatEarlierKernelsWrote)
{
    holds<Summing>(WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE);
}
TEST(LitmusCollective, RanksWriteWhereEarlierKernelsRead)
{
    holds<Gathering>(WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE);
}

} // namespace
