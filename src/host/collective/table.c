/* table.c - which form an operation takes, with how many blocks: by a table in a file, or the one in here.
 *
 * A file has a row a line, for instance
 *
 *     # on two H200
 *     device NVIDIA H200
 *     allreduce 2 262144 once 32 256
 *     allreduce 2 0 slots 0 0
 *
 * that is operation, ranks, the most bytes of data (all ranks' together where each has a piece; 0: any), form, blocks
 * and threads of a block (0: as without a row). The first row that fits is taken; rows behind a line with a device are
 * for that model alone, behind "device *" for any, as in front of the first such line. weir-perf --tune writes one. */
#include "src/host/collective/collective.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/device/kernels/collective.h"
#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/base/log.h"

#define LINE_BYTES 256
#define ROWS_MOST 4096u
#define WARP 32u
#define RANGE_LEAST ((uint64_t)16 << 10)
#define DIRECT_LEAST ((uint64_t)1 << 20)
#define MANY_BLOCKS 64u

/* ---- choice ------------------------------------------------------------------------------------------------- */

#define REDUCTIONS (1u << WEIR_ALLREDUCE | 1u << WEIR_REDUCE | 1u << WEIR_REDUCE_SCATTER)
#define MOVES (1u << WEIR_ALLGATHER | 1u << WEIR_BROADCAST | 1u << WEIR_ALL_TO_ALL)

/* By figures of two and four H200, and for eight what these let one expect. */
static const weiri_row table[] = {
    { REDUCTIONS, 2, (uint64_t)256 << 10, WEIR_FORM_ONCE, 0, 0 },
    { REDUCTIONS, 4, (uint64_t)64 << 10, WEIR_FORM_ONCE, 0, 0 },
    { REDUCTIONS, 8, (uint64_t)32 << 10, WEIR_FORM_ONCE, 0, 0 },
    { REDUCTIONS, 8, (uint64_t)64 << 10, WEIR_FORM_PACKETS, 0, 0 },
    { REDUCTIONS, 8, (uint64_t)8 << 20, WEIR_FORM_LINES, 0, 0 },
    { REDUCTIONS, 8, (uint64_t)1 << 20, WEIR_FORM_PACKETS, 0, 0 }, /* where the link keeps no lines */
    { MOVES, 8, (uint64_t)128 << 10, WEIR_FORM_PACKETS, 0, 0 },
    { MOVES, 8, (uint64_t)8 << 20, WEIR_FORM_LINES, 0, 0 },
    { MOVES, 8, (uint64_t)1 << 20, WEIR_FORM_PACKETS, 0, 0 },
};

static bool has_room(const weir_collective *collective, const weiri_work *work, weir_collective_form form)
{
    const weir_dev_collective *device = &collective->device;
    const bool reduces = (REDUCTIONS >> work->kind & 1) != 0;
    switch (form) {
    case WEIR_FORM_ONCE:
        return reduces && work->kind != WEIR_REDUCE_SCATTER &&
               (device->ranks == 1 || work->bytes <= device->packet_room / 2);
    case WEIR_FORM_PACKETS:
        return work->piece <= device->packet_room / 2;
    case WEIR_FORM_LINES:
        return collective->host.lines && work->piece <= device->line_room / WEIR_LINE_BYTES * WEIR_LINE_DATA;
    default:
        return true;
    }
}

/* By slots the data goes straight from memory to memory: from where on, by figures of two H200, that is the fastest. */
static bool goes_directly(const weiri_work *work)
{
    const bool reduces = (REDUCTIONS >> work->kind & 1) != 0;
    return work->direct && work->piece > (reduces ? DIRECT_LEAST : 2 * DIRECT_LEAST);
}

/* The first row that fits; NULL without. Rows of a file are for their number of ranks, those in here for fewer too. */
static const weiri_row *look_up(const weir_collective *collective, const weiri_work *work)
{
    const uint32_t ranks = collective->device.ranks;
    for (uint32_t i = 0; i < collective->row_count; i++) {
        const weiri_row *row = &collective->rows[i];
        if ((row->kinds >> work->kind & 1) != 0 && row->ranks == ranks && work->bytes <= row->bytes &&
            has_room(collective, work, row->form)) {
            return row;
        }
    }
    for (size_t i = 0; i < sizeof table / sizeof table[0] && !goes_directly(work); i++) {
        if ((table[i].kinds >> work->kind & 1) != 0 && ranks <= table[i].ranks && work->bytes <= table[i].bytes &&
            has_room(collective, work, table[i].form)) {
            return &table[i];
        }
    }
    return NULL;
}

