/* weir/device/impl/spin.h - the deadline of every wait in a kernel, and the record of a kernel's failure.
 *
 * A wait has two parts. The fast part is inline, reads up to WEIR_ARCH_FAST_READS times and calls nothing. It takes few
 * instructions: a short wait on a GPU costs only its reads. The slow part is a function that is not inlined:
 *
 *     weir_spin spin = weir_spin_begin();
 *     while (!there(...)) {
 *         weir_status st = weir_spin_step(&spin, control);
 *         if (st != WEIR_OK) return weir_dev_control_end_wait(control, st, note);
 *     }
 *
 * The note says what the wait is for. The first thread of a communicator that fails stores its note in the control
 * block, for the text of the error.
 *
 * A kernel whose waits all end in their fast part must also end after the communicator has failed. So one in
 * WEIR_ARCH_LOOK_WAITS of these waits checks the control block (weir_spin_is_due). It is chosen by a number that the
 * wait has anyway: the signals consumed so far, or the epoch of the packets.
 *
 * weir_spin_step checks the communicator's control block after every WEIR_ARCH_SPIN_READS failed reads. The check ends
 * the wait with the sticky error of an earlier failure or with the abort word. It ends the wait with WEIR_ERR_TIMEOUT
 * if the communicator's timeout has passed since the wait's first check; this becomes the sticky error.
 *
 * Built with WEIR_UNCHECKED_WAITS (a CMake option to measure the cost of the checks), waits never end. */
#ifndef WEIR_DEVICE_IMPL_SPIN_H
#define WEIR_DEVICE_IMPL_SPIN_H

#include "weir/device/impl/arch_name.h"
#include "weir/device/types.h"

/* The result of a wait, or of a step of one, whose deadline has passed and which nobody has reported. No status has
 * this value. */
#define WEIR_SPIN_LATE ((weir_status)-32)

typedef struct weir_spin {
    uint32_t reads;
    uint64_t since_ns; /* time of the first check; 0 before it */
} weir_spin;

WEIR_FN weir_spin weir_spin_begin(void)
{
    weir_spin spin;
    spin.reads = 0;
    spin.since_ns = 0;
    return spin;
}

/* Makes a control block of zeros ready: version, and the timeout of a wait. */
WEIR_FN void weir_dev_control_begin(weir_dev_control *control, uint64_t timeout_ns)
{
    control->version = WEIR_DEV_VERSION;
    control->timeout_ns = timeout_ns;
    control->home = control;
}

/* Makes a control block of zeros in the device's memory ready, for the waits of the communicator of `home`. */
WEIR_FN void weir_dev_control_begin_relay(weir_dev_control *control, uint64_t timeout_ns, weir_dev_control *home,
                                          uint32_t relay_ns)
{
    weir_dev_control_begin(control, timeout_ns);
    control->home = home;
    control->relay_ns = relay_ns;
}

/* Looks at home whether the communicator has failed. The last such look was at `since`. Of all threads that call it
 * with this value, one looks: the reads of many would follow each other. Lanes that call it together get its answer. */
WEIR_FN int weir_dev_control_look_home(weir_dev_control *control, uint32_t since, uint32_t now)
{
    int ended = 0;
    if (weir_arch_leads_active() &&
        weir_arch_compare_exchange_relaxed_dev_u32(&control->relayed_ns, since, now) == since &&
        weir_arch_load_relaxed_sys_u32(&control->home->ended) != 0) {
        weir_arch_store_relaxed_sys_u32(&control->ended, 1);
        ended = 1;
    }
    return weir_arch_active_any(ended);
}

/* Whether the communicator has failed. On a GPU the answer may be relay_ns old. */
WEIR_FN int weir_dev_control_has_ended(weir_dev_control *control)
{
    /* All loads are under way at once. */
    const uint32_t ended = weir_arch_load_relaxed_sys_u32(&control->ended);
    const uint32_t since = weir_arch_load_relaxed_sys_u32(&control->relayed_ns);
    const uint32_t relay_ns = weir_arch_load_relaxed_sys_u32(&control->relay_ns);
    const uint32_t now = weir_arch_clock_low_ns();
    if (ended == 0 && now - since >= relay_ns) {
        return weir_dev_control_look_home(control, since, now);
    }
    return ended != 0;
}

/* Shows an error that the caller has stored in `home` to the waits that look. */
WEIR_FN void weir_dev_control_end(weir_dev_control *home) { weir_arch_store_release_sys_u32(&home->ended, 1); }

/* The error of a communicator that has failed, or that another thread is about to announce; WEIR_OK without one. It
 * reads the home, so it knows of each error that the host has stored. */
