// Port channels: every call moves the right bytes and nothing else over each transport; a failure ends one channel with
// a status.
#include <atomic>
#include <vector>

#include "port.h"

namespace {

// ---- data ----------------------------------------------------------------------------------------------------

struct sizes {
    uint64_t first;
    uint64_t last;
    uint64_t step;
    uint32_t rounds;
};

bool run_transfer(weirt_rank *rank, port_bench *b, const sizes &what, uint32_t misaligned, uint32_t seed)
{
    port_transfer_args args;
    std::memset(static_cast<void *>(&args), 0, sizeof args);
    args.channel = b->device;
    weir_grid_barrier_device(b->barrier, &args.barrier);
    args.report = b->device_report();
    args.local = static_cast<char *>(weir_memory_pointer(b->local));
    args.half = b->half;
    args.first = what.first;
    args.last = what.last;
    args.step = what.step;
    args.rounds = what.rounds;
    args.op = b->plan.op;
    args.group = b->plan.group;
    args.misaligned = misaligned;
    args.rank = rank->rank;
    args.peer = b->peer;
    args.seed = seed;
    std::memset(static_cast<void *>(b->report), 0, sizeof *b->report);
    weir_shape shape = weir_device_fit_shape(b->comm.device, weir_shape{ 2, 64 });
    if (std::strcmp(weirt_sanitizer(), "thread") == 0) {
        shape = weir_shape{ 2, 3 };
    } else if (std::strcmp(rank->stage->kind, "cpu") == 0) {
        shape = weir_shape{ 2, weirt_slow() < 10 ? 6u : 2u }; // spinning threads cost much on slow builds
    }
    if (!b->launch(rank, port_transfer_kernel(), shape, &args, true) || !b->finish(rank)) {
        return false;
    }
    for (uint32_t i = 0; i < shape.blocks * shape.threads; i++) {
        if (b->report->status[i] != WEIR_OK) {
            weirt_fail(rank, __FILE__, __LINE__, "thread %u: %s (%s)", i,
                       weir_status_name(static_cast<weir_status>(b->report->status[i])),
                       weir_port_channel_status(b->channel) == WEIR_OK ? "channel fine" : weir_last_error());
            return false;
        }
    }
    uint64_t expected = ((what.last - what.first) / what.step + 1) * what.rounds;
    if (b->report->wrong != 0 || b->report->iterations != expected) {
        weirt_fail(rank, __FILE__, __LINE__, "%s, as at %lld of %llu; %llu of %llu iterations",
                   b->report->wrong != 0 ? "wrong bytes" : "too few", static_cast<long long>(b->report->wrong_position),
                   static_cast<unsigned long long>(b->report->wrong_bytes),
                   static_cast<unsigned long long>(b->report->iterations), static_cast<unsigned long long>(expected));
        return false;
    }
    return true;
}

void moves(weirt_rank *rank)
{
    const bool gpu = std::strcmp(rank->stage->kind, "gpu") == 0;
    const bool slow = weirt_sanitizer()[0] != '\0';
    const sizes all[] = { { 0, 40, 1, 1 },
                          { 63, 129, 33, 2 },
                          { 4095, 4097, 1, 2 },
                          { (1 << 16) + 1, (1 << 16) + 1, 1, 2 },
                          { 3 * (1 << 20) + 5, 3 * (1 << 20) + 5, 1, 1 } };
    const bool small = port_bench::plan_of(rank)->op == PORT_VALUES || port_bench::plan_of(rank)->op == PORT_PIECES;
    port_bench b;
    if (b.open(rank, 0, 4 * (1 << 20))) {
        uint32_t seed = 0;
        bool right = true;
        for (const sizes &what : all) {
            uint64_t most = small ? 4097 : slow && !gpu ? 1 << 17 : UINT64_MAX;
            for (uint32_t misaligned = 0; misaligned < 2 && right && what.last <= most; misaligned++) {
                right = run_transfer(rank, &b, what, misaligned, ++seed);
            }
        }
        WEIRT_OK(rank, weir_port_channel_status(b.channel));
        WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    }
    b.close(rank, true);
}

PORT_DATA_SUITE(PortChannel, PORT_IPC, PORT_IB, PORT_OFI, PORT_DEVICE, PORT_DEVX);

TEST_P(PortChannel, MovesBytesByPutSignal)
{
    port_case what = plan();
    what.direct_bytes = WEIR_PORT_DIRECT_NEVER;
    run(moves, what);
}

TEST_P(PortChannel, MovesBytesByTheCallersStoresWhileNothingIsQueued)
{
    if (plan().transport != PORT_IPC) {
        GTEST_SKIP() << name() << " maps no memory";
    }
    for (uint32_t group = 0; group < PORT_GROUPS; group++) {
        port_case what = plan();
        what.group = group;
        run(moves, what);
    }
}

// A put_signal of two blocks without a grid barrier: the signal stands for the bytes of both, although the second block
// starts only after everything else was checked.
void moves_by_blocks(weirt_rank *rank)
{
    constexpr uint64_t half = 1 << 16;
    const weir_shape shape = { 2, std::strcmp(rank->stage->kind, "gpu") == 0 ? 64u : 2u };
    port_bench b;
    std::vector<char> data(half);
    const bool open = b.open(rank, 0, half);
    if (open && rank->rank == 0) {
        weirt_data_fill(data.data(), half, 0, 1);
        port_blocks_args args = {};
        args.channel = b.device;
        args.report = b.device_report();
        args.remote_offset = half;
        args.bytes = half;
        std::memset(static_cast<void *>(b.report), 0, sizeof *b.report);
        const bool launched =
            b.write(rank, 0, data.data(), half) && b.launch(rank, port_blocks_kernel(), shape, &args, true);
        weirt_barrier(rank);
        __atomic_store_n(&b.report->value, 1, __ATOMIC_RELEASE);
        if (launched && b.finish(rank)) {
            for (uint32_t i = 0; i < shape.blocks * shape.threads; i++) {
                WEIRT_EXPECT(rank, b.report->status[i] == WEIR_OK);
            }
        }
    } else {
        if (open && b.call(rank, b.device, { { SCRIPT_WAIT, 0, 0, 0, 0, 0 } }) && b.ended(rank, { WEIR_OK }) &&
            b.read(rank, half, data.data(), half)) {
            WEIRT_EXPECT(rank, weirt_data_wrong(data.data(), half, 0, 1) == half);
        }
        weirt_barrier(rank);
    }
    b.close(rank, true);
}

TEST_P(PortChannel, SignalOfBlocksStandsForAllOfThem)
{
    if (plan().transport != PORT_IPC) {
        GTEST_SKIP() << name() << " maps no memory";
    }
    run(moves_by_blocks, plan());
}

TEST_P(PortChannel, MovesBytesByPutAndSignal)
{
    port_case what = plan();
    what.op = PORT_PUT_THEN_SIGNAL;
    what.group = PORT_WARP;
    what.direct_bytes = 100;
    run(moves, what);
}

TEST_P(PortChannel, MovesBytesByPutSignalFlush)
{
    port_case what = plan();
    what.op = PORT_PUT_SIGNAL_FLUSH;
    what.group = PORT_GRID;
    what.direct_bytes = WEIR_PORT_DIRECT_NEVER;
    run(moves, what);
}

TEST_P(PortChannel, MovesBytesByGet)
{
    port_case what = plan();
    what.op = PORT_GET;
    what.direct_bytes = 128;
    run(moves, what);
}

TEST_P(PortChannel, MovesBytesByValues)
{
    port_case what = plan();
    what.op = PORT_VALUES;
    run(moves, what);
}

TEST_P(PortChannel, MovesBytesInPiecesThatNobodyFlushes)
{
    port_case what = plan();
    what.op = PORT_PIECES;
    what.group = PORT_THREAD;
    run(moves, what);
}

// A rank's channel to itself, by kernels and by a host thread.
void to_itself(weirt_rank *rank)
{
    const uint64_t most = weirt_sanitizer()[0] == '\0' ? 4 << 20 : 1 << 16;
    const sizes all[] = { { 0, 40, 20, 1 }, { 4099, 4099, 1, 2 }, { most, most, 1, 1 } };
    port_bench b;
    b.to_itself = true;
    bool right = b.open(rank, 0, most + PORT_SLACK);
    uint32_t seed = 0;
    for (uint32_t op : { PORT_PUT_SIGNAL, PORT_PUT_THEN_SIGNAL, PORT_PUT_SIGNAL_FLUSH, PORT_GET }) {
        b.plan.op = op;
        for (const sizes &what : all) {
            right = right && run_transfer(rank, &b, what, what.rounds == 2, ++seed);
        }
    }
    std::vector<char> data(4099);
    for (uint64_t i = 0; i < data.size(); i++) {
        data[i] = weirt_pattern(rank->rank, 77, i);
    }
    std::vector<char> got(data.size());
    if (right && b.write(rank, 0, data.data(), data.size()) &&
        WEIRT_OK(rank, weir_port_channel_put_signal_flush(b.channel, b.half, 0, data.size())) &&
        b.call(rank, b.device, { { SCRIPT_WAIT, 0, 0, 0, 0, 0 }, { SCRIPT_POLL, 0, 0, 0, 0, 0 } }) &&
        b.ended(rank, { WEIR_OK, WEIR_PENDING }) && b.read(rank, b.half, got.data(), got.size())) {
        WEIRT_EXPECT(rank, got == data);
    }
    WEIRT_OK(rank, weir_port_channel_status(b.channel));
    WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    b.close(rank, true);
}

TEST_P(PortChannel, RankToItself)
{
    for (uint32_t ranks : { 1, 2 }) {
        for (uint64_t direct : { uint64_t{ 0 }, WEIR_PORT_DIRECT_NEVER }) {
            port_case what = plan();
            what.direct_bytes = direct;
            weirt_ranks_run(stage(), ranks, to_itself, &what, sizeof what);
        }
    }
}

// A NIC ignores the doorbells of a put and its signal until it is rung again.
void comes_though_forgotten(weirt_rank *rank)
{
    port_bench b;
    constexpr uint64_t bytes = 4096;
    if (b.open(rank, 0, bytes)) {
        auto *memory = static_cast<uint8_t *>(weir_memory_host_pointer(b.local));
        uint64_t ticket = 0;
        for (uint64_t i = 0; i < 2 * bytes; i++) {
            memory[i] = static_cast<uint8_t>(rank->rank == 0 ? 1 + i % 251 : 0);
        }
        bool sent = weirt_barrier(rank);
        if (rank->rank == 0) {
            sent = WEIRT_OK(rank, weir_port_channel_put_signal(b.channel, bytes, 0, bytes, &ticket)) &&
                   WEIRT_OK(rank, weir_port_channel_wait(b.channel, ticket, weirt_timeout_ms()));
        }
        if (weirt_barrier(rank) && sent && rank->rank == 1) {
            uint64_t wrong = 0;
            for (uint64_t i = 0; i < bytes; i++) {
                wrong += (memory[i] != 0) + (memory[bytes + i] != 1 + i % 251);
            }
            WEIRT_EXPECT(rank, wrong == 0);
        }
    }
    b.close(rank, true);
}

PORT_SUITE(PortForgotten, PORT_IB);

TEST_P(PortForgotten, TransferIsCarriedOutAllTheSame)
{
    for (const char *script : { "lost-doorbell:1,2", "lost-doorbell:1,3" }) {
        const port_fault fault(script);
        run(comes_though_forgotten, plan());
    }
}

class PortStaged : public PortTest {};
INSTANTIATE_TEST_SUITE_P(Transports, PortStaged,
                         ::testing::Combine(::testing::Values(0), ::testing::Values(PORT_STAGED, PORT_DEVICE_STAGED,
                                                                                    PORT_IB_STAGED, PORT_DEVX_STAGED)),
                         port_case_name);

TEST_P(PortStaged, MovesBytesThatTheHostDoesNotReach)
{
    for (uint32_t op : { PORT_PUT_SIGNAL, PORT_GET, PORT_VALUES, PORT_PIECES }) {
        port_case what = plan();
        what.op = op;
        run(moves, what);
    }
}

// A NIC whose data reaches device memory after later writes, unless a read follows it.
TEST_P(PortStaged, SignalsPushOutWhatIsOnItsWay)
{
    if (plan().transport == PORT_STAGED) {
        GTEST_SKIP() << "the software NIC's fault";
    }
    const port_fault fault("flag-first:1,1000000,1000,200");
    for (uint32_t op : { PORT_PUT_SIGNAL, PORT_PUT_THEN_SIGNAL, PORT_PIECES }) {
        port_case what = plan();
        what.op = op;
        run(moves, what);
    }
}

// A copy on a stream fails in the middle of a put. Its channel ends with a status at the end of the copy and at the
// waiting end, without a signal. Another channel goes on.
std::atomic<uint32_t> copies_failed; // at either end; the ranks are threads

// Rank 0 puts, and the n-th operation of either device fails.
bool ends_with_the_copy(weirt_rank *rank, const port_bench *b, weir_port_channel *channel, uint64_t nth)
{
    uint64_t ticket = 0;
    weir_status status = WEIR_OK;
    if (rank->rank == 0) {
        (void)weirt_fail_device(nth);
        if (!WEIRT_OK(rank, weir_port_channel_put_signal(channel, b->half, 0, b->half, &ticket))) {
            return false;
        }
        status = weir_port_channel_wait(channel, ticket, weirt_timeout_ms());
        copies_failed += status == WEIR_ERR_DEVICE;
        if (!WEIRT_EXPECT(rank, weirt_fail_device(0) == 0) ||
            !WEIRT_EXPECT(rank, status == WEIR_ERR_DEVICE || status == WEIR_ERR_REMOTE) || !weirt_barrier(rank)) {
            return false;
        }
    } else if (weirt_barrier(rank) && copies_failed == 0) {
        // The failure of rank 0's channel may arrive before this rank's error, which then replaces it.
        const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
        while ((status = weir_port_channel_status(channel)) != WEIR_ERR_DEVICE && weirt_now_ms() < end) {
            weirt_sleep_ms(1);
        }
        copies_failed += status == WEIR_ERR_DEVICE;
    }
    return status != WEIR_ERR_DEVICE ||
           (WEIRT_STATUS(rank, status, weir_port_channel_status(channel)) && WEIRT_TEXT(rank, "fault of a test"));
}

void copy_fails(weirt_rank *rank)
{
    weirt_log_allow(" failed: ");
    constexpr uint64_t half = 3 << 20; // in pieces of 512 KiB, each copied at both ends
    constexpr uint64_t step = 61;      // distance of the checked bytes
    port_bench b;
    std::vector<char> data(half);
    bool open = b.open(rank, 0, half);
    uint64_t tag = 10;
    for (uint64_t nth : { 1, 2, 5, 8, 11 }) {
        weir_semaphore *semaphore = nullptr;
        weir_port_channel *channel = nullptr;
        copies_failed = 0;
        for (uint64_t i = 0; i < half; i += step) {
            data[i] = weirt_pattern(rank->rank, static_cast<uint32_t>(nth), i);
        }
        open = open && b.add(rank, tag++, WEIR_SEMAPHORE_HOST, &semaphore, &channel) &&
               b.write(rank, 0, data.data(), half) && weirt_barrier(rank) &&
               ends_with_the_copy(rank, &b, channel, nth) && weirt_barrier(rank) &&
               WEIRT_EXPECT(rank, copies_failed == 1) &&
               WEIRT_EXPECT(rank, weir_semaphore_poll(semaphore) != WEIR_OK) &&
               WEIRT_OK(rank, weir_port_channel_put(b.channel, half, 0, half, nullptr)) &&
               WEIRT_OK(rank, weir_port_channel_flush(b.channel)) && weirt_barrier(rank) &&
               b.read(rank, half, data.data(), half);
        for (uint64_t i = 0; i < half && open; i += step) {
            open = WEIRT_EXPECT(rank, data[i] == weirt_pattern(b.peer, static_cast<uint32_t>(nth), i));
        }
        (void)weirt_barrier(rank);
        weir_port_channel_destroy(channel);
        weir_semaphore_destroy(semaphore);
    }
    WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    b.close(rank, true);
}

TEST_P(PortStaged, CopyThatFailsEndsItsChannelAlone)
{
    run_unless(plan().transport != PORT_STAGED, "a NIC reaches the memory without copies", copy_fails);
}

// ---- host threads ----------------------------------------------------------------------------------------------

// The same calls from the host, at both ends.
void host_moves(weirt_rank *rank)
{
    constexpr uint64_t half = 1 << 21;
    const uint64_t all[] = { 0, 1, 8, 4097, (1 << 20) + 3 };
    port_bench b;
    std::vector<char> mine(half), theirs(half);
    bool open =
        b.open_ends(rank, 0, half, WEIR_SEMAPHORE_HOST) &&
        WEIRT_OK(rank, weir_port_channel_create(b.proxy, b.semaphore, b.remote, b.local, nullptr, &b.channel)) &&
        WEIRT_OK(rank, weir_proxy_start(b.proxy));
    weir_dev_port_channel device;
    open = open && WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_port_channel_device(b.channel, &device));
    uint32_t round = 0;
    for (uint64_t bytes : all) {
        uint64_t ticket = 0;
        round++;
        weirt_data_fill(mine.data(), bytes, rank->rank, round);
        if (!open || !b.write(rank, 5, mine.data(), bytes) || !weirt_barrier(rank)) {
            break;
        }
        if (round % 2 != 0) {
            open = WEIRT_OK(rank, weir_port_channel_put_signal(b.channel, half + 3, 5, bytes, &ticket)) &&
                   WEIRT_OK(rank, weir_port_channel_wait(b.channel, ticket, weirt_timeout_ms())) &&
                   WEIRT_OK(rank, weir_port_channel_test(b.channel, ticket));
        } else {
            open = WEIRT_OK(rank, weir_port_channel_put(b.channel, half + 3, 5, bytes, nullptr)) &&
                   WEIRT_OK(rank, weir_port_channel_signal(b.channel, nullptr)) &&
                   WEIRT_OK(rank, weir_port_channel_flush(b.channel));
        }
        open = open && WEIRT_OK(rank, weir_semaphore_wait(b.semaphore, weirt_timeout_ms())) &&
               WEIRT_STATUS(rank, WEIR_PENDING, weir_semaphore_poll(b.semaphore)) &&
               b.read(rank, half + 3, theirs.data(), bytes);
        open = open && WEIRT_EXPECT(rank, weirt_data_wrong(theirs.data(), bytes, b.peer, round) == bytes);
        open = open && weirt_barrier(rank) &&
               WEIRT_OK(rank, weir_port_channel_get(b.channel, 5, half + 7, bytes, &ticket)) &&
               WEIRT_OK(rank, weir_port_channel_wait(b.channel, ticket, weirt_timeout_ms())) &&
               b.read(rank, half + 7, theirs.data(), bytes);
        open = open && WEIRT_EXPECT(rank, weirt_data_wrong(theirs.data(), bytes, b.peer, round) == bytes);
        open = weirt_barrier(rank) && open;
    }
    b.close(rank, true);
}

