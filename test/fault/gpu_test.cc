// Uses of GPUs beside weir: processes that each see one GPU, graphs captured in the global mode while weir works,
// memory that cannot be shared between processes.
#include <cstring>

#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "test/harness/cuda_foreign.h"
#include "test/harness/stage_test.h"

namespace {

// Each process has its GPU as gpu:0; UUIDs distinguish the GPUs.
void one_gpu_each(weirt_rank *rank)
{
    weirt_channel channel;
    uint32_t count = 0;
    WEIRT_OK(rank, weir_device_count("gpu", &count));
    WEIRT_EXPECT(rank, count == 1);
    WEIRT_EXPECT(rank, std::strcmp(rank->device, "gpu:0") == 0);
    if (weirt_channel_open(rank, 0, 4096, &channel)) {
        weir_device_info infos[2] = {};
        weir_device_get_info(channel.comm.device, &infos[rank->rank], sizeof infos[rank->rank]);
        if (WEIRT_OK(rank, weir_bootstrap_allgather(channel.comm.boot, nullptr, infos, sizeof infos[0]))) {
            WEIRT_EXPECT(rank, std::memcmp(infos[0].uuid, infos[1].uuid, sizeof infos[0].uuid) != 0);
        }
        weirt_transfer_args args = weirt_transfer_of(rank, &channel.pair);
        args.last = 300;
        args.rounds = 3;
        if (weirt_launch(rank, &channel.pair, weirt_transfer_kernel(), &args) && weirt_finish(rank, &channel.pair)) {
            WEIRT_EXPECT(rank, channel.pair.report->wrong == 0 && channel.pair.report->status[0][0] == WEIR_OK);
        }
    }
    weirt_channel_close(rank, &channel);
}

// Rank 0 captures a stream in the global mode: an unsafe driver call of any thread in that mode ends the capture. At
// the same time both ranks set up all kinds of objects.
void captured_globally(weirt_rank *rank)
{
    weirt_channel channel;
    weirt_pair another = {};
    bool foreign = rank->rank == 0;
    if (foreign && !WEIRT_EXPECT(rank, weirt_foreign_open())) {
        foreign = false;
    }
    if (weirt_channel_open(rank, 0, 4096, &channel)) {
        void *stream = channel.pair.stream;
        weirt_signal_args signal = {};
        signal.signals = 1;
        WEIRT_OK(rank, weir_semaphore_device(channel.pair.semaphore, &signal.semaphore));
        if (foreign) {
            WEIRT_EXPECT(rank, weirt_foreign_begin_capture(stream) == 0);
        }
        weirt_barrier(rank);
        weirt_pair_open(rank, channel.comm.comm, 4096, 2, &another);
        uint64_t word = 7;
        WEIRT_OK(rank, weir_device_copy(channel.comm.device, weir_memory_pointer(another.local), &word, sizeof word));
        weirt_barrier(rank);
        if (foreign) {
            const weir_shape shape = { 1, 32 };
            WEIRT_OK(rank, weir_launch(channel.comm.device, weirt_signal_kernel(), shape, &signal, nullptr, stream));
        }
        weirt_pair_close(rank, &another, true);
        if (foreign) {
            WEIRT_EXPECT(rank, weirt_foreign_end_capture(stream) == 0);
        }
        WEIRT_OK(rank, weir_comm_status(channel.comm.comm));
    }
    weirt_channel_close(rank, &channel);
    if (foreign) {
        weirt_foreign_close();
    }
}

// Registration succeeds, since kernels of this process may use the memory. Another process's import is refused, and the
// text names the setting to change.
void cannot_be_shared(weirt_rank *rank)
{
    const struct {
        weirt_foreign_kind kind;
        const char *reason;
    } cases[] = {
        { WEIRT_FOREIGN_CUMEM, "requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR" },
        { WEIRT_FOREIGN_POOL, "pool" },
    };
    const uint64_t bytes = 4u << 20;
    weirt_comm c;
    bool foreign = rank->rank == 0;
    if (foreign && !WEIRT_EXPECT(rank, weirt_foreign_open())) {
        foreign = false;
    }
    bool open = weirt_comm_open(rank, 0, &c);
    for (const auto &one : cases) {
        if (open && foreign) {
            weir_memory *memory = nullptr;
            void *pointer = weirt_foreign_allocate(one.kind, bytes);
            WEIRT_EXPECT(rank, pointer != nullptr);
            WEIRT_OK(rank, weir_memory_register(c.comm, pointer, bytes, nullptr, &memory));
            WEIRT_OK(rank, weir_memory_send(c.comm, memory, 1, 1));
            weirt_barrier(rank);
            weir_memory_destroy(memory);
            weirt_foreign_free(one.kind, pointer, bytes);
        } else {
            weir_memory *memory = nullptr;
            if (open && rank->rank == 1) {
                WEIRT_STATUS(rank, WEIR_ERR_UNSUPPORTED, weir_memory_recv(c.comm, 0, 1, &memory));
                WEIRT_TEXT(rank, one.reason);
                WEIRT_OK(rank, weir_comm_status(c.comm));
            }
            weirt_barrier(rank);
        }
    }
    weirt_comm_close(&c);
    if (foreign) {
        weirt_foreign_close();
    }
}

class GpuUse : public StageTest {};
INSTANTIATE_TEST_SUITE_P(Stages, GpuUse, ::testing::Values(3), weirt_stage_name);
class GpuCapture : public StageTest {};
INSTANTIATE_TEST_SUITE_P(Stages, GpuCapture, ::testing::Values(2, 3), weirt_stage_name);

TEST_P(GpuUse, ProcessesThatSeeOneGpuEach)
{
    weirt_one_gpu_each();
    run(2, one_gpu_each);
}

TEST_P(GpuUse, MemoryThatCannotBeSharedNamesTheSetting) { run(2, cannot_be_shared); }

TEST_P(GpuCapture, GlobalModeIsNotDisturbed) { run(2, captured_globally); }

} // namespace
