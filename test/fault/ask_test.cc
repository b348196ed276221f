// Reports of one rank's communicator to the others: it was destroyed, it received malformed data, or a kernel failed.
// Also file descriptors between network namespaces.
#include <cstring>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

// Every rank's handle of `mine`, by rank.
struct handles {
    uint64_t bytes;
    uint8_t data[WEIR_MEMORY_HANDLE_MAX];
};

bool swap_handles(weirt_rank *rank, weirt_comm *c, weir_memory *mine, handles *all)
{
    size_t bytes = sizeof all[0].data;
    if (!WEIRT_OK(rank, weir_memory_export(mine, all[rank->rank].data, &bytes))) {
        return false;
    }
    all[rank->rank].bytes = bytes;
    return WEIRT_OK(rank, weir_bootstrap_allgather(c->boot, nullptr, all, sizeof all[0]));
}

// Rank 1 destroys only its communicator. A rank that asks for its memory, or waits for an operation of it, gets an
// error at once. The asking rank's communicator and the bootstrap go on.
void owner_has_closed(weirt_rank *rank)
{
    weirt_comm c;
    weir_memory *local = nullptr;
    weir_memory *remote = nullptr;
    weir_memory *never = nullptr;
    weir_future *future = nullptr;
    handles all[2] = {};
    bool open = weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_memory_allocate(c.comm, 100, nullptr, &local)) &&
                swap_handles(rank, &c, local, all);
    if (open && rank->rank == 1) {
        weir_memory_destroy(local);
        weir_comm_destroy(c.comm);
        local = nullptr;
        c.comm = nullptr;
    }
    weirt_barrier(rank);
    if (open && rank->rank == 0 && WEIRT_OK(rank, weir_memory_recv_async(c.comm, 1, 7, &never, &future))) {
        uint64_t since = weirt_now_ms();
        WEIRT_STATUS(rank, WEIR_ERR_REMOTE, weir_memory_import(c.comm, all[1].data, all[1].bytes, &remote));
        WEIRT_TEXT(rank, "rank 1 has destroyed its communicator");
        WEIRT_STATUS(rank, WEIR_ERR_REMOTE, weir_future_wait(future, weirt_timeout_ms()));
        WEIRT_STATUS(rank, WEIR_ERR_REMOTE, weir_memory_recv(c.comm, 1, 8, &never));
        WEIRT_TEXT(rank, "rank 1 has destroyed its communicator");
        WEIRT_EXPECT(rank, weirt_now_ms() - since < 5000 * (uint64_t)weirt_slow());
        WEIRT_OK(rank, weir_comm_status(c.comm));
    }
    weir_future_destroy(future);
    weir_memory_destroy(local);
    weir_comm_destroy(c.comm);
    c.comm = nullptr;
    if (open) {
        WEIRT_OK(rank, weir_comm_create(c.boot, c.device, nullptr, &c.comm));
    }
    weirt_comm_close(&c);
}

// Malformed data from a rank that proved the key ends the communicator on all ranks, because that rank cannot be
// trusted.
void malformed_message(weirt_rank *rank)
{
    // A refusal without its text, a truncated descriptor number, an answer with extra bytes, an operation without its
    // tag, a port channel's failure without its text.
    const uint8_t messages[][14] = { { 5, 1, 2, 3, 4, 5, 6, 7, 8, 0xff, 0xff, 0xff, 0xff },
                                     { 6, 1, 2, 3, 4, 5, 6, 7, 8, 1 },
                                     { 4, 1, 2, 3, 4, 5, 6, 7, 8, 9 },
                                     { 7, 1 },
                                     { 1, 1, 1 },
                                     { 10, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0xff, 0xff } };
    const size_t bytes[] = { 13, 10, 10, 2, 3, 12 };
    weirt_comm c;
    bool open = weirt_comm_open(rank, 0, &c);
    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0] && open; i++) {
        weir_memory *never = nullptr;
        weir_comm *comm = nullptr;
        open = WEIRT_OK(rank, weir_comm_create(c.boot, c.device, nullptr, &comm));
        if (open && rank->rank == 1) {
            weirt_post(rank, comm, 0, messages[i], bytes[i]);
        }
        if (open) {
            weir_status expected = rank->rank == 0 ? WEIR_ERR_CORRUPT : WEIR_ERR_ABORTED;
            WEIRT_STATUS(rank, expected, weir_memory_recv(comm, 1 - rank->rank, 1, &never));
            WEIRT_TEXT(rank, "rank 0: malformed message of rank 1");
        }
        weirt_barrier(rank);
        weir_comm_destroy(comm);
    }
    weirt_comm_close(&c);
}

