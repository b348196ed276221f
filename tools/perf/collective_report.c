/* collective_report.c - a row of weir-perf's collectives: one size in one form, beside NCCL's. */
#include "tools/perf/collective.h"

#include <math.h>
#include <string.h>

#define FIELDS_MOST 40u

uint32_t perf_counts_of_size(const perf_bench *b)
{
    return b->wish.what->transfers ? perf_sendrecv_parts(b) : b->wish.what->parts ? b->rank->ranks : 1;
}

perf_field perf_report_sms(const perf_bench *b, uint32_t blocks)
{
    const uint32_t sms = b->rank->info.multiprocessors;
    return perf_wide(perf_as(perf_count("sms", blocks < sms ? blocks : sms), PERF_APART), 4);
}

/* The fraction of a size that each rank must send at least. */
static double bus_factor(const perf_bench *b, uint64_t count)
{
    const double ranks = b->rank->ranks;
    if (b->parts != NULL) {
        return perf_parts_bus(b, count);
    }
    const double factor = b->wish.what->kind == WEIR_ALLREDUCE ? 2 : b->wish.what->parts ? 1 : 0;
    return factor != 0 ? factor * (ranks - 1) / ranks : 1;
}

static double bandwidth(uint64_t bytes, const perf_result *r) { return (double)bytes / r->us / 1e3; }

static void add(perf_field *all, uint32_t *count, const perf_field *fields, uint32_t more)
{
    memcpy(all + *count, fields, more * sizeof *fields);
    *count += more;
}

void perf_report_row(perf_bench *b, uint64_t count, uint64_t bytes, const perf_choice *chosen,
                     const perf_result *results)
{
    const perf_result *out = &results[PERF_OUT];
    const perf_result *in = &results[PERF_IN];
    const perf_result *copied = &results[PERF_COPIED];
    const perf_result *plain = &results[PERF_PLAIN];
    const perf_result *windows = &results[PERF_WINDOWS];
    const double factor = bus_factor(b, count);
    const uint32_t blocks = chosen->shape.blocks;
    const double best = isnan(windows->us) || plain->us < windows->us ? plain->us : windows->us;
    const perf_field fields[] = {
        perf_count("bytes", bytes),
        perf_wide(perf_count("count", count), 11),
        perf_wide(perf_text("type", perf_dtype_names[b->wish.dtype]), 7),
        perf_wide(perf_text("redop", b->wish.what->reduces ? perf_redop_names[b->wish.op] : "none"),
                  b->wish.op == WEIR_SCALED_SUM ? 10 : 6),
        perf_wide(perf_as(perf_text("form", perf_form_names[chosen->form]),
                          b->rank->options->form != NULL ? PERF_NAMES : PERF_APART),
                  8),
        perf_wide(perf_as(perf_count("blocks", blocks), PERF_APART), 7),
        perf_report_sms(b, blocks),
        perf_wide(perf_as(perf_count("threads", chosen->shape.threads), PERF_APART),
                  b->rank->options->tune != NULL ? 8 : 0),
        perf_wide(perf_as(perf_real("time_us", out->us, 2), PERF_LATENCY), 10),
        perf_wide(perf_real("min_us", out->min_us, 2), 10),
        perf_wide(perf_real("p95_us", out->p95_us, 2), 10),
        perf_wide(perf_as(perf_real("algbw", bandwidth(bytes, out), 2), PERF_BANDWIDTH), 8),
        perf_wide(perf_real("busbw", bandwidth(bytes, out) * factor, 2), 8),
        perf_wide(perf_as(perf_count("wrong", out->wrong), PERF_APART), 6),
        perf_wide(perf_as(perf_real("in_us", in->us, 2), PERF_LATENCY), 10),
        perf_wide(perf_real("in_min_us", in->min_us, 2), 0),
        perf_wide(perf_real("in_p95_us", in->p95_us, 2), 0),
        perf_wide(perf_as(perf_real("in_algbw", bandwidth(bytes, in), 2), PERF_BANDWIDTH), 9),
        perf_wide(perf_real("in_busbw", bandwidth(bytes, in) * factor, 2), 9),
        perf_wide(perf_as(perf_count("in_wrong", in->wrong), PERF_APART), 9),
    };
    const perf_field of_parts[] = {
        perf_wide(perf_as(perf_real("copied_us", copied->us, 2), PERF_LATENCY), 10),
        perf_wide(perf_as(perf_count("copied_wrong", copied->wrong), PERF_APART), 0),
    };
    const perf_field of_nccl[] = {
        perf_wide(perf_real("nccl_us", plain->us, 2), 10),
        perf_wide(perf_real("sym_us", windows->us, 2), 10),
        perf_wide(perf_real("ratio", out->us / best, 3), 7),
        perf_wide(perf_as(perf_count("nccl_blocks", plain->launched.blocks), PERF_APART), 12),
        perf_wide(perf_as(perf_text("nccl_kernel", plain->launched.kernel), PERF_APART), 0),
        perf_wide(perf_as(perf_count("nccl_wrong", plain->wrong), PERF_APART), 0),
        perf_wide(perf_as(perf_count("sym_blocks", windows->launched.blocks), PERF_APART), 11),
        perf_wide(perf_as(perf_text("sym_kernel", windows->launched.kernel), PERF_APART), 0),
        perf_wide(perf_as(perf_count("sym_wrong", windows->wrong), PERF_APART), 0),
    };
    perf_field all[FIELDS_MOST];
    uint32_t count_of_all = 0;
    add(all, &count_of_all, fields, ROWS(fields));
    add(all, &count_of_all, of_parts, b->parts != NULL ? ROWS(of_parts) : 0);
    add(all, &count_of_all, of_nccl, b->nccl != NULL ? ROWS(of_nccl) : 0);
    perf_row(b->rank->output, b->title, all, count_of_all);
}
