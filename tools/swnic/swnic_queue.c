/* swnic_queue.c - completion queues and queue pairs: their memory, which a user may allocate (parent domains), and the
 * states of a queue pair with the attributes that each step needs. */
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <stdlib.h>
#include <string.h>

#include "swnic.h"

#define PAGE 4096u

static uint32_t power_of_two(uint32_t least)
{
    uint32_t power = 1;
    while (power < least) {
        power *= 2;
    }
    return power;
}

/* ---- memory --------------------------------------------------------------------------------------------- */

static bool has_allocator(const swnic_pd *pd)
{
    return pd != NULL && (pd->allocator.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0;
}

/* Allocates zeroed pages. */
static void *allocate(swnic_pd *pd, size_t bytes, uint64_t type)
{
    void *memory = IBV_ALLOCATOR_USE_DEFAULT;
    if (has_allocator(pd)) {
        memory = pd->allocator.alloc(&pd->ibv, pd->allocator.pd_context, bytes, PAGE, type);
    }
    if (memory == IBV_ALLOCATOR_USE_DEFAULT) {
        memory = aligned_alloc(PAGE, (bytes + PAGE - 1) & ~(size_t)(PAGE - 1));
    }
    if (memory != NULL) {
        memset(memory, 0, bytes);
    }
    return memory;
}

static void release(swnic_pd *pd, void *memory, uint64_t type)
{
    if (memory != NULL && has_allocator(pd)) {
        pd->allocator.free(&pd->ibv, pd->allocator.pd_context, memory, type);
    } else {
        free(memory);
    }
}

/* ---- completion queues ---------------------------------------------------------------------------------- */

static void free_cq(swnic_cq *cq)
{
    release(cq->pd, cq->ring, MLX5DV_RES_TYPE_CQ);
    release(cq->pd, cq->record, MLX5DV_RES_TYPE_DBR);
    (void)pthread_mutex_destroy(&cq->lock);
    free(cq);
}

static swnic_cq *create_cq(struct ibv_context *context, uint32_t entries, void *user, swnic_pd *pd)
{
    swnic_nic *nic = swnic_of(context);
    if (entries < 1 || entries > 1u << 22) {
        errno = EINVAL;
        return NULL;
    }
    swnic_cq *cq = calloc(1, sizeof *cq);
    if (cq == NULL) {
        return NULL;
    }
    cq->pd = pd;
    (void)pthread_mutex_init(&cq->lock, NULL);
    cq->count = power_of_two(entries + 1);
    cq->ring = allocate(pd, (size_t)cq->count * SWNIC_BLOCK, MLX5DV_RES_TYPE_CQ);
    cq->record = allocate(pd, 2 * sizeof *cq->record, MLX5DV_RES_TYPE_DBR);
    if (cq->ring == NULL || cq->record == NULL) {
        free_cq(cq);
        errno = ENOMEM;
        return NULL;
    }
    for (uint32_t i = 0; i < cq->count; i++) {
        cq->ring[(size_t)i * SWNIC_BLOCK + 63] = 0xf0;
    }
    cq->ex.context = context;
    cq->ex.cq_context = user;
    cq->ex.cqe = (int)cq->count - 1;
    swnic_enter(nic);
    cq->number = ++nic->cq_next & 0xffffff;
    cq->made = cq->taken = (uint32_t)nic->faults[SWNIC_FAULT_COUNTERS].arg[1];
    swnic_leave(nic);
    swnic_put32((uint8_t *)cq->record, cq->made & 0xffffff);
    return cq;
}

struct ibv_cq_ex *swnic_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
    const bool parent = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0;
    const uint32_t flags = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 ? attr->flags : 0;
    if (attr->channel != NULL) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    swnic_cq *cq = create_cq(context, attr->cqe, attr->cq_context, parent ? (swnic_pd *)attr->parent_domain : NULL);
    if (cq == NULL) {
        return NULL;
    }
    cq->overrun_allowed = (flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0;
    return &cq->ex;
}

SWNIC_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, void *user,
                                          struct ibv_comp_channel *channel, int vector)
{
    if (channel != NULL || vector != 0 || entries < 1) {
        errno = channel != NULL ? EOPNOTSUPP : EINVAL;
        return NULL;
    }
    return (struct ibv_cq *)create_cq(context, (uint32_t)entries, user, NULL);
}

SWNIC_EXPORT int ibv_destroy_cq(struct ibv_cq *ibv)
{
    swnic_cq *cq = (swnic_cq *)ibv;
    swnic_nic *nic = swnic_of(ibv->context);
    int error = 0;
    swnic_enter(nic);
    for (const swnic_qp *qp = nic->first; qp != NULL; qp = qp->next) {
        error = qp->ibv.send_cq == ibv || qp->ibv.recv_cq == ibv ? EBUSY : error;
    }
    swnic_leave(nic);
    if (error == 0) {
        swnic_forget(nic, ibv);
        free_cq(cq);
    }
    return error;
}

