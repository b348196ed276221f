// Host tables: gathers and scatters beside a loop of memcpy, for every form, split, type of ids and alignment.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

WEIRT_STAGE_SUITE(Table);

constexpr char GUARD = 0x5a;
constexpr uint64_t ARENA = 256 << 10; // of the table; also of out
constexpr uint64_t IDS_AT = 0;
constexpr uint64_t OUT_IDS_AT = 16384;
constexpr uint64_t COUNT_AT = 32768;

// One call: all that a table and its opts have.
struct Case {
    uint64_t row_bytes = 100;
    uint64_t pitch = 0; // of the parts
    uint64_t offset = 0;
    std::vector<uint64_t> counts = { 50 };
    weir_table_split split = WEIR_SPLIT_RANGES;
    bool pointers = false; // every other part is given by a pointer
    std::vector<int64_t> ids;
    std::vector<int64_t> places;
    bool wide = false;
    uint64_t shift = 0; // of out
    int64_t at = -1;    // *count_at
    weir_table_call_opts opts = WEIR_OPTS(weir_table_call_opts);
};

// A rank's memory, which the host reaches too, and a stream.
struct World {
    weirt_rank *rank = nullptr;
    weirt_comm c = {};
    weir_memory *table = nullptr;
    weir_memory *out = nullptr;
    weir_memory *ids = nullptr;
    void *stream = nullptr;

    explicit World(weirt_rank *rank_) : rank(rank_)
    {
        weir_memory_opts host = WEIR_OPTS(weir_memory_opts);
        host.kind = WEIR_MEMORY_HOST;
        ready = weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_memory_allocate(c.comm, ARENA, &host, &table)) &&
                WEIRT_OK(rank, weir_memory_allocate(c.comm, ARENA, &host, &out)) &&
                WEIRT_OK(rank, weir_memory_allocate(c.comm, 65536, &host, &ids)) &&
                WEIRT_OK(rank, weir_stream_create(c.device, &stream));
    }
    ~World()
    {
        if (stream != nullptr) {
            weir_stream_destroy(c.device, stream);
        }
        weir_memory_destroy(ids);
        weir_memory_destroy(out);
        weir_memory_destroy(table);
        weirt_comm_close(&c);
    }
    World(const World &) = delete;
    World &operator=(const World &) = delete;
    bool ready = false;
    char *host(weir_memory *memory) const { return static_cast<char *>(weir_memory_host_pointer(memory)); }
    char *device(weir_memory *memory) const { return static_cast<char *>(weir_memory_pointer(memory)); }
    bool finish() const { return WEIRT_OK(rank, weir_stream_wait(c.device, stream, 0)); }
};

char byte_of(uint64_t i) { return static_cast<char>(i * 131 + i / 251 + i / 65521 + 1); }

// The data of the table, or of the rows of a scatter.
std::vector<char> data_of(bool rows)
{
    std::vector<char> data(ARENA);
    for (uint64_t i = 0; i < ARENA; i++) {
        data[i] = rows ? static_cast<char>(~byte_of(3 * i)) : byte_of(i);
    }
    return data;
}

uint64_t pitch_of(const Case &k) { return k.pitch != 0 ? k.pitch : k.row_bytes; }

// Where the parts begin: one behind the other, with a gap of 37 bytes.
std::vector<weir_table_part> parts_of(const World &world, const Case &k)
{
    std::vector<weir_table_part> parts;
    uint64_t at = k.offset;
    for (size_t i = 0; i < k.counts.size(); i++) {
        weir_table_part part = {};
        part.offset = at;
        part.count = k.counts[i];
        part.pitch = k.pitch;
        part.memory = world.table;
        if (k.pointers && i % 2 == 1) {
            part.memory = nullptr;
            part.rows = world.device(world.table);
        }
        parts.push_back(part);
        at += k.counts[i] * pitch_of(k) + 37;
    }
    return parts;
}

