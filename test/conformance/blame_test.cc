// The whole text of the error of a kernel, for each noun and each way to fail: the kernel, its call with peer, offset
// and size, and what did not happen. Ways of a pair of ranks to fail are in ending_test.cc, those of collectives, whose
// text names the host's call, in test/collective, and those of halos between ranks in test/fault.
#include <cstring>
#include <memory>
#include <string>

#include "test/conformance/blame_kernels.h"
#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "test/harness/ranks.h"
#include "test/harness/window.h"

namespace {

constexpr uint32_t DEADLINE_MS = 100;
constexpr uint32_t SLOTS = 4;    // of a fifo and of a send queue, credits of a channel, words of a window's ring
constexpr uint64_t BYTES = 1024; // of local memory and of each half of a packet buffer

// What the handles of a kernel point to, on the CPU device: memory that nobody but the kernel writes to.
struct Handles {
    windows::World window{ 2, 2, SLOTS, 48, 40, 0 };
    windows::Memory cells{ 16 * WEIR_CELL_BYTES };
    windows::Memory local{ BYTES };
    windows::Memory packets{ 2 * BYTES };
    windows::Memory slots{ SLOTS * WEIR_FIFO_SLOT_WORDS * 8 };
    windows::Memory posts{ SLOTS * 64 };
    windows::Memory completions{ SLOTS * 64 };
    weir_dev_halo_part part = {};
    int32_t status = WEIR_PENDING;
    blame_args args = {};

    template <class T> T *cell(uint32_t i) { return reinterpret_cast<T *>(cells.data() + i * WEIR_CELL_BYTES); }

