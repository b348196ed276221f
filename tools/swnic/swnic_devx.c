/* swnic_devx.c - commands of an mlx5 device's firmware (DevX) that make and connect queues in memory of the caller. It
 * knows exactly the commands of ib/prm.h, and of each the fields in its table below. All other bits must be 0.
 *
 * A refused command answers as firmware does, by a status and a syndrome in the output mailbox; errno is EREMOTEIO. The
 * syndrome is 0x53570000 plus the first bit of the refused field, or 0x5357ffff for a wrong length. The field's name
 * and the reason go to stderr and into the trace. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/mlx5dv.h>

#include "src/transport/ib/prm.h"
#include "swnic.h"

#define PAGE 4096u
#define EVENTS 1u /* the only event queue */
#define SYNDROME 0x53570000u
#define LENGTH WEIRI_PRM_FIELD(0xffff, 0)
#define UAR_NC_DEDICATED (1u << 31) /* MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED of later headers */

/* ---- memory and registers ------------------------------------------------------------------------------- */

struct swnic_umem {
    struct mlx5dv_devx_umem dv;
    swnic_umem *next;
    swnic_nic *nic;
    uint8_t *address;
    uint64_t bytes;
    uint32_t users; /* queues, counted for the ring and for the record */
};

struct swnic_uar {
    struct mlx5dv_devx_uar dv;
    swnic_uar *next;
    swnic_nic *nic;
    bool rung;      /* used by a queue pair: doorbells of a second one would overwrite those of the first */
    uint32_t users; /* completion queues */
};

static bool is_allowed(struct ibv_context *context)
{
    swnic_nic *nic = swnic_of(context);
    swnic_enter(nic);
    const bool allowed = !nic->faults[SWNIC_FAULT_NO_DEVX].set;
    swnic_leave(nic);
    errno = allowed ? errno : EPERM;
    return allowed;
}

SWNIC_EXPORT struct mlx5dv_devx_umem *mlx5dv_devx_umem_reg(struct ibv_context *context, void *address, size_t bytes,
                                                           uint32_t access)
{
    swnic_nic *nic = swnic_of(context);
    if (!is_allowed(context)) {
        return NULL;
    }
    if (bytes == 0 || access != IBV_ACCESS_LOCAL_WRITE || !swnic_is_host_memory(address, bytes)) {
        errno = bytes == 0 || access != IBV_ACCESS_LOCAL_WRITE ? EINVAL : EFAULT;
        return NULL;
    }
    swnic_umem *umem = calloc(1, sizeof *umem);
    if (umem == NULL) {
        return NULL;
    }
    umem->nic = nic;
    umem->address = address;
    umem->bytes = bytes;
    swnic_enter(nic);
    const bool refused = swnic_fault_hits(nic, SWNIC_FAULT_NO_UMEM);
    umem->dv.umem_id = ++nic->umem_next;
    umem->next = refused ? NULL : nic->umems;
    nic->umems = refused ? nic->umems : umem;
    swnic_leave(nic);
    if (refused) {
        free(umem);
        errno = ENOMEM;
        return NULL;
    }
    return &umem->dv;
}

/* Memory that only a descriptor names, for example of a GPU, cannot be copied by a CPU. */
SWNIC_EXPORT struct mlx5dv_devx_umem *mlx5dv_devx_umem_reg_ex(struct ibv_context *context,
                                                              struct mlx5dv_devx_umem_in *in)
{
    if (in->comp_mask != 0) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    return mlx5dv_devx_umem_reg(context, in->addr, in->size, in->access);
}

SWNIC_EXPORT int mlx5dv_devx_umem_dereg(struct mlx5dv_devx_umem *dv)
{
    swnic_umem *umem = (swnic_umem *)dv;
    swnic_nic *nic = umem->nic;
    swnic_umem **at = &nic->umems;
    swnic_enter(nic);
    const bool busy = umem->users != 0;
    while (!busy && *at != umem) {
        at = &(*at)->next;
    }
    if (!busy) {
        *at = umem->next;
    }
    swnic_leave(nic);
    if (busy) {
        return EBUSY;
    }
    free(umem);
    return 0;
}

