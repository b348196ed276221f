/* checks.h - what must hold around a test: nothing unexpected in the log, nothing left behind.
 *
 * The log of a process is captured between weirt_checks_begin and weirt_checks_end. Lines of level warn and
 * error that no declared pattern matches fail the test. weirt_ranks_run does both around its ranks; tests that
 * use weir by themselves call them. */
#ifndef WEIRT_CHECKS_H
#define WEIRT_CHECKS_H

#include "weir/weir.h"

WEIR_BEGIN_DECLS

typedef struct weirt_checks {
    int64_t allocations;
    uint32_t descriptors;
    uint32_t mappings; /* shared ones */
} weirt_checks;

typedef void (*weirt_complain)(void *context, const char *text);

void weirt_checks_begin(weirt_checks *checks);
/* Calls `complain` for each thing that is wrong. `device_state`: a GPU's driver may keep descriptors and
 * mappings, which are then not compared. */
void weirt_checks_end(const weirt_checks *checks, bool device_state, weirt_complain complain, void *context);

/* Lines that contain `part` are fine until weirt_checks_end. */
void weirt_log_allow(const char *part);
/* Captured lines that contain `part`. */
uint32_t weirt_log_count(const char *part);

uint32_t weirt_count_descriptors(void);
uint32_t weirt_count_mappings(bool shared_only);
int64_t weirt_count_allocations(void);
/* Of this process; a thread that was joined may still count for a moment. */
uint32_t weirt_count_threads(void);
uint64_t weirt_resident_bytes(void);

/* Fault injection: the n-th allocation, device or transport operation fails once; 0 turns it off. All return how many
 * were left until then: 0 when it did fail. */
uint64_t weirt_fail_allocation(uint64_t n);
uint64_t weirt_fail_device(uint64_t n);
uint64_t weirt_fail_transport(uint64_t n);

WEIR_END_DECLS

#endif
