// Failures of port channels: each ends with a status, in time, and other channels go on.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "port.h"

namespace {

PORT_SUITE(PortTrouble, PORT_IPC, PORT_IB, PORT_OFI, PORT_DEVICE);

script_step step(uint32_t call, uint64_t remote_offset, uint64_t local_offset, uint64_t bytes)
{
    return { call, 0, remote_offset, local_offset, bytes, 0 };
}

script_step ticket_of(uint32_t call, uint32_t of) { return { call, of, 0, 0, 0, 0 }; }

// ---- bounds ---------------------------------------------------------------------------------------------------

// A second channel, with its semaphore.
struct ends {
    weir_semaphore *semaphore = nullptr;
    weir_port_channel *channel = nullptr;

    bool open(weirt_rank *rank, port_bench *b, uint64_t tag)
    {
        return b->add(rank, tag, WEIR_SEMAPHORE_DEVICE, &semaphore, &channel);
    }
    void close()
    {
        weir_port_channel_destroy(channel);
        weir_semaphore_destroy(semaphore);
        channel = nullptr;
        semaphore = nullptr;
    }
};

struct bad_range {
    uint32_t call;
    uint32_t request;
    const char *name;
    bool of_src;
    uint64_t offset;
    uint64_t bytes;
};

// Ranges outside a memory of `size` bytes: beyond its end, also if offset + bytes wraps around.
std::vector<bad_range> bad_ranges(uint64_t size)
{
    const uint64_t top = uint64_t{ 1 } << 63;
    const uint64_t ranges[][2] = {
        { size, 1 },       { size - 7, 8 },       { size + 1, 0 }, { 0, size + 1 },
        { UINT64_MAX, 1 }, { UINT64_MAX - 6, 8 }, { top, top },    { 8, UINT64_MAX - 7 },
    };
    const bad_range calls[] = { { SCRIPT_PUT, WEIR_REQUEST_PUT, "put", false, 0, 0 },
                                { SCRIPT_GET, WEIR_REQUEST_GET, "get", false, 0, 0 },
                                { SCRIPT_PUT_SIGNAL, WEIR_REQUEST_PUT_SIGNAL, "put_signal", false, 0, 0 },
                                { SCRIPT_PUT_SIGNAL_FLUSH, WEIR_REQUEST_PUT_SIGNAL_FLUSH, "put_signal_flush", false, 0,
                                  0 } };
    std::vector<bad_range> all;
    for (const auto &range : ranges) {
        for (bad_range call : calls) {
            for (bool of_src : { false, true }) {
                call.of_src = of_src;
                call.offset = range[0];
                call.bytes = range[1];
                all.push_back(call);
            }
        }
    }
    for (uint64_t offset : { size, UINT64_MAX - 7, top }) {
        for (uint64_t bytes : { 1, 8 }) {
            all.push_back({ SCRIPT_VALUE, WEIR_REQUEST_VALUE, "value", false, offset, bytes });
        }
    }
    return all;
}

// A request of the host; the error names memory, offset and size.
void host_leaves_memory(weirt_rank *rank, port_bench *b, const ends &on, const bad_range &bad)
{
    char text[200];
    uint64_t ticket = 0;
    weir_request request =
        port_request(bad.request, bad.of_src ? 0 : bad.offset, bad.of_src ? bad.offset : 0, bad.bytes);
    std::snprintf(text, sizeof text, "to rank %u failed: %s: %s: %llu bytes at %llu of memory %u, which has %llu",
                  b->peer, bad.name, bad.of_src ? "local" : "remote", static_cast<unsigned long long>(bad.bytes),
                  static_cast<unsigned long long>(bad.offset), bad.of_src ? WEIR_PORT_LOCAL : WEIR_PORT_REMOTE,
                  static_cast<unsigned long long>(2 * b->half));
    // A size that is too large for both memories is reported for the remote one.
    const bool both = bad.of_src && bad.bytes > 2 * b->half;
    if (WEIRT_OK(rank, weir_port_channel_post(on.channel, &request, 0, &ticket))) {
        WEIRT_STATUS(rank, WEIR_ERR_RANGE, weir_port_channel_wait(on.channel, ticket, weirt_timeout_ms()));
        WEIRT_TEXT(rank, both ? "memory 0" : text);
    }
    WEIRT_STATUS(rank, WEIR_ERR_RANGE, weir_port_channel_status(on.channel));
}

// A kernel's call, which neither touches memory nor sends a later signal before its error.
void kernel_leaves_memory(weirt_rank *rank, port_bench *b, const ends &on, const bad_range &bad)
{
    weir_dev_port_channel device;
    const uint64_t dst = bad.of_src ? 0 : bad.offset;
    const uint64_t src = bad.of_src ? bad.offset : 0;
    if (WEIRT_OK(rank, weir_port_channel_device(on.channel, &device)) &&
        b->call(rank, device,
                { step(bad.call, dst, src, bad.bytes), ticket_of(SCRIPT_WAIT_TICKET, 0), step(SCRIPT_SIGNAL, 0, 0, 0),
                  ticket_of(SCRIPT_WAIT_TICKET, 2), step(SCRIPT_FLUSH, 0, 0, 0) })) {
        b->ended(rank, { WEIR_OK, WEIR_ERR_RANGE, WEIR_OK, WEIR_ERR_RANGE, WEIR_ERR_RANGE });
    }
    // The proxy's thread takes this request after waits see the error; before, they may end with the peer's error.
    const weir_request nothing = port_request(WEIR_REQUEST_PUT, 0, 0, 0);
    uint64_t ticket = 0;
    WEIRT_OK(rank, weir_port_channel_post(b->channel, &nothing, 0, &ticket));
    WEIRT_OK(rank, weir_port_channel_wait(b->channel, ticket, weirt_timeout_ms()));
    weirt_barrier(rank);
    if (b->call(rank, device, { step(SCRIPT_POLL, 0, 0, 0) })) {
        b->ended(rank, { WEIR_ERR_RANGE });
    }
}

void out_of_bounds(weirt_rank *rank)
{
    constexpr uint64_t half = 4096;
    port_bench b;
    weirt_log_allow(" failed: "); // each channel logs its failure
    bool open = b.open(rank, 0, half);
    uint64_t tag = 10;
    // Making a channel takes long over transports other than ipc.
    const uint32_t stride = port_bench::plan_of(rank)->transport == PORT_IPC ? 1 : 11;
    const std::vector<bad_range> all = bad_ranges(2 * half);
    for (size_t i = 0; i < all.size() && open; i += stride) {
        for (bool kernel : { false, true }) {
            ends on;
            open = on.open(rank, &b, tag++);
            if (open && kernel) {
                kernel_leaves_memory(rank, &b, on, all[i]);
            } else if (open) {
                host_leaves_memory(rank, &b, on, all[i]);
            }
            open = weirt_barrier(rank) && open; // a destroy may wait for the kernels of the other rank
            on.close();
        }
    }
    // A range that ends exactly at the end is valid, also with 0 bytes.
    if (open) {
        WEIRT_OK(rank, weir_port_channel_put(b.channel, 2 * half - 8, 0, 8, nullptr));
        WEIRT_OK(rank, weir_port_channel_get(b.channel, 0, 2 * half - 16, 8, nullptr));
        WEIRT_OK(rank, weir_port_channel_put(b.channel, 2 * half, 2 * half, 0, nullptr));
        WEIRT_OK(rank, weir_port_channel_value(b.channel, 2 * half - 1, 7, 1, nullptr));
        WEIRT_OK(rank, weir_port_channel_flush(b.channel));
        WEIRT_OK(rank, weir_port_channel_status(b.channel));
        WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    }
    b.close(rank, true);
}

TEST_P(PortTrouble, RangesBeyondTheMemoryFailTheirChannelAlone) { run(out_of_bounds, plan()); }

// Invalid requests: memories that do not exist or belong to the other side, values of 0 or too many bytes, or across an
// 8-byte boundary.
void no_requests(weirt_rank *rank)
{
    constexpr uint64_t half = 4096;
    weir_request wrong[] = {
        port_request(WEIR_REQUEST_VALUE, 2 * half - 8, 0, 9),
        port_request(WEIR_REQUEST_VALUE, 4, 0, 8),
        port_request(WEIR_REQUEST_VALUE, 0, 0, 0),
        port_request(WEIR_REQUEST_PUT, 0, 0, 1),
        port_request(WEIR_REQUEST_PUT, 0, 0, 1),
        port_request(WEIR_REQUEST_GET, 0, 0, 1),
    };
    const char *const texts[] = { "1 to 8 are possible", "8-byte boundary", "1 to 8 are possible",
                                  "memory 17",           "memory 1",        "memory 0" };
    wrong[3].remote = 17;
    wrong[4].remote = WEIR_PORT_LOCAL;
    wrong[5].local = WEIR_PORT_REMOTE;
    port_bench b;
    weirt_log_allow(" failed: ");
    bool open = b.open(rank, 0, half);
    for (uint32_t i = 0; i < 6 && open; i++) {
        ends on;
        uint64_t ticket = 0;
        open = on.open(rank, &b, 10 + i) && WEIRT_OK(rank, weir_port_channel_post(on.channel, &wrong[i], 0, &ticket));
        if (open) {
            WEIRT_STATUS(rank, WEIR_ERR_RANGE, weir_port_channel_wait(on.channel, ticket, weirt_timeout_ms()));
            WEIRT_TEXT(rank, texts[i]);
        }
        open = weirt_barrier(rank) && open;
        on.close();
    }
    if (open) {
        WEIRT_OK(rank, weir_port_channel_put_signal_flush(b.channel, half, 0, 8));
        WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    }
    b.close(rank, true);
}

TEST_P(PortTrouble, WhatIsNoRequestFailsItsChannelAlone) { run(no_requests, plan()); }

// ---- proxies ---------------------------------------------------------------------------------------------------

// Requests that are queued when the proxy stops fail, and so do later ones; a kernel that waits for a ticket ends.
void stopped(weirt_rank *rank)
{
    port_bench b;
    if (b.open_ends(rank, 0, 1 << 16, WEIR_SEMAPHORE_DEVICE) &&
        WEIRT_OK(rank, weir_port_channel_create(b.proxy, b.semaphore, b.remote, b.local, nullptr, &b.channel)) &&
        WEIRT_OK(rank, weir_port_channel_device(b.channel, &b.device))) {
        uint64_t tickets[4] = {};
        for (uint64_t &ticket : tickets) { // the proxy was never started
            WEIRT_OK(rank, weir_port_channel_put(b.channel, 0, 0, 1 << 16, &ticket));
        }
        WEIRT_STATUS(rank, WEIR_PENDING, weir_port_channel_test(b.channel, tickets[0]));
        WEIRT_OK(rank, weir_proxy_stop(b.proxy));
        for (uint64_t ticket : tickets) {
            WEIRT_STATUS(rank, WEIR_ERR_ABORTED, weir_port_channel_wait(b.channel, ticket, weirt_timeout_ms()));
        }
        port_request_args args = {};
        args.channel = b.device;
        args.report = b.device_report();
        args.request = port_request(WEIR_REQUEST_FLUSH, 0, 0, 0);
        if (b.launch(rank, port_request_kernel(), weir_shape{ 1, 1 }, &args, false) && b.finish(rank)) {
            WEIRT_EXPECT(rank, b.report->status[0] == WEIR_OK && b.report->status[1] == WEIR_ERR_ABORTED);
        }
        WEIRT_STATUS(rank, WEIR_ERR_ABORTED, weir_port_channel_status(b.channel));
        WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    }
    b.close(rank, true);
}

TEST_P(PortTrouble, StoppedProxyEndsWhatIsQueued)
{
    run_unless(plan().transport == PORT_DEVICE, "kernels need no proxy", stopped);
}

// While one channel has seconds of work, another one of the same proxy goes on. A stop ends transfers under way, and
// data of a completed flush has arrived.
void slow(weirt_rank *rank)
{
    const uint64_t half = std::strcmp(rank->stage->kind, "gpu") == 0 ? 64 << 20 : 4 << 20;
    port_bench b;
    ends on;
    bool open = b.open(rank, 0, half) && on.open(rank, &b, 10) && weirt_barrier(rank);
    if (b.plan.transport == PORT_OFI) {
        weirt_descriptors_allow(1); // of a connection that begins while the endpoint closes; src/transport/ofi/queue.h
    }
    if (open && rank->rank == 0) {
        const uint32_t puts = b.plan.credits;
        std::vector<uint64_t> tickets(puts);
        for (uint32_t i = 0; i < puts && open; i++) {
            open = WEIRT_OK(rank, weir_port_channel_put(b.channel, half, 0, half, &tickets[i]));
        }
        for (uint64_t i = 0; i < 20 && open; i++) {
            open = WEIRT_OK(rank, weir_port_channel_value(on.channel, 8 * i, 100 + i, 8, nullptr)) &&
                   WEIRT_OK(rank, weir_port_channel_flush(on.channel));
        }
        WEIRT_STATUS(rank, WEIR_PENDING, weir_port_channel_test(b.channel, tickets[puts - 1]));
        WEIRT_OK(rank, weir_proxy_stop(b.proxy));
        WEIRT_STATUS(rank, WEIR_ERR_ABORTED, weir_port_channel_test(b.channel, tickets[puts - 1]));
        bool failed = false; // after the first failure all fail
        for (uint64_t ticket : tickets) {
            weir_status status = weir_port_channel_test(b.channel, ticket);
            WEIRT_EXPECT(rank, status == WEIR_ERR_ABORTED || (status == WEIR_OK && !failed));
            failed = status != WEIR_OK;
        }
        WEIRT_STATUS(rank, WEIR_ERR_ABORTED, weir_port_channel_flush(on.channel));
        WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    }
    weirt_barrier(rank);
    if (open && rank->rank == 1) {
        uint64_t words[20] = {};
        b.read(rank, 0, words, sizeof words);
        for (uint64_t i = 0; i < 20; i++) {
            WEIRT_EXPECT(rank, words[i] == 100 + i);
        }
    }
    on.close();
    b.close(rank, true);
}

TEST_P(PortTrouble, SlowChannelStopsNobodyAndEndsWithItsProxy)
{
    if (plan().transport == PORT_DEVICE) {
        GTEST_SKIP() << "host threads' requests go through the proxy, as over ib";
    }
    port_case what = plan();
    what.credits = what.transport == PORT_IPC ? 4096 : 512; // also the number of puts
    run(slow, what);
}

// A failed channel with a single credit still takes requests, from kernels and from host threads, and fails them.
void few_credits(weirt_rank *rank)
{
    port_bench b;
    weirt_log_allow(" failed: ");
    if (b.open(rank, 0, 4096)) {
        uint64_t ticket = 0;
        weir_request request = port_request(WEIR_REQUEST_PUT, UINT64_MAX, 0, 8);
        for (uint32_t i = 0; i < 5; i++) {
            WEIRT_OK(rank, weir_port_channel_post(b.channel, &request, weirt_timeout_ms(), &ticket));
            WEIRT_STATUS(rank, WEIR_ERR_RANGE, weir_port_channel_wait(b.channel, ticket, weirt_timeout_ms()));
        }
        script_step many = step(SCRIPT_PUT, 0, 0, 8);
        many.count = 5;
        if (b.call(rank, b.device, { many, ticket_of(SCRIPT_WAIT_TICKET, 0) })) {
            b.ended(rank, { WEIR_OK, WEIR_ERR_RANGE });
        }
        WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    }
    b.close(rank, true);
}

TEST_P(PortTrouble, FailedChannelOfOneCreditTakesRequests)
{
    if (plan().transport == PORT_DEVICE) {
        GTEST_SKIP() << "kernels need no credits";
    }
    port_case what = plan();
    what.credits = 1;
    what.direct_bytes = WEIR_PORT_DIRECT_NEVER;
    run(few_credits, what);
}

bool late_enough(uint64_t since_ms)
{
    const uint64_t elapsed = weirt_now_ms() - since_ms;
    return elapsed >= 150 && elapsed < 150 + 5000 * weirt_slow();
}

// A channel whose handler blocks the proxy's thread until it is released.
struct holder {
    weir_proxy_channel *channel = nullptr;
    std::atomic<bool> held{ false };
    std::atomic<bool> let_go{ false };

