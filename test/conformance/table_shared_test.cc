// One table in host memory for several processes: every rank gathers and scatters its own rows of it, and the mappings
// outlive the rank that allocated it.
#include <string>

#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

WEIRT_STAGE_SUITE(TableShared);
WEIRT_PROCESS_SUITE(TableOrphan);

constexpr uint32_t ROWS = 600;
constexpr uint64_t ROW_BYTES = 100;
constexpr uint64_t WORDS = ROW_BYTES / 4;

uint32_t word_of(uint64_t row, uint64_t i, uint32_t version)
{
    return static_cast<uint32_t>((row * WORDS + i + 1) * 2654435761u + version);
}

// A rank's view of the table that rank 0 allocated.
struct Shared {
    weirt_rank *rank = nullptr;
    weirt_comm c = {};
    weir_memory *memory = nullptr;
    weir_memory *rows = nullptr; // and ids behind them, which the host reaches, too
    weir_table *table = nullptr;
    void *stream = nullptr;

    explicit Shared(weirt_rank *rank_) : rank(rank_)
    {
        weir_memory_opts host = WEIR_OPTS(weir_memory_opts);
        host.kind = WEIR_MEMORY_HOST;
        ready = weirt_comm_open(rank, 0, &c) && share() &&
                WEIRT_OK(rank, weir_memory_allocate(c.comm, ROWS * (ROW_BYTES + 4), &host, &rows)) &&
                WEIRT_OK(rank, weir_stream_create(c.device, &stream)) && create();
    }
    ~Shared()
    {
        weir_table_destroy(table);
        if (stream != nullptr) {
            weir_stream_destroy(c.device, stream);
        }
        weir_memory_destroy(rows);
        weir_memory_destroy(memory);
        weirt_comm_close(&c);
    }
    Shared(const Shared &) = delete;
    Shared &operator=(const Shared &) = delete;
    bool ready = false;

    bool share()
    {
        weir_memory_opts host = { sizeof host, WEIR_MEMORY_HOST, true, 2 };
        if (rank->rank != 0) {
            return WEIRT_OK(rank, weir_memory_recv(c.comm, 0, 1, &memory));
        }
        bool good = WEIRT_OK(rank, weir_memory_allocate(c.comm, ROWS * ROW_BYTES, &host, &memory));
        uint32_t *words = good ? static_cast<uint32_t *>(weir_memory_host_pointer(memory)) : nullptr;
        for (uint64_t i = 0; i < ROWS * WORDS && good; i++) {
            words[i] = word_of(i / WORDS, i % WORDS, 0);
        }
        for (uint32_t peer = 1; peer < rank->size && good; peer++) {
            good = WEIRT_OK(rank, weir_memory_send(c.comm, memory, peer, 1));
        }
        return good;
    }
    bool create()
    {
        weir_table_part part = {};
        part.memory = memory;
        part.count = ROWS;
        return WEIRT_OK(rank, weir_table_create(c.device, ROW_BYTES, &part, 1, nullptr, &table));
    }
    uint32_t *words() const { return static_cast<uint32_t *>(weir_memory_host_pointer(rows)); }
    // Sets the ids to those rows of the table that have number `first` modulo `step`; returns how many.
    uint32_t choose(uint32_t first, uint32_t step)
    {
        uint32_t count = 0;
        for (uint32_t row = first; row < ROWS; row += step) {
            words()[ROWS * WORDS + count++] = row;
        }
        return count;
    }
    const void *ids() const { return static_cast<const char *>(weir_memory_pointer(rows)) + ROWS * ROW_BYTES; }
    // Whether all rows of the table have their words of `version`.
    bool gathers(uint32_t version)
    {
        const uint32_t count = choose(0, 1);
        bool good = WEIRT_OK(rank, weir_table_gather(table, ids(), WEIR_IDS_I32, count, weir_memory_pointer(rows),
                                                     nullptr, stream)) &&
                    WEIRT_OK(rank, weir_stream_wait(c.device, stream, 0)) && WEIRT_OK(rank, weir_table_status(table));
        for (uint64_t i = 0; i < ROWS * WORDS && good; i++) {
            good = WEIRT_EXPECT(rank, words()[i] == word_of(i / WORDS, i % WORDS, version));
        }
        return good;
    }
    // Writes the words of `version` to every step-th row.
    bool scatters(uint32_t first, uint32_t step, uint32_t version)
    {
        const uint32_t count = choose(first, step);
        for (uint64_t i = 0; i < count * WORDS; i++) {
            words()[i] = word_of(first + i / WORDS * step, i % WORDS, version);
        }
        return WEIRT_OK(rank, weir_table_scatter(table, ids(), WEIR_IDS_I32, count, weir_memory_pointer(rows), nullptr,
                                                 stream)) &&
               WEIRT_OK(rank, weir_stream_wait(c.device, stream, 0));
    }
};

void by_all(weirt_rank *rank)
{
    Shared shared(rank);
    for (uint32_t version = 0; version < 3 && shared.ready; version++) {
        shared.ready = shared.gathers(version) && weirt_barrier(rank) &&
                       shared.scatters(rank->rank, rank->size, version + 1) && weirt_barrier(rank);
    }
    weirt_barrier(rank); // before the table's memory ends
}

void owner_dies(weirt_rank *rank)
{
    weirt_log_allow("rank 0");
    Shared shared(rank);
    if (!weirt_barrier(rank) || !shared.ready) {
        return;
    }
    if (rank->rank == 0) {
        weirt_die(rank, WEIRT_KILL);
    }
    if (weirt_death_wait(rank, 0) && shared.gathers(0)) {
        weirt_step(rank, 1);
        weirt_step_wait(rank, 3 - rank->rank, 1);
        (void)(shared.scatters(rank->rank - 1, 2, 7));
        weirt_step(rank, 2);
        weirt_step_wait(rank, 3 - rank->rank, 2);
        WEIRT_EXPECT(rank, shared.gathers(7));
        const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
        while (weir_comm_status(shared.c.comm) == WEIR_OK && weirt_now_ms() < end) {
            weirt_sleep_ms(1);
        }
        WEIRT_STATUS(rank, WEIR_ERR_REMOTE, weir_comm_status(shared.c.comm));
        WEIRT_TEXT(rank, "rank 0");
        WEIRT_EXPECT(rank, shared.gathers(7)); // with the error, too
        weirt_step(rank, 3);
        weirt_step_wait(rank, 3 - rank->rank, 3);
    }
}

TEST_P(TableShared, EveryRankGathersAndScatters) { run(3, by_all); }
TEST_P(TableOrphan, MappingsOutliveTheOwner) { run(3, owner_dies); }

} // namespace
