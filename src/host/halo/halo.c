/* halo.c - creates halos, and launches their exchanges.
 *
 * The steps of create are those of a team of this rank and its neighbours: share a memory with words and buffers;
 * agree; find the counterparts of the parts; agree. A rank takes all steps even after an error, so that its neighbours,
 * whose teams differ, do not wait for it. */
#include "weir/halo.h"

#include <stdio.h>
#include <string.h>

#include "src/device/device.h"
#include "src/device/kernels/halo.h"
#include "src/host/base/alloc.h"
#include "src/host/base/error.h"
#include "src/host/comm/exchange.h"
#include "src/host/comm/semaphore.h"
#include "src/host/halo/halo.h"
#include "src/host/layout/layout.h"

#define CALL "weir_halo_create"
#define BLOCK_THREADS 256u
#define CPU_BLOCKS 2u

/* ---- the team --------------------------------------------------------------------------------------------- */

/* The members are this rank and the neighbours, in ascending order. */
static weir_status find_team(weir_halo *halo, const weir_halo_part *parts)
{
    bool seen[WEIRI_TEAM_RANKS + 1];
    uint32_t ranks[WEIRI_TEAM_RANKS + 1];
    uint32_t count = 1;
    memset(seen, 0, sizeof seen);
    ranks[0] = halo->comm->rank;
    for (uint32_t i = 0; i < halo->count; i++) {
        const weir_memory_channel *channel = parts[i].channel;
        const weir_connection *connection = channel != NULL ? weir_memory_channel_semaphore(channel)->connection : NULL;
        const uint32_t peer = connection != NULL ? connection->peer : halo->comm->rank;
        uint32_t k = 0;
        if (connection != NULL && connection->comm != halo->comm) {
            return weiri_fail(WEIR_ERR_INVALID, CALL ": parts[%u]: the channel is of another communicator", i);
        }
        while (k < count && ranks[k] != peer) {
            k++;
        }
        if (k == count && count++ == WEIRI_TEAM_RANKS) {
            return weiri_fail(WEIR_ERR_LIMIT, CALL ": more than %u neighbours", WEIRI_TEAM_RANKS - 1);
        }
        ranks[k] = peer;
    }
    for (uint32_t added = 0; added < count; added++) {
        uint32_t least = count;
        for (uint32_t k = 0; k < count; k++) {
            least = !seen[k] && (least == count || ranks[k] < ranks[least]) ? k : least;
        }
        seen[least] = true;
        weiri_team_add(&halo->team, ranks[least]);
    }
    return WEIR_OK;
}

/* Sets what is known of a part before its layouts are checked. */
static void set_neighbours(weir_halo *halo, const weir_halo_part *parts)
{
    for (uint32_t i = 0; i < halo->count; i++) {
        weiri_halo_part *part = &halo->parts[i];
        const weir_semaphore *semaphore =
            parts[i].channel != NULL ? weir_memory_channel_semaphore(parts[i].channel) : NULL;
        part->number = i;
        part->index = parts[i].index;
        part->peer = semaphore != NULL ? semaphore->connection->peer : halo->comm->rank;
        part->inside = part->peer == halo->comm->rank;
        part->lines = semaphore != NULL && weir_connection_keeps_lines(semaphore->connection);
        part->id = semaphore != NULL ? semaphore->tag : 0;
        while (halo->team.ranks[part->member] != part->peer) {
            part->member++;
        }
    }
}

/* ---- what kernels get ------------------------------------------------------------------------------------- */

/* Places in the private memory. */
typedef struct places {
    uint64_t shares;
    uint64_t counts;
    uint64_t bytes;
} places;

static places places_of(const weir_halo *halo)
{
    places at;
    at.shares = (uint64_t)halo->count * sizeof(weir_dev_halo_part);
    at.counts = at.shares + (uint64_t)halo->share_count * sizeof(weir_dev_halo_share);
    at.bytes = at.counts + (uint64_t)halo->share_count * sizeof(weir_dev_halo_counts);
    return at;
}

