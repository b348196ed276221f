/* swnic_verbs.c - the library's functions: devices, contexts, protection domains, regions, events. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "swnic.h"

/* The header has macros of these names. */
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

#define REGIONS_MAX (1u << 20)

static struct ibv_device devices[SWNIC_DEVICES_MAX];
static uint32_t device_count;
static pthread_once_t devices_once = PTHREAD_ONCE_INIT;

/* ---- devices -------------------------------------------------------------------------------------------- */

static void make_devices(void)
{
    const char *text = getenv("SWNIC_DEVICES");
    unsigned long count = text != NULL ? strtoul(text, NULL, 10) : 1;
    device_count = count < 1 ? 1 : count > SWNIC_DEVICES_MAX ? SWNIC_DEVICES_MAX : (uint32_t)count;
    for (uint32_t i = 0; i < device_count; i++) {
        devices[i].node_type = IBV_NODE_CA;
        devices[i].transport_type = IBV_TRANSPORT_IB;
        snprintf(devices[i].name, sizeof devices[i].name, "swnic%u", i);
        snprintf(devices[i].dev_name, sizeof devices[i].dev_name, "swnic%u", i);
    }
}

SWNIC_EXPORT struct ibv_device **ibv_get_device_list(int *count)
{
    (void)pthread_once(&devices_once, make_devices);
    struct ibv_device **list = calloc(device_count + 1, sizeof *list);
    for (uint32_t i = 0; list != NULL && i < device_count; i++) {
        list[i] = &devices[i];
    }
    if (list != NULL && count != NULL) {
        *count = (int)device_count;
    }
    return list;
}

SWNIC_EXPORT void ibv_free_device_list(struct ibv_device **list) { free(list); }

SWNIC_EXPORT const char *ibv_get_device_name(struct ibv_device *device) { return device->name; }

static int query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    swnic_nic *nic = swnic_of(context);
    swnic_enter(nic);
    *attr = (struct ibv_device_attr){
        .fw_ver = "swnic",
        .max_mr_size = UINT64_MAX,
        .page_size_cap = 4096,
        .vendor_id = 0x5357,
        .max_qp = SWNIC_QPS,
        .max_qp_wr = (int)SWNIC_BLOCKS_MAX / 4,
        .max_sge = (int)SWNIC_PIECES,
        .max_sge_rd = (int)SWNIC_PIECES,
        .max_cq = 1 << 20,
        .max_cqe = 1 << 22,
        .max_mr = (int)REGIONS_MAX,
        .max_pd = 1 << 20,
        .max_qp_rd_atom = (int)SWNIC_READS,
        .max_res_rd_atom = (int)(SWNIC_READS * SWNIC_QPS),
        .max_qp_init_rd_atom = (int)SWNIC_READS,
        .atomic_cap = nic->faults[SWNIC_FAULT_NO_ATOMICS].set ? IBV_ATOMIC_NONE : IBV_ATOMIC_HCA,
        .max_pkeys = 1,
        .phys_port_cnt = 1,
    };
    swnic_leave(nic);
    return 0;
}

SWNIC_EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    return query_device(context, attr);
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t bytes)
{
    swnic_nic *nic = swnic_of(context);
    if (port != 1) {
        return EINVAL;
    }
    swnic_enter(nic);
    swnic_fault_time(nic);
    struct ibv_port_attr all = {
        .state = nic->link_up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN,
        .max_mtu = IBV_MTU_4096,
        .active_mtu = IBV_MTU_4096,
        .gid_tbl_len = 1,
        .max_msg_sz = 1u << 30,
        .pkey_tbl_len = 1,
        .lid = (uint16_t)(nic->device + 1),
        .sm_lid = 1,
        .max_vl_num = 1,
        .active_width = 2,  /* 4 links */
        .active_speed = 32, /* of 25 Gb/s */
        .phys_state = 5,
        .link_layer = IBV_LINK_LAYER_INFINIBAND,
    };
    swnic_leave(nic);
    memcpy(attr, &all, bytes < sizeof all ? bytes : sizeof all);
    return 0;
}

/* Older programs know the struct without its last member. */
SWNIC_EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
    return query_port(context, port, (struct ibv_port_attr *)(void *)attr,
                      offsetof(struct ibv_port_attr, port_cap_flags2));
}

