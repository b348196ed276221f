// Failures of collectives; graphs, groups, and several collectives at the same time.
#include <fstream>

#include <unistd.h>

#include "test/collective/algorithm_kernels.h"
#include "test/collective/operations.h"
#include "test/harness/checks.h"
#include "test/harness/stage_test.h"

namespace {

weir_collective_opts small_opts(const weirt_rank *rank)
{
    weir_collective_opts opts = {};
    opts.size = sizeof opts;
    opts.staging_bytes = 4 << 20;
    if (std::strcmp(rank->stage->kind, "cpu") == 0) {
        opts.blocks = 1;
        opts.threads = 2;
    }
    return opts;
}

Operation sum_of(uint64_t count, uint64_t seed)
{
    return { ALLREDUCE, WEIR_F32, WEIR_SUM, count, 0, 0, false, true, seed };
}

// ---- arguments ---------------------------------------------------------------------------------------------------

void refused(const Bench *b, const char *part, weir_status status, weir_status expected_status = WEIR_ERR_INVALID)
{
    if (status != expected_status) {
        weirt_fail(b->rank, __FILE__, __LINE__, "%s: status %d", part, status);
    }
    WEIRT_TEXT(b->rank, part);
}

void refused_factors(const Bench *b)
{
    weir_collective *c = b->collective;
    char *in = static_cast<char *>(weir_memory_pointer(b->in));
    char *out = static_cast<char *>(weir_memory_pointer(b->out));
    const weir_extent extents[2] = { { 0, 1 }, { 1, 1 } };
    const char *only = "weir_allreduce: SCALED_SUM is only for F64, F32, F16 and BF16";
    weir_factor factor = { 0.5, in, WEIR_F32 };
    refused(b, "weir_allreduce: SCALED_SUM without a factor: call weir_collective_set_factor first",
            weir_allreduce(c, in, out, 1, WEIR_F32, WEIR_SCALED_SUM, b->stream));
    refused(b, "weir_collective_set_factor: factor is NULL", weir_collective_set_factor(c, nullptr));
    factor.memory = in + 2;
    refused(b, "weir_collective_set_factor: memory is not aligned", weir_collective_set_factor(c, &factor));
    factor.memory = reinterpret_cast<void *>(static_cast<uintptr_t>(256));
    refused(b, "weir_collective_set_factor: memory: ", weir_collective_set_factor(c, &factor));
    factor.dtype = WEIR_I32;
    refused(b, "weir_collective_set_factor: the type of the factor in memory is not F64, F32, F16 or BF16",
            weir_collective_set_factor(c, &factor));
    refused(b, "SCALED_SUM without a factor",
            weir_reduce_scatter_v(c, in, out, extents, WEIR_F16, WEIR_SCALED_SUM, b->stream));
    factor.memory = nullptr;
    WEIRT_OK(b->rank, weir_collective_set_factor(c, &factor));
    for (uint32_t dtype = WEIR_F8E4M3; dtype < WEIR_DTYPES; dtype++) {
        refused(b, only, weir_allreduce(c, in, out, 1, static_cast<weir_dtype>(dtype), WEIR_SCALED_SUM, b->stream));
    }
    refused(b, "weir_reduce_scatter_v: SCALED_SUM is only for",
            weir_reduce_scatter_v(c, in, out, extents, WEIR_I8, WEIR_SCALED_SUM, b->stream));
}

void refused_extents(const Bench *b)
{
    weir_collective *c = b->collective;
    char *in = static_cast<char *>(weir_memory_pointer(b->in));
    char *out = static_cast<char *>(weir_memory_pointer(b->out));
    const weir_extent whole[2] = { { 0, 4 }, { 4, 4 } };
    const weir_extent shorter[2] = { { 0, 3 }, { 4, 3 } };
    const weir_extent far[2] = { { 0, 4 }, { UINT64_MAX / 2, 4 } };
    const std::string own = "[" + std::to_string(b->rank->rank) + "].count is ";
    refused(b, ("weir_all_to_all_v: sends" + own + "4, but recvs" + own + "3, both for this rank").c_str(),
            weir_all_to_all_v(c, in, whole, out, shorter, WEIR_U8, b->stream));
    refused(b, "weir_all_to_all_v: sends[1]: at 9223372036854775807, count 4 exceed the limit ",
            weir_all_to_all_v(c, in, far, out, whole, WEIR_U8, b->stream));
    refused(b, "weir_all_to_all_v: recvs[1]: at 9223372036854775807, count 4 exceed the limit ",
            weir_all_to_all_v(c, in, whole, out, far, WEIR_U8, b->stream));
}

void arguments(weirt_rank *rank)
{
    weir_collective_opts opts = small_opts(rank);
    opts.check_pointers = true;
    Bench bench;
    if (bench_open(rank, &opts, 64 << 10, 0, &bench)) {
        const Bench *b = &bench;
        weir_collective *c = bench.collective;
        char *in = static_cast<char *>(weir_memory_pointer(bench.in));
        char *out = static_cast<char *>(weir_memory_pointer(bench.out));
        void *s = bench.stream;
        weir_extent extents[2] = { { 0, 4 }, { 2, 4 } };
        refused(b, "NULL", weir_allreduce(nullptr, in, out, 1, WEIR_F32, WEIR_SUM, s));
        refused(b, "send is NULL", weir_allreduce(c, nullptr, out, 1, WEIR_F32, WEIR_SUM, s));
        refused(b, "recv is NULL", weir_allreduce(c, in, nullptr, 1, WEIR_F32, WEIR_SUM, s));
        refused(b, "not aligned", weir_allreduce(c, in + 2, out, 1, WEIR_F32, WEIR_SUM, s));
        refused(b, "overlap", weir_allreduce(c, in, in + 4, 2, WEIR_F32, WEIR_SUM, s));
        refused(b, "unknown type", weir_allreduce(c, in, out, 1, static_cast<weir_dtype>(12), WEIR_SUM, s));
        refused(b, "unknown operation", weir_allreduce(c, in, out, 1, WEIR_F32, static_cast<weir_op>(6), s));
        refused_factors(b);
        refused(b, "count is 4611686018427387903; the limit is ",
                weir_allreduce(c, in, out, UINT64_MAX / 4, WEIR_F32, WEIR_SUM, s));
        refused(
            b, "wraps",
            weir_allreduce(c, reinterpret_cast<void *>(~static_cast<uintptr_t>(15)), out, 100, WEIR_F32, WEIR_SUM, s));
        // No device has an address in the first page; a range that is longer than its memory is reported.
        void *none = reinterpret_cast<void *>(static_cast<uintptr_t>(256));
        refused(b, "weir_allreduce: send: ", weir_allreduce(c, none, out, 1, WEIR_F32, WEIR_SUM, s));
        refused(b, "weir_allgather: recv: ", weir_allgather(c, in, none, 1, WEIR_F32, s));
        refused(b, "weir_all_to_all_v: send: ", weir_all_to_all_v(c, none, extents, out, extents, WEIR_U8, s));
        refused(b, "weir_recv: recv: ", weir_recv(c, none, 1, WEIR_U8, 1 - rank->rank, s));
        refused(b, "weir_broadcast: recv: ", weir_broadcast(c, in, out, 1 << 20, WEIR_U8, 1 - rank->rank, s),
                WEIR_ERR_RANGE);
        refused(b, "weir_reduce: root 2 does not exist; the collective has 2 ranks",
                weir_reduce(c, in, out, 1, WEIR_F32, WEIR_SUM, 2, s));
        refused(b, "overlap", weir_reduce_scatter(c, in, in + 4 - 4 * rank->rank, 1, WEIR_F32, WEIR_SUM, s));
        refused(b, "overlap", weir_allgather(c, in + 8 - 8 * rank->rank, in, 2, WEIR_F32, s));
        refused(b, "overlap", weir_all_to_all(c, in, in + 4, 1, WEIR_F32, s));
        refused(b, "root 9 does not exist", weir_broadcast(c, in, out, 1, WEIR_F32, 9, s));
        refused(b, "root 2 does not exist", weir_gather(c, in, out, 1, WEIR_F32, 2, s));
        refused(b, "recv is NULL", weir_gather(c, in, nullptr, 1, WEIR_F32, rank->rank, s));
        refused(b, "overlap", weir_gather(c, in + 4 - 4 * rank->rank, in, 1, WEIR_F32, rank->rank, s));
        refused(b, "send is NULL", weir_scatter(c, nullptr, out, 1, WEIR_F32, rank->rank, s));
        refused(b, "overlap", weir_scatter(c, in, in + 4 - 4 * rank->rank, 1, WEIR_F32, rank->rank, s));
        refused(b, "sends is NULL", weir_all_to_all_v(c, in, nullptr, out, extents, WEIR_U8, s));
        refused(b, "recvs is NULL", weir_all_to_all_v(c, in, extents, out, nullptr, WEIR_U8, s));
        refused(b, "recvs[0] and recvs[1] overlap", weir_all_to_all_v(c, in, extents, out, extents, WEIR_U8, s));
        refused_extents(b);
        refused(b, "this one", weir_send(c, in, 1, WEIR_U8, rank->rank, s));
        refused(b, "peer 2 does not exist; there are 2 ranks", weir_recv(c, in, 1, WEIR_U8, 2, s));
        refused(b, "weir_allreduce: 50000 bytes do not fit the forced form once",
                weir_collective_force(c, WEIR_FORM_ONCE, 0) == WEIR_OK
                    ? weir_allreduce(c, in, out, 50000, WEIR_U8, WEIR_MAX, s)
                    : WEIR_OK,
                WEIR_ERR_LIMIT);
        refused(b, "weir_collective_force: blocks is 1000; the limit is ",
                weir_collective_force(c, WEIR_FORM_AUTO, 1000));
        refused(b, "weir_collective_force: unknown form 9",
                weir_collective_force(c, static_cast<weir_collective_form>(9), 0));
        refused(b, "one of this rank", weir_collective_register(c, nullptr));
        // A description of another size is not written.
        const weir_collective_request request = { WEIR_ALLREDUCE, WEIR_F32, WEIR_SUM, 0, 4, in, out };
        weir_collective_reduce description;
        weir_collective_reduce untouched;
        weir_shape shape;
        std::memset(&description, 0xa5, sizeof description);
        std::memset(&untouched, 0xa5, sizeof untouched);
        for (size_t bytes : { size_t{ 0 }, sizeof description - 8, sizeof description + 8 }) {
            refused(b,
                    ("weir_collective_describe: bytes is " + std::to_string(bytes) + ", but this library's ").c_str(),
                    weir_collective_describe(c, &request, WEIR_FORM_ONCE, &description, bytes, &shape));
            WEIRT_EXPECT(rank, std::memcmp(&description, &untouched, sizeof description) == 0);
        }
        refused(b, "weir_collective_describe: kind 0 is not a reduction, or form 5 does not support it",
                weir_collective_describe(c, &request, WEIR_FORM_COPIES, &description, sizeof description, &shape));
        WEIRT_OK(rank, weir_collective_describe(c, &request, WEIR_FORM_ONCE, &description, sizeof description, &shape));
        WEIRT_EXPECT(rank, description.send == in && description.recv == out && description.bytes == 16);
        WEIRT_OK(rank, weir_collective_force(c, WEIR_FORM_AUTO, 0));
        // Nothing was launched: the ranks are still in step.
        (void)run(b, sum_of(5, 1));
    }
    bench_close(&bench);
}

void creation(weirt_rank *rank)
{
    weirt_comm comm;
    weir_collective *collective = nullptr;
    if (weirt_comm_open(rank, 0, &comm)) {
        weir_collective_opts opts = small_opts(rank);
        const uint32_t self[] = { rank->rank };
        const uint32_t other[] = { 1 - rank->rank };
        const uint32_t twice[] = { rank->rank, rank->rank };
        weir_group group = { other, 1 };
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_collective_create(nullptr, nullptr, &collective));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_collective_create(comm.comm, nullptr, nullptr));
        opts.group = &group;
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_collective_create(comm.comm, &opts, &collective));
        group = { twice, 2 };
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_collective_create(comm.comm, &opts, &collective));
        group = { twice, WEIR_COLLECTIVE_RANKS * WEIR_COLLECTIVE_HOSTS + 1 };
        WEIRT_STATUS(rank, WEIR_ERR_LIMIT, weir_collective_create(comm.comm, &opts, &collective));
        group = { self, 1 };
        opts.staging_bytes = 1000;
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_collective_create(comm.comm, &opts, &collective));
        opts.staging_bytes = 256 << 10;
        opts.threads = 100000;
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_collective_create(comm.comm, &opts, &collective));
        WEIRT_TEXT(rank, "opts.threads is 100000 (limit ");
        opts = small_opts(rank);
        // Ranks with different arguments get an error.
        opts.staging_bytes = (256 + 256 * static_cast<uint64_t>(rank->rank)) << 10;
        WEIRT_STATUS(rank, WEIR_ERR_MISMATCH, weir_collective_create(comm.comm, &opts, &collective));
        WEIRT_TEXT(rank, "was given other opts, another tuning file, or another WEIR_STAGING");
        (void)weirt_barrier(rank);
        opts = small_opts(rank);
        opts.form = rank->rank == 0 ? WEIR_FORM_SLOTS : WEIR_FORM_LINES;
        WEIRT_STATUS(rank, WEIR_ERR_MISMATCH, weir_collective_create(comm.comm, &opts, &collective));
        (void)weirt_barrier(rank);
        // Registered memories must have equal sizes; otherwise the call fails and nothing is lost.
        opts = small_opts(rank);
        weir_memory *memory = nullptr;
        if (WEIRT_OK(rank, weir_collective_create(comm.comm, &opts, &collective)) &&
            WEIRT_OK(rank, weir_memory_allocate(comm.comm, 4096 + 4096 * rank->rank, nullptr, &memory))) {
            WEIRT_STATUS(rank, WEIR_ERR_MISMATCH, weir_collective_register(collective, memory));
        }
        (void)weirt_barrier(rank);
        weir_collective_destroy(collective);
        // Their number is limited, here for a group of one rank.
        opts.group = &group;
        if (WEIRT_OK(rank, weir_collective_create(comm.comm, &opts, &collective))) {
            for (uint32_t i = 0; i < 254; i++) {
                WEIRT_OK(rank, weir_collective_register(collective, memory));
            }
            WEIRT_STATUS(rank, WEIR_ERR_LIMIT, weir_collective_register(collective, memory));
            weir_collective_destroy(collective);
        }
        weir_memory_destroy(memory);
        WEIRT_OK(rank, weir_comm_status(comm.comm));
        weir_collective_destroy(nullptr);
    }
    (void)weirt_barrier(rank);
    weirt_comm_close(&comm);
}

