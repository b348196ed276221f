// Registered memory: passed between ranks as handles and as messages, whole and in parts, and every malformed handle.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/resource.h>
#include <vector>

#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "test/harness/stage_test.h"

namespace {

constexpr uint64_t some = 10000;

bool is_gpu(const weirt_rank *rank) { return std::string(rank->stage->kind) == "gpu"; }

char byte_of(uint64_t seed, uint64_t position) { return weirt_pattern((uint32_t)seed, seed >> 32, position); }

// Fills [at, at + bytes) of a memory, local or remote, with the bytes of `seed`.
bool write_bytes(weirt_rank *rank, weir_comm *comm, weir_memory *memory, uint64_t at, uint64_t bytes, uint64_t seed)
{
    std::vector<char> data(bytes);
    weirt_data_fill(data.data(), bytes, static_cast<uint32_t>(seed), seed >> 32);
    return WEIRT_OK(
        rank, weir_device_copy(weir_comm_device(comm), (char *)weir_memory_pointer(memory) + at, data.data(), bytes));
}

bool has_bytes(weirt_rank *rank, weir_comm *comm, weir_memory *memory, uint64_t at, uint64_t bytes, uint64_t seed)
{
    std::vector<char> data(bytes);
    if (!WEIRT_OK(rank, weir_device_copy(weir_comm_device(comm), data.data(), (char *)weir_memory_pointer(memory) + at,
                                         bytes))) {
        return false;
    }
    const uint64_t wrong = weirt_data_wrong(data.data(), bytes, static_cast<uint32_t>(seed), seed >> 32);
    if (wrong < bytes) {
        weirt_fail(rank, __FILE__, __LINE__, "wrong byte at %llu of %llu", (unsigned long long)(at + wrong),
                   (unsigned long long)bytes);
    }
    return wrong == bytes;
}

bool has_zeros(weirt_rank *rank, weir_comm *comm, weir_memory *memory, uint64_t at, uint64_t bytes)
{
    std::vector<char> data(bytes, 1);
    return WEIRT_OK(rank, weir_device_copy(weir_comm_device(comm), data.data(),
                                           (char *)weir_memory_pointer(memory) + at, bytes)) &&
           WEIRT_EXPECT(rank, data == std::vector<char>(bytes, 0));
}

// Each rank writes into the other's memory of each kind.
void kinds(weirt_rank *rank)
{
    weirt_comm c;
    weir_memory *local[2] = {};
    weir_memory *remote[2] = {};
    uint32_t peer = 1 - rank->rank;
    bool open = weirt_comm_open(rank, 0, &c);
    for (int kind = 0; kind < 2 && open; kind++) {
        weir_memory_opts opts = { sizeof opts, kind == 0 ? WEIR_MEMORY_DEVICE : WEIR_MEMORY_HOST, false, 0 };
        open = WEIRT_OK(rank, weir_memory_allocate(c.comm, some + kind, &opts, &local[kind])) &&
               has_zeros(rank, c.comm, local[kind], 0, some + kind) &&
               WEIRT_OK(rank, weir_memory_send(c.comm, local[kind], peer, 1)) &&
               WEIRT_OK(rank, weir_memory_recv(c.comm, peer, 1, &remote[kind])) &&
               write_bytes(rank, c.comm, remote[kind], 0, some + kind, rank->rank + 1);
        if (open) {
            WEIRT_EXPECT(rank, weir_memory_bytes(remote[kind]) == some + kind);
            WEIRT_EXPECT(rank, weir_memory_bytes(local[kind]) == some + kind);
            WEIRT_EXPECT(rank, weir_memory_rank(remote[kind]) == peer);
            WEIRT_EXPECT(rank, weir_memory_rank(local[kind]) == rank->rank);
            WEIRT_EXPECT(rank, (weir_memory_host_pointer(local[kind]) == nullptr) == (is_gpu(rank) && kind == 0));
        }
    }
    if (open && weirt_barrier(rank)) {
        for (int kind = 0; kind < 2; kind++) {
            has_bytes(rank, c.comm, local[kind], 0, some + kind, peer + 1);
        }
        const char *host = (const char *)weir_memory_host_pointer(local[1]);
        WEIRT_EXPECT(rank, host[some] == byte_of(peer + 1, some));
    }
    weir_memory_destroy(remote[0]);
    weir_memory_destroy(remote[1]);
    weirt_barrier(rank);
    weir_memory_destroy(local[0]);
    weir_memory_destroy(local[1]);
    weirt_comm_close(&c);
}

// Host memory of large pages, if the system has any, that threads have touched: peers write to it as to any other.
void pages(weirt_rank *rank)
{
    constexpr uint64_t large = (5u << 20) + 123;
    weirt_comm c;
    uint32_t peer = 1 - rank->rank;
    bool open = weirt_comm_open(rank, 0, &c);
    for (uint32_t round = 0; round < 6 && open; round++) {
        weir_memory *local = nullptr;
        weir_memory *remote = nullptr;
        const uint32_t threads[] = { 0, 1, 3, 64, 2, 5 };
        weir_memory_opts opts = { sizeof opts, WEIR_MEMORY_HOST, round % 2 == 0, threads[round] };
        open = WEIRT_OK(rank, weir_memory_allocate(c.comm, large, &opts, &local)) &&
               has_zeros(rank, c.comm, local, 0, large) && WEIRT_OK(rank, weir_memory_send(c.comm, local, peer, 1)) &&
               WEIRT_OK(rank, weir_memory_recv(c.comm, peer, 1, &remote)) &&
               write_bytes(rank, c.comm, remote, 0, large, rank->rank + 1) && weirt_barrier(rank) &&
               has_bytes(rank, c.comm, local, 0, large, peer + 1) &&
               WEIRT_EXPECT(rank, weir_memory_bytes(remote) == large && weir_memory_bytes(local) == large);
        weir_memory_destroy(remote);
        open = weirt_barrier(rank) && open;
        weir_memory_destroy(local);
    }
    weirt_comm_close(&c);
}

// Far more registrations of one allocation than a process may have descriptors: they share one descriptor.
void many_registrations(weirt_rank *rank)
{
    constexpr uint64_t COUNT = 10000;
    constexpr uint64_t STEP = 64;
    weirt_comm c;
    weir_memory *whole = nullptr;
    weir_memory *remote = nullptr;
    std::vector<weir_memory *> parts(COUNT);
    bool open =
        weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_memory_allocate(c.comm, COUNT * STEP, nullptr, &whole));
    if (open && rank->rank == 0) {
        rlimit before = {};
        WEIRT_EXPECT(rank, getrlimit(RLIMIT_NOFILE, &before) == 0);
        const rlimit few = { std::min<rlim_t>(1024, before.rlim_cur), before.rlim_max };
        WEIRT_EXPECT(rank, setrlimit(RLIMIT_NOFILE, &few) == 0);
        const uint32_t descriptors = weirt_count_descriptors();
        char *start = (char *)weir_memory_pointer(whole);
        for (uint64_t i = 0; i < COUNT && open; i++) {
            open = WEIRT_OK(rank, weir_memory_register(c.comm, start + i * STEP, STEP, nullptr, &parts[i]));
        }
        WEIRT_EXPECT(rank, weirt_count_descriptors() <= descriptors + 16); // the other thread may open descriptors
        WEIRT_EXPECT(rank, setrlimit(RLIMIT_NOFILE, &before) == 0);
        // Destroying one keeps the descriptor for the others.
        weir_memory_destroy(parts[0]);
        parts[0] = nullptr;
    }
    weirt_barrier(rank);
    for (uint64_t i : { COUNT / 2, COUNT - 1 }) {
        if (rank->rank == 0 && open) {
            open = write_bytes(rank, c.comm, whole, i * STEP, STEP, i) &&
                   WEIRT_OK(rank, weir_memory_send(c.comm, parts[i], 1, i));
        } else if (open) {
            open =
                WEIRT_OK(rank, weir_memory_recv(c.comm, 0, i, &remote)) && has_bytes(rank, c.comm, remote, 0, STEP, i);
            weir_memory_destroy(remote);
        }
    }
    weirt_barrier(rank);
    for (weir_memory *part : parts) {
        weir_memory_destroy(part);
    }
    weir_memory_destroy(whole);
    weirt_comm_close(&c);
}

