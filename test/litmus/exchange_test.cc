// Promises of exchanges: small transfers by rings, and others by columns; docs/memory-ordering.md.
#include "weir/device/collective.h"

#include <algorithm>
#include <random>
#include <vector>

#include "weir/device/impl/collective_exchange_shared.h"

#include "test/litmus/litmus.h"

namespace {

using namespace litmus;

constexpr uint32_t RANKS = 2;
constexpr uint32_t RING_UNITS = 8;
constexpr uint32_t RING_SHIFT = 4;   // a unit of a ring has two words
constexpr uint32_t SMALL = 25;       // transfers of fewer bytes take the ring: one unit, or two
constexpr uint64_t SLOT_BYTES = 256; // a head and a line
constexpr uint64_t MEMORY = 48 << 10;

// Places rings, and slots of two columns behind them, into the memory of a rank.
void place_messages(weir_dev_collective &c, uint64_t slot_bytes)
{
    c.blocks = 4;
    c.message_blocks = 2;
    c.message_bytes = slot_bytes;
    c.ring_lines = static_cast<uint16_t>(weir_ring_total(RING_UNITS, RING_SHIFT) / WEIR_LINE_BYTES + 1);
    c.ring_units = RING_UNITS;
    c.ring_shift = RING_SHIFT;
    c.messages = weir_collective_cell(&c, WEIR_CELL_KINDS, 0, 0) + RANKS * c.ring_lines * WEIR_LINE_BYTES;
}

// Rank 0 sends the transfers of SENDS to rank 1, and rank 1 those of ANSWERS to rank 0, in ROUNDS launches. Each word
// of a transfer is new. Each rank has a grid of BLOCKS blocks. Rank 1 begins after DELAY turns. With ALONE, each block
// serves one lane; with LINED, messages are lines; with BRIEF, each block has one column or ring. A block passes up to
// TOGETHER small transfers at once.
template <uint32_t BLOCKS, uint32_t RINGS, uint64_t WORDS, uint32_t SENDS, uint32_t ANSWERS, uint32_t ROUNDS,
          uint32_t DELAY = 0, bool ALONE = false, bool LINED = false, bool BRIEF = false, uint32_t TOGETHER = 1>
struct Exchanging : Pair {
    // A block of two threads meets before lines. In one of three, the thread with the sender's call moves no data.
    static constexpr uint32_t THREADS = LINED && BLOCKS == 1 ? 3 : 2;
    static constexpr uint32_t UNITS = ((8 * WORDS - 1) >> RING_SHIFT) + 1; // of a small transfer
    static constexpr uint32_t SIZE = THREADS * BLOCKS;                     // of a rank
    static constexpr uint32_t threads = 2 * SIZE;
    static uint32_t device(uint32_t i) { return i / SIZE; }
    alignas(128) char memory[RANKS][MEMORY] = {};
    Cell state[RANKS][WEIR_COLLECTIVE_CELLS] = {};
    weir_dev_difference differences[RANKS] = {};
    weir_dev_collective collective[RANKS] = {};
    weir_collective_exchange exchange[RANKS] = {};
    uint64_t in[RANKS][SENDS + ANSWERS][WORDS] = {};
    uint64_t out[RANKS][SENDS + ANSWERS][WORDS] = {};
    uint64_t first = WORDS; // words of the first transfer of each lane
    int wrong = 0;

