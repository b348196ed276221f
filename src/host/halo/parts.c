/* parts.c - the parts of a halo: checks, forms, shares and places.
 *
 * For each part the shared memory has the words that the neighbour stores, a cell for each share, and the buffers of
 * packets or lines. */
#include <inttypes.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/comm/semaphore.h"
#include "src/host/halo/halo.h"
#include "src/host/layout/layout.h"
#include "weir/device/layout_channel.h"

#define CALL "weir_halo_create"
#define UNIT 240u                     /* shares begin at its multiples: it suits packets, lines and units of 16 bytes */
#define BUFFER_UNIT 128u              /* of addresses of lines */
#define PART_MOST ((uint64_t)1 << 52) /* bytes */
#define MEMORY_MOST ((uint64_t)1 << 60) /* bytes */

static uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

/* The bounds of AUTO are bytes of a part, and of its runs. They come from exchanges of two H100, microseconds:
 *
 *     part, run             packets  lines  stores
 *     32 KiB, 512 B             8.4    9.0    11.5
 *     256 KiB, 1 KiB           10.3   10.8    12.1
 *     512 KiB, 2 KiB           13.7   12.4    16.9
 *     512 KiB, 8 B             14.2   13.0    29.2
 *     2 MiB, 2 KiB             45.0   40.1    29.1
 *     2 MiB, 32 B              44.8   36.2    30.8
 *
 * Packets have the fewest instructions and half of the link. Stores have all of the link and no unpack, but wait for a
 * signal before and after; with runs below 32 bytes they use less of the link than lines (docs/layouts.md). */
#define PACKETS_MOST ((uint64_t)256 << 10)
#define STORES_LEAST ((uint64_t)1 << 20)
#define STORES_RUN 32u

weir_halo_form weiri_halo_choose(weir_halo_form form, uint64_t bytes, uint64_t runs, bool lines)
{
    if (form != WEIR_HALO_AUTO) {
        return form;
    }
    if (bytes >= STORES_LEAST && bytes / runs >= STORES_RUN) {
        return WEIR_HALO_STORES;
    }
    return lines && bytes > PACKETS_MOST ? WEIR_HALO_LINES : WEIR_HALO_PACKETS;
}

/* ---- shares ----------------------------------------------------------------------------------------------- */

static uint32_t count_shares(uint64_t bytes)
{
    const uint64_t large = (bytes + WEIRI_HALO_SHARE_BYTES - 1) / WEIRI_HALO_SHARE_BYTES;
    const uint64_t small = (bytes + WEIRI_HALO_SMALL_SHARE_BYTES - 1) / WEIRI_HALO_SMALL_SHARE_BYTES;
    const uint64_t least = small < WEIRI_HALO_SMALL_SHARES ? small : WEIRI_HALO_SMALL_SHARES;
    const uint64_t shares = large > least ? large : least;
    return shares < WEIRI_HALO_SHARES ? (uint32_t)shares : WEIRI_HALO_SHARES;
}

/* Bytes of each share but the last ones. */
static uint64_t share_bytes(const weiri_halo_way *way, uint32_t shares)
{
    return ((way->bytes + UNIT - 1) / UNIT + shares - 1) / shares * UNIT;
}

void weiri_halo_share_range(const weiri_halo_way *way, uint32_t shares, uint32_t i, uint64_t *at, uint64_t *bytes)
{
    const uint64_t each = share_bytes(way, shares);
    const uint64_t start = i * each;
    *at = start < way->bytes ? start : way->bytes;
    *bytes = way->bytes - *at < each ? way->bytes - *at : each;
}

uint64_t weiri_halo_half(const weiri_halo_way *way, uint32_t shares)
{
    if (way->form == WEIR_HALO_STORES || way->bytes == 0) {
        return 0;
    }
    const uint64_t each = share_bytes(way, shares);
    return way->form == WEIR_HALO_LINES ? weir_line_count(each) * WEIR_LINE_BYTES
                                        : round_up((each + 7) / 8 * 16, BUFFER_UNIT);
}

/* ---- checks ----------------------------------------------------------------------------------------------- */

