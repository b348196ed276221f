// Lists of CPUs as the kernel writes them, and placement of a thread.
#include <gtest/gtest.h>

#include <pthread.h>
#include <sched.h>

#include <string>
#include <thread>

extern "C" {
#include "src/host/base/cpus.h"
}

namespace {

std::string parsed(const char *text)
{
    weiri_cpus cpus;
    std::string list;
    if (!weiri_cpus_parse(text, &cpus)) {
        return "none";
    }
    for (uint32_t i = 0; i < WEIRI_CPUS_MAX; i++) {
        if ((cpus.bits[i / 64] >> i % 64 & 1) != 0) {
            list += std::to_string(i) + " ";
        }
    }
    return list;
}

TEST(Cpus, ListsAreParsed)
{
    EXPECT_EQ(parsed("0\n"), "0 ");
    EXPECT_EQ(parsed("0-3"), "0 1 2 3 ");
    EXPECT_EQ(parsed("0-1,63-65,4095\n"), "0 1 63 64 65 4095 ");
    EXPECT_EQ(parsed("4094-9999999,2"), "2 4094 4095 ");
}

TEST(Cpus, WhatIsNoListIsRefused)
{
    for (const char *text :
         { "", "\n", "a", "-1", "1-", "1,", "3-1", "1-2-3", "1 2", "1\n2", "0x1", "4096", "12345678", ",1", "1-2x" }) {
        EXPECT_EQ(parsed(text), "none") << text;
    }
}

TEST(Cpus, UnknownDevicesAreNearNothing)
{
    weiri_cpus cpus;
    EXPECT_FALSE(weiri_cpus_near("", &cpus));
    EXPECT_FALSE(weiri_cpus_near("ffff:ff:1f.7", &cpus));
    EXPECT_FALSE(weiri_cpus_near(std::string(200, 'x').c_str(), &cpus));
}

// Only the placed thread moves, and only to allowed CPUs.
TEST(Cpus, OneThreadIsPlaced)
{
    cpu_set_t before, after;
    ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
    int first = 0;
    while (!CPU_ISSET(first, &before)) {
        first++;
    }
    std::thread([&] {
        weiri_cpus cpus = {};
        cpu_set_t mine;
        EXPECT_FALSE(weiri_cpus_pin(&cpus));
        cpus.bits[static_cast<uint32_t>(first) / 64] |= uint64_t{ 1 } << first % 64;
        cpus.bits[WEIRI_CPUS_MAX / 64 - 1] |= uint64_t{ 1 } << 63; // a CPU that does not exist
        EXPECT_TRUE(weiri_cpus_pin(&cpus));
        ASSERT_EQ(sched_getaffinity(0, sizeof mine, &mine), 0);
        EXPECT_EQ(CPU_COUNT(&mine), 1);
        EXPECT_TRUE(CPU_ISSET(first, &mine));
    }).join();
    ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
    EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

} // namespace
