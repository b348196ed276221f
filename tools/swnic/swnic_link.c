/* swnic_link.c - packets between contexts on a host, in one process or several.
 *
 * A context listens at an abstract Unix socket that is named after its slot. A sender makes shared memory with two
 * rings, one for requests and one for responses, and sends its descriptor to that socket; each direction has its own
 * memory. A NIC touches no other memory outside its process. Rings of responses are always read. Rings of requests are
 * read only while there is room for the response, so two NICs cannot wait for each other. A closed socket means that
 * the other side is gone. This is not reported: packets are lost, as on a network.
 *
 * A piece of shared memory is mapped once in a process, so thread sanitizers see all its threads. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "swnic.h"

#define SLOTS 64u
#define MAGIC 0x73776e32u /* changes with the layout of the rings */
#define RETRY_NS 1000000u

typedef struct packet_ring {
    _Alignas(64) uint64_t written;
    _Alignas(64) uint64_t read;
    struct {
        _Alignas(64) swnic_packet packet;
        uint64_t due_ns; /* it arrives at this time */
        uint8_t data[SWNIC_MTU];
    } slots[SLOTS];
} packet_ring;

struct swnic_wire {
    packet_ring rings[SWNIC_RINGS];
};

_Static_assert(sizeof(swnic_packet) == 64, "a packet's head is one cache line");

/* ---- shared memory -------------------------------------------------------------------------------------- */

typedef struct mapping {
    struct mapping *next;
    ino_t inode;
    dev_t device;
    swnic_wire *wire;
    uint32_t users;
} mapping;

static pthread_mutex_t mappings_lock = PTHREAD_MUTEX_INITIALIZER;
static mapping *mappings;

static swnic_wire *map_locked(int fd, const struct stat *info)
{
    for (mapping *m = mappings; m != NULL; m = m->next) {
        if (m->inode == info->st_ino && m->device == info->st_dev) {
            m->users++;
            return m->wire;
        }
    }
    mapping *m = calloc(1, sizeof *m);
    void *memory = m != NULL ? mmap(NULL, sizeof(swnic_wire), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (memory == MAP_FAILED) {
        free(m);
        return NULL;
    }
    *m = (mapping){ mappings, info->st_ino, info->st_dev, memory, 1 };
    mappings = m;
    return m->wire;
}

static swnic_wire *map_wire(int fd)
{
    struct stat info;
    const int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &info) != 0 || info.st_size != (off_t)sizeof(swnic_wire) || seals < 0 ||
        (seals & F_SEAL_SHRINK) == 0) {
        return NULL;
    }
    (void)pthread_mutex_lock(&mappings_lock);
    swnic_wire *wire = map_locked(fd, &info);
    (void)pthread_mutex_unlock(&mappings_lock);
    return wire;
}

static void unmap_wire(swnic_wire *wire)
{
    (void)pthread_mutex_lock(&mappings_lock);
    mapping **at = &mappings;
    while (*at != NULL && (*at)->wire != wire) {
        at = &(*at)->next;
    }
    mapping *m = *at;
    if (m != NULL && --m->users == 0) {
        (void)munmap(wire, sizeof *wire);
        *at = m->next;
        free(m);
    }
    (void)pthread_mutex_unlock(&mappings_lock);
}

/* ---- sockets -------------------------------------------------------------------------------------------- */

typedef struct hello {
    uint32_t magic, slot;
} hello;

static socklen_t name_of(uint32_t slot, struct sockaddr_un *out)
{
    memset(out, 0, sizeof *out);
    out->sun_family = AF_UNIX;
    int length = snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "swnic-%u-%u", (unsigned)getuid(), slot);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

int swnic_listen(swnic_nic *nic)
{
    /* A turn counter delays the reuse of released slots. */
    static uint32_t turn;
    const uint32_t first = (uint32_t)getpid() * 7 + __atomic_fetch_add(&turn, 1, __ATOMIC_RELAXED);
    struct sockaddr_un name;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return errno;
    }
    for (uint32_t i = 0; i < SWNIC_SLOTS; i++) {
        uint32_t slot = (first + i) % SWNIC_SLOTS;
        socklen_t length = name_of(slot, &name);
        if (bind(fd, (struct sockaddr *)&name, length) == 0 && listen(fd, 1024) == 0) {
            nic->slot = slot;
            nic->listener = fd;
            return 0;
        }
        if (errno != EADDRINUSE) {
            break;
        }
    }
    int error = errno;
    (void)close(fd);
    return error;
}