static weir_status fill_part(const weir_halo *halo, const weiri_halo_part *part, weir_dev_halo_part *out)
{
    const weir_device *device = halo->comm->device;
    const bool equal = part->put.bytes == part->wait.bytes;
    const weir_layout *there = part->inside ? part->to : part->there;
    weir_status status = weiri_layout_handle(CALL, part->from, device, 1, &out->from);
    if (status == WEIR_OK) {
        status = weiri_layout_handle(CALL, part->to, device, 1, &out->to);
    }
    if (status == WEIR_OK && there != NULL) {
        status = weiri_layout_handle(CALL, there, device, 1, &out->there);
    }
    out->from_memory = part->from_memory;
    out->to_memory = part->to_memory;
    out->there_memory = part->inside ? part->to_memory : part->there_memory;
    out->put_form = (uint32_t)(part->inside ? WEIR_HALO_STORES : part->put.form);
    out->wait_form = (uint32_t)part->wait.form;
    out->asks = !part->inside && (!equal || part->put.form == WEIR_HALO_STORES);
    out->answers = !part->inside && (!equal || part->wait.form == WEIR_HALO_STORES);
    out->peer = part->peer;
    out->index = part->index;
    return status;
}

/* Share `i` of a part to a neighbour: its buffers and words. */
static void fill_share(const weir_halo *halo, const weiri_halo_part *part, uint32_t i, weir_dev_halo_share *out)
{
    char *here = (char *)weir_memory_pointer(halo->shared.local);
    char *there = (char *)weir_memory_pointer(halo->shared.remote[part->member]);
    out->out_half = weiri_halo_half(&part->put, part->shares);
    out->in_half = weiri_halo_half(&part->wait, part->shares);
    out->out = there + part->put.buffer + 2 * i * out->out_half;
    out->in = here + part->wait.buffer + 2 * i * out->in_half;
    out->there = (weir_dev_halo_words *)(there + part->put.words + (uint64_t)i * WEIR_CELL_BYTES);
    out->here = (weir_dev_halo_words *)(here + part->wait.words + (uint64_t)i * WEIR_CELL_BYTES);
}

static weir_status fill_tables(const weir_halo *halo, char *tables)
{
    const places at = places_of(halo);
    char *own = (char *)weir_memory_pointer(halo->own);
    weir_dev_halo_part *parts = (weir_dev_halo_part *)tables;
    weir_dev_halo_share *shares = (weir_dev_halo_share *)(tables + at.shares);
    weir_dev_halo_counts *counts = (weir_dev_halo_counts *)(own + at.counts);
    for (uint32_t k = 0; k < halo->count; k++) {
        const weiri_halo_part *part = &halo->parts[k];
        const weir_status status = fill_part(halo, part, &parts[k]);
        if (status != WEIR_OK) {
            return status;
        }
        for (uint32_t i = 0; i < part->shares; i++) {
            weir_dev_halo_share *share = &shares[part->first_share + i];
            share->part = k;
            share->counts = counts + part->first_share + i;
            weiri_halo_share_range(&part->put, part->shares, i, &share->put_at, &share->put_bytes);
            weiri_halo_share_range(&part->wait, part->shares, i, &share->wait_at, &share->wait_bytes);
            if (!part->inside) {
                fill_share(halo, part, i, share);
            }
        }
    }
    return WEIR_OK;
}

