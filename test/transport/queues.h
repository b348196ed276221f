/* queues.h - two ranks with queues of one transport between them, directly on weiri_queue_ops; C++ only.
 *
 * The ranks exchange their descriptions through the shared argument of their run. Waits here poll all queues, as the
 * proxy and the service thread do. */
#ifndef WEIRT_QUEUES_H
#define WEIRT_QUEUES_H

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "test/harness/pattern.h"
#include "test/harness/ranks.h"
#include "test/harness/software_nic.h"
#include "test/harness/staged.h"

extern "C" {
#include "src/transport/transport.h"
}

namespace weirt {

const uint32_t max_queues = 3;
const uint32_t max_memories = 5;

// One side's half of the exchange.
struct Offer {
    uint8_t address[max_queues][WEIRI_ADDRESS_MAX];
    uint32_t address_bytes[max_queues];
    weiri_key key[max_memories];
};

// The argument of a run.
struct Meeting {
    char transport[16];
    bool staged;     // the host cannot reach the memory
    bool storeless;  // and the device cannot store values
    uint64_t number; // a parameter of the case
    char text[64];
    Offer offer[2];
};

inline const weiri_transport_ops *transport_named(const char *name)
{
    for (uint32_t i = 0; weiri_transport_at(i) != nullptr; i++) {
        if (std::strcmp(weiri_transport_at(i)->name, name) == 0) {
            return weiri_transport_at(i);
        }
    }
    return nullptr;
}

// The data of rank `rank` in round `round`.
inline uint8_t pattern(uint64_t i, uint64_t round, uint32_t rank)
{
    return static_cast<uint8_t>(weirt_pattern(rank, round, i));
}

inline void fill(uint8_t *at, uint64_t bytes, uint64_t round, uint32_t rank)
{
    weirt_data_fill(reinterpret_cast<char *>(at), bytes, rank, round);
}

// Whether some byte is not that of the pattern from its byte `first` on.
inline bool wrong(const uint8_t *at, uint64_t bytes, uint64_t round, uint32_t rank, uint64_t first = 0)
{
    std::vector<uint8_t> right(first + bytes);
    fill(right.data(), right.size(), round, rank);
    return std::memcmp(at, right.data() + first, bytes) != 0;
}

// A rank's end: a domain, queues, memories and the peer's memories.
class Side {
public:
    explicit Side(weirt_rank *rank)
        : rank(rank), meeting(static_cast<Meeting *>(const_cast<void *>(rank->arg))),
          transport(transport_named(meeting->transport)), ops(transport->queue)
    {
    }
    ~Side();
    Side(const Side &) = delete;
    Side &operator=(const Side &) = delete;

    bool open_device();
    // Appends a block.
    bool allocate(uint64_t size);
    bool wrap(uint8_t *at, uint64_t size);
    // Single steps, and all of them: a domain, `count` connected queues, one memory of each size and the peer's
    // memories.
    bool open_domain();
    bool open(uint32_t count, const std::vector<uint64_t> &sizes);
    bool open_queues(uint32_t count);
    bool open_memories(const std::vector<uint64_t> &sizes);
    // A memory for each block from number `first_block` on, and the peer's memories.
    bool open_regions(size_t first_block);

    uint8_t *bytes(uint32_t memory) const { return static_cast<uint8_t *>(blocks[memory]->pointer); }

    // Polls all queues once; failed queues stay failed.
    void poll_all();
    // Polls until the condition holds; a failure of the test if it does not within the harness's timeout.
    bool until(const char *what, const std::function<bool()> &condition);
    // Meets the peer, polling.
    bool meet();
    // Repeats a post until it is taken; returns its error otherwise.
    weir_status insist(const std::function<weir_status()> &post);
    // Waits for all posts of a queue. A failure unless they complete.
    bool finish(uint32_t queue);
    // Polls until the queue fails, repeating `post` if there is one. Returns the error, or WEIR_OK if it does not fail.
    weir_status failure(uint32_t queue, const std::function<weir_status()> &post);

