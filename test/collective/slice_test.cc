// Slices: a part of the data, reduced alone, has the bits that it has in the reduction of all data, in every form and
// shape. docs/batch-invariance.md promises it.
#include "test/collective/operations.h"
#include "test/harness/stage_test.h"

namespace {

struct Setting {
    uint32_t threads; // of a block on the CPU
    bool registered;
    uint32_t limit; // most blocks; for samples alone
    bool rounds;    // little staging, so that data goes in many rounds; for samples alone
};

struct Slice {
    uint64_t first;
    uint64_t count;
};

constexpr uint64_t whole = 840; // elements; a multiple of all numbers of ranks
constexpr Slice slices[] = { { 0, whole }, { 0, 1 }, { 1, 64 }, { 139, 341 }, { 420, 420 }, { whole - 9, 9 } };
constexpr weir_dtype dtypes[] = { WEIR_F16, WEIR_BF16, WEIR_F32, WEIR_F64 };
constexpr weir_op ops[] = { WEIR_SUM, WEIR_AVG, WEIR_SCALED_SUM };

// How one slice is reduced.
struct Case {
    Kind kind;
    weir_dtype dtype;
    weir_op op;
    weir_collective_form form;
    uint32_t blocks; // 0: the library's choice
    uint32_t shift;  // misalignment of the result, in elements
    bool in_place;
    bool captured;
    Slice slice;
};

// The bits of a number. Sums of floating-point numbers depend on their order.
uint64_t rough(weir_dtype dtype, weir_op op, uint32_t rank, uint64_t index)
{
    const Operation o = { ALLREDUCE, dtype, op, whole, 0, 0, false, true, 77 };
    if (dtype != WEIR_F16 && dtype != WEIR_BF16) {
        return element(o, rank, index);
    }
    const uint64_t random = mix(mix(index) ^ rank);
    const int64_t digits = static_cast<int64_t>(random % 4001) - 2000;
    return format_of(dtype).nearest(std::ldexp(static_cast<double>(digits), static_cast<int>(random >> 60) - 14));
}

// The first `count` elements that a rank sends.
Bytes data_of(weir_dtype dtype, weir_op op, uint32_t rank, uint64_t count)
{
    const uint32_t size = weir_dtype_bytes(dtype);
    Bytes bytes(count * size);
    for (uint64_t i = 0; i < count; i++) {
        put_element(bytes, i, size, rough(dtype, op, rank, i));
    }
    return bytes;
}

// Their reduction in rank order.
Bytes reduced(weir_dtype dtype, weir_op op, uint32_t ranks, uint64_t count)
{
    const uint32_t size = weir_dtype_bytes(dtype);
    const Operation o = { ALLREDUCE, dtype, op, count, 0, 0, false, true, 77 };
    Bytes bytes(count * size);
    for (uint64_t i = 0; i < count; i++) {
        Elements all;
        for (uint32_t rank = 0; rank < ranks; rank++) {
            all.add(rough(dtype, op, rank, i));
        }
        put_element(bytes, i, size, join_bits(o, all));
    }
    return bytes;
}

// The same on all ranks: all but the slice follows from `n`.
Case case_of(uint64_t n, uint32_t ranks, weir_dtype dtype, weir_op op, weir_collective_form form, Slice slice)
{
    const uint64_t random = mix(n * 8 + ranks);
    const Kind kind = slice.count < ranks ? ALLREDUCE : static_cast<Kind>(random % 3);
    return { kind,
             dtype,
             op,
             form,
             static_cast<uint32_t>(random >> 8) % 4,
             static_cast<uint32_t>(random >> 16) % 9,
             (random >> 24 & 1) != 0,
             (random >> 25 & 1) != 0,
             slice };
}

weir_status start(Bench *b, const Operation &o, const Places &at, bool captured, void **graph)
{
    weir_device *device = b->comm.device;
    weir_status status = captured ? weir_graph_begin(device, b->stream) : WEIR_OK;
    status = status == WEIR_OK ? call(b, o, at.send, at.recv) : status;
    status = status == WEIR_OK && captured ? weir_graph_end(device, b->stream, graph) : status;
    return status == WEIR_OK && captured ? weir_graph_launch(device, *graph, b->stream) : status;
}

// Reduces a slice of `data` and compares it with its place in the reduction of all data.
bool reduce_slice(Bench *b, const Case &c, const Bytes &data, const Bytes &want)
{
    weirt_rank *rank = b->rank;
    const uint32_t size = weir_dtype_bytes(c.dtype);
    const uint64_t count = c.kind == REDUCE_SCATTER ? c.slice.count / rank->size : c.slice.count;
    const uint64_t sends = c.kind == REDUCE_SCATTER ? count * rank->size : count;
    const uint64_t part = c.kind == REDUCE_SCATTER ? rank->rank * count : 0;
    const Operation o = { c.kind, c.dtype, c.op, count, rank->size - 1, 0, c.in_place, true, 0 };
    Places at = { static_cast<char *>(weir_memory_pointer(b->in)) + c.slice.first * size,
                  static_cast<char *>(weir_memory_pointer(b->out)) + c.shift * size };
    if (c.in_place) {
        at.send = at.recv;
        at.recv += part * size;
    }
    void *graph = nullptr;
    bool fine =
        WEIRT_OK(rank, weir_collective_force(b->collective, c.form, c.blocks)) &&
        WEIRT_OK(rank,
                 weir_device_fill(b->comm.device, weir_memory_pointer(b->out), poison, weir_memory_bytes(b->out))) &&
        WEIRT_OK(rank, weir_device_copy(b->comm.device, at.send, data.data() + c.slice.first * size, sends * size)) &&
        weirt_barrier(rank) && WEIRT_OK(rank, start(b, o, at, c.captured, &graph)) && finish(b, o);
    if (graph != nullptr) {
        weir_graph_destroy(b->comm.device, graph);
    }
    if (fine && (c.kind != REDUCE || rank->rank == o.root)) {
        Bytes have(count * size);
        fine = WEIRT_OK(rank, weir_device_copy(b->comm.device, have.data(), at.recv, have.size()));
        const uint8_t *expect = want.data() + (c.slice.first + part) * size;
        for (uint64_t i = 0; i < have.size() && fine; i++) {
            fine = have[i] == expect[i];
            if (!fine) {
                weirt_fail(
                    rank, __FILE__, __LINE__,
                    "%s: form %d, %u blocks%s: byte %llu of the slice from %llu is %02x, in the whole it is %02x",
                    text_of(o).c_str(), c.form, c.blocks, c.captured ? ", captured" : "",
                    static_cast<unsigned long long>(i), static_cast<unsigned long long>(c.slice.first), have[i],
                    expect[i]);
            }
        }
    }
    return fine;
}

void all_slices(weirt_rank *rank)
{
    const Setting *setting = static_cast<const Setting *>(rank->arg);
    const bool on_cpu = std::strcmp(rank->stage->kind, "cpu") == 0;
    weir_collective_opts opts = {};
    opts.size = sizeof opts;
    opts.blocks = 3;
    opts.threads = on_cpu ? setting->threads : 128;
    opts.staging_bytes = 16 << 20; // every form takes all data at once
    Bench b;
    bool fine = bench_open(rank, &opts, (whole + 16) * 8, 0, &b);
    if (fine && setting->registered) {
        fine = WEIRT_OK(rank, weir_collective_register(b.collective, b.in)) &&
               WEIRT_OK(rank, weir_collective_register(b.collective, b.out));
    }
    uint64_t n = setting->registered ? 1000 : 0;
    for (const weir_dtype dtype : dtypes) {
        const weir_op op = ops[(static_cast<uint32_t>(dtype) + (setting->registered ? 1 : 0)) % 3];
        const Bytes data = data_of(dtype, op, rank->rank, whole);
        const Bytes want = reduced(dtype, op, rank->size, whole);
        for (int form = WEIR_FORM_AUTO; form <= WEIR_FORM_SLOTS && fine; form++) {
            for (const Slice &slice : slices) {
                n++;
                fine =
                    fine &&
                    reduce_slice(&b, case_of(n, rank->size, dtype, op, static_cast<weir_collective_form>(form), slice),
                                 data, want);
            }
        }
    }
    bench_close(&b);
}

// A slice of a sample: type, operation, form and slice follow from `n`. Form and slice are random.
Case sample_of(uint64_t n, uint32_t ranks, bool rounds, uint64_t most)
{
    const uint64_t random = mix(n);
    const weir_dtype dtype = static_cast<weir_dtype>(n % WEIR_DTYPES);
    const weir_op op = static_cast<weir_op>(n / WEIR_DTYPES % WEIR_OPS); // the settings have all of them
    const weir_collective_form form =
        static_cast<weir_collective_form>(rounds ? random % 2 * WEIR_FORM_SLOTS : random % (WEIR_FORM_SLOTS + 1));
    const uint64_t first = (random >> 8) % (most / 4);
    const Slice slice = { first, ranks + (random >> 32) % (most - first - ranks) };
    Case c = case_of(n, ranks, dtype, is_defined(dtype, op) ? op : WEIR_MAX, form, slice);
    c.blocks = 0;
    return c;
}

// The case's form, or the library's choice if the slice is too large for that form.
weir_collective_form fitting_form(Bench *b, const Case &c)
{
    const weir_collective_kind kind = c.kind == ALLREDUCE ? WEIR_ALLREDUCE
                                      : c.kind == REDUCE  ? WEIR_REDUCE
                                                          : WEIR_REDUCE_SCATTER;
    const uint64_t count = c.kind == REDUCE_SCATTER ? c.slice.count / b->rank->size : c.slice.count;
    const weir_collective_request request = { kind, c.dtype, c.op, 0, count, nullptr, nullptr };
    weir_collective_form form = c.form;
    weir_shape shape;
    WEIRT_OK(b->rank, weir_collective_force(b->collective, c.form, c.blocks));
    return weir_collective_choose(b->collective, &request, &form, &shape) == WEIR_OK ? c.form : WEIR_FORM_AUTO;
}

// Blocks have the number of threads that the library chooses on a GPU.
void samples(weirt_rank *rank)
{
    const Setting *setting = static_cast<const Setting *>(rank->arg);
    const bool on_cpu = std::strcmp(rank->stage->kind, "cpu") == 0;
    const uint64_t most = on_cpu ? 6000 : 60000;
    weir_collective_opts opts = {};
    opts.size = sizeof opts;
    opts.blocks = setting->limit;
    opts.threads = on_cpu ? setting->threads : 0;
    opts.staging_bytes = setting->rounds ? 128 << 10 : 64 << 20;
    Bench b;
    bool fine = bench_open(rank, &opts, (most + 16) * 8, 0, &b);
    if (fine && setting->registered) {
        fine = WEIRT_OK(rank, weir_collective_register(b.collective, b.in)) &&
               WEIRT_OK(rank, weir_collective_register(b.collective, b.out));
    }
    for (uint64_t n = 0; n < 2 * WEIR_DTYPES && fine; n++) {
        const uint64_t seed = n + WEIR_DTYPES * (100 * setting->limit + 10 * setting->rounds + setting->registered);
        Case c = sample_of(seed, rank->size, setting->rounds, most);
        c.form = fitting_form(&b, c);
        const uint64_t count = c.slice.first + c.slice.count;
        fine =
            reduce_slice(&b, c, data_of(c.dtype, c.op, rank->rank, count), reduced(c.dtype, c.op, rank->size, count));
    }
    bench_close(&b);
}

WEIRT_STAGE_DATA_SUITE(CollectiveSlices);

void run_ranks(const weirt_stage *stage, std::vector<uint32_t> numbers, Setting setting)
{
    if (stage->processes && std::strcmp(stage->kind, "cpu") == 0) {
        numbers.resize(1);
    }
    for (const uint32_t ranks : numbers) {
        weirt_ranks_run(stage, ranks, all_slices, &setting, sizeof setting);
    }
}

TEST_P(CollectiveSlices, HaveTheBitsOfTheWhole) { run_ranks(stage(), { 3, 2, 4, 5, 6, 7, 8 }, { 1, false, 0, false }); }
TEST_P(CollectiveSlices, HaveTheBitsOfTheWholeRegistered) { run_ranks(stage(), { 2, 3, 5, 8 }, { 3, true, 0, false }); }

TEST_P(CollectiveSlices, HaveTheBitsOfTheWholeUnderLimits)
{
    const bool on_cpu = std::strcmp(stage()->kind, "cpu") == 0;
    const std::vector<uint32_t> limits =
        on_cpu ? std::vector<uint32_t>{ 1, 3 } : std::vector<uint32_t>{ 0, 1, 3, 8, 16, 24, 32 };
    for (const uint32_t limit : limits) {
        for (const uint32_t ranks : { 2, 4 }) {
            for (uint32_t way = 0; way < 4 && !HasFailure(); way++) {
                const Setting setting = { 1, way % 2 != 0, limit, way / 2 != 0 };
                weirt_ranks_run(stage(), ranks, samples, &setting, sizeof setting);
            }
        }
    }
}

} // namespace
