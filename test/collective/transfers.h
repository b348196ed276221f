// Exchanges of transfers among ranks: random ones, what they must result in, and the search for the shortest that
// fails.
#ifndef WEIRT_COLLECTIVE_TRANSFERS_H
#define WEIRT_COLLECTIVE_TRANSFERS_H

#include "test/collective/operations.h"
#include "test/harness/checks.h"

struct Transfer {
    uint32_t from;
    uint32_t to;
    uint64_t count;
    weir_dtype dtype;
    uint32_t id;
};

using Transfers = std::vector<Transfer>;

inline uint64_t bytes_of(const Transfer &t) { return t.count * weir_dtype_bytes(t.dtype); }

inline Transfers random_transfers(uint64_t seed, uint32_t ranks, uint32_t transfers, uint64_t longest)
{
    Transfers all;
    for (uint32_t i = 0; i < transfers; i++) {
        const uint64_t random = mix(mix(seed) ^ i);
        const uint64_t most = random >> 40 & 3 ? 200 : longest;
        all.push_back({ static_cast<uint32_t>(random % ranks), static_cast<uint32_t>((random >> 8) % ranks),
                        random >> 48 & 7 ? (random >> 16 & 0xffffff) % most : 0,
                        static_cast<weir_dtype>((random >> 4) % WEIR_DTYPES), static_cast<uint32_t>(seed * 1000 + i) });
    }
    return all;
}

// One transfer from each rank to each other one.
inline Transfers transfers_to_others(uint64_t seed, uint32_t ranks, uint64_t longest)
{
    Transfers all = random_transfers(seed, ranks, ranks * (ranks - 1), longest);
    for (uint32_t i = 0; i < all.size(); i++) {
        all[i].from = i / (ranks - 1);
        all[i].to = (all[i].from + 1 + i % (ranks - 1)) % ranks;
    }
    return all;
}

// A rank's list in an order of its own, and the places of its buffers.
struct List {
    std::vector<weir_transfer> transfers;
    std::vector<Transfer> meant;
};

// The place of a transfer's data: `shift` elements behind *at, a multiple of 8, which moves behind the data.
inline char *take_room(char **at, const Transfer &t, uint64_t shift)
{
    char *data = *at + shift * weir_dtype_bytes(t.dtype);
    *at += (bytes_of(t) + shift * weir_dtype_bytes(t.dtype) + 15) / 8 * 8;
    return data;
}

inline List list_of(const Bench *b, const Transfers &all, uint64_t seed)
{
    const uint32_t rank = weir_collective_rank(b->collective);
    char *send = static_cast<char *>(weir_memory_pointer(b->in));
    char *recv = static_cast<char *>(weir_memory_pointer(b->out)) + guard;
    List sends;
    List receives;
    for (const Transfer &t : all) {
        if (t.from == rank) {
            char *data = take_room(&send, t, t.id % 3);
            sends.transfers.push_back({ t.count != 0 ? data : nullptr, t.count, t.dtype, t.to, false });
            sends.meant.push_back(t);
        }
        if (t.to == rank) {
            char *data = take_room(&recv, t, t.id % 5);
            receives.transfers.push_back({ t.count != 0 ? data : nullptr, t.count, t.dtype, t.from, true });
            receives.meant.push_back(t);
        }
    }
    List list;
    size_t s = 0;
    for (size_t r = 0; s < sends.meant.size() || r < receives.meant.size();) {
        const bool takes_send =
            r == receives.meant.size() || (s < sends.meant.size() && mix(seed ^ (rank * 100000 + s + r)) % 2 != 0);
        const List &from = takes_send ? sends : receives;
        size_t &next = takes_send ? s : r;
        list.transfers.push_back(from.transfers[next]);
        list.meant.push_back(from.meant[next++]);
    }
    return list;
}

inline Bytes data_of(const Transfer &t)
{
    const uint64_t seed = mix(t.id);
    Bytes data(bytes_of(t));
    uint64_t i = 0;
    for (uint8_t &byte : data) {
        byte = static_cast<uint8_t>(mix(seed ^ i++));
    }
    return data;
}

inline bool prepare_list(const Bench *b, const List &list)
{
    bool fine = WEIRT_OK(
        b->rank, weir_device_fill(b->comm.device, weir_memory_pointer(b->out), poison, weir_memory_bytes(b->out)));
    for (size_t i = 0; i < list.meant.size() && fine; i++) {
        const Bytes data = data_of(list.meant[i]);
        if (!list.transfers[i].receive && !data.empty()) {
            fine =
                WEIRT_OK(b->rank, weir_device_copy(b->comm.device, list.transfers[i].buffer, data.data(), data.size()));
        }
    }
    return fine && weirt_barrier(b->rank);
}

