// Parts: allgather and reduce_scatter of random parts against a second implementation, on one to eight ranks, and wrong
// calls of parts. A case that fails is shrunk before it is reported.
extern "C" {
#include "src/host/collective/collective.h"
}
#include "test/collective/operations.h"
#include "test/harness/stage_test.h"

namespace {

struct Setting {
    weir_collective_form form;
    uint32_t blocks;
    uint32_t threads;
    bool registered;
    uint32_t host_ranks;
    uint32_t cases;
    uint64_t elements; // about the most of an extent
};

// A part as all ranks know it.
struct Part {
    weir_dtype dtype;
    uint32_t shift; // misalignment in elements
    bool in_place;
    uint64_t seed;
    std::vector<weir_extent> extents;
};

// A call.
struct Case {
    bool joins;
    weir_op op;
    bool captured;
    std::vector<Part> parts;
};

constexpr uint64_t most_parts = 8;

// Room for the parts of a case: random_part gives up to twice `elements`, with gaps.
uint64_t memory_bytes(const Setting &s) { return most_parts * (2 * s.elements + 150) * 8; }

uint64_t end_of(const Part &part)
{
    uint64_t end = 0;
    for (const weir_extent &extent : part.extents) {
        end = std::max(end, extent.at + extent.count);
    }
    return end;
}

Operation operation_of(const Case &c, const Part &part, uint32_t host_ranks)
{
    return { c.joins ? REDUCE_SCATTER : ALLGATHER, part.dtype, c.op, 0, 0, 0, false, true, part.seed, host_ranks };
}

// Extents in random order with gaps. Some parts are a broadcast or a reduce, or have one extent that is much longer.
Part random_part(uint64_t seed, uint32_t ranks, weir_dtype dtype, uint64_t elements)
{
    Part part = { dtype, static_cast<uint32_t>(mix(seed) % 5), mix(seed + 1) % 3 == 0, seed, {} };
    part.extents.resize(ranks);
    const uint64_t skew = mix(seed + 2) % 4;
    const uint32_t chosen = static_cast<uint32_t>(mix(seed + 3) % ranks);
    uint64_t at = 0;
    for (uint32_t i = 0; i < ranks; i++) {
        const uint32_t k = (i * 3 + chosen) % ranks; // with 3 or 6 ranks some come twice, others stay empty
        const uint64_t random = mix(seed * 16 + i + 5);
        uint64_t count = random % 4 == 0 ? random / 4 % 3 : random / 4 % (elements / 4 + 1);
        if (skew == 0) {
            count = k == chosen ? elements / 2 : 0;
        } else if (skew == 1) {
            count = k == chosen ? elements : count / 8;
        }
        if (part.extents[k].count == 0) {
            at += random >> 60;
            part.extents[k] = { at, count };
            at += count;
        }
    }
    return part;
}

// Extents of almost the same size, of which kernels guess the place.
Part even_part(uint64_t seed, uint32_t ranks, weir_dtype dtype, uint64_t elements)
{
    Part part = { dtype, 0, false, seed, {} };
    uint64_t at = 0;
    for (uint32_t k = 0; k < ranks; k++) {
        const uint64_t count = elements / 8 + mix(seed * 16 + k) % 9;
        part.extents.push_back({ at, count });
        at += count;
    }
    return part;
}

Case random_case(uint64_t seed, uint32_t ranks, const Setting &s)
{
    const bool even = mix(seed + 4) % 4 == 0;
    Case c = { mix(seed) % 2 != 0, static_cast<weir_op>(mix(seed + 1) % WEIR_OPS), mix(seed + 2) % 3 == 0, {} };
    const uint64_t n = mix(seed + 5) % 4 == 0 ? 1 : mix(seed + 3) % (most_parts + 1);
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t random = mix(seed * 64 + i);
        const weir_dtype dtype = static_cast<weir_dtype>(random % WEIR_DTYPES);
        const weir_dtype type = is_defined(dtype, c.op) ? dtype : WEIR_F16;
        c.parts.push_back(even ? even_part(random, ranks, type, s.elements)
                               : random_part(random, ranks, type, s.elements));
    }
    return c;
}

std::string text_of(const Case &c)
{
    std::string text = std::string(c.joins ? "reduce_scatter_parts, op " : "allgather_parts, op ") +
                       std::to_string(c.op) + (c.captured ? ", captured" : "");
    for (const Part &part : c.parts) {
        text += "\n  type " + std::to_string(part.dtype) + ", shift " + std::to_string(part.shift) +
                (part.in_place ? ", in place:" : ":");
        for (const weir_extent &extent : part.extents) {
            text += " " + std::to_string(extent.count) + " at " + std::to_string(extent.at);
        }
    }
    return text;
}

// Both memories of a rank before and after a call, and the parts in them.
struct Image {
    Bytes in;
    Bytes out;
    Bytes want_in;
    Bytes want_out;
    std::vector<weir_part> parts;
};

