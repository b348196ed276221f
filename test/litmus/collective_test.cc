// Promises of collectives: calls of any form follow each other, and in registered memory blocks meet by their calls
// alone; docs/memory-ordering.md.
#include "weir/device/collective.h"
#include "weir/device/impl/collective_two.h"

#include "weir/device/impl/collective_parts_lines.h"

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
    Cell state[RANKS][WEIR_COLLECTIVE_CELLS] = {};
    weir_dev_difference differences[RANKS] = {};
    weir_dev_collective collective[RANKS] = {};
    alignas(16) uint64_t in[RANKS][RANKS * WORDS] = {};
    alignas(16) uint64_t out[RANKS][RANKS * WORDS] = {};
    uint64_t chunk; // bytes that a thread draws; 0: each block has its range
    int wrong = 0;

    explicit Registered(uint64_t seed) : chunk(seed % 2 * 64)
    {
        for (uint32_t r = 0; r < RANKS; r++) {
            join_collective(collective[r], r, rank[r], state[r], differences, memory);
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
    using Registered::Registered;
    void thread(uint32_t i)
    {
        const uint32_t r = i / SIZE;
        const weir_coop grid = grid_coop(rank[r], i % SIZE, BLOCKS, 2);
        weir_collective_reduce reduce = {};
        reduce.send = reinterpret_cast<char *>(in[r]);
        reduce.recv = reinterpret_cast<char *>(out[r]);
        reduce.part = reduce.length = WORDS * 8;
        reduce.bytes = RANKS * WORDS * 8;
        reduce.chunk = chunk;
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
    using Registered::Registered;
    void thread(uint32_t i)
    {
        const uint32_t r = i / SIZE;
        const weir_coop grid = grid_coop(rank[r], i % SIZE, BLOCKS, 2);
        weir_collective_move move = {};
        move.send = reinterpret_cast<char *>(in[r]);
        move.recv = reinterpret_cast<char *>(out[r]);
        move.most = WORDS * 8;
        move.peer_recv_at = r * WORDS * 8;
        move.chunk = chunk;
        for (uint32_t k = 0; k < RANKS; k++) {
            move.pieces[k].send.bytes = move.pieces[k].recv.bytes = WORDS * 8;
            move.pieces[k].recv.at = k * WORDS * 8;
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

// ---- any calls ----------------------------------------------------------------------------------------------------

// Four calls of N ranks, of any operation, form and size, in launches that start at any time. Each rank has two
// blocks. All buffers are registered; calls of the form REGISTERED use that.
template <uint32_t N> struct AnyCalls {
    static constexpr uint32_t SIZE = 8 / N; // threads of a rank
    static constexpr uint32_t threads = N * SIZE;
    static constexpr uint32_t CALLS = 4;
    static constexpr uint64_t MOST = N == 2 ? 150 : 24;    // words of a piece; of two ranks two batches of lines
    static constexpr uint64_t ROOM = N == 2 ? 2560 : 1024; // bytes of packets or lines of a rank
    static uint32_t device(uint32_t i) { return i / SIZE; }
    static constexpr uint32_t PARTS = 2;
    static constexpr uint64_t PART = N * MOST / PARTS; // words of a part, of all ranks
    enum Form { ONCE, PACKETS, LINES, SLOTS, REGISTERED, FORMS };
    enum Kind {
        ALLREDUCE,
        REDUCE,
        REDUCE_SCATTER,
        ALLGATHER,
        ALL_TO_ALL,
        BROADCAST,
        GATHER_PARTS,
        REDUCE_PARTS,
        KINDS
    };
    struct Call {
        Kind kind;
        Form form;
        uint64_t words; // of a rank's data in a reduction of all data, else of a piece
        uint32_t root;
        bool in_place;
        bool split;                 // a call by slots between two ranks, if they send different numbers of bytes
        uint64_t chunk;             // bytes that a thread draws of registered memory; 0: each block has its range
        uint64_t extents[PARTS][N]; // words
        uint32_t delays[threads];
    };
    Draw draw;
    Rank rank[N] = {};
    alignas(128) char memory[N][64 << 10] = {};
    Cell state[N][WEIR_COLLECTIVE_CELLS] = {};
    weir_dev_difference differences[N] = {};
    weir_dev_collective collective[N] = {};
    Call calls[CALLS] = {};
    alignas(16) uint64_t in[N][N * MOST] = {};
    alignas(16) uint64_t out[N][N * MOST] = {};
    int failed = 0;
    int wrong = 0;

    explicit AnyCalls(uint64_t seed) : draw(seed)
    {
        for (uint32_t r = 0; r < N; r++) {
            weir_dev_control_begin(&rank[r].control, 100 * WAIT_NS);
            rank[r].barrier.control = &rank[r].control;
            rank[r].barrier.word = &rank[r].barrier_word;
            join(r);
        }
        for (Call &call : calls) {
            call = draw_call();
        }
    }
    Call draw_call()
    {
        Call call = {};
        call.kind = static_cast<Kind>(draw(KINDS));
        call.form = static_cast<Form>(draw(FORMS));
        const bool has_once = call.kind == ALLREDUCE || call.kind == REDUCE;
        call.in_place = (call.kind == ALLREDUCE || call.kind == ALL_TO_ALL) && draw(2) != 0;
        const bool has_registered = call.kind == REDUCE || call.kind == REDUCE_PARTS ? false
                                    : reduces(call)                                  ? N == 2
                                                    : call.kind != ALL_TO_ALL || !call.in_place;
        call.form =
            (call.form == ONCE && !has_once) || (call.form == REGISTERED && !has_registered) ? SLOTS : call.form;
        call.words = 1 + draw(draw(2) != 0 ? 4 : MOST);
        call.root = draw(N);
        call.split = draw(2) != 0;
        call.chunk = 32 * draw(3);
        for (uint64_t(&extents)[N] : call.extents) {
            for (uint64_t &words : extents) {
                words = draw(2) != 0 ? draw(4) : draw(PART / N + 1);
            }
        }
        const uint32_t empty = draw(4 * N); // in one call of four a rank has no elements
        for (uint64_t(&extents)[N] : call.extents) {
            extents[empty % N] *= empty >= N;
        }
        for (uint32_t &delay : call.delays) {
            delay = draw(4) == 0 ? draw(100) : 0;
        }
        return call;
    }
    virtual const Call &of(uint32_t r, uint64_t number) const
    {
        (void)r;
        return calls[number];
    }
    static weir_collective_what what_of(const Call &call, uint64_t number)
    {
        return { number << 8 | static_cast<uint64_t>(call.kind) << 4 | call.form, call.words, 0 };
    }
    void join(uint32_t r)
    {
        weir_dev_collective &c = collective[r];
        join_collective(c, r, rank[r], state[r], differences, memory);
        c.blocks = 2;
        c.packet_room = ROOM;
        c.line_room = N == 2 ? ROOM / 4 : ROOM; // between two ranks lines go on behind their room
        c.mailboxes = weir_collective_lines(&c) + (N == 2 ? 9 : 4 * N) * c.line_room;
        c.slots = weir_collective_cell(&c, WEIR_CELL_KINDS, 0, 0);
        c.slot_columns = N == 2 ? 2 : 1;
        c.slot_bytes = 128;
    }
    // The word of rank `from` for the place `at` in call `number`, and the sum of those of all ranks.
    static uint64_t value(uint32_t from, uint64_t number, uint64_t at)
    {
        return 1000000 * (from + 1) + 10000 * (number + 1) + at;
    }
    static uint64_t sum(uint64_t number, uint64_t at)
    {
        uint64_t all = 0;
        for (uint32_t k = 0; k < N; k++) {
            all += value(k, number, at);
        }
        return all;
    }
    // `split` of a description for two blocks.
    static uint32_t split_of(uint64_t out, uint64_t in)
    {
        return N != 2 || out == in ? 0 : 1 + (in == 0 ? 2 : out == 0 ? 0 : 1);
    }
    static uint32_t columns_of(uint32_t split, bool sends)
    {
        return split == 0 || split == 2 ? 1 : (split == 3) == sends ? 2 : 1;
    }
    static bool reduces(const Call &call) { return call.kind <= REDUCE_SCATTER; }
    static bool has_parts(const Call &call) { return call.kind >= GATHER_PARTS; }
    // Words of the extents of a part before that of a rank.
    static uint64_t before(const Call &call, uint32_t part, uint32_t r)
    {
        uint64_t words = 0;
        for (uint32_t k = 0; k < r; k++) {
            words += call.extents[part][k];
        }
        return words;
    }
    // Words that each rank sends and receives, in all. Parts have room for more.
    static uint64_t sent(const Call &call)
    {
        return has_parts(call)                                          ? PARTS * PART
               : call.kind == REDUCE_SCATTER || call.kind == ALL_TO_ALL ? N * call.words
                                                                        : call.words;
    }
    static uint64_t received(const Call &call)
    {
        return has_parts(call)                                     ? PARTS * PART
               : call.kind == ALLGATHER || call.kind == ALL_TO_ALL ? N * call.words
                                                                   : call.words;
    }
    // Whether one of two ranks takes the kernel for two. The other may take the general one, because of its addresses.
    bool takes_own(uint32_t r, uint64_t number) const
    {
        return (of(0, number).delays[0] + of(0, number).delays[1]) >> r & 1;
    }
    weir_status reduce(uint32_t r, uint64_t number, const weir_coop &grid)
    {
        const Call &call = of(r, number);
        weir_collective_reduce d = {};
        d.what = what_of(call, number);
        d.send = reinterpret_cast<const char *>(call.in_place ? out[r] : in[r]);
        d.recv = reinterpret_cast<char *>(out[r]);
        d.bytes = 8 * sent(call);
        d.part = 8 * call.words;
        if (call.kind != REDUCE_SCATTER) {
            const uint64_t unit = call.form == LINES ? WEIR_LINE_DATA : 128;
            d.part = ((d.bytes + N - 1) / N + unit - 1) / unit * unit;
            d.to = call.kind == REDUCE ? 1u << call.root : (1u << N) - 1;
        }
        const bool two = N == 2 && call.form == LINES && (call.kind == ALLREDUCE || call.kind == REDUCE_SCATTER);
        if (two && call.kind == ALLREDUCE) {
            d.part = d.to = 0; // at once
        }
        d.length = d.part != 0 ? d.part : d.bytes;
        d.chunk = call.form == REGISTERED ? call.chunk : 128;
        for (uint32_t k = 0; k < N && call.form == REGISTERED; k++) {
            d.peer_send[k] = reinterpret_cast<char *>(call.in_place ? out[k] : in[k]);
            d.peer_recv[k] = d.to != 0 ? reinterpret_cast<char *>(out[k]) : nullptr;
        }
        switch (call.form) {
        case REGISTERED:
            return weir_collective_reduce_zero_copy(&collective[r], &d, WEIR_U64, WEIR_SUM, grid);
        case ONCE:
            return weir_collective_reduce_once(&collective[r], &d, WEIR_U64, WEIR_SUM, grid);
        case PACKETS:
            return weir_collective_reduce_packets(&collective[r], &d, WEIR_U64, WEIR_SUM, grid);
        case LINES:
            return two && takes_own(r, number)
                       ? weir_reduce_lines_two(&collective[r], &d, NULL, WEIR_U64, WEIR_SUM, grid)
                       : weir_collective_reduce_lines(&collective[r], &d, WEIR_U64, WEIR_SUM, grid);
        default:
            return weir_collective_reduce_slots(&collective[r], &d, WEIR_U64, WEIR_SUM, grid);
        }
    }
    weir_status move(uint32_t r, uint64_t number, const weir_coop &grid)
    {
        const Call &call = of(r, number);
        const uint64_t piece = 8 * call.words;
        weir_collective_move d = {};
        d.what = what_of(call, number);
        d.send = reinterpret_cast<const char *>(call.in_place ? out[r] : in[r]);
        d.recv = reinterpret_cast<char *>(out[r]);
        d.most = piece;
        d.chunk = call.form == REGISTERED ? call.chunk : 128;
        d.in_place = call.in_place;
        for (uint32_t k = 0; k < N; k++) {
            d.pieces[k].send.at = call.kind == ALL_TO_ALL ? piece * k : 0;
            d.pieces[k].send.bytes = call.kind == BROADCAST && call.root != r ? 0 : piece;
            d.pieces[k].recv.at = call.kind == BROADCAST ? 0 : piece * k;
            d.pieces[k].recv.bytes = call.kind == BROADCAST && call.root != k ? 0 : piece;
            d.peer_recv[k] = call.form == REGISTERED ? reinterpret_cast<char *>(out[k]) : nullptr;
        }
        if (call.split) {
            d.split = split_of(d.pieces[(r + 1) % N].send.bytes, d.pieces[(r + 1) % N].recv.bytes);
        }
        for (uint32_t k = 0; k < N; k++) {
            d.send_range[k] = weir_slots_range(d.pieces[k].send.bytes, columns_of(d.split, true));
            d.recv_range[k] = weir_slots_range(d.pieces[k].recv.bytes, columns_of(d.split, false));
        }
        d.peer_recv_at = call.kind == BROADCAST ? 0 : piece * r;
        switch (call.form) {
        case PACKETS:
            return weir_collective_move_packets(&collective[r], &d, grid);
        case LINES:
            return N == 2 && takes_own(r, number) ? weir_move_lines_two(&collective[r], &d, grid)
                                                  : weir_collective_move_lines(&collective[r], &d, grid);
        default:
            return weir_collective_move_slots(&collective[r], &d, grid);
        }
    }
    weir_status parts(uint32_t r, uint64_t number, const weir_coop &grid)
    {
        const Call &call = of(r, number);
        const bool joins = call.kind == REDUCE_PARTS;
        const uint32_t unit = call.form == LINES ? WEIR_LINE_BYTES : WEIR_PARTS_UNIT;
        const uint32_t data = weir_parts_data(unit);
        weir_collective_parts d = {};
        d.what = what_of(call, number);
        d.base = reinterpret_cast<char *>(out[r]);
        d.chunk = 128;
        d.count = PARTS;
        d.stride = 2 + N;
        d.dtype = WEIR_U64;
        d.op = WEIR_SUM;
        for (uint32_t part = 0; part < PARTS; part++) {
            uint64_t *row = d.words + part * d.stride;
            row[0] = reinterpret_cast<uintptr_t>(in[r] + part * PART);
            row[1] = reinterpret_cast<uintptr_t>(out[r] + part * PART);
            for (uint32_t k = 0; k < N; k++) {
                const uint64_t bytes = 8 * call.extents[part][k];
                const uint64_t units = (bytes + data - 1) / data;
                row[2 + k] = before(call, part, k) << 32 | (d.of[k].bytes + units * data - bytes);
                d.of[k].bytes += units * unit;
            }
        }
        for (uint32_t k = 0; k < N; k++) {
            d.most = d.of[k].bytes > d.most ? d.of[k].bytes : d.most;
            d.peer_recv[k] = call.form == REGISTERED ? reinterpret_cast<char *>(out[k]) : nullptr;
        }
        if (call.split && call.form == SLOTS) {
            d.split = split_of(d.of[joins ? (r + 1) % N : r].bytes, d.of[joins ? r : (r + 1) % N].bytes);
        }
        for (uint32_t k = 0; k < N; k++) {
            const bool both = joins && N == 2 && d.split == 0; // each block is a column that sends and joins
            d.range[k] = weir_slots_range(d.of[k].bytes, both ? 2 : columns_of(d.split, (k == r) != joins));
        }
        if (call.form == LINES) {
            return takes_own(r, number) // the kernel for any type, or the one for its type
                       ? weir_collective_parts_lines(&collective[r], &d, joins, WEIR_PARTS_ANY_TYPE, WEIR_SUM, grid)
                       : weir_collective_parts_lines(&collective[r], &d, joins, WEIR_U64, WEIR_SUM, grid);
        }
        if (call.form == PACKETS) {
            return weir_collective_parts_packets(&collective[r], &d, joins, grid);
        }
        return joins ? weir_collective_reduce_parts_slots(&collective[r], &d, WEIR_PARTS_ANY_TYPE, WEIR_SUM, 0, grid)
                     : weir_collective_gather_parts_slots(&collective[r], &d, grid);
    }
    // Checks the word of the part that lies `at` words from its start: the extents of all ranks follow each other in an
    // allgather. A reduce_scatter has the rank's own extent there.
    bool is_right_part(uint32_t r, uint64_t number, uint32_t part, uint64_t at, uint64_t word) const
    {
        const Call &call = of(r, number);
        if (call.kind == REDUCE_PARTS) {
            return at >= call.extents[part][r] || word == sum(number, part * PART + before(call, part, r) + at);
        }
        uint32_t k = 0;
        while (k < N && at >= before(call, part, k + 1)) {
            k++;
        }
        return k == N || word == value(k, number, part * PART + at - before(call, part, k));
    }
    uint64_t expected(uint32_t r, uint64_t number, uint64_t at) const
    {
        const Call &call = of(r, number);
        const uint64_t word = at % call.words;
        switch (call.kind) {
        case REDUCE_SCATTER:
            return sum(number, r * call.words + at);
        case ALLGATHER:
            return value(static_cast<uint32_t>(at / call.words), number, word);
        case ALL_TO_ALL:
            return value(static_cast<uint32_t>(at / call.words), number, r * call.words + word);
        case BROADCAST:
            return value(call.root, number, at);
        default:
            return sum(number, at);
        }
    }
    weir_status run(uint32_t r, uint64_t number, const weir_coop &grid)
    {
        const Call &call = of(r, number);
        return has_parts(call) ? parts(r, number, grid)
               : reduces(call) ? reduce(r, number, grid)
                               : move(r, number, grid);
    }
    void thread(uint32_t i)
    {
        const uint32_t r = i / SIZE;
        const weir_coop grid = grid_coop(rank[r], i % SIZE, BLOCKS, SIZE / BLOCKS);
        for (uint64_t number = 0; number < CALLS; number++) {
            const Call &call = of(r, number);
            uint64_t *data = call.in_place ? out[r] : in[r];
            for (uint64_t at = 0; at < sent(call) && grid.rank == 0; at++) {
                write(data[at], value(r, number, at));
            }
            failed |= weir_coop_sync(grid) != WEIR_OK; // the launch
            pass_turns(call.delays[i]);
            failed |= run(r, number, grid) != WEIR_OK;
            failed |= weir_coop_sync(grid) != WEIR_OK; // its end
            const bool gets = call.kind != REDUCE || call.root == r;
            for (uint64_t at = 0; at < received(call) && grid.rank == 0 && gets; at++) {
                const uint64_t word = read(out[r][at]);
                wrong += has_parts(call) ? !is_right_part(r, number, static_cast<uint32_t>(at / PART), at % PART, word)
                                         : word != expected(r, number, at);
            }
        }
    }
    bool right() const { return failed == 0 && wrong == 0; }
};

// One rank makes another call than the others: all ranks report it, as the first rank that differs from rank 0, or as
// the difference between two ranks.
template <uint32_t N> struct AnyDifference : AnyCalls<N> {
    using Calls = AnyCalls<N>;
    weir_dev_difference found[N][N] = {};
    uint32_t differs = 0;
    typename Calls::Call other = {};

    explicit AnyDifference(uint64_t seed) : Calls(seed)
    {
        differs = this->draw(N);
        do {
            other = this->draw_call();
        } while (is_equal(Calls::what_of(other, 0), Calls::what_of(this->calls[0], 0)));
        for (uint32_t r = 0; r < N; r++) {
            weir_dev_control_begin(&this->rank[r].control, 4 * WAIT_NS);
            this->collective[r].differences = found[r];
        }
    }
    static bool is_equal(const weir_collective_what &a, const weir_collective_what &b)
    {
        return a.call == b.call && a.count == b.count;
    }
    static bool is_equal(const uint64_t *words, const weir_collective_what &what)
    {
        return words[0] == what.call && words[2] == what.count;
    }
    const typename Calls::Call &of(uint32_t r, uint64_t number) const override
    {
        return r == differs ? other : this->calls[number];
    }
    void thread(uint32_t i)
    {
        const uint32_t r = i / Calls::SIZE;
        const weir_coop grid = grid_coop(this->rank[r], i % Calls::SIZE, BLOCKS, Calls::SIZE / BLOCKS);
        pass_turns(of(r, 0).delays[i]);
        (void)this->run(r, 0, grid);
    }
    bool right() const
    {
        uint32_t told = 0;
        for (uint32_t r = 0; r < N; r++) {
            for (uint32_t k = 0; k < N; k++) {
                const weir_dev_difference &d = found[r][k];
                const uint32_t first = differs == 0 ? 1 : differs;
                const uint32_t mine = d.first != 0 ? first : r; // or a rank was late: the pair that has found it
                const bool pair = d.first != 0 ? k == r && d.first == first + 1 : r == differs || k == differs;
                const bool right = pair && is_equal(d.mine, Calls::what_of(of(mine, 0), 0)) &&
                                   is_equal(d.theirs, Calls::what_of(of(d.first != 0 ? 0 : k, 0), 0));
                if (d.found != 0 && !right) {
                    return false;
                }
                told |= static_cast<uint32_t>(d.found != 0) << r;
            }
        }
        return told == (1u << N) - 1;
    }
};

TEST(LitmusCollective, AnyCallsOfTwoRanks)
{
    holds<AnyCalls<2>>(WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE | WEIRT_WEAK_NO_SYSTEM | WEIRT_WEAK_NO_BARRIER,
                       6 * HELD_SEEDS);
}
TEST(LitmusCollective, AnyCallsOfFourRanks)
{
    holds<AnyCalls<4>>(WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE | WEIRT_WEAK_NO_SYSTEM, 2 * HELD_SEEDS);
}

TEST(LitmusCollective, AnyDifferenceAmongTwoRanks) { holds<AnyDifference<2>>(0, 2 * HELD_SEEDS); }
TEST(LitmusCollective, AnyDifferenceAmongFourRanks) { holds<AnyDifference<4>>(0, 2 * HELD_SEEDS); }

// ---- registered memory --------------------------------------------------------------------------------------------

TEST(LitmusCollective, RanksReadWhatEarlierKernelsWrote)
{
    holds<Summing>(WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE);
}
TEST(LitmusCollective, RanksWriteWhereEarlierKernelsRead)
{
    holds<Gathering>(WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE);
}

} // namespace
