// Failures of bootstraps: missing, wrong, killed, stopped and leaving ranks, foreign connections, wrong keys.
#include <atomic>
#include <cstdlib>

#include "test/harness/member.h"

extern "C" {
#include "src/host/base/alloc.h"
}

namespace {

class BootstrapFault : public BootstrapTest {};

const uint32_t expiry_ms = 200;

void expect_expired(const Outcome &o, uint32_t timeout_ms)
{
    EXPECT_GE(o.ms, timeout_ms) << o.text;
    EXPECT_LT(o.ms, timeout_ms + weirt_slack_ms()) << o.text;
}

TEST_F(BootstrapFault, MissingRanksAreNamed)
{
    const char *missing = "timeout: ranks 3, 5 of 8 missing";
    for (const bool by_id : { true, false }) {
        // Six ranks must join before the first deadline, which may take longer on a busy machine.
        std::vector<Outcome> outcomes;
        uint32_t timeout_ms = expiry_ms / 4;
        do {
            timeout_ms *= 4;
            outcomes = weirt_creates(by_id ? std::string(weirt_new_id().text) : weirt_free_address(),
                                     { { 0, 8 }, { 1, 8 }, { 2, 8 }, { 4, 8 }, { 6, 8 }, { 7, 8 } }, timeout_ms);
        } while (timeout_ms < weirt_timeout_ms() && !weirt_all_have(outcomes, missing));
        for (const Outcome &o : outcomes) {
            EXPECT_EQ(o.status, WEIR_ERR_TIMEOUT);
            EXPECT_TRUE(weirt_has(o, missing)) << o.text;
            EXPECT_LT(o.ms, timeout_ms + weirt_slack_ms());
        }
    }
    const std::vector<Outcome> one = weirt_creates(weirt_new_id().text, { { 0, 2 } }, expiry_ms);
    EXPECT_EQ(one[0].status, WEIR_ERR_TIMEOUT);
    EXPECT_TRUE(weirt_has(one[0], "timeout: rank 1 of 2 missing")) << one[0].text;
    expect_expired(one[0], expiry_ms);
}

TEST_F(BootstrapFault, MissingRankZeroIsNamed)
{
    for (const Outcome &o : weirt_creates(weirt_free_address(), { { 1, 3 }, { 2, 3 } }, expiry_ms)) {
        EXPECT_EQ(o.status, WEIR_ERR_TIMEOUT);
        EXPECT_TRUE(weirt_has(o, "rank 0 of 3 missing")) << o.text;
        expect_expired(o, expiry_ms);
    }
}

// An id whose socket listens, but whose rank 0 never joins.
TEST_F(BootstrapFault, UnusedIdTimesOut)
{
    const weir_unique_id id = weirt_new_id();
    const std::vector<Outcome> o = weirt_creates(id.text, { { 1, 2 } }, expiry_ms);
    EXPECT_EQ(o[0].status, WEIR_ERR_TIMEOUT);
    EXPECT_TRUE(weirt_has(o[0], "rank 0 of 2 missing")) << o[0].text;
    expect_expired(o[0], expiry_ms);
    weir_unique_id_discard(&id);
}

// The earliest deadline of any rank ends create on all.
TEST_F(BootstrapFault, EarliestDeadlineCounts)
{
    // Rank 1 must reach rank 0 before its deadline, which may take longer on a busy machine.
    std::vector<Outcome> outcomes(2);
    uint32_t timeout_ms = expiry_ms / 4;
    do {
        timeout_ms *= 4;
        const weir_unique_id id = weirt_new_id();
        weirt_threads(2, [&](uint32_t rank) {
            const weir_bootstrap_opts opts = weirt_opts(rank == 0 ? 2 * weirt_timeout_ms() : timeout_ms);
            weir_bootstrap *boot = nullptr;
            outcomes[rank] = weirt_outcome([&] { return weir_bootstrap_create(id.text, rank, 3, &opts, &boot); });
        });
    } while (timeout_ms < weirt_timeout_ms() && !weirt_all_have(outcomes, "rank 2 of 3 missing"));
    for (const Outcome &o : outcomes) {
        EXPECT_EQ(o.status, WEIR_ERR_TIMEOUT);
        EXPECT_TRUE(weirt_has(o, "rank 2 of 3 missing")) << o.text;
        EXPECT_LT(o.ms, timeout_ms + weirt_slack_ms());
    }
}

TEST_F(BootstrapFault, WrongSizeFailsAll)
{
    const std::vector<Outcome> outcomes =
        weirt_creates(weirt_new_id().text, { { 0, 3 }, { 1, 3 }, { 2, 4 } }, weirt_timeout_ms());
    for (const Outcome &o : outcomes) {
        EXPECT_EQ(o.status, WEIR_ERR_MISMATCH);
        EXPECT_TRUE(weirt_has(o, "rank 2 was created with size 4, rank 0 with size 3")) << o.text;
        EXPECT_LT(o.ms, weirt_slack_ms());
    }
}

TEST_F(BootstrapFault, DuplicateRankFailsAll)
{
    for (const Outcome &o :
         weirt_creates(weirt_new_id().text, { { 0, 4 }, { 1, 4 }, { 2, 4 }, { 2, 4 } }, weirt_timeout_ms())) {
        EXPECT_EQ(o.status, WEIR_ERR_MISMATCH);
        EXPECT_TRUE(weirt_has(o, "two ranks were created as rank 2 of 4")) << o.text;
        EXPECT_LT(o.ms, weirt_slack_ms());
    }
}

TEST_F(BootstrapFault, WrongKeyIsRefused)
{
    weirt_log_allow("foreign connection from 127.0.0.1");
    const std::string where = weirt_free_address();
    std::atomic<bool> refused{ false };
    weirt_threads(3, [&](uint32_t i) {
        weir_bootstrap_opts opts = weirt_opts(weirt_timeout_ms());
        opts.key = i == 2 ? "a different secret" : "our secret";
        weir_bootstrap *boot = nullptr;
        if (i != 2) {
            // The job goes on without the foreign rank.
            ASSERT_EQ(weir_bootstrap_create(where.c_str(), i, 2, &opts, &boot), WEIR_OK) << weir_last_error();
            EXPECT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
            const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
            while (!refused && weirt_now_ms() < end) {
                weirt_sleep_ms(1);
            }
            EXPECT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
            weir_bootstrap_destroy(boot);
            return;
        }
        const Outcome o = weirt_outcome([&] { return weir_bootstrap_create(where.c_str(), 1, 2, &opts, &boot); });
        refused = true;
        EXPECT_EQ(o.status, WEIR_ERR_AUTH);
        EXPECT_TRUE(weirt_has(o, "different key")) << o.text;
        EXPECT_TRUE(weirt_has(o, where.c_str())) << o.text;
    });
}

TEST_F(BootstrapFault, KeyIsNeededOffTheLoopback)
{
    if (getenv("WEIR_KEY") != nullptr || getenv("WEIR_ALLOW_NO_KEY") != nullptr) {
        GTEST_SKIP() << "WEIR_KEY or WEIR_ALLOW_NO_KEY is set";
    }
    weir_bootstrap *boot = nullptr;
    for (uint32_t rank : { 0u, 1u }) {
        EXPECT_EQ(weir_bootstrap_create("192.0.2.77:5000", rank, 2, nullptr, &boot), WEIR_ERR_AUTH);
        const char *command = "export WEIR_KEY=$(head -c 32 /dev/urandom | base64)";
        EXPECT_NE(strstr(weir_last_error(), command), nullptr) << weir_last_error();
        EXPECT_NE(strstr(weir_last_error(), "WEIR_ALLOW_NO_KEY=1"), nullptr) << weir_last_error();
    }
}

TEST_F(BootstrapFault, KeyAllowsAnyAddress)
{
    weir_unique_id id = weirt_new_id(nullptr);
    weir_unique_id_discard(&id);
    const char *address = id.text + 6 + 64 + 1 + 32 + 1;
    weirt_threads(2, [&](uint32_t rank) {
        weir_bootstrap_opts opts = weirt_opts(weirt_timeout_ms());
        opts.key = "0123";
        weir_bootstrap *boot = nullptr;
        ASSERT_EQ(weir_bootstrap_create(address, rank, 2, &opts, &boot), WEIR_OK) << weir_last_error();
        EXPECT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
        weir_bootstrap_destroy(boot);
    });
}

std::string first_hello()
{
    weiri_auth auth;
    return weirt_hello(weirt_purpose_join(1), &auth);
}

// Foreign connections do not disturb the job while ranks meet or later. Each rank logs them once.
TEST_F(BootstrapFault, ForeignConnectionsAreIgnored)
{
    weirt_log_allow("foreign connection from 127.0.0.1");
    const weir_unique_id id = weirt_new_id();
    const uint16_t port = weirt_id_port(id);
    const std::string garbage(1000, '\xa5');
    const std::string http = "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a scanner\r\n\r\n";
    const std::string hello = first_hello();
    const std::vector<std::string> all = { garbage, "", http, hello, hello + garbage, hello.substr(0, 20) };
    std::vector<int> sockets;
    for (const std::string &bytes : all) {
        sockets.push_back(weirt_connect_raw(port, bytes));
    }
    std::atomic<bool> later{ false };
    weirt_job(id.text, 3, [&](weir_bootstrap *boot, uint32_t rank) {
        for (int round = 0; round < 20; round++) {
            if (rank == 1 && round == 5) {
                for (const std::string &bytes : all) {
                    sockets.push_back(weirt_connect_raw(port, bytes));
                }
                later = true;
            }
            uint32_t table[3] = {};
            table[rank] = rank + 7;
            ASSERT_EQ(weir_bootstrap_allgather(boot, nullptr, table, 4), WEIR_OK) << weir_last_error();
            EXPECT_EQ(table[0] * 10000 + table[1] * 100 + table[2], 70809u);
            weirt_sleep_ms(5);
        }
        const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
        while (weirt_log_count("foreign connection") == 0 && weirt_now_ms() < end) {
            weirt_sleep_ms(1); // a busy machine reads them later
        }
    });
    EXPECT_TRUE(later);
    EXPECT_EQ(weirt_log_count("foreign connection"), 1u);
    for (int fd : sockets) {
        close(fd);
    }
}

// A server instead of rank 0. Its answers are right except for one bit of the challenge or of the answer.
Outcome meet_fake_server(size_t wrong_of_challenge, size_t wrong_of_answer)
{
    std::string where;
    const std::string secret = "of a test";
    const int listener = weirt_listen_raw(&where);
    std::thread server([&] {
        const int fd = accept(listener, nullptr, nullptr);
        const std::string hello = weirt_read_exactly(fd, WEIRI_AUTH_HELLO_BYTES);
        uint8_t key[WEIRI_AUTH_KEY_BYTES];
        std::string challenge(WEIRI_AUTH_CHALLENGE_BYTES, '\0');
        std::string answer(WEIRI_AUTH_PROOF_BYTES, '\0');
        weiri_auth auth;
        weiri_auth_derive_key(secret.c_str(), key);
        EXPECT_EQ(weiri_auth_challenge(&auth, weirt_bytes(hello), reinterpret_cast<uint8_t *>(&challenge[0])), WEIR_OK);
        if (wrong_of_challenge < challenge.size()) {
            challenge[wrong_of_challenge] ^= 0x40;
            weirt_send(fd, challenge);
        } else {
            weirt_send(fd, challenge);
            const std::string proof = weirt_read_exactly(fd, WEIRI_AUTH_PROOF_BYTES);
            EXPECT_EQ(weiri_auth_check(&auth, key, weirt_bytes(proof), reinterpret_cast<uint8_t *>(&answer[0])),
                      WEIR_OK);
            answer[wrong_of_answer] ^= 0x40;
            weirt_send(fd, answer);
            // It sends the join with the proof, and nothing more.
            EXPECT_NE(weirt_read_exactly(fd, WEIRI_FRAME_BYTES + 27), "");
        }
        char byte;
        EXPECT_LE(recv(fd, &byte, 1, 0), 0);
        close(fd);
    });
    weir_bootstrap_opts opts = weirt_opts(weirt_timeout_ms());
    opts.key = secret.c_str();
    weir_bootstrap *boot = nullptr;
    const Outcome o = weirt_outcome([&] { return weir_bootstrap_create(where.c_str(), 1, 2, &opts, &boot); });
    server.join();
    close(listener);
    return o;
}

TEST_F(BootstrapFault, FalseServersAreNotTrusted)
{
    const size_t none = SIZE_MAX;
    Outcome o = meet_fake_server(none, WEIRI_AUTH_PROOF_BYTES - 1);
    EXPECT_EQ(o.status, WEIR_ERR_AUTH) << o.text;
    EXPECT_TRUE(weirt_has(o, "the server has a different key")) << o.text;
    o = meet_fake_server(0, none);
    EXPECT_EQ(o.status, WEIR_ERR_AUTH) << o.text;
    o = meet_fake_server(8, none);
    EXPECT_EQ(o.status, WEIR_ERR_VERSION) << o.text;
    EXPECT_TRUE(weirt_has(o, "weir 64.1")) << o.text;
    EXPECT_TRUE(weirt_has(o, "weir 0.1")) << o.text;
}

TEST_F(BootstrapFault, OtherVersionsAreToldOurs)
{
    weirt_log_allow("the client has weir 0.99, this process has weir 0.1");
    const weir_unique_id id = weirt_new_id();
    std::string hello = first_hello();
    hello[10] = 99;
    const int fd = weirt_connect_raw(weirt_id_port(id), hello);
    weirt_job(id.text, 2, [&](weir_bootstrap *boot, uint32_t rank) {
        if (rank == 0) {
            const std::string challenge = weirt_read_exactly(fd, WEIRI_AUTH_CHALLENGE_BYTES);
            ASSERT_EQ(challenge.size(), static_cast<size_t>(WEIRI_AUTH_CHALLENGE_BYTES));
            EXPECT_EQ(challenge[8], 0);
            EXPECT_EQ(challenge[10], 1);
        }
        EXPECT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
    });
    close(fd);
}

// A neighbour meets the others, and then says goodbye without answering their connections: create ends at once. The
// test plays rank 1.
TEST_F(BootstrapFault, NeighbourThatLeavesDuringCreate)
{
    const weir_unique_id id = weirt_new_id();
    const std::string key = weirt_id_key(id);
    std::thread root([&] {
        const Outcome o = weirt_creates(id.text, { { 0, 2 } }, weirt_timeout_ms())[0];
        EXPECT_EQ(o.status, WEIR_ERR_REMOTE);
        EXPECT_TRUE(weirt_has(o, "rank 1 left")) << o.text;
        EXPECT_LT(o.ms, 10000u * weirt_slow());
    });
    std::string where;
    const int listener = weirt_listen_raw(&where);
    const uint16_t port = static_cast<uint16_t>(strtoul(strrchr(where.c_str(), ':') + 1, nullptr, 10));
    Member meeting = weirt_member(weirt_id_port(id), key, weirt_purpose_join(1));
    weirt_send(meeting.fd, weirt_frame(&meeting, WEIRI_FRAME_JOIN, 0, weirt_join_payload(2, port)));
    const std::string welcome = weirt_read_exactly(meeting.fd, WEIRI_FRAME_BYTES);
    const std::string table = weirt_read_exactly(meeting.fd, WEIRI_FRAME_BYTES + WEIRI_JOB_BYTES + 19);
    ASSERT_FALSE(table.empty());
    close(meeting.fd);
    const std::string job = table.substr(WEIRI_FRAME_BYTES, WEIRI_JOB_BYTES);
    Member peer = weirt_member(weirt_id_port(id), key, weirt_purpose(WEIRI_FRAME_PEER, job, 1, 0));
    weirt_send(peer.fd, weirt_frame(&peer, WEIRI_FRAME_GOODBYE, 0, ""));
    root.join();
    close(peer.fd);
    close(listener);
}

// A neighbour that met the others and refuses their connections has died, also if the deadline of create passes before
// that is certain. The test plays rank 1: its port has no listener.
TEST_F(BootstrapFault, NeighbourThatDiesDuringCreate)
{
    const uint32_t timeout_ms = 900; // less than the one second for which a rank may refuse connections
    const std::string where = weirt_free_address();
    const uint16_t port = static_cast<uint16_t>(strtoul(strrchr(where.c_str(), ':') + 1, nullptr, 10));
    Outcome o = { WEIR_OK, 0, "missing" };
    for (int i = 0; i < 10 && weirt_has(o, "missing"); i++) { // again if this machine was too busy to meet in time
        const weir_unique_id id = weirt_new_id();
        std::thread root([&] { o = weirt_creates(id.text, { { 0, 2 } }, timeout_ms)[0]; });
        Member meeting = weirt_member(weirt_id_port(id), weirt_id_key(id), weirt_purpose_join(1));
        weirt_send(meeting.fd, weirt_frame(&meeting, WEIRI_FRAME_JOIN, 0, weirt_join_payload(2, port)));
        (void)weirt_read_exactly(meeting.fd, 2 * WEIRI_FRAME_BYTES + WEIRI_JOB_BYTES + 19);
        close(meeting.fd);
        root.join();
    }
    EXPECT_EQ(o.status, WEIR_ERR_REMOTE) << o.text;
    EXPECT_TRUE(weirt_has(o, "rank 1 died")) << o.text;
}

// A neighbour that met the others is stopped before it connects to any rank: all ranks name it, also ranks without a
// connection to it that wait for other waiting ranks. The test plays rank 3: its listener answers nothing.
TEST_F(BootstrapFault, NeighbourThatStopsDuringCreate)
{
    const uint32_t timeout_ms = 300; // too short for heartbeats
    for (uint32_t size : { 4u, 7u, 8u }) {
        std::vector<Outcome> all;
        bool met = false;
        for (int i = 0; i < 10 && !met; i++) { // again if this machine was too busy to meet or to answer in time
            std::string where;
            const int listener = weirt_listen_raw(&where);
            const uint16_t port = static_cast<uint16_t>(strtoul(strrchr(where.c_str(), ':') + 1, nullptr, 10));
            const weir_unique_id id = weirt_new_id();
            std::vector<std::pair<uint32_t, uint32_t>> ranks;
            for (uint32_t rank = 0; rank < size; rank++) {
                if (rank != 3) {
                    ranks.emplace_back(rank, size);
                }
            }
            std::thread others([&] { all = weirt_creates(id.text, ranks, timeout_ms << i); });
            Member meeting = weirt_member(weirt_id_port(id), weirt_id_key(id), weirt_purpose_join(3));
            weirt_send(meeting.fd, weirt_frame(&meeting, WEIRI_FRAME_JOIN, 0, weirt_join_payload(size, port)));
            others.join();
            close(meeting.fd);
            close(listener);
            met = true;
            const bool may_be_slow = timeout_ms << i < 2000; // then a living rank may not answer before the deadline
            for (const Outcome &o : all) {
                met = met && !weirt_has(o, "missing") && (weirt_has(o, "rank 3") || !may_be_slow);
            }
        }
        EXPECT_TRUE(met);
        for (const Outcome &o : all) {
            EXPECT_EQ(o.status, WEIR_ERR_TIMEOUT) << o.text;
            EXPECT_TRUE(weirt_has(o, "rank 3")) << size << " ranks: " << o.text;
        }
    }
}

// A client with the key sends malformed frames: it is closed, and the job goes on.
TEST_F(BootstrapFault, MalformedFramesOfAKnownClient)
{
    weirt_log_allow("malformed message from 127.0.0.1");
    weirt_log_allow("foreign connection from 127.0.0.1");
    const weir_unique_id id = weirt_new_id();
    const auto attack = [&](uint32_t kind, const std::string &payload, uint64_t bytes) {
        Member m = weirt_member(weirt_id_port(id), weirt_id_key(id), weirt_purpose_join(1));
        EXPECT_NE(m.answer, std::string(m.answer.size(), '\0'));
        weirt_send(m.fd, weirt_frame(&m, kind, UINT64_MAX, payload, bytes));
        char byte;
        EXPECT_LE(recv(m.fd, &byte, 1, 0), 0);
        close(m.fd);
    };
    weirt_job(id.text, 2, [&](weir_bootstrap *boot, uint32_t rank) {
        if (rank == 1) {
            attack(UINT32_MAX, "", UINT64_MAX - 1);
            for (uint32_t kind = 0; kind < 16; kind++) {
                attack(kind, "", 0);
                attack(kind, std::string(20, '\x01'), UINT64_MAX);
                attack(kind, "", WEIRI_RAW_BYTES + 1);
            }
        }
        EXPECT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
    });
}

// The report of each process of a case.
struct Report {
    std::atomic<uint32_t> ready;
    std::atomic<uint64_t> killed_ms;
    Outcome outcome[8];
    Outcome later[8];
};

// Four processes; rank 2 is killed while the others are in `call`. Whether they knew of it soon.
bool kill_rank_two_once(const std::function<weir_status(weir_bootstrap *, uint32_t)> &call)
{
    bool soon = true;
    Shared<Report> report;
    const weir_unique_id id = weirt_new_id();
    std::vector<pid_t> pids;
    for (uint32_t i = 0; i < 4; i++) {
        pids.push_back(weirt_fork(i, [&](uint32_t rank) {
            const weir_bootstrap_opts opts = weirt_opts(weirt_timeout_ms());
            weir_bootstrap *boot = nullptr;
            report->outcome[rank] =
                weirt_outcome([&] { return weir_bootstrap_create(id.text, rank, 4, &opts, &boot); });
            if (boot == nullptr) {
                _exit(1);
            }
            report->ready++;
            if (rank == 2) {
                pause();
            }
            report->outcome[rank] = weirt_outcome([&] { return call(boot, rank); });
            report->outcome[rank].ms = weirt_now_ms() - report->killed_ms;
            report->later[rank] = weirt_outcome([&] { return weir_bootstrap_send(boot, nullptr, 0, rank, 0); });
            weir_bootstrap_destroy(boot);
        }));
    }
    weir_unique_id_discard(&id);
    weirt_await_count(report->ready, 4u);
    weirt_sleep_ms(50);
    report->killed_ms = weirt_now_ms();
    kill(pids[2], SIGKILL);
    for (uint32_t i = 0; i < 4; i++) {
        const int status = weirt_wait(pids[i]);
        if (i == 2) {
            continue;
        }
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << i << " ended with " << status;
        for (const Outcome *o : { &report->outcome[i], &report->later[i] }) {
            EXPECT_EQ(o->status, WEIR_ERR_REMOTE) << "rank " << i << ": " << o->text;
            EXPECT_TRUE(weirt_has(*o, "bootstrap: rank 2 died")) << o->text;
        }
        soon = soon && report->outcome[i].ms < 2000u * weirt_slow();
    }
    return soon;
}

// One of five runs must be in time: a busy machine may keep a rank from its CPU for seconds.
void kill_rank_two(const std::function<weir_status(weir_bootstrap *, uint32_t)> &call)
{
    bool soon = false;
    for (int tries = 0; tries < 5 && !soon && !testing::Test::HasFailure(); tries++) {
        soon = kill_rank_two_once(call);
    }
    EXPECT_TRUE(soon);
}

TEST_F(BootstrapFault, KilledRankEndsBarriers)
{
    kill_rank_two([](weir_bootstrap *boot, uint32_t) { return weir_bootstrap_barrier(boot, nullptr); });
}

// Receives from a rank that is alive: the calls of all ranks end.
TEST_F(BootstrapFault, KilledRankEndsAllReceives)
{
    kill_rank_two([](weir_bootstrap *boot, uint32_t rank) {
        uint32_t word;
        return weir_bootstrap_recv(boot, &word, 4, rank == 0 ? 1 : 0, 1);
    });
}

TEST_F(BootstrapFault, KilledRankEndsSends)
{
    kill_rank_two([](weir_bootstrap *boot, uint32_t) {
        std::vector<uint8_t> data(1 << 20);
        weir_status status = WEIR_OK;
        while (status == WEIR_OK) {
            status = weir_bootstrap_send(boot, data.data(), data.size(), 2, 1);
            weirt_sleep_ms(20);
        }
        return status;
    });
}

TEST_F(BootstrapFault, PortsLearnWhoDied)
{
    kill_rank_two([](weir_bootstrap *boot, uint32_t) {
        std::atomic<int> seen{ 0 };
        const weiri_port_handler handler = { [](void *, uint32_t, const uint8_t *, size_t) {},
                                             [](void *context, uint32_t rank, bool died, const char *text) {
                                                 const bool right = died && strstr(text, "rank 2 died") != nullptr;
                                                 if (rank == 2) { // the others leave after their calls
                                                     *static_cast<std::atomic<int> *>(context) += right ? 1 : 100;
                                                 }
                                             },
                                             &seen };
        const uint32_t port = weiri_bootstrap_next_port(boot);
        if (weiri_bootstrap_open_port(boot, port, &handler) != WEIR_OK) {
            return WEIR_ERR_INVALID;
        }
        const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
        while (seen == 0 && weirt_now_ms() < end) {
            weirt_sleep_ms(1);
        }
        const weir_status post = weiri_bootstrap_post(boot, 2, port, "x", 1);
        weiri_bootstrap_close_port(boot, port);
        return seen == 1 && post == WEIR_ERR_REMOTE ? weir_bootstrap_barrier(boot, nullptr) : WEIR_ERR_INVALID;
    });
}

// The messages of a port's handler on rank 0, in order.
struct Order {
    std::atomic<uint32_t> ready;
    std::atomic<uint32_t> posted; // rank 1 has posted after it
    std::atomic<uint32_t> count;
    char text[4][64];
};

void note(Order *order, const char *what, uint32_t rank)
{
    const uint32_t at = order->count++;
    if (at < 4) {
        (void)snprintf(order->text[at], sizeof order->text[at], "%s of rank %u", what, rank);
    }
}

// Rank 1 sends a message, rank 2 dies, and rank 1, which knows of the death, sends another message. The handler of rank
// 0, registered later, gets the three in this order.
TEST_F(BootstrapFault, PortsLearnOfADeathInOrder)
{
    Shared<Order> order;
    const weir_unique_id id = weirt_new_id();
    std::vector<pid_t> pids;
    for (uint32_t i = 0; i < 3; i++) {
        pids.push_back(weirt_fork(i, [&](uint32_t rank) {
            const weir_bootstrap_opts opts = weirt_opts(weirt_timeout_ms());
            weir_bootstrap *boot = nullptr;
            uint32_t word = 0;
            if (weir_bootstrap_create(id.text, rank, 3, &opts, &boot) != WEIR_OK) {
                _exit(1);
            }
            const uint32_t port = weiri_bootstrap_next_port(boot);
            if (rank == 1 && (weiri_bootstrap_post(boot, 0, port, "a", 1) != WEIR_OK ||
                              weir_bootstrap_send(boot, &word, 4, 0, 1) != WEIR_OK)) {
                _exit(2);
            }
            if (rank == 0 && weir_bootstrap_recv(boot, &word, 4, 1, 1) != WEIR_OK) {
                _exit(3); // earlier messages have arrived too
            }
            order->ready++;
            if (rank == 2) {
                pause();
            }
            if (weir_bootstrap_recv(boot, &word, 4, 2, 1) != WEIR_ERR_REMOTE) {
                _exit(4);
            }
            if (rank == 1) {
                const bool sent = weiri_bootstrap_post(boot, 0, port, "b", 1) == WEIR_OK;
                order->posted++;
                weirt_await_count(order->count, 3u); // the service thread may have to write it
                _exit(sent ? 0 : 5);
            }
            const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
            while (order->posted == 0 && weirt_now_ms() < end) {
                weirt_sleep_ms(1);
            }
            weirt_sleep_ms(50);
            const weiri_port_handler handler = { [](void *context, uint32_t peer, const uint8_t *, size_t) {
                                                    note(static_cast<Order *>(context), "message", peer);
                                                },
                                                 [](void *context, uint32_t gone, bool, const char *) {
                                                     note(static_cast<Order *>(context), "end", gone);
                                                 },
                                                 order.operator->() };
            if (weiri_bootstrap_open_port(boot, port, &handler) != WEIR_OK) {
                _exit(6);
            }
            while (order->count < 3 && weirt_now_ms() < end) {
                weirt_sleep_ms(1);
            }
            weiri_bootstrap_close_port(boot, port);
            weir_bootstrap_destroy(boot);
        }));
    }
    weir_unique_id_discard(&id);
    const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
    while (order->ready < 3 && weirt_now_ms() < end) {
        weirt_sleep_ms(1);
    }
    kill(pids[2], SIGKILL);
    weirt_wait(pids[2]);
    EXPECT_EQ(weirt_wait(pids[1]), 0);
    EXPECT_EQ(weirt_wait(pids[0]), 0);
    EXPECT_STREQ(order->text[0], "message of rank 1");
    EXPECT_STREQ(order->text[1], "end of rank 2");
    EXPECT_STREQ(order->text[2], "message of rank 1");
}

// Counts log lines by which rank 0 knows of a rank.
void count_known(void *report, weir_log_level, const char *text)
{
    static_cast<Report *>(report)->ready += strstr(text, "rank 0 knows of rank") != nullptr;
}

// Three of four ranks join, and one is killed when rank 0 knows of all three. If rank 0 lives, the fourth rank comes
// after that.
void kill_during_the_rendezvous(uint32_t victim)
{
    Shared<Report> report;
    const weir_unique_id id = weirt_new_id();
    std::vector<pid_t> pids;
    weir_log_set_sink(count_known, report.operator->());
    const auto start = [&] {
        pids.push_back(weirt_fork((uint32_t)pids.size(), [&](uint32_t rank) {
            const weir_bootstrap_opts opts = weirt_opts(weirt_timeout_ms());
            weir_bootstrap *boot = nullptr;
            report->outcome[rank] =
                weirt_outcome([&] { return weir_bootstrap_create(id.text, rank, 4, &opts, &boot); });
        }));
    };
    for (uint32_t i = 0; i < 3; i++) {
        start();
    }
    weirt_await_count(report->ready, 2u);
    kill(pids[victim], SIGKILL);
    weirt_wait(pids[victim]);
    weirt_wait(pids[2]);
    if (victim != 0) {
        start();
        weirt_wait(pids[0]);
        weirt_wait(pids[3]);
    } else {
        weirt_wait(pids[1]);
    }
    weir_unique_id_discard(&id);
    for (uint32_t i = 0; i < pids.size(); i++) {
        if (i != victim) {
            const Outcome &o = report->outcome[i];
            EXPECT_EQ(o.status, WEIR_ERR_REMOTE) << "rank " << i << ": " << o.text;
            EXPECT_TRUE(weirt_has(o, ("rank " + std::to_string(victim) + " died").c_str())) << o.text;
        }
    }
}

// A rank is killed before the ranks have met: the others' create ends at once with an error that names it. Runs in its
// own process, because a process reads WEIR_LOG once.
TEST_F(BootstrapFault, RankKilledDuringTheRendezvous)
{
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto kill_each = [] {
        setenv("WEIR_LOG", "debug", 1);
        kill_during_the_rendezvous(0);
        kill_during_the_rendezvous(1);
        std::_Exit(testing::Test::HasFailure() ? 1 : 0);
    };
    EXPECT_EXIT(kill_each(), testing::ExitedWithCode(0), "");
}

// The deadline of the call that needs a stopped rank finds it.
TEST_F(BootstrapFault, StoppedRankTimesOut)
{
    weir_bootstrap *boot = nullptr;
    weir_bootstrap_opts opts = weirt_opts(500 * weirt_slow());
    pid_t pid = -1;
    weirt_log_allow("closed before it proved the key");
    // The ranks must meet before the deadline, which may take longer on a busy machine.
    for (weir_status met = WEIR_ERR_TIMEOUT; met == WEIR_ERR_TIMEOUT && opts.timeout_ms < 8000 * weirt_slow();) {
        const weir_unique_id id = weirt_new_id();
        opts.timeout_ms *= 2;
        pid = weirt_fork(1, [&](uint32_t rank) {
            weir_bootstrap *peer = nullptr;
            if (weir_bootstrap_create(id.text, rank, 2, nullptr, &peer) == WEIR_OK) {
                pause();
            }
        });
        met = weir_bootstrap_create(id.text, 0, 2, &opts, &boot);
        if (met != WEIR_OK) {
            kill(pid, SIGKILL);
            weirt_wait(pid);
        }
    }
    ASSERT_NE(boot, nullptr) << weir_last_error();
    kill(pid, SIGSTOP);
    Outcome o = weirt_outcome([&] { return weir_bootstrap_barrier(boot, nullptr); });
    EXPECT_EQ(o.status, WEIR_ERR_TIMEOUT);
    EXPECT_TRUE(weirt_has(o, "rank 1 does not answer (stopped, or its host is unreachable)")) << o.text;
    expect_expired(o, opts.timeout_ms);
    // The operation cannot be repaired: later ones fail at once, the quickest of five also on a busy machine.
    uint64_t least_ms = UINT64_MAX;
    for (int tries = 0; tries < 5; tries++) {
        o = weirt_outcome([&] { return weir_bootstrap_barrier(boot, nullptr); });
        EXPECT_EQ(o.status, WEIR_ERR_TIMEOUT);
        least_ms = std::min(least_ms, o.ms);
    }
    EXPECT_LT(least_ms, opts.timeout_ms);
    kill(pid, SIGKILL);
    weirt_wait(pid);
    weir_bootstrap_destroy(boot);
}

// Of four ranks, rank 1 does not call the barrier, or is stopped before it. Returns how the others ended: their
// barriers, or the creates of all if the machine was too busy to meet in time. Here silence takes longer than the
// deadline of the barrier.
std::vector<Outcome> end_a_barrier(bool stopped)
{
    Shared<Report> report;
    const weir_unique_id id = weirt_new_id();
    std::vector<pid_t> pids;
    for (uint32_t i = 0; i < 4; i++) {
        pids.push_back(weirt_fork(i, [&](uint32_t rank) {
            const weir_bootstrap_opts opts = weirt_opts(1500 * weirt_slow());
            weir_bootstrap *boot = nullptr;
            report->outcome[rank] =
                weirt_outcome([&] { return weir_bootstrap_create(id.text, rank, 4, &opts, &boot); });
            report->ready++;
            const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
            while (report->killed_ms == 0 && weirt_now_ms() < end) {
                weirt_sleep_ms(1);
            }
            if (rank == 1 || boot == nullptr) {
                weirt_sleep_ms(weirt_timeout_ms());
            }
            report->outcome[rank] = weirt_outcome([&] { return weir_bootstrap_barrier(boot, nullptr); });
            weir_bootstrap_destroy(boot);
        }));
    }
    weir_unique_id_discard(&id);
    weirt_await_count(report->ready, 4u);
    std::vector<Outcome> outcomes(report->outcome, report->outcome + 4);
    const bool met =
        std::all_of(outcomes.begin(), outcomes.end(), [](const Outcome &o) { return o.status == WEIR_OK; });
    if (met) {
        if (stopped) {
            kill(pids[1], SIGSTOP);
        }
        report->killed_ms = weirt_now_ms();
        outcomes.clear();
        for (uint32_t i : { 0u, 2u, 3u }) {
            EXPECT_EQ(weirt_wait(pids[i]), 0);
            const Outcome &o = report->outcome[i];
            EXPECT_TRUE(o.status == WEIR_ERR_TIMEOUT || (stopped && o.status == WEIR_ERR_REMOTE)) << o.status;
            outcomes.push_back(o);
        }
    }
    for (uint32_t i = 0; i < 4; i++) {
        if (!met || i == 1) {
            kill(pids[i], SIGKILL);
            weirt_wait(pids[i]);
        }
    }
    return outcomes;
}

// All others name rank 1, also ranks that wait for other waiting ranks; in one of five runs, because on a busy machine
// ranks may meet, or call the barrier, too late for the deadline.
void missing_in_a_barrier(bool stopped)
{
    const char *text = stopped ? "rank 1 does not answer (stopped, or its host is unreachable)"
                               : "barrier: timeout: rank 1 has not called it";
    std::vector<Outcome> outcomes;
    for (int tries = 0; tries < 5 && (outcomes.empty() || !weirt_all_have(outcomes, text)); tries++) {
        outcomes = end_a_barrier(stopped);
    }
    for (const Outcome &o : outcomes) {
        EXPECT_TRUE(weirt_has(o, text)) << o.text;
    }
}

TEST_F(BootstrapFault, RankThatDoesNotCallIsNamedByAll) { missing_in_a_barrier(false); }
TEST_F(BootstrapFault, RankThatIsStoppedIsNamedByAll) { missing_in_a_barrier(true); }

TEST_F(BootstrapFault, RanksThatLeaveFailOnlyWhoNeedsThem)
{
    weirt_job(5, [](weir_bootstrap *boot, uint32_t rank) {
        uint32_t word = 123;
        if (rank == 2) {
            ASSERT_EQ(weir_bootstrap_send(boot, &word, 4, 0, 8), WEIR_OK);
            return;
        }
        if (rank == 0) {
            // Earlier messages arrive; later receives fail.
            word = 0;
            ASSERT_EQ(weir_bootstrap_recv(boot, &word, 4, 2, 8), WEIR_OK) << weir_last_error();
            EXPECT_EQ(word, 123u);
        }
        Outcome o = weirt_outcome([&] { return weir_bootstrap_recv(boot, &word, 4, 2, 8); });
        EXPECT_EQ(o.status, WEIR_ERR_REMOTE);
        EXPECT_TRUE(weirt_has(o, "rank 2 left")) << o.text;
        EXPECT_LT(o.ms, 5000u * weirt_slow());
        o = weirt_outcome([&] { return weir_bootstrap_send(boot, &word, 4, 2, 8); });
        EXPECT_EQ(o.status, WEIR_ERR_REMOTE);
        EXPECT_TRUE(weirt_has(o, "rank 2 left")) << o.text;
        const uint32_t rest[] = { 0, 1, 3, 4 };
        const weir_group group = { rest, 4 };
        uint32_t table[4] = {};
        table[rank < 2 ? rank : rank - 1] = rank + 50;
        ASSERT_EQ(weir_bootstrap_allgather(boot, &group, table, 4), WEIR_OK) << weir_last_error();
        EXPECT_EQ(table[3], 54u);
        // A collective of all ranks needs the missing rank: all get the same error, which names it.
        o = weirt_outcome([&] { return weir_bootstrap_barrier(boot, nullptr); });
        EXPECT_EQ(o.status, WEIR_ERR_REMOTE);
        EXPECT_TRUE(weirt_has(o, "rank 2 left")) << o.text;
        ASSERT_EQ(weir_bootstrap_barrier(boot, &group), WEIR_OK) << weir_last_error();
    });
}

TEST_F(BootstrapFault, ReceiveTimesOutNamingTheRank)
{
    const uint32_t timeout_ms = 5000 * weirt_slow(); // includes the time to meet
    weirt_job(
        3,
        [&](weir_bootstrap *boot, uint32_t rank) {
            if (rank == 0) {
                uint32_t word = 1;
                const Outcome o = weirt_outcome([&] { return weir_bootstrap_recv(boot, &word, 4, 2, 77); });
                EXPECT_EQ(o.status, WEIR_ERR_TIMEOUT);
                EXPECT_TRUE(weirt_has(o, "weir_bootstrap_recv: tag 77")) << o.text;
                EXPECT_TRUE(weirt_has(o, "rank 2")) << o.text;
                expect_expired(o, timeout_ms);
                EXPECT_EQ(word, 1u);
                ASSERT_EQ(weir_bootstrap_send(boot, &word, 4, 1, 1), WEIR_OK) << weir_last_error();
                ASSERT_EQ(weir_bootstrap_send(boot, &word, 4, 2, 1), WEIR_OK) << weir_last_error();
                return;
            }
            uint32_t word = 0;
            while (weir_bootstrap_recv(boot, &word, 4, 0, 1) == WEIR_ERR_TIMEOUT) {
            }
            EXPECT_EQ(word, 1u);
        },
        timeout_ms);
}

TEST_F(BootstrapFault, DifferentCallsNameBothSides)
{
    weirt_job(2, [](weir_bootstrap *boot, uint32_t rank) {
        for (int i = 0; i < 4; i++) {
            ASSERT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
        }
        uint8_t table[256] = {};
        const Outcome o = weirt_outcome([&] {
            return rank == 0 ? weir_bootstrap_allgather(boot, nullptr, table, 128)
                             : weir_bootstrap_barrier(boot, nullptr);
        });
        EXPECT_EQ(o.status, WEIR_ERR_MISMATCH);
        EXPECT_TRUE(weirt_has(o, "rank 0 called allgather of 128 bytes as operation 5, rank 1 called barrier"))
            << o.text;
        EXPECT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_ERR_MISMATCH);
        // Messages between two ranks do not depend on it.
        EXPECT_EQ(weir_bootstrap_send(boot, &rank, 4, 1 - rank, 0), WEIR_OK) << weir_last_error();
        EXPECT_EQ(weir_bootstrap_recv(boot, table, 4, 1 - rank, 0), WEIR_OK) << weir_last_error();
    });
}

