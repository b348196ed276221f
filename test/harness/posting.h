/* posting.h - threads that post to a queue of four blocks (weir/device/rdma.h), and a NIC that carries out their posts;
 * C++ only. test/litmus runs them in its simulated memory, test/device as threads of this machine.
 *
 * A program is a struct. It has `threads` threads on the devices that device() gives; the last thread is the NIC.
 * thread(i) is the body of thread i, right() says whether the run was correct. The peer's memory is one word for each
 * poster and one for signals. Each word counts: a value that the NIC is to write must be the present value plus 1. This
 * detects a put that is lost, repeated, too early or incomplete. The NIC checks the doorbell, and separately the
 * record. Positions begin where their low 16 bits wrap around. A put may also be a notice (weir/device/rdma_notice.h):
 * the NIC then waits for a receive, of which there are two. Collapsed<Program> has collapsed completions. */
#ifndef WEIRT_POSTING_H
#define WEIRT_POSTING_H

#include <cstdint>
#include <cstring>

#include "weir/device/impl/rdma_close.h"
#include "weir/device/rdma.h"
#include "weir/device/rdma_notice.h"

namespace posting {

constexpr uint32_t BLOCKS = 4;
constexpr uint64_t START = 0x1fffe;
constexpr uint32_t POSTERS_MAX = 3;
constexpr uint32_t SIGNALS = POSTERS_MAX; // the word of signals
constexpr uint32_t PUTS_MAX = 6;          // of a poster
constexpr uint32_t PAIR = 0xabc;
constexpr uint32_t PEERS_PAIR = 0xdef;
constexpr uint32_t RECEIVES = 2;
constexpr uint32_t REMOTE_KEY = 0x111;
constexpr uint32_t LOCAL_KEY = 0x222;
constexpr uint32_t REFUSED = 0x13;
constexpr uint32_t FLUSHED = 0x05;

struct Queue {
    weir_dev_control control;
    weir_dev_rdma_state state;
    weir_dev_rdma queue;
    alignas(64) uint64_t blocks[BLOCKS][8];
    alignas(64) uint32_t completions[BLOCKS][16];
    alignas(64) uint32_t record;
    alignas(64) uint32_t completion_record;
    alignas(64) uint64_t doorbell;
    alignas(64) uint64_t peer[POSTERS_MAX + 1];
    uint64_t source[POSTERS_MAX * PUTS_MAX];
    bool wrong[POSTERS_MAX + 1]; // of each thread

    // Of the peer's queue pair:
    weir_dev_rdma_receives receives;
    weir_dev_rdma_inbox inbox;
    alignas(64) uint32_t notices[RECEIVES][16];
    alignas(64) uint32_t receive_record;
    alignas(64) uint32_t inbox_record;
    alignas(64) uint64_t posted;
    uint64_t taken;

    // Of the NIC:
    uint64_t received;
    uint64_t last_doorbell;
    uint64_t completed; // entries of the completion queue
    uint64_t fails_at;  // position of the entry that fails; 0: none
    uint64_t busy;      // the NIC ends when this is 0

    Queue()
    {
        std::memset(static_cast<void *>(this), 0, sizeof *this);
        weir_dev_control_begin(&control, 5000000000u);
        busy = 1;
        state.ready = state.completed = state.reserved = state.rung = START;
        last_doorbell = doorbell = weir_mlx5_doorbell(START, PAIR);
        record = weir_mlx5_record(START);
        for (auto &completion : completions) {
            completion[15] = WEIR_MLX5_NONE << 28;
        }
        queue.control = &control;
        queue.state = &state;
        queue.queue = reinterpret_cast<char *>(blocks);
        queue.record = &record;
        queue.doorbell = &doorbell;
        queue.completions = reinterpret_cast<const char *>(completions);
        queue.completion_record = &completion_record;
        queue.count = BLOCKS;
        queue.completion_count = BLOCKS;
        queue.qpn = PAIR;
        for (auto &notice : notices) {
            notice[15] = WEIR_MLX5_NONE << 28;
        }
        posted = received = START;
        receive_record = weir_mlx5_record(START);
        receives.posted = &posted;
        receives.record = &receive_record;
        inbox.control = &control;
        inbox.taken = &taken;
        inbox.completions = reinterpret_cast<const char *>(notices);
        inbox.completion_record = &inbox_record;
        inbox.count = RECEIVES;
    }
    Queue(const Queue &) = delete;
    Queue &operator=(const Queue &) = delete;

