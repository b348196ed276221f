// Proxies: a user's handlers get every request once and in order; no channel holds up another; every failure ends with
// a status.
#include <atomic>
#include <set>

#include "queue.h"

namespace {

constexpr uint32_t channels_max = QUEUE_CHANNELS;

struct bench;

// A channel and the behaviour of its handler.
struct tracked {
    weir_proxy_channel *channel = nullptr;
    uint32_t id = 0;
    queue_account account;
    std::atomic<uint64_t> handled{ 0 };   // requests taken by the handler
    std::atomic<uint64_t> completed{ 0 }; // completed requests of those taken as pending
    std::atomic<uint64_t> allowed{ 0 };   // maximum of completions
    std::atomic<bool> busy{ false };
    std::atomic<bool> often_busy{ false }; // the handler is busy at every other call
    uint32_t calls = 0;
    std::atomic<bool> pending{ false }; // requests are taken as pending, except types above WEIR_REQUEST_USER
    std::atomic<int> error{ WEIR_OK };  // of the request number `error_at`,
    std::atomic<uint64_t> error_at{ ~0ull };
    std::atomic<int> progress_error{ WEIR_OK };
    std::atomic<int> inner{ WEIR_OK }; // the result of a call that the handler makes
    weir_proxy *stops = nullptr;       // proxy that the handler tries to stop
};

weir_status handle(void *context, const weir_request *request)
{
    tracked *l = static_cast<tracked *>(context);
    if (l->stops != nullptr) {
        l->inner = weir_proxy_stop(l->stops);
    }
    if (l->busy || (l->often_busy && l->calls++ % 2 == 0)) {
        return WEIR_ERR_BUSY;
    }
    if (l->handled == l->error_at) {
        return static_cast<weir_status>(l->error.load());
    }
    l->account.take(request, &l->id);
    l->handled++;
    return l->pending && request->type == WEIR_REQUEST_USER ? WEIR_PENDING : WEIR_OK;
}

weir_status progress(void *context)
{
    tracked *l = static_cast<tracked *>(context);
    if (l->progress_error != WEIR_OK) {
        return static_cast<weir_status>(l->progress_error.load());
    }
    uint64_t allowed = l->allowed;
    if (l->completed >= allowed || !l->pending) {
        return WEIR_PENDING;
    }
    weir_proxy_channel_complete(l->channel, static_cast<uint32_t>(allowed - l->completed));
    l->completed = allowed;
    return WEIR_OK;
}

struct bench : queue_bench {
    weir_proxy *proxy = nullptr;
    tracked tracked_channels[channels_max];

