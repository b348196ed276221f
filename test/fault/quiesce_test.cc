// Ranks that are threads of one process go on after an error: memory stays while another rank's kernel stores there.
#include <algorithm>
#include <vector>

#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "test/harness/stage_test.h"
#include "weir/port_channel.h"

namespace {

// A kernel that stores into memory of the peer and waits for nothing.
bool launch_signals(weirt_rank *rank, const weirt_pair *pair)
{
    weirt_wait_args handles = weirt_wait_of(rank, pair);
    weirt_signal_args args = { handles.semaphore, 100000, 1 };
    return weirt_launch(rank, pair, weirt_signal_kernel(), &args);
}

// Rank 2 aborts. Rank 1 has a kernel that starts late and stores into memory of rank 0, which has finished by then:
// rank 0 keeps its memory until that kernel has ended. Ranks that are processes need not wait.
void survivors_go_on(weirt_rank *rank)
{
    weirt_comm c;
    weirt_pair pair = {};
    const bool threads = !rank->stage->processes;
    weirt_log_allow("abort");
    bool open = weirt_comm_open(rank, 0, &c) && (rank->rank == 2 || weirt_pair_open(rank, c.comm, 1024, 1, &pair)) &&
                weirt_barrier(rank);
    if (open && rank->rank == 2) {
        weir_comm_abort(c.comm);
        WEIRT_OK(rank, weir_comm_quiesce(c.comm, weirt_timeout_ms()));
        WEIRT_EXPECT(rank, !threads || (weirt_step_now(rank, 0) == 1 && weirt_step_now(rank, 1) == 1));
    }
    if (open && rank->rank != 2) {
        if (rank->rank == 1) {
            weirt_sleep_ms(200);
            launch_signals(rank, &pair);
        }
        const weir_status ended = weir_comm_wait(c.comm, pair.stream, weirt_timeout_ms());
        WEIRT_EXPECT(rank, ended == WEIR_ERR_ABORTED || ended == WEIR_OK); // rank 0 may not know yet
        weirt_step(rank, 1);
        WEIRT_OK(rank, weir_comm_quiesce(c.comm, weirt_timeout_ms()));
        WEIRT_EXPECT(rank, !threads || weirt_step_now(rank, 1 - rank->rank) == 1);
    }
    if (pair.comm != nullptr) {
        weirt_pair_close(rank, &pair, false);
    }
    weirt_comm_close(&c);
}

// A rank that does not call it is named; the call does not wait for a rank that has destroyed its communicator.
void busy_rank_is_named(weirt_rank *rank)
{
    weirt_comm c;
    const bool threads = !rank->stage->processes;
    bool open = weirt_comm_open(rank, 0, &c) && weirt_barrier(rank);
    if (open && rank->rank == 0) {
        uint64_t start = weirt_now_ms();
        if (threads) {
            WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_comm_quiesce(c.comm, 150));
            WEIRT_TEXT(rank, "weir_comm_quiesce: rank 1, a thread of this process, did not call it within 150 ms");
            WEIRT_EXPECT(rank, weirt_now_ms() - start >= 150);
        } else {
            WEIRT_OK(rank, weir_comm_quiesce(c.comm, 150));
        }
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_comm_quiesce(nullptr, 1));
    }
    weirt_barrier(rank);
    if (rank->rank == 1) {
        weirt_comm_close(&c);
    }
    weirt_barrier(rank);
    if (rank->rank == 0) {
        WEIRT_OK(rank, weir_comm_quiesce(c.comm, weirt_timeout_ms()));
        weirt_comm_close(&c);
    }
}

constexpr uint64_t BYTES = 1 << 20;
constexpr uint8_t SENT = 0x11;
constexpr uint8_t KEPT = 0x5a;

// A port channel between ranks 0 and 1, whose transfers a proxy makes.
struct Port {
    weir_memory *memory = nullptr;
    weir_proxy *proxy = nullptr;
    weir_port_channel *channel = nullptr;

    bool open(weirt_rank *rank, const weirt_comm *c)
    {
        weir_port_channel_opts opts = WEIR_OPTS(weir_port_channel_opts);
        weir_port_channel_connect_opts connect = WEIR_OPTS(weir_port_channel_connect_opts);
        opts.direct_bytes = WEIR_PORT_DIRECT_NEVER;
        connect.channel = &opts;
        return WEIRT_OK(rank, weir_memory_allocate(c->comm, BYTES, nullptr, &memory)) &&
               WEIRT_OK(rank, weir_device_fill(c->device, weir_memory_pointer(memory), SENT, BYTES)) &&
               WEIRT_OK(rank, weir_proxy_create(c->comm, nullptr, &proxy)) &&
               WEIRT_OK(rank, weir_port_channel_connect(proxy, 1 - rank->rank, 5, memory, &connect, &channel)) &&
               WEIRT_OK(rank, weir_proxy_start(proxy));
    }
    void close()
    {
        weir_port_channel_destroy(channel);
        weir_proxy_destroy(proxy);
        weir_memory_destroy(memory);
    }
};

// Rank 2 aborts while the proxy of rank 1 stores into memory of rank 0. Once rank 1 has stopped it and all have met in
// quiesce, nothing is stored there any more.
void proxies_have_ended(weirt_rank *rank)
{
    weirt_comm c;
    Port port;
    weirt_log_allow("abort");
    bool open = weirt_comm_open(rank, 0, &c) && (rank->rank == 2 || port.open(rank, &c)) && weirt_barrier(rank);
    for (uint32_t i = 0; open && rank->rank == 1 && i < 500; i++) {
        if (weir_port_channel_put(port.channel, 0, 0, BYTES, nullptr) != WEIR_OK) {
            break; // the error of rank 2 is known
        }
        if (i == 20) {
            weirt_step(rank, 1);
        }
    }
    if (open && rank->rank == 2 && weirt_step_wait(rank, 1, 1)) {
        weir_comm_abort(c.comm);
    }
    if (open && rank->rank != 2) {
        WEIRT_OK(rank, weir_proxy_stop(port.proxy));
    }
    if (open) {
        WEIRT_OK(rank, weir_comm_quiesce(c.comm, weirt_timeout_ms()));
    }
    if (open && rank->rank == 0) {
        WEIRT_OK(rank, weir_device_fill(c.device, weir_memory_pointer(port.memory), KEPT, BYTES));
    }
    weirt_barrier(rank);
    if (rank->rank == 1) {
        port.close(); // after it, the thread of the proxy has ended
    }
    weirt_barrier(rank);
    if (open && rank->rank == 0) {
        std::vector<uint8_t> kept(BYTES);
        WEIRT_OK(rank, weir_device_copy(c.device, kept.data(), weir_memory_pointer(port.memory), BYTES));
        WEIRT_EXPECT(rank, std::count(kept.begin(), kept.end(), KEPT) == static_cast<long>(BYTES));
    }
    if (rank->rank == 0) {
        port.close();
    }
    weirt_comm_close(&c);
}

WEIRT_STAGE_SUITE(Quiesce);

TEST_P(Quiesce, SurvivorsKeepMemoryUntilAllKernelsHaveEnded) { run(3, survivors_go_on); }
TEST_P(Quiesce, ProxiesStoreNothingAfterIt)
{
    if (stage()->processes) {
        GTEST_SKIP() << "ranks that are processes do not wait for each other";
    }
    run(3, proxies_have_ended);
}
TEST_P(Quiesce, RankThatIsBusyIsNamed) { run(2, busy_rank_is_named); }

} // namespace
