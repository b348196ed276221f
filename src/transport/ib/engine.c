/* engine.c - queue pairs of the device engine, on mlx5 NICs.
 *
 * Uses only public verbs and mlx5dv. Rings and doorbell records lie in pinned host memory that is mapped for the
 * device. A parent domain makes the driver allocate them here. mlx5dv_init_obj returns their addresses and that of the
 * doorbell registers, whose page is mapped for the device too. A NIC has one thread domain, so all its queue pairs
 * share a register page.
 *
 * WEIR_IB_QUEUES selects queues made by DevX instead (ib/devx.c).
 *
 * If a step fails, the queue keeps the cause and works without the device engine. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/base/log.h"
#include "src/transport/ib/ib.h"

#define DEPTH 256        /* requests; drivers may reserve four blocks for each */
#define COMPLETIONS 1023 /* at least one for each block, and one entry that stays free */
#define CHUNK_BYTES (UINT64_C(1) << 20)

/* ---- memory --------------------------------------------------------------------------------------------- */

/* Memory for rings and records of several queue pairs. It is freed with the last of them. */
struct weiri_ib_chunk {
    weiri_ib_chunk *next;
    weiri_block *block;
    uint64_t used;
    uint32_t parts;
};

/* A page of registers. */
struct weiri_ib_page {
    weiri_ib_page *next;
    uint8_t *host;
    weiri_block *block; /* NULL: kernels use the CPU's addresses */
    uint32_t users;
};

static uint64_t page_bytes(void) { return (uint64_t)sysconf(_SC_PAGESIZE); }

static weiri_ib_chunk *add_chunk(weiri_ib_engine_nic *d, uint64_t bytes)
{
    weiri_ib_chunk *chunk = (weiri_ib_chunk *)weiri_alloc(1, sizeof *chunk);
    if (chunk == NULL) {
        return NULL;
    }
    if (weiri_device_allocate(d->device, WEIR_MEMORY_HOST, bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES, &chunk->block) !=
        WEIR_OK) {
        weiri_free(chunk);
        return NULL;
    }
    chunk->next = d->chunks;
    d->chunks = chunk;
    return chunk;
}

/* The driver calls this inside weiri_ib_engine_open, which holds the lock. The driver needs zeroed memory. */
static void *allocate(struct ibv_pd *pd, void *context, size_t size, size_t alignment, uint64_t type)
{
    weiri_ib_engine_nic *d = (weiri_ib_engine_nic *)context;
    const uint64_t page = page_bytes();
    const uint64_t bytes = (size + page - 1) / page * page;
    weiri_ib_chunk *chunk = d->chunks;
    (void)pd;
    (void)type;
    if (alignment > page || bytes < size) {
        return NULL;
    }
    while (chunk != NULL && chunk->block->size - chunk->used < bytes) {
        chunk = chunk->next;
    }
    if (chunk == NULL) {
        chunk = add_chunk(d, bytes);
    }
    if (chunk == NULL) {
        return NULL;
    }
    uint8_t *memory = (uint8_t *)chunk->block->host_pointer + chunk->used;
    chunk->used += bytes;
    chunk->parts++;
    memset(memory, 0, size);
    return memory;
}

static weiri_ib_chunk **find_chunk(weiri_ib_engine_nic *d, const void *memory)
{
    weiri_ib_chunk **at = &d->chunks;
    while (*at != NULL) {
        const uint8_t *begin = (const uint8_t *)(*at)->block->host_pointer;
        if ((const uint8_t *)memory >= begin && (const uint8_t *)memory < begin + (*at)->block->size) {
            break;
        }
        at = &(*at)->next;
    }
    return at;
}

/* The driver calls this inside close_pair, which holds the lock. */
static void release(struct ibv_pd *pd, void *context, void *memory, uint64_t type)
{
    weiri_ib_chunk **at = find_chunk((weiri_ib_engine_nic *)context, memory);
    weiri_ib_chunk *chunk = *at;
    (void)pd;
    (void)type;
    if (chunk != NULL && --chunk->parts == 0) {
        *at = chunk->next;
        weiri_block_release(chunk->block);
        weiri_free(chunk);
    }
}

/* The device's address of ring memory; NULL if `memory` lies in no chunk. */
static char *mapped(weiri_ib_engine_nic *d, const void *memory)
{
    const weiri_ib_chunk *chunk = *find_chunk(d, memory);
    return chunk == NULL ? NULL
                         : (char *)chunk->block->pointer +
                               ((const uint8_t *)memory - (const uint8_t *)chunk->block->host_pointer);
}