    bool open(weirt_rank *rank, uint32_t timeout_ms, const weir_proxy_opts &opts)
    {
        return queue_open(rank, timeout_ms, this) && WEIRT_OK(rank, weir_proxy_create(comm.comm, &opts, &proxy));
    }
    bool add(weirt_rank *rank, uint32_t index, uint32_t credits, bool with_progress)
    {
        tracked *l = &tracked_channels[index];
        weir_proxy_handler handler = { handle, l, with_progress ? progress : nullptr, l };
        weir_proxy_channel_opts opts = { sizeof opts, credits, 0 };
        if (!WEIRT_OK(rank, weir_proxy_channel_create(proxy, &handler, &opts, &l->channel))) {
            return false;
        }
        l->id = weir_proxy_channel_id(l->channel);
        return true;
    }
    queue_args args(weirt_rank *rank, uint32_t count)
    {
        queue_args result = queue_args_of(this);
        result.channel_count = count;
        for (uint32_t i = 0; i < count; i++) {
            WEIRT_OK(rank, weir_proxy_channel_device(tracked_channels[i].channel, &result.channels[i]));
        }
        return result;
    }
    bool push(weirt_rank *rank, uint32_t index, uint64_t number, uint32_t type, uint64_t *ticket)
    {
        weir_request request;
        queue_request(0, number, type, &request);
        return WEIRT_OK(rank,
                        weir_proxy_channel_push(tracked_channels[index].channel, &request, weirt_timeout_ms(), ticket));
    }
    weir_status wait(uint32_t index, uint64_t ticket)
    {
        return weir_proxy_channel_wait(tracked_channels[index].channel, ticket, weirt_timeout_ms());
    }
    void close()
    {
        for (tracked &l : tracked_channels) {
            weir_proxy_channel_destroy(l.channel);
        }
        weir_proxy_destroy(proxy);
        queue_close(this);
    }
};

template <class Condition> bool comes_true(weirt_rank *rank, Condition condition)
{
    uint64_t end = weirt_now_ms() + weirt_timeout_ms();
    while (!condition() && weirt_now_ms() < end) {
        weirt_sleep_ms(1);
    }
    return WEIRT_EXPECT(rank, condition());
}

weir_proxy_opts with(uint32_t threads, uint32_t slots) { return { sizeof(weir_proxy_opts), threads, slots, 0 }; }

struct plan {
    uint32_t threads;
    uint32_t slots;
    uint32_t credits;
    uint32_t pushes;
    uint32_t wait;
};

// All kernel threads push to four channels. Each channel's requests arrive whole and in order, and all complete.
void all_are_handled(weirt_rank *rank)
{
    const plan *what = static_cast<const plan *>(rank->arg);
    bench b;
    bool open = b.open(rank, 0, with(what->threads, what->slots));
    for (uint32_t i = 0; i < channels_max; i++) {
        open = open && b.add(rank, i, what->credits, false);
    }
    if (open && WEIRT_OK(rank, weir_proxy_start(b.proxy))) {
        queue_args args = b.args(rank, channels_max);
        args.pushes = what->pushes;
        args.wait = what->wait;
        if (queue_launch(rank, &b, &args, b.shape) && queue_finish(rank, &b) &&
            WEIRT_OK(rank, weir_proxy_drain(b.proxy, weirt_timeout_ms()))) {
            uint64_t all = static_cast<uint64_t>(b.threads) * what->pushes;
            uint64_t total = 0;
            queue_statuses(rank, &b, b.threads, WEIR_OK, WEIR_OK);
            for (tracked &l : b.tracked_channels) {
                total += l.account.total;
                WEIRT_EXPECT(rank, l.account.wrong == 0);
                WEIRT_OK(rank, weir_proxy_channel_status(l.channel));
            }
            weir_proxy_usage usage;
            weir_proxy_get_usage(b.proxy, &usage);
            WEIRT_EXPECT(rank, total == all && queue_sum(b.report->undone) == 0 && queue_sum(b.report->pushed) == all);
            WEIRT_EXPECT(rank, usage.requests == all && usage.completed == all && usage.failed == 0);
        }
        WEIRT_OK(rank, weir_proxy_stop(b.proxy));
        WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    }
    b.close();
}

// One channel's handler takes nothing, and its pusher waits for credits. The other channel goes on.
void busy_stops_nobody(weirt_rank *rank)
{
    constexpr uint32_t pushes = 50;
    bench b;
    if (b.open(rank, 0, with(1, 4)) && b.add(rank, 0, 3, false) && b.add(rank, 1, 3, false) &&
        WEIRT_OK(rank, weir_proxy_start(b.proxy))) {
        b.tracked_channels[0].busy = true;
        queue_args args = b.args(rank, 2);
        args.pushes = pushes;
        args.wait = QUEUE_WAIT_LAST;
        if (queue_launch(rank, &b, &args, weir_shape{ 1, 2 })) {
            weir_proxy_usage usage = {};
            comes_true(rank, [&] {
                weir_proxy_get_usage(b.proxy, &usage);
                return b.tracked_channels[1].handled == pushes && usage.busy != 0 && usage.requests == pushes + 3;
            });
            WEIRT_EXPECT(rank, b.tracked_channels[0].handled == 0);
            WEIRT_EXPECT(rank, usage.completed == pushes);
            b.tracked_channels[0].busy = false;
            queue_finish(rank, &b);
            queue_statuses(rank, &b, 2, WEIR_OK, WEIR_OK);
            WEIRT_EXPECT(rank,
                         b.tracked_channels[0].account.total == pushes && b.tracked_channels[0].account.wrong == 0);
            WEIRT_EXPECT(rank,
                         b.tracked_channels[1].account.total == pushes && b.tracked_channels[1].account.wrong == 0);
        }
    }
    b.close();
}

// A handler that is busy at every other call still gets its requests in order.
void often_busy_keeps_the_order(weirt_rank *rank)
{
    constexpr uint32_t pushes = 100;
    bench b;
    if (b.open(rank, 0, with(1, 16)) && b.add(rank, 0, 8, false)) {
        b.tracked_channels[0].often_busy = true;
        queue_args args = b.args(rank, 1);
        args.pushes = 4;
        // The first requests are queued when the thread starts, so it takes several at once.
        bool open = queue_launch(rank, &b, &args, weir_shape{ 1, 2 }) && queue_finish(rank, &b) &&
                    WEIRT_EXPECT(rank, queue_sum(b.report->pushed) == 8) && WEIRT_OK(rank, weir_proxy_start(b.proxy));
        args.first = args.pushes;
        args.pushes = pushes - args.first;
        args.wait = QUEUE_WAIT_LAST;
        if (open && queue_launch(rank, &b, &args, weir_shape{ 1, 2 }) && queue_finish(rank, &b)) {
            queue_statuses(rank, &b, 2, WEIR_OK, WEIR_OK);
            weir_proxy_usage usage;
            weir_proxy_get_usage(b.proxy, &usage);
            WEIRT_EXPECT(rank, usage.busy == 2 * pushes && usage.completed == 2 * pushes);
            WEIRT_EXPECT(rank,
                         b.tracked_channels[0].account.total == 2 * pushes && b.tracked_channels[0].account.wrong == 0);
        }
    }
    b.close();
}

// Pending requests complete in order, and requests that are not pending wait for them.
void pending_completes_in_order(weirt_rank *rank)
{
    bench b;
    uint64_t tickets[8] = {};
    if (b.open(rank, 0, with(1, 16)) && b.add(rank, 0, 8, true) && WEIRT_OK(rank, weir_proxy_start(b.proxy))) {
        tracked *l = &b.tracked_channels[0];
        l->pending = true;
        // 2, 4 and 5 complete at once, the others are pending.
        for (uint32_t i = 0; i < 8; i++) {
            b.push(rank, 0, i, i == 2 || i == 4 || i == 5 ? WEIR_REQUEST_USER + 1 : WEIR_REQUEST_USER, &tickets[i]);
        }
        comes_true(rank, [&] { return l->handled == 8; });
        WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_proxy_drain(b.proxy, QUEUE_SHORT_MS));
        const uint32_t done[] = { 0, 1, 3, 6, 7, 8 }; // complete requests after n completions of pending ones
        for (uint32_t n = 0; n <= 5; n++) {
            l->allowed = n;
            comes_true(rank, [&] { return l->completed == n; });
            if (done[n] != 0) {
                WEIRT_OK(rank, b.wait(0, tickets[done[n] - 1]));
            }
            if (done[n] != 8) {
                WEIRT_STATUS(rank, WEIR_PENDING, weir_proxy_channel_test(l->channel, tickets[done[n]]));
            }
        }
        WEIRT_OK(rank, weir_proxy_drain(b.proxy, weirt_timeout_ms()));
        WEIRT_EXPECT(rank, l->account.wrong == 0 && l->account.total == 8);
        // More completions than there are pending requests do nothing.
        l->allowed = 100;
        comes_true(rank, [&] { return l->completed == 100; });
        l->pending = false;
        b.push(rank, 0, 8, WEIR_REQUEST_USER, &tickets[0]);
        WEIRT_OK(rank, b.wait(0, tickets[0]));
    }
    b.close();
}

