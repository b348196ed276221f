/* grow.c - the default staging grows at the first call that needs more than it has.
 *
 * All ranks find out from the same request, so they meet here without an announcement. Requests that differ grow the
 * staging too: the kernels of the operation then find the difference, and name both calls. Growth adds a second memory
 * with its own handle and moves nothing: graphs that were recorded before hold addresses in the first memory, which
 * stays. Both handles share the epoch. So the calls of a collective have one order across both memories, and two calls
 * that use the same half have another call between them, as within one memory.
 *
 * Exchanges never grow the staging, because only some ranks take part in them. They have long slots (slots.c).
 *
 * Recorded calls do not grow the staging either: ranks may record them at other times, and would wait for each other.
 */
#include <stdio.h>
#include <string.h>

#include "src/host/base/error.h"
#include "src/host/base/log.h"
#include "src/host/collective/collective.h"

#define GROWS_WORD 7u /* of the host's team, in which deregister has the number of a registration */

static weir_status explain(const char *name, weir_status status)
{
    return status == WEIR_OK ? status : weiri_fail(status, "%s: the staging cannot grow: %s", name, weir_last_error());
}

/* Maps the second memories of the ranks of this host. */
static weir_status map_memories(weir_collective *collective, const char *name)
{
    weiri_growth *growth = &collective->growth;
    weir_status status = weiri_team_share(&collective->host, name, growth->memory.local, true, &growth->memory);
    for (uint32_t k = 0; k < growth->device.ranks && status == WEIR_OK; k++) {
        growth->device.memory[k] = (char *)weir_memory_pointer(weiri_team_memory_of(&growth->memory, k));
    }
    return status;
}

/* Allocates the second memory on every rank of every host, and maps those of this host. `mine` is the outcome of this
 * rank so far. */
static weir_status open_memory(weir_collective *collective, const char *name, weir_status mine)
{
    weiri_growth *growth = &collective->growth;
    weir_memory *local = NULL;
    weir_status status = mine != WEIR_OK ? mine : weir_memory_allocate(collective->comm, growth->bytes, NULL, &local);
    growth->memory.local = local;
    status = weiri_collective_agree(collective, name, explain(name, status), false);
    if (status == WEIR_OK) {
        status = weiri_collective_agree(collective, name, explain(name, map_memories(collective, name)), true);
    }
    return status;
}

void weiri_growth_close(weir_collective *collective)
{
    weiri_team_memory *memory = &collective->growth.memory;
    weiri_team_memory_close(memory);
    weir_memory_destroy(memory->local);
    memory->local = NULL;
}

static weir_status grow(weir_collective *collective, const char *name, weir_status mine)
{
    const char *const differ = collective->host.differ;
    char text[512];
    collective->growth.possible = false;
    collective->host.words[GROWS_WORD] = UINT64_MAX;
    collective->host.names[GROWS_WORD] = NULL;
    collective->host.differ = "registers or deregisters memory";
    const weir_status status = open_memory(collective, name, mine);
    collective->host.words[GROWS_WORD] = 0;
    collective->host.differ = differ;
    if (status != WEIR_OK) {
        snprintf(text, sizeof text, "%s", weir_last_error());
        weiri_growth_close(collective);
        return weiri_fail(status, "%s", text);
    }
    collective->now = &collective->growth.device;
    weiri_log(WEIR_LOG_INFO, "%s of rank %u: the staging of its collective grows: %llu bytes of memory, then %llu more",
              name, collective->comm->rank, (unsigned long long)weir_memory_bytes(collective->memory.local),
              (unsigned long long)collective->growth.bytes);
    return WEIR_OK;
}

weir_status weiri_grow(weir_collective *collective, const char *name, void *stream)
{
    uint64_t recording = 0;
    if (!collective->growth.possible) {
        return WEIR_OK;
    }
    const weir_status status = weiri_stream_recording(collective->comm->device, stream, &recording);
    return status == WEIR_OK && recording != 0 ? WEIR_OK : grow(collective, name, status);
}

weir_status weiri_grow_for(weir_collective *collective, const char *name, const weiri_work *work, void *stream)
{
    return weiri_choice_needs_growth(collective, work) ? weiri_grow(collective, name, stream) : WEIR_OK;
}

bool weiri_grow_may(const weir_collective *collective, uint64_t piece)
{
    return collective->growth.possible && piece > collective->device.packet_room / 2;
}

weir_status weiri_grow_between(weir_collective *collective, const char *name, uint64_t piece, void *stream)
{
    return weiri_grow_may(collective, piece) ? weiri_grow(collective, name, stream) : WEIR_OK;
}
