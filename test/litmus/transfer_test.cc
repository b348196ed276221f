// Transfers of random sizes and alignments by random groups, with the handshakes of docs/memory-ordering.md.
#include "test/litmus/litmus.h"

namespace {

using namespace litmus;

enum Kind { PUT, GET, LL16, LINES, EXCHANGE_LL16, EXCHANGE_LINES, KINDS };

constexpr uint64_t ROUNDS = 3;
constexpr uint64_t BYTES_MAX = 8 * DATA_WORDS;

uint8_t pattern(uint32_t rank, uint64_t i) { return static_cast<uint8_t>(1 + i * 7 + i / 61 + rank * 101); }

// Threads 0 to 3 are rank 0 and send, threads 4 to 7 are rank 1 and receive; both do both in an exchange. The source
// is the lower half of each rank's data, and the destination the upper half of its data, or its sink.
struct Transfer : Pair {
    static constexpr uint32_t threads = 8;
    static constexpr uint64_t HALF = BYTES_MAX / 2;
    static uint32_t device(uint32_t i) { return i / 4; }

    uint64_t state;
    Kind kind;
    uint32_t blocks;
    uint32_t width;
    bool grid;
    uint64_t bytes;
    uint64_t from[ROUNDS];
    uint64_t to;
    int wrong = 0;

    explicit Transfer(uint64_t seed) : state(seed * 2654435761u + 1)
    {
        kind = static_cast<Kind>(draw(KINDS));
        blocks = 1 + draw(2);
        width = 1 + draw(2);
        grid = blocks > 1 || draw(2) != 0;
        // Half of them in whole words, which have separate code paths.
        uint64_t unit = draw(2) != 0 ? 16 : 1;
        bytes = (1 + draw((HALF - 48) / unit - 1)) * unit;
        to = draw(16 / unit) * unit;
        for (uint64_t &offset : from) {
            offset = draw(32 / unit) * unit;
        }
        for (uint32_t r = 0; r < 2; r++) {
            weir_dev_control_begin(&rank[r].control, 4 * WAIT_NS);
            for (uint64_t i = 0; i < HALF; i++) {
                reinterpret_cast<uint8_t *>(rank[r].data)[i] = pattern(r, i);
            }
        }
    }

    uint32_t draw(uint64_t below)
    {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return static_cast<uint32_t>((state >> 33) % below);
    }

    bool exchanges() const { return kind == EXCHANGE_LL16 || kind == EXCHANGE_LINES; }

    weir_status send(uint32_t me, uint64_t round, weir_coop coop)
    {
        const weir_dev_memory_channel *packets = &rank[me].sender;
        switch (kind) {
        case PUT:
            return weir_dev_memory_channel_put(&rank[me].channel, HALF + to, from[round], bytes, coop);
        case LL16:
            return weir_dev_memory_channel_put_ll16(packets, 0, from[round], bytes, coop);
        case LINES:
            return weir_dev_memory_channel_put_lines(packets, 0, from[round], bytes, coop);
        default:
            return WEIR_OK;
        }
    }

    weir_status receive(uint32_t me, uint64_t round, weir_coop coop)
    {
        const weir_dev_memory_channel *sink = &rank[me].receiver;
        switch (kind) {
        case GET:
            return weir_dev_memory_channel_get(&rank[me].channel, from[round], HALF + to, bytes, coop);
        case LL16:
            return weir_dev_memory_channel_unpack_ll16(sink, 0, HALF + to, bytes, coop);
        case LINES:
            return weir_dev_memory_channel_unpack_lines(sink, 0, HALF + to, bytes, coop);
        case EXCHANGE_LL16:
            return weir_dev_memory_channel_exchange_ll16(&rank[me].sender, 0, from[round], HALF + to, bytes, coop);
        case EXCHANGE_LINES:
            return weir_dev_memory_channel_exchange_lines(&rank[me].sender, 0, from[round], HALF + to, bytes, coop);
        default:
            return WEIR_OK;
        }
    }

    // Each thread checks bytes that other threads of its group received, and the bytes around them.
    void look(uint32_t me, uint64_t round, weir_coop coop)
    {
        bool unpacks = kind == LL16 || kind == LINES;
        const char *memory = reinterpret_cast<const char *>(unpacks ? rank[me].sink : rank[me].data) + HALF;
        for (uint64_t i = (coop.rank + 1) % coop.size; i < to + bytes + 9; i += coop.size) {
            bool inside = i >= to && i < to + bytes;
            uint8_t expected = inside ? pattern(1 - me, from[round] + i - to) : 0;
            wrong += static_cast<uint8_t>(weir_arch_load_byte(memory + i)) != expected;
        }
    }

    void thread(uint32_t i)
    {
        uint32_t me = i / 4;
        if (i % 4 >= blocks * width) {
            return;
        }
        weir_coop coop = grid_coop(rank[me], i % 4, blocks, width);
        coop = grid ? coop : weir_coop_block(coop);
        const weir_dev_memory_channel *channel = &rank[me].channel;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            bool receives = me == 1 || exchanges();
            if (me == 0 && !exchanges()) {
                check(send(me, round, coop));
                check(weir_coop_sync(coop));
                if (weir_coop_leads(coop)) {
                    weir_dev_memory_channel_signal(channel);
                }
                check(weir_dev_memory_channel_wait_coop(channel, coop));
            }
            // Packets and exchanges do not wait for the signal first.
            if (receives && (kind == PUT || kind == GET)) {
                check(weir_dev_memory_channel_wait_coop(channel, coop));
            }
            if (receives) {
                check(receive(me, round, coop));
                check(weir_coop_sync(coop));
                look(me, round, coop);
                check(weir_coop_sync(coop));
            }
            if (me == 1 && !exchanges()) {
                if (kind != PUT && kind != GET) {
                    check(weir_dev_memory_channel_wait_coop(channel, coop));
                }
                if (weir_coop_leads(coop)) {
                    weir_dev_memory_channel_signal(channel);
                }
                check(weir_coop_sync(coop));
            }
        }
    }

    bool right() const { return failed == 0 && wrong == 0; }
};

TEST(LitmusTransfers, AnySizeAlignmentAndGroup)
{
    holds<Transfer>(WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE | WEIRT_WEAK_NO_SYSTEM | WEIRT_WEAK_NO_BARRIER |
                    WEIRT_WEAK_NO_ATOMIC);
}

} // namespace
