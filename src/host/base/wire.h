/* wire.h - bounded reading and writing of messages: little-endian, length-checked, sticky failure.
 *
 *     weiri_writer w = weiri_writer_init(buffer, sizeof buffer);
 *     weiri_write_u32(&w, kind);
 *     if (w.failed) ...                          one check at the end
 *
 * A read past the end returns zero and sets `failed`; a parser checks `failed`, and that `at == size`, once. */
#ifndef WEIRI_WIRE_H
#define WEIRI_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct weiri_writer {
    uint8_t *data;
    size_t capacity;
    size_t size; /* bytes written so far */
    bool failed;
} weiri_writer;

typedef struct weiri_reader {
    const uint8_t *data;
    size_t size;
    size_t at;
    bool failed;
} weiri_reader;

weiri_writer weiri_writer_init(void *data, size_t capacity);
void weiri_write_u8(weiri_writer *w, uint8_t v);
void weiri_write_u16(weiri_writer *w, uint16_t v);
void weiri_write_u32(weiri_writer *w, uint32_t v);
void weiri_write_u64(weiri_writer *w, uint64_t v);
void weiri_write_bytes(weiri_writer *w, const void *data, size_t bytes);
/* u16 length, then the characters without the NUL; cut at 65,535. */
void weiri_write_string(weiri_writer *w, const char *text);

weiri_reader weiri_reader_init(const void *data, size_t size);
uint8_t weiri_read_u8(weiri_reader *r);
uint16_t weiri_read_u16(weiri_reader *r);
uint32_t weiri_read_u32(weiri_reader *r);
uint64_t weiri_read_u64(weiri_reader *r);
/* Zeroes `data` when it fails. */
void weiri_read_bytes(weiri_reader *r, void *data, size_t bytes);
/* Reads a string into text[capacity], always NUL-terminated. Fails when it does not fit or contains a NUL. */
void weiri_read_string(weiri_reader *r, char *text, size_t capacity);
/* True when everything was read and no read failed. */
bool weiri_reader_done(const weiri_reader *r);

#endif
