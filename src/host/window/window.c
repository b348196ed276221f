/* window.c - notified windows: create, register and destroy.
 *
 * Each device allocates two memories. Other devices store into the shared one: the rings of its ranks, the positions
 * that targets have taken, the words of the barrier. The private one has what only this device's kernels use: tickets,
 * heads, and the tables of devices and memories. include/weir/device/impl/window_layout.h has the places in both.
 *
 * The steps of create are those of a team: agree on the opts, connect, share the memory of rings, make port channels
 * (ports.c), fill the tables. A device becomes known to the kernels of another one in the last step, when its rings
 * exist. */
#include "weir/window.h"

#include <stdio.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/comm/exchange.h"
#include "src/host/window/ports.h"
#include "weir/device/impl/window_layout.h"

#define RANKS_CPU 2u
#define NOTIFICATIONS 128u
#define NOTIFICATIONS_MOST (1u << 20)

/* Words that devices compare; create sets the others. */
#define WORD_STRIDE 4u
#define WORD_BYTES 5u

/* A registered memory of all devices. */
typedef struct registered {
    weiri_team_memory memory;
    uint64_t stride;
    uint64_t bytes;
} registered;

struct weir_window {
    weir_comm *comm;
    weiri_team team;         /* the devices */
    weiri_team_memory rings; /* the shared memory of each device */
    weir_memory *own;        /* the private memory of this one */
    weiri_window_ports ports;
    registered *registered[WEIR_WINDOW_MEMORIES];
    uint32_t registered_count;
    uint32_t host_ranks; /* opts.host_ranks */
    uint32_t ranks;      /* of each device */
    uint32_t count;      /* words of a ring */
    weir_window_layout layout;
    weir_dev_window device;
};

static weir_status invalid(const char *call, const char *what)
{
    return weiri_fail(WEIR_ERR_INVALID, "%s: %s", call, what);
}

/* ---- ways ---------------------------------------------------------------------------------------------------- */

/* Whether kernels of this device store into memory of device `index`, another one. */
static bool is_mapped(const weir_window *window, uint32_t index)
{
    const weiri_team *team = &window->team;
    return window->host_ranks != 0 ? index / window->host_ranks == team->rank / window->host_ranks
                                   : window->comm->peers[team->ranks[index]].mapper != NULL;
}

static uint32_t way_to(const weir_window *window, uint32_t index)
{
    return index == window->team.rank ? WEIR_WINDOW_OWN
           : window->ports.to[index]  ? WEIR_WINDOW_PORT
                                      : WEIR_WINDOW_MAPPED;
}

/* Why the memory of device `index` is not mapped. */
static void explain_port(const weir_window *window, uint32_t index, char *text, size_t bytes)
{
    weir_comm *comm = window->comm;
    const weiri_end *peer = &comm->peers[window->team.ranks[index]].end;
    if (window->host_ranks != 0) {
        snprintf(text, bytes, "opts.host_ranks puts it on another host");
        return;
    }
    const weiri_transport_ops *transport;
    snprintf(text, bytes, "no transport maps memory");
    for (uint32_t i = 0; (transport = weiri_transport_at(i)) != NULL; i++) {
        if (transport->map != NULL) {
            const bool reaches = transport->reach(comm->device, &comm->end, peer) == WEIR_OK;
            snprintf(text, bytes, "%s: %s", transport->name,
                     reaches ? "WEIR_TRANSPORT does not name it" : weir_last_error());
        }
    }
}

/* ---- create -------------------------------------------------------------------------------------------------- */

static uint32_t next_power_of_two(uint32_t value)
{
    uint32_t power = 1;
    while (power < value) {
        power *= 2;
    }
    return power;
}

