/* weir/device/window.h - ranks inside a kernel: put into each other's memory, notify, and wait by source and tag.
 *
 *     weir_dev_window_rank self = weir_dev_window_at(&args->window, coop.block);
 *     weir_coop block = weir_coop_block(coop);
 *     weir_dev_window_put_notify(&self, self.number + 1, 0, 0, 0, 0, bytes, 7, block);   my part -> the next rank's
 *     status = weir_dev_window_wait(&self, WEIR_ANY_RANK, 7, 1, block);                  a rank's data is here
 *
 * A rank is a group of threads, usually a block. Numbers of ranks count across all devices from 0; weir_dev_window_at
 * gives rank `index` of this device. The rank is an argument of every call, so a block can serve several ranks: it
 * calls put_notify for all of them and then waits for all of them. Blocks that wait for each other must be resident:
 * weir_launch with opts.cooperative checks that.
 *
 * Each memory of the window has a part for each rank. Offsets are bytes from the start of a part; offsets and sizes
 * have any value and alignment. Memories are named by the ids that weir_window_register gave. Parts may overlap, as
 * those of neighbours on one device do. If source and destination of a transfer are the same address, nothing is
 * copied.
 *
 * Calls that move data name the remote side first: target, remote memory, remote offset, local memory, local offset.
 * put copies from the local to the remote part, get from the remote to the local part. notify sends a notification, a
 * tag of 0 to WEIR_WINDOW_TAG_MAX. put_notify is a put and a notification behind it.
 *
 * A wait takes notifications of a source, or of WEIR_ANY_RANK, with a tag, or WEIR_ANY_TAG. It takes those of one
 * source in the order in which they were sent, whatever their tags. Between sources there is no order. Notifications
 * that do not match stay for later waits, also of later kernels.
 *
 * Memory that other ranks write must not be read through `const __restrict__` pointers or __ldg: such loads may return
 * old values for as long as the kernel runs.
 *
 * A kernel file whose windows never leave a machine may define WEIR_WINDOW_NO_PORT before it includes this header. Its
 * kernels are then smaller, and those of single calls need fewer registers. A call with a target behind a port channel
 * fails the communicator with WEIR_ERR_UNSUPPORTED, and so does a wait that must report words from there as taken.
 *
 * Groups:    a thread, a warp, a block, or a grid with a barrier. All threads of the group make each call with the same
 *            arguments, and get the same status. Other groups get WEIR_ERR_INVALID, and nothing happens. put and get
 *            do not meet: they have no barrier of the group. Over a port channel the leader requests them, and the
 *            leader alone gets an error. It must still take part in the group's next call that meets, usually flush,
 *            which returns the error to all threads.
 * Order:     a rank that has waited for a notification sees the data of put_notify, all earlier puts of that source to
 *            its device and, if the devices map each other's memory, all writes that happened before it. A group's
 *            notify covers its puts. The source of a put may be overwritten, and data of a get read, after a barrier
 *            of the group if the target's memory is mapped, and after flush in any case.
 * Threads:   any number of groups may send as one rank. One group at a time waits, polls and takes for it.
 * Blocking:  wait, take, flush, barrier and index; notify and put_notify while the target's ring is full; over a port
 *            also put, get, notify, put_notify and poll, while the channel's queue is full. All have the communicator's
 *            deadline. Up to weir_window_opts.notifications of one device that a rank has not taken always fit.
 * Ownership: weir_window_device gives the handle. Kernels must not use it after weir_window_destroy.
 * Errors:    WEIR_ERR_RANGE for an unknown rank or memory, or a range that leaves a part. WEIR_ERR_INVALID for a tag
 *            that is too large, or a source that partly overlaps its destination. Both come before anything is copied
 *            or sent, and are sticky. WEIR_ERR_LIMIT if every ring that could bring a match is full and holds none;
 *            sticky in wait and take. WEIR_ERR_TIMEOUT, or the communicator's sticky error. */
#ifndef WEIR_DEVICE_WINDOW_H
#define WEIR_DEVICE_WINDOW_H

#include "weir/device/impl/window_send.h"
#include "weir/device/impl/window_wait.h"

#undef WEIR_DEV_USED_window
#define WEIR_DEV_USED_window weir_dev_version_window

typedef struct weir_dev_notification {
    uint32_t source;
    uint32_t tag;
} weir_dev_notification;

/* ---- places ---------------------------------------------------------------------------------------------------- */

/* The number of ranks of all devices together. */
WEIR_FN uint32_t weir_dev_window_ranks(const weir_dev_window *window) { return window->devices * window->ranks; }

/* Rank `index` of this device. If the device has fewer ranks, WEIR_ERR_RANGE becomes the communicator's sticky error,
 * and all calls with the returned rank fail. */
