/* fake_nccl.c - the functions of NCCL by which weir-perf's ranks meet. FAKE_NCCL=meet: they meet; =fail: rank 1 fails
 * while rank 0 waits for it; =wait: both wait. A waiting rank waits until fake_nccl_end. fake_nccl_count tells how
 * often a function was called with which arguments. With FAKE_NCCL_OLD defined, the library lacks ncclGather and
 * ncclScatter. */
#define _POSIX_C_SOURCE 200809L

#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

#define ROWS 32u

enum { SUCCESS = 0, SYSTEM_ERROR = 2, SCALED_SUM = 5 };

typedef struct nccl_id {
    char bytes[128];
} nccl_id;

EXPORT void fake_nccl_end(void);
EXPORT unsigned fake_nccl_count(const char *call);
EXPORT const char *ncclGetErrorString(int result);
EXPORT const char *ncclGetLastError(void *comm);
EXPORT int ncclGetVersion(int *version);
EXPORT int ncclGetUniqueId(nccl_id *id);
EXPORT int ncclCommInitRank(void **comm, int ranks, nccl_id id, int rank);
EXPORT int ncclCommInitRankConfig(void **comm, int ranks, nccl_id id, int rank, const void *config);
EXPORT int ncclCommDestroy(void *comm);
EXPORT int ncclRedOpCreatePreMulSum(int *op, const void *factor, int dtype, int residence, void *comm);
EXPORT int ncclRedOpDestroy(int op, void *comm);
EXPORT int ncclAllReduce(const void *send, void *recv, size_t count, int dtype, int op, void *comm, void *stream);
EXPORT int ncclBroadcast(const void *send, void *recv, size_t count, int dtype, int root, void *comm, void *stream);
EXPORT int ncclSend(const void *send, size_t count, int dtype, int peer, void *comm, void *stream);
EXPORT int ncclRecv(void *recv, size_t count, int dtype, int peer, void *comm, void *stream);
#if !defined(FAKE_NCCL_OLD)
EXPORT int ncclGather(const void *send, void *recv, size_t count, int dtype, int root, void *comm, void *stream);
EXPORT int ncclScatter(const void *send, void *recv, size_t count, int dtype, int root, void *comm, void *stream);
#endif

static atomic_int how; /* the first letter of FAKE_NCCL */
static atomic_int ended;
static char rows[ROWS][96]; /* calls since ncclGetUniqueId */
static atomic_uint called;

void fake_nccl_end(void) { atomic_store(&ended, 1); }

unsigned fake_nccl_count(const char *call)
{
    unsigned found = 0;
    for (unsigned i = 0; i < ROWS; i++) {
        found += strcmp(rows[i], call) == 0;
    }
    return found;
}

static int note(const char *format, ...) __attribute__((format(printf, 1, 2)));

static int note(const char *format, ...)
{
    const unsigned row = atomic_fetch_add(&called, 1);
    va_list list;
    if (row >= ROWS) {
        return SYSTEM_ERROR;
    }
    va_start(list, format);
    (void)vsnprintf(rows[row], sizeof rows[row], format, list);
    va_end(list);
    return SUCCESS;
}

const char *ncclGetErrorString(int result) { return result == SUCCESS ? "no error" : "unhandled system error"; }

const char *ncclGetLastError(void *comm) { return comm == NULL ? "as it shall" : ""; }

int ncclGetVersion(int *version)
{
    *version = 22803;
    return SUCCESS;
}

int ncclGetUniqueId(nccl_id *id)
{
    const char *text = getenv("FAKE_NCCL");
    memset(id, 7, sizeof *id);
    atomic_store(&how, text != NULL ? text[0] : 'f');
    atomic_store(&ended, 0);
    memset(rows, 0, sizeof rows);
    atomic_store(&called, 0);
    return SUCCESS;
}

