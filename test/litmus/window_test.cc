// The promises of puts, notifications, waits and the barrier of a window: docs/memory-ordering.md.
#include "weir/device/window.h"

#include "test/harness/window.h"
#include "test/litmus/litmus.h"

namespace {

using namespace litmus;

constexpr uint32_t MAPPED_ORDERS = WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE | WEIRT_WEAK_NO_SYSTEM;
constexpr uint32_t OWN_ORDERS = WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE;
constexpr uint64_t PART = 64;

// A window in which each rank has parts of eight words, and each thread is a rank unless a test says otherwise.
struct Window : windows::World {
    int failed = 0;

    Window(uint32_t devices, uint32_t ranks, uint32_t count, uint64_t stride = PART)
        : World(devices, ranks, count, stride, PART, WAIT_NS)
    {
    }
    void check(weir_status status) { failed |= status != WEIR_OK; }
    // Word `index` of the part of rank `number` in memory 0.
    uint64_t &part(uint32_t number, uint64_t index)
    {
        const uint32_t ranks = window(0)->ranks;
        return word(number / ranks, 0, number % ranks * (PART / 8) + index);
    }
    void put(uint32_t source, uint32_t target, uint64_t index, uint64_t bytes = 8)
    {
        const weir_dev_window_rank self = rank(source);
        check(weir_dev_window_put(&self, target, 0, 8 * index, 0, 8 * index, bytes, thread_coop()));
    }
    void notify(uint32_t source, uint32_t target, uint32_t tag)
    {
        const weir_dev_window_rank self = rank(source);
        check(weir_dev_window_notify(&self, target, tag, thread_coop()));
    }
    void wait(uint32_t number, uint32_t source, uint32_t tag, uint64_t count = 1)
    {
        const weir_dev_window_rank self = rank(number);
        check(weir_dev_window_wait(&self, source, tag, count, thread_coop()));
    }
    weir_dev_notification take(uint32_t number, uint32_t source, uint32_t tag)
    {
        const weir_dev_window_rank self = rank(number);
        weir_dev_notification taken = { WEIR_ANY_RANK, WEIR_ANY_TAG };
        check(weir_dev_window_take(&self, source, tag, &taken, thread_coop()));
        return taken;
    }
};

// Rank 0 puts two words to rank 1 one after the other and notifies; rank 1 waits and reads both. The ranks are on one
// device or on two.
template <bool mapped> struct Notified : Window {
    static constexpr uint32_t threads = 2;
    static uint32_t device(uint32_t i) { return mapped ? i : 0; }
    uint64_t seen[2] = {};

    Notified() : Window(mapped ? 2 : 1, mapped ? 1 : 2, 4) {}
    void send()
    {
        write(part(0, 0), 7);
        write(part(0, 1), 8);
        put(0, 1, 0);
        put(0, 1, 1);
    }
    void receive()
    {
        seen[1] = read(part(1, 1));
        seen[0] = read(part(1, 0));
    }
    void thread(uint32_t i)
    {
        if (i == 0) {
            send();
            notify(0, 1, 3);
        } else {
            wait(1, 0, 3);
            receive();
        }
    }
    bool right() const { return failed == 0 && seen[0] == 7 && seen[1] == 8; }
};

TEST(LitmusWindow, ANotificationFollowsItsPuts)
{
    holds<Notified<true>>(MAPPED_ORDERS);
    holds<Notified<false>>(OWN_ORDERS);
}

template <bool mapped> struct PutNotified : Notified<mapped> {
    void thread(uint32_t i)
    {
        if (i == 0) {
            const weir_dev_window_rank self = this->rank(0);
            write(this->part(0, 0), 7);
            this->put(0, 1, 0);
            write(this->part(0, 1), 8);
            this->check(weir_dev_window_put_notify(&self, 1, 0, 8, 0, 8, 8, 3, thread_coop()));
        } else {
            this->wait(1, WEIR_ANY_RANK, WEIR_ANY_TAG);
            this->receive();
        }
    }
};

TEST(LitmusWindow, APutNotifyFollowsItsDataAndEarlierPuts)
{
    holds<PutNotified<true>>(MAPPED_ORDERS);
    holds<PutNotified<false>>(OWN_ORDERS);
}

struct Polled : Notified<true> {
    void thread(uint32_t i)
    {
        if (i == 0) {
            send();
            notify(0, 1, 3);
            return;
        }
        const weir_dev_window_rank self = rank(1);
        weir_status status = WEIR_PENDING;
        while (status == WEIR_PENDING) {
            status = weir_dev_window_poll(&self, 0, 3, 1, thread_coop());
        }
        check(status);
        receive();
    }
};

TEST(LitmusWindow, APollOrdersDataAsAWaitDoes) { holds<Polled>(MAPPED_ORDERS); }

// The put is for another rank of the device than the notification.
struct EarlierPut : Window {
    static constexpr uint32_t threads = 2;
    static uint32_t device(uint32_t i) { return i; }
    uint64_t seen = 0;

