// The device side of notified windows, on structures that are made by hand.
#include <gtest/gtest.h>

#include <vector>

#include <weir/device/impl/window_layout.h>

namespace {

// What lies in each part, in order, does not overlap and is aligned.
TEST(WindowLayout, PlacesFollowEachOther)
{
    const uint32_t shapes[][3] = { { 1, 1, 2 }, { 2, 132, 256 }, { 3, 5, 4 }, { 64, 2112, 256 }, { 64, 16777216, 2 } };
    for (const uint32_t *shape : shapes) {
        const uint64_t devices = shape[0];
        const uint64_t ranks = shape[1];
        const uint64_t count = shape[2];
        const weir_window_layout at = weir_window_layout_of(shape[0], shape[1], shape[2]);
        EXPECT_GE(at.taken, devices * ranks * count * 8);
        EXPECT_GE(at.arrived, at.taken + devices * ranks * 8);
        EXPECT_GE(at.shared_bytes, at.arrived + devices * 8);
        EXPECT_GE(at.rounds, 8u);
        EXPECT_GE(at.sent, at.rounds + 8);
        EXPECT_GE(at.lines, at.sent + devices * ranks * 8);
        EXPECT_GE(at.line_bytes, WEIR_WINDOW_LINE_HEAD + devices * sizeof(weir_dev_window_ring));
        EXPECT_GE(at.devices, at.lines + ranks * at.line_bytes);
        EXPECT_GE(at.table, at.devices + devices * sizeof(weir_dev_window_device));
        EXPECT_GE(at.private_bytes,
                  at.table + offsetof(weir_dev_window_table, places) + 64 * devices * sizeof(weir_dev_window_place));
        for (uint64_t place : { at.taken, at.arrived, at.rounds, at.sent, at.lines, at.devices, at.table }) {
            EXPECT_EQ(place % WEIR_CELL_BYTES, 0u);
        }
    }
}

TEST(WindowLayout, RingsOfAHandleAreInOrder)
{
    std::vector<char> shared(1 << 16);
    std::vector<char> own(1 << 17);
    weir_dev_window window = {};
    weir_window_place(&window, 1, 3, 5, 4, shared.data(), own.data());
    EXPECT_EQ(weir_window_ring_at(&window, 0, 1), 4 * 8u);
    EXPECT_EQ(weir_window_ring_at(&window, 1, 0), 3 * 4 * 8u);
    EXPECT_EQ(weir_window_ring_at(&window, 4, 2), 14 * 4 * 8u);
    char *last = reinterpret_cast<char *>(weir_window_states(&window, 4) + 3);
    EXPECT_LE(last, reinterpret_cast<const char *>(window.to));
    EXPECT_EQ(reinterpret_cast<char *>(window.taken), shared.data() + window.taken_at);
}

} // namespace
