// operations.h - runs an operation on all ranks and checks every byte; C++ only.
#ifndef WEIRT_OPERATIONS_H
#define WEIRT_OPERATIONS_H

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>

#include "test/collective/large_kernels.h"
#include "test/collective/numbers.h"
#include "test/harness/comm.h"

enum Kind {
    ALLREDUCE,
    REDUCE,
    REDUCE_SCATTER,
    ALLGATHER,
    BROADCAST,
    ALL_TO_ALL,
    GATHER,
    SCATTER,
    ALL_TO_ALL_V,
    MESSAGES,
    KINDS
};

static const char *const kind_names[KINDS] = {
    "allreduce",  "reduce", "reduce_scatter", "allgather",    "broadcast",
    "all_to_all", "gather", "scatter",        "all_to_all_v", "send and recv"
};

// One operation of all ranks.
struct Operation {
    Kind kind;
    weir_dtype dtype;
    weir_op op;
    uint64_t count;
    uint32_t root;
    uint32_t shift; // misalignment of the buffers in elements
    bool in_place;
    bool rough; // f32 and f64: sums depend on their order
    uint64_t seed;
    uint32_t host_ranks = 0;            // ranks of each host; 0: one host
    uint32_t factor_type = WEIR_DTYPES; // of the factor in memory; WEIR_DTYPES: it is passed by value
};

using Bytes = std::vector<uint8_t>;

// The index of the first byte that differs; the size if the two are equal. == comes first: it is a memcmp, where a
// search takes most of the time of a test under the thread sanitizer.
inline size_t first_difference(const Bytes &have, const Bytes &want)
{
    return have == want ? have.size()
                        : static_cast<size_t>(std::mismatch(have.begin(), have.end(), want.begin(), want.end()).first -
                                              have.begin());
}

constexpr uint64_t guard = 64;
constexpr uint8_t poison = 0xa5;

inline uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

inline bool reduces(const Operation &o) { return o.kind == ALLREDUCE || o.kind == REDUCE || o.kind == REDUCE_SCATTER; }

inline const Format &format_of(weir_dtype dtype)
{
    static const Format f16(WEIR_F16), bf16(WEIR_BF16), e4m3(WEIR_F8E4M3), e5m2(WEIR_F8E5M2);
    return dtype == WEIR_F16 ? f16 : dtype == WEIR_BF16 ? bf16 : dtype == WEIR_F8E4M3 ? e4m3 : e5m2;
}

inline bool is_defined(weir_dtype dtype, weir_op op) { return op != WEIR_SCALED_SUM || dtype <= WEIR_BF16; }

constexpr double factor_by_value = -0.3;

// The factor of WEIR_SCALED_SUM, as bits of its type in memory. It changes with the seed, as data does.
inline uint64_t factor_bits(const Operation &o)
{
    const double number = (static_cast<double>(o.seed % 13) - 5.5) / 7;
    const float single = static_cast<float>(number);
    uint64_t bits = 0;
    if (o.factor_type == WEIR_F64) {
        std::memcpy(&bits, &number, sizeof number);
    } else if (o.factor_type == WEIR_F32) {
        std::memcpy(&bits, &single, sizeof single);
    } else {
        bits = format_of(static_cast<weir_dtype>(o.factor_type)).nearest(number);
    }
    return bits;
}

inline double factor_of(const Operation &o)
{
    const uint64_t bits = o.factor_type == WEIR_DTYPES ? 0 : factor_bits(o);
    double number = 0;
    float single = 0;
    switch (o.factor_type) {
    case WEIR_DTYPES:
        return factor_by_value;
    case WEIR_F64:
        std::memcpy(&number, &bits, sizeof number);
        return number;
    case WEIR_F32:
        std::memcpy(&single, &bits, sizeof single);
        return static_cast<double>(single);
    default:
        return format_of(static_cast<weir_dtype>(o.factor_type)).value(static_cast<uint32_t>(bits));
    }
}

inline bool is_signed(weir_dtype dtype) { return dtype != WEIR_U8 && dtype != WEIR_U32 && dtype != WEIR_U64; }

