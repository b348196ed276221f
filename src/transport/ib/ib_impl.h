/* ib_impl.h - what the files of the transport ib share.
 *
 *   ib.c         ops table, domains, regions, remotes
 *   ib_queue.c   queues: posting, completion, failure
 *   ib_wire.c    keys and addresses
 *   ib_device.c  choice of NIC, port and GID
 *   ib_verbs.c   the library */
#ifndef WEIRI_IB_IMPL_H
#define WEIRI_IB_IMPL_H

#include <pthread.h>

#include "src/transport/ib/ib_device.h"
#include "src/transport/ib/ib_verbs.h"
#include "src/transport/ib/ib_wire.h"
#include "src/transport/transport.h"

typedef struct ib_domain {
    weiri_domain base;
    weiri_ib_port port;
    weiri_ib_gid gid;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_device_attr limits;
    struct ibv_port_attr link;
    uint8_t timeout; /* as of WEIR_IB_TIMEOUT */
    uint64_t *scratch; /* where reads that only flush put what they get */
    struct ibv_mr *scratch_mr;
    pthread_mutex_t events; /* one thread reads the device's events */
    uint64_t looked_ns;     /* when it last did */
    bool broken;            /* the device is gone; atomic */
} ib_domain;

typedef struct ib_region {
    weiri_region base;
    struct ibv_mr *mr;
    uint64_t address; /* of the block, as `mr` counts */
} ib_region;

typedef struct ib_remote {
    weiri_remote base;
    weiri_ib_key key;
} ib_remote;

weir_status weiri_ib_queue_open(weiri_domain *domain, weiri_queue **out);
weir_status weiri_ib_queue_connect(weiri_queue *queue, const uint8_t *address, size_t bytes);
void weiri_ib_queue_close(weiri_queue *queue);
weir_status weiri_ib_put(weiri_queue *queue, weiri_remote *dst, uint64_t dst_offset, const weiri_region *src,
                         uint64_t src_offset, uint64_t bytes);
weir_status weiri_ib_get(weiri_queue *queue, const weiri_region *dst, uint64_t dst_offset, weiri_remote *src,
                         uint64_t src_offset, uint64_t bytes);
weir_status weiri_ib_value(weiri_queue *queue, weiri_remote *dst, uint64_t dst_offset, uint64_t value, uint32_t bytes);
weir_status weiri_ib_poll(weiri_queue *queue);

/* The error of a verb, with the remedy when it may come from the limit of locked memory. */
weir_status weiri_ib_fail(const ib_domain *domain, int error, const char *what);

/* Reads what the device has reported, without blocking; at most every few milliseconds, however often it is called.
 * Faults of queue pairs go to weiri_ib_queue_event. */
void weiri_ib_look(ib_domain *domain);
/* Any thread. `what`, a static text, has made the queue unusable. */
void weiri_ib_queue_event(void *queue, const char *what);

#endif
