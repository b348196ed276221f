/* fd_pass.c - descriptors of memory: a rank asks the owner of a memory for one, and the owner sends it after it has
 * checked that the rank may have it. fd_socket.c carries them. */
#define _GNU_SOURCE
#include "src/host/comm/fd_pass.h"
#include "src/host/comm/exchange.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/base/log.h"
#include "src/host/boot/boot.h"
#include "src/host/comm/comm.h"
#include "src/host/comm/fd_socket.h"

#define RESEND_MS 5
#define RECEIVE_AT_ONCE 64 /* datagrams of one callback, so that sockets get their turn too */

weir_status weiri_fd_pass_open(weir_comm *comm)
{
    randombytes_buf(comm->end.socket, sizeof comm->end.socket);
    randombytes_buf(comm->end.token, sizeof comm->end.token);
    randombytes_buf(&comm->fd_pass.next_request, sizeof comm->fd_pass.next_request);
    return weiri_fd_socket_open(comm->end.socket, comm->end.token, &comm->fd_pass.socket);
}

static void free_request(weiri_fd_request *request)
{
    if (request->fd >= 0) {
        close(request->fd);
    }
    weiri_free(request);
}

static void free_loan(weiri_fd_loan *loan)
{
    close(loan->fd);
    weiri_free(loan);
}

void weiri_fd_pass_close(weir_comm *comm)
{
    if (comm->fd_pass.socket >= 0) {
        close(comm->fd_pass.socket);
        comm->fd_pass.socket = -1;
    }
    while (comm->fd_pass.requests != NULL) {
        weiri_fd_request *request = comm->fd_pass.requests;
        comm->fd_pass.requests = request->next;
        free_request(request);
    }
    while (comm->fd_pass.sends != NULL) {
        weiri_fd_send *send = comm->fd_pass.sends;
        comm->fd_pass.sends = send->next;
        /* The empty message answers the request, as that of a closed port does. */
        (void)weiri_bootstrap_post(comm->bootstrap, send->peer, comm->port, NULL, 0);
        weiri_free(send);
    }
    while (comm->fd_pass.loans != NULL) {
        weiri_fd_loan *loan = comm->fd_pass.loans;
        comm->fd_pass.loans = loan->next;
        free_loan(loan);
    }
}

/* Computes the proof that a datagram comes from rank `owner` of this job, for this request of rank `asker`. */
static void make_proof(const weir_comm *comm, uint32_t owner, uint32_t asker, const uint8_t socket_name[16],
                       uint64_t number, uint8_t proof[WEIRI_FD_PROOF_BYTES])
{
    uint8_t text[64];
    weiri_writer w = weiri_writer_init(text, sizeof text);
    weiri_write_bytes(&w, "weir fd", 7);
    weiri_write_bytes(&w, weiri_bootstrap_job(comm->bootstrap), 16);
    weiri_write_u32(&w, comm->port);
    weiri_write_u32(&w, owner);
    weiri_write_u32(&w, asker);
    weiri_write_bytes(&w, socket_name, 16);
    weiri_write_u64(&w, number);
    (void)crypto_generichash(proof, WEIRI_FD_PROOF_BYTES, text, w.size, weiri_bootstrap_key(comm->bootstrap),
                             WEIRI_KEY_BYTES);
}

/* ---- the owner's side ------------------------------------------------------------------------------- */

/* Sends an answer. A peer that is gone needs none. If sending fails for another reason, the peer would wait, so the
 * communicator fails. Mutex held. */
static void post_answer(weir_comm *comm, uint32_t peer, const uint8_t *message, size_t bytes)
{
    weir_status status = weiri_bootstrap_post(comm->bootstrap, peer, comm->port, message, bytes);
    if (status != WEIR_OK && status != WEIR_ERR_REMOTE) {
        weiri_comm_break_locked(comm, status, weir_last_error());
    }
}

static void refuse(weir_comm *comm, uint32_t peer, uint64_t number, weir_status status, const char *text)
{
    uint8_t message[512];
    weiri_writer w = weiri_writer_init(message, sizeof message);
    weiri_write_u8(&w, WEIRI_PORT_MEMORY_REFUSED);
    weiri_write_u64(&w, number);
    weiri_write_u32(&w, (uint32_t)status);
    weiri_write_string(&w, text);
    post_answer(comm, peer, message, w.size);
}