    EarlierPut() : Window(2, 2, 4) {}
    void thread(uint32_t i)
    {
        if (i == 0) {
            write(part(0, 0), 5);
            put(0, 3, 0);
            notify(0, 2, 1);
        } else {
            wait(2, 0, 1);
            seen = read(part(3, 0));
        }
    }
    bool right() const { return failed == 0 && seen == 5; }
};

TEST(LitmusWindow, EarlierPutsToTheDeviceAreThereToo) { holds<EarlierPut>(MAPPED_ORDERS); }

// Rank 0 puts to rank 2 and notifies rank 1, which notifies rank 2.
struct Chain : Window {
    static constexpr uint32_t threads = 3;
    static uint32_t device(uint32_t i) { return i; }
    uint64_t seen = 0;

    Chain() : Window(3, 1, 4) {}
    void thread(uint32_t i)
    {
        if (i == 0) {
            write(part(0, 0), 5);
            put(0, 2, 0);
            notify(0, 1, 1);
        } else if (i == 1) {
            wait(1, 0, 1);
            notify(1, 2, 2);
        } else {
            wait(2, 1, 2);
            seen = read(part(2, 0));
        }
    }
    bool right() const { return failed == 0 && seen == 5; }
};

TEST(LitmusWindow, BetweenMappedDevicesANotificationCarriesWhatItsSourceKnew) { holds<Chain>(MAPPED_ORDERS); }

// Two ranks of device 0 each send five notifications through a ring of `count` words. The waiter takes each rank's in
// their order, and nothing is lost or doubled.
template <uint32_t count> struct Laps : Window {
    static constexpr uint32_t threads = 3;
    static uint32_t device(uint32_t i) { return i == 2; }
    static constexpr uint32_t sends = 5;
    uint32_t next[2] = {};

    Laps() : Window(2, 2, count) {}
    void thread(uint32_t i)
    {
        if (i < 2) {
            for (uint32_t k = 0; k < sends; k++) {
                notify(i, 2, 10 * i + k);
            }
            return;
        }
        for (uint32_t k = 0; k < 2 * sends; k++) {
            receive(take(2, WEIR_ANY_RANK, WEIR_ANY_TAG));
        }
    }
    void receive(weir_dev_notification taken)
    {
        failed |= taken.source > 1 || taken.tag != 10 * taken.source + next[taken.source % 2]++;
    }
    bool right() const { return failed == 0 && next[0] == sends && next[1] == sends; }
};

TEST(LitmusWindow, NotificationsComeOnceAndInTheOrderOfTheirSource)
{
    holds<Laps<2>>(WEIRT_WEAK_NO_ATOMIC | WEIRT_WEAK_NO_RELEASE);
    holds<Laps<4>>(WEIRT_WEAK_NO_ATOMIC);
}

// Rank 0 sends tag 1 and then tag 2 behind data, and rank 1 tag 3; the waiter takes tag 2 before tag 1 and reads the
// data, round after round. Tag 2 is the second word of the ring or the third.
struct Behind : Window {
    static constexpr uint32_t threads = 3;
    static uint32_t device(uint32_t i) { return i == 2; }
    uint64_t seen[2] = {};

