// Host tables: what create and calls refuse, faults of ids, failing allocations and device operations, and rows inside
// kernels.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "src/host/comm/memory.h"
#include "src/host/table/table.h"
#include "test/conformance/table_kernels.h"
#include "test/conformance/table_world.h"
#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

WEIRT_STAGE_SUITE(TableErrors);

// ---- create --------------------------------------------------------------------------------------------------------

struct Refusal {
    uint64_t row_bytes;
    std::vector<weir_table_part> parts;
    weir_table_split split;
    weir_status status;
    const char *text;
};

void refuses_at_create(weirt_rank *rank)
{
    TableWorld world(rank);
    const auto part = [&](uint64_t offset, uint64_t count, uint64_t pitch) {
        weir_table_part p = world.part(count);
        p.offset = offset;
        p.pitch = pitch;
        return p;
    };
    weir_table_part nowhere = {};
    nowhere.count = 1;
    const weir_table_split none = static_cast<weir_table_split>(7);
    const Refusal refusals[] = {
        { 0, { part(0, 1, 0) }, WEIR_SPLIT_RANGES, WEIR_ERR_INVALID, "rows of 0 bytes; 1 to 2^30 are possible" },
        { (1u << 30) + 1, { part(0, 1, 0) }, WEIR_SPLIT_RANGES, WEIR_ERR_INVALID, "rows of 1073741825 bytes" },
        { 8, {}, WEIR_SPLIT_RANGES, WEIR_ERR_INVALID, "there are no parts" },
        { 8, std::vector<weir_table_part>(65, part(0, 1, 0)), WEIR_SPLIT_RANGES, WEIR_ERR_LIMIT,
          "65 parts, but at most 64 are possible" },
        { 8,
          { part(0, 1, 0), part(0, 1, 7) },
          WEIR_SPLIT_RANGES,
          WEIR_ERR_INVALID,
          "parts[1].pitch is 7 bytes, less than the row (8 bytes)" },
        { 8,
          { part(0, TableWorld::BYTES / 8, 0), part(0, TableWorld::BYTES / 8 + 1, 0) },
          WEIR_SPLIT_RANGES,
          WEIR_ERR_RANGE,
          "part 1 has 8193 rows of 8 bytes, 8 apart, at offset 0 of a memory of 65536 bytes" },
        { 8, { part(TableWorld::BYTES - 7, 1, 0) }, WEIR_SPLIT_RANGES, WEIR_ERR_RANGE, "part 0 has 1 rows of 8 bytes" },
        { 8, { part(TableWorld::BYTES + 1, 0, 0) }, WEIR_SPLIT_RANGES, WEIR_ERR_RANGE, "at offset 65537" },
        { 8, { part(UINT64_MAX, 1, 0) }, WEIR_SPLIT_RANGES, WEIR_ERR_RANGE, "part 0 has 1 rows" },
        { 8, { part(0, UINT64_MAX / 8, 0) }, WEIR_SPLIT_RANGES, WEIR_ERR_RANGE, "part 0 has" },
        { 8, { part(0, 3, UINT64_MAX) }, WEIR_SPLIT_RANGES, WEIR_ERR_RANGE, "part 0 has 3 rows" },
        { 8, { part(0, UINT64_MAX, 0) }, WEIR_SPLIT_RANGES, WEIR_ERR_INVALID, "a table has less than 2^63" },
        { 8, { part(0, 1, 0), nowhere }, WEIR_SPLIT_RANGES, WEIR_ERR_INVALID, "part 1 has neither memory nor rows" },
        { 8, { part(0, 1, 0) }, none, WEIR_ERR_INVALID, "unknown split 7" },
        { 8,
          { part(0, 3, 0), part(0, 5, 0) },
          WEIR_SPLIT_ROUND_ROBIN,
          WEIR_ERR_INVALID,
          "part 0 has 3 rows; a round-robin split of 8 rows needs 4" },
    };
    for (const Refusal &refusal : refusals) {
        weir_table *table = nullptr;
        weir_table_opts opts = WEIR_OPTS(weir_table_opts);
        opts.split = refusal.split;
        WEIRT_STATUS(rank, refusal.status,
                     weir_table_create(world.c.device, refusal.row_bytes, refusal.parts.data(),
                                       static_cast<uint32_t>(refusal.parts.size()), &opts, &table));
        WEIRT_TEXT(rank, "weir_table_create: ");
        WEIRT_TEXT(rank, refusal.text);
        WEIRT_EXPECT(rank, table == nullptr);
    }
}

