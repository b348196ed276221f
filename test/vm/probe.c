/* probe.c - checks a machine's RDMA devices in libweir's way: libibverbs loaded at run time, and a reliable queue pair
 * between two devices in one process.
 *
 *   weir-vm-probe [DEVICE DEVICE [GID-INDEX]]      rxe0 rxe1 0 unless given
 *
 * Prints a row for each check. The status is 1 if a check fails, 77 without libibverbs. Checks build on each other, so
 * the first failure ends the program. */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    bytes = 64 << 10,
    /* Each end's memory: the data, data read back, a word for atomics and one for its old value. */
    back_at = bytes,
    word_at = 2 * bytes,
    old_at = word_at + 8,
    memory_bytes = 3 * bytes,
    deadline_s = 30,
    access_all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC
};

/* Functions of libibverbs that are found by name; posting and polling go through the device's context. */
typedef struct verbs {
    struct ibv_device **(*get_device_list)(int *);
    void (*free_device_list)(struct ibv_device **);
    const char *(*get_device_name)(struct ibv_device *);
    struct ibv_context *(*open_device)(struct ibv_device *);
    int (*close_device)(struct ibv_context *);
    int (*query_device)(struct ibv_context *, struct ibv_device_attr *);
    int (*query_port)(struct ibv_context *, uint8_t, struct ibv_port_attr *);
    int (*query_gid)(struct ibv_context *, uint8_t, int, union ibv_gid *);
    struct ibv_pd *(*alloc_pd)(struct ibv_context *);
    int (*dealloc_pd)(struct ibv_pd *);
    struct ibv_mr *(*reg_mr)(struct ibv_pd *, void *, size_t, int);
    int (*dereg_mr)(struct ibv_mr *);
    struct ibv_cq *(*create_cq)(struct ibv_context *, int, void *, struct ibv_comp_channel *, int);
    int (*destroy_cq)(struct ibv_cq *);
    struct ibv_qp *(*create_qp)(struct ibv_pd *, struct ibv_qp_init_attr *);
    int (*modify_qp)(struct ibv_qp *, struct ibv_qp_attr *, int);
    int (*destroy_qp)(struct ibv_qp *);
    const char *(*wc_status_str)(enum ibv_wc_status);
} verbs;

typedef struct end {
    const char *name;
    struct ibv_context *context;
    struct ibv_device_attr device;
    struct ibv_port_attr port;
    union ibv_gid gid;
    struct ibv_pd *pd;
    struct ibv_mr *mr;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    unsigned char *memory;
} end;

static verbs v;

__attribute__((format(printf, 2, 3))) static bool check(bool right, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("%s ", right ? "passed" : "FAILED");
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    return right;
}

static bool load(void)
{
    static const char *const names[] = {
        "ibv_get_device_list", "ibv_free_device_list", "ibv_get_device_name", "ibv_open_device", "ibv_close_device",
        "ibv_query_device",    "ibv_query_port",       "ibv_query_gid",       "ibv_alloc_pd",    "ibv_dealloc_pd",
        "ibv_reg_mr",          "ibv_dereg_mr",         "ibv_create_cq",       "ibv_destroy_cq",  "ibv_create_qp",
        "ibv_modify_qp",       "ibv_destroy_qp",       "ibv_wc_status_str",
    };
    _Static_assert(sizeof names / sizeof names[0] == sizeof v / sizeof(void *), "one name for each member");
    void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        printf("%s\n", dlerror());
        return false;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        void *function = dlsym(library, names[i]);
        if (function == NULL) {
            printf("%s\n", dlerror());
            return false;
        }
        memcpy((char *)&v + i * sizeof function, &function, sizeof function);
    }
    return true;
}

/* ---- set-up ---------------------------------------------------------------------------------------------- */

static struct ibv_context *open_named(const char *name)
{
    int count = 0;
    struct ibv_device **devices = v.get_device_list(&count);
    struct ibv_context *context = NULL;
    for (int i = 0; i < count && context == NULL; i++) {
        if (strcmp(v.get_device_name(devices[i]), name) == 0) {
            context = v.open_device(devices[i]);
        }
    }
    if (devices != NULL) {
        v.free_device_list(devices);
    }
    return context;
}