// Registrations of parts of one allocation; the memory around them stays untouched.
void parts(weirt_rank *rank)
{
    weirt_comm c;
    weir_memory *whole = nullptr;
    weir_memory *part = nullptr;
    weir_memory *remote = nullptr;
    uint32_t peer = 1 - rank->rank;
    const struct {
        uint64_t offset;
        uint64_t bytes;
    } cuts[] = { { 0, 1 }, { 4097, 513 }, { some - 1, 1 }, { 16, some - 16 } };
    bool open = weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_memory_allocate(c.comm, some, nullptr, &whole));
    for (auto &cut : cuts) {
        if (!open) {
            break;
        }
        char *start = (char *)weir_memory_pointer(whole) + cut.offset;
        open = WEIRT_OK(rank, weir_device_fill(c.device, weir_memory_pointer(whole), 0, some)) &&
               WEIRT_OK(rank, weir_memory_register(c.comm, start, cut.bytes, nullptr, &part)) &&
               WEIRT_OK(rank, weir_memory_send(c.comm, part, peer, 2)) &&
               WEIRT_OK(rank, weir_memory_recv(c.comm, peer, 2, &remote)) && weirt_barrier(rank);
        if (open) {
            WEIRT_EXPECT(rank, weir_memory_bytes(remote) == cut.bytes);
            write_bytes(rank, c.comm, remote, 0, cut.bytes, cut.offset + rank->rank);
            weirt_barrier(rank);
            has_bytes(rank, c.comm, whole, cut.offset, cut.bytes, cut.offset + peer);
            has_zeros(rank, c.comm, whole, 0, cut.offset);
            has_zeros(rank, c.comm, whole, cut.offset + cut.bytes, some - cut.offset - cut.bytes);
        }
        weir_memory_destroy(remote);
        weirt_barrier(rank);
        weir_memory_destroy(part);
        part = remote = nullptr;
    }
    weir_memory_destroy(whole);
    weirt_comm_close(&c);
}
// Operations of one (rank, tag) match in order, both operations that wait for messages and messages that wait for
// operations.
void in_order(weirt_rank *rank)
{
    constexpr uint64_t COUNT = 4;
    weirt_comm c;
    weir_memory *memories[COUNT] = {};
    weir_future *futures[COUNT] = {};
    bool open = weirt_comm_open(rank, 0, &c);
    for (int first = 0; first < 2 && open; first++) { // first come the messages, then the operations
        for (uint64_t i = 0; i < COUNT && open && rank->rank == 1 && first == 1; i++) {
            open = WEIRT_OK(rank, weir_memory_recv_async(c.comm, 0, 9, &memories[i], &futures[i]));
        }
        open = open && WEIRT_OK(rank, weir_bootstrap_barrier(c.boot, nullptr));
        for (uint64_t i = 0; i < COUNT && open && rank->rank == 0; i++) {
            open = WEIRT_OK(rank, weir_memory_allocate(c.comm, 100 + i, nullptr, &memories[i])) &&
                   WEIRT_OK(rank, weir_memory_send(c.comm, memories[i], 1, 9));
        }
        open = open && WEIRT_OK(rank, weir_bootstrap_barrier(c.boot, nullptr));
        for (uint64_t i = 0; i < COUNT && open && rank->rank == 1; i++) {
            open = first == 1 ? weirt_complete(rank, futures[i]) : weirt_receive(rank, c.comm, 0, 9, &memories[i]);
            WEIRT_EXPECT(rank, weir_memory_bytes(memories[i]) == 100 + i);
        }
        for (weir_memory *&memory : memories) {
            weirt_barrier(rank);
            weir_memory_destroy(memory);
            memory = nullptr;
        }
    }
    weirt_comm_close(&c);
}

