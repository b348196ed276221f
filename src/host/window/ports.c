/* ports.c - the port channels of a window, made in the steps of ports.h.
 *
 * Each step does one thing for every device whose memory is not mapped here: check finds a transport, connect makes a
 * connection, meet a semaphore. Open makes one proxy, a channel of each semaphore over the memories of the rings, and
 * copies its handle to the device. Attach gives the channels a further memory, and its numbers to the window's table of
 * places. An error gets the call and the device in front of its text. */
#include "src/host/window/ports.h"

#include <stdio.h>

#include "src/host/base/error.h"
#include "src/host/channel/port_channel.h"

#define REQUESTS 4u       /* of a rank that may be under way */
#define SLOTS_LEAST 2048u /* of the proxy's fifo */

/* Puts the call and the device in front of the error's text. */
static weir_status explain(const weiri_team *team, const char *call, uint32_t index, weir_status status)
{
    return status == WEIR_OK
               ? WEIR_OK
               : weiri_fail(status, "%s: port channel to rank %u: %s", call, team->ranks[index], weir_last_error());
}

/* ---- steps with each other device ---------------------------------------------------------------------------- */

typedef struct step {
    weiri_window_ports *ports;
    weiri_team *team;
    const char *transport;
} step;

weir_status weiri_window_ports_check(const weiri_window_ports *ports, const weiri_team *team, const char *call,
                                     const char *transport)
{
    weir_comm *comm = team->comm;
    const char *only = comm->ordered ? NULL : transport;
    const weiri_transport_ops *found;
    weir_status status = weiri_transport_check_names(transport);
    if (status != WEIR_OK) {
        return weiri_fail(status, "%s: opts.transport: %s", call, weir_last_error());
    }
    for (uint32_t k = 0; k < team->size && status == WEIR_OK; k++) {
        if (ports->to[k]) {
            status =
                weiri_transport_choose(comm->device, &comm->end, &comm->peers[team->ranks[k]].end, only, &found, NULL);
            status = explain(team, call, k, status);
        }
    }
    return status;
}

static weir_status begin_connection(void *context, uint32_t index, weir_future **future)
{
    const step *s = (const step *)context;
    const weir_connection_opts over = { .size = sizeof over, .transport = s->transport };
    return weir_connection_create_async(s->team->comm, s->team->ranks[index], s->team->tag,
                                        s->ports->to[index] ? &over : NULL, &s->team->connections[index], future);
}

weir_status weiri_window_ports_connect(weiri_window_ports *ports, weiri_team *team, const char *call,
                                       const char *transport)
{
    step context = { ports, team, transport };
    return weiri_team_each(team, call, begin_connection, &context);
}

static weir_status begin_semaphore(void *context, uint32_t index, weir_future **future)
{
    const step *s = (const step *)context;
    return s->ports->to[index] ? weir_semaphore_create_async(s->team->connections[index], s->team->tag, NULL,
                                                             &s->ports->semaphores[index], future)
                               : WEIR_OK;
}

weir_status weiri_window_ports_meet(weiri_window_ports *ports, weiri_team *team, const char *call)
{
    step context = { ports, team, NULL };
    return weiri_team_each(team, call, begin_semaphore, &context);
}

/* ---- channels ------------------------------------------------------------------------------------------------ */

static uint32_t credits_of(uint32_t ranks)
{
    const uint64_t credits = (uint64_t)REQUESTS * ranks;
    return credits < WEIR_PROXY_CREDITS_DEFAULT ? WEIR_PROXY_CREDITS_DEFAULT
           : credits > WEIR_PROXY_CREDITS_MAX   ? WEIR_PROXY_CREDITS_MAX
                                                : (uint32_t)credits;
}

static weir_status open_channel(weiri_window_ports *ports, const weiri_team *team, uint32_t index,
                                const weiri_team_memory *rings, uint32_t credits, char *handles)
{
    const weir_port_channel_opts opts = { .size = sizeof opts,
                                          .direct_bytes = WEIR_PORT_DIRECT_NEVER,
                                          .credits = credits };
    weir_dev_port_channel handle;
    weir_status status = weir_port_channel_create(ports->proxy, ports->semaphores[index], rings->remote[index],
                                                  rings->local, &opts, &ports->channels[index]);
    if (status == WEIR_OK) {
        status = weiri_port_channel_make_vital(ports->channels[index]);
    }
    if (status == WEIR_OK) {
        status = weir_port_channel_device(ports->channels[index], &handle);
    }
    return status == WEIR_OK
               ? weir_device_copy(team->comm->device, handles + index * sizeof handle, &handle, sizeof handle)
               : status;
}

weir_status weiri_window_ports_open(weiri_window_ports *ports, const weiri_team *team, const char *call,
                                    const weiri_team_memory *rings, uint32_t ranks, char *handles)
{
    const uint32_t credits = credits_of(ranks);
    const weir_proxy_opts opts = { .size = sizeof opts, .slots = credits > SLOTS_LEAST ? credits : SLOTS_LEAST };
    for (uint32_t k = 0; k < team->size; k++) {
        weir_status status = WEIR_OK;
        if (ports->to[k] && ports->proxy == NULL) {
            status = weir_proxy_create(team->comm, &opts, &ports->proxy);
        }
        if (ports->to[k] && status == WEIR_OK) {
            status = open_channel(ports, team, k, rings, credits, handles);
        }
        if (status != WEIR_OK) {
            return explain(team, call, k, status);
        }
    }
    return ports->proxy != NULL ? weir_proxy_start(ports->proxy) : WEIR_OK;
}

weir_status weiri_window_ports_attach(const weiri_window_ports *ports, const weiri_team *team, const char *call,
                                      const weiri_team_memory *memory, weir_dev_window_place *places)
{
    weir_status status = WEIR_OK;
    for (uint32_t k = 0; k < team->size && status == WEIR_OK; k++) {
        if (!ports->to[k]) {
            continue;
        }
        status = weir_port_channel_attach(ports->channels[k], memory->remote[k], &places[k].remote);
        if (status == WEIR_OK) {
            status = weir_port_channel_attach(ports->channels[k], memory->local, &places[k].local);
        }
        if (status == WEIR_OK) {
            weiri_port_channel_describe(ports->channels[k], places[k].remote, places[k].local, &places[k].port);
        }
        status = explain(team, call, k, status);
    }
    return status;
}

void weiri_window_ports_close(weiri_window_ports *ports)
{
    for (uint32_t k = 0; k < WEIRI_TEAM_RANKS; k++) {
        weir_port_channel_destroy(ports->channels[k]);
        weir_semaphore_destroy(ports->semaphores[k]);
    }
    weir_proxy_destroy(ports->proxy);
}
