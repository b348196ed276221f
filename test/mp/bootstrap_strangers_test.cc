// Unauthenticated connections that stay open: how many of this process's descriptors they get, and that ranks still
// connect.
#include <atomic>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>

#include "test/harness/member.h"

namespace {

class BootstrapStrangers : public BootstrapTest {};

const rlim_t few = 128;  // descriptors of a process
const uint32_t room = 8; // of these, for unauthenticated connections

// The limit of this process's descriptors, until the end of the block.
class Limit {
public:
    explicit Limit(rlim_t limit)
    {
        EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
        const rlimit now = { limit, before_.rlim_max };
        EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &now), 0);
    }
    ~Limit() { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0); }

private:
    rlimit before_ = {};
};

// A connection to 127.0.0.1:port from an address of this host.
int connect_from(const char *from, uint16_t port, const std::string &bytes)
{
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(inet_pton(AF_INET, from, &name.sin_addr), 1);
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr *>(&name), sizeof name), 0);
    name.sin_port = htons(port);
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr *>(&name), sizeof name), 0);
    EXPECT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    return fd;
}

std::string some_hello()
{
    weiri_auth auth;
    return weirt_hello(weirt_purpose_join(1), &auth);
}

std::vector<int> connect_many(uint16_t port, uint32_t count, const std::string &bytes)
{
    std::vector<int> fds;
    for (uint32_t i = 0; i < count; i++) {
        fds.push_back(connect_from("127.0.0.1", port, bytes));
    }
    return fds;
}

void close_all(const std::vector<int> &fds)
{
    for (int fd : fds) {
        close(fd);
    }
}

// Whether the other end closes within the harness's timeout.
bool is_closed(int fd)
{
    char bytes[256];
    pollfd p = { fd, POLLIN, 0 };
    while (poll(&p, 1, static_cast<int>(weirt_timeout_ms())) == 1) {
        if (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) <= 0) {
            return true;
        }
    }
    return false;
}

