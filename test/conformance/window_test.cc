// Windows over communicators: exchanges between all ranks of all devices, and scripts of calls.
#include "window_ways.h"

namespace {

using namespace windows;

WEIRT_WINDOW_SUITE(Window);

// ---- exchanges -----------------------------------------------------------------------------------------------------

constexpr uint64_t SLOT = 272;
constexpr uint64_t SIZES[] = { 0, 1, 130, SLOT };

bool open_exchange(weirt_rank *rank, Bench *bench)
{
    const Plan *plan = plan_of(rank);
    const uint64_t bytes = uint64_t{ 2 } * plan->ranks * rank->size * SLOT;
    return bench->join(rank, 0) &&
           bench->open(rank, ways[plan->way], plan->ranks, plan->notifications, bytes, bytes, 1) && weirt_barrier(rank);
}

bool exchanged(weirt_rank *rank, const Bench &bench, uint64_t rounds)
{
    const weirt_window_report *report = bench.report();
    bool fine = true;
    for (uint32_t i = 0; i < bench.ranks; i++) {
        fine = WEIRT_EXPECT(rank, report->status[i] == WEIR_OK && report->rounds[i] == rounds) && fine;
    }
    if (report->wrong != 0) {
        weirt_fail(rank, __FILE__, __LINE__, "%llu wrong, as in round %llu from rank %llu to %llu",
                   static_cast<unsigned long long>(report->wrong), static_cast<unsigned long long>(report->wrong_round),
                   static_cast<unsigned long long>(report->wrong_source),
                   static_cast<unsigned long long>(report->wrong_target));
        fine = false;
    }
    return fine;
}

void exchanges(weirt_rank *rank)
{
    const Plan *plan = plan_of(rank);
    Bench bench;
    uint64_t rounds = 0;
    bool fine = open_exchange(rank, &bench);
    for (uint64_t bytes : SIZES) { // the check finds bytes that an earlier, smaller size should not have written
        fine = fine &&
               WEIRT_OK(rank, bench.launch_exchange(rank, bench.exchange(SLOT, bytes, 20, plan->form), plan->blocks)) &&
               WEIRT_OK(rank, bench.finish()) && exchanged(rank, bench, rounds += 20);
    }
    WEIRT_EXPECT(rank, !fine || weir_comm_status(bench.c.comm) == WEIR_OK);
    (void)weirt_barrier(rank);
    bench.close();
}

TEST_P(Window, PutNotify) { run(4, exchanges, exchange(WEIRT_WINDOW_PUT_NOTIFY, 2, 2)); }
TEST_P(Window, PutAndNotify) { run(3, exchanges, exchange(WEIRT_WINDOW_PUT, 2, 2)); }
TEST_P(Window, Take) { run(2, exchanges, exchange(WEIRT_WINDOW_TAKE, 3, 3)); }
TEST_P(Window, Poll) { run(2, exchanges, exchange(WEIRT_WINDOW_POLL, 3, 3)); }
TEST_P(Window, Get) { run(3, exchanges, exchange(WEIRT_WINDOW_GET, 2, 2)); }
TEST_P(Window, Barrier) { run(4, exchanges, exchange(WEIRT_WINDOW_BARRIER, 2, 2)); }
TEST_P(Window, OneDevice) { run(1, exchanges, exchange(WEIRT_WINDOW_PUT_NOTIFY, 4, 4)); }
TEST_P(Window, MoreRanksThanBlocks) { run(2, exchanges, exchange(WEIRT_WINDOW_PUT_NOTIFY, 7, 2)); }
TEST_P(Window, GetsOfMoreRanksThanBlocks) { run(2, exchanges, exchange(WEIRT_WINDOW_GET, 5, 2)); }

// Every form of exchange, one after the other, with rings in host memory.
void host_rings(weirt_rank *rank)
{
    const Plan *plan = plan_of(rank);
    Bench bench;
    bench.rings = WEIR_MEMORY_HOST;
    uint64_t rounds = 0;
    bool fine = open_exchange(rank, &bench);
    if (fine) {
        weir_dev_window handle;
        weir_device_place place;
        weir_window_device(bench.windows[0], &handle);
        fine = WEIRT_OK(rank, weir_device_locate(handle.rings, &place)) &&
               WEIRT_EXPECT(rank, place.kind == WEIR_MEMORY_HOST) &&
               WEIRT_OK(rank, weir_device_locate(handle.sent, &place)) &&
               WEIRT_EXPECT(rank, place.kind == WEIR_MEMORY_DEVICE);
    }
    for (uint32_t form : { WEIRT_WINDOW_PUT_NOTIFY, WEIRT_WINDOW_PUT, WEIRT_WINDOW_TAKE, WEIRT_WINDOW_POLL,
                           WEIRT_WINDOW_GET, WEIRT_WINDOW_BARRIER }) {
        fine = fine && WEIRT_OK(rank, bench.launch_exchange(rank, bench.exchange(SLOT, 130, 10, form), plan->blocks)) &&
               WEIRT_OK(rank, bench.finish()) && exchanged(rank, bench, rounds += 10);
    }
    WEIRT_EXPECT(rank, !fine || weir_comm_status(bench.c.comm) == WEIR_OK);
    (void)weirt_barrier(rank);
    bench.close();
}

TEST_P(Window, RingsInHostMemory) { run(2, host_rings, exchange(0, 2, 2)); }
TEST_P(Window, RingsInHostMemoryOfOneDevice) { run(1, host_rings, exchange(0, 3, 3)); }

// A thousand replays of one graph. After the first half another memory is registered; the graph has the older handle.
void replays(weirt_rank *rank)
{
    const Plan *plan = plan_of(rank);
    Bench bench;
    void *graph = nullptr;
    uint32_t id = 77;
    bool fine = open_exchange(rank, &bench);
    const uint64_t part = fine ? weir_memory_bytes(bench.memories[0]) / plan->ranks : 0;
    fine = fine && WEIRT_OK(rank, weir_graph_begin(bench.c.device, bench.stream)) &&
           WEIRT_OK(rank, bench.launch_exchange(rank, bench.exchange(SLOT, 130, 1, plan->form), plan->blocks)) &&
           WEIRT_OK(rank, weir_graph_end(bench.c.device, bench.stream, &graph));
    for (uint32_t i = 0; i < 1000 && fine; i++) {
        fine = WEIRT_OK(rank, weir_graph_launch(bench.c.device, graph, bench.stream));
        if (fine && i == 500) {
            fine = WEIRT_OK(rank, weir_window_register(bench.windows[0], bench.memories[0], part, part, &id));
        }
    }
    fine = fine && WEIRT_OK(rank, bench.finish()) && exchanged(rank, bench, 1000) && WEIRT_EXPECT(rank, id == 2);
    fine = fine &&
           WEIRT_OK(rank, bench.launch_exchange(rank, bench.exchange(SLOT, 130, 5, plan->form), plan->blocks)) &&
           WEIRT_OK(rank, bench.finish()) && exchanged(rank, bench, 1005);
    if (graph != nullptr) {
        weir_graph_destroy(bench.c.device, graph);
    }
    (void)weirt_barrier(rank);
    bench.close();
}

TEST_P(Window, AThousandReplaysAndANewMemory) { run(2, replays, exchange(WEIRT_WINDOW_PUT_NOTIFY, 2, 2)); }

// ---- scripts -------------------------------------------------------------------------------------------------------

// Rank 0 of each device sends many notifications through a small ring to rank 1 of the next device, which takes them in
// order.
void floods(weirt_rank *rank)
{
    Bench bench;
    const uint32_t next = (rank->rank + 1) % rank->size;
    const uint32_t previous = (rank->rank + rank->size - 1) % rank->size;
    if (open_script(rank, &bench, 1)) {
        bench.run(rank, { { notify(2 * next + 1, 7, 500), notify(2 * next + 1, 9, 500) },
                          { take(2 * previous, WEIR_ANY_TAG, 7, 500), wait(2 * previous, WEIR_ANY_TAG, 500) } });
        // Nothing is left.
        bench.run(rank, { {}, { notify(2 * rank->rank + 1, 3), take(ANY, WEIR_ANY_TAG, 3) } });
    }
    close_script(rank, &bench);
}

TEST_P(Window, FloodAtOneNotification) { run(2, floods, 2, 1); }
TEST_P(Window, FloodAtTwoNotifications) { run(2, floods, 2, 2); }
TEST_P(Window, FloodOnOneDevice) { run(1, floods, 2, 1); }

// The ring has eight words: seven that are not waited for, and then the one that is. Only four fit while the target
// waits for nothing, so the ranks send in turn.
void backlog(weirt_rank *rank)
{
    Bench bench;
    const uint32_t other = 1 - rank->rank;
    if (open_script(rank, &bench, 1)) {
        for (uint32_t round = 0; round < 10; round++) {
            if (round % 2 == rank->rank) {
                bench.run(rank, { { notify(other, 20, 7), notify(other, WEIR_WINDOW_TAG_MAX) } });
            } else {
                bench.run(rank,
                          { { wait(other, 26), wait(ANY, WEIR_WINDOW_TAG_MAX), take(other, WEIR_ANY_TAG, 20, 6) } });
            }
        }
    }
    close_script(rank, &bench);
}

TEST_P(Window, BacklogUpToTheLastFreeWord) { run(2, backlog, 1, 4); }

// The ring has eight words. Three notifications stay while 40 others come and are taken, also by later kernels.
void staying(weirt_rank *rank)
{
    Bench bench;
    const uint32_t other = 1 - rank->rank;
    if (open_script(rank, &bench, 1)) {
        bench.run(rank, { { notify(other, 20, 3) } });
        for (uint32_t round = 0; round < 10; round++) {
            bench.run(rank, { { notify(other, 40), wait(other, 40), notify(other, 41), wait(ANY, 41), notify(other, 42),
                                take(other, 42, 42, 1), notify(other, 43), wait(other, 43) } });
        }
        bench.run(rank, { { take(other, WEIR_ANY_TAG, 20, 3) } });
    }
    close_script(rank, &bench);
}

TEST_P(Window, WhatStaysTakesNoMoreRoomThanItsOwn) { run(2, staying, 1, 4); }

// A wait takes as it goes. A poll for more than the ring holds can never succeed; that is no error of the communicator.
void large_counts(weirt_rank *rank)
{
    Bench bench;
    const uint32_t other = 1 - rank->rank;
    if (open_script(rank, &bench, 1)) {
        if (rank->rank == 0) {
            bench.run(rank, { { notify(other, 0, 60) } });
        } else {
            bench.run(rank, { { wait(0, WEIR_ANY_TAG, 60) } });
        }
        WEIRT_OK(rank, bench.launch_script(rank, { { poll(other, WEIR_ANY_TAG, 5), poll(other, WEIR_ANY_TAG, 4) } }));
        WEIRT_OK(rank, bench.finish());
        for (uint32_t t = 0; t < 2; t++) {
            WEIRT_EXPECT(rank, bench.result(0, 0).status[t] == WEIR_ERR_LIMIT);
            WEIRT_EXPECT(rank, bench.result(0, 1).status[t] == WEIR_PENDING);
        }
        (void)weirt_barrier(rank);
        bench.run(rank, { { notify(other, 0, 4), wait(other, WEIR_ANY_TAG, 4) } });
    }
    close_script(rank, &bench);
}

TEST_P(Window, CountsAboveTheRing) { run(2, large_counts, 1, 2); }

// Puts to itself, of no bytes, and between ranks of a device; what they notify, and what they copy.
void small_puts(weirt_rank *rank)
{
    Bench bench;
    const uint32_t other = 1 - rank->rank;
    if (open_script(rank, &bench, 1)) {
        const uint32_t me = 2 * rank->rank;
        const uint32_t there = 2 * other;
        std::vector<char> data(2 * PART);
        for (uint32_t i = 0; i < 2 * PART; i++) {
            data[i] = weirt_pattern(rank->rank, 1, i);
        }
        WEIRT_OK(rank, weir_device_copy(bench.c.device, weir_memory_pointer(bench.memories[0]), data.data(), 2 * PART));
        (void)weirt_barrier(rank);
        bench.run(rank, { { put_notify(me, 1, 3, 5, 20),         // to itself
                            put_notify(me + 1, 2, 0, 0, 10),     // to a rank of the device
                            put_notify(there, 3, 101, 30, 33),   // to another device
                            put_notify(there, 4, PART, PART, 0), // nothing, at the end of the parts
                            wait(me, 1), take(there, WEIR_ANY_TAG, 3), take(ANY, WEIR_ANY_TAG, 4),
                            step_of(WEIRT_CALL_FLUSH, ANY, 0) },
                          { wait(me, 2) } });
        std::vector<char> got(2 * PART);
        std::vector<char> right(2 * PART);
        std::memcpy(&right[3], &data[5], 20);
        std::memcpy(&right[PART], &data[0], 10);
        for (uint32_t i = 0; i < 33; i++) {
            right[101 + i] = weirt_pattern(other, 1, 30 + i);
        }
        WEIRT_OK(rank, weir_device_copy(bench.c.device, got.data(), weir_memory_pointer(bench.memories[1]), 2 * PART));
        WEIRT_EXPECT(rank, got == right);
    }
    close_script(rank, &bench);
}

TEST_P(Window, PutsToItselfAndOfNoBytes) { run(2, small_puts, 2, 4); }

// ---- groups of devices ---------------------------------------------------------------------------------------------

// What device 1 or 3 knows about the window of both.
void check_members(weirt_rank *rank, const Bench &bench, const Way &way)
{
    const uint32_t other = 4 - rank->rank;
    weir_window_info info = {};
    WEIRT_EXPECT(rank, weir_window_ranks(bench.windows[0]) == 4);
    WEIRT_EXPECT(rank, weir_window_first(bench.windows[0]) == rank->rank - 1);
    WEIRT_OK(rank, weir_window_get_info(bench.windows[0], rank->rank, &info));
    WEIRT_EXPECT(rank, std::strcmp(info.way, "own") == 0);
    WEIRT_OK(rank, weir_window_get_info(bench.windows[0], other, &info));
    WEIRT_EXPECT(rank, std::strcmp(info.way, way.host_ranks == 0 ? "mapped" : "port") == 0);
    for (uint32_t outside : { 0u, 2u }) {
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_window_get_info(bench.windows[0], outside, &info));
        WEIRT_TEXT(rank, ("rank " + std::to_string(outside) + " is no device of the window").c_str());
    }
}

