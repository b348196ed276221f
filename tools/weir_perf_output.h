/* weir_perf_output.h - opens and closes what perf_fact and perf_row write to. */
#ifndef WEIR_PERF_OUTPUT_H
#define WEIR_PERF_OUTPUT_H

#include "weir_perf_common.h"

WEIR_BEGIN_DECLS

/* csv and json: paths, or NULL. Returns NULL, with errno and the path, when a file cannot be written. */
perf_output *perf_output_open(const char *csv, const char *json, const char **failed);
/* Whether everything was written; NULL is. */
bool perf_output_close(perf_output *output);

WEIR_END_DECLS

#endif
