/* output.h - opens and closes what perf_fact and perf_row write to. */
#ifndef WEIR_PERF_OUTPUT_H
#define WEIR_PERF_OUTPUT_H

#include "tools/perf/common.h"

WEIR_BEGIN_DECLS

/* For --csv, --json and --against. Without success it prints why, and returns NULL. */
perf_output *perf_output_open(const perf_options *options);
/* Whether everything was written, and nothing is worse than in the run that it is compared with; otherwise it prints
 * what is wrong. NULL is fine. */
bool perf_output_close(perf_output *output);

WEIR_END_DECLS

#endif