    weirt_rank *rank;
    Meeting *meeting;
    const weiri_transport_ops *transport;
    const weiri_queue_ops *ops;
    weir_device *device = nullptr;
    weiri_domain *domain = nullptr;
    std::vector<weiri_queue *> queues;
    std::vector<weiri_block *> blocks;
    std::vector<weiri_region *> regions;
    std::vector<weiri_remote *> remotes;

private:
    uint32_t step = 0;
};

inline Side::~Side()
{
    for (weiri_queue *queue : queues) {
        ops->queue_close(queue);
    }
    for (weiri_remote *remote : remotes) {
        ops->remote_close(remote);
    }
    for (weiri_region *region : regions) {
        ops->region_close(region);
    }
    for (weiri_block *block : blocks) {
        weiri_block_release(block);
    }
    ops->domain_close(domain);
    weir_device_close(device);
}

inline bool Side::open_device()
{
    if (!WEIRT_OK(rank, weir_device_open(rank->device, nullptr, &device))) {
        return false;
    }
    if (meeting->staged) {
        weirt_stage_memory(device, !meeting->storeless);
    }
    return true;
}

inline bool Side::allocate(uint64_t size)
{
    weiri_block *block;
    const weir_memory_kind kind = meeting->staged ? WEIR_MEMORY_DEVICE : WEIR_MEMORY_HOST;
    if (!WEIRT_OK(rank, weiri_device_allocate(device, kind, size, &block))) {
        return false;
    }
    blocks.push_back(block);
    return true;
}

inline bool Side::wrap(uint8_t *at, uint64_t size)
{
    weiri_block *block;
    if (!WEIRT_OK(rank, weiri_device_wrap(device, at, size, &block))) {
        return false;
    }
    blocks.push_back(block);
    return true;
}

inline bool Side::open_domain() { return open_device() && WEIRT_OK(rank, ops->domain_open(device, &domain)); }

inline bool Side::open_queues(uint32_t count)
{
    Offer *own = &meeting->offer[rank->rank];
    const Offer *peer = &meeting->offer[1 - rank->rank];
    uint32_t first = static_cast<uint32_t>(queues.size());
    for (uint32_t i = first; i < first + count; i++) {
        weiri_queue *queue;
        if (!WEIRT_OK(rank, ops->queue_open(domain, &queue))) {
            return false;
        }
        queues.push_back(queue);
        std::memcpy(own->address[i], queue->address, queue->address_bytes);
        own->address_bytes[i] = queue->address_bytes;
    }
    if (!meet()) {
        return false;
    }
    for (uint32_t i = first; i < first + count; i++) {
        if (!WEIRT_OK(rank, ops->queue_connect(queues[i], peer->address[i], peer->address_bytes[i]))) {
            return false;
        }
    }
    return meet();
}

inline bool Side::open_memories(const std::vector<uint64_t> &sizes)
{
    const size_t first = blocks.size();
    for (uint64_t size : sizes) {
        if (!allocate(size)) {
            return false;
        }
    }
    return open_regions(first);
}

inline bool Side::open_regions(size_t first_block)
{
    Offer *own = &meeting->offer[rank->rank];
    const size_t first = regions.size();
    const size_t count = blocks.size() - first_block;
    for (size_t i = 0; i < count; i++) {
        weiri_region *region;
        if (!WEIRT_OK(rank, ops->region_open(domain, blocks[first_block + i], &region))) {
            return false;
        }
        regions.push_back(region);
        own->key[regions.size() - 1] = region->key;
    }
    if (!meet()) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        weiri_remote *remote;
        const weiri_key *key = &meeting->offer[1 - rank->rank].key[first + i];
        if (!WEIRT_OK(rank, ops->remote_open(domain, key, nullptr, &remote))) {
            return false;
        }
        WEIRT_EXPECT(rank, remote->size == blocks[first_block + i]->size);
        remotes.push_back(remote);
    }
    return meet();
}

inline bool Side::open(uint32_t count, const std::vector<uint64_t> &sizes)
{
    return open_domain() && open_queues(count) && open_memories(sizes);
}

inline void Side::poll_all()
{
    for (weiri_queue *queue : queues) {
        (void)ops->poll(queue);
    }
}

inline bool Side::until(const char *what, const std::function<bool()> &condition)
{
    uint64_t deadline = weirt_now_ms() + weirt_timeout_ms();
    while (!condition()) {
        poll_all();
        if (weirt_now_ms() > deadline) {
            weirt_fail(rank, __FILE__, __LINE__, "waited in vain for %s", what);
            return false;
        }
    }
    return true;
}

inline bool Side::meet()
{
    weirt_step(rank, ++step);
    return until("the other rank", [this] { return weirt_step_now(rank, 1 - rank->rank) >= step; });
}

