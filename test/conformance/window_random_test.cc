// Random scripts of a window's calls, whose results are those of a reference.
#include <algorithm>
#include <deque>
#include <random>

#include "window_ways.h"

namespace {

using namespace windows;

WEIRT_WINDOW_SUITE(WindowRandom);

constexpr uint32_t SCRIPTS = 60;
constexpr uint32_t CALLS = 16;     // of a script, before a sweep
constexpr uint32_t MOST_LEFT = 60; // notifications of one device that a script may leave

// What the takes of any rank at the end of a rank's script must get: the tags of each source, in their order.
using Sweep = std::vector<std::deque<uint32_t>>;

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
    // Removes all notifications to the target that match, and returns their tags by source. Nothing if there are more
    // than `most`.
    Sweep sweep(uint32_t target, uint32_t tag, uint64_t most)
    {
        Sweep found(all);
        const auto first = queues.begin() + target * all;
        const Sweep before(first, first + all);
        uint64_t count = 0;
        for (uint32_t source = 0; source < all; source++) {
            for (uint32_t next = 0; remove(target, source, tag, &next); count++) {
                found[source].push_back(next);
            }
        }
        if (count > most) {
            std::copy(before.begin(), before.end(), first);
            return {};
        }
        return found;
    }
};

// Makes a script for each device, in which the calls of all ranks are in the order of the reference. Behind them a rank
// may take all notifications of any rank with a tag, or with any: how many there are then does not depend on when they
// arrive.
void make_scripts(Reference *reference, std::vector<Script> *scripts, std::vector<Sweep> *sweeps)
{
    const uint32_t ranks = reference->ranks;
    for (uint32_t k = 0; k < 12 * reference->all; k++) {
        const uint32_t caller = reference->draw(reference->all);
        auto &calls = (*scripts)[caller / ranks][caller % ranks];
        weirt_window_step step;
        if (calls.size() < CALLS && reference->next(caller, &step)) {
            calls.push_back(step);
        }
    }
    for (uint32_t rank = 0; rank < reference->all; rank++) {
        auto &calls = (*scripts)[rank / ranks][rank % ranks];
        const uint32_t tag = reference->draw(2) == 0 ? WEIR_ANY_TAG : reference->tag();
        const uint32_t how = reference->draw(4);
        if (how == 0) {
            continue;
        }
        Sweep sweep = reference->sweep(rank, tag, WEIRT_WINDOW_STEPS - calls.size());
        uint64_t count = 0;
        for (const std::deque<uint32_t> &tags : sweep) {
            count += tags.size();
        }
        if (how == 1 && count != 0) {
            calls.push_back(step_of(reference->draw(2) == 0 ? WEIRT_CALL_WAIT : WEIRT_CALL_POLL_UNTIL, ANY, tag));
            calls.back().count = count;
        } else {
            calls.insert(calls.end(), count, take(ANY, tag, tag));
            (*sweeps)[rank] = std::move(sweep);
        }
    }
}

// Checks the sources and tags that the takes of a rank's script got.
bool check_takes(weirt_rank *rank, const Bench &bench, uint32_t index, const std::vector<weirt_window_step> &calls,
                 Sweep sweep)
{
    bool fine = true;
    for (uint32_t n = 0; n < calls.size(); n++) {
        const weirt_window_result &got = bench.result(index, n);
        if (calls[n].call != WEIRT_CALL_TAKE) {
            continue;
        }
        if (calls[n].peer != ANY) {
            fine = WEIRT_EXPECT(rank, got.source == calls[n].peer) && fine;
        } else if (WEIRT_EXPECT(rank, got.source < sweep.size()) &&
                   WEIRT_EXPECT(rank, !sweep[got.source].empty() && sweep[got.source].front() == got.tag)) {
            sweep[got.source].pop_front();
        } else {
            fine = false;
        }
    }
    return fine;
}

// All devices make the same scripts from the seed. A call names its source, unless it is one of those that take all
// that match, so what is left does not depend on the order of sources. In the end each rank takes what is left.
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
        std::vector<Sweep> sweeps(reference.all);
        if (i < SCRIPTS) {
            make_scripts(&reference, &scripts, &sweeps);
        }
        for (uint32_t k = 0; k < reference.queues.size() && i == SCRIPTS; k++) {
            const uint32_t target = k / reference.all;
            scripts[target / bench.ranks][target % bench.ranks].push_back(
                wait(k % reference.all, WEIR_ANY_TAG, reference.queues[k].size()));
        }
        const Script &mine = scripts[rank->rank];
        fine = bench.run(rank, mine);
        for (uint32_t k = 0; k < mine.size() && fine; k++) {
            fine = check_takes(rank, bench, k, mine[k], sweeps[rank->rank * bench.ranks + k]);
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