    Exchanging()
    {
        for (uint32_t r = 0; r < RANKS; r++) {
            weir_dev_collective &c = collective[r];
            join_collective(c, r, rank[r], state[r], differences, memory);
            place_messages(c, SLOT_BYTES);
            describe(r);
        }
    }
    void describe(uint32_t r)
    {
        weir_collective_exchange &x = exchange[r];
        x.columns = RINGS != 0 ? 2 : BLOCKS;
        x.small = SMALL;
        x.rings = RINGS;
        x.together = TOGETHER;
        x.sides = 1;
        x.posts = x.columns;
        x.lined = LINED ? SLOT_BYTES : 0;
        x.least_long = UINT64_MAX;
        add_lane(x, r, true, r == 0 ? ANSWERS : SENDS);
        add_lane(x, r, false, r == 0 ? SENDS : ANSWERS);
    }
    void add_lane(weir_collective_exchange &x, uint32_t r, bool receives, uint32_t count)
    {
        weir_exchange_lane &lane = x.lane[x.lanes];
        lane.peer = static_cast<uint8_t>(1 - r);
        lane.receives = receives;
        lane.first = static_cast<uint8_t>(x.lanes * SENDS);
        lane.count = static_cast<uint8_t>(count);
        lane.most = static_cast<uint16_t>(weir_exchange_pieces(8 * WORDS, UINT32_MAX));
        for (uint32_t i = 0; i < count; i++) {
            weir_exchange_transfer &t = x.transfers[lane.first + i];
            t.data = reinterpret_cast<char *>(receives ? out[r][i] : in[r][i]);
            t.count = WORDS | static_cast<uint64_t>(WEIR_U64) << 56;
            x.notes[lane.first + i] = TOGETHER > 1 ? static_cast<uint8_t>(i * UNITS) : 0;
        }
        lane.most = TOGETHER > 1 ? 0 : lane.most;
        x.lanes += count != 0;
    }
    static uint64_t value(uint32_t from, uint64_t round, uint32_t i, uint64_t word)
    {
        return 1000000 * (from + 1) + 10000 * round + 1000 * i + word;
    }
    uint64_t words(uint32_t k) const { return k == 0 ? first : WORDS; }
    virtual uint32_t delay(uint32_t i) const { return device(i) == 1 ? DELAY : 0; }
    virtual weir_status run(uint32_t r, const weir_coop &grid) const
    {
        return BRIEF          ? weir_collective_exchange_brief(&collective[r], &exchange[r], grid)
               : TOGETHER > 1 ? weir_collective_exchange_together(&collective[r], &exchange[r], grid)
               : ALONE        ? weir_collective_exchange_alone(&collective[r], &exchange[r], grid)
                              : weir_collective_exchange_all(&collective[r], &exchange[r], grid);
    }
    void thread(uint32_t i)
    {
        const uint32_t r = i / SIZE;
        const weir_coop grid = grid_coop(rank[r], i % SIZE, BLOCKS, THREADS);
        for (uint64_t round = 0; round < ROUNDS; round++) {
            for (uint32_t k = 0; k < (r == 0 ? SENDS : ANSWERS) && grid.rank == 0; k++) {
                for (uint64_t word = 0; word < words(k); word++) {
                    write(in[r][k][word], value(r, round, k, word));
                }
            }
            check(weir_coop_sync(grid)); // the launch
            pass_turns(round == 0 ? delay(i) : 0);
            check(run(r, grid));
            check(weir_coop_sync(grid)); // its end
            for (uint32_t k = 0; k < (r == 0 ? ANSWERS : SENDS) && grid.rank == 0; k++) {
                for (uint64_t word = 0; word < words(k); word++) {
                    wrong += read(out[r][k][word]) != value(1 - r, round, k, word);
                }
            }
        }
    }
    bool right() const { return failed == 0 && wrong == 0; }
};

// The first transfer takes the ring, and the second one several messages of a column. The block with the ring of the
// sender begins late, so the receiver of the first transfer looks into the column.
struct LateRing : Exchanging<2, 1, 70, 2, 0, 1> {
    LateRing()
    {
        first = 2;
        for (uint32_t r = 0; r < RANKS; r++) {
            exchange[r].transfers[exchange[r].lane[0].first].count = first | static_cast<uint64_t>(WEIR_U64) << 56;
            exchange[r].columns = 1;
        }
    }
    uint32_t delay(uint32_t i) const override { return i < THREADS ? 120 : 0; }
};

// The first transfer of each launch has one unit, and the others have two: some begin at the last unit of the ring.
template <uint32_t TOGETHER> struct OddRing : Exchanging<1, 1, 3, 6, 0, 2, 0, true, false, false, TOGETHER> {
    OddRing()
    {
        this->first = 2;
        for (weir_collective_exchange &x : this->exchange) {
            x.transfers[x.lane[0].first].count = this->first | static_cast<uint64_t>(WEIR_U64) << 56;
            for (uint32_t i = 1; i < x.lane[0].count && TOGETHER > 1; i++) {
                x.notes[x.lane[0].first + i] = static_cast<uint8_t>(2 * i - 1);
            }
        }
    }
};

// A block with both lanes' rings sends more than a ring holds, and waits. Its states are left over from other lanes.
struct FullRing : Exchanging<1, 1, 3, 7, 0, 1, 400> {
    weir_status run(uint32_t r, const weir_coop &grid) const override
    {
        weir_exchange_state states[WEIR_EXCHANGE_LANES_INSIDE];
        std::memset(states, 0xff, sizeof states);
        return weir_exchange_run(&collective[r], nullptr, &exchange[r], states, grid);
    }
};

// The sender begins when the receiver is about to look for a call that it does not expect.
struct LateLines : Exchanging<1, 0, 4, 1, 0, 1, 0, true, true> {
    uint32_t turns;
    explicit LateLines(uint64_t seed) : turns(100 + seed % 200) {}
    uint32_t delay(uint32_t i) const override { return device(i) == 0 ? turns : 0; }
};

// Places the receive buffers of all ranks into a table of one registration.
template <class Buffers> void place_bases(uint64_t *bases, Buffers &buffers)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        bases[r] = reinterpret_cast<uintptr_t>(buffers[r]);
    }
}

