/* comm_fuzz.c - data that ranks of a job can send to a communicator, and foreign processes to its descriptor socket.
 *
 * The input is a script: calls of this rank (0 of 3), and messages of its peers, right or wrong: entries of the table
 * that comm create exchanges, operations with their handles and payloads, answers of owners, datagrams. Rank 1 is
 * another process, rank 2 also in another network namespace, where descriptors are taken by pidfd_getfd. Resulting
 * objects must be valid: memory can be read to its last byte, a semaphore's token lies in the peer's slab, every future
 * ends in time, and destroy leaks nothing. */
#define _GNU_SOURCE
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "src/host/comm/comm.h"
#include "src/host/comm/exchange.h"
#include "src/host/comm/fd_pass.h"
#include "src/host/comm/fd_socket.h"
#include "test/fuzz/fake_bootstrap.h"
#include "test/fuzz/fuzz.h"
#include "test/fuzz/sim.h"
#include "weir/collective.h"

#define RANKS 3
#define SLOTS 4
#define ASKED_MAX 8
#define STEPS_MAX 48
#define MESSAGE_MAX 2048
#define AGREED_BYTES 16u /* of a rank, in the agreement of ranks of several hosts (collective/rails.c) */

typedef enum slot_kind { SLOT_NONE, SLOT_MEMORY, SLOT_CONNECTION, SLOT_SEMAPHORE } slot_kind;

/* The object of a call of this rank, made now or when its future is done. */
typedef struct slot {
    slot_kind kind;
    weir_future *future;
    union {
        weir_memory *memory;
        weir_connection *connection;
        weir_semaphore *semaphore;
    } made;
    bool there;
} slot;

/* A request of this rank for a peer's memory. */
typedef struct asked {
    uint32_t peer;
    uint64_t number;
} asked;

static fuzz_input *in;
static weir_device *device;
static weir_bootstrap *boot;
static weir_comm *comm;
static slot slots[SLOTS];
static asked asks[ASKED_MAX];
static uint32_t ask_count;
static uint8_t mirrored[MESSAGE_MAX]; /* the last operation sent by this rank */
static size_t mirrored_bytes;
static uint32_t made_from_peers[SLOT_SEMAPHORE + 1]; /* progress of inputs, for checks of the seeds */

/* ---- what the bootstrap is asked -------------------------------------------------------------------- */

/* Entries of the peers: a copy of this rank's entry as of another process, or bytes of the input. Also the transports
 * that work on the peers, if the entries make the ranks ask. */
static void gather(uint8_t *data, size_t bytes)
{
    if (bytes == 1) {
        for (uint32_t rank = 1; rank < RANKS; rank++) {
            data[rank] = fuzz_u8(in);
        }
        return;
    }
    if (bytes == AGREED_BYTES) {
        /* The words that ranks of several hosts exchange. The peers' second word never fits, so no rails are made:
         * their proxies would have threads. */
        for (uint32_t rank = 1; rank < RANKS; rank++) {
            memcpy(data + rank * bytes, data, bytes);
            const uint8_t changed = fuzz_u8(in) % AGREED_BYTES;
            data[rank * bytes + changed] ^= changed / 8 != 1 ? fuzz_u8(in) : 0;
        }
        return;
    }
    const uint64_t pid = (uint64_t)getpid();
    size_t at = 0;
    while (at + sizeof pid <= bytes && memcmp(data + at, &pid, sizeof pid) != 0) {
        at++;
    }
    FUZZ_CHECK(at + 8 + 8 + 8 + 16 <= bytes);
    for (uint32_t rank = 1; rank < RANKS; rank++) {
        uint8_t *entry = data + rank * bytes;
        memcpy(entry, data, bytes);
        /* Never the same process: pointers of this process would be trusted. */
        entry[at + 24] ^= 0xff;
        if (rank == 2) {
            entry[at + 16] ^= 0xff;
        }
        const uint8_t form = fuzz_u8(in);
        size_t size;
        const uint8_t *part = fuzz_bytes(in, (form & 3) == 3 ? (size_t)(form >> 2) : 0, &size);
        const size_t from = (form & 4) != 0 ? at + 40 : 0;
        if (size > 0 && from + size <= bytes) {
            memcpy(entry + from, part, size);
            entry[at + 24] = (uint8_t)(data[at + 24] ^ 0xff);
        }
    }
}

