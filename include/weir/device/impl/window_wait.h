/* weir/device/impl/window_wait.h - the waits of a window: for notifications, and for the other devices at a barrier.
 *
 * The leader of a group takes notifications from the rings. What the other threads need, a word or a status, it passes
 * through memory (weir_window_passed). At a barrier each device stores its round into the memory of the others, and
 * waits until theirs have come.
 *
 * Order, Threads, Blocking, Errors: as weir/device/window.h. */
#ifndef WEIR_DEVICE_IMPL_WINDOW_WAIT_H
#define WEIR_DEVICE_IMPL_WINDOW_WAIT_H

#include "weir/device/impl/window_ends.h"

/* weir_dev_window_wait; with `pass` the leader stores the last word for the group. */
WEIR_FN weir_status weir_dev_window_collect(const weir_dev_window_rank *self, uint32_t source, uint32_t tag,
                                            uint64_t count, int pass, weir_coop coop)
{
    if (WEIR_UNLIKELY(!weir_dev_window_is_group(coop))) {
        return WEIR_ERR_INVALID;
    }
    weir_status status = weir_dev_window_check_wait(self, source, tag);
    if (WEIR_UNLIKELY(status != WEIR_OK) || count == 0) {
        return status;
    }
    if (weir_coop_leads(coop)) {
        status = weir_window_collect(self->window, self->index, source, tag, count, pass);
    }
    return weir_coop_agree(coop, self->window->barrier.control, status);
}

/* Brings the leader's result of a poll, which may be WEIR_PENDING or WEIR_ERR_LIMIT, to all threads. */
WEIR_FN weir_status weir_dev_window_share(const weir_dev_window_rank *self, weir_status status, weir_coop coop)
{
    weir_alias_u64 *passed = (weir_alias_u64 *)weir_window_passed(self->window, self->index) + 1;
    if (coop.scope == WEIR_COOP_THREAD) {
        return status;
    }
    if (weir_coop_leads(coop)) {
        weir_arch_store_u64(passed, (uint64_t)(int64_t)status);
    }
    weir_status shared = weir_coop_agree(coop, self->window->barrier.control, WEIR_OK);
    if (shared == WEIR_OK) {
        shared = (weir_status)(int64_t)weir_arch_load_u64(passed);
    }
    /* All threads have read it before the leader's next call writes it again. */
    const weir_status met = weir_coop_agree(coop, self->window->barrier.control, WEIR_OK);
    return WEIR_UNLIKELY(met != WEIR_OK) ? met : shared;
}

/* ---- barrier --------------------------------------------------------------------------------------------------- */

/* The slow part of the barrier's wait for device `device`. */
WEIR_FN_COLD weir_status weir_dev_window_await_device(const weir_dev_window *window, uint32_t device, uint64_t round)
{
    const uint64_t *arrived = (const uint64_t *)((const char *)window->rings + window->arrived_at) + device;
    return weir_spin_above(arrived, round - 1, 1, window->barrier.control,
                           weir_dev_note_of(WEIR_DOING_WINDOW_BARRIER, window->to[device].peer, round, 0, 0));
}

/* Signals the other devices that this one has arrived, and waits for them. The threads of one block share the work. */
WEIR_FN weir_status weir_dev_window_meet_devices(const weir_dev_window *window, uint64_t round, weir_coop block)
{
    const uint64_t *arrived = (const uint64_t *)((const char *)window->rings + window->arrived_at);
    weir_status status = WEIR_OK;
    WEIR_ROLLED
    for (uint32_t device = block.rank; device < window->devices && status == WEIR_OK; device += block.size) {
        const uint64_t place = window->arrived_at + window->device * sizeof(uint64_t);
        if (WEIR_UNLIKELY(window->to[device].way == WEIR_WINDOW_PORT)) {
            status = weir_dev_window_far(window, device * window->ranks,
                                         weir_window_port_value(window, device, place, round));
        } else if (device != window->device) {
            weir_arch_store_release_sys_u64((uint64_t *)(window->to[device].shared + place), round);
        }
    }
    WEIR_ROLLED
    for (uint32_t device = block.rank; device < window->devices && status == WEIR_OK; device += block.size) {
        uint32_t reads = WEIR_ARCH_FAST_READS;
        int is_long = device != window->device && weir_spin_is_due(round);
        WEIR_ROLLED
        while (device != window->device && !is_long && weir_arch_load_acquire_sys_u64(arrived + device) < round) {
            is_long = weir_spin_is_long(&reads);
        }
        if (WEIR_UNLIKELY(is_long)) {
            status = WEIR_SLOW(weir_dev_window_await_device(window, device, round));
        }
    }
    return status;
}

#endif
