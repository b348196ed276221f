// Connections: the choice of their transport, and mismatched operations.
#include <cstdlib>
#include <string>

#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

void names(weirt_rank *rank)
{
    weirt_comm c;
    weir_connection *connection = nullptr;
    weir_connection *refused = nullptr;
    uint32_t peer = 1 - rank->rank;
    if (weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_connection_create(c.comm, peer, 1, nullptr, &connection))) {
        WEIRT_EXPECT(rank, weir_connection_peer(connection) == peer);
        WEIRT_EXPECT(rank, std::string(weir_connection_transport(connection)) == "ipc");
        weir_connection_destroy(connection);
        connection = nullptr;
        weir_connection_opts opts = { sizeof opts, "ipc" };
        if (WEIRT_OK(rank, weir_connection_create(c.comm, peer, 1, &opts, &connection))) {
            WEIRT_EXPECT(rank, std::string(weir_connection_transport(connection)) == "ipc");
        }
        opts.transport = "pigeon";
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_connection_create(c.comm, peer, 2, &opts, &refused));
        WEIRT_TEXT(rank, "pigeon");
        WEIRT_EXPECT(rank, refused == nullptr);
        WEIRT_OK(rank, weir_comm_status(c.comm));
    }
    weirt_barrier(rank);
    weir_connection_destroy(connection);
    weirt_comm_close(&c);
}

void misuse(weirt_rank *rank)
{
    weirt_comm c;
    weir_connection *connection = nullptr;
    weir_future *future = nullptr;
    if (weirt_comm_open(rank, 0, &c)) {
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_connection_create(c.comm, 2, 1, nullptr, &connection));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_connection_create(c.comm, UINT32_MAX, 1, nullptr, &connection));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_connection_create(nullptr, 0, 1, nullptr, &connection));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_connection_create(c.comm, 0, 1, nullptr, nullptr));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_connection_create_async(c.comm, 0, 1, nullptr, &connection, nullptr));
        weir_connection_opts unsized = {};
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_connection_create(c.comm, 0, 1, &unsized, &connection));
        WEIRT_EXPECT(rank, connection == nullptr && future == nullptr);
        weir_connection_destroy(nullptr);
    }
    weirt_barrier(rank);
    weirt_comm_close(&c);
}

void env_names_transport(weirt_rank *rank)
{
    weirt_comm c;
    weir_connection *connection = nullptr;
    if (weirt_comm_open(rank, 0, &c) &&
        WEIRT_OK(rank, weir_connection_create(c.comm, 1 - rank->rank, 1, nullptr, &connection))) {
        WEIRT_EXPECT(rank, std::string(weir_connection_transport(connection)) == "ipc");
    }
    weirt_barrier(rank);
    weir_connection_destroy(connection);
    weirt_comm_close(&c);
}

void env_names_no_transport(weirt_rank *rank)
{
    weir_unique_id id;
    weirt_comm c = {};
    if (weirt_id(rank, &id) && WEIRT_OK(rank, weir_device_open(rank->device, nullptr, &c.device)) &&
        WEIRT_OK(rank, weir_bootstrap_create(id.text, rank->rank, rank->size, nullptr, &c.boot))) {
        WEIRT_STATUS(rank, WEIR_ERR_ENV, weir_comm_create(c.boot, c.device, nullptr, &c.comm));
        WEIRT_TEXT(rank, "WEIR_TRANSPORT");
        WEIRT_TEXT(rank, "pigeon");
    }
    weirt_barrier(rank);
    weirt_comm_close(&c);
}

// The first operations of the two ranks on tag 1 differ; the error names both.
void different_operations(weirt_rank *rank)
{
    weirt_comm c;
    weir_memory *local = nullptr;
    weir_memory *remote = nullptr;
    weir_connection *connection = nullptr;
    weir_connection *good = nullptr;
    weir_semaphore *semaphore = nullptr;
    uint32_t peer = 1 - rank->rank;
    if (weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_memory_allocate(c.comm, 100, nullptr, &local)) &&
        WEIRT_OK(rank, weir_connection_create(c.comm, peer, 9, nullptr, &good))) {
        if (rank->rank == 0) {
            WEIRT_STATUS(rank, WEIR_ERR_MISMATCH, weir_connection_create(c.comm, peer, 1, nullptr, &connection));
        } else {
            WEIRT_OK(rank, weir_memory_send(c.comm, local, peer, 1));
            WEIRT_STATUS(rank, WEIR_ERR_MISMATCH, weir_memory_recv(c.comm, peer, 1, &remote));
        }
        WEIRT_TEXT(rank, "memory");
        WEIRT_TEXT(rank, "connection");
        if (rank->rank == 0) {
            WEIRT_STATUS(rank, WEIR_ERR_MISMATCH, weir_connection_create(c.comm, peer, 2, nullptr, &connection));
        } else {
            WEIRT_STATUS(rank, WEIR_ERR_MISMATCH, weir_semaphore_create(good, 2, nullptr, &semaphore));
        }
        WEIRT_TEXT(rank, "semaphore");
        WEIRT_TEXT(rank, "connection");
        WEIRT_EXPECT(rank, remote == nullptr && connection == nullptr && semaphore == nullptr);
        WEIRT_OK(rank, weir_comm_status(c.comm));
    }
    weirt_barrier(rank);
    weir_connection_destroy(good);
    weir_memory_destroy(local);
    weirt_comm_close(&c);
}

