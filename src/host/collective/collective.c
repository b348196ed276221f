/* collective.c - what the ranks of a collective need of each other, and its layout, which is that of
 * weir/device/impl/collective_call.h. */
#include "src/host/collective/collective.h"

#include <stdio.h>
#include <string.h>

#include "src/host/base/alloc.h"
#include "src/host/base/env.h"
#include "src/host/base/error.h"
#include "src/host/comm/exchange.h"

#define TAG WEIRI_TAG_COLLECTIVE
#define STAGING_GPU ((uint64_t)256 << 20)
#define STAGING_CPU ((uint64_t)1 << 20)
#define STAGING_LEAST ((uint64_t)128 << 10)
#define STAGING_MOST ((uint64_t)64 << 30)
#define BLOCKS_MOST 1024u
#define LETTER_BLOCKS 8u
#define SLOT_MOST ((uint64_t)512 << 10)
#define WINDOWS_MOST 255u /* what is compared has 8 bits for it */
#define WORDS 7u          /* that ranks compare */
#define VERDICT_TEXT 200  /* bytes of an error's text on its way */

static weir_status invalid(const char *call, const char *what)
{
    return weiri_fail(WEIR_ERR_INVALID, "%s: %s", call, what);
}

/* ---- ranks and layout ---------------------------------------------------------------------------------------- */

static weir_status take_group(weir_collective *collective, const weir_collective_opts *opts)
{
    const weir_comm *comm = collective->comm;
    const weir_group *group = opts->group;
    const uint32_t most = WEIR_COLLECTIVE_RANKS * WEIR_COLLECTIVE_HOSTS;
    const uint32_t count = group != NULL ? group->count : comm->size;
    bool found = false;
    if (count == 0 || (group != NULL && group->ranks == NULL)) {
        return invalid("weir_collective_create", "the group is empty");
    }
    if (count > most) {
        return weiri_fail(WEIR_ERR_LIMIT, "weir_collective_create: %u ranks, but at most %u are possible", count, most);
    }
    for (uint32_t i = 0, last = 0; i < count; i++) {
        uint32_t rank = group != NULL ? group->ranks[i] : i;
        if (rank >= comm->size || (i > 0 && rank <= last)) {
            return invalid("weir_collective_create", "the group's ranks are not ranks in ascending order");
        }
        if (rank == comm->rank) {
            collective->rank = i;
            found = true;
        }
        last = rank;
    }
    collective->size = count;
    return found ? weiri_rails_find(collective, opts)
                 : invalid("weir_collective_create", "this rank is not in the group");
}

/* Bytes of each of so many slots. */
static uint64_t slot_of(uint64_t bytes, uint64_t slots)
{
    const uint64_t slot = bytes / slots < SLOT_MOST ? bytes / slots : SLOT_MOST;
    return slot < WEIR_CELL_BYTES ? WEIR_CELL_BYTES : slot / WEIR_CELL_BYTES * WEIR_CELL_BYTES;
}

/* Fills the sizes and places of device, and returns the bytes of a rank's memory. */
static uint64_t lay_out(weir_dev_collective *device, uint32_t budget, uint64_t staging)
{
    const uint32_t columns = weir_slots_columns(device->blocks);
    const uint64_t rooms = (uint64_t)2 * 2 * device->ranks; /* sections, halves or turns, ranks */
    device->packet_room = staging / 16 / rooms / WEIR_CELL_BYTES * WEIR_CELL_BYTES;
    device->line_room = staging / 16 * 5 / rooms / WEIR_CELL_BYTES * WEIR_CELL_BYTES;
    device->slot_bytes = slot_of(staging / 2, rooms * columns);
    device->letter_bytes = slot_of(staging / 2, rooms * weir_slots_columns(budget));
    device->letter_blocks = budget < LETTER_BLOCKS ? budget : LETTER_BLOCKS;
    device->packets = weir_collective_cell(device, WEIR_CELL_KINDS, 0, 0);
    device->lines = device->packets + rooms * device->packet_room;
    device->slots = device->lines + rooms * device->line_room;
    device->letters = device->slots + rooms * columns * device->slot_bytes;
    return device->letters + (uint64_t)2 * device->letter_blocks * WEIR_COLLECTIVE_RANKS * device->letter_bytes;
}