TEST_P(TableErrors, CreateRefuses) { run_alone(refuses_at_create); }

// Memory of another host's rank is not mapped. All CPU devices of a host count as one device, so the other device here
// has another UUID.
void refuses_memory(weirt_rank *rank)
{
    TableWorld world(rank);
    weir_device *other = nullptr;
    weir_table *table = nullptr;
    if (!world.ready || !WEIRT_OK(rank, weir_device_open("cpu:1", nullptr, &other))) {
        return;
    }
    other->info.uuid[0] ^= 1;
    weir_memory far = *world.memory;
    far.block = nullptr;
    far.rank = 3;
    weir_table_part parts[2] = { world.part(10), world.part(10) };
    parts[1].memory = &far;
    WEIRT_STATUS(rank, WEIR_ERR_UNSUPPORTED, weir_table_create(world.c.device, 100, parts, 2, nullptr, &table));
    WEIRT_TEXT(rank, "weir_table_create: part 1 is memory of rank 3, which is not mapped here");
    WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_table_create(other, 100, parts, 2, nullptr, &table));
    WEIRT_TEXT(rank, "weir_table_create: part 0 is memory of ");
    WEIRT_TEXT(rank, ", but the table is of ");
    WEIRT_EXPECT(rank, table == nullptr);
    weir_device_close(other);
}

TEST_P(TableErrors, CreateRefusesMemory) { run_alone(refuses_memory); }

// ---- calls ---------------------------------------------------------------------------------------------------------

struct CallRefusal {
    void (*change)(weir_table_call_opts *opts);
    weir_status status;
    const char *text;
};

