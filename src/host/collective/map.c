/* map.c - recorded calls map ordinary buffers, for opts.map_recorded.
 *
 * A recorded call of much data goes directly between buffers, if all ranks have mapped each other's allocations. All
 * ranks record the same calls, so each such call can meet the others on the host. It tells them in which allocations of
 * this rank the buffers lie, and where, and finds out whether all have mapped the same ones before. Otherwise they map
 * them now. Eager calls map nothing: asking the others would take longer than most calls.
 *
 * A mapping is a set of whole allocations, one of each rank. An allocation may be in several: buffers that the ranks
 * use together need not lie in allocations that were made together. It is known by its id, never by its address, which
 * a later allocation may get. Mappings end all at once, in weir_collective_unmap or with the collective, and kernels of
 * graphs find that out as they do for registrations. Until then a number, which is the same on all ranks, names the
 * same mapping, also one that failed.
 *
 * An exchange has no call that all ranks make, so each receiver maps for itself. It keeps a list of allocations that
 * hold buffers of its receives, and a sender gets the handle of one with the first transfer into it, when both ends
 * meet (posts.c). The sender maps it, and goes on if that fails: the receiver offers the buffer to the sender's kernel,
 * which stores through the staging if the table of rows has no address (life.c). */
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/base/log.h"
#include "src/host/collective/collective.h"

#define BUFFERS 2u      /* send and recv */
#define ALIGNMENT 0x7fu /* kernels move lines of 128 bytes: all ranks' buffers begin at the same place in theirs */

/* The words that a rank tells the others. */
enum { CALL_WORD, COUNT_WORD, ALIGNED_WORD, FOUND_WORD, OFFSET_WORD = FOUND_WORD + BUFFERS };

/* A buffer of a call. */
typedef struct buffer {
    const void *data; /* NULL: the call need not map it */
    weiri_allocation allocation;
    bool known; /* the device knows the allocation */
    const weiri_team_memory **memory;
    weiri_shift *shift;
} buffer;

/* One bit for each mapping that has the allocation. */
static uint64_t mappings_of(const weiri_map *map, uint64_t id)
{
    uint64_t found = 0;
    for (uint32_t i = 0; i < map->count; i++) {
        found |= (uint64_t)(map->at[i].id == id) << i;
    }
    return found;
}

/* Finds the allocation of `bytes` bytes at b->data. */
static void identify(const weir_collective *collective, buffer *b, uint64_t bytes)
{
    b->known = weiri_device_identify(collective->comm->device, b->data, &b->allocation) &&
               bytes <= b->allocation.bytes - (uint64_t)((const char *)b->data - b->allocation.base);
}

/* Tells the others of the buffers. They must have recorded the same call; the error names the first that has not. */
static weir_status tell(weir_collective *collective, const char *name, const weir_collective_request *q,
                        const buffer *buffers, uint64_t told[][WEIRI_TEAM_WORDS])
{
    const weiri_call call = weiri_call_of(q, WEIR_FORM_AUTO, 0);
    weiri_team *host = &collective->host;
    uint64_t mine[WEIRI_TEAM_WORDS] = { [CALL_WORD] = weiri_call_word(&call), [COUNT_WORD] = q->count };
    for (uint32_t i = 0; i < BUFFERS; i++) {
        const buffer *b = &buffers[i];
        const uint64_t aligned = (uintptr_t)b->data & ALIGNMENT;
        if (b->data != NULL) {
            mine[ALIGNED_WORD] |= (aligned | (uint64_t)b->known << 8) << 16 * i;
            mine[FOUND_WORD + i] = b->known ? mappings_of(&collective->map, b->allocation.id) : 0;
            mine[OFFSET_WORD + i] = b->known ? (uint64_t)((const char *)b->data - b->allocation.base) : 0;
        }
    }
    const weir_status status = weiri_team_tell(host, name, mine, told);
    for (uint32_t k = 0; k < host->size && status == WEIR_OK; k++) {
        if (told[k][CALL_WORD] != told[0][CALL_WORD] || told[k][COUNT_WORD] != told[0][COUNT_WORD]) {
            char text[256];
            const weir_dev_difference found = { .mine = { told[k][CALL_WORD], 0, told[k][COUNT_WORD] },
                                                .theirs = { told[0][CALL_WORD], 0, told[0][COUNT_WORD] } };
            weiri_call_differ(&found, &host->ranks[k], host->ranks[0], text, sizeof text);
            return weiri_fail(WEIR_ERR_MISMATCH, "%s: %s", name, text);
        }
    }
    return status;
}

