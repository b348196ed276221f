/* pack_layouts.c - layouts of weir-perf pack: the descriptions of a box, and C12, blocks at irregular places. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/perf/pack.h"

#define CREATES 5u           /* creates, of which the median counts */
#define ROWS_MOST (1u << 24) /* of a list */
#define TRIMEAN_TIMES 5u

const char *const pack_layout_names[PACK_LAYOUTS] = { "v_hv_hv", "v_hv", "hi", "hib", "subarray" };
enum { V_HV_HV, V_HV, HI, HIB, SUBARRAY };

double pack_now_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

double pack_trimean(const double *us, uint32_t count)
{
    double first[TRIMEAN_TIMES];
    const uint32_t times = count < TRIMEAN_TIMES ? count : TRIMEAN_TIMES;
    memcpy(first, us, times * sizeof first[0]);
    perf_sort(first, times);
    return (perf_percentile(first, times, 0.25) + 2 * perf_percentile(first, times, 0.5) +
            perf_percentile(first, times, 0.75)) /
           4;
}

bool pack_selects(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = list; at != NULL; at = strchr(at, ',') == NULL ? NULL : strchr(at, ',') + 1) {
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0')) {
            return true;
        }
    }
    return strcmp(list, "all") == 0;
}

/* ---- descriptions ---------------------------------------------------------------------------------------- */

/* A list of all rows, in packed order. */
typedef struct row_list {
    uint64_t *lengths;
    int64_t *places;
    uint64_t count;
} row_list;

static bool list_rows(const pack_box *box, row_list *rows)
{
    rows->count = box->counts[0] * box->counts[1];
    rows->lengths = (uint64_t *)malloc(rows->count * sizeof *rows->lengths);
    rows->places = (int64_t *)malloc(rows->count * sizeof *rows->places);
    for (uint64_t i = 0; i < rows->count && rows->lengths != NULL && rows->places != NULL; i++) {
        rows->lengths[i] = box->run;
        rows->places[i] = (int64_t)(i / box->counts[1] * box->strides[0] + i % box->counts[1] * box->strides[1]);
    }
    return rows->lengths != NULL && rows->places != NULL;
}

static weir_status create_vectors(const pack_box *box, uint32_t index, const weir_layout *byte, weir_layout **out)
{
    weir_layout *row = NULL;
    weir_layout *group = NULL;
    weir_status status = WEIR_OK;
    if (index == V_HV_HV) {
        status = weir_layout_create_vector(box->run, 1, 1, byte, &row);
        if (status == WEIR_OK) {
            status = weir_layout_create_hvector(box->counts[1], 1, (int64_t)box->strides[1], row, &group);
        }
    } else {
        status = weir_layout_create_vector(box->counts[1], box->run, (int64_t)box->strides[1], byte, &group);
    }
    if (status == WEIR_OK) {
        status = weir_layout_create_hvector(box->counts[0], 1, (int64_t)box->strides[0], group, out);
    }
    weir_layout_destroy(group);
    weir_layout_destroy(row);
    return status;
}

/* A subarray has rows inside groups inside an array. */
static bool is_subarray(const pack_box *box)
{
    return box->run <= box->strides[1] &&
           (box->counts[0] == 1 ||
            (box->strides[0] % box->strides[1] == 0 && box->counts[1] * box->strides[1] <= box->strides[0]));
}

static weir_status create_subarray(const pack_box *box, const weir_layout *byte, weir_layout **out)
{
    const uint64_t rows = box->counts[0] == 1 ? box->counts[1] : box->strides[0] / box->strides[1];
    const uint64_t sizes[3] = { box->counts[0], rows, box->strides[1] };
    const uint64_t parts[3] = { box->counts[0], box->counts[1], box->run };
    const uint64_t starts[3] = { 0, 0, 0 };
    return weir_layout_create_subarray(3, sizes, parts, starts, WEIR_LAYOUT_C, byte, out);
}

static weir_status create_layout(const pack_box *box, uint32_t index, const row_list *rows, weir_layout **out)
{
    weir_layout *byte = NULL;
    weir_status status = weir_layout_create_bytes(1, &byte);
    if (status == WEIR_OK) {
        status = index == HI         ? weir_layout_create_hindexed(rows->count, rows->lengths, rows->places, byte, out)
                 : index == HIB      ? weir_layout_create_hindexed_block(rows->count, box->run, rows->places, byte, out)
                 : index == SUBARRAY ? create_subarray(box, byte, out)
                                     : create_vectors(box, index, byte, out);
    }
    weir_layout_destroy(byte);
    return status;
}