void refuses_calls(weirt_rank *rank)
{
    TableWorld world(rank);
    weir_table *table = nullptr;
    weir_table_part part = world.part(100);
    if (!world.ready || !WEIRT_OK(rank, weir_table_create(world.c.device, 100, &part, 1, nullptr, &table))) {
        return;
    }
    const CallRefusal refusals[] = {
        { [](weir_table_call_opts *o) { o->size = 1; }, WEIR_ERR_INVALID, "size" },
        { [](weir_table_call_opts *o) { o->column = 100; }, WEIR_ERR_RANGE, "at column 100 leave a row of 100 bytes" },
        { [](weir_table_call_opts *o) { o->column = 60, o->bytes = 41; }, WEIR_ERR_RANGE, "41 bytes at column 60" },
        { [](weir_table_call_opts *o) { o->bytes = UINT64_MAX; }, WEIR_ERR_RANGE, "leave a row" },
        { [](weir_table_call_opts *o) { o->pitch = 99; }, WEIR_ERR_INVALID,
          "opts.pitch is 99 bytes, less than the row (100 bytes)" },
        { [](weir_table_call_opts *o) { o->planes = 2, o->plane = TableWorld::BYTES - 9999, o->out_plane = 10000; },
          WEIR_ERR_RANGE, "2 planes of 100 bytes at column 0, 55537 bytes apart, leave the memory of a part" },
        { [](weir_table_call_opts *o) { o->planes = 3, o->plane = UINT64_MAX / 2 + 1, o->out_plane = 100; },
          WEIR_ERR_RANGE, "3 planes" },
        { [](weir_table_call_opts *o) { o->planes = 2, o->plane = 20000, o->out_plane = 99; }, WEIR_ERR_INVALID,
          "planes of 100 bytes are 99 bytes apart in out" },
        { [](weir_table_call_opts *o) { o->form = static_cast<weir_table_form>(9); }, WEIR_ERR_INVALID,
          "unknown form 9" },
    };
    const void *ids = world.ids({ 1, 2 });
    std::memset(world.host_out(), 'g', 1000);
    for (const CallRefusal &refusal : refusals) {
        weir_table_call_opts opts = WEIR_OPTS(weir_table_call_opts);
        refusal.change(&opts);
        WEIRT_STATUS(rank, refusal.status,
                     weir_table_gather(table, ids, WEIR_IDS_I32, 2, world.out(), &opts, world.stream));
        WEIRT_TEXT(rank, refusal.text);
        WEIRT_STATUS(rank, refusal.status,
                     weir_table_scatter(table, ids, WEIR_IDS_I32, 2, world.out(), &opts, world.stream));
        WEIRT_TEXT(rank, refusal.text);
    }
    weir_table_call_opts zeroes = WEIR_OPTS(weir_table_call_opts);
    zeroes.zero_skipped = true;
    const weir_ids strange = static_cast<weir_ids>(5);
    char *out = world.out();
    void *stream = world.stream;
    WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_table_scatter(table, ids, WEIR_IDS_I32, 2, out, &zeroes, stream));
    WEIRT_TEXT(rank, "opts.zero_skipped is for a gather");
    WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_table_gather(table, nullptr, WEIR_IDS_I32, 2, out, nullptr, stream));
    WEIRT_TEXT(rank, "ids is NULL");
    WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_table_gather(table, ids, WEIR_IDS_I32, 2, nullptr, nullptr, stream));
    WEIRT_TEXT(rank, "weir_table_gather: out is NULL");
    WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_table_scatter(table, ids, WEIR_IDS_I32, 2, nullptr, nullptr, stream));
    WEIRT_TEXT(rank, "weir_table_scatter: rows is NULL");
    WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_table_gather(table, ids, strange, 2, out, nullptr, stream));
    WEIRT_TEXT(rank, "unknown type of ids 5");
    WEIRT_STATUS(rank, WEIR_ERR_INVALID,
                 weir_table_gather(table, static_cast<const char *>(ids) + 4, WEIR_IDS_I64, 2, out, nullptr, stream));
    WEIRT_TEXT(rank, "which must be aligned");
    weir_table_call_opts odd = WEIR_OPTS(weir_table_call_opts);
    odd.out_ids = static_cast<const char *>(ids) + 2;
    WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_table_gather(table, ids, WEIR_IDS_I32, 2, out, &odd, stream));
    WEIRT_TEXT(rank, "weir_table_gather: opts.out_ids at");
    odd.out_ids = static_cast<const char *>(ids) + 4;
    WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_table_scatter(table, ids, WEIR_IDS_I64, 2, out, &odd, stream));
    WEIRT_TEXT(rank, "weir_table_scatter: opts.out_ids at");
    odd.out_ids = nullptr;
    odd.count_at = reinterpret_cast<const uint64_t *>(static_cast<const char *>(ids) + 4);
    WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_table_gather(table, ids, WEIR_IDS_I32, 2, out, &odd, stream));
    WEIRT_TEXT(rank, "weir_table_gather: opts.count_at at");
    WEIRT_OK(rank, weir_table_gather(table, nullptr, WEIR_IDS_I32, 0, nullptr, nullptr, stream));
    WEIRT_OK(rank, weir_stream_wait(world.c.device, stream, 0));
    for (int i = 0; i < 1000; i++) {
        WEIRT_EXPECT(rank, world.host_out()[i] == 'g');
    }
    weir_table_destroy(table);
}

TEST_P(TableErrors, CallsRefuse) { run_alone(refuses_calls); }

