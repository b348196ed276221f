/* weir/device/impl/window_ends.h - the two ends of a transfer between ranks of a window, and their checks.
 *
 * The target, the ids of the memories and then the ranges are checked. Between these checks the rows of the tables are
 * loaded, which give each end its address and the size of its part. A remote end without an address is behind a port
 * channel. Then one thread requests the transfer. What a check refuses becomes the communicator's error.
 *
 * Threads, Errors: as weir/device/window.h. */
#ifndef WEIR_DEVICE_IMPL_WINDOW_ENDS_H
#define WEIR_DEVICE_IMPL_WINDOW_ENDS_H

#include "weir/device/impl/channel_check.h"
#include "weir/device/impl/window_ring.h"

/* Whether the group can make the calls of a window. */
WEIR_FN int weir_dev_window_is_group(weir_coop coop)
{
    return coop.scope >= WEIR_COOP_THREAD && coop.scope <= WEIR_COOP_GRID && weir_coop_can_meet(coop);
}

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
    const uint32_t ranks = window->devices * window->ranks;
    if (WEIR_UNLIKELY(target >= ranks || self->index >= window->ranks)) {
        return WEIR_SLOW(weir_dev_window_fail(window->barrier.control, WEIR_ERR_RANGE, WEIR_DOING_WINDOW_RANK,
                                              WEIR_NO_PEER, target >= ranks ? target : self->number, ranks, 0));
    }
    if (WEIR_UNLIKELY(tag > WEIR_WINDOW_TAG_MAX)) {
        return WEIR_SLOW(weir_dev_window_fail(window->barrier.control, WEIR_ERR_INVALID, WEIR_DOING_WINDOW_TAG,
                                              WEIR_NO_PEER, tag, self->number, 0));
    }
    return WEIR_OK;
}

/* Checks the calling rank and the source of a wait. */
WEIR_FN weir_status weir_dev_window_check_wait(const weir_dev_window_rank *self, uint32_t source, uint32_t tag)
{
    return weir_dev_window_check_notify(self, source == WEIR_ANY_RANK ? 0 : source, tag == WEIR_ANY_TAG ? 0 : tag);
}

/* Fails a transfer that weir_dev_window_check_ends refuses, with the reason. */
WEIR_FN_COLD weir_status weir_dev_window_refuse_ends(const weir_dev_window *window, uint32_t doing, uint32_t target,
                                                     uint64_t remote_offset, uint64_t local_offset, uint64_t bytes,
                                                     uint64_t remote_bytes, uint64_t local_bytes)
{
    weir_dev_control *control = window->barrier.control;
    const int local = weir_dev_in_range(remote_offset, bytes, remote_bytes);
    if (local && weir_dev_in_range(local_offset, bytes, local_bytes)) {
        return weir_dev_window_fail(control, WEIR_ERR_INVALID, WEIR_DOING_WINDOW_OVERLAP, WEIR_NO_PEER, remote_offset,
                                    local_offset, bytes);
    }
    weir_dev_note note =
        weir_dev_note_of(doing, window->to[weir_window_device_of(window, target)].peer,
                         local ? local_offset : remote_offset, bytes, local ? local_bytes : remote_bytes);
    note.index = local ? WEIR_LOCAL_MEMORY : 0;
    return weir_dev_control_fail_in(control, WEIR_ERR_RANGE, note);
}

/* The result of a request for the target's device: an error fails the communicator. */
WEIR_FN weir_status weir_dev_window_far(const weir_dev_window *window, uint32_t target, weir_status status)
{
    return WEIR_UNLIKELY(status != WEIR_OK)
               ? WEIR_SLOW(weir_window_port_fail(window, weir_window_device_of(window, target), status))
               : WEIR_OK;
}

/* Both ends of a transfer, and the sizes of their parts. */
typedef struct weir_dev_window_ends {
    char *remote; /* mapped here; NULL behind a port channel */
    char *local;
    uint64_t remote_bytes;
    uint64_t local_bytes;
} weir_dev_window_ends;

/* Checks the ids of a transfer's memories. */
WEIR_FN weir_status weir_dev_window_check_ids(const weir_dev_window_rank *self, uint32_t remote_memory,
                                              uint32_t local_memory)
{
    const uint32_t memories = self->window->memories;
    return WEIR_UNLIKELY(remote_memory >= memories || local_memory >= memories)
               ? WEIR_SLOW(weir_dev_window_fail(self->window->barrier.control, WEIR_ERR_RANGE, WEIR_DOING_WINDOW_MEMORY,
                                                WEIR_NO_PEER, remote_memory >= memories ? remote_memory : local_memory,
                                                memories, 0))
               : WEIR_OK;
}

