// Promises of packets and lines, which need no signal; docs/memory-ordering.md.
#include "test/litmus/litmus.h"

namespace {

using namespace litmus;

constexpr uint64_t WORDS = 3;

// Rank i is thread i, on device i. Rank 0 sends `ROUNDS` times, and the peer's thread keeps the received data.
struct Sending : Pair {
    static constexpr uint32_t threads = 2;
    static constexpr uint64_t ROUNDS = 2;
    static uint32_t device(uint32_t i) { return i; }
    uint64_t seen[ROUNDS][WORDS] = {};

    void fill(uint64_t round)
    {
        for (uint64_t w = 0; w < WORDS; w++) {
            write(rank[0].data[w], (round + 1) * 0x1000000010u + w);
        }
    }
    void keep(uint64_t round)
    {
        for (uint64_t w = 0; w < WORDS; w++) {
            seen[round][w] = read(rank[1].sink[w]);
        }
    }
    bool right() const
    {
        bool all = failed == 0;
        for (uint64_t i = 0; i < ROUNDS * WORDS; i++) {
            all = all && seen[i / WORDS][i % WORDS] == (i / WORDS + 1) * 0x1000000010u + i % WORDS;
        }
        return all;
    }
};

using Call = weir_status (*)(const weir_dev_memory_channel *, uint64_t, uint64_t, uint64_t, weir_coop);

// The buffer is reused once the peer has signalled that it has taken the packets.
template <Call Put, Call Unpack, uint64_t Bytes> struct Packets : Sending {
    void thread(uint32_t i)
    {
        for (uint64_t round = 0; round < ROUNDS; round++) {
            if (i == 0) {
                fill(round);
                check(Put(&rank[0].sender, 0, 0, Bytes, thread_coop()));
                check(weir_dev_memory_channel_wait(&rank[0].channel));
            } else {
                check(Unpack(&rank[1].receiver, 0, 0, Bytes, thread_coop()));
                keep(round);
                weir_dev_memory_channel_signal(&rank[1].channel);
            }
        }
    }
    bool right() const { return Bytes == 24 ? Sending::right() : failed == 0 && (seen[1][2] & 0xff) == 0x22; }
};

using Ll16 = Packets<weir_dev_memory_channel_put_ll16, weir_dev_memory_channel_unpack_ll16, 24>;
using Ll16Odd = Packets<weir_dev_memory_channel_put_ll16, weir_dev_memory_channel_unpack_ll16, 17>;
using Lines = Packets<weir_dev_memory_channel_put_lines, weir_dev_memory_channel_unpack_lines, 24>;

TEST(LitmusPackets, Ll16CarryTheirOwnOrder) { holds<Ll16>(WEIRT_WEAK_NO_SYSTEM); }
TEST(LitmusPackets, AnyNumberOfBytes) { holds<Ll16Odd>(WEIRT_WEAK_NO_SYSTEM); }

// On a CPU a line is 16 words. The last one is the flag, stored with release and read with acquire.
TEST(LitmusLines, LinesCarryTheirOwnOrder)
{
    holds<Lines>(WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE | WEIRT_WEAK_NO_SYSTEM);
}

// The two 8-byte words of an LL16 packet, read one by one.
template <uint64_t weir_vec16::*First, uint64_t weir_vec16::*Second> struct Halves : Pair {
    static constexpr uint32_t threads = 2;
    static uint32_t device(uint32_t i) { return i; }
    bool apart = false;

    void thread(uint32_t i)
    {
        if (i == 0) {
            weir_ll16_store(reinterpret_cast<char *>(rank[1].packets), 0x100000002u, 0x80000000u);
            return;
        }
        weir_vec16 words = weir_arch_load_relaxed_sys_pair(rank[1].packets);
        apart = words.*First != 0 && words.*Second == 0;
    }
    bool right() const { return !apart; }
};

TEST(LitmusPackets, TheHalvesOfLl16ArriveInAnyOrder)
{
    using LowFirst = Halves<&weir_vec16::lo, &weir_vec16::hi>;
    using HighFirst = Halves<&weir_vec16::hi, &weir_vec16::lo>;
    fails<LowFirst>();
    fails<HighFirst>();
}

// Like an LL packet but with two words: a flag beside the data.
struct FlagApart : Pair {
    static constexpr uint32_t threads = 2;
    static uint32_t device(uint32_t i) { return i; }
    uint64_t seen = 0;

    void thread(uint32_t i)
    {
        if (i == 0) {
            weir_arch_store_relaxed_sys_u64(&rank[1].packets[0], 6);
            weir_arch_store_relaxed_sys_u64(&rank[1].packets[1], 1);
            return;
        }
        while (weir_arch_load_relaxed_sys_u64(&rank[1].packets[1]) == 0) {
            weir_arch_relax(1);
        }
        seen = weir_arch_load_relaxed_sys_u64(&rank[1].packets[0]);
    }
    bool right() const { return seen == 6; }
};

TEST(LitmusPackets, AFlagInAnotherWordWouldNotDo) { fails<FlagApart>(); }

// Data that was put before the packet was sent.
struct PutAndPacket : Pair {
    static constexpr uint32_t threads = 2;
    static uint32_t device(uint32_t i) { return i; }
    uint64_t seen = 0;

