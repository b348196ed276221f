/* plot.h - time and bus bandwidth against size, as a script for gnuplot. */
#ifndef WEIR_PERF_PLOT_H
#define WEIR_PERF_PLOT_H

#include "tools/perf/common.h"

enum { PERF_PLOT_OUT, PERF_PLOT_IN, PERF_PLOT_NCCL, PERF_PLOT_WINDOWS, PERF_PLOT_LINES };

/* NaN: there is none. */
typedef struct perf_plot_point {
    uint64_t bytes;
    double us[PERF_PLOT_LINES];
    double gbps[PERF_PLOT_LINES];
} perf_plot_point;

typedef struct perf_plot {
    perf_plot_point points[PERF_LIST_MAX];
    uint32_t count;
} perf_plot;

void perf_plot_add(perf_plot *plot, const perf_plot_point *point);
/* Writes the script to `path`. limit: of the link in GB/s; NaN: unknown. False, with errno, when it cannot. */
bool perf_plot_write(const perf_plot *plot, const char *path, const char *title, double limit);

#endif
