/* swnic_post.c - the driver in user space: builds requests in the send ring, writes the doorbell record, rings the
 * doorbell, posts receives, and reads completions from their ring. It has no other way to reach the NIC. */
#include <errno.h>
#include <string.h>

#include "swnic.h"

#define COMPLETE 0x08 /* flag of a control segment: always complete */
#define FENCE 0x80

static uint32_t opcode_of(enum ibv_wr_opcode opcode)
{
    switch (opcode) {
    case IBV_WR_RDMA_WRITE:
        return SWNIC_WRITE;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        return SWNIC_WRITE_IMMEDIATE;
    case IBV_WR_RDMA_READ:
        return SWNIC_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
        return SWNIC_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        return SWNIC_ADD;
    default:
        return SWNIC_NOP;
    }
}

/* Appends the data of a request at `at`; returns the bytes, a multiple of 16, or 0 with *error set. */
static uint32_t put_data(const swnic_sq *sq, const struct ibv_send_wr *wr, uint8_t *at, int *error)
{
    uint32_t bytes = 0;
    if ((wr->send_flags & IBV_SEND_INLINE) == 0) {
        for (int i = 0; i < wr->num_sge; i++) {
            if (wr->sg_list[i].length != 0) {
                swnic_put32(at + bytes, wr->sg_list[i].length);
                swnic_put32(at + bytes + 4, wr->sg_list[i].lkey);
                swnic_put64(at + bytes + 8, wr->sg_list[i].addr);
                bytes += SWNIC_SEGMENT;
            }
        }
        return bytes;
    }
    for (int i = 0; i < wr->num_sge; i++) {
        if (wr->sg_list[i].length > sq->inline_most - bytes) {
            *error = ENOMEM;
            return 0;
        }
        swnic_load_words(at + 4 + bytes, (const uint8_t *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
        bytes += wr->sg_list[i].length;
    }
    if (bytes == 0) {
        return 0;
    }
    swnic_put32(at, bytes | 0x80000000u);
    uint32_t padded = (bytes + 4 + SWNIC_SEGMENT - 1) & ~(SWNIC_SEGMENT - 1);
    memset(at + 4 + bytes, 0, padded - 4 - bytes);
    return padded;
}

/* Writes a request into `wqe`; returns its bytes, or 0 with *error set. */
static uint32_t build(const swnic_qp *qp, const struct ibv_send_wr *wr, uint8_t *wqe, int *error)
{
    const swnic_sq *sq = &qp->sq;
    uint32_t opcode = opcode_of(wr->opcode), bytes = 2 * SWNIC_SEGMENT;
    const bool atomic = opcode == SWNIC_SWAP || opcode == SWNIC_ADD;
    if (opcode == SWNIC_NOP || wr->num_sge < 0 || wr->num_sge > (int)SWNIC_PIECES ||
        ((wr->send_flags & IBV_SEND_INLINE) != 0 && opcode != SWNIC_WRITE && opcode != SWNIC_WRITE_IMMEDIATE)) {
        *error = EINVAL;
        return 0;
    }
    memset(wqe, 0, 3 * SWNIC_SEGMENT);
    if (atomic) {
        swnic_put64(wqe + 16, wr->wr.atomic.remote_addr);
        swnic_put32(wqe + 24, wr->wr.atomic.rkey);
        swnic_put64(wqe + 32, opcode == SWNIC_SWAP ? wr->wr.atomic.swap : wr->wr.atomic.compare_add);
        swnic_put64(wqe + 40, opcode == SWNIC_SWAP ? wr->wr.atomic.compare_add : 0);
        bytes += SWNIC_SEGMENT;
    } else {
        swnic_put64(wqe + 16, wr->wr.rdma.remote_addr);
        swnic_put32(wqe + 24, wr->wr.rdma.rkey);
    }
    bytes += put_data(sq, wr, wqe + bytes, error);
    if (*error != 0) {
        return 0;
    }
    swnic_put32(wqe, (sq->block & 0xffff) << 8 | opcode);
    swnic_put32(wqe + 4, qp->ibv.qp_num << 8 | bytes / SWNIC_SEGMENT);
    wqe[11] = (uint8_t)((sq->signal_all || (wr->send_flags & IBV_SEND_SIGNALED) != 0 ? COMPLETE : 0) |
                        ((wr->send_flags & IBV_SEND_FENCE) != 0 ? FENCE : 0) |
                        ((wr->send_flags & IBV_SEND_SOLICITED) != 0 ? 2 : 0));
    if (opcode == SWNIC_WRITE_IMMEDIATE) {
        memcpy(wqe + 12, &wr->imm_data, sizeof wr->imm_data);
    }
    return bytes;
}

static void copy_to_ring(swnic_sq *sq, const uint8_t *wqe, uint32_t bytes)
{
    const size_t size = (size_t)sq->count * SWNIC_BLOCK, at = (size_t)(sq->block & (sq->count - 1)) * SWNIC_BLOCK;
    const size_t first = bytes < size - at ? bytes : size - at;
    memcpy(sq->ring + at, wqe, first);
    memcpy(sq->ring, wqe + first, bytes - first);
}

/* Writes the record after the requests, and the doorbell after the record. */
static void ring(swnic_sq *sq, const uint8_t *control)
{
    uint64_t doorbell;
    uint8_t record[4];
    uint32_t word;
    swnic_put32(record, sq->block & 0xffff);
    memcpy(&word, record, sizeof word);
    __atomic_store_n(&sq->record[1], word, __ATOMIC_RELEASE);
    memcpy(&doorbell, control, sizeof doorbell);
    __atomic_store_n((uint64_t *)(void *)(sq->page + SWNIC_REGISTER + sq->reg * SWNIC_REGISTER_BYTES), doorbell,
                     __ATOMIC_RELEASE);
    sq->reg = (sq->reg + 1) % SWNIC_REGISTERS;
}

int swnic_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    swnic_qp *qp = (swnic_qp *)ibv;
    swnic_sq *sq = &qp->sq;
    uint8_t wqe[SWNIC_WQE_MAX], control[8];
    bool any = false;
    int error = 0;
    (void)pthread_mutex_lock(&sq->lock);
    for (; wr != NULL; wr = wr->next) {
        uint32_t bytes = 0;
        if (sq->posted - __atomic_load_n(&sq->taken, __ATOMIC_ACQUIRE) >= sq->requests) {
            error = ENOMEM;
        } else {
            bytes = build(qp, wr, wqe, &error);
        }
        if (error != 0) {
            *bad = wr;
            break;
        }
        copy_to_ring(sq, wqe, bytes);
        memcpy(control, wqe, sizeof control);
        any = true;
        sq->ids[sq->block & (sq->count - 1)] = wr->wr_id;
        sq->numbers[sq->block & (sq->count - 1)] = sq->posted++;
        sq->block += (bytes + SWNIC_BLOCK - 1) / SWNIC_BLOCK;
    }
    if (any) {
        ring(sq, control);
    }
    (void)pthread_mutex_unlock(&sq->lock);
    return error;
}

/* ---- receives ------------------------------------------------------------------------------------------- */

/* Writes the pieces, and an end of the list if there is room. */
static void build_receive(const swnic_rq *rq, const struct ibv_recv_wr *wr, uint8_t *at)
{
    uint8_t *end = at + rq->stride;
    for (int i = 0; i < wr->num_sge; i++) {
        if (wr->sg_list[i].length != 0) {
            swnic_put32(at, wr->sg_list[i].length);
            swnic_put32(at + 4, wr->sg_list[i].lkey);
            swnic_put64(at + 8, wr->sg_list[i].addr);
            at += SWNIC_SEGMENT;
        }
    }
    if (at != end) {
        memset(at, 0, SWNIC_SEGMENT);
        swnic_put32(at + 4, SWNIC_LIST_END);
    }
}

static int post_receive(swnic_rq *rq, const struct ibv_recv_wr *wr)
{
    if (rq->posted - __atomic_load_n(&rq->taken, __ATOMIC_ACQUIRE) >= rq->count) {
        return ENOMEM;
    }
    if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->stride / SWNIC_SEGMENT) {
        return EINVAL;
    }
    const uint32_t entry = rq->posted++ & (rq->count - 1);
    build_receive(rq, wr, rq->ring + (size_t)entry * rq->stride);
    rq->ids[entry] = wr->wr_id;
    return 0;
}