/* Maps the page of a register for the device, once for all users. */
static weir_status map_register(weiri_ib_engine_nic *d, void *reg, weiri_ib_page **out)
{
    const uint64_t bytes = page_bytes();
    uint8_t *host = (uint8_t *)reg - (uintptr_t)reg % bytes;
    weiri_ib_page *page = d->pages;
    while (page != NULL && page->host != host) {
        page = page->next;
    }
    if (page == NULL) {
        page = (weiri_ib_page *)weiri_alloc(1, sizeof *page);
        if (page == NULL) {
            return weiri_fail_nomem("ib: doorbell register");
        }
        weir_status status = weiri_device_map_registers(d->device, host, bytes, &page->block);
        if (status != WEIR_OK) {
            weiri_free(page);
            return status;
        }
        page->host = host;
        page->next = d->pages;
        d->pages = page;
    }
    page->users++;
    *out = page;
    return WEIR_OK;
}

static void unmap_register(weiri_ib_engine_nic *d, weiri_ib_page *page)
{
    if (page == NULL || --page->users != 0) {
        return;
    }
    weiri_ib_page **at = &d->pages;
    while (*at != page) {
        at = &(*at)->next;
    }
    *at = page->next;
    weiri_block_release(page->block);
    weiri_free(page);
}

/* ---- a NIC ---------------------------------------------------------------------------------------------- */

void weiri_ib_engine_nic_init(weiri_ib_engine_nic *d, weiri_ib_nic *nic, weir_device *device)
{
    d->nic = nic;
    d->device = device;
    (void)pthread_mutex_init(&d->lock, NULL);
}

void weiri_ib_engine_nic_close(weiri_ib_engine_nic *d)
{
    if (d->parent != NULL) {
        (void)weiri_ib.f_dealloc_pd(d->parent);
    }
    if (d->thread != NULL) {
        (void)ibv_dealloc_td(d->thread);
    }
    (void)pthread_mutex_destroy(&d->lock);
}

/* Fails with the step that a verb has refused. */
static weir_status refused(const weiri_ib_nic *nic, const char *what)
{
    (void)weiri_ib_fail(nic, errno, what);
    return weiri_fail(WEIR_ERR_UNSUPPORTED, "%s", weir_last_error());
}

/* Checks that this is an mlx5 NIC. The caller holds the lock, also below. */
static weir_status find_driver(weiri_ib_engine_nic *d)
{
    weir_status status = d->mlx5.is_supported != NULL ? WEIR_OK : weiri_ib_load_mlx5(&d->mlx5);
    if (status == WEIR_OK && !d->mlx5.is_supported(d->nic->context->device)) {
        status = weiri_fail(WEIR_ERR_UNSUPPORTED,
                            "ib: kernels can post only to mlx5 devices (ConnectX-4 and later); %s is a different NIC",
                            d->nic->port.device);
    }
    return status;
}

/* Prepares what all queue pairs made by verbs share. */
static weir_status prepare(weiri_ib_engine_nic *d)
{
    const weiri_ib_nic *nic = d->nic;
    if (d->parent != NULL) {
        return WEIR_OK;
    }
    struct ibv_td_init_attr thread = { 0 };
    d->thread = d->thread != NULL ? d->thread : ibv_alloc_td(nic->context, &thread);
    if (d->thread == NULL) {
        return refused(nic, "reserve doorbell registers (a thread domain)");
    }
    struct ibv_parent_domain_init_attr parent = {
        .pd = nic->pd,
        .td = d->thread,
        .comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
        .alloc = allocate,
        .free = release,
        .pd_context = d,
    };
    d->parent = ibv_alloc_parent_domain(nic->context, &parent);
    return d->parent != NULL ? WEIR_OK : refused(nic, "allocate rings in mapped memory (a parent domain)");
}

/* ---- a queue pair --------------------------------------------------------------------------------------- */

