// Errors name the rank at fault, not a rank that left because of it, and the call that waited.
#include <cstring>
#include <thread>

#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

extern "C" {
#include "src/host/comm/comm.h"
#include "src/host/comm/exchange.h"
}

namespace {

bool knows_that_gone(weir_comm *comm, uint32_t peer)
{
    pthread_mutex_lock(&comm->mutex);
    const bool gone = comm->peers[peer].gone;
    pthread_mutex_unlock(&comm->mutex);
    return gone;
}

// Rank 2 dies, rank 1 leaves because of that, and rank 0 then expects an operation of rank 1: its error names rank 2.
// Its call has already checked the communicator.
void death_before_departure(weirt_rank *rank)
{
    weirt_comm c;
    weirt_log_allow("");
    bool open = weirt_comm_open(rank, 0, &c) && weirt_barrier(rank);
    if (open && rank->rank == 2) {
        weirt_die(rank, WEIRT_KILL);
    }
    uint64_t end = weirt_now_ms() + weirt_timeout_ms();
    while (open && weir_comm_status(c.comm) == WEIR_OK && weirt_now_ms() < end) {
        weirt_sleep_ms(1);
    }
    if (open && rank->rank == 0) {
        while (!knows_that_gone(c.comm, 1) && weirt_now_ms() < end) {
            weirt_sleep_ms(1);
        }
        WEIRT_EXPECT(rank, knows_that_gone(c.comm, 1));
        weir_future *future = nullptr;
        weir_memory *never = nullptr;
        const weiri_op ops[] = { WEIRI_OP_MEMORY, WEIRI_OP_CONNECTION, WEIRI_OP_SEMAPHORE };
        for (weiri_op op : ops) {
            WEIRT_STATUS(rank, WEIR_ERR_REMOTE,
                         weiri_exchange_expect(c.comm, 1, 7, op, nullptr, nullptr, nullptr, &never, &future));
            WEIRT_TEXT(rank, "rank 2 died");
            const weiri_op_message message = { op, nullptr, 0, { nullptr, nullptr }, 0 };
            WEIRT_STATUS(rank, WEIR_ERR_REMOTE, weiri_exchange_send(c.comm, 1, 7, &message));
            WEIRT_TEXT(rank, "rank 2 died");
        }
    }
    weirt_comm_close(&c);
}

// The error of a wait between two ranks that ends by its deadline.
void deadlines_name_the_call(weirt_rank *rank)
{
    weirt_comm c;
    weir_memory *memory = nullptr;
    weir_connection *connection = nullptr;
    weir_semaphore *semaphore = nullptr;
    weir_semaphore *other = nullptr;
    weir_collective *collective = nullptr;
    weirt_log_allow("");
    bool open = weirt_comm_open(rank, 150, &c) && weirt_connect(rank, c.comm, 1 - rank->rank, 4, &connection) &&
                weirt_semaphore(rank, connection, 4, WEIR_SEMAPHORE_HOST, &semaphore);
    if (open && rank->rank == 0) {
        WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_memory_recv(c.comm, 1, 5, &memory));
        WEIRT_TEXT(rank, "weir_memory_recv: rank 1 did not call weir_memory_send within 150 ms "
                         "(operation 0 with tag 5)");
        WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_memory_recv(c.comm, 1, 5, &memory));
        WEIRT_TEXT(rank, "operation 0 with tag 5, or one before it, with rank 1 timed out");
        WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_semaphore_wait(semaphore, 150));
        WEIRT_TEXT(rank, "weir_semaphore_wait: semaphore 4 of rank 1: no signal came within 150 ms");
        weir_connection *second = nullptr;
        WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_connection_create(c.comm, 1, 6, nullptr, &second));
        WEIRT_TEXT(rank, "rank 1 did not call weir_connection_create within 150 ms (operation 0 with tag 6)");
        WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_semaphore_create(connection, 4, nullptr, &other));
        WEIRT_TEXT(rank, "rank 1 did not call weir_semaphore_create within 150 ms (operation 2 with tag 4)");
        WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_collective_create(c.comm, nullptr, &collective));
        WEIRT_TEXT(rank, "rank 1 did not call weir_collective_create, weir_collective_register or a call that grows "
                         "the staging or maps buffers within 150 ms (for a collective)");
        WEIRT_EXPECT(rank, std::strstr(weir_last_error(), "with tag") == nullptr);
    }
    weirt_barrier(rank);
    weir_semaphore_destroy(semaphore);
    weir_connection_destroy(connection);
    weirt_comm_close(&c);
}

