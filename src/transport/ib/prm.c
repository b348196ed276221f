/* prm.c - see ib/prm.h. Fields that a command does not set are 0, as the manual requires. */
#include "src/transport/ib/prm.h"

#include <stddef.h>
#include <string.h>

#define LOG_MESSAGE 30 /* 1 GiB, the maximum */

static void begin(uint8_t *in, uint32_t bytes, uint32_t opcode)
{
    memset(in, 0, bytes);
    weiri_prm_set(in, WEIRI_PRM_OPCODE, opcode);
}

void weiri_prm_create_cq(const weiri_prm_cq *cq, uint8_t in[WEIRI_PRM_QUEUE_IN])
{
    begin(in, WEIRI_PRM_QUEUE_IN, WEIRI_PRM_CREATE_CQ);
    weiri_prm_set(in, WEIRI_PRM_CQC_CC, 1);
    weiri_prm_set(in, WEIRI_PRM_CQC_OI, 1);
    weiri_prm_set(in, WEIRI_PRM_CQC_LOG_CQ_SIZE, cq->log_entries);
    weiri_prm_set(in, WEIRI_PRM_CQC_UAR_PAGE, cq->uar);
    weiri_prm_set(in, WEIRI_PRM_CQC_C_EQN, cq->events);
    weiri_prm_set(in, WEIRI_PRM_CQC_DBR_UMEM_VALID, 1);
    weiri_prm_set(in, WEIRI_PRM_CQC_DBR_UMEM_ID, cq->place.umem);
    weiri_prm_set(in, WEIRI_PRM_CQC_DBR_ADDR, cq->place.record);
    weiri_prm_set(in, WEIRI_PRM_CQ_UMEM_VALID, 1);
    weiri_prm_set(in, WEIRI_PRM_CQ_UMEM_ID, cq->place.umem);
    weiri_prm_set(in, WEIRI_PRM_CQ_UMEM_OFFSET, cq->place.ring);
}

void weiri_prm_create_qp(const weiri_prm_qp *qp, uint8_t in[WEIRI_PRM_QUEUE_IN])
{
    begin(in, WEIRI_PRM_QUEUE_IN, WEIRI_PRM_CREATE_QP);
    weiri_prm_set(in, WEIRI_PRM_QPC_PM_STATE, WEIRI_PRM_MIGRATED);
    weiri_prm_set(in, WEIRI_PRM_QPC_PD, qp->pd);
    weiri_prm_set(in, WEIRI_PRM_QPC_LOG_SQ_SIZE, qp->log_blocks);
    weiri_prm_set(in, WEIRI_PRM_QPC_RQ_TYPE, WEIRI_PRM_NO_RQ);
    weiri_prm_set(in, WEIRI_PRM_QPC_TS_FORMAT, qp->ts_format);
    weiri_prm_set(in, WEIRI_PRM_QPC_UAR_PAGE, qp->uar);
    weiri_prm_set(in, WEIRI_PRM_QPC_CQN_SND, qp->cqn);
    weiri_prm_set(in, WEIRI_PRM_QPC_CQN_RCV, qp->cqn);
    weiri_prm_set(in, WEIRI_PRM_QPC_DBR_UMEM_VALID, 1);
    weiri_prm_set(in, WEIRI_PRM_QPC_DBR_UMEM_ID, qp->place.umem);
    weiri_prm_set(in, WEIRI_PRM_QPC_DBR_ADDR, qp->place.record);
    weiri_prm_set(in, WEIRI_PRM_WQ_UMEM_VALID, 1);
    weiri_prm_set(in, WEIRI_PRM_WQ_UMEM_ID, qp->place.umem);
    weiri_prm_set(in, WEIRI_PRM_WQ_UMEM_OFFSET, qp->place.ring);
}

void weiri_prm_rst2init(const weiri_prm_link *link, uint8_t in[WEIRI_PRM_QUEUE_IN])
{
    begin(in, WEIRI_PRM_QUEUE_IN, WEIRI_PRM_RST2INIT_QP);
    weiri_prm_set(in, WEIRI_PRM_NUMBER, link->qpn);
    weiri_prm_set(in, WEIRI_PRM_QPC_PM_STATE, WEIRI_PRM_MIGRATED);
    weiri_prm_set(in, WEIRI_PRM_QPC_RRE, 1);
    weiri_prm_set(in, WEIRI_PRM_QPC_RWE, 1);
    weiri_prm_set(in, WEIRI_PRM_QPC_RAE, link->atomics);
    weiri_prm_set(in, WEIRI_PRM_QPC_ATOMIC_MODE, link->atomics ? WEIRI_PRM_ATOMICS_8 : 0);
    weiri_prm_set(in, WEIRI_PRM_PATH_VHCA_PORT_NUM, link->port);
}

static uint64_t big_endian(const uint8_t *bytes, uint32_t count)
{
    uint64_t value = 0;
    for (uint32_t i = 0; i < count; i++) {
        value = value << 8 | bytes[i];
    }
    return value;
}

