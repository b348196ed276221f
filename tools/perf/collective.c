/* collective.c - weir-perf allreduce and the other collectives, in the manner of nccl-tests, beside NCCL's.
 *
 * Each size is measured out of place and in place. With --compare nccl, NCCL is measured out of place on plain buffers
 * and on symmetric windows. With --tune, weir is measured out of place in every form that has room, with several
 * numbers of blocks and threads, and the fastest choices are written to a tuning file. */
#include "tools/perf/collective.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/perf/data.h"

#define NCCL_MS 60000u /* for all ranks to enter ncclCommInitRank */

/* ---- state of a rank ------------------------------------------------------------------------------------ */

static weir_status call_weir(void *context, const weir_collective_request *q, void *stream)
{
    weir_collective *collective = (weir_collective *)context;
    switch (q->kind) {
    case WEIR_ALLREDUCE:
        return weir_allreduce(collective, q->send, q->recv, q->count, q->dtype, q->op, stream);
    case WEIR_REDUCE:
        return weir_reduce(collective, q->send, q->recv, q->count, q->dtype, q->op, q->root, stream);
    case WEIR_REDUCE_SCATTER:
        return weir_reduce_scatter(collective, q->send, q->recv, q->count, q->dtype, q->op, stream);
    case WEIR_ALLGATHER:
        return weir_allgather(collective, q->send, q->recv, q->count, q->dtype, stream);
    case WEIR_BROADCAST:
        return weir_broadcast(collective, q->send, q->recv, q->count, q->dtype, q->root, stream);
    case WEIR_GATHER:
        return weir_gather(collective, q->send, q->recv, q->count, q->dtype, q->root, stream);
    case WEIR_SCATTER:
        return weir_scatter(collective, q->send, q->recv, q->count, q->dtype, q->root, stream);
    default:
        return weir_all_to_all(collective, q->send, q->recv, q->count, q->dtype, stream);
    }
}

static weir_status call_nccl(void *context, const weir_collective_request *q, void *stream)
{
    return perf_nccl_call((perf_nccl *)context, q, stream);
}

/* `blocks` is the SM limit; 0: that of --blocks. */
static weir_status create_collective(perf_bench *b, uint64_t threads, uint32_t blocks)
{
    const perf_rank *rank = b->rank;
    const uint64_t most = perf_largest(&rank->options->blocks);
    weir_memory *const buffers[] = { b->send, b->recv, b->staged };
    const uint32_t registered = !rank->options->registered ? 0 : b->staged != NULL ? 3 : 2;
    weir_collective_opts opts = WEIR_OPTS(weir_collective_opts);
    if (most > UINT32_MAX || threads > UINT32_MAX) {
        return perf_fail(b->rank, WEIR_ERR_INVALID, "too many blocks or threads");
    }
    opts.blocks = blocks != 0    ? blocks
                  : most != 0    ? (uint32_t)most
                  : rank->shared ? rank->info.multiprocessors / rank->ranks
                                 : 0;
    opts.threads = (uint32_t)threads;
    b->threads = opts.threads;
    b->tune.limit = most < rank->info.multiprocessors ? (uint32_t)most : 0;
    opts.host_ranks = rank->options->host_ranks;
    opts.map_recorded = rank->options->map;
    weir_status status = weir_collective_create(rank->comm, &opts, &b->collective);
    for (uint32_t i = 0; i < registered && status == WEIR_OK; i++) {
        status = weir_collective_register(b->collective, buffers[i]);
    }
    if (status == WEIR_OK && b->wish.op == WEIR_SCALED_SUM) {
        const weir_factor factor = { PERF_FACTOR, NULL, WEIR_F64 };
        status = weir_collective_set_factor(b->collective, &factor);
    }
    return status;
}

/* Makes the collective anew with another number of threads or blocks, once the kernels of all ranks have finished with
 * the old one. */
static weir_status replace_collective(perf_bench *b, uint64_t threads, uint32_t blocks)
{
    weir_status status = weir_bootstrap_barrier(b->rank->bootstrap, NULL);
    if (status != WEIR_OK) {
        return status;
    }
    weir_collective_destroy(b->collective);
    b->collective = NULL;
    return create_collective(b, threads, blocks);
}

