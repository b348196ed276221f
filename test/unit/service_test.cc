// The service thread: descriptors, periods, posts, and taking watches away at bad moments.
//
// Contexts are plain memory wherever the contract orders accesses, so the thread sanitizer checks the order.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <dirent.h>
#include <fcntl.h>
#include <functional>
#include <memory>
#include <string>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <weir/error.h>

#include "test/harness/ranks.h"

extern "C" {
#include "src/host/base/alloc.h"
#include "src/host/base/clock.h"
#include "src/host/base/service.h"
}

namespace {

const uint64_t ms = 1000000;
const uint64_t slack = weirt_slack_ms() * ms;

// Waits until the condition holds; fails after the harness's timeout.
bool eventually(const std::function<bool()> &condition)
{
    const uint64_t deadline = weiri_now_ns() + weirt_timeout_ms() * ms;
    while (!condition()) {
        if (weiri_now_ns() >= deadline) {
            return false;
        }
        usleep(500);
    }
    return true;
}

int open_descriptors()
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir != nullptr && readdir(dir) != nullptr) {
        count++;
    }
    if (dir != nullptr) {
        closedir(dir);
    }
    return count;
}

struct channel {
    int in = -1;
    int out = -1;
    channel()
    {
        int fds[2];
        EXPECT_EQ(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
        in = fds[0];
        out = fds[1];
    }
    ~channel()
    {
        close(in);
        close_out();
    }
    void close_out()
    {
        if (out >= 0) {
            close(out);
        }
        out = -1;
    }
    void put() const { EXPECT_EQ(write(out, "x", 1), 1); }
    bool take() const
    {
        char c;
        return read(in, &c, 1) == 1;
    }
};

class Service : public testing::Test {
protected:
    void SetUp() override
    {
        alive_ = weiri_alloc_alive();
        descriptors_ = open_descriptors();
        ASSERT_EQ(weiri_service_create("weir-test", &service_), WEIR_OK) << weir_last_error();
    }

    void TearDown() override
    {
        destroy();
        EXPECT_EQ(weiri_alloc_alive(), alive_);
        EXPECT_EQ(open_descriptors(), descriptors_);
    }

    void destroy()
    {
        weiri_service_destroy(service_);
        service_ = nullptr;
    }

    // Runs `f` on the service thread and waits for its end.
    void on_thread(std::function<void()> f)
    {
        struct call {
            std::function<void()> f;
            std::atomic<bool> done{ false };
        } c;
        c.f = std::move(f);
        ASSERT_EQ(weiri_service_post(
                      service_,
                      [](void *context) {
                          call *me = static_cast<call *>(context);
                          me->f();
                          me->done = true;
                      },
                      &c),
                  WEIR_OK);
        while (!c.done) { /* not bounded: `c` is on this stack */
            usleep(200);
        }
    }

    // Waits until the thread has passed its loop: callbacks that were ready before have run.
    void turn_over()
    {
        for (int i = 0; i < 3; i++) {
            on_thread([] {});
        }
    }

    // Returns once the service thread is inside a callback, which holds it there until `gate` is true.
    struct hold_state {
        std::atomic<bool> *gate;
        std::atomic<bool> entered{ false };
    };
    void hold(std::atomic<bool> *gate)
    {
        hold_state *state = &holds_.emplace_back();
        state->gate = gate;
        ASSERT_EQ(weiri_service_post(
                      service_,
                      [](void *context) {
                          hold_state *me = static_cast<hold_state *>(context);
                          me->entered = true;
                          while (!*me->gate) {
                              usleep(200);
                          }
                      },
                      state),
                  WEIR_OK);
        ASSERT_TRUE(eventually([&] { return state->entered.load(); }));
    }

