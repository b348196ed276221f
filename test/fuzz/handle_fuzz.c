/* handle_fuzz.c - handles of registered memory from a peer or a user.
 *
 * An input is raw bytes, or the fields of a handle that is then signed with the job's key, as only a rank of the job
 * can do. An accepted handle lies within its allocation, belongs to this communicator, and encodes to the same
 * bytes. */
#include <sodium.h>
#include <string.h>

#include "src/host/base/auth.h"
#include "src/host/comm/comm.h"
#include "src/host/comm/memory.h"
#include "test/fuzz/fake_bootstrap.h"
#include "test/fuzz/fuzz.h"

#define RANKS 4
#define PROOF_BYTES 16
#define MAGIC 0x4d454557u

static uint32_t accepted; /* for checks of the seeds */

static void start(weir_comm *comm)
{
    memset(comm, 0, sizeof *comm);
    comm->bootstrap = fake_bootstrap_open(0, RANKS);
    comm->rank = 0;
    comm->size = RANKS;
    comm->port = 3;
}

static void check_accepted(weir_comm *comm, const weiri_handle *handle, const uint8_t *data, size_t bytes)
{
    const weiri_export *block = &handle->block;
    accepted++;
    FUZZ_CHECK(handle->rank < RANKS && block->fd == -1 && block->size > 0);
    FUZZ_CHECK(block->offset <= block->base_bytes && block->size <= block->base_bytes - block->offset);
    FUZZ_CHECK(memchr(handle->reason, '\0', sizeof handle->reason) != NULL);
    weir_memory memory;
    uint8_t again[WEIRI_HANDLE_BYTES];
    memset(&memory, 0, sizeof memory);
    memory.comm = comm;
    memory.rank = handle->rank;
    memory.id = handle->id;
    memory.keys = handle->keys;
    FUZZ_CHECK(handle->keys.count <= WEIRI_KEYS_MAX);
    for (uint32_t i = 0; i < handle->keys.count; i++) {
        const weiri_named_key *key = &handle->keys.at[i];
        FUZZ_CHECK(memchr(key->transport, '\0', sizeof key->transport) != NULL);
        FUZZ_CHECK(key->key.length > 0 && key->key.length <= WEIRI_KEY_MAX && key->key.size == block->size);
    }
    memory.description = handle->block;
    memcpy(memory.reason, handle->reason, sizeof memory.reason);
    FUZZ_CHECK(weiri_handle_write(&memory, again) == bytes);
    FUZZ_CHECK(memcmp(again, data, bytes) == 0);
}

static void read_handle(weir_comm *comm, const uint8_t *data, size_t bytes)
{
    weiri_handle handle;
    const weir_status status = weiri_handle_read(comm, data, bytes, &handle);
    fuzz_check_status(status);
    if (status == WEIR_OK) {
        check_accepted(comm, &handle, data, bytes);
    } else {
        FUZZ_CHECK(status == WEIR_ERR_CORRUPT || status == WEIR_ERR_VERSION || status == WEIR_ERR_AUTH ||
                   status == WEIR_ERR_INVALID);
    }
}

/* Keys of transports, some of them too many or too long. */
static void build_keys(fuzz_input *in, weiri_writer *w)
{
    char name[16];
    size_t size;
    const uint8_t count = fuzz_u8(in) % 4;
    weiri_write_u8(w, count);
    for (uint8_t i = 0; i < count; i++) {
        fuzz_text(in, name, sizeof name);
        weiri_write_string(w, name);
        const uint8_t length = fuzz_u8(in) % (WEIRI_KEY_MAX + 2);
        const uint8_t *part = fuzz_bytes(in, length, &size);
        weiri_write_u8(w, (uint8_t)size);
        weiri_write_bytes(w, part, size);
    }
}

