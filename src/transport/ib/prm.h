/* prm.h - the commands by which an mlx5 device makes and joins queues (DevX), field by field. Knows no verbs.
 *
 * A command is a mailbox, and so is its answer. A field is a range of bits, counted from the highest bit of the first
 * byte; numbers are big-endian. Names, places and widths are those of the Adapters Programmer's Reference Manual (PRM),
 * as listed in linux/mlx5/mlx5_ifc.h and rdma-core's providers/mlx5/mlx5_ifc.h. Each group has its name there as a
 * comment. test/swnic/prm_test.cc compares this list with a second one of orders and widths instead of places.
 * tools/swnic reads commands by this list. */
#ifndef WEIRI_IB_PRM_H
#define WEIRI_IB_PRM_H

#include <stdbool.h>
#include <stdint.h>

/* mlx5_cmd_op. */
enum {
    WEIRI_PRM_QUERY_HCA_CAP = 0x100,
    WEIRI_PRM_CREATE_CQ = 0x400,
    WEIRI_PRM_CREATE_QP = 0x500,
    WEIRI_PRM_RST2INIT_QP = 0x502,
    WEIRI_PRM_INIT2RTR_QP = 0x503,
    WEIRI_PRM_RTR2RTS_QP = 0x504,
    WEIRI_PRM_QUERY_QP = 0x50b
};

/* Bytes of mailboxes of commands and answers. */
enum {
    WEIRI_PRM_QUEUE_IN = 272, /* create_cq_in, create_qp_in, rst2init_qp_in, init2rtr_qp_in, rtr2rts_qp_in */
    WEIRI_PRM_QUERY_IN = 16,  /* query_hca_cap_in, query_qp_in */
    WEIRI_PRM_OUT = 16,       /* mbox_out, create_cq_out, create_qp_out */
    WEIRI_PRM_CAP_OUT = 4112, /* query_hca_cap_out */
    WEIRI_PRM_QP_OUT = 272    /* query_qp_out, without addresses */
};

/* Answers: mlx5_cmd_stat. */
enum {
    WEIRI_PRM_OK = 0x00,
    WEIRI_PRM_INTERNAL_ERR = 0x01,
    WEIRI_PRM_BAD_OP = 0x02,
    WEIRI_PRM_BAD_PARAM = 0x03,
    WEIRI_PRM_BAD_RESOURCE = 0x05,
    WEIRI_PRM_RESOURCE_BUSY = 0x06,
    WEIRI_PRM_EXCEED_LIM = 0x08,
    WEIRI_PRM_BAD_INDEX = 0x0a,
    WEIRI_PRM_NO_RESOURCES = 0x0f,
    WEIRI_PRM_BAD_QP_STATE = 0x10,
    WEIRI_PRM_BAD_INPUT_LEN = 0x50,
    WEIRI_PRM_BAD_OUTPUT_LEN = 0x51
};

/* Values of fields. */
#define WEIRI_PRM_ROCE_CAPS 0x9u  /* op_mod of QUERY_HCA_CAP: group 4, current values */
#define WEIRI_PRM_MIGRATED 3u     /* qpc.pm_state */
#define WEIRI_PRM_NO_RQ 3u        /* qpc.rq_type: no receive queue */
#define WEIRI_PRM_ATOMICS_8 3u    /* qpc.atomic_mode: up to 8 bytes */
#define WEIRI_PRM_TIME_DEFAULT 1u /* qpc.ts_format; 0, free-running, if the device has no other */
#define WEIRI_PRM_STATE_ERR 6u    /* qpc.state */

#define WEIRI_PRM_FIELD(bit, bits) ((uint32_t)(bit) << 8 | (uint32_t)(bits))

enum {
    /* mbox_in, mbox_out, and the object number, which has the same place in all commands that have one */
    WEIRI_PRM_OPCODE = WEIRI_PRM_FIELD(0x00, 16),
    WEIRI_PRM_UID = WEIRI_PRM_FIELD(0x10, 16), /* filled by the operating system's kernel */
    WEIRI_PRM_OP_MOD = WEIRI_PRM_FIELD(0x30, 16),
    WEIRI_PRM_NUMBER = WEIRI_PRM_FIELD(0x48, 24), /* qpn; in answers, cqn or qpn */
    WEIRI_PRM_STATUS = WEIRI_PRM_FIELD(0x00, 8),
    WEIRI_PRM_SYNDROME = WEIRI_PRM_FIELD(0x20, 32),

