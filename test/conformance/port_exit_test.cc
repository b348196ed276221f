// A rank returns from main or calls exit while proxies, kernels and libraries of its transport work.
#include "port.h"

namespace {

PORT_SUITE(PortExit, PORT_IPC, PORT_IB, PORT_OFI, PORT_DEVICE, PORT_DEVX);

void returns_from_main(weirt_rank *rank)
{
    weirt_log_allow(" failed: ");
    port_bench b;
    if (b.open(rank, 0, 8192) && weirt_barrier(rank)) {
        port_transfer_args args = {};
        args.channel = b.device;
        weir_grid_barrier_device(b.barrier, &args.barrier);
        args.report = b.device_report();
        args.local = static_cast<char *>(weir_memory_pointer(b.local));
        args.half = b.half;
        args.first = 8;
        args.last = 4096;
        args.step = 8;
        args.rounds = 1000000;
        args.op = PORT_PUT_SIGNAL;
        args.group = PORT_GRID;
        args.rank = rank->rank;
        args.peer = b.peer;
        b.launch(rank, port_transfer_kernel(), weir_shape{ 1, 1 }, &args, true);
        const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
        if (rank->rank == 1) {
            weirt_sleep_ms(20); // any moment will do
            weirt_die(rank, WEIRT_RETURN);
        }
        while (weir_comm_status(b.comm.comm) == WEIR_OK && weirt_now_ms() < end) {
            weirt_sleep_ms(1);
        }
        WEIRT_EXPECT(rank, weir_comm_status(b.comm.comm) != WEIR_OK);
        WEIRT_EXPECT(rank, weir_comm_wait(b.comm.comm, b.stream, weirt_timeout_ms()) != WEIR_OK);
    }
    b.close(rank, false);
}

TEST_P(PortExit, ProcessEndsWhileItsThreadsWork)
{
    if (!stage()->processes) {
        GTEST_SKIP() << "only a process can end";
    }
    run(returns_from_main, plan());
}

} // namespace
