// Teams: their members connect, share memory and agree. An error of one member is the status of all, with a text that
// names the rank at fault.
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <vector>

#include "test/harness/checks.h"
#include "test/harness/comm.h"
#include "test/harness/stage_test.h"
#include "weir/port_channel.h"

extern "C" {
#include "src/host/base/error.h"
#include "src/host/window/team.h"
}

namespace {

constexpr uint64_t TAG = 0x7465737400000000;
constexpr uint64_t ACROSS_TAG = TAG + 1;
constexpr uint64_t WORDS = 512;

uint64_t word_of(uint32_t rank, uint64_t i) { return 1000003 * (uint64_t{ rank } + 1) + i; }

std::vector<uint64_t> words_of(uint32_t rank)
{
    std::vector<uint64_t> words(WORDS);
    for (uint64_t i = 0; i < WORDS; i++) {
        words[i] = word_of(rank, i);
    }
    return words;
}

// A team of all ranks and its objects.
struct TeamBench {
    weirt_comm c = {};
    weiri_team team = {};
    weir_memory *local = nullptr;
    weiri_team_memory memory = {};

    bool open(weirt_rank *rank)
    {
        if (!weirt_comm_open(rank, 0, &c)) {
            return false;
        }
        weiri_team_init(&team, c.comm, TAG);
        for (uint32_t i = 0; i < rank->size; i++) {
            weiri_team_add(&team, i);
        }
        return WEIRT_EXPECT(rank, team.rank == rank->rank && team.size == rank->size);
    }
    weir_status allocate(uint32_t rank, uint64_t bytes)
    {
        const std::vector<uint64_t> words = words_of(rank);
        weir_status status = weir_memory_allocate(c.comm, bytes, nullptr, &local);
        return status == WEIR_OK
                   ? weir_device_copy(c.device, weir_memory_pointer(local), words.data(), WORDS * sizeof words[0])
                   : status;
    }
    weir_status agree(weir_status mine, bool waits) { return weiri_team_agree(&team, nullptr, "test", mine, waits); }
    // All steps, as a client takes them.
    weir_status set_up(uint32_t rank, bool mapped)
    {
        weir_status status = agree(allocate(rank, WORDS * 8), false);
        if (status == WEIR_OK) {
            status = agree(weiri_team_connect(&team, "test", nullptr), true);
        }
        if (status == WEIR_OK) {
            status = agree(weiri_team_share(&team, "test", local, mapped, &memory), true);
        }
        return status;
    }
    void close()
    {
        weiri_team_memory_close(&memory);
        weiri_team_close(&team);
        weir_memory_destroy(local);
        local = nullptr;
    }
};

void members_share(weirt_rank *rank)
{
    TeamBench b;
    if (b.open(rank) && WEIRT_OK(rank, b.set_up(rank->rank, true))) {
        for (uint32_t k = 0; k < rank->size; k++) {
            std::vector<uint64_t> have(WORDS);
            weir_memory *memory = weiri_team_memory_of(&b.memory, k);
            WEIRT_EXPECT(rank, (memory == b.local) == (k == rank->rank));
            WEIRT_EXPECT(rank, (b.team.connections[k] == nullptr) == (k == rank->rank));
            WEIRT_OK(rank, weir_device_copy(b.c.device, have.data(), weir_memory_pointer(memory), WORDS * 8));
            WEIRT_EXPECT(rank, have == words_of(k));
        }
        WEIRT_EXPECT(rank, b.team.lines);
    }
    (void)weirt_barrier(rank);
    b.close();
    weirt_comm_close(&b.c);
}

// A rank fails at any step, or has different words. Afterwards the team works again.
void one_fails(weirt_rank *rank)
{
    TeamBench b;
    const uint32_t bad = rank->size - 1;
    if (b.open(rank)) {
        for (bool waits : { false, true }) {
            const weir_status mine = rank->rank == bad ? weiri_fail(WEIR_ERR_LIMIT, "test: no room for 7")
                                                       : static_cast<weir_status>(WEIR_OK);
            WEIRT_STATUS(rank, WEIR_ERR_LIMIT, b.agree(mine, waits));
            WEIRT_TEXT(rank, rank->rank == bad
                                 ? "test: no room for 7"
                                 : ("test: rank " + std::to_string(bad) + " failed: test: no room for 7").c_str());
            WEIRT_OK(rank, b.agree(WEIR_OK, true));
        }
        b.team.words[7] = rank->rank == bad;
        b.team.differ = "counts otherwise";
        WEIRT_STATUS(rank, rank->size > 1 ? WEIR_ERR_MISMATCH : WEIR_OK, b.agree(WEIR_OK, true));
        if (rank->size > 1) {
            WEIRT_TEXT(rank, rank->rank == bad ? "test: rank 0 counts otherwise" : " counts otherwise");
        }
        b.team.words[7] = 0;
        b.team.lines = rank->rank != bad;
        WEIRT_OK(rank, b.agree(WEIR_OK, true));
        WEIRT_EXPECT(rank, !b.team.lines);
        b.team.lines = true;
        WEIRT_OK(rank, b.set_up(rank->rank, true));
    }
    (void)weirt_barrier(rank);
    b.close();
    // Memories of two sizes.
    const bool fine = b.c.comm != nullptr && WEIRT_OK(rank, b.allocate(rank->rank, rank->rank == bad ? 16384 : 8192));
    if (fine) {
        const weir_status status = b.agree(weiri_team_share(&b.team, "test", b.local, true, &b.memory), true);
        WEIRT_EXPECT(rank, status == (rank->size > 1 ? WEIR_ERR_MISMATCH : WEIR_OK));
        if (rank->size > 1 && rank->rank == bad) {
            WEIRT_TEXT(rank, "test: rank 0 has a memory of 8192 bytes, this rank of 16384");
        }
    }
    (void)weirt_barrier(rank);
    weiri_team_memory_close(&b.memory);
    weir_memory_destroy(b.local);
    weirt_comm_close(&b.c);
}

// Rows and columns of two: an error of the last rank reaches rank 0, which shares no team with it, and names the last
// rank.
void error_goes_across(weirt_rank *rank)
{
    weirt_comm c;
    if (weirt_comm_open(rank, 0, &c)) {
        weiri_team row;
        weiri_team column;
        weiri_team_init(&row, c.comm, TAG);
        weiri_team_init(&column, c.comm, ACROSS_TAG);
        for (uint32_t i = 0; i < 2; i++) {
            weiri_team_add(&row, rank->rank / 2 * 2 + i);
            weiri_team_add(&column, i * 2 + rank->rank % 2);
        }
        for (bool waits : { false, true }) {
            const weir_status mine =
                rank->rank == 3 ? weiri_fail(WEIR_ERR_NOMEM, "test: out of memory") : static_cast<weir_status>(WEIR_OK);
            WEIRT_STATUS(rank, WEIR_ERR_NOMEM, weiri_team_agree(&row, &column, "test", mine, waits));
            WEIRT_TEXT(rank, rank->rank == 3 ? "test: out of memory" : "test: rank 3 failed: test: out of memory");
            WEIRT_EXPECT(rank, std::strstr(weir_last_error(), "rank 1") == nullptr);
            WEIRT_EXPECT(rank, std::strstr(weir_last_error(), "rank 2") == nullptr);
            WEIRT_OK(rank, weiri_team_agree(&row, &column, "test", WEIR_OK, true));
        }
    }
    weirt_comm_close(&c);
}

// Over a transport that maps nothing, a peer's memory has no address here and is a target of transfers.
void unmapped_memory(weirt_rank *rank)
{
    TeamBench b;
    const uint32_t peer = (rank->rank + 1) % rank->size;
    const uint32_t from = (rank->rank + rank->size - 1) % rank->size;
    weir_proxy *proxy = nullptr;
    weir_port_channel *channels[WEIRT_RANKS_MAX] = {};
    weir_semaphore *semaphores[WEIRT_RANKS_MAX] = {};
    bool fine = b.open(rank) && WEIRT_OK(rank, b.set_up(rank->rank, false)) &&
                WEIRT_OK(rank, weir_proxy_create(b.c.comm, nullptr, &proxy));
    for (uint32_t k = 0; k < rank->size && fine; k++) {
        weir_memory *remote = b.memory.remote[k];
        if (k == rank->rank) {
            continue;
        }
        fine = WEIRT_EXPECT(rank, remote != nullptr && weir_memory_pointer(remote) == nullptr) &&
               WEIRT_OK(rank, weir_semaphore_create(b.team.connections[k], TAG, nullptr, &semaphores[k])) &&
               WEIRT_OK(rank, weir_port_channel_create(proxy, semaphores[k], remote, b.local, nullptr, &channels[k]));
    }
    fine = fine && WEIRT_OK(rank, weir_proxy_start(proxy));
    (void)weirt_barrier(rank);
    // The second half of this rank's memory goes into the first half of the next one's.
    fine = fine && WEIRT_OK(rank, weir_port_channel_put(channels[peer], 0, WORDS * 4, WORDS * 4, nullptr)) &&
           WEIRT_OK(rank, weir_port_channel_flush(channels[peer]));
    (void)weirt_barrier(rank);
    std::vector<uint64_t> have(WORDS);
    if (fine && WEIRT_OK(rank, weir_device_copy(b.c.device, have.data(), weir_memory_pointer(b.local), WORDS * 8))) {
        bool right = true;
        for (uint64_t i = 0; i < WORDS; i++) {
            right = right && have[i] == (i < WORDS / 2 ? word_of(from, i + WORDS / 2) : word_of(rank->rank, i));
        }
        WEIRT_EXPECT(rank, right);
    }
    (void)weirt_barrier(rank);
    for (uint32_t k = 0; k < rank->size; k++) {
        weir_port_channel_destroy(channels[k]);
        weir_semaphore_destroy(semaphores[k]);
    }
    weir_proxy_destroy(proxy);
    // A caller that needs mapped memory gets an error.
    weiri_team_memory mapped = {};
    if (fine) {
        WEIRT_STATUS(rank, WEIR_ERR_UNSUPPORTED,
                     b.agree(weiri_team_share(&b.team, "test", b.local, true, &mapped), true));
        WEIRT_TEXT(rank, "test: memory of rank ");
        WEIRT_TEXT(rank, " is not mapped here");
    }
    (void)weirt_barrier(rank);
    weiri_team_memory_close(&mapped);
    b.close();
    weirt_comm_close(&b.c);
}

// Groups from callers: their errors, and this rank's place.
void groups(weirt_rank *rank)
{
    weirt_comm c;
    if (weirt_comm_open(rank, 0, &c)) {
        const uint32_t last[] = { 1, 2 };
        const uint32_t back[] = { 2, 1 };
        const uint32_t beyond[] = { rank->rank, 3 };
        weir_group group = { last, 2 };
        uint32_t place = 77;
        uint32_t size = 77;
        WEIRT_OK(rank, weiri_group_check(c.comm, nullptr, 3, "test", &place, &size));
        WEIRT_EXPECT(rank, place == rank->rank && size == 3);
        WEIRT_STATUS(rank, WEIR_ERR_LIMIT, weiri_group_check(c.comm, nullptr, 2, "test", &place, &size));
        WEIRT_TEXT(rank, "test: 3 ranks, but at most 2 are possible");
        WEIRT_STATUS(rank, rank->rank == 0 ? WEIR_ERR_INVALID : WEIR_OK,
                     weiri_group_check(c.comm, &group, 3, "test", &place, &size));
        WEIRT_EXPECT(rank, rank->rank == 0 || (place == rank->rank - 1 && size == 2));
        group.ranks = back;
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weiri_group_check(c.comm, &group, 3, "test", &place, &size));
        group.ranks = beyond;
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weiri_group_check(c.comm, &group, 3, "test", &place, &size));
        WEIRT_TEXT(rank, "ascending order");
        group = { last, 0 };
        WEIRT_STATUS(rank, WEIR_ERR_INVALID, weiri_group_check(c.comm, &group, 3, "test", &place, &size));
        WEIRT_TEXT(rank, "empty");
    }
    weirt_comm_close(&c);
}

