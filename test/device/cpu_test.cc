// The CPU device's limits, threads, block barrier with values, and memfd memory.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

extern "C" {
#include "src/device/device.h"
}
#include "test/harness/ranks.h"
#include "weir/error.h"

namespace {

constexpr uint32_t MOST = 64;

struct cpu_args {
    uint64_t *out;
    uint64_t *gate; // spins until it is not 0
    uint64_t rounds;
    uint8_t fill[64];
};

WEIR_KERNEL(or_values, cpu_args)
{
    uint64_t right = 0;
    for (uint64_t round = 0; round < args->rounds; round++) {
        uint32_t expected = 0;
        for (uint32_t i = 0; i < coop.block_size; i++) {
            expected |= (round + i) % 3 == 0 ? 1u << i : 0;
        }
        uint32_t mine = (round + coop.block_rank) % 3 == 0 ? 1u << coop.block_rank : 0;
        right += weir_cpu_block_or(coop.host, mine) == expected;
    }
    args->out[coop.rank] = right;
}

// Thread i leaves after i rounds.
WEIR_KERNEL(leave_early, cpu_args)
{
    uint64_t rounds = 0;
    uint32_t missing = 0;
    for (; rounds < coop.block_rank; rounds++) {
        missing |= weir_cpu_block_or(coop.host, 1) != 1;
    }
    args->out[coop.rank] = rounds + missing * 1000u;
}

WEIR_KERNEL(sum_args, cpu_args)
{
    if (coop.rank == 0) {
        uint64_t sum = (uintptr_t)args % 16 == 0 ? 0 : 1000000;
        for (uint32_t i = 0; i < 64; i++) {
            sum += args->fill[i];
        }
        args->out[0] = args->out[0] * 10000 + sum;
    }
}

WEIR_KERNEL(wait_gate, cpu_args)
{
    uint32_t reads = 0;
    while (weir_arch_load_acquire_sys_u64(args->gate) == 0) {
        weir_cpu_relax(++reads);
    }
    weir_arch_add_relaxed_dev_u64(args->out, 1);
    (void)coop;
}

// The first thread of a block waits for the gate, and then for the others, or leaves; they wait for it. Each reports
// its id, and behind all ids what the barrier returned.
WEIR_KERNEL(wait_for_first, cpu_args)
{
    weir_arch_store_release_sys_u64(args->out + coop.rank, static_cast<uint64_t>(syscall(SYS_gettid)));
    if (coop.rank == 0) {
        uint32_t reads = 0;
        while (weir_arch_load_acquire_sys_u64(args->gate) == 0) {
            weir_cpu_relax(++reads);
        }
        if (args->rounds == 0) {
            return;
        }
    }
    args->out[coop.size + coop.rank] = weir_cpu_block_or(coop.host, 1u << coop.rank);
}

// How often these threads have given up their cores to wait, in all.
uint64_t count_waits(const uint64_t *ids, uint32_t threads)
{
    const std::string name = "voluntary_ctxt_switches:";
    uint64_t sum = 0;
    for (uint32_t i = 0; i < threads; i++) {
        std::ifstream file("/proc/self/task/" + std::to_string(ids[i]) + "/status");
        for (std::string line; std::getline(file, line);) {
            sum += line.compare(0, name.size(), name) == 0 ? std::stoull(line.substr(name.size())) : 0;
        }
    }
    return sum;
}

class Cpu : public ::testing::Test {
protected:
    void SetUp() override
    {
        ASSERT_EQ(weir_device_open("cpu:0", nullptr, &device), WEIR_OK) << weir_last_error();
        ASSERT_EQ(weir_stream_create(device, &stream), WEIR_OK) << weir_last_error();
        args.out = out;
        args.gate = &gate;
    }

    void TearDown() override
    {
        weir_stream_destroy(device, stream);
        weir_device_close(device);
    }

    weir_status launch(const weir_kernel &kernel, uint32_t blocks, uint32_t threads, void *on)
    {
        return weir_launch(device, &kernel, { blocks, threads }, &args, nullptr, on);
    }