static void posted(uint32_t peer, const uint8_t *data, size_t bytes)
{
    FUZZ_CHECK(bytes <= MESSAGE_MAX);
    if (bytes == 0) {
        return; /* the communicator ends then */
    }
    if (data[0] == WEIRI_PORT_MEMORY_WANTED && peer != 0) {
        weiri_reader r = weiri_reader_init(data + 1, bytes - 1);
        asks[ask_count++ % ASKED_MAX] = (asked){ peer, weiri_read_u64(&r) };
    } else if (data[0] == WEIRI_PORT_OP) {
        memcpy(mirrored, data, bytes);
        mirrored_bytes = bytes;
    }
}

/* ---- what peers send -------------------------------------------------------------------------------- */

static void deliver(uint32_t peer, const uint8_t *data, size_t bytes)
{
    const weiri_port_handler *handler = fake_bootstrap_handler(boot);
    if (handler == NULL) {
        return;
    }
    /* At the end of an array, so the sanitizer finds reads beyond it. */
    uint8_t copy[MESSAGE_MAX];
    FUZZ_CHECK(bytes <= sizeof copy);
    uint8_t *end = copy + sizeof copy - bytes;
    if (bytes > 0) {
        memcpy(end, data, bytes);
    }
    handler->message(handler->context, peer, end, bytes);
}

/* A handle of `peer`: with the size of one of this rank's slabs, or with numbers of the input. */
static size_t make_handle(uint32_t peer, uint8_t form, uint8_t *data)
{
    const weiri_slab *slab = (form & 1) != 0 ? &comm->slabs.host : &comm->slabs.device;
    weir_memory memory;
    memset(&memory, 0, sizeof memory);
    memory.comm = comm;
    memory.rank = (form & 2) != 0 ? fuzz_u8(in) : peer;
    memory.id = fuzz_u8(in);
    memory.description = slab->memory->description;
    if ((form & 4) != 0) {
        memory.description.share = fuzz_u8(in);
        memory.description.base = fuzz_number(in);
        memory.description.base_bytes = fuzz_number(in);
        memory.description.offset = fuzz_number(in);
        memory.description.size = fuzz_number(in);
        fuzz_text(in, memory.reason, sizeof memory.reason);
    }
    if ((form & 8) != 0) {
        memory.keys.count = 1;
        memory.keys.at[0].key.length = 1 + fuzz_u8(in) % WEIRI_KEY_MAX;
        fuzz_text(in, memory.keys.at[0].transport, sizeof memory.keys.at[0].transport);
    }
    return weiri_handle_write(&memory, data);
}

/* The fields of an operation; those of a semaphore may name missing cells. */
static size_t make_payload(uint8_t op, uint8_t data[WEIRI_PAYLOAD_MAX])
{
    weiri_writer w = weiri_writer_init(data, WEIRI_PAYLOAD_MAX);
    if (op == WEIRI_OP_CONNECTION) {
        weiri_write_string(&w, "ipc");
        weiri_write_u32(&w, fuzz_u8(in));
    } else if (op == WEIRI_OP_SEMAPHORE) {
        const uint8_t end = fuzz_u8(in);
        weiri_write_u32(&w, end & 1);
        weiri_write_u32(&w, 1);
        weiri_write_u64(&w, comm->slabs.device.first + fuzz_number(in) * WEIR_CELL_BYTES);
        weiri_write_u64(&w, comm->slabs.host.first + fuzz_number(in) * WEIR_CELL_BYTES);
        weiri_write_u64(&w, end);
    }
    return w.size;
}

