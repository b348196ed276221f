/* ofi_impl.h - what the files of the transport ofi share.
 *
 * libfabric is loaded at run time (ofi_library.c); what its headers define inline goes through the tables of its
 * objects, and everything else through weiri_ofi. A domain is a fabric and a domain of libfabric with one registration
 * for each region (ofi.c); a queue is an endpoint with a completion queue of its own (ofi_queue.h). */
#ifndef WEIRI_OFI_IMPL_H
#define WEIRI_OFI_IMPL_H

#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "src/transport/transport.h"

#define WEIRI_OFI_REASON_BYTES 256

/* The functions that libfabric exports, less their prefix fi_. */
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

/* Loads libfabric and asks it for the provider and the address that the environment names; what it found is kept.
 * False when there is none. `reason` (of 256 bytes) gets what is used, or what is missing; *out, unless NULL, the
 * provider's description, which weiri_ofi.freeinfo ends. */
bool weiri_ofi_find(char *reason, struct fi_info **out);

/* WEIR_ERR_SYSTEM or what fits `error`, an error code of libfabric of either sign, better; the text is followed by
 * libfabric's own. */
weir_status weiri_ofi_fail(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

typedef struct weiri_ofi_region {
    weiri_region base;
    struct fid_mr *mr;
    uint64_t mr_key;
    uint64_t id;   /* random; values and gets that peers post name it */
    uint32_t slot; /* in the domain's table */
} weiri_ofi_region;

typedef struct weiri_ofi_remote {
    weiri_remote base;
    uint64_t key;     /* of the registration */
    uint64_t address; /* of its first byte, as the provider counts */
    uint64_t id;
    uint32_t slot;
} weiri_ofi_remote;

typedef struct weiri_ofi_domain {
    weiri_domain base;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    pthread_mutex_t mutex; /* of the table */
    weiri_ofi_region **regions;
    uint32_t slots; /* of the table; a free one is NULL */
} weiri_ofi_domain;

/* Registers memory under a random key; *key is the one that peers use. */
weir_status weiri_ofi_register(weiri_ofi_domain *domain, void *pointer, uint64_t bytes, uint64_t access,
                               struct fid_mr **mr, uint64_t *key);
/* What a peer adds to an offset in memory that begins at `pointer`. */
uint64_t weiri_ofi_base(const weiri_ofi_domain *domain, const void *pointer);
/* Where `bytes` of a region are that a peer has named, and the descriptor of its registration; NULL when there is no
 * such memory. */
uint8_t *weiri_ofi_place(weiri_ofi_domain *domain, uint32_t slot, uint64_t id, uint64_t offset, uint64_t bytes,
                         void **desc);
/* Stores a value that a peer has posted, in one piece. False when there is no such memory. */
bool weiri_ofi_store(weiri_ofi_domain *domain, uint32_t slot, uint64_t id, uint64_t offset, uint64_t value,
                     uint32_t bytes);

/* The ops of queues; ofi_queue.h. */
weir_status weiri_ofi_queue_open(weiri_domain *base, weiri_queue **out);
weir_status weiri_ofi_queue_connect(weiri_queue *base, const uint8_t *address, size_t bytes);
void weiri_ofi_queue_close(weiri_queue *base);
weir_status weiri_ofi_put(weiri_queue *base, weiri_remote *dst, uint64_t dst_offset, const weiri_region *src,
                          uint64_t src_offset, uint64_t bytes);
weir_status weiri_ofi_get(weiri_queue *base, const weiri_region *dst, uint64_t dst_offset, weiri_remote *src,
                          uint64_t src_offset, uint64_t bytes);
weir_status weiri_ofi_value(weiri_queue *base, weiri_remote *dst, uint64_t dst_offset, uint64_t value, uint32_t bytes);
weir_status weiri_ofi_poll(weiri_queue *base);

#endif