// The messages that end a step of a team, from a rank that proved the key: a valid one and malformed ones.
void malformed_report(weirt_rank *rank)
{
    const char tag[] = "itcelloc";        // tag of a collective's team
    const std::vector<uint8_t> words(68); // eight compared words, and whether lines arrive whole
    // A status, the rank at fault, a text.
    const std::vector<uint8_t> tails[] = {
        { 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 2, 0, 'n', 'o' },    // WEIR_ERR_INVALID
        { 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 3, 0, 'n', 'o' },    // cut
        { 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 2, 0, 'n', 'o', 0 }, // an extra byte
        { 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 2, 0, 'n', 0 },      // a NUL inside the text
        { 1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 'n', 'o' },                // no such status
        { 0, 0, 0, 0x80, 1, 0, 0, 0, 2, 0, 'n', 'o' },
    };
    weirt_comm c;
    bool open = weirt_comm_open(rank, 0, &c);
    for (const std::vector<uint8_t> &tail : tails) {
        weir_collective *never = nullptr;
        if (open && rank->rank == 1) {
            std::vector<uint8_t> message = { 1 };
            message.insert(message.end(), tag, tag + 8);
            message.insert(message.end(), { 4, static_cast<uint8_t>(words.size() + tail.size()), 0, 0, 0 });
            message.insert(message.end(), words.begin(), words.end());
            message.insert(message.end(), tail.begin(), tail.end());
            weirt_post(rank, c.comm, 0, message.data(), message.size());
        } else if (open) {
            const bool right = &tail == &tails[0];
            WEIRT_STATUS(rank, right ? WEIR_ERR_INVALID : WEIR_ERR_CORRUPT,
                         weir_collective_create(c.comm, nullptr, &never));
            WEIRT_TEXT(rank, right ? "rank 1 failed: no" : "malformed message of rank 1");
        }
    }
    weirt_barrier(rank);
    weirt_comm_close(&c);
}

// Rank 0's kernel passes its deadline while its host does nothing. The waits of the others, which have long timeouts,
// end with it. Their errors name the rank of the kernel and the cause.
void kernel_fails_elsewhere(weirt_rank *rank)
{
    weirt_channel channel;
    weir_memory *never = nullptr;
    weirt_log_allow("deadline");
    if (weirt_channel_open(rank, rank->rank == 0 ? 150 : 0, 1024, &channel)) {
        weirt_pair *pair = &channel.pair;
        weirt_wait_args wait = weirt_wait_of(rank, pair);
        wait.form = WEIRT_WAIT_COOP;
        if (rank->rank == 0) {
            weirt_step_wait(rank, 1, 1);
            weirt_launch(rank, pair, weirt_wait_kernel(), &wait);
            weirt_step_wait(rank, 1, 2);
            weirt_finish(rank, pair);
            WEIRT_EXPECT(rank, pair->report->status[0][0] == WEIR_ERR_TIMEOUT);
            WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_comm_status(channel.comm.comm));
        } else {
            weirt_launch(rank, pair, weirt_wait_kernel(), &wait);
            weirt_step(rank, 1);
            WEIRT_STATUS(rank, WEIR_ERR_ABORTED, weir_memory_recv(channel.comm.comm, 0, 9, &never));
            WEIRT_TEXT(rank, "rank 0: kernel weirt_wait: "); // the kernel's wait or its barrier
            WEIRT_TEXT(rank, " for 150 ms");
            weirt_finish(rank, pair);
            WEIRT_EXPECT(rank, pair->report->status[0][0] == WEIR_ERR_ABORTED);
            WEIRT_STATUS(rank, WEIR_ERR_ABORTED, weir_comm_status(channel.comm.comm));
        }
        weirt_step(rank, 2);
    }
    weirt_channel_close(rank, &channel);
}

