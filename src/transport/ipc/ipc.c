/* ipc.c - inside a host: devices map each other's memory. The device backend chooses the mechanism; this transport
 * knows which ends can reach each other. */
#include <stdio.h>
#include <string.h>

#include "src/host/base/error.h"
#include "src/transport/ipc/queue.h"

static bool same_process(const weiri_end *local, const weiri_end *peer)
{
    return memcmp(local->process, peer->process, sizeof local->process) == 0;
}

static bool probe(char *reason)
{
    snprintf(reason, 256,
             "between devices of one host: NVLink or PCIe between GPUs, shared memory between CPU devices");
    return true;
}

static weir_status reach(weir_device *device, const weiri_end *local, const weiri_end *peer)
{
    if (memcmp(local->host, peer->host, sizeof local->host) != 0) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "the peer is on another host");
    }
    return device->ops->reach(device, peer->device_kind, peer->device_uuid);
}

static bool keeps_lines(weir_device *device, const weiri_end *local, const weiri_end *peer)
{
    (void)local;
    return device->ops->keeps_lines(device, peer->device_uuid);
}

static weir_status map(weir_device *device, const weiri_end *local, const weiri_end *peer, const weiri_export *block,
                       int fd, weiri_block **out)
{
    return weiri_device_import(device, block, same_process(local, peer), fd, out);
}

const weiri_transport_ops weiri_ipc_ops = {
    .name = "ipc",
    .probe = probe,
    .reach = reach,
    .keeps_lines = keeps_lines,
    .map = map,
    .queue = &weiri_ipc_queue_ops,
};