// A part without rows needs no pointer, as the empty share of a rank. It takes no ids.
void empty_part(weirt_rank *rank)
{
    TableWorld world(rank);
    weir_table *table = nullptr;
    const weir_table_part parts[3] = { {}, world.part(100), {} };
    if (world.ready && WEIRT_OK(rank, weir_table_create(world.c.device, 100, parts, 3, nullptr, &table))) {
        weir_table_info info;
        weir_table_get_info(table, &info);
        WEIRT_EXPECT(rank, info.rows == parts[1].count);
        std::memset(world.host(), 'r', 100 * 100);
        const void *ids = world.ids({ 0, 99 });
        WEIRT_OK(rank, weir_table_gather(table, ids, WEIR_IDS_I32, 2, world.out(), nullptr, world.stream));
        WEIRT_OK(rank, weir_stream_wait(world.c.device, world.stream, 0));
        WEIRT_OK(rank, weir_table_status(table));
        WEIRT_EXPECT(rank, world.host_out()[0] == 'r' && world.host_out()[199] == 'r' && world.host_out()[200] == 0);
    }
    weir_table_destroy(table);
}

TEST_P(TableErrors, EmptyPartsNeedNoRows) { run_alone(empty_part); }

// Ids that are out of range are counted, and the first one is named. Calls go on.
void counts_faults(weirt_rank *rank)
{
    TableWorld world(rank);
    weir_table *table = nullptr;
    weir_table_part part = world.part(10);
    weir_table_faults faults;
    weir_table_info info;
    if (!world.ready || !WEIRT_OK(rank, weir_table_create(world.c.device, 100, &part, 1, nullptr, &table))) {
        return;
    }
    weir_table_get_info(table, &info);
    WEIRT_EXPECT(rank, info.rows == 10 && info.row_bytes == 100 && info.span_bytes == 1000 && info.parts == 1);
    WEIRT_EXPECT(rank, info.blocks == 8 && info.threads == 1024);
    WEIRT_OK(rank, weir_table_status(table));
    WEIRT_OK(rank, weir_table_gather(table, world.ids({ 3, 17, -4, 9 }), WEIR_IDS_I32, 4, world.out(), nullptr,
                                     world.stream));
    WEIRT_OK(rank, weir_stream_wait(world.c.device, world.stream, 0));
    WEIRT_STATUS(rank, WEIR_ERR_RANGE, weir_table_status(table));
    WEIRT_TEXT(rank, "id 17 at position 1 is out of range: the table has 10 rows; 1 ids were out of range so far");
    WEIRT_OK(rank,
             weir_table_scatter(table, world.ids({ 10, 20, 30 }), WEIR_IDS_I32, 3, world.out(), nullptr, world.stream));
    WEIRT_OK(rank, weir_stream_wait(world.c.device, world.stream, 0));
    weir_table_get_faults(table, &faults);
    WEIRT_EXPECT(rank, faults.count == 4 && faults.id == 17 && faults.position == 1);
    weir_table_destroy(table);
}

TEST_P(TableErrors, CountsIdsOutOfRange) { run_alone(counts_faults); }

// While a kernel runs, another thread may have raised the count before the first one stored its id, and the first one
// may have stored its id but no count yet. Nothing is reported before the id is known.
void reports_known_ids(weirt_rank *rank)
{
    TableWorld world(rank);
    weir_table *table = nullptr;
    weir_table_part part = world.part(10);
    weir_table_faults faults;
    if (!world.ready || !WEIRT_OK(rank, weir_table_create(world.c.device, 100, &part, 1, nullptr, &table))) {
        return;
    }
    auto *stored = static_cast<weir_dev_table_faults *>(table->faults->host_pointer);
    stored->count = 2;
    weir_table_get_faults(table, &faults);
    WEIRT_EXPECT(rank, faults.count == 0 && faults.id == 0 && faults.position == 0);
    WEIRT_OK(rank, weir_table_status(table));
    stored->count = 0;
    stored->id = 17;
    stored->position = 3;
    stored->known = 1;
    weir_table_get_faults(table, &faults);
    WEIRT_EXPECT(rank, faults.count == 1 && faults.id == 17 && faults.position == 3);
    WEIRT_STATUS(rank, WEIR_ERR_RANGE, weir_table_status(table));
    WEIRT_TEXT(rank, "id 17 at position 3 is out of range: the table has 10 rows; 1 ids were out of range so far");
    weir_table_destroy(table);
}