// Whether the other end has not closed yet.
bool is_open(int fd)
{
    char bytes[256];
    ssize_t n;
    while ((n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) {
    }
    return n < 0 && errno == EAGAIN;
}

struct Descriptors {
    std::atomic<bool> here;
    std::atomic<bool> over;
    std::atomic<int> descriptors; // maximum held by unauthenticated connections
    Outcome outcome;
};

// Strangers at 127.0.0.1 that connect without a pause, until the end of the block: they replace each connection that
// the rank drops.
class Flood {
public:
    Flood(uint16_t port, const std::string &bytes) : port_(port), bytes_(bytes)
    {
        for (std::thread &t : threads_) {
            t = std::thread([this] { run(); });
        }
    }
    ~Flood()
    {
        over_ = true;
        for (std::thread &t : threads_) {
            t.join();
        }
    }

private:
    void run()
    {
        std::vector<int> fds(8 * room, -1);
        while (!over_) {
            for (int &fd : fds) {
                if (fd >= 0 && is_open(fd)) {
                    continue;
                }
                if (fd >= 0) {
                    close(fd);
                }
                fd = weirt_try_connect(port_);
                (void)!send(fd, bytes_.data(), bytes_.size(), MSG_NOSIGNAL);
            }
        }
        close_all(fds);
    }

    const uint16_t port_;
    const std::string bytes_;
    std::atomic<bool> over_{ false };
    std::thread threads_[4];
};

struct Flooded {
    std::atomic<uint32_t> dropped; // 1: a slow client has lost its connection
    std::atomic<uint32_t> over;    // 1: the flood is over
    std::atomic<uint32_t> port;    // of the slow client
};

// A job of two ranks in a process with few descriptors. Many clients connect to rank 0 and send half of a hello. The
// process keeps nearly all descriptors for itself.
TEST_F(BootstrapStrangers, ARunningJobKeepsItsDescriptors)
{
    weirt_log_allow("foreign connection");
    Shared<Descriptors> shared;
    const weir_unique_id id = weirt_new_id();
    const pid_t pid = weirt_fork(0, [&](uint32_t) {
        const Limit limit(few);
        weirt_job(id.text, 2, [&](weir_bootstrap *boot, uint32_t rank) {
            const int before = static_cast<int>(weirt_count_descriptors());
            EXPECT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
            shared->here = true;
            while (rank == 0 && !shared->over) {
                const int more = static_cast<int>(weirt_count_descriptors()) - before;
                shared->descriptors = more > shared->descriptors ? more : shared->descriptors.load();
                const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
                EXPECT_GE(fd, 0);
                close(fd);
                weirt_sleep_ms(1);
            }
            EXPECT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
        });
        _exit(testing::Test::HasFailure() ? 1 : 0);
    });
    weir_unique_id_discard(&id);
    const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
    while (!shared->here && weirt_now_ms() < end) {
        weirt_sleep_ms(1);
    }
    const std::vector<int> fds = connect_many(weirt_id_port(id), 300, some_hello().substr(0, 30));
    for (uint32_t i = 0; i < fds.size() - room; i++) {
        EXPECT_TRUE(is_closed(fds[i])) << i;
    }
    shared->over = true;
    EXPECT_EQ(weirt_wait(pid), 0);
    EXPECT_LE(shared->descriptors, static_cast<int>(room) + 2); // one that was just accepted, and the one that counts
    close_all(fds);
}

// The same connections before the ranks of a job meet, silent or with half a hello: the ranks still meet, before the
// first of these connections would be dropped for its silence.
TEST_F(BootstrapStrangers, ACrowdDoesNotKeepRanksFromMeeting)
{
    weirt_log_allow("foreign connection");
    for (const std::string &bytes : { std::string(), some_hello().substr(0, 30), some_hello() }) {
        const weir_unique_id id = weirt_new_id();
        const std::vector<int> fds = connect_many(weirt_id_port(id), 600, bytes);
        const pid_t pid = weirt_fork(0, [&](uint32_t) {
            close_all(fds);
            const Limit limit(few);
            weirt_job(
                id.text, 2,
                [&](weir_bootstrap *boot, uint32_t) {
                    EXPECT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
                },
                4000 * weirt_slow());
            _exit(testing::Test::HasFailure() ? 1 : 0);
        });
        weir_unique_id_discard(&id);
        EXPECT_EQ(weirt_wait(pid), 0) << bytes.size();
        close_all(fds);
    }
}

// A flood from the ranks' own address drops a client that has not proved the key yet, as it may drop ranks. That is no
// error: ranks connect again, and meet at the latest when the flood is over.
TEST_F(BootstrapStrangers, AFloodFromTheRanksAddressOnlyDelaysThem)
{
    for (const std::string &bytes : { std::string(), some_hello().substr(0, 30), some_hello() }) {
        Shared<Flooded> shared;
        const weir_unique_id id = weirt_new_id();
        const pid_t pid = weirt_fork(0, [&](uint32_t) {
            const Limit limit(few);
            weirt_threads(2, [&](uint32_t rank) {
                if (rank == 1) {
                    weirt_await_count(shared->dropped, 1u);
                }
                const weir_bootstrap_opts opts = weirt_opts(weirt_timeout_ms());
                weir_bootstrap *boot = nullptr;
                EXPECT_EQ(weir_bootstrap_create(id.text, rank, 2, &opts, &boot), WEIR_OK) << weir_last_error();
                weirt_await_count(shared->over, 1u);
                EXPECT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
                weir_bootstrap_destroy(boot);
            });
            // The slow client was the first to be dropped, and only the first is logged.
            const std::string from = "foreign connection from 127.0.0.1:" + std::to_string(shared->port);
            EXPECT_EQ(weirt_log_count((from + ", ignored: too many connections").c_str()), 1u);
            EXPECT_EQ(weirt_log_count("foreign connection"), 1u);
            _exit(testing::Test::HasFailure() ? 1 : 0);
        });
        weir_unique_id_discard(&id);
        const int slow = connect_from("127.0.0.1", weirt_id_port(id), some_hello());
        sockaddr_in name = {};
        socklen_t size = sizeof name;
        EXPECT_EQ(getsockname(slow, reinterpret_cast<sockaddr *>(&name), &size), 0);
        shared->port = ntohs(name.sin_port);
        EXPECT_NE(weirt_read_exactly(slow, WEIRI_AUTH_CHALLENGE_BYTES), "");
        {
            const Flood flood(weirt_id_port(id), bytes);
            EXPECT_TRUE(is_closed(slow));
            shared->dropped = 1;
            weirt_sleep_ms(1000); // the ranks try to meet
        }
        shared->over = 1;
        EXPECT_EQ(weirt_wait(pid), 0) << bytes.size();
        close(slow);
    }
}

// When the room is used up, the oldest connection from the address with the most connections is dropped. A single slow
// client keeps its connection, although it is the oldest of all.
TEST_F(BootstrapStrangers, TheCrowdMakesRoomForTheSingleOne)
{
    weirt_log_allow("foreign connection");
    const Limit limit(few);
    const weir_unique_id id = weirt_new_id();
    weirt_job(id.text, 2, [&](weir_bootstrap *boot, uint32_t rank) {
        if (rank == 1) {
            weiri_auth auth;
            const uint16_t port = weirt_id_port(id);
            const int single = connect_from("127.0.0.1", port, weirt_hello(weirt_purpose_join(1), &auth));
            const std::string challenge = weirt_read_exactly(single, WEIRI_AUTH_CHALLENGE_BYTES);
            std::vector<int> fds;
            for (uint32_t i = 0; i < 3 * room; i++) {
                fds.push_back(connect_from("127.0.0.2", port, some_hello()));
            }
            for (uint32_t i = 0; i < 2 * room; i++) {
                EXPECT_TRUE(is_closed(fds[i])) << i;
            }
            std::string proof(WEIRI_AUTH_PROOF_BYTES, '\0');
            EXPECT_EQ(weiri_auth_prove(&auth, weirt_bytes(weirt_id_key(id)), weirt_bytes(challenge),
                                       reinterpret_cast<uint8_t *>(&proof[0])),
                      WEIR_OK);
            weirt_send(single, proof);
            const std::string answer = weirt_read_exactly(single, WEIRI_AUTH_PROOF_BYTES);
            EXPECT_EQ(weiri_auth_check_answer(&auth, weirt_bytes(weirt_id_key(id)), weirt_bytes(answer)), WEIR_OK);
            close_all(fds);
            close(single);
        }
        EXPECT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
    });
}

TEST_F(BootstrapStrangers, ATimeoutTellsHowManyThereWere)
{
    weirt_log_allow("foreign connection");
    const weir_unique_id id = weirt_new_id();
    std::vector<int> fds = connect_many(weirt_id_port(id), 3, std::string(200, 'x'));
    std::vector<Outcome> o = weirt_creates(id.text, { { 0, 2 } }, 300);
    EXPECT_EQ(o[0].status, WEIR_ERR_TIMEOUT);
    EXPECT_TRUE(weirt_has(o[0], "rank 1 of 2 missing; 3 connections did not prove the key")) << o[0].text;
    close_all(fds);
    const weir_unique_id other = weirt_new_id();
    fds = connect_many(weirt_id_port(other), 1, "x");
    o = weirt_creates(other.text, { { 0, 2 } }, 300);
    EXPECT_TRUE(weirt_has(o[0], "rank 1 of 2 missing; 1 connection did not prove the key")) << o[0].text;
    close_all(fds);
}

// A connection has one second for its first byte, and more for its proof.
TEST_F(BootstrapStrangers, SilentConnectionsAreDroppedInTime)
{
    weirt_log_allow("stays silent");
    const weir_unique_id id = weirt_new_id();
    weirt_job(id.text, 2, [&](weir_bootstrap *boot, uint32_t rank) {
        if (rank == 0) {
            bool is_first = false; // the silent connection is dropped while the other is open
            for (int tries = 0; tries < 5 && !is_first; tries++) { // again if rank 0 had no CPU for seconds
                const uint64_t start = weirt_now_ms();
                const int silent = connect_from("127.0.0.1", weirt_id_port(id), "");
                const int slow = connect_from("127.0.0.1", weirt_id_port(id), some_hello());
                EXPECT_TRUE(is_closed(silent));
                is_first = is_open(slow);
                EXPECT_GE(weirt_now_ms() - start, 1000u);
                EXPECT_TRUE(is_closed(slow));
                EXPECT_GE(weirt_now_ms() - start, 5000u);
                close(silent);
                close(slow);
            }
            EXPECT_TRUE(is_first);
        }
        EXPECT_EQ(weir_bootstrap_barrier(boot, nullptr), WEIR_OK) << weir_last_error();
    });
    EXPECT_EQ(weirt_log_count("stays silent"), 1u);
    // Rank 0 does not wait for a client that has only sent its hello.
    const weir_unique_id other = weirt_new_id();
    const int fd = weirt_connect_raw(weirt_id_port(other), some_hello());
    weirt_job(other.text, 1, [](weir_bootstrap *, uint32_t) {});
    close(fd);
}

} // namespace
