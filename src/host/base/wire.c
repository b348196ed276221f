/* wire.c - bounded reading and writing of messages. All accesses go through put and take, which check bounds. */
#include "src/host/base/wire.h"

#include <string.h>

/* Room for `bytes` more bytes, or NULL once the writer has failed. */
static uint8_t *put(weiri_writer *w, size_t bytes)
{
    if (w->failed || bytes > w->capacity - w->size) {
        w->failed = true;
        return NULL;
    }
    uint8_t *at = w->data + w->size;
    w->size += bytes;
    return at;
}

/* The next `bytes` bytes, or NULL once the reader has failed. */
static const uint8_t *take(weiri_reader *r, size_t bytes)
{
    if (r->failed || bytes > r->size - r->at) {
        r->failed = true;
        return NULL;
    }
    const uint8_t *at = r->data + r->at;
    r->at += bytes;
    return at;
}

static void write_int(weiri_writer *w, uint64_t v, size_t bytes)
{
    uint8_t *at = put(w, bytes);
    if (at != NULL) {
        for (size_t i = 0; i < bytes; i++) {
            at[i] = (uint8_t)(v >> (8 * i));
        }
    }
}

static uint64_t read_int(weiri_reader *r, size_t bytes)
{
    const uint8_t *at = take(r, bytes);
    uint64_t v = 0;
    if (at != NULL) {
        for (size_t i = 0; i < bytes; i++) {
            v |= (uint64_t)at[i] << (8 * i);
        }
    }
    return v;
}

weiri_writer weiri_writer_init(void *data, size_t capacity)
{
    weiri_writer w = { (uint8_t *)data, capacity, 0, false };
    return w;
}

void weiri_write_u8(weiri_writer *w, uint8_t v) { write_int(w, v, sizeof v); }

void weiri_write_u16(weiri_writer *w, uint16_t v) { write_int(w, v, sizeof v); }

void weiri_write_u32(weiri_writer *w, uint32_t v) { write_int(w, v, sizeof v); }

void weiri_write_u64(weiri_writer *w, uint64_t v) { write_int(w, v, sizeof v); }

void weiri_write_bytes(weiri_writer *w, const void *data, size_t bytes)
{
    if (bytes == 0) {
        return;
    }
    uint8_t *at = put(w, bytes);
    if (at != NULL) {
        memcpy(at, data, bytes);
    }
}

void weiri_write_string(weiri_writer *w, const char *text)
{
    size_t length = strnlen(text, UINT16_MAX);
    weiri_write_u16(w, (uint16_t)length);
    weiri_write_bytes(w, text, length);
}

weiri_reader weiri_reader_init(const void *data, size_t size)
{
    weiri_reader r = { (const uint8_t *)data, size, 0, false };
    return r;
}

uint8_t weiri_read_u8(weiri_reader *r) { return (uint8_t)read_int(r, sizeof(uint8_t)); }

uint16_t weiri_read_u16(weiri_reader *r) { return (uint16_t)read_int(r, sizeof(uint16_t)); }

uint32_t weiri_read_u32(weiri_reader *r) { return (uint32_t)read_int(r, sizeof(uint32_t)); }

uint64_t weiri_read_u64(weiri_reader *r) { return read_int(r, sizeof(uint64_t)); }

void weiri_read_bytes(weiri_reader *r, void *data, size_t bytes)
{
    if (bytes == 0) {
        return;
    }
    const uint8_t *at = take(r, bytes);
    if (at != NULL) {
        memcpy(data, at, bytes);
    } else {
        memset(data, 0, bytes);
    }
}

void weiri_read_string(weiri_reader *r, char *text, size_t capacity)
{
    size_t length = weiri_read_u16(r);
    const uint8_t *at = take(r, length);
    if (at == NULL || length >= capacity || (length != 0 && memchr(at, '\0', length) != NULL)) {
        r->failed = true;
        length = 0;
    }
    if (length != 0) {
        memcpy(text, at, length);
    }
    if (capacity != 0) {
        text[length] = '\0';
    }
}

bool weiri_reader_done(const weiri_reader *r) { return !r->failed && r->at == r->size; }
