/* bootstrap_fuzz.c - data that foreign processes and ranks of a job can send to a rank's bootstrap.
 *
 * The input is a script: connections to this rank and the data on them (bytes, proofs of the key, introductions, frames
 * with right and wrong heads), answers to the connections that this rank makes, and calls of this rank. The script
 * plays all other ranks. Sockets are pairs whose other ends it holds; time is that of sim.h. Every call must end by its
 * deadline with a valid status, received data must equal sent data, and destroy must leak nothing. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/host/base/clock.h"
#include "src/host/base/error.h"
#include "src/host/boot/bootstrap.h"
#include "test/fuzz/fuzz.h"
#include "test/fuzz/sim.h"

#define ENDS 12
#define STEPS_MAX 64
#define ADDRESS_BYTES 19
#define TIMEOUT_MS 1000
/* Time limit of every call. Create and destroy take longer than TIMEOUT_MS: create asks which rank is missing, and
 * waits 1.5 s for the announcement of a rank's neighbours. */
#define CALL_NS 9500000000u

/* The script's end of a connection. */
typedef struct far_end {
    int fd;
    bool to_rank; /* the script connected to this rank */
    bool proved;
    weiri_auth auth;
    weiri_seal seal; /* of the script's direction */
    weiri_seal unused;
} far_end;

static fuzz_input *in;
static far_end ends[ENDS];
static int waiting[ENDS]; /* this rank's ends of connections that it has not yet accepted */
static uint32_t waiting_count;
static int listener[2] = { -1, -1 };
static uint32_t rank;
static uint32_t size;
static uint8_t key[WEIRI_AUTH_KEY_BYTES];
static uint8_t job[WEIRI_JOB_BYTES];
/* Progress of inputs, for checks of the seeds. */
static uint32_t created;
static uint32_t received;

/* ---- sockets ---------------------------------------------------------------------------------------- */

weir_status __wrap_weiri_sock_listen(const weiri_address *at, int *fd, weiri_address *bound);
int __wrap_weiri_sock_own(int from, uint32_t timeout_ms);
int __wrap_weiri_sock_accept(int from, int *fd, weiri_address *address);
void __wrap_weiri_sock_close(int fd);
int __wrap_weiri_sock_connect(const weiri_address *to, uint32_t timeout_ms, int *fd);
int __wrap_weiri_sock_error(int fd);
weir_status __wrap_weiri_sock_interface(const char *name, uint8_t family, weiri_address *out);
weir_status __wrap_weiri_sock_route(const weiri_address *to, weiri_address *out);

static weiri_address local(uint16_t port)
{
    const weiri_address address = { .ip = { 127, 0, 0, 1 }, .port = port, .family = 4 };
    return address;
}

static far_end *free_end(void)
{
    for (int i = 0; i < ENDS; i++) {
        if (ends[i].fd < 0) {
            return &ends[i];
        }
    }
    return NULL;
}

static void close_end(far_end *end)
{
    if (end->fd >= 0) {
        close(end->fd);
    }
    memset(end, 0, sizeof *end);
    end->fd = -1;
}

/* Makes a connection. Returns this rank's end, or -1 if there are too many. */
static int make_pair(bool to_rank)
{
    int fds[2];
    far_end *end = free_end();
    if (end == NULL || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) {
        return -1;
    }
    end->fd = fds[0];
    end->to_rank = to_rank;
    return fds[1];
}

weir_status __wrap_weiri_sock_listen(const weiri_address *at, int *fd, weiri_address *bound)
{
    (void)at;
    FUZZ_CHECK(listener[0] < 0);
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, listener) == 0);
    *fd = listener[1];
    *bound = local(5000);
    return WEIR_OK;
}

int __wrap_weiri_sock_own(int from, uint32_t timeout_ms)
{
    (void)timeout_ms;
    return from == listener[1] ? 0 : EBADF;
}

void __wrap_weiri_sock_close(int fd) { FUZZ_CHECK(close(fd) == 0); }

/* The listener is readable while it holds a byte for each waiting connection. */
int __wrap_weiri_sock_accept(int from, int *fd, weiri_address *address)
{
    char byte;
    if (read(from, &byte, 1) != 1) {
        return EAGAIN;
    }
    FUZZ_CHECK(waiting_count > 0);
    *fd = waiting[--waiting_count];
    *address = local(1);
    return 0;
}

