// One of two or four ranks is killed, exits or stops at every step of set-up and use, before a step and in the middle
// of it. All others get an error in time that names it, release all objects, and continue as a smaller job.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>
#include <unistd.h>
#include <vector>

#include "sweep_kernels.h"
#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

constexpr uint32_t ranks_max = 4;

// One point, shared by its ranks, with their results.
struct point {
    uint32_t step;
    weirt_death death;
    uint32_t during; // dies some time after the step's beginning; otherwise before it
    uint32_t victim;
    uint32_t timeout_ms;
    uint64_t died_ms;
    uint32_t slow; // the deadline passed before the death
    uint64_t began_ms[ranks_max];
    uint64_t stalled_ms[ranks_max]; // how long a thread of the rank that does nothing got no CPU
    uint32_t seen[ranks_max];       // the rank has got its error
    int32_t status[ranks_max];      // its error
    uint64_t seen_ms[ranks_max];
    char text[ranks_max][256]; // of its error
    uint32_t id_ready;
    weir_unique_id id; // of the survivors' job
};

// A rank's objects. Each rank signals the next rank and waits for the previous one; a single rank uses itself.
struct state {
    uint32_t rank;
    uint32_t size;
    uint32_t timeout_ms;
    bool far; // port channels use a transport that maps no memory of the peer, if there is one
    char where[WEIR_UNIQUE_ID_BYTES];
    weir_device *device;
    weir_bootstrap *boot;
    weir_comm *comm;
    weir_memory *local;
    weir_memory *shared;
    weirt_report *report;
    weir_memory *received;
    weir_memory *imported;
    weir_connection *to_next;
    weir_connection *from_previous;
    weir_semaphore *next;
    weir_semaphore *previous;
    weir_memory_channel *channel;
    weir_proxy *proxy;
    weir_port_channel *port_out; // to the next rank
    weir_port_channel *port_in;  // from the previous one; NULL in a job of one rank
    weir_grid_barrier *barrier;
    void *stream;
    void *graph;
};

uint32_t next_of(const state *s) { return (s->rank + 1) % s->size; }

uint32_t previous_of(const state *s) { return (s->rank + s->size - 1) % s->size; }

weir_status join(state *s)
{
    weir_bootstrap_opts opts = {};
    opts.size = sizeof opts;
    opts.timeout_ms = s->timeout_ms;
    return weir_bootstrap_create(s->where, s->rank, s->size, &opts, &s->boot);
}

weir_status allgather(state *s)
{
    uint32_t all[ranks_max] = {};
    all[s->rank] = s->rank + 1;
    weir_status status = weir_bootstrap_allgather(s->boot, nullptr, all, sizeof all[0]);
    return status != WEIR_OK || all[previous_of(s)] == previous_of(s) + 1 ? status : WEIR_ERR_CORRUPT;
}

weir_status pass_on(state *s)
{
    uint32_t word = s->rank;
    weir_status status = weir_bootstrap_send(s->boot, &word, sizeof word, next_of(s), 5);
    return status != WEIR_OK ? status : weir_bootstrap_recv(s->boot, &word, sizeof word, previous_of(s), 5);
}

weir_status make_comm(state *s) { return weir_comm_create(s->boot, s->device, nullptr, &s->comm); }

weir_status exchange_memory(state *s)
{
    weir_memory_opts host = { sizeof host, WEIR_MEMORY_HOST, false, 0 };
    weir_status status = weir_memory_allocate(s->comm, 4096, nullptr, &s->local);
    if (status == WEIR_OK) {
        status = weir_memory_allocate(s->comm, sizeof(weirt_report), &host, &s->shared);
    }
    if (status == WEIR_OK) {
        s->report = (weirt_report *)weir_memory_host_pointer(s->shared);
        status = weir_memory_send(s->comm, s->local, previous_of(s), 1);
    }
    return status != WEIR_OK ? status : weir_memory_recv(s->comm, next_of(s), 1, &s->received);
}

