/* link.h - the objects of two ranks that move data, and the measurement of one case. */
#ifndef WEIR_PERF_LINK_H
#define WEIR_PERF_LINK_H

#include "tools/perf/cases.h"
#include "tools/perf/common.h"

typedef struct perf_link {
    perf_rank *rank;
    uint64_t region;     /* bytes that a rank sends; the buffer consists of both ranks' regions */
    weir_memory *buffer; /* data to send is at rank * region, received data at peer * region */
    weir_memory *peer_buffer;
    weir_memory *packets; /* two slots, each for the packets of a region */
    weir_memory *peer_packets;
    weir_memory *flags; /* of kernels by hand */
    weir_memory *peer_flags;
    weir_memory *wrong; /* a count */
    weir_connection *connection;
    weir_semaphore *semaphore;
    weir_semaphore *by_hand;
    weir_memory_channel *bulk;
    weir_memory_channel *packet;
    weir_grid_barrier *barrier;
    weir_grid_barrier *raw_barrier;
    uint32_t blocks; /* of launches; 0: of the case */
    uint32_t threads;
    uint64_t seed; /* of the current data; the same on both ranks */
} perf_link;

/* Creates a link for sizes up to `largest` bytes. Both ranks call it together. The caller destroys the link after a
 * failure too. */
weir_status perf_link_create(perf_rank *rank, uint64_t largest, perf_link *link);
/* Call it when both ranks have finished with the link. */
void perf_link_destroy(perf_link *link);

/* Measures a case with `bytes` bytes (0 if it moves no data) and reports its row. Both ranks call it. */
weir_status perf_link_measure(perf_link *link, const perf_case *test, uint64_t bytes);

#endif