/* Rows are compared by this. */
static uint64_t hash_rows(const weir_collective *collective)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < collective->row_count; i++) {
        const weiri_row *row = &collective->rows[i];
        const uint64_t fields[] = {
            row->kinds, row->ranks, row->bytes, (uint64_t)row->form, row->blocks, row->threads
        };
        for (uint32_t k = 0; k < sizeof fields / sizeof fields[0]; k++) {
            hash = (hash ^ fields[k]) * 0x100000001b3u + 1;
        }
    }
    return hash;
}

/* Whether two of all ranks have the same device, whose kernels must fit on it together. */
static bool share_device(const weir_collective *collective, const weir_group *group)
{
    const weir_comm *comm = collective->comm;
    for (uint32_t i = 0; i < collective->size; i++) {
        const weiri_end *end = &comm->peers[group != NULL ? group->ranks[i] : i].end;
        for (uint32_t k = 0; k < i; k++) {
            const weiri_end *other = &comm->peers[group != NULL ? group->ranks[k] : k].end;
            if (memcmp(end->device_uuid, other->device_uuid, sizeof end->device_uuid) == 0) {
                return true;
            }
        }
    }
    return false;
}

/* Whether blocks by slots share multiprocessors; alike on all ranks. Among several ranks that is faster: while one
 * block waits until the last stores of its round have arrived, others go on. */
static bool crowds(const weir_collective *collective, const weir_collective_opts *opts)
{
    const weir_shape all = { collective->budget * WEIRI_CROWD, WEIRI_CROWD_THREADS };
    return collective->many && collective->device.ranks > 2 && opts->blocks == 0 && opts->threads == 0 &&
           weir_device_fit_shape(collective->comm->device, all).blocks == all.blocks &&
           !share_device(collective, opts->group);
}

static weir_status take_opts(weir_collective *collective, const weir_collective_opts *opts, uint64_t *bytes)
{
    weir_device_info info;
    weir_device_get_info(collective->comm->device, &info);
    collective->many = info.multiprocessors > 1;
    uint64_t staging = opts->staging_bytes;
    if (staging == 0) {
        staging = collective->many ? STAGING_GPU : STAGING_CPU;
    }
    if (staging < STAGING_LEAST || staging > STAGING_MOST) {
        return weiri_fail(WEIR_ERR_INVALID, "weir_collective_create: %llu bytes of staging; at least %llu are needed",
                          (unsigned long long)staging, (unsigned long long)STAGING_LEAST);
    }
    if (opts->form > WEIR_FORM_SLOTS) {
        return invalid("weir_collective_create", "unknown form");
    }
    const weir_shape all = { collective->many ? info.multiprocessors : 2, info.block_threads };
    const weir_shape fit = weir_device_fit_shape(collective->comm->device, all);
    collective->budget = opts->blocks != 0 ? opts->blocks : fit.blocks;
    collective->threads = opts->threads != 0 || collective->many ? opts->threads : fit.threads;
    collective->most_threads = opts->threads != 0 ? opts->threads : info.block_threads;
    /* Blocks wait for each other. */
    const uint32_t most = collective->many ? info.multiprocessors : BLOCKS_MOST;
    if (collective->budget > most || collective->threads > info.block_threads ||
        (collective->many && collective->threads % 32 != 0)) {
        return weiri_fail(WEIR_ERR_INVALID, "weir_collective_create: %u blocks of %u threads; at most %u of %u%s",
                          collective->budget, collective->threads, most, info.block_threads,
                          collective->many ? ", and whole warps" : "");
    }
    collective->device.blocks = collective->budget * (crowds(collective, opts) ? WEIRI_CROWD : 1);
    collective->form = opts->form;
    collective->check_pointers = opts->check_pointers;
    *bytes = lay_out(&collective->device, collective->budget, staging);
    weiri_env env;
    weir_status status = weiri_env_read(&env);
    return status == WEIR_OK && env.collective_table_set ? weiri_collective_read_table(collective, env.collective_table)
                                                         : status;
}

