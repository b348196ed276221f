/* decode.c - makes a layout of a datatype.
 *
 * MPI says how a datatype was constructed. Each level is rebuilt with the constructor of the same name, and then
 * compared with what MPI says about it. MPI pads the end of a struct to the alignment of its elements, which bytes do
 * not have, so a struct takes its bounds from MPI. Open MPI 4.1 places the items of a datatype wrongly when a part
 * without bytes has bounds. Such datatypes are left to MPI, so that all memory is packed in the same way. */
#include <stddef.h>
#include <stdio.h>

#include "src/mpi/alloc.h"
#include "src/mpi/type.h"
#include "weir/error.h"

#define DEPTH 200

/* What MPI says about the construction of a datatype, and the arguments as weir takes them. */
typedef struct contents {
    int combiner;
    int integers;
    int addresses;
    int types;
    int *integer;
    MPI_Aint *address;
    MPI_Datatype *type;
    uint64_t *length;
    int64_t *place;
    const weir_layout **of;
    char *reason;
    int depth;
} contents;

static bool decode(MPI_Datatype datatype, int depth, weir_layout **out, char *reason);

static bool refuse(char *reason, const char *text)
{
    (void)snprintf(reason, 128, "%s", text);
    return false;
}

static bool check(char *reason, weir_status status) { return status == WEIR_OK || refuse(reason, weir_last_error()); }

/* ---- named datatypes ------------------------------------------------------------------------------------- */

typedef struct pair {
    MPI_Datatype datatype;
    uint64_t first; /* bytes of the first member */
    int64_t place;  /* of the int behind it */
    int64_t extent;
} pair;

#define PAIR(datatype, member)    \
    {                             \
        datatype, sizeof(member), \
            offsetof(             \
                struct {          \
                    member a;     \
                    int b;        \
                },                \
                b),               \
            sizeof(struct {       \
                member a;         \
                int b;            \
            })                    \
    }

/* A named datatype has its bytes without gaps, but for pairs of a value and an int. */
static bool decode_named(MPI_Datatype datatype, uint64_t size, weir_layout **out, char *reason)
{
    const pair pairs[] = { PAIR(MPI_FLOAT_INT, float), PAIR(MPI_DOUBLE_INT, double), PAIR(MPI_LONG_INT, long),
                           PAIR(MPI_SHORT_INT, short), PAIR(MPI_LONG_DOUBLE_INT, long double) };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        if (pairs[i].datatype == datatype) {
            weir_layout *value = NULL, *number = NULL, *both = NULL;
            const uint64_t lengths[2] = { 1, 1 };
            const int64_t places[2] = { 0, pairs[i].place };
            bool good = check(reason, weir_layout_create_bytes(pairs[i].first, &value)) &&
                        check(reason, weir_layout_create_bytes(sizeof(int), &number));
            const weir_layout *const of[2] = { value, number };
            good = good && check(reason, weir_layout_create_struct(2, lengths, places, of, &both)) &&
                   check(reason, weir_layout_create_resized(0, pairs[i].extent, both, out));
            weir_layout_destroy(value);
            weir_layout_destroy(number);
            weir_layout_destroy(both);
            return good;
        }
    }
    return check(reason, weir_layout_create_bytes(size, out));
}

/* ---- constructed datatypes ------------------------------------------------------------------------------- */

/* Lengths from integer[at] on, places from integer[from] on, or from address[0] on if `from` is negative. */
static void read_blocks(contents *c, int count, int at, int from)
{
    for (int i = 0; i < count; i++) {
        if (at > 0) {
            c->length[i] = (uint64_t)c->integer[at + i];
        }
        c->place[i] = from >= 0 ? (int64_t)c->integer[from + i] : (int64_t)c->address[i];
    }
}

/* Layouts of the members of a struct; neighbours of one datatype share a layout. */
static bool decode_members(contents *c, int count)
{
    for (int i = 0; i < count; i++) {
        weir_layout *member = NULL;
        if (i > 0 && c->type[i] == c->type[i - 1]) {
            c->of[i] = c->of[i - 1];
        } else if (decode(c->type[i], c->depth + 1, &member, c->reason)) {
            c->of[i] = member;
        } else {
            return false;
        }
    }
    return true;
}

static void free_members(const contents *c, int count)
{
    for (int i = 0; i < count; i++) {
        if (i == 0 || c->of[i] != c->of[i - 1]) {
            weir_layout_destroy((weir_layout *)(uintptr_t)c->of[i]);
        }
    }
}

