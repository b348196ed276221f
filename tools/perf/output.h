/* output.h - opens and closes the output of perf_fact and perf_row. */
#ifndef WEIR_PERF_OUTPUT_H
#define WEIR_PERF_OUTPUT_H

#include "tools/perf/common.h"

WEIR_BEGIN_DECLS

/* Opens the files of --csv, --json and --against. On failure it prints the reason and returns NULL. */
perf_output *perf_output_open(const perf_options *options);
/* True if everything was written and nothing is worse than in the earlier run; otherwise it prints the reason. NULL is
 * ignored. */
bool perf_output_close(perf_output *output);

WEIR_END_DECLS

#endif