    void open_gate() { __atomic_store_n(&gate, 1, __ATOMIC_RELEASE); }

    weir_device *device = nullptr;
    void *stream = nullptr;
    cpu_args args = {};
    uint64_t out[MOST] = {};
    uint64_t gate = 0;
};

TEST_F(Cpu, BlockOrReturnsAllBits)
{
    args.rounds = 700;
    for (weir_shape shape : { weir_shape{ 1, 1 }, weir_shape{ 1, 7 }, weir_shape{ 3, 5 }, weir_shape{ 8, 1 } }) {
        memset(out, 0, sizeof(out));
        ASSERT_EQ(launch(or_values, shape.blocks, shape.threads, stream), WEIR_OK);
        ASSERT_EQ(weir_stream_wait(device, stream, 0), WEIR_OK);
        for (uint32_t i = 0; i < shape.blocks * shape.threads; i++) {
            EXPECT_EQ(out[i], 700u) << shape.blocks << " x " << shape.threads << ", thread " << i;
        }
    }
}

TEST_F(Cpu, ThreadsThatHaveEndedAreNotWaitedFor)
{
    for (int i = 0; i < 50; i++) {
        ASSERT_EQ(launch(leave_early, 2, 6, stream), WEIR_OK);
    }
    ASSERT_EQ(weir_stream_wait(device, stream, 0), WEIR_OK) << weir_last_error();
    for (uint32_t i = 0; i < 12; i++) {
        EXPECT_EQ(out[i], i % 6);
    }
}

// Threads that yield or sleep for short times would take the cores from those that they wait for.
TEST_F(Cpu, ThreadsOfABlockSleepUntilTheLastOneComes)
{
    constexpr uint32_t THREADS = 4;
    for (uint32_t first_comes : { 0u, 1u }) {
        memset(out, 0, sizeof(out));
        __atomic_store_n(&gate, 0, __ATOMIC_RELAXED);
        args.rounds = first_comes;
        ASSERT_EQ(launch(wait_for_first, 1, THREADS, stream), WEIR_OK);
        const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
        for (uint32_t i = 0; i < THREADS; i++) {
            while (__atomic_load_n(&out[i], __ATOMIC_ACQUIRE) == 0 && weirt_now_ms() < end) {
                weirt_sleep_ms(1);
            }
        }
        uint64_t before = 0;
        uint64_t after = 0;
        while ((after == 0 || before != after) && weirt_now_ms() < end) {
            before = after;
            weirt_sleep_ms(50);
            after = count_waits(out + 1, THREADS - 1);
        }
        EXPECT_GT(after, 0u);
        EXPECT_EQ(before, after) << "some do not sleep";
        open_gate();
        ASSERT_EQ(weir_stream_wait(device, stream, 0), WEIR_OK) << weir_last_error();
        for (uint32_t i = 1 - first_comes; i < THREADS; i++) {
            EXPECT_EQ(out[THREADS + i], (first_comes ? 0xfu : 0xeu)) << "thread " << i;
        }
    }
}

TEST_F(Cpu, ArgumentsAreCopiedAtTheCall)
{
    ASSERT_EQ(launch(wait_gate, 1, 1, stream), WEIR_OK);
    out[0] = 0;
    cpu_args second = args;
    second.out = out + 1;
    memset(second.fill, 1, sizeof(second.fill));
    ASSERT_EQ(weir_launch(device, &sum_args, { 1, 2 }, &second, nullptr, stream), WEIR_OK);
    memset(second.fill, 2, sizeof(second.fill));
    ASSERT_EQ(weir_launch(device, &sum_args, { 1, 2 }, &second, nullptr, stream), WEIR_OK);
    memset(&second, 0xff, sizeof(second));
    open_gate();
    ASSERT_EQ(weir_stream_wait(device, stream, 0), WEIR_OK);
    EXPECT_EQ(out[0], 1u);
    EXPECT_EQ(out[1], 64u * 10000 + 128);
}

TEST_F(Cpu, LimitNamesTheVariable)
{
    EXPECT_EQ(launch(sum_args, 1, 65, stream), WEIR_ERR_LIMIT);
    EXPECT_NE(strstr(weir_last_error(), "64"), nullptr) << weir_last_error();
    EXPECT_NE(strstr(weir_last_error(), "WEIR_CPU_THREADS"), nullptr) << weir_last_error();
    EXPECT_EQ(launch(sum_args, 65536, 65536, stream), WEIR_ERR_LIMIT);
    EXPECT_EQ(launch(sum_args, UINT32_MAX, UINT32_MAX, stream), WEIR_ERR_LIMIT);
    EXPECT_EQ(launch(sum_args, 4, 16, stream), WEIR_OK);
    EXPECT_EQ(weir_stream_wait(device, stream, 0), WEIR_OK);
}

TEST_F(Cpu, FitShape)
{
    struct {
        weir_shape wanted;
        uint32_t blocks, threads;
    } const cases[] = {
        { { 32, 1024 }, 2, 4 },
        { { 1, 1024 }, 1, 8 },
        { { 65, 1 }, 8, 1 },
        { { 33, 2 }, 4, 2 },
        { { 33, 3 }, 2, 3 },
        { { 8, 9 }, 2, 4 },
        { { 8, 8 }, 8, 8 },
        { { 3, 3 }, 3, 3 },
        { { 64, 1 }, 64, 1 },
        { { 1, 64 }, 1, 64 },
        { { 0, 0 }, 1, 1 },
        { { 1, 1 }, 1, 1 },
        { { UINT32_MAX, UINT32_MAX }, 2, 4 },
    };
    for (const auto &c : cases) {
        weir_shape shape = weir_device_fit_shape(device, c.wanted);
        EXPECT_EQ(shape.blocks, c.blocks) << c.wanted.blocks << " x " << c.wanted.threads;
        EXPECT_EQ(shape.threads, c.threads) << c.wanted.blocks << " x " << c.wanted.threads;
    }
    for (uint32_t threads = 1; threads <= 8; threads++) {
        weir_device_opts opts = { sizeof(opts), threads };
        weir_device *small = nullptr;
        ASSERT_EQ(weir_device_open("cpu:1", &opts, &small), WEIR_OK);
        weir_shape shape = weir_device_fit_shape(small, { 32, 1024 });
        EXPECT_GE(shape.blocks * shape.threads, 1u);
        EXPECT_LE(shape.blocks * shape.threads, threads);
        shape = weir_device_fit_shape(small, { 1, threads });
        EXPECT_EQ(shape.threads, threads);
        weir_device_close(small);
    }
}

// weir_device_info, weir_device_fit_shape and launches agree: 64 threads, in any shape.
TEST_F(Cpu, LimitsAreThoseOfLaunches)
{
    weir_device_info info;
    weir_device_get_info(device, &info, sizeof info);
    EXPECT_EQ(info.block_threads, 64u);
    EXPECT_EQ(info.resident_threads, 64u);
    for (weir_shape wanted : { weir_shape{ 8, 8 }, { 1, 64 }, { 64, 1 }, { 7, 9 }, { 5, 13 }, { 65, 1 }, { 1, 65 } }) {
        const weir_shape fit = weir_device_fit_shape(device, wanted);
        const bool fits = fit.blocks == wanted.blocks && fit.threads == wanted.threads;
        EXPECT_EQ(launch(sum_args, wanted.blocks, wanted.threads, stream), fits ? WEIR_OK : WEIR_ERR_LIMIT)
            << wanted.blocks << " x " << wanted.threads;
        EXPECT_EQ(weir_stream_wait(device, stream, 0), WEIR_OK);
        EXPECT_EQ(fits, wanted.blocks * wanted.threads <= 64);
    }
}

TEST_F(Cpu, StreamsDoNotShareThreads)
{
    void *second = nullptr;
    ASSERT_EQ(weir_stream_create(device, &second), WEIR_OK);
    ASSERT_EQ(launch(wait_gate, 2, 4, stream), WEIR_OK);
    args.out = out + 1;
    ASSERT_EQ(launch(sum_args, 2, 4, second), WEIR_OK);
    ASSERT_EQ(weir_stream_wait(device, second, 0), WEIR_OK);
    // A larger launch behind a running one.
    args.out = out + 2;
    ASSERT_EQ(launch(wait_gate, 4, 4, stream), WEIR_OK);
    EXPECT_EQ(out[0], 0u);
    EXPECT_EQ(weir_stream_wait(device, stream, 100), WEIR_ERR_TIMEOUT);
    EXPECT_NE(strstr(weir_last_error(), "2 operations"), nullptr) << weir_last_error();
    open_gate();
    ASSERT_EQ(weir_stream_wait(device, stream, 0), WEIR_OK);
    EXPECT_EQ(out[0], 8u);
    EXPECT_EQ(out[2], 16u);
    weir_stream_destroy(device, second);
}

TEST_F(Cpu, DestroyWaitsForTheWork)
{
    void *second = nullptr;
    void *graph = nullptr;
    void *event = nullptr;
    ASSERT_EQ(weir_stream_create(device, &second), WEIR_OK);
    ASSERT_EQ(weir_event_create(device, &event), WEIR_OK);
    ASSERT_EQ(weir_graph_begin(device, second), WEIR_OK);
    ASSERT_EQ(launch(wait_gate, 1, 2, second), WEIR_OK);
    ASSERT_EQ(weir_event_record(device, event, second), WEIR_OK);
    ASSERT_EQ(weir_graph_end(device, second, &graph), WEIR_OK);
    for (int i = 0; i < 10; i++) {
        ASSERT_EQ(weir_graph_launch(device, graph, second), WEIR_OK);
    }
    weir_graph_destroy(device, graph);
    weir_event_destroy(device, event);
    open_gate();
    weir_stream_destroy(device, second);
    EXPECT_EQ(out[0], 20u);
    // A stream that is still recording.
    ASSERT_EQ(weir_stream_create(device, &second), WEIR_OK);
    ASSERT_EQ(weir_graph_begin(device, second), WEIR_OK);
    ASSERT_EQ(launch(wait_gate, 1, 2, second), WEIR_OK);
    weir_stream_destroy(device, second);
    EXPECT_EQ(out[0], 20u);
}

TEST_F(Cpu, MisuseOfGraphsAndStreams)
{
    weir_device *second = nullptr;
    void *graph = nullptr;
    ASSERT_EQ(weir_device_open("cpu:0", nullptr, &second), WEIR_OK);
    EXPECT_EQ(weir_graph_end(device, stream, &graph), WEIR_ERR_INVALID);
    ASSERT_EQ(weir_graph_begin(device, stream), WEIR_OK);
    EXPECT_EQ(weir_graph_begin(device, stream), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_stream_wait(device, stream, 0), WEIR_ERR_INVALID);
    ASSERT_EQ(weir_graph_end(device, stream, &graph), WEIR_OK);
    EXPECT_EQ(weir_graph_end(device, stream, &graph), WEIR_ERR_INVALID);
    ASSERT_EQ(weir_graph_begin(device, stream), WEIR_OK);
    EXPECT_EQ(weir_graph_launch(device, graph, stream), WEIR_ERR_INVALID);
    void *empty = nullptr;
    ASSERT_EQ(weir_graph_end(device, stream, &empty), WEIR_OK);
    EXPECT_EQ(weir_graph_launch(device, empty, stream), WEIR_OK);
    EXPECT_EQ(weir_stream_wait(device, stream, 0), WEIR_OK);
    EXPECT_EQ(weir_launch(second, &sum_args, { 1, 1 }, &args, nullptr, stream), WEIR_ERR_INVALID);
    EXPECT_EQ(weir_stream_wait(second, stream, 0), WEIR_ERR_INVALID);
    weir_graph_destroy(device, graph);
    weir_graph_destroy(device, empty);
    weir_device_close(second);
}

TEST_F(Cpu, RoundsLeaveNothing)
{
    auto descriptors = []() {
        int count = 0;
        for (int fd = 0; fd < 256; fd++) {
            count += fcntl(fd, F_GETFD) != -1;
        }
        return count;
    };
    int before = descriptors();
    for (int i = 0; i < 100; i++) {
        weir_device *own = nullptr;
        void *second = nullptr;
        weiri_block *block = nullptr;
        ASSERT_EQ(weir_device_open("cpu:3", nullptr, &own), WEIR_OK);
        ASSERT_EQ(weir_stream_create(own, &second), WEIR_OK);
        ASSERT_EQ(weiri_device_allocate(own, WEIR_MEMORY_DEVICE, 5000, &block), WEIR_OK);
        args.out = static_cast<uint64_t *>(block->pointer);
        ASSERT_EQ(weir_launch(own, &sum_args, { 2, 2 }, &args, nullptr, second), WEIR_OK);
        weir_stream_destroy(own, second);
        weiri_block_release(block);
        weir_device_close(own);
    }
    EXPECT_EQ(descriptors(), before);
}

// ---- memory

class CpuMemory : public Cpu {
protected:
    void SetUp() override
    {
        Cpu::SetUp();
        ASSERT_EQ(weiri_device_allocate(device, WEIR_MEMORY_DEVICE, 10000, &block), WEIR_OK) << weir_last_error();
        bytes = static_cast<uint8_t *>(block->pointer);
    }

