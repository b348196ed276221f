// The trace: posts and their results in words.
#include <unistd.h>

#include <cinttypes>
#include <cstdarg>
#include <fstream>
#include <iterator>

#include "nic.h"

using weirt::Nic;
using weirt::Options;

WEIRT_NIC_SUITE(SwnicTrace);

namespace {

// A put and a signal, a write with immediate, and a write with a wrong key.
void put_and_signal(weirt_rank *rank)
{
    Options options;
    options.receives = 4;
    Nic nic(rank, options);
    if (!nic.open()) {
        return;
    }
    WEIRT_EXPECT(rank, nic.receive(0) == 0);
    nic.meet();
    if (rank->rank == 0) {
        nic.memory[0] = 7;
        WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 4096, 8192, 4000) == 0);
        nic.done();
        WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, 64, 8, IBV_SEND_SIGNALED | IBV_SEND_INLINE) == 0);
        nic.done();
        WEIRT_EXPECT(rank, nic.post_immediate(0, 64, 8, 0x2beef) == 0);
        nic.done();
        WEIRT_EXPECT(rank, nic.post_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 1 << 20, 5, 0) == 0);
        nic.done(IBV_WC_REM_ACCESS_ERR);
        nic.meeting->number = nic.qps[0]->qp_num;
    }
    nic.meet();
}

std::string text(const char *format, ...)
{
    char line[512];
    va_list list;
    va_start(list, format);
    std::vsnprintf(line, sizeof line, format, list);
    va_end(list);
    return line;
}

TEST_P(SwnicTrace, PutAndSignal)
{
    const std::string name = testing::TempDir() + "swnic-trace-" + std::to_string(getpid());
    setenv("SWNIC_TRACE", name.c_str(), 1);
    run(put_and_signal);
    unsetenv("SWNIC_TRACE");
    std::ifstream file(name);
    const std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    std::remove(name.c_str());

    const uint32_t qp = static_cast<uint32_t>(meeting.number);
    const weirt::Meeting::Offer &own = meeting.offer[0], &peer = meeting.offer[1];
    const std::string expected[] = {
        text("qp %06x doorbell 00000008%06x03: ready up to 1, record 1\n", qp, qp),
        text("qp %06x request 0: write, segments 3, completes, bytes 4000, remote %#" PRIx64 " key %08x, "
             "4000 at %#" PRIx64 " key %08x\n",
             qp, peer.address + 8192, peer.key, own.address + 4096, own.key),
        text("qp %06x completion of 0: done\n", qp),
        text("qp %06x request 1: write, segments 3, completes, bytes 8, remote %#" PRIx64 " key %08x, "
             "inline 07 00 00 00 00 00 00 00\n",
             qp, peer.address + 64, peer.key),
        text("qp %06x completion of 1: done\n", qp),
        text("qp %06x request 2: write with immediate, segments 3, completes, bytes 8, remote %#" PRIx64 " key %08x, "
             "immediate 0002beef, 8 at %#" PRIx64 " key %08x\n",
             qp, peer.address + 64, peer.key, own.address, own.key),
        text("qp %06x receive 0: immediate 0002beef, bytes 8\n", peer.number[0]),
        text("qp %06x completion of 2: done\n", qp),
        text("qp %06x request 3: fetch-add, segments 4, completes, bytes 8, remote %#" PRIx64 " key %08x, operand 5, "
             "8 at %#" PRIx64 " key %08x\n",
             qp, peer.address + (1 << 20), peer.key, own.address + 8, own.key),
        text("qp %06x completion of 3: syndrome 13, refused by the peer: key, range or rights\n", qp),
    };
    size_t at = 0;
    for (const std::string &line : expected) {
        const size_t found = all.find(line, at);
        ASSERT_NE(found, std::string::npos) << line << "is not, or not here, in\n" << all;
        at = found;
    }
}

} // namespace