WEIRT_STAGE_RANKS_SUITE(Team, 1, 3, 5);

TEST_P(Team, MembersShareMemory) { run(members_share); }
TEST_P(Team, ErrorOfOneIsTheStatusOfAll) { run(one_fails); }

WEIRT_STAGE_SUITE(TeamTrouble);

TEST_P(TeamTrouble, ErrorGoesAcrossToRanksOfOtherTeams) { run(4, error_goes_across); }
TEST_P(TeamTrouble, GroupsAreChecked) { run(3, groups); }

TEST_P(TeamTrouble, UnmappedMemoryIsATargetOfTransfers)
{
    if (std::strcmp(weirt_sanitizer(), "thread") == 0) {
        GTEST_SKIP() << "the library of transport ofi is not built with the thread sanitizer";
    }
    if (std::strcmp(stage()->kind, "gpu") == 0) {
        GTEST_SKIP() << "mapping does not depend on the kind of memory";
    }
    weir_transport_info info;
    bool works = false;
    for (uint32_t i = 0; weir_transport_get(i, &info) == WEIR_OK; i++) {
        works = works || (std::strcmp(info.name, "ofi") == 0 && info.works);
    }
    if (!works) {
        GTEST_SKIP() << "no transport ofi here";
    }
    setenv("WEIR_TRANSPORT", "ofi", 1);
    run(3, unmapped_memory);
    unsetenv("WEIR_TRANSPORT");
}

