/* verbs_faults.c - libibverbs, for WEIR_IB_VERBS_LIBRARY, with devices that lack a feature. WEIR_TEST_VERBS selects it:
 *
 *   no-atomics   they have no atomic operations, and refuse memory and queue pairs that allow them
 *   unexpected   writes come with immediate data, for which the receiver, who expects none, is never ready
 *
 * All other functions come from libibverbs, to which this library is linked. */
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#undef ibv_reg_mr

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *out);
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *at, size_t bytes, int access);
int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
struct ibv_context *ibv_open_device(struct ibv_device *device);

static bool lacks(const char *what)
{
    const char *text = getenv("WEIR_TEST_VERBS");
    return text != NULL && strcmp(text, what) == 0;
}

/* Stores libibverbs' function in a pointer. */
static void real(const char *name, void *pointer)
{
    void *function = dlsym(dlopen("libibverbs.so.1", RTLD_NOW), name);
    memcpy(pointer, &function, sizeof function);
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *out)
{
    int (*call)(struct ibv_context *, struct ibv_device_attr *);
    real("ibv_query_device", &call);
    const int error = call(context, out);
    if (error == 0 && lacks("no-atomics")) {
        out->atomic_cap = IBV_ATOMIC_NONE;
    }
    return error;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *at, size_t bytes, int access)
{
    struct ibv_mr *(*call)(struct ibv_pd *, void *, size_t, int);
    real("ibv_reg_mr", &call);
    if (lacks("no-atomics") && (access & IBV_ACCESS_REMOTE_ATOMIC) != 0) {
        errno = EINVAL;
        return NULL;
    }
    return call(pd, at, bytes, access);
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    int (*call)(struct ibv_qp *, struct ibv_qp_attr *, int);
    real("ibv_modify_qp", &call);
    const bool refused = lacks("no-atomics") && (mask & IBV_QP_ACCESS_FLAGS) != 0 &&
                         (attr->qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC) != 0;
    return refused ? EINVAL : call(qp, attr, mask);
}

static int (*post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);

static int post_with_immediate(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    if (wr->opcode == IBV_WR_RDMA_WRITE) {
        wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    }
    return post_send(qp, wr, bad);
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct ibv_context *(*call)(struct ibv_device *);
    real("ibv_open_device", &call);
    struct ibv_context *context = call(device);
    if (context != NULL && lacks("unexpected")) {
        post_send = context->ops.post_send;
        context->ops.post_send = post_with_immediate;
    }
    return context;
}
