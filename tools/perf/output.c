/* output.c - results of weir-perf as aligned columns, CSV and JSON.
 *
 * A CSV file has the facts as rows "# name: value" and one header row for each table. A JSON file is one object:
 * {"facts": {name: text, ...}, "rows": [{"table": text, column: value, ...}, ...]}. It is complete even if a run fails
 * half-way. */
#include "tools/perf/output.h"
#include "tools/perf/against.h"
#include "tools/perf/plot.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define COLUMN_WIDTH 11
#define NAME_WIDTH 18 /* of text columns */

struct perf_output {
    FILE *csv;
    FILE *json;
    const char *plot;     /* picture to draw at the end, or NULL */
    char json_path[4096]; /* the rows that it draws */
    perf_against *against;
    char table[128]; /* of the latest row */
    uint32_t facts;
    uint32_t rows;
};

static FILE *open_file(const char *path)
{
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        fprintf(stderr, "weir-perf: %s: %s\n", path, strerror(errno));
    }
    return file;
}

perf_output *perf_output_open(const perf_options *options)
{
    perf_output *output = (perf_output *)calloc(1, sizeof *output);
    if (output == NULL) {
        fprintf(stderr, "weir-perf: out of memory\n");
        return NULL;
    }
    /* Read it first: this run may overwrite the file. */
    if (options->against != NULL && (output->against = perf_against_open(options->against)) == NULL) {
        goto free_output;
    }
    if (options->csv != NULL && (output->csv = open_file(options->csv)) == NULL) {
        goto close_against;
    }
    output->plot = options->plot;
    (void)snprintf(output->json_path, sizeof output->json_path, "%s%s",
                   options->json != NULL   ? options->json
                   : options->plot != NULL ? options->plot
                                           : "",
                   options->json == NULL && options->plot != NULL ? ".json" : "");
    if (output->json_path[0] != '\0' && (output->json = open_file(output->json_path)) == NULL) {
        goto close_csv;
    }
    if (output->json != NULL) {
        fprintf(output->json, "{\"facts\": {");
    }
    return output;

close_csv:
    if (output->csv != NULL) {
        (void)fclose(output->csv);
    }
close_against:
    (void)perf_against_close(output->against);
free_output:
    free(output);
    return NULL;
}

static bool close_file(FILE *file)
{
    if (file == NULL) {
        return true;
    }
    bool good = ferror(file) == 0;
    return fclose(file) == 0 && good;
}

bool perf_output_close(perf_output *output)
{
    if (output == NULL) {
        return true;
    }
    if (output->json != NULL) {
        fprintf(output->json, output->rows == 0 ? "},\n\"rows\": []}\n" : "\n]}\n");
    }
    const bool csv = close_file(output->csv);
    const bool json = close_file(output->json);
    if (!csv || !json) {
        fprintf(stderr, "weir-perf: the result files could not be written: %s\n", strerror(errno));
    }
    const bool kept = perf_against_close(output->against);
    const bool drawn = output->plot == NULL || output->rows == 0 || perf_plot_draw(output->json_path, output->plot);
    free(output);
    return csv && json && kept && drawn;
}

static void print_json_text(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            fprintf(file, "\\%c", c);
        } else if (c < 0x20) {
            fprintf(file, "\\u%04x", c);
        } else {
            fputc(c, file);
        }
    }
    fputc('"', file);
}

static void print_csv_text(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text != '\0'; text++) {
        if (*text == '"') {
            fputc('"', file);
        }
        fputc(*text, file);
    }
    fputc('"', file);
}

void perf_fact(perf_output *output, const char *name, const char *format, ...)
{
    if (output == NULL) {
        return;
    }
    char text[512];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(text, sizeof text, format, list);
    va_end(list);
    printf("%-14s %s\n", name, text);
    if (output->csv != NULL) {
        fprintf(output->csv, "# %s: %s\n", name, text);
    }
    if (output->json != NULL) {
        fprintf(output->json, output->facts == 0 ? "\n  " : ",\n  ");
        print_json_text(output->json, name);
        fprintf(output->json, ": ");
        print_json_text(output->json, text);
    }
    output->facts++;
}