static weir_status fill_device(weir_halo *halo)
{
    const places at = places_of(halo);
    weir_comm *comm = halo->comm;
    char *tables = (char *)weiri_alloc(1, at.bytes + 1);
    if (tables == NULL) {
        return weiri_fail_nomem(CALL);
    }
    weir_status status = weir_memory_allocate(comm, at.bytes + 1, NULL, &halo->own);
    if (status == WEIR_OK) {
        status = fill_tables(halo, tables);
    }
    if (status == WEIR_OK) {
        status = weir_device_copy(comm->device, weir_memory_pointer(halo->own), tables, at.counts);
    }
    weiri_free(tables);
    if (status != WEIR_OK) {
        return weiri_fail_in(CALL, status);
    }
    halo->device.control = comm->slabs.control_device;
    halo->device.parts = (const weir_dev_halo_part *)weir_memory_pointer(halo->own);
    halo->device.shares = (const weir_dev_halo_share *)((char *)weir_memory_pointer(halo->own) + at.shares);
    halo->device.share_count = halo->share_count;
    for (uint32_t k = 0; k < halo->count; k++) {
        const weiri_halo_part *part = &halo->parts[k];
        halo->device.lines |= part->put.form == WEIR_HALO_LINES || part->wait.form == WEIR_HALO_LINES;
    }
    return WEIR_OK;
}

/* Blocks wait for blocks of the neighbours, so all of a launch must be resident. */
static weir_status choose_blocks(weir_halo *halo, const weir_halo_opts *opts)
{
    weir_device *device = halo->comm->device;
    const weir_device_info *info = &device->info;
    const uint32_t threads = info->warps ? BLOCK_THREADS : 1;
    uint32_t fit = 0;
    const weir_status status = weir_kernel_fit(device, weiri_halo_kernels[0], threads, &fit);
    if (status != WEIR_OK) {
        return weiri_fail_in(CALL, status);
    }
    const uint32_t multiprocessors = info->warps && info->multiprocessors != 0 ? info->multiprocessors : 1;
    const uint32_t most = info->warps || fit < CPU_BLOCKS ? fit : CPU_BLOCKS;
    halo->blocks = opts->blocks != 0 && opts->blocks < most ? opts->blocks : most;
    halo->blocks_of_multiprocessor = fit / multiprocessors;
    return WEIR_OK;
}

/* ---- create ----------------------------------------------------------------------------------------------- */

static weir_status allocate_shared(weir_halo *halo)
{
    const uint64_t bytes = halo->bytes != 0 ? halo->bytes : 1;
    return weiri_fail_in(CALL, weir_memory_allocate(halo->comm, bytes, NULL, &halo->shared.local));
}

static weir_status prepare(weir_halo *halo, const weir_halo_part *parts, const weir_halo_opts *opts)
{
    weir_status status = weiri_halo_plan(halo, parts, opts);
    if (status == WEIR_OK) {
        status = choose_blocks(halo, opts);
    }
    return status == WEIR_OK ? allocate_shared(halo) : status;
}

/* The steps that neighbours take together. `mine`: the outcome of this rank's part so far. */
static weir_status open_halo(weir_halo *halo, weir_status mine)
{
    weiri_team *team = &halo->team;
    char text[512];
    (void)snprintf(text, sizeof text, "%s", mine != WEIR_OK ? weir_last_error() : "");
    if (halo->shared.local == NULL && weir_memory_allocate(halo->comm, 1, NULL, &halo->shared.local) != WEIR_OK) {
        halo->shared.local = NULL; /* nothing can be shared: the communicator fails, which the neighbours notice */
    }
    weir_status status = weiri_team_share_any(team, CALL, halo->shared.local, true, &halo->shared);
    if (mine != WEIR_OK) {
        status = weiri_fail(mine, "%s", text);
    }
    status = weiri_team_agree(team, NULL, CALL, status, true);
    mine = weiri_halo_meet(halo, status);
    mine = mine == WEIR_OK ? fill_device(halo) : mine;
    return weiri_team_agree(team, NULL, CALL, mine, true);
}

static void close_halo(const weir_halo *halo)
{
    weiri_team_memory shared = halo->shared;
    weiri_team_memory_close(&shared);
    weir_memory_destroy(halo->shared.local);
    weir_memory_destroy(halo->own);
    for (uint32_t i = 0; i < halo->count && halo->parts != NULL; i++) {
        weir_layout_destroy(halo->parts[i].from);
        weir_layout_destroy(halo->parts[i].to);
        weir_layout_destroy(halo->parts[i].there);
        weiri_free(halo->parts[i].exported);
    }
    weiri_free(halo->parts);
    weiri_comm_put(halo->comm);
}