int __wrap_weiri_sock_connect(const weiri_address *to, uint32_t timeout_ms, int *fd)
{
    (void)timeout_ms;
    FUZZ_CHECK(to->port != 0 && (to->family == 4 || to->family == 6));
    const int made = make_pair(false);
    if (made < 0) {
        return ECONNREFUSED;
    }
    *fd = made;
    return (to->port & 1) != 0 ? 0 : EINPROGRESS;
}

int __wrap_weiri_sock_error(int fd) { return fd >= 0 ? 0 : EBADF; }

weir_status __wrap_weiri_sock_interface(const char *name, uint8_t family, weiri_address *out)
{
    (void)name;
    (void)family;
    *out = local(0);
    return WEIR_OK;
}

weir_status __wrap_weiri_sock_route(const weiri_address *to, weiri_address *out)
{
    (void)to;
    *out = local(0);
    return WEIR_OK;
}

/* ---- what the script sends -------------------------------------------------------------------------- */

static void send_all(far_end *end, const void *data, size_t bytes)
{
    const uint8_t *at = (const uint8_t *)data;
    while (bytes > 0 && end->fd >= 0) {
        const ssize_t n = send(end->fd, at, bytes, MSG_NOSIGNAL);
        if (n <= 0) {
            return; /* the rank has closed its end or does not read */
        }
        at += n;
        bytes -= (size_t)n;
    }
}

static bool receive(far_end *end, void *data, size_t bytes)
{
    sim_run();
    return recv(end->fd, data, bytes, 0) == (ssize_t)bytes;
}

/* The purpose of a connection of rank `as` to this rank. */
static void write_purpose(uint8_t purpose[WEIRI_AUTH_PURPOSE_BYTES], uint32_t kind, uint32_t as, uint32_t to)
{
    static const uint8_t no_job[WEIRI_JOB_BYTES];
    weiri_writer w = weiri_writer_init(purpose, WEIRI_AUTH_PURPOSE_BYTES);
    weiri_write_u32(&w, kind);
    weiri_write_bytes(&w, kind == WEIRI_FRAME_JOIN ? no_job : job, WEIRI_JOB_BYTES);
    weiri_write_u32(&w, as);
    weiri_write_u32(&w, to);
    weiri_write_u32(&w, TIMEOUT_MS);
}

/* Proves the key, from either side; as client as rank `as`. */
static void prove(far_end *end, uint32_t kind, uint32_t as, uint32_t to)
{
    uint8_t hello[WEIRI_AUTH_HELLO_BYTES];
    uint8_t challenge[WEIRI_AUTH_CHALLENGE_BYTES];
    uint8_t proof[WEIRI_AUTH_PROOF_BYTES];
    uint8_t answer[WEIRI_AUTH_PROOF_BYTES];
    if (end->to_rank) {
        uint8_t purpose[WEIRI_AUTH_PURPOSE_BYTES];
        write_purpose(purpose, kind, as, to);
        weiri_auth_begin(&end->auth, purpose, hello);
        send_all(end, hello, sizeof hello);
        if (receive(end, challenge, sizeof challenge) &&
            weiri_auth_prove(&end->auth, key, challenge, proof) == WEIR_OK) {
            send_all(end, proof, sizeof proof);
            weiri_auth_seals(&end->auth, key, &end->seal, &end->unused);
            end->proved = true;
        }
    } else if (receive(end, hello, sizeof hello) && weiri_auth_challenge(&end->auth, hello, challenge) == WEIR_OK) {
        send_all(end, challenge, sizeof challenge);
        if (receive(end, proof, sizeof proof) && weiri_auth_check(&end->auth, key, proof, answer) == WEIR_OK) {
            send_all(end, answer, sizeof answer);
            weiri_auth_seals(&end->auth, key, &end->unused, &end->seal);
            end->proved = true;
        }
    }
}

