// Set-up of tests of host tables: a communicator, a stream, and memory that the host and kernels reach.
#ifndef WEIRT_TABLE_WORLD_H
#define WEIRT_TABLE_WORLD_H

#include <cstdint>
#include <cstring>
#include <vector>

#include "test/harness/checks.h"
#include "test/harness/comm.h"

// A communicator, and memory that the host reaches: rows, and ids and out behind them.
struct TableWorld {
    static constexpr uint64_t BYTES = 65536;
    weirt_rank *rank;
    weirt_comm c = {};
    weir_memory *memory = nullptr;
    void *stream = nullptr;
    bool ready = false;

    explicit TableWorld(weirt_rank *rank_) : rank(rank_)
    {
        weir_memory_opts host = WEIR_OPTS(weir_memory_opts);
        host.kind = WEIR_MEMORY_HOST;
        ready = weirt_comm_open(rank, 0, &c) && WEIRT_OK(rank, weir_memory_allocate(c.comm, BYTES, &host, &memory)) &&
                WEIRT_OK(rank, weir_stream_create(c.device, &stream));
    }
    ~TableWorld()
    {
        if (stream != nullptr) {
            weir_stream_destroy(c.device, stream);
        }
        weir_memory_destroy(memory);
        weirt_comm_close(&c);
    }
    TableWorld(const TableWorld &) = delete;
    TableWorld &operator=(const TableWorld &) = delete;
    char *host() const { return static_cast<char *>(weir_memory_host_pointer(memory)); }
    char *device() const { return static_cast<char *>(weir_memory_pointer(memory)); }
    weir_table_part part(uint64_t count) const
    {
        weir_table_part part = {};
        part.memory = memory;
        part.count = count;
        return part;
    }
    // Puts ids at offset 32768 and returns where kernels find them.
    const void *ids(const std::vector<int32_t> &list) const
    {
        std::memcpy(host() + 32768, list.data(), list.size() * sizeof list[0]);
        return device() + 32768;
    }
    char *out() const { return device() + 49152; }
    char *host_out() const { return host() + 49152; }
};

#endif