weir_status import_memory(state *s)
{
    struct {
        uint64_t bytes;
        uint8_t data[WEIR_MEMORY_HANDLE_MAX];
    } all[ranks_max] = {};
    size_t bytes = sizeof all[0].data;
    weir_status status = weir_memory_export(s->local, all[s->rank].data, &bytes);
    all[s->rank].bytes = bytes;
    if (status == WEIR_OK) {
        status = weir_bootstrap_allgather(s->boot, nullptr, all, sizeof all[0]);
    }
    uint32_t of = previous_of(s);
    return status != WEIR_OK ? status : weir_memory_import(s->comm, all[of].data, all[of].bytes, &s->imported);
}

// Waits for both; the first error counts.
weir_status finish_both(weir_status begun, weir_future *futures[2])
{
    weir_status status = begun;
    for (int i = 0; i < 2; i++) {
        if (futures[i] != nullptr && status == WEIR_OK) {
            status = weir_future_wait(futures[i], 0);
        }
    }
    weir_future_destroy(futures[0]);
    weir_future_destroy(futures[1]);
    return status;
}

// The tag of a connection between two ranks is the rank that signals over it.
weir_status connect(state *s)
{
    weir_future *futures[2] = {};
    weir_status status =
        weir_connection_create_async(s->comm, next_of(s), 10 + s->rank, nullptr, &s->to_next, &futures[0]);
    if (status == WEIR_OK && s->size > 1) {
        status = weir_connection_create_async(s->comm, previous_of(s), 10 + previous_of(s), nullptr, &s->from_previous,
                                              &futures[1]);
    }
    return finish_both(status, futures);
}

weir_status make_semaphores(state *s)
{
    weir_future *futures[2] = {};
    weir_status status = weir_semaphore_create_async(s->to_next, 20 + s->rank, nullptr, &s->next, &futures[0]);
    if (status == WEIR_OK && s->size > 1) {
        status = weir_semaphore_create_async(s->from_previous, 20 + previous_of(s), nullptr, &s->previous, &futures[1]);
    }
    return finish_both(status, futures);
}

weir_status make_channel(state *s)
{
    weir_status status = weir_memory_channel_create(s->next, s->received, s->local, nullptr, &s->channel);
    if (status == WEIR_OK) {
        status = weir_grid_barrier_create(s->comm, &s->barrier);
    }
    if (status == WEIR_OK) {
        status = weir_kernel_load(s->device, weirt_signal_kernel());
    }
    if (status == WEIR_OK) {
        status = weir_kernel_load(s->device, weirt_wait_kernel());
    }
    return status != WEIR_OK ? status : weir_stream_create(s->device, &s->stream);
}

// The transport of port channels. NULL: the default. ofi needs a second to be closed.
const char *port_transport(const state *s)
{
    if (!s->far) {
        return nullptr;
    }
    weir_transport_info info;
    for (uint32_t i = 0; weir_transport_get(i, &info) == WEIR_OK; i++) {
        if (std::strcmp(info.name, "ofi") == 0 && info.works && std::strcmp(weirt_sanitizer(), "thread") != 0) {
            return "ofi";
        }
    }
    return nullptr;
}

weir_status connect_port(state *s, bool to_next)
{
    weir_port_channel_connect_opts opts = {};
    opts.size = sizeof opts;
    opts.transport = port_transport(s);
    if (opts.transport != nullptr) {
        weirt_descriptors_allow(2); // of connections that begin while the endpoints close; src/transport/ofi/queue.h
    }
    return to_next
               ? weir_port_channel_connect(s->proxy, next_of(s), 30 + s->rank, s->local, &opts, &s->port_out)
               : weir_port_channel_connect(s->proxy, previous_of(s), 30 + previous_of(s), s->local, &opts, &s->port_in);
}

// Even ranks connect to the next rank first and odd ranks to the previous one: otherwise all would wait in a ring.
weir_status make_port(state *s)
{
    const bool even = s->rank % 2 == 0;
    weir_status status = weir_proxy_create(s->comm, nullptr, &s->proxy);
    if (status == WEIR_OK) {
        status = connect_port(s, even || s->size == 1);
    }
    if (status == WEIR_OK && s->size > 1) {
        status = connect_port(s, !even);
    }
    if (status == WEIR_OK) {
        status = weir_proxy_start(s->proxy);
    }
    return status != WEIR_OK ? status : weir_kernel_load(s->device, sweep_kernel());
}