// The bits of element `index` of the data that `rank` sends.
inline uint64_t element(const Operation &o, uint32_t rank, uint64_t index)
{
    const uint64_t random = mix(mix(mix(o.seed) ^ rank) ^ index);
    const int64_t number = static_cast<int64_t>(random % 7) - (is_signed(o.dtype) ? 3 : 0);
    const uint32_t size = weir_dtype_bytes(o.dtype);
    if (!reduces(o)) {
        return random;
    }
    // Averages are exact also where the sum does not fit the type.
    if (o.op == WEIR_AVG && o.dtype > WEIR_F8E5M2 && size < 8) {
        return weir_element_integer(o.dtype, random & ((static_cast<uint64_t>(1) << (8 * size)) - 1), 0);
    }
    uint64_t bits = 0;
    if (o.dtype == WEIR_F64) {
        const double rough = std::ldexp(static_cast<double>(random % 1000003) - 500000, static_cast<int>(random >> 58));
        const double value = o.rough ? rough : static_cast<double>(number);
        std::memcpy(&bits, &value, sizeof value);
    } else if (o.dtype == WEIR_F32) {
        const float rough = std::ldexp(static_cast<float>(random % 1000003) - 500000, static_cast<int>(random >> 59));
        const float value = o.rough ? rough : static_cast<float>(number);
        std::memcpy(&bits, &value, sizeof value);
    } else if (o.dtype <= WEIR_F8E5M2) {
        bits = format_of(o.dtype).small[number + 3];
    } else {
        bits = static_cast<uint64_t>(number);
    }
    return bits;
}

template <typename T> T join(weir_op op, T a, T b)
{
    return op == WEIR_PROD ? a * b : op == WEIR_MIN ? std::min(a, b) : op == WEIR_MAX ? std::max(a, b) : a + b;
}

// The bits of up to 64 elements, without an allocation: the expected data takes one for each of its elements.
class Elements {
public:
    void add(uint64_t bits) { all.at(used++) = bits; }
    size_t size() const { return used; }
    const uint64_t *begin() const { return all.data(); }

private:
    std::array<uint64_t, 64> all{};
    size_t used = 0;
};

// Joins the numbers that `read` finds in bits.
template <typename T, typename Read> T join_all(const Operation &o, const Elements &all, Read read)
{
    const uint64_t *bits = all.begin();
    const size_t size = all.size();
    T value = read(bits[0]);
    for (size_t k = 1; k < size; k++) {
        value = join(o.op, value, read(bits[k]));
    }
    return o.op == WEIR_AVG          ? value / static_cast<T>(size)
           : o.op == WEIR_SCALED_SUM ? value * static_cast<T>(factor_of(o))
                                     : value;
}

