// A trainer and a feeder, as in tutorial 10: processes whose kernels hand ids and rows over by semaphores, in memory of
// the trainer. The trainer, which also has the table, is killed or stopped while a kernel of either rank waits. What
// the feeder has put on its stream ends, the text names the trainer, and the feeder's table stays good.
#include <cstdlib>
#include <string>

#include "feeder_kernels.h"
#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

constexpr uint32_t TRAINER = 0;
constexpr uint32_t FEEDER = 1;
constexpr uint32_t WORDS = 25; // of a row
constexpr uint64_t ROW_BYTES = WORDS * sizeof(uint32_t);
constexpr uint32_t GOOD = 2;            // batches of which both ranks have seen the end
constexpr uint32_t STOP_TIMEOUT = 5000; // WEIR_TIMEOUT_MS, ms

enum Waiting : uint32_t { FEEDER_WAITS, TRAINER_WAITS };

struct Plan {
    Waiting waiting;
    weirt_death death;
    uint32_t end_ms; // time limit of the feeder's stream
};

uint32_t word_of(uint64_t row, uint64_t i) { return static_cast<uint32_t>((row * WORDS + i + 1) * 2654435761u); }

// Both ranks have these objects. There are two buffers of ids and two of rows.
struct Loop {
    weirt_rank *rank;
    weirt_comm c = {};
    weir_memory *memory = nullptr; // of the table
    weir_memory *ids = nullptr;
    weir_memory *rows = nullptr;
    weir_memory *shared = nullptr; // of the report
    feeder_report *report = nullptr;
    weir_connection *connection = nullptr;
    weir_semaphore *semaphore = nullptr;
    weir_table *table = nullptr;
    void *stream = nullptr;
    feeder_args args = {};

    explicit Loop(weirt_rank *rank_) : rank(rank_) {}
    Loop(const Loop &) = delete;
    Loop &operator=(const Loop &) = delete;
    ~Loop()
    {
        weir_table_destroy(table);
        if (stream != nullptr) {
            weir_stream_destroy(c.device, stream);
        }
        weir_semaphore_destroy(semaphore);
        weir_connection_destroy(connection);
        weir_memory_destroy(shared);
        weir_memory_destroy(rows);
        weir_memory_destroy(ids);
        weir_memory_destroy(memory);
        weirt_comm_close(&c);
    }

    bool share()
    {
        if (rank->rank == FEEDER) {
            return weirt_receive(rank, c.comm, TRAINER, 1, &memory) && weirt_receive(rank, c.comm, TRAINER, 2, &ids) &&
                   weirt_receive(rank, c.comm, TRAINER, 3, &rows);
        }
        const weir_memory_opts host = { sizeof host, WEIR_MEMORY_HOST, false, 0 };
        if (!WEIRT_OK(rank, weir_memory_allocate(c.comm, FEEDER_ROWS * ROW_BYTES, &host, &memory)) ||
            !WEIRT_OK(rank, weir_memory_allocate(c.comm, 2 * FEEDER_SAMPLES * sizeof(int32_t), nullptr, &ids)) ||
            !WEIRT_OK(rank, weir_memory_allocate(c.comm, 2 * FEEDER_SAMPLES * ROW_BYTES, nullptr, &rows))) {
            return false;
        }
        uint32_t *words = static_cast<uint32_t *>(weir_memory_host_pointer(memory));
        for (uint64_t i = 0; i < FEEDER_ROWS * WORDS; i++) {
            words[i] = word_of(i / WORDS, i % WORDS);
        }
        return WEIRT_OK(rank, weir_memory_send(c.comm, memory, FEEDER, 1)) &&
               WEIRT_OK(rank, weir_memory_send(c.comm, ids, FEEDER, 2)) &&
               WEIRT_OK(rank, weir_memory_send(c.comm, rows, FEEDER, 3));
    }
    bool open()
    {
        const weir_memory_opts host = { sizeof host, WEIR_MEMORY_HOST, false, 0 };
        weir_table_part part = {};
        if (!weirt_comm_open(rank, 0, &c) || !share() || !weirt_connect(rank, c.comm, 1 - rank->rank, 4, &connection) ||
            !weirt_semaphore(rank, connection, 5, WEIR_SEMAPHORE_DEVICE, &semaphore) ||
            !WEIRT_OK(rank, weir_semaphore_device(semaphore, &args.semaphore)) ||
            !WEIRT_OK(rank, weir_memory_allocate(c.comm, sizeof(feeder_report), &host, &shared)) ||
            !WEIRT_OK(rank, weir_kernel_load(c.device, feeder_sample_kernel())) ||
            !WEIRT_OK(rank, weir_stream_create(c.device, &stream))) {
            return false;
        }
        report = static_cast<feeder_report *>(weir_memory_host_pointer(shared));
        *report = {};
        args.report = static_cast<feeder_report *>(weir_memory_pointer(shared));
        part.memory = memory;
        part.count = FEEDER_ROWS;
        return WEIRT_OK(rank, weir_table_create(c.device, ROW_BYTES, &part, 1, nullptr, &table));
    }

