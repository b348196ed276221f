// A port channel that has failed, or whose proxy was not started, ends its waits at once, also at the peer, with a
// text. Other channels go on.
#include <atomic>
#include <cstdio>

#include "port.h"

namespace {

PORT_SUITE(PortEnded, PORT_IPC, PORT_IB, PORT_OFI, PORT_DEVICE);

constexpr uint64_t half = 4096;

script_step step(uint32_t call, uint64_t remote_offset, uint64_t local_offset, uint64_t bytes)
{
    return { call, 0, remote_offset, local_offset, bytes, 0 };
}

// A bench with a second channel, which must keep working.
struct two_channels {
    port_bench b;
    weir_semaphore *semaphore = nullptr;
    weir_port_channel *second = nullptr;
    weir_dev_port_channel device = {};

    bool open(weirt_rank *rank)
    {
        weirt_log_allow(" failed: ");
        return b.open(rank, 0, half) && b.add(rank, 10, WEIR_SEMAPHORE_DEVICE, &semaphore, &second) &&
               WEIRT_OK(rank, weir_port_channel_device(second, &device)) && port_bench::all_ready(rank);
    }

    // Each rank sends a word over the second channel, and waits for the other's.
    void others_go_on(weirt_rank *rank)
    {
        uint64_t word = port_word(rank->rank, 5);
        uint64_t came = 0;
        WEIRT_EXPECT(rank, b.write(rank, 0, &word, sizeof word));
        if (b.call(rank, device, { step(SCRIPT_PUT_SIGNAL, half, 0, sizeof word), step(SCRIPT_WAIT, 0, 0, 0) })) {
            b.ended(rank, { WEIR_OK, WEIR_OK });
            WEIRT_EXPECT(rank, b.read(rank, half, &came, sizeof came) && came == port_word(b.peer, 5));
        }
        WEIRT_OK(rank, weir_port_channel_status(second));
        WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    }

    // Checks the error text of the failed channel, after rank 0's put beyond the remote memory.
    void explains(weirt_rank *rank, weir_status status)
    {
        char text[200];
        std::snprintf(text, sizeof text,
                      "%sport channel 0 to rank 1 failed: put: remote: 8 bytes at %llu of memory 0, which has %llu",
                      rank->rank == 0 ? "" : "rank 0: ", static_cast<unsigned long long>(2 * half),
                      static_cast<unsigned long long>(2 * half));
        WEIRT_STATUS(rank, status, weir_port_channel_status(b.channel));
        WEIRT_TEXT(rank, text);
    }