int swnic_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    swnic_qp *qp = (swnic_qp *)ibv;
    swnic_rq *rq = &qp->rq;
    uint8_t record[4];
    uint32_t word;
    int error = 0;
    (void)pthread_mutex_lock(&rq->lock);
    while (wr != NULL && (error = post_receive(rq, wr)) == 0) {
        wr = wr->next;
    }
    if (error != 0) {
        *bad = wr;
    }
    swnic_put32(record, rq->posted & 0xffff);
    memcpy(&word, record, sizeof word);
    __atomic_store_n(&qp->sq.record[0], word, __ATOMIC_RELEASE);
    (void)pthread_mutex_unlock(&rq->lock);
    return error;
}

/* ---- completions ---------------------------------------------------------------------------------------- */

static enum ibv_wc_status status_of(uint8_t syndrome)
{
    static const struct {
        uint8_t syndrome;
        enum ibv_wc_status status;
    } rows[] = {
        { 0x01, IBV_WC_LOC_LEN_ERR },
        { SWNIC_LOCAL_QP, IBV_WC_LOC_QP_OP_ERR },
        { SWNIC_LOCAL_PROTECTION, IBV_WC_LOC_PROT_ERR },
        { SWNIC_FLUSHED, IBV_WC_WR_FLUSH_ERR },
        { SWNIC_BAD_RESPONSE, IBV_WC_BAD_RESP_ERR },
        { 0x11, IBV_WC_LOC_ACCESS_ERR },
        { SWNIC_REMOTE_INVALID, IBV_WC_REM_INV_REQ_ERR },
        { SWNIC_REMOTE_ACCESS, IBV_WC_REM_ACCESS_ERR },
        { SWNIC_REMOTE_OPERATION, IBV_WC_REM_OP_ERR },
        { SWNIC_NO_ANSWER, IBV_WC_RETRY_EXC_ERR },
        { SWNIC_NOT_READY, IBV_WC_RNR_RETRY_EXC_ERR },
        { 0x22, IBV_WC_REM_ABORT_ERR },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].syndrome == syndrome) {
            return rows[i].status;
        }
    }
    return IBV_WC_GENERAL_ERR;
}