// ---- one rank fails ----------------------------------------------------------------------------------------------

struct Trouble {
    weir_status status;
    const char *part;
};

// Arguments of rank 1 in creates.
const Trouble troubles[] = { { WEIR_ERR_INVALID, "opts.staging_bytes is 1000; 131072 to 68719476736 are allowed" },
                             { WEIR_ERR_INVALID, "unknown form" },
                             { WEIR_ERR_INVALID, "out is NULL" },
                             { WEIR_ERR_ENV, "No such file" },
                             { WEIR_ERR_NOMEM, "weir_collective_create: out of memory" },
                             { WEIR_ERR_NOMEM, "weir_memory_allocate: memory: out of memory" },
                             { WEIR_ERR_DEVICE, "fault of a test" } };

weir_status create_wrongly(const Bench *b, uint32_t what)
{
    weir_collective *collective = nullptr;
    weir_collective_opts opts = small_opts(b->rank);
    switch (what) {
    case 0:
        opts.staging_bytes = 1000;
        break;
    case 1:
        opts.form = static_cast<weir_collective_form>(9);
        break;
    case 2:
        break;
    case 3:
        setenv("WEIR_COLLECTIVE_TABLE", "/no/such/file", 1);
        break;
    case 4:
    case 5:
        (void)weirt_fail_allocation(what == 4 ? 1 : 3);
        break;
    default:
        (void)weirt_fail_device(1);
    }
    const weir_status status = weir_collective_create(b->comm.comm, &opts, what == 2 ? nullptr : &collective);
    unsetenv("WEIR_COLLECTIVE_TABLE");
    (void)weirt_fail_allocation(0);
    (void)weirt_fail_device(0);
    return status;
}

