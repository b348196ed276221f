// Errors and limits of one rank that all ranks learn of at once: a second rank 0, mismatched calls, messages without a
// receiver, communicators that fail on one rank, forks.
#include <atomic>

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <weir/comm.h>
#include <weir/device.h>

#include "test/harness/member.h"

extern "C" {
#include "src/host/base/alloc.h"
}

namespace {

const uint64_t read_at_once = 1 << 20; // from one connection, before others are read
std::atomic<bool> reads_are_counted{ false };
std::atomic<uint32_t> reads_too_many{ 0 };
std::atomic<uint32_t> turns{ 0 };
thread_local int read_from = -1;
thread_local uint64_t read_bytes;

} // namespace

// Replaces libc's function: counts the bytes that a thread reads from one connection in one turn.
extern "C" ssize_t recv(int fd, void *data, size_t bytes, int flags)
{
    const ssize_t n = syscall(SYS_recvfrom, fd, data, bytes, flags, nullptr, nullptr);
    if (reads_are_counted) {
        read_bytes = fd == read_from ? read_bytes : 0;
        read_from = fd;
        reads_too_many += read_bytes >= read_at_once ? 1 : 0;
        read_bytes += n > 0 ? static_cast<uint64_t>(n) : 0;
        turns += n > 0 ? 1 : 0;
        if (n > 1000) {
            weirt_sleep_ms(1); // the sender keeps up
        }
    }
    return n;
}

extern "C" int epoll_wait(int fd, epoll_event *events, int count, int timeout)
{
    read_from = -1;
    return static_cast<int>(syscall(SYS_epoll_pwait, fd, events, count, timeout, nullptr, 0));
}