/* What all ranks must have alike. */
static void write_words(const weir_collective *collective, uint64_t *words)
{
    const weir_dev_collective *device = &collective->device;
    words[0] = (uint64_t)device->ranks << 32 | device->blocks;
    words[1] = device->packet_room;
    words[2] = device->line_room;
    words[3] = device->slot_bytes;
    words[4] = collective->form;
    words[5] = device->letter_bytes;
    words[6] = hash_rows(collective);
}

/* ---- steps of all ranks -------------------------------------------------------------------------------------- */

/* What a rank tells the others at the end of a step. */
typedef struct verdict {
    uint64_t words[WORDS];
    bool lines; /* all of its connections keep them, as far as it knows */
    weir_status status;
    char text[VERDICT_TEXT];
} verdict;

static size_t write_verdict(const weir_collective *collective, weir_status status, const char *text,
                            uint8_t payload[WEIRI_PAYLOAD_MAX])
{
    uint64_t words[WORDS];
    char cut[VERDICT_TEXT];
    weiri_writer w = weiri_writer_init(payload, WEIRI_PAYLOAD_MAX);
    write_words(collective, words);
    for (uint32_t i = 0; i < WORDS; i++) {
        weiri_write_u64(&w, words[i]);
    }
    weiri_write_u32(&w, collective->lines);
    weiri_write_u32(&w, (uint32_t)status);
    snprintf(cut, sizeof cut, "%s", text);
    weiri_write_string(&w, cut);
    return w.size;
}

static weir_status take_verdict(weir_future *future)
{
    verdict *theirs = (verdict *)future->out;
    weiri_reader r = weiri_reader_init(future->payload, future->payload_bytes);
    for (uint32_t i = 0; i < WORDS; i++) {
        theirs->words[i] = weiri_read_u64(&r);
    }
    theirs->lines = weiri_read_u32(&r) != 0;
    const int32_t status = (int32_t)weiri_read_u32(&r);
    weiri_read_string(&r, theirs->text, sizeof theirs->text);
    if (!weiri_reader_done(&r) || status > WEIR_OK || status <= WEIR_STATUS_FIRST_UNUSED || future->handle_count != 0) {
        return weiri_fail(WEIR_ERR_CORRUPT, "collective: malformed message of rank %u", future->peer);
    }
    theirs->status = (weir_status)status;
    return WEIR_OK;
}

static weir_status judge(const weir_collective *collective, const char *call, uint32_t peer, const verdict *theirs)
{
    uint64_t words[WORDS];
    if (theirs->status != WEIR_OK) {
        return weiri_fail(theirs->status, "%s: rank %u failed: %s", call, peer, theirs->text);
    }
    write_words(collective, words);
    return memcmp(words, theirs->words, sizeof words) == 0
               ? WEIR_OK
               : weiri_fail(WEIR_ERR_MISMATCH, "%s: rank %u was given other opts, or another table", call, peer);
}

weir_status weiri_collective_fail_to_begin(weir_comm *comm, const char *call, weir_status status)
{
    char cause[256];
    if (status == WEIR_ERR_REMOTE || status == WEIR_ERR_UNSUPPORTED || status == WEIR_ERR_TIMEOUT) {
        return status;
    }
    snprintf(cause, sizeof cause, "%s: %s", call, weir_last_error());
    pthread_mutex_lock(&comm->mutex);
    weiri_comm_break_locked(comm, status, cause);
    pthread_mutex_unlock(&comm->mutex);
    return weiri_comm_error(comm);
}

/* The first error of several. */
typedef struct outcome {
    weir_status status;
    char text[512];
} outcome;

