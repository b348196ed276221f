/* swnic_fault.c - faults on demand: scripts of the form "name:number,number;name:number". README.md has the names.
 *
 * Most hit some of a series of events: from the first argument on (1 is the next event), as many as the second says,
 * each of them with the probability that the third gives in thousandths; SWNIC_SEED makes that repeatable. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "swnic.h"

static const char *const names[SWNIC_FAULTS] = {
    [SWNIC_FAULT_REMOTE_ACCESS] = "remote-access",
    [SWNIC_FAULT_LOST_REQUEST] = "lost-request",
    [SWNIC_FAULT_LOST_RESPONSE] = "lost-response",
    [SWNIC_FAULT_NOT_READY] = "not-ready",
    [SWNIC_FAULT_ERROR] = "error",
    [SWNIC_FAULT_SLOW_DOORBELL] = "slow-doorbell",
    [SWNIC_FAULT_LINK_DOWN] = "link-down",
    [SWNIC_FAULT_NO_ATOMICS] = "no-atomics",
    [SWNIC_FAULT_DEVICE] = "device",
};

/* One entry of a script, which ends at `end`. */
static int read_entry(swnic_nic *nic, const char *text, const char *end)
{
    size_t length = strcspn(text, ":;");
    for (int i = 0; i < SWNIC_FAULTS; i++) {
        if (strlen(names[i]) != length || memcmp(names[i], text, length) != 0) {
            continue;
        }
        swnic_fault fault = { .set = true, .arg = { 1, 1, 1000 }, .since_ns = swnic_now() };
        const char *at = text + length;
        for (uint32_t k = 0; at < end; k++) {
            char *rest;
            if (k == 3 || *++at < '0' || *at > '9') {
                return EINVAL;
            }
            fault.arg[k] = strtoull(at, &rest, 10);
            at = rest;
            if (at != end && *at != ',') {
                return EINVAL;
            }
        }
        nic->faults[i] = fault;
        return 0;
    }
    return EINVAL;
}

int swnic_fault_read(swnic_nic *nic, const char *script)
{
    const char *seed = getenv("SWNIC_SEED");
    nic->random = nic->random != 0 ? nic->random : (seed != NULL ? (uint32_t)strtoul(seed, NULL, 10) : 0) * 2 + 1;
    for (const char *at = script != NULL ? script : ""; *at != '\0';) {
        const char *end = at + strcspn(at, ";");
        int error = read_entry(nic, at, end);
        if (error != 0) {
            return error;
        }
        at = end + (*end == ';');
    }
    return 0;
}

bool swnic_fault_hits(swnic_nic *nic, swnic_fault_name name)
{
    swnic_fault *fault = &nic->faults[name];
    if (!fault->set) {
        return false;
    }
    /* The second argument of "error" is the syndrome. */
    const uint64_t times = name == SWNIC_FAULT_ERROR ? 1 : fault->arg[1];
    if (++fault->count < fault->arg[0] || fault->count - fault->arg[0] >= times) {
        return false;
    }
    nic->random = nic->random * 1664525u + 1013904223u;
    bool hit = (nic->random >> 8) % 1000 < fault->arg[2];
    if (hit) {
        swnic_trace(nic, "fault %s", names[name]);
    }
    return hit;
}

void swnic_fault_time(swnic_nic *nic)
{
    const uint64_t now = swnic_now();
    const swnic_fault *down = &nic->faults[SWNIC_FAULT_LINK_DOWN], *device = &nic->faults[SWNIC_FAULT_DEVICE];
    bool up = true;
    if (down->set) {
        const uint64_t ms = (now - down->since_ns) / 1000000;
        up = ms < down->arg[0] || ms - down->arg[0] >= down->arg[1];
    }
    if (up != nic->link_up) {
        nic->link_up = up;
        swnic_trace(nic, "link %s", up ? "up" : "down");
        swnic_report(nic, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, NULL);
    }
    if (device->set && !nic->fatal && (now - device->since_ns) / 1000000 >= device->arg[0]) {
        nic->fatal = true;
        swnic_trace(nic, "device fails");
        swnic_report(nic, IBV_EVENT_DEVICE_FATAL, NULL);
    }
}