/* Fields from the input; `mask` selects fields that keep the values of a valid handle. */
static size_t build(fuzz_input *in, const weir_comm *comm, uint8_t *data, size_t capacity)
{
    const uint16_t mask = fuzz_u16(in);
    uint8_t bytes[64] = { 0 };
    uint8_t proof[PROOF_BYTES];
    char reason[200];
    size_t size;
    weiri_writer w = weiri_writer_init(data, capacity - PROOF_BYTES);
    weiri_write_u32(&w, MAGIC);
    weiri_write_u16(&w, (mask & 1) != 0 ? fuzz_u16(in) : WEIR_VERSION_MAJOR);
    weiri_write_u16(&w, (mask & 2) != 0 ? fuzz_u16(in) : WEIR_VERSION_MINOR);
    weiri_write_bytes(&w, (mask & 4) != 0 ? bytes : weiri_bootstrap_job(comm->bootstrap), 16);
    weiri_write_u32(&w, (mask & 8) != 0 ? fuzz_u32(in) : comm->port);
    weiri_write_u32(&w, (uint32_t)fuzz_number(in));
    weiri_write_u64(&w, fuzz_number(in));
    weiri_write_u32(&w, fuzz_u8(in) % 6);
    weiri_write_u32(&w, fuzz_u8(in) % 4);
    for (int i = 0; i < 4; i++) {
        weiri_write_u64(&w, fuzz_number(in));
    }
    const uint8_t *part = fuzz_bytes(in, fuzz_u8(in) % (sizeof bytes + 1), &size);
    if (size > 0) {
        memcpy(bytes, part, size);
    }
    weiri_write_bytes(&w, bytes, sizeof bytes);
    fuzz_text(in, reason, sizeof reason);
    weiri_write_string(&w, reason);
    build_keys(in, &w);
    /* Extra or missing bytes. */
    part = fuzz_bytes(in, (mask & 16) != 0 ? 32 : 0, &size);
    weiri_write_bytes(&w, part, size);
    if (w.failed) {
        return 0;
    }
    w.size -= (mask & 32) != 0 ? 1 + fuzz_u8(in) % (w.size - 8) : 0;
    (void)crypto_generichash(proof, sizeof proof, data, w.size, weiri_bootstrap_key(comm->bootstrap), WEIRI_KEY_BYTES);
    memcpy(data + w.size, proof, sizeof proof);
    return w.size + sizeof proof;
}

void fuzz_one(fuzz_input *in)
{
    weir_comm comm;
    start(&comm);
    if ((fuzz_u8(in) & 1) != 0) {
        uint8_t data[1024];
        const size_t bytes = build(in, &comm, data, sizeof data);
        read_handle(&comm, data, bytes);
        if (bytes > 0) {
            /* One byte altered. */
            data[fuzz_u16(in) % bytes] ^= (uint8_t)(1 + fuzz_u8(in) % 255);
            weiri_handle handle;
            FUZZ_CHECK(weiri_handle_read(&comm, data, bytes, &handle) != WEIR_OK);
        }
    } else {
        size_t bytes;
        const uint8_t *data = fuzz_bytes(in, 1024, &bytes);
        read_handle(&comm, data, bytes);
    }
    fake_bootstrap_close(comm.bootstrap);
}

void fuzz_seeds(void)
{
    weir_comm comm;
    uint8_t raw[1 + WEIRI_HANDLE_BYTES] = { 0 };
    start(&comm);
    weir_memory memory;
    memset(&memory, 0, sizeof memory);
    memory.comm = &comm;
    memory.rank = 1;
    memory.id = 5;
    memory.description.share = WEIRI_SHARE_MEMFD;
    memory.description.base_bytes = 8192;
    memory.description.offset = 4096;
    memory.description.size = 4096;
    strcpy(memory.reason, "why");
    memory.keys.count = 1;
    strcpy(memory.keys.at[0].transport, "ofi");
    memory.keys.at[0].key.length = 8;
    const size_t bytes = weiri_handle_write(&memory, raw + 1);
    fake_bootstrap_close(comm.bootstrap);
    fuzz_seed(raw, 1 + bytes);
    /* As read by build: mask, rank, id, share, kind, base, base_bytes, offset, size, bytes, reason, keys. */
    static const uint8_t fields[] = { 1, 0, 0,   1,   5,   1, 0, 0x8c, 0,   0x8d, 0, 0x8c, 0, 0x8c,
                                      0, 0, 'w', 'h', 'y', 0, 1, 'o',  'f', 'i',  0, 2,    7, 8 };
    static const uint8_t longer[] = { 1, 16, 0, 1, 5, 1, 0, 0, 0x8d, 0, 0, 0x8d, 0, 1, 7, 0, 9, 9 };
    fuzz_seed(fields, sizeof fields);
    FUZZ_CHECK(accepted == 2);
    fuzz_seed(longer, sizeof longer);
}