static void add_outcome(outcome *first, weir_status status)
{
    if (first->status == WEIR_OK && status != WEIR_OK) {
        first->status = status;
        snprintf(first->text, sizeof first->text, "%s", weir_last_error());
    }
}

/* Ends a step of all ranks, of which this one's part has ended with `mine`: an error of any is everyone's. Unless it
 * `waits`, a rank that knows of one returns at once; it does where others may still be mapping its memory. */
static weir_status agree(weir_collective *collective, const char *call, weir_status mine, bool waits)
{
    weir_comm *comm = collective->comm;
    const weir_dev_collective *device = &collective->device;
    verdict all[WEIR_COLLECTIVE_RANKS];
    weir_future *futures[WEIR_COLLECTIVE_RANKS] = { NULL };
    uint8_t payload[WEIRI_PAYLOAD_MAX];
    outcome first = { WEIR_OK, "" };
    add_outcome(&first, mine);
    const size_t bytes = write_verdict(collective, mine, first.text, payload);
    const weiri_op_message message = { WEIRI_OP_TEAM, payload, bytes, { NULL, NULL }, 0 };
    for (uint32_t k = 0; k < device->ranks; k++) {
        if (k == device->rank) {
            continue;
        }
        weir_status begun = weiri_exchange_expect(comm, collective->ranks[k], TAG, WEIRI_OP_TEAM, take_verdict,
                                                  NULL, NULL, &all[k], &futures[k]);
        if (begun == WEIR_OK) {
            begun = weiri_exchange_send(comm, collective->ranks[k], TAG, &message);
        }
        add_outcome(&first, begun == WEIR_OK ? begun : weiri_collective_fail_to_begin(comm, call, begun));
    }
    /* Futures that are given up still take the messages that were meant for them. */
    for (uint32_t k = 0; k < device->ranks; k++) {
        if (futures[k] != NULL && first.status != WEIR_OK && !waits) {
            weir_future_destroy(futures[k]);
        } else if (futures[k] != NULL) {
            const weir_status status = weiri_exchange_complete(futures[k]);
            add_outcome(&first, status != WEIR_OK ? status : judge(collective, call, collective->ranks[k], &all[k]));
            /* Forms are chosen by it, and all ranks must choose the same one. */
            collective->lines = collective->lines && status == WEIR_OK && all[k].lines;
        }
    }
    return first.status == WEIR_OK ? WEIR_OK : weiri_fail(first.status, "%s", first.text);
}

/* ---- create ------------------------------------------------------------------------------------------------- */

weir_status weiri_collective_complete(weir_future **futures, uint32_t count, weir_status status)
{
    for (uint32_t k = 0; k < count; k++) {
        if (futures[k] != NULL && status == WEIR_OK) {
            status = weiri_exchange_complete(futures[k]);
        } else if (futures[k] != NULL) {
            weir_future_destroy(futures[k]);
        }
    }
    return status;
}

/* Connects to all others; it is begun with each, also when that fails with one, before any is waited for. */
static weir_status connect_all(weir_collective *collective, const char *call)
{
    const weir_dev_collective *device = &collective->device;
    weir_future *futures[WEIR_COLLECTIVE_RANKS] = { NULL };
    weir_status status = WEIR_OK;
    for (uint32_t k = 0; k < device->ranks; k++) {
        if (k == device->rank) {
            continue;
        }
        weir_status begun = weir_connection_create_async(collective->comm, collective->ranks[k], TAG, NULL,
                                                         &collective->connections[k], &futures[k]);
        if (begun != WEIR_OK) {
            status = weiri_collective_fail_to_begin(collective->comm, call, begun);
        }
    }
    status = weiri_collective_complete(futures, device->ranks, status);
    collective->lines = true;
    for (uint32_t k = 0; k < device->ranks && status == WEIR_OK; k++) {
        if (k != device->rank) {
            collective->lines = collective->lines && weir_connection_keeps_lines(collective->connections[k]);
        }
    }
    return status;
}

