/* memory_channel.c - memory channels: checks their memories and packet buffers, and makes handles for kernels. */
#include "weir/memory_channel.h"

#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/comm/comm.h"
#include "src/host/comm/memory.h"
#include "src/host/comm/semaphore.h"

struct weir_memory_channel {
    weir_semaphore *semaphore;
    weir_memory *remote;
    weir_memory *local;
    weir_memory *packets;
    uint64_t cell;
    weir_dev_memory_channel device;
};

static weir_status invalid(const char *what)
{
    return weiri_fail(WEIR_ERR_INVALID, "weir_memory_channel_create: %s", what);
}

static weir_status check(const weir_semaphore *semaphore, const weir_memory *remote, const weir_memory *local,
                         const weir_memory *packets)
{
    const weir_comm *comm = semaphore->connection->comm;
    if (semaphore->connection->transport->map == NULL) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED,
                          "weir_memory_channel_create: transport %s maps no memory; use a port channel",
                          semaphore->connection->transport->name);
    }
    if (remote->block == NULL) {
        return weiri_fail(
            WEIR_ERR_UNSUPPORTED,
            "weir_memory_channel_create: remote, memory of rank %u, is not mapped here; use a port channel",
            remote->rank);
    }
    if (semaphore->end != WEIR_SEMAPHORE_DEVICE) {
        return invalid("the semaphore's end is on the host");
    }
    if (remote->comm != comm || local->comm != comm || (packets != NULL && packets->comm != comm)) {
        return invalid("a memory is of another communicator");
    }
    if (remote->rank != semaphore->connection->peer) {
        return weiri_fail(WEIR_ERR_INVALID,
                          "weir_memory_channel_create: remote is memory of rank %u, the semaphore joins rank %u",
                          remote->rank, semaphore->connection->peer);
    }
    if (local->rank != comm->rank || (packets != NULL && packets->rank != comm->rank)) {
        return invalid("local or packets is not of this rank");
    }
    if (packets != NULL &&
        ((uintptr_t)packets->block->pointer % 16 != 0 || (uintptr_t)remote->block->pointer % 16 != 0)) {
        return invalid("packet buffers are not 16-byte aligned");
    }
    return WEIR_OK;
}

static void fill_device(weir_memory_channel *channel)
{
    const weir_comm *comm = channel->semaphore->connection->comm;
    weir_dev_memory_channel *device = &channel->device;
    device->semaphore = channel->semaphore->device;
    device->remote = (char *)channel->remote->block->pointer;
    device->remote_bytes = channel->remote->block->size;
    device->local = (char *)channel->local->block->pointer;
    device->local_bytes = channel->local->block->size;
    device->lines = channel->semaphore->connection->lines;
    if (channel->packets != NULL) {
        device->packets = (char *)channel->packets->block->pointer;
        device->packets_bytes = channel->packets->block->size;
    }
    device->epochs = (uint64_t *)weiri_slab_device(comm->slabs.device.memory, channel->cell);
}

/* Writes to the channel's cells, one for each semaphore of the set, what a failing kernel needs for its record. */
static weir_status write_cells(const weir_memory_channel *channel)
{
    const weir_comm *comm = channel->semaphore->connection->comm;
    const uint32_t count = channel->semaphore->count;
    char *cells = (char *)weiri_alloc(count, WEIR_CELL_BYTES);
    if (cells == NULL) {
        return weiri_fail_nomem("weir_memory_channel_create");
    }
    for (uint32_t i = 0; i < count; i++) {
        weir_dev_channel_cell *cell = (weir_dev_channel_cell *)(cells + (uint64_t)i * WEIR_CELL_BYTES);
        cell->remote_bytes = channel->device.remote_bytes;
        cell->local_bytes = channel->device.local_bytes;
        cell->packets_bytes = channel->device.packets_bytes;
        cell->peer = channel->semaphore->connection->peer;
    }
    const weir_status status =
        weir_device_copy(comm->device, channel->device.epochs, cells, (uint64_t)count * WEIR_CELL_BYTES);
    weiri_free(cells);
    return status;
}