    Behind() : Window(2, 2, 4) {}
    void thread(uint32_t i)
    {
        for (uint64_t round = 1; round <= 4; round++) {
            if (i == 0) {
                write(part(0, 0), round);
                put(0, 2, 0);
                notify(0, 2, 1);
                notify(0, 2, 2);
                wait(0, 2, 9);
            } else if (i == 1) {
                write(part(1, 1), round);
                put(1, 2, 1);
                notify(1, 2, 3);
                wait(1, 2, 9);
            } else {
                wait(2, 0, 2);
                seen[0] = seen[0] * 10 + read(part(2, 0));
                wait(2, WEIR_ANY_RANK, 3);
                seen[1] = seen[1] * 10 + read(part(2, 1));
                wait(2, 0, 1);
                notify(2, 0, 9);
                notify(2, 1, 9);
            }
        }
    }
    bool right() const { return failed == 0 && seen[0] == 1234 && seen[1] == 1234; }
};

TEST(LitmusWindow, WordsTakenBehindTheHeadAreSteppedOver) { holds<Behind>(MAPPED_ORDERS | WEIRT_WEAK_NO_ATOMIC); }

// Rank 0 puts data and sends tag 1, which stays in the ring while the waiter takes more notifications of rank 1 than
// the ring has words.
struct Stays : Window {
    static constexpr uint32_t threads = 3;
    static uint32_t device(uint32_t i) { return i == 2; }
    uint64_t seen = 0;

    Stays() : Window(2, 2, 4) {}
    void thread(uint32_t i)
    {
        if (i == 0) {
            write(part(0, 0), 7);
            put(0, 2, 0);
            notify(0, 2, 1);
            return;
        }
        for (uint32_t k = 0; k < 6; k++) {
            if (i == 1) {
                notify(1, 2, 2);
            } else {
                wait(2, 1, 2);
            }
        }
        if (i == 2) {
            wait(2, 0, 1);
            seen = read(part(2, 0));
        }
    }
    bool right() const { return failed == 0 && seen == 7; }
};

TEST(LitmusWindow, WhatStaysKeepsItsPlaceAndItsData) { holds<Stays>(MAPPED_ORDERS | WEIRT_WEAK_NO_ATOMIC); }

// Two groups of device 0 send as its rank 0, each behind its own data. The waiter takes each group's notifications in
// their order, and sees the data of both.
struct OneRank : Window {
    static constexpr uint32_t threads = 3;
    static uint32_t device(uint32_t i) { return i == 2; }
    static constexpr uint32_t sends = 3;
    uint32_t next[2] = {};

    OneRank() : Window(2, 1, 4) {}
    void thread(uint32_t i)
    {
        for (uint32_t k = 0; k < sends && i < 2; k++) {
            const weir_dev_window_rank self = rank(0);
            const uint64_t at = 8 * (sends * i + k);
            write(part(0, at / 8), 10 * i + k);
            check(weir_dev_window_put_notify(&self, 1, 0, at, 0, at, 8, 10 * i + k, thread_coop()));
        }
        for (uint32_t k = 0; k < 2 * sends && i == 2; k++) {
            const weir_dev_notification taken = take(1, 0, WEIR_ANY_TAG);
            const uint32_t group = taken.tag / 10 % 2;
            failed |= taken.source != 0 || taken.tag != 10 * group + next[group] ||
                      read(part(1, sends * group + next[group])) != taken.tag;
            next[group]++;
        }
    }
    bool right() const { return failed == 0 && next[0] == sends && next[1] == sends; }
};

TEST(LitmusWindow, GroupsMaySendAsOneRank) { holds<OneRank>(MAPPED_ORDERS | WEIRT_WEAK_NO_ATOMIC); }

// Rank 1 reads each word before it answers; rank 0 overwrites the source, and puts again, after the answer.
struct Reuse : Window {
    static constexpr uint32_t threads = 2;
    static uint32_t device(uint32_t i) { return i; }
    uint64_t seen[3] = {};