Image image_of(const Bench *b, const Case &c, uint32_t host_ranks)
{
    const uint32_t rank = weir_collective_rank(b->collective);
    const uint32_t ranks = weir_collective_size(b->collective);
    char *in = static_cast<char *>(weir_memory_pointer(b->in));
    char *out = static_cast<char *>(weir_memory_pointer(b->out));
    Image image;
    image.in.assign(weir_memory_bytes(b->in), poison);
    std::memcpy(image.in.data() + (factor_at(b) - in), &factor_by_value, sizeof factor_by_value);
    image.out.assign(weir_memory_bytes(b->out), poison);
    uint64_t in_at = guard;
    uint64_t out_at = guard;
    std::vector<std::function<void()>> after;
    image.want_in = image.in;
    image.want_out = image.out;
    for (const Part &part : c.parts) {
        const uint32_t size = weir_dtype_bytes(part.dtype);
        const weir_extent own = part.extents[rank];
        const Operation o = operation_of(c, part, host_ranks);
        // All extents lie in `out` of an allgather, and in `in` of a reduce_scatter; the rank's own in the other one.
        uint64_t &all_at = c.joins ? in_at : out_at;
        uint64_t &one_at = c.joins ? out_at : in_at;
        Bytes &all = c.joins ? image.in : image.out;
        Bytes &one = c.joins ? image.out : image.in;
        const uint64_t all_first = (all_at + 15) / 16 * 16 + part.shift * size;
        all_at = all_first + end_of(part) * size + 16;
        char *all_pointer = (c.joins ? in : out) + all_first;
        char *one_pointer = all_pointer + own.at * size;
        uint64_t one_first = all_first + own.at * size;
        if (!part.in_place) {
            one_first = (one_at + 15) / 16 * 16 + part.shift * size;
            one_at = one_first + own.count * size + 16;
            one_pointer = (c.joins ? out : in) + one_first;
        }
        Bytes &own_bytes = part.in_place ? all : one;
        for (uint32_t k = 0; k < ranks; k++) {
            for (uint64_t i = 0; i < part.extents[k].count && c.joins; i++) {
                const uint64_t index = part.extents[k].at + i;
                put_element(all, all_first / size + index, size, element(o, rank, index));
            }
        }
        for (uint64_t i = 0; i < own.count && !c.joins; i++) {
            put_element(own_bytes, one_first / size + i, size, element(o, rank, i));
        }
        after.push_back([&image, &c, &part, o, ranks, size, own, all_first, one_first] {
            Bytes &results = c.joins && part.in_place ? image.want_in : image.want_out;
            for (uint64_t i = 0; i < own.count && c.joins; i++) {
                put_element(results, one_first / size + i, size, joined(o, ranks, own.at + i));
            }
            for (uint32_t k = 0; k < ranks && !c.joins; k++) {
                for (uint64_t i = 0; i < part.extents[k].count; i++) {
                    put_element(results, all_first / size + part.extents[k].at + i, size, element(o, k, i));
                }
            }
        });
        const bool some_all = end_of(part) != 0;
        weir_part p = { own.count != 0 ? one_pointer : nullptr, some_all ? all_pointer : nullptr, part.extents.data(),
                        part.dtype };
        if (c.joins) {
            p = { p.recv, own.count != 0 ? one_pointer : nullptr, part.extents.data(), part.dtype };
        }
        image.parts.push_back(p);
    }
    image.want_in = image.in;
    image.want_out = image.out;
    for (const std::function<void()> &step : after) {
        step();
    }
    return image;
}

weir_status call_parts(const Bench *b, const Case &c, const std::vector<weir_part> &parts)
{
    const uint32_t n = static_cast<uint32_t>(parts.size());
    const weir_part *first = parts.data();
    const weir_factor factor = { factor_by_value, c.captured ? factor_at(b) : nullptr, WEIR_F64 };
    const weir_status set = weir_collective_set_factor(b->collective, &factor);
    if (set != WEIR_OK) {
        return set;
    }
    if (n == 1 && c.joins) {
        return weir_reduce_scatter_v(b->collective, first->send, first->recv, first->extents, first->dtype, c.op,
                                     b->stream);
    }
    if (n == 1) {
        return weir_allgather_v(b->collective, first->send, first->recv, first->extents, first->dtype, b->stream);
    }
    return c.joins ? weir_reduce_scatter_parts(b->collective, first, n, c.op, b->stream)
                   : weir_allgather_parts(b->collective, first, n, b->stream);
}

// Runs a call. False if a call failed; *right says whether this rank has the right bytes.
bool attempt(const Bench *b, const Case &c, uint32_t host_ranks, bool *right, std::string *text)
{
    weirt_rank *rank = b->rank;
    weir_device *device = b->comm.device;
    const Image image = image_of(b, c, host_ranks);
    Bytes in(image.in.size());
    Bytes out(image.out.size());
    void *graph = nullptr;
    bool fine = WEIRT_OK(rank, weir_device_copy(device, weir_memory_pointer(b->in), image.in.data(), in.size())) &&
                WEIRT_OK(rank, weir_device_copy(device, weir_memory_pointer(b->out), image.out.data(), out.size())) &&
                weirt_barrier(rank);
    fine = fine && (!c.captured || WEIRT_OK(rank, weir_graph_begin(device, b->stream))) &&
           WEIRT_OK(rank, call_parts(b, c, image.parts));
    if (c.captured) {
        fine = fine && WEIRT_OK(rank, weir_graph_end(device, b->stream, &graph)) &&
               WEIRT_OK(rank, weir_graph_launch(device, graph, b->stream));
    }
    fine = fine && WEIRT_OK(rank, weir_stream_wait(device, b->stream, weirt_timeout_ms())) &&
           WEIRT_OK(rank, weir_comm_status(b->comm.comm)) &&
           WEIRT_OK(rank, weir_device_copy(device, in.data(), weir_memory_pointer(b->in), in.size())) &&
           WEIRT_OK(rank, weir_device_copy(device, out.data(), weir_memory_pointer(b->out), out.size()));
    if (graph != nullptr) {
        weir_graph_destroy(device, graph);
    }
    const size_t wrong_in = first_difference(in, image.want_in);
    const size_t wrong_out = first_difference(out, image.want_out);
    *right = in == image.want_in && out == image.want_out;
    *text = "first wrong bytes: " + std::to_string(wrong_in) + " of in, " + std::to_string(wrong_out) + " of out";
    return fine;
}

// Runs a call on all ranks. One that gives wrong bytes loses parts for as long as it still does, and is then reported.
bool run_case(const Bench *b, Case c, uint32_t host_ranks, uint64_t seed)
{
    const auto everyone = [b, host_ranks](const Case &tried, bool *right, std::string *text) {
        uint8_t rights[WEIR_COLLECTIVE_RANKS] = {};
        bool mine = false;
        const bool fine = attempt(b, tried, host_ranks, &mine, text);
        rights[b->rank->rank] = mine ? 1 : 0;
        if (!fine || !WEIRT_OK(b->rank, weir_bootstrap_allgather(b->comm.boot, nullptr, rights, 1))) {
            return false;
        }
        *right = std::count(rights, rights + b->rank->size, 1) == static_cast<int>(b->rank->size);
        return true;
    };
    bool right = false;
    std::string text;
    std::string last;
    if (!everyone(c, &right, &text)) {
        weirt_fail(b->rank, __FILE__, __LINE__, "seed %llu: %s", static_cast<unsigned long long>(seed),
                   text_of(c).c_str());
        return false;
    }
    if (right) {
        return true;
    }
    for (size_t i = 0; i < c.parts.size();) {
        Case less = c;
        less.parts.erase(less.parts.begin() + static_cast<ptrdiff_t>(i));
        if (everyone(less, &right, &last) && !right) {
            c = less;
            text = last;
        } else {
            i++;
        }
    }
    weirt_fail(b->rank, __FILE__, __LINE__, "seed %llu: %s\n%s", static_cast<unsigned long long>(seed), text.c_str(),
               text_of(c).c_str());
    return false;
}