    static weir_status hold(void *context, const weir_request *)
    {
        holder *self = static_cast<holder *>(context);
        self->held = true;
        while (!self->let_go) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return WEIR_OK;
    }
    bool take(weirt_rank *rank, weir_proxy *proxy)
    {
        const weir_proxy_handler handler = { hold, this, nullptr, nullptr };
        weir_request request = {};
        request.type = WEIR_REQUEST_USER;
        bool pushed = WEIRT_OK(rank, weir_proxy_channel_create(proxy, &handler, nullptr, &channel)) &&
                      WEIRT_OK(rank, weir_proxy_channel_push(channel, &request, 0, nullptr));
        while (pushed && !held) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return pushed;
    }
    void give()
    {
        let_go = true;
        weir_proxy_channel_destroy(channel);
    }
};

// No thread carries the requests out: each wait ends by its deadline.
void deadlines(weirt_rank *rank)
{
    weir_port_channel_opts opts = { sizeof opts, WEIR_PORT_DIRECT_NEVER, 2, 0, nullptr, nullptr };
    holder proxy;
    port_bench b;
    if (b.open_ends(rank, 150, 4096, WEIR_SEMAPHORE_DEVICE) &&
        WEIRT_OK(rank, weir_port_channel_create(b.proxy, b.semaphore, b.remote, b.local, &opts, &b.channel)) &&
        WEIRT_OK(rank, weir_port_channel_device(b.channel, &b.device)) && WEIRT_OK(rank, weir_proxy_start(b.proxy)) &&
        proxy.take(rank, b.proxy)) {
        // After the release, both ranks' puts run at the same time: they write the second half and read the first.
        uint64_t ticket = 0;
        WEIRT_OK(rank, weir_port_channel_put(b.channel, 4096, 0, 8, &ticket));
        uint64_t start = weirt_now_ms();
        WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_port_channel_wait(b.channel, ticket, 150));
        WEIRT_EXPECT(rank, late_enough(start));
        const std::string name = ": port channel to rank " + std::to_string(1 - rank->rank) + ": ";
        const std::string waited = "weir_port_channel_wait" + name + "the request was not completed when the deadline";
        WEIRT_TEXT(rank, waited.c_str());
        WEIRT_OK(rank, weir_port_channel_put(b.channel, 4096, 0, 8, nullptr));
        start = weirt_now_ms();
        WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_port_channel_put(b.channel, 4096, 0, 8, nullptr)); // no credit
        WEIRT_EXPECT(rank, late_enough(start));
        const std::string pushed = "weir_port_channel_put" + name + "no credit or slot had come free when the deadline";
        WEIRT_TEXT(rank, pushed.c_str());
        WEIRT_OK(rank, weir_comm_status(b.comm.comm));
        weirt_barrier(rank);
        start = weirt_now_ms();
        if (rank->rank == 0 && b.call(rank, b.device, { step(SCRIPT_PUT, 4096, 0, 8), step(SCRIPT_FLUSH, 0, 0, 0) })) {
            b.ended(rank, { WEIR_OK, WEIR_ERR_TIMEOUT });
            WEIRT_EXPECT(rank, late_enough(start));
            WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_comm_status(b.comm.comm)); // a timeout of kernels fails the
                                                                                 // communicator
        }
    }
    proxy.give();
    b.close(rank, true);
}

