/* transport.c - the registry of transports, and the choice of the transport that joins two ends. */
#include "src/transport/transport.h"

#include <stdio.h>
#include <string.h>

#include "src/host/base/error.h"
#include "src/host/base/fault.h"
#include "src/host/base/process.h"

/* In order of preference. */
static const weiri_transport_ops *const registry[] = { &weiri_ipc_ops, &weiri_ib_ops, &weiri_ofi_ops };

#define TRANSPORTS (sizeof registry / sizeof registry[0])

static weiri_fault fault;

uint64_t weiri_transport_fail_nth(uint64_t n) { return weiri_fault_set(&fault, n); }

weir_status weiri_transport_fault(const weiri_transport_ops *transport, const char *operation)
{
    return weiri_fault_due(&fault)
               ? weiri_fail(WEIR_ERR_SYSTEM, "transport %s: %s: fault of a test", transport->name, operation)
               : WEIR_OK;
}

const weiri_transport_ops *weiri_transport_at(uint32_t index) { return index < TRANSPORTS ? registry[index] : NULL; }

static void describe(const weiri_transport_ops *transport, weir_transport_info *info)
{
    memset(info, 0, sizeof *info);
    snprintf(info->name, sizeof info->name, "%s", transport->name);
    info->works = transport->probe(info->reason);
    info->memory_channels = transport->map != NULL;
    info->port_channels = transport->queue != NULL;
    info->adds = transport->queue != NULL && transport->queue->add != NULL;
}

weir_status weir_transport_get(uint32_t index, weir_transport_info *info)
{
    if (info == NULL) {
        return weiri_fail_null("weir_transport_get", "info");
    }
    const weiri_transport_ops *transport = weiri_transport_at(index);
    if (transport == NULL) {
        return weiri_fail(WEIR_ERR_RANGE, "weir_transport_get: transport %u does not exist; there are %zu", index,
                          TRANSPORTS);
    }
    describe(transport, info);
    return WEIR_OK;
}

weir_status weir_transport_find(weir_device *device, const weir_device *peer, weir_transport_info *info)
{
    weiri_env env;
    weiri_end ends[2];
    const weiri_transport_ops *transport = NULL;
    if (device == NULL || info == NULL) {
        return weiri_fail_null("weir_transport_find", device == NULL ? "device" : "info");
    }
    if (device->pid != (int)weiri_process_id()) {
        return weiri_fail(WEIR_ERR_FORKED, "weir_transport_find: the device belongs to process %d", device->pid);
    }
    weir_status status = weiri_env_read(&env);
    if (status != WEIR_OK) {
        return status;
    }
    memset(ends, 0, sizeof ends);
    for (uint32_t i = 0; i < 2; i++) {
        const weir_device *here = i == 0 || peer == NULL ? device : peer;
        weiri_end *end = &ends[i];
        end->rank = i;
        end->host[0] = i == 1 && peer == NULL;
        memcpy(end->device_uuid, here->info.uuid, sizeof end->device_uuid);
        snprintf(end->device_kind, sizeof end->device_kind, "%s", here->info.kind);
        end->works = UINT8_MAX;
        status = weiri_transport_order(&env, end->order);
        if (status != WEIR_OK) {
            return status;
        }
    }
    status = weiri_transport_choose(device, &ends[0], &ends[1], NULL, &transport, NULL);
    if (status == WEIR_OK) {
        describe(transport, info);
    }
    return status;
}

/* ---- orders --------------------------------------------------------------------------------------------- */

/* 1 + the index of a transport; 0 for an unknown name. */
static uint8_t find(const char *name, size_t length)
{
    for (uint8_t i = 0; i < TRANSPORTS; i++) {
        if (strlen(registry[i]->name) == length && memcmp(registry[i]->name, name, length) == 0) {
            return (uint8_t)(i + 1);
        }
    }
    return 0;
}

/* Whether the order, which ends at the first 0, contains `transport`. */
static bool is_listed(const uint8_t order[WEIRI_TRANSPORTS_MAX], uint8_t transport)
{
    bool found = false;
    for (uint32_t i = 0; i < WEIRI_TRANSPORTS_MAX && order[i] != 0; i++) {
        found = found || order[i] == transport;
    }
    return found;
}

/* "" means all transports. WEIR_ERR_INVALID for an unknown name. */
static weir_status read_order(const char *names, uint8_t order[WEIRI_TRANSPORTS_MAX])
{
    uint32_t count = 0;
    memset(order, 0, WEIRI_TRANSPORTS_MAX);
    while (names[0] == '\0' && count < TRANSPORTS) {
        order[count] = (uint8_t)(count + 1);
        count++;
    }
    for (const char *name = names[0] != '\0' ? names : NULL; name != NULL;) {
        size_t length = strcspn(name, ",");
        const uint8_t transport = find(name, length);
        if (transport == 0) {
            return weiri_fail(WEIR_ERR_INVALID, "transport \"%.*s\" does not exist", (int)length, name);
        }
        if (!is_listed(order, transport)) {
            order[count++] = transport;
        }
        name = name[length] == ',' ? name + length + 1 : NULL;
    }
    return WEIR_OK;
}

