// Windows on the host: what create and register make, and the errors that all devices get when one of them goes wrong.
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "test/harness/counts.h"
#include "test/harness/stage_test.h"
#include "test/harness/window_bench.h"

namespace {

WEIRT_STAGE_SUITE(WindowCreate);

weir_window_opts opts_of(uint32_t ranks, uint32_t notifications)
{
    weir_window_opts opts = {};
    opts.size = sizeof opts;
    opts.ranks = ranks;
    opts.notifications = notifications;
    return opts;
}

std::string name_of(uint32_t rank) { return "rank " + std::to_string(rank); }

void describes_itself(weirt_rank *rank)
{
    weirt_comm c;
    weir_window *window = nullptr;
    const weir_window_opts opts = opts_of(3, 5);
    const uint32_t me = rank->rank;
    if (weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_window_create(c.comm, &opts, &window))) {
        WEIRT_EXPECT(rank, weir_window_ranks(window) == 3 * rank->size);
        WEIRT_EXPECT(rank, weir_window_first(window) == 3 * me);
        weir_dev_window handle;
        weir_window_device(window, &handle);
        WEIRT_EXPECT(rank, handle.ranks == 3 && handle.devices == rank->size && handle.device == me);
        WEIRT_EXPECT(rank, handle.count == 16 && handle.memories == 0);
        // Rings of 16 words for each rank and device, and the tables.
        const uint64_t rings = 3ull * rank->size * 16 * 8;
        const uint64_t tables =
            WEIR_WINDOW_MEMORIES * (sizeof(weir_dev_window_memory) + rank->size * sizeof(weir_dev_window_place));
        WEIRT_EXPECT(rank, weir_window_bytes(window) > rings + tables);
        WEIRT_EXPECT(rank, weir_window_bytes(window) < rings + tables + 8192);
        for (uint32_t k = 0; k < rank->size; k++) {
            weir_window_info info;
            if (WEIRT_OK(rank, weir_window_get_info(window, k, &info))) {
                WEIRT_EXPECT(rank, std::string(info.way) == (k == me ? "own" : "mapped"));
                WEIRT_EXPECT(rank, std::string(info.transport) == (k == me ? "" : "ipc"));
                WEIRT_EXPECT(rank, std::string(info.engine).empty() && std::string(info.reason).empty());
            }
        }
        weir_window_info info = {};
        info.way = "as before";
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_window_get_info(window, rank->size, &info));
        WEIRT_EXPECT(rank, info.way != nullptr && std::string(info.way) == "as before");
        WEIRT_TEXT(rank, (name_of(rank->size) + " is no device of the window").c_str());
    }
    (void)weirt_barrier(rank);
    weir_window_destroy(window);
    weirt_comm_close(&c);
}

TEST_P(WindowCreate, DescribesItself) { weirt_ranks_run(stage(), 2, describes_itself, nullptr, 0); }

// Without opts all devices belong to the window, a GPU has a rank for each multiprocessor, and a ring has twice 128
// words.
void has_defaults(weirt_rank *rank)
{
    weirt_comm c;
    weir_window *window = nullptr;
    if (weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_window_create(c.comm, nullptr, &window))) {
        weir_device_info info;
        weir_dev_window handle;
        weir_device_get_info(c.device, &info, sizeof info);
        weir_window_device(window, &handle);
        WEIRT_EXPECT(rank, handle.ranks == (std::strcmp(rank->stage->kind, "gpu") == 0 ? info.multiprocessors : 2));
        WEIRT_EXPECT(rank, handle.devices == rank->size && handle.count == 256);
        WEIRT_EXPECT(rank, weir_window_ranks(window) == handle.ranks * rank->size);
        WEIRT_EXPECT(rank, weir_window_first(window) == handle.ranks * rank->rank);
    }
    (void)weirt_barrier(rank);
    weir_window_destroy(window);
    weirt_comm_close(&c);
}

TEST_P(WindowCreate, Defaults) { weirt_ranks_run(stage(), 3, has_defaults, nullptr, 0); }