/* ---- queue pairs ---------------------------------------------------------------------------------------- */

static void free_qp(swnic_qp *qp)
{
    swnic_pd *pd = (swnic_pd *)qp->ibv.pd;
    release(pd, qp->rings, MLX5DV_RES_TYPE_QP);
    release(pd, qp->sq.record, MLX5DV_RES_TYPE_DBR);
    free(qp->sq.page);
    free(qp->sq.ids);
    free(qp->sq.numbers);
    free(qp->rq.ids);
    free(qp->flights);
    (void)pthread_mutex_destroy(&qp->sq.lock);
    (void)pthread_mutex_destroy(&qp->rq.lock);
    free(qp);
}

/* Sizes a ring for `requests` of the longest kind. */
static int size_ring(swnic_sq *sq, struct ibv_qp_cap *cap)
{
    if (cap->max_send_wr == 0 || cap->max_send_sge > SWNIC_PIECES || cap->max_inline_data > SWNIC_INLINE_MAX) {
        return EINVAL;
    }
    uint32_t pieces = 16 * (cap->max_send_sge != 0 ? cap->max_send_sge : 1);
    uint32_t inlined = (cap->max_inline_data + 4 + 15) & ~15u;
    /* The longest request begins with control, address and atomic segments. */
    uint32_t each = (48 + (pieces > inlined ? pieces : inlined) + SWNIC_BLOCK - 1) / SWNIC_BLOCK;
    if (cap->max_send_wr > SWNIC_BLOCKS_MAX / each) {
        return EINVAL;
    }
    sq->count = power_of_two(cap->max_send_wr * each);
    sq->requests = sq->count / each;
    sq->inline_most = each * SWNIC_BLOCK - 48 - 4;
    cap->max_inline_data = sq->inline_most;
    cap->max_send_wr = sq->requests;
    return 0;
}

/* Sizes a ring of receives, of at least one block. */
static int size_receives(swnic_rq *rq, struct ibv_qp_cap *cap)
{
    if (cap->max_recv_wr > SWNIC_BLOCKS_MAX || cap->max_recv_sge > SWNIC_PIECES) {
        return EINVAL;
    }
    if (cap->max_recv_wr != 0) {
        const uint32_t least = power_of_two(cap->max_recv_wr);
        rq->stride = SWNIC_SEGMENT * power_of_two(cap->max_recv_sge);
        rq->count = least * rq->stride > SWNIC_BLOCK ? least : SWNIC_BLOCK / rq->stride;
    }
    cap->max_recv_wr = rq->count;
    cap->max_recv_sge = rq->stride / SWNIC_SEGMENT;
    return 0;
}

static int allocate_qp(swnic_qp *qp, swnic_pd *pd)
{
    swnic_sq *sq = &qp->sq;
    swnic_rq *rq = &qp->rq;
    const size_t receives = (size_t)rq->count * rq->stride;
    qp->rings = allocate(pd, receives + (size_t)sq->count * SWNIC_BLOCK, MLX5DV_RES_TYPE_QP);
    rq->ring = qp->rings;
    sq->ring = qp->rings + receives;
    rq->ids = calloc(rq->count + 1, sizeof *rq->ids);
    sq->record = allocate(pd, 2 * sizeof *sq->record, MLX5DV_RES_TYPE_DBR);
    sq->page = allocate(NULL, PAGE, 0);
    sq->ids = calloc(sq->count, sizeof *sq->ids);
    sq->numbers = calloc(sq->count, sizeof *sq->numbers);
    qp->flights = calloc(sq->count, sizeof *qp->flights);
    return qp->rings == NULL || sq->record == NULL || sq->page == NULL || sq->ids == NULL || sq->numbers == NULL ||
                   rq->ids == NULL || qp->flights == NULL
               ? ENOMEM
               : 0;
}

/* Gives a queue pair its number and a place in the NIC's tables. */
static int add_qp(swnic_nic *nic, swnic_qp *qp)
{
    int error = nic->listener >= 0 ? 0 : swnic_start(nic);
    for (uint32_t i = 0; error == 0 && i < SWNIC_QPS; i++) {
        uint32_t index = ++nic->qp_next & (SWNIC_QPS - 1);
        if (index != 0 && nic->qps[index] == NULL) {
            qp->ibv.qp_num = nic->slot << SWNIC_QP_BITS | index;
            qp->next = nic->first;
            nic->first = qp;
            __atomic_store_n(&nic->qps[index], qp, __ATOMIC_RELEASE);
            return 0;
        }
    }
    return error != 0 ? error : ENOMEM;
}

