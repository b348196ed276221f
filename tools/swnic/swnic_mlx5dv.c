/* swnic_mlx5dv.c - returns rings, doorbell records, doorbell registers, numbers and addresses as libmlx5 does. */
#include <endian.h>
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <stdlib.h>
#include <string.h>

#include "swnic.h"

SWNIC_EXPORT bool mlx5dv_is_supported(struct ibv_device *device) { return strncmp(device->name, "swnic", 5) == 0; }

static void show_qp(const swnic_qp *qp, struct mlx5dv_qp *out)
{
    const swnic_sq *sq = &qp->sq;
    const swnic_rq *rq = &qp->rq;
    const uint64_t asked = out->comp_mask;
    *out = (struct mlx5dv_qp){
        .dbrec = sq->record,
        .sq = { .buf = sq->ring, .wqe_cnt = sq->count, .stride = SWNIC_BLOCK },
        .rq = { .buf = rq->ring, .wqe_cnt = rq->count, .stride = rq->stride },
        .bf = { .reg = sq->page + SWNIC_REGISTER, .size = SWNIC_REGISTER_BYTES },
        .comp_mask = asked & MLX5DV_QP_MASK_RAW_QP_HANDLES,
        .sqn = qp->ibv.qp_num,
    };
}

static void show_cq(const swnic_cq *cq, struct mlx5dv_cq *out)
{
    *out = (struct mlx5dv_cq){
        .buf = cq->ring,
        .dbrec = cq->record,
        .cqe_cnt = cq->count,
        .cqe_size = SWNIC_BLOCK,
        .cqn = cq->number,
    };
}

/* ---- addresses ------------------------------------------------------------------------------------------ */

/* An address handle, for requests and commands. */
typedef struct swnic_ah {
    struct ibv_ah ibv;
    struct mlx5_wqe_av av;
} swnic_ah;

SWNIC_EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    if (attr->port_num != 1) {
        errno = EINVAL;
        return NULL;
    }
    swnic_ah *ah = calloc(1, sizeof *ah);
    if (ah == NULL) {
        return NULL;
    }
    ah->ibv = (struct ibv_ah){ .context = pd->context, .pd = pd };
    ah->av.stat_rate_sl = (uint8_t)(attr->static_rate << 4 | (attr->sl & 15));
    ah->av.fl_mlid = attr->src_path_bits & 0x7f;
    ah->av.rlid = htobe16(attr->dlid);
    if (attr->is_global) {
        ah->av.grh_gid_fl = htobe32(1u << 30 | (uint32_t)attr->grh.sgid_index << 20 | attr->grh.flow_label);
        ah->av.tclass = attr->grh.traffic_class;
        ah->av.hop_limit = attr->grh.hop_limit;
        memcpy(ah->av.rgid, attr->grh.dgid.raw, sizeof ah->av.rgid);
    }
    return &ah->ibv;
}

SWNIC_EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
    free(ah);
    return 0;
}

/* ---- objects -------------------------------------------------------------------------------------------- */

SWNIC_EXPORT int mlx5dv_init_obj(struct mlx5dv_obj *obj, uint64_t types)
{
    if ((types & ~(uint64_t)(MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ | MLX5DV_OBJ_PD | MLX5DV_OBJ_AH)) != 0) {
        return EOPNOTSUPP;
    }
    if ((types & MLX5DV_OBJ_QP) != 0) {
        show_qp((const swnic_qp *)obj->qp.in, obj->qp.out);
    }
    if ((types & MLX5DV_OBJ_CQ) != 0) {
        show_cq((const swnic_cq *)obj->cq.in, obj->cq.out);
    }
    if ((types & MLX5DV_OBJ_PD) != 0) {
        *obj->pd.out = (struct mlx5dv_pd){ .pdn = ((const swnic_pd *)obj->pd.in)->base->number };
    }
    if ((types & MLX5DV_OBJ_AH) != 0) {
        *obj->ah.out = (struct mlx5dv_ah){ .av = &((swnic_ah *)obj->ah.in)->av };
    }
    return 0;
}
