// Random scripts of a window's calls, whose results are those of a reference.
#include <deque>
#include <random>

#include "window_ways.h"

namespace {

using namespace windows;

WEIRT_WINDOW_SUITE(WindowRandom);

constexpr uint32_t SCRIPTS = 60;
constexpr uint32_t MOST_LEFT = 60; // notifications of one device that a script may leave

// The notifications that each rank has not taken: their tags in the order of their source.
struct Reference {
    std::mt19937_64 random;
    uint32_t ranks; // of each device
    uint32_t all;
    std::vector<std::deque<uint32_t>> queues; // of target t and source s: t * all + s

    Reference(uint64_t seed, uint32_t devices, uint32_t of_each)
        : random(seed), ranks(of_each), all(devices * of_each), queues(all * all)
    {
    }
    uint32_t draw(uint32_t below) { return static_cast<uint32_t>(random() % below); }
    // Removes the oldest notification that matches. False if there is none.
    bool remove(uint32_t target, uint32_t source, uint32_t tag, uint32_t *found)
    {
        std::deque<uint32_t> &queue = queues[target * all + source];
        for (auto at = queue.begin(); at != queue.end(); ++at) {
            if (tag == WEIR_ANY_TAG || *at == tag) {
                *found = *at;
                queue.erase(at);
                return true;
            }
        }
        return false;
    }
    uint64_t left(uint32_t target, uint32_t device) const
    {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < ranks; i++) {
            sum += queues[target * all + device * ranks + i].size();
        }
        return sum;
    }
    uint32_t tag() { return draw(3) * (WEIR_WINDOW_TAG_MAX / 2); }
    // A call of `rank` that can end when all calls before it have been made. False if there is none.
    bool next(uint32_t rank, weirt_window_step *step)
    {
        const uint32_t other = draw(all);
        const uint32_t wanted = draw(2) == 0 ? WEIR_ANY_TAG : tag();
        const uint32_t most = 1 + draw(4);
        uint32_t found = 0;
        uint64_t count = 0;
        if (draw(2) == 0) {
            const uint32_t sent = tag();
            queues[other * all + rank].push_back(sent);
            *step = notify(other, sent);
            return left(other, rank / ranks) < MOST_LEFT || remove_last(other, rank);
        }
        while (count < most && remove(rank, other, wanted, &found)) {
            count++;
        }
        if (count == 1) {
            *step = take(other, wanted, found);
        } else {
            *step = step_of(draw(2) == 0 ? WEIRT_CALL_WAIT : WEIRT_CALL_POLL_UNTIL, other, wanted);
            step->count = count;
        }
        return count != 0;
    }
    bool remove_last(uint32_t target, uint32_t source)
    {
        queues[target * all + source].pop_back();
        return false;
    }
};

// All devices make the same scripts from the seed. A call names its source, so its result does not depend on the order
// of sources. In the end each rank takes what is left.
void random_scripts(weirt_rank *rank)
{
    Bench bench;
    const char *only = std::getenv("WEIR_WINDOW_SEED");
    const uint64_t seed = only != nullptr ? std::strtoull(only, nullptr, 10) : 1 + rank->size;
    weirt_log_allow("WEIR_WINDOW_SEED is set");
    bool fine = open_script(rank, &bench, 1);
    Reference reference(seed, rank->size, bench.ranks);
    for (uint32_t i = 0; i <= SCRIPTS && fine; i++) {
        std::vector<Script> scripts(rank->size, Script(bench.ranks));
        for (uint32_t k = 0; k < 12 * reference.all && i < SCRIPTS; k++) {
            const uint32_t caller = reference.draw(reference.all);
            auto &calls = scripts[caller / bench.ranks][caller % bench.ranks];
            weirt_window_step step;
            if (calls.size() < WEIRT_WINDOW_STEPS && reference.next(caller, &step)) {
                calls.push_back(step);
            }
        }
        for (uint32_t k = 0; k < reference.queues.size() && i == SCRIPTS; k++) {
            const uint32_t target = k / reference.all;
            scripts[target / bench.ranks][target % bench.ranks].push_back(
                wait(k % reference.all, WEIR_ANY_TAG, reference.queues[k].size()));
        }
        const Script &mine = scripts[rank->rank];
        fine = bench.run(rank, mine);
        for (uint32_t k = 0; k < mine.size(); k++) {
            for (uint32_t n = 0; n < mine[k].size(); n++) {
                fine = fine && WEIRT_EXPECT(rank, mine[k][n].call != WEIRT_CALL_TAKE ||
                                                      bench.result(k, n).source == mine[k][n].peer);
            }
        }
        fine = weirt_barrier(rank) && fine;
    }
    if (fine) {
        const weirt_window_step nothing = poll(ANY, WEIR_ANY_TAG);
        WEIRT_OK(rank, bench.launch_script(rank, { { nothing }, { nothing } }));
        WEIRT_OK(rank, bench.finish());
        WEIRT_EXPECT(rank,
                     bench.result(0, 0).status[0] == WEIR_PENDING && bench.result(1, 0).status[0] == WEIR_PENDING);
    } else {
        weirt_fail(rank, __FILE__, __LINE__, "WEIR_WINDOW_SEED=%llu", static_cast<unsigned long long>(seed));
    }
    close_script(rank, &bench);
}

TEST_P(WindowRandom, ScriptsOfOneDevice) { run(1, random_scripts, 2, 64); }
TEST_P(WindowRandom, ScriptsOfThreeDevices) { run(3, random_scripts, 2, 64); }

} // namespace
