// Connections that connect to themselves, and silent ones.
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#include "src/host/base/sock.h"
}

namespace {

enum { MET_ITSELF_AND_TOLD = 0, NO_NETWORK = 1, DID_NOT_MEET_ITSELF = 2, NOT_TOLD = 3 };

const char only_port[] = "40000 40000";

// Enters a network with only this process, in which every outgoing connection uses the same port.
bool enter_network()
{
    if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
        return false;
    }
    const int range = open("/proc/sys/net/ipv4/ip_local_port_range", O_WRONLY | O_CLOEXEC);
    const int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ifreq loopback = {};
    strcpy(loopback.ifr_name, "lo");
    loopback.ifr_flags = IFF_UP;
    return write(range, only_port, strlen(only_port)) > 0 && ioctl(any, SIOCSIFFLAGS, &loopback) == 0;
}

int connect_to_nobody()
{
    if (!enter_network()) {
        return NO_NETWORK;
    }
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_port = htons(40000);
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int plain = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const linger at_once = { 1, 0 };
    if (setsockopt(plain, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) != 0 ||
        connect(plain, reinterpret_cast<sockaddr *>(&name), sizeof name) != 0) {
        return DID_NOT_MEET_ITSELF;
    }
    close(plain);
    weiri_address to = {};
    int fd = -1;
    if (!weiri_address_parse_ip("127.0.0.1", &to)) {
        return NOT_TOLD;
    }
    to.port = 40000;
    const int error = weiri_sock_connect(&to, 1000, &fd);
    pollfd ready = { fd, POLLOUT, 0 };
    if ((error != 0 && error != EINPROGRESS) || poll(&ready, 1, 10000) != 1) {
        return DID_NOT_MEET_ITSELF;
    }
    return weiri_sock_error(fd) == ECONNREFUSED ? MET_ITSELF_AND_TOLD : NOT_TOLD;
}

TEST(Sock, AConnectionToItselfIsRefused)
{
    const pid_t child = fork();
    if (child == 0) {
        _exit(connect_to_nobody());
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == NO_NETWORK) {
        GTEST_SKIP() << "no network namespaces here";
    }
    EXPECT_EQ(WEXITSTATUS(status), MET_ITSELF_AND_TOLD);
}

int connect_to(uint16_t port)
{
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    name.sin_port = htons(port);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr *>(&name), sizeof name), 0);
    return fd;
}

// The kernel keeps a silent connection from the listener for about a second: one that speaks, and comes later, comes
// out first. On a machine that was busy for that second the case tries again.
TEST(Sock, SilentConnectionsAreHeldBack)
{
    bool held = false;
    for (int tries = 0; tries < 10 && !held; tries++) {
        weiri_address at = {};
        weiri_address bound = {};
        int listener = -1;
        at.family = 4;
        at.ip[0] = 127;
        at.ip[3] = 1;
        ASSERT_EQ(weiri_sock_listen(&at, &listener, &bound), WEIR_OK);
        const int silent = connect_to(bound.port);
        const int speaks = connect_to(bound.port);
        EXPECT_EQ(send(speaks, "x", 1, MSG_NOSIGNAL), 1);
        pollfd p = { listener, POLLIN, 0 };
        EXPECT_EQ(poll(&p, 1, 30000), 1);
        const int first = accept(listener, nullptr, nullptr);
        sockaddr_in peer = {};
        sockaddr_in name = {};
        socklen_t bytes = sizeof peer;
        EXPECT_EQ(getpeername(first, reinterpret_cast<sockaddr *>(&peer), &bytes), 0);
        EXPECT_EQ(getsockname(speaks, reinterpret_cast<sockaddr *>(&name), &bytes), 0);
        held = peer.sin_port == name.sin_port;
        for (int fd : { first, speaks, silent, listener }) {
            close(fd);
        }
    }
    EXPECT_TRUE(held);
}

} // namespace