// Rank 1 has failed without waiting for others: the other ranks get the error at once.
void is_told(weirt_rank *rank, weir_status (*call)(const Bench *), const Bench *b, const Trouble &trouble)
{
    const uint64_t since = weirt_now_ms();
    WEIRT_STATUS(rank, trouble.status, call(b));
    WEIRT_TEXT(rank, "rank 1 failed");
    WEIRT_TEXT(rank, trouble.part);
    WEIRT_EXPECT(rank, weirt_now_ms() - since < 5000 * static_cast<uint64_t>(weirt_slow()));
}

weir_status create_another(const Bench *b)
{
    weir_collective *collective = nullptr;
    const weir_collective_opts opts = small_opts(b->rank);
    const weir_status status = weir_collective_create(b->comm.comm, &opts, &collective);
    weir_collective_destroy(collective);
    return status;
}

weir_status register_in(const Bench *b) { return weir_collective_register(b->collective, b->in); }

// An invalid argument on one rank is an error on all ranks, and all go on.
void one_fails(weirt_rank *rank)
{
    const weir_collective_opts opts = small_opts(rank);
    const bool odd = rank->rank == 1;
    Bench bench;
    bool fine = bench_open(rank, &opts, 4096, 0, &bench);
    // Earlier successful calls leave no messages under way, for which a service thread would allocate.
    for (uint32_t what = 0; what < sizeof troubles / sizeof troubles[0] && fine; what++) {
        fine = WEIRT_OK(rank, create_another(&bench)) && weirt_barrier(rank);
        if (odd) {
            WEIRT_STATUS(rank, troubles[what].status, create_wrongly(&bench, what));
            WEIRT_TEXT(rank, troubles[what].part);
        }
        fine = weirt_barrier(rank) && fine;
        if (!odd) {
            is_told(rank, create_another, &bench, troubles[what]);
        }
    }
    const Trouble registers[] = { { WEIR_ERR_INVALID, "not one of this rank" },
                                  { WEIR_ERR_NOMEM, "weir_collective_register: out of memory" } };
    for (uint32_t what = 0; what < 2 && fine; what++) {
        fine = WEIRT_OK(rank, register_in(&bench)) && weirt_barrier(rank);
        if (odd) {
            (void)weirt_fail_allocation(what);
            WEIRT_STATUS(rank, registers[what].status,
                         weir_collective_register(bench.collective, what == 0 ? nullptr : bench.in));
            WEIRT_TEXT(rank, registers[what].part);
        }
        fine = weirt_barrier(rank) && fine;
        if (!odd) {
            is_told(rank, register_in, &bench, registers[what]);
        }
    }
    if (fine) {
        (void)run(&bench, sum_of(100, 1));
        WEIRT_OK(rank, weir_comm_status(bench.comm.comm));
    }
    bench_close(&bench);
}