static enum ibv_wc_opcode kind_of(uint8_t opcode)
{
    return opcode == SWNIC_READ   ? IBV_WC_RDMA_READ
           : opcode == SWNIC_SWAP ? IBV_WC_COMP_SWAP
           : opcode == SWNIC_ADD  ? IBV_WC_FETCH_ADD
                                  : IBV_WC_RDMA_WRITE;
}

static void take_request(swnic_qp *qp, const uint8_t *cqe, struct ibv_wc *wc)
{
    const uint32_t block = (uint32_t)(cqe[60] << 8 | cqe[61]) & (qp->sq.count - 1);
    wc->wr_id = qp->sq.ids[block];
    wc->opcode = kind_of(cqe[56]);
    __atomic_store_n(&qp->sq.taken, qp->sq.numbers[block] + 1, __ATOMIC_RELEASE);
}

/* Receives complete in order. */
static void take_receive(swnic_qp *qp, const uint8_t *cqe, struct ibv_wc *wc)
{
    const uint32_t taken = __atomic_load_n(&qp->rq.taken, __ATOMIC_RELAXED);
    wc->wr_id = qp->rq.ids[taken & (qp->rq.count - 1)];
    wc->opcode = IBV_WC_RECV_RDMA_WITH_IMM;
    wc->wc_flags = IBV_WC_WITH_IMM;
    memcpy(&wc->imm_data, cqe + 36, sizeof wc->imm_data);
    __atomic_store_n(&qp->rq.taken, taken + 1, __ATOMIC_RELEASE);
}

/* False if the queue pair is gone. */
static bool take(swnic_nic *nic, const uint8_t *cqe, uint8_t kind, struct ibv_wc *wc)
{
    uint32_t number = swnic_get32(cqe + 56) & 0xffffff;
    swnic_qp *qp = __atomic_load_n(&nic->qps[number & (SWNIC_QPS - 1)], __ATOMIC_ACQUIRE);
    if (qp == NULL || qp->ibv.qp_num != number) {
        return false;
    }
    memset(wc, 0, sizeof *wc);
    wc->qp_num = number;
    wc->byte_len = swnic_get32(cqe + 44);
    wc->status = IBV_WC_SUCCESS;
    if (kind == SWNIC_FAILED || kind == SWNIC_RECEIVE_FAILED) {
        wc->status = status_of(cqe[55]);
        wc->vendor_err = cqe[54];
    }
    if (kind == SWNIC_RECEIVED || kind == SWNIC_RECEIVE_FAILED) {
        take_receive(qp, cqe, wc);
    } else {
        take_request(qp, cqe, wc);
    }
    return true;
}

int swnic_poll_cq(struct ibv_cq *ibv, int count, struct ibv_wc *wc)
{
    swnic_cq *cq = (swnic_cq *)ibv;
    int got = 0;
    (void)pthread_mutex_lock(&cq->lock);
    const uint32_t before = cq->taken;
    while (got < count) {
        const uint8_t *cqe = cq->ring + (size_t)(cq->taken & (cq->count - 1)) * SWNIC_BLOCK;
        uint8_t tail[4];
        uint32_t last = __atomic_load_n((const uint32_t *)(const void *)&cqe[60], __ATOMIC_ACQUIRE);
        memcpy(tail, &last, sizeof tail);
        if (tail[3] >> 4 == SWNIC_NEVER_WRITTEN || (tail[3] & 1) != ((cq->taken & cq->count) != 0)) {
            break;
        }
        got += take(swnic_of(ibv->context), cqe, tail[3] >> 4, &wc[got]);
        cq->taken++;
    }
    if (cq->taken != before) {
        uint8_t record[4];
        uint32_t word;
        swnic_put32(record, cq->taken & 0xffffff);
        memcpy(&word, record, sizeof word);
        __atomic_store_n(cq->record, word, __ATOMIC_RELEASE);
    }
    (void)pthread_mutex_unlock(&cq->lock);
    return got;
}