    bool fine() const
    {
        bool all = true;
        for (bool one : wrong) {
            all = all && !one;
        }
        return all;
    }

    // ---- posters ----

    void check(uint32_t poster, bool right) { wrong[poster] = wrong[poster] || !right; }
    weir_dev_rdma_memory remote(uint32_t word) const
    {
        return { reinterpret_cast<uint64_t>(&peer[word]), REMOTE_KEY, 0 };
    }
    // The poster's put `number`, from 1: a value, or a word that it has just written.
    weir_dev_rdma_entry put(uint32_t poster, uint64_t number)
    {
        if (number % 2 == 0) {
            return weir_dev_rdma_inline(remote(poster), number, 8);
        }
        uint64_t *from = &source[poster * PUTS_MAX + number - 1];
        weir_arch_store_u64(from, number);
        return weir_dev_rdma_transfer(WEIR_MLX5_WRITE, remote(poster),
                                      { reinterpret_cast<uint64_t>(from), LOCAL_KEY, 0 }, 8);
    }
    weir_status post(uint32_t poster, uint64_t number, uint32_t flags, uint64_t *ticket = nullptr)
    {
        const weir_dev_rdma_entry entry = put(poster, number);
        return weir_dev_rdma_post(&queue, &entry, flags, ticket);
    }
    // A wait for all puts up to `number` that must succeed.
    void await(uint32_t poster, uint64_t ticket, uint64_t number)
    {
        check(poster, weir_dev_rdma_wait(&queue, ticket) == WEIR_OK && weir_arch_load_u64(&peer[poster]) == number);
    }

    // ---- the NIC ----

