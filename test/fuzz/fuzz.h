/* fuzz.h - what the fuzz targets share.
 *
 * A target is one file NAME_fuzz.c with fuzz_one, which takes an input apart with a fuzz_input, and fuzz_seeds, which
 * writes the inputs to begin with: they are made by the program, so that they follow the formats. libFuzzer runs
 * weir-fuzz-NAME; `weir-fuzz-NAME --seeds=FOLDER` writes the seeds and ends.
 *
 * A target asserts more than that nothing crashes: FUZZ_CHECK ends the program, and libFuzzer keeps the input. After
 * each input fuzz.c checks that every allocation of weir is freed and that every descriptor is closed. */
#ifndef WEIR_FUZZ_H
#define WEIR_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/weir.h"

typedef struct fuzz_input {
    const uint8_t *data;
    size_t size;
    size_t at;
} fuzz_input;

/* All return 0, or fewer bytes, once the input is at its end. */
uint8_t fuzz_u8(fuzz_input *in);
uint16_t fuzz_u16(fuzz_input *in);
uint32_t fuzz_u32(fuzz_input *in);
uint64_t fuzz_u64(fuzz_input *in);
/* A number as often small as at the ends of its range. */
uint64_t fuzz_number(fuzz_input *in);
/* At most `most` bytes: where they are, how many there are in *bytes. */
const uint8_t *fuzz_bytes(fuzz_input *in, size_t most, size_t *bytes);
/* At most capacity - 1 characters, without a NUL; a NUL of the input ends them. */
void fuzz_text(fuzz_input *in, char *text, size_t capacity);
bool fuzz_end(const fuzz_input *in);

void fuzz_one(fuzz_input *in);
void fuzz_seeds(void);
/* For fuzz_seeds: one more file, which is run once, so that fuzz_seeds can check that seeds still get as far as they
 * should: formats change. */
void fuzz_seed(const void *data, size_t size);

/* `status` is WEIR_OK or an error that has a text. */
void fuzz_check_status(weir_status status);

void fuzz_fail(const char *file, int line, const char *text) __attribute__((noreturn));
#define FUZZ_CHECK(condition) ((condition) ? (void)0 : fuzz_fail(__FILE__, __LINE__, #condition))

#endif
