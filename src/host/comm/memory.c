/* memory.c - memory of a communicator: allocated or registered here, described to peers, and imported from them.
 *
 * Memory of this rank is in the communicator's list from publish to withdraw, so that peers can ask for it (fd_pass.c).
 * Its handle has version, identity, size, way to share and keys, and a proof by the job's key. Nothing behind the
 * version is used before the proof is checked. weiri_memory_map makes an object of a peer's handle: mapped by the
 * transport that maps memory between the two, or only described where just transfers reach it. */
#include "weir/memory.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/base/pages.h"
#include "src/host/boot/boot.h"
#include "src/host/comm/comm.h"
#include "src/host/comm/domain.h"
#include "src/host/comm/exchange.h"

#define HANDLE_MAGIC 0x4d454557u /* "WEEM" */
#define PROOF_BYTES 16
#define SIZE_MAX_BYTES ((uint64_t)1 << 62)

/* ---- handles ---------------------------------------------------------------------------------------- */

static void make_proof(const weir_comm *comm, const uint8_t *data, size_t bytes, uint8_t proof[PROOF_BYTES])
{
    (void)crypto_generichash(proof, PROOF_BYTES, data, bytes, weiri_bootstrap_key(comm->bootstrap), WEIRI_KEY_BYTES);
}

size_t weiri_handle_write(const weir_memory *memory, uint8_t *handle)
{
    const weiri_export *block = &memory->description;
    uint8_t proof[PROOF_BYTES];
    weiri_writer w = weiri_writer_init(handle, WEIRI_HANDLE_BYTES);
    weiri_write_u32(&w, HANDLE_MAGIC);
    weiri_write_u16(&w, WEIR_VERSION_MAJOR);
    weiri_write_u16(&w, WEIR_VERSION_MINOR);
    weiri_write_bytes(&w, weiri_bootstrap_job(memory->comm->bootstrap), 16);
    weiri_write_u32(&w, memory->comm->port);
    weiri_write_u32(&w, memory->rank);
    weiri_write_u64(&w, memory->id);
    weiri_write_u32(&w, block->share);
    weiri_write_u32(&w, block->kind);
    weiri_write_u64(&w, block->base);
    weiri_write_u64(&w, block->base_bytes);
    weiri_write_u64(&w, block->offset);
    weiri_write_u64(&w, block->size);
    weiri_write_bytes(&w, block->bytes, sizeof block->bytes);
    pthread_mutex_lock(&memory->comm->domains.mutex);
    weiri_write_string(&w, memory->reason);
    weiri_write_u8(&w, (uint8_t)memory->keys.count);
    for (uint32_t i = 0; i < memory->keys.count; i++) {
        const weiri_named_key *key = &memory->keys.at[i];
        weiri_write_string(&w, key->transport);
        weiri_write_u8(&w, (uint8_t)key->key.length);
        weiri_write_bytes(&w, key->key.bytes, key->key.length);
    }
    pthread_mutex_unlock(&memory->comm->domains.mutex);
    make_proof(memory->comm, handle, w.size, proof);
    weiri_write_bytes(&w, proof, sizeof proof);
    return w.size;
}

static weir_status corrupt(const char *what) { return weiri_fail(WEIR_ERR_CORRUPT, "memory handle: %s", what); }

static bool parse_keys(weiri_reader *r, uint64_t size, weiri_keys *keys)
{
    uint8_t count = weiri_read_u8(r);
    if (count > WEIRI_KEYS_MAX) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        weiri_named_key *key = &keys->at[i];
        weiri_read_string(r, key->transport, sizeof key->transport);
        key->key.length = weiri_read_u8(r);
        if (key->key.length == 0 || key->key.length > WEIRI_KEY_MAX) {
            return false;
        }
        weiri_read_bytes(r, key->key.bytes, key->key.length);
        key->key.size = size;
    }
    keys->count = count;
    return true;
}

