/* wire.c - keys and addresses as bytes. Each begins with the version of its format. */
#include "src/transport/ib/wire.h"

#include <string.h>

#include "src/host/base/error.h"
#include "src/host/base/wire.h"

#define KEY_VERSION 2
#define ADDRESS_VERSION 3
#define NUMBER_MAX 0xffffffu /* maximum of queue pair and packet numbers */
#define FLAG_FLUSH 1u
#define FLAG_ATOMIC 2u
#define FLAG_ETHERNET 1u
#define MTU_MAX 5

void weiri_ib_key_write(const weiri_ib_key *key, uint64_t size, weiri_key *out)
{
    weiri_writer w = weiri_writer_init(out->bytes, sizeof out->bytes);
    weiri_write_u8(&w, KEY_VERSION);
    weiri_write_u8(&w, (uint8_t)((key->flush ? FLAG_FLUSH : 0) | (key->atomic ? FLAG_ATOMIC : 0)));
    weiri_write_u8(&w, key->nics);
    for (uint32_t i = 0; i < key->nics; i++) {
        weiri_write_u32(&w, key->rkeys[i]);
    }
    weiri_write_u64(&w, key->address);
    out->length = (uint32_t)w.size;
    out->size = size;
}

weir_status weiri_ib_key_read(const weiri_key *key, weiri_ib_key *out)
{
    if (key->length > sizeof key->bytes) {
        return weiri_fail(WEIR_ERR_CORRUPT, "ib: key of %u bytes", key->length);
    }
    weiri_reader r = weiri_reader_init(key->bytes, key->length);
    uint8_t version = weiri_read_u8(&r), flags = weiri_read_u8(&r);
    weiri_ib_key read = { .flush = (flags & FLAG_FLUSH) != 0, .atomic = (flags & FLAG_ATOMIC) != 0 };
    read.nics = weiri_read_u8(&r);
    for (uint32_t i = 0; i < read.nics && i < WEIRI_IB_NICS_MAX; i++) {
        read.rkeys[i] = weiri_read_u32(&r);
    }
    read.address = weiri_read_u64(&r);
    if (!weiri_reader_done(&r) || version != KEY_VERSION || flags > (FLAG_FLUSH | FLAG_ATOMIC) || read.nics == 0 ||
        read.nics > WEIRI_IB_NICS_MAX || read.address > UINT64_MAX - key->size) {
        return weiri_fail(WEIR_ERR_CORRUPT, "ib: key of a peer's memory is malformed");
    }
    *out = read;
    return WEIR_OK;
}

static void write_pair(weiri_writer *w, const weiri_ib_address *pair)
{
    weiri_write_u8(w, pair->ethernet ? FLAG_ETHERNET : 0);
    weiri_write_u8(w, pair->mtu);
    weiri_write_u8(w, pair->reads);
    weiri_write_u8(w, pair->port);
    weiri_write_u8(w, pair->nic);
    weiri_write_u16(w, pair->lid);
    weiri_write_u32(w, pair->qpn);
    weiri_write_u32(w, pair->psn);
    weiri_write_bytes(w, pair->gid, sizeof pair->gid);
}

uint32_t weiri_ib_address_write(const weiri_ib_queue_address *address, uint8_t bytes[WEIRI_ADDRESS_MAX])
{
    const bool engine = address->engine.qpn != 0;
    weiri_writer w = weiri_writer_init(bytes, WEIRI_ADDRESS_MAX);
    weiri_write_u8(&w, ADDRESS_VERSION);
    weiri_write_u8(&w, (uint8_t)address->count);
    weiri_write_u8(&w, engine);
    for (uint32_t i = 0; i < address->count; i++) {
        write_pair(&w, &address->pairs[i]);
    }
    if (engine) {
        write_pair(&w, &address->engine);
    }
    return (uint32_t)w.size;
}

/* Reads the format of write_pair; false if malformed. */
static bool read_pair(weiri_reader *r, weiri_ib_address *out)
{
    uint8_t flags = weiri_read_u8(r);
    out->ethernet = (flags & FLAG_ETHERNET) != 0;
    out->mtu = weiri_read_u8(r);
    out->reads = weiri_read_u8(r);
    out->port = weiri_read_u8(r);
    out->nic = weiri_read_u8(r);
    out->lid = weiri_read_u16(r);
    out->qpn = weiri_read_u32(r);
    out->psn = weiri_read_u32(r);
    weiri_read_bytes(r, out->gid, sizeof out->gid);
    return flags <= FLAG_ETHERNET && out->mtu >= 1 && out->mtu <= MTU_MAX && out->reads != 0 && out->port != 0 &&
           out->nic < WEIRI_IB_NICS_MAX && out->qpn != 0 && out->qpn <= NUMBER_MAX && out->psn <= NUMBER_MAX;
}

weir_status weiri_ib_address_read(const uint8_t *bytes, size_t size, weiri_ib_queue_address *out)
{
    weiri_ib_queue_address read = { .count = 0 };
    weiri_reader r = weiri_reader_init(bytes, size);
    const uint8_t version = weiri_read_u8(&r);
    const uint8_t count = weiri_read_u8(&r);
    const uint8_t engine = weiri_read_u8(&r);
    bool good = version == ADDRESS_VERSION && count >= 1 && count <= WEIRI_IB_PAIRS_MAX && engine <= 1;
    for (uint32_t i = 0; i < count && good; i++) {
        good = read_pair(&r, &read.pairs[i]);
    }
    if (good && engine != 0) {
        good = read_pair(&r, &read.engine);
    }
    if (!good || !weiri_reader_done(&r)) {
        return weiri_fail(WEIR_ERR_CORRUPT, "ib: address of a peer's queue is malformed");
    }
    read.count = count;
    *out = read;
    return WEIR_OK;
}