    Reuse() : Window(2, 1, 2) {}
    void thread(uint32_t i)
    {
        for (uint64_t n = 0; n < 3; n++) {
            if (i == 0) {
                write(part(0, 0), 10 + n);
                put(0, 1, 0);
                notify(0, 1, 1);
                wait(0, 1, 2);
            } else {
                wait(1, 0, 1);
                seen[n] = read(part(1, 0));
                notify(1, 0, 2);
            }
        }
    }
    bool right() const { return failed == 0 && seen[0] == 10 && seen[1] == 11 && seen[2] == 12; }
};

TEST(LitmusWindow, ReadsAreDoneBeforeANotification) { holds<Reuse>(MAPPED_ORDERS); }

// Blocks of two threads; thread i of the run is thread i % 2 of device i / 2.
struct Blocks : Window {
    static constexpr uint32_t threads = 4;
    static uint32_t device(uint32_t i) { return i / 2; }
    weirt_weak_block block[2] = {};
    uint64_t seen[4] = {};

    Blocks(uint32_t devices = 2, uint32_t ranks = 1, uint64_t stride = PART) : Window(devices, ranks, 4, stride) {}
    weir_coop coop(uint32_t i)
    {
        weir_coop coop = weir_coop_part(i % 2, 2);
        coop.block_rank = i % 2;
        coop.block_size = 2;
        coop.block = 0;
        coop.blocks = 1;
        coop.scope = WEIR_COOP_BLOCK;
        block[i / 2].threads = 2;
        coop.host = &block[i / 2];
        return coop;
    }
};

// Each thread of a block writes a word that the other one copies, as each copies 16 bytes of 32; each thread of the
// target reads both.
struct GroupPut : Blocks {
    void thread(uint32_t i)
    {
        const weir_dev_window_rank self = at(i / 2, 0);
        if (i < 2) {
            write(part(0, 2 - 2 * i), 5 + i);
            check(weir_dev_window_put_notify(&self, 1, 0, 0, 0, 0, 32, 4, coop(i)));
        } else {
            check(weir_dev_window_wait(&self, 0, 4, 1, coop(i)));
            seen[i] = read(part(1, 2)) * 10 + read(part(1, 0));
        }
    }
    bool right() const { return failed == 0 && seen[2] == 56 && seen[3] == 56; }
};

TEST(LitmusWindow, APutNotifySendsWhatAllThreadsWrote) { holds<GroupPut>(MAPPED_ORDERS | WEIRT_WEAK_NO_BARRIER); }

// put has no barrier. The next notify of the group, or its put_notify of no bytes, covers the parts of all threads; a
// notify of one thread does not.
enum class Speaker { NOTIFY, EMPTY_PUT_NOTIFY, ONE_THREAD };

template <Speaker speaker> struct GroupNotify : Blocks {
    void thread(uint32_t i)
    {
        const weir_dev_window_rank self = at(i / 2, 0);
        if (i < 2) {
            write(part(0, 2 * i), 5 + i);
            check(weir_coop_sync(coop(i)));
            check(weir_dev_window_put(&self, 1, 0, 0, 0, 0, 32, coop(i)));
            if (speaker == Speaker::ONE_THREAD) {
                if (i == 0) {
                    notify(0, 1, 4);
                }
            } else {
                check(speaker == Speaker::NOTIFY ? weir_dev_window_notify(&self, 1, 4, coop(i))
                                                 : weir_dev_window_put_notify(&self, 1, 0, 0, 0, 0, 0, 4, coop(i)));
            }
        } else {
            check(weir_dev_window_wait(&self, 0, 4, 1, coop(i)));
            seen[i] = read(part(1, 0)) * 10 + read(part(1, 2));
        }
    }
    bool right() const { return failed == 0 && seen[2] == 56 && seen[3] == 56; }
};

TEST(LitmusWindow, ANotifyCoversThePutsOfAllThreads)
{
    holds<GroupNotify<Speaker::NOTIFY>>(MAPPED_ORDERS | WEIRT_WEAK_NO_BARRIER);
}

TEST(LitmusWindow, APutNotifyOfNoBytesCoversThePutsOfAllThreads)
{
    holds<GroupNotify<Speaker::EMPTY_PUT_NOTIFY>>(MAPPED_ORDERS | WEIRT_WEAK_NO_BARRIER);
}

// Ranks 0 and 1 of one device have the same part. A put_notify from a place to itself copies nothing, and the other
// rank sees what both threads of the group wrote there.
struct GroupEqual : Blocks {
    static uint32_t device(uint32_t) { return 0; }

