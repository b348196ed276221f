/* nccl.c - the functions of NCCL that weir-perf calls, with declarations of weir-perf. */
#define _GNU_SOURCE 1 /* dladdr */
#include "tools/perf/nccl.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NVLS "NCCL_NVLS_ENABLE"
#define GRAPH_REGISTER "NCCL_GRAPH_REGISTER"
#define WINDOW_SYMMETRIC 1
#define WINDOWS_SINCE 22700
#define CUDA_FAILED 1    /* ncclUnhandledCudaError */
#define HOST_IMMEDIATE 1 /* ncclScalarHostImmediate: the factor is read before the function returns */
#define NO_OP (-1)

#define CONFIG_SINCE 22800
#define CONFIG_MAGIC 0xcafebeefu
#define POLICY_ZERO 2 /* NCCL_CTA_POLICY_ZERO */

typedef struct nccl_id {
    char bytes[128];
} nccl_id;

/* ncclConfig_t of nccl.h in NCCL 2.28. Later versions read as many bytes as `size` says. INT_MIN and NULL leave a field
 * to NCCL. */
typedef struct nccl_config {
    size_t size;
    unsigned magic;
    unsigned version;
    int blocking;
    int cluster;
    int least_ctas;
    int most_ctas;
    const char *net;
    int split_share;
    int traffic_class;
    const char *name;
    int collnet;
    int policy;
    int shrink_share;
    int nvls_ctas;
    int channels_per_peer;
    int nvlink_sched;
} nccl_config;

_Static_assert(sizeof(nccl_config) == 80, "the size of ncclConfig_t in NCCL 2.28");

/* Types and operations are enumerations in NCCL and ints here; 0 is success. */
struct perf_nccl {
    perf_rank *rank;
    void *library;
    void *comm;
    perf_nccl_settings settings;
    int version;
    int scaled_sum; /* operation; NO_OP: not created */
    const char *(*error_text)(int result);
    const char *(*last_error)(void *comm);
    int (*get_version)(int *version);
    int (*unique_id)(nccl_id *id);
    int (*comm_init)(void **comm, int ranks, nccl_id id, int rank);
    int (*comm_init_config)(void **comm, int ranks, nccl_id id, int rank, nccl_config *config);
    int (*comm_destroy)(void *comm);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*allreduce)(const void *send, void *recv, size_t count, int dtype, int op, void *comm, void *stream);
    int (*reduce)(const void *send, void *recv, size_t count, int dtype, int op, int root, void *comm, void *stream);
    int (*reduce_scatter)(const void *send, void *recv, size_t count, int dtype, int op, void *comm, void *stream);
    int (*allgather)(const void *send, void *recv, size_t count, int dtype, void *comm, void *stream);
    int (*broadcast)(const void *send, void *recv, size_t count, int dtype, int root, void *comm, void *stream);
    int (*send)(const void *send, size_t count, int dtype, int peer, void *comm, void *stream);
    int (*recv)(void *recv, size_t count, int dtype, int peer, void *comm, void *stream);
    int (*all_to_all)(const void *send, void *recv, size_t count, int dtype, void *comm, void *stream);
    int (*gather)(const void *send, void *recv, size_t count, int dtype, int root, void *comm, void *stream);
    int (*scatter)(const void *send, void *recv, size_t count, int dtype, int root, void *comm, void *stream);
    int (*allocate)(void **pointer, size_t bytes);
    int (*free)(void *pointer);
    int (*window_register)(void *comm, void *pointer, size_t bytes, void **window, int flags);
    int (*window_deregister)(void *comm, void *window);
    int (*create_op)(int *op, void *factor, int dtype, int residence, void *comm);
    int (*destroy_op)(int op, void *comm);
};

static const int dtypes[WEIR_DTYPES] = { 8, 7, 6, 9, 10, 11, 0, 1, 2, 3, 4, 5 }; /* by weir_dtype, and weir_op */
static const int ops[] = { 0, 1, 3, 2, 4 };