// Puts, signals, and waits for the signal of the previous rank.
weir_status use_port(state *s)
{
    weir_port_channel *in = s->size > 1 ? s->port_in : s->port_out;
    sweep_args args = {};
    args.report = (int32_t *)weir_memory_pointer(s->shared);
    weir_status status = weir_port_channel_device(s->port_out, &args.out);
    if (status == WEIR_OK) {
        status = weir_port_channel_device(in, &args.in);
    }
    if (status == WEIR_OK) {
        status = weir_launch(s->device, sweep_kernel(), weir_shape{ 1, 1 }, &args, nullptr, s->stream);
    }
    if (status == WEIR_OK) {
        status = weir_comm_wait(s->comm, s->stream, weirt_timeout_ms());
    }
    if (status == WEIR_OK && *(const int32_t *)weir_memory_host_pointer(s->shared) != WEIR_OK) {
        status = weir_port_channel_status(in); // and the text
        status = status != WEIR_OK ? status : weir_port_channel_status(s->port_out);
        status = status != WEIR_OK ? status : WEIR_ERR_CORRUPT;
    }
    return status;
}

weir_status launch_round(state *s)
{
    weirt_signal_args signal = {};
    weirt_wait_args wait = {};
    weir_shape shape = weir_device_fit_shape(s->device, weir_shape{ 1, 2 });
    weir_launch_opts opts = {};
    opts.size = sizeof opts;
    opts.cooperative = true;
    signal.signals = 1;
    wait.form = WEIRT_WAIT_COOP;
    wait.waits = 1;
    wait.report = (weirt_report *)weir_memory_pointer(s->shared);
    weir_grid_barrier_device(s->barrier, &wait.barrier);
    weir_status status = weir_semaphore_device(s->next, &signal.semaphore);
    if (status == WEIR_OK) {
        status = weir_semaphore_device(s->size > 1 ? s->previous : s->next, &wait.semaphore);
    }
    if (status == WEIR_OK) {
        status = weir_launch(s->device, weirt_signal_kernel(), shape, &signal, &opts, s->stream);
    }
    return status != WEIR_OK ? status : weir_launch(s->device, weirt_wait_kernel(), shape, &wait, &opts, s->stream);
}

weir_status finish_round(state *s)
{
    weir_status status = weir_comm_wait(s->comm, s->stream, weirt_timeout_ms());
    return status != WEIR_OK ? status : (weir_status)s->report->status[0][0];
}

weir_status run_kernels(state *s)
{
    weir_status status = launch_round(s);
    return status != WEIR_OK ? status : finish_round(s);
}

weir_status replay_kernels(state *s)
{
    weir_status status = weir_graph_begin(s->device, s->stream);
    if (status == WEIR_OK) {
        status = launch_round(s);
        weir_status ended = weir_graph_end(s->device, s->stream, &s->graph);
        status = status != WEIR_OK ? status : ended;
    }
    for (int i = 0; i < 3 && status == WEIR_OK; i++) {
        status = weir_graph_launch(s->device, s->graph, s->stream);
        status = status != WEIR_OK ? status : finish_round(s);
    }
    return status;
}

weir_status meet(state *s) { return weir_bootstrap_barrier(s->boot, nullptr); }

void release_channels(state *s)
{
    weir_graph_destroy(s->device, s->graph);
    weir_stream_destroy(s->device, s->stream);
    weir_grid_barrier_destroy(s->barrier);
    weir_port_channel_destroy(s->port_in);
    weir_port_channel_destroy(s->port_out);
    weir_proxy_destroy(s->proxy);
    weir_memory_channel_destroy(s->channel);
    weir_semaphore_destroy(s->previous);
    weir_semaphore_destroy(s->next);
    weir_connection_destroy(s->from_previous);
    weir_connection_destroy(s->to_next);
    weir_memory_destroy(s->imported);
    weir_memory_destroy(s->received);
    s->graph = s->stream = nullptr;
    s->barrier = nullptr;
    s->port_in = s->port_out = nullptr;
    s->proxy = nullptr;
    s->channel = nullptr;
    s->previous = s->next = nullptr;
    s->from_previous = s->to_next = nullptr;
    s->imported = s->received = nullptr;
}

void release_comm(state *s)
{
    weir_memory_destroy(s->shared);
    weir_memory_destroy(s->local);
    weir_comm_destroy(s->comm);
    s->shared = s->local = nullptr;
    s->comm = nullptr;
}

