/* fifo.c - fifos: their memory, the end that takes requests, and the end of host threads that push them. Host threads
 * push with the same code as kernels. */
#include "src/host/channel/fifo.h"

#include <inttypes.h>

#include "src/host/base/alloc.h"
#include "src/host/base/clock.h"
#include "src/host/base/error.h"

#define DEFAULT_SLOTS 2048u
#define SLOT_BYTES ((uint64_t)WEIR_FIFO_SLOT_WORDS * sizeof(uint64_t))
#define CHECK_READS 64u  /* failed reads between two checks of clock and communicator */
#define CHECK_POLLS 256u /* polls that find nothing between two checks of the communicator */

/* Offsets in the block. Words of different writers are in different cells. The cell in device memory has the same
 * offsets as the head, less CREDITS_OFFSET. */
#define TAIL_OFFSET 0u
#define CREDITS_OFFSET WEIR_CELL_BYTES
#define HEAD_IN_CELL 64u
#define SLOTS_OFFSET (2u * WEIR_CELL_BYTES)

static weir_status check_opts(const weir_fifo_opts *opts, weir_fifo_opts *options)
{
    if (!WEIRI_OPTS_OK(opts)) {
        return weiri_fail(WEIR_ERR_INVALID, "weir_fifo_create: %s", WEIRI_OPTS_ERROR(opts));
    }
    weiri_opts_copy(options, sizeof *options, opts);
    if (options->end != WEIR_FIFO_DEVICE && options->end != WEIR_FIFO_HOST) {
        return weiri_fail(WEIR_ERR_INVALID, "weir_fifo_create: unknown end %d", (int)options->end);
    }
    if (options->slots == 0) {
        options->slots = DEFAULT_SLOTS;
    }
    if (options->slots < 2 || options->slots > WEIR_FIFO_SLOTS_MAX) {
        return weiri_fail(WEIR_ERR_LIMIT, "weir_fifo_create: %u slots; 2 to %u are possible", options->slots,
                          WEIR_FIFO_SLOTS_MAX);
    }
    uint32_t slots = 2;
    while (slots < options->slots) {
        slots *= 2;
    }
    options->slots = slots;
    return WEIR_OK;
}

/* Host threads use the CPU's addresses, kernels their device's. */
static void set_handle(weir_fifo *fifo)
{
    weir_comm *comm = fifo->comm;
    const bool host = fifo->end == WEIR_FIFO_HOST;
    char *base = (char *)(host ? fifo->block->host_pointer : fifo->block->pointer);
    char *counts = host ? base + CREDITS_OFFSET : (char *)weiri_slab_device(comm->slabs.device.memory, fifo->cell);
    weir_dev_fifo *device = &fifo->device;
    device->control = host ? comm->slabs.control : comm->slabs.control_device;
    device->credits = (weir_dev_credits *)(void *)counts;
    device->head = (uint64_t *)(void *)(counts + HEAD_IN_CELL);
    device->slots = (uint64_t *)(void *)(base + SLOTS_OFFSET);
    device->tail = (const uint64_t *)(void *)(base + TAIL_OFFSET);
    device->count = fifo->count;
}

weir_status weir_fifo_create(weir_comm *comm, const weir_fifo_opts *opts, weir_fifo **out)
{
    weir_fifo_opts options;
    weir_status status = weiri_comm_check("comm", comm, "weir_fifo_create");
    if (status == WEIR_OK) {
        status = out != NULL ? check_opts(opts, &options) : weiri_fail_null("weir_fifo_create", "out");
    }
    if (status != WEIR_OK) {
        return status;
    }
    weir_fifo *fifo = (weir_fifo *)weiri_alloc(1, sizeof *fifo);
    if (fifo == NULL) {
        return weiri_fail_nomem("weir_fifo_create");
    }
    status =
        weiri_device_allocate(comm->device, WEIR_MEMORY_HOST, SLOTS_OFFSET + options.slots * SLOT_BYTES, &fifo->block);
    if (status != WEIR_OK) {
        goto undo_alloc;
    }
    if (options.end == WEIR_FIFO_DEVICE) {
        status = weiri_cells_allocate(comm, &comm->slabs.device, 1, &fifo->cell);
        if (status != WEIR_OK) {
            goto undo_block;
        }
    }
    fifo->comm = comm;
    fifo->end = options.end;
    fifo->count = options.slots;
    fifo->tail = (uint64_t *)(void *)((char *)fifo->block->host_pointer + TAIL_OFFSET);
    fifo->slots = (const uint64_t *)(void *)((char *)fifo->block->host_pointer + SLOTS_OFFSET);
    set_handle(fifo);
    weiri_comm_get(comm);
    *out = fifo;
    return WEIR_OK;

undo_block:
    weiri_block_release(fifo->block);
undo_alloc:
    weiri_free(fifo);
    return status;
}

void weir_fifo_destroy(weir_fifo *fifo)
{
    if (fifo == NULL || weiri_comm_forked(fifo->comm)) {
        return;
    }
    weir_comm *comm = fifo->comm;
    if (fifo->end == WEIR_FIFO_DEVICE) {
        weiri_cells_free(comm, &comm->slabs.device, 1, fifo->cell);
    }
    weiri_block_release(fifo->block);
    weiri_free(fifo);
    weiri_comm_put(comm);
}

weir_status weir_fifo_device(const weir_fifo *fifo, weir_dev_fifo *out)
{
    if (fifo == NULL || out == NULL) {
        return weiri_fail_null("weir_fifo_device", fifo == NULL ? "fifo" : "out");
    }
    if (weiri_comm_forked(fifo->comm)) {
        return weiri_fail(WEIR_ERR_FORKED, "weir_fifo_device: the communicator belongs to the parent process");
    }
    if (fifo->end != WEIR_FIFO_DEVICE) {
        return weiri_fail(WEIR_ERR_INVALID, "weir_fifo_device: host threads push into this fifo");
    }
    *out = fifo->device;
    return WEIR_OK;
}