// A window of devices 1 and 3 of four. Its ranks are 0 to 3; texts name a device by its rank in the communicator.
void members(weirt_rank *rank)
{
    const uint32_t ranks[] = { 1, 3 };
    const weir_group group = { ranks, 2 };
    const Way &way = ways[plan_of(rank)->way];
    const bool member = rank->rank % 2 != 0;
    Bench bench;
    weirt_log_allow("");
    bool fine = bench.join(rank, 0) && member && bench.open(rank, way, 2, 4, PART, PART, 1, &group);
    (void)weirt_barrier(rank);
    if (fine) {
        check_members(rank, bench, way);
        const uint32_t first = weir_window_first(bench.windows[0]);
        const uint32_t there = 2 - first;
        const std::vector<char> mine(2 * PART, static_cast<char>(rank->rank));
        std::vector<char> got(2 * PART);
        WEIRT_OK(rank, weir_device_copy(bench.c.device, weir_memory_pointer(bench.memories[0]), mine.data(), 2 * PART));
        fine = bench.run(rank, { { put_notify(there, 5, 0, 0, PART), take(ANY, WEIR_ANY_TAG, 5) },
                                 { put_notify(there + 1, 6, 0, 0, PART), take(ANY, WEIR_ANY_TAG, 6) } });
        WEIRT_EXPECT(rank, bench.result(0, 1).source == there && bench.result(1, 1).source == there + 1);
        WEIRT_OK(rank, weir_device_copy(bench.c.device, got.data(), weir_memory_pointer(bench.memories[1]), 2 * PART));
        WEIRT_EXPECT(rank, got == std::vector<char>(2 * PART, static_cast<char>(4 - rank->rank)));
        // Device 1 reports the word that it took, so all eight fit, and the error may reach device 3 at once.
        WEIRT_OK(rank, bench.launch_script(rank, rank->rank == 1 ? Script{ { wait(2, 9) }, {} }
                                                                 : Script{ { notify(0, 10, 8) }, {} }));
        WEIRT_OK(rank, bench.finish());
    }
    if (fine && rank->rank == 1) {
        WEIRT_STATUS(rank, WEIR_ERR_LIMIT, weir_comm_status(bench.c.comm));
        WEIRT_TEXT(rank, "window: wait of rank 0 for rank 2, tag 9");
        WEIRT_TEXT(rank, "the ring of device 3 is full and has no match");
    }
    (void)weirt_barrier(rank);
    bench.close();
}

