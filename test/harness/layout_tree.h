// layout_tree.h - descriptions of layouts as trees, and an interpreter of type maps; C++.
//
// An interpreter holds the offset of each packed byte and so has no canonical form: it shows the meaning of a
// description. Counts are small: a tree has at most weirt_tree_bytes bytes.
#ifndef WEIRT_LAYOUT_TREE_H
#define WEIRT_LAYOUT_TREE_H

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

extern "C" {
#include "weir/device/impl/layout_nest.h"
#include "weir/layout.h"
}

enum class weirt_call {
    bytes,
    contiguous,
    dup,
    vector,
    hvector,
    indexed,
    hindexed,
    indexed_block,
    hindexed_block,
    structure,
    subarray,
    resized
};
constexpr int weirt_calls = 12;

// A call that creates a layout. Arguments that the call does not have are unused.
struct weirt_tree {
    weirt_call call = weirt_call::bytes;
    uint64_t count = 0;
    uint64_t length = 0;
    int64_t stride = 0;            // resized: lb
    int64_t extent = 0;            // of resized
    std::vector<uint64_t> lengths; // of subarray: parts
    std::vector<int64_t> places;   // of subarray: starts
    std::vector<uint64_t> sizes;
    bool fortran = false;
    std::vector<weirt_tree> of;
};

// ---- the interpreter ---------------------------------------------------------------------------------------

// A type map: the offset of each byte in packed order, and the bounds.
struct weirt_map {
    std::vector<int64_t> bytes;
    int64_t lb = 0;
    int64_t ub = 0;
    bool bounded = false; // false: neither bytes nor given bounds
    bool given = false;   // the bounds of resized and subarray; in a struct only these count

    [[nodiscard]] int64_t extent() const { return ub - lb; }
    [[nodiscard]] int64_t true_lb() const { return bytes.empty() ? 0 : *std::min_element(bytes.begin(), bytes.end()); }
    [[nodiscard]] int64_t true_ub() const
    {
        return bytes.empty() ? 0 : *std::max_element(bytes.begin(), bytes.end()) + 1;
    }
    void add(const weirt_map &item, int64_t place)
    {
        const size_t before = bytes.size();
        const size_t more = item.bytes.size();
        bytes.resize(before + more);
        int64_t *to = bytes.data() + before;
        const int64_t *from = item.bytes.data();
        for (size_t i = 0; i < more; i++) {
            to[i] = from[i] + place;
        }
        if (!item.bounded || (given && !item.given)) {
            return;
        }
        const bool first = !bounded || (item.given && !given);
        lb = first ? item.lb + place : std::min(lb, item.lb + place);
        ub = first ? item.ub + place : std::max(ub, item.ub + place);
        bounded = true;
        given = given || item.given;
    }
    void add_items(const weirt_map &item, uint64_t count, int64_t place)
    {
        for (uint64_t i = 0; i < count; i++) {
            add(item, place + static_cast<int64_t>(i) * item.extent());
        }
    }
    void set_bounds(int64_t new_lb, int64_t new_ub)
    {
        lb = new_lb;
        ub = new_ub;
        bounded = true;
        given = true;
    }
};

inline weirt_map weirt_interpret_subarray(const weirt_tree &tree, const weirt_map &item)
{
    const size_t dims = tree.sizes.size();
    std::vector<size_t> fastest(dims); // the dimensions, the fastest one first
    for (size_t i = 0; i < dims; i++) {
        fastest[i] = tree.fortran ? i : dims - 1 - i;
    }
    uint64_t items = 1;
    int64_t all = 1;
    for (size_t i = 0; i < dims; i++) {
        items *= tree.lengths[i];
        all *= static_cast<int64_t>(tree.sizes[i]);
    }
    weirt_map out;
    for (uint64_t i = 0; i < items; i++) {
        uint64_t rest = i;
        int64_t place = 0;
        int64_t unit = 1;
        for (const size_t d : fastest) {
            place += unit * (tree.places[d] + static_cast<int64_t>(rest % tree.lengths[d]));
            rest /= tree.lengths[d];
            unit *= static_cast<int64_t>(tree.sizes[d]);
        }
        out.add(item, place * item.extent());
    }
    out.set_bounds(0, all * item.extent());
    return out;
}