static bool is_of_this_user(int fd)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == getuid();
}

static bool has_ended(int fd)
{
    char byte;
    ssize_t got = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

static int make_memory(void)
{
    int fd = memfd_create("swnic", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && (ftruncate(fd, sizeof(swnic_wire)) != 0 ||
                    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)) {
        (void)close(fd);
        fd = -1;
    }
    return fd;
}

static bool say_hello(int to, uint32_t slot, int memory)
{
    hello text = { MAGIC, slot };
    struct iovec piece = { &text, sizeof text };
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    memset(&control, 0, sizeof control);
    struct msghdr message = {
        .msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.bytes
    };
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.header), &memory, sizeof memory);
    return sendmsg(to, &message, MSG_NOSIGNAL) == sizeof text;
}

/* ---- to others ------------------------------------------------------------------------------------------ */

static void close_out(swnic_out *out)
{
    if (out->wire != NULL) {
        unmap_wire(out->wire);
        (void)close(out->socket);
        out->wire = NULL;
    }
}

static bool open_out(const swnic_nic *nic, uint32_t slot, swnic_out *out)
{
    struct sockaddr_un name;
    socklen_t length = name_of(slot, &name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return false;
    }
    int memory = -1;
    swnic_wire *wire = NULL;
    if (connect(fd, (struct sockaddr *)&name, length) == 0 && is_of_this_user(fd)) {
        memory = make_memory();
        wire = memory >= 0 ? map_wire(memory) : NULL;
    }
    if (wire != NULL && !say_hello(fd, nic->slot, memory)) {
        unmap_wire(wire);
        wire = NULL;
    }
    if (memory >= 0) {
        (void)close(memory);
    }
    if (wire == NULL) {
        (void)close(fd);
        return false;
    }
    out->socket = fd;
    out->wire = wire;
    memset(out->written, 0, sizeof out->written);
    return true;
}

swnic_out *swnic_out_to(swnic_nic *nic, uint32_t slot)
{
    swnic_out *out = nic->outs[slot];
    if (out == NULL) {
        out = nic->outs[slot] = calloc(1, sizeof *out);
    }
    if (out == NULL || out->wire != NULL) {
        return out;
    }
    if (out->tried_ns != 0 && swnic_now() - out->tried_ns < RETRY_NS) {
        return NULL;
    }
    out->tried_ns = swnic_now();
    return open_out(nic, slot, out) ? out : NULL;
}

uint32_t swnic_out_room(const swnic_out *out, int ring)
{
    uint64_t used = out->written[ring] - __atomic_load_n(&out->wire->rings[ring].read, __ATOMIC_ACQUIRE);
    return used <= SLOTS ? SLOTS - (uint32_t)used : 0;
}

uint8_t *swnic_out_data(const swnic_out *out, int ring)
{
    return out->wire->rings[ring].slots[out->written[ring] % SLOTS].data;
}

/* When a packet sent now arrives. */
static uint64_t arrival(swnic_nic *nic, const swnic_packet *packet)
{
    const swnic_fault *shape = &nic->faults[SWNIC_FAULT_SHAPE];
    const uint64_t bits = 8 * (sizeof *packet + (uint64_t)packet->bytes), now = swnic_now();
    nic->line_ns = nic->line_ns > now ? nic->line_ns : now;
    nic->line_ns += shape->arg[1] != 0 ? (bits + shape->arg[1] - 1) / shape->arg[1] : 0;
    return nic->line_ns + shape->arg[0] * 1000;
}

void swnic_out_send(swnic_nic *nic, swnic_out *out, int ring, const swnic_packet *packet)
{
    if (!nic->link_up ||
        swnic_fault_hits(nic, ring == SWNIC_REQUESTS ? SWNIC_FAULT_LOST_REQUEST : SWNIC_FAULT_LOST_RESPONSE)) {
        return;
    }
    out->wire->rings[ring].slots[out->written[ring] % SLOTS].packet = *packet;
    out->wire->rings[ring].slots[out->written[ring] % SLOTS].due_ns =
        nic->faults[SWNIC_FAULT_SHAPE].set ? arrival(nic, packet) : 0;
    out->written[ring]++;
    __atomic_store_n(&out->wire->rings[ring].written, out->written[ring], __ATOMIC_RELEASE);
}