SWNIC_EXPORT struct mlx5dv_devx_uar *mlx5dv_devx_alloc_uar(struct ibv_context *context, uint32_t flags)
{
    swnic_nic *nic = swnic_of(context);
    if (!is_allowed(context)) {
        return NULL;
    }
    if (flags != MLX5DV_UAR_ALLOC_TYPE_BF && flags != MLX5DV_UAR_ALLOC_TYPE_NC && flags != UAR_NC_DEDICATED) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    swnic_enter(nic);
    const bool refused = swnic_fault_hits(nic, SWNIC_FAULT_NO_UAR);
    swnic_leave(nic);
    swnic_uar *uar = refused ? NULL : calloc(1, sizeof *uar);
    uint8_t *page = uar != NULL ? aligned_alloc(PAGE, PAGE) : NULL;
    if (page == NULL) {
        free(uar);
        errno = ENOMEM;
        return NULL;
    }
    memset(page, 0, PAGE);
    uar->nic = nic;
    uar->dv.base_addr = page;
    uar->dv.reg_addr = page + SWNIC_REGISTER;
    swnic_enter(nic);
    uar->dv.page_id = ++nic->uar_next & 0xffffff;
    uar->next = nic->uars;
    nic->uars = uar;
    swnic_leave(nic);
    return &uar->dv;
}

SWNIC_EXPORT void mlx5dv_devx_free_uar(struct mlx5dv_devx_uar *dv)
{
    swnic_uar *uar = (swnic_uar *)dv;
    swnic_nic *nic = uar->nic;
    swnic_uar **at = &nic->uars;
    swnic_enter(nic);
    const bool busy = uar->rung || uar->users != 0;
    while (!busy && *at != uar) {
        at = &(*at)->next;
    }
    if (!busy) {
        *at = uar->next;
    }
    swnic_leave(nic);
    if (busy) {
        (void)dprintf(STDERR_FILENO, "swnic: registers %u are released while queues use them: they stay\n",
                      uar->dv.page_id);
        return;
    }
    free(uar->dv.base_addr);
    free(uar);
}

SWNIC_EXPORT int mlx5dv_devx_query_eqn(struct ibv_context *context, uint32_t vector, uint32_t *eqn)
{
    if (!is_allowed(context)) {
        return errno;
    }
    *eqn = EVENTS;
    return vector == 0 ? 0 : EINVAL;
}

/* ---- commands ------------------------------------------------------------------------------------------- */

/* A completion queue or a queue pair. */
struct mlx5dv_devx_obj {
    swnic_nic *nic;
    struct mlx5dv_devx_obj *next;
    swnic_cq *cq;
    swnic_qp *qp;
    swnic_umem *ring, *record;
    swnic_uar *uar;
    struct mlx5dv_devx_obj *completions; /* of a queue pair */
    uint32_t users;                      /* queue pairs of a completion queue */
};

/* A field of a command with its minimum and maximum. */
typedef struct field {
    uint32_t place;
    const char *name;
    uint64_t least, most;
} field;

typedef struct command {
    swnic_nic *nic;
    const uint8_t *in;
    uint8_t *out;
    struct mlx5dv_devx_obj *obj;
    uint32_t place; /* of the refused field */
    const char *why;
} command;

static uint8_t refuse(command *c, uint8_t status, uint32_t place, const char *why)
{
    c->place = place;
    c->why = why;
    return status;
}

static uint32_t get(const command *c, uint32_t place) { return (uint32_t)weiri_prm_get(c->in, place); }

/* Finds `bytes` of a umem's memory. A ring begins at a page, a record at a multiple of 8. */
static uint8_t find_memory(command *c, uint32_t id, uint32_t offset, uint64_t bytes, uint64_t multiple,
                           swnic_umem **umem, uint8_t **memory)
{
    const uint64_t begin = weiri_prm_get(c->in, offset);
    *umem = c->nic->umems;
    while (*umem != NULL && (*umem)->dv.umem_id != get(c, id)) {
        *umem = (*umem)->next;
    }
    if (*umem == NULL) {
        return refuse(c, WEIRI_PRM_BAD_RESOURCE, id, "no such memory");
    }
    if (begin % multiple != 0 || (uintptr_t)(*umem)->address % multiple != 0) {
        return refuse(c, WEIRI_PRM_BAD_PARAM, offset, "not aligned");
    }
    if (bytes > (*umem)->bytes || begin > (*umem)->bytes - bytes) {
        return refuse(c, WEIRI_PRM_BAD_PARAM, offset, "goes past the end of the memory");
    }
    *memory = (*umem)->address + begin;
    return WEIRI_PRM_OK;
}

static uint8_t find_uar(command *c, uint32_t place, swnic_uar **uar)
{
    *uar = c->nic->uars;
    while (*uar != NULL && (*uar)->dv.page_id != get(c, place)) {
        *uar = (*uar)->next;
    }
    return *uar != NULL ? WEIRI_PRM_OK : refuse(c, WEIRI_PRM_BAD_RESOURCE, place, "no such registers");
}

/* ---- CREATE_CQ ------------------------------------------------------------------------------------------ */

