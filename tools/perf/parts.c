/* parts.c - weir-perf allgather_parts and reduce_scatter_parts: how a size is divided into parts and extents, and the
 * calls of weir and NCCL. NCCL does each as frameworks do, by a group of broadcasts or of reduces. The same broadcasts
 * and reduces describe the data that is written and checked. An even allgather with a copy behind it, or an even
 * reduce_scatter with a copy before it, is measured beside the call where it gives the same. */
#include "tools/perf/collective.h"

#include <stdlib.h>
#include <string.h>

struct perf_parts {
    uint32_t count;
    uint32_t ranks;
    bool joins;
    bool by_rank;         /* the elements of a rank lie together, otherwise those of a part */
    uint64_t longest;     /* elements of the rank that has most */
    uint64_t least;       /* and of the one that has least */
    weir_extent *extents; /* `ranks` for each part */
    uint64_t *first;      /* element of the buffer of all extents with which the part's extents count from 0 */
    uint64_t *own;        /* element of the buffer of this rank's elements */
    weir_part *parts;
    weir_layout *order; /* the places of all ranks' elements, rank by rank; NULL: not to be measured */
};

/* ---- options ----------------------------------------------------------------------------- */

/* The ranks' shares of a part: weights of --skew. */
static bool take_skew(const char *skew, uint32_t ranks, uint64_t *weights)
{
    char *end = NULL;
    const bool even = skew == NULL || strcmp(skew, "even") == 0;
    const bool linear = !even && strcmp(skew, "linear") == 0;
    const bool one = !even && strcmp(skew, "one") == 0;
    uint64_t sum = 0;
    for (uint32_t k = 0; k < ranks; k++) {
        weights[k] = even ? 1 : linear ? k + 1 : k == 0 ? 1 : 0;
        if (!even && !linear && !one) {
            if (*skew < '0' || *skew > '9') {
                return false;
            }
            weights[k] = strtoul(skew, &end, 10);
            skew = *end == ',' && k + 1 < ranks ? end + 1 : end;
        }
        sum += weights[k];
    }
    return sum != 0 && sum <= UINT32_MAX && (end == NULL || *skew == '\0');
}

uint64_t perf_parts_bytes(const perf_options *options, uint32_t ranks)
{
    uint64_t row = 0;
    for (uint32_t i = 0; i < options->parts_bytes.count; i++) {
        row += options->parts_bytes.values[i];
    }
    return row * options->rows * ranks;
}

weir_status perf_parts_open(perf_bench *b, uint64_t bytes)
{
    const perf_options *options = b->rank->options;
    uint64_t weights[PERF_RANKS_MAX];
    if (!b->wish.what->uneven) {
        return WEIR_OK;
    }
    if (!take_skew(options->skew, b->rank->ranks, weights)) {
        return perf_fail(b->rank, WEIR_ERR_INVALID,
                         "--skew is even, linear, one, or a list of %u weights of ranks, as 3,1", b->rank->ranks);
    }
    if (options->layout != NULL && strcmp(options->layout, "part") != 0 && strcmp(options->layout, "rank") != 0) {
        return perf_fail(b->rank, WEIR_ERR_INVALID, "--layout is part or rank");
    }
    perf_parts *p = (perf_parts *)calloc(1, sizeof *p);
    if (p == NULL) {
        return perf_fail(b->rank, WEIR_ERR_NOMEM, "no memory for parts");
    }
    b->parts = p;
    p->count = options->parts_bytes.count != 0 ? options->parts_bytes.count : options->parts != 0 ? options->parts : 1;
    p->by_rank = options->layout != NULL && strcmp(options->layout, "rank") == 0;
    p->ranks = b->rank->ranks;
    p->joins = b->wish.what->reduces;
    p->extents = (weir_extent *)calloc((size_t)p->count * p->ranks, sizeof *p->extents);
    p->first = (uint64_t *)calloc(p->count, sizeof *p->first);
    p->own = (uint64_t *)calloc(p->count, sizeof *p->own);
    p->parts = (weir_part *)calloc(p->count, sizeof *p->parts);
    if (p->extents == NULL || p->first == NULL || p->own == NULL || p->parts == NULL) {
        return perf_fail(b->rank, WEIR_ERR_NOMEM, "no memory for parts");
    }
    return weir_memory_allocate(b->rank->comm, bytes, NULL, &b->staged);
}

