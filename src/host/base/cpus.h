/* cpus.h - the CPUs near a PCI device, and the calling thread's placement on them. */
#ifndef WEIRI_CPUS_H
#define WEIRI_CPUS_H

#include <stdbool.h>
#include <stdint.h>

#define WEIRI_CPUS_MAX 4096u

typedef struct weiri_cpus {
    uint64_t bits[WEIRI_CPUS_MAX / 64];
} weiri_cpus;

/* Parses a list in the format of the kernel, "0-3,8\n". CPUs from WEIRI_CPUS_MAX on are left out. False when the text
 * is malformed or names no CPU. */
bool weiri_cpus_parse(const char *text, weiri_cpus *out);
/* The CPUs near the PCI device at `address` ("0000:1b:00.0"); false when the kernel does not report them. */
bool weiri_cpus_near(const char *address, weiri_cpus *out);
/* Restricts the calling thread to those of its allowed CPUs that are in `cpus`. False, and nothing changes, when there
 * are none. */
bool weiri_cpus_pin(const weiri_cpus *cpus);

#endif