TEST_P(Window, SomeDevicesOfTheCommunicator) { run(4, members, 2, 4); }

// ---- groups of threads ---------------------------------------------------------------------------------------------

// Every call by a group of this kind. Rank 0 of each device, and rank 1 unless the group is the grid, exchange with the
// same rank of the other device. The grid's two blocks call as rank 0.
void calls_of(weirt_rank *rank, Bench *bench, uint32_t group)
{
    const bool grid = group == WEIRT_GROUP_GRID;
    const uint32_t other = 1 - rank->rank;
    weir_device *device = bench->c.device;
    const std::vector<char> zeros(2 * PART);
    std::vector<char> got(2 * PART);
    std::vector<char> right(2 * PART);
    Script script(2);
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t peer = 2 * other + (grid ? 0 : i);
        weirt_window_step put = put_notify(peer, 0, 0, 100, 30);
        weirt_window_step get = put_notify(peer, 0, 120, 130, 33); // from the peer's memory 0 to memory 1
        put.call = WEIRT_CALL_PUT;
        get.call = WEIRT_CALL_GET;
        get.remote_memory = 0;
        get.local_memory = 1;
        weirt_window_step until = poll(peer, 2);
        until.call = WEIRT_CALL_POLL_UNTIL;
        script[i] = { put_notify(peer, 1, 64, 0, 50),
                      put,
                      notify(peer, 2),
                      wait(peer, 1),
                      until,
                      notify(peer, 3),
                      take(ANY, WEIR_ANY_TAG, 3),
                      get,
                      step_of(WEIRT_CALL_FLUSH, ANY, 0),
                      notify(peer, 4), // the peer may change its memory
                      wait(peer, 4) };
        for (weirt_window_step &step : script[i]) {
            step.group = group;
            step.as = grid ? 1 : 0;
        }
        for (uint32_t b = 0; b < PART && (i == 0 || !grid); b++) {
            const auto sent = [&](uint32_t at) { return weirt_pattern(other, group, i * PART + at); };
            right[i * PART + b] = b < 30                ? sent(100 + b)
                                  : b >= 64 && b < 114  ? sent(b - 64)
                                  : b >= 130 && b < 163 ? sent(b - 10)
                                                        : 0;
        }
    }
    std::vector<char> mine(2 * PART);
    for (uint32_t b = 0; b < 2 * PART; b++) {
        mine[b] = weirt_pattern(rank->rank, group, b);
    }
    WEIRT_OK(rank, weir_device_copy(device, weir_memory_pointer(bench->memories[0]), mine.data(), 2 * PART));
    WEIRT_OK(rank, weir_device_copy(device, weir_memory_pointer(bench->memories[1]), zeros.data(), 2 * PART));
    (void)weirt_barrier(rank);
    bench->run(rank, script);
    WEIRT_OK(rank, weir_device_copy(device, got.data(), weir_memory_pointer(bench->memories[1]), 2 * PART));
    WEIRT_EXPECT(rank, got == right);
    (void)weirt_barrier(rank);
}

