/* sendrecv.c - weir-perf sendrecv: the transfers of each layout, and the calls of weir and NCCL. */
#include "tools/perf/collective.h"

#include <stdlib.h>
#include <string.h>

/* ---- layouts ----------------------------------------------------------------------------- */

/* ring: each rank sends to the next one. pairs: ranks 0 and 1 exchange data, ranks 2 and 3, and so on. fan: rank 0
 * exchanges data with every other rank. all: so does every rank. self: each rank sends to itself. With --transfers, so
 * many equal transfers take the place of each. */
static const char *const layouts[] = { "ring", "pairs", "fan", "all", "self" };
enum { RING, PAIRS, FAN, ALL, SELF };

/* Whether the layout has transfers with each other rank. */
static bool has_all_peers(uint32_t layout) { return layout == FAN || layout == ALL; }

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

static uint32_t layout_of_bench(const perf_bench *b) { return layout_of(b->rank->options->layout); }

/* To each partner. */
static uint32_t transfers_of(const perf_bench *b)
{
    return b->rank->options->transfers != 0 ? b->rank->options->transfers : 1;
}

uint32_t perf_sendrecv_parts(const perf_bench *b)
{
    return transfers_of(b) * (has_all_peers(layout_of_bench(b)) ? b->rank->ranks - 1 : 1);
}

weir_status perf_sendrecv_open(perf_bench *b)
{
    const perf_rank *rank = b->rank;
    const uint32_t layout = layout_of_bench(b);
    if (!b->wish.what->transfers) {
        return WEIR_OK;
    }
    if ((layout == PAIRS || has_all_peers(layout)) && rank->ranks == 1) {
        return perf_fail(b->rank, WEIR_ERR_INVALID, "--layout %s needs two or more ranks", layouts[layout]);
    }
    b->transfers = (weir_transfer *)calloc((size_t)perf_sendrecv_parts(b) * 2, sizeof *b->transfers);
    return b->transfers != NULL ? WEIR_OK : perf_fail(b->rank, WEIR_ERR_NOMEM, "no memory for transfers");
}

void perf_sendrecv_close(perf_bench *b) { free(b->transfers); }

/* Adds a send to rank `to` and a receive from rank `from`, so many times. The first one has its data at element `at` of
 * both buffers, and the others behind it. */
static void add(const perf_bench *b, const weir_collective_request *q, uint32_t to, uint32_t from, uint64_t at,
                uint32_t *n)
{
    for (uint32_t i = 0; i < 2 * transfers_of(b); i++) {
        weir_transfer *t = &b->transfers[(*n)++];
        t->receive = i % 2 != 0;
        char *buffer = t->receive ? (char *)q->recv : (char *)(uintptr_t)q->send;
        t->buffer = buffer + (at + i / 2 * q->count) * weir_dtype_bytes(q->dtype);
        t->count = q->count;
        t->dtype = q->dtype;
        t->peer = t->receive ? from : to;
    }
}

uint32_t perf_sendrecv_list(const perf_bench *b, const weir_collective_request *q)
{
    const uint32_t rank = b->rank->rank;
    const uint32_t ranks = b->rank->ranks;
    const uint32_t layout = layout_of_bench(b);
    const uint32_t partner = layout == SELF ? rank : layout == PAIRS ? rank ^ 1 : 0;
    uint32_t n = 0;
    if (layout == RING) {
        add(b, q, (rank + 1) % ranks, (rank + ranks - 1) % ranks, 0, &n);
    } else if (layout == ALL || (layout == FAN && rank == 0)) {
        for (uint32_t k = 0; k + 1 < ranks; k++) {
            const uint32_t peer = k < rank ? k : k + 1;
            add(b, q, peer, peer, (uint64_t)k * transfers_of(b) * q->count, &n);
        }
    } else if (partner < ranks) { /* the last of an odd number of ranks has no partner */
        add(b, q, partner, partner, 0, &n);
    }
    return n;
}

/* ---- data and calls ---------------------------------------------------------------------- */

uint64_t perf_sendrecv_data(const perf_bench *b, const weir_collective_request *q, uint32_t index,
                            weir_collective_request *out)
{
    const weir_transfer *t = &b->transfers[index];
    const uint32_t rank = b->rank->rank;
    const uint32_t from = t->receive ? t->peer : rank;
    const uint32_t to = t->receive ? rank : t->peer;
    const uint32_t number = index / 2 % transfers_of(b); /* of those from this sender to this receiver */
    *out = *q;
    if (t->receive) { /* a rank that receives from itself writes what it sends once more, with the same data */
        out->kind = WEIR_BROADCAST;
        out->root = from;
        out->send = b->transfers[index - 1].buffer;
        out->recv = t->buffer;
    } else { /* this rank is not the root, so it receives nothing */
        out->kind = WEIR_GATHER;
        out->root = b->rank->ranks;
        out->send = t->buffer;
    }
    return (uint64_t)((from * b->rank->ranks + to) * transfers_of(b) + number + 1) << 32;
}

weir_status perf_sendrecv_call_weir(void *context, const weir_collective_request *q, void *stream)
{
    const perf_bench *b = (const perf_bench *)context;
    return weir_exchange(b->collective, b->transfers, perf_sendrecv_list(b, q), stream);
}

weir_status perf_sendrecv_call_nccl(void *context, const weir_collective_request *q, void *stream)
{
    const perf_bench *b = (const perf_bench *)context;
    return perf_nccl_exchange(b->nccl, b->transfers, perf_sendrecv_list(b, q), stream);
}