weir_status weir_memory_channel_create(weir_semaphore *semaphore, weir_memory *remote, weir_memory *local,
                                       const weir_memory_channel_opts *opts, weir_memory_channel **out)
{
    weir_memory_channel_opts options;
    weir_status status = weiri_comm_check("semaphore", semaphore == NULL ? NULL : semaphore->connection->comm,
                                          "weir_memory_channel_create");
    if (status != WEIR_OK) {
        return status;
    }
    if (remote == NULL || local == NULL || out == NULL) {
        return weiri_fail_null("weir_memory_channel_create", remote == NULL  ? "remote"
                                                             : local == NULL ? "local"
                                                                             : "out");
    }
    if (!WEIRI_OPTS_OK(opts)) {
        return invalid(WEIRI_OPTS_ERROR(opts));
    }
    weiri_opts_copy(&options, sizeof options, opts);
    status = check(semaphore, remote, local, options.packets);
    if (status != WEIR_OK) {
        return status;
    }
    weir_memory_channel *channel = (weir_memory_channel *)weiri_alloc(1, sizeof *channel);
    if (channel == NULL) {
        return weiri_fail_nomem("weir_memory_channel_create");
    }
    weir_comm *comm = semaphore->connection->comm;
    status = weiri_semaphore_claim(semaphore, false, "weir_memory_channel_create");
    if (status != WEIR_OK) {
        weiri_free(channel);
        return status;
    }
    status = weiri_cells_allocate(comm, &comm->slabs.device, semaphore->count, &channel->cell);
    if (status != WEIR_OK) {
        weiri_semaphore_unclaim(semaphore, false);
        weiri_free(channel);
        return status;
    }
    channel->semaphore = semaphore;
    channel->remote = remote;
    channel->local = local;
    channel->packets = options.packets;
    weiri_semaphore_get(semaphore);
    weiri_memory_get(remote);
    weiri_memory_get(local);
    if (channel->packets != NULL) {
        weiri_memory_get(channel->packets);
    }
    fill_device(channel);
    status = write_cells(channel);
    if (status != WEIR_OK) {
        weir_memory_channel_destroy(channel);
        return status;
    }
    *out = channel;
    return WEIR_OK;
}

void weir_memory_channel_destroy(weir_memory_channel *channel)
{
    if (channel == NULL || weiri_comm_forked(channel->semaphore->connection->comm)) {
        return;
    }
    weir_comm *comm = channel->semaphore->connection->comm;
    weiri_cells_free(comm, &comm->slabs.device, channel->semaphore->count, channel->cell);
    weir_memory_destroy(channel->remote);
    weir_memory_destroy(channel->local);
    weir_memory_destroy(channel->packets);
    weiri_semaphore_unclaim(channel->semaphore, false);
    weir_semaphore_destroy(channel->semaphore);
    weiri_free(channel);
}

void weir_memory_channel_device(const weir_memory_channel *channel, weir_dev_memory_channel *out)
{
    if (out == NULL) {
        return;
    }
    memset(out, 0, sizeof *out);
    if (channel != NULL) {
        *out = channel->device;
    }
}

weir_semaphore *weir_memory_channel_semaphore(const weir_memory_channel *channel)
{
    return channel != NULL ? channel->semaphore : NULL;
}

weir_memory *weir_memory_channel_remote(const weir_memory_channel *channel)
{
    return channel != NULL ? channel->remote : NULL;
}

weir_memory *weir_memory_channel_local(const weir_memory_channel *channel)
{
    return channel != NULL ? channel->local : NULL;
}

weir_memory *weir_memory_channel_packets(const weir_memory_channel *channel)
{
    return channel != NULL ? channel->packets : NULL;
}
