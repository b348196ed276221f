/* gather_ids.c - the ids of weir-perf gather: drawn or read from a file, in the order of a case. */
#include "tools/perf/gather_bench.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GROUP_BYTES ((uint64_t)64 << 20)
#define PAGE_BYTES ((uint64_t)64 << 10) /* that address translation misses once */

/* A permutation of the numbers below 2^bits. */
static uint64_t permute(uint64_t value, uint32_t bits, uint64_t seed)
{
    const uint64_t mask = ((uint64_t)1 << bits) - 1;
    for (uint32_t round = 0; round < 4; round++) {
        value = (value * 0x9e3779b97f4a7c15u + seed + round) & mask;
        value ^= value >> (bits / 2 + 1);
    }
    return value;
}

weir_status gather_read_ids(gather_bench *bench, uint64_t rows)
{
    const char *path = bench->rank->options->ids;
    char word[24]; /* longer words are cut, and then too large for an id */
    bench->count = 0;
    errno = 0;
    FILE *file = fopen(path, "r");
    while (file != NULL && bench->count < bench->most && fscanf(file, "%23s", word) == 1) {
        char *end = NULL;
        const uint64_t id = strtoull(word, &end, 10);
        if (word[0] < '0' || word[0] > '9' || *end != '\0' || id >= rows) {
            (void)fclose(file);
            return perf_fail(bench->rank, WEIR_ERR_INVALID,
                             "gather: --ids %s: id %llu is %s; ids are numbers below %llu, the rows of the span", path,
                             (unsigned long long)bench->count, word, (unsigned long long)rows);
        }
        bench->drawn[bench->count++] = (int64_t)id;
    }
    const int error = file == NULL || ferror(file) != 0 ? errno : 0;
    if (file != NULL) {
        (void)fclose(file);
    }
    return error == 0 && bench->count != 0
               ? WEIR_OK
               : perf_fail(bench->rank, WEIR_ERR_INVALID, "gather: --ids %s: %s; --ids takes uniform, zipf or a file",
                           path, error == 0 ? "no ids" : strerror(error));
}

void gather_draw_ids(gather_bench *bench, uint64_t rows, uint64_t count)
{
    const uint64_t seed = 977 * bench->rank->rank;
    const bool zipf = bench->rank->options->ids != NULL && strcmp(bench->rank->options->ids, "zipf") == 0;
    uint32_t bits = 1;
    while ((uint64_t)1 << bits < rows) {
        bits++;
    }
    uint64_t found = 0;
    for (uint64_t i = 0; found < count; i++) {
        const double uniform = (double)permute(i % ((uint64_t)1 << 40), 40, seed) / (double)((uint64_t)1 << 40);
        const uint64_t rank = zipf ? (uint64_t)exp(uniform * log((double)rows)) - 1 : i;
        const uint64_t id = permute(rank, bits, seed);
        if (id < rows) {
            bench->drawn[found++] = (int64_t)id;
        }
    }
    bench->count = count;
}

typedef struct keyed {
    uint64_t key;
    uint32_t position;
} keyed;

static int compare_keyed(const void *a, const void *b)
{
    const keyed *x = (const keyed *)a;
    const keyed *y = (const keyed *)b;
    if (x->key != y->key) {
        return x->key < y->key ? -1 : 1;
    }
    return x->position < y->position ? -1 : x->position > y->position;
}

weir_status gather_set_order(gather_bench *bench, uint32_t order, uint64_t row_bytes)
{
    perf_rank *rank = bench->rank;
    keyed *keys = (keyed *)malloc(bench->count * sizeof *keys);
    if (keys == NULL) {
        return perf_fail(rank, WEIR_ERR_NOMEM, "gather: no memory for %llu ids", (unsigned long long)bench->count);
    }
    for (uint64_t i = 0; i < bench->count; i++) {
        const uint64_t id = (uint64_t)bench->drawn[i];
        keys[i].key = order == ORDER_GIVEN ? 0 : order == ORDER_SORTED ? id : id * row_bytes / GROUP_BYTES;
        keys[i].position = (uint32_t)i;
    }
    qsort(keys, bench->count, sizeof *keys, compare_keyed);
    for (uint64_t i = 0; i < bench->count; i++) {
        bench->host_places[i] = keys[i].position;
        bench->host_ids[i] = bench->drawn[keys[i].position];
    }
    free(keys);
    weir_status status = weir_device_copy(rank->device, weir_memory_pointer(bench->ids), bench->host_ids,
                                          bench->count * sizeof bench->host_ids[0]);
    if (status == WEIR_OK) {
        status = weir_device_copy(rank->device, weir_memory_pointer(bench->places), bench->host_places,
                                  bench->count * sizeof bench->host_places[0]);
    }
    return status;
}

static int compare_ids(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a;
    const int64_t y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

uint64_t gather_count_pages(gather_bench *bench, uint64_t row_bytes, uint64_t *distinct)
{
    memcpy(bench->host_ids, bench->drawn, bench->count * sizeof bench->drawn[0]);
    qsort(bench->host_ids, bench->count, sizeof bench->host_ids[0], compare_ids);
    uint64_t pages = 0;
    uint64_t next = 0; /* the first page that is not counted yet */
    *distinct = 0;
    for (uint64_t i = 0; i < bench->count; i++) {
        *distinct += i == 0 || bench->host_ids[i] != bench->host_ids[i - 1];
        const uint64_t first = (uint64_t)bench->host_ids[i] * row_bytes / PAGE_BYTES;
        const uint64_t last = ((uint64_t)(bench->host_ids[i] + 1) * row_bytes - 1) / PAGE_BYTES;
        pages += last < next ? 0 : last + 1 - (first > next ? first : next);
        next = last + 1 > next ? last + 1 : next;
    }
    return pages;
}
