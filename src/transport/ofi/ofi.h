/* ofi.h - what the files of the transport ofi share.
 *
 * libfabric is loaded at run time (ofi/library.c). Functions that its headers define inline go through the tables of
 * its objects, all others through weiri_ofi. A domain is a fabric and a domain of libfabric, with one registration for
 * each region (ofi.c). A queue is an endpoint with its completion queue (ofi/queue.h).
 *
 * Memory that the CPU cannot reach is *staged*: the device copies its bytes from and to pinned memory of the queues, on
 * two streams of the domain (ofi/stage.c). The copies do not wait for kernels. Only closing a region or a queue waits
 * for them. */
#ifndef WEIRI_OFI_OFI_H
#define WEIRI_OFI_OFI_H

#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "src/transport/transport.h"

#define WEIRI_OFI_REASON_BYTES 256
#define WEIRI_OFI_MESSAGE_BYTES 72u /* ofi/queue.h */

/* The functions that libfabric exports, without their prefix fi_. */
typedef struct weiri_ofi_table {
    int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
                   struct fi_info **info);
    void (*freeinfo)(struct fi_info *info);
    struct fi_info *(*dupinfo)(const struct fi_info *info);
    int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
    const char *(*strerror)(int error);
    uint32_t (*version)(void);
} weiri_ofi_table;

/* Filled by the first weiri_ofi_find that succeeds. */
extern weiri_ofi_table weiri_ofi;

/* Loads libfabric and finds the provider and the address that the environment names. The result is kept. False if there
 * is no such provider. `reason` (of 256 bytes) gets what is used, or what is missing. *out, unless `out` is NULL, gets
 * the provider's description, which the caller frees by weiri_ofi.freeinfo. */
bool weiri_ofi_find(char *reason, struct fi_info **out);

/* The status for `error`, an error code of libfabric of either sign; WEIR_ERR_SYSTEM for most. Appends libfabric's text
 * to the formatted text. */