// Where row `id` lies in the arena; -1 if there is none.
int64_t place_of_row(const World &world, const Case &k, int64_t id)
{
    const std::vector<weir_table_part> parts = parts_of(world, k);
    if (k.split == WEIR_SPLIT_ROUND_ROBIN) {
        const uint64_t part = static_cast<uint64_t>(id) % parts.size();
        const uint64_t index = static_cast<uint64_t>(id) / parts.size();
        return index < parts[part].count ? static_cast<int64_t>(parts[part].offset + index * pitch_of(k)) : -1;
    }
    for (const weir_table_part &part : parts) {
        if (id < static_cast<int64_t>(part.count)) {
            return static_cast<int64_t>(part.offset + static_cast<uint64_t>(id) * pitch_of(k));
        }
        id -= static_cast<int64_t>(part.count);
    }
    return -1;
}

// The same call by memcpy. Returns the number of ids that are out of range.
uint64_t by_hand(const World &world, const Case &k, bool scatter, std::vector<char> &table, std::vector<char> &out)
{
    const uint64_t bytes = k.opts.bytes != 0 ? k.opts.bytes : k.row_bytes - k.opts.column;
    const uint64_t pitch = k.opts.pitch != 0 ? k.opts.pitch : bytes;
    const uint64_t planes = k.opts.planes != 0 ? k.opts.planes : 1;
    const uint64_t most = k.at >= 0 ? std::min<uint64_t>(k.ids.size(), static_cast<uint64_t>(k.at)) : k.ids.size();
    uint64_t faults = 0;
    for (uint64_t i = 0; i < most; i++) {
        const int64_t place = k.places.empty() ? static_cast<int64_t>(i) : k.places[i];
        const int64_t row = k.ids[i] < 0 ? -1 : place_of_row(world, k, k.ids[i]);
        faults += k.ids[i] >= 0 && row < 0;
        for (uint64_t plane = 0; plane < planes && place >= 0; plane++) {
            char *to = out.data() + k.shift + static_cast<uint64_t>(place) * pitch + plane * k.opts.out_plane;
            if (row >= 0) {
                char *from = table.data() + row + k.opts.column + plane * k.opts.plane;
                std::memcpy(scatter ? from : to, scatter ? to : from, bytes);
            } else if (k.ids[i] < 0 && k.opts.zero_skipped && !scatter) {
                std::memset(to, 0, bytes);
            }
        }
    }
    return faults;
}

void put_ids(const World &world, uint64_t at, const std::vector<int64_t> &ids, bool wide)
{
    char *to = world.host(world.ids) + at;
    for (const int64_t id : ids) {
        const int32_t narrow = static_cast<int32_t>(id);
        std::memcpy(to, wide ? static_cast<const void *>(&id) : &narrow, wide ? 8 : 4);
        to += wide ? 8 : 4;
    }
}

std::string name_of(const Case &k, bool scatter)
{
    return std::string(scatter ? "scatter" : "gather") + " of " + std::to_string(k.ids.size()) + " rows of " +
           std::to_string(k.row_bytes) + " at " + std::to_string(k.offset) + " to " + std::to_string(k.shift) +
           ", form " + std::to_string(k.opts.form) + ", column " + std::to_string(k.opts.column) + ", bytes " +
           std::to_string(k.opts.bytes) + ", pitch " + std::to_string(k.pitch) + " and " + std::to_string(k.opts.pitch);
}

void expect(weirt_rank *rank, bool right, const std::string &what)
{
    if (!right) {
        weirt_fail(rank, __FILE__, __LINE__, "%s is wrong", what.c_str());
    }
}