static weir_status create_buffers(perf_bench *b, uint64_t bytes)
{
    perf_rank *rank = b->rank;
    weir_memory **const memories[] = { &b->send, &b->recv };
    weir_status status = weir_memory_allocate(rank->comm, sizeof(uint64_t), NULL, &b->wrong);
    if (status == WEIR_OK) { /* load the fill kernels before any kernel spins */
        status = weir_device_fill(rank->device, weir_memory_pointer(b->wrong), 0, sizeof(uint64_t));
    }
    for (uint32_t i = 0; i < 2 && status == WEIR_OK; i++) {
        status = weir_memory_allocate(rank->comm, bytes, NULL, memories[i]);
    }
    if (status == WEIR_OK) {
        status = weir_kernel_load(rank->device, perf_data_write);
    }
    return status == WEIR_OK ? weir_kernel_load(rank->device, perf_data_check) : status;
}

static weir_status open_nccl(perf_bench *b, uint64_t bytes)
{
    perf_rank *rank = b->rank;
    if (rank->options->compare == NULL) {
        return WEIR_OK;
    }
    if (!rank->gpu) {
        return perf_fail(rank, WEIR_ERR_UNSUPPORTED, "--compare %s needs GPUs", rank->options->compare);
    }
    if (rank->shared) {
        return perf_fail(rank, WEIR_ERR_UNSUPPORTED, "--compare %s needs a GPU for each rank", rank->options->compare);
    }
    const perf_nccl_settings settings = { rank->options->nccl_ctas, strcmp(rank->options->compare, "nccl-zero") == 0 };
    weir_status status = perf_cuda_open(rank, &b->cuda);
    if (status == WEIR_OK) {
        status = perf_nccl_open(rank, b->cuda, rank->options->nccl, &settings, NCCL_MS, &b->nccl);
    }
    if (status == WEIR_OK && b->wish.op == WEIR_SCALED_SUM) {
        status = perf_nccl_create_scaled_sum(b->nccl, (weir_dtype)b->wish.dtype);
    }
    for (uint32_t i = 0; i < 2 && status == WEIR_OK; i++) {
        status = perf_cuda_allocate(b->cuda, bytes, &b->plain[i]);
    }
    if (status == WEIR_OK) {
        status = perf_nccl_open_windows(b->nccl, bytes, &b->windows);
    }
    return status == WEIR_OK && settings.zero && b->windows.send == NULL
               ? perf_fail(rank, WEIR_ERR_UNSUPPORTED, "--compare nccl-zero needs symmetric windows")
               : status;
}

static void report_facts(perf_bench *b)
{
    const perf_rank *rank = b->rank;
    const perf_options *options = rank->options;
    const bool reduces = b->wish.what->reduces;
    perf_fact(rank->output, "ranks", "%" PRIu32 "%s", rank->ranks, rank->shared ? ", on one GPU" : "");
    perf_fact(rank->output, "collective", "%.1f MiB of internal memory on each rank when it is created",
              (double)weir_collective_bytes(b->collective) / (1 << 20));
    perf_fact(rank->output, "time", "us, %s, longest of the ranks; median, least and 95th percentile",
              options->graph ? "a node of replayed graphs" : "launches one by one");
    perf_fact(rank->output, "bandwidth", "GB/s; busbw: the least that each rank must send");
    b->limit = rank->gpu && rank->output != NULL ? perf_link_limit(&rank->info) : NAN;
    if (!isnan(b->limit)) {
        perf_fact(rank->output, "link", "%.0f GB/s each way, all NVLinks of rank 0", b->limit);
    }
    char transfers[48] = "";
    if (options->transfers > 1) {
        (void)snprintf(transfers, sizeof transfers, ", %" PRIu32 " transfers", options->transfers);
    }
    (void)snprintf(b->title, sizeof b->title, "%s%s%s%s, %s%s%s, %" PRIu32 " %s, %s, %s buffers%s", rank->command,
                   b->wish.what->transfers ? " " : "", b->wish.what->transfers ? perf_sendrecv_layout(b) : "",
                   transfers, perf_dtype_names[b->wish.dtype], reduces ? " " : "",
                   reduces ? perf_redop_names[b->wish.op] : "", rank->ranks, rank->gpu ? "GPUs" : "CPU ranks",
                   options->graph ? "graphs" : "stream",
                   options->registered ? "registered"
                   : options->map      ? "mapped"
                                       : "ordinary",
                   rank->gpu ? ", NVLS off" : "");
}