int ncclCommInitRank(void **comm, int ranks, nccl_id id, int rank)
{
    const struct timespec pause = { 0, 1000000 };
    if (ranks != 2 || id.bytes[127] != 7 || (atomic_load(&how) == 'f' && rank == 1)) {
        return SYSTEM_ERROR;
    }
    while (atomic_load(&how) != 'm' && atomic_load(&ended) == 0) {
        (void)nanosleep(&pause, NULL);
    }
    *comm = &ended;
    return SUCCESS;
}

/* Offsets of ncclConfig_t in 2.28: 0 size, 8 magic, 12 version, 24 minCTAs, 28 maxCTAs, 60 CTAPolicy. */
int ncclCommInitRankConfig(void **comm, int ranks, nccl_id id, int rank, const void *config)
{
    int words[20];
    memcpy(words, config, sizeof words);
    const int noted = note("config of %d bytes, %x, %d: min %d, max %d, policy %d", words[0], (unsigned)words[2],
                           words[3], words[6], words[7], words[15]);
    return noted != SUCCESS ? noted : ncclCommInitRank(comm, ranks, id, rank);
}

int ncclCommDestroy(void *comm) { return comm == &ended ? SUCCESS : SYSTEM_ERROR; }

int ncclRedOpCreatePreMulSum(int *op, const void *factor, int dtype, int residence, void *comm)
{
    uint16_t first = 0;
    memcpy(&first, factor, sizeof first);
    *op = SCALED_SUM;
    return comm == &ended ? note("PreMulSum %x, type %d, residence %d", first, dtype, residence) : SYSTEM_ERROR;
}

int ncclRedOpDestroy(int op, void *comm) { return comm == &ended ? note("RedOpDestroy %d", op) : SYSTEM_ERROR; }

int ncclAllReduce(const void *send, void *recv, size_t count, int dtype, int op, void *comm, void *stream)
{
    (void)send;
    (void)recv;
    (void)stream;
    return comm == &ended ? note("AllReduce %zu, type %d, op %d", count, dtype, op) : SYSTEM_ERROR;
}

int ncclBroadcast(const void *send, void *recv, size_t count, int dtype, int root, void *comm, void *stream)
{
    (void)stream;
    return comm == &ended ? note("Broadcast %zu, type %d, root %d: %s", count, dtype, root,
                                 send == NULL   ? "send is NULL"
                                 : send == recv ? "in place"
                                                : "out of place")
                          : SYSTEM_ERROR;
}

int ncclSend(const void *send, size_t count, int dtype, int peer, void *comm, void *stream)
{
    (void)send;
    (void)stream;
    return comm == &ended ? note("Send %zu, type %d, peer %d", count, dtype, peer) : SYSTEM_ERROR;
}

int ncclRecv(void *recv, size_t count, int dtype, int peer, void *comm, void *stream)
{
    (void)recv;
    (void)stream;
    return comm == &ended ? note("Recv %zu, type %d, peer %d", count, dtype, peer) : SYSTEM_ERROR;
}

#if !defined(FAKE_NCCL_OLD)
int ncclGather(const void *send, void *recv, size_t count, int dtype, int root, void *comm, void *stream)
{
    (void)send;
    (void)recv;
    (void)stream;
    return comm == &ended ? note("Gather %zu, type %d, root %d", count, dtype, root) : SYSTEM_ERROR;
}

int ncclScatter(const void *send, void *recv, size_t count, int dtype, int root, void *comm, void *stream)
{
    (void)send;
    (void)recv;
    (void)stream;
    return comm == &ended ? note("Scatter %zu, type %d, root %d", count, dtype, root) : SYSTEM_ERROR;
}
#endif

/* Functions that are only looked up, or do nothing. */
#define SUCCEEDS(name)     \
    EXPORT int name(void); \
    int name(void) { return SUCCESS; }

SUCCEEDS(ncclGroupStart)
SUCCEEDS(ncclGroupEnd)
SUCCEEDS(ncclReduce)
SUCCEEDS(ncclReduceScatter)
SUCCEEDS(ncclAllGather)
