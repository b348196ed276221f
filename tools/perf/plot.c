/* plot.c - writes a script that has its data in itself: gnuplot FILE draws FILE.svg. */
#include "tools/perf/plot.h"

#include <inttypes.h>
#include <math.h>

static const char *const names[PERF_PLOT_LINES] = { "weir", "weir, in place", "NCCL", "NCCL, symmetric windows" };

void perf_plot_add(perf_plot *plot, const perf_plot_point *point)
{
    if (plot->count < PERF_LIST_MAX) {
        plot->points[plot->count++] = *point;
    }
}

static bool has_line(const perf_plot *plot, uint32_t line)
{
    bool found = false;
    for (uint32_t i = 0; i < plot->count; i++) {
        found = found || !isnan(plot->points[i].us[line]);
    }
    return found;
}

static void write_data(const perf_plot *plot, FILE *file)
{
    fprintf(file, "$data << EOD\n# bytes; us and GB/s of each line\n");
    for (uint32_t i = 0; i < plot->count; i++) {
        const perf_plot_point *point = &plot->points[i];
        fprintf(file, "%" PRIu64, point->bytes);
        for (uint32_t k = 0; k < PERF_PLOT_LINES; k++) {
            if (isnan(point->us[k])) {
                fprintf(file, " NaN NaN");
            } else {
                fprintf(file, " %.3f %.3f", point->us[k], point->gbps[k]);
            }
        }
        fprintf(file, "\n");
    }
    fprintf(file, "EOD\n");
}

/* The lines that there are; `second`: of bandwidth. */
static void write_lines(const perf_plot *plot, FILE *file, uint32_t second)
{
    const char *start = "plot";
    for (uint32_t k = 0; k < PERF_PLOT_LINES; k++) {
        if (has_line(plot, k)) {
            fprintf(file, "%s $data using 1:%" PRIu32 " with linespoints title \"%s\"", start, 2 + 2 * k + second,
                    names[k]);
            start = ", \\\n    ";
        }
    }
}

bool perf_plot_write(const perf_plot *plot, const char *path, const char *title, double limit)
{
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return false;
    }
    write_data(plot, file);
    fprintf(file, "set terminal svg noenhanced size 900,1000 background \"white\"\n");
    fprintf(file, "set output \"%s.svg\"\n", path);
    fprintf(file, "set multiplot layout 2,1 title \"%s\"\n", title);
    fprintf(file, "set grid\nset key left top reverse Left\nset logscale x 4\nset format x \"%%.0b %%BB\"\n");
    fprintf(file, "set logscale y\nset ylabel \"time, us\"\n");
    if (plot->count != 0) {
        write_lines(plot, file, 0);
        fprintf(file, "\nunset logscale y\nset ylabel \"bus bandwidth, GB/s\"\n");
        fprintf(file, "set yrange [0:%.0f<*]\n", isnan(limit) ? 0 : 1.35 * limit); /* the key is above the limit */
        write_lines(plot, file, 1);
        if (!isnan(limit)) {
            fprintf(file, ", \\\n     %.1f with lines dashtype 2 linecolor \"black\" title", limit);
            fprintf(file, " \"link, one way: %.0f GB/s\"", limit);
        }
    }
    fprintf(file, "\nunset multiplot\n");
    const bool good = ferror(file) == 0;
    return fclose(file) == 0 && good;
}