/* Everything but the proof, which is at the end. */
static weir_status parse_handle(weir_comm *comm, weiri_reader *r, weiri_handle *handle)
{
    uint8_t job[16];
    weiri_export *block = &handle->block;
    weiri_read_bytes(r, job, sizeof job);
    uint32_t port = weiri_read_u32(r);
    handle->rank = weiri_read_u32(r);
    handle->id = weiri_read_u64(r);
    block->share = weiri_read_u32(r);
    block->kind = weiri_read_u32(r);
    block->base = weiri_read_u64(r);
    block->base_bytes = weiri_read_u64(r);
    block->offset = weiri_read_u64(r);
    block->size = weiri_read_u64(r);
    block->fd = -1;
    weiri_read_bytes(r, block->bytes, sizeof block->bytes);
    weiri_read_string(r, handle->reason, sizeof handle->reason);
    bool fine = parse_keys(r, block->size, &handle->keys);
    if (!weiri_reader_done(r) || !fine) {
        return corrupt("wrong length");
    }
    if (memcmp(job, weiri_bootstrap_job(comm->bootstrap), sizeof job) != 0 || port != comm->port) {
        return weiri_fail(WEIR_ERR_INVALID, "memory handle: belongs to another communicator");
    }
    if (handle->rank >= comm->size || block->share > WEIRI_SHARE_CUDA_IPC || block->kind > WEIR_MEMORY_HOST) {
        return corrupt("field out of range");
    }
    if (block->base_bytes >= SIZE_MAX_BYTES || block->size == 0 || block->size > block->base_bytes ||
        block->offset > block->base_bytes - block->size) {
        return corrupt("size or offset out of range");
    }
    return WEIR_OK;
}

weir_status weiri_handle_read(weir_comm *comm, const uint8_t *data, size_t bytes, weiri_handle *out)
{
    uint8_t proof[PROOF_BYTES];
    weiri_handle handle;
    memset(&handle, 0, sizeof handle);
    if (bytes < 8 + PROOF_BYTES || bytes > WEIRI_HANDLE_BYTES) {
        return weiri_fail(WEIR_ERR_CORRUPT, "memory handle: %zu bytes is not a valid length", bytes);
    }
    weiri_reader r = weiri_reader_init(data, bytes - PROOF_BYTES);
    uint32_t magic = weiri_read_u32(&r);
    uint16_t major = weiri_read_u16(&r);
    uint16_t minor = weiri_read_u16(&r);
    if (magic != HANDLE_MAGIC) {
        return corrupt("not a handle");
    }
    if (major != WEIR_VERSION_MAJOR || minor != WEIR_VERSION_MINOR) {
        return weiri_fail(WEIR_ERR_VERSION, "memory handle: made by weir %u.%u; this is %s", major, minor,
                          WEIR_VERSION_STRING);
    }
    make_proof(comm, data, bytes - PROOF_BYTES, proof);
    if (sodium_memcmp(proof, data + bytes - PROOF_BYTES, PROOF_BYTES) != 0) {
        return weiri_fail(WEIR_ERR_AUTH, "memory handle: altered, truncated, or made by another job");
    }
    weir_status status = parse_handle(comm, &r, &handle);
    if (status == WEIR_OK) {
        *out = handle;
    }
    return status;
}

static bool same_process(const weir_comm *comm, uint32_t rank)
{
    return memcmp(comm->peers[rank].end.process, comm->end.process, sizeof comm->end.process) == 0;
}

bool weiri_handle_needs_fd(const weir_comm *comm, const weiri_handle *handle)
{
    return !same_process(comm, handle->rank) && comm->peers[handle->rank].mapper != NULL &&
           (handle->block.share == WEIRI_SHARE_MEMFD || handle->block.share == WEIRI_SHARE_CUMEM_FD);
}

/* ---- objects ---------------------------------------------------------------------------------------- */

static weir_memory *new_memory(weir_comm *comm, bool holds_comm)
{
    weir_memory *memory = (weir_memory *)weiri_alloc(1, sizeof *memory);
    if (memory != NULL) {
        weiri_refcount_init(&memory->refs);
        memory->comm = comm;
        memory->holds_comm = holds_comm;
        if (holds_comm) {
            weiri_comm_get(comm);
        }
    }
    return memory;
}

static void free_memory(weir_memory *memory)
{
    weir_comm *comm = memory->comm;
    bool holds_comm = memory->holds_comm;
    weiri_memory_close_regions(memory);
    weiri_block_release(memory->block);
    weiri_free(memory);
    if (holds_comm) {
        weiri_comm_put(comm);
    }
}

