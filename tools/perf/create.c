/* create.c - weir-perf collective_create: the time in which all ranks create a collective with default opts, and its
 * memory. Before each time the ranks meet; the longest of them counts. The first one, which also loads kernels, stands
 * apart. */
#include <inttypes.h>
#include <string.h>

#include "tools/perf/commands.h"

#define TIMES 20u

/* Creates and destroys a collective. *us is the longest time of the ranks, *bytes the most memory. */
static weir_status create_once(perf_rank *rank, double *us, uint64_t *bytes)
{
    struct {
        double us;
        uint64_t bytes;
    } all[PERF_RANKS_MAX];
    weir_collective *collective = NULL;
    memset(all, 0, sizeof all);
    *us = 0;
    *bytes = 0;
    weir_status status = weir_bootstrap_barrier(rank->bootstrap, NULL);
    if (status == WEIR_OK) {
        const uint64_t start = weir_cpu_clock_ns();
        status = weir_collective_create(rank->comm, NULL, &collective);
        all[rank->rank].us = (double)(weir_cpu_clock_ns() - start) / 1e3;
    }
    if (status == WEIR_OK) {
        all[rank->rank].bytes = weir_collective_bytes(collective);
        status = weir_bootstrap_allgather(rank->bootstrap, NULL, all, sizeof all[0]);
    }
    for (uint32_t i = 0; i < rank->ranks; i++) {
        *us = all[i].us > *us ? all[i].us : *us;
        *bytes = all[i].bytes > *bytes ? all[i].bytes : *bytes;
    }
    weir_collective_destroy(collective);
    return status;
}

static weir_status run_create(perf_rank *rank)
{
    const uint32_t wanted = rank->options->iters != 0 ? rank->options->iters : TIMES;
    const uint32_t times = wanted < PERF_REPLAYS_MAX ? wanted : PERF_REPLAYS_MAX;
    double first = 0;
    double us[PERF_REPLAYS_MAX];
    uint64_t bytes = 0;
    weir_status status = perf_report_machine(rank);
    perf_fact(rank->output, "time",
              "us of weir_collective_create with default opts, longest of the ranks; memory: bytes "
              "of the device on the rank that has most");
    if (status == WEIR_OK) {
        status = create_once(rank, &first, &bytes);
    }
    for (uint32_t i = 0; i < times && status == WEIR_OK; i++) {
        status = create_once(rank, &us[i], &bytes);
    }
    if (status != WEIR_OK) {
        return status;
    }
    perf_sort(us, times);
    const perf_field fields[] = {
        perf_count("ranks", rank->ranks),
        perf_as(perf_real("create_us", perf_percentile(us, times, 0.5), 1), PERF_LATENCY),
        perf_real("min_us", us[0], 1),
        perf_real("p95_us", perf_percentile(us, times, 0.95), 1),
        perf_real("first_us", first, 1),
        perf_as(perf_count("memory", bytes), PERF_APART),
    };
    perf_row(rank->output, "collective_create", fields, ROWS(fields));
    return WEIR_OK;
}

static int start_create(const perf_options *options, char **arguments)
{
    perf_options mine = *options;
    if (mine.ranks.count == 0) {
        mine.ranks.count = 1; /* 0: all possible ranks */
        mine.ranks.values[0] = 0;
    }
    return perf_start(&perf_collective_create, &mine, arguments);
}

const perf_command perf_collective_create = { "collective_create", "creating a collective: its time and memory",
                                              "-g -n", run_create, start_create };