// ---- different calls ---------------------------------------------------------------------------------------------

// Rank 1 makes a different call.
void differences(weirt_rank *rank)
{
    const uint32_t what = *static_cast<const uint32_t *>(rank->arg);
    const weir_collective_opts opts = small_opts(rank);
    Bench bench;
    if (bench_open(rank, &opts, 64 << 10, 0, &bench)) {
        const bool odd = rank->rank == 1;
        Operation o = sum_of(100, 7);
        const char *part = "";
        weir_status called = WEIR_OK;
        (void)run(&bench, o);
        (void)weirt_barrier(rank);
        switch (what) {
        case 0:
            o.count += odd;
            part = "allreduce of 101 f32, sum";
            break;
        case 1:
            o.dtype = odd ? WEIR_I32 : WEIR_F32;
            part = "allreduce of 100 i32, sum";
            break;
        case 2:
            o.op = odd ? WEIR_MAX : WEIR_SUM;
            part = "allreduce of 100 f32, max";
            break;
        case 3:
            o.kind = odd ? ALLGATHER : ALLREDUCE;
            part = "allgather of 100 f32";
            break;
        case 4: // large against small: also another form
            o.count = odd ? 8000 : 100;
            part = "allreduce of 8000 f32, sum";
            break;
        case 5:
            o.kind = BROADCAST;
            o.root = odd ? 0 : 2;
            part = "root 0";
            break;
        case 6: // messages between two ranks
            o.kind = ALL_TO_ALL_V;
            o.seed += odd;
            part = "all_to_all_v of";
            break;
        default: // a message with another count
            if (rank->rank < 2) {
                o.kind = MESSAGES;
                const Places at = places_of(&bench, o);
                called = odd ? weir_recv(bench.collective, at.recv, 99, WEIR_F32, 0, bench.stream)
                             : weir_send(bench.collective, at.send, 100, WEIR_F32, 1, bench.stream);
            }
            part = "its receive 0 from rank 0 is of 99 f32, but send 0 of rank 0 has 100 f32";
        }
        if (what < 7) {
            const Places at = places_of(&bench, o);
            called = call(&bench, o, at.send, at.recv);
        }
        expect_mismatch(&bench, called, part);
        if (what < 6) {
            WEIRT_TEXT(rank, "rank 1 is the first that differs: it called ");
        }
        // Every later call returns it too.
        o = sum_of(1, 1);
        const Places at = places_of(&bench, o);
        WEIRT_STATUS(rank, WEIR_ERR_MISMATCH, call(&bench, o, at.send, at.recv));
    }
    bench_close(&bench);
}