// The number whose first bytes are those of `bits`, and the reverse.
template <typename T> T number_of(uint64_t bits)
{
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

template <typename T> uint64_t bits_of(T value)
{
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
}

// The bits of the reduction of these elements.
inline uint64_t join_bits(const Operation &o, const Elements &all)
{
    if (o.dtype == WEIR_F64) {
        return bits_of(join_all<double>(o, all, number_of<double>));
    }
    if (o.dtype == WEIR_F32) {
        return bits_of(join_all<float>(o, all, number_of<float>));
    }
    if (o.dtype <= WEIR_F8E5M2) {
        const Format &format = format_of(o.dtype);
        const float value = join_all<float>(
            o, all, [&format](uint64_t bits) { return static_cast<float>(format.value(static_cast<uint32_t>(bits))); });
        return format.nearest(static_cast<double>(value));
    }
    return static_cast<uint64_t>(join_all<int64_t>(o, all, [](uint64_t bits) { return static_cast<int64_t>(bits); }));
}

// The reduction of the ranks' elements `index`: first over each host's ranks, then over the hosts. One of the two
// multiplies by a factor. An average of integers is over all ranks at once.
inline uint64_t joined(const Operation &o, uint32_t ranks, uint64_t index)
{
    const bool once = o.host_ranks == 0 || (o.op == WEIR_AVG && o.dtype > WEIR_F8E5M2);
    const uint32_t each = once ? ranks : o.host_ranks;
    Elements hosts;
    Operation last = o;
    if (o.op == WEIR_SCALED_SUM && each > 1) {
        last.op = WEIR_SUM;
    }
    for (uint32_t first = 0; first < ranks; first += each) {
        Elements inside;
        for (uint32_t rank = first; rank < first + each; rank++) {
            inside.add(element(o, rank, index));
        }
        hosts.add(each == 1 && ranks > 1 ? *inside.begin() : join_bits(o, inside));
    }
    return hosts.size() == 1 ? *hosts.begin() : join_bits(last, hosts);
}

inline void put_element(Bytes &bytes, uint64_t index, uint32_t size, uint64_t bits)
{
    std::memcpy(bytes.data() + index * size, &bits, size);
}

// all_to_all_v: the number of elements from one rank to another.
inline uint64_t extent(const Operation &o, uint32_t from, uint32_t to)
{
    return o.count == 0 ? 0 : mix(o.seed ^ (from * 16 + to + 1)) % (2 * o.count);
}

// Elements in the send buffer and in the receive buffer of a rank.
inline uint64_t send_count(const Operation &o, uint32_t rank, uint32_t ranks)
{
    uint64_t count = 0;
    switch (o.kind) {
    case REDUCE_SCATTER:
    case ALL_TO_ALL:
        return o.count * ranks;
    case ALL_TO_ALL_V:
        for (uint32_t to = 0; to < ranks; to++) {
            count += extent(o, rank, to);
        }
        return count;
    case BROADCAST:
        return rank == o.root ? o.count : 0;
    case SCATTER:
        return rank == o.root ? o.count * ranks : 0;
    default:
        return o.count;
    }
}

inline uint64_t recv_count(const Operation &o, uint32_t rank, uint32_t ranks)
{
    uint64_t count = 0;
    switch (o.kind) {
    case ALLGATHER:
    case ALL_TO_ALL:
        return o.count * ranks;
    case ALL_TO_ALL_V:
        for (uint32_t from = 0; from < ranks; from++) {
            count += extent(o, from, rank);
        }
        return count;
    case REDUCE:
        return rank == o.root ? o.count : 0;
    case GATHER:
        return rank == o.root ? o.count * ranks : 0;
    default:
        return o.count;
    }
}

inline Bytes sent(const Operation &o, uint32_t rank, uint32_t ranks)
{
    const uint32_t size = weir_dtype_bytes(o.dtype);
    Bytes bytes(send_count(o, rank, ranks) * size);
    for (uint64_t i = 0; i * size < bytes.size(); i++) {
        put_element(bytes, i, size, element(o, rank, i));
    }
    return bytes;
}

// The offset in the send buffer of `from` of the data for `to`.
inline uint64_t sent_at(const Operation &o, uint32_t from, uint32_t to)
{
    uint64_t at = 0;
    for (uint32_t k = 0; k < to; k++) {
        at += extent(o, from, k);
    }
    return at;
}

inline Bytes expected(const Operation &o, uint32_t rank, uint32_t ranks)
{
    const uint32_t size = weir_dtype_bytes(o.dtype);
    Bytes bytes(recv_count(o, rank, ranks) * size);
    uint64_t at = 0;
    for (uint64_t i = 0; reduces(o) && i * size < bytes.size(); i++) {
        put_element(bytes, i, size, joined(o, ranks, o.kind == REDUCE_SCATTER ? rank * o.count + i : i));
    }
    for (uint32_t from = 0; !reduces(o) && from < ranks; from++) {
        const uint32_t previous = (rank + ranks - 1) % ranks;
        const uint64_t first = o.kind == ALL_TO_ALL || o.kind == SCATTER ? rank * o.count
                               : o.kind == ALL_TO_ALL_V                  ? sent_at(o, from, rank)
                                                                         : 0;
        const uint64_t count = o.kind == ALL_TO_ALL_V ? extent(o, from, rank) : o.count;
        const bool from_root = o.kind == BROADCAST || o.kind == SCATTER;
        if ((from_root && from != o.root) || (o.kind == MESSAGES && from != previous) ||
            (o.kind == GATHER && rank != o.root)) {
            continue;
        }
        for (uint64_t i = 0; i < count; i++) {
            put_element(bytes, at++, size, element(o, from, first + i));
        }
    }
    return bytes;
}

// A rank's objects for operations.
struct Bench {
    weirt_rank *rank;
    weirt_comm comm;
    weir_collective *collective;
    weir_memory *in;
    weir_memory *out;
    void *stream;
};

// Everything but the communicator.
inline bool bench_fill(weirt_rank *rank, const weir_collective_opts *opts, uint64_t bytes, Bench *bench)
{
    return WEIRT_OK(rank, weir_collective_create(bench->comm.comm, opts, &bench->collective)) &&
           WEIRT_OK(rank, weir_memory_allocate(bench->comm.comm, bytes + 4 * guard, nullptr, &bench->in)) &&
           WEIRT_OK(rank, weir_memory_allocate(bench->comm.comm, bytes + 4 * guard, nullptr, &bench->out)) &&
           WEIRT_OK(rank, weir_stream_create(bench->comm.device, &bench->stream));
}

// timeout_ms 0: weirt_timeout_ms. On a busy machine, set-up may take longer than a short one.
inline bool bench_open(weirt_rank *rank, const weir_collective_opts *opts, uint64_t bytes, uint32_t timeout_ms,
                       Bench *bench)
{
    std::memset(bench, 0, sizeof *bench);
    bench->rank = rank;
    return weirt_comm_open(rank, timeout_ms, &bench->comm) && bench_fill(rank, opts, bytes, bench);
}

// The same with a deadline of kernels alone; 0: weirt_timeout_ms.
inline bool bench_open_kernels(weirt_rank *rank, const weir_collective_opts *opts, uint64_t bytes,
                               uint32_t kernel_timeout_ms, Bench *bench)
{
    std::memset(bench, 0, sizeof *bench);
    bench->rank = rank;
    return (kernel_timeout_ms == 0 ? weirt_comm_open(rank, 0, &bench->comm)
                                   : weirt_comm_open_kernels(rank, kernel_timeout_ms, &bench->comm)) &&
           bench_fill(rank, opts, bytes, bench);
}

// Without a barrier: for ranks of which one has died.
inline void bench_leave(Bench *bench)
{
    if (bench->stream != nullptr) {
        weir_stream_destroy(bench->comm.device, bench->stream);
    }
    weir_collective_destroy(bench->collective);
    weir_memory_destroy(bench->out);
    weir_memory_destroy(bench->in);
    weirt_comm_close(&bench->comm);
}

inline void bench_close(Bench *bench)
{
    if (bench->stream != nullptr) {
        weir_stream_destroy(bench->comm.device, bench->stream);
        bench->stream = nullptr;
    }
    (void)weirt_barrier(bench->rank);
    bench_leave(bench);
}

// Leaves room on a shared GPU for the kernels of all ranks, which wait for each other.
inline void fit_together(const weirt_rank *rank, weir_collective_opts *opts)
{
    if (rank->size > 4) {
        opts->threads = 128;
    }
}

// The place of the factor, behind the data to send.
inline char *factor_at(const Bench *b)
{
    return static_cast<char *>(weir_memory_pointer(b->in)) + weir_memory_bytes(b->in) - guard;
}

inline weir_status set_factor(const Bench *b, const Operation &o)
{
    weir_factor factor = {};
    if (o.factor_type == WEIR_DTYPES) {
        factor.value = factor_of(o);
    } else {
        factor.memory = factor_at(b);
        factor.dtype = static_cast<weir_dtype>(o.factor_type);
    }
    return weir_collective_set_factor(b->collective, &factor);
}

inline weir_status call(const Bench *b, const Operation &o, const void *send, void *recv)
{
    weir_collective *c = b->collective;
    const uint32_t rank = weir_collective_rank(c);
    const uint32_t ranks = weir_collective_size(c);
    weir_extent sends[WEIR_COLLECTIVE_RANKS];
    weir_extent recvs[WEIR_COLLECTIVE_RANKS];
    uint64_t at = 0;
    weir_status status = reduces(o) && o.op == WEIR_SCALED_SUM ? set_factor(b, o) : WEIR_OK;
    if (status != WEIR_OK) {
        return status;
    }
    switch (o.kind) {
    case ALLREDUCE:
        return weir_allreduce(c, send, recv, o.count, o.dtype, o.op, b->stream);
    case REDUCE:
        return weir_reduce(c, send, rank == o.root ? recv : nullptr, o.count, o.dtype, o.op, o.root, b->stream);
    case REDUCE_SCATTER:
        return weir_reduce_scatter(c, send, recv, o.count, o.dtype, o.op, b->stream);
    case ALLGATHER:
        return weir_allgather(c, send, recv, o.count, o.dtype, b->stream);
    case BROADCAST:
        return weir_broadcast(c, rank == o.root ? send : nullptr, recv, o.count, o.dtype, o.root, b->stream);
    case ALL_TO_ALL:
        return weir_all_to_all(c, send, recv, o.count, o.dtype, b->stream);
    case GATHER:
        return weir_gather(c, send, rank == o.root ? recv : nullptr, o.count, o.dtype, o.root, b->stream);
    case SCATTER:
        return weir_scatter(c, rank == o.root ? send : nullptr, recv, o.count, o.dtype, o.root, b->stream);
    case ALL_TO_ALL_V:
        for (uint32_t k = 0; k < ranks; k++) {
            sends[k] = { sent_at(o, rank, k), extent(o, rank, k) };
            recvs[k] = { at, extent(o, k, rank) };
            at += recvs[k].count;
        }
        return weir_all_to_all_v(c, send, sends, recv, recvs, o.dtype, b->stream);
    default: // around the ring: every second rank receives first, so large messages do not block
        if (rank % 2 == 0) {
            status = weir_send(c, send, o.count, o.dtype, (rank + 1) % ranks, b->stream);
        } else {
            status = weir_recv(c, recv, o.count, o.dtype, (rank + ranks - 1) % ranks, b->stream);
        }
        if (status == WEIR_OK && rank % 2 == 0) {
            status = weir_recv(c, recv, o.count, o.dtype, (rank + ranks - 1) % ranks, b->stream);
        } else if (status == WEIR_OK) {
            status = weir_send(c, send, o.count, o.dtype, (rank + 1) % ranks, b->stream);
        }
        return status;
    }
}

// Places of the buffers in the memories of a bench.
struct Places {
    char *send;
    char *recv;
};

inline Places places_of(const Bench *b, const Operation &o)
{
    const uint32_t rank = weir_collective_rank(b->collective);
    const uint64_t off = guard + o.shift * weir_dtype_bytes(o.dtype);
    const uint64_t part = rank * o.count * weir_dtype_bytes(o.dtype);
    Places at = { static_cast<char *>(weir_memory_pointer(b->in)) + off,
                  static_cast<char *>(weir_memory_pointer(b->out)) + off };
    if (o.in_place && (o.kind == ALLGATHER || o.kind == GATHER)) {
        at.send = at.recv + part;
    } else if (o.in_place && (o.kind == REDUCE_SCATTER || o.kind == SCATTER)) {
        at.send = at.recv;
        at.recv += part;
    } else if (o.in_place) {
        at.send = at.recv;
    }
    return at;
}

inline std::string text_of(const Operation &o)
{
    char text[160];
    std::snprintf(text, sizeof text, "%s of %llu, type %d, op %d, root %u, shift %u%s", kind_names[o.kind],
                  static_cast<unsigned long long>(o.count), o.dtype, o.op, o.root, o.shift,
                  o.in_place ? ", in place" : "");
    return text;
}

// Poisons the receive buffer and the memory around it, and writes the data to send. Then all ranks meet, because on a
// shared GPU a rank's first fill would wait for kernels that wait for that rank.
inline bool prepare(const Bench *b, const Operation &o, const Places &at)
{
    const uint32_t rank = weir_collective_rank(b->collective);
    const uint32_t ranks = weir_collective_size(b->collective);
    const Bytes send = sent(o, rank, ranks);
    const bool loads = o.factor_type != WEIR_DTYPES;
    const uint64_t factor = loads ? factor_bits(o) : 0;
    return (!loads || WEIRT_OK(b->rank, weir_device_copy(b->comm.device, factor_at(b), &factor, sizeof factor))) &&
           WEIRT_OK(b->rank,
                    weir_device_fill(b->comm.device, weir_memory_pointer(b->out), poison, weir_memory_bytes(b->out))) &&
           (send.empty() || WEIRT_OK(b->rank, weir_device_copy(b->comm.device, at.send, send.data(), send.size()))) &&
           weirt_barrier(b->rank);
}

inline bool check(const Bench *b, const Operation &o, const Places &at)
{
    const uint32_t rank = weir_collective_rank(b->collective);
    const uint32_t ranks = weir_collective_size(b->collective);
    Bytes want(weir_memory_bytes(b->out), poison);
    Bytes have(want.size());
    const char *base = static_cast<char *>(weir_memory_pointer(b->out));
    const Bytes send = sent(o, rank, ranks);
    const Bytes recv = expected(o, rank, ranks);
    if (o.in_place && !send.empty()) {
        std::memcpy(want.data() + (at.send - base), send.data(), send.size());
    }
    if (!recv.empty()) {
        std::memcpy(want.data() + (at.recv - base), recv.data(), recv.size());
    }
    if (!WEIRT_OK(b->rank, weir_device_copy(b->comm.device, have.data(), base, have.size()))) {
        return false;
    }
    const size_t wrong = first_difference(have, want);
    if (wrong < have.size()) {
        weirt_fail(b->rank, __FILE__, __LINE__, "%s: byte %lld of recv is %02x, expected %02x", text_of(o).c_str(),
                   static_cast<long long>(base + wrong - at.recv), have[wrong], want[wrong]);
    }
    return wrong == have.size();
}

inline bool finish(const Bench *b, const Operation &o)
{
    const bool done = WEIRT_OK(b->rank, weir_stream_wait(b->comm.device, b->stream, weirt_timeout_ms()));
    if (!WEIRT_OK(b->rank, weir_comm_status(b->comm.comm)) || !done) {
        weirt_fail(b->rank, __FILE__, __LINE__, "%s", text_of(o).c_str());
        return false;
    }
    return true;
}

// The number of kernels that the collective has launched.
inline uint64_t launches_of(const Bench *b)
{
    uint64_t epoch = 0;
    weir_dev_collective device;
    weir_collective_device(b->collective, &device);
    WEIRT_OK(b->rank, weir_device_copy(b->comm.device, &epoch, device.epoch, sizeof epoch));
    return epoch >> 32;
}

inline bool run(const Bench *b, const Operation &o)
{
    const Places at = places_of(b, o);
    if (!prepare(b, o, at)) {
        return false;
    }
    if (!WEIRT_OK(b->rank, call(b, o, at.send, at.recv))) {
        weirt_fail(b->rank, __FILE__, __LINE__, "%s", text_of(o).c_str());
        return false;
    }
    return finish(b, o) && check(b, o, at);
}

// Replays a graph of these calls with new data.
inline bool replay(Bench *b, Operation o, const Places &at, uint32_t launches, const std::function<bool()> &calls)
{
    weir_device *device = b->comm.device;
    void *graph = nullptr;
    bool fine = WEIRT_OK(b->rank, weir_graph_begin(device, b->stream)) && calls() &&
                WEIRT_OK(b->rank, weir_graph_end(device, b->stream, &graph));
    for (o.seed = 1; o.seed <= launches && fine; o.seed++) {
        fine = prepare(b, o, at) && WEIRT_OK(b->rank, weir_graph_launch(device, graph, b->stream)) && finish(b, o) &&
               check(b, o, at);
    }
    if (graph != nullptr) {
        weir_graph_destroy(device, graph);
    }
    return fine;
}

// Ranks that call different operations get WEIR_ERR_MISMATCH, with `part` in its text. `called` is the call's status.
inline void expect_mismatch(const Bench *b, weir_status called, const char *part)
{
    // A late rank gets the error at once.
    WEIRT_EXPECT(b->rank, called == WEIR_OK || called == WEIR_ERR_MISMATCH);
    const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
    WEIRT_OK(b->rank, weir_stream_wait(b->comm.device, b->stream, weirt_timeout_ms()));
    weir_status status = weir_comm_status(b->comm.comm);
    while (status == WEIR_OK && weirt_now_ms() < end) {
        weirt_sleep_ms(5);
        status = weir_comm_status(b->comm.comm);
    }
    WEIRT_EXPECT(b->rank, status == WEIR_ERR_MISMATCH);
    WEIRT_TEXT(b->rank, part);
}

// A kernel on the stream still writes memory.
inline void expect_usable(const Bench *b)
{
    constexpr uint64_t count = 8;
    large_args args = {};
    uint64_t words[count] = {};
    args.words = static_cast<uint64_t *>(weir_memory_pointer(b->out));
    args.count = count;
    args.seed = 5;
    const bool ran =
        WEIRT_OK(b->rank, weir_launch(b->comm.device, large_kernel(), weir_shape{ 1, 1 }, &args, nullptr, b->stream)) &&
        WEIRT_OK(b->rank, weir_stream_wait(b->comm.device, b->stream, weirt_timeout_ms())) &&
        WEIRT_OK(b->rank, weir_device_copy(b->comm.device, words, args.words, sizeof words));
    for (uint64_t i = 0; i < count && ran; i++) {
        WEIRT_EXPECT(b->rank, words[i] == large_word(5, 0, i));
    }
}

// Dies when all other ranks have called expect_death.
inline void die_last(weirt_rank *rank)
{
    for (uint32_t k = 0; k < rank->size; k++) {
        (void)(k == rank->rank || weirt_step_wait(rank, k, 1));
    }
    weirt_die(rank, WEIRT_KILL);
}

// Rank 2 dies once all others have made their call, which returned `called`. The others' kernels end soon, and their
// streams stay usable. A GPU does nothing else at this time, but other programs share the processor.
inline void expect_death(const Bench *b, weir_status called)
{
    weirt_step(b->rank, 1);
    (void)weirt_death_wait(b->rank, 2);
    const uint64_t since = weirt_now_ms();
    const bool gpu = std::strcmp(b->rank->stage->kind, "gpu") == 0;
    WEIRT_EXPECT(b->rank, called == WEIR_OK || called == WEIR_ERR_REMOTE);
    WEIRT_OK(b->rank, weir_stream_wait(b->comm.device, b->stream, weirt_timeout_ms()));
    weir_status status = weir_comm_status(b->comm.comm);
    while (status == WEIR_OK && weirt_now_ms() - since < weirt_timeout_ms()) { // a kernel without data from rank 2
        weirt_sleep_ms(1);
        status = weir_comm_status(b->comm.comm);
    }
    WEIRT_EXPECT(b->rank, weirt_now_ms() - since < (gpu ? 1000 : 1000 + weirt_slack_ms()));
    WEIRT_EXPECT(b->rank, status == WEIR_ERR_REMOTE);
    WEIRT_TEXT(b->rank, "rank 2 died");
    expect_usable(b);
}

// Rank 2 dies; the others' next call ends with WEIR_ERR_REMOTE.
inline void die_in_rank_two(Bench *b, const Operation &o)
{
    weirt_rank *rank = b->rank;
    (void)run(b, o);
    (void)weirt_barrier(rank);
    if (rank->rank == 2) {
        die_last(rank);
    }
    const Places at = places_of(b, o);
    expect_death(b, call(b, o, at.send, at.recv));
}

#endif
