// Working bootstraps: every way to meet, messages, collectives, ports, several in sequence and two at once.
#include <atomic>
#include <map>
#include <mutex>

#include "test/harness/bootstrap_ranks.h"

extern "C" {
#include "src/host/boot/boot.h"
}

namespace {

class Bootstrap : public BootstrapTest {};

uint32_t value_of(uint32_t rank, uint32_t round, uint32_t position)
{
    return rank * 1000003u + round * 10007u + position * 31u + 1;
}

// Every collective once, and a message to the next rank, all checked.
void exercise(weir_bootstrap *boot, uint32_t rank, uint32_t round)
{
    const uint32_t size = weir_bootstrap_size(boot);
    const uint32_t words = 1 + round % 5;
    std::vector<uint32_t> table(size * words);
    for (uint32_t i = 0; i < words; i++) {
        table[rank * words + i] = value_of(rank, round, i);
    }
    ASSERT_EQ(weir_bootstrap_allgather(boot, nullptr, table.data(), words * 4), WEIR_OK) << weir_last_error();
    for (uint32_t r = 0; r < size; r++) {
        for (uint32_t i = 0; i < words; i++) {
            ASSERT_EQ(table[r * words + i], value_of(r, round, i)) << "rank " << rank;
        }
    }
    const uint32_t root = round % size;
    uint32_t word = rank == root ? value_of(root, round, 77) : 0;
    ASSERT_EQ(weir_bootstrap_broadcast(boot, nullptr, &word, sizeof word, root), WEIR_OK) << weir_last_error();
    ASSERT_EQ(word, value_of(root, round, 77));
    ASSERT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
    const uint32_t next = (rank + 1) % size;
    const uint32_t before = (rank + size - 1) % size;
    word = value_of(rank, round, next);
    ASSERT_EQ(weir_bootstrap_send(boot, &word, sizeof word, next, 5), WEIR_OK) << weir_last_error();
    ASSERT_EQ(weir_bootstrap_recv(boot, &word, sizeof word, before, 5), WEIR_OK) << weir_last_error();
    ASSERT_EQ(word, value_of(before, round, rank));
}

TEST_F(Bootstrap, MeetsByUniqueId)
{
    for (uint32_t ranks : { 1u, 2u, 3u, 5u, 8u }) {
        weirt_job(ranks, [&](weir_bootstrap *boot, uint32_t rank) {
            EXPECT_EQ(weir_bootstrap_rank(boot), rank);
            EXPECT_EQ(weir_bootstrap_size(boot), ranks);
            for (uint32_t round = 0; round < 10; round++) {
                exercise(boot, rank, round);
            }
        });
    }
}

TEST_F(Bootstrap, MeetsByAddress)
{
    weirt_job(weirt_free_address(), 3, [](weir_bootstrap *boot, uint32_t rank) { exercise(boot, rank, 1); });
    weirt_job("lo:" + weirt_free_address(), 3, [](weir_bootstrap *boot, uint32_t rank) { exercise(boot, rank, 2); });
}

TEST_F(Bootstrap, MeetsByIpv6Address)
{
    const std::string address = weirt_free_address(AF_INET6);
    if (address.empty()) {
        GTEST_SKIP() << "no IPv6 on the loopback";
    }
    weirt_job(address, 3, [](weir_bootstrap *boot, uint32_t rank) { exercise(boot, rank, 1); });
    weirt_job("lo:" + address, 2, [](weir_bootstrap *boot, uint32_t rank) { exercise(boot, rank, 1); });
    weirt_job(weirt_new_id("::1").text, 3, [](weir_bootstrap *boot, uint32_t rank) { exercise(boot, rank, 1); });
}

TEST_F(Bootstrap, RankZeroMayComeLast)
{
    const std::string where = weirt_free_address();
    weirt_threads(3, [&](uint32_t rank) {
        if (rank == 0) {
            weirt_sleep_ms(150);
        }
        weir_bootstrap *boot = nullptr;
        ASSERT_EQ(weir_bootstrap_create(where.c_str(), rank, 3, nullptr, &boot), WEIR_OK) << weir_last_error();
        exercise(boot, rank, 3);
        weir_bootstrap_destroy(boot);
    });
}

// A broadcast among threads, as a launcher's library offers it.
struct Exchange {
    std::atomic<int> ready{ 0 };
    char data[WEIR_UNIQUE_ID_BYTES];
    int result = 0;
    struct End {
        Exchange *exchange;
        uint32_t rank;
    };
    static int broadcast(void *context, void *data, size_t bytes, uint32_t root)
    {
        const End *end = static_cast<End *>(context);
        if (bytes > sizeof end->exchange->data) {
            return -1;
        }
        if (end->rank == root) {
            memcpy(end->exchange->data, data, bytes);
            end->exchange->ready = 1;
        }
        while (end->exchange->ready == 0) {
            weirt_sleep_ms(1);
        }
        memcpy(data, end->exchange->data, bytes);
        return end->exchange->result;
    }
};

TEST_F(Bootstrap, MeetsByCallbacks)
{
    Exchange exchange;
    weirt_threads(3, [&](uint32_t rank) {
        Exchange::End end = { &exchange, rank };
        const weir_bootstrap_callbacks callbacks = { Exchange::broadcast, &end };
        weir_bootstrap *boot = nullptr;
        ASSERT_EQ(weir_bootstrap_create_callbacks(&callbacks, rank, 3, nullptr, &boot), WEIR_OK) << weir_last_error();
        exercise(boot, rank, 4);
        weir_bootstrap_destroy(boot);
    });
}

// Rank 0 listens at the address of its opts, and the others learn at once if it cannot.
TEST_F(Bootstrap, CallbacksMeetAtTheInterface)
{
    for (const std::string interface : { "lo", "nosuch0" }) {
        Exchange exchange;
        const bool good = interface == "lo";
        weirt_threads(2, [&](uint32_t rank) {
            Exchange::End end = { &exchange, rank };
            const weir_bootstrap_callbacks callbacks = { Exchange::broadcast, &end };
            weir_bootstrap_opts opts = weirt_opts(weirt_timeout_ms());
            opts.interface = rank == 0 ? interface.c_str() : nullptr;
            weir_bootstrap *boot = nullptr;
            const Outcome o =
                weirt_outcome([&] { return weir_bootstrap_create_callbacks(&callbacks, rank, 2, &opts, &boot); });
            EXPECT_EQ(o.status, good ? WEIR_OK : rank == 0 ? WEIR_ERR_INVALID : WEIR_ERR_REMOTE) << o.text;
            EXPECT_TRUE(!good || strstr(exchange.data, ":127.0.0.1:") != nullptr);
            weir_bootstrap_destroy(boot);
        });
    }
}

TEST_F(Bootstrap, FailingCallbackFailsCreate)
{
    Exchange exchange;
    exchange.result = 42;
    weirt_threads(2, [&](uint32_t rank) {
        Exchange::End end = { &exchange, rank };
        const weir_bootstrap_callbacks callbacks = { Exchange::broadcast, &end };
        weir_bootstrap *boot = nullptr;
        const Outcome o =
            weirt_outcome([&] { return weir_bootstrap_create_callbacks(&callbacks, rank, 2, nullptr, &boot); });
        EXPECT_EQ(o.status, WEIR_ERR_SYSTEM);
        EXPECT_TRUE(weirt_has(o, "42")) << o.text;
    });
}

TEST_F(Bootstrap, RefusesBadArguments)
{
    weir_bootstrap *boot = nullptr;
    const weir_unique_id id = weirt_new_id();
    EXPECT_EQ(weir_bootstrap_create(nullptr, 0, 1, nullptr, &boot), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_bootstrap_create(id.text, 0, 1, nullptr, nullptr), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_bootstrap_create(id.text, 1, 1, nullptr, &boot), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_bootstrap_create(id.text, 0, 0, nullptr, &boot), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_bootstrap_create(id.text, 0, WEIR_RANKS_MAX + 1, nullptr, &boot), WEIR_ERR_INVALID);
    for (const char *text :
         { "", ":", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:12x", "256.0.0.1:5000",
           "::1:5000", "[::1:5000", "[127.0.0.1]:5000", "a-far-too-long-name:127.0.0.1:1", ":127.0.0.1:5000",
           "weir1:", "weir1:00:00:127.0.0.1:1", "lo[::1]:5000" }) {
        EXPECT_EQ(weir_bootstrap_create(text, 0, 1, nullptr, &boot), WEIR_ERR_INVALID) << text;
    }
    std::string cut = id.text;
    cut[10] = 'x';
    EXPECT_EQ(weir_bootstrap_create(cut.c_str(), 0, 1, nullptr, &boot), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_bootstrap_create("nosuch0:127.0.0.1:5000", 0, 2, nullptr, &boot), WEIR_ERR_INVALID);
    EXPECT_NE(strstr(weir_last_error(), "nosuch0"), nullptr) << weir_last_error();
    weir_unique_id other = {};
    EXPECT_EQ(weir_unique_id_create("nosuch0", &other), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_unique_id_create("127.0.0.1", nullptr), WEIR_ERR_INVALID);
    weir_unique_id_discard(&id);
    weir_unique_id_discard(&id);
    weir_unique_id_discard(nullptr);
    weir_bootstrap_destroy(nullptr);
}

TEST_F(Bootstrap, UniqueIdsDifferAndReachTheInterface)
{
    const weir_unique_id a = weirt_new_id("lo");
    const weir_unique_id b = weirt_new_id(nullptr);
    EXPECT_EQ(strncmp(a.text, "weir1:", 6), 0);
    EXPECT_NE(strncmp(a.text, b.text, 6 + 64), 0);
    EXPECT_NE(strstr(a.text, ":127.0.0.1:"), nullptr) << a.text;
    weir_unique_id_discard(&a);
    weirt_job(b.text, 2, [](weir_bootstrap *boot, uint32_t rank) { exercise(boot, rank, 1); });
}

TEST_F(Bootstrap, DiscardedIdIsBoundAnew)
{
    const weir_unique_id id = weirt_new_id();
    weir_unique_id_discard(&id);
    weirt_job(id.text, 2, [](weir_bootstrap *boot, uint32_t rank) { exercise(boot, rank, 1); });
}

TEST_F(Bootstrap, TagsAreReceivedInAnyOrder)
{
    weirt_job(2, [](weir_bootstrap *boot, uint32_t rank) {
        const uint32_t peer = 1 - rank;
        for (uint64_t tag : { 7ull, 0ull, ~0ull }) {
            for (uint32_t i = 0; i < 3; i++) {
                const uint64_t word = tag * 10 + i + rank;
                ASSERT_EQ(weir_bootstrap_send(boot, &word, sizeof word, peer, tag), WEIR_OK) << weir_last_error();
            }
        }
        for (uint64_t tag : { ~0ull, 0ull, 7ull }) {
            for (uint32_t i = 0; i < 3; i++) {
                uint64_t word = 0;
                ASSERT_EQ(weir_bootstrap_recv(boot, &word, sizeof word, peer, tag), WEIR_OK) << weir_last_error();
                EXPECT_EQ(word, tag * 10 + i + peer);
            }
        }
    });
}

TEST_F(Bootstrap, EmptyAndLargeMessagesBothWays)
{
    weirt_job(2, [](weir_bootstrap *boot, uint32_t rank) {
        const size_t bytes = (8u << 20) + 13;
        const uint32_t peer = 1 - rank;
        std::vector<uint8_t> out(bytes);
        std::vector<uint8_t> in(bytes);
        for (size_t i = 0; i < bytes; i++) {
            out[i] = static_cast<uint8_t>((i * 7 + i / 4096 + rank) & 0xff);
        }
        ASSERT_EQ(weir_bootstrap_send(boot, nullptr, 0, peer, 1), WEIR_OK) << weir_last_error();
        ASSERT_EQ(weir_bootstrap_send(boot, out.data(), bytes, peer, 2), WEIR_OK) << weir_last_error();
        ASSERT_EQ(weir_bootstrap_send(boot, nullptr, 0, peer, 2), WEIR_OK) << weir_last_error();
        ASSERT_EQ(weir_bootstrap_recv(boot, in.data(), bytes, peer, 2), WEIR_OK) << weir_last_error();
        ASSERT_EQ(weir_bootstrap_recv(boot, nullptr, 0, peer, 2), WEIR_OK) << weir_last_error();
        ASSERT_EQ(weir_bootstrap_recv(boot, nullptr, 0, peer, 1), WEIR_OK) << weir_last_error();
        size_t wrong = 0;
        for (size_t i = 0; i < bytes; i++) {
            wrong += in[i] != static_cast<uint8_t>((i * 7 + i / 4096 + peer) & 0xff);
        }
        EXPECT_EQ(wrong, 0u);
    });
}

TEST_F(Bootstrap, SendsToItself)
{
    weirt_job(2, [](weir_bootstrap *boot, uint32_t rank) {
        uint32_t word = 41 + rank;
        ASSERT_EQ(weir_bootstrap_send(boot, &word, sizeof word, rank, 3), WEIR_OK) << weir_last_error();
        word = 0;
        ASSERT_EQ(weir_bootstrap_recv(boot, &word, sizeof word, rank, 3), WEIR_OK) << weir_last_error();
        EXPECT_EQ(word, 41 + rank);
    });
}

TEST_F(Bootstrap, WrongLengthDropsTheMessage)
{
    weirt_job(2, [](weir_bootstrap *boot, uint32_t rank) {
        uint64_t words[2] = { 11, 22 };
        if (rank == 0) {
            ASSERT_EQ(weir_bootstrap_send(boot, words, 16, 1, 9), WEIR_OK);
            ASSERT_EQ(weir_bootstrap_send(boot, words + 1, 8, 1, 9), WEIR_OK);
            return;
        }
        uint64_t got = 5;
        ASSERT_EQ(weir_bootstrap_recv(boot, &got, 8, 0, 9), WEIR_ERR_MISMATCH);
        EXPECT_NE(strstr(weir_last_error(), "rank 0 sent 16 bytes, rank 1 expects 8"), nullptr) << weir_last_error();
        EXPECT_EQ(got, 5u);
        ASSERT_EQ(weir_bootstrap_recv(boot, &got, 8, 0, 9), WEIR_OK);
        EXPECT_EQ(got, 22u);
    });
}

TEST_F(Bootstrap, CollectivesOverGroups)
{
    weirt_job(8, [](weir_bootstrap *boot, uint32_t rank) {
        const std::vector<std::vector<uint32_t>> groups = { { 0, 1, 2, 3, 4, 5, 6, 7 }, { 0, 2, 4, 6 }, { 1, 3, 5 },
                                                            { 1, 2, 3, 5, 7 },          { 0, 7 },       { rank } };
        for (uint32_t round = 0; round < 3; round++) {
            for (const std::vector<uint32_t> &ranks : groups) {
                const weir_group group = { ranks.data(), static_cast<uint32_t>(ranks.size()) };
                uint32_t position = 0;
                while (position < ranks.size() && ranks[position] != rank) {
                    position++;
                }
                if (position == ranks.size()) {
                    EXPECT_EQ(weir_bootstrap_barrier(boot, &group), WEIR_ERR_INVALID);
                    continue;
                }
                std::vector<uint64_t> table(ranks.size() * 3);
                for (uint32_t i = 0; i < 3; i++) {
                    table[position * 3 + i] = value_of(rank, round, i);
                }
                ASSERT_EQ(weir_bootstrap_allgather(boot, &group, table.data(), 24), WEIR_OK) << weir_last_error();
                for (uint32_t p = 0; p < ranks.size() * 3; p++) {
                    ASSERT_EQ(table[p], value_of(ranks[p / 3], round, p % 3));
                }
                const uint32_t root = ranks[(round * 2 + 1) % ranks.size()];
                uint64_t word = rank == root ? value_of(root, round, 5) : 0;
                ASSERT_EQ(weir_bootstrap_broadcast(boot, &group, &word, 8, root), WEIR_OK) << weir_last_error();
                ASSERT_EQ(word, value_of(root, round, 5));
                ASSERT_EQ(weir_bootstrap_barrier(boot, &group), WEIR_OK) << weir_last_error();
            }
        }
        // A group that names all ranks equals the default group.
        const weir_group all = { groups[0].data(), 8 };
        ASSERT_EQ(weir_bootstrap_barrier(boot, rank % 2 == 0 ? &all : nullptr), WEIR_OK) << weir_last_error();
        const uint32_t disorder[] = { rank, rank };
        const weir_group bad = { disorder, 2 };
        EXPECT_EQ(weir_bootstrap_barrier(boot, &bad), WEIR_ERR_INVALID);
        const weir_group none = { nullptr, 0 };
        EXPECT_EQ(weir_bootstrap_barrier(boot, &none), WEIR_ERR_INVALID);
        EXPECT_EQ(weir_bootstrap_broadcast(boot, nullptr, nullptr, 0, 8), WEIR_ERR_INVALID);
        EXPECT_EQ(weir_bootstrap_allgather(boot, nullptr, nullptr, 0), WEIR_OK);
        EXPECT_EQ(weir_bootstrap_send(boot, nullptr, 1, 0, 0), WEIR_ERR_INVALID);
        EXPECT_EQ(weir_bootstrap_send(boot, nullptr, 0, 8, 0), WEIR_ERR_INVALID);
        EXPECT_EQ(weir_bootstrap_recv(boot, nullptr, 0, 8, 0), WEIR_ERR_INVALID);
    });
}

// No rank passes round i of the barrier before all ranks have reached it.
TEST_F(Bootstrap, BarrierHoldsEveryone)
{
    std::atomic<uint32_t> arrived{ 0 };
    weirt_job(5, [&](weir_bootstrap *boot, uint32_t rank) {
        for (uint32_t round = 1; round <= 20; round++) {
            if (round % 5 == rank) {
                weirt_sleep_ms(2);
            }
            arrived++;
            ASSERT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
            EXPECT_GE(arrived.load(), round * 5);
        }
    });
}

TEST_F(Bootstrap, ManyTimesInOneProcess)
{
    const std::string where = weirt_free_address();
    for (uint32_t round = 0; round < 10; round++) {
        weirt_job(3, [&](weir_bootstrap *boot, uint32_t rank) { exercise(boot, rank, round); });
        weirt_job(where, 3, [&](weir_bootstrap *boot, uint32_t rank) { exercise(boot, rank, round); });
    }
}

// Finished ranks begin the next job at the same address while others still leave the last one.
TEST_F(Bootstrap, JobsOverlapAtOneAddress)
{
    const std::string where = weirt_free_address();
    weirt_threads(3, [&](uint32_t rank) {
        for (uint32_t round = 0; round < 5; round++) {
            weir_bootstrap *boot = nullptr;
            ASSERT_EQ(weir_bootstrap_create(where.c_str(), rank, 3, nullptr, &boot), WEIR_OK) << weir_last_error();
            exercise(boot, rank, round);
            if (rank == 0) {
                weirt_sleep_ms(20);
            }
            weir_bootstrap_destroy(boot);
        }
    });
}

TEST_F(Bootstrap, TwoAtOnce)
{
    const weir_unique_id first = weirt_new_id();
    weirt_job(3, [&](weir_bootstrap *boot, uint32_t rank) {
        weir_bootstrap *other = nullptr;
        ASSERT_EQ(weir_bootstrap_create(first.text, 2 - rank, 3, nullptr, &other), WEIR_OK) << weir_last_error();
        EXPECT_NE(memcmp(weiri_bootstrap_job(boot), weiri_bootstrap_job(other), 16), 0);
        for (uint32_t round = 0; round < 5; round++) {
            exercise(boot, rank, round);
            exercise(other, 2 - rank, round + 100);
        }
        weir_bootstrap_destroy(other);
        exercise(boot, rank, 6);
    });
}

TEST_F(Bootstrap, ThreadsOfARankShareIt)
{
    weirt_job(2, [](weir_bootstrap *boot, uint32_t rank) {
        weirt_threads(4, [&](uint32_t thread) {
            for (uint32_t i = 0; i < 50; i++) {
                uint32_t word = value_of(rank, thread, i);
                ASSERT_EQ(weir_bootstrap_send(boot, &word, 4, 1 - rank, thread), WEIR_OK) << weir_last_error();
                ASSERT_EQ(weir_bootstrap_recv(boot, &word, 4, 1 - rank, thread), WEIR_OK) << weir_last_error();
                ASSERT_EQ(word, value_of(1 - rank, thread, i));
            }
        });
    });
}

TEST_F(Bootstrap, SentDataSurvivesTheSender)
{
    for (int round = 0; round < 5; round++) {
        weirt_job(3, [](weir_bootstrap *boot, uint32_t rank) {
            std::vector<uint32_t> data(300000);
            if (rank == 0) {
                weirt_sleep_ms(20);
                for (uint32_t from : { 1u, 2u }) {
                    ASSERT_EQ(weir_bootstrap_recv(boot, data.data(), data.size() * 4, from, 1), WEIR_OK)
                        << weir_last_error();
                    for (uint32_t i = 0; i < data.size(); i++) {
                        ASSERT_EQ(data[i], value_of(from, 0, i));
                    }
                }
                return;
            }
            for (uint32_t i = 0; i < data.size(); i++) {
                data[i] = value_of(rank, 0, i);
            }
            ASSERT_EQ(weir_bootstrap_send(boot, data.data(), data.size() * 4, 0, 1), WEIR_OK) << weir_last_error();
        });
    }
}

// The messages of a port's handler.
struct Seen {
    std::mutex mutex;
    std::vector<std::pair<uint32_t, std::string>> messages;
    std::vector<std::pair<uint32_t, bool>> gone;
    weiri_port_handler handler()
    {
        return { [](void *context, uint32_t peer, const uint8_t *data, size_t bytes) {
                    Seen *s = static_cast<Seen *>(context);
                    const std::lock_guard<std::mutex> hold(s->mutex);
                    s->messages.emplace_back(peer, std::string(reinterpret_cast<const char *>(data), bytes));
                },
                 [](void *context, uint32_t rank, bool died, const char *text) {
                     Seen *s = static_cast<Seen *>(context);
                     const std::lock_guard<std::mutex> hold(s->mutex);
                     EXPECT_NE(strstr(text, ("rank " + std::to_string(rank)).c_str()), nullptr) << text;
                     s->gone.emplace_back(rank, died);
                 },
                 this };
    }
    template <typename Condition> bool eventually(Condition condition)
    {
        const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
        for (;;) {
            {
                const std::lock_guard<std::mutex> hold(mutex);
                if (condition()) {
                    return true;
                }
            }
            if (weirt_now_ms() > end) {
                return false;
            }
            weirt_sleep_ms(1);
        }
    }
};

TEST_F(Bootstrap, PortsKeepMessagesUntilTheyAreOpened)
{
    weirt_job(3, [](weir_bootstrap *boot, uint32_t rank) {
        Seen seen;
        Seen other;
        const weiri_port_handler handler = seen.handler();
        const weiri_port_handler other_handler = other.handler();
        const uint32_t port = weiri_bootstrap_next_port(boot);
        const uint32_t second = weiri_bootstrap_next_port(boot);
        EXPECT_NE(port, second);
        for (uint32_t peer = 0; peer < 3; peer++) {
            for (int i = 0; i < 10; i++) {
                const std::string text = std::to_string(rank) + "-" + std::to_string(i);
                ASSERT_EQ(weiri_bootstrap_post(boot, peer, port, text.data(), text.size()), WEIR_OK);
            }
            ASSERT_EQ(weiri_bootstrap_post(boot, peer, second, nullptr, 0), WEIR_OK);
        }
        ASSERT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
        ASSERT_EQ(weiri_bootstrap_open_port(boot, port, &handler), WEIR_OK);
        EXPECT_EQ(weiri_bootstrap_open_port(boot, port, &handler), WEIR_ERR_INVALID);
        ASSERT_EQ(weiri_bootstrap_open_port(boot, second, &other_handler), WEIR_OK);
        EXPECT_TRUE(seen.eventually([&] { return seen.messages.size() == 30; }));
        EXPECT_TRUE(other.eventually([&] { return other.messages.size() == 3; }));
        ASSERT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
        weiri_bootstrap_close_port(boot, second);
        weiri_bootstrap_close_port(boot, port);
        std::map<uint32_t, int> next;
        for (const auto &message : seen.messages) {
            EXPECT_EQ(message.second, std::to_string(message.first) + "-" + std::to_string(next[message.first]++));
        }
        EXPECT_EQ(weiri_bootstrap_open_port(boot, port, &handler), WEIR_ERR_INVALID);
        // Messages for a closed port are dropped.
        ASSERT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
        for (uint32_t peer = 0; peer < 3; peer++) {
            ASSERT_EQ(weiri_bootstrap_post(boot, peer, port, "x", 1), WEIR_OK);
        }
        ASSERT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
        EXPECT_EQ(seen.messages.size(), 30u);
    });
}

TEST_F(Bootstrap, PortsAnswerFromTheHandler)
{
    struct Relay {
        weir_bootstrap *boot;
        uint32_t port;
        std::atomic<uint32_t> count{ 0 };
    };
    weirt_job(2, [](weir_bootstrap *boot, uint32_t rank) {
        Relay relay;
        relay.boot = boot;
        relay.port = weiri_bootstrap_next_port(boot);
        const weiri_port_handler handler = {
            [](void *context, uint32_t peer, const uint8_t *data, size_t bytes) {
                Relay *r = static_cast<Relay *>(context);
                r->count++;
                uint32_t left = 0;
                ASSERT_EQ(bytes, sizeof left);
                memcpy(&left, data, sizeof left);
                if (left-- > 0) {
                    EXPECT_EQ(weiri_bootstrap_post(r->boot, peer, r->port, &left, sizeof left), WEIR_OK);
                }
            },
            [](void *, uint32_t, bool, const char *) {}, &relay
        };
        ASSERT_EQ(weiri_bootstrap_open_port(boot, relay.port, &handler), WEIR_OK);
        const uint32_t hops = 200;
        if (rank == 0) {
            ASSERT_EQ(weiri_bootstrap_post(boot, 1, relay.port, &hops, sizeof hops), WEIR_OK);
        }
        const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
        while (relay.count < (rank == 0 ? 100u : 101u) && weirt_now_ms() < end) {
            weirt_sleep_ms(1);
        }
        EXPECT_EQ(relay.count.load(), rank == 0 ? 100u : 101u);
        ASSERT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
        weiri_bootstrap_close_port(boot, relay.port);
    });
}

TEST_F(Bootstrap, PortsLearnWhoLeft)
{
    weirt_job(3, [](weir_bootstrap *boot, uint32_t rank) {
        Seen early;
        Seen late;
        const weiri_port_handler early_handler = early.handler();
        const weiri_port_handler late_handler = late.handler();
        const uint32_t port = weiri_bootstrap_next_port(boot);
        const uint32_t second = weiri_bootstrap_next_port(boot);
        if (rank == 2) {
            ASSERT_EQ(weiri_bootstrap_post(boot, 0, port, "last", 4), WEIR_OK);
            ASSERT_EQ(weiri_bootstrap_post(boot, 1, port, "last", 4), WEIR_OK);
            return;
        }
        ASSERT_EQ(weiri_bootstrap_open_port(boot, port, &early_handler), WEIR_OK);
        ASSERT_TRUE(early.eventually([&] { return early.gone.size() == 1; }));
        ASSERT_EQ(weiri_bootstrap_open_port(boot, second, &late_handler), WEIR_OK);
        ASSERT_TRUE(late.eventually([&] { return late.gone.size() == 1; }));
        EXPECT_EQ(early.gone[0], std::make_pair(2u, false));
        EXPECT_EQ(late.gone[0], std::make_pair(2u, false));
        ASSERT_EQ(early.messages.size(), 1u);
        EXPECT_EQ(early.messages[0].second, "last");
        EXPECT_EQ(weiri_bootstrap_post(boot, 2, port, "x", 1), WEIR_ERR_REMOTE);
        const uint32_t pair[] = { 0, 1 };
        const weir_group group = { pair, 2 };
        ASSERT_EQ(weir_bootstrap_barrier(boot, &group), WEIR_OK) << weir_last_error();
        weiri_bootstrap_close_port(boot, port);
        weiri_bootstrap_close_port(boot, second);
    });
}

TEST_F(Bootstrap, KeyAndJobAreTheSameOnAllRanks)
{
    uint8_t seen[3][48] = {};
    weirt_job(3, [&](weir_bootstrap *boot, uint32_t rank) {
        memcpy(seen[rank], weiri_bootstrap_key(boot), 32);
        memcpy(seen[rank] + 32, weiri_bootstrap_job(boot), 16);
        EXPECT_EQ(weiri_bootstrap_timeout(boot), weirt_timeout_ms());
        EXPECT_NE(weiri_bootstrap_service(boot), nullptr);
        weiri_bootstrap_get(boot);
        weiri_bootstrap_put(boot);
    });
    const uint8_t none[48] = {};
    EXPECT_NE(memcmp(seen[0], none, 48), 0);
    EXPECT_EQ(memcmp(seen[0], seen[1], 48), 0);
    EXPECT_EQ(memcmp(seen[0], seen[2], 48), 0);
}

TEST_F(Bootstrap, NothingIsLeftBehind)
{
    const uint32_t descriptors = weirt_count_descriptors();
    const int64_t allocations = weirt_count_allocations();
    for (uint32_t round = 0; round < 20; round++) {
        weirt_job(2, [](weir_bootstrap *, uint32_t) {});
        EXPECT_EQ(weirt_count_descriptors(), descriptors);
        EXPECT_EQ(weirt_count_allocations(), allocations);
    }
}

} // namespace
