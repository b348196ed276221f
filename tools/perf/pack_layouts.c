/* pack_layouts.c - layouts of weir-perf pack: the descriptions of a box or a list. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/perf/pack.h"

#define CREATES 5u           /* creates, of which the median counts */
#define ROWS_MOST (1u << 24) /* of a list */
#define TRIMEAN_TIMES 5u

const char *const pack_layout_names[PACK_LAYOUTS] = { "v_hv_hv", "v_hv", "hi", "hib", "subarray" };
enum { V_HV_HV, V_HV, HI = PACK_HINDEXED, HIB, SUBARRAY };

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

static bool list_rows(const pack_config *config, row_list *rows)
{
    const pack_box *box = &config->box;
    if (config->list != NULL) {
        rows->lengths = config->list->lengths;
        rows->places = config->list->places;
        rows->count = config->list->count;
        return true;
    }
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

/* Whether a description fits: that of a list, or of a box without too many rows for a list of them. */
static bool fits(const pack_config *config, uint32_t index)
{
    const pack_box *box = &config->box;
    if (config->list != NULL) {
        return index == HI;
    }
    return index == SUBARRAY             ? is_subarray(box)
           : index == HI || index == HIB ? box->counts[0] * box->counts[1] <= ROWS_MOST
                                         : true;
}

weir_status pack_describe(perf_rank *rank, const pack_config *config, uint32_t index, pack_costs *costs,
                          weir_layout **out)
{
    row_list rows = { NULL, NULL, 0 };
    double us[CREATES];
    weir_status status = WEIR_OK;
    *out = NULL;
    if (!fits(config, index)) {
        return WEIR_OK;
    }
    if ((index == HI || index == HIB) && !list_rows(config, &rows)) {
        status = perf_fail(rank, WEIR_ERR_NOMEM, "%s: no memory for a list of rows", rank->command);
    }
    for (uint32_t i = 0; i < CREATES && status == WEIR_OK; i++) {
        weir_layout_destroy(*out);
        *out = NULL;
        const double begin = pack_now_us();
        status = create_layout(&config->box, index, &rows, out);
        us[i] = pack_now_us() - begin;
    }
    if (config->list == NULL) {
        free(rows.lengths);
        free(rows.places);
    }
    if (status == WEIR_OK) {
        const double begin = pack_now_us();
        status = weir_layout_commit(*out, rank->device);
        costs->commit = pack_now_us() - begin;
        perf_sort(us, CREATES);
        costs->create = us[CREATES / 2];
    }
    return status;
}
