// mpi_tree.h - MPI datatypes of trees (harness/layout_tree.h); C++.
#ifndef WEIRT_MPI_TREE_H
#define WEIRT_MPI_TREE_H

#define OMPI_SKIP_MPICXX 1 /* the C interface alone */
#include <mpi.h>

#include "test/harness/layout_golden.h"

// What stands for the bytes of a tree. MPI rounds the extent of a struct up to the alignment of its named types; bytes
// have no alignment.
enum class weirt_mpi_leaf { bytes, named };

// The tree with parts of one item in place of empty parts of subarrays, which MPI refuses.
inline weirt_tree weirt_mpi_tree(weirt_tree tree)
{
    for (weirt_tree &child : tree.of) {
        child = weirt_mpi_tree(std::move(child));
    }
    for (size_t i = 0; i < tree.sizes.size(); i++) {
        if (tree.lengths[i] == 0) {
            tree.lengths[i] = 1;
            tree.places[i] = std::min(tree.places[i], static_cast<int64_t>(tree.sizes[i]) - 1);
        }
    }
    return tree;
}

// The tree with other distances in place of those of -1 byte, which Open MPI 4.1.4 takes for contiguous items.
inline weirt_tree weirt_mpi_spaced(weirt_tree tree)
{
    for (weirt_tree &child : tree.of) {
        child = weirt_mpi_spaced(std::move(child));
    }
    const bool one = tree.stride == 1 || tree.stride == -1;
    if ((tree.call == weirt_call::hvector && tree.stride == -1) ||
        (tree.call == weirt_call::vector && one && tree.stride * weirt_interpret(tree.of[0]).extent() == -1)) {
        tree.stride *= 2;
    }
    if (tree.call == weirt_call::resized && tree.extent == -1) {
        tree.extent = -2;
    }
    return tree;
}

// Whether a struct has a part without bytes. Such a part counts for the bounds of the struct in some MPI libraries.
inline bool weirt_has_empty_part(const weirt_tree &tree)
{
    const auto empty = [](const weirt_tree &part) { return weirt_interpret(part).bytes.empty(); };
    return (tree.call == weirt_call::structure && std::any_of(tree.of.begin(), tree.of.end(), empty)) ||
           std::any_of(tree.of.begin(), tree.of.end(), weirt_has_empty_part);
}

// A committed datatype, which the destructor frees.
class weirt_mpi_type {
public:
    explicit weirt_mpi_type(const weirt_tree &tree, weirt_mpi_leaf leaf = weirt_mpi_leaf::bytes) : leaf(leaf)
    {
        create(tree);
        MPI_Type_commit(&type);
    }
    ~weirt_mpi_type() { MPI_Type_free(&type); }
    weirt_mpi_type(const weirt_mpi_type &) = delete;
    weirt_mpi_type &operator=(const weirt_mpi_type &) = delete;

    [[nodiscard]] MPI_Datatype get() const { return type; }

private:
    struct uncommitted {};
    weirt_mpi_type(const weirt_tree &tree, weirt_mpi_leaf leaf, uncommitted) : leaf(leaf) { create(tree); }

    void create_bytes(uint64_t count)
    {
        const bool named = leaf == weirt_mpi_leaf::named;
        const MPI_Datatype one = named && count == 2   ? MPI_SHORT
                                 : named && count == 4 ? MPI_INT
                                 : named && count == 8 ? MPI_DOUBLE
                                                       : MPI_BYTE;
        MPI_Type_contiguous(one == MPI_BYTE ? static_cast<int>(count) : 1, one, &type);
    }
    void create(const weirt_tree &tree)
    {
        if (tree.call == weirt_call::bytes) {
            create_bytes(tree.count);
            return;
        }
        std::vector<std::unique_ptr<weirt_mpi_type>> kept;
        std::vector<MPI_Datatype> of;
        for (const weirt_tree &child : tree.of) {
            kept.emplace_back(new weirt_mpi_type(child, leaf, uncommitted()));
            of.push_back(kept.back()->type);
        }
        const auto count = static_cast<int>(tree.count);
        const auto length = static_cast<int>(tree.length);
        const auto blocks = static_cast<int>(tree.places.size());
        const std::vector<int> lengths(tree.lengths.begin(), tree.lengths.end());
        const std::vector<int> places(tree.places.begin(), tree.places.end());
        const std::vector<int> sizes(tree.sizes.begin(), tree.sizes.end());
        const std::vector<MPI_Aint> places_bytes(tree.places.begin(), tree.places.end());
        switch (tree.call) {
        case weirt_call::bytes:
            break;
        case weirt_call::contiguous:
            MPI_Type_contiguous(count, of[0], &type);
            break;
        case weirt_call::dup:
            MPI_Type_dup(of[0], &type);
            break;
        case weirt_call::vector:
            MPI_Type_vector(count, length, static_cast<int>(tree.stride), of[0], &type);
            break;
        case weirt_call::hvector:
            MPI_Type_create_hvector(count, length, tree.stride, of[0], &type);
            break;
        case weirt_call::indexed:
            MPI_Type_indexed(blocks, lengths.data(), places.data(), of[0], &type);
            break;
        case weirt_call::hindexed:
            MPI_Type_create_hindexed(blocks, lengths.data(), places_bytes.data(), of[0], &type);
            break;
        case weirt_call::indexed_block:
            MPI_Type_create_indexed_block(blocks, length, places.data(), of[0], &type);
            break;
        case weirt_call::hindexed_block:
            MPI_Type_create_hindexed_block(blocks, length, places_bytes.data(), of[0], &type);
            break;
        case weirt_call::structure:
            MPI_Type_create_struct(blocks, lengths.data(), places_bytes.data(), of.data(), &type);
            break;
        case weirt_call::subarray:
            MPI_Type_create_subarray(static_cast<int>(sizes.size()), sizes.data(), lengths.data(), places.data(),
                                     tree.fortran ? MPI_ORDER_FORTRAN : MPI_ORDER_C, of[0], &type);
            break;
        case weirt_call::resized:
            MPI_Type_create_resized(of[0], tree.stride, tree.extent, &type);
            break;
        }
    }

    weirt_mpi_leaf leaf;
    MPI_Datatype type = MPI_DATATYPE_NULL;
};

#endif
