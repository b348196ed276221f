/* fuzz.h - shared by the fuzz targets.
 *
 * A target is one file NAME_fuzz.c with fuzz_one, which parses an input with a fuzz_input, and fuzz_seeds, which writes
 * the first inputs. The program makes these, so they follow the formats. libFuzzer runs weir-fuzz-NAME; `weir-fuzz-NAME
 * --seeds=FOLDER` writes the seeds and ends.
 *
 * A target also checks conditions: a failed FUZZ_CHECK ends the program, and libFuzzer keeps the input. After each
 * input fuzz.c checks that every allocation of weir is freed and that every descriptor is closed. */
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
/* A number: small, or near the ends of its range, with equal probability. */
uint64_t fuzz_number(fuzz_input *in);
/* Returns at most `most` bytes of the input; *bytes gets their number. */
const uint8_t *fuzz_bytes(fuzz_input *in, size_t most, size_t *bytes);
/* Reads at most capacity - 1 characters; a NUL in the input ends the text. */
void fuzz_text(fuzz_input *in, char *text, size_t capacity);
bool fuzz_end(const fuzz_input *in);

void fuzz_one(fuzz_input *in);
void fuzz_seeds(void);
/* For fuzz_seeds: adds a seed and runs it once, so fuzz_seeds can check that the seed still reaches its goal after
 * changes of formats. */
void fuzz_seed(const void *data, size_t size);

/* Checks that `status` is WEIR_OK or an error with a text. */
void fuzz_check_status(weir_status status);

void fuzz_fail(const char *file, int line, const char *text) __attribute__((noreturn));
#define FUZZ_CHECK(condition) ((condition) ? (void)0 : fuzz_fail(__FILE__, __LINE__, #condition))

#endif
