/* weir/device/spin.h - the deadline of every wait in a kernel.
 *
 * A wait has two parts. The fast part, inline, reads up to WEIR_ARCH_FAST_READS times and calls nothing, so that
 * its code is a handful of instructions: a short wait on a GPU costs what its reads cost. The slow part is a
 * function that is not inlined:
 *
 *     weir_spin spin = weir_spin_begin();
 *     while (!there(...)) {
 *         weir_status st = weir_spin_next(&spin, control);
 *         if (st != WEIR_OK) return st;
 *     }
 *
 * Every WEIR_ARCH_SPIN_READS failed reads weir_spin_next looks at the communicator's control block, which on
 * a GPU costs a PCIe round trip: it ends the wait with the sticky error of an earlier failure, with the abort
 * word, or, when the communicator's timeout has passed since the wait's first look, with WEIR_ERR_TIMEOUT,
 * which becomes the sticky error.
 *
 * Built with WEIR_UNCHECKED_WAITS (a CMake option, for measuring what the checks cost) waits never end. */
#ifndef WEIR_DEVICE_SPIN_H
#define WEIR_DEVICE_SPIN_H

#include "weir/device/types.h"

typedef struct weir_spin {
    uint32_t reads;
    uint64_t since_ns; /* time of the first look; 0 before it */
} weir_spin;

WEIR_FN weir_spin weir_spin_begin(void)
{
    weir_spin spin;
    spin.reads = 0;
    spin.since_ns = 0;
    return spin;
}

/* The status with which waits of this communicator end now: WEIR_OK while nothing is wrong. */
WEIR_FN weir_status weir_dev_control_status(const weir_dev_control *control)
{
    int32_t error = (int32_t)weir_arch_load_relaxed_sys_u32((const uint32_t *)&control->error_status);
    int32_t abort_status = (int32_t)weir_arch_load_relaxed_sys_u32((const uint32_t *)&control->abort_status);
    return (weir_status)(error != 0 ? error : abort_status);
}

/* Makes `status` the communicator's sticky error unless it has one. Of errors that several threads report
 * at the same moment one stays. Returns `status`. */
WEIR_FN_COLD weir_status weir_dev_control_fail(weir_dev_control *control, weir_status status)
{
    if (weir_arch_load_relaxed_sys_u32((const uint32_t *)&control->error_status) == 0) {
        /* Release: who sees the error sees what was written about it before. */
        weir_arch_store_release_sys_u32((uint32_t *)&control->error_status, (uint32_t)status);
    }
    return status;
}

/* The error with which a group ends when one of its threads reported one. */
WEIR_FN_COLD weir_status weir_dev_control_error(const weir_dev_control *control)
{
    weir_status status = weir_dev_control_status(control);
    return status != WEIR_OK ? status : WEIR_ERR_ABORTED;
}

/* Looks at the control block for a wait whose first look was at `since_ns`. Returns the time of the first
 * look while the wait may go on, and a status, negative, when it must end. */
WEIR_FN_COLD int64_t weir_spin_look(weir_dev_control *control, uint64_t since_ns)
{
    uint64_t timeout_ns = weir_arch_load_relaxed_sys_u64(&control->timeout_ns);
    weir_status status = weir_dev_control_status(control);
    if (status != WEIR_OK) {
        return (int64_t)status;
    }
    uint64_t now = weir_arch_clock_ns();
    if (since_ns == 0) {
        since_ns = now;
    }
    /* Signed: the clocks of two multiprocessors may differ by a little. */
    if ((int64_t)(now - since_ns) < (int64_t)timeout_ns) {
        return (int64_t)since_ns;
    }
    return (int64_t)weir_dev_control_fail(control, WEIR_ERR_TIMEOUT);
}

WEIR_FN weir_status weir_spin_next(weir_spin *spin, weir_dev_control *control)
{
    spin->reads++;
    weir_arch_relax(spin->reads);
#if !defined(WEIR_UNCHECKED_WAITS)
    if (WEIR_UNLIKELY(spin->reads % WEIR_ARCH_SPIN_READS == 0)) {
        int64_t since_ns = weir_spin_look(control, spin->since_ns);
        if (since_ns < 0) {
            return (weir_status)since_ns;
        }
        spin->since_ns = (uint64_t)since_ns;
    }
#else
    (void)control;
#endif
    return WEIR_OK;
}

/* Whether a fast part that has `*reads` left goes on to the slow one. */
WEIR_FN int weir_spin_is_long(uint32_t *reads)
{
#if defined(WEIR_UNCHECKED_WAITS)
    weir_arch_relax(++*reads);
    return 0;
#else
    return WEIR_UNLIKELY(--*reads == 0);
#endif
}

/* The slow part of a wait until the word is greater than `value`. */
WEIR_FN_COLD weir_status weir_spin_above(const uint64_t *word, uint64_t value, weir_dev_control *control)
{
    weir_spin spin = weir_spin_begin();
    while (weir_arch_load_acquire_sys_u64(word) <= value) {
        weir_status status = weir_spin_next(&spin, control);
        if (status != WEIR_OK) {
            return status;
        }
    }
    return WEIR_OK;
}

#endif