static uint32_t most_threads(weir_collective_form form)
{
    return form == WEIR_FORM_SLOTS ? WEIRI_SLOT_THREADS : WEIRI_PACKET_THREADS;
}

/* Half of them fill the link when blocks are many, and leave room beside them. */
uint32_t weiri_collective_threads(const weir_collective *collective, weir_collective_form form, uint32_t blocks)
{
    const uint32_t most = most_threads(form);
    const uint32_t usual = form != WEIR_FORM_SLOTS       ? most
                           : blocks > collective->budget ? WEIRI_CROWD_THREADS
                           : blocks >= MANY_BLOCKS       ? most / 2
                                                         : most;
    return collective->threads == 0 ? usual : collective->threads < most ? collective->threads : most;
}

/* As many blocks as there are threads with something to do, and a warp that is free to compare what the ranks call; for
 * slots columns that have a range worth a signal. */
static uint32_t count_blocks(const weir_collective *collective, const weiri_work *work, weir_collective_form form)
{
    const uint32_t threads = weiri_collective_threads(collective, form, 1);
    uint64_t items = (work->piece + 7) / 8;
    if (form == WEIR_FORM_ONCE) {
        items = (work->bytes + 7) / 8;
    } else if (form == WEIR_FORM_LINES) {
        items = (work->piece + WEIR_LINE_DATA - 1) / WEIR_LINE_DATA * 8;
    }
    const uint64_t blocks =
        form == WEIR_FORM_SLOTS ? work->piece / RANGE_LEAST * 2 + 2 : (items + WARP + threads - 1) / threads;
    return blocks < UINT32_MAX ? (uint32_t)blocks : UINT32_MAX;
}

uint32_t weiri_collective_most_blocks(const weir_collective *collective, const weiri_work *work,
                                      weir_collective_form form)
{
    if (collective->forced != 0) {
        return collective->forced;
    }
    return form == WEIR_FORM_SLOTS && !work->direct && !work->alone ? collective->device.blocks : collective->budget;
}

weir_status weiri_collective_choose(const weir_collective *collective, const weiri_work *work, const char *name,
                                    weir_collective_form *form, weir_shape *shape)
{
    const weiri_row none = { 0, 0, 0, WEIR_FORM_SLOTS, 0, 0 };
    const weiri_row *row = NULL;
    weir_collective_form chosen = *form;
    if (collective->device.ranks == 1) {
        chosen = has_room(collective, work, WEIR_FORM_ONCE) ? WEIR_FORM_ONCE : WEIR_FORM_SLOTS;
    } else if (chosen == WEIR_FORM_AUTO) {
        row = look_up(collective, work);
        row = row != NULL ? row : &none;
        chosen = row->form;
    } else if (chosen == WEIR_FORM_ONCE && ((REDUCTIONS >> work->kind & 1) == 0 || work->kind == WEIR_REDUCE_SCATTER)) {
        chosen = WEIR_FORM_PACKETS;
    }
    if (!has_room(collective, work, chosen)) {
        return weiri_fail(WEIR_ERR_LIMIT, "%s: %llu bytes are too many for the form that is forced%s", name,
                          (unsigned long long)work->bytes,
                          chosen == WEIR_FORM_LINES && !collective->host.lines ? ", and the link keeps no lines" : "");
    }
    const uint32_t room = weiri_collective_most_blocks(collective, work, chosen);
    const uint32_t blocks = row != NULL && row->blocks != 0 ? row->blocks : count_blocks(collective, work, chosen);
    shape->blocks = blocks < room ? blocks : room;
    if (shape->blocks > collective->budget && shape->blocks < 2 * collective->budget) {
        shape->blocks = collective->budget; /* of twice the threads each */
    }
    const uint32_t usual = weiri_collective_threads(collective, chosen, shape->blocks);
    const uint32_t most = shape->blocks > collective->budget ? usual : most_threads(chosen);
    const uint32_t bound = collective->most_threads < most ? collective->most_threads : most;
    shape->threads = row == NULL || row->threads == 0 ? usual : row->threads < bound ? row->threads : bound;
    *form = chosen;
    return WEIR_OK;
}

/* ---- what was chosen ---------------------------------------------------------------------------------------- */

static const char *const forms[] = {
    [WEIR_FORM_ONCE] = "once", [WEIR_FORM_PACKETS] = "packets", [WEIR_FORM_LINES] = "lines", [WEIR_FORM_SLOTS] = "slots"
};

