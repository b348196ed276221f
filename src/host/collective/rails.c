/* rails.c - the way between hosts. Finds which ranks of a collective are on one host. Joins each rank to the ranks of
 * the same place on the other hosts by a connection, a semaphore, a port channel, and memory with the layout of
 * include/weir/device/impl/collective_rails.h. Describes the steps over the rails. */
#include <stdio.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/base/log.h"
#include "src/host/channel/port_channel.h"
#include "src/host/collective/collective.h"
#include "src/host/comm/exchange.h"

#define STAGING ((uint64_t)64 << 20)
#define SLOT_LEAST ((uint64_t)1 << 10)
#define SLOT_MOST ((uint64_t)512 << 10)
#define HOLD_LEAST ((uint64_t)128) /* bytes for each rank */
#define BLOCKS_GPU 8u
#define RAILS_LOGGED 7u /* a bit of weir_collective.logged that no form uses */
#define WORDS 2u        /* of a rank that looks for its host: the number of ranks on the host, and the first of them */

/* ---- hosts -------------------------------------------------------------------------------------------------- */

static bool is_mapped(const weir_collective *collective, const weir_group *group, uint32_t index)
{
    return index == collective->rank || collective->comm->peers[weiri_group_rank(group, index)].mapper != NULL;
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
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "weir_collective_create: %u ranks cannot be divided into hosts of %u",
                          collective->size, ranks);
    }
    if (ranks > WEIR_COLLECTIVE_RANKS || hosts > WEIR_COLLECTIVE_HOSTS) {
        return weiri_fail(WEIR_ERR_LIMIT,
                          "weir_collective_create: %u ranks on each of %u hosts, but at most %u on %u are possible",
                          ranks, hosts, WEIR_COLLECTIVE_RANKS, WEIR_COLLECTIVE_HOSTS);
    }
    for (uint32_t i = 0; i < collective->size; i++) {
        collective->rails.ranks[i] = weiri_group_rank(group, i);
    }
    for (uint32_t i = 0; i < ranks && first + i < collective->size; i++) {
        weiri_team_add(&collective->host, weiri_group_rank(group, first + i));
    }
    for (uint32_t i = 0; i < hosts && i * ranks + collective->device.rank < collective->size; i++) {
        weiri_team_add(&collective->rails.team, weiri_group_rank(group, i * ranks + collective->device.rank));
    }
    return WEIR_OK;
}

/* Checks that rank `other` of all, which is rank `rank` of the communicator, has found the same hosts. */
static weir_status check_host(const weir_collective *collective, const char *call, const uint64_t *words,
                              uint32_t other, uint32_t rank)
{
    const uint64_t *theirs = words + (size_t)WORDS * other;
    const uint32_t ranks = collective->device.ranks;
    if (theirs[0] != ranks) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "%s: rank %u found %llu ranks on its host, rank %u found %u", call,
                          rank, (unsigned long long)theirs[0], collective->comm->rank, ranks);
    }
    return theirs[1] == other / ranks * ranks
               ? WEIR_OK
               : weiri_fail(WEIR_ERR_UNSUPPORTED, "%s: the ranks on the host of rank %u do not follow each other", call,
                            rank);
}

weir_status weiri_rails_meet(weir_collective *collective, const weir_collective_opts *opts, const char *call)
{
    uint64_t words[WORDS * WEIR_COLLECTIVE_RANKS * WEIR_COLLECTIVE_HOSTS];
    uint64_t *own = words + (size_t)WORDS * collective->rank;
    own[0] = collective->device.ranks;
    own[1] = collective->rank - collective->device.rank;
    weir_status status =
        weir_bootstrap_allgather(collective->comm->bootstrap, opts->group, words, WORDS * sizeof words[0]);
    if (status == WEIR_OK && collective->size % collective->device.ranks != 0) {
        status = weiri_fail(WEIR_ERR_UNSUPPORTED, "%s: %u ranks cannot be divided into hosts of %u", call,
                            collective->size, collective->device.ranks);
    }
    for (uint32_t i = 0; i < collective->size && status == WEIR_OK; i++) {
        status = check_host(collective, call, words, i, weiri_group_rank(opts->group, i));
    }
    return status;
}

/* ---- rails -------------------------------------------------------------------------------------------------- */

