/* weir/device/impl/semaphore_token.h - the tokens of a semaphore: signals to the host, and waits for a count.
 *
 * Order, Threads, Blocking, Errors: as weir/device/semaphore.h. */
#ifndef WEIR_DEVICE_IMPL_SEMAPHORE_TOKEN_H
#define WEIR_DEVICE_IMPL_SEMAPHORE_TOKEN_H

#include "weir/device/impl/spin.h"

/* The note of a failing call on the semaphore. */
WEIR_FN weir_dev_note weir_dev_semaphore_note(const weir_dev_semaphore *semaphore, uint32_t doing)
{
    weir_dev_note note = weir_dev_note_of(doing, semaphore->peer, semaphore->id, 0, 0);
    note.index = (uint16_t)(semaphore->size - semaphore->count);
    return note;
}

/* The note of a call, with the address of the semaphore's inbound token, by which the host finds the semaphore. Waits
 * and signals have such notes: ptxas loads the arguments of a function that is not inlined when the kernel begins, and
 * if the handle comes first, its other fields lie in the second cache line of the kernel's arguments. */
WEIR_FN weir_dev_note weir_dev_semaphore_token_note(const uint64_t *inbound, uint32_t doing)
{
    return weir_dev_note_of(doing, WEIR_NO_PEER, (uint64_t)(uintptr_t)inbound, 0, 0);
}

/* A signal to the host. The count is kept in device memory and stored: a store reaches the host 0.5 us earlier than an
 * addition. A thread that another thread overtakes replaces its own count by the newer one: the token may step back for
 * a moment, but ends at the count. The last count to be stored is replaced, if it is not the newest one. There is no
 * loop: weir_dev_control_report says what loops cost. Arguments are passed by value: taking the handle's address here
 * would spill it to local memory and cost 0.8 us in a put of 1 MiB. */
WEIR_FN_COLD void weir_dev_semaphore_signal_host(uint64_t *sent, uint64_t *outbound, uint32_t to_host,
                                                 weir_dev_control *control, const uint64_t *inbound)
{
    if (to_host == WEIR_SEMAPHORE_UNMAPPED) {
        weir_dev_control_report(control, WEIR_ERR_UNSUPPORTED,
                                weir_dev_semaphore_token_note(inbound, WEIR_DOING_SIGNAL));
        return;
    }
    const uint64_t count = weir_arch_fetch_add_acq_rel_dev_u64(sent, 1) + 1;
    weir_arch_store_release_sys_u64(outbound, count);
    /* A plain load could run before the store, miss the thread that overtakes, and leave its count overwritten. */
    const uint64_t newest = weir_arch_fetch_add_acq_rel_dev_u64(sent, 0);
    if (newest != count) {
        /* The host only reads the token, so this need only be atomic among the threads of the device. */
        (void)weir_arch_compare_exchange_release_sys_u64(outbound, count, newest);
    }
}

/* The slow part of a wait: no signal has arrived yet, or the wait is due to check the control block. */
WEIR_FN_COLD weir_status weir_dev_semaphore_await_long(const uint64_t *inbound, uint64_t consumed,
                                                       weir_dev_control *control)
{
    return weir_spin_above(inbound, consumed, 1, control, weir_dev_semaphore_token_note(inbound, WEIR_DOING_WAIT));
}

/* Returns when more than `consumed` signals have arrived. */
WEIR_FN weir_status weir_dev_semaphore_await(const weir_dev_semaphore *semaphore, uint64_t consumed)
{
    uint32_t reads = weir_spin_is_due(consumed) ? 1 : WEIR_ARCH_FAST_READS;
    uint64_t count;
    int is_long;
    WEIR_ROLLED
    do {
        count = weir_arch_load_relaxed_sys_u64(semaphore->inbound);
        is_long = weir_spin_is_long(&reads); /* decided while the load is under way */
    } while ((count <= consumed) & !is_long);
    weir_arch_acquire_loaded_sys_u64(semaphore->inbound);
    return WEIR_UNLIKELY(is_long)
               ? WEIR_SLOW(weir_dev_semaphore_await_long(semaphore->inbound, consumed, semaphore->control))
               : WEIR_OK;
}

WEIR_FN weir_status weir_dev_semaphore_await_relaxed(const weir_dev_semaphore *semaphore, uint64_t consumed)
{
    uint32_t reads = weir_spin_is_due(consumed) ? 1 : WEIR_ARCH_FAST_READS;
    uint64_t count;
    int is_long;
    WEIR_ROLLED
    do {
        count = weir_arch_load_relaxed_sys_u64(semaphore->inbound);
        is_long = weir_spin_is_long(&reads); /* decided while the load is under way */
    } while ((count <= consumed) & !is_long);
    return WEIR_UNLIKELY(is_long)
               ? WEIR_SLOW(weir_dev_semaphore_await_long(semaphore->inbound, consumed, semaphore->control))
               : WEIR_OK;
}

/* weir_dev_semaphore_await for a count that is still being loaded: the first read of the token starts before the count
 * has arrived. Waiting for the count first costs a trip 6 %. */
WEIR_FN weir_status weir_dev_semaphore_await_loading(const weir_dev_semaphore *semaphore, uint64_t consumed)
{
    uint32_t reads = WEIR_ARCH_FAST_READS;
    uint64_t count = weir_arch_load_relaxed_sys_u64(semaphore->inbound);
    int is_long = weir_spin_is_due(consumed);
    WEIR_ROLLED
    while ((count <= consumed) & !is_long) {
        count = weir_arch_load_relaxed_sys_u64(semaphore->inbound);
        is_long = weir_spin_is_long(&reads);
    }
    weir_arch_acquire_loaded_sys_u64(semaphore->inbound);
    return WEIR_UNLIKELY(is_long)
               ? WEIR_SLOW(weir_dev_semaphore_await_long(semaphore->inbound, consumed, semaphore->control))
               : WEIR_OK;
}

WEIR_FN weir_status weir_dev_semaphore_await_loading_relaxed(const weir_dev_semaphore *semaphore, uint64_t consumed)
{
    uint32_t reads = WEIR_ARCH_FAST_READS;
    uint64_t count = weir_arch_load_relaxed_sys_u64(semaphore->inbound);
    int is_long = weir_spin_is_due(consumed);
    WEIR_ROLLED
    while ((count <= consumed) & !is_long) {
        count = weir_arch_load_relaxed_sys_u64(semaphore->inbound);
        is_long = weir_spin_is_long(&reads);
    }
    return WEIR_UNLIKELY(is_long)
               ? WEIR_SLOW(weir_dev_semaphore_await_long(semaphore->inbound, consumed, semaphore->control))
               : WEIR_OK;
}

#endif
