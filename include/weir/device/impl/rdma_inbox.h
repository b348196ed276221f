/* weir/device/impl/rdma_inbox.h - takes notices out of an inbox.
 *
 * weir/device/rdma_notice.h declares the calls, and includes this header at its end. The bodies need what it defines.
 * No other file includes this header.
 *
 * Order, Threads, Blocking, Errors: as weir/device/rdma_notice.h. */
#ifndef WEIR_DEVICE_IMPL_RDMA_INBOX_H
#define WEIR_DEVICE_IMPL_RDMA_INBOX_H

/* Takes the next notice: WEIR_OK, WEIR_PENDING without one, or WEIR_ERR_REMOTE. An entry that reports a failure
 * stays in the inbox: the next call finds it too. */
WEIR_FN weir_status weir_dev_rdma_take_notice(const weir_dev_rdma_inbox *inbox, weir_dev_rdma_notice *notice)
{
    const uint64_t taken = weir_arch_load_u64(inbox->taken);
    const uint32_t *entry = (const uint32_t *)(inbox->completions + (taken & (inbox->count - 1)) * WEIR_MLX5_BLOCK);
    const uint32_t tail = weir_arch_load_acquire_sys_u32(entry + 15);
    if (!weir_mlx5_is_new(tail, taken, inbox->count)) {
        return WEIR_PENDING;
    }
    notice->qpn = weir_mlx5_receiver(weir_arch_load_relaxed_sys_u32(entry + 14));
    if (weir_mlx5_kind(tail) != WEIR_MLX5_RECEIVED) {
        notice->syndrome = weir_mlx5_syndrome(weir_arch_load_relaxed_sys_u32(entry + 13));
        return WEIR_ERR_REMOTE;
    }
    notice->syndrome = 0;
    notice->immediate = weir_arch_swap_u32(weir_arch_load_relaxed_sys_u32(entry + 9));
    notice->bytes = weir_arch_swap_u32(weir_arch_load_relaxed_sys_u32(entry + 11));
    weir_arch_store_u64(inbox->taken, taken + 1);
    weir_arch_store_relaxed_sys_u32(inbox->completion_record, weir_arch_swap_u32((uint32_t)(taken + 1) & 0xffffff));
    return WEIR_OK;
}

WEIR_FN weir_status weir_dev_rdma_poll_notice(const weir_dev_rdma_inbox *inbox, weir_dev_rdma_notice *notice)
{
    const weir_status status = weir_dev_rdma_take_notice(inbox, notice);
    if (status != WEIR_PENDING) {
        return status;
    }
    const weir_status sticky = weir_dev_control_status(inbox->control);
    return sticky != WEIR_OK ? sticky : WEIR_PENDING;
}

WEIR_FN_COLD weir_status weir_dev_rdma_wait_notice(const weir_dev_rdma_inbox *inbox, weir_dev_rdma_notice *notice)
{
    const uint64_t taken = weir_arch_load_u64(inbox->taken);
    weir_spin spin = weir_spin_begin();
    weir_status status = weir_spin_is_due(taken) ? weir_dev_control_status(inbox->control) : WEIR_OK;
    while (status == WEIR_OK) {
        status = weir_dev_rdma_take_notice(inbox, notice);
        if (status != WEIR_PENDING) {
            return status;
        }
        status = weir_spin_step(&spin, inbox->control);
    }
    return weir_dev_control_end_wait(inbox->control, status,
                                     weir_dev_note_of(WEIR_DOING_NIC_NOTICE, WEIR_NO_PEER, 0, taken, 0));
}

#endif
