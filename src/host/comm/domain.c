/* domain.c - domains, regions and passive queues of a communicator.
 *
 * The domains have a separate mutex, since registering memory may take long. The service thread needs the
 * communicator's mutex and must not wait for that. */
#include "src/host/comm/domain.h"

#include <stdio.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/boot/boot.h"
#include "src/host/comm/comm.h"
#include "src/host/comm/memory.h"

#define PASSIVE_MS 1        /* between two runs of the watch */
#define PASSIVE_POLLS 256u  /* of a queue in one run, while something happens */
#define PASSIVE_REST_MAX 8u /* runs that are left out when nothing happens */

/* ---- domains -------------------------------------------------------------------------------------------- */

static weir_status open_domain(weir_comm *comm, const weiri_transport_ops *transport, weiri_domain **out)
{
    if (comm->domains.count == WEIRI_DOMAINS_MAX) {
        return weiri_fail(WEIR_ERR_LIMIT, "transport %s: a communicator uses at most %d transports", transport->name,
                          WEIRI_DOMAINS_MAX);
    }
    weir_status status = weiri_transport_fault(transport, "open");
    if (status == WEIR_OK) {
        status = transport->queue->domain_open(comm->device, out);
    }
    if (status == WEIR_OK) {
        comm->domains.at[comm->domains.count++] = *out;
    }
    return status;
}

weir_status weiri_domain_get(weir_comm *comm, const weiri_transport_ops *transport, weiri_domain **out)
{
    weir_status status = WEIR_OK;
    weiri_domain *found = NULL;
    pthread_mutex_lock(&comm->domains.mutex);
    for (uint32_t i = 0; i < comm->domains.count && found == NULL; i++) {
        found = comm->domains.at[i]->transport == transport ? comm->domains.at[i] : NULL;
    }
    if (found == NULL) {
        status = open_domain(comm, transport, &found);
    }
    pthread_mutex_unlock(&comm->domains.mutex);
    if (status == WEIR_OK) {
        *out = found;
    }
    return status;
}

void weiri_domains_open(weir_comm *comm)
{
    pthread_mutex_init(&comm->domains.mutex, NULL);
    pthread_mutex_init(&comm->domains.passive.mutex, NULL);
}

void weiri_domains_close(weir_comm *comm)
{
    while (comm->domains.count != 0) {
        weiri_domain *domain = comm->domains.at[--comm->domains.count];
        domain->transport->queue->domain_close(domain);
    }
    pthread_mutex_destroy(&comm->domains.passive.mutex);
    pthread_mutex_destroy(&comm->domains.mutex);
}

/* ---- regions and remotes -------------------------------------------------------------------------------- */

static weir_status open_region(weir_memory *memory, weiri_domain *domain, weiri_region **out)
{
    weir_status status = weiri_transport_fault(domain->transport, "register memory");
    return status != WEIR_OK ? status : domain->transport->queue->region_open(domain, memory->block, out);
}

weir_status weiri_memory_region(weir_memory *memory, const weiri_domain *domain, const weiri_region **out)
{
    weir_comm *comm = memory->comm;
    weir_status status = WEIR_OK;
    pthread_mutex_lock(&comm->domains.mutex);
    for (uint32_t i = 0; i < comm->domains.count && status == WEIR_OK; i++) {
        if (comm->domains.at[i] != domain) {
            continue;
        }
        if (memory->regions[i] == NULL) {
            status = open_region(memory, comm->domains.at[i], &memory->regions[i]);
        }
        if (status == WEIR_OK) {
            *out = memory->regions[i];
        }
    }
    pthread_mutex_unlock(&comm->domains.mutex);
    return status;
}

void weiri_memory_close_regions(weir_memory *memory)
{
    for (uint32_t i = 0; i < WEIRI_DOMAINS_MAX; i++) {
        weiri_region *region = memory->regions[i];
        if (region != NULL) {
            region->domain->transport->queue->region_close(region);
        }
    }
}

static void add_key(weir_memory *memory, const weiri_region *region)
{
    weiri_keys *keys = &memory->keys;
    const char *name = region->domain->transport->name;
    for (uint32_t i = 0; i < keys->count; i++) {
        if (strcmp(keys->at[i].transport, name) == 0) {
            return;
        }
    }
    if (keys->count < WEIRI_KEYS_MAX && region->key.length != 0) {
        weiri_named_key *key = &keys->at[keys->count++];
        snprintf(key->transport, sizeof key->transport, "%s", name);
        key->key = region->key;
    }
}

