// Promises of layouts through memory channels; docs/memory-ordering.md.
#include "test/litmus/litmus.h"

#include "weir/device/layout_channel.h"

namespace {

using namespace litmus;

// Rows of `run` bytes. With `by_pieces` they move by pieces of runs, as those of large layouts do.
struct Rows {
    uint64_t run;
    uint64_t count;
    int64_t stride;
    int64_t place; // of the first row
    bool by_pieces;

    weir_dev_layout describe() const
    {
        weir_dev_layout layout = {};
        layout.nest.offset = place;
        layout.nest.run = run;
        layout.nest.size = run * count;
        layout.nest.dims = 1;
        layout.nest.dim[0].count = count;
        layout.nest.dim[0].stride = stride;
        const int64_t end = place + stride * static_cast<int64_t>(count - 1);
        layout.first = end < place ? end : place;
        layout.last = (end < place ? place : end) + static_cast<int64_t>(run);
        weir_layout_prepare(&layout);
        layout.small = by_pieces ? 0 : layout.small;
        return layout;
    }
    int64_t place_of(uint64_t packed) const
    {
        return place + stride * static_cast<int64_t>(packed / run) + static_cast<int64_t>(packed % run);
    }
    // Whether a row has the byte at `at`; its packed byte.
    bool has(int64_t at, uint64_t *packed) const
    {
        for (uint64_t i = 0; i < run * count; i++) {
            if (place_of(i) == at) {
                *packed = i;
                return true;
            }
        }
        return false;
    }
};

struct Plan {
    Rows from;
    Rows to;
};

// They move in words of 4 bytes; of 8 bytes, two for each thread, to rows whose order in memory is the reverse; by
// pieces; and as one packet for each thread.
constexpr Plan WORDS = { { 4, 6, 12, 0, false }, { 8, 3, 16, 0, false } };
constexpr Plan BACKWARDS = { { 16, 2, 24, 8, false }, { 8, 4, -16, 48, false } };
constexpr Plan PIECES = { { 5, 5, 8, 1, true }, { 5, 5, 7, 3, true } };
constexpr Plan EACH = { { 16, 1, 16, 8, false }, { 8, 2, -16, 32, false } };

constexpr int64_t TO = 8 * DATA_WORDS / 2; // offset of the destination
constexpr int64_t AROUND = 12;             // bytes that are compared beyond the first and the last row

// Rank 0 has threads 0 and 1, rank 1 has threads 2 and 3; each rank is a block. Data goes from rank 0 to rank 1, or
// both ways. The bytes around and between the rows of the destination belong to the receiver, which writes them while
// the transfer runs.
template <const Plan &plan> struct Moving : Pair {
    static constexpr uint32_t threads = 4;
    static constexpr uint64_t ROUNDS = 3;
    static uint32_t device(uint32_t i) { return i / 2; }
    const weir_dev_layout from = plan.from.describe();
    const weir_dev_layout to = plan.to.describe();
    int wrong = 0;

    static uint8_t value(uint32_t sender, uint64_t round, uint64_t packed)
    {
        return static_cast<uint8_t>(1 + 7 * packed + 40 * round + 101 * sender);
    }
    static uint8_t gap(uint64_t round, int64_t at) { return static_cast<uint8_t>(0x80 + 16 * round + (at & 15)); }
    static weir_coop block_of(Rank &mine, uint32_t i) { return weir_coop_block(grid_coop(mine, i % 2, 1, 2)); }

    // Threads write bytes that other threads of the block send.
    void fill(uint32_t me, uint64_t round, weir_coop block)
    {
        char *memory = reinterpret_cast<char *>(rank[me].data);
        for (uint64_t i = 1 - block.rank; i < from.nest.size; i += 2) {
            weir_arch_store_byte(memory + plan.from.place_of(i), static_cast<char>(value(me, round, i)));
        }
    }
    template <class Visit> void each_byte(weir_coop block, Visit visit)
    {
        for (int64_t at = to.first - AROUND + block.rank; at < to.last + AROUND; at += 2) {
            uint64_t packed = 0;
            const bool inside = plan.to.has(at, &packed);
            visit(at, inside, packed);
        }
    }
    void fill_gaps(char *memory, uint64_t round, weir_coop block)
    {
        each_byte(block, [&](int64_t at, bool inside, uint64_t) {
            if (!inside) {
                weir_arch_store_byte(memory + at, static_cast<char>(gap(round, at)));
            }
        });
    }
    // Threads read what other threads of the block have received.
    void compare(const char *memory, uint32_t sender, uint64_t round, weir_coop block)
    {
        block.rank = 1 - block.rank;
        each_byte(block, [&](int64_t at, bool inside, uint64_t packed) {
            const uint8_t expected = inside ? value(sender, round, packed) : gap(round, at);
            wrong += static_cast<uint8_t>(weir_arch_load_byte(memory + at)) != expected;
        });
    }
    void signal(uint32_t me, weir_coop block)
    {
        check(weir_coop_sync(block));
        if (block.rank == 0) {
            weir_dev_memory_channel_signal(&rank[me].channel);
        }
    }
    bool right() const { return failed == 0 && wrong == 0; }
};

// ---- put and get, with signals ----

template <const Plan &plan, bool GET = false> struct Putting : Moving<plan> {
    bool meets = true;

    void send(uint64_t round, weir_coop block)
    {
        const weir_dev_memory_channel *channel = &this->rank[0].channel;
        this->fill(0, round, block);
        if (!GET) {
            this->check(weir_coop_sync(block));
            this->check(weir_dev_memory_channel_put_layout(channel, &this->to, TO, &this->from, 0, block));
        }
        if (meets) {
            this->signal(0, block);
        } else if (block.rank == 0) {
            weir_dev_memory_channel_signal(channel);
        }
        this->check(weir_dev_memory_channel_wait_coop(channel, block));
    }
    void receive(uint64_t round, weir_coop block)
    {
        const weir_dev_memory_channel *channel = &this->rank[1].channel;
        char *memory = reinterpret_cast<char *>(this->rank[1].data) + TO;
        this->fill_gaps(memory, round, block);
        this->check(weir_dev_memory_channel_wait_coop(channel, block));
        if (GET) {
            this->check(weir_dev_memory_channel_get_layout(channel, &this->from, 0, &this->to, TO, block));
            this->check(weir_coop_sync(block));
        }
        this->compare(memory, 0, round, block);
        this->signal(1, block);
    }
    void thread(uint32_t i)
    {
        for (uint64_t round = 0; round < this->ROUNDS; round++) {
            const weir_coop block = this->block_of(this->rank[i / 2], i);
            if (i < 2) {
                send(round, block);
            } else {
                receive(round, block);
            }
        }
    }
};

constexpr uint32_t SIGNALS =
    WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE | WEIRT_WEAK_NO_SYSTEM | WEIRT_WEAK_NO_BARRIER;

TEST(LitmusLayout, APutLayoutIsThereAfterTheSignal)
{
    holds<Putting<WORDS>>(SIGNALS);
    holds<Putting<BACKWARDS>>(SIGNALS);
    holds<Putting<PIECES>>(SIGNALS);
}

TEST(LitmusLayout, AGetLayoutIsDoneBeforeTheSignal)
{
    holds<Putting<WORDS, true>>(SIGNALS);
    holds<Putting<BACKWARDS, true>>(SIGNALS);
    holds<Putting<PIECES, true>>(SIGNALS);
}

struct SignalsAtOnce : Putting<WORDS> {
    SignalsAtOnce() { meets = false; }
};

TEST(LitmusLayout, APutLayoutIsNoBarrierOfItsGroup) { fails<SignalsAtOnce>(); }

// ---- packets and lines ----

using PutPackets = weir_status (*)(const weir_dev_memory_channel *, uint64_t, const weir_dev_layout *, uint64_t,
                                   weir_coop);

// The buffer is used again once the peer has signalled that it has taken the packets.
template <const Plan &plan, PutPackets Put, PutPackets Unpack> struct Sending : Moving<plan> {
    void thread(uint32_t i)
    {
        const uint32_t me = i / 2;
        const weir_coop block = this->block_of(this->rank[me], i);
        char *memory = reinterpret_cast<char *>(this->rank[1].sink) + TO;
        for (uint64_t round = 0; round < this->ROUNDS; round++) {
            if (me == 0) {
                this->fill(0, round, block);
                this->check(weir_coop_sync(block));
                this->check(Put(&this->rank[0].sender, 0, &this->from, 0, block));
                this->check(weir_dev_memory_channel_wait_coop(&this->rank[0].channel, block));
                continue;
            }
            this->fill_gaps(memory, round, block);
            this->check(Unpack(&this->rank[1].receiver, 0, &this->to, TO, block));
            this->check(weir_coop_sync(block));
            this->compare(memory, 0, round, block);
            this->signal(1, block);
        }
    }
};

template <const Plan &plan>
using Ll16 = Sending<plan, weir_dev_memory_channel_put_layout_ll16, weir_dev_memory_channel_unpack_layout_ll16>;
template <const Plan &plan>
using Lines = Sending<plan, weir_dev_memory_channel_put_layout_lines, weir_dev_memory_channel_unpack_layout_lines>;

TEST(LitmusLayout, PacketsOfALayoutCarryTheirOwnOrder)
{
    holds<Ll16<WORDS>>(WEIRT_WEAK_NO_SYSTEM | WEIRT_WEAK_NO_BARRIER);
    holds<Ll16<BACKWARDS>>(WEIRT_WEAK_NO_SYSTEM | WEIRT_WEAK_NO_BARRIER);
    holds<Ll16<PIECES>>(WEIRT_WEAK_NO_SYSTEM | WEIRT_WEAK_NO_BARRIER);
    holds<Ll16<EACH>>(WEIRT_WEAK_NO_SYSTEM | WEIRT_WEAK_NO_BARRIER);
}

TEST(LitmusLayout, LinesOfALayoutCarryTheirOwnOrder)
{
    holds<Lines<WORDS>>(SIGNALS);
    holds<Lines<PIECES>>(SIGNALS);
}

using ExchangePackets = weir_status (*)(const weir_dev_memory_channel *, uint64_t, const weir_dev_layout *, uint64_t,
                                        const weir_dev_layout *, uint64_t, weir_coop);

// Both ranks send and receive, without signals.
template <const Plan &plan, ExchangePackets Exchange> struct Exchanging : Moving<plan> {
    void thread(uint32_t i)
    {
        const uint32_t me = i / 2;
        const weir_coop block = this->block_of(this->rank[me], i);
        char *memory = reinterpret_cast<char *>(this->rank[me].data) + TO;
        for (uint64_t round = 0; round < this->ROUNDS; round++) {
            this->fill(me, round, block);
            this->fill_gaps(memory, round, block);
            this->check(weir_coop_sync(block));
            this->check(Exchange(&this->rank[me].sender, 0, &this->from, 0, &this->to, TO, block));
            this->check(weir_coop_sync(block));
            this->compare(memory, 1 - me, round, block);
            this->check(weir_coop_sync(block));
        }
    }
};

TEST(LitmusLayout, ExchangesOfLayoutsNeedNoSignal)
{
    holds<Exchanging<WORDS, weir_dev_memory_channel_exchange_layout_ll16>>(WEIRT_WEAK_NO_SYSTEM |
                                                                           WEIRT_WEAK_NO_BARRIER);
    holds<Exchanging<PIECES, weir_dev_memory_channel_exchange_layout_ll16>>(WEIRT_WEAK_NO_SYSTEM |
                                                                            WEIRT_WEAK_NO_BARRIER);
    holds<Exchanging<EACH, weir_dev_memory_channel_exchange_layout_ll16>>(WEIRT_WEAK_NO_SYSTEM | WEIRT_WEAK_NO_BARRIER);
}

TEST(LitmusLayout, ExchangesOfLinesNeedNoSignal)
{
    holds<Exchanging<WORDS, weir_dev_memory_channel_exchange_layout_lines>>(SIGNALS);
    holds<Exchanging<PIECES, weir_dev_memory_channel_exchange_layout_lines>>(SIGNALS);
}

} // namespace