inline weirt_map weirt_interpret(const weirt_tree &tree)
{
    std::vector<weirt_map> of;
    of.reserve(tree.of.size());
    for (const weirt_tree &child : tree.of) {
        of.push_back(weirt_interpret(child));
    }
    weirt_map out;
    const bool blocks = !tree.places.empty();
    const bool items =
        tree.call == weirt_call::vector || tree.call == weirt_call::indexed || tree.call == weirt_call::indexed_block;
    switch (tree.call) {
    case weirt_call::bytes:
        for (uint64_t i = 0; i < tree.count; i++) {
            out.bytes.push_back(static_cast<int64_t>(i));
        }
        out.ub = static_cast<int64_t>(tree.count);
        out.bounded = tree.count != 0;
        break;
    case weirt_call::contiguous:
        out.add_items(of[0], tree.count, 0);
        break;
    case weirt_call::dup:
        out = of[0];
        break;
    case weirt_call::vector:
    case weirt_call::hvector:
        for (uint64_t i = 0; i < tree.count; i++) {
            out.add_items(of[0], tree.length, static_cast<int64_t>(i) * tree.stride * (items ? of[0].extent() : 1));
        }
        break;
    case weirt_call::indexed:
    case weirt_call::hindexed:
    case weirt_call::indexed_block:
    case weirt_call::hindexed_block:
        for (size_t i = 0; blocks && i < tree.places.size(); i++) {
            out.add_items(of[0], tree.lengths.empty() ? tree.length : tree.lengths[i],
                          tree.places[i] * (items ? of[0].extent() : 1));
        }
        break;
    case weirt_call::structure:
        for (size_t i = 0; i < tree.places.size(); i++) {
            out.add_items(of[i], tree.lengths[i], tree.places[i]);
        }
        break;
    case weirt_call::subarray:
        out = weirt_interpret_subarray(tree, of[0]);
        break;
    case weirt_call::resized:
        out = of[0];
        out.set_bounds(tree.stride, tree.stride + tree.extent);
        break;
    }
    return out;
}

// ---- weir's layout of a tree -------------------------------------------------------------------------------

struct weirt_layout_destroy {
    void operator()(weir_layout *layout) const { weir_layout_destroy(layout); }
};
using weirt_layout = std::unique_ptr<weir_layout, weirt_layout_destroy>;