    void close(weirt_rank *rank)
    {
        weirt_barrier(rank);
        weir_port_channel_destroy(second);
        weir_semaphore_destroy(semaphore);
        b.close(rank, true);
    }
};

// The word at which the peer's signals for a semaphore arrive.
const uint64_t *port_inbound(weirt_rank *rank, const weir_semaphore *semaphore)
{
    weir_dev_semaphore device = {};
    WEIRT_OK(rank, weir_semaphore_device(semaphore, &device));
    return device.inbound;
}

bool wait_in_kernel(weirt_rank *rank, port_bench *b, uint64_t waits)
{
    port_wait_args args = {};
    args.channel = b->device;
    args.report = b->device_report();
    args.waits = waits;
    return b->launch(rank, port_wait_kernel(), weir_shape{ 1, 1 }, &args, false);
}

// Kernels of both ranks wait while a host request fails the channel of rank 0.
void fails_under_waits(weirt_rank *rank)
{
    two_channels t;
    if (t.open(rank) && wait_in_kernel(rank, &t.b, 1)) {
        weirt_barrier(rank);
        if (rank->rank == 0) {
            WEIRT_OK(rank, weir_port_channel_put(t.b.channel, 2 * half, 0, 8, nullptr));
        }
        t.b.finish(rank);
        const weir_status right = rank->rank == 0 ? WEIR_ERR_RANGE : WEIR_ERR_REMOTE;
        WEIRT_STATUS(rank, right, static_cast<weir_status>(t.b.report->status[0]));
        t.explains(rank, right);
        t.others_go_on(rank);
        WEIRT_EXPECT(rank,
                     rank->stage->processes || weirt_log_count("rank 0: port channel 0 to rank 1 failed: put") == 1);
    }
    t.close(rank);
}

TEST_P(PortEnded, FailedChannelEndsWaitsHereAndAtThePeer) { run(fails_under_waits, plan()); }

// Rank 0's kernel fails its channel behind two signals; rank 1's waits for these succeed.
void fails_in_a_kernel(weirt_rank *rank)
{
    two_channels t;
    if (t.open(rank)) {
        if (rank->rank == 0 &&
            t.b.call(rank, t.b.device,
                     { step(SCRIPT_SIGNAL, 0, 0, 0), step(SCRIPT_SIGNAL, 0, 0, 0), step(SCRIPT_FLUSH, 0, 0, 0),
                       step(SCRIPT_PUT, 2 * half, 0, 8), step(SCRIPT_WAIT, 0, 0, 0), step(SCRIPT_POLL, 0, 0, 0),
                       step(SCRIPT_STATUS, 0, 0, 0) })) {
            t.b.ended(rank, { WEIR_OK, WEIR_OK, WEIR_OK, WEIR_OK, WEIR_ERR_RANGE, WEIR_ERR_RANGE, WEIR_ERR_RANGE });
            t.explains(rank, WEIR_ERR_RANGE);
        }
        if (rank->rank == 1) {
            while (weir_port_channel_status(t.b.channel) == WEIR_OK) { // the failure may arrive before the waits begin
                weirt_sleep_ms(1);
            }
            t.explains(rank, WEIR_ERR_REMOTE);
            if (t.b.call(rank, t.b.device,
                         { step(SCRIPT_WAIT, 0, 0, 0), step(SCRIPT_POLL, 0, 0, 0), step(SCRIPT_WAIT, 0, 0, 0),
                           step(SCRIPT_POLL, 0, 0, 0) })) {
                t.b.ended(rank, { WEIR_OK, WEIR_OK, WEIR_ERR_REMOTE, WEIR_ERR_REMOTE });
            }
        }
        weirt_barrier(rank);   // rank 0's wait has failed: the signal below cannot end it
        if (rank->rank == 1) { // the peer's requests go on
            WEIRT_OK(rank, weir_port_channel_put_signal_flush(t.b.channel, half, 0, 8));
        }
        weirt_barrier(rank);
        t.others_go_on(rank);
    }
    t.close(rank);
}

TEST_P(PortEnded, SignalsBeforeTheFailureCount) { run(fails_in_a_kernel, plan()); }

std::atomic<uint32_t> unexpected_lines;

// The failure is logged before its other effects: this delay lets the kernel overtake them.
void delay_failure(void *, weir_log_level, const char *text)
{
    if (std::strstr(text, " failed: ") != nullptr) {
        weirt_sleep_ms(200);
    } else {
        unexpected_lines++;
    }
}

// A kernel polls at once after its ticket has failed: the channel's error is already set.
void fails_before_tickets(weirt_rank *rank)
{
    port_bench b;
    unexpected_lines = 0;
    if (b.open(rank, 0, half) && rank->rank == 0) {
        weir_log_set_sink(delay_failure, nullptr);
        if (b.call(rank, b.device,
                   { step(SCRIPT_PUT, 2 * half, 0, 8),
                     { SCRIPT_WAIT_TICKET, 0, 0, 0, 0, 0 },
                     step(SCRIPT_POLL, 0, 0, 0) })) {
            b.ended(rank, { WEIR_OK, WEIR_ERR_RANGE, WEIR_ERR_RANGE });
        }
        WEIRT_EXPECT(rank, unexpected_lines == 0);
    }
    b.close(rank, true);
}

TEST_P(PortEnded, ChannelFailsBeforeItsTickets) { run(fails_before_tickets, plan()); }

// The same for waits of host threads.
void fails_on_the_host(weirt_rank *rank)
{
    port_bench b;
    char text[160];
    weirt_log_allow(" failed: ");
    weirt_log_allow("weir_proxy_start was not called");
    if (b.open_ends(rank, 0, half, WEIR_SEMAPHORE_HOST) &&
        WEIRT_OK(rank, weir_port_channel_create(b.proxy, b.semaphore, b.remote, b.local, nullptr, &b.channel))) {
        if (rank->rank == 0) { // no kernel would post an answer
            WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_semaphore_wait(b.semaphore, weirt_timeout_ms()));
            WEIRT_TEXT(rank, "port channel to rank 1: weir_proxy_start was not called");
            WEIRT_EXPECT(rank, weirt_log_count("rank 0: port channel to rank 1: weir_proxy_start was not called") == 1);
            WEIRT_STATUS(rank, WEIR_PENDING, weir_semaphore_poll(b.semaphore));
        }
        WEIRT_OK(rank, weir_proxy_start(b.proxy));
        weirt_barrier(rank);
        if (rank->rank == 0) {
            WEIRT_OK(rank, weir_port_channel_signal(b.channel, nullptr));
            WEIRT_OK(rank, weir_port_channel_flush(b.channel));
            WEIRT_OK(rank, weir_port_channel_put(b.channel, 0, 2 * half, 8, nullptr));
        } else {
            WEIRT_OK(rank, weir_semaphore_wait(b.semaphore, weirt_timeout_ms()));
        }
        const weir_status right = rank->rank == 0 ? WEIR_ERR_RANGE : WEIR_ERR_REMOTE;
        std::snprintf(text, sizeof text, "%sport channel 0 to rank 1 failed: put: local: 8 bytes at 8192",
                      rank->rank == 0 ? "" : "rank 0: ");
        WEIRT_STATUS(rank, right, weir_semaphore_wait(b.semaphore, weirt_timeout_ms()));
        WEIRT_TEXT(rank, text);
        WEIRT_STATUS(rank, right, weir_semaphore_poll(b.semaphore));
        WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    }
    b.close(rank, true);
}

