/* port_line.h - the part of a port channel whose kernels post to the NIC by themselves.
 *
 * Kernels post to a line of the channel's queue (weiri_engine_ops). The handle has the first memories. A table in host
 * memory has those that are attached. A full table is copied to a larger one, and the old one stays, because a kernel
 * may be reading it. */
#ifndef WEIRI_CHANNEL_PORT_LINE_H
#define WEIRI_CHANNEL_PORT_LINE_H

#include "src/host/channel/port_channel.h"
#include "src/host/comm/semaphore.h"

#define WEIRI_PORT_TABLES_MAX 20

/* A memory of the channel. Memory of this rank has a region, memory of the peer a remote. If the peer is this rank
 * itself, a memory may have both. */
typedef struct weiri_port_memory {
    weir_memory *memory; /* NULL: the id is not valid */
    const weiri_region *region;
    weiri_remote *remote;
    uint64_t size;
} weiri_port_memory;

/* The caller zeroes it before open. */
typedef struct weiri_port_line {
    const weir_semaphore *semaphore; /* NULL until it is opened */
    weiri_queue *queue;
    bool open;
    bool has_state, has_board;
    uint64_t state_cell; /* offset of the cell in the device's slab, */
    uint64_t board_cell; /* and of the cell in the host's slab */
    weir_dev_port_board *board;
    weir_dev_rdma view;
    weiri_block *tables[WEIRI_PORT_TABLES_MAX];
    uint32_t table_count;
    char missing[320]; /* why the line is not open, although WEIR_PORT_ENGINE asked for it */
} weiri_port_line;

/* Opens the line if WEIR_PORT_ENGINE asks for it and the transport can. A line that could not be opened is no error
 * unless WEIR_PORT_ENGINE is device-only. The functions below need an open line. */
weir_status weiri_port_line_open(weiri_port_line *line, const weir_semaphore *semaphore, weiri_queue *queue);
/* Also closes a line that is not open. The queue must be closed before. */
void weiri_port_line_close(weiri_port_line *line);
/* Fills the line's part of the handle; `token` is the peer's memory of semaphores. */
void weiri_port_line_fill(const weiri_port_line *line, const weiri_remote *token, const weiri_port_memory *remote,
                          const weiri_port_memory *local, weir_dev_port_channel *device);
/* Describes a memory for kernels. */
weir_dev_port_memory weiri_port_line_describe(const weiri_port_line *line, const weiri_port_memory *memory);
/* Adds an attached memory to the table of kernels. One thread at a time. */
weir_status weiri_port_line_add(weiri_port_line *line, uint32_t id, const weiri_port_memory *memory);
/* True if a kernel's request was refused; *out is the first such request, without its value. */
bool weiri_port_line_refused(const weiri_port_line *line, weir_request *out);

#endif
