// Runs small programs against the device headers in the simulated memory of test/harness/weak.h.
//
// A litmus test is a struct with `threads` threads on the devices that device() gives. thread(i) is the body of a
// thread; right() says whether docs/memory-ordering.md allows the outcome. It is constructed for each seed, from the
// seed if it has such a constructor.
//
//   holds<T>(orders)   no seed has a wrong outcome or a race; and for each of `orders` (WEIRT_WEAK_NO_...) that the
//                      memory leaves out, some seed has: the program needs it, and the memory is weak enough to tell.
//   fails<T>()         some seed has a wrong outcome: what T expects is not promised.
//
// A run depends only on its seed. WEIR_LITMUS_SEED=N in the environment runs seed N only, of holds().
#ifndef WEIRT_LITMUS_H
#define WEIRT_LITMUS_H

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <type_traits>

#include "weir/device/collective.h"
#include "weir/device/kernel.h"

#include "test/harness/weak.h"

namespace litmus {

constexpr uint64_t HELD_SEEDS = WEIRT_LITMUS_SEEDS; // all must be right
constexpr uint64_t SEEDS = 400;                     // one must be wrong
constexpr uint64_t WAIT_NS = 5000000000u;           // of simulated time

constexpr uint32_t DATA_WORDS = 80; // five lines and a remainder
constexpr uint32_t CELL_WORDS = WEIR_CELL_BYTES / 8;

// The words of a semaphore or channel in a set.
struct alignas(WEIR_CELL_BYTES) Cell {
    uint64_t words[CELL_WORDS];
};

// The zeroed memory of one rank, and its side of a set of two channels.
struct Rank {
    weir_dev_control control;
    alignas(16) uint64_t data[DATA_WORDS];
    alignas(16) uint64_t sink[DATA_WORDS]; // target of unpacking
    alignas(128) uint64_t packets[4 * DATA_WORDS];
    Cell inbound[2];
    Cell expected[2];
    Cell sent[2];
    Cell epochs[2];
    uint64_t barrier_word;
    weir_dev_grid_barrier barrier;
    weirt_weak_block block[4];
    weir_dev_memory_channel channel;  // my data -> the peer's data
    weir_dev_memory_channel sender;   // my data -> the peer's packets
    weir_dev_memory_channel receiver; // my packets -> my sink
};

inline void connect(Rank &mine, Rank &peer)
{
    weir_dev_control_begin(&mine.control, WAIT_NS);
    mine.barrier.control = &mine.control;
    mine.barrier.word = &mine.barrier_word;
    weir_dev_memory_channel &channel = mine.channel;
    channel.semaphore.control = &mine.control;
    channel.semaphore.inbound = mine.inbound[0].words;
    channel.semaphore.outbound = peer.inbound[0].words;
    channel.semaphore.expected = mine.expected[0].words;
    channel.semaphore.sent = mine.sent[0].words;
    channel.semaphore.count = channel.semaphore.size = 2;
    channel.remote = reinterpret_cast<char *>(peer.data);
    channel.remote_bytes = sizeof peer.data;
    channel.local = reinterpret_cast<char *>(mine.data);
    channel.local_bytes = sizeof mine.data;
    channel.packets = reinterpret_cast<char *>(mine.packets);
    channel.packets_bytes = sizeof mine.packets;
    channel.epochs = mine.epochs[0].words;
    channel.lines = 1;
    mine.sender = channel;
    mine.sender.remote = reinterpret_cast<char *>(peer.packets);
    mine.sender.remote_bytes = sizeof peer.packets;
    mine.receiver = mine.sender;
    mine.receiver.local = reinterpret_cast<char *>(mine.sink);
    mine.receiver.local_bytes = sizeof mine.sink;
}

// Two ranks with a channel between them.
struct Pair {
    Rank rank[2];
    int failed = 0; // a call returned an error

    Pair()
    {
        std::memset(static_cast<void *>(rank), 0, sizeof rank);
        connect(rank[0], rank[1]);
        connect(rank[1], rank[0]);
    }

