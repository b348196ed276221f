// queue.h - a queue pair of nic.h for kernels; C++ only.
#ifndef WEIRT_NIC_QUEUE_H
#define WEIRT_NIC_QUEUE_H

#include "nic.h"

#include "weir/device/rdma_notice.h"
#include "weir/weir.h"

namespace weirt {

// The device on which a rank's kernels run.
class Kernels {
public:
    ~Kernels()
    {
        if (stream != nullptr) {
            weir_stream_destroy(device, stream);
        }
        weir_device_close(device);
    }
    bool open(weirt_rank *of, const weir_kernel *what)
    {
        rank = of;
        kernel = what;
        weir_dev_control_begin(&control, 1000000u * static_cast<uint64_t>(weirt_timeout_ms()));
        return WEIRT_OK(rank, weir_device_open("cpu:0", nullptr, &device)) &&
               WEIRT_OK(rank, weir_kernel_load(device, kernel)) && WEIRT_OK(rank, weir_stream_create(device, &stream));
    }
    // Launches one block and waits for its end.
    void run(uint32_t threads, const void *args)
    {
        const weir_shape shape = { 1, threads };
        WEIRT_OK(rank, weir_launch(device, kernel, shape, args, nullptr, stream));
        WEIRT_OK(rank, weir_stream_wait(device, stream, weirt_timeout_ms()));
    }

    weirt_rank *rank = nullptr;
    const weir_kernel *kernel = nullptr;
    weir_device *device = nullptr;
    void *stream = nullptr;
    alignas(128) weir_dev_control control = {};
};

// The counters begin with the records' values: 0, unless a fault sets others.

inline bool describe(Nic *nic, uint32_t pair, weir_dev_control *control, weir_dev_rdma_state *state, weir_dev_rdma *out)
{
    mlx5dv_qp qp = {};
    mlx5dv_cq cq = {};
    mlx5dv_obj both = {};
    both.qp.in = nic->qps[pair];
    both.qp.out = &qp;
    both.cq.in = nic->qps[pair]->send_cq;
    both.cq.out = &cq;
    if (!WEIRT_EXPECT(nic->rank, mlx5dv_init_obj(&both, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ) == 0)) {
        return false;
    }
    out->control = control;
    out->state = state;
    out->queue = static_cast<char *>(qp.sq.buf);
    out->record = reinterpret_cast<uint32_t *>(qp.dbrec) + MLX5_SND_DBR;
    out->doorbell = static_cast<uint64_t *>(qp.bf.reg);
    out->completions = static_cast<const char *>(cq.buf);
    out->completion_record = reinterpret_cast<uint32_t *>(cq.dbrec);
    out->count = qp.sq.wqe_cnt;
    out->completion_count = cq.cqe_cnt;
    out->qpn = nic->qps[pair]->qp_num;
    state->reserved = state->ready = state->rung = state->completed = be32toh(*out->record);
    state->taken = be32toh(*out->completion_record);
    return WEIRT_EXPECT(nic->rank, cq.cqe_cnt >= qp.sq.wqe_cnt);
}

// Also writes the entries of the ring.
inline bool describe(Nic *nic, uint32_t pair, uint64_t *posted, weir_dev_rdma_receives *out)
{
    mlx5dv_qp qp = {};
    mlx5dv_obj one = {};
    one.qp.in = nic->qps[pair];
    one.qp.out = &qp;
    if (!WEIRT_EXPECT(nic->rank, mlx5dv_init_obj(&one, MLX5DV_OBJ_QP) == 0 && qp.rq.stride == sizeof(weir_vec16))) {
        return false;
    }
    for (uint32_t i = 0; i < qp.rq.wqe_cnt; i++) {
        static_cast<weir_vec16 *>(qp.rq.buf)[i] = weir_mlx5_data_end();
    }
    out->posted = posted;
    out->record = reinterpret_cast<uint32_t *>(qp.dbrec) + MLX5_RCV_DBR;
    *posted = be32toh(*out->record);
    return true;
}

inline bool describe(Nic *nic, weir_dev_control *control, uint64_t *taken, weir_dev_rdma_inbox *out)
{
    mlx5dv_cq cq = {};
    mlx5dv_obj one = {};
    one.cq.in = nic->inbox;
    one.cq.out = &cq;
    if (!WEIRT_EXPECT(nic->rank, mlx5dv_init_obj(&one, MLX5DV_OBJ_CQ) == 0)) {
        return false;
    }
    out->control = control;
    out->taken = taken;
    out->completions = static_cast<const char *>(cq.buf);
    out->completion_record = reinterpret_cast<uint32_t *>(cq.dbrec);
    out->count = cq.cqe_cnt;
    *taken = be32toh(*out->completion_record);
    return true;
}

} // namespace weirt

#endif