/* Every rank gives `local` to all others and maps theirs. */
static weir_status share(weir_collective *collective, const char *call, weir_memory *local, weir_memory **remote)
{
    weir_comm *comm = collective->comm;
    const weir_dev_collective *device = &collective->device;
    weir_future *futures[WEIR_COLLECTIVE_RANKS] = { NULL };
    weir_status status = WEIR_OK;
    for (uint32_t k = 0; k < device->ranks; k++) {
        if (k == device->rank) {
            continue;
        }
        weir_status begun = weir_memory_recv_async(comm, collective->ranks[k], TAG, &remote[k], &futures[k]);
        if (begun == WEIR_OK) {
            begun = weir_memory_send(comm, local, collective->ranks[k], TAG);
        }
        if (begun != WEIR_OK) {
            status = weiri_collective_fail_to_begin(comm, call, begun);
        }
    }
    status = weiri_collective_complete(futures, device->ranks, status);
    for (uint32_t k = 0; k < device->ranks && status == WEIR_OK; k++) {
        if (k == device->rank) {
            continue;
        }
        if (weir_memory_pointer(remote[k]) == NULL) {
            status = weiri_fail(WEIR_ERR_UNSUPPORTED, "%s: memory of rank %u is not mapped here", call,
                                collective->ranks[k]);
        } else if (weir_memory_bytes(remote[k]) != weir_memory_bytes(local)) {
            status = weiri_fail(WEIR_ERR_MISMATCH, "%s: rank %u has a memory of %llu bytes, this rank of %llu", call,
                                collective->ranks[k], (unsigned long long)weir_memory_bytes(remote[k]),
                                (unsigned long long)weir_memory_bytes(local));
        }
    }
    return status;
}

/* `mine` is how this rank's own part of create has gone so far. */
static weir_status open_memories(weir_collective *collective, uint64_t bytes, weir_status mine)
{
    static const char call[] = "weir_collective_create";
    const weir_memory_opts host = { .size = sizeof host, .kind = WEIR_MEMORY_HOST };
    weir_comm *comm = collective->comm;
    weir_dev_collective *device = &collective->device;
    if (mine == WEIR_OK) {
        mine = weir_memory_allocate(comm, bytes, NULL, &collective->local);
    }
    if (mine == WEIR_OK) {
        mine = weir_memory_allocate(comm, (WEIR_COLLECTIVE_RANKS + WEIR_COLLECTIVE_HOSTS) * sizeof(weir_dev_difference),
                                    &host, &collective->differences);
    }
    weir_status status = agree(collective, call, mine, false);
    if (status == WEIR_OK) {
        status = agree(collective, call, connect_all(collective, call), true);
    }
    if (status == WEIR_OK) {
        status = agree(collective, call, share(collective, call, collective->local, collective->remote), true);
    }
    for (uint32_t k = 0; k < device->ranks && status == WEIR_OK; k++) {
        weir_memory *memory = k == device->rank ? collective->local : collective->remote[k];
        device->memory[k] = (char *)weir_memory_pointer(memory);
        device->peers[k] = collective->ranks[k];
    }
    device->call = WEIR_NO_CALL;
    if (status == WEIR_OK) {
        device->control = comm->control_device;
        device->epoch = (uint64_t *)weir_memory_pointer(collective->local);
        device->differences = (weir_dev_difference *)weir_memory_pointer(collective->differences);
    }
    return status;
}

/* The same where there are several hosts, whose ranks all agree on each step. */
static weir_status open_hosts(weir_collective *collective, const weir_collective_opts *opts, uint64_t bytes,
                              weir_status mine)
{
    static const char call[] = "weir_collective_create";
    weir_status status = weiri_rails_agree(collective, opts, call, mine);
    if (status == WEIR_OK) {
        status = weiri_rails_agree(collective, opts, call, open_memories(collective, bytes, WEIR_OK));
    }
    if (status == WEIR_OK) {
        status = weiri_rails_open(collective, opts);
    }
    return status;
}