    void check(weir_status status) { failed |= status != WEIR_OK; }
};

// The handle of rank `r` of N for a collective, whose state is `state`.
template <uint32_t N, uint64_t BYTES>
void join_collective(weir_dev_collective &c, uint32_t r, Rank &mine, Cell (&state)[WEIR_COLLECTIVE_CELLS],
                     weir_dev_difference *differences, char (&memory)[N][BYTES])
{
    c.control = &mine.control;
    c.epoch = state[0].words;
    c.generations = state[0].words + 9;
    c.differences = differences;
    c.rank = r;
    c.ranks = N;
    for (uint32_t k = 0; k < N; k++) {
        c.memory[k] = memory[k];
        c.peers[k] = k;
    }
}

inline weir_coop thread_coop() { return weir_coop_thread(weir_coop_part(0, 1)); }

// Thread `rank` of a grid of `blocks` blocks of `threads` threads of the rank `mine`.
inline weir_coop grid_coop(Rank &mine, uint32_t rank, uint32_t blocks, uint32_t threads)
{
    weir_coop coop = weir_coop_part(rank, blocks * threads);
    coop.block_rank = rank % threads;
    coop.block_size = threads;
    coop.block = rank / threads;
    coop.blocks = blocks;
    coop.scope = WEIR_COOP_GRID;
    coop.barrier = &mine.barrier;
    mine.block[coop.block].threads = threads;
    coop.host = &mine.block[coop.block];
    return coop;
}

// Lets the other threads go on for a while.
inline void pass_turns(uint32_t turns)
{
    for (; turns != 0; turns--) {
        weir_arch_relax(1);
    }
}

// Random numbers of a seed.
struct Draw {
    std::mt19937_64 random;
    explicit Draw(uint64_t seed) : random(seed) {}
    uint32_t operator()(uint32_t below) { return static_cast<uint32_t>(random() % below); }
};

inline uint64_t read(const uint64_t &word) { return weir_arch_load_u64(&word); }

inline void write(uint64_t &word, uint64_t value) { weir_arch_store_u64(&word, value); }

struct Outcome {
    bool right;      // the program says so
    std::string why; // empty if the outcome is right and nothing raced or got stuck
};

template <class Program> Program make(uint64_t seed)
{
    if constexpr (std::is_constructible_v<Program, uint64_t>) {
        return Program(seed);
    } else {
        (void)seed;
        return Program();
    }
}

template <class Program> Outcome run(uint64_t seed, uint32_t without)
{
    Program program = make<Program>(seed);
    weirt_weak_options options = {};
    weirt_weak_report report;
    options.seed = seed;
    options.without = without;
    options.threads = Program::threads;
    for (uint32_t i = 0; i < Program::threads; i++) {
        options.device[i] = Program::device(i);
    }
    auto body = [](void *arg, uint32_t index) { static_cast<Program *>(arg)->thread(index); };
    if (weirt_weak_run(&options, body, &program, &report) != 0) {
        ADD_FAILURE() << "no threads";
        return { true, "no threads" };
    }
    bool right = program.right();
    std::string why = report.stuck        ? "threads wait at a barrier for ever"
                      : report.races != 0 ? std::string("a race: ") + report.race
                      : !right            ? "a wrong outcome"
                                          : "";
    return { right, why };
}

template <class Program> void holds(uint32_t orders, uint64_t seeds = HELD_SEEDS)
{
    const char *only = std::getenv("WEIR_LITMUS_SEED");
    uint64_t first = only != nullptr ? std::strtoull(only, nullptr, 10) : 0;
    uint64_t end = only != nullptr ? first + 1 : seeds;
    for (uint64_t seed = first; seed < end; seed++) {
        Outcome outcome = run<Program>(seed, 0);
        ASSERT_EQ(outcome.why, "") << "WEIR_LITMUS_SEED=" << seed << " repeats it";
    }
    for (uint32_t order = 1; order <= orders; order *= 2) {
        uint64_t seed = 0;
        while ((orders & order) != 0 && seed < SEEDS && run<Program>(seed, order).why.empty()) {
            seed++;
        }
        EXPECT_LT(seed, SEEDS) << "nothing fails without order " << order;
    }
}

template <class Program> void fails()
{
    uint64_t seed = 0;
    while (seed < SEEDS && run<Program>(seed, 0).right) {
        seed++;
    }
    EXPECT_LT(seed, SEEDS) << "the outcome that is not promised is always right";
}

} // namespace litmus

#endif
