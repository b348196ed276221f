#include "src/transport/transport.h"

#include <stdio.h>
#include <string.h>

#include "src/host/base/error.h"
#include "src/host/base/fault.h"

/* In the order of preference. */
static const weiri_transport_ops *const registry[] = { &weiri_ipc_ops, &weiri_ib_ops, &weiri_ofi_ops };

#define TRANSPORTS (sizeof registry / sizeof registry[0])

static weiri_fault fault;

uint64_t weiri_transport_fail_nth(uint64_t n)
{
    return weiri_fault_set(&fault, n);
}

weir_status weiri_transport_fault(const weiri_transport_ops *transport, const char *operation)
{
    return weiri_fault_due(&fault)
               ? weiri_fail(WEIR_ERR_SYSTEM, "transport %s: %s: fault of a test", transport->name, operation)
               : WEIR_OK;
}

const weiri_transport_ops *weiri_transport_at(uint32_t index)
{
    return index < TRANSPORTS ? registry[index] : NULL;
}

weir_status weir_transport_get(uint32_t index, weir_transport_info *info)
{
    if (info == NULL) {
        return weiri_fail(WEIR_ERR_INVALID, "weir_transport_get: info is NULL");
    }
    const weiri_transport_ops *transport = weiri_transport_at(index);
    if (transport == NULL) {
        return weiri_fail(WEIR_ERR_RANGE, "weir_transport_get: transport %u of %zu", index, TRANSPORTS);
    }
    memset(info, 0, sizeof *info);
    snprintf(info->name, sizeof info->name, "%s", transport->name);
    info->works = transport->probe(info->reason);
    info->memory_channels = transport->map != NULL;
    info->port_channels = transport->queue != NULL;
    info->adds = transport->queue != NULL && transport->queue->add != NULL;
    return WEIR_OK;
}

static const weiri_transport_ops *find(const char *name, size_t length)
{
    for (uint32_t i = 0; i < TRANSPORTS; i++) {
        if (strlen(registry[i]->name) == length && memcmp(registry[i]->name, name, length) == 0) {
            return registry[i];
        }
    }
    return NULL;
}

/* Tries one transport; appends its reason to `reasons` when it does not join the two ends. */
static bool joins(const weiri_transport_ops *transport, weir_device *device, const weiri_end *local,
                  const weiri_end *peer, char *reasons, size_t capacity)
{
    if (transport->reach(device, local, peer) == WEIR_OK) {
        return true;
    }
    size_t used = strlen(reasons);
    snprintf(reasons + used, capacity - used, "%s%s: %s", used == 0 ? "" : "; ", transport->name, weir_last_error());
    return false;
}

weir_status weiri_transport_choose(weir_device *device, const weiri_end *local, const weiri_end *peer,
                                   const char *allowed, const weiri_transport_ops **out)
{
    if (weiri_fault_due(&fault)) {
        return weiri_fail(WEIR_ERR_SYSTEM, "transport: choose: fault of a test");
    }
    char reasons[384] = "";
    bool any = allowed == NULL || allowed[0] == '\0';
    for (uint32_t i = 0; any && i < TRANSPORTS; i++) {
        if (joins(registry[i], device, local, peer, reasons, sizeof reasons)) {
            *out = registry[i];
            return WEIR_OK;
        }
    }
    for (const char *name = any ? NULL : allowed; name != NULL;) {
        size_t length = strcspn(name, ",");
        const weiri_transport_ops *transport = find(name, length);
        if (transport == NULL) {
            return weiri_fail(WEIR_ERR_INVALID, "transport \"%.*s\" does not exist", (int)length, name);
        }
        if (joins(transport, device, local, peer, reasons, sizeof reasons)) {
            *out = transport;
            return WEIR_OK;
        }
        name = name[length] == ',' ? name + length + 1 : NULL;
    }
    return weiri_fail(WEIR_ERR_UNSUPPORTED, "no transport joins the two ranks: %s", reasons);
}

/* Whether a comma-separated list has the name. */
static bool names(const char *list, const char *name)
{
    while (list != NULL) {
        size_t length = strcspn(list, ",");
        if (strlen(name) == length && memcmp(name, list, length) == 0) {
            return true;
        }
        list = list[length] == ',' ? list + length + 1 : NULL;
    }
    return false;
}

const weiri_transport_ops *weiri_transport_mapper(weir_device *device, const weiri_end *local, const weiri_end *peer,
                                                  const char *allowed)
{
    const bool any = allowed == NULL || allowed[0] == '\0';
    for (uint32_t i = 0; i < TRANSPORTS; i++) {
        if (registry[i]->map != NULL && (any || names(allowed, registry[i]->name)) &&
            registry[i]->reach(device, local, peer) == WEIR_OK) {
            return registry[i];
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