void claim(weir_dev_control *control, weir_status status)
{
    __atomic_store_n(&control->claimed, static_cast<uint32_t>(status), __ATOMIC_RELAXED);
}

// A thread of a kernel has claimed the record of its error. weir_comm_status waits until that thread has completed the
// record. If it never does, the status comes without a record.
void records_are_awaited(weirt_rank *rank)
{
    const bool completed = *static_cast<const bool *>(rank->arg);
    weirt_comm c;
    weirt_log_allow("");
    if (weirt_comm_open(rank, 0, &c)) {
        weir_dev_control *control = c.comm->slabs.control;
        control->record.note = weir_dev_note_of(WEIR_DOING_WAIT, WEIR_NO_PEER, 0, 0, 0); // half of a record
        claim(control, WEIR_ERR_RANGE);
        std::thread kernel([control, completed] {
            if (completed) {
                weirt_sleep_ms(50);
                control->record.note = weir_dev_note_of(WEIR_DOING_PUT, 3, 40, 50, 60);
                std::memcpy(control->kernel, "late", 5);
                __atomic_store_n(&control->error_status, WEIR_ERR_RANGE, __ATOMIC_RELEASE);
            }
        });
        WEIRT_STATUS(rank, WEIR_ERR_RANGE, weir_comm_status(c.comm));
        WEIRT_TEXT(rank, completed ? "kernel late" : "rank 0: a kernel on");
        WEIRT_EXPECT(rank, std::strstr(weir_last_error(), "semaphore") == nullptr); // of half of the record
        kernel.join();
        weirt_comm_close(&c);
    }
}

// What a kernel of rank 0 fails with, and what the other ranks get.
struct News {
    weir_status status;
    weir_status others;
};

// Rank 0 has a claimed record that is never completed, and makes no call.
void unasked(weirt_rank *rank)
{
    const News *news = static_cast<const News *>(rank->arg);
    weirt_comm c;
    weirt_log_allow("");
    if (weirt_comm_open(rank, 0, &c) && weirt_barrier(rank)) {
        if (rank->rank == 0) {
            claim(c.comm->slabs.control, news->status);
        } else {
            const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
            while (weir_comm_status(c.comm) == WEIR_OK && weirt_now_ms() < end) {
                weirt_sleep_ms(1);
            }
            WEIRT_STATUS(rank, news->others, weir_comm_status(c.comm));
            WEIRT_TEXT(rank, "rank 0: a kernel on");
        }
        weirt_barrier(rank);
    }
    weirt_comm_close(&c);
}

// The communicator fails while a call waits for the record of a kernel's error.
void earlier_is_kept(weirt_rank *rank)
{
    weirt_comm c;
    weirt_log_allow("");
    if (weirt_comm_open(rank, 0, &c)) {
        claim(c.comm->slabs.control, WEIR_ERR_RANGE);
        std::thread other([&c] {
            weirt_sleep_ms(20);
            weir_comm_abort(c.comm);
        });
        WEIRT_STATUS(rank, WEIR_ERR_ABORTED, weir_comm_status(c.comm));
        other.join();
        WEIRT_STATUS(rank, WEIR_ERR_ABORTED, weir_comm_status(c.comm));
        weirt_comm_close(&c);
    }
}

WEIRT_PROCESS_SUITE(BlameProcess);
WEIRT_STAGE_SUITE(Blame);

TEST_P(BlameProcess, DeathIsNotOvertakenByADeparture) { run(3, death_before_departure); }

TEST_P(Blame, DeadlinesNameTheCallAndThePeer) { run(2, deadlines_name_the_call); }

TEST_P(Blame, ErrorsWithoutARecordReachTheOthers)
{
    News news = { WEIR_ERR_RANGE, WEIR_ERR_ABORTED };
    weirt_ranks_run(stage(), 2, unasked, &news, sizeof news);
}

// A port channel may know of a death before the bootstrap does. The other ranks get one status for it, on either way.
TEST_P(Blame, ALossIsALossForTheOthers)
{
    News news = { WEIR_ERR_REMOTE, WEIR_ERR_REMOTE };
    weirt_ranks_run(stage(), 2, unasked, &news, sizeof news);
}

TEST_P(Blame, AnEarlierErrorIsKept) { run(1, earlier_is_kept); }

TEST_P(Blame, RecordsAreAwaited)
{
    for (const bool completed : { true, false }) {
        weirt_ranks_run(stage(), 1, records_are_awaited, &completed, sizeof completed);
    }
}

} // namespace
