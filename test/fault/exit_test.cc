// A rank returns from main or calls exit with all objects alive and kernels that wait: its process ends soon, and its
// peers get an error.
#include <cstdlib>
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>

#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

struct times {
    uint64_t called; // when rank 1 called exit
};

weir_device *the_device;
void *the_stream;

// Waits for kernels, as a GPU driver does when its process ends. The driver was loaded before weir's communicators.
void wait_for_kernels()
{
    if (the_stream != nullptr) {
        (void)!weir_stream_wait(the_device, the_stream, weirt_timeout_ms());
    }
}

void returns_from_main(weirt_rank *rank)
{
    times *shared = static_cast<times *>(const_cast<void *>(rank->arg));
    const bool gpu = std::strcmp(rank->stage->kind, "gpu") == 0;
    if (rank->rank == 1 && !gpu && atexit(wait_for_kernels) != 0) {
        weirt_fail(rank, __FILE__, __LINE__, "atexit");
    }
    weirt_channel channel;
    if (weirt_channel_open(rank, 0, 1024, &channel)) {
        weirt_wait_args wait = weirt_wait_of(rank, &channel.pair);
        wait.form = WEIRT_WAIT_COOP;
        weirt_launch(rank, &channel.pair, weirt_wait_kernel(), &wait); // for signals that no rank sends
        weirt_barrier(rank);
        if (rank->rank == 1) {
            the_device = channel.comm.device;
            the_stream = channel.pair.stream;
            shared->called = weirt_now_ms();
            weirt_die(rank, WEIRT_RETURN);
        }
        const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
        while (weir_comm_status(channel.comm.comm) == WEIR_OK && weirt_now_ms() < end) {
            weirt_sleep_ms(1);
        }
        // The operating system closes the sockets of rank 1 when its process has ended.
        const uint64_t took = weirt_now_ms() - shared->called;
        WEIRT_STATUS(rank, WEIR_ERR_REMOTE, weir_comm_status(channel.comm.comm));
        WEIRT_TEXT(rank, "rank 1 died");
        if (took >= 5000 * (uint64_t)weirt_slow()) {
            weirt_fail(rank, __FILE__, __LINE__, "rank 1 was known to have ended after %llu ms",
                       (unsigned long long)took);
        }
        WEIRT_STATUS(rank, WEIR_ERR_REMOTE, weir_comm_wait(channel.comm.comm, channel.pair.stream, 0));
        WEIRT_EXPECT(rank, channel.pair.report->status[0][0] == WEIR_ERR_REMOTE);
    }
    weirt_pair_close(rank, &channel.pair, false);
    weirt_comm_close(&channel.comm);
}

// A forked child shares the memory of the communicator: its end must not end the parent's waits.
void child_exits(weirt_rank *rank)
{
    weirt_channel channel;
    if (weirt_channel_open(rank, 0, 1024, &channel)) {
        const pid_t child = fork();
        if (child == 0) {
            weirt_exit_run();
            _exit(0);
        }
        int status = 0;
        WEIRT_EXPECT(rank, waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
        weirt_barrier(rank);
        weirt_transfer_args args = weirt_transfer_of(rank, &channel.pair);
        args.last = 30;
        weirt_launch(rank, &channel.pair, weirt_transfer_kernel(), &args);
        weirt_finish(rank, &channel.pair);
        WEIRT_EXPECT(rank, channel.pair.report->wrong == 0 && channel.pair.report->status[0][0] == WEIR_OK);
        WEIRT_OK(rank, weir_comm_status(channel.comm.comm));
    }
    weirt_channel_close(rank, &channel);
}

WEIRT_PROCESS_SUITE(Exit);

TEST_P(Exit, KernelsThatWaitDoNotHoldTheProcess)
{
    times shared = {};
    weirt_ranks_run_shared(stage(), 2, returns_from_main, &shared, sizeof shared);
}

TEST_P(Exit, OfAChildEndsNothing) { run(2, child_exits); }

} // namespace