/* Checks the opts, and takes sizes from them. */
static weir_status take_opts(weir_window *window, const weir_window_opts *opts)
{
    static const char call[] = "weir_window_create";
    weir_device_info info;
    weir_device_get_info(window->comm->device, &info, sizeof info);
    const uint32_t ranks = opts->ranks != 0 ? opts->ranks : info.warps ? info.multiprocessors : RANKS_CPU;
    const uint32_t notifications = opts->notifications != 0 ? opts->notifications : NOTIFICATIONS;
    const uint64_t all = (uint64_t)ranks * window->team.size;
    if (opts->kind != WEIR_MEMORY_DEVICE && opts->kind != WEIR_MEMORY_HOST) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: unknown kind %d", call, (int)opts->kind);
    }
    if (notifications > NOTIFICATIONS_MOST) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: opts.notifications is %u, but at most %u are possible", call,
                          notifications, NOTIFICATIONS_MOST);
    }
    if (opts->host_ranks != 0 && window->team.size % opts->host_ranks != 0) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: %u devices cannot be divided into hosts of %u", call,
                          window->team.size, opts->host_ranks);
    }
    if (all > WEIR_WINDOW_RANKS) {
        return weiri_fail(WEIR_ERR_LIMIT, "%s: %u devices of %u ranks each, but at most %u ranks are possible", call,
                          window->team.size, ranks, WEIR_WINDOW_RANKS);
    }
    window->host_ranks = opts->host_ranks;
    for (uint32_t k = 0; k < window->team.size; k++) {
        window->ports.to[k] = k != window->team.rank && !is_mapped(window, k);
    }
    window->ranks = ranks;
    window->count = 2 * next_power_of_two(notifications);
    window->layout = weir_window_layout_of(window->team.size, ranks, window->count);
    const uint64_t rings = opts->kind == WEIR_MEMORY_DEVICE ? window->layout.shared_bytes : 0;
    const uint64_t bytes = rings + window->layout.private_bytes;
    return info.memory_bytes == 0 || bytes <= info.memory_bytes /* 0: the device does not know it */
               ? WEIR_OK
               : weiri_fail(WEIR_ERR_LIMIT,
                            "%s: %u ranks on each of %u devices, with %u notifications of each device, take %llu bytes "
                            "of the device, which has %llu",
                            call, ranks, window->team.size, window->count / 2, (unsigned long long)bytes,
                            (unsigned long long)info.memory_bytes);
}

/* Values that all devices must have in common. */
static void set_words(weir_window *window, const weir_window_opts *opts)
{
    static const char *const names[] = { "opts.ranks", "opts.notifications", "opts.kind", "opts.host_ranks", "stride",
                                         "bytes" };
    const uint64_t words[] = { window->ranks, window->count / 2, opts->kind, opts->host_ranks };
    memcpy(window->team.words, words, sizeof words);
    memcpy(window->team.names, names, sizeof names);
}

/* Whether the memory of each mapped device is mapped. */
static weir_status check_mapped(const weir_window *window, const weiri_team_memory *memory, const char *call)
{
    const weiri_team *team = &window->team;
    for (uint32_t k = 0; k < team->size; k++) {
        if (way_to(window, k) == WEIR_WINDOW_MAPPED && weir_memory_pointer(memory->remote[k]) == NULL) {
            return weiri_fail(WEIR_ERR_UNSUPPORTED, "%s: memory of rank %u is not mapped here", call, team->ranks[k]);
        }
    }
    return WEIR_OK;
}

/* Opens the port channels, and stores the rows of the devices, when the memory of all is shared. */
static weir_status fill_devices(weir_window *window)
{
    weir_comm *comm = window->comm;
    const weiri_team *team = &window->team;
    char *own = (char *)weir_memory_pointer(window->own);
    weir_dev_window_device rows[WEIRI_TEAM_RANKS];
    memset(rows, 0, sizeof rows);
    for (uint32_t k = 0; k < team->size; k++) {
        rows[k].way = way_to(window, k);
        rows[k].peer = team->ranks[k];
        if (rows[k].way == WEIR_WINDOW_PORT) {
            rows[k].channel = (const weir_dev_port_channel *)(own + window->layout.channels) + k;
        } else {
            rows[k].shared = (char *)weir_memory_pointer(weiri_team_memory_of(&window->rings, k));
        }
    }
    weir_window_place(&window->device, team->rank, team->size, window->ranks, window->count,
                      (char *)weir_memory_pointer(window->rings.local), own);
    window->device.barrier.control = comm->slabs.control_device;
    weir_status status = weiri_window_ports_open(&window->ports, team, "weir_window_create", &window->rings,
                                                 window->ranks, own + window->layout.channels);
    return status == WEIR_OK
               ? weir_device_copy(comm->device, own + window->layout.devices, rows, team->size * sizeof rows[0])
               : status;
}