void groups(weirt_rank *rank)
{
    Bench bench;
    if (open_script(rank, &bench, 1)) {
        for (uint32_t group : { WEIRT_GROUP_BLOCK, WEIRT_GROUP_THREAD, WEIRT_GROUP_WARP, WEIRT_GROUP_GRID }) {
            calls_of(rank, &bench, group);
        }
    }
    close_script(rank, &bench);
}

TEST_P(Window, EveryCallByEveryGroup) { run(2, groups, 2, 4); }

// All threads of block 0, each by itself, and block 1 send as rank 0 at once, through a small ring. Rank 2 of the other
// device takes all of it.
void one_rank(weirt_rank *rank)
{
    constexpr uint32_t times = 50;
    Bench bench;
    const uint32_t there = 3 * (1 - rank->rank);
    if (open_script(rank, &bench, 1)) {
        const uint64_t threads = bench.shape(rank, 3).threads;
        weirt_window_step each = notify(there + 2, 7, times);
        weirt_window_step block = notify(there + 2, 1000, times);
        each.group = WEIRT_GROUP_THREADS;
        block.as = 1;
        bench.run(rank, { { each }, { block }, { wait(there, WEIR_ANY_TAG, times * (threads + 1)) } });
        WEIRT_OK(rank, bench.launch_script(rank, { {}, {}, { poll(ANY, WEIR_ANY_TAG) } }));
        WEIRT_OK(rank, bench.finish());
        WEIRT_EXPECT(rank, bench.result(2, 0).status[0] == WEIR_PENDING); // nothing is left
    }
    close_script(rank, &bench);
}