void to_itself(weirt_rank *rank)
{
    weirt_comm c;
    weir_memory *local = nullptr;
    weir_memory *again = nullptr;
    if (weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_memory_allocate(c.comm, some, nullptr, &local)) &&
        WEIRT_OK(rank, weir_memory_send(c.comm, local, rank->rank, 3)) &&
        WEIRT_OK(rank, weir_memory_recv(c.comm, rank->rank, 3, &again))) {
        WEIRT_EXPECT(rank, weir_memory_rank(again) == rank->rank);
        write_bytes(rank, c.comm, again, 0, some, 9);
        has_bytes(rank, c.comm, local, 0, some, 9);
    }
    weir_memory_destroy(again);
    weir_memory_destroy(local);
    weirt_comm_close(&c);
}

// The peer's exported handle, over the bootstrap.
size_t swap_handles(weirt_rank *rank, weirt_comm *c, weir_memory *local, uint8_t handle[WEIR_MEMORY_HANDLE_MAX])
{
    uint8_t mine[WEIR_MEMORY_HANDLE_MAX] = {};
    size_t bytes = sizeof mine;
    uint64_t theirs = 0;
    if (!WEIRT_OK(rank, weir_memory_export(local, mine, &bytes))) {
        return 0;
    }
    uint64_t length = bytes;
    uint32_t peer = 1 - rank->rank;
    bool done = WEIRT_OK(rank, weir_bootstrap_send(c->boot, &length, sizeof length, peer, 50)) &&
                WEIRT_OK(rank, weir_bootstrap_send(c->boot, mine, sizeof mine, peer, 51)) &&
                WEIRT_OK(rank, weir_bootstrap_recv(c->boot, &theirs, sizeof theirs, peer, 50)) &&
                WEIRT_OK(rank, weir_bootstrap_recv(c->boot, handle, WEIR_MEMORY_HANDLE_MAX, peer, 51));
    return done ? theirs : 0;
}

