/* notice_kernels.h - kernels that post and take notices; for notice_test.cc. */
#ifndef WEIRT_NOTICE_KERNELS_H
#define WEIRT_NOTICE_KERNELS_H

#include "weir/device/kernel.h"
#include "weir/device/rdma.h"
#include "weir/device/rdma_notice.h"

#if defined(__cplusplus)
extern "C" {
#endif

#define NOTICE_THREADS 8
#define NOTICE_WORDS 3u /* of each notice's data */

typedef struct notice_report {
    int32_t status[NOTICE_THREADS]; /* the first status other than WEIR_OK; the thread ends with it */
    uint64_t done[NOTICE_THREADS];  /* rounds before that; for the taker: notices of this thread */
    uint64_t wrong;                 /* notices with unexpected data, size or place */
    weir_dev_rdma_notice last;
} notice_report;

/* For the poster: thread t posts its notices on queue t % queues. For the taker, which is one thread: notices of thread
 * t arrive at the receives t % queues. */
typedef struct notice_args {
    weir_dev_rdma queue[2];
    weir_dev_rdma_receives receives[2];
    weir_dev_rdma_inbox inbox;
    uint64_t *memory; /* the local memory */
    weir_dev_rdma_memory local;
    weir_dev_rdma_memory remote;
    notice_report *report;
    uint64_t rounds; /* of each thread */
    uint64_t posted; /* receives of each ring at the beginning */
    uint64_t batch;  /* receives posted at a time after that */
    uint32_t queues;
    uint32_t threads; /* of the poster */
    uint32_t flags;
    uint32_t together; /* the threads post as a group */
} notice_args;

const weir_kernel *notice_poster(void);
const weir_kernel *notice_taker(void);

#if defined(__cplusplus)
}
#endif

#endif