static perf_field make_field(const char *name, perf_kind kind)
{
    perf_field field;
    memset(&field, 0, sizeof field);
    field.name = name;
    field.kind = kind;
    field.role = kind == PERF_REAL ? PERF_APART : PERF_NAMES;
    field.width = kind == PERF_TEXT ? -NAME_WIDTH : COLUMN_WIDTH;
    return field;
}

perf_field perf_text(const char *name, const char *text)
{
    perf_field field = make_field(name, PERF_TEXT);
    field.text = text;
    return field;
}

perf_field perf_count(const char *name, uint64_t count)
{
    perf_field field = make_field(name, PERF_COUNT);
    field.count = count;
    return field;
}

perf_field perf_real(const char *name, double real, int decimals)
{
    perf_field field = make_field(name, PERF_REAL);
    field.real = real;
    field.decimals = decimals;
    return field;
}

perf_field perf_as(perf_field field, perf_role role)
{
    field.role = role;
    return field;
}

perf_field perf_wide(perf_field field, int width)
{
    field.width = width;
    return field;
}

/* Formats a number; `none` stands for a missing value. */
static void format_number(const perf_field *field, const char *none, char *text, size_t size)
{
    if (field->kind == PERF_COUNT) {
        (void)snprintf(text, size, "%" PRIu64, field->count);
    } else if (isnan(field->real)) {
        (void)snprintf(text, size, "%s", none);
    } else {
        (void)snprintf(text, size, "%.*f", field->decimals, field->real);
    }
}

static void print_columns(const perf_field *fields, uint32_t count, bool header)
{
    for (uint32_t i = 0; i < count; i++) {
        char text[64];
        const char *value = fields[i].text;
        if (fields[i].width == 0) {
            continue;
        }
        if (fields[i].kind != PERF_TEXT) {
            format_number(&fields[i], "-", text, sizeof text);
            value = text;
        }
        const int least = (int)strlen(fields[i].name) + 1;
        const int width = fields[i].width;
        if (width < 0 && i != 0 && fields[i - 1].width > 0) {
            printf("  "); /* between a right-aligned column and a left-aligned one */
        }
        printf("%*s", width >= 0 && width < least ? least : width, header ? fields[i].name : value);
    }
    printf("\n");
}

static void print_csv_row(FILE *file, const char *table, const perf_field *fields, uint32_t count)
{
    print_csv_text(file, table);
    for (uint32_t i = 0; i < count; i++) {
        char text[64];
        fputc(',', file);
        if (fields[i].kind == PERF_TEXT) {
            print_csv_text(file, fields[i].text);
        } else {
            format_number(&fields[i], "", text, sizeof text);
            fputs(text, file);
        }
    }
    fputc('\n', file);
}

static void print_json_row(FILE *file, const char *table, const perf_field *fields, uint32_t count)
{
    fprintf(file, "{\"table\": ");
    print_json_text(file, table);
    for (uint32_t i = 0; i < count; i++) {
        char text[64];
        fprintf(file, ", ");
        print_json_text(file, fields[i].name);
        fprintf(file, ": ");
        if (fields[i].kind == PERF_TEXT) {
            print_json_text(file, fields[i].text);
        } else {
            format_number(&fields[i], "null", text, sizeof text);
            fputs(text, file);
        }
    }
    fputc('}', file);
}

void perf_row(perf_output *output, const char *table, const perf_field *fields, uint32_t count)
{
    if (output == NULL) {
        return;
    }
    if (strcmp(output->table, table) != 0) {
        (void)snprintf(output->table, sizeof output->table, "%s", table);
        printf("\n%s\n", table);
        print_columns(fields, count, true);
        if (output->csv != NULL) {
            fprintf(output->csv, "table");
            for (uint32_t i = 0; i < count; i++) {
                fprintf(output->csv, ",%s", fields[i].name);
            }
            fprintf(output->csv, "\n");
        }
    }
    print_columns(fields, count, false);
    if (output->against != NULL) {
        perf_against_row(output->against, table, fields, count);
    }
    (void)fflush(stdout);
    if (output->csv != NULL) {
        print_csv_row(output->csv, table, fields, count);
    }
    if (output->json != NULL) {
        fprintf(output->json, output->rows == 0 ? "},\n\"rows\": [\n  " : ",\n  ");
        print_json_row(output->json, table, fields, count);
    }
    output->rows++;
}