    /* query_hca_cap_out: roce_cap begins at bit 0x80 */
    WEIRI_PRM_CAP_QP_TS_FORMAT = WEIRI_PRM_FIELD(0x80 + 0x1e, 2),

    /* create_cq_in: cqc begins at bit 0x80 */
    WEIRI_PRM_CQC_DBR_UMEM_VALID = WEIRI_PRM_FIELD(0x80 + 0x006, 1),
    WEIRI_PRM_CQC_CQE_SZ = WEIRI_PRM_FIELD(0x80 + 0x008, 3),
    WEIRI_PRM_CQC_CC = WEIRI_PRM_FIELD(0x80 + 0x00b, 1),
    WEIRI_PRM_CQC_OI = WEIRI_PRM_FIELD(0x80 + 0x00e, 1),
    WEIRI_PRM_CQC_DBR_UMEM_ID = WEIRI_PRM_FIELD(0x80 + 0x020, 32),
    WEIRI_PRM_CQC_PAGE_OFFSET = WEIRI_PRM_FIELD(0x80 + 0x054, 6),
    WEIRI_PRM_CQC_LOG_CQ_SIZE = WEIRI_PRM_FIELD(0x80 + 0x063, 5),
    WEIRI_PRM_CQC_UAR_PAGE = WEIRI_PRM_FIELD(0x80 + 0x068, 24),
    WEIRI_PRM_CQC_C_EQN = WEIRI_PRM_FIELD(0x80 + 0x0b8, 8),
    WEIRI_PRM_CQC_LOG_PAGE_SIZE = WEIRI_PRM_FIELD(0x80 + 0x0c3, 5),
    WEIRI_PRM_CQC_DBR_ADDR = WEIRI_PRM_FIELD(0x80 + 0x1c0, 64),
    WEIRI_PRM_CQ_UMEM_OFFSET = WEIRI_PRM_FIELD(0x280, 64),
    WEIRI_PRM_CQ_UMEM_ID = WEIRI_PRM_FIELD(0x2c0, 32),
    WEIRI_PRM_CQ_UMEM_VALID = WEIRI_PRM_FIELD(0x2e0, 1),

