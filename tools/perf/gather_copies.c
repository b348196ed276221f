/* gather_copies.c - the rows of weir-perf gather by copies of the CUDA driver: one copy of as many bytes, or a copy for
 * each row, in a batch or one by one. */
#include "tools/perf/gather_bench.h"

#include <math.h>
#include <string.h>

#define REPLAYS_MOST 3u /* copies of 400,000 rows take a second */

const char *const gather_peer_names[PEERS] = { "bulk", "batch", "each", "flat", "circular", "lines" };

/* The index of the name at the head of the list, and PEERS if it is unknown. */
static uint32_t peer_of(const char *list)
{
    uint32_t i = 0;
    const size_t length = strcspn(list, ",");
    while (i < PEERS && (strlen(gather_peer_names[i]) != length || strncmp(gather_peer_names[i], list, length) != 0)) {
        i++;
    }
    return i;
}

bool gather_wants_peer(const perf_options *options, uint32_t peer)
{
    const char *list = options->peers;
    bool found = list != NULL && strcmp(list, "all") == 0;
    while (list != NULL && !found) {
        found = peer_of(list) == peer;
        list = strchr(list, ',');
        list = list != NULL ? list + 1 : NULL;
    }
    return found;
}

weir_status gather_check_peers(perf_rank *rank)
{
    const char *list = rank->options->peers;
    if (list != NULL && strcmp(list, "all") == 0) {
        return WEIR_OK;
    }
    while (list != NULL) {
        if (peer_of(list) == PEERS) {
            return perf_fail(
                rank, WEIR_ERR_INVALID,
                "gather: --peers '%.*s' is unknown; peers are bulk, batch, each, flat, circular, lines, all",
                (int)strcspn(list, ","), list);
        }
        list = strchr(list, ',');
        list = list != NULL ? list + 1 : NULL;
    }
    return WEIR_OK;
}

typedef struct copying {
    gather_bench *bench;
    uint32_t peer;
    uint64_t bulk; /* bytes */
} copying;

static weir_status put(perf_rank *rank, void *context, uint32_t number)
{
    const copying *c = (const copying *)context;
    const perf_copies *copies = &c->bench->copies;
    (void)rank;
    (void)number;
    return c->peer == PEER_BULK
               ? perf_copies_bulk(copies, weir_memory_pointer(c->bench->out), weir_memory_pointer(c->bench->table),
                                  c->bulk)
               : perf_copies_put(copies, c->peer == PEER_BATCH ? PERF_COPY_BATCH : PERF_COPY_EACH, c->bench->count);
}

/* Clears the output, copies once more, and compares. */
static weir_status check(copying *c, uint64_t row_bytes)
{
    gather_bench *bench = c->bench;
    perf_rank *rank = bench->rank;
    uint64_t *wrong = (uint64_t *)weir_memory_host_pointer(bench->wrong);
    gather_args args;
    memset(&args, 0, sizeof args);
    args.out = (char *)weir_memory_pointer(bench->out);
    args.ids = (const int64_t *)weir_memory_pointer(bench->ids);
    args.wrong = (uint64_t *)weir_memory_pointer(bench->wrong);
    args.row_bytes = row_bytes;
    args.count = bench->count;
    *wrong = 0;
    weir_status status = weir_device_fill(rank->device, args.out, 0, bench->count * row_bytes);
    if (status == WEIR_OK) {
        status = put(rank, c, 1);
    }
    if (status == WEIR_OK) {
        status = perf_run(rank, gather_compare, &args);
    }
    return status != WEIR_OK || *wrong == 0
               ? status
               : perf_fail(rank, WEIR_ERR_CORRUPT, "gather %s, rows of %llu bytes: %llu words are wrong",
                           gather_peer_names[c->peer], (unsigned long long)row_bytes, (unsigned long long)*wrong);
}

static weir_status time_copy(copying *c, uint64_t row_bytes)
{
    perf_rank *rank = c->bench->rank;
    const uint32_t wanted = rank->options->iters != 0 ? rank->options->iters : REPLAYS_MOST;
    const uint32_t replays = wanted < REPLAYS_MOST ? wanted : REPLAYS_MOST;
    const perf_calls calls = { put, c };
    double us[REPLAYS_MOST];
    weir_status status = perf_time_calls(rank, &calls, 1, 1, replays, us);
    if (status == WEIR_OK && c->peer != PEER_BULK) { /* its bytes have other places */
        status = check(c, row_bytes);
    }
    if (status == WEIR_OK) {
        perf_sort(us, replays);
        c->bench->copied_us[c->peer] = perf_percentile(us, replays, 0.5);
    }
    return status;
}

weir_status gather_time_copies(gather_bench *bench, uint64_t row_bytes)
{
    const unsigned long long table = (unsigned long long)(uintptr_t)weir_memory_pointer(bench->table);
    const unsigned long long out = (unsigned long long)(uintptr_t)weir_memory_pointer(bench->out);
    const uint64_t most = weir_memory_bytes(bench->table);
    copying c = { bench, 0, bench->count * row_bytes };
    weir_status status = WEIR_OK;
    c.bulk = c.bulk < most ? c.bulk : most;
    for (uint64_t i = 0; i < bench->count; i++) {
        bench->copies.to[i] = out + i * row_bytes;
        bench->copies.from[i] = table + (uint64_t)bench->drawn[i] * row_bytes;
        bench->copies.sizes[i] = row_bytes;
    }
    for (c.peer = PEER_BULK; c.peer <= PEER_EACH; c.peer++) {
        bench->copied_us[c.peer] = NAN;
        if (status == WEIR_OK && gather_wants_peer(bench->rank->options, c.peer) &&
            (c.peer != PEER_BATCH || perf_copies_can(&bench->copies, PERF_COPY_BATCH))) {
            status = time_copy(&c, row_bytes);
        }
    }
    return status;
}
