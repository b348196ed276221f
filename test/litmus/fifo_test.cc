// Promises of pushes, tickets and proxies' channels; docs/memory-ordering.md. Threads of device 0 push; the thread of
// device 1 is the host's.
#include "weir/device/proxy.h"

#include "test/litmus/litmus.h"

namespace {

using namespace litmus;

constexpr uint32_t QUEUE_ORDERS = WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE | WEIRT_WEAK_NO_SYSTEM;

// A fifo of `count` slots, and data beside it.
template <uint32_t count> struct Queue {
    weir_dev_control control;
    alignas(64) uint64_t slots[count * WEIR_FIFO_SLOT_WORDS];
    alignas(64) uint64_t tail;
    weir_dev_credits credits;
    uint64_t head;
    uint64_t data[8];
    weir_dev_fifo fifo;
    uint64_t next = 0; // of the taking thread
    int failed = 0;

    Queue()
    {
        std::memset(static_cast<void *>(this), 0, sizeof *this);
        weir_dev_control_begin(&control, WAIT_NS);
        fifo.control = &control;
        fifo.credits = &credits;
        fifo.head = &head;
        fifo.slots = slots;
        fifo.tail = &tail;
        fifo.count = count;
    }

    // A request whose words all depend on `number`.
    static weir_request request(uint64_t number)
    {
        weir_request r = {};
        r.type = static_cast<uint16_t>(WEIR_REQUEST_USER + number);
        r.remote = static_cast<uint32_t>(number * 3);
        r.remote_offset = number * 5;
        r.local_offset = number * 7;
        r.bytes = number * 11;
        r.value = number;
        return r;
    }
    uint64_t push(uint64_t number)
    {
        uint64_t ticket = 0;
        weir_request r = request(number);
        failed |= weir_dev_fifo_push(&fifo, &r, &ticket) != WEIR_OK;
        return ticket;
    }
    // Takes the next request and returns its number; fails if it is not whole or does not arrive.
    uint64_t take()
    {
        weir_request r;
        weir_spin spin = weir_spin_begin();
        while (!weir_dev_fifo_read(slots, count, next, &r)) {
            if (weir_spin_next(&spin, &control) != WEIR_OK) {
                failed = 1;
                return 0;
            }
        }
        next++;
        weir_request right = request(r.value);
        failed |= std::memcmp(&right, &r, sizeof r) != 0;
        return r.value;
    }
    void complete() { weir_arch_store_release_sys_u64(&tail, next); }
};

// The thread that takes a request sees data written before its push.
struct PushData : Queue<2> {
    static constexpr uint32_t threads = 2;
    static uint32_t device(uint32_t i) { return i; }
    uint64_t seen = 0;

    void thread(uint32_t i)
    {
        if (i == 0) {
            write(data[0], 7);
            push(1);
        } else {
            take();
            seen = read(data[0]);
        }
    }
    bool right() const { return failed == 0 && seen == 7; }
};

TEST(LitmusFifo, PushOrdersData) { holds<PushData>(QUEUE_ORDERS); }

// After the wait for a ticket, the host's writes before completion are visible.
struct TicketData : Queue<2> {
    static constexpr uint32_t threads = 2;
    static uint32_t device(uint32_t i) { return i; }
    uint64_t seen = 0;

    void thread(uint32_t i)
    {
        if (i == 0) {
            uint64_t ticket = push(1);
            failed |= weir_dev_fifo_wait(&fifo, ticket) != WEIR_OK;
            seen = read(data[0]);
        } else {
            take();
            write(data[0], 7);
            complete();
        }
    }
    bool right() const { return failed == 0 && seen == 7; }
};

TEST(LitmusFifo, TicketsOrderData) { holds<TicketData>(QUEUE_ORDERS); }

struct TicketTest : TicketData {
    void thread(uint32_t i)
    {
        if (i == 0) {
            uint64_t ticket = push(1);
            weir_status status = WEIR_PENDING;
            while (status == WEIR_PENDING) {
                status = weir_dev_fifo_test(&fifo, ticket);
            }
            failed |= status != WEIR_OK;
            seen = read(data[0]);
        } else {
            TicketData::thread(i);
        }
    }
};

TEST(LitmusFifo, TestedTicketsOrderData) { holds<TicketTest>(QUEUE_ORDERS); }

// Three threads push eight requests through two slots: each arrives once and whole, and a thread's requests in order.
struct Laps : Queue<2> {
    static constexpr uint32_t threads = 4;
    static uint32_t device(uint32_t i) { return i == 3; }
    uint64_t taken[3] = {};

