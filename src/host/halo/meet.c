/* meet.c - the table by which neighbours find the counterparts of their parts.
 *
 * Each rank sends each neighbour a table: a head, a row for each part to it, and the exported layouts to which it may
 * store. A table goes as messages of the communicator's exchange, as many as its bytes need. A rank that has failed
 * sends a head alone, so that the ranks stay in step. Nothing of a neighbour's table is used before it is checked. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/comm/exchange.h"
#include "src/host/halo/halo.h"
#include "weir/device/layout_channel.h"

#define CALL "weir_halo_create"
#define MAGIC 0x6f6c61682d726977u
#define VERSION 1u
#define FAILED 0u                      /* the version in the head of a rank that has failed */
#define TABLE_MOST ((uint64_t)1 << 32) /* bytes */

typedef struct table_head {
    uint64_t magic;
    uint32_t version;
    uint32_t rows;
    uint64_t bytes; /* of the table */
} table_head;

typedef struct table_row {
    uint64_t id; /* of the channel */
    uint32_t index;
    uint32_t wait_form;
    uint64_t put_bytes;
    uint64_t wait_bytes;
    uint64_t to_offset;
    uint64_t layout; /* place and bytes of the exported `to`; 0 bytes without stores */
    uint64_t layout_bytes;
    uint64_t words; /* places in the shared memory */
    uint64_t buffer;
} table_row;

/* A neighbour's table. */
typedef struct table {
    char *bytes;
    uint64_t size;
    uint32_t rows;
    uint32_t rank;
    bool failed; /* the neighbour has an error, which it reports later */
} table;

/* ---- messages --------------------------------------------------------------------------------------------- */

typedef struct message_bytes {
    uint8_t bytes[WEIRI_PAYLOAD_MAX];
    size_t size;
} message_bytes;

static weir_status take_message(weir_future *future)
{
    message_bytes *out = (message_bytes *)future->out;
    out->size = future->payload_bytes;
    memcpy(out->bytes, future->payload, future->payload_bytes);
    return future->handle_count == 0
               ? WEIR_OK
               : weiri_fail(WEIR_ERR_CORRUPT, CALL ": rank %u sent a malformed message", future->peer);
}

static weir_status receive_message(const weir_halo *halo, uint32_t k, message_bytes *out)
{
    weir_future *future;
    const weir_status status = weiri_exchange_expect(halo->comm, halo->team.ranks[k], halo->team.tag, WEIRI_OP_TEAM,
                                                     take_message, NULL, NULL, out, &future);
    return status == WEIR_OK ? weiri_exchange_complete(future) : weiri_team_fail_to_begin(halo->comm, CALL, status);
}

static weir_status send_bytes(const weir_halo *halo, uint32_t k, const char *bytes, uint64_t size)
{
    weir_status status = WEIR_OK;
    for (uint64_t at = 0; at < size && status == WEIR_OK; at += WEIRI_PAYLOAD_MAX) {
        const uint64_t left = size - at < WEIRI_PAYLOAD_MAX ? size - at : WEIRI_PAYLOAD_MAX;
        const weiri_op_message message = { WEIRI_OP_TEAM, (const uint8_t *)bytes + at, left, { NULL, NULL }, 0 };
        status = weiri_exchange_send(halo->comm, halo->team.ranks[k], halo->team.tag, &message);
    }
    return status == WEIR_OK ? WEIR_OK : weiri_team_fail_to_begin(halo->comm, CALL, status);
}

/* ---- this rank's tables ----------------------------------------------------------------------------------- */

static bool goes_to(const weiri_halo_part *part, uint32_t k) { return !part->inside && part->member == k; }

static void write_table(const weir_halo *halo, uint32_t k, const table_head *head, char *bytes)
{
    char *at = bytes + sizeof *head;
    uint64_t layout = sizeof *head + head->rows * sizeof(table_row);
    memcpy(bytes, head, sizeof *head);
    for (uint32_t i = 0; i < halo->count; i++) {
        const weiri_halo_part *part = &halo->parts[i];
        if (!goes_to(part, k)) {
            continue;
        }
        const table_row row = { .id = part->id,
                                .index = part->index,
                                .wait_form = (uint32_t)part->wait.form,
                                .put_bytes = part->put.bytes,
                                .wait_bytes = part->wait.bytes,
                                .to_offset = part->to_offset,
                                .layout = layout,
                                .layout_bytes = part->export_bytes,
                                .words = part->wait.words,
                                .buffer = part->wait.buffer };
        memcpy(at, &row, sizeof row);
        at += sizeof row;
        if (part->export_bytes != 0) {
            memcpy(bytes + layout, part->exported, part->export_bytes);
        }
        layout += part->export_bytes;
    }
}

/* Sends the table for member `k`, or after an error a head alone. */
static weir_status send_table(const weir_halo *halo, uint32_t k, weir_status mine)
{
    table_head head = { MAGIC, VERSION, 0, sizeof head };
    for (uint32_t i = 0; i < halo->count && mine == WEIR_OK; i++) {
        const bool has_row = goes_to(&halo->parts[i], k);
        head.rows += has_row;
        head.bytes += has_row ? sizeof(table_row) + halo->parts[i].export_bytes : 0;
    }
    char *bytes = mine == WEIR_OK ? (char *)weiri_alloc(1, head.bytes) : NULL;
    if (bytes != NULL) {
        write_table(halo, k, &head, bytes);
        mine = send_bytes(halo, k, bytes, head.bytes);
        weiri_free(bytes);
        return mine;
    }
    const table_head failed = { MAGIC, FAILED, 0, sizeof failed };
    const weir_status sent = send_bytes(halo, k, (const char *)&failed, sizeof failed);
    return mine != WEIR_OK ? mine : sent != WEIR_OK ? sent : weiri_fail_nomem(CALL);
}

