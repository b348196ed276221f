/* register.c - memories that all ranks register with a collective.
 *
 * A registration has a number, its place in collective->registered, and a generation, which grows when it ends: a
 * kernel in a graph knows both, and compares the generation first. So a place can be used again. */
#include <stdio.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/collective/collective.h"
#include "src/host/comm/memory.h"

#define NUMBER_WORD 7u /* of the host's team: the number that the ranks deregister */

static weir_status invalid(const char *call, const char *what)
{
    return weiri_fail(WEIR_ERR_INVALID, "%s: %s", call, what);
}

/* Closes a registration, including the reference that new_registered took. Its place is free afterwards. */
static void close_registered(weiri_team_memory *memory)
{
    weiri_team_memory_close(memory);
    weir_memory_destroy(memory->local);
    memset(memory, 0, sizeof *memory);
}

void weiri_registrations_close(weir_collective *collective)
{
    for (uint32_t i = 0; i < collective->registered_count; i++) {
        close_registered(&collective->registered[i]);
    }
    weiri_free(collective->registered);
}

/* The first place that is free, or the number of places. */
static uint32_t free_place(const weir_collective *collective)
{
    uint32_t place = 0;
    while (place < collective->registered_count && collective->registered[place].local != NULL) {
        place++;
    }
    return place;
}

/* Makes room for one more memory, with a reference to this rank's. */
static weir_status new_registered(weir_collective *collective, const char *call, weir_memory *memory,
                                  weiri_team_memory **out)
{
    if (memory == NULL || memory->comm != collective->comm || memory->rank != collective->comm->rank) {
        return invalid(call, "memory is not one of this rank and communicator");
    }
    const uint32_t place = free_place(collective);
    if (place == WEIRI_REGISTERED_MOST) {
        return weiri_fail(WEIR_ERR_LIMIT, "%s: %u memories are registered already", call, WEIRI_REGISTERED_MOST);
    }
    weir_status status = weiri_life_prepare_registrations(collective);
    if (status != WEIR_OK) {
        return status;
    }
    if (place == collective->registered_count) {
        weiri_team_memory *all = (weiri_team_memory *)weiri_realloc(collective->registered, (place + 1) * sizeof *all);
        if (all == NULL) {
            return weiri_fail_nomem(call);
        }
        memset(&all[place], 0, sizeof *all);
        collective->registered = all;
        collective->registered_count++;
    }
    *out = &collective->registered[place];
    weiri_memory_get(memory);
    (*out)->local = memory;
    return WEIR_OK;
}

/* Maps the memories of all ranks, and tells kernels where. */
static weir_status share(weir_collective *collective, const char *call, weiri_team_memory *registered)
{
    const weir_status status = weiri_team_share(&collective->host, call, registered->local, true, registered);
    return status != WEIR_OK
               ? status
               : weiri_life_write_row(collective, (uint32_t)(registered - collective->registered) + 1, registered);
}

weir_status weir_collective_register(weir_collective *collective, weir_memory *memory)
{
    static const char call[] = "weir_collective_register";
    weiri_team_memory *registered = NULL;
    weir_status status = weiri_comm_check("collective", collective == NULL ? NULL : collective->comm, call);
    if (status != WEIR_OK) {
        return status;
    }
    status =
        weiri_team_agree(&collective->host, NULL, call, new_registered(collective, call, memory, &registered), false);
    if (status == WEIR_OK) {
        status = weiri_team_agree(&collective->host, NULL, call, share(collective, call, registered), true);
    }
    if (status == WEIR_OK) {
        return WEIR_OK;
    }
    char text[512];
    snprintf(text, sizeof text, "%s", weir_last_error());
    if (registered != NULL) {
        close_registered(registered);
    }
    return weiri_fail(status, "%s", text);
}

/* Checks of this rank alone. */
static weir_status check_deregister(const weir_collective *collective, const char *call, const weir_memory *memory,
                                    uint32_t *index)
{
    *index = 0;
    while (*index < collective->registered_count && collective->registered[*index].local != memory) {
        ++*index;
    }
    if (memory == NULL || *index == collective->registered_count) {
        return invalid(call, memory == NULL ? "memory is NULL" : "memory is not registered with this collective");
    }
    const char *work = weiri_life_work(collective, true);
    return work == NULL ? WEIR_OK
                        : weiri_fail(WEIR_ERR_BUSY, "%s: a stream of the collective's operations %s", call, work);
}

weir_status weir_collective_deregister(weir_collective *collective, weir_memory *memory)
{
    static const char call[] = "weir_collective_deregister";
    uint32_t index = 0;
    weir_status status = weiri_comm_check("collective", collective == NULL ? NULL : collective->comm, call);
    if (status != WEIR_OK) {
        return status;
    }
    weiri_team *host = &collective->host;
    status = check_deregister(collective, call, memory, &index);
    host->words[NUMBER_WORD] = index + 1;
    host->names[NUMBER_WORD] = "the memory with number";
    status = weiri_team_agree(host, NULL, call, status, false);
    host->words[NUMBER_WORD] = 0;
    if (status == WEIR_OK) {
        status = weiri_team_agree(host, NULL, call, weiri_life_end_registration(collective, index), true);
    }
    if (status == WEIR_OK) {
        close_registered(&collective->registered[index]);
    }
    return status;
}