/* Whether the buffers of all ranks can be mapped. */
static bool all_can(const weir_collective *collective, const buffer *buffers, uint64_t told[][WEIRI_TEAM_WORDS])
{
    const uint32_t ranks = collective->host.size;
    const uint64_t mine = told[collective->host.rank][ALIGNED_WORD];
    bool can = true;
    for (uint32_t i = 0; i < BUFFERS; i++) {
        can = can && (buffers[i].data == NULL || buffers[i].known);
    }
    for (uint32_t k = 0; k < ranks && can; k++) {
        can = told[k][ALIGNED_WORD] == mine;
    }
    return can;
}

static void close_mapping(weiri_mapping *mapping)
{
    weiri_team_memory_close(&mapping->memory);
    weir_memory_destroy(mapping->memory.local);
    memset(&mapping->memory, 0, sizeof mapping->memory);
}

/* Maps the allocations of all ranks as the next mapping. One that fails keeps its number, and the call goes on without
 * it. An error ends the call. */
static weir_status add_mapping(weir_collective *collective, const char *name, const weiri_allocation *allocation)
{
    weiri_team *host = &collective->host;
    weir_comm *comm = collective->comm;
    weiri_mapping *mapping = &collective->map.at[collective->map.count++];
    weir_memory *local = NULL;
    mapping->id = allocation->id;
    weir_status status = weiri_life_prepare_registrations(collective);
    if (status == WEIR_OK) {
        status = weir_memory_register(comm, allocation->base, allocation->bytes, NULL, &local);
    }
    mapping->memory.local = local;
    status = weiri_team_agree(host, NULL, name, status, false);
    if (status == WEIR_OK) {
        status = weiri_team_share_any(host, name, local, true, &mapping->memory);
        status = weiri_team_agree(host, NULL, name, status, true);
    }
    if (status == WEIR_OK) {
        weiri_log(WEIR_LOG_INFO, "%s of rank %u: maps an allocation of each rank, here of %llu bytes", name, comm->rank,
                  (unsigned long long)allocation->bytes);
        return WEIR_OK;
    }
    mapping->failed = true;
    if (status == WEIR_ERR_TIMEOUT || weiri_comm_error(comm) != WEIR_OK) {
        return status;
    }
    weiri_log(WEIR_LOG_INFO, "%s of rank %u: buffers are not mapped: %s", name, comm->rank, weir_last_error());
    close_mapping(mapping);
    return WEIR_OK;
}

/* Finds the mapping that has buffer `i` of all ranks, or makes it. *out is NULL if it failed, or there can be no more.
 */
static weir_status find_mapping(weir_collective *collective, const char *name, uint32_t i,
                                const weiri_allocation *allocation, uint64_t told[][WEIRI_TEAM_WORDS],
                                const weiri_mapping **out)
{
    weiri_map *map = &collective->map;
    uint64_t common = UINT64_MAX;
    uint32_t number = 0;
    weir_status status = WEIR_OK;
    for (uint32_t k = 0; k < collective->host.size; k++) {
        common &= told[k][FOUND_WORD + i];
    }
    while (number < map->count && (common >> number & 1) == 0) {
        number++;
    }
    if (number == map->count && number < WEIRI_MAPPINGS_MOST) {
        status = add_mapping(collective, name, allocation);
    }
    *out = number < map->count && !map->at[number].failed ? &map->at[number] : NULL;
    return status;
}

/* Sets where buffer `i` of `bytes` bytes lies in the memory of the others. It must lie within each. */
static weir_status set_shift(const weir_collective *collective, const char *name, uint32_t i, uint64_t bytes,
                             const weiri_mapping *mapping, uint64_t told[][WEIRI_TEAM_WORDS], weiri_shift *shift)
{
    const uint32_t rank = collective->host.rank;
    for (uint32_t k = 0; k < collective->host.size; k++) {
        const uint64_t at = told[k][OFFSET_WORD + i];
        const uint64_t size = weir_memory_bytes(weiri_team_memory_of(&mapping->memory, k));
        if (at > size || bytes > size - at) {
            return weiri_fail(WEIR_ERR_CORRUPT,
                              "%s: rank %u gave %llu bytes at offset %llu of a mapped allocation of %llu bytes", name,
                              collective->host.ranks[k], (unsigned long long)bytes, (unsigned long long)at,
                              (unsigned long long)size);
        }
        shift->bytes[k] = at - told[rank][OFFSET_WORD + i];
        shift->digest = (shift->digest ^ at) * 0x100000001b3u + 1;
    }
    return WEIR_OK;
}

