/* old_rows.h - rows of a file that --csv or --json has written. */
#ifndef WEIR_PERF_OLD_ROWS_H
#define WEIR_PERF_OLD_ROWS_H

#include "tools/perf/common.h"

WEIR_BEGIN_DECLS

#define PERF_COLUMNS_MAX 64u

/* A row; names and values point into the text of the file. A missing value is "". */
typedef struct perf_old_row {
    const char *names[PERF_COLUMNS_MAX];
    const char *values[PERF_COLUMNS_MAX];
    uint32_t count;
    bool used;
} perf_old_row;

typedef struct perf_old_rows {
    char *text;
    perf_old_row *rows;
    uint32_t count;
} perf_old_rows;

/* Reads a file. If it has no rows, prints the reason and returns false. */
bool perf_old_rows_read(const char *path, perf_old_rows *out);
void perf_old_rows_free(perf_old_rows *records);
/* NULL if the row has no such column. */
const char *perf_old_row_find(const perf_old_row *r, const char *name);
/* Whether the row has the same text or count in the column of `field`. */
bool perf_old_row_matches(const perf_old_row *r, const perf_field *field);

WEIR_END_DECLS

#endif