inline weir_status Side::insist(const std::function<weir_status()> &post)
{
    weir_status status = WEIR_ERR_BUSY;
    until("room in a queue", [&] { return (status = post()) != WEIR_ERR_BUSY; });
    return status;
}

inline bool Side::finish(uint32_t index)
{
    weiri_queue *queue = queues[index];
    weir_status status = WEIR_OK;
    bool done = until("posts to complete", [&] {
        status = ops->poll(queue);
        return status < 0 || __atomic_load_n(&queue->completed, __ATOMIC_ACQUIRE) == queue->posted;
    });
    return done && (status >= 0 || WEIRT_OK(rank, status));
}

inline weir_status Side::failure(uint32_t index, const std::function<weir_status()> &post)
{
    weir_status status = WEIR_OK;
    until("a queue to fail", [&] {
        weir_status posted = post == nullptr ? WEIR_OK : post();
        status = posted < 0 && posted != WEIR_ERR_BUSY ? posted : ops->poll(queues[index]);
        return status < 0;
    });
    return status;
}

// A suite whose cases run between two ranks on the CPU, over each transport of this program.
class QueueTest : public ::testing::TestWithParam<std::pair<std::string, int>> {
protected:
    void SetUp() override
    {
        char reason[256] = "no such transport";
        const std::string name = GetParam().first.substr(0, GetParam().first.find('_'));
        const weiri_transport_ops *transport = transport_named(name.c_str());
        if (name == "ib" && weirt_use_software_nic() && stage()->processes &&
            std::strcmp(weirt_sanitizer(), "thread") == 0) {
            GTEST_SKIP() << "the thread sanitizer does not see that another process orders this one's accesses";
        }
        if (transport == nullptr || !transport->probe(reason) || transport->queue == nullptr) {
            GTEST_SKIP() << GetParam().first << ": " << reason;
        }
        std::memset(&meeting, 0, sizeof meeting);
        std::strncpy(meeting.transport, transport->name, sizeof meeting.transport - 1);
        meeting.staged = name != GetParam().first;
        if (meeting.staged && std::strcmp(weirt_sanitizer(), "thread") == 0) {
            GTEST_SKIP() << "KindsOfMemory has all threads of staging";
        }
    }
    const weirt_stage *stage() const { return &weirt_stages[GetParam().second]; }
    void run(weirt_rank_fn body) { weirt_ranks_run_shared(stage(), 2, body, &meeting, sizeof meeting); }
    Meeting meeting;
};

inline std::string queue_test_name(const ::testing::TestParamInfo<std::pair<std::string, int>> &info)
{
    return info.param.first + "_" + weirt_stages[info.param.second].name;
}

// WEIRT_TRANSPORTS: the program's transports, separated by commas. NAME_staged: with memory that the host cannot reach;
// cases for both stages then run only with threads.
inline std::vector<std::pair<std::string, int>> queue_test_params(bool threads, bool processes)
{
    std::vector<std::pair<std::string, int>> params;
    std::string names = WEIRT_TRANSPORTS;
    for (size_t at = 0; at < names.size();) {
        size_t end = names.find(',', at);
        end = end == std::string::npos ? names.size() : end;
        if (threads) {
            params.emplace_back(names.substr(at, end - at), 0);
        }
        if (processes && !(threads && names.substr(at, end - at).find('_') != std::string::npos)) {
            params.emplace_back(names.substr(at, end - at), 1);
        }
        at = end + 1;
    }
    return params;
}

} // namespace weirt

// Suites whose ranks are threads, processes, or both in turn.
#define WEIRT_QUEUE_STAGES(Suite, threads, processes)                                                              \
    class Suite : public weirt::QueueTest {};                                                                      \
    INSTANTIATE_TEST_SUITE_P(Transports, Suite, ::testing::ValuesIn(weirt::queue_test_params(threads, processes)), \
                             weirt::queue_test_name)
#define WEIRT_QUEUE_SUITE(Suite) WEIRT_QUEUE_STAGES(Suite, true, true)
#define WEIRT_QUEUE_THREAD_SUITE(Suite) WEIRT_QUEUE_STAGES(Suite, true, false)
#define WEIRT_QUEUE_PROCESS_SUITE(Suite) WEIRT_QUEUE_STAGES(Suite, false, true)

#endif