    GroupEqual() : Blocks(1, 2, 0) {}
    void thread(uint32_t i)
    {
        const weir_dev_window_rank self = at(0, i / 2);
        if (i < 2) {
            write(word(0, 0, 2 * i), 5 + i);
            check(weir_dev_window_put_notify(&self, 1, 0, 0, 0, 0, 32, 4, coop(i)));
        } else {
            check(weir_dev_window_wait(&self, 0, 4, 1, coop(i)));
            seen[i] = read(word(0, 0, 0)) * 10 + read(word(0, 0, 2));
        }
    }
    bool right() const { return failed == 0 && seen[2] == 56 && seen[3] == 56; }
};

TEST(LitmusWindow, APutNotifyBetweenEqualAddressesSendsWhatWasWrittenThere)
{
    holds<GroupEqual>(OWN_ORDERS | WEIRT_WEAK_NO_BARRIER);
}

// Every thread gets the source and tag of each of three takes, and the result of polls.
struct GroupTake : Blocks {
    uint32_t tags[4] = {};

    void thread(uint32_t i)
    {
        const weir_dev_window_rank self = at(i / 2, 0);
        for (uint32_t k = 1; k <= 3; k++) {
            weir_dev_notification taken = { 9, 9 };
            if (i < 2) {
                check(weir_dev_window_notify(&self, 1, k, coop(i)));
                continue;
            }
            if (k == 2) {
                weir_status status = WEIR_PENDING;
                while (status == WEIR_PENDING) {
                    status = weir_dev_window_poll(&self, 0, 2, 1, coop(i));
                }
                check(status);
                tags[i] = tags[i] * 10 + 2;
                continue;
            }
            check(weir_dev_window_take(&self, WEIR_ANY_RANK, WEIR_ANY_TAG, &taken, coop(i)));
            tags[i] = tags[i] * 10 + taken.tag + taken.source;
        }
    }
    bool right() const { return failed == 0 && tags[2] == 123 && tags[3] == 123; }
};

TEST(LitmusWindow, EveryThreadGetsWhatIsTaken) { holds<GroupTake>(WEIRT_WEAK_NO_BARRIER); }

// A get and a barrier of the group, or a flush, before threads read each other's words and the source changes again.
template <bool flush> struct GroupGet : Blocks {
    void thread(uint32_t i)
    {
        const weir_dev_window_rank self = at(i / 2, 0);
        if (i < 2) {
            write(part(0, 2 * i), 5 + i);
            check(weir_dev_window_notify(&self, 1, 1, coop(i)));
            check(weir_dev_window_wait(&self, 1, 2, 1, coop(i)));
            write(part(0, 2 * i), 9);
        } else {
            check(weir_dev_window_wait(&self, 0, 1, 1, coop(i)));
            check(weir_dev_window_get(&self, 0, 0, 0, 0, 0, 32, coop(i)));
            check(flush ? weir_dev_window_flush(&self, 0, coop(i)) : weir_coop_sync(coop(i)));
            seen[i] = read(part(1, 0)) * 10 + read(part(1, 2));
            check(weir_dev_window_notify(&self, 0, 2, coop(i)));
        }
    }
    bool right() const { return failed == 0 && seen[2] == 56 && seen[3] == 56; }
};

TEST(LitmusWindow, AGetIsThereAfterABarrierOfTheGroup)
{
    holds<GroupGet<false>>(MAPPED_ORDERS | WEIRT_WEAK_NO_BARRIER);
    holds<GroupGet<true>>(MAPPED_ORDERS | WEIRT_WEAK_NO_BARRIER);
}

// A put and a barrier of the group, or a flush, before each thread overwrites a word that another one copied.
enum class Between { BARRIER, FLUSH, NOTHING };

template <Between between> struct GroupSource : Blocks {
    void thread(uint32_t i)
    {
        const weir_dev_window_rank self = at(i / 2, 0);
        if (i < 2) {
            write(part(0, 2 * i), 5 + i);
            check(weir_coop_sync(coop(i)));
            check(weir_dev_window_put(&self, 1, 0, 0, 0, 0, 32, coop(i)));
            if (between == Between::BARRIER) {
                check(weir_coop_sync(coop(i)));
            } else if (between == Between::FLUSH) {
                check(weir_dev_window_flush(&self, WEIR_ANY_RANK, coop(i)));
            }
            write(part(0, 2 - 2 * i), 9);
            check(weir_dev_window_notify(&self, 1, 1, coop(i)));
        } else {
            check(weir_dev_window_wait(&self, 0, 1, 1, coop(i)));
            seen[i] = read(part(1, 0)) * 10 + read(part(1, 2));
        }
    }
    bool right() const { return failed == 0 && seen[2] == 56 && seen[3] == 56; }
};

// The same by a grid of two blocks of two threads, each of which copies 16 bytes of 64, and its barrier.
struct GridSource : Window {
    static constexpr uint32_t threads = 5;
    static uint32_t device(uint32_t i) { return i / 4; }
    weirt_weak_block block[2] = {};
    uint64_t seen = 0;

