/* none.c - stands in for the transport ib in a build without infiniband/verbs.h. */
#include <stdio.h>

#include "src/host/base/error.h"
#include "src/transport/transport.h"

static const char missing[] = "this libweir was built without infiniband/verbs.h (libibverbs-dev)";

static bool probe(char *reason)
{
    snprintf(reason, 256, "%s", missing);
    return false;
}

static weir_status reach(weir_device *device, const weiri_end *local, const weiri_end *peer)
{
    (void)device;
    (void)local;
    (void)peer;
    return weiri_fail(WEIR_ERR_UNSUPPORTED, "%s", missing);
}

const weiri_transport_ops weiri_ib_ops = { .name = "ib", .probe = probe, .reach = reach };
