// The transport between two ranks that do not have, or may not use, the same transports.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

// The settings of each rank, and the result of a connection between them.
struct negotiation {
    const char *order[2]; // WEIR_TRANSPORT
    const char *only[2];  // weir_connection_opts.transport
    uint32_t without_ofi; // 1 << rank: libfabric cannot be loaded there
    weir_status expected[2];
    const char *result; // the transport's name, or a part of both error texts
};

const negotiation cases[] = {
    { { "", "" }, { nullptr, nullptr }, 0, { WEIR_OK, WEIR_OK }, "ipc" },
    { { "ofi", "" }, { nullptr, nullptr }, 0, { WEIR_OK, WEIR_OK }, "ofi" },
    { { "", "ofi" }, { nullptr, nullptr }, 0, { WEIR_OK, WEIR_OK }, "ofi" },
    { { "ofi,ipc", "ipc,ofi" }, { nullptr, nullptr }, 0, { WEIR_OK, WEIR_OK }, "ofi" },
    { { "ipc,ofi", "ofi,ipc" }, { nullptr, nullptr }, 0, { WEIR_OK, WEIR_OK }, "ipc" },
    { { "ofi,ipc", "ofi,ipc" }, { nullptr, nullptr }, 2, { WEIR_OK, WEIR_OK }, "ipc" },
    { { "ofi,ipc", "" }, { nullptr, nullptr }, 1, { WEIR_OK, WEIR_OK }, "ipc" },
    { { "ofi", "ofi" }, { nullptr, nullptr }, 1, { WEIR_ERR_UNSUPPORTED, WEIR_ERR_UNSUPPORTED }, "ofi: " },
    { { "ofi", "ipc" }, { nullptr, nullptr }, 0, { WEIR_ERR_UNSUPPORTED, WEIR_ERR_UNSUPPORTED }, "ofi: rank 1" },
    { { "", "" }, { "ipc", "ofi" }, 0, { WEIR_ERR_MISMATCH, WEIR_ERR_MISMATCH }, "ofi" },
    { { "", "" }, { "ofi", "ofi" }, 0, { WEIR_OK, WEIR_OK }, "ofi" },
    { { "ipc", "ipc" }, { "ofi", "ofi" }, 0, { WEIR_OK, WEIR_OK }, "ipc" },
};

constexpr uint32_t CASES = sizeof cases / sizeof cases[0];

bool has_ofi()
{
    weir_transport_info info;
    for (uint32_t i = 0; weir_transport_get(i, &info) == WEIR_OK; i++) {
        if (std::strcmp(info.name, "ofi") == 0) {
            return info.works;
        }
    }
    return false;
}

// Whether this process has loaded libfabric.
bool has_loaded_libfabric()
{
    char line[512];
    bool found = false;
    std::FILE *maps = std::fopen("/proc/self/maps", "r");
    while (maps != nullptr && std::fgets(line, sizeof line, maps) != nullptr) {
        found = found || std::strstr(line, "libfabric") != nullptr;
    }
    if (maps != nullptr) {
        std::fclose(maps);
    }
    return found;
}

void negotiate(weirt_rank *rank)
{
    const uint32_t index = *static_cast<const uint32_t *>(rank->arg);
    const negotiation &what = cases[index];
    setenv("WEIR_TRANSPORT", what.order[rank->rank], 1);
    if ((what.without_ofi >> rank->rank & 1) != 0) {
        setenv("WEIR_OFI_LIBRARY", "/nonexistent/libfabric.so", 1);
    }
    weirt_comm c;
    weir_connection *connection = nullptr;
    const weir_status expected = what.expected[rank->rank];
    weir_connection_opts opts = { sizeof opts, what.only[rank->rank] };
    if (weirt_comm_open(rank, 0, &c) &&
        WEIRT_STATUS(rank, expected, weir_connection_create(c.comm, 1 - rank->rank, 1, &opts, &connection))) {
        if (expected == WEIR_OK) {
            WEIRT_EXPECT(rank, std::string(weir_connection_transport(connection)) == what.result);
        } else {
            WEIRT_TEXT(rank, what.result);
        }
        if (expected == WEIR_ERR_MISMATCH) {
            WEIRT_TEXT(rank, "ipc");
        }
        // A transport that no rank names is not probed.
        WEIRT_EXPECT(rank, index != 0 || !has_loaded_libfabric());
        WEIRT_OK(rank, weir_comm_status(c.comm));
    }
    weirt_barrier(rank);
    weir_connection_destroy(connection);
    weirt_comm_close(&c);
}

class Negotiation : public ::testing::TestWithParam<uint32_t> {};

// Ranks are processes with separate environments.
TEST_P(Negotiation, RanksTakeWhatBothHave)
{
    const uint32_t index = GetParam();
    const negotiation &what = cases[index];
    if (std::strcmp(weirt_sanitizer(), "thread") == 0) {
        GTEST_SKIP() << "libfabric is not built with the thread sanitizer";
    }
    if (std::strcmp(what.result, "ofi") == 0 && !has_ofi()) {
        GTEST_SKIP() << "transport ofi does not work here";
    }
    weirt_ranks_run(&weirt_stages[1], 2, negotiate, &index, sizeof index);
}

INSTANTIATE_TEST_SUITE_P(Cases, Negotiation, ::testing::Range(0u, CASES));

} // namespace