// ---- allocations that fail, and ranks that die ---------------------------------------------------------------------

// Whether the communicator fails soon.
bool comm_fails(weir_comm *comm)
{
    const uint64_t end = weirt_now_ms() + weirt_timeout_ms();
    while (weir_comm_status(comm) == WEIR_OK && weirt_now_ms() < end) {
        weirt_sleep_ms(1);
    }
    return weir_comm_status(comm) != WEIR_OK;
}

// One n in its own job: both ranks are set up, or neither is. A rank without memory for the last message breaks the
// communicator of the other rank, which may be set up by then. Returns whether there may be more allocations.
bool try_with_fault(weirt_rank *rank, uint64_t n)
{
    TeamBench b;
    (void)weirt_barrier(rank);
    const int64_t before = weirt_count_allocations();
    (void)weirt_barrier(rank);
    const bool open = b.open(rank);
    (void)weirt_barrier(rank);
    if (rank->rank == 0) {
        (void)weirt_fail_allocation(n);
    }
    (void)weirt_barrier(rank);
    const weir_status status = open ? b.set_up(rank->rank, true) : WEIR_ERR_INVALID;
    if (status != WEIR_OK) {
        WEIRT_TEXT(rank, ": ");
    }
    weirt_step(rank, static_cast<uint32_t>(4 * n) + (status == WEIR_OK));
    (void)weirt_barrier(rank);
    if (status == WEIR_OK && weirt_step_now(rank, 0) != weirt_step_now(rank, 1)) {
        WEIRT_EXPECT(rank, comm_fails(b.c.comm));
    }
    (void)weirt_barrier(rank);
    b.close();
    weirt_comm_close(&b.c);
    (void)weirt_barrier(rank);
    if (rank->rank == 0) {
        const bool happened = weirt_fail_allocation(0) == 0;
        const int64_t left = weirt_count_allocations() - before;
        WEIRT_EXPECT(rank, happened || status == WEIR_OK);
        if (left != 0) {
            weirt_fail(rank, __FILE__, __LINE__, "allocation %llu failed: %lld allocations left behind",
                       static_cast<unsigned long long>(n), static_cast<long long>(left));
        }
        weirt_step(rank, static_cast<uint32_t>(4 * n) + 2 + happened);
    }
    (void)weirt_barrier(rank);
    return weirt_step_now(rank, 0) % 2 == 1;
}

