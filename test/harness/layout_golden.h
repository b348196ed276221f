// layout_golden.h - descriptions of layouts with the values of Open MPI's MPI_Pack for them; C++.
//
// The byte at offset i of the packed source is weirt_pattern(i). A checksum is zlib's CRC-32 of the packed bytes.
#ifndef WEIRT_LAYOUT_GOLDEN_H
#define WEIRT_LAYOUT_GOLDEN_H

#include "test/harness/layout_tree.h"

// ---- calls, as trees -----------------------------------------------------------------------------------------

inline weirt_tree weirt_bytes(uint64_t count)
{
    weirt_tree tree;
    tree.count = count;
    return tree;
}

inline weirt_tree weirt_around(weirt_call call, weirt_tree of)
{
    weirt_tree tree;
    tree.call = call;
    tree.of.push_back(std::move(of));
    return tree;
}

inline weirt_tree weirt_contiguous(uint64_t count, weirt_tree of)
{
    weirt_tree tree = weirt_around(weirt_call::contiguous, std::move(of));
    tree.count = count;
    return tree;
}

inline weirt_tree weirt_vector(uint64_t count, uint64_t length, int64_t stride, weirt_tree of)
{
    weirt_tree tree = weirt_around(weirt_call::vector, std::move(of));
    tree.count = count;
    tree.length = length;
    tree.stride = stride;
    return tree;
}

inline weirt_tree weirt_hvector(uint64_t count, uint64_t length, int64_t stride, weirt_tree of)
{
    weirt_tree tree = weirt_vector(count, length, stride, std::move(of));
    tree.call = weirt_call::hvector;
    return tree;
}

inline weirt_tree weirt_resized(int64_t lb, int64_t extent, weirt_tree of)
{
    weirt_tree tree = weirt_around(weirt_call::resized, std::move(of));
    tree.stride = lb;
    tree.extent = extent;
    return tree;
}

// Blocks; with one length for all, in a call that takes one.
inline weirt_tree weirt_blocks(weirt_call call, std::vector<uint64_t> lengths, std::vector<int64_t> places,
                               weirt_tree of)
{
    weirt_tree tree = weirt_around(call, std::move(of));
    tree.count = places.size();
    tree.places = std::move(places);
    if (call == weirt_call::indexed_block || call == weirt_call::hindexed_block) {
        tree.length = lengths[0];
    } else {
        tree.lengths = std::move(lengths);
    }
    return tree;
}

inline weirt_tree weirt_subarray(std::vector<uint64_t> sizes, std::vector<uint64_t> parts, std::vector<int64_t> starts,
                                 weirt_tree of, bool fortran = false)
{
    weirt_tree tree = weirt_around(weirt_call::subarray, std::move(of));
    tree.sizes = std::move(sizes);
    tree.lengths = std::move(parts);
    tree.places = std::move(starts);
    tree.fortran = fortran;
    return tree;
}

// The rows of a box of `rows` of 1024 x 1024 rows of a KiB, as the seed's loops place them.
inline std::vector<int64_t> weirt_row_places(uint64_t y_rows, uint64_t z_rows)
{
    std::vector<int64_t> places;
    for (uint64_t z = 0; z < z_rows; z++) {
        for (uint64_t y = 0; y < y_rows; y++) {
            places.push_back(static_cast<int64_t>(z * 1024 * 1024 + y * 1024));
        }
    }
    return places;
}

// Seven descriptions of a box of x bytes, y rows and z planes of 1024^3 bytes.
inline std::vector<weirt_tree> weirt_boxes(uint64_t x, uint64_t y, uint64_t z)
{
    const std::vector<int64_t> places = weirt_row_places(y, z);
    const std::vector<uint64_t> lengths(places.size(), x);
    weirt_tree structure;
    structure.call = weirt_call::structure;
    structure.count = places.size();
    structure.places = places;
    structure.lengths = lengths;
    structure.of.assign(places.size(), weirt_bytes(1));
    return { weirt_hvector(z, 1, 1 << 20, weirt_hvector(y, 1, 1024, weirt_vector(x, 1, 1, weirt_bytes(1)))),
             weirt_hvector(z, 1, 1 << 20, weirt_vector(y, x, 1024, weirt_bytes(1))),
             weirt_blocks(weirt_call::hindexed, lengths, places, weirt_bytes(1)),
             weirt_blocks(weirt_call::hindexed_block, lengths, places, weirt_bytes(1)),
             weirt_blocks(weirt_call::indexed, lengths, places, weirt_bytes(1)),
             weirt_subarray({ 1024, 1024, 1024 }, { z, y, x }, { 0, 0, 0 }, weirt_bytes(1)),
             structure };
}

// ---- values of MPI_Pack ------------------------------------------------------------------------------------

