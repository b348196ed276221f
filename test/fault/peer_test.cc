// A peer that exits, is killed, or stops, at each step of setup and in the middle of kernels' waits: the survivor
// gets an error in time, and goes on.
#include <string>

#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

enum step { BOOTSTRAP, COMM, MEMORY, CONNECTION, SEMAPHORE, CHANNEL, KERNEL, STEPS };
const char *const step_names[] = { "bootstrap", "comm", "memory", "connection", "semaphore", "channel", "kernel" };

struct casualty {
    uint32_t step;
    weirt_death death;
};

// What there is when the peer dies.
struct state {
    weirt_comm c;
    weirt_pair pair;
};

// Long enough for setup, short enough to wait for when the peer has stopped.
uint32_t timeout_ms(const casualty *arg)
{
    return arg->death == WEIRT_STOP ? 1500 * weirt_slow() : weirt_patience_ms();
}

// Both ranks have done `step`. False for the survivor when the peer has died here.
bool go_on_after(weirt_rank *rank, uint32_t step)
{
    const casualty *arg = (const casualty *)rank->arg;
    if (arg->step != step) {
        return true;
    }
    weirt_barrier(rank);
    if (rank->rank == 1) {
        weirt_step(rank, 1);
        weirt_die(rank, arg->death);
    }
    return false;
}

bool open_bootstrap(weirt_rank *rank, state *s)
{
    weir_unique_id id;
    weir_bootstrap_opts opts = {};
    opts.size = sizeof opts;
    opts.timeout_ms = timeout_ms((const casualty *)rank->arg);
    return weirt_id(rank, &id) && WEIRT_OK(rank, weir_device_open(rank->device, nullptr, &s->c.device)) &&
           WEIRT_OK(rank, weir_bootstrap_create(id.text, rank->rank, rank->size, &opts, &s->c.boot));
}

bool open_memories(weirt_rank *rank, state *s)
{
    weirt_pair *pair = &s->pair;
    weir_memory_opts host = { sizeof host, WEIR_MEMORY_HOST };
    weir_comm *comm = s->c.comm;
    bool open = WEIRT_OK(rank, weir_memory_allocate(comm, 4096, nullptr, &pair->local)) &&
                WEIRT_OK(rank, weir_memory_allocate(comm, sizeof(weirt_report), &host, &pair->shared)) &&
                WEIRT_OK(rank, weir_memory_send(comm, pair->local, pair->peer, 1));
    pair->report = open ? (weirt_report *)weir_memory_host_pointer(pair->shared) : nullptr;
    pair->device_report = open ? (weirt_report *)weir_memory_pointer(pair->shared) : nullptr;
    return open;
}

bool launch_wait(weirt_rank *rank, state *s)
{
    weirt_wait_args wait = weirt_wait_of(rank, &s->pair);
    wait.form = WEIRT_WAIT_COOP;
    wait.waits = 2;
    return weirt_launch(rank, &s->pair, weirt_wait_kernel(), &wait);
}

// Does all steps; returns what the survivor's first call after the peer's death returned, WEIR_OK if the peer lives.
weir_status do_steps(weirt_rank *rank, state *s)
{
    weirt_pair *pair = &s->pair;
    pair->peer = 1 - rank->rank;
    if (!open_bootstrap(rank, s)) {
        return WEIR_OK;
    }
    if (!go_on_after(rank, BOOTSTRAP)) {
        weirt_step_wait(rank, 1, 1);
        return weir_comm_create(s->c.boot, s->c.device, nullptr, &s->c.comm);
    }
    if (!WEIRT_OK(rank, weir_comm_create(s->c.boot, s->c.device, nullptr, &s->c.comm))) {
        return WEIR_OK;
    }
    pair->comm = s->c.comm;
    if (!go_on_after(rank, COMM)) {
        weirt_step_wait(rank, 1, 1);
        return weir_memory_recv(pair->comm, pair->peer, 1, &pair->remote);
    }
    if (!open_memories(rank, s)) {
        return WEIR_OK;
    }
    if (!go_on_after(rank, MEMORY)) {
        weirt_step_wait(rank, 1, 1);
        weirt_sleep_ms(100);
        return weir_memory_recv(pair->comm, pair->peer, 1, &pair->remote);
    }
    if (!weirt_receive(rank, pair->comm, pair->peer, 1, &pair->remote) ||
        !weirt_connect(rank, pair->comm, pair->peer, 1, &pair->connection)) {
        return WEIR_OK;
    }
    if (!go_on_after(rank, CONNECTION)) {
        return weir_semaphore_create(pair->connection, 1, nullptr, &pair->semaphore);
    }
    if (!weirt_semaphore(rank, pair->connection, 1, WEIR_SEMAPHORE_DEVICE, &pair->semaphore)) {
        return WEIR_OK;
    }
    if (!go_on_after(rank, SEMAPHORE)) {
        weir_connection *another = nullptr;
        return weir_connection_create(pair->comm, pair->peer, 2, nullptr, &another);
    }
    if (!WEIRT_OK(rank, weir_memory_channel_create(pair->semaphore, pair->remote, pair->local, nullptr, &pair->data)) ||
        !WEIRT_OK(rank, weir_grid_barrier_create(pair->comm, &pair->barrier)) ||
        !WEIRT_OK(rank, weir_kernel_load(s->c.device, weirt_wait_kernel())) ||
        !WEIRT_OK(rank, weir_stream_create(s->c.device, &pair->stream))) {
        return WEIR_OK;
    }
    if (go_on_after(rank, CHANNEL)) {
        launch_wait(rank, s);
        while (__atomic_load_n(&pair->report->started, __ATOMIC_RELAXED) == 0) {
            weirt_sleep_ms(1);
        }
        (void)go_on_after(rank, KERNEL);
    } else {
        launch_wait(rank, s);
    }
    weirt_finish(rank, pair);
    WEIRT_EXPECT(rank, pair->report->status[0][0] == pair->report->status[1][0]);
    WEIRT_EXPECT(rank, pair->report->status[2][0] < 0);
    return (weir_status)pair->report->status[0][0];
}