static bool open_end(end *e, const char *name, int gid_index)
{
    e->name = name;
    e->context = open_named(name);
    if (!check(e->context != NULL, "%s: opens", name)) {
        return false;
    }
    if (v.query_device(e->context, &e->device) != 0 || v.query_port(e->context, 1, &e->port) != 0 ||
        v.query_gid(e->context, 1, gid_index, &e->gid) != 0) {
        return check(false, "%s: answers", name);
    }
    if (!check(e->port.state == IBV_PORT_ACTIVE, "%s: port is active (%d)", name, (int)e->port.state) ||
        !check(e->port.link_layer == IBV_LINK_LAYER_ETHERNET, "%s: link is Ethernet", name) ||
        !check(e->port.active_mtu == IBV_MTU_4096, "%s: MTU is 4096 (%d)", name, 128 << e->port.active_mtu) ||
        !check(e->device.atomic_cap >= IBV_ATOMIC_HCA, "%s: has atomics", name) ||
        !check(e->gid.global.interface_id != 0, "%s: GID %d is there", name, gid_index)) {
        return false;
    }
    e->memory = aligned_alloc(4096, memory_bytes);
    e->pd = v.alloc_pd(e->context);
    e->cq = v.create_cq(e->context, 16, NULL, NULL, 0);
    if (e->memory == NULL || e->pd == NULL || e->cq == NULL) {
        return check(false, "%s: protection domain and completion queue", name);
    }
    memset(e->memory, 0, memory_bytes);
    e->mr = v.reg_mr(e->pd, e->memory, memory_bytes, access_all);
    struct ibv_qp_init_attr attr = {
        .send_cq = e->cq,
        .recv_cq = e->cq,
        .cap = { .max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 64 },
        .qp_type = IBV_QPT_RC,
    };
    e->qp = v.create_qp(e->pd, &attr);
    return check(e->mr != NULL && e->qp != NULL, "%s: memory and queue pair", name);
}

static void close_end(end *e)
{
    if (e->qp != NULL) {
        (void)v.destroy_qp(e->qp);
    }
    if (e->mr != NULL) {
        (void)v.dereg_mr(e->mr);
    }
    if (e->cq != NULL) {
        (void)v.destroy_cq(e->cq);
    }
    if (e->pd != NULL) {
        (void)v.dealloc_pd(e->pd);
    }
    if (e->context != NULL) {
        (void)v.close_device(e->context);
    }
    free(e->memory);
}

static bool connect_end(end *e, const end *peer, int gid_index)
{
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access_all };
    int failed = v.modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR,
        .path_mtu = e->port.active_mtu,
        .dest_qp_num = peer->qp->qp_num,
        .max_dest_rd_atomic = 4,
        .min_rnr_timer = 12,
        .ah_attr = { .is_global = 1,
                     .port_num = 1,
                     .grh = { .dgid = peer->gid, .sgid_index = (uint8_t)gid_index, .hop_limit = 64 } },
    };
    failed |= v.modify_qp(e->qp, &attr,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4
    };
    failed |= v.modify_qp(e->qp, &attr,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                              IBV_QP_MAX_QP_RD_ATOMIC);
    return check(failed == 0, "%s: connects to %s", e->name, peer->name);
}

/* ---- transfers ------------------------------------------------------------------------------------------- */

static time_t now_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

/* Posts one work request on local memory and returns the status of its completion; -1 if it is refused or does not
 * complete in time. */
static int perform(end *e, struct ibv_send_wr request, uint32_t local_at, uint32_t length)
{
    struct ibv_sge piece = { .addr = (uintptr_t)(e->memory + local_at), .length = length, .lkey = e->mr->lkey };
    struct ibv_send_wr *bad;
    struct ibv_wc completion;
    request.sg_list = &piece;
    request.num_sge = 1;
    request.send_flags |= IBV_SEND_SIGNALED;
    if (ibv_post_send(e->qp, &request, &bad) != 0) {
        return -1;
    }
    time_t give_up = now_s() + deadline_s;
    int count;
    do {
        count = ibv_poll_cq(e->cq, 1, &completion);
    } while (count == 0 && now_s() < give_up);
    return count == 1 ? (int)completion.status : -1;
}

static const char *status_text(int status)
{
    return status < 0 ? "nothing in time" : v.wc_status_str((enum ibv_wc_status)status);
}

static unsigned char byte_at(uint32_t i) { return (unsigned char)((i * 2654435761u) >> 24); }