void weiri_memory_make_keys(weir_memory *memory)
{
    weir_comm *comm = memory->comm;
    if (memory->block == NULL || memory->imported) {
        return;
    }
    pthread_mutex_lock(&comm->domains.mutex);
    for (uint32_t i = 0; i < comm->domains.count; i++) {
        if (comm->domains.at[i]->transport->queue->alone) {
            continue;
        }
        if (memory->regions[i] == NULL && open_region(memory, comm->domains.at[i], &memory->regions[i]) != WEIR_OK) {
            if (memory->reason[0] == '\0') {
                snprintf(memory->reason, sizeof memory->reason, "%s", weir_last_error());
            }
            continue;
        }
        add_key(memory, memory->regions[i]);
    }
    pthread_mutex_unlock(&comm->domains.mutex);
}

weir_status weiri_memory_remote(const weir_memory *memory, weiri_domain *domain, weiri_remote **out)
{
    const weiri_transport_ops *transport = domain->transport;
    static const weiri_key none;
    const weiri_key *key = NULL;
    weir_status status = weiri_transport_fault(transport, "open remote memory");
    for (uint32_t i = 0; i < memory->keys.count; i++) {
        if (strcmp(memory->keys.at[i].transport, transport->name) == 0) {
            key = &memory->keys.at[i].key;
        }
    }
    if (status == WEIR_OK && key == NULL && transport->queue->alone && memory->block != NULL) {
        key = &none;
    }
    if (status == WEIR_OK && key == NULL) {
        status = weiri_fail(
            WEIR_ERR_UNSUPPORTED, "memory of rank %u has no key of transport %s: %s", memory->rank, transport->name,
            memory->reason[0] != '\0' ? memory->reason
                                      : "it was exported before there was a connection; create connections first");
    }
    return status != WEIR_OK ? status : transport->queue->remote_open(domain, key, memory->block, out);
}

/* ---- passive queues ------------------------------------------------------------------------------------- */

struct weiri_passive_queue {
    weiri_passive_queue *next;
    weiri_queue *queue;
};

/* Polls a queue while something happens; the threads that post to it find its errors. */
static bool poll_queue(weiri_queue *queue)
{
    bool worked = false;
    for (uint32_t i = 0; i < PASSIVE_POLLS; i++) {
        if (queue->domain->transport->queue->poll(queue) != WEIR_OK) {
            break;
        }
        worked = true;
    }
    return worked;
}

static void poll_all(void *context)
{
    weir_comm *comm = (weir_comm *)context;
    if (comm->domains.passive.rest > 0) {
        comm->domains.passive.rest--;
        return;
    }
    bool worked = false;
    pthread_mutex_lock(&comm->domains.passive.mutex);
    for (weiri_passive_queue *passive = comm->domains.passive.first; passive != NULL; passive = passive->next) {
        worked = poll_queue(passive->queue) || worked;
    }
    pthread_mutex_unlock(&comm->domains.passive.mutex);
    if (worked) {
        comm->domains.passive.idle = 0;
    } else if (comm->domains.passive.idle < PASSIVE_REST_MAX) {
        comm->domains.passive.idle++;
    }
    comm->domains.passive.rest = comm->domains.passive.idle;
}

weir_status weiri_passive_add(weir_comm *comm, weiri_queue *queue)
{
    if (!queue->domain->transport->queue->passive_poll) {
        return WEIR_OK;
    }
    weiri_passive_queue *passive = (weiri_passive_queue *)weiri_alloc(1, sizeof *passive);
    if (passive == NULL) {
        return weiri_fail_nomem("communicator: queue");
    }
    weir_status status = WEIR_OK;
    passive->queue = queue;
    pthread_mutex_lock(&comm->domains.passive.mutex);
    if (comm->domains.passive.watch == NULL) {
        status = weiri_service_watch_time(weiri_bootstrap_service(comm->bootstrap), PASSIVE_MS, poll_all, comm,
                                          &comm->domains.passive.watch);
    }
    if (status == WEIR_OK) {
        passive->next = comm->domains.passive.first;
        comm->domains.passive.first = passive;
        passive = NULL;
    }
    pthread_mutex_unlock(&comm->domains.passive.mutex);
    weiri_free(passive);
    return status;
}

void weiri_passive_remove(weir_comm *comm, const weiri_queue *queue)
{
    weiri_passive_queue *gone = NULL;
    pthread_mutex_lock(&comm->domains.passive.mutex);
    for (weiri_passive_queue **at = &comm->domains.passive.first; *at != NULL && gone == NULL; at = &(*at)->next) {
        if ((*at)->queue == queue) {
            gone = *at;
            *at = gone->next;
            break;
        }
    }
    pthread_mutex_unlock(&comm->domains.passive.mutex);
    weiri_free(gone);
}

void weiri_passive_stop(weir_comm *comm)
{
    weiri_service_unwatch(weiri_bootstrap_service(comm->bootstrap), comm->domains.passive.watch);
}
