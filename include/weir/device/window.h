/* weir/device/window.h - ranks inside a kernel: put into each other's memory, notify, and wait by source and tag.
 *
 *     weir_dev_window_rank self = weir_dev_window_at(&args->window, coop.block);
 *     weir_coop block = weir_coop_block(coop);
 *     weir_dev_window_put_notify(&self, self.number + 1, 0, 0, 0, 0, bytes, 7, block);   my part -> the next rank's
 *     status = weir_dev_window_wait(&self, WEIR_ANY_RANK, 7, 1, block);                  a rank's data is here
 *
 * A rank is a group of threads, usually a block. The ranks of all devices are numbered through; weir_dev_window_at
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
 * Groups:    a thread, a warp, a block, or a grid with a barrier. All threads of the group make each call with the same
 *            arguments, and get the same status. Other groups get WEIR_ERR_INVALID, and nothing happens.
 * Order:     a rank that has waited for a notification sees what the threads of the sending group wrote before, the
 * data of put_notify, all earlier puts of that source to its device and, if the devices' memories are mapped,
 *            everything that the sender knew. put alone has no barrier: the data of a group's put is covered by the
 *            group's next notify. The source of a put may be overwritten, and data of a get read, after a barrier of
 * the group if the target's memory is mapped, and after flush in any case. Threads:   any number of groups may send as
 * one rank. One group at a time waits, polls and takes for it. Blocking:  wait, take and barrier, and notify and
 * put_notify while the target's ring is full, with the communicator's deadline. `notifications` of one device
 * (weir_window_opts) always fit. The others never. Errors:    WEIR_ERR_RANGE: an unknown rank or memory, or a range
 * that leaves a part. WEIR_ERR_INVALID: a tag that is too large, or a source that partly overlaps its destination. Both
 * before anything is copied or sent, and sticky. WEIR_ERR_LIMIT: every ring that could bring a match is full and holds
 * none; sticky in wait and take. WEIR_ERR_TIMEOUT, or the communicator's sticky error. */
#ifndef WEIR_DEVICE_WINDOW_H
#define WEIR_DEVICE_WINDOW_H

#include "weir/device/impl/copy.h"
#include "weir/device/impl/window_ring.h"
#include "weir/device/memory_channel.h"

#undef WEIR_DEV_USED_window
#define WEIR_DEV_USED_window weir_dev_version_window

typedef struct weir_dev_notification {
    uint32_t source;
    uint32_t tag;
} weir_dev_notification;

/* ---- checks ---------------------------------------------------------------------------------------------------- */

/* Whether the group can make the calls of a window. */
WEIR_FN int weir_dev_window_is_group(weir_coop coop)
{
    return coop.scope >= WEIR_COOP_THREAD && coop.scope <= WEIR_COOP_GRID && weir_coop_can_meet(coop);
}

/* The ranks of all devices. */
WEIR_FN uint32_t weir_dev_window_ranks(const weir_dev_window *window) { return window->devices * window->ranks; }

/* Fails a call. Arguments are passed by value, as to all functions that are not inlined. */
WEIR_FN_COLD weir_status weir_dev_window_fail(weir_dev_control *control, weir_status status, uint32_t doing,
                                              uint32_t peer, uint64_t first, uint64_t second, uint64_t third)
{
    return weir_dev_control_fail_in(control, status, weir_dev_note_of(doing, peer, first, second, third));
}

/* Checks the calling rank and the target of a notification. */
WEIR_FN weir_status weir_dev_window_check_notify(const weir_dev_window_rank *self, uint32_t target, uint32_t tag)
{
    const weir_dev_window *window = self->window;
    const uint32_t ranks = weir_dev_window_ranks(window);
    if (WEIR_UNLIKELY(target >= ranks || self->index >= window->ranks)) {
        return weir_dev_window_fail(window->barrier.control, WEIR_ERR_RANGE, WEIR_DOING_WINDOW_RANK, WEIR_NO_PEER,
                                    target >= ranks ? target : self->number, ranks, 0);
    }
    if (WEIR_UNLIKELY(tag > WEIR_WINDOW_TAG_MAX)) {
        return weir_dev_window_fail(window->barrier.control, WEIR_ERR_INVALID, WEIR_DOING_WINDOW_TAG, WEIR_NO_PEER, tag,
                                    self->number, 0);
    }
    return WEIR_OK;
}