static bool build_struct(contents *c, weir_layout **out)
{
    const int count = c->integer[0];
    read_blocks(c, count, 1, -1);
    const bool good = decode_members(c, count) &&
                      check(c->reason, weir_layout_create_struct((uint64_t)count, c->length, c->place, c->of, out));
    free_members(c, count);
    return good;
}

static weir_status build_subarray(const contents *c, const weir_layout *of, weir_layout **out)
{
    uint64_t *sizes = c->length;
    const int dims = c->integer[0];
    for (int i = 0; i < 3 * dims; i++) {
        sizes[i] = (uint64_t)c->integer[1 + i];
    }
    const weir_layout_order order = c->integer[1 + 3 * dims] == MPI_ORDER_C ? WEIR_LAYOUT_C : WEIR_LAYOUT_FORTRAN;
    return weir_layout_create_subarray((uint32_t)dims, sizes, sizes + dims, sizes + 2 * dims, order, of, out);
}

/* A constructor of one old datatype. */
static bool build_of(contents *c, const weir_layout *of, weir_layout **out)
{
    const int *n = c->integer;
    const MPI_Aint *a = c->address;
    weir_status status;
    switch (c->combiner) {
    case MPI_COMBINER_DUP:
        status = weir_layout_create_dup(of, out);
        break;
    case MPI_COMBINER_CONTIGUOUS:
        status = weir_layout_create_contiguous((uint64_t)n[0], of, out);
        break;
    case MPI_COMBINER_VECTOR:
        status = weir_layout_create_vector((uint64_t)n[0], (uint64_t)n[1], n[2], of, out);
        break;
    case MPI_COMBINER_HVECTOR:
        status = weir_layout_create_hvector((uint64_t)n[0], (uint64_t)n[1], a[0], of, out);
        break;
    case MPI_COMBINER_INDEXED:
        read_blocks(c, n[0], 1, n[0] + 1);
        status = weir_layout_create_indexed((uint64_t)n[0], c->length, c->place, of, out);
        break;
    case MPI_COMBINER_HINDEXED:
        read_blocks(c, n[0], 1, -1);
        status = weir_layout_create_hindexed((uint64_t)n[0], c->length, c->place, of, out);
        break;
    case MPI_COMBINER_INDEXED_BLOCK:
        read_blocks(c, n[0], 0, 2);
        status = weir_layout_create_indexed_block((uint64_t)n[0], (uint64_t)n[1], c->place, of, out);
        break;
    case MPI_COMBINER_HINDEXED_BLOCK:
        read_blocks(c, n[0], 0, -1);
        status = weir_layout_create_hindexed_block((uint64_t)n[0], (uint64_t)n[1], c->place, of, out);
        break;
    case MPI_COMBINER_SUBARRAY:
        status = build_subarray(c, of, out);
        break;
    case MPI_COMBINER_RESIZED:
        status = weir_layout_create_resized(a[0], a[1], of, out);
        break;
    default:
        return refuse(c->reason, "a constructor that weir does not have");
    }
    return check(c->reason, status);
}

/* get_contents returns new handles: those of constructed datatypes must be freed, those of named ones must not. */
static void free_handles(contents *c)
{
    for (int i = 0; i < c->types; i++) {
        int integers, addresses, types, combiner = MPI_COMBINER_NAMED;
        if (PMPI_Type_get_envelope(c->type[i], &integers, &addresses, &types, &combiner) == MPI_SUCCESS &&
            combiner != MPI_COMBINER_NAMED && combiner != MPI_COMBINER_F90_REAL &&
            combiner != MPI_COMBINER_F90_COMPLEX && combiner != MPI_COMBINER_F90_INTEGER) {
            (void)PMPI_Type_free(&c->type[i]);
        }
    }
}

static bool build(contents *c, weir_layout **out)
{
    weir_layout *of = NULL;
    if (c->combiner == MPI_COMBINER_STRUCT) {
        return build_struct(c, out);
    }
    if (c->types != 1) {
        return refuse(c->reason, "a constructor that weir does not have");
    }
    if (!decode(c->type[0], c->depth + 1, &of, c->reason)) {
        return false;
    }
    const bool good = build_of(c, of, out);
    weir_layout_destroy(of);
    return good;
}

