/* port_add_kernels.h - kernels that add to words of the peer; for port_add_test.cc. */
#ifndef WEIRT_PORT_ADD_KERNELS_H
#define WEIRT_PORT_ADD_KERNELS_H

#include "port_kernels.h"

#if defined(__cplusplus)
extern "C" {
#endif

#define PORT_ADD_WORDS 5

/* Each thread makes `adds` adds to words of the peer at offset `at` of its memory, and if `local` the same number to
 * these words of this rank. */
typedef struct port_add_args {
    weir_dev_port_channel channel;
    port_report *report;
    char *words; /* words of this rank */
    uint64_t at;
    uint64_t adds;
    uint32_t rank;
    uint32_t local;
} port_add_args;

/* The word of an add. The values wrap around 64 bits in sum. */
WEIR_FN uint64_t port_add_word(uint32_t thread, uint64_t i) { return (thread * 3 + i) % PORT_ADD_WORDS; }

WEIR_FN uint64_t port_add_value(uint32_t rank, uint32_t thread, uint64_t i)
{
    return (i + 1) * 0x9e3779b97f4a7c15u + thread * 0xc2b2ae3d27d4eb4fu + rank;
}

/* In each round, one thread sends `bytes`, then adds 1 to a word of the peer. When its own word has grown, it checks
 * the received data. */
typedef struct port_count_args {
    weir_dev_port_channel channel;
    port_report *report;
    char *local; /* a word, and at offset 64 two halves: data to send and received data */
    uint64_t half;
    uint64_t bytes;
    uint64_t rounds;
    uint32_t rank;
    uint32_t peer;
} port_count_args;

const weir_kernel *port_add_kernel(void);
const weir_kernel *port_count_kernel(void);

#if defined(__cplusplus)
}
#endif

#endif
