/* devx.c - queues for kernels, made by commands to the NIC's firmware (DevX), for WEIR_IB_QUEUES.
 *
 * The rings of verbs lie in host memory. DevX rings lie in GPU memory if the NIC reaches it, otherwise in pinned host
 * memory. With rings in GPU memory, of a kernel's stores and polls only the doorbell crosses PCIe. A slab of such
 * memory is registered once (a umem) and has one slot for each queue pair: the send ring, the completions and the two
 * doorbell records. Each queue pair has its own doorbell registers. Completions are collapsed (weir/device/rdma.h).
 *
 * Objects of DevX have no events, so a command queries the state of a queue pair. */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/transport/ib/ib.h"
#include "src/transport/ib/prm.h"

#define LOG_BLOCKS 8u
#define BLOCKS (1u << LOG_BLOCKS)
#define RING_BYTES (BLOCKS * WEIR_MLX5_BLOCK)
#define LINE 128u /* separates words that the NIC writes from words that kernels write */

/* One slot fills one page of a GPU. */
#define SLOT_BYTES (UINT64_C(1) << 16)
#define COMPLETIONS_AT RING_BYTES
#define RECORD_AT (2 * RING_BYTES)
#define COMPLETION_RECORD_AT (RECORD_AT + LINE)
#define SLOTS 16u

#define UAR_NC_DEDICATED (1u << 31) /* MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED, missing in older headers */

struct weiri_ib_slab {
    weiri_ib_slab *next;
    weiri_block *block;
    struct mlx5dv_devx_umem *umem;
    uint32_t used;   /* one bit for each slot */
    char where[224]; /* kind of memory; for host memory also why it is not the device's */
};

/* Fails with the step that was refused. If `out` has the firmware's answer, the text has its status and syndrome. */
static weir_status refused(const weiri_ib_nic *nic, const char *what, int error, const uint8_t *out)
{
    const uint32_t status = out != NULL ? (uint32_t)weiri_prm_get(out, WEIRI_PRM_STATUS) : 0;
    if (status != 0) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "ib: %s: DevX: %s: %s (status %#x, syndrome %#x)", nic->port.device,
                          what, weiri_prm_status(status), status, (unsigned)weiri_prm_get(out, WEIRI_PRM_SYNDROME));
    }
    const bool denied = error == EPERM || error == EACCES || error == EOPNOTSUPP;
    return weiri_fail(WEIR_ERR_UNSUPPORTED, "ib: %s: DevX: %s: %s%s", nic->port.device, what, strerror(error),
                      denied ? "; DevX needs CAP_NET_RAW, and UCTX_EN=1 of mlxconfig" : "");
}

/* ---- memory --------------------------------------------------------------------------------------------- */

/* Registers GPU memory by a dmabuf descriptor, or else by its pointer. `reason` gets why both failed. */
static struct mlx5dv_devx_umem *register_device_memory(const weiri_ib_engine_nic *d, const weiri_block *block,
                                                       char *reason, size_t capacity)
{
    struct ibv_context *context = d->nic->context;
    struct mlx5dv_devx_umem *umem = NULL;
    char first[96] = "the device offers none";
    uint64_t offset;
    int fd;
    if (d->device->ops->dmabuf != NULL && d->device->ops->dmabuf(d->device, block, &fd, &offset) == WEIR_OK) {
        struct mlx5dv_devx_umem_in in = {
            .addr = (void *)(uintptr_t)offset,
            .size = block->size,
            .access = IBV_ACCESS_LOCAL_WRITE,
            .pgsz_bitmap = UINT64_MAX & ~((uint64_t)sysconf(_SC_PAGESIZE) - 1),
            .comp_mask = MLX5DV_UMEM_MASK_DMABUF,
            .dmabuf_fd = fd,
        };
        umem = d->mlx5.devx_umem_reg_ex(context, &in);
        snprintf(first, sizeof first, "%s", strerror(errno));
        (void)close(fd);
    } else if (d->device->ops->dmabuf != NULL) {
        snprintf(first, sizeof first, "%s", weir_last_error());
    }
    umem = umem != NULL ? umem : d->mlx5.devx_umem_reg(context, block->pointer, block->size, IBV_ACCESS_LOCAL_WRITE);
    if (umem == NULL) {
        snprintf(reason, capacity, "memory of %s: by dmabuf: %s; by its pointer: %s (is nvidia_peermem loaded?)",
                 d->device->info.label, first, strerror(errno));
    }
    return umem;
}

