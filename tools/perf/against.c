/* against.c - compares the rows of a run with recorded ones. Prints one row for each regression; any regression fails
 * the run.
 *
 * A recorded row matches a row of the run if the table and all naming columns (PERF_NAMES) agree. Of several matches
 * the first unused one is taken, because runs repeat their order. Rows with 1 MiB of data or more are compared by
 * bandwidth, all others by time. Recorded rows without a match in the run, for example because it has fewer sizes, do
 * not count. */
#include "tools/perf/against.h"
#include "tools/perf/old_rows.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BANDWIDTH_BYTES ((uint64_t)1 << 20) /* rows of at least this size are compared by bandwidth */
#define BANDWIDTH_LOSS 0.05
#define LATENCY_LOSS 0.15

struct perf_against {
    const char *path;
    perf_old_rows records;
    uint32_t compared; /* values compared */
    uint32_t worse;
    uint32_t missing; /* rows without a recorded match */
};

perf_against *perf_against_open(const char *path)
{
    perf_against *against = (perf_against *)calloc(1, sizeof *against);
    if (against == NULL) {
        fprintf(stderr, "weir-perf: out of memory\n");
        return NULL;
    }
    against->path = path;
    if (!perf_old_rows_read(path, &against->records)) {
        free(against);
        return NULL;
    }
    return against;
}

/* ---- comparing -------------------------------------------------------------------------------------------------- */

static bool is_same(const perf_old_row *r, const char *table, const perf_field *fields, uint32_t count)
{
    const char *value = perf_old_row_find(r, "table");
    bool same = value != NULL && strcmp(value, table) == 0;
    for (uint32_t i = 0; i < count && same; i++) {
        same = fields[i].role != PERF_NAMES || perf_old_row_matches(r, &fields[i]);
    }
    return same;
}

static void print_names(const perf_field *fields, uint32_t count)
{
    const char *comma = "";
    for (uint32_t i = 0; i < count; i++) {
        if (fields[i].role == PERF_NAMES && fields[i].kind == PERF_TEXT) {
            printf("%s%s %s", comma, fields[i].name, fields[i].text);
            comma = ", ";
        } else if (fields[i].role == PERF_NAMES) {
            printf("%s%s %" PRIu64, comma, fields[i].name, fields[i].count);
            comma = ", ";
        }
    }
}

static bool goes_by_bandwidth(const perf_field *fields, uint32_t count)
{
    bool large = false;
    bool has = false;
    for (uint32_t i = 0; i < count; i++) {
        large = large || (fields[i].role == PERF_NAMES && strcmp(fields[i].name, "bytes") == 0 &&
                          fields[i].count >= BANDWIDTH_BYTES);
        has = has || (fields[i].role == PERF_BANDWIDTH && !isnan(fields[i].real));
    }
    return large && has;
}

void perf_against_row(perf_against *against, const char *table, const perf_field *fields, uint32_t count)
{
    perf_old_row *found = NULL;
    for (uint32_t i = 0; i < against->records.count && found == NULL; i++) {
        perf_old_row *r = &against->records.rows[i];
        found = !r->used && is_same(r, table, fields, count) ? r : NULL;
    }
    if (found == NULL) {
        against->missing++;
        printf("against %s: it does not have ", against->path);
        print_names(fields, count);
        printf("\n");
        return;
    }
    found->used = true;
    const bool bandwidth = goes_by_bandwidth(fields, count);
    for (uint32_t i = 0; i < count; i++) {
        const char *value = perf_old_row_find(found, fields[i].name);
        if (fields[i].role != (bandwidth ? PERF_BANDWIDTH : PERF_LATENCY) || isnan(fields[i].real) || value == NULL ||
            value[0] == '\0') {
            continue;
        }
        const double before = strtod(value, NULL);
        const double change = fields[i].real / before - 1;
        against->compared++;
        if (bandwidth ? fields[i].real < before * (1 - BANDWIDTH_LOSS) : fields[i].real > before * (1 + LATENCY_LOSS)) {
            against->worse++;
            printf("against %s: ", against->path);
            print_names(fields, count);
            printf(": %s %s before, %.*f now (%+.1f %%)\n", fields[i].name, value, fields[i].decimals, fields[i].real,
                   100 * change);
        }
    }
}

bool perf_against_close(perf_against *against)
{
    if (against == NULL) {
        return true;
    }
    const bool good = against->compared != 0 && against->worse == 0 && against->missing == 0;
    printf("\nagainst %s: %" PRIu32 " values compared, %" PRIu32 " worse; %" PRIu32 " rows are not in it\n",
           against->path, against->compared, against->worse, against->missing);
    perf_old_rows_free(&against->records);
    free(against);
    return good;
}