// Two transfers that are too long for lines, each in one column, into registered memory.
template <uint32_t DELAY, bool ALONE> struct Direct : Exchanging<2, 0, 250, 2, 0, 1, DELAY, ALONE, true> {
    uint64_t bases[WEIR_COLLECTIVE_RANKS] = {};
    Direct()
    {
        place_bases(bases, this->out);
        for (weir_collective_exchange &x : this->exchange) {
            x.bases = bases;
            x.rows[0] = 1;
            x.notes[0] = 1;
            x.notes[1] = 1;
        }
    }
    // No data goes through a slot: behind the call's packets all stays zero.
    void thread(uint32_t i)
    {
        Exchanging<2, 0, 250, 2, 0, 1, DELAY, ALONE, true>::thread(i);
        for (uint64_t slot = 0; slot < 4 && i == this->SIZE; slot++) {
            const char *at = weir_message_slot(&this->collective[1], 0, 1, slot / 2, slot % 2) + WEIR_RING_HEAD;
            for (uint64_t word = 0; word < (SLOT_BYTES - WEIR_RING_HEAD) / 8; word++) {
                this->wrong += read(reinterpret_cast<const uint64_t *>(at)[word]) != 0;
            }
        }
    }
};

// One transfer each way, or with a delay in rank 1 only one to it. A block that does not send helps the one that does.
// With SLOTS, rank 0 was recorded before the registration: its transfer goes through slots.
template <uint32_t DELAY, bool SLOTS>
struct Shared : Exchanging<2, 0, 250, 1, DELAY == 0 ? 1 : 0, 2, DELAY, true, true> {
    uint64_t bases[WEIR_COLLECTIVE_RANKS] = {};
    Shared()
    {
        place_bases(bases, this->out);
        for (uint32_t r = 0; r < RANKS; r++) {
            weir_collective_exchange &x = this->exchange[r];
            x.columns = 1;
            x.posts = 1;
            x.bases = SLOTS && r == 0 ? nullptr : bases;
            x.rows[0] = 1;
            x.notes[0] = x.bases != nullptr && x.lane[0].receives != 0 ? 1 : 0;
        }
    }
    weir_status run(uint32_t r, const weir_coop &grid) const override
    {
        const weir_collective_exchange &x = this->exchange[r];
        return x.lane[x.lanes - 1].receives != 0 ? weir_collective_exchange_alone(&this->collective[r], &x, grid)
                                                 : weir_collective_exchange_shared(&this->collective[r], &x, grid);
    }
};

// Transfers of two pieces of three messages each: in turn by a block that has both columns, or by a block for each.
template <uint32_t ANSWERS, uint32_t ROUNDS, uint32_t POSTS, bool BRIEF>
struct TwoPieces : Exchanging<2, 0, 960, 1, ANSWERS, ROUNDS, 0, true, true, BRIEF> {
    TwoPieces()
    {
        for (uint32_t r = 0; r < RANKS; r++) {
            this->collective[r].message_bytes = 2048;
            this->exchange[r].columns = 2;
            this->exchange[r].posts = POSTS;
            this->exchange[r].lined = 2048;
            EXPECT_LE(this->collective[r].messages + 2 * 2 * RANKS * 2048, MEMORY);
        }
    }
};

// The launch of one lane, whose ring passes two transfers at once if all of them are small.
weir_collective_exchange put_together(weir_collective_exchange x)
{
    weir_exchange_lane &lane = x.lane[0];
    uint32_t units[WEIR_EXCHANGE_TRANSFERS] = {};
    uint32_t before = 0;
    bool small = true;
    for (uint32_t i = 0; i < lane.count; i++) {
        const uint64_t bytes = weir_exchange_bytes(&x.transfers[lane.first + i]);
        small = small && weir_exchange_is_small(&x, 0, bytes);
        units[i] = before;
        before += bytes == 0 ? 1 : ((static_cast<uint32_t>(bytes) - 1) >> RING_SHIFT) + 1;
    }
    for (uint32_t i = 0; i < lane.count && small; i++) {
        x.notes[lane.first + i] = static_cast<uint8_t>(units[i]);
    }
    lane.most = small ? 0 : 1;
    x.together = 2;
    return x;
}

// Whether the kernel for packets and lines may have the launch.
bool is_brief(const weir_collective_exchange &x)
{
    for (uint32_t lane = 0; lane < x.lanes; lane++) {
        for (uint32_t i = 0; i < x.lane[lane].count; i++) {
            const uint64_t bytes = weir_exchange_bytes(&x.transfers[x.lane[lane].first + i]);
            if (!weir_exchange_is_small(&x, lane, bytes) && !weir_exchange_is_lined(&x, x.lane[lane].first + i)) {
                return false;
            }
        }
    }
    return true;
}

