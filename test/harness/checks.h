/* checks.h - conditions around every test: no unexpected log line, and no leak.
 *
 * The log of a process is captured between weirt_checks_begin and weirt_checks_end. A line of level warn or error fails
 * the test unless a declared pattern matches it. weirt_ranks_run calls both around its ranks. Tests that use weir
 * without it call them. */
#ifndef WEIRT_CHECKS_H
#define WEIRT_CHECKS_H

#include "weir/weir.h"

WEIR_BEGIN_DECLS

typedef struct weirt_checks {
    int64_t allocations;
    uint32_t descriptors;
    uint32_t mappings; /* shared mappings */
} weirt_checks;

typedef void (*weirt_complain)(void *context, const char *text);

void weirt_checks_begin(weirt_checks *checks);
/* Calls `complain` for each failed condition. `device_state`: a GPU's driver may keep descriptors and mappings; they
 * are then not compared. */
void weirt_checks_end(const weirt_checks *checks, bool device_state, weirt_complain complain, void *context);

/* Allows log lines that contain `part` until weirt_checks_end. */
void weirt_log_allow(const char *part);
/* Allows `more` open descriptors, of a library that leaks them, until weirt_checks_end. */
void weirt_descriptors_allow(uint32_t more);
/* Captured lines that contain `part`. */
uint32_t weirt_log_count(const char *part);

uint32_t weirt_count_descriptors(void);
uint32_t weirt_count_mappings(bool shared_only);
int64_t weirt_count_allocations(void);
/* Of this process. A joined thread may still count for a moment. */
uint32_t weirt_count_threads(void);
uint64_t weirt_resident_bytes(void);

/* Fault injection: the n-th allocation, device or transport operation fails once; 0 turns it off. All return the number
 * of operations that were left: 0 if one has failed. */
uint64_t weirt_fail_allocation(uint64_t n);
uint64_t weirt_fail_device(uint64_t n);
uint64_t weirt_fail_transport(uint64_t n);

WEIR_END_DECLS

#endif
