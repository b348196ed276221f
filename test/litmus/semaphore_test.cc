// Promises of signal, wait and their forms; docs/memory-ordering.md.
#include "test/litmus/litmus.h"

namespace {

using namespace litmus;

constexpr uint32_t SIGNAL_ORDERS = WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE | WEIRT_WEAK_NO_SYSTEM;

// Rank i is thread i, on device i.
struct TwoRanks : Pair {
    static constexpr uint32_t threads = 2;
    static uint32_t device(uint32_t i) { return i; }
};

// Puts three words and signals; the peer waits and reads them. Subclasses choose the calls.
struct Passing : TwoRanks {
    uint64_t seen[3] = {};

    void send_data()
    {
        for (uint64_t i = 0; i < 3; i++) {
            write(rank[0].data[i], 7 + i);
        }
        check(weir_dev_memory_channel_put(&rank[0].channel, 8, 0, 24, thread_coop()));
    }
    void read_data()
    {
        for (int i = 2; i >= 0; i--) {
            seen[i] = read(rank[1].data[1 + i]);
        }
    }
    bool right() const { return failed == 0 && seen[0] == 7 && seen[1] == 8 && seen[2] == 9; }
};

struct SignalWait : Passing {
    void thread(uint32_t i)
    {
        if (i == 0) {
            send_data();
            weir_dev_memory_channel_signal(&rank[0].channel);
        } else {
            check(weir_dev_memory_channel_wait(&rank[1].channel));
            read_data();
        }
    }
};

TEST(LitmusSemaphore, SignalWaitOrdersData) { holds<SignalWait>(SIGNAL_ORDERS); }

struct SignalPoll : Passing {
    void thread(uint32_t i)
    {
        if (i == 0) {
            send_data();
            weir_dev_memory_channel_signal(&rank[0].channel);
            return;
        }
        weir_status status = WEIR_PENDING;
        while (status == WEIR_PENDING) {
            status = weir_dev_memory_channel_poll(&rank[1].channel);
        }
        check(status);
        read_data();
    }
};

TEST(LitmusSemaphore, SignalPollOrdersData) { holds<SignalPoll>(SIGNAL_ORDERS); }

struct RelaxedSignal : Passing {
    void thread(uint32_t i)
    {
        if (i == 0) {
            send_data();
            weir_dev_memory_channel_signal_relaxed(&rank[0].channel);
        } else {
            check(weir_dev_memory_channel_wait(&rank[1].channel));
            read_data();
        }
    }
};

TEST(LitmusSemaphore, RelaxedSignalOrdersNoData) { fails<RelaxedSignal>(); }

struct RelaxedWait : Passing {
    void thread(uint32_t i)
    {
        if (i == 0) {
            send_data();
            weir_dev_memory_channel_signal(&rank[0].channel);
        } else {
            check(weir_dev_memory_channel_wait_relaxed(&rank[1].channel));
            read_data();
        }
    }
};

TEST(LitmusSemaphore, RelaxedWaitOrdersNoData) { fails<RelaxedWait>(); }

// Counts that one thread holds in registers.
struct Counted : Passing {
    bool relaxed = false;

    void thread(uint32_t i)
    {
        const weir_dev_memory_channel *channel = &rank[i].channel;
        weir_dev_semaphore_counts counts = weir_dev_semaphore_begin(&channel->semaphore);
        if (i == 0) {
            weir_dev_semaphore_signal_counted(&channel->semaphore, &counts);
            send_data();
            if (relaxed) {
                weir_dev_semaphore_signal_counted_relaxed(&channel->semaphore, &counts);
            } else {
                weir_dev_semaphore_signal_counted(&channel->semaphore, &counts);
            }
        } else {
            check(weir_dev_semaphore_wait_counted(&channel->semaphore, &counts));
            check(weir_dev_semaphore_wait_counted(&channel->semaphore, &counts));
            read_data();
        }
        weir_dev_semaphore_end(&channel->semaphore, &counts);
    }
    bool right() const
    {
        return Passing::right() && rank[0].sent[0].words[0] == 2 && rank[1].expected[0].words[0] == 2;
    }
};

TEST(LitmusSemaphore, CountedSignalWaitOrdersData) { holds<Counted>(SIGNAL_ORDERS); }

struct CountedRelaxed : Counted {
    CountedRelaxed() { relaxed = true; }
};

TEST(LitmusSemaphore, CountedRelaxedOrdersNoData) { fails<CountedRelaxed>(); }

// The peer reads and signals this; then its memory is written again.
struct Reuse : TwoRanks {
    uint64_t seen[2] = {};