static bool decode_constructed(MPI_Datatype datatype, contents *c, weir_layout **out)
{
    const size_t integers = (size_t)c->integers, addresses = (size_t)c->addresses, types = (size_t)c->types;
    const size_t most = integers > addresses ? integers : addresses;
    bool good = false;
    c->integer = weiri_mpi_alloc(integers, sizeof *c->integer);
    c->address = weiri_mpi_alloc(addresses, sizeof *c->address);
    c->type = weiri_mpi_alloc(types, sizeof(MPI_Datatype));
    c->length = weiri_mpi_alloc(most, sizeof *c->length);
    c->place = weiri_mpi_alloc(most, sizeof *c->place);
    c->of = weiri_mpi_alloc(types, sizeof(weir_layout *));
    if (c->integer == NULL || c->address == NULL || c->type == NULL || c->length == NULL || c->place == NULL ||
        c->of == NULL) {
        (void)refuse(c->reason, "no memory for its arguments");
    } else if (PMPI_Type_get_contents(datatype, c->integers, c->addresses, c->types, c->integer, c->address, c->type) !=
               MPI_SUCCESS) {
        (void)refuse(c->reason, "MPI_Type_get_contents failed");
    } else {
        good = build(c, out);
        free_handles(c);
    }
    weiri_mpi_free(c->integer);
    weiri_mpi_free(c->address);
    weiri_mpi_free(c->type);
    weiri_mpi_free(c->length);
    weiri_mpi_free(c->place);
    weiri_mpi_free(c->of);
    return good;
}

/* ---- comparison ------------------------------------------------------------------------------------------ */

static bool set_bounds(weir_layout **layout, MPI_Count lb, MPI_Count extent, char *reason)
{
    weir_layout *resized = NULL;
    if (!check(reason, weir_layout_create_resized(lb, extent, *layout, &resized))) {
        return false;
    }
    weir_layout_destroy(*layout);
    *layout = resized;
    return true;
}

/* Whether MPI says the same as the layout about size and bounds. */
static bool compare(MPI_Datatype datatype, int combiner, int depth, weir_layout **layout, char *reason)
{
    MPI_Count size = 0, lb = 0, extent = 0, true_lb = 0, true_extent = 0;
    weir_layout_info info;
    if (PMPI_Type_size_x(datatype, &size) != MPI_SUCCESS ||
        PMPI_Type_get_extent_x(datatype, &lb, &extent) != MPI_SUCCESS ||
        PMPI_Type_get_true_extent_x(datatype, &true_lb, &true_extent) != MPI_SUCCESS) {
        return refuse(reason, "MPI cannot tell its size and bounds");
    }
    weir_layout_get_info(*layout, &info);
    if ((MPI_Count)info.size != size) {
        return refuse(reason, "its size in weir differs from MPI's");
    }
    if (info.size == 0 && depth > 0 && (lb != 0 || extent != 0)) {
        return refuse(reason, "a part without bytes has bounds");
    }
    if (info.size != 0 && (info.true_lb != true_lb || (MPI_Count)info.true_extent != true_extent)) {
        return refuse(reason, "its true bounds in weir differ from MPI's");
    }
    if (info.lb == lb && info.extent == extent) {
        return true;
    }
    return combiner == MPI_COMBINER_STRUCT || info.size == 0 ? set_bounds(layout, lb, extent, reason)
                                                             : refuse(reason, "its bounds in weir differ from MPI's");
}

static bool decode(MPI_Datatype datatype, int depth, weir_layout **out, char *reason)
{
    contents c = { .reason = reason, .depth = depth };
    MPI_Count size = 0;
    *out = NULL;
    if (depth > DEPTH) {
        return refuse(reason, "it is nested too deeply");
    }
    if (PMPI_Type_get_envelope(datatype, &c.integers, &c.addresses, &c.types, &c.combiner) != MPI_SUCCESS ||
        PMPI_Type_size_x(datatype, &size) != MPI_SUCCESS) {
        return refuse(reason, "MPI does not say how it was made");
    }
    const bool named = c.combiner == MPI_COMBINER_NAMED || c.combiner == MPI_COMBINER_F90_REAL ||
                       c.combiner == MPI_COMBINER_F90_COMPLEX || c.combiner == MPI_COMBINER_F90_INTEGER;
    const bool good =
        (named ? decode_named(datatype, (uint64_t)size, out, reason) : decode_constructed(datatype, &c, out)) &&
        compare(datatype, c.combiner, depth, out, reason);
    if (!good) {
        weir_layout_destroy(*out);
        *out = NULL;
    }
    return good;
}

bool weiri_mpi_decode(MPI_Datatype datatype, weir_layout **out, char reason[128])
{
    return decode(datatype, 0, out, reason);
}