/* Fills the sizes of exchanges, from `places` on, and returns where their slots end. */
static uint64_t lay_out_exchange(weir_collective *collective, uint64_t staging, uint64_t places)
{
    weir_exchange_rails *x = &collective->rails.exchange;
    x->places = places;
    x->size = collective->size;
    x->columns = collective->rails.device.blocks;
    const uint64_t slot = staging / 8 / ((uint64_t)4 * x->size * x->columns);
    x->bytes = slot < SLOT_LEAST ? SLOT_LEAST : slot > SLOT_MOST ? SLOT_MOST : slot / 128 * 128;
    return weir_far_slot(x, 2, 0, 0, 0);
}

/* Where the memory has what lies behind the slots of steps. */
typedef struct layout {
    uint64_t handles;  /* of the channels */
    uint64_t exchange; /* copy of rails.exchange, and its peers */
    uint64_t hold;
    uint64_t bytes; /* of all */
} layout;

/* Fills sizes and offsets. */
static layout lay_out(weir_collective *collective, const weir_collective_opts *opts)
{
    weiri_rails *rails = &collective->rails;
    weir_dev_rails *device = &rails->device;
    const uint64_t staging = opts->staging_bytes != 0 ? opts->staging_bytes : STAGING;
    const uint32_t most = collective->warps || opts->blocks != 0 ? BLOCKS_GPU : 1;
    device->blocks = collective->sm_limit < most ? collective->sm_limit : most;
    rails->threads =
        collective->warps || opts->threads != 0 ? weiri_choice_threads(collective, WEIR_FORM_PACKETS, 1) : 1;
    const uint64_t slot = staging / 2 / (4 * WEIR_RAIL_SLOTS) / device->blocks / device->hosts;
    device->slot_bytes = slot < SLOT_LEAST ? SLOT_LEAST : slot > SLOT_MOST ? SLOT_MOST : slot / 128 * 128;
    device->slots = weir_rail_arrived(device, device->blocks, 0);
    const uint64_t hold_least = HOLD_LEAST * collective->size;
    rails->hold_bytes = staging / 2 > hold_least ? staging / 2 / 128 * 128 : hold_least;
    layout at;
    at.handles = lay_out_exchange(collective, staging, weir_rail_bytes(device));
    at.exchange = at.handles + device->hosts * sizeof(weir_dev_port_channel);
    const uint64_t end = at.exchange + sizeof(weir_exchange_rails) + collective->size * sizeof(uint32_t);
    at.hold = (end + 127) / 128 * 128;
    at.bytes = at.hold + rails->hold_bytes;
    return at;
}

static weir_status begin_semaphore(void *context, uint32_t index, weir_future **future)
{
    weiri_rails *rails = (weiri_rails *)context;
    return weir_semaphore_create_async(rails->team.connections[index], rails->team.tag, NULL, &rails->semaphores[index],
                                       future);
}

/* Makes the channels, with room for the requests of all messages that may be under way, and their handles for
 * kernels. */
