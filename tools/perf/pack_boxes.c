/* pack_boxes.c - the boxes of weir-perf pack and unpack, and the places that a cold case uses in turn. */
#include "tools/perf/pack.h"

#include <stdlib.h>
#include <string.h>

#define COLD_BYTES ((uint64_t)320 << 20) /* touched lines of all places; the L2 of an H200 holds 60 MB */
#define WIDE_MAX ((uint64_t)12 << 30)    /* bytes of the strided side with all places */
#define PLACES_MAX 512u
#define LINE_BYTES 64u /* that the L2 fetches for one byte by default */

/* ---- configurations -------------------------------------------------------------------------------------- */

/* The configurations of docs/weir-perf.md in a cube of n^3 bytes or elements. */
static pack_box named_box(const char *name, uint64_t n)
{
    const uint64_t plane = n * n;
    const struct {
        const char *name;
        pack_box box;
    } rows[] = {
        { "C5", { 8, { 1, plane }, { 0, 8 * n } } },
        { "C6", { 8 * n, { 1, n }, { 0, 8 * plane } } },
        { "C7", { 64, { 1, plane }, { 0, 8 * n } } },
        { "C8", { 4, { 1, 16 * plane }, { 0, 64 } } },
        { "C9", { 13, { 1, 8 * plane }, { 0, 53 } } },
        { "C10", { n * 100 / 1024, { n * 300 / 1024, n * 200 / 1024 }, { plane, n } } },
        { "C11", { 4, { 8 * n, 8 * n }, { 4, 32 * n } } },
    };
    for (uint32_t i = 0; i < ROWS(rows); i++) {
        if (strcmp(name, rows[i].name) == 0) {
            return rows[i].box;
        }
    }
    return (pack_box){ 0, { 0, 0 }, { 0, 0 } };
}

/* A number as 64, 4K, 1M or 2G, up to 2^31, in front of `behind`; returns the text behind that, or NULL. */
static const char *parse_part(const char *text, char behind, uint64_t *value)
{
    static const char units[] = "KMG";
    const uint64_t most = (uint64_t)1 << 31;
    char *end = NULL;
    if (text == NULL || *text < '0' || *text > '9') {
        return NULL;
    }
    *value = strtoull(text, &end, 10);
    const char *unit = *end != '\0' ? strchr(units, *end) : NULL;
    if (*value > most) {
        return NULL;
    }
    if (unit != NULL) {
        *value <<= 10 * (unit - units + 1);
        end++;
    }
    return *value <= most && *end == behind ? end + (behind != '\0') : NULL;
}

/* RUNxROWS@STRIDE */
static pack_box parse_box(const char *text)
{
    pack_box box = { 0, { 1, 0 }, { 0, 0 } };
    text = parse_part(text, 'x', &box.run);
    text = parse_part(text, '@', &box.counts[1]);
    text = parse_part(text, '\0', &box.strides[1]);
    if (text == NULL || box.strides[1] < box.run || box.counts[1] == 0) {
        box.run = 0;
    }
    return box;
}

static weir_status add_config(perf_rank *rank, pack_configs *configs, const char *name, pack_box box)
{
    const uint64_t bytes = box.run * box.counts[0] * box.counts[1];
    if (configs->count == PERF_LIST_MAX) {
        return perf_fail(rank, WEIR_ERR_LIMIT, "%s: more than %u configurations", rank->command, PERF_LIST_MAX);
    }
    if (bytes == 0 || bytes >= (uint64_t)1 << 31 || box.strides[1] > WIDE_MAX / box.counts[1]) {
        return perf_fail(rank, WEIR_ERR_INVALID,
                         "%s: configuration '%s' is not seed, C5 to C12, C12-shuffled or RUNxROWS@STRIDE",
                         rank->command, name);
    }
    pack_config *config = &configs->rows[configs->count++];
    (void)snprintf(config->name, sizeof config->name, "%s", name);
    config->box = box;
    config->list = NULL;
    return WEIR_OK;
}