bool perf_nccl_prepare(bool pinned)
{
    static const char *const pins[][2] = { { "NCCL_ALGO", "allreduce:tree" },
                                           { "NCCL_PROTO", "Simple" },
                                           { "NCCL_MIN_NCHANNELS", "1" },
                                           { "NCCL_MAX_NCHANNELS", "1" } };
    bool good = setenv(NVLS, "0", 1) == 0;
    for (size_t i = 0; pinned && i < ROWS(pins); i++) {
        good = setenv(pins[i][0], pins[i][1], 1) == 0 && good;
    }
    return good;
}

static weir_status check(const perf_nccl *nccl, const char *what, int result)
{
    if (result == 0) {
        return WEIR_OK;
    }
    return perf_fail(nccl->rank, WEIR_ERR_SYSTEM, "%s: %s: %s", what, nccl->error_text(result),
                     nccl->last_error(nccl->comm));
}

static weir_status find_functions(perf_nccl *nccl)
{
    const struct {
        const char *name;
        void *function; /* pointer to the function */
        bool needed;
    } rows[] = {
        { "ncclGetErrorString", &nccl->error_text, true },
        { "ncclGetLastError", &nccl->last_error, true },
        { "ncclGetVersion", &nccl->get_version, true },
        { "ncclGetUniqueId", &nccl->unique_id, true },
        { "ncclCommInitRank", &nccl->comm_init, true },
        { "ncclCommInitRankConfig", &nccl->comm_init_config, false },
        { "ncclCommDestroy", &nccl->comm_destroy, true },
        { "ncclGroupStart", &nccl->group_start, true },
        { "ncclGroupEnd", &nccl->group_end, true },
        { "ncclAllReduce", &nccl->allreduce, true },
        { "ncclReduce", &nccl->reduce, true },
        { "ncclReduceScatter", &nccl->reduce_scatter, true },
        { "ncclAllGather", &nccl->allgather, true },
        { "ncclBroadcast", &nccl->broadcast, true },
        { "ncclSend", &nccl->send, true },
        { "ncclRecv", &nccl->recv, true },
        { "ncclAlltoAll", &nccl->all_to_all, false },
        { "ncclGather", &nccl->gather, false },
        { "ncclScatter", &nccl->scatter, false },
        { "ncclMemAlloc", &nccl->allocate, false },
        { "ncclMemFree", &nccl->free, false },
        { "ncclCommWindowRegister", &nccl->window_register, false },
        { "ncclCommWindowDeregister", &nccl->window_deregister, false },
        { "ncclRedOpCreatePreMulSum", &nccl->create_op, false },
        { "ncclRedOpDestroy", &nccl->destroy_op, false },
    };
    for (size_t i = 0; i < ROWS(rows); i++) {
        void *symbol = dlsym(nccl->library, rows[i].name);
        if (symbol == NULL && rows[i].needed) {
            return perf_fail(nccl->rank, WEIR_ERR_UNSUPPORTED, "the NCCL library has no %s", rows[i].name);
        }
        memcpy(rows[i].function, &symbol, sizeof symbol);
    }
    return WEIR_OK;
}

