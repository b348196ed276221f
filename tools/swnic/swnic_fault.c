/* swnic_fault.c - faults on demand: scripts of the form "name:number,number;name:number". README.md has the names.
 *
 * Most faults hit some of a series of events. The first number is the first event (1 is the next one), the second the
 * number of events, and the third the probability of each in thousandths. SWNIC_SEED makes this repeatable. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "swnic.h"

/* Names of faults with the default numbers. */
static const struct {
    const char *name;
    uint64_t arg[SWNIC_FAULT_NUMBERS];
} rows[SWNIC_FAULTS] = {
    [SWNIC_FAULT_REMOTE_ACCESS] = { "remote-access", { 1, 1, 1000, 0 } },
    [SWNIC_FAULT_LOST_REQUEST] = { "lost-request", { 1, 1, 1000, 0 } },
    [SWNIC_FAULT_LOST_RESPONSE] = { "lost-response", { 1, 1, 1000, 0 } },
    [SWNIC_FAULT_NOT_READY] = { "not-ready", { 1, 1, 1000, 0 } },
    [SWNIC_FAULT_FLAG_FIRST] = { "flag-first", { 1, 1, 1000, 10 } },
    [SWNIC_FAULT_TORN] = { "torn", { 1, 1, 1000, 0 } },
    [SWNIC_FAULT_LATE_COMPLETION] = { "late-completion", { 1, 1, 1000, 10 } },
    [SWNIC_FAULT_ERROR] = { "error", { 1, 1, 1000, 0 } },
    [SWNIC_FAULT_LOST_DOORBELL] = { "lost-doorbell", { 1, 1, 1000, 0 } },
    [SWNIC_FAULT_SLOW_DOORBELL] = { "slow-doorbell", { 1, 0, 0, 0 } },
    [SWNIC_FAULT_LINK_DOWN] = { "link-down", { 0, 1, 1, 10 } },
    [SWNIC_FAULT_SHAPE] = { "shape", { 0, 0, 0, 0 } },
    [SWNIC_FAULT_COUNTERS] = { "counters", { 0, 0, 0, 0 } },
    [SWNIC_FAULT_NO_ATOMICS] = { "no-atomics", { 0, 0, 0, 0 } },
    [SWNIC_FAULT_DEVICE] = { "device", { 0, 0, 0, 0 } },
    [SWNIC_FAULT_NO_DEVX] = { "no-devx", { 0, 0, 0, 0 } },
    [SWNIC_FAULT_NO_UMEM] = { "no-umem", { 1, 1, 1000, 0 } },
    [SWNIC_FAULT_NO_UAR] = { "no-uar", { 1, 1, 1000, 0 } },
    [SWNIC_FAULT_COMMAND] = { "command", { 1, 1, 1000, 0 } },
};

/* Reads one entry of a script, which ends at `end`. */
static int read_entry(swnic_nic *nic, const char *text, const char *end)
{
    size_t length = strcspn(text, ":;");
    for (int i = 0; i < SWNIC_FAULTS; i++) {
        if (strlen(rows[i].name) != length || memcmp(rows[i].name, text, length) != 0) {
            continue;
        }
        swnic_fault fault = { .set = true, .since_ns = swnic_now() };
        memcpy(fault.arg, rows[i].arg, sizeof fault.arg);
        const char *at = text + length;
        for (uint32_t k = 0; at < end; k++) {
            char *rest;
            if (k == SWNIC_FAULT_NUMBERS || *++at < '0' || *at > '9') {
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

uint32_t swnic_random(swnic_nic *nic)
{
    nic->random = nic->random * 1664525u + 1013904223u;
    return nic->random >> 8;
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
    bool hit = swnic_random(nic) % 1000 < fault->arg[2];
    if (hit) {
        swnic_trace(nic, "fault: %s", rows[name].name);
    }
    return hit;
}

void swnic_fault_time(swnic_nic *nic)
{
    const uint64_t now = swnic_now();
    const swnic_fault *down = &nic->faults[SWNIC_FAULT_LINK_DOWN], *device = &nic->faults[SWNIC_FAULT_DEVICE];
    bool up = true;
    if (down->set) {
        const uint64_t ms = (now - down->since_ns) / 1000000, cycle = down->arg[1] + down->arg[3];
        const uint64_t at = ms - down->arg[0];
        up = ms < down->arg[0] || cycle == 0 || at / cycle >= down->arg[2] || at % cycle >= down->arg[1];
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