void as_bytes(weirt_rank *rank)
{
    weirt_comm c;
    weir_memory *local = nullptr;
    weir_memory *remote[2] = {};
    uint8_t handle[WEIR_MEMORY_HANDLE_MAX];
    uint32_t peer = 1 - rank->rank;
    if (weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_memory_allocate(c.comm, some, nullptr, &local))) {
        size_t bytes = swap_handles(rank, &c, local, handle);
        if (WEIRT_OK(rank, weir_memory_import(c.comm, handle, bytes, &remote[0])) &&
            WEIRT_OK(rank, weir_memory_import(c.comm, handle, bytes, &remote[1]))) {
            WEIRT_EXPECT(rank, weir_memory_rank(remote[0]) == peer && weir_memory_bytes(remote[0]) == some);
            write_bytes(rank, c.comm, remote[0], 0, some, rank->rank + 4);
            has_bytes(rank, c.comm, remote[1], 0, some, rank->rank + 4);
            weirt_barrier(rank);
            has_bytes(rank, c.comm, local, 0, some, peer + 4);
        }
        size_t small = 3;
        uint8_t nothing[3] = { 7, 7, 7 };
        WEIRT_STATUS(rank, WEIR_ERR_RANGE, weir_memory_export(local, nothing, &small));
        WEIRT_EXPECT(rank, small == bytes && nothing[0] == 7);
    }
    weir_memory_destroy(remote[0]);
    weir_memory_destroy(remote[1]);
    weirt_barrier(rank);
    weir_memory_destroy(local);
    weirt_comm_close(&c);
}

// Expects that the library refuses these bytes because they are not a handle of weir.
void expect_refused(weirt_rank *rank, weir_comm *comm, const uint8_t *handle, size_t bytes, const char *what, size_t at)
{
    weir_memory *memory = nullptr;
    weir_status status = weir_memory_import(comm, handle, bytes, &memory);
    if ((status != WEIR_ERR_CORRUPT && status != WEIR_ERR_AUTH && status != WEIR_ERR_VERSION) || memory != nullptr ||
        weir_last_error()[0] == 0) {
        weirt_fail(rank, __FILE__, __LINE__, "handle %s %zu: %s", what, at, weir_status_name(status));
    }
    weir_memory_destroy(memory);
}

void wrong_handles(weirt_rank *rank)
{
    weirt_comm c;
    weir_memory *local = nullptr;
    weir_memory *remote = nullptr;
    uint8_t handle[WEIR_MEMORY_HANDLE_MAX] = {};
    if (weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_memory_allocate(c.comm, some, nullptr, &local))) {
        size_t bytes = swap_handles(rank, &c, local, handle);
        for (size_t cut = 0; cut < bytes; cut++) {
            // A copy of exactly that length, so the sanitizer finds reads beyond it.
            std::vector<uint8_t> copy(handle, handle + cut);
            expect_refused(rank, c.comm, cut != 0 ? copy.data() : handle, cut, "cut to", cut);
        }
        for (size_t at = 0; at < bytes; at++) {
            for (uint8_t flip : { 0x01, 0x80, 0xff }) {
                std::vector<uint8_t> copy(handle, handle + bytes);
                copy[at] ^= flip;
                expect_refused(rank, c.comm, copy.data(), bytes, "flipped at", at);
            }
        }
        for (size_t longer :
             { bytes + 1, (size_t)WEIR_MEMORY_HANDLE_MAX, (size_t)WEIR_MEMORY_HANDLE_MAX + 1, (size_t)100000 }) {
            std::vector<uint8_t> copy(longer, 0);
            std::memcpy(copy.data(), handle, bytes);
            expect_refused(rank, c.comm, copy.data(), longer, "lengthened to", longer);
        }
        WEIRT_STATUS(rank, WEIR_ERR_CORRUPT, weir_memory_import(c.comm, handle, 1, &remote));
        WEIRT_TEXT(rank, "memory handle: 1 bytes is not a valid length");
        std::vector<uint8_t> zeros(bytes, 0);
        expect_refused(rank, c.comm, zeros.data(), bytes, "of zeros,", bytes);
        // The communicator still works.
        if (WEIRT_OK(rank, weir_memory_import(c.comm, handle, bytes, &remote))) {
            has_zeros(rank, c.comm, remote, 0, some);
        }
        WEIRT_OK(rank, weir_comm_status(c.comm));
    }
    weir_memory_destroy(remote);
    weirt_barrier(rank);
    weir_memory_destroy(local);
    weirt_comm_close(&c);
}