/* A frame whose head claims `bytes`, with a valid seal. */
static void send_claimed(far_end *end, uint32_t kind, uint64_t tag, uint64_t bytes, const void *payload, size_t sent)
{
    uint8_t frame[WEIRI_FRAME_BYTES];
    uint8_t hash[WEIRI_HASH_BYTES];
    weiri_hash_all(payload, sent, hash);
    weiri_writer w = weiri_writer_init(frame, sizeof frame);
    weiri_write_u32(&w, kind);
    weiri_write_u64(&w, tag);
    weiri_write_u64(&w, bytes);
    weiri_write_bytes(&w, hash, sizeof hash);
    FUZZ_CHECK(!w.failed && w.size == WEIRI_FRAME_HEAD_BYTES);
    weiri_seal_close(&end->seal, frame, w.size, frame + w.size);
    send_all(end, frame, sizeof frame);
    send_all(end, payload, sent);
}

static void send_frame(far_end *end, uint32_t kind, uint64_t tag, const void *payload, size_t bytes)
{
    send_claimed(end, kind, tag, bytes, payload, bytes);
}

static void write_address(weiri_writer *w, uint16_t port, uint8_t family)
{
    const weiri_address address = local(port);
    weiri_write_bytes(w, address.ip, sizeof address.ip);
    weiri_write_u16(w, port);
    weiri_write_u8(w, family);
}

static void send_join(far_end *end, uint32_t as, uint32_t of)
{
    uint8_t data[64];
    weiri_writer w = weiri_writer_init(data, sizeof data);
    weiri_write_u32(&w, of);
    weiri_write_u32(&w, TIMEOUT_MS);
    write_address(&w, (uint16_t)(6000 + as), 4);
    send_frame(end, WEIRI_FRAME_JOIN, 0, data, w.size);
}

/* The ranks 1, 2, 4, ... after this one. */
static void send_table(far_end *end, uint32_t of, uint8_t odd)
{
    uint8_t data[WEIRI_JOB_BYTES + 8 * ADDRESS_BYTES];
    weiri_writer w = weiri_writer_init(data, sizeof data);
    weiri_write_bytes(&w, job, sizeof job);
    for (uint32_t i = 1; i < of % 8; i *= 2) {
        write_address(&w, odd == i ? 0 : (uint16_t)(6000 + i), odd == i + 16 ? 5 : 4);
    }
    send_frame(end, WEIRI_FRAME_TABLE, 0, data, w.size);
}

/* A valid collective message; its data contains its tag. */
static void send_collective(far_end *end)
{
    uint8_t data[32 + 256];
    const uint8_t form = fuzz_u8(in);
    const uint8_t step = fuzz_u8(in);
    weiri_writer w = weiri_writer_init(data, sizeof data);
    weiri_write_u32(&w, 1 + form % 4);
    weiri_write_u32(&w, form >> 2 & 3);
    weiri_write_u64(&w, form >> 4);
    weiri_write_u64(&w, step >> 4);
    weiri_write_u64(&w, step & 3);
    const size_t bytes = (step & 12) == 0 ? (size_t)(step >> 4) : step;
    for (size_t i = 0; i < bytes; i++) {
        weiri_write_u8(&w, (uint8_t)i);
    }
    send_frame(end, WEIRI_FRAME_COLLECTIVE, 0, data, w.size);
}

static void send_abort(far_end *end)
{
    uint8_t data[256];
    char text[128];
    weiri_writer w = weiri_writer_init(data, sizeof data);
    weiri_write_u64(&w, fuzz_u8(in));
    weiri_write_u32(&w, (uint32_t)(int32_t)(int8_t)fuzz_u8(in));
    fuzz_text(in, text, sizeof text);
    weiri_write_string(&w, text);
    send_frame(end, WEIRI_FRAME_ABORT, fuzz_u8(in) & 1, data, w.size);
}

static void send_refusal(far_end *end)
{
    uint8_t data[1024];
    char text[600];
    weiri_writer w = weiri_writer_init(data, sizeof data);
    weiri_write_u32(&w, (uint32_t)(int32_t)(int8_t)fuzz_u8(in));
    fuzz_text(in, text, sizeof text);
    weiri_write_string(&w, text);
    send_frame(end, WEIRI_FRAME_REFUSE, 0, data, w.size);
}

/* A user's message contains its tag in every byte. */
static void send_user(far_end *end)
{
    uint8_t data[256];
    const uint8_t tag = fuzz_u8(in) & 3;
    const size_t bytes = fuzz_u8(in);
    memset(data, tag, sizeof data);
    send_frame(end, WEIRI_FRAME_USER, tag, data, bytes);
}