TEST_P(Window, SeveralGroupsSendAsOneRank) { run(2, one_rank, 3, 2); }

// Two windows in one kernel, over the same memories: a notification belongs to one of them.
void two_windows(weirt_rank *rank)
{
    Bench bench;
    const uint32_t other = 1 - rank->rank;
    if (open_script(rank, &bench, 2)) {
        weirt_window_step second_notify = notify(other, 6);
        weirt_window_step second_take = take(ANY, WEIR_ANY_TAG, 6);
        weirt_window_step second_poll = poll(ANY, 5);
        second_notify.window = second_take.window = second_poll.window = 1;
        const Script script = { { notify(other, 5), wait(other, 5), second_poll, notify(other, 8), second_notify,
                                  second_take, take(ANY, WEIR_ANY_TAG, 8) } };
        WEIRT_OK(rank, bench.launch_script(rank, script));
        WEIRT_OK(rank, bench.finish());
        for (uint32_t i = 0; i < script[0].size(); i++) {
            const weirt_window_result &got = bench.result(0, i);
            WEIRT_EXPECT(rank, got.wrong == 0);
            WEIRT_EXPECT(rank, got.status[0] == WEIR_OK && got.status[1] == WEIR_OK ? i != 2 : i == 2);
        }
        WEIRT_EXPECT(rank, bench.result(0, 2).status[0] == WEIR_PENDING);
    }
    close_script(rank, &bench);
}