// A handle of one job is not valid in another.
void handle_of_another_job(weirt_rank *rank)
{
    weirt_comm c;
    weirt_comm other;
    weir_memory *local = nullptr;
    weir_memory *remote = nullptr;
    uint8_t handle[WEIR_MEMORY_HANDLE_MAX] = {};
    bool both = weirt_comm_open(rank, 0, &c);
    both = weirt_comm_open(rank, 0, &other) && both;
    if (both && WEIRT_OK(rank, weir_memory_allocate(c.comm, some, nullptr, &local))) {
        size_t bytes = swap_handles(rank, &c, local, handle);
        WEIRT_STATUS(rank, WEIR_ERR_AUTH, weir_memory_import(other.comm, handle, bytes, &remote));
        WEIRT_TEXT(rank, "memory handle: altered, truncated, or made by another job");
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_memory_send(other.comm, local, 0, 1));
        WEIRT_TEXT(rank, "weir_memory_send: memory belongs to another communicator");
    }
    weirt_barrier(rank);
    weir_memory_destroy(local);
    weirt_comm_close(&other);
    weirt_comm_close(&c);
}

void foreign_pointers(weirt_rank *rank)
{
    weirt_comm c;
    weir_memory *local = nullptr;
    weir_memory *remote = nullptr;
    uint32_t peer = 1 - rank->rank;
    std::vector<char> buffer(some, 0);
    if (weirt_comm_open(rank, 0, &c)) {
        if (is_gpu(rank)) {
            WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_memory_register(c.comm, buffer.data(), some, nullptr, &local));
        } else if (WEIRT_OK(rank, weir_memory_register(c.comm, buffer.data(), some, nullptr, &local)) &&
                   WEIRT_OK(rank, weir_memory_send(c.comm, local, peer, 1))) {
            WEIRT_EXPECT(rank, weir_memory_host_pointer(local) == buffer.data());
            if (rank->stage->processes) {
                WEIRT_STATUS(rank, WEIR_ERR_UNSUPPORTED, weir_memory_recv(c.comm, peer, 1, &remote));
                WEIRT_TEXT(rank, "weir_memory_allocate");
            } else if (WEIRT_OK(rank, weir_memory_recv(c.comm, peer, 1, &remote))) {
                write_bytes(rank, c.comm, remote, 0, some, peer);
                weirt_barrier(rank);
                WEIRT_EXPECT(rank,
                             buffer[0] == byte_of(rank->rank, 0) && buffer[some - 1] == byte_of(rank->rank, some - 1));
            }
        }
        WEIRT_OK(rank, weir_comm_status(c.comm));
    }
    weirt_barrier(rank);
    weir_memory_destroy(remote);
    weirt_barrier(rank);
    weir_memory_destroy(local);
    weirt_comm_close(&c);
}

// Memory is freed and allocated again, often at the same address: the peer always maps the new memory.
void reallocated(weirt_rank *rank)
{
    weirt_comm c;
    uint32_t peer = 1 - rank->rank;
    bool open = weirt_comm_open(rank, 0, &c);
    for (uint64_t round = 0; round < 20 && open; round++) {
        weir_memory *local = nullptr;
        weir_memory *remote = nullptr;
        open = WEIRT_OK(rank, weir_memory_allocate(c.comm, some, nullptr, &local)) &&
               write_bytes(rank, c.comm, local, 0, some, round * 2 + rank->rank) &&
               WEIRT_OK(rank, weir_memory_send(c.comm, local, peer, 1)) &&
               WEIRT_OK(rank, weir_memory_recv(c.comm, peer, 1, &remote)) &&
               has_bytes(rank, c.comm, remote, 0, some, round * 2 + peer);
        weir_memory_destroy(remote);
        weirt_barrier(rank);
        weir_memory_destroy(local);
    }
    weirt_comm_close(&c);
}

// The handle of a destroyed memory is refused, even if its address is in use again.
void gone_before_import(weirt_rank *rank)
{
    weirt_comm c;
    weir_memory *local = nullptr;
    weir_memory *remote = nullptr;
    weir_memory *next = nullptr;
    uint8_t handle[WEIR_MEMORY_HANDLE_MAX] = {};
    if (weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_memory_allocate(c.comm, some, nullptr, &local))) {
        size_t bytes = swap_handles(rank, &c, local, handle);
        weir_memory_destroy(local);
        WEIRT_OK(rank, weir_memory_allocate(c.comm, some, nullptr, &next));
        weirt_barrier(rank);
        weir_status status = weir_memory_import(c.comm, handle, bytes, &remote);
        WEIRT_EXPECT(rank, status < 0 && status != WEIR_ERR_TIMEOUT);
        WEIRT_EXPECT(rank, remote == nullptr && weir_last_error()[0] != 0);
        WEIRT_OK(rank, weir_comm_status(c.comm));
    }
    weirt_barrier(rank);
    weir_memory_destroy(next);
    weirt_comm_close(&c);
}

