/* port_try_kernels.h - a kernel that makes one push, which a handler of the proxy turns into transfers; for
 * port_try_test.cc. */
#ifndef WEIRT_PORT_TRY_KERNELS_H
#define WEIRT_PORT_TRY_KERNELS_H

#include "weir/device/kernel.h"
#include "weir/device/port_channel.h"

#if defined(__cplusplus)
extern "C" {
#endif

#define PORT_TRY_RANKS 3u
#define PORT_TRY_WORDS 96u /* 8-byte words that each rank sends to each other rank in a round */

/* The memory of a rank, in words: data to send, then received data for each of two rounds and each rank. */
#define PORT_TRY_SENT 0u
#define PORT_TRY_CAME(round, from) ((1u + ((round) % 2u) * PORT_TRY_RANKS + (from)) * PORT_TRY_WORDS)
#define PORT_TRY_MEMORY ((1u + 2u * PORT_TRY_RANKS) * PORT_TRY_WORDS)

typedef struct port_try_report {
    int32_t status;
    uint32_t rounds;
    uint64_t wrong;
} port_try_report;

/* In each round one thread writes new words and pushes one request, which completes when the words were sent to all
 * ranks. Then it waits for the words of the others. */
typedef struct port_try_args {
    weir_dev_proxy_channel push;
    weir_dev_port_channel ports[PORT_TRY_RANKS]; /* except for this rank */
    port_try_report *report;
    uint64_t *memory;
    uint32_t rank;
    uint32_t rounds;
} port_try_args;

WEIR_FN uint64_t port_try_word(uint32_t rank, uint32_t round, uint32_t i)
{
    return ((uint64_t)rank << 48 | (uint64_t)round << 24 | i) * 0x9e3779b97f4a7c15u;
}

const weir_kernel *port_try_kernel(void);

#if defined(__cplusplus)
}
#endif

#endif