// The sixth request of one channel fails: earlier ones succeed, it and the later ones return the error, and no other
// channel does.
void error_stays_in_its_channel(weirt_rank *rank)
{
    bench b;
    uint64_t tickets[2][10] = {};
    if (b.open(rank, 0, with(1, 16)) && b.add(rank, 0, 0, true) && b.add(rank, 1, 0, false) &&
        WEIRT_OK(rank, weir_proxy_start(b.proxy))) {
        b.tracked_channels[0].error = WEIR_ERR_DEVICE;
        b.tracked_channels[0].error_at = 5;
        for (uint32_t i = 0; i < 10; i++) {
            b.push(rank, 0, i, WEIR_REQUEST_USER, &tickets[0][i]);
            b.push(rank, 1, i, WEIR_REQUEST_USER, &tickets[1][i]);
        }
        for (uint32_t i = 0; i < 10; i++) {
            WEIRT_STATUS(rank, i < 5 ? WEIR_OK : WEIR_ERR_DEVICE, b.wait(0, tickets[0][i]));
            WEIRT_OK(rank, b.wait(1, tickets[1][i]));
            WEIRT_STATUS(rank, i < 5 ? WEIR_OK : WEIR_ERR_DEVICE,
                         weir_proxy_channel_test(b.tracked_channels[0].channel, tickets[0][i]));
        }
        WEIRT_STATUS(rank, WEIR_ERR_DEVICE, weir_proxy_channel_status(b.tracked_channels[0].channel));
        WEIRT_TEXT(rank, "WEIR_ERR_DEVICE");
        // Kernels see the same, and their pushes do not block.
        queue_args args = b.args(rank, 2);
        args.pushes = 200;
        args.wait = QUEUE_WAIT_NEVER;
        for (queue_account *account : { &b.tracked_channels[0].account, &b.tracked_channels[1].account }) {
            *account = queue_account();
        }
        if (queue_launch(rank, &b, &args, weir_shape{ 1, 2 }) && queue_finish(rank, &b)) {
            queue_statuses(rank, &b, 2, WEIR_OK, WEIR_OK);
        }
        args.first = 200;
        args.pushes = 1;
        args.wait = QUEUE_WAIT_LAST;
        if (queue_launch(rank, &b, &args, weir_shape{ 1, 2 }) && queue_finish(rank, &b)) {
            WEIRT_EXPECT(rank, b.report->wait[0] == WEIR_ERR_DEVICE && b.report->wait[1] == WEIR_OK);
        }
        WEIRT_OK(rank, weir_proxy_drain(b.proxy, weirt_timeout_ms()));
        WEIRT_EXPECT(rank, b.tracked_channels[0].account.total == 0);
        WEIRT_EXPECT(rank, b.tracked_channels[1].account.total == 201 && b.tracked_channels[1].account.wrong == 0);
        WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    }
    b.close();
}

