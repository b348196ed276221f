/* fuzz.c - the entry points of libFuzzer, the checks around each input, and the parsing of inputs. */
#include "test/fuzz/fuzz.h"

#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/host/base/alloc.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *seeds_folder;
static unsigned seeds_written;

void fuzz_fail(const char *file, int line, const char *text)
{
    fprintf(stderr, "%s:%d: does not hold: %s; last error: %s\n", file, line, text, weir_last_error());
    abort();
}

void fuzz_seed(const void *data, size_t size)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/seed-%02u", seeds_folder, seeds_written++);
    FILE *file = fopen(path, "wb");
    FUZZ_CHECK(file != NULL);
    FUZZ_CHECK(fwrite(data, 1, size, file) == size);
    FUZZ_CHECK(fclose(file) == 0);
    (void)LLVMFuzzerTestOneInput((const uint8_t *)data, size);
}

static void ignore_log(void *context, weir_log_level level, const char *text)
{
    (void)context;
    (void)level;
    FUZZ_CHECK(text != NULL && text[0] != '\0' && strchr(text, '\n') == NULL);
}

/* Nonces and keys are the same in each run, so inputs are reproducible. */
static uint64_t random_state;

static const char *random_name(void) { return "fuzz"; }

static void random_bytes(void *const data, const size_t size)
{
    for (size_t i = 0; i < size; i++) {
        random_state = random_state * 6364136223846793005u + 1442695040888963407u;
        ((uint8_t *)data)[i] = (uint8_t)(random_state >> 56);
    }
}

static uint32_t random_u32(void)
{
    uint32_t value;
    random_bytes(&value, sizeof value);
    return value;
}

static struct randombytes_implementation fixed_random = { .implementation_name = random_name,
                                                          .random = random_u32,
                                                          .buf = random_bytes };

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)randombytes_set_implementation(&fixed_random);
    weir_log_set_sink(ignore_log, NULL);
    for (int i = 1; i < *argc; i++) {
        if (strncmp((*argv)[i], "--seeds=", 8) == 0) {
            seeds_folder = (*argv)[i] + 8;
            fuzz_seeds();
            exit(0);
        }
    }
    return 0;
}

static unsigned count_descriptors(void)
{
    unsigned count = 0;
    for (int fd = 0; fd < 128; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* Counting descriptors takes longer than many inputs, so it is done for the first inputs (also in a run with one
     * file) and for some later ones. */
    static unsigned runs;
    const bool counts = runs < 4 || runs % 16 == 0;
    const unsigned descriptors = counts ? count_descriptors() : 0;
    const int64_t alive = weiri_alloc_alive();
    fuzz_input in = { data, size, 0 };
    runs++;
    random_state = 1;
    fuzz_one(&in);
    FUZZ_CHECK(weiri_alloc_alive() == alive);
    FUZZ_CHECK(!counts || count_descriptors() == descriptors);
    return 0;
}

const uint8_t *fuzz_bytes(fuzz_input *in, size_t most, size_t *bytes)
{
    const uint8_t *at = in->data + in->at;
    *bytes = in->size - in->at < most ? in->size - in->at : most;
    in->at += *bytes;
    return at;
}

static uint64_t take(fuzz_input *in, size_t most)
{
    size_t bytes;
    const uint8_t *at = fuzz_bytes(in, most, &bytes);
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++) {
        value |= (uint64_t)at[i] << (8 * i);
    }
    return value;
}

uint8_t fuzz_u8(fuzz_input *in) { return (uint8_t)take(in, 1); }

uint16_t fuzz_u16(fuzz_input *in) { return (uint16_t)take(in, 2); }

uint32_t fuzz_u32(fuzz_input *in) { return (uint32_t)take(in, 4); }

uint64_t fuzz_u64(fuzz_input *in) { return take(in, 8); }

uint64_t fuzz_number(fuzz_input *in)
{
    const uint8_t form = fuzz_u8(in);
    switch (form >> 6) {
    case 0:
        return form & 63;
    case 1:
        return (uint64_t)0 - (form & 63);
    case 2:
        return ((uint64_t)1 << (form & 63)) - (fuzz_u8(in) & 3);
    default:
        return fuzz_u64(in);
    }
}

void fuzz_text(fuzz_input *in, char *text, size_t capacity)
{
    size_t i = 0;
    while (i < capacity - 1 && in->at < in->size) {
        const char c = (char)in->data[in->at++];
        if (c == '\0') {
            break;
        }
        text[i++] = c;
    }
    text[i] = '\0';
}

bool fuzz_end(const fuzz_input *in) { return in->at == in->size; }

void fuzz_check_status(weir_status status)
{
    FUZZ_CHECK(status <= WEIR_OK && status > WEIR_STATUS_FIRST_UNUSED);
    FUZZ_CHECK(status == WEIR_OK || weir_last_error()[0] != '\0');
}