weir_status pack_describe(perf_rank *rank, const pack_box *box, uint32_t index, pack_costs *costs, weir_layout **out)
{
    const bool listed = index == HI || index == HIB;
    row_list rows = { NULL, NULL, 0 };
    double us[CREATES];
    weir_status status = WEIR_OK;
    *out = NULL;
    if ((index == SUBARRAY && !is_subarray(box)) || (listed && box->counts[0] * box->counts[1] > ROWS_MOST)) {
        return WEIR_OK;
    }
    if (listed && !list_rows(box, &rows)) {
        status = perf_fail(rank, WEIR_ERR_NOMEM, "%s: no memory for a list of rows", rank->command);
    }
    for (uint32_t i = 0; i < CREATES && status == WEIR_OK; i++) {
        weir_layout_destroy(*out);
        *out = NULL;
        const double begin = pack_now_us();
        status = create_layout(box, index, &rows, out);
        us[i] = pack_now_us() - begin;
    }
    free(rows.lengths);
    free(rows.places);
    if (status == WEIR_OK) {
        const double begin = pack_now_us();
        status = weir_layout_commit(*out, rank->device);
        costs->commit = pack_now_us() - begin;
        perf_sort(us, CREATES);
        costs->create = us[CREATES / 2];
    }
    return status;
}

/* ---- C12: 1 Mi blocks of 1 to 256 bytes, log-uniform, with gaps of the same lengths ------------------------ */

typedef struct list_bench {
    perf_rank *rank;
    bool unpack;
    row_list blocks;
    uint64_t packed; /* bytes */
    uint64_t span;
    weir_layout *layout;
    weir_memory *wide;
    weir_memory *dense;
} list_bench;

static uint64_t next_random(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    uint64_t word = (*state ^ *state >> 30) * 0xbf58476d1ce4e5b9u;
    return word ^ word >> 27;
}

static bool list_blocks(list_bench *bench, uint64_t count, bool shuffled)
{
    row_list *blocks = &bench->blocks;
    uint64_t state = 12;
    blocks->count = count;
    blocks->lengths = (uint64_t *)malloc(count * sizeof *blocks->lengths);
    blocks->places = (int64_t *)malloc(count * sizeof *blocks->places);
    if (blocks->lengths == NULL || blocks->places == NULL) {
        return false;
    }
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t gap = (uint64_t)exp2((double)(next_random(&state) >> 11) / 0x1p53 * 8);
        blocks->lengths[i] = (uint64_t)exp2((double)(next_random(&state) >> 11) / 0x1p53 * 8);
        blocks->places[i] = (int64_t)bench->span;
        bench->packed += blocks->lengths[i];
        bench->span += blocks->lengths[i] + gap;
    }
    for (uint64_t i = count - 1; i > 0 && shuffled; i--) {
        const uint64_t other = next_random(&state) % (i + 1);
        const uint64_t length = blocks->lengths[i];
        const int64_t place = blocks->places[i];
        blocks->lengths[i] = blocks->lengths[other];
        blocks->places[i] = blocks->places[other];
        blocks->lengths[other] = length;
        blocks->places[other] = place;
    }
    return true;
}

static weir_status put_list(perf_rank *rank, void *context, uint32_t number)
{
    const list_bench *bench = (const list_bench *)context;
    (void)number;
    void *wide = weir_memory_pointer(bench->wide);
    void *dense = weir_memory_pointer(bench->dense);
    return bench->unpack ? weir_layout_unpack(rank->device, bench->layout, 1, wide, dense, NULL, rank->stream)
                         : weir_layout_pack(rank->device, bench->layout, 1, wide, dense, NULL, rank->stream);
}

/* Compares every block on the host, after one more call. */
static weir_status check_list(list_bench *bench, uint64_t *wrong)
{
    perf_rank *rank = bench->rank;
    char *wide = (char *)malloc(bench->span);
    char *dense = (char *)malloc(bench->packed);
    const weir_memory *to = bench->unpack ? bench->wide : bench->dense;
    uint64_t state = 5;
    weir_status status = wide != NULL && dense != NULL ? WEIR_OK : perf_fail(rank, WEIR_ERR_NOMEM, "no memory");
    for (uint64_t i = 0; i < bench->span && status == WEIR_OK; i++) {
        wide[i] = (char)next_random(&state);
    }
    for (uint64_t i = 0; i < bench->packed && status == WEIR_OK; i++) {
        dense[i] = (char)next_random(&state);
    }
    if (status == WEIR_OK) {
        status = weir_device_copy(rank->device, weir_memory_pointer(bench->wide), wide, bench->span);
    }
    if (status == WEIR_OK) {
        status = weir_device_copy(rank->device, weir_memory_pointer(bench->dense), dense, bench->packed);
    }
    if (status == WEIR_OK) {
        status = put_list(rank, bench, 1);
    }
    if (status == WEIR_OK) {
        status = weir_stream_wait(rank->device, rank->stream, 0);
    }
    if (status == WEIR_OK) {
        status = weir_device_copy(rank->device, bench->unpack ? wide : dense, weir_memory_pointer(to),
                                  bench->unpack ? bench->span : bench->packed);
    }
    uint64_t at = 0;
    *wrong = 0;
    for (uint64_t i = 0; i < bench->blocks.count && status == WEIR_OK; i++) {
        *wrong += memcmp(wide + bench->blocks.places[i], dense + at, bench->blocks.lengths[i]) != 0;
        at += bench->blocks.lengths[i];
    }
    free(dense);
    free(wide);
    return status;
}