    weiri_service *service_ = nullptr;

private:
    std::deque<hold_state> holds_;
    int64_t alive_ = 0;
    int descriptors_ = 0;
};

TEST_F(Service, NullIsDestroyedAndUnwatchedAsNothing)
{
    weiri_service_destroy(nullptr);
    weiri_service_unwatch(service_, nullptr);
}

TEST_F(Service, CallbacksRunOnAThreadOfTheServicesOwn)
{
    weiri_service *other;
    ASSERT_EQ(weiri_service_create("weir-other", &other), WEIR_OK);
    bool is_self = false;
    bool is_other = true;
    sigset_t mask;
    on_thread([&] {
        is_self = weiri_service_is_self(service_);
        is_other = weiri_service_is_self(other);
        pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    });
    EXPECT_TRUE(is_self);
    EXPECT_FALSE(is_other);
    EXPECT_FALSE(weiri_service_is_self(service_));
    EXPECT_EQ(sigismember(&mask, SIGTERM), 1);
    weiri_service_destroy(other);
}

TEST_F(Service, PostsRunOnceInOrder)
{
    struct item {
        std::vector<int> *order;
        int number;
    };
    std::vector<int> order;
    std::vector<item> items;
    for (int i = 0; i < 500; i++) {
        items.push_back({ &order, i });
    }
    for (item &i : items) {
        ASSERT_EQ(weiri_service_post(
                      service_,
                      [](void *context) {
                          const item *me = static_cast<item *>(context);
                          me->order->push_back(me->number);
                      },
                      &i),
                  WEIR_OK);
    }
    destroy();
    ASSERT_EQ(order.size(), items.size());
    for (int i = 0; i < 500; i++) {
        EXPECT_EQ(order[i], i);
    }
}

TEST_F(Service, PostsOfManyThreadsAllRun)
{
    int count = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++) {
        threads.emplace_back([&] {
            for (int i = 0; i < 500; i++) {
                EXPECT_EQ(weiri_service_post(
                              service_, [](void *context) { ++*static_cast<int *>(context); }, &count),
                          WEIR_OK);
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    on_thread([] {});
    destroy();
    EXPECT_EQ(count, 2000);
}

TEST_F(Service, PostsBeforeDestroyRunBeforeItReturns)
{
    struct chain {
        weiri_service *service;
        int left;
        int ran;
        static void run(void *context)
        {
            chain *c = static_cast<chain *>(context);
            c->ran++;
            if (c->left-- > 0) {
                EXPECT_EQ(weiri_service_post(c->service, run, c), WEIR_OK);
            }
        }
    } chain = { service_, 20, 0 };
    std::atomic<bool> gate{ false };
    hold(&gate);
    int count = 0;
    for (int i = 0; i < 100; i++) {
        ASSERT_EQ(weiri_service_post(
                      service_, [](void *context) { ++*static_cast<int *>(context); }, &count),
                  WEIR_OK);
    }
    ASSERT_EQ(weiri_service_post(service_, chain::run, &chain), WEIR_OK);
    std::thread opener([&] {
        usleep(50000);
        gate = true;
    });
    destroy();
    opener.join();
    EXPECT_EQ(count, 100);
    EXPECT_EQ(chain.ran, 21); /* posts of posts too */
}

struct fd_state {
    weiri_service *service = nullptr;
    weiri_watch *watch = nullptr;
    channel *pipe = nullptr;
    std::atomic<int> calls{ 0 };
    std::atomic<uint32_t> events{ 0 };
    std::function<void(fd_state *)> action;

    static void ready(void *context, uint32_t events)
    {
        fd_state *s = static_cast<fd_state *>(context);
        s->events = events;
        if (s->action) {
            s->action(s);
        }
        s->calls++;
    }
};

TEST_F(Service, DescriptorIsCalledWhileItIsReady)
{
    channel pipe;
    fd_state s;
    s.pipe = &pipe;
    s.action = [](fd_state *me) { me->pipe->take(); };
    ASSERT_EQ(weiri_service_watch_fd(service_, pipe.in, EPOLLIN, fd_state::ready, &s, &s.watch), WEIR_OK);
    turn_over();
    EXPECT_EQ(s.calls, 0);
    pipe.put();
    pipe.put();
    pipe.put();
    EXPECT_TRUE(eventually([&] { return s.calls == 3; })); /* level-triggered: one byte in each call */
    EXPECT_EQ(s.events, static_cast<uint32_t>(EPOLLIN));
    turn_over();
    EXPECT_EQ(s.calls, 3);
    pipe.close_out();
    EXPECT_TRUE(eventually([&] { return (s.events & EPOLLHUP) != 0; }));
    weiri_service_unwatch(service_, s.watch);
    const int calls = s.calls;
    turn_over();
    EXPECT_EQ(s.calls, calls);
}

TEST_F(Service, EventsCanBeChangedByAnyThread)
{
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    fd_state s;
    s.service = service_;
    s.action = [](fd_state *me) { EXPECT_EQ(weiri_service_set_events(me->service, me->watch, 0), WEIR_OK); };
    ASSERT_EQ(weiri_service_watch_fd(service_, fds[0], EPOLLIN, fd_state::ready, &s, &s.watch), WEIR_OK);
    turn_over();
    EXPECT_EQ(s.calls, 0);
    ASSERT_EQ(weiri_service_set_events(service_, s.watch, EPOLLIN | EPOLLOUT), WEIR_OK);
    EXPECT_TRUE(eventually([&] { return s.calls == 1; }));
    EXPECT_EQ(s.events, static_cast<uint32_t>(EPOLLOUT));
    turn_over();
    EXPECT_EQ(s.calls, 1); /* the callback turned it off */
    weiri_service_unwatch(service_, s.watch);
    close(fds[0]);
    close(fds[1]);
}

TEST_F(Service, UnwatchOfItselfIsTheLastCall)
{
    channel pipe;
    pipe.put();
    for (int round = 0; round < 50; round++) {
        fd_state s;
        s.service = service_;
        s.action = [](fd_state *me) { weiri_service_unwatch(me->service, me->watch); };
        ASSERT_EQ(weiri_service_watch_fd(service_, pipe.in, EPOLLIN, fd_state::ready, &s, &s.watch), WEIR_OK);
        ASSERT_TRUE(eventually([&] { return s.calls == 1; }));
        on_thread([] {});
        EXPECT_EQ(s.calls, 1);
    }
}

// Two watches are ready in one batch of epoll: the first to run removes the other.
TEST_F(Service, UnwatchedByAnEarlierCallbackIsNotCalled)
{
    for (int round = 0; round < 20; round++) {
        channel pipes[2];
        fd_state s[2];
        fd_state *other[2] = { &s[1], &s[0] };
        std::atomic<bool> gate{ false };
        hold(&gate);
        for (int i = 0; i < 2; i++) {
            s[i].service = service_;
            s[i].action = [&other, i](fd_state *me) {
                weiri_service_unwatch(me->service, other[i]->watch);
                weiri_service_unwatch(me->service, me->watch);
            };
            pipes[i].put();
            ASSERT_EQ(weiri_service_watch_fd(service_, pipes[i].in, EPOLLIN, fd_state::ready, &s[i], &s[i].watch),
                      WEIR_OK);
        }
        gate = true;
        ASSERT_TRUE(eventually([&] { return s[0].calls + s[1].calls > 0; }));
        turn_over();
        EXPECT_EQ(s[0].calls + s[1].calls, 1);
    }
}

TEST_F(Service, EventsTurnedOffByAnEarlierCallbackAreNotDelivered)
{
    channel pipes[2];
    fd_state s[2];
    fd_state *other[2] = { &s[1], &s[0] };
    std::atomic<bool> gate{ false };
    hold(&gate);
    for (int i = 0; i < 2; i++) {
        s[i].service = service_;
        s[i].action = [&other, i](fd_state *me) {
            EXPECT_EQ(weiri_service_set_events(me->service, other[i]->watch, 0), WEIR_OK);
            EXPECT_EQ(weiri_service_set_events(me->service, me->watch, 0), WEIR_OK);
        };
        pipes[i].put();
        ASSERT_EQ(weiri_service_watch_fd(service_, pipes[i].in, EPOLLIN, fd_state::ready, &s[i], &s[i].watch), WEIR_OK);
    }
    gate = true;
    ASSERT_TRUE(eventually([&] { return s[0].calls + s[1].calls > 0; }));
    turn_over();
    EXPECT_EQ(s[0].calls + s[1].calls, 1);
    weiri_service_unwatch(service_, s[0].watch);
    weiri_service_unwatch(service_, s[1].watch);
}

TEST_F(Service, UnwatchWaitsForTheRunningCallback)
{
    channel pipe;
    pipe.put();
    struct state {
        std::atomic<bool> entered{ false };
        int plain = 0;
    } s;
    weiri_watch *watch;
    ASSERT_EQ(weiri_service_watch_fd(
                  service_, pipe.in, EPOLLIN,
                  [](void *context, uint32_t) {
                      state *me = static_cast<state *>(context);
                      me->entered = true;
                      usleep(100000);
                      me->plain++;
                  },
                  &s, &watch),
              WEIR_OK);
    ASSERT_TRUE(eventually([&] { return s.entered.load(); }));
    weiri_service_unwatch(service_, watch);
    const int count = s.plain;
    EXPECT_GE(count, 1);
    turn_over();
    EXPECT_EQ(s.plain, count);
}

// A running callback of another watch does not block an unwatch.
TEST_F(Service, UnwatchDoesNotWaitForOthers)
{
    channel pipe;
    fd_state s;
    ASSERT_EQ(weiri_service_watch_fd(service_, pipe.in, EPOLLIN, fd_state::ready, &s, &s.watch), WEIR_OK);
    std::atomic<bool> gate{ false };
    hold(&gate);
    pipe.put();
    weiri_service_unwatch(service_, s.watch); /* the thread is held: this would hang */
    gate = true;
    turn_over();
    EXPECT_EQ(s.calls, 0);
}

// Watches are removed, and their contexts freed, while their callbacks are always due.
TEST_F(Service, UnwatchRacesWithCallbacks)
{
    std::vector<std::thread> threads;
    std::atomic<int> calls{ 0 };
    struct heap_context {
        std::atomic<int> *calls;
        int plain = 0;
    };
    for (int t = 0; t < 4; t++) {
        threads.emplace_back([&, t] {
            channel pipe;
            pipe.put();
            for (int i = 0; i < 150; i++) {
                std::unique_ptr<heap_context> context(new heap_context{ &calls });
                weiri_watch *watch;
                weir_status status;
                if (t < 3) {
                    status = weiri_service_watch_fd(
                        service_, pipe.in, EPOLLIN,
                        [](void *c, uint32_t) {
                            heap_context *me = static_cast<heap_context *>(c);
                            me->plain++;
                            ++*me->calls;
                        },
                        context.get(), &watch);
                } else {
                    status = weiri_service_watch_time(
                        service_, 1,
                        [](void *c) {
                            heap_context *me = static_cast<heap_context *>(c);
                            me->plain++;
                            ++*me->calls;
                        },
                        context.get(), &watch);
                }
                ASSERT_EQ(status, WEIR_OK);
                if (i % 3 != 0) {
                    usleep(i % 3 == 1 ? 0 : 1200);
                }
                weiri_service_unwatch(service_, watch);
                context->plain++;
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_GT(calls, 0);
}

TEST_F(Service, MemoryOfUnwatchedIsFreedOnAnIdleThread)
{
    channel pipe;
    const int64_t before = weiri_alloc_alive();
    turn_over();
    usleep(20000); /* by now the thread sleeps without a timeout */
    for (int i = 0; i < 300; i++) {
        weiri_watch *watch;
        ASSERT_EQ(weiri_service_watch_fd(service_, pipe.in, EPOLLIN, fd_state::ready, nullptr, &watch), WEIR_OK);
        weiri_service_unwatch(service_, watch);
    }
    EXPECT_TRUE(eventually([&] { return weiri_alloc_alive() == before; }));
    for (int i = 0; i < 300; i++) {
        weiri_watch *watch;
        ASSERT_EQ(weiri_service_watch_time(
                      service_, 3600000, [](void *) {}, nullptr, &watch),
                  WEIR_OK);
        weiri_service_unwatch(service_, watch);
    }
    EXPECT_TRUE(eventually([&] { return weiri_alloc_alive() == before; }));
}

struct time_state {
    weiri_service *service = nullptr;
    weiri_watch *watch = nullptr;
    std::atomic<int> calls{ 0 };
    int last = 0; // call that removes the watch; 0: none

    static void run(void *context)
    {
        time_state *s = static_cast<time_state *>(context);
        if (s->calls + 1 == s->last) {
            weiri_service_unwatch(s->service, s->watch);
        }
        s->calls++;
    }
};

TEST_F(Service, PeriodRunsAgainAndAgainNeverEarly)
{
    time_state s;
    const uint64_t start = weiri_now_ns();
    ASSERT_EQ(weiri_service_watch_time(service_, 50, time_state::run, &s, &s.watch), WEIR_OK);
    while (s.calls < 3) {
        ASSERT_LT(weiri_now_ns() - start, 150 * ms + slack);
        usleep(200);
    }
    EXPECT_GE(weiri_now_ns() - start, 150 * ms);
    weiri_service_unwatch(service_, s.watch);
}

TEST_F(Service, PeriodsAreIndependent)
{
    time_state slow;
    time_state quick;
    ASSERT_EQ(weiri_service_watch_time(service_, 3600000, time_state::run, &slow, &slow.watch), WEIR_OK);
    turn_over();
    ASSERT_EQ(weiri_service_watch_time(service_, 10, time_state::run, &quick, &quick.watch), WEIR_OK);
    EXPECT_TRUE(eventually([&] { return quick.calls >= 5; })); /* the sleep was cut short for the new one */
    EXPECT_EQ(slow.calls, 0);
    weiri_service_unwatch(service_, quick.watch);
    const int calls = quick.calls;
    usleep(50000);
    EXPECT_EQ(quick.calls, calls);
    weiri_service_unwatch(service_, slow.watch);
}

TEST_F(Service, LatePeriodSkipsRuns)
{
    const uint32_t period_ms = 20;
    time_state s;
    uint64_t passed = UINT64_MAX; /* periods since the thread went on: again if a busy machine lets too many pass */
    ASSERT_EQ(weiri_service_watch_time(service_, period_ms, time_state::run, &s, &s.watch), WEIR_OK);
    for (int tries = 0; tries < 10 && passed > 3; tries++) {
        std::atomic<bool> gate{ false };
        hold(&gate);
        usleep(300000);
        const int before = s.calls;
        int after = 0;
        const uint64_t opened = weiri_now_ns();
        gate = true;
        on_thread([&] { after = s.calls; });
        passed = (weiri_now_ns() - opened) / (period_ms * ms);
        EXPECT_LE(static_cast<uint64_t>(after - before), passed + 2); /* 15 were missed */
    }
    EXPECT_LE(passed, 3u);
    weiri_service_unwatch(service_, s.watch);
}

TEST_F(Service, PeriodTakesItselfAway)
{
    for (int last : { 1, 2 }) {
        time_state s;
        s.service = service_;
        s.last = last;
        ASSERT_EQ(weiri_service_watch_time(service_, 1, time_state::run, &s, &s.watch), WEIR_OK);
        ASSERT_TRUE(eventually([&] { return s.calls == last; }));
        usleep(20000);
        turn_over();
        EXPECT_EQ(s.calls, last);
    }
}

// The list of periods changes during the walk over it.
TEST_F(Service, PeriodTakesOthersAway)
{
    struct group {
        weiri_service *service;
        weiri_watch *watches[4];
        std::atomic<int> calls{ 0 };
    } g;
    g.service = service_;
    std::atomic<bool> gate{ false };
    hold(&gate);
    for (weiri_watch *&watch : g.watches) {
        ASSERT_EQ(weiri_service_watch_time(
                      service_, 1,
                      [](void *context) {
                          group *me = static_cast<group *>(context);
                          for (weiri_watch *each : me->watches) {
                              weiri_service_unwatch(me->service, each);
                          }
                          me->calls++;
                      },
                      &g, &watch),
                  WEIR_OK);
    }
    usleep(20000);
    gate = true;
    ASSERT_TRUE(eventually([&] { return g.calls > 0; }));
    usleep(20000);
    turn_over();
    EXPECT_EQ(g.calls, 1);
}

TEST_F(Service, WatchesLeftAtDestroyAreFreed)
{
    channel pipe;
    pipe.put();
    fd_state s;
    time_state t;
    ASSERT_EQ(weiri_service_watch_fd(service_, pipe.in, EPOLLIN, fd_state::ready, &s, &s.watch), WEIR_OK);
    ASSERT_EQ(weiri_service_watch_time(service_, 1, time_state::run, &t, &t.watch), WEIR_OK);
    ASSERT_TRUE(eventually([&] { return s.calls > 0 && t.calls > 0; }));
    destroy();
    const int calls = s.calls + t.calls;
    usleep(10000);
    EXPECT_EQ(s.calls + t.calls, calls);
}

TEST_F(Service, RefusedWatchesAreErrorsThatNameThem)
{
    weiri_watch *const none = reinterpret_cast<weiri_watch *>(8);
    weiri_watch *watch = none;
    EXPECT_EQ(weiri_service_watch_fd(service_, -1, EPOLLIN, fd_state::ready, nullptr, &watch), WEIR_ERR_SYSTEM);
    EXPECT_EQ(std::string(weir_last_error()),
              std::string("service weir-test: watch descriptor -1: ") + std::strerror(EBADF));
    const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    EXPECT_EQ(weiri_service_watch_fd(service_, file, EPOLLIN, fd_state::ready, nullptr, &watch), WEIR_ERR_SYSTEM);
    close(file);
    EXPECT_EQ(weiri_service_watch_time(service_, 0, time_state::run, nullptr, &watch), WEIR_ERR_INVALID);
    EXPECT_EQ(watch, none);

    channel pipe;
    weiri_watch *first;
    ASSERT_EQ(weiri_service_watch_fd(service_, pipe.in, EPOLLIN, fd_state::ready, nullptr, &first), WEIR_OK);
    EXPECT_EQ(weiri_service_watch_fd(service_, pipe.in, EPOLLIN, fd_state::ready, nullptr, &watch), WEIR_ERR_SYSTEM);
    EXPECT_EQ(watch, none);
    weiri_service_unwatch(service_, first);
    ASSERT_EQ(weiri_service_watch_fd(service_, pipe.in, EPOLLIN, fd_state::ready, nullptr, &first), WEIR_OK);
    weiri_service_unwatch(service_, first);
    weiri_watch *period;
    ASSERT_EQ(weiri_service_watch_time(service_, 1000, time_state::run, nullptr, &period), WEIR_OK);
    EXPECT_EQ(weiri_service_set_events(service_, period, EPOLLIN), WEIR_ERR_SYSTEM);
    weiri_service_unwatch(service_, period);
}

TEST_F(Service, OutOfMemoryIsAnError)
{
    channel pipe;
    weiri_service *other = nullptr;
    weiri_watch *watch = nullptr;
    weiri_alloc_fail_nth(1);
    EXPECT_EQ(weiri_service_create("x", &other), WEIR_ERR_NOMEM);
    weiri_alloc_fail_nth(1);
    EXPECT_EQ(weiri_service_watch_fd(service_, pipe.in, EPOLLIN, fd_state::ready, nullptr, &watch), WEIR_ERR_NOMEM);
    weiri_alloc_fail_nth(1);
    EXPECT_EQ(weiri_service_watch_time(service_, 1, time_state::run, nullptr, &watch), WEIR_ERR_NOMEM);
    weiri_alloc_fail_nth(1);
    EXPECT_EQ(weiri_service_post(
                  service_, [](void *) {}, nullptr),
              WEIR_ERR_NOMEM);
    weiri_alloc_fail_nth(0);
    EXPECT_EQ(other, nullptr);
    EXPECT_EQ(watch, nullptr);
    turn_over();
}

TEST_F(Service, ManyRoundsLeaveNothing)
{
    const int64_t alive = weiri_alloc_alive();
    const int descriptors = open_descriptors();
    for (int round = 0; round < 100; round++) {
        weiri_service *other;
        ASSERT_EQ(weiri_service_create("weir-round", &other), WEIR_OK);
        int ran = 0;
        ASSERT_EQ(weiri_service_post(
                      other, [](void *context) { ++*static_cast<int *>(context); }, &ran),
                  WEIR_OK);
        weiri_service_destroy(other);
        ASSERT_EQ(ran, 1);
    }
    EXPECT_EQ(weiri_alloc_alive(), alive);
    EXPECT_EQ(open_descriptors(), descriptors);
}

} // namespace