static int send_datagram(weir_comm *comm, uint32_t peer, uint64_t number, int fd)
{
    const weiri_end *end = &comm->peers[peer].end;
    weiri_fd_answer answer = { .owner = comm->rank, .number = number };
    make_proof(comm, comm->rank, peer, end->socket, number, answer.proof);
    return weiri_fd_socket_send(comm->fd_pass.socket, end->socket, end->token, &answer, fd);
}

/* Sends the asking rank the number of a descriptor of this process. A closed number may be used again for another file.
 * So the number is that of a duplicate, which stays open until the asking rank has taken it; the descriptor counts only
 * if this rank then finds the duplicate still open (end_loan). */
static void lend(weir_comm *comm, uint32_t peer, uint64_t number, int fd)
{
    weiri_fd_loan *loan = (weiri_fd_loan *)weiri_alloc(1, sizeof *loan);
    if (loan == NULL) {
        refuse(comm, peer, number, WEIR_ERR_NOMEM, "its owner is out of memory");
        return;
    }
    loan->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (loan->fd < 0) {
        char text[128];
        snprintf(text, sizeof text, "duplicate its file descriptor: %s", strerror(errno));
        weiri_free(loan);
        refuse(comm, peer, number, WEIR_ERR_SYSTEM, text);
        return;
    }
    loan->peer = peer;
    loan->number = number;
    loan->next = comm->fd_pass.loans;
    comm->fd_pass.loans = loan;
    uint8_t message[32];
    weiri_writer w = weiri_writer_init(message, sizeof message);
    weiri_write_u8(&w, WEIRI_PORT_FD_AT);
    weiri_write_u64(&w, number);
    weiri_write_u32(&w, (uint32_t)loan->fd);
    post_answer(comm, peer, message, w.size);
}

/* WEIRI_PORT_MEMORY_THERE: the memory exists, and the asking rank needs no further descriptor. WEIRI_PORT_FD_TAKEN:
 * taken or not, the owner may now close its duplicate. */
static void post_number(weir_comm *comm, uint32_t peer, uint8_t kind, uint64_t number)
{
    uint8_t message[16];
    weiri_writer w = weiri_writer_init(message, sizeof message);
    weiri_write_u8(&w, kind);
    weiri_write_u64(&w, number);
    post_answer(comm, peer, message, w.size);
}

/* The asking rank has taken the descriptor at the lent number. */
static void end_loan(weir_comm *comm, uint32_t peer, uint64_t number)
{
    for (weiri_fd_loan **at = &comm->fd_pass.loans; *at != NULL; at = &(*at)->next) {
        weiri_fd_loan *loan = *at;
        if (loan->peer == peer && loan->number == number) {
            *at = loan->next;
            free_loan(loan);
            post_number(comm, peer, WEIRI_PORT_MEMORY_THERE, number);
            return;
        }
    }
    refuse(comm, peer, number, WEIR_ERR_INVALID, "its file descriptor is not lent any more");
}

void weiri_fd_pass_gone_locked(weir_comm *comm, uint32_t peer)
{
    for (weiri_fd_loan **at = &comm->fd_pass.loans; *at != NULL;) {
        weiri_fd_loan *loan = *at;
        if (loan->peer == peer) {
            *at = loan->next;
            free_loan(loan);
        } else {
            at = &loan->next;
        }
    }
}

static void resend(void *context);

static void serve(weir_comm *comm, uint32_t peer, uint64_t number, uint64_t id, bool fd_wanted)
{
    const weir_memory *memory = weiri_memory_find_locked(comm, id);
    if (memory == NULL) {
        refuse(comm, peer, number, WEIR_ERR_INVALID, "the owner has destroyed it");
        return;
    }
    if (!fd_wanted) {
        post_number(comm, peer, WEIRI_PORT_MEMORY_THERE, number);
        return;
    }
    int fd = memory->description.fd;
    if (fd < 0) {
        refuse(comm, peer, number, WEIR_ERR_UNSUPPORTED, "it has no file descriptor");
        return;
    }
    if (comm->peers[peer].end.net_space != comm->end.net_space) {
        lend(comm, peer, number, fd);
        return;
    }
    int error = send_datagram(comm, peer, number, fd);
    if (error == 0) {
        return;
    }
    bool again = error == EAGAIN && comm->exchange.open;
    weiri_fd_send *send = again ? (weiri_fd_send *)weiri_alloc(1, sizeof *send) : NULL;
    if (send != NULL && comm->fd_pass.resend_watch == NULL &&
        weiri_service_watch_time(weiri_bootstrap_service(comm->bootstrap), RESEND_MS, resend, comm,
                                 &comm->fd_pass.resend_watch) != WEIR_OK) {
        weiri_free(send);
        send = NULL;
    }
    if (send == NULL) {
        char text[128];
        snprintf(text, sizeof text, "send a file descriptor to rank %u: %s", peer, strerror(error));
        refuse(comm, peer, number, WEIR_ERR_SYSTEM, text);
        return;
    }
    send->peer = peer;
    send->number = number;
    send->memory = id;
    send->next = comm->fd_pass.sends;
    comm->fd_pass.sends = send;
}

