/* rails.c - which ranks of a collective are a host, and what joins each to its like on the others: a
 * connection, a semaphore, a port channel, and memory with the layout of weir/device/impl/collective_rails.h. */
#include <stdio.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/channel/port_channel.h"
#include "src/host/collective/collective.h"
#include "src/host/comm/exchange.h"

#define TAG WEIRI_TAG_RAILS
#define STAGING ((uint64_t)64 << 20)
#define SLOT_LEAST ((uint64_t)1 << 10)
#define SLOT_MOST ((uint64_t)512 << 10)
#define HOLD_LEAST ((uint64_t)128) /* for each rank */
#define LANES_GPU 8u
#define WORDS 4u /* that ranks tell each other: a status, ranks of a host, the first of them, opts */

/* ---- hosts -------------------------------------------------------------------------------------------------- */

static uint32_t member(const weir_group *group, uint32_t index)
{
    return group != NULL ? group->ranks[index] : index;
}

static bool is_mapped(const weir_collective *collective, const weir_group *group, uint32_t index)
{
    return index == collective->rank || collective->comm->peers[member(group, index)].mapper != NULL;
}

weir_status weiri_rails_find(weir_collective *collective, const weir_collective_opts *opts)
{
    const weir_group *group = opts->group;
    uint32_t ranks = opts->host_ranks;
    uint32_t first = collective->rank;
    if (ranks == 0) {
        for (uint32_t i = 0; i < collective->size; i++) {
            ranks += is_mapped(collective, group, i);
        }
        while (first > 0 && is_mapped(collective, group, first - 1)) {
            first--;
        }
    } else {
        first -= first % ranks;
    }
    const uint32_t hosts = collective->size / ranks;
    collective->device.ranks = ranks;
    collective->device.rank = collective->rank - first;
    collective->rails.device.host = first / ranks;
    collective->rails.device.hosts = ranks == collective->size ? 1 : hosts > 1 ? hosts : 2;
    if (opts->host_ranks != 0 && hosts * ranks != collective->size) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "weir_collective_create: %u ranks are not hosts of %u each",
                          collective->size, ranks);
    }
    if (ranks > WEIR_COLLECTIVE_RANKS || hosts > WEIR_COLLECTIVE_HOSTS) {
        return weiri_fail(WEIR_ERR_LIMIT,
                          "weir_collective_create: %u ranks on each of %u hosts, but at most %u on %u are possible",
                          ranks, hosts, WEIR_COLLECTIVE_RANKS, WEIR_COLLECTIVE_HOSTS);
    }
    for (uint32_t i = 0; i < ranks && first + i < collective->size; i++) {
        collective->ranks[i] = member(group, first + i);
    }
    for (uint32_t i = 0; i < hosts && i * ranks + collective->device.rank < collective->size; i++) {
        collective->rails.ranks[i] = member(group, i * ranks + collective->device.rank);
    }
    return WEIR_OK;
}

/* What is wrong with what rank `other` says, in the light of this rank's own words. */
static weir_status judge(const weir_collective *collective, const char *call, const uint64_t *words, uint32_t other,
                         uint32_t rank)
{
    const uint64_t *theirs = words + (size_t)WORDS * other;
    const uint64_t *mine = words + (size_t)WORDS * collective->rank;
    if (theirs[0] != 0) {
        const weir_status status = (weir_status)(int64_t)theirs[0];
        const weir_status known = status < WEIR_OK && status > WEIR_STATUS_FIRST_UNUSED ? status : WEIR_ERR_CORRUPT;
        return weiri_fail(known, "%s: rank %u failed: %s", call, rank, weir_status_text(known));
    }
    if (theirs[1] != mine[1]) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "%s: rank %u is one of %llu on a host, rank %u one of %llu", call, rank,
                          (unsigned long long)theirs[1], collective->comm->rank, (unsigned long long)mine[1]);
    }
    if (theirs[2] != other / mine[1] * mine[1]) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "%s: the ranks on the host of rank %u do not follow each other", call,
                          rank);
    }
    return theirs[3] == mine[3] ? WEIR_OK
                                : weiri_fail(WEIR_ERR_MISMATCH, "%s: rank %u was given other opts", call, rank);
}