// Unknown types, and handlers and progress callbacks that return invalid statuses.
void garbage_fails_its_channel(weirt_rank *rank)
{
    bench b;
    uint64_t ticket = 0;
    const uint32_t types[] = { 0, WEIR_REQUEST_TYPES, WEIR_REQUEST_USER - 1 };
    if (b.open(rank, 0, with(1, 16)) && b.add(rank, 3, 0, false) && WEIRT_OK(rank, weir_proxy_start(b.proxy))) {
        for (uint32_t i = 0; i < 3; i++) {
            b.add(rank, i, 0, false);
            b.push(rank, i, 0, types[i], &ticket);
            WEIRT_STATUS(rank, WEIR_ERR_CORRUPT, b.wait(i, ticket));
            WEIRT_STATUS(rank, WEIR_ERR_CORRUPT, weir_proxy_channel_status(b.tracked_channels[i].channel));
            WEIRT_TEXT(rank, "type");
            WEIRT_EXPECT(rank, b.tracked_channels[i].account.total == 0);
        }
        b.push(rank, 3, 0, WEIR_REQUEST_USER, &ticket);
        WEIRT_OK(rank, b.wait(3, ticket));
        b.push(rank, 3, 1, UINT16_MAX, &ticket);
        WEIRT_OK(rank, b.wait(3, ticket));
        b.tracked_channels[3].error = 5;
        b.tracked_channels[3].error_at = 2;
        b.push(rank, 3, 2, WEIR_REQUEST_PUT, &ticket);
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, b.wait(3, ticket));
        WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    }
    b.close();
}

void progress_error_fails_who_shares_it(weirt_rank *rank)
{
    bench b;
    uint64_t ticket = 0;
    if (b.open(rank, 0, with(1, 16)) && b.add(rank, 0, 0, true) && b.add(rank, 1, 0, false) &&
        WEIRT_OK(rank, weir_proxy_start(b.proxy))) {
        tracked *l = &b.tracked_channels[0];
        weir_proxy_handler shared = { handle, &b.tracked_channels[2], progress, l };
        WEIRT_OK(rank, weir_proxy_channel_create(b.proxy, &shared, nullptr, &b.tracked_channels[2].channel));
        b.tracked_channels[2].id = weir_proxy_channel_id(b.tracked_channels[2].channel);
        b.push(rank, 2, 0, WEIR_REQUEST_USER, &ticket);
        WEIRT_OK(rank, b.wait(2, ticket));
        l->progress_error = WEIR_ERR_SYSTEM;
        for (uint32_t i : { 0u, 2u }) {
            comes_true(rank,
                       [&] { return weir_proxy_channel_status(b.tracked_channels[i].channel) == WEIR_ERR_SYSTEM; });
            b.push(rank, i, 1, WEIR_REQUEST_USER, &ticket);
            WEIRT_STATUS(rank, WEIR_ERR_SYSTEM, b.wait(i, ticket));
        }
        b.push(rank, 1, 0, WEIR_REQUEST_USER, &ticket);
        WEIRT_OK(rank, b.wait(1, ticket));
    }
    b.close();
}

// A request of a channel that does not exist, from a kernel that writes arbitrary bytes.
void unknown_channel_breaks_the_communicator(weirt_rank *rank)
{
    bench b;
    weirt_log_allow("proxy thread");
    if (b.open(rank, 0, with(1, 16)) && b.add(rank, 0, 0, false) && WEIRT_OK(rank, weir_proxy_start(b.proxy))) {
        queue_args args = b.args(rank, 1);
        args.fifo = args.channels[0].fifo;
        args.channel_count = 0;
        if (queue_launch(rank, &b, &args, weir_shape{ 1, 1 }) && queue_finish(rank, &b)) {
            comes_true(rank, [&] { return weir_comm_status(b.comm.comm) == WEIR_ERR_CORRUPT; });
            WEIRT_TEXT(rank, "proxy thread 0");
            comes_true(rank,
                       [&] { return weir_proxy_channel_status(b.tracked_channels[0].channel) == WEIR_ERR_CORRUPT; });
        }
    }
    b.close();
}