static uint32_t wrong_bytes(const unsigned char *data)
{
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < bytes; i++) {
        wrong += data[i] != byte_at(i);
    }
    return wrong;
}

static bool transfer(end *e, end *peer)
{
    uint64_t remote = (uintptr_t)peer->memory;
    uint32_t rkey = peer->mr->rkey;
    for (uint32_t i = 0; i < bytes; i++) {
        e->memory[i] = byte_at(i);
    }
    struct ibv_send_wr write = { .opcode = IBV_WR_RDMA_WRITE, .wr.rdma = { .remote_addr = remote, .rkey = rkey } };
    int status = perform(e, write, 0, bytes);
    if (!check(status == IBV_WC_SUCCESS, "%s: write to %s: %s", e->name, peer->name, status_text(status)) ||
        !check(wrong_bytes(peer->memory) == 0, "%s: %" PRIu32 " wrong bytes", peer->name, wrong_bytes(peer->memory))) {
        return false;
    }
    struct ibv_send_wr read = { .opcode = IBV_WR_RDMA_READ, .wr.rdma = { .remote_addr = remote, .rkey = rkey } };
    status = perform(e, read, back_at, bytes);
    if (!check(status == IBV_WC_SUCCESS, "%s: read from %s: %s", e->name, peer->name, status_text(status)) ||
        !check(wrong_bytes(e->memory + back_at) == 0, "%s: %" PRIu32 " wrong bytes read", e->name,
               wrong_bytes(e->memory + back_at))) {
        return false;
    }
    return true;
}

/* Writes a word inline, and adds to it twice. */
static bool count_up(end *e, end *peer)
{
    uint64_t remote = (uintptr_t)(peer->memory + word_at);
    uint32_t rkey = peer->mr->rkey;
    uint64_t value = UINT64_C(0x7fffffffffffff00), old = 0;
    memcpy(e->memory + old_at, &value, sizeof value);
    struct ibv_send_wr write = { .opcode = IBV_WR_RDMA_WRITE,
                                 .send_flags = IBV_SEND_INLINE,
                                 .wr.rdma = { .remote_addr = remote, .rkey = rkey } };
    int status = perform(e, write, old_at, sizeof value);
    if (!check(status == IBV_WC_SUCCESS, "%s: inline write: %s", e->name, status_text(status))) {
        return false;
    }
    for (int i = 0; i < 2; i++) {
        struct ibv_send_wr add = { .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                                   .wr.atomic = { .remote_addr = remote, .compare_add = 0x101, .rkey = rkey } };
        status = perform(e, add, old_at, sizeof old);
        memcpy(&old, e->memory + old_at, sizeof old);
        if (!check(status == IBV_WC_SUCCESS && old == value, "%s: fetch-add: %s, %" PRIx64 " before", e->name,
                   status_text(status), old)) {
            return false;
        }
        value += 0x101;
    }
    memcpy(&old, peer->memory + word_at, sizeof old);
    return check(old == value, "%s: %" PRIx64 " after", peer->name, old);
}

/* The last check: it leaves the queue pairs in the error state. */
static bool refuse(end *e, end *peer)
{
    struct ibv_send_wr write = { .opcode = IBV_WR_RDMA_WRITE,
                                 .wr.rdma = { .remote_addr = (uintptr_t)peer->memory + memory_bytes - 8,
                                              .rkey = peer->mr->rkey } };
    int status = perform(e, write, 0, 16);
    return check(status == IBV_WC_REM_ACCESS_ERR, "%s: write beyond the memory: %s", e->name, status_text(status));
}

int main(int argc, char **argv)
{
    const char *first = argc > 2 ? argv[1] : "rxe0";
    const char *second = argc > 2 ? argv[2] : "rxe1";
    int gid_index = argc > 3 ? atoi(argv[3]) : 0;
    end a = { 0 }, b = { 0 };
    if (!load()) {
        return 77;
    }
    bool right = open_end(&a, first, gid_index) && open_end(&b, second, gid_index) && connect_end(&a, &b, gid_index) &&
                 connect_end(&b, &a, gid_index) && transfer(&a, &b) && transfer(&b, &a) && count_up(&a, &b) &&
                 refuse(&a, &b);
    close_end(&b);
    close_end(&a);
    return right ? 0 : 1;
}