// The first wrong byte, or "".
inline std::string wrong(const Bench *b, const List &list)
{
    const char *base = static_cast<char *>(weir_memory_pointer(b->out));
    Bytes want(weir_memory_bytes(b->out), poison);
    Bytes have(want.size());
    for (size_t i = 0; i < list.meant.size(); i++) {
        const Bytes data = data_of(list.meant[i]);
        if (list.transfers[i].receive && !data.empty()) {
            std::memcpy(want.data() + (static_cast<char *>(list.transfers[i].buffer) - base), data.data(), data.size());
        }
    }
    if (weir_device_copy(b->comm.device, have.data(), base, have.size()) != WEIR_OK) {
        return weir_last_error();
    }
    const size_t at = first_difference(have, want);
    return at == have.size() ? "" : "byte " + std::to_string(at) + " of the memory";
}

inline std::string text_of(const Transfers &all)
{
    std::string text;
    for (const Transfer &t : all) {
        text += " " + std::to_string(t.from) + "->" + std::to_string(t.to) + ":" + std::to_string(t.count) + "x" +
                std::to_string(weir_dtype_bytes(t.dtype));
    }
    return text;
}

// All ranks run it. Sets *alive to false on an error of a call.
inline std::string run_list(const Bench *b, const Transfers &all, uint64_t seed, bool *alive)
{
    const List list = list_of(b, all, seed);
    *alive = prepare_list(b, list) &&
             WEIRT_OK(b->rank, weir_exchange(b->collective, list.transfers.data(),
                                             static_cast<uint32_t>(list.transfers.size()), b->stream)) &&
             WEIRT_OK(b->rank, weir_stream_wait(b->comm.device, b->stream, weirt_timeout_ms())) &&
             WEIRT_OK(b->rank, weir_comm_status(b->comm.comm));
    return *alive ? wrong(b, list) : "an error";
}

// Records an exchange.
inline bool record_exchange(const Bench *b, const std::vector<weir_transfer> &all, void **graph)
{
    return WEIRT_OK(b->rank, weir_graph_begin(b->comm.device, b->stream)) &&
           WEIRT_OK(b->rank, weir_exchange(b->collective, all.data(), static_cast<uint32_t>(all.size()), b->stream)) &&
           WEIRT_OK(b->rank, weir_graph_end(b->comm.device, b->stream, graph));
}

// Whether the list's transfers, which were launched, move their data.
inline bool ends_well(const Bench *b, const List &list)
{
    return WEIRT_OK(b->rank, weir_stream_wait(b->comm.device, b->stream, weirt_timeout_ms())) &&
           WEIRT_OK(b->rank, weir_comm_status(b->comm.comm)) && WEIRT_EXPECT(b->rank, wrong(b, list).empty());
}

// Whether all ranks are fine; each passes its own outcome.
inline bool all_fine(weirt_rank *rank, uint32_t *step, bool fine)
{
    bool all = true;
    *step += 2;
    weirt_step(rank, *step + fine);
    (void)weirt_barrier(rank);
    for (uint32_t k = 0; k < rank->size; k++) {
        all = all && weirt_step_now(rank, k) % 2 != 0;
    }
    (void)weirt_barrier(rank);
    return all;
}

// Removes transfers as long as the exchange still fails, and reports what is left.
inline void shrink(const Bench *b, Transfers all, uint64_t seed, uint32_t *step)
{
    std::string last = "wrong data on another rank";
    bool alive = true;
    for (size_t i = 0; i < all.size() && alive;) {
        Transfers less = all;
        less.erase(less.begin() + static_cast<Transfers::difference_type>(i));
        const std::string found = run_list(b, less, seed, &alive);
        if (all_fine(b->rank, step, found.empty())) {
            i++;
        } else {
            all = less;
            last = found.empty() ? last : found;
        }
    }
    weirt_fail(b->rank, __FILE__, __LINE__, "seed %llu: %s;%s", static_cast<unsigned long long>(seed), last.c_str(),
               text_of(all).c_str());
}

// Runs `exchanges` random exchanges, of transfers_to_others if `transfers` is 0. The shortest that fails is reported.
// Returns whether none failed.
inline bool run_random(const Bench *b, uint32_t transfers, uint64_t longest, uint32_t exchanges)
{
    uint32_t step = 0;
    bool alive = true;
    for (uint64_t seed = 1; seed <= exchanges && alive; seed++) {
        const uint64_t drawn = seed + 100 * b->rank->size;
        const Transfers all = transfers != 0 ? random_transfers(drawn, b->rank->size, transfers, longest)
                                             : transfers_to_others(drawn, b->rank->size, longest);
        const std::string found = run_list(b, all, seed, &alive);
        if (!all_fine(b->rank, &step, found.empty())) {
            shrink(b, all, seed, &step);
            return false;
        }
    }
    return alive;
}

#endif
