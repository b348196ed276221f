/* collective_beside.c - a collective beside a computation on the same GPUs (--beside): what they cost each other.
 *
 * Each of the two is timed alone, and again while the other one runs all the time. The last figure is the time of one
 * of each, started together. All figures are those of the slowest rank. The ranks agree on the number of operations
 * beside the computation, since an operation waits for all ranks. */
#include "tools/perf/collective.h"

#define WARMUP 2u /* operations in front of timed ones: they align the ranks */

/* An operation of this rank. */
typedef struct operation {
    perf_rank *rank;
    const perf_party *party;
    weir_collective_request request;
    void *graph; /* of one operation; NULL: it is called */
} operation;

typedef struct beside_times {
    double call, call_beside, compute, compute_beside, both;
} beside_times;

/* ---- open and close ------------------------------------------------------------------------------------------- */

weir_status perf_beside_open(perf_bench *b)
{
    perf_rank *rank = b->rank;
    if (rank->options->beside == NULL) {
        return WEIR_OK;
    }
    perf_fact(rank->output, "beside",
              "averages; slowdown: of the operation, and of the computation; together_us: one "
              "of each at the same time; together: that over the longer of the two alone");
    const weir_status status = weir_stream_create(rank->device, &b->compute_stream);
    return status == WEIR_OK ? perf_compute_open(rank, rank->options->beside, b->compute_stream, &b->compute) : status;
}

void perf_beside_close(perf_bench *b)
{
    perf_compute_close(b->compute);
    if (b->compute_stream != NULL) {
        weir_stream_destroy(b->rank->device, b->compute_stream);
    }
}

/* ---- times ---------------------------------------------------------------------------------------------------- */

static weir_status put_call(perf_rank *rank, void *context, uint32_t number)
{
    const operation *o = (const operation *)context;
    (void)number;
    return o->party->call(o->party->context, &o->request, rank->stream);
}

static weir_status put_operation(void *context)
{
    operation *o = (operation *)context;
    return o->graph != NULL ? weir_graph_launch(o->rank->device, o->graph, o->rank->stream)
                            : put_call(o->rank, context, 0);
}

/* Replaces *us by the longest of the ranks. All ranks call it. */
static weir_status take_longest(perf_rank *rank, double *us)
{
    double all[PERF_RANKS_MAX];
    all[rank->rank] = *us;
    const weir_status status = weir_bootstrap_allgather(rank->bootstrap, NULL, all, sizeof all[0]);
    for (uint32_t i = 0; i < rank->ranks && status == WEIR_OK; i++) {
        *us = all[i] > *us ? all[i] : *us;
    }
    return status;
}

/* The computation alone, or beside operations. */
static weir_status time_compute(perf_bench *b, const perf_side *compute, uint32_t times, const perf_side *call,
                                uint32_t calls, double *us)
{
    const weir_status status = perf_time_side(b->rank, compute, times, call, calls, us);
    return status == WEIR_OK ? take_longest(b->rank, us) : status;
}

/* The operation alone, or beside computations. */
static weir_status time_call(perf_bench *b, const perf_side *call, uint32_t times, const perf_side *compute,
                             uint32_t computes, double *us)
{
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < WARMUP && status == WEIR_OK; i++) {
        status = call->put(call->context);
    }
    if (status == WEIR_OK) {
        status = perf_time_side(b->rank, call, times, compute, computes, us);
    }
    return status == WEIR_OK ? take_longest(b->rank, us) : status;
}

static weir_status time_all(perf_bench *b, const perf_side *call, const perf_side *compute, beside_times *t)
{
    perf_rank *rank = b->rank;
    const uint32_t times = rank->options->iters != 0 ? rank->options->iters : rank->gpu ? 20 : 4;
    weir_status status = WEIR_OK;
    for (uint32_t round = 0; round < 2 && status == WEIR_OK; round++) { /* the first one warms up */
        status = time_call(b, call, times, NULL, 0, &t->call);
        if (status == WEIR_OK) {
            status = time_compute(b, compute, times, NULL, 0, &t->compute);
        }
    }
    if (status == WEIR_OK) {
        status =
            time_call(b, call, times, compute, perf_fill_time((times + WARMUP) * t->call, t->compute), &t->call_beside);
    }
    if (status == WEIR_OK) {
        status = time_compute(b, compute, times, call, perf_fill_time(times * t->compute, t->call), &t->compute_beside);
    }
    if (status == WEIR_OK) {
        status = weir_bootstrap_barrier(rank->bootstrap, NULL);
    }
    if (status == WEIR_OK) {
        status = perf_time_both(rank, call, compute, times, &t->both);
    }
    return status == WEIR_OK ? take_longest(rank, &t->both) : status;
}

/* ---- a row ------------------------------------------------------------------------------------------------------ */

static void report(const perf_bench *b, uint64_t bytes, bool in_place, const perf_choice *chosen,
                   const perf_result *measured, const beside_times *t)
{
    const double longer = t->call > t->compute ? t->call : t->compute;
    const perf_field fields[] = {
        perf_count("bytes", bytes),
        perf_wide(perf_text("type", perf_dtype_names[b->wish.dtype]), 7),
        perf_wide(perf_text("redop", b->wish.what->reduces ? perf_redop_names[b->wish.op] : "none"), 10),
        perf_wide(perf_as(perf_text("form", perf_form_names[chosen->form]), PERF_APART), 8),
        perf_wide(perf_as(perf_count("blocks", chosen->shape.blocks), PERF_APART), 7),
        perf_report_sms(b, chosen->shape.blocks),
        perf_wide(perf_count("in_place", in_place), 8),
        perf_wide(perf_text("beside", perf_compute_name(b->compute)), 8),
        perf_wide(perf_as(perf_real("time_us", t->call, 2), PERF_LATENCY), 10),
        perf_wide(perf_real("beside_us", t->call_beside, 2), 10),
        perf_wide(perf_real("slowdown", t->call_beside / t->call, 3), 9),
        perf_wide(perf_real("compute_us", t->compute, 2), 11),
        perf_wide(perf_real("compute_beside_us", t->compute_beside, 2), 18),
        perf_wide(perf_real("compute_slowdown", t->compute_beside / t->compute, 3), 17),
        perf_wide(perf_real("together_us", t->both, 2), 12),
        perf_wide(perf_real("together", t->both / longer, 3), 9),
        perf_wide(perf_as(perf_count("wrong", measured->wrong), PERF_APART), 6),
    };
    perf_row(b->rank->output, b->title, fields, ROWS(fields));
}

weir_status perf_beside_measure(perf_bench *b, const perf_party *by, uint64_t count, uint64_t bytes, bool in_place,
                                const perf_choice *chosen, const perf_result *measured)
{
    perf_rank *rank = b->rank;
    operation o = { .rank = rank, .party = by };
    beside_times times = { 0, 0, 0, 0, 0 };
    const perf_calls one = { put_call, &o };
    const perf_side call = { put_operation, &o, rank->stream };
    const perf_side compute = perf_compute_side(b->compute);
    perf_make_request(b, by, count, in_place, &o.request);
    weir_status status = rank->options->graph ? perf_record_calls(rank, &one, 1, &o.graph) : WEIR_OK;
    if (status == WEIR_OK) {
        status = time_all(b, &call, &compute, &times);
    }
    if (o.graph != NULL) {
        weir_graph_destroy(rank->device, o.graph);
    }
    if (status == WEIR_OK) {
        status = weir_comm_status(rank->comm);
    }
    if (status == WEIR_OK) {
        report(b, bytes, in_place, chosen, measured, &times);
    }
    return status;
}