/* ---- from others ---------------------------------------------------------------------------------------- */

bool swnic_in_next(swnic_in *in, int ring, swnic_packet *packet, const uint8_t **data)
{
    uint64_t there = __atomic_load_n(&in->wire->rings[ring].written, __ATOMIC_ACQUIRE) - in->read[ring];
    if (there == 0 || there > SLOTS) {
        return false;
    }
    const uint64_t due_ns = in->wire->rings[ring].slots[in->read[ring] % SLOTS].due_ns;
    if (due_ns != 0 && swnic_now() < due_ns) {
        return false;
    }
    *packet = in->wire->rings[ring].slots[in->read[ring] % SLOTS].packet;
    *data = in->wire->rings[ring].slots[in->read[ring] % SLOTS].data;
    packet->bytes = packet->bytes <= SWNIC_MTU ? packet->bytes : SWNIC_MTU;
    return true;
}

void swnic_in_taken(swnic_in *in, int ring)
{
    in->read[ring]++;
    __atomic_store_n(&in->wire->rings[ring].read, in->read[ring], __ATOMIC_RELEASE);
}

static void free_in(swnic_in *in)
{
    if (in->wire != NULL) {
        unmap_wire(in->wire);
    }
    (void)close(in->socket);
    free(in);
}

/* Reads a hello; false if it is missing or malformed. */
static bool hear_hello(swnic_in *in)
{
    hello text;
    struct iovec piece = { &text, sizeof text };
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = {
        .msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.bytes
    };
    int memory = -1;
    ssize_t got = recvmsg(in->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0) {
        return false;
    }
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header != NULL && header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(sizeof memory)) {
        memcpy(&memory, CMSG_DATA(header), sizeof memory);
    }
    if (memory < 0) {
        return false;
    }
    if (got == sizeof text && text.magic == MAGIC && text.slot < SWNIC_SLOTS) {
        in->slot = text.slot;
        in->wire = map_wire(memory);
    }
    (void)close(memory);
    return in->wire != NULL;
}

static bool is_empty(const swnic_in *in)
{
    for (int i = 0; in->wire != NULL && i < SWNIC_RINGS; i++) {
        if (__atomic_load_n(&in->wire->rings[i].written, __ATOMIC_ACQUIRE) != in->read[i]) {
            return false;
        }
    }
    return true;
}

static void take_new(swnic_nic *nic)
{
    for (;;) {
        int fd = accept4(nic->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        swnic_in *in = fd >= 0 && is_of_this_user(fd) ? calloc(1, sizeof *in) : NULL;
        if (in == NULL) {
            if (fd >= 0) {
                (void)close(fd);
                continue;
            }
            return;
        }
        in->socket = fd;
        in->next = nic->ins;
        nic->ins = in;
    }
}

void swnic_links_keep(swnic_nic *nic)
{
    take_new(nic);
    for (swnic_in **at = &nic->ins; *at != NULL;) {
        swnic_in *in = *at;
        bool heard = in->wire != NULL || hear_hello(in);
        if (has_ended(in->socket) && (!heard || is_empty(in))) {
            *at = in->next;
            free_in(in);
        } else {
            at = &in->next;
        }
    }
    for (uint32_t i = 0; i < SWNIC_SLOTS; i++) {
        if (nic->outs[i] != NULL && nic->outs[i]->wire != NULL && has_ended(nic->outs[i]->socket)) {
            close_out(nic->outs[i]);
        }
    }
}

void swnic_links_close(swnic_nic *nic)
{
    while (nic->ins != NULL) {
        swnic_in *in = nic->ins;
        nic->ins = in->next;
        free_in(in);
    }
    for (uint32_t i = 0; i < SWNIC_SLOTS; i++) {
        if (nic->outs[i] != NULL) {
            close_out(nic->outs[i]);
            free(nic->outs[i]);
            nic->outs[i] = NULL;
        }
    }
    if (nic->listener >= 0) {
        (void)close(nic->listener);
        nic->listener = -1;
    }
}
