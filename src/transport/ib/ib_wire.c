/* ib_wire.c - keys and addresses as bytes. Each begins with the version of its form. */
#include "src/transport/ib/ib_wire.h"

#include <string.h>

#include "src/host/base/error.h"
#include "src/host/base/wire.h"

#define KEY_VERSION 1
#define ADDRESS_VERSION 1
#define NUMBER_MAX 0xffffffu /* of queue pairs and packets */
#define FLAG_FLUSH 1u
#define FLAG_ETHERNET 1u
#define MTU_MAX 5

void weiri_ib_key_write(const weiri_ib_key *key, uint64_t size, weiri_key *out)
{
    weiri_writer w = weiri_writer_init(out->bytes, sizeof out->bytes);
    weiri_write_u8(&w, KEY_VERSION);
    weiri_write_u8(&w, key->flush ? FLAG_FLUSH : 0);
    weiri_write_u32(&w, key->rkey);
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
    weiri_ib_key read = { .flush = (flags & FLAG_FLUSH) != 0 };
    read.rkey = weiri_read_u32(&r);
    read.address = weiri_read_u64(&r);
    if (!weiri_reader_done(&r) || version != KEY_VERSION || flags > FLAG_FLUSH ||
        read.address > UINT64_MAX - key->size) {
        return weiri_fail(WEIR_ERR_CORRUPT, "ib: key of a peer's memory is malformed");
    }
    *out = read;
    return WEIR_OK;
}

uint32_t weiri_ib_address_write(const weiri_ib_address *address, uint8_t bytes[WEIRI_ADDRESS_MAX])
{
    weiri_writer w = weiri_writer_init(bytes, WEIRI_ADDRESS_MAX);
    weiri_write_u8(&w, ADDRESS_VERSION);
    weiri_write_u8(&w, address->ethernet ? FLAG_ETHERNET : 0);
    weiri_write_u8(&w, address->mtu);
    weiri_write_u8(&w, address->reads);
    weiri_write_u8(&w, address->port);
    weiri_write_u16(&w, address->lid);
    weiri_write_u32(&w, address->qpn);
    weiri_write_u32(&w, address->psn);
    weiri_write_bytes(&w, address->gid, sizeof address->gid);
    return (uint32_t)w.size;
}

weir_status weiri_ib_address_read(const uint8_t *bytes, size_t size, weiri_ib_address *out)
{
    weiri_reader r = weiri_reader_init(bytes, size);
    uint8_t version = weiri_read_u8(&r), flags = weiri_read_u8(&r);
    weiri_ib_address read = { .ethernet = (flags & FLAG_ETHERNET) != 0 };
    read.mtu = weiri_read_u8(&r);
    read.reads = weiri_read_u8(&r);
    read.port = weiri_read_u8(&r);
    read.lid = weiri_read_u16(&r);
    read.qpn = weiri_read_u32(&r);
    read.psn = weiri_read_u32(&r);
    weiri_read_bytes(&r, read.gid, sizeof read.gid);
    if (!weiri_reader_done(&r) || version != ADDRESS_VERSION || flags > FLAG_ETHERNET || read.mtu < 1 ||
        read.mtu > MTU_MAX || read.reads == 0 || read.port == 0 || read.qpn == 0 || read.qpn > NUMBER_MAX ||
        read.psn > NUMBER_MAX) {
        return weiri_fail(WEIR_ERR_CORRUPT, "ib: address of a peer's queue is malformed");
    }
    *out = read;
    return WEIR_OK;
}
