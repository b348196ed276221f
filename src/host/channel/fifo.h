/* fifo.h - the fifo as proxies see it. */
#ifndef WEIRI_CHANNEL_FIFO_H
#define WEIRI_CHANNEL_FIFO_H

#include "src/host/comm/comm.h"
#include "weir/device/fifo.h"
#include "weir/fifo.h"

/* One block of host memory holds the count of completed requests and the slots. The pushers' counts are in the same
 * block if they are host threads, otherwise in a cell of device memory. */
struct weir_fifo {
    weir_comm *comm;
    weir_fifo_end end;
    weiri_block *block;
    uint64_t cell;        /* offset of the cell in device memory */
    weir_dev_fifo device; /* handle for pushers */
    uint64_t *tail;
    const uint64_t *slots;
    uint32_t count;
    uint32_t empty; /* polls since the last check of the communicator */
    uint64_t next;  /* position of the next request to take */
};

/* Takes the next request and sets *ticket to its ticket; false if there is none. */
bool weiri_fifo_take(weir_fifo *fifo, weir_request *request, uint64_t *ticket);
/* True if no slot holds a request that was not taken. A slot behind one that is still being written counts too. */
bool weiri_fifo_is_empty(const weir_fifo *fifo);

#endif