static weir_status allocate_memories(weir_window *window, const weir_window_opts *opts)
{
    const weir_memory_opts rings = { .size = sizeof rings, .kind = opts->kind };
    weir_status status = weir_memory_allocate(window->comm, window->layout.shared_bytes, &rings, &window->rings.local);
    return status == WEIR_OK ? weir_memory_allocate(window->comm, window->layout.private_bytes, NULL, &window->own)
                             : status;
}

/* The steps of create that the devices take together. `mine`: the outcome of this device's part so far. */
static weir_status open_window(weir_window *window, const weir_window_opts *opts, weir_status mine)
{
    static const char call[] = "weir_window_create";
    weiri_team *team = &window->team;
    if (mine == WEIR_OK) {
        mine = weiri_window_ports_check(&window->ports, team, call, opts->transport);
    }
    if (mine == WEIR_OK) {
        mine = allocate_memories(window, opts);
    }
    weir_status status = weiri_team_agree(team, NULL, call, mine, false);
    if (status == WEIR_OK) {
        status = weiri_window_ports_connect(&window->ports, team, call, opts->transport);
        status = weiri_team_agree(team, NULL, call, status, true);
    }
    if (status == WEIR_OK) {
        status = weiri_team_share(team, call, window->rings.local, false, &window->rings);
        status = status == WEIR_OK ? check_mapped(window, &window->rings, call) : status;
        status = weiri_team_agree(team, NULL, call, status, true);
    }
    if (status == WEIR_OK) {
        status = weiri_team_agree(team, NULL, call, weiri_window_ports_meet(&window->ports, team, call), true);
    }
    return status == WEIR_OK ? weiri_team_agree(team, NULL, call, fill_devices(window), true) : status;
}

static void close_registered(registered *memory)
{
    if (memory != NULL) {
        weiri_team_memory_close(&memory->memory);
        weir_memory_destroy(memory->memory.local);
        weiri_free(memory);
    }
}

static void close_window(weir_window *window)
{
    weiri_window_ports_close(&window->ports);
    for (uint32_t i = 0; i < window->registered_count; i++) {
        close_registered(window->registered[i]);
    }
    weiri_team_memory_close(&window->rings);
    weiri_team_close(&window->team);
    weir_memory_destroy(window->own);
    weir_memory_destroy(window->rings.local);
    weiri_comm_put(window->comm);
    weiri_free(window);
}

/* The team of the window's devices. It takes no memory: a device without any can still report that to the others. */
static weir_status find_team(weiri_team *team, weir_comm *comm, const weir_group *group, const char *call)
{
    uint32_t rank = 0;
    uint32_t size = 0;
    weir_status status = weiri_group_check(comm, group, WEIRI_TEAM_RANKS, call, &rank, &size);
    weiri_team_init(team, comm, WEIRI_TAG_WINDOW);
    for (uint32_t i = 0; i < size && status == WEIR_OK; i++) {
        weiri_team_add(team, weiri_group_rank(group, i));
    }
    return status;
}

