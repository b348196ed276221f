/* domain.h - what a communicator has opened of the transports that carry out transfers: a domain of each, the regions
 * of memories in them, and the queues that must be polled even when no thread posts to them.
 *
 * Offers the region of a memory of this rank and the remote of a peer's, which the calls of a queue take as source and
 * target. Connections, endpoints and memories of this folder use it, and of those above the port channel. */
#ifndef WEIRI_COMM_DOMAIN_H
#define WEIRI_COMM_DOMAIN_H

#include <pthread.h>

#include "src/host/base/service.h"
#include "src/transport/transport.h"
#include "weir/comm.h"
#include "weir/memory.h"

#define WEIRI_DOMAINS_MAX 4 /* transports with queues that a communicator uses */

typedef struct weiri_passive_queue weiri_passive_queue;

/* The queues that the service thread polls. */
typedef struct weiri_passive_queues {
    pthread_mutex_t mutex; /* guards the list; held while its queues are polled */
    weiri_passive_queue *first;
    weiri_watch *watch; /* NULL before the first queue */
    uint32_t rest;      /* runs of the watch to be left out; service thread */
    uint32_t idle;      /* how many are left out after the next run in which nothing happens; service thread */
} weiri_passive_queues;

typedef struct weiri_domains {
    pthread_mutex_t mutex; /* guards `at`, `count` and the regions of memories */
    weiri_domain *at[WEIRI_DOMAINS_MAX];
    uint32_t count;
    weiri_passive_queues passive;
} weiri_domains;

/* The communicator's domain of a transport with queues; opens it at the first call. */
weir_status weiri_domain_get(weir_comm *comm, const weiri_transport_ops *transport, weiri_domain **out);
void weiri_domains_open(weir_comm *comm);
/* Closes all domains; nothing is open in them any more. */
void weiri_domains_close(weir_comm *comm);

/* The region of a memory of this rank in a domain; made at the first call, and closed with the memory. */
weir_status weiri_memory_region(weir_memory *memory, const weiri_domain *domain, const weiri_region **out);
void weiri_memory_close_regions(weir_memory *memory);
/* Registers the memory with the open domains whose keys peers need, before its handle is written. Memory that a
 * transport cannot reach gets no key, and memory->reason says why. */
void weiri_memory_make_keys(weir_memory *memory);
/* A peer's memory, or one of this rank as the peer sees it, as the target of posts. */
weir_status weiri_memory_remote(const weir_memory *memory, weiri_domain *domain, weiri_remote **out);

/* Has the service thread poll a queue until it is removed, if its transport asks for that. */
weir_status weiri_passive_add(weir_comm *comm, weiri_queue *queue);
void weiri_passive_remove(weir_comm *comm, const weiri_queue *queue);
/* No queue is left. */
void weiri_passive_stop(weir_comm *comm);

#endif
