/* plot.h - time and bandwidth against size, as a picture. */
#ifndef WEIR_PERF_PLOT_H
#define WEIR_PERF_PLOT_H

#include <stdbool.h>

/* Draws the rows of the file `json` into the file `svg`. Where Python or matplotlib is missing it prints the command
 * that draws the picture elsewhere. False, with the reason on stderr, when the drawing failed. */
bool perf_plot_draw(const char *json, const char *svg);

#endif
