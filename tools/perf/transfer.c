/* transfer.c - weir-perf put, get and packets: the cost of moving data, for any sizes and shapes; semaphore: the cost
 * of a signal; probe: all of these for three sizes, and the cost of empty kernels. */
#include "tools/perf/commands.h"
#include "tools/perf/link.h"

#include <inttypes.h>
#include <string.h>

/* Why the case cannot be measured over this link with these options; NULL if it can. */
static const char *obstacle(const perf_link *link, const perf_case *test)
{
    if (link->rank->options->one_way && (test->flags & PERF_BOTH_WAYS) != 0) {
        return "it has no handshake, so data must move both ways";
    }
    if ((test->flags & PERF_LINES) != 0 && !weir_connection_keeps_lines(link->connection)) {
        return "this link does not keep lines of 128 bytes whole";
    }
    return NULL;
}

/* The best shape of an operation up to a size, for --shape auto. */
typedef struct choice {
    perf_op op;
    uint64_t most; /* bytes */
    const char *shape;
} choice;

/* clang-format off */
static const choice choices[] = {
    { PERF_PUT, UINT64_MAX, "blocks" },
    { PERF_GET, UINT64_MAX, "blocks" },
    { PERF_PACKETS, 128 << 10, "ll16" },
    { PERF_PACKETS, UINT64_MAX, "line" },
    { PERF_PACKETS, UINT64_MAX, "ll16" },
};
/* clang-format on */

/* The row of a shape; its name has `length` characters. */
static const perf_case *find_case(perf_op op, const char *name, size_t length)
{
    for (uint32_t i = 0; i < perf_case_count; i++) {
        const perf_case *test = &perf_cases[i];
        if (test->op == op && strlen(test->shape) == length && strncmp(test->shape, name, length) == 0) {
            return test;
        }
    }
    return NULL;
}

/* The best row for this size; with --one-way, the first row that can do it. */
static const perf_case *best_case(const perf_link *link, perf_op op, uint64_t bytes)
{
    for (uint32_t i = 0; i < ROWS(choices); i++) {
        if (choices[i].op == op && bytes <= choices[i].most) {
            const perf_case *test = find_case(op, choices[i].shape, strlen(choices[i].shape));
            if (test != NULL && obstacle(link, test) == NULL) {
                return test;
            }
        }
    }
    for (uint32_t i = 0; i < perf_case_count; i++) {
        if (perf_cases[i].op == op && obstacle(link, &perf_cases[i]) == NULL) {
            return &perf_cases[i];
        }
    }
    return NULL;
}

/* Number `i` of a list of blocks or threads; 0, the case's default, if the list is empty. */
static uint32_t grid_value(const perf_list *list, uint32_t i)
{
    if (list->count == 0) {
        return 0;
    }
    return list->values[i] < UINT32_MAX ? (uint32_t)list->values[i] : UINT32_MAX;
}

/* Measures with each requested number of blocks and threads. */
static weir_status measure_grids(perf_link *link, const perf_case *test, uint64_t bytes)
{
    const perf_list *blocks = &link->rank->options->blocks;
    const perf_list *threads = &link->rank->options->threads;
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i == 0 || i < blocks->count; i++) {
        for (uint32_t k = 0; (k == 0 || k < threads->count) && status == WEIR_OK; k++) {
            link->blocks = grid_value(blocks, i);
            link->threads = grid_value(threads, k);
            status = perf_link_measure(link, test, bytes);
        }
    }
    return status;
}

static weir_status measure_all(perf_link *link, perf_op op, uint64_t bytes)
{
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < perf_case_count && status == WEIR_OK; i++) {
        if (perf_cases[i].op == op && obstacle(link, &perf_cases[i]) == NULL) {
            status = measure_grids(link, &perf_cases[i], bytes);
        }
    }
    return status;
}

static weir_status refuse_shape(perf_rank *rank, perf_op op, const char *name, size_t length)
{
    char there[160] = "";
    size_t at = 0;
    for (uint32_t i = 0; i < perf_case_count && at < sizeof there; i++) {
        if (perf_cases[i].op == op) {
            at += (size_t)snprintf(there + at, sizeof there - at, ", %s", perf_cases[i].shape);
        }
    }
    return perf_fail(rank, WEIR_ERR_INVALID, "%s has no shape '%.*s'; shapes are auto, all%s", rank->command,
                     (int)length, name, there);
}