namespace {

class BootstrapLimits : public BootstrapTest {};

TEST_F(BootstrapLimits, ASecondRankZeroFailsAll)
{
    for (const std::string &where : { std::string(weirt_new_id().text), weirt_free_address() }) {
        for (const Outcome &o : weirt_creates(where, { { 0, 3 }, { 0, 3 }, { 1, 3 } }, weirt_timeout_ms())) {
            EXPECT_EQ(o.status, WEIR_ERR_MISMATCH);
            EXPECT_TRUE(weirt_has(o, "two ranks were created as rank 0 of 3")) << o.text;
            EXPECT_LT(o.ms, 5000u * weirt_slow());
        }
    }
}

// Another program holds the port until the deadline: the error names the port.
TEST_F(BootstrapLimits, ATakenPortIsNamed)
{
    std::string where;
    const int fd = weirt_listen_raw(&where);
    const Outcome o = weirt_creates(where, { { 0, 2 } }, 1500)[0];
    EXPECT_EQ(o.status, WEIR_ERR_SYSTEM);
    EXPECT_TRUE(weirt_has(o, ("bind at " + where).c_str())) << o.text;
    EXPECT_TRUE(weirt_has(o, "Address already in use")) << o.text;
    EXPECT_GE(o.ms, 1400u);
    EXPECT_LT(o.ms, 1500u + weirt_slack_ms());
    close(fd);
}

// A parent makes an id, starts the ranks, and releases the port only after that.
TEST_F(BootstrapLimits, APortThatIsGivenUpLateIsWaitedFor)
{
    Shared<std::atomic<uint32_t>> ready;
    const weir_unique_id id = weirt_new_id();
    std::vector<pid_t> pids;
    for (uint32_t i = 0; i < 2; i++) {
        pids.push_back(weirt_fork(i, [&](uint32_t rank) {
            weir_unique_id_discard(&id); // as after an exec
            (*ready.operator->())++;
            const Outcome o = weirt_creates(id.text, { { rank, 2 } }, weirt_timeout_ms())[0];
            EXPECT_EQ(o.status, WEIR_OK) << o.text;
            _exit(HasFailure() ? 1 : 0);
        }));
    }
    const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
    while (*ready.operator->() < 2 && weirt_now_ms() < end) {
        weirt_sleep_ms(1);
    }
    weirt_sleep_ms(1300);
    weir_unique_id_discard(&id);
    EXPECT_EQ(weirt_wait(pids[0]), 0);
    EXPECT_EQ(weirt_wait(pids[1]), 0);
}

TEST_F(BootstrapLimits, LateRanksLearnOfAMismatch)
{
    const weir_unique_id id = weirt_new_id();
    weirt_threads(4, [&](uint32_t rank) {
        if (rank % 2 == 1) {
            weirt_sleep_ms(1200);
        }
        const weir_bootstrap_opts opts = weirt_opts(weirt_timeout_ms());
        weir_bootstrap *boot = nullptr;
        const Outcome o =
            weirt_outcome([&] { return weir_bootstrap_create(id.text, rank, rank < 2 ? 3 : 4, &opts, &boot); });
        EXPECT_EQ(o.status, WEIR_ERR_MISMATCH);
        EXPECT_TRUE(weirt_has(o, "rank 2 was created with size 4, rank 0 with size 3")) << o.text;
        EXPECT_LT(o.ms, 3000u + weirt_slack_ms());
    });
}

// A root that only broadcasts, and receives nothing, learns that another rank also acts as the root.
TEST_F(BootstrapLimits, RootsLearnOfAMismatch)
{
    weirt_job(3, [](weir_bootstrap *boot, uint32_t rank) {
        const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
        const uint32_t root = rank == 2 ? 2 : 0;
        uint32_t word = rank;
        Outcome o = {};
        while (o.status == WEIR_OK && weirt_now_ms() < end) {
            o = weirt_outcome([&] { return weir_bootstrap_broadcast(boot, nullptr, &word, 4, root); });
        }
        EXPECT_EQ(o.status, WEIR_ERR_MISMATCH) << o.text;
        EXPECT_TRUE(weirt_has(o, "called broadcast of 4 bytes from rank")) << o.text;
        EXPECT_TRUE(weirt_has(o, "rank 2 called")) << o.text;
    });
}

// A rank may be 64 MiB ahead of each other rank; then sends wait, and nothing else does.
TEST_F(BootstrapLimits, SendsWaitForWhoDoesNotReceive)
{
    const uint32_t room = 64;
    const uint32_t all = room + 20;
    std::atomic<uint32_t> sent{ 0 };
    weirt_job(2, [&](weir_bootstrap *boot, uint32_t rank) {
        std::vector<uint32_t> data((1u << 20) / 4);
        if (rank == 0) {
            std::thread sender([&] {
                std::vector<uint32_t> out((1u << 20) / 4);
                for (uint32_t i = 0; i < all; i++) {
                    out[0] = out[out.size() - 1] = i;
                    EXPECT_EQ(weir_bootstrap_send(boot, out.data(), 1u << 20, 1, 5), WEIR_OK) << weir_last_error();
                    sent++;
                }
            });
            EXPECT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
            sender.join();
            return;
        }
        const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
        while (sent < room && weirt_now_ms() < end) {
            weirt_sleep_ms(1);
        }
        weirt_sleep_ms(100);
        EXPECT_EQ(sent.load(), room); // messages of 1 MiB each
        EXPECT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
        for (uint32_t i = 0; i < all; i++) {
            ASSERT_EQ(weir_bootstrap_recv(boot, data.data(), 1u << 20, 0, 5), WEIR_OK) << weir_last_error();
            EXPECT_EQ(data[0], i);
            EXPECT_EQ(data[data.size() - 1], i);
        }
    });
}

TEST_F(BootstrapLimits, SendsThatNobodyReceivesTimeOut)
{
    const uint32_t timeout_ms = 5000 * weirt_slow(); // includes the time to meet
    std::atomic<bool> over{ false };
    weirt_job(
        2,
        [&](weir_bootstrap *boot, uint32_t rank) {
            if (rank == 0) {
                // The message is begun at once and counts, even if it is not fully written in time.
                const std::vector<uint8_t> data(64u << 20);
                const weir_status status = weir_bootstrap_send(boot, data.data(), data.size(), 1, 5);
                EXPECT_TRUE(status == WEIR_OK || status == WEIR_ERR_TIMEOUT) << weir_last_error();
                const Outcome o = weirt_outcome([&] { return weir_bootstrap_send(boot, nullptr, 0, 1, 6); });
                EXPECT_EQ(o.status, WEIR_ERR_TIMEOUT);
                EXPECT_TRUE(weirt_has(o, "rank 1 has not received 64 MiB")) << o.text;
                EXPECT_GE(o.ms, timeout_ms);
                EXPECT_LT(o.ms, timeout_ms + weirt_slack_ms());
                over = true;
            }
            while (!over) {
                weirt_sleep_ms(1);
            }
        },
        timeout_ms);
}

// A connection with steady traffic does not block the others.
TEST_F(BootstrapLimits, AReadIsBounded)
{
    weirt_job(2, [](weir_bootstrap *boot, uint32_t rank) {
        std::vector<uint8_t> data(24u << 20, static_cast<uint8_t>(rank));
        EXPECT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
        reads_are_counted = true;
        EXPECT_EQ(rank == 0 ? weir_bootstrap_recv(boot, data.data(), data.size(), 1, 5)
                            : weir_bootstrap_send(boot, data.data(), data.size(), 0, 5),
                  WEIR_OK)
            << weir_last_error();
        EXPECT_EQ(data[0] + data[data.size() - 1], 2);
        EXPECT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
        reads_are_counted = false;
    });
    EXPECT_GT(turns, 1u);
    EXPECT_EQ(reads_too_many, 0u);
}

// A message counts its bytes and a fixed overhead, where it is sent, held and handled.
TEST_F(BootstrapLimits, EmptyMessagesCountToo)
{
    const uint64_t all = 10 * (100 + 256) + 256;
    weirt_job(2, [&](weir_bootstrap *boot, uint32_t rank) {
        uint8_t data[100] = {};
        for (uint32_t i = 0; i < 11; i++) {
            const size_t bytes = i < 10 ? sizeof data : 0;
            EXPECT_EQ(rank == 0 ? weir_bootstrap_recv(boot, data, bytes, 1, 5)
                                : weir_bootstrap_send(boot, data, bytes, 0, 5),
                      WEIR_OK)
                << weir_last_error();
        }
        (void)pthread_mutex_lock(&boot->mutex);
        const weiri_flow flow = boot->peers[1 - rank].flows[0];
        (void)pthread_mutex_unlock(&boot->mutex);
        EXPECT_EQ(flow.ahead, rank == 0 ? 0 : all);
        EXPECT_EQ(flow.held, rank == 0 ? all : 0);
        EXPECT_EQ(flow.owed, rank == 0 ? all : 0);
        EXPECT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
    });
}

// Of six ranks, 0 and 3 connect only when they need each other. A rank without a free descriptor declares no rank dead,
// reports the shortage, and connects when it has a descriptor.
TEST_F(BootstrapLimits, AShortageOfDescriptorsIsNoDeath)
{
    // Longer than a rank may refuse connections before it counts as gone, and than a busy machine may keep a rank's
    // thread from its CPU: three quarters of it are silence.
    const uint32_t timeout_ms = 5000 * weirt_slow();
    std::atomic<bool> over{ false };
    weirt_job(
        6,
        [&](weir_bootstrap *boot, uint32_t rank) {
            if (rank == 0) {
                rlimit before = {};
                ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
                const rlimit none = { 0, before.rlim_max };
                ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
                const uint32_t lost = 1;
                const Outcome o = weirt_outcome([&] { return weir_bootstrap_send(boot, &lost, 4, 3, 5); });
                ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
                EXPECT_EQ(o.status, WEIR_ERR_TIMEOUT) << o.text;
                EXPECT_TRUE(weirt_has(o, "rank 3 does not receive: Too many open files")) << o.text;
                const uint32_t word = 2;
                EXPECT_EQ(weir_bootstrap_send(boot, &word, 4, 3, 5), WEIR_OK) << weir_last_error();
                over = true;
            }
            while (!over) {
                weirt_sleep_ms(1);
            }
            if (rank == 3) {
                uint32_t word = 0;
                EXPECT_EQ(weir_bootstrap_recv(boot, &word, 4, 0, 5), WEIR_OK) << weir_last_error();
                EXPECT_EQ(word, 2u);
            }
            EXPECT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
        },
        timeout_ms);
}

// A rank that left without a connection to another rank is found when that rank needs it.
TEST_F(BootstrapLimits, ARankThatLeftUnconnectedIsFound)
{
    std::atomic<bool> over{ false };
    weirt_job(6, [&](weir_bootstrap *boot, uint32_t rank) {
        if (rank == 0) {
            uint32_t word = 0;
            const Outcome o = weirt_outcome([&] { return weir_bootstrap_recv(boot, &word, 4, 3, 5); });
            EXPECT_EQ(o.status, WEIR_ERR_REMOTE) << o.text;
            EXPECT_TRUE(weirt_has(o, "rank 3 left")) << o.text;
            EXPECT_LT(o.ms, 5000u * weirt_slow());
            over = true;
        }
        while (!over && rank != 3) {
            weirt_sleep_ms(1);
        }
    });
}

// A root that broadcasts ahead of all others also waits, and the data is right on all ranks.
TEST_F(BootstrapLimits, BroadcastsWaitForWhoIsBehind)
{
    std::atomic<uint32_t> sent{ 0 };
    weirt_job(2, [&](weir_bootstrap *boot, uint32_t rank) {
        std::vector<uint32_t> data((4u << 20) / 4);
        if (rank == 1) {
            const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
            while (sent < 16 && weirt_now_ms() < end) {
                weirt_sleep_ms(1);
            }
            weirt_sleep_ms(100);
            EXPECT_EQ(sent.load(), 16u); // broadcasts of 4 MiB each
        }
        for (uint32_t i = 0; i < 20; i++) {
            data[0] = data[data.size() - 1] = rank == 0 ? i + 1 : 0;
            ASSERT_EQ(weir_bootstrap_broadcast(boot, nullptr, data.data(), 4u << 20, 0), WEIR_OK) << weir_last_error();
            EXPECT_EQ(data[0], i + 1);
            EXPECT_EQ(data[data.size() - 1], i + 1);
            sent += rank == 0 ? 1 : 0;
        }
        // A rank that leaves delivers what it sent within two seconds; a busy machine takes longer for 16 MiB.
        EXPECT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
    });
}

// Messages to ports that were never opened hold nothing back.
TEST_F(BootstrapLimits, PortsThatWereNeverOpenedAreForgotten)
{
    weirt_job(1, [](weir_bootstrap *boot, uint32_t) {
        const weiri_port_handler handler = { [](void *, uint32_t, const uint8_t *, size_t) {},
                                             [](void *, uint32_t, bool, const char *) {}, nullptr };
        const int64_t allocations = weirt_count_allocations();
        for (int round = 0; round < 10; round++) {
            const uint32_t never = weiri_bootstrap_next_port(boot);
            const uint32_t other = weiri_bootstrap_next_port(boot);
            ASSERT_EQ(weiri_bootstrap_open_port(boot, other, &handler), WEIR_OK) << weir_last_error();
            weiri_bootstrap_close_port(boot, round % 2 == 0 ? never : other);
            weiri_bootstrap_close_port(boot, round % 2 == 0 ? other : never);
            EXPECT_EQ(weiri_bootstrap_open_port(boot, never, &handler), WEIR_ERR_INVALID);
        }
        // The service thread may still be releasing some.
        const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
        while (weirt_count_allocations() != allocations && weirt_now_ms() < end) {
            weirt_sleep_ms(1);
        }
        EXPECT_EQ(weirt_count_allocations(), allocations);
    });
}

// A rank whose communicator fails before it has met the others reports this to them; the bootstrap and its ports keep
// working.
TEST_F(BootstrapLimits, ACommunicatorThatFailsOnOneRankFailsOnAll)
{
    weirt_job(3, [](weir_bootstrap *boot, uint32_t rank) {
        weir_device *device = nullptr;
        weir_comm *comm = nullptr;
        ASSERT_EQ(weir_device_open("cpu:0", nullptr, &device), WEIR_OK) << weir_last_error();
        for (uint32_t round = 0; round < 3; round++) {
            const Outcome o =
                weirt_outcome([&] { return weir_comm_create(boot, rank == round ? nullptr : device, nullptr, &comm); });
            EXPECT_EQ(o.status, rank == round ? WEIR_ERR_INVALID : WEIR_ERR_REMOTE) << o.text;
            const std::string who = "rank " + std::to_string(round) + " failed: ";
            EXPECT_TRUE(rank == round || weirt_has(o, who.c_str())) << o.text;
            EXPECT_TRUE(weirt_has(o, "device is NULL")) << o.text;
            EXPECT_LT(o.ms, 5000u * weirt_slow());
        }
        ASSERT_EQ(weir_comm_create(boot, device, nullptr, &comm), WEIR_OK) << weir_last_error();
        EXPECT_EQ(weir_comm_status(comm), WEIR_OK) << weir_last_error();
        ASSERT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
        weir_comm_destroy(comm);
        uint32_t ports[3] = {};
        ports[rank] = weiri_bootstrap_next_port(boot);
        ASSERT_EQ(weir_bootstrap_allgather(boot, nullptr, ports, sizeof ports[0]), WEIR_OK) << weir_last_error();
        EXPECT_EQ(ports[0], 4u);
        EXPECT_EQ(ports[1], 4u);
        EXPECT_EQ(ports[2], 4u);
        weir_device_close(device);
    });
}

// The n-th allocation in the creation of a communicator fails on one rank or the other: neither waits for its deadline.
TEST_F(BootstrapLimits, NoCommunicatorWaitsForOneWithoutMemory)
{
    for (uint64_t n = 1; n < 60; n += 1 + n / 12) {
        std::atomic<uint32_t> reached{ 0 };
        const auto meet = [&](uint32_t all) {
            reached++;
            while (reached < all) {
                weirt_sleep_ms(1);
            }
        };
        weirt_threads(2, [&, id = weirt_new_id()](uint32_t rank) {
            weir_bootstrap *boot = nullptr;
            weir_device *device = nullptr;
            weir_comm *comm = nullptr;
            EXPECT_EQ(weir_device_open("cpu:0", nullptr, &device), WEIR_OK) << weir_last_error();
            EXPECT_EQ(weir_bootstrap_create(id.text, rank, 2, nullptr, &boot), WEIR_OK) << weir_last_error();
            meet(2);
            weiri_alloc_fail_nth(n);
            meet(4);
            const Outcome o = weirt_outcome([&] { return weir_comm_create(boot, device, nullptr, &comm); });
            EXPECT_TRUE(o.status == WEIR_OK || o.status == WEIR_ERR_NOMEM || o.status == WEIR_ERR_REMOTE)
                << n << ": rank " << rank << ": " << o.text;
            EXPECT_LT(o.ms, 10000u * weirt_slow()) << n << ": " << o.text;
            meet(6);
            weiri_alloc_fail_nth(0);
            weir_comm_destroy(comm);
            weir_bootstrap_destroy(boot);
            weir_device_close(device);
        });
    }
}

struct Forks {
    std::atomic<uint32_t> ready;
    std::atomic<uint64_t> killed_ms;
    std::atomic<int> child;
    Outcome outcome[3];
};

// A forked child that outlives its rank does not hold the rank's connections open.
TEST_F(BootstrapLimits, AForkedChildDoesNotHideADeath)
{
    Shared<Forks> report;
    const weir_unique_id id = weirt_new_id();
    std::vector<pid_t> pids;
    for (uint32_t i = 0; i < 3; i++) {
        pids.push_back(weirt_fork(i, [&](uint32_t rank) {
            const weir_bootstrap_opts opts = weirt_opts(weirt_timeout_ms());
            weir_bootstrap *boot = nullptr;
            if (weir_bootstrap_create(id.text, rank, 3, &opts, &boot) != WEIR_OK) {
                _exit(1);
            }
            if (rank == 2) {
                report->child = weirt_fork(rank, [&](uint32_t) {
                    report->ready++;
                    pause();
                });
                pause();
            }
            report->ready++;
            report->outcome[rank] = weirt_outcome([&] { return weir_bootstrap_barrier(boot, nullptr); });
            report->outcome[rank].ms = weirt_now_ms() - report->killed_ms;
            weir_bootstrap_destroy(boot);
        }));
    }
    weir_unique_id_discard(&id);
    const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
    while ((report->ready < 3 || report->child == 0) && weirt_now_ms() < end) {
        weirt_sleep_ms(1);
    }
    EXPECT_EQ(report->ready, 3u);
    report->killed_ms = weirt_now_ms();
    kill(pids[2], SIGKILL);
    for (uint32_t i = 0; i < 3; i++) {
        weirt_wait(pids[i]);
        if (i < 2) {
            EXPECT_EQ(report->outcome[i].status, WEIR_ERR_REMOTE) << report->outcome[i].text;
            EXPECT_TRUE(weirt_has(report->outcome[i], "rank 2 died")) << report->outcome[i].text;
            EXPECT_LT(report->outcome[i].ms, 5000u * weirt_slow());
        }
    }
    if (report->child > 0) {
        kill(report->child, SIGKILL);
    }
}

// The child's calls are refused, and its destroys close all its descriptors.
TEST_F(BootstrapLimits, AForkedChildHasNoneOfTheDescriptors)
{
    const uint32_t before = weirt_count_descriptors();
    weirt_threads(2, [&, id = weirt_new_id()](uint32_t rank) {
        weir_bootstrap *boot = nullptr;
        ASSERT_EQ(weir_bootstrap_create(id.text, rank, 2, nullptr, &boot), WEIR_OK) << weir_last_error();
        ASSERT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
        if (rank == 0) {
            const pid_t child = weirt_fork(0, [&](uint32_t) {
                // All sockets are closed at once; an epoll and an event descriptor of each bootstrap remain.
                const uint32_t left = weirt_count_descriptors();
                const bool refused = weir_bootstrap_barrier(boot, nullptr) == WEIR_ERR_FORKED;
                weir_bootstrap_destroy(boot);
                _exit(refused && left <= before + 4 ? 0 : 1);
            });
            EXPECT_EQ(weirt_wait(child), 0);
        }
        ASSERT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
        weir_bootstrap_destroy(boot);
    });
}

} // namespace
