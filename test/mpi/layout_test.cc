// Layouts beside MPI_Pack of the MPI library that is installed: golden values and random trees, byte for byte. One
// process, without mpirun.
#include <algorithm>
#include <cstdlib>

#include <gtest/gtest.h>

#include "test/mpi/mpi_tree.h"

extern "C" {
#include "test/harness/ranks.h"
#include "weir/error.h"
}

namespace {

class MpiLayout : public ::testing::Test {
protected:
    static void SetUpTestSuite()
    {
        if (weirt_sanitizer()[0] == '\0') {
            MPI_Init(nullptr, nullptr);
            MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
        }
    }
    static void TearDownTestSuite()
    {
        if (weirt_sanitizer()[0] == '\0') {
            MPI_Finalize();
        }
    }
    void SetUp() override
    {
        if (weirt_sanitizer()[0] != '\0') {
            GTEST_SKIP() << "the MPI library is not built with the sanitizer";
        }
        ASSERT_EQ(weir_device_open("cpu:0", nullptr, &device), WEIR_OK) << weir_last_error();
    }
    void TearDown() override { weir_device_close(device); }

    weir_device *device = nullptr;
};

// A source with a byte for each offset from `first` to `end`.
struct source {
    source(int64_t first, int64_t end) : first(first)
    {
        bytes.reserve(static_cast<size_t>(end - first));
        for (int64_t at = first; at < end; at++) {
            bytes.push_back(weirt_pattern(at));
        }
    }
    // The address of offset 0, which may be outside of the bytes.
    [[nodiscard]] const void *origin() const
    {
        return reinterpret_cast<const void *>(reinterpret_cast<intptr_t>(bytes.data()) - first);
    }
    int64_t first;
    std::vector<uint8_t> bytes;
};

std::vector<uint8_t> pack_by_mpi(const weirt_mpi_type &type, uint64_t count, const void *origin, size_t bytes)
{
    std::vector<uint8_t> packed(bytes + 1);
    int position = 0;
    const int status = MPI_Pack(origin, static_cast<int>(count), type.get(), packed.data(), static_cast<int>(bytes),
                                &position, MPI_COMM_SELF);
    packed.resize(status == MPI_SUCCESS ? static_cast<size_t>(position) : 0);
    return packed;
}

std::string bounds_of(const weirt_mpi_type &type)
{
    int size = 0;
    MPI_Aint lb = 0;
    MPI_Aint extent = 0;
    MPI_Aint true_lb = 0;
    MPI_Aint true_extent = 0;
    MPI_Type_size(type.get(), &size);
    MPI_Type_get_extent(type.get(), &lb, &extent);
    MPI_Type_get_true_extent(type.get(), &true_lb, &true_extent);
    return weirt_text(std::vector<int64_t>{ size, lb, extent, true_lb, true_extent });
}

std::string bounds_of(const weir_layout *layout)
{
    weir_layout_info info;
    weir_layout_get_info(layout, &info);
    return weirt_text(std::vector<int64_t>{ static_cast<int64_t>(info.size), info.lb, info.extent, info.true_lb,
                                            static_cast<int64_t>(info.true_extent) });
}

TEST_F(MpiLayout, GoldenValues)
{
    for (const weirt_golden &golden : weirt_golden_layouts()) {
        const weirt_layout layout = weirt_build(golden.tree);
        weir_layout_info info;
        weir_layout_get_info(layout.get(), &info);
        const auto last = static_cast<int64_t>(golden.crcs.size() - 1);
        const source from(info.true_lb, info.true_lb + static_cast<int64_t>(info.true_extent) + last * info.extent);
        for (const weirt_mpi_leaf leaf : { weirt_mpi_leaf::bytes, weirt_mpi_leaf::named }) {
            SCOPED_TRACE(weirt_text(golden.tree));
            const weirt_mpi_type type(golden.tree, leaf);
            EXPECT_EQ(bounds_of(type), bounds_of(layout.get()));
            for (size_t i = 0; i < golden.crcs.size(); i++) {
                const uint32_t crc = weirt_crc32(pack_by_mpi(type, i + 1, from.origin(), (i + 1) * info.size));
                EXPECT_TRUE(golden.crcs[i] == 0 || golden.crcs[i] == crc) << i + 1 << " items";
            }
        }
    }
}

TEST_F(MpiLayout, SeedsBoxes)
{
    const auto &[x, crc] = weirt_golden_boxes[3]; // others span 16 MiB and more
    const source from(0, 1 << 20);
    for (const weirt_tree &box : weirt_boxes(x, 1024, 1)) {
        EXPECT_EQ(weirt_crc32(pack_by_mpi(weirt_mpi_type(box), 1, from.origin(), 1 << 20)), crc) << "x " << x;
    }
}

TEST_F(MpiLayout, RandomTrees)
{
    const char *text = std::getenv("WEIR_LAYOUT_SEED");
    const uint64_t seed = text != nullptr ? std::strtoull(text, nullptr, 10) : 1;
    RecordProperty("seed", std::to_string(seed));
    weirt_trees trees(seed);
    // Lists share its memory, so that the device allocates once.
    const weirt_layout kept = weirt_build(weirt_blocks(weirt_call::hindexed, { 1, 2 }, { 0, 10 }, weirt_bytes(4)));
    ASSERT_EQ(weir_layout_commit(kept.get(), device), WEIR_OK) << weir_last_error();
    for (int compared = 0; compared < 10000;) {
        const weirt_tree any = weirt_mpi_tree(trees.next(1 + static_cast<uint32_t>(trees.below(6))).first);
        const weirt_tree tree = weirt_mpi_spaced(any);
        const uint64_t count = 1 + trees.below(3);
        const weirt_layout layout = weirt_build(tree);
        ASSERT_NE(layout, nullptr) << weir_last_error();
        weir_dev_layout handle;
        ASSERT_EQ(weir_layout_commit(layout.get(), device), WEIR_OK) << weir_last_error();
        ASSERT_EQ(weir_layout_device(layout.get(), device, count, &handle), WEIR_OK) << weir_last_error();
        const std::vector<int64_t> order = weirt_walk(handle);
        if (order.empty() || weirt_has_empty_part(tree)) {
            continue;
        }
        const int64_t first = *std::min_element(order.begin(), order.end());
        const int64_t end = *std::max_element(order.begin(), order.end()) + 1;
        if (end - first > 1 << 20) { // takes too long
            continue;
        }
        const weirt_mpi_type type(tree);
        ASSERT_EQ(bounds_of(type), bounds_of(layout.get())) << weirt_text(tree);
        const source from(first, end);
        std::vector<uint8_t> packed;
        packed.reserve(order.size());
        for (const int64_t offset : order) {
            packed.push_back(weirt_pattern(offset));
        }
        ASSERT_TRUE(packed == pack_by_mpi(type, count, from.origin(), order.size()))
            << "WEIR_LAYOUT_SEED=" << seed << ": " << count << " items of " << weirt_text(tree);
        compared++;
    }
}

} // namespace