static const field create_cq_fields[] = {
    { WEIRI_PRM_CQC_DBR_UMEM_VALID, "cqc.dbr_umem_valid", 1, 1 },
    { WEIRI_PRM_CQC_CQE_SZ, "cqc.cqe_sz", 0, 0 },
    { WEIRI_PRM_CQC_CC, "cqc.cc", 0, 1 },
    { WEIRI_PRM_CQC_OI, "cqc.oi", 0, 1 },
    { WEIRI_PRM_CQC_DBR_UMEM_ID, "cqc.dbr_umem_id", 1, UINT32_MAX },
    { WEIRI_PRM_CQC_PAGE_OFFSET, "cqc.page_offset", 0, 0 },
    { WEIRI_PRM_CQC_LOG_CQ_SIZE, "cqc.log_cq_size", 0, 22 },
    { WEIRI_PRM_CQC_UAR_PAGE, "cqc.uar_page", 1, 0xffffff },
    { WEIRI_PRM_CQC_C_EQN, "cqc.c_eqn", EVENTS, EVENTS },
    { WEIRI_PRM_CQC_LOG_PAGE_SIZE, "cqc.log_page_size", 0, 31 },
    { WEIRI_PRM_CQC_DBR_ADDR, "cqc.dbr_addr", 0, UINT64_MAX },
    { WEIRI_PRM_CQ_UMEM_OFFSET, "cq_umem_offset", 0, UINT64_MAX },
    { WEIRI_PRM_CQ_UMEM_ID, "cq_umem_id", 1, UINT32_MAX },
    { WEIRI_PRM_CQ_UMEM_VALID, "cq_umem_valid", 1, 1 },
};

/* The caller has made all entries invalid. */
static uint8_t create_cq(command *c)
{
    struct mlx5dv_devx_obj *obj = c->obj;
    const uint32_t count = 1u << get(c, WEIRI_PRM_CQC_LOG_CQ_SIZE);
    uint8_t *ring, *record;
    uint8_t status = find_memory(c, WEIRI_PRM_CQ_UMEM_ID, WEIRI_PRM_CQ_UMEM_OFFSET, (uint64_t)count * SWNIC_BLOCK, PAGE,
                                 &obj->ring, &ring);
    if (status == WEIRI_PRM_OK) {
        status = find_memory(c, WEIRI_PRM_CQC_DBR_UMEM_ID, WEIRI_PRM_CQC_DBR_ADDR, 8, 8, &obj->record, &record);
    }
    if (status == WEIRI_PRM_OK) {
        status = find_uar(c, WEIRI_PRM_CQC_UAR_PAGE, &obj->uar);
    }
    if (status != WEIRI_PRM_OK) {
        return status;
    }
    swnic_cq *cq = calloc(1, sizeof *cq);
    if (cq == NULL) {
        return refuse(c, WEIRI_PRM_NO_RESOURCES, WEIRI_PRM_OPCODE, "no memory");
    }
    (void)pthread_mutex_init(&cq->lock, NULL);
    cq->ex.context = &c->nic->verbs.context;
    cq->devx = true;
    cq->ring = ring;
    cq->record = (uint32_t *)(void *)record;
    cq->count = count;
    cq->collapsed = get(c, WEIRI_PRM_CQC_CC) != 0;
    cq->overrun_allowed = get(c, WEIRI_PRM_CQC_OI) != 0;
    cq->number = ++c->nic->cq_next & 0xffffff;
    obj->cq = cq;
    obj->uar->users++;
    weiri_prm_set(c->out, WEIRI_PRM_NUMBER, cq->number);
    return WEIRI_PRM_OK;
}

/* ---- CREATE_QP ------------------------------------------------------------------------------------------ */