// A rank destroys its communicator but stays in the bootstrap. Waits for it that have begun end.
template <bool connects> void owner_ends(weirt_rank *rank)
{
    weirt_comm c;
    if (weirt_comm_open(rank, 0, &c)) {
        if (rank->rank == 0) {
            weirt_sleep_ms(600);
            weir_comm_destroy(c.comm);
            c.comm = nullptr;
        } else {
            weir_memory *remote = nullptr;
            weir_connection *connection = nullptr;
            WEIRT_STATUS(rank, WEIR_ERR_REMOTE,
                         connects ? weir_connection_create(c.comm, 0, 1, nullptr, &connection)
                                  : weir_memory_recv(c.comm, 0, 1, &remote));
            WEIRT_TEXT(rank, "rank 0 has destroyed its communicator");
            WEIRT_STATUS(rank, WEIR_ERR_REMOTE, weir_memory_recv(c.comm, 0, 2, &remote));
            WEIRT_TEXT(rank, "rank 0 has destroyed its communicator");
            WEIRT_OK(rank, weir_comm_status(c.comm));
        }
    }
    weirt_barrier(rank);
    weirt_comm_close(&c);
}

// The same if the communicator ends before the wait begins.
void owner_has_ended(weirt_rank *rank)
{
    weirt_comm c;
    const bool open = weirt_comm_open(rank, 0, &c);
    weirt_barrier(rank);
    if (open && rank->rank == 0) {
        weir_comm_destroy(c.comm);
        c.comm = nullptr;
    }
    weirt_barrier(rank);
    if (open && rank->rank == 1) {
        weir_memory *remote = nullptr;
        WEIRT_STATUS(rank, WEIR_ERR_REMOTE, weir_memory_recv(c.comm, 0, 1, &remote));
        WEIRT_TEXT(rank, "rank 0 has destroyed its communicator");
    }
    weirt_barrier(rank);
    weirt_comm_close(&c);
}

void null_and_wrong_arguments(weirt_rank *rank)
{
    weirt_comm c;
    weir_memory *local = nullptr;
    weir_memory *out = nullptr;
    weir_future *future = nullptr;
    uint8_t handle[WEIR_MEMORY_HANDLE_MAX];
    size_t bytes = sizeof handle;
    if (weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_memory_allocate(c.comm, some, nullptr, &local))) {
        weir_memory_opts wrong = { sizeof wrong, (weir_memory_kind)7, false, 0 };
        weir_memory_opts unsized = {};
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_memory_allocate(nullptr, 1, nullptr, &out));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_memory_allocate(c.comm, 0, nullptr, &out));
        WEIRT_TEXT(rank, "weir_memory_allocate: bytes is 0; 1 to 4611686018427387903 are allowed");
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_memory_allocate(c.comm, 1, nullptr, nullptr));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_memory_allocate(c.comm, 1, &wrong, &out));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_memory_allocate(c.comm, 1, &unsized, &out));
        weir_memory_opts pages = { sizeof pages, WEIR_MEMORY_DEVICE, true, 0 };
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_memory_allocate(c.comm, 1, &pages, &out));
        WEIRT_TEXT(rank, "weir_memory_allocate: opts.huge_pages is for memory of kind WEIR_MEMORY_HOST");
        pages = { sizeof pages, WEIR_MEMORY_DEVICE, false, 1 };
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_memory_allocate(c.comm, 1, &pages, &out));
        WEIRT_TEXT(rank, "opts.touch_threads");
        pages = { sizeof pages, WEIR_MEMORY_HOST, false, 65 };
        WEIRT_STATUS(rank, WEIR_ERR_LIMIT, weir_memory_allocate(c.comm, 1, &pages, &out));
        WEIRT_TEXT(rank, "opts.touch_threads is 65, the limit is 64");
        WEIRT_EXPECT(rank, weir_memory_allocate(c.comm, UINT64_MAX, nullptr, &out) < 0);
        WEIRT_EXPECT(rank, weir_memory_allocate(c.comm, (uint64_t)1 << 61, nullptr, &out) < 0);
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_memory_register(c.comm, nullptr, 1, nullptr, &out));
        char *pointer = (char *)weir_memory_pointer(local);
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_memory_register(c.comm, pointer, 0, nullptr, &out));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_memory_register(c.comm, pointer, UINT64_MAX, nullptr, &out));
        WEIRT_STATUS(rank, WEIR_ERR_RANGE, weir_memory_register(c.comm, pointer + 1, (uint64_t)1 << 40, nullptr, &out));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_memory_register(c.comm, pointer, 1, nullptr, nullptr));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_memory_export(nullptr, handle, &bytes));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_memory_export(local, nullptr, &bytes));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_memory_export(local, handle, nullptr));
        WEIRT_OK(rank, weir_memory_export(local, handle, &bytes));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_memory_import(nullptr, handle, bytes, &out));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_memory_import(c.comm, nullptr, bytes, &out));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_memory_import(c.comm, handle, bytes, nullptr));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_memory_send(c.comm, nullptr, 0, 1));
        WEIRT_TEXT(rank, "weir_memory_send: memory is NULL");
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_memory_send(nullptr, local, 0, 1));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_memory_send(c.comm, local, 2, 1));
        WEIRT_TEXT(rank, "weir_memory_send: peer 2 does not exist; there are 2 ranks");
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_memory_recv(c.comm, 2, 1, &out));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_memory_recv(c.comm, UINT32_MAX, 1, &out));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_memory_recv(c.comm, 0, 1, nullptr));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_memory_recv_async(c.comm, 0, 1, &out, nullptr));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_future_test(nullptr));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_future_wait(nullptr, 1));
        WEIRT_EXPECT(rank, out == nullptr && future == nullptr);
        weir_memory_destroy(nullptr);
        weir_future_destroy(nullptr);
        weir_comm_destroy(nullptr);
        weir_comm_abort(nullptr);
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_comm_status(nullptr));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_comm_create(nullptr, c.device, nullptr, &c.comm));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_comm_create(c.boot, nullptr, nullptr, &c.comm));
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weir_comm_create(c.boot, c.device, nullptr, nullptr));
    }
    weirt_barrier(rank);
    weir_memory_destroy(local);
    weirt_comm_close(&c);
}

