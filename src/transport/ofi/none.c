/* none.c - stands in for the transport ofi in a build without libfabric's headers. It joins no ends. */
#include <stdio.h>

#include "src/host/base/error.h"
#include "src/transport/transport.h"

#define REASON_BYTES 256
#define REASON "built without libfabric (its headers are in libfabric-dev)"

static bool none_probe(char *reason)
{
    snprintf(reason, REASON_BYTES, REASON);
    return false;
}

static weir_status none_reach(weir_device *device, const weiri_end *local, const weiri_end *peer)
{
    (void)device;
    (void)local;
    (void)peer;
    return weiri_fail(WEIR_ERR_UNSUPPORTED, REASON);
}

const weiri_transport_ops weiri_ofi_ops = {
    .name = "ofi",
    .probe = none_probe,
    .reach = none_reach,
};