TEST_P(PortTrouble, DeadlinesOfWhatNobodyCarriesOut)
{
    run_unless(plan().transport != PORT_IPC || stage()->processes, "the same as over ipc between threads", deadlines);
}

// A kernel's own copy, while requests are queued, is done no earlier than they are.
void copies_behind_requests(weirt_rank *rank)
{
    port_bench b;
    if (b.open_ends(rank, 0, 4096, WEIR_SEMAPHORE_DEVICE) &&
        WEIRT_OK(rank, weir_port_channel_create(b.proxy, b.semaphore, b.remote, b.local, nullptr, &b.channel)) &&
        WEIRT_OK(rank, weir_port_channel_device(b.channel, &b.device))) {
        if (b.call(rank, b.device, { step(SCRIPT_PUT, 4096, 0, 8), ticket_of(SCRIPT_TEST_TICKET, 0) })) {
            b.ended(rank, { WEIR_OK, WEIR_OK });
        }
        if (b.call(rank, b.device,
                   { step(SCRIPT_VALUE, 5000, 0, 8), step(SCRIPT_PUT, 4096, 0, 8), ticket_of(SCRIPT_TEST_TICKET, 1),
                     step(SCRIPT_GET, 4096, 16, 8), ticket_of(SCRIPT_TEST_TICKET, 3) })) {
            b.ended(rank, { WEIR_OK, WEIR_OK, WEIR_PENDING, WEIR_OK, WEIR_PENDING });
        }
        if (WEIRT_OK(rank, weir_proxy_start(b.proxy)) &&
            b.call(rank, b.device, { ticket_of(SCRIPT_WAIT_TICKET, 1), ticket_of(SCRIPT_WAIT_TICKET, 3) })) {
            b.ended(rank, { WEIR_OK, WEIR_OK });
        }
    }
    b.close(rank, true);
}