/* Tries again what a full queue refused; the receiver's service thread drains its queue at once. */
static void resend(void *context)
{
    weir_comm *comm = (weir_comm *)context;
    pthread_mutex_lock(&comm->mutex);
    weiri_fd_send *list = comm->fd_pass.sends;
    comm->fd_pass.sends = NULL;
    while (list != NULL) {
        weiri_fd_send *send = list;
        list = send->next;
        if (!comm->peers[send->peer].gone) {
            serve(comm, send->peer, send->number, send->memory, true);
        }
        weiri_free(send);
    }
    if (comm->fd_pass.sends == NULL) {
        weiri_service_unwatch(weiri_bootstrap_service(comm->bootstrap), comm->fd_pass.resend_watch);
        comm->fd_pass.resend_watch = NULL;
    }
    pthread_mutex_unlock(&comm->mutex);
}

/* ---- the asking side -------------------------------------------------------------------------------- */

/* Returns the link to request `number` that was made to rank `owner`, or the link at the end of the list. */
static weiri_fd_request **find_request(weir_comm *comm, uint32_t owner, uint64_t number)
{
    weiri_fd_request **at = &comm->fd_pass.requests;
    while (*at != NULL && ((*at)->number != number || (*at)->future->handles[(*at)->index].rank != owner)) {
        at = &(*at)->next;
    }
    return at;
}

static weiri_fd_request *take_request(weir_comm *comm, uint32_t owner, uint64_t number)
{
    weiri_fd_request **at = find_request(comm, owner, number);
    weiri_fd_request *request = *at;
    if (request != NULL) {
        *at = request->next;
    }
    return request;
}

weir_status weiri_fd_pass_request_locked(weir_future *future, uint32_t index)
{
    weir_comm *comm = future->comm;
    const weiri_handle *handle = &future->handles[index];
    weiri_fd_request *request = (weiri_fd_request *)weiri_alloc(1, sizeof *request);
    if (request == NULL) {
        return weiri_fail_nomem("communicator: request of a memory");
    }
    request->number = comm->fd_pass.next_request++;
    request->future = future;
    request->index = index;
    request->fd_wanted = weiri_handle_needs_fd(comm, handle);
    request->fd = -1;
    request->next = comm->fd_pass.requests;
    comm->fd_pass.requests = request;

    uint8_t message[32];
    weiri_writer w = weiri_writer_init(message, sizeof message);
    weiri_write_u8(&w, WEIRI_PORT_MEMORY_WANTED);
    weiri_write_u64(&w, request->number);
    weiri_write_u64(&w, handle->id);
    weiri_write_u8(&w, request->fd_wanted);
    weir_status status = weiri_bootstrap_post(comm->bootstrap, handle->rank, comm->port, message, w.size);
    if (status != WEIR_OK) {
        free_request(take_request(comm, handle->rank, request->number));
    }
    return status;
}

weir_future *weiri_fd_pass_find_locked(weir_comm *comm, bool all, uint32_t peer)
{
    for (weiri_fd_request *request = comm->fd_pass.requests; request != NULL; request = request->next) {
        if (all || request->future->handles[request->index].rank == peer) {
            return request->future;
        }
    }
    return NULL;
}

void weiri_fd_pass_forget_locked(weir_future *future)
{
    for (weiri_fd_request **at = &future->comm->fd_pass.requests; *at != NULL;) {
        if ((*at)->future == future) {
            weiri_fd_request *request = *at;
            *at = request->next;
            free_request(request);
        } else {
            at = &(*at)->next;
        }
    }
}