/* Allocates and registers memory of a kind for a slab; false with the reason. */
static bool find_memory(const weiri_ib_engine_nic *d, weir_memory_kind kind, weiri_ib_slab *slab, char *reason,
                        size_t capacity)
{
    if (weiri_device_allocate(d->device, kind, SLOTS * SLOT_BYTES, &slab->block) != WEIR_OK) {
        snprintf(reason, capacity, "%s", weir_last_error());
        return false;
    }
    const weiri_block *block = slab->block;
    if (block->host_pointer == NULL) {
        slab->umem = register_device_memory(d, block, reason, capacity);
    } else {
        slab->umem = d->mlx5.devx_umem_reg(d->nic->context, block->host_pointer, block->size, IBV_ACCESS_LOCAL_WRITE);
        if (slab->umem == NULL) {
            (void)(errno == ENOMEM ? weiri_ib_fail(d->nic, errno, "DevX: register memory (umem)")
                                   : refused(d->nic, "register memory (umem)", errno, NULL));
            snprintf(reason, capacity, "%s", weir_last_error());
        }
    }
    if (slab->umem == NULL) {
        weiri_block_release(slab->block);
        slab->block = NULL;
    }
    return slab->umem != NULL;
}

static weir_status add_slab(weiri_ib_engine_nic *d)
{
    char reason[192];
    weiri_ib_slab *slab = (weiri_ib_slab *)weiri_alloc(1, sizeof *slab);
    if (slab == NULL) {
        return weiri_fail_nomem("ib: queues");
    }
    if (find_memory(d, WEIR_MEMORY_DEVICE, slab, reason, sizeof reason)) {
        snprintf(slab->where, sizeof slab->where, "memory of %s", d->device->info.label);
    } else {
        snprintf(slab->where, sizeof slab->where, "pinned memory of the host (%s)", reason);
        if (!find_memory(d, WEIR_MEMORY_HOST, slab, reason, sizeof reason)) {
            weiri_free(slab);
            return weiri_fail(WEIR_ERR_UNSUPPORTED, "%s", reason);
        }
    }
    slab->next = d->devx.slabs;
    d->devx.slabs = slab;
    return WEIR_OK;
}

static uint8_t *place(const weiri_ib_devx *q, uint64_t at)
{
    return (uint8_t *)q->slab->block->pointer + q->slot * SLOT_BYTES + at;
}

/* Takes a free slot. Fills its completions with values that no NIC writes, and its records with 0. */
static weir_status take_slot(weiri_ib_engine_nic *d, weiri_ib_devx *q)
{
    weiri_ib_slab *slab = d->devx.slabs;
    weir_status status = WEIR_OK;
    while (slab != NULL && slab->used == (1u << SLOTS) - 1) {
        slab = slab->next;
    }
    if (slab == NULL) {
        status = add_slab(d);
        slab = d->devx.slabs;
    }
    if (status != WEIR_OK) {
        return status;
    }
    q->slab = slab;
    q->slot = (uint32_t)__builtin_ctz(~slab->used);
    slab->used |= 1u << q->slot;
    status = weir_device_fill(d->device, place(q, COMPLETIONS_AT), 0xff, RING_BYTES);
    return status == WEIR_OK ? weir_device_fill(d->device, place(q, RECORD_AT), 0, 2 * LINE) : status;
}

static void give_slot(weiri_ib_engine_nic *d, weiri_ib_devx *q)
{
    weiri_ib_slab **at = &d->devx.slabs;
    if (q->slab == NULL) {
        return;
    }
    q->slab->used &= ~(1u << q->slot);
    while (*at != q->slab) {
        at = &(*at)->next;
    }
    if (q->slab->used == 0) {
        *at = q->slab->next;
        (void)d->mlx5.devx_umem_dereg(q->slab->umem);
        weiri_block_release(q->slab->block);
        weiri_free(q->slab);
    }
    q->slab = NULL;
}

