// Barriers of a group and the order of its data; docs/memory-ordering.md.
#include "test/litmus/litmus.h"

namespace {

using namespace litmus;

constexpr uint32_t SIGNAL_ORDERS = WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE | WEIRT_WEAK_NO_SYSTEM;

// Both ranks are a block of two threads: threads 0 and 1 are rank 0, threads 2 and 3 rank 1.
struct TwoBlocks : Pair {
    static constexpr uint32_t threads = 4;
    static uint32_t device(uint32_t i) { return i / 2; }
    uint64_t seen[2] = {};

    weir_coop coop(uint32_t i) { return weir_coop_block(grid_coop(rank[i / 2], i % 2, 1, 2)); }
    // Each thread reads the data of the other thread of the peer.
    void read_other(uint32_t i) { seen[i % 2] = read(rank[1].data[(i + 1) % 2 * 2]); }
    bool right() const { return failed == 0 && seen[0] == 31 && seen[1] == 30; }
};

struct OneSpeaks : TwoBlocks {
    bool meets = true;

    void thread(uint32_t i)
    {
        weir_coop block = coop(i);
        if (i < 2) {
            write(rank[0].data[2 * i], 30 + i);
            check(weir_dev_memory_channel_put(&rank[0].channel, 16 * i, 16 * i, 16, thread_coop()));
            if (meets) {
                check(weir_coop_sync(block));
            }
            if (block.rank == 0) {
                weir_dev_memory_channel_signal(&rank[0].channel);
            }
        } else {
            check(weir_dev_memory_channel_wait_coop(&rank[1].channel, block));
            read_other(i);
        }
    }
};

TEST(LitmusCoop, OneThreadSignalsForItsBlock) { holds<OneSpeaks>(SIGNAL_ORDERS | WEIRT_WEAK_NO_BARRIER); }

struct NobodyMeets : OneSpeaks {
    NobodyMeets() { meets = false; }
};

TEST(LitmusCoop, WithoutABarrierItSignalsForItself) { fails<NobodyMeets>(); }

// One thread waits, without a barrier to the other.
struct OneWaits : TwoBlocks {
    void thread(uint32_t i)
    {
        weir_coop block = coop(i);
        if (i < 2) {
            write(rank[1].data[2 * i], 30 + i);
            check(weir_coop_sync(block));
            if (block.rank == 0) {
                weir_dev_memory_channel_signal(&rank[0].channel);
            }
            return;
        }
        if (block.rank == 0) {
            check(weir_dev_memory_channel_wait(&rank[1].channel));
        }
        read_other(i);
    }
};

TEST(LitmusCoop, WithoutABarrierItWaitsForItself) { fails<OneWaits>(); }

// Relaxed signals and waits between barriers: the barriers order only the block.
struct RelaxedSpeaks : TwoBlocks {
    void thread(uint32_t i)
    {
        weir_coop block = coop(i);
        if (i < 2) {
            write(rank[1].data[2 * i], 30 + i);
            check(weir_coop_sync(block));
            if (block.rank == 0) {
                weir_dev_memory_channel_signal_relaxed(&rank[0].channel);
            }
        } else {
            check(weir_dev_semaphore_wait_relaxed_coop(&rank[1].channel.semaphore, block));
            read_other(i);
        }
    }
};

TEST(LitmusCoop, BarriersDoNotMakeUpForRelaxedSignals) { fails<RelaxedSpeaks>(); }

// One thread makes begin and end; then the other thread has the counts.
struct HandedOver : TwoBlocks {
    void thread(uint32_t i)
    {
        weir_coop block = coop(i);
        const weir_dev_memory_channel *channel = &rank[i / 2].channel;
        for (uint32_t turn = 0; turn < 2; turn++) {
            if (block.rank == turn) {
                weir_dev_semaphore_counts counts = weir_dev_semaphore_begin(&channel->semaphore);
                if (i < 2) {
                    write(rank[1].data[2 * turn], 30 + turn);
                    weir_dev_semaphore_signal_counted(&channel->semaphore, &counts);
                } else {
                    check(weir_dev_semaphore_wait_counted(&channel->semaphore, &counts));
                }
                weir_dev_semaphore_end(&channel->semaphore, &counts);
            }
            check(weir_coop_sync(block));
        }
        if (i >= 2) {
            read_other(i);
        }
    }
};

TEST(LitmusCoop, CountsAreHandedOverByABarrier) { holds<HandedOver>(SIGNAL_ORDERS | WEIRT_WEAK_NO_BARRIER); }

// A grid of `Blocks` blocks of `Threads` threads on one device; each thread reads the next one's data, twice.
template <uint32_t Blocks, uint32_t Threads> struct GridRounds : Pair {
    static constexpr uint32_t threads = Blocks * Threads;
    static uint32_t device(uint32_t) { return 0; }
    uint64_t seen[2][threads] = {};

    void thread(uint32_t i)
    {
        weir_coop grid = grid_coop(rank[0], i, Blocks, Threads);
        for (uint64_t round = 0; round < 2; round++) {
            write(rank[0].data[i], 100 * round + i);
            check(weir_coop_sync(grid));
            seen[round][i] = read(rank[0].data[(i + 1) % threads]);
            check(weir_coop_sync(grid));
        }
    }
    bool right() const
    {
        bool all = failed == 0;
        for (uint32_t i = 0; i < 2 * threads; i++) {
            all = all && seen[i / threads][i % threads] == 100 * (i / threads) + (i + 1) % threads;
        }
        return all;
    }
};

TEST(LitmusGrid, BarrierOrdersItsBlocks)
{
    holds<GridRounds<3, 1>>(WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE | WEIRT_WEAK_NO_ATOMIC);
}

TEST(LitmusGrid, BarrierOrdersAllThreadsOfItsBlocks)
{
    holds<GridRounds<2, 2>>(WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE | WEIRT_WEAK_NO_BARRIER);
}

// Blocks 0 and 1 of rank 0 (threads 0 and 1) put; after the grid's barrier the first thread signals for both.
struct GridSpeaks : Pair {
    static constexpr uint32_t threads = 3;
    static uint32_t device(uint32_t i) { return i / 2; }
    uint64_t seen[2] = {};