WEIR_FN weir_dev_window_rank weir_dev_window_at(const weir_dev_window *window, uint32_t index)
{
    weir_dev_window_rank self;
    self.window = window;
    self.index = index;
    self.number = window->device * window->ranks + index;
    if (WEIR_UNLIKELY(index >= window->ranks)) {
        WEIR_SLOW(
            weir_dev_control_report(window->barrier.control, WEIR_ERR_RANGE,
                                    weir_dev_note_of(WEIR_DOING_WINDOW_AT, WEIR_NO_PEER, index, window->ranks, 0)));
        self.number = WEIR_ANY_RANK;
    }
    return self;
}

/* The address of an offset in the part of rank `index` of a device; the device's memory is mapped here. */
WEIR_FN char *weir_dev_window_address(const weir_dev_window *window, uint32_t device, uint32_t index, uint32_t memory,
                                      uint64_t offset)
{
    return window->table->places[memory * window->devices + device].base +
           (index * window->table->memories[memory].stride + offset);
}

/* The rank's own part of a memory. NULL, with WEIR_ERR_RANGE as the communicator's sticky error, if the handle does not
 * know the memory. */
WEIR_FN void *weir_dev_window_pointer(const weir_dev_window_rank *self, uint32_t memory)
{
    const weir_dev_window *window = self->window;
    if (WEIR_UNLIKELY(memory >= window->memories || self->index >= window->ranks)) {
        WEIR_SLOW(weir_dev_control_report(
            window->barrier.control, WEIR_ERR_RANGE,
            weir_dev_note_of(WEIR_DOING_WINDOW_MEMORY, WEIR_NO_PEER, memory, window->memories, 0)));
        return NULL;
    }
    return weir_dev_window_address(window, window->device, self->index, memory, 0);
}

/* ---- transfers ------------------------------------------------------------------------------------------------- */

/* Copies `bytes` of the rank's own part of local_memory, from local_offset on, into the target's part of remote_memory.
 * Does not meet the group. */
WEIR_FN weir_status weir_dev_window_put(const weir_dev_window_rank *self, uint32_t target, uint32_t remote_memory,
                                        uint64_t remote_offset, uint32_t local_memory, uint64_t local_offset,
                                        uint64_t bytes, weir_coop coop)
{
    return weir_dev_window_transfer(self, WEIR_DOING_WINDOW_PUT, target, remote_memory, remote_offset, local_memory,
                                    local_offset, bytes, coop);
}

/* Copies `bytes` of the target's part of remote_memory into the rank's own part of local_memory. Does not meet the
 * group. */
WEIR_FN weir_status weir_dev_window_get(const weir_dev_window_rank *self, uint32_t target, uint32_t remote_memory,
                                        uint64_t remote_offset, uint32_t local_memory, uint64_t local_offset,
                                        uint64_t bytes, weir_coop coop)
{
    return weir_dev_window_transfer(self, WEIR_DOING_WINDOW_GET, target, remote_memory, remote_offset, local_memory,
                                    local_offset, bytes, coop);
}

/* ---- notifications --------------------------------------------------------------------------------------------- */

/* Meets the group, then sends a notification. */
WEIR_FN weir_status weir_dev_window_notify(const weir_dev_window_rank *self, uint32_t target, uint32_t tag,
                                           weir_coop coop)
{
    const weir_dev_window *window = self->window;
    if (WEIR_UNLIKELY(!weir_dev_window_is_group(coop))) {
        return WEIR_ERR_INVALID;
    }
    weir_status status = weir_dev_window_check_notify(self, target, tag);
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        return status;
    }
    const uint32_t device = weir_window_device_of(window, target);
    weir_window_ticket ticket = { NULL, 0, 0 };
    if (weir_coop_leads(coop)) {
        ticket = weir_window_draw(window, device, target);
    }
    status = weir_coop_sync(coop);
    if (weir_coop_leads(coop)) {
        weir_window_fence(window, device);
    }
    return weir_dev_window_send_alone(self, device, target, tag, ticket, status, coop);
}

/* Meets the group, then puts, then sends a notification. The leader checks the ranges for all; its ticket arrives
 * meanwhile. A ticket whose call is refused leaves a position empty, but the communicator has then failed. The barrier
 * behind the copy brings the leader's error to all threads. */
