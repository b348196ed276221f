// Port channels with the device engine: their errors, and their fallback to the proxy. port_channel_test.cc has what
// all port channels do.
#include <cstdio>
#include <string>
#include <vector>

#include "engine_kernels.h"
#include "port.h"

namespace {

PORT_SUITE(PortDevice, PORT_DEVICE);

// ---- what they do ----------------------------------------------------------------------------------------------

std::string engine_of(const weir_port_channel *channel, std::string *reason)
{
    weir_port_channel_info info = {};
    weir_port_channel_get_info(channel, &info);
    *reason = info.reason;
    return info.engine;
}

// Kernels reach memories that are attached while they have the handle, in any number.
void attached(weirt_rank *rank)
{
    constexpr uint32_t count = 70; // the table grows twice
    port_bench b;
    std::vector<weir_memory *> theirs(count);
    std::string reason;
    bool open = b.open(rank, 0, 8 * count) && WEIRT_EXPECT(rank, engine_of(b.channel, &reason) == "device") &&
                WEIRT_EXPECT(rank, reason.empty());
    for (uint32_t i = 0; i < count && open; i++) {
        uint32_t id = 0;
        open = b.exchange(rank, b.local, 100 + i, &theirs[i]) &&
               WEIRT_OK(rank, weir_port_channel_attach(b.channel, theirs[i], &id)) && WEIRT_EXPECT(rank, id == i + 2);
    }
    if (open) {
        std::vector<uint64_t> data(2 * count);
        for (uint32_t i = 0; i < count; i++) {
            data[i] = port_word(rank->rank, i);
        }
        b.write(rank, 0, data.data(), 16 * count);
        weirt_barrier(rank);
        port_request_args args = {};
        args.channel = b.device;
        args.report = b.device_report();
        for (uint32_t i = 0; i < count; i++) {
            args.request = port_request(WEIR_REQUEST_PUT, 8 * (count + i), 8 * i, 8);
            args.request.remote = i + 2;
            b.launch(rank, port_request_kernel(), weir_shape{ 1, 1 }, &args, false);
            b.finish(rank);
            WEIRT_EXPECT(rank, b.report->status[0] == WEIR_OK && b.report->status[1] == WEIR_OK);
        }
        weirt_barrier(rank);
        b.read(rank, 0, data.data(), 16 * count);
        for (uint32_t i = 0; i < count; i++) {
            WEIRT_EXPECT(rank, data[count + i] == port_word(b.peer, i));
        }
        args.request.remote = count + 2;
        b.launch(rank, port_request_kernel(), weir_shape{ 1, 1 }, &args, false);
        b.finish(rank);
        WEIRT_EXPECT(rank, b.report->status[1] == WEIR_ERR_RANGE);
        WEIRT_STATUS(rank, WEIR_ERR_RANGE, weir_port_channel_status(b.channel));
        WEIRT_TEXT(rank, "put: remote: memory 72 is no memory of the peer");
    }
    weirt_barrier(rank);
    weir_port_channel_destroy(b.channel);
    b.channel = nullptr;
    for (weir_memory *memory : theirs) {
        weir_memory_destroy(memory);
    }
    b.close(rank, true);
}

TEST_P(PortDevice, ReachesWhatIsAttachedLater) { run(attached, plan()); }

// ---- what ends them --------------------------------------------------------------------------------------------

script_step step(uint32_t call, uint64_t remote_offset, uint64_t bytes)
{
    return { call, 0, remote_offset, 0, bytes, 0 };
}

script_step ticket_of(uint32_t of) { return { SCRIPT_WAIT_TICKET, of, 0, 0, 0, 0 }; }

// The host's text is that of the host's request; earlier tickets stay done, and the host's requests go on.
void refused(weirt_rank *rank)
{
    weirt_log_allow(" failed: ");
    port_bench b;
    if (b.open(rank, 0, 4096)) {
        char text[160];
        b.call(rank, b.device,
               { step(SCRIPT_PUT, 0, 8), step(SCRIPT_PUT, 8190, 8), step(SCRIPT_VALUE, 6, 8), ticket_of(0),
                 ticket_of(1), ticket_of(2), step(SCRIPT_FLUSH, 0, 0) });
        b.ended(rank, { WEIR_OK, WEIR_OK, WEIR_OK, WEIR_OK, WEIR_ERR_RANGE, WEIR_ERR_RANGE, WEIR_ERR_RANGE });
        std::snprintf(text, sizeof text,
                      "port channel 0 to rank %u failed: put: remote: 8 bytes at 8190 of memory 0, which has 8192",
                      b.peer);
        WEIRT_STATUS(rank, WEIR_ERR_RANGE, weir_port_channel_status(b.channel));
        WEIRT_TEXT(rank, text);
        WEIRT_OK(rank, weir_port_channel_put_signal_flush(b.channel, 0, 0, 8));
        WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    }
    b.close(rank, true);
}

TEST_P(PortDevice, RefusedRequestIsToldAsTheHostsAre)
{
    const port_fault fault("shape:3000,0"); // earlier requests are still under way
    run(refused, plan());
}

// The peer's NIC refuses every request: tickets end with the error, also those of a full queue.
void denied(weirt_rank *rank)
{
    weirt_log_allow(" failed: ");
    port_bench b;
    if (b.open(rank, 0, 4096)) {
        script_step many = step(SCRIPT_PUT, 0, 0);
        many.count = 3000;
        weirt_barrier(rank);
        if (rank->rank == 1) { // a NIC that refuses a request ends the connection and flushes its requests
            b.close(rank, true);
            return;
        }
        b.call(rank, b.device,
               { step(SCRIPT_PUT, 0, 8), ticket_of(0), many, ticket_of(2), step(SCRIPT_SIGNAL, 0, 0),
                 step(SCRIPT_FLUSH, 0, 0) });
        b.ended(rank, { WEIR_OK, WEIR_ERR_REMOTE, WEIR_OK, WEIR_ERR_REMOTE, WEIR_OK, WEIR_ERR_REMOTE });
        WEIRT_STATUS(rank, WEIR_ERR_REMOTE, weir_port_channel_status(b.channel));
        WEIRT_TEXT(rank, "remote access error");
        WEIRT_TEXT(rank, "syndrome 0x13");
        WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    }
    b.close(rank, true);
}

TEST_P(PortDevice, ErrorsOfTheNicEndTicketsAndFullQueues)
{
    port_fault fault("remote-access:1,1000000");
    run(denied, plan());
}

// The host checks for errors after flushed requests have followed the failed one.
void denied_before_the_host_looks(weirt_rank *rank)
{
    weirt_log_allow(" failed: ");
    port_bench b;
    if (b.open_ends(rank, 0, 4096, WEIR_SEMAPHORE_DEVICE) &&
        WEIRT_OK(rank, weir_port_channel_create(b.proxy, b.semaphore, b.remote, b.local, nullptr, &b.channel)) &&
        WEIRT_OK(rank, weir_port_channel_device(b.channel, &b.device)) && weirt_barrier(rank) && rank->rank == 0) {
        b.call(rank, b.device, { step(SCRIPT_PUT, 0, 8), ticket_of(0), step(SCRIPT_PUT, 0, 8), ticket_of(2) });
        b.ended(rank, { WEIR_OK, WEIR_ERR_REMOTE, WEIR_OK, WEIR_ERR_REMOTE });
        weirt_sleep_ms(20); // for the NIC to flush the second
        WEIRT_OK(rank, weir_proxy_start(b.proxy));
        for (uint32_t i = 0; i < weirt_timeout_ms() && weir_port_channel_status(b.channel) == WEIR_OK; i++) {
            weirt_sleep_ms(1);
        }
        WEIRT_STATUS(rank, WEIR_ERR_REMOTE, weir_port_channel_status(b.channel));
        WEIRT_TEXT(rank, "remote access error");
        WEIRT_TEXT(rank, "syndrome 0x13");
    }
    b.close(rank, true);
}

TEST_P(PortDevice, ErrorsOfTheNicAreToldAlsoWhenTheHostLooksLate)
{
    port_fault fault("remote-access:1,1000000");
    run(denied_before_the_host_looks, plan());
}

// The link is down for longer than the NIC's retries.
void cut_off(weirt_rank *rank)
{
    weirt_log_allow(" failed: ");
    port_bench b;
    if (b.open(rank, 0, 4096)) {
        weirt_barrier(rank);
        b.call(rank, b.device, { step(SCRIPT_PUT, 0, 8), ticket_of(0), step(SCRIPT_FLUSH, 0, 0) });
        b.ended(rank, { WEIR_OK, WEIR_ERR_REMOTE, WEIR_ERR_REMOTE });
        WEIRT_STATUS(rank, WEIR_ERR_REMOTE, weir_port_channel_status(b.channel));
        WEIRT_TEXT(rank, "no answer");
    }
    b.close(rank, true);
}

TEST_P(PortDevice, LostAnswersEndTickets)
{
    port_fault fault("lost-request:1,1000000");
    setenv("WEIR_IB_TIMEOUT", "12", 1); // 17 ms, seven times
    run(cut_off, plan());
    setenv("WEIR_IB_TIMEOUT", "16", 1);
}

void without_atomics(weirt_rank *rank)
{
    weirt_log_allow(" failed: ");
    port_bench b;
    if (b.open(rank, 0, 4096)) {
        port_request_args args = {};
        args.channel = b.device;
        args.report = b.device_report();
        args.request = port_request(WEIR_REQUEST_ADD, 8, 0, 8);
        b.launch(rank, port_request_kernel(), weir_shape{ 1, 1 }, &args, false);
        b.finish(rank);
        WEIRT_EXPECT(rank, b.report->status[0] == WEIR_OK && b.report->status[1] == WEIR_ERR_UNSUPPORTED);
        WEIRT_STATUS(rank, WEIR_ERR_UNSUPPORTED, weir_port_channel_status(b.channel));
        WEIRT_TEXT(rank, "no atomic operations");
    }
    b.close(rank, true);
}

TEST_P(PortDevice, NicWithoutAtomicsIsNamed)
{
    port_fault fault("no-atomics");
    run(without_atomics, plan());
}

// The peer dies while a kernel waits for its puts: every wait ends.
void killed(weirt_rank *rank)
{
    weirt_log_allow(" failed: ");
    port_bench b;
    if (b.open(rank, 0, 4096) && weirt_barrier(rank)) {
        if (rank->rank == 1) {
            weirt_die(rank, WEIRT_KILL);
        }
        weirt_death_wait(rank, 1);
        b.call(rank, b.device, { step(SCRIPT_PUT, 0, 8), ticket_of(0), step(SCRIPT_WAIT, 0, 0) });
        b.ended(rank, { WEIR_OK, WEIR_ERR_REMOTE, WEIR_ERR_REMOTE });
    }
    b.close(rank, false);
}

TEST_P(PortDevice, PeerThatIsKilledEndsKernels)
{
    run_unless(!stage()->processes, "only a process can be killed", killed);
}

// ---- fallback to the proxy ------------------------------------------------------------------------------------

// Both ranks move data by the proxy and report why.
bool by_proxy(weirt_rank *rank, const char *why)
{
    port_bench b;
    std::string reason;
    bool fine = b.open(rank, 0, 4096) && WEIRT_EXPECT(rank, engine_of(b.channel, &reason) == "proxy");
    if (fine && reason.find(why) == std::string::npos) {
        weirt_fail(rank, __FILE__, __LINE__, "\"%s\" does not say \"%s\"", reason.c_str(), why);
        fine = false;
    }
    uint64_t word = 5 + rank->rank;
    if (fine && b.write(rank, 0, &word, sizeof word)) {
        weirt_barrier(rank);
        b.call(rank, b.device, { step(SCRIPT_PUT_SIGNAL, 4096, 8), step(SCRIPT_WAIT, 0, 0), ticket_of(0) });
        fine = b.ended(rank, { WEIR_OK, WEIR_OK, WEIR_OK }) && b.read(rank, 4096, &word, sizeof word) &&
               WEIRT_EXPECT(rank, word == 5 + b.peer);
    }
    b.close(rank, true);
    return fine;
}

void of_copy_engines(weirt_rank *rank) { by_proxy(rank, "transport ipc has no queues that kernels post to"); }

TEST_P(PortDevice, OtherTransportsFallBackToTheProxy)
{
    port_case what = plan();
    setenv("WEIR_PORT_ENGINE", "device", 1);
    what.transport = PORT_IPC;
    run(of_copy_engines, what);
}

void of_one_side(weirt_rank *rank)
{
    if (rank->rank == 1) {
        setenv("WEIR_PORT_ENGINE", "proxy", 1);
    }
    by_proxy(rank, rank->rank == 0 ? "the peer has no queue for kernels" : "");
}

TEST_P(PortDevice, SidesThatDisagreeFallBackToTheProxy)
{
    if (!stage()->processes) {
        GTEST_SKIP() << "threads of a process share its environment";
    }
    setenv("WEIR_PORT_ENGINE", "device", 1);
    run(of_one_side, plan());
}

// Without a fallback, a channel is not made, and the semaphore is free again.
void no_other(weirt_rank *rank)
{
    port_bench b;
    if (b.open_ends(rank, 0, 4096, WEIR_SEMAPHORE_DEVICE)) {
        WEIRT_STATUS(rank, WEIR_ERR_UNSUPPORTED,
                     weir_port_channel_create(b.proxy, b.semaphore, b.remote, b.local, nullptr, &b.channel));
        WEIRT_TEXT(rank, "WEIR_PORT_ENGINE is device-only: transport ipc has no queues");
        weirt_barrier(rank);
        if (rank->stage->processes || rank->rank == 0) {
            setenv("WEIR_PORT_ENGINE", "proxy", 1);
        }
        weirt_barrier(rank);
        WEIRT_OK(rank, weir_port_channel_create(b.proxy, b.semaphore, b.remote, b.local, nullptr, &b.channel));
    }
    b.close(rank, true);
}

TEST_P(PortDevice, DeviceOnlyDoesNotFallBack)
{
    port_case what = plan();
    what.transport = PORT_IPC;
    run(no_other, what);
}

// Kernels built for one engine refuse handles of another.
void one_engine(weirt_rank *rank)
{
    const bool device = std::string(getenv("WEIR_PORT_ENGINE")) != "proxy";
    const uint64_t word = 77 + rank->rank;
    port_bench b;
    uint64_t arrived = 0;
    if (b.open(rank, 0, 4096) && WEIRT_OK(rank, weir_kernel_load(b.comm.device, engine_kernel())) &&
        b.write(rank, 0, &word, sizeof word)) {
        weirt_barrier(rank);
        engine_args args = {};
        args.channel = b.device;
        args.channel.rdma.remote.remote += 4096;
        args.status = b.device_report()->status;
        args.bytes = device ? sizeof word : 0;
        b.launch(rank, engine_kernel(), weir_shape{ 1, 1 }, &args, false);
        b.finish(rank);
        const weir_status expected = device ? WEIR_ERR_INVALID : WEIR_OK;
        WEIRT_EXPECT(rank, b.report->status[0] == expected && b.report->status[1] == expected);
        weirt_barrier(rank);
        b.read(rank, 4096, &arrived, sizeof arrived);
        WEIRT_EXPECT(rank, arrived == 0);
    }
    b.close(rank, true);
}

TEST_P(PortDevice, KernelsForOneEngineRefuseAnother)
{
    run(one_engine, plan());
    setenv("WEIR_PORT_ENGINE", "proxy", 1);
    run(one_engine, plan());
}

// ---- leaks ------------------------------------------------------------------------------------

// Makes all objects of a channel; stops at the first error.
struct whole {
    weir_device *device;
    weir_bootstrap *boot;
    weir_comm *comm;
    weir_connection *connection;
    weir_memory *local;
    weir_memory *remote;
    weir_semaphore *semaphore;
    weir_proxy *proxy;
    weir_port_channel *channel;
};

weir_status make(const weirt_rank *rank, whole *w)
{
    const uint32_t peer = 1 - rank->rank;
    const weir_connection_opts opts = { sizeof opts, "ib" };
    uint32_t id = 0;
    weir_status status = weir_device_open(rank->device, nullptr, &w->device);
    status = status != WEIR_OK ? status : weir_comm_create(w->boot, w->device, nullptr, &w->comm);
    status = status != WEIR_OK ? status : weir_connection_create(w->comm, peer, 1, &opts, &w->connection);
    status = status != WEIR_OK ? status : weir_memory_allocate(w->comm, 4096, nullptr, &w->local);
    status = status != WEIR_OK ? status : weir_memory_send(w->comm, w->local, peer, 1);
    status = status != WEIR_OK ? status : weir_memory_recv(w->comm, peer, 1, &w->remote);
    status = status != WEIR_OK ? status : weir_semaphore_create(w->connection, 2, nullptr, &w->semaphore);
    status = status != WEIR_OK ? status : weir_proxy_create(w->comm, nullptr, &w->proxy);
    status = status != WEIR_OK
                 ? status
                 : weir_port_channel_create(w->proxy, w->semaphore, w->remote, w->local, nullptr, &w->channel);
    status = status != WEIR_OK ? status : weir_proxy_start(w->proxy);
    return status != WEIR_OK ? status : weir_port_channel_attach(w->channel, w->remote, &id);
}

void unmake(whole *w)
{
    weir_port_channel_destroy(w->channel);
    weir_proxy_destroy(w->proxy);
    weir_semaphore_destroy(w->semaphore);
    weir_memory_destroy(w->remote);
    weir_memory_destroy(w->local);
    weir_connection_destroy(w->connection);
    weir_comm_destroy(w->comm);
    weir_bootstrap_destroy(w->boot);
    weir_device_close(w->device);
}

uint64_t (*const arms[])(uint64_t) = { weirt_fail_allocation, weirt_fail_device, weirt_fail_transport };

// The n-th operation of a kind fails while both ranks make a channel. The channel is made, with the device engine or
// the proxy, or it is not, with an error text; nothing leaks. Returns whether the n-th operation was reached.
bool try_without(weirt_rank *rank, uint32_t what, uint64_t n, uint32_t *fallbacks)
{
    whole w = {};
    weir_unique_id id;
    weir_bootstrap_opts opts = {};
    opts.size = sizeof opts;
    opts.timeout_ms = weirt_timeout_ms();
    weirt_barrier(rank);
    const int64_t before = weirt_count_allocations();
    weirt_barrier(rank);
    if (!weirt_id(rank, &id) || !WEIRT_OK(rank, weir_bootstrap_create(id.text, rank->rank, 2, &opts, &w.boot))) {
        return false;
    }
    weirt_barrier(rank);
    if (rank->rank == 0) {
        (void)arms[what](n);
    }
    weirt_barrier(rank);
    const weir_status status = make(rank, &w);
    WEIRT_EXPECT(rank, status == WEIR_OK || (status < 0 && weir_last_error()[0] != '\0'));
    if (status == WEIR_OK) {
        std::string reason;
        const bool proxy = engine_of(w.channel, &reason) == "proxy";
        *fallbacks += proxy;
        WEIRT_EXPECT(rank, proxy == !reason.empty());
    } else {
        unmake(&w); // a rank that has failed leaves at once
    }
    weirt_barrier(rank);
    if (rank->rank == 0) {
        weirt_step(rank, static_cast<uint32_t>(2 * n + (arms[what](0) == 0)));
    }
    if (status == WEIR_OK) {
        unmake(&w);
    }
    weirt_barrier(rank);
    const int64_t after = weirt_count_allocations();
    if (rank->rank == 0 && after != before) {
        weirt_fail(rank, __FILE__, __LINE__, "operation %llu of kind %u failed: %lld allocations left behind",
                   static_cast<unsigned long long>(n), what, static_cast<long long>(after - before));
    }
    return weirt_step_now(rank, 0) % 2 == 1;
}

void nth_fails(weirt_rank *rank)
{
    const uint32_t what = port_bench::plan_of(rank)->op;
    const uint64_t stride = what == 0 && weirt_sanitizer()[0] != '\0' ? 5 : 1;
    uint32_t fallbacks = 0;
    uint64_t n = 1;
    weirt_log_allow("");
    while (n < 2000 && try_without(rank, what, n, &fallbacks)) {
        n += stride;
    }
    WEIRT_EXPECT(rank, n > 5 && n < 2000);
    WEIRT_EXPECT(rank, what == 2 || stride != 1 || fallbacks != 0); // the device engine could not be set up
}

PORT_SUITE(PortDeviceNth, PORT_DEVICE, PORT_DEVX);

TEST_P(PortDeviceNth, OperationFails)
{
    if (stage()->processes || gpu()) {
        GTEST_SKIP() << "operations fail for all threads of a process";
    }
    setenv("WEIR_PORT_ENGINE", "device", 1);
    for (uint32_t what = 0; what < 3; what++) {
        port_case plan_ = plan();
        plan_.op = what;
        run(nth_fails, plan_);
    }
}

} // namespace