    void thread(uint32_t i)
    {
        if (i == 2) {
            check(weir_dev_memory_channel_wait(&rank[1].channel));
            seen[0] = read(rank[1].data[0]);
            seen[1] = read(rank[1].data[2]);
            return;
        }
        weir_coop grid = grid_coop(rank[0], i, 2, 1);
        write(rank[0].data[2 * i], 40 + i);
        check(weir_dev_memory_channel_put(&rank[0].channel, 16 * i, 16 * i, 16, thread_coop()));
        check(weir_coop_sync(grid));
        if (grid.rank == 0) {
            weir_dev_memory_channel_signal(&rank[0].channel);
        }
    }
    bool right() const { return failed == 0 && seen[0] == 40 && seen[1] == 41; }
};

TEST(LitmusGrid, OneThreadSignalsForItsGrid) { holds<GridSpeaks>(SIGNAL_ORDERS); }

// An error that one thread passes to the grid reaches all threads.
struct Agreed : Pair {
    static constexpr uint32_t threads = 4;
    static uint32_t device(uint32_t) { return 0; }
    weir_status status[4] = {};

    void thread(uint32_t i)
    {
        weir_coop grid = grid_coop(rank[0], i, 2, 2);
        weir_status mine = i == 3 ? weir_dev_control_fail(&rank[0].control, WEIR_ERR_RANGE) : WEIR_OK;
        status[i] = weir_coop_agree(grid, &rank[0].control, mine);
    }
    bool right() const
    {
        bool all = true;
        for (weir_status s : status) {
            all = all && s == WEIR_ERR_RANGE;
        }
        return all;
    }
};

TEST(LitmusGrid, AnErrorIsEveryones) { holds<Agreed>(WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE); }

// Threads 0 and 1 of one device fail. Thread 2, the host, sees the error and the whole record of the first failure.
struct Recorded : Pair {
    static constexpr uint32_t threads = 3;
    static uint32_t device(uint32_t i) { return i / 2; }
    uint64_t numbers[3] = {};