/* A tuning file is for the ranks of one host. */
static weir_status check_tunable(const perf_bench *b)
{
    weir_dev_collective device;
    weir_collective_device(b->collective, &device);
    if (device.ranks == 1 || device.ranks != b->rank->ranks) {
        return perf_fail(b->rank, WEIR_ERR_INVALID, "--tune needs two or more ranks on one host");
    }
    return WEIR_OK;
}

static weir_status create_bench(perf_rank *rank, uint64_t largest, uint64_t threads, perf_bench *b)
{
    const uint64_t bytes = (largest + 255) / 256 * 256;
    memset(b, 0, sizeof *b);
    b->rank = rank;
    if (!perf_take_wish(rank->command, rank->options, &b->wish)) {
        return perf_fail(rank, WEIR_ERR_INVALID, "options");
    }
    weir_status status = create_buffers(b, bytes);
    if (status == WEIR_OK) {
        status = perf_parts_open(b, bytes);
    }
    if (status == WEIR_OK) {
        status = create_collective(b, threads, 0);
    }
    if (status == WEIR_OK) {
        status = perf_sendrecv_open(b);
    }
    if (status == WEIR_OK && rank->options->tune != NULL) {
        status = check_tunable(b);
    }
    if (status == WEIR_OK) {
        status = perf_report_machine(rank);
    }
    if (status == WEIR_OK) {
        report_facts(b);
        status = perf_beside_open(b);
    }
    if (status == WEIR_OK) {
        status = open_nccl(b, bytes);
    }
    return status;
}

static void destroy_bench(perf_bench *b)
{
    if (b->nccl != NULL) {
        perf_nccl_close_windows(b->nccl, &b->windows);
        perf_nccl_close(b->nccl);
        perf_cuda_free(b->cuda, b->plain[0]);
        perf_cuda_free(b->cuda, b->plain[1]);
    }
    perf_cuda_close(b->cuda);
    perf_beside_close(b);
    perf_parts_close(b);
    perf_sendrecv_close(b);
    weir_collective_destroy(b->collective);
    weir_memory_destroy(b->staged);
    weir_memory_destroy(b->wrong);
    weir_memory_destroy(b->recv);
    weir_memory_destroy(b->send);
}

/* ---- rows ------------------------------------------------------------------------------------------------- */

/* Shows the current measurement on a terminal. */
static void show_progress(const perf_bench *b, uint64_t bytes, const char *what)
{
    if (b->rank->output != NULL && isatty(STDERR_FILENO) && isatty(STDOUT_FILENO)) {
        fprintf(stderr, "\r\033[K");
        if (what != NULL) {
            fprintf(stderr, "%s of %" PRIu64 " bytes, %s", b->rank->command, bytes, what);
        }
        (void)fflush(stderr);
    }
}

/* Copy engines cannot move the data of these operations within one buffer. */
static bool has_in_place(const perf_bench *b, weir_collective_form form)
{
    const weir_collective_kind kind = b->wish.what->kind;
    return !b->wish.what->transfers && b->rank->options->tune == NULL &&
           (form != WEIR_FORM_COPIES || (kind != WEIR_ALL_TO_ALL && kind != WEIR_SCATTER));
}

static perf_party party_of_weir(perf_bench *b)
{
    perf_party ours = { call_weir, b->collective, (char *)weir_memory_pointer(b->send),
                        (char *)weir_memory_pointer(b->recv), NULL };
    if (b->parts != NULL) {
        ours.call = perf_parts_call_weir;
        ours.context = b;
    } else if (b->wish.what->transfers) {
        ours.call = perf_sendrecv_call_weir;
        ours.context = b;
    }
    return ours;
}