// ---- a rank that dies --------------------------------------------------------------------------------------------

void sum_again(weirt_rank *rank)
{
    weirt_comm alone;
    if (weirt_comm_open_alone(rank, &alone)) {
        weir_collective *collective = nullptr;
        const weir_collective_opts opts = small_opts(rank);
        float value = 3;
        float result = 0;
        weir_memory *memory = nullptr;
        void *stream = nullptr;
        if (WEIRT_OK(rank, weir_collective_create(alone.comm, &opts, &collective)) &&
            WEIRT_OK(rank, weir_memory_allocate(alone.comm, 64, nullptr, &memory)) &&
            WEIRT_OK(rank, weir_stream_create(alone.device, &stream))) {
            char *at = static_cast<char *>(weir_memory_pointer(memory));
            WEIRT_OK(rank, weir_device_copy(alone.device, at, &value, 4));
            WEIRT_OK(rank, weir_allreduce(collective, at, at + 16, 1, WEIR_F32, WEIR_SUM, stream));
            WEIRT_OK(rank, weir_stream_wait(alone.device, stream, weirt_timeout_ms()));
            WEIRT_OK(rank, weir_device_copy(alone.device, &result, at + 16, 4));
            WEIRT_EXPECT(rank, result == 3);
        }
        if (stream != nullptr) {
            weir_stream_destroy(alone.device, stream);
        }
        weir_memory_destroy(memory);
        weir_collective_destroy(collective);
    }
    weirt_comm_close(&alone);
}

void killed(weirt_rank *rank)
{
    const weir_collective_opts opts = small_opts(rank);
    Bench bench;
    Operation o = sum_of(2000, 3);
    o.kind = *static_cast<const Kind *>(rank->arg);
    o.rough = o.rough && reduces(o);
    if (bench_open(rank, &opts, 64 << 10, 0, &bench)) {
        die_in_rank_two(&bench, o);
        sum_again(rank);
    }
    bench_leave(&bench);
}

// ---- graphs, groups, several ---------------------------------------------------------------------------------------

// A graph of different forms, replayed with new data.
void replays(weirt_rank *rank)
{
    const weir_collective_opts opts = small_opts(rank);
    Bench bench;
    if (bench_open(rank, &opts, 32 << 10, 0, &bench)) {
        const Operation o = sum_of(700, 0);
        const Places at = places_of(&bench, o);
        (void)replay(&bench, o, at, 5, [&] {
            bool fine = true;
            for (uint32_t form = WEIR_FORM_PACKETS; form <= WEIR_FORM_SLOTS && fine; form++) {
                // The same bytes in all forms, each over the results of the one before.
                fine = WEIRT_OK(rank,
                                weir_collective_force(bench.collective, static_cast<weir_collective_form>(form), 0)) &&
                       WEIRT_OK(rank, call(&bench, o, at.send, at.recv));
            }
            return fine;
        });
    }
    bench_close(&bench);
}

// Groups of even ranks, odd ranks and all ranks, in sequence.
void groups(weirt_rank *rank)
{
    weir_collective_opts opts = small_opts(rank);
    Bench bench;
    bool fine = bench_open(rank, &opts, 4096, 0, &bench);
    uint32_t ranks[WEIR_COLLECTIVE_RANKS];
    weir_group group = { ranks, 0 };
    for (uint32_t k = rank->rank % 2; k < rank->size; k += 2) {
        ranks[group.count++] = k;
    }
    opts.group = &group;
    Bench half = bench;
    half.collective = nullptr;
    fine = fine && WEIRT_OK(rank, weir_collective_create(bench.comm.comm, &opts, &half.collective)) &&
           WEIRT_EXPECT(rank, weir_collective_rank(half.collective) == rank->rank / 2) &&
           WEIRT_EXPECT(rank, weir_collective_size(half.collective) == group.count);
    for (uint64_t seed = 0; seed < 4 && fine; seed++) {
        fine = run(&half, sum_of(33 + seed, seed + 10 * (rank->rank % 2))) && run(&bench, sum_of(50 + seed, seed));
    }
    (void)weirt_barrier(rank);
    weir_collective_destroy(half.collective);
    bench_close(&bench);
}

// WEIR_STAGING is 128 KiB; the staging of the opts would be refused.
void staging_of_environment(weirt_rank *rank)
{
    weir_collective_opts opts = small_opts(rank);
    opts.staging_bytes = 1000;
    Bench bench;
    if (bench_open(rank, &opts, 4096, 0, &bench)) {
        weir_dev_collective device;
        weir_collective_device(bench.collective, &device);
        WEIRT_EXPECT(rank, device.packet_room == 1024); // a sixteenth in two sections of two halves for two ranks
        (void)run(&bench, sum_of(700, 1));
    }
    bench_close(&bench);
}

