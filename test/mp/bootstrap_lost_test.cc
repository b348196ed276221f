// Connections that the network loses while they are opened: a later attempt succeeds, and says nothing of the earlier.
#include <atomic>
#include <mutex>
#include <set>

#include "test/harness/member.h"

namespace {

std::mutex lost_mutex;
std::set<uint16_t> lost; // ports whose first connection was lost
std::atomic<bool> losing{ false };

bool loses(int fd)
{
    sockaddr_in name = {};
    socklen_t size = sizeof name;
    const std::lock_guard<std::mutex> lock(lost_mutex);
    return getpeername(fd, reinterpret_cast<sockaddr *>(&name), &size) == 0 && lost.insert(ntohs(name.sin_port)).second;
}

} // namespace

// The linker redirects calls to these (test/CMakeLists.txt).
extern "C" {
ssize_t __real_recv(int fd, void *to, size_t bytes, int flags);
ssize_t __wrap_recv(int fd, void *to, size_t bytes, int flags);

ssize_t __wrap_recv(int fd, void *to, size_t bytes, int flags)
{
    if (losing && bytes == WEIRI_AUTH_CHALLENGE_BYTES && loses(fd)) {
        errno = ETIMEDOUT;
        return -1;
    }
    return __real_recv(fd, to, bytes, flags);
}
}

namespace {

class BootstrapLost : public BootstrapTest {};

struct Ready {
    std::atomic<uint32_t> ranks;
};

// Of four ranks, rank 0 connects to ranks 1 and 2, and ranks 2 and 3 connect to rank 0. Ranks 2 and 3 are stopped, so
// rank 0 alone learns that rank 1 was killed.
TEST_F(BootstrapLost, ADeathAfterALostAttemptIsADeath)
{
    weirt_log_allow("closed before it proved the key");
    Shared<Ready> ready;
    const weir_unique_id id = weirt_new_id();
    std::vector<pid_t> pids;
    for (uint32_t i = 1; i < 4; i++) {
        pids.push_back(weirt_fork(i, [&](uint32_t rank) {
            const weir_bootstrap_opts opts = weirt_opts(weirt_timeout_ms());
            weir_bootstrap *boot = nullptr;
            if (weir_bootstrap_create(id.text, rank, 4, &opts, &boot) == WEIR_OK) {
                ready->ranks++;
                pause();
            }
        }));
    }
    lost.clear();
    losing = true;
    const weir_bootstrap_opts opts = weirt_opts(weirt_timeout_ms());
    weir_bootstrap *boot = nullptr;
    ASSERT_EQ(weir_bootstrap_create(id.text, 0, 4, &opts, &boot), WEIR_OK) << weir_last_error();
    losing = false;
    EXPECT_EQ(lost.size(), 2u);
    weirt_await_count(ready->ranks, 3u);
    for (uint32_t i : { 1u, 2u }) {
        int status = 0;
        kill(pids[i], SIGSTOP);
        EXPECT_EQ(waitpid(pids[i], &status, WUNTRACED), pids[i]);
        EXPECT_TRUE(WIFSTOPPED(status));
    }
    kill(pids[0], SIGKILL);
    const Outcome o = weirt_outcome([&] {
        uint32_t word;
        return weir_bootstrap_recv(boot, &word, sizeof word, 1, 1);
    });
    EXPECT_EQ(o.status, WEIR_ERR_REMOTE);
    EXPECT_STREQ(o.text, "bootstrap: rank 1 died");
    for (pid_t pid : pids) {
        kill(pid, SIGKILL);
        weirt_wait(pid);
    }
    weir_bootstrap_destroy(boot);
}

} // namespace
