/* meet.c - the table by which neighbours find the counterparts of their parts.
 *
 * It lies at the start of each rank's shared memory: a head, a row for each part to a neighbour, and the exported
 * layouts to which neighbours store. Nothing of a neighbour's table is used before it is checked. */
#include <inttypes.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/halo/halo.h"
#include "weir/device/layout_channel.h"

#define CALL "weir_halo_create"
#define MAGIC 0x6f6c61682d726977u
#define VERSION 1u

typedef struct table_head {
    uint64_t magic;
    uint32_t version;
    uint32_t rows;
    uint64_t bytes; /* of the table */
} table_head;

typedef struct table_row {
    uint64_t id; /* of the channel */
    uint32_t index;
    uint32_t rank; /* to which the part goes */
    uint64_t put_bytes;
    uint64_t wait_bytes;
    uint64_t to_offset;
    uint64_t layout; /* place and bytes of the exported `to`; 0 bytes without stores */
    uint64_t layout_bytes;
    uint64_t words; /* places in the shared memory */
    uint64_t buffer;
    uint32_t wait_form;
    uint32_t reserved;
} table_row;

/* A neighbour's table. */
typedef struct table {
    char *bytes;
    uint64_t size;        /* of the table, */
    uint64_t memory_size; /* and of the shared memory */
    uint32_t rows;
    uint32_t rank;
} table;

/* ---- this rank's table ------------------------------------------------------------------------------------ */

static uint32_t count_rows(const weir_halo *halo)
{
    uint32_t rows = 0;
    for (uint32_t i = 0; i < halo->count; i++) {
        rows += !halo->parts[i].inside;
    }
    return rows;
}

uint64_t weiri_halo_table_bytes(const weir_halo *halo)
{
    uint64_t bytes = sizeof(table_head) + (uint64_t)count_rows(halo) * sizeof(table_row);
    for (uint32_t i = 0; i < halo->count; i++) {
        bytes += halo->parts[i].export_bytes;
    }
    return bytes;
}

weir_status weiri_halo_write_table(const weir_halo *halo)
{
    char *bytes = (char *)weiri_alloc(1, halo->table_bytes);
    if (bytes == NULL) {
        return weiri_fail_nomem(CALL);
    }
    const table_head head = { MAGIC, VERSION, count_rows(halo), halo->table_bytes };
    char *at = bytes + sizeof head;
    uint64_t layout = sizeof head + head.rows * sizeof(table_row);
    memcpy(bytes, &head, sizeof head);
    for (uint32_t i = 0; i < halo->count; i++) {
        const weiri_halo_part *part = &halo->parts[i];
        if (part->inside) {
            continue;
        }
        const table_row row = { .id = part->id,
                                .index = part->index,
                                .rank = part->peer,
                                .put_bytes = part->put.bytes,
                                .wait_bytes = part->wait.bytes,
                                .to_offset = part->to_offset,
                                .layout = layout,
                                .layout_bytes = part->export_bytes,
                                .words = part->wait.words,
                                .buffer = part->wait.buffer,
                                .wait_form = (uint32_t)part->wait.form };
        memcpy(at, &row, sizeof row);
        at += sizeof row;
        if (part->export_bytes != 0) {
            memcpy(bytes + layout, part->export, part->export_bytes);
        }
        layout += part->export_bytes;
    }
    const weir_status status =
        weir_device_copy(halo->comm->device, weir_memory_pointer(halo->shared.local), bytes, halo->table_bytes);
    weiri_free(bytes);
    return status;
}

/* ---- neighbours' tables ----------------------------------------------------------------------------------- */

static weir_status corrupt(const table *t, const char *what)
{
    return weiri_fail(WEIR_ERR_CORRUPT, CALL ": rank %u sent a malformed table: %s", t->rank, what);
}

/* Reads the table of member `k`. The caller frees out->bytes, also after an error. */
static weir_status read_table(const weir_halo *halo, uint32_t k, table *out)
{
    const weir_memory *remote = halo->shared.remote[k];
    const char *from = (const char *)weir_memory_pointer(remote);
    table_head head;
    memset(out, 0, sizeof *out);
    out->rank = halo->team.ranks[k];
    out->memory_size = weir_memory_bytes(remote);
    if (out->memory_size < sizeof head) {
        return corrupt(out, "it is too short");
    }
    weir_status status = weir_device_copy(halo->comm->device, &head, from, sizeof head);
    if (status != WEIR_OK) {
        return weiri_fail_in(CALL, status);
    }
    if (head.magic != MAGIC || head.version != VERSION) {
        return weiri_fail(WEIR_ERR_VERSION, CALL ": rank %u has tables of version %u, this rank of %u", out->rank,
                          head.version, VERSION);
    }
    if (head.bytes < sizeof head || head.bytes > out->memory_size ||
        head.rows > (head.bytes - sizeof head) / sizeof(table_row)) {
        return corrupt(out, "its rows leave it");
    }
    out->bytes = (char *)weiri_alloc(1, head.bytes);
    out->size = head.bytes;
    out->rows = head.rows;
    return out->bytes == NULL ? weiri_fail_nomem(CALL)
                              : weiri_fail_in(CALL, weir_device_copy(halo->comm->device, out->bytes, from, head.bytes));
}