// Runs the case and compares table and out, all bytes, with the same by memcpy.
void check(const World &world, Case k, bool scatter)
{
    weirt_rank *rank = world.rank;
    const std::vector<weir_table_part> parts = parts_of(world, k);
    weir_table_opts opts = WEIR_OPTS(weir_table_opts);
    opts.split = k.split;
    weir_table *table = nullptr;
    if (!WEIRT_OK(rank, weir_table_create(world.c.device, k.row_bytes, parts.data(),
                                          static_cast<uint32_t>(parts.size()), &opts, &table))) {
        return;
    }
    static const std::vector<char> table_data = data_of(false);
    static const std::vector<char> rows_data = data_of(true);
    static const std::vector<char> guards(ARENA, GUARD);
    std::vector<char> wanted_table = table_data;
    std::vector<char> wanted_out = scatter ? rows_data : guards;
    std::memcpy(world.host(world.table), wanted_table.data(), ARENA);
    std::memcpy(world.host(world.out), wanted_out.data(), ARENA);
    put_ids(world, IDS_AT, k.ids, k.wide);
    put_ids(world, OUT_IDS_AT, k.places, k.wide);
    k.opts.out_ids = k.places.empty() ? nullptr : world.device(world.ids) + OUT_IDS_AT;
    if (k.at >= 0) {
        std::memcpy(world.host(world.ids) + COUNT_AT, &k.at, sizeof k.at);
        k.opts.count_at = reinterpret_cast<const uint64_t *>(world.device(world.ids) + COUNT_AT);
    }
    const weir_ids type = k.wide ? WEIR_IDS_I64 : WEIR_IDS_I32;
    char *out = world.device(world.out) + k.shift;
    const char *ids = world.device(world.ids) + IDS_AT;
    const weir_status status = scatter ? weir_table_scatter(table, ids, type, k.ids.size(), out, &k.opts, world.stream)
                                       : weir_table_gather(table, ids, type, k.ids.size(), out, &k.opts, world.stream);
    if (WEIRT_OK(rank, status) && world.finish()) {
        weir_table_faults faults;
        const uint64_t wanted = by_hand(world, k, scatter, wanted_table, wanted_out);
        const std::string name = name_of(k, scatter);
        weir_table_get_faults(table, &faults);
        expect(rank, std::memcmp(world.host(world.table), wanted_table.data(), ARENA) == 0, name + ": the table");
        expect(rank, std::memcmp(world.host(world.out), wanted_out.data(), ARENA) == 0, name + ": out");
        expect(rank, faults.count == wanted, name + ": faults");
        expect(rank, weir_table_status(table) == (wanted == 0 ? WEIR_OK : WEIR_ERR_RANGE), name + ": status");
    }
    weir_table_destroy(table);
}

void check_both(const World &world, const Case &k)
{
    check(world, k, false);
    check(world, k, true);
}

const weir_table_form forms[] = { WEIR_TABLE_FORM_AUTO, WEIR_TABLE_FORM_FLAT, WEIR_TABLE_FORM_CIRCULAR,
                                  WEIR_TABLE_FORM_LINES };

// The first and the last row, and others in any order; no id twice, so that a scatter has one result.
std::vector<int64_t> mixed_ids(uint64_t rows, uint64_t count, std::mt19937_64 &random)
{
    std::vector<int64_t> ids(rows);
    for (uint64_t i = 0; i < rows; i++) {
        ids[i] = static_cast<int64_t>(i);
    }
    std::shuffle(ids.begin() + 1, ids.end() - 1, random);
    std::swap(ids[1 % rows], ids[rows - 1]);
    ids.resize(std::min(rows, count));
    ids.push_back(-1);
    return ids;
}

// ---- results -----------------------------------------------------------------------------------------------------

// All sizes up to 130, and of the longer ones all odd ones and some even ones. Sizes change no order of accesses: the
// thread sanitizer checks few of the long ones.
void every_size(weirt_rank *rank)
{
    World world(rank);
    const bool few = std::string(weirt_sanitizer()) == "thread";
    std::mt19937_64 random(19);
    for (uint64_t bytes = 1; bytes <= 4097 && world.ready; bytes++) {
        if (bytes > 130 && random() % (few ? 37 : bytes % 2 != 0 ? 1 : 16) != 0) {
            continue;
        }
        Case k;
        k.row_bytes = bytes;
        k.pitch = bytes + random() % 3 * (random() % 40);
        k.offset = random() % 128;
        k.shift = random() % 128;
        k.counts = { 12 };
        k.ids = mixed_ids(12, 7, random);
        k.wide = random() % 2 != 0;
        k.opts.pitch = bytes + random() % 2 * (random() % 40);
        k.opts.form = forms[random() % 4];
        check(world, k, random() % 2 != 0);
        k.opts.form = WEIR_TABLE_FORM_AUTO;
        check(world, k, random() % 2 != 0);
    }
}

TEST_P(Table, EverySizeOfRows) { run_alone(every_size); }