    explicit Handles(weir_dev_control *control)
    {
        std::memset(completions.data(), 0xff, SLOTS * 64); // entries that were never written
        args.status = &status;
        args.semaphore = {
            control, cell<uint64_t>(0), cell<uint64_t>(1), cell<uint64_t>(2), cell<uint64_t>(3), 1, 0, 5, 1, 17
        };
        args.barrier = { control, cell<uint64_t>(4), 0 };
        args.memory.semaphore = args.semaphore;
        args.memory.remote = args.memory.packets = packets.data();
        args.memory.remote_bytes = args.memory.packets_bytes = args.memory.local_bytes = BYTES;
        args.memory.local = local.data();
        args.memory.epochs = cell<uint64_t>(5);
        args.memory.lines = 1;
        args.port.semaphore = args.semaphore;
        args.port.queue.fifo = { control,
                                 cell<weir_dev_credits>(6),
                                 cell<uint64_t>(7),
                                 reinterpret_cast<uint64_t *>(slots.data()),
                                 cell<uint64_t>(8),
                                 SLOTS,
                                 0 };
        args.port.queue.credits = cell<weir_dev_credits>(9);
        args.port.queue.progress = cell<weir_dev_progress>(10);
        args.port.queue.limit = SLOTS;
        args.port.queue.id = 3;
        args.port.queue.peer = WEIR_NO_PEER;
        args.port.local = local.data();
        args.port.local_bytes = BYTES;
        args.port.packets = args.port.peer_packets = packets.data();
        args.port.packets_half = BYTES;
        args.port.packets_whole = 1;
        args.port.epochs = cell<uint64_t>(11);
        args.nic = { control,
                     cell<weir_dev_rdma_state>(12),
                     posts.data(),
                     cell<uint32_t>(13),
                     cell<uint64_t>(14),
                     completions.data(),
                     cell<uint32_t>(15),
                     SLOTS,
                     SLOTS,
                     291,
                     0 };
        args.inbox = { control, cell<uint64_t>(13), completions.data(), cell<uint32_t>(15), SLOTS, 0 };
        args.collective.control = control;
        args.collective.peers[1] = 6;
        args.collective.call = WEIR_NO_CALL;
        args.window = *window.window(0);
        args.window.barrier.control = control;
        part.peer = 8;
        part.index = 21;
        args.halo.control = control;
        args.halo.parts = &part;
    }
};

struct Failure {
    uint32_t call;
    uint64_t numbers[4];
    weir_status status;
    const char *text; // behind the kernel's name
    void (*change)(Handles *handles);
};

void unmapped(Handles *handles) { handles->args.semaphore.to_host = WEIR_SEMAPHORE_UNMAPPED; }
void fourth(Handles *handles) { handles->args.semaphore.size = handles->args.semaphore.count + 3; }
void of_port(Handles *handles) { handles->args.port.queue.peer = 7; }
void taken(Handles *handles) { *handles->cell<uint64_t>(13) = 9; }
void of_set(Handles *handles) { handles->args.port.semaphore.size = handles->args.port.semaphore.count + 2; }

// The memory has 1,024 bytes, its packet buffer room for 896. A part of the window has 40 bytes, a ring 4 words; the
// device has ranks 0 and 1 of 4, and the other device is rank 11 of the communicator.
const Failure failures[] = {
    { BLAME_SIGNAL,
      {},
      WEIR_ERR_UNSUPPORTED,
      "signal of a semaphore that is destroyed: not supported here", // no semaphore has its token
      unmapped },
    { BLAME_WAIT, {}, WEIR_ERR_TIMEOUT, "wait on a semaphore that is destroyed: nothing came for 100 ms", nullptr },
    { BLAME_AT, { 2 }, WEIR_ERR_RANGE, "semaphore 5 of a set of 4 with rank 5", fourth },
    { BLAME_BARRIER, {}, WEIR_ERR_TIMEOUT, "grid barrier: a block did not come for 100 ms", nullptr },
    { BLAME_FIFO_PUSH, {}, WEIR_ERR_TIMEOUT, "push to a fifo: there was no room for 100 ms", nullptr },
    { BLAME_FIFO_WAIT,
      { 6 },
      WEIR_ERR_TIMEOUT,
      "wait for request 6 of a fifo: it was not completed for 100 ms",
      nullptr },
    { BLAME_CHANNEL_PUSH, {}, WEIR_ERR_TIMEOUT, "push to channel 3 of a proxy: there was no room for 100 ms", nullptr },
    { BLAME_CHANNEL_PUSH,
      {},
      WEIR_ERR_TIMEOUT,
      "push to a port channel to rank 7: there was no room for 100 ms",
      of_port },
    { BLAME_CHANNEL_WAIT,
      { 4 },
      WEIR_ERR_TIMEOUT,
      "wait for request 4 of channel 3 of a proxy: it was not completed for 100 ms",
      nullptr },
    { BLAME_CHANNEL_WAIT,
      { 4 },
      WEIR_ERR_TIMEOUT,
      "wait for request 4 of a port channel to rank 7: it was not completed for 100 ms",
      of_port },
    { BLAME_PORT_WAIT, {}, WEIR_ERR_TIMEOUT, "wait on port channel 17 of rank 5: nothing came for 100 ms", nullptr },
    { BLAME_PORT_WAIT,
      {},
      WEIR_ERR_TIMEOUT,
      "wait on port channel 17, number 2 of its set, of rank 5: nothing came for 100 ms",
      of_set },
    { BLAME_PUT_PACKETS,
      { 896, 0, 8 },
      WEIR_ERR_RANGE,
      "packet put of 16 bytes at offset 896 to memory of rank 5, which has 896 bytes",
      nullptr },
    { BLAME_PUT_PACKETS,
      { 0, 1020, 8 },
      WEIR_ERR_RANGE,
      "packet put of 8 bytes at offset 1020 of local memory, which has 1024 bytes",
      nullptr },
    { BLAME_PUT_PACKETS,
      { 8, 0, 24 },
      WEIR_ERR_INVALID,
      "packet put of 24 bytes at offset 8 to memory of rank 5: invalid argument",
      nullptr },
    { BLAME_UNPACK_PACKETS,
      { 880, 0, 16 },
      WEIR_ERR_RANGE,
      "packet unpack of 32 bytes at offset 880 of local memory, which has 896 bytes",
      nullptr },
    { BLAME_UNPACK_PACKETS,
      { 32, 0, 24 },
      WEIR_ERR_TIMEOUT,
      "packet unpack of 24 bytes at offset 32: nothing came from rank 5 for 100 ms",
      nullptr },
    { BLAME_PUT_LINES,
      { 1024, 0, 16 },
      WEIR_ERR_RANGE,
      "packet put of 16 bytes at offset 1024 to memory of rank 5: out of range",
      nullptr },
    { BLAME_NIC_POST, {}, WEIR_ERR_TIMEOUT, "post to queue pair 291: there was no room for 100 ms", nullptr },
    { BLAME_NIC_WAIT,
      { 2 },
      WEIR_ERR_TIMEOUT,
      "wait for post 2 of queue pair 291: it was not completed for 100 ms",
      nullptr },
    { BLAME_NIC_NOTICE, {}, WEIR_ERR_TIMEOUT, "wait for notice 9: nothing came for 100 ms", taken },
    { BLAME_COLLECTIVE, {}, WEIR_ERR_TIMEOUT, "collective: nothing came from rank 6 for 100 ms", nullptr },
    { BLAME_ABANDONED, {}, WEIR_ERR_INVALID, "collective, whose collective was abandoned: invalid argument", nullptr },
    { BLAME_DEREGISTERED,
      {},
      WEIR_ERR_INVALID,
      "collective, on memory that was deregistered or unmapped: invalid argument",
      nullptr },
    { BLAME_WINDOW_AT, { 2 }, WEIR_ERR_RANGE, "window: rank at index 2 of a device with 2 ranks", nullptr },
    { BLAME_WINDOW_PUT, { 4, 0, 0, 8 }, WEIR_ERR_RANGE, "window: rank 4 of 4", nullptr },
    { BLAME_WINDOW_MEMORY, { 2, 5 }, WEIR_ERR_RANGE, "window: memory 5, but the handle has 2", nullptr },
    { BLAME_WINDOW_PUT,
      { 2, 33, 0, 8 },
      WEIR_ERR_RANGE,
      "window put of 8 bytes at offset 33 of the other rank's part, which has 40 bytes",
      nullptr },
    { BLAME_WINDOW_GET,
      { 2, 0, 34, 7 },
      WEIR_ERR_RANGE,
      "window get of 7 bytes at offset 34 of the caller's part, which has 40 bytes",
      nullptr },
    { BLAME_WINDOW_OVERLAP,
      { 0, 3, 5, 8 },
      WEIR_ERR_INVALID,
      "window: transfer of 8 bytes between offsets 3 and 5, which overlap: invalid argument",
      nullptr },
    { BLAME_WINDOW_NOTIFY,
      { 1, 1ull << 31 },
      WEIR_ERR_INVALID,
      "window: tag 2147483648 of rank 0; at most 2147483647 is possible: invalid argument",
      nullptr },
    { BLAME_WINDOW_NOTIFY,
      { 3, 12 },
      WEIR_ERR_TIMEOUT,
      "window: notify of rank 3 on device 11 by rank 0 with tag 12: there was no room for 100 ms",
      nullptr },
    { BLAME_WINDOW_WAIT,
      { 2, 12 },
      WEIR_ERR_TIMEOUT,
      "window: wait of rank 0 for rank 2, tag 12: nothing came for 100 ms",
      nullptr },
    { BLAME_WINDOW_WAIT,
      { WEIR_ANY_RANK, WEIR_ANY_TAG },
      WEIR_ERR_TIMEOUT,
      "window: wait of rank 0 for any rank, any tag: nothing came for 100 ms",
      nullptr },
    { BLAME_WINDOW_BARRIER,
      {},
      WEIR_ERR_TIMEOUT,
      "window: barrier with device 11: it did not come for 100 ms",
      nullptr },
    { BLAME_HALO_PUT, {}, WEIR_ERR_TIMEOUT, "halo: put to part 21 of rank 8: it was not ready for 100 ms", nullptr },
    { BLAME_HALO_WAIT, {}, WEIR_ERR_TIMEOUT, "halo: wait for part 21 of rank 8: nothing came for 100 ms", nullptr },
};

// Makes the call in a kernel of a communicator of its own, and compares the whole text of the communicator's error.
void expect_text(weirt_rank *rank, const Failure &failure, uint32_t deadline_ms, const std::string &text,
                 const weir_kernel *kernel = blame_kernel())
{
    weirt_comm c;
    weir_grid_barrier *barrier = nullptr;
    void *stream = nullptr;
    if (weirt_comm_open_kernels(rank, deadline_ms, &c) && WEIRT_OK(rank, weir_grid_barrier_create(c.comm, &barrier)) &&
        WEIRT_OK(rank, weir_stream_create(c.device, &stream)) && WEIRT_OK(rank, weir_kernel_load(c.device, kernel))) {
        weir_dev_grid_barrier real;
        weir_grid_barrier_device(barrier, &real);
        const auto handles = std::make_unique<Handles>(real.control);
        handles->args.call = failure.call;
        std::memcpy(handles->args.numbers, failure.numbers, sizeof failure.numbers);
        if (failure.change != nullptr) {
            failure.change(handles.get());
        }
        WEIRT_OK(rank, weir_launch(c.device, kernel, { 1, 1 }, &handles->args, nullptr, stream));
        WEIRT_OK(rank, weir_stream_wait(c.device, stream, weirt_timeout_ms()));
        WEIRT_STATUS(rank, failure.status, static_cast<weir_status>(handles->status));
        WEIRT_STATUS(rank, failure.status, weir_comm_status(c.comm));
        if (weir_last_error() != text) {
            weirt_fail(rank, __FILE__, __LINE__, "\"%s\" in place of \"%s\"", weir_last_error(), text.c_str());
        }
    }
    if (stream != nullptr) {
        weir_stream_destroy(c.device, stream);
    }
    weir_grid_barrier_destroy(barrier);
    weirt_comm_close(&c);
}

const std::string KERNEL = "communicator: rank 0: kernel blame";

void every_failure(weirt_rank *rank)
{
    weirt_log_allow("kernel blame");
    for (const Failure &failure : failures) {
        expect_text(rank, failure, DEADLINE_MS, KERNEL + ": " + failure.text);
    }
}

// An error that a call stores without a note, a deadline of whole seconds, and a kernel without a name.
void other_texts(weirt_rank *rank)
{
    weirt_log_allow("kernel blame");
    expect_text(rank, { BLAME_OTHER, {}, WEIR_ERR_CORRUPT, "", nullptr }, DEADLINE_MS,
                KERNEL + " failed: malformed bytes");
    expect_text(rank, { BLAME_FIFO_WAIT, { 6 }, WEIR_ERR_TIMEOUT, "", nullptr }, 1000,
                KERNEL + ": wait for request 6 of a fifo: it was not completed for 1 s");
    weirt_log_allow("a kernel on CPU 0");
    expect_text(
        rank, { BLAME_FIFO_WAIT, { 6 }, WEIR_ERR_TIMEOUT, "", nullptr }, DEADLINE_MS,
        "communicator: rank 0: a kernel on CPU 0: wait for request 6 of a fifo: it was not completed for 100 ms",
        blame_nameless_kernel());
}

TEST(BlameCpu, EveryFailureHasItsText) { weirt_ranks_run(&weirt_stages[0], 1, every_failure, nullptr, 0); }
TEST(BlameCpu, OtherTexts) { weirt_ranks_run(&weirt_stages[0], 1, other_texts, nullptr, 0); }

} // namespace
