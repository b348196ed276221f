/* weir/layout.h - a layout describes data that is not contiguous: which bytes, relative to a pointer, in which order.
 *
 *     weir_layout_create_bytes(4, &element);
 *     weir_layout_create_subarray(3, sizes, parts, starts, WEIR_LAYOUT_C, element, &box);     a box of a 3-D array
 *     weir_layout_pack(device, box, 1, array, packed, NULL, stream);                          packed = the box
 *     weir_layout_unpack(device, box, 1, array, packed, NULL, stream);                        the box = packed
 *     weir_layout_destroy(box);
 *     weir_layout_destroy(element);
 *
 * A layout is an ordered list of bytes. Packing copies them in this order. The constructors are those of MPI datatypes
 * and mean the same, with bytes as the only element: docs/layouts.md has the table. `count` items of a layout lie one
 * extent apart. The extent is ub - lb. create_resized sets both bounds, and create_subarray sets them to the whole
 * array. Otherwise lb is the least lb of all parts and ub the greatest ub. If some parts of a struct are resized, only
 * those count. true_lb and true_extent are the bounds of the bytes themselves. Offsets, strides and extents have any
 * sign. Blocks may be empty and in any order, and may overlap. Where they overlap in the destination of a call, each
 * byte gets one of the values.
 *
 * A layout is made canonical when it is created: nested dims of {count, stride} around a run of bytes. Different
 * descriptions of one box have one form. Blocks at irregular places become a piece list.
 *
 * Threads:   a layout does not change, and any threads may use it.
 * Blocking:  commit. A create reads its arrays a few times.
 * Ownership: a layout keeps what it needs of `of`, and after a commit a reference on the device, so all of them may be
 *            destroyed in any order. Arrays belong to the caller and are not used after the call. Destroy a layout
 *            when no kernel uses its piece list any more.
 * Errors:    WEIR_ERR_INVALID, WEIR_ERR_RANGE (a size, an offset or an extent beyond 2^62), WEIR_ERR_LIMIT (more than
 *            WEIR_LAYOUT_PIECES pieces), WEIR_ERR_NOMEM. */
#ifndef WEIR_LAYOUT_H
#define WEIR_LAYOUT_H

#include "weir/device.h"
#include "weir/device/types.h"

WEIR_BEGIN_DECLS

/* Most pieces of a piece list. */
#define WEIR_LAYOUT_PIECES ((uint64_t)1 << 31)

typedef struct weir_layout weir_layout;

/* `bytes` contiguous bytes; 0 is possible. */
WEIR_API WEIR_NODISCARD weir_status weir_layout_create_bytes(uint64_t bytes, weir_layout **out);
/* `count` items of `of`, one extent apart. */
WEIR_API WEIR_NODISCARD weir_status weir_layout_create_contiguous(uint64_t count, const weir_layout *of,
                                                                  weir_layout **out);
/* The same layout. */
WEIR_API WEIR_NODISCARD weir_status weir_layout_create_dup(const weir_layout *of, weir_layout **out);
/* `count` blocks of `length` items. Block i begins at i * stride extents of `of`. */
WEIR_API WEIR_NODISCARD weir_status weir_layout_create_vector(uint64_t count, uint64_t length, int64_t stride,
                                                              const weir_layout *of, weir_layout **out);
/* The same with a stride in bytes. */
WEIR_API WEIR_NODISCARD weir_status weir_layout_create_hvector(uint64_t count, uint64_t length, int64_t stride_bytes,
                                                               const weir_layout *of, weir_layout **out);
/* `count` blocks. Block i has lengths[i] items and begins at places[i] extents of `of`. */
WEIR_API WEIR_NODISCARD weir_status weir_layout_create_indexed(uint64_t count, const uint64_t *lengths,
                                                               const int64_t *places, const weir_layout *of,
                                                               weir_layout **out);
/* The same with places in bytes. */
WEIR_API WEIR_NODISCARD weir_status weir_layout_create_hindexed(uint64_t count, const uint64_t *lengths,
                                                                const int64_t *places_bytes, const weir_layout *of,
                                                                weir_layout **out);
/* `count` blocks of `length` items. Block i begins at places[i] extents of `of`. */
WEIR_API WEIR_NODISCARD weir_status weir_layout_create_indexed_block(uint64_t count, uint64_t length,
                                                                     const int64_t *places, const weir_layout *of,
                                                                     weir_layout **out);
/* The same with places in bytes. */
WEIR_API WEIR_NODISCARD weir_status weir_layout_create_hindexed_block(uint64_t count, uint64_t length,
                                                                      const int64_t *places_bytes,
                                                                      const weir_layout *of, weir_layout **out);
/* `count` blocks. Block i has lengths[i] items of of[i] and begins at byte places_bytes[i]. */
WEIR_API WEIR_NODISCARD weir_status weir_layout_create_struct(uint64_t count, const uint64_t *lengths,
                                                              const int64_t *places_bytes, const weir_layout *const *of,
                                                              weir_layout **out);

typedef enum weir_layout_order {
    WEIR_LAYOUT_C = 0,      /* neighbours of the last dimension are neighbours in memory */
    WEIR_LAYOUT_FORTRAN = 1 /* those of the first */
} weir_layout_order;

/* A box of an array of `dims` (1 or more) dimensions with sizes[i] items of `of`: parts[i] items from starts[i] on. lb
 * is 0, and the extent is that of the whole array. WEIR_ERR_INVALID: a box that leaves the array. */