bool open(weirt_rank *rank, const Setting &s, Bench *b)
{
    weir_collective_opts opts = {};
    opts.size = sizeof opts;
    opts.form = s.form;
    opts.host_ranks = s.host_ranks;
    if (std::strcmp(rank->stage->kind, "cpu") == 0) {
        opts.blocks = s.blocks;
        opts.threads = s.threads;
    } else {
        fit_together(rank, &opts);
    }
    // Slots get little memory, so calls take several rounds.
    opts.staging_bytes = s.form == WEIR_FORM_SLOTS ? 128 << 10 : 4 << 20;
    return bench_open(rank, &opts, memory_bytes(s), 0, b) &&
           (!s.registered || (WEIRT_OK(rank, weir_collective_register(b->collective, b->in)) &&
                              WEIRT_OK(rank, weir_collective_register(b->collective, b->out))));
}

void random_cases(weirt_rank *rank)
{
    const Setting *s = static_cast<const Setting *>(rank->arg);
    Bench b;
    bool fine = open(rank, *s, &b);
    for (uint64_t i = 0; i < s->cases && fine; i++) {
        const uint64_t seed = i * 8 + rank->size;
        fine = run_case(&b, random_case(seed, rank->size, *s), s->host_ranks, seed);
    }
    bench_close(&b);
}

// Parts with the elements of one rank, some behind an empty part. Three ranks and more all join, or pass on, some of
// the elements, as in a reduce or a broadcast.
void one_extent(weirt_rank *rank)
{
    const Setting *s = static_cast<const Setting *>(rank->arg);
    Bench b;
    bool fine = open(rank, *s, &b);
    for (uint32_t n = 0; n < 4 * rank->size && fine; n++) {
        const uint32_t turn = n / rank->size;
        const weir_dtype dtype = static_cast<weir_dtype>(n * 5 % WEIR_DTYPES);
        const weir_op op = static_cast<weir_op>(n % WEIR_OPS);
        Part part = { dtype, n % 5, turn % 2 != 0, n, std::vector<weir_extent>(rank->size) };
        Case c = { true, is_defined(dtype, op) ? op : WEIR_SUM, turn >= 2, {} };
        if (n % 4 == 0) {
            c.parts.push_back(part);
        }
        part.extents[n % rank->size] = { n, s->elements - n };
        c.parts.push_back(part);
        fine = run_case(&b, c, 0, n);
        c.joins = false;
        fine = fine && run_case(&b, c, 0, n);
    }
    for (const weir_collective_kind kind : { WEIR_REDUCE, WEIR_BROADCAST }) {
        WEIRT_EXPECT(rank, (b.collective->logged[kind] != 0) == (rank->size > 2));
    }
    bench_close(&b);
}

// One rank's extent is longer than all others together and begins at an odd element: its own data is misaligned in
// send, but not the place of its results. Each extent takes several rounds of slots.
void odd_extents(weirt_rank *rank)
{
    const Setting *s = static_cast<const Setting *>(rank->arg);
    const weir_dtype dtypes[] = { WEIR_F16, WEIR_BF16, WEIR_F32, WEIR_U8 };
    Bench b;
    bool fine = open(rank, *s, &b);
    for (uint32_t n = 0; n < 16 && fine; n++) {
        Case c = { true, WEIR_SUM, n >= 12, {} };
        for (uint32_t i = 0; i <= n / 4 % 2; i++) {
            Part part = { dtypes[n % 4], 0, false, n, std::vector<weir_extent>(rank->size) };
            uint64_t at = 1;
            for (uint32_t k = 0; k < rank->size; k++) {
                part.extents[k] = { at, k == n % rank->size ? s->elements : s->elements / rank->size / 2 - k };
                at += part.extents[k].count + (part.extents[k].count % 2 != 0 ? 1 : 0);
            }
            c.parts.push_back(part);
        }
        fine = run_case(&b, c, 0, n);
    }
    bench_close(&b);
}

// One part whose extents are multiples of 16 bytes: in rising or falling order, with gaps, some of them empty. Most
// ranks join less than the longest extent. Sums have kernels for one part by packets and lines, with one of two ranks,
// and all operations go directly out of registered memory by slots.
void aligned_extents(weirt_rank *rank)
{
    const Setting *s = static_cast<const Setting *>(rank->arg);
    const weir_dtype dtypes[] = { WEIR_F32, WEIR_F16, WEIR_BF16, WEIR_I32 };
    const weir_op ops[] = { WEIR_SUM, WEIR_AVG, WEIR_SCALED_SUM, WEIR_MAX };
    Bench b;
    bool fine = open(rank, *s, &b);
    for (uint32_t n = 0; n < 48 && fine; n++) {
        const weir_dtype dtype = dtypes[n % 4];
        const weir_op op = ops[n / 4 % 4];
        Part part = { dtype, 0, n % 5 == 0, n, std::vector<weir_extent>(rank->size) };
        const uint64_t unit = 16 / weir_dtype_bytes(dtype);
        uint64_t at = 0;
        for (uint32_t i = 0; i < rank->size; i++) {
            const uint32_t k = n % 2 == 0 ? i : rank->size - 1 - i;
            const uint64_t random = mix(n * 16 + k);
            const uint64_t units =
                random % 5 == 0 ? 0 : random / 5 % (s->elements / 4 / unit) * (k == n % rank->size ? 4 : 1);
            at += random >> 62 << 4;
            part.extents[k] = { at, units * unit };
            at += units * unit;
        }
        const weir_collective_form form = static_cast<weir_collective_form>(WEIR_FORM_PACKETS + n / 16);
        const Case c = { true, is_defined(dtype, op) ? op : WEIR_SUM, n % 7 == 0, { part } };
        fine = WEIRT_OK(rank, weir_collective_force(b.collective, form, 0)) && run_case(&b, c, 0, n);
    }
    bench_close(&b);
}

