// Promises of a port channel's signals: docs/memory-ordering.md. Transfers by requests are in window_port_test.cc.
#include "weir/device/port_channel.h"

#include "test/litmus/litmus.h"

namespace {

using namespace litmus;

constexpr uint32_t SIGNAL_ORDERS = WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE | WEIRT_WEAK_NO_SYSTEM;

// Rank i is thread i, on device i. Thread 2 is the host thread of rank 0, which has a token of its own.
struct Ports : Pair {
    static constexpr uint32_t threads = 3;
    static uint32_t device(uint32_t i) { return i % 2; }
    weir_dev_progress progress[2];
    weir_dev_credits credits[2];
    weir_dev_port_channel channel[2];
    uint64_t seen[2] = {};

    Ports()
    {
        std::memset(static_cast<void *>(progress), 0, sizeof progress);
        std::memset(static_cast<void *>(credits), 0, sizeof credits);
        std::memset(static_cast<void *>(channel), 0, sizeof channel);
        for (uint32_t i = 0; i < 2; i++) {
            channel[i].engine = WEIR_PORT_BY_PROXY;
            channel[i].semaphore = rank[i].channel.semaphore;
            channel[i].queue.progress = &progress[i];
            channel[i].queue.credits = &credits[i];
            channel[i].remote = rank[i].channel.remote;
            channel[i].remote_bytes = rank[i].channel.remote_bytes;
            channel[i].local = rank[i].channel.local;
            channel[i].local_bytes = rank[i].channel.local_bytes;
            channel[i].direct_bytes = 4096;
        }
    }
    // A put and signal by the kernel's own stores.
    void send_by_kernel()
    {
        write(rank[0].data[0], 7);
        check(weir_dev_port_channel_put_signal(&channel[0], 8, 0, 8, thread_coop(), nullptr));
    }
    // What the host thread of rank 0 does for a request: it stores the data and then its token.
    void send_by_host()
    {
        write(rank[1].data[2], 8);
        weir_arch_store_release_sys_u64(rank[1].inbound[0].words + 1, 1);
    }
    void send(uint32_t thread)
    {
        if (thread == 0) {
            send_by_kernel();
        } else {
            send_by_host();
        }
    }
    void read_data()
    {
        seen[0] = read(rank[1].data[1]);
        seen[1] = read(rank[1].data[2]);
    }
    bool right() const { return failed == 0 && seen[0] == 7 && seen[1] == 8; }
};

struct PortWait : Ports {
    void thread(uint32_t i)
    {
        if (i != 1) {
            send(i);
            return;
        }
        check(weir_dev_port_channel_wait(&channel[1]));
        check(weir_dev_port_channel_wait(&channel[1]));
        read_data();
    }
};

TEST(LitmusPort, WaitsForBothTokensOrderData) { holds<PortWait>(SIGNAL_ORDERS); }

struct PortPoll : Ports {
    void thread(uint32_t i)
    {
        if (i != 1) {
            send(i);
            return;
        }
        for (uint32_t left = 2; left > 0;) {
            const weir_status status = weir_dev_port_channel_poll(&channel[1]);
            check(status == WEIR_PENDING ? WEIR_OK : status);
            left -= status != WEIR_PENDING;
        }
        read_data();
    }
};

TEST(LitmusPort, PollsOfBothTokensOrderData) { holds<PortPoll>(SIGNAL_ORDERS); }

} // namespace