    bool collapsed() const { return queue.completion_count == WEIR_RDMA_COLLAPSED; }
    void complete(uint64_t position, uint32_t kind, uint32_t syndrome)
    {
        uint32_t *entry = completions[collapsed() ? 0 : completed % BLOCKS];
        const uint32_t returned = weir_arch_swap_u32(weir_arch_load_relaxed_sys_u32(&completion_record));
        check(POSTERS_MAX, collapsed() ? returned == 0 : completed - returned < BLOCKS);
        weir_arch_store_relaxed_sys_u32(entry + 13, syndrome << 24);
        weir_arch_store_release_sys_u32(entry + 15, kind << 28 | (completed / BLOCKS % 2) << 24 |
                                                        weir_arch_swap_u32((uint32_t)(position & 0xffff)) >> 16);
        completed++;
    }
    // Waits for a receive; the inbox then has room, too.
    void await_receive()
    {
        weir_spin spin = weir_spin_begin();
        int left = 0;
        while ((left = distance(weir_arch_swap_u32(weir_arch_load_acquire_sys_u32(&receive_record)), received)) == 0 &&
               !wrong[POSTERS_MAX]) {
            check(POSTERS_MAX, weir_spin_next(&spin, &control) == WEIR_OK);
        }
        const uint32_t returned = weir_arch_swap_u32(weir_arch_load_relaxed_sys_u32(&inbox_record));
        check(POSTERS_MAX, left > 0 && left <= static_cast<int>(RECEIVES));
        check(POSTERS_MAX, received - START - returned < RECEIVES);
    }
    void notify(uint32_t immediate)
    {
        uint32_t *entry = notices[received % RECEIVES];
        weir_arch_store_relaxed_sys_u32(entry + 9, weir_arch_swap_u32(immediate));
        weir_arch_store_relaxed_sys_u32(entry + 11, weir_arch_swap_u32(8));
        weir_arch_store_relaxed_sys_u32(entry + 14, weir_arch_swap_u32(PEERS_PAIR));
        weir_arch_store_release_sys_u32(entry + 15, WEIR_MLX5_RECEIVED << 28 | ((received - START) / RECEIVES % 2)
                                                                                   << 24);
        received++;
    }
    void carry_out(uint64_t position)
    {
        uint64_t words[6]; // three segments
        for (uint32_t i = 0; i < 6; i++) {
            words[i] = weir_arch_load_u64(&blocks[position % BLOCKS][i]);
        }
        const bool reports = (weir_arch_swap_u32((uint32_t)words[1]) & WEIR_MLX5_COMPLETE) != 0;
        const bool notifies = (words[0] >> 24 & 0xff) == WEIR_MLX5_WRITE_IMMEDIATE;
        const uint32_t immediate = notifies ? weir_arch_swap_u32((uint32_t)(words[1] >> 32)) : 0;
        const weir_vec16 expected =
            weir_mlx5_with_immediate(weir_mlx5_control(notifies ? WEIR_MLX5_WRITE_IMMEDIATE : WEIR_MLX5_WRITE, position,
                                                       PAIR, 3, reports ? WEIR_MLX5_COMPLETE : 0),
                                     immediate);
        uint64_t *to = reinterpret_cast<uint64_t *>(weir_arch_swap_u64(words[2]));
        if (words[0] != expected.lo || words[1] != expected.hi || to < peer || to >= peer + POSTERS_MAX + 1 ||
            (uint32_t)words[3] != weir_arch_swap_u32(REMOTE_KEY)) {
            check(POSTERS_MAX, false);
            return;
        }
        uint64_t value = words[4] >> 32 | words[5] << 32;
        if ((uint32_t)words[4] != weir_arch_swap_u32(0x80000000u | 8)) {
            const uint64_t *from = reinterpret_cast<const uint64_t *>(weir_arch_swap_u64(words[5]));
            if (from < source || from >= source + POSTERS_MAX * PUTS_MAX) {
                check(POSTERS_MAX, false);
                return;
            }
            value = weir_arch_load_u64(from);
        }
        if (notifies) {
            await_receive();
        }
        check(POSTERS_MAX, value == weir_arch_load_u64(to) + 1);
        weir_arch_store_u64(to, value);
        if (notifies) {
            notify(immediate);
        }
        if (reports) {
            complete(position, WEIR_MLX5_DONE, 0);
        }
    }
    static int distance(uint32_t to, uint64_t from) { return static_cast<int16_t>(to - static_cast<uint32_t>(from)); }
    // The number of entries from `next` on of which the NIC has been notified.
    int notified(uint64_t next)
    {
        const uint64_t bell = weir_arch_load_acquire_sys_u64(&doorbell);
        if (bell != last_doorbell) {
            const uint32_t limit = weir_arch_swap_u32((uint32_t)bell) >> 8;
            const uint32_t recorded = weir_arch_swap_u32(weir_arch_load_relaxed_sys_u32(&record));
            check(POSTERS_MAX, bell >> 32 == weir_arch_swap_u32(PAIR << 8));
            check(POSTERS_MAX, distance(limit, weir_arch_swap_u32((uint32_t)last_doorbell) >> 8) > 0);
            check(POSTERS_MAX, distance(recorded, limit) >= 0);
            last_doorbell = bell;
            return distance(limit, next);
        }
        return distance(weir_arch_swap_u32(weir_arch_load_acquire_sys_u32(&record)), next);
    }
    // Carries out `count` entries. Ends early on an error, after a failure, or when no poster is busy.
    void serve(uint64_t count)
    {
        weir_spin spin = weir_spin_begin();
        uint64_t next = START;
        while (next < START + count && !wrong[POSTERS_MAX] && weir_arch_load_relaxed_sys_u64(&busy) != 0) {
            const int more = notified(next);
            check(POSTERS_MAX, more <= static_cast<int>(BLOCKS));
            for (int i = 0; i < more && !wrong[POSTERS_MAX]; i++, next++) {
                if (fails_at != 0 && next >= fails_at) {
                    complete(next, WEIR_MLX5_FAILED, next == fails_at ? REFUSED : FLUSHED);
                } else {
                    carry_out(next);
                }
            }
            if (fails_at != 0 && next > fails_at) {
                return;
            }
            if (more <= 0) {
                check(POSTERS_MAX, weir_spin_next(&spin, &control) == WEIR_OK);
            }
        }
    }
};

// Each poster puts three times, and rings and waits only for the last put: a thread that waits for room rings for all.
template <uint32_t posters> struct Laps : Queue {
    static constexpr uint32_t threads = posters + 1;
    static uint32_t device(uint32_t i) { return i == posters; }

    void thread(uint32_t i)
    {
        if (i == posters) {
            serve(3 * posters);
            return;
        }
        uint64_t ticket = 0;
        check(i, post(i, 1, 0) == WEIR_OK);
        check(i, post(i, 2, 0) == WEIR_OK);
        check(i, post(i, 3, WEIR_RDMA_RING | WEIR_RDMA_SIGNALLED, &ticket) == WEIR_OK);
        await(i, ticket, 3);
    }
    bool right() const
    {
        bool all = fine();
        for (uint32_t i = 0; i < posters; i++) {
            all = all && peer[i] == 3;
        }
        return all;
    }
};

// Laps by one thread with an exclusive queue.
struct Own : Queue {
    static constexpr uint32_t threads = 2;
    static uint32_t device(uint32_t i) { return i; }