void every_alignment(weirt_rank *rank)
{
    World world(rank);
    std::mt19937_64 random(20);
    uint64_t turn = 0; // each offset meets each form at some size, and each size each form at all offsets modulo 16
    for (const uint64_t bytes : { 4, 100, 128, 400, 1204 }) {
        for (uint64_t offset = 0; offset < 128 && world.ready; offset++) {
            Case k;
            k.row_bytes = bytes;
            k.offset = offset;
            k.shift = (offset * 37 + bytes) % 128;
            k.pitch = bytes + offset % 5 * 4;
            k.ids = mixed_ids(50, 9, random);
            k.opts.form = forms[(turn + offset + offset / 16) % 4];
            check_both(world, k);
        }
        turn++;
    }
}

TEST_P(Table, EveryAlignmentOfRows) { run_alone(every_alignment); }

// Rows that several groups of lanes share.
void long_rows(weirt_rank *rank)
{
    World world(rank);
    std::mt19937_64 random(21);
    for (const uint64_t bytes : { 16383, 16384, 16385, 16500, 32768, 40001 }) {
        for (const uint64_t offset : { 0, 1, 64, 127 }) {
            Case k;
            k.row_bytes = bytes;
            k.offset = offset;
            k.shift = offset % 7;
            k.counts = { 4 };
            k.ids = mixed_ids(4, 3, random);
            k.opts.form = forms[bytes % 4];
            k.opts.zero_skipped = false;
            check_both(world, k);
            k.opts.form = WEIR_TABLE_FORM_AUTO;
            check_both(world, k);
        }
    }
}

TEST_P(Table, LongRows) { run_alone(long_rows); }

void every_split(weirt_rank *rank)
{
    World world(rank);
    std::mt19937_64 random(22);
    const std::vector<std::vector<uint64_t>> splits[] = {
        { { 50 }, { 7, 43 }, { 0, 50 }, { 50, 0 }, { 5, 0, 0, 40, 5 }, std::vector<uint64_t>(64, 1) },
        { { 50 }, { 25, 25 }, { 17, 17, 16 }, { 8, 7, 7, 7, 7, 7, 7 }, std::vector<uint64_t>(50, 1), { 1, 0, 0 } },
    };
    for (const weir_table_split split : { WEIR_SPLIT_RANGES, WEIR_SPLIT_ROUND_ROBIN }) {
        for (const std::vector<uint64_t> &counts : splits[split]) {
            for (const weir_table_form form : forms) {
                Case k;
                k.split = split;
                k.counts = counts;
                k.pointers = form % 2 == 1;
                k.wide = form % 3 == 1;
                k.ids.clear();
                const uint64_t rows = std::accumulate(counts.begin(), counts.end(), uint64_t(0));
                for (uint64_t i = 0; i < rows + 3; i++) {
                    k.ids.push_back(static_cast<int64_t>(i)); // the last three are out of range
                }
                std::shuffle(k.ids.begin(), k.ids.end(), random);
                k.opts.form = form;
                check_both(world, k);
            }
        }
    }
}

TEST_P(Table, EverySplit) { run_alone(every_split); }

void every_id(weirt_rank *rank)
{
    World world(rank);
    const int64_t far = INT64_C(1) << 40;
    const std::vector<int64_t> lists[] = {
        {}, { 0 }, { 49 }, { 50 }, { 7, 7, 7, 7, 7 }, { -1, -5, INT64_MIN }, { far, 50, INT64_MAX }, { 3, -1, 51, 2 },
    };
    for (const std::vector<int64_t> &ids : lists) {
        for (const weir_table_form form : forms) {
            for (const int64_t at : { -1, 0, 2, 1000 }) {
                Case k;
                k.ids = ids;
                k.wide = true;
                k.at = at;
                k.opts.form = form;
                k.opts.zero_skipped = form % 2 == 0;
                check(world, k, false);
                k.opts.zero_skipped = false;
                if (ids.size() < 5) { // equal ids have several right results
                    check(world, k, true);
                }
            }
        }
    }
}

TEST_P(Table, EveryKindOfId) { run_alone(every_id); }