static weir_status measure_weir(perf_bench *b, uint64_t count, uint64_t bytes, const perf_choice *chosen,
                                perf_result *results)
{
    char how[64];
    const perf_party ours = party_of_weir(b);
    (void)snprintf(how, sizeof how, "%s, %" PRIu32 " blocks of %" PRIu32, perf_form_names[chosen->form],
                   chosen->shape.blocks, chosen->shape.threads);
    show_progress(b, bytes, how);
    weir_status status = perf_measure(b, &ours, count, bytes, false, &results[PERF_OUT]);
    if (status == WEIR_OK && b->compute != NULL) {
        show_progress(b, bytes, "beside the computation");
        status = perf_beside_measure(b, &ours, count, bytes, false, chosen, &results[PERF_OUT]);
    }
    if (status == WEIR_OK && has_in_place(b, chosen->form)) {
        show_progress(b, bytes, "in place");
        status = perf_measure(b, &ours, count, bytes, true, &results[PERF_IN]);
        if (status == WEIR_OK && b->compute != NULL) {
            show_progress(b, bytes, "in place beside the computation");
            status = perf_beside_measure(b, &ours, count, bytes, true, chosen, &results[PERF_IN]);
        }
    }
    if (status == WEIR_OK && b->compute == NULL && perf_parts_copied(b)) {
        const perf_party copied = { perf_parts_call_copied, b, ours.send, ours.recv, NULL };
        show_progress(b, bytes, "an even collective and a copy");
        status = perf_measure(b, &copied, count, bytes, false, &results[PERF_COPIED]);
    }
    show_progress(b, bytes, NULL);
    return status;
}

static weir_status measure_nccl(perf_bench *b, uint64_t count, uint64_t bytes, perf_result *results)
{
    perf_party plain = { call_nccl, b->nccl, (char *)b->plain[0], (char *)b->plain[1], b->cuda };
    perf_party windows = { call_nccl, b->nccl, (char *)b->windows.send, (char *)b->windows.recv, b->cuda };
    if (b->parts != NULL) {
        plain.call = windows.call = perf_parts_call_nccl;
        plain.context = windows.context = b;
    } else if (b->wish.what->transfers) {
        plain.call = windows.call = perf_sendrecv_call_nccl;
        plain.context = windows.context = b;
    }
    show_progress(b, bytes, "NCCL");
    weir_status status = perf_measure(b, &plain, count, bytes, false, &results[PERF_PLAIN]);
    if (status == WEIR_OK && windows.send != NULL) {
        show_progress(b, bytes, "NCCL with symmetric windows");
        status = perf_measure(b, &windows, count, bytes, false, &results[PERF_WINDOWS]);
    }
    show_progress(b, bytes, NULL);
    return status;
}

/* Forces a form and a maximum of blocks; *chosen gets the resulting form and shape. */
static weir_status force(perf_bench *b, uint64_t count, weir_collective_form form, uint32_t blocks, perf_choice *chosen)
{
    weir_collective_request request;
    memset(&request, 0, sizeof request);
    request.kind = b->wish.what->kind;
    request.dtype = (weir_dtype)b->wish.dtype;
    request.op = (weir_op)b->wish.op;
    request.count = b->parts != NULL ? perf_parts_longest(b) : count;
    request.send = weir_memory_pointer(b->send);
    request.recv = weir_memory_pointer(b->recv);
    weir_status status = weir_collective_force(b->collective, form, blocks);
    if (b->wish.what->transfers) { /* no choice to ask for: the limit on blocks, of which small transfers use a part */
        weir_dev_collective device;
        weir_collective_device(b->collective, &device);
        chosen->shape.blocks = form == WEIR_FORM_COPIES ? 1 : blocks != 0 ? blocks : device.blocks;
        chosen->shape.threads = b->threads;
        return status;
    }
    return status == WEIR_OK ? weir_collective_choose(b->collective, &request, &chosen->form, &chosen->shape) : status;
}