/* Checks the calling rank and the source of a wait. */
WEIR_FN weir_status weir_dev_window_check_wait(const weir_dev_window_rank *self, uint32_t source, uint32_t tag)
{
    return weir_dev_window_check_notify(self, source == WEIR_ANY_RANK ? 0 : source, tag == WEIR_ANY_TAG ? 0 : tag);
}

/* Fails a transfer that weir_dev_window_check_move refuses, with the reason. */
WEIR_FN_COLD weir_status weir_dev_window_refuse_move(const weir_dev_window *window, uint32_t doing, uint32_t target,
                                                     uint32_t remote_memory, uint64_t remote_offset,
                                                     uint32_t local_memory, uint64_t local_offset, uint64_t bytes)
{
    weir_dev_control *control = window->barrier.control;
    const uint32_t unknown = remote_memory >= window->memories ? remote_memory : local_memory;
    if (unknown >= window->memories) {
        return weir_dev_window_fail(control, WEIR_ERR_RANGE, WEIR_DOING_WINDOW_MEMORY, WEIR_NO_PEER, unknown,
                                    window->memories, 0);
    }
    const weir_dev_window_memory *memories = window->table->memories;
    const int local = weir_dev_in_range(remote_offset, bytes, memories[remote_memory].bytes);
    weir_dev_note note =
        weir_dev_note_of(doing, window->to[target / window->ranks].peer, local ? local_offset : remote_offset, bytes,
                         memories[local ? local_memory : remote_memory].bytes);
    note.index = local ? WEIR_LOCAL_MEMORY : 0;
    return weir_dev_control_fail_in(control, WEIR_ERR_RANGE, note);
}

/* Checks the memories and ranges of a transfer. The target has been checked. */
WEIR_FN weir_status weir_dev_window_check_move(const weir_dev_window *window, uint32_t doing, uint32_t target,
                                               uint32_t remote_memory, uint64_t remote_offset, uint32_t local_memory,
                                               uint64_t local_offset, uint64_t bytes)
{
    const weir_dev_window_memory *memories = window->table->memories;
    if (WEIR_UNLIKELY(remote_memory >= window->memories || local_memory >= window->memories) ||
        WEIR_UNLIKELY(!weir_dev_in_range(remote_offset, bytes, memories[remote_memory].bytes) ||
                      !weir_dev_in_range(local_offset, bytes, memories[local_memory].bytes))) {
        return weir_dev_window_refuse_move(window, doing, target, remote_memory, remote_offset, local_memory,
                                           local_offset, bytes);
    }
    return WEIR_OK;
}

/* ---- places ---------------------------------------------------------------------------------------------------- */

/* Rank `index` of this device. If the device has fewer ranks, WEIR_ERR_RANGE becomes the communicator's sticky error,
 * and all calls with the returned rank fail. */
WEIR_FN weir_dev_window_rank weir_dev_window_at(const weir_dev_window *window, uint32_t index)
{
    weir_dev_window_rank self;
    self.window = window;
    self.index = index;
    self.number = window->device * window->ranks + index;
    if (WEIR_UNLIKELY(index >= window->ranks)) {
        (void)weir_dev_window_fail(window->barrier.control, WEIR_ERR_RANGE, WEIR_DOING_WINDOW_AT, WEIR_NO_PEER, index,
                                   window->ranks, 0);
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
        (void)weir_dev_window_fail(window->barrier.control, WEIR_ERR_RANGE, WEIR_DOING_WINDOW_MEMORY, WEIR_NO_PEER,
                                   memory, window->memories, 0);
        return NULL;
    }
    return weir_dev_window_address(window, window->device, self->index, memory, 0);
}

/* ---- transfers ------------------------------------------------------------------------------------------------- */

/* A put or a get whose arguments have been checked. Equal addresses need no copy. */
WEIR_FN weir_status weir_dev_window_move(const weir_dev_window_rank *self, uint32_t doing, uint32_t target,
                                         uint32_t remote_memory, uint64_t remote_offset, uint32_t local_memory,
                                         uint64_t local_offset, uint64_t bytes, weir_coop coop)
{
    const weir_dev_window *window = self->window;
    const uint32_t device = target / window->ranks;
    const uint32_t way = window->to[device].way;
    if (WEIR_UNLIKELY(way == WEIR_WINDOW_PORT)) {
        return weir_dev_window_fail(window->barrier.control, WEIR_ERR_UNSUPPORTED, WEIR_DOING_WINDOW_RANK,
                                    window->to[device].peer, target, weir_dev_window_ranks(window), 0);
    }
    char *remote =
        weir_dev_window_address(window, device, target - device * window->ranks, remote_memory, remote_offset);
    char *local = weir_dev_window_address(window, window->device, self->index, local_memory, local_offset);
    if (remote == local) {
        return WEIR_OK;
    }
    const uint64_t distance = (uint64_t)(uintptr_t)remote - (uint64_t)(uintptr_t)local;
    if (WEIR_UNLIKELY(distance < bytes || 0 - distance < bytes)) {
        return weir_dev_window_fail(window->barrier.control, WEIR_ERR_INVALID, WEIR_DOING_WINDOW_OVERLAP, WEIR_NO_PEER,
                                    remote_offset, local_offset, bytes);
    }
    weir_copy(doing == WEIR_DOING_WINDOW_GET ? local : remote, doing == WEIR_DOING_WINDOW_GET ? remote : local, bytes,
              coop);
    return WEIR_OK;
}

