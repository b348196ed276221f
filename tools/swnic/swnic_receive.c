/* swnic_receive.c - the receive queue of a connection. A write with immediate takes an entry but does not use its
 * memory. The doorbell record has the number of posted entries. Unlike requests, entries are not marked as read: a
 * program may post them again without writing them. */
#include <string.h>

#include "swnic.h"

/* Entries posted and not taken. */
static uint16_t left(const swnic_qp *qp)
{
    const uint32_t word = __atomic_load_n(&qp->sq.record[0], __ATOMIC_ACQUIRE);
    uint8_t record[4];
    memcpy(record, &word, sizeof record);
    return (uint16_t)(swnic_get32(record) - qp->received);
}

static void complete(swnic_qp *qp, uint8_t kind, uint8_t entry[SWNIC_BLOCK])
{
    swnic_put32(entry + 56, qp->ibv.qp_num);
    entry[60] = (uint8_t)(qp->received >> 8);
    entry[61] = (uint8_t)qp->received;
    (void)swnic_cq_add(qp, (swnic_cq *)qp->ibv.recv_cq, kind, entry);
    qp->received++;
}

static void fail(swnic_qp *qp, uint8_t syndrome, uint8_t vendor)
{
    uint8_t entry[SWNIC_BLOCK] = { [54] = vendor, [55] = syndrome };
    swnic_trace_receive(qp, 0, 0, syndrome);
    complete(qp, SWNIC_RECEIVE_FAILED, entry);
}

bool swnic_receive_is_posted(const swnic_qp *qp) { return left(qp) != 0; }

bool swnic_receive_check(swnic_qp *qp)
{
    swnic_refusal refusal = SWNIC_FINE;
    if (left(qp) > qp->rq.count) {
        refusal = SWNIC_TOO_MANY;
    } else {
        /* A valid entry is a list of pieces or its end; zeros and inline data are neither. */
        const uint8_t *entry = qp->rq.ring + (size_t)(qp->received & (qp->rq.count - 1)) * qp->rq.stride;
        const bool fine = swnic_get32(entry) >> 31 == 0 && swnic_get32(entry + 4) != 0;
        refusal = fine ? SWNIC_FINE : SWNIC_BAD_RECEIVE;
    }
    if (refusal != SWNIC_FINE) {
        swnic_complain(qp, refusal, qp->received);
        fail(qp, SWNIC_LOCAL_QP, (uint8_t)refusal);
    }
    return refusal == SWNIC_FINE;
}

void swnic_receive_take(swnic_qp *qp, uint32_t immediate, uint64_t bytes)
{
    uint8_t entry[SWNIC_BLOCK] = { 0 };
    swnic_put32(entry + 36, immediate);
    swnic_put32(entry + 44, (uint32_t)bytes);
    swnic_trace_receive(qp, immediate, bytes, 0);
    complete(qp, SWNIC_RECEIVED, entry);
}

void swnic_receive_flush(swnic_qp *qp)
{
    for (uint32_t count = left(qp); count != 0 && count <= qp->rq.count; count--) {
        fail(qp, SWNIC_FLUSHED, 0);
    }
}