static weir_status make_channels(weir_collective *collective, uint64_t handles)
{
    weiri_rails *rails = &collective->rails;
    const weir_port_channel_opts opts = { .size = sizeof opts,
                                          .direct_bytes = WEIR_PORT_DIRECT_NEVER,
                                          .credits = 2 * WEIR_RAIL_SLOTS * rails->device.blocks };
    char *at = (char *)weir_memory_pointer(rails->memory.local) + handles;
    weir_status status = weir_proxy_create(collective->comm, NULL, &rails->proxy);
    for (uint32_t k = 0; k < rails->device.hosts && status == WEIR_OK; k++) {
        weir_dev_port_channel handle;
        if (k == rails->device.host) {
            continue;
        }
        status = weir_port_channel_create(rails->proxy, rails->semaphores[k], rails->memory.remote[k],
                                          rails->memory.local, &opts, &rails->channels[k]);
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

/* Copies what kernels of exchanges need into the rails' memory. */
static weir_status finish_exchange(weir_collective *collective, char *at)
{
    weiri_rails *rails = &collective->rails;
    weir_exchange_rails *x = &rails->exchange;
    weir_device *device = collective->comm->device;
    const uint32_t *peers = (const uint32_t *)(at + sizeof *x);
    x->rails = rails->device;
    x->peers = peers;
    for (uint32_t k = 0; k < collective->device.ranks; k++) {
        x->memory[k] = (char *)weir_memory_pointer(weiri_team_memory_of(&rails->mapped, k));
    }
    weir_status status =
        weir_device_copy(device, (void *)(uintptr_t)peers, rails->ranks, collective->size * sizeof *peers);
    if (status == WEIR_OK) {
        status = weir_device_copy(device, at, x, sizeof *x);
    }
    rails->far = (const weir_exchange_rails *)at;
    return status;
}

/* Ends open on this rank, after memory is shared and semaphores are made. */
static weir_status finish_rails(weir_collective *collective, const layout *at)
{
    weiri_rails *rails = &collective->rails;
    char *memory = (char *)weir_memory_pointer(rails->memory.local);
    weir_status status = make_channels(collective, at->handles);
    if (status != WEIR_OK) {
        return status;
    }
    rails->hold = memory + at->hold;
    rails->device.memory = memory;
    rails->device.channels = (const weir_dev_port_channel *)(memory + at->handles);
    rails->device.control = collective->comm->slabs.control_device;
    rails->device.differences =
        (weir_dev_difference *)weir_memory_pointer(collective->differences) + WEIR_COLLECTIVE_RANKS;
    status = finish_exchange(collective, memory + at->exchange);
    return status == WEIR_OK ? weir_proxy_start(rails->proxy) : status;
}

weir_status weiri_rails_open(weir_collective *collective, const weir_collective_opts *opts)
{
    static const char call[] = "weir_collective_create";
    const weir_connection_opts over = { .size = sizeof over, .transport = opts->transport };
    weiri_rails *rails = &collective->rails;
    weiri_team *team = &rails->team;
    const layout at = lay_out(collective, opts);
    weir_status status = weir_memory_allocate(collective->comm, at.bytes, NULL, &rails->memory.local);
    status = weiri_collective_agree(collective, call, status, false);
    if (status == WEIR_OK) {
        status = weiri_collective_agree(collective, call, weiri_team_connect(team, call, &over), true);
    }
    if (status == WEIR_OK) {
        status = weiri_team_share(team, call, rails->memory.local, false, &rails->memory);
        status = weiri_collective_agree(collective, call, status, true);
    }
    if (status == WEIR_OK) {
        status = weiri_team_share(&collective->host, call, rails->memory.local, true, &rails->mapped);
        status = weiri_collective_agree(collective, call, status, true);
    }
    if (status == WEIR_OK) {
        status = weiri_team_each(team, call, begin_semaphore, rails);
        status = weiri_collective_agree(collective, call, status, true);
    }
    return status == WEIR_OK ? weiri_collective_agree(collective, call, finish_rails(collective, &at), true) : status;
}

void weiri_rails_close(weir_collective *collective)
{
    weiri_rails *rails = &collective->rails;
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_HOSTS; k++) {
        weir_port_channel_destroy(rails->channels[k]);
        weir_semaphore_destroy(rails->semaphores[k]);
    }
    weiri_team_memory_close(&rails->mapped);
    weiri_team_memory_close(&rails->memory);
    weiri_team_close(&rails->team);
    weir_proxy_destroy(rails->proxy);
    weir_memory_destroy(rails->memory.local);
}

/* ---- steps -------------------------------------------------------------------------------------------------- */

weir_status weiri_rails_run(const weir_collective *collective, weiri_call call, uint64_t count, weir_rail_step *step,
                            void *stream)
{
    const weiri_rails *rails = &collective->rails;
    const uint64_t messages = (step->part + rails->device.slot_bytes - 1) / rails->device.slot_bytes;
    const uint32_t most = rails->device.blocks;
    const weir_shape shape = { messages == 0 ? 1 : messages < most ? (uint32_t)messages : most, rails->threads };
    call.form = WEIR_FORM_AUTO;
    call.blocks = shape.blocks;
    step->what.call = weiri_call_word(&call);
    step->what.count = count;
    return weiri_launch_rails(collective, shape, step, stream);
}

void weiri_rails_log(weir_collective *collective, uint32_t kind)
{
    const weiri_rails *rails = &collective->rails;
    if ((collective->logged[kind] >> RAILS_LOGGED & 1) == 0) {
        collective->logged[kind] |= 1u << RAILS_LOGGED;
        weiri_log(WEIR_LOG_INFO,
                  "weir_%s of rank %u: %u hosts of %u ranks, each rank over %s to the rank of its place on "
                  "the other hosts, up to %u blocks of %u threads",
                  weiri_kind_names[kind], collective->comm->rank, rails->device.hosts, collective->device.ranks,
                  weir_connection_transport(rails->team.connections[rails->device.host == 0 ? 1 : 0]),
                  rails->device.blocks, rails->threads);
    }
}