/* ---- neighbours' tables ----------------------------------------------------------------------------------- */

static weir_status corrupt(const table *t, const char *what)
{
    return weiri_fail(WEIR_ERR_CORRUPT, CALL ": rank %u sent a malformed table: %s", t->rank, what);
}

static weir_status check_head(const table_head *head, size_t size, const table *t)
{
    if (size < sizeof *head || head->magic != MAGIC || (head->version != VERSION && head->version != FAILED)) {
        return weiri_fail(WEIR_ERR_VERSION, CALL ": rank %u sent no table of version %u", t->rank, VERSION);
    }
    if (head->bytes < sizeof *head || head->bytes > TABLE_MOST ||
        head->rows > (head->bytes - sizeof *head) / sizeof(table_row)) {
        return corrupt(t, "its rows leave it");
    }
    return WEIR_OK;
}

/* Receives the table of member `k`. The caller frees out->bytes, also after an error. All its messages are taken, even
 * without memory for them. */
static weir_status receive_table(const weir_halo *halo, uint32_t k, table *out)
{
    message_bytes part;
    table_head head;
    memset(out, 0, sizeof *out);
    out->rank = halo->team.ranks[k];
    weir_status status = receive_message(halo, k, &part);
    if (status != WEIR_OK) {
        return weiri_fail_in(CALL, status);
    }
    memcpy(&head, part.bytes, sizeof head);
    status = check_head(&head, part.size, out);
    if (status != WEIR_OK) {
        return status;
    }
    out->failed = head.version == FAILED;
    out->rows = head.rows;
    out->size = head.bytes;
    out->bytes = (char *)weiri_alloc(1, head.bytes);
    for (uint64_t at = 0; at < head.bytes; at += WEIRI_PAYLOAD_MAX) {
        const uint64_t wanted = head.bytes - at < WEIRI_PAYLOAD_MAX ? head.bytes - at : WEIRI_PAYLOAD_MAX;
        status = at == 0 ? WEIR_OK : receive_message(halo, k, &part);
        if (status != WEIR_OK) {
            return weiri_fail_in(CALL, status);
        }
        if (part.size != wanted) {
            return corrupt(out, "a message has another size");
        }
        if (out->bytes != NULL) {
            memcpy(out->bytes + at, part.bytes, wanted);
        }
    }
    return out->bytes == NULL ? weiri_fail_nomem(CALL) : WEIR_OK;
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
    const uint64_t memory = weir_memory_bytes(halo->shared.remote[part->member]);
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
    if (!weir_dev_in_range(row->words, (uint64_t)part->shares * WEIR_CELL_BYTES, memory) ||
        !weir_dev_in_range(row->buffer, 2 * part->shares * weiri_halo_half(&part->put, part->shares), memory) ||
        row->words % WEIR_CELL_BYTES != 0 || row->buffer % WEIR_CELL_BYTES != 0) {
        return corrupt(t, "a buffer leaves the memory");
    }
    return form == WEIR_HALO_STORES ? import_layout(halo, t, row, part) : WEIR_OK;
}

static weir_status meet_neighbour(weir_halo *halo, uint32_t k, const table *t)
{
    uint32_t mine = 0;
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < halo->count && status == WEIR_OK; i++) {
        weiri_halo_part *part = &halo->parts[i];
        bool found = false;
        if (!goes_to(part, k)) {
            continue;
        }
        mine++;
        for (uint32_t j = 0; j < t->rows && !found; j++) {
            const table_row row = row_at(t, j);
            found = row.id == part->id && row.index == part->index;
            status = found ? take_row(halo, t, &row, part) : WEIR_OK;
        }
        if (!found) {
            return weiri_fail(WEIR_ERR_MISMATCH,
                              CALL ": rank %u has a part of index %u for rank %u, but rank %u has no such part",
                              halo->comm->rank, part->index, t->rank, t->rank);
        }
    }
    if (status == WEIR_OK && mine != t->rows) {
        return weiri_fail(WEIR_ERR_MISMATCH, CALL ": rank %u has %u parts for rank %u, which has %u for it", t->rank,
                          t->rows, halo->comm->rank, mine);
    }
    return status;
}

/* The first error counts, with its text. */
weir_status weiri_halo_meet(weir_halo *halo, weir_status mine)
{
    char text[512];
    (void)snprintf(text, sizeof text, "%s", mine != WEIR_OK ? weir_last_error() : "");
    for (uint32_t step = 0; step < 2 * halo->team.size; step++) {
        const uint32_t k = step % halo->team.size;
        weir_status status = WEIR_OK;
        table t = { .bytes = NULL };
        if (k == halo->team.rank) {
            continue;
        }
        if (step < halo->team.size) {
            status = send_table(halo, k, mine);
        } else {
            status = receive_table(halo, k, &t);
            status = status == WEIR_OK && mine == WEIR_OK && !t.failed ? meet_neighbour(halo, k, &t) : status;
        }
        weiri_free(t.bytes);
        if (mine == WEIR_OK && status != WEIR_OK) {
            (void)snprintf(text, sizeof text, "%s", weir_last_error());
            mine = status;
        }
    }
    return mine == WEIR_OK ? WEIR_OK : weiri_fail(mine, "%s", text);
}