    void thread(uint32_t i)
    {
        weir_dev_control *control = &rank[0].control;
        if (i < 2) {
            (void)weir_dev_control_fail_in(control, WEIR_ERR_RANGE,
                                           weir_dev_note_of(WEIR_DOING_PUT, i, 10 + i, 20 + i, 30 + i));
            return;
        }
        while (weir_arch_load_relaxed_sys_u64(&control->claimed) == 0) {
            weir_arch_relax(1);
        }
        while (weir_arch_load_acquire_sys_u32(reinterpret_cast<const uint32_t *>(&control->error_status)) == 0) {
            weir_arch_relax(1);
        }
        for (uint32_t k = 0; k < 3; k++) {
            numbers[k] = weir_arch_load_relaxed_sys_u64(&control->record.note.numbers[k]);
        }
    }
    bool right() const
    {
        const uint64_t first = numbers[0] - 10;
        return first < 2 && numbers[1] == 20 + first && numbers[2] == 30 + first;
    }
};

TEST(LitmusGrid, AnErrorComesBehindItsRecord) { holds<Recorded>(WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE); }

// Threads 0 and 1 wait at a barrier until their deadline. Thread 2 arrives after the failure and gets its error.
struct Late : Pair {
    static constexpr uint32_t threads = 3;
    static uint32_t device(uint32_t) { return 0; }
    weir_status status[3] = {};

    Late() { weir_dev_control_begin(&rank[0].control, WAIT_NS / 100); }
    void thread(uint32_t i)
    {
        const uint64_t *word = rank[0].barrier.word;
        while (i == 2 && (weir_arch_load_relaxed_dev_u64(word) & WEIR_GRID_BARRIER_POISON) == 0) {
            weir_arch_relax(1);
        }
        status[i] = weir_coop_sync(grid_coop(rank[0], i, 3, 1));
    }
    bool right() const
    {
        return status[0] == WEIR_ERR_TIMEOUT && status[1] == WEIR_ERR_TIMEOUT && status[2] == WEIR_ERR_TIMEOUT;
    }
};

TEST(LitmusGrid, ALateBlockLearnsOfTheError) { holds<Late>(WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE); }

// Two blocks of two threads a rank, each block with a channel of the set; block b sends to block b of the peer.
struct Blocks : Pair {
    static constexpr uint32_t threads = 8;
    static uint32_t device(uint32_t i) { return i / 4; }
    uint64_t seen[4] = {};

    void thread(uint32_t i)
    {
        Rank &mine = rank[i / 4];
        weir_coop blocks = weir_coop_blocks(grid_coop(mine, i % 4, 2, 2));
        weir_dev_memory_channel channel = weir_dev_memory_channel_at(&mine.channel, blocks.block);
        uint32_t other = blocks.rank ^ 1; // the other thread of the block
        if (i < 4) {
            write(mine.data[2 * other], 50 + other);
            check(weir_coop_sync(blocks));
            check(weir_dev_memory_channel_put(&channel, 0, 0, 64, blocks));
            check(weir_coop_sync(blocks));
            if (weir_coop_leads(blocks)) {
                weir_dev_memory_channel_signal(&channel);
            }
        } else {
            check(weir_dev_memory_channel_wait_coop(&channel, blocks));
            seen[i - 4] = read(mine.data[2 * other]);
        }
    }
    bool right() const { return failed == 0 && seen[0] == 51 && seen[1] == 50 && seen[2] == 53 && seen[3] == 52; }
};

TEST(LitmusCoop, BlocksOfASetSpeakEachForItself) { holds<Blocks>(SIGNAL_ORDERS | WEIRT_WEAK_NO_BARRIER); }

} // namespace