    /* create_qp_in, rst2init_qp_in, init2rtr_qp_in, rtr2rts_qp_in, query_qp_out: qpc begins at bit 0xc0 */
    WEIRI_PRM_OPT_PARAM_MASK = WEIRI_PRM_FIELD(0x080, 32),
    WEIRI_PRM_QPC_STATE = WEIRI_PRM_FIELD(0xc0 + 0x000, 4),
    WEIRI_PRM_QPC_ST = WEIRI_PRM_FIELD(0xc0 + 0x008, 8), /* 0: a reliable connection */
    WEIRI_PRM_QPC_PM_STATE = WEIRI_PRM_FIELD(0xc0 + 0x013, 2),
    WEIRI_PRM_QPC_PD = WEIRI_PRM_FIELD(0xc0 + 0x028, 24),
    WEIRI_PRM_QPC_MTU = WEIRI_PRM_FIELD(0xc0 + 0x040, 3),
    WEIRI_PRM_QPC_LOG_MSG_MAX = WEIRI_PRM_FIELD(0xc0 + 0x043, 5),
    WEIRI_PRM_QPC_LOG_RQ_SIZE = WEIRI_PRM_FIELD(0xc0 + 0x049, 4),
    WEIRI_PRM_QPC_LOG_SQ_SIZE = WEIRI_PRM_FIELD(0xc0 + 0x051, 4),
    WEIRI_PRM_QPC_TS_FORMAT = WEIRI_PRM_FIELD(0xc0 + 0x058, 2),
    WEIRI_PRM_QPC_UAR_PAGE = WEIRI_PRM_FIELD(0xc0 + 0x068, 24),
    WEIRI_PRM_QPC_USER_INDEX = WEIRI_PRM_FIELD(0xc0 + 0x088, 24),
    WEIRI_PRM_QPC_LOG_PAGE_SIZE = WEIRI_PRM_FIELD(0xc0 + 0x0a3, 5),
    WEIRI_PRM_QPC_REMOTE_QPN = WEIRI_PRM_FIELD(0xc0 + 0x0a8, 24),
    WEIRI_PRM_QPC_LOG_SRA_MAX = WEIRI_PRM_FIELD(0xc0 + 0x388, 3),
    WEIRI_PRM_QPC_RETRY_COUNT = WEIRI_PRM_FIELD(0xc0 + 0x38d, 3),
    WEIRI_PRM_QPC_RNR_RETRY = WEIRI_PRM_FIELD(0xc0 + 0x390, 3),
    WEIRI_PRM_QPC_NEXT_SEND_PSN = WEIRI_PRM_FIELD(0xc0 + 0x3c8, 24),
    WEIRI_PRM_QPC_CQN_SND = WEIRI_PRM_FIELD(0xc0 + 0x3e8, 24),
    WEIRI_PRM_QPC_LOG_RRA_MAX = WEIRI_PRM_FIELD(0xc0 + 0x488, 3),
    WEIRI_PRM_QPC_ATOMIC_MODE = WEIRI_PRM_FIELD(0xc0 + 0x48c, 4),
    WEIRI_PRM_QPC_RRE = WEIRI_PRM_FIELD(0xc0 + 0x490, 1),
    WEIRI_PRM_QPC_RWE = WEIRI_PRM_FIELD(0xc0 + 0x491, 1),
    WEIRI_PRM_QPC_RAE = WEIRI_PRM_FIELD(0xc0 + 0x492, 1),
    WEIRI_PRM_QPC_PAGE_OFFSET = WEIRI_PRM_FIELD(0xc0 + 0x494, 6),
    WEIRI_PRM_QPC_MIN_RNR_NAK = WEIRI_PRM_FIELD(0xc0 + 0x4a3, 5),
    WEIRI_PRM_QPC_NEXT_RCV_PSN = WEIRI_PRM_FIELD(0xc0 + 0x4a8, 24),
    WEIRI_PRM_QPC_CQN_RCV = WEIRI_PRM_FIELD(0xc0 + 0x4e8, 24),
    WEIRI_PRM_QPC_DBR_ADDR = WEIRI_PRM_FIELD(0xc0 + 0x500, 64),
    WEIRI_PRM_QPC_RQ_TYPE = WEIRI_PRM_FIELD(0xc0 + 0x565, 3),
    WEIRI_PRM_QPC_HW_SQ_WQEBB_COUNTER = WEIRI_PRM_FIELD(0xc0 + 0x5a0, 16),
    WEIRI_PRM_QPC_SW_SQ_WQEBB_COUNTER = WEIRI_PRM_FIELD(0xc0 + 0x5b0, 16),
    WEIRI_PRM_QPC_DBR_UMEM_VALID = WEIRI_PRM_FIELD(0xc0 + 0x683, 1),
    WEIRI_PRM_QPC_DBR_UMEM_ID = WEIRI_PRM_FIELD(0xc0 + 0x720, 32),
    WEIRI_PRM_WQ_UMEM_OFFSET = WEIRI_PRM_FIELD(0x800, 64),
    WEIRI_PRM_WQ_UMEM_ID = WEIRI_PRM_FIELD(0x840, 32),
    WEIRI_PRM_WQ_UMEM_VALID = WEIRI_PRM_FIELD(0x860, 1),

    /* qpc.primary_address_path: ads, which begins at bit 0xc0 of qpc */
    WEIRI_PRM_PATH_PKEY_INDEX = WEIRI_PRM_FIELD(0x180 + 0x010, 16),
    WEIRI_PRM_PATH_GRH = WEIRI_PRM_FIELD(0x180 + 0x028, 1),
    WEIRI_PRM_PATH_RLID = WEIRI_PRM_FIELD(0x180 + 0x030, 16),
    WEIRI_PRM_PATH_ACK_TIMEOUT = WEIRI_PRM_FIELD(0x180 + 0x040, 5),
    WEIRI_PRM_PATH_SRC_ADDR_INDEX = WEIRI_PRM_FIELD(0x180 + 0x048, 8),
    WEIRI_PRM_PATH_HOP_LIMIT = WEIRI_PRM_FIELD(0x180 + 0x058, 8),
    WEIRI_PRM_PATH_RGID_HIGH = WEIRI_PRM_FIELD(0x180 + 0x080, 64), /* the first eight bytes of rgid_rip */
    WEIRI_PRM_PATH_RGID_LOW = WEIRI_PRM_FIELD(0x180 + 0x0c0, 64),
    WEIRI_PRM_PATH_UDP_SPORT = WEIRI_PRM_FIELD(0x180 + 0x110, 16),
    WEIRI_PRM_PATH_VHCA_PORT_NUM = WEIRI_PRM_FIELD(0x180 + 0x128, 8),
    WEIRI_PRM_PATH_RMAC = WEIRI_PRM_FIELD(0x180 + 0x130, 48) /* rmac_47_32 and rmac_31_0 */
};