// NULL if a create fails; weir_last_error has the text.
inline weirt_layout weirt_build(const weirt_tree &tree)
{
    std::vector<weirt_layout> kept;
    std::vector<const weir_layout *> of;
    for (const weirt_tree &child : tree.of) {
        kept.push_back(weirt_build(child));
        if (kept.back() == nullptr) {
            return nullptr;
        }
        of.push_back(kept.back().get());
    }
    // An array of no entries has an address.
    static const uint64_t no_lengths = 0;
    static const int64_t no_places = 0;
    static const weir_layout *const no_layouts = nullptr;
    const uint64_t blocks = tree.places.size();
    const uint64_t *lengths = blocks == 0 ? &no_lengths : tree.lengths.data();
    const int64_t *places = blocks == 0 ? &no_places : tree.places.data();
    const std::vector<uint64_t> starts(tree.places.begin(), tree.places.end());
    const weir_layout *first = of.empty() ? nullptr : of[0];
    weir_layout *out = nullptr;
    weir_status status = WEIR_OK;
    switch (tree.call) {
    case weirt_call::bytes:
        status = weir_layout_create_bytes(tree.count, &out);
        break;
    case weirt_call::contiguous:
        status = weir_layout_create_contiguous(tree.count, first, &out);
        break;
    case weirt_call::dup:
        status = weir_layout_create_dup(first, &out);
        break;
    case weirt_call::vector:
        status = weir_layout_create_vector(tree.count, tree.length, tree.stride, first, &out);
        break;
    case weirt_call::hvector:
        status = weir_layout_create_hvector(tree.count, tree.length, tree.stride, first, &out);
        break;
    case weirt_call::indexed:
        status = weir_layout_create_indexed(blocks, lengths, places, first, &out);
        break;
    case weirt_call::hindexed:
        status = weir_layout_create_hindexed(blocks, lengths, places, first, &out);
        break;
    case weirt_call::indexed_block:
        status = weir_layout_create_indexed_block(blocks, tree.length, places, first, &out);
        break;
    case weirt_call::hindexed_block:
        status = weir_layout_create_hindexed_block(blocks, tree.length, places, first, &out);
        break;
    case weirt_call::structure:
        status = weir_layout_create_struct(blocks, lengths, places, blocks == 0 ? &no_layouts : of.data(), &out);
        break;
    case weirt_call::subarray:
        status =
            weir_layout_create_subarray(static_cast<uint32_t>(tree.sizes.size()), tree.sizes.data(), lengths,
                                        starts.data(), tree.fortran ? WEIR_LAYOUT_FORTRAN : WEIR_LAYOUT_C, first, &out);
        break;
    case weirt_call::resized:
        status = weir_layout_create_resized(tree.stride, tree.extent, first, &out);
        break;
    }
    return weirt_layout(status == WEIR_OK ? out : nullptr);
}

// The offset of each packed byte by the loops of the nest, without the pieces of the handle. Appends to `out`.
template <typename Run> void weirt_walk_nest(const weir_layout_nest &nest, uint32_t dim, int64_t at, const Run &run)
{
    if (dim == nest.dims) {
        run(at, nest.run);
        return;
    }
    for (uint64_t i = 0; i < nest.dim[dim].count; i++) {
        weirt_walk_nest(nest, dim + 1, at + static_cast<int64_t>(i) * nest.dim[dim].stride, run);
    }
}

// The offset of each packed byte of a handle, by the loops of its nests. The host reaches the piece list.
inline std::vector<int64_t> weirt_walk(const weir_dev_layout &layout)
{
    std::vector<int64_t> out;
    const auto bytes = [&](int64_t at, uint64_t count) {
        for (uint64_t i = 0; i < count; i++) {
            out.push_back(at + static_cast<int64_t>(i));
        }
    };
    const auto list = [&](int64_t at, uint64_t count) {
        if (layout.pieces == nullptr) {
            bytes(at, count);
            return;
        }
        for (uint32_t i = 0; i < layout.piece_count; i++) {
            const weir_layout_piece &piece = layout.pieces[i];
            if (layout.nest_of == nullptr) {
                bytes(at + piece.place, layout.pieces[i + 1].prefix - piece.prefix);
            } else {
                weirt_walk_nest(layout.nests[layout.nest_of[i]], 0, at + piece.place, bytes);
            }
        }
    };
    if (layout.nest.size != 0) {
        weirt_walk_nest(layout.nest, 0, layout.nest.offset, list);
    }
    return out;
}

// ---- random trees ------------------------------------------------------------------------------------------

constexpr size_t weirt_tree_bytes = 2048;

// Random trees of a seed.
class weirt_trees {
public:
    explicit weirt_trees(uint64_t seed) : random(seed) {}

