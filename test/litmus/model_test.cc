// The simulated memory: outcomes that it must allow, so missing orders are found, and outcomes that it must not allow.
#include "test/litmus/litmus.h"

namespace {

using namespace litmus;

struct TwoWords {
    static constexpr uint32_t threads = 2;
    static uint32_t device(uint32_t i) { return i; }
    uint64_t x = 0;
    uint64_t y = 0;
};

// Both threads write both words, in opposite orders; each word may end with the first of its two stores.
struct CrossedWrites : TwoWords {
    void thread(uint32_t i)
    {
        weir_arch_store_relaxed_sys_u64(i == 0 ? &x : &y, 1);
        weir_arch_store_relaxed_sys_u64(i == 0 ? &y : &x, 2);
    }
    bool right() const { return x != 1 || y != 1; }
};

TEST(LitmusModel, StoresToTwoWordsMayPassEachOther) { fails<CrossedWrites>(); }

// Four threads: two write a word each, two read both in opposite orders and may disagree on which came first.
struct IndependentReads : TwoWords {
    static constexpr uint32_t threads = 4;
    static uint32_t device(uint32_t i) { return i; }
    uint64_t seen[2][2] = {};

    void thread(uint32_t i)
    {
        if (i < 2) {
            weir_arch_store_release_sys_u64(i == 0 ? &x : &y, 1);
        } else {
            seen[i - 2][0] = weir_arch_load_acquire_sys_u64(i == 2 ? &x : &y);
            seen[i - 2][1] = weir_arch_load_acquire_sys_u64(i == 2 ? &y : &x);
        }
    }
    bool right() const { return !(seen[0][0] == 1 && seen[0][1] == 0 && seen[1][0] == 1 && seen[1][1] == 0); }
};

TEST(LitmusModel, ReadersMayDisagreeOnTheOrderOfTwoWriters) { fails<IndependentReads>(); }

// A thread sees its own stores, and never a value older than one that it has read.
struct Coherence : TwoWords {
    bool bad = false;

    void thread(uint32_t i)
    {
        uint64_t last = 0;
        for (uint64_t n = 1; n <= 4; n++) {
            if (i == 0) {
                weir_arch_store_relaxed_sys_u64(&x, n);
            }
            uint64_t now = weir_arch_load_relaxed_sys_u64(&x);
            bad = bad || now < last || (i == 0 && now != n);
            last = now;
        }
    }
    bool right() const { return !bad && x == 4; }
};

TEST(LitmusModel, EachWordIsCoherent) { holds<Coherence>(WEIRT_WEAK_NO_SYSTEM); }

// An acquire of a read-modify-write's result from a released value acquires the release.
struct ReleaseSequence : TwoWords {
    static constexpr uint32_t threads = 3;
    uint64_t data = 0;
    uint64_t seen = 7;

