/* weir/device/impl/port_wait.h - waits for the signals of a port channel's peer, and how they end.
 *
 * Order, Threads, Blocking, Errors: as weir/device/port_channel.h. */
#ifndef WEIR_DEVICE_IMPL_PORT_WAIT_H
#define WEIR_DEVICE_IMPL_PORT_WAIT_H

#include "weir/device/impl/port_post.h"
#include "weir/device/semaphore.h"

/* Signals that have arrived: those of the peer's kernels and those of its host thread. A caller that acts on them
 * calls weir_arch_fence_acquire_sys afterwards: one fence serves both loads. Two acquire loads would run one after the
 * other. */
WEIR_FN uint64_t weir_dev_port_channel_signals(const weir_dev_semaphore *semaphore)
{
    return weir_arch_load_before_acquire_sys_u64(semaphore->inbound) +
           weir_arch_load_before_acquire_sys_u64(semaphore->inbound + 1);
}

/* The reason why waits for the peer's signals end: WEIR_OK, the error of this channel, or WEIR_ERR_REMOTE if the peer's
 * has failed. */
WEIR_FN weir_status weir_dev_port_channel_ended(const weir_dev_port_channel *channel)
{
    weir_status status = weir_dev_port_channel_is_rdma(channel) ? weir_dev_port_rdma_failed(&channel->rdma) : WEIR_OK;
    return status != WEIR_OK ? status
                             : (weir_status)(int32_t)weir_arch_load_acquire_sys_u32(
                                   (const uint32_t *)&channel->queue.progress->ended);
}

/* The slow part of a wait for more than `consumed` signals. Begins with a check of the control block when the wait is
 * due. After each check of the control block it checks the channel, too. A signal that arrived before the channel
 * failed still counts. */
WEIR_FN_COLD weir_status weir_dev_port_channel_await(const weir_dev_port_channel *channel, uint64_t consumed)
{
    const weir_dev_semaphore *semaphore = &channel->semaphore;
    weir_spin spin = weir_spin_begin();
    weir_status status = weir_spin_is_due(consumed) ? weir_dev_semaphore_status(semaphore) : WEIR_OK;
    weir_status ended = WEIR_OK;
    if (!weir_dev_port_channel_is_rdma(channel)) {
        ended = weir_dev_progress_unstarted(channel->queue.progress);
    }
    while (status == WEIR_OK && weir_dev_port_channel_signals(semaphore) <= consumed) {
        if (ended != WEIR_OK) {
            return ended;
        }
        status = weir_spin_step(&spin, semaphore->control);
        if (spin.reads % WEIR_ARCH_SPIN_READS == 0) {
            ended = weir_dev_port_channel_ended(channel);
        }
    }
    weir_arch_fence_acquire_sys();
    return weir_dev_control_end_wait(semaphore->control, status,
                                     weir_dev_semaphore_note(semaphore, WEIR_DOING_PORT_WAIT));
}

#endif