// The rings of 132 ranks on eight devices take less than 4 MiB on each.
void rings_are_small(weirt_rank *rank)
{
    weirt_comm c;
    weir_window *window = nullptr;
    const weir_window_opts opts = opts_of(132, 0);
    if (weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_window_create(c.comm, &opts, &window))) {
        WEIRT_EXPECT(rank, weir_window_ranks(window) == 8 * 132);
        WEIRT_EXPECT(rank, weir_window_bytes(window) < 4 << 20);
        WEIRT_EXPECT(rank, weir_window_bytes(window) > 8 * 132 * 256 * 8);
    }
    (void)weirt_barrier(rank);
    weir_window_destroy(window);
    weirt_comm_close(&c);
}

TEST_P(WindowCreate, RingsOf132RanksOnEightDevices) { weirt_ranks_run(stage(), 8, rings_are_small, nullptr, 0); }

// All devices that a window can have, one more in the communicator. Device i notifies device i + 1 and waits for device
// i - 1; the notification passes through all of them.
constexpr uint32_t MOST = 64;

void most_devices(weirt_rank *rank)
{
    if (rank->rank == 0) {
        weirt_log_allow("stays silent"); // one of 65 threads may be late with its first byte; it connects again
    }
    windows::Bench bench;
    weir_window *refused = nullptr;
    std::vector<uint32_t> members(MOST);
    std::iota(members.begin(), members.end(), 0);
    const weir_group group = { members.data(), MOST };
    const uint32_t me = rank->rank;
    if (bench.join(rank, 0)) {
        const weir_window_opts all = opts_of(1, 1);
        WEIRT_STATUS(rank, WEIR_ERR_LIMIT, weir_window_create(bench.c.comm, &all, &refused));
        WEIRT_TEXT(rank, "weir_window_create: 65 ranks, but at most 64 are possible");
        if (me < MOST && bench.open(rank, { "mapped", 0, nullptr }, 1, 1, 0, 16, 1, &group)) {
            const uint32_t next = (me + 1) % MOST;
            const uint32_t previous = (me + MOST - 1) % MOST;
            const weirt_window_step send = windows::put_notify(next, me, 8, 0, 8);
            const weirt_window_step await = windows::wait(previous, previous);
            WEIRT_EXPECT(rank, weir_window_ranks(bench.windows[0]) == MOST);
            const uint64_t mine[] = { me + 1000, 0 };
            weir_device *device = bench.c.device;
            WEIRT_OK(rank, weir_device_copy(device, weir_memory_pointer(bench.memories[0]), mine, sizeof mine));
            if (bench.run(rank, { me == 0 ? std::vector{ send, await } : std::vector{ await, send } })) {
                uint64_t found[2] = {};
                WEIRT_OK(rank, weir_device_copy(device, found, weir_memory_pointer(bench.memories[1]), sizeof found));
                WEIRT_EXPECT(rank, found[1] == previous + 1000);
            }
        }
    }
    (void)weirt_barrier(rank);
    bench.close();
}

TEST(WindowMost, SixtyFourDevicesAndNotOneMore)
{
    if (std::strcmp(weirt_sanitizer(), "thread") == 0) {
        GTEST_SKIP() << "64 threads that wait for each other are too many for the thread sanitizer";
    }
    weirt_ranks_run(&weirt_stages[0], MOST + 1, most_devices, nullptr, 0);
}

// ---- create fails --------------------------------------------------------------------------------------------------

// The argument in which rank 1 differs from rank 0. `one`: the text that rank 1 gets; the others get it with "rank
// 1 failed" or, for a difference, `others`.
struct Wrong {
    weir_window_opts opts;
    bool out;
    weir_status status;
    const char *one;
    const char *others;
};

weir_window_opts changed(uint32_t ranks, uint32_t notifications, weir_memory_kind kind, uint32_t host_ranks)
{
    weir_window_opts opts = opts_of(ranks, notifications);
    opts.kind = kind;
    opts.host_ranks = host_ranks;
    return opts;
}

