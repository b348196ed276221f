// A notified window whose structures are made by hand: its devices are memories of one process.
#ifndef WEIRT_WINDOW_H
#define WEIRT_WINDOW_H

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "weir/device/window.h"

namespace windows {

struct alignas(WEIR_CELL_BYTES) Cell {
    char bytes[WEIR_CELL_BYTES];
};

// Zeroed memory at a multiple of a cell.
class Memory {
    std::vector<Cell> cells;

public:
    explicit Memory(uint64_t bytes) : cells((bytes + WEIR_CELL_BYTES - 1) / WEIR_CELL_BYTES)
    {
        std::memset(static_cast<void *>(cells.data()), 0, cells.size() * sizeof(Cell));
    }
    char *data() { return cells[0].bytes; }
};

// One device of a window with two memories. Rank i of it has the bytes [i * stride, i * stride + part) of each.
struct Device {
    Memory shared;
    Memory own;
    Memory data[2];
    weir_dev_control control = {};
    weir_dev_window window = {};

    Device(const weir_window_layout &at, uint64_t bytes)
        : shared(at.shared_bytes), own(at.private_bytes), data{ Memory(bytes), Memory(bytes) }
    {
    }
};

class World {
    std::vector<std::unique_ptr<Device>> list;

public:
    World(uint32_t devices, uint32_t ranks, uint32_t count, uint64_t stride, uint64_t part, uint64_t timeout_ns)
    {
        const weir_window_layout at = weir_window_layout_of(devices, ranks, count);
        for (uint32_t i = 0; i < devices; i++) {
            list.push_back(std::make_unique<Device>(at, stride * ranks + part));
        }
        for (uint32_t i = 0; i < devices; i++) {
            Device &device = *list[i];
            weir_dev_control_begin(&device.control, timeout_ns);
            weir_window_place(&device.window, i, devices, ranks, count, device.shared.data(), device.own.data());
            device.window.barrier.control = &device.control;
            device.window.memories = 2;
            auto *to = reinterpret_cast<weir_dev_window_device *>(device.own.data() + at.devices);
            auto *table = reinterpret_cast<weir_dev_window_table *>(device.own.data() + at.table);
            for (uint32_t k = 0; k < devices; k++) {
                to[k].shared = list[k]->shared.data();
                to[k].way = k == i ? WEIR_WINDOW_OWN : WEIR_WINDOW_MAPPED;
                to[k].peer = k + 10;
                for (uint32_t m = 0; m < 2; m++) {
                    table->places[m * devices + k].base = list[k]->data[m].data();
                }
            }
            for (uint32_t m = 0; m < 2; m++) {
                table->memories[m] = { stride, part };
            }
        }
    }
    Device &device(uint32_t i) { return *list[i]; }
    const weir_dev_window *window(uint32_t i) const { return &list[i]->window; }
    weir_dev_window_rank at(uint32_t device, uint32_t index) const { return weir_dev_window_at(window(device), index); }
    // The rank of the window with this number.
    weir_dev_window_rank rank(uint32_t number) const
    {
        const uint32_t ranks = list[0]->window.ranks;
        return at(number / ranks, number % ranks);
    }
    // A word of a memory of a device.
    uint64_t &word(uint32_t device, uint32_t memory, uint64_t index)
    {
        return reinterpret_cast<uint64_t *>(list[device]->data[memory].data())[index];
    }
};

} // namespace windows

#endif
