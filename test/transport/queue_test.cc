// Promises of weiri_queue_ops between two ranks: transfers of all sizes, order, room, and memory of this rank.
#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "test/transport/queues.h"

using weirt::fill;
using weirt::Meeting;
using weirt::pattern;
using weirt::Side;
using weirt::wrong;

namespace {

WEIRT_QUEUE_SUITE(Queue);
WEIRT_QUEUE_THREAD_SUITE(QueueThreads);

const uint64_t guard = 64; // bytes around a transfer that must not change
const uint8_t untouched = 0xa5;

uint64_t largest() { return weirt_sanitizer()[0] == '\0' ? uint64_t(64) << 20 : uint64_t(5) << 20; }

std::vector<uint64_t> all_sizes()
{
    // clang-format off
    return { 0, 1, 2, 3, 4, 7, 8, 9, 15, 64, 65, 1000, 4096, 4097, 65535, 65537, 1 << 20, (4 << 20) - 1, (4 << 20) + 1,
             largest() };
    // clang-format on
}

bool is_untouched(const uint8_t *at, uint64_t bytes)
{
    return std::all_of(at, at + bytes, [](uint8_t byte) { return byte == untouched; });
}

// All sizes at changing alignments, by puts of both ranks at once, or by gets.
void transfer_all_sizes(weirt_rank *rank, bool gets)
{
    Side side(rank);
    if (!side.open(1, { largest() + 3 * guard, largest() + 3 * guard })) {
        return;
    }
    uint64_t round = 0;
    for (uint64_t size : all_sizes()) {
        uint64_t from = round % 13;
        uint64_t to = guard + (round * 5) % 17;
        fill(side.bytes(0) + from, size, round, rank->rank);
        std::memset(side.bytes(1), untouched, size + 3 * guard);
        if (!side.meet() ||
            !WEIRT_OK(rank, gets ? side.ops->get(side.queues[0], side.regions[1], to, side.remotes[0], from, size)
                                 : side.ops->put(side.queues[0], side.remotes[1], to, side.regions[0], from, size)) ||
            !side.finish(0) || (!gets && !side.meet())) {
            return;
        }
        if (!WEIRT_EXPECT(rank, !wrong(side.bytes(1) + to, size, round, 1 - rank->rank)) ||
            !WEIRT_EXPECT(rank, is_untouched(side.bytes(1), to)) ||
            !WEIRT_EXPECT(rank, is_untouched(side.bytes(1) + to + size, guard)) || (gets && !side.meet())) {
            weirt_fail(rank, __FILE__, __LINE__, "%s of %llu bytes", gets ? "get" : "put",
                       static_cast<unsigned long long>(size));
            return;
        }
        round++;
    }
    WEIRT_EXPECT(rank, gets || side.queues[0]->posted == round);
    side.meet();
}

void put_all_sizes(weirt_rank *rank) { transfer_all_sizes(rank, false); }

void get_all_sizes(weirt_rank *rank) { transfer_all_sizes(rank, true); }

TEST_P(Queue, PutsOfAllSizes) { run(put_all_sizes); }

TEST_P(QueueThreads, GetsOfAllSizes) { run(get_all_sizes); }

// Each pair of alignments, many posts at once; then the same places by gets.
void all_alignments(weirt_rank *rank)
{
    Side side(rank);
    const uint64_t sizes[] = { 1, 8, 37 };
    const uint64_t cell = 64; // of each transfer
    const uint64_t area = 3 * 16 * 16 * cell;
    if (!side.open(1, { area, area, area })) {
        return;
    }
    fill(side.bytes(0), area, 1, rank->rank);
    std::memset(side.bytes(1), untouched, area);
    std::memset(side.bytes(2), untouched, area);
    side.meet();
    for (int gets = 0; gets < 2; gets++) {
        for (uint64_t i = 0; i < 3 * 16 * 16; i++) {
            uint64_t from = i * cell + i / 16 % 16;
            uint64_t to = i * cell + i % 16;
            uint64_t size = sizes[i / 256];
            weir_status status = side.insist([&] {
                return gets ? side.ops->get(side.queues[0], side.regions[2], to, side.remotes[0], from, size)
                            : side.ops->put(side.queues[0], side.remotes[1], to, side.regions[0], from, size);
            });
            if (!WEIRT_OK(rank, status)) {
                return;
            }
        }
    }
    if (!side.finish(0) || !side.meet()) {
        return;
    }
    uint64_t bad = 0;
    for (uint64_t i = 0; i < 3 * 16 * 16; i++) {
        uint64_t from = i * cell + i / 16 % 16;
        uint64_t to = i % 16;
        uint64_t size = sizes[i / 256];
        for (uint64_t at = 0; at < cell; at++) {
            bool inside = at >= to && at < to + size;
            uint8_t expected = inside ? pattern(from + at - to, 1, 1 - rank->rank) : untouched;
            bad += side.bytes(1)[i * cell + at] != expected;
            bad += side.bytes(2)[i * cell + at] != expected;
        }
    }
    WEIRT_EXPECT(rank, bad == 0);
    side.meet();
}

TEST_P(QueueThreads, AllAlignments) { run(all_alignments); }

// Ping-pong of data with a value behind it: the value is visible only after all data.
void data_before_value(weirt_rank *rank)
{
    Side side(rank);
    const uint64_t most = 1 << 20;
    const uint64_t rounds = weirt_sanitizer()[0] == '\0' ? 400 : 120;
    if (!side.open(1, { most, most, 64 })) {
        return;
    }
    uint64_t *flag = reinterpret_cast<uint64_t *>(side.bytes(2));
    uint64_t seed = 12345;
    for (uint64_t round = 1; round <= rounds; round++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint64_t size = 1 + (seed >> 33) % (round % 8 == 0 ? most : 5000);
        uint64_t half = size / 2;
        if (round % 2 == rank->rank) {
            fill(side.bytes(0), size, round, rank->rank);
            WEIRT_OK(rank, side.ops->put(side.queues[0], side.remotes[1], half, side.regions[0], half, size - half));
            WEIRT_OK(rank, side.ops->put(side.queues[0], side.remotes[1], 0, side.regions[0], 0, half));
            WEIRT_OK(rank, side.ops->value(side.queues[0], side.remotes[2], 8, round, 8));
            if (!side.finish(0)) {
                return;
            }
        } else {
            if (!side.until("a value", [&] { return __atomic_load_n(&flag[1], __ATOMIC_ACQUIRE) == round; }) ||
                !WEIRT_EXPECT(rank, !wrong(side.bytes(1), size, round, 1 - rank->rank))) {
                return;
            }
        }
    }
    WEIRT_EXPECT(rank, flag[0] == 0 && flag[2] == 0);
    side.meet();
}

TEST_P(Queue, DataIsThereBeforeTheValue) { run(data_before_value); }

// A thread that does not poll watches values: they arrive in order and whole, among many bytes of puts.
void values_are_whole(weirt_rank *rank)
{
    Side side(rank);
    const uint64_t values = weirt_sanitizer()[0] == '\0' && !side.meeting->staged ? 20000 : 4000;
    if (!side.open(1, { 100000, 100000, 64 })) {
        return;
    }
    auto value_of = [](uint64_t i) { return i << 32 | (~i & 0xffffffffu); };
    if (rank->rank == 0) {
        for (uint64_t i = 1; i <= values; i++) {
            uint64_t size = i % 3 == 0 ? i % 99991 : 0;
            weir_status status = size == 0 ? WEIR_OK : side.insist([&] {
                return side.ops->put(side.queues[0], side.remotes[1], 0, side.regions[0], 0, size);
            });
            if (!WEIRT_OK(rank, status) || !WEIRT_OK(rank, side.insist([&] {
                    return side.ops->value(side.queues[0], side.remotes[2], 0, value_of(i), 8);
                }))) {
                return;
            }
        }
        side.finish(0);
    } else {
        const uint64_t *word = reinterpret_cast<const uint64_t *>(side.bytes(2));
        std::atomic<bool> torn{ false };
        std::atomic<bool> stop{ false };
        std::thread watcher([&] {
            for (uint64_t last = 0; last < values && !stop;) {
                uint64_t seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
                uint64_t i = seen >> 32;
                torn = torn || (seen != 0 && seen != value_of(i)) || i < last;
                last = std::max(last, i);
                std::this_thread::yield();
            }
        });
        side.until("the last value", [&] { return __atomic_load_n(word, __ATOMIC_ACQUIRE) == value_of(values); });
        stop = true;
        watcher.join();
        WEIRT_EXPECT(rank, !torn);
    }
    side.meet();
}

TEST_P(QueueThreads, ValuesAreWholeAndInOrder) { run(values_are_whole); }

// Each length at each place within 8 bytes; the bytes around it do not change. Meeting.number: offset of the memory
// from a multiple of 8; a value may then lie in two words.
void values_of_all_lengths(weirt_rank *rank)
{
    std::vector<uint8_t> odd(8 * 8 * 24 + 8);
    Side side(rank);
    const uint64_t value = 0x1122334455667788u;
    if (!side.open_domain() || !side.open_queues(1)) {
        return;
    }
    const uint64_t shift = side.meeting->number;
    if (shift == 0 && !side.open_memories({ 8 * 8 * 24 })) {
        return;
    }
    if (shift != 0 && (!side.wrap(odd.data() + shift, 8 * 8 * 24) || !side.open_regions(0))) {
        return;
    }
    std::memset(side.bytes(0), untouched, 8 * 8 * 24);
    side.meet();
    for (uint32_t bytes = 1; bytes <= 8; bytes++) {
        for (uint64_t first = 0; first + bytes <= 8; first++) {
            uint64_t at = ((bytes - 1) * 8 + first) * 24 + 8 + first;
            WEIRT_OK(rank, side.insist([&] {
                return side.ops->value(side.queues[0], side.remotes[0], at, value + bytes * 64 + first, bytes);
            }));
        }
    }
    if (!side.finish(0) || !side.meet()) {
        return;
    }
    for (uint32_t bytes = 1; bytes <= 8; bytes++) {
        for (uint64_t first = 0; first + bytes <= 8; first++) {
            const uint8_t *cell = side.bytes(0) + ((bytes - 1) * 8 + first) * 24;
            uint64_t expected = value + bytes * 64 + first;
            WEIRT_EXPECT(rank, std::memcmp(cell + 8 + first, &expected, bytes) == 0);
            WEIRT_EXPECT(rank, is_untouched(cell, 8 + first));
            WEIRT_EXPECT(rank, is_untouched(cell + 8 + first + bytes, 16 - first - bytes));
        }
    }
    side.meet();
}

TEST_P(QueueThreads, ValuesOfAllLengths) { run(values_of_all_lengths); }

TEST_P(QueueThreads, ValuesOfAllLengthsToMemoryAtAnyAddress)
{
    for (uint64_t number : { 1, 2, 4, 7 }) {
        meeting.number = number;
        run(values_of_all_lengths);
    }
}

// Posts while the peer does not poll: the room runs out, nothing is lost, and posts go on when the peer polls.
void more_than_fits(weirt_rank *rank)
{
    Side side(rank);
    const uint64_t posts = 1500;
    const uint64_t size = 16384;
    if (!side.open(1, { posts * 8, posts * 8, size })) {
        return;
    }
    if (rank->rank == 0) {
        weiri_queue *queue = side.queues[0];
        uint64_t seen = 0;
        bool room = true;
        fill(side.bytes(0), posts * 8, 7, 0);
        for (uint64_t i = 0; i < posts; i++) {
            weir_status status = side.ops->put(queue, side.remotes[1], i * 8, side.regions[0], i * 8, 8);
            if (status == WEIR_ERR_BUSY && room) {
                room = false;
                WEIRT_EXPECT(rank, queue->posted == i);
                weirt_step(rank, 1000);
            }
            while (status == WEIR_ERR_BUSY) {
                WEIRT_EXPECT(rank, side.ops->poll(queue) >= 0);
                uint64_t completed = __atomic_load_n(&queue->completed, __ATOMIC_ACQUIRE);
                WEIRT_EXPECT(rank, completed >= seen && completed <= queue->posted);
                seen = completed;
                status = side.ops->put(queue, side.remotes[1], i * 8, side.regions[0], i * 8, 8);
            }
            if (!WEIRT_OK(rank, status)) {
                break;
            }
        }
        WEIRT_EXPECT(rank, queue->posted == posts);
        weirt_step(rank, 1000);
        side.finish(0);
        weirt_step(rank, 1001);
    } else {
        weirt_step_wait(rank, 0, 1000);
        side.until("all posts", [&] { return weirt_step_now(rank, 0) >= 1001; });
        WEIRT_EXPECT(rank, !wrong(side.bytes(1), posts * 8, 7, 0));
        weirt_step(rank, 1001);
    }
    side.until("the other rank", [&] { return weirt_step_now(rank, 1 - rank->rank) >= 1001; });
}

TEST_P(Queue, MorePostsThanRoom) { run(more_than_fits); }

// One thread posts, two others poll; all three of each rank at once, and the counts of complete posts never go back.
void many_pollers(weirt_rank *rank)
{
    Side side(rank);
    const uint64_t posts = weirt_sanitizer()[0] == '\0' ? 4000 : 1000;
    const uint64_t size = 2048;
    if (!side.open(1, { size, posts * 64 })) {
        return;
    }
    fill(side.bytes(0), size, 3, rank->rank);
    weiri_queue *queue = side.queues[0];
    std::atomic<bool> stop{ false };
    std::atomic<bool> backwards{ false };
    auto poller = [&] {
        uint64_t last = 0;
        while (!stop) {
            (void)side.ops->poll(queue);
            uint64_t completed = __atomic_load_n(&queue->completed, __ATOMIC_ACQUIRE);
            backwards = backwards || completed < last;
            last = completed;
            std::this_thread::yield();
        }
    };
    std::thread first(poller);
    std::thread second(poller);
    for (uint64_t i = 0; i < posts; i++) {
        uint64_t from = i * 31 % (size - 64);
        if (!WEIRT_OK(rank, side.insist([&] {
                return side.ops->put(queue, side.remotes[1], i * 64, side.regions[0], from, 64);
            }))) {
            break;
        }
    }
    side.finish(0);
    side.meet();
    stop = true;
    first.join();
    second.join();
    uint64_t bad = 0;
    for (uint64_t i = 0; i < posts; i++) {
        for (uint64_t at = 0; at < 64; at++) {
            bad += side.bytes(1)[i * 64 + at] != pattern(i * 31 % (size - 64) + at, 3, 1 - rank->rank);
        }
    }
    WEIRT_EXPECT(rank, bad == 0 && !backwards);
    side.meet();
}

TEST_P(QueueThreads, ManyThreadsPoll) { run(many_pollers); }

// Each kind of memory on either side, in turn and at once; the host cannot reach some of it. Values between the
// transfers show that the data has arrived.
void kinds_of_memory(weirt_rank *rank)
{
    Side side(rank);
    const uint64_t size = (3 << 19) + 5;
    const uint64_t rounds = weirt_sanitizer()[0] == '\0' ? 8 : 4; // four rounds use each pair of memories once
    if (!side.open_domain() || !side.open_queues(1)) {
        return;
    }
    // Applies to later allocations.
    auto set_staged = [&](bool staged) {
        if (rank->rank == 0) {
            side.meeting->staged = staged;
        }
        return side.meet();
    };
    if (!set_staged(false) || !side.open_memories({ size, 64 }) || !set_staged(true) ||
        !side.open_memories({ size, size, size })) {
        return;
    }
    // Memories 0 and 1 belong to the host, 2 to 4 to the device.
    const uint64_t *flag = reinterpret_cast<const uint64_t *>(side.bytes(1));
    for (uint64_t round = 1; round <= rounds; round++) {
        const uint32_t from = round % 2 != 0 ? 0 : 2;
        const uint32_t to = round % 4 < 2 ? 3 : 4;
        fill(side.bytes(from), size, round, rank->rank);
        std::memset(side.bytes(to), untouched, size);
        if (!side.meet()) {
            return;
        }
        weiri_queue *queue = side.queues[0];
        WEIRT_OK(rank, side.insist(
                           [&] { return side.ops->put(queue, side.remotes[to], 7, side.regions[from], 3, size - 7); }));
        WEIRT_OK(rank, side.insist([&] {
            return side.ops->value(queue, side.remotes[to], 0, round * 0x0101010101010101u, 7);
        }));
        WEIRT_OK(rank, side.insist([&] { return side.ops->value(queue, side.remotes[1], 8, round, 8); }));
        if (!side.until("a value", [&] { return __atomic_load_n(&flag[1], __ATOMIC_ACQUIRE) == round; })) {
            return;
        }
        uint64_t bad = wrong(side.bytes(to) + 7, size - 7, round, 1 - rank->rank, 3);
        for (uint64_t i = 0; i < 7; i++) {
            bad += side.bytes(to)[i] != round;
        }
        if (!WEIRT_EXPECT(rank, bad == 0) || !side.finish(0) || !side.meet()) {
            return;
        }
        // Back by a get, into the other kind of memory.
        const uint32_t into = from == 0 ? 2 : 0;
        std::memset(side.bytes(into), untouched, size);
        WEIRT_OK(rank, side.insist(
                           [&] { return side.ops->get(queue, side.regions[into], 3, side.remotes[to], 7, size - 7); }));
        if (!side.finish(0)) {
            return;
        }
        WEIRT_EXPECT(rank, is_untouched(side.bytes(into), 3));
        WEIRT_EXPECT(rank, !wrong(side.bytes(into) + 3, size - 7, round, rank->rank, 3));
        if (!side.meet()) {
            return;
        }
    }
}

TEST_P(QueueThreads, KindsOfMemory)
{
    if (meeting.staged) {
        GTEST_SKIP() << "has staged memory without being told";
    }
    for (bool storeless : { false, true }) {
        meeting.staged = true;
        meeting.storeless = storeless;
        run(kinds_of_memory);
    }
}

// Both ranks add to the same words by two queues each, while the CPU adds there too: no add is lost, and each arrives
// after earlier posts.
void adds(weirt_rank *rank)
{
    Side side(rank);
    const uint64_t count = weirt_sanitizer()[0] == '\0' ? 2000 : 500;
    if (!side.open(2, { 4096, 4096 })) {
        return;
    }
    if (side.ops->add == nullptr) {
        weirt_fail(rank, __FILE__, __LINE__, "no add");
        return;
    }
    uint64_t *words = reinterpret_cast<uint64_t *>(side.bytes(1));
    if (side.meeting->staged) {
        WEIRT_STATUS(rank, WEIR_ERR_UNSUPPORTED, side.ops->add(side.queues[0], side.remotes[1], 8, 1));
        WEIRT_TEXT(rank, "WEIR_MEMORY_HOST");
        WEIRT_OK(rank, side.ops->put(side.queues[0], side.remotes[1], 0, side.regions[0], 0, 8));
        side.finish(0);
        side.meet();
        return;
    }
    fill(side.bytes(0), 4096, 1, rank->rank);
    side.meet();
    WEIRT_OK(rank, side.ops->put(side.queues[0], side.remotes[1], 1024, side.regions[0], 0, 3000));
    WEIRT_OK(rank, side.ops->add(side.queues[0], side.remotes[1], 0, uint64_t(1) << 63));
    side.until("the first add", [&] { return __atomic_load_n(&words[0], __ATOMIC_ACQUIRE) != 0; });
    WEIRT_EXPECT(rank, !wrong(side.bytes(1) + 1024, 3000, 1, 1 - rank->rank));
    std::atomic<bool> stop{ false };
    uint64_t own = 0;
    std::thread adder([&] {
        for (; !stop; own += 3) {
            (void)__atomic_fetch_add(&words[1], 3, __ATOMIC_RELAXED);
            std::this_thread::yield();
        }
    });
    uint64_t sum = 0;
    for (uint64_t i = 1; i <= count; i++) {
        WEIRT_OK(rank, side.insist([&] { return side.ops->add(side.queues[i % 2], side.remotes[1], 8, i << 20); }));
        sum += i << 20;
    }
    side.finish(0);
    side.finish(1);
    side.meet();
    stop = true;
    adder.join();
    WEIRT_EXPECT(rank, words[0] == uint64_t(1) << 63 && words[1] == sum + own);
    side.meet();
}

TEST_P(QueueThreads, AddsAreNotLost) { run(adds); }

} // namespace
