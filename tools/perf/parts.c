/* parts.c - weir-perf allgather_parts and reduce_scatter_parts: how a size is divided into parts and extents, and the
 * calls of weir and NCCL. NCCL does each as frameworks do, by a group of broadcasts or of reduces. The same broadcasts
 * and reduces describe the data that is written and checked. */
#include "tools/perf/collective.h"

#include <stdlib.h>
#include <string.h>

struct perf_parts {
    uint32_t count;
    uint32_t ranks;
    bool joins;
    uint64_t longest;     /* elements of the rank that has most */
    uint64_t least;       /* and of the one that has least */
    weir_extent *extents; /* `ranks` for each part */
    uint64_t *first;      /* element of the buffer of all extents with which the part's extents count from 0 */
    uint64_t *own;        /* element of the buffer of this rank's elements */
    weir_part *parts;
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

weir_status perf_parts_open(perf_bench *b)
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
    p->count = options->parts != 0 ? options->parts : 1;
    p->ranks = b->rank->ranks;
    p->joins = b->wish.what->reduces;
    p->extents = (weir_extent *)calloc((size_t)p->count * p->ranks, sizeof *p->extents);
    p->first = (uint64_t *)calloc(p->count, sizeof *p->first);
    p->own = (uint64_t *)calloc(p->count, sizeof *p->own);
    p->parts = (weir_part *)calloc(p->count, sizeof *p->parts);
    return p->extents != NULL && p->first != NULL && p->own != NULL && p->parts != NULL
               ? WEIR_OK
               : perf_fail(b->rank, WEIR_ERR_NOMEM, "no memory for parts");
}

void perf_parts_close(perf_bench *b)
{
    if (b->parts != NULL) {
        free(b->parts->extents);
        free(b->parts->first);
        free(b->parts->own);
        free(b->parts->parts);
        free(b->parts);
    }
}

/* ---- division ---------------------------------------------------------------------------- */

void perf_parts_divide(perf_bench *b, uint64_t count)
{
    perf_parts *p = b->parts;
    const char *layout = b->rank->options->layout;
    const bool by_rank = layout != NULL && strcmp(layout, "rank") == 0;
    const uint64_t all = count * p->ranks;
    uint64_t weights[PERF_RANKS_MAX];
    uint64_t totals[PERF_RANKS_MAX] = { 0 };
    uint64_t sum = 0;
    uint64_t at = 0;
    (void)take_skew(b->rank->options->skew, p->ranks, weights);
    for (uint32_t k = 0; k < p->ranks; k++) {
        sum += weights[k];
    }
    for (uint32_t i = 0; i < p->count; i++) {
        const uint64_t elements = all / p->count + (i < all % p->count ? 1 : 0);
        uint64_t weight = 0;
        p->first[i] = by_rank ? 0 : at;
        p->own[i] = totals[b->rank->rank];
        for (uint32_t k = 0; k < p->ranks; k++) {
            const uint64_t begin = elements * weight / sum;
            weight += weights[k];
            weir_extent *extent = &p->extents[(size_t)i * p->ranks + k];
            extent->count = elements * weight / sum - begin;
            extent->at = by_rank ? totals[k] : begin;
            totals[k] += extent->count;
        }
        at += elements;
    }
    p->longest = 0;
    p->least = UINT64_MAX;
    at = 0;
    for (uint32_t k = 0; k < p->ranks; k++) {
        for (uint32_t i = 0; i < p->count && by_rank; i++) {
            p->extents[(size_t)i * p->ranks + k].at += at; /* all elements of rank k follow those of rank k - 1 */
        }
        at += totals[k];
        p->longest = totals[k] > p->longest ? totals[k] : p->longest;
        p->least = totals[k] < p->least ? totals[k] : p->least;
    }
}

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