    Own() { queue.exclusive = 1; }
    void thread(uint32_t i)
    {
        if (i == 1) {
            serve(2 * PUTS_MAX);
            return;
        }
        uint64_t ticket = 0;
        for (uint64_t k = 1; k <= PUTS_MAX; k++) {
            check(0, post(0, k, k % 2 == 0 ? WEIR_RDMA_RING : 0) == WEIR_OK);
            check(0, weir_dev_rdma_signal(&queue, remote(SIGNALS), WEIR_RDMA_RING | WEIR_RDMA_SIGNALLED, &ticket) ==
                         WEIR_OK);
        }
        await(0, ticket, PUTS_MAX);
    }
    bool right() const { return fine() && peer[0] == PUTS_MAX && peer[SIGNALS] == PUTS_MAX; }
};

// One thread with an exclusive queue and its counts in registers. Without a ring it waits for room, and rings.
struct Counted : Queue {
    static constexpr uint32_t threads = 2;
    static uint32_t device(uint32_t i) { return i; }

    Counted() { queue.exclusive = 1; }
    void thread(uint32_t i)
    {
        if (i == 1) {
            serve(PUTS_MAX);
            return;
        }
        uint64_t ticket = 0;
        weir_dev_rdma_counts counts = weir_dev_rdma_begin(&queue);
        for (uint64_t k = 1; k <= PUTS_MAX; k++) {
            const weir_dev_rdma_entry entry = put(0, k);
            const uint32_t flags = k == PUTS_MAX ? WEIR_RDMA_RING | WEIR_RDMA_SIGNALLED : 0;
            check(0, weir_dev_rdma_post_counted(&queue, &counts, &entry, flags, &ticket) == WEIR_OK);
        }
        weir_dev_rdma_end(&queue, &counts);
        await(0, ticket, PUTS_MAX);
    }
    bool right() const
    {
        return fine() && peer[0] == PUTS_MAX && state.ready == START + PUTS_MAX && state.rung == state.ready;
    }
};

// Each poster puts and signals twice.
template <uint32_t posters> struct Signals : Queue {
    static constexpr uint32_t threads = posters + 1;
    static uint32_t device(uint32_t i) { return i == posters; }

    void thread(uint32_t i)
    {
        if (i == posters) {
            serve(4 * posters);
            return;
        }
        uint64_t ticket = 0;
        for (uint64_t k = 1; k <= 2; k++) {
            const weir_dev_rdma_entry entry = put(i, k);
            check(i, weir_dev_rdma_signal_after(&queue, &entry, remote(SIGNALS), WEIR_RDMA_RING | WEIR_RDMA_SIGNALLED,
                                                &ticket) == WEIR_OK);
        }
        await(i, ticket, 2);
    }
    bool right() const { return fine() && peer[0] == 2 && peer[1] == 2 && peer[SIGNALS] == 2 * posters; }
};

// One poster does not ring; another, which knows of that post, rings.
struct RungByAnother : Queue {
    static constexpr uint32_t threads = 3;
    static uint32_t device(uint32_t i) { return i == 2; }
    uint64_t flag = 0;

