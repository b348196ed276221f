/* slots.c - the long message slots of exchanges, with the default staging.
 *
 * Only the two ends of a transfer know of it, so exchanges cannot let the staging of all ranks grow. Instead each rank
 * allocates slots of its own at its first receive that needs them, and sends the handle to the ranks that send to it.
 * Neither end waits on the host. A sender launches its kernel at once, and the kernel waits for the word that says
 * where the slots are mapped (weir_message_mapped). If the handle is not there yet, a thread of the collective maps the
 * slots when it comes, and writes that word. Later launches have the address among their arguments.
 *
 * Whether a transfer takes long slots follows from its bytes alone. So it does not matter which end was launched, or
 * recorded, first. A GPU maps memory while its kernels run: one H200 took 1 to 3 ms for 64 MiB. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/clock.h"
#include "src/host/base/error.h"
#include "src/host/base/log.h"
#include "src/host/collective/collective.h"
#include "src/host/comm/exchange.h"

#define SLICE_MS 100u /* the thread looks so often for an end that nobody reports */

/* A rank whose slots are expected. */
typedef struct owner {
    weir_collective *collective;
    uint32_t place; /* on the host */
} owner;

struct weiri_slots {
    weir_memory *local; /* NULL before the first long receive */
    uint32_t told;      /* one bit for each rank of the host that has its handle, */
    uint32_t asked;     /* and for each whose handle this rank expects, or has */
    pthread_t thread;
    bool joinable;
    bool stops; /* the communicator's mutex guards it */
    owner owners[WEIR_COLLECTIVE_RANKS];

    pthread_mutex_t mutex; /* guards the rest */
    bool runs;             /* the thread looks at `futures` again before it ends */
    weir_future *futures[WEIR_COLLECTIVE_RANKS];
    weir_memory *remote[WEIR_COLLECTIVE_RANKS];
};

weir_status weiri_slots_open(weir_collective *collective)
{
    weiri_slots *slots = (weiri_slots *)weiri_alloc(1, sizeof *slots);
    if (slots == NULL) {
        return weiri_fail_nomem("weir_collective_create");
    }
    (void)pthread_mutex_init(&slots->mutex, NULL);
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS; k++) {
        slots->owners[k].collective = collective;
        slots->owners[k].place = k;
    }
    collective->slots = slots;
    return WEIR_OK;
}

/* ---- a rank that receives ---------------------------------------------------------------------------------------- */

static weir_status allocate(weir_collective *collective, const char *name)
{
    weiri_slots *slots = collective->slots;
    const weir_dev_collective *c = &collective->device;
    const uint64_t bytes = weiri_slots_number(c) * collective->long_bytes;
    weir_memory *memory = NULL;
    weir_status status = weir_memory_allocate(collective->comm, bytes, NULL, &memory);
    if (status == WEIR_OK) { /* for kernels of calls that were recorded before */
        const uint64_t address = (uintptr_t)weir_memory_pointer(memory);
        status = weir_device_copy(collective->comm->device, weir_message_long(c, c->rank), &address, sizeof address);
    }
    if (status != WEIR_OK) {
        const weir_status failed = weiri_fail(status, "%s: no long slots: %s", name, weir_last_error());
        weir_memory_destroy(memory);
        return failed;
    }
    slots->local = memory;
    weiri_log(WEIR_LOG_INFO, "%s of rank %u: long slots for what it receives: %llu bytes of memory", name,
              collective->comm->rank, (unsigned long long)bytes);
    return WEIR_OK;
}

/* The sender may wait for the handle, or ask for it later. */
static weir_status tell(weir_collective *collective, uint32_t place)
{
    weiri_slots *slots = collective->slots;
    const weiri_op_message message = { WEIRI_OP_SLOTS, NULL, 0, { slots->local, NULL }, 1 };
    const weir_status status = weiri_exchange_send(collective->comm, collective->host.ranks[place],
                                                   weiri_collective_tag(collective, WEIRI_TAG_SLOTS), &message);
    slots->told |= status == WEIR_OK ? (uint32_t)1 << place : 0;
    return status;
}

