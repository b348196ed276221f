/* comm.h - the start of most test bodies: a communicator, or two ranks with all objects that kernels need. */
#ifndef WEIRT_COMM_H
#define WEIRT_COMM_H

#include "test/harness/rank_kernels.h"
#include "test/harness/ranks.h"

WEIR_BEGIN_DECLS

typedef struct weirt_comm {
    weir_device *device;
    weir_bootstrap *boot;
    weir_comm *comm;
} weirt_comm;

/* Every rank opens its device, joins a new job and creates a communicator. timeout_ms 0: weirt_timeout_ms. A failure
 * is reported and leaves NULL members; close accepts them. */
bool weirt_comm_open(weirt_rank *rank, uint32_t timeout_ms, weirt_comm *out);
/* The same with a deadline of kernels' waits alone. */
bool weirt_comm_open_kernels(weirt_rank *rank, uint32_t kernel_timeout_ms, weirt_comm *out);
void weirt_comm_close(weirt_comm *comm);

/* From now on the device says that it has so much memory; 0: it does not know. What it allocates stays possible, except
 * on the CPU. */
void weirt_device_memory(weir_device *device, uint64_t bytes);

/* A job of this rank alone, as a survivor creates it. */
bool weirt_comm_open_alone(weirt_rank *rank, weirt_comm *out);

/* Runs weir's exit handler: ends the waits of this process's communicators. */
void weirt_exit_run(void);

/* Sends a test's bytes as a message of the communicator. */
bool weirt_post(weirt_rank *rank, weir_comm *comm, uint32_t peer, const void *data, size_t bytes);

/* The blocking calls with the harness's timeout: a communicator with a short timeout can still be set up on a busy
 * machine. */
bool weirt_complete(weirt_rank *rank, weir_future *future); /* and destroys it */
bool weirt_receive(weirt_rank *rank, weir_comm *comm, uint32_t peer, uint64_t tag, weir_memory **out);
bool weirt_connect(weirt_rank *rank, weir_comm *comm, uint32_t peer, uint64_t tag, weir_connection **out);
bool weirt_semaphore(weirt_rank *rank, weir_connection *connection, uint64_t tag, weir_semaphore_end end,
                     weir_semaphore **out);
/* A set of `count` semaphores. */
bool weirt_semaphore_set(weirt_rank *rank, weir_connection *connection, uint64_t tag, weir_semaphore_end end,
                         uint32_t count, weir_semaphore **out);
/* The number of queues that this end of the connection has open. */
uint32_t weirt_connection_queues(const weir_connection *connection);
/* From now on a thread that opens a queue of this connection sleeps first, for the harness's timeout, as in a driver
 * that does not return. For one connection of a process. */
void weirt_connection_stall(weir_connection *connection);
/* Whether a thread sleeps so. */
bool weirt_connection_stalled(void);

typedef struct weirt_pair {
    weir_comm *comm;
    uint32_t peer;
    weir_connection *connection;
    weir_semaphore *semaphore;
    weir_memory *local; /* 2 * half bytes */
    weir_memory *remote;
    weir_memory *packets; /* 4 * half bytes */
    weir_memory *remote_packets;
    weir_memory *shared; /* a weirt_report that host and device share */
    weirt_report *report;
    weirt_report *device_report;
    weir_memory_channel *data;
    weir_memory_channel *packet;
    weir_grid_barrier *barrier;
    void *stream;
    uint64_t half;
    uint64_t tag;
} weirt_pair;

/* Connects ranks 0 and 1 of `comm`. Each pair of a communicator has its own tag. */
bool weirt_pair_open(weirt_rank *rank, weir_comm *comm, uint64_t half, uint64_t tag, weirt_pair *out);
/* Connects this rank to `peer`, which may be this rank. */
bool weirt_pair_open_to(weirt_rank *rank, weir_comm *comm, uint32_t peer, uint64_t half, uint64_t tag, weirt_pair *out);
/* `together`: the peer closes too; imports then end before the memory that they map. */
void weirt_pair_close(weirt_rank *rank, weirt_pair *pair, bool together);

/* A communicator and a pair. */
typedef struct weirt_channel {
    weirt_comm comm;
    weirt_pair pair;
} weirt_channel;
bool weirt_channel_open(weirt_rank *rank, uint32_t timeout_ms, uint64_t half, weirt_channel *out);
void weirt_channel_close(weirt_rank *rank, weirt_channel *channel);

/* Blocks and threads that suit the stage and the sanitizer. */
weir_shape weirt_shape(const weir_comm *comm);

/* Arguments with the handles of the pair; all other members are zero. */
weirt_transfer_args weirt_transfer_of(weirt_rank *rank, const weirt_pair *pair);
weirt_wait_args weirt_wait_of(weirt_rank *rank, const weirt_pair *pair);

/* Launches on the pair's stream, and waits for it. */
bool weirt_launch(weirt_rank *rank, const weirt_pair *pair, const weir_kernel *kernel, const void *args);
bool weirt_finish(weirt_rank *rank, const weirt_pair *pair);
/* Makes one call on a single thread and returns its status. */
weir_status weirt_access_run(weirt_rank *rank, const weirt_pair *pair, const weirt_access_args *args);

WEIR_END_DECLS

#endif