TEST_F(BootstrapFault, DifferentSizesAndRootsAreFoundByAll)
{
    weirt_job(5, [](weir_bootstrap *boot, uint32_t rank) {
        uint8_t table[5 * 16] = {};
        const Outcome o =
            weirt_outcome([&] { return weir_bootstrap_allgather(boot, nullptr, table, rank == 3 ? 16 : 8); });
        EXPECT_EQ(o.status, WEIR_ERR_MISMATCH);
        EXPECT_TRUE(weirt_has(o, "rank 3 called allgather of 16 bytes")) << o.text;
        EXPECT_TRUE(weirt_has(o, "called allgather of 8 bytes")) << o.text;
        EXPECT_LT(o.ms, 5000u * weirt_slow());
    });
    // A root only sends: its next operation returns the error at the latest.
    weirt_job(3, [](weir_bootstrap *boot, uint32_t rank) {
        uint32_t word = rank;
        Outcome o = weirt_outcome([&] { return weir_bootstrap_broadcast(boot, nullptr, &word, 4, rank == 2 ? 2 : 0); });
        if (o.status == WEIR_OK) {
            o = weirt_outcome([&] { return weir_bootstrap_barrier(boot, nullptr); });
        }
        EXPECT_EQ(o.status, WEIR_ERR_MISMATCH);
        EXPECT_TRUE(weirt_has(o, "called broadcast of 4 bytes from rank")) << o.text;
        EXPECT_TRUE(weirt_has(o, "rank 2 called")) << o.text;
    });
}