static const field create_qp_fields[] = {
    { WEIRI_PRM_OPT_PARAM_MASK, "opt_param_mask", 0, 0 },
    { WEIRI_PRM_QPC_ST, "qpc.st", 0, 0 },
    { WEIRI_PRM_QPC_PM_STATE, "qpc.pm_state", WEIRI_PRM_MIGRATED, WEIRI_PRM_MIGRATED },
    { WEIRI_PRM_QPC_PD, "qpc.pd", 1, 0xffffff },
    { WEIRI_PRM_QPC_LOG_RQ_SIZE, "qpc.log_rq_size", 0, 0 },
    { WEIRI_PRM_QPC_LOG_SQ_SIZE, "qpc.log_sq_size", 0, 15 },
    { WEIRI_PRM_QPC_TS_FORMAT, "qpc.ts_format", 0, WEIRI_PRM_TIME_DEFAULT },
    { WEIRI_PRM_QPC_UAR_PAGE, "qpc.uar_page", 1, 0xffffff },
    { WEIRI_PRM_QPC_USER_INDEX, "qpc.user_index", 0, 0xffffff },
    { WEIRI_PRM_QPC_LOG_PAGE_SIZE, "qpc.log_page_size", 0, 31 },
    { WEIRI_PRM_QPC_CQN_SND, "qpc.cqn_snd", 1, 0xffffff },
    { WEIRI_PRM_QPC_CQN_RCV, "qpc.cqn_rcv", 1, 0xffffff },
    { WEIRI_PRM_QPC_PAGE_OFFSET, "qpc.page_offset", 0, 0 },
    { WEIRI_PRM_QPC_DBR_ADDR, "qpc.dbr_addr", 0, UINT64_MAX },
    { WEIRI_PRM_QPC_RQ_TYPE, "qpc.rq_type", WEIRI_PRM_NO_RQ, WEIRI_PRM_NO_RQ },
    { WEIRI_PRM_QPC_DBR_UMEM_VALID, "qpc.dbr_umem_valid", 1, 1 },
    { WEIRI_PRM_QPC_DBR_UMEM_ID, "qpc.dbr_umem_id", 1, UINT32_MAX },
    { WEIRI_PRM_WQ_UMEM_OFFSET, "wq_umem_offset", 0, UINT64_MAX },
    { WEIRI_PRM_WQ_UMEM_ID, "wq_umem_id", 1, UINT32_MAX },
    { WEIRI_PRM_WQ_UMEM_VALID, "wq_umem_valid", 1, 1 },
};

static uint8_t find_completions(command *c, uint32_t place, struct mlx5dv_devx_obj **completions)
{
    *completions = c->nic->objects;
    while (*completions != NULL && ((*completions)->cq == NULL || (*completions)->cq->number != get(c, place))) {
        *completions = (*completions)->next;
    }
    return *completions != NULL ? WEIRI_PRM_OK : refuse(c, WEIRI_PRM_BAD_RESOURCE, place, "no such completion queue");
}

/* Finds the objects that a new queue pair names. */
static uint8_t find_parts(command *c, uint32_t count, swnic_pd **pd, uint8_t **ring, uint8_t **record)
{
    struct mlx5dv_devx_obj *obj = c->obj, *receives;
    *pd = c->nic->pds;
    while (*pd != NULL && (*pd)->number != get(c, WEIRI_PRM_QPC_PD)) {
        *pd = (*pd)->next;
    }
    if (*pd == NULL) {
        return refuse(c, WEIRI_PRM_BAD_RESOURCE, WEIRI_PRM_QPC_PD, "no such protection domain");
    }
    uint8_t status = find_uar(c, WEIRI_PRM_QPC_UAR_PAGE, &obj->uar);
    if (status == WEIRI_PRM_OK && obj->uar->rung) {
        status = refuse(c, WEIRI_PRM_RESOURCE_BUSY, WEIRI_PRM_QPC_UAR_PAGE,
                        "another queue pair uses these registers, and memory keeps only the last store");
    }
    if (status == WEIRI_PRM_OK) {
        status = find_completions(c, WEIRI_PRM_QPC_CQN_RCV, &receives);
    }
    if (status == WEIRI_PRM_OK) {
        status = find_completions(c, WEIRI_PRM_QPC_CQN_SND, &obj->completions);
    }
    if (status == WEIRI_PRM_OK && receives != obj->completions) {
        status = refuse(c, WEIRI_PRM_BAD_PARAM, WEIRI_PRM_QPC_CQN_RCV, "must be that of the send queue");
    }
    if (status == WEIRI_PRM_OK) {
        status = find_memory(c, WEIRI_PRM_WQ_UMEM_ID, WEIRI_PRM_WQ_UMEM_OFFSET, (uint64_t)count * SWNIC_BLOCK, PAGE,
                             &obj->ring, ring);
    }
    if (status == WEIRI_PRM_OK) {
        status = find_memory(c, WEIRI_PRM_QPC_DBR_UMEM_ID, WEIRI_PRM_QPC_DBR_ADDR, 8, 8, &obj->record, record);
    }
    return status;
}

