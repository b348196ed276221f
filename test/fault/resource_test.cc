// Resources: the n-th allocation, device operation or transport operation fails; leaks over many rounds; a fork.
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "test/harness/counts.h"
#include "test/harness/stage_test.h"
#include "weir/device/fifo.h"

namespace {

/* ---- the n-th operation fails -------------------------------------------------------------------------- */

// All objects of two ranks; set-up stops at the first error.
struct all {
    weir_device *device;
    weir_bootstrap *boot;
    weir_comm *comm;
    weir_memory *local;
    weir_memory *part; // of local
    weir_memory *remote;
    weir_memory *imported;
    weir_connection *connection;
    weir_semaphore *semaphore;
    weir_memory_channel *channel;
    weir_grid_barrier *barrier;
    weir_fifo *fifo;
    weir_proxy *proxy;
    weir_proxy_channel *requests;
    weir_semaphore *port_semaphore;
    weir_port_channel *port;
    void *stream;
    void *events[2];
    void *graph;
};

weir_status count_request(void *context, const weir_request *request)
{
    (void)context;
    return request->type == WEIR_REQUEST_USER ? WEIR_OK : WEIR_ERR_CORRUPT;
}

weir_status no_progress(void *context)
{
    (void)context;
    return WEIR_PENDING;
}

weir_status set_up_proxy(all *a)
{
    weir_proxy_opts opts = { sizeof opts, 2, 16, 0 };
    weir_proxy_handler handler = { count_request, nullptr, no_progress, nullptr };
    weir_status status = weir_fifo_create(a->comm, nullptr, &a->fifo);
    if (status == WEIR_OK) {
        status = weir_proxy_create(a->comm, &opts, &a->proxy);
    }
    if (status == WEIR_OK) {
        status = weir_proxy_channel_create(a->proxy, &handler, nullptr, &a->requests);
    }
    return status != WEIR_OK ? status : weir_proxy_start(a->proxy);
}

weir_status set_up_port(all *a)
{
    uint32_t id;
    weir_status status = weir_semaphore_create(a->connection, 2, nullptr, &a->port_semaphore);
    if (status == WEIR_OK) {
        status = weir_port_channel_create(a->proxy, a->port_semaphore, a->remote, a->local, nullptr, &a->port);
    }
    for (weir_memory *memory : { a->local, a->part, a->remote }) {
        status = status != WEIR_OK ? status : weir_port_channel_attach(a->port, memory, &id);
    }
    return status;
}

bool open_bootstrap(weirt_rank *rank, all *a)
{
    weir_unique_id id;
    weir_bootstrap_opts opts = {};
    opts.size = sizeof opts;
    opts.timeout_ms = weirt_timeout_ms();
    return weirt_id(rank, &id) &&
           WEIRT_OK(rank, weir_bootstrap_create(id.text, rank->rank, rank->size, &opts, &a->boot));
}

weir_status set_up_memory(weirt_rank *rank, all *a)
{
    uint32_t peer = 1 - rank->rank;
    uint8_t handle[WEIR_MEMORY_HANDLE_MAX];
    size_t bytes = sizeof handle;
    weir_status status = weir_memory_allocate(a->comm, 5000, nullptr, &a->local);
    if (status == WEIR_OK) {
        char *start = (char *)weir_memory_pointer(a->local);
        status = weir_memory_register(a->comm, start + 1000, 100, nullptr, &a->part);
    }
    if (status == WEIR_OK) {
        status = weir_memory_send(a->comm, a->local, peer, 1);
    }
    if (status == WEIR_OK) {
        status = weir_memory_recv(a->comm, peer, 1, &a->remote);
    }
    if (status == WEIR_OK) {
        status = weir_memory_export(a->part, handle, &bytes);
    }
    return status != WEIR_OK ? status : weir_memory_import(a->comm, handle, bytes, &a->imported);
}

weir_status set_up(weirt_rank *rank, all *a)
{
    uint32_t peer = 1 - rank->rank;
    weir_status status = weir_device_open(rank->device, nullptr, &a->device);
    if (status == WEIR_OK) {
        status = weir_comm_create(a->boot, a->device, nullptr, &a->comm);
    }
    if (status == WEIR_OK) {
        status = set_up_memory(rank, a);
    }
    if (status == WEIR_OK) {
        status = weir_connection_create(a->comm, peer, 1, nullptr, &a->connection);
    }
    if (status == WEIR_OK) {
        status = weir_semaphore_create(a->connection, 1, nullptr, &a->semaphore);
    }
    if (status == WEIR_OK) {
        status = weir_memory_channel_create(a->semaphore, a->remote, a->local, nullptr, &a->channel);
    }
    if (status == WEIR_OK) {
        status = weir_grid_barrier_create(a->comm, &a->barrier);
    }
    if (status == WEIR_OK) {
        status = set_up_proxy(a);
    }
    if (status == WEIR_OK) {
        status = set_up_port(a);
    }
    if (status == WEIR_OK) {
        status = weir_kernel_load(a->device, weirt_signal_kernel());
    }
    for (void *&event : a->events) {
        status = status != WEIR_OK ? status : weir_event_create(a->device, &event);
    }
    return status != WEIR_OK ? status : weir_stream_create(a->device, &a->stream);
}

// The same as a graph, between events.
weir_status replay(all *a, const weirt_signal_args *signal, weir_shape shape)
{
    weir_status status = weir_graph_begin(a->device, a->stream);
    if (status == WEIR_OK) {
        status = weir_launch(a->device, weirt_signal_kernel(), shape, signal, nullptr, a->stream);
        weir_status ended = weir_graph_end(a->device, a->stream, &a->graph);
        status = status != WEIR_OK ? status : ended;
    }
    if (status == WEIR_OK) {
        status = weir_event_record(a->device, a->events[0], a->stream);
    }
    if (status == WEIR_OK) {
        status = weir_graph_launch(a->device, a->graph, a->stream);
    }
    return status != WEIR_OK ? status : weir_event_record(a->device, a->events[1], a->stream);
}

weir_status signal_and_wait(weirt_rank *rank, all *a)
{
    weirt_signal_args signal = {};
    signal.signals = 1;
    weir_shape shape = weir_device_fit_shape(a->device, weir_shape{ 1, 2 });
    weir_status status = weir_semaphore_device(a->semaphore, &signal.semaphore);
    if (status == WEIR_OK) {
        status = weir_launch(a->device, weirt_signal_kernel(), shape, &signal, nullptr, a->stream);
    }
    if (status == WEIR_OK) {
        status = replay(a, &signal, shape);
    }
    if (status == WEIR_OK) {
        status = weir_stream_wait(a->device, a->stream, weirt_timeout_ms());
    }
    if (status == WEIR_OK) {
        double ms = 0;
        status = weir_event_elapsed(a->device, a->events[0], a->events[1], &ms);
    }
    if (status == WEIR_OK) {
        uint32_t word = rank->rank;
        status = weir_device_copy(a->device, weir_memory_pointer(a->local), &word, sizeof word);
    }
    if (status == WEIR_OK) {
        weir_request request = {};
        uint64_t ticket = 0;
        request.type = WEIR_REQUEST_USER;
        status = weir_proxy_channel_push(a->requests, &request, weirt_timeout_ms(), &ticket);
        if (status == WEIR_OK) {
            status = weir_proxy_channel_wait(a->requests, ticket, weirt_timeout_ms());
        }
    }
    if (status == WEIR_OK) {
        status = weir_port_channel_put_signal_flush(a->port, 1000, 0, 100);
    }
    return status;
}

void tear_down(all *a)
{
    weir_stream_destroy(a->device, a->stream);
    weir_graph_destroy(a->device, a->graph);
    weir_event_destroy(a->device, a->events[0]);
    weir_event_destroy(a->device, a->events[1]);
    weir_proxy_channel_destroy(a->requests);
    weir_port_channel_destroy(a->port);
    weir_proxy_destroy(a->proxy);
    weir_fifo_destroy(a->fifo);
    weir_grid_barrier_destroy(a->barrier);
    weir_memory_channel_destroy(a->channel);
    weir_semaphore_destroy(a->port_semaphore);
    weir_semaphore_destroy(a->semaphore);
    weir_connection_destroy(a->connection);
    weir_memory_destroy(a->imported);
    weir_memory_destroy(a->remote);
    weir_memory_destroy(a->part);
    weir_memory_destroy(a->local);
    weir_comm_destroy(a->comm);
    weir_bootstrap_destroy(a->boot);
    weir_device_close(a->device);
}

enum fault { ALLOCATION, DEVICE, TRANSPORT };
const char *const fault_names[] = { "allocation", "device operation", "transport operation" };

uint64_t arm(uint32_t what, uint64_t n)
{
    return what == ALLOCATION ? weirt_fail_allocation(n)
           : what == DEVICE   ? weirt_fail_device(n)
                              : weirt_fail_transport(n);
}

struct plan {
    uint32_t what;
    uint32_t stride;
    uint64_t least; // minimum number of operations
};

// One n: both ranks make and use all objects, and nothing may leak. Returns whether the fault happened. The bootstrap
// is made before, because its create would time out.
bool try_with_fault(weirt_rank *rank, uint32_t what, uint64_t n)
{
    all a = {};
    bool happened = true;
    weirt_barrier(rank);
    int64_t before = weirt_count_allocations();
    weirt_barrier(rank);
    if (!open_bootstrap(rank, &a)) {
        return false;
    }
    weirt_barrier(rank);
    if (rank->rank == 0) {
        (void)arm(what, n);
    }
    weirt_barrier(rank);
    weir_status status = set_up(rank, &a);
    WEIRT_EXPECT(rank, status <= 0 && (status == WEIR_OK || weir_last_error()[0] != 0));
    // A rank that failed leaves at once; the other must then not touch its memory.
    if (status != WEIR_OK) {
        tear_down(&a);
    }
    weirt_step(rank, (uint32_t)(n * 4 + (status == WEIR_OK)));
    weirt_barrier(rank);
    bool both = weirt_step_now(rank, 0) % 2 + weirt_step_now(rank, 1) % 2 == 2;
    WEIRT_EXPECT(rank, !both || signal_and_wait(rank, &a) <= 0);
    // A launched kernel of this rank ends before the peer's memory is released, even if waiting for the kernel failed.
    if (both) {
        weir_stream_destroy(a.device, a.stream);
        a.stream = nullptr;
    }
    weirt_barrier(rank);
    if (status == WEIR_OK) {
        tear_down(&a);
    }
    weirt_barrier(rank);
    if (rank->rank == 0) {
        happened = arm(what, 0) == 0;
        WEIRT_EXPECT(rank, happened || both);
        weirt_step(rank, (uint32_t)(n * 4 + 2 + happened));
    }
    weirt_barrier(rank);
    int64_t after = weirt_count_allocations();
    if (rank->rank == 0 && after != before) {
        weirt_fail(rank, __FILE__, __LINE__, "%s %llu failed: %lld allocations left behind", fault_names[what],
                   (unsigned long long)n, (long long)(after - before));
    }
    return weirt_step_now(rank, 0) % 2 == 1;
}

// Until there are fewer than n operations.
void nth_fails(weirt_rank *rank)
{
    const plan *arg = (const plan *)rank->arg;
    // The log depends on the failed operation.
    weirt_log_allow("");
    uint64_t n = 1;
    while (n < 2000 && try_with_fault(rank, arg->what, n)) {
        n += arg->stride;
    }
    WEIRT_EXPECT(rank, n > arg->least && n < 2000);
}

/* ---- rounds ---------------------------------------------------------------------------------------------- */

void make_rounds(weirt_rank *rank)
{
    const uint32_t warm = 10;
    uint32_t rounds = *(const uint32_t *)rank->arg;
    weirt_counts before = {};
    for (uint32_t round = 0; round < warm + rounds; round++) {
        weirt_channel channel;
        bool open = weirt_channel_open(rank, 0, 1024, &channel);
        if (open) {
            weirt_transfer_args args = weirt_transfer_of(rank, &channel.pair);
            args.op = round % WEIRT_OPS;
            args.first = args.last = 33;
            open = weirt_launch(rank, &channel.pair, weirt_transfer_kernel(), &args) &&
                   weirt_finish(rank, &channel.pair) && WEIRT_EXPECT(rank, channel.pair.report->wrong == 0);
        }
        weirt_channel_close(rank, &channel);
        if (!open || (round + 1 == warm && !weirt_counts_take(rank, &before))) {
            return;
        }
    }
    weirt_counts_expect(rank, before);
}

/* ---- fork ------------------------------------------------------------------------------------------------ */

// The objects at the fork.
struct family {
    weirt_channel channel;
    weir_semaphore *host; // with its end on the host
    weir_future *future;
    weir_fifo *fifo;
    weir_proxy *proxy;
    weir_proxy_channel *requests;
    void *event;
    void *graph;
};

// Makes every call with a status on the parent's objects. Returns the number of the first that is not refused, from 1.
int calls_in_child(family *f)
{
    weirt_pair *pair = &f->channel.pair;
    weir_comm *comm = f->channel.comm.comm;
    weir_bootstrap *boot = f->channel.comm.boot;
    weir_device *device = f->channel.comm.device;
    weir_comm *new_comm = nullptr;
    weir_memory *memory = nullptr;
    weir_future *future = nullptr;
    weir_connection *connection = nullptr;
    weir_semaphore *semaphore = nullptr;
    weir_memory_channel *channel = nullptr;
    weir_grid_barrier *barrier = nullptr;
    weir_fifo *fifo = nullptr;
    weir_proxy *proxy = nullptr;
    weir_proxy_channel *requests = nullptr;
    weir_proxy_handler handler = { count_request, nullptr, nullptr, nullptr };
    weir_request request = {};
    weir_dev_fifo dev_fifo;
    weir_dev_proxy_channel dev_requests;
    weir_dev_semaphore handle;
    void *object = nullptr;
    uint8_t bytes[WEIR_MEMORY_HANDLE_MAX] = {};
    size_t size = sizeof bytes;
    double ms = 0;
    weirt_signal_args signal = {};
    const weir_stream_limits limits = { sizeof limits, 1, 0 };
    const weir_status statuses[] = {
        weir_comm_status(comm),
        weir_comm_create(boot, device, nullptr, &new_comm),
        weir_memory_allocate(comm, 1, nullptr, &memory),
        weir_memory_register(comm, bytes, 1, nullptr, &memory),
        weir_memory_export(pair->local, bytes, &size), // 5
        weir_memory_import(comm, bytes, sizeof bytes, &memory),
        weir_memory_send(comm, pair->local, 0, 1),
        weir_memory_recv(comm, 0, 1, &memory),
        weir_memory_recv_async(comm, 0, 1, &memory, &future),
        weir_future_test(f->future), // 10
        weir_future_wait(f->future, 100),
        weir_connection_create(comm, 0, 1, nullptr, &connection),
        weir_connection_create_async(comm, 0, 1, nullptr, &connection, &future),
        weir_semaphore_create(pair->connection, 1, nullptr, &semaphore),
        weir_semaphore_create_async(pair->connection, 1, nullptr, &semaphore, &future), // 15
        weir_semaphore_device(pair->semaphore, &handle),
        weir_semaphore_signal(f->host),
        weir_semaphore_poll(f->host),
        weir_semaphore_wait(f->host, 100),
        weir_memory_channel_create(pair->semaphore, pair->remote, pair->local, nullptr, &channel), // 20
        weir_grid_barrier_create(comm, &barrier),
        weir_bootstrap_send(boot, bytes, 1, 0, 1),
        weir_bootstrap_recv(boot, bytes, 1, 0, 1),
        weir_bootstrap_barrier(boot, nullptr),
        weir_bootstrap_allgather(boot, nullptr, bytes, 1), // 25
        weir_bootstrap_broadcast(boot, nullptr, bytes, 1, 0),
        weir_device_copy(device, bytes, bytes + 1, 1),
        weir_device_fill(device, bytes, 0, 1),
        weir_stream_create(device, &object),
        weir_stream_wait(device, pair->stream, 100), // 30
        weir_kernel_load(device, weirt_signal_kernel()),
        weir_launch(device, weirt_signal_kernel(), weir_shape{ 1, 1 }, &signal, nullptr, pair->stream),
        weir_event_create(device, &object),
        weir_event_record(device, f->event, pair->stream),
        weir_event_elapsed(device, f->event, f->event, &ms), // 35
        weir_graph_begin(device, pair->stream),
        weir_graph_end(device, pair->stream, &object),
        weir_graph_launch(device, f->graph, pair->stream),
        weir_fifo_create(comm, nullptr, &fifo),
        weir_fifo_device(f->fifo, &dev_fifo), // 40
        weir_fifo_poll(f->fifo, &request),
        weir_fifo_push(f->fifo, &request, 100, nullptr),
        weir_fifo_test(f->fifo, 0),
        weir_fifo_wait(f->fifo, 0, 100),
        weir_proxy_create(comm, nullptr, &proxy), // 45
        weir_proxy_start(f->proxy),
        weir_proxy_drain(f->proxy, 100),
        weir_proxy_stop(f->proxy),
        weir_proxy_channel_create(f->proxy, &handler, nullptr, &requests),
        weir_proxy_channel_device(f->requests, &dev_requests), // 50
        weir_proxy_channel_push(f->requests, &request, 100, nullptr),
        weir_proxy_channel_test(f->requests, 0),
        weir_proxy_channel_wait(f->requests, 0, 100),
        weir_proxy_channel_status(f->requests),
        weir_stream_create_limited(device, &limits, &object), // 55
    };
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        if (statuses[i] != WEIR_ERR_FORKED || weir_last_error()[0] == 0) {
            return (int)i + 1;
        }
    }
    return 0;
}

