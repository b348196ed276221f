/* layout.h - a layout and its canonical form.
 *
 * layout.c has the constructors of dims, blocks.c those of blocks, form.c the nests, list.c the piece lists, commit.c
 * their copies in the memory of devices, refine.c the order of copies between two layouts, export.c the bytes for
 * peers. Outside this folder halos alone include it, for the handles that their kernels get. */
#ifndef WEIRI_LAYOUT_H
#define WEIRI_LAYOUT_H

#include "src/host/base/refcount.h"
#include "weir/device/impl/layout_nest.h"
#include "weir/layout.h"

WEIR_BEGIN_DECLS

/* Sizes, offsets and extents lie between -WEIRI_LAYOUT_MOST and WEIRI_LAYOUT_MOST. */
#define WEIRI_LAYOUT_MOST ((int64_t)1 << 62)

typedef struct weiri_layout_copy weiri_layout_copy;

/* A piece list. It does not change once it is made, and the layouts derived from one share it. */
typedef struct weiri_layout_list {
    weiri_refcount refs;
    uint32_t count;            /* pieces */
    uint32_t nest_count;       /* distinct nests of the pieces; 0: all pieces are runs */
    uint64_t size;             /* packed bytes */
    uint64_t runs;             /* contiguous runs of all pieces */
    weir_layout_piece *pieces; /* count + 1; the first one has place 0 */
    uint32_t *nest_of;         /* NULL: all pieces are runs */
    weir_layout_nest *nests;   /* with offset 0 */
    weiri_layout_copy *copies; /* in the memory of devices (commit.c); only ever grows */
} weiri_layout_list;

/* The canonical form. Without bytes all is zero. */
typedef struct weiri_layout_form {
    weir_layout_nest nest;   /* up to WEIR_LAYOUT_DIMS dims */
    weiri_layout_list *list; /* a reference; NULL: nest.run contiguous bytes. Its size is nest.run. */
} weiri_layout_form;

typedef struct weiri_layout_bounds {
    int64_t lb;
    int64_t ub;
} weiri_layout_bounds;

struct weir_layout {
    weiri_layout_form form;
    weiri_layout_bounds bounds;
    weiri_layout_bounds true_bounds;
    bool resized; /* bounds were given, and in a struct they outweigh those that were not */
};

/* ---- numbers: false if the result is beyond WEIRI_LAYOUT_MOST --------------------------------------------- */

bool weiri_layout_add(int64_t a, int64_t b, int64_t *out);
/* count * stride */
bool weiri_layout_multiply(uint64_t count, int64_t stride, int64_t *out);
bool weiri_layout_scale(int64_t place, int64_t unit, int64_t *out);
/* Adds to lb and ub. Their distance must be in range, too. */
bool weiri_layout_move(weiri_layout_bounds *bounds, int64_t lb, int64_t ub);
/* The bounds of `count` items, `stride` bytes apart. */
bool weiri_layout_spread(weiri_layout_bounds *bounds, uint64_t count, int64_t stride);

/* ---- forms ------------------------------------------------------------------------------------------------ */

/* A contiguous run. */
weiri_layout_form weiri_layout_form_of_run(uint64_t bytes);
/* Another reference on the list. */
weiri_layout_form weiri_layout_form_copy(const weiri_layout_form *form);
void weiri_layout_form_release(weiri_layout_form *form);
bool weiri_layout_nest_same(const weir_layout_nest *a, const weir_layout_nest *b);
/* Puts a dim around the nest, whose size stays in range. `listed`: the run is a piece list. False if it would be a dim
 * more than `room`. */
bool weiri_layout_nest_repeat(weir_layout_nest *nest, bool listed, uint64_t count, int64_t stride, uint32_t room);
/* `count` times the form, `stride` bytes apart. The caller has checked that all offsets are in range. WEIR_ERR_RANGE,
 * WEIR_ERR_LIMIT, WEIR_ERR_NOMEM; the form then stays, and its text begins with `call`. */
weir_status weiri_layout_form_repeat(const char *call, weiri_layout_form *form, uint64_t count, int64_t stride);

/* ---- lists ------------------------------------------------------------------------------------------------ */

/* Blocks of items: the arguments of the indexed constructors and of struct. */
typedef struct weiri_layout_blocks {
    const char *call;
    uint64_t count;
    const uint64_t *lengths; /* NULL: all blocks have `length` items */
    uint64_t length;
    const int64_t *places;
    int64_t scale;                 /* bytes of a unit of places */
    const weir_layout *const *ofs; /* NULL: all items are of `of` */
    const weir_layout *of;
} weiri_layout_blocks;

/* Whether the layout has bounds: without bytes only a resized one has. */
bool weiri_layout_has_bounds(const weir_layout *layout);
/* The canonical form of the blocks, whose offsets and size are in range and which have at least one byte.
 * WEIR_ERR_LIMIT, WEIR_ERR_NOMEM. */
weir_status weiri_layout_form_of_blocks(const weiri_layout_blocks *blocks, weiri_layout_form *out);
/* Makes the form's inner dims part of a piece list until the nest has room for one more dim. */
weir_status weiri_layout_list_fold(const char *call, weiri_layout_form *form);
void weiri_layout_list_release(weiri_layout_list *list);

/* ---- copies between two layouts --------------------------------------------------------------------------- */

/* Puts the bytes of two nests of one size, not 0, into the order that suits a copy from `from` to `to`: packed byte i
 * of `to` still gets its byte of `from`. False: the nests do not divide each other and stay as they are. */
bool weiri_layout_refine(weir_layout_nest *to, weir_layout_nest *from);

/* ---- devices ---------------------------------------------------------------------------------------------- */

/* Frees the list's copies in the memory of devices. */
void weiri_layout_copies_release(weiri_layout_list *list);
/* As weir_layout_device. The text begins with `call`. Does not wait and allocates nothing. */
weir_status weiri_layout_handle(const char *call, const weir_layout *layout, const weir_device *device, uint64_t count,
                                weir_dev_layout *out);

WEIR_END_DECLS

#endif