/* Makes the memory known, for peers that will ask for it. */
static void publish(weir_memory *memory)
{
    weir_comm *comm = memory->comm;
    memory->rank = comm->rank;
    memory->description = memory->block->export_;
    memcpy(memory->reason, memory->block->reason, sizeof memory->reason);
    pthread_mutex_lock(&comm->mutex);
    memory->id = ++comm->memories.last_id;
    memory->next = comm->memories.first;
    if (memory->next != NULL) {
        memory->next->previous = memory;
    }
    comm->memories.first = memory;
    pthread_mutex_unlock(&comm->mutex);
}

static void withdraw(weir_memory *memory)
{
    weir_comm *comm = memory->comm;
    pthread_mutex_lock(&comm->mutex);
    if (memory->previous != NULL) {
        memory->previous->next = memory->next;
    } else if (comm->memories.first == memory) {
        comm->memories.first = memory->next;
    }
    if (memory->next != NULL) {
        memory->next->previous = memory->previous;
    }
    pthread_mutex_unlock(&comm->mutex);
}

const weir_memory *weiri_memory_find_locked(const weir_comm *comm, uint64_t id)
{
    for (const weir_memory *memory = comm->memories.first; memory != NULL; memory = memory->next) {
        if (memory->id == id) {
            return memory;
        }
    }
    return NULL;
}

void weiri_memory_get(weir_memory *memory) { weiri_refcount_get(&memory->refs); }

void weir_memory_destroy(weir_memory *memory)
{
    if (memory != NULL && !weiri_comm_forked(memory->comm) && weiri_refcount_put(&memory->refs)) {
        withdraw(memory);
        free_memory(memory);
    }
}

static weir_status allocate(weir_comm *comm, const weir_memory_opts *opts, uint64_t bytes, bool holds_comm,
                            weir_memory **out)
{
    weir_memory *memory = new_memory(comm, holds_comm);
    if (memory == NULL) {
        return weiri_fail_nomem("memory");
    }
    weir_status status = weiri_device_allocate_opts(comm->device, opts, bytes, &memory->block);
    if (status != WEIR_OK) {
        free_memory(memory);
        return status;
    }
    publish(memory);
    *out = memory;
    return WEIR_OK;
}

weir_status weiri_memory_allocate_slab(weir_comm *comm, weir_memory_kind kind, uint64_t bytes, weir_memory **out)
{
    weir_memory_opts opts = WEIR_OPTS(weir_memory_opts);
    opts.kind = kind;
    return allocate(comm, &opts, bytes, false, out);
}

static weir_status check_bytes(const char *call, uint64_t bytes)
{
    if (bytes == 0 || bytes >= SIZE_MAX_BYTES) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: bytes is %llu; 1 to %llu are allowed", call, (unsigned long long)bytes,
                          (unsigned long long)(SIZE_MAX_BYTES - 1));
    }
    return WEIR_OK;
}

weir_status weir_memory_allocate(weir_comm *comm, uint64_t bytes, const weir_memory_opts *opts, weir_memory **out)
{
    weir_memory_opts options;
    weir_status status = weiri_comm_check("comm", comm, "weir_memory_allocate");
    if (status == WEIR_OK) {
        status = check_bytes("weir_memory_allocate", bytes);
    }
    if (status != WEIR_OK) {
        return status;
    }
    if (out == NULL) {
        return weiri_fail_null(__func__, "out");
    }
    if (!WEIRI_OPTS_OK(opts)) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: %s", __func__, WEIRI_OPTS_ERROR(opts));
    }
    weiri_opts_copy(&options, sizeof options, opts);
    if (options.kind != WEIR_MEMORY_DEVICE && options.kind != WEIR_MEMORY_HOST) {
        return weiri_fail(WEIR_ERR_INVALID, "weir_memory_allocate: unknown kind %d", (int)options.kind);
    }
    if (options.kind != WEIR_MEMORY_HOST && (options.huge_pages || options.touch_threads != 0)) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: opts.%s is for memory of kind WEIR_MEMORY_HOST", __func__,
                          options.huge_pages ? "huge_pages" : "touch_threads");
    }
    if (options.touch_threads > WEIRI_TOUCH_THREADS_MAX) {
        return weiri_fail(WEIR_ERR_LIMIT, "%s: opts.touch_threads is %u, the limit is %u", __func__,
                          options.touch_threads, WEIRI_TOUCH_THREADS_MAX);
    }
    return weiri_fail_in(__func__, allocate(comm, &options, bytes, true, out));
}