    char *rows_at(uint32_t batch) const
    {
        return static_cast<char *>(weir_memory_pointer(rows)) + batch % 2 * FEEDER_SAMPLES * ROW_BYTES;
    }
    bool put(const weir_kernel *kernel, uint32_t batch, uint32_t threads)
    {
        args.batch = batch;
        args.ids = static_cast<int32_t *>(weir_memory_pointer(ids)) + batch % 2 * FEEDER_SAMPLES;
        return WEIRT_OK(rank, weir_launch(c.device, kernel, weir_shape{ 1, threads }, &args, nullptr, stream));
    }
    bool sample(uint32_t batch)
    {
        return put(feeder_sample_kernel(), batch, 2) && put(feeder_announce_kernel(), batch, 1);
    }
    bool await(uint32_t batch) { return put(feeder_await_kernel(), batch, 1); }
    bool gather(uint32_t batch)
    {
        return WEIRT_OK(
            rank, weir_table_gather(table, args.ids, WEIR_IDS_I32, FEEDER_SAMPLES, rows_at(batch), nullptr, stream));
    }
    bool feed(uint32_t from, uint32_t to)
    {
        bool good = true;
        for (uint32_t b = from; b < to && good; b++) {
            good = await(b) && gather(b) && put(feeder_announce_kernel(), b, 1);
        }
        return good;
    }
    // Waits until the kernel that waits for this batch has begun.
    bool begins(uint32_t batch) const
    {
        const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
        while (weir_arch_load_relaxed_sys_u32(&report->began[batch]) == 0 && weirt_now_ms() < end) {
            weirt_sleep_ms(1);
        }
        return WEIRT_EXPECT(rank, weir_arch_load_relaxed_sys_u32(&report->began[batch]) == 1);
    }
    // Whether the rows of this batch are those of its ids.
    bool right(uint32_t batch) const
    {
        uint32_t words[FEEDER_SAMPLES * WORDS];
        bool good = WEIRT_OK(rank, weir_device_copy(c.device, words, rows_at(batch), sizeof words));
        for (uint32_t i = 0; i < FEEDER_SAMPLES * WORDS && good; i++) {
            good =
                WEIRT_EXPECT(rank, words[i] == word_of(static_cast<uint64_t>(feeder_id(batch, i / WORDS)), i % WORDS));
        }
        return good;
    }
    // Whether the table gives the rows of this batch once more.
    bool gathers_again(uint32_t batch)
    {
        const char zeros[FEEDER_SAMPLES * ROW_BYTES] = {};
        args.ids = static_cast<int32_t *>(weir_memory_pointer(ids)) + batch % 2 * FEEDER_SAMPLES;
        return WEIRT_OK(rank, weir_device_copy(c.device, rows_at(batch), zeros, sizeof zeros)) && gather(batch) &&
               WEIRT_OK(rank, weir_stream_wait(c.device, stream, weirt_timeout_ms())) &&
               WEIRT_OK(rank, weir_table_status(table)) && right(batch);
    }
};

// The trainer samples GOOD batches, and one more if it waits itself.
void train(Loop *loop, const Plan *plan)
{
    weirt_rank *rank = loop->rank;
    bool good = true;
    for (uint32_t b = 0; b < GOOD && good; b++) {
        good = loop->sample(b) && loop->await(b);
    }
    good = good && WEIRT_OK(rank, weir_stream_wait(loop->c.device, loop->stream, weirt_timeout_ms()));
    for (uint32_t b = 0; b < GOOD && good; b++) {
        good = WEIRT_EXPECT(rank, loop->report->status[b] == WEIR_OK) && loop->right(b);
    }
    if (plan->waiting == TRAINER_WAITS) {
        good = good && loop->sample(GOOD) && loop->await(GOOD) && loop->begins(GOOD);
    }
    if (good && weirt_step_wait(rank, FEEDER, 1)) {
        weirt_die(rank, plan->death);
    }
}