weir_status weiri_map_buffers(weir_collective *collective, const char *name, const weir_collective_request *q,
                              uint64_t bytes, weiri_step *step)
{
    const bool joins = q->kind <= WEIR_REDUCE_SCATTER;
    buffer buffers[BUFFERS] = { { .memory = &step->send, .shift = &step->send_shift },
                                { .memory = &step->recv, .shift = &step->recv_shift } };
    const weiri_mapping *mappings[BUFFERS] = { NULL };
    uint64_t told[WEIRI_TEAM_RANKS][WEIRI_TEAM_WORDS];
    buffers[0].data = joins && step->send == NULL ? q->send : NULL;
    buffers[1].data = q->kind != WEIR_REDUCE_SCATTER && step->recv == NULL ? q->recv : NULL;
    for (uint32_t i = 0; i < BUFFERS; i++) {
        if (buffers[i].data != NULL) {
            identify(collective, &buffers[i], bytes);
        }
    }
    weir_status status =
        weiri_team_agree(&collective->host, NULL, name, tell(collective, name, q, buffers, told), false);
    bool can = status == WEIR_OK && all_can(collective, buffers, told);
    for (uint32_t i = 0; i < BUFFERS && can; i++) {
        if (buffers[i].data != NULL) {
            status = find_mapping(collective, name, i, &buffers[i].allocation, told, &mappings[i]);
            can = status == WEIR_OK && mappings[i] != NULL;
        }
    }
    for (uint32_t i = 0; i < BUFFERS && can && status == WEIR_OK; i++) {
        if (buffers[i].data != NULL) {
            *buffers[i].memory = &mappings[i]->memory;
            status = set_shift(collective, name, i, bytes, mappings[i], told, buffers[i].shift);
        }
    }
    return status;
}

/* ---- receives ---------------------------------------------------------------------------------------------------- */

/* Makes a mapping for the allocation, which senders have not mapped. One that fails is not tried again. */
static weiri_mapping *add_receive(weir_collective *collective, const weiri_allocation *allocation)
{
    weir_comm *comm = collective->comm;
    weiri_mapping *mapping = &collective->map.receives[collective->map.receive_count++];
    mapping->id = allocation->id;
    weir_status status = weiri_life_prepare_registrations(collective);
    if (status == WEIR_OK) {
        status = weir_memory_register(comm, allocation->base, allocation->bytes, NULL, &mapping->memory.local);
    }
    if (status == WEIR_OK) {
        const uint32_t row = WEIRI_REGISTERED_MOST + collective->map.receive_count;
        status = weiri_life_write_row(collective, row, &mapping->memory);
    }
    mapping->failed = status != WEIR_OK;
    if (mapping->failed) {
        weiri_log(WEIR_LOG_INFO, "weir_exchange of rank %u: an allocation of %llu bytes is not mapped: %s", comm->rank,
                  (unsigned long long)allocation->bytes, weir_last_error());
    } else {
        weiri_log(WEIR_LOG_INFO, "weir_exchange of rank %u: senders may map an allocation of %llu bytes", comm->rank,
                  (unsigned long long)allocation->bytes);
    }
    return mapping;
}

static weiri_mapping *find_receive(weir_collective *collective, const weiri_allocation *allocation)
{
    weiri_map *map = &collective->map;
    uint32_t i = 0;
    while (i < map->receive_count && map->receives[i].id != allocation->id) {
        i++;
    }
    return i < map->receive_count    ? &map->receives[i]
           : i < WEIRI_MAPPINGS_MOST ? add_receive(collective, allocation)
                                     : NULL;
}

weiri_place weiri_map_place(weir_collective *collective, const void *data, uint64_t bytes, bool maps)
{
    weiri_place place = { .memory = weiri_plan_registered(collective, data, bytes) };
    buffer b = { .data = data };
    if (place.memory != NULL) {
        place.row = (uint32_t)(place.memory - collective->registered) + 1;
        place.offset = (uintptr_t)data - (uintptr_t)weir_memory_pointer(place.memory->local);
        return place;
    }
    if (maps && bytes != 0) {
        identify(collective, &b, bytes);
        place.mapping = b.known ? find_receive(collective, &b.allocation) : NULL;
    }
    if (place.mapping != NULL && !place.mapping->failed) {
        place.row = WEIRI_REGISTERED_MOST + 1 + (uint32_t)(place.mapping - collective->map.receives);
        place.offset = (uint64_t)((const char *)data - b.allocation.base);
    }
    return place;
}