// Destroys all objects, without effect on the parent.
void destroy_in_child(family *f)
{
    weirt_pair *pair = &f->channel.pair;
    weir_device *device = f->channel.comm.device;
    weir_comm_abort(f->channel.comm.comm);
    weir_proxy_channel_destroy(f->requests);
    weir_proxy_destroy(f->proxy);
    weir_fifo_destroy(f->fifo);
    weir_future_destroy(f->future);
    weir_graph_destroy(device, f->graph);
    weir_event_destroy(device, f->event);
    weir_stream_destroy(device, pair->stream);
    weir_grid_barrier_destroy(pair->barrier);
    weir_memory_channel_destroy(pair->packet);
    weir_memory_channel_destroy(pair->data);
    weir_semaphore_destroy(f->host);
    weir_semaphore_destroy(pair->semaphore);
    weir_connection_destroy(pair->connection);
    weir_memory_destroy(pair->remote_packets);
    weir_memory_destroy(pair->remote);
    weir_memory_destroy(pair->shared);
    weir_memory_destroy(pair->packets);
    weir_memory_destroy(pair->local);
    weir_comm_destroy(f->channel.comm.comm);
    weir_bootstrap_destroy(f->channel.comm.boot);
    weir_device_close(device);
}

void parent_goes_on(weirt_rank *rank, family *f)
{
    weirt_channel *channel = &f->channel;
    weir_memory *remote = nullptr;
    weirt_transfer_args args = weirt_transfer_of(rank, &channel->pair);
    args.last = 10;
    if (weirt_launch(rank, &channel->pair, weirt_transfer_kernel(), &args) && weirt_finish(rank, &channel->pair)) {
        WEIRT_EXPECT(rank, channel->pair.report->wrong == 0 && channel->pair.report->status[0][0] == WEIR_OK);
    }
    WEIRT_OK(rank, weir_memory_send(channel->comm.comm, channel->pair.local, channel->pair.peer, 9));
    WEIRT_OK(rank, weir_memory_recv(channel->comm.comm, channel->pair.peer, 9, &remote));
    WEIRT_STATUS(rank, WEIR_PENDING, weir_future_test(f->future));
    WEIRT_OK(rank, weir_semaphore_signal(f->host));
    WEIRT_OK(rank, weir_semaphore_wait(f->host, weirt_timeout_ms()));
    WEIRT_OK(rank, weir_graph_launch(channel->comm.device, f->graph, channel->pair.stream));
    weirt_finish(rank, &channel->pair);
    weir_request request = {};
    uint64_t ticket = 0;
    request.type = WEIR_REQUEST_USER;
    WEIRT_OK(rank, weir_fifo_push(f->fifo, &request, 0, &ticket));
    WEIRT_OK(rank, weir_fifo_poll(f->fifo, &request));
    WEIRT_OK(rank, weir_proxy_channel_push(f->requests, &request, 0, &ticket));
    WEIRT_OK(rank, weir_proxy_channel_wait(f->requests, ticket, weirt_timeout_ms()));
    WEIRT_OK(rank, weir_bootstrap_barrier(channel->comm.boot, nullptr));
    WEIRT_OK(rank, weir_comm_status(channel->comm.comm));
    weir_memory_destroy(remote);
}

