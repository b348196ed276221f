// Failures of queues: malformed keys and addresses, deregistered memory, peers that end, allocation failures.
#include <cstdlib>

#include "test/harness/checks.h"
#include "test/transport/queues.h"

using weirt::fill;
using weirt::Meeting;
using weirt::Offer;
using weirt::Side;
using weirt::wrong;

namespace {

WEIRT_QUEUE_SUITE(QueueFault);
WEIRT_QUEUE_THREAD_SUITE(QueueFaultThreads);
WEIRT_QUEUE_PROCESS_SUITE(QueueFaultProcesses);

// Every truncation and every changed byte of a key and an address is refused as malformed or accepted; the right one is
// still accepted afterwards.
void garbled(weirt_rank *rank)
{
    Side side(rank);
    weiri_queue *queue;
    weiri_region *region;
    if (!side.open_domain() || !WEIRT_OK(rank, side.ops->queue_open(side.domain, &queue))) {
        return;
    }
    side.queues.push_back(queue);
    if (!side.allocate(4096) || !WEIRT_OK(rank, side.ops->region_open(side.domain, side.blocks[0], &region))) {
        return;
    }
    side.regions.push_back(region);
    WEIRT_EXPECT(rank, region->key.length > 0 && region->key.length <= WEIRI_KEY_MAX && region->key.size == 4096);
    for (uint32_t length = 0; length < region->key.length; length++) {
        weiri_key key = region->key;
        weiri_remote *remote;
        key.length = length;
        WEIRT_STATUS(rank, WEIR_ERR_CORRUPT, side.ops->remote_open(side.domain, &key, nullptr, &remote));
    }
    for (uint32_t i = 0; i < region->key.length; i++) {
        weiri_key key = region->key;
        weiri_remote *remote;
        key.bytes[i] ^= 0x5a;
        weir_status status = side.ops->remote_open(side.domain, &key, nullptr, &remote);
        WEIRT_EXPECT(rank, status == WEIR_OK || status == WEIR_ERR_CORRUPT);
        if (status == WEIR_OK) {
            side.ops->remote_close(remote);
        }
    }
    weiri_key longer = region->key;
    weiri_remote *remote;
    longer.length = WEIRI_KEY_MAX + 1;
    WEIRT_STATUS(rank, WEIR_ERR_CORRUPT, side.ops->remote_open(side.domain, &longer, nullptr, &remote));
    for (uint32_t length = 0; length < queue->address_bytes; length++) {
        WEIRT_STATUS(rank, WEIR_ERR_CORRUPT, side.ops->queue_connect(queue, queue->address, length));
    }
    // Connects to itself: the address is valid.
    WEIRT_OK(rank, side.ops->queue_connect(queue, queue->address, queue->address_bytes));
}

TEST_P(QueueFaultThreads, GarbledKeysAndAddresses)
{
    weirt_ranks_run_shared(stage(), 1, garbled, &meeting, sizeof meeting);
}

// The peer deregisters memory whose key was sent: an operation on it fails only its queue, with a text. Meeting.number:
// 0 a put, 1 a get, 2 a value.
void revoked(weirt_rank *rank)
{
    Side side(rank);
    if (!side.open(2, { 4096, 4096, 4096 })) {
        return;
    }
    if (rank->rank == 1) {
        side.ops->region_close(side.regions[1]);
        side.regions.erase(side.regions.begin() + 1);
    }
    fill(side.bytes(0), 4096, 1, rank->rank);
    side.meet();
    if (rank->rank == 0) {
        weiri_queue *queue = side.queues[0];
        weir_status status =
            side.meeting->number == 0   ? side.ops->put(queue, side.remotes[1], 0, side.regions[0], 0, 4096)
            : side.meeting->number == 1 ? side.ops->get(queue, side.regions[1], 0, side.remotes[1], 0, 4096)
                                        : side.ops->value(queue, side.remotes[1], 0, 1, 8);
        uint64_t before = queue->posted;
        WEIRT_OK(rank, status);
        status = side.failure(0, nullptr);
        WEIRT_EXPECT(rank, status < 0 && status != WEIR_ERR_BUSY);
        WEIRT_TEXT(rank, "queue");
        WEIRT_EXPECT(rank, queue->completed == before - 1);
        // It stays failed, with the same text.
        std::string words = weir_last_error();
        WEIRT_STATUS(rank, status, side.ops->put(queue, side.remotes[2], 0, side.regions[0], 0, 8));
        WEIRT_TEXT(rank, words.c_str());
        WEIRT_STATUS(rank, status, side.ops->value(queue, side.remotes[2], 0, 0, 8));
        WEIRT_STATUS(rank, status, side.ops->poll(queue));
        // The other queue goes on.
        WEIRT_OK(rank, side.ops->put(side.queues[1], side.remotes[2], 0, side.regions[0], 0, 4096));
        WEIRT_OK(rank, side.ops->value(side.queues[1], side.remotes[0], 0, 77, 8));
        side.finish(1);
    }
    side.meet();
    if (rank->rank == 1) {
        uint64_t value;
        std::memcpy(&value, side.bytes(0), sizeof value);
        WEIRT_EXPECT(rank, !wrong(side.bytes(2), 4096, 1, 0) && value == 77);
        WEIRT_EXPECT(rank, side.bytes(1)[0] == 0 && side.bytes(1)[4095] == 0);
    }
    side.meet();
}

TEST_P(QueueFault, PutToRevokedMemoryFailsItsQueueAlone)
{
    meeting.number = 0;
    run(revoked);
}

TEST_P(QueueFaultThreads, GetFromRevokedMemoryFailsItsQueueAlone)
{
    meeting.number = 1;
    run(revoked);
}

TEST_P(QueueFaultThreads, ValueToRevokedMemoryFailsItsQueueAlone)
{
    meeting.number = 2;
    run(revoked);
}

// Values to registered memory and one to deregistered memory are all posted before the peer polls: the first ones
// complete, although their acknowledgement may arrive with the error.
void done_before_the_failure(weirt_rank *rank)
{
    Side side(rank);
    const uint64_t values = 5;
    if (!side.open(1, { 64, 64 })) {
        return;
    }
    if (rank->rank == 1) {
        side.ops->region_close(side.regions[1]);
        side.regions.erase(side.regions.begin() + 1);
    }
    weiri_queue *queue = side.queues[0];
    side.meet();
    if (rank->rank == 0) {
        WEIRT_OK(rank, side.ops->value(queue, side.remotes[0], 0, 1, 8));
        side.finish(0); // makes the connection
    }
    side.meet();
    if (rank->rank == 0) {
        for (uint64_t i = 2; i <= values; i++) {
            WEIRT_OK(rank, side.ops->value(queue, side.remotes[0], 0, i, 8));
        }
        WEIRT_OK(rank, side.ops->value(queue, side.remotes[1], 0, 1, 8));
        weirt_step(rank, 1000);
        const weir_status status = side.failure(0, nullptr);
        WEIRT_EXPECT(rank, status < 0 && status != WEIR_ERR_BUSY);
        WEIRT_EXPECT(rank, queue->posted == values + 1 && queue->completed == values);
    } else {
        const uint64_t *word = reinterpret_cast<const uint64_t *>(side.bytes(0));
        weirt_step_wait(rank, 0, 1000);
        weirt_sleep_ms(20); // all of them arrive
        side.until("the last value", [&] { return __atomic_load_n(word, __ATOMIC_ACQUIRE) == values; });
    }
    weirt_step(rank, 1001);
    side.until("the other rank", [&] { return weirt_step_now(rank, 1 - rank->rank) >= 1001; });
}

TEST_P(QueueFaultThreads, WhatIsDoneBeforeAFailureIsComplete)
{
    if (GetParam().first.compare(0, 2, "ib") == 0) {
        GTEST_SKIP() << "a queue of ib asks for few completions";
    }
    run(done_before_the_failure);
}

// Rank 1 is killed while rank 0 posts as fast as it can.
void killed_under_load(weirt_rank *rank)
{
    Side side(rank);
    const uint64_t size = 1 << 18;
    if (!side.open(1, { size, size })) {
        return;
    }
    if (rank->rank == 1) {
        const uint64_t *count = reinterpret_cast<const uint64_t *>(side.bytes(1) + 8);
        side.until("the load", [&] { return __atomic_load_n(count, __ATOMIC_ACQUIRE) >= 20; });
        weirt_die(rank, WEIRT_KILL);
    }
    uint64_t posts = 0;
    weir_status status = side.failure(0, [&] {
        posts++;
        return posts % 2 == 0 ? side.ops->value(side.queues[0], side.remotes[1], 8, posts, 8)
                              : side.ops->put(side.queues[0], side.remotes[1], 64, side.regions[0], 0, size - 64);
    });
    WEIRT_STATUS(rank, WEIR_ERR_REMOTE, status);
    WEIRT_TEXT(rank, "peer");
}

TEST_P(QueueFaultProcesses, PeerIsKilledUnderLoad) { run(killed_under_load); }

// Rank 1 is killed while nothing is under way. Rank 0's posts fail or stay incomplete; they neither hang nor complete.
void killed_idle(weirt_rank *rank)
{
    Side side(rank);
    if (!side.open(1, { 4096, 4096 })) {
        return;
    }
    WEIRT_OK(rank, side.ops->put(side.queues[0], side.remotes[1], 0, side.regions[0], 0, 4096));
    side.finish(0);
    side.meet();
    if (rank->rank == 1) {
        weirt_die(rank, WEIRT_KILL);
    }
    weirt_death_wait(rank, 1);
    uint64_t completed = side.queues[0]->completed;
    uint64_t deadline = weirt_now_ms() + 200;
    weir_status status = WEIR_OK;
    for (uint64_t i = 0; weirt_now_ms() < deadline && status >= 0; i++) {
        weir_status posted = side.ops->put(side.queues[0], side.remotes[1], 0, side.regions[0], 0, 4096);
        status = posted == WEIR_ERR_BUSY || posted >= 0 ? side.ops->poll(side.queues[0]) : posted;
    }
    WEIRT_EXPECT(rank, side.queues[0]->completed == completed);
    WEIRT_EXPECT(rank, status >= 0 || weir_last_error()[0] != '\0');
}

TEST_P(QueueFaultProcesses, PeerIsKilledIdle) { run(killed_idle); }

// Rank 0 closes its queue with transfers of all kinds under way, and frees their memory. New queues work.
void closed_at_work(weirt_rank *rank)
{
    Side side(rank);
    const uint64_t size = 8 << 20;
    if (!side.open(1, { size, size })) {
        return;
    }
    WEIRT_OK(rank, side.ops->put(side.queues[0], side.remotes[1], 0, side.regions[0], 0, 8));
    side.finish(0);
    side.meet();
    if (rank->rank == 0) {
        weiri_queue *queue = side.queues[0];
        for (int i = 0; i < 5; i++) {
            WEIRT_OK(rank, side.ops->put(queue, side.remotes[1], 0, side.regions[0], 0, size));
            WEIRT_OK(rank, side.ops->get(queue, side.regions[1], 0, side.remotes[1], 0, size));
            WEIRT_OK(rank, side.ops->value(queue, side.remotes[1], 0, 1, 8));
            (void)side.ops->poll(queue);
        }
        side.ops->queue_close(queue);
        side.queues.clear();
        side.ops->region_close(side.regions[0]);
        weiri_block_release(side.blocks[0]);
        side.blocks.erase(side.blocks.begin());
        WEIRT_EXPECT(rank, side.allocate(size));
        std::swap(side.blocks[0], side.blocks[1]);
        WEIRT_OK(rank, side.ops->region_open(side.domain, side.blocks[0], &side.regions[0]));
    }
    side.meet();
    if (rank->rank == 1) {
        side.ops->queue_close(side.queues[0]);
        side.queues.clear();
    }
    if (!side.open_queues(1)) {
        return;
    }
    fill(side.bytes(0), size, 5, rank->rank);
    side.meet();
    WEIRT_OK(rank, side.ops->put(side.queues[0], side.remotes[1], 0, side.regions[0], 0, size));
    side.finish(0);
    side.meet();
    WEIRT_EXPECT(rank, !wrong(side.bytes(1), size, 5, 1 - rank->rank));
    side.meet();
}

TEST_P(QueueFault, ClosedWithWorkInFlight) { run(closed_at_work); }

// The n-th allocation fails: the call returns an error and leaks nothing, and the next attempt continues.
void nth_allocation(weirt_rank *rank)
{
    Side side(rank);
    if (!side.open_device() || !side.allocate(4096)) {
        return;
    }
    for (uint64_t n = 1; n < 100; n++) {
        weiri_domain *domain = nullptr;
        weiri_region *region = nullptr;
        weiri_remote *remote = nullptr;
        weiri_queue *queue = nullptr;
        weirt_fail_allocation(n);
        weir_status status = side.ops->domain_open(side.device, &domain);
        status = status != WEIR_OK ? status : side.ops->region_open(domain, side.blocks[0], &region);
        status = status != WEIR_OK ? status : side.ops->remote_open(domain, &region->key, nullptr, &remote);
        status = status != WEIR_OK ? status : side.ops->queue_open(domain, &queue);
        bool hit = weirt_fail_allocation(0) == 0;
        side.ops->queue_close(queue);
        side.ops->remote_close(remote);
        side.ops->region_close(region);
        side.ops->domain_close(domain);
        WEIRT_STATUS(rank, hit ? WEIR_ERR_NOMEM : WEIR_OK, status);
        if (!hit) {
            return;
        }
    }
    weirt_fail(rank, __FILE__, __LINE__, "an allocation fails for ever");
}

TEST_P(QueueFaultThreads, NthAllocationFails)
{
    weirt_ranks_run_shared(stage(), 1, nth_allocation, &meeting, sizeof meeting);
}

} // namespace
