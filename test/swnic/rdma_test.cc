// Kernels that post to a NIC (weir/device/rdma.h): puts, adds and gets are right for each kind of posting thread.
#include "queue.h"
#include "rdma_kernels.h"

#include "test/harness/checks.h"

using weirt::fill;
using weirt::Nic;
using weirt::opened;
using weirt::Options;
using weirt::wrong;

WEIRT_NIC_SUITE(SwnicRdma);

namespace {

constexpr uint64_t token = 900000; // offsets in the memory of each rank
constexpr uint64_t scratch = 950000;

uint32_t scaled(uint32_t count) { return weirt_sanitizer()[0] == 0 ? count : count / 8; }

// Rank 0's queue pair and the other objects of its kernels.
struct Poster : weirt::Kernels {
    explicit Poster(Nic *nic) : nic(nic) {}
    Poster(const Poster &) = delete;
    Poster &operator=(const Poster &) = delete;

    bool open(uint32_t what, uint64_t rounds);
    // Launches one block and waits for its end. Returns the first status other than WEIR_OK.
    weir_status run(uint32_t threads);

    Nic *nic;
    alignas(128) weir_dev_rdma_state state = {};
    rdma_report report = {};
    uint64_t answers = 0;
    rdma_args args = {};
};

bool Poster::open(uint32_t what, uint64_t rounds)
{
    if (!Kernels::open(nic->rank, rdma_kernel()) || !weirt::describe(nic, 0, &control, &state, &args.queue)) {
        return false;
    }
    args.local = { nic->here(0), nic->mr->lkey, 0 };
    args.remote = { nic->there(0), nic->key(), 0 };
    args.memory = reinterpret_cast<uint64_t *>(nic->memory.data());
    args.answers = &answers;
    args.report = &report;
    args.scratch = scratch;
    args.token = token;
    args.rounds = rounds;
    args.what = what;
    args.flags = WEIR_RDMA_RING;
    return true;
}

weir_status Poster::run(uint32_t threads)
{
    Kernels::run(threads, &args);
    for (uint32_t i = 0; i < threads; i++) {
        if (report.status[i] != WEIR_OK) {
            return static_cast<weir_status>(report.status[i]);
        }
    }
    return WEIR_OK;
}

// Rank 0's threads put a value into each slot of rank 1.
void puts(weirt_rank *rank, uint32_t what, uint32_t threads, uint32_t rounds, bool exclusive, uint32_t flags,
          const char *script = "")
{
    Options options;
    options.script = script;
    Nic nic(rank, options);
    if (!nic.open()) {
        return;
    }
    if (rank->rank == 0) {
        Poster poster(&nic);
        if (poster.open(what, rounds)) {
            poster.args.queue.exclusive = exclusive;
            poster.args.flags = flags;
            WEIRT_EXPECT(rank, poster.run(threads) == WEIR_OK);
            WEIRT_EXPECT(rank, poster.state.reserved >= static_cast<uint64_t>(threads) * rounds);
            WEIRT_EXPECT(rank, poster.state.completed == poster.state.reserved);
        }
    }
    nic.meet();
    if (rank->rank == 1) {
        const uint64_t *slots = reinterpret_cast<const uint64_t *>(nic.memory.data());
        uint64_t wrong = 0;
        for (uint32_t thread = 0; thread < threads; thread++) {
            for (uint32_t i = 0; i < rounds; i++) {
                wrong += slots[thread * rounds + i] != rdma_value(thread, i);
            }
        }
        WEIRT_EXPECT(rank, wrong == 0);
    }
}

uint32_t pushers() { return std::strcmp(weirt_sanitizer(), "thread") == 0 ? 4 : 8; }

void puts_of_many(weirt_rank *rank) { puts(rank, RDMA_PUTS, pushers(), scaled(2000), false, WEIR_RDMA_RING); }

// Past the 16 bits of an index, and the 24 of a completion's number.
void puts_of_one(weirt_rank *rank)
{
    puts(rank, RDMA_PUTS, 1, scaled(8000), true, WEIR_RDMA_RING, "counters:65000,16777200");
}

// Rings only when the queue is full, and at the end.
void puts_that_do_not_ring(weirt_rank *rank) { puts(rank, RDMA_PUTS, pushers(), scaled(2000), false, 0); }

void spans_of_many(weirt_rank *rank) { puts(rank, RDMA_SPANS, pushers(), scaled(1600) / 8 * 8, false, WEIR_RDMA_RING); }

void spans_of_one(weirt_rank *rank) { puts(rank, RDMA_SPANS, 1, scaled(16000) / 8 * 8, true, WEIR_RDMA_RING); }

void puts_of_one_that_counts(weirt_rank *rank) { puts(rank, RDMA_COUNTED, 1, scaled(8000), true, WEIR_RDMA_RING); }

// The same for many threads at once.
void puts_past_all_counters(weirt_rank *rank)
{
    puts(rank, RDMA_PUTS, pushers(), 40, false, WEIR_RDMA_RING, "counters:65500,16777200");
}

void groups(weirt_rank *rank) { puts(rank, RDMA_GROUPS, pushers(), scaled(800), false, WEIR_RDMA_RING); }

void groups_of_one(weirt_rank *rank) { puts(rank, RDMA_GROUPS, pushers(), scaled(800), true, WEIR_RDMA_RING); }

} // namespace