// A collective of one rank has no memory, and every operation works.
void one_rank(weirt_rank *rank)
{
    weir_collective_opts opts = small_opts(rank);
    opts.staging_bytes = 64 << 20;
    Bench bench;
    bool fine = bench_open(rank, &opts, 1 << 20, 0, &bench);
    WEIRT_EXPECT(rank, !fine || weir_collective_bytes(bench.collective) == 0);
    for (const weir_collective_form form : { WEIR_FORM_AUTO, WEIR_FORM_PACKETS, WEIR_FORM_LINES, WEIR_FORM_SLOTS }) {
        fine = fine && WEIRT_OK(rank, weir_collective_force(bench.collective, form, 0));
        for (const uint64_t count : { 5, 20000 }) {
            for (uint32_t i = 0; i < MESSAGES; i++) {
                const Kind kind = static_cast<Kind>(i);
                fine = fine && run(&bench, { kind, WEIR_F32, WEIR_SUM, count, 0, 0, false, true, count }) &&
                       (kind == ALL_TO_ALL_V || // never in place
                        run(&bench, { kind, WEIR_F32, WEIR_SUM, count, 0, 0, true, true, count + 1 }));
            }
        }
    }
    if (fine) {
        const weir_transfer self[] = { { weir_memory_pointer(bench.in), 70000, WEIR_F32, 0, false },
                                       { weir_memory_pointer(bench.out), 70000, WEIR_F32, 0, true } };
        WEIRT_OK(rank, weir_exchange(bench.collective, self, 2, bench.stream));
        const weir_extent extents[] = { { 3, 20000 } };
        const weir_part parts[] = { { weir_memory_pointer(bench.in), weir_memory_pointer(bench.out), extents,
                                      WEIR_F32 } };
        for (const weir_collective_form form : { WEIR_FORM_PACKETS, WEIR_FORM_LINES, WEIR_FORM_SLOTS }) {
            WEIRT_OK(rank, weir_collective_force(bench.collective, form, 0));
            WEIRT_OK(rank, weir_allgather_parts(bench.collective, parts, 1, bench.stream));
            WEIRT_OK(rank, weir_reduce_scatter_parts(bench.collective, parts, 1, WEIR_SUM, bench.stream));
        }
        WEIRT_OK(rank, weir_comm_wait(bench.comm.comm, bench.stream, 0));
    }
    bench_close(&bench);
}

// Many calls without a wait between them stay in order.
void burst(weirt_rank *rank)
{
    const weir_collective_opts opts = small_opts(rank);
    Bench bench;
    bool fine = bench_open(rank, &opts, 16 << 10, 0, &bench);
    Operation o = { BROADCAST, WEIR_U8, WEIR_SUM, 500, 0, 0, true, false, 5 };
    const Places at = places_of(&bench, o);
    fine = fine && prepare(&bench, o, at);
    for (uint32_t i = 0; i < 60 && fine; i++) {
        // Each broadcast passes on the result of the one before, so the end result is the first data.
        o.root = i % rank->size;
        o.count = i % 2 == 0 ? 500 : 2;
        const weir_collective_form forms[] = { WEIR_FORM_PACKETS, WEIR_FORM_SLOTS, WEIR_FORM_LINES };
        fine = WEIRT_OK(rank, weir_collective_force(bench.collective, forms[i % 3], 0)) &&
               WEIRT_OK(rank, call(&bench, o, at.send, at.recv));
    }
    o.root = 0;
    o.count = 500;
    if (fine && finish(&bench, o)) {
        Bytes have(500);
        WEIRT_OK(rank, weir_device_copy(bench.comm.device, have.data(), at.recv, have.size()));
        WEIRT_EXPECT(rank, have == sent(o, 0, rank->size));
    }
    bench_close(&bench);
}

// A user's algorithm for allreduces of 77 U32.
struct User {
    weir_device *device;
    uint32_t asked;
    uint32_t ran;
};

bool takes(void *context, const weir_collective_request *request)
{
    static_cast<User *>(context)->asked++;
    return request->kind == WEIR_ALLREDUCE && request->dtype == WEIR_U32 && request->count == 77;
}

weir_status sum_and_one(void *context, weir_collective *collective, const weir_collective_request *request,
                        void *stream)
{
    User *user = static_cast<User *>(context);
    weirt_sum_args args = {};
    weir_shape shape;
    user->ran++;
    args.recv = static_cast<uint32_t *>(request->recv);
    args.count = request->count;
    weir_collective_device(collective, &args.collective);
    const weir_status status =
        weir_collective_describe(collective, request, WEIR_FORM_ONCE, &args.sum, sizeof args.sum, &shape);
    return status != WEIR_OK ? status : weir_launch(user->device, weirt_sum_kernel(), shape, &args, nullptr, stream);
}

void users_algorithm(weirt_rank *rank)
{
    const weir_collective_opts opts = small_opts(rank);
    Bench bench;
    if (bench_open(rank, &opts, 4096, 0, &bench) &&
        WEIRT_OK(rank, weir_kernel_load(bench.comm.device, weirt_sum_kernel()))) {
        User user = { bench.comm.device, 0, 0 };
        const weir_collective_algorithm algorithm = { takes, sum_and_one, &user };
        Operation o = { ALLREDUCE, WEIR_U32, WEIR_SUM, 77, 0, 0, false, false, 4 };
        (void)run(&bench, o);
        WEIRT_OK(rank, weir_collective_add(bench.collective, &algorithm));
        const Places at = places_of(&bench, o);
        Bytes have(77 * 4);
        Bytes want = expected(o, rank->rank, rank->size);
        for (uint32_t i = 0; i < 77; i++) {
            uint32_t value;
            std::memcpy(&value, want.data() + 4 * i, 4);
            put_element(want, i, 4, value + 1);
        }
        if (prepare(&bench, o, at) && WEIRT_OK(rank, call(&bench, o, at.send, at.recv)) && finish(&bench, o)) {
            WEIRT_OK(rank, weir_device_copy(bench.comm.device, have.data(), at.recv, have.size()));
            WEIRT_EXPECT(rank, have == want);
        }
        // Other and invalid requests do not reach it.
        o.count = 76;
        (void)run(&bench, o);
        o.kind = ALLGATHER;
        (void)run(&bench, o);
        WEIRT_STATUS(rank, WEIR_ERR_INVALID,
                     weir_allreduce(bench.collective, nullptr, at.recv, 77, WEIR_U32, WEIR_SUM, bench.stream));
        WEIRT_EXPECT(rank, user.asked == 3 && user.ran == 1);
        // A collective has room for eight algorithms.
        for (uint32_t i = 1; i < 8; i++) {
            WEIRT_OK(rank, weir_collective_add(bench.collective, &algorithm));
        }
        WEIRT_STATUS(rank, WEIR_ERR_LIMIT, weir_collective_add(bench.collective, &algorithm));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_collective_add(bench.collective, nullptr));
    }
    bench_close(&bench);
}

