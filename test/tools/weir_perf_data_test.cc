// weir-perf's check of collectives: right data, computed here in a simple way from the ranks' data, is accepted, and
// each kind of mistake is counted.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "tools/perf/data.h"

namespace {

using Bytes = std::vector<char>;

constexpr uint32_t kRanks = 3;
constexpr uint64_t kCount = 41;

bool reduces(weir_collective_kind kind) { return kind <= WEIR_REDUCE_SCATTER; }

// Runs the kernel as one thread.
void run_alone(const weir_kernel *kernel, const perf_data_args &args)
{
    weir_coop one;
    memset(&one, 0, sizeof one);
    one.size = 1;
    kernel->cpu(&args, one);
}

// The buffers of all ranks around one operation.
struct Job {
    explicit Job(weir_collective_kind which) : kind(which) {}

    weir_collective_kind kind;
    weir_dtype dtype = WEIR_F16;
    weir_op op = WEIR_SUM;
    uint32_t root = 1;
    uint64_t seed = 7;
    Bytes send[kRanks];
    Bytes recv[kRanks];

    uint64_t element() const { return weir_dtype_bytes(dtype); }
    uint64_t part() const { return kCount * element(); }

    uint64_t run(const weir_kernel *kernel, uint32_t rank, uint64_t with_seed)
    {
        uint64_t wrong = 0;
        perf_data_args args;
        memset(&args, 0, sizeof args);
        args.data[0] = { send[rank].data(), recv[rank].data(), kCount, with_seed, static_cast<uint32_t>(kind), root };
        args.n = 1;
        args.wrong = &wrong;
        args.dtype = dtype;
        args.op = op;
        args.rank = rank;
        args.ranks = kRanks;
        run_alone(kernel, args);
        return wrong;
    }

    void write()
    {
        for (uint32_t rank = 0; rank < kRanks; rank++) {
            send[rank].resize(kRanks * part());
            recv[rank].resize(kRanks * part());
            run(perf_data_write, rank, seed);
        }
    }

    uint64_t wrong(uint32_t rank) { return run(perf_data_check, rank, seed); }

    // Calls `as` with a value of the C type of the numbers; false for a type that C does not have.
    template <class As> bool typed(const As &as) const
    {
        switch (dtype) {
        case WEIR_F64:
            return as(double());
        case WEIR_I8:
            return as(int8_t());
        case WEIR_U8:
            return as(uint8_t());
        case WEIR_I32:
            return as(int32_t());
        case WEIR_U32:
            return as(uint32_t());
        case WEIR_I64:
            return as(int64_t());
        case WEIR_U64:
            return as(uint64_t());
        default:
            return false;
        }
    }

    // A number of `rank`'s send buffer; all reduced numbers fit a double.
    double number(uint32_t rank, uint64_t index) const
    {
        const char *at = send[rank].data() + index * element();
        double number = 0;
        uint64_t word = 0;
        memcpy(&word, at, element());
        const bool found = typed([&](auto value) {
            memcpy(&value, at, sizeof value);
            number = static_cast<double>(value);
            return true;
        });
        return found ? number : weir_element_float(dtype, static_cast<uint32_t>(word));
    }

    void store(char *at, double number) const
    {
        const bool found = typed([&](auto value) {
            value = static_cast<decltype(value)>(number);
            memcpy(at, &value, sizeof value);
            return true;
        });
        if (!found) {
            const uint32_t word = weir_element_of_float(dtype, static_cast<float>(number));
            memcpy(at, &word, element());
        }
    }

    double joined(uint64_t index) const
    {
        double all = number(0, index);
        for (uint32_t rank = 1; rank < kRanks; rank++) {
            const double next = number(rank, index);
            all = op == WEIR_PROD  ? all * next
                  : op == WEIR_MIN ? std::fmin(all, next)
                  : op == WEIR_MAX ? std::fmax(all, next)
                                   : all + next;
        }
        return op == WEIR_AVG ? all / kRanks : op == WEIR_SCALED_SUM ? all * PERF_FACTOR : all;
    }