WEIR_FN weir_status weir_dev_control_ended(weir_dev_control *control)
{
    const weir_dev_control *home = control->home;
    int32_t error = (int32_t)weir_arch_load_relaxed_sys_u32((const uint32_t *)&home->claimed);
    int32_t abort_status = (int32_t)weir_arch_load_relaxed_sys_u32((const uint32_t *)&home->abort_status);
    return (weir_status)(error != 0 ? error : abort_status);
}

/* The status with which waits of this communicator end now; WEIR_OK while there is no error. */
WEIR_FN weir_status weir_dev_control_status(weir_dev_control *control)
{
    return WEIR_UNLIKELY(weir_dev_control_has_ended(control)) ? weir_dev_control_ended(control) : WEIR_OK;
}

WEIR_FN weir_dev_note weir_dev_note_of(uint32_t doing, uint32_t peer, uint64_t first, uint64_t second, uint64_t third)
{
    weir_dev_note note;
    note.peer = peer;
    note.doing = (uint16_t)doing;
    note.index = 0;
    note.numbers[0] = first;
    note.numbers[1] = second;
    note.numbers[2] = third;
    return note;
}

/* Stores the kernel's name, cut to leave room for a NUL. */
WEIR_FN void weir_dev_control_store_name(weir_dev_control *control, int has_name)
{
    WEIR_ROLLED
    for (uint32_t i = 0; i < WEIR_KERNEL_NAME_WORDS; i++) {
        const uint64_t mask = i + 1 == WEIR_KERNEL_NAME_WORDS ? UINT64_MAX >> 8 : UINT64_MAX;
        weir_arch_store_relaxed_sys_u64(&control->kernel[i], has_name ? weir_arch_kernel_name(i) & mask : 0);
    }
}

WEIR_FN void weir_dev_control_store_note(weir_dev_control *control, weir_status status, weir_dev_note note)
{
    uint64_t *record = (uint64_t *)&control->record;
    weir_arch_store_relaxed_sys_u64(record, note.peer | (uint64_t)note.doing << 32 | (uint64_t)note.index << 48);
    for (uint32_t i = 0; i < 3; i++) {
        weir_arch_store_relaxed_sys_u64(record + 1 + i, note.numbers[i]);
    }
    if (status == WEIR_ERR_TIMEOUT) {
        weir_arch_store_relaxed_sys_u64(record + 4, weir_arch_load_relaxed_sys_u64(&control->timeout_ns));
    }
}

/* Makes `status` the communicator's sticky error, with `note` as its record, unless a kernel has failed before. If
 * several threads fail at the same moment, one of them is the first. The others return at once: the record may not be
 * complete yet, and the host waits up to a second for it. A thread must not wait here until another one has stored:
 * ptxas would then join the lanes again behind each branch of each wait, in all kernels
 * (docs/notes/2026-11-29-joined-lanes.md). */
WEIR_FN_COLD void weir_dev_control_record(weir_dev_control *home, weir_status status, weir_dev_note note)
{
    /* Only threads of this device claim the record. The host reads the claim. */
    if (weir_arch_compare_exchange_release_sys_u64(&home->claimed, 0, (uint32_t)status) != 0) {
        return;
    }
    weir_dev_control_store_note(home, status, note);
    weir_arch_await_kernel_name();
    weir_dev_control_store_name(home, weir_arch_kernel_has_name());
    /* Release: a reader that sees the error also sees the record, and the other memory that this thread wrote about
     * it. */
    weir_arch_store_release_sys_u32((uint32_t *)&home->error_status, (uint32_t)status);
    weir_dev_control_end(home);
}

/* weir_dev_control_record for a kernel, whose control block may have its home elsewhere. */
WEIR_FN void weir_dev_control_report(weir_dev_control *control, weir_status status, weir_dev_note note)
{
    weir_arch_store_relaxed_sys_u32(&control->ended, 1); /* looks find the claim at home */
    weir_dev_control_record(control->home, status, note);
}

/* weir_dev_control_report for calls that return a status: it returns `status`. */
WEIR_FN weir_status weir_dev_control_fail_in(weir_dev_control *control, weir_status status, weir_dev_note note)
{
    weir_dev_control_report(control, status, note);
    return status;
}

WEIR_FN weir_status weir_dev_control_fail(weir_dev_control *control, weir_status status)
{
    return WEIR_SLOW(
        weir_dev_control_fail_in(control, status, weir_dev_note_of(WEIR_DOING_UNKNOWN, WEIR_NO_PEER, 0, 0, 0)));
}