std::vector<Wrong> wrongs()
{
    static const char failed[] = "weir_window_create: rank 1 failed: weir_window_create: ";
    const weir_memory_kind none = static_cast<weir_memory_kind>(7);
    return {
        { changed(3, 4, WEIR_MEMORY_DEVICE, 0), true, WEIR_ERR_MISMATCH,
          "weir_window_create: rank 0 gave opts.ranks 2, rank 1 3", "rank 1 gave opts.ranks 3, rank " },
        { changed(2, 9, WEIR_MEMORY_DEVICE, 0), true, WEIR_ERR_MISMATCH,
          "weir_window_create: rank 0 gave opts.notifications 4, rank 1 16",
          "rank 1 gave opts.notifications 16, rank " },
        { changed(2, 4, WEIR_MEMORY_HOST, 0), true, WEIR_ERR_MISMATCH,
          "weir_window_create: rank 0 gave opts.kind 0, rank 1 1", "rank 1 gave opts.kind 1, rank " },
        { changed(2, 4, WEIR_MEMORY_DEVICE, 3), true, WEIR_ERR_MISMATCH,
          "weir_window_create: rank 0 gave opts.host_ranks 0, rank 1 3", "rank 1 gave opts.host_ranks 3, rank " },
        { changed(2, 4, none, 0), true, WEIR_ERR_INVALID, "unknown kind 7", failed },
        { changed(2, 4, WEIR_MEMORY_DEVICE, 2), true, WEIR_ERR_INVALID, "3 devices cannot be divided into hosts of 2",
          failed },
        { changed(2, (1u << 20) + 1, WEIR_MEMORY_DEVICE, 0), true, WEIR_ERR_INVALID,
          "opts.notifications is 1048577, but at most 1048576 are possible", failed },
        { changed(1u << 31, 4, WEIR_MEMORY_DEVICE, 0), true, WEIR_ERR_LIMIT,
          "3 devices of 2147483648 ranks each, but at most 1073741824 ranks are possible", failed },
        { changed(300000000, 1u << 20, WEIR_MEMORY_DEVICE, 0), true, WEIR_ERR_LIMIT,
          "300000000 ranks on each of 3 devices, with 1048576 notifications of each device, take 15099", failed },
        { changed(2, 4, WEIR_MEMORY_DEVICE, 0), false, WEIR_ERR_INVALID, "weir_window_create: out is NULL", failed },
    };
}

void one_is_wrong(weirt_rank *rank)
{
    weirt_comm c;
    if (weirt_comm_open(rank, 0, &c)) {
        for (const Wrong &wrong : wrongs()) {
            weir_window *window = nullptr;
            const weir_window_opts fine = opts_of(2, 4);
            const bool bad = rank->rank == 1;
            WEIRT_STATUS(rank, wrong.status,
                         weir_window_create(c.comm, bad ? &wrong.opts : &fine, bad && !wrong.out ? nullptr : &window));
            WEIRT_TEXT(rank, bad ? wrong.one : wrong.others);
            WEIRT_EXPECT(rank, window == nullptr);
        }
        // The devices are in step.
        weir_window *window = nullptr;
        WEIRT_OK(rank, weir_window_create(c.comm, nullptr, &window));
        (void)weirt_barrier(rank);
        weir_window_destroy(window);
    }
    weirt_comm_close(&c);
}

TEST_P(WindowCreate, ErrorsOfOneDeviceReachAll) { weirt_ranks_run(stage(), 3, one_is_wrong, nullptr, 0); }

// Rank 1 needs one byte more than its device has. Rings in host memory take none of the device's.
void memory_is_short(weirt_rank *rank)
{
    weirt_comm c;
    const weir_window_layout at = weir_window_layout_of(2, 1000, 16);
    const struct {
        weir_memory_kind kind;
        uint64_t needed;
        uint64_t memory;
        bool fits;
    } plans[] = { { WEIR_MEMORY_DEVICE, at.shared_bytes + at.private_bytes, at.shared_bytes + at.private_bytes - 1,
                    false },
                  { WEIR_MEMORY_DEVICE, at.shared_bytes + at.private_bytes, at.shared_bytes + at.private_bytes, true },
                  { WEIR_MEMORY_DEVICE, at.shared_bytes + at.private_bytes, 0, true },
                  { WEIR_MEMORY_HOST, at.private_bytes, at.private_bytes - 1, false },
                  { WEIR_MEMORY_HOST, at.private_bytes, at.shared_bytes + at.private_bytes - 1, true } };
    if (weirt_comm_open(rank, 0, &c)) {
        weir_device_info info;
        weir_device_get_info(c.device, &info, sizeof info);
        for (const auto &plan : plans) {
            weir_window *window = nullptr;
            weir_window_opts opts = opts_of(1000, 8);
            opts.kind = plan.kind;
            weirt_device_memory(c.device, rank->rank == 1 ? plan.memory : info.memory_bytes);
            WEIRT_STATUS(rank, plan.fits ? WEIR_OK : WEIR_ERR_LIMIT, weir_window_create(c.comm, &opts, &window));
            if (!plan.fits) {
                WEIRT_TEXT(rank, (std::string(rank->rank == 1 ? "" : "rank 1 failed: ") +
                                  "weir_window_create: 1000 ranks on each of 2 devices, with 8 notifications of each "
                                  "device, take " +
                                  std::to_string(plan.needed) + " bytes of the device, which has " +
                                  std::to_string(plan.memory))
                                     .c_str());
            }
            (void)weirt_barrier(rank);
            weir_window_destroy(window);
        }
        weirt_device_memory(c.device, info.memory_bytes);
    }
    weirt_comm_close(&c);
}