/* Whether kernels can use the layout: an irregular one must be committed. */
static weir_status take_items(const weir_halo *halo, const weiri_halo_part *part, const weir_layout *layout,
                              const char *name, weir_dev_layout *items)
{
    const weir_status status = weiri_layout_handle(CALL, layout, halo->comm->device, 1, items);
    return status == WEIR_OK ? WEIR_OK : weiri_fail(status, "%s: parts[%u].%s", weir_last_error(), part->number, name);
}

static weir_status check_range(const weiri_halo_part *part, const weir_dev_layout *items, const char *name,
                               uint64_t offset, uint64_t size)
{
    return weir_dev_layout_in_range(items, offset, 0, size)
               ? WEIR_OK
               : weiri_fail(WEIR_ERR_RANGE,
                            CALL ": parts[%u].%s: bytes %" PRId64 " to %" PRId64 " at offset %" PRIu64
                                 " exceed the array (%" PRIu64 " bytes)",
                            part->number, name, items->first, items->last, offset, size);
}

/* No two parts of a channel have one index: the neighbour could not tell them apart. */
static weir_status check_index(const weir_halo *halo, const weiri_halo_part *part)
{
    for (const weiri_halo_part *other = halo->parts; other < part; other++) {
        if (!part->inside && !other->inside && other->peer == part->peer && other->id == part->id &&
            other->index == part->index) {
            return weiri_fail(WEIR_ERR_INVALID, CALL ": parts[%u] and parts[%u] have the same channel and index %u",
                              other->number, part->number, part->index);
        }
    }
    return WEIR_OK;
}

static weir_status take_layouts(weiri_halo_part *part, const weir_halo_part *given)
{
    weir_layout_info from;
    weir_layout_info to;
    if (given->from == NULL || given->to == NULL) {
        return weiri_fail(WEIR_ERR_INVALID, CALL ": parts[%u].%s is NULL", part->number,
                          given->from == NULL ? "from" : "to");
    }
    weir_status status = weir_layout_create_dup(given->from, &part->from);
    if (status == WEIR_OK) {
        status = weir_layout_create_dup(given->to, &part->to);
    }
    if (status != WEIR_OK) {
        return weiri_fail_in(CALL, status);
    }
    weir_layout_get_info(given->from, &from);
    weir_layout_get_info(given->to, &to);
    part->put.bytes = from.size;
    part->wait.bytes = to.size;
    if (from.size > PART_MOST || to.size > PART_MOST) {
        return weiri_fail(WEIR_ERR_LIMIT, CALL ": parts[%u]: more than %" PRIu64 " bytes", part->number, PART_MOST);
    }
    if (part->inside && from.size != to.size) {
        return weiri_fail(WEIR_ERR_MISMATCH,
                          CALL ": parts[%u] is within this rank: `from` has %" PRIu64 " bytes, but `to` has %" PRIu64,
                          part->number, from.size, to.size);
    }
    return WEIR_OK;
}

/* Finds the arrays of a part. The size of opts.array is not known. */
static weir_status find_memory(const weir_halo *halo, weiri_halo_part *part, const weir_halo_part *given,
                               const weir_halo_opts *opts)
{
    weir_dev_memory_channel channel;
    weir_dev_layout from;
    weir_dev_layout to;
    memset(&channel, 0, sizeof channel);
    weir_status status = take_items(halo, part, part->from, "from", &from);
    if (status == WEIR_OK) {
        status = take_items(halo, part, part->to, "to", &to);
    }
    if (status != WEIR_OK) {
        return status;
    }
    if (given->channel == NULL) {
        channel.local = (char *)opts->array;
        status =
            opts->array != NULL
                ? WEIR_OK
                : weiri_fail(WEIR_ERR_INVALID, CALL ": parts[%u] has no channel, and opts.array is NULL", part->number);
    } else if (weir_memory_channel_packets(given->channel) != NULL) {
        status =
            weiri_fail(WEIR_ERR_INVALID, CALL ": parts[%u]: the channel has packets, so its remote memory is no array",
                       part->number);
    } else {
        weir_memory_channel_device(given->channel, &channel);
        status = check_range(part, &from, "from", given->from_offset, channel.local_bytes);
        if (status == WEIR_OK) {
            status = check_range(part, &to, "to", given->to_offset, channel.local_bytes);
        }
    }
    if (status != WEIR_OK) {
        return status;
    }
    part->from_memory = channel.local + given->from_offset;
    part->to_memory = channel.local + given->to_offset;
    part->remote = channel.remote;
    part->remote_bytes = channel.remote_bytes;
    return WEIR_OK;
}