static void reset(swnic_qp *qp)
{
    swnic_sq *sq = &qp->sq;
    memset(qp->seen_since, 0, sizeof qp->seen_since);
    if (qp->devx) { /* the caller has set registers and records */
        for (uint32_t i = 0; i < SWNIC_REGISTERS; i++) {
            qp->seen[i] = swnic_register(qp, i);
        }
    } else {
        memset(qp->seen, 0, sizeof qp->seen);
        memset(sq->page, 0, PAGE);
        sq->block = (uint32_t)qp->nic->faults[SWNIC_FAULT_COUNTERS].arg[0];
        swnic_put32((uint8_t *)&sq->record[0], sq->block & 0xffff);
        swnic_put32((uint8_t *)&sq->record[1], sq->block & 0xffff);
        memset(qp->rq.ring, 0, (size_t)qp->rq.count * qp->rq.stride);
    }
    swnic_wqe_mark(sq->ring, sq->count, 0, sq->count);
    qp->rq.posted = qp->received = sq->block;
    __atomic_store_n(&qp->rq.taken, sq->block, __ATOMIC_RELAXED);
    sq->posted = sq->reg = 0;
    __atomic_store_n(&sq->taken, 0, __ATOMIC_RELAXED);
    qp->known = qp->fetched = qp->freed = sq->block;
    qp->done = qp->sent = qp->got = 0;
    qp->offset = 0;
    qp->reads = qp->retries = qp->not_ready = 0;
    qp->resume_ns = qp->held_ns = 0;
    qp->expected_offset = 0;
    memset(qp->atomics, 0, sizeof qp->atomics);
    swnic_unowe(qp);
}

int swnic_qp_add(swnic_qp *qp)
{
    reset(qp);
    return add_qp(qp->nic, qp);
}

SWNIC_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    swnic_nic *nic = swnic_of(pd->context);
    if (attr->qp_type != IBV_QPT_RC || attr->srq != NULL || attr->send_cq == NULL || attr->recv_cq == NULL) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    swnic_qp *qp = calloc(1, sizeof *qp);
    if (qp == NULL) {
        return NULL;
    }
    (void)pthread_mutex_init(&qp->sq.lock, NULL);
    (void)pthread_mutex_init(&qp->rq.lock, NULL);
    qp->ibv = (struct ibv_qp){ .context = pd->context,
                               .qp_context = attr->qp_context,
                               .pd = pd,
                               .send_cq = attr->send_cq,
                               .recv_cq = attr->recv_cq,
                               .qp_type = attr->qp_type };
    qp->nic = nic;
    qp->pd = ((swnic_pd *)pd)->base;
    qp->sq.signal_all = attr->sq_sig_all != 0;
    int error = size_ring(&qp->sq, &attr->cap);
    if (error == 0) {
        error = size_receives(&qp->rq, &attr->cap);
    }
    if (error == 0) {
        error = allocate_qp(qp, (swnic_pd *)pd);
    }
    if (error == 0) {
        swnic_enter(nic);
        error = swnic_qp_add(qp);
        swnic_leave(nic);
    }
    if (error != 0) {
        free_qp(qp);
        errno = error;
        return NULL;
    }
    return &qp->ibv;
}

void swnic_qp_remove(swnic_qp *qp)
{
    swnic_nic *nic = qp->nic;
    swnic_cq *cqs[] = { (swnic_cq *)qp->ibv.send_cq, (swnic_cq *)qp->ibv.recv_cq };
    swnic_qp **at = &nic->first;
    while (*at != qp) {
        at = &(*at)->next;
    }
    *at = qp->next;
    swnic_unowe(qp);
    swnic_store_late(nic);
    /* A polling thread finds the queue pair whole or not at all. */
    __atomic_store_n(&nic->qps[qp->ibv.qp_num & (SWNIC_QPS - 1)], NULL, __ATOMIC_RELEASE);
    for (size_t i = 0; i < sizeof cqs / sizeof cqs[0]; i++) {
        (void)pthread_mutex_lock(&cqs[i]->lock);
        (void)pthread_mutex_unlock(&cqs[i]->lock);
    }
}

SWNIC_EXPORT int ibv_destroy_qp(struct ibv_qp *ibv)
{
    swnic_qp *qp = (swnic_qp *)ibv;
    swnic_nic *nic = qp->nic;
    swnic_enter(nic);
    swnic_qp_remove(qp);
    swnic_leave(nic);
    swnic_forget(nic, ibv);
    free_qp(qp);
    return 0;
}

/* ---- states --------------------------------------------------------------------------------------------- */