// Whether the kernel in which all blocks send may have the launch: lanes that receive come first.
bool is_shared(const weir_collective_exchange &x)
{
    bool sends = false;
    for (uint32_t lane = 0; lane < x.lanes; lane++) {
        const uint64_t bytes = weir_exchange_bytes(&x.transfers[x.lane[lane].first]);
        if ((sends && x.lane[lane].receives != 0) || x.lined == 0 || x.rings != 0 || x.lane[lane].count != 1 ||
            weir_exchange_is_small(&x, lane, bytes) || weir_exchange_is_lined(&x, x.lane[lane].first)) {
            return false;
        }
        sends = sends || x.lane[lane].receives == 0;
    }
    return sends;
}

// Exchanges of up to three transfers each way, of any size, in launches whose kernels, memories and starts vary.
struct Random : Pair {
    static constexpr uint32_t THREADS = 2;
    static constexpr uint32_t BLOCKS = 2;
    static constexpr uint32_t SIZE = THREADS * BLOCKS; // of a rank
    static constexpr uint32_t threads = RANKS * SIZE;
    static constexpr uint32_t ROUNDS = 2;
    static constexpr uint32_t MOST = 3;         // transfers of a lane
    static constexpr uint64_t WORDS = 260;      // of a lane: with one column, half of them are too many for lines
    static constexpr uint64_t LONG_BYTES = 768; // of a long slot
    static uint32_t device(uint32_t i) { return i / SIZE; }
    struct Launch {
        weir_collective_exchange exchange;
        bool alone;
        bool brief;    // alone, wherever is_brief allows it
        bool shared;   // the same with is_shared
        bool together; // the same with one lane that has a ring
        uint32_t delays[SIZE];
    };
    Draw draw;
    alignas(128) char memory[RANKS][MEMORY] = {};
    alignas(128) char slots[RANKS][4 * (RANKS - 1) * LONG_BYTES] = {};
    Cell state[RANKS][WEIR_COLLECTIVE_CELLS] = {};
    weir_dev_difference differences[RANKS] = {};
    weir_dev_collective collective[RANKS] = {};
    Launch launches[RANKS][ROUNDS] = {};
    uint64_t bases[WEIR_COLLECTIVE_RANKS] = {};
    uint64_t in[RANKS][WORDS] = {};
    uint64_t out[RANKS][WORDS] = {};
    int wrong = 0;

