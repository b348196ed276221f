// Parts of the device headers that need no kernel: on the CPU they are plain functions.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <weir/device/collective.h>
#include <weir/device/fifo.h>
#include <weir/device/memory_channel.h>

namespace {

TEST(DeviceParts, FirstErrorIsKept)
{
    weir_dev_control control = {};
    weir_dev_control_begin(&control, 0);
    EXPECT_EQ(weir_dev_control_status(&control), WEIR_OK);
    EXPECT_EQ(weir_dev_control_error(&control), WEIR_ERR_ABORTED);
    EXPECT_EQ(weir_dev_control_fail(&control, WEIR_ERR_RANGE), WEIR_ERR_RANGE);
    EXPECT_EQ(weir_dev_control_fail(&control, WEIR_ERR_TIMEOUT), WEIR_ERR_TIMEOUT);
    EXPECT_EQ(weir_dev_control_status(&control), WEIR_ERR_RANGE);
    EXPECT_EQ(weir_dev_control_error(&control), WEIR_ERR_RANGE);
}

std::string name_in(const weir_dev_control &control) { return reinterpret_cast<const char *>(control.kernel); }

// The first failure keeps its whole record, and a thread without a kernel has no name.
TEST(DeviceParts, FirstFailureIsRecorded)
{
    weir_dev_control control = {};
    weir_dev_control_begin(&control, 200000000);
    weir_dev_note note = weir_dev_note_of(WEIR_DOING_PUT, 5, 1ull << 40, 7, 9);
    note.index = 3;
    weir_arch_name_kernel("a_name_of_more_than_sixty_three_bytes_is_cut_behind_its_first_63_of_them");
    EXPECT_EQ(weir_dev_control_end_wait(&control, WEIR_SPIN_LATE, note), WEIR_ERR_TIMEOUT);
    weir_arch_name_kernel(nullptr);
    EXPECT_EQ(weir_dev_control_fail(&control, WEIR_ERR_RANGE), WEIR_ERR_RANGE);
    EXPECT_EQ(control.error_status, WEIR_ERR_TIMEOUT);
    EXPECT_EQ(control.record.note.doing, WEIR_DOING_PUT);
    EXPECT_EQ(control.record.note.peer, 5u);
    EXPECT_EQ(control.record.note.index, 3u);
    EXPECT_EQ(control.record.note.numbers[0], 1ull << 40);
    EXPECT_EQ(control.record.note.numbers[1], 7u);
    EXPECT_EQ(control.record.note.numbers[2], 9u);
    EXPECT_EQ(control.record.waited_ns, 200000000u);
    EXPECT_EQ(name_in(control), "a_name_of_more_than_sixty_three_bytes_is_cut_behind_its_first_6");

    weir_dev_control other = {};
    weir_dev_control_begin(&other, 200000000);
    EXPECT_EQ(weir_dev_control_fail_in(&other, WEIR_ERR_RANGE, note), WEIR_ERR_RANGE);
    EXPECT_EQ(other.record.waited_ns, 0u); // only deadlines set it
    EXPECT_EQ(name_in(other), "");
}

// A thread that fails while another one writes its record returns its own status. Threads that then ask for the error
// get the status of the first.
TEST(DeviceParts, TheSecondFailureKeepsTheFirst)
{
    weir_dev_control control = {};
    weir_dev_control_begin(&control, 200000000);
    control.claimed = static_cast<uint32_t>(WEIR_ERR_TIMEOUT);
    const weir_dev_note note = weir_dev_note_of(WEIR_DOING_PUT, 5, 0, 0, 0);
    EXPECT_EQ(weir_dev_control_fail_in(&control, WEIR_ERR_RANGE, note), WEIR_ERR_RANGE);
    EXPECT_EQ(control.claimed, static_cast<uint32_t>(WEIR_ERR_TIMEOUT));
    EXPECT_EQ(control.error_status, 0);
    EXPECT_EQ(control.record.note.peer, 0u);
    EXPECT_EQ(weir_dev_control_error(&control), WEIR_ERR_TIMEOUT);
}

// Of two calls that report an error, the first one is kept with its record. The second does not wait.
TEST(DeviceParts, AReportKeepsTheFirstError)
{
    weir_dev_control control = {};
    weir_dev_control_begin(&control, 200000000);
    weir_dev_note note = weir_dev_note_of(WEIR_DOING_AT, 5, 1ull << 40, 7, 9);
    note.index = 3;
    weir_arch_name_kernel("a_kernel");
    weir_dev_control_report(&control, WEIR_ERR_RANGE, note);
    weir_arch_name_kernel(nullptr);
    weir_dev_control_report(&control, WEIR_ERR_UNSUPPORTED, weir_dev_note_of(WEIR_DOING_SIGNAL, 6, 0, 0, 0));
    EXPECT_EQ(control.error_status, WEIR_ERR_RANGE);
    EXPECT_EQ(weir_dev_control_status(&control), WEIR_ERR_RANGE);
    EXPECT_EQ(control.record.note.doing, WEIR_DOING_AT);
    EXPECT_EQ(control.record.note.peer, 5u);
    EXPECT_EQ(control.record.note.index, 3u);
    EXPECT_EQ(control.record.note.numbers[0], 1ull << 40);
    EXPECT_EQ(control.record.note.numbers[2], 9u);
    EXPECT_EQ(control.record.waited_ns, 0u);
    EXPECT_EQ(name_in(control), "a_kernel");

    weir_dev_control claimed = {};
    weir_dev_control_begin(&claimed, 0);
    claimed.claimed = static_cast<uint32_t>(WEIR_ERR_TIMEOUT); // another thread is about to store its error
    weir_dev_control_report(&claimed, WEIR_ERR_RANGE, note);
    EXPECT_EQ(claimed.error_status, 0);
}

// An error that the communicator already has is passed on and is not a failure of this thread.
TEST(DeviceParts, PassingAnErrorOnRecordsNothing)
{
    weir_dev_control control = {};
    weir_dev_control_begin(&control, 0);
    const weir_dev_note note = weir_dev_note_of(WEIR_DOING_WAIT, 1, 2, 0, 0);
    EXPECT_EQ(weir_dev_control_end_wait(&control, WEIR_ERR_REMOTE, note), WEIR_ERR_REMOTE);
    EXPECT_EQ(weir_dev_control_end_wait(&control, WEIR_OK, note), WEIR_OK);
    EXPECT_EQ(control.claimed, 0u);
    EXPECT_EQ(control.error_status, 0);
}

// Waits that another thread of the same rank must end, too, say at their deadline what they waited for.
TEST(DeviceParts, WaitsForThreadsOfThisRankAreRecorded)
{
    weir_dev_control control = {};
    weir_dev_control_begin(&control, 150000000);
    weir_dev_credits credits = {}; // another thread has taken room of which `seen` does not know yet
    alignas(64) uint64_t slots[4 * WEIR_FIFO_SLOT_WORDS] = {};
    uint64_t head = 4;
    uint64_t tail = 0;
    weir_dev_fifo fifo = {};
    fifo.control = &control;
    fifo.credits = &credits;
    fifo.head = &head;
    fifo.slots = slots;
    fifo.tail = &tail;
    fifo.count = 4;
    const weir_request request = {};
    EXPECT_EQ(weir_dev_fifo_write(&fifo, &request), 4u);
    EXPECT_EQ(control.error_status, WEIR_ERR_TIMEOUT);
    EXPECT_EQ(control.record.note.doing, WEIR_DOING_FIFO_PUSH);
    EXPECT_EQ(control.record.waited_ns, 150000000u);
}

// Rank 1 has called something else, which block 1 of rank 0 finds. Block 0 does not report it.
TEST(DeviceParts, WaitForTheReportOfAnotherBlockIsRecorded)
{
    alignas(64) static char memory[2][1 << 14];
    weir_dev_control control = {};
    weir_dev_control_begin(&control, 150000000);
    weir_dev_collective c = {};
    c.control = &control;
    c.memory[0] = memory[0];
    c.memory[1] = memory[1];
    c.ranks = 2;
    c.blocks = 2;
    c.peers[1] = 7;
    c.call = 5;
    c.count = 9;
    weir_dev_collective peer = c;
    peer.rank = 1;
    ASSERT_LE(weir_collective_mailbox(&c, 2, 0, 0), sizeof memory[0]);
    weir_coop one = {};
    one.size = one.block_size = one.blocks = 1;
    const uint32_t flag = 0x80000001u;
    const weir_collective_what mine = { 5, 9, 0 };
    const weir_collective_what theirs = { 6, 9, 0 };
    weir_collective_announce(&peer, &theirs, nullptr, flag, 1, 0, one);
    EXPECT_EQ(weir_collective_compare(&c, &mine, nullptr, flag, 1, 0, one), WEIR_ERR_TIMEOUT);
    EXPECT_EQ(control.error_status, WEIR_ERR_TIMEOUT);
    EXPECT_EQ(control.record.note.doing, WEIR_DOING_COLLECTIVE);
    EXPECT_EQ(control.record.note.peer, 7u);
    EXPECT_EQ(control.record.note.numbers[0], 5u);
    EXPECT_EQ(control.record.note.numbers[1], 9u);
    EXPECT_EQ(control.record.waited_ns, 150000000u);
}

// The calls of three ranks in their mailboxes; rank 2 compares.
struct Three {
    alignas(64) char memory[3][1 << 14] = {};
    weir_dev_control control = {};
    weir_dev_difference differences[3] = {};
    weir_dev_collective c[3] = {};
    weir_coop one = {};
    static constexpr uint32_t flag = 0x80000001u;