TEST_P(PortTrouble, TicketOfACopyStandsForWhatIsQueuedBeforeIt)
{
    if (plan().transport != PORT_IPC) {
        GTEST_SKIP() << name() << " maps no memory";
    }
    run(copies_behind_requests, plan());
}

// ---- memories --------------------------------------------------------------------------------------------------

// Memories whose owners destroy them while transfers are under way: the channel keeps them until it ends.
void let_go(weirt_rank *rank)
{
    constexpr uint64_t bytes = 3 << 20;
    constexpr uint32_t puts = 32;
    port_bench b;
    weir_memory *mine = nullptr;
    weir_memory *theirs = nullptr;
    uint32_t src = 0;
    uint32_t dst = 0;
    if (b.open(rank, 0, 4096) && WEIRT_OK(rank, weir_memory_allocate(b.comm.comm, 2 * bytes, &b.data, &mine)) &&
        b.exchange(rank, mine, 8, &theirs) && WEIRT_OK(rank, weir_port_channel_attach(b.channel, mine, &src)) &&
        WEIRT_OK(rank, weir_port_channel_attach(b.channel, theirs, &dst))) {
        char *base = static_cast<char *>(weir_memory_pointer(mine));
        std::vector<char> data(bytes);
        weirt_data_fill(data.data(), bytes, rank->rank, 1);
        WEIRT_OK(rank, weir_device_copy(b.comm.device, base, data.data(), bytes));
        weir_request request = port_request(WEIR_REQUEST_PUT, bytes, 0, bytes);
        request.local = src;
        request.remote = dst;
        for (uint32_t i = 0; i < puts; i++) {
            WEIRT_OK(rank, weir_port_channel_post(b.channel, &request, 0, nullptr));
        }
        weir_memory_destroy(theirs);
        weir_memory_destroy(mine);
        WEIRT_OK(rank, weir_port_channel_flush(b.channel));
        weirt_barrier(rank);
        WEIRT_OK(rank, weir_device_copy(b.comm.device, data.data(), base + bytes, bytes));
        WEIRT_EXPECT(rank, weirt_data_wrong(data.data(), bytes, b.peer, 1) == bytes);
    }
    b.close(rank, true);
}