static uint8_t create_qp(command *c)
{
    struct mlx5dv_devx_obj *obj = c->obj;
    const uint32_t count = 1u << get(c, WEIRI_PRM_QPC_LOG_SQ_SIZE);
    swnic_pd *pd;
    uint8_t *ring, *record;
    uint8_t status = find_parts(c, count, &pd, &ring, &record);
    if (status != WEIRI_PRM_OK) {
        return status;
    }
    swnic_qp *qp = calloc(1, sizeof *qp);
    swnic_flight *flights = calloc(count, sizeof *flights);
    if (qp != NULL && flights != NULL) {
        struct ibv_cq *cq = (struct ibv_cq *)obj->completions->cq;
        qp->ibv = (struct ibv_qp){
            .context = &c->nic->verbs.context, .pd = &pd->ibv, .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC
        };
        qp->devx = true;
        qp->nic = c->nic;
        qp->pd = pd->base;
        qp->flights = flights;
        qp->sq.ring = ring;
        qp->sq.record = (uint32_t *)(void *)record;
        qp->sq.page = obj->uar->dv.base_addr;
        qp->sq.count = count;
    }
    if (qp == NULL || flights == NULL || swnic_qp_add(qp) != 0) {
        free(qp);
        free(flights);
        return refuse(c, WEIRI_PRM_NO_RESOURCES, WEIRI_PRM_OPCODE, "no memory");
    }
    obj->qp = qp;
    obj->uar->rung = true;
    obj->completions->users++;
    weiri_prm_set(c->out, WEIRI_PRM_NUMBER, qp->ibv.qp_num);
    return WEIRI_PRM_OK;
}

/* ---- states --------------------------------------------------------------------------------------------- */

static uint8_t modify(command *c, struct ibv_qp_attr *attr, int mask)
{
    return swnic_qp_modify(c->obj->qp, attr, mask | IBV_QP_STATE) == 0
               ? WEIRI_PRM_OK
               : refuse(c, WEIRI_PRM_BAD_QP_STATE, WEIRI_PRM_OPCODE, "not in this state");
}

static const field rst2init_fields[] = {
    { WEIRI_PRM_NUMBER, "qpn", 1, 0xffffff },
    { WEIRI_PRM_OPT_PARAM_MASK, "opt_param_mask", 0, 0 },
    { WEIRI_PRM_QPC_PM_STATE, "qpc.pm_state", WEIRI_PRM_MIGRATED, WEIRI_PRM_MIGRATED },
    { WEIRI_PRM_QPC_ATOMIC_MODE, "qpc.atomic_mode", 0, WEIRI_PRM_ATOMICS_8 },
    { WEIRI_PRM_QPC_RRE, "qpc.rre", 0, 1 },
    { WEIRI_PRM_QPC_RWE, "qpc.rwe", 0, 1 },
    { WEIRI_PRM_QPC_RAE, "qpc.rae", 0, 1 },
    { WEIRI_PRM_PATH_PKEY_INDEX, "path.pkey_index", 0, 0 },
    { WEIRI_PRM_PATH_VHCA_PORT_NUM, "path.vhca_port_num", 1, 1 },
};

static uint8_t rst2init(command *c)
{
    const bool adds = get(c, WEIRI_PRM_QPC_RAE) != 0;
    if (adds != (get(c, WEIRI_PRM_QPC_ATOMIC_MODE) == WEIRI_PRM_ATOMICS_8)) {
        return refuse(c, WEIRI_PRM_BAD_PARAM, WEIRI_PRM_QPC_ATOMIC_MODE, "must be 3 with atomics and 0 without");
    }
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = 1,
        .qp_access_flags = (get(c, WEIRI_PRM_QPC_RRE) != 0 ? IBV_ACCESS_REMOTE_READ : 0u) |
                           (get(c, WEIRI_PRM_QPC_RWE) != 0 ? IBV_ACCESS_REMOTE_WRITE : 0u) |
                           (adds ? IBV_ACCESS_REMOTE_ATOMIC : 0u),
    };
    return modify(c, &attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static const field init2rtr_fields[] = {
    { WEIRI_PRM_NUMBER, "qpn", 1, 0xffffff },
    { WEIRI_PRM_OPT_PARAM_MASK, "opt_param_mask", 0, 0 },
    { WEIRI_PRM_QPC_MTU, "qpc.mtu", IBV_MTU_256, IBV_MTU_4096 },
    { WEIRI_PRM_QPC_LOG_MSG_MAX, "qpc.log_msg_max", 1, 30 },
    { WEIRI_PRM_QPC_REMOTE_QPN, "qpc.remote_qpn", 1, 0xffffff },
    { WEIRI_PRM_QPC_LOG_RRA_MAX, "qpc.log_rra_max", 0, 4 }, /* SWNIC_READS */
    { WEIRI_PRM_QPC_MIN_RNR_NAK, "qpc.min_rnr_nak", 0, 31 },
    { WEIRI_PRM_QPC_NEXT_RCV_PSN, "qpc.next_rcv_psn", 0, 0xffffff },
    { WEIRI_PRM_PATH_PKEY_INDEX, "path.pkey_index", 0, 0 },
    { WEIRI_PRM_PATH_GRH, "path.grh", 0, 1 },
    { WEIRI_PRM_PATH_RLID, "path.rlid", 0, 0xffff },
    { WEIRI_PRM_PATH_SRC_ADDR_INDEX, "path.src_addr_index", 0, 0 },
    { WEIRI_PRM_PATH_HOP_LIMIT, "path.hop_limit", 0, 255 },
    { WEIRI_PRM_PATH_RGID_HIGH, "path.rgid_rip", 0, UINT64_MAX },
    { WEIRI_PRM_PATH_RGID_LOW, "path.rgid_rip", 0, UINT64_MAX },
    { WEIRI_PRM_PATH_VHCA_PORT_NUM, "path.vhca_port_num", 1, 1 },
};

static uint8_t init2rtr(command *c)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = (enum ibv_mtu)get(c, WEIRI_PRM_QPC_MTU),
        .dest_qp_num = get(c, WEIRI_PRM_QPC_REMOTE_QPN),
        .rq_psn = get(c, WEIRI_PRM_QPC_NEXT_RCV_PSN),
        .max_dest_rd_atomic = (uint8_t)(1u << get(c, WEIRI_PRM_QPC_LOG_RRA_MAX)),
        .min_rnr_timer = (uint8_t)get(c, WEIRI_PRM_QPC_MIN_RNR_NAK),
        .ah_attr = { .dlid = (uint16_t)get(c, WEIRI_PRM_PATH_RLID),
                     .port_num = 1,
                     .is_global = get(c, WEIRI_PRM_PATH_GRH) != 0 },
    };
    swnic_put64(attr.ah_attr.grh.dgid.raw, weiri_prm_get(c->in, WEIRI_PRM_PATH_RGID_HIGH));
    swnic_put64(attr.ah_attr.grh.dgid.raw + 8, weiri_prm_get(c->in, WEIRI_PRM_PATH_RGID_LOW));
    return modify(c, &attr,
                  IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                      IBV_QP_MIN_RNR_TIMER);
}