/* An operation of valid form whose fields may be wrong. */
static void send_operation(uint32_t peer)
{
    uint8_t data[MESSAGE_MAX];
    uint8_t handle[WEIRI_HANDLE_BYTES];
    size_t size;
    const uint8_t form = fuzz_u8(in);
    const uint8_t op = fuzz_u8(in) % 6;
    const uint16_t handles = fuzz_u8(in) % 4;
    weiri_writer w = weiri_writer_init(data, sizeof data);
    weiri_write_u8(&w, WEIRI_PORT_OP);
    weiri_write_u64(&w, fuzz_u8(in) % 3);
    weiri_write_u8(&w, op);
    uint8_t right[WEIRI_PAYLOAD_MAX];
    const uint8_t *payload = right;
    size = make_payload(op, right);
    if ((form & 1) != 0) {
        payload = fuzz_bytes(in, fuzz_u8(in), &size);
    }
    weiri_write_u16(&w, (uint16_t)((form & 2) != 0 ? fuzz_u16(in) : size));
    weiri_write_u16(&w, handles);
    weiri_write_bytes(&w, payload, size);
    for (uint16_t i = 0; i < handles; i++) {
        const size_t bytes = make_handle(peer, (uint8_t)((form >> 2 & ~1) | i), handle);
        weiri_write_u16(&w, (uint16_t)((form & 4) != 0 ? bytes + (size_t)(int8_t)fuzz_u8(in) : bytes));
        weiri_write_bytes(&w, handle, bytes);
    }
    FUZZ_CHECK(!w.failed);
    deliver(peer, data, w.size);
}

static void send_bytes(uint32_t peer)
{
    size_t size;
    const uint8_t *data = fuzz_bytes(in, fuzz_u8(in), &size);
    deliver(peer, data, size);
}

/* The last operation of this rank, sent by the peer, with or without a changed byte. */
static void send_mirrored(uint32_t peer)
{
    const uint16_t at = fuzz_u16(in);
    if (mirrored_bytes > 0) {
        mirrored[at % mirrored_bytes] ^= at >= 0x8000 ? fuzz_u8(in) : 0;
        deliver(peer, mirrored, mirrored_bytes);
    }
}

static asked pick_asked(uint32_t peer)
{
    const uint8_t pick = fuzz_u8(in);
    const asked none = { peer, fuzz_end(in) ? 0 : fuzz_number(in) };
    const uint32_t count = ask_count < ASKED_MAX ? ask_count : ASKED_MAX;
    return count == 0 || pick >= 0xf0 ? none : asks[pick % count];
}

/* There are no threads here, so descriptors of foreign datagrams are closed at once. */
bool __wrap_weiri_fd_dispose(const int *fds, uint32_t count);

bool __wrap_weiri_fd_dispose(const int *fds, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        FUZZ_CHECK(close(fds[i]) == 0);
    }
    return true;
}

/* An owner's answer. */
static void send_answer(uint32_t peer)
{
    const asked to = pick_asked(peer);
    const uint8_t kind = (uint8_t)(WEIRI_PORT_MEMORY_THERE + fuzz_u8(in) % 4);
    uint8_t data[MESSAGE_MAX];
    char text[300];
    weiri_writer w = weiri_writer_init(data, sizeof data);
    weiri_write_u8(&w, kind);
    weiri_write_u64(&w, to.number);
    if (kind == WEIRI_PORT_MEMORY_REFUSED) {
        weiri_write_u32(&w, (uint32_t)(int32_t)(int8_t)fuzz_u8(in));
        fuzz_text(in, text, sizeof text);
        weiri_write_string(&w, text);
    } else if (kind == WEIRI_PORT_FD_AT) {
        /* A descriptor of this process instead of the peer's. */
        const uint8_t which = fuzz_u8(in);
        const int fd = comm->slabs.device.memory->description.fd;
        weiri_write_u32(&w, which < 0x80 ? (uint32_t)fd : (uint32_t)fuzz_number(in));
    }
    deliver(to.peer, data, w.size);
}

/* Asks for a memory of this rank. */
static void send_wanted(uint32_t peer)
{
    uint8_t data[32];
    weiri_writer w = weiri_writer_init(data, sizeof data);
    weiri_write_u8(&w, WEIRI_PORT_MEMORY_WANTED);
    weiri_write_u64(&w, fuzz_number(in));
    weiri_write_u64(&w, fuzz_u8(in));
    weiri_write_u8(&w, fuzz_u8(in));
    deliver(peer, data, w.size);
}

