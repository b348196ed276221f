// Grids whose blocks wait for each other: as many blocks as fit, and more.
#include <cstdlib>
#include <cstring>

#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "test/harness/stage_test.h"
#include "window_resident_kernels.h"

namespace {

WEIRT_STAGE_SUITE(WindowResident);

constexpr uint32_t DEADLINE = 200; // of kernels that must end by it, ms

// A window of twice as many ranks as blocks can be resident.
struct Bench {
    weirt_comm c = {};
    weir_window *window = nullptr;
    weir_memory *statuses = nullptr;
    void *stream = nullptr;
    window_resident_args args = {};
    weir_shape fits = { 0, 2 };

    bool open(weirt_rank *rank)
    {
        const bool gpu = std::strcmp(rank->stage->kind, "gpu") == 0;
        const weir_memory_opts host = { sizeof host, WEIR_MEMORY_HOST, false, 0 };
        weir_window_opts opts = WEIR_OPTS(weir_window_opts);
        fits.threads = gpu ? 256 : 2;
        if (!(gpu ? weirt_comm_open_kernels(rank, DEADLINE, &c) : weirt_comm_open(rank, 0, &c)) ||
            !WEIRT_OK(rank, weir_kernel_load(c.device, window_resident_kernel())) ||
            !WEIRT_OK(rank, weir_kernel_fit(c.device, window_resident_kernel(), fits.threads, &fits.blocks))) {
            return false;
        }
        opts.ranks = 2 * fits.blocks;
        const bool made =
            WEIRT_OK(rank, weir_window_create(c.comm, &opts, &window)) &&
            WEIRT_OK(rank, weir_memory_allocate(c.comm, opts.ranks * sizeof(int32_t), &host, &statuses)) &&
            WEIRT_OK(rank, weir_stream_create(c.device, &stream));
        if (made) {
            weir_window_device(window, &args.window);
            args.status = static_cast<int32_t *>(weir_memory_pointer(statuses));
        }
        return made;
    }
    weir_status launch(uint32_t blocks, bool cooperative)
    {
        const weir_launch_opts opts = { sizeof opts, cooperative };
        return weir_launch(c.device, window_resident_kernel(), { blocks, fits.threads }, &args, &opts, stream);
    }
    // Whether all blocks ended with this status.
    bool ended(uint32_t blocks, weir_status status) const
    {
        const int32_t *got = static_cast<const int32_t *>(weir_memory_host_pointer(statuses));
        for (uint32_t i = 0; i < blocks; i++) {
            if (got[i] != status) {
                return false;
            }
        }
        return true;
    }
    void close()
    {
        if (stream != nullptr) {
            weir_stream_destroy(c.device, stream);
        }
        weir_window_destroy(window);
        weir_memory_destroy(statuses);
        weirt_comm_close(&c);
    }
};

// A cooperative launch refuses too many blocks. A GPU runs a plain launch of them: the resident ones wait until their
// deadline for those that have not begun, and all end. The CPU device refuses both.
void too_many(weirt_rank *rank)
{
    Bench b;
    weirt_log_allow("");
    const bool open = b.open(rank);
    const uint32_t blocks = 2 * b.fits.blocks;
    if (open && WEIRT_OK(rank, b.launch(b.fits.blocks, true)) &&
        WEIRT_OK(rank, weir_stream_wait(b.c.device, b.stream, weirt_timeout_ms()))) {
        WEIRT_EXPECT(rank, b.ended(b.fits.blocks, WEIR_OK));
        WEIRT_STATUS(rank, WEIR_ERR_LIMIT, b.launch(blocks, true));
        WEIRT_TEXT(rank, "kernel window_resident: ");
        WEIRT_OK(rank, weir_comm_status(b.c.comm));
    }
    if (open && std::strcmp(rank->stage->kind, "gpu") != 0) {
        WEIRT_STATUS(rank, WEIR_ERR_LIMIT, b.launch(blocks, false));
        WEIRT_TEXT(rank, "kernel window_resident: ");
    } else if (open) {
        const uint64_t start = weirt_now_ms();
        WEIRT_OK(rank, b.launch(blocks, false));
        WEIRT_OK(rank, weir_stream_wait(b.c.device, b.stream, weirt_timeout_ms()));
        const uint64_t took = weirt_now_ms() - start;
        WEIRT_EXPECT(rank, took >= DEADLINE && took < DEADLINE + weirt_slack_ms());
        WEIRT_EXPECT(rank, b.ended(blocks, WEIR_ERR_TIMEOUT));
        WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_comm_status(b.c.comm));
        WEIRT_TEXT(rank, "kernel window_resident: window: ");
        WEIRT_TEXT(rank, "for 200 ms");
    }
    b.close();
}

TEST_P(WindowResident, MoreBlocksThanFitEndAtTheDeadline)
{
    setenv("WEIR_CPU_THREADS", "8", 1);
    run_alone(too_many);
    unsetenv("WEIR_CPU_THREADS");
}

} // namespace
