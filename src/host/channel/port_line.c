/* port_line.c - kernels of a port channel that post by themselves; see port_line.h.
 *
 * Open asks the transport's engine for its view of the queue. If it has none, or WEIR_PORT_ENGINE asks for the proxy,
 * requests of kernels go through the proxy, and a log line says why; with device-only the channel fails instead. If it
 * has one, the line gets two cells: the kernels' state of the queue in device memory, and a board in host memory. Fill
 * writes view, cells and the first memories into the handle. Through the board the host passes the table of attached
 * memories to kernels, and kernels pass a request that they refused to the host. */
#include "src/host/channel/port_line.h"

#include <stdio.h>
#include <string.h>

#include "src/host/base/error.h"
#include "src/host/base/log.h"

#define FIRST_ROOM 32u /* memories in the first table; each further table holds twice the number */

static weir_comm *comm_of(const weiri_port_line *line) { return line->semaphore->connection->comm; }

static const weiri_engine_ops *engine_of(const weiri_port_line *line)
{
    return line->semaphore->connection->transport->queue->engine;
}

/* ---- open and close ----------------------------------------------------------------------------------------- */

static weir_status find_view(weiri_port_line *line)
{
    const weiri_transport_ops *transport = line->semaphore->connection->transport;
    return transport->queue->engine != NULL
               ? transport->queue->engine->view(line->queue, &line->view)
               : weiri_fail(WEIR_ERR_UNSUPPORTED, "transport %s has no queues that kernels post to", transport->name);
}

static weir_status allocate_cells(weiri_port_line *line)
{
    weir_comm *comm = comm_of(line);
    weir_status status = weiri_cells_allocate(comm, &comm->slabs.device, 1, &line->state_cell);
    if (status != WEIR_OK) {
        return status;
    }
    line->has_state = true;
    status = weiri_cells_allocate(comm, &comm->slabs.host, 1, &line->board_cell);
    if (status != WEIR_OK) {
        return status;
    }
    line->has_board = true;
    line->board = (weir_dev_port_board *)weiri_slab_host(comm->slabs.host.memory, line->board_cell);
    return WEIR_OK;
}

weir_status weiri_port_line_open(weiri_port_line *line, const weir_semaphore *semaphore, weiri_queue *queue)
{
    weir_comm *comm = semaphore->connection->comm;
    const uint32_t peer = semaphore->connection->peer;
    weiri_env env;
    weir_status status = weiri_env_read(&env);
    if (status != WEIR_OK || semaphore->end != WEIR_SEMAPHORE_DEVICE) {
        return status;
    }
    if (weiri_env_engine(&env) == WEIRI_ENGINE_PROXY) {
        if (weiri_comm_logs_first(comm, peer, WEIRI_LOGGED_PROXY)) {
            weiri_log(WEIR_LOG_INFO,
                      "port channel of rank %u to rank %u: kernels' requests go through the proxy: "
                      "WEIR_PORT_ENGINE asks for no other engine",
                      comm->rank, peer);
        }
        return WEIR_OK;
    }
    line->semaphore = semaphore;
    line->queue = queue;
    status = find_view(line);
    if (status == WEIR_ERR_UNSUPPORTED && weiri_env_engine(&env) == WEIRI_ENGINE_DEVICE) {
        snprintf(line->missing, sizeof line->missing, "%s", weir_last_error());
        if (weiri_comm_logs_first(comm, peer, WEIRI_LOGGED_FALLBACK)) {
            weiri_log(WEIR_LOG_INFO, "port channel of rank %u to rank %u: kernels' requests go through the proxy: %s",
                      comm->rank, peer, line->missing);
        }
        return WEIR_OK;
    }
    if (status != WEIR_OK) {
        return weiri_fail(status,
                          "port channel to rank %u: kernels cannot post, and WEIR_PORT_ENGINE is device-only: %s", peer,
                          weir_last_error());
    }
    status = allocate_cells(line);
    line->open = status == WEIR_OK;
    if (line->open && weiri_comm_logs_first(comm, peer, WEIRI_LOGGED_KERNELS)) {
        weiri_log(WEIR_LOG_INFO, "port channel of rank %u to rank %u: kernels post their transfers by themselves",
                  comm->rank, peer);
    }
    return status;
}

void weiri_port_line_close(weiri_port_line *line)
{
    while (line->table_count != 0) {
        weiri_block_release(line->tables[--line->table_count]);
    }
    if (line->has_state) {
        weiri_cells_free(comm_of(line), &comm_of(line)->slabs.device, 1, line->state_cell);
    }
    if (line->has_board) {
        weiri_cells_free(comm_of(line), &comm_of(line)->slabs.host, 1, line->board_cell);
    }
}