weir_status weiri_rails_agree(weir_collective *collective, const weir_collective_opts *opts, const char *call,
                              weir_status mine)
{
    const weir_dev_collective *device = &collective->device;
    char text[512];
    snprintf(text, sizeof text, "%s", mine != WEIR_OK ? weir_last_error() : "");
    uint64_t words[WORDS * WEIR_COLLECTIVE_RANKS * WEIR_COLLECTIVE_HOSTS]; /* a rank without memory takes part, too */
    uint64_t *own = words + (size_t)WORDS * collective->rank;
    own[0] = (uint64_t)(int64_t)mine;
    own[1] = device->ranks;
    own[2] = collective->rank - device->rank;
    own[3] = opts->staging_bytes ^ (uint64_t)device->blocks << 48;
    weir_status status =
        weir_bootstrap_allgather(collective->comm->bootstrap, opts->group, words, WORDS * sizeof words[0]);
    for (uint32_t i = 0; i < collective->size && status == WEIR_OK && mine == WEIR_OK; i++) {
        status = judge(collective, call, words, i, member(opts->group, i));
    }
    return mine != WEIR_OK ? weiri_fail(mine, "%s", text) : status;
}

/* ---- rails -------------------------------------------------------------------------------------------------- */

/* Fills sizes and places, and returns the bytes of the memory: counts and slots, handles, hold. */
static uint64_t lay_out(weir_collective *collective, const weir_collective_opts *opts, uint64_t *handles)
{
    weiri_rails *rails = &collective->rails;
    weir_dev_rails *device = &rails->device;
    const uint64_t staging = opts->staging_bytes != 0 ? opts->staging_bytes : STAGING;
    const uint32_t most = collective->many || opts->blocks != 0 ? LANES_GPU : 1;
    device->lanes = collective->budget < most ? collective->budget : most;
    rails->threads =
        collective->many || opts->threads != 0 ? weiri_collective_threads(collective, WEIR_FORM_PACKETS, 1) : 1;
    const uint64_t slot = staging / 2 / (4 * WEIR_RAIL_SLOTS) / device->lanes / device->hosts;
    device->slot_bytes = slot < SLOT_LEAST ? SLOT_LEAST : slot > SLOT_MOST ? SLOT_MOST : slot / 128 * 128;
    device->slots = weir_rail_arrived(device, device->lanes, 0);
    const uint64_t hold_least = HOLD_LEAST * collective->size;
    rails->hold_bytes = staging / 2 > hold_least ? staging / 2 / 128 * 128 : hold_least;
    *handles = weir_rail_bytes(device);
    const uint64_t hold = *handles + device->hosts * sizeof(weir_dev_port_channel);
    return (hold + 127) / 128 * 128 + rails->hold_bytes;
}

/* Steps are begun with each of the others, also when that fails with one, before any is waited for. */

static weir_status connect_hosts(weir_collective *collective, const char *call, const weir_collective_opts *opts)
{
    weiri_rails *rails = &collective->rails;
    const weir_connection_opts only = { .size = sizeof only, .transport = opts->transport };
    weir_future *futures[WEIR_COLLECTIVE_HOSTS] = { NULL };
    weir_status status = WEIR_OK;
    for (uint32_t k = 0; k < rails->device.hosts; k++) {
        if (k == rails->device.host) {
            continue;
        }
        weir_status begun = weir_connection_create_async(collective->comm, rails->ranks[k], TAG, &only,
                                                         &rails->connections[k], &futures[k]);
        if (begun != WEIR_OK) {
            status = weiri_collective_fail_to_begin(collective->comm, call, begun);
        }
    }
    return weiri_collective_complete(futures, rails->device.hosts, status);
}

static weir_status share_memory(weir_collective *collective, const char *call)
{
    weiri_rails *rails = &collective->rails;
    weir_comm *comm = collective->comm;
    const uint64_t bytes = weir_memory_bytes(rails->local);
    weir_future *futures[WEIR_COLLECTIVE_HOSTS] = { NULL };
    weir_status status = WEIR_OK;
    for (uint32_t k = 0; k < rails->device.hosts; k++) {
        if (k == rails->device.host) {
            continue;
        }
        weir_status begun = weir_memory_recv_async(comm, rails->ranks[k], TAG, &rails->remote[k], &futures[k]);
        if (begun == WEIR_OK) {
            begun = weir_memory_send(comm, rails->local, rails->ranks[k], TAG);
        }
        if (begun != WEIR_OK) {
            status = weiri_collective_fail_to_begin(comm, call, begun);
        }
    }
    status = weiri_collective_complete(futures, rails->device.hosts, status);
    for (uint32_t k = 0; k < rails->device.hosts && status == WEIR_OK; k++) {
        if (k != rails->device.host && weir_memory_bytes(rails->remote[k]) != bytes) {
            status =
                weiri_fail(WEIR_ERR_CORRUPT, "%s: memory of rank %u has %llu bytes, not %llu", call, rails->ranks[k],
                           (unsigned long long)weir_memory_bytes(rails->remote[k]), (unsigned long long)bytes);
        }
    }
    return status;
}

