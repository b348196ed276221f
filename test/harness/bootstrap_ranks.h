// bootstrap_ranks.h - ranks of a bootstrap as threads or forked processes, and plain sockets to disturb them; C++.
//
// Every case must end with the allocations, descriptors and mappings that it began with, and without an unexpected log
// line.
#ifndef WEIRT_BOOTSTRAP_RANKS_H
#define WEIRT_BOOTSTRAP_RANKS_H

#include <gtest/gtest.h>

#include <algorithm>
#include <arpa/inet.h>
#include <csignal>
#include <cstring>
#include <functional>
#include <netinet/in.h>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <weir/bootstrap.h>
#include <weir/error.h>

#include "test/harness/checks.h"
#include "test/harness/ranks.h"

// The result of a call in a rank, with the thread's error text and the time that the call took.
struct Outcome {
    weir_status status;
    uint64_t ms;
    char text[512];
};

template <typename Call> Outcome weirt_outcome(Call call)
{
    Outcome o = {};
    const uint64_t start = weirt_now_ms();
    o.status = call();
    o.ms = weirt_now_ms() - start;
    (void)snprintf(o.text, sizeof o.text, "%s", o.status == WEIR_OK ? "" : weir_last_error());
    return o;
}

inline bool weirt_has(const Outcome &o, const char *part) { return strstr(o.text, part) != nullptr; }

inline bool weirt_all_have(const std::vector<Outcome> &outcomes, const char *part)
{
    return std::all_of(outcomes.begin(), outcomes.end(), [&](const Outcome &o) { return weirt_has(o, part); });
}

// Sockets that hold the ports of weirt_free_address() against other tests.
inline std::vector<int> weirt_held_ports;

inline void weirt_release_ports()
{
    for (const int fd : weirt_held_ports) {
        close(fd);
    }
    weirt_held_ports.clear();
}

class BootstrapTest : public ::testing::Test {
protected:
    void SetUp() override { weirt_checks_begin(&checks_); }
    void TearDown() override
    {
        weirt_release_ports();
        weirt_checks_end(
            &checks_, false, [](void *, const char *text) { ADD_FAILURE() << text; }, nullptr);
    }

private:
    weirt_checks checks_ = {};
};

inline weir_bootstrap_opts weirt_opts(uint32_t timeout_ms)
{
    weir_bootstrap_opts opts = {};
    opts.size = sizeof opts;
    opts.timeout_ms = timeout_ms;
    return opts;
}

inline weir_unique_id weirt_new_id(const char *where = "127.0.0.1")
{
    weir_unique_id id = {};
    EXPECT_EQ(weir_unique_id_create(where, &id), WEIR_OK) << weir_last_error();
    return id;
}

inline uint16_t weirt_id_port(const weir_unique_id &id)
{
    return static_cast<uint16_t>(atoi(strrchr(id.text, ':') + 1));
}

// Runs f(rank) as `ranks` threads.
inline void weirt_threads(uint32_t ranks, const std::function<void(uint32_t)> &f)
{
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < ranks; i++) {
        threads.emplace_back(f, i);
    }
    for (std::thread &t : threads) {
        t.join();
    }
}

typedef std::function<void(weir_bootstrap *, uint32_t)> RankBody;

// A job of `ranks` threads at `where`. A `timeout_ms` of 0 means the harness's timeout.
inline void weirt_job(const std::string &where, uint32_t ranks, const RankBody &body, uint32_t timeout_ms = 0)
{
    weirt_threads(ranks, [&](uint32_t rank) {
        const weir_bootstrap_opts opts = weirt_opts(timeout_ms == 0 ? weirt_timeout_ms() : timeout_ms);
        weir_bootstrap *boot = nullptr;
        ASSERT_EQ(weir_bootstrap_create(where.c_str(), rank, ranks, &opts, &boot), WEIR_OK)
            << "rank " << rank << ": " << weir_last_error();
        body(boot, rank);
        weir_bootstrap_destroy(boot);
    });
}

inline void weirt_job(uint32_t ranks, const RankBody &body, uint32_t timeout_ms = 0)
{
    weirt_job(weirt_new_id().text, ranks, body, timeout_ms);
}