void weiri_prm_init2rtr(const weiri_prm_link *link, uint8_t in[WEIRI_PRM_QUEUE_IN])
{
    begin(in, WEIRI_PRM_QUEUE_IN, WEIRI_PRM_INIT2RTR_QP);
    weiri_prm_set(in, WEIRI_PRM_NUMBER, link->qpn);
    weiri_prm_set(in, WEIRI_PRM_QPC_MTU, link->mtu);
    weiri_prm_set(in, WEIRI_PRM_QPC_LOG_MSG_MAX, LOG_MESSAGE);
    weiri_prm_set(in, WEIRI_PRM_QPC_REMOTE_QPN, link->peer_qpn);
    weiri_prm_set(in, WEIRI_PRM_QPC_NEXT_RCV_PSN, link->peer_psn);
    weiri_prm_set(in, WEIRI_PRM_QPC_LOG_RRA_MAX, link->log_reads_in);
    weiri_prm_set(in, WEIRI_PRM_QPC_MIN_RNR_NAK, link->rnr_timer);
    weiri_prm_set(in, WEIRI_PRM_PATH_VHCA_PORT_NUM, link->port);
    weiri_prm_set(in, WEIRI_PRM_PATH_GRH, link->global);
    weiri_prm_set(in, WEIRI_PRM_PATH_RLID, link->lid);
    weiri_prm_set(in, WEIRI_PRM_PATH_UDP_SPORT, link->udp_port);
    weiri_prm_set(in, WEIRI_PRM_PATH_RMAC, big_endian(link->mac, sizeof link->mac));
    weiri_prm_set(in, WEIRI_PRM_PATH_RGID_HIGH, big_endian(link->gid, 8));
    weiri_prm_set(in, WEIRI_PRM_PATH_RGID_LOW, big_endian(link->gid + 8, 8));
    weiri_prm_set(in, WEIRI_PRM_PATH_SRC_ADDR_INDEX, link->gid_index);
    weiri_prm_set(in, WEIRI_PRM_PATH_HOP_LIMIT, link->hops);
}

void weiri_prm_rtr2rts(const weiri_prm_link *link, uint8_t in[WEIRI_PRM_QUEUE_IN])
{
    begin(in, WEIRI_PRM_QUEUE_IN, WEIRI_PRM_RTR2RTS_QP);
    weiri_prm_set(in, WEIRI_PRM_NUMBER, link->qpn);
    weiri_prm_set(in, WEIRI_PRM_QPC_NEXT_SEND_PSN, link->psn);
    weiri_prm_set(in, WEIRI_PRM_QPC_LOG_SRA_MAX, link->log_reads_out);
    weiri_prm_set(in, WEIRI_PRM_QPC_RETRY_COUNT, link->retries);
    weiri_prm_set(in, WEIRI_PRM_QPC_RNR_RETRY, link->rnr_retries);
    weiri_prm_set(in, WEIRI_PRM_PATH_ACK_TIMEOUT, link->timeout);
}

void weiri_prm_query_roce(uint8_t in[WEIRI_PRM_QUERY_IN])
{
    begin(in, WEIRI_PRM_QUERY_IN, WEIRI_PRM_QUERY_HCA_CAP);
    weiri_prm_set(in, WEIRI_PRM_OP_MOD, WEIRI_PRM_ROCE_CAPS);
}

void weiri_prm_query_qp(uint32_t qpn, uint8_t in[WEIRI_PRM_QUERY_IN])
{
    begin(in, WEIRI_PRM_QUERY_IN, WEIRI_PRM_QUERY_QP);
    weiri_prm_set(in, WEIRI_PRM_NUMBER, qpn);
}

const char *weiri_prm_status(uint32_t status)
{
    static const struct {
        uint32_t status;
        const char *text;
    } rows[] = {
        { WEIRI_PRM_OK, "success" },
        { WEIRI_PRM_INTERNAL_ERR, "internal error" },
        { WEIRI_PRM_BAD_OP, "no such command" },
        { WEIRI_PRM_BAD_PARAM, "bad parameter" },
        { WEIRI_PRM_BAD_RESOURCE, "no such object" },
        { WEIRI_PRM_RESOURCE_BUSY, "object in use" },
        { WEIRI_PRM_EXCEED_LIM, "limit exceeded" },
        { WEIRI_PRM_BAD_INDEX, "bad number" },
        { WEIRI_PRM_NO_RESOURCES, "out of resources" },
        { WEIRI_PRM_BAD_QP_STATE, "queue pair in another state" },
        { WEIRI_PRM_BAD_INPUT_LEN, "bad length of the command" },
        { WEIRI_PRM_BAD_OUTPUT_LEN, "bad length of the answer" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].status == status) {
            return rows[i].text;
        }
    }
    return "an unknown status";
}
