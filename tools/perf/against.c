/* against.c - compares the rows of a run with recorded ones. Prints one row for each regression; any regression fails
 * the run.
 *
 * A recorded row matches a row of the run if the table and all naming columns (PERF_NAMES) agree. Of several matches
 * the first unused one is taken, because runs repeat their order. Rows with 1 MiB of data or more are compared by
 * bandwidth, all others by time. Recorded rows without a match in the run, for example because it has fewer sizes, do
 * not count. */
#include "tools/perf/against.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_MAX 64u
#define BANDWIDTH_BYTES ((uint64_t)1 << 20) /* rows of at least this size are compared by bandwidth */
#define BANDWIDTH_LOSS 0.05
#define LATENCY_LOSS 0.15

/* A row of the file; names and values point into its text. A missing value is "". */
typedef struct record {
    const char *names[COLUMNS_MAX];
    const char *values[COLUMNS_MAX];
    uint32_t count;
    bool used;
} record;

struct perf_against {
    const char *path;
    char *text;
    record *records;
    uint32_t count;
    uint32_t compared; /* values compared */
    uint32_t worse;
    uint32_t missing; /* rows without a recorded match */
};

/* ---- the file --------------------------------------------------------------------------------------------------- */

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t size = 0;
    size_t got = 1;
    while (file != NULL && got != 0) {
        char *longer = (char *)realloc(text, size + 65537);
        if (longer == NULL) {
            break;
        }
        text = longer;
        got = fread(text + size, 1, 65536, file);
        size += got;
    }
    const bool good = file != NULL && got == 0 && ferror(file) == 0;
    if (!good) {
        fprintf(stderr, "weir-perf: %s: %s\n", path, strerror(errno));
        free(text);
        text = NULL;
    } else {
        text[size] = '\0';
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return text;
}

static record *add_record(perf_against *against)
{
    record *records = (record *)realloc(against->records, (against->count + 1) * sizeof *records);
    if (records == NULL) {
        return NULL;
    }
    against->records = records;
    memset(&records[against->count], 0, sizeof *records);
    return &records[against->count++];
}

/* Takes a value of a CSV row and the comma behind it; NULL if the row is malformed. *at is NULL after the last
 * value. */
static const char *take_csv(char **at)
{
    char *value = *at;
    char *end = value;
    if (*value == '"') {
        char *to = value;
        char *from = value + 1;
        while (*from != '\0' && (from[0] != '"' || from[1] == '"')) {
            from += *from == '"';
            *to++ = *from++;
        }
        if (*from != '"') {
            return NULL;
        }
        end = from + 1;
        *to = '\0';
    } else {
        end = value + strcspn(value, ",");
    }
    if (*end != ',' && *end != '\0') {
        return NULL;
    }
    *at = *end == ',' ? end + 1 : NULL;
    *end = '\0';
    return value;
}

/* Takes the values of a row. */
static bool take_line(char *line, const char **values, uint32_t *count)
{
    *count = 0;
    while (line != NULL) {
        if (*count == COLUMNS_MAX || (values[*count] = take_csv(&line)) == NULL) {
            return false;
        }
        (*count)++;
    }
    return true;
}

static bool read_csv(perf_against *against)
{
    static const char header[] = "table,";
    const char *names[COLUMNS_MAX];
    uint32_t columns = 0;
    for (char *line = against->text, *next = NULL; line != NULL && *line != '\0'; line = next) {
        char *end = strchr(line, '\n');
        next = end != NULL ? end + 1 : NULL;
        if (end != NULL) {
            *end = '\0';
        }
        if (line[0] == '#' || line[0] == '\0') {
            continue;
        }
        if (strncmp(line, header, sizeof header - 1) == 0) {
            if (!take_line(line, names, &columns)) {
                return false;
            }
            continue;
        }
        record *r = columns != 0 ? add_record(against) : NULL;
        if (r == NULL || !take_line(line, r->values, &r->count) || r->count != columns) {
            return false;
        }
        memcpy(r->names, names, columns * sizeof names[0]);
    }
    return true;
}