TEST_F(BootstrapFault, ForkedChildIsRefused)
{
    weirt_job(1, [](weir_bootstrap *boot, uint32_t) {
        const pid_t pid = fork();
        if (pid == 0) {
            uint32_t word = 0;
            const bool refused = weir_bootstrap_send(boot, &word, 4, 0, 0) == WEIR_ERR_FORKED &&
                                 weir_bootstrap_recv(boot, &word, 4, 0, 0) == WEIR_ERR_FORKED &&
                                 weir_bootstrap_barrier(boot, nullptr) == WEIR_ERR_FORKED &&
                                 weir_bootstrap_allgather(boot, nullptr, &word, 4) == WEIR_ERR_FORKED &&
                                 weir_bootstrap_broadcast(boot, nullptr, &word, 4, 0) == WEIR_ERR_FORKED &&
                                 weiri_bootstrap_post(boot, 0, 0, &word, 4) == WEIR_ERR_FORKED;
            weir_bootstrap_destroy(boot);
            _exit(refused ? 0 : 1);
        }
        const int status = weirt_wait(pid);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    });
}

// A forked child's use of a bootstrap does not affect the parent's connections.
TEST_F(BootstrapFault, ParentGoesOnAfterAFork)
{
    const weir_unique_id id = weirt_new_id();
    const pid_t peer = weirt_fork(1, [&](uint32_t rank) {
        weir_bootstrap *boot = nullptr;
        if (weir_bootstrap_create(id.text, rank, 2, nullptr, &boot) != WEIR_OK ||
            weir_bootstrap_barrier(boot, nullptr) != WEIR_OK || weir_bootstrap_barrier(boot, nullptr) != WEIR_OK) {
            _exit(1);
        }
        weir_bootstrap_destroy(boot);
    });
    weir_bootstrap *boot = nullptr;
    ASSERT_EQ(weir_bootstrap_create(id.text, 0, 2, nullptr, &boot), WEIR_OK) << weir_last_error();
    EXPECT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
    weirt_wait(weirt_fork(0, [&](uint32_t) { weir_bootstrap_destroy(boot); }));
    EXPECT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
    weir_bootstrap_destroy(boot);
    EXPECT_EQ(weirt_wait(peer), 0);
}