    void thread(uint32_t i)
    {
        const weir_dev_memory_channel *channel = &rank[i].channel;
        for (uint64_t n = 0; n < 2; n++) {
            if (i == 0) {
                write(rank[0].data[0], 10 + n);
                check(weir_dev_memory_channel_put(channel, 0, 0, 8, thread_coop()));
                weir_dev_memory_channel_signal(channel);
                check(weir_dev_memory_channel_wait(channel));
            } else {
                check(weir_dev_memory_channel_wait(channel));
                seen[n] = read(rank[1].data[0]);
                weir_dev_memory_channel_signal(channel);
            }
        }
    }
    bool right() const { return failed == 0 && seen[0] == 10 && seen[1] == 11; }
};

TEST(LitmusSemaphore, ReadsAreDoneBeforeASignal) { holds<Reuse>(SIGNAL_ORDERS); }

// The same with a get: the peer may write again only after it.
struct GetReuse : TwoRanks {
    uint64_t seen[2] = {};

    void thread(uint32_t i)
    {
        const weir_dev_memory_channel *channel = &rank[i].channel;
        for (uint64_t n = 0; n < 2; n++) {
            if (i == 0) {
                write(rank[0].data[0], 10 + n);
                weir_dev_memory_channel_signal(channel);
                check(weir_dev_memory_channel_wait(channel));
            } else {
                check(weir_dev_memory_channel_wait(channel));
                check(weir_dev_memory_channel_get(channel, 0, 8 * n, 8, thread_coop()));
                seen[n] = read(rank[1].data[n]);
                weir_dev_memory_channel_signal(channel);
            }
        }
    }
    bool right() const { return failed == 0 && seen[0] == 10 && seen[1] == 11; }
};

TEST(LitmusSemaphore, GetsAreDoneBeforeASignal) { holds<GetReuse>(SIGNAL_ORDERS); }

// Each side writes to the other, and reads the other's word before it waits.
struct StoreBuffering : TwoRanks {
    uint64_t seen[2] = {};

    void thread(uint32_t i)
    {
        check(weir_dev_memory_channel_write_u64(&rank[i].channel, 0, 1));
        weir_dev_memory_channel_signal(&rank[i].channel);
        seen[i] = weir_dev_memory_channel_poll(&rank[i].channel) == WEIR_OK;
    }
    bool right() const { return seen[0] == 1 || seen[1] == 1; }
};

TEST(LitmusSemaphore, BothPollsMayMissTheOtherSignal) { fails<StoreBuffering>(); }

// Three ranks: 0 writes to 2 and signals 1, which signals 2.
struct Chain {
    static constexpr uint32_t threads = 3;
    static uint32_t device(uint32_t i) { return i; }
    Pair first;  // ranks 0 and 1
    Pair second; // ranks 1 and 2
    uint64_t data = 0;
    uint64_t seen = 0;

    void thread(uint32_t i)
    {
        if (i == 0) {
            write(data, 5);
            weir_dev_memory_channel_signal(&first.rank[0].channel);
        } else if (i == 1) {
            first.check(weir_dev_memory_channel_wait(&first.rank[1].channel));
            weir_dev_memory_channel_signal(&second.rank[0].channel);
        } else {
            first.check(weir_dev_memory_channel_wait(&second.rank[1].channel));
            seen = read(data);
        }
    }
    bool right() const { return first.failed == 0 && seen == 5; }
};

TEST(LitmusSemaphore, SignalsCarryWhatTheSignallerWaitedFor) { holds<Chain>(SIGNAL_ORDERS); }

// Two threads of rank 0 each write and signal; threads 0 and 1 are rank 0's, thread 2 is rank 1's.
struct Signallers : Pair {
    static constexpr uint32_t threads = 3;
    static uint32_t device(uint32_t i) { return i / 2; }
    int waits = 2;
    uint64_t seen[2] = {};