// Two ranks that send different numbers of bytes through slots: many blocks, so that each direction has some of them.
// One part or three, aligned, or with extents that are not.
void uneven_by_slots(weirt_rank *rank)
{
    const Setting *s = static_cast<const Setting *>(rank->arg);
    const uint64_t shares[][2] = { { 1, 2 }, { 9, 1 }, { 0, 3 }, { 4, 0 }, { 3, 2 }, { 1, 60 }, { 2, 2 } };
    Bench b;
    bool fine = open(rank, *s, &b);
    for (uint64_t n = 0; n < 8 * 7 && fine; n++) {
        const auto &share = shares[n / 8];
        const uint64_t random = mix(n + 1);
        const uint64_t count = n % 2 != 0 ? 3 : 1;
        const bool aligned = n / 4 % 2 == 0;
        Case c = { n / 2 % 2 != 0, WEIR_SUM, random % 4 == 0, {} };
        for (uint64_t i = 0; i < count; i++) {
            const uint64_t unit = s->elements / (share[0] + share[1]) / count / 16 * 16 + (aligned ? 0 : 1);
            Part part = { random / 4 % 2 != 0 ? WEIR_F16 : WEIR_F32, 0, random / 8 % 3 == 0, n + 100 * i, {} };
            part.extents.push_back({ unit * share[1] + 16, unit * share[0] });
            part.extents.push_back({ 0, unit * share[1] });
            c.parts.push_back(part);
        }
        fine = run_case(&b, c, 0, n);
    }
    bench_close(&b);
}

// Sums of several parts of one type: each type, without a factor, with one, and as an average. A thread has one line,
// or so many that it has two under way.
void sums_by_lines(weirt_rank *rank)
{
    const Setting *s = static_cast<const Setting *>(rank->arg);
    uint64_t seed = 0;
    Bench b;
    bool fine = open(rank, *s, &b);
    for (const weir_dtype dtype : { WEIR_F16, WEIR_BF16, WEIR_F32 }) {
        for (const weir_op op : { WEIR_SUM, WEIR_AVG, WEIR_SCALED_SUM }) {
            for (const uint64_t elements : { s->elements / 20, s->elements }) {
                Case c = { true, op, seed % 5 == 0, {} };
                for (uint32_t i = 0; i < 3; i++) {
                    c.parts.push_back(i == 1 ? random_part(++seed, rank->size, dtype, elements)
                                             : even_part(++seed, rank->size, dtype, elements));
                }
                fine = fine && run_case(&b, c, 0, seed);
            }
        }
    }
    bench_close(&b);
}

// An empty extent lies anywhere, and on each rank elsewhere: it decides about nothing.
void empty_extents(weirt_rank *rank)
{
    const Setting *s = static_cast<const Setting *>(rank->arg);
    Bench b;
    bool fine = open(rank, *s, &b);
    for (uint32_t n = 0; n < 12 && fine; n++) {
        Part part = { WEIR_F16, 0, n % 4 == 3, n, std::vector<weir_extent>(rank->size) };
        for (uint32_t k = 0; k < rank->size; k++) {
            part.extents[k] = { 96 * k, k == n % rank->size ? 0u : 96u };
        }
        part.extents[n % rank->size].at += rank->rank;
        fine = run_case(&b, { n % 2 == 0, WEIR_SUM, false, { part } }, 0, n);
    }
    bench_close(&b);
}

// Every type and operation, in two parts of that type and one of another.
void types(weirt_rank *rank)
{
    const Setting *s = static_cast<const Setting *>(rank->arg);
    Bench b;
    bool fine = open(rank, *s, &b);
    for (uint32_t n = 0; n < WEIR_DTYPES * WEIR_OPS && fine; n++) {
        const weir_dtype dtype = static_cast<weir_dtype>(n / WEIR_OPS);
        const weir_op op = static_cast<weir_op>(n % WEIR_OPS);
        Case c = { true, op, false, {} };
        for (const weir_dtype each : { dtype, WEIR_F16, dtype }) {
            c.parts.push_back(random_part(n * 3 + c.parts.size(), rank->size, each, s->elements));
        }
        const weir_collective_form form = static_cast<weir_collective_form>(WEIR_FORM_PACKETS + n % 3);
        c.captured = op == WEIR_SCALED_SUM && n % 4 < 2;
        if (is_defined(dtype, op)) {
            fine = WEIRT_OK(rank, weir_collective_force(b.collective, form, 0)) && run_case(&b, c, s->host_ranks, n);
        }
    }
    bench_close(&b);
}

// Parts between hosts that take several launches: many of one type, with another type in between, then some whose
// longest extent is more than one step carries, even and uneven ones.
void many_between_hosts(weirt_rank *rank)
{
    const Setting *s = static_cast<const Setting *>(rank->arg);
    Bench b;
    bool fine = open(rank, *s, &b);
    for (uint64_t n = 0; n < 12 && fine; n++) {
        Case c = { n % 2 != 0, n % 4 == 1 ? WEIR_SCALED_SUM : WEIR_SUM, n % 3 == 0, {} };
        for (uint32_t i = 0; i < 150 && n < 8; i++) {
            const weir_dtype dtype = i == 70 ? WEIR_F16 : WEIR_F32;
            c.parts.push_back(n % 3 == 1 ? even_part(n * 150 + i, rank->size, dtype, i % 5 == 0 ? 12000 : 1600)
                                         : random_part(n * 150 + i, rank->size, dtype, 40));
        }
        if (n >= 4) {
            c.parts.push_back(even_part(n, rank->size, WEIR_F32, s->elements));
            c.parts.push_back(random_part(n, rank->size, WEIR_F32, s->elements));
        }
        fine = run_case(&b, c, s->host_ranks, n);
    }
    bench_close(&b);
}

// ---- numbers of parts, and far offsets -----------------------------------------------------------------------------