// Of equal ids one of the rows is there afterwards, whole in each aligned unit of 16 bytes; the CPU device stores it in
// two halves. Other rows, and the bytes between rows, stay. Byte j of row i of the scatter is i + 3 * j, so a byte
// tells its row.
void equal_ids(weirt_rank *rank)
{
    World world(rank);
    const uint64_t unit = std::string(rank->stage->kind) == "gpu" ? 16 : 8;
    const uint64_t count = 61;
    for (const uint64_t bytes : { 7, 16, 100, 128, 1204, 4000 }) {
        for (const uint64_t offset : { 0, 3, 8 }) {
            const uint64_t pitch = bytes + 5 * (offset % 2);
            weir_table *table = nullptr;
            weir_table_part part = {};
            part.memory = world.table;
            part.offset = offset;
            part.count = 4;
            part.pitch = pitch;
            if (!world.ready || !WEIRT_OK(rank, weir_table_create(world.c.device, bytes, &part, 1, nullptr, &table))) {
                return;
            }
            std::vector<int64_t> ids(count);
            for (uint64_t i = 0; i < count; i++) {
                ids[i] = static_cast<int64_t>(i % 3);
                for (uint64_t j = 0; j < bytes; j++) {
                    world.host(world.out)[i * bytes + j] = static_cast<char>(i + 3 * j);
                }
            }
            put_ids(world, IDS_AT, ids, false);
            std::memset(world.host(world.table), GUARD, ARENA);
            WEIRT_OK(rank, weir_table_scatter(table, world.device(world.ids), WEIR_IDS_I32, count,
                                              world.device(world.out), nullptr, world.stream));
            world.finish();
            uint64_t wrong = 0;
            for (uint64_t at = 0, from = 0; at < ARENA; at++) {
                const char byte = world.host(world.table)[at];
                const uint64_t row = (at - offset) / pitch;
                const uint64_t j = (at - offset) % pitch;
                if (at < offset || row >= 3 || j >= bytes) {
                    wrong += byte != GUARD;
                    continue;
                }
                const uint64_t i = static_cast<unsigned char>(static_cast<uint64_t>(byte) - 3 * j);
                const bool whole = j >= at % unit && j - at % unit + unit <= bytes;
                from = at % unit == 0 ? i : from;
                wrong += i >= count || i % 3 != row || (whole && i != from);
            }
            WEIRT_EXPECT(rank, wrong == 0);
            weir_table_destroy(table);
        }
    }
}

TEST_P(Table, OneOfEqualIdsIsStored)
{
    if (std::string(weirt_sanitizer()) == "thread") {
        GTEST_SKIP() << "stores of equal ids race";
    }
    run_alone(equal_ids);
}

// A part of each row, places of out, and planes.
void pieces(weirt_rank *rank)
{
    World world(rank);
    std::mt19937_64 random(23);
    for (uint32_t i = 0; i < 400 && world.ready; i++) {
        Case k;
        k.row_bytes = 1 + random() % 300;
        k.pitch = k.row_bytes + random() % 8;
        k.counts = { 20 };
        k.ids = mixed_ids(20, 9, random);
        k.wide = i % 2 != 0;
        k.opts.form = forms[random() % 4];
        k.opts.column = random() % k.row_bytes;
        k.opts.bytes = random() % (k.row_bytes - k.opts.column + 1);
        const uint64_t bytes = k.opts.bytes != 0 ? k.opts.bytes : k.row_bytes - k.opts.column;
        k.opts.planes = static_cast<uint32_t>(random() % 4);
        k.opts.plane = 20 * k.pitch + random() % 100; // behind all rows of the plane in front of it
        k.opts.out_plane = 20 * (bytes + 5) + random() % 50;
        k.opts.pitch = bytes + random() % 5;
        if (i % 3 != 0) {
            for (size_t p = 0; p < k.ids.size(); p++) {
                k.places.push_back(p == 4 ? -1 : static_cast<int64_t>(p * 7 % 20));
            }
        }
        k.opts.zero_skipped = i % 4 == 0;
        check(world, k, false);
        k.opts.zero_skipped = false;
        check(world, k, true);
    }
}

TEST_P(Table, PiecesPlacesAndPlanes) { run_alone(pieces); }

