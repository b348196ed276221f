/* weir/device/fifo.h - threads of a device push requests into a queue, and a host thread takes them.
 *
 *     uint64_t ticket;
 *     weir_dev_fifo_push(&args->fifo, &request, &ticket);
 *     ...
 *     weir_dev_fifo_wait(&args->fifo, ticket);      the host thread has completed it, and all before it
 *
 * The slots are in host memory. A push costs a GPU two read-modify-writes of its memory, one after the other, and the
 * stores. The compiler merges the read-modify-writes of the lanes of a warp that push together. A push takes room only
 * if there is room: a push that times out leaves no hole.
 *
 * Order:     a push is a release at system scope, and taking the request is an acquire. So the host's handler sees what
 *            the pushing thread wrote, and what threads that it had synchronized with wrote. What the host wrote
 *            before it completed a request is visible after wait, and after a test that returned WEIR_OK. Requests are
 *            taken in the order of their tickets. A push that begins after another has returned, in the same thread or
 *            a synchronized one, has the higher ticket.
 * Threads:   any number of threads may push, test and wait. One host thread at a time takes requests.
 * Blocking:  push while all slots are in use, and wait, with the communicator's deadline. The other calls never block.
 * Ownership: weir_fifo_device gives the handle. Kernels must not use it after weir_fifo_destroy.
 * Errors:    WEIR_ERR_TIMEOUT: the request is not in the queue. The communicator's sticky error: it may be in the
 *            queue. A push that finds room returns that error only now and then, but often enough to end a loop of
 *            pushes. */
#ifndef WEIR_DEVICE_FIFO_H
#define WEIR_DEVICE_FIFO_H

#include "weir/device/impl/fifo_slot.h"

#undef WEIR_DEV_USED_fifo
#define WEIR_DEV_USED_fifo weir_dev_version_fifo

/* The error with which waits of the communicator end, or WEIR_OK; see weir_dev_semaphore_status. */
WEIR_FN weir_status weir_dev_fifo_status(const weir_dev_fifo *fifo) { return weir_dev_control_status(fifo->control); }

/* Waits for room and pushes the request. *ticket is for test and wait. */
WEIR_FN weir_status weir_dev_fifo_push(const weir_dev_fifo *fifo, const weir_request *request, uint64_t *ticket)
{
    if (WEIR_UNLIKELY(!weir_dev_credits_take(fifo->credits, fifo->count))) {
        weir_status status = weir_dev_credits_await(fifo->credits, fifo->tail, fifo->count, fifo->control);
        if (status != WEIR_OK) {
            return WEIR_SLOW(weir_dev_control_end_wait(fifo->control, status,
                                                       weir_dev_note_of(WEIR_DOING_FIFO_PUSH, WEIR_NO_PEER, 0, 0, 0)));
        }
    }
    return weir_dev_fifo_write_checked(fifo, request, ticket);
}

/* WEIR_PENDING, with nothing pushed, if there is no room. Errors are those of push. */
WEIR_FN weir_status weir_dev_fifo_try_push(const weir_dev_fifo *fifo, const weir_request *request, uint64_t *ticket)
{
    weir_status status = weir_dev_fifo_try_room(fifo);
    return status != WEIR_OK ? status : weir_dev_fifo_write_checked(fifo, request, ticket);
}

/* WEIR_OK if the host has completed the request of that ticket and all before it; this does not ask for the
 * communicator's error. Otherwise WEIR_PENDING, or the communicator's sticky error. */
WEIR_FN weir_status weir_dev_fifo_test(const weir_dev_fifo *fifo, uint64_t ticket)
{
    if (weir_arch_load_acquire_sys_u64(fifo->tail) > ticket) {
        return WEIR_OK;
    }
    weir_status status = weir_dev_control_status(fifo->control);
    return status != WEIR_OK ? status : WEIR_PENDING;
}

/* Waits until the host has completed the request of that ticket and all before it. */
WEIR_FN weir_status weir_dev_fifo_wait(const weir_dev_fifo *fifo, uint64_t ticket)
{
    weir_arch_pause_for_host();
    uint32_t reads = WEIR_ARCH_FAST_READS;
    uint64_t done;
    WEIR_ROLLED
    while ((done = weir_arch_load_acquire_sys_u64(fifo->tail)) <= ticket && !weir_spin_is_long(&reads)) {
    }
    if (WEIR_UNLIKELY((done <= ticket) | weir_spin_is_due_ticket(ticket))) {
        return WEIR_SLOW(weir_spin_above(fifo->tail, ticket, weir_spin_is_due_ticket(ticket), fifo->control,
                                         weir_dev_note_of(WEIR_DOING_FIFO_WAIT, WEIR_NO_PEER, 0, ticket, 0)));
    }
    return WEIR_OK;
}

#endif
