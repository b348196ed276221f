/* tuning.c - reads a tuning file, which WEIR_COLLECTIVE_TABLE names: the forms and shapes of operations.
 *
 *     # on two H200
 *     device NVIDIA H200
 *     allreduce 2 262144 once 32 256
 *     allreduce 2 0 slots 0 0
 *     allreduce 2 131072 lines 0 0 8
 *
 * A row is an operation, the number of ranks, the most bytes of data (of all ranks together if each has a piece; 0: any
 * number), the form, blocks, and threads of a block (0: chosen by the library). The first row that fits counts.
 *
 * A seventh word is an SM limit. Such a row is for collectives that are limited to so many SMs or more, and counts
 * before rows with a smaller limit or without one. So a collective that is limited to 12 SMs takes the rows for 8.
 *
 * Rows behind "device MODEL" are for that model alone. Rows behind "device *", and those before the first such row, are
 * for any model. weir-perf --tune writes such a file. */
#include "src/host/collective/collective.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"

#define LINE_BYTES 256
#define ROWS_MOST 4096u
#define WARP 32u

/* The index of the next word of *line among names[first] to names[count - 1]; `count` if no name matches. */
static uint32_t take_name(char **line, const char *const *names, uint32_t first, uint32_t count)
{
    const char *word = strtok_r(NULL, " ", line);
    uint32_t i = first;
    while (i < count && (word == NULL || strcmp(word, names[i]) != 0)) {
        i++;
    }
    return i;
}

static bool take_number(char **line, uint64_t most, uint64_t *out)
{
    const char *word = strtok_r(NULL, " ", line);
    char *end = NULL;
    if (word == NULL || word[0] < '0' || word[0] > '9') {
        return false;
    }
    errno = 0;
    *out = strtoull(word, &end, 10);
    return errno == 0 && *end == '\0' && *out <= most;
}

static bool parse_row(char *line, weiri_row *row)
{
    uint64_t ranks = 0;
    uint64_t blocks = 0;
    uint64_t threads = 0;
    uint64_t limit = 0;
    const uint32_t kind = take_name(&line, weiri_kind_names, 0, WEIR_SCATTER + 1);
    const bool numbers =
        take_number(&line, WEIR_COLLECTIVE_RANKS, &ranks) && take_number(&line, UINT64_MAX, &row->bytes);
    const uint32_t form = take_name(&line, weiri_form_names, WEIR_FORM_ONCE, WEIR_FORM_SLOTS + 1);
    if (kind > WEIR_SCATTER || !numbers || form > WEIR_FORM_SLOTS || !take_number(&line, UINT32_MAX, &blocks) ||
        !take_number(&line, UINT32_MAX, &threads)) {
        return false;
    }
    line += strspn(line, " ");
    if (line[0] != '\0' &&
        (!take_number(&line, UINT32_MAX, &limit) || limit == 0 || strtok_r(NULL, " ", &line) != NULL)) {
        return false;
    }
    row->kinds = (uint32_t)1 << kind;
    row->ranks = (uint32_t)ranks;
    row->bytes = row->bytes == 0 ? UINT64_MAX : row->bytes;
    row->form = (weir_collective_form)form;
    row->blocks = (uint32_t)blocks;
    row->threads = (uint32_t)threads;
    row->limit = (uint32_t)limit;
    return true;
}

/* Whether blocks of this device can have so many threads. */
static bool has_threads(const weir_collective *collective, const weir_device_info *info, uint32_t threads)
{
    return threads <= info->block_threads && (!collective->warps || threads % WARP == 0);
}

static weir_status append(weir_collective *collective, const weiri_row *row)
{
    if (collective->row_count == ROWS_MOST) {
        return weiri_fail(WEIR_ERR_LIMIT, "WEIR_COLLECTIVE_TABLE: more than %u rows", ROWS_MOST);
    }
    weiri_row *rows = (weiri_row *)weiri_realloc(collective->rows, (collective->row_count + 1) * sizeof *rows);
    if (rows == NULL) {
        return weiri_fail_nomem("WEIR_COLLECTIVE_TABLE");
    }
    rows[collective->row_count++] = *row;
    collective->rows = rows;
    return WEIR_OK;
}

weir_status weiri_tuning_read(weir_collective *collective, const char *path)
{
    static const char device[] = "device ";
    weir_device_info info;
    char line[LINE_BYTES];
    bool ours = true;
    weir_status status = WEIR_OK;
    weir_device_get_info(collective->comm->device, &info, sizeof info);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return weiri_fail(WEIR_ERR_ENV, "WEIR_COLLECTIVE_TABLE=%s: %s", path, strerror(errno));
    }
    for (uint32_t number = 1; status == WEIR_OK && fgets(line, sizeof line, file) != NULL; number++) {
        weiri_row row;
        bool whole = strchr(line, '\n') != NULL || feof(file);
        line[strcspn(line, "\n")] = '\0';
        for (int next = 0; !whole && line[0] == '#';) { /* the rest of a long comment */
            next = fgetc(file);
            whole = next == '\n' || next == EOF;
        }
        if (strncmp(line, device, sizeof device - 1) == 0) {
            const char *model = line + sizeof device - 1;
            ours = strcmp(model, info.model) == 0 || strcmp(model, "*") == 0;
        } else if (line[0] == '\0' || line[0] == '#') {
            continue;
        } else if (!whole || !parse_row(line, &row) || (ours && !has_threads(collective, &info, row.threads))) {
            status = weiri_fail(WEIR_ERR_ENV, "WEIR_COLLECTIVE_TABLE=%s: line %u: malformed row", path, number);
        } else if (ours) {
            status = append(collective, &row);
        }
    }
    if (status == WEIR_OK && ferror(file)) {
        status = weiri_fail(WEIR_ERR_ENV, "WEIR_COLLECTIVE_TABLE=%s: cannot be read", path);
    }
    (void)fclose(file);
    return status;
}