TEST_P(WindowCreate, MoreMemoryThanTheDeviceHas) { weirt_ranks_run(stage(), 2, memory_is_short, nullptr, 0); }

// More ranks than a channel has credits for.
void many_ranks(weirt_rank *rank)
{
    weirt_comm c;
    weir_window *window = nullptr;
    const weir_window_opts opts = changed(20000, 1, WEIR_MEMORY_DEVICE, 1);
    if (weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_window_create(c.comm, &opts, &window))) {
        WEIRT_EXPECT(rank, weir_window_ranks(window) == 40000);
    }
    (void)weirt_barrier(rank);
    weir_window_destroy(window);
    weirt_comm_close(&c);
}

TEST_P(WindowCreate, MoreRanksThanCredits) { weirt_ranks_run(stage(), 2, many_ranks, nullptr, 0); }

// One device names a transport that does not exist, with and without port channels. The communicator goes on.
void bad_transport(weirt_rank *rank)
{
    weirt_comm c;
    const bool open = weirt_comm_open(rank, 0, &c);
    for (uint32_t host_ranks = 0; host_ranks < 2 && open; host_ranks++) {
        weir_window *window = nullptr;
        weir_window_opts opts = changed(1, 4, WEIR_MEMORY_DEVICE, host_ranks);
        opts.transport = rank->rank == 1 ? "carrier-pigeon" : "ipc";
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_window_create(c.comm, &opts, &window));
        WEIRT_TEXT(rank, rank->rank == 1 ? "weir_window_create: opts.transport: transport \"carrier-pigeon\""
                                         : "weir_window_create: rank 1 failed: weir_window_create: opts.transport");
        opts.transport = "ipc";
        WEIRT_OK(rank, weir_window_create(c.comm, &opts, &window));
        (void)weirt_barrier(rank);
        weir_window_destroy(window);
    }
    weirt_comm_close(&c);
}

TEST_P(WindowCreate, TransportsThatDoNotExist) { weirt_ranks_run(stage(), 3, bad_transport, nullptr, 0); }

// Errors before a device knows its group stay with it.
void stays_alone(weirt_rank *rank)
{
    weirt_comm c;
    weir_window *window = nullptr;
    if (weirt_comm_open(rank, 0, &c)) {
        weir_window_opts opts = {};
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_window_create(c.comm, &opts, &window));
        WEIRT_TEXT(rank, "weir_window_create: ");
        opts = opts_of(1, 1);
        const uint32_t other = 1 - rank->rank;
        const uint32_t descending[] = { 1, 0 };
        const weir_group groups[] = { { &other, 1 }, { &other, 0 }, { descending, 2 } };
        const char *const texts[] = { "weir_window_create: this rank is not in the group",
                                      "weir_window_create: the group is empty",
                                      "weir_window_create: the group's ranks must exist and be in ascending order" };
        for (uint32_t i = 0; i < 3; i++) {
            opts.group = &groups[i];
            WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_window_create(c.comm, &opts, &window));
            WEIRT_TEXT(rank, texts[i]);
        }
        std::vector<uint32_t> many(65);
        for (uint32_t i = 0; i < 65; i++) {
            many[i] = i;
        }
        const weir_group all = { many.data(), 65 };
        opts.group = &all;
        WEIRT_STATUS(rank, WEIR_ERR_LIMIT, weir_window_create(c.comm, &opts, &window));
        WEIRT_TEXT(rank, "weir_window_create: 65 ranks, but at most 64 are possible");
        WEIRT_EXPECT(rank, window == nullptr);
    }
    weirt_comm_close(&c);
}