static weir_status load(perf_nccl *nccl, const char *library)
{
    nccl->library = dlopen(library != NULL ? library : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (nccl->library == NULL) {
        return perf_fail(nccl->rank, WEIR_ERR_UNSUPPORTED, "%s; --nccl takes its path", dlerror());
    }
    weir_status status = find_functions(nccl);
    if (status == WEIR_OK) {
        status = check(nccl, "ncclGetVersion", nccl->get_version(&nccl->version));
    }
    const bool has_config = nccl->version >= CONFIG_SINCE && nccl->comm_init_config != NULL;
    return status == WEIR_OK && !has_config && (nccl->settings.ctas != 0 || nccl->settings.zero)
               ? perf_fail(nccl->rank, WEIR_ERR_UNSUPPORTED, "--nccl-ctas and --compare nccl-zero need NCCL 2.28")
               : status;
}

/* Prints the version and path of the NCCL library, and the NCCL_ variables of the environment. */
static void report(const perf_nccl *nccl)
{
    extern char **environ;
    Dl_info where;
    void *symbol = dlsym(nccl->library, "ncclGetVersion");
    const bool known = dladdr(symbol, &where) != 0 && where.dli_fname != NULL;
    perf_fact(nccl->rank->output, "NCCL", "%d.%d.%d, %s, NVLS off", nccl->version / 10000, nccl->version / 100 % 100,
              nccl->version % 100, known ? where.dli_fname : "?");
    if (nccl->settings.ctas != 0) {
        perf_fact(nccl->rank->output, "NCCL maxCTAs", "%u", nccl->settings.ctas);
    }
    if (nccl->settings.zero) {
        perf_fact(nccl->rank->output, "NCCL CTA policy", "zero");
    }
    for (char **variable = environ; *variable != NULL; variable++) {
        const char *value = strchr(*variable, '=');
        if (strncmp(*variable, "NCCL_", 5) == 0 && value != NULL) {
            char name[64];
            (void)snprintf(name, sizeof name, "%.*s", (int)(value - *variable), *variable);
            perf_fact(nccl->rank->output, name, "%s", value + 1);
        }
    }
    if (getenv(GRAPH_REGISTER) == NULL) { /* the ordinary buffers of graphs may be zero-copy */
        perf_fact(nccl->rank->output, GRAPH_REGISTER, "1, NCCL's default");
    }
}

/* Whether all ranks have succeeded so far. Otherwise some ranks would wait in NCCL for the others. */
static weir_status agree(perf_rank *rank, weir_status mine)
{
    weir_status all[PERF_RANKS_MAX];
    all[rank->rank] = mine;
    weir_status status = weir_bootstrap_allgather(rank->bootstrap, NULL, all, sizeof all[0]);
    for (uint32_t i = 0; i < rank->ranks && status == WEIR_OK && mine == WEIR_OK; i++) {
        if (all[i] != WEIR_OK) {
            mine = perf_fail(rank, all[i], "NCCL: rank %u failed", i);
        }
    }
    return mine != WEIR_OK ? mine : status;
}

/* ncclCommInitRank returns only when all ranks have called it, and a failed rank never does. So a separate thread calls
 * it. The rank abandons that thread if another rank fails, or after a timeout. */
typedef struct meeting {
    perf_nccl *nccl;
    const perf_cuda *cuda;
    nccl_id id;
    int ranks;
    int rank;
    int result;
    atomic_int left; /* left by the thread or its rank; the second one frees */
} meeting;

static int init_comm(const meeting *m)
{
    perf_nccl *nccl = m->nccl;
    const perf_nccl_settings *settings = &nccl->settings;
    const int unset = INT_MIN;
    nccl_config config = { sizeof config, CONFIG_MAGIC, CONFIG_SINCE, unset, unset, unset, unset, NULL, unset,
                           unset,         NULL,         unset,        unset, unset, unset, unset, unset };
    if (settings->ctas == 0 && !settings->zero) {
        return nccl->comm_init(&nccl->comm, m->ranks, m->id, m->rank);
    }
    config.most_ctas = settings->ctas != 0 ? (int)settings->ctas : unset;
    config.policy = settings->zero ? POLICY_ZERO : unset;
    return nccl->comm_init_config(&nccl->comm, m->ranks, m->id, m->rank, &config);
}

static void *meet(void *context)
{
    meeting *m = (meeting *)context;
    perf_nccl *nccl = m->nccl;
    m->result = perf_cuda_attach(m->cuda) ? nccl->group_start() : CUDA_FAILED;
    if (m->result == 0) {
        const int begun = init_comm(m);
        const int ended = nccl->group_end();
        m->result = begun != 0 ? begun : ended;
    }
    if (atomic_exchange(&m->left, 1) != 0) {
        free(nccl);
        free(m);
    }
    return NULL;
}

static uint64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Waits for the thread; *nccl is NULL if it was abandoned. */
static weir_status wait_for_meeting(meeting *m, uint32_t timeout_ms, perf_nccl **nccl)
{
    const struct timespec pause = { 0, 1000000 };
    perf_rank *rank = (*nccl)->rank;
    const uint64_t end = now_ms() + timeout_ms;
    weir_status status = WEIR_OK;
    while (atomic_load(&m->left) == 0 && status == WEIR_OK) {
        (void)nanosleep(&pause, NULL);
        status = weir_comm_status(rank->comm);
        if (status != WEIR_OK) {
            status = perf_fail(rank, status, "ncclCommInitRank: abandoned: %s", weir_last_error());
        } else if (now_ms() >= end) {
            status =
                perf_fail(rank, WEIR_ERR_TIMEOUT, "ncclCommInitRank: not all ranks called it within %u ms", timeout_ms);
        }
    }
    if (atomic_exchange(&m->left, 1) == 0) {
        *nccl = NULL;
        return status;
    }
    status = check(*nccl, "ncclCommInitRank", m->result);
    free(m);
    return status;
}

static weir_status start_meeting(const nccl_id *id, const perf_cuda *cuda, uint32_t timeout_ms, perf_nccl **nccl)
{
    perf_rank *rank = (*nccl)->rank;
    pthread_t thread;
    meeting *m = (meeting *)calloc(1, sizeof *m);
    if (m == NULL) {
        return WEIR_ERR_NOMEM;
    }
    m->nccl = *nccl;
    m->cuda = cuda;
    m->id = *id;
    m->ranks = (int)rank->ranks;
    m->rank = (int)rank->rank;
    const int error = pthread_create(&thread, NULL, meet, m);
    if (error != 0) {
        free(m);
        return perf_fail(rank, WEIR_ERR_SYSTEM, "no thread for NCCL: %s", strerror(error));
    }
    (void)pthread_detach(thread);
    return wait_for_meeting(m, timeout_ms, nccl);
}

static weir_status connect_ranks(const perf_cuda *cuda, uint32_t timeout_ms, perf_nccl **nccl)
{
    perf_rank *rank = (*nccl)->rank;
    nccl_id id;
    memset(&id, 0, sizeof id);
    weir_status status = rank->rank == 0 ? check(*nccl, "ncclGetUniqueId", (*nccl)->unique_id(&id)) : WEIR_OK;
    status = agree(rank, status);
    if (status == WEIR_OK) {
        status = weir_bootstrap_broadcast(rank->bootstrap, NULL, &id, sizeof id, 0);
    }
    return status == WEIR_OK ? start_meeting(&id, cuda, timeout_ms, nccl) : status;
}

weir_status perf_nccl_open(perf_rank *rank, const perf_cuda *cuda, const char *library,
                           const perf_nccl_settings *settings, uint32_t timeout_ms, perf_nccl **out)
{
    perf_nccl *nccl = (perf_nccl *)calloc(1, sizeof *nccl);
    *out = NULL;
    if (nccl == NULL) {
        return WEIR_ERR_NOMEM;
    }
    nccl->rank = rank;
    nccl->scaled_sum = NO_OP;
    nccl->settings = *settings;
    weir_status status = agree(rank, load(nccl, library));
    if (status == WEIR_OK) {
        report(nccl);
        status = connect_ranks(cuda, timeout_ms, &nccl);
    }
    if (status != WEIR_OK) {
        perf_nccl_close(nccl);
        return status;
    }
    *out = nccl;
    return WEIR_OK;
}

void perf_nccl_close(perf_nccl *nccl)
{
    if (nccl == NULL) {
        return;
    }
    if (nccl->scaled_sum != NO_OP) {
        (void)nccl->destroy_op(nccl->scaled_sum, nccl->comm);
    }
    if (nccl->comm != NULL) {
        (void)nccl->comm_destroy(nccl->comm);
    }
    free(nccl); /* the library stays loaded: its threads may still be ending */
}

/* ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t, ncclScalarResidence_t, ncclComm_t), from
 * NCCL's API reference. The operation's type is that of the data. */
weir_status perf_nccl_create_scaled_sum(perf_nccl *nccl, weir_dtype dtype)
{
    static const uint64_t factors[] = { 0x3ff8000000000000, 0x3fc00000, 0x3e00, 0x3fc0 }; /* 1.5, by weir_dtype */
    uint64_t factor = factors[dtype];
    int op = NO_OP;
    if (nccl->create_op == NULL || nccl->destroy_op == NULL) {
        return perf_fail(nccl->rank, WEIR_ERR_UNSUPPORTED, "the NCCL library has no ncclRedOpCreatePreMulSum");
    }
    const weir_status status = check(nccl, "ncclRedOpCreatePreMulSum",
                                     nccl->create_op(&op, &factor, dtypes[dtype], HOST_IMMEDIATE, nccl->comm));
    nccl->scaled_sum = status == WEIR_OK ? op : NO_OP;
    return status;
}

weir_status perf_nccl_open_windows(perf_nccl *nccl, uint64_t bytes, perf_nccl_windows *out)
{
    void **const pointers[] = { &out->send, &out->recv };
    weir_status status = WEIR_OK;
    memset(out, 0, sizeof *out);
    if (nccl->version < WINDOWS_SINCE || nccl->window_register == NULL || nccl->window_deregister == NULL ||
        nccl->allocate == NULL || nccl->free == NULL) {
        perf_fact(nccl->rank->output, "NCCL windows", "not in this version");
        return WEIR_OK;
    }
    for (uint32_t i = 0; i < 2 && status == WEIR_OK; i++) {
        status = check(nccl, "ncclMemAlloc", nccl->allocate(pointers[i], (size_t)bytes));
    }
    status = agree(nccl->rank, status);
    for (uint32_t i = 0; i < 2 && status == WEIR_OK; i++) {
        status =
            check(nccl, "ncclCommWindowRegister",
                  nccl->window_register(nccl->comm, *pointers[i], (size_t)bytes, &out->windows[i], WINDOW_SYMMETRIC));
    }
    if (status != WEIR_OK || out->windows[0] == NULL || out->windows[1] == NULL) {
        perf_nccl_close_windows(nccl, out);
        perf_fact(nccl->rank->output, "NCCL windows", "not on this machine");
    }
    return status;
}

void perf_nccl_close_windows(perf_nccl *nccl, perf_nccl_windows *windows)
{
    void *const pointers[] = { windows->send, windows->recv };
    for (uint32_t i = 0; i < 2; i++) {
        if (windows->windows[i] != NULL) {
            (void)nccl->window_deregister(nccl->comm, windows->windows[i]);
        }
        if (pointers[i] != NULL) {
            (void)nccl->free(pointers[i]);
        }
    }
    memset(windows, 0, sizeof *windows);
}

/* all_to_all for NCCL before 2.28. */
static int exchange_all(const perf_nccl *nccl, const weir_collective_request *q, void *stream)
{
    const uint64_t bytes = q->count * weir_dtype_bytes(q->dtype);
    const int dtype = dtypes[q->dtype];
    int result = nccl->group_start();
    for (uint32_t i = 0; i < nccl->rank->ranks && result == 0; i++) {
        result = nccl->send((const char *)q->send + i * bytes, q->count, dtype, (int)i, nccl->comm, stream);
        if (result == 0) {
            result = nccl->recv((char *)q->recv + i * bytes, q->count, dtype, (int)i, nccl->comm, stream);
        }
    }
    const int ended = nccl->group_end();
    return result != 0 ? result : ended;
}

/* As frameworks do it: a group of sends and receives. */
static int exchange_with_root(perf_nccl *nccl, const weir_collective_request *q, void *stream)
{
    const uint64_t bytes = q->count * weir_dtype_bytes(q->dtype);
    const bool gathers = q->kind == WEIR_GATHER;
    const uint32_t others = nccl->rank->rank == q->root ? nccl->rank->ranks : 0;
    const char *send = (const char *)q->send;
    char *recv = (char *)q->recv;
    const int dtype = dtypes[q->dtype];
    int result = nccl->group_start();
    if (result == 0) {
        result = gathers ? nccl->send(send, q->count, dtype, (int)q->root, nccl->comm, stream)
                         : nccl->recv(recv, q->count, dtype, (int)q->root, nccl->comm, stream);
    }
    for (uint32_t i = 0; i < others && result == 0; i++) {
        result = gathers ? nccl->recv(recv + i * bytes, q->count, dtype, (int)i, nccl->comm, stream)
                         : nccl->send(send + i * bytes, q->count, dtype, (int)i, nccl->comm, stream);
    }
    const int ended = nccl->group_end();
    return result != 0 ? result : ended;
}

/* By NCCL's own functions, which have copy engines. */
static weir_status gather_or_scatter(perf_nccl *nccl, const weir_collective_request *q, void *stream)
{
    const bool gathers = q->kind == WEIR_GATHER;
    const char *name = gathers ? "ncclGather" : "ncclScatter";
    int (*const call)(const void *, void *, size_t, int, int, void *, void *) = gathers ? nccl->gather : nccl->scatter;
    return call == NULL ? perf_fail(nccl->rank, WEIR_ERR_UNSUPPORTED,
                                    "the NCCL library has no %s, which --compare nccl-zero needs", name)
                        : check(nccl, name,
                                call(q->send, q->recv, q->count, dtypes[q->dtype], (int)q->root, nccl->comm, stream));
}

weir_status perf_nccl_group(perf_nccl *nccl, bool begin)
{
    return begin ? check(nccl, "ncclGroupStart", nccl->group_start()) : check(nccl, "ncclGroupEnd", nccl->group_end());
}

weir_status perf_nccl_exchange(perf_nccl *nccl, const weir_transfer *transfers, uint32_t n, void *stream)
{
    weir_status status = perf_nccl_group(nccl, true);
    for (uint32_t i = 0; i < n && status == WEIR_OK; i++) {
        const weir_transfer *t = &transfers[i];
        const int dtype = dtypes[t->dtype];
        const int peer = (int)t->peer;
        status = t->receive ? check(nccl, "ncclRecv", nccl->recv(t->buffer, t->count, dtype, peer, nccl->comm, stream))
                            : check(nccl, "ncclSend", nccl->send(t->buffer, t->count, dtype, peer, nccl->comm, stream));
    }
    const weir_status ended = perf_nccl_group(nccl, false);
    return status != WEIR_OK ? status : ended;
}

/* A rank that is not the root passes its receive buffer, as PyTorch does, although NCCL ignores the send buffer there.
 * NCCL 2.28 exchanges the address of a receive window only if the send buffer is in a window, too. If one rank passes
 * NULL, the root waits in its kernel for an address that never comes. */
static const void *broadcast_from(const weir_collective_request *q) { return q->send != NULL ? q->send : q->recv; }

weir_status perf_nccl_call(perf_nccl *nccl, const weir_collective_request *q, void *stream)
{
    const int dtype = dtypes[q->dtype];
    const int op = q->op == WEIR_SCALED_SUM ? nccl->scaled_sum : ops[q->op];
    void *comm = nccl->comm;
    switch (q->kind) {
    case WEIR_ALLREDUCE:
        return check(nccl, "ncclAllReduce", nccl->allreduce(q->send, q->recv, q->count, dtype, op, comm, stream));
    case WEIR_REDUCE:
        return check(nccl, "ncclReduce",
                     nccl->reduce(q->send, q->recv, q->count, dtype, op, (int)q->root, comm, stream));
    case WEIR_REDUCE_SCATTER:
        return check(nccl, "ncclReduceScatter",
                     nccl->reduce_scatter(q->send, q->recv, q->count, dtype, op, comm, stream));
    case WEIR_ALLGATHER:
        return check(nccl, "ncclAllGather", nccl->allgather(q->send, q->recv, q->count, dtype, comm, stream));
    case WEIR_BROADCAST:
        return check(nccl, "ncclBroadcast",
                     nccl->broadcast(broadcast_from(q), q->recv, q->count, dtype, (int)q->root, comm, stream));
    case WEIR_GATHER:
    case WEIR_SCATTER:
        return nccl->settings.zero ? gather_or_scatter(nccl, q, stream)
                                   : check(nccl, "ncclSend and ncclRecv", exchange_with_root(nccl, q, stream));
    default:
        return check(nccl, "ncclAlltoAll",
                     nccl->all_to_all != NULL ? nccl->all_to_all(q->send, q->recv, q->count, dtype, comm, stream)
                                              : exchange_all(nccl, q, stream));
    }
}