/* A put or a get with all its checks. */
WEIR_FN weir_status weir_dev_window_transfer(const weir_dev_window_rank *self, uint32_t doing, uint32_t target,
                                             uint32_t remote_memory, uint64_t remote_offset, uint32_t local_memory,
                                             uint64_t local_offset, uint64_t bytes, weir_coop coop)
{
    if (WEIR_UNLIKELY(!weir_dev_window_is_group(coop))) {
        return WEIR_ERR_INVALID;
    }
    weir_status status = weir_dev_window_check_notify(self, target, 0);
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        return status;
    }
    status = weir_dev_window_check_move(self->window, doing, target, remote_memory, remote_offset, local_memory,
                                        local_offset, bytes);
    return WEIR_UNLIKELY(status != WEIR_OK) ? status
                                            : weir_dev_window_move(self, doing, target, remote_memory, remote_offset,
                                                                   local_memory, local_offset, bytes, coop);
}

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

/* The error of a notification to a device without a way for it, or WEIR_OK. */
WEIR_FN weir_status weir_dev_window_check_way(const weir_dev_window *window, uint32_t target)
{
    const weir_dev_window_device *to = window->to + target / window->ranks;
    return WEIR_UNLIKELY(to->way == WEIR_WINDOW_PORT)
               ? weir_dev_window_fail(window->barrier.control, WEIR_ERR_UNSUPPORTED, WEIR_DOING_WINDOW_RANK, to->peer,
                                      target, weir_dev_window_ranks(window), 0)
               : WEIR_OK;
}

/* Meets the group, then sends a notification. */
WEIR_FN weir_status weir_dev_window_notify(const weir_dev_window_rank *self, uint32_t target, uint32_t tag,
                                           weir_coop coop)
{
    const weir_dev_window *window = self->window;
    if (WEIR_UNLIKELY(!weir_dev_window_is_group(coop))) {
        return WEIR_ERR_INVALID;
    }
    weir_status status = weir_dev_window_check_notify(self, target, tag);
    if (WEIR_UNLIKELY(status != WEIR_OK || (status = weir_dev_window_check_way(window, target)) != WEIR_OK)) {
        return status;
    }
    status = weir_coop_sync(coop);
    if (weir_coop_leads(coop) && status == WEIR_OK) {
        uint64_t position;
        status = weir_window_reserve(window, self->number, target, tag, &position);
        if (status == WEIR_OK) {
            weir_window_send(window, self->number, target, tag, position);
        }
    }
    return weir_coop_agree(coop, window->barrier.control, status);
}

/* Meets the group, then puts, then sends a notification. The position in the ring is drawn before the group meets
 * behind the copy: that barrier then also brings the leader's error to all threads. */
WEIR_FN weir_status weir_dev_window_put_notify(const weir_dev_window_rank *self, uint32_t target,
                                               uint32_t remote_memory, uint64_t remote_offset, uint32_t local_memory,
                                               uint64_t local_offset, uint64_t bytes, uint32_t tag, weir_coop coop)
{
    const weir_dev_window *window = self->window;
    uint64_t position = 0;
    if (WEIR_UNLIKELY(!weir_dev_window_is_group(coop))) {
        return WEIR_ERR_INVALID;
    }
    weir_status status = weir_dev_window_check_notify(self, target, tag);
    if (WEIR_UNLIKELY(status != WEIR_OK || (status = weir_dev_window_check_move(
                                                window, WEIR_DOING_WINDOW_PUT, target, remote_memory, remote_offset,
                                                local_memory, local_offset, bytes)) != WEIR_OK)) {
        return status;
    }
    (void)weir_coop_sync(coop); /* an error of a grid's barrier comes back from the next one */
    status = weir_dev_window_move(self, WEIR_DOING_WINDOW_PUT, target, remote_memory, remote_offset, local_memory,
                                  local_offset, bytes, coop);
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        return status;
    }
    if (weir_coop_leads(coop)) {
        status = weir_window_reserve(window, self->number, target, tag, &position);
    }
    status = weir_coop_agree(coop, window->barrier.control, status);
    if (weir_coop_leads(coop) && status == WEIR_OK) {
        weir_window_send(window, self->number, target, tag, position);
    }
    return status;
}

