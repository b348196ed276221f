/* fd_socket.c - the datagram socket through which descriptors come. Its filter drops datagrams without the token. */
#define _GNU_SOURCE
#include "src/host/comm/fd_socket.h"

#include <errno.h>
#include <linux/filter.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "src/host/base/alloc.h"
#include "src/host/base/clock.h"
#include "src/host/base/error.h"
#include "src/host/base/wire.h"

#define DISPOSERS_MAX 16

static void socket_address(const uint8_t name[WEIRI_FD_NAME_BYTES], struct sockaddr_un *address, socklen_t *bytes)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    /* An abstract name begins with a NUL and has no terminator. */
    memcpy(address->sun_path + 1, "weir-", 5);
    for (int i = 0; i < WEIRI_FD_NAME_BYTES; i++) {
        static const char hex[] = "0123456789abcdef";
        address->sun_path[6 + 2 * i] = hex[name[i] >> 4];
        address->sun_path[7 + 2 * i] = hex[name[i] & 15];
    }
    *bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 6 + 2 * WEIRI_FD_NAME_BYTES);
}

/* Word `i` of the token as a filter loads it. */
static uint32_t token_word(const uint8_t token[WEIRI_FD_TOKEN_BYTES], uint32_t i)
{
    const uint8_t *at = token + 4 * (size_t)i;
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Joins the differences of all words before it compares, so that the time of a drop reveals nothing about the token. */
static weir_status attach_filter(int fd, const uint8_t token[WEIRI_FD_TOKEN_BYTES])
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, WEIRI_FD_DATAGRAM_BYTES, 0, 15),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_STMT(BPF_ALU | BPF_XOR | BPF_K, token_word(token, 0)),
        BPF_STMT(BPF_MISC | BPF_TAX, 0),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 4),
        BPF_STMT(BPF_ALU | BPF_XOR | BPF_K, token_word(token, 1)),
        BPF_STMT(BPF_ALU | BPF_OR | BPF_X, 0),
        BPF_STMT(BPF_MISC | BPF_TAX, 0),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 8),
        BPF_STMT(BPF_ALU | BPF_XOR | BPF_K, token_word(token, 2)),
        BPF_STMT(BPF_ALU | BPF_OR | BPF_X, 0),
        BPF_STMT(BPF_MISC | BPF_TAX, 0),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 12),
        BPF_STMT(BPF_ALU | BPF_XOR | BPF_K, token_word(token, 3)),
        BPF_STMT(BPF_ALU | BPF_OR | BPF_X, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, 0),
        BPF_STMT(BPF_RET | BPF_K, WEIRI_FD_DATAGRAM_BYTES),
    };
    const struct sock_fprog filter = { sizeof program / sizeof program[0], program };
    const int on = 1;
    /* Locked: no holder of the descriptor can remove the filter. */
    if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_LOCK_FILTER, &on, sizeof on) != 0) {
        return weiri_fail_errno(errno, "communicator: filter of the Unix socket for file descriptors");
    }
    return WEIR_OK;
}

weir_status weiri_fd_socket_open(const uint8_t name[WEIRI_FD_NAME_BYTES], const uint8_t token[WEIRI_FD_TOKEN_BYTES],
                                 int *out)
{
    struct sockaddr_un address;
    socklen_t bytes;
    socket_address(name, &address, &bytes);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return weiri_fail_errno(errno, "communicator: Unix socket for file descriptors");
    }
    /* Attached before the socket has a name, so that every datagram passes the filter. */
    weir_status status = attach_filter(fd, token);
    if (status == WEIR_OK && bind(fd, (const struct sockaddr *)&address, bytes) != 0) {
        status = weiri_fail_errno(errno, "communicator: bind the Unix socket for file descriptors");
    }
    if (status != WEIR_OK) {
        (void)close(fd);
        return status;
    }
    *out = fd;
    return WEIR_OK;
}