// Kernel threads wait for credits, for tickets, and for a handler that is busy. All end when the proxy stops.
void stop_fails_what_is_queued(weirt_rank *rank)
{
    bench b;
    uint64_t ticket = 0;
    if (b.open(rank, 0, with(2, 8)) && b.add(rank, 0, 4, true) && b.add(rank, 1, 4, true) &&
        WEIRT_OK(rank, weir_proxy_start(b.proxy))) {
        b.tracked_channels[0].busy = true;
        b.tracked_channels[1].pending = true;
        queue_args args = b.args(rank, 2);
        args.pushes = 3;
        args.wait = QUEUE_WAIT_LAST;
        if (queue_launch(rank, &b, &args, b.shape)) {
            weir_proxy_usage usage = {};
            comes_true(rank, [&] {
                weir_proxy_get_usage(b.proxy, &usage);
                return usage.requests == 8 && usage.busy != 0;
            });
            WEIRT_EXPECT(rank, b.tracked_channels[1].handled == 4 && usage.completed == 0 && usage.failed == 0);
            WEIRT_OK(rank, weir_proxy_stop(b.proxy));
            queue_finish(rank, &b);
            queue_statuses(rank, &b, b.threads, WEIR_OK, WEIR_ERR_ABORTED);
            WEIRT_OK(rank, weir_proxy_drain(b.proxy, weirt_timeout_ms()));
            weir_proxy_get_usage(b.proxy, &usage);
            WEIRT_EXPECT(rank, usage.requests == 3ull * b.threads && usage.failed == usage.requests);
            WEIRT_EXPECT(rank, b.tracked_channels[1].handled == 4 && b.tracked_channels[0].handled == 0);
        }
        b.push(rank, 0, 0, WEIR_REQUEST_USER, &ticket);
        WEIRT_STATUS(rank, WEIR_ERR_ABORTED, b.wait(0, ticket));
        WEIRT_TEXT(rank, "stopped");
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_proxy_start(b.proxy));
        WEIRT_OK(rank, weir_proxy_stop(b.proxy));
        weir_proxy_channel *late = nullptr;
        weir_proxy_handler handler = { handle, &b.tracked_channels[2], nullptr, nullptr };
        WEIRT_STATUS(rank, WEIR_ERR_ABORTED, weir_proxy_channel_create(b.proxy, &handler, nullptr, &late));
        WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    }
    b.close();
}

// A proxy that was never started: queued requests fail too.
void stop_before_start(weirt_rank *rank)
{
    bench b;
    uint64_t tickets[3] = {};
    if (b.open(rank, 0, with(1, 8)) && b.add(rank, 0, 4, false)) {
        for (uint64_t &ticket : tickets) {
            b.push(rank, 0, 0, WEIR_REQUEST_USER, &ticket);
        }
        WEIRT_STATUS(rank, WEIR_PENDING, weir_proxy_channel_test(b.tracked_channels[0].channel, tickets[0]));
        WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_proxy_drain(b.proxy, QUEUE_SHORT_MS));
        WEIRT_OK(rank, weir_proxy_stop(b.proxy));
        for (uint64_t ticket : tickets) {
            WEIRT_STATUS(rank, WEIR_ERR_ABORTED, weir_proxy_channel_test(b.tracked_channels[0].channel, ticket));
        }
        WEIRT_OK(rank, weir_proxy_drain(b.proxy, weirt_timeout_ms()));
        WEIRT_EXPECT(rank, b.tracked_channels[0].account.total == 0);
    }
    b.close();
}

// Host threads have credits too; a push without a credit ends by its deadline and leaves nothing behind.
void host_deadlines(weirt_rank *rank)
{
    bench b;
    uint64_t ticket = 0;
    weir_request request;
    queue_request(0, 2, WEIR_REQUEST_USER, &request);
    if (b.open(rank, 0, with(1, 8)) && b.add(rank, 0, 2, false) && WEIRT_OK(rank, weir_proxy_start(b.proxy))) {
        b.tracked_channels[0].busy = true;
        b.push(rank, 0, 0, WEIR_REQUEST_USER, &ticket);
        b.push(rank, 0, 1, WEIR_REQUEST_USER, &ticket);
        uint64_t start = weirt_now_ms();
        WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT,
                     weir_proxy_channel_push(b.tracked_channels[0].channel, &request, QUEUE_SHORT_MS, nullptr));
        WEIRT_EXPECT(rank, queue_late_enough(weirt_now_ms() - start + 1));
        start = weirt_now_ms();
        WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT,
                     weir_proxy_channel_wait(b.tracked_channels[0].channel, ticket, QUEUE_SHORT_MS));
        WEIRT_EXPECT(rank, queue_late_enough(weirt_now_ms() - start + 1));
        b.tracked_channels[0].busy = false;
        b.push(rank, 0, 2, WEIR_REQUEST_USER, &ticket);
        WEIRT_OK(rank, b.wait(0, ticket));
        WEIRT_EXPECT(rank, b.tracked_channels[0].account.total == 3 && b.tracked_channels[0].account.wrong == 0);
        WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    }
    b.close();
}