SWNIC_EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
    static const uint8_t prefix[14] = { 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x02, 's', 'w', 'n', 'i', 'c' };
    if (port != 1 || index != 0) {
        errno = EINVAL;
        return -1;
    }
    memcpy(gid->raw, prefix, sizeof prefix);
    gid->raw[14] = 0;
    gid->raw[15] = (uint8_t)(swnic_of(context)->device + 1);
    return 0;
}

/* ---- events --------------------------------------------------------------------------------------------- */

void swnic_report(swnic_nic *nic, enum ibv_event_type type, void *element)
{
    const uint64_t one = 1;
    const bool of_cq = type == IBV_EVENT_CQ_ERR;
    /* Events of DevX objects go only to subscribers, and there are none here. */
    if (element != NULL && (of_cq ? ((swnic_cq *)element)->devx : ((swnic_qp *)element)->devx)) {
        return;
    }
    swnic_event *event = calloc(1, sizeof *event);
    if (event == NULL) {
        return;
    }
    event->ibv.event_type = type;
    if (type == IBV_EVENT_PORT_ERR || type == IBV_EVENT_PORT_ACTIVE) {
        event->ibv.element.port_num = 1;
    } else if (of_cq) {
        event->ibv.element.cq = element;
    } else {
        event->ibv.element.qp = element;
    }
    (void)pthread_mutex_lock(&nic->event_lock);
    swnic_event **end = &nic->events;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = event;
    (void)pthread_mutex_unlock(&nic->event_lock);
    (void)!write(nic->verbs.context.async_fd, &one, sizeof one);
}

/* Events of objects are acknowledged; others have no object to destroy. */
static bool is_of_object(const swnic_event *event)
{
    return event->ibv.event_type == IBV_EVENT_CQ_ERR || event->ibv.event_type == IBV_EVENT_QP_FATAL ||
           event->ibv.event_type == IBV_EVENT_QP_REQ_ERR || event->ibv.event_type == IBV_EVENT_QP_ACCESS_ERR;
}

SWNIC_EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *out)
{
    swnic_nic *nic = swnic_of(context);
    for (;;) {
        uint64_t one;
        if (read(context->async_fd, &one, sizeof one) != sizeof one) {
            return -1;
        }
        (void)pthread_mutex_lock(&nic->event_lock);
        swnic_event *event = nic->events;
        if (event != NULL) {
            nic->events = event->next;
            nic->unacked += is_of_object(event);
        }
        (void)pthread_mutex_unlock(&nic->event_lock);
        if (event != NULL) {
            *out = event->ibv;
            free(event);
            return 0;
        }
    }
}

SWNIC_EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
    swnic_nic *nic = NULL;
    switch (event->event_type) {
    case IBV_EVENT_CQ_ERR:
        nic = swnic_of(event->element.cq->context);
        break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
        nic = swnic_of(event->element.qp->context);
        break;
    default: /* has no object: no thread waits for it */
        return;
    }
    (void)pthread_mutex_lock(&nic->event_lock);
    nic->unacked--;
    (void)pthread_cond_broadcast(&nic->event_acked);
    (void)pthread_mutex_unlock(&nic->event_lock);
}

void swnic_forget(swnic_nic *nic, const void *element)
{
    (void)pthread_mutex_lock(&nic->event_lock);
    for (swnic_event **at = &nic->events; *at != NULL;) {
        swnic_event *event = *at;
        if (element == NULL || (is_of_object(event) && (const void *)event->ibv.element.qp == element)) {
            *at = event->next;
            free(event);
        } else {
            at = &event->next;
        }
    }
    while (element != NULL && nic->unacked != 0) {
        (void)pthread_cond_wait(&nic->event_acked, &nic->event_lock);
    }
    (void)pthread_mutex_unlock(&nic->event_lock);
}

/* ---- protection domains --------------------------------------------------------------------------------- */