static const field rtr2rts_fields[] = {
    { WEIRI_PRM_NUMBER, "qpn", 1, 0xffffff },
    { WEIRI_PRM_OPT_PARAM_MASK, "opt_param_mask", 0, 0 },
    { WEIRI_PRM_QPC_LOG_SRA_MAX, "qpc.log_sra_max", 0, 4 },
    { WEIRI_PRM_QPC_RETRY_COUNT, "qpc.retry_count", 0, 7 },
    { WEIRI_PRM_QPC_RNR_RETRY, "qpc.rnr_retry", 0, 7 },
    { WEIRI_PRM_QPC_NEXT_SEND_PSN, "qpc.next_send_psn", 0, 0xffffff },
    { WEIRI_PRM_PATH_ACK_TIMEOUT, "path.ack_timeout", 0, 31 },
};

static uint8_t rtr2rts(command *c)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTS,
        .sq_psn = get(c, WEIRI_PRM_QPC_NEXT_SEND_PSN),
        .timeout = (uint8_t)get(c, WEIRI_PRM_PATH_ACK_TIMEOUT),
        .retry_cnt = (uint8_t)get(c, WEIRI_PRM_QPC_RETRY_COUNT),
        .rnr_retry = (uint8_t)get(c, WEIRI_PRM_QPC_RNR_RETRY),
        .max_rd_atomic = (uint8_t)(1u << get(c, WEIRI_PRM_QPC_LOG_SRA_MAX)),
    };
    return modify(c, &attr,
                  IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

/* ---- queries -------------------------------------------------------------------------------------------- */

static const field query_qp_fields[] = {
    { WEIRI_PRM_NUMBER, "qpn", 1, 0xffffff },
};

static uint8_t query_qp(command *c)
{
    const swnic_qp *qp = c->obj->qp;
    const uint32_t word = __atomic_load_n(&qp->sq.record[1], __ATOMIC_ACQUIRE);
    uint8_t record[4];
    memcpy(record, &word, sizeof record);
    weiri_prm_set(c->out, WEIRI_PRM_QPC_STATE, qp->state); /* numbered as in verbs */
    weiri_prm_set(c->out, WEIRI_PRM_QPC_PM_STATE, WEIRI_PRM_MIGRATED);
    weiri_prm_set(c->out, WEIRI_PRM_QPC_REMOTE_QPN, qp->attr.dest_qp_num);
    weiri_prm_set(c->out, WEIRI_PRM_QPC_HW_SQ_WQEBB_COUNTER, qp->known);
    weiri_prm_set(c->out, WEIRI_PRM_QPC_SW_SQ_WQEBB_COUNTER, swnic_get32(record));
    return WEIRI_PRM_OK;
}

static const field query_cap_fields[] = {
    { WEIRI_PRM_OP_MOD, "op_mod", WEIRI_PRM_ROCE_CAPS, WEIRI_PRM_ROCE_CAPS },
};

static uint8_t query_cap(command *c)
{
    weiri_prm_set(c->out, WEIRI_PRM_CAP_QP_TS_FORMAT, 1);
    return WEIRI_PRM_OK;
}

/* ---- calls ------------------------------------------------------------------------------------- */

typedef enum caller { GENERAL, CREATE, MODIFY, QUERY } caller;

static const struct kind {
    caller call;
    uint16_t opcode;
    const char *name;
    const field *fields;
    uint32_t field_count, in_bytes, out_bytes;
    uint8_t (*carry_out)(command *c);
} kinds[] = {
#define KIND(call, opcode, fields, in, out, function)                                                  \
    {                                                                                                  \
        call, WEIRI_PRM_##opcode, #opcode, fields, sizeof fields / sizeof fields[0], in, out, function \
    }
    KIND(GENERAL, QUERY_HCA_CAP, query_cap_fields, WEIRI_PRM_QUERY_IN, WEIRI_PRM_CAP_OUT, query_cap),
    KIND(CREATE, CREATE_CQ, create_cq_fields, WEIRI_PRM_QUEUE_IN, WEIRI_PRM_OUT, create_cq),
    KIND(CREATE, CREATE_QP, create_qp_fields, WEIRI_PRM_QUEUE_IN, WEIRI_PRM_OUT, create_qp),
    KIND(MODIFY, RST2INIT_QP, rst2init_fields, WEIRI_PRM_QUEUE_IN, WEIRI_PRM_OUT, rst2init),
    KIND(MODIFY, INIT2RTR_QP, init2rtr_fields, WEIRI_PRM_QUEUE_IN, WEIRI_PRM_OUT, init2rtr),
    KIND(MODIFY, RTR2RTS_QP, rtr2rts_fields, WEIRI_PRM_QUEUE_IN, WEIRI_PRM_OUT, rtr2rts),
    KIND(QUERY, QUERY_QP, query_qp_fields, WEIRI_PRM_QUERY_IN, WEIRI_PRM_QP_OUT, query_qp),
#undef KIND
};

static bool has(uint32_t place, uint32_t bit) { return bit >= place >> 8 && bit < (place >> 8) + (place & 0xff); }

/* Checks that every field is in its range and all other bits are 0. */
static uint8_t check_fields(command *c, const struct kind *kind)
{
    for (uint32_t i = 0; i < kind->field_count; i++) {
        const field *f = &kind->fields[i];
        const uint64_t value = weiri_prm_get(c->in, f->place);
        if (value < f->least || value > f->most) {
            return refuse(c, WEIRI_PRM_BAD_PARAM, f->place, f->name);
        }
    }
    for (uint32_t bit = 0; bit < 8 * kind->in_bytes; bit++) {
        bool known = has(WEIRI_PRM_OPCODE, bit) || has(WEIRI_PRM_UID, bit);
        for (uint32_t i = 0; i < kind->field_count && !known; i++) {
            known = has(kind->fields[i].place, bit);
        }
        if (!known && (c->in[bit / 8] >> (7 - bit % 8) & 1) != 0) {
            return refuse(c, WEIRI_PRM_BAD_PARAM, WEIRI_PRM_FIELD(bit, 1), "a reserved or unknown bit");
        }
    }
    return WEIRI_PRM_OK;
}

/* The caller holds the lock. */
static uint8_t carry_out(command *c, caller call, size_t in_bytes, size_t out_bytes, const char **name)
{
    const struct kind *kind = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        kind = kinds[i].call == call && kinds[i].opcode == get(c, WEIRI_PRM_OPCODE) ? &kinds[i] : kind;
    }
    *name = kind != NULL ? kind->name : "a command";
    if (swnic_fault_hits(c->nic, SWNIC_FAULT_COMMAND)) {
        return refuse(c, WEIRI_PRM_INTERNAL_ERR, WEIRI_PRM_OPCODE, "a fault");
    }
    if (kind == NULL) {
        return refuse(c, WEIRI_PRM_BAD_OP, WEIRI_PRM_OPCODE, "not a command of this call");
    }
    if (in_bytes != kind->in_bytes) {
        return refuse(c, WEIRI_PRM_BAD_INPUT_LEN, LENGTH, "the length of the command");
    }
    if (out_bytes < kind->out_bytes) {
        return refuse(c, WEIRI_PRM_BAD_OUTPUT_LEN, LENGTH, "the length of the answer");
    }
    uint8_t status = check_fields(c, kind);
    if (status == WEIRI_PRM_OK && (call == MODIFY || call == QUERY) &&
        (c->obj->qp == NULL || c->obj->qp->ibv.qp_num != get(c, WEIRI_PRM_NUMBER))) {
        status = refuse(c, WEIRI_PRM_BAD_INDEX, WEIRI_PRM_NUMBER, "not the number of this object");
    }
    if (status == WEIRI_PRM_OK) {
        status = kind->carry_out(c);
    }
    if (status == WEIRI_PRM_OK && call == CREATE) {
        c->obj->nic = c->nic;
        c->obj->ring->users++;
        c->obj->record->users++;
        c->obj->next = c->nic->objects;
        c->nic->objects = c->obj;
    }
    return status;
}