/* The most blocks of NCCL's kernel on any rank: on symmetric windows with --register, else on ordinary buffers. */
static weir_status find_nccl_blocks(const perf_bench *b, const perf_result *results, uint32_t *out)
{
    perf_rank *rank = b->rank;
    const bool windows = rank->options->registered && b->windows.send != NULL;
    uint32_t *all = (uint32_t *)calloc(rank->ranks, sizeof *all);
    if (all == NULL) {
        return perf_fail(rank, WEIR_ERR_NOMEM, "--match-nccl");
    }
    all[rank->rank] = results[windows ? PERF_WINDOWS : PERF_PLAIN].launched.blocks;
    weir_status status = weir_bootstrap_allgather(rank->bootstrap, NULL, all, sizeof *all);
    *out = 0;
    for (uint32_t i = 0; i < rank->ranks; i++) {
        *out = all[i] > *out ? all[i] : *out;
    }
    free(all);
    return status == WEIR_OK && *out == 0
               ? perf_fail(rank, WEIR_ERR_UNSUPPORTED, "--match-nccl: NCCL launched no kernel for %s", rank->command)
               : status;
}

/* Limits weir to the SMs of NCCL's kernel, by a new collective: opts.blocks also decides the size of slots. */
static weir_status match_nccl(perf_bench *b, uint64_t count, weir_collective_form form, const perf_result *results,
                              perf_choice *chosen)
{
    uint32_t blocks = 0;
    weir_status status = find_nccl_blocks(b, results, &blocks);
    blocks = blocks < b->rank->info.multiprocessors ? blocks : b->rank->info.multiprocessors;
    if (status == WEIR_OK && blocks != b->matched) {
        b->matched = blocks;
        status = replace_collective(b, b->threads, blocks);
    }
    return status == WEIR_OK ? force(b, count, form, 0, chosen) : status;
}

/* Measures one row. `chosen` is the form and shape, with up to `most` blocks. */
static weir_status measure_row(perf_bench *b, uint64_t count, weir_collective_form form, perf_choice *chosen,
                               uint32_t most)
{
    const uint64_t bytes = count * weir_dtype_bytes(b->wish.dtype) * perf_counts_of_size(b);
    perf_result results[PERF_RESULTS];
    memset(results, 0, sizeof results);
    for (uint32_t i = 0; i < PERF_RESULTS; i++) {
        results[i].us = NAN;
        results[i].min_us = NAN;
        results[i].p95_us = NAN;
    }
    weir_status status = b->nccl != NULL ? measure_nccl(b, count, bytes, results) : WEIR_OK;
    if (status == WEIR_OK && b->rank->options->match_nccl) {
        status = match_nccl(b, count, form, results, chosen);
    }
    if (status == WEIR_OK) {
        status = measure_weir(b, count, bytes, chosen, results);
    }
    if (status == WEIR_OK && b->compute == NULL) {
        perf_report_row(b, count, bytes, chosen, results);
    }
    if (status == WEIR_OK) {
        perf_tune_add(&b->tune, bytes, chosen, most, results[PERF_OUT].us);
        b->rows++;
        b->wrong_rows += results[PERF_OUT].wrong + results[PERF_IN].wrong + results[PERF_COPIED].wrong != 0 ? 1 : 0;
    }
    return status;
}

/* Measures one size in one form with each number of blocks; with --tune only with numbers that make a difference. */
static weir_status measure_form(perf_bench *b, uint64_t size, weir_collective_form form, const perf_list *blocks)
{
    const uint64_t count = size / weir_dtype_bytes(b->wish.dtype) / perf_counts_of_size(b);
    perf_choice chosen = { form, { 0, 0 } };
    weir_status status = b->parts != NULL ? perf_parts_divide(b, count) : WEIR_OK;
    for (uint32_t i = 0; i < blocks->count && status == WEIR_OK; i++) {
        const uint32_t most = (uint32_t)blocks->values[i];
        const uint32_t before = chosen.shape.blocks;
        status = force(b, count, form, most, &chosen);
        const bool differs = chosen.shape.blocks != before && (b->threads == 0 || chosen.shape.threads == b->threads);
        if (status == WEIR_OK && (b->rank->options->tune == NULL || differs)) {
            status = measure_row(b, count, form, &chosen, most);
        }
    }
    /* WEIR_ERR_LIMIT: no rank has room for this size in this form. */
    return status == WEIR_ERR_LIMIT && b->wish.all_forms ? WEIR_OK : status;
}

