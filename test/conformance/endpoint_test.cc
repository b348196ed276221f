// The queues of a connection's endpoint: which objects need one, and how the two ends connect.
#include <vector>

#include "port.h"

namespace {

PORT_SUITE(Endpoint, PORT_IPC, PORT_IB, PORT_OFI, PORT_DEVICE);

constexpr uint64_t MANY = uint64_t{ 1 } << 40;

// Moves a word to the peer's half, with a signal, and checks what the peer has sent.
void move(weirt_rank *rank, port_bench *b, weir_port_channel *channel, bool receives, weir_semaphore *semaphore,
          uint64_t round)
{
    const uint64_t at = 8 * round;
    if (channel != nullptr) {
        const uint64_t word = port_word(rank->rank, round);
        b->write(rank, at, &word, sizeof word);
        WEIRT_OK(rank, weir_port_channel_put_signal_flush(channel, b->half + at, at, sizeof word));
    }
    if (receives) {
        uint64_t word = 0;
        WEIRT_OK(rank, weir_semaphore_wait(semaphore, weirt_timeout_ms()));
        b->read(rank, b->half + at, &word, sizeof word);
        WEIRT_EXPECT(rank, word == port_word(b->peer, round));
    }
}

// Semaphores open no queue. Making a channel opens one on both ranks, even if the peer makes no channel.
void semaphores(weirt_rank *rank)
{
    constexpr uint32_t count = 100;
    port_bench b;
    std::vector<weir_semaphore *> made(count);
    weir_port_channel *channel = nullptr;
    bool open = b.open_ends(rank, 0, 4096, WEIR_SEMAPHORE_HOST);
    weirt_barrier(rank);
    const bool counts = rank->rank == 0 || rank->stage->processes;
    if (counts) {
        (void)weirt_fail_transport(MANY);
    }
    weirt_barrier(rank);
    for (uint32_t i = 0; i < count && open; i++) {
        open = weirt_semaphore(rank, b.connection, 100 + i, WEIR_SEMAPHORE_HOST, &made[i]);
    }
    weirt_barrier(rank);
    if (counts) {
        WEIRT_EXPECT(rank, weirt_fail_transport(0) == MANY); // no operation of a transport
    }
    WEIRT_EXPECT(rank, weirt_connection_queues(b.connection) == 0);
    weirt_barrier(rank);
    // Over ipc queues stand alone, so the peer has none.
    const bool joined = b.plan.transport != PORT_IPC;
    if (open && rank->rank == 0) {
        WEIRT_OK(rank, weir_port_channel_create(b.proxy, made[57], b.remote, b.local, nullptr, &channel));
        WEIRT_OK(rank, weir_proxy_start(b.proxy));
        WEIRT_EXPECT(rank, weirt_connection_queues(b.connection) == 1);
    }
    weirt_barrier(rank);
    WEIRT_EXPECT(rank, weirt_connection_queues(b.connection) == (rank->rank == 0 || joined ? 1 : 0));
    move(rank, &b, channel, rank->rank == 1, made[57], 0);
    weirt_barrier(rank);
    // The peer's channel uses the queue that was opened for it.
    if (open && rank->rank == 1) {
        WEIRT_OK(rank, weir_port_channel_create(b.proxy, made[57], b.remote, b.local, nullptr, &channel));
        WEIRT_OK(rank, weir_proxy_start(b.proxy));
    }
    WEIRT_EXPECT(rank, weirt_connection_queues(b.connection) == 1);
    move(rank, &b, channel, true, made[57], 1);
    weirt_barrier(rank);
    weir_port_channel_destroy(channel);
    WEIRT_EXPECT(rank, weirt_connection_queues(b.connection) == 0);
    for (weir_semaphore *semaphore : made) {
        weir_semaphore_destroy(semaphore);
    }
    b.close(rank, true);
}

TEST_P(Endpoint, SemaphoresCostNoQueue) { run(semaphores, plan()); }

// Both ranks make channels in different orders, each with a queue. An error of one does not end the others.
void orders(weirt_rank *rank)
{
    constexpr uint32_t count = 6;
    port_bench b;
    weir_semaphore *made[count] = {};
    weir_port_channel *channels[count] = {};
    bool open = b.open_ends(rank, 0, 4096, WEIR_SEMAPHORE_HOST) && WEIRT_OK(rank, weir_proxy_start(b.proxy));
    for (uint32_t i = 0; i < count && open; i++) {
        open = weirt_semaphore(rank, b.connection, 100 + i, WEIR_SEMAPHORE_HOST, &made[i]);
    }
    for (uint32_t i = 0; i < count && open; i++) {
        const uint32_t which = rank->rank == 0 ? i : count - 1 - i;
        open = WEIRT_OK(rank,
                        weir_port_channel_create(b.proxy, made[which], b.remote, b.local, nullptr, &channels[which]));
    }
    WEIRT_EXPECT(rank, weirt_connection_queues(b.connection) == count);
    for (uint32_t i = 0; i < count && open; i++) {
        move(rank, &b, channels[i], true, made[i], i);
    }
    weirt_barrier(rank);
    weir_port_channel_destroy(channels[rank->rank]); // rank 0's first, rank 1's second
    channels[rank->rank] = nullptr;
    weirt_barrier(rank);
    for (uint32_t i = 2; i < count && open; i++) {
        move(rank, &b, channels[i], true, made[i], count + i);
    }
    weirt_barrier(rank);
    for (uint32_t i = 0; i < count; i++) {
        weir_port_channel_destroy(channels[i]);
        weir_semaphore_destroy(made[i]);
    }
    b.close(rank, true);
}

TEST_P(Endpoint, ChannelsInAnyOrderHaveQueuesOfTheirOwn) { run(orders, plan()); }

// A peer that has destroyed its semaphore reports this, and create does not wait for it.
void destroyed(weirt_rank *rank)
{
    port_bench b;
    weir_semaphore *semaphore = nullptr;
    weir_port_channel *channel = nullptr;
    if (b.open_ends(rank, 0, 4096, WEIR_SEMAPHORE_HOST) &&
        weirt_semaphore(rank, b.connection, 100, WEIR_SEMAPHORE_HOST, &semaphore)) {
        weirt_barrier(rank);
        if (rank->rank == 1) {
            weir_semaphore_destroy(semaphore);
            semaphore = nullptr;
        }
        weirt_barrier(rank);
        if (rank->rank == 0) {
            WEIRT_STATUS(rank, WEIR_ERR_REMOTE,
                         weir_port_channel_create(b.proxy, semaphore, b.remote, b.local, nullptr, &channel));
            WEIRT_TEXT(rank, "weir_port_channel_create: rank 1: its semaphore was destroyed");
        }
    }
    weirt_barrier(rank);
    weir_semaphore_destroy(semaphore);
    b.close(rank, true);
}

TEST_P(Endpoint, PeerThatHasDestroyedItsSemaphoreSaysSo)
{
    if (plan().transport == PORT_IPC) {
        GTEST_SKIP() << "queues of ipc stand alone";
    }
    run(destroyed, plan());
}

constexpr uint32_t STALL_TIMEOUT_MS = 1000;

// A driver blocks rank 1's endpoint thread. Destroying the semaphore and all objects below it still returns.
void stalled(weirt_rank *rank)
{
    port_bench b;
    const uint32_t timeout = STALL_TIMEOUT_MS * weirt_slow();
    const bool open = b.open_ends(rank, timeout, 4096, WEIR_SEMAPHORE_HOST);
    if (open && rank->rank == 1) {
        weirt_connection_stall(b.connection);
    }
    weirt_barrier(rank);
    if (open && rank->rank == 0) {
        WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT,
                     weir_port_channel_create(b.proxy, b.semaphore, b.remote, b.local, nullptr, &b.channel));
        WEIRT_TEXT(rank, "rank 1 did not open its end of the queue");
    }
    weirt_barrier(rank);
    if (open && rank->rank == 1) {
        for (uint64_t end = weirt_now_ms() + weirt_timeout_ms(); !weirt_connection_stalled() && weirt_now_ms() < end;) {
            weirt_sleep_ms(1);
        }
        weirt_log_allow("");
        b.close(rank, false);
        WEIRT_EXPECT(rank, weirt_connection_stalled()); // the thread has not returned
        WEIRT_EXPECT(rank, weirt_log_count("rank 1: the queue to rank 0 is still being opened") == 1);
    }
    weirt_barrier(rank);
    if (rank->rank == 0) {
        b.close(rank, false);
    }
    weirt_barrier(rank);
    if (rank->rank == 1) {
        weirt_die(rank, WEIRT_EXIT); // skips the leak check: this leak is intended
    }
}

TEST_P(Endpoint, CloseDoesNotWaitForADriverForEver)
{
    if (plan().transport == PORT_IPC) {
        GTEST_SKIP() << "queues of ipc stand alone";
    }
    if (!stage()->processes) {
        GTEST_SKIP() << "the resources of the endpoint thread end with its process";
    }
    run(stalled, plan());
}

} // namespace