// A kernel whose channel returns no credits ends by the communicator's deadline.
void kernel_deadline(weirt_rank *rank)
{
    bench b;
    weirt_log_allow("deadline");
    if (b.open(rank, QUEUE_SHORT_MS, with(1, 8)) && b.add(rank, 0, 2, false) &&
        WEIRT_OK(rank, weir_proxy_start(b.proxy))) {
        b.tracked_channels[0].busy = true;
        queue_args args = b.args(rank, 1);
        args.pushes = 3;
        if (queue_launch(rank, &b, &args, weir_shape{ 1, 1 }) && queue_finish(rank, &b)) {
            queue_statuses(rank, &b, 1, WEIR_ERR_TIMEOUT, WEIR_OK);
            WEIRT_EXPECT(rank, queue_sum(b.report->pushed) == 2 && queue_late_enough(queue_longest_ms(&b, 1)));
        }
        // The communicator's error becomes the channel's, without its handler.
        comes_true(rank, [&] { return weir_proxy_channel_status(b.tracked_channels[0].channel) == WEIR_ERR_TIMEOUT; });
        WEIRT_EXPECT(rank, b.tracked_channels[0].account.total == 0);
    }
    b.close();
}

// The communicator is aborted while kernels and host threads wait for tickets that will never be done.
void abort_ends_all(weirt_rank *rank)
{
    bench b;
    uint64_t ticket = 0;
    weirt_log_allow("abort");
    if (b.open(rank, 0, with(1, 0)) && b.add(rank, 0, 0, true) && WEIRT_OK(rank, weir_proxy_start(b.proxy))) {
        b.tracked_channels[0].pending = true;
        queue_args args = b.args(rank, 1);
        args.wait = QUEUE_WAIT_LAST;
        if (b.push(rank, 0, 0, WEIR_REQUEST_USER, &ticket) && queue_launch(rank, &b, &args, weir_shape{ 1, 2 })) {
            comes_true(rank, [&] { return b.tracked_channels[0].handled == 3; });
            weir_comm_abort(b.comm.comm);
            queue_finish(rank, &b);
            queue_statuses(rank, &b, 2, WEIR_OK, WEIR_ERR_ABORTED);
            WEIRT_STATUS(rank, WEIR_ERR_ABORTED, b.wait(0, ticket));
            comes_true(rank,
                       [&] { return weir_proxy_channel_status(b.tracked_channels[0].channel) == WEIR_ERR_ABORTED; });
        }
    }
    b.close();
}

// Channels are created and destroyed beside one that a kernel uses. Ids are never reused, and a request left by a
// destroyed channel goes to no other channel.
void channels_come_and_go(weirt_rank *rank)
{
    constexpr uint32_t rounds = 25;
    bench b;
    std::set<uint32_t> ids;
    if (b.open(rank, 0, with(1, 64)) && b.add(rank, 0, 0, false) && WEIRT_OK(rank, weir_proxy_start(b.proxy))) {
        queue_args args = b.args(rank, 1);
        args.pushes = 100;
        args.wait = QUEUE_WAIT_EACH;
        ids.insert(b.tracked_channels[0].id);
        bool good = queue_launch(rank, &b, &args, weir_shape{ 1, 2 });
        for (uint32_t round = 0; good && round < rounds; round++) {
            uint64_t ticket = 0;
            tracked *l = &b.tracked_channels[1];
            l->account = queue_account();
            l->busy = false;
            good = b.add(rank, 1, 0, true) && WEIRT_EXPECT(rank, ids.insert(l->id).second);
            if (good && b.push(rank, 1, 0, WEIR_REQUEST_USER, &ticket)) {
                WEIRT_OK(rank, b.wait(1, ticket));
                l->busy = true;
                b.push(rank, 1, 1, WEIR_REQUEST_USER, &ticket);
            }
            weir_proxy_channel_destroy(l->channel);
            l->channel = nullptr;
            good = good && WEIRT_EXPECT(rank, l->account.total == 1 && l->account.wrong == 0);
        }
        queue_finish(rank, &b);
        queue_statuses(rank, &b, 2, WEIR_OK, WEIR_OK);
        WEIRT_EXPECT(rank, b.tracked_channels[0].account.total == 200 && b.tracked_channels[0].account.wrong == 0);
        WEIRT_OK(rank, weir_proxy_drain(b.proxy, weirt_timeout_ms()));
        WEIRT_OK(rank, weir_comm_status(b.comm.comm));
    }
    b.close();
}

struct one_of_many {
    weir_proxy_channel *channel;
    uint64_t number;
    uint64_t right;
    uint64_t wrong;
};

weir_status count_own(void *context, const weir_request *request)
{
    one_of_many *own = static_cast<one_of_many *>(context);
    const bool right = request->value == own->number && request->channel == weir_proxy_channel_id(own->channel);
    own->right += right;
    own->wrong += !right;
    return WEIR_OK;
}