/* Ends a request. `fd` came with the answer; if it is -1, the descriptor is the one that was taken before. */
static void answer(weir_comm *comm, uint32_t owner, uint64_t number, weir_status status, const char *text, int fd)
{
    weiri_fd_request *request = take_request(comm, owner, number);
    if (request == NULL) {
        if (fd >= 0) {
            close(fd); /* the future was destroyed meanwhile */
        }
        return;
    }
    if (status == WEIR_OK && fd < 0) {
        fd = request->fd;
        request->fd = -1;
    }
    if (status == WEIR_OK && request->fd_wanted && fd < 0) {
        status = WEIR_ERR_CORRUPT;
        text = "its owner answered without the file descriptor";
    }
    weiri_exchange_resolved_locked(request->future, request->index, status, text, fd);
    free_request(request);
}

/* Takes the descriptor at `remote_fd` of the owner's process for a request that waits for one. */
static void take_from_process(weir_comm *comm, uint32_t peer, uint64_t number, int remote_fd)
{
    char text[192];
    weiri_fd_request *request = *find_request(comm, peer, number);
    if (request == NULL || !request->fd_wanted || request->fd >= 0) {
        return; /* the future was destroyed meanwhile */
    }
    const weiri_end *end = &comm->peers[peer].end;
    if (end->pid_space != comm->end.pid_space) {
        snprintf(text, sizeof text,
                 "rank %u is in another network namespace and another pid namespace; share one of them", peer);
        answer(comm, peer, number, WEIR_ERR_UNSUPPORTED, text, -1);
        return;
    }
#if defined(SYS_pidfd_open) && defined(SYS_pidfd_getfd)
    int process = (int)syscall(SYS_pidfd_open, (pid_t)end->pid, 0);
    int fd = process < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, process, remote_fd, 0);
    int error = errno;
    if (process >= 0) {
        close(process);
    }
#else
    int fd = -1;
    int error = ENOSYS;
    (void)remote_fd;
#endif
    if (fd < 0) {
        snprintf(text, sizeof text,
                 "rank %u is in another network namespace, and pidfd_getfd failed: %s; it needs the same user, and "
                 "kernel.yama.ptrace_scope = 0",
                 peer, strerror(error));
        answer(comm, peer, number, WEIR_ERR_UNSUPPORTED, text, -1);
        return;
    }
    request->fd = fd;
}

static bool take_refusal(weir_comm *comm, uint32_t peer, uint64_t number, weiri_reader *reader)
{
    char text[256];
    weir_status status = (weir_status)(int32_t)weiri_read_u32(reader);
    weiri_read_string(reader, text, sizeof text);
    if (!weiri_reader_done(reader) || status >= 0 || status <= WEIR_STATUS_FIRST_UNUSED) {
        return false;
    }
    answer(comm, peer, number, status, text, -1);
    return true;
}

static bool take_number(weir_comm *comm, uint32_t peer, uint64_t number, weiri_reader *reader)
{
    uint32_t fd = weiri_read_u32(reader);
    if (!weiri_reader_done(reader) || fd > INT32_MAX) {
        return false;
    }
    take_from_process(comm, peer, number, (int)fd);
    post_number(comm, peer, WEIRI_PORT_FD_TAKEN, number);
    return true;
}

static bool take_wish(weir_comm *comm, uint32_t peer, uint64_t number, weiri_reader *reader)
{
    uint64_t id = weiri_read_u64(reader);
    bool fd_wanted = weiri_read_u8(reader) != 0;
    if (!weiri_reader_done(reader)) {
        return false;
    }
    serve(comm, peer, number, id, fd_wanted);
    return true;
}

void weiri_fd_pass_message_locked(weir_comm *comm, uint32_t peer, uint8_t kind, weiri_reader *reader)
{
    uint64_t number = weiri_read_u64(reader);
    bool fine = false;
    if (kind == WEIRI_PORT_MEMORY_WANTED) {
        fine = take_wish(comm, peer, number, reader);
    } else if (kind == WEIRI_PORT_FD_AT) {
        fine = take_number(comm, peer, number, reader);
    } else if (kind == WEIRI_PORT_MEMORY_REFUSED) {
        fine = take_refusal(comm, peer, number, reader);
    } else {
        fine = weiri_reader_done(reader);
        if (fine && kind == WEIRI_PORT_MEMORY_THERE) {
            answer(comm, peer, number, WEIR_OK, "", -1);
        } else if (fine) {
            end_loan(comm, peer, number);
        }
    }
    if (!fine) {
        /* The sender has proved the key, so it is a rank: without its messages this communicator cannot go on. */
        char cause[64];
        snprintf(cause, sizeof cause, "malformed message of rank %u", peer);
        weiri_comm_break_locked(comm, WEIR_ERR_CORRUPT, cause);
    }
}