inline uint8_t weirt_pattern(int64_t offset)
{
    return static_cast<uint8_t>((static_cast<uint32_t>(offset) * 2654435761u) >> 24);
}

inline uint32_t weirt_crc32(const std::vector<uint8_t> &bytes)
{
    uint32_t crc = UINT32_MAX;
    for (const uint8_t byte : bytes) {
        crc ^= byte;
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ (crc % 2 != 0 ? 0xedb88320u : 0);
        }
    }
    return ~crc;
}

struct weirt_golden {
    weirt_tree tree;
    uint64_t size;
    int64_t extent;
    int64_t true_lb;
    std::string runs;           // the first ones in packed order, as start+length
    std::vector<uint32_t> crcs; // of 1, 2, 3 items; 0 for one that is not known
};

inline std::vector<weirt_golden> weirt_golden_layouts()
{
    const weirt_tree four = weirt_bytes(4);
    const std::vector<uint64_t> lengths = { 1, 2, 2, 4, 4, 4, 4 };
    const std::vector<int64_t> places = { 9, 18, 26, 36, 44, 52, 60 };
    std::vector<int64_t> places_bytes;
    for (const int64_t place : places) {
        places_bytes.push_back(place * 4);
    }
    const std::string seven = "36+4 72+8 104+8 144+16 176+16 208+16 240+16";
    return {
        { weirt_vector(2, 3, 4, weirt_bytes(1)), 6, 7, 0, "0+3 4+3", { 0x816385b6, 0x8e3b8691 } },
        { weirt_subarray({ 2, 4 }, { 2, 3 }, { 0, 0 }, weirt_bytes(1)),
          6,
          8,
          0,
          "0+3 4+3",
          { 0x816385b6, 0xa58d8034 } },
        { weirt_subarray({ 16, 16, 16 }, { 2, 3, 4 }, { 1, 1, 4 }, weirt_bytes(1)),
          24,
          4096,
          276,
          "276+4 292+4 308+4 532+4 548+4 564+4",
          { 0xfbad2c66, 0x9ded0db9 } },
        { weirt_subarray({ 8, 8 }, { 4, 4 }, { 4, 4 }, four),
          64,
          256,
          144,
          "144+16 176+16 208+16 240+16",
          { 0x495ec5bc } },
        { weirt_subarray({ 8, 8 }, { 4, 4 }, { 4, 4 }, four, true),
          64,
          256,
          144,
          "144+16 176+16 208+16 240+16",
          { 0x495ec5bc } },
        { weirt_vector(5, 2, 2, four), 40, 40, 0, "0+40", { 0x37616cd2 } },
        { weirt_hvector(4, 1, 4, weirt_vector(4, 1, 4, four)),
          64,
          64,
          0,
          "0+4 16+4 32+4 48+4 4+4 20+4",
          { 0x82be8ebc } },
        // Resized columns of a matrix of 8 x 8 items.
        { weirt_contiguous(8, weirt_resized(0, 4, weirt_vector(8, 1, 8, four))),
          256,
          32,
          0,
          "0+4 32+4 64+4",
          { 0x92d82c3c } },
        { weirt_vector(2, 8, 13, weirt_bytes(1)), 16, 21, 0, "0+8 13+8", { 0xa436fdfe } },
        { weirt_blocks(weirt_call::indexed, lengths, places, four), 84, 220, 36, seven, { 0x9cd07787 } },
        { weirt_blocks(weirt_call::hindexed, lengths, places_bytes, four), 84, 220, 36, seven, { 0x9cd07787 } },
        { weirt_blocks(weirt_call::hindexed_block, { 4 }, { 16, 48, 80, 112, 128, 160, 192, 224 }, four),
          128,
          224,
          16,
          "16+16 48+16 80+16 112+32 160+16",
          { 0x9f86ad14 } },
        // Its source overlaps itself.
        { weirt_blocks(weirt_call::indexed_block, { 2 }, { 2, 3, 4, 7, 10 }, weirt_bytes(8)),
          80,
          80,
          16,
          "16+16 24+16 32+16 56+16 80+16",
          { 0x18261807 } },
        { weirt_vector(5, 1, 10, weirt_vector(3, 2, 3, four)), 120, 1312, 0, "0+8 12+8 24+8 320+8", { 0x4eb1b64e } },
        { weirt_hvector(100, 1, 40000, weirt_vector(100, 100, 200, weirt_bytes(1))),
          1000000,
          3979900,
          0,
          "0+100 200+100",
          { 0x4426ad47, 0, 0xce064054 } },
    };
}

// A box of 1 MiB with rows of x bytes.
struct weirt_golden_box {
    uint64_t x;
    uint32_t crc;
};

constexpr weirt_golden_box weirt_golden_boxes[] = {
    { 1, 0xb3fa12f2 }, { 8, 0x3163cd89 }, { 64, 0xd7feddd1 }, { 1024, 0x158987c5 }
};

#endif