void expect_end(Loop *loop, const Plan *plan)
{
    weirt_rank *rank = loop->rank;
    const uint32_t sampled = plan->waiting == TRAINER_WAITS ? GOOD + 1 : GOOD;
    WEIRT_STATUS(rank, WEIR_ERR_REMOTE, weir_comm_wait(loop->c.comm, loop->stream, plan->end_ms));
    WEIRT_TEXT(rank, plan->death == WEIRT_KILL ? "rank 0 died" : "rank 0 does not answer");
    WEIRT_OK(rank, weir_stream_wait(loop->c.device, loop->stream, 1)); // all of it had ended
    for (uint32_t b = 0; b < FEEDER_BATCHES; b++) {
        const weir_status status = static_cast<weir_status>(loop->report->status[b]);
        // The signal of a batch that was sampled may count after the error, too.
        WEIRT_EXPECT(rank, loop->report->began[b] == 1);
        WEIRT_EXPECT(rank, (status == WEIR_OK && b < sampled) || (status == WEIR_ERR_REMOTE && b >= GOOD));
    }
    // The gathers behind waits that failed have moved the rows of the ids that were there.
    for (uint32_t b = sampled - 2; b < sampled; b++) {
        WEIRT_EXPECT(rank, loop->right(b) && loop->gathers_again(b));
    }
}

void feed(Loop *loop, const Plan *plan)
{
    weirt_rank *rank = loop->rank;
    if (plan->waiting == FEEDER_WAITS) {
        // All is on the stream before the trainer dies.
        if (loop->feed(0, FEEDER_BATCHES) && loop->begins(GOOD)) {
            weirt_step(rank, 1);
            expect_end(loop, plan);
        }
        return;
    }
    // The third batch is sampled, and the trainer waits for its rows, when the trainer dies.
    if (loop->feed(0, GOOD)) {
        weirt_step(rank, 1);
        if (weirt_death_wait(rank, TRAINER) && loop->feed(GOOD, FEEDER_BATCHES)) {
            expect_end(loop, plan);
        }
    }
}

void lose_the_trainer(weirt_rank *rank)
{
    const Plan *plan = static_cast<const Plan *>(rank->arg);
    weirt_log_allow("rank 0");
    Loop loop(rank);
    if (loop.open() && weirt_barrier(rank)) {
        rank->rank == TRAINER ? train(&loop, plan) : feed(&loop, plan);
    }
}

class FeederFault : public StageTest {
protected:
    // `notice_ms`: how long the loss may stay unknown. A busy processor, or a GPU that ends a process, may take longer.
    void lose(Waiting waiting, weirt_death death, uint32_t notice_ms) const
    {
        const Plan plan = { waiting, death, notice_ms + 5000 * weirt_slow() };
        weirt_ranks_run(stage(), 2, lose_the_trainer, &plan, sizeof plan);
    }
};

INSTANTIATE_TEST_SUITE_P(Stages, FeederFault, ::testing::Values(1, 3), weirt_stage_name);

TEST_P(FeederFault, DeathOfTheTrainerEndsTheFeedersWait) { lose(FEEDER_WAITS, WEIRT_KILL, 1000); }
TEST_P(FeederFault, DeathOfATrainerThatWaitsEndsTheFeeder) { lose(TRAINER_WAITS, WEIRT_KILL, 1000); }

TEST_P(FeederFault, SilenceOfTheTrainerEndsTheFeedersWait)
{
    const uint32_t timeout = STOP_TIMEOUT * weirt_slow();
    // Silence ends the wait; on a busy machine the kernel's own deadline must not come first.
    setenv("WEIR_TIMEOUT_MS", (std::to_string(timeout) + "," + std::to_string(3 * timeout)).c_str(), 1);
    lose(FEEDER_WAITS, WEIRT_STOP, 2 * timeout);
    unsetenv("WEIR_TIMEOUT_MS");
}

} // namespace
