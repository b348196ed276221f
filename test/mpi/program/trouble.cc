// Threads, errors, forks, ranks that end early, and calls outside of MPI_Init and MPI_Finalize.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "test/mpi/program/program.h"

namespace {

constexpr int tag = 7;

// A message of this rank to the other one, and one from there.
void exchange(int from_tag, int seed)
{
    const weirt_mpi_type rows(weirt_vector(40, 3, 7, weirt_bytes(1)));
    items out(rows.get(), 1, seed + my_rank());
    items in(rows.get(), 1, 500);
    MPI_Request request;
    MPI_Irecv(in.origin(), 1, rows.get(), other_rank(), from_tag, MPI_COMM_WORLD, &request);
    MPI_Send(out.origin(), 1, rows.get(), other_rank(), from_tag, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(in.packed() == items(rows.get(), 1, seed + other_rank()).packed());
}

// The work of one of several threads: with its own datatypes, and with one that all threads share.
void work_as_thread(int thread, MPI_Datatype shared)
{
    for (int i = 0; i < 20; i++) {
        const weirt_mpi_type rows(weirt_vector(30 + thread, 2, 5 + i, weirt_bytes(1)));
        for (MPI_Datatype type : { rows.get(), shared }) {
            items from(type, 1, i);
            std::vector<uint8_t> packed(static_cast<size_t>(size_of(type, 1)));
            int position = 0;
            MPI_Pack(from.origin(), 1, type, packed.data(), static_cast<int>(packed.size()), &position, MPI_COMM_WORLD);
            CHECK(packed == from.packed());
        }
        exchange(tag + thread, 10 * thread + i);
        items out(shared, 2, i + my_rank());
        items in(shared, 2, 500);
        MPI_Request requests[2];
        int done = 0;
        MPI_Irecv(in.origin(), 2, shared, other_rank(), tag + 10 + thread, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(out.origin(), 2, shared, other_rank(), tag + 10 + thread, MPI_COMM_WORLD, &requests[1]);
        while (done == 0) {
            MPI_Testall(2, requests, &done, MPI_STATUSES_IGNORE);
        }
        CHECK(in.packed() == items(shared, 2, i + other_rank()).packed());
    }
}

// Four threads of each rank pack, send and receive at once. The shared datatype is a duplicate, which the
// library meets at its first use.
void threads()
{
    int provided = MPI_THREAD_SINGLE;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
    if (provided == MPI_THREAD_MULTIPLE) {
        const weirt_mpi_type rows(weirt_vector(50, 3, 7, weirt_bytes(1)));
        MPI_Datatype shared = MPI_DATATYPE_NULL;
        MPI_Type_dup(rows.get(), &shared);
        std::vector<std::thread> all;
        for (int t = 0; t < 4; t++) {
            all.emplace_back(work_as_thread, t, shared);
        }
        for (std::thread &one : all) {
            one.join();
        }
        MPI_Type_free(&shared);
    }
    MPI_Finalize();
}

int errors_seen;

void count_error(MPI_Comm *, int *, ...) { errors_seen++; }

int class_of(int status)
{
    int code = MPI_SUCCESS;
    MPI_Error_class(status, &code);
    return code;
}

// Each mistake is MPI's own error, and its error handler runs once.
void error_handlers()
{
    MPI_Comm comm;
    MPI_Errhandler handler;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_errhandler(count_error, &handler);
    const weirt_mpi_type rows(weirt_vector(4, 2, 5, weirt_bytes(1)));
    items buffer(rows.get(), 1, 3);
    const buffer_bytes before = buffer.bytes;
    void *at = buffer.origin();
    MPI_Request request = MPI_REQUEST_NULL;
    for (const bool counted : { false, true }) {
        MPI_Comm_set_errhandler(comm, counted ? handler : MPI_ERRORS_RETURN);
        errors_seen = 0;
        CHECK(class_of(MPI_Send(at, 1, rows.get(), 99, tag, comm)) == MPI_ERR_RANK);
        CHECK(class_of(MPI_Ssend(at, 1, rows.get(), 1, -5, comm)) == MPI_ERR_TAG);
        CHECK(class_of(MPI_Recv(at, -1, rows.get(), 0, tag, comm, MPI_STATUS_IGNORE)) == MPI_ERR_COUNT);
        CHECK(class_of(MPI_Isend(at, 1, MPI_DATATYPE_NULL, 0, tag, comm, &request)) == MPI_ERR_TYPE);
        CHECK(class_of(MPI_Irecv(at, 1, rows.get(), 99, tag, comm, &request)) == MPI_ERR_RANK);
        CHECK(class_of(MPI_Send_init(at, 1, rows.get(), 99, tag, comm, &request)) == MPI_ERR_RANK);
        CHECK(class_of(MPI_Recv_init(at, 1, rows.get(), 99, tag, comm, &request)) == MPI_ERR_RANK);
        CHECK(class_of(MPI_Sendrecv(at, 1, rows.get(), 99, tag, at, 1, rows.get(), 0, tag, comm, MPI_STATUS_IGNORE)) ==
              MPI_ERR_RANK);
        CHECK(errors_seen == (counted ? 8 : 0));
    }
    CHECK(buffer.bytes == before);
    MPI_Errhandler_free(&handler);
    MPI_Comm_free(&comm);
    exchange(tag, 3);
}

// Children of fork end without MPI: at once, after the destructors of all libraries, and as another program. The parent
// goes on.
void forks()
{
    void (*const ends[])() = {
        [] { _exit(42); },
        [] { exit(42); },
        [] { (void)execlp("sh", "sh", "-c", "exit 42", nullptr); },
    };
    exchange(tag, 1);
    for (void (*end)() : ends) {
        (void)fflush(nullptr); // the child would write it too
        const pid_t child = fork();
        if (child == 0) {
            end();
        }
        int status = 0;
        CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 42);
        exchange(tag, 2);
    }
    CHECK(system("true") == 0);
    exchange(tag, 3);
}

// Mappings of memory that weir's CPU device has allocated. Without libweir-mpi there are none.
int count_mappings()
{
    int count = 0;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        count += line.find("memfd:weir") != std::string::npos;
    }
    return count;
}

// Receives that nothing ever completes, and sends whose requests are not completed.
void unfinished()
{
    MPI_Init(nullptr, nullptr);
    MPI_Datatype rows;
    MPI_Type_vector(40, 3, 7, MPI_BYTE, &rows);
    MPI_Type_commit(&rows);
    static items buffer(rows, 1, 3);
    static items again(rows, 1, 3);
    MPI_Request request;
    MPI_Irecv(buffer.origin(), 1, rows, other_rank(), tag + 1, MPI_COMM_WORLD, &request);
    MPI_Recv_init(buffer.origin(), 1, rows, other_rank(), tag + 2, MPI_COMM_WORLD, &request);
    MPI_Start(&request);
    MPI_Isend(again.origin(), 1, rows, other_rank(), tag, MPI_COMM_WORLD, &request);
    items in(rows, 1, 500);
    MPI_Recv(in.origin(), 1, rows, other_rank(), tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(in.packed() == again.packed());
    exchange(tag + 3, 1);
    const bool staged = count_mappings() != 0;
    MPI_Type_free(&rows);
    MPI_Finalize();
    CHECK(count_mappings() == 0);
    printf("unfinished: %s a stage\n", staged ? "with" : "without");
}

// MPI ends the program with its own text.
void before_init()
{
    const int from = 1;
    int packed = 0;
    int position = 0;
    MPI_Pack(&from, 1, MPI_INT, &packed, sizeof packed, &position, MPI_COMM_WORLD);
}

void after_finalize()
{
    MPI_Init(nullptr, nullptr);
    MPI_Finalize();
    before_init();
}

// mpirun ends the job.
void killed()
{
    MPI_Init(nullptr, nullptr);
    exchange(tag, 1);
    if (my_rank() == 1) {
        raise(SIGKILL);
    }
    exchange(tag, 2);
    printf("a killed rank has sent a message\n");
}

// A rank ends without MPI_Finalize while requests are under way.
void exits()
{
    MPI_Init(nullptr, nullptr);
    static items buffer(MPI_INT, 4, 3);
    MPI_Request request;
    exchange(tag, 1);
    MPI_Irecv(buffer.origin(), 4, MPI_INT, other_rank(), tag + 1, MPI_COMM_WORLD, &request);
    if (my_rank() == 1) {
        exit(5);
    }
    exchange(tag, 2);
}

void aborts()
{
    MPI_Init(nullptr, nullptr);
    exchange(tag, 1);
    if (my_rank() == 1) {
        MPI_Abort(MPI_COMM_WORLD, 7);
    }
    exchange(tag, 2);
}

} // namespace

const std::vector<mpi_case> trouble_cases = {
    { "threads", threads, true },
    { "error_handlers", error_handlers, false },
    { "forks", forks, false },
    { "unfinished", unfinished, true },
    { "before_init", before_init, true },
    { "after_finalize", after_finalize, true },
    { "killed", killed, true },
    { "exits", exits, true },
    { "aborts", aborts, true },
};
