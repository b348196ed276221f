// src/mpi/host.c: which memory it knows to be the host's.
#include <cstdio>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

extern "C" {
#include "src/mpi/host.h"
}

namespace {

#if __GLIBC_PREREQ(2, 35)
TEST(MpiHost, KnowsStaticVariables)
{
    static char zeros[1 << 20];
    static char values[64] = "a value";
    EXPECT_TRUE(weiri_mpi_host_owns(zeros) && weiri_mpi_host_owns(zeros + sizeof zeros - 1));
    EXPECT_TRUE(weiri_mpi_host_owns(values));
    EXPECT_TRUE(weiri_mpi_host_owns(stdin)); // of a library
}
#endif

// The address sanitizer may keep variables outside of the stack, but not frames. Its allocator does not use brk, so the
// heap grows here.
TEST(MpiHost, KnowsTheStackAndTheHeap)
{
    auto *on_stack = static_cast<char *>(__builtin_frame_address(0));
    EXPECT_TRUE(weiri_mpi_host_owns(on_stack) && weiri_mpi_host_owns(on_stack + 1));
    auto *grown = static_cast<char *>(sbrk(4096));
    ASSERT_NE(grown, reinterpret_cast<char *>(-1));
    EXPECT_TRUE(weiri_mpi_host_owns(grown) && weiri_mpi_host_owns(grown + 4095));
    auto *end = static_cast<char *>(sbrk(0));
    EXPECT_TRUE(weiri_mpi_host_owns(end - 1));
    EXPECT_FALSE(weiri_mpi_host_owns(end));
}

// A driver maps memory of a device wherever mmap does.
TEST(MpiHost, DoesNotKnowOtherMemory)
{
    constexpr size_t bytes = size_t{ 1 } << 20;
    void *mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    EXPECT_FALSE(weiri_mpi_host_owns(mapped));
    EXPECT_FALSE(weiri_mpi_host_owns(nullptr));
    EXPECT_FALSE(weiri_mpi_host_owns(reinterpret_cast<void *>(UINTPTR_MAX)));
    (void)munmap(mapped, bytes);
}

// The stack of a thread is known to that thread alone.
TEST(MpiHost, StacksOfThreads)
{
    auto *here = static_cast<char *>(__builtin_frame_address(0));
    std::vector<bool> found;
    std::thread other([&] {
        auto *there = static_cast<char *>(__builtin_frame_address(0));
        found = { weiri_mpi_host_owns(there), weiri_mpi_host_owns(here) };
    });
    other.join();
    EXPECT_EQ(found, (std::vector<bool>{ true, false }));
}

} // namespace