/* ---- a NIC ---------------------------------------------------------------------------------------------- */

/* Learns the object numbers that commands need. */
static weir_status prepare(weiri_ib_engine_nic *d)
{
    const weiri_ib_nic *nic = d->nic;
    uint8_t in[WEIRI_PRM_QUERY_IN], out[WEIRI_PRM_CAP_OUT] = { 0 };
    struct mlx5dv_pd pd = { 0 };
    struct mlx5dv_obj obj = { .pd = { .in = nic->pd, .out = &pd } };
    if (d->devx.ready) {
        return WEIR_OK;
    }
    if (!d->mlx5.has_devx) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "ib: %s: DevX: this libmlx5 does not have all of it; update rdma-core",
                          nic->port.device);
    }
    int error = d->mlx5.init_obj(&obj, MLX5DV_OBJ_PD);
    if (error != 0) {
        return refused(nic, "learn the protection domain's number", error < 0 ? -error : error, NULL);
    }
    error = d->mlx5.devx_query_eqn(nic->context, 0, &d->devx.events);
    if (error != 0) {
        return refused(nic, "find an event queue", error < 0 ? -error : error, NULL);
    }
    /* A NIC that does not answer, for example one without RoCE, has free-running timestamps. */
    weiri_prm_query_roce(in);
    error = d->mlx5.devx_general_cmd(nic->context, in, sizeof in, out, sizeof out);
    d->devx.ts_format = error == 0 && weiri_prm_get(out, WEIRI_PRM_CAP_QP_TS_FORMAT) != 0 ? WEIRI_PRM_TIME_DEFAULT : 0;
    d->devx.pd = pd.pdn;
    d->devx.ready = true;
    return WEIR_OK;
}

/* Allocates doorbell registers; *kind gets their kind. */
static weir_status find_registers(weiri_ib_engine *q, const char **kind)
{
    static const struct {
        uint32_t flags;
        const char *name;
    } kinds[] = {
        { UAR_NC_DEDICATED, "NC_DEDICATED" },
        { MLX5DV_UAR_ALLOC_TYPE_NC, "NC" },
        { MLX5DV_UAR_ALLOC_TYPE_BF, "BF" },
    };
    const weiri_ib_engine_nic *d = q->shared;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && q->devx.uar == NULL; i++) {
        q->devx.uar = d->mlx5.devx_alloc_uar(d->nic->context, kinds[i].flags);
        *kind = kinds[i].name;
    }
    return q->devx.uar != NULL ? WEIR_OK
                               : refused(d->nic, "get doorbell registers (UAR: NC_DEDICATED, NC, BF)", errno, NULL);
}

/* ---- queues --------------------------------------------------------------------------------------------- */

static weir_status create(const weiri_ib_engine *q, const char *what, const uint8_t in[WEIRI_PRM_QUEUE_IN],
                          struct mlx5dv_devx_obj **obj, uint32_t *number)
{
    const weiri_ib_engine_nic *d = q->shared;
    uint8_t out[WEIRI_PRM_OUT] = { 0 };
    *obj = d->mlx5.devx_obj_create(d->nic->context, in, WEIRI_PRM_QUEUE_IN, out, sizeof out);
    *number = (uint32_t)weiri_prm_get(out, WEIRI_PRM_NUMBER);
    return *obj != NULL ? WEIR_OK : refused(d->nic, what, errno, out);
}

static weir_status modify(const weiri_ib_engine *q, const char *what, const weiri_prm_link *link,
                          void (*encode)(const weiri_prm_link *link, uint8_t *in))
{
    const weiri_ib_engine_nic *d = q->shared;
    uint8_t in[WEIRI_PRM_QUEUE_IN], out[WEIRI_PRM_OUT] = { 0 };
    encode(link, in);
    const int error = d->mlx5.devx_obj_modify(q->devx.qp, in, sizeof in, out, sizeof out);
    return error == 0 ? WEIR_OK : refused(d->nic, what, error < 0 ? -error : error, out);
}