TEST_P(PortChannel, HostThreadsMoveBytes) { run(host_moves, plan()); }

// ---- misuse and failure ------------------------------------------------------------------------------------------

void misuse(weirt_rank *rank)
{
    port_bench b;
    if (b.open(rank, 0, 4096)) {
        weir_port_channel *none = nullptr;
        weir_memory_channel *memory_channel = nullptr;
        weir_semaphore *set = nullptr;
        weir_semaphore *plain = nullptr;
        uint32_t id = 0;
        // A semaphore belongs to one port channel or to memory channels.
        WEIRT_STATUS(rank, WEIR_ERR_INVALID,
                     weir_port_channel_create(b.proxy, b.semaphore, b.remote, b.local, nullptr, &none));
        WEIRT_TEXT(rank, "port channel");
        weir_status expected = b.plan.transport == PORT_IPC ? WEIR_ERR_INVALID : WEIR_ERR_UNSUPPORTED;
        WEIRT_STATUS(rank, expected,
                     weir_memory_channel_create(b.semaphore, b.remote, b.local, nullptr, &memory_channel));
        if (weirt_semaphore(rank, b.connection, 20, WEIR_SEMAPHORE_DEVICE, &plain) && b.plan.transport == PORT_IPC &&
            WEIRT_OK(rank, weir_memory_channel_create(plain, b.remote, b.local, nullptr, &memory_channel))) {
            WEIRT_STATUS(rank, WEIR_ERR_INVALID,
                         weir_port_channel_create(b.proxy, plain, b.remote, b.local, nullptr, &none));
            WEIRT_TEXT(rank, "memory channel");
            weir_memory_channel_destroy(memory_channel);
        }
        WEIRT_OK(rank, weir_port_channel_create(b.proxy, plain, nullptr, nullptr, nullptr, &none));
        weir_port_channel_destroy(none);
        WEIRT_STATUS(rank, WEIR_ERR_INVALID,
                     weir_port_channel_create(b.proxy, plain, nullptr, nullptr, nullptr, &none));
        weir_semaphore_destroy(plain);
        if (weirt_semaphore_set(rank, b.connection, 21, WEIR_SEMAPHORE_DEVICE, 2, &set)) {
            WEIRT_STATUS(rank, WEIR_ERR_INVALID,
                         weir_port_channel_create(b.proxy, set, b.remote, b.local, nullptr, &none));
            WEIRT_STATUS(rank, WEIR_ERR_INVALID,
                         weir_port_channel_create(b.proxy, set, b.local, b.local, nullptr, &none));
            WEIRT_STATUS(rank, WEIR_ERR_INVALID,
                         weir_port_channel_create(b.proxy, nullptr, b.remote, b.local, nullptr, &none));
            weir_semaphore_destroy(set);
        }
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_port_channel_attach(b.channel, nullptr, &id));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_port_channel_device(nullptr, &b.device));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_port_channel_status(nullptr));
        weir_port_channel_destroy(nullptr);
        WEIRT_OK(rank, weir_port_channel_status(b.channel));
    }
    b.close(rank, true);
}

