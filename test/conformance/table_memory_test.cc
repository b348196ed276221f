// Host tables: rows at the edge of a page, more than 2^32 rows, rows of 1 GiB, and memory that only the table keeps.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "test/conformance/table_world.h"
#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

// Memory that nothing has registered, which only the CPU device reads.
class TableHost : public StageTest {};
INSTANTIATE_TEST_SUITE_P(Stages, TableHost, ::testing::Values(0), weirt_stage_name);

// Gathers both rows in each form and each order, and stores to them in each form.
void gather_and_scatter(const TableWorld &world, weir_table *table, char *first, char *last, uint64_t row_bytes)
{
    weirt_rank *rank = world.rank;
    const void *ids = world.ids({ 0, 1 });
    for (int i = 0; i <= WEIR_TABLE_FORM_LINES + WEIR_TABLE_ORDER_UNIQUE; i++) {
        weir_table_call_opts opts = WEIR_OPTS(weir_table_call_opts);
        opts.form = static_cast<weir_table_form>(i <= WEIR_TABLE_FORM_LINES ? i : 0);
        opts.order = static_cast<weir_table_order>(i <= WEIR_TABLE_FORM_LINES ? 0 : i - WEIR_TABLE_FORM_LINES);
        std::memset(first, 'r', row_bytes);
        std::memset(last, 's', row_bytes);
        std::memset(world.host_out(), 0, 2048);
        WEIRT_OK(rank, weir_table_gather(table, ids, WEIR_IDS_I32, 2, world.out(), &opts, world.stream));
        WEIRT_OK(rank, weir_stream_wait(world.c.device, world.stream, 0));
        const std::string out(world.host_out(), 2 * row_bytes + 1);
        WEIRT_EXPECT(rank, out == std::string(row_bytes, 'r') + std::string(row_bytes, 's') + '\0');
        if (opts.order <= WEIR_TABLE_ORDER_GIVEN) {
            std::memset(world.host_out(), 't', row_bytes);
            std::memset(world.host_out() + row_bytes, 'u', row_bytes);
            WEIRT_OK(rank, weir_table_scatter(table, ids, WEIR_IDS_I32, 2, world.out(), &opts, world.stream));
            WEIRT_OK(rank, weir_stream_wait(world.c.device, world.stream, 0));
            WEIRT_EXPECT(rank, std::string(first, row_bytes) == std::string(row_bytes, 't'));
            WEIRT_EXPECT(rank, std::string(last, row_bytes) == std::string(row_bytes, 'u'));
        }
    }
}