/* ---- a rank that sends ------------------------------------------------------------------------------------------- */

static weir_status map(weir_future *future)
{
    const owner *from = (const owner *)future->out;
    weir_collective *collective = from->collective;
    weiri_slots *slots = collective->slots;
    const weir_dev_collective *c = &collective->device;
    const uint64_t bytes = weiri_slots_number(c) * collective->long_bytes;
    weir_memory *memory = NULL;
    weir_status status = WEIR_OK;
    if (future->handle_count != 1 || future->payload_bytes != 0 || future->handles[0].rank != future->peer ||
        future->handles[0].block.size != bytes) {
        status = weiri_fail(WEIR_ERR_CORRUPT, "malformed long slots of rank %u", future->peer);
    }
    status = status == WEIR_OK ? weiri_memory_map(collective->comm, &future->handles[0], future->fds[0], true, &memory)
                               : status;
    if (status != WEIR_OK) {
        return status;
    }
    weir_dev_difference *records = (weir_dev_difference *)weir_memory_host_pointer(collective->differences);
    weir_arch_store_release_sys_u64(&records[from->place].first, (uintptr_t)weir_memory_pointer(memory));
    (void)pthread_mutex_lock(&slots->mutex);
    slots->remote[from->place] = memory;
    (void)pthread_mutex_unlock(&slots->mutex);
    return WEIR_OK;
}

/* Takes the result of a future that has ended. A kernel of this rank waits for the slots, or will. If the peer has
 * gone, or has destroyed its collective before a recorded call was launched, such a wait ends like any wait for the
 * peer. After another error the communicator ends. */
static weir_status finish(weir_collective *collective, weir_future *future, weir_status status)
{
    char text[256];
    snprintf(text, sizeof text, "the long slots of rank %u: %s", future->peer, weir_last_error());
    if (status == WEIR_ERR_INVALID || status == WEIR_ERR_UNSUPPORTED) {
        weiri_log(WEIR_LOG_WARN, "weir_exchange of rank %u: %s", collective->comm->rank, text);
    } else if (status != WEIR_OK && status != WEIR_ERR_REMOTE) {
        status = weiri_comm_break(collective->comm, status, text);
    }
    weir_future_destroy(future);
    return status;
}

/* Maps those slots whose handles have come. False: no handle is expected any more, and the thread ends. */
static bool map_what_came(weir_collective *collective)
{
    weiri_slots *slots = collective->slots;
    bool more = false;
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS; k++) {
        (void)pthread_mutex_lock(&slots->mutex);
        weir_future *future = slots->futures[k];
        (void)pthread_mutex_unlock(&slots->mutex);
        const weir_status status = future != NULL ? weir_future_test(future) : WEIR_PENDING;
        if (status != WEIR_PENDING) {
            (void)pthread_mutex_lock(&slots->mutex);
            slots->futures[k] = NULL;
            (void)pthread_mutex_unlock(&slots->mutex);
            (void)finish(collective, future, status);
        }
    }
    (void)pthread_mutex_lock(&slots->mutex);
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS; k++) {
        more = more || slots->futures[k] != NULL;
    }
    slots->runs = more;
    (void)pthread_mutex_unlock(&slots->mutex);
    return more;
}

/* Waits until a handle may have come. True: the thread must end. */
static bool wait_for_handle(weiri_slots *slots, weir_comm *comm)
{
    (void)pthread_mutex_lock(&comm->mutex);
    bool ready = slots->stops;
    (void)pthread_mutex_lock(&slots->mutex);
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS; k++) {
        ready = ready || (slots->futures[k] != NULL && slots->futures[k]->state >= WEIRI_FUTURE_READY);
    }
    (void)pthread_mutex_unlock(&slots->mutex);
    if (!ready) {
        (void)weiri_cond_wait(&comm->changed, &comm->mutex, weiri_deadline(SLICE_MS));
    }
    const bool stops = slots->stops;
    (void)pthread_mutex_unlock(&comm->mutex);
    return stops;
}

