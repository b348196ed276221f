// File descriptors between processes: which datagrams are accepted, and what foreign processes, full queues, dead peers
// and a broken socket do to waiting ranks.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "test/harness/datagram.h"
#include "test/harness/stage_test.h"

namespace {

constexpr uint64_t BYTES = 100;
constexpr char RIGHT = 0x77;
constexpr char OWNERS = 0x55;

// Rank 0 has memory of `BYTES` bytes, and rank 1 has its handle.
struct job {
    weirt_comm c = {};
    weir_memory *local = nullptr;
    uint8_t handle[WEIR_MEMORY_HANDLE_MAX] = {};
    uint64_t bytes = 0;
};

bool open_job(weirt_rank *rank, job *j)
{
    struct told {
        uint64_t bytes;
        uint8_t handle[WEIR_MEMORY_HANDLE_MAX];
    } all[2] = {};
    size_t bytes = sizeof all[0].handle;
    if (!weirt_comm_open(rank, 0, &j->c) ||
        !WEIRT_OK(rank, weir_memory_allocate(j->c.comm, BYTES, nullptr, &j->local))) {
        return false;
    }
    std::memset(weir_memory_pointer(j->local), OWNERS, BYTES);
    bool fine = WEIRT_OK(rank, weir_memory_export(j->local, all[rank->rank].handle, &bytes));
    all[rank->rank].bytes = bytes;
    fine = fine && WEIRT_OK(rank, weir_bootstrap_allgather(j->c.boot, nullptr, all, sizeof all[0]));
    j->bytes = all[0].bytes;
    std::memcpy(j->handle, all[0].handle, sizeof j->handle);
    return fine;
}

void close_job(job *j)
{
    weir_memory_destroy(j->local);
    weirt_comm_close(&j->c);
}

// A thread of rank 1 that asks rank 0 for its memory and waits.
class Importer {
public:
    explicit Importer(job *j)
        : thread_([this, j] {
              status_ = weir_memory_import(j->c.comm, j->handle, j->bytes, &memory_);
              std::snprintf(text_, sizeof text_, "%s", weir_last_error());
          })
    {
    }
    ~Importer()
    {
        join();
        weir_memory_destroy(memory_);
    }
    // Joins the thread, and expects memory full of `value`.
    void expect(weirt_rank *rank, char value)
    {
        join();
        if (!WEIRT_EXPECT(rank, status_ == WEIR_OK)) {
            WEIRT_EXPECT(rank, std::strcmp(text_, "") == 0);
            weirt_fail(rank, __FILE__, __LINE__, "import: %s", text_);
            return;
        }
        const char *data = static_cast<const char *>(weir_memory_pointer(memory_));
        uint64_t wrong = 0;
        for (uint64_t i = 0; i < BYTES; i++) {
            wrong += data[i] != value;
        }
        if (wrong != 0) {
            weirt_fail(rank, __FILE__, __LINE__, "memory of datagram 0x%02x, not 0x%02x", data[0], value);
        }
    }
    weir_status join()
    {
        if (thread_.joinable()) {
            thread_.join();
        }
        return status_;
    }

private:
    weir_memory *memory_ = nullptr;
    weir_status status_ = WEIR_PENDING;
    char text_[256] = "";
    std::thread thread_;
};

// A file like that of weir's memory, full of `value`.
int sealed_file(weirt_rank *rank, uint64_t bytes, char value)
{
    int fd = memfd_create("weirt", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    std::vector<char> data(bytes, value);
    WEIRT_EXPECT(rank, fd >= 0 && write(fd, data.data(), bytes) == (ssize_t)bytes &&
                           fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    return fd;
}

// A socket's queue has room for ten datagrams; the service thread takes them later.
int send_when_there_is_room(weir_comm *comm, const weirt_datagram *datagram)
{
    const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
    int error = weirt_datagram_send(comm, datagram);
    while (error == EAGAIN && weirt_now_ms() < end) {
        weirt_sleep_ms(1);
        error = weirt_datagram_send(comm, datagram);
    }
    return error;
}

// Waits until only `before` descriptors are open; another thread closes those of foreign datagrams.
void expect_descriptors(weirt_rank *rank, uint32_t before)
{
    const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
    while (weirt_count_descriptors() > before && weirt_now_ms() < end) {
        weirt_sleep_ms(2);
    }
    WEIRT_EXPECT(rank, weirt_count_descriptors() <= before);
}

// ---- accepted datagrams ----

struct wrong {
    const char *name;
    void (*change)(weirt_datagram *datagram);
};

const wrong wrongs[] = {
    { "another token", [](weirt_datagram *d) { d->token_wrong = true; } },
    { "a byte too many", [](weirt_datagram *d) { d->longer = true; } },
    { "a byte too few", [](weirt_datagram *d) { d->shorter = true; } },
    { "no proof", [](weirt_datagram *d) { d->proof_wrong = true; } },
    { "a proof of another job", [](weirt_datagram *d) { d->proves_job = true; } },
    { "a proof of another communicator", [](weirt_datagram *d) { d->proves_port = true; } },
    { "a proof of another owner", [](weirt_datagram *d) { d->proves_owner = true; } },
    { "a proof for another rank", [](weirt_datagram *d) { d->proves_asker = true; } },
    { "a proof for another socket", [](weirt_datagram *d) { d->proves_socket = true; } },
    { "a proof for another request", [](weirt_datagram *d) { d->proves_number = true; } },
    { "another number", [](weirt_datagram *d) { d->number++; } },
    { "another owner", [](weirt_datagram *d) { d->owner = 1; } },
    { "an owner that does not exist", [](weirt_datagram *d) { d->owner = 2; } },
    { "two descriptors", [](weirt_datagram *d) { d->fds[1] = d->fds[0], d->fd_count = 2; } },
    { "no descriptor", [](weirt_datagram *d) { d->fd_count = 0; } },
};

void only_the_right_datagram_counts(weirt_rank *rank)
{
    job j;
    weirt_log_allow("foreign datagram");
    bool open = open_job(rank, &j);
    if (open && rank->rank == 0) {
        weirt_comm_hold(j.c.comm); // does not answer
        weirt_barrier(rank);
        weirt_barrier(rank);
        weirt_comm_release(j.c.comm);
    } else if (open) {
        weirt_request request = {};
        uint32_t before = weirt_count_descriptors();
        const int none = 0;
        const int socket = weirt_datagrams_socket(j.c.comm);
        WEIRT_EXPECT(rank, setsockopt(socket, SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof none) < 0 && errno == EPERM);
        weirt_barrier(rank);
        {
            Importer importer(&j);
            WEIRT_EXPECT(rank, weirt_request_wait(j.c.comm, &request));
            char value = 1;
            for (const wrong &w : wrongs) {
                weirt_datagram datagram = {};
                datagram.owner = request.owner;
                datagram.number = request.number;
                datagram.fds[0] = sealed_file(rank, request.bytes, value++);
                datagram.fd_count = 1;
                w.change(&datagram);
                WEIRT_EXPECT(rank, send_when_there_is_room(j.c.comm, &datagram) == 0);
                close(datagram.fds[0]);
            }
            weirt_datagram right = {};
            right.owner = request.owner;
            right.number = request.number;
            right.fds[0] = sealed_file(rank, request.bytes, RIGHT);
            right.fd_count = 1;
            WEIRT_EXPECT(rank, send_when_there_is_room(j.c.comm, &right) == 0);
            close(right.fds[0]);
            importer.expect(rank, RIGHT); // 0x01 is the first of `wrongs`
        }
        weirt_barrier(rank);
        expect_descriptors(rank, before); // also that of the owner's answer, which is too late
        WEIRT_OK(rank, weir_comm_status(j.c.comm));
    }
    weirt_barrier(rank);
    close_job(&j);
}

// ---- full queues, dead peers, a broken socket ----

void refused_datagram_is_sent_again(weirt_rank *rank)
{
    job j;
    weirt_log_allow("foreign datagram");
    bool open = open_job(rank, &j);
    if (open && rank->rank == 0) {
        weirt_comm_hold(j.c.comm);
        weirt_barrier(rank);
        weirt_barrier(rank); // rank 1 has asked, and its queue is full
        weirt_comm_release(j.c.comm);
        const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
        while (weirt_count_refused(j.c.comm) == 0 && weirt_now_ms() < end) {
            weirt_sleep_ms(1);
        }
        WEIRT_EXPECT(rank, weirt_count_refused(j.c.comm) == 1);
        weirt_barrier(rank);
    } else if (open) {
        weirt_request request = {};
        weirt_barrier(rank);
        Importer importer(&j);
        WEIRT_EXPECT(rank, weirt_request_wait(j.c.comm, &request));
        WEIRT_EXPECT(rank, weirt_datagrams_hold(j.c.comm));
        weirt_datagram filler = {};
        filler.proof_wrong = true;
        int error = 0;
        while (error == 0) {
            error = weirt_datagram_send(j.c.comm, &filler);
        }
        WEIRT_EXPECT(rank, error == EAGAIN);
        weirt_barrier(rank);
        weirt_barrier(rank);
        weirt_datagrams_release(j.c.comm);
        importer.expect(rank, OWNERS);
    }
    weirt_barrier(rank);
    close_job(&j);
}

void loans_of_the_dead_end(weirt_rank *rank)
{
    job j;
    bool open = open_job(rank, &j);
    if (open && rank->rank == 0) {
        weirt_move_away(j.c.comm, 1);
        weirt_comm_hold(j.c.comm);
        weirt_barrier(rank);
        weirt_barrier(rank); // rank 1 has asked and will take nothing
        weirt_comm_release(j.c.comm);
        const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
        int fd = -1;
        while ((fd = weirt_lent(j.c.comm)) < 0 && weirt_now_ms() < end) {
            weirt_sleep_ms(1);
        }
        WEIRT_EXPECT(rank, fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
        weirt_step(rank, 1);
        while (weirt_lent(j.c.comm) >= 0 && weirt_now_ms() < end) {
            weirt_sleep_ms(1);
        }
        WEIRT_EXPECT(rank, weirt_lent(j.c.comm) < 0);
        WEIRT_EXPECT(rank, fcntl(fd, F_GETFD) < 0 && errno == EBADF);
        WEIRT_STATUS(rank, WEIR_ERR_REMOTE, weir_comm_status(j.c.comm));
    } else if (open) {
        weirt_request request = {};
        weirt_barrier(rank);
        Importer importer(&j);
        WEIRT_EXPECT(rank, weirt_request_wait(j.c.comm, &request));
        weirt_comm_hold(j.c.comm);
        weirt_barrier(rank);
        weirt_step_wait(rank, 0, 1);
        weirt_die(rank, WEIRT_KILL);
    }
    close_job(&j);
}

// Whether an epoll descriptor of this process watches `fd`.
bool is_watched(const char *fd)
{
    bool found = false;
    DIR *dir = opendir("/proc/self/fdinfo");
    while (dirent *entry = readdir(dir)) {
        std::string path = std::string("/proc/self/fdinfo/") + entry->d_name;
        FILE *file = fopen(path.c_str(), "re");
        char line[256];
        char number[32];
        while (file != nullptr && fgets(line, sizeof line, file) != nullptr) {
            found = found || (sscanf(line, "tfd: %31s", number) == 1 && std::strcmp(number, fd) == 0);
        }
        if (file != nullptr) {
            fclose(file);
        }
    }
    closedir(dir);
    return found;
}

void broken_socket_ends_the_communicator(weirt_rank *rank)
{
    job j;
    bool open = open_job(rank, &j);
    if (open && rank->rank == 1) {
        char fd[16];
        std::snprintf(fd, sizeof fd, "%d", weirt_datagrams_socket(j.c.comm));
        WEIRT_EXPECT(rank, is_watched(fd));
        (void)weirt_datagrams_fail(j.c.comm, ENOTCONN);
        weirt_datagram any = {};
        WEIRT_EXPECT(rank, weirt_datagram_send(j.c.comm, &any) == 0);
        Importer importer(&j);
        const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
        while (weir_comm_status(j.c.comm) == WEIR_OK && weirt_now_ms() < end) {
            weirt_sleep_ms(1);
        }
        WEIRT_STATUS(rank, WEIR_ERR_SYSTEM, weir_comm_status(j.c.comm));
        WEIRT_TEXT(rank, "rank 1: receive on the descriptor socket: Transport endpoint is not connected");
        WEIRT_EXPECT(rank, importer.join() != WEIR_OK);
        WEIRT_EXPECT(rank, !is_watched(fd));
        WEIRT_EXPECT(rank, weirt_datagrams_fail(j.c.comm, 0) == 1);
    } else if (open) {
        weir_memory *never = nullptr;
        WEIRT_STATUS(rank, WEIR_ERR_ABORTED, weir_memory_recv(j.c.comm, 1, 1, &never));
        WEIRT_TEXT(rank, "rank 1: receive on the descriptor socket");
    }
    weirt_barrier(rank);
    close_job(&j);
}

// ---- foreign processes ----

// A TCP connection over the loopback interface with data that never arrives: closing `*end` takes ten minutes.
bool lingering(int *end, int *other)
{
    sockaddr_in address = {};
    socklen_t bytes = sizeof address;
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *end = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, reinterpret_cast<sockaddr *>(&address), bytes) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, reinterpret_cast<sockaddr *>(&address), &bytes) != 0 ||
        connect(*end, reinterpret_cast<sockaddr *>(&address), bytes) != 0) {
        return false;
    }
    *other = accept(listener, nullptr, nullptr);
    close(listener);
    const linger on = { 1, 600 };
    static const char data[65536] = {};
    while (send(*end, data, sizeof data, MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
    return *other >= 0 && setsockopt(*end, SOL_SOCKET, SO_LINGER, &on, sizeof on) == 0;
}

constexpr int STRANGERS = 16;

// Sends such a descriptor to `name` and closes it; counts in *sent. Runs in a forked child, so it makes only system
// calls.
[[noreturn]] void be_a_stranger(const sockaddr_un &name, socklen_t name_bytes, size_t bytes, uid_t uid,
                                std::atomic<int> *sent)
{
    int fd = -1;
    int other = -1;
    if (uid != 0 && (setgid(uid) != 0 || setuid(uid) != 0)) {
        _exit(1);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int from = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    char data[WEIRT_DATAGRAM_BYTES] = {};
    iovec part = { data, bytes };
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message = {};
    message.msg_name = const_cast<sockaddr_un *>(&name);
    message.msg_namelen = name_bytes;
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    if (!lingering(&fd, &other)) {
        _exit(2);
    }
    std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
    if (sendmsg(from, &message, MSG_NOSIGNAL) < 0) {
        _exit(3);
    }
    sent->fetch_add(1);
    close(fd); // blocks, unless another process holds the descriptor, whose close blocks instead
    for (;;) {
        pause();
    }
}

// The argument is the user of the foreign processes.
void strangers_descriptors_block_nobody(weirt_rank *rank)
{
    const uid_t uid = *static_cast<const uid_t *>(rank->arg);
    job j;
    std::vector<pid_t> strangers;
    bool open = open_job(rank, &j);
    if (open) {
        sockaddr_un name = {};
        socklen_t name_bytes = sizeof name;
        WEIRT_EXPECT(
            rank, getsockname(weirt_datagrams_socket(j.c.comm), reinterpret_cast<sockaddr *>(&name), &name_bytes) == 0);
        void *page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        auto *sent = static_cast<std::atomic<int> *>(page);
        for (int i = 0; i < STRANGERS; i++) {
            const pid_t child = fork();
            if (child == 0) {
                be_a_stranger(name, name_bytes, i % 2 != 0 ? WEIRT_DATAGRAM_BYTES : 1, uid, sent);
            }
            strangers.push_back(child);
        }
        const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
        while (sent->load() < STRANGERS && weirt_now_ms() < end) {
            weirt_sleep_ms(1);
        }
        WEIRT_EXPECT(rank, sent->load() == STRANGERS);
        munmap(page, 4096);
        if (rank->rank == 1) {
            Importer importer(&j);
            importer.expect(rank, OWNERS);
        }
        WEIRT_OK(rank, weir_bootstrap_barrier(j.c.boot, nullptr));
        WEIRT_EXPECT(rank, weirt_log_count("foreign datagram") == 0); // the kernel has dropped them
    }
    const uint64_t since = weirt_now_ms();
    close_job(&j);
    WEIRT_EXPECT(rank, weirt_now_ms() - since < 5000 * (uint64_t)weirt_slow());
    for (const pid_t child : strangers) {
        int status = 0;
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        WEIRT_EXPECT(rank, WIFSIGNALED(status)); // no child had ended before
    }
}

// One arrives with the right token: it is closed, but not by the thread that other work waits for.
void foreign_descriptors_are_closed_elsewhere(weirt_rank *rank)
{
    job j;
    int other = -1;
    weirt_log_allow("foreign datagram");
    bool open = open_job(rank, &j);
    if (open && rank->rank == 1) {
        weirt_datagram datagram = {};
        datagram.proof_wrong = true;
        datagram.fd_count = 1;
        WEIRT_EXPECT(rank, lingering(&datagram.fds[0], &other));
        const uint32_t before = weirt_count_descriptors() - 1;
        WEIRT_EXPECT(rank, weirt_datagrams_hold(j.c.comm));
        WEIRT_EXPECT(rank, weirt_datagram_send(j.c.comm, &datagram) == 0);
        close(datagram.fds[0]); // the last descriptor is that of the datagram
        weirt_datagrams_release(j.c.comm);
        Importer importer(&j);
        importer.expect(rank, OWNERS);
        expect_descriptors(rank, before);
    }
    weirt_barrier(rank);
    const uint64_t since = weirt_now_ms();
    close_job(&j);
    WEIRT_EXPECT(rank, weirt_now_ms() - since < 5000 * (uint64_t)weirt_slow());
    if (other >= 0) {
        close(other);
    }
}

// 16 threads wait in close at the same time. The next descriptor stays open, which is logged, and the job goes on.
void further_descriptors_stay_open(weirt_rank *rank)
{
    constexpr size_t threads = 16;
    job j;
    std::vector<int> others;
    weirt_log_allow("foreign datagram");
    const bool open = open_job(rank, &j);
    if (open && rank->rank == 1) {
        weirt_descriptors_allow(1);
        const uint32_t before = weirt_count_descriptors();
        while (others.size() <= threads) {
            weirt_datagram datagram = {};
            int other = -1;
            datagram.proof_wrong = true;
            datagram.fd_count = 1;
            WEIRT_EXPECT(rank, weirt_log_count("descriptors of foreign datagrams stay open") == 0);
            WEIRT_EXPECT(rank, lingering(&datagram.fds[0], &other));
            others.push_back(other);
            WEIRT_EXPECT(rank, weirt_datagrams_hold(j.c.comm));
            WEIRT_EXPECT(rank, weirt_datagram_send(j.c.comm, &datagram) == 0);
            close(datagram.fds[0]); // the last descriptor is that of the datagram
            weirt_datagrams_release(j.c.comm);
        }
        Importer importer(&j); // its answer comes behind the datagrams
        importer.expect(rank, OWNERS);
        WEIRT_EXPECT(rank, weirt_log_count("1 file descriptors of foreign datagrams stay open") == 1);
        for (int other : others) {
            close(other); // ends the threads
        }
        expect_descriptors(rank, before + 1);
    }
    weirt_barrier(rank);
    close_job(&j);
}

// Only CPU processes: descriptors of GPU processes are passed in the same way.
class Descriptors : public StageTest {};
INSTANTIATE_TEST_SUITE_P(Stages, Descriptors, ::testing::Values(1), weirt_stage_name);

TEST_P(Descriptors, OnlyTheRightDatagramCounts) { run(2, only_the_right_datagram_counts); }
TEST_P(Descriptors, RefusedDatagramIsSentAgain) { run(2, refused_datagram_is_sent_again); }
TEST_P(Descriptors, LoansOfTheDeadEnd) { run(2, loans_of_the_dead_end); }
TEST_P(Descriptors, BrokenSocketEndsTheCommunicator) { run(2, broken_socket_ends_the_communicator); }
TEST_P(Descriptors, ForeignDescriptorsAreClosedElsewhere) { run(2, foreign_descriptors_are_closed_elsewhere); }
TEST_P(Descriptors, FurtherDescriptorsStayOpen) { run(2, further_descriptors_stay_open); }

TEST_P(Descriptors, StrangersOfThisUserBlockNobody)
{
    const uid_t uid = 0; // stays the same user
    weirt_ranks_run(stage(), 2, strangers_descriptors_block_nobody, &uid, sizeof uid);
}

TEST_P(Descriptors, StrangersOfAnotherUserBlockNobody)
{
    if (geteuid() != 0) {
        GTEST_SKIP() << "only root can become another user";
    }
    const uid_t uid = 65534;
    weirt_ranks_run(stage(), 2, strangers_descriptors_block_nobody, &uid, sizeof uid);
}

} // namespace
