/* queue_kernels.h - kernels that push into fifos and channels of proxies; for fifo_test.cc and proxy_test.cc. */
#ifndef WEIRT_QUEUE_KERNELS_H
#define WEIRT_QUEUE_KERNELS_H

#include "weir/device/kernel.h"
#include "weir/device/port_channel.h"

#if defined(__cplusplus)
extern "C" {
#endif

#define QUEUE_THREADS 1024
#define QUEUE_CHANNELS 4

enum { QUEUE_WAIT_NEVER, QUEUE_WAIT_LAST, QUEUE_WAIT_EACH };

/* Report of the pushing threads, in memory that host and device share. */
typedef struct queue_report {
    uint64_t pushed[QUEUE_THREADS]; /* requests of each thread; separate because a GPU cannot add to host memory */
    uint64_t undone[QUEUE_THREADS]; /* tickets whose test is not WEIR_OK after a successful wait */
    int32_t push[QUEUE_THREADS];    /* the first status other than WEIR_OK; a thread ends with it */
    int32_t wait[QUEUE_THREADS];
    uint64_t elapsed_ns[QUEUE_THREADS]; /* of the failing call */
} queue_report;

/* Each thread pushes `pushes` requests, numbered from `first`, into the fifo or, with channels, into channel thread %
 * channel_count. */
typedef struct queue_args {
    weir_dev_fifo fifo;
    weir_dev_proxy_channel channels[QUEUE_CHANNELS];
    queue_report *report;
    uint64_t first;
    uint64_t pushes;
    uint32_t channel_count;
    uint32_t wait;
    uint32_t tries; /* 1: by try_push */
    uint32_t type;
} queue_args;

WEIR_FN uint64_t queue_mix(uint64_t value)
{
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return value ^ value >> 31;
}

/* Request number `i` of thread `thread`: all bits of all fields depend on both numbers. */
WEIR_FN void queue_request(uint32_t thread, uint64_t i, uint32_t type, weir_request *request)
{
    uint64_t seed = (uint64_t)thread << 40 ^ i;
    request->type = (uint16_t)type;
    request->reserved = 0;
    request->channel = (uint32_t)queue_mix(seed + 1);
    request->remote = (uint32_t)queue_mix(seed + 2);
    request->local = (uint32_t)queue_mix(seed + 3);
    request->remote_offset = queue_mix(seed + 4);
    request->local_offset = queue_mix(seed + 5);
    request->bytes = queue_mix(seed + 6);
    request->value = seed;
}

/* The sum of one kind of counts. */
WEIR_FN uint64_t queue_sum(const uint64_t *counts)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < QUEUE_THREADS; i++) {
        sum += weir_arch_load_relaxed_sys_u64(&counts[i]);
    }
    return sum;
}

const weir_kernel *queue_push_kernel(void);

#if defined(__cplusplus)
}
#endif

#endif
