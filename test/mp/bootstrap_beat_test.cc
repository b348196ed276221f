// Heartbeats: all ranks name a stopped rank. A busy rank, or one that was stopped together with all others, is not
// named.
#include <atomic>
#include <sys/resource.h>

#include "test/harness/bootstrap_ranks.h"

namespace {

class BootstrapBeat : public BootstrapTest {};

// The timeout of a job, and the silence after which a rank counts as dead.
uint32_t timeout_ms() { return 6000 * weirt_slow(); }

uint32_t silence_ms() { return timeout_ms() * 3 / 4; }

const uint32_t ranks = 4;

struct Report {
    std::atomic<uint32_t> ready;
    std::atomic<uint32_t> stopped;
    std::atomic<uint64_t> stopped_ms;
    Outcome outcome[ranks];
};

// Ranks as processes: each joins a job, waits for `stopped`, and then makes `call`.
std::vector<pid_t> start(Shared<Report> &report, uint32_t count,
                         const std::function<weir_status(weir_bootstrap *, uint32_t)> &call)
{
    const weir_unique_id id = weirt_new_id();
    std::vector<pid_t> pids;
    for (uint32_t i = 0; i < count; i++) {
        pids.push_back(weirt_fork(i, [&](uint32_t rank) {
            const weir_bootstrap_opts opts = weirt_opts(timeout_ms());
            weir_bootstrap *boot = nullptr;
            report->outcome[rank] =
                weirt_outcome([&] { return weir_bootstrap_create(id.text, rank, count, &opts, &boot); });
            if (boot == nullptr) {
                _exit(1);
            }
            report->ready++;
            while (report->stopped == 0) {
                weirt_sleep_ms(1);
            }
            report->outcome[rank] = weirt_outcome([&] { return call(boot, rank); });
            report->outcome[rank].ms = weirt_now_ms() - report->stopped_ms;
            weir_bootstrap_destroy(boot);
        }));
    }
    weir_unique_id_discard(&id);
    weirt_await_count(report->ready, count);
    return pids;
}

void let_go(Shared<Report> &report)
{
    report->stopped_ms = weirt_now_ms();
    report->stopped = 1;
}

void expect_exited(pid_t pid)
{
    const int status = weirt_wait(pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// Repeats a receive without an answer until an error other than its deadline ends it.
weir_status receive_until(weir_bootstrap *boot, uint32_t peer)
{
    uint32_t word;
    weir_status status;
    do {
        status = weir_bootstrap_recv(boot, &word, sizeof word, peer, 1);
    } while (status == WEIR_ERR_TIMEOUT);
    return status;
}

// Ranks that wait for the stopped rank, wait for others, or have no connection to it all name it. It learns of this
// when it continues.
TEST_F(BootstrapBeat, StoppedRankIsNamedByAll)
{
    Shared<Report> report;
    const std::vector<pid_t> pids = start(report, ranks, [](weir_bootstrap *boot, uint32_t rank) {
        return rank == 0 ? weir_bootstrap_barrier(boot, nullptr) : receive_until(boot, rank == 2 ? 1 : 2);
    });
    kill(pids[1], SIGSTOP);
    let_go(report);
    for (uint32_t i : { 0u, 2u, 3u }) {
        expect_exited(pids[i]);
        const Outcome &o = report->outcome[i];
        EXPECT_EQ(o.status, WEIR_ERR_REMOTE) << "rank " << i << ": " << o.text;
        EXPECT_TRUE(weirt_has(o, "rank 1 does not answer (stopped, or its host is unreachable)"))
            << "rank " << i << ": " << o.text;
        EXPECT_GE(o.ms, silence_ms() / 2) << "rank " << i;
        EXPECT_LT(o.ms, timeout_ms() + weirt_slack_ms()) << "rank " << i;
    }
    kill(pids[1], SIGCONT);
    expect_exited(pids[1]);
    EXPECT_EQ(report->outcome[1].status, WEIR_ERR_REMOTE);
    EXPECT_TRUE(weirt_has(report->outcome[1], "gave up this rank, 1, which did not answer")) << report->outcome[1].text;
}

// A rank's threads may be busy: its service thread answers.
TEST_F(BootstrapBeat, BusyRankIsAlive)
{
    weirt_job(
        2,
        [](weir_bootstrap *boot, uint32_t rank) {
            uint32_t word = 5;
            if (rank == 1) {
                weirt_sleep_ms(silence_ms() + 2500 * weirt_slow());
                EXPECT_EQ(weir_bootstrap_send(boot, &word, sizeof word, 0, 1), WEIR_OK) << weir_last_error();
            } else {
                EXPECT_EQ(receive_until(boot, 1), WEIR_OK) << weir_last_error();
            }
            weir_bootstrap_usage usage;
            weir_bootstrap_get_usage(boot, &usage);
            EXPECT_GE(usage.beats, 3u);
            EXPECT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
        },
        timeout_ms());
}

// A whole job that was stopped, as a virtual machine may be, continues: each rank was silent itself. Rank 0 runs again
// before the others.
TEST_F(BootstrapBeat, StopOfAllIsNoSilence)
{
    Shared<Report> report;
    const std::vector<pid_t> pids =
        start(report, 3, [](weir_bootstrap *boot, uint32_t) { return weir_bootstrap_barrier(boot, nullptr); });
    kill(pids[1], SIGSTOP);
    kill(pids[2], SIGSTOP);
    weirt_sleep_ms(200); // rank 0 has read their messages
    kill(pids[0], SIGSTOP);
    weirt_sleep_ms(silence_ms() + 1000);
    kill(pids[0], SIGCONT);
    weirt_sleep_ms(1000);
    kill(pids[1], SIGCONT);
    kill(pids[2], SIGCONT);
    let_go(report);
    for (uint32_t i = 0; i < 3; i++) {
        expect_exited(pids[i]);
        EXPECT_EQ(report->outcome[i].status, WEIR_OK) << "rank " << i << ": " << report->outcome[i].text;
    }
}

// Messages and CPU time of an idle rank.
struct Idle {
    std::atomic<uint32_t> ready;
    std::atomic<uint32_t> done;
    std::atomic<uint64_t> beats;
    std::atomic<uint64_t> cpu_us;
};

uint64_t cpu_us()
{
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<uint64_t>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
           static_cast<uint64_t>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

// `count` ranks are idle for `seconds`, with a timeout of `limit_ms`.
void stay_idle(uint32_t count, uint32_t seconds, uint32_t limit_ms, Idle *idle)
{
    const weir_unique_id id = weirt_new_id();
    std::vector<pid_t> pids;
    for (uint32_t i = 0; i < count; i++) {
        pids.push_back(weirt_fork(i, [&](uint32_t rank) {
            const weir_bootstrap_opts opts = weirt_opts(limit_ms);
            weir_bootstrap *boot = nullptr;
            if (weir_bootstrap_create(id.text, rank, count, &opts, &boot) != WEIR_OK) {
                _exit(1);
            }
            idle->ready++;
            while (idle->ready < count) {
                weirt_sleep_ms(500);
            }
            weirt_sleep_ms(1000);
            weir_bootstrap_usage before;
            weir_bootstrap_usage after;
            weir_bootstrap_get_usage(boot, &before);
            const uint64_t cpu = cpu_us();
            weirt_sleep_ms(1000 * seconds);
            idle->cpu_us += cpu_us() - cpu;
            weir_bootstrap_get_usage(boot, &after);
            idle->beats += after.beats - before.beats;
            idle->done++;
            while (idle->done < count) {
                weirt_sleep_ms(500);
            }
            weir_bootstrap_destroy(boot);
        }));
    }
    weir_unique_id_discard(&id);
    for (const pid_t pid : pids) {
        EXPECT_EQ(weirt_wait(pid), 0);
    }
}

class LongBootstrapBeat : public BootstrapTest {};

// Each rank sends at most ceil(log2 n) heartbeats in an eighth of the timeout; docs/scaling.md has the figures.
TEST_F(LongBootstrapBeat, CostOfAThousandRanks)
{
    const uint32_t count = 1000;
    const uint32_t seconds = 20;
    for (const uint32_t limit_ms : { 86400000u, 30000u }) {
        Shared<Idle> idle;
        stay_idle(count, seconds, limit_ms, idle.operator->());
        const double beats = static_cast<double>(idle->beats) / count / seconds;
        char text[160];
        (void)snprintf(text, sizeof text, "timeout %u ms: %.2f heartbeats and %.0f us of CPU a rank and second",
                       limit_ms, beats, static_cast<double>(idle->cpu_us) / count / seconds);
        printf("[   BEATS  ] %s\n", text);
        EXPECT_LE(beats, 10 / (limit_ms / 8e3) * 1.3 + 0.01) << text;
        EXPECT_GE(beats, limit_ms == 30000 ? 10 / 3.75 * 0.5 : 0) << text;
    }
}

} // namespace
