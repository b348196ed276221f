/* weir/device/rdma_notice.h - kernels take notices: the writes with immediate that peers post to a queue pair.
 *
 *     weir_dev_rdma_receive(&args->receives, 256);
 *     ...
 *     status = weir_dev_rdma_wait_notice(&args->inbox, &notice);     data and notice.immediate are here
 *     weir_dev_rdma_receive(&args->receives, 1);                     one more may come
 *
 * The peer's kernels post notices by weir_dev_rdma_put_notify, or together by weir_dev_rdma_notify and
 * weir_dev_rdma_post_each. A notice has 32 bits that the sender chooses, for example its rank and a subject, and the
 * number of bytes that came with it.
 *
 * Each notice takes a receive. A notice that finds no receive waits at the sender: its NIC tries again, as often as the
 * queue pair's rnr_retry allows. Receives are therefore the senders' credits. They have no memory. Their ring is
 * written once, with weir_mlx5_data_end in each entry, and storing the doorbell record alone posts a receive. Each
 * queue pair has its own ring. Several queue pairs may share an inbox; their notices are in the order of arrival there.
 *
 * Order:     notices of one queue pair are in the order of its posts. A notice is behind its data and the data of all
 *            earlier puts: a thread that takes it sees them. This holds for data in host memory. Data reaches a GPU's
 *            own memory by another way than completions do, and a read of it must come between (docs/rdma.md).
 * Threads:   one at a time uses an inbox, and a ring; a thread that takes over synchronizes with the one before.
 * Blocking:  wait, with the communicator's deadline.
 * Ownership: the program owns inboxes and rings, and all that their handles point to.
 * Errors:    WEIR_ERR_TIMEOUT or the communicator's sticky error. WEIR_ERR_REMOTE, from then on always, when a queue
 *            pair has failed and all earlier notices are taken. A sender that dies or fails causes no error here: the
 *            deadline ends waits for its notices. */
#ifndef WEIR_DEVICE_RDMA_NOTICE_H
#define WEIR_DEVICE_RDMA_NOTICE_H

#include "weir/device/impl/mlx5.h"
#include "weir/device/impl/spin.h"

#undef WEIR_DEV_USED_rdma
#define WEIR_DEV_USED_rdma weir_dev_version_rdma

typedef struct weir_dev_rdma_notice {
    uint32_t immediate;
    uint32_t bytes;
    uint32_t qpn;      /* queue pair that received it, or that has failed */
    uint32_t syndrome; /* WEIR_MLX5_...; otherwise 0 */
} weir_dev_rdma_notice;

/* Posts `count` receives. Together with posted receives that are not taken they must fit the ring; otherwise the NIC
 * ends the queue pair. The NIC may overwrite inbox entries and data that were read before. */
WEIR_FN void weir_dev_rdma_receive(const weir_dev_rdma_receives *receives, uint32_t count)
{
    const uint64_t posted = weir_arch_load_u64(receives->posted) + count;
    weir_arch_store_u64(receives->posted, posted);
    weir_arch_store_release_sys_u32(receives->record, weir_mlx5_record(posted));
}

/* Takes the next notice: WEIR_OK, WEIR_PENDING without one, or an error. An entry that reports a failure stays in the
 * inbox: the next call finds it too. The communicator's sticky error is returned only if there is no notice. */
WEIR_FN weir_status weir_dev_rdma_poll_notice(const weir_dev_rdma_inbox *inbox, weir_dev_rdma_notice *notice);

/* Waits for the next notice and takes it. */
WEIR_FN_COLD weir_status weir_dev_rdma_wait_notice(const weir_dev_rdma_inbox *inbox, weir_dev_rdma_notice *notice);

/* The bodies of the calls that are only declared above. */
#include "weir/device/impl/rdma_inbox.h"

#endif