// Rank 0 receives and sends nothing, so only rank 0 learns that rank 1 has made another call: rank 1's wait ends by its
// deadline.
void one_expects(weirt_rank *rank)
{
    weirt_comm c;
    weir_memory *remote = nullptr;
    weir_connection *connection = nullptr;
    weir_future *future = nullptr;
    const uint32_t peer = 1 - rank->rank;
    if (weirt_comm_open(rank, 0, &c)) {
        if (rank->rank == 0) {
            WEIRT_STATUS(rank, WEIR_ERR_MISMATCH, weir_memory_recv(c.comm, peer, 1, &remote));
            WEIRT_TEXT(rank, "operation 0 with tag 1: rank 0 called weir_memory_recv, rank 1 called "
                             "weir_connection_create");
        } else if (WEIRT_OK(rank, weir_connection_create_async(c.comm, peer, 1, nullptr, &connection, &future))) {
            WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_future_wait(future, 100));
            WEIRT_TEXT(rank, "rank 0 did not call weir_connection_create within 100 ms (operation 0 with tag 1)");
            weir_future_destroy(future);
            WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_connection_create(c.comm, peer, 1, nullptr, &connection));
        }
        WEIRT_EXPECT(rank, remote == nullptr && connection == nullptr);
        WEIRT_OK(rank, weir_comm_status(c.comm));
        if (WEIRT_OK(rank, weir_connection_create(c.comm, peer, 2, nullptr, &connection))) {
            weir_connection_destroy(connection);
        }
    }
    weirt_barrier(rank);
    weirt_comm_close(&c);
}

// A parent may be destroyed before its children.
void any_order_of_destruction(weirt_rank *rank)
{
    weirt_channel channel;
    if (weirt_channel_open(rank, 0, 1024, &channel)) {
        weir_comm_destroy(channel.comm.comm);
        weir_bootstrap_destroy(channel.comm.boot);
        weir_connection_destroy(channel.pair.connection);
        weir_semaphore_destroy(channel.pair.semaphore);
        channel.comm.comm = nullptr;
        channel.comm.boot = nullptr;
        channel.pair.connection = nullptr;
        channel.pair.semaphore = nullptr;
        weirt_transfer_args args = weirt_transfer_of(rank, &channel.pair);
        args.last = 20;
        if (weirt_launch(rank, &channel.pair, weirt_transfer_kernel(), &args)) {
            weirt_finish(rank, &channel.pair);
            WEIRT_EXPECT(rank, channel.pair.report->wrong == 0 && channel.pair.report->status[0][0] == WEIR_OK);
        }
    }
    weirt_channel_close(rank, &channel);
}

void own_allocations(weirt_rank *rank)
{
    weirt_channel channel;
    if (weirt_channel_open(rank, 0, 1024, &channel)) {
        weir_comm_usage usage = {};
        weir_comm_get_usage(channel.comm.comm, &usage);
        WEIRT_EXPECT(rank, usage.device_bytes > 0 && usage.device_bytes < (8u << 20));
        WEIRT_EXPECT(rank, usage.host_bytes > 0 && usage.host_bytes < (64u << 20));
    }
    weirt_channel_close(rank, &channel);
}

WEIRT_STAGE_SUITE(Connection);

TEST_P(Connection, NamesItsTransport) { run(2, names); }
TEST_P(Connection, MisuseIsInvalid) { run(2, misuse); }

TEST_P(Connection, EnvironmentNamesTheTransport)
{
    setenv("WEIR_TRANSPORT", "ipc", 1);
    run(2, env_names_transport);
    setenv("WEIR_TRANSPORT", "ipc,pigeon", 1);
    run(2, env_names_no_transport);
    unsetenv("WEIR_TRANSPORT");
}

TEST_P(Connection, DifferentOperationsAreAMismatchOnBothSides) { run(2, different_operations); }
TEST_P(Connection, OnlyTheRankThatExpectsLearnsOfAMismatch) { run(2, one_expects); }
TEST_P(Connection, AnyOrderOfDestruction) { run(2, any_order_of_destruction); }
TEST_P(Connection, OwnAllocationsAreSmall) { run(2, own_allocations); }

} // namespace