// More parts than a launch takes, and some that are empty.
void many_parts(weirt_rank *rank)
{
    const Setting *s = static_cast<const Setting *>(rank->arg);
    const uint32_t n = static_cast<uint32_t>(s->elements);
    Bench b;
    bool fine = open(rank, *s, &b);
    char *in = static_cast<char *>(weir_memory_pointer(b.in));
    char *out = static_cast<char *>(weir_memory_pointer(b.out));
    std::vector<weir_extent> extents(rank->size);
    std::vector<weir_part> parts(n);
    for (uint32_t k = 0; k < rank->size; k++) {
        extents[k] = { 1 + k, 1 };
    }
    const std::vector<weir_extent> none(rank->size, { 3, 0 });
    const uint64_t each = rank->size + 2; // bytes of a part
    for (uint32_t i = 0; i < n; i++) {
        parts[i] = { in + i, out + i * each, i % 10 == 3 ? none.data() : extents.data(), WEIR_U8 };
    }
    Bytes mine(n);
    for (uint32_t i = 0; i < n; i++) {
        mine[i] = static_cast<uint8_t>(i * 7 + rank->rank);
    }
    Bytes have(n * each);
    const uint64_t before = fine ? launches_of(&b) : 0;
    fine = fine && WEIRT_OK(rank, weir_device_copy(b.comm.device, in, mine.data(), n)) &&
           WEIRT_OK(rank, weir_device_fill(b.comm.device, out, poison, have.size())) && weirt_barrier(rank) &&
           WEIRT_OK(rank, weir_allgather_parts(b.collective, parts.data(), n, b.stream)) &&
           WEIRT_OK(rank, weir_stream_wait(b.comm.device, b.stream, weirt_timeout_ms())) &&
           WEIRT_OK(rank, weir_comm_status(b.comm.comm)) &&
           WEIRT_OK(rank, weir_device_copy(b.comm.device, have.data(), out, have.size()));
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < have.size(); i++) {
        const uint64_t part = i / each;
        const uint64_t k = i % each - 1; // a large number for the byte before the extents
        const bool data = k < rank->size && part % 10 != 3;
        wrong += have[i] != (data ? static_cast<uint8_t>(part * 7 + k) : poison);
    }
    WEIRT_EXPECT(rank, !fine || wrong == 0);
    // include/weir/collective.h says how many parts fit.
    const uint64_t fit = rank->size == 2 ? 104 : rank->size == 3 ? 83 : 41;
    WEIRT_EXPECT(rank, !fine || launches_of(&b) - before == (n - n / 10 + fit - 1) / fit);
    bench_close(&b);
}

// Parts that fill the room for lines but for less than the padding: each part begins a line. If the padding does not
// fit, the call goes by slots.
void full_lines(weirt_rank *rank)
{
    const Setting *s = static_cast<const Setting *>(rank->arg);
    constexpr uint64_t n = 40;
    Bench b;
    bool fine = open(rank, *s, &b);
    const uint64_t rooms = rank->size == 2 ? WEIRI_LINE_ROOMS_OF_TWO : 1;
    const uint64_t room = fine ? rooms * b.collective->now->line_room / WEIR_LINE_BYTES * WEIR_LINE_DATA : 0;
    WEIRT_EXPECT(rank, !fine || (room > n * 240 && 3 * room <= memory_bytes(*s)));
    for (uint32_t turn = 0; turn < 4 && fine; turn++) {
        const uint64_t lines = room / WEIR_LINE_DATA / n - 1;
        Case c = { turn % 2 != 0, WEIR_SUM, false, {} };
        for (uint64_t i = 0; i < n; i++) {
            Part part = { WEIR_U8, 0, false, turn * n + i, {} };
            const uint64_t bytes = turn < 2 ? lines * WEIR_LINE_DATA - 8 : room / n / 16 * 16;
            for (uint32_t k = 0; k < rank->size; k++) {
                part.extents.push_back({ k * bytes, bytes });
            }
            c.parts.push_back(part);
        }
        fine = run_case(&b, c, 0, turn);
        const uint32_t forms = b.collective->logged[c.joins ? WEIR_REDUCE_SCATTER : WEIR_ALLGATHER];
        WEIRT_EXPECT(rank, !fine || (forms >> WEIR_FORM_LINES & 1) == 1);
        WEIRT_EXPECT(rank, !fine || (forms >> WEIR_FORM_SLOTS & 1) == (turn < 2 ? 0u : 1u));
    }
    bench_close(&b);
}

// A part with one extent of several MiB. If the extent is long enough, its rest is a launch by itself: a broadcast or a
// reduce.
void long_extents(weirt_rank *rank)
{
    const Setting *s = static_cast<const Setting *>(rank->arg);
    Bench b;
    bool fine = open(rank, *s, &b);
    for (uint32_t n = 0; n < 3 && fine; n++) {
        const uint64_t count = n < 2 ? 12 * s->elements : 6 * s->elements;
        Part part = { WEIR_F64, n % 2, n == 1, n, {} };
        for (uint32_t k = 0; k < rank->size; k++) {
            const uint64_t at = k == 0 ? n : part.extents[k - 1].at + part.extents[k - 1].count;
            part.extents.push_back({ at, k == 1 ? count : 100 + k });
        }
        const Case c = { n != 1, WEIR_SUM, false, { part } };
        const uint64_t before = launches_of(&b);
        fine = run_case(&b, c, 0, n);
        WEIRT_EXPECT(rank, !fine || launches_of(&b) - before == (n < 2 ? 2 : 1));
    }
    bench_close(&b);
}