    // Writes the expected data of `rank`.
    void receive(uint32_t rank)
    {
        char *to = recv[rank].data();
        for (uint64_t i = 0; reduces(kind) && i < kCount; i++) {
            store(to + i * element(), joined(kind == WEIR_REDUCE_SCATTER ? rank * kCount + i : i));
        }
        for (uint32_t k = 0; k < kRanks; k++) {
            if (kind == WEIR_ALLGATHER || kind == WEIR_ALL_TO_ALL) {
                memcpy(to + k * part(), send[k].data() + (kind == WEIR_ALL_TO_ALL ? rank * part() : 0), part());
            }
        }
        for (uint32_t k = 0; kind == WEIR_GATHER && rank == root && k < kRanks; k++) {
            memcpy(to + k * part(), send[k].data(), part());
        }
        if (kind == WEIR_BROADCAST || kind == WEIR_SCATTER) {
            memcpy(to, send[root].data() + (kind == WEIR_SCATTER ? rank * part() : 0), part());
        }
    }
};

const std::vector<weir_collective_kind> kKinds = { WEIR_ALLREDUCE, WEIR_REDUCE,     WEIR_REDUCE_SCATTER, WEIR_ALLGATHER,
                                                   WEIR_BROADCAST, WEIR_ALL_TO_ALL, WEIR_GATHER,         WEIR_SCATTER };

TEST(PerfData, RightDataOfEveryTypeAndOperationIsRight)
{
    for (weir_collective_kind kind : kKinds) {
        for (uint32_t dtype = 0; dtype < WEIR_DTYPES; dtype++) {
            for (uint32_t op = 0; op < (reduces(kind) ? WEIR_OPS : 1); op++) {
                if (op == WEIR_SCALED_SUM && dtype > WEIR_BF16) {
                    continue;
                }
                Job job(kind);
                job.dtype = static_cast<weir_dtype>(dtype);
                job.op = static_cast<weir_op>(op);
                job.write();
                for (uint32_t rank = 0; rank < kRanks; rank++) {
                    job.receive(rank);
                    ASSERT_EQ(job.wrong(rank), 0u) << "kind " << kind << ", type " << dtype << ", op " << op;
                }
            }
        }
    }
}

TEST(PerfData, WhatIsNotReceivedIsWrong)
{
    for (weir_collective_kind kind : kKinds) {
        Job job(kind);
        job.write();
        for (uint32_t rank = 0; rank < kRanks; rank++) {
            const bool whole = kind == WEIR_ALLGATHER || kind == WEIR_ALL_TO_ALL || kind == WEIR_GATHER;
            const bool at_root = kind == WEIR_REDUCE || kind == WEIR_GATHER;
            const uint64_t expected = at_root && rank != job.root ? 0 : whole ? kRanks * kCount : kCount;
            ASSERT_EQ(job.wrong(rank), expected) << "kind " << kind << ", rank " << rank;
        }
    }
}

TEST(PerfData, OneWrongBitIsOneWrongElement)
{
    for (weir_collective_kind kind : kKinds) {
        Job job(kind);
        job.write();
        job.receive(job.root);
        job.recv[job.root][2 * (kCount - 1)] ^= 1;
        ASSERT_EQ(job.wrong(job.root), 1u) << "kind " << kind;
    }
}

// `make` fills the root's receive buffer as a mistake would; most of it is found wrong.
void expect_found(const char *what, const std::vector<weir_collective_kind> &kinds,
                  const std::function<void(Job &)> &make)
{
    for (weir_collective_kind kind : kinds) {
        for (weir_dtype dtype : { WEIR_F32, WEIR_F16, WEIR_F8E5M2, WEIR_I8 }) {
            Job job(kind);
            job.dtype = dtype;
            job.write();
            make(job);
            EXPECT_GT(job.wrong(job.root), kCount / 4) << what << ", kind " << kind << ", type " << dtype;
        }
    }
}

TEST(PerfData, MistakesAreFound)
{
    expect_found("offset", kKinds, [](Job &job) {
        job.receive(job.root);
        Bytes &recv = job.recv[job.root];
        memmove(recv.data() + job.element(), recv.data(), recv.size() - job.element());
    });
    expect_found("an iteration before", kKinds, [](Job &job) {
        Job before = job;
        before.seed--;
        before.write();
        before.receive(job.root);
        job.recv[job.root] = before.recv[job.root];
    });
    expect_found("order of ranks, or one twice", kKinds, [](Job &job) {
        const Bytes first = job.send[0];
        if (reduces(job.kind)) {
            job.send[0] = job.send[2];
        } else {
            job.send[0] = job.send[1];
            job.send[1] = first;
        }
        job.receive(job.root);
    });
    expect_found("another rank's part", { WEIR_REDUCE_SCATTER, WEIR_ALL_TO_ALL }, [](Job &job) {
        job.receive(0);
        job.recv[job.root] = job.recv[0];
    });
}

// Writing wrong bytes in place keeps the data to send.
TEST(PerfData, InPlaceWhatIsSentStays)
{
    Job job(WEIR_ALLGATHER);
    job.write();
    for (uint32_t rank = 0; rank < kRanks; rank++) {
        Bytes whole(kRanks * job.part());
        perf_data_args args;
        memset(&args, 0, sizeof args);
        args.data[0].send = whole.data() + rank * job.part();
        args.data[0].recv = whole.data();
        args.data[0].count = kCount;
        args.data[0].seed = job.seed;
        args.data[0].kind = job.kind;
        args.n = 1;
        args.dtype = job.dtype;
        args.rank = rank;
        args.ranks = kRanks;
        run_alone(perf_data_write, args);
        EXPECT_EQ(memcmp(args.data[0].send, job.send[rank].data(), job.part()), 0);
        job.recv[rank] = whole;
        EXPECT_EQ(job.wrong(rank), (kRanks - 1) * kCount);
    }
}

// A launch with several operations: each has its own data, and what is wrong in each counts.
TEST(PerfData, SeveralOperationsOfOneLaunch)
{
    Job jobs[3] = { Job(WEIR_BROADCAST), Job(WEIR_BROADCAST), Job(WEIR_BROADCAST) };
    perf_data_args args;
    uint64_t wrong = 0;
    memset(&args, 0, sizeof args);
    for (uint32_t i = 0; i < 3; i++) {
        jobs[i].seed = 7 + i;
        jobs[i].write();
        jobs[i].recv[0] = jobs[i].send[1];
        args.data[i] = { jobs[i].send[0].data(), jobs[i].recv[0].data(), kCount, 7 + i, WEIR_BROADCAST, 1 };
    }
    args.wrong = &wrong;
    args.n = 3;
    args.dtype = WEIR_F16;
    args.ranks = kRanks;
    run_alone(perf_data_check, args);
    EXPECT_EQ(wrong, 0u);
    jobs[0].recv[0][0]++;
    jobs[2].recv[0][2]++;
    run_alone(perf_data_check, args);
    EXPECT_EQ(wrong, 2u);
    args.data[1].seed = 8 + 5;
    run_alone(perf_data_check, args);
    EXPECT_GT(wrong, kCount);
    run_alone(perf_data_write, args); // wrong elements where data will be received
    wrong = 0;
    run_alone(perf_data_check, args);
    EXPECT_EQ(wrong, 3 * kCount);
}

} // namespace
