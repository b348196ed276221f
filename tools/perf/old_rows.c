/* old_rows.c - reads the rows of an earlier run, as --csv or --json has written them, or a program that writes such
 * rows.
 */
#include "tools/perf/old_rows.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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

static perf_old_row *add_record(perf_old_rows *out)
{
    perf_old_row *rows = (perf_old_row *)realloc(out->rows, (out->count + 1) * sizeof *rows);
    if (rows == NULL) {
        return NULL;
    }
    out->rows = rows;
    memset(&rows[out->count], 0, sizeof *rows);
    return &rows[out->count++];
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
        if (*count == PERF_COLUMNS_MAX || (values[*count] = take_csv(&line)) == NULL) {
            return false;
        }
        (*count)++;
    }
    return true;
}

static bool read_csv(perf_old_rows *out)
{
    static const char header[] = "table,";
    const char *names[PERF_COLUMNS_MAX];
    uint32_t columns = 0;
    for (char *line = out->text, *next = NULL; line != NULL && *line != '\0'; line = next) {
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
        perf_old_row *r = columns != 0 ? add_record(out) : NULL;
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
static bool take_json_object(char **at, perf_old_row *r)
{
    bool more = true;
    while (more) {
        char *c = skip_json(*at);
        if (*c++ != '"' || r->count == PERF_COLUMNS_MAX || (r->names[r->count] = take_json_text(&c)) == NULL) {
            return false;
        }
        c = skip_json(c);
        const char *value = c;
        if (*c == '"') {
            c++;
            value = take_json_text(&c);
        } else {
            c += strcspn(c, " \n,}");
        }
        char *end = c;
        c += strspn(c, " \n");
        if (value == NULL || (*c != ',' && *c != '}')) {
            return false;
        }
        more = *c == ',';
        *end = '\0';
        r->values[r->count++] = strcmp(value, "null") == 0 ? "" : value;
        *at = c + 1;
    }
    return true;
}

static bool read_json(perf_old_rows *out)
{
    static const char rows[] = "\"rows\": [";
    char *at = strstr(out->text, rows);
    if (at == NULL) {
        return false;
    }
    at = skip_json(at + sizeof rows - 1);
    while (*at == '{') {
        perf_old_row *r = add_record(out);
        at++;
        if (r == NULL || !take_json_object(&at, r)) {
            return false;
        }
        at = skip_json(at);
    }
    return *at == ']';
}

bool perf_old_rows_read(const char *path, perf_old_rows *out)
{
    memset(out, 0, sizeof *out);
    out->text = read_file(path);
    if (out->text != NULL) {
        if ((out->text[0] == '{' ? read_json(out) : read_csv(out)) && out->count != 0) {
            return true;
        }
        fprintf(stderr, "weir-perf: %s: no rows of weir-perf in this file, or row %" PRIu32 " is malformed\n", path,
                out->count);
    }
    perf_old_rows_free(out);
    return false;
}

void perf_old_rows_free(perf_old_rows *records)
{
    free(records->rows);
    free(records->text);
    memset(records, 0, sizeof *records);
}

const char *perf_old_row_find(const perf_old_row *r, const char *name)
{
    for (uint32_t i = 0; i < r->count; i++) {
        if (strcmp(r->names[i], name) == 0) {
            return r->values[i];
        }
    }
    return NULL;
}

bool perf_old_row_matches(const perf_old_row *r, const perf_field *field)
{
    const char *value = perf_old_row_find(r, field->name);
    char number[32];
    (void)snprintf(number, sizeof number, "%" PRIu64, field->count);
    return value != NULL && strcmp(value, field->kind == PERF_TEXT ? field->text : number) == 0;
}