int weiri_fd_socket_send(int from, const uint8_t name[WEIRI_FD_NAME_BYTES], const uint8_t token[WEIRI_FD_TOKEN_BYTES],
                         const weiri_fd_answer *answer, int fd)
{
    uint8_t data[WEIRI_FD_DATAGRAM_BYTES];
    weiri_writer w = weiri_writer_init(data, sizeof data);
    weiri_write_bytes(&w, token, WEIRI_FD_TOKEN_BYTES);
    weiri_write_u32(&w, answer->owner);
    weiri_write_u64(&w, answer->number);
    weiri_write_bytes(&w, answer->proof, sizeof answer->proof);

    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct sockaddr_un address;
    struct msghdr message;
    struct iovec part = { data, w.size };
    memset(&control, 0, sizeof control);
    memset(&message, 0, sizeof message);
    socket_address(name, &address, &message.msg_namelen);
    message.msg_name = &address;
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    ssize_t sent;
    do {
        sent = sendmsg(from, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? errno : 0;
}

static void take_fds(struct msghdr *message, weiri_fd_datagram *out)
{
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL; header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t bytes = header->cmsg_len - CMSG_LEN(0);
        for (size_t at = 0; at + sizeof(int) <= bytes && out->count < WEIRI_FD_MAX; at += sizeof(int)) {
            memcpy(&out->fds[out->count++], CMSG_DATA(header) + at, sizeof(int));
        }
    }
}

int weiri_fd_socket_receive(int from, weiri_fd_datagram *out)
{
    union {
        char bytes[CMSG_SPACE(WEIRI_FD_MAX * sizeof(int))];
        struct cmsghdr align;
    } control;
    uint8_t data[WEIRI_FD_DATAGRAM_BYTES];
    struct iovec part = { data, sizeof data };
    struct msghdr message;
    memset(out, 0, sizeof *out);
    memset(&message, 0, sizeof message);
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    ssize_t bytes;
    do {
        bytes = recvmsg(from, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (bytes < 0 && errno == EINTR);
    if (bytes < 0) {
        return errno == EWOULDBLOCK ? EAGAIN : errno;
    }
    if (bytes == 0) {
        return ESHUTDOWN; /* the filter passes no empty datagram */
    }
    take_fds(&message, out);
    out->cut = (message.msg_flags & MSG_CTRUNC) != 0;
    if ((size_t)bytes == sizeof data && (message.msg_flags & MSG_TRUNC) == 0) {
        weiri_reader r = weiri_reader_init(data + WEIRI_FD_TOKEN_BYTES, sizeof data - WEIRI_FD_TOKEN_BYTES);
        out->answer.owner = weiri_read_u32(&r);
        out->answer.number = weiri_read_u64(&r);
        weiri_read_bytes(&r, out->answer.proof, sizeof out->answer.proof);
    }
    return 0;
}

/* ---- closing what may block ------------------------------------------------------------------------- */

typedef struct disposal {
    uint32_t count;
    int fds[];
} disposal;

static uint32_t disposers; /* threads that have not finished */

static void *dispose(void *context)
{
    disposal *d = (disposal *)context;
    int fds[WEIRI_FD_MAX];
    const uint32_t count = d->count;
    memcpy(fds, d->fds, count * sizeof fds[0]);
    weiri_free(d); /* before the close, which may never return */
    for (uint32_t i = 0; i < count; i++) {
        (void)close(fds[i]);
    }
    (void)__atomic_fetch_sub(&disposers, 1, __ATOMIC_RELAXED);
    return NULL;
}

bool weiri_fd_dispose(const int *fds, uint32_t count)
{
    pthread_t thread;
    if (count == 0) {
        return true;
    }
    disposal *d = (disposal *)weiri_alloc(1, sizeof *d + count * sizeof d->fds[0]);
    if (d == NULL) {
        return false;
    }
    d->count = count;
    memcpy(d->fds, fds, count * sizeof d->fds[0]);
    if (__atomic_fetch_add(&disposers, 1, __ATOMIC_RELAXED) < DISPOSERS_MAX &&
        weiri_thread_create(&thread, "weir-dispose", dispose, d) == 0) {
        (void)pthread_detach(thread);
        return true;
    }
    (void)__atomic_fetch_sub(&disposers, 1, __ATOMIC_RELAXED);
    weiri_free(d);
    return false;
}