/* Takes the text behind a quotation mark, in place, and moves *at behind its end. NULL if the text has no end. */
static const char *take_json_text(char **at)
{
    char *from = *at;
    char *to = from;
    const char *value = from;
    while (*from != '"' && *from != '\0') {
        if (from[0] == '\\' && from[1] == 'u') {
            char digits[5] = "";
            memcpy(digits, from + 2, strnlen(from + 2, 4));
            *to++ = (char)strtoul(digits, NULL, 16);
            from += 2 + strlen(digits);
        } else {
            from += from[0] == '\\' && from[1] != '\0';
            *to++ = *from++;
        }
    }
    if (*from != '"') {
        return NULL;
    }
    *to = '\0';
    *at = from + 1;
    return value;
}

static char *skip_json(char *at) { return at + strspn(at, " \n,:"); }

/* Takes the pairs of an object and its end; *at is behind its beginning. */
static bool take_json_object(char **at, record *r)
{
    bool more = true;
    while (more) {
        char *c = skip_json(*at);
        if (*c++ != '"' || r->count == COLUMNS_MAX || (r->names[r->count] = take_json_text(&c)) == NULL) {
            return false;
        }
        c = skip_json(c);
        const char *value = c;
        if (*c == '"') {
            c++;
            value = take_json_text(&c);
        } else {
            c += strcspn(c, ",}");
        }
        if (value == NULL || (*c != ',' && *c != '}')) {
            return false;
        }
        more = *c == ',';
        *c = '\0';
        r->values[r->count++] = strcmp(value, "null") == 0 ? "" : value;
        *at = c + 1;
    }
    return true;
}

static bool read_json(perf_against *against)
{
    static const char rows[] = "\"rows\": [";
    char *at = strstr(against->text, rows);
    if (at == NULL) {
        return false;
    }
    at = skip_json(at + sizeof rows - 1);
    while (*at == '{') {
        record *r = add_record(against);
        at++;
        if (r == NULL || !take_json_object(&at, r)) {
            return false;
        }
        at = skip_json(at);
    }
    return *at == ']';
}

perf_against *perf_against_open(const char *path)
{
    perf_against *against = (perf_against *)calloc(1, sizeof *against);
    if (against == NULL) {
        fprintf(stderr, "weir-perf: out of memory\n");
        return NULL;
    }
    against->path = path;
    against->text = read_file(path);
    if (against->text != NULL) {
        if ((against->text[0] == '{' ? read_json(against) : read_csv(against)) && against->count != 0) {
            return against;
        }
        fprintf(stderr, "weir-perf: %s: no rows of weir-perf in this file, or row %" PRIu32 " is malformed\n", path,
                against->count);
    }
    free(against->records);
    free(against->text);
    free(against);
    return NULL;
}

/* ---- comparing -------------------------------------------------------------------------------------------------- */

/* NULL if the row has no such column. */
static const char *find_value(const record *r, const char *name)
{
    for (uint32_t i = 0; i < r->count; i++) {
        if (strcmp(r->names[i], name) == 0) {
            return r->values[i];
        }
    }
    return NULL;
}

static bool is_same(const record *r, const char *table, const perf_field *fields, uint32_t count)
{
    const char *value = find_value(r, "table");
    bool same = value != NULL && strcmp(value, table) == 0;
    for (uint32_t i = 0; i < count && same; i++) {
        char number[32];
        (void)snprintf(number, sizeof number, "%" PRIu64, fields[i].count);
        if (fields[i].role == PERF_NAMES) {
            value = find_value(r, fields[i].name);
            same = value != NULL && strcmp(value, fields[i].kind == PERF_TEXT ? fields[i].text : number) == 0;
        }
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
    record *found = NULL;
    for (uint32_t i = 0; i < against->count && found == NULL; i++) {
        record *r = &against->records[i];
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
        const char *value = find_value(found, fields[i].name);
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
    free(against->records);
    free(against->text);
    free(against);
    return good;
}