TEST_P(SwnicRdma, PutsOfManyThreads) { run(puts_of_many); }
TEST_P(SwnicRdma, PutsOfOneThreadPastAllCounters) { run(puts_of_one); }
TEST_P(SwnicRdma, PutsOfOneThreadThatCounts) { run(puts_of_one_that_counts); }
TEST_P(SwnicRdma, PutsOfManyThreadsPastAllCounters) { run(puts_past_all_counters); }
TEST_P(SwnicRdma, PutsThatDoNotRing) { run(puts_that_do_not_ring); }
TEST_P(SwnicRdma, SpansOfManyThreads) { run(spans_of_many); }
TEST_P(SwnicRdma, SpansOfOneThread) { run(spans_of_one); }
TEST_P(SwnicRdma, GroupsOnASharedQueue) { run(groups); }
TEST_P(SwnicRdma, GroupsOnTheirOwnQueue) { run(groups_of_one); }

// A signal is the count so far, and its data has arrived: rank 1 checks all of it each time. The check fails if a NIC
// lets the first signal overtake its data.
static void signals(weirt_rank *rank, bool exclusive, bool overtakes = false)
{
    const uint32_t rounds = overtakes ? 2 : scaled(400);
    constexpr uint64_t bytes = 65536;
    Options options;
    options.script = overtakes && rank->rank == 1 ? "flag-first:1,1,1000,3600000" : "";
    Nic nic(rank, options);
    if (!nic.open()) {
        return;
    }
    if (rank->rank == 0) {
        Poster poster(&nic);
        if (poster.open(RDMA_SIGNALS, rounds)) {
            poster.args.queue.exclusive = exclusive;
            poster.args.bytes = bytes;
            // Rank 1's answers arrive in this word.
            poster.args.answers = reinterpret_cast<const uint64_t *>(nic.memory.data() + token);
            WEIRT_EXPECT(rank, poster.run(1) == WEIR_OK);
            WEIRT_EXPECT(rank, poster.state.signals == rounds);
        }
    } else {
        const uint64_t *words = reinterpret_cast<const uint64_t *>(nic.memory.data());
        const uint64_t deadline = weirt_now_ms() + weirt_timeout_ms();
        uint64_t *answer = reinterpret_cast<uint64_t *>(nic.memory.data() + scratch);
        for (uint64_t i = 0; i < rounds && weirt_now_ms() < deadline;) {
            const uint64_t seen = __atomic_load_n(words + token / 8, __ATOMIC_ACQUIRE);
            if (seen != i + 1) {
                WEIRT_EXPECT(rank, seen == i);
                weirt_sleep_ms(0);
                continue;
            }
            uint64_t wrong = 0;
            for (uint64_t k = 0; k < bytes / 8; k++) {
                wrong += words[k] != rdma_value(k, i);
            }
            WEIRT_EXPECT(rank, overtakes && i == 0 ? wrong != 0 : wrong == 0);
            *answer = ++i;
            WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, scratch, token, 8) == 0);
            nic.done();
        }
    }
    nic.meet();
}

static void signals_of_a_shared_queue(weirt_rank *rank) { signals(rank, false); }

static void signals_of_an_own_queue(weirt_rank *rank) { signals(rank, true); }

static void signals_that_overtake(weirt_rank *rank) { signals(rank, false, true); }

TEST_P(SwnicRdma, SignalThatOvertakesItsDataIsNoticed) { run(signals_that_overtake); }
TEST_P(SwnicRdma, SignalsFollowTheirDataOnASharedQueue) { run(signals_of_a_shared_queue); }
TEST_P(SwnicRdma, SignalsFollowTheirDataOnAnOwnQueue) { run(signals_of_an_own_queue); }

