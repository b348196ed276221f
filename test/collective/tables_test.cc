// Ranks with tuning files of their own, which differ in one field.
#include <cstdlib>
#include <fstream>

#include <unistd.h>

#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

WEIRT_PROCESS_SUITE(CollectiveTables);

// Creates a collective with a tuning file of this row.
weir_status create_by(const weirt_comm *comm, const char *row)
{
    char path[] = "/tmp/weir-tables-XXXXXX";
    weir_collective *collective = nullptr;
    const int fd = mkstemp(path);
    if (fd < 0) {
        return WEIR_ERR_ENV;
    }
    close(fd);
    std::ofstream(path) << row << "\n";
    setenv("WEIR_COLLECTIVE_TABLE", path, 1);
    const weir_status status = weir_collective_create(comm->comm, nullptr, &collective);
    unsetenv("WEIR_COLLECTIVE_TABLE");
    unlink(path);
    weir_collective_destroy(collective);
    return status;
}

void compared(weirt_rank *rank)
{
    static const char first[] = "allreduce 2 4096 packets 1 32 8";
    static const char *const others[] = {
        "allreduce 2 4096 packets 1 32 9", "allreduce 2 4096 packets 1 32", "allreduce 2 4096 packets 1 64 8",
        "allreduce 2 4096 packets 2 32 8", "allreduce 2 4096 lines 1 32 8", "allreduce 2 4097 packets 1 32 8",
        "allreduce 3 4096 packets 1 32 8", "reduce 2 4096 packets 1 32 8",  "# no row"
    };
    weirt_comm comm;
    bool good = weirt_comm_open(rank, 0, &comm);
    for (const char *other : others) {
        good = good && WEIRT_STATUS(rank, WEIR_ERR_MISMATCH, create_by(&comm, rank->rank == 1 ? other : first)) &&
               WEIRT_TEXT(rank, "another tuning file") && weirt_barrier(rank);
    }
    (void)(good && WEIRT_OK(rank, create_by(&comm, first)) && WEIRT_OK(rank, weir_comm_status(comm.comm)));
    (void)weirt_barrier(rank);
    weirt_comm_close(&comm);
}

TEST_P(CollectiveTables, MustBeTheSame) { run(2, compared); }

} // namespace
