/* swnic_mlx5dv.c - hands out rings, doorbell records and doorbell registers, as libmlx5 does for its devices. */
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <string.h>

#include "swnic.h"

SWNIC_EXPORT bool mlx5dv_is_supported(struct ibv_device *device)
{
    return strncmp(device->name, "swnic", 5) == 0;
}

static void show_qp(const swnic_qp *qp, struct mlx5dv_qp *out)
{
    const swnic_sq *sq = &qp->sq;
    const swnic_rq *rq = &qp->rq;
    const uint64_t asked = out->comp_mask;
    *out = (struct mlx5dv_qp) {
        .dbrec = sq->record,
        .sq = { .buf = sq->ring, .wqe_cnt = sq->count, .stride = SWNIC_BLOCK },
        .rq = { .buf = rq->ring, .wqe_cnt = rq->count, .stride = rq->stride },
        .bf = { .reg = sq->page + 0x800, .size = SWNIC_REGISTER_BYTES },
        .comp_mask = asked & MLX5DV_QP_MASK_RAW_QP_HANDLES,
        .sqn = qp->ibv.qp_num,
    };
}

static void show_cq(const swnic_cq *cq, struct mlx5dv_cq *out)
{
    *out = (struct mlx5dv_cq) {
        .buf = cq->ring, .dbrec = cq->record, .cqe_cnt = cq->count, .cqe_size = SWNIC_BLOCK, .cqn = cq->number,
    };
}

SWNIC_EXPORT int mlx5dv_init_obj(struct mlx5dv_obj *obj, uint64_t types)
{
    if ((types & ~(uint64_t)(MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ)) != 0) {
        return EOPNOTSUPP;
    }
    if ((types & MLX5DV_OBJ_QP) != 0) {
        show_qp((const swnic_qp *)obj->qp.in, obj->qp.out);
    }
    if ((types & MLX5DV_OBJ_CQ) != 0) {
        show_cq((const swnic_cq *)obj->cq.in, obj->cq.out);
    }
    return 0;
}