// Offsets that need 33 bits, beside a part that does not. The buffers begin 4 GiB before the memory that is used.
void far_offsets(weirt_rank *rank)
{
    const Setting *s = static_cast<const Setting *>(rank->arg);
    constexpr uint64_t far = (uint64_t)1 << 32;
    constexpr uint64_t count = 40;
    Bench b;
    bool fine = open(rank, *s, &b);
    char *in = static_cast<char *>(weir_memory_pointer(b.in));
    char *out = static_cast<char *>(weir_memory_pointer(b.out));
    std::vector<weir_extent> near(rank->size);
    std::vector<weir_extent> away(rank->size);
    for (uint32_t k = 0; k < rank->size; k++) {
        near[k] = { k * count, count };
        away[k] = { far + near[k].at, count };
    }
    const uint64_t all = count * rank->size;
    char *far_in = reinterpret_cast<char *>(reinterpret_cast<uintptr_t>(in) - far);
    char *far_out = reinterpret_cast<char *>(reinterpret_cast<uintptr_t>(out) + all - far);
    const weir_part gathers[] = { { in, out, near.data(), WEIR_U8 }, { in + count, far_out, away.data(), WEIR_U8 } };
    const weir_part sums[] = { { far_in, out, away.data(), WEIR_U8 }, { in + all, out + count, near.data(), WEIR_U8 } };
    Bytes mine(2 * all);
    Bytes have(2 * all);
    for (uint64_t i = 0; i < mine.size(); i++) {
        mine[i] = static_cast<uint8_t>(i * 3 + 5 * rank->rank);
    }
    fine = fine && WEIRT_OK(rank, weir_device_copy(b.comm.device, in, mine.data(), mine.size())) &&
           weirt_barrier(rank) && WEIRT_OK(rank, weir_allgather_parts(b.collective, gathers, 2, b.stream)) &&
           WEIRT_OK(rank, weir_stream_wait(b.comm.device, b.stream, weirt_timeout_ms())) &&
           WEIRT_OK(rank, weir_device_copy(b.comm.device, have.data(), out, have.size()));
    for (uint64_t i = 0; i < have.size() && fine; i++) {
        const uint64_t k = i % all / count;
        const uint64_t sent = i % count + (i >= all ? count : 0);
        fine = WEIRT_EXPECT(rank, have[i] == static_cast<uint8_t>(sent * 3 + 5 * k));
    }
    fine = fine && weirt_barrier(rank) &&
           WEIRT_OK(rank, weir_reduce_scatter_parts(b.collective, sums, 2, WEIR_SUM, b.stream)) &&
           WEIRT_OK(rank, weir_stream_wait(b.comm.device, b.stream, weirt_timeout_ms())) &&
           WEIRT_OK(rank, weir_device_copy(b.comm.device, have.data(), out, 2 * count));
    for (uint64_t i = 0; i < 2 * count && fine; i++) {
        const uint64_t index = (i < count ? 0 : all) + count * rank->rank + i % count;
        uint8_t sum = 0;
        for (uint32_t k = 0; k < rank->size; k++) {
            sum = static_cast<uint8_t>(sum + index * 3 + 5 * k);
        }
        fine = WEIRT_EXPECT(rank, have[i] == sum);
    }
    bench_close(&b);
}

// ---- wrong calls ---------------------------------------------------------------------------------------------------

void refused(weirt_rank *rank, const char *part, weir_status status, weir_status expected_status = WEIR_ERR_INVALID)
{
    WEIRT_EXPECT(rank, status == expected_status);
    WEIRT_TEXT(rank, part);
}

void arguments(weirt_rank *rank)
{
    weir_collective_opts opts = {};
    opts.size = sizeof opts;
    opts.check_pointers = true;
    opts.blocks = std::strcmp(rank->stage->kind, "cpu") == 0 ? 1 : 0;
    Bench b;
    if (bench_open(rank, &opts, 4096, 0, &b)) {
        weir_collective *c = b.collective;
        char *in = static_cast<char *>(weir_memory_pointer(b.in));
        char *out = static_cast<char *>(weir_memory_pointer(b.out));
        void *s = b.stream;
        const weir_extent good[] = { { 4, 4 }, { 0, 4 } };
        const weir_extent over[] = { { 0, 4 }, { 3, 4 } };
        const weir_extent huge[] = { { 0, 4 }, { UINT64_MAX - 3, 4 } };
        const weir_extent long_one[] = { { 0, 1 }, { 8, UINT64_MAX / 2 } };
        const weir_extent far[] = { { 0, 1 }, { 1 << 20, 1 } };
        const weir_extent none[] = { { 7, 0 }, { 9, 0 } };
        weir_part parts[] = { { in, out, good, WEIR_F32 }, { in, out + 64, over, WEIR_F32 } };
        refused(rank, "weir_allgather_parts: parts is NULL", weir_allgather_parts(c, nullptr, 1, s));
        refused(rank, "weir_allgather_parts: part 1: the extents of ranks 0 and 1 overlap",
                weir_allgather_parts(c, parts, 2, s));
        refused(rank, "part 1: the extents of ranks 0 and 1 overlap",
                weir_reduce_scatter_parts(c, parts, 2, WEIR_SUM, s));
        refused(rank, "weir_allgather_v: the extents", weir_allgather_v(c, in, out, over, WEIR_F32, s));
        refused(rank, "the extent of rank 1 has 4 elements at 18446744073709551612",
                weir_allgather_v(c, in, out, huge, WEIR_U8, s));
        refused(rank, "the extent of rank 1", weir_reduce_scatter_v(c, in, out, long_one, WEIR_U8, WEIR_SUM, s));
        refused(rank, "recv: ", weir_allgather_v(c, in, out, far, WEIR_U8, s), WEIR_ERR_RANGE);
        refused(rank, "send: ", weir_reduce_scatter_v(c, in, out, far, WEIR_U8, WEIR_SUM, s), WEIR_ERR_RANGE);
        refused(rank, "weir_allgather_v: extents is NULL", weir_allgather_v(c, in, out, nullptr, WEIR_U8, s));
        refused(rank, "send is NULL", weir_allgather_v(c, nullptr, out, good, WEIR_U8, s));
        refused(rank, "recv is NULL", weir_allgather_v(c, in, nullptr, good, WEIR_U8, s));
        refused(rank, "send is NULL", weir_reduce_scatter_v(c, nullptr, out, good, WEIR_U8, WEIR_MAX, s));
        refused(rank, "recv is NULL", weir_reduce_scatter_v(c, in, nullptr, good, WEIR_U8, WEIR_MAX, s));
        refused(rank, "not aligned", weir_allgather_v(c, in + 2, out, good, WEIR_F32, s));
        refused(rank, "not aligned", weir_reduce_scatter_v(c, in, out + 2, good, WEIR_F32, WEIR_SUM, s));
        refused(rank, "unknown type", weir_allgather_v(c, in, out, good, static_cast<weir_dtype>(12), s));
        refused(rank, "unknown operation",
                weir_reduce_scatter_parts(c, parts, 0, static_cast<weir_op>(WEIR_OPS + 4), s));
        // In place is this rank's extent, and nothing else.
        const uint64_t at = 4 * good[rank->rank].at;
        refused(rank, "overlap in the extent of rank", weir_allgather_v(c, out + at + 4, out, good, WEIR_F32, s));
        refused(rank, "overlap in the extent of rank",
                weir_reduce_scatter_v(c, in, in + 16 - at, good, WEIR_F32, WEIR_SUM, s));
        WEIRT_OK(rank, weir_collective_force(c, WEIR_FORM_COPIES, 0));
        refused(rank, "copy engines carry no parts", weir_allgather_v(c, in, out, good, WEIR_F32, s),
                WEIR_ERR_UNSUPPORTED);
        refused(rank, "copy engines carry no parts", weir_reduce_scatter_v(c, in, out, good, WEIR_F32, WEIR_SUM, s),
                WEIR_ERR_UNSUPPORTED);
        WEIRT_OK(rank, weir_collective_force(c, WEIR_FORM_AUTO, 0));
        // Without elements both pointers may be NULL, and without parts all of it.
        WEIRT_OK(rank, weir_allgather_v(c, nullptr, nullptr, none, WEIR_F32, s));
        WEIRT_OK(rank, weir_reduce_scatter_v(c, nullptr, nullptr, none, WEIR_F32, WEIR_SUM, s));
        WEIRT_OK(rank, weir_allgather_parts(c, nullptr, 0, s));
        WEIRT_OK(rank, weir_reduce_scatter_parts(c, nullptr, 0, WEIR_SUM, s));
        // Nothing that was refused has been launched: the ranks are still in step.
        const Setting plain = { WEIR_FORM_AUTO, 1, 1, false, 0, 1, 8 };
        WEIRT_OK(rank, weir_stream_wait(b.comm.device, s, weirt_timeout_ms()));
        (void)run_case(&b, random_case(5, rank->size, plain), 0, 5);
    }
    bench_close(&b);
}

