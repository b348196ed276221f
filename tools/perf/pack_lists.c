/* pack_lists.c - the lists of weir-perf pack: blocks of many lengths at irregular places. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/perf/pack.h"

#define SECTOR_BYTES 32u
#define UNIT_BYTES 16u

static uint64_t next_random(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    uint64_t word = (*state ^ *state >> 30) * 0xbf58476d1ce4e5b9u;
    return word ^ word >> 27;
}

/* 1 to 255, log-uniform. */
static uint64_t next_length(uint64_t *state) { return (uint64_t)exp2((double)(next_random(state) >> 11) / 0x1p53 * 8); }

static void place_blocks(pack_list *list, bool shuffled)
{
    uint64_t state = 12;
    for (uint64_t i = 0; i < list->count; i++) {
        const uint64_t gap = next_length(&state);
        list->lengths[i] = next_length(&state);
        list->places[i] = (int64_t)list->span;
        list->sectors += (list->span % SECTOR_BYTES + list->lengths[i] + SECTOR_BYTES - 1) / SECTOR_BYTES;
        list->bytes += list->lengths[i];
        list->span += list->lengths[i] + gap;
    }
    for (uint64_t i = list->count - 1; i > 0 && shuffled; i--) {
        const uint64_t other = next_random(&state) % (i + 1);
        const uint64_t length = list->lengths[i];
        const int64_t place = list->places[i];
        list->lengths[i] = list->lengths[other];
        list->places[i] = list->places[other];
        list->lengths[other] = length;
        list->places[other] = place;
    }
}

/* Writes the tables in the order of the fields of pack_list. */
static void fill_tables(const pack_list *list, uint32_t *tables)
{
    uint64_t at = 0;
    for (uint64_t i = 0; i < list->count; i++) {
        const uint64_t end = at + list->lengths[i];
        tables[i] = (uint32_t)list->places[i];
        tables[list->begins + i] = (uint32_t)at;
        for (uint64_t unit = (at + UNIT_BYTES - 1) / UNIT_BYTES; unit * UNIT_BYTES < end; unit++) {
            tables[list->firsts + unit] = (uint32_t)i;
        }
        at = end;
    }
    tables[list->begins + list->count] = (uint32_t)at;
}

static weir_status create_tables(perf_rank *rank, pack_list *list)
{
    list->begins = list->count;
    list->firsts = list->begins + list->count + 1;
    const uint64_t bytes = (list->firsts + (list->bytes + UNIT_BYTES - 1) / UNIT_BYTES) * sizeof(uint32_t);
    uint32_t *tables = (uint32_t *)malloc(bytes);
    if (tables == NULL) {
        return perf_fail(rank, WEIR_ERR_NOMEM, "%s: no memory for a list of blocks", rank->command);
    }
    fill_tables(list, tables);
    weir_status status = weir_memory_allocate(rank->comm, bytes, NULL, &list->tables);
    if (status == WEIR_OK) {
        status = weir_device_copy(rank->device, weir_memory_pointer(list->tables), tables, bytes);
    }
    free(tables);
    return status;
}

weir_status pack_list_create(perf_rank *rank, uint64_t count, bool shuffled, pack_list **out)
{
    pack_list *list = (pack_list *)calloc(1, sizeof *list);
    *out = list;
    if (list != NULL) {
        list->count = count;
        list->lengths = (uint64_t *)malloc(count * sizeof *list->lengths);
        list->places = (int64_t *)malloc(count * sizeof *list->places);
    }
    if (list == NULL || list->lengths == NULL || list->places == NULL) {
        return perf_fail(rank, WEIR_ERR_NOMEM, "%s: no memory for a list of blocks", rank->command);
    }
    place_blocks(list, shuffled);
    return list->span >> 31 == 0 ? create_tables(rank, list)
                                 : perf_fail(rank, WEIR_ERR_LIMIT,
                                             "%s: the blocks of C12 take 2 GiB and more; a smaller "
                                             "--cube has fewer",
                                             rank->command);
}

void pack_list_destroy(pack_list *list)
{
    if (list != NULL) {
        weir_memory_destroy(list->tables);
        free(list->places);
        free(list->lengths);
        free(list);
    }
}

void pack_list_args(const pack_list *list, pack_args *args)
{
    const uint32_t *tables = (const uint32_t *)weir_memory_pointer(list->tables);
    args->blocks = (uint32_t)list->count;
    args->places = tables;
    args->begins = tables + list->begins;
    args->firsts = tables + list->firsts;
    args->gap = 1;
}
