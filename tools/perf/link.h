/* link.h - all that two ranks hold to move data, and how one case is measured over it. */
#ifndef WEIR_PERF_LINK_H
#define WEIR_PERF_LINK_H

#include "tools/perf/cases.h"
#include "tools/perf/common.h"

typedef struct perf_link {
    perf_rank *rank;
    uint64_t region;     /* bytes of what a rank sends; the regions of both ranks make the buffer */
    weir_memory *buffer; /* a rank's own data lies at rank * region, what it receives at peer * region */
    weir_memory *peer_buffer;
    weir_memory *packets; /* two slots of packets for a region */
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
    uint32_t blocks; /* of launches; 0: as the case has them */
    uint32_t threads;
    uint64_t seed; /* of the current data; the same on both ranks */
} perf_link;

/* For sizes up to `largest`, in bytes. Both ranks call it together; after a failure too it is to be destroyed. */
weir_status perf_link_create(perf_rank *rank, uint64_t largest, perf_link *link);
/* When both ranks have come so far. */
void perf_link_destroy(perf_link *link);

/* Measures a case with so many bytes (0 for one that moves nothing), and reports its row. Both ranks call it. */
weir_status perf_link_measure(perf_link *link, const perf_case *test, uint64_t bytes);

#endif