weir_status weir_memory_register(weir_comm *comm, void *pointer, uint64_t bytes, const weir_memory_opts *opts,
                                 weir_memory **out)
{
    weir_status status = weiri_comm_check("comm", comm, "weir_memory_register");
    if (status == WEIR_OK) {
        status = check_bytes("weir_memory_register", bytes);
    }
    if (status != WEIR_OK) {
        return status;
    }
    if (pointer == NULL || out == NULL || !WEIRI_OPTS_OK(opts) || bytes > UINTPTR_MAX - (uintptr_t)pointer) {
        return weiri_fail(WEIR_ERR_INVALID, "weir_memory_register: %s",
                          pointer == NULL       ? "pointer is NULL"
                          : out == NULL         ? "out is NULL"
                          : WEIRI_OPTS_OK(opts) ? "the range wraps around"
                                                : WEIRI_OPTS_ERROR(opts));
    }
    weir_memory *memory = new_memory(comm, true);
    if (memory == NULL) {
        return weiri_fail_nomem("weir_memory_register");
    }
    status = weiri_device_wrap(comm->device, pointer, bytes, &memory->block);
    if (status != WEIR_OK) {
        free_memory(memory);
        return weiri_fail_in(__func__, status);
    }
    publish(memory);
    *out = memory;
    return WEIR_OK;
}

/* Makes the object of a peer's memory, which is mapped later or never. */
static weir_memory *new_import(weir_comm *comm, const weiri_handle *handle, bool holds_comm)
{
    weir_memory *memory = new_memory(comm, holds_comm);
    if (memory == NULL) {
        (void)weiri_fail_nomem("memory of a peer");
        return NULL;
    }
    memory->imported = true;
    memory->rank = handle->rank;
    memory->id = handle->id;
    memory->description = handle->block;
    memory->keys = handle->keys;
    memcpy(memory->reason, handle->reason, sizeof memory->reason);
    return memory;
}

weir_status weiri_memory_describe(weir_comm *comm, const weiri_handle *handle, bool holds_comm, weir_memory **out)
{
    weir_memory *memory = new_import(comm, handle, holds_comm);
    if (memory == NULL) {
        return WEIR_ERR_NOMEM;
    }
    *out = memory;
    return WEIR_OK;
}

weir_status weiri_memory_map(weir_comm *comm, const weiri_handle *handle, int fd, bool holds_comm, weir_memory **out)
{
    const weiri_transport_ops *transport = comm->peers[handle->rank].mapper;
    const weiri_end *peer = &comm->peers[handle->rank].end;
    const bool shared = handle->block.share != WEIRI_SHARE_NONE || same_process(comm, handle->rank);
    if (handle->keys.count != 0 && !(transport != NULL && shared)) {
        return weiri_memory_describe(comm, handle, holds_comm, out);
    }
    if (!shared) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "memory of rank %u cannot be shared between processes: %s",
                          handle->rank, handle->reason);
    }
    weir_status status = transport != NULL
                             ? weiri_transport_fault(transport, "choose")
                             : weiri_transport_choose(comm->device, &comm->end, peer, NULL, &transport, NULL);
    if (status == WEIR_OK && transport->map == NULL) {
        status = weiri_fail(
            WEIR_ERR_UNSUPPORTED, "memory of rank %u cannot be mapped over transport %s, and has no key of it: %s",
            handle->rank, transport->name,
            handle->reason[0] != '\0' ? handle->reason
                                      : "it was exported before there was a connection; create connections first");
    }
    if (status != WEIR_OK) {
        return status;
    }
    weir_memory *memory = new_import(comm, handle, holds_comm);
    if (memory == NULL) {
        return WEIR_ERR_NOMEM;
    }
    status = weiri_transport_map(transport, comm->device, &comm->end, peer, &handle->block, fd, &memory->block);
    if (status != WEIR_OK) {
        free_memory(memory);
        return status;
    }
    *out = memory;
    return WEIR_OK;
}

void *weir_memory_pointer(const weir_memory *memory)
{
    return memory != NULL && memory->block != NULL ? memory->block->pointer : NULL;
}

void *weir_memory_host_pointer(const weir_memory *memory)
{
    return memory != NULL && memory->block != NULL ? memory->block->host_pointer : NULL;
}

