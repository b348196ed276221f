/* against.h - --against FILE: compares rows with those of an earlier run. */
#ifndef WEIR_PERF_AGAINST_H
#define WEIR_PERF_AGAINST_H

#include "tools/perf/common.h"

WEIR_BEGIN_DECLS

typedef struct perf_against perf_against;

/* Reads a file that --csv or --json has written. On failure it prints the reason and returns NULL. */
perf_against *perf_against_open(const char *path);
/* Compares a row with the recorded one and prints each value that is worse. */
void perf_against_row(perf_against *against, const char *table, const perf_field *fields, uint32_t count);
/* Prints a summary. True if all rows were recorded and no value is worse. NULL is ignored. */
bool perf_against_close(perf_against *against);

WEIR_END_DECLS

#endif