weir_status weiri_transport_check_names(const char *names)
{
    uint8_t order[WEIRI_TRANSPORTS_MAX];
    return names != NULL ? read_order(names, order) : WEIR_OK;
}

weir_status weiri_transport_order(const weiri_env *env, uint8_t order[WEIRI_TRANSPORTS_MAX])
{
    char why[160];
    if (read_order(env->transport, order) == WEIR_OK) {
        return WEIR_OK;
    }
    snprintf(why, sizeof why, "%s", weir_last_error());
    return weiri_fail(WEIR_ERR_ENV, "WEIR_TRANSPORT: %s", why);
}

bool weiri_transport_order_ok(const uint8_t order[WEIRI_TRANSPORTS_MAX])
{
    bool ok = order[0] != 0;
    for (uint32_t i = 0; i < WEIRI_TRANSPORTS_MAX; i++) {
        ok = ok && order[i] <= TRANSPORTS && (i == 0 || order[i] == 0 || order[i - 1] != 0);
    }
    return ok;
}

uint8_t weiri_transport_look(weir_device *device, const weiri_end *local)
{
    uint8_t works = 0;
    for (uint32_t i = 0; i < TRANSPORTS; i++) {
        if (is_listed(local->order, (uint8_t)(i + 1)) && registry[i]->reach(device, local, local) == WEIR_OK) {
            works |= (uint8_t)(1u << i);
        }
    }
    return works;
}

/* ---- choosing ------------------------------------------------------------------------------------------- */

/* Whether both ends may use a transport and have it. Reports what this end lacks first, because only here the cause is
 * known. */
static weir_status agree(weir_device *device, uint8_t transport, const weiri_end *local, const weiri_end *peer)
{
    const weiri_end *ends[] = { local, peer };
    for (uint32_t i = 0; i < 2; i++) {
        if (!is_listed(ends[i]->order, transport)) {
            return weiri_fail(WEIR_ERR_UNSUPPORTED, "rank %u: WEIR_TRANSPORT does not name it", ends[i]->rank);
        }
    }
    weir_status status = registry[transport - 1]->reach(device, local, peer);
    return status != WEIR_OK || (peer->works >> (transport - 1) & 1) != 0
               ? status
               : weiri_fail(WEIR_ERR_UNSUPPORTED, "rank %u: it does not work there", peer->rank);
}

/* Appends the reason why a transport does not join two ends. */
static void add_reason(char reasons[WEIRI_REASONS_BYTES], const weiri_transport_ops *transport)
{
    const size_t used = strlen(reasons);
    snprintf(reasons + used, WEIRI_REASONS_BYTES - used, "%s%s: %s", used == 0 ? "" : "; ", transport->name,
             weir_last_error());
}

weir_status weiri_transport_choose(weir_device *device, const weiri_end *local, const weiri_end *peer, const char *only,
                                   const weiri_transport_ops **out, char *reasons)
{
    char own[WEIRI_REASONS_BYTES];
    uint8_t named[WEIRI_TRANSPORTS_MAX];
    const uint8_t *order = local->rank < peer->rank ? local->order : peer->order;
    reasons = reasons != NULL ? reasons : own;
    reasons[0] = '\0';
    if (weiri_fault_due(&fault)) {
        return weiri_fail(WEIR_ERR_SYSTEM, "transport: choose: fault of a test");
    }
    if (only != NULL && only[0] != '\0') {
        weir_status status = read_order(only, named);
        if (status != WEIR_OK) {
            return status;
        }
        order = named;
    }
    for (uint32_t i = 0; i < WEIRI_TRANSPORTS_MAX && order[i] != 0; i++) {
        const weiri_transport_ops *transport = registry[order[i] - 1];
        if ((order == named ? transport->reach(device, local, peer) : agree(device, order[i], local, peer)) ==
            WEIR_OK) {
            *out = transport;
            return WEIR_OK;
        }
        add_reason(reasons, transport);
    }
    return weiri_fail(WEIR_ERR_UNSUPPORTED, "no transport joins the two ranks: %s", reasons);
}

const weiri_transport_ops *weiri_transport_mapper(weir_device *device, const weiri_end *local, const weiri_end *peer)
{
    for (uint32_t i = 0; i < WEIRI_TRANSPORTS_MAX && local->order[i] != 0; i++) {
        const weiri_transport_ops *transport = registry[local->order[i] - 1];
        if (transport->map != NULL && transport->reach(device, local, peer) == WEIR_OK) {
            return transport;
        }
    }
    return NULL;
}

weir_status weiri_transport_map(const weiri_transport_ops *transport, weir_device *device, const weiri_end *local,
                                const weiri_end *peer, const weiri_export *block, int fd, weiri_block **out)
{
    weir_status status = weiri_transport_fault(transport, "map");
    return status != WEIR_OK ? status : transport->map(device, local, peer, block, fd, out);
}