// One table for all ranks: rank 0 allocates it, and each rank gathers other rows of it. The last part is memory of this
// rank.
void shared_table(weirt_rank *rank)
{
    World world(rank);
    weir_memory *shared = nullptr;
    weir_table *table = nullptr;
    const uint64_t rows = 500;
    bool ready = world.ready;
    if (rank->rank == 0) {
        std::memcpy(world.host(world.table), data_of(false).data(), ARENA);
        for (uint32_t i = 1; i < rank->size && ready; i++) {
            ready = WEIRT_OK(rank, weir_memory_send(world.c.comm, world.table, i, 7));
        }
    } else {
        ready = ready && weirt_receive(rank, world.c.comm, 0, 7, &shared);
        std::memset(world.host(world.table), 'a' + static_cast<int>(rank->rank), ARENA);
    }
    weir_table_part parts[2] = {};
    parts[0].memory = rank->rank == 0 ? world.table : shared;
    parts[0].count = rows;
    parts[1].memory = world.table;
    parts[1].count = 10;
    if (ready && WEIRT_OK(rank, weir_table_create(world.c.device, 400, parts, 2, nullptr, &table))) {
        std::vector<int64_t> ids;
        for (uint64_t i = 0; i < 100; i++) {
            ids.push_back(static_cast<int64_t>((i * 13 + rank->rank * 101) % (rows + 10)));
        }
        put_ids(world, IDS_AT, ids, false);
        WEIRT_OK(rank, weir_table_gather(table, world.device(world.ids), WEIR_IDS_I32, ids.size(),
                                         world.device(world.out), nullptr, world.stream));
        world.finish();
        const std::vector<char> data = data_of(false);
        uint64_t wrong = 0;
        for (uint64_t i = 0; i < ids.size() * 400; i++) {
            const auto id = static_cast<uint64_t>(ids[i / 400]);
            const bool own = id >= rows && rank->rank != 0;
            const char wanted = own ? static_cast<char>('a' + static_cast<int>(rank->rank))
                                    : data[(id >= rows ? id - rows : id) * 400 + i % 400];
            wrong += world.host(world.out)[i] != wanted;
        }
        WEIRT_EXPECT(rank, wrong == 0);
    }
    weir_table_destroy(table);
    weir_memory_destroy(shared);
    (void)weirt_barrier(rank);
}

TEST_P(Table, OneTableForAllRanks) { run(3, shared_table); }

// A graph is replayed with other ids and other counts.
void replays(weirt_rank *rank)
{
    World world(rank);
    weir_table *table = nullptr;
    void *graph = nullptr;
    weir_table_part part = {};
    part.memory = world.table;
    part.count = 100;
    weir_table_call_opts opts = WEIR_OPTS(weir_table_call_opts);
    opts.count_at = reinterpret_cast<const uint64_t *>(world.device(world.ids) + COUNT_AT);
    std::memcpy(world.host(world.table), data_of(false).data(), ARENA);
    if (world.ready && WEIRT_OK(rank, weir_table_create(world.c.device, 100, &part, 1, nullptr, &table)) &&
        WEIRT_OK(rank, weir_graph_begin(world.c.device, world.stream)) &&
        WEIRT_OK(rank, weir_table_gather(table, world.device(world.ids), WEIR_IDS_I32, 64, world.device(world.out),
                                         &opts, world.stream)) &&
        WEIRT_OK(rank, weir_graph_end(world.c.device, world.stream, &graph))) {
        for (uint64_t turn = 0; turn < 5; turn++) {
            std::vector<int64_t> ids;
            const uint64_t count = 64 - turn * 9;
            for (uint64_t i = 0; i < 64; i++) {
                ids.push_back(static_cast<int64_t>((i * 7 + turn * 31) % 100));
            }
            put_ids(world, IDS_AT, ids, false);
            std::memcpy(world.host(world.ids) + COUNT_AT, &count, sizeof count);
            std::memset(world.host(world.out), GUARD, ARENA);
            WEIRT_OK(rank, weir_graph_launch(world.c.device, graph, world.stream));
            world.finish();
            uint64_t wrong = 0;
            for (uint64_t i = 0; i < 64 * 100; i++) {
                const char wanted =
                    i / 100 < count ? byte_of(static_cast<uint64_t>(ids[i / 100]) * 100 + i % 100) : GUARD;
                wrong += world.host(world.out)[i] != wanted;
            }
            WEIRT_EXPECT(rank, wrong == 0);
        }
    }
    weir_graph_destroy(world.c.device, graph);
    weir_table_destroy(table);
}

TEST_P(Table, GraphsAreReplayedWithOtherIds) { run_alone(replays); }

} // namespace