/* The difference that a kernel has found. */
static bool tell_difference(void *context, weir_status status, char *text, size_t bytes)
{
    const weir_collective *collective = (const weir_collective *)context;
    const weir_dev_difference *all = (const weir_dev_difference *)weir_memory_host_pointer(collective->differences);
    for (uint32_t k = 0; status == WEIR_ERR_MISMATCH && k < WEIR_COLLECTIVE_RANKS + WEIR_COLLECTIVE_HOSTS; k++) {
        if (weir_arch_load_acquire_sys_u64(&all[k].found) != 0) {
            const uint32_t peer =
                k < WEIR_COLLECTIVE_RANKS ? collective->ranks[k] : collective->rails.ranks[k - WEIR_COLLECTIVE_RANKS];
            weiri_call_differ(&all[k], peer, text, bytes);
            return true;
        }
    }
    return false;
}

static void close_window(weiri_window *window)
{
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS; k++) {
        weir_memory_destroy(window->remote[k]);
    }
    weir_memory_destroy(window->local);
}

static void close_collective(weir_collective *collective)
{
    for (uint32_t i = 0; i < collective->window_count; i++) {
        close_window(&collective->windows[i]);
    }
    weiri_free(collective->windows);
    weiri_free(collective->rows);
    weiri_rails_close(collective);
    for (uint32_t k = 0; k < WEIR_COLLECTIVE_RANKS; k++) {
        weir_memory_destroy(collective->remote[k]);
        weir_connection_destroy(collective->connections[k]);
    }
    weir_memory_destroy(collective->differences);
    weir_memory_destroy(collective->local);
    weiri_comm_put(collective->comm);
    weiri_free(collective);
}

/* Tells the others that this rank has nothing to make a collective of. */
static weir_status give_up(weir_collective *members, const weir_collective_opts *opts, weir_status status)
{
    static const char call[] = "weir_collective_create";
    return members->rails.device.hosts == 1 ? agree(members, call, status, false)
                                            : weiri_rails_agree(members, opts, call, status);
}

weir_status weir_collective_create(weir_comm *comm, const weir_collective_opts *opts, weir_collective **out)
{
    static const char call[] = "weir_collective_create";
    weir_collective_opts options;
    uint64_t bytes = 0;
    weir_collective members; /* enough to tell the others that there is no memory for more */
    weir_status status = weiri_comm_check(comm, call);
    if (status != WEIR_OK) {
        return status;
    }
    if (!WEIRI_OPTS_OK(opts)) {
        return invalid(call, WEIRI_OPTS_ERROR(opts));
    }
    weiri_opts_copy(&options, sizeof options, opts);
    memset(&members, 0, sizeof members);
    members.comm = comm;
    status = take_group(&members, &options);
    if (status != WEIR_OK) {
        return status;
    }
    if (out == NULL) {
        return give_up(&members, &options, invalid(call, "out is NULL"));
    }
    weir_collective *collective = (weir_collective *)weiri_alloc(1, sizeof *collective);
    if (collective == NULL) {
        return give_up(&members, &options, weiri_fail_nomem(call));
    }
    *collective = members;
    weiri_comm_get(comm);
    status = take_opts(collective, &options, &bytes);
    status = collective->rails.device.hosts == 1 ? open_memories(collective, bytes, status)
                                                 : open_hosts(collective, &options, bytes, status);
    if (status != WEIR_OK) {
        char text[512];
        snprintf(text, sizeof text, "%s", weir_last_error());
        close_collective(collective);
        return weiri_fail(status, "%s", text);
    }
    collective->teller.tell = tell_difference;
    collective->teller.context = collective;
    weiri_comm_add_teller(comm, &collective->teller);
    *out = collective;
    return WEIR_OK;
}

void weir_collective_destroy(weir_collective *collective)
{
    if (collective != NULL && !weiri_comm_forked(collective->comm)) {
        weiri_comm_remove_teller(collective->comm, &collective->teller);
        close_collective(collective);
    }
}