static swnic_pd *make_pd(struct ibv_context *context)
{
    swnic_nic *nic = swnic_of(context);
    swnic_pd *pd = calloc(1, sizeof *pd);
    if (pd != NULL) {
        pd->ibv.context = context;
        pd->base = pd;
        swnic_enter(nic);
        pd->number = ++nic->pd_next & 0xffffff;
        pd->next = nic->pds;
        nic->pds = pd;
        swnic_leave(nic);
    }
    return pd;
}

SWNIC_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context) { return (struct ibv_pd *)make_pd(context); }

SWNIC_EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
    swnic_nic *nic = swnic_of(pd->context);
    swnic_pd **at = &nic->pds;
    swnic_enter(nic);
    while (&(*at)->ibv != pd) {
        at = &(*at)->next;
    }
    *at = (*at)->next;
    swnic_leave(nic);
    free(pd);
    return 0;
}

static struct ibv_pd *alloc_parent_domain(struct ibv_context *context, struct ibv_parent_domain_init_attr *attr)
{
    swnic_pd *pd = make_pd(context);
    if (pd != NULL) {
        pd->base = ((swnic_pd *)attr->pd)->base;
        pd->allocator = *attr;
    }
    return (struct ibv_pd *)pd;
}

static struct ibv_td *alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
    struct ibv_td *td = calloc(1, sizeof *td);
    (void)attr;
    if (td != NULL) {
        td->context = context;
    }
    return td;
}

static int dealloc_td(struct ibv_td *td)
{
    free(td);
    return 0;
}

/* ---- regions -------------------------------------------------------------------------------------------- */

static bool is_readable(int pipe_end, const void *at) { return write(pipe_end, at, 1) == 1; }

bool swnic_is_host_memory(const uint8_t *at, size_t bytes)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return false;
    }
    bool fine = bytes == 0 || (is_readable(ends[1], at) && is_readable(ends[1], at + bytes - 1));
    (void)close(ends[0]);
    (void)close(ends[1]);
    return fine;
}

/* Finds a free entry of the table. The caller holds the lock. */
static int find_entry(swnic_nic *nic, uint32_t *out)
{
    for (uint32_t i = 0; i < nic->mr_count; i++) {
        *out = (nic->mr_next + i) % nic->mr_count;
        if (nic->mrs[*out] == NULL) {
            return 0;
        }
    }
    uint32_t count = nic->mr_count == 0 ? 64 : 2 * nic->mr_count;
    if (count > REGIONS_MAX) {
        return ENOMEM;
    }
    swnic_mr **mrs = realloc(nic->mrs, count * sizeof *mrs);
    nic->mrs = mrs != NULL ? mrs : nic->mrs;
    uint8_t *variants = mrs != NULL ? realloc(nic->variants, count) : NULL;
    if (variants == NULL) {
        return ENOMEM;
    }
    nic->variants = variants;
    memset(mrs + nic->mr_count, 0, (count - nic->mr_count) * sizeof *mrs);
    memset(variants + nic->mr_count, 0, count - nic->mr_count);
    *out = nic->mr_count;
    nic->mr_count = count;
    return 0;
}

SWNIC_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *at, size_t bytes, int access)
{
    swnic_nic *nic = swnic_of(pd->context);
    const int remote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    uint32_t entry;
    if ((access & remote) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0) {
        errno = EINVAL;
        return NULL;
    }
    if (!swnic_is_host_memory(at, bytes)) {
        errno = EFAULT;
        return NULL;
    }
    swnic_mr *mr = calloc(1, sizeof *mr);
    if (mr == NULL) {
        return NULL;
    }
    swnic_enter(nic);
    int error = find_entry(nic, &entry);
    if (error == 0) {
        nic->mr_next = entry + 1;
        mr->ibv = (struct ibv_mr){ .context = pd->context, .pd = pd, .addr = at, .length = bytes };
        /* A new region in the place of an old one gets different keys; 0 and 0x100 have other meanings. */
        mr->ibv.lkey = mr->ibv.rkey = (entry + 0x10) << 8 | ++nic->variants[entry];
        mr->access = access;
        nic->mrs[entry] = mr;
    }
    swnic_leave(nic);
    if (error != 0) {
        free(mr);
        errno = error;
        return NULL;
    }
    return &mr->ibv;
}