static table_row row_at(const table *t, uint32_t i)
{
    table_row row;
    memcpy(&row, t->bytes + sizeof(table_head) + (uint64_t)i * sizeof row, sizeof row);
    return row;
}

/* The neighbour's layout to which this rank stores. All of it must lie in the neighbour's array. */
static weir_status import_layout(const weir_halo *halo, const table *t, const table_row *row, weiri_halo_part *part)
{
    weir_dev_layout items;
    if (!weir_dev_in_range(row->layout, row->layout_bytes, t->size)) {
        return corrupt(t, "a layout leaves it");
    }
    weir_status status = weir_layout_import(t->bytes + row->layout, row->layout_bytes, &part->there);
    if (status == WEIR_OK) {
        status = weir_layout_commit(part->there, halo->comm->device);
    }
    if (status == WEIR_OK) {
        status = weir_layout_device(part->there, halo->comm->device, 1, &items);
    }
    if (status != WEIR_OK) {
        return weiri_fail(status, CALL ": `to` of rank %u, index %u: %s", t->rank, part->index, weir_last_error());
    }
    if (items.nest.size != part->put.bytes ||
        !weir_dev_layout_in_range(&items, row->to_offset, 0, part->remote_bytes)) {
        return corrupt(t, "a layout leaves the array");
    }
    part->there_memory = part->remote + row->to_offset;
    return WEIR_OK;
}

/* Checks the counterpart of `part`, and takes what it says. */
static weir_status take_row(const weir_halo *halo, const table *t, const table_row *row, weiri_halo_part *part)
{
    const uint32_t rank = halo->comm->rank;
    const weir_halo_form form = (weir_halo_form)row->wait_form;
    if (row->wait_bytes != part->put.bytes || row->put_bytes != part->wait.bytes) {
        const bool puts = row->wait_bytes != part->put.bytes;
        return weiri_fail(WEIR_ERR_MISMATCH,
                          CALL ": part of index %u: `from` of rank %u has %" PRIu64 " bytes, but `to` of rank %u has "
                               "%" PRIu64,
                          part->index, puts ? rank : t->rank, puts ? part->put.bytes : row->put_bytes,
                          puts ? t->rank : rank, puts ? row->wait_bytes : part->wait.bytes);
    }
    if (form != WEIR_HALO_STORES && form != WEIR_HALO_PACKETS && (form != WEIR_HALO_LINES || !part->lines)) {
        return corrupt(t, "a form is unknown");
    }
    part->put.form = form;
    part->put.words = row->words;
    part->put.buffer = row->buffer;
    if (!weir_dev_in_range(row->words, (uint64_t)part->shares * WEIR_CELL_BYTES, t->memory_size) ||
        !weir_dev_in_range(row->buffer, 2 * part->shares * weiri_halo_half(&part->put, part->shares), t->memory_size) ||
        row->words % WEIR_CELL_BYTES != 0 || row->buffer % WEIR_CELL_BYTES != 0) {
        return corrupt(t, "a buffer leaves the memory");
    }
    return form == WEIR_HALO_STORES ? import_layout(halo, t, row, part) : WEIR_OK;
}

static weir_status meet_neighbour(weir_halo *halo, uint32_t k, const table *t)
{
    uint32_t mine = 0;
    uint32_t theirs = 0;
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < t->rows; i++) {
        theirs += row_at(t, i).rank == halo->comm->rank;
    }
    for (uint32_t i = 0; i < halo->count && status == WEIR_OK; i++) {
        weiri_halo_part *part = &halo->parts[i];
        bool found = false;
        if (part->inside || part->member != k) {
            continue;
        }
        mine++;
        for (uint32_t j = 0; j < t->rows && !found; j++) {
            const table_row row = row_at(t, j);
            found = row.rank == halo->comm->rank && row.id == part->id && row.index == part->index;
            status = found ? take_row(halo, t, &row, part) : WEIR_OK;
        }
        if (!found) {
            return weiri_fail(WEIR_ERR_MISMATCH,
                              CALL ": rank %u has a part of index %u for rank %u, but rank %u has no such part",
                              halo->comm->rank, part->index, t->rank, t->rank);
        }
    }
    if (status == WEIR_OK && mine != theirs) {
        return weiri_fail(WEIR_ERR_MISMATCH, CALL ": rank %u has %u parts for rank %u, which has %u for it", t->rank,
                          theirs, halo->comm->rank, mine);
    }
    return status;
}

weir_status weiri_halo_meet(weir_halo *halo)
{
    weir_status status = WEIR_OK;
    for (uint32_t k = 0; k < halo->team.size && status == WEIR_OK; k++) {
        table t;
        if (k == halo->team.rank) {
            continue;
        }
        status = read_table(halo, k, &t);
        if (status == WEIR_OK) {
            status = meet_neighbour(halo, k, &t);
        }
        weiri_free(t.bytes);
    }
    return status;
}