static weir_status create_pair(weiri_ib_engine *q)
{
    const weiri_ib_nic *nic = q->shared->nic;
    struct ibv_cq_init_attr_ex completions = {
        .cqe = COMPLETIONS,
        .cq_context = &q->event,
        .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
        .parent_domain = q->shared->parent,
    };
    struct ibv_cq_ex *cq = ibv_create_cq_ex(nic->context, &completions);
    if (cq == NULL) {
        return refused(nic, "create a completion queue for kernels");
    }
    q->cq = ibv_cq_ex_to_cq(cq);
    struct ibv_qp_init_attr attr = {
        .qp_context = &q->event,
        .send_cq = q->cq,
        .recv_cq = q->cq,
        .cap = { .max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
        .qp_type = IBV_QPT_RC,
    };
    q->qp = weiri_ib.f_create_qp(q->shared->parent, &attr);
    return q->qp != NULL ? WEIR_OK : refused(nic, "create a queue pair for kernels");
}

/* Maps the doorbell for kernels and appends how to q->about. */
static weir_status find_doorbell(weiri_ib_engine *q, void *reg)
{
    weir_status status = map_register(q->shared, reg, &q->page);
    if (status == WEIR_OK) {
        const uint8_t *base = q->page->block != NULL ? (const uint8_t *)q->page->block->pointer : q->page->host;
        const size_t length = strlen(q->about);
        q->view.doorbell = (uint64_t *)(uintptr_t)(base + ((const uint8_t *)reg - q->page->host));
        snprintf(q->about + length, sizeof q->about - length, "; the doorbell's page is mapped as %s",
                 q->page->block != NULL ? q->page->block->reason : "the CPU's own");
    }
    return status;
}

static weir_status describe(weiri_ib_engine *q)
{
    weiri_ib_engine_nic *d = q->shared;
    struct mlx5dv_qp qp = { 0 };
    struct mlx5dv_cq cq = { 0 };
    struct mlx5dv_obj both = { .qp = { .in = q->qp, .out = &qp }, .cq = { .in = q->cq, .out = &cq } };
    int error = d->mlx5.init_obj(&both, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ);
    if (error != 0) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "ib: %s: learn where rings and doorbells are (mlx5dv_init_obj): %s",
                          d->nic->port.device, strerror(error < 0 ? -error : error));
    }
    char *records = mapped(d, qp.dbrec), *completion_records = mapped(d, cq.dbrec);
    q->completions = (const uint8_t *)cq.buf;
    q->view = (weir_dev_rdma){
        .queue = mapped(d, qp.sq.buf),
        .record = records != NULL ? (uint32_t *)records + MLX5_SND_DBR : NULL,
        .completions = mapped(d, cq.buf),
        .completion_record = (uint32_t *)completion_records,
        .count = qp.sq.wqe_cnt,
        .completion_count = cq.cqe_cnt,
        .qpn = q->qp->qp_num,
    };
    if (q->view.queue == NULL || records == NULL || q->view.completions == NULL || completion_records == NULL) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED,
                          "ib: %s: the driver did not allocate its rings through the parent domain; update rdma-core",
                          d->nic->port.device);
    }
    if (qp.sq.stride != WEIR_MLX5_BLOCK || cq.cqe_size != WEIR_MLX5_BLOCK || cq.cqe_cnt < qp.sq.wqe_cnt) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED,
                          "ib: %s: rings of %u blocks of %u bytes, and of %u completions of %u bytes; 64 bytes, and no "
                          "fewer completions, are needed (unset MLX5_CQE_SIZE)",
                          d->nic->port.device, qp.sq.wqe_cnt, qp.sq.stride, cq.cqe_cnt, cq.cqe_size);
    }
    snprintf(q->about, sizeof q->about, "%u blocks and %u completions in host memory", q->view.count,
             q->view.completion_count);
    return find_doorbell(q, qp.bf.reg);
}

static void close_pair(weiri_ib_engine *q)
{
    unmap_register(q->shared, q->page); /* before the queue pair is destroyed */
    weiri_ib_devx_close(q);
    if (q->qp != NULL) {
        (void)weiri_ib.f_destroy_qp(q->qp);
    }
    if (q->cq != NULL) {
        (void)weiri_ib.f_destroy_cq(q->cq);
    }
    q->qp = NULL;
    q->cq = NULL;
    q->page = NULL;
    q->own.qpn = 0;
    q->about[0] = '\0';
}

static weir_status open_by_verbs(weiri_ib_engine *q)
{
    weir_status status = prepare(q->shared);
    if (status == WEIR_OK) {
        status = create_pair(q);
    }
    if (status == WEIR_OK) {
        status = describe(q);
    }
    return status == WEIR_OK ? weiri_ib_pair_init(q->shared->nic, 0, q->qp, &q->own) : status;
}

static weir_status open_by_devx(weiri_ib_engine *q)
{
    weir_status status = weiri_ib_devx_open(q);
    return status == WEIR_OK ? find_doorbell(q, q->devx.uar->reg_addr) : status;
}

/* Opens the queue pair by DevX or verbs, or by verbs after DevX has failed. */
static weir_status open_pair(weiri_ib_engine *q)
{
    const weiri_queues queues = q->shared->queues;
    char reason[256];
    weir_status status = find_driver(q->shared);
    if (status != WEIR_OK || queues == WEIRI_QUEUES_VERBS) {
        return status == WEIR_OK ? open_by_verbs(q) : status;
    }
    status = open_by_devx(q);
    if (status == WEIR_OK || queues == WEIRI_QUEUES_DEVX_ONLY) {
        return status;
    }
    snprintf(reason, sizeof reason, "%s", weir_last_error());
    weiri_log(WEIR_LOG_INFO, "kernels' queues are made by verbs: %s", reason);
    close_pair(q);
    status = open_by_verbs(q);
    if (status == WEIR_OK) {
        const size_t length = strlen(q->about);
        snprintf(q->about + length, sizeof q->about - length, "; by verbs because: %s", reason);
    }
    return status;
}

