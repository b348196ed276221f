/* cpus.c - CPUs near a device, from /sys, and the placement of the calling thread. */
#define _GNU_SOURCE 1

#include "src/host/base/cpus.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Reads a number of at most seven digits and advances *text. */
static bool read_number(const char **text, uint32_t *out)
{
    uint32_t value = 0;
    uint32_t digits = 0;
    for (; **text >= '0' && **text <= '9' && digits < 7; digits++) {
        value = value * 10 + (uint32_t)(*(*text)++ - '0');
    }
    *out = value;
    return digits != 0;
}

bool weiri_cpus_parse(const char *text, weiri_cpus *out)
{
    bool any = false;
    memset(out, 0, sizeof *out);
    for (;;) {
        uint32_t first;
        if (!read_number(&text, &first)) {
            return false;
        }
        uint32_t last = first;
        if (*text == '-') {
            text++;
            if (!read_number(&text, &last) || last < first) {
                return false;
            }
        }
        for (uint32_t cpu = first; cpu <= last && cpu < WEIRI_CPUS_MAX; cpu++) {
            out->bits[cpu / 64] |= (uint64_t)1 << cpu % 64;
            any = true;
        }
        if (*text != ',') {
            break;
        }
        text++;
    }
    return any && (*text == '\0' || (*text == '\n' && text[1] == '\0'));
}

bool weiri_cpus_near(const char *address, weiri_cpus *out)
{
    char path[96];
    char text[1024];
    int length = snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/local_cpulist", address);
    if (address[0] == '\0' || length < 0 || (size_t)length >= sizeof path) {
        return false;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t bytes = read(fd, text, sizeof text - 1);
    close(fd);
    if (bytes <= 0) {
        return false;
    }
    text[bytes] = '\0';
    return weiri_cpus_parse(text, out);
}

bool weiri_cpus_pin(const weiri_cpus *cpus)
{
    union {
        cpu_set_t set;
        uint64_t bits[WEIRI_CPUS_MAX / 64];
    } mask;
    bool any = false;
    memset(&mask, 0, sizeof mask);
    if (sched_getaffinity(0, sizeof mask, &mask.set) != 0) {
        return false;
    }
    for (uint32_t i = 0; i < WEIRI_CPUS_MAX / 64; i++) {
        mask.bits[i] &= cpus->bits[i];
        any = any || mask.bits[i] != 0;
    }
    return any && sched_setaffinity(0, sizeof mask, &mask.set) == 0;
}