// The first row begins at a page and the last one ends at a page, with unreadable pages beside them.
void between_unreadable_pages(weirt_rank *rank)
{
    TableWorld world(rank);
    if (!world.ready) {
        return;
    }
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    auto *map =
        static_cast<char *>(mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    WEIRT_EXPECT(rank, mprotect(map, page, PROT_NONE) == 0 && mprotect(map + 2 * page, page, PROT_NONE) == 0);
    for (uint64_t row_bytes = 1; row_bytes < 600; row_bytes += 13) {
        weir_table *table = nullptr;
        weir_table_part part = {};
        weir_table_opts opts = WEIR_OPTS(weir_table_opts);
        opts.order_ids = 2;
        part.rows = map + page;
        part.count = 2;
        part.pitch = page - row_bytes;
        if (WEIRT_OK(rank, weir_table_create(world.c.device, row_bytes, &part, 1, &opts, &table))) {
            gather_and_scatter(world, table, map + page, map + 2 * page - row_bytes, row_bytes);
        }
        weir_table_destroy(table);
    }
    munmap(map, 3 * page);
}

TEST_P(TableHost, RowsBetweenUnreadablePages) { run_alone(between_unreadable_pages); }

// More than 2^32 rows in 80 GiB of virtual memory, of which few pages exist.
constexpr uint64_t LARGE = 5ull << 30;

char *map_large()
{
    void *map = mmap(nullptr, LARGE * 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return map != MAP_FAILED ? static_cast<char *>(map) : nullptr;
}

// Gathers these rows, one of them twice, in each order, and scatters others there. Row `id` has the number `id`.
void move_large(const TableWorld &world, weir_table *table, const int64_t *ids, char *const *rows, uint64_t count)
{
    weirt_rank *rank = world.rank;
    for (int order = WEIR_TABLE_ORDER_GIVEN; order <= WEIR_TABLE_ORDER_UNIQUE; order++) {
        weir_table_call_opts opts = WEIR_OPTS(weir_table_call_opts);
        opts.order = static_cast<weir_table_order>(order);
        opts.bytes = 8;
        std::memcpy(world.host() + 32768, ids, count * 8);
        std::memcpy(world.host() + 32768 + count * 8, ids, 8);
        for (uint64_t i = 0; i < count; i++) {
            std::memcpy(rows[i], &ids[i], 8);
        }
        WEIRT_OK(rank, weir_table_gather(table, world.device() + 32768, WEIR_IDS_I64, count + 1, world.out(), &opts,
                                         world.stream));
        WEIRT_OK(rank, weir_stream_wait(world.c.device, world.stream, 0));
        WEIRT_EXPECT(rank, std::memcmp(world.host_out(), world.host() + 32768, (count + 1) * 8) == 0);
    }
    for (uint64_t i = 0; i < count; i++) {
        std::memcpy(world.host_out() + 8 * i, &i, 8);
    }
    weir_table_call_opts opts = WEIR_OPTS(weir_table_call_opts);
    opts.bytes = 8;
    WEIRT_OK(rank,
             weir_table_scatter(table, world.device() + 32768, WEIR_IDS_I64, count, world.out(), &opts, world.stream));
    WEIRT_OK(rank, weir_stream_wait(world.c.device, world.stream, 0));
    for (uint64_t i = 0; i < count; i++) {
        WEIRT_EXPECT(rank, std::memcmp(rows[i], &i, 8) == 0);
    }
    WEIRT_OK(rank, weir_table_status(table));
}

void large(weirt_rank *rank)
{
    TableWorld world(rank);
    char *map = map_large();
    if (!world.ready || !WEIRT_EXPECT(rank, map != nullptr)) {
        return;
    }
    const int64_t ids[] = { 0, (1ll << 31) + 5, (1ll << 32) + 7, static_cast<int64_t>(LARGE) - 1 };
    for (const weir_table_split split : { WEIR_SPLIT_RANGES, WEIR_SPLIT_ROUND_ROBIN }) {
        weir_table *table = nullptr;
        weir_table_opts opts = WEIR_OPTS(weir_table_opts);
        weir_table_part parts[2] = {};
        char *rows[4];
        opts.split = split;
        opts.order_ids = 8;
        for (uint64_t i = 0; i < 2; i++) {
            parts[i].rows = map + i * LARGE * 8;
            parts[i].count = LARGE / 2;
            parts[i].pitch = 16;
        }
        for (uint64_t i = 0; i < 4; i++) {
            const auto id = static_cast<uint64_t>(ids[i]);
            rows[i] = map + (split == WEIR_SPLIT_RANGES ? id : id % 2 * (LARGE / 2) + id / 2) * 16;
        }
        if (WEIRT_OK(rank, weir_table_create(world.c.device, 16, parts, 2, &opts, &table))) {
            move_large(world, table, ids, rows, 4);
        }
        weir_table_destroy(table);
    }
    munmap(map, LARGE * 16);
}

// Rows of 1 GiB, the longest: the last bytes of the first and of the last one.
void longest(weirt_rank *rank)
{
    TableWorld world(rank);
    weir_table *table = nullptr;
    char *map = map_large();
    if (!world.ready || !WEIRT_EXPECT(rank, map != nullptr)) {
        return;
    }
    const uint64_t row_bytes = 1 << 30;
    const uint64_t count = LARGE * 16 / row_bytes;
    weir_table_part part = {};
    weir_table_call_opts opts = WEIR_OPTS(weir_table_call_opts);
    part.rows = map;
    part.count = count;
    opts.column = row_bytes - 100;
    std::memset(map + opts.column, 'f', 100);
    std::memset(map + count * row_bytes - 100, 'l', 100);
    const void *ids = world.ids({ 0, static_cast<int32_t>(count - 1) });
    if (WEIRT_OK(rank, weir_table_create(world.c.device, row_bytes, &part, 1, nullptr, &table))) {
        WEIRT_OK(rank, weir_table_gather(table, ids, WEIR_IDS_I32, 2, world.out(), &opts, world.stream));
        WEIRT_OK(rank, weir_stream_wait(world.c.device, world.stream, 0));
        WEIRT_EXPECT(rank, std::string(world.host_out(), 200) == std::string(100, 'f') + std::string(100, 'l'));
        std::memset(world.host_out(), 'F', 100);
        std::memset(world.host_out() + 100, 'L', 100);
        WEIRT_OK(rank, weir_table_scatter(table, ids, WEIR_IDS_I32, 2, world.out(), &opts, world.stream));
        WEIRT_OK(rank, weir_stream_wait(world.c.device, world.stream, 0));
        WEIRT_EXPECT(rank, std::string(map + opts.column, 100) == std::string(100, 'F'));
        WEIRT_EXPECT(rank, std::string(map + count * row_bytes - 100, 100) == std::string(100, 'L'));
    }
    weir_table_destroy(table);
    munmap(map, LARGE * 16);
}

class TableLarge : public TableHost {
protected:
    void SetUp() override
    {
        char *map = map_large();
        if (map == nullptr) {
            GTEST_SKIP() << "80 GiB of addresses cannot be reserved here";
        }
        munmap(map, LARGE * 16);
    }
};
INSTANTIATE_TEST_SUITE_P(Stages, TableLarge, ::testing::Values(0), weirt_stage_name);

TEST_P(TableLarge, MoreThanFourBillionRows) { run_alone(large); }
TEST_P(TableLarge, RowsOf1GiB) { run_alone(longest); }

WEIRT_STAGE_SUITE(TableMemory);

// Nothing but the table keeps the memory of its parts.
void kept(weirt_rank *rank)
{
    TableWorld world(rank);
    weir_table *table = nullptr;
    weir_memory *rows = nullptr;
    weir_memory_opts host = WEIR_OPTS(weir_memory_opts);
    host.kind = WEIR_MEMORY_HOST;
    if (!world.ready || !WEIRT_OK(rank, weir_memory_allocate(world.c.comm, 3000, &host, &rows))) {
        return;
    }
    std::memset(weir_memory_host_pointer(rows), 'k', 3000);
    weir_table_part parts[2] = {};
    parts[0].memory = parts[1].memory = rows;
    parts[0].count = parts[1].count = 10;
    parts[1].offset = 2000;
    WEIRT_OK(rank, weir_table_create(world.c.device, 100, parts, 2, nullptr, &table));
    weir_memory_destroy(rows);
    std::memset(world.host_out(), 0, 300);
    WEIRT_OK(rank, weir_table_gather(table, world.ids({ 19, 0 }), WEIR_IDS_I32, 2, world.out(), nullptr, world.stream));
    WEIRT_OK(rank, weir_stream_wait(world.c.device, world.stream, 0));
    WEIRT_EXPECT(rank, std::string(world.host_out(), 201) == std::string(200, 'k') + '\0');
    weir_table_destroy(table);
}

TEST_P(TableMemory, IsKeptByTheTable) { run_alone(kept); }

} // namespace