static weir_status create_queues(weiri_ib_engine *q)
{
    const weiri_ib_devx_nic *nic = &q->shared->devx;
    weiri_ib_devx *own = &q->devx;
    const uint64_t slot = own->slot * SLOT_BYTES;
    uint8_t in[WEIRI_PRM_QUEUE_IN];
    const weiri_prm_cq cq = {
        .place = { own->slab->umem->umem_id, slot + COMPLETIONS_AT, slot + COMPLETION_RECORD_AT },
        .uar = own->uar->page_id,
        .events = nic->events,
        .log_entries = LOG_BLOCKS,
    };
    weiri_prm_create_cq(&cq, in);
    weir_status status = create(q, "CREATE_CQ", in, &own->cq, &own->cqn);
    if (status != WEIR_OK) {
        return status;
    }
    const weiri_prm_qp qp = {
        .place = { own->slab->umem->umem_id, slot, slot + RECORD_AT },
        .uar = own->uar->page_id,
        .pd = nic->pd,
        .cqn = own->cqn,
        .log_blocks = LOG_BLOCKS,
        .ts_format = nic->ts_format,
    };
    weiri_prm_create_qp(&qp, in);
    status = create(q, "CREATE_QP", in, &own->qp, &own->qpn);
    if (status != WEIR_OK) {
        return status;
    }
    const weiri_prm_link link = {
        .qpn = own->qpn,
        .port = (uint8_t)q->shared->nic->port.port,
        .atomics = (q->shared->nic->access & IBV_ACCESS_REMOTE_ATOMIC) != 0,
    };
    return modify(q, "RST2INIT_QP", &link, weiri_prm_rst2init);
}

/* Binary logarithm of a count of at least 1. */
static uint8_t log_of(uint32_t count) { return (uint8_t)(31 - __builtin_clz(count)); }

weir_status weiri_ib_devx_open(weiri_ib_engine *q)
{
    const char *registers = "";
    weir_status status = prepare(q->shared);
    if (status == WEIR_OK) {
        status = take_slot(q->shared, &q->devx);
    }
    if (status == WEIR_OK) {
        status = find_registers(q, &registers);
    }
    if (status == WEIR_OK) {
        status = create_queues(q);
    }
    if (status == WEIR_OK) {
        status = weiri_ib_pair_describe(q->shared->nic, 0, q->devx.qpn, &q->own);
    }
    if (status != WEIR_OK) {
        return status;
    }
    q->own.reads = (uint8_t)(1u << log_of(q->own.reads)); /* commands pass the exponent */
    q->view = (weir_dev_rdma){
        .queue = (char *)place(&q->devx, 0),
        .record = (uint32_t *)(void *)place(&q->devx, RECORD_AT) + MLX5_SND_DBR,
        .completions = (const char *)place(&q->devx, COMPLETIONS_AT),
        .completion_record = (uint32_t *)(void *)place(&q->devx, COMPLETION_RECORD_AT),
        .count = BLOCKS,
        .completion_count = WEIR_RDMA_COLLAPSED,
        .qpn = q->devx.qpn,
    };
    snprintf(q->about, sizeof q->about, "by DevX: %u blocks, and completions in one entry, in %s; registers: %s",
             BLOCKS, q->devx.slab->where, registers);
    return WEIR_OK;
}

/* Finds the path to the peer through an address handle, because only the operating system's kernel knows the Ethernet
 * address of a GID. */
static weir_status find_way(const weiri_ib_engine *q, struct ibv_ah_attr *attr, weiri_prm_link *link)
{
    const weiri_ib_nic *nic = q->shared->nic;
    struct mlx5dv_ah way = { 0 };
    struct ibv_ah *ah = weiri_ib.f_create_ah(nic->pd, attr);
    if (ah == NULL) {
        return refused(nic, "find a way to the peer (an address handle)", errno, NULL);
    }
    struct mlx5dv_obj obj = { .ah = { .in = ah, .out = &way } };
    const int error = q->shared->mlx5.init_obj(&obj, MLX5DV_OBJ_AH);
    if (error == 0) {
        const struct mlx5_wqe_av *av = way.av;
        const uint16_t lid = be16toh(av->rlid);
        link->lid = nic->port.ethernet ? 0 : lid;
        link->udp_port = nic->port.ethernet ? lid : 0; /* mlx5 stores it in the same field */
        link->global = !nic->port.ethernet && attr->is_global;
        if (attr->is_global) {
            memcpy(link->gid, av->rgid, sizeof link->gid);
            link->gid_index = (uint8_t)(be32toh(av->grh_gid_fl) >> 20);
            link->hops = av->hop_limit;
        }
        if (nic->port.ethernet) {
            memcpy(link->mac, av->rmac, sizeof link->mac);
        }
    }
    (void)weiri_ib.f_destroy_ah(ah);
    return error == 0 ? WEIR_OK
                      : refused(nic, "learn the way to the peer (mlx5dv_init_obj)", error < 0 ? -error : error, NULL);
}