    void thread(uint32_t i)
    {
        if (i == 0) {
            write(data, 7);
            weir_arch_add_release_sys_u64(&x, 1);
        } else if (i == 1) {
            weir_arch_add_relaxed_sys_u64(&x, 2);
        } else if (weir_arch_load_acquire_sys_u64(&x) == 3) {
            // Both orders of the two additions end in 3, and both include the release.
            seen = read(data);
        }
    }
    bool right() const { return seen == 7 && x == 3; }
};

TEST(LitmusModel, ReadModifyWritesKeepAReleaseAlive)
{
    holds<ReleaseSequence>(WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE | WEIRT_WEAK_NO_ATOMIC);
}

// A release fence before a store, and an acquire fence behind a load, order data as their accesses would. `scope` is
// that of the release fence, of threads on one device or on two.
enum { NO_FENCE, FENCE_DEV, FENCE_SYS, FENCE_EARLY };
template <int release, bool acquire, bool mapped> struct Fenced : TwoWords {
    static uint32_t device(uint32_t i) { return mapped ? i : 0; }
    uint64_t data = 0;
    uint64_t seen = 7;

    static void fence()
    {
        if (release == FENCE_DEV) {
            weir_arch_fence_dev();
        } else {
            weir_arch_fence_sys();
        }
    }
    void thread(uint32_t i)
    {
        if (i == 0) {
            if (release == FENCE_EARLY) {
                fence();
            }
            write(data, 7);
            if (release == FENCE_DEV || release == FENCE_SYS) {
                fence();
            }
            weir_arch_store_behind_fence_sys_u64(&x, 1);
        } else if (weir_arch_load_before_acquire_sys_u64(&x) == 1) {
            if (acquire) {
                weir_arch_fence_acquire_sys();
            }
            seen = read(data);
        }
    }
    bool right() const { return seen == 7; }
};

TEST(LitmusModel, FencesCarryTheOrderOfTheAccessesBesideThem)
{
    holds<Fenced<FENCE_SYS, true, true>>(WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE | WEIRT_WEAK_NO_SYSTEM);
    holds<Fenced<FENCE_DEV, true, false>>(WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE);
    fails<Fenced<FENCE_DEV, true, true>>();
    fails<Fenced<NO_FENCE, true, false>>();
    fails<Fenced<FENCE_EARLY, true, false>>();
    fails<Fenced<FENCE_SYS, false, true>>();
}

// Bytes of one word that belong to two threads do not race, and no byte is lost.
struct Bytes : TwoWords {
    void thread(uint32_t i)
    {
        for (uint32_t b = i; b < 8; b += 2) {
            weir_arch_store_byte(reinterpret_cast<char *>(&x) + b, static_cast<char>(b + 1));
        }
    }
    bool right() const { return x == 0x0807060504030201u; }
};

TEST(LitmusModel, BytesOfAWordAreStoredEachForItself) { holds<Bytes>(0); }

// Unordered plain accesses are races even if the outcome is right.
struct Race : TwoWords {
    void thread(uint32_t i)
    {
        if (i == 0) {
            write(x, 1);
        } else {
            (void)read(x);
        }
    }
    bool right() const { return true; }
};

TEST(LitmusModel, RacesAreFound)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        EXPECT_EQ(run<Race>(seed, 0).why.compare(0, 7, "a race:"), 0);
    }
}

struct Alone : Pair {
    static constexpr uint32_t threads = 2;
    static uint32_t device(uint32_t) { return 0; }

    void thread(uint32_t i)
    {
        if (i == 0) {
            check(weir_coop_sync(weir_coop_block(grid_coop(rank[0], 0, 1, 2))));
        }
    }
    bool right() const { return true; }
};

TEST(LitmusModel, ABarrierThatNobodyElseReachesIsTold)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        EXPECT_EQ(run<Alone>(seed, 0).why, "threads wait at a barrier for ever");
    }
}

// A wait without a signal ends by its deadline in simulated time.
struct Deadline : Pair {
    static constexpr uint32_t threads = 1;
    static uint32_t device(uint32_t) { return 0; }
    weir_status status = WEIR_OK;

    void thread(uint32_t) { status = weir_dev_memory_channel_wait(&rank[0].channel); }
    bool right() const { return status == WEIR_ERR_TIMEOUT; }
};

TEST(LitmusModel, WaitsHaveADeadline) { EXPECT_EQ(run<Deadline>(1, 0).why, ""); }

// The values that a reader sees, as digits: they differ between seeds and are equal for one seed.
struct Digits : TwoWords {
    uint64_t digits = 0;

    void thread(uint32_t i)
    {
        for (uint64_t n = 1; n < 10; n++) {
            if (i == 0) {
                weir_arch_store_relaxed_sys_u64(&x, n);
            } else {
                digits = 10 * digits + weir_arch_load_relaxed_sys_u64(&x);
            }
        }
    }
};

uint64_t digits_of(uint64_t seed)
{
    Digits program;
    weirt_weak_options options = {};
    weirt_weak_report report;
    options.seed = seed;
    options.threads = 2;
    options.device[1] = 1;
    auto body = [](void *arg, uint32_t index) { static_cast<Digits *>(arg)->thread(index); };
    EXPECT_EQ(weirt_weak_run(&options, body, &program, &report), 0);
    return program.digits;
}

TEST(LitmusModel, ARunDependsOnItsSeedAlone)
{
    uint64_t different = 0;
    for (uint64_t seed = 0; seed < 50; seed++) {
        uint64_t digits = digits_of(seed);
        EXPECT_EQ(digits_of(seed), digits) << "seed " << seed;
        different += digits_of(seed + 1) != digits;
    }
    EXPECT_GE(different, 25u);
}

} // namespace