static void send_any_frame(far_end *end)
{
    size_t bytes;
    const uint32_t kind = fuzz_u8(in) % (WEIRI_FRAME_SILENT + 3);
    const uint64_t tag = fuzz_number(in);
    const uint64_t claimed = fuzz_number(in);
    const uint8_t *payload = fuzz_bytes(in, fuzz_u8(in), &bytes);
    /* Only valid user's messages may be read as such. */
    send_claimed(end, kind == WEIRI_FRAME_USER ? WEIRI_FRAME_PORT : kind, tag, (claimed & 1) != 0 ? claimed : bytes,
                 payload, bytes);
}

static void open_end(void)
{
    if (listener[0] < 0 || waiting_count == ENDS) {
        return;
    }
    const int made = make_pair(true);
    if (made >= 0) {
        for (uint32_t i = waiting_count++; i > 0; i--) {
            waiting[i] = waiting[i - 1];
        }
        waiting[0] = made;
        if (send(listener[0], "", 1, MSG_NOSIGNAL) != 1) {
            /* Closing the listener closes waiting connections. */
            for (uint32_t i = 1; i < waiting_count; i++) {
                waiting[i - 1] = waiting[i];
            }
            waiting_count--;
            close(made);
        }
    }
}

static far_end *newest(bool to_rank)
{
    for (int i = ENDS - 1; i >= 0; i--) {
        if (ends[i].fd >= 0 && ends[i].to_rank == to_rank && !ends[i].proved) {
            return &ends[i];
        }
    }
    return NULL;
}

/* Makes the other ranks join, as far as it is their turn. */
static void join_all(void)
{
    far_end *end;
    for (uint32_t other = 1; rank == 0 && other < size; other++) {
        open_end();
        end = newest(true);
        if (end != NULL) {
            prove(end, WEIRI_FRAME_JOIN, other, 0);
            send_join(end, other, size);
            sim_run();
            /* The answer, and the table with the job. */
            uint8_t head[WEIRI_AUTH_PROOF_BYTES + 2 * WEIRI_FRAME_BYTES];
            if (other == size - 1 && receive(end, head, sizeof head)) {
                (void)receive(end, job, sizeof job);
            }
        }
    }
    if (rank != 0 && (end = newest(false)) != NULL) {
        prove(end, 0, 0, 0);
        send_table(end, size, 0);
        sim_run();
    }
    while ((end = newest(false)) != NULL) {
        prove(end, 0, 0, 0);
        if (!end->proved) {
            break;
        }
    }
    for (uint32_t step = 1; step < size; step *= 2) {
        open_end();
        end = newest(true);
        if (end != NULL) {
            prove(end, WEIRI_FRAME_PEER, (rank + size - step) % size, rank);
            sim_run();
        }
    }
}

/* The allgather of addresses in create: a message of each rank that connects to this one. */
static void pass_allgather(void)
{
    uint32_t step = 0;
    for (int i = 0; i < ENDS; i++) {
        /* Connections of the rendezvous at rank 0 take no collectives. */
        if (ends[i].fd < 0 || !ends[i].to_rank || !ends[i].proved || (rank == 0 && (uint32_t)i < size - 1)) {
            continue;
        }
        uint8_t data[32 + 4 * ADDRESS_BYTES];
        weiri_writer w = weiri_writer_init(data, sizeof data);
        weiri_write_u32(&w, 2);
        weiri_write_u32(&w, 0);
        weiri_write_u64(&w, 0);
        weiri_write_u64(&w, ADDRESS_BYTES);
        weiri_write_u64(&w, step);
        for (uint32_t have = 0; have < 1u << step && have + (1u << step) < size; have++) {
            write_address(&w, (uint16_t)(6000 + have), 4);
        }
        send_frame(&ends[i], WEIRI_FRAME_COLLECTIVE, 0, data, w.size);
        step = step < 2 ? step + 1 : step;
    }
}