bool right_status(const casualty *arg, weir_status status)
{
    return status == (arg->death == WEIRT_STOP ? WEIR_ERR_TIMEOUT : WEIR_ERR_REMOTE);
}

// The survivor alone, with everything new, in the same process.
void goes_on(weirt_rank *rank)
{
    weirt_comm alone;
    weir_memory *memory = nullptr;
    weir_memory *again = nullptr;
    if (weirt_comm_open_alone(rank, &alone) &&
        WEIRT_OK(rank, weir_memory_allocate(alone.comm, 100, nullptr, &memory)) &&
        WEIRT_OK(rank, weir_memory_send(alone.comm, memory, 0, 1)) &&
        WEIRT_OK(rank, weir_memory_recv(alone.comm, 0, 1, &again))) {
        WEIRT_OK(rank, weir_comm_status(alone.comm));
    }
    weir_memory_destroy(again);
    weir_memory_destroy(memory);
    weirt_comm_close(&alone);
}

void body(weirt_rank *rank)
{
    const casualty *arg = (const casualty *)rank->arg;
    state s = {};
    weirt_log_allow("rank 1");
    weir_status status = do_steps(rank, &s);
    // The peer's own word is the moment of its death; the call itself may have begun later.
    uint64_t since = weirt_now_ms();
    if (!right_status(arg, status)) {
        weirt_fail(rank, __FILE__, __LINE__, "after the peer's death the next call returned %s: %s",
                   weir_status_name(status), weir_last_error());
    }
    if (s.c.comm != nullptr && arg->death != WEIRT_STOP) {
        // The call may have learnt it a moment before the communicator.
        while (weir_comm_status(s.c.comm) == WEIR_OK && weirt_now_ms() - since < 2000 * (uint64_t)weirt_slow()) {
            weirt_sleep_ms(1);
        }
        WEIRT_STATUS(rank, WEIR_ERR_REMOTE, weir_comm_status(s.c.comm));
        WEIRT_TEXT(rank, "rank 1");
    }
    goes_on(rank);
    weirt_pair_close(rank, &s.pair, false);
    weirt_comm_close(&s.c);
    WEIRT_EXPECT(rank, weirt_now_ms() - since < 10000 * (uint64_t)weirt_slow());
    goes_on(rank);
}

class Peer : public ::testing::TestWithParam<std::tuple<int, int, int>> {};

TEST_P(Peer, SurvivorGetsAnErrorAndGoesOn)
{
    const weirt_stage *stage = &weirt_stages[std::get<0>(GetParam())];
    const char *reason = weirt_stage_missing(stage);
    if (reason != nullptr) {
        GTEST_SKIP() << reason;
    }
    casualty arg = { (uint32_t)std::get<1>(GetParam()), (weirt_death)std::get<2>(GetParam()) };
    uint64_t since = weirt_now_ms();
    weirt_ranks_run(stage, 2, body, &arg, sizeof arg);
    // A death is known within about a second; nobody has waited for a deadline.
    if (arg.death != WEIRT_STOP) {
        EXPECT_LT(weirt_now_ms() - since, weirt_patience_ms() / 2);
    }
}

std::string peer_name(const ::testing::TestParamInfo<std::tuple<int, int, int>> &param)
{
    const char *const deaths[] = { "", "exits", "killed", "stopped" };
    return std::string(weirt_stages[std::get<0>(param.param)].name) + "_" + step_names[std::get<1>(param.param)] + "_" +
           deaths[std::get<2>(param.param)];
}

INSTANTIATE_TEST_SUITE_P(Stages, Peer,
                         ::testing::Combine(::testing::Values(1, 3), ::testing::Range(0, (int)STEPS),
                                            ::testing::Values((int)WEIRT_EXIT, (int)WEIRT_KILL, (int)WEIRT_STOP)),
                         peer_name);

} // namespace