static void *run(void *context)
{
    weir_collective *collective = (weir_collective *)context;
    while (map_what_came(collective) && !wait_for_handle(collective->slots, collective->comm)) {
    }
    return NULL;
}

/* Lets the thread map the slots of a rank. */
static weir_status map_later(weir_collective *collective, uint32_t place, weir_future *future)
{
    weiri_slots *slots = collective->slots;
    (void)pthread_mutex_lock(&slots->mutex);
    const bool runs = slots->runs;
    slots->futures[place] = future;
    slots->runs = true;
    (void)pthread_mutex_unlock(&slots->mutex);
    if (runs) {
        return WEIR_OK;
    }
    if (slots->joinable) {
        (void)pthread_join(slots->thread, NULL);
    }
    const int error = weiri_thread_create(&slots->thread, "weir-slots", run, collective);
    slots->joinable = error == 0;
    if (error != 0) {
        (void)pthread_mutex_lock(&slots->mutex);
        slots->runs = false;
        slots->futures[place] = NULL;
        (void)pthread_mutex_unlock(&slots->mutex);
        return weiri_fail(WEIR_ERR_SYSTEM, "no thread for long slots: %s", strerror(error));
    }
    return WEIR_OK;
}

static weir_status ask(weir_collective *collective, const char *name, uint32_t place)
{
    weiri_slots *slots = collective->slots;
    weir_future *future = NULL;
    weir_status status = weiri_exchange_expect(collective->comm, collective->host.ranks[place],
                                               weiri_collective_tag(collective, WEIRI_TAG_SLOTS), WEIRI_OP_SLOTS, map,
                                               NULL, NULL, &slots->owners[place], &future);
    if (status != WEIR_OK) {
        return status;
    }
    slots->asked |= (uint32_t)1 << place;
    status = weir_future_test(future);
    if (status == WEIR_PENDING) {
        status = map_later(collective, place, future);
        if (status == WEIR_OK) {
            return WEIR_OK;
        }
    }
    status = finish(collective, future, status);
    return status == WEIR_OK ? WEIR_OK : weiri_fail(status, "%s: %s", name, weir_last_error());
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

weir_status weiri_slots_prepare(weir_collective *collective, const char *name, uint32_t sends, uint32_t receives)
{
    weiri_slots *slots = collective->slots;
    weir_status status = receives != 0 && slots->local == NULL ? allocate(collective, name) : WEIR_OK;
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS && status == WEIR_OK; k++) {
        status = (receives & ~slots->told) >> k & 1 ? tell(collective, k) : WEIR_OK;
    }
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS && status == WEIR_OK; k++) {
        status = (sends & ~slots->asked) >> k & 1 ? ask(collective, name, k) : WEIR_OK;
    }
    return status;
}

void weiri_slots_places(const weir_collective *collective, char *places[WEIR_COLLECTIVE_RANKS])
{
    weiri_slots *slots = collective->slots;
    if (slots == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&slots->mutex);
    for (uint32_t k = 0; k < collective->device.ranks; k++) {
        const weir_memory *memory = k == collective->device.rank ? slots->local : slots->remote[k];
        places[k] = memory != NULL ? (char *)weir_memory_pointer(memory) : NULL;
    }
    (void)pthread_mutex_unlock(&slots->mutex);
}

uint64_t weiri_slots_bytes(const weir_collective *collective)
{
    return collective->slots != NULL ? weir_memory_bytes(collective->slots->local) : 0;
}

void weiri_slots_close(weir_collective *collective)
{
    weiri_slots *slots = collective->slots;
    weir_comm *comm = collective->comm;
    if (slots == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&comm->mutex);
    slots->stops = true;
    (void)pthread_cond_broadcast(&comm->changed);
    (void)pthread_mutex_unlock(&comm->mutex);
    if (slots->joinable) {
        (void)pthread_join(slots->thread, NULL);
    }
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS; k++) {
        weir_future_destroy(slots->futures[k]);
        weir_memory_destroy(slots->remote[k]);
    }
    weir_memory_destroy(slots->local);
    (void)pthread_mutex_destroy(&slots->mutex);
    weiri_free(slots);
    collective->slots = NULL;
}
