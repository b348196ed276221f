// A rank returns from main or calls exit with all objects alive and kernels that wait: its process ends soon, and its
// peers get an error.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>

#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

struct ending {
    uint64_t called; // when rank 1 called exit
    int32_t process; // of rank 1
    uint64_t took;   // ms until rank 0 knew of it, and the process had ended
    int32_t waited;  // what its wait for its kernel returned in exit, and what the kernel had returned then
    int32_t kernel;
};

ending *the_ending;
weir_device *the_device;
void *the_stream;
weirt_report *the_report;

// Waits for kernels, as a GPU driver does when its process ends. The driver was loaded before weir's communicators.
void wait_for_kernels()
{
    if (the_stream != nullptr) {
        the_ending->waited = static_cast<int32_t>(weir_stream_wait(the_device, the_stream, weirt_timeout_ms()));
        the_ending->kernel = static_cast<int32_t>(the_report->status[0][0]);
    }
}

// Whether the process is gone, or waits for its parent to ask for its status. A zombie that has more threads than one
// still ends: the threads of a GPU's driver may last longer than the first one.
bool has_ended(int32_t process)
{
    char path[64];
    char state = 0;
    long threads = 0; // field 20; the state is field 3
    (void)std::snprintf(path, sizeof path, "/proc/%d/stat", process);
    std::FILE *file = std::fopen(path, "r");
    if (file == nullptr) {
        return true;
    }
    const int read = std::fscanf(
        file, "%*d (%*[^)]) %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld", &state, &threads);
    (void)std::fclose(file);
    return read != 2 || (state == 'Z' && threads <= 1) || state == 'X';
}

void returns_from_main(weirt_rank *rank)
{
    ending *shared = static_cast<ending *>(const_cast<void *>(rank->arg));
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
            the_ending = shared;
            the_report = channel.pair.report;
            the_device = channel.comm.device;
            the_stream = channel.pair.stream;
            shared->process = getpid();
            shared->called = weirt_now_ms();
            weirt_die(rank, WEIRT_RETURN);
        }
        const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
        while (weir_comm_status(channel.comm.comm) == WEIR_OK && weirt_now_ms() < end) {
            weirt_sleep_ms(1);
        }
        WEIRT_EXPECT(rank, !has_ended(getpid())); // it can tell
        while (!has_ended(shared->process) && weirt_now_ms() < end) {
            weirt_sleep_ms(1);
        }
        shared->took = weirt_now_ms() - shared->called;
        WEIRT_STATUS(rank, WEIR_ERR_REMOTE, weir_comm_status(channel.comm.comm));
        WEIRT_TEXT(rank, "rank 1 died");
        // The exit handler has ended the kernel of rank 1, and not the kernel's deadline.
        WEIRT_EXPECT(rank, gpu || (shared->waited == WEIR_OK && shared->kernel == WEIR_ERR_ABORTED));
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

// On a busy machine one of several runs must be fast.
TEST_P(Exit, KernelsThatWaitDoNotHoldTheProcess)
{
    const uint64_t most = 2000;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < 5 && least >= most && !HasFailure(); i++) {
        ending shared = {};
        weirt_ranks_run_shared(stage(), 2, returns_from_main, &shared, sizeof shared);
        least = shared.took < least ? shared.took : least;
    }
    std::printf("the process ended after %llu ms\n", static_cast<unsigned long long>(least));
    EXPECT_LT(least, most);
}

TEST_P(Exit, OfAChildEndsNothing) { run(2, child_exits); }

} // namespace
