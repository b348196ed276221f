// The promises of windows whose devices are joined by port channels: docs/memory-ordering.md. Each thread but the last
// is the only rank of its device. The last one is the network: it carries out the requests of one channel in their
// order, and those of several channels in any order.
#include "weir/device/window.h"

#include "test/harness/window.h"
#include "test/litmus/litmus.h"

namespace {

using namespace litmus;

constexpr uint32_t FAR_ORDERS = WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE | WEIRT_WEAK_NO_SYSTEM;
constexpr uint64_t PART = 64;
constexpr uint32_t SLOTS = 16;
constexpr uint32_t FIRST_ID = 2; // ids of memory m: FIRST_ID + 2 m at the target, and the next one here

// A channel from one device to another.
struct Port {
    alignas(64) uint64_t slots[SLOTS * WEIR_FIFO_SLOT_WORDS];
    alignas(64) uint64_t tail;
    uint64_t head;
    weir_dev_credits free_slots;
    weir_dev_credits credits;
    weir_dev_progress progress;
    weir_dev_port_channel handle;
    uint64_t next; // request that the network takes

    void open(weir_dev_control *control)
    {
        std::memset(static_cast<void *>(this), 0, sizeof *this);
        weir_dev_proxy_channel &queue = handle.queue;
        queue.fifo.control = control;
        queue.fifo.credits = &free_slots;
        queue.fifo.head = &head;
        queue.fifo.slots = slots;
        queue.fifo.tail = &tail;
        queue.fifo.count = SLOTS;
        queue.credits = &credits;
        queue.progress = &progress;
        queue.limit = SLOTS;
        handle.engine = WEIR_PORT_BY_PROXY;
    }
    bool take(weir_request *request) { return weir_dev_fifo_read(slots, SLOTS, next, request) != 0; }
    void complete()
    {
        next++;
        weir_arch_store_release_sys_u64(&tail, next);
        weir_arch_store_release_sys_u64(&progress.returned, next);
        weir_arch_store_release_sys_u64(&progress.done, next);
    }
};

template <uint32_t DEVICES> struct Far : windows::World {
    static constexpr uint32_t threads = DEVICES + 1;
    static uint32_t device(uint32_t i) { return i; }
    Port ports[DEVICES][DEVICES];
    uint64_t ended[DEVICES] = {};
    uint64_t seen[DEVICES] = {};
    int failed = 0;
    Draw draw;

    explicit Far(uint64_t seed, uint32_t count = 4) : World(DEVICES, 1, count, PART, PART, WAIT_NS), draw(seed)
    {
        for (uint32_t i = 0; i < DEVICES; i++) {
            windows::Device &own = World::device(i);
            auto *to = const_cast<weir_dev_window_device *>(own.window.to);
            auto *table = const_cast<weir_dev_window_table *>(own.window.table);
            for (uint32_t k = 0; k < DEVICES; k++) {
                ports[i][k].open(&own.control);
                for (uint32_t m = 0; m < 2 && k != i; m++) {
                    weir_dev_window_place &place = table->places[m * DEVICES + k];
                    place.base = nullptr;
                    place.remote = FIRST_ID + 2 * m;
                    place.local = place.remote + 1;
                }
                if (k != i) {
                    to[k].way = WEIR_WINDOW_PORT;
                    to[k].shared = nullptr;
                    to[k].channel = &ports[i][k].handle;
                }
            }
        }
    }
    virtual ~Far() = default;
    virtual void rank_runs(uint32_t number) = 0;
    void thread(uint32_t i)
    {
        if (i == DEVICES) {
            carry_all();
        } else {
            rank_runs(i);
            weir_arch_store_release_sys_u64(&ended[i], 1);
        }
    }

    // ---- ranks ----

    void check(weir_status status) { failed |= status != WEIR_OK; }
    uint64_t &part(uint32_t number, uint64_t index) { return word(number, 0, index); }
    void put(uint32_t source, uint32_t target, uint64_t index)
    {
        const weir_dev_window_rank self = rank(source);
        check(weir_dev_window_put(&self, target, 0, 8 * index, 0, 8 * index, 8, thread_coop()));
    }
    void get(uint32_t number, uint32_t target, uint64_t index)
    {
        const weir_dev_window_rank self = rank(number);
        check(weir_dev_window_get(&self, target, 0, 8 * index, 0, 8 * index, 8, thread_coop()));
    }
    void notify(uint32_t source, uint32_t target, uint32_t tag)
    {
        const weir_dev_window_rank self = rank(source);
        check(weir_dev_window_notify(&self, target, tag, thread_coop()));
    }
    void wait(uint32_t number, uint32_t source, uint32_t tag)
    {
        const weir_dev_window_rank self = rank(number);
        check(weir_dev_window_wait(&self, source, tag, 1, thread_coop()));
    }
    void flush(uint32_t number)
    {
        const weir_dev_window_rank self = rank(number);
        check(weir_dev_window_flush(&self, WEIR_ANY_RANK, thread_coop()));
    }

    // ---- the network ----

    uint64_t *place(uint32_t id, uint32_t from, uint32_t to, uint64_t offset)
    {
        windows::Device &owner = World::device(id % 2 == 0 ? to : from);
        char *memory = id < FIRST_ID ? owner.shared.data() : owner.data[(id - FIRST_ID) / 2].data();
        return reinterpret_cast<uint64_t *>(memory + offset);
    }
    void carry(uint32_t from, uint32_t to, const weir_request &request)
    {
        uint64_t *remote = place(request.remote, from, to, request.remote_offset);
        uint64_t *local = place(request.local, from, to, request.local_offset);
        if (request.type == WEIR_REQUEST_VALUE) {
            weir_arch_store_release_sys_u64(remote, request.value);
        } else if (request.type == WEIR_REQUEST_PUT) {
            write(*remote, read(*local));
        } else if (request.type == WEIR_REQUEST_GET) {
            write(*local, read(*remote));
        } else {
            failed |= request.type != WEIR_REQUEST_FLUSH;
        }
    }
    bool carry_one()
    {
        const uint32_t first = draw(DEVICES * DEVICES);
        for (uint32_t n = 0; n < DEVICES * DEVICES; n++) {
            const uint32_t from = (first + n) % (DEVICES * DEVICES) / DEVICES;
            const uint32_t to = (first + n) % DEVICES;
            weir_request request = {};
            if (from != to && ports[from][to].take(&request)) {
                carry(from, to, request);
                ports[from][to].complete();
                return true;
            }
        }
        return false;
    }
    // Until all ranks have ended and no request is left.
    void carry_all()
    {
        for (bool busy = true; busy;) {
            bool all = true;
            for (const uint64_t &one : ended) {
                all = weir_arch_load_acquire_sys_u64(&one) != 0 && all;
            }
            busy = carry_one() || !all;
            weir_arch_relax(1);
        }
    }
};

// ---- what is promised ----------------------------------------------------------------------------------------------

struct Notified : Far<2> {
    using Far::Far;
    void rank_runs(uint32_t number) override
    {
        if (number == 0) {
            write(part(0, 0), 7);
            write(part(0, 1), 8);
            put(0, 1, 0);
            const weir_dev_window_rank self = rank(0);
            check(weir_dev_window_put_notify(&self, 1, 0, 8, 0, 8, 8, 3, thread_coop()));
        } else {
            wait(1, 0, 3);
            seen[1] = read(part(1, 1)) * 10 + read(part(1, 0));
        }
    }
    bool right() const { return failed == 0 && seen[1] == 87; }
};

TEST(LitmusWindowPort, APutNotifyFollowsItsDataAndEarlierPuts) { holds<Notified>(FAR_ORDERS); }

// Five words with a notification each, through a ring of two: the heads come back through the other channel.
struct Laps : Far<2> {
    explicit Laps(uint64_t seed) : Far(seed, 2) {}
    void rank_runs(uint32_t number) override
    {
        for (uint32_t k = 0; k < 5; k++) {
            weir_dev_notification taken = { WEIR_ANY_RANK, WEIR_ANY_TAG };
            const weir_dev_window_rank self = rank(number);
            if (number == 0) {
                write(part(0, k), k + 1);
                put(0, 1, k);
                notify(0, 1, 10 + k);
            } else {
                check(weir_dev_window_take(&self, WEIR_ANY_RANK, WEIR_ANY_TAG, &taken, thread_coop()));
                failed |= taken.source != 0 || taken.tag != 10 + k || read(part(1, k)) != k + 1;
            }
        }
    }
    bool right() const { return failed == 0; }
};

TEST(LitmusWindowPort, NotificationsComeOnceAndInTheirOrder) { holds<Laps>(FAR_ORDERS); }

// The source of a put is written again before the notification, after a flush or without one.
template <bool flushes> struct Overwritten : Far<2> {
    using Far::Far;
    void rank_runs(uint32_t number) override
    {
        if (number == 0) {
            write(part(0, 0), 5);
            put(0, 1, 0);
            if (flushes) {
                flush(0);
            }
            write(part(0, 0), 6);
            notify(0, 1, 3);
        } else {
            wait(1, 0, 3);
            seen[1] = read(part(1, 0));
        }
    }
    bool right() const { return failed == 0 && seen[1] == 5; }
};

TEST(LitmusWindowPort, AFlushFreesTheSourceOfAPut) { holds<Overwritten<true>>(FAR_ORDERS); }

template <bool flushes> struct Got : Far<2> {
    using Far::Far;
    void rank_runs(uint32_t number) override
    {
        if (number == 0) {
            write(part(0, 0), 5);
            notify(0, 1, 3);
        } else {
            wait(1, 0, 3);
            get(1, 0, 0);
            if (flushes) {
                flush(1);
            }
            seen[1] = read(part(1, 0));
        }
    }
    bool right() const { return failed == 0 && seen[1] == 5; }
};

TEST(LitmusWindowPort, AGetIsThereAfterAFlush) { holds<Got<true>>(FAR_ORDERS); }

// Rank 0 puts to rank 2 and notifies rank 1, after a flush or without one. Rank 1 then notifies rank 2.
template <bool flushes> struct Chain : Far<3> {
    using Far::Far;
    void rank_runs(uint32_t number) override
    {
        if (number == 0) {
            write(part(0, 0), 5);
            put(0, 2, 0);
            if (flushes) {
                flush(0);
            }
            notify(0, 1, 1);
        } else if (number == 1) {
            wait(1, 0, 1);
            notify(1, 2, 2);
        } else {
            wait(2, 1, 2);
            seen[2] = read(part(2, 0));
        }
    }
    bool right() const { return failed == 0 && seen[2] == 5; }
};

TEST(LitmusWindowPort, AFlushedPutIsSeenThroughAThirdRank) { holds<Chain<true>>(FAR_ORDERS); }

// Both ranks put to each other and meet, twice.
struct Meeting : Far<2> {
    using Far::Far;
    weirt_weak_block block[2] = {};
    void rank_runs(uint32_t number) override
    {
        weir_coop coop = weir_coop_part(0, 1);
        coop.block_size = 1;
        coop.blocks = 1;
        coop.scope = WEIR_COOP_GRID;
        coop.host = &block[number];
        block[number].threads = 1;
        for (uint64_t round = 1; round <= 2; round++) {
            write(part(number, number), round);
            put(number, 1 - number, number);
            check(weir_dev_window_barrier(window(number), coop));
            seen[number] = seen[number] * 10 + read(part(number, 1 - number));
            flush(number);
            check(weir_dev_window_barrier(window(number), coop));
        }
    }
    bool right() const { return failed == 0 && seen[0] == 12 && seen[1] == 12; }
};

TEST(LitmusWindowPort, AfterABarrierEveryRankSeesThePutsBeforeIt) { holds<Meeting>(FAR_ORDERS); }

// ---- what is not promised ------------------------------------------------------------------------------------------

TEST(LitmusWindowPort, WithoutAFlushAPutsSourceIsNotFree) { fails<Overwritten<false>>(); }

TEST(LitmusWindowPort, WithoutAFlushAGetIsNotThere) { fails<Got<false>>(); }

TEST(LitmusWindowPort, ANotificationDoesNotCarryWhatAThirdRankSent) { fails<Chain<false>>(); }

} // namespace