/* The error with which a group ends if one of its threads reported an error. */
WEIR_FN_COLD weir_status weir_dev_control_error(weir_dev_control *control)
{
    const weir_status status = weir_dev_control_ended(control);
    return status != WEIR_OK ? status : WEIR_ERR_ABORTED;
}

/* The result of a wait, or of a step of one, that has ended with `status`. WEIR_SPIN_LATE becomes the communicator's
 * error: a timeout with `note` as its record. */
WEIR_FN_COLD weir_status weir_dev_control_end_wait(weir_dev_control *control, weir_status status, weir_dev_note note)
{
    return status == WEIR_SPIN_LATE ? weir_dev_control_fail_in(control, WEIR_ERR_TIMEOUT, note) : status;
}

/* Checks the control block for a wait whose first check was at `since_ns`. Returns the time of the first check while
 * the wait may go on, and a negative status when it must end. */
WEIR_FN_COLD int64_t weir_spin_look(weir_dev_control *control, uint64_t since_ns)
{
    const weir_status status = weir_dev_control_status(control);
    if (status != WEIR_OK) {
        return (int64_t)status;
    }
    const uint64_t now = weir_arch_clock_ns();
    if (since_ns == 0) {
        return (int64_t)now;
    }
    /* Signed: the clocks of two multiprocessors may differ by a little. */
    return (int64_t)(now - since_ns) < (int64_t)control->timeout_ns ? (int64_t)since_ns : (int64_t)WEIR_SPIN_LATE;
}

/* After a failed read. Returns WEIR_OK when the wait goes on, the communicator's error, or WEIR_SPIN_LATE when the
 * deadline has passed; the caller then calls weir_dev_control_end_wait. The caller makes the note only then: a wait
 * keeps no part of it in registers. */
WEIR_FN weir_status weir_spin_step(weir_spin *spin, weir_dev_control *control)
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

/* weir_spin_step for a wait without a note; reports a timeout at once. */
WEIR_FN weir_status weir_spin_next(weir_spin *spin, weir_dev_control *control)
{
    const weir_status status = weir_spin_step(spin, control);
    return WEIR_UNLIKELY(status == WEIR_SPIN_LATE) ? weir_dev_control_fail(control, WEIR_ERR_TIMEOUT) : status;
}

/* Whether wait number `number` checks the control block even if it need not wait. Numbers grow by one from 0; the first
 * wait does not check. */
WEIR_FN int weir_spin_is_due(uint64_t number)
{
#if defined(WEIR_UNCHECKED_WAITS)
    (void)number;
    return 0;
#else
    return ((uint32_t)number & (WEIR_ARCH_LOOK_WAITS - 1)) == WEIR_ARCH_LOOK_WAITS - 1;
#endif
}

/* weir_spin_is_due for a thread that has only some of the numbers, for example every second or every 256th ticket. A
 * hash chooses one in WEIR_ARCH_LOOK_TICKETS. With 64, one of the first 572 numbers is chosen, for numbers from 0, 1
 * or 2 on in steps of up to 4,096. */
WEIR_FN int weir_spin_is_due_ticket(uint64_t ticket)
{
#if defined(WEIR_UNCHECKED_WAITS)
    (void)ticket;
    return 0;
#else
    uint32_t hash = (uint32_t)ticket * 0x9e3779b1u;
    hash = (hash ^ hash >> 15) * 0x85ebca6bu;
    return hash > UINT32_MAX - UINT32_MAX / WEIR_ARCH_LOOK_TICKETS;
#endif
}

/* The check of a wait that is due: the communicator's error, or WEIR_OK. */
WEIR_FN_COLD weir_status weir_spin_look_once(weir_dev_control *control) { return weir_dev_control_status(control); }

/* Whether the fast part, with `*reads` reads left, goes on to the slow part. */
WEIR_FN int weir_spin_is_long(uint32_t *reads)
{
#if defined(WEIR_UNCHECKED_WAITS)
    weir_arch_relax(++*reads);
    return 0;
#else
    return WEIR_UNLIKELY(--*reads == 0);
#endif
}

/* The slow part of a wait until the word is greater than `value`. Checks the control block first if `due`, and reports
 * a timeout. */
WEIR_FN_COLD weir_status weir_spin_above(const uint64_t *word, uint64_t value, int due, weir_dev_control *control,
                                         weir_dev_note note)
{
    weir_spin spin = weir_spin_begin();
    weir_status status = due ? weir_dev_control_status(control) : WEIR_OK;
    while (status == WEIR_OK && weir_arch_load_acquire_sys_u64(word) <= value) {
        status = weir_spin_step(&spin, control);
    }
    return weir_dev_control_end_wait(control, status, note);
}

#endif