    uint64_t below(uint64_t limit) { return random() % limit; }
    int64_t between(int64_t least, int64_t most)
    {
        return least + static_cast<int64_t>(below(static_cast<uint64_t>(most - least) + 1));
    }
    // A tree of at most `depth` calls, and its type map.
    std::pair<weirt_tree, weirt_map> next(uint32_t depth)
    {
        weirt_tree tree;
        if (depth < 2) {
            const uint64_t sizes[] = { 1, 2, 3, 4, 8, 13, 16, below(12) };
            tree.count = sizes[below(8)];
        } else {
            fill(tree, depth);
        }
        weirt_map map = weirt_interpret(tree);
        if (map.bytes.size() > weirt_tree_bytes) {
            return next(depth - 1);
        }
        return { std::move(tree), std::move(map) };
    }

private:
    // Places in units of `unit` bytes: at times regular or adjacent, at times in no order.
    std::vector<int64_t> places(uint64_t count, int64_t adjacent)
    {
        const uint64_t form = below(4);
        const int64_t start = between(-30, 30);
        const int64_t step = form == 0 ? adjacent : between(-40, 40);
        std::vector<int64_t> out;
        for (uint64_t i = 0; i < count; i++) {
            out.push_back(form < 3 ? start + static_cast<int64_t>(i) * step : between(-200, 200));
        }
        if (form == 2 && count > 2) {
            out[below(count)] += between(-3, 3);
        }
        return out;
    }
    std::vector<uint64_t> some_lengths(uint64_t count)
    {
        const bool equal = below(2) == 0;
        const uint64_t length = below(4);
        std::vector<uint64_t> out;
        for (uint64_t i = 0; i < count; i++) {
            out.push_back(equal ? length : below(4));
        }
        return out;
    }
    void fill(weirt_tree &tree, uint32_t depth)
    {
        tree.call = static_cast<weirt_call>(1 + below(weirt_calls - 1));
        auto child = next(below(4) == 0 ? 1 + static_cast<uint32_t>(below(depth - 1)) : depth - 1);
        const int64_t extent = child.second.extent();
        tree.of.push_back(std::move(child.first));
        tree.count = below(6);
        tree.length = below(4);
        switch (tree.call) {
        case weirt_call::vector:
            tree.stride = below(3) == 0 ? static_cast<int64_t>(tree.length) : between(-9, 9);
            break;
        case weirt_call::hvector:
            tree.stride = below(3) == 0 ? static_cast<int64_t>(tree.length) * extent : between(-100, 100);
            break;
        case weirt_call::indexed:
        case weirt_call::hindexed:
            tree.lengths = some_lengths(tree.count);
            tree.places = places(tree.count, tree.call == weirt_call::indexed ? 1 : extent);
            break;
        case weirt_call::indexed_block:
        case weirt_call::hindexed_block: {
            const auto length = static_cast<int64_t>(tree.length);
            tree.places = places(tree.count, tree.call == weirt_call::indexed_block ? length : length * extent);
            break;
        }
        case weirt_call::structure:
            tree.lengths = some_lengths(tree.count);
            tree.places = places(tree.count, extent);
            for (uint64_t i = 1; i < tree.count; i++) {
                tree.of.push_back(below(2) == 0 ? tree.of[0] : next(1 + static_cast<uint32_t>(below(depth - 1))).first);
            }
            tree.of.resize(tree.count);
            break;
        case weirt_call::subarray: {
            const uint64_t dims = 1 + below(3);
            tree.fortran = below(2) == 0;
            for (uint64_t i = 0; i < dims; i++) {
                tree.sizes.push_back(1 + below(5));
                tree.lengths.push_back(below(8) == 0 ? 0 : 1 + below(tree.sizes[i]));
                tree.places.push_back(static_cast<int64_t>(below(tree.sizes[i] - tree.lengths[i] + 1)));
            }
            break;
        }
        case weirt_call::resized:
            tree.stride = between(-20, 20);
            tree.extent = below(2) == 0 ? between(-60, 60) : extent + between(0, 8);
            break;
        default:
            break;
        }
    }
    std::mt19937_64 random;
};

// ---- a failing tree ----------------------------------------------------------------------------------------

template <typename Value> std::string weirt_text(const std::vector<Value> &values)
{
    std::string out = "{";
    for (size_t i = 0; i < values.size(); i++) {
        out += (i == 0 ? "" : ",") + std::to_string(values[i]);
    }
    return out + "}";
}