TEST_P(Window, TwoWindowsInOneKernel) { run(2, two_windows, 1, 4); }

// Kernels of two communicators at once.
void two_communicators(weirt_rank *rank)
{
    Bench benches[2];
    const uint32_t other = 1 - rank->rank;
    if (open_script(rank, &benches[0], 1) && open_script(rank, &benches[1], 1)) {
        for (uint32_t i = 0; i < 2; i++) {
            WEIRT_OK(rank, benches[i].launch_script(rank, { { notify(other, 10 * i, 4), wait(other, 10 * i + 3),
                                                              take(ANY, WEIR_ANY_TAG, 10 * i, 3) } }));
        }
        for (Bench &bench : benches) {
            WEIRT_OK(rank, bench.finish());
            for (uint32_t i = 0; i < 3; i++) {
                WEIRT_EXPECT(rank, bench.result(0, i).status[0] == WEIR_OK && bench.result(0, i).wrong == 0);
            }
        }
    }
    for (Bench &bench : benches) {
        close_script(rank, &bench);
    }
}

TEST_P(Window, TwoCommunicators) { run(2, two_communicators, 1, 4); }

// Each block has its number, and those of a multiprocessor are in a row, in the order of blocks.
void numbers(weirt_rank *rank)
{
    Bench bench;
    if (open_script(rank, &bench, 1)) {
        const uint32_t blocks = bench.ranks;
        const weirt_window_step index = step_of(WEIRT_CALL_INDEX, ANY, 0);
        bench.run(rank, Script(blocks, { index, index }));
        for (uint32_t k = 0; k < 2; k++) {
            std::vector<uint32_t> processors(blocks, UINT32_MAX);
            std::vector<uint32_t> numbers(blocks, UINT32_MAX);
            for (uint32_t block = 0; block < blocks; block++) {
                const weirt_window_result &got = bench.result(block, k);
                if (WEIRT_EXPECT(rank, got.tag < blocks) && WEIRT_EXPECT(rank, numbers[got.tag] == UINT32_MAX)) {
                    numbers[got.tag] = block;
                    processors[got.tag] = got.source;
                }
            }
            for (uint32_t i = 1; i < blocks; i++) {
                WEIRT_EXPECT(rank, processors[i] > processors[i - 1] ||
                                       (processors[i] == processors[i - 1] && numbers[i] > numbers[i - 1]));
            }
        }
    }
    close_script(rank, &bench);
}