/* ---- plan ------------------------------------------------------------------------------------------------- */

/* The form of what comes, and `to` as bytes for a neighbour that stores to it. */
static weir_status choose_form(weiri_halo_part *part, const weir_halo_opts *opts)
{
    weir_layout_info to;
    weir_layout_get_info(part->to, &to);
    part->wait.form = part->inside ? WEIR_HALO_STORES
                                   : weiri_halo_choose(opts->form, to.size, to.runs != 0 ? to.runs : 1, part->lines);
    if (part->wait.form == WEIR_HALO_LINES && !part->lines) {
        return weiri_fail(WEIR_ERR_UNSUPPORTED, CALL ": parts[%u]: the link to rank %u does not keep lines whole",
                          part->number, part->peer);
    }
    if (part->inside || part->wait.form != WEIR_HALO_STORES) {
        return WEIR_OK;
    }
    weir_status status = weir_layout_export(part->to, NULL, &part->export_bytes);
    if (status != WEIR_ERR_RANGE) {
        return weiri_fail_in(CALL, status);
    }
    part->exported = (char *)weiri_alloc(1, part->export_bytes);
    if (part->exported == NULL) {
        return weiri_fail_nomem(CALL);
    }
    status = weir_layout_export(part->to, part->exported, &part->export_bytes);
    return weiri_fail_in(CALL, status);
}

static weir_status plan_part(weir_halo *halo, const weir_halo_part *given, const weir_halo_opts *opts,
                             weiri_halo_part *part)
{
    weir_status status = take_layouts(part, given);
    if (status == WEIR_OK) {
        status = find_memory(halo, part, given, opts);
    }
    if (status == WEIR_OK) {
        status = check_index(halo, part);
    }
    if (status == WEIR_OK) {
        status = choose_form(part, opts);
    }
    part->to_offset = given->to_offset;
    part->shares = count_shares(part->put.bytes > part->wait.bytes ? part->put.bytes : part->wait.bytes);
    part->first_share = halo->share_count;
    if (status == WEIR_OK && __builtin_add_overflow(halo->share_count, part->shares, &halo->share_count)) {
        status = weiri_fail(WEIR_ERR_LIMIT, CALL ": parts[%u]: more than %u shares", part->number, UINT32_MAX);
    }
    return status;
}

weir_status weiri_halo_plan(weir_halo *halo, const weir_halo_part *parts, const weir_halo_opts *opts)
{
    weir_status status = WEIR_OK;
    if (opts->form < WEIR_HALO_AUTO || opts->form > WEIR_HALO_LINES) {
        return weiri_fail(WEIR_ERR_INVALID, CALL ": opts.form is %d", (int)opts->form);
    }
    for (uint32_t i = 0; i < halo->count && status == WEIR_OK; i++) {
        status = plan_part(halo, &parts[i], opts, &halo->parts[i]);
    }
    for (uint32_t i = 0; i < halo->count && status == WEIR_OK; i++) {
        weiri_halo_part *part = &halo->parts[i];
        if (part->inside || part->shares == 0) {
            continue;
        }
        part->wait.words = halo->bytes;
        part->wait.buffer = part->wait.words + (uint64_t)part->shares * WEIR_CELL_BYTES;
        halo->bytes = part->wait.buffer + 2 * part->shares * weiri_halo_half(&part->wait, part->shares);
        if (halo->bytes > MEMORY_MOST) {
            status = weiri_fail(WEIR_ERR_LIMIT, CALL ": parts[%u]: packets would take %" PRIu64 " bytes", part->number,
                                halo->bytes);
        }
    }
    return status;
}
