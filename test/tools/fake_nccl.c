/* fake_nccl.c - the functions of NCCL by which weir-perf's ranks meet. FAKE_NCCL=meet: they meet; =fail: rank 1 fails
 * while rank 0 waits for it; =wait: both wait. A waiting rank waits until fake_nccl_end. */
#define _POSIX_C_SOURCE 200809L

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

enum { SUCCESS = 0, SYSTEM_ERROR = 2 };

typedef struct nccl_id {
    char bytes[128];
} nccl_id;

EXPORT void fake_nccl_end(void);
EXPORT const char *ncclGetErrorString(int result);
EXPORT const char *ncclGetLastError(void *comm);
EXPORT int ncclGetVersion(int *version);
EXPORT int ncclGetUniqueId(nccl_id *id);
EXPORT int ncclCommInitRank(void **comm, int ranks, nccl_id id, int rank);
EXPORT int ncclCommDestroy(void *comm);

static atomic_int how; /* the first letter of FAKE_NCCL */
static atomic_int ended;

void fake_nccl_end(void) { atomic_store(&ended, 1); }

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

int ncclCommDestroy(void *comm) { return comm == &ended ? SUCCESS : SYSTEM_ERROR; }

/* Functions that are only looked up, or do nothing. */
#define SUCCEEDS(name)     \
    EXPORT int name(void); \
    int name(void) { return SUCCESS; }

SUCCEEDS(ncclGroupStart)
SUCCEEDS(ncclGroupEnd)
SUCCEEDS(ncclAllReduce)
SUCCEEDS(ncclReduce)
SUCCEEDS(ncclReduceScatter)
SUCCEEDS(ncclAllGather)
SUCCEEDS(ncclBroadcast)
SUCCEEDS(ncclSend)
SUCCEEDS(ncclRecv)
