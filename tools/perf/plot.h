/* plot.h - draws time and bandwidth against size. */
#ifndef WEIR_PERF_PLOT_H
#define WEIR_PERF_PLOT_H

#include <stdbool.h>

/* Draws the rows of the file `json` into the file `svg`. If Python or matplotlib is missing, it prints the command that
 * draws the picture elsewhere. False, with the reason on stderr, if drawing failed. */
bool perf_plot_draw(const char *json, const char *svg);

#endif