TEST_P(PortChannel, MisuseIsRefused) { run(misuse, plan()); }

// A transport that maps nothing refuses some calls and needs keys.
void unmapped(weirt_rank *rank)
{
    port_bench b;
    if (b.open(rank, 0, 4096)) {
        weir_semaphore *host = nullptr;
        weir_memory_channel *none = nullptr;
        if (weirt_semaphore(rank, b.connection, 40, WEIR_SEMAPHORE_HOST, &host)) {
            WEIRT_STATUS(rank, WEIR_ERR_UNSUPPORTED, weir_semaphore_signal(host));
            WEIRT_TEXT(rank, "port channel");
        }
        weir_semaphore_destroy(host);
        WEIRT_STATUS(rank, WEIR_ERR_UNSUPPORTED,
                     weir_memory_channel_create(b.semaphore, b.remote, b.local, nullptr, &none));
        WEIRT_TEXT(rank, "maps no memory");
    }
    b.close(rank, true);
    // Memory sent before the connection existed has no key.
    port_bench c;
    c.plan = b.plan;
    c.data = b.data;
    c.peer = 1 - rank->rank;
    if (weirt_comm_open(rank, 0, &c.comm) &&
        WEIRT_OK(rank, weir_memory_allocate(c.comm.comm, 4096, &c.data, &c.local)) &&
        c.exchange(rank, c.local, 3, &c.remote) && c.connect(rank, 1, &c.connection) &&
        weirt_semaphore(rank, c.connection, 2, WEIR_SEMAPHORE_DEVICE, &c.semaphore) &&
        WEIRT_OK(rank, weir_proxy_create(c.comm.comm, nullptr, &c.proxy))) {
        WEIRT_STATUS(rank, WEIR_ERR_UNSUPPORTED,
                     weir_port_channel_create(c.proxy, c.semaphore, c.remote, c.local, nullptr, &c.channel));
        WEIRT_TEXT(rank, "create connections first");
        weir_memory_destroy(c.remote);
        c.remote = nullptr;
        if (c.exchange(rank, c.local, 4, &c.remote)) {
            WEIRT_OK(rank, weir_port_channel_create(c.proxy, c.semaphore, c.remote, c.local, nullptr, &c.channel));
        }
    }
    c.close(rank, true);
}