void two_thousand_channels(weirt_rank *rank)
{
    constexpr uint32_t count = 2000;
    bench b;
    static one_of_many all[count];
    std::memset(static_cast<void *>(all), 0, sizeof all);
    if (b.open(rank, 0, with(1, 64))) {
        uint64_t tickets[count] = {};
        bool good = true;
        for (uint32_t i = 0; i < count && good; i++) {
            weir_proxy_handler handler = { count_own, &all[i], nullptr, nullptr };
            weir_proxy_channel_opts opts = { sizeof opts, 2, 0 };
            all[i].number = i;
            good = WEIRT_OK(rank, weir_proxy_channel_create(b.proxy, &handler, &opts, &all[i].channel));
        }
        good = good && WEIRT_OK(rank, weir_proxy_start(b.proxy));
        for (uint32_t i = 0; i < 3 * count && good; i++) {
            weir_request request = {};
            request.type = WEIR_REQUEST_USER;
            request.value = i % count;
            good = WEIRT_OK(rank, weir_proxy_channel_push(all[i % count].channel, &request, weirt_timeout_ms(),
                                                          &tickets[i % count]));
        }
        for (uint32_t i = 0; i < count && good; i++) {
            good = WEIRT_OK(rank, weir_proxy_channel_wait(all[i].channel, tickets[i], weirt_timeout_ms())) &&
                   WEIRT_EXPECT(rank, all[i].right == 3 && all[i].wrong == 0);
        }
    }
    for (one_of_many &one : all) {
        weir_proxy_channel_destroy(one.channel);
    }
    b.close();
}

// A thread without work sleeps at least 50 us in each round.
void idle_thread_sleeps(weirt_rank *rank)
{
    bench b;
    weir_proxy_opts opts = with(1, 0);
    opts.spin_us = 1000;
    if (b.open(rank, 0, opts) && b.add(rank, 0, 0, true) && WEIRT_OK(rank, weir_proxy_start(b.proxy))) {
        comes_true(rank, [&] {
            weir_proxy_usage before, after;
            weir_proxy_get_usage(b.proxy, &before);
            uint64_t start = weirt_now_ms();
            weirt_sleep_ms(50);
            weir_proxy_get_usage(b.proxy, &after);
            uint64_t elapsed_us = (weirt_now_ms() - start + 1) * 1000;
            return after.rounds > before.rounds && after.rounds - before.rounds <= elapsed_us / 50 + 1;
        });
    }
    b.close();
}

void misuse(weirt_rank *rank)
{
    bench b;
    uint64_t ticket = 0;
    weir_proxy *proxy = nullptr;
    weir_proxy_channel *channel = nullptr;
    weir_dev_proxy_channel handle_out;
    if (b.open(rank, 0, with(0, 0)) && b.add(rank, 0, 0, false)) {
        weir_comm *comm = b.comm.comm;
        weir_proxy_handler handler = { handle, &b.tracked_channels[1], nullptr, nullptr };
        weir_proxy_handler empty = {};
        weir_proxy_opts opts = with(WEIR_PROXY_THREADS_MAX + 1, 0);
        WEIRT_STATUS(rank, WEIR_ERR_LIMIT, weir_proxy_create(comm, &opts, &proxy));
        opts = with(1, 1);
        WEIRT_STATUS(rank, WEIR_ERR_LIMIT, weir_proxy_create(comm, &opts, &proxy));
        opts.size = 0;
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_proxy_create(comm, &opts, &proxy));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_proxy_create(nullptr, nullptr, &proxy));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_proxy_create(comm, nullptr, nullptr));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_proxy_channel_create(b.proxy, nullptr, nullptr, &channel));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_proxy_channel_create(b.proxy, &empty, nullptr, &channel));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_proxy_channel_create(b.proxy, &handler, nullptr, nullptr));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_proxy_channel_create(nullptr, &handler, nullptr, &channel));
        weir_proxy_channel_opts channel_opts = { sizeof channel_opts, WEIR_PROXY_CREDITS_MAX + 1, 0 };
        WEIRT_STATUS(rank, WEIR_ERR_LIMIT, weir_proxy_channel_create(b.proxy, &handler, &channel_opts, &channel));
        channel_opts = { sizeof channel_opts, 0, 2 };
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_proxy_channel_create(b.proxy, &handler, &channel_opts, &channel));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_proxy_channel_device(b.tracked_channels[0].channel, nullptr));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_proxy_channel_device(nullptr, &handle_out));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID,
                     weir_proxy_channel_push(b.tracked_channels[0].channel, nullptr, 0, nullptr));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_proxy_start(nullptr));
        // A handler's call of its proxy is refused.
        b.tracked_channels[0].stops = b.proxy;
        WEIRT_OK(rank, weir_proxy_start(b.proxy));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_proxy_start(b.proxy));
        b.push(rank, 0, 0, WEIR_REQUEST_USER, &ticket);
        WEIRT_OK(rank, b.wait(0, ticket));
        WEIRT_EXPECT(rank, b.tracked_channels[0].inner == WEIR_ERR_INVALID);
        weir_proxy_destroy(nullptr);
        weir_proxy_channel_destroy(nullptr);
        // The proxy's own reference goes first.
        weir_proxy_destroy(b.proxy);
        b.proxy = nullptr;
        WEIRT_STATUS(rank, WEIR_ERR_ABORTED, weir_proxy_channel_status(b.tracked_channels[0].channel));
    }
    b.close();
}