weir_status weiri_ofi_fail(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A place in memory of this rank, as peers name it. */
typedef struct weiri_ofi_place {
    uint64_t id; /* random id of the region */
    uint64_t offset;
    uint32_t slot; /* the region's slot in the domain's table */
} weiri_ofi_place;

typedef struct weiri_ofi_region {
    weiri_region base;
    bool staged;
    struct fid_mr *mr; /* NULL if staged */
    uint64_t mr_key;
    uint64_t id;
    uint32_t slot;
} weiri_ofi_region;

typedef struct weiri_ofi_remote {
    weiri_remote base;
    uint64_t key;     /* of the registration */
    uint64_t address; /* of the first byte, as the provider counts */
    bool staged;
    bool odd; /* not aligned to 8 bytes */
    uint64_t id;
    uint32_t slot;
} weiri_ofi_remote;

/* Pinned memory, as the CPU and the device see it. */
typedef struct weiri_ofi_pinned {
    uint8_t *host;
    void *device;
} weiri_ofi_pinned;

/* A stream of copies. They are numbered from 1 and end in order. */
typedef struct weiri_ofi_stream {
    void *handle;
    uint64_t *mark;    /* pinned: number of the last copy that has ended */
    void *device_mark; /* the same, as the device sees it */
    uint64_t begun;    /* number of the last copy */
    bool unmarked;     /* the driver stores no marks: query the stream for the end of all copies */
    uint32_t checks;   /* checks without a new end */
} weiri_ofi_stream;

enum { WEIRI_OFI_OUT, WEIRI_OFI_IN, WEIRI_OFI_STREAMS }; /* directions: out of the device's memory, and into it */

typedef struct weiri_ofi_domain {
    weiri_domain base;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    pthread_mutex_t mutex; /* guards the table and the streams */
    weiri_ofi_region **regions;
    uint32_t slots;     /* slots of the table; a free slot is NULL */
    weiri_block *marks; /* NULL: the device has no stream copies, so no memory is staged */
    weiri_ofi_stream streams[WEIRI_OFI_STREAMS];
} weiri_ofi_domain;

/* Registers memory under a random key. *key gets the key that peers use. */
weir_status weiri_ofi_register(weiri_ofi_domain *domain, void *pointer, uint64_t bytes, uint64_t access,
                               struct fid_mr **mr, uint64_t *key);
/* The address that a peer adds to offsets in memory that begins at `pointer`. */
uint64_t weiri_ofi_base(const weiri_ofi_domain *domain, const void *pointer);
/* Accesses to memory that a peer or a post names. Each locks the domain's mutex. WEIR_ERR_RANGE: there is no such
 * memory. */

/* Finds the address of `bytes` at `place`, and the descriptor of their registration. *at is NULL for staged memory. */
weir_status weiri_ofi_find_place(weiri_ofi_domain *domain, const weiri_ofi_place *place, uint64_t bytes, uint8_t **at,
                                 void **desc);
/* Stores a value of 1 to 8 bytes, in one piece if they lie in one aligned word. *number is 0 if the value is stored,
 * otherwise the number of the copy that stores it; `word` stays in use until the copy has ended. */
weir_status weiri_ofi_store(weiri_ofi_domain *domain, const weiri_ofi_place *place, uint64_t value, uint32_t bytes,
                            const weiri_ofi_pinned *word, uint64_t *number);
/* Adds to an aligned word; staged memory is refused. */
weir_status weiri_ofi_add_here(weiri_ofi_domain *domain, const weiri_ofi_place *place, uint64_t value);
/* Begins a copy between staged memory and `pinned`. */
weir_status weiri_ofi_copy(weiri_ofi_domain *domain, uint32_t stream, const weiri_ofi_place *place,
                           const weiri_ofi_pinned *pinned, uint64_t bytes, uint64_t *number);

/* ---- ofi/stage.c ----------------------------------------------------------------------------------------- */

/* Opens the streams if the device has stream copies. */
weir_status weiri_ofi_stage_open(weiri_ofi_domain *domain);
void weiri_ofi_stage_close(weiri_ofi_domain *domain);
/* Puts a copy on a stream; *number gets its number. The caller holds the mutex. */
weir_status weiri_ofi_stream_copy(weiri_ofi_domain *domain, uint32_t stream, void *dst, const void *src, uint64_t bytes,
                                  uint64_t *number);
/* Puts a store of `bytes` of a value on the stream into the device. The caller holds the mutex. */
weir_status weiri_ofi_stream_store(weiri_ofi_domain *domain, void *dst, uint64_t value, uint32_t bytes,
                                   const weiri_ofi_pinned *word, uint64_t *number);
/* *ended gets the number of the stream's last copy that has ended. */
weir_status weiri_ofi_stream_ended(weiri_ofi_domain *domain, uint32_t stream, uint64_t *ended);
/* Waits for all copies that have begun. */
void weiri_ofi_streams_settle(weiri_ofi_domain *domain);

/* Operations of queues; ofi/queue.h. */
weir_status weiri_ofi_queue_open(weiri_domain *base, weiri_queue **out);
weir_status weiri_ofi_queue_connect(weiri_queue *base, const uint8_t *address, size_t bytes);
void weiri_ofi_queue_close(weiri_queue *base);
weir_status weiri_ofi_put(weiri_queue *base, weiri_remote *dst, uint64_t dst_offset, const weiri_region *src,
                          uint64_t src_offset, uint64_t bytes);
weir_status weiri_ofi_get(weiri_queue *base, const weiri_region *dst, uint64_t dst_offset, weiri_remote *src,
                          uint64_t src_offset, uint64_t bytes);
weir_status weiri_ofi_value(weiri_queue *base, weiri_remote *dst, uint64_t dst_offset, uint64_t value, uint32_t bytes);
weir_status weiri_ofi_add(weiri_queue *base, weiri_remote *dst, uint64_t dst_offset, uint64_t value);
weir_status weiri_ofi_poll(weiri_queue *base);

#endif