/* Waits for `count` notifications of `source` with `tag` and takes them. */
WEIR_FN weir_status weir_dev_window_wait(const weir_dev_window_rank *self, uint32_t source, uint32_t tag,
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
        status = weir_window_collect(self->window, self->index, source, tag, count);
    }
    return weir_coop_agree(coop, self->window->barrier.control, status);
}

/* Brings the leader's result of a poll, which may be WEIR_PENDING or WEIR_ERR_LIMIT, to all threads. */
WEIR_FN weir_status weir_dev_window_share(const weir_dev_window_rank *self, weir_status status, weir_coop coop)
{
    weir_alias_u64 *passed = (weir_alias_u64 *)weir_window_passed(self->window, self->index) + 1;
    if (coop.scope == WEIR_COOP_THREAD) {
        return status;
    }
    if (weir_coop_leads(coop)) {
        weir_arch_store_u64(passed, (uint64_t)(int64_t)status);
    }
    weir_status shared = weir_coop_agree(coop, self->window->barrier.control, WEIR_OK);
    if (shared == WEIR_OK) {
        shared = (weir_status)(int64_t)weir_arch_load_u64(passed);
    }
    /* All threads have read it before the leader's next call writes it again. */
    const weir_status met = weir_coop_agree(coop, self->window->barrier.control, WEIR_OK);
    return WEIR_UNLIKELY(met != WEIR_OK) ? met : shared;
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
        status = weir_window_try(self->window, self->index, source, tag, count);
    }
    return weir_dev_window_share(self, status, coop);
}

/* Waits for one notification of `source` with `tag` and takes it. Every thread gets its source and tag. */
WEIR_FN weir_status weir_dev_window_take(const weir_dev_window_rank *self, uint32_t source, uint32_t tag,
                                         weir_dev_notification *taken, weir_coop coop)
{
    weir_status status = weir_dev_window_wait(self, source, tag, 1, coop);
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
    const weir_status status = weir_dev_window_check_wait(self, target, 0);
    if (WEIR_UNLIKELY(status != WEIR_OK)) {
        return status;
    }
    return weir_coop_agree(coop, self->window->barrier.control, WEIR_OK);
}

/* The slow part of the barrier's wait for device `device`. */
WEIR_FN_COLD weir_status weir_dev_window_await_device(const weir_dev_window *window, uint32_t device, uint64_t round)
{
    const uint64_t *arrived = (const uint64_t *)((const char *)window->rings + window->arrived_at) + device;
    return weir_spin_above(arrived, round - 1, 1, window->barrier.control,
                           weir_dev_note_of(WEIR_DOING_WINDOW_BARRIER, window->to[device].peer, round, 0, 0));
}

/* Tells the other devices that this one has arrived, and waits for them. The threads of one block share the devices. */
WEIR_FN weir_status weir_dev_window_meet_devices(const weir_dev_window *window, uint64_t round, weir_coop block)
{
    const uint64_t *arrived = (const uint64_t *)((const char *)window->rings + window->arrived_at);
    weir_status status = WEIR_OK;
    WEIR_ROLLED
    for (uint32_t device = block.rank; device < window->devices; device += block.size) {
        if (device != window->device) {
            uint64_t *there = (uint64_t *)(window->to[device].shared + window->arrived_at);
            weir_arch_store_release_sys_u64(there + window->device, round);
        }
    }
    WEIR_ROLLED
    for (uint32_t device = block.rank; device < window->devices && status == WEIR_OK; device += block.size) {
        uint32_t reads = weir_spin_is_due(round) ? 1 : WEIR_ARCH_FAST_READS;
        int is_long = 0;
        WEIR_ROLLED
        while (device != window->device && !is_long && weir_arch_load_acquire_sys_u64(arrived + device) < round) {
            is_long = weir_spin_is_long(&reads);
        }
        if (WEIR_UNLIKELY(is_long)) {
            status = weir_dev_window_await_device(window, device, round);
        }
    }
    return status;
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

#endif