weir_status take_down(state *s)
{
    release_channels(s);
    weir_status status = meet(s);
    release_comm(s);
    return status;
}

void release(state *s)
{
    release_channels(s);
    release_comm(s);
    weir_bootstrap_destroy(s->boot);
    weir_device_close(s->device);
}

struct step {
    const char *name;
    weir_status (*run)(state *);
};

// clang-format off
const step steps[] = { { "bootstrap", join },
                       { "allgather", allgather },
                       { "send", pass_on },
                       { "communicator", make_comm },
                       { "memory", exchange_memory },
                       { "import", import_memory },
                       { "connection", connect },
                       { "semaphore", make_semaphores },
                       { "channel", make_channel },
                       { "port channel", make_port },
                       { "put", use_port },
                       { "kernel", run_kernels },
                       { "graph", replay_kernels },
                       { "barrier", meet },
                       { "destroy", take_down },
                       { "end", meet } };
// clang-format on
constexpr uint32_t step_count = sizeof steps / sizeof steps[0];

const char *const deaths[] = { "", "exit", "kill", "stop" };

void die(weirt_rank *rank, point *p)
{
    __atomic_store_n(&p->died_ms, weirt_now_ms(), __ATOMIC_RELEASE);
    weirt_die(rank, p->death);
}

// Makes all steps up to the first error. Does not return on the victim.
weir_status all_steps(weirt_rank *rank, point *p, state *s, uint32_t *at)
{
    bool victim = rank->rank == p->victim;
    for (*at = 0; *at < step_count; (*at)++) {
        bool here = victim && *at == p->step;
        if (here && p->during == 0) {
            die(rank, p);
        }
        if (here) {
            // Dies within the step or in one of the next.
            std::thread([=] {
                usleep((p->step * 7 + p->death * 3 + p->victim) % 5 * 400);
                die(rank, p);
            }).detach();
        }
        while (victim && p->during != 0 && *at + 1 == step_count) {
            pause();
        }
        weir_status status = steps[*at].run(s);
        if (status != WEIR_OK) {
            return status;
        }
    }
    return WEIR_OK;
}

// A thread that measures how long it gets no CPU.
class Stalls {
    std::atomic<bool> over{ false };
    std::atomic<uint64_t> sum{ 0 };
    std::thread thread;

public:
    Stalls()
        : thread([this] {
              for (uint64_t last = weirt_now_ms(); !over.load();) {
                  weirt_sleep_ms(20);
                  const uint64_t now = weirt_now_ms();
                  sum += now - last > 40 ? now - last - 20 : 0;
                  last = now;
              }
          })
    {
    }
    ~Stalls()
    {
        over.store(true);
        thread.join();
    }
    Stalls(const Stalls &) = delete;
    Stalls &operator=(const Stalls &) = delete;
    uint64_t ms() const { return sum.load(); }
};

// The survivors make a new job.
void rebuild(weirt_rank *rank, point *p)
{
    state s = {};
    uint32_t first = p->victim == 0 ? 1 : 0;
    s.rank = rank->rank - (rank->rank > p->victim ? 1 : 0);
    s.size = rank->size - 1;
    s.timeout_ms = weirt_timeout_ms();
    if (rank->rank == first && WEIRT_OK(rank, weir_unique_id_create(nullptr, &p->id))) {
        __atomic_store_n(&p->id_ready, 1, __ATOMIC_RELEASE);
    }
    uint64_t end = weirt_now_ms() + weirt_timeout_ms();
    while (__atomic_load_n(&p->id_ready, __ATOMIC_ACQUIRE) == 0 && weirt_now_ms() < end) {
        weirt_sleep_ms(1);
    }
    std::memcpy(s.where, p->id.text, sizeof s.where);
    weir_status status = weir_device_open(rank->device, nullptr, &s.device);
    for (uint32_t at = 0; at < step_count && status == WEIR_OK; at++) {
        status = steps[at].run(&s);
        if (status != WEIR_OK) {
            weirt_fail(rank, __FILE__, __LINE__, "the survivors' job: %s: %s", steps[at].name, weir_last_error());
        }
    }
    release(&s);
}