TEST_P(TableErrors, ReportsIdsThatAreKnown) { run_alone(reports_known_ids); }

// ---- faults in create and calls ------------------------------------------------------------------------------------

constexpr uint64_t MANY = 4096; // ids, so that a gather divides those that have copies from the others

// A table with everything: room for orders and copies, rows of 4 bytes with room behind them for planes.
weir_status create_full(const TableWorld &world, weir_table **out)
{
    weir_table_part part = world.part(10);
    weir_table_opts opts = WEIR_OPTS(weir_table_opts);
    opts.order_ids = MANY;
    opts.cache_rows = 4;
    return weir_table_create(world.c.device, 4, &part, 1, &opts, out);
}

// A call of each kind, and the kernels that it puts on the stream.
struct Call {
    const char *name;
    weir_status (*make)(const TableWorld &world, weir_table *table);
    uint64_t kernels;
    bool orders; // by the memory of counts
};

template <weir_table_order ORDER, uint64_t COUNT> weir_status gather(const TableWorld &world, weir_table *table)
{
    weir_table_call_opts opts = WEIR_OPTS(weir_table_call_opts);
    opts.order = ORDER;
    return weir_table_gather(table, world.device() + 32768, WEIR_IDS_I32, COUNT, world.out(), &opts, world.stream);
}

weir_status copy(const TableWorld &world, weir_table *table)
{
    return weir_table_cache(table, world.device() + 32768, WEIR_IDS_I32, 4, world.stream);
}

weir_status scatter(const TableWorld &world, weir_table *table)
{
    return weir_table_scatter(table, world.device() + 32768, WEIR_IDS_I32, 10, world.out(), nullptr, world.stream);
}

weir_status scatter_planes(const TableWorld &world, weir_table *table)
{
    weir_table_call_opts opts = WEIR_OPTS(weir_table_call_opts);
    opts.planes = 2;
    opts.plane = 1024;
    opts.out_plane = 64;
    return weir_table_scatter(table, world.device() + 32768, WEIR_IDS_I32, 10, world.out(), &opts, world.stream);
}

const Call calls[] = {
    { "given", gather<WEIR_TABLE_ORDER_GIVEN, 10>, 1, false },
    { "grouped", gather<WEIR_TABLE_ORDER_GROUPED, 10>, 4, true },
    { "unique", gather<WEIR_TABLE_ORDER_UNIQUE, 10>, 5, true },
    { "divided", gather<WEIR_TABLE_ORDER_AUTO, MANY>, 3, false },
    { "divided and grouped", gather<WEIR_TABLE_ORDER_GROUPED, MANY>, 6, true },
    { "cache", copy, 3, false },
    { "scatter", scatter, 1, false },
    { "scatter of planes", scatter_planes, 2, false },
};

// Ids 0 to 9 again and again, and rows and out that tell them.
void put_all(const TableWorld &world)
{
    std::vector<int32_t> ids(MANY);
    for (uint64_t i = 0; i < MANY; i++) {
        ids[i] = static_cast<int32_t>(i % 10);
        std::memcpy(world.host_out() + 4 * i, &ids[i], 4);
    }
    std::memcpy(world.host(), ids.data(), 40);
    (void)world.ids(ids);
}