TEST_P(PortTrouble, MemoriesLiveAsLongAsTheirChannel) { run(let_go, plan()); }

// The peer destroys its memory while transfers to it are under way: they end, with or without an error, and the other
// channel of the two ranks goes on.
void taken_away(weirt_rank *rank)
{
    constexpr uint64_t half = 1 << 22;
    constexpr uint32_t puts = 64;
    port_bench b;
    ends on;
    weir_memory *gone = nullptr;
    weir_memory *theirs = nullptr;
    weirt_log_allow("");
    bool open = b.open(rank, 0, half) && WEIRT_OK(rank, weir_memory_allocate(b.comm.comm, half, &b.data, &gone)) &&
                b.exchange(rank, gone, 8, &theirs) && on.open(rank, &b, 9) && weirt_barrier(rank);
    if (open && rank->rank == 1) {
        open = weirt_step_wait(rank, 0, 1);
        weir_memory_destroy(theirs);
        weir_memory_destroy(gone);
        theirs = gone = nullptr;
        weirt_step(rank, 2);
    } else if (open) {
        weir_request request = port_request(WEIR_REQUEST_PUT, 0, 0, half);
        std::vector<uint64_t> tickets(puts);
        open = WEIRT_OK(rank, weir_port_channel_attach(on.channel, theirs, &request.remote));
        for (uint32_t i = 0; i < puts && open; i++) {
            open = WEIRT_OK(rank, weir_port_channel_post(on.channel, &request, 0, &tickets[i]));
            if (i == 4) {
                weirt_step(rank, 1);
            }
        }
        bool failed = false;
        for (uint32_t i = 0; i < puts && open; i++) {
            weir_status status = weir_port_channel_wait(on.channel, tickets[i], weirt_timeout_ms());
            open = WEIRT_EXPECT(rank, status == WEIR_OK ? !failed : status != WEIR_ERR_TIMEOUT);
            failed = status != WEIR_OK;
        }
        open = weirt_step_wait(rank, 1, 2) && open;
        uint64_t word = 77;
        WEIRT_EXPECT(rank, b.write(rank, 0, &word, sizeof word));
        WEIRT_OK(rank, weir_port_channel_put_signal_flush(b.channel, half, 0, sizeof word));
    }
    weirt_barrier(rank);
    if (open && rank->rank == 1) {
        uint64_t word = 0;
        WEIRT_EXPECT(rank, b.read(rank, half, &word, sizeof word) && word == 77);
    }
    WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    on.close();
    weir_memory_destroy(theirs);
    weirt_barrier(rank);
    weir_memory_destroy(gone);
    b.close(rank, true);
}