void forks(weirt_rank *rank)
{
    family f = {};
    weir_memory *never = nullptr;
    weirt_channel *channel = &f.channel;
    weir_fifo_opts host = { sizeof host, WEIR_FIFO_HOST, 0 };
    weir_proxy_handler handler = { count_request, nullptr, no_progress, nullptr };
    bool open = weirt_channel_open(rank, 0, 1024, channel) &&
                WEIRT_OK(rank, weir_fifo_create(channel->comm.comm, &host, &f.fifo)) &&
                WEIRT_OK(rank, weir_proxy_create(channel->comm.comm, nullptr, &f.proxy)) &&
                WEIRT_OK(rank, weir_proxy_channel_create(f.proxy, &handler, nullptr, &f.requests)) &&
                WEIRT_OK(rank, weir_proxy_start(f.proxy)) &&
                weirt_semaphore(rank, channel->pair.connection, 5, WEIR_SEMAPHORE_HOST, &f.host) &&
                WEIRT_OK(rank, weir_memory_recv_async(channel->comm.comm, channel->pair.peer, 8, &never, &f.future)) &&
                WEIRT_OK(rank, weir_event_create(channel->comm.device, &f.event)) &&
                WEIRT_OK(rank, weir_graph_begin(channel->comm.device, channel->pair.stream)) &&
                WEIRT_OK(rank, weir_event_record(channel->comm.device, f.event, channel->pair.stream)) &&
                WEIRT_OK(rank, weir_graph_end(channel->comm.device, channel->pair.stream, &f.graph));
    if (open) {
        pid_t pid = fork();
        if (pid == 0) {
            // A lock that another thread held at the fork stays held.
            alarm(20 * weirt_slow());
            int wrong = calls_in_child(&f);
            destroy_in_child(&f);
            _exit(wrong);
        }
        int status = 0;
        WEIRT_EXPECT(rank, waitpid(pid, &status, 0) == pid && WIFEXITED(status));
        if (WEXITSTATUS(status) != 0) {
            weirt_fail(rank, __FILE__, __LINE__, "call %d of the child was not refused", WEXITSTATUS(status));
        }
        weirt_barrier(rank);
        parent_goes_on(rank, &f);
    }
    weir_proxy_channel_destroy(f.requests);
    weir_proxy_destroy(f.proxy);
    weir_fifo_destroy(f.fifo);
    weir_future_destroy(f.future);
    weir_graph_destroy(channel->comm.device, f.graph);
    weir_event_destroy(channel->comm.device, f.event);
    weir_semaphore_destroy(f.host);
    weirt_channel_close(rank, channel);
}