    void TearDown() override
    {
        weiri_block_release(block);
        Cpu::TearDown();
    }

    weiri_block *block = nullptr;
    uint8_t *bytes = nullptr;
};

TEST_F(CpuMemory, AllocationsAreZeroedAndMappable)
{
    EXPECT_EQ(block->size, 10000u);
    EXPECT_EQ(block->allocated % 4096, 0u);
    EXPECT_GE(block->allocated, 10000u);
    EXPECT_EQ(block->export_.share, static_cast<uint32_t>(WEIRI_SHARE_MEMFD));
    EXPECT_EQ(block->export_.base_bytes, block->allocated);
    EXPECT_EQ(block->export_.offset, 0u);
    EXPECT_EQ(block->host_pointer, block->pointer);
    for (uint64_t i = 0; i < block->allocated; i++) {
        ASSERT_EQ(bytes[i], 0);
    }
    EXPECT_NE(ftruncate(block->export_.fd, 0), 0);
    weiri_block *huge = nullptr;
    EXPECT_EQ(weiri_device_allocate(device, WEIR_MEMORY_DEVICE, 0, &huge), WEIR_ERR_INVALID);
    EXPECT_EQ(weiri_device_allocate(device, WEIR_MEMORY_DEVICE, UINT64_MAX, &huge), WEIR_ERR_NOMEM);
    EXPECT_EQ(weiri_device_allocate(device, WEIR_MEMORY_HOST, uint64_t(1) << 50, &huge), WEIR_ERR_NOMEM);
    EXPECT_EQ(weiri_device_allocate(device, static_cast<weir_memory_kind>(7), 8, &huge), WEIR_ERR_INVALID);
    EXPECT_EQ(huge, nullptr);
}

TEST_F(CpuMemory, CopyAndFill)
{
    uint8_t buffer[300];
    ASSERT_EQ(weir_device_fill(device, bytes + 1, 0xab, 300), WEIR_OK);
    EXPECT_EQ(bytes[0], 0);
    EXPECT_EQ(bytes[300], 0xab);
    EXPECT_EQ(bytes[301], 0);
    for (uint32_t i = 0; i < 300; i++) {
        bytes[i] = static_cast<uint8_t>(i);
    }
    ASSERT_EQ(weir_device_copy(device, bytes + 3, bytes, 200), WEIR_OK);
    ASSERT_EQ(weir_device_copy(device, buffer, bytes + 3, 200), WEIR_OK);
    for (uint32_t i = 0; i < 200; i++) {
        ASSERT_EQ(buffer[i], i);
    }
}

TEST_F(CpuMemory, AnotherMappingSeesTheSameBytes)
{
    weiri_block *part = nullptr;
    weiri_block *peer = nullptr;
    ASSERT_EQ(weiri_device_wrap(device, bytes + 4097, 1000, &part), WEIR_OK) << weir_last_error();
    EXPECT_EQ(part->export_.share, static_cast<uint32_t>(WEIRI_SHARE_MEMFD));
    EXPECT_EQ(part->export_.offset, 4097u);
    EXPECT_EQ(part->export_.size, 1000u);
    EXPECT_EQ(part->allocated, 0u);
    EXPECT_EQ(part->export_.fd, block->export_.fd);
    weir_status status = weiri_device_import(device, &part->export_, false, part->export_.fd, &peer);
    ASSERT_EQ(status, WEIR_OK) << weir_last_error();
    EXPECT_NE(peer->pointer, part->pointer);
    EXPECT_EQ(peer->size, 1000u);
    EXPECT_EQ(peer->allocated, 0u);
    memset(bytes, 0x11, 10000);
    static_cast<uint8_t *>(peer->pointer)[999] = 0x77;
    EXPECT_EQ(bytes[4097 + 999], 0x77);
    EXPECT_EQ(*static_cast<uint8_t *>(peer->pointer), 0x11);
    // The peer keeps the memory after the owner's release.
    weiri_block_release(part);
    EXPECT_EQ(static_cast<uint8_t *>(peer->pointer)[999], 0x77);
    weiri_block_release(peer);
}

TEST_F(CpuMemory, PeersOfTheSameProcessGetThePointer)
{
    static uint8_t own[64];
    weiri_block *wrapped = nullptr;
    weiri_block *peer = nullptr;
    ASSERT_EQ(weiri_device_wrap(device, own + 8, 56, &wrapped), WEIR_OK);
    EXPECT_EQ(wrapped->export_.share, static_cast<uint32_t>(WEIRI_SHARE_NONE));
    EXPECT_EQ(wrapped->export_.fd, -1);
    EXPECT_NE(strstr(wrapped->reason, "weir_memory_allocate"), nullptr) << wrapped->reason;
    ASSERT_EQ(weiri_device_import(device, &wrapped->export_, true, -1, &peer), WEIR_OK) << weir_last_error();
    EXPECT_EQ(peer->pointer, own + 8);
    EXPECT_EQ(peer->size, 56u);
    weiri_block_release(peer);
    EXPECT_EQ(weiri_device_import(device, &wrapped->export_, false, -1, &peer), WEIR_ERR_UNSUPPORTED);
    weiri_block_release(wrapped);
    ASSERT_EQ(weiri_device_import(device, &block->export_, true, -1, &peer), WEIR_OK);
    EXPECT_EQ(peer->pointer, block->pointer);
    weiri_block_release(peer);
}

/* The lowest address that this process may map. */
uintptr_t lowest_page()
{
    unsigned long lowest = 0;
    FILE *file = fopen("/proc/sys/vm/mmap_min_addr", "re");
    if (file != nullptr) {
        (void)!fscanf(file, "%lu", &lowest);
        fclose(file);
    }
    return lowest > 65536 ? (lowest + 4095) / 4096 * 4096 : 65536;
}

TEST_F(CpuMemory, WrapRefusesWhatIsNotThere)
{
    weiri_block *wrapped = nullptr;
    EXPECT_EQ(weiri_device_wrap(device, nullptr, 8, &wrapped), WEIR_ERR_INVALID);
    EXPECT_EQ(weiri_device_wrap(device, bytes, 0, &wrapped), WEIR_ERR_INVALID);
    EXPECT_EQ(weiri_device_wrap(device, bytes, UINT64_MAX, &wrapped), WEIR_ERR_INVALID);
    EXPECT_EQ(weiri_device_wrap(device, bytes, 10001, &wrapped), WEIR_ERR_RANGE);
    EXPECT_EQ(weiri_device_wrap(device, bytes + 9999, 2, &wrapped), WEIR_ERR_RANGE);
    EXPECT_EQ(weiri_device_wrap(device, bytes + 1, uint64_t(1) << 40, &wrapped), WEIR_ERR_RANGE);
    /* One page at the low end of the address space: the operating system maps nothing beside it unasked. Elsewhere, an
     * allocator may map the page next to it at any time. */
    void *lowest = reinterpret_cast<void *>(lowest_page());
    void *page = mmap(lowest, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    ASSERT_EQ(page, lowest) << strerror(errno);
    EXPECT_EQ(weiri_device_wrap(device, page, 4097, &wrapped), WEIR_ERR_INVALID);
    ASSERT_EQ(weiri_device_wrap(device, page, 4096, &wrapped), WEIR_OK);
    weiri_block_release(wrapped);
    ASSERT_EQ(munmap(page, 4096), 0);
    EXPECT_EQ(weiri_device_wrap(device, page, 4096, &wrapped), WEIR_ERR_INVALID);
    ASSERT_EQ(weiri_device_wrap(device, bytes + 9999, 1, &wrapped), WEIR_OK);
    weiri_block_release(wrapped);
}

TEST_F(CpuMemory, ImportRefusesWhatCannotBeTrue)
{
    weiri_block *peer = nullptr;
    const weiri_export good = block->export_;
    auto refused = [&](weiri_export bad, bool same_process, int fd) {
        weir_status status = weiri_device_import(device, &bad, same_process, fd, &peer);
        EXPECT_EQ(peer, nullptr);
        return status;
    };
    for (bool same_process : { false, true }) {
        weiri_export bad = good;
        bad.offset = 1;
        bad.size = good.base_bytes;
        EXPECT_EQ(refused(bad, same_process, good.fd), WEIR_ERR_CORRUPT);
        bad = good;
        bad.offset = UINT64_MAX;
        bad.size = 2;
        EXPECT_EQ(refused(bad, same_process, good.fd), WEIR_ERR_CORRUPT);
        bad = good;
        bad.size = 0;
        EXPECT_EQ(refused(bad, same_process, good.fd), WEIR_ERR_CORRUPT);
        bad = good;
        bad.share = WEIRI_SHARE_CUDA_IPC;
        EXPECT_EQ(refused(bad, same_process, good.fd), WEIR_ERR_UNSUPPORTED);
    }
    weiri_export bad = good;
    bad.base_bytes = good.base_bytes + 1;
    EXPECT_EQ(refused(bad, false, good.fd), WEIR_ERR_CORRUPT);
    bad.base_bytes = UINT64_MAX;
    EXPECT_EQ(refused(bad, false, good.fd), WEIR_ERR_CORRUPT);
    EXPECT_EQ(refused(bad, true, -1), WEIR_ERR_CORRUPT);
    EXPECT_EQ(refused(good, false, -1), WEIR_ERR_INVALID);
    int unsealed = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_GE(unsealed, 0);
    ASSERT_EQ(ftruncate(unsealed, static_cast<off_t>(good.base_bytes)), 0);
    EXPECT_EQ(refused(good, false, unsealed), WEIR_ERR_CORRUPT);
    ASSERT_EQ(close(unsealed), 0);
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    EXPECT_EQ(refused(good, false, ends[0]), WEIR_ERR_CORRUPT);
    ASSERT_EQ(close(ends[0]) + close(ends[1]), 0);
}

TEST_F(CpuMemory, ReachesTheCpuAlone)
{
    const uint8_t uuid[16] = { 1 };
    EXPECT_EQ(device->ops->reach(device, "cpu", uuid), WEIR_OK);
    EXPECT_EQ(device->ops->reach(device, "gpu", uuid), WEIR_ERR_UNSUPPORTED);
    EXPECT_NE(strstr(weir_last_error(), "cannot map GPU memory"), nullptr) << weir_last_error();
}

} // namespace