    void thread(uint32_t i)
    {
        if (i < 2) {
            write(rank[1].data[i], 20 + i);
            weir_dev_memory_channel_signal(&rank[0].channel);
            return;
        }
        for (int n = 0; n < waits; n++) {
            check(weir_dev_memory_channel_wait(&rank[1].channel));
        }
        seen[0] = read(rank[1].data[0]);
        seen[1] = read(rank[1].data[1]);
    }
    bool right() const { return failed == 0 && seen[0] == 20 && seen[1] == 21; }
};

TEST(LitmusSemaphore, AsManyWaitsAsSignallersHaveTheDataOfAll)
{
    holds<Signallers>(SIGNAL_ORDERS | WEIRT_WEAK_NO_ATOMIC);
}

struct OneOfTwo : Signallers {
    OneOfTwo() { waits = 1; }
};

TEST(LitmusSemaphore, OneWaitDoesNotTellWhichRankSignalled) { fails<OneOfTwo>(); }

// Relaxed signals count like others.
struct RelaxedCount : Pair {
    static constexpr uint32_t threads = 3;
    static uint32_t device(uint32_t i) { return i / 2; }
    weir_status after = WEIR_OK;

    void thread(uint32_t i)
    {
        for (int n = 0; n < 2; n++) {
            if (i < 2) {
                weir_dev_memory_channel_signal_relaxed(&rank[0].channel);
            } else {
                check(weir_dev_memory_channel_wait_relaxed(&rank[1].channel));
                check(weir_dev_memory_channel_wait_relaxed(&rank[1].channel));
            }
        }
        if (i == 2) {
            after = weir_dev_memory_channel_poll(&rank[1].channel);
        }
    }
    bool right() const { return failed == 0 && after == WEIR_PENDING; }
};

TEST(LitmusSemaphore, RelaxedSignalsAreCounted) { holds<RelaxedCount>(WEIRT_WEAK_NO_SYSTEM | WEIRT_WEAK_NO_ATOMIC); }

// A token in host memory is stored, not added to. Threads 0 to 2 belong to a GPU; thread 3 is the host, which reads the
// token as weir_semaphore_wait does.
struct ToHost : Pair {
    static constexpr uint32_t threads = 4;
    static uint32_t device(uint32_t i) { return i / 3; }
    uint64_t seen[3] = {};

    ToHost() { rank[0].channel.semaphore.to_host = 1; }
    void thread(uint32_t i)
    {
        if (i < 3) {
            write(rank[1].data[i], 20 + i);
            weir_dev_memory_channel_signal(&rank[0].channel);
            return;
        }
        uint32_t tries = 0;
        while (weir_arch_load_acquire_sys_u64(&rank[1].inbound[0].words[0]) < 3 && tries < 1000) {
            weir_arch_relax(++tries);
        }
        check(tries < 1000 ? WEIR_OK : WEIR_ERR_TIMEOUT);
        for (uint32_t k = 0; k < 3; k++) {
            seen[k] = read(rank[1].data[k]);
        }
    }
    bool right() const
    {
        return failed == 0 && seen[0] == 20 && seen[1] == 21 && seen[2] == 22 && rank[1].inbound[0].words[0] == 3;
    }
};

TEST(LitmusSemaphore, SignalsToTheHostEndAtTheirCount) { holds<ToHost>(SIGNAL_ORDERS | WEIRT_WEAK_NO_ATOMIC); }

// Single values: two writes to one place are seen in order, two writes to different places need not be.
struct OnePlace : TwoRanks {
    uint64_t seen[2] = {};

    void thread(uint32_t i)
    {
        for (uint64_t n = 0; n < 2; n++) {
            if (i == 0) {
                check(weir_dev_memory_channel_write_u64(&rank[0].channel, 3, 1 + n));
            } else {
                seen[n] = weir_arch_load_relaxed_sys_u64(&rank[1].data[3]);
            }
        }
    }
    bool right() const { return failed == 0 && seen[1] >= seen[0]; }
};

TEST(LitmusValues, OnePlaceIsSeenInOrder) { holds<OnePlace>(WEIRT_WEAK_NO_SYSTEM); }

struct TwoPlaces : TwoRanks {
    uint64_t seen[2] = {};

    void thread(uint32_t i)
    {
        for (uint64_t n = 0; n < 2; n++) {
            if (i == 0) {
                check(weir_dev_memory_channel_write_u64(&rank[0].channel, 3 + n, 1));
            } else {
                seen[n] = weir_arch_load_relaxed_sys_u64(&rank[1].data[4 - n]);
            }
        }
    }
    bool right() const { return failed == 0 && seen[1] >= seen[0]; }
};

TEST(LitmusValues, TwoPlacesAreNot) { fails<TwoPlaces>(); }

} // namespace