bool all_have_seen(weirt_rank *rank, const point *p)
{
    uint64_t end = weirt_now_ms() + weirt_timeout_ms();
    for (uint32_t i = 0; i < rank->size; i++) {
        while (i != p->victim && __atomic_load_n(&p->seen[i], __ATOMIC_ACQUIRE) == 0) {
            if (weirt_now_ms() > end) {
                weirt_fail(rank, __FILE__, __LINE__, "rank %u got no error", i);
                return false;
            }
            weirt_sleep_ms(1);
        }
    }
    return true;
}

// The whole communicator has the error, whichever call found the death.
void comm_knows(weirt_rank *rank, const point *p, weir_comm *comm)
{
    char name[16];
    snprintf(name, sizeof name, "rank %u", p->victim);
    uint64_t end = weirt_now_ms() + 5000 * (uint64_t)weirt_slow();
    while (weir_comm_status(comm) == WEIR_OK && weirt_now_ms() < end) {
        weirt_sleep_ms(1);
    }
    WEIRT_STATUS(rank, WEIR_ERR_REMOTE, weir_comm_status(comm));
    WEIRT_TEXT(rank, name);
}

void body(weirt_rank *rank)
{
    point *p = (point *)const_cast<void *>(rank->arg);
    state s = {};
    weir_unique_id id;
    uint32_t at = 0;
    weirt_log_allow("");
    s.rank = rank->rank;
    s.size = rank->size;
    s.timeout_ms = p->timeout_ms;
    s.far = steps[p->step].run == make_port || steps[p->step].run == use_port;
    bool open = weirt_id(rank, &id) && WEIRT_OK(rank, weir_device_open(rank->device, nullptr, &s.device)) &&
                weirt_barrier(rank);
    std::memcpy(s.where, id.text, sizeof s.where);
    const Stalls stalls;
    p->began_ms[rank->rank] = weirt_now_ms();
    weir_status status = open ? all_steps(rank, p, &s, &at) : WEIR_ERR_INVALID;
    uint64_t now = weirt_now_ms();
    p->stalled_ms[rank->rank] = stalls.ms();
    uint64_t died = __atomic_load_n(&p->died_ms, __ATOMIC_ACQUIRE);
    if (status == WEIR_OK) {
        weirt_fail(rank, __FILE__, __LINE__, "all steps succeeded");
    } else if (died == 0 && p->timeout_ms < weirt_timeout_ms()) {
        __atomic_store_n(&p->slow, 1, __ATOMIC_RELAXED);
    } else if (died == 0) {
        weirt_fail(rank, __FILE__, __LINE__, "%s: %s", steps[at].name, weir_last_error());
    }
    p->status[rank->rank] = status;
    snprintf(p->text[rank->rank], sizeof p->text[0], "%s", status != WEIR_OK ? weir_last_error() : "");
    p->seen_ms[rank->rank] = now > died ? now - died : 0;
    __atomic_store_n(&p->seen[rank->rank], 1, __ATOMIC_RELEASE);
    bool all = rank->rank == p->victim || all_have_seen(rank, p);
    bool go_on = all && __atomic_load_n(&p->slow, __ATOMIC_RELAXED) == 0 && rank->rank != p->victim;
    if (go_on && s.comm != nullptr) {
        comm_knows(rank, p, s.comm);
    }
    // The old job may be released before or after.
    bool before_release = p->step % 2 == 0;
    if (go_on && before_release) {
        rebuild(rank, p);
    }
    release(&s);
    if (go_on && !before_release) {
        rebuild(rank, p);
    }
}

// Missing ranks are found by the deadline, and stopped ranks by their silence.
bool needs_deadline(const point *p) { return p->death == WEIRT_STOP || p->step == 0; }

struct summary {
    std::mutex mutex;
    uint32_t points;
    uint32_t right;
    uint32_t named;           // points at which all errors named the victim
    uint64_t slowest_ms;      // from a death to the last rank's error
    uint64_t slowest_late_ms; // from the deadline to it, for points that only the deadline ends
    uint32_t repeats;         // of points whose deadlines were too short for this machine
};

bool right_status(const point *p, int32_t status)
{
    // A rank that never came is reported as missing.
    return status == WEIR_ERR_REMOTE || (p->step == 0 && status == WEIR_ERR_TIMEOUT);
}