/* The mapping of receives with this row, or NULL: the row is not one of them. */
static weiri_mapping *receive_of(const weir_collective *collective, uint32_t row)
{
    return row > WEIRI_REGISTERED_MOST && row <= WEIRI_ROWS && collective->map.receives != NULL
               ? &collective->map.receives[row - WEIRI_REGISTERED_MOST - 1]
               : NULL;
}

const weir_memory *weiri_map_row(const weir_collective *collective, uint32_t rank, uint32_t row)
{
    const weiri_mapping *mapping = receive_of(collective, row);
    return mapping != NULL                                   ? mapping->memory.remote[rank]
           : row != 0 && row <= collective->registered_count ? collective->registered[row - 1].remote[rank]
                                                             : NULL;
}

weir_status weiri_map_remote(weir_collective *collective, uint32_t rank, uint32_t row, const weiri_handle *handle,
                             int fd)
{
    weiri_mapping *mapping = receive_of(collective, row);
    if (mapping == NULL || mapping->memory.remote[rank] != NULL || handle->rank != collective->host.ranks[rank]) {
        return weiri_fail(WEIR_ERR_CORRUPT, "malformed mapping of rank %u", collective->host.ranks[rank]);
    }
    weir_memory **memory = &mapping->memory.remote[rank];
    weir_status status = weiri_life_prepare_registrations(collective);
    if (status == WEIR_OK) {
        status = weiri_memory_map(collective->comm, handle, fd, true, memory);
    }
    if (status == WEIR_OK) {
        status = weiri_life_write_row(collective, row, &mapping->memory);
    }
    if (status != WEIR_OK) {
        weiri_log(WEIR_LOG_INFO, "weir_exchange of rank %u: a buffer of rank %u is not mapped: %s",
                  collective->comm->rank, handle->rank, weir_last_error());
        weir_memory_destroy(*memory);
        *memory = NULL;
    }
    return WEIR_OK;
}

/* ---- open and close ---------------------------------------------------------------------------------------------- */

weir_status weiri_map_open(weir_collective *collective)
{
    weiri_map *map = &collective->map;
    map->at = (weiri_mapping *)weiri_alloc(WEIRI_MAPPINGS_MOST, sizeof *map->at);
    map->receives = (weiri_mapping *)weiri_alloc(WEIRI_MAPPINGS_MOST, sizeof *map->receives);
    return map->at != NULL && map->receives != NULL ? WEIR_OK : weiri_fail_nomem("weir_collective_create");
}

/* Closes also the memories that other ranks have at numbers that this rank does not use. */
static void close_mappings(weiri_map *map)
{
    for (uint32_t i = 0; i < map->count; i++) {
        close_mapping(&map->at[i]);
        map->at[i].failed = false;
    }
    for (uint32_t i = 0; i < WEIRI_MAPPINGS_MOST && map->receives != NULL; i++) {
        close_mapping(&map->receives[i]);
        map->receives[i].failed = false;
        map->receives[i].told = 0;
    }
    map->count = 0;
    map->receive_count = 0;
}

void weiri_map_close(weir_collective *collective)
{
    close_mappings(&collective->map);
    weiri_free(collective->map.at);
    weiri_free(collective->map.receives);
}

/* Kernels find no mapped memory of receives from here on. */
static weir_status end_mappings(weir_collective *collective)
{
    const weiri_map *map = &collective->map;
    weir_status status = collective->device.generations != NULL ? weiri_life_end_mappings(collective) : WEIR_OK;
    for (uint32_t i = 0; i < WEIRI_MAPPINGS_MOST && status == WEIR_OK; i++) {
        bool used = map->receives[i].memory.local != NULL;
        for (uint32_t k = 0; k < collective->device.ranks; k++) {
            used = used || map->receives[i].memory.remote[k] != NULL;
        }
        status = used ? weiri_life_write_row(collective, WEIRI_REGISTERED_MOST + 1 + i, NULL) : WEIR_OK;
    }
    return status;
}

weir_status weir_collective_unmap(weir_collective *collective)
{
    static const char call[] = "weir_collective_unmap";
    weir_status status = weiri_comm_check("collective", collective == NULL ? NULL : collective->comm, call);
    if (status != WEIR_OK) {
        return status;
    }
    const char *work = weiri_life_work(collective, true);
    if (work != NULL) {
        status = weiri_fail(WEIR_ERR_BUSY, "%s: a stream of the collective's operations %s", call, work);
    }
    status = weiri_team_agree(&collective->host, NULL, call, status, false);
    if (status == WEIR_OK && collective->map.at != NULL) {
        status = weiri_team_agree(&collective->host, NULL, call, end_mappings(collective), true);
    }
    if (status == WEIR_OK) {
        close_mappings(&collective->map);
    }
    return status;
}