// The old values sum up to 0 + 1 + ...: each add happened once and atomically.
static void adds(weirt_rank *rank)
{
    const uint64_t rounds = scaled(400);
    Nic nic(rank, Options());
    if (!nic.open()) {
        return;
    }
    const uint64_t count = rounds * pushers();
    if (rank->rank == 0) {
        Poster poster(&nic);
        if (poster.open(RDMA_ADDS, rounds)) {
            uint64_t sum = 0;
            WEIRT_EXPECT(rank, poster.run(pushers()) == WEIR_OK);
            for (uint32_t i = 0; i < pushers(); i++) {
                sum += poster.report.sum[i];
            }
            WEIRT_EXPECT(rank, sum == count * (count - 1) / 2);
        }
    }
    nic.meet();
    if (rank->rank == 1) {
        WEIRT_EXPECT(rank, reinterpret_cast<const uint64_t *>(nic.memory.data())[token / 8] == count);
    }
}

TEST_P(SwnicRdma, AddsHappenOnce) { run(adds); }

static void gets(weirt_rank *rank)
{
    const uint64_t rounds = scaled(400);
    Nic nic(rank, Options());
    if (rank->rank == 1) {
        for (uint64_t thread = 0; thread < pushers(); thread++) {
            for (uint64_t i = 0; i < rounds; i++) {
                reinterpret_cast<uint64_t *>(nic.memory.data())[thread * rounds + i] = rdma_value(thread, i);
            }
        }
    }
    if (!nic.open()) {
        return;
    }
    if (rank->rank == 0) {
        Poster poster(&nic);
        if (poster.open(RDMA_GETS, rounds)) {
            WEIRT_EXPECT(rank, poster.run(pushers()) == WEIR_OK);
        }
    }
    nic.meet();
}

TEST_P(SwnicRdma, GetsBringWhatIsThere) { run(gets); }

// The 100th request fails: earlier requests are done, later ones end with the NIC's reason.
static void fails(weirt_rank *rank, const char *script, uint64_t syndrome)
{
    Options options;
    options.script = rank->rank == 0 ? script : "";
    Nic nic(rank, options);
    if (!nic.open()) {
        return;
    }
    if (rank->rank == 0) {
        Poster poster(&nic);
        if (poster.open(RDMA_PUTS, 1000)) {
            WEIRT_EXPECT(rank, poster.run(1) == WEIR_ERR_REMOTE);
            WEIRT_EXPECT(rank, poster.state.failed == (WEIR_RDMA_FAILED | syndrome));
            WEIRT_EXPECT(rank, poster.state.completed == 99);
            WEIRT_EXPECT(rank, weir_dev_rdma_test(&poster.args.queue, 98) == WEIR_OK);
            WEIRT_EXPECT(rank, weir_dev_rdma_test(&poster.args.queue, 99) == WEIR_ERR_REMOTE);
            WEIRT_EXPECT(rank, weir_dev_rdma_wait(&poster.args.queue, 200) == WEIR_ERR_REMOTE);
            WEIRT_EXPECT(rank, poster.control.error_status == 0); // only the queue has the error
        }
    }
    nic.meet();
    if (rank->rank == 1) {
        const uint64_t *slots = reinterpret_cast<const uint64_t *>(nic.memory.data());
        for (uint64_t i = 0; i < 1000; i++) {
            WEIRT_EXPECT(rank, slots[i] == (i < 99 ? rdma_value(0, i) : 0));
        }
    }
}

static void refused(weirt_rank *rank) { fails(rank, "error:100,19", MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR); }

static void torn(weirt_rank *rank) { fails(rank, "torn:100", MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR); }

TEST_P(SwnicRdma, ErrorEndsTheQueue) { run(refused); }
TEST_P(SwnicRdma, TornEntryEndsTheQueue) { run(torn); }

// Kernels get a status in time for each fault. In all cases no byte is wrong, data of done requests has arrived, and
// the other direction over the same NICs goes on, unless a NIC fails.
struct Fault {
    const char *name, *script;
    uint32_t rank;   // rank with the faults
    uint8_t timeout; // of rank 0's queue pairs: 10 is 4 ms, 14 is 67 ms, 18 is 1.07 s
    weir_status status;
    uint32_t syndrome;
    bool goes_on;
};