    void thread(uint32_t i)
    {
        if (i == 0) {
            write(rank[0].data[0], 6);
            check(weir_dev_memory_channel_put(&rank[0].channel, 8, 0, 8, thread_coop()));
            check(weir_dev_memory_channel_put_ll16(&rank[0].sender, 0, 0, 8, thread_coop()));
        } else {
            check(weir_dev_memory_channel_unpack_ll16(&rank[1].receiver, 0, 0, 8, thread_coop()));
            seen = read(rank[1].data[1]);
        }
    }
    bool right() const { return failed == 0 && seen == 6; }
};

TEST(LitmusPackets, PacketsOrderNothingButThemselves) { fails<PutAndPacket>(); }

// Both ranks send and receive at once, three times, without signals and waits.
template <weir_status (*Exchange)(const weir_dev_memory_channel *, uint64_t, uint64_t, uint64_t, uint64_t, weir_coop)>
struct Exchanging : Pair {
    static constexpr uint32_t threads = 2;
    static uint32_t device(uint32_t i) { return i; }
    uint64_t seen[2][3] = {};

    void thread(uint32_t i)
    {
        weir_dev_memory_channel channel = rank[i].sender;
        for (uint64_t round = 0; round < 3; round++) {
            write(rank[i].data[0], 100 * round + i);
            write(rank[i].data[1], 100 * round + i + 10);
            check(Exchange(&channel, 0, 0, 16, 16, thread_coop()));
            uint64_t first = read(rank[i].data[2]);
            uint64_t second = read(rank[i].data[3]);
            seen[i][round] = second == first + 10 ? first : 9999;
        }
    }
    bool right() const
    {
        bool all = failed == 0;
        for (uint64_t n = 0; n < 6; n++) {
            all = all && seen[n / 3][n % 3] == n % 3 * 100 + (1 - n / 3);
        }
        return all;
    }
};

TEST(LitmusPackets, ExchangesNeedNoSignal)
{
    holds<Exchanging<weir_dev_memory_channel_exchange_ll16>>(WEIRT_WEAK_NO_SYSTEM);
}

TEST(LitmusLines, ExchangesNeedNoSignal)
{
    holds<Exchanging<weir_dev_memory_channel_exchange_lines>>(WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE);
}

// Blocks of two threads; both read the epoch and one advances it. Each thread then reads the other's data.
struct Epochs : Pair {
    static constexpr uint32_t threads = 4;
    static uint32_t device(uint32_t i) { return i / 2; }
    uint64_t seen[2][2] = {};

    void thread(uint32_t i)
    {
        Rank &mine = rank[i / 2];
        weir_coop block = weir_coop_block(grid_coop(mine, i % 2, 1, 2));
        for (uint64_t round = 0; round < 2; round++) {
            uint64_t offset = 64 * round;
            if (i < 2) {
                write(mine.data[block.rank], 100 * round + block.rank);
                check(weir_dev_memory_channel_put_ll16(&mine.sender, offset, 0, 16, block));
            } else {
                check(weir_dev_memory_channel_unpack_ll16(&mine.receiver, offset, 0, 16, block));
                check(weir_coop_sync(block));
                seen[round][block.rank] = read(mine.sink[1 - block.rank]);
                check(weir_coop_sync(block));
            }
        }
    }
    bool right() const
    {
        return failed == 0 && seen[0][0] == 1 && seen[0][1] == 0 && seen[1][0] == 101 && seen[1][1] == 100;
    }
};

TEST(LitmusPackets, EpochsAreAdvancedOnceForABlock) { holds<Epochs>(WEIRT_WEAK_NO_BARRIER); }

// Two blocks of two threads send as one grid: each block adds its share of the epoch, and they meet between calls.
struct GridEpochs : Pair {
    static constexpr uint32_t threads = 5;
    static uint32_t device(uint32_t i) { return i / 4; }
    bool meets = true;
    uint64_t seen[2][4] = {};
    void thread(uint32_t i)
    {
        for (uint64_t round = 0; round < 2; round++) {
            if (i < 4) {
                weir_coop grid = grid_coop(rank[0], i, 2, 2);
                write(rank[0].data[i], 10 * round + i);
                check(weir_dev_memory_channel_put_ll16(&rank[0].sender, 64 * round, 0, 32, grid));
                if (meets) {
                    check(weir_coop_sync(grid));
                }
                continue;
            }
            check(weir_dev_memory_channel_unpack_ll16(&rank[1].receiver, 64 * round, 0, 32, thread_coop()));
            for (int w = 0; w < 4; w++) {
                seen[round][w] = read(rank[1].sink[w]);
            }
        }
    }
    bool right() const
    {
        bool all = failed == 0;
        for (uint64_t n = 0; n < 8; n++) {
            all = all && seen[n / 4][n % 4] == 10 * (n / 4) + n % 4;
        }
        return all;
    }
};

TEST(LitmusPackets, AGridMeetsBetweenCalls) { holds<GridEpochs>(WEIRT_WEAK_NO_BARRIER | WEIRT_WEAK_NO_ATOMIC); }

struct GridGoesOn : GridEpochs {
    GridGoesOn() { meets = false; }
};

TEST(LitmusPackets, AGridThatGoesOnSendsWithAnOldEpoch) { fails<GridGoesOn>(); }

} // namespace