// One rank calls something else. Each rank's text names the first rank that differs from rank 0.
struct Difference {
    weir_collective_form form;
    uint32_t what;
    uint32_t odd;
};

void differences(weirt_rank *rank)
{
    const Difference *d = static_cast<const Difference *>(rank->arg);
    const Setting s = { d->form, 2, 1, false, 0, 0, 400 };
    const bool odd = rank->rank == d->odd;
    Bench b;
    // The error must not meet a rank that is still opening.
    if (open(rank, s, &b) && weirt_barrier(rank)) {
        char *in = static_cast<char *>(weir_memory_pointer(b.in));
        char *out = static_cast<char *>(weir_memory_pointer(b.out));
        weir_extent extents[] = { { 0, 100 }, { 100, 100 }, { 200, 100 } };
        weir_part parts[] = { { in, out, extents, WEIR_BF16 }, { in + 1024, out + 1024, extents, WEIR_F16 } };
        const uint32_t n = d->what >= 4 || (odd && d->what == 2) ? 1 : 2;
        const char *const texts[] = { "with other extents or types",         "with other extents or types",
                                      "reduce_scatter_parts of 1 part, sum", "allgather_parts of 2 parts",
                                      "with other extents or types",         "with other extents or types" };
        if (odd && d->what == 0) {
            extents[2].count = 99;
        } else if (odd && d->what == 1) {
            parts[1].dtype = WEIR_BF16;
        }
        if (d->what >= 4) { // one extent, which is reduced, and another one of rank 1
            extents[0].count = odd ? 99 : 100;
            extents[1].count = odd && d->what == 5 ? 100 : 0;
            extents[2].count = 0;
        }
        const weir_status called = odd && d->what == 3
                                       ? weir_allgather_parts(b.collective, parts, n, b.stream)
                                       : weir_reduce_scatter_parts(b.collective, parts, n, WEIR_SUM, b.stream);
        expect_mismatch(&b, called, texts[d->what]);
        WEIRT_TEXT(rank, d->odd == 2 ? "rank 2 is the first that differs: it called"
                                     : "rank 1 is the first that differs: it called");
        WEIRT_TEXT(rank, "; rank 0 called ");
    }
    bench_close(&b);
}

// One part in registered memory, which lies 16 bytes further on one rank: peers would load from the wrong place.
void other_offset(weirt_rank *rank)
{
    const Setting s = { WEIR_FORM_SLOTS, 2, 1, true, 0, 0, 400 };
    Bench b;
    // The error must not meet a rank that is still opening.
    if (open(rank, s, &b) && weirt_barrier(rank)) {
        const weir_extent extents[] = { { 0, 64 }, { 64, 128 } };
        char *in = static_cast<char *>(weir_memory_pointer(b.in)) + (rank->rank == 1 ? 16 : 0);
        expect_mismatch(
            &b,
            weir_reduce_scatter_v(b.collective, in, weir_memory_pointer(b.out), extents, WEIR_F32, WEIR_SUM, b.stream),
            "registered memory at 0x");
        WEIRT_TEXT(rank, "rank 1 is the first that differs: it called");
    }
    bench_close(&b);
}

void killed(weirt_rank *rank)
{
    const Difference *d = static_cast<const Difference *>(rank->arg);
    const Setting s = { d->form, 2, 1, false, 0, 0, 1500 };
    Bench b;
    if (open(rank, s, &b)) {
        Case c = random_case(9, rank->size, s);
        c.captured = false;
        c.joins = d->what != 0;
        c.op = WEIR_SUM;
        (void)run_case(&b, c, 0, 9);
        const Image image = image_of(&b, c, 0);
        (void)weirt_barrier(rank);
        if (rank->rank == 2) {
            die_last(rank);
        }
        expect_death(&b, call_parts(&b, c, image.parts));
    }
    bench_leave(&b);
}

WEIRT_STAGE_DATA_SUITE(CollectiveParts);
WEIRT_PROCESS_SUITE(CollectivePartsDeath);

// On the CPU, threads run all numbers of ranks; processes run the first number.
void run_all(const weirt_stage *stage, std::vector<uint32_t> numbers, weirt_rank_fn body, Setting setting)
{
    if (stage->processes && std::strcmp(stage->kind, "cpu") == 0) {
        numbers.resize(1);
    }
    for (const uint32_t ranks : numbers) {
        weirt_ranks_run(stage, ranks, body, &setting, sizeof setting);
    }
}

TEST_P(CollectiveParts, AllTypesAndOperations)
{
    run_all(stage(), { 3, 1, 8 }, types, { WEIR_FORM_AUTO, 2, 1, false, 0, 0, 60 });
}

TEST_P(CollectiveParts, RandomByPackets)
{
    run_all(stage(), { 3, 2, 4, 8 }, random_cases, { WEIR_FORM_PACKETS, 2, 1, false, 0, 16, 300 });
}

TEST_P(CollectiveParts, RandomByLines)
{
    run_all(stage(), { 3, 2, 6 }, random_cases, { WEIR_FORM_LINES, 2, 1, false, 0, 16, 600 });
}