/* The numbers of --blocks, or 0 for the collective's default. With --tune, all blocks and smaller numbers. With default
 * threads too, a GPU may run more blocks than a caller can ask for. */
static void choose_blocks(const perf_bench *b, perf_list *out)
{
    static const perf_list own = { { 0 }, 1 };
    weir_dev_collective device;
    weir_collective_device(b->collective, &device);
    *out = b->rank->options->blocks;
    if (out->count != 0) {
        return;
    }
    if (b->rank->options->tune == NULL || (b->rank->gpu && b->threads == 0)) {
        *out = own;
        return;
    }
    for (uint32_t part = 8; part != 0; part /= 2) {
        if (device.blocks >= part) {
            out->values[out->count++] = device.blocks / part;
        }
    }
}

static weir_status measure_sizes(perf_bench *b, const perf_list *sizes)
{
    perf_list blocks;
    weir_status status = WEIR_OK;
    choose_blocks(b, &blocks);
    for (uint32_t i = 0; i < sizes->count; i++) {
        for (uint32_t form = 0; form < b->wish.form_count && status == WEIR_OK; form++) {
            status = measure_form(b, sizes->values[i], b->wish.forms[form], &blocks);
        }
    }
    if (status == WEIR_OK && b->rows == 0) {
        status = perf_fail(b->rank, WEIR_ERR_LIMIT, "%s: no form has room: %s", b->rank->command, weir_last_error());
    }
    if (status == WEIR_OK && b->wrong_rows != 0) {
        status = perf_fail(b->rank, WEIR_ERR_CORRUPT, "%s: %" PRIu32 " of %" PRIu32 " rows have wrong elements",
                           b->rank->command, b->wrong_rows, b->rows);
    }
    return status;
}

/* The numbers of --threads, or 0 for the collective's default. With --tune on a GPU, also numbers that may be
 * faster. */
static void choose_threads(const perf_rank *rank, perf_list *out)
{
    static const perf_list own = { { 0 }, 1 };
    static const perf_list of_gpus = { { 0, 256, 128, 384, 512, 1024 }, 6 };
    *out = rank->options->threads;
    if (out->count == 0) {
        *out = rank->gpu && rank->options->tune != NULL ? of_gpus : own;
    }
}

/* Destroys what create_bench made, once the kernels of all ranks have finished. */
static weir_status end_bench(perf_bench *b, weir_status status)
{
    perf_rank *rank = b->rank;
    const char *tune = rank->options->tune;
    if (status == WEIR_OK && tune != NULL && rank->output != NULL && !perf_tune_write(&b->tune, tune, rank, b->title)) {
        status = perf_fail(rank, WEIR_ERR_SYSTEM, "%s: %s", tune, strerror(errno));
    }
    if (status != WEIR_OK && rank->error[0] == '\0') {
        (void)perf_fail(rank, status, "%s", weir_last_error());
    }
    if (status != WEIR_OK && rank->gpu) {
        return status;
    }
    if (status != WEIR_OK) {
        weir_comm_abort(rank->comm); /* ends waiting kernels */
    }
    weir_status ended = weir_stream_wait(rank->device, rank->stream, 0);
    if (ended == WEIR_OK) {
        ended = weir_bootstrap_barrier(rank->bootstrap, NULL);
    }
    if (ended == WEIR_OK) {
        destroy_bench(b);
    }
    return status == WEIR_OK ? ended : status;
}