static weir_status open_list(list_bench *bench, uint64_t count, bool shuffled, pack_costs *costs)
{
    perf_rank *rank = bench->rank;
    weir_layout *byte = NULL;
    if (!list_blocks(bench, count, shuffled)) {
        return perf_fail(rank, WEIR_ERR_NOMEM, "%s: no memory for a list of blocks", rank->command);
    }
    weir_status status = weir_layout_create_bytes(1, &byte);
    const double begin = pack_now_us();
    if (status == WEIR_OK) {
        status = weir_layout_create_hindexed(count, bench->blocks.lengths, bench->blocks.places, byte, &bench->layout);
    }
    const double created = pack_now_us();
    if (status == WEIR_OK) {
        status = weir_layout_commit(bench->layout, rank->device);
    }
    costs->create = created - begin;
    costs->commit = pack_now_us() - created;
    weir_layout_destroy(byte);
    if (status == WEIR_OK) {
        status = weir_memory_allocate(rank->comm, bench->span, NULL, &bench->wide);
    }
    return status == WEIR_OK ? weir_memory_allocate(rank->comm, bench->packed, NULL, &bench->dense) : status;
}

static void close_list(list_bench *bench)
{
    weir_memory_destroy(bench->dense);
    weir_memory_destroy(bench->wide);
    weir_layout_destroy(bench->layout);
    free(bench->blocks.places);
    free(bench->blocks.lengths);
}

static weir_status time_list(list_bench *bench, const char *name, const pack_costs *costs)
{
    perf_rank *rank = bench->rank;
    const perf_options *options = rank->options;
    const uint32_t wanted = options->iters != 0 ? options->iters : rank->gpu ? 10 : 1;
    const uint32_t replays = wanted < PERF_REPLAYS_MAX ? wanted : PERF_REPLAYS_MAX;
    const perf_calls calls = { put_list, bench };
    double us[PERF_REPLAYS_MAX];
    void *graph = NULL;
    uint64_t wrong = 0;
    weir_status status = perf_record_calls(rank, &calls, rank->gpu ? 4 : 1, &graph);
    if (status == WEIR_OK) {
        status = perf_time(rank, graph, rank->gpu ? 4 : 1, options->warmup, replays, us);
    }
    weir_graph_destroy(rank->device, graph);
    if (status == WEIR_OK) {
        status = check_list(bench, &wrong);
    }
    if (status != WEIR_OK) {
        return status;
    }
    const double trimean = pack_trimean(us, replays);
    perf_sort(us, replays);
    const perf_field fields[] = {
        perf_wide(perf_text("config", name), -14),
        perf_count("blocks", bench->blocks.count),
        perf_count("bytes", bench->packed),
        perf_as(perf_real("weir_us", perf_percentile(us, replays, 0.5), 2), PERF_LATENCY),
        perf_real("trimean_us", trimean, 2),
        perf_real("create_us", costs->create, 0),
        perf_real("commit_us", costs->commit, 0),
        perf_count("wrong", wrong),
    };
    perf_row(rank->output, "lists", fields, ROWS(fields));
    return wrong == 0 ? WEIR_OK
                      : perf_fail(rank, WEIR_ERR_CORRUPT, "%s: %llu blocks are wrong", name, (unsigned long long)wrong);
}

weir_status pack_measure_list(perf_rank *rank, bool unpack, bool shuffled)
{
    const uint64_t cube = rank->options->cube != 0 ? rank->options->cube : rank->gpu ? 1024 : 32;
    list_bench bench;
    pack_costs costs;
    memset(&bench, 0, sizeof bench);
    bench.rank = rank;
    bench.unpack = unpack;
    if (rank->ranks != 1) {
        return perf_fail(rank, WEIR_ERR_INVALID, "%s: C12 needs -g 1", rank->command);
    }
    weir_status status = open_list(&bench, cube * cube, shuffled, &costs);
    if (status == WEIR_OK) {
        status = time_list(&bench, shuffled ? "C12-shuffled" : "C12", &costs);
    }
    close_list(&bench);
    return status;
}