/* ---- futures ----------------------------------------------------------------------------------------- */

void futures(weirt_rank *rank)
{
    weirt_comm c;
    weir_memory *local[2] = {};
    weir_memory *remote = nullptr;
    weir_memory *never = nullptr;
    weir_future *future = nullptr;
    weir_future *dropped = nullptr;
    bool open = weirt_comm_open(rank, 0, &c);
    for (int i = 0; i < 2 && open; i++) {
        open = WEIRT_OK(rank, weir_memory_allocate(c.comm, some + i, nullptr, &local[i]));
    }
    if (open && rank->rank == 0) {
        // The first expectation is dropped while it is pending; its place in the sequence stays.
        WEIRT_OK(rank, weir_memory_recv_async(c.comm, 1, 1, &never, &dropped));
        WEIRT_OK(rank, weir_memory_recv_async(c.comm, 1, 1, &remote, &future));
        WEIRT_STATUS(rank, WEIR_PENDING, weir_future_test(future));
        WEIRT_STATUS(rank, WEIR_PENDING, weir_future_test(dropped));
        weir_future_destroy(dropped);
        WEIRT_EXPECT(rank, remote == nullptr);
        weirt_step(rank, 1);
        WEIRT_OK(rank, weir_future_wait(future, weirt_timeout_ms()));
        WEIRT_OK(rank, weir_future_wait(future, 1));
        WEIRT_OK(rank, weir_future_test(future));
        WEIRT_EXPECT(rank, remote != nullptr && weir_memory_bytes(remote) == some + 1);
        WEIRT_EXPECT(rank, never == nullptr);
        weir_future_destroy(future);
    } else if (open && weirt_step_wait(rank, 0, 1)) {
        WEIRT_OK(rank, weir_memory_send(c.comm, local[0], 0, 1));
        WEIRT_OK(rank, weir_memory_send(c.comm, local[1], 0, 1));
    }
    weirt_barrier(rank);
    // A repeated test also completes.
    weir_memory *other = nullptr;
    if (open && rank->rank == 1 && WEIRT_OK(rank, weir_memory_recv_async(c.comm, 0, 2, &other, &future))) {
        uint64_t end = weirt_now_ms() + weirt_timeout_ms();
        weir_status status = WEIR_PENDING;
        while (status == WEIR_PENDING && weirt_now_ms() < end) {
            status = weir_future_test(future);
            weirt_sleep_ms(1);
        }
        WEIRT_EXPECT(rank, status == WEIR_OK && other != nullptr);
        weir_future_destroy(future);
    } else if (open && rank->rank == 0) {
        WEIRT_OK(rank, weir_memory_send(c.comm, local[0], 1, 2));
    }
    weirt_barrier(rank);
    weir_memory_destroy(other);
    weir_memory_destroy(remote);
    weirt_barrier(rank);
    weir_memory_destroy(local[0]);
    weir_memory_destroy(local[1]);
    weirt_comm_close(&c);
}