void weiri_ib_engine_open(weiri_ib_engine_nic *d, weiri_ib_engine *q, weiri_ib_address *own)
{
    q->shared = d;
    (void)pthread_mutex_lock(&d->lock);
    weir_status status = open_pair(q);
    if (status == WEIR_OK) {
        *own = q->own;
        snprintf(q->missing, sizeof q->missing, "it is not connected");
    } else {
        snprintf(q->missing, sizeof q->missing, "%s", weir_last_error());
        close_pair(q);
    }
    (void)pthread_mutex_unlock(&d->lock);
}

void weiri_ib_engine_connect(weiri_ib_engine *q, const weiri_ib_address *peer)
{
    if (q->own.qpn == 0) {
        return;
    }
    if (peer->qpn == 0) {
        snprintf(q->missing, sizeof q->missing,
                 "the peer has no queue for kernels; WEIR_PORT_ENGINE must ask for it on both sides, and the peer's "
                 "log (WEIR_LOG=info) may say more");
        return;
    }
    weir_status status = q->devx.qp != NULL ? weiri_ib_devx_connect(q, peer)
                                            : weiri_ib_pair_connect(q->shared->nic, q->qp, &q->own, peer);
    q->peer_nic = peer->nic;
    q->peer_qpn = peer->qpn;
    snprintf(q->missing, sizeof q->missing, "%s", status == WEIR_OK ? "" : weir_last_error());
}

void weiri_ib_engine_close(weiri_ib_engine *q)
{
    if (q->shared != NULL) {
        (void)pthread_mutex_lock(&q->shared->lock);
        close_pair(q);
        (void)pthread_mutex_unlock(&q->shared->lock);
    }
}

weir_status weiri_ib_engine_view(const weiri_ib_engine *q, weir_dev_rdma *out)
{
    if (q->shared == NULL) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "ib: WEIR_PORT_ENGINE did not ask for queues for kernels");
    }
    if (q->missing[0] != '\0') {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, "%s", q->missing);
    }
    *out = q->view;
    return WEIR_OK;
}

/* ---- failure -------------------------------------------------------------------------------------------- */

/* The first error in the completion queue, or 0. Kernels read the queue, and the entry of the error stays in place:
 * only flushed requests follow it, and there is room for all of them. */
static uint32_t find_error(const weiri_ib_engine *q)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < q->view.completion_count; i++) {
        const uint32_t *entry = (const uint32_t *)(q->completions + (size_t)i * WEIR_MLX5_BLOCK);
        const uint32_t tail = __atomic_load_n(entry + 15, __ATOMIC_ACQUIRE);
        if (weir_mlx5_kind(tail) != WEIR_MLX5_FAILED) {
            continue;
        }
        const uint32_t error = __atomic_load_n(entry + 13, __ATOMIC_RELAXED);
        if (found == 0 || weir_mlx5_syndrome(found) == WEIR_MLX5_FLUSHED) {
            found = error;
        }
    }
    return found;
}

static weir_status fail_engine(const weiri_ib_engine *q, weir_status status, const char *cause)
{
    return weiri_fail(status, "ib: %s port %u, kernels' queue %u to %u: %s", q->shared->nic->port.device,
                      q->shared->nic->port.port, q->own.qpn, q->peer_qpn, cause);
}

weir_status weiri_ib_engine_check(weiri_ib_engine *q)
{
    if (q->missing[0] != '\0') {
        return WEIR_OK;
    }
    uint32_t error = 0;
    bool in_error = false;
    if (q->devx.qp == NULL) {
        error = find_error(q);
    } else {
        weir_status status = weiri_ib_devx_look(q, &error, &in_error);
        if (status != WEIR_OK) {
            return status;
        }
    }
    if (error != 0) {
        char cause[256];
        const uint32_t syndrome = weir_mlx5_syndrome(error);
        snprintf(cause, sizeof cause, "%s (syndrome %#x, vendor's %#x)",
                 weiri_ib_syndrome(weiri_ib_completion_of(syndrome)), syndrome, weir_mlx5_vendor(error));
        return fail_engine(q, weir_mlx5_status(syndrome), cause);
    }
    if (in_error) {
        return fail_engine(
            q, WEIR_ERR_REMOTE,
            "the NIC has put the queue pair into the error state: it refused a request of the peer, or has failed");
    }
    weiri_ib_look(q->shared->nic);
    const char *event = __atomic_load_n(&q->event, __ATOMIC_ACQUIRE);
    if (event != NULL) {
        return fail_engine(q, WEIR_ERR_REMOTE, event);
    }
    return __atomic_load_n(&q->shared->nic->broken, __ATOMIC_RELAXED)
               ? fail_engine(q, WEIR_ERR_DEVICE, "the device has failed")
               : WEIR_OK;
}