// Whether a gather of ten rows is right.
bool gathers(const TableWorld &world, weir_table *table, weir_table_order order)
{
    weir_table_call_opts opts = WEIR_OPTS(weir_table_call_opts);
    opts.order = order;
    std::memset(world.host_out(), 0x5a, 40);
    return weir_table_gather(table, world.device() + 32768, WEIR_IDS_I32, 10, world.out(), &opts, world.stream) ==
               WEIR_OK &&
           WEIRT_OK(world.rank, weir_stream_wait(world.c.device, world.stream, 0)) &&
           std::memcmp(world.host_out(), world.host(), 40) == 0;
}

// Create and a call, while the n-th operation fails: nothing is left, and the text says what failed. Later calls in the
// order GIVEN and AUTO are right. A launch that fails between the kernels of an order leaves counts of groups, so a
// later order is refused. Returns how often.
uint64_t nth_fails(const TableWorld &world, const Call &call, uint64_t (*fail)(uint64_t n), weir_status wanted)
{
    weirt_rank *rank = world.rank;
    uint64_t refused = 0;
    bool done = false;
    for (uint64_t n = 1; n < 100 && !done; n++) {
        weir_table *table = nullptr;
        put_all(world);
        (void)fail(n);
        weir_status status = create_full(world, &table);
        status = status == WEIR_OK ? copy(world, table) : status;
        status = status == WEIR_OK ? call.make(world, table) : status;
        done = fail(0) != 0;
        if (status != (done ? WEIR_OK : wanted) || (!done && std::strlen(weir_last_error()) == 0)) {
            weirt_fail(rank, __FILE__, __LINE__, "%s, operation %llu: %d, %s", call.name,
                       static_cast<unsigned long long>(n), static_cast<int>(status), weir_last_error());
        }
        WEIRT_OK(rank, weir_stream_wait(world.c.device, world.stream, 0));
        if (table != nullptr) {
            WEIRT_EXPECT(rank, gathers(world, table, WEIR_TABLE_ORDER_GIVEN));
            WEIRT_EXPECT(rank, gathers(world, table, WEIR_TABLE_ORDER_AUTO));
            if (!gathers(world, table, WEIR_TABLE_ORDER_GROUPED)) {
                refused++;
                WEIRT_STATUS(rank, WEIR_ERR_DEVICE, calls[2].make(world, table));
                WEIRT_TEXT(rank, "an earlier launch failed, so that its ids cannot be reordered");
            }
        }
        weir_table_destroy(table);
    }
    WEIRT_EXPECT(rank, done);
    return refused;
}

void nth_allocation(weirt_rank *rank)
{
    TableWorld world(rank);
    for (const Call &call : calls) {
        WEIRT_EXPECT(rank, !world.ready || nth_fails(world, call, weirt_fail_allocation, WEIR_ERR_NOMEM) <= 3);
    }
}

void nth_device(weirt_rank *rank)
{
    TableWorld world(rank);
    for (const Call &call : calls) {
        const uint64_t launches = call.orders ? 3 : 0; // before the gather
        WEIRT_EXPECT(rank, !world.ready || nth_fails(world, call, weirt_fail_device, WEIR_ERR_DEVICE) == launches);
    }
}

TEST_P(TableErrors, NthAllocationFails) { run_alone(nth_allocation); }
TEST_P(TableErrors, NthDeviceOperationFails) { run_alone(nth_device); }