TEST_P(WindowCreate, ErrorsWithoutAGroup) { weirt_ranks_run(stage(), 2, stays_alone, nullptr, 0); }

// ---- register ------------------------------------------------------------------------------------------------------

struct Bad {
    uint64_t stride;
    uint64_t bytes;
    bool id;
    uint32_t memory; // 0: a good one, 1: NULL, 2: of the other device, 3: of another communicator, 4: larger
    weir_status status;
    const char *one;
    const char *others;
};

// Two ranks on each device; good memories have 100 bytes, good parts 40 each 60.
const Bad bads[] = {
    { 60, 41, true, 0, WEIR_ERR_RANGE, "2 parts of 41 bytes with stride 60 exceed the memory, which has 100 bytes",
      "rank 1 failed: weir_window_register: 2 parts of 41" },
    { 61, 40, true, 0, WEIR_ERR_RANGE, "2 parts of 40 bytes with stride 61 exceed the memory", "rank 1 failed: " },
    { 1ull << 63, 40, true, 0, WEIR_ERR_RANGE, "exceed the memory", "rank 1 failed: " },
    { UINT64_MAX - 20, 40, true, 0, WEIR_ERR_RANGE, "exceed the memory", "rank 1 failed: " },
    { 0, 101, true, 0, WEIR_ERR_RANGE, "2 parts of 101 bytes with stride 0 exceed the memory", "rank 1 failed: " },
    { 0, UINT64_MAX, true, 0, WEIR_ERR_RANGE, "exceed the memory", "rank 1 failed: " },
    { 60, 0, true, 0, WEIR_ERR_INVALID, "weir_window_register: bytes is 0", "rank 1 failed: " },
    { 60, 40, false, 0, WEIR_ERR_INVALID, "weir_window_register: id is NULL", "rank 1 failed: " },
    { 60, 40, true, 1, WEIR_ERR_INVALID, "weir_window_register: memory is NULL", "rank 1 failed: " },
    { 60, 40, true, 2, WEIR_ERR_INVALID, "memory belongs to another rank or communicator", "rank 1 failed: " },
    { 60, 40, true, 3, WEIR_ERR_INVALID, "memory belongs to another rank or communicator", "rank 1 failed: " },
    { 50, 40, true, 0, WEIR_ERR_MISMATCH, "rank 0 gave stride 60, rank 1 50", "rank 1 gave stride 50, rank 0 60" },
    { 60, 20, true, 0, WEIR_ERR_MISMATCH, "rank 0 gave bytes 40, rank 1 20", "rank 1 gave bytes 20, rank 0 40" },
    { 60, 40, true, 4, WEIR_ERR_MISMATCH, "rank 0 has a memory of 100 bytes, this rank of 200", "of 200 bytes" },
};