/* The failure of a peer's port channel, for one of this rank's semaphores or an unknown one. */
static void send_channel_failed(uint32_t peer)
{
    uint8_t data[MESSAGE_MAX];
    char text[300];
    weiri_writer w = weiri_writer_init(data, sizeof data);
    weiri_write_u8(&w, WEIRI_PORT_CHANNEL_FAILED);
    weiri_write_u64(&w, fuzz_u8(in) % 4);
    fuzz_text(in, text, sizeof text);
    weiri_write_string(&w, text);
    deliver(peer, data, w.size);
}

/* A peer's question or answer about a queue, for one of this rank's semaphores or an unknown one. */
static void send_queue(uint32_t peer)
{
    uint8_t data[MESSAGE_MAX];
    char text[300];
    size_t size;
    weiri_writer w = weiri_writer_init(data, sizeof data);
    const uint8_t form = fuzz_u8(in);
    weiri_write_u8(&w, (form & 1) != 0 ? WEIRI_PORT_QUEUE_REFUSED : WEIRI_PORT_QUEUE);
    weiri_write_u64(&w, form >> 1 & 3);
    if ((form & 1) != 0) {
        weiri_write_u32(&w, (uint32_t) - (int32_t)(form >> 3));
        fuzz_text(in, text, sizeof text);
        weiri_write_string(&w, text);
    } else {
        const uint8_t *address = fuzz_bytes(in, form, &size);
        weiri_write_u64(&w, form);
        weiri_write_u16(&w, (uint16_t)size);
        weiri_write_bytes(&w, address, size);
    }
    deliver(peer, data, w.size);
}

