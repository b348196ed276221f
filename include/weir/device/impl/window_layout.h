/* weir/device/impl/window_layout.h - what lies where in the memory of a window.
 *
 * Each device has two memories for a window. The other devices write the shared part; its places are the same on all
 * devices. Only the device itself uses the private part, and the host fills the tables in it. Both begin as zeros.
 *
 *     shared    rings: for each rank of the device, a ring of `count` words for each source device
 *               taken: for each rank of the window, the words that it has taken of those that this device sent
 *               arrived: for each device, the last barrier that it has reached
 *     private   word of the grid barrier
 *               rounds: barriers so far
 *               blocks: for each rank of the device, the multiprocessor of the block with that number, and the blocks
 *               before it in the order of multiprocessors
 *               sent: for each rank of the window, the words that this device has sent to it
 *               lines: for each rank of the device, the notification that its leader passes to the group, and the
 *               states of its rings (weir_dev_window_ring)
 *               devices, the handles of their port channels, and the tables of memories */
#ifndef WEIR_DEVICE_IMPL_WINDOW_LAYOUT_H
#define WEIR_DEVICE_IMPL_WINDOW_LAYOUT_H

#include "weir/device/types.h"

/* Most ranks of a window. */
#define WEIR_WINDOW_RANKS ((uint32_t)1 << 30)

/* A line begins with the notification that is passed to the group, in a place of this size. */
#define WEIR_WINDOW_LINE_HEAD 32u

/* Places in bytes. */
typedef struct weir_window_layout {
    uint64_t taken; /* in the shared part; its rings begin at 0 */
    uint64_t arrived;
    uint64_t shared_bytes;
    uint64_t rounds; /* in the private part; the word of its grid barrier is at 0 */
    uint64_t blocks; /* WEIR_CELL_BYTES behind rounds */
    uint64_t sent;
    uint64_t lines;
    uint64_t line_bytes;
    uint64_t devices;  /* weir_dev_window_device, */
    uint64_t channels; /* weir_dev_port_channel of each device, */
    uint64_t table;    /* weir_dev_window_table */
    uint64_t private_bytes;
} weir_window_layout;

WEIR_FN uint64_t weir_window_whole_cells(uint64_t bytes)
{
    return (bytes + WEIR_CELL_BYTES - 1) / WEIR_CELL_BYTES * WEIR_CELL_BYTES;
}

/* Of a window of `devices` devices with `ranks` ranks each and rings of `count` words; devices * ranks is at most
 * WEIR_WINDOW_RANKS. */
WEIR_FN weir_window_layout weir_window_layout_of(uint32_t devices, uint32_t ranks, uint32_t count)
{
    weir_window_layout at;
    const uint64_t all = (uint64_t)devices * ranks;
    at.taken = weir_window_whole_cells(all * count * sizeof(uint64_t));
    at.arrived = at.taken + weir_window_whole_cells(all * sizeof(uint64_t));
    at.shared_bytes = at.arrived + weir_window_whole_cells(devices * sizeof(uint64_t));
    at.rounds = WEIR_CELL_BYTES;
    at.blocks = 2 * WEIR_CELL_BYTES;
    at.sent = at.blocks + weir_window_whole_cells(2 * ranks * sizeof(uint64_t));
    at.lines = at.sent + weir_window_whole_cells(all * sizeof(uint64_t));
    at.line_bytes = weir_window_whole_cells(WEIR_WINDOW_LINE_HEAD + devices * sizeof(weir_dev_window_ring));
    at.devices = at.lines + ranks * at.line_bytes;
    at.channels = at.devices + weir_window_whole_cells(devices * sizeof(weir_dev_window_device));
    at.table = at.channels + weir_window_whole_cells(devices * sizeof(weir_dev_port_channel));
    at.private_bytes = at.table + offsetof(weir_dev_window_table, places) +
                       (uint64_t)WEIR_WINDOW_MEMORIES * devices * sizeof(weir_dev_window_place);
    return at;
}

/* Points the handle of device `device` at its memories. The caller sets barrier.control and memories, and fills the
 * tables. */
WEIR_FN void weir_window_place(weir_dev_window *window, uint32_t device, uint32_t devices, uint32_t ranks,
                               uint32_t count, char *shared, char *own)
{
    const weir_window_layout at = weir_window_layout_of(devices, ranks, count);
    window->barrier.word = (uint64_t *)own;
    window->barrier.reserved = 0;
    window->to = (const weir_dev_window_device *)(own + at.devices);
    window->table = (const weir_dev_window_table *)(own + at.table);
    window->rings = (uint64_t *)shared;
    window->taken = (uint64_t *)(shared + at.taken);
    window->sent = (uint64_t *)(own + at.sent);
    window->lines = own + at.lines;
    window->rounds = (uint64_t *)(own + at.rounds);
    window->taken_at = at.taken;
    window->arrived_at = at.arrived;
    window->device = device;
    window->devices = devices;
    window->ranks = ranks;
    window->count = count;
    window->line_bytes = (uint32_t)at.line_bytes;
    window->inverse = UINT32_MAX / ranks;
    window->reserved = 0;
}

/* number / window->ranks. The product's upper half is the quotient or one less, as number is less than 2^31: the error
 * of the inverse, less than 1 + 1 / ranks in units of 2^-32, adds up to less than one. A division takes 20
 * instructions of each thread. */
WEIR_FN uint32_t weir_window_device_of(const weir_dev_window *window, uint32_t number)
{
    const uint32_t device = (uint32_t)((uint64_t)number * window->inverse >> 32);
    return device + (number - device * window->ranks >= window->ranks);
}

/* The words of a block; see weir_dev_window_index. */
WEIR_FN uint64_t *weir_window_block(const weir_dev_window *window, uint32_t block)
{
    return window->rounds + WEIR_CELL_BYTES / sizeof(uint64_t) + 2 * (uint64_t)block;
}

/* Place of the ring of a device's rank `index` for words of device `source`, in the shared part. */
WEIR_FN uint64_t weir_window_ring_at(const weir_dev_window *window, uint32_t index, uint32_t source)
{
    return ((uint64_t)index * window->devices + source) * window->count * sizeof(uint64_t);
}

/* The notification that the leader of this device's rank `index` passes to its group. */
WEIR_FN uint64_t *weir_window_passed(const weir_dev_window *window, uint32_t index)
{
    return (uint64_t *)(window->lines + (uint64_t)index * window->line_bytes);
}

/* The states of the rings of this device's rank `index`. */
WEIR_FN weir_dev_window_ring *weir_window_states(const weir_dev_window *window, uint32_t index)
{
    return (weir_dev_window_ring *)((char *)weir_window_passed(window, index) + WEIR_WINDOW_LINE_HEAD);
}

#endif