// The calls of a tree, as C has them.
inline std::string weirt_text(const weirt_tree &tree)
{
    static const char *const names[weirt_calls] = { "bytes",          "contiguous", "dup",      "vector",
                                                    "hvector",        "indexed",    "hindexed", "indexed_block",
                                                    "hindexed_block", "struct",     "subarray", "resized" };
    std::string out = std::string(names[static_cast<int>(tree.call)]) + "(";
    switch (tree.call) {
    case weirt_call::bytes:
        return out + std::to_string(tree.count) + ")";
    case weirt_call::contiguous:
        out += std::to_string(tree.count) + ", ";
        break;
    case weirt_call::dup:
        break;
    case weirt_call::vector:
    case weirt_call::hvector:
        out +=
            std::to_string(tree.count) + ", " + std::to_string(tree.length) + ", " + std::to_string(tree.stride) + ", ";
        break;
    case weirt_call::indexed:
    case weirt_call::hindexed:
    case weirt_call::structure:
        out += weirt_text(tree.lengths) + ", " + weirt_text(tree.places) + ", ";
        break;
    case weirt_call::indexed_block:
    case weirt_call::hindexed_block:
        out += std::to_string(tree.length) + ", " + weirt_text(tree.places) + ", ";
        break;
    case weirt_call::subarray:
        out += weirt_text(tree.sizes) + ", " + weirt_text(tree.lengths) + ", " + weirt_text(tree.places) +
               (tree.fortran ? ", FORTRAN, " : ", C, ");
        break;
    case weirt_call::resized:
        out += std::to_string(tree.stride) + ", " + std::to_string(tree.extent) + ", ";
        break;
    }
    for (size_t i = 0; i < tree.of.size(); i++) {
        out += (i == 0 ? "" : ", ") + weirt_text(tree.of[i]);
    }
    return out + ")";
}

// Trees that are a step simpler than this one.
inline std::vector<weirt_tree> weirt_simpler(const weirt_tree &tree)
{
    std::vector<weirt_tree> out(tree.of.begin(), tree.of.end());
    const auto change = [&](auto edit) {
        weirt_tree simpler = tree;
        edit(simpler);
        out.push_back(std::move(simpler));
    };
    if (tree.call != weirt_call::subarray) {
        for (size_t i = 0; i < tree.places.size(); i++) {
            change([&](weirt_tree &t) {
                t.places.erase(t.places.begin() + static_cast<std::ptrdiff_t>(i));
                if (!t.lengths.empty()) {
                    t.lengths.erase(t.lengths.begin() + static_cast<std::ptrdiff_t>(i));
                }
                if (t.call == weirt_call::structure) {
                    t.of.erase(t.of.begin() + static_cast<std::ptrdiff_t>(i));
                }
            });
        }
    }
    for (size_t i = 0; i < tree.lengths.size(); i++) {
        if (tree.lengths[i] > 1) {
            change([&](weirt_tree &t) { t.lengths[i]--; });
        }
    }
    if (tree.count > 1) {
        change([](weirt_tree &t) { t.count--; });
    }
    if (tree.length > 1) {
        change([](weirt_tree &t) { t.length--; });
    }
    for (size_t i = 0; i < tree.of.size(); i++) {
        for (weirt_tree &child : weirt_simpler(tree.of[i])) {
            change([&](weirt_tree &t) { t.of[i] = std::move(child); });
        }
    }
    return out;
}

// The simplest tree that `fails` still, found step by step.
template <typename Fails> weirt_tree weirt_shrink(weirt_tree tree, const Fails &fails)
{
    for (bool smaller = true; smaller;) {
        smaller = false;
        for (weirt_tree &candidate : weirt_simpler(tree)) {
            if (fails(candidate)) {
                tree = std::move(candidate);
                smaller = true;
                break;
            }
        }
    }
    return tree;
}

#endif