static inline uint64_t weiri_prm_get(const uint8_t *mailbox, uint32_t field)
{
    uint64_t value = 0;
    for (uint32_t bit = field >> 8; bit < (field >> 8) + (field & 0xff); bit++) {
        value = value << 1 | (mailbox[bit / 8] >> (7 - bit % 8) & 1u);
    }
    return value;
}

/* Bits of the value that exceed the field's width are cut off. */
static inline void weiri_prm_set(uint8_t *mailbox, uint32_t field, uint64_t value)
{
    for (uint32_t bit = (field >> 8) + (field & 0xff); bit-- > field >> 8; value >>= 1) {
        const uint8_t mask = (uint8_t)(0x80u >> bit % 8);
        mailbox[bit / 8] = (uint8_t)((mailbox[bit / 8] & ~mask) | ((value & 1) != 0 ? mask : 0));
    }
}

/* ---- ib/prm.c: whole commands; each overwrites all of its mailbox ------------------------------ */

/* Offsets in bytes in a umem. */
typedef struct weiri_prm_place {
    uint32_t umem;
    uint64_t ring;   /* entries or blocks of 64 bytes; begins at a page */
    uint64_t record; /* two words */
} weiri_prm_place;

typedef struct weiri_prm_cq {
    weiri_prm_place place;
    uint32_t uar;
    uint32_t events; /* number of an event queue, which gets no events */
    uint32_t log_entries;
} weiri_prm_cq;

typedef struct weiri_prm_qp {
    weiri_prm_place place;
    uint32_t uar;
    uint32_t pd;
    uint32_t cqn;
    uint32_t log_blocks;
    uint32_t ts_format;
} weiri_prm_qp;

/* A reliable connection: both ends and the path between them. */
typedef struct weiri_prm_link {
    uint32_t qpn, psn;
    uint32_t peer_qpn, peer_psn;
    uint8_t port;
    bool atomics;                        /* the peer may use atomics; it may always read and write */
    uint8_t mtu;                         /* as enum ibv_mtu */
    uint8_t log_reads_in, log_reads_out; /* reads and atomics under way at the same time */
    uint8_t rnr_timer, retries, rnr_retries;
    uint8_t timeout; /* 4.096 us * 2^timeout */
    bool global;     /* InfiniBand: the peer's GID is needed too */
    uint16_t lid;
    uint16_t udp_port; /* RoCE v2: source port of packets */
    uint8_t mac[6];    /* RoCE */
    uint8_t gid[16];   /* GID of the peer; with it go this end's GID index and the hop limit */
    uint8_t gid_index;
    uint8_t hops;
} weiri_prm_link;

/* Each completion overwrites the one before in entry 0 (collapsed). The NIC is not notified of reads. */
void weiri_prm_create_cq(const weiri_prm_cq *cq, uint8_t in[WEIRI_PRM_QUEUE_IN]);
/* Has a send queue and no receive queue. */
void weiri_prm_create_qp(const weiri_prm_qp *qp, uint8_t in[WEIRI_PRM_QUEUE_IN]);
void weiri_prm_rst2init(const weiri_prm_link *link, uint8_t in[WEIRI_PRM_QUEUE_IN]);
void weiri_prm_init2rtr(const weiri_prm_link *link, uint8_t in[WEIRI_PRM_QUEUE_IN]);
void weiri_prm_rtr2rts(const weiri_prm_link *link, uint8_t in[WEIRI_PRM_QUEUE_IN]);
void weiri_prm_query_roce(uint8_t in[WEIRI_PRM_QUERY_IN]);
void weiri_prm_query_qp(uint32_t qpn, uint8_t in[WEIRI_PRM_QUERY_IN]);

/* The status of an answer in words. */
const char *weiri_prm_status(uint32_t status);

#endif
