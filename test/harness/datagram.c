/* datagram.c - see datagram.h. The proof is computed here a second time: a change of its contents fails tests. */
#define _GNU_SOURCE
#include "test/harness/datagram.h"

#include <errno.h>
#include <semaphore.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "src/host/boot/boot.h"
#include "src/host/comm/comm.h"
#include "src/host/comm/exchange.h"
#include "src/host/comm/fd_pass.h"
#include "test/harness/ranks.h"

int weirt_datagrams_socket(weir_comm *comm) { return comm->fd_pass.socket; }

static bool get_request(weir_comm *comm, weirt_request *out)
{
    pthread_mutex_lock(&comm->mutex);
    const weiri_fd_request *request = comm->fd_pass.requests;
    if (request != NULL) {
        const weiri_handle *handle = &request->future->handles[request->index];
        *out = (weirt_request){ handle->rank, request->number, handle->block.base_bytes };
    }
    pthread_mutex_unlock(&comm->mutex);
    return request != NULL;
}

bool weirt_request_wait(weir_comm *comm, weirt_request *out)
{
    uint64_t end = weirt_now_ms() + weirt_timeout_ms();
    bool there = get_request(comm, out);
    while (!there && weirt_now_ms() < end) {
        weirt_sleep_ms(1);
        there = get_request(comm, out);
    }
    return there;
}

static void prove(const weir_comm *comm, const weirt_datagram *datagram, uint8_t proof[32])
{
    uint8_t text[64];
    uint8_t job[16];
    uint8_t name[16];
    memcpy(job, weiri_bootstrap_job(comm->bootstrap), sizeof job);
    memcpy(name, comm->end.socket, sizeof name);
    job[15] ^= datagram->proves_job;
    name[15] ^= datagram->proves_socket;
    weiri_writer w = weiri_writer_init(text, sizeof text);
    weiri_write_bytes(&w, "weir fd", 7);
    weiri_write_bytes(&w, job, sizeof job);
    weiri_write_u32(&w, comm->port + datagram->proves_port);
    weiri_write_u32(&w, datagram->owner + datagram->proves_owner);
    weiri_write_u32(&w, comm->rank + datagram->proves_asker);
    weiri_write_bytes(&w, name, sizeof name);
    weiri_write_u64(&w, datagram->number + datagram->proves_number);
    (void)crypto_generichash(proof, 32, text, w.size, weiri_bootstrap_key(comm->bootstrap), WEIRI_KEY_BYTES);
    proof[31] ^= datagram->proof_wrong;
}

static int send_to(int to, const uint8_t *data, size_t bytes, const int *fds, uint32_t fd_count)
{
    union {
        char bytes[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct sockaddr_un address;
    socklen_t address_bytes = sizeof address;
    struct iovec part = { (void *)(uintptr_t)data, bytes };
    int from = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (from < 0 || getsockname(to, (struct sockaddr *)&address, &address_bytes) != 0) {
        close(from);
        return errno;
    }
    struct msghdr message = { .msg_name = &address, .msg_namelen = address_bytes, .msg_iov = &part, .msg_iovlen = 1 };
    if (fd_count > 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(header), fds, fd_count * sizeof(int));
    }
    int error = sendmsg(from, &message, MSG_NOSIGNAL) < 0 ? errno : 0;
    close(from);
    return error;
}

int weirt_datagram_send(weir_comm *comm, const weirt_datagram *datagram)
{
    uint8_t data[64];
    uint8_t token[16];
    uint8_t proof[32];
    memset(data, 0, sizeof data);
    memcpy(token, comm->end.token, sizeof token);
    token[15] ^= datagram->token_wrong;
    prove(comm, datagram, proof);
    weiri_writer w = weiri_writer_init(data, sizeof data);
    weiri_write_bytes(&w, token, sizeof token);
    weiri_write_u32(&w, datagram->owner);
    weiri_write_u64(&w, datagram->number);
    weiri_write_bytes(&w, proof, sizeof proof);
    return send_to(comm->fd_pass.socket, data, w.size + datagram->longer - datagram->shorter, datagram->fds,
                   datagram->fd_count);
}

static void post(void *context) { (void)sem_post((sem_t *)context); }

/* The service thread may be taking datagrams right now. It runs what is posted after that. */
bool weirt_datagrams_hold(weir_comm *comm)
{
    weiri_service *service = weiri_bootstrap_service(comm->bootstrap);
    const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
    sem_t *done = (sem_t *)malloc(sizeof *done);
    if (done == NULL || sem_init(done, 0, 0) != 0 ||
        weiri_service_set_events(service, comm->fd_pass.socket_watch, 0) != WEIR_OK ||
        weiri_service_post(service, post, done) != WEIR_OK) {
        free(done);
        return false;
    }
    while (sem_trywait(done) != 0) {
        if (weirt_now_ms() >= end) {
            return false; /* not freed: the service thread may still post */
        }
        weirt_sleep_ms(1);
    }
    (void)sem_destroy(done);
    free(done);
    return true;
}

void weirt_datagrams_release(weir_comm *comm)
{
    (void)weiri_service_set_events(weiri_bootstrap_service(comm->bootstrap), comm->fd_pass.socket_watch, EPOLLIN);
}

void weirt_comm_hold(weir_comm *comm) { pthread_mutex_lock(&comm->mutex); }

void weirt_comm_release(weir_comm *comm) { pthread_mutex_unlock(&comm->mutex); }

uint32_t weirt_count_refused(weir_comm *comm)
{
    uint32_t count = 0;
    pthread_mutex_lock(&comm->mutex);
    for (const weiri_fd_send *send = comm->fd_pass.sends; send != NULL; send = send->next) {
        count++;
    }
    pthread_mutex_unlock(&comm->mutex);
    return count;
}

void weirt_move_away(weir_comm *comm, uint32_t peer)
{
    pthread_mutex_lock(&comm->mutex);
    comm->peers[peer].end.net_space = comm->end.net_space + 1;
    pthread_mutex_unlock(&comm->mutex);
}

int weirt_lent(weir_comm *comm)
{
    pthread_mutex_lock(&comm->mutex);
    int fd = comm->fd_pass.loans != NULL ? comm->fd_pass.loans->fd : -1;
    pthread_mutex_unlock(&comm->mutex);
    return fd;
}

static int failing_socket = -1;
static int failing_error;
static uint32_t failures;

uint32_t weirt_datagrams_fail(weir_comm *comm, int error)
{
    __atomic_store_n(&failing_error, error, __ATOMIC_RELAXED);
    __atomic_store_n(&failing_socket, error != 0 ? comm->fd_pass.socket : -1, __ATOMIC_RELEASE);
    return __atomic_exchange_n(&failures, error != 0 ? 0 : failures, __ATOMIC_RELAXED);
}

/* Works only in programs whose linker wraps recvmsg; in others nothing calls the wrapper. */
ssize_t __real_recvmsg(int fd, struct msghdr *message, int flags) __attribute__((weak));
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags);

ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags)
{
    if (fd == __atomic_load_n(&failing_socket, __ATOMIC_ACQUIRE)) {
        (void)__atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
        errno = __atomic_load_n(&failing_error, __ATOMIC_RELAXED);
        return -1;
    }
    return __real_recvmsg(fd, message, flags);
}
