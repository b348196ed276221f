// Port channels under load: every alignment, millions of requests, thousands of memories, channels and threads, and
// more bytes than 32 bits count.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "port.h"

namespace {

PORT_DATA_SUITE(PortMany, PORT_IPC, PORT_IB, PORT_OFI, PORT_DEVICE);
PORT_SUITE(LongPortMany, PORT_IPC, PORT_IB, PORT_OFI, PORT_DEVICE);

bool is_gpu(const weirt_rank *rank) { return std::strcmp(rank->stage->kind, "gpu") == 0; }

bool is_sanitized(const char *name) { return std::strcmp(weirt_sanitizer(), name) == 0; }

// ---- alignments ------------------------------------------------------------------------------------------------

constexpr uint64_t SLOT = 128; // bytes of a transfer with room around it
constexpr uint32_t ALIGNMENTS = 17;
constexpr uint64_t SLOTS_BYTES = SLOT * ALIGNMENTS * ALIGNMENTS;

// Moves from offsets 0 to 16 at one end to offsets 0 to 16 at the other, all at once. Returns whether only these bytes
// have changed.
bool align(weirt_rank *rank, port_bench *b, uint64_t bytes, bool get)
{
    std::vector<char> data(SLOTS_BYTES);
    for (uint64_t i = 0; i < SLOTS_BYTES; i++) {
        data[i] = weirt_pattern(rank->rank, bytes, i);
    }
    const std::vector<char> empty(SLOTS_BYTES, 0x5a);
    if (!b->write(rank, 0, data.data(), SLOTS_BYTES) || !b->write(rank, b->half, empty.data(), SLOTS_BYTES) ||
        !weirt_barrier(rank)) {
        return false;
    }
    bool right = true;
    for (uint64_t i = 0; i < ALIGNMENTS * ALIGNMENTS && right; i++) {
        const uint64_t from = SLOT * i + i / ALIGNMENTS;
        const uint64_t to = b->half + SLOT * i + i % ALIGNMENTS;
        right = WEIRT_OK(rank, get ? weir_port_channel_get(b->channel, from, to, bytes, nullptr)
                                   : weir_port_channel_put(b->channel, to, from, bytes, nullptr));
    }
    right = right && WEIRT_OK(rank, weir_port_channel_flush(b->channel)) && weirt_barrier(rank) &&
            b->read(rank, b->half, data.data(), SLOTS_BYTES);
    for (uint64_t i = 0; i < SLOTS_BYTES && right; i++) {
        const uint64_t slot = i / SLOT;
        const uint64_t at = i % SLOT - slot % ALIGNMENTS; // wraps around before the transfer's first byte
        const char expected =
            at < bytes ? weirt_pattern(b->peer, bytes, SLOT * slot + slot / ALIGNMENTS + at) : static_cast<char>(0x5a);
        right = WEIRT_EXPECT(rank, data[i] == expected);
    }
    return weirt_barrier(rank) && right;
}

void alignments(weirt_rank *rank)
{
    port_bench b;
    bool open = b.open(rank, 0, SLOTS_BYTES);
    for (uint64_t bytes : { 0, 1, 7, 17, 33, 65 }) {
        open = open && align(rank, &b, bytes, false) && align(rank, &b, bytes, true);
    }
    b.close(rank, true);
}

TEST_P(PortMany, AllAlignments) { run(alignments, plan()); }

// ---- requests --------------------------------------------------------------------------------------------------

// Puts without waits, each of another word, and finally a signal: then all have arrived.
void unflushed(weirt_rank *rank)
{
    const uint64_t puts = port_bench::plan_of(rank)->op;
    port_bench b;
    std::vector<uint64_t> words(puts);
    for (uint64_t i = 0; i < puts; i++) {
        words[i] = port_word(rank->rank, i);
    }
    if (b.open(rank, 0, 8 * puts) && b.write(rank, 0, words.data(), 8 * puts) && weirt_barrier(rank)) {
        if (rank->rank == 0 &&
            b.call(rank, b.device, { { SCRIPT_PUT, 0, b.half, 0, 8, puts }, { SCRIPT_SIGNAL, 0, 0, 0, 0, 0 } })) {
            b.ended(rank, { WEIR_OK, WEIR_OK });
        }
        weirt_barrier(rank);
        if (rank->rank == 1 &&
            b.call(rank, b.device, { { SCRIPT_WAIT, 0, 0, 0, 0, 0 }, { SCRIPT_POLL, 0, 0, 0, 0, 0 } }) &&
            b.ended(rank, { WEIR_OK, WEIR_PENDING }) && b.read(rank, b.half, words.data(), 8 * puts)) {
            for (uint64_t i = 0; i < puts && WEIRT_EXPECT(rank, words[i] == port_word(0, i)); i++) {
            }
        }
        WEIRT_OK(rank, weir_port_channel_status(b.channel));
    }
    b.close(rank, true);
}

TEST_P(PortMany, PutsThatNobodyFlushes)
{
    port_case what = plan();
    what.direct_bytes = WEIR_PORT_DIRECT_NEVER;
    what.op = what.transport != PORT_IPC || weirt_sanitizer()[0] != '\0' ? 20000 : 200000;
    run(unflushed, what);
}

TEST_P(LongPortMany, MillionsOfPutsThatNobodyFlushes)
{
    port_case what = plan();
    what.direct_bytes = WEIR_PORT_DIRECT_NEVER;
    what.op = what.transport != PORT_IPC ? 200000 : gpu() ? 2000000 : 4000000;
    run(unflushed, what);
}

// More requests behind a large transfer than a queue has room for: each arrives once, after the transfer.
void behind(weirt_rank *rank)
{
    constexpr uint64_t large = (8 << 20) + 3;
    constexpr uint64_t half = large + 5 + 4096;
    constexpr uint32_t count = 200;
    port_bench b;
    weir_semaphore *semaphore = nullptr;
    weir_port_channel *channel = nullptr;
    std::vector<char> data(half);
    weirt_data_fill(data.data(), half, rank->rank, 2);
    if (b.open(rank, 0, half) && b.add(rank, 9, WEIR_SEMAPHORE_HOST, &semaphore, &channel) &&
        b.write(rank, 0, data.data(), half) && weirt_barrier(rank)) {
        bool good = WEIRT_OK(rank, weir_port_channel_put(channel, half, 0, large, nullptr));
        for (uint32_t i = 0; i < count && good; i++) {
            const uint64_t at = large + 5 + 8 * i;
            good = WEIRT_OK(rank, weir_port_channel_put_signal(channel, half + at, at, 8, nullptr));
        }
        for (uint32_t i = 0; i < count && good; i++) {
            char word[8];
            good = WEIRT_OK(rank, weir_semaphore_wait(semaphore, weirt_timeout_ms())) &&
                   b.read(rank, half + large + 5 + 8 * i, word, sizeof word);
            for (uint64_t k = 0; k < sizeof word && good; k++) {
                good = WEIRT_EXPECT(rank, word[k] == weirt_pattern(b.peer, 2, large + 5 + 8 * i + k));
            }
        }
        WEIRT_STATUS(rank, WEIR_PENDING, weir_semaphore_poll(semaphore));
        if (good && b.read(rank, half, data.data(), large)) {
            WEIRT_EXPECT(rank, weirt_data_wrong(data.data(), large, b.peer, 2) == large);
        }
        WEIRT_OK(rank, weir_port_channel_flush(channel));
        WEIRT_STATUS(rank, WEIR_PENDING, weir_semaphore_poll(semaphore));
    }
    weirt_barrier(rank);
    weir_port_channel_destroy(channel);
    weir_semaphore_destroy(semaphore);
    b.close(rank, true);
}

TEST_P(PortMany, RequestsBehindALargeTransfer)
{
    port_case what = plan();
    what.credits = 256;
    run(behind, what);
}

// A signal that the thread could store itself does not overtake queued requests, and a flush covers all bytes.
void flushed(weirt_rank *rank)
{
    constexpr uint64_t half = (5 << 20) + 1;
    port_bench b;
    std::vector<char> data(half);
    weirt_data_fill(data.data(), half, rank->rank, 3);
    if (b.open(rank, 0, half) && b.write(rank, 0, data.data(), half) && weirt_barrier(rank)) {
        if (b.call(rank, b.device,
                   { { SCRIPT_PUT, 0, half, 0, half, 0 },
                     { SCRIPT_SIGNAL, 0, 0, 0, 0, 0 },
                     { SCRIPT_WAIT, 0, 0, 0, 0, 0 },
                     { SCRIPT_POLL, 0, 0, 0, 0, 0 } })) {
            b.ended(rank, { WEIR_OK, WEIR_OK, WEIR_OK, WEIR_PENDING });
        }
        if (b.read(rank, half, data.data(), half)) {
            WEIRT_EXPECT(rank, weirt_data_wrong(data.data(), half, b.peer, 3) == half);
        }
        weirt_barrier(rank);
        if (b.call(rank, b.device,
                   { { SCRIPT_PUT, 0, half, 0, half, 0 },
                     { SCRIPT_FLUSH, 0, 0, 0, 0, 0 },
                     { SCRIPT_TEST_TICKET, 0, 0, 0, 0, 0 },
                     { SCRIPT_PUT_SIGNAL_FLUSH, 0, half, 0, half, 0 },
                     { SCRIPT_WAIT_TICKET, 3, 0, 0, 0, 0 },
                     { SCRIPT_WAIT, 0, 0, 0, 0, 0 },
                     { SCRIPT_POLL, 0, 0, 0, 0, 0 } })) {
            b.ended(rank, { WEIR_OK, WEIR_OK, WEIR_OK, WEIR_OK, WEIR_OK, WEIR_OK, WEIR_PENDING });
        }
        // A get's last bytes have arrived when its ticket is done.
        uint64_t ticket = 0;
        char last[8] = {};
        weirt_barrier(rank);
        if (b.write(rank, 2 * half - sizeof last, last, sizeof last) &&
            WEIRT_OK(rank, weir_port_channel_get(b.channel, 0, half, half, &ticket)) &&
            WEIRT_OK(rank, weir_port_channel_wait(b.channel, ticket, weirt_timeout_ms())) &&
            b.read(rank, 2 * half - sizeof last, last, sizeof last)) {
            for (uint64_t i = 0; i < sizeof last; i++) {
                WEIRT_EXPECT(rank, last[i] == weirt_pattern(b.peer, 3, half - sizeof last + i));
            }
        }
    }
    b.close(rank, true);
}

TEST_P(PortMany, SignalsAndFlushesStandForAllBytes) { run(flushed, plan()); }

// ---- threads ---------------------------------------------------------------------------------------------------

// Many threads push at the same time: nothing is lost, and each signal is counted once.
void flood(weirt_rank *rank)
{
    const port_case *what = port_bench::plan_of(rank);
    const weir_shape shape = { is_gpu(rank) ? 80u : 1u, what->op };
    const uint32_t threads = shape.blocks * shape.threads;
    const uint64_t pushes = threads > 1000 ? 4 : 20;
    const uint64_t words = threads * pushes;
    port_bench b;
    std::vector<uint64_t> data(words);
    bool open = b.open(rank, 0, 8 * words);
    for (uint64_t i = 0; i < words; i++) {
        data[i] = port_word(rank->rank, i);
    }
    if (open && b.write(rank, 0, data.data(), 8 * words) && weirt_barrier(rank) && rank->rank == 0) {
        port_flood_args args = {};
        args.channel = b.device;
        weir_grid_barrier_device(b.barrier, &args.barrier);
        args.report = b.device_report();
        args.pushes = pushes;
        args.signals = 1;
        b.launch(rank, port_flood_kernel(), shape, &args, true);
        b.finish(rank);
        for (uint32_t i = 0; i < threads; i++) {
            WEIRT_EXPECT(rank, b.report->status[i] == WEIR_OK);
        }
    }
    weirt_barrier(rank); // no waiting thread spins beside the pushing ones
    if (open && rank->rank == 1) {
        port_wait_args args = {};
        args.channel = b.device;
        args.report = b.device_report();
        args.waits = words;
        b.launch(rank, port_wait_kernel(), weir_shape{ 1, 1 }, &args, false);
        b.finish(rank);
        WEIRT_EXPECT(rank, b.report->status[0] == WEIR_OK && b.report->status[1] == WEIR_PENDING);
        WEIRT_EXPECT(rank, b.report->value == words);
        b.read(rank, 0, data.data(), 8 * words);
        for (uint64_t i = 0; i < words && WEIRT_EXPECT(rank, data[i] == port_word(0, i)); i++) {
        }
    }
    b.close(rank, true);
}

TEST_P(PortMany, ManyThreadsPushAndSignal)
{
    port_case what = plan();
    what.op = gpu() ? 128 : is_sanitized("thread") ? 12 : 64; // 10,240 threads of a GPU
    run(flood, what);
    what.direct_bytes = WEIR_PORT_DIRECT_NEVER;
    run(flood, what);
}

TEST_P(LongPortMany, ManyThreadsPushAndSignal)
{
    if (gpu()) {
        GTEST_SKIP() << "more threads of a GPU are in PortMany";
    }
    port_case what = plan();
    what.op = 256;
    setenv("WEIR_CPU_THREADS", "256", 1);
    run(flood, what);
    what.direct_bytes = WEIR_PORT_DIRECT_NEVER;
    run(flood, what);
    unsetenv("WEIR_CPU_THREADS");
}

// ---- memories and channels -------------------------------------------------------------------------------------

// Each memory and each mapping of it by a peer may need a descriptor.
bool allow_descriptors(rlim_t count)
{
    rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return false;
    }
    if (limit.rlim_cur < count) {
        limit.rlim_cur = count < limit.rlim_max ? count : limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    return limit.rlim_cur >= count;
}

struct many {
    std::vector<weir_memory *> mine;
    std::vector<weir_memory *> theirs;
    std::vector<uint32_t> src;
    std::vector<uint32_t> dst;
};

// A put from each part of the first half to the next part at the peer, by their ids.
bool put_parts(weirt_rank *rank, port_bench *b, const many &all)
{
    const size_t count = all.mine.size();
    bool good = true;
    for (size_t i = 0; i < count && good; i++) {
        weir_request request = port_request(WEIR_REQUEST_PUT, 8, 0, 8);
        request.local = all.src[i];
        request.remote = all.dst[(i + 1) % count];
        good = WEIRT_OK(rank, weir_port_channel_post(b->channel, &request, weirt_timeout_ms(), nullptr));
    }
    return good && WEIRT_OK(rank, weir_port_channel_flush(b->channel));
}

// Requests between many memories of 16 bytes each, parts of one allocation for sending and one for receiving.
void many_memories(weirt_rank *rank)
{
    const uint32_t count = port_bench::plan_of(rank)->op;
    port_bench b;
    many all;
    std::vector<uint64_t> words(2 * count);
    for (uint32_t i = 0; i < count; i++) {
        words[2 * i] = port_word(rank->rank, i);
    }
    bool open = b.open(rank, 0, 8 * count) && b.write(rank, 0, words.data(), 16 * count);
    for (uint32_t i = 0; i < count && open; i++) {
        weir_memory *mine = nullptr;
        weir_memory *theirs = nullptr;
        uint32_t src = 0;
        uint32_t dst = 0;
        char *start = static_cast<char *>(weir_memory_pointer(b.local)) + 16 * i;
        open = WEIRT_OK(rank, weir_memory_register(b.comm.comm, start, 16, nullptr, &mine)) &&
               b.exchange(rank, mine, 7, &theirs) && WEIRT_OK(rank, weir_port_channel_attach(b.channel, mine, &src)) &&
               WEIRT_OK(rank, weir_port_channel_attach(b.channel, theirs, &dst)) &&
               WEIRT_EXPECT(rank, src == 2 + 2 * i && dst == 3 + 2 * i);
        all.mine.push_back(mine);
        all.theirs.push_back(theirs);
        all.src.push_back(src);
        all.dst.push_back(dst);
    }
    open = open && put_parts(rank, &b, all);
    weirt_barrier(rank);
    open = open && b.read(rank, 0, words.data(), 16 * count);
    for (uint32_t i = 0; i < count && open; i++) {
        open = WEIRT_EXPECT(rank, words[2 * ((i + 1) % count) + 1] == port_word(b.peer, i));
    }
    weirt_barrier(rank);
    weir_port_channel_destroy(b.channel);
    b.channel = nullptr;
    for (weir_memory *memory : all.theirs) {
        weir_memory_destroy(memory);
    }
    weirt_barrier(rank);
    for (weir_memory *memory : all.mine) {
        weir_memory_destroy(memory);
    }
    b.close(rank, true);
}

TEST_P(PortMany, TwoThousandMemories)
{
    port_case what = plan();
    what.op = what.transport == PORT_IPC ? 2000 : 64;
    if (!allow_descriptors(3 * what.op + 200)) {
        GTEST_SKIP() << "a process may have too few open files here (RLIMIT_NOFILE)";
    }
    run(many_memories, what);
}

// Many channels on one proxy, each with its semaphore; each signals once.
void many_channels(weirt_rank *rank)
{
    const uint32_t count = port_bench::plan_of(rank)->op;
    port_bench b;
    std::vector<weir_semaphore *> semaphores(count);
    std::vector<weir_port_channel *> channels(count);
    bool open = b.open(rank, 0, 4096);
    for (uint32_t i = 0; i < count && open; i++) {
        open = b.add(rank, 30, WEIR_SEMAPHORE_HOST, &semaphores[i], &channels[i]);
    }
    for (uint32_t i = 0; i < count && open; i++) {
        open =
            WEIRT_OK(rank, weir_port_channel_put_signal(channels[i], 4096 + 8 * (i % 512), 8 * (i % 512), 8, nullptr));
    }
    for (uint32_t i = 0; i < count && open; i++) {
        open = WEIRT_OK(rank, weir_port_channel_flush(channels[i])) &&
               WEIRT_OK(rank, weir_semaphore_wait(semaphores[i], weirt_timeout_ms())) &&
               WEIRT_STATUS(rank, WEIR_PENDING, weir_semaphore_poll(semaphores[i]));
    }
    weirt_barrier(rank);
    for (uint32_t i = 0; i < count; i++) {
        weir_port_channel_destroy(channels[i]);
        weir_semaphore_destroy(semaphores[i]);
    }
    b.close(rank, true);
}

TEST_P(PortMany, TwoThousandChannelsOnOneProxy)
{
    port_case what = plan();
    what.op = what.transport != PORT_IPC     ? 8
              : weirt_sanitizer()[0] != '\0' ? 500
                                             : 2000; // queues of other transports
                                                     // cost more
    run(many_channels, what);
}

// More connections over one transport than a communicator may open transports, each with its channel.
void connections(weirt_rank *rank)
{
    constexpr uint32_t count = 6;
    port_bench b;
    weir_connection *made[count] = {};
    weir_semaphore *semaphores[count] = {};
    weir_port_channel *channels[count] = {};
    bool open = b.open(rank, 0, 4096);
    for (uint32_t i = 0; i < count && open; i++) {
        open = b.connect(rank, 50 + i, &made[i]) &&
               weirt_semaphore(rank, made[i], 2, WEIR_SEMAPHORE_HOST, &semaphores[i]) &&
               WEIRT_OK(rank,
                        weir_port_channel_create(b.proxy, semaphores[i], b.remote, b.local, nullptr, &channels[i])) &&
               WEIRT_OK(rank, weir_port_channel_put_signal(channels[i], 4096, 0, 64, nullptr)) &&
               WEIRT_OK(rank, weir_semaphore_wait(semaphores[i], weirt_timeout_ms()));
    }
    weirt_barrier(rank);
    for (uint32_t i = 0; i < count; i++) {
        weir_port_channel_destroy(channels[i]);
        weir_semaphore_destroy(semaphores[i]);
        weir_connection_destroy(made[i]);
    }
    b.close(rank, true);
}

TEST_P(PortMany, ConnectionsShareADomain)
{
    run_unless(plan().transport != PORT_IPC, "the same as over ipc, which makes connections quickly", connections);
}

// ---- far and large ---------------------------------------------------------------------------------------------

// Offsets beyond 32 bits, in memory whose unused pages cost nothing.
void far_offsets(weirt_rank *rank)
{
    weirt_log_allow(" failed: ");
    constexpr uint64_t far = (uint64_t{ 4 } << 30) + 5;
    port_bench b;
    weir_memory *mine = nullptr;
    weir_memory *theirs = nullptr;
    uint32_t src = 0;
    uint32_t dst = 0;
    char word[16];
    char got[16];
    if (b.open(rank, 0, 4096) && WEIRT_OK(rank, weir_memory_allocate(b.comm.comm, far + 4096, &b.data, &mine)) &&
        b.exchange(rank, mine, 8, &theirs) && WEIRT_OK(rank, weir_port_channel_attach(b.channel, mine, &src)) &&
        WEIRT_OK(rank, weir_port_channel_attach(b.channel, theirs, &dst))) {
        for (uint64_t i = 0; i < sizeof word; i++) {
            word[i] = weirt_pattern(rank->rank, 9, i);
        }
        weir_request request = port_request(WEIR_REQUEST_PUT, far + 100, far, sizeof word);
        request.local = src;
        request.remote = dst;
        char *base = static_cast<char *>(weir_memory_pointer(mine));
        WEIRT_OK(rank, weir_device_copy(b.comm.device, base + far, word, sizeof word));
        WEIRT_OK(rank, weir_port_channel_post(b.channel, &request, 0, nullptr));
        WEIRT_OK(rank, weir_port_channel_flush(b.channel));
        weirt_barrier(rank);
        WEIRT_OK(rank, weir_device_copy(b.comm.device, got, base + far + 100, sizeof got));
        for (uint64_t i = 0; i < sizeof got; i++) {
            WEIRT_EXPECT(rank, got[i] == weirt_pattern(b.peer, 9, i));
        }
        request.remote_offset = far + 4096 - 15;
        uint64_t ticket = 0;
        WEIRT_OK(rank, weir_port_channel_post(b.channel, &request, 0, &ticket));
        WEIRT_STATUS(rank, WEIR_ERR_RANGE, weir_port_channel_wait(b.channel, ticket, weirt_timeout_ms()));
    }
    weirt_barrier(rank);
    weir_port_channel_destroy(b.channel);
    b.channel = nullptr;
    weir_memory_destroy(theirs);
    weirt_barrier(rank);
    weir_memory_destroy(mine);
    b.close(rank, true);
}

TEST_P(PortMany, OffsetsBeyondFourGigabytes)
{
    run_unless(plan().transport == PORT_IB || plan().transport == PORT_DEVICE, "ib pins what it registers",
               far_offsets);
}

constexpr uint64_t WINDOW = 4 << 20;
constexpr uint64_t WINDOWS = 1026; // more than 4 GiB

// WINDOWS windows of addresses over little memory: the first, the last, and one for all between.
class wide {
public:
    bool open(weirt_rank *rank)
    {
        const int fd = memfd_create("weir-test", MFD_CLOEXEC);
        void *base = fd >= 0 && ftruncate(fd, 3 * WINDOW) == 0
                         ? mmap(nullptr, bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                         : MAP_FAILED;
        bool good = WEIRT_EXPECT(rank, base != MAP_FAILED);
        if (good) {
            base_ = static_cast<char *>(base);
        }
        for (uint64_t i = 0; i < WINDOWS && good; i++) {
            const uint64_t part = i == 0 ? 0 : i + 1 < WINDOWS ? 1 : 2;
            good = WEIRT_EXPECT(rank, mmap(base_ + i * WINDOW, WINDOW, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                                           fd, static_cast<off_t>(part * WINDOW)) != MAP_FAILED);
        }
        if (fd >= 0) {
            ::close(fd);
        }
        return good;
    }
    void close()
    {
        if (base_ != nullptr) {
            munmap(base_, bytes());
        }
    }
    char *base() const { return base_; }
    static uint64_t bytes() { return WINDOWS * WINDOW; }

private:
    char *base_ = nullptr;
};

// Checked places of a large memory: its ends, its middle, and around 4 GiB.
constexpr uint64_t marks[] = { 0,
                               WINDOW + 77,
                               WINDOWS / 2 * WINDOW,
                               (uint64_t{ 1 } << 32) - 64,
                               (uint64_t{ 1 } << 32) + 8192,
                               (WINDOWS - 1) * WINDOW,
                               WINDOW *WINDOWS - 64 };

uint64_t mark_of(uint64_t place)
{
    // Windows between the first and the last are the same memory.
    const uint64_t window = place / WINDOW;
    return port_word(window == 0 ? 0 : window + 1 < WINDOWS ? 1 : 2, place % WINDOW);
}

// One put of more than 4 GiB. plan.op: the peer's memory is made of windows too, which a process cannot share.
void large(weirt_rank *rank)
{
    const bool windows = port_bench::plan_of(rank)->op != 0;
    const bool plain = is_gpu(rank) || (rank->rank == 1 && !windows);
    const uint32_t timeout_ms = 2 * weirt_timeout_ms();
    port_bench b;
    wide space;
    weir_memory *mine = nullptr;
    weir_memory *theirs = nullptr;
    weir_port_channel *channel = nullptr;
    weir_semaphore *semaphore = nullptr;
    bool open = b.open(rank, 0, 4096) && weirt_semaphore(rank, b.connection, 9, WEIR_SEMAPHORE_HOST, &semaphore) &&
                (plain || space.open(rank)) &&
                WEIRT_OK(rank, plain ? weir_memory_allocate(b.comm.comm, wide::bytes(), &b.data, &mine)
                                     : weir_memory_register(b.comm.comm, space.base(), wide::bytes(), nullptr, &mine));
    open = weirt_barrier(rank) && open;
    char *base = open ? static_cast<char *>(weir_memory_pointer(mine)) : nullptr;
    if (open && rank->rank == 1) {
        open = WEIRT_OK(rank, weir_memory_send(b.comm.comm, mine, 0, 8));
    } else if (open) {
        open = weirt_receive(rank, b.comm.comm, 1, 8, &theirs);
    }
    for (uint64_t place : marks) {
        const uint64_t word = mark_of(place);
        open = open &&
               (rank->rank == 1 || WEIRT_OK(rank, weir_device_copy(b.comm.device, base + place, &word, sizeof word)));
    }
    open = open && WEIRT_OK(rank, weir_port_channel_create(b.proxy, semaphore, theirs, rank->rank == 0 ? mine : nullptr,
                                                           nullptr, &channel));
    if (open && rank->rank == 0) {
        uint64_t ticket = 0;
        WEIRT_OK(rank, weir_port_channel_put_signal(channel, 0, 0, wide::bytes(), &ticket));
        WEIRT_OK(rank, weir_port_channel_wait(channel, ticket, timeout_ms));
    } else if (open && WEIRT_OK(rank, weir_semaphore_wait(semaphore, timeout_ms))) {
        for (uint64_t place : marks) {
            uint64_t word = 0;
            WEIRT_OK(rank, weir_device_copy(b.comm.device, &word, base + place, sizeof word));
            WEIRT_EXPECT(rank, word == mark_of(place));
        }
    }
    weirt_barrier(rank);
    weir_port_channel_destroy(channel);
    weir_semaphore_destroy(semaphore);
    weir_memory_destroy(theirs);
    weirt_barrier(rank);
    weir_memory_destroy(mine);
    space.close();
    b.close(rank, true);
}

TEST_P(PortMany, TransferOfMoreThanFourGigabytes)
{
    port_case what = plan();
    if (what.transport != PORT_IPC || (stage()->processes && !gpu()) || weirt_sanitizer()[0] != '\0') {
        GTEST_SKIP() << "takes 4 GiB of memory, or long: in tools/check --long, without sanitizers";
    }
    what.op = 1;
    run(large, what);
}

TEST_P(LongPortMany, TransferOfMoreThanFourGigabytes)
{
    port_case what = plan();
    if (what.transport == PORT_IB || what.transport == PORT_DEVICE || weirt_sanitizer()[0] != '\0') {
        GTEST_SKIP() << "ib pins what it registers, sanitizers take a multiple";
    }
    const uint64_t free_bytes =
        static_cast<uint64_t>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    if (free_bytes < uint64_t{ 6 } << 30) {
        GTEST_SKIP() << "needs 6 GiB of free memory";
    }
    run(large, what);
}

} // namespace