    explicit Random(uint64_t seed) : draw(seed)
    {
        const bool lines = draw(3) != 0;
        const uint64_t slot = lines && draw(2) != 0 ? 2 * SLOT_BYTES : SLOT_BYTES;
        for (uint32_t r = 0; r < RANKS; r++) {
            weir_dev_collective &c = collective[r];
            join_collective(c, r, rank[r], state[r], differences, memory);
            place_messages(c, slot);
            weir_dev_control_begin(&rank[r].control, 100 * WAIT_NS);
        }
        place_bases(bases, out);
        const bool rings = draw(2) != 0;
        const uint32_t columns = rings ? 1 : 1 + draw(2);
        const bool both = draw(2) != 0;
        const uint64_t least_long = draw(3) == 0 ? UINT64_MAX : 1 + std::max<uint64_t>(columns * WEIR_LINE_DATA, SMALL);
        const uint32_t long_lined = !lines ? 0 : draw(2) != 0 ? LONG_BYTES : LONG_BYTES / 2;
        for (uint32_t round = 0; round < ROUNDS; round++) {
            for (uint32_t r = 0; r < RANKS; r++) {
                Launch &launch = launches[r][round];
                launch.alone = !(both && rings) && draw(2) != 0;
                launch.brief = draw(2) != 0;
                launch.shared = draw(2) != 0;
                launch.together = draw(2) != 0;
                for (uint32_t &delay : launch.delays) {
                    delay = draw(3) == 0 ? draw(200) : 0;
                }
                launch.exchange.columns = columns;
                launch.exchange.posts = both ? 1 : columns;
                launch.exchange.small = rings ? SMALL : 0;
                launch.exchange.rings = rings;
                launch.exchange.sides = launch.alone || rings || columns == 2 ? 1 : 1 + draw(2);
                launch.exchange.lined = lines ? SLOT_BYTES : 0;
                launch.exchange.least_long = least_long;
                launch.exchange.long_bytes = LONG_BYTES;
                launch.exchange.long_lined = long_lined;
                launch.exchange.bases = draw(3) != 0 ? bases : nullptr; // or recorded before the registration
                launch.exchange.rows[0] = 1;
            }
            const uint32_t first = draw(2);
            add_lanes(round, first);
            if (both) {
                add_lanes(round, 1 - first);
            }
        }
    }
    // Adds the transfers from rank `from` to the other: their sizes are those of the ring, of lines, or of many
    // messages.
    void add_lanes(uint32_t round, uint32_t from)
    {
        const uint32_t count = 1 + draw(MOST);
        const bool known[RANKS] = { draw(2) != 0, draw(2) != 0 };
        uint64_t at = 0;
        for (uint32_t i = 0; i < count; i++) {
            const uint64_t kinds[] = { draw(4), draw(40), draw(WORDS) };
            const uint64_t words = std::min(kinds[draw(3)], WORDS - at);
            const uint32_t met = words != 0 && draw(4) == 0 ? WEIR_EXCHANGE_MET : 0;
            for (uint32_t r = 0; r < RANKS; r++) {
                weir_collective_exchange &x = launches[r][round].exchange;
                weir_exchange_lane &lane = x.lane[x.lanes];
                lane.peer = static_cast<uint8_t>(1 - r);
                lane.receives = r != from;
                lane.slots = known[r] ? slots[1 - from] : nullptr; // or launched before they were mapped
                lane.first = static_cast<uint8_t>(x.lanes * MOST);
                lane.count = static_cast<uint8_t>(count);
                lane.most = 1;
                weir_exchange_transfer &t = x.transfers[lane.first + i];
                t.data = reinterpret_cast<char *>((r == from ? in[r] : out[r]) + at);
                t.count = words | static_cast<uint64_t>(WEIR_U64) << 56;
                const uint32_t memory = x.bases != nullptr && lane.receives != 0 ? draw(2) : 0;
                x.notes[lane.first + i] = static_cast<uint8_t>(memory | met);
                x.lanes += i + 1 == count;
            }
            at += words;
        }
    }
    // Calls visit(word) for each word of the launch's lanes in this direction.
    template <class Visit> void visit_lanes(const Launch &launch, bool receives, Visit visit)
    {
        for (uint32_t k = 0; k < launch.exchange.lanes; k++) {
            const weir_exchange_lane &lane = launch.exchange.lane[k];
            uint64_t words = 0;
            for (uint32_t i = 0; i < lane.count; i++) {
                words += weir_exchange_count(&launch.exchange.transfers[lane.first + i]);
            }
            for (uint64_t word = 0; word < words && (lane.receives != 0) == receives; word++) {
                visit(word);
            }
        }
    }
    // As the hosts of both ranks do when rank `of` receives.
    void show_slots(uint32_t of)
    {
        const uint64_t address = reinterpret_cast<uintptr_t>(slots[of]);
        weir_arch_store_relaxed_sys_u64(weir_message_long(&collective[of], of), address);
        weir_arch_store_release_sys_u64(&differences[of].first, address);
    }
    weir_status run(uint32_t r, const Launch &launch, const weir_coop &grid) const
    {
        const bool in_turn = launch.exchange.posts < launch.exchange.columns;
        if (launch.alone && launch.together && launch.exchange.lanes == 1 && launch.exchange.rings == 1) {
            const weir_collective_exchange x = put_together(launch.exchange);
            return weir_collective_exchange_together(&collective[r], &x, grid);
        }
        if (launch.alone && launch.brief && !in_turn && is_brief(launch.exchange)) {
            return weir_collective_exchange_brief(&collective[r], &launch.exchange, grid);
        }
        if (launch.alone && launch.shared && is_shared(launch.exchange)) {
            return weir_collective_exchange_shared(&collective[r], &launch.exchange, grid);
        }
        return launch.alone ? weir_collective_exchange_alone(&collective[r], &launch.exchange, grid)
                            : weir_collective_exchange_all(&collective[r], &launch.exchange, grid);
    }
    static uint64_t value(uint32_t from, uint64_t round, uint64_t word)
    {
        return 1000000 * (from + 1) + 10000 * (round + 1) + word;
    }
    void thread(uint32_t i)
    {
        const uint32_t r = i / SIZE;
        const weir_coop grid = grid_coop(rank[r], i % SIZE, BLOCKS, THREADS);
        for (uint32_t round = 0; round < ROUNDS; round++) {
            const Launch &launch = launches[r][round];
            if (grid.rank == 0) {
                visit_lanes(launch, false, [&](uint64_t word) { write(in[r][word], value(r, round, word)); });
                show_slots(r);
            }
            check(weir_coop_sync(grid)); // the launch
            pass_turns(launch.delays[i % SIZE]);
            check(run(r, launch, grid));
            check(weir_coop_sync(grid)); // its end
            if (grid.rank == 0) {
                visit_lanes(launch, true,
                            [&](uint64_t word) { wrong += read(out[r][word]) != value(1 - r, round, word); });
            }
        }
    }
    bool right() const { return failed == 0 && wrong == 0; }
};

