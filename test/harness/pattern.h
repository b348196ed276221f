/* pattern.h - data whose bytes depend on sender, iteration and position, for kernels and for the host. It is written
 * and compared in words of 8 bytes: by bytes, patterns took a quarter of the CPU time of tests that move data. */
#ifndef WEIRT_PATTERN_H
#define WEIRT_PATTERN_H

#include <string.h>

#include "weir/device/coop.h"

WEIR_FN uint64_t weirt_pattern_seed(uint32_t rank, uint64_t iteration)
{
    return iteration * 0xc2b2ae3d27d4eb4fu + rank * 0x165667b19e3779f9u;
}

/* The bytes at positions 8 * word to 8 * word + 7. */
WEIR_FN uint64_t weirt_pattern_word(uint64_t seed, uint64_t word)
{
    uint64_t mixed = (word + 1) * 0x9e3779b97f4a7c15u + seed;
    mixed = (mixed ^ mixed >> 32) * 0xd6e8feb86659fd93u;
    return mixed ^ mixed >> 32;
}

/* The byte at `position` of the data that `rank` sends in an iteration. */
WEIR_FN char weirt_pattern(uint32_t rank, uint64_t iteration, uint64_t position)
{
    return (char)(weirt_pattern_word(weirt_pattern_seed(rank, iteration), position / 8) >> position % 8 * 8);
}

/* Writes the first `bytes` bytes of a word, at most 8. */
WEIR_FN void weirt_word_store(char *to, uint64_t bytes, uint64_t word)
{
    if (bytes >= sizeof word) {
        memcpy(to, &word, sizeof word);
        return;
    }
    for (uint64_t i = 0; i < bytes; i++) {
        to[i] = (char)(word >> 8 * i);
    }
}

/* The bits in which the first `bytes` bytes there, at most 8, differ from those of a word. */
WEIR_FN uint64_t weirt_word_differs(const char *from, uint64_t bytes, uint64_t word)
{
    uint64_t have = 0;
    if (bytes >= sizeof have) {
        memcpy(&have, from, sizeof have);
        return have ^ word;
    }
    for (uint64_t i = 0; i < bytes; i++) {
        have |= (uint64_t)(uint8_t)from[i] << 8 * i;
    }
    return have ^ (word & (((uint64_t)1 << 8 * bytes) - 1));
}

/* The place in a word of the first of its bytes that is not 0. */
WEIR_FN uint32_t weirt_first_byte(uint64_t word)
{
    uint32_t at = 0;
    while ((word >> 8 * at & 0xff) == 0) {
        at++;
    }
    return at;
}

/* The threads of `team` write the pattern, or with `flip` of all ones its complement. */
WEIR_FN void weirt_pattern_fill(char *to, uint64_t bytes, uint64_t seed, uint64_t flip, weir_coop team)
{
    for (uint64_t i = 8 * (uint64_t)team.rank; i < bytes; i += 8 * (uint64_t)team.size) {
        weirt_word_store(to + i, bytes - i, weirt_pattern_word(seed, i / 8) ^ flip);
    }
}

/* This thread of `team` compares its words with the pattern. Returns the position of its first wrong byte, or `bytes`
 * if all are right. */
WEIR_FN uint64_t weirt_pattern_wrong(const char *at, uint64_t bytes, uint64_t seed, weir_coop team)
{
    for (uint64_t i = 8 * (uint64_t)team.rank; i < bytes; i += 8 * (uint64_t)team.size) {
        uint64_t differs = weirt_word_differs(at + i, bytes - i, weirt_pattern_word(seed, i / 8));
        if (differs != 0) {
            return i + weirt_first_byte(differs);
        }
    }
    return bytes;
}

/* The same for bytes that are all equal. */
WEIR_FN void weirt_same_fill(char *to, uint64_t bytes, char value, weir_coop team)
{
    for (uint64_t i = 8 * (uint64_t)team.rank; i < bytes; i += 8 * (uint64_t)team.size) {
        weirt_word_store(to + i, bytes - i, (uint8_t)value * 0x0101010101010101u);
    }
}

WEIR_FN uint64_t weirt_same_wrong(const char *at, uint64_t bytes, char value, weir_coop team)
{
    for (uint64_t i = 8 * (uint64_t)team.rank; i < bytes; i += 8 * (uint64_t)team.size) {
        uint64_t differs = weirt_word_differs(at + i, bytes - i, (uint8_t)value * 0x0101010101010101u);
        if (differs != 0) {
            return i + weirt_first_byte(differs);
        }
    }
    return bytes;
}

#if defined(__cplusplus)
extern "C" {
#endif

/* The same for one thread of the host. These are in C, because tests in C++ are not optimized. */
void weirt_data_fill(char *to, uint64_t bytes, uint32_t rank, uint64_t iteration);
uint64_t weirt_data_wrong(const char *at, uint64_t bytes, uint32_t rank, uint64_t iteration);

#if defined(__cplusplus)
}
#endif

#endif