// Two proxies of one communicator, each with its own requests.
void two_proxies(weirt_rank *rank)
{
    bench b;
    weir_proxy *second = nullptr;
    weir_proxy_opts opts = with(1, 8);
    if (b.open(rank, 0, opts) && WEIRT_OK(rank, weir_proxy_create(b.comm.comm, &opts, &second)) &&
        b.add(rank, 0, 4, false)) {
        weir_proxy *first = b.proxy;
        b.proxy = second;
        bool good = b.add(rank, 1, 4, false);
        b.proxy = first;
        if (good && WEIRT_OK(rank, weir_proxy_start(first)) && WEIRT_OK(rank, weir_proxy_start(second))) {
            queue_args args = b.args(rank, 2);
            args.pushes = 50;
            args.wait = QUEUE_WAIT_EACH;
            if (queue_launch(rank, &b, &args, weir_shape{ 1, 8 }) && queue_finish(rank, &b)) {
                queue_statuses(rank, &b, 8, WEIR_OK, WEIR_OK);
                WEIRT_EXPECT(rank,
                             b.tracked_channels[0].account.total == 200 && b.tracked_channels[0].account.wrong == 0);
                WEIRT_EXPECT(rank,
                             b.tracked_channels[1].account.total == 200 && b.tracked_channels[1].account.wrong == 0);
            }
            // One stops, the other does not.
            WEIRT_OK(rank, weir_proxy_stop(first));
            uint64_t ticket = 0;
            b.tracked_channels[1].account = queue_account();
            b.push(rank, 1, 0, WEIR_REQUEST_USER, &ticket);
            WEIRT_OK(rank, b.wait(1, ticket));
        }
    }
    weir_proxy_channel_destroy(b.tracked_channels[1].channel);
    b.tracked_channels[1].channel = nullptr;
    weir_proxy_destroy(second);
    b.close();
}

// Ranks as threads; two ranks as processes show that each process has its own proxy.
class Proxy : public StageTest {};
INSTANTIATE_TEST_SUITE_P(Stages, Proxy, ::testing::Values(0, 2), weirt_stage_name);
WEIRT_PROCESS_SUITE(ProxyProcess);

void run_plan(const weirt_stage *stage, plan what)
{
    weirt_ranks_run(stage, stage->processes ? 2 : 1, all_are_handled, &what, sizeof what);
}

TEST_P(ProxyProcess, ManyRequests) { run_plan(stage(), { 1, 32, 8, 50, QUEUE_WAIT_LAST }); }

TEST_P(Proxy, FewCreditsFewSlots) { run_plan(stage(), { 1, 2, 2, 8, QUEUE_WAIT_LAST }); }
TEST_P(Proxy, ManyRequests) { run_plan(stage(), { 1, 0, 0, 100, QUEUE_WAIT_NEVER }); }
TEST_P(Proxy, SeveralThreads) { run_plan(stage(), { 2, 8, 3, 20, QUEUE_WAIT_EACH }); }

#define CASE(name, body)                  \
    TEST_P(Proxy, name) { run(1, body); } \
    static_assert(true, "")

CASE(BusyChannelStopsNobody, busy_stops_nobody);
CASE(OftenBusyKeepsTheOrder, often_busy_keeps_the_order);
CASE(PendingCompletesInOrder, pending_completes_in_order);
CASE(ErrorStaysInItsChannel, error_stays_in_its_channel);
CASE(GarbageFailsItsChannel, garbage_fails_its_channel);
CASE(ProgressErrorFailsWhoSharesIt, progress_error_fails_who_shares_it);
CASE(UnknownChannelBreaksTheCommunicator, unknown_channel_breaks_the_communicator);
CASE(StopFailsWhatIsQueued, stop_fails_what_is_queued);
CASE(StopBeforeStart, stop_before_start);
CASE(HostDeadlines, host_deadlines);
CASE(KernelDeadline, kernel_deadline);
CASE(AbortEndsAll, abort_ends_all);
CASE(ChannelsComeAndGo, channels_come_and_go);
CASE(TwoThousandChannels, two_thousand_channels);
CASE(IdleThreadSleeps, idle_thread_sleeps);
CASE(TwoProxies, two_proxies);
CASE(Misuse, misuse);

} // namespace