/* Makes the halo in *made, whose communicator, team and count are set. A rank without memory for `halo` or for parts
 * still tells its neighbours. */
static weir_status make_halo(weir_halo *made, const weir_halo *halo, const weir_halo_part *parts,
                             const weir_halo_opts *opts)
{
    made->parts = (weiri_halo_part *)weiri_alloc((size_t)made->count + 1, sizeof *made->parts);
    if (halo == NULL || made->parts == NULL) {
        return open_halo(made, weiri_fail_nomem(CALL));
    }
    set_neighbours(made, parts);
    return open_halo(made, prepare(made, parts, opts));
}

weir_status weir_halo_create(weir_comm *comm, const weir_halo_part *parts, uint32_t count, const weir_halo_opts *opts,
                             weir_halo **out)
{
    weir_halo_opts options;
    weir_halo made;
    weir_status status = weiri_comm_check("comm", comm, CALL);
    if (status != WEIR_OK) {
        return status;
    }
    if (out == NULL || (parts == NULL && count != 0)) {
        return weiri_fail_null(CALL, out == NULL ? "out" : "parts");
    }
    if (!WEIRI_OPTS_OK(opts)) {
        return weiri_fail(WEIR_ERR_INVALID, CALL ": %s", WEIRI_OPTS_ERROR(opts));
    }
    weiri_opts_copy(&options, sizeof options, opts);
    memset(&made, 0, sizeof made);
    made.comm = comm;
    made.count = count;
    weiri_team_init(&made.team, comm, WEIRI_TAG_HALO);
    status = find_team(&made, parts);
    if (status != WEIR_OK) {
        return status;
    }
    weiri_comm_get(comm);
    weir_halo *halo = (weir_halo *)weiri_alloc(1, sizeof *halo);
    status = make_halo(&made, halo, parts, &options);
    if (status != WEIR_OK) {
        char text[512];
        snprintf(text, sizeof text, "%s", weir_last_error());
        close_halo(&made);
        weiri_free(halo);
        return weiri_fail(status, "%s", text);
    }
    *halo = made;
    *out = halo;
    return WEIR_OK;
}

void weir_halo_destroy(weir_halo *halo)
{
    if (halo != NULL && !weiri_comm_forked(halo->comm)) {
        close_halo(halo);
        weiri_free(halo);
    }
}

/* ---- use -------------------------------------------------------------------------------------------------- */

weir_status weir_halo_exchange(weir_halo *halo, void *stream)
{
    static const char call[] = "weir_halo_exchange";
    const weir_status status = weiri_comm_check("halo", halo != NULL ? halo->comm : NULL, call);
    if (status != WEIR_OK) {
        return status;
    }
    if (halo->share_count == 0) {
        return WEIR_OK;
    }
    weir_device *device = halo->comm->device;
    const bool warps = device->info.warps;
    const uint32_t fit = halo->blocks_of_multiprocessor * weir_stream_multiprocessors(device, stream);
    uint32_t blocks = halo->blocks < halo->share_count ? halo->blocks : halo->share_count;
    blocks = warps && fit < blocks ? fit : blocks;
    const weir_shape shape = { blocks, warps ? BLOCK_THREADS : 1 };
    return weir_launch(device, weiri_halo_kernels[0], shape, &halo->device, NULL, stream);
}

weir_status weir_halo_device(const weir_halo *halo, weir_dev_halo *out)
{
    static const char call[] = "weir_halo_device";
    if (halo == NULL || out == NULL) {
        return weiri_fail_null(call, halo == NULL ? "halo" : "out");
    }
    *out = halo->device;
    return WEIR_OK;
}