void nth_fails(weirt_rank *rank)
{
    uint64_t n = 1;
    weirt_log_allow(""); // depends on what failed
    while (n < 500 && try_with_fault(rank, n)) {
        n++;
    }
    WEIRT_EXPECT(rank, n > 20 && n < 500);
}

TEST_P(TeamTrouble, NthAllocationFails)
{
    if (std::strcmp(stage()->kind, "gpu") == 0 || stage()->processes) {
        GTEST_SKIP() << "threads on the CPU make the same allocations";
    }
    run(2, nth_fails);
}

// Rank 2 dies between two steps.
void member_dies(weirt_rank *rank)
{
    TeamBench b;
    weirt_log_allow("");
    if (b.open(rank) && WEIRT_OK(rank, b.agree(WEIR_OK, true))) {
        (void)weirt_barrier(rank);
        if (rank->rank == 2) {
            weirt_die(rank, WEIRT_KILL);
        }
        WEIRT_STATUS(rank, WEIR_ERR_REMOTE, b.set_up(rank->rank, true));
        WEIRT_TEXT(rank, "rank 2 died");
    }
    b.close();
    weirt_comm_close(&b.c);
}

WEIRT_PROCESS_SUITE(TeamDeath);

TEST_P(TeamDeath, OthersFindOut) { run(3, member_dies); }

} // namespace