TEST_P(PortEnded, FailedChannelEndsWaitsOfHosts)
{
    run_unless(plan().transport == PORT_DEVICE, "host threads' requests go through the proxy, as over ib",
               fails_on_the_host);
}

// Channels made after the peer's channel has failed report its failure.
void fails_before(weirt_rank *rank)
{
    port_bench b;
    weirt_log_allow(" failed: ");
    bool open = b.open_ends(rank, 0, half, WEIR_SEMAPHORE_DEVICE) && WEIRT_OK(rank, weir_proxy_start(b.proxy));
    for (uint32_t turn = 0; turn < 2 && open; turn++) {
        if (rank->rank == turn) {
            open = WEIRT_OK(rank,
                            weir_port_channel_create(b.proxy, b.semaphore, b.remote, b.local, nullptr, &b.channel)) &&
                   WEIRT_OK(rank, weir_port_channel_device(b.channel, &b.device));
        }
        if (rank->rank == 0 && turn == 0 && open) {
            WEIRT_OK(rank, weir_port_channel_put(b.channel, 2 * half, 0, 8, nullptr));
            WEIRT_STATUS(rank, WEIR_ERR_RANGE, weir_port_channel_flush(b.channel));
        }
        open = weirt_barrier(rank) && open;
    }
    if (open && rank->rank == 1 && b.call(rank, b.device, { step(SCRIPT_WAIT, 0, 0, 0) })) {
        b.ended(rank, { WEIR_ERR_REMOTE });
        WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    }
    b.close(rank, true);
}

TEST_P(PortEnded, ChannelThatIsMadeLaterKnows)
{
    run_unless(plan().transport == PORT_DEVICE, "the same as over ib", fails_before);
}