static weir_status make_semaphores(weir_collective *collective, const char *call)
{
    weiri_rails *rails = &collective->rails;
    weir_future *futures[WEIR_COLLECTIVE_HOSTS] = { NULL };
    weir_status status = WEIR_OK;
    for (uint32_t k = 0; k < rails->device.hosts; k++) {
        if (k == rails->device.host) {
            continue;
        }
        weir_status begun =
            weir_semaphore_create_async(rails->connections[k], TAG, NULL, &rails->semaphores[k], &futures[k]);
        if (begun != WEIR_OK) {
            status = weiri_collective_fail_to_begin(collective->comm, call, begun);
        }
    }
    return weiri_collective_complete(futures, rails->device.hosts, status);
}

/* Channels, with room for the requests of all messages that may be under way, and their handles for kernels. */
static weir_status make_channels(weir_collective *collective, uint64_t handles)
{
    weiri_rails *rails = &collective->rails;
    const weir_port_channel_opts opts = { .size = sizeof opts,
                                          .direct_bytes = WEIR_PORT_DIRECT_NEVER,
                                          .credits = 2 * WEIR_RAIL_SLOTS * rails->device.lanes };
    char *at = (char *)weir_memory_pointer(rails->local) + handles;
    weir_status status = weir_proxy_create(collective->comm, NULL, &rails->proxy);
    for (uint32_t k = 0; k < rails->device.hosts && status == WEIR_OK; k++) {
        weir_dev_port_channel handle;
        if (k == rails->device.host) {
            continue;
        }
        status = weir_port_channel_create(rails->proxy, rails->semaphores[k], rails->remote[k], rails->local, &opts,
                                          &rails->channels[k]);
        if (status == WEIR_OK) {
            status = weiri_port_channel_make_vital(rails->channels[k]);
        }
        if (status == WEIR_OK) {
            status = weir_port_channel_device(rails->channels[k], &handle);
        }
        if (status == WEIR_OK) {
            status = weir_device_copy(collective->comm->device, at + k * sizeof handle, &handle, sizeof handle);
        }
    }
    return status;
}

weir_status weiri_rails_open(weir_collective *collective, const weir_collective_opts *opts)
{
    static const char call[] = "weir_collective_create";
    weiri_rails *rails = &collective->rails;
    uint64_t handles = 0;
    const uint64_t bytes = lay_out(collective, opts, &handles);
    weir_status status = weir_memory_allocate(collective->comm, bytes, NULL, &rails->local);
    status = weiri_rails_agree(collective, opts, call, status);
    if (status == WEIR_OK) {
        status = weiri_rails_agree(collective, opts, call, connect_hosts(collective, call, opts));
    }
    if (status == WEIR_OK) {
        status = weiri_rails_agree(collective, opts, call, share_memory(collective, call));
    }
    if (status == WEIR_OK) {
        status = weiri_rails_agree(collective, opts, call, make_semaphores(collective, call));
    }
    if (status == WEIR_OK) {
        status = make_channels(collective, handles);
    }
    if (status == WEIR_OK) {
        char *memory = (char *)weir_memory_pointer(rails->local);
        rails->hold = memory + bytes - rails->hold_bytes;
        rails->device.memory = memory;
        rails->device.channels = (const weir_dev_port_channel *)(memory + handles);
        rails->device.control = collective->comm->control_device;
        rails->device.differences =
            (weir_dev_difference *)weir_memory_pointer(collective->differences) + WEIR_COLLECTIVE_RANKS;
        status = weir_proxy_start(rails->proxy);
    }
    return weiri_rails_agree(collective, opts, call, status);
}

void weiri_rails_close(weir_collective *collective)
{
    weiri_rails *rails = &collective->rails;
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_HOSTS; k++) {
        weir_port_channel_destroy(rails->channels[k]);
        weir_semaphore_destroy(rails->semaphores[k]);
        weir_memory_destroy(rails->remote[k]);
        weir_connection_destroy(rails->connections[k]);
    }
    weir_proxy_destroy(rails->proxy);
    weir_memory_destroy(rails->local);
}