// The n-th allocation fails: create returns WEIR_ERR_NOMEM or succeeds, and nothing leaks.
TEST_F(BootstrapFault, AllocationsMayFail)
{
    bool failed = true;
    for (uint64_t n = 1; failed; n++) {
        weir_unique_id id = {};
        weir_bootstrap *boot = nullptr;
        weiri_alloc_fail_nth(n);
        weir_status status = weir_unique_id_create("127.0.0.1", &id);
        if (status == WEIR_OK) {
            status = weir_bootstrap_create(id.text, 0, 1, nullptr, &boot);
            uint32_t word = 5;
            if (status == WEIR_OK) {
                status = weir_bootstrap_send(boot, &word, 4, 0, 0);
            }
            if (status == WEIR_OK) {
                status = weir_bootstrap_recv(boot, &word, 4, 0, 0);
            }
            if (status == WEIR_OK) {
                status = weir_bootstrap_barrier(boot, nullptr);
            }
            weir_bootstrap_destroy(boot);
        }
        weiri_alloc_fail_nth(0);
        weir_unique_id_discard(&id);
        failed = status != WEIR_OK;
        EXPECT_TRUE(!failed || status == WEIR_ERR_NOMEM) << weir_last_error();
        ASSERT_LT(n, 200u);
    }
}

// The same with two ranks: whatever fails on either rank, both return in time and nothing leaks. WEIR_ERR_AUTH is
// possible: a failed rank 0 releases its port, and another program's rank 0 may then take it.
TEST_F(BootstrapFault, AllocationsMayFailBetweenRanks)
{
    weirt_log_allow("foreign connection");
    for (uint64_t n = 1; n < 80; n += 3) {
        const weir_unique_id id = weirt_new_id();
        weiri_alloc_fail_nth(n);
        for (const Outcome &o : weirt_creates(id.text, { { 0, 2 }, { 1, 2 } }, expiry_ms)) {
            EXPECT_TRUE(o.status == WEIR_OK || o.status == WEIR_ERR_NOMEM || o.status == WEIR_ERR_REMOTE ||
                        o.status == WEIR_ERR_TIMEOUT || o.status == WEIR_ERR_AUTH)
                << o.text;
            EXPECT_LT(o.ms, expiry_ms + weirt_slack_ms());
        }
        weiri_alloc_fail_nth(0);
        weir_unique_id_discard(&id);
    }
}

} // namespace