// The first columns of transfers that follow each other are those of their numbers, also where the numbers begin again.
TEST(LitmusExchange, FirstColumnsFollowFromNumbers)
{
    weir_dev_collective c = {};
    weir_collective_exchange x = {};
    c.ranks = 8;
    c.rank = 5;
    x.lane[0].peer = 2;
    for (const uint32_t columns : { 1u, 2u, 7u, 12u, 66u }) {
        for (const uint32_t step : { 1u, 5u, 8u }) {
            x.columns = columns;
            x.step = step;
            for (const uint32_t first : { 0u, UINT32_MAX / step - 40, UINT32_MAX - 40 }) {
                weir_exchange_start start = weir_exchange_start_of(&c, &x, 0, first);
                for (uint32_t number = first; number != first + 80; number++) {
                    const weir_exchange_start alone = weir_exchange_start_of(&c, &x, 0, number);
                    ASSERT_EQ(start.column, alone.column) << number << ", " << columns << " columns, step " << step;
                    ASSERT_EQ(start.number, alone.number);
                    start = weir_exchange_start_after(start, step, columns);
                }
            }
        }
    }
}

// The pieces of a lane in a column, as a search finds them: the places of their data.
std::vector<char *> search_column(const weir_collective_exchange &x, uint32_t column, weir_exchange_start start)
{
    std::vector<char *> found;
    weir_exchange_state s = {};
    while (weir_exchange_find_in_column(&x, 0, column, &start, &s) != 0) {
        found.push_back(s.data);
        s.next++;
        start = weir_exchange_start_after(start, x.step, x.columns);
    }
    return found;
}

// The same by the first column of each transfer.
std::vector<char *> divide_column(const weir_dev_collective &c, const weir_collective_exchange &x, uint32_t column,
                                  uint32_t number)
{
    std::vector<char *> found;
    for (uint32_t i = 0; i < x.lane[0].count; i++) {
        const uint32_t first = weir_exchange_start_of(&c, &x, 0, number + i).column;
        const uint32_t piece = (column + x.columns - first) % x.columns;
        const uint64_t bytes = x.transfers[i].count & UINT64_MAX >> 8;
        const uint64_t whole = (bytes + WEIR_EXCHANGE_PIECE - 1) / WEIR_EXCHANGE_PIECE;
        const uint64_t pieces = std::min<uint64_t>(std::max<uint64_t>(whole, 1), x.columns);
        if (bytes >= x.small && piece < pieces && (piece == 0 || piece * weir_slots_range(bytes, pieces) < bytes)) {
            found.push_back(x.transfers[i].data + piece * weir_slots_range(bytes, pieces));
        }
    }
    return found;
}

// A search passes over transfers without a piece in its column, and over no other one.
TEST(LitmusExchange, SearchesFindEachPiece)
{
    std::mt19937 random(20261128);
    weir_dev_collective c = {};
    c.ranks = 8;
    c.rank = 3;
    for (const uint32_t columns : { 1u, 2u, 3u, 7u, 12u, 66u, 264u }) {
        for (uint32_t i = 0; i < 200; i++) {
            weir_collective_exchange x = {};
            x.columns = columns;
            x.step = columns == 1 ? 0 : 1 + random() % (columns < 9 ? columns - 1 : 8);
            x.inverse = columns == 1 ? 0 : ((1u << 16) + x.step - 1) / x.step;
            x.small = random() % 2 == 0 ? 0 : 4000;
            x.lane[0].peer = 6;
            x.lane[0].count = static_cast<uint8_t>(1 + random() % 100);
            const uint32_t most = 1 + random() % (random() % 2 == 0 ? 4 : columns);
            for (uint32_t k = 0; k < x.lane[0].count; k++) {
                x.transfers[k].data = reinterpret_cast<char *>(static_cast<uintptr_t>(k + 1) << 32);
                x.transfers[k].count = random() % (most * WEIR_EXCHANGE_PIECE) | static_cast<uint64_t>(WEIR_U8) << 56;
                const uint64_t bytes = weir_exchange_bytes(&x.transfers[k]);
                const uint32_t pieces = bytes < x.small ? 0 : weir_exchange_pieces(bytes, columns);
                x.lane[0].most = std::max<uint16_t>(x.lane[0].most, static_cast<uint16_t>(pieces));
            }
            // Half of the numbers begin again.
            const uint32_t again = UINT32_MAX / std::max(x.step, 1u) - 50 + random() % 100;
            const uint32_t number = i % 2 == 0 ? again : static_cast<uint32_t>(random());
            const weir_exchange_start start = weir_exchange_start_of(&c, &x, 0, number);
            for (uint32_t column = 0; column < columns; column++) {
                ASSERT_EQ(search_column(x, column, start), divide_column(c, x, column, number))
                    << column << " of " << columns << ", step " << x.step << ", number " << number;
            }
        }
    }
}