// Every rank's outcome of create; each rank passes its own (rank, size). A rank whose create fails may close a
// connection before it has proved the key: the rank at the other end then logs a foreign connection.
inline std::vector<Outcome> weirt_creates(const std::string &where,
                                          const std::vector<std::pair<uint32_t, uint32_t>> &ranks, uint32_t timeout_ms)
{
    std::vector<Outcome> outcomes(ranks.size());
    weirt_threads(static_cast<uint32_t>(ranks.size()), [&](uint32_t i) {
        const weir_bootstrap_opts opts = weirt_opts(timeout_ms);
        weir_bootstrap *boot = nullptr;
        outcomes[i] = weirt_outcome(
            [&] { return weir_bootstrap_create(where.c_str(), ranks[i].first, ranks[i].second, &opts, &boot); });
        weir_bootstrap_destroy(boot);
    });
    if (std::any_of(outcomes.begin(), outcomes.end(), [](const Outcome &o) { return o.status != WEIR_OK; })) {
        weirt_log_allow("closed before it proved the key");
    }
    return outcomes;
}

// A port that is free until weirt_release_ports(). A socket that does not listen holds it: a listener that names the
// port may use it, but the system does not give it to a socket that asks for any port.
inline std::string weirt_free_address(int family = AF_INET)
{
    union {
        sockaddr any;
        sockaddr_in v4;
        sockaddr_in6 v6;
    } name = {};
    name.any.sa_family = static_cast<sa_family_t>(family);
    name.v4.sin_addr.s_addr = family == AF_INET ? htonl(INADDR_LOOPBACK) : 0;
    if (family == AF_INET6) {
        name.v6.sin6_addr = in6addr_loopback;
    }
    socklen_t size = family == AF_INET ? sizeof name.v4 : sizeof name.v6;
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int one = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    const bool bound = fd >= 0 && bind(fd, &name.any, size) == 0 && getsockname(fd, &name.any, &size) == 0;
    if (fd >= 0) {
        weirt_held_ports.push_back(fd);
    }
    return !bound ? "" : (family == AF_INET ? "127.0.0.1:" : "[::1]:") + std::to_string(ntohs(name.v4.sin_port));
}

// A plain listening socket with its own port.
inline int weirt_listen_raw(std::string *where)
{
    *where = weirt_free_address();
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_port = htons(static_cast<uint16_t>(atoi(strrchr(where->c_str(), ':') + 1)));
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int one = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr *>(&name), sizeof name), 0);
    EXPECT_EQ(listen(fd, 16), 0);
    return fd;
}

// A plain connection to 127.0.0.1:port, or -1 where nobody listens.
inline int weirt_try_connect(uint16_t port)
{
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_port = htons(port);
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, reinterpret_cast<sockaddr *>(&name), sizeof name) == 0) {
        return fd;
    }
    close(fd);
    return -1;
}

// The same, where somebody listens; sends `bytes`.
inline int weirt_connect_raw(uint16_t port, const std::string &bytes)
{
    const int fd = weirt_try_connect(port);
    EXPECT_GE(fd, 0);
    EXPECT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    return fd;
}

// Memory that the processes of a case share.
template <typename T> class Shared {
public:
    Shared()
        : value_(static_cast<T *>(mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)))
    {
    }
    ~Shared() { munmap(value_, sizeof(T)); }
    Shared(const Shared &) = delete;
    Shared &operator=(const Shared &) = delete;
    T *operator->() { return value_; }

private:
    T *value_;
};

// Waits until `word` is `count`.
template <typename T> void weirt_await_count(const std::atomic<T> &word, T count)
{
    const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
    while (word < count && weirt_now_ms() < end) {
        weirt_sleep_ms(1);
    }
    EXPECT_EQ(word, count);
}

// Runs f(rank) in its own process.
inline pid_t weirt_fork(uint32_t rank, const std::function<void(uint32_t)> &f)
{
    const pid_t pid = fork();
    if (pid == 0) {
        f(rank);
        _exit(0);
    }
    return pid;
}

inline int weirt_wait(pid_t pid)
{
    int status = -1;
    waitpid(pid, &status, 0);
    return status;
}

#endif
