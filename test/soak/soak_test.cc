// All operations of a queue for a long time, in both directions at once, each byte under a checksum.
//
// Each rank sends numbered messages into a ring of slots of its peer: puts of the data, an add to a counter, a value
// with the checksum, and a value with the number, which is the signal. The peer checks the checksum of the data that
// arrived before the signal; of some messages it also gets the source and checks that. Then it acknowledges by a value,
// and the slot is reused.
//
// WEIR_TEST_SOAK_SECONDS sets the duration, default 600; the ranks are restarted several times a minute.
#include <algorithm>
#include <cinttypes>
#include <cstdlib>

#include "test/transport/queues.h"

using weirt::Meeting;
using weirt::Side;

namespace {

WEIRT_QUEUE_PROCESS_SUITE(LongSoak);

const uint64_t slots = 4;
const uint64_t slot_bytes = 512 << 10;
const uint64_t slice_ms = 15000;
const uint32_t data = 0, gets = 1; // the queues; acknowledgements go with the gets

// Offsets in the memory of words that the peer writes.
enum word : uint64_t { SIGNAL = 0, ACKNOWLEDGED = 8, LAST = 16, COUNTER = 24, SUMS = 64 };

uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
    return x ^ x >> 29;
}

// The parameters of message `number` of a rank.
struct message {
    uint64_t bytes, offset, amount, seed;

    message(uint64_t run, uint64_t number, uint32_t rank)
    {
        seed = mix(mix(run) + 2 * number + rank);
        const uint64_t kind = seed % 16, most = kind == 0 ? slot_bytes - 64 : kind < 4 ? 65536 : 4096;
        bytes = mix(seed + 1) % (most + 1);
        offset = number % slots * slot_bytes + mix(seed + 2) % 64;
        amount = 1 + mix(seed + 3) % 1000;
    }
};

void fill(uint8_t *at, uint64_t bytes, uint64_t seed)
{
    uint64_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
        const uint64_t word = (seed + i) * 0x9e3779b97f4a7c15u;
        std::memcpy(at + i, &word, 8);
    }
    for (; i < bytes; i++) {
        at[i] = static_cast<uint8_t>(seed + i);
    }
}

// A checksum of the bytes and their places.
uint64_t checksum(const uint8_t *at, uint64_t bytes)
{
    uint64_t sum = 0xcbf29ce484222325u + bytes, i = 0;
    for (; i + 8 <= bytes; i += 8) {
        uint64_t word;
        std::memcpy(&word, at + i, 8);
        sum = (sum ^ word) * 0x100000001b3u;
        sum ^= sum >> 32;
    }
    for (; i < bytes; i++) {
        sum = (sum ^ at[i]) * 0x100000001b3u;
    }
    return sum;
}

// One rank in one run: its sent and received messages. Memories: 0 its sources, 1 landing slots of messages and, behind
// them, of local gets, 2 the words.
struct soak {
    Side side;
    const uint64_t run, end_ms;
    uint64_t sent = 0, last = 0, received = 0, moved = 0;
    uint64_t source_free[slots] = {}; // the post after which the source of the slot may be written
    uint64_t expected_count = 0;
    bool adds = true;

    soak(weirt_rank *rank)
        : side(rank), run(side.meeting->number), end_ms(weirt_now_ms() + slice_ms), adds(side.ops->add != nullptr)
    {
    }

    uint64_t read(uint64_t word) const
    {
        return __atomic_load_n(reinterpret_cast<const uint64_t *>(side.bytes(2) + word), __ATOMIC_ACQUIRE);
    }

    bool value(uint32_t queue, uint64_t word, uint64_t v)
    {
        return WEIRT_OK(side.rank,
                        side.insist([&] { return side.ops->value(side.queues[queue], side.remotes[2], word, v, 8); }));
    }

    bool add(uint64_t amount)
    {
        if (!adds) {
            return true;
        }
        weir_status status =
            side.insist([&] { return side.ops->add(side.queues[data], side.remotes[2], COUNTER, amount); });
        adds = status != WEIR_ERR_UNSUPPORTED;
        return !adds || WEIRT_OK(side.rank, status);
    }