WEIR_FN weir_status weir_dev_window_put_notify(const weir_dev_window_rank *self, uint32_t target,
                                               uint32_t remote_memory, uint64_t remote_offset, uint32_t local_memory,
                                               uint64_t local_offset, uint64_t bytes, uint32_t tag, weir_coop coop)
{
    const weir_dev_window *window = self->window;
    const int leads = weir_coop_leads(coop);
    weir_window_ticket ticket = { NULL, 0, 0 };
    if (WEIR_UNLIKELY(!weir_dev_window_is_group(coop))) {
        return WEIR_ERR_INVALID;
    }
    weir_status status = weir_dev_window_check_notify(self, target, tag);
    status = status == WEIR_OK ? weir_dev_window_check_ids(self, remote_memory, local_memory) : status;
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        return status;
    }
    const uint32_t device = weir_window_device_of(window, target);
    if (leads) {
        ticket = weir_window_draw(window, device, target);
    }
    weir_dev_window_ends ends = { NULL, NULL, 0, 0 };
    if (bytes == 0) {
        status = weir_dev_window_check_nothing(self, device, target, remote_memory, remote_offset, local_memory,
                                               local_offset, coop);
    } else {
        ends = weir_dev_window_find(self, device, target, remote_memory, remote_offset, local_memory, local_offset);
        if (leads) {
            status = weir_dev_window_check_ends(window, WEIR_DOING_WINDOW_PUT, target, remote_offset, local_offset,
                                                bytes, ends);
        }
        status = weir_coop_agree(coop, window->barrier.control, status);
        if (WEIR_UNLIKELY(status != WEIR_OK)) {
            return status;
        }
        if (leads && ends.remote == ends.local) {
            weir_window_fence(window, device);
        }
    }
    if (ends.remote == ends.local) {
        return weir_dev_window_send_alone(self, device, target, tag, ticket, status, coop);
    }
    if (WEIR_UNLIKELY(ends.remote == NULL)) {
        if (leads) {
            status = WEIR_SLOW(weir_dev_window_put_notify_far(window, self->index, target, remote_memory, remote_offset,
                                                              local_memory, local_offset, bytes, tag, ticket.position,
                                                              ticket.taken));
        }
        return weir_coop_agree(coop, window->barrier.control, status);
    }
    weir_copy(ends.remote, ends.local, bytes, coop);
    weir_window_entry entry = { NULL, 0 };
    if (leads) {
        status = weir_window_room(window, self->number, target, tag, ticket);
        entry = weir_window_entry_of(window, self->number, device, target, tag, ticket);
    }
    status = weir_coop_agree(coop, window->barrier.control, status);
    if (leads && status == WEIR_OK) {
        weir_window_fence(window, device);
        weir_window_store(window, device, entry);
    }
    return status;
}

/* Waits for `count` notifications of `source` with `tag` and takes them. */
WEIR_FN weir_status weir_dev_window_wait(const weir_dev_window_rank *self, uint32_t source, uint32_t tag,
                                         uint64_t count, weir_coop coop)
{
    return weir_dev_window_collect(self, source, tag, count, 0, coop);
}

/* Takes `count` notifications of `source` with `tag` if all of them have arrived, otherwise none: WEIR_PENDING, or
 * WEIR_ERR_LIMIT if they cannot come before others are taken. A loop of polls must end on any status but
 * WEIR_PENDING. */
WEIR_FN weir_status weir_dev_window_poll(const weir_dev_window_rank *self, uint32_t source, uint32_t tag,
                                         uint64_t count, weir_coop coop)
{
    if (WEIR_UNLIKELY(!weir_dev_window_is_group(coop))) {
        return WEIR_ERR_INVALID;
    }
    weir_status status = weir_dev_window_check_wait(self, source, tag);
    if (WEIR_UNLIKELY(status != WEIR_OK) || count == 0) {
        return status;
    }
    if (weir_coop_leads(coop)) {
        status = WEIR_SLOW(weir_window_try(self->window, self->index, source, tag, count));
    }
    return weir_dev_window_share(self, status, coop);
}

/* Waits for one notification of `source` with `tag` and takes it. Every thread gets its source and tag. */
WEIR_FN weir_status weir_dev_window_take(const weir_dev_window_rank *self, uint32_t source, uint32_t tag,
                                         weir_dev_notification *taken, weir_coop coop)
{
    weir_status status = weir_dev_window_collect(self, source, tag, 1, 1, coop);
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        return status;
    }
    const uint64_t word = weir_arch_load_u64((const weir_alias_u64 *)weir_window_passed(self->window, self->index));
    taken->source = weir_window_source(word);
    taken->tag = weir_window_tag(word);
    /* All threads have read it before the leader's next call writes it again. */
    return weir_coop_agree(coop, self->window->barrier.control, WEIR_OK);
}

/* ---- completion ------------------------------------------------------------------------------------------------ */

/* Completes the group's transfers with `target`, or with all targets for WEIR_ANY_RANK: sources of puts may be
 * overwritten, and data of gets read, by all threads of the group. */
