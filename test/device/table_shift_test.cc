// The circular shift of host tables (weir/device/table.h) beside its formula: docs/tables.md has it.
#include <gtest/gtest.h>

#include <vector>

#include "weir/device/table.h"

namespace {

// The thread of byte c of output row r reads byte c + (r * bytes - id * bytes) % 128 of row id, with C's sign. Beyond
// an end of the row it reads from the other end.
int64_t formula(int64_t r, int64_t id, int64_t bytes, int64_t c)
{
    const int64_t shifted = c + (r * bytes - id * bytes) % 128;
    return shifted < 0 ? shifted + bytes : shifted >= bytes ? shifted - bytes : shifted;
}

TEST(TableShift, IsThatOfTheFormula)
{
    constexpr int64_t ROWS = 40;
    std::vector<char> memory(ROWS * 2408 + 128);
    char *rows = memory.data() + (128 - reinterpret_cast<uintptr_t>(memory.data()) % 128) % 128;
    int64_t backward = 0;
    for (const int64_t bytes : { 132, 400, 1204, 2408 }) {
        weir_table_call call = {};
        call.bytes = static_cast<uint64_t>(bytes);
        for (int64_t id = 0; id < ROWS; id++) {
            weir_table_item item = {};
            item.kind = WEIR_TABLE_THERE;
            item.row.first = rows;
            item.row.bytes = rows + id * bytes;
            for (int64_t r = 0; r < ROWS; r++) {
                for (int64_t c = 0; c < bytes; c += 4) {
                    ASSERT_EQ(weir_table_shift(&call, &item, static_cast<uint64_t>(r), static_cast<uint64_t>(c)),
                              static_cast<uint64_t>(formula(r, id, bytes, c)))
                        << "row " << r << " of " << bytes << " bytes from " << id << ", byte " << c;
                }
                backward += (r * bytes - id * bytes) % 128 < 0;
            }
        }
    }
    ASSERT_GT(backward, 0);
}

// Without a shift where it brings nothing: rows of up to a line, and of whole lines.
TEST(TableShift, IsNoneForRowsOfLines)
{
    alignas(128) static char rows[1024];
    for (const uint64_t bytes : { 100, 128, 256 }) {
        weir_table_call call = {};
        call.bytes = bytes;
        weir_table_item item = {};
        item.kind = WEIR_TABLE_THERE;
        item.row.first = rows;
        item.row.bytes = rows + 2 * bytes;
        ASSERT_EQ(weir_table_shift(&call, &item, 1, 8), 8u);
    }
}

} // namespace