TEST_P(Window, BlocksAreNumberedByMultiprocessor) { run(2, numbers, 7, 4); }

// ---- waits that cannot succeed -------------------------------------------------------------------------------------

// Device 0 waits for a tag that nobody sends; its communicator gets the error, with this text.
void expect_failed_wait(weirt_rank *rank, Bench *bench, const Script &script, weir_status status,
                        const char *const *texts, uint32_t count)
{
    const uint32_t last = static_cast<uint32_t>(script[0].size() - 1);
    if (rank->rank == 0) {
        WEIRT_OK(rank, bench->launch_script(rank, script));
        WEIRT_OK(rank, bench->finish());
        WEIRT_EXPECT(rank, bench->result(0, last).status[0] == status && bench->result(0, last).status[1] == status);
        WEIRT_STATUS(rank, status, weir_comm_status(bench->c.comm));
        for (uint32_t i = 0; i < count; i++) {
            WEIRT_TEXT(rank, texts[i]);
        }
    }
    (void)weirt_barrier(rank);
    bench->close();
}

void wrong_tag(weirt_rank *rank)
{
    Bench bench;
    weirt_log_allow("");
    const char *const texts[] = { "window: wait of rank 0 for rank 1, tag 9", "nothing came for 300 ms" };
    if (open_script(rank, &bench, 1, 300)) {
        if (rank->rank == 1) {
            bench.run(rank, { { notify(0, 8) } });
        }
        (void)weirt_barrier(rank);
    }
    expect_failed_wait(rank, &bench, { { wait(1, 9) } }, WEIR_ERR_TIMEOUT, texts, 2);
}

TEST_P(Window, AWrongTagEndsAtTheDeadline) { run(2, wrong_tag, 1, 4); }

void full_ring(weirt_rank *rank)
{
    Bench bench;
    weirt_log_allow("");
    const char *const texts[] = { "window: wait of rank 0 for rank 1, tag 9",
                                  "the ring of device 1 is full and has no match; raise opts.notifications" };
    if (open_script(rank, &bench, 1)) {
        if (rank->rank == 1) {
            bench.run(rank, { { notify(0, 10, 8) } });
        }
        (void)weirt_barrier(rank);
    }
    expect_failed_wait(rank, &bench, { { wait(1, 9) } }, WEIR_ERR_LIMIT, texts, 2);
}

TEST_P(Window, AWrongTagBehindAFullRingEndsAtOnce) { run(2, full_ring, 1, 4); }

void full_rings(weirt_rank *rank)
{
    Bench bench;
    weirt_log_allow("");
    const char *const texts[] = { "window: wait of rank 0 for any rank, tag 9",
                                  "the rings of all devices are full and have no match; raise opts.notifications" };
    if (open_script(rank, &bench, 1)) {
        bench.run(rank, { { notify(0, 10, 8) } });
        (void)weirt_barrier(rank);
    }
    expect_failed_wait(rank, &bench, { { wait(ANY, 9) } }, WEIR_ERR_LIMIT, texts, 2);
}

TEST_P(Window, AWrongTagOfAnyRankBehindFullRingsEndsAtOnce) { run(2, full_rings, 1, 4); }

} // namespace