WEIR_FN weir_status weir_dev_window_flush(const weir_dev_window_rank *self, uint32_t target, weir_coop coop)
{
    if (WEIR_UNLIKELY(!weir_dev_window_is_group(coop))) {
        return WEIR_ERR_INVALID;
    }
    const weir_dev_window *window = self->window;
    weir_status status = weir_dev_window_check_wait(self, target, 0);
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        return status;
    }
    if (weir_coop_leads(coop)) {
        const uint32_t first = weir_window_first_ring(window, target);
        const uint32_t end = weir_window_end_ring(window, target, first);
        WEIR_ROLLED
        for (uint32_t device = first; device < end && status == WEIR_OK; device++) {
            if (WEIR_UNLIKELY(window->to[device].way == WEIR_WINDOW_PORT)) {
                status = weir_dev_window_far(window, device * window->ranks, weir_window_port_flush(window, device));
            }
        }
    }
    return weir_coop_agree(coop, window->barrier.control, status);
}

/* Barrier of all blocks of all devices' grids; `coop` is the grid or the calling thread's block. Afterwards every rank
 * sees the puts that were made to it before. One kernel of a device at a time is in the barrier. */
WEIR_FN weir_status weir_dev_window_barrier(const weir_dev_window *window, weir_coop coop)
{
    if (WEIR_UNLIKELY(coop.scope != WEIR_COOP_GRID && coop.scope != WEIR_COOP_BLOCK)) {
        return WEIR_ERR_INVALID;
    }
    coop.scope = WEIR_COOP_GRID;
    coop.barrier = &window->barrier;
    weir_status status = weir_coop_agree(coop, window->barrier.control, WEIR_OK);
    if (WEIR_UNLIKELY(status != WEIR_OK) || window->devices == 1) {
        return status;
    }
    uint64_t round = 0;
    if (coop.block == 0) {
        round = weir_arch_load_relaxed_dev_u64(window->rounds) + 1;
        status = weir_dev_window_meet_devices(window, round, weir_coop_block(coop));
    }
    status = weir_coop_agree(coop, window->barrier.control, status);
    /* Behind the group's barrier: every thread of the block has read the count. */
    if (coop.block == 0 && coop.block_rank == 0) {
        weir_arch_store_relaxed_dev_u64(window->rounds, round);
    }
    return status;
}

/* ---- blocks ---------------------------------------------------------------------------------------------------- */

/* Numbers the blocks of the grid by multiprocessor: blocks that share one get consecutive numbers, in *index. If each
 * block is the rank of this number, neighbouring ranks share a multiprocessor, and one works while the other waits. All
 * blocks of this device's grid make the call, as they do weir_dev_window_barrier, and all threads get the number of
 * their block. The numbers may differ in each launch. On the CPU device a block keeps its number. WEIR_ERR_INVALID for
 * other groups than a block or a grid; WEIR_ERR_RANGE, sticky, for a grid with more blocks than window->ranks. After an
 * error *index is window->ranks, which is no rank. */
WEIR_FN weir_status weir_dev_window_index(const weir_dev_window *window, uint32_t *index, weir_coop coop)
{
    weir_dev_control *control = window->barrier.control;
    uint64_t *mine = weir_window_block(window, coop.block);
    *index = window->ranks;
    if (WEIR_UNLIKELY(coop.scope != WEIR_COOP_GRID && coop.scope != WEIR_COOP_BLOCK)) {
        return WEIR_ERR_INVALID;
    }
    if (WEIR_UNLIKELY(coop.blocks > window->ranks)) {
        return WEIR_SLOW(weir_dev_window_fail(control, WEIR_ERR_RANGE, WEIR_DOING_WINDOW_AT, WEIR_NO_PEER,
                                              coop.blocks - 1, window->ranks, 0));
    }
    (void)weir_coop_sync(weir_coop_block(coop)); /* all threads have left an earlier call */
    if (coop.block_rank == 0) {
        weir_arch_store_relaxed_dev_u64(&mine[0], weir_arch_multiprocessor());
        weir_arch_store_relaxed_dev_u64(&mine[1], 0);
    }
    coop.scope = WEIR_COOP_GRID;
    coop.barrier = &window->barrier;
    const weir_status status = weir_coop_agree(coop, control, WEIR_OK);
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        return status;
    }
    const uint64_t own = weir_arch_load_relaxed_dev_u64(&mine[0]);
    uint64_t before = 0;
    for (uint32_t i = coop.block_rank; i < coop.blocks; i += coop.block_size) {
        const uint64_t other = weir_arch_load_relaxed_dev_u64(weir_window_block(window, i));
        before += other < own || (other == own && i < coop.block);
    }
    if (before != 0) {
        weir_arch_add_relaxed_dev_u64(&mine[1], before);
    }
    (void)weir_coop_sync(weir_coop_block(coop));
    *index = (uint32_t)weir_arch_load_relaxed_dev_u64(&mine[1]);
    return WEIR_OK;
}

#endif