/* ---- the rest ------------------------------------------------------------------------------------------------- */

uint32_t weir_collective_rank(const weir_collective *collective)
{
    return collective != NULL ? collective->rank : 0;
}

uint32_t weir_collective_size(const weir_collective *collective)
{
    return collective != NULL ? collective->size : 0;
}

uint64_t weir_collective_bytes(const weir_collective *collective)
{
    return collective != NULL ? weir_memory_bytes(collective->local) + weir_memory_bytes(collective->rails.local) : 0;
}

void weir_collective_device(const weir_collective *collective, weir_dev_collective *out)
{
    if (out == NULL) {
        return;
    }
    memset(out, 0, sizeof *out);
    if (collective != NULL) {
        *out = collective->device;
    }
}

weir_status weir_collective_add(weir_collective *collective, const weir_collective_algorithm *algorithm)
{
    weir_status status = weiri_comm_check(collective == NULL ? NULL : collective->comm, "weir_collective_add");
    if (status != WEIR_OK) {
        return status;
    }
    if (algorithm == NULL || algorithm->fits == NULL || algorithm->run == NULL) {
        return invalid("weir_collective_add", "NULL argument");
    }
    if (collective->algorithm_count == WEIRI_ALGORITHMS) {
        return weiri_fail(WEIR_ERR_LIMIT, "weir_collective_add: %u algorithms are there already", WEIRI_ALGORITHMS);
    }
    collective->algorithms[collective->algorithm_count++] = *algorithm;
    return WEIR_OK;
}

weir_status weir_collective_force(weir_collective *collective, weir_collective_form form, uint32_t blocks)
{
    weir_status status = weiri_comm_check(collective == NULL ? NULL : collective->comm, "weir_collective_force");
    if (status != WEIR_OK) {
        return status;
    }
    if ((uint32_t)form > WEIR_FORM_SLOTS || blocks > collective->budget) {
        return weiri_fail(WEIR_ERR_INVALID, "weir_collective_force: form %d, %u blocks of at most %u", (int)form,
                          blocks, collective->budget);
    }
    collective->form = form;
    collective->forced = blocks;
    return WEIR_OK;
}

/* Room for one more window, with this rank's memory; it is not counted yet. */
static weir_status new_window(weir_collective *collective, const char *call, weir_memory *memory, weiri_window **out)
{
    if (memory == NULL || memory->comm != collective->comm || memory->rank != collective->comm->rank) {
        return invalid(call, "not a memory of this rank and communicator");
    }
    if (collective->window_count == WINDOWS_MOST) {
        return weiri_fail(WEIR_ERR_LIMIT, "%s: %u memories are registered already", call, WINDOWS_MOST);
    }
    weiri_window *windows =
        (weiri_window *)weiri_realloc(collective->windows, (collective->window_count + 1) * sizeof *windows);
    if (windows == NULL) {
        return weiri_fail_nomem(call);
    }
    collective->windows = windows;
    weiri_window *window = &windows[collective->window_count];
    memset(window, 0, sizeof *window);
    weiri_memory_get(memory);
    window->local = memory;
    *out = window;
    return WEIR_OK;
}

weir_status weir_collective_register(weir_collective *collective, weir_memory *memory)
{
    static const char call[] = "weir_collective_register";
    weiri_window *window = NULL;
    weir_status status = weiri_comm_check(collective == NULL ? NULL : collective->comm, call);
    if (status != WEIR_OK) {
        return status;
    }
    status = agree(collective, call, new_window(collective, call, memory, &window), false);
    if (status == WEIR_OK) {
        status = agree(collective, call, share(collective, call, memory, window->remote), true);
    }
    if (status == WEIR_OK) {
        collective->window_count++;
        return WEIR_OK;
    }
    char text[512];
    snprintf(text, sizeof text, "%s", weir_last_error());
    if (window != NULL) {
        close_window(window);
    }
    return weiri_fail(status, "%s", text);
}