void bad_memories(weirt_rank *rank)
{
    weirt_comm c;
    weirt_comm other;
    weir_window *window = nullptr;
    weir_memory *memories[5] = {};
    const weir_window_opts opts = opts_of(2, 2);
    bool fine = weirt_comm_open(rank, 0, &c);
    fine = weirt_comm_open(rank, 0, &other) && fine;
    fine = fine && WEIRT_OK(rank, weir_window_create(c.comm, &opts, &window)) &&
           WEIRT_OK(rank, weir_memory_allocate(c.comm, 100, nullptr, &memories[0])) &&
           WEIRT_OK(rank, weir_memory_allocate(other.comm, 100, nullptr, &memories[3])) &&
           WEIRT_OK(rank, weir_memory_allocate(c.comm, 200, nullptr, &memories[4])) &&
           WEIRT_OK(rank, weir_memory_send(c.comm, memories[0], 1 - rank->rank, 5)) &&
           weirt_receive(rank, c.comm, 1 - rank->rank, 5, &memories[2]);
    uint32_t id = 77;
    for (const Bad &bad : bads) {
        if (!fine) {
            break;
        }
        if (rank->rank == 1) {
            WEIRT_STATUS(
                rank, bad.status,
                weir_window_register(window, memories[bad.memory], bad.stride, bad.bytes, bad.id ? &id : nullptr));
            WEIRT_TEXT(rank, bad.one);
        } else {
            WEIRT_STATUS(rank, bad.status, weir_window_register(window, memories[0], 60, 40, &id));
            WEIRT_TEXT(rank, bad.others);
        }
        WEIRT_EXPECT(rank, id == 77);
    }
    // A failed call has used no id; the same memory may be registered many times.
    for (uint32_t i = 0; i < WEIR_WINDOW_MEMORIES && fine; i++) {
        fine = WEIRT_OK(rank, weir_window_register(window, memories[0], 60, 40, &id)) && WEIRT_EXPECT(rank, id == i);
    }
    if (fine) {
        weir_dev_window handle;
        weir_window_device(window, &handle);
        WEIRT_EXPECT(rank, handle.memories == WEIR_WINDOW_MEMORIES);
        id = 77;
        WEIRT_STATUS(rank, WEIR_ERR_LIMIT, weir_window_register(window, memories[0], 60, 40, &id));
        WEIRT_TEXT(rank, "weir_window_register: 64 memories are registered already");
        WEIRT_EXPECT(rank, id == 77);
    }
    (void)weirt_barrier(rank);
    weir_memory_destroy(memories[2]);
    weir_window_destroy(window);
    (void)weirt_barrier(rank);
    for (uint32_t i : { 0, 3, 4 }) {
        weir_memory_destroy(memories[i]);
    }
    weirt_comm_close(&other);
    weirt_comm_close(&c);
}

TEST_P(WindowCreate, MemoriesThatDoNotFit) { weirt_ranks_run(stage(), 2, bad_memories, nullptr, 0); }

// ---- resources -----------------------------------------------------------------------------------------------------

struct Rounds {
    uint32_t cpu;
    uint32_t gpu;
    uint32_t host_ranks; // 1: the devices are joined by a port channel
};

// The communicator stays, so nothing that a window leaves in it is hidden by its end.
void many_windows(weirt_rank *rank)
{
    constexpr uint32_t warm = 5;
    const Rounds *rounds = static_cast<const Rounds *>(rank->arg);
    const uint32_t times = std::strcmp(rank->stage->kind, "gpu") == 0 ? rounds->gpu : rounds->cpu;
    const weir_window_opts opts = changed(2, 4, WEIR_MEMORY_DEVICE, rounds->host_ranks);
    weirt_comm c;
    weirt_counts before = {};
    weir_memory *memory = nullptr;
    bool fine = weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_memory_allocate(c.comm, 128, nullptr, &memory));
    for (uint32_t i = 0; i < warm + times && fine; i++) {
        weir_window *window = nullptr;
        uint32_t id = 0;
        fine = WEIRT_OK(rank, weir_window_create(c.comm, &opts, &window)) &&
               WEIRT_OK(rank, weir_window_register(window, memory, 64, 64, &id));
        weir_window_destroy(window);
        fine = fine && (i + 1 != warm || weirt_counts_take(rank, &before));
    }
    if (fine) {
        weirt_counts_expect(rank, before);
    }
    weir_memory_destroy(memory);
    weirt_comm_close(&c);
}

TEST_P(WindowCreate, AThousandTimes)
{
    const Rounds rounds = { 1000, 100, 0 };
    weirt_ranks_run(stage(), 2, many_windows, &rounds, sizeof rounds);
}

TEST_P(WindowCreate, ManyTimesWithAPort)
{
    const Rounds rounds = { 100, 20, 1 };
    weirt_ranks_run(stage(), 2, many_windows, &rounds, sizeof rounds);
}

enum Fault { ALLOCATION, DEVICE, TRANSPORT };

struct Plan {
    Fault fault;
    uint64_t least;      // operations that there are
    uint32_t host_ranks; // 1: the devices are joined by a port channel
};

uint64_t arm(Fault fault, uint64_t n)
{
    return fault == ALLOCATION ? weirt_fail_allocation(n)
           : fault == DEVICE   ? weirt_fail_device(n)
                               : weirt_fail_transport(n);
}

