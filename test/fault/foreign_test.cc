// Foreign connections to a running job: garbage at its TCP listener is ignored and logged once, garbage to its Unix
// socket never arrives, and both are harmless.
#include <arpa/inet.h>
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <poll.h>
#include <set>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <vector>

#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

// Inodes of the sockets of this process.
std::set<unsigned long> own_sockets()
{
    std::set<unsigned long> inodes;
    DIR *dir = opendir("/proc/self/fd");
    while (dirent *entry = readdir(dir)) {
        struct stat info;
        std::string path = std::string("/proc/self/fd/") + entry->d_name;
        if (stat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode)) {
            inodes.insert(info.st_ino);
        }
    }
    closedir(dir);
    return inodes;
}

// Names of this process's abstract sockets, without the leading NUL.
std::vector<std::string> abstract_sockets()
{
    std::vector<std::string> names;
    std::set<unsigned long> own = own_sockets();
    FILE *table = fopen("/proc/net/unix", "re");
    char line[512];
    while (table != nullptr && fgets(line, sizeof line, table) != nullptr) {
        unsigned long inode = 0;
        char name[256];
        if (sscanf(line, "%*s %*s %*s %*s %*s %*s %lu @%255s", &inode, name) == 2 && own.count(inode) != 0) {
            names.push_back(name);
        }
    }
    fclose(table);
    return names;
}

// IPv4 ports of this process's listeners.
std::vector<sockaddr_in> listening()
{
    std::vector<sockaddr_in> addresses;
    std::set<unsigned long> own = own_sockets();
    FILE *table = fopen("/proc/net/tcp", "re");
    char line[512];
    while (table != nullptr && fgets(line, sizeof line, table) != nullptr) {
        unsigned address = 0;
        unsigned port = 0;
        unsigned state = 0;
        unsigned long inode = 0;
        int found =
            sscanf(line, "%*d: %x:%x %*x:%*x %x %*x:%*x %*x:%*x %*x %*d %*d %lu", &address, &port, &state, &inode);
        if (found == 4 && state == 0x0a && own.count(inode) != 0) {
            sockaddr_in in = {};
            in.sin_family = AF_INET;
            in.sin_port = htons((uint16_t)port);
            in.sin_addr.s_addr = address != 0 ? address : htonl(INADDR_LOOPBACK);
            addresses.push_back(in);
        }
    }
    fclose(table);
    return addresses;
}

void send_datagram(weirt_rank *rank, const std::string &name, const std::vector<char> &data, int fd)
{
    sockaddr_un to = {};
    to.sun_family = AF_UNIX;
    std::memcpy(to.sun_path + 1, name.data(), name.size());
    int sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    iovec part = { const_cast<char *>(data.data()), data.size() };
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message = {};
    message.msg_name = &to;
    message.msg_namelen = (socklen_t)(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (fd >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    WEIRT_EXPECT(rank, sendmsg(sock, &message, 0) == (ssize_t)data.size());
    close(sock);
}

int connect_to(weirt_rank *rank, const sockaddr_in &address)
{
    int sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    WEIRT_EXPECT(rank, connect(sock, (const sockaddr *)&address, sizeof address) == 0);
    return sock;
}

bool job_works(weirt_rank *rank, weirt_channel *channel, uint64_t tag)
{
    weirt_pair *pair = &channel->pair;
    weir_memory *remote = nullptr;
    weirt_transfer_args args = weirt_transfer_of(rank, pair);
    args.last = 30;
    bool works = weirt_launch(rank, pair, weirt_transfer_kernel(), &args) && weirt_finish(rank, pair) &&
                 WEIRT_EXPECT(rank, pair->report->wrong == 0 && pair->report->status[0][0] == WEIR_OK) &&
                 WEIRT_OK(rank, weir_memory_send(pair->comm, pair->local, pair->peer, tag)) &&
                 WEIRT_OK(rank, weir_memory_recv(pair->comm, pair->peer, tag, &remote)) &&
                 WEIRT_OK(rank, weir_bootstrap_barrier(channel->comm.boot, nullptr)) &&
                 WEIRT_OK(rank, weir_comm_status(pair->comm));
    weir_memory_destroy(remote);
    return works;
}

void garbage_at_the_unix_socket(weirt_rank *rank)
{
    weirt_channel channel;
    if (weirt_channel_open(rank, 0, 1024, &channel)) {
        if (rank->rank == 0) {
            std::vector<std::string> names = abstract_sockets();
            WEIRT_EXPECT(rank, !names.empty());
            uint32_t before = weirt_count_descriptors();
            for (const std::string &name : names) {
                for (size_t bytes : { (size_t)1, (size_t)24, (size_t)56, (size_t)4000 }) {
                    std::vector<char> data(bytes, (char)bytes);
                    send_datagram(rank, name, data, -1);
                    send_datagram(rank, name, data, STDIN_FILENO);
                }
            }
            // The operating system drops them, with their descriptors, before they are queued. (Connections of the
            // rendezvous may have ended in the meantime.)
            WEIRT_EXPECT(rank, weirt_count_descriptors() <= before);
        }
        weirt_barrier(rank);
        job_works(rank, &channel, 60);
    }
    weirt_channel_close(rank, &channel);
}

// Whether the other end has closed the connection; waits for it.
bool is_closed(int sock)
{
    pollfd wait = { sock, POLLIN, 0 };
    char byte;
    return poll(&wait, 1, static_cast<int>(weirt_timeout_ms())) == 1 && recv(sock, &byte, 1, 0) <= 0;
}

void strangers_at_the_port(weirt_rank *rank)
{
    weirt_channel channel;
    weirt_log_allow("foreign connection");
    if (weirt_channel_open(rank, 0, 1024, &channel)) {
        std::vector<int> open;
        std::vector<int> refused; // of those: they sent a whole greeting
        if (rank->rank == 0) {
            std::vector<sockaddr_in> listeners = listening();
            for (const sockaddr_in &listener : listeners) {
                open.push_back(connect_to(rank, listener)); // sends nothing
                close(connect_to(rank, listener));
                for (size_t bytes : { (size_t)1, (size_t)64, (size_t)100000 }) {
                    std::vector<char> data(bytes, (char)0xff);
                    int sock = connect_to(rank, listener);
                    (void)!send(sock, data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
                    open.push_back(sock);
                    if (bytes > 64) {
                        refused.push_back(sock);
                    }
                }
                int sock = connect_to(rank, listener);
                const char request[] = "GET / HTTP/1.1\r\nHost: weir\r\n\r\n";
                (void)!send(sock, request, sizeof request - 1, MSG_NOSIGNAL);
                open.push_back(sock);
            }
            for (int sock : refused) {
                WEIRT_EXPECT(rank, is_closed(sock));
            }
            WEIRT_EXPECT(rank, weirt_log_count("foreign connection") <= listeners.size());
        }
        weirt_barrier(rank);
        job_works(rank, &channel, 60);
        weirt_barrier(rank);
        for (int sock : open) {
            close(sock);
        }
        job_works(rank, &channel, 61);
    }
    weirt_channel_close(rank, &channel);
}

class Foreign : public StageTest {};
INSTANTIATE_TEST_SUITE_P(Stages, Foreign, ::testing::Values(0), weirt_stage_name);

TEST_P(Foreign, GarbageAtTheUnixSocketIsIgnored) { run(2, garbage_at_the_unix_socket); }
TEST_P(Foreign, StrangersAtThePortAreIgnored) { run(2, strangers_at_the_port); }

} // namespace