TEST_P(PortTrouble, MemoryThatIsTakenAwayEndsItsTransfers)
{
    run_unless(plan().transport == PORT_IPC && !stage()->processes,
               "threads of a process use the owner's mapping, which must outlive them", taken_away);
}

// ---- creation --------------------------------------------------------------------------------------------------

// A failed create leaves semaphore, queue and memories unchanged.
void not_made(weirt_rank *rank)
{
    port_bench b;
    weir_port_channel_opts no_thread = { sizeof no_thread, 0, 0, 2, nullptr, nullptr };
    weir_port_channel_opts credits = { sizeof credits, 0, WEIR_PROXY_CREDITS_MAX + 1, 0, nullptr, nullptr };
    if (b.open_ends(rank, 0, 4096, WEIR_SEMAPHORE_HOST)) {
        WEIRT_STATUS(rank, WEIR_ERR_INVALID,
                     weir_port_channel_create(b.proxy, b.semaphore, b.remote, b.local, &no_thread, &b.channel));
        WEIRT_TEXT(rank, "no thread 2");
        WEIRT_STATUS(rank, WEIR_ERR_LIMIT,
                     weir_port_channel_create(b.proxy, b.semaphore, b.remote, b.local, &credits, &b.channel));
        uint64_t word = 5 + rank->rank;
        if (WEIRT_OK(rank, weir_port_channel_create(b.proxy, b.semaphore, b.remote, b.local, nullptr, &b.channel)) &&
            WEIRT_OK(rank, weir_proxy_start(b.proxy)) && b.write(rank, 0, &word, sizeof word) && weirt_barrier(rank)) {
            WEIRT_OK(rank, weir_port_channel_put_signal(b.channel, 4096, 0, sizeof word, nullptr));
            WEIRT_OK(rank, weir_semaphore_wait(b.semaphore, weirt_timeout_ms()));
            WEIRT_EXPECT(rank, b.read(rank, 4096, &word, sizeof word) && word == 5 + b.peer);
        }
    }
    b.close(rank, true);
}