WEIR_API WEIR_NODISCARD weir_status weir_layout_create_subarray(uint32_t dims, const uint64_t *sizes,
                                                                const uint64_t *parts, const uint64_t *starts,
                                                                weir_layout_order order, const weir_layout *of,
                                                                weir_layout **out);
/* The same bytes with other bounds. */
WEIR_API WEIR_NODISCARD weir_status weir_layout_create_resized(int64_t lb, int64_t extent, const weir_layout *of,
                                                               weir_layout **out);
WEIR_API void weir_layout_destroy(weir_layout *layout);

/* One item of a layout. Its canonical form is `dims` nested dims, the outermost first, around a run of bytes or, if
 * `pieces` is not 0, around a piece list. */
typedef struct weir_layout_info {
    uint64_t size; /* packed bytes */
    int64_t lb;
    int64_t extent;
    int64_t true_lb;      /* the least offset of a byte; 0 if there are no bytes */
    uint64_t true_extent; /* from there to the end of the last byte */
    int64_t offset;       /* of the first packed byte */
    uint64_t run;         /* contiguous bytes inside the dims; with a piece list, the packed bytes of the list */
    uint64_t runs;        /* contiguous runs of the form */
    uint64_t pieces;      /* of the list; 0: none, the layout is strided */
    uint32_t dims;
    weir_layout_dim dim[WEIR_LAYOUT_DIMS];
} weir_layout_info;
WEIR_API void weir_layout_get_info(const weir_layout *layout, weir_layout_info *out);
/* Whether one item of each layout covers the same bytes in the same order. Bounds may differ. Two strided layouts are
 * compared in constant time. With piece lists that are not equal, the runs of both may all be compared. */
WEIR_API bool weir_layout_equal(const weir_layout *a, const weir_layout *b);

/* Writes the layout to `bytes`, of *length capacity, and its length to *length. WEIR_ERR_RANGE when it does not fit:
 * *length is then the length needed, and with a capacity of 0 `bytes` may be NULL. */
WEIR_API WEIR_NODISCARD weir_status weir_layout_export(const weir_layout *layout, void *bytes, size_t *length);
/* The layout of exported bytes, which may come from another host. All numbers are checked. WEIR_ERR_CORRUPT,
 * WEIR_ERR_VERSION. */
WEIR_API WEIR_NODISCARD weir_status weir_layout_import(const void *bytes, size_t length, weir_layout **out);

/* Puts the piece list of an irregular layout into the device's memory, where kernels find it. Layouts that share the
 * list need no separate commit, a strided layout needs none at all, and commit may be repeated. Layouts share
 * allocations on a device. WEIR_ERR_NOMEM, WEIR_ERR_DEVICE, WEIR_ERR_FORKED. */
WEIR_API WEIR_NODISCARD weir_status weir_layout_commit(weir_layout *layout, weir_device *device);
/* The handle of `count` items for kernels (weir/device/layout.h), valid until the layout is destroyed.
 * WEIR_ERR_INVALID: an irregular layout that is not committed to the device. */
WEIR_API WEIR_NODISCARD weir_status weir_layout_device(const weir_layout *layout, const weir_device *device,
                                                       uint64_t count, weir_dev_layout *out);

/* ---- calls in the order of a stream ------------------------------------------------------------------------ */

typedef struct weir_layout_opts {
    size_t size;
    uint64_t offset;     /* the part of the packed bytes that moves: where it begins, */
    uint64_t bytes;      /* and how long it is; 0: all behind offset */
    uint32_t blocks;     /* most blocks of the launch; 0: a default that depends on the part */
    bool check_pointers; /* asks whether the device can access all memory of the call, which takes some us */
} weir_layout_opts;

/* A call moves data by one launch of a kernel on the stream of the device. Pointers may have any alignment. They are
 * memory that the device can access: its own, a peer's, pinned host memory; source and destination must not overlap.
 * Nothing is launched for a part of 0 bytes. Irregular layouts must be committed to the device. A call never waits, it
 * allocates nothing, and a graph can record it; a layout must outlive the graph.
 *
 * WEIR_ERR_INVALID (also: an irregular layout that is not committed; with opts.check_pointers, memory that the device
 * cannot access), WEIR_ERR_RANGE (a part beyond the packed bytes; items beyond 2^62 bytes), WEIR_ERR_DEVICE. */

/* Copies the part of `count` items around `src` to `packed`, from the first byte of `packed` on. */
WEIR_API WEIR_NODISCARD weir_status weir_layout_pack(weir_device *device, const weir_layout *layout, uint64_t count,
                                                     const void *src, void *packed, const weir_layout_opts *opts,
                                                     void *stream);
/* Copies `packed`, the part of the packed bytes, to `count` items around `dst`. */
WEIR_API WEIR_NODISCARD weir_status weir_layout_unpack(weir_device *device, const weir_layout *layout, uint64_t count,
                                                       void *dst, const void *packed, const weir_layout_opts *opts,
                                                       void *stream);
/* Copies the items of `from` to those of `to`, packed byte by packed byte. Both have the same size in all:
 * WEIR_ERR_INVALID otherwise. */
WEIR_API WEIR_NODISCARD weir_status weir_layout_copy(weir_device *device, const weir_layout *to, uint64_t to_count,
                                                     void *dst, const weir_layout *from, uint64_t from_count,
                                                     const void *src, const weir_layout_opts *opts, void *stream);

WEIR_END_DECLS

#endif