// A block with some columns of a lane takes the pieces that lie there, and each piece has one block.
TEST(LitmusExchange, EachPieceHasOneBlock)
{
    weir_collective_exchange x = {};
    for (const uint32_t columns : { 1u, 2u, 5u, 12u }) {
        for (uint32_t i = 0; i < columns * columns; i++) {
            const uint32_t first = i / columns;
            x.columns = columns;
            x.posts = i % columns + 1;
            std::vector<uint32_t> blocks(columns);
            weir_exchange_post post = {};
            for (post.first = 0; post.first < x.posts; post.first++) {
                for (post.piece = weir_exchange_piece_of(&x, &post, first); post.piece < columns;
                     post.piece = weir_exchange_piece_of(&x, &post, first)) {
                    EXPECT_EQ((first + post.piece) % columns % x.posts, post.first);
                    blocks[post.piece++]++;
                }
                post.piece = 0;
            }
            EXPECT_EQ(blocks, std::vector<uint32_t>(columns, 1)) << x.posts << " of " << columns << ", from " << first;
        }
    }
}

// Three words fit into a slot of the ring, and four do not.
TEST(LitmusExchange, RingsNeedNoSignal) { holds<Exchanging<2, 2, 3, 2, 2, 2>>(WEIRT_WEAK_NO_SYSTEM); }
// Seven transfers of two units go through a ring of eight.
TEST(LitmusExchange, SlotsOfARingAreNotOverwritten) { holds<Exchanging<1, 1, 3, 7, 0, 1>>(WEIRT_WEAK_NO_SYSTEM); }
// Launches of one transfer: the sender is some launches ahead of the receiver.
TEST(LitmusExchange, RingsKeepTheirSlotsBetweenLaunches) { holds<Exchanging<1, 1, 3, 1, 0, 6, 400>>(0); }
TEST(LitmusExchange, ReceiversOfTheRingKnowTheMessagesOfTheColumn) { holds<LateRing>(0); }
TEST(LitmusExchange, OneBlockServesBothRings) { holds<Exchanging<1, 1, 2, 5, 5, 1>>(WEIRT_WEAK_NO_SYSTEM); }
TEST(LitmusExchange, ColumnsSignal)
{
    holds<Exchanging<2, 0, 4, 2, 1, 2>>(WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE);
}

// Up to three messages of a launch go through the two slots of a column.
TEST(LitmusExchange, SlotsOfAColumnAreNotOverwritten) { holds<Exchanging<2, 0, 4, 5, 0, 2>>(WEIRT_WEAK_NO_RELEASE); }

// The same by blocks that serve one lane each.
TEST(LitmusExchange, RingsOfBlocksAlone) { holds<Exchanging<2, 2, 3, 2, 2, 2, 0, true>>(WEIRT_WEAK_NO_SYSTEM); }
TEST(LitmusExchange, SlotsOfARingOfABlockAlone) { holds<Exchanging<1, 1, 3, 7, 0, 1, 0, true>>(WEIRT_WEAK_NO_SYSTEM); }
TEST(LitmusExchange, RingsOfBlocksAloneBetweenLaunches) { holds<Exchanging<1, 1, 3, 1, 0, 6, 400, true>>(0); }
// Two transfers of two units at once, each by a thread. Two batches fit into the ring.
TEST(LitmusExchange, BatchesOfARing)
{
    holds<Exchanging<2, 2, 3, 7, 3, 1, 0, true, false, false, 2>>(WEIRT_WEAK_NO_SYSTEM);
}
TEST(LitmusExchange, ASenderWaitsForAFullRing) { holds<FullRing>(0); }
TEST(LitmusExchange, TransfersEndBehindTheRing) { holds<OddRing<1>>(WEIRT_WEAK_NO_SYSTEM); }
TEST(LitmusExchange, BatchesEndBehindTheRing) { holds<OddRing<2>>(WEIRT_WEAK_NO_SYSTEM); }
// A block with the rings of both lanes sends before it receives.
TEST(LitmusExchange, RingsOfABlockWithBothLanes) { holds<Exchanging<1, 1, 2, 1, 1, 3, 0, true>>(WEIRT_WEAK_NO_SYSTEM); }
TEST(LitmusExchange, PiecesOfABlockAloneInOrder) { holds<TwoPieces<1, 1, 1, false>>(WEIRT_WEAK_NO_SYSTEM); }
TEST(LitmusExchange, PiecesOfBlocksWithOneColumn) { holds<TwoPieces<0, 2, 2, true>>(WEIRT_WEAK_NO_SYSTEM); }
TEST(LitmusExchange, RingsOfBriefLaunches)
{
    holds<Exchanging<1, 1, 3, 1, 0, 6, 400, true, false, true>>(WEIRT_WEAK_NO_SYSTEM);
}
TEST(LitmusExchange, ColumnsOfBlocksAloneSignal)
{
    holds<Exchanging<2, 0, 4, 2, 0, 2, 0, true>>(WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE);
}
TEST(LitmusExchange, SlotsOfAColumnOfABlockAlone)
{
    holds<Exchanging<2, 0, 4, 5, 0, 2, 0, true>>(WEIRT_WEAK_NO_RELEASE);
}