static weir_status run_collective(perf_rank *rank)
{
    perf_bench b;
    perf_list sizes;
    perf_list threads;
    weir_status status = perf_choose_sizes(rank, (uint64_t)1 << 30, &sizes);
    if (status != WEIR_OK) {
        return status;
    }
    if (rank->options->parts_bytes.count != 0) {
        sizes.count = 1;
        sizes.values[0] = perf_parts_bytes(rank->options, rank->ranks);
    }
    choose_threads(rank, &threads);
    status = create_bench(rank, perf_largest(&sizes), threads.values[0], &b);
    for (uint32_t i = 0; i < threads.count && status == WEIR_OK; i++) {
        status = i != 0 ? replace_collective(&b, threads.values[i], 0) : WEIR_OK;
        if (status == WEIR_OK) {
            status = measure_sizes(&b, &sizes);
        }
    }
    return end_bench(&b, status);
}

/* ---- commands --------------------------------------------------------------------------------------------- */

static int start_collective(const perf_options *options, char **arguments);

#define FORMLESS                                                                                                    \
    "-b -e -f --sizes -g -d -n -w --graph --check --register --map --compare --nccl --nccl-ctas --blocks --threads" \
    " --host-ranks --match-nccl --beside"
#define UNTUNED FORMLESS " -o --form"
#define OPTIONS UNTUNED " --tune"
#define PARTS OPTIONS " --parts --parts-bytes --rows --skew --layout"

const perf_command perf_allreduce = { "allreduce", "all ranks get the reduction of all ranks' data", OPTIONS,
                                      run_collective, start_collective };
const perf_command perf_allgather = { "allgather", "all ranks get all ranks' data", OPTIONS, run_collective,
                                      start_collective };
const perf_command perf_reduce_scatter = { "reduce_scatter", "each rank gets its part of the reduction", OPTIONS,
                                           run_collective, start_collective };
const perf_command perf_all_to_all = { "all_to_all", "each rank gets a part of each rank's data", OPTIONS,
                                       run_collective, start_collective };
const perf_command perf_broadcast = { "broadcast", "all ranks get rank 0's data", OPTIONS, run_collective,
                                      start_collective };
const perf_command perf_reduce = { "reduce", "rank 0 gets the reduction of all ranks' data", OPTIONS, run_collective,
                                   start_collective };
const perf_command perf_collective_gather = { "collective_gather", "rank 0 gets all ranks' data", UNTUNED,
                                              run_collective, start_collective };
const perf_command perf_collective_scatter = { "collective_scatter", "each rank gets a part of rank 0's data", UNTUNED,
                                               run_collective, start_collective };
const perf_command perf_allgather_parts = { "allgather_parts", "all ranks get uneven parts of all ranks", PARTS,
                                            run_collective, start_collective };
const perf_command perf_reduce_scatter_parts = { "reduce_scatter_parts", "each rank gets its extents of reduced parts",
                                                 PARTS, run_collective, start_collective };
const perf_command perf_sendrecv = { "sendrecv", "sends and receives at the same time",
                                     FORMLESS " --form --layout --transfers", run_collective, start_collective };

static int start_collective(const perf_options *options, char **arguments)
{
    static const perf_command *const commands[] = { &perf_allreduce,         &perf_allgather,
                                                    &perf_reduce_scatter,    &perf_all_to_all,
                                                    &perf_broadcast,         &perf_reduce,
                                                    &perf_allgather_parts,   &perf_reduce_scatter_parts,
                                                    &perf_collective_gather, &perf_collective_scatter,
                                                    &perf_sendrecv };
    perf_options mine = *options;
    perf_wish asked;
    if (!perf_take_wish(arguments[1], options, &asked)) {
        return 1;
    }
    if (mine.ranks.count == 0) {
        mine.ranks.count = 1; /* 0: all possible ranks */
        mine.ranks.values[0] = 0;
    }
    if (mine.tune != NULL && !perf_tune_prepare(mine.tune)) {
        fprintf(stderr, "weir-perf: %s: %s\n", mine.tune, strerror(errno));
        return 1;
    }
    if (mine.compare != NULL && !perf_nccl_prepare(strcmp(mine.compare, "nccl-pinned") == 0)) {
        fprintf(stderr, "weir-perf: no memory for the environment\n");
        return 1;
    }
    for (size_t i = 0; i < ROWS(commands); i++) {
        if (strcmp(commands[i]->name, arguments[1]) == 0) {
            return perf_start(commands[i], &mine, arguments);
        }
    }
    return 1;
}
