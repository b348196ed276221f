/* collective_tune.c - weir-perf --tune: writes the fastest form and shape of each size to a tuning file
 * (WEIR_COLLECTIVE_TABLE names it; src/host/collective/tuning.c describes its format).
 *
 * A row covers sizes up to the measured one and above that of the row before. Above the last row, the library's rows
 * apply. The first matching row is taken, so new rows come first. */
#include "tools/perf/collective.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 256 /* maximum of a row that collectives read */
#define ANY_DEVICE "*"

void perf_tune_add(perf_tune *tune, uint64_t bytes, const perf_choice *chosen, uint32_t most, double us)
{
    const perf_best row = { bytes, chosen->form, chosen->shape.blocks < most ? 0 : most,
                            most == 0 ? 0 : chosen->shape.threads, us };
    uint32_t i = 0;
    while (i < tune->count && tune->rows[i].bytes < bytes) {
        i++;
    }
    const bool known = i < tune->count && tune->rows[i].bytes == bytes;
    if (bytes == 0 || (known && tune->rows[i].us <= us)) {
        return; /* in a tuning file, 0 bytes mean any size */
    }
    if (!known) {
        memmove(&tune->rows[i + 1], &tune->rows[i], (tune->count - i) * sizeof row);
        tune->count++;
    }
    tune->rows[i] = row;
}

bool perf_tune_prepare(const char *path)
{
    FILE *file = fopen(path, "a");
    return file != NULL && fclose(file) == 0 && setenv("WEIR_COLLECTIVE_TABLE", path, 1) == 0;
}

static void put_limit(FILE *file, uint32_t limit)
{
    if (limit != 0) {
        fprintf(file, " %" PRIu32, limit);
    }
}

/* Returns the number of rows; neighbours with the same choice share a row. */
static uint32_t put_rows(FILE *file, const perf_tune *tune, const perf_rank *rank, const char *title)
{
    uint32_t count = 0;
    fprintf(file, "device %s\n# tuned %s %" PRIu32, rank->info.model, rank->command, rank->ranks);
    put_limit(file, tune->limit);
    fprintf(file, " by weir-perf %s: %s\n", weir_version(), title);
    for (uint32_t i = 0; i < tune->count; i++) {
        const perf_best *row = &tune->rows[i];
        const perf_best *next = row + 1;
        if (i + 1 < tune->count && row->form == next->form && row->blocks == next->blocks &&
            row->threads == next->threads) {
            continue;
        }
        fprintf(file, "%s %" PRIu32 " %" PRIu64 " %s %" PRIu32 " %" PRIu32, rank->command, rank->ranks, row->bytes,
                perf_form_names[row->form], row->blocks, row->threads);
        put_limit(file, tune->limit);
        fprintf(file, "\n");
        count++;
    }
    return count;
}

/* Whether `line` is a row of this operation, number of ranks and SM limit, or the comment above such rows. */
static bool is_replaced(const char *line, const perf_rank *rank, uint32_t limit)
{
    char name[32];
    unsigned ranks = 0;
    unsigned named = 0; /* the limit */
    if (sscanf(line, "# tuned %31s %u %u", name, &ranks, &named) < 2 &&
        sscanf(line, "%31s %u %*s %*s %*s %*s %u", name, &ranks, &named) < 2) {
        return false;
    }
    return strcmp(name, rank->command) == 0 && ranks == rank->ranks && named == limit;
}

/* Copies rows that are not replaced. One device row applies to all rows behind it. */
static void put_rest(FILE *file, FILE *old, const perf_rank *rank, uint32_t limit)
{
    static const char device[] = "device ";
    char line[LINE_BYTES];
    char here[LINE_BYTES] = ANY_DEVICE; /* device of the old file's current row */
    char named[LINE_BYTES];             /* last device written to the new file */
    (void)snprintf(named, sizeof named, "%s", rank->info.model);
    while (fgets(line, sizeof line, old) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, device, sizeof device - 1) == 0) {
            (void)snprintf(here, sizeof here, "%s", line + sizeof device - 1);
            continue;
        }
        if (strcmp(here, rank->info.model) == 0 && is_replaced(line, rank, limit)) {
            continue;
        }
        if (strcmp(here, named) != 0) {
            fprintf(file, "%s%s\n", device, here);
            (void)snprintf(named, sizeof named, "%s", here);
        }
        fprintf(file, "%s\n", line);
    }
}

static bool write_file(const char *path, const char *text, size_t bytes)
{
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return false;
    }
    const bool written = fwrite(text, 1, bytes, file) == bytes;
    return fclose(file) == 0 && written;
}

bool perf_tune_write(const perf_tune *tune, const char *path, const perf_rank *rank, const char *title)
{
    char *text = NULL;
    size_t bytes = 0;
    uint32_t count = 0;
    bool good = false;
    FILE *old = fopen(path, "r");
    FILE *file = old != NULL ? open_memstream(&text, &bytes) : NULL;
    if (file != NULL) {
        count = put_rows(file, tune, rank, title);
        put_rest(file, old, rank, tune->limit);
        good = ferror(old) == 0 && ferror(file) == 0;
        good = fclose(file) == 0 && good;
    }
    if (old != NULL) {
        (void)fclose(old);
    }
    good = good && write_file(path, text, bytes);
    free(text);
    if (good) {
        printf("\n%s: %" PRIu32 " row%s for %s of %" PRIu32 " ranks, read by WEIR_COLLECTIVE_TABLE=%s\n", path, count,
               count == 1 ? "" : "s", rank->command, rank->ranks, path);
    }
    return good;
}