// Rank 0's call by slots ends by its deadline because rank 1 makes no call. The call launched behind it stores nothing
// into the slots, where rank 1 would take it for the first call's data.
void fails_for_good(weirt_rank *rank)
{
    const weir_collective_kind kind = *static_cast<const weir_collective_kind *>(rank->arg);
    constexpr uint64_t bytes = 128 << 10;
    weir_collective_opts opts = small_opts(rank);
    opts.form = WEIR_FORM_SLOTS;
    opts.blocks = 2; // the sending rank does not compare
    Bench bench;
    if (bench_open_kernels(rank, &opts, 2 * bytes, 3000, &bench) && rank->rank == 0) {
        char *in = static_cast<char *>(weir_memory_pointer(bench.in));
        void *out = weir_memory_pointer(bench.out);
        weir_dev_collective device;
        weir_collective_device(bench.collective, &device);
        Bytes data(2 * bytes, 1);
        std::fill(data.begin() + bytes, data.end(), 2);
        bool good = WEIRT_OK(rank, weir_device_copy(bench.comm.device, in, data.data(), data.size()));
        for (uint32_t i = 0; i < 2 && good; i++) {
            const void *send = in + i * bytes;
            good = WEIRT_OK(rank,
                            kind == WEIR_BROADCAST
                                ? weir_broadcast(bench.collective, send, out, bytes, WEIR_U8, 0, bench.stream)
                                : weir_allreduce(bench.collective, send, out, bytes, WEIR_U8, WEIR_MAX, bench.stream));
        }
        Bytes slots(device.messages - device.slots);
        if (good && WEIRT_OK(rank, weir_stream_wait(bench.comm.device, bench.stream, weirt_timeout_ms())) &&
            WEIRT_OK(rank, weir_device_copy(bench.comm.device, slots.data(), device.memory[1] + device.slots,
                                            slots.size()))) {
            if (kind == WEIR_BROADCAST) { // without a collective, the text also names the call
                weir_collective_destroy(bench.collective);
                bench.collective = nullptr;
            }
            WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_comm_status(bench.comm.comm));
            WEIRT_TEXT(rank, kind == WEIR_BROADCAST
                                 ? "rank 0: weir_broadcast of 131072 bytes: nothing came from rank 1"
                                 : "rank 0: weir_allreduce of 131072 bytes: nothing came from rank 1");
            WEIRT_TEXT(rank, " for 3 s");
            WEIRT_EXPECT(rank, std::count(slots.begin(), slots.end(), 1) > 0);
            WEIRT_EXPECT(rank, std::count(slots.begin(), slots.end(), 2) == 0);
        }
    }
    bench_close(&bench);
}

// Checks the choice that a tuning file makes for a request.
void chooses(const Bench *b, weir_collective_kind kind, uint64_t count, weir_collective_form form, uint32_t blocks)
{
    const weir_collective_request request = { kind, WEIR_F32, WEIR_SUM, 0, count, nullptr, nullptr };
    weir_collective_form chosen = WEIR_FORM_AUTO;
    weir_shape shape = { 0, 0 };
    if (WEIRT_OK(b->rank, weir_collective_choose(b->collective, &request, &chosen, &shape)) &&
        (chosen != form || (blocks != 0 && shape.blocks != blocks) || shape.threads == 0)) {
        weirt_fail(b->rank, __FILE__, __LINE__, "operation %d of %llu: form %d, %u blocks of %u; expected %d, %u", kind,
                   static_cast<unsigned long long>(count), chosen, shape.blocks, shape.threads, form, blocks);
    }
}

void good_table(weirt_rank *rank)
{
    weir_collective_opts opts = small_opts(rank);
    opts.blocks = 2;
    const bool limited = std::strcmp(rank->stage->kind, "gpu") == 0; // two blocks are all that the CPU device has
    opts.threads = limited ? 32 : 2;
    Bench bench;
    if (bench_open(rank, &opts, 4096, 0, &bench)) {
        chooses(&bench, WEIR_ALLREDUCE, 100, WEIR_FORM_SLOTS, 2);
        chooses(&bench, WEIR_ALLREDUCE, 101, WEIR_FORM_LINES, 1);
        chooses(&bench, WEIR_ALLREDUCE, 5000, WEIR_FORM_LINES, 1);
        chooses(&bench, WEIR_ALLREDUCE, 1 << 20, WEIR_FORM_SLOTS, 0); // no room for lines
        chooses(&bench, WEIR_REDUCE, 100, limited ? WEIR_FORM_PACKETS : WEIR_FORM_ONCE, 0);
        chooses(&bench, WEIR_ALLGATHER, 100, WEIR_FORM_PACKETS, 0); // the row belongs to another device
        chooses(&bench, WEIR_BROADCAST, 100, WEIR_FORM_SLOTS, 1);
        const weir_collective_request broadcast = { WEIR_BROADCAST, WEIR_F32, WEIR_SUM, 0, 100, nullptr, nullptr };
        weir_collective_form form;
        weir_shape shape = { 0, 0 };
        WEIRT_OK(rank, weir_collective_choose(bench.collective, &broadcast, &form, &shape));
        WEIRT_EXPECT(rank, shape.threads == opts.threads); // fewer than the row says
        (void)run(&bench, sum_of(100, 1));
        (void)run(&bench, sum_of(101, 2));
        WEIRT_OK(rank, weir_collective_force(bench.collective, WEIR_FORM_PACKETS, 1));
        chooses(&bench, WEIR_ALLREDUCE, 100, WEIR_FORM_PACKETS, 1);
        WEIRT_OK(rank, weir_collective_force(bench.collective, WEIR_FORM_AUTO, 1));
        chooses(&bench, WEIR_REDUCE, 100, WEIR_FORM_PACKETS, 1); // the row for an SM limit of 1
    }
    bench_close(&bench);
}