static const Fault faults[] = {
    { "LostRequests", "lost-request:1,1000000,30", 0, 14, WEIR_OK, 0, true },
    { "LostAnswers", "lost-response:1,1000000,30", 1, 14, WEIR_OK, 0, true },
    { "NotReadyAtTimes", "not-ready:1,1000000,100", 1, 18, WEIR_OK, 0, true },
    { "SlowDoorbells", "slow-doorbell:500", 0, 18, WEIR_OK, 0, true },
    { "LateCompletions", "late-completion:1,1000000,300,1", 0, 18, WEIR_OK, 0, true },
    { "LinkFlaps", "link-down:0,5,1000000000,35;shape:1000", 1, 14, WEIR_OK, 0, true },
    { "NoAnswer", "lost-response:5,1000000000", 1, 10, WEIR_ERR_REMOTE, 0x15, true },
    { "NeverReady", "not-ready:100,1000000000", 1, 18, WEIR_ERR_REMOTE, 0x16, true },
    { "RemoteAccess", "remote-access:100", 1, 18, WEIR_ERR_REMOTE, 0x13, true },
    { "LinkDown", "link-down:0,3600000", 1, 10, WEIR_ERR_REMOTE, 0x15, false },
    { "LostDoorbells", "lost-doorbell:3,1000000000", 0, 18, WEIR_ERR_TIMEOUT, 0, true },
    { "DeviceFails", "device:0", 0, 18, WEIR_ERR_TIMEOUT, 0, false },
};

static void meets_fault(weirt_rank *rank)
{
    constexpr uint64_t rounds = 1000;
    Options options;
    options.pairs = 2;
    const Fault &fault = faults[static_cast<weirt::Meeting *>(const_cast<void *>(rank->arg))->number];
    options.timeout = rank->rank == 0 ? fault.timeout : 14;
    options.retries = options.timeout == 10 ? 2 : 7;
    Nic nic(rank, options);
    if (!nic.open()) {
        return;
    }
    if (rank->rank == fault.rank) {
        WEIRT_EXPECT(rank, swnic_inject(nic.context, fault.script) == 0);
    }
    nic.meet();
    if (rank->rank == 0) {
        Poster poster(&nic);
        if (poster.open(RDMA_PUTS, rounds)) {
            const uint64_t begun = weirt_now_ms();
            if (fault.status == WEIR_ERR_TIMEOUT) {
                weir_dev_control_begin(&poster.control, 150000000);
            }
            WEIRT_EXPECT(rank, poster.run(1) == fault.status);
            WEIRT_EXPECT(rank, fault.status != WEIR_ERR_TIMEOUT ||
                                   (weirt_now_ms() - begun >= 150 && weirt_now_ms() - begun < 150 + weirt_slack_ms()));
            WEIRT_EXPECT(rank, poster.state.failed == (fault.syndrome != 0 ? WEIR_RDMA_FAILED | fault.syndrome : 0));
            nic.meeting->number = poster.state.completed;
        }
    }
    nic.meet();
    if (rank->rank == 1) {
        const uint64_t *slots = reinterpret_cast<const uint64_t *>(nic.memory.data());
        const uint64_t done = fault.status == WEIR_OK ? rounds : nic.meeting->number;
        for (uint64_t i = 0; i < rounds; i++) {
            WEIRT_EXPECT(rank, slots[i] == rdma_value(0, i) || (i >= done && slots[i] == 0));
        }
        if (fault.goes_on) {
            WEIRT_EXPECT(rank, nic.post(IBV_WR_RDMA_WRITE, 0, token, 8, IBV_SEND_SIGNALED, 0, 1) == 0);
            nic.done();
        }
    }
    nic.meet();
}

class SwnicRdmaFault : public ::testing::TestWithParam<size_t> {};

TEST_P(SwnicRdmaFault, EndsInAStatus)
{
    weirt::Meeting meeting = {};
    meeting.number = GetParam();
    weirt_ranks_run_shared(&weirt_stages[0], 2, meets_fault, &meeting, sizeof meeting);
}

INSTANTIATE_TEST_SUITE_P(Faults, SwnicRdmaFault, ::testing::Range(size_t{ 0 }, sizeof faults / sizeof faults[0]),
                         [](const ::testing::TestParamInfo<size_t> &info) {
                             return std::string(faults[info.param].name);
                         });