    void thread(uint32_t i)
    {
        if (i < 3) {
            for (uint64_t k = 0; k < (i == 0 ? 2 : 3); k++) {
                push(10 * i + k);
            }
            return;
        }
        for (uint32_t k = 0; k < 8 && failed == 0; k++) {
            uint64_t number = take();
            failed |= number / 10 > 2 || taken[number / 10]++ != number % 10;
            complete();
        }
    }
    bool right() const { return failed == 0 && taken[0] == 2 && taken[1] == 3 && taken[2] == 3; }
};

TEST(LitmusFifo, RequestsComeOnceAndWhole) { holds<Laps>(QUEUE_ORDERS | WEIRT_WEAK_NO_ATOMIC); }

// A push that begins after another push has returned, in a thread that knows of it, arrives later.
struct Order : Queue<4> {
    static constexpr uint32_t threads = 3;
    static uint32_t device(uint32_t i) { return i == 2; }
    uint64_t flag = 0;
    uint64_t first = 0;

    void thread(uint32_t i)
    {
        if (i == 0) {
            push(1);
            weir_arch_store_release_dev_u64(&flag, 1);
        } else if (i == 1) {
            while (weir_arch_load_acquire_dev_u64(&flag) == 0) {
                weir_arch_relax(1);
            }
            push(2);
        } else {
            first = take();
        }
    }
    bool right() const { return failed == 0 && first == 1; }
};

TEST(LitmusFifo, PushesThatKnowOfAnotherComeLater) { holds<Order>(0); }

// A channel with one credit: its two pushers take turns, and each sees the host's writes for its request.
struct Channel : Queue<4> {
    static constexpr uint32_t threads = 3;
    static uint32_t device(uint32_t i) { return i == 2; }
    weir_dev_credits own = {};
    weir_dev_progress progress = {};
    weir_dev_proxy_channel channel = {};
    uint64_t seen[2] = {};

    Channel()
    {
        channel.fifo = fifo;
        channel.credits = &own;
        channel.progress = &progress;
        channel.limit = 1;
        channel.id = 9;
    }
    void thread(uint32_t i)
    {
        if (i < 2) {
            uint64_t ticket = 0;
            weir_request r = request(i);
            write(data[i], 5 + i);
            failed |= weir_dev_proxy_channel_push(&channel, &r, &ticket) != WEIR_OK ||
                      weir_dev_proxy_channel_wait(&channel, ticket) != WEIR_OK;
            seen[i] = read(data[2 + i]);
            return;
        }
        for (uint64_t k = 1; k <= 2; k++) {
            weir_request r = {};
            weir_spin spin = weir_spin_begin();
            while (!weir_dev_fifo_read(slots, 4, next, &r)) {
                if (weir_spin_next(&spin, &control) != WEIR_OK) {
                    failed = 1;
                    return;
                }
            }
            next++;
            failed |= r.channel != 9 || r.value > 1;
            complete();
            write(data[2 + r.value % 2], read(data[r.value % 2]) * 10);
            weir_arch_store_release_sys_u64(&progress.returned, k);
            weir_arch_store_release_sys_u64(&progress.done, k);
        }
    }
    bool right() const { return failed == 0 && seen[0] == 50 && seen[1] == 60; }
};

TEST(LitmusFifo, ChannelsOrderData) { holds<Channel>(QUEUE_ORDERS); }

// A ticket promises nothing about later pushes.
struct LaterData : Queue<4> {
    static constexpr uint32_t threads = 2;
    static uint32_t device(uint32_t i) { return i; }
    uint64_t seen = 0;

    void thread(uint32_t i)
    {
        if (i == 0) {
            push(1);
            write(data[0], 7);
        } else {
            take();
            seen = weir_arch_load_relaxed_sys_u64(&data[0]);
        }
    }
    bool right() const { return seen == 7; }
};

TEST(LitmusFifo, DataAfterAPushIsNotOrderedByIt) { fails<LaterData>(); }

} // namespace