/* The header calls this for access rights that are not constants. */
SWNIC_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *at, size_t bytes, uint64_t address,
                                             unsigned int access)
{
    if (address != (uint64_t)(uintptr_t)at) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    return ibv_reg_mr(pd, at, bytes, (int)access);
}

SWNIC_EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
    swnic_nic *nic = swnic_of(mr->context);
    swnic_enter(nic);
    swnic_store_late(nic);
    nic->mrs[(mr->lkey >> 8) - 0x10] = NULL;
    swnic_leave(nic);
    free(mr);
    return 0;
}

uint8_t *swnic_reach(swnic_nic *nic, const swnic_pd *pd, uint32_t key, uint64_t address, uint64_t bytes, int access)
{
    uint32_t entry = (key >> 8) - 0x10;
    const swnic_mr *mr = entry < nic->mr_count ? nic->mrs[entry] : NULL;
    if (mr == NULL || mr->ibv.lkey != key || ((const swnic_pd *)mr->ibv.pd)->base != pd ||
        (mr->access & access) != access) {
        return NULL;
    }
    uint64_t begin = (uint64_t)(uintptr_t)mr->ibv.addr;
    if (address < begin || bytes > mr->ibv.length || address - begin > mr->ibv.length - bytes) {
        return NULL;
    }
    return (uint8_t *)(uintptr_t)address;
}

/* ---- contexts ------------------------------------------------------------------------------------------- */

static void free_nic(swnic_nic *nic)
{
    swnic_forget(nic, NULL);
    if (nic->verbs.context.async_fd >= 0) {
        (void)close(nic->verbs.context.async_fd);
    }
    if (nic->trace >= 0) {
        (void)close(nic->trace);
    }
    (void)pthread_mutex_destroy(&nic->lock);
    (void)pthread_mutex_destroy(&nic->event_lock);
    (void)pthread_cond_destroy(&nic->event_acked);
    (void)pthread_mutex_destroy(&nic->verbs.context.mutex);
    free(nic->mrs);
    free(nic->variants);
    free(nic);
}

static int req_notify_cq(struct ibv_cq *cq, int solicited)
{
    (void)cq;
    (void)solicited;
    return EOPNOTSUPP;
}

SWNIC_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    swnic_nic *nic = calloc(1, sizeof *nic);
    if (nic == NULL) {
        return NULL;
    }
    nic->device = (uint32_t)(device - devices);
    nic->trace = swnic_trace_open();
    nic->verbs.query_port = query_port;
    nic->verbs.alloc_parent_domain = alloc_parent_domain;
    nic->verbs.alloc_td = alloc_td;
    nic->verbs.dealloc_td = dealloc_td;
    nic->verbs.create_cq_ex = swnic_create_cq_ex;
    nic->verbs.sz = sizeof nic->verbs;
    struct ibv_context *context = &nic->verbs.context;
    context->device = device;
    context->cmd_fd = -1;
    context->num_comp_vectors = 1;
    context->abi_compat = __VERBS_ABI_IS_EXTENDED;
    context->ops.poll_cq = swnic_poll_cq;
    context->ops.post_send = swnic_post_send;
    context->ops.post_recv = swnic_post_recv;
    context->ops.req_notify_cq = req_notify_cq;
    (void)pthread_mutex_init(&context->mutex, NULL);
    (void)pthread_mutex_init(&nic->lock, NULL);
    (void)pthread_mutex_init(&nic->event_lock, NULL);
    (void)pthread_cond_init(&nic->event_acked, NULL);
    nic->listener = -1;
    nic->link_up = true;
    context->async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    int error = context->async_fd < 0 ? errno : swnic_fault_read(nic, getenv("SWNIC_FAULT"));
    if (error != 0) {
        free_nic(nic);
        errno = error;
        return NULL;
    }
    return context;
}

SWNIC_EXPORT int ibv_close_device(struct ibv_context *context)
{
    swnic_nic *nic = swnic_of(context);
    swnic_end(nic);
    free_nic(nic);
    return 0;
}

SWNIC_EXPORT int swnic_inject(struct ibv_context *context, const char *script)
{
    swnic_nic *nic = swnic_of(context);
    swnic_enter(nic);
    int error = swnic_fault_read(nic, script);
    swnic_leave(nic);
    return error;
}