weir_status weir_window_create(weir_comm *comm, const weir_window_opts *opts, weir_window **out)
{
    static const char call[] = "weir_window_create";
    weir_window_opts options;
    weiri_team team;
    weir_status status = weiri_comm_check("comm", comm, call);
    if (status != WEIR_OK) {
        return status;
    }
    if (!WEIRI_OPTS_OK(opts)) {
        return invalid(call, WEIRI_OPTS_ERROR(opts));
    }
    weiri_opts_copy(&options, sizeof options, opts);
    status = find_team(&team, comm, options.group, call);
    if (status != WEIR_OK) {
        return status;
    }
    if (out == NULL) {
        return weiri_team_agree(&team, NULL, call, weiri_fail_null(call, "out"), false);
    }
    weir_window *window = (weir_window *)weiri_alloc(1, sizeof *window);
    if (window == NULL) {
        return weiri_team_agree(&team, NULL, call, weiri_fail_nomem(call), false);
    }
    window->comm = comm;
    window->team = team;
    weiri_comm_get(comm);
    status = take_opts(window, &options);
    set_words(window, &options);
    status = open_window(window, &options, status);
    if (status != WEIR_OK) {
        char text[512];
        snprintf(text, sizeof text, "%s", weir_last_error());
        close_window(window);
        return weiri_fail(status, "%s", text);
    }
    *out = window;
    return WEIR_OK;
}

void weir_window_destroy(weir_window *window)
{
    if (window != NULL && !weiri_comm_forked(window->comm)) {
        close_window(window);
    }
}

/* ---- register ------------------------------------------------------------------------------------------------ */

static weir_status check_parts(const weir_window *window, const weir_memory *memory, uint64_t stride, uint64_t bytes,
                               const char *call)
{
    const uint64_t size = weir_memory_bytes(memory);
    const uint32_t others = window->ranks - 1;
    if (bytes == 0) {
        return invalid(call, "bytes is 0");
    }
    return bytes <= size && (others == 0 || stride <= (size - bytes) / others)
               ? WEIR_OK
               : weiri_fail(WEIR_ERR_RANGE,
                            "%s: %u parts of %llu bytes with stride %llu exceed the memory, which has %llu bytes", call,
                            window->ranks, (unsigned long long)bytes, (unsigned long long)stride,
                            (unsigned long long)size);
}

/* Checks the arguments, and makes a row with a reference on the memory; it is not counted yet. */
static weir_status new_registered(const weir_window *window, weir_memory *memory, uint64_t stride, uint64_t bytes,
                                  const uint32_t *id, const char *call, registered **out)
{
    if (id == NULL || memory == NULL) {
        return weiri_fail_null(call, id == NULL ? "id" : "memory");
    }
    if (memory->comm != window->comm || memory->rank != window->comm->rank) {
        return invalid(call, "memory belongs to another rank or communicator");
    }
    if (window->registered_count == WEIR_WINDOW_MEMORIES) {
        return weiri_fail(WEIR_ERR_LIMIT, "%s: %u memories are registered already", call, WEIR_WINDOW_MEMORIES);
    }
    weir_status status = check_parts(window, memory, stride, bytes, call);
    if (status != WEIR_OK) {
        return status;
    }
    registered *made = (registered *)weiri_alloc(1, sizeof *made);
    if (made == NULL) {
        return weiri_fail_nomem(call);
    }
    weiri_memory_get(memory);
    made->memory.local = memory;
    made->stride = stride;
    made->bytes = bytes;
    *out = made;
    return WEIR_OK;
}

/* Stores the rows of a memory that is shared. No handle knows its id yet. */
static weir_status fill_memory(const weir_window *window, const registered *made, uint32_t id, const char *call)
{
    const uint32_t devices = window->team.size;
    char *table = (char *)weir_memory_pointer(window->own) + window->layout.table;
    const weir_dev_window_memory row = { made->stride, made->bytes };
    weir_dev_window_place places[WEIRI_TEAM_RANKS];
    memset(places, 0, sizeof places);
    for (uint32_t k = 0; k < devices; k++) {
        if (way_to(window, k) != WEIR_WINDOW_PORT) {
            places[k].base = (char *)weir_memory_pointer(weiri_team_memory_of(&made->memory, k));
        }
    }
    weir_status status = weiri_window_ports_attach(&window->ports, &window->team, call, &made->memory, places);
    if (status == WEIR_OK) {
        status = weir_device_copy(window->comm->device,
                                  table + offsetof(weir_dev_window_table, places) +
                                      (uint64_t)id * devices * sizeof places[0],
                                  places, devices * sizeof places[0]);
    }
    return status == WEIR_OK ? weir_device_copy(window->comm->device, table + id * sizeof row, &row, sizeof row)
                             : status;
}