// Whether the text names the victim, and not a rank whose number begins with the same digits.
bool names_victim(const point *p, uint32_t rank)
{
    char name[16];
    snprintf(name, sizeof name, "rank %u", p->victim);
    const char *at = std::strstr(p->text[rank], name);
    return at != nullptr && (at[std::strlen(name)] < '0' || at[std::strlen(name)] > '9');
}

void check_point(const point *p, uint32_t ranks, uint32_t repeats, summary *sum)
{
    std::lock_guard<std::mutex> hold(sum->mutex);
    sum->repeats += repeats;
    bool right = p->died_ms != 0 && p->slow == 0;
    bool named = true;
    for (uint32_t i = 0; i < ranks; i++) {
        if (i == p->victim) {
            continue;
        }
        right = right && right_status(p, p->status[i]);
        named = named && names_victim(p, i);
        uint64_t allowed = (needs_deadline(p) ? p->timeout_ms : 0) + 5000 * (uint64_t)weirt_slow();
        right = right && p->seen_ms[i] < allowed;
        uint64_t *slowest = needs_deadline(p) ? &sum->slowest_late_ms : &sum->slowest_ms;
        uint64_t since = !needs_deadline(p) ? 0 : p->timeout_ms;
        uint64_t took = p->seen_ms[i] > since ? p->seen_ms[i] - since : 0;
        *slowest = *slowest > took ? *slowest : took;
    }
    sum->points++;
    sum->right += right && named;
    sum->named += named;
    if (!right || !named) {
        ADD_FAILURE() << ranks << " ranks, " << deaths[p->death] << " of rank " << p->victim
                      << (p->during != 0 ? " during " : " before ") << steps[p->step].name << ": died "
                      << (p->died_ms != 0) << ", slow " << p->slow << ", statuses " << p->status[0] << " "
                      << p->status[1] << " " << p->status[2] << " " << p->status[3] << ", after " << p->seen_ms[0]
                      << " " << p->seen_ms[1] << " " << p->seen_ms[2] << " " << p->seen_ms[3] << " ms; " << p->text[0]
                      << " | " << p->text[1] << " | " << p->text[2] << " | " << p->text[3];
    }
}

// Whether the machine was too slow for this deadline: a rank began long after another, or its threads got no CPU for
// long, or a wait had begun long before the rank was stopped. Silence is declared after three quarters of the deadline,
// so a quarter of it is time enough.
bool machine_was_slow(const point *p, uint32_t ranks)
{
    const uint64_t enough = p->timeout_ms / 8;
    uint64_t first = UINT64_MAX;
    uint64_t last = 0;
    bool slow = false;
    for (uint32_t i = 0; i < ranks; i++) {
        first = p->began_ms[i] < first ? p->began_ms[i] : first;
        last = p->began_ms[i] > last ? p->began_ms[i] : last;
        slow = slow || p->stalled_ms[i] > enough;
        slow = slow || (i != p->victim && p->seen_ms[i] < p->timeout_ms - enough);
    }
    return slow || last - first > enough;
}

// Whether waits ended by their deadline before the stopped rank's silence was noticed. A service thread counts at most
// one second of silence for each of its ticks, so a thread without CPU for seconds is late.
bool silence_was_late(const point *p, uint32_t ranks)
{
    bool late = false;
    for (uint32_t i = 0; i < ranks && p->death == WEIRT_STOP && p->step != 0; i++) {
        late = late || (i != p->victim && p->status[i] == WEIR_ERR_TIMEOUT);
    }
    return late;
}

// Whether a rank came to rank 0 so late that rank 0 had given up, or rank 0 answered a rank, perhaps itself, so late
// that this rank had: they cannot know of the death.
bool came_late(const point *p, uint32_t ranks)
{
    bool late = false;
    for (uint32_t i = 0; i < ranks && p->step == 0; i++) {
        const bool gave_up = std::strstr(p->text[i], "bootstrap: timeout: rank") != nullptr &&
                             std::strstr(p->text[i], "does not answer") != nullptr && !names_victim(p, i);
        late = late || gave_up || (p->victim != 0 && std::strstr(p->text[i], "timeout: rank 0 of") != nullptr);
    }
    return late;
}