/* True if the datagram is the owner's proved answer to a request of this rank. */
static bool is_proved(const weir_comm *comm, const weiri_fd_answer *answer)
{
    uint8_t expected[WEIRI_FD_PROOF_BYTES];
    if (answer->owner >= comm->size) {
        return false;
    }
    make_proof(comm, answer->owner, comm->rank, comm->end.socket, answer->number, expected);
    return sodium_memcmp(answer->proof, expected, sizeof expected) == 0;
}

/* False if the datagram is from a foreign process; the caller then keeps the descriptors. Mutex held. */
static bool take_datagram(weir_comm *comm, const weiri_fd_datagram *datagram)
{
    const weiri_fd_answer *from = &datagram->answer;
    bool proved = is_proved(comm, from);
    if (proved && datagram->count == 1 && !datagram->cut) {
        answer(comm, from->owner, from->number, WEIR_OK, "", datagram->fds[0]);
        return true;
    }
    if (proved && datagram->count == 0 && datagram->cut) {
        answer(comm, from->owner, from->number, WEIR_ERR_SYSTEM, "this process has no file descriptor left", -1);
        return true;
    }
    if (!comm->fd_pass.foreign_logged) {
        comm->fd_pass.foreign_logged = true;
        weiri_log(WEIR_LOG_WARN, "communicator: rank %u: foreign datagram on the descriptor socket, ignored",
                  comm->rank);
    }
    return false;
}

/* No more descriptors can come. The watch is muted, because a broken socket stays ready. */
static void fail_socket(weir_comm *comm, int error)
{
    char cause[128];
    snprintf(cause, sizeof cause, "receive on the descriptor socket: %s", strerror(error));
    weiri_service_mute(weiri_bootstrap_service(comm->bootstrap), comm->fd_pass.socket_watch);
    pthread_mutex_lock(&comm->mutex);
    weiri_comm_break_locked(comm, WEIR_ERR_SYSTEM, cause);
    pthread_mutex_unlock(&comm->mutex);
}

static void receive(void *context, uint32_t events)
{
    weir_comm *comm = (weir_comm *)context;
    (void)events;
    for (int i = 0; i < RECEIVE_AT_ONCE; i++) { /* the watch is level-triggered: what is left comes again */
        weiri_fd_datagram datagram;
        int error = weiri_fd_socket_receive(comm->fd_pass.socket, &datagram);
        if (error == EAGAIN) {
            return;
        }
        if (error != 0) {
            fail_socket(comm, error);
            return;
        }
        pthread_mutex_lock(&comm->mutex);
        bool taken = take_datagram(comm, &datagram);
        pthread_mutex_unlock(&comm->mutex);
        if (!taken && !weiri_fd_dispose(datagram.fds, datagram.count)) {
            weiri_log(WEIR_LOG_WARN, "communicator: rank %u: %u file descriptors of foreign datagrams stay open",
                      comm->rank, datagram.count);
        }
    }
}

weir_status weiri_fd_pass_start(weir_comm *comm)
{
    return weiri_service_watch_fd(weiri_bootstrap_service(comm->bootstrap), comm->fd_pass.socket, EPOLLIN, receive,
                                  comm, &comm->fd_pass.socket_watch);
}

void weiri_fd_pass_stop(weir_comm *comm)
{
    weiri_service *service = weiri_bootstrap_service(comm->bootstrap);
    weiri_service_unwatch(service, comm->fd_pass.socket_watch);
    comm->fd_pass.socket_watch = NULL;
    pthread_mutex_lock(&comm->mutex);
    weiri_watch *resend_watch = comm->fd_pass.resend_watch;
    comm->fd_pass.resend_watch = NULL;
    pthread_mutex_unlock(&comm->mutex);
    weiri_service_unwatch(service, resend_watch);
}