static void send_to_socket(const uint8_t *data, size_t bytes, const int *fds, uint32_t count)
{
    struct sockaddr_un address;
    union {
        char bytes[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec part = { (void *)(uintptr_t)data, bytes };
    socklen_t address_bytes = sizeof address;
    FUZZ_CHECK(getsockname(comm->fd_pass.socket, (struct sockaddr *)&address, &address_bytes) == 0);
    const int from = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    FUZZ_CHECK(from >= 0);
    struct msghdr message = { .msg_name = &address, .msg_namelen = address_bytes, .msg_iov = &part, .msg_iovlen = 1 };
    if (count > 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(header), fds, count * sizeof(int));
    }
    (void)sendmsg(from, &message, MSG_NOSIGNAL);
    close(from);
    sim_run();
}

/* The datagram by which an owner sends its descriptor, or a similar one. */
static void send_datagram(uint32_t peer)
{
    const uint8_t form = fuzz_u8(in);
    if ((form & 1) != 0) {
        size_t size;
        const uint8_t *data = fuzz_bytes(in, form, &size);
        send_to_socket(data, size, NULL, 0);
        return;
    }
    const asked to = pick_asked(peer);
    uint8_t text[64];
    uint8_t data[64];
    uint8_t proof[32];
    weiri_writer w = weiri_writer_init(text, sizeof text);
    weiri_write_bytes(&w, "weir fd", 7);
    weiri_write_bytes(&w, weiri_bootstrap_job(boot), 16);
    weiri_write_u32(&w, comm->port);
    weiri_write_u32(&w, to.peer);
    weiri_write_u32(&w, comm->rank);
    weiri_write_bytes(&w, comm->end.socket, 16);
    weiri_write_u64(&w, to.number);
    (void)crypto_generichash(proof, sizeof proof, text, w.size, weiri_bootstrap_key(boot), WEIRI_KEY_BYTES);
    w = weiri_writer_init(data, sizeof data);
    weiri_write_bytes(&w, comm->end.token, 16);
    weiri_write_u32(&w, to.peer);
    weiri_write_u64(&w, to.number);
    weiri_write_bytes(&w, proof, sizeof proof);
    const weiri_slab *slab = (form & 2) != 0 ? &comm->slabs.host : &comm->slabs.device;
    const int fds[2] = { (form & 4) != 0 ? comm->fd_pass.socket : slab->memory->description.fd, comm->fd_pass.socket };
    send_to_socket(data, w.size, fds, (form & 8) != 0 ? form >> 6 & 1 : 1 + ((form & 16) != 0));
}

static void leave(uint32_t peer)
{
    const weiri_port_handler *handler = fake_bootstrap_handler(boot);
    const bool died = (fuzz_u8(in) & 1) != 0;
    fake_bootstrap_gone(boot, peer);
    if (handler != NULL) {
        handler->gone(handler->context, peer, died, "bootstrap: a rank is gone");
    }
}

static bool peers_step(void)
{
    if (in->at >= in->size || comm == NULL) {
        return false;
    }
    /* This rank makes no steps while it waits. */
    if ((in->data[in->at] & 0x80) == 0) {
        return false;
    }
    const uint8_t step = fuzz_u8(in);
    const uint32_t peer = (step >> 4 & 3) % RANKS;
    uint8_t how;
    switch (step & 7) {
    case 0:
        send_bytes(peer);
        break;
    case 1:
        send_operation(peer);
        break;
    case 2:
        send_answer(peer);
        break;
    case 3:
        send_wanted(peer);
        break;
    case 4:
        send_datagram(peer);
        break;
    case 5:
        send_mirrored(peer);
        break;
    case 6:
        how = fuzz_u8(in);
        if (how < 0x60) {
            send_queue(peer);
        } else if (how <= 0xc0) {
            send_channel_failed(peer);
        } else if (peer != 0) {
            leave(peer);
        }
        break;
    default:
        sim_pass((uint64_t)fuzz_u8(in) * 1000000u);
    }
    return true;
}

/* ---- what this rank calls --------------------------------------------------------------------------- */

static void check_made(const slot *s)
{
    if (s->kind == SLOT_MEMORY) {
        const volatile char *data = (const volatile char *)weir_memory_host_pointer(s->made.memory);
        const uint64_t bytes = weir_memory_bytes(s->made.memory);
        FUZZ_CHECK(bytes > 0 && weir_memory_rank(s->made.memory) < RANKS);
        /* Memory that cannot be mapped is only for port channels. */
        FUZZ_CHECK((data != NULL) == (weir_memory_pointer(s->made.memory) != NULL));
        if (data != NULL) {
            (void)data[0];
            (void)data[bytes - 1];
        }
    } else if (s->kind == SLOT_SEMAPHORE) {
        weir_dev_semaphore handle;
        if (weir_semaphore_device(s->made.semaphore, &handle) == WEIR_OK) {
            *(volatile uint64_t *)handle.outbound = 0;
            FUZZ_CHECK(*(volatile uint64_t *)handle.inbound == 0 || handle.inbound != NULL);
        }
    } else {
        FUZZ_CHECK(strcmp(weir_connection_transport(s->made.connection), "ipc") == 0);
    }
}

static void settle(slot *s, weir_status status)
{
    if (status != WEIR_PENDING) {
        fuzz_check_status(status);
        if (status == WEIR_OK && !s->there) {
            s->there = true;
            made_from_peers[s->kind]++;
            check_made(s);
        }
    }
}

static void drop(slot *s)
{
    if (s->future != NULL) {
        weir_future_destroy(s->future);
    }
    if (s->there && s->kind == SLOT_MEMORY) {
        weir_memory_destroy(s->made.memory);
    } else if (s->there && s->kind == SLOT_CONNECTION) {
        weir_connection_destroy(s->made.connection);
    } else if (s->there && s->kind == SLOT_SEMAPHORE) {
        weir_semaphore_destroy(s->made.semaphore);
    }
    memset(s, 0, sizeof *s);
}

/* Calls that make an object in slot `s`. */
static void make(slot *s, uint8_t call)
{
    const uint8_t byte = fuzz_u8(in);
    const uint32_t peer = byte % RANKS;
    const uint64_t tag = byte / RANKS % 3;
    slot *other = &slots[(byte >> 4) % SLOTS];
    weir_status status = WEIR_ERR_INVALID;
    drop(s);
    switch (call) {
    case 0:
        s->kind = SLOT_MEMORY;
        status = weir_memory_allocate(comm, 1 + fuzz_u16(in), NULL, &s->made.memory);
        s->there = status == WEIR_OK;
        break;
    case 1:
        s->kind = SLOT_MEMORY;
        status = weir_memory_recv_async(comm, peer, tag, &s->made.memory, &s->future);
        break;
    case 2:
        s->kind = SLOT_CONNECTION;
        status = weir_connection_create_async(comm, peer, tag, NULL, &s->made.connection, &s->future);
        break;
    default:
        if (other->kind == SLOT_CONNECTION && other->there) {
            const weir_semaphore_opts opts = { .size = sizeof opts,
                                               .end = byte >= 0xc0 ? WEIR_SEMAPHORE_HOST : WEIR_SEMAPHORE_DEVICE };
            s->kind = SLOT_SEMAPHORE;
            status = weir_semaphore_create_async(other->made.connection, tag, &opts, &s->made.semaphore, &s->future);
        }
    }
    if (status != WEIR_OK) {
        FUZZ_CHECK(weir_last_error()[0] != '\0');
        memset(s, 0, sizeof *s);
    }
}

/* Imports a handle that the user has passed on. */
static void import(slot *s)
{
    uint8_t data[WEIRI_HANDLE_BYTES];
    drop(s);
    const uint8_t form = fuzz_u8(in);
    const size_t bytes = make_handle(1 + (form & 1), form >> 1, data);
    s->kind = SLOT_MEMORY;
    settle(s, weir_memory_import(comm, data, bytes, &s->made.memory));
    if (!s->there) {
        memset(s, 0, sizeof *s);
    }
}

/* A collective of all ranks: the peers make its steps with this rank's messages, right or changed. */
static void collect(void)
{
    const weir_collective_opts opts = { .size = sizeof opts, .staging_bytes = 128 << 10 };
    weir_collective *collective = NULL;
    const weir_status status = weir_collective_create(comm, &opts, &collective);
    fuzz_check_status(status);
    weir_collective_destroy(collective);
}

static void own_step(void)
{
    const uint8_t step = fuzz_u8(in);
    slot *s = &slots[step % SLOTS];
    switch (step >> 2 & 15) {
    case 0:
    case 1:
    case 2:
    case 3:
        make(s, step >> 2 & 15);
        break;
    case 4:
    case 5:
        if (s->future != NULL) {
            settle(s, weir_future_test(s->future));
        }
        break;
    case 6:
    case 7:
    case 8:
        if (s->future != NULL) {
            settle(s, weir_future_wait(s->future, fuzz_u8(in)));
        }
        break;
    case 9:
        drop(s);
        break;
    case 10:
        if (s->kind == SLOT_MEMORY && s->there) {
            const uint8_t byte = fuzz_u8(in);
            const weir_status status = weir_memory_send(comm, s->made.memory, byte % RANKS, byte / RANKS % 3);
            fuzz_check_status(status);
        }
        break;
    case 11:
        import(s);
        break;
    case 12:
        if (fuzz_u8(in) > 0xf0) {
            weir_comm_abort(comm);
        }
        break;
    case 13:
        collect();
        break;
    default:
        sim_run();
    }
}

void fuzz_one(fuzz_input *input)
{
    in = input;
    comm = NULL;
    ask_count = 0;
    mirrored_bytes = 0;
    fake_bootstrap_gather = gather;
    fake_bootstrap_posted = posted;
    sim_begin(peers_step);
    FUZZ_CHECK(weir_device_open("cpu:0", NULL, &device) == WEIR_OK);
    boot = fake_bootstrap_open(0, RANKS);
    const weir_status status = weir_comm_create(boot, device, NULL, &comm);
    fuzz_check_status(status);
    if (status == WEIR_OK) {
        for (int i = 0; i < STEPS_MAX && !fuzz_end(in); i++) {
            if (!peers_step()) {
                own_step();
            }
        }
        for (int i = 0; i < SLOTS; i++) {
            drop(&slots[i]);
        }
        weir_comm_destroy(comm);
    }
    comm = NULL;
    fake_bootstrap_close(boot);
    weir_device_close(device);
}

void fuzz_seeds(void)
{
    /* Steps of this rank: call << 2 | slot; of peers: 0x80 | peer << 4 | kind. The first two bytes: their entries. */
    /* clang-format off */
    static const uint8_t memory_of_rank_1[] = {
        0, 0, 1 << 2, 1, 0x91, 0, WEIRI_OP_MEMORY, 1, 0, 7, 0x94, 0, 0, 0, 4 << 2, 9 << 2
    };
    static const uint8_t memory_of_rank_2[] = {
        0, 0, 1 << 2, 2, 0xa1, 0, WEIRI_OP_MEMORY, 1, 0, 7, 0xa2, 0, 0, 2, 0, 0xa2, 0, 0, 0, 4 << 2
    };
    static const uint8_t refused[] = {
        0, 0, 1 << 2, 1, 0x91, 0, WEIRI_OP_MEMORY, 1, 0, 7, 0x92, 0, 0, 1, 0xff, 'n', 'o', 0, 6 << 2, 50
    };
    static const uint8_t connected[] = {
        0, 0, 2 << 2, 1, 0x91, 0, WEIRI_OP_CONNECTION, 2, 0, 1, 7, 8, 0x94, 0, 0, 0, 0x94, 2, 1, 0, 6 << 2, 100,
        3 << 2 | 1, 1, 0x95, 0, 0, 6 << 2 | 1, 100,
        3 << 2 | 2, 0xc1, 0x91, 0, WEIRI_OP_SEMAPHORE, 0, 1, 1, 2, 3, 4 << 2 | 2, 0x96, 0, 2, 7, 0x96, 0, 13, 'n', 0
    };
    static const uint8_t cells_beyond[] = {
        0, 0, 2 << 2, 1, 0x91, 0, WEIRI_OP_CONNECTION, 2, 0, 1, 7, 8, 0x94, 0, 0, 0, 0x94, 2, 1, 0, 6 << 2, 100,
        3 << 2 | 1, 1, 0x91, 0, WEIRI_OP_SEMAPHORE, 0, 0, 0, 0x95, 0, 3, 4 << 2 | 1
    };
    static const uint8_t imported[] = { 0, 0, 11 << 2, 0, 3, 0x94, 0, 0, 0, 9 << 2 };
    static const uint8_t served[] = { 0, 0, 0, 0, 9, 0, 0x93, 5, 3, 0, 0x93, 6, 3, 1, 10 << 2, 1 };
    static const uint8_t collected[] = { 0, 0, 13 << 2, 0x95, 0, 0, 0xa5, 0, 0, 0x95, 0, 0, 0xa5, 0, 0x80, 1 };
    static const uint8_t entries[] = { 3 | 16 << 2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 0 };
    /* Rank 1 is on another host, and the ranks' working transports follow the entries. */
    static const uint8_t elsewhere[] = { 3 | 10 << 2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 1, 7, 2 << 2, 1, 2 << 2 | 1, 2 };
    /* clang-format on */
    fuzz_seed(memory_of_rank_1, sizeof memory_of_rank_1);
    fuzz_seed(memory_of_rank_2, sizeof memory_of_rank_2);
    fuzz_seed(refused, sizeof refused);
    fuzz_seed(connected, sizeof connected);
    fuzz_seed(imported, sizeof imported);
    FUZZ_CHECK(made_from_peers[SLOT_MEMORY] == 3);
    FUZZ_CHECK(made_from_peers[SLOT_CONNECTION] == 1 && made_from_peers[SLOT_SEMAPHORE] == 2);
    fuzz_seed(cells_beyond, sizeof cells_beyond);
    FUZZ_CHECK(made_from_peers[SLOT_CONNECTION] == 2 && made_from_peers[SLOT_SEMAPHORE] == 2);
    fuzz_seed(collected, sizeof collected);
    fuzz_seed(served, sizeof served);
    fuzz_seed(entries, sizeof entries);
    fuzz_seed(elsewhere, sizeof elsewhere);
}