TEST_P(CollectiveParts, RandomBySlots)
{
    run_all(stage(), { 3, 1, 2, 5, 7 }, random_cases, { WEIR_FORM_SLOTS, 3, 1, false, 0, 10, 700 });
    run_all(stage(), { 2, 6 }, random_cases, { WEIR_FORM_SLOTS, 1, 2, false, 0, 8, 700 });
}

TEST_P(CollectiveParts, UnevenBySlots)
{
    for (const uint32_t blocks : { 2u, 11u, 20u }) {
        run_all(stage(), { 2 }, uneven_by_slots, { WEIR_FORM_SLOTS, blocks, 1, false, 0, 0, 40000 });
    }
}

TEST_P(CollectiveParts, OddExtentsBySlots)
{
    run_all(stage(), { 3, 2, 5 }, odd_extents, { WEIR_FORM_SLOTS, 3, 1, false, 0, 1, 3000 });
    run_all(stage(), { 2 }, odd_extents, { WEIR_FORM_SLOTS, 1, 2, false, 0, 1, 3000 });
}

TEST_P(CollectiveParts, AlignedExtents)
{
    run_all(stage(), { 2, 3, 4, 6 }, aligned_extents, { WEIR_FORM_AUTO, 2, 1, false, 0, 0, 3000 });
    run_all(stage(), { 2, 3 }, aligned_extents, { WEIR_FORM_AUTO, 3, 1, true, 0, 0, 3000 });
    run_all(stage(), { 2 }, aligned_extents, { WEIR_FORM_AUTO, 18, 1, true, 0, 0, 3000 }); // warps draw chunks
}

TEST_P(CollectiveParts, SumsByLines)
{
    run_all(stage(), { 2, 3, 4 }, sums_by_lines, { WEIR_FORM_LINES, 2, 1, false, 0, 0, 4000 });
}

TEST_P(CollectiveParts, EmptyExtentsLieAnywhere)
{
    for (const weir_collective_form form : { WEIR_FORM_PACKETS, WEIR_FORM_LINES, WEIR_FORM_SLOTS }) {
        run_all(stage(), { 2, 3 }, empty_extents, { form, 2, 1, false, 0, 0, 300 });
        run_all(stage(), { 2 }, empty_extents, { form, 2, 1, true, 0, 0, 300 });
    }
}

TEST_P(CollectiveParts, RandomRegistered)
{
    run_all(stage(), { 3, 2, 8 }, random_cases, { WEIR_FORM_SLOTS, 2, 1, true, 0, 12, 700 });
}

TEST_P(CollectiveParts, RandomBetweenHosts)
{
    run_all(stage(), { 4 }, random_cases, { WEIR_FORM_AUTO, 2, 1, false, 2, 16, 300 });
    run_all(stage(), { 2, 3 }, random_cases, { WEIR_FORM_AUTO, 2, 1, false, 1, 16, 300 });
    run_all(stage(), { 6 }, random_cases, { WEIR_FORM_AUTO, 2, 1, false, 3, 8, 700 });
}

TEST_P(CollectiveParts, AllTypesAndOperationsBetweenHosts)
{
    run_all(stage(), { 4 }, types, { WEIR_FORM_AUTO, 2, 1, false, 2, 0, 60 });
    run_all(stage(), { 2 }, types, { WEIR_FORM_AUTO, 2, 1, false, 1, 0, 60 });
}

TEST_P(CollectiveParts, ManyBetweenHosts)
{
    run_all(stage(), { 4 }, many_between_hosts, { WEIR_FORM_SLOTS, 3, 1, false, 2, 0, 80000 });
    run_all(stage(), { 3 }, many_between_hosts, { WEIR_FORM_SLOTS, 2, 1, false, 1, 0, 80000 });
}

TEST_P(CollectiveParts, OneExtentIsABroadcastOrAReduce)
{
    run_all(stage(), { 4, 2, 3, 8 }, one_extent, { WEIR_FORM_SLOTS, 2, 1, false, 0, 0, 1900 });
    run_all(stage(), { 3 }, one_extent, { WEIR_FORM_SLOTS, 3, 1, true, 0, 0, 700 });
}

TEST_P(CollectiveParts, LongExtentsAreCut)
{
    run_all(stage(), { 3 }, long_extents, { WEIR_FORM_AUTO, 4, 1, false, 0, 0, 155000 });
}

TEST_P(CollectiveParts, ManyParts)
{
    run_all(stage(), { 3, 8 }, many_parts, { WEIR_FORM_AUTO, 1, 1, false, 0, 0, 400 });
    run_all(stage(), { 2 }, many_parts, { WEIR_FORM_AUTO, 1, 1, false, 0, 0, 100000 });
}

TEST_P(CollectiveParts, ManyPartsFillLines)
{
    run_all(stage(), { 3, 2 }, full_lines, { WEIR_FORM_LINES, 2, 1, false, 0, 0, 40000 });
}

TEST_P(CollectiveParts, OffsetsOfMoreThan32Bits)
{
    run_all(stage(), { 3 }, far_offsets, { WEIR_FORM_PACKETS, 1, 1, false, 0, 0, 400 });
    run_all(stage(), { 2 }, far_offsets, { WEIR_FORM_SLOTS, 2, 1, false, 0, 0, 400 });
}

TEST_P(CollectiveParts, ArgumentsAreChecked) { run(2, arguments); }

TEST_P(CollectiveParts, DifferentPartsAreAMismatch)
{
    for (const weir_collective_form form : { WEIR_FORM_PACKETS, WEIR_FORM_LINES, WEIR_FORM_SLOTS }) {
        for (uint32_t what = 0; what < 6 && !HasFailure(); what++) {
            const Difference d = { form, what, (what + 1) % 3 };
            weirt_ranks_run(stage(), 3, differences, &d, sizeof d);
        }
    }
}

TEST_P(CollectiveParts, AnotherOffsetIsAMismatch) { run(2, other_offset); }

TEST_P(CollectivePartsDeath, OthersEnd)
{
    for (const weir_collective_form form : { WEIR_FORM_PACKETS, WEIR_FORM_LINES, WEIR_FORM_SLOTS }) {
        for (uint32_t what = 0; what < 2 && !HasFailure(); what++) {
            const Difference d = { form, what, 0 };
            weirt_ranks_run(stage(), 3, killed, &d, sizeof d);
        }
    }
}

} // namespace