static void end_step(far_end *end, uint8_t step)
{
    size_t bytes;
    const uint8_t *data;
    uint8_t form;
    switch (step) {
    case 0:
        data = fuzz_bytes(in, fuzz_u8(in), &bytes);
        send_all(end, data, bytes);
        break;
    case 1:
        prove(end, WEIRI_FRAME_JOIN, fuzz_u8(in) & 7, 0);
        break;
    case 2:
        send_join(end, fuzz_u8(in) & 7, (fuzz_u8(in) & 7) ^ size);
        break;
    case 3:
        form = fuzz_u8(in);
        prove(end, (form >> 6) == 3 ? form : WEIRI_FRAME_PEER, form & 7, (form >> 3 & 7) ^ rank);
        break;
    case 4:
        send_table(end, size ^ (fuzz_u8(in) & 3), fuzz_u8(in));
        break;
    case 5:
        send_collective(end);
        break;
    case 6:
        send_user(end);
        break;
    case 7:
        send_any_frame(end);
        break;
    case 8:
        send_abort(end);
        break;
    case 9:
        send_refusal(end);
        break;
    case 10:
        close_end(end);
        break;
    default:
        (void)shutdown(end->fd, SHUT_WR);
    }
}

static bool peers_step(void)
{
    if (in->at >= in->size || (in->data[in->at] & 0x80) == 0) {
        return false;
    }
    const uint8_t step = fuzz_u8(in) & 0x7f;
    if (step < 0x60) {
        /* Picks one of the open ends, counted from the newest. */
        int left = step >> 4;
        for (int i = ENDS - 1; i >= 0; i--) {
            if (ends[i].fd >= 0 && left-- == 0) {
                end_step(&ends[i], step & 15);
                break;
            }
        }
    } else if (step < 0x68) {
        open_end();
    } else if (step < 0x70) {
        join_all();
    } else if (step < 0x78) {
        pass_allgather();
    } else {
        sim_pass((uint64_t)fuzz_u8(in) * 10000000u);
    }
    return true;
}

/* ---- what this rank calls --------------------------------------------------------------------------- */

static void port_message(void *context, uint32_t peer, const uint8_t *data, size_t bytes)
{
    (void)context;
    FUZZ_CHECK(peer < size && (data != NULL || bytes == 0));
}

static void port_gone(void *context, uint32_t peer, bool died, const char *text)
{
    bool *gone = (bool *)context;
    (void)died;
    FUZZ_CHECK(peer < size && peer != rank && !gone[peer] && text[0] != '\0');
    gone[peer] = true;
}

/* The text may come from a peer and be empty. */
static void check_status(weir_status status) { FUZZ_CHECK(status <= WEIR_OK && status > WEIR_STATUS_FIRST_UNUSED); }

static void check_received(const uint8_t *data, size_t bytes, uint64_t tag)
{
    for (size_t i = 0; i < bytes; i++) {
        FUZZ_CHECK(data[i] == tag);
    }
}

static void call(weir_bootstrap *boot, bool gone[4][8])
{
    static uint8_t data[8 * 256];
    const uint8_t step = fuzz_u8(in);
    const uint8_t byte = fuzz_u8(in);
    const uint64_t begun = weiri_now_ns();
    const uint32_t port = byte & 3;
    const weiri_port_handler handler = { port_message, port_gone, gone[port] };
    weir_status status = WEIR_OK;
    switch (step & 7) {
    case 0:
        memset(data, 0xff, byte);
        status = weir_bootstrap_recv(boot, data, byte, (step >> 3) % size, byte & 3);
        if (status == WEIR_OK && (step >> 3) % size != rank) {
            check_received(data, byte, byte & 3);
            received++;
        }
        break;
    case 1:
        memset(data, byte & 3, byte);
        status = weir_bootstrap_send(boot, data, byte, (step >> 3) % size, byte & 3);
        break;
    case 2:
        status = weir_bootstrap_barrier(boot, NULL);
        break;
    case 3:
        status = weir_bootstrap_allgather(boot, NULL, data, byte >> 4);
        break;
    case 4:
        status = weir_bootstrap_broadcast(boot, NULL, data, byte >> 4, byte & 3);
        break;
    case 5:
        (void)weiri_bootstrap_open_port(boot, port, &handler);
        break;
    case 6:
        (void)weiri_bootstrap_post(boot, (step >> 3) % size, port, data, byte);
        break;
    default:
        weiri_bootstrap_close_port(boot, port);
    }
    check_status(status);
    FUZZ_CHECK(weiri_now_ns() - begun <= CALL_NS);
}

