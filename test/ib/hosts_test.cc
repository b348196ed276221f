// Queues between two hosts, run in two guests of the virtual machine: test/vm/run --two test/ib/two-guests FOLDER
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>

#include "test/ib/ends.h"

using namespace weirt_ib;

namespace {

// A socket to the other guest; -1 if it does not connect in time.
int meet_other_guest(bool server, const char *address, uint16_t port)
{
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    if (inet_pton(AF_INET, address, &at.sin_addr) != 1) {
        return -1;
    }
    const uint64_t give_up = weirt_now_ms() + weirt_timeout_ms();
    if (server) {
        const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        pollfd coming = { listener, POLLIN, 0 };
        int peer = -1;
        if (bind(listener, (const sockaddr *)&at, sizeof at) == 0 && listen(listener, 1) == 0 &&
            poll(&coming, 1, (int)weirt_timeout_ms()) == 1) {
            peer = accept(listener, nullptr, nullptr);
        }
        (void)close(listener);
        return peer;
    }
    while (weirt_now_ms() < give_up) {
        const int peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(peer, (const sockaddr *)&at, sizeof at) == 0) {
            return peer;
        }
        (void)close(peer);
        weirt_sleep_ms(100);
    }
    return -1;
}

// Each guest has one end, a.
class IbHosts : public IbQueue {
protected:
    void meet(uint16_t port)
    {
        const char *rank = getenv("WEIR_TEST_VM_RANK"), *own = getenv("WEIR_TEST_VM_ADDRESS"),
                   *other = getenv("WEIR_TEST_VM_PEER");
        ASSERT_TRUE(rank != nullptr && own != nullptr && other != nullptr) << "these are not two guests";
        first = strcmp(rank, "0") == 0;
        peer_socket = meet_other_guest(first, first ? own : other, port);
        ASSERT_GE(peer_socket, 0);
    }

    void TearDown() override
    {
        if (peer_socket >= 0) {
            (void)close(peer_socket);
        }
        IbQueue::TearDown();
    }

    void wait_for_the_other()
    {
        char byte = 0;
        ASSERT_EQ(write(peer_socket, &byte, 1), 1);
        ASSERT_EQ(read(peer_socket, &byte, 1), 1);
    }

    void open(uint64_t bytes)
    {
        card peer;
        ASSERT_TRUE(a.open(0, bytes)) << weir_last_error();
        ASSERT_TRUE(swap_cards(peer_socket, a.own(), &peer));
        ASSERT_TRUE(a.join(peer)) << weir_last_error();
        ASSERT_NO_FATAL_FAILURE(wait_for_the_other());
    }

    // Both guests send n bytes and a value behind them, in turn.
    void take_turns(uint64_t turns, uint64_t n)
    {
        for (uint64_t r = 1; r <= turns; r++) {
            if ((r % 2 == 0) == first) {
                ASSERT_TRUE(a.await(0, r)) << r;
                ASSERT_EQ(a.wrong(4096, n, r), 0u) << r;
            } else {
                a.fill(4096 + n, n, r);
                ASSERT_EQ(a.put(4096, 4096 + n, n), WEIR_OK) << weir_last_error();
                ASSERT_EQ(a.value(0, r), WEIR_OK) << weir_last_error();
                ASSERT_EQ(a.wait_all(), WEIR_OK) << weir_last_error();
            }
        }
        ASSERT_NO_FATAL_FAILURE(wait_for_the_other());
    }

    bool first = false;
    int peer_socket = -1;
};

TEST_F(IbHosts, DISABLED_DataBeforeValue)
{
    ASSERT_NO_FATAL_FAILURE(meet(20100));
    ASSERT_NO_FATAL_FAILURE(open(1 << 20));
    take_turns(100, 50000);
}

// Long transfers go over both NICs, each in its own network.
TEST_F(IbHosts, DISABLED_DataBeforeValueOverTwoNics)
{
    ASSERT_NO_FATAL_FAILURE(meet(20101));
    setenv("WEIR_IB_RAILS", "2x1", 1);
    ASSERT_NO_FATAL_FAILURE(open(1 << 20));
    take_turns(10, 400000);
}

} // namespace