void perf_parts_close(perf_bench *b)
{
    if (b->parts != NULL) {
        weir_layout_destroy(b->parts->order);
        free(b->parts->extents);
        free(b->parts->first);
        free(b->parts->own);
        free(b->parts->parts);
        free(b->parts);
    }
}

/* ---- division ---------------------------------------------------------------------------- */

/* Elements of a part, of all ranks; *row of a row, which one rank has. */
static uint64_t elements_of(const perf_bench *b, uint32_t part, uint64_t all, uint64_t *row)
{
    const perf_options *options = b->rank->options;
    *row = 1;
    if (options->parts_bytes.count == 0) {
        return all / b->parts->count + (part < all % b->parts->count ? 1 : 0);
    }
    *row = options->parts_bytes.values[part] / weir_dtype_bytes((weir_dtype)b->wish.dtype);
    return *row * options->rows * b->rank->ranks;
}

/* Describes the elements of all ranks in the buffer of all extents, rank by rank. */
static weir_status list_order(perf_bench *b)
{
    perf_parts *p = b->parts;
    const uint64_t element = weir_dtype_bytes((weir_dtype)b->wish.dtype);
    const uint64_t count = (uint64_t)p->count * p->ranks;
    uint64_t *lengths = (uint64_t *)malloc(count * sizeof *lengths);
    int64_t *places = (int64_t *)malloc(count * sizeof *places);
    weir_layout *of = NULL;
    weir_status status = lengths != NULL && places != NULL
                             ? weir_layout_create_bytes(element, &of)
                             : perf_fail(b->rank, WEIR_ERR_NOMEM, "no memory for the order of parts");
    for (uint64_t i = 0; i < count && status == WEIR_OK; i++) {
        const uint64_t part = i % p->count;
        const weir_extent *extent = &p->extents[part * p->ranks + i / p->count];
        lengths[i] = extent->count;
        places[i] = (int64_t)((p->first[part] + extent->at) * element);
    }
    if (status == WEIR_OK) {
        status = weir_layout_create_hindexed(count, lengths, places, of, &p->order);
    }
    if (status == WEIR_OK) {
        status = weir_layout_commit(p->order, b->rank->device);
    }
    weir_layout_destroy(of);
    free(places);
    free(lengths);
    return status;
}

weir_status perf_parts_divide(perf_bench *b, uint64_t count)
{
    perf_parts *p = b->parts;
    uint64_t weights[PERF_RANKS_MAX];
    uint64_t totals[PERF_RANKS_MAX] = { 0 };
    uint64_t sum = 0;
    uint64_t at = 0;
    (void)take_skew(b->rank->options->skew, p->ranks, weights);
    for (uint32_t k = 0; k < p->ranks; k++) {
        sum += weights[k];
    }
    for (uint32_t i = 0; i < p->count; i++) {
        uint64_t row = 1;
        const uint64_t elements = elements_of(b, i, count * p->ranks, &row);
        uint64_t weight = 0;
        p->first[i] = p->by_rank ? 0 : at;
        p->own[i] = totals[b->rank->rank];
        for (uint32_t k = 0; k < p->ranks; k++) {
            const uint64_t begin = elements / row * weight / sum * row;
            weight += weights[k];
            weir_extent *extent = &p->extents[(size_t)i * p->ranks + k];
            extent->count = elements / row * weight / sum * row - begin;
            extent->at = p->by_rank ? totals[k] : begin;
            totals[k] += extent->count;
        }
        at += elements;
    }
    p->longest = 0;
    p->least = UINT64_MAX;
    at = 0;
    for (uint32_t k = 0; k < p->ranks; k++) {
        for (uint32_t i = 0; i < p->count && p->by_rank; i++) {
            p->extents[(size_t)i * p->ranks + k].at += at; /* all elements of rank k follow those of rank k - 1 */
        }
        at += totals[k];
        p->longest = totals[k] > p->longest ? totals[k] : p->longest;
        p->least = totals[k] < p->least ? totals[k] : p->least;
    }
    weir_layout_destroy(p->order);
    p->order = NULL;
    return !p->by_rank && p->count > 1 && p->longest == p->least ? list_order(b) : WEIR_OK;
}

bool perf_parts_copied(const perf_bench *b) { return b->parts != NULL && b->parts->order != NULL; }

uint64_t perf_parts_longest(const perf_bench *b) { return b->parts->longest; }