TEST_P(PortTrouble, FailedCreateLeavesTheSemaphoreFree)
{
    run_unless(plan().transport == PORT_DEVICE, "host threads' requests go through the proxy, as over ib", not_made);
}

// ---- peers -----------------------------------------------------------------------------------------------------

// The peer dies with transfers under way: every wait ends, and the process goes on.
void killed(weirt_rank *rank)
{
    constexpr uint64_t half = 1 << 22;
    port_bench b;
    weirt_log_allow(" failed: "); // the transport may notice first
    if (b.open(rank, 0, half) && weirt_barrier(rank)) {
        uint64_t ticket = 0;
        if (rank->rank == 1) {
            (void)weirt_step_wait(rank, 0, 1);
            weirt_die(rank, WEIRT_KILL);
        }
        port_wait_args args = {};
        args.channel = b.device;
        args.report = b.device_report();
        args.waits = 1;
        b.launch(rank, port_wait_kernel(), weir_shape{ 1, 1 }, &args, false);
        weir_status status = WEIR_OK;
        for (uint32_t i = 0; i < 400 && status == WEIR_OK; i++) {
            status = weir_port_channel_put(b.channel, 0, 0, half, &ticket);
            if (i == 2) {
                weirt_step(rank, 1);
            }
        }
        weirt_step(rank, 1);
        b.finish(rank);
        WEIRT_EXPECT(rank, b.report->status[0] == WEIR_ERR_REMOTE);
        status = weir_port_channel_wait(b.channel, ticket, weirt_timeout_ms());
        WEIRT_EXPECT(rank, status == WEIR_ERR_REMOTE || status == WEIR_OK || status == WEIR_ERR_SYSTEM);
        WEIRT_STATUS(rank, WEIR_ERR_REMOTE, weir_comm_status(b.comm.comm));
    }
    b.close(rank, false);
    weirt_comm alone;
    if (weirt_comm_open_alone(rank, &alone)) {
        WEIRT_OK(rank, weir_comm_status(alone.comm));
    }
    weirt_comm_close(&alone);
}

TEST_P(PortTrouble, PeerThatIsKilledEndsTransfers)
{
    run_unless(!stage()->processes, "only a process can be killed", killed);
}

} // namespace