class Fault : public StageTest {};
INSTANTIATE_TEST_SUITE_P(Stages, Fault, ::testing::Values(0, 2), weirt_stage_name);
WEIRT_STAGE_SUITE(Rounds);
WEIRT_STAGE_SUITE(LongRounds);
class Fork : public StageTest {};
INSTANTIATE_TEST_SUITE_P(Stages, Fork, ::testing::Values(1), weirt_stage_name);

TEST_P(Fault, NthAllocationFails)
{
    plan arg = { ALLOCATION, std::string(weirt_sanitizer()) == "thread" ? 5u : 1u, 60 };
    weirt_ranks_run(stage(), 2, nth_fails, &arg, sizeof arg);
}

TEST_P(Fault, NthDeviceOperationFails)
{
    plan arg = { DEVICE, 1, 30 };
    weirt_ranks_run(stage(), 2, nth_fails, &arg, sizeof arg);
}

TEST_P(Fault, NthTransportOperationFails)
{
    plan arg = { TRANSPORT, 1, 8 };
    weirt_ranks_run(stage(), 2, nth_fails, &arg, sizeof arg);
}

TEST_P(Rounds, LeaveNothingBehind)
{
    uint32_t rounds = weirt_sanitizer()[0] == 0 ? 100 : 30;
    weirt_ranks_run(stage(), 2, make_rounds, &rounds, sizeof rounds);
}

TEST_P(LongRounds, LeaveNothingBehind)
{
    // 1,000 in all, each run well within its deadline, even beside a busy loop.
    uint32_t rounds = 250;
    for (int run = 0; run < 4 && !HasFailure(); run++) {
        weirt_ranks_run(stage(), 2, make_rounds, &rounds, sizeof rounds);
    }
}

TEST_P(Fork, ChildIsRefused) { run(2, forks); }

} // namespace