void bad_tuning_file(weirt_rank *rank)
{
    weirt_comm comm;
    weir_collective *collective = nullptr;
    if (weirt_comm_open(rank, 0, &comm)) {
        const weir_collective_opts opts = small_opts(rank);
        WEIRT_STATUS(rank, WEIR_ERR_ENV, weir_collective_create(comm.comm, &opts, &collective));
        WEIRT_TEXT(rank, static_cast<const char *>(rank->arg));
    }
    weirt_comm_close(&comm);
}

WEIRT_STAGE_SUITE(CollectiveTrouble);
WEIRT_PROCESS_SUITE(CollectiveDeath);
WEIRT_STAGE_SUITE(CollectiveUse);

TEST_P(CollectiveTrouble, ArgumentsAreChecked) { run(2, arguments); }
TEST_P(CollectiveTrouble, CreationIsChecked) { run(2, creation); }
TEST_P(CollectiveTrouble, WhatOneRankGetsWrongAllAreTold) { run(3, one_fails); }

TEST_P(CollectiveTrouble, DifferentCallsAreAMismatchOnAllRanks)
{
    for (uint32_t what = 0; what < 8 && !HasFailure(); what++) {
        weirt_ranks_run(stage(), 3, differences, &what, sizeof what);
    }
}

TEST_P(CollectiveTrouble, FailedCallsAreNotGoneOnWith)
{
    for (weir_collective_kind kind : { WEIR_BROADCAST, WEIR_ALLREDUCE }) {
        weirt_ranks_run(stage(), 2, fails_for_good, &kind, sizeof kind);
    }
}

TEST_P(CollectiveDeath, OthersEndAndGoOn)
{
    for (uint32_t i = ALLREDUCE; i < MESSAGES && !HasFailure(); i++) {
        const Kind kind = static_cast<Kind>(i);
        weirt_ranks_run(stage(), 3, killed, &kind, sizeof kind);
    }
}

TEST_P(CollectiveUse, GraphsAreReplayed)
{
    run(2, replays);
    run(3, replays);
}

TEST_P(CollectiveUse, GroupsWorkByThemselves) { run(5, groups); }
TEST_P(CollectiveUse, UsersAlgorithmsAreAsked) { run(3, users_algorithm); }

TEST_P(CollectiveUse, TuningFilesChoose)
{
    char path[] = "/tmp/weir-tuning-XXXXXX";
    const int fd = mkstemp(path);
    ASSERT_GE(fd, 0);
    close(fd);
    std::ofstream(path) << "# forms\n\nallreduce 2 400 slots 2 0\nallreduce 2 0 lines 1 0\nallreduce 3 0 packets 0 0\n"
                           "reduce 2 400 packets 0 0 1\n"
                           "device None\nallgather 2 0 slots 1 100000\ndevice *\n#"
                        << std::string(1000, 'x') << "\nbroadcast 2 0 slots 1 64"; // the last row has no newline
    setenv("WEIR_COLLECTIVE_TABLE", path, 1);
    run(2, good_table);
    for (const char *line :
         { "sum 2 1 once 0 0", "allreduce 9 1 once 0 0", "allreduce 2 x once 0 0", "allreduce 2 1 auto 0 0",
           "allreduce 2 1 once 0", "allreduce 2 1 once 0 0 0", "allreduce 2 1 once 0 0 x", "allreduce 2 1 once 0 0 8 8",
           "allreduce 2 1 once 0 1025", "allreduce 2 99999999999999999999 once 0 0" }) {
        std::ofstream(path) << "# forms\n" << line << "\n";
        const char part[] = "line 2: malformed row";
        weirt_ranks_run(stage(), 1, bad_tuning_file, part, sizeof part);
    }
    unlink(path);
    for (const char *part : { "No such file", "cannot be read" }) {
        char text[32];
        snprintf(text, sizeof text, "%s", part);
        weirt_ranks_run(stage(), 1, bad_tuning_file, text, sizeof text);
        setenv("WEIR_COLLECTIVE_TABLE", "/", 1); // a folder, for the second case
    }
    unsetenv("WEIR_COLLECTIVE_TABLE");
}

TEST_P(CollectiveUse, StagingOfTheEnvironmentWins)
{
    setenv("WEIR_STAGING", "131072", 1);
    run(2, staging_of_environment);
    unsetenv("WEIR_STAGING");
}

TEST_P(CollectiveUse, OneRankNeedsNoStaging) { run(1, one_rank); }

TEST_P(CollectiveUse, CallsFollowEachOther) { run(3, burst); }

} // namespace