// Lines need no release, and the call before them comes as packets.
TEST(LitmusExchange, ColumnsOfLines) { holds<Exchanging<2, 0, 4, 2, 1, 2, 0, false, true>>(WEIRT_WEAK_NO_SYSTEM); }
TEST(LitmusExchange, ReceiversOfLinesWaitForTheCall) { holds<LateLines>(0); }
TEST(LitmusExchange, SlotsOfLinesAreNotOverwritten)
{
    holds<Exchanging<1, 0, 4, 5, 0, 2, 0, false, true>>(WEIRT_WEAK_NO_SYSTEM);
}
TEST(LitmusExchange, ColumnsOfLinesOfBlocksAlone)
{
    holds<Exchanging<2, 0, 4, 2, 0, 2, 0, true, true>>(WEIRT_WEAK_NO_SYSTEM);
}
TEST(LitmusExchange, SlotsOfLinesOfABlockAlone)
{
    holds<Exchanging<2, 0, 4, 5, 0, 2, 0, true, true>>(WEIRT_WEAK_NO_SYSTEM);
}

// The receiver offers its buffer, and the sender stores the data there.
TEST(LitmusExchange, DataGoesIntoRegisteredMemory)
{
    holds<Direct<0, false>>(WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE);
}
TEST(LitmusExchange, DataOfBlocksAloneGoesIntoRegisteredMemory)
{
    holds<Direct<0, true>>(WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE);
}
TEST(LitmusExchange, HelpersCopyPartsOfAPiece)
{
    holds<Shared<0, false>>(WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE);
}
TEST(LitmusExchange, HelpersWithoutALaneWaitForTheOffer) { holds<Shared<400, false>>(0); }
TEST(LitmusExchange, HelpersLeaveAPieceThatGoesThroughSlots) { holds<Shared<0, true>>(WEIRT_WEAK_NO_RELEASE); }
TEST(LitmusExchange, SendersWaitForTheOffer) { holds<Direct<400, true>>(0); }

// The receiver of one transfer expects another count than the sender has: it reports both. Its buffer, which may be
// registered, gets no more than it expects.
struct Differing : Random {
    uint32_t receiver = 0;
    uint32_t number = 0; // of the transfer
    uint64_t sent = 0;
    uint64_t expected = 0;

    explicit Differing(uint64_t seed) : Random(seed)
    {
        for (uint32_t r = 0; r < RANKS; r++) {
            weir_dev_control_begin(&rank[r].control, 4 * WAIT_NS);
        }
        receiver = launches[0][0].exchange.lane[0].receives != 0 ? 0 : 1;
        weir_collective_exchange &x = launches[receiver][0].exchange;
        number = draw(x.lane[0].count);
        weir_exchange_transfer &t = x.transfers[x.lane[0].first + number];
        sent = weir_exchange_count(&t);
        expected = draw(2) != 0 ? draw(4) : draw(WORDS);
        expected += expected == sent;
        t.data = reinterpret_cast<char *>(unexpected);
        uint8_t &registered = x.notes[x.lane[0].first + number];
        registered = static_cast<uint8_t>((registered & WEIR_EXCHANGE_MET) | (x.bases != nullptr ? draw(2) : 0));
        t.count = expected | static_cast<uint64_t>(WEIR_U64) << 56;
        bool receives_long = false;
        for (uint32_t k = 0; k < x.lane[0].count; k++) {
            receives_long |= weir_exchange_is_long(&x, weir_exchange_bytes(&x.transfers[x.lane[0].first + k])) != 0;
        }
        show_slots(1 - receiver);
        if (receives_long) {
            show_slots(receiver);
        } else { // its host prepares none, and the sender may wait for them
            for (weir_exchange_lane &lane : launches[1 - receiver][0].exchange.lane) {
                lane.slots = nullptr;
            }
        }
    }
    void thread(uint32_t i)
    {
        const uint32_t r = i / SIZE;
        const weir_coop grid = grid_coop(rank[r], i % SIZE, BLOCKS, THREADS);
        const Launch &launch = launches[r][0];
        pass_turns(launch.delays[i % SIZE]);
        (void)run(r, launch, grid);
        for (uint64_t word = expected; word <= WORDS && r == receiver && grid.rank == 0; word++) {
            wrong += read(unexpected[word]) != 0;
        }
    }
    bool right() const
    {
        const weir_dev_difference &d = differences[1 - receiver];
        return wrong == 0 && rank[receiver].control.error_status == WEIR_ERR_MISMATCH && d.found != 0 &&
               d.mine[2] == expected && d.theirs[2] == sent && d.mine[1] == d.theirs[1] && d.mine[0] == d.theirs[0];
    }
    uint64_t unexpected[WORDS + 1] = {};
};

TEST(LitmusExchange, AnyDifferenceIsFound) { holds<Differing>(0, 3 * HELD_SEEDS); }
TEST(LitmusExchange, AnyTransfersInAnyLaunches) { holds<Random>(0, 3 * HELD_SEEDS); }

} // namespace