// Rank 1's communicator is in its own network namespace; rank 0 does not see its abstract Unix sockets.
void other_network(weirt_rank *rank)
{
    weirt_comm c;
    uint32_t peer = 1 - rank->rank;
    bool open = weirt_comm_open(rank, 0, &c);
    weir_comm_destroy(c.comm);
    c.comm = nullptr;
    // The sockets of the bootstrap and its thread stay in the old namespace.
    if (open && (rank->rank == 0 || WEIRT_EXPECT(rank, unshare(CLONE_NEWNET) == 0))) {
        weir_memory *local = nullptr;
        weir_memory *remote = nullptr;
        uint64_t word = 100 + rank->rank;
        if (WEIRT_OK(rank, weir_comm_create(c.boot, c.device, nullptr, &c.comm)) &&
            WEIRT_OK(rank, weir_memory_allocate(c.comm, 4096, nullptr, &local)) &&
            WEIRT_OK(rank, weir_device_copy(c.device, weir_memory_pointer(local), &word, sizeof word))) {
            uint32_t with_local = weirt_count_descriptors();
            for (uint32_t round = 0; round < 8; round++) {
                WEIRT_OK(rank, weir_memory_send(c.comm, local, peer, 1));
                WEIRT_OK(rank, weir_memory_recv(c.comm, peer, 1, &remote));
                WEIRT_OK(rank, weir_device_copy(c.device, &word, weir_memory_pointer(remote), sizeof word));
                WEIRT_EXPECT(rank, word == 100 + peer);
                weir_memory_destroy(remote);
                remote = nullptr;
            }
            weirt_barrier(rank);
            // Lent descriptors are closed again. (Connections of the rendezvous may have ended in the meantime.)
            WEIRT_EXPECT(rank, weirt_count_descriptors() <= with_local);
        }
        weirt_barrier(rank);
        weir_memory_destroy(local);
        weir_comm_destroy(c.comm);
        c.comm = nullptr;
    }
    weirt_comm_close(&c);
}

// Why a process cannot enter a network namespace or take a descriptor of another process; nullptr if it can.
const char *namespaces_missing()
{
    pid_t pid = fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWNET) != 0) {
            _exit(1);
        }
#if defined(SYS_pidfd_open) && defined(SYS_pidfd_getfd)
        int process = (int)syscall(SYS_pidfd_open, getppid(), 0);
        _exit(process < 0 || syscall(SYS_pidfd_getfd, process, STDERR_FILENO, 0) < 0 ? 2 : 0);
#else
        _exit(2);
#endif
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return !WIFEXITED(status) || WEXITSTATUS(status) == 1 ? "unshare(CLONE_NEWNET) is refused here"
           : WEXITSTATUS(status) == 2                     ? "pidfd_getfd is refused here"
                                                          : nullptr;
}

WEIRT_STAGE_SUITE(Tell);

TEST_P(Tell, OwnerHasClosedItsCommunicator) { run(2, owner_has_closed); }
TEST_P(Tell, MalformedMessageEndsTheCommunicator) { run(2, malformed_message); }
TEST_P(Tell, MalformedReportFailsTheCollective) { run(2, malformed_report); }
TEST_P(Tell, ErrorOfAKernelEndsTheOthers) { run(2, kernel_fails_elsewhere); }

WEIRT_PROCESS_SUITE(Namespaces);

TEST_P(Namespaces, DescriptorsPassBetweenNetworks)
{
    const char *reason = namespaces_missing();
    if (reason != nullptr) {
        GTEST_SKIP() << reason;
    }
    run(2, other_network);
}

} // namespace