weir_status weir_window_register(weir_window *window, weir_memory *memory, uint64_t stride, uint64_t bytes,
                                 uint32_t *id)
{
    static const char call[] = "weir_window_register";
    registered *made = NULL;
    weir_status status = weiri_comm_check("window", window == NULL ? NULL : window->comm, call);
    if (status != WEIR_OK) {
        return status;
    }
    weiri_team *team = &window->team;
    team->words[WORD_STRIDE] = stride;
    team->words[WORD_BYTES] = bytes;
    status = weiri_team_agree(team, NULL, call, new_registered(window, memory, stride, bytes, id, call, &made), false);
    if (status == WEIR_OK) {
        status = weiri_team_share(team, call, memory, false, &made->memory);
        if (status == WEIR_OK) {
            status = check_mapped(window, &made->memory, call);
        }
        if (status == WEIR_OK) {
            status = fill_memory(window, made, window->registered_count, call);
        }
        status = weiri_team_agree(team, NULL, call, status, true);
    }
    if (status != WEIR_OK) {
        char text[512];
        snprintf(text, sizeof text, "%s", weir_last_error());
        close_registered(made);
        return weiri_fail(status, "%s", text);
    }
    *id = window->registered_count;
    window->registered[window->registered_count++] = made;
    window->device.memories = window->registered_count;
    return WEIR_OK;
}

/* ---- the rest ------------------------------------------------------------------------------------------------- */

void weir_window_device(const weir_window *window, weir_dev_window *out)
{
    if (out == NULL) {
        return;
    }
    memset(out, 0, sizeof *out);
    if (window != NULL) {
        *out = window->device;
    }
}

weir_status weir_window_get_info(weir_window *window, uint32_t device, weir_window_info *info)
{
    static const char call[] = "weir_window_get_info";
    static const char *const ways[] = {
        [WEIR_WINDOW_OWN] = "own", [WEIR_WINDOW_MAPPED] = "mapped", [WEIR_WINDOW_PORT] = "port"
    };
    if (window == NULL || info == NULL) {
        return weiri_fail_null(call, window == NULL ? "window" : "info");
    }
    uint32_t index = 0;
    while (index < window->team.size && window->team.ranks[index] != device) {
        index++;
    }
    if (index == window->team.size) {
        return weiri_fail(WEIR_ERR_INVALID, "%s: rank %u is no device of the window", call, device);
    }
    const uint32_t way = way_to(window, index);
    memset(info, 0, sizeof *info);
    info->way = ways[way];
    info->transport = way != WEIR_WINDOW_OWN ? weir_connection_transport(window->team.connections[index]) : "";
    info->engine = "";
    if (way == WEIR_WINDOW_PORT) {
        weir_port_channel_info port;
        weir_port_channel_get_info(window->ports.channels[index], &port);
        info->engine = port.engine;
        if (port.reason[0] != '\0') {
            snprintf(info->reason, sizeof info->reason, "%s", port.reason);
        } else {
            explain_port(window, index, info->reason, sizeof info->reason);
        }
    }
    return WEIR_OK;
}

uint32_t weir_window_ranks(const weir_window *window) { return window != NULL ? window->team.size * window->ranks : 0; }

uint32_t weir_window_first(const weir_window *window) { return window != NULL ? window->team.rank * window->ranks : 0; }

uint64_t weir_window_bytes(const weir_window *window)
{
    return window != NULL ? weir_memory_bytes(window->rings.local) + weir_memory_bytes(window->own) : 0;
}