    GridSource() : Window(2, 1, 4) {}
    void thread(uint32_t i)
    {
        const weir_dev_window_rank self = at(i / 4, 0);
        if (i == 4) {
            wait(1, 0, 1);
            for (uint32_t k = 0; k < 4; k++) {
                seen = seen * 10 + read(part(1, 2 * k));
            }
            return;
        }
        weir_coop coop = weir_coop_part(i, 4);
        coop.block_rank = i % 2;
        coop.block_size = 2;
        coop.block = i / 2;
        coop.blocks = 2;
        coop.scope = WEIR_COOP_GRID;
        coop.barrier = &window(0)->barrier;
        coop.host = &block[i / 2];
        block[i / 2].threads = 2;
        write(part(0, 2 * i), 5 + i);
        check(weir_coop_sync(coop));
        check(weir_dev_window_put(&self, 1, 0, 0, 0, 0, 64, coop));
        check(weir_coop_sync(coop));
        write(part(0, 2 * ((i + 2) % 4)), 9); // a word that a thread of the other block copied
        check(weir_dev_window_notify(&self, 1, 1, coop));
    }
    bool right() const { return failed == 0 && seen == 5678; }
};

TEST(LitmusWindow, ThePutsSourceIsFreeAfterABarrierOfTheGroup)
{
    holds<GroupSource<Between::BARRIER>>(WEIRT_WEAK_NO_BARRIER);
    holds<GridSource>(WEIRT_WEAK_NO_BARRIER);
}

TEST(LitmusWindow, ThePutsSourceIsFreeAfterAFlush) { holds<GroupSource<Between::FLUSH>>(WEIRT_WEAK_NO_BARRIER); }

// Two devices with a grid of two blocks of one thread each; every rank puts to all others, twice.
struct Meeting : Window {
    static constexpr uint32_t threads = 4;
    static uint32_t device(uint32_t i) { return i / 2; }
    weirt_weak_block block[4] = {};
    uint64_t seen[4] = {};