// A NIC that has stopped: waits for room end by the deadline, and their requests are not in the queue.
static void silent(weirt_rank *rank, bool exclusive)
{
    Nic nic(rank, Options());
    if (!nic.open()) {
        return;
    }
    if (rank->rank == 0) {
        Poster poster(&nic);
        WEIRT_EXPECT(rank, swnic_inject(nic.context, "slow-doorbell:60000000") == 0);
        if (poster.open(RDMA_PUTS, 1000)) {
            const uint32_t count = poster.args.queue.count;
            poster.args.queue.exclusive = exclusive;
            weir_dev_control_begin(&poster.control, 150000000);
            const uint64_t begun = weirt_now_ms();
            WEIRT_EXPECT(rank, poster.run(exclusive ? 1 : pushers()) == WEIR_ERR_TIMEOUT);
            WEIRT_EXPECT(rank, weirt_now_ms() - begun >= 150 && weirt_now_ms() - begun < 150 + weirt_slack_ms());
            WEIRT_EXPECT(rank, poster.state.ready <= count);
            WEIRT_EXPECT(rank, !exclusive || poster.state.reserved == count);
            weir_dev_rdma_span span;
            WEIRT_EXPECT(rank, weir_dev_rdma_reserve(&poster.args.queue, count / 4 * 3 + 1, &span) == WEIR_ERR_LIMIT);
        }
    }
    nic.meet();
}

static void silent_to_many(weirt_rank *rank) { silent(rank, false); }

static void silent_to_one(weirt_rank *rank) { silent(rank, true); }

TEST_P(SwnicRdma, WaitForRoomEndsByTheDeadline) { run(silent_to_many); }
TEST_P(SwnicRdma, WaitForRoomOnAnOwnQueueEndsByTheDeadline) { run(silent_to_one); }

// A fenced put sends the data of the get before it.
static void fences(weirt_rank *rank)
{
    constexpr uint64_t bytes = 20000, rounds = 20;
    Nic nic(rank, Options());
    if (!nic.open()) {
        return;
    }
    fill(nic.memory.data() + 500000, rounds * bytes, rank->rank);
    nic.meet();
    if (rank->rank == 0) {
        Poster poster(&nic);
        if (poster.open(RDMA_PUTS, 1)) {
            const weir_dev_rdma *queue = &poster.args.queue;
            for (uint64_t at = 0; at < rounds * bytes; at += bytes) {
                const weir_dev_rdma_memory local = weir_dev_rdma_at(poster.args.local, at);
                const weir_dev_rdma_memory remote = weir_dev_rdma_at(poster.args.remote, at);
                const uint32_t flags = WEIR_RDMA_FENCE | WEIR_RDMA_RING | WEIR_RDMA_SIGNALLED;
                uint64_t ticket = 0;
                WEIRT_EXPECT(rank, weir_dev_rdma_get(queue, weir_dev_rdma_at(remote, 500000), local, bytes, 0,
                                                     nullptr) == WEIR_OK);
                WEIRT_EXPECT(rank, weir_dev_rdma_put(queue, remote, local, bytes, flags, &ticket) == WEIR_OK);
                WEIRT_EXPECT(rank, weir_dev_rdma_wait(queue, ticket) == WEIR_OK);
            }
        }
    }
    nic.meet();
    if (rank->rank == 1) {
        WEIRT_EXPECT(rank, wrong(nic.memory.data(), rounds * bytes, 1) == 0);
    }
}

TEST_P(SwnicRdma, FenceWaitsForGets) { run(fences); }

// Three quarters of the queue at a time, without requested completions: room is freed again.
static void large_spans(weirt_rank *rank, Nic &nic)
{
    if (rank->rank == 0) {
        Poster poster(&nic);
        if (poster.open(RDMA_PUTS, 1)) {
            const weir_dev_rdma *queue = &poster.args.queue;
            const weir_dev_rdma_entry nothing = { {}, 1, WEIR_MLX5_NOP, 0 };
            for (uint32_t i = 0; i < 50; i++) {
                weir_dev_rdma_span span;
                WEIRT_EXPECT(rank, weir_dev_rdma_post(queue, &nothing, 0, nullptr) == WEIR_OK);
                WEIRT_EXPECT(rank, weir_dev_rdma_reserve(queue, queue->count / 4 * 3, &span) == WEIR_OK);
                for (uint32_t k = 0; k < span.count; k++) {
                    weir_dev_rdma_write(queue, &span, k, &nothing, 0);
                }
                WEIRT_EXPECT(rank, weir_dev_rdma_finish(queue, &span, 0, nullptr) == WEIR_OK);
            }
            WEIRT_EXPECT(rank, poster.run(1) == WEIR_OK);
        }
    }
    nic.meet();
}

TEST_P(SwnicRdma, LargeSpansGetRoom) { run(opened<large_spans>); }