weir_status weiri_ib_devx_connect(weiri_ib_engine *q, const weiri_ib_address *peer)
{
    struct ibv_qp_attr attr;
    weiri_prm_link link = { .qpn = q->devx.qpn, .port = (uint8_t)q->shared->nic->port.port };
    weir_status status = weiri_ib_pair_agree(q->shared->nic, &q->own, peer, &attr);
    if (status == WEIR_OK) {
        status = find_way(q, &attr.ah_attr, &link);
    }
    if (status != WEIR_OK) {
        return status;
    }
    link.psn = attr.sq_psn;
    link.peer_qpn = attr.dest_qp_num;
    link.peer_psn = attr.rq_psn;
    link.mtu = (uint8_t)attr.path_mtu;
    link.log_reads_in = log_of(attr.max_dest_rd_atomic);
    link.log_reads_out = log_of(attr.max_rd_atomic);
    link.rnr_timer = attr.min_rnr_timer;
    link.retries = attr.retry_cnt;
    link.rnr_retries = attr.rnr_retry;
    link.timeout = attr.timeout;
    status = modify(q, "INIT2RTR_QP", &link, weiri_prm_init2rtr);
    return status == WEIR_OK ? modify(q, "RTR2RTS_QP", &link, weiri_prm_rtr2rts) : status;
}

void weiri_ib_devx_close(weiri_ib_engine *q)
{
    const weiri_ib_mlx5 *mlx5 = &q->shared->mlx5;
    if (q->devx.qp != NULL) {
        (void)mlx5->devx_obj_destroy(q->devx.qp);
    }
    if (q->devx.cq != NULL) {
        (void)mlx5->devx_obj_destroy(q->devx.cq);
    }
    if (q->devx.uar != NULL) {
        mlx5->devx_free_uar(q->devx.uar);
    }
    give_slot(q->shared, &q->devx);
    q->devx.qp = NULL;
    q->devx.cq = NULL;
    q->devx.uar = NULL;
}

/* ---- failure -------------------------------------------------------------------------------------------- */

weir_status weiri_ib_devx_look(const weiri_ib_engine *q, uint32_t *error, bool *in_error)
{
    const weiri_ib_engine_nic *d = q->shared;
    const weiri_block *block = q->devx.slab->block;
    uint8_t in[WEIRI_PRM_QUERY_IN], out[WEIRI_PRM_QP_OUT] = { 0 };
    uint32_t entry[WEIR_MLX5_BLOCK / sizeof(uint32_t)] = { 0 };
    weiri_prm_query_qp(q->devx.qpn, in);
    *in_error = d->mlx5.devx_obj_query(q->devx.qp, in, sizeof in, out, sizeof out) == 0 &&
                weiri_prm_get(out, WEIRI_PRM_QPC_STATE) == WEIRI_PRM_STATE_ERR;
    if (block->host_pointer == NULL) {
        weir_status status = weir_device_copy(d->device, entry, place(&q->devx, COMPLETIONS_AT), sizeof entry);
        if (status != WEIR_OK) {
            return status;
        }
    } else {
        const uint32_t *words =
            (const uint32_t *)(void *)((uint8_t *)block->host_pointer + q->devx.slot * SLOT_BYTES + COMPLETIONS_AT);
        entry[15] = __atomic_load_n(words + 15, __ATOMIC_ACQUIRE);
        entry[13] = __atomic_load_n(words + 13, __ATOMIC_RELAXED);
    }
    *error = weir_mlx5_kind(entry[15]) == WEIR_MLX5_FAILED ? entry[13] : 0;
    return WEIR_OK;
}