static void start(void)
{
    const uint8_t form = fuzz_u8(in);
    size = 1 + (form & 3);
    rank = (form >> 2) % size;
    waiting_count = 0;
    listener[0] = -1;
    memset(job, 'j', sizeof job);
    for (int i = 0; i < ENDS; i++) {
        memset(&ends[i], 0, sizeof ends[i]);
        ends[i].fd = -1;
    }
}

/* Closes the script's ends and connections that this rank never accepted. */
static void stop(void)
{
    for (int i = 0; i < ENDS; i++) {
        close_end(&ends[i]);
    }
    while (waiting_count > 0) {
        close(waiting[--waiting_count]);
    }
    if (listener[0] >= 0) {
        close(listener[0]);
        listener[0] = -1;
    }
}

void fuzz_one(fuzz_input *input)
{
    bool gone[4][8] = { { false } };
    in = input;
    start();
    sim_begin(peers_step);
    weiri_auth_derive_key("fuzz", key);
    const weir_bootstrap_opts opts = { .size = sizeof opts, .timeout_ms = TIMEOUT_MS, .key = "fuzz" };
    weir_bootstrap *boot = NULL;
    uint64_t begun = weiri_now_ns();
    const weir_status status = weir_bootstrap_create("127.0.0.1:5000", rank, size, &opts, &boot);
    check_status(status);
    FUZZ_CHECK(weiri_now_ns() - begun <= CALL_NS);
    if (status == WEIR_OK) {
        created++;
        FUZZ_CHECK(weir_bootstrap_rank(boot) == rank && weir_bootstrap_size(boot) == size);
        for (int i = 0; i < STEPS_MAX && !fuzz_end(in); i++) {
            if (!peers_step()) {
                call(boot, gone);
            }
            sim_run();
        }
        begun = weiri_now_ns();
        weir_bootstrap_destroy(boot);
        FUZZ_CHECK(weiri_now_ns() - begun <= CALL_NS);
    }
    stop();
}

void fuzz_seeds(void)
{
    /* Steps of the script: 0x80 | end << 4 | what, or 0xe0 open, 0xe8 join, 0xf0 allgather, 0xf8 time. */
    static const uint8_t two_ranks[] = { 1, 0xe8, 0xf0, 0x86, 2, 9, 0,   9 /* recv, wrong */, 0x86, 1, 5, 8,
                                         5, 0x85, 0x10, 0,    2, 0, 0x8a };
    static const uint8_t rank_1[] = { 1 | 1 << 2, 0xe8, 0xf0, 0x86, 2, 6, 0, 6, 1, 7, 5, 1, 0xf8, 90 };
    static const uint8_t four_ranks[] = { 3, 0xe8, 0xf0, 2, 0, 5, 1, 6, 0x31, 0x87, 8, 0, 0, 4, 'd', 'a', 't', 'a' };
    static const uint8_t stranger[] = { 1, 0xe0, 0x80, 5, 'h', 'e', 'l', 'l', 'o', 0xf8, 10, 0xe8, 0xf0 };
    static const uint8_t refused[] = { 1 | 1 << 2, 0x81, 0, 0x89, 0xf6, 'n', 'o', 0 };
    static const uint8_t mismatch[] = { 2, 0xe0, 0x81, 1, 0x82, 1, 7 };
    static const uint8_t aborted[] = { 1, 0xe8, 0xf0, 0x88, 1, 0xf6, 'w', 'h', 'y', 0, 0, 2, 0, 0x87, 10, 1, 0, 0 };
    static const uint8_t alone[] = { 0, 1, 3, 0, 3, 2, 0, 3, 16, 4, 16, 6, 1, 5, 1 };
    fuzz_seed(two_ranks, sizeof two_ranks);
    fuzz_seed(rank_1, sizeof rank_1);
    fuzz_seed(four_ranks, sizeof four_ranks);
    FUZZ_CHECK(created == 3 && received > 0);
    fuzz_seed(stranger, sizeof stranger);
    fuzz_seed(refused, sizeof refused);
    fuzz_seed(mismatch, sizeof mismatch);
    fuzz_seed(aborted, sizeof aborted);
    fuzz_seed(alone, sizeof alone);
}