static int to_ready_to_receive(swnic_qp *qp, const struct ibv_qp_attr *attr)
{
    if (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > IBV_MTU_4096 || attr->ah_attr.port_num != 1 ||
        attr->max_dest_rd_atomic > SWNIC_READS) {
        return EINVAL;
    }
    qp->attr.path_mtu = attr->path_mtu;
    qp->attr.dest_qp_num = attr->dest_qp_num & 0xffffff;
    qp->attr.rq_psn = attr->rq_psn & 0xffffff;
    qp->attr.max_dest_rd_atomic = attr->max_dest_rd_atomic;
    qp->attr.min_rnr_timer = attr->min_rnr_timer;
    qp->lid = attr->ah_attr.is_global ? attr->ah_attr.grh.dgid.raw[15] : attr->ah_attr.dlid;
    qp->expected = qp->attr.rq_psn;
    /* Open the link to the peer's NIC early. */
    (void)swnic_out_to(qp->nic, qp->attr.dest_qp_num >> SWNIC_QP_BITS);
    return 0;
}

static int to_ready_to_send(swnic_qp *qp, const struct ibv_qp_attr *attr)
{
    if (attr->max_rd_atomic > SWNIC_READS || attr->timeout > 31 || attr->retry_cnt > 7 || attr->rnr_retry > 7) {
        return EINVAL;
    }
    qp->attr.sq_psn = attr->sq_psn & 0xffffff;
    qp->attr.timeout = attr->timeout;
    qp->attr.retry_cnt = attr->retry_cnt;
    qp->attr.rnr_retry = attr->rnr_retry;
    qp->attr.max_rd_atomic = attr->max_rd_atomic;
    qp->sequence = qp->attr.sq_psn;
    qp->acknowledged = qp->highest = (qp->sequence - 1) & 0xffffff;
    return 0;
}

int swnic_qp_modify(swnic_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    static const struct {
        enum ibv_qp_state from, to;
        int needed;
    } steps[] = {
        { IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS },
        { IBV_QPS_INIT, IBV_QPS_RTR,
          IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
              IBV_QP_MIN_RNR_TIMER },
        { IBV_QPS_RTR, IBV_QPS_RTS,
          IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC },
    };
    if ((mask & IBV_QP_STATE) == 0) {
        return EINVAL;
    }
    if (attr->qp_state == IBV_QPS_ERR) {
        swnic_qp_fail(qp);
        return 0;
    }
    if (attr->qp_state == IBV_QPS_RESET) {
        reset(qp);
        qp->state = IBV_QPS_RESET;
        return 0;
    }
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        if (steps[i].from != qp->state || steps[i].to != attr->qp_state) {
            continue;
        }
        int error = (mask & steps[i].needed) != steps[i].needed ? EINVAL : 0;
        if (error == 0 && steps[i].to == IBV_QPS_INIT) {
            error = attr->port_num != 1 || attr->pkey_index != 0 ? EINVAL : 0;
            qp->access = (int)attr->qp_access_flags;
        } else if (error == 0 && steps[i].to == IBV_QPS_RTR) {
            error = to_ready_to_receive(qp, attr);
        } else if (error == 0) {
            error = to_ready_to_send(qp, attr);
        }
        qp->state = error == 0 ? steps[i].to : qp->state;
        return error;
    }
    return EINVAL;
}

SWNIC_EXPORT int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
    swnic_qp *qp = (swnic_qp *)ibv;
    swnic_enter(qp->nic);
    int error = swnic_qp_modify(qp, attr, mask);
    ibv->state = qp->state;
    swnic_leave(qp->nic);
    return error;
}

SWNIC_EXPORT int ibv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
    swnic_qp *qp = (swnic_qp *)ibv;
    (void)mask;
    swnic_enter(qp->nic);
    *attr = qp->attr;
    attr->qp_state = attr->cur_qp_state = qp->state;
    attr->qp_access_flags = (unsigned)qp->access;
    attr->cap = (struct ibv_qp_cap){ .max_send_wr = qp->sq.requests,
                                     .max_send_sge = SWNIC_PIECES,
                                     .max_recv_wr = qp->rq.count,
                                     .max_recv_sge = qp->rq.stride / SWNIC_SEGMENT,
                                     .max_inline_data = qp->sq.inline_most };
    swnic_leave(qp->nic);
    if (init != NULL) {
        *init = (struct ibv_qp_init_attr){ .qp_context = ibv->qp_context,
                                           .send_cq = ibv->send_cq,
                                           .recv_cq = ibv->recv_cq,
                                           .cap = attr->cap,
                                           .qp_type = ibv->qp_type,
                                           .sq_sig_all = qp->sq.signal_all };
    }
    return 0;
}