// Whether a rank blames another one than the victim. An error of a rank that died or does not answer is never excused,
// and what a wait says that ended by its deadline only if the machine was slow.
bool blames_another(const point *p, uint32_t ranks)
{
    bool wrong = false;
    for (uint32_t i = 0; i < ranks; i++) {
        const bool excused = p->status[i] == WEIR_ERR_TIMEOUT && machine_was_slow(p, ranks);
        wrong = wrong || (i != p->victim && !names_victim(p, i) && !excused);
    }
    return wrong;
}

// A machine that is too busy for the short deadline gets a longer one. Silence is declared after three quarters of the
// deadline: with eight seconds, that is two seconds before waits end.
void run_point(const weirt_stage *stage, uint32_t ranks, const point *what, summary *sum)
{
    point p;
    uint32_t repeats = 0;
    for (uint32_t timeout_ms = what->death == WEIRT_STOP && what->step != 0 ? 8000 : 800;; timeout_ms *= 2) {
        p = *what;
        p.timeout_ms = needs_deadline(&p) ? timeout_ms * weirt_slow() : weirt_timeout_ms();
        weirt_ranks_run_shared(stage, ranks, body, &p, sizeof p);
        const bool late = silence_was_late(&p, ranks) || came_late(&p, ranks);
        const bool again = p.slow != 0 || (late && !blames_another(&p, ranks));
        if (!again || timeout_ms > 8000 || ::testing::Test::HasFailure()) {
            break;
        }
        repeats++;
    }
    check_point(&p, ranks, repeats, sum);
}

// Every `stride`-th point of `ranks` ranks, either those that only a deadline ends, or the others. Stops in the middle
// of steps take longest and are left out unless `all` is set.
std::vector<point> list_points(uint32_t ranks, uint32_t stride, bool deadline, bool all)
{
    std::vector<point> list;
    uint32_t number = 0;
    for (uint32_t i = 0; i < step_count * 6; i++) {
        point p = {};
        p.step = i / 6;
        p.death = (weirt_death)(WEIRT_EXIT + i / 2 % 3);
        p.during = i % 2;
        p.victim = (p.step + p.death + p.during) % ranks;
        bool often = all || p.death != WEIRT_STOP || p.during == 0;
        if (often && needs_deadline(&p) == deadline && number++ % stride == 0) {
            list.push_back(p);
        }
    }
    return list;
}

// Runs them, `together` at a time.
void run_points(const weirt_stage *stage, uint32_t ranks, const std::vector<point> &list, uint32_t together,
                summary *sum)
{
    std::atomic<size_t> next{ 0 };
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < together; i++) {
        threads.emplace_back([&] {
            for (size_t at = next++; at < list.size() && !::testing::Test::HasFailure(); at = next++) {
                run_point(stage, ranks, &list[at], sum);
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

void sweep(const weirt_stage *stage, bool all)
{
    // Sanitizers and GPUs, where processes start slowly, run a part of the points.
    bool gpu = std::strcmp(stage->kind, "gpu") == 0;
    bool sanitized = weirt_sanitizer()[0] != 0;
    uint32_t stride = all ? 1 : gpu ? 7 : sanitized ? 5 : 1;
    summary sum = {};
    for (uint32_t ranks : { 2u, 4u }) {
        // Points that wait for deadlines run together: two spinning threads for each rank, 64 in all, or 16 under
        // sanitizers.
        run_points(stage, ranks, list_points(ranks, stride, true, all), gpu || sanitized ? 8 / ranks : 8, &sum);
        run_points(stage, ranks, list_points(ranks, stride, false, all), 1, &sum);
    }
    char text[200];
    snprintf(text, sizeof text,
             "%u of %u points, %u named the right rank, slowest detection %llu ms; of a deadline %llu ms late; %u "
             "repeats with a longer deadline",
             sum.right, sum.points, sum.named, (unsigned long long)sum.slowest_ms,
             (unsigned long long)sum.slowest_late_ms, sum.repeats);
    ::testing::Test::RecordProperty("sweep", text);
    printf("[   SWEEP  ] %s\n", text);
    EXPECT_EQ(sum.right, sum.points);
}

WEIRT_PROCESS_SUITE(Sweep);
WEIRT_PROCESS_SUITE(LongSweep);

TEST_P(Sweep, OneRankDiesAtEveryStep) { sweep(stage(), false); }

// All points, including those that the normal run leaves out.
TEST_P(LongSweep, OneRankDiesAtEveryStep) { sweep(stage(), true); }

} // namespace