/* Returns 0 or an errno. */
static int execute(command *c, caller call, size_t in_bytes, size_t out_bytes)
{
    const char *name;
    if (in_bytes < WEIRI_PRM_QUERY_IN || out_bytes < WEIRI_PRM_OUT) {
        return EINVAL; /* of the operating system's kernel, which cannot know the command */
    }
    memset(c->out, 0, out_bytes);
    swnic_enter(c->nic);
    const uint8_t status = carry_out(c, call, in_bytes, out_bytes, &name);
    if (status == WEIRI_PRM_OK) {
        swnic_trace(c->nic, "command %s: %06x", name, (unsigned)weiri_prm_get(c->out, WEIRI_PRM_NUMBER));
    } else {
        const uint32_t syndrome = SYNDROME | c->place >> 8;
        weiri_prm_set(c->out, WEIRI_PRM_STATUS, status);
        weiri_prm_set(c->out, WEIRI_PRM_SYNDROME, syndrome);
        (void)dprintf(STDERR_FILENO, "swnic: %s is refused: status %#x, syndrome %#x: bit %#x: %s\n", name, status,
                      syndrome, c->place >> 8, c->why);
        swnic_trace(c->nic, "command %s refused: status %02x, syndrome %08x: %s", name, status, syndrome, c->why);
    }
    swnic_leave(c->nic);
    return status == WEIRI_PRM_OK ? 0 : EREMOTEIO;
}