    Meeting() : Window(2, 2, 2) {}
    void thread(uint32_t i)
    {
        weir_coop coop = weir_coop_part(i % 2, 2);
        coop.block_rank = 0;
        coop.block_size = 1;
        coop.block = i % 2;
        coop.blocks = 2;
        coop.scope = WEIR_COOP_GRID;
        coop.host = &block[i];
        block[i].threads = 1;
        for (uint64_t round = 1; round <= 2; round++) {
            write(part(i, i), round);
            for (uint32_t k = 0; k < 4; k++) {
                if (k != i) {
                    put(i, k, i);
                }
            }
            check(weir_dev_window_barrier(window(i / 2), coop));
            for (uint32_t k = 0; k < 4; k++) {
                seen[i] = seen[i] * 10 + read(part(i, k));
            }
            check(weir_dev_window_barrier(window(i / 2), coop));
        }
    }
    bool right() const
    {
        return failed == 0 && seen[0] == 11112222 && seen[1] == 11112222 && seen[2] == 11112222 && seen[3] == 11112222;
    }
};

TEST(LitmusWindow, AfterABarrierEveryRankSeesThePutsBeforeIt) { holds<Meeting>(MAPPED_ORDERS); }

// Four blocks of two threads, of which blocks 0 and 2 share a multiprocessor, as do 1 and 3, number themselves twice.
struct Numbered : Window {
    static constexpr uint32_t threads = 8;
    static uint32_t device(uint32_t) { return 0; }
    weirt_weak_block block[4] = {};
    uint32_t index[8][2] = {};

    Numbered() : Window(1, 4, 2) {}
    void thread(uint32_t i)
    {
        weir_coop coop = weir_coop_part(i % 2, 2);
        coop.block_rank = i % 2;
        coop.block_size = 2;
        coop.block = i / 2;
        coop.blocks = 4;
        coop.scope = WEIR_COOP_BLOCK;
        coop.host = &block[i / 2];
        block[i / 2].threads = 2;
        for (uint32_t round = 0; round < 2; round++) {
            check(weir_dev_window_index(window(0), &index[i][round], coop));
        }
    }
    bool right() const
    {
        const uint32_t expected[] = { 0, 2, 1, 3 };
        bool same = failed == 0;
        for (uint32_t i = 0; i < threads; i++) {
            same = same && index[i][0] == expected[i / 2] && index[i][1] == expected[i / 2];
        }
        return same;
    }
};

TEST(LitmusWindow, BlocksOfAMultiprocessorAreNumberedInARow)
{
    holds<Numbered>(OWN_ORDERS | WEIRT_WEAK_NO_BARRIER | WEIRT_WEAK_NO_ATOMIC);
}

// ---- what is not promised -------------------------------------------------------------------------------------

// Data that is put behind a notification.
struct LaterPut : Notified<true> {
    void thread(uint32_t i)
    {
        if (i == 0) {
            notify(0, 1, 3);
            send();
        } else {
            wait(1, 0, 3);
            receive();
        }
    }
};

TEST(LitmusWindow, APutAloneIsNotSeen) { fails<LaterPut>(); }

// The put sends a word that another thread of the block writes behind it.
struct EarlyOverwrite : GroupSource<Between::NOTHING> {
    bool right() const { return seen[2] / 10 != 9 && seen[2] % 10 != 9; }
};

TEST(LitmusWindow, APutDoesNotFreeItsSourceForOtherThreads) { fails<EarlyOverwrite>(); }

// Both threads of a block put. The first one then notifies alone, so the words that the second one copied may be
// missing.
struct OneSpeaks : GroupNotify<Speaker::ONE_THREAD> {
    bool right() const { return seen[2] != 50; }
};

TEST(LitmusWindow, APutIsNoBarrierOfItsGroup) { fails<OneSpeaks>(); }

// Rank 1 sends after rank 0 has, and knows it; their notifications to rank 2 come in any order.
struct TwoSources : Window {
    static constexpr uint32_t threads = 3;
    static uint32_t device(uint32_t i) { return i; }
    weir_dev_notification first = {};

    TwoSources() : Window(3, 1, 4) {}
    void thread(uint32_t i)
    {
        if (i == 0) {
            notify(0, 2, 1);
        } else if (i == 1) {
            notify(1, 2, 1);
        } else {
            first = take(2, WEIR_ANY_RANK, 1);
        }
    }
    bool right() const { return first.source == 0; }
};

TEST(LitmusWindow, BetweenSourcesThereIsNoOrder) { fails<TwoSources>(); }

} // namespace