    bool send()
    {
        const message m(run, sent + 1, side.rank->rank);
        const uint64_t slot = (sent + 1) % slots;
        if (last != 0 || read(ACKNOWLEDGED) + slots <= sent ||
            __atomic_load_n(&side.queues[data]->completed, __ATOMIC_ACQUIRE) < source_free[slot]) {
            return true;
        }
        sent++;
        fill(side.bytes(0) + m.offset, m.bytes, m.seed);
        const uint64_t half = m.bytes / 2, sum = checksum(side.bytes(0) + m.offset, m.bytes);
        const uint64_t pieces[][2] = { { 0, half }, { half, m.bytes - half } };
        // Some messages in one put, others in two.
        for (uint32_t i = m.seed % 3 == 0 ? 0 : 1; i < 2; i++) {
            const uint64_t at = m.offset + (m.seed % 3 == 0 ? pieces[i][0] : 0);
            const uint64_t bytes = m.seed % 3 == 0 ? pieces[i][1] : m.bytes;
            if (!WEIRT_OK(side.rank, side.insist([&] {
                    return side.ops->put(side.queues[data], side.remotes[1], at, side.regions[0], at, bytes);
                }))) {
                return false;
            }
        }
        source_free[slot] = side.queues[data]->posted;
        if (weirt_now_ms() >= end_ms) {
            last = sent;
        }
        return add(m.amount) && (last == 0 || value(data, LAST, last)) && value(data, SUMS + 8 * slot, sum) &&
               value(data, SIGNAL, sent);
    }

    bool is_right(const message &m, const uint8_t *at, uint64_t sum, const char *what)
    {
        if (checksum(at, m.bytes) == sum) {
            return true;
        }
        weirt_fail(side.rank, __FILE__, __LINE__, "message %" PRIu64 " of run %" PRIu64 ", %" PRIu64 " bytes: %s",
                   received, run, m.bytes, what);
        return false;
    }

    // Gets the peer's source of the message that has arrived.
    bool get(const message &m, uint64_t sum)
    {
        const uint64_t to = slots * slot_bytes;
        return WEIRT_OK(side.rank, side.insist([&] {
                   return side.ops->get(side.queues[gets], side.regions[1], to, side.remotes[0], m.offset, m.bytes);
               })) &&
               side.finish(gets) && is_right(m, side.bytes(1) + to, sum, "what was got is wrong");
    }

    bool receive()
    {
        while (read(SIGNAL) > received) {
            received++;
            const message m(run, received, 1 - side.rank->rank);
            const uint64_t sum = read(SUMS + 8 * (received % slots));
            expected_count += m.amount;
            moved += m.bytes;
            if (!is_right(m, side.bytes(1) + m.offset, sum, "what has arrived is wrong") ||
                (adds && !WEIRT_EXPECT(side.rank, read(COUNTER) >= expected_count)) ||
                (m.seed % 5 == 0 && !get(m, sum)) || !value(gets, ACKNOWLEDGED, received)) {
                return false;
            }
        }
        return true;
    }

    bool done() const { return last != 0 && read(ACKNOWLEDGED) == last && read(LAST) != 0 && received == read(LAST); }
};

void exchange(weirt_rank *rank)
{
    soak s(rank);
    bool good = s.side.open(2, { slots * slot_bytes, (slots + 1) * slot_bytes, 4096 });
    uint64_t progress = 0, patient_until = 0;
    while (good && !s.done()) {
        s.side.poll_all();
        good = s.send() && s.receive();
        const uint64_t now = weirt_now_ms();
        if (s.sent + s.received != progress) {
            progress = s.sent + s.received;
            patient_until = now + weirt_timeout_ms();
        } else if (patient_until != 0 && now > patient_until) {
            weirt_fail(rank, __FILE__, __LINE__, "nothing goes on: %" PRIu64 " sent, %" PRIu64 " received", s.sent,
                       s.received);
            return;
        }
    }
    if (good && s.side.finish(data) && s.side.finish(gets)) {
        WEIRT_EXPECT(rank, !s.adds || s.read(COUNTER) == s.expected_count);
        WEIRT_EXPECT(rank, s.received > 0);
        __atomic_fetch_add(reinterpret_cast<uint64_t *>(s.side.meeting->text), s.received, __ATOMIC_RELAXED);
        __atomic_fetch_add(reinterpret_cast<uint64_t *>(s.side.meeting->text + 8), s.moved, __ATOMIC_RELAXED);
        s.side.meet();
    }
}

TEST_P(LongSoak, EverythingBothWays)
{
    const char *text = std::getenv("WEIR_TEST_SOAK_SECONDS");
    const uint64_t seconds = text != nullptr ? std::strtoull(text, nullptr, 10) : 600;
    const uint64_t end = weirt_now_ms() + 1000 * seconds;
    uint64_t runs = 0, totals[2];
    do {
        meeting.number = ++runs;
        run(exchange);
    } while (!HasFailure() && weirt_now_ms() + slice_ms <= end);
    std::memcpy(totals, meeting.text, sizeof totals);
    printf("%" PRIu64 " messages, %" PRIu64 " MB, in %" PRIu64 " runs\n", totals[0], totals[1] >> 20, runs);
}

} // namespace