/* Why the form was chosen. */
static void describe_choice(const weir_collective *collective, const weiri_work *work, char *text, size_t bytes)
{
    const weiri_row *row = look_up(collective, work);
    const bool ours = row >= table && row < table + sizeof table / sizeof table[0];
    if (collective->device.ranks == 1) {
        (void)snprintf(text, bytes, "there is one rank");
    } else if (collective->form != WEIR_FORM_AUTO) {
        (void)snprintf(text, bytes, "the opts ask for %s", forms[collective->form]);
    } else if (row != NULL && row->bytes == UINT64_MAX) {
        (void)snprintf(text, bytes, "WEIR_COLLECTIVE_TABLE has it for any size");
    } else if (row != NULL) {
        (void)snprintf(text, bytes, "%s has it up to %llu bytes", ours ? "weir's own table" : "WEIR_COLLECTIVE_TABLE",
                       (unsigned long long)row->bytes);
    } else {
        (void)snprintf(text, bytes,
                       goes_directly(work) ? "all ranks have registered the memory" : "no row of the tables fits");
    }
}

/* The other forms of the operation that cannot carry it out. */
static void describe_others(const weir_collective *collective, const weiri_work *work, char *text, size_t bytes)
{
    const bool once = (REDUCTIONS >> work->kind & 1) != 0 && work->kind != WEIR_REDUCE_SCATTER;
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t form = once ? WEIR_FORM_ONCE : WEIR_FORM_PACKETS; form < WEIR_FORM_SLOTS && used < bytes; form++) {
        if (!has_room(collective, work, (weir_collective_form)form)) {
            const bool link = form == WEIR_FORM_LINES && !collective->host.lines;
            used += (size_t)snprintf(text + used, bytes - used, "; %s: %s", forms[form],
                                     link ? "a link does not keep lines" : "no room for so many bytes");
        }
    }
}

void weiri_collective_log(weir_collective *collective, const weiri_work *work, const char *name,
                          weir_collective_form form, weir_shape shape)
{
    char choice[128];
    char others[192];
    if ((collective->logged[work->kind] >> form & 1) != 0) {
        return;
    }
    collective->logged[work->kind] |= (uint8_t)(1u << form);
    describe_choice(collective, work, choice, sizeof choice);
    describe_others(collective, work, others, sizeof others);
    weiri_log(WEIR_LOG_INFO, "%s of rank %u, %llu bytes among %u ranks: form %s, %u blocks of %u threads: %s%s", name,
              collective->comm->rank, (unsigned long long)work->bytes, collective->device.ranks, forms[form],
              shape.blocks, shape.threads, choice, others);
}

/* ---- files -------------------------------------------------------------------------------------------------- */

/* The index of the next word of *line among names[first] to names[count - 1]; `count` when it is none of them. */
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
    const uint32_t kind = take_name(&line, weiri_kind_names, 0, WEIR_ALL_TO_ALL + 1);
    const bool numbers =
        take_number(&line, WEIR_COLLECTIVE_RANKS, &ranks) && take_number(&line, UINT64_MAX, &row->bytes);
    const uint32_t form = take_name(&line, forms, WEIR_FORM_ONCE, WEIR_FORM_SLOTS + 1);
    if (kind > WEIR_ALL_TO_ALL || !numbers || form > WEIR_FORM_SLOTS || !take_number(&line, UINT32_MAX, &blocks) ||
        !take_number(&line, UINT32_MAX, &threads) || strtok_r(NULL, " ", &line) != NULL) {
        return false;
    }
    row->kinds = (uint32_t)1 << kind;
    row->ranks = (uint32_t)ranks;
    row->bytes = row->bytes == 0 ? UINT64_MAX : row->bytes;
    row->form = (weir_collective_form)form;
    row->blocks = (uint32_t)blocks;
    row->threads = (uint32_t)threads;
    return true;
}

/* Whether blocks of this device can have so many threads. */
static bool has_threads(const weir_collective *collective, const weir_device_info *info, uint32_t threads)
{
    return threads <= info->block_threads && (!collective->many || threads % WARP == 0);
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

weir_status weiri_collective_read_table(weir_collective *collective, const char *path)
{
    static const char device[] = "device ";
    weir_device_info info;
    char line[LINE_BYTES];
    bool ours = true;
    weir_status status = WEIR_OK;
    weir_device_get_info(collective->comm->device, &info);
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
            status = weiri_fail(WEIR_ERR_ENV, "WEIR_COLLECTIVE_TABLE=%s: line %u is no row", path, number);
        } else if (ours) {
            status = append(collective, &row);
        }
    }
    if (status == WEIR_OK && ferror(file)) {
        status = weiri_fail(WEIR_ERR_ENV, "WEIR_COLLECTIVE_TABLE=%s: it cannot be read", path);
    }
    (void)fclose(file);
    return status;
}