uint64_t weir_memory_bytes(const weir_memory *memory) { return memory != NULL ? memory->description.size : 0; }

uint32_t weir_memory_rank(const weir_memory *memory) { return memory != NULL ? memory->rank : 0; }

/* ---- handles for users, and between ranks ----------------------------------------------------------- */

weir_status weir_memory_export(weir_memory *memory, void *handle, size_t *bytes)
{
    if (memory == NULL || handle == NULL || bytes == NULL) {
        return weiri_fail_null("weir_memory_export", memory == NULL ? "memory" : handle == NULL ? "handle" : "bytes");
    }
    if (weiri_comm_forked(memory->comm)) {
        return weiri_fail(WEIR_ERR_FORKED, "weir_memory_export: the communicator belongs to the parent process");
    }
    uint8_t data[WEIRI_HANDLE_BYTES];
    size_t capacity = *bytes;
    weiri_memory_make_keys(memory);
    *bytes = weiri_handle_write(memory, data);
    if (*bytes > capacity) {
        return weiri_fail(WEIR_ERR_RANGE, "weir_memory_export: %zu bytes needed, %zu given", *bytes, capacity);
    }
    memcpy(handle, data, *bytes);
    return WEIR_OK;
}

static weir_status finish_memory(weir_future *future)
{
    if (future->handle_count != 1) {
        return corrupt("message without one handle");
    }
    return weiri_memory_map(future->comm, &future->handles[0], future->fds[0], true, (weir_memory **)future->out);
}

weir_status weir_memory_import(weir_comm *comm, const void *handle, size_t bytes, weir_memory **out)
{
    weir_future *future;
    weiri_handle parsed;
    weir_status status = weiri_comm_check("comm", comm, "weir_memory_import");
    if (status != WEIR_OK) {
        return status;
    }
    if (handle == NULL || out == NULL) {
        return weiri_fail_null("weir_memory_import", handle == NULL ? "handle" : "out");
    }
    status = weiri_fail_in(__func__, weiri_handle_read(comm, (const uint8_t *)handle, bytes, &parsed));
    if (status == WEIR_OK) {
        status = weiri_exchange_import(comm, &parsed, finish_memory, out, &future);
    }
    return status == WEIR_OK ? weiri_exchange_complete(future) : status;
}

static weir_status check_peer(weir_comm *comm, uint32_t peer, const char *call)
{
    weir_status status = weiri_comm_check("comm", comm, call);
    if (status == WEIR_OK && peer >= comm->size) {
        status = weiri_fail(WEIR_ERR_INVALID, "%s: peer %u does not exist; there are %u ranks", call, peer, comm->size);
    }
    return status;
}

weir_status weir_memory_send(weir_comm *comm, weir_memory *memory, uint32_t peer, uint64_t tag)
{
    weir_status status = check_peer(comm, peer, "weir_memory_send");
    if (status != WEIR_OK) {
        return status;
    }
    if (memory == NULL) {
        return weiri_fail_null("weir_memory_send", "memory");
    }
    if (memory->comm != comm) {
        return weiri_fail(WEIR_ERR_INVALID, "weir_memory_send: memory belongs to another communicator");
    }
    weiri_memory_make_keys(memory);
    weiri_op_message message = { WEIRI_OP_MEMORY, NULL, 0, { memory, NULL }, 1 };
    return weiri_exchange_send(comm, peer, tag, &message);
}

weir_status weir_memory_recv_async(weir_comm *comm, uint32_t peer, uint64_t tag, weir_memory **out,
                                   weir_future **future)
{
    weir_status status = check_peer(comm, peer, "weir_memory_recv");
    if (status != WEIR_OK) {
        return status;
    }
    if (out == NULL || future == NULL) {
        return weiri_fail_null("weir_memory_recv", out == NULL ? "out" : "future");
    }
    return weiri_exchange_expect(comm, peer, tag, WEIRI_OP_MEMORY, finish_memory, NULL, NULL, out, future);
}

weir_status weir_memory_recv(weir_comm *comm, uint32_t peer, uint64_t tag, weir_memory **out)
{
    weir_future *future;
    weir_status status = weir_memory_recv_async(comm, peer, tag, out, &future);
    return status == WEIR_OK ? weiri_exchange_complete(future) : status;
}