/* ---- memories ----------------------------------------------------------------------------------------------- */

weir_dev_port_memory weiri_port_line_describe(const weiri_port_line *line, const weiri_port_memory *memory)
{
    weir_dev_port_memory out = { .bytes = memory->size };
    if (memory->region != NULL) {
        const weir_dev_rdma_memory here = engine_of(line)->local(line->queue, memory->region);
        out.local = here.address;
        out.lkey = here.key;
        out.kinds |= WEIR_PORT_MEMORY_LOCAL;
    }
    if (memory->remote != NULL) {
        bool settle, adds;
        const weir_dev_rdma_memory there = engine_of(line)->remote(line->queue, memory->remote, &settle, &adds);
        out.remote = there.address;
        out.rkey = there.key;
        out.kinds |=
            WEIR_PORT_MEMORY_REMOTE | (settle ? WEIR_PORT_MEMORY_SETTLE : 0) | (adds ? WEIR_PORT_MEMORY_ADDS : 0);
    }
    return out;
}

void weiri_port_line_fill(const weiri_port_line *line, const weiri_remote *token, const weiri_port_memory *remote,
                          const weiri_port_memory *local, weir_dev_port_channel *device)
{
    const weir_comm *comm = comm_of(line);
    weir_dev_port_rdma *rdma = &device->rdma;
    bool settle, adds;
    rdma->queue = line->view;
    rdma->queue.control = comm->slabs.control_device;
    rdma->queue.state = (weir_dev_rdma_state *)weiri_slab_device(comm->slabs.device.memory, line->state_cell);
    rdma->board = (weir_dev_port_board *)weiri_slab_device(comm->slabs.host.memory, line->board_cell);
    rdma->remote = weiri_port_line_describe(line, remote);
    rdma->local = weiri_port_line_describe(line, local);
    rdma->token = engine_of(line)->remote(line->queue, token, &settle, &adds);
    rdma->token.address += line->semaphore->peer_cell;
    rdma->scratch = engine_of(line)->scratch(line->queue);
    device->engine = WEIR_PORT_BY_DEVICE;
}

/* Makes room for `count` memories in the last table. */
static weir_status grow(weiri_port_line *line, uint64_t count)
{
    const uint64_t room = line->table_count == 0 ? 0 : (uint64_t)FIRST_ROOM << (line->table_count - 1);
    weiri_block *made;
    if (count <= room) {
        return WEIR_OK;
    }
    if (line->table_count == WEIRI_PORT_TABLES_MAX) {
        return weiri_fail(WEIR_ERR_LIMIT, "weir_port_channel_attach: kernels know at most %llu memories of a channel",
                          (unsigned long long)room);
    }
    const uint64_t bytes = ((uint64_t)FIRST_ROOM << line->table_count) * sizeof(weir_dev_port_memory);
    weir_status status = weiri_device_allocate(comm_of(line)->device, WEIR_MEMORY_HOST, bytes, &made);
    if (status != WEIR_OK) {
        return status;
    }
    if (room != 0) {
        memcpy(made->host_pointer, line->tables[line->table_count - 1]->host_pointer,
               (size_t)room * sizeof(weir_dev_port_memory));
    }
    line->tables[line->table_count++] = made;
    return WEIR_OK;
}

weir_status weiri_port_line_add(weiri_port_line *line, uint32_t id, const weiri_port_memory *memory)
{
    const uint64_t index = id - WEIR_PORT_LOCAL - 1;
    weir_status status = grow(line, index + 1);
    if (status == WEIR_OK) {
        const weiri_block *table = line->tables[line->table_count - 1];
        ((weir_dev_port_memory *)table->host_pointer)[index] = weiri_port_line_describe(line, memory);
        __atomic_store_n(&line->board->memories, (uint64_t)(uintptr_t)table->pointer, __ATOMIC_RELEASE);
        __atomic_store_n(&line->board->count, index + 1, __ATOMIC_RELEASE);
    }
    return status;
}

bool weiri_port_line_refused(const weiri_port_line *line, weir_request *out)
{
    const uint64_t *words = line->board->request;
    if (__atomic_load_n(&line->board->refused, __ATOMIC_ACQUIRE) == 0) {
        return false;
    }
    *out = (weir_request){
        .remote_offset = words[0],
        .local_offset = words[1],
        .bytes = words[2],
        .remote = (uint32_t)words[3],
        .local = (uint32_t)(words[3] >> 32),
        .type = (uint16_t)words[4],
    };
    return true;
}