/* C12 in a cube of n^3 bytes. */
static weir_status add_list(perf_rank *rank, pack_configs *configs, const char *name, uint64_t n)
{
    const pack_box one = { 1, { 1, 1 }, { 0, 1 } };
    const pack_box none = { 0, { 0, 0 }, { 0, 0 } };
    weir_status status = add_config(rank, configs, name, one);
    if (status == WEIR_OK) {
        pack_config *config = &configs->rows[configs->count - 1];
        config->box = none;
        status = pack_list_create(rank, n * n, strcmp(name, "C12") != 0, &config->list);
    }
    return status;
}

void pack_free_configs(pack_configs *configs)
{
    for (uint32_t i = 0; i < configs->count; i++) {
        pack_list_destroy(configs->rows[i].list);
    }
    configs->count = 0;
}

/* The sweep: rows of X bytes of a cube of n^3, for each X and each size that fit. */
static weir_status add_seed(perf_rank *rank, pack_configs *configs, uint64_t n)
{
    perf_list sizes = rank->options->sizes;
    weir_status status = WEIR_OK;
    if (sizes.count == 0) {
        sizes.values[sizes.count++] = n * n;
        sizes.values[sizes.count++] = 64 * n * n;
    }
    for (uint32_t i = 0; i < sizes.count; i++) {
        for (uint64_t x = 1; x <= n && status == WEIR_OK; x *= 2) {
            const uint64_t rows = sizes.values[i] / x;
            if (rows <= n * n && sizes.values[i] % x == 0) {
                status = add_config(rank, configs, "seed", (pack_box){ x, { 1, rows }, { 0, n } });
            }
        }
    }
    return status;
}

weir_status pack_list_configs(perf_rank *rank, pack_configs *configs)
{
    const char *list = rank->options->config != NULL ? rank->options->config : "seed";
    const uint64_t n = rank->options->cube != 0 ? rank->options->cube : rank->gpu ? 1024 : 32;
    weir_status status = WEIR_OK;
    memset(configs, 0, sizeof *configs);
    while (list != NULL && status == WEIR_OK) {
        const char *comma = strchr(list, ',');
        char name[24];
        (void)snprintf(name, sizeof name, "%.*s", comma != NULL ? (int)(comma - list) : 23, list);
        const pack_box box = name[0] == 'C' ? named_box(name, n) : parse_box(name);
        if (strcmp(name, "C12") == 0 || strcmp(name, "C12-shuffled") == 0) {
            status = add_list(rank, configs, name, n);
        } else {
            status = strcmp(name, "seed") == 0 ? add_seed(rank, configs, n) : add_config(rank, configs, name, box);
        }
        list = comma != NULL ? comma + 1 : NULL;
    }
    return status;
}

/* ---- places ---------------------------------------------------------------------------------------------- */

/* Rows, bytes and span. Returns the bytes of all lines that a move touches. */
static uint64_t measure_config(const pack_config *config, pack_case *c)
{
    const pack_box *box = &config->box;
    if (config->list != NULL) {
        c->rows = config->list->count;
        c->bytes = config->list->bytes;
        c->span = config->list->span;
        return c->bytes + c->span;
    }
    c->rows = box->counts[0] * box->counts[1];
    c->bytes = c->rows * box->run;
    c->span = (box->counts[0] - 1) * box->strides[0] + (box->counts[1] - 1) * box->strides[1] + box->run;
    return c->bytes + pack_least(c->span, c->rows * pack_round_up(box->run + LINE_BYTES - 1, LINE_BYTES));
}

void pack_plan_case(perf_rank *rank, const pack_config *config, bool cold, pack_case *c)
{
    const pack_box *box = &config->box;
    memset(c, 0, sizeof *c);
    c->config = config;
    c->cold = cold;
    const uint64_t touched = measure_config(config, c);
    c->wide_step = pack_round_up(c->span, 256);
    c->dense_step = pack_round_up(c->bytes, 256);
    uint64_t places = !cold ? 1 : rank->gpu ? COLD_BYTES / touched + 2 : 2;
    places = pack_least(places, PLACES_MAX);
    if (places * c->wide_step > WIDE_MAX) {
        const uint64_t beside = pack_round_up(box->run, 128);
        const uint64_t room = config->list != NULL ? 0 : box->strides[1] / beside;
        c->wide_step = room > 1 ? beside : c->wide_step;
        places = pack_least(places, room > 1 ? room : WIDE_MAX / c->wide_step);
    }
    c->places = places != 0 ? (uint32_t)places : 1;
}