    void thread(uint32_t i)
    {
        if (i == 2) {
            serve(1);
        } else if (i == 0) {
            check(0, post(0, 1, 0) == WEIR_OK);
            weir_arch_store_release_dev_u64(&flag, 1);
        } else {
            weir_spin spin = weir_spin_begin();
            while (weir_arch_load_acquire_dev_u64(&flag) == 0 && !wrong[1]) {
                check(1, weir_spin_next(&spin, &control) == WEIR_OK);
            }
            check(1, weir_dev_rdma_ring(&queue) == WEIR_OK);
        }
    }
    bool right() const { return fine() && peer[0] == 1; }
};

// The NIC fails at the third entry. A thread that waits for an earlier entry learns that it is done, even if another
// thread has already read the failure; but not if a flushed entry's completion has overwritten it. A thread that waits
// for a later entry, or for room, learns of the failure.
template <uint32_t posters> struct Failure : Queue {
    static constexpr uint32_t threads = posters + 1;
    static uint32_t device(uint32_t i) { return i == posters; }

    Failure() { fails_at = START + 2; }
    void thread(uint32_t i)
    {
        if (i == posters) {
            serve(3 * posters);
            return;
        }
        for (uint64_t k = 1; k <= 3; k++) {
            uint64_t ticket = 0;
            const weir_status posted = post(i, k, WEIR_RDMA_RING | WEIR_RDMA_SIGNALLED, &ticket);
            check(i, posted == WEIR_OK || posted == WEIR_ERR_REMOTE);
            if (posted != WEIR_OK) {
                return;
            }
            const weir_status waited = weir_dev_rdma_wait(&queue, ticket);
            if (ticket >= fails_at || (collapsed() && waited != WEIR_OK)) {
                check(i, waited == WEIR_ERR_REMOTE);
            } else {
                check(i, waited == WEIR_OK && weir_arch_load_u64(&peer[i]) == k);
            }
        }
    }
    bool right() const
    {
        uint64_t done = 0;
        for (uint32_t i = 0; i < posters; i++) {
            done += peer[i];
        }
        return fine() && done == 2 &&
               (state.failed == (WEIR_RDMA_FAILED | REFUSED) ||
                (collapsed() && state.failed == (WEIR_RDMA_FAILED | FLUSHED)));
    }
};

// One poster refuses its second put, and the others get no further. Earlier entries are done. A thread that learns of
// the refusal sees the data that the poster wrote before it refused.
template <uint32_t posters> struct Refusal : Queue {
    static constexpr uint32_t threads = posters + 1;
    static uint32_t device(uint32_t i) { return i == posters; }
    uint64_t reason = 0;

    Refusal() { busy = posters; }
    void refuse()
    {
        uint64_t position = 0;
        check(0, weir_dev_rdma_reserve_last(&queue, &position) == WEIR_OK);
        weir_arch_store_u64(&reason, 7);
        weir_dev_rdma_refuse(&queue, position);
        check(0, weir_dev_rdma_wait(&queue, position) == WEIR_ERR_REMOTE);
    }
    void thread(uint32_t i)
    {
        if (i == posters) {
            serve(2 * posters);
            return;
        }
        weir_status status = WEIR_OK;
        for (uint64_t k = 1; k <= 2 && status == WEIR_OK; k++) {
            uint64_t ticket = 0;
            if (i == 0 && k == 2) {
                refuse();
            } else if ((status = post(i, k, WEIR_RDMA_RING | WEIR_RDMA_SIGNALLED, &ticket)) == WEIR_OK) {
                await(i, ticket, k);
            } else {
                check(i, status == WEIR_ERR_REMOTE && weir_arch_load_u64(&reason) == 7);
            }
        }
        weir_arch_add_relaxed_sys_u64(&busy, (uint64_t)-1);
    }
    bool right() const
    {
        uint64_t done = 0;
        for (uint32_t i = 0; i < posters; i++) {
            done += peer[i];
        }
        return fine() && START + done + 1 == state.refused;
    }
};

// Notices to a kernel of the peer, which checks their data before it posts their receives again. One word for each
// receive holds the data, in turn.
struct Notices : Queue {
    static constexpr uint32_t threads = 3;
    static constexpr uint32_t COUNT = 5;
    static uint32_t device(uint32_t i) { return i; }

    void thread(uint32_t i)
    {
        if (i == 2) {
            serve(COUNT);
        } else if (i == 1) {
            take();
        } else {
            for (uint32_t k = 0; k < COUNT; k++) {
                weir_arch_store_u64(&source[k], k / RECEIVES + 1);
                check(0, weir_dev_rdma_put_notify(&queue, remote(k % RECEIVES),
                                                  { reinterpret_cast<uint64_t>(&source[k]), LOCAL_KEY, 0 }, 8, 100 + k,
                                                  WEIR_RDMA_RING, nullptr) == WEIR_OK);
            }
        }
    }
    void take()
    {
        weir_dev_rdma_receive(&receives, RECEIVES);
        for (uint32_t k = 0; k < COUNT && !wrong[1]; k++) {
            weir_dev_rdma_notice notice;
            check(1, weir_dev_rdma_wait_notice(&inbox, &notice) == WEIR_OK);
            check(1, notice.immediate == 100 + k && notice.bytes == 8 && notice.qpn == PEERS_PAIR);
            check(1, weir_arch_load_u64(&peer[k % RECEIVES]) == k / RECEIVES + 1);
            weir_dev_rdma_receive(&receives, 1);
        }
    }
    bool right() const { return fine() && peer[0] == COUNT - COUNT / 2 && peer[1] == COUNT / 2 && taken == COUNT; }
};

template <class Program> struct Collapsed : Program {
    Collapsed() { this->queue.completion_count = WEIR_RDMA_COLLAPSED; }
};

} // namespace posting

#endif