SWNIC_EXPORT int mlx5dv_devx_general_cmd(struct ibv_context *context, const void *in, size_t in_bytes, void *out,
                                         size_t out_bytes)
{
    command c = { .nic = swnic_of(context), .in = in, .out = out };
    return is_allowed(context) ? execute(&c, GENERAL, in_bytes, out_bytes) : errno;
}

SWNIC_EXPORT struct mlx5dv_devx_obj *mlx5dv_devx_obj_create(struct ibv_context *context, const void *in,
                                                            size_t in_bytes, void *out, size_t out_bytes)
{
    command c = { .nic = swnic_of(context), .in = in, .out = out };
    c.obj = is_allowed(context) ? calloc(1, sizeof *c.obj) : NULL;
    if (c.obj == NULL) {
        return NULL;
    }
    const int error = execute(&c, CREATE, in_bytes, out_bytes);
    if (error != 0) {
        free(c.obj);
        errno = error;
        return NULL;
    }
    return c.obj;
}

SWNIC_EXPORT int mlx5dv_devx_obj_modify(struct mlx5dv_devx_obj *obj, const void *in, size_t in_bytes, void *out,
                                        size_t out_bytes)
{
    command c = { .nic = obj->nic, .obj = obj, .in = in, .out = out };
    return execute(&c, MODIFY, in_bytes, out_bytes);
}

SWNIC_EXPORT int mlx5dv_devx_obj_query(struct mlx5dv_devx_obj *obj, const void *in, size_t in_bytes, void *out,
                                       size_t out_bytes)
{
    command c = { .nic = obj->nic, .obj = obj, .in = in, .out = out };
    return execute(&c, QUERY, in_bytes, out_bytes);
}

SWNIC_EXPORT int mlx5dv_devx_obj_destroy(struct mlx5dv_devx_obj *obj)
{
    swnic_nic *nic = obj->nic;
    struct mlx5dv_devx_obj **at = &nic->objects;
    swnic_enter(nic);
    if (obj->users != 0) {
        swnic_leave(nic);
        return EBUSY;
    }
    while (*at != obj) {
        at = &(*at)->next;
    }
    *at = obj->next;
    if (obj->qp != NULL) {
        swnic_qp_remove(obj->qp);
        obj->completions->users--;
        obj->uar->rung = false;
    } else {
        obj->uar->users--;
    }
    obj->ring->users--;
    obj->record->users--;
    swnic_leave(nic);
    if (obj->qp != NULL) {
        free(obj->qp->flights);
    } else {
        (void)pthread_mutex_destroy(&obj->cq->lock);
    }
    free(obj->qp);
    free(obj->cq);
    free(obj);
    return 0;
}
