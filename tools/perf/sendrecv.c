/* sendrecv.c - weir-perf sendrecv: the transfers of each layout, and the calls of weir and NCCL. */
#include "tools/perf/collective.h"

#include <string.h>

/* ---- layouts ----------------------------------------------------------------------------- */

/* ring: each rank sends to the next one. pairs: ranks 0 and 1 exchange data, ranks 2 and 3, and so on. fan: rank 0
 * exchanges data with every other rank. */
static const char *const layouts[] = { "ring", "pairs", "fan" };
enum { RING, PAIRS, FAN };

/* NULL is ring. Returns ROWS(layouts) if the name is unknown. */
static uint32_t layout_of(const char *name)
{
    uint32_t i = RING;
    while (name != NULL && i < ROWS(layouts) && strcmp(layouts[i], name) != 0) {
        i++;
    }
    return i;
}

bool perf_sendrecv_knows(const char *layout) { return layout_of(layout) < ROWS(layouts); }

const char *perf_sendrecv_layout(const perf_bench *b) { return layouts[layout_of(b->rank->options->layout)]; }

uint32_t perf_sendrecv_parts(const perf_bench *b)
{
    return layout_of(b->rank->options->layout) == FAN ? b->rank->ranks - 1 : 1;
}

weir_status perf_sendrecv_check(const perf_bench *b)
{
    const perf_rank *rank = b->rank;
    const uint32_t layout = layout_of(rank->options->layout);
    return b->wish.what->transfers && layout != RING && rank->ranks == 1
               ? perf_fail(b->rank, WEIR_ERR_INVALID, "--layout %s needs two or more ranks", layouts[layout])
               : WEIR_OK;
}

/* Adds a send to a rank or a receive from it. Its data is at element `at` of the buffer. */
static void add(const weir_collective_request *q, uint32_t peer, bool receive, uint64_t at, weir_transfer *out,
                uint32_t *n)
{
    char *buffer = receive ? (char *)q->recv : (char *)(uintptr_t)q->send;
    weir_transfer *t = &out[(*n)++];
    memset(t, 0, sizeof *t);
    t->buffer = buffer + at * weir_dtype_bytes(q->dtype);
    t->count = q->count;
    t->dtype = q->dtype;
    t->peer = peer;
    t->receive = receive;
}

uint32_t perf_sendrecv_list(const perf_bench *b, const weir_collective_request *q, weir_transfer *out)
{
    const uint32_t rank = b->rank->rank;
    const uint32_t ranks = b->rank->ranks;
    const uint32_t layout = layout_of(b->rank->options->layout);
    uint32_t n = 0;
    if (layout == RING) {
        add(q, (rank + 1) % ranks, false, 0, out, &n);
        add(q, (rank + ranks - 1) % ranks, true, 0, out, &n);
        return n;
    }
    const uint32_t partner = layout == PAIRS ? rank ^ 1 : 0;
    if (layout == FAN && rank == 0) {
        for (uint32_t peer = 1; peer < ranks; peer++) {
            add(q, peer, false, (peer - 1) * q->count, out, &n);
            add(q, peer, true, (peer - 1) * q->count, out, &n);
        }
    } else if (partner < ranks) { /* the last of an odd number of ranks has no partner */
        add(q, partner, false, 0, out, &n);
        add(q, partner, true, 0, out, &n);
    }
    return n;
}

/* ---- data and calls ---------------------------------------------------------------------- */

uint64_t perf_sendrecv_data(const perf_bench *b, const weir_collective_request *q, const weir_transfer *t,
                            weir_collective_request *out)
{
    const uint32_t rank = b->rank->rank;
    const uint32_t from = t->receive ? t->peer : rank;
    const uint32_t to = t->receive ? rank : t->peer;
    *out = *q;
    if (t->receive) { /* a rank that receives from itself writes its send buffer once more, with the same data */
        out->kind = WEIR_BROADCAST;
        out->root = from;
        out->recv = t->buffer;
    } else { /* this rank is not the root, so it receives nothing */
        out->kind = WEIR_GATHER;
        out->root = b->rank->ranks;
        out->send = t->buffer;
    }
    return (uint64_t)(from * b->rank->ranks + to + 1) << 32;
}

weir_status perf_sendrecv_call_weir(void *context, const weir_collective_request *q, void *stream)
{
    const perf_bench *b = (const perf_bench *)context;
    weir_transfer transfers[PERF_TRANSFERS_MAX];
    const uint32_t n = perf_sendrecv_list(b, q, transfers);
    return weir_exchange(b->collective, transfers, n, stream);
}

weir_status perf_sendrecv_call_nccl(void *context, const weir_collective_request *q, void *stream)
{
    const perf_bench *b = (const perf_bench *)context;
    weir_transfer transfers[PERF_TRANSFERS_MAX];
    const uint32_t n = perf_sendrecv_list(b, q, transfers);
    return perf_nccl_exchange(b->nccl, transfers, n, stream);
}