/* ---- taking ------------------------------------------------------------------------------------------- */

bool weiri_fifo_take(weir_fifo *fifo, weir_request *request, uint64_t *ticket)
{
    if (!weir_dev_fifo_read(fifo->slots, fifo->count, fifo->next, request)) {
        return false;
    }
    *ticket = fifo->next++;
    __builtin_prefetch(fifo->slots + (fifo->next & (fifo->count - 1)) * WEIR_FIFO_SLOT_WORDS);
    return true;
}

bool weiri_fifo_is_empty(const weir_fifo *fifo)
{
    weir_request request;
    for (uint32_t i = 0; i < fifo->count; i++) {
        if (weir_dev_fifo_read(fifo->slots, fifo->count, fifo->next + i, &request)) {
            return false;
        }
    }
    return true;
}

weir_status weir_fifo_poll(weir_fifo *fifo, weir_request *out)
{
    uint64_t ticket;
    if (fifo == NULL || out == NULL) {
        return weiri_fail_null("weir_fifo_poll", fifo == NULL ? "fifo" : "out");
    }
    const bool forked = weiri_comm_forked(fifo->comm);
    if (!forked && weiri_fifo_take(fifo, out, &ticket)) {
        return WEIR_OK;
    }
    if (forked || ++fifo->empty % CHECK_POLLS == 0) {
        weir_status status = weiri_comm_check("fifo", fifo->comm, "weir_fifo_poll");
        if (status != WEIR_OK) {
            return status;
        }
    }
    return WEIR_PENDING;
}

void weir_fifo_complete(weir_fifo *fifo)
{
    if (fifo != NULL) {
        weir_arch_store_release_sys_u64(fifo->tail, fifo->next);
    }
}

/* ---- pushing, by host threads --------------------------------------------------------------------------- */

static weir_status check_host(weir_fifo *fifo, const char *call)
{
    weir_status status = weiri_comm_check("fifo", fifo == NULL ? NULL : fifo->comm, call);
    if (status == WEIR_OK && fifo->end != WEIR_FIFO_HOST) {
        status = weiri_fail(WEIR_ERR_INVALID, "%s: kernels push into this fifo", call);
    }
    return status;
}

/* Runs between two tries of a call that waits. WEIR_OK: the call may try again. WEIR_PENDING: the deadline has passed.
 */
static weir_status try_later(weir_fifo *fifo, uint32_t tries, uint64_t deadline)
{
    weir_cpu_relax(tries);
    if (tries % CHECK_READS != 0) {
        return WEIR_OK;
    }
    const weir_status status = weiri_comm_error(fifo->comm);
    return status == WEIR_OK && weiri_left_ms(deadline) == 0 ? WEIR_PENDING : status;
}

weir_status weir_fifo_push(weir_fifo *fifo, const weir_request *request, uint32_t timeout_ms, uint64_t *ticket)
{
    uint64_t position;
    weir_status status = check_host(fifo, "weir_fifo_push");
    if (status == WEIR_OK && request == NULL) {
        status = weiri_fail_null("weir_fifo_push", "request");
    }
    if (status != WEIR_OK) {
        return status;
    }
    uint64_t deadline = weiri_deadline(timeout_ms != 0 ? timeout_ms : fifo->comm->timeout_ms);
    for (uint32_t tries = 1; (status = weir_dev_fifo_try_push(&fifo->device, request, &position)) != WEIR_OK; tries++) {
        status = status != WEIR_PENDING ? weiri_comm_error(fifo->comm) : try_later(fifo, tries, deadline);
        if (status == WEIR_PENDING) {
            return weiri_fail(WEIR_ERR_TIMEOUT,
                              "%s: no slot had come free in rank %u's fifo of %u slots when the deadline passed",
                              __func__, fifo->comm->rank, fifo->count);
        }
        if (status != WEIR_OK) {
            return status;
        }
    }
    if (ticket != NULL) {
        *ticket = position;
    }
    return WEIR_OK;
}

static weir_status test(weir_fifo *fifo, const char *call, uint64_t ticket)
{
    if (fifo != NULL && fifo->end == WEIR_FIFO_HOST && !weiri_comm_forked(fifo->comm) &&
        weir_arch_load_acquire_sys_u64(fifo->tail) > ticket) {
        return WEIR_OK;
    }
    weir_status status = check_host(fifo, call);
    return status != WEIR_OK ? status : WEIR_PENDING;
}

weir_status weir_fifo_test(weir_fifo *fifo, uint64_t ticket) { return test(fifo, __func__, ticket); }

weir_status weir_fifo_wait(weir_fifo *fifo, uint64_t ticket, uint32_t timeout_ms)
{
    weir_status status = test(fifo, __func__, ticket);
    if (status != WEIR_PENDING) {
        return status;
    }
    uint64_t deadline = weiri_deadline(timeout_ms != 0 ? timeout_ms : fifo->comm->timeout_ms);
    for (uint32_t tries = 1; weir_arch_load_acquire_sys_u64(fifo->tail) <= ticket; tries++) {
        status = try_later(fifo, tries, deadline);
        if (status == WEIR_PENDING) {
            return weiri_fail(WEIR_ERR_TIMEOUT,
                              "%s: request %" PRIu64 " was not completed in rank %u's fifo of %u slots when the "
                              "deadline passed",
                              __func__, ticket, fifo->comm->rank, fifo->count);
        }
        if (status != WEIR_OK) {
            return status;
        }
    }
    return WEIR_OK;
}