// A wait that passes its deadline ends the sequence of its tag, and of no other tag.
void timed_out(weirt_rank *rank)
{
    weirt_comm c;
    weir_memory *local = nullptr;
    weir_memory *remote = nullptr;
    weir_future *future = nullptr;
    if (weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_memory_allocate(c.comm, some, nullptr, &local))) {
        uint32_t peer = 1 - rank->rank;
        WEIRT_OK(rank, weir_memory_recv_async(c.comm, peer, 1, &remote, &future));
        uint64_t since = weirt_now_ms();
        WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_future_wait(future, 150));
        uint64_t elapsed = weirt_now_ms() - since;
        WEIRT_EXPECT(rank, elapsed >= 150 && elapsed < 5150 * (uint64_t)weirt_slow());
        WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_future_wait(future, 150));
        WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_future_test(future));
        weirt_barrier(rank);
        WEIRT_OK(rank, weir_memory_send(c.comm, local, peer, 2));
        since = weirt_now_ms();
        WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_memory_recv(c.comm, peer, 1, &remote));
        WEIRT_EXPECT(rank, weirt_now_ms() - since < 5000 * (uint64_t)weirt_slow());
        WEIRT_EXPECT(rank, remote == nullptr);
        WEIRT_OK(rank, weir_memory_recv(c.comm, peer, 2, &remote));
        WEIRT_OK(rank, weir_comm_status(c.comm));
    }
    weirt_barrier(rank);
    weir_memory_destroy(remote);
    weirt_barrier(rank);
    weir_memory_destroy(local);
    weirt_comm_close(&c);
    weir_future_destroy(future);
}

// An expectation that passes its deadline keeps its place: the next expectation does not get its message.
void late_message(weirt_rank *rank)
{
    weirt_comm c;
    weir_memory *local[2] = {};
    weir_memory *never = nullptr;
    weir_memory *remote = nullptr;
    weir_future *late = nullptr;
    weir_future *future = nullptr;
    bool open = weirt_comm_open(rank, 0, &c);
    for (int i = 0; i < 2 && open; i++) {
        open = WEIRT_OK(rank, weir_memory_allocate(c.comm, some + i, nullptr, &local[i]));
    }
    if (open && rank->rank == 0 && WEIRT_OK(rank, weir_memory_recv_async(c.comm, 1, 1, &never, &late)) &&
        WEIRT_OK(rank, weir_memory_recv_async(c.comm, 1, 1, &remote, &future))) {
        WEIRT_STATUS(rank, WEIR_ERR_TIMEOUT, weir_future_wait(late, 100));
        weir_future_destroy(late);
        weirt_step(rank, 1);
        WEIRT_OK(rank, weir_future_wait(future, weirt_timeout_ms()));
        WEIRT_EXPECT(rank, never == nullptr);
        WEIRT_EXPECT(rank, remote != nullptr && weir_memory_bytes(remote) == some + 1);
        weir_future_destroy(future);
    } else if (open && rank->rank == 1 && weirt_step_wait(rank, 0, 1)) {
        WEIRT_OK(rank, weir_memory_send(c.comm, local[0], 0, 1));
        WEIRT_OK(rank, weir_memory_send(c.comm, local[1], 0, 1));
    }
    weirt_barrier(rank);
    weir_memory_destroy(remote);
    weirt_barrier(rank);
    weir_memory_destroy(local[0]);
    weir_memory_destroy(local[1]);
    weirt_comm_close(&c);
}

WEIRT_STAGE_SUITE(Memory);
WEIRT_STAGE_SUITE(Future);

TEST_P(Memory, BothKindsAreWrittenByPeers) { run(2, kinds); }
TEST_P(Memory, PagesOfAnySizeAndTouch) { run(2, pages); }
TEST_P(Memory, PartsOfAnAllocation) { run(2, parts); }
TEST_P(Memory, ManyRegistrationsShareADescriptor) { run(2, many_registrations); }
TEST_P(Memory, OperationsMeetInOrder) { run(2, in_order); }
TEST_P(Memory, SentToItself) { run(2, to_itself); }
TEST_P(Memory, ExportedAndImportedAsBytes) { run(2, as_bytes); }
TEST_P(Memory, WrongHandlesAreRefused) { run(2, wrong_handles); }
TEST_P(Memory, HandleOfAnotherJobIsRefused) { run(2, handle_of_another_job); }
TEST_P(Memory, ForeignPointersStayInTheirProcess) { run(2, foreign_pointers); }
TEST_P(Memory, ReallocatedIsNeverMistaken) { run(2, reallocated); }
TEST_P(Memory, GoneBeforeImportIsRefused) { run(2, gone_before_import); }

TEST_P(Memory, OwnerThatEndsIsNotWaitedFor)
{
    run(2, owner_ends<false>);
    run(2, owner_ends<true>);
}

TEST_P(Memory, OwnerThatHasEndedIsNotWaitedFor) { run(2, owner_has_ended); }
TEST_P(Memory, NullAndWrongArgumentsAreInvalid) { run(2, null_and_wrong_arguments); }

TEST_P(Future, TestWaitAndDestroy) { run(2, futures); }
TEST_P(Future, TimeoutEndsItsSequenceAlone) { run(2, timed_out); }
TEST_P(Future, TimeoutLeavesItsPlaceInTheSequence) { run(2, late_message); }

} // namespace