// Rank 1 destroys its semaphore before rank 0's channel fails. The failure does not reach the next semaphore, although
// it uses the same cells.
void fails_too_late(weirt_rank *rank)
{
    port_bench b;
    weir_semaphore *semaphores[3] = {};
    weir_port_channel *channels[2] = {};
    weirt_log_allow(" failed: ");
    if (b.open(rank, 0, half) && b.add(rank, 10, WEIR_SEMAPHORE_DEVICE, &semaphores[0], &channels[0]) &&
        weirt_barrier(rank)) {
        const uint64_t *inbound = port_inbound(rank, semaphores[0]);
        if (rank->rank == 1) {
            weir_port_channel_destroy(channels[0]);
            weir_semaphore_destroy(semaphores[0]);
            channels[0] = nullptr;
            semaphores[0] = nullptr;
        }
        if (b.add(rank, 11, WEIR_SEMAPHORE_DEVICE, &semaphores[1], &channels[1])) {
            if (rank->rank == 0) {
                WEIRT_OK(rank, weir_port_channel_put(channels[0], 2 * half, 0, 8, nullptr));
                WEIRT_STATUS(rank, WEIR_ERR_RANGE, weir_port_channel_flush(channels[0]));
                // The same proxy thread does this, so the failure has been sent before.
                WEIRT_OK(rank, weir_port_channel_put(channels[1], half, 0, 8, nullptr));
                WEIRT_OK(rank, weir_port_channel_flush(channels[1]));
            } else {
                WEIRT_EXPECT(rank, port_inbound(rank, semaphores[1]) == inbound);
            }
            // Rank 0's message arrives after the failure.
            weirt_barrier(rank);
            weirt_semaphore(rank, b.connection, 12, WEIR_SEMAPHORE_DEVICE, &semaphores[2]);
            WEIRT_OK(rank, weir_port_channel_status(channels[1]));
            WEIRT_OK(rank, weir_comm_status(b.comm.comm));
        }
    }
    weirt_barrier(rank);
    for (uint32_t i = 0; i < 3; i++) {
        weir_port_channel_destroy(i < 2 ? channels[i] : nullptr);
        weir_semaphore_destroy(semaphores[i]);
    }
    b.close(rank, true);
}

TEST_P(PortEnded, FailureAfterThePeersDestroyConcernsNobody)
{
    run_unless(plan().transport == PORT_DEVICE, "the same as over ib", fails_too_late);
}

// ---- proxies ---------------------------------------------------------------------------------------------------

// The proxy is not started: waits, also for credits, end at once; then it is started.
void not_started(weirt_rank *rank)
{
    port_bench b;
    uint64_t tickets[2] = {};
    const weir_port_channel_opts opts = { sizeof opts, WEIR_PORT_DIRECT_NEVER, 2, 0, nullptr, nullptr };
    weirt_log_allow("weir_proxy_start was not called");
    if (b.open_ends(rank, 0, half, WEIR_SEMAPHORE_DEVICE) &&
        WEIRT_OK(rank, weir_port_channel_create(b.proxy, b.semaphore, b.remote, b.local, &opts, &b.channel)) &&
        WEIRT_OK(rank, weir_port_channel_device(b.channel, &b.device))) {
        if (b.call(rank, b.device,
                   { step(SCRIPT_WAIT, 0, 0, 0), step(SCRIPT_POLL, 0, 0, 0), step(SCRIPT_PUT, half, 0, 8),
                     step(SCRIPT_FLUSH, 0, 0, 0), step(SCRIPT_PUT, half, 0, 8), step(SCRIPT_WAIT, 0, 0, 0) })) {
            b.ended(rank,
                    { WEIR_ERR_INVALID, WEIR_PENDING, WEIR_OK, WEIR_ERR_INVALID, WEIR_ERR_INVALID, WEIR_ERR_INVALID });
        }
        const std::string peer = std::to_string(1 - rank->rank);
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_port_channel_status(b.channel));
        WEIRT_TEXT(rank, "weir_proxy_start was not called");
        WEIRT_EXPECT(rank, weirt_log_count(("port channel to rank " + peer + ": weir_proxy_start").c_str()) == 1);
        WEIRT_OK(rank, weir_port_channel_put(b.channel, half, 0, 8, &tickets[0]));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_port_channel_wait(b.channel, tickets[0], weirt_timeout_ms()));
        WEIRT_TEXT(rank,
                   ("weir_port_channel_wait: port channel to rank " + peer + ": weir_proxy_start was not").c_str());
        WEIRT_EXPECT(rank, weirt_log_count(("port channel to rank " + peer + ": weir_proxy_start").c_str()) == 1);
        WEIRT_OK(rank, weir_port_channel_put(b.channel, half, 0, 8, &tickets[1]));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_port_channel_put(b.channel, half, 0, 8, nullptr)); // no credit
        WEIRT_TEXT(rank, "weir_proxy_start was not called");
        WEIRT_OK(rank, weir_comm_status(b.comm.comm));
        weirt_barrier(rank); // the peer's signal would be posted by the proxy
        WEIRT_OK(rank, weir_proxy_start(b.proxy));
        WEIRT_OK(rank, weir_port_channel_wait(b.channel, tickets[1], weirt_timeout_ms()));
        WEIRT_OK(rank, weir_port_channel_status(b.channel));
        if (b.call(rank, b.device,
                   { step(SCRIPT_PUT, half, 0, 8), step(SCRIPT_FLUSH, 0, 0, 0), step(SCRIPT_SIGNAL, 0, 0, 0),
                     step(SCRIPT_WAIT, 0, 0, 0) })) {
            b.ended(rank, { WEIR_OK, WEIR_OK, WEIR_OK, WEIR_OK });
        }
    }
    b.close(rank, true);
}

