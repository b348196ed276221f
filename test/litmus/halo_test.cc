// Promises of halos; docs/memory-ordering.md.
#include "weir/device/halo.h"

#include "test/litmus/litmus.h"

namespace {

using namespace litmus;

constexpr uint64_t CELLS = 5;    // of a part, of 8 bytes
constexpr uint64_t SHARES = 2;   // the first has three cells
constexpr uint64_t GHOSTS = 40;  // the word of `data` from which on the ghosts lie
constexpr uint64_t BUFFER = 512; // bytes of a share's two halves

weir_dev_layout cells_of(uint64_t stride)
{
    weir_dev_layout layout = {};
    layout.nest.run = 8;
    layout.nest.size = 8 * CELLS;
    layout.nest.dims = 1;
    layout.nest.dim[0].count = CELLS;
    layout.nest.dim[0].stride = static_cast<int64_t>(8 * stride);
    layout.last = static_cast<int64_t>(8 * (CELLS - 1) * stride + 8);
    weir_layout_prepare(&layout);
    return layout;
}

// Two neighbours make STEPS steps of a stencil. A rank is a block of two threads, or a grid of two such blocks.
// Cell i of a part is word 2 * i of `data`, and ghost i is word GHOSTS + 3 * i. The words between them are the
// interior. ONE_WAY: only rank 0 sends.
template <weir_halo_form FORM, bool GRID = false, bool ONE_WAY = false> struct Stencil : Pair {
    static constexpr uint32_t SIZE = GRID ? 4 : 2; // threads of a rank
    static constexpr uint32_t threads = 2 * SIZE;
    static constexpr uint64_t STEPS = 4;
    static uint32_t device(uint32_t i) { return i / SIZE; }
    weir_dev_halo halo[2] = {};
    weir_dev_halo_part part[2] = {};
    weir_dev_halo_share share[2][SHARES] = {};
    weir_dev_halo_words words[2][SHARES] = {};
    weir_dev_halo_counts counts[2][SHARES] = {};
    int wrong = 0;

    Stencil()
    {
        for (uint32_t r = 0; r < 2; r++) {
            halo[r].control = &rank[r].control;
            halo[r].parts = &part[r];
            halo[r].shares = share[r];
            halo[r].share_count = SHARES;
            halo[r].lines = FORM == WEIR_HALO_LINES;
            part[r].from = cells_of(2);
            part[r].to = cells_of(3);
            part[r].there = cells_of(3);
            part[r].from_memory = reinterpret_cast<char *>(rank[r].data);
            part[r].to_memory = reinterpret_cast<char *>(rank[r].data + GHOSTS);
            part[r].there_memory = reinterpret_cast<char *>(rank[1 - r].data + GHOSTS);
            part[r].put_form = FORM;
            part[r].wait_form = FORM;
            part[r].asks = ONE_WAY || FORM == WEIR_HALO_STORES;
            part[r].answers = part[r].asks;
            part[r].peer = 1 - r;
            for (uint64_t i = 0; i < SHARES; i++) {
                fill_share(r, i);
            }
        }
    }
    void fill_share(uint32_t r, uint64_t i)
    {
        weir_dev_halo_share &mine = share[r][i];
        const uint64_t bytes = i == 0 ? 24 : 8 * CELLS - 24;
        mine.put_at = mine.wait_at = 24 * i;
        mine.put_bytes = sends(r) ? bytes : 0;
        mine.wait_bytes = sends(1 - r) ? bytes : 0;
        mine.out = reinterpret_cast<char *>(rank[1 - r].packets) + i * BUFFER;
        mine.in = reinterpret_cast<char *>(rank[r].packets) + i * BUFFER;
        mine.out_half = mine.in_half = BUFFER / 2;
        mine.there = &words[1 - r][i];
        mine.here = &words[r][i];
        mine.counts = &counts[r][i];
    }
    static bool sends(uint32_t r) { return !ONE_WAY || r == 0; }
    static uint64_t value(uint32_t r, uint64_t step, uint64_t i) { return 1000 * (r + 1) + 100 * step + i; }
    weir_coop group_of(uint32_t i)
    {
        const weir_coop grid = grid_coop(rank[i / SIZE], i % SIZE, SIZE / 2, 2);
        return GRID ? grid : weir_coop_block(grid);
    }

    // Each thread writes cells that another thread sends.
    void fill(uint32_t me, uint64_t step, weir_coop group)
    {
        for (uint64_t i = SIZE - 1 - group.rank; i < CELLS; i += SIZE) {
            write(rank[me].data[2 * i], value(me, step, i));
        }
    }
    // Each thread reads ghosts that another thread received.
    void compare(uint32_t me, uint64_t step, weir_coop group)
    {
        for (uint64_t i = SIZE - 1 - group.rank; i < CELLS && sends(1 - me); i += SIZE) {
            wrong += read(rank[me].data[GHOSTS + 3 * i]) != value(1 - me, step, i);
        }
    }
    // Between a put and its wait a thread writes the words beside the cells and ghosts.
    void interior(uint32_t me, uint64_t step, weir_coop group)
    {
        for (uint64_t i = group.rank; i + 1 < CELLS; i += SIZE) {
            write(rank[me].data[2 * i + 1], step);
            write(rank[me].data[GHOSTS + 3 * i + 1], step);
            write(rank[me].data[GHOSTS + 3 * i + 2], step);
        }
    }
    void thread(uint32_t i)
    {
        const uint32_t me = i / SIZE;
        const weir_coop group = group_of(i);
        for (uint64_t step = 0; step < STEPS; step++) {
            fill(me, step, group);
            check(weir_dev_halo_put(&halo[me], group));
            interior(me, step, group);
            check(weir_dev_halo_wait(&halo[me], group));
            compare(me, step, group);
        }
    }
    bool right() const
    {
        int interior_wrong = 0;
        for (uint64_t i = 0; i + 1 < CELLS; i++) {
            for (const Rank &mine : rank) {
                interior_wrong += mine.data[2 * i + 1] != STEPS - 1 || mine.data[GHOSTS + 3 * i + 1] != STEPS - 1 ||
                                  mine.data[GHOSTS + 3 * i + 2] != STEPS - 1;
            }
        }
        return failed == 0 && wrong == 0 && interior_wrong == 0;
    }
};

constexpr uint32_t ALL = WEIRT_WEAK_NO_RELEASE | WEIRT_WEAK_NO_ACQUIRE | WEIRT_WEAK_NO_SYSTEM | WEIRT_WEAK_NO_BARRIER;
constexpr uint32_t PACKETS = WEIRT_WEAK_NO_SYSTEM | WEIRT_WEAK_NO_BARRIER;

TEST(LitmusHalo, StepsOfStoresOverwriteNothing) { holds<Stencil<WEIR_HALO_STORES>>(ALL); }

TEST(LitmusHalo, StepsOfPacketsOverwriteNothing) { holds<Stencil<WEIR_HALO_PACKETS>>(PACKETS); }

TEST(LitmusHalo, StepsOfLinesOverwriteNothing) { holds<Stencil<WEIR_HALO_LINES>>(ALL); }

TEST(LitmusHalo, StepsInOneDirectionOverwriteNothing)
{
    holds<Stencil<WEIR_HALO_STORES, false, true>>(ALL);
    holds<Stencil<WEIR_HALO_PACKETS, false, true>>(PACKETS);
    holds<Stencil<WEIR_HALO_LINES, false, true>>(ALL);
}

TEST(LitmusHalo, AllThreadsOfAGridSeeTheGhosts)
{
    holds<Stencil<WEIR_HALO_STORES, true>>(ALL);
    holds<Stencil<WEIR_HALO_PACKETS, true>>(ALL);
    holds<Stencil<WEIR_HALO_LINES, true>>(ALL);
}

// Ghosts of the step before are read after the put.
struct ReadsLate : Stencil<WEIR_HALO_STORES> {
    void thread(uint32_t i)
    {
        const uint32_t me = i / SIZE;
        const weir_coop group = group_of(i);
        for (uint64_t step = 0; step < STEPS; step++) {
            fill(me, step, group);
            check(weir_dev_halo_put(&halo[me], group));
            if (step != 0) {
                compare(me, step - 1, group);
            }
            interior(me, step, group);
            check(weir_dev_halo_wait(&halo[me], group));
        }
    }
};

TEST(LitmusHalo, GhostsAreNotKeptBeyondTheNextPut) { fails<ReadsLate>(); }

} // namespace