    Three()
    {
        weir_dev_control_begin(&control, 60000000000u);
        one.size = one.block_size = one.blocks = 1;
        for (uint32_t r = 0; r < 3; r++) {
            c[r].control = &control;
            c[r].differences = differences;
            c[r].rank = r;
            c[r].ranks = 3;
            c[r].blocks = 1;
            for (uint32_t k = 0; k < 3; k++) {
                c[r].memory[k] = memory[k];
            }
        }
    }
    void call(uint32_t rank, const weir_collective_what &what, const weir_collective_pieces *pieces = nullptr)
    {
        weir_collective_announce(&c[rank], &what, pieces, flag, 0, 0, one);
    }
    weir_status compare(const weir_collective_what &mine)
    {
        return weir_collective_compare(&c[2], &mine, nullptr, flag, 0, 0, one);
    }
    static bool is(const uint64_t *words, uint64_t call, uint64_t count)
    {
        return words[0] == call && words[2] == count;
    }
};

// Ranks 1 and 2 differ from rank 0, and rank 1 is the first.
TEST(DeviceParts, TheFirstRankThatDiffersIsRecorded)
{
    Three t;
    t.call(0, { 5, 9, 0 });
    t.call(1, { 5, 8, 0 });
    EXPECT_EQ(t.compare({ 5, 7, 0 }), WEIR_ERR_MISMATCH);
    EXPECT_EQ(t.differences[2].found, 1u);
    EXPECT_EQ(t.differences[2].first, 1u + 1);
    EXPECT_TRUE(Three::is(t.differences[2].mine, 5, 8));
    EXPECT_TRUE(Three::is(t.differences[2].theirs, 5, 9));
    EXPECT_EQ(t.differences[0].found + t.differences[1].found, 0u);
}

// Rank 1 differs from rank 0 in its count alone, and rank 2 calls another operation.
TEST(DeviceParts, ACountIsADifferenceForARankOfAnotherOperation)
{
    Three t;
    t.call(0, { 5, 9, 0 });
    t.call(1, { 5, 8, 0 });
    EXPECT_EQ(t.compare({ 6, 9, 0 }), WEIR_ERR_MISMATCH);
    EXPECT_EQ(t.differences[2].first, 1u + 1);
    EXPECT_TRUE(Three::is(t.differences[2].mine, 5, 8));
}

// Ranks 0 and 1 make the same call, which sends rank 2 different counts.
TEST(DeviceParts, CountsOfAnotherOperationDoNotDiffer)
{
    Three t;
    weir_collective_pieces pieces[2][3] = {};
    pieces[0][2].send.bytes = 9;
    pieces[1][2].send.bytes = 8;
    t.call(0, { 6 | WEIR_CALL_COUNTED, 0, 0 }, pieces[0]);
    t.call(1, { 6 | WEIR_CALL_COUNTED, 0, 0 }, pieces[1]);
    EXPECT_EQ(t.compare({ 5, 7, 0 }), WEIR_ERR_MISMATCH);
    EXPECT_EQ(t.differences[2].found, 1u);
    EXPECT_EQ(t.differences[2].first, 2u + 1);
    EXPECT_TRUE(Three::is(t.differences[2].mine, 5, 7));
    EXPECT_TRUE(Three::is(t.differences[2].theirs, 6 | WEIR_CALL_COUNTED, 9));
}

// Rank 0 calls nothing. After two seconds, long before the deadline, rank 2 records itself and rank 1.
TEST(DeviceParts, ASilentRankDelaysNoDifference)
{
    Three t;
    weir_coop second = t.one; // the thread that compares rank 1 alone
    second.block_size = 3;
    second.block_rank = 1;
    t.call(1, { 5, 8, 0 });
    const weir_collective_what mine = { 5, 7, 0 };
    const uint64_t begin = weir_arch_clock_ns();
    EXPECT_EQ(weir_collective_compare(&t.c[2], &mine, nullptr, Three::flag, 0, 0, second), WEIR_ERR_MISMATCH);
    EXPECT_LT(weir_arch_clock_ns() - begin, 30000000000u);
    EXPECT_EQ(t.differences[0].found + t.differences[2].found, 0u);
    EXPECT_EQ(t.differences[1].found, 1u);
    EXPECT_EQ(t.differences[1].first, 0u);
    EXPECT_TRUE(Three::is(t.differences[1].mine, 5, 7));
    EXPECT_TRUE(Three::is(t.differences[1].theirs, 5, 8));
}

// A count that grows by one checks at a fixed interval. A thread that has each n-th number also checks sooner or later.
TEST(DeviceParts, EveryLoopOfWaitsLooks)
{
    uint32_t due = 0;
    for (uint64_t number = 0; number < 10 * WEIR_ARCH_LOOK_WAITS; number++) {
        due += weir_spin_is_due(number);
    }
    EXPECT_EQ(due, 10u);
    EXPECT_FALSE(weir_spin_is_due(0));
    for (uint64_t step = 1; step <= 4096; step++) {
        for (uint64_t first = 0; first < 3; first++) {
            uint32_t waits = 1;
            while (waits < 4096u && !weir_spin_is_due_ticket(first + waits * step)) {
                waits++;
            }
            ASSERT_LT(waits, 4096u) << "each " << step << "-th ticket from " << first;
        }
    }
}

// An error at home reaches the block in the device's memory at a look there: at once if relay_ns is 0, otherwise not
// before relay_ns after the last such look. A failure of this device is in both at once.
TEST(DeviceParts, ErrorsAreRelayedFromHome)
{
    weir_dev_control home = {}, at_once = {}, later = {}, own = {};
    weir_dev_control_begin(&home, 7);
    weir_dev_control_begin_relay(&at_once, 7, &home, 0);
    weir_dev_control_begin_relay(&later, 7, &home, 2000000000u);
    weir_dev_control_begin_relay(&own, 7, &home, 2000000000u);
    EXPECT_EQ(at_once.timeout_ns, 7u);
    EXPECT_EQ(weir_dev_control_status(&at_once), WEIR_OK);
    EXPECT_EQ(weir_dev_control_status(&later), WEIR_OK);
    home.abort_status = WEIR_ERR_REMOTE;
    weir_dev_control_end(&home);
    EXPECT_EQ(at_once.ended, 0u);
    EXPECT_EQ(weir_dev_control_status(&at_once), WEIR_ERR_REMOTE);
    EXPECT_EQ(at_once.ended, 1u);
    later.relayed_ns = weir_arch_clock_low_ns();
    EXPECT_EQ(weir_dev_control_status(&later), WEIR_OK);
    later.relayed_ns -= later.relay_ns; // as if the time had passed
    EXPECT_EQ(weir_dev_control_status(&later), WEIR_ERR_REMOTE);
    EXPECT_EQ(weir_dev_control_fail(&own, WEIR_ERR_RANGE), WEIR_ERR_RANGE);
    EXPECT_EQ(own.ended, 1u);
    EXPECT_EQ(home.error_status, WEIR_ERR_RANGE);
    EXPECT_EQ(own.error_status, 0);
    EXPECT_EQ(weir_dev_control_status(&later), WEIR_ERR_RANGE);
}

TEST(DeviceParts, ErrorOfAKernelComesBeforeTheAbortWord)
{
    weir_dev_control control = {};
    weir_dev_control_begin(&control, 0);
    control.abort_status = WEIR_ERR_REMOTE;
    weir_dev_control_end(&control);
    EXPECT_EQ(weir_dev_control_status(&control), WEIR_ERR_REMOTE);
    EXPECT_EQ(weir_dev_control_fail(&control, WEIR_ERR_TIMEOUT), WEIR_ERR_TIMEOUT);
    EXPECT_EQ(weir_dev_control_status(&control), WEIR_ERR_TIMEOUT);
}

TEST(DeviceParts, BothHalvesOfAPacketMustBeThere)
{
    const uint32_t flag = 0x80000007u;
    const uint64_t there = static_cast<uint64_t>(flag) << 32 | 5;
    const uint64_t older = static_cast<uint64_t>(flag - 1) << 32 | 5;
    EXPECT_TRUE(weir_ll16_there(weir_vec16{ there, there }, flag));
    EXPECT_FALSE(weir_ll16_there(weir_vec16{ there, older }, flag));
    EXPECT_FALSE(weir_ll16_there(weir_vec16{ older, there }, flag));
    EXPECT_FALSE(weir_ll16_there(weir_vec16{ 0, 0 }, flag));
}

TEST(DeviceParts, RangesNeverWrapAround)
{
    const uint64_t most = UINT64_MAX;
    EXPECT_TRUE(weir_dev_in_range(0, 0, 0));
    EXPECT_TRUE(weir_dev_in_range(8, 8, 16));
    EXPECT_TRUE(weir_dev_in_range(16, 0, 16));
    EXPECT_FALSE(weir_dev_in_range(9, 8, 16));
    EXPECT_FALSE(weir_dev_in_range(17, 0, 16));
    EXPECT_FALSE(weir_dev_in_range(most, 1, 16));
    EXPECT_FALSE(weir_dev_in_range(1, most, 16));
    EXPECT_FALSE(weir_dev_in_range(most - 7, 8, 16));
    EXPECT_FALSE(weir_dev_in_range(8, most - 7, 16));
}

TEST(DeviceParts, FlagsOfFreshMemoryAreNone)
{
    uint64_t epoch = 0;
    EXPECT_NE(weir_packet_flag(&epoch), 0u);
    epoch = UINT64_MAX;
    EXPECT_EQ(weir_packet_flag(&epoch), UINT32_MAX);
}

TEST(DeviceParts, CountsOfPutsWrapAround)
{
    const uint32_t first = 0x80000000u;
    EXPECT_FALSE(weir_packet_has_come(0, first)); // memory that was never written
    EXPECT_TRUE(weir_packet_has_come(first, first));
    EXPECT_TRUE(weir_packet_has_come(first + 9, first + 3));
    EXPECT_FALSE(weir_packet_has_come(first + 3, first + 4));
    EXPECT_FALSE(weir_packet_has_come(UINT32_MAX, first));
    EXPECT_TRUE(weir_packet_has_come(first, UINT32_MAX));
    EXPECT_TRUE(weir_packet_has_come(first + 1, UINT32_MAX));
}

// The source and the destination end where their memory ends: sanitizers see an access behind it.
TEST(DeviceParts, MisalignedCopiesStayInTheirMemory)
{
    const weir_coop coop = weir_coop_thread(weir_coop_part(0, 1));
    for (uint64_t bytes = 1; bytes <= 200; bytes += bytes < 120 ? 17 : 1) {
        for (uint64_t to = 0; to < 16; to++) {
            const uint64_t from = (to * 7 + bytes) % 16;
            std::vector<char> src(from + bytes);
            std::vector<char> dst(to + bytes, 'x');
            for (uint64_t i = 0; i < src.size(); i++) {
                src[i] = static_cast<char>(i * 5 + bytes);
            }
            weir_copy(dst.data() + to, src.data() + from, bytes, coop);
            EXPECT_EQ(std::string(dst.begin(), dst.begin() + static_cast<ptrdiff_t>(to)), std::string(to, 'x'));
            EXPECT_TRUE(std::equal(dst.begin() + static_cast<ptrdiff_t>(to), dst.end(),
                                   src.begin() + static_cast<ptrdiff_t>(from)))
                << bytes << " bytes from " << from << " to " << to;
        }
    }
}

// Under the address sanitizer: the data is loaded before a call that does not fit returns, but not for such a call.
TEST(DeviceParts, RefusedPacketsLoadNothing)
{
    weir_dev_control control = {};
    weir_dev_control_begin(&control, 0);
    weir_dev_channel_cell cell = {};
    alignas(128) char remote[1024] = {};
    std::vector<char> local(16);
    weir_dev_memory_channel channel = {};
    channel.semaphore.control = &control;
    channel.remote = channel.packets = remote;
    channel.remote_bytes = channel.packets_bytes = sizeof remote;
    channel.local = local.data();
    channel.local_bytes = local.size();
    channel.epochs = cell.epochs;
    channel.lines = 1;
    weir_coop coop = weir_coop_part(3, 4); // its packet would be the first one beyond the memory
    coop.scope = WEIR_COOP_BLOCK;
    coop.block_size = 4;
    EXPECT_EQ(weir_dev_memory_channel_put_ll16(&channel, 0, 0, 32, coop), WEIR_ERR_RANGE);
    EXPECT_EQ(weir_dev_memory_channel_unpack_ll16(&channel, 0, 0, 32, coop), WEIR_ERR_RANGE);
    EXPECT_EQ(weir_dev_memory_channel_exchange_ll16(&channel, 0, 0, 0, 32, coop), WEIR_ERR_RANGE);
    coop.rank = coop.block_rank = 0;
    EXPECT_EQ(weir_dev_memory_channel_put_lines(&channel, 0, 0, 120, coop), WEIR_ERR_RANGE);
    EXPECT_EQ(weir_dev_memory_channel_exchange_lines(&channel, 0, 0, 0, 120, coop), WEIR_ERR_RANGE);
    EXPECT_EQ(cell.epochs[WEIR_EPOCH_PUT] | cell.epochs[WEIR_EPOCH_UNPACK], 0u);
}

} // namespace