// A call allocates no more than launches of kernels that do nothing.
void allocates_nothing(weirt_rank *rank)
{
    TableWorld world(rank);
    weir_table *table = nullptr;
    if (!world.ready || !WEIRT_OK(rank, create_full(world, &table))) {
        return;
    }
    put_all(world);
    const uint64_t most = 1000;
    const weir_shape shape = weir_device_fit_shape(world.c.device, { 8, 1024 });
    const table_args args = {};
    WEIRT_OK(rank, copy(world, table));
    for (const Call &call : calls) {
        uint64_t left[2] = { 0, 1 };
        for (int round = 0; round < 2; round++) { // the first one makes workers
            (void)weirt_fail_allocation(most);
            for (uint64_t i = 0; i < call.kernels; i++) {
                WEIRT_OK(rank, weir_launch(world.c.device, table_nothing, shape, &args, nullptr, world.stream));
            }
            left[0] = weirt_fail_allocation(0);
            WEIRT_OK(rank, weir_stream_wait(world.c.device, world.stream, 0));
            (void)weirt_fail_allocation(most);
            WEIRT_OK(rank, call.make(world, table));
            left[1] = weirt_fail_allocation(0);
            WEIRT_OK(rank, weir_stream_wait(world.c.device, world.stream, 0));
        }
        if (left[0] != left[1]) {
            weirt_fail(rank, __FILE__, __LINE__, "%s: %llu allocations are left, not %llu", call.name,
                       static_cast<unsigned long long>(left[1]), static_cast<unsigned long long>(left[0]));
        }
    }
    weir_table_destroy(table);
}

TEST_P(TableErrors, CallsAllocateNothing) { run_alone(allocates_nothing); }

// ---- inside kernels ------------------------------------------------------------------------------------------------

// A kernel sums bags of rows, and gathers and scatters by itself.
void inside_kernels(weirt_rank *rank)
{
    TableWorld world(rank);
    weir_table *table = nullptr;
    weir_table_part parts[2] = { world.part(20), world.part(20) };
    parts[1].offset = 20 * 64;
    if (!world.ready || !WEIRT_OK(rank, weir_table_create(world.c.device, 64, parts, 2, nullptr, &table))) {
        return;
    }
    for (uint32_t i = 0; i < 40 * 16; i++) {
        const uint32_t word = i / 16 * 1000 + i % 16;
        std::memcpy(world.host() + i * 4, &word, 4);
    }
    table_args args = {};
    weir_table_device(table, &args.table);
    args.ids = static_cast<const int32_t *>(world.ids({ 0, 39, 20, -1, 40, 7 }));
    args.count = 6;
    args.out = world.out();
    const weir_shape shape = weir_device_fit_shape(world.c.device, { 2, 64 });
    std::memset(world.host_out(), 0, 4096);
    WEIRT_OK(rank, weir_launch(world.c.device, table_inside, shape, &args, nullptr, world.stream));
    WEIRT_OK(rank, weir_stream_wait(world.c.device, world.stream, 0));
    uint32_t out[8 * 16];
    std::memcpy(out, world.host_out(), sizeof out);
    for (uint32_t i = 0; i < 16; i++) {
        WEIRT_EXPECT(rank, out[i] == i && out[16 + i] == 39000 + i && out[32 + i] == 20000 + i);
        WEIRT_EXPECT(rank, out[48 + i] == 0 && out[64 + i] == 0 && out[80 + i] == 7000 + i);
        WEIRT_EXPECT(rank, out[96 + i] == 66000 + 4 * i); // the sum
    }
    WEIRT_EXPECT(rank, out[112] == 1 && out[113] == 1); // skipped, out of range
    weir_table_faults faults;
    weir_table_get_faults(table, &faults);
    WEIRT_EXPECT(rank, faults.count == 1 && faults.id == 40 && faults.position == 4);
    // Row 5 of the table is now the sum.
    args.ids = static_cast<const int32_t *>(world.ids({ 5 }));
    args.out = world.out() + 6 * 64;
    args.count = 1;
    WEIRT_OK(rank, weir_launch(world.c.device, table_back, shape, &args, nullptr, world.stream));
    WEIRT_OK(rank, weir_stream_wait(world.c.device, world.stream, 0));
    WEIRT_EXPECT(rank, std::memcmp(world.host() + 5 * 64, world.host_out() + 6 * 64, 64) == 0);
    weir_table_destroy(table);
}

TEST_P(TableErrors, RowsInsideKernels) { run_alone(inside_kernels); }