// A window and a memory, of which the n-th operation of rank 0 fails. Whether there may be more.
bool try_with_fault(weirt_rank *rank, const Plan &plan, uint64_t n)
{
    weirt_comm c;
    weir_window *window = nullptr;
    weir_memory *memory = nullptr;
    const weir_window_opts opts = changed(2, 4, WEIR_MEMORY_DEVICE, plan.host_ranks);
    uint32_t id = 0;
    (void)weirt_barrier(rank);
    const int64_t before = weirt_count_allocations();
    (void)weirt_barrier(rank);
    const bool fine =
        weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_memory_allocate(c.comm, 128, nullptr, &memory));
    (void)weirt_barrier(rank);
    if (rank->rank == 0) {
        (void)arm(plan.fault, n);
    }
    (void)weirt_barrier(rank);
    weir_status status = fine ? weir_window_create(c.comm, &opts, &window) : static_cast<weir_status>(WEIR_ERR_DEVICE);
    if (status == WEIR_OK) {
        status = weir_window_register(window, memory, 64, 64, &id);
    }
    if (status != WEIR_OK) {
        WEIRT_EXPECT(rank, std::strstr(weir_last_error(), ": ") != nullptr);
    }
    weirt_step(rank, static_cast<uint32_t>(2 * n + (status == WEIR_OK)));
    (void)weirt_barrier(rank);
    // Both got it, or neither, unless the communicator failed after the end of one of them.
    const bool differ = weirt_step_now(rank, 0) != weirt_step_now(rank, 1);
    const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
    while (differ && weir_comm_status(c.comm) == WEIR_OK && weirt_now_ms() < end) {
        weirt_sleep_ms(1);
    }
    WEIRT_EXPECT(rank, !differ || weir_comm_status(c.comm) != WEIR_OK);
    (void)weirt_barrier(rank);
    const bool happened = rank->rank == 0 && arm(plan.fault, 0) == 0;
    weir_window_destroy(window);
    (void)weirt_barrier(rank);
    weir_memory_destroy(memory);
    weirt_comm_close(&c);
    (void)weirt_barrier(rank);
    if (rank->rank == 0) {
        WEIRT_EXPECT(rank, happened || status == WEIR_OK);
        const int64_t left = weirt_count_allocations() - before;
        if (left != 0) {
            weirt_fail(rank, __FILE__, __LINE__, "operation %llu failed: %lld allocations left behind",
                       static_cast<unsigned long long>(n), static_cast<long long>(left));
        }
        weirt_step(rank, static_cast<uint32_t>(2 * n + 4000 + happened));
    }
    (void)weirt_barrier(rank);
    return weirt_step_now(rank, 0) % 2 == 1;
}

void nth_fails(weirt_rank *rank)
{
    const Plan *plan = static_cast<const Plan *>(rank->arg);
    uint64_t n = 1;
    weirt_log_allow(""); // depends on what failed
    while (n < 500 && try_with_fault(rank, *plan, n)) {
        n++;
    }
    WEIRT_EXPECT(rank, n > plan->least && n < 500);
}

class WindowNth : public StageTest {};
INSTANTIATE_TEST_SUITE_P(Stages, WindowNth, ::testing::Values(0, 1, 2), weirt_stage_name);

TEST_P(WindowNth, AllocationFails)
{
    const Plan plan = { ALLOCATION, 10, 0 };
    weirt_ranks_run(stage(), 2, nth_fails, &plan, sizeof plan);
}

TEST_P(WindowNth, DeviceOperationFails)
{
    const Plan plan = { DEVICE, 4, 0 };
    weirt_ranks_run(stage(), 2, nth_fails, &plan, sizeof plan);
}

TEST_P(WindowNth, TransportOperationFails)
{
    const Plan plan = { TRANSPORT, 3, 0 };
    weirt_ranks_run(stage(), 2, nth_fails, &plan, sizeof plan);
}

TEST_P(WindowNth, AllocationFailsWithAPort)
{
    const Plan plan = { ALLOCATION, 20, 1 };
    weirt_ranks_run(stage(), 2, nth_fails, &plan, sizeof plan);
}

TEST_P(WindowNth, DeviceOperationFailsWithAPort)
{
    const Plan plan = { DEVICE, 8, 1 };
    weirt_ranks_run(stage(), 2, nth_fails, &plan, sizeof plan);
}

TEST_P(WindowNth, TransportOperationFailsWithAPort)
{
    const Plan plan = { TRANSPORT, 6, 1 };
    weirt_ranks_run(stage(), 2, nth_fails, &plan, sizeof plan);
}

} // namespace