TEST_P(PortEnded, ProxyThatWasNotStartedEndsWaits)
{
    run_unless(plan().transport == PORT_DEVICE, "kernels need no proxy", not_started);
}

// Kernels that post by themselves need no proxy.
void without_proxy(weirt_rank *rank)
{
    port_bench b;
    if (b.open_ends(rank, 0, half, WEIR_SEMAPHORE_DEVICE) &&
        WEIRT_OK(rank, weir_port_channel_create(b.proxy, b.semaphore, b.remote, b.local, nullptr, &b.channel)) &&
        WEIRT_OK(rank, weir_port_channel_device(b.channel, &b.device)) && port_bench::all_ready(rank) &&
        b.call(
            rank, b.device,
            { step(SCRIPT_PUT_SIGNAL_FLUSH, half, 0, 8), step(SCRIPT_WAIT, 0, 0, 0), step(SCRIPT_FLUSH, 0, 0, 0) })) {
        b.ended(rank, { WEIR_OK, WEIR_OK, WEIR_OK });
        WEIRT_OK(rank, weir_port_channel_status(b.channel));
        WEIRT_OK(rank, weir_proxy_stop(b.proxy));
        weirt_barrier(rank);
        if (b.call(rank, b.device, { step(SCRIPT_SIGNAL, 0, 0, 0), step(SCRIPT_WAIT, 0, 0, 0) })) {
            b.ended(rank, { WEIR_OK, WEIR_OK });
        }
    }
    b.close(rank, true);
}

TEST_P(PortEnded, KernelsThatPostThemselvesNeedNoProxy)
{
    run_unless(plan().transport != PORT_DEVICE, "kernels do not post by themselves", without_proxy);
}

// A wait in the order of a stream cannot return its status: later work must not use data that never arrived.
void fails_under_a_stream(weirt_rank *rank)
{
    port_bench b;
    weirt_log_allow(" failed: ");
    if (b.open(rank, 0, half)) {
        if (rank->rank == 1) {
            WEIRT_OK(rank, weir_port_channel_wait_on_stream(b.channel, b.stream));
        }
        weirt_barrier(rank);
        if (rank->rank == 0) {
            WEIRT_OK(rank, weir_port_channel_put(b.channel, 2 * half, 0, 8, nullptr));
            WEIRT_STATUS(rank, WEIR_ERR_RANGE, weir_port_channel_flush(b.channel));
        } else {
            b.finish(rank);
            WEIRT_STATUS(rank, WEIR_ERR_REMOTE, weir_comm_status(b.comm.comm));
        }
        weirt_barrier(rank);
    }
    b.close(rank, false);
}

TEST_P(PortEnded, WaitOfAStreamFailsTheCommunicator)
{
    run_unless(plan().transport == PORT_DEVICE, "the same as over ib", fails_under_a_stream);
}

// A stop ends the waits of this rank.
void stops_under_waits(weirt_rank *rank)
{
    port_bench b;
    if (b.open(rank, 0, half) && wait_in_kernel(rank, &b, 1)) {
        WEIRT_OK(rank, weir_proxy_stop(b.proxy));
        b.finish(rank);
        WEIRT_STATUS(rank, WEIR_ERR_ABORTED, static_cast<weir_status>(b.report->status[0]));
        WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    }
    b.close(rank, true);
}

TEST_P(PortEnded, StoppedProxyEndsWaits)
{
    run_unless(plan().transport == PORT_DEVICE, "kernels need no proxy", stops_under_waits);
}

} // namespace
