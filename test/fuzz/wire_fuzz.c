/* wire_fuzz.c - messages written and read by src/host/base/wire.h.
 *
 * The input is a schema (a list of field types) and bytes. The bytes are read by the schema into fields, which are
 * written again. A message has one encoding, so an accepted one must come back byte for byte. After a cut or a failure
 * each later read must fail, and nothing may be read or written beyond the end: both buffers are exact allocations. */
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/wire.h"
#include "test/fuzz/fuzz.h"

#define FIELDS_MAX 24
#define BYTES_MAX 512
#define TEXT_MAX 64

enum { FIELD_U8, FIELD_U16, FIELD_U32, FIELD_U64, FIELD_BYTES, FIELD_STRING, FIELD_KINDS };

typedef struct field {
    uint8_t kind;
    uint8_t capacity; /* of bytes and strings */
    uint64_t value;
    uint8_t bytes[TEXT_MAX];
} field;

static void read_field(weiri_reader *r, field *f)
{
    const size_t before = r->at;
    const bool failed = r->failed;
    switch (f->kind) {
    case FIELD_U8:
        f->value = weiri_read_u8(r);
        break;
    case FIELD_U16:
        f->value = weiri_read_u16(r);
        break;
    case FIELD_U32:
        f->value = weiri_read_u32(r);
        break;
    case FIELD_U64:
        f->value = weiri_read_u64(r);
        break;
    case FIELD_BYTES:
        memset(f->bytes, 0xaa, sizeof f->bytes);
        weiri_read_bytes(r, f->bytes, f->capacity);
        for (size_t i = f->capacity; i < sizeof f->bytes; i++) {
            FUZZ_CHECK(f->bytes[i] == 0xaa);
        }
        break;
    default:
        memset(f->bytes, 0xaa, sizeof f->bytes);
        weiri_read_string(r, (char *)f->bytes, f->capacity);
        FUZZ_CHECK(f->capacity == 0 || memchr(f->bytes, '\0', f->capacity) != NULL);
        for (size_t i = f->capacity; i < sizeof f->bytes; i++) {
            FUZZ_CHECK(f->bytes[i] == 0xaa);
        }
    }
    FUZZ_CHECK(r->at <= r->size && r->at >= before && (!failed || r->failed));
    if (r->failed) {
        FUZZ_CHECK(!weiri_reader_done(r));
        FUZZ_CHECK(f->kind > FIELD_U64 || f->value == 0);
        FUZZ_CHECK(f->kind == FIELD_U64 + 1 || f->kind <= FIELD_U64 || f->capacity == 0 || f->bytes[0] == '\0');
    }
}

static void write_field(weiri_writer *w, const field *f)
{
    const size_t before = w->size;
    const bool failed = w->failed;
    switch (f->kind) {
    case FIELD_U8:
        weiri_write_u8(w, (uint8_t)f->value);
        break;
    case FIELD_U16:
        weiri_write_u16(w, (uint16_t)f->value);
        break;
    case FIELD_U32:
        weiri_write_u32(w, (uint32_t)f->value);
        break;
    case FIELD_U64:
        weiri_write_u64(w, f->value);
        break;
    case FIELD_BYTES:
        weiri_write_bytes(w, f->bytes, f->capacity);
        break;
    default:
        weiri_write_string(w, (const char *)f->bytes);
    }
    FUZZ_CHECK(w->size <= w->capacity && w->size >= before && (!failed || (w->failed && w->size == before)));
}

/* Writes the fields into a buffer that is `less` bytes too short. */
static void write_again(const field *fields, size_t count, const uint8_t *message, size_t size, size_t less)
{
    const size_t capacity = size - less;
    uint8_t *copy = (uint8_t *)weiri_alloc(1, capacity);
    FUZZ_CHECK(copy != NULL);
    weiri_writer w = weiri_writer_init(copy, capacity);
    for (size_t i = 0; i < count; i++) {
        write_field(&w, &fields[i]);
    }
    FUZZ_CHECK(w.failed == (less != 0));
    FUZZ_CHECK(w.failed || (w.size == size && memcmp(copy, message, size) == 0));
    weiri_free(copy);
}

void fuzz_one(fuzz_input *in)
{
    field fields[FIELDS_MAX];
    memset(fields, 0, sizeof fields);
    const size_t count = fuzz_u8(in) % (FIELDS_MAX + 1);
    for (size_t i = 0; i < count; i++) {
        fields[i].kind = fuzz_u8(in) % FIELD_KINDS;
        fields[i].capacity = fields[i].kind > FIELD_U64 ? fuzz_u8(in) % (TEXT_MAX + 1) : 0;
    }
    const size_t less = fuzz_u8(in);
    size_t size;
    const uint8_t *bytes = fuzz_bytes(in, BYTES_MAX, &size);
    uint8_t *message = (uint8_t *)weiri_alloc(1, size);
    FUZZ_CHECK(message != NULL);
    if (size > 0) {
        memcpy(message, bytes, size);
    }
    weiri_reader r = weiri_reader_init(message, size);
    for (size_t i = 0; i < count; i++) {
        read_field(&r, &fields[i]);
    }
    if (!r.failed) {
        FUZZ_CHECK(weiri_reader_done(&r) == (r.at == size));
        write_again(fields, count, message, r.at, 0);
        if (less != 0 && less <= r.at) {
            write_again(fields, count, message, r.at, less);
        }
    }
    weiri_free(message);
}

void fuzz_seeds(void)
{
    static const uint8_t numbers[] = { 4, FIELD_U8, FIELD_U16, FIELD_U32, FIELD_U64, 1, 1, 2, 2, 4, 4,
                                       4, 4,        8,         8,         8,         8, 8, 8, 8, 8 };
    static const uint8_t strings[] = {
        3, FIELD_STRING, 8, FIELD_BYTES, 3, FIELD_STRING, 64, 2, 3, 0, 'a', 'b', 'c', 9, 9, 9, 0, 0
    };
    static const uint8_t cut[] = { 2, FIELD_STRING, 64, FIELD_U64, 0, 4, 0, 'a', 'b', 'c' };
    fuzz_seed(numbers, sizeof numbers);
    fuzz_seed(strings, sizeof strings);
    fuzz_seed(cut, sizeof cut);
}