/* The rows of the tables that a transfer needs. */
typedef struct weir_dev_window_rows {
    weir_vec16 remote; /* lo is the stride, hi the bytes */
    weir_vec16 local;
    char *remote_base;
    char *local_base;
} weir_dev_window_rows;

/* Loads the rows of a transfer. The ids have been checked. */
WEIR_FN weir_dev_window_rows weir_dev_window_load_rows(const weir_dev_window *window, uint32_t device,
                                                       uint32_t remote_memory, uint32_t local_memory)
{
    const weir_dev_window_place *places = window->table->places;
    weir_dev_window_rows rows;
    rows.remote = weir_arch_load_vec16((const weir_vec16 *)window->table->memories + remote_memory);
    rows.local = weir_arch_load_vec16((const weir_vec16 *)window->table->memories + local_memory);
    rows.remote_base = (char *)(uintptr_t)weir_arch_load_u64(
        (const weir_alias_u64 *)&places[remote_memory * window->devices + device].base);
    rows.local_base = (char *)(uintptr_t)weir_arch_load_u64(
        (const weir_alias_u64 *)&places[local_memory * window->devices + window->device].base);
    return rows;
}

/* The ends of a transfer. The target has been checked; the offsets have not. */
WEIR_FN weir_dev_window_ends weir_dev_window_ends_of(const weir_dev_window_rank *self, uint32_t device, uint32_t target,
                                                     uint64_t remote_offset, uint64_t local_offset,
                                                     weir_dev_window_rows rows)
{
    const uint64_t index = target - device * self->window->ranks;
    weir_dev_window_ends ends;
    ends.remote = rows.remote_base == NULL ? NULL : rows.remote_base + (index * rows.remote.lo + remote_offset);
    ends.local = rows.local_base + (self->index * rows.local.lo + local_offset);
    ends.remote_bytes = rows.remote.hi;
    ends.local_bytes = rows.local.hi;
    return ends;
}

/* Finds the ends of a transfer. The target and the ids have been checked; the offsets have not. */
WEIR_FN weir_dev_window_ends weir_dev_window_find(const weir_dev_window_rank *self, uint32_t device, uint32_t target,
                                                  uint32_t remote_memory, uint64_t remote_offset, uint32_t local_memory,
                                                  uint64_t local_offset)
{
    return weir_dev_window_ends_of(self, device, target, remote_offset, local_offset,
                                   weir_dev_window_load_rows(self->window, device, remote_memory, local_memory));
}

/* Checks the ranges of a transfer, which must not overlap unless they are the same. */
WEIR_FN weir_status weir_dev_window_check_ends(const weir_dev_window *window, uint32_t doing, uint32_t target,
                                               uint64_t remote_offset, uint64_t local_offset, uint64_t bytes,
                                               weir_dev_window_ends ends)
{
    const uint64_t distance = (uint64_t)(uintptr_t)ends.remote - (uint64_t)(uintptr_t)ends.local;
    const int overlap = (ends.remote != NULL) & (distance != 0) & ((distance < bytes) | (0 - distance < bytes));
    const int inside = weir_dev_in_range(remote_offset, bytes, ends.remote_bytes) &
                       weir_dev_in_range(local_offset, bytes, ends.local_bytes);
    return WEIR_UNLIKELY(overlap | !inside)
               ? WEIR_SLOW(weir_dev_window_refuse_ends(window, doing, target, remote_offset, local_offset, bytes,
                                                       ends.remote_bytes, ends.local_bytes))
               : WEIR_OK;
}

/* Requests a put or a get with a target behind a port channel; by one thread. Its arguments have been checked. */
WEIR_FN_COLD weir_status weir_dev_window_request(const weir_dev_window *window, uint32_t index, uint32_t type,
                                                 uint32_t target, uint32_t remote_memory, uint64_t remote_offset,
                                                 uint32_t local_memory, uint64_t local_offset, uint64_t bytes, int more)
{
    weir_arch_no_kernel();
    const weir_dev_window_memory *memories = window->table->memories;
    const uint32_t device = weir_window_device_of(window, target);
    if (bytes == 0) {
        return WEIR_OK;
    }
    return weir_window_port_move(window, device, type, remote_memory,
                                 (target - device * window->ranks) * memories[remote_memory].stride + remote_offset,
                                 local_memory, index * memories[local_memory].stride + local_offset, bytes, more);
}

#endif