/* Each rank receives, or sends, all elements but its own. */
double perf_parts_bus(const perf_bench *b, uint64_t count)
{
    return count == 0 ? 0 : 1 - (double)b->parts->least / ((double)count * b->parts->ranks);
}

/* ---- calls ------------------------------------------------------------------------------- */

/* In place, both buffers of the request are the buffer of all extents. */
static char *own_place(const perf_bench *b, const weir_collective_request *q, uint32_t part)
{
    const perf_parts *p = b->parts;
    const uint64_t element = weir_dtype_bytes(q->dtype);
    char *own = p->joins ? (char *)q->recv : (char *)(uintptr_t)q->send;
    const uint64_t in_place = p->first[part] + p->extents[(size_t)part * p->ranks + b->rank->rank].at;
    return own + (q->send == q->recv ? in_place : p->own[part]) * element;
}

static char *all_place(const perf_bench *b, const weir_collective_request *q, uint32_t part)
{
    char *all = b->parts->joins ? (char *)(uintptr_t)q->send : (char *)q->recv;
    return all + b->parts->first[part] * weir_dtype_bytes(q->dtype);
}

weir_status perf_parts_call_weir(void *context, const weir_collective_request *q, void *stream)
{
    const perf_bench *b = (const perf_bench *)context;
    const perf_parts *p = b->parts;
    for (uint32_t i = 0; i < p->count; i++) {
        char *all = all_place(b, q, i);
        char *own = own_place(b, q, i);
        p->parts[i].send = p->joins ? all : own;
        p->parts[i].recv = p->joins ? own : all;
        p->parts[i].extents = &p->extents[(size_t)i * p->ranks];
        p->parts[i].dtype = q->dtype;
    }
    return p->joins ? weir_reduce_scatter_parts(b->collective, p->parts, p->count, q->op, stream)
                    : weir_allgather_parts(b->collective, p->parts, p->count, stream);
}

/* Only out of place: a rank's elements lie together in one of the buffers. */
weir_status perf_parts_call_copied(void *context, const weir_collective_request *q, void *stream)
{
    const perf_bench *b = (const perf_bench *)context;
    const perf_parts *p = b->parts;
    weir_device *device = b->rank->device;
    void *staged = weir_memory_pointer(b->staged);
    if (p->joins) {
        const weir_status status = weir_layout_pack(device, p->order, 1, q->send, staged, NULL, stream);
        return status == WEIR_OK
                   ? weir_reduce_scatter(b->collective, staged, q->recv, q->count, q->dtype, q->op, stream)
                   : status;
    }
    const weir_status status = weir_allgather(b->collective, q->send, staged, q->count, q->dtype, stream);
    return status == WEIR_OK ? weir_layout_unpack(device, p->order, 1, q->recv, staged, NULL, stream) : status;
}

uint32_t perf_parts_extents(const perf_bench *b) { return b->parts->count * b->parts->ranks; }

void perf_parts_extent(const perf_bench *b, const weir_collective_request *q, uint32_t index,
                       weir_collective_request *out)
{
    const perf_parts *p = b->parts;
    const weir_extent *extent = &p->extents[index];
    char *all = all_place(b, q, index / p->ranks) + extent->at * weir_dtype_bytes(q->dtype);
    char *own = own_place(b, q, index / p->ranks);
    *out = *q;
    out->root = index % p->ranks;
    out->count = extent->count;
    out->kind = p->joins ? WEIR_REDUCE : WEIR_BROADCAST;
    if (p->joins) {
        out->send = all;
        out->recv = out->root == b->rank->rank ? own : NULL;
    } else {
        out->send = out->root == b->rank->rank ? own : NULL;
        out->recv = all;
    }
}

weir_status perf_parts_call_nccl(void *context, const weir_collective_request *q, void *stream)
{
    const perf_bench *b = (const perf_bench *)context;
    weir_status status = perf_nccl_group(b->nccl, true);
    for (uint32_t i = 0; i < perf_parts_extents(b) && status == WEIR_OK; i++) {
        weir_collective_request extent;
        perf_parts_extent(b, q, i, &extent);
        status = extent.count != 0 ? perf_nccl_call(b->nccl, &extent, stream) : WEIR_OK;
    }
    const weir_status ended = perf_nccl_group(b->nccl, false);
    return status != WEIR_OK ? status : ended;
}
