// Port channels with the device engine and queues made by DevX, with collapsed completions: their errors, and different
// peers. port_channel_test.cc tests their transfers.
#include <string>

#include "port.h"

namespace {

PORT_SUITE(PortDevx, PORT_DEVX);
PORT_SUITE(PortDevxStaged, PORT_DEVX_STAGED);

script_step step(uint32_t call, uint64_t count = 0) { return { call, 0, 0, 0, count == 0 ? 8u : 0u, count }; }

script_step ticket_of(uint32_t of) { return { SCRIPT_WAIT_TICKET, of, 0, 0, 0, 0 }; }

// The peer's NIC refuses every request. The completion of a flushed request overwrites that of the first: no ticket of
// either is done, full queues end too, and the host reports the error. So does the peer, which has made no request.
void denied(weirt_rank *rank)
{
    port_bench b;
    bool open = b.open(rank, 0, 4096);
    weirt_barrier(rank);
    if (open && rank->rank == 0) {
        script_step many = step(SCRIPT_PUT, 3000);
        b.call(rank, b.device, { step(SCRIPT_PUT), ticket_of(0), many, ticket_of(2), step(SCRIPT_FLUSH) });
        b.ended(rank, { WEIR_OK, WEIR_ERR_REMOTE, WEIR_OK, WEIR_ERR_REMOTE, WEIR_ERR_REMOTE });
        WEIRT_STATUS(rank, WEIR_ERR_REMOTE, weir_port_channel_status(b.channel));
        WEIRT_TEXT(rank, "syndrome 0x");
    }
    weirt_barrier(rank);
    if (open && rank->rank == 1) {
        WEIRT_STATUS(rank, WEIR_ERR_REMOTE, weir_port_channel_status(b.channel));
        WEIRT_TEXT(rank, "the NIC has put the queue pair into the error state");
    }
    WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    b.close(rank, true);
}

TEST_P(PortDevx, ErrorsOfTheNicEndTicketsAndFullQueues)
{
    port_fault fault("remote-access:1,1000000");
    run(denied, plan());
}

// The host makes the device copy the completion.
TEST_P(PortDevxStaged, ErrorsOfTheNicEndTicketsAndFullQueues)
{
    port_fault fault("remote-access:1,1000000");
    run(denied, plan());
}

// Without later requests, the error is exact, and earlier requests are done.
void one_fails(weirt_rank *rank)
{
    port_bench b;
    if (b.open(rank, 0, 4096)) {
        weirt_barrier(rank);
        if (rank->rank == 0) {
            b.call(rank, b.device,
                   { step(SCRIPT_PUT), step(SCRIPT_PUT), ticket_of(1), step(SCRIPT_PUT), ticket_of(3), ticket_of(0) });
            b.ended(rank, { WEIR_OK, WEIR_OK, WEIR_OK, WEIR_OK, WEIR_ERR_REMOTE, WEIR_OK });
            WEIRT_STATUS(rank, WEIR_ERR_REMOTE, weir_port_channel_status(b.channel));
            WEIRT_TEXT(rank, "remote access error");
            WEIRT_TEXT(rank, "syndrome 0x13");
        }
    }
    b.close(rank, true);
}

TEST_P(PortDevx, AnErrorAloneIsToldAsItIs)
{
    port_fault fault("remote-access:3");
    run(one_fails, plan());
}

// One end's queue is made by verbs.
void mixed(weirt_rank *rank)
{
    port_bench b;
    if (rank->rank == 1) {
        setenv("WEIR_IB_QUEUES", "verbs", 1);
    }
    const uint64_t word = 5 + rank->rank;
    uint64_t arrived = 0;
    if (b.open(rank, 0, 4096) && b.write(rank, 0, &word, sizeof word)) {
        weirt_barrier(rank);
        script_step put = step(SCRIPT_PUT_SIGNAL);
        put.remote_offset = 4096;
        b.call(rank, b.device, { put, step(SCRIPT_WAIT), ticket_of(0) });
        b.ended(rank, { WEIR_OK, WEIR_OK, WEIR_OK });
        b.read(rank, 4096, &arrived, sizeof arrived);
        WEIRT_EXPECT(rank, arrived == 5 + b.peer);
    }
    b.close(rank, true);
}

TEST_P(PortDevx, MeetsQueuesThatAreMadeByVerbs)
{
    run_unless(!stage()->processes, "threads of a process share its environment", mixed);
}

// More channels than a slab has slots.
void many(weirt_rank *rank)
{
    constexpr uint32_t count = 18;
    port_bench b;
    weir_connection *connections[count] = {};
    bool open = b.open(rank, 0, 4096);
    for (uint32_t i = 0; i < count && open; i++) {
        open = b.connect(rank, 100 + i, &connections[i]);
    }
    weir_semaphore *semaphore = nullptr;
    weir_port_channel *channel = nullptr;
    weir_port_channel_opts opts = { sizeof opts, 0, 0, 0, nullptr, nullptr };
    weir_dev_port_channel device = {};
    if (open && weirt_semaphore(rank, connections[count - 1], 3, WEIR_SEMAPHORE_DEVICE, &semaphore) &&
        WEIRT_OK(rank, weir_port_channel_create(b.proxy, semaphore, b.remote, b.local, &opts, &channel)) &&
        WEIRT_OK(rank, weir_port_channel_device(channel, &device)) && port_bench::all_ready(rank)) {
        b.call(rank, device, { step(SCRIPT_PUT_SIGNAL), step(SCRIPT_WAIT), ticket_of(0) });
        b.ended(rank, { WEIR_OK, WEIR_OK, WEIR_OK });
    }
    weirt_barrier(rank);
    weir_port_channel_destroy(channel);
    weir_semaphore_destroy(semaphore);
    for (weir_connection *connection : connections) {
        weir_connection_destroy(connection);
    }
    b.close(rank, true);
}

TEST_P(PortDevx, ManyQueuesHaveMoreThanOneSlab) { run(many, plan()); }

} // namespace