// Ids of ten rows of 60 bytes; two are no row. In out there are 7 bytes behind each row.
constexpr int64_t GROUP_IDS[] = { 1, 6, -3, 4, 10, 2, 5 };
constexpr uint64_t GROUP_COUNT = sizeof GROUP_IDS / sizeof GROUP_IDS[0];
constexpr uint64_t GROUP_ROW = 60;
constexpr uint64_t GROUP_PITCH = 67;

bool run_group(const TableWorld &world, table_group_args *args, uint32_t scatter)
{
    const weir_shape shape = weir_device_fit_shape(world.c.device, { 2, 64 });
    args->scatter = scatter;
    return WEIRT_OK(world.rank, weir_launch(world.c.device, table_group, shape, args, nullptr, world.stream)) &&
           WEIRT_OK(world.rank, weir_stream_wait(world.c.device, world.stream, 0));
}

// The group gathers the rows and stores them back, each with its bytes in reverse order.
void move_by_group(const TableWorld &world, table_group_args *args)
{
    const uint64_t width = args->type == WEIR_IDS_I64 ? 8 : 4;
    std::string rows(10 * GROUP_ROW, '\0');
    std::string out(GROUP_COUNT * GROUP_PITCH, 'g');
    for (uint64_t i = 0; i < rows.size(); i++) {
        rows[i] = static_cast<char>(i * 7 + args->group);
    }
    std::memcpy(world.host(), rows.data(), rows.size());
    std::memset(world.host_out(), 'g', out.size());
    for (uint64_t i = 0; i < GROUP_COUNT; i++) {
        const int64_t id = GROUP_IDS[i];
        const auto narrow = static_cast<int32_t>(id);
        std::memcpy(world.host() + 32768 + i * width, width == 8 ? static_cast<const void *>(&id) : &narrow, width);
        if (id >= 0 && id < 10) {
            const auto at = static_cast<uint64_t>(id) * GROUP_ROW;
            out.replace(i * GROUP_PITCH, GROUP_ROW, rows, at, GROUP_ROW);
            std::reverse(rows.begin() + static_cast<std::ptrdiff_t>(at),
                         rows.begin() + static_cast<std::ptrdiff_t>(at + GROUP_ROW));
        }
    }
    WEIRT_EXPECT(world.rank, run_group(world, args, 0) && std::string(world.host_out(), out.size()) == out);
    for (uint64_t i = 0; i < GROUP_COUNT; i++) {
        char *row = world.host_out() + i * GROUP_PITCH;
        std::reverse(row, row + GROUP_ROW);
    }
    WEIRT_EXPECT(world.rank, run_group(world, args, 1) && std::string(world.host(), rows.size()) == rows);
}

// Groups of each kind, and ids of both types.
void groups_inside_kernels(weirt_rank *rank)
{
    TableWorld world(rank);
    weir_table *table = nullptr;
    weir_table_part part = world.part(10);
    if (!world.ready || !WEIRT_OK(rank, weir_table_create(world.c.device, GROUP_ROW, &part, 1, nullptr, &table))) {
        return;
    }
    table_group_args args = {};
    weir_table_device(table, &args.table);
    args.ids = world.device() + 32768;
    args.out = world.out();
    args.count = GROUP_COUNT;
    args.pitch = GROUP_PITCH;
    for (const weir_ids type : { WEIR_IDS_I32, WEIR_IDS_I64 }) {
        for (args.group = TABLE_GRID; args.group < TABLE_GROUPS; args.group++) {
            args.type = type;
            move_by_group(world, &args);
        }
    }
    weir_table_faults faults;
    weir_table_get_faults(table, &faults);
    WEIRT_EXPECT(rank, faults.count == 2 * 2 * TABLE_GROUPS && faults.id == 10 && faults.position == 4);
    weir_table_destroy(table);
}

TEST_P(TableErrors, GroupsInsideKernels) { run_alone(groups_inside_kernels); }

} // namespace