/* Measures one name of --shape. */
static weir_status measure_shape(perf_link *link, perf_op op, const char *name, size_t length, uint64_t bytes)
{
    const perf_case *test = find_case(op, name, length);
    if (length == 3 && strncmp(name, "all", 3) == 0) {
        return measure_all(link, op, bytes);
    }
    if (length == 4 && strncmp(name, "auto", 4) == 0) {
        test = best_case(link, op, bytes);
    }
    if (test == NULL) {
        return refuse_shape(link->rank, op, name, length);
    }
    if (obstacle(link, test) != NULL) {
        return perf_fail(link->rank, WEIR_ERR_UNSUPPORTED, "%s %s: %s", link->rank->command, test->shape,
                         obstacle(link, test));
    }
    return measure_grids(link, test, bytes);
}

static weir_status measure_sizes(perf_link *link, perf_op op, const perf_list *sizes)
{
    const char *const shapes = link->rank->options->shape != NULL ? link->rank->options->shape : "auto";
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < sizes->count && status == WEIR_OK; i++) {
        const char *name = shapes;
        while (*name != '\0' && status == WEIR_OK) {
            size_t length = strcspn(name, ",");
            status = measure_shape(link, op, name, length, sizes->values[i]);
            name += length;
            name += *name == ',';
        }
    }
    return status;
}

/* Destroys the link, also after a failure. */
static weir_status end_link(perf_link *link, weir_status status)
{
    if (status == WEIR_OK) {
        /* The peer may still use this rank's memory before this barrier. */
        status = weir_bootstrap_barrier(link->rank->bootstrap, NULL);
    }
    if (status == WEIR_OK || !link->rank->gpu) {
        perf_link_destroy(link);
    }
    return status;
}

static weir_status run_transfers(perf_rank *rank, perf_op op)
{
    perf_link link;
    perf_list sizes;
    weir_status status = perf_choose_sizes(rank, (uint64_t)128 << 20, &sizes);
    if (status != WEIR_OK) {
        return status;
    }
    status = perf_link_create(rank, perf_largest(&sizes), &link);
    if (status == WEIR_OK) {
        status = measure_sizes(&link, op, &sizes);
    }
    return end_link(&link, status);
}

static weir_status run_put(perf_rank *rank) { return run_transfers(rank, PERF_PUT); }

static weir_status run_get(perf_rank *rank) { return run_transfers(rank, PERF_GET); }

static weir_status run_packets(perf_rank *rank) { return run_transfers(rank, PERF_PACKETS); }

static weir_status run_semaphore(perf_rank *rank)
{
    perf_link link;
    weir_status status = perf_link_create(rank, 1, &link);
    if (status == WEIR_OK) {
        status = measure_all(&link, PERF_SEMAPHORE, 0);
    }
    return end_link(&link, status);
}

static weir_status run_probe(perf_rank *rank)
{
    static const uint64_t gpu_sizes[] = { 1024, 1 << 20, 128 << 20 };
    static const uint64_t cpu_sizes[] = { 1024, 64 << 10, 1 << 20 };
    static const perf_op transfers[] = { PERF_PUT, PERF_GET, PERF_PACKETS };
    perf_link link;
    perf_list sizes = rank->options->sizes;
    if (sizes.count == 0) {
        memcpy(sizes.values, rank->gpu ? gpu_sizes : cpu_sizes, sizeof gpu_sizes);
        sizes.count = ROWS(gpu_sizes);
    }
    weir_status status = perf_link_create(rank, perf_largest(&sizes), &link);
    for (uint32_t i = 0; i < ROWS(transfers); i++) {
        for (uint32_t k = 0; k < sizes.count && status == WEIR_OK; k++) {
            status = measure_all(&link, transfers[i], sizes.values[k]);
        }
    }
    if (status == WEIR_OK) {
        status = measure_all(&link, PERF_SEMAPHORE, 0);
    }
    if (status == WEIR_OK) {
        status = measure_all(&link, PERF_FLOOR, 0);
    }
    return end_link(&link, status);
}

#define TRANSFER_OPTIONS "-b -e -f --sizes --shape --blocks --threads --one-way -n -w --check --plain"
#define PROBE_OPTIONS "--sizes --blocks --threads --one-way -n -w --check --plain"

const perf_command perf_put = { "put", "writes into the peer's memory", TRANSFER_OPTIONS, run_put, NULL };
const perf_command perf_get = { "get", "reads of the peer's memory", TRANSFER_OPTIONS, run_get, NULL };
const perf_command perf_packets = { "packets", "data that carries its own flags", TRANSFER_OPTIONS, run_packets, NULL };
const perf_command perf_semaphore = { "semaphore", "a signal from kernel to kernel, by ping-pong", "-w", run_semaphore,
                                      NULL };
const perf_command perf_probe = { "probe", "all of these in all shapes, and empty kernels", PROBE_OPTIONS, run_probe,
                                  NULL };
