// Bootstraps of many ranks: the messages of each are counted, and all learn of a death.
#include <algorithm>
#include <atomic>

#include "test/harness/bootstrap_ranks.h"

namespace {

class BootstrapScale : public BootstrapTest {};

const uint32_t many = 64;

uint64_t log2_up(uint32_t count)
{
    uint64_t steps = 0;
    while ((1u << steps) < count) {
        steps++;
    }
    return steps;
}

weir_bootstrap_usage usage_of(weir_bootstrap *boot)
{
    weir_bootstrap_usage usage = {};
    weir_bootstrap_get_usage(boot, &usage);
    return usage;
}

// The change of this rank's counters by `call`.
template <typename Call> weir_bootstrap_usage usage_in(weir_bootstrap *boot, Call call)
{
    const weir_bootstrap_usage before = usage_of(boot);
    EXPECT_EQ(call(), WEIR_OK) << weir_last_error();
    weir_bootstrap_usage usage = usage_of(boot);
    usage.rounds -= before.rounds;
    usage.messages -= before.messages;
    usage.bytes -= before.bytes;
    return usage;
}

// An allgather and a barrier of a group, all checked; each takes ceil(log2 n) rounds with one message.
void gather_and_meet(weir_bootstrap *boot, const std::vector<uint32_t> &ranks, uint32_t seed)
{
    const uint32_t rank = weir_bootstrap_rank(boot);
    const uint32_t count = static_cast<uint32_t>(ranks.size());
    const weir_group group = { ranks.data(), count };
    std::vector<uint32_t> table(count * 32);
    for (uint32_t i = 0; i < count * 32; i++) {
        table[i] = ranks[i / 32] == rank ? rank * 1000 + i % 32 + seed : 0;
    }
    const weir_bootstrap_usage gather =
        usage_in(boot, [&] { return weir_bootstrap_allgather(boot, &group, table.data(), 128); });
    EXPECT_EQ(gather.rounds, log2_up(count));
    EXPECT_EQ(gather.messages, log2_up(count));
    EXPECT_GE(gather.bytes, (count - 1) * 128u);
    for (uint32_t i = 0; i < count * 32; i++) {
        ASSERT_EQ(table[i], ranks[i / 32] * 1000 + i % 32 + seed) << "rank " << rank;
    }
    const weir_bootstrap_usage barrier = usage_in(boot, [&] { return weir_bootstrap_barrier(boot, &group); });
    EXPECT_EQ(barrier.rounds, log2_up(count));
    EXPECT_EQ(barrier.messages, log2_up(count));
}

TEST_F(BootstrapScale, RoundsAndMessagesAreLogarithmic)
{
    std::vector<uint32_t> all;
    std::vector<uint32_t> even;
    for (uint32_t i = 0; i < many; i++) {
        all.push_back(i);
        if (i % 2 == 0) {
            even.push_back(i);
        }
    }
    const std::vector<uint32_t> few = { 3, 8, 20, 41, 63 };
    std::atomic<uint64_t> broadcasts{ 0 };
    weirt_job(many, [&](weir_bootstrap *boot, uint32_t rank) {
        // Meeting: a message to rank 0, which answers each rank twice, and an allgather among neighbours.
        EXPECT_EQ(usage_of(boot).rounds, log2_up(many));
        EXPECT_EQ(usage_of(boot).messages, log2_up(many) + (rank == 0 ? 2 * (many - 1) : 0));
        EXPECT_GE(usage_of(boot).connections, 2 * log2_up(many) - 1);
        for (uint32_t round = 0; round < 3; round++) {
            gather_and_meet(boot, all, round);
            if (rank % 2 == 0) {
                gather_and_meet(boot, even, round + 10);
            }
            if (std::find(few.begin(), few.end(), rank) != few.end()) {
                gather_and_meet(boot, few, round + 20);
            }
            uint32_t word = rank == 37 ? 4711 + round : 0;
            const weir_bootstrap_usage broadcast =
                usage_in(boot, [&] { return weir_bootstrap_broadcast(boot, nullptr, &word, sizeof word, 37); });
            EXPECT_EQ(word, 4711 + round);
            EXPECT_LE(broadcast.rounds, log2_up(many));
            if (rank == 37) {
                EXPECT_EQ(broadcast.rounds, log2_up(many));
            }
            broadcasts += broadcast.messages;
        }
    });
    EXPECT_EQ(broadcasts.load(), 3 * (many - 1));
}

// Numbers of ranks that are not powers of two.
TEST_F(BootstrapScale, OddNumbersTakeOneRoundMore)
{
    for (uint32_t ranks : { 3u, 13u, 33u }) {
        std::vector<uint32_t> all;
        for (uint32_t i = 0; i < ranks; i++) {
            all.push_back(i);
        }
        weirt_job(ranks, [&](weir_bootstrap *boot, uint32_t) { gather_and_meet(boot, all, ranks); });
    }
}

struct Deaths {
    std::atomic<uint32_t> ready;
    std::atomic<uint64_t> killed_ms;
    Outcome outcome[many];
};

TEST_F(BootstrapScale, ADeathIsKnownToAll)
{
    Shared<Deaths> report;
    const weir_unique_id id = weirt_new_id();
    std::vector<pid_t> pids;
    const uint32_t victim = 23;
    for (uint32_t i = 0; i < many; i++) {
        pids.push_back(weirt_fork(i, [&](uint32_t rank) {
            const weir_bootstrap_opts opts = weirt_opts(weirt_timeout_ms());
            weir_bootstrap *boot = nullptr;
            if (weir_bootstrap_create(id.text, rank, many, &opts, &boot) != WEIR_OK) {
                _exit(1);
            }
            report->ready++;
            if (rank == victim) {
                pause();
            }
            report->outcome[rank] = weirt_outcome([&] { return weir_bootstrap_barrier(boot, nullptr); });
            report->outcome[rank].ms = weirt_now_ms() - report->killed_ms;
            weir_bootstrap_destroy(boot);
        }));
    }
    weir_unique_id_discard(&id);
    weirt_await_count(report->ready, many);
    report->killed_ms = weirt_now_ms();
    kill(pids[victim], SIGKILL);
    for (uint32_t i = 0; i < many; i++) {
        const int status = weirt_wait(pids[i]);
        if (i == victim) {
            continue;
        }
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << i << " ended with " << status;
        const Outcome &o = report->outcome[i];
        EXPECT_EQ(o.status, WEIR_ERR_REMOTE) << "rank " << i << ": " << o.text;
        EXPECT_TRUE(weirt_has(o, "rank 23 died")) << o.text;
        EXPECT_LT(o.ms, 5000u * weirt_slow());
    }
}

} // namespace