TEST_P(PortChannel, WhatIsNotMappedIsToldApart)
{
    run_unless(plan().transport == PORT_IPC, "ipc maps memory", unmapped);
}

// A plain signal of a kernel over such a transport is an error of the communicator, not a crash.
void plain_signal(weirt_rank *rank)
{
    port_bench b;
    const bool counted = port_bench::plan_of(rank)->op != 0;
    if (b.open(rank, 0, 4096) && weirt_barrier(rank) && rank->rank == 0) {
        port_plain_args args = {};
        args.counted = counted;
        if (WEIRT_OK(rank, weir_semaphore_device(b.semaphore, &args.semaphore)) &&
            b.launch(rank, port_plain_kernel(), weir_shape{ 1, 1 }, &args, false) && b.finish(rank)) {
            WEIRT_STATUS(rank, WEIR_ERR_UNSUPPORTED, weir_comm_status(b.comm.comm));
            WEIRT_TEXT(rank, "kernel port_plain: signal of semaphore 2 of rank 1: "); /* found by its token */
        }
    }
    b.close(rank, true);
}

TEST_P(PortChannel, PlainSignalsOverWhatMapsNothingAreErrors)
{
    if (plan().transport == PORT_IPC) {
        GTEST_SKIP() << "ipc maps memory";
    }
    for (uint32_t counted = 0; counted < 2; counted++) {
        port_case what = plan();
        what.op = counted;
        run(plain_signal, what);
    }
}

} // namespace
