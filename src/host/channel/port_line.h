/* port_line.h - what belongs to a port channel whose kernels post to the NIC by themselves.
 *
 * They do so to a line of the channel's queue (weiri_engine_ops). Memories they know from the handle and, those that
 * are attached, from a table in host memory; it grows by being copied, and the old one stays, since a kernel may be
 * reading it. */
#ifndef WEIRI_CHANNEL_PORT_LINE_H
#define WEIRI_CHANNEL_PORT_LINE_H

#include "src/host/channel/port_channel.h"
#include "src/host/comm/semaphore.h"

#define WEIRI_PORT_TABLES_MAX 20

/* A memory of the channel: one of this rank has a region, one of the peer a remote; one that is both, as with a peer
 * that is this rank itself, has both. */
typedef struct weiri_port_memory {
    weir_memory *memory; /* NULL: the id is not valid */
    const weiri_region *region;
    weiri_remote *remote;
    uint64_t size;
} weiri_port_memory;

/* Begins as zeroes. */
typedef struct weiri_port_line {
    const weir_semaphore *semaphore; /* NULL until it is opened */
    weiri_queue *queue;
    bool open;
    bool has_state, has_board;
    uint64_t state_cell; /* in the device's slab, */
    uint64_t board_cell; /* and in the host's */
    weir_dev_port_board *board;
    weir_dev_rdma view;
    weiri_block *tables[WEIRI_PORT_TABLES_MAX];
    uint32_t table_count;
    char missing[320]; /* why it is not open though it was asked for */
} weiri_port_line;

/* What WEIR_PORT_ENGINE asks for; it is not open where it need not, or need not be possible. The rest is for one that
 * is. */
weir_status weiri_port_line_open(weiri_port_line *line, const weir_semaphore *semaphore, weiri_queue *queue);
/* Any line; when the queue is closed. */
void weiri_port_line_close(weiri_port_line *line);
/* What the handle has of it; `token` is the peer's memory of semaphores. */
void weiri_port_line_fill(const weiri_port_line *line, const weiri_remote *token, const weiri_port_memory *remote,
                          const weiri_port_memory *local, weir_dev_port_channel *device);
/* Lets kernels know of a memory that was attached. One thread at a time. */
weir_status weiri_port_line_add(weiri_port_line *line, uint32_t id, const weiri_port_memory *memory);
/* Whether kernels were refused a request, and the first such; its value is not told. */
bool weiri_port_line_refused(const weiri_port_line *line, weir_request *out);

#endif
