// The GPU backend: memory of all origins, streams, graphs, launches. Skipped without a GPU.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <weir/weir.h>

extern "C" {
#include "src/device/device.h"
#include "src/device/kernels.h"
}
#include "test/harness/checks.h"
#include "test/harness/cuda_foreign.h"

namespace {

const char role_variable[] = "WEIRT_CUDA_ROLE"; // set in the processes that a case starts

std::string no_gpu()
{
    char reason[256] = "";
    return weiri_cuda_ops.count(reason) > 0 ? "" : reason;
}

// Runs the case `filter` of this program as another process, with one more environment variable and a role.
// Returns its exit status.
int run_again(const char *filter, const char *role, const char *name = nullptr, const char *value = nullptr)
{
    std::string option = std::string("--gtest_filter=") + filter;
    char program[] = "/proc/self/exe";
    char *arguments[] = { program, &option[0], nullptr };
    setenv(role_variable, role, 1);
    if (name != nullptr) {
        setenv(name, value, 1);
    }
    pid_t child = 0;
    int error = posix_spawn(&child, program, nullptr, nullptr, arguments, environ);
    unsetenv(role_variable);
    if (name != nullptr) {
        unsetenv(name);
    }
    int status = -1;
    if (error != 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) {
        return -1;
    }
    return WEXITSTATUS(status);
}

std::string share_name(const weiri_block *block)
{
    const char *names[] = { "none", "memfd", "cumem", "ipc" };
    return names[block->export_.share];
}

std::vector<uint8_t> pattern(size_t bytes, uint32_t seed)
{
    std::vector<uint8_t> data(bytes);
    for (size_t i = 0; i < bytes; i++) {
        data[i] = static_cast<uint8_t>((i * 2654435761u + seed * 40503u) >> 7);
    }
    return data;
}

class Gpu : public ::testing::Test {
protected:
    void SetUp() override
    {
        std::string reason = no_gpu();
        if (!reason.empty()) {
            GTEST_SKIP() << "no GPU: " << reason;
        }
        ASSERT_EQ(weir_device_open("gpu:0", nullptr, &device), WEIR_OK) << weir_last_error();
    }
    void TearDown() override { weir_device_close(device); }
    weiri_block *allocate(uint64_t bytes, weir_memory_kind kind = WEIR_MEMORY_DEVICE)
    {
        weiri_block *block = nullptr;
        EXPECT_EQ(weiri_device_allocate(device, kind, bytes, &block), WEIR_OK) << weir_last_error();
        return block;
    }
    std::vector<uint8_t> read(const void *pointer, size_t bytes)
    {
        std::vector<uint8_t> data(bytes, 0xee);
        EXPECT_EQ(weir_device_copy(device, data.data(), pointer, bytes), WEIR_OK) << weir_last_error();
        return data;
    }
    void write(void *pointer, const std::vector<uint8_t> &data)
    {
        EXPECT_EQ(weir_device_copy(device, pointer, data.data(), data.size()), WEIR_OK) << weir_last_error();
    }
    weir_device *device = nullptr;
};

TEST(GpuDriver, MissingLibraryIsAReasonNotAnError)
{
    if (std::getenv(role_variable) == nullptr) {
        EXPECT_EQ(run_again("GpuDriver.MissingLibraryIsAReasonNotAnError", "missing", "WEIR_CUDA_LIBRARY",
                            "libweirt_nosuch.so.1"),
                  0);
        return;
    }
    uint32_t count = 7;
    ASSERT_EQ(weir_device_count("gpu", &count), WEIR_OK);
    EXPECT_EQ(count, 0u);
    std::string reason = no_gpu();
    if (reason == "built without CUDA") {
        return;
    }
    EXPECT_NE(reason.find("libweirt_nosuch.so.1: cannot open"), std::string::npos) << reason;
    weir_device *device = nullptr;
    EXPECT_EQ(weir_device_open("gpu:0", nullptr, &device), WEIR_ERR_UNSUPPORTED);
    EXPECT_NE(std::string(weir_last_error()).find(reason), std::string::npos) << weir_last_error();
    EXPECT_EQ(no_gpu(), reason) << "the second call must give the same reason";
}

TEST(GpuDriver, LibraryThatIsNoDriverIsAReason)
{
    if (std::getenv(role_variable) == nullptr) {
        EXPECT_EQ(run_again("GpuDriver.LibraryThatIsNoDriverIsAReason", "foreign", "WEIR_CUDA_LIBRARY", "libc.so.6"),
                  0);
        return;
    }
    std::string reason = no_gpu();
    if (reason == "built without CUDA") {
        return;
    }
    EXPECT_NE(reason.find("libc.so.6: has no cuInit"), std::string::npos) << reason;
}

TEST(GpuDriver, StubLibraryIsNoDriver)
{
    const char stub[] = "/usr/local/cuda/lib64/stubs/libcuda.so";
    if (access(stub, R_OK) != 0) {
        GTEST_SKIP() << "no stub library of the CUDA toolkit here";
    }
    if (std::getenv(role_variable) == nullptr) {
        EXPECT_EQ(run_again("GpuDriver.StubLibraryIsNoDriver", "stub", "WEIR_CUDA_LIBRARY", stub), 0);
        return;
    }
    std::string reason = no_gpu();
    if (reason == "built without CUDA") {
        return;
    }
    EXPECT_NE(reason.find("cuInit: error 34"), std::string::npos) << reason;
}

TEST_F(Gpu, InfoDescribesAGpu)
{
    weir_device_info info;
    weir_device_get_info(device, &info, sizeof info);
    EXPECT_STREQ(info.kind, "gpu");
    EXPECT_STREQ(info.label, "GPU 0");
    EXPECT_EQ(std::string(info.model).substr(0, 6), "NVIDIA");
    EXPECT_GE(info.driver_version, 12000u);
    EXPECT_GE(info.block_threads, 1024u);
    EXPECT_GE(info.multiprocessors, 1u);
    EXPECT_TRUE(info.warps && info.own_cores && info.stream_copies);
    EXPECT_FALSE(info.atomic_to_host);
    EXPECT_EQ(info.resident_threads % info.multiprocessors, 0u);
    EXPECT_GE(info.memory_bytes, UINT64_C(1) << 30);
    const uint8_t zero[16] = { 0 };
    EXPECT_NE(memcmp(info.uuid, zero, 16), 0);
    uint32_t count = 0;
    ASSERT_EQ(weir_device_count("gpu", &count), WEIR_OK);
    std::string past = "gpu:" + std::to_string(count);
    weir_device *other = nullptr;
    EXPECT_EQ(weir_device_open(past.c_str(), nullptr, &other), WEIR_ERR_INVALID);
}

TEST_F(Gpu, FitShapeClampsToWhatIsResident)
{
    weir_device_info info;
    weir_device_get_info(device, &info, sizeof info);
    weir_shape shape = weir_device_fit_shape(device, { 32, 1024 });
    EXPECT_EQ(shape.threads, 1024u);
    EXPECT_EQ(shape.blocks, info.multiprocessors < 32 ? info.multiprocessors : 32u);
    shape = weir_device_fit_shape(device, { 1u << 30, 1u << 30 });
    EXPECT_EQ(shape.threads, info.block_threads);
    EXPECT_GE(shape.blocks, info.multiprocessors);
    EXPECT_LE(static_cast<uint64_t>(shape.blocks) * shape.threads, info.resident_threads);
    shape = weir_device_fit_shape(device, { 0, 0 });
    EXPECT_EQ(shape.blocks, 1u);
    EXPECT_EQ(shape.threads, 1u);
}

TEST_F(Gpu, AllocatedMemoryIsZeroedAndTakesEveryByte)
{
    const size_t bytes = (2u << 20) + 4097;
    weiri_block *block = allocate(bytes);
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(block->size, bytes);
    EXPECT_GE(block->allocated, bytes);
    EXPECT_EQ(block->host_pointer, nullptr);
    EXPECT_EQ(block->export_.base_bytes, block->allocated);
    EXPECT_EQ(read(block->pointer, bytes), std::vector<uint8_t>(bytes, 0));
    std::vector<uint8_t> data = pattern(bytes, 1);
    write(block->pointer, data);
    EXPECT_EQ(read(block->pointer, bytes), data);
    ASSERT_EQ(weir_device_fill(device, static_cast<uint8_t *>(block->pointer) + 5, 0xa5, 1000), WEIR_OK);
    memset(data.data() + 5, 0xa5, 1000);
    EXPECT_EQ(read(block->pointer, bytes), data);
    weiri_block_release(block);
}

TEST_F(Gpu, MemoryBeyondTheGpuIsOutOfMemory)
{
    weiri_block *block = nullptr;
    EXPECT_EQ(weiri_device_allocate(device, WEIR_MEMORY_DEVICE, UINT64_C(1) << 46, &block), WEIR_ERR_NOMEM);
    EXPECT_EQ(block, nullptr);
    EXPECT_NE(std::string(weir_last_error()).find("gpu:0: cuMem"), std::string::npos) << weir_last_error();
    EXPECT_EQ(weiri_device_allocate(device, WEIR_MEMORY_DEVICE, UINT64_MAX, &block), WEIR_ERR_NOMEM);
}

TEST_F(Gpu, HostMemoryIsSeenByCpuAndGpu)
{
    weiri_block *block = allocate(10000, WEIR_MEMORY_HOST);
    ASSERT_NE(block, nullptr);
    ASSERT_NE(block->host_pointer, nullptr);
    EXPECT_EQ(share_name(block), "memfd");
    EXPECT_GE(block->export_.fd, 0);
    std::vector<uint8_t> data = pattern(10000, 2);
    memcpy(block->host_pointer, data.data(), data.size());
    EXPECT_EQ(read(block->pointer, data.size()), data);
    ASSERT_EQ(weir_device_fill(device, block->pointer, 0x3c, 9999), WEIR_OK);
    EXPECT_EQ(static_cast<uint8_t *>(block->host_pointer)[9998], 0x3c);
    EXPECT_EQ(static_cast<uint8_t *>(block->host_pointer)[9999], data[9999]);
    weiri_block_release(block);
}

// Descriptors of a whole allocation and of any part of it; the offset gives the block's place.
TEST_F(Gpu, DmabufOfDeviceMemory)
{
    weiri_block *block = allocate(100000);
    ASSERT_NE(block, nullptr);
    weiri_block part = *block;
    part.pointer = static_cast<uint8_t *>(block->pointer) + 5001;
    part.size = 70000;
    int fd = -1;
    uint64_t offset = 1;
    const weir_status status = device->ops->dmabuf(device, block, &fd, &offset);
    if (status != WEIR_OK) {
        const std::string reason = weir_last_error();
        weiri_block_release(block);
        ASSERT_NE(reason.find("CUDA_ERROR_NOT_SUPPORTED"), std::string::npos) << reason;
        GTEST_SKIP() << reason;
    }
    EXPECT_EQ(offset, 0u);
    EXPECT_EQ(close(fd), 0);
    ASSERT_EQ(device->ops->dmabuf(device, &part, &fd, &offset), WEIR_OK) << weir_last_error();
    EXPECT_EQ(offset, 5001u % static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
    EXPECT_EQ(close(fd), 0);
    weiri_block_release(block);
}

TEST_F(Gpu, PartOfAnOwnAllocationSharesItsDescriptor)
{
    for (weir_memory_kind kind : { WEIR_MEMORY_DEVICE, WEIR_MEMORY_HOST }) {
        weiri_block *whole = allocate(100000, kind);
        ASSERT_NE(whole, nullptr);
        uint8_t *start = static_cast<uint8_t *>(whole->pointer);
        weiri_block *part = nullptr;
        ASSERT_EQ(weiri_device_wrap(device, start + 4321, 1234, &part), WEIR_OK) << weir_last_error();
        EXPECT_EQ(part->pointer, start + 4321);
        EXPECT_EQ(part->size, 1234u);
        EXPECT_EQ(part->allocated, 0u);
        EXPECT_EQ(part->export_.share, whole->export_.share);
        EXPECT_EQ(part->export_.offset, 4321u);
        EXPECT_EQ(part->export_.size, 1234u);
        EXPECT_EQ(part->export_.base, whole->export_.base);
        EXPECT_EQ(part->export_.fd, whole->export_.fd);
        weiri_block *beyond = nullptr;
        EXPECT_EQ(weiri_device_wrap(device, start + 99000, 1001, &beyond), WEIR_ERR_RANGE);
        EXPECT_EQ(beyond, nullptr);
        int fd = part->export_.fd;
        weiri_block_release(whole);
        if (fd >= 0) {
            EXPECT_GE(fcntl(fd, F_GETFD), 0) << "the part still owns the descriptor";
        }
        weiri_block_release(part);
        EXPECT_EQ(fcntl(fd, F_GETFD), -1);
    }
}

struct foreign_case {
    weirt_foreign_kind kind;
    const char *share;
    const char *reason;
};

TEST_F(Gpu, ForeignMemoryIsSharedAsItsKindAllows)
{
    const foreign_case cases[] = {
        { WEIRT_FOREIGN_MALLOC, "ipc", "" },
        { WEIRT_FOREIGN_POOL, "none", "pool" },
        { WEIRT_FOREIGN_HOST, "none", "pinned host memory" },
        { WEIRT_FOREIGN_CUMEM, "none", "requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR" },
        { WEIRT_FOREIGN_CUMEM_FD, "cumem", "" },
    };
    ASSERT_TRUE(weirt_foreign_open());
    for (const foreign_case &c : cases) {
        SCOPED_TRACE(c.kind);
        const uint64_t bytes = 4u << 20;
        uint8_t *pointer = static_cast<uint8_t *>(weirt_foreign_allocate(c.kind, bytes));
        ASSERT_NE(pointer, nullptr);
        weiri_block *part = nullptr;
        ASSERT_EQ(weiri_device_wrap(device, pointer + 12345, 54321, &part), WEIR_OK) << weir_last_error();
        EXPECT_EQ(share_name(part), c.share) << part->reason;
        EXPECT_NE(std::string(part->reason).find(c.reason), std::string::npos) << part->reason;
        EXPECT_EQ(part->pointer, pointer + 12345);
        EXPECT_EQ(part->export_.size, 54321u);
        if (part->export_.share != WEIRI_SHARE_NONE) {
            EXPECT_EQ(part->export_.offset, 12345u);
            EXPECT_EQ(part->export_.base, reinterpret_cast<uint64_t>(pointer));
            EXPECT_EQ(part->export_.base_bytes, bytes);
        }
        EXPECT_EQ(part->export_.fd >= 0, std::string(c.share) == "cumem");
        std::vector<uint8_t> data = pattern(54321, 3);
        write(part->pointer, data);
        EXPECT_EQ(read(part->pointer, data.size()), data);
        weiri_block *beyond = nullptr;
        EXPECT_EQ(weiri_device_wrap(device, pointer + 1, bytes, &beyond), WEIR_ERR_RANGE) << weir_last_error();
        weiri_block_release(part);
        weirt_foreign_free(c.kind, pointer, bytes);
    }
    weirt_foreign_close();
}

TEST_F(Gpu, UnknownPointersAreRefusedWithAdvice)
{
    std::vector<uint8_t> plain(4096);
    weiri_block *block = nullptr;
    EXPECT_EQ(weiri_device_wrap(device, plain.data(), plain.size(), &block), WEIR_ERR_INVALID);
    EXPECT_NE(std::string(weir_last_error()).find("cudaMalloc"), std::string::npos) << weir_last_error();
    EXPECT_EQ(weiri_device_wrap(device, plain.data(), 0, &block), WEIR_ERR_INVALID);
    EXPECT_EQ(weiri_device_wrap(device, plain.data(), UINT64_MAX, &block), WEIR_ERR_INVALID);
    EXPECT_EQ(block, nullptr);
}

TEST_F(Gpu, ImportInTheSameProcessUsesThePointer)
{
    for (weir_memory_kind kind : { WEIR_MEMORY_DEVICE, WEIR_MEMORY_HOST }) {
        weiri_block *whole = allocate(8192, kind);
        ASSERT_NE(whole, nullptr);
        weiri_export description = whole->export_;
        description.offset = 100;
        description.size = 200;
        weiri_block *mapped = nullptr;
        ASSERT_EQ(weiri_device_import(device, &description, true, -1, &mapped), WEIR_OK) << weir_last_error();
        EXPECT_EQ(mapped->pointer, static_cast<uint8_t *>(whole->pointer) + 100);
        EXPECT_EQ(mapped->host_pointer != nullptr, kind == WEIR_MEMORY_HOST);
        EXPECT_EQ(mapped->size, 200u);
        EXPECT_EQ(mapped->allocated, 0u);
        weiri_block_release(mapped);
        EXPECT_EQ(read(whole->pointer, 8192), std::vector<uint8_t>(8192, 0)) << "the import does not own the memory";
        weiri_block_release(whole);
    }
}

TEST_F(Gpu, ImportRefusesWhatDoesNotFit)
{
    weiri_block *whole = allocate(8192);
    ASSERT_NE(whole, nullptr);
    weiri_block *mapped = nullptr;
    weiri_export wrong = whole->export_;
    wrong.offset = wrong.base_bytes - 10;
    wrong.size = 11;
    EXPECT_EQ(weiri_device_import(device, &wrong, false, whole->export_.fd, &mapped), WEIR_ERR_CORRUPT);
    wrong = whole->export_;
    wrong.offset = UINT64_MAX;
    EXPECT_EQ(weiri_device_import(device, &wrong, true, -1, &mapped), WEIR_ERR_CORRUPT);
    if (whole->export_.share == WEIRI_SHARE_CUMEM_FD) {
        wrong = whole->export_;
        wrong.base_bytes += 4096;
        EXPECT_EQ(weiri_device_import(device, &wrong, false, whole->export_.fd, &mapped), WEIR_ERR_CORRUPT);
        wrong = whole->export_;
        wrong.base_bytes *= 8;
        EXPECT_EQ(weiri_device_import(device, &wrong, false, whole->export_.fd, &mapped), WEIR_ERR_CORRUPT)
            << weir_last_error();
        wrong = whole->export_;
        wrong.share = WEIRI_SHARE_MEMFD;
        EXPECT_EQ(weiri_device_import(device, &wrong, false, whole->export_.fd, &mapped), WEIR_ERR_CORRUPT);
        EXPECT_EQ(weiri_device_import(device, &whole->export_, false, -1, &mapped), WEIR_ERR_INVALID);
    }
    weiri_block *host = allocate(4096, WEIR_MEMORY_HOST);
    ASSERT_NE(host, nullptr);
    wrong = host->export_;
    wrong.base_bytes += 4096;
    EXPECT_EQ(weiri_device_import(device, &wrong, false, host->export_.fd, &mapped), WEIR_ERR_CORRUPT);
    EXPECT_EQ(mapped, nullptr);
    weiri_block_release(host);
    weiri_block_release(whole);
}

// Data for the other process of the next case, passed through a pipe.
struct parcel {
    weiri_export description;
    uint32_t seed;
};

// Maps the block twice, checks the owner's bytes through both, and overwrites them.
void visit(weir_device *device, const parcel &received)
{
    const weiri_export &description = received.description;
    std::vector<uint8_t> expected = pattern(description.size, received.seed);
    std::vector<uint8_t> found(description.size);
    weiri_block *first = nullptr;
    weiri_block *second = nullptr;
    ASSERT_EQ(weiri_device_import(device, &description, false, description.fd, &first), WEIR_OK) << weir_last_error();
    ASSERT_EQ(weiri_device_import(device, &description, false, description.fd, &second), WEIR_OK) << weir_last_error();
    weiri_block_release(first);
    ASSERT_EQ(weir_device_copy(device, found.data(), second->pointer, found.size()), WEIR_OK) << weir_last_error();
    EXPECT_EQ(found, expected);
    std::vector<uint8_t> answer = pattern(description.size, received.seed + 100);
    ASSERT_EQ(weir_device_copy(device, second->pointer, answer.data(), answer.size()), WEIR_OK) << weir_last_error();
    weiri_block_release(second);
}

TEST_F(Gpu, AnotherProcessMapsEveryShareableKind)
{
    const size_t bytes = 70001;
    const char name[] = "WEIRT_CUDA_PIPE";
    if (std::getenv(role_variable) != nullptr) {
        parcel received;
        ASSERT_EQ(::read(std::atoi(std::getenv(name)), &received, sizeof received),
                  static_cast<ssize_t>(sizeof received));
        visit(device, received);
        return;
    }
    ASSERT_TRUE(weirt_foreign_open());
    void *legacy = weirt_foreign_allocate(WEIRT_FOREIGN_MALLOC, bytes + 1000);
    void *cumem = weirt_foreign_allocate(WEIRT_FOREIGN_CUMEM_FD, bytes + 1000);
    ASSERT_NE(legacy, nullptr);
    ASSERT_NE(cumem, nullptr);
    weiri_block *blocks[4] = { allocate(bytes), allocate(bytes, WEIR_MEMORY_HOST), nullptr, nullptr };
    ASSERT_EQ(weiri_device_wrap(device, static_cast<uint8_t *>(legacy) + 777, bytes, &blocks[2]), WEIR_OK);
    ASSERT_EQ(weiri_device_wrap(device, static_cast<uint8_t *>(cumem) + 555, bytes, &blocks[3]), WEIR_OK);
    for (uint32_t i = 0; i < 4; i++) {
        SCOPED_TRACE(share_name(blocks[i]) + " " + blocks[i]->reason);
        parcel sent;
        memset(&sent, 0, sizeof sent);
        sent.description = blocks[i]->export_;
        sent.description.fd = blocks[i]->export_.fd < 0 ? -1 : dup(blocks[i]->export_.fd); // kept over exec
        sent.seed = i;
        write(blocks[i]->pointer, pattern(bytes, i));
        int ends[2];
        ASSERT_EQ(pipe(ends), 0);
        ASSERT_EQ(::write(ends[1], &sent, sizeof sent), static_cast<ssize_t>(sizeof sent));
        EXPECT_EQ(
            run_again("Gpu.AnotherProcessMapsEveryShareableKind", "visitor", name, std::to_string(ends[0]).c_str()), 0);
        EXPECT_EQ(read(blocks[i]->pointer, bytes), pattern(bytes, i + 100));
        close(ends[0]);
        close(ends[1]);
        if (sent.description.fd >= 0) {
            close(sent.description.fd);
        }
        weiri_block_release(blocks[i]);
    }
    weirt_foreign_free(WEIRT_FOREIGN_MALLOC, legacy, bytes + 1000);
    weirt_foreign_free(WEIRT_FOREIGN_CUMEM_FD, cumem, bytes + 1000);
    weirt_foreign_close();
}

// Registrations of parts of a user's allocation share its descriptor. The last one closes it.
TEST_F(Gpu, ForeignMemoryHasOneDescriptor)
{
    ASSERT_TRUE(weirt_foreign_open());
    const uint64_t bytes = 4u << 20;
    uint8_t *pointer = static_cast<uint8_t *>(weirt_foreign_allocate(WEIRT_FOREIGN_CUMEM_FD, bytes));
    uint8_t *other = static_cast<uint8_t *>(weirt_foreign_allocate(WEIRT_FOREIGN_CUMEM_FD, bytes));
    ASSERT_NE(pointer, nullptr);
    ASSERT_NE(other, nullptr);
    const uint64_t free_before = weirt_foreign_free_memory();
    for (int round = 0; round < 2; round++) {
        const uint32_t descriptors = weirt_count_descriptors();
        std::vector<weiri_block *> parts(3000);
        for (size_t i = 0; i < parts.size(); i++) {
            ASSERT_EQ(weiri_device_wrap(device, pointer + i * 1000, 1000, &parts[i]), WEIR_OK) << weir_last_error();
            EXPECT_EQ(share_name(parts[i]), "cumem") << parts[i]->reason;
            EXPECT_EQ(parts[i]->export_.fd, parts[0]->export_.fd);
            EXPECT_EQ(parts[i]->export_.offset, i * 1000);
        }
        weiri_block *of_other = nullptr;
        ASSERT_EQ(weiri_device_wrap(device, other, 1000, &of_other), WEIR_OK);
        EXPECT_NE(of_other->export_.fd, parts[0]->export_.fd);
        EXPECT_EQ(weirt_count_descriptors(), descriptors + 2);
        weiri_block_release(of_other);
        for (weiri_block *part : parts) {
            weiri_block_release(part);
        }
        EXPECT_EQ(weirt_count_descriptors(), descriptors);
    }
    EXPECT_EQ(weirt_foreign_free_memory(), free_before);
    weirt_foreign_free(WEIRT_FOREIGN_CUMEM_FD, pointer, bytes);
    weirt_foreign_free(WEIRT_FOREIGN_CUMEM_FD, other, bytes);
    EXPECT_GT(weirt_foreign_free_memory(), free_before); // weir does not keep the memory
    weirt_foreign_close();
}

TEST_F(Gpu, ReleaseLeaksNothing)
{
    ASSERT_TRUE(weirt_foreign_open());
    void *legacy = weirt_foreign_allocate(WEIRT_FOREIGN_MALLOC, 4u << 20);
    ASSERT_NE(legacy, nullptr);
    uint32_t descriptors = 0;
    int64_t allocations = 0;
    uint64_t left = 0;
    for (int round = 0; round < 100; round++) {
        weiri_block *own = allocate(100000);
        weiri_block *host = allocate(5000, WEIR_MEMORY_HOST);
        ASSERT_NE(own, nullptr);
        ASSERT_NE(host, nullptr);
        weiri_block *part = nullptr;
        weiri_block *foreign = nullptr;
        ASSERT_EQ(weiri_device_wrap(device, own->pointer, 1000, &part), WEIR_OK);
        ASSERT_EQ(weiri_device_wrap(device, legacy, 1000, &foreign), WEIR_OK);
        weiri_block_release(foreign);
        weiri_block_release(own);
        weiri_block_release(part);
        weiri_block_release(host);
        if (round == 9) {
            descriptors = weirt_count_descriptors();
            allocations = weirt_count_allocations();
            left = weirt_foreign_free_memory();
        }
    }
    EXPECT_EQ(weirt_count_descriptors(), descriptors);
    EXPECT_EQ(weirt_count_allocations(), allocations);
    EXPECT_GE(weirt_foreign_free_memory() + (64u << 20), left); // other programs may use the GPU
    weirt_foreign_free(WEIRT_FOREIGN_MALLOC, legacy, 4u << 20);
    weirt_foreign_close();
}

TEST_F(Gpu, CallersContextStaysCurrent)
{
    EXPECT_TRUE(weirt_foreign_open());
    void *before = weirt_foreign_current();
    weiri_block *block = allocate(1000);
    weiri_block_release(block);
    EXPECT_EQ(weirt_foreign_current(), before);
    weirt_foreign_close();
    void *outside = weirt_foreign_current();
    block = allocate(1000);
    weiri_block_release(block);
    EXPECT_EQ(weirt_foreign_current(), outside);
}

TEST_F(Gpu, ReachesItselfAndNoCpu)
{
    weir_device_info info;
    weir_device_get_info(device, &info, sizeof info);
    EXPECT_EQ(weiri_cuda_ops.reach(device, "gpu", info.uuid), WEIR_OK);
    EXPECT_EQ(weiri_cuda_ops.reach(device, "cpu", info.uuid), WEIR_ERR_UNSUPPORTED);
    EXPECT_NE(std::string(weir_last_error()).find("cpu"), std::string::npos);
}

const weir_kernel store = { WEIR_DEV_VERSION, sizeof(weirt_foreign_args), "store",
                            nullptr,          weirt_foreign_store,        WEIR_DEV_USED };
const weir_kernel spin = { WEIR_DEV_VERSION, sizeof(weirt_foreign_args), "spin",
                           nullptr,          weirt_foreign_spin,         WEIR_DEV_USED };

class GpuStream : public Gpu {
protected:
    void SetUp() override
    {
        Gpu::SetUp();
        if (device != nullptr) {
            ASSERT_TRUE(weirt_foreign_open());
            ASSERT_EQ(weir_stream_create(device, &stream), WEIR_OK) << weir_last_error();
        }
    }
    void TearDown() override
    {
        if (stream != nullptr) {
            weir_stream_destroy(device, stream);
            weirt_foreign_close();
        }
        Gpu::TearDown();
    }
    void expect_words(const weiri_block *block, uint32_t count, uint32_t first)
    {
        std::vector<uint32_t> words(count);
        ASSERT_EQ(weir_device_copy(device, words.data(), block->pointer, count * 4), WEIR_OK) << weir_last_error();
        for (uint32_t i = 0; i < count; i++) {
            ASSERT_EQ(words[i], first + i);
        }
    }
    void *stream = nullptr;
};

TEST_F(GpuStream, LaunchRunsEveryThread)
{
    weiri_block *block = allocate(7 * 96 * 4);
    ASSERT_NE(block, nullptr);
    weirt_foreign_args args = { static_cast<uint32_t *>(block->pointer), 1000 };
    ASSERT_EQ(weir_kernel_load(device, &store), WEIR_OK) << weir_last_error();
    ASSERT_EQ(weir_launch(device, &store, { 7, 96 }, &args, nullptr, stream), WEIR_OK) << weir_last_error();
    args.value = 0; // the launch has its own copy
    ASSERT_EQ(weir_stream_wait(device, stream, 0), WEIR_OK) << weir_last_error();
    expect_words(block, 7 * 96, 1000);
    weiri_block_release(block);
}

TEST_F(GpuStream, LaunchRefusesWhatCannotRun)
{
    weiri_block *block = allocate(4096);
    ASSERT_NE(block, nullptr);
    weirt_foreign_args args = { static_cast<uint32_t *>(block->pointer), 1 };
    weir_device_info info;
    weir_device_get_info(device, &info, sizeof info);
    EXPECT_EQ(weir_launch(device, &store, { 1, info.block_threads + 1 }, &args, nullptr, stream), WEIR_ERR_LIMIT);
    EXPECT_NE(std::string(weir_last_error()).find(std::to_string(info.block_threads)), std::string::npos);
    weir_launch_opts opts = { sizeof opts, true };
    EXPECT_EQ(weir_launch(device, &store, { 1000000, 256 }, &args, &opts, stream), WEIR_ERR_LIMIT);
    EXPECT_NE(std::string(weir_last_error()).find("1000000 blocks"), std::string::npos) << weir_last_error();
    EXPECT_EQ(weir_launch(device, &store, { 4, 256 }, &args, &opts, stream), WEIR_OK) << weir_last_error();
    EXPECT_EQ(weir_stream_wait(device, stream, 0), WEIR_OK);
    expect_words(block, 1024, 1);
    const weir_kernel cpu_only = { WEIR_DEV_VERSION, sizeof args, "cpu_only", nullptr, nullptr, WEIR_DEV_USED };
    EXPECT_EQ(weir_kernel_load(device, &cpu_only), WEIR_ERR_UNSUPPORTED);
    EXPECT_NE(std::string(weir_last_error()).find("nvcc"), std::string::npos) << weir_last_error();
    weiri_block_release(block);
}

TEST_F(GpuStream, WaitEndsAtTheDeadlineAndTheStreamGoesOn)
{
    weiri_block *flag = allocate(64, WEIR_MEMORY_HOST);
    ASSERT_NE(flag, nullptr);
    weirt_foreign_args args = { static_cast<uint32_t *>(flag->pointer), 0 };
    void *events[2] = { nullptr, nullptr };
    double ms = -1;
    ASSERT_EQ(weir_event_create(device, &events[0]), WEIR_OK);
    ASSERT_EQ(weir_event_create(device, &events[1]), WEIR_OK);
    ASSERT_EQ(weir_event_record(device, events[0], stream), WEIR_OK);
    ASSERT_EQ(weir_launch(device, &spin, { 1, 1 }, &args, nullptr, stream), WEIR_OK) << weir_last_error();
    ASSERT_EQ(weir_event_record(device, events[1], stream), WEIR_OK);
    EXPECT_EQ(weir_event_elapsed(device, events[0], events[1], &ms), WEIR_PENDING);
    auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(weir_stream_wait(device, stream, 150), WEIR_ERR_TIMEOUT);
    EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(150));
    EXPECT_NE(std::string(weir_last_error()).find("weir_stream_wait: gpu:0: "), std::string::npos) << weir_last_error();
    // weir's copies do not wait for the kernel.
    weiri_block *other = allocate(1024);
    EXPECT_EQ(read(other->pointer, 1024), std::vector<uint8_t>(1024, 0));
    EXPECT_EQ(weir_event_elapsed(device, events[0], events[1], &ms), WEIR_PENDING);
    __atomic_store_n(static_cast<uint32_t *>(flag->host_pointer), 1u, __ATOMIC_RELEASE);
    EXPECT_EQ(weir_stream_wait(device, stream, 0), WEIR_OK) << weir_last_error();
    EXPECT_EQ(weir_event_elapsed(device, events[0], events[1], &ms), WEIR_OK) << weir_last_error();
    EXPECT_GE(ms, 140);
    EXPECT_LT(ms, 5000);
    weir_event_destroy(device, events[0]);
    weir_event_destroy(device, events[1]);
    weiri_block_release(other);
    weiri_block_release(flag);
}

TEST_F(GpuStream, EventsThatWereNeverRecordedAreRefused)
{
    void *event = nullptr;
    double ms = -1;
    ASSERT_EQ(weir_event_create(device, &event), WEIR_OK);
    EXPECT_EQ(weir_event_elapsed(device, event, event, &ms), WEIR_ERR_INVALID);
    EXPECT_EQ(ms, -1);
    weir_event_destroy(device, event);
}

TEST_F(GpuStream, GraphRecordsAndReplays)
{
    weiri_block *block = allocate(4096);
    ASSERT_NE(block, nullptr);
    weirt_foreign_args args = { static_cast<uint32_t *>(block->pointer), 500 };
    weir_launch_opts opts = { sizeof opts, true };
    ASSERT_EQ(weir_graph_begin(device, stream), WEIR_OK) << weir_last_error();
    ASSERT_EQ(weir_launch(device, &store, { 4, 256 }, &args, &opts, stream), WEIR_OK) << weir_last_error();
    // Allocating in the middle of a capture neither breaks nor joins it.
    weiri_block *other = allocate(1024);
    EXPECT_EQ(read(other->pointer, 1024), std::vector<uint8_t>(1024, 0));
    void *graph = nullptr;
    ASSERT_EQ(weir_graph_end(device, stream, &graph), WEIR_OK) << weir_last_error();
    EXPECT_EQ(read(block->pointer, 4096), std::vector<uint8_t>(4096, 0)) << "recording runs nothing";
    for (int round = 0; round < 3; round++) {
        ASSERT_EQ(weir_device_fill(device, block->pointer, 0, 4096), WEIR_OK);
        ASSERT_EQ(weir_graph_launch(device, graph, stream), WEIR_OK) << weir_last_error();
        ASSERT_EQ(weir_stream_wait(device, stream, 0), WEIR_OK);
        expect_words(block, 1024, 500);
    }
    weir_graph_destroy(device, graph);
    weiri_block_release(other);
    weiri_block_release(block);
}

const weir_kernel count = { WEIR_DEV_VERSION, sizeof(weirt_foreign_args), "count",
                            nullptr,          weirt_foreign_count,        WEIR_DEV_USED };

const weir_kernel local = { WEIR_DEV_VERSION, sizeof(weirt_foreign_args), "local",
                            nullptr,          weirt_foreign_local,        WEIR_DEV_USED };

// The harness refuses this warning in all other tests: no kernel of libweir needs so much.
TEST_F(GpuStream, KernelsWithMuchLocalMemoryAreLogged)
{
    weirt_checks checks;
    weirt_checks_begin(&checks); /* captures the log */
    weiri_block *block = allocate(4096);
    weirt_foreign_args args = { static_cast<uint32_t *>(block->pointer), 1024 };
    ASSERT_EQ(weir_launch(device, &local, { 1, 32 }, &args, nullptr, stream), WEIR_OK) << weir_last_error();
    ASSERT_EQ(weir_stream_wait(device, stream, 0), WEIR_OK) << weir_last_error();
    std::vector<uint32_t> word(1);
    EXPECT_EQ(weir_device_copy(device, word.data(), block->pointer, 4), WEIR_OK);
    EXPECT_EQ(word[0], 1024u);
    EXPECT_EQ(
        weirt_log_count("gpu:0: kernel local needs 1536 bytes of local memory a thread, and the context has 1024"), 1u);
    weir_log_set_sink(nullptr, nullptr);
    weiri_block_release(block);
}

class GpuLimited : public GpuStream {
protected:
    // False if the driver has no such streams.
    bool create(uint32_t multiprocessors, void **out)
    {
        const weir_stream_limits limits = { sizeof limits, multiprocessors, 0 };
        const weir_status status = weir_stream_create_limited(device, &limits, out);
        if (status == WEIR_ERR_UNSUPPORTED) {
            EXPECT_NE(std::string(weir_last_error()).find("multiprocessors"), std::string::npos) << weir_last_error();
            return false;
        }
        EXPECT_EQ(status, WEIR_OK) << weir_last_error();
        return status == WEIR_OK;
    }
    // The multiprocessors that ran blocks of 20,000, which is more than fit on any GPU at once.
    std::vector<bool> ran_on(void *on, bool graph = false)
    {
        weir_device_info info;
        weir_device_get_info(device, &info, sizeof info);
        weiri_block *block = allocate(4096 * 4);
        weirt_foreign_args args = { static_cast<uint32_t *>(block->pointer), 0 };
        void *made = nullptr;
        EXPECT_TRUE(!graph || weir_graph_begin(device, on) == WEIR_OK);
        EXPECT_EQ(weir_launch(device, &count, { 20000, 64 }, &args, nullptr, on), WEIR_OK) << weir_last_error();
        EXPECT_TRUE(!graph ||
                    (weir_graph_end(device, on, &made) == WEIR_OK && weir_graph_launch(device, made, on) == WEIR_OK))
            << weir_last_error();
        EXPECT_EQ(weir_stream_wait(device, on, 0), WEIR_OK) << weir_last_error();
        weir_graph_destroy(device, made);
        std::vector<uint32_t> words(4096);
        EXPECT_EQ(weir_device_copy(device, words.data(), block->pointer, words.size() * 4), WEIR_OK);
        uint64_t threads = 0;
        std::vector<bool> found(words.size());
        for (size_t i = 0; i < words.size(); i++) {
            threads += words[i];
            found[i] = words[i] != 0;
        }
        EXPECT_EQ(threads, 20000u * 64);
        weiri_block_release(block);
        return found;
    }
    static size_t size_of(const std::vector<bool> &set)
    {
        return static_cast<size_t>(std::count(set.begin(), set.end(), true));
    }
};

// Kernels on a limited stream run on its multiprocessors alone, also in a graph; a second stream has others.
TEST_F(GpuLimited, KernelsStayOnTheMultiprocessorsOfTheStream)
{
    void *limited[2] = { nullptr, nullptr };
    if (!create(1, &limited[0])) {
        GTEST_SKIP() << weir_last_error();
    }
    weir_device_info info;
    weir_device_get_info(device, &info, sizeof info);
    const uint32_t unit = weir_stream_multiprocessors(device, limited[0]);
    EXPECT_GE(unit, 1u);
    EXPECT_LE(unit, info.multiprocessors / 2);
    EXPECT_EQ(weir_stream_multiprocessors(device, stream), info.multiprocessors);
    ASSERT_TRUE(create(unit + 1, &limited[1]));
    EXPECT_EQ(weir_stream_multiprocessors(device, limited[1]), 2 * unit);
    const std::vector<bool> first = ran_on(limited[0]);
    const std::vector<bool> second = ran_on(limited[1]);
    EXPECT_LE(size_of(first), unit);
    EXPECT_LE(size_of(second), 2 * unit);
    EXPECT_GT(size_of(second), unit);
    EXPECT_GT(size_of(ran_on(stream)), 2 * unit) << "other streams are not limited";
    for (size_t i = 0; i < first.size(); i++) {
        EXPECT_FALSE(first[i] && second[i]) << "both streams use multiprocessor " << i;
    }
    EXPECT_LE(size_of(ran_on(limited[0], true)), unit) << "in a graph";
    weir_stream_destroy(device, limited[0]);
    weir_stream_destroy(device, limited[1]);
    EXPECT_EQ(weir_stream_multiprocessors(device, stream), info.multiprocessors);
}

// Two streams divide the whole GPU: the second takes all that the first has left.
TEST_F(GpuLimited, TwoStreamsTakeTheWholeGpu)
{
    void *limited[2] = { nullptr, nullptr };
    if (!create(1, &limited[0])) {
        GTEST_SKIP() << weir_last_error();
    }
    weir_device_info info;
    weir_device_get_info(device, &info, sizeof info);
    const uint32_t few = weir_stream_multiprocessors(device, limited[0]), rest = info.multiprocessors - few;
    ASSERT_TRUE(create(rest, &limited[1]));
    EXPECT_EQ(weir_stream_multiprocessors(device, limited[1]), rest);
    const std::vector<bool> first = ran_on(limited[0]);
    const std::vector<bool> second = ran_on(limited[1]);
    EXPECT_EQ(size_of(first), few);
    EXPECT_EQ(size_of(second), rest);
    for (size_t i = 0; i < first.size(); i++) {
        EXPECT_FALSE(first[i] && second[i]) << "both streams use multiprocessor " << i;
    }
    weir_stream_destroy(device, limited[1]);
    ASSERT_TRUE(create(info.multiprocessors, &limited[1]));
    EXPECT_EQ(size_of(ran_on(limited[1])), info.multiprocessors);
    weir_stream_destroy(device, limited[0]);
    weir_stream_destroy(device, limited[1]);
}

TEST_F(GpuLimited, LimitsThatCannotBe)
{
    void *limited = nullptr;
    weir_device_info info;
    weir_device_get_info(device, &info, sizeof info);
    if (!create(1, &limited)) {
        GTEST_SKIP() << weir_last_error();
    }
    weiri_block *block = allocate(1 << 20);
    weirt_foreign_args args = { static_cast<uint32_t *>(block->pointer), 7 };
    weir_launch_opts opts = { sizeof opts, true };
    const uint32_t unit = weir_stream_multiprocessors(device, limited);
    EXPECT_EQ(weir_launch(device, &store, { unit * 2 + 1, 1024 }, &args, &opts, limited), WEIR_ERR_LIMIT);
    EXPECT_NE(std::string(weir_last_error()).find("on " + std::to_string(unit) + " multiprocessors"), std::string::npos)
        << weir_last_error();
    EXPECT_EQ(weir_launch(device, &store, { unit, 1024 }, &args, &opts, limited), WEIR_OK) << weir_last_error();
    EXPECT_EQ(weir_stream_wait(device, limited, 0), WEIR_OK) << weir_last_error();
    expect_words(block, unit * 1024, 7);
    weir_stream_destroy(device, limited);
    limited = nullptr;
    for (uint32_t wrong : { info.multiprocessors + 1, UINT32_MAX }) {
        const weir_stream_limits limits = { sizeof limits, wrong, 0 };
        EXPECT_EQ(weir_stream_create_limited(device, &limits, &limited), WEIR_ERR_LIMIT);
        EXPECT_NE(std::string(weir_last_error()).find("limits.multiprocessors is " + std::to_string(wrong)),
                  std::string::npos)
            << weir_last_error();
    }
    EXPECT_EQ(limited, nullptr);
    weiri_block_release(block);
}

TEST_F(Gpu, ThreadsCopyAtTheSameTime)
{
    std::vector<std::thread> threads;
    std::vector<int> wrong(4, -1);
    for (int t = 0; t < 4; t++) {
        threads.emplace_back([this, t, &wrong] {
            weiri_block *block = nullptr;
            if (weiri_device_allocate(device, WEIR_MEMORY_DEVICE, 30000, &block) != WEIR_OK) {
                return;
            }
            wrong[t] = 0;
            for (uint32_t round = 0; round < 20; round++) {
                std::vector<uint8_t> data = pattern(30000, round * 4 + static_cast<uint32_t>(t));
                std::vector<uint8_t> found(data.size());
                if (weir_device_copy(device, block->pointer, data.data(), data.size()) != WEIR_OK ||
                    weir_device_copy(device, found.data(), block->pointer, found.size()) != WEIR_OK || found != data) {
                    wrong[t]++;
                }
            }
            weiri_block_release(block);
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

// Each family of libweir's kernels is loaded, or refused with the reason why the build has left it out.
TEST_F(Gpu, FamiliesThatWereLeftOutAreRefusedByName)
{
    for (const weiri_kernel_family &family : weiri_kernel_families) {
        const weir_kernel *kernel = family.kernels[0];
        if (family.module[0] != 0) {
            EXPECT_EQ(weir_kernel_load(device, kernel), WEIR_OK) << weir_last_error();
            continue;
        }
        ASSERT_EQ(weir_kernel_load(device, kernel), WEIR_ERR_UNSUPPORTED) << kernel->name;
        const std::string reason = reinterpret_cast<const char *>(family.module) + 1;
        EXPECT_EQ(reason.rfind("libweir was built without", 0), 0u) << reason;
        EXPECT_EQ(weir_last_error(), std::string("weir_kernel_load: gpu:0: kernel ") + kernel->name + ": " + reason);
    }
}

} // namespace
